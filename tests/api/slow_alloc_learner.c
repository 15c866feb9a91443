/* Allocations of learners fail, one after the other: opening what was kept, training in the
 * foreground, training beside it. An error each time (or a round that is tried again), nothing
 * leaks, and what was there is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/amount.h"
#include "harness/fail_alloc.h"

#include "api/api.h"
#include "api/memory_store.h"
#include "api/opened.h"
#include "base/os.h"

static const char model_path[] = "tests/gguf/llama.gguf";
static const rv_message request = {"user", "Say it.", NULL};
static const rv_chat asked = {.size = sizeof asked, .messages = &request, .n_messages = 1};

typedef struct house {
    opened o;
    rvi_store state;
    rv_store store;
    char dir[256];
    rv_learner_options lo;
} house;

static void judge(house *h, rv_learner *l, int up)
{
    static const int32_t prompt[] = {5, 9, 17, 33};
    rv_generate_options g = greedy(8);
    rv_answer *got = NULL;
    assert_ok(rv_learner_begin(l, h->o.s, &asked, NULL, err));
    assert_ok(rv_session_generate(h->o.s, prompt, 4, &g, &got, err));
    rv_free(got);
    assert_ok(rv_learner_thumb(l, h->o.s, up, NULL, err));
}

/* A state with something of everything. */
static int set_up(void **ctx)
{
    house *h = test_calloc(1, sizeof *h);
    rvi_buf dir = {0};
    rv_learner *l;
    open_all(&h->o, model_path, 1, 256);
    assert_ok(rvi_store_memory(&h->state, err));
    h->store = memory_store(&h->state);
    assert_ok(rvi_os_temp_dir(&dir, "/tmp", err));
    snprintf(h->dir, sizeof h->dir, "%s", dir.data);
    rvi_buf_deinit(&dir);
    h->lo = (rv_learner_options){.size = sizeof h->lo};
    h->lo.store = &h->store;
    h->lo.dir = h->dir;
    h->lo.experiments = "n_steps=1";
    assert_ok(rv_learner_new(&l, h->o.m, &h->lo, err));
    assert_ok(rv_learner_correct(l, NULL, "What is Zorkin's favourite colour?", "blue", NULL, err));
    assert_ok(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, err));
    assert_ok(rv_learner_correct(l, NULL, "What is Belmora's dog?", "Rex", NULL, err));
    judge(h, l, 1);
    judge(h, l, 1);
    judge(h, l, 0);
    rv_learner_free(&l);
    *ctx = h;
    return 0;
}

static int tear_down(void **ctx)
{
    house *h = *ctx;
    close_all(&h->o);
    rvi_store_close(&h->state);
    rvi_os_remove_tree(h->dir);
    test_free(h);
    return 0;
}

static bool says(rv_learner *l, const char *text)
{
    char *json;
    assert_ok(rv_learner_status(l, &json, err));
    bool yes = strstr(json, text) != NULL;
    rv_free(json);
    return yes;
}

static void opening(void **ctx)
{
    house *h = *ctx;
    bool done = false;
    for (long n = 0; !done; n++) {
        rv_learner *l;
        rv_error e = {0};
        fail_alloc_once(n);
        rv_status st = rv_learner_new(&l, h->o.m, &h->lo, &e);
        done = !fail_alloc_off();
        if (st) assert_int_equal(st, RV_E_NOMEM);
        if (done) assert_int_equal(st, RV_OK);
        if (!st) assert_true(says(l, "\"waiting\":1"));
        rv_learner_free(&l);
    }
}

static void training(void **ctx)
{
    house *h = *ctx;
    bool done = false;
    for (long n = 0; !done; n += 1 + n / AMOUNT(8, 5)) {
        rv_learner *l;
        rv_error e = {0};
        assert_ok(rv_learner_new(&l, h->o.m, &h->lo, err));
        fail_alloc_once(n);
        rv_status st =
            rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, &e);
        done = !fail_alloc_off();
        if (st) assert_int_equal(st, RV_E_NOMEM);
        if (done) assert_int_equal(st, RV_OK);
        bool waits = says(l, "\"waiting\":1");
        if (done) assert_false(waits);
        rv_learner_free(&l);
        if (!waits) { /* published: something new for the next */
            char question[64];
            snprintf(question, sizeof question, "What is Belmora's dog number %ld?", n);
            assert_ok(rv_learner_new(&l, h->o.m, &h->lo, err));
            assert_ok(rv_learner_correct(l, NULL, question, "Rex", NULL, err));
            rv_learner_free(&l);
        }
    }
}

static void beside(void **ctx)
{
    house *h = *ctx;
    for (long n = 0; n < 4000; n += 1 + n / AMOUNT(4, 2)) {
        rv_learner *l;
        char question[64];
        rv_error e = {0};
        assert_ok(rv_learner_new(&l, h->o.m, &h->lo, err));
        l->bg.brisk = true;
        snprintf(question, sizeof question, "What is Belmora's cat number %ld?", n);
        assert_ok(rv_learner_correct(l, NULL, question, "Tom", NULL, err));
        fail_alloc_once(n);
        if (rv_learner_start(l, &e)) {
            assert_int_equal(e.code, RV_E_NOMEM);
            (void)fail_alloc_off();
            assert_ok(rv_learner_start(l, err));
        }
        for (;;) {
            char *json;
            rvi_thread_sleep(0.03);
            if (rv_learner_status(l, &json, &e)) continue; /* it was our turn */
            bool over = strstr(json, "\"background_error\"") || strstr(json, "\"waiting\":0");
            rv_free(json);
            if (over) break;
        }
        (void)fail_alloc_off();
        rv_learner_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opening, set_up, tear_down),
        cmocka_unit_test_setup_teardown(training, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beside, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
