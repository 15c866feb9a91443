/* Linear layers in float arithmetic, with adapters, forward and backward, for layers that read the
 * same rows.
 *
 * Forward and backward by the input are the same work: `out` += `in` times a matrix, for blocks of
 * rows and chunks of the matrix's inputs. The rows are packed once for all threads; the threads
 * share out the matrix's outputs, and each turns its part of the weights into packed panels that
 * stay in its cache while it reads all rows. With many threads, the rows are divided as well, so
 * that each thread reads fewer rows that others have packed. Forward, the layers' weights are
 * placed side by side along the outputs; backward, one after the other along the inputs.
 *
 * This makes adapters cheap: `in` times the first matrix is computed from the rows as they are
 * packed, and the scaled result is packed after them as additional inputs, whose weights are the
 * second matrix. Forward, the first matrices of all layers form one matrix; a layer's second matrix
 * has zeros for the results of other layers.
 *
 * Every element of a result is one sum over the inputs in their order: blocks, chunks, threads and
 * the grouping of layers do not change the bits. */
#include <string.h>

#include "backend/cpu/train.h"

/* A layer, and where its data are among those of the other layers. */
typedef struct part {
    const rvi_float_linear *l;
    int rank;
    int col;    /* its first one in y and dy */
    int low_at; /* its first one in `low` */
} part;

typedef struct group {
    rvi_cpu *cpu;
    rvi_train_scratch *s;
    const rvi_train_gemm *g;
    part parts[RVI_MAX_LINEARS];
    int n_parts, n_in, n_out; /* n_out: of all together */
    int n_low;                /* columns of `low` that the adapters take up */
    int width; /* of its rows: only whole panels are fast, and they may begin anywhere */
} group;

/* Inputs of a chunk that stand side by side, and whose first matrices read them */
typedef struct segment {
    const part *parts;
    int n_parts, at, n; /* at: of the inputs of these layers, the first */
    int low_at, n_low;  /* columns of `low` */
    bool last;          /* then `low` is complete */
    size_t k, n_padded; /* packed: offset and count; the results of `low` follow */
    size_t first;       /* where the first matrices begin, packed */
} segment;

typedef struct job {
    const group *q;
    bool back;              /* in = dy, out = dx */
    rvi_cols in, out;       /* out.t may be NULL: `low` alone */
    bool onto;              /* add to what out holds */
    float *low;             /* [rows of the block][width] scale * in * first */
    int unit, n_units;      /* outputs of a task; how many tasks they make for a part of the rows */
    int n_parts, part_rows; /* parts of the block's rows that tasks take, and rows of a part */

    int row, n_rows;   /* block */
    int task_rows;     /* of them, packed by a task */
    int next, next_at; /* what the next chunk begins with: a part, an input of it */
    segment segments[RVI_MAX_LINEARS];
    int n_segments; /* of the chunk */
    bool begun;     /* an earlier chunk's sums are in out */
    size_t k_total;
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

/* Rows that a task packs: the threads' shares of a block are alike. */
static int task_rows(const group *q, int n_rows)
{
    int share = blocks_of(n_rows, rvi_pool_size(q->cpu->pool));
    return rvi_gemm_rows(q->g, blocks_of(share, blocks_of(share, RVI_TRAIN_GROUP)));
}

/* Work for some microseconds is done before another thread has woken up. */
static void run_few(rvi_pool *pool, rvi_task_fn fn, void *ctx, int n_tasks)
{
    enum { FEW = 4 };
    if (n_tasks > FEW) {
        rvi_pool_run(pool, fn, ctx, n_tasks);
        return;
    }
    for (int i = 0; i < n_tasks; i++) fn(ctx, i, 0);
}

/* ---- layers together ---- */

/* As many of the layers as the scratch has room for; returns how many. What an adapter adds to an
 * output comes from the same steps of k as if its layer were alone: no more than one step, or whole
 * ones from their beginning. */
static int group_new(group *q, rvi_backend *be, const rvi_float_linear *l, int n_layers)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    *q = (group){.cpu = cpu, .s = cpu->train, .g = cpu->train->linear, .n_in = l->w->n_cols};
    int step = q->g->k_step;
    for (; q->n_parts < n_layers; q->n_parts++, l++) {
        int rank = l->a ? l->a->n_rows : 0, at = q->n_low;
        if (at % step + rank > step) at = blocks_of(at, step) * step;
        if (q->n_parts && at + rank > RVI_MAX_RANK) break;
        q->parts[q->n_parts] = (part){.l = l, .rank = rank, .col = q->n_out, .low_at = at};
        if (rank) q->n_low = at + rank;
        q->n_out += l->w->n_rows;
    }
    q->width = rvi_gemm_cols(q->n_low) + RVI_GEMM_PANEL;
    return q->n_parts;
}

/* How many tasks of `unit` outputs there are for a part of the rows. */
static int count_units(const group *q, bool back, int unit)
{
    int n = 0;
    if (back) return blocks_of(q->n_in, unit);
    for (int i = 0; i < q->n_parts; i++) n += blocks_of(q->parts[i].l->w->n_rows, unit);
    return n;
}

/* Cuts a block of rows and the outputs into tasks, so that all threads have about as much to do. A
 * task turns its weights into panels, multiplies, and fetches rows that other threads have packed:
 * what these cost for a task, a panel, a row of a panel and a row is from measurements with 16
 * threads, in nanoseconds for an input; only their ratios matter. */
static void cut(job *j, int n_rows)
{
    enum { MOST_PARTS = 8, FEWEST = 2, MOST = RVI_TRAIN_UNIT / RVI_GEMM_PANEL }; /* panels */
    const double of_task = 1, of_panel = 8, of_product = 0.02, of_row = 0.23;
    const group *q = j->q;
    int threads = rvi_pool_size(q->cpu->pool), fewest = FEWEST;
    double best = 0;
    for (int i = 0; j->back && i < q->n_parts; i++) { /* there outputs run along the blocks */
        int block = (int)rvi_qtypes[q->parts[i].l->w->type].block_weights;
        fewest = RVI_MAX(fewest, blocks_of(block, RVI_GEMM_PANEL));
    }
    for (int n_parts = 1; n_parts <= RVI_MIN(threads, MOST_PARTS); n_parts++) {
        int rows = rvi_gemm_rows(q->g, blocks_of(n_rows, n_parts)), parts = blocks_of(n_rows, rows);
        for (int panels = fewest; panels <= MOST; panels += 2) {
            int unit = panels * RVI_GEMM_PANEL, n_units = count_units(q, j->back, unit);
            double turns = blocks_of(n_units * parts, threads),
                   cost =
                       turns * (of_task + panels * (of_panel + of_product * rows)) + of_row * rows;
            if (best > 0 && cost >= best) continue;
            best = cost;
            j->unit = unit;
            j->n_units = n_units;
            j->n_parts = parts;
            j->part_rows = rows;
        }
    }
}

static job job_new(group *q, bool back, rvi_cols in, rvi_cols out)
{
    return (job){.q = q, .back = back, .in = in, .out = out, .low = q->s->low[back]};
}

/* ---- chunks ---- */

/* Takes inputs of the next part, at most `most`: forward, weights are cut between blocks. */
static void add_segment(job *j, int most, size_t *first)
{
    const group *q = j->q;
    const part *p = &q->parts[j->next];
    int all = j->back ? p->l->w->n_rows : q->n_in, n = all - j->next_at;
    if (n > most) n = j->back ? most : RVI_TRAIN_WHOLE;
    segment *s = &j->segments[j->n_segments++];
    *s = (segment){.parts = p,
                   .n_parts = j->back ? 1 : q->n_parts,
                   .at = j->next_at,
                   .n = n,
                   .low_at = j->back ? p->low_at : 0,
                   .n_low = j->back ? p->rank : q->n_low,
                   .last = j->next_at + n == all,
                   .k = j->k_total,
                   .n_padded = rvi_gemm_k(q->g, (size_t)n),
                   .first = *first};
    *first += rvi_gemm_b_at(q->g, s->n_padded, rvi_gemm_cols(s->n_low), 0);
    j->k_total += s->n_padded;
    if (s->last && j->out.t) j->k_total += rvi_gemm_k(q->g, (size_t)s->n_low);
    j->next_at = s->last ? 0 : j->next_at + n;
    if (s->last) j->next += s->n_parts;
}

static bool next_chunk(job *j)
{
    size_t first = 0;
    j->begun = j->next > 0 || j->next_at > 0;
    j->n_segments = 0;
    j->k_total = 0;
    while (j->k_total < RVI_TRAIN_CHUNK && j->next < j->q->n_parts) {
        if (!j->out.t && j->back && !j->q->parts[j->next].rank) {
            j->next++; /* nothing is asked of its rows */
            continue;
        }
        add_segment(j, RVI_TRAIN_CHUNK - (int)j->k_total, &first);
        if (!j->back) break;
    }
    return j->n_segments > 0;
}

/* ---- rows, and the adapters' first matrices ---- */

/* A panel of first matrices, forward: rows gathered from all layers, zeros elsewhere. */
static void first_of_layers(const job *j, const segment *s, int col, uint8_t *to, float *tile)
{
    size_t n = (size_t)s->n, stride = (size_t)j->q->n_in;
    if (s->n_parts == 1) {
        const float *a = s->parts->l->a->heap + (size_t)col * stride + (size_t)s->at;
        j->q->g->pack_b(to, s->n_padded, a, stride, true, s->n,
                        RVI_MIN(RVI_GEMM_PANEL, s->n_low - col));
        return;
    }
    memset(tile, 0, RVI_GEMM_PANEL * n * sizeof *tile);
    for (int i = 0; i < s->n_parts; i++) {
        const part *p = &s->parts[i];
        int from = RVI_MAX(col, p->low_at),
            end = RVI_MIN(col + RVI_GEMM_PANEL, p->low_at + p->rank);
        for (int c = from; c < end; c++)
            memcpy(tile + (size_t)(c - col) * n,
                   p->l->a->heap + (size_t)(c - p->low_at) * stride + (size_t)s->at,
                   n * sizeof *tile);
    }
    j->q->g->pack_b(to, s->n_padded, tile, n, true, s->n, RVI_GEMM_PANEL);
}

static void first_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    const segment *s = j->segments;
    for (int n; task >= (n = blocks_of(s->n_low, RVI_GEMM_PANEL)); s++) task -= n;
    int col = task * RVI_GEMM_PANEL, n = RVI_MIN(RVI_GEMM_PANEL, s->n_low - col);
    uint8_t *to = q->s->first + s->first + rvi_gemm_b_at(q->g, s->n_padded, col, 0);
    if (!j->back) {
        first_of_layers(j, s, col, to, q->s->tile[worker]);
        return;
    }
    size_t stride = (size_t)s->parts->rank;
    q->g->pack_b(to, s->n_padded, s->parts->l->b->heap + (size_t)s->at * stride + (size_t)col,
                 stride, false, s->n, n);
}

static void scale_low(const segment *s, float *low, int width, int n_rows)
{
    for (int i = 0; i < s->n_parts; i++) {
        const part *p = &s->parts[i];
        for (int r = 0; r < n_rows; r++) {
            float *at = low + (size_t)r * (size_t)width + (size_t)p->low_at;
            for (int c = 0; c < p->rank; c++) at[c] *= p->l->scale;
        }
    }
}

/* Packs a group of rows; with adapters also multiplies them with the first matrices, and packs the
 * result behind them. */
static void rows_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    const rvi_train_gemm *g = q->g;
    (void)worker;
    int row = task * j->task_rows, n = RVI_MIN(j->task_rows, j->n_rows - row);
    float *low = j->low + (size_t)row * (size_t)q->width;
    uint8_t *rows = q->s->rows_packed + rvi_gemm_a_at(g, j->k_total, row, 0);
    for (const segment *s = j->segments; s < j->segments + j->n_segments; s++) {
        uint8_t *to = rows + rvi_gemm_a_at(g, j->k_total, 0, s->k);
        int col = s->at + (j->back ? s->parts->col : 0);
        g->pack_a(to, j->k_total, rvi_cpu_row(j->in, j->row + row) + col, (size_t)j->in.t->stride,
                  false, n, s->n);
        if (!s->n_low) continue;
        /* whole panels and groups: what is too much is overwritten by the next layer, or never
         * read */
        g->product(to, j->k_total, rvi_gemm_rows(g, n), q->s->first + s->first, s->n_padded,
                   rvi_gemm_cols(s->n_low), s->n_padded, low + s->low_at, (size_t)q->width,
                   s->at > 0);
        if (!s->last) continue;
        scale_low(s, low, q->width, n);
        if (j->out.t)
            g->pack_a(to + rvi_gemm_a_at(g, j->k_total, 0, s->n_padded), j->k_total,
                      low + s->low_at, (size_t)q->width, false, n, s->n_low);
    }
}

/* ---- weights ---- */

static void to_floats(const group *q, const rvi_tensor *w, const uint8_t *from, float *to, int n)
{
    if (w->type == RVI_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        q->cpu->k.dequantize[w->type](from, to, (size_t)n);
}

/* A right operand in the making: outputs col .. col + n - 1 of the chunk. */
typedef struct panels {
    uint8_t *to;
    size_t k_total;
    int col, n;
    float *tile;
} panels;

/* Forward: a row of the weight is an output. */
static void pack_outputs(const group *q, const segment *s, const rvi_tensor *w, const panels *to)
{
    enum { SLICE = 256 };
    const size_t block = rvi_qtypes[w->type].block_weights, bytes = rvi_qtypes[w->type].block_bytes;
    for (int p = 0; p < to->n; p += RVI_GEMM_PANEL)
        for (int k = 0; k < s->n; k += SLICE) {
            int rows = RVI_MIN(RVI_GEMM_PANEL, to->n - p), len = RVI_MIN(SLICE, s->n - k);
            const uint8_t *from = w->data + (size_t)(to->col + p) * w->row_bytes +
                                  (size_t)(s->at + k) / block * bytes;
            for (int r = 0; r < rows; r++)
                to_floats(q, w, from + (size_t)r * w->row_bytes, to->tile + r * SLICE, len);
            q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, p, s->k + (size_t)k),
                         to->k_total, to->tile, SLICE, true, len, rows);
        }
}

/* Backward: a row of the weight is an input, and a whole number of blocks holds the outputs. */
static void pack_inputs(const group *q, const segment *s, const panels *to)
{
    enum { SLICE = 32 };
    const rvi_tensor *w = s->parts->l->w;
    const int block = (int)rvi_qtypes[w->type].block_weights;
    int from = to->col / block * block, end = blocks_of(to->col + to->n, block) * block,
        len = end - from;
    size_t skip = (size_t)(from / block) * rvi_qtypes[w->type].block_bytes;
    for (int k = 0; k < s->n; k += SLICE) {
        int rows = RVI_MIN(SLICE, s->n - k);
        for (int r = 0; r < rows; r++)
            to_floats(q, w, w->data + (size_t)(s->at + k + r) * w->row_bytes + skip,
                      to->tile + (size_t)r * (size_t)len, len);
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, 0, s->k + (size_t)k), to->k_total,
                     to->tile + (to->col - from), (size_t)len, false, rows, to->n);
    }
}

/* A layer's second matrix, forward, behind zeros for the results of the layers before it. */
static void pack_second(const group *q, const part *p, size_t k, const panels *to)
{
    size_t rank = (size_t)p->rank, stride = (size_t)p->low_at + rank;
    if (!p->low_at) {
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, 0, k), to->k_total,
                     p->l->b->heap + (size_t)to->col * rank, rank, true, p->rank, to->n);
        return;
    }
    for (int c = 0; c < to->n; c += RVI_GEMM_PANEL) {
        int cols = RVI_MIN(RVI_GEMM_PANEL, to->n - c);
        const float *from = p->l->b->heap + (size_t)(to->col + c) * rank;
        memset(to->tile, 0, (size_t)cols * stride * sizeof *to->tile);
        for (int i = 0; i < cols; i++)
            memcpy(to->tile + (size_t)i * stride + (size_t)p->low_at, from + (size_t)i * rank,
                   rank * sizeof *to->tile);
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, c, k), to->k_total, to->tile, stride,
                     true, (int)stride, cols);
    }
}

static void multiply(const job *j, const panels *p, int col, int row, int n_rows)
{
    const group *q = j->q;
    q->g->product(q->s->rows_packed + rvi_gemm_a_at(q->g, j->k_total, row, 0), j->k_total, n_rows,
                  p->to, p->k_total, p->n, p->k_total, rvi_cpu_row(j->out, j->row + row) + col,
                  (size_t)j->out.t->stride, j->onto || j->begun);
}

static void forward_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    const segment *s = j->segments;
    const part *p = q->parts;
    int unit = task % j->n_units, row = task / j->n_units * j->part_rows,
        n_rows = RVI_MIN(j->part_rows, j->n_rows - row);
    for (int n; unit >= (n = blocks_of(p->l->w->n_rows, j->unit)); p++) unit -= n;
    const rvi_float_linear *l = p->l;
    int col = unit * j->unit, n = RVI_MIN(j->unit, l->w->n_rows - col);
    bool second = p->rank && s->last;
    size_t behind = second ? rvi_gemm_k(q->g, (size_t)(p->low_at + p->rank)) : 0;
    panels to = {q->s->panel[worker], s->n_padded + behind, col, n, q->s->tile[worker]};
    pack_outputs(q, s, l->w, &to);
    if (second) pack_second(q, p, s->n_padded, &to);
    multiply(j, &to, p->col + col, row, n_rows);
    for (int r = row; l->bias && s->last && r < row + n_rows; r++)
        q->cpu->k.add(rvi_cpu_row(j->out, j->row + r) + p->col + col, l->bias->heap + col,
                      (size_t)n);
}

static void back_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    int row = task / j->n_units * j->part_rows, n_rows = RVI_MIN(j->part_rows, j->n_rows - row);
    int col = task % j->n_units * j->unit, n = RVI_MIN(j->unit, q->n_in - col);
    panels to = {q->s->panel[worker], j->k_total, col, n, q->s->tile[worker]};
    for (const segment *s = j->segments; s < j->segments + j->n_segments; s++) {
        pack_inputs(q, s, &to);
        if (s->n_low && s->last)
            q->g->pack_b(to.to + rvi_gemm_b_at(q->g, j->k_total, 0, s->k + s->n_padded), j->k_total,
                         s->parts->l->a->heap + col, (size_t)q->n_in, false, s->n_low, n);
    }
    multiply(j, &to, col, row, n_rows);
}

/* One block of rows, chunk after chunk of the inputs */
static void run_block(job *j, int row, int n_rows)
{
    rvi_pool *pool = j->q->cpu->pool;
    j->row = row;
    j->n_rows = n_rows;
    j->task_rows = task_rows(j->q, n_rows);
    j->next = j->next_at = 0;
    if (j->out.t) cut(j, n_rows);
    while (next_chunk(j)) {
        int first = 0;
        for (int i = 0; i < j->n_segments; i++)
            first += blocks_of(j->segments[i].n_low, RVI_GEMM_PANEL);
        run_few(pool, first_task, j, first);
        rvi_pool_run(pool, rows_task, j, blocks_of(n_rows, j->task_rows));
        if (j->out.t)
            rvi_pool_run(pool, j->back ? back_task : forward_task, j, j->n_units * j->n_parts);
    }
}

void rvi_cpu_linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y,
                    rvi_cols x, int n_rows)
{
    group q;
    for (int done; n_layers > 0; n_layers -= done, l += done, y.first += q.n_out) {
        done = group_new(&q, be, l, n_layers);
        job j = job_new(&q, false, x, y);
        int step = block_rows(n_rows);
        for (int row = 0; row < n_rows; row += step)
            run_block(&j, row, RVI_MIN(step, n_rows - row));
    }
}

/* ---- gradients of the adapters: da += q^T x, db^T += t^T dy for a block of rows ---- */

enum { GRAD_UNIT = 64 };

typedef struct grad_job {
    const group *q;
    rvi_cols x, dy;
    int row, n_rows;
    size_t k_total;
} grad_job;

/* t and q of all layers, already scaled, as left operands: [n_low][rows] */
static void turn_task(void *ctx, int task, int worker)
{
    const grad_job *j = ctx;
    const group *q = j->q;
    (void)worker;
    int which = task % 2, at = task / 2 * RVI_TRAIN_GROUP,
        n = RVI_MIN(RVI_TRAIN_GROUP, q->n_low - at);
    q->g->pack_a(q->s->turned[which] + rvi_gemm_a_at(q->g, j->k_total, at, 0), j->k_total,
                 q->s->low[which] + at, (size_t)q->width, true, n, j->n_rows);
}

/* Columns from `col` on of all da's between them and `sums`, [n_low][GRAD_UNIT] */
static void move_da(const group *q, int col, int n, float *sums, bool back)
{
    for (int i = 0; i < q->n_parts; i++) {
        const part *p = &q->parts[i];
        for (int r = 0; p->rank && p->l->da && r < p->rank; r++) {
            float *at = p->l->da->heap + (size_t)r * (size_t)q->n_in + (size_t)col,
                  *sum = sums + (size_t)(p->low_at + r) * GRAD_UNIT;
            memcpy(back ? at : sum, back ? sum : at, (size_t)n * sizeof *at);
        }
    }
}

static void da_task(const grad_job *j, int col, int n, uint8_t *panel, float *sums)
{
    const group *q = j->q;
    int rows = rvi_gemm_rows(q->g, q->n_low);
    memset(sums, 0, (size_t)rows * GRAD_UNIT * sizeof *sums);
    move_da(q, col, n, sums, false);
    q->g->pack_b(panel, j->k_total, rvi_cpu_row(j->x, j->row) + col, (size_t)j->x.t->stride, false,
                 j->n_rows, n);
    q->g->product(q->s->turned[1], j->k_total, rows, panel, j->k_total, rvi_gemm_cols(n),
                  j->k_total, sums, GRAD_UNIT, true);
    move_da(q, col, n, sums, true);
}

static void db_task(const grad_job *j, const part *p, int col, int n, uint8_t *panel, float *sums)
{
    const group *q = j->q;
    int skipped = p->low_at % q->g->row_group, rows = rvi_gemm_rows(q->g, skipped + p->rank);
    q->g->pack_b(panel, j->k_total, rvi_cpu_row(j->dy, j->row) + p->col + col,
                 (size_t)j->dy.t->stride, false, j->n_rows, n);
    q->g->product(q->s->turned[0] + rvi_gemm_a_at(q->g, j->k_total, p->low_at - skipped, 0),
                  j->k_total, rows, panel, j->k_total, rvi_gemm_cols(n), j->k_total, sums,
                  GRAD_UNIT, false);
    sums += skipped * GRAD_UNIT;
    for (int i = 0; i < n; i++) {
        float *db = p->l->db->heap + (size_t)(col + i) * (size_t)p->rank;
        for (int r = 0; r < p->rank; r++) db[r] += sums[r * GRAD_UNIT + i];
    }
}

static int db_tasks(const part *p)
{
    return p->rank && p->l->db ? blocks_of(p->l->w->n_rows, GRAD_UNIT) : 0;
}

static void grad_task(void *ctx, int task, int worker)
{
    const grad_job *j = ctx;
    uint8_t *panel = j->q->s->panel[worker];
    float *sums = j->q->s->tile[worker];
    int n_a = blocks_of(j->q->n_in, GRAD_UNIT), col = task * GRAD_UNIT;
    if (task < n_a) {
        da_task(j, col, RVI_MIN(GRAD_UNIT, j->q->n_in - col), panel, sums);
        return;
    }
    task -= n_a;
    const part *p = j->q->parts;
    for (int n; task >= (n = db_tasks(p)); p++) task -= n;
    col = task * GRAD_UNIT;
    db_task(j, p, col, RVI_MIN(GRAD_UNIT, p->l->w->n_rows - col), panel, sums);
}

static void back_group(group *q, rvi_cols dx, bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    rvi_pool *pool = q->cpu->pool;
    int n_b = 0, step = block_rows(n_rows);
    for (int i = 0; i < q->n_parts; i++) n_b += db_tasks(&q->parts[i]);
    if (!dx.t && !n_b) return;
    job back = job_new(q, true, dy, dx), low = job_new(q, false, x, (rvi_cols){0});
    back.onto = !fresh;
    for (int row = 0; row < n_rows; row += step) {
        int n = RVI_MIN(step, n_rows - row);
        grad_job j = {q, x, dy, row, n, rvi_gemm_k(q->g, (size_t)n)};
        run_block(&back, row, n);
        if (!n_b) continue;
        run_block(&low, row, n);
        run_few(pool, turn_task, &j, 2 * blocks_of(q->n_low, RVI_TRAIN_GROUP));
        rvi_pool_run(pool, grad_task, &j, blocks_of(q->n_in, GRAD_UNIT) + n_b);
    }
}

void rvi_cpu_linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                         bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    group q;
    for (int done; n_layers > 0; n_layers -= done, l += done, dy.first += q.n_out, fresh = false) {
        done = group_new(&q, be, l, n_layers);
        back_group(&q, dx, fresh, dy, x, n_rows);
    }
}
