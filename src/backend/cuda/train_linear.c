/* Linear layers of training: operands, then what the adapters' first matrices give, then the rest.
 *
 * Three launches a call, whatever its layers: the jobs of each are collected in a plan. */
#include <string.h>

#include "backend/cuda/train.h"
#include "base/mem.h"

enum { /* jobs of a launch: no more than a warp has lanes */
       MOST_OPERANDS = 2 + 5 * RVI_MAX_LINEARS,
       MOST_LOW = 2 * RVI_MAX_LINEARS,
       MOST_REST = 1 + 2 * RVI_MAX_LINEARS,
       MOST_SEGMENTS = MOST_LOW + 4 * RVI_MAX_LINEARS
};

_Static_assert((int)MOST_OPERANDS <= 32 && (int)MOST_REST <= 32, "find_job of train.cuh");

typedef struct plan {
    rvi_cuda *c;
    rvi_cuda_operand_job operands[MOST_OPERANDS];
    rvi_cuda_gemm_job low[MOST_LOW], rest[MOST_REST]; /* `segments`: the first one's number */
    rvi_cuda_segment segments[MOST_SEGMENTS];
    int n_operands, n_low, n_rest, n_segments;
    int operand_blocks;
} plan;

static uint32_t tiles_of(int n)
{
    return (uint32_t)(rvi_cuda_padded(n) / RVI_CUDA_OPERAND);
}

/* turned: the operand's rows are the columns. */
static rvi_cuda_operand_job operand_of(rvi_cuda_cols from, int n_rows, rvi_cuda_at to,
                                       size_t to_stride, bool turned)
{
    return (rvi_cuda_operand_job){.from = from.at,
                                  .to = to,
                                  .from_stride = from.stride,
                                  .n_rows = n_rows,
                                  .n_cols = from.n,
                                  .to_stride = (int32_t)to_stride,
                                  .turned = turned};
}

static int blocks_of_operand(const rvi_cuda_operand_job *j)
{
    return (int)(tiles_of(j->n_rows) * tiles_of(j->n_cols));
}

/* Room for an operand of n_rows rows of k; 0: more than was reserved. */
static rvi_cuda_at take(plan *p, size_t n_rows, size_t k)
{
    rvi_cuda_train *t = p->c->train;
    size_t bytes = n_rows * k * rvi_cuda_element(p->c); /* a multiple of 128 */
    if (bytes > t->operands_bytes - t->used) {
        rvi_cuda_fails(p->c, RVI_CU_OUT_OF_MEMORY, "training with more than was reserved");
        return 0;
    }
    rvi_cuda_at at = t->operands + t->used;
    t->used += bytes;
    return at;
}

static rvi_cuda_at operand(plan *p, rvi_cuda_cols from, int n_rows, bool turned)
{
    size_t rows = (size_t)(turned ? from.n : n_rows), k = rvi_cuda_padded(turned ? n_rows : from.n);
    rvi_cuda_at at = take(p, rows, k);
    rvi_cuda_operand_job *j = &p->operands[p->n_operands++];
    *j = operand_of(from, n_rows, at, k, turned);
    j->first_block = p->operand_blocks;
    p->operand_blocks += blocks_of_operand(j);
    return at;
}

static rvi_cuda_cols matrix(const rvi_tensor *t)
{
    return (rvi_cuda_cols){t->at, t->n_cols, t->n_cols};
}

/* The segments of a job follow each other: they are added right after it. */
static void add_segment(plan *p, rvi_cuda_gemm_job *g, rvi_cuda_at a, rvi_cuda_at b, int k)
{
    if (!g->n_stages) g->segments = (rvi_cuda_at)p->n_segments;
    g->n_stages += (int32_t)(rvi_cuda_padded(k) * rvi_cuda_element(p->c) / 128);
    p->segments[p->n_segments++] =
        (rvi_cuda_segment){.a = a, .b = b, .k = (int32_t)rvi_cuda_padded(k)};
}

static rvi_cuda_gemm_job job_of(rvi_cuda_at out, int stride, int m, int n, int finish)
{
    return (rvi_cuda_gemm_job){.out = out,
                               .m = m,
                               .n = n,
                               .stride = stride,
                               .finish = finish,
                               .tiles_across = (int32_t)tiles_of(n)};
}

/* scale times a b^T, which is an operand itself: n_rows rows, or turned. */
typedef struct low_rank {
    rvi_cuda_at at, turned;
} low_rank;

static low_rank low_product(plan *p, rvi_cuda_at a, rvi_cuda_at b, int k, int n_rows, int rank,
                            float scale, bool as_it_is, bool turned)
{
    low_rank low = {0};
    size_t wide = rvi_cuda_padded(rank), rows = rvi_cuda_padded(n_rows);
    if (as_it_is) low.at = take(p, (size_t)n_rows, wide);
    if (turned) low.turned = take(p, wide, rows);
    rvi_cuda_gemm_job *g = &p->low[p->n_low++];
    *g = job_of(low.at, 0, n_rows, rank, RVI_CUDA_GEMM_OPERAND);
    g->turned = low.turned;
    g->scale = scale;
    add_segment(p, g, a, b, k);
    return low;
}

/* Where their segments are, and which blocks are theirs; returns how many there are. */
static int resolve(rvi_cuda_gemm_job *jobs, int n, rvi_cuda_at segments)
{
    int n_blocks = 0;
    for (int i = 0; i < n; i++) {
        jobs[i].segments = segments + jobs[i].segments * sizeof(rvi_cuda_segment);
        jobs[i].first_block = n_blocks;
        n_blocks += (int)tiles_of(jobs[i].m) * jobs[i].tiles_across;
    }
    return n_blocks;
}

static void add_gemms(rvi_cuda *c, rvi_cuda_at jobs, int n_jobs, int n_blocks)
{
    rvi_cuda_gemm_args a = {.jobs = jobs, .n_jobs = n_jobs};
    if (!n_blocks) return;
    rvi_cuda_command *command =
        rvi_cuda_add(c, c->exact ? RVI_CUDA_gemm_f32 : RVI_CUDA_gemm_bf16,
                     (uint32_t[]){(uint32_t)n_blocks, 1, 1}, RVI_CUDA_GEMM_THREADS, &a, sizeof a);
    if (command) command->shared = RVI_CUDA_GEMM_STAGES * RVI_CUDA_GEMM_STAGE;
}

static void add_operands(rvi_cuda *c, rvi_cuda_at jobs, int n_jobs, int n_blocks)
{
    rvi_cuda_operand_args a = {.jobs = jobs, .exact = c->exact, .n_jobs = n_jobs};
    if (n_blocks)
        rvi_cuda_add(c, RVI_CUDA_operands, (uint32_t[]){(uint32_t)n_blocks, 1, 1}, RVI_CUDA_THREADS,
                     &a, sizeof a);
}

static void run(plan *p)
{
    rvi_cuda *c = p->c;
    size_t operands = (size_t)p->n_operands * sizeof *p->operands,
           low = (size_t)p->n_low * sizeof *p->low, rest = (size_t)p->n_rest * sizeof *p->rest,
           segments = (size_t)p->n_segments * sizeof *p->segments;
    void *host;
    rvi_cuda_at at = rvi_cuda_stage(c, operands + low + rest + segments, &host);
    if (!at) return;
    uint8_t *to = host;
    int low_blocks = resolve(p->low, p->n_low, at + operands + low + rest),
        rest_blocks = resolve(p->rest, p->n_rest, at + operands + low + rest);
    memcpy(to, p->operands, operands);
    memcpy(to + operands, p->low, low);
    memcpy(to + operands + low, p->rest, rest);
    memcpy(to + operands + low + rest, p->segments, segments);
    add_operands(c, at, p->n_operands, p->operand_blocks);
    add_gemms(c, at + operands, p->n_low, low_blocks);
    add_gemms(c, at + operands + low, p->n_rest, rest_blocks);
    rvi_cuda_start_early(c);
}

static plan begin_plan(rvi_backend *be)
{
    rvi_cuda *c = rvi_cuda_of(be);
    c->train->used = 0;
    return (plan){.c = c};
}

/* Columns `first` .. of rows. */
static rvi_cuda_cols part_of(rvi_cols c, int first, int n)
{
    return rvi_cuda_cols_of(rvi_cols_of(c.t, c.first + first, n));
}

void rvi_cuda_linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y,
                     rvi_cols x, int n_rows)
{
    if (n_rows < 1 || rvi_cuda_is_idle(rvi_cuda_of(be))) return;
    plan p = begin_plan(be);
    rvi_cuda_at in = operand(&p, rvi_cuda_cols_of(x), n_rows, false);
    for (int i = 0, col = 0; i < n_layers; col += l[i++].w->n_rows) {
        int n_out = l[i].w->n_rows, rank = l[i].a ? l[i].a->n_rows : 0;
        rvi_cuda_cols to = part_of(y, col, n_out);
        low_rank low = {0};
        if (rank)
            low = low_product(&p, in, operand(&p, matrix(l[i].a), rank, false), x.n, n_rows, rank,
                              l[i].scale, true, false);
        rvi_cuda_gemm_job *g = &p.rest[p.n_rest++];
        *g = job_of(to.at, to.stride, n_rows, n_out, RVI_CUDA_GEMM_STORE);
        g->bias = l[i].bias ? l[i].bias->at : 0;
        add_segment(&p, g, in, l[i].held->w, x.n);
        if (rank) add_segment(&p, g, low.at, operand(&p, matrix(l[i].b), n_out, false), rank);
    }
    run(&p);
}

/* The gradients of an adapter: scale (B^T dy) x^T, and scale dy (A x)^T. */
static void add_gradients(plan *p, const rvi_float_linear *l, rvi_cuda_at down, rvi_cuda_at in,
                          rvi_cuda_at in_turned, rvi_cuda_cols dy, int n_rows)
{
    int rank = l->a->n_rows, n_in = l->a->n_cols, n_out = l->b->n_rows;
    low_rank low = low_product(p, in, operand(p, matrix(l->a), rank, false), n_in, n_rows, rank,
                               l->scale, false, true);
    rvi_cuda_gemm_job *g = &p->rest[p->n_rest++];
    *g = job_of(l->da->at, n_in, rank, n_in, RVI_CUDA_GEMM_ADD);
    add_segment(p, g, down, in_turned, n_rows);
    g = &p->rest[p->n_rest++];
    *g = job_of(l->db->at, rank, n_out, rank, RVI_CUDA_GEMM_ADD);
    add_segment(p, g, operand(p, dy, n_rows, true), low.turned, n_rows);
}

void rvi_cuda_linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                          bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    if (n_rows < 1 || rvi_cuda_is_idle(rvi_cuda_of(be))) return;
    plan p = begin_plan(be);
    rvi_cuda_at in = 0, in_turned = 0, from[RVI_MAX_LINEARS];
    low_rank low[RVI_MAX_LINEARS] = {0};
    for (int i = 0, col = 0; i < n_layers; col += l[i++].w->n_rows) {
        int n_out = l[i].w->n_rows, rank = l[i].a ? l[i].a->n_rows : 0;
        rvi_cuda_cols d = part_of(dy, col, n_out);
        from[i] = operand(&p, d, n_rows, false);
        if (rank)
            low[i] = low_product(&p, from[i], operand(&p, matrix(l[i].b), n_out, true), n_out,
                                 n_rows, rank, l[i].scale, dx.t, l[i].da);
        if (!l[i].da) continue;
        if (!in) {
            in = operand(&p, rvi_cuda_cols_of(x), n_rows, false);
            in_turned = operand(&p, rvi_cuda_cols_of(x), n_rows, true);
        }
        add_gradients(&p, &l[i], low[i].turned, in, in_turned, d, n_rows);
    }
    if (dx.t) {
        rvi_cuda_cols to = rvi_cuda_cols_of(dx);
        rvi_cuda_gemm_job *g = &p.rest[p.n_rest++];
        *g =
            job_of(to.at, to.stride, n_rows, dx.n, fresh ? RVI_CUDA_GEMM_STORE : RVI_CUDA_GEMM_ADD);
        for (int i = 0; i < n_layers; i++) {
            add_segment(&p, g, from[i], l[i].held->turned, l[i].w->n_rows);
            if (l[i].a)
                add_segment(&p, g, low[i].at, operand(&p, matrix(l[i].a), l[i].a->n_rows, true),
                            l[i].a->n_rows);
        }
    }
    run(&p);
}

/* ---- weights ---- */

static size_t operand_bytes(const rvi_cuda *c, int n_rows, int k)
{
    return (size_t)n_rows * rvi_cuda_padded(k) * rvi_cuda_element(c);
}

size_t rvi_cuda_held_bytes(rvi_backend *be, const rvi_tensor *w, bool back)
{
    const rvi_cuda *c = rvi_cuda_of(be);
    return operand_bytes(c, w->n_rows, w->n_cols) +
           (back ? operand_bytes(c, w->n_cols, w->n_rows) : 0);
}

typedef struct widening {
    const rvi_tensor *w;
    int first;
    float *to;
} widening;

static void widen_task(void *ctx, int row, int worker)
{
    const widening *j = ctx;
    size_t n = (size_t)j->w->n_cols, bytes = rvi_qtype_row_bytes(j->w->type, n);
    (void)worker;
    rvi_dequantize(j->w->type, j->w->data + (size_t)(j->first + row) * bytes,
                   j->to + (size_t)row * n, n);
}

/* n rows from `first` on, by way of the staging area, with the jobs behind them. */
static bool hold_rows(rvi_cuda *c, const rvi_held *h, const rvi_tensor *w, int first, int n)
{
    size_t floats = ((size_t)n * (size_t)w->n_cols * sizeof(float) + 15) / 16 * 16;
    rvi_cuda_operand_job jobs[2];
    int n_jobs = 0;
    void *host;
    rvi_cuda_at at = rvi_cuda_stage(c, floats + sizeof jobs, &host);
    if (!at) return false;
    rvi_pool_run_all(c->pool, widen_task, &(widening){w, first, host}, n);
    rvi_cuda_cols from = {at, w->n_cols, w->n_cols};
    size_t element = rvi_cuda_element(c), k = rvi_cuda_padded(w->n_cols);
    jobs[n_jobs++] = operand_of(from, n, h->w + (size_t)first * k * element, k, false);
    if (h->turned)
        jobs[n_jobs++] = operand_of(from, n, h->turned + (size_t)first * element,
                                    rvi_cuda_padded(w->n_rows), true);
    int n_blocks = blocks_of_operand(&jobs[0]);
    jobs[n_jobs - 1].first_block = (n_jobs - 1) * n_blocks;
    memcpy((uint8_t *)host + floats, jobs, (size_t)n_jobs * sizeof *jobs);
    add_operands(c, at + floats, n_jobs, n_jobs * n_blocks);
    return !rvi_cuda_is_idle(c);
}

rv_status rvi_cuda_held_new(rvi_backend *be, rvi_held **out, rvi_pack *pack, const rvi_tensor *w,
                            bool back, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t row = (size_t)w->n_cols * sizeof(float);
    rvi_held *h = *out = rvi_zalloc(sizeof *h);
    if (!h) return rvi_nomem(err, "weights for training");
    h->w = rvi_cuda_pack_take(pack, operand_bytes(c, w->n_rows, w->n_cols));
    if (back) h->turned = rvi_cuda_pack_take(pack, operand_bytes(c, w->n_cols, w->n_rows));
    /* whole tiles, so that what is turned is filled up with zeros behind the last row alone */
    int rows = (int)RVI_MIN((c->max_staged - 256) / row, (size_t)w->n_rows + RVI_CUDA_OPERAND);
    rows = rows / RVI_CUDA_OPERAND * RVI_CUDA_OPERAND;
    if (!rows)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "training on a CUDA device: rows of %d weights are too wide", w->n_cols);
    for (int first = 0; first < w->n_rows; first += rows)
        if (!hold_rows(c, h, w, first, RVI_MIN(rows, w->n_rows - first))) {
            rv_status st = rvi_cuda_check(be, err);
            return st ? st : rvi_error(err, RV_E_CANCELLED, "cancelled");
        }
    return RV_OK;
}

void rvi_cuda_held_free(rvi_backend *be, rvi_held *h)
{
    if (h) rvi_cuda_submit(be); /* what still fills it */
    rvi_free(h);
}
