#include "model/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

/* llama3: long waves are stretched by factor, short ones kept, those between blended. */
static double llama3(const rvi_rope_params *p, double f)
{
    double wave = two_pi / f, original = p->original_context;
    if (wave < original / p->high_freq) return f;
    if (wave > original / p->low_freq) return f / p->factor;
    double smooth = (original / wave - p->low_freq) / (p->high_freq - p->low_freq);
    return (1 - smooth) * f / p->factor + smooth * f;
}

/* The pair that makes `turns` full turns over the original context. */
static double yarn_dim(const rvi_rope_params *p, double turns)
{
    return p->n_rot * log(p->original_context / (turns * two_pi)) / (2 * log(p->theta));
}

static double yarn(const rvi_rope_params *p, double f, int i)
{
    double low = yarn_dim(p, p->beta_fast), high = yarn_dim(p, p->beta_slow);
    if (p->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, p->n_rot - 1);
    if (high == low) high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return f / p->factor * ramp + f * (1 - ramp);
}

static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static double magnitude(const rvi_rope_params *p)
{
    if (p->attention_factor > 0) return p->attention_factor;
    if (p->kind == RVI_ROPE_YARN)
        return p->mscale != 0 && p->mscale_all != 0
                   ? yarn_scale(p->factor, p->mscale) / yarn_scale(p->factor, p->mscale_all)
                   : yarn_scale(p->factor, 1);
    if (p->kind == RVI_ROPE_LONG)
        return p->factor <= 1 ? 1 : sqrt(1 + log(p->factor) / log(p->original_context));
    return 1;
}

static double frequency(const rvi_rope_params *p, int i, int set)
{
    double f = pow(p->theta, -2.0 * i / p->n_rot);
    if (p->divisors[set]) f /= p->divisors[set][i];
    switch (p->kind) {
    case RVI_ROPE_LINEAR: return f / p->factor;
    case RVI_ROPE_LLAMA3: return llama3(p, f);
    case RVI_ROPE_YARN: return yarn(p, f, i);
    case RVI_ROPE_PLAIN:
    case RVI_ROPE_LONG: break;
    }
    return f;
}

static rv_status check(const rvi_rope_params *p, rv_error *err)
{
    if (p->n_rot < 2 || p->n_rot % 2)
        return rvi_error(err, RV_E_MODEL, "rotary size must be even and at least 2 (got %d)",
                         p->n_rot);
    if (!(p->theta > 1) || !isfinite(p->theta))
        return rvi_error(err, RV_E_MODEL, "rotary base must be finite and above 1 (got %g)",
                         p->theta);
    if (p->kind != RVI_ROPE_PLAIN && (!(p->factor > 0) || !isfinite(p->factor)))
        return rvi_error(err, RV_E_MODEL,
                         "rope scaling factor must be finite and positive (got %g)", p->factor);
    if ((p->kind == RVI_ROPE_LLAMA3 || p->kind == RVI_ROPE_YARN || p->kind == RVI_ROPE_LONG) &&
        p->original_context < 2)
        return rvi_error(err, RV_E_MODEL, "rope scaling needs the original context length");
    if (p->kind == RVI_ROPE_LLAMA3 && (!(p->low_freq > 0) || !(p->high_freq > p->low_freq)))
        return rvi_error(
            err, RV_E_MODEL,
            "rope scaling: low_freq_factor %g and high_freq_factor %g are not possible",
            p->low_freq, p->high_freq);
    if (p->kind == RVI_ROPE_YARN && (!(p->beta_fast > 0) || !(p->beta_slow > 0)))
        return rvi_error(err, RV_E_MODEL,
                         "rope scaling: beta_fast %g and beta_slow %g are not possible",
                         p->beta_fast, p->beta_slow);
    if (p->kind == RVI_ROPE_LONG && (!p->divisors[0] || !p->divisors[1]))
        return rvi_error(err, RV_E_MODEL, "longrope needs both the short and the long factors");
    for (int s = 0; s < 2; s++) {
        if (!p->divisors[s]) continue;
        if (p->n_divisors[s] != p->n_rot / 2)
            return rvi_error(err, RV_E_MODEL, "%d rope factors, but %d pairs turn",
                             p->n_divisors[s], p->n_rot / 2);
        for (int i = 0; i < p->n_rot / 2; i++)
            if (!(p->divisors[s][i] > 0) || !isfinite(p->divisors[s][i]))
                return rvi_error(err, RV_E_MODEL,
                                 "rope factor %d is %g: a positive number is needed", i,
                                 (double)p->divisors[s][i]);
    }
    return RV_OK;
}

rv_status rvi_rope_init(rvi_rope *out, const rvi_rope_params *p, bool interleaved, rvi_arena *arena,
                        rv_error *err)
{
    rv_status st = check(p, err);
    if (st) return st;
    int n_sets = p->kind == RVI_ROPE_LONG ? 2 : 1;
    *out = (rvi_rope){
        .n_pairs = p->n_rot / 2, .interleaved = interleaved, .long_after = p->original_context};
    out->magnitude = magnitude(p) * p->extra_factor;
    for (int s = 0; s < n_sets; s++) {
        out->freq[s] = rvi_arena_alloc(arena, (size_t)out->n_pairs, sizeof *out->freq[s]);
        if (!out->freq[s]) return rvi_nomem(err, "rope frequencies");
        for (int i = 0; i < out->n_pairs; i++) out->freq[s][i] = frequency(p, i, s);
    }
    return RV_OK;
}

int rvi_rope_set(const rvi_rope *r, int declared_len)
{
    return r->freq[1] && declared_len > r->long_after ? 1 : 0;
}

void rvi_rope_angles(const rvi_rope *r, int set, int pos, float *out)
{
    for (int i = 0; i < r->n_pairs; i++) {
        double angle = pos * r->freq[set][i];
        out[i] = (float)(cos(angle) * r->magnitude);
        out[r->n_pairs + i] = (float)(sin(angle) * r->magnitude);
    }
}
