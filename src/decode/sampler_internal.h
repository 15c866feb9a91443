/* sampler_internal.h - what the files of the sampler share.
 *
 * Invariants of the candidate set during a pick
 *   - there is at least one candidate; all logits are finite: a masked token is no candidate;
 *   - ids ascend, so "the first of equals" is the lowest id;
 *   - while dense, all of the vocabulary are candidates, id i at place i, and ids is not filled
 *     (when greedy the set is always dense, and masked tokens have -INFINITY);
 *   - weights and total are meaningful only while weighed is true: code that changes a logit clears
 *     it, code that drops candidates keeps it true. */
#ifndef RVI_DECODE_SAMPLER_INTERNAL_H
#define RVI_DECODE_SAMPLER_INTERNAL_H

#include "base/rng.h"
#include "decode/sampler.h"

typedef struct rvi_candidates {
    float *logits;  /* [n] at the front of the caller's [n_vocab], which is overwritten */
    int32_t *ids;   /* [n] */
    float *weights; /* [n] exp(logit - best) */
    uint32_t *keys; /* [n] scratch */
    int n;
    bool dense, weighed;
    float best;   /* the logit whose weight is 1; it may have been dropped since */
    double total; /* sum of weights */
} rvi_candidates;

void rvi_candidates_weigh(rvi_candidates *c); /* makes weighed true */
/* (logit - shift) / divisor, no lower than the lowest finite float */
void rvi_candidates_scale(rvi_candidates *c, float shift, float divisor);
float *rvi_candidates_find(const rvi_candidates *c, int32_t id); /* NULL: no candidate */
static inline int32_t rvi_candidates_id(const rvi_candidates *c, int i)
{
    return c->dense ? i : c->ids[i];
}

/* Each keeps at least one. */
void rvi_candidates_keep_heavy(rvi_candidates *c,
                               double weight); /* those of at least this weight; weighed */
void rvi_candidates_keep_high(rvi_candidates *c, double logit); /* those with at least this logit */
void rvi_candidates_keep_best(rvi_candidates *c, int k);        /* the k highest, k >= 1 */
/* nucleus: the highest ones up to the share p of the total weight; lowest: the same in ascending
 * order of the keys that the caller has set (weighed). */
void rvi_candidates_keep_nucleus(rvi_candidates *c, double p);
/* The same where total is that of n_all candidates and those that are not here have lower logits.
 * False: without them it cannot be told what stays. */
bool rvi_candidates_keep_nucleus_of(rvi_candidates *c, double p, double total, int n_all);
void rvi_candidates_keep_lowest(rvi_candidates *c, double p);
uint32_t rvi_key(float score); /* ordered as the scores are */
/* For callers that choose themselves: move what stays to the front, in order, then shrink. */
void rvi_candidates_move(rvi_candidates *c, int to, int from);
void rvi_candidates_shrink(rvi_candidates *c, int n);

float rvi_max(const float *x, int n);  /* n >= 1 */
double rvi_sum(const float *x, int n); /* in the order of backend/draw.h */

float rvi_min(const float *x, int n); /* n >= 1 */

enum { RVI_STAGES_MAX = 10 };

/* What a stage must know to do its work, if it is the first that drops candidates. */
typedef enum rvi_stage_need {
    RVI_NEEDS_ALL,   /* every logit */
    RVI_NEEDS_BEST,  /* the highest ones; temperature: of each its own */
    RVI_NEEDS_TOTAL, /* and the sum of weights */
} rvi_stage_need;

typedef struct rvi_stage {
    const char *name;
    void (*run)(rvi_sampler *s);
    bool (*active)(const rv_sampling *o);
    bool changes_logits; /* runs when greedy, too */
    bool reads_past;     /* the ids of the past must be tokens */
    rvi_stage_need need;
    void (*drawn)(rvi_sampler *s, double p); /* told the probability of what was drawn; or NULL */
} rvi_stage;

struct rvi_sampler {
    rv_sampling o; /* its lists and strings are not used: what follows are our copies */
    const rvi_stage *stages[RVI_STAGES_MAX];
    int n_stages; /* the active ones, in order */
    bool reads_past;
    rv_logit_bias *bias; /* [n_bias] the finite ones and -INFINITY */
    size_t n_bias;
    int32_t *forced; /* [n_forced] ids with a bias of +INFINITY */
    size_t n_forced;
    uint8_t *breaks; /* [n_vocab] 1: the token ends a DRY match; NULL: none does */
    int32_t *match;  /* [match_cap] repeat lengths, see sampler_dry.c */
    int match_cap;
    int32_t *counts; /* [n_vocab] all zero between stages */
    int n_vocab;
    rvi_rng rng;
    float *few; /* [RVI_DRAW_MOST] logits of rvi_sampler_pick_drawn */
    double mu;  /* mirostat: surprise in bits above which a token is dropped */
    rvi_candidates set;
    const int32_t *past; /* of the present call */
    size_t n_past, n_prompt;
};

/* Parses rv_sampling.order (NULL: the default) into rows of the table, in order. */
rv_status rvi_stages_parse(const char *order, const rvi_stage **stages, int *n,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_stage_dry(rvi_sampler *s);
void rvi_stage_temperature(rvi_sampler *s);
int32_t rvi_sampler_draw(rvi_sampler *s); /* one of the candidates */
/* Marks the tokens whose text holds one of the breakers. */
rv_status rvi_dry_find_breakers(rvi_sampler *s, const rvi_tokenizer *t, const char *const *breakers,
                                size_t n_breakers, rv_error *err) RVI_MUST_CHECK;
/* Clamps to the finite floats: a penalty must not turn a token into a masked one. */
float rvi_bounded(double logit);

#endif
