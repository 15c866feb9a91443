#include "decode/capture.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum {
    ROWS = RVI_CAPTURE_TOP_FLAT + 1, /* the most probable tokens, and the one chosen */
    BLOCK = 64,                      /* logits that selecting looks at together */
};

struct rvi_capturer {
    const rvi_model *m;
    rvi_kernels k;
    float *out_norm, *post_norm; /* [n_embd]; post_norm NULL: the last layer has none */
    float *mean;                 /* [n_embd] mean row of the head, */
    int n_read;                  /* of so many rows while it is made */
    rvi_tensor *one;             /* [1, n_embd] a row of the head */
    int32_t *ids;                /* [n_vocab] candidates */
    float *best, *values;        /* [n_blocks] largest logits; [n_vocab] scratch */
    int n_blocks;
    float *row, *x, *y, *g; /* [n_embd] */
    float *u;               /* [n_ff] */
};

typedef struct token {
    float u_scale, g_scale, reach, log_p, entropy;
    int32_t id;
    uint64_t answer;
} token;

struct rvi_capture {
    rvi_capturer *by;
    rvi_f16 *u, *g; /* [n_tokens][n_ff], [n_tokens][n_embd] */
    token *tokens;
    int n_tokens;
    uint64_t answer, n_taken;               /* the next goes to n_taken % n_tokens */
    rvi_captured_id head[RVI_CAPTURE_HEAD]; /* of the latest answer */
    int n_head;
};

/* ---- the model's part ---- */

/* One at a time: the threads are not woken for so little. */
void rvi_capturer_head_row(rvi_capturer *c, int32_t id, float *out)
{
    rvi_cols one = rvi_cols_of(c->one, 0, c->m->hp.n_embd);
    c->m->be->ops->embed(c->m->be, one, c->m->head.w, &id, 1, 1);
    c->m->be->ops->rows_read(c->m->be, one, 0, out);
}

bool rvi_capturer_go_on(rvi_capturer *c, int n)
{
    enum { BATCH = 256 }; /* sums of sums, so that little is lost to rounding */
    size_t n_embd = (size_t)c->m->hp.n_embd;
    int n_vocab = c->m->hp.n_vocab, end = c->n_read + RVI_MIN(n, n_vocab - c->n_read);
    if (c->n_read == n_vocab) return true;
    for (; c->n_read < end; c->n_read++) {
        if (c->n_read % BATCH == 0) {
            c->k.add(c->mean, c->x, n_embd);
            memset(c->x, 0, n_embd * sizeof *c->x);
        }
        rvi_capturer_head_row(c, c->n_read, c->row);
        c->k.add(c->x, c->row, n_embd);
    }
    if (end < n_vocab) return false;
    c->k.add(c->mean, c->x, n_embd);
    c->k.scale(c->mean, 1 / (float)n_vocab, n_embd);
    return true;
}

static rv_status fill_capturer(rvi_capturer *c, rv_error *err)
{
    const rvi_model *m = c->m;
    const rvi_backend_ops *op = m->be->ops;
    size_t n_embd = (size_t)m->hp.n_embd, n_vocab = (size_t)m->hp.n_vocab;
    const rvi_tensor *post = m->layers[m->hp.n_layers - 1].post_ffn_norm;
    c->n_blocks = (m->hp.n_vocab + BLOCK - 1) / BLOCK;
    c->ids = rvi_alloc_array(n_vocab, sizeof *c->ids);
    c->values = rvi_alloc_array(n_vocab, sizeof *c->values);
    c->best = rvi_alloc_array((size_t)c->n_blocks, sizeof *c->best);
    float **vectors[] = {&c->out_norm, &c->mean, &c->row, &c->x, &c->y, &c->g};
    bool ok = c->ids && c->values && c->best;
    for (size_t i = 0; ok && i < RVI_COUNT(vectors); i++)
        ok = (*vectors[i] = rvi_zalloc_array(n_embd, sizeof(float))) != NULL;
    if (ok && post) ok = (c->post_norm = rvi_alloc_array(n_embd, sizeof(float))) != NULL;
    if (ok) ok = (c->u = rvi_alloc_array((size_t)m->hp.n_ff, sizeof *c->u)) != NULL;
    if (!ok) return rvi_nomem(err, "capture");
    rv_status st = op->rows_new(m->be, &c->one, 1, (int)n_embd, err);
    if (st) return st;
    op->rows_read(m->be, rvi_cols_of(m->out_norm, 0, (int)n_embd), 0, c->out_norm);
    if (post)
        op->rows_read(m->be, rvi_cols_of((rvi_tensor *)(uintptr_t)post, 0, (int)n_embd), 0,
                      c->post_norm);
    return RV_OK;
}

rv_status rvi_capturer_begin(rvi_capturer **out, const rvi_model *m, rv_error *err)
{
    *out = NULL;
    if (m->arch->is_encoder)
        return rvi_error(err, RV_E_MODEL, "an encoder generates nothing to learn from");
    rvi_capturer *c = rvi_zalloc(sizeof *c);
    if (!c) return rvi_nomem(err, "capture");
    c->m = m;
    rvi_kernels_init(&c->k, NULL);
    rv_status st = fill_capturer(c, err);
    if (st)
        rvi_capturer_free(c);
    else
        *out = c;
    return st;
}

rv_status rvi_capturer_new(rvi_capturer **out, const rvi_model *m, rv_error *err)
{
    rv_status st = rvi_capturer_begin(out, m, err);
    if (!st) (void)rvi_capturer_go_on(*out, m->hp.n_vocab);
    return st;
}

void rvi_capturer_free(rvi_capturer *c)
{
    if (!c) return;
    c->m->be->ops->tensor_free(c->m->be, c->one);
    rvi_free(c->out_norm);
    rvi_free(c->post_norm);
    rvi_free(c->mean);
    rvi_free(c->ids);
    rvi_free(c->values);
    rvi_free(c->best);
    rvi_free(c->row);
    rvi_free(c->x);
    rvi_free(c->y);
    rvi_free(c->g);
    rvi_free(c->u);
    rvi_free(c);
}

rvi_top_part rvi_capturer_top(const rvi_capturer *c)
{
    return (rvi_top_part){c->out_norm, c->post_norm, c->mean};
}

/* ---- rings ---- */

rv_status rvi_capture_new(rvi_capture **out, rvi_capturer *by, int n_tokens, rv_error *err)
{
    *out = NULL;
    if (n_tokens < 1 || n_tokens > RVI_CAPTURE_MAX_TOKENS)
        return rvi_error(err, RV_E_CONFIG, "the number of tokens to capture must be 1..%d (got %d)",
                         RVI_CAPTURE_MAX_TOKENS, n_tokens);
    rvi_capture *c = rvi_zalloc(sizeof *c);
    if (!c) return rvi_nomem(err, "capture");
    size_t n = (size_t)n_tokens;
    c->by = by;
    c->n_tokens = n_tokens;
    c->u = rvi_alloc_array(n * (size_t)by->m->hp.n_ff, sizeof *c->u);
    c->g = rvi_alloc_array(n * (size_t)by->m->hp.n_embd, sizeof *c->g);
    c->tokens = rvi_zalloc_array(n, sizeof *c->tokens);
    if (c->u && c->g && c->tokens) {
        *out = c;
        return RV_OK;
    }
    rvi_capture_free(c);
    return rvi_nomem(err, "capture");
}

void rvi_capture_free(rvi_capture *c)
{
    if (!c) return;
    rvi_free(c->u);
    rvi_free(c->g);
    rvi_free(c->tokens);
    rvi_free(c);
}

uint64_t rvi_capture_begin(rvi_capture *c)
{
    c->n_head = 0;
    return ++c->answer;
}

int rvi_capture_head(const rvi_capture *c, const rvi_captured_id **out)
{
    *out = c->head;
    return c->n_head;
}

uint64_t rvi_capture_answer(const rvi_capture *c)
{
    return c->answer;
}

/* Tokens of an answer follow each other in the ring: [*first, return value) by count of taking. */
static uint64_t find(const rvi_capture *c, uint64_t answer, uint64_t *first)
{
    uint64_t oldest = c->n_taken - RVI_MIN(c->n_taken, (uint64_t)c->n_tokens), end = c->n_taken;
    while (end > oldest && c->tokens[(end - 1) % (uint64_t)c->n_tokens].answer > answer) end--;
    *first = end;
    while (*first > oldest && c->tokens[(*first - 1) % (uint64_t)c->n_tokens].answer == answer)
        --*first;
    return end;
}

int rvi_capture_count(const rvi_capture *c, uint64_t answer)
{
    uint64_t first, end = find(c, answer, &first);
    return (int)(end - first);
}

rvi_captured rvi_capture_get(const rvi_capture *c, uint64_t answer, int i)
{
    uint64_t first;
    find(c, answer, &first);
    size_t at = (size_t)((first + (uint64_t)i) % (uint64_t)c->n_tokens);
    const token *t = &c->tokens[at];
    return (rvi_captured){.u = c->u + at * (size_t)c->by->m->hp.n_ff,
                          .g = c->g + at * (size_t)c->by->m->hp.n_embd,
                          .u_scale = t->u_scale,
                          .g_scale = t->g_scale,
                          .reach = t->reach,
                          .id = t->id,
                          .log_p = t->log_p,
                          .entropy = t->entropy,
                          .answer = t->answer};
}

/* ---- one token ---- */

static float dot(const rvi_capturer *c, const float *a, const float *b)
{
    float out;
    c->k.gemm_f32(a, 0, 1, b, 0, 1, &out, 0, (size_t)c->m->hp.n_embd);
    return out;
}

/* The k-th largest of v[0 .. n-1], 1 <= k <= n; reorders them. */
static float kth_largest(float *v, int n, int k)
{
    int low = 0, high = n - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return v[k - 1];
}

/* The k tokens with the largest logits, in order of their ids; of equals the first. c->best has the
 * largest of each block: the k-th of them is no larger than the k-th logit, so blocks below it need
 * not be looked at. */
static int select_top(rvi_capturer *c, const float *logits, int k, int32_t *top)
{
    int n_vocab = c->m->hp.n_vocab, n = 0, n_top = 0;
    float floor = -INFINITY;
    if (k < c->n_blocks) {
        memcpy(c->values, c->best, (size_t)c->n_blocks * sizeof *c->values);
        floor = kth_largest(c->values, c->n_blocks, k);
    }
    for (int b = 0; b < c->n_blocks; b++) {
        if (!(c->best[b] >= floor)) continue;
        for (int i = b * BLOCK; i < RVI_MIN((b + 1) * BLOCK, n_vocab); i++)
            if (logits[i] >= floor) c->ids[n++] = i;
    }
    for (int i = 0; i < n; i++) c->values[i] = logits[c->ids[i]];
    if (n > k) floor = kth_largest(c->values, n, k);
    int above = 0;
    for (int i = 0; i < n; i++) above += logits[c->ids[i]] > floor;
    int equal = k - above;
    for (int i = 0; i < n && n_top < k; i++) {
        float l = logits[c->ids[i]];
        if (l > floor || (l == floor && equal-- > 0)) top[n_top++] = c->ids[i];
    }
    return n_top;
}

/* The tokens that g is made of, with their factors: d log p(y) / d logit, times the cap's slope. */
typedef struct terms {
    int32_t ids[ROWS];
    float factor[ROWS];
    int n;
    double rest; /* factor of the mean row */
} terms;

/* d (capped logit) / d logit; z: the capped logit */
static double slope(const rvi_capturer *c, double z)
{
    double r = c->m->hp.logit_cap > 0 ? z / (double)c->m->hp.logit_cap : 0;
    return 1 - r * r;
}

static void add_term(const rvi_capturer *c, terms *t, int32_t id, double p, double z, bool chosen,
                     double temperature)
{
    t->ids[t->n] = id;
    t->factor[t->n++] = (float)(((chosen ? 1 : 0) - p) * slope(c, z) / temperature);
}

/* What the softmax of logits / temperature says. */
static void find_terms(rvi_capturer *c, const float *logits, float temperature, int32_t id,
                       terms *t, token *out)
{
    int n_vocab = c->m->hp.n_vocab, n_top = 0;
    int32_t top[RVI_CAPTURE_TOP_FLAT];
    double tau = temperature > 0 ? (double)temperature : 1, p[RVI_CAPTURE_TOP_FLAT], mass = 0;
    float sums[2];
    for (int b = 0; b < c->n_blocks; b++)
        c->best[b] = c->k.max(logits + b * BLOCK, (size_t)RVI_MIN(BLOCK, n_vocab - b * BLOCK));
    float best = c->k.max(c->best, (size_t)c->n_blocks);
    c->k.exp_sums(logits, best, (float)(1 / tau), (size_t)n_vocab, sums);
    double log_sum = log((double)sums[0]), mean_x = (double)sums[1] / (double)sums[0];
    double x_id = ((double)logits[id] - (double)best) / tau, p_id = exp(x_id - log_sum);
    out->log_p = (float)(x_id - log_sum);
    out->entropy = (float)(log_sum - mean_x);

    for (int k = RVI_CAPTURE_TOP; k <= RVI_CAPTURE_TOP_FLAT && mass < 0.9;
         k += RVI_CAPTURE_TOP_FLAT - RVI_CAPTURE_TOP) {
        n_top = select_top(c, logits, k, top);
        mass = 0;
        for (int i = 0; i < n_top; i++)
            mass += p[i] = exp(((double)logits[top[i]] - (double)best) / tau - log_sum);
    }
    t->n = 0;
    double sum_x = 0; /* of what has its own term, p times (logit - best) / temperature */
    bool with_id = false;
    for (int i = 0; i < n_top; i++) {
        double z = (double)logits[top[i]];
        sum_x += p[i] * (z - (double)best) / tau;
        with_id |= top[i] == id;
        add_term(c, t, top[i], p[i], z, top[i] == id, tau);
    }
    if (!with_id) {
        mass += p_id;
        sum_x += p_id * x_id;
        add_term(c, t, id, p_id, (double)logits[id], true, tau);
    }
    double rest = t->n < n_vocab ? 1 - mass : 0; /* with the slope at its own mean logit */
    t->rest = 0;
    if (rest > 1e-6) t->rest = -rest * slope(c, (mean_x - sum_x) / rest * tau + (double)best) / tau;
}

void rvi_capture_norm_back(const rvi_kernels *k, const float *w, const float *x, float *g, size_t n,
                           float eps)
{
    float squares, along;
    k->gemm_f32(x, 0, 1, x, 0, 1, &squares, 0, n);
    double rho = 1 / sqrt((double)squares / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) g[i] *= w[i];
    k->gemm_f32(x, 0, 1, g, 0, 1, &along, 0, n);
    k->scale(g, (float)rho, n);
    k->axpy(g, (float)(-rho * rho * rho / (double)n * (double)along), x, n);
}

static void find_gradient(rvi_capturer *c, const terms *t)
{
    size_t n = (size_t)c->m->hp.n_embd;
    memset(c->g, 0, n * sizeof *c->g);
    c->k.axpy(c->g, (float)t->rest, c->mean, n);
    for (int i = 0; i < t->n; i++) {
        rvi_capturer_head_row(c, t->ids[i], c->row);
        c->k.axpy(c->g, t->factor[i], c->row, n);
    }
    float eps = c->m->hp.norm_eps;
    rvi_capture_norm_back(&c->k, c->out_norm, c->x, c->g, n, eps);
    if (c->post_norm) rvi_capture_norm_back(&c->k, c->post_norm, c->y, c->g, n, eps);
}

/* x becomes x / scale. Returns the scale, NaN if x is not finite. */
static float store(const rvi_capturer *c, float *x, rvi_f16 *out, size_t n)
{
    float most = 0, wrong = 0;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        most = a > most ? a : most;
        wrong += x[i] * 0; /* NaN once anything is not finite */
    }
    if (wrong != 0 || most < 1e-30f) {
        memset(out, 0, n * sizeof *out);
        return wrong != 0 ? NAN : 0;
    }
    c->k.scale(x, 1 / most, n);
    c->k.f32_to_f16(x, out, n);
    return most;
}

void rvi_capture_take(rvi_capture *r, rvi_workspace *ws, int row, const float *logits,
                      float temperature, int32_t id)
{
    rvi_capturer *c = r->by;
    terms t;
    size_t at = (size_t)(r->n_taken++ % (uint64_t)r->n_tokens);
    size_t n_ff = (size_t)c->m->hp.n_ff, n_embd = (size_t)c->m->hp.n_embd;
    token *out = &r->tokens[at];
    *out = (token){.id = id, .answer = r->answer};
    rvi_workspace_last_layer(ws, row, c->u, c->post_norm ? c->y : NULL, c->x);
    find_terms(c, logits, temperature, id, &t, out);
    find_gradient(c, &t);
    const float *against = c->post_norm ? c->y : c->x;
    out->reach = sqrtf(dot(c, against, against));
    out->u_scale = store(c, c->u, r->u + at * n_ff, n_ff);
    out->g_scale = store(c, c->g, r->g + at * n_embd, n_embd);
    if (r->n_head < RVI_CAPTURE_HEAD) r->head[r->n_head++] = (rvi_captured_id){id, out->log_p};
}
