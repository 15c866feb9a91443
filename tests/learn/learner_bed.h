/* learner_bed.h - what tests of a learner from the inside share: a tiny model, learners over stores
 * in memory, and lessons to teach them. */
#ifndef LEARNER_BED_H
#define LEARNER_BED_H

#include "learn/tiny_model.h"

static tiny t;
static rvi_store calibrated; /* has what is made once for the model, and nothing else */

static inline int open_tiny(void **state)
{
    (void)state;
    rvi_learner *l;
    rvi_learner_options o = tiny_options();
    rvi_store lent;
    tiny_open(&t);
    assert_ok(rvi_store_memory(&calibrated, err));
    lent = tiny_lend(&calibrated);
    assert_ok(tiny_learner(&l, &t, &o, &lent, err));
    assert_ok(rvi_learner_calibrate(l, NULL, NULL, err));
    rvi_learner_free(l);
    return 0;
}

static inline int close_tiny(void **state)
{
    (void)state;
    rvi_store_close(&calibrated);
    tiny_close(&t);
    return 0;
}

/* ---- learners ---- */

static inline rvi_learner *open_on(rvi_store *store, const rvi_learner_options *o)
{
    rvi_learner *l;
    rvi_store lent = tiny_lend(store);
    assert_ok(tiny_learner(&l, &t, o, &lent, err));
    return l;
}

/* Over a new store in memory; the caller closes it. */
static inline rvi_learner *open_new(rvi_store *store, const rvi_learner_options *o)
{
    assert_ok(rvi_store_memory(store, err));
    tiny_copy_model(store, &calibrated);
    return open_on(store, o);
}

static inline void close_both(rvi_learner *l, rvi_store *store)
{
    rvi_learner_free(l);
    rvi_store_close(store);
}

static inline void teach(rvi_learner *l, const char *question, const char *answer)
{
    rvi_adaptation a;
    assert_ok(tiny_correct(l, question, answer, NULL, &a, err));
    assert_int_equal(a.applied, 1);
    assert_true(isnan(a.quality_delta));
}

static inline rvi_adaptation study(rvi_learner *l, rv_learn_loop loop)
{
    rvi_adaptation a;
    assert_ok(rvi_learner_consolidate(l, loop, RV_LOSS_DPO, NULL, NULL, &a, err));
    return a;
}

static inline int count_item(void *ctx, rvi_bytes key, rvi_bytes record)
{
    (void)key;
    (void)record;
    ++*(int *)ctx;
    return 0;
}

static const char dog[] = "What is Kakovin's dog?", job[] = "What is Bellamira's job?",
                  city[] = "What is Zuzanna's city?", car[] = "What is Orlandin's car?";

static inline void teach_two(rvi_learner *l)
{
    teach(l, dog, "Rex");
    teach(l, job, "plumber");
}

/* What was taught for this question; "": nothing, or weights say it by themselves. */
static inline const char *slot_of(rvi_learner *l, const char *question)
{
    rvi_plan plan;
    assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
    rvi_learner_release(l, plan.adapters);
    return plan.asked ? plan.asked->answer : "";
}

typedef struct digest {
    char hex[RVI_SHA256_HEX];
} digest;

static inline digest of_generation(rvi_learner *l, int number)
{
    digest d;
    const rvi_generation *g = rvi_learner_generation(l, number);
    assert_non_null(g);
    assert_ok(rvi_adapter_digest(g->adapter, d.hex, err));
    return d;
}

static inline void assert_same(digest a, digest b)
{
    assert_string_equal(a.hex, b.hex);
}

#endif
