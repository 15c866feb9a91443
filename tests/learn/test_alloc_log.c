/* Every allocation of the store, the log and the snapshots fails once: an error, nothing lost,
 * nothing changed. SQLite's own allocations are among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "harness/assert_ok.h"
#include "harness/fail_alloc.h"
#include "learn/journal/log.h"
#include "learn/journal/snapshot.h"
#include "store/stores.h"

/* SQLite takes its memory from here, so that it can be refused. The size stands in front. */
enum { FRONT = 16 };

static void *give(int n)
{
    char *p = malloc((size_t)n + FRONT);
    if (!p) return NULL;
    memcpy(p, &n, sizeof n);
    return p + FRONT;
}

static void take_back(void *p)
{
    free(p ? (char *)p - FRONT : NULL);
}

static int size_of(void *p)
{
    int n = 0;
    if (p) memcpy(&n, (char *)p - FRONT, sizeof n);
    return n;
}

static void *resize(void *p, int n)
{
    char *q = realloc((char *)p - FRONT, (size_t)n + FRONT);
    if (!q) return NULL;
    memcpy(q, &n, sizeof n);
    return q + FRONT;
}

static int round_up(int n)
{
    return (n + 7) & ~7;
}

static int nothing(void *p)
{
    (void)p;
    return SQLITE_OK;
}

static void nothing_at_all(void *p)
{
    (void)p;
}

static int set_up(void **state)
{
    sqlite3_mem_methods m = {give,     take_back, resize,         size_of,
                             round_up, nothing,   nothing_at_all, 0};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &m) || sqlite3_initialize()) return -1;
    return folder_make(state);
}

static int tear_down(void **state)
{
    sqlite3_shutdown();
    return folder_remove(state);
}

static rvi_text text(const char *s)
{
    return (rvi_text){s, strlen(s)};
}

static rv_status append(rvi_store *s, rv_error *err)
{
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.time = 1;
    f.question = text("Which?");
    f.given = text("this");
    f.corrected = text("that");
    return rvi_feedback_append(s, &f, err);
}

/* One key comes, another goes. */
static rv_status change_table(rvi_store *s, rv_error *err)
{
    rv_status st = rvi_store_begin(s, true, err);
    if (st) return st;
    st = rvi_store_put(s, "table", "new", 3, "2", 1, err);
    if (!st) st = rvi_store_remove(s, "table", "old", 3, err);
    return rvi_store_end(s, st, err);
}

static int count_event(void *ctx, const rvi_feedback *f)
{
    (void)f;
    ++*(int *)ctx;
    return 0;
}

static int count_item(void *ctx, rvi_bytes key, rvi_bytes record)
{
    (void)key;
    (void)record;
    ++*(int *)ctx;
    return 0;
}

static rv_status read_all(rvi_store *s, rv_error *err)
{
    rvi_feedback_report report;
    rvi_buf record = {0};
    bool found = false;
    uint64_t n_logged = 0;
    int n = 0;
    rv_status st = rvi_feedback_repair(s, err);
    if (!st) st = rvi_feedback_read(s, 1, count_event, &n, err);
    if (!st) st = rvi_store_scan(s, "table", NULL, 0, count_item, &n, err);
    if (!st) st = rvi_store_get(s, "table", "old", 3, &record, &found, err);
    if (!st) st = rvi_feedback_count(s, &n_logged, err);
    if (!st) st = rvi_feedback_verify(s, &report, err);
    if (!st) {
        assert_int_equal(n, 2);
        assert_int_equal(n_logged, 1);
        assert_true(found);
    }
    rvi_buf_deinit(&record);
    return st;
}

static bool has(rvi_store *s, const char *key)
{
    rvi_buf record = {0};
    bool found;
    assert_ok(rvi_store_get(s, "table", key, strlen(key), &record, &found, err));
    rvi_buf_deinit(&record);
    return found;
}

typedef rv_status (*step_fn)(rvi_store *s, rv_error *err);

/* One step on a store with an event and a key. */
static void sweep(step_fn step, int which)
{
    long n = 0;
    for (bool refused = true; refused; n++) {
        rvi_store s;
        rv_error why = {0};
        rvi_feedback_report report;
        assert_ok(store_new(&s, which, err));
        assert_ok(append(&s, err));
        assert_ok(rvi_store_put(&s, "table", "old", 3, "1", 1, err));
        fail_alloc_once(n);
        rv_status st = step(&s, &why);
        refused = fail_alloc_off();
        /* a single refusal may also be one that SQLite can do without */
        if (st && (!refused || st != RV_E_NOMEM))
            fail_msg("call %ld refused: status %d %s", n, (int)st, why.text);
        assert_ok(rvi_feedback_verify(&s, &report, err));
        assert_int_equal(report.broken, 0);
        assert_int_equal(report.n_events, !st && step == append ? 2 : 1);
        bool changed = !st && step == change_table;
        assert_true(has(&s, "new") == changed);
        assert_true(has(&s, "old") == !changed);
        rvi_store_close(&s);
    }
    assert_true(n > 1);
}

static void test_log(void **state)
{
    (void)state;
    static const step_fn steps[] = {append, change_table, read_all};
    for (size_t i = 0; i < RVI_COUNT(steps); i++)
        for (int which = 0; which < N_STORES; which++) sweep(steps[i], which);
}

static void test_open(void **state)
{
    (void)state;
    char path[256];
    long n = 0;
    for (bool refused = true; refused; n++) {
        rvi_store s;
        rv_error why = {0};
        in_folder(path, "open.db");
        rvi_os_remove_tree(path);
        fail_alloc_once(n);
        rv_status st = file_store(&s, path, 0, &why);
        refused = fail_alloc_off();
        if (st && (!refused || st != RV_E_NOMEM))
            fail_msg("call %ld refused: status %d %s", n, (int)st, why.text);
        if (st) assert_null(s.by.append);
        rvi_store_close(&s);
        assert_ok(file_store(&s, path, 0, err)); /* never taken for damage */
        rvi_store_close(&s);
    }
    assert_true(n > 10);
}

static void test_snapshot(void **state)
{
    (void)state;
    static const uint8_t model[32] = "m";
    long n = 0;
    bool any = false;
    for (bool refused = true; refused; n++) {
        rvi_snapshot loaded;
        fail_alloc_once(n);
        rv_status st = rvi_snapshot_save(folder.data, "s", 1, model, "bytes", 5, NULL);
        any = any || !st;
        if (!st) st = rvi_snapshot_load(&loaded, folder.data, "s", 1, model, NULL);
        refused = fail_alloc_off();
        if (st && (!refused || st != RV_E_NOMEM)) fail_msg("call %ld: status %d", n, (int)st);
        if (!st) rvi_snapshot_close(&loaded);
        if (any) {
            assert_ok(rvi_snapshot_load(&loaded, folder.data, "s", 1, model, err));
            rvi_snapshot_close(&loaded);
        }
    }
    assert_true(any);
    assert_true(n > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_snapshot),
    };
    return cmocka_run_group_tests_name("allocation failures in learn and store", tests, set_up,
                                       tear_down);
}
