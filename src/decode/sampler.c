#include "decode/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

typedef struct candidate {
    float logit;
    int32_t id;
    double p;
} candidate;

struct rvi_sampler {
    rv_sampling o;
    rvi_rng rng;
    int n_vocab;
    candidate *heap; /* n_vocab */
    int32_t *counts; /* n_vocab, all zero between calls */
};

rv_status rvi_sampling_check(const rv_sampling *s, rv_error *err)
{
    if (!(s->temperature >= 0) || s->temperature > 100)
        return rvi_error(err, RV_E_CONFIG, "temperature %g is not between 0 and 100",
                         (double)s->temperature);
    if (!(s->top_p > 0) || s->top_p > 1)
        return rvi_error(err, RV_E_CONFIG, "top-p %g is not in (0, 1]", (double)s->top_p);
    if (!(s->min_p >= 0) || s->min_p > 1)
        return rvi_error(err, RV_E_CONFIG, "min-p %g is not between 0 and 1", (double)s->min_p);
    if (s->top_k < 0) return rvi_error(err, RV_E_CONFIG, "top-k %d is negative", s->top_k);
    if (!(s->repetition_penalty > 0) || s->repetition_penalty > 100)
        return rvi_error(err, RV_E_CONFIG, "repetition penalty %g is not in (0, 100]",
                         (double)s->repetition_penalty);
    if (s->repetition_window < 0)
        return rvi_error(err, RV_E_CONFIG, "repetition window %d is negative",
                         s->repetition_window);
    if (!(fabsf(s->frequency_penalty) <= 100) || !(fabsf(s->presence_penalty) <= 100))
        return rvi_error(err, RV_E_CONFIG,
                         "frequency and presence penalties lie between -100 and 100");
    return RV_OK;
}

rv_status rvi_sampler_new(rvi_sampler **out, const rv_sampling *options, int n_vocab, rv_error *err)
{
    *out = NULL;
    rv_status st = rvi_sampling_check(options, err);
    if (st) return st;
    rvi_sampler *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "sampler");
    s->o = *options;
    s->rng.state = options->seed;
    s->n_vocab = n_vocab;
    s->heap = rvi_alloc_array((size_t)n_vocab, sizeof *s->heap);
    s->counts = rvi_zalloc_array((size_t)n_vocab, sizeof *s->counts);
    if (!s->heap || !s->counts) {
        rvi_sampler_free(s);
        return rvi_nomem(err, "sampler");
    }
    *out = s;
    return RV_OK;
}

void rvi_sampler_free(rvi_sampler *s)
{
    if (!s) return;
    rvi_free(s->heap);
    rvi_free(s->counts);
    rvi_free(s);
}

static void penalize(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                     size_t n_prompt)
{
    if (s->o.repetition_penalty != 1) {
        size_t window = RVI_MIN(n_past, (size_t)s->o.repetition_window);
        for (size_t i = n_past - window; i < n_past; i++) {
            float *l = &logits[past[i]];
            if (s->counts[past[i]]++ == 0)
                *l = *l > 0 ? *l / s->o.repetition_penalty : *l * s->o.repetition_penalty;
        }
        for (size_t i = n_past - window; i < n_past; i++) s->counts[past[i]] = 0;
    }
    if (s->o.frequency_penalty != 0 || s->o.presence_penalty != 0)
        for (size_t i = n_prompt; i < n_past; i++) s->counts[past[i]]++;
    for (size_t i = n_prompt; i < n_past; i++) {
        int32_t *count = &s->counts[past[i]];
        if (!*count) continue;
        logits[past[i]] -= (float)*count * s->o.frequency_penalty + s->o.presence_penalty;
        *count = 0;
    }
}

static bool before(const candidate *a, const candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(candidate *heap, int n, int at)
{
    candidate moved = heap[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Takes candidates off a max-heap in order, into the tail that the heap gives up, until the filters
 * have enough. Returns where the kept ones begin: they lie at [result, n), best last. total: the
 * sum of all weights. */
static int keep_best(const rv_sampling *o, candidate *heap, int n, double total,
                     double *kept_weight)
{
    int left = n, kept = 0;
    *kept_weight = 0;
    double best = heap[0].p;
    while (left > 0) {
        candidate top = heap[0];
        if (kept && ((o->top_k && kept >= o->top_k) || *kept_weight >= (double)o->top_p * total ||
                     top.p < (double)o->min_p * best))
            break;
        heap[0] = heap[--left];
        sift_down(heap, left, 0);
        heap[left] = top;
        *kept_weight += top.p;
        kept++;
    }
    return left;
}

static int32_t draw(rvi_sampler *s, const float *logits, float best)
{
    bool filtered = s->o.top_k || s->o.top_p < 1 || s->o.min_p > 0;
    double total = 0;
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++) {
        double p = exp(((double)logits[i] - (double)best) / (double)s->o.temperature);
        if (!(p > 0)) continue; /* also drops NaN */
        s->heap[n++] = (candidate){logits[i], i, p};
        total += p;
    }
    int first = 0;
    if (filtered) {
        for (int i = n / 2; i-- > 0;) sift_down(s->heap, n, i);
        first = keep_best(&s->o, s->heap, n, total, &total);
    }
    double at = rvi_rng_double(&s->rng) * total;
    for (int i = n - 1; i > first; i--) {
        at -= s->heap[i].p;
        if (at < 0) return s->heap[i].id;
    }
    return s->heap[first].id;
}

rv_status rvi_sampler_pick(rvi_sampler *s, float *logits, const int32_t *past, size_t n_past,
                           size_t n_prompt, int32_t *out, rv_error *err)
{
    int best = -1;
    penalize(s, logits, past, n_past, n_prompt);
    for (int i = 0; i < s->n_vocab; i++) {
        if (isnan(logits[i]))
            return rvi_error(err, RV_E_GENERATION, "the model's output is not a number (token %d)",
                             i);
        if (best < 0 || logits[i] > logits[best]) best = i;
    }
    if (!isfinite(logits[best]))
        return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
    *out = s->o.temperature > 0 ? draw(s, logits, logits[best]) : best;
    return RV_OK;
}
