/* event.c - from scores to advantages, and from captured tokens to the rows of an update. */
#include <math.h>
#include <string.h>

#include "learn/instant/micro.h"

static const double plain = 0.3; /* of a score, where tokens have credits of their own */

double rvi_scores_take(rvi_scores *s, double score)
{
    double mean = score, deviation = 1;
    if (!isfinite(score)) return 0;
    if (s->n) {
        double sum = 0, squares = 0;
        for (int i = 0; i < s->n; i++) sum += (double)s->last[i];
        mean = sum / s->n;
        for (int i = 0; i < s->n; i++) squares += pow((double)s->last[i] - mean, 2);
        if (s->n > 3) deviation = fmax(0.05, sqrt(squares / s->n));
    }
    s->last[s->next] = (float)score;
    s->next = (s->next + 1) % RVI_SCORES;
    s->n = RVI_MIN(s->n + 1, RVI_SCORES);
    double a = fmin(fmax(score - mean, -1), 1) / deviation;
    return fabs(a) < 0.02 ? 0 : fmin(fmax(a, -2), 2);
}

static float share(const rvi_captured *t, int n, double advantage)
{
    double w = advantage / n;
    if (advantage < 0) w *= fmin(1, exp((double)t->log_p) / 0.2);
    return (float)w;
}

/* What the score says of all tokens alike, and of this one what it has earned so far. */
static float weigh(const rvi_captured *t, int n, double advantage, const rvi_credits *credits)
{
    float w = share(t, n, advantage);
    if (!credits) return w;
    return (float)(plain * (double)w) + share(t, n, rvi_credit_of(credits, t->id));
}

static float length(const rvi_kernels *k, const float *x, size_t n)
{
    float out;
    k->gemm_f32(x, 0, 1, x, 0, 1, &out, 0, n);
    return sqrtf(out);
}

/* Drops the lightest of `size` tokens until RVI_MICRO_TOKENS are left, which stay in order. */
static int keep_heavy(int *which, float *size, int n)
{
    while (n > RVI_MICRO_TOKENS) {
        int least = 0;
        for (int i = 1; i < n; i++)
            if (size[i] < size[least]) least = i;
        memmove(which + least, which + least + 1, (size_t)(n - least - 1) * sizeof *which);
        memmove(size + least, size + least + 1, (size_t)(n - least - 1) * sizeof *size);
        n--;
    }
    return n;
}

bool rvi_event_choose(rvi_event_tokens *e, const rvi_kernels *k, const rvi_captured *tokens, int n,
                      double advantage, const rvi_credits *credits, size_t n_embd)
{
    int which[RVI_MICRO_TOKENS + 1];
    float size[RVI_MICRO_TOKENS + 1];
    e->n = 0;
    for (int t = 0; t < n; t++) {
        const rvi_captured *c = &tokens[t];
        if (!isfinite(c->u_scale) || !isfinite(c->g_scale) || !isfinite(c->log_p) ||
            !isfinite(c->reach))
            return false;
        which[e->n] = t;
        size[e->n] = 0;
        if (n > RVI_MICRO_TOKENS) { /* only then is there a choice */
            k->f16_to_f32(c->g, e->g, n_embd);
            size[e->n] =
                fabsf(weigh(c, n, advantage, credits)) * c->g_scale * length(k, e->g, n_embd);
        }
        e->n = keep_heavy(which, size, e->n + 1);
    }
    for (int i = 0; i < e->n; i++) {
        const rvi_captured *c = &tokens[which[i]];
        e->which[i] = which[i];
        e->w[i] = weigh(c, n, advantage, credits);
        e->reach[i] = c->reach;
    }
    return true;
}
