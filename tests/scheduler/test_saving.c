/* Sessions that are saved while others go on: a disk that takes as long as a test wants, steps that
 * are computed meanwhile, and what may happen to a request whose session is on its way. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os.h"
#include "base/thread.h"
#include "scheduler/in_folder.h"

enum { ASKED = 40, NEW = 6, TURNS = 4 };

/* ---- a disk that waits, and fails ---- */

static struct {
    atomic_bool closed;                  /* files are not synchronised as long as this is so */
    atomic_int n_came;                   /* times that one was to be */
    atomic_int file_fails, folder_fails; /* error numbers; 0: they do not */
} disk;

int fsync(int fd)
{
    struct stat st;
    bool is_folder = !fstat(fd, &st) && S_ISDIR(st.st_mode);
    if (!is_folder) {
        atomic_fetch_add(&disk.n_came, 1);
        while (atomic_load(&disk.closed)) rvi_thread_sleep(1e-3);
    }
    int code = atomic_load(is_folder ? &disk.folder_fails : &disk.file_fails);
    if (!code) return (int)syscall(SYS_fsync, fd);
    errno = code;
    return -1;
}

static void close_disk(void)
{
    atomic_store(&disk.n_came, 0);
    atomic_store(&disk.closed, true);
}

static void open_disk(void)
{
    atomic_store(&disk.closed, false);
}

static void await_disk(int n)
{
    while (atomic_load(&disk.n_came) < n) rvi_thread_sleep(1e-3);
}

/* ---- */

static rv_service *service_in(const char *where, rv_service_options so)
{
    rv_service *svc;
    so.size = sizeof so;
    if (!so.n_tokens) so.n_tokens = 1024;
    if (!so.n_context) so.n_context = 256;
    so.sessions = where;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

/* The next turn of session k, or n new tokens of a request without one. */
static rv_status ask(rv_service *svc, int k, int n, double timeout, served *s, rv_error *err)
{
    char name[32];
    int32_t ids[ASKED];
    static const rv_logit_bias no_nul = {3, -INFINITY}; /* <0x00>, which ends a text of C */
    rv_sampling sampling = {.size = sizeof sampling,
                            .seed = (uint64_t)k + 1,
                            .temperature = 1,
                            .logit_bias = &no_nul,
                            .n_logit_bias = 1};
    rv_generate_options go = {.size = sizeof go,
                              .max_tokens = n ? n : NEW,
                              .ignore_eos = 1,
                              .draft = RV_DRAFT_OFF,
                              .sampling = &sampling};
    for (int i = 0; i < ASKED; i++) ids[i] = 3 + (i * 7 + k * 31) % 250;
    snprintf(name, sizeof name, "session %d", k);
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = ASKED,
                    .generate = &go,
                    .session = n ? NULL : name,
                    .timeout = timeout};
    *s = (served){0};
    return rv_service_submit(svc, &r, &s->request, err);
}

static void begin(rv_service *svc, int k, served *s)
{
    assert_ok(ask(svc, k, 0, 0, s, err));
}

static void await(rv_service *svc, served *list, size_t n)
{
    for (size_t n_ended = 0; n_ended < n;) {
        served_drain(svc, 0.05, list, n);
        for (n_ended = 0; n_ended < n && list[n_ended].ended; n_ended++) {
        }
    }
}

static served answer(rv_service *svc, int k)
{
    served s;
    begin(svc, k, &s);
    await(svc, &s, 1);
    return s;
}

/* Turn t of a session, as it is when it is saved within the step. */
static void expect_turn(const served *s, int k, int t)
{
    static served want[8][TURNS];
    if (!want[k][0].done) {
        in_folder("alone");
        rv_service *svc = service_in(dir, (rv_service_options){.no_thread = 1});
        for (int i = 0; i < TURNS; i++) {
            begin(svc, k, &want[k][i]);
            served_run(svc, &want[k][i], 1);
            assert_true(want[k][i].last.saved);
        }
        rv_service_free(&svc);
    }
    assert_int_equal(s->last.finish, RV_FINISH_LENGTH);
    assert_int_equal(s->last.n_prompt, want[k][t].last.n_prompt);
    assert_int_equal(s->n, want[k][t].n);
    assert_memory_equal(s->ids, want[k][t].ids, (size_t)s->n * sizeof *s->ids);
}

static uint64_t steps_of(rv_service *svc)
{
    static rv_service_metrics m;
    served_metrics(svc, &m);
    return m.n_steps;
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));) n += strstr(x->d_name, ".session") != NULL;
    closedir(d);
    return n;
}

/* ---- */

/* The disk takes as long as it takes to compute a whole answer; only then the request ends. */
static void steps_go_on(void **state)
{
    enum { TOKENS = 120 };
    (void)state;
    served list[3];
    rv_service *svc = service_in(in_folder("on"), (rv_service_options){0});
    close_disk();
    begin(svc, 0, &list[0]);
    await_disk(1);
    uint64_t before = steps_of(svc);
    assert_ok(ask(svc, 1, TOKENS, 0, &list[1], err));
    while (!list[1].ended) served_drain(svc, 0.05, list, 2);
    assert_true(steps_of(svc) - before >= TOKENS);
    assert_int_equal(list[1].n, TOKENS);
    assert_int_equal(list[0].n, NEW); /* its tokens were told as they came */
    assert_false(list[0].done);
    /* meanwhile it has not ended, and its session is its own */
    served again;
    assert_refused(RV_E_BUSY, ask(svc, 0, 0, 0, &again, err));
    assert_refused(RV_E_BUSY, rv_service_forget(svc, "", "session 0", err));
    rv_service_cancel(svc, list[0].request);
    assert_ok(ask(svc, 2, NEW, 0, &list[2], err)); /* so that steps look at what was cancelled */
    while (!list[2].ended) served_drain(svc, 0.05, list, 3);
    assert_false(list[0].done);
    open_disk();
    await(svc, list, 3);
    assert_true(list[0].last.saved && !list[0].last.session_status && !list[0].last.error);
    expect_turn(&list[0], 0, 0);
    list[0] = answer(svc, 0);
    expect_turn(&list[0], 0, 1);
    assert_true(list[0].last.saved);
    in_folder("on");
    rv_service_free(&svc);
    svc = service_in(dir, (rv_service_options){0});
    list[0] = answer(svc, 0);
    expect_turn(&list[0], 0, 2);
    in_folder("on");
    assert_ok(rv_service_forget(svc, "", "session 0", err));
    assert_int_equal(count_files(), 0);
    rv_service_free(&svc);
}

/* An answer that came in time is not late because of the disk. */
static void late(void **state)
{
    (void)state;
    served list[2];
    rv_service *svc = service_in(in_folder("late"), (rv_service_options){0});
    close_disk();
    assert_ok(ask(svc, 0, 0, 1, &list[0], err));
    await_disk(1);
    rvi_thread_sleep(1.1);
    assert_ok(ask(svc, 1, NEW, 0, &list[1], err)); /* so that steps look at what is late */
    while (!list[1].ended) served_drain(svc, 0.05, list, 2);
    open_disk();
    await(svc, list, 2);
    assert_false(list[0].last.timed_out);
    assert_true(list[0].last.saved);
    expect_turn(&list[0], 0, 0);
    rv_service_free(&svc);
}

/* Pages of sessions that wait for the disk are in use: who needs them waits too, also one that runs
 * alone, and goes on when they are back. */
static void pages_are_held(void **state)
{
    enum { PAGES = 7, WAITING = 3, LONG = WAITING + 1, TOKENS = 140 };
    (void)state;
    static rv_service_metrics m;
    served list[LONG + 1];
    rv_service *svc = service_in(
        in_folder("held"),
        (rv_service_options){.n_tokens = 32 * PAGES, .n_context = 32 * 6, .no_cache = 1});
    close_disk();
    for (int k = 0; k < LONG; k++) {
        begin(svc, k, &list[k]);
        while (list[k].n < NEW) served_drain(svc, 0.05, list, (size_t)k + 1);
        if (!k) await_disk(1); /* its pages are copied; the others have one each */
    }
    assert_ok(ask(svc, LONG, TOKENS, 0, &list[LONG], err));
    int most = (PAGES - WAITING) * 32 - ASKED + 1; /* tokens until the pages are full */
    while (list[LONG].n < most) served_drain(svc, 0.05, list, LONG + 1);
    rvi_thread_sleep(0.05);
    served_drain(svc, 0, list, LONG + 1);
    assert_int_equal(list[LONG].n, most);
    served_metrics(svc, &m);
    assert_int_equal(m.pages_running, PAGES);
    for (int k = 0; k <= LONG; k++) assert_false(list[k].done);
    open_disk();
    await(svc, list, LONG + 1);
    for (int k = 0; k < LONG; k++) {
        expect_turn(&list[k], k, 0);
        assert_true(list[k].last.saved);
    }
    assert_int_equal(list[LONG].last.finish, RV_FINISH_LENGTH);
    assert_int_equal(list[LONG].n, TOKENS);
    served_metrics(svc, &m);
    assert_int_equal(m.pages_running, 0);
    assert_int_equal(m.n_preempted, 0);
    rv_service_free(&svc);
}

static void *free_it(void *svc)
{
    rv_service_free(&(rv_service *){svc});
    return NULL;
}

/* A service that is freed saves what has ended first. */
static void freed(void **state)
{
    (void)state;
    pthread_t t;
    served list[2], s;
    rv_service *svc = service_in(in_folder("freed"), (rv_service_options){0});
    close_disk();
    for (int k = 0; k < 2; k++) begin(svc, k, &list[k]);
    await_disk(1);
    while (list[0].n < NEW || list[1].n < NEW) served_drain(svc, 0.05, list, 2);
    begin(svc, 2, &s); /* this one will end, or not */
    assert_int_equal(pthread_create(&t, NULL, free_it, svc), 0);
    rvi_thread_sleep(0.02);
    open_disk();
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(count_files() >= 2);
    svc = service_in(dir, (rv_service_options){0});
    for (int k = 0; k < 2; k++) {
        s = answer(svc, k);
        expect_turn(&s, k, 1);
    }
    rv_service_free(&svc);
}

static void bad_disks(void **state)
{
    (void)state;
    served s;
    rv_service *svc = service_in(in_folder("bad"), (rv_service_options){0});
    for (int t = 0; t < 2; t++) { /* without a file, and with the one of the turn before */
        atomic_store(&disk.file_fails, ENOSPC);
        s = answer(svc, 0);
        expect_turn(&s, 0, t);
        in_folder("bad");
        assert_false(s.last.saved);
        assert_int_equal(s.last.session_status, RV_E_IO);
        assert_non_null(strstr(s.error, "cannot write"));
        assert_int_equal(count_files(), t);
        atomic_store(&disk.file_fails, 0);
        s = answer(svc, 0);
        expect_turn(&s, 0, t);
        assert_true(s.last.saved);
    }
    /* the new file is in its place, but nobody knows for how long */
    atomic_store(&disk.folder_fails, EIO);
    s = answer(svc, 0);
    expect_turn(&s, 0, 2);
    assert_false(s.last.saved);
    assert_int_equal(s.last.session_status, RV_E_IO);
    assert_non_null(strstr(s.error, "session 'session 0' goes on from here, but a power failure"));
    atomic_store(&disk.folder_fails, 0);
    s = answer(svc, 0);
    expect_turn(&s, 0, 3);
    assert_true(s.last.saved);
    in_folder("bad");
    assert_int_equal(count_files(), 1);
    rv_service_free(&svc);

    svc = service_in(in_folder("small"), (rv_service_options){.session_bytes = 10});
    s = answer(svc, 1);
    expect_turn(&s, 1, 0);
    assert_false(s.last.saved);
    assert_int_equal(s.last.session_status, RV_E_STORAGE);
    s = answer(svc, 1);
    expect_turn(&s, 1, 0);
    in_folder("small");
    assert_int_equal(count_files(), 0);
    rv_service_free(&svc);
}

/* Many at once with little room, some of which are cancelled: those bring what they bring alone. */
static void crowd(void **state)
{
    enum { N = 8 };
    (void)state;
    served list[N];
    rv_service *svc =
        service_in(in_folder("crowd"), (rv_service_options){.n_tokens = 32 * 12, .overcommit = 8});
    for (int t = 0; t < TURNS; t++) {
        for (int k = 0; k < N; k++) begin(svc, k, &list[k]);
        rv_service_cancel(svc, list[t].request);
        await(svc, list, N);
        for (int k = 0; k < N; k++) {
            if (k == t && list[k].last.finish == RV_FINISH_CANCELLED) {
                assert_false(list[k].last.saved);
                list[k] = answer(svc, k);
            }
            expect_turn(&list[k], k, t);
            assert_true(list[k].last.saved);
        }
    }
    rv_service_free(&svc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_go_on),    cmocka_unit_test(late),
        cmocka_unit_test(pages_are_held), cmocka_unit_test(freed),
        cmocka_unit_test(bad_disks),      cmocka_unit_test(crowd),
    };
    return cmocka_run_group_tests_name("saving", tests, open_it, close_it);
}
