/* bed.h - a small model with an engine, a session and a ring of captured tokens, for the tests of
 * what learns from them. */
#ifndef TESTS_LEARN_BED_H
#define TESTS_LEARN_BED_H

#include "model/golden.h"

#include <math.h>

#include "base/rng.h"
#include "learn/capture_text.h"
#include "learn/instant/micro.h"

enum { BED_PROMPT = 6, BED_TOKENS = 30 };

/* The sparse gradient leaves next to nothing out at this temperature. */
#define BED_TEMPERATURE 0.2f

typedef struct bed {
    golden g;
    rvi_ids eos;
    rvi_engine *e;
    rvi_session *s;
    rvi_capturer *by;
    rvi_capture *ring;
    const int32_t *ids;
    rvi_adapter *adapter; /* of the session, or NULL */
    rvi_adapter_use use;
    rvi_adapter_set set;
    rvi_captured tokens[512];
    int n;
} bed;

static inline void bed_open(bed *b, const char *name)
{
    int n;
    *b = (bed){0};
    golden_open_named(&b->g, name, true, 1, NULL);
    b->ids = golden_ids(b->g.expected, "long_tokens", &n);
    assert_true(n >= BED_PROMPT + BED_TOKENS);
    assert_ok(rvi_engine_new(&b->e, b->g.m, NULL, &b->eos,
                             &(rvi_engine_options){.n_tokens = 1024,
                                                   .max_rows = 16, /* several steps */
                                                   .max_logits = 1,
                                                   .kv_type = RV_KV_F32},
                             err));
    assert_ok(rvi_session_new(&b->s, b->e, 512, NULL, NULL, err));
    assert_ok(rvi_capturer_new(&b->by, b->g.m, err));
    assert_ok(rvi_capture_new(&b->ring, b->by, 512, err));
}

static inline void bed_close(bed *b)
{
    rvi_capture_free(b->ring);
    rvi_capturer_free(b->by);
    rvi_session_free(b->s);
    rvi_engine_free(b->e);
    rvi_adapter_free(b->adapter);
    golden_close(&b->g);
}

/* From now on with this change; NULL: without. */
static inline void bed_use(bed *b, const rvi_delta *d)
{
    static uint64_t serial;
    rvi_adapter_free(b->adapter);
    b->adapter = NULL;
    b->s->adapters = NULL;
    if (!d || !d->rank) return;
    assert_ok(rvi_delta_export(&b->adapter, b->g.m, d, err));
    b->use = (rvi_adapter_use){b->adapter, 1};
    b->set = (rvi_adapter_set){.uses = &b->use, .n = 1, .serial = ++serial};
    b->s->adapters = &b->set;
}

/* Captures n tokens after a prompt, at ids + from. Returns their mean log p. */
static inline double bed_capture(bed *b, int from, int n)
{
    double sum = 0;
    assert_ok(capture_text(b->ring, b->s, b->ids + from, BED_PROMPT, (size_t)(BED_PROMPT + n),
                           BED_TEMPERATURE, err));
    uint64_t answer = rvi_capture_answer(b->ring);
    b->n = rvi_capture_count(b->ring, answer);
    assert_int_equal(b->n, n);
    for (int i = 0; i < n; i++) {
        b->tokens[i] = rvi_capture_get(b->ring, answer, i);
        sum += (double)b->tokens[i].log_p;
    }
    return sum / n;
}

#endif
