/* Training ops, row by row: norms, gates, the loss, moving rows. */
#include "backend/cpu/train.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- scratch ---- */

static void attention_deinit(rvi_attn_train *a)
{
    rvi_free(a->left);
    rvi_free(a->right);
    rvi_free(a->own);
    rvi_free(a->result);
    rvi_free(a->scores);
    rvi_free(a->slopes);
    rvi_free(a->raw);
}

/* Aligned for vectors, and counted. */
static void *room(rvi_train_scratch *s, size_t bytes)
{
    s->bytes += bytes;
    return rvi_alloc_aligned(bytes, 64);
}

static bool attention_init(rvi_attn_train *a, rvi_train_scratch *s)
{
    const size_t pad = 64; /* no less than row_group, k_step and panels */
    size_t number = s->attention_gemm->number_bytes, cols = (size_t)s->max_cols + pad;
    size_t scores = (size_t)RVI_TRAIN_QUERIES * ((size_t)s->max_rows + pad) * sizeof(float);
    size_t rows = RVI_TRAIN_QUERIES * 2 + pad, depth = cols + RVI_TRAIN_KEYS;
    a->left = room(s, rows * depth * number);
    a->right = room(s, (RVI_TRAIN_KEYS + pad) * cols * number);
    a->own = room(s, 2 * (RVI_TRAIN_QUERIES + pad) * cols * number);
    a->result = room(s, RVI_TRAIN_QUERIES * cols * sizeof(float));
    a->scores = room(s, scores);
    a->slopes = room(s, scores);
    a->raw = room(s, scores);
    return a->left && a->right && a->own && a->result && a->scores && a->slopes && a->raw;
}

static void block_deinit(rvi_train_block *b)
{
    rvi_free(b->packed);
    rvi_free(b->low);
    rvi_free(b->sums);
}

static bool block_init(rvi_train_block *b, rvi_train_scratch *s, size_t ranks)
{
    size_t number = s->linear->number_bytes, rows = RVI_TRAIN_BLOCK;
    b->packed = room(s, rows * ((size_t)s->max_cols + 2 * ranks) * number);
    b->low = room(s, rows * ranks * sizeof *b->low);
    b->sums = room(s, rows * (RVI_TRAIN_UNIT + 16) * sizeof *b->sums);
    return b->packed && b->low && b->sums;
}

static void scratch_free(const rvi_cpu *cpu, rvi_train_scratch *s)
{
    if (!s) return;
    for (int i = 0; i < rvi_pool_size(cpu->pool); i++) {
        if (s->panel) rvi_free(s->panel[i]);
        if (s->tile) rvi_free(s->tile[i]);
        if (s->rows) rvi_free(s->rows[i]);
        if (s->blocks) block_deinit(&s->blocks[i]);
        if (s->attention) attention_deinit(&s->attention[i]);
    }
    rvi_free(s->attention);
    rvi_free(s->stats);
    rvi_free(s->parts);
    rvi_free(s->panel);
    rvi_free(s->tile);
    rvi_free(s->rows);
    rvi_free(s->blocks);
    rvi_free(s->rows_packed);
    rvi_free(s->first);
    for (int i = 0; i < 2; i++) {
        rvi_free(s->low[i]);
        rvi_free(s->turned[i]);
    }
    rvi_free(s);
}

void rvi_cpu_train_free(rvi_cpu *cpu)
{
    scratch_free(cpu, cpu->train);
    cpu->train = NULL;
}

const rvi_train_gemm *rvi_cpu_train_gemm(const rvi_cpu *cpu)
{
    return !cpu->exact && cpu->k.train_bf16 ? cpu->k.train_bf16 : cpu->k.train_f32;
}

static bool scratch_fill(const rvi_cpu *cpu, rvi_train_scratch *s)
{
    size_t workers = (size_t)rvi_pool_size(cpu->pool), number = s->linear->number_bytes;
    size_t rows = (size_t)RVI_MIN(s->max_rows + RVI_TRAIN_GROUP, RVI_TRAIN_ROWS),
           pad = RVI_MAX_LINEARS * 32, /* each layer's things fill whole panels and steps of k */
        ranks = RVI_MAX_RANK + pad, depth = RVI_TRAIN_CHUNK + ranks;
    s->rows_packed = room(s, rows * depth * number);
    s->first = room(s, ranks * RVI_TRAIN_CHUNK * number);
    bool ok = s->rows_packed && s->first;
    for (int i = 0; i < 2; i++) {
        s->low[i] = room(s, rows * ranks * sizeof(float));
        s->turned[i] = room(s, ranks * rows * number);
        ok = ok && s->low[i] && s->turned[i];
    }
    s->panel = rvi_zalloc_array(workers, sizeof *s->panel);
    s->tile = rvi_zalloc_array(workers, sizeof *s->tile);
    s->rows = rvi_zalloc_array(workers, sizeof *s->rows);
    s->attention = rvi_zalloc_array(workers, sizeof *s->attention);
    s->stats = room(s, 3 * (size_t)s->max_rows * RVI_TRAIN_HEADS * sizeof(float));
    s->parts = room(s, RVI_TRAIN_PARTS * sizeof(float));
    ok = ok && s->panel && s->tile && s->rows && s->attention && s->stats && s->parts;
    if (ok && workers >= RVI_TRAIN_MANY) {
        s->blocks = rvi_alloc_aligned(workers * sizeof *s->blocks, 128);
        if (s->blocks) memset(s->blocks, 0, workers * sizeof *s->blocks);
        ok = s->blocks != NULL;
    }
    for (size_t i = 0; ok && i < workers; i++) {
        s->panel[i] = room(s, RVI_TRAIN_UNIT * depth * number);
        s->tile[i] = room(s, RVI_TRAIN_TILE * sizeof(float));
        s->rows[i] = room(s, (size_t)s->max_vocab * sizeof(float));
        ok = (!s->blocks || block_init(&s->blocks[i], s, ranks)) && s->panel[i] && s->tile[i] &&
             s->rows[i] && attention_init(&s->attention[i], s);
    }
    return ok;
}

/* The new scratch is made before the old one is freed, so that a failure keeps what was reserved
 * before. */
rv_status rvi_cpu_train_reserve(rvi_backend *be, int n_rows, int n_cols, int n_vocab, rv_error *err)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    rvi_train_scratch *old = cpu->train;
    if (old && n_rows <= old->max_rows && n_cols <= old->max_cols && n_vocab <= old->max_vocab)
        return RV_OK;
    rvi_train_scratch *s = rvi_zalloc(sizeof *s);
    if (s) {
        s->max_rows = RVI_MAX(n_rows, old ? old->max_rows : 1);
        s->max_cols = RVI_MAX(n_cols, old ? old->max_cols : 1);
        s->max_vocab = RVI_MAX(n_vocab, old ? old->max_vocab : 1);
        s->linear = rvi_cpu_train_gemm(cpu);
        s->attention_gemm = cpu->k.train_f32;
    }
    if (!s || !scratch_fill(cpu, s)) {
        scratch_free(cpu, s);
        return rvi_nomem(err, "training scratch");
    }
    atomic_fetch_add(&be->memory->scratch, s->bytes - (old ? old->bytes : 0));
    scratch_free(cpu, old);
    cpu->train = s;
    return RV_OK;
}

/* ---- row by row ops: one task a row ---- */

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols dx, dx2, dy, x, y;
    const rvi_tensor *w;
    float eps;
    rvi_glu kind;
    rvi_target *targets;
    float soft_cap;
    bool grad;
} job;

static void norm_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    j->cpu->k.norm_back(rvi_cpu_row(j->dx, r), rvi_cpu_row(j->dy, r), rvi_cpu_row(j->x, r),
                        j->w->heap, (size_t)j->x.n, j->eps, true);
}

void rvi_cpu_rms_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                           const rvi_tensor *w, int n_rows, float eps)
{
    job j = {.cpu = rvi_cpu_of(be), .dx = dx, .dy = dy, .x = x, .w = w, .eps = eps};
    rvi_pool_run(j.cpu->pool, norm_task, &j, n_rows);
}

static void head_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    int size = j->w->n_cols;
    for (int at = 0; at < j->x.n; at += size)
        j->cpu->k.norm_back(rvi_cpu_row(j->dx, r) + at, rvi_cpu_row(j->dy, r) + at,
                            rvi_cpu_row(j->x, r) + at, j->w->heap, (size_t)size, j->eps, false);
}

void rvi_cpu_head_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                            const rvi_tensor *w, int n_rows, float eps)
{
    job j = {.cpu = rvi_cpu_of(be), .dx = dx, .dy = dy, .x = x, .w = w, .eps = eps};
    rvi_pool_run(j.cpu->pool, head_task, &j, n_rows);
}

static void glu_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    const rvi_kernels *k = &j->cpu->k;
    (j->kind == RVI_GLU_SILU ? k->silu_back : k->gelu_back)(
        rvi_cpu_row(j->dx, r), rvi_cpu_row(j->dx2, r), rvi_cpu_row(j->dy, r), rvi_cpu_row(j->x, r),
        rvi_cpu_row(j->y, r), (size_t)j->x.n);
}

void rvi_cpu_glu_back(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                      rvi_cols up, rvi_glu kind, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be),
             .dx = dgate,
             .dx2 = dup,
             .dy = dact,
             .x = gate,
             .y = up,
             .kind = kind};
    rvi_pool_run(j.cpu->pool, glu_task, &j, n_rows);
}

/* ---- loss ----
 *
 * With u = z / T, Q = the sum of the listed q, R = 1 - Q and c = rest / R (0 where R is held at its
 * least value):
 *     d loss / d u_j = q_j (sum p - c Q), and for the listed ones + c q_j - p_j in addition.
 * R is the sum over the others themselves, so that it keeps its digits: the listed logits are
 * -infinity meanwhile. */

static const double least_rest = 1e-6;

static void loss_row(float *z, size_t n, rvi_target *t, float *kept, const rvi_kernels *k,
                     float soft_cap, bool grad)
{
    float top = k->max(z, n), inverse = 1.0f / t->temperature;
    for (int i = 0; i < t->n; i++) kept[i] = z[t->ids[i]];
    for (int i = 0; i < t->n; i++) z[t->ids[i]] = -INFINITY;
    double others = k->exp_sum(z, top, inverse, n), all = others, sum_p = 0, loss = 0;
    for (int i = 0; i < t->n; i++) all += exp((double)(kept[i] - top) * (double)inverse);
    double rest = others / all, log_all = log(all);
    bool held = rest < least_rest;
    for (int i = 0; i < t->n; i++) {
        double p = (double)t->p[i];
        sum_p += p;
        if (p != 0) loss += p * (log(p) - ((double)(kept[i] - top) * (double)inverse - log_all));
    }
    if (t->rest != 0.0f)
        loss += (double)t->rest * (log((double)t->rest) - log(held ? least_rest : rest));
    t->loss = (float)(loss + others * 0.0); /* NaN of any logit shows, also where rest is 0 */
    if (!grad) return;

    double c = held ? 0 : (double)t->rest / rest, base = sum_p - c * (1 - rest);
    double factor = (double)t->weight * (double)inverse;
    k->exp_slope(z, top, inverse, (float)(factor * base / all), soft_cap, n);
    for (int i = 0; i < t->n; i++) {
        double q = exp((double)(kept[i] - top) * (double)inverse) / all;
        double cap = soft_cap != 0.0f ? (double)kept[i] / (double)soft_cap : 0;
        z[t->ids[i]] = (float)(factor * (q * (base + c) - (double)t->p[i]) * (1 - cap * cap));
    }
}

static void loss_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    loss_row(rvi_cpu_row(j->x, r), (size_t)j->x.n, &j->targets[r], j->cpu->train->rows[worker],
             &j->cpu->k, j->soft_cap, j->grad);
}

void rvi_cpu_loss(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                  int n_rows)
{
    job j = {
        .cpu = rvi_cpu_of(be), .x = logits, .targets = targets, .soft_cap = soft_cap, .grad = grad};
    rvi_pool_run(j.cpu->pool, loss_task, &j, n_rows);
}

/* ---- moving rows ---- */

typedef struct moves {
    rvi_cols out, in; /* in.t NULL: zeros */
} moves;

static void move_task(void *ctx, int r, int worker)
{
    const moves *m = ctx;
    (void)worker;
    size_t bytes = (size_t)m->out.n * sizeof(float);
    if (m->in.t)
        memmove(rvi_cpu_row(m->out, r), rvi_cpu_row(m->in, r), bytes);
    else
        memset(rvi_cpu_row(m->out, r), 0, bytes);
}

void rvi_cpu_copy(rvi_backend *be, rvi_cols out, rvi_cols x, int n_rows)
{
    moves m = {out, x};
    rvi_cpu_run_light(rvi_cpu_of(be), move_task, &m, n_rows, out.n);
}

void rvi_cpu_zero(rvi_backend *be, rvi_cols x, int n_rows)
{
    rvi_cpu_copy(be, x, (rvi_cols){0}, n_rows);
}

void rvi_cpu_scatter_add(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *to, int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        rvi_cpu_of(be)->k.add(rvi_cpu_row(out, to[r]), rvi_cpu_row(x, r), (size_t)x.n);
}
