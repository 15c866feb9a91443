/* options.h - what a learner is made with, and what a call of it changed, whole: the public structs
 * (ruvllm_learn.h) leave out what is 0 and what only experiments set. */
#ifndef RVI_LEARN_CONSOLIDATE_OPTIONS_H
#define RVI_LEARN_CONSOLIDATE_OPTIONS_H

#include "ruvllm_experimental.h"

/* How a group of corrections becomes an adapter. */
typedef enum rvi_recipe {
    RVI_RECIPE_GATED, /* trained for generality, active only where a lesson it holds is asked for */
    RVI_RECIPE_FENCED /* fenced by training, fit for use without a gate: export, merging */
} rvi_recipe;

/* Where adapters made of corrections take part. */
typedef enum rvi_gating {
    RVI_GATING_BY_RECIPE, /* a group's own of RVI_RECIPE_FENCED in every answer, shared and others
                             where a lesson it holds is asked for */
    RVI_GATING_ON,        /* all of them where a lesson it holds is asked for */
    RVI_GATING_OFF        /* all of them in every answer */
} rvi_gating;

/* Who reads lessons that are only likely to be asked for. */
typedef enum rvi_reading_by {
    RVI_READING_MEASURED, /* a model that was found to read */
    RVI_READING_ON,       /* any */
    RVI_READING_OFF       /* none */
} rvi_reading_by;

typedef struct rvi_learner_options {
    const char *dir, *user;
    uint64_t seed;
    int n_threads;
    int lock_wait_ms; /* for another process that learns in dir; 0: none */
#define X(name, type, value, meaning) type name;
    RV_LEARNER_EXPERIMENTS(X)
#undef X
} rvi_learner_options;

#define RVI_LEARNER_DEFAULTS                                                                       \
    {                                                                                              \
        .lock_wait_ms = 10000, RV_LEARNER_EXPERIMENTS(RVI_LEARNER_DEFAULT)                         \
    }
#define RVI_LEARNER_DEFAULT(name, type, value, meaning) .name = (type)(value),

/* As rvi_adaptation, in the caller's storage. */
typedef struct rvi_adaptation {
    int applied;
    rv_learn_loop loop;
    double latency_us, forward_us, quality_delta;
    int samples_used, generation;
    uint64_t event;
    const char *question; /* the learner's, until it changes; NULL: none */
    char notes[1024];
} rvi_adaptation;

#endif
