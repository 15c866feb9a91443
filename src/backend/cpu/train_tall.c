/* The backward of a layer with far more outputs than inputs and without an adapter: a model's head.
 *
 * There is little of dx for threads to share out, and much to add up for it. So the outputs are cut
 * into slices, as many for any number of threads; each gives a sum of its own, one after the other
 * along its outputs, and dx is the sum of these in the order of the slices. */
#include <string.h>

#include "backend/cpu/train_linear.h"

typedef rvi_train_group group;

enum {
    SLICES = 16,
    TALL = SLICES * RVI_TRAIN_WHOLE, /* outputs, at least */
    CHUNK = RVI_TRAIN_WHOLE,         /* of them at a time */
    MOST_ROWS = 2 * RVI_TRAIN_GROUP, /* of dy at a time, */
    MOST_COLS = 640                  /* and columns of dx */
};
_Static_assert(CHUNK *(MOST_ROWS + MOST_COLS) <= RVI_TRAIN_UNIT * (RVI_TRAIN_CHUNK + RVI_MAX_RANK),
               "rows and panels fit into a worker's panel");

typedef struct job {
    const group *q;
    rvi_cols dx, dy;
    bool fresh;
    const uint8_t *held; /* the weights packed; NULL: they are not held */
    int row, n_rows;     /* no more than the sums have room for */
} job;

bool rvi_train_is_tall(const group *q, rvi_cols dx)
{
    return dx.t && q->n_parts == 1 && !q->n_low && q->n_out >= TALL &&
           SLICES * RVI_TRAIN_GROUP * q->n_in <= RVI_TRAIN_PARTS;
}

static float *sums_of(const job *j, int slice)
{
    return j->q->s->parts + (size_t)slice * (size_t)j->n_rows * (size_t)j->q->n_in;
}

/* The first output of a slice */
static int slice_at(const group *q, int slice)
{
    return (int)((int64_t)rvi_blocks_of(q->n_out, CHUNK) * slice / SLICES) * CHUNK;
}

static void slice_task(void *ctx, int slice, int worker)
{
    const job *j = ctx;
    const group *q = j->q;
    const rvi_train_gemm *g = q->g;
    int first = slice_at(q, slice), end = RVI_MIN(slice_at(q, slice + 1), q->n_out);
    uint8_t *rows = q->s->panel[worker],
            *panel = rows + rvi_gemm_a_at(g, CHUNK, rvi_gemm_rows(g, j->n_rows), 0);
    for (int at = first; at < end; at += CHUNK) {
        int n = RVI_MIN(CHUNK, end - at);
        rvi_train_segment s = {.parts = q->parts, .n_parts = 1, .at = at, .n = n};
        size_t k = rvi_gemm_k(g, (size_t)n);
        g->pack_a(rows, k, rvi_cpu_row(j->dy, j->row) + at, (size_t)j->dy.t->stride, false,
                  j->n_rows, n);
        if (j->held) {
            size_t all = rvi_gemm_k(g, (size_t)q->n_out);
            g->product(rows, k, j->n_rows, j->held + rvi_gemm_b_at(g, all, 0, (size_t)at), all,
                       q->n_in, k, sums_of(j, slice), (size_t)q->n_in, at > first);
            continue;
        }
        for (int col = 0, cols; col < q->n_in; col += cols) {
            cols = RVI_MIN(q->n_in - col, MOST_COLS);
            rvi_train_panels to = {panel, k, col, cols, q->s->tile[worker]};
            rvi_train_pack_inputs(q, &s, &to);
            g->product(rows, k, j->n_rows, panel, k, cols, k, sums_of(j, slice) + col,
                       (size_t)q->n_in, at > first);
        }
    }
}

static void add_task(void *ctx, int row, int worker)
{
    const job *j = ctx;
    size_t n = (size_t)j->q->n_in;
    float *dx = rvi_cpu_row(j->dx, j->row + row);
    (void)worker;
    for (int i = 0; i < SLICES; i++) {
        const float *sums = sums_of(j, i) + (size_t)row * n;
        if (i == 0 && j->fresh)
            memcpy(dx, sums, n * sizeof *dx);
        else
            j->q->cpu->k.add(dx, sums, n);
    }
}

void rvi_train_run_tall(const group *q, rvi_cols dx, bool fresh, rvi_cols dy, int n_rows)
{
    int room = RVI_TRAIN_PARTS / (SLICES * q->n_in) / RVI_TRAIN_GROUP * RVI_TRAIN_GROUP,
        most = RVI_MIN(room, (int)MOST_ROWS);
    const uint8_t *held = rvi_train_held_panels(q, q->parts, true);
    for (int row = 0; row < n_rows; row += most) {
        job j = {q, dx, dy, fresh, held, row, RVI_MIN(most, n_rows - row)};
        rvi_pool_run(q->cpu->pool, slice_task, &j, SLICES);
        rvi_pool_run(q->cpu->pool, add_task, &j, j.n_rows);
    }
}
