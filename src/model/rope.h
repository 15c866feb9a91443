/* rope.h - rotary position angles: every scaling rule reduces to one frequency a pair and one
 * factor on cosine and sine. */
#ifndef RVI_MODEL_ROPE_H
#define RVI_MODEL_ROPE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/mem.h"

typedef enum rvi_rope_kind {
    RVI_ROPE_PLAIN,
    RVI_ROPE_LINEAR,
    RVI_ROPE_LLAMA3,
    RVI_ROPE_YARN,
    RVI_ROPE_LONG
} rvi_rope_kind;

typedef struct rvi_rope_params {
    rvi_rope_kind kind;
    int n_rot; /* elements of a head that turn, even */
    double theta, factor;
    double low_freq, high_freq;  /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    bool truncate;               /* yarn: whole correction dimensions */
    double attention_factor;   /* on cosine and sine; yarn and longrope compute it where it is 0 */
    double extra_factor;       /* one more factor there (GGUF's attn_factor); 1: none */
    double mscale, mscale_all; /* yarn, both 0: none */
    int context, original_context;
    const float *divisors[2]; /* per pair, or NULL; longrope: [0] short, [1] long; otherwise [0] is
                                 GGUF's rope_freqs */
    int n_divisors[2];
} rvi_rope_params;

typedef struct rvi_rope {
    int n_pairs;
    double *freq[2]; /* [0] short or only set, [1] long set or NULL */
    double magnitude;
    int long_after; /* sequences declared longer than this use set 1 */
    bool interleaved;
} rvi_rope;

rv_status rvi_rope_init(rvi_rope *out, const rvi_rope_params *p, bool interleaved, rvi_arena *arena,
                        rv_error *err) RVI_MUST_CHECK;

/* Which set a sequence uses for its whole life, from the length it is declared with. */
int rvi_rope_set(const rvi_rope *r, int declared_len);

/* out: n_pairs cosines, then n_pairs sines */
void rvi_rope_angles(const rvi_rope *r, int set, int pos, float *out);

#endif
