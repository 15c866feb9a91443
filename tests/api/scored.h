/* scored.h - which adapter the scores of a learner have made. */
#ifndef TESTS_API_SCORED_H
#define TESTS_API_SCORED_H

#include "api/api.h"
#include "api/opened.h"

typedef struct digest {
    char hex[RVI_SHA256_HEX]; /* of the adapter of scores; "": there is none */
} digest;

static inline digest scored(const rv_learner *l)
{
    digest d = {""};
    if (l->l->instant.adapter) assert_ok(rvi_adapter_digest(l->l->instant.adapter, d.hex, err));
    return d;
}

#endif
