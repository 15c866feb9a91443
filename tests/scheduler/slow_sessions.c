/* Sessions on disk: a process that serves them is killed at random moments, and every session that
 * was acknowledged as saved goes on as if nothing had happened. Then damaged files, a full disk,
 * limits. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "scheduler/in_folder.h"

enum { KILLS = 200, FOLDERS = 10, SESSIONS = 80, TURNS = 12, ASKED = 9, NEW = 6, AT_ONCE = 3 };

/* What a turn has to bring. */
typedef struct turn {
    int n_prompt, n;
    int32_t ids[NEW];
} turn;

static turn want[SESSIONS][TURNS];
static rv_adapter *adapter; /* of every fourth session */
static rv_adapter_set *adapters;

static rv_service *service_in(const char *where, const rv_service_options *given)
{
    rv_service *svc;
    rv_service_options so = given ? *given : (rv_service_options){0};
    so.size = sizeof so;
    so.n_tokens = 1024;
    so.n_context = 256;
    so.no_thread = 1;
    so.sessions = where;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

/* The next turn of session k: its ids are the same in every turn. */
static rv_status ask(rv_service *svc, int k, uint64_t *id, rv_error *err)
{
    char name[32];
    int32_t ids[ASKED];
    static const rv_logit_bias no_nul = {3, -INFINITY}; /* <0x00>, which ends a text of C */
    rv_sampling sampling = {.size = sizeof sampling,
                            .seed = (uint64_t)k + 1,
                            .temperature = 1,
                            .logit_bias = &no_nul,
                            .n_logit_bias = 1};
    rv_generate_options go = {.size = sizeof go, .max_tokens = NEW, .sampling = &sampling};
    for (int i = 0; i < ASKED; i++) ids[i] = 3 + (i * 7 + k * 31) % 250;
    snprintf(name, sizeof name, "session %d", k);
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = ASKED,
                    .generate = &go,
                    .tenant = k % 2 ? "ann" : "bob",
                    .adapters = k % 4 == 3 ? adapters : NULL,
                    .session = name};
    return rv_service_submit(svc, &r, id, err);
}

static served answer(rv_service *svc, int k)
{
    served s = {0};
    assert_ok(ask(svc, k, &s.request, err));
    served_run(svc, &s, 1);
    return s;
}

static void expect_turn(const served *s, int k, int t)
{
    assert_int_equal(s->last.n_prompt, want[k][t].n_prompt);
    assert_int_equal(s->n, want[k][t].n);
    assert_memory_equal(s->ids, want[k][t].ids, (size_t)s->n * sizeof *s->ids);
}

/* Without a crash: one service has the sessions from the first turn to the last. */
static void find_out(void **state)
{
    (void)state;
    rv_service *svc = service_in(in_folder("whole"), NULL);
    for (int k = 0; k < SESSIONS; k++)
        for (int t = 0; t < TURNS; t++) {
            served s = answer(svc, k);
            assert_true(s.last.saved && !s.last.session_status && !s.last.error);
            want[k][t] = (turn){.n_prompt = s.last.n_prompt, .n = s.n};
            memcpy(want[k][t].ids, s.ids, (size_t)s.n * sizeof *s.ids);
            assert_true(t == 0 || s.last.n_prompt > want[k][t - 1].n_prompt);
        }
    rv_status st = RV_OK; /* until a session is full */
    for (int t = TURNS; !st && t < 100; t++) {
        served s = {0};
        st = ask(svc, 0, &s.request, NULL);
        if (!st) served_run(svc, &s, 1);
    }
    assert_int_equal(st, RV_E_TOO_LONG);
    rv_service_free(&svc);
    /* turn by turn, each by a service of its own */
    in_folder("again");
    for (int t = 0; t < TURNS; t++) {
        svc = service_in(dir, NULL);
        for (int k = 0; k < 4; k++) {
            served s = answer(svc, k);
            expect_turn(&s, k, t);
            int whole = t ? want[k][t - 1].n_prompt / 32 * 32 : 0; /* at least: pages of the file */
            assert_true(s.last.n_reused >= whole);
        }
        rv_service_free(&svc);
    }
}

typedef struct ack {
    int k, t;
} ack;

/* Sessions are saved by another thread than the one that computes, while it computes. */
static rv_service *threaded_service(void)
{
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 1024, .n_context = 256, .sessions = dir};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static void await(rv_service *svc, served *list, size_t n)
{
    for (size_t n_ended = 0; n_ended < n;) {
        served_drain(svc, 0.1, list, n);
        for (n_ended = 0; n_ended < n && list[n_ended].ended; n_ended++) {
        }
    }
}

/* Serves turns until it is killed. acked: turns that the parent knows of. */
static void serve_on(const int *acked, uint64_t seed, int to_parent)
{
    rvi_rng r = {seed};
    bool threaded = seed % 2;
    rv_service *svc = threaded ? threaded_service() : service_in(dir, NULL);
    int done[SESSIONS];
    memcpy(done, acked, sizeof done);
    for (;;) {
        served list[AT_ONCE] = {0};
        int which[AT_ONCE], n = 0;
        for (int tries = 0; n < AT_ONCE && tries < 1000; tries++) {
            int k = (int)(rvi_rng_u64(&r) % SESSIONS), i = 0;
            while (i < n && which[i] != k) i++;
            if (i < n || done[k] >= TURNS - 1) continue;
            rv_status st = ask(svc, k, &list[n].request, NULL);
            if (st && st != RV_E_TOO_LONG) _exit(2);
            if (st) /* full of turns that were saved, none acknowledged */
                done[k] = TURNS;
            else
                which[n++] = k;
        }
        if (!n) { /* nothing is left to serve: who waits for it must not wait */
            close(to_parent);
            pause();
        }
        if (threaded)
            await(svc, list, (size_t)n);
        else
            served_run(svc, list, (size_t)n);
        for (int i = 0; i < n; i++) {
            int k = which[i], t = 0;
            while (t < TURNS && want[k][t].n_prompt != list[i].last.n_prompt) t++;
            if (!list[i].last.saved) _exit(3);
            if (t < done[k]) _exit(4); /* something was lost */
            if (t == TURNS) {          /* many turns that were saved, none acknowledged */
                if (list[i].last.n_prompt < want[k][TURNS - 1].n_prompt) _exit(7);
                done[k] = TURNS;
                continue;
            }
            if (list[i].n != want[k][t].n ||
                memcmp(list[i].ids, want[k][t].ids, (size_t)list[i].n * sizeof *list[i].ids))
                _exit(5);
            done[k] = t + 1;
            ack a = {k, t};
            if (write(to_parent, &a, sizeof a) != (ssize_t)sizeof a) _exit(6);
        }
    }
}

static bool take_ack(int from, int *acked)
{
    ack a;
    if (read(from, &a, sizeof a) != (ssize_t)sizeof a) return false;
    acked[a.k] = a.t + 1;
    return true;
}

/* Forks a process that serves, and kills it: after an acknowledgement or two, or none, and some
 * milliseconds more. Returns how many turns it acknowledged. */
static int kill_one(int *acked, rvi_rng *r, int round)
{
    int pipes[2], status = 0, n = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        close(pipes[0]);
        serve_on(acked, (uint64_t)round + 1, pipes[1]);
    }
    close(pipes[1]);
    for (uint64_t wait = round % 4 ? rvi_rng_u64(r) % 3 : 0; wait > 0; wait--)
        n += take_ack(pipes[0], acked);
    nanosleep(&(struct timespec){.tv_nsec = (long)(rvi_rng_u64(r) % 20000) * 1000}, NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status)) fail_msg("it ended by itself: %d", WEXITSTATUS(status));
    while (take_ack(pipes[0], acked)) n++;
    close(pipes[0]);
    return n;
}

/* Every session that was acknowledged goes on. Returns how many had turns left to show it by. */
static int go_on(const int *acked)
{
    rv_service *svc = service_in(dir, NULL);
    int n = 0;
    for (int k = 0; k < SESSIONS; k++) {
        if (!acked[k] || acked[k] >= TURNS - 1) continue;
        served s = {0};
        rv_status st = ask(svc, k, &s.request, NULL);
        if (st == RV_E_TOO_LONG) continue;
        assert_int_equal(st, RV_OK);
        served_run(svc, &s, 1);
        int t = acked[k]; /* later ones may have been saved too */
        while (t < TURNS && want[k][t].n_prompt < s.last.n_prompt) t++;
        if (t == TURNS) continue;
        expect_turn(&s, k, t);
        n++;
    }
    rv_service_free(&svc);
    return n;
}

/* In a few folders one after the other: a quick machine has served all turns of one folder long
 * before the last kill. */
static void kills(void **state)
{
    (void)state;
    int n_acks = 0, n_early = 0, n = 0;
    rvi_rng r = {20260202};
    for (int round = 0; round < KILLS;) {
        int acked[SESSIONS] = {0};
        char name[32];
        snprintf(name, sizeof name, "killed from %d on", round);
        in_folder(name);
        for (int end = round + KILLS / FOLDERS; round < end; round++) {
            int acks = kill_one(acked, &r, round);
            n_acks += acks;
            n_early += !acks;
        }
        n += go_on(acked);
    }
    print_message(
        "# %d kills, %d before an acknowledgement; %d turns acknowledged; %d sessions went "
        "on at the end\n",
        KILLS, n_early, n_acks, n);
    assert_true(n_acks > KILLS / 4 && n_early < KILLS && n > 0);
}

/* ---- bad luck ---- */

/* A file of the folder whose name ends like this; *n (may be NULL): how many there are. */
static void find_file(const char *end, char path[400], int *n)
{
    DIR *d = opendir(dir);
    int count = 0;
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        size_t len = strlen(x->d_name);
        if (len <= strlen(end) || strcmp(x->d_name + len - strlen(end), end)) continue;
        snprintf(path, 400, "%s/%s", dir, x->d_name);
        count++;
    }
    closedir(d);
    if (n) *n = count;
}

/* Changes a byte of such a file at a place; returns its name. */
static void damage(const char *end, char path[400], long at)
{
    find_file(end, path, NULL);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(c ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

static long file_size(const char *path)
{
    uint64_t size = 0;
    assert_int_equal(rvi_os_stat(path, &size), RVI_OS_FILE);
    return (long)size;
}

static void damaged_files(void **state)
{
    (void)state;
    char path[400];
    in_folder("damaged");
    enum { T = 4 }; /* turns, of one whole page */
    static const long places[] = {0, 9, 30, 60, 90, 150, 200, 300, -1, -40, 0, 77, -1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        rv_service *svc = service_in(dir, NULL);
        for (int t = 0; t < T; t++)
            for (int k = 0; k < 3; k++) (void)answer(svc, k);
        rv_service_free(&svc);
        damage(i < 10 ? ".session" : ".pages", path, places[i]);
        svc = service_in(dir, NULL);
        int n_refused = 0;
        for (int k = 0; k < 3; k++) {
            served s = {0};
            rv_error why = {0};
            rv_status st = ask(svc, k, &s.request, &why);
            n_refused += st == RV_E_STORAGE && strstr(why.text, "damaged");
            assert_true(!st || st == RV_E_STORAGE);
            if (st) continue;
            served_run(svc, &s, 1);
            expect_turn(&s, k, T);
        }
        assert_int_equal(n_refused, 1);
        assert_int_equal(access(path, F_OK), 0); /* it is left as it is */
        rv_service_free(&svc);
        if (i) rvi_os_remove_tree(dir);
        if (i) continue;
        /* whatever is damaged, and where nothing is left: its name can be had again */
        assert_int_equal(truncate(path, 0), 0);
        svc = service_in(dir, NULL);
        for (int k = 0; k < 3; k++) {
            uint64_t id;
            char name[32];
            rv_error why = {0};
            rv_status st = ask(svc, k, &id, &why);
            assert_true(!st || (st == RV_E_STORAGE && strstr(why.text, "damaged")));
            if (!st) continue;
            snprintf(name, sizeof name, "session %d", k);
            assert_ok(rv_service_forget(svc, k % 2 ? "ann" : "bob", name, err));
            assert_int_not_equal(access(path, F_OK), 0);
            served s = answer(svc, k);
            expect_turn(&s, k, 0);
        }
        rv_service_free(&svc);
        rvi_os_remove_tree(dir);
    }
}

/* A file that is cut while a request of its session waits: what it lacks is computed again. */
static void cut_while_it_waits(void **state)
{
    enum { T = 6 }; /* turns, of two whole pages together */
    (void)state;
    char path[400];
    for (int more = 0; more < 2; more++) { /* than a page of the system */
        served s = {0};
        rv_service *svc = service_in(in_folder("cut"), NULL);
        for (int t = 0; t < T; t++) (void)answer(svc, 0);
        rv_service_free(&svc);
        svc = service_in(dir, NULL);
        assert_ok(ask(svc, 0, &s.request, err));
        damage(".pages", path, 0);
        assert_int_equal(truncate(path, more ? 1000 : file_size(path) - 2000), 0);
        served_run(svc, &s, 1);
        expect_turn(&s, 0, T);
        rv_service_free(&svc);
        rvi_os_remove_tree(dir);
    }
}

/* What was damaged while a service goes on is refused as well. */
static void damaged_beside(void **state)
{
    enum { T = 6 };
    (void)state;
    char path[400];
    uint64_t id;
    rv_error why = {0};
    rv_service *svc = service_in(in_folder("beside"), NULL);
    for (int t = 0; t < T; t++) {
        served s = answer(svc, 0);
        expect_turn(&s, 0, t);
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* files tell times by clock ticks */
    damage(".pages", path, 40);
    assert_int_equal(ask(svc, 0, &id, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "damaged"));
    damage(".pages", path, 40); /* as it was */
    served s = answer(svc, 0);
    expect_turn(&s, 0, T);
    assert_true(s.last.saved);
    rv_service_free(&svc);
}

/* What a file of pages had at a place, and whether all of it is there still. */
static void read_pages(uint8_t *to, size_t most, size_t *len)
{
    char path[400];
    int n;
    find_file(".pages", path, &n);
    assert_int_equal(n, 1);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *len = fread(to, 1, most, f);
    fclose(f);
}

/* A conversation that goes on has its new pages written behind those that are there; what a kill
 * left of others goes when the folder is opened, and so does all of a session that is forgotten. */
static void pages_are_added(void **state)
{
    (void)state;
    static uint8_t before[1 << 20], now[1 << 20];
    size_t n_before = 0, n_now = 0;
    char path[400], other[420];
    int n;
    rv_service *svc = service_in(in_folder("added"), NULL);
    for (int t = 0; t < TURNS; t++) {
        served s = answer(svc, 0);
        expect_turn(&s, 0, t);
        find_file(".pages", path, &n);
        if (!n) continue; /* no page is whole yet */
        if (!n_before) memset(before, 0, sizeof before);
        read_pages(now, sizeof now, &n_now);
        assert_true(n_now < sizeof now);
        /* what is written was not there; what was there is not touched */
        assert_true(n_now >= n_before);
        assert_memory_equal(now, before, n_before);
        memcpy(before, now, n_now);
        n_before = n_now;
        /* of a turn that was killed: some bytes behind, and a file of another number */
        FILE *f = fopen(path, "ab");
        assert_non_null(f);
        assert_true(fputs("of no page", f) >= 0);
        fclose(f);
        snprintf(other, sizeof other, "%.*s.7.pages", (int)(strchr(path + strlen(dir), '.') - path),
                 path);
        f = fopen(other, "wb");
        assert_non_null(f);
        fclose(f);
        rv_service_free(&svc);
        svc = service_in(dir, NULL);
        assert_int_not_equal(access(other, F_OK), 0);
    }
    assert_true(n_before > 0);
    assert_ok(rv_service_forget(svc, "bob", "session 0", err));
    find_file(".pages", path, &n);
    assert_int_equal(n, 0);
    rv_service_free(&svc);
}

static int fill_up(void)
{
    struct rlimit limit;
    rv_service *svc = service_in(dir, NULL);
    (void)answer(svc, 0);
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &limit)) return 1;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 64;
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    for (int k = 0; k < 2; k++) {
        served s = answer(svc, k); /* the answer is whole */
        expect_turn(&s, k, k ? 0 : 1);
        if (s.last.saved || s.last.session_status != RV_E_IO || !s.error[0]) return 3;
        if (s.last.status || s.last.finish == RV_FINISH_ERROR) return 4;
    }
    limit.rlim_cur = before;
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 5;
    for (int k = 0; k < 2; k++) { /* as they were before */
        served s = answer(svc, k);
        expect_turn(&s, k, k ? 0 : 1);
        if (!s.last.saved) return 6;
    }
    rv_service_free(&svc);
    return 0;
}

static void full_disk(void **state)
{
    (void)state;
    int status = 0;
    in_folder("full");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(fill_up());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A clock that is set, for sessions by test: seconds that it is ahead. */
static long clock_ahead;

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += clock_ahead;
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

/* Whatever the clock does, no session is lost that was used a moment ago. */
static void clock_jumps(void **state)
{
    (void)state;
    static const long ahead[] = {0, -1000000, 0, 1000000, -500000, 0};
    rv_service_options so = {.session_idle = 1000, .session_age = 5000};
    in_folder("clock");
    rv_service *svc = service_in(dir, &so);
    for (int i = 0; i < (int)RVI_COUNT(ahead); i++) {
        clock_ahead = ahead[i];
        served s = answer(svc, 1);
        expect_turn(&s, 1, i);
        assert_true(s.last.saved);
    }
    rv_service_free(&svc);
    clock_ahead = -1000000; /* for another process: it was saved in the future */
    svc = service_in(dir, &so);
    served s = answer(svc, 1);
    expect_turn(&s, 1, RVI_COUNT(ahead));
    rv_service_free(&svc);
    clock_ahead = 2000000; /* long ago, as far as anybody can tell */
    svc = service_in(dir, &so);
    s = answer(svc, 1);
    expect_turn(&s, 1, 0);
    rv_service_free(&svc);
    clock_ahead = 0;
}

static void limits(void **state)
{
    (void)state;
    uint64_t id, other;
    rv_service_options so = {.tenant_sessions = 2};
    in_folder("limits");
    rv_service *svc = service_in(dir, &so), *second = NULL;
    rv_service_options same = {.size = sizeof same, .no_thread = 1, .sessions = dir};
    assert_refused(RV_E_STORAGE, rv_service_new(&second, o.m, &same, err));
    (void)answer(svc, 0);
    (void)answer(svc, 2);
    assert_refused(RV_E_STATE, ask(svc, 4, &id, err)); /* bob has two */
    (void)answer(svc, 1);
    assert_ok(ask(svc, 1, &id, err));
    assert_refused(RV_E_BUSY, ask(svc, 1, &other, err));
    assert_refused(RV_E_BUSY, rv_service_forget(svc, "ann", "session 1", err));
    rv_service_cancel(svc, id); /* what is cancelled is not saved */
    size_t left;
    assert_ok(rv_service_step(svc, &left, err));
    served_drain(svc, 0, NULL, 0);
    assert_int_equal(left, 0);
    served s = answer(svc, 1);
    expect_turn(&s, 1, 1);
    assert_ok(rv_service_forget(svc, "ann", "session 1", err));
    assert_refused(RV_E_NOT_FOUND, rv_service_forget(svc, "ann", "session 1", err));
    s = answer(svc, 1);
    expect_turn(&s, 1, 0);
    rv_service_free(&svc);

    so = (rv_service_options){.session_bytes = 10};
    svc = service_in(dir, &so);
    s = answer(svc, 1);
    assert_false(s.last.saved);
    assert_int_equal(s.last.session_status, RV_E_STORAGE);
    expect_turn(&s, 1, 1);
    rv_service_free(&svc);

    clock_ahead = 2;
    so = (rv_service_options){.session_idle = 0.5};
    svc = service_in(dir, &so);
    s = answer(svc, 1);
    expect_turn(&s, 1, 0); /* it was removed */
    rv_service_free(&svc);
    clock_ahead = 0;
    rv_request bare = {
        .size = sizeof bare, .session = "x", .ids = (const int32_t[]){5}, .n_ids = 1};
    so = (rv_service_options){0};
    svc = service_in(NULL, &so);
    assert_refused(RV_E_CONFIG, rv_service_submit(svc, &bare, &id, err));
    rv_service_free(&svc);
}

static float *random_matrix(rvi_rng *r, size_t n)
{
    float *x = rvi_alloc_array(n, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(rvi_rng_double(r) - 0.5) / 2;
    return x;
}

static int open_with_adapters(void **state)
{
    enum { RANK = 2 };
    int st = open_it(state);
    const rvi_model *m = o.m->model;
    rvi_rng r = {17};
    rvi_adapter *a;
    assert_ok(rvi_adapter_new(&a, m->be, m->n_targets, err));
    for (int i = 0; i < m->n_targets; i++) {
        const rvi_lora_target *t = &m->targets[i];
        float *ma = random_matrix(&r, RANK * (size_t)t->n_in);
        float *mb = random_matrix(&r, RANK * (size_t)t->n_out);
        assert_ok(rvi_adapter_put(a, i, t, RANK, 1, ma, mb, err));
        rvi_free(ma);
        rvi_free(mb);
    }
    assert_ok(rvi_adapter_seal(a, err));
    assert_ok(rvi_api_wrap_adapter(&adapter, o.m, a, err));
    assert_ok(rv_adapter_set_new(&adapters, o.m, &(rv_adapter_use){adapter, 1}, 1, err));
    return st;
}

static int close_adapters(void **state)
{
    rv_adapter_set_free(&adapters);
    rv_adapter_free(&adapter);
    return close_it(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_out),       cmocka_unit_test(kills),
        cmocka_unit_test(damaged_files),  cmocka_unit_test(cut_while_it_waits),
        cmocka_unit_test(damaged_beside), cmocka_unit_test(pages_are_added),
        cmocka_unit_test(full_disk),      cmocka_unit_test(clock_jumps),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests_name("sessions", tests, open_with_adapters, close_adapters);
}
