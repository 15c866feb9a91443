#include "learn/instant/edits.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/instant/vector.h"

static const char magic[8] = "rvpairs1";
static const double size_cap = 0.05, reach_cap = 0.15;

struct rvi_thumbs {
    rvi_kernels k;
    const rvi_whitener *whitener;
    size_t n_ff, n_embd;
    double kl_step, cap;
    rvi_event_tokens tokens; /* w for an advantage of -1 */
    float *keys;             /* [RVI_MICRO_TOKENS][n_ff] of the tokens */
    /* [t][s] k_t . u_s and g_t . g_s */
    float (*answers)[RVI_MICRO_TOKENS], (*alike)[RVI_MICRO_TOKENS];
    int pair[RVI_MICRO_TOKENS];   /* of the list; -1: it had no room */
    bool first[RVI_MICRO_TOKENS]; /* no earlier token has the same pair */
    const rvi_edits *of;          /* which list was prepared last; NULL: none */
};

struct rvi_edits {
    size_t n_ff, n_embd; /* 0 until the first pair */
    int n, room;
    float *k, *v, *before; /* [room][n_ff], [room][n_embd] twice: v before the last event */
    rvi_f16 *u;            /* [room][n_ff] what the keys were made of, */
    float *u_scale;        /* [room] */
    const rvi_thumbs *by;  /* has prepared it as it is; NULL: nobody */
    int n_events;
    int n_used, n_before; /* edits of the events so far, and before the last one; -1: cannot undo */
};

/* ---- making ---- */

static rv_status new_thumbs(rvi_thumbs **out, const rvi_whitener *whitener, size_t n_ff,
                            size_t n_embd, double kl_step, double cap, rv_error *err)
{
    *out = NULL;
    rvi_thumbs *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "thumbs");
    rvi_kernels_init(&t->k, NULL);
    t->whitener = whitener;
    t->n_ff = n_ff;
    t->n_embd = n_embd;
    t->kl_step = kl_step;
    t->cap = cap;
    t->tokens.u = rvi_floats_new(RVI_MICRO_TOKENS * n_ff);
    t->tokens.g = rvi_floats_new(RVI_MICRO_TOKENS * n_embd);
    t->keys = rvi_floats_new(RVI_MICRO_TOKENS * n_ff);
    t->answers = rvi_alloc_array(RVI_MICRO_TOKENS, sizeof *t->answers);
    t->alike = rvi_alloc_array(RVI_MICRO_TOKENS, sizeof *t->alike);
    if (!t->tokens.u || !t->tokens.g || !t->keys || !t->answers || !t->alike) {
        rvi_thumbs_free(t);
        return rvi_nomem(err, "thumbs");
    }
    *out = t;
    return RV_OK;
}

rv_status rvi_thumbs_new(rvi_thumbs **out, const rvi_model *m, const rvi_whitener *whitener,
                         double kl_step, rv_error *err)
{
    double norm = 0;
    *out = NULL;
    if (!rvi_whitener_fits(whitener, m->hp.n_ff))
        return rvi_error(err, RV_E_LEARNING, "whitening is not finished, or of another model");
    rv_status st = rvi_delta_weight_norm(&norm, m, err);
    if (st) return st;
    return new_thumbs(out, whitener, (size_t)m->hp.n_ff, (size_t)m->hp.n_embd,
                      kl_step > 0 ? kl_step : 0.002, size_cap * norm, err);
}

rv_status rvi_thumbs_like(rvi_thumbs **out, const rvi_thumbs *t, rv_error *err)
{
    return new_thumbs(out, t->whitener, t->n_ff, t->n_embd, t->kl_step, t->cap, err);
}

void rvi_thumbs_free(rvi_thumbs *t)
{
    if (!t) return;
    rvi_free(t->tokens.u);
    rvi_free(t->tokens.g);
    rvi_free(t->keys);
    rvi_free(t->answers);
    rvi_free(t->alike);
    rvi_free(t);
}

rv_status rvi_edits_new(rvi_edits **out, rv_error *err)
{
    *out = rvi_zalloc(sizeof **out);
    if (!*out) return rvi_nomem(err, "edits");
    (*out)->n_before = -1;
    return RV_OK;
}

void rvi_edits_free(rvi_edits *p)
{
    if (!p) return;
    rvi_free(p->k);
    rvi_free(p->v);
    rvi_free(p->before);
    rvi_free(p->u);
    rvi_free(p->u_scale);
    rvi_free(p);
}

static bool grow(void **data, size_t count, size_t size)
{
    void *more = rvi_realloc_array(*data, count, size);
    if (more) *data = more;
    return more != NULL;
}

/* Room for n edits in all. On failure everything stays as it is. */
static bool make_room(rvi_edits *p, int n)
{
    size_t room = (size_t)n;
    void *k = p->k, *v = p->v, *before = p->before, *u = p->u, *u_scale = p->u_scale;
    if (n <= p->room) return true;
    bool ok = grow(&k, room * p->n_ff, sizeof(float)) &&
              grow(&v, room * p->n_embd, sizeof(float)) &&
              grow(&before, room * p->n_embd, sizeof(float)) &&
              grow(&u, room * p->n_ff, sizeof(rvi_f16)) && grow(&u_scale, room, sizeof(float));
    p->k = k;
    p->v = v;
    p->before = before;
    p->u = u;
    p->u_scale = u_scale;
    if (ok) p->room = n;
    return ok;
}

rvi_delta rvi_edits_delta(const rvi_edits *p)
{
    return (rvi_delta){p->n_used, p->k, p->v};
}

int rvi_edits_n_events(const rvi_edits *p)
{
    return p->n_events;
}

bool rvi_edits_are_empty(const rvi_edits *p)
{
    return !p->n_events && !p->n_used && p->n_before < 0;
}

/* ---- before the event ---- */

static int find(const rvi_edits *p, const rvi_captured *c)
{
    for (int i = 0; i < p->n; i++)
        if (p->u_scale[i] == c->u_scale &&
            !memcmp(p->u + (size_t)i * p->n_ff, c->u, p->n_ff * sizeof *c->u))
            return i;
    return -1;
}

/* The pair of each token: one that is there, or a new one with value 0. */
static void take_edits(rvi_thumbs *t, rvi_edits *p, const rvi_captured *tokens)
{
    const rvi_event_tokens *e = &t->tokens;
    int known = p->n;
    for (int i = 0; i < e->n; i++) {
        const rvi_captured *c = &tokens[e->which[i]];
        int at = find(p, c);
        if (at < 0 && p->n < p->room) {
            at = p->n++;
            memcpy(p->u + (size_t)at * p->n_ff, c->u, p->n_ff * sizeof *c->u);
            p->u_scale[at] = c->u_scale;
            memset(p->v + (size_t)at * p->n_embd, 0, p->n_embd * sizeof(float));
            /* its input stands among the keys until all of them are made together */
            memcpy(p->k + (size_t)at * p->n_ff, e->u + (size_t)i * p->n_ff,
                   p->n_ff * sizeof(float));
        }
        t->pair[i] = at;
        t->first[i] = at >= 0;
        for (int j = 0; j < i; j++) t->first[i] = t->first[i] && t->pair[j] != at;
    }
    if (p->n > known) {
        size_t from = (size_t)known * p->n_ff, n = (size_t)(p->n - known);
        for (size_t at = 0; at < n; at += RVI_MICRO_TOKENS) {
            size_t some = RVI_MIN(n - at, (size_t)RVI_MICRO_TOKENS);
            float *made = p->k + from + at * p->n_ff;
            rvi_whitener_keys(t->whitener, made, (int)some, t->keys);
            memcpy(made, t->keys, some * p->n_ff * sizeof *made);
        }
    }
}

rv_status rvi_edits_prepare(rvi_thumbs *t, rvi_edits *p, const rvi_captured *tokens, int n,
                            rv_error *err)
{
    rvi_event_tokens *e = &t->tokens;
    t->of = NULL;
    p->by = NULL;
    if (n < 1) return rvi_error(err, RV_E_LEARNING, "there are no tokens to turn down");
    if (!rvi_event_choose(e, &t->k, tokens, n, -1, NULL, t->n_embd))
        return rvi_error(err, RV_E_LEARNING, "the answer's gradients are not finite");
    for (int i = 0; i < e->n; i++) {
        const rvi_captured *c = &tokens[e->which[i]];
        float *u = e->u + (size_t)i * t->n_ff, *g = e->g + (size_t)i * t->n_embd;
        t->k.f16_to_f32(c->u, u, t->n_ff);
        t->k.scale(u, c->u_scale, t->n_ff);
        t->k.f16_to_f32(c->g, g, t->n_embd);
        t->k.scale(g, c->g_scale, t->n_embd);
    }
    p->n_ff = t->n_ff;
    p->n_embd = t->n_embd;
    p->n = p->n_used; /* what was prepared and never used */
    if (!make_room(p, RVI_MIN(p->n + e->n, RVI_EDITS_MAX))) return rvi_nomem(err, "edits");
    take_edits(t, p, tokens);
    for (int i = 0; i < e->n; i++) {
        if (t->pair[i] < 0) e->w[i] = 0;
        const float *key = t->pair[i] < 0 ? e->u : p->k + (size_t)t->pair[i] * t->n_ff;
        memcpy(t->keys + (size_t)i * t->n_ff, key, t->n_ff * sizeof *key);
    }
    t->k.gemm_f32(e->u, t->n_ff, e->n, t->keys, t->n_ff, e->n, t->answers[0], RVI_MICRO_TOKENS,
                  t->n_ff);
    t->k.gemm_f32(e->g, t->n_embd, e->n, e->g, t->n_embd, e->n, t->alike[0], RVI_MICRO_TOKENS,
                  t->n_embd);
    t->of = p;
    p->by = t;
    return RV_OK;
}

bool rvi_edits_are_ready(const rvi_thumbs *t, const rvi_edits *p)
{
    return t->of == p && p->by == t;
}

/* ---- the event ---- */

/* Predicted KL of sum w_t g_t k_t^T */
static double predict(const rvi_thumbs *t)
{
    double along[RVI_MICRO_TOKENS] = {0}, sum = 0;
    int n = t->tokens.n;
    for (int i = 0; i < n; i++) {
        double w = (double)t->tokens.w[i];
        for (int s = 0; s < n; s++) along[s] += w * (double)(t->answers[i][s] * t->alike[i][s]);
    }
    for (int s = 0; s < n; s++) sum += 0.5 * along[s] * along[s];
    return sum / n;
}

static double length_of(const rvi_thumbs *t, const float *x, size_t n)
{
    float out;
    t->k.gemm_f32(x, 0, 1, x, 0, 1, &out, 0, n);
    return sqrt((double)out);
}

/* |sum v k^T|, exactly: the sum of products of all pairs of keys and of values. */
static double size_of(const rvi_thumbs *t, const rvi_edits *p)
{
    double sum = 0;
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j <= i; j++) {
            float k, v;
            t->k.gemm_f32(p->k + (size_t)i * p->n_ff, 0, 1, p->k + (size_t)j * p->n_ff, 0, 1, &k, 0,
                          p->n_ff);
            t->k.gemm_f32(p->v + (size_t)i * p->n_embd, 0, 1, p->v + (size_t)j * p->n_embd, 0, 1,
                          &v, 0, p->n_embd);
            sum += (i == j ? 1 : 2) * (double)k * (double)v;
        }
    return sqrt(fmax(sum, 0));
}

/* The factor of all values that keeps the caps. Sums of lengths are looked at first, which are more
 * than the truth and almost always little enough. */
static double capped(rvi_thumbs *t, const rvi_edits *p)
{
    double factor = 1, most = 0, length[RVI_EDITS_MAX];
    for (int i = 0; i < p->n; i++) {
        length[i] = length_of(t, p->v + (size_t)i * p->n_embd, p->n_embd);
        most += length[i] * length_of(t, p->k + (size_t)i * p->n_ff, p->n_ff);
    }
    if (most > t->cap) factor = fmin(1, t->cap / fmax(size_of(t, p), 1e-9));
    for (int s = 0; s < t->tokens.n; s++) {
        double limit = reach_cap * (double)t->tokens.reach[s], sum = 0;
        for (int i = 0; i < t->tokens.n; i++)
            if (t->first[i]) sum += fabs((double)t->answers[i][s]) * length[t->pair[i]];
        if (sum <= limit) continue;
        float *dx = t->keys; /* no longer needed */
        memset(dx, 0, t->n_embd * sizeof *dx);
        for (int i = 0; i < t->tokens.n; i++)
            if (t->first[i])
                t->k.axpy(dx, t->answers[i][s], p->v + (size_t)t->pair[i] * p->n_embd, p->n_embd);
        double now = length_of(t, dx, t->n_embd);
        if (now > limit) factor = fmin(factor, limit / now);
    }
    return factor;
}

rvi_micro_outcome rvi_edits_down(rvi_thumbs *t, rvi_edits *p, double *kl)
{
    const rvi_event_tokens *e = &t->tokens;
    double a = fmax(0.5 * pow(0.9, p->n_events), 0.2),
           unit = rvi_edits_are_ready(t, p) ? predict(t) : 0;
    if (kl) *kl = 0;
    if (!isfinite(unit)) return RVI_MICRO_DROPPED;
    if (!(unit > 0)) return RVI_MICRO_NOTHING;
    double eta = sqrt(t->kl_step * a / fmax(unit, 1e-24));
    size_t used = (size_t)p->n_used * p->n_embd;
    if (used) memcpy(p->before, p->v, used * sizeof *p->before);
    for (int i = 0; i < e->n; i++)
        if (t->pair[i] >= 0)
            t->k.axpy(p->v + (size_t)t->pair[i] * p->n_embd, (float)(eta * (double)e->w[i]),
                      e->g + (size_t)i * p->n_embd, p->n_embd);
    double factor = capped(t, p);
    if (factor < 1) t->k.scale(p->v, (float)factor, (size_t)p->n * p->n_embd);
    if (!isfinite(length_of(t, p->v, (size_t)p->n * p->n_embd))) {
        if (used) memcpy(p->v, p->before, used * sizeof *p->before);
        memset(p->v + used, 0, ((size_t)p->n * p->n_embd - used) * sizeof *p->v);
        return RVI_MICRO_DROPPED;
    }
    p->n_before = p->n_used;
    p->n_used = p->n;
    p->n_events++;
    if (kl) *kl = eta * eta * unit;
    return RVI_MICRO_STEPPED;
}

bool rvi_edits_undo(rvi_edits *p)
{
    if (p->n_before < 0) return false;
    p->by = NULL;
    if (p->n_before) memcpy(p->v, p->before, (size_t)p->n_before * p->n_embd * sizeof *p->v);
    p->n = p->n_used = p->n_before;
    p->n_before = -1;
    p->n_events--;
    return true;
}

/* ---- as bytes: a header, then keys, values, inputs and their scales ---- */

typedef struct header {
    char magic[8];
    int32_t n_ff, n_embd, n, n_events;
} header;

rv_status rvi_edits_save(const rvi_edits *p, rvi_buf *out, rv_error *err)
{
    header h = {.n_ff = (int32_t)p->n_ff,
                .n_embd = (int32_t)p->n_embd,
                .n = p->n_used,
                .n_events = p->n_events};
    size_t n = (size_t)p->n_used;
    memcpy(h.magic, magic, sizeof magic);
    bool ok = rvi_buf_append(out, &h, sizeof h);
    if (n)
        ok = ok && rvi_buf_append(out, p->k, n * p->n_ff * sizeof(float)) &&
             rvi_buf_append(out, p->v, n * p->n_embd * sizeof(float)) &&
             rvi_buf_append(out, p->u_scale, n * sizeof(float)) &&
             rvi_buf_append(out, p->u, n * p->n_ff * sizeof(rvi_f16));
    return ok ? RV_OK : rvi_nomem(err, "edits");
}

static const char *get(void *to, const char *from, size_t size)
{
    memcpy(to, from, size);
    return from + size;
}

rv_status rvi_edits_load(rvi_edits **out, const rvi_thumbs *t, const void *bytes, size_t len,
                         rv_error *err)
{
    header h = {0};
    *out = NULL;
    if (len >= sizeof h) memcpy(&h, bytes, sizeof h);
    size_t n = h.n > 0 ? (size_t)h.n : 0;
    size_t floats = n * (t->n_ff + t->n_embd + 1) * sizeof(float);
    if (memcmp(h.magic, magic, sizeof magic) || h.n < 0 || h.n > RVI_EDITS_MAX || h.n_events < 0 ||
        h.n_events == INT32_MAX || (n && (h.n_ff != (int)t->n_ff || h.n_embd != (int)t->n_embd)) ||
        len != sizeof h + floats + n * t->n_ff * sizeof(rvi_f16))
        return rvi_error(err, RV_E_LEARNING, "edits: not of layers of %zu and %zu", t->n_ff,
                         t->n_embd);
    const char *at = (const char *)bytes + sizeof h;
    for (size_t i = 0; i < floats; i += sizeof(float)) {
        float v;
        memcpy(&v, at + i, sizeof v);
        if (!isfinite(v)) return rvi_error(err, RV_E_LEARNING, "edits: a value is not a number");
    }
    rvi_edits *p;
    rv_status st = rvi_edits_new(&p, err);
    if (st) return st;
    p->n_ff = t->n_ff;
    p->n_embd = t->n_embd;
    if (!make_room(p, (int)n)) {
        rvi_edits_free(p);
        return rvi_nomem(err, "edits");
    }
    if (n) {
        at = get(p->k, at, n * p->n_ff * sizeof(float));
        at = get(p->v, at, n * p->n_embd * sizeof(float));
        at = get(p->u_scale, at, n * sizeof(float));
        get(p->u, at, n * p->n_ff * sizeof(rvi_f16));
    }
    p->n = p->n_used = (int)n;
    p->n_events = h.n_events;
    *out = p;
    return RV_OK;
}
