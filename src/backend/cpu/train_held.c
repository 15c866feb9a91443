/* Linear layers whose weights are held packed.
 *
 * Where a thread turns its part of the weights into panels, all rows have to meet that part there:
 * each thread reads the rows that all others wrote, and its results are next read by all others.
 * With many threads, waiting for lines of other cores takes longer than the products. With weights
 * that are held packed as long as a trainer lives, a thread takes a few rows through much of the
 * product instead, those near its own of the ops before and after.
 *
 * Sums run in the same order as in train_linear.c, so the bits are the same. */
#include <string.h>

#include "backend/cpu/train_linear.h"
#include "base/mem.h"

typedef rvi_train_part part;
typedef rvi_train_group group;
typedef rvi_train_segment segment;
typedef rvi_train_panels panels;

enum {
    SMALL = 4 << 20, /* bytes of weights that go by every thread; of larger ones, half by each of
                         two threads that share a block of rows */
    LEAST_ROWS = 32, /* of a block, */
    MOST_ROWS = RVI_TRAIN_BLOCK,
    IN_CACHE = 512 << 10, /* bytes of a part of the panels */
    TASKS = 4,            /* of a thread: who is late leaves some of them to the others */
    X_TASKS = 2,          /* of a block: those for `low` of the layers' input, backward */
    PACKED_AT_ONCE = 256  /* outputs of a task that packs: a multiple of every block of weights */
};

struct rvi_held {
    uint8_t *panels[2]; /* of the forward and of the backward; NULL: not wanted */
    bool ready[2];
};

/* ---- the object ---- */

static size_t panel_bytes(const rvi_train_gemm *g, const rvi_tensor *w, bool back)
{
    int k = back ? w->n_rows : w->n_cols, n = back ? w->n_cols : w->n_rows;
    return rvi_gemm_b_at(g, rvi_gemm_k(g, (size_t)k), rvi_gemm_cols(n), 0);
}

size_t rvi_cpu_held_bytes(rvi_backend *be, const rvi_tensor *w, bool back)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    if (rvi_pool_size(cpu->pool) < RVI_TRAIN_MANY) return 0;
    const rvi_train_gemm *g = rvi_cpu_train_gemm(cpu);
    return panel_bytes(g, w, false) + (back ? panel_bytes(g, w, true) : 0);
}

rv_status rvi_cpu_held_new(rvi_backend *be, rvi_held **out, rvi_pack *pack, const rvi_tensor *w,
                           bool back, rv_error *err)
{
    const rvi_train_gemm *g = rvi_cpu_train_gemm(rvi_cpu_of(be));
    rvi_held *h = *out = rvi_zalloc(sizeof *h);
    if (!h) return rvi_nomem(err, "packed weights");
    for (int i = 0; i <= back; i++) {
        h->panels[i] = pack->data + pack->used;
        pack->used += panel_bytes(g, w, i);
    }
    return RV_OK;
}

void rvi_cpu_held_free(rvi_backend *be, rvi_held *h)
{
    (void)be;
    rvi_free(h);
}

/* ---- packing, when a weight is first used ---- */

typedef struct packing {
    const group *q;
    const part *p;
    bool back;
} packing;

static void pack_task(void *ctx, int task, int worker)
{
    const packing *j = ctx;
    const group *q = j->q;
    const rvi_tensor *w = j->p->l->w;
    int k = j->back ? w->n_rows : w->n_cols, n = j->back ? w->n_cols : w->n_rows,
        col = task * PACKED_AT_ONCE;
    segment s = {.parts = j->p, .n_parts = 1, .n = k};
    size_t k_total = rvi_gemm_k(q->g, (size_t)k);
    uint8_t *to = j->p->l->held->panels[j->back] + rvi_gemm_b_at(q->g, k_total, col, 0);
    panels out = {to, k_total, col, RVI_MIN(PACKED_AT_ONCE, n - col), q->s->tile[worker]};
    if (j->back)
        rvi_train_pack_inputs(q, &s, &out);
    else
        rvi_train_pack_outputs(q, &s, w, &out);
}

const uint8_t *rvi_train_held_panels(const group *q, const part *p, bool back)
{
    rvi_held *h = p->l->held;
    if (!h || !h->panels[back]) return NULL;
    if (!h->ready[back]) {
        packing j = {q, p, back};
        int n = back ? p->l->w->n_cols : p->l->w->n_rows;
        /* whether or not the computation is stopped: the panels stay */
        rvi_pool_run_all(q->cpu->pool, pack_task, &j, rvi_blocks_of(n, PACKED_AT_ONCE));
        h->ready[back] = true;
    }
    return h->panels[back];
}

/* ---- rows as left operand ---- */

typedef struct job {
    const group *q;
    bool back;
    rvi_cols in, out, x; /* x.t NULL: no `low` of it */
    bool onto;
    int row, n_rows;
    int n_groups, n_blocks; /* of rows */
    int unit;               /* outputs of a task */
    int n_units, n_tasks;   /* of a block */
    uint64_t number;
    size_t k_total; /* of the rows packed, with the results of `low` behind their inputs */
    const uint8_t *panels[RVI_MAX_LINEARS];         /* of the layers */
    size_t at[RVI_MAX_LINEARS], k[RVI_MAX_LINEARS]; /* backward: where a layer's inputs begin */
} job;

/* Some rows of the job, what they are packed to, and where `low` of them goes */
typedef struct rows {
    const job *j;
    int row, n;
    uint8_t *packed;
    size_t k_total;
    float *low;
    uint8_t *panel; /* scratch */
    float *tile;
} rows;

static uint8_t *packed_at(const rows *r, size_t k)
{
    return r->packed + rvi_gemm_a_at(r->j->q->g, r->k_total, 0, k);
}

/* Packs all inputs of the layers s->parts at `k`, and multiplies them with the first matrices. */
static void take_inputs(const rows *r, bool back, rvi_cols in, segment s, size_t k)
{
    const group *q = r->j->q;
    int all = s.n;
    q->g->pack_a(packed_at(r, k), r->k_total,
                 rvi_cpu_row(in, r->j->row + r->row) + (back ? s.parts->col : 0),
                 (size_t)in.t->stride, false, r->n, all);
    if (!s.n_low) return;
    for (s.at = 0; s.at < all; s.at += s.n) {
        s.n = RVI_MIN(RVI_TRAIN_CHUNK, all - s.at);
        s.n_padded = rvi_gemm_k(q->g, (size_t)s.n);
        for (int col = 0; col < s.n_low; col += RVI_GEMM_PANEL) {
            rvi_train_pack_first(q, back, &s, col, r->panel, r->tile);
            q->g->product(packed_at(r, k + (size_t)s.at), r->k_total, r->n, r->panel, s.n_padded,
                          RVI_GEMM_PANEL, s.n_padded, r->low + s.low_at + col, (size_t)q->width,
                          s.at > 0);
        }
    }
    rvi_train_scale_low(&s, r->low, q->width, r->n);
}

static void pack_low(const rows *r, int low_at, int n_low, size_t k)
{
    const group *q = r->j->q;
    if (n_low)
        q->g->pack_a(packed_at(r, k), r->k_total, r->low + low_at, (size_t)q->width, false, r->n,
                     n_low);
}

static segment all_inputs(const group *q)
{
    return (segment){.parts = q->parts, .n_parts = q->n_parts, .n = q->n_in, .n_low = q->n_low};
}

static void take_rows(const rows *r)
{
    const job *j = r->j;
    const group *q = j->q;
    if (!j->back) {
        take_inputs(r, false, j->in, all_inputs(q), 0);
        pack_low(r, 0, q->n_low, rvi_gemm_k(q->g, (size_t)q->n_in));
        return;
    }
    for (int i = 0; i < q->n_parts; i++) {
        const part *p = &q->parts[i];
        segment s = {
            .parts = p, .n_parts = 1, .n = p->l->w->n_rows, .low_at = p->low_at, .n_low = p->rank};
        take_inputs(r, true, j->in, s, j->at[i]);
        pack_low(r, p->low_at, p->rank, j->at[i] + j->k[i]);
    }
}

/* ---- tasks ---- */

/* The first row of block i: whole groups */
static int block_at(const job *j, int i)
{
    int groups = (int)((int64_t)j->n_groups * i / j->n_blocks);
    return RVI_MIN(groups * j->q->g->row_group, j->n_rows);
}

static float *shared_low(const job *j, bool back, int row)
{
    return j->q->s->low[back] + (size_t)row * (size_t)j->q->width;
}

/* Rows that a worker's panel has room for, in whole groups, beside a panel of its own */
static int most_x_rows(const group *q)
{
    size_t room = RVI_TRAIN_UNIT * RVI_MAX_RANK / rvi_gemm_k(q->g, (size_t)q->n_in);
    return (int)room / q->g->row_group * q->g->row_group;
}

/* `low` of rows of x, which are packed before a panel for it */
static void x_task(const job *j, int row, int end, int worker)
{
    const group *q = j->q;
    size_t k = rvi_gemm_k(q->g, (size_t)q->n_in);
    int most = most_x_rows(q);
    for (int n; row < end; row += n) {
        n = RVI_MIN(most, end - row);
        uint8_t *packed = q->s->panel[worker];
        rows r = {.j = j,
                  .row = row,
                  .n = n,
                  .packed = packed,
                  .k_total = k,
                  .low = shared_low(j, false, row),
                  .panel = packed + rvi_gemm_a_at(q->g, k, rvi_gemm_rows(q->g, n), 0),
                  .tile = q->s->tile[worker]};
        take_inputs(&r, false, j->x, all_inputs(q), 0);
    }
}

/* A block's rows and the sums of some of their outputs, from column `col` of `out` on, in memory of
 * the worker's own: packed rows are read once for every two panels and sums are written in pieces,
 * which for lines of other cores would cost their way each time. */
typedef struct piece {
    rows r;
    float *sums;
    int col, n;
} piece;

enum { SUMS_STRIDE = RVI_TRAIN_UNIT + 16 };

static void multiply(const piece *o, size_t at, const uint8_t *right, size_t k, bool onto)
{
    o->r.j->q->g->product(packed_at(&o->r, at), o->r.k_total, o->r.n, right, k, o->n, k, o->sums,
                          SUMS_STRIDE, onto);
}

static void move_sums(const piece *o, bool out)
{
    const job *j = o->r.j;
    for (int i = 0; i < o->r.n; i++) {
        float *at = rvi_cpu_row(j->out, j->row + o->r.row + i) + o->col,
              *sum = o->sums + (size_t)i * SUMS_STRIDE;
        memcpy(out ? at : sum, out ? sum : at, (size_t)o->n * sizeof *at);
    }
}

static void forward_piece(piece *o, int unit)
{
    const job *j = o->r.j;
    const group *q = j->q;
    const part *p = q->parts;
    for (int n; unit >= (n = rvi_blocks_of(p->l->w->n_rows, j->unit)); p++) unit -= n;
    const rvi_float_linear *l = p->l;
    int col = unit * j->unit;
    size_t k = rvi_gemm_k(q->g, (size_t)q->n_in),
           second = p->rank ? rvi_gemm_k(q->g, (size_t)(p->low_at + p->rank)) : 0;
    o->col = p->col + col;
    o->n = RVI_MIN(j->unit, l->w->n_rows - col);
    if (j->onto) move_sums(o, false);
    multiply(o, 0, j->panels[p - q->parts] + rvi_gemm_b_at(q->g, k, col, 0), k, j->onto);
    if (second) {
        panels to = {o->r.panel, second, col, o->n, o->r.tile};
        rvi_train_pack_second(q, p, 0, &to);
        multiply(o, k, o->r.panel, second, true);
    }
    for (int r = 0; l->bias && r < o->r.n; r++)
        q->cpu->k.add(o->sums + (size_t)r * SUMS_STRIDE, l->bias->heap + col, (size_t)o->n);
    move_sums(o, true);
}

static void back_piece(piece *o, int unit)
{
    const job *j = o->r.j;
    const group *q = j->q;
    o->col = unit * j->unit;
    o->n = RVI_MIN(j->unit, q->n_in - o->col);
    if (j->onto) move_sums(o, false);
    for (int i = 0; i < q->n_parts; i++) {
        const part *p = &q->parts[i];
        multiply(o, j->at[i], j->panels[i] + rvi_gemm_b_at(q->g, j->k[i], o->col, 0), j->k[i],
                 j->onto || i > 0);
        if (!p->rank) continue;
        size_t low = rvi_gemm_k(q->g, (size_t)p->rank);
        q->g->pack_b(o->r.panel, low, p->l->a->heap + o->col, (size_t)q->n_in, false, p->rank,
                     o->n);
        multiply(o, j->at[i] + j->k[i], o->r.panel, low, true);
    }
    move_sums(o, true);
}

static void task_of_block(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_train_scratch *s = j->q->s;
    int block = task / j->n_tasks, unit = task % j->n_tasks, row = block_at(j, block),
        end = block_at(j, block + 1);
    if (unit >= j->n_units) {
        int half = RVI_MIN(row + rvi_gemm_rows(j->q->g, (end - row) / X_TASKS), end);
        x_task(j, unit == j->n_units ? row : half, unit == j->n_units ? half : end, worker);
        return;
    }
    rvi_train_block *own = &s->blocks[worker];
    piece o = {.r = {.j = j,
                     .row = row,
                     .n = end - row,
                     .packed = own->packed,
                     .k_total = j->k_total,
                     .low = own->low,
                     .panel = s->panel[worker],
                     .tile = s->tile[worker]},
               .sums = own->sums};
    if (own->number != j->number || own->block != block) take_rows(&o.r);
    own->number = j->number;
    own->block = block;
    if (unit == 0 && j->q->n_low) /* for the gradients */
        memcpy(shared_low(j, j->back, row), own->low,
               (size_t)o.r.n * (size_t)j->q->width * sizeof *own->low);
    if (j->back)
        back_piece(&o, unit);
    else
        forward_piece(&o, unit);
}

static int count_units(const group *q, bool back, int unit)
{
    int n = 0;
    if (back) return rvi_blocks_of(q->n_in, unit);
    for (int i = 0; i < q->n_parts; i++) n += rvi_blocks_of(q->parts[i].l->w->n_rows, unit);
    return n;
}

/* Blocks of rows, and as many outputs as stay in the cache, or fewer, so that all threads have
 * something to do */
static void cut(job *j, size_t k)
{
    enum { LEAST = 2 * RVI_GEMM_PANEL };
    const group *q = j->q;
    int threads = rvi_pool_size(q->cpu->pool), n_out = j->back ? q->n_in : q->n_out;
    int most = (MOST_ROWS / q->g->row_group) - 1; /* groups: blocks differ by one */
    j->n_groups = rvi_blocks_of(j->n_rows, q->g->row_group);
    size_t weights = k * (size_t)n_out * (size_t)q->g->number_bytes;
    int sharing = weights <= SMALL ? 1 : 2, least = LEAST_ROWS * sharing;
    j->n_blocks = RVI_MIN(threads / sharing, RVI_MAX(j->n_rows / least, 1));
    j->n_blocks = RVI_MAX(j->n_blocks, rvi_blocks_of(j->n_groups, most));
    int unit = (int)RVI_MIN(IN_CACHE / (k * q->g->number_bytes), (size_t)RVI_TRAIN_UNIT);
    unit = RVI_MIN(unit, n_out / rvi_blocks_of(TASKS * threads, j->n_blocks));
    j->unit = RVI_MAX(unit / LEAST * LEAST, (int)LEAST);
    j->n_units = count_units(q, j->back, j->unit);
    j->n_tasks = j->n_units + (j->x.t ? X_TASKS : 0);
}

bool rvi_train_is_held(const group *q, bool back)
{
    bool held = q->s->blocks && most_x_rows(q) > 0 && (back ? q->n_out : q->n_in) <= q->s->max_cols;
    for (int i = 0; held && i < q->n_parts; i++)
        held = q->parts[i].l->held && q->parts[i].l->held->panels[back];
    return held;
}

void rvi_train_run_held(const group *q, bool back, rvi_cols in, rvi_cols out, bool onto, rvi_cols x,
                        int row, int n_rows)
{
    size_t k = rvi_gemm_k(q->g, (size_t)q->n_in);
    job j = {.q = q, .back = back, .in = in, .out = out, .x = x, .onto = onto};
    j.row = row;
    j.n_rows = n_rows;
    j.number = ++q->s->n_held;
    j.k_total = k + rvi_gemm_k(q->g, (size_t)q->n_low);
    for (int i = 0; back && i < q->n_parts; i++) {
        j.at[i] = i ? j.k_total : 0;
        j.k[i] = rvi_gemm_k(q->g, (size_t)q->parts[i].l->w->n_rows);
        j.k_total = j.at[i] + j.k[i] + rvi_gemm_k(q->g, (size_t)q->parts[i].rank);
    }
    for (int i = 0; i < q->n_parts; i++) j.panels[i] = rvi_train_held_panels(q, &q->parts[i], back);
    cut(&j, back ? j.k_total : k);
    rvi_pool_run(q->cpu->pool, task_of_block, &j, j.n_blocks * j.n_tasks);
}
