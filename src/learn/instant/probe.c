#include "learn/instant/probe.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/instant/vector.h"

enum {
    CANDIDATES = RVI_PROBE_TOP + 1, /* the most probable, and the one that follows */
    LOGITS = 8                      /* rows whose logits are computed at once */
};

typedef struct position {
    int n;    /* candidates; the rest stands behind them */
    int next; /* which of them follows in the text */
    double log_p[CANDIDATES + 1], p[CANDIDATES + 1];
    double logit[CANDIDATES + 1]; /* before the change, by the rows kept; under the cap */
} position;

/* A text on its way in. */
typedef struct reading {
    int32_t *ids; /* NULL: there is none */
    int n, at;    /* tokens, and how many of them were computed */
    int n_rows;   /* at a time at most */
    int count;    /* positions so far */
    rvi_row *rows;
    rvi_pages *pool;
    rvi_workspace *ws;
    rvi_seq seq;
} reading;

struct rvi_probe {
    const rvi_model *m;
    rvi_capturer *by;
    rvi_top_part top;
    rvi_kernels k;
    int n_texts, max_texts;
    int *n_positions;     /* [max_texts] */
    position *at;         /* [max_texts][RVI_PROBE_POSITIONS], as all below */
    float *u;             /* [n_ff] */
    float *x;             /* [n_embd] residual stream; without the half's output where y is kept */
    float *y;             /* [n_embd] the projection's output, where a norm follows it; or NULL */
    rvi_f16 *rows;        /* [CANDIDATES][n_embd] of the head */
    float *now_x, *now_y; /* [n_embd] scratch */
    float *h, *row, *low; /* row: [CANDIDATES][n_embd] */
    reading now;
};

rv_status rvi_probe_new(rvi_probe **out, rvi_capturer *by, const rvi_model *m, int n_texts,
                        rv_error *err)
{
    *out = NULL;
    if (n_texts < 1 || n_texts > RVI_PROBE_TEXTS)
        return rvi_error(err, RV_E_CONFIG, "%d probe texts: 1 to %d are possible", n_texts,
                         RVI_PROBE_TEXTS);
    rvi_probe *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "probe");
    size_t n = (size_t)n_texts * RVI_PROBE_POSITIONS, n_embd = (size_t)m->hp.n_embd;
    p->m = m;
    p->by = by;
    p->top = rvi_capturer_top(by);
    rvi_kernels_init(&p->k, NULL);
    p->max_texts = n_texts;
    p->n_positions = rvi_zalloc_array((size_t)n_texts, sizeof *p->n_positions);
    p->at = rvi_zalloc_array(n, sizeof *p->at);
    p->u = rvi_floats_new(n * (size_t)m->hp.n_ff);
    p->x = rvi_floats_new(n * n_embd);
    if (p->top.post_norm) p->y = rvi_floats_new(n * n_embd);
    p->rows = (rvi_f16 *)(void *)rvi_floats_new((n * CANDIDATES * n_embd + 1) / 2);
    p->now_x = rvi_floats_new(n_embd);
    p->now_y = rvi_floats_new(n_embd);
    p->h = rvi_floats_new(n_embd);
    p->row = rvi_floats_new(CANDIDATES * n_embd);
    p->low = rvi_alloc_array(RVI_MAX_RANK, sizeof(float));
    if (!p->n_positions || !p->at || !p->u || !p->x || (p->top.post_norm && !p->y) || !p->rows ||
        !p->now_x || !p->now_y || !p->h || !p->row || !p->low) {
        rvi_probe_free(p);
        return rvi_nomem(err, "probe");
    }
    *out = p;
    return RV_OK;
}

static void end_reading(rvi_probe *p)
{
    reading *r = &p->now;
    rvi_workspace_free(r->ws);
    rvi_seq_deinit(&r->seq);
    rvi_pages_free(r->pool);
    rvi_free(r->rows);
    rvi_free(r->ids);
    *r = (reading){0};
}

void rvi_probe_free(rvi_probe *p)
{
    if (!p) return;
    end_reading(p);
    rvi_free(p->n_positions);
    rvi_free(p->at);
    rvi_free(p->u);
    rvi_free(p->x);
    rvi_free(p->y);
    rvi_free(p->rows);
    rvi_free(p->now_x);
    rvi_free(p->now_y);
    rvi_free(p->h);
    rvi_free(p->row);
    rvi_free(p->low);
    rvi_free(p);
}

int rvi_probe_n_texts(const rvi_probe *p)
{
    return p->n_texts;
}

/* ---- one position, with a change ---- */

static float inner(const rvi_probe *p, const float *a, const float *b)
{
    float out;
    p->k.gemm_f32(a, 0, 1, b, 0, 1, &out, 0, (size_t)p->m->hp.n_embd);
    return out;
}

/* now_x and h (and now_y), with the change; NULL: as it was. */
static void move(rvi_probe *p, size_t i, const rvi_delta *d)
{
    size_t n = (size_t)p->m->hp.n_embd, n_ff = (size_t)p->m->hp.n_ff;
    float eps = p->m->hp.norm_eps, *changed = p->y ? p->now_y : p->now_x;
    memcpy(p->now_x, p->x + i * n, n * sizeof(float));
    if (p->y) memcpy(p->now_y, p->y + i * n, n * sizeof(float));
    if (d) {
        p->k.gemm_f32(d->a, n_ff, d->rank, p->u + i * n_ff, 0, 1, p->low, 0, n_ff);
        for (int j = 0; j < d->rank; j++) p->k.axpy(changed, p->low[j], d->b + (size_t)j * n, n);
    }
    if (p->y) {
        p->k.rms_norm(p->h, p->now_y, p->top.post_norm, n, eps);
        p->k.add(p->now_x, p->h, n);
    }
    p->k.rms_norm(p->h, p->now_x, p->top.out_norm, n, eps);
}

/* Leaves the candidates' rows in p->row. The rest has the mean row, and as one token no cap. */
static void find_logits(rvi_probe *p, size_t i, double *logit)
{
    size_t n = (size_t)p->m->hp.n_embd;
    const position *at = &p->at[i];
    double cap = (double)p->m->hp.logit_cap;
    float raw[CANDIDATES];
    p->k.f16_to_f32(p->rows + i * CANDIDATES * n, p->row, (size_t)at->n * n);
    p->k.gemm_f32(p->row, n, at->n, p->h, 0, 1, raw, 0, n);
    for (int c = 0; c < at->n; c++)
        logit[c] = cap > 0 ? cap * tanh((double)raw[c] / cap) : (double)raw[c];
    logit[at->n] = (double)inner(p, p->top.mean, p->h);
}

/* Log p of the candidates and the rest after the change, whose logits are given. */
static void find_log_p(const position *at, const double *logit, double *log_p)
{
    double best = -INFINITY, sum = 0;
    for (int c = 0; c <= at->n; c++) {
        log_p[c] = at->log_p[c] + logit[c] - at->logit[c];
        best = fmax(best, log_p[c]);
    }
    for (int c = 0; c <= at->n; c++) sum += exp(log_p[c] - best);
    best += log(sum);
    for (int c = 0; c <= at->n; c++) log_p[c] -= best;
}

rvi_probe_result rvi_probe_score(rvi_probe *p, const rvi_delta *d, int first, int n)
{
    double kl = 0, nll = 0, count = 0, logit[CANDIDATES + 1], log_p[CANDIDATES + 1];
    for (int t = first; t < RVI_MIN(first + n, p->n_texts); t++)
        for (int j = 0; j < p->n_positions[t]; j++) {
            size_t i = (size_t)t * RVI_PROBE_POSITIONS + (size_t)j;
            const position *at = &p->at[i];
            move(p, i, d);
            find_logits(p, i, logit);
            find_log_p(at, logit, log_p);
            for (int c = 0; c <= at->n; c++) kl += at->p[c] * (at->log_p[c] - log_p[c]);
            nll += at->log_p[at->next] - log_p[at->next];
            count++;
        }
    if (count == 0) return (rvi_probe_result){0, 0};
    return (rvi_probe_result){kl / count, exp(nll / count) - 1};
}

static void pull_at(rvi_probe *p, const rvi_delta *d, size_t i, float *g)
{
    size_t n = (size_t)p->m->hp.n_embd;
    const position *at = &p->at[i];
    double cap = (double)p->m->hp.logit_cap, logit[CANDIDATES + 1], log_p[CANDIDATES + 1];
    move(p, i, d);
    find_logits(p, i, logit);
    find_log_p(at, logit, log_p);
    memset(g, 0, n * sizeof *g);
    for (int c = 0; c < at->n; c++) {
        double slope = cap > 0 ? 1 - logit[c] * logit[c] / (cap * cap) : 1;
        p->k.axpy(g, (float)((exp(log_p[c]) - at->p[c]) * slope), p->row + (size_t)c * n, n);
    }
    p->k.axpy(g, (float)(exp(log_p[at->n]) - at->p[at->n]), p->top.mean, n);
    rvi_capture_norm_back(&p->k, p->top.out_norm, p->now_x, g, n, p->m->hp.norm_eps);
    if (p->y) rvi_capture_norm_back(&p->k, p->top.post_norm, p->now_y, g, n, p->m->hp.norm_eps);
}

int rvi_probe_pull(rvi_probe *p, const rvi_delta *d, int text, int turn, int max, const float **u,
                   float *g, float *low)
{
    int have = p->n_positions[text], every = (have + max - 1) / max, n = 0;
    size_t n_embd = (size_t)p->m->hp.n_embd;
    for (int j = every ? turn % every : 0; j < have; j += every) {
        size_t i = (size_t)text * RVI_PROBE_POSITIONS + (size_t)j;
        pull_at(p, d, i, g + (size_t)n * n_embd);
        if (low) memcpy(low + n * d->rank, p->low, (size_t)d->rank * sizeof *low);
        u[n++] = p->u + i * (size_t)p->m->hp.n_ff;
    }
    for (int j = 0; j < n; j++) p->k.scale(g + (size_t)j * n_embd, 1 / (float)n, n_embd);
    return n;
}

/* ---- taking a text in ---- */

/* The candidates of one row: ids and log p, the most probable first, then `next` if it is not among
 * them. Returns how many. */
static int find_candidates(const float *logits, int n_vocab, int32_t next, int32_t *ids,
                           position *at)
{
    int k = RVI_MIN(RVI_PROBE_TOP, n_vocab), n = 0;
    double best = -INFINITY, sum = 0;
    for (int i = 0; i < n_vocab; i++) best = fmax(best, (double)logits[i]);
    for (int i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - best);
    for (int i = 0; i < n_vocab; i++) { /* kept sorted; an element moves up past smaller ones */
        if (n == k && !(logits[i] > logits[ids[k - 1]])) continue;
        int j = n < k ? n++ : k - 1;
        for (; j > 0 && logits[ids[j - 1]] < logits[i]; j--) ids[j] = ids[j - 1];
        ids[j] = i;
    }
    at->next = -1;
    for (int c = 0; c < n; c++)
        if (ids[c] == next) at->next = c;
    if (at->next < 0) {
        at->next = n;
        ids[n++] = next;
    }
    double rest = 1;
    for (int c = 0; c < n; c++) {
        at->log_p[c] = (double)logits[ids[c]] - best - log(sum);
        rest -= at->p[c] = exp(at->log_p[c]);
    }
    at->p[n] = fmax(rest, 1e-9);
    at->log_p[n] = log(at->p[n]);
    return n;
}

static bool take_position(rvi_probe *p, rvi_workspace *ws, int row, const float *logits,
                          int32_t next, size_t i)
{
    size_t n = (size_t)p->m->hp.n_embd, n_ff = (size_t)p->m->hp.n_ff;
    int32_t ids[CANDIDATES];
    position *at = &p->at[i];
    for (int v = 0; v < p->m->hp.n_vocab; v++)
        if (!isfinite(logits[v])) return false;
    rvi_workspace_last_layer(ws, row, p->u + i * n_ff, p->y ? p->y + i * n : NULL, p->x + i * n);
    if (p->y) { /* x without the half's normed output */
        p->k.rms_norm(p->h, p->y + i * n, p->top.post_norm, n, p->m->hp.norm_eps);
        p->k.axpy(p->x + i * n, -1, p->h, n);
    }
    at->n = find_candidates(logits, p->m->hp.n_vocab, next, ids, at);
    for (int c = 0; c < at->n; c++) {
        rvi_capturer_head_row(p->by, ids[c], p->row);
        p->k.f32_to_f16(p->row, p->rows + (i * CANDIDATES + (size_t)c) * n, n);
    }
    move(p, i, NULL);
    find_logits(p, i, at->logit);
    return true;
}

static rv_status check_text(const rvi_probe *p, const int32_t *ids, size_t n, rv_error *err)
{
    int n_vocab = p->m->hp.n_vocab;
    if (p->n_texts == p->max_texts) return rvi_error(err, RV_E_LEARNING, "the probe is full");
    if (n < 2 || n > RVI_PROBE_TOKENS)
        return rvi_error(err, RV_E_LEARNING, "a probe text of %zu tokens: 2 to %d are possible", n,
                         RVI_PROBE_TOKENS);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return rvi_error(err, RV_E_LEARNING, "token id %d is not in the vocabulary of %d",
                             ids[i], n_vocab);
    return RV_OK;
}

rv_status rvi_probe_begin(rvi_probe *p, const int32_t *ids, size_t n, int n_rows, rv_error *err)
{
    const rvi_model *m = p->m;
    reading *r = &p->now;
    end_reading(p);
    rv_status st = check_text(p, ids, n, err);
    if (st) return st;
    *r = (reading){.n = (int)n, .n_rows = RVI_MIN(n_rows, (int)n)};
    r->ids = rvi_alloc_array(n, sizeof *r->ids);
    r->rows = rvi_alloc_array((size_t)r->n_rows, sizeof *r->rows);
    rvi_kv_spec spec = rvi_model_kv_spec(m, RV_KV_F16, (int)n / RVI_PAGE_TOKENS + 1);
    if (!r->ids || !r->rows) st = rvi_nomem(err, "probe");
    if (!st) st = rvi_pages_new(&r->pool, m->be, &spec, err);
    if (!st) st = rvi_seq_init(&r->seq, r->pool, (int)n, err);
    if (!st) st = rvi_workspace_new(&r->ws, m, r->n_rows, RVI_MIN(LOGITS, r->n_rows), err);
    if (st)
        end_reading(p);
    else
        memcpy(r->ids, ids, n * sizeof *ids);
    return st;
}

bool rvi_probe_has_begun(const rvi_probe *p)
{
    return p->now.ids != NULL;
}

int rvi_probe_left(const rvi_probe *p)
{
    return p->now.n - p->now.at;
}

/* Places of the text at which something is kept: the last of each run, for the beginning of a text
 * says the least. */
static bool is_kept(const reading *r, int at)
{
    int places = r->n - 1, every = (places + RVI_PROBE_POSITIONS - 1) / RVI_PROBE_POSITIONS;
    return at < places && at % every == (places - 1) % every;
}

/* Of rows of the last pass. */
static rv_status take_positions(rvi_probe *p, const int32_t *which, int n, rv_error *err)
{
    reading *r = &p->now;
    if (!n) return RV_OK;
    const float *logits = rvi_model_logits(p->m, r->ws, r->rows, which, n);
    for (int i = 0; i < n; i++, logits += p->m->hp.n_vocab) {
        size_t to = (size_t)p->n_texts * RVI_PROBE_POSITIONS + (size_t)r->count;
        if (!take_position(p, r->ws, which[i], logits, r->ids[r->at + which[i] + 1], to))
            return rvi_error(err, RV_E_GENERATION, "the model's output is not finite");
        r->count++;
    }
    return RV_OK;
}

static rv_status read_rows(rvi_probe *p, int n, rv_error *err)
{
    reading *r = &p->now;
    int rope_set = rvi_rope_set(&p->m->rope, r->n);
    rv_status st = rvi_seq_extend(&r->seq, n, err);
    if (st) return st;
    for (int i = 0; i < n; i++)
        r->rows[i] = (rvi_row){.seq = &r->seq,
                               .pos = (int32_t)(r->at + i),
                               .token = r->ids[r->at + i],
                               .rope_set = rope_set};
    rvi_model_forward(p->m, r->ws, r->rows, n);
    for (int i = 0; i < n && !st;) {
        int32_t which[LOGITS];
        int n_which = 0;
        for (; i < n && n_which < LOGITS; i++)
            if (is_kept(r, r->at + i)) which[n_which++] = i;
        st = take_positions(p, which, n_which, err);
    }
    r->at += n;
    return st;
}

rv_status rvi_probe_go_on(rvi_probe *p, int n_rows, rv_error *err)
{
    reading *r = &p->now;
    int most = RVI_MIN(r->n_rows, r->n - r->at);
    rv_status st = read_rows(p, RVI_MIN(n_rows, most), err);
    if (!st && r->at < r->n) return RV_OK;
    if (!st) p->n_positions[p->n_texts++] = r->count;
    end_reading(p);
    return st;
}

rv_status rvi_probe_add(rvi_probe *p, const int32_t *ids, size_t n, rv_error *err)
{
    rv_status st = rvi_probe_begin(p, ids, n, RVI_PROBE_TOKENS, err);
    return st ? st : rvi_probe_go_on(p, RVI_PROBE_TOKENS, err);
}
