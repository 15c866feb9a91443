/* Linear layers in float arithmetic, with an adapter, forward and backward.
 *
 * Forward and backward by the input are the same work: `out` += `in` times a matrix, for blocks of rows and chunks of the
 * matrix's inputs. The rows are packed once for all threads; the threads share out the matrix's outputs, and each turns
 * its part of the weights into packed panels that stay in its cache while all rows of the block go by.
 *
 * An adapter costs little this way: `in` times its first matrix comes from the rows as they are packed, and the (scaled)
 * result is packed behind them, as more inputs, which meet the second matrix behind the weights.
 *
 * Every element of a result is one sum over the inputs in their order: neither blocks, chunks nor threads show. */
#include <string.h>

#include "backend/cpu/train.h"

typedef struct job {
    rvi_cpu *cpu;
    rvi_train_scratch *s;
    const rvi_train_gemm *g;
    const rvi_float_linear *l;
    bool back;        /* in = dy, out = dx */
    rvi_cols in, out; /* out.t may be NULL: the adapter's part alone */
    bool onto;        /* add to what out holds */
    const rvi_tensor *first,
        *second; /* the adapter's matrices in the order of their use, or NULL */
    int rank, n_in,
        n_out;  /* of this product: the weight's own in the backward are the other way round */
    float *low; /* [rows of the block][width] scale * in * first */
    int width;  /* the rank in whole panels: only whole ones are fast */

    int row, n_rows; /* block */
    int at, n;       /* chunk of inputs */
    bool last;       /* chunk */
    size_t n_padded,
        k_total; /* packed: the chunk, and with the adapter's part behind the last one */
    int unit;    /* outputs of a task */
} job;

static int blocks_of(int n, int size)
{
    return (n + size - 1) / size;
}

/* Rows of a block: all blocks are about equally large. */
static int block_rows(int n_rows)
{
    int each = blocks_of(n_rows, blocks_of(n_rows, RVI_TRAIN_ROWS));
    return blocks_of(each, RVI_TRAIN_GROUP) * RVI_TRAIN_GROUP;
}

/* Outputs of a task: as many tasks for every thread, each of no more than some panels that stay in cache. */
static int unit_of(const job *j)
{
    enum { PANELS = 6 };
    int threads = rvi_pool_size(j->cpu->pool),
        share = blocks_of(blocks_of(j->n_out, RVI_GEMM_PANEL), threads);
    int panels = blocks_of(blocks_of(share, blocks_of(share, PANELS)), 2) * 2,
        unit = panels * RVI_GEMM_PANEL;
    int block = (int)rvi_qtypes[j->l->w->type]
                    .block_weights; /* in the backward outputs run along the blocks */
    return j->back && block > unit ? block : unit;
}

/* ---- rows, and the adapter's first matrix ---- */

static void first_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    (void)worker;
    int col = task * RVI_GEMM_PANEL, n = RVI_MIN(RVI_GEMM_PANEL, j->rank - col);
    size_t stride = (size_t)j->first->n_cols;
    const float *from = j->back ? j->first->heap + (size_t)j->at * stride + (size_t)col
                                : j->first->heap + (size_t)col * stride + (size_t)j->at;
    j->g->pack_b(j->s->first + rvi_gemm_b_at(j->g, j->n_padded, col, 0), j->n_padded, from, stride,
                 !j->back, j->n, n);
}

/* Packs a group of rows; with an adapter also multiplies them with its first matrix, and packs the result behind them. */
static void rows_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_train_gemm *g = j->g;
    (void)worker;
    int row = task * RVI_TRAIN_GROUP, n = RVI_MIN(RVI_TRAIN_GROUP, j->n_rows - row);
    uint8_t *to = j->s->rows_packed + rvi_gemm_a_at(g, j->k_total, row, 0);
    g->pack_a(to, j->k_total, rvi_cpu_row(j->in, j->row + row) + j->at, (size_t)j->in.t->stride,
              false, n, j->n);
    if (!j->rank) return;
    size_t width = (size_t)j->width;
    float *low = j->low + (size_t)row * width;
    g->product(to, j->k_total, n, j->s->first, j->n_padded, j->width, j->n_padded, low, width,
               j->at > 0);
    if (!j->last) return;
    j->cpu->k.scale(low, j->l->scale, (size_t)n * width);
    if (j->out.t)
        g->pack_a(to + rvi_gemm_a_at(g, j->k_total, 0, j->n_padded), j->k_total, low, width, false,
                  n, j->rank);
}

/* ---- weights ---- */

static void to_floats(const job *j, const uint8_t *from, float *to, int n)
{
    if (j->l->w->type == RVI_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        j->cpu->k.dequantize[j->l->w->type](from, to, (size_t)n);
}

/* Outputs col .. col + n - 1 of the chunk, forward: a row of the weight is an output. */
static void pack_outputs(const job *j, int col, int n, uint8_t *panel, float *tile)
{
    enum { SLICE = 256 };
    const rvi_tensor *w = j->l->w;
    const size_t block = rvi_qtypes[w->type].block_weights, bytes = rvi_qtypes[w->type].block_bytes;
    for (int p = 0; p < n; p += RVI_GEMM_PANEL)
        for (int k = 0; k < j->n; k += SLICE) {
            int rows = RVI_MIN(RVI_GEMM_PANEL, n - p), len = RVI_MIN(SLICE, j->n - k);
            const uint8_t *from =
                w->data + (size_t)(col + p) * w->row_bytes + (size_t)(j->at + k) / block * bytes;
            for (int r = 0; r < rows; r++)
                to_floats(j, from + (size_t)r * w->row_bytes, tile + r * SLICE, len);
            j->g->pack_b(panel + rvi_gemm_b_at(j->g, j->k_total, p, (size_t)k), j->k_total, tile,
                         SLICE, true, len, rows);
        }
}

/* The same backward: a row of the weight is an input, and a whole number of blocks holds the outputs. */
static void pack_inputs(const job *j, int col, int n, uint8_t *panel, float *tile)
{
    enum { SLICE = 32 };
    const rvi_tensor *w = j->l->w;
    const int block = (int)rvi_qtypes[w->type].block_weights;
    int from = col / block * block, end = blocks_of(col + n, block) * block, len = end - from;
    size_t skip = (size_t)(from / block) * rvi_qtypes[w->type].block_bytes;
    for (int k = 0; k < j->n; k += SLICE) {
        int rows = RVI_MIN(SLICE, j->n - k);
        for (int r = 0; r < rows; r++)
            to_floats(j, w->data + (size_t)(j->at + k + r) * w->row_bytes + skip,
                      tile + (size_t)r * (size_t)len, len);
        j->g->pack_b(panel + rvi_gemm_b_at(j->g, j->k_total, 0, (size_t)k), j->k_total,
                     tile + (col - from), (size_t)len, false, rows, n);
    }
}

static void outputs_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_train_gemm *g = j->g;
    int col = task * j->unit, n = RVI_MIN(j->unit, j->n_out - col);
    uint8_t *panel = j->s->panel[worker];
    (j->back ? pack_inputs : pack_outputs)(j, col, n, panel, j->s->tile[worker]);
    if (j->rank && j->last) {
        size_t stride = (size_t)j->second->n_cols;
        const float *from = j->second->heap + (size_t)col * (j->back ? 1 : stride);
        g->pack_b(panel + rvi_gemm_b_at(g, j->k_total, 0, j->n_padded), j->k_total, from, stride,
                  !j->back, j->rank, n);
    }
    g->product(j->s->rows_packed, j->k_total, j->n_rows, panel, j->k_total, n, j->k_total,
               rvi_cpu_row(j->out, j->row) + col, (size_t)j->out.t->stride, j->onto || j->at > 0);
    for (int r = 0; j->l->bias && !j->back && j->last && r < j->n_rows; r++)
        j->cpu->k.add(rvi_cpu_row(j->out, j->row + r) + col, j->l->bias->heap + col, (size_t)n);
}

/* One block of rows, chunk after chunk of the inputs */
static void run_block(job *j)
{
    rvi_pool *pool = j->cpu->pool;
    for (j->at = 0; j->at < j->n_in; j->at += j->n) {
        j->n = RVI_MIN(RVI_TRAIN_CHUNK, j->n_in - j->at);
        j->last = j->at + j->n == j->n_in;
        j->n_padded = rvi_gemm_k(j->g, (size_t)j->n);
        j->k_total = j->n_padded + (j->last && j->out.t ? rvi_gemm_k(j->g, (size_t)j->rank) : 0);
        if (j->rank) rvi_pool_run(pool, first_task, j, blocks_of(j->rank, RVI_GEMM_PANEL));
        rvi_pool_run(pool, rows_task, j, blocks_of(j->n_rows, RVI_TRAIN_GROUP));
        if (j->out.t) rvi_pool_run(pool, outputs_task, j, blocks_of(j->n_out, j->unit));
    }
}

static job job_new(rvi_backend *be, const rvi_float_linear *l, bool back)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    job j = {.cpu = cpu,
             .s = cpu->train,
             .g = cpu->train->linear,
             .l = l,
             .back = back,
             .onto = back && !l->fresh};
    j.n_in = back ? l->w->n_rows : l->w->n_cols;
    j.n_out = back ? l->w->n_cols : l->w->n_rows;
    if (l->a) {
        j.rank = l->a->n_rows;
        j.width = rvi_gemm_cols(j.rank);
        j.first = back ? l->b : l->a;
        j.second = back ? l->a : l->b;
    }
    j.low = cpu->train->low[back];
    j.unit = unit_of(&j);
    return j;
}

void rvi_cpu_linear(rvi_backend *be, const rvi_float_linear *l, rvi_cols y, rvi_cols x)
{
    job j = job_new(be, l, false);
    j.in = x;
    j.out = y;
    int step = block_rows(l->n_rows);
    for (j.row = 0; j.row < l->n_rows; j.row += step) {
        j.n_rows = RVI_MIN(step, l->n_rows - j.row);
        run_block(&j);
    }
}

/* ---- gradients of the adapter: da += q^T x, db^T += t^T dy for a block of rows ---- */

enum { GRAD_UNIT = 64 };

typedef struct grad_job {
    rvi_cpu *cpu;
    rvi_train_scratch *s;
    rvi_cols x, dy;
    rvi_tensor *da, *db;
    int row, n_rows, rank, width;
    size_t k_total;
} grad_job;

/* q and t, already scaled, as left operands: [rank][rows] */
static void turn_task(void *ctx, int which, int worker)
{
    const grad_job *j = ctx;
    (void)worker;
    j->s->linear->pack_a(j->s->turned[which], j->k_total, j->s->low[which], (size_t)j->width, true,
                         j->rank, j->n_rows);
}

static void grad_task(void *ctx, int task, int worker)
{
    const grad_job *j = ctx;
    const rvi_train_gemm *g = j->s->linear;
    int n_a = blocks_of(j->x.n, GRAD_UNIT), col = (task < n_a ? task : task - n_a) * GRAD_UNIT;
    rvi_cols from = task < n_a ? j->x : j->dy;
    int n = RVI_MIN(GRAD_UNIT, from.n - col);
    uint8_t *panel = j->s->panel[worker];
    g->pack_b(panel, j->k_total, rvi_cpu_row(from, j->row) + col, (size_t)from.t->stride, false,
              j->n_rows, n);
    if (task < n_a) {
        g->product(j->s->turned[1], j->k_total, j->rank, panel, j->k_total, n, j->k_total,
                   j->da->heap + col, (size_t)j->da->n_cols, true);
        return;
    }
    float *sum = j->s->tile[worker];
    g->product(j->s->turned[0], j->k_total, j->rank, panel, j->k_total, n, j->k_total, sum,
               GRAD_UNIT, false);
    for (int i = 0; i < n; i++) {
        float *db = j->db->heap + (size_t)(col + i) * (size_t)j->rank;
        for (int r = 0; r < j->rank; r++) db[r] += sum[r * GRAD_UNIT + i];
    }
}

void rvi_cpu_linear_back(rvi_backend *be, const rvi_float_linear *l, rvi_cols dx, rvi_cols dy,
                         rvi_cols x, rvi_tensor *da, rvi_tensor *db)
{
    job back = job_new(be, l, true), low = job_new(be, l, false);
    bool grads = l->a && da && db;
    back.in = dy;
    back.out = dx;
    low.in = x;
    if (!dx.t && !grads) return;
    grad_job j = {.cpu = back.cpu,
                  .s = back.s,
                  .x = x,
                  .dy = dy,
                  .da = da,
                  .db = db,
                  .rank = back.rank,
                  .width = back.width};
    int step = block_rows(l->n_rows);
    for (int row = 0; row < l->n_rows; row += step) {
        j.row = back.row = low.row = row;
        j.n_rows = back.n_rows = low.n_rows = RVI_MIN(step, l->n_rows - row);
        j.k_total = rvi_gemm_k(back.g, (size_t)j.n_rows);
        run_block(&back);
        if (!grads) continue;
        run_block(&low);
        rvi_pool_run(j.cpu->pool, turn_task, &j, 2);
        rvi_pool_run(j.cpu->pool, grad_task, &j,
                     blocks_of(x.n, GRAD_UNIT) + blocks_of(dy.n, GRAD_UNIT));
    }
}
