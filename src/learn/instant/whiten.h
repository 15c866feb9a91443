/* whiten.h - which directions of a layer's input ordinary text uses, and keys that stay away from
 * them.
 *
 * C = mean of u u^T over samples, plus a ridge of 1e-2 of its mean diagonal. The key of an input,
 *     k = C^-1 u / (u^T C^-1 u),    k . u = 1,
 * answers to u and as little as possible to anything else. Up to RVI_WHITEN_FULL inputs the inverse
 * is kept whole; above it is C = D + Q L Q^T, D diagonal and Q the RVI_WHITEN_RANK main directions,
 * inverted as such. Gather samples, finish, then use; immutable from then on. */
#ifndef RVI_LEARN_INSTANT_WHITEN_H
#define RVI_LEARN_INSTANT_WHITEN_H

#include "base/error.h"
#include "base/mem.h"
#include "kernels/kernels.h"

enum {
    RVI_WHITEN_FULL = 2048,
    RVI_WHITEN_RANK = 64,
    RVI_WHITEN_SAMPLES = 6144,
    RVI_WHITEN_SAMPLE_BYTES = 64 << 20, /* no more samples than fit */
};

typedef struct rvi_whitener rvi_whitener;

/* n inputs. rank 0: by their number; otherwise so many main directions in any case, up to
 * RVI_WHITEN_RANK. */
rv_status rvi_whitener_new(rvi_whitener **out, int n, int rank, rv_error *err) RVI_MUST_CHECK;
void rvi_whitener_free(rvi_whitener *w); /* accepts NULL */

/* Takes a sample; false: there are enough, or it is not finite. */
bool rvi_whitener_add(rvi_whitener *w, const float *u);
int rvi_whitener_n_samples(const rvi_whitener *w);
/* From samples to the inverse, seconds of work; the samples are given back. */
rv_status rvi_whitener_finish(rvi_whitener *w, rv_error *err) RVI_MUST_CHECK;

/* Is it finished, and of n inputs? */
bool rvi_whitener_fits(const rvi_whitener *w, int n);
/* Keys of n_u inputs, rows of w's n floats one after the other. */
void rvi_whitener_keys(const rvi_whitener *w, const float *u, int n_u, float *keys);

/* Flat bytes of a finished one, and back (on this machine's byte order). */
rv_status rvi_whitener_save(const rvi_whitener *w, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_whitener_load(rvi_whitener **out, const void *bytes, size_t len, int n,
                            rv_error *err) RVI_MUST_CHECK;

#endif
