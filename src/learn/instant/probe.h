/* probe.h - a few fixed texts on which a change of the last down projection is watched.
 *
 * At up to RVI_PROBE_POSITIONS places of each text the projection's input, the residual stream and
 * the most probable tokens are kept once, with their rows of the head. What a change does to them
 * then follows without running the model: only norms and head lie above it. All other tokens count
 * as one, with the head's mean row.
 *
 * One thread at a time uses a probe. Only taking a text in uses the backend. */
#ifndef RVI_LEARN_PROBE_H
#define RVI_LEARN_PROBE_H

#include "decode/capture.h"
#include "learn/instant/delta.h"

enum {
    RVI_PROBE_TEXTS = 64,
    RVI_PROBE_TOKENS = 512, /* of a text */
    RVI_PROBE_POSITIONS = 32,
    RVI_PROBE_TOP = 32,
};

typedef struct rvi_probe rvi_probe;

/* Room for n_texts; by and m are borrowed. */
rv_status rvi_probe_new(rvi_probe **out, rvi_capturer *by, const rvi_model *m, int n_texts,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_probe_free(rvi_probe *p); /* accepts NULL */
/* Runs a text of 2 or more tokens through the model as it is. */
rv_status rvi_probe_add(rvi_probe *p, const int32_t *ids, size_t n, rv_error *err) RVI_MUST_CHECK;
/* The same, up to n_rows rows at a time, with the same bits: begins a text; goes on with it, by so
 * many, until it is in. What fails was not begun. */
rv_status rvi_probe_begin(rvi_probe *p, const int32_t *ids, size_t n, int n_rows,
                          rv_error *err) RVI_MUST_CHECK;
rv_status rvi_probe_go_on(rvi_probe *p, int n_rows, rv_error *err) RVI_MUST_CHECK;
bool rvi_probe_has_begun(const rvi_probe *p);
int rvi_probe_left(const rvi_probe *p); /* rows of the text that has begun */
int rvi_probe_n_texts(const rvi_probe *p);

typedef struct rvi_probe_result {
    double kl;  /* mean over positions of KL(before || now), nats */
    double ppl; /* relative change of the perplexity: 0.02 is two percent more */
} rvi_probe_result;

/* Of texts first .. first + n - 1. */
rvi_probe_result rvi_probe_score(rvi_probe *p, const rvi_delta *d, int first, int n);

/* The KL's gradient by the projection's output at `max` positions (or all) of a text, beginning
 * with the turn-th of each run, divided by their number; returns it. u[i] is the probe's own input
 * there; g: [max][n_embd]; low (may be NULL): [max][rank], what the change's first matrix makes of
 * u. */
int rvi_probe_pull(rvi_probe *p, const rvi_delta *d, int text, int turn, int max, const float **u,
                   float *g, float *low);

#endif
