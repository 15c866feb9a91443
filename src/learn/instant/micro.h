/* micro.h - the adapter that a score changes at once: rank 1 to 4 on the last layer's down
 * projection, by the exact gradient of the answer's log-probability from captured tokens
 * (capture.h).
 *
 * One event is one answer and its advantage a: with weights w_t = (0.3 a + c_t) / T, where c_t is
 * the token's credit (credit.h), 0 until a dozen scores have told something of it; negative ones
 * are less for tokens that are unlikely already,
 *     dB = sum w_t g_t (A u_t)^T,   dA = sum w_t (B^T g_t) u_t^T
 * and the step along them is as long as lets the answer's distribution move by kl_step * |a|: the
 * KL is predicted on the same tokens, 0.5 (g_t . dx_t)^2. Caps on the adapter's size and on what it
 * adds to a token follow. While the probe (probe.h) says that the adapter has moved further than
 * kl_soft, every step also goes down the KL of two probe texts. Scored beyond kl_hard or ppl_hard
 * it goes back to how it was when a check last found it good, and steps are half as long until
 * checks are good again.
 *
 * Events that are not finite are dropped and counted. Everything is a function of the seed and the
 * events in their order, bit for bit. An event allocates nothing and does not use the backend. One
 * thread at a time. */
#ifndef RVI_LEARN_MICRO_H
#define RVI_LEARN_MICRO_H

#include "learn/instant/credit.h"
#include "learn/instant/probe.h"

enum {
    RVI_MICRO_MAX_RANK = 4,
    RVI_MICRO_TOKENS = 128,   /* of an event: those that weigh most */
    RVI_MICRO_GOOD = 4,       /* events from one good state that is kept to the next */
    RVI_SCORES = 20,          /* remembered by a baseline */
    RVI_MICRO_PULL_TEXTS = 2, /* of an event, */
    RVI_MICRO_PULL_TOKENS = 3 /* and positions of each, others at the next event */
};

/* ---- from a score to an advantage ---- */

/* The last scores of one user and task; {0} is an empty one. */
typedef struct rvi_scores {
    float last[RVI_SCORES];
    int n, next;
} rvi_scores;

/* score (0 to 1) against the mean of those before it, in units of their deviation (0.05 at least; 1
 * until there are four), no more than 2 either way, and 0 below 0.02; then remembers it. The first
 * is 0. */
double rvi_scores_take(rvi_scores *s, double score);

/* ---- the adapter ---- */

typedef struct rvi_micro rvi_micro;

typedef struct rvi_micro_options { /* 0: the default */
    int rank;                      /* 4 */
    uint64_t seed;
    double kl_step;           /* 0.03 */
    double kl_soft;           /* 0.025 */
    double kl_hard, ppl_hard; /* 0.05, 0.03 */
} rvi_micro_options;

rv_status rvi_micro_new(rvi_micro **out, const rvi_model *m, const rvi_micro_options *o,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_micro_free(rvi_micro *m); /* accepts NULL */
/* Borrowed, used only by events and rvi_micro_probe; NULL: no pull. */
void rvi_micro_set_probe(rvi_micro *m, rvi_probe *p);

typedef enum rvi_micro_outcome {
    RVI_MICRO_STEPPED,
    RVI_MICRO_NOTHING, /* no token, no advantage, or no gradient */
    RVI_MICRO_DROPPED  /* something was not finite; the adapter is as it was */
} rvi_micro_outcome;

/* kl (may be NULL): what the step was predicted to move, nats a token. */
rvi_micro_outcome rvi_micro_event(rvi_micro *m, const rvi_captured *tokens, int n, double advantage,
                                  double *kl);
/* Does an event pull the adapter back, so that it needs the probe? */
bool rvi_micro_pulls(const rvi_micro *m);
/* The adapter as it was before the last event that stepped; false: there was none since it was
 * made, loaded, undone or rolled back. */
bool rvi_micro_undo(rvi_micro *m);

/* Tells what the probe says of the adapter as it is. Where it is too far, goes back, halves kl_step
 * (down to a sixteenth) and returns true; where it is good and enough events have passed, that is
 * what it goes back to from now on. */
bool rvi_micro_check(rvi_micro *m, rvi_probe_result r);
/* The same, asking its own probe first. */
bool rvi_micro_probe(rvi_micro *m, rvi_probe_result *r);

typedef struct rvi_micro_status {
    uint64_t n_events, n_dropped, n_rollbacks; /* n_events: that stepped */
    bool has_good;                             /* a state to go back to, but the beginning */
    double kl_step;
    double size, cap; /* Frobenius norm of B A, and the most it may have */
    rvi_probe_result probe;
} rvi_micro_status;

rvi_micro_status rvi_micro_status_of(const rvi_micro *m);
rvi_delta rvi_micro_delta(
    const rvi_micro *m); /* the adapter's own matrices, until the next change */

/* Everything but what the last event replaced, as flat bytes of this machine's order. Loading
 * replaces all but the probe; on failure nothing changed. */
rv_status rvi_micro_save(const rvi_micro *m, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_micro_load(rvi_micro *m, const void *bytes, size_t len, rv_error *err) RVI_MUST_CHECK;

/* ---- shared with the other kinds of events ---- */

/* Up to RVI_MICRO_TOKENS of the tokens, those with the largest |w| |g| in their order, with w_t =
 * advantage / n, times min(1, p_t / 0.2) where it is negative; with credits, a part of that, and
 * the same of the token's credit. False: something is not finite. */
typedef struct rvi_event_tokens {
    int n;
    int which[RVI_MICRO_TOKENS]; /* index among the captured ones */
    float w[RVI_MICRO_TOKENS], reach[RVI_MICRO_TOKENS];
    float *u, *g; /* [n_ff], [n_embd] of as many as its owner wants at a time; one at least */
} rvi_event_tokens;

bool rvi_event_choose(rvi_event_tokens *e, const rvi_kernels *k, const rvi_captured *tokens, int n,
                      double advantage, const rvi_credits *credits,
                      size_t n_embd); /* credits or NULL */

#endif
