/* edits.h - what a thumb down does to one prompt's answer: a list of edits of rank one, each a key
 * and a value, of the last layer's down projection, W + sum of v k^T, behind the gate of that
 * prompt.
 *
 * The step is the natural gradient: with weights w_t < 0, less for tokens that are unlikely
 * already,
 *     dW = eta sum w_t g_t k_t^T,    k_t = C^-1 u_t / (u_t^T C^-1 u_t)
 * which leaves the directions that ordinary text uses alone (whiten.h). eta lets the answer's
 * distribution move by kl_step * |a|, the KL predicted on the same tokens, which is exact to first
 * order: the change is linear in dW. a is 0.5 at the first event on a prompt, a tenth less at each
 * further one, 0.2 at least.
 *
 * The inputs u of an answer do not depend on this layer, so that the same answer brings the same
 * keys and later events add to the same values. Keys are the larger part of the work and are known
 * as soon as the answer is there: rvi_edits_prepare may be called then, long before a thumb; the
 * event itself allocates nothing. One thread at a time; no backend. */
#ifndef RVI_LEARN_INSTANT_EDITS_H
#define RVI_LEARN_INSTANT_EDITS_H

#include "learn/instant/micro.h"
#include "learn/instant/whiten.h"

enum { RVI_EDITS_MAX = 256 }; /* of a list */

typedef struct rvi_thumbs rvi_thumbs; /* the model's part, and scratch for any number of lists */
typedef struct rvi_edits rvi_edits;

/* whitener is borrowed, of n_ff inputs and finished. kl_step 0: 0.002. */
rv_status rvi_thumbs_new(rvi_thumbs **out, const rvi_model *m, const rvi_whitener *whitener,
                         double kl_step, rv_error *err) RVI_MUST_CHECK;
/* Scratch of its own for the same. */
rv_status rvi_thumbs_like(rvi_thumbs **out, const rvi_thumbs *t, rv_error *err) RVI_MUST_CHECK;
void rvi_thumbs_free(rvi_thumbs *t); /* accepts NULL */

rv_status rvi_edits_new(rvi_edits **out, rv_error *err) RVI_MUST_CHECK; /* empty */
void rvi_edits_free(rvi_edits *p);                                      /* accepts NULL */

/* Makes the list ready for an event on these tokens; what they were is then in t alone. Without
 * room for all, the tokens that come last are left out. RV_E_LEARNING: there are none, or something
 * is not finite. When it was done makes no difference to the event. */
rv_status rvi_edits_prepare(rvi_thumbs *t, rvi_edits *p, const rvi_captured *tokens, int n,
                            rv_error *err) RVI_MUST_CHECK;
/* Was this list prepared last by t, and not by another one or taken back since? */
bool rvi_edits_are_ready(const rvi_thumbs *t, const rvi_edits *p);
/* A thumb down on what t has prepared; nothing where the list is not ready. kl as in
 * rvi_micro_event. */
rvi_micro_outcome rvi_edits_down(rvi_thumbs *t, rvi_edits *p, double *kl);
/* The list as it was before its last event, once. */
bool rvi_edits_undo(rvi_edits *p);

rvi_delta rvi_edits_delta(const rvi_edits *p); /* rank 0: nothing yet */
int rvi_edits_n_events(const rvi_edits *p);
bool rvi_edits_are_empty(const rvi_edits *p); /* no event so far, and none taken back */

/* Flat bytes of this machine's order, and back. */
rv_status rvi_edits_save(const rvi_edits *p, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_edits_load(rvi_edits **out, const rvi_thumbs *t, const void *bytes, size_t len,
                         rv_error *err) RVI_MUST_CHECK;

#endif
