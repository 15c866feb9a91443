/* pattern.h - one thing the bank remembers: a question, an answer to it, and how good that was. */
#ifndef RVI_LEARN_PATTERN_H
#define RVI_LEARN_PATTERN_H

#include "base/sha256.h"
#include "learn/store.h"

typedef enum rvi_verdict { /* worst first */
                           RVI_VERDICT_FAILURE,
                           RVI_VERDICT_UNKNOWN,
                           RVI_VERDICT_PARTIAL,
                           RVI_VERDICT_SUCCESS,
} rvi_verdict;

/* NaN: unknown; below 0.3: failure; from 0.7 on: success; between: partial. */
rvi_verdict rvi_verdict_of(double score);
const char *rvi_verdict_name(rvi_verdict v); /* "success" */

typedef enum rvi_pattern_state {
    RVI_PATTERN_LIVE,       /* in use, not in any weights yet */
    RVI_PATTERN_ABSORBED,   /* the weights of `generation` know it */
    RVI_PATTERN_SUPERSEDED, /* a newer correction says something else */
} rvi_pattern_state;

enum {
    RVI_PATTERN_MAX_TEXT = 64 << 10, /* bytes of question and answer */
    RVI_PATTERN_MAX_WORD = 4 << 10,  /* of subject, relation, words */
    RVI_PATTERN_MAX_DIM = 16384,
};

typedef struct rvi_pattern {
    uint64_t id;         /* 1, 2, 3 ..., never used twice; set by the bank */
    uint64_t event;      /* of the log, that it was first learned from; 0: none */
    uint64_t last_event; /* that changed it last */
    rvi_verdict verdict;
    rvi_pattern_state state;
    bool correction; /* a user said that this is the answer */
    bool distilled;  /* has survived a distillation */
    float quality;   /* mean of its scores, 0..1 */
    uint32_t n_scores;
    uint64_t uses;
    int64_t last_use;    /* milliseconds since 1970, UTC */
    uint64_t generation; /* of the adapter that absorbed it; 0: none */
    rvi_text question, answer;
    rvi_text subject, relation, words;
    const float *vector; /* of the question, [n_dim]; in the bank of length 1; NULL: none */
    size_t n_dim;
} rvi_pattern;

/* RV_E_INVALID: what is empty, too long, not UTF-8, not finite. */
rv_status rvi_pattern_check(const rvi_pattern *p, rv_error *err) RVI_MUST_CHECK;

/* Bytes for a store, and back. What is parsed comes from a file: it is checked; texts point into
 * bytes; the vector is copied to `vector` [at least RVI_PATTERN_MAX_DIM]. */
rv_status rvi_pattern_write(rvi_buf *out, const rvi_pattern *p, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_pattern_parse(rvi_pattern *out, rvi_bytes bytes, float *vector,
                            rv_error *err) RVI_MUST_CHECK;

/* One block on the heap with everything in it, the vector scaled to length 1 unless it already is
 * one of the bank's (exact); NULL: no memory. rvi_free. */
rvi_pattern *rvi_pattern_copy(const rvi_pattern *p, bool exact);
size_t rvi_pattern_size(const rvi_pattern *p); /* bytes of that block */

/* What two patterns are compared by: hashes of their folded texts (zeros: empty). */
typedef struct rvi_pattern_keys {
    uint8_t question[16], answer[16], subject[16], relation[16];
} rvi_pattern_keys;
rv_status rvi_pattern_keys_of(rvi_pattern_keys *out, const rvi_pattern *p,
                              rv_error *err) RVI_MUST_CHECK;

#endif
