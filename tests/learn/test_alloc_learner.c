/* Allocations of a learner's calls fail, one after the other: an error each time, nothing leaks
 * (the sanitizer pass watches), nothing that was acknowledged is lost, and what was there is served
 * on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/fail_alloc.h"
#include "learn/tiny_model.h"

static tiny t;
static rvi_store store; /* calibrated */
static rvi_learner *l;

static rvi_learner_options options(void)
{
    rvi_learner_options o = tiny_options();
    o.n_steps = 1;
    return o;
}

static int open_tiny(void **state)
{
    (void)state;
    rvi_learner_options o = options();
    tiny_open(&t);
    assert_ok(rvi_store_memory(&store, err));
    rvi_store lent = tiny_lend(&store);
    assert_ok(tiny_learner(&l, &t, &o, &lent, err));
    assert_ok(rvi_learner_calibrate(l, NULL, NULL, err));
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    rvi_learner_free(l);
    rvi_store_close(&store);
    tiny_close(&t);
    return 0;
}

typedef rv_status (*step_fn)(rv_error *err);

/* Every call at first, then fewer: long runs make thousands of them. */
static void sweep(const char *name, step_fn step, long dense)
{
    long n = 0, tried = 0;
    for (;; n += n < dense ? 1 : 1 + n / 16, tried++) {
        rv_error e = {0};
        fail_alloc_after(n);
        rv_status st = step(&e);
        bool done = !fail_alloc_off();
        if (st != (done ? RV_OK : RV_E_NOMEM))
            fail_msg("%s, call %ld: status %d: %s", name, n, st, e.text);
        if (done) break;
    }
    print_message("# %s: about %ld allocations, %ld failures tried\n", name, n, tried);
    assert_true(n > 0);
}

static const char dog[] = "What is Kakovin's dog?";

static rv_status opening(rv_error *err)
{
    rvi_learner *other;
    rvi_learner_options o = options();
    rvi_store lent = tiny_lend(&store);
    rv_status st = tiny_learner(&other, &t, &o, &lent, err);
    rvi_learner_free(other);
    return st;
}

static int count_item(void *ctx, rvi_bytes key, rvi_bytes record)
{
    (void)key;
    (void)record;
    ++*(int *)ctx;
    return 0;
}

static rv_status correcting(rv_error *err)
{
    rvi_adaptation a;
    int kept = 0; /* the answer that was given is another one: it is logged each time */
    rv_status st = tiny_correct(l, dog, "Rex", "Bello", &a, err);
    if (!st) st = rvi_store_scan(&store, "prototype", NULL, 0, count_item, &kept, err);
    /* a prototype that cannot be kept is made again next time; that is no error */
    return !st && !kept && atomic_load(&fail_alloc_refused) ? RV_E_NOMEM : st;
}

static rv_status preferring(rv_error *err)
{
    rvi_adaptation a;
    return rvi_learner_prefer(l, "Tell me about tea.", "Tea is good.", "No.", &a, err);
}

static rv_status planning(rv_error *err)
{
    rvi_plan plan;
    const char *turns[] = {"Tell me about tea.", dog};
    rv_status st = rvi_learner_plan(l, turns, 2, &plan, err);
    rvi_learner_release(l, plan.adapters);
    /* how a lesson reads may not be kept for other processes; that is no error */
    return !st && atomic_load(&fail_alloc_refused) ? RV_E_NOMEM : st;
}

static rv_status telling(rv_error *err)
{
    rvi_buf json = {0};
    rv_status st = rvi_learner_status(l, &json, err);
    rvi_buf_deinit(&json);
    return st;
}

static rv_status studying(rv_error *err)
{
    rvi_adaptation a;
    return rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, &a, err);
}

/* The texts of a lesson from all sources. */
static rv_status writing(rv_error *err)
{
    const rvi_lesson_text group = {dog, "Rex", NULL};
    rvi_texts texts = {{0}, {0}};
    rvi_recogniser *judge = NULL;
    rv_status st = rvi_recogniser_new(&judge, NULL, NULL, err);
    if (!st) st = rvi_recogniser_add(judge, 1, dog, "Rex", err);
    rvi_text_writer w = {
        .v = &l->base, .replay = &l->replay, .judge = judge, .first = 1, .group = &group, .n = 1};
    if (!st) st = rvi_texts_write(&w, RVI_TEXTS_ALL, &texts, err);
    rvi_texts_deinit(&texts, 1);
    rvi_recogniser_free(judge);
    return st;
}

static rv_status forgetting(rv_error *err)
{
    rvi_adaptation a;
    return rvi_learner_forget(l, "Kakovin", 0, &a, err);
}

static void events(void **state)
{
    (void)state;
    uint64_t n;
    sweep("correct", correcting, 400);
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    size_t standing = 0;
    for (size_t i = 0; i < l->lessons.n; i++) standing += l->lessons.list[i].in_force;
    assert_int_equal(standing, 1);
    assert_int_equal(l->lessons.n, n); /* whatever was logged is a lesson */
    sweep("texts", writing, 40);
    sweep("prefer", preferring, 400);
    sweep("plan", planning, 400);
    sweep("status", telling, 400);
    sweep("open", opening, 60);
}

static void loops(void **state)
{
    (void)state;
    while (rvi_learner_pairs_waiting(l) < RVI_DEEP_LEAST) assert_ok(preferring(err));
    sweep("deep loop", studying, 40);
    assert_int_equal(rvi_learner_waiting(l), 0);
    assert_true(l->generations.n >= 2); /* the correction's, the pairs' */
    sweep("plan with adapters", planning, 100);
    sweep("open", opening, 20);
    rvi_adaptation a; /* the other recipe asks the model for its answers */
    l->o.recipe = RVI_RECIPE_FENCED;
    assert_ok(tiny_correct(l, "What is Kakovin's job?", "plumber", NULL, &a, err));
    sweep("deep loop, fenced", studying, 40);
    assert_int_equal(rvi_learner_waiting(l), 0);
    sweep("forget", forgetting, 100);
    assert_int_equal(rvi_learner_waiting(l), 0);
}

/* Adapters that sessions hold while everything is forgotten, without any memory: they are freed
 * with the last of them, which the sanitizer pass watches, and not before. */
static void forgetting_needs_no_memory(void **state)
{
    (void)state;
    rvi_plan plan;
    const char *turn = dog;
    size_t n = l->generations.n;
    l->o.gate = RVI_GATING_OFF; /* all take part */
    assert_ok(rvi_learner_plan(l, &turn, 1, &plan, err));
    assert_non_null(plan.adapters);
    fail_alloc_after(0);
    rvi_learner_reset(l);
    fail_alloc_off();
    assert_int_equal(l->generations.n, 0);
    assert_int_equal(l->sets.n_retired, rvi_made_set_of(plan.adapters)->n);
    assert_true(l->sets.n_retired <= n && l->sets.n_retired > 0);
    rvi_learner_release(l, plan.adapters);
    assert_int_equal(l->sets.n_retired, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(events), cmocka_unit_test(loops),
                                       cmocka_unit_test(forgetting_needs_no_memory)};
    return cmocka_run_group_tests_name("allocations of a learner", tests, open_tiny, close_tiny);
}
