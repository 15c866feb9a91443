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

#include "backend/cpu/train_linear.h"

typedef rvi_train_part part;
typedef rvi_train_group group;
typedef rvi_train_segment segment;

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

/* Rows of a block: all blocks are about equally large. */
static int block_rows(int n_rows)
{
    int each = rvi_blocks_of(n_rows, rvi_blocks_of(n_rows, RVI_TRAIN_ROWS));
    return rvi_blocks_of(each, RVI_TRAIN_GROUP) * RVI_TRAIN_GROUP;
}

/* Rows that a task packs: the threads' shares of a block are alike. */
static int task_rows(const group *q, int n_rows)
{
    int share = rvi_blocks_of(n_rows, rvi_pool_size(q->cpu->pool));
    return rvi_gemm_rows(q->g, rvi_blocks_of(share, rvi_blocks_of(share, RVI_TRAIN_GROUP)));
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

/* How many tasks of `unit` outputs there are for a part of the rows. */
static int count_units(const group *q, bool back, int unit)
{
    int n = 0;
    if (back) return rvi_blocks_of(q->n_in, unit);
    for (int i = 0; i < q->n_parts; i++) n += rvi_blocks_of(q->parts[i].l->w->n_rows, unit);
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
        fewest = RVI_MAX(fewest, rvi_blocks_of(block, RVI_GEMM_PANEL));
    }
    for (int n_parts = 1; n_parts <= RVI_MIN(threads, MOST_PARTS); n_parts++) {
        int rows = rvi_gemm_rows(q->g, rvi_blocks_of(n_rows, n_parts)),
            parts = rvi_blocks_of(n_rows, rows);
        for (int panels = fewest; panels <= MOST; panels += 2) {
            int unit = panels * RVI_GEMM_PANEL, n_units = count_units(q, j->back, unit);
            double turns = rvi_blocks_of(n_units * parts, threads),
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

static void first_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    const segment *s = j->segments;
    for (int n; task >= (n = rvi_blocks_of(s->n_low, RVI_GEMM_PANEL)); s++) task -= n;
    int col = task * RVI_GEMM_PANEL;
    uint8_t *to = q->s->first + s->first + rvi_gemm_b_at(q->g, s->n_padded, col, 0);
    rvi_train_pack_first(q, j->back, s, col, to, q->s->tile[worker]);
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
        rvi_train_scale_low(s, low, q->width, n);
        if (j->out.t)
            g->pack_a(to + rvi_gemm_a_at(g, j->k_total, 0, s->n_padded), j->k_total,
                      low + s->low_at, (size_t)q->width, false, n, s->n_low);
    }
}

/* ---- weights ---- */

static void multiply(const job *j, const rvi_train_panels *p, int col, int row, int n_rows)
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
    for (int n; unit >= (n = rvi_blocks_of(p->l->w->n_rows, j->unit)); p++) unit -= n;
    const rvi_float_linear *l = p->l;
    int col = unit * j->unit, n = RVI_MIN(j->unit, l->w->n_rows - col);
    bool second = p->rank && s->last;
    size_t behind = second ? rvi_gemm_k(q->g, (size_t)(p->low_at + p->rank)) : 0;
    rvi_train_panels to = {q->s->panel[worker], s->n_padded + behind, col, n, q->s->tile[worker]};
    rvi_train_pack_outputs(q, s, l->w, &to);
    if (second) rvi_train_pack_second(q, p, s->n_padded, &to);
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
    rvi_train_panels to = {q->s->panel[worker], j->k_total, col, n, q->s->tile[worker]};
    for (const segment *s = j->segments; s < j->segments + j->n_segments; s++) {
        rvi_train_pack_inputs(q, s, &to);
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
            first += rvi_blocks_of(j->segments[i].n_low, RVI_GEMM_PANEL);
        run_few(pool, first_task, j, first);
        rvi_pool_run(pool, rows_task, j, rvi_blocks_of(n_rows, j->task_rows));
        if (j->out.t)
            rvi_pool_run(pool, j->back ? back_task : forward_task, j, j->n_units * j->n_parts);
    }
}

void rvi_cpu_linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y,
                    rvi_cols x, int n_rows)
{
    group q;
    for (int done; n_layers > 0; n_layers -= done, l += done, y.first += q.n_out) {
        done = rvi_train_group_new(&q, be, l, n_layers);
        job j = job_new(&q, false, x, y);
        int step = block_rows(n_rows);
        for (int row = 0, n; row < n_rows; row += n) {
            n = RVI_MIN(step, n_rows - row);
            if (rvi_train_is_held(&q, false))
                rvi_train_run_held(&q, false, x, y, false, (rvi_cols){0}, row, n);
            else
                run_block(&j, row, n);
        }
    }
}

/* ---- gradients of the adapters: da += q^T x, db^T += t^T dy for a block of rows ---- */

typedef struct grad_job {
    const group *q;
    rvi_cols x, dy;
    int row, n_rows;
    size_t k_total;
    int unit; /* columns of a task */
} grad_job;

/* t and q of all layers, already scaled, as left operands: [n_low][rows]. A task turns some
 * rows. */
enum { TURNED = 64 };

static void turn_task(void *ctx, int task, int worker)
{
    const grad_job *j = ctx;
    const group *q = j->q;
    (void)worker;
    int which = task % 2, row = task / 2 * TURNED, n = RVI_MIN(TURNED, j->n_rows - row);
    q->g->pack_a(q->s->turned[which] + rvi_gemm_a_at(q->g, j->k_total, 0, (size_t)row), j->k_total,
                 q->s->low[which] + (size_t)row * (size_t)q->width, (size_t)q->width, true,
                 q->n_low, n);
}

/* Columns from `col` on of all da's between them and `sums`, [n_low][unit] */
static void move_da(const grad_job *j, int col, int n, float *sums, bool back)
{
    const group *q = j->q;
    for (int i = 0; i < q->n_parts; i++) {
        const part *p = &q->parts[i];
        for (int r = 0; p->rank && p->l->da && r < p->rank; r++) {
            float *at = p->l->da->heap + (size_t)r * (size_t)q->n_in + (size_t)col,
                  *sum = sums + (size_t)(p->low_at + r) * (size_t)j->unit;
            memcpy(back ? at : sum, back ? sum : at, (size_t)n * sizeof *at);
        }
    }
}

static void da_task(const grad_job *j, int col, int n, uint8_t *panel, float *sums)
{
    const group *q = j->q;
    int rows = rvi_gemm_rows(q->g, q->n_low);
    memset(sums, 0, (size_t)rows * (size_t)j->unit * sizeof *sums);
    move_da(j, col, n, sums, false);
    q->g->pack_b(panel, j->k_total, rvi_cpu_row(j->x, j->row) + col, (size_t)j->x.t->stride, false,
                 j->n_rows, n);
    q->g->product(q->s->turned[1], j->k_total, rows, panel, j->k_total, rvi_gemm_cols(n),
                  j->k_total, sums, (size_t)j->unit, true);
    move_da(j, col, n, sums, true);
}

static void db_task(const grad_job *j, const part *p, int col, int n, uint8_t *panel, float *sums)
{
    const group *q = j->q;
    int skipped = p->low_at % q->g->row_group, rows = rvi_gemm_rows(q->g, skipped + p->rank);
    q->g->pack_b(panel, j->k_total, rvi_cpu_row(j->dy, j->row) + p->col + col,
                 (size_t)j->dy.t->stride, false, j->n_rows, n);
    q->g->product(q->s->turned[0] + rvi_gemm_a_at(q->g, j->k_total, p->low_at - skipped, 0),
                  j->k_total, rows, panel, j->k_total, rvi_gemm_cols(n), j->k_total, sums,
                  (size_t)j->unit, false);
    sums += skipped * j->unit;
    for (int i = 0; i < n; i++) {
        float *db = p->l->db->heap + (size_t)(col + i) * (size_t)p->rank;
        for (int r = 0; r < p->rank; r++) db[r] += sums[r * j->unit + i];
    }
}

static int db_tasks(const part *p, int unit)
{
    return p->rank && p->l->db ? rvi_blocks_of(p->l->w->n_rows, unit) : 0;
}

static int count_tasks(const group *q, int unit)
{
    int n = rvi_blocks_of(q->n_in, unit);
    for (int i = 0; i < q->n_parts; i++) n += db_tasks(&q->parts[i], unit);
    return n;
}

/* So many columns that the threads have about as much to do. */
static int grad_unit(const group *q)
{
    enum { LEAST = 2 * RVI_GEMM_PANEL, OF_TASK = RVI_GEMM_PANEL }; /* what a task costs besides */
    int threads = rvi_pool_size(q->cpu->pool), best = 0, unit = LEAST,
        most = RVI_MIN((int)RVI_TRAIN_UNIT,
                       (int)RVI_TRAIN_TILE / rvi_gemm_rows(q->g, q->n_low + RVI_TRAIN_GROUP));
    for (int u = LEAST; u <= most; u += RVI_GEMM_PANEL) {
        int cost = rvi_blocks_of(count_tasks(q, u), threads) * (u + OF_TASK);
        if (best && cost >= best) continue;
        best = cost;
        unit = u;
    }
    return unit;
}

static void grad_task(void *ctx, int task, int worker)
{
    const grad_job *j = ctx;
    uint8_t *panel = j->q->s->panel[worker];
    float *sums = j->q->s->tile[worker];
    int n_a = rvi_blocks_of(j->q->n_in, j->unit), col = task * j->unit;
    if (task < n_a) {
        da_task(j, col, RVI_MIN(j->unit, j->q->n_in - col), panel, sums);
        return;
    }
    task -= n_a;
    const part *p = j->q->parts;
    for (int n; task >= (n = db_tasks(p, j->unit)); p++) task -= n;
    col = task * j->unit;
    db_task(j, p, col, RVI_MIN(j->unit, p->l->w->n_rows - col), panel, sums);
}

static void back_group(group *q, rvi_cols dx, bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    rvi_pool *pool = q->cpu->pool;
    int step = block_rows(n_rows), unit = q->n_low ? grad_unit(q) : 0;
    bool wanted = false; /* gradients of adapters */
    for (int i = 0; i < q->n_parts; i++) wanted = wanted || db_tasks(&q->parts[i], unit);
    if (!dx.t && !wanted) return;
    job back = job_new(q, true, dy, dx), low = job_new(q, false, x, (rvi_cols){0});
    back.onto = !fresh;
    for (int row = 0, n; row < n_rows; row += n) {
        n = RVI_MIN(step, n_rows - row);
        if (dx.t && rvi_train_is_held(q, true)) {
            rvi_train_run_held(q, true, dy, dx, !fresh, wanted ? x : (rvi_cols){0}, row, n);
        } else {
            run_block(&back, row, n);
            if (wanted) run_block(&low, row, n);
        }
        if (!wanted) continue;
        grad_job j = {q, x, dy, row, n, rvi_gemm_k(q->g, (size_t)n), unit};
        run_few(pool, turn_task, &j, 2 * rvi_blocks_of(n, TURNED));
        rvi_pool_run(pool, grad_task, &j, count_tasks(q, unit));
    }
}

void rvi_cpu_linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                         bool fresh, rvi_cols dy, rvi_cols x, int n_rows)
{
    group q;
    for (int done; n_layers > 0; n_layers -= done, l += done, dy.first += q.n_out, fresh = false) {
        done = rvi_train_group_new(&q, be, l, n_layers);
        if (rvi_train_is_tall(&q, dx))
            rvi_train_run_tall(&q, dx, fresh, dy, n_rows);
        else
            back_group(&q, dx, fresh, dy, x, n_rows);
    }
}
