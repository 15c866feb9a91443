/* Every allocation of the store, the log, the snapshots and the bank fails once: an error, nothing
 * lost, nothing changed. SQLite's own allocations are among them. */
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
#include "learn/bank.h"
#include "learn/snapshot.h"
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

static const float vectors[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0.1f, 0, 1, 0}};

static rv_status learn(rvi_store *s, rvi_bank *b, const char *question, const char *given,
                       const char *corrected, int vector, rv_error *err)
{
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    rvi_pattern about = {.subject = text("s"), .vector = vectors[vector], .n_dim = 4};
    f.time = 1;
    f.question = text(question);
    f.given = text(given);
    f.corrected = text(corrected);
    rv_status st = rvi_feedback_append(s, &f, err);
    return st ? st : rvi_bank_learn(b, &about, &f, NULL, err);
}

static void digest(const rvi_bank *b, uint8_t out[32])
{
    assert_ok(rvi_bank_digest(b, out, err));
}

/* One step on a bank that has something in it. */
typedef rv_status (*step_fn)(rvi_store *s, rvi_bank *b, rv_error *err);

static rv_status step_learn(rvi_store *s, rvi_bank *b, rv_error *err)
{
    return learn(s, b, "Which?", "this", "that other one", 0, err);
}

static rv_status step_undo(rvi_store *s, rvi_bank *b, rv_error *err)
{
    (void)s;
    return rvi_bank_undo(b, 2, 0, err);
}

static rv_status step_forget(rvi_store *s, rvi_bank *b, rv_error *err)
{
    size_t n;
    (void)s;
    return rvi_bank_forget(b, text("this"), 0, NULL, NULL, &n, err);
}

static rv_status step_absorb(rvi_store *s, rvi_bank *b, rv_error *err)
{
    uint64_t ids[] = {1, 2, 3, 4};
    (void)s;
    rv_status st = rvi_bank_absorb(b, ids, 4, 5, err);
    if (!st) st = rvi_bank_release(b, 4, err);
    return st ? st : rvi_bank_use(b, rvi_bank_at(b, 0)->id, 3, err);
}

static rv_status step_consolidate(rvi_store *s, rvi_bank *b, rv_error *err)
{
    (void)s;
    return rvi_bank_consolidate(b, NULL, err);
}

static rv_status step_reopen(rvi_store *s, rvi_bank *b, rv_error *err)
{
    rvi_bank *other;
    rvi_feedback_report report;
    uint8_t out[32];
    (void)b;
    rv_status st = rvi_bank_open(&other, s, NULL, err);
    if (!st) st = rvi_bank_digest(other, out, err);
    rvi_bank_free(other);
    return st ? st : rvi_feedback_verify(s, &report, err);
}

static void sweep(step_fn step, int which)
{
    long n = 0;
    for (bool refused = true; refused; n++) {
        rvi_store s;
        rvi_bank *b, *saved;
        rv_error why = {0};
        uint8_t before[32], after[32], stored[32];
        rvi_feedback_report report;
        assert_ok(store_new(&s, which, err));
        assert_ok(rvi_bank_open(&b, &s, &(rvi_bank_options){.max_patterns = 5}, err));
        assert_ok(learn(&s, b, "What?", "this", "that", 0, err));
        assert_ok(learn(&s, b, "Whatever?", "this", "that one", 1, err));
        digest(b, before);
        fail_alloc_once(n);
        rv_status st = step(&s, b, &why);
        refused = fail_alloc_off();
        /* a single refusal may also be one that SQLite can do without */
        if (st && (!refused || st != RV_E_NOMEM))
            fail_msg("call %ld refused: status %d %s", n, (int)st, why.text);
        digest(b, after);
        if (st && step != step_absorb) assert_memory_equal(before, after, 32);
        assert_ok(rvi_bank_open(&saved, &s, NULL, err));
        digest(saved, stored);
        assert_memory_equal(after, stored, 32);
        assert_ok(rvi_feedback_verify(&s, &report, err));
        assert_int_equal(report.broken, 0);
        rvi_bank_free(saved);
        rvi_bank_free(b);
        rvi_store_close(&s);
    }
    assert_true(n > 2);
}

static void test_bank(void **state)
{
    (void)state;
    static const step_fn steps[] = {step_learn,  step_undo,        step_forget,
                                    step_absorb, step_consolidate, step_reopen};
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
    uint64_t last = 0;
    for (bool refused = true; refused; n++) {
        rvi_snapshot loaded;
        uint64_t number = 0;
        fail_alloc_once(n);
        rv_status st = rvi_snapshot_save(folder.data, "s", model, 1, "bytes", 5, &number, NULL);
        bool saved = !st;
        if (!st) st = rvi_snapshot_load(&loaded, folder.data, "s", model, 0, NULL);
        refused = fail_alloc_off();
        if (st && (!refused || st != RV_E_NOMEM)) fail_msg("call %ld: status %d", n, (int)st);
        if (!st) rvi_snapshot_close(&loaded);
        if (saved) last = number;
        if (last) {
            assert_ok(rvi_snapshot_load(&loaded, folder.data, "s", model, 0, err));
            assert_int_equal(loaded.number, last);
            rvi_snapshot_close(&loaded);
        }
    }
    assert_true(n > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bank),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_snapshot),
    };
    return cmocka_run_group_tests_name("allocation failures in learn and store", tests, set_up,
                                       tear_down);
}
