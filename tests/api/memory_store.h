/* memory_store.h - an rv_store that outlives learners, so that tests can open one again. */
#ifndef TESTS_API_MEMORY_STORE_H
#define TESTS_API_MEMORY_STORE_H

#include "learn/journal/store.h"
#include "ruvllm.h"

/* s: opened by rvi_store_memory, and closed after the last learner. */
static inline rv_store memory_store(const rvi_store *s)
{
    return s->by;
}

#endif
