/* A writer is killed at random moments: what it had acknowledged is there, the chain holds, and no
 * half-written snapshot is ever loaded. Then a disk that is full. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "harness/assert_ok.h"
#include "learn/journal/log.h"
#include "learn/journal/snapshot.h"
#include "stores.h"

enum { KILLS = 200, SNAPSHOT_MAX = 300000 };

static const uint8_t model[32] = "model of the test";
static uint8_t contents[SNAPSHOT_MAX];

typedef struct ack {
    uint64_t kind, number; /* 'E': event, 'S': snapshot */
} ack;

/* What is saved as the n-th: it begins with n, on which its length and other bytes depend. */
static size_t fill_contents(uint64_t n)
{
    rvi_rng r = {n};
    size_t len = 1000 + (size_t)(rvi_rng_u64(&r) % (SNAPSHOT_MAX - 1000));
    for (size_t i = 0; i < len; i++) contents[i] = (uint8_t)(n * 31 + i * 7 + (i >> 8));
    memcpy(contents, &n, sizeof n);
    return len;
}

/* The n of the snapshot; it must be whole. 0: there is none. */
static rv_status load_snapshot(uint64_t *n, rv_error *err)
{
    rvi_snapshot last;
    *n = 0;
    rv_status st = rvi_snapshot_load(&last, folder.data, "adapter", 1, model, err);
    if (st) return st == RV_E_NOT_FOUND ? RV_OK : st;
    memcpy(n, last.data, sizeof *n);
    assert_int_equal(last.len, fill_contents(*n));
    assert_memory_equal(last.data, contents, last.len);
    rvi_snapshot_close(&last);
    return RV_OK;
}

static rv_status append_event(rvi_store *s, uint64_t expected, rv_error *err)
{
    char question[64];
    int len = snprintf(question, sizeof question, "question %llu?", (unsigned long long)expected);
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.question = (rvi_text){question, (size_t)len};
    f.corrected = (rvi_text){"because", 7};
    rv_status st = rvi_feedback_append(s, &f, err);
    return !st && f.seq != expected ? RV_E_LEARNING : st;
}

/* Never returns but by a failure. */
static void write_on(const char *path, int to_parent)
{
    rvi_store s;
    rv_error why = {0};
    uint64_t n = 0, number = 0;
    rv_status st = file_store(&s, path, 0, &why);
    if (!st) st = rvi_feedback_count(&s, &n, &why);
    if (!st) st = load_snapshot(&number, &why);
    while (!st) {
        st = append_event(&s, ++n, &why);
        ack a = {'E', n};
        if (!st && write(to_parent, &a, sizeof a) != (ssize_t)sizeof a) st = RV_E_IO;
        if (st || n % 3) continue;
        size_t len = fill_contents(++number);
        st = rvi_snapshot_save(folder.data, "adapter", 1, model, contents, len, &why);
        a = (ack){'S', number};
        if (!st && write(to_parent, &a, sizeof a) != (ssize_t)sizeof a) st = RV_E_IO;
    }
    fprintf(stderr, "the writer stopped: %d %s\n", (int)st, why.text);
    _exit(1);
}

static int check_event(void *ctx, const rvi_feedback *f)
{
    char question[64];
    snprintf(question, sizeof question, "question %llu?", (unsigned long long)f->seq);
    assert_int_equal(f->question.len, strlen(question));
    assert_memory_equal(f->question.data, question, f->question.len);
    ++*(uint64_t *)ctx;
    return 0;
}

/* After a kill; acked: the last acknowledged numbers. Returns how many events there are. */
static uint64_t check_state(const char *path, uint64_t events, uint64_t *snapshots)
{
    rvi_store s;
    rvi_feedback_report report;
    uint64_t n_read = 0;
    assert_ok(file_store(&s, path, 0, err));
    assert_ok(rvi_feedback_verify(&s, &report, err));
    if (report.broken) fail_msg("event %d: %s", (int)report.broken, report.why);
    if (report.n_events < events)
        fail_msg("%d events of %d acknowledged", (int)report.n_events, (int)events);
    assert_true(report.n_events <= events + 1); /* at most the one that was under way */
    assert_ok(rvi_feedback_read(&s, 1, check_event, &n_read, err));
    assert_int_equal(n_read, report.n_events);
    rvi_store_close(&s);

    uint64_t last;
    assert_ok(load_snapshot(&last, err));
    assert_true(last >= *snapshots && last <= *snapshots + 1);
    *snapshots = last; /* what was under way may have been finished */
    return report.n_events;
}

/* False: the writer is gone and everything it said was read. */
static bool take_ack(int from, uint64_t *events, uint64_t *snapshots)
{
    ack a;
    if (read(from, &a, sizeof a) != (ssize_t)sizeof a) return false;
    *(a.kind == 'E' ? events : snapshots) = a.number;
    return true;
}

static void test_kill(void **state)
{
    (void)state;
    char path[256];
    rvi_rng r = {20260101};
    uint64_t events = 0, snapshots = 0;
    int n_early = 0;
    in_folder(path, "killed.db");
    for (int round = 0; round < KILLS; round++) {
        int pipes[2], status = 0;
        assert_int_equal(pipe(pipes), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            close(pipes[0]);
            write_on(path, pipes[1]);
        }
        close(pipes[1]);
        bool any = false;
        /* in every fourth round it may be as early as the opening; else a while after some steps */
        for (uint64_t k = round % 4 ? 1 + rvi_rng_u64(&r) % 5 : 0; k > 0; k--)
            any = take_ack(pipes[0], &events, &snapshots);
        long us = (long)(rvi_rng_u64(&r) % 10000);
        nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* not by a failure */
        while (take_ack(pipes[0], &events, &snapshots)) any = true;
        n_early += !any;
        close(pipes[0]);
        events = check_state(path, events, &snapshots);
    }
    print_message("%d kills, %d of them before the first acknowledgement; %llu events, %llu "
                  "snapshots\n",
                  KILLS, n_early, (unsigned long long)events, (unsigned long long)snapshots);
    assert_true(events >= KILLS && snapshots > 8);
}

static void set_limit(rlim_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit)) _exit(9);
    limit.rlim_cur = bytes;
    if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(9);
}

/* In a process of its own: files may not grow beyond the limit, as on a full disk. */
static int fill_up(const char *path)
{
    rvi_store s;
    rv_error why = {0};
    rvi_feedback_report report;
    uint64_t n = 0;
    rv_status st;
    if (file_store(&s, path, 0, &why)) return 1;
    for (n = 1; n <= 5; n++)
        if (append_event(&s, n, &why)) return 2;
    size_t len = fill_contents(1);
    if (rvi_snapshot_save(folder.data, "full", 1, model, contents, len, &why)) return 3;

    signal(SIGXFSZ, SIG_IGN);
    set_limit(200000);
    do st = append_event(&s, n++, &why);
    while (!st && n < 10000);
    n -= 2; /* the last good one */
    if (st != RV_E_STORAGE || !strstr(why.text, "cannot")) return 4;
    if (append_event(&s, n + 1, &why) != RV_E_STORAGE) return 5;
    if (rvi_feedback_verify(&s, &report, &why) || report.broken || report.n_events != n) return 6;
    memset(contents, 1, 250000);
    if (rvi_snapshot_save(folder.data, "full", 1, model, contents, 250000, &why) != RV_E_IO)
        return 7;
    rvi_snapshot last;
    if (rvi_snapshot_load(&last, folder.data, "full", 1, model, &why)) return 8;
    if (last.len != len) return 10;
    rvi_snapshot_close(&last);
    char part[256];
    if (access(in_folder(part, "full.part"), F_OK) == 0) return 11;

    set_limit(RLIM_INFINITY); /* there is room again */
    if (append_event(&s, n + 1, &why)) return 12;
    if (rvi_feedback_verify(&s, &report, &why) || report.broken || report.n_events != n + 1)
        return 13;
    rvi_store_close(&s);
    if (file_store(&s, path, 0, &why)) return 14;
    if (rvi_feedback_verify(&s, &report, &why) || report.broken || report.n_events != n + 1)
        return 15;
    rvi_store_close(&s);
    return n > 5 ? 0 : 16;
}

static void test_full(void **state)
{
    (void)state;
    char path[256];
    int status = 0;
    in_folder(path, "full.db");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(fill_up(path));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* No room at all: not even the tables of a new store. */
static void test_full_from_the_start(void **state)
{
    (void)state;
    char path[256];
    int status = 0;
    in_folder(path, "never.db");
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        rvi_store s;
        rv_error why = {0};
        signal(SIGXFSZ, SIG_IGN);
        set_limit(512);
        rv_status st = file_store(&s, path, 0, &why);
        if (st != RV_E_STORAGE || !why.text[0] || s.by.append) _exit(1);
        set_limit(RLIM_INFINITY);
        st = file_store(&s, path, 0, &why);
        if (!st) st = append_event(&s, 1, &why);
        if (!st) rvi_store_close(&s);
        _exit(st ? 2 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_full_from_the_start),
    };
    return cmocka_run_group_tests_name("kills and full disks", tests, folder_make_on_disk,
                                       folder_remove);
}
