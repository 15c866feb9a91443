/* What the host needs to pick tokens without the logits: two launches behind a pass, which read
 * what is asked and write what is told in pinned memory (draw.cuh). */
#include "backend/cuda/cuda.h"
#include "base/mem.h"

typedef struct draws {
    rvi_draws d; /* first */
    rvi_cuda_at scratch;
    int n_rows, n_cols;
    size_t counted;
} draws;

void rvi_cuda_draws_free(rvi_backend *be, rvi_draws *d)
{
    rvi_cuda *c = rvi_cuda_of(be);
    draws *all = (draws *)d;
    if (!d) return;
    rvi_cuda_host_free(be, d->asks);
    rvi_cuda_host_free(be, d->rows);
    rvi_cuda_release(c, all->scratch);
    atomic_fetch_sub(&be->memory->scratch, all->counted);
    rvi_free(all);
}

/* A device that has no room for it does without. */
rv_status rvi_cuda_draws_new(rvi_backend *be, rvi_draws **out, int n_rows, int n_cols,
                             rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t rows = (size_t)n_rows, bytes = rows * RVI_CUDA_DRAW_BYTES;
    rv_error why;
    *out = NULL;
    if (n_cols > RVI_CUDA_DRAW_COLUMNS) return RV_OK;
    draws *all = rvi_zalloc(sizeof *all);
    if (!all) return rvi_nomem(err, "draws");
    *all = (draws){.n_rows = n_rows, .n_cols = n_cols};
    all->d.asks = rvi_cuda_host_new(be, rows * sizeof *all->d.asks);
    all->d.rows = rvi_cuda_host_new(be, rows * sizeof *all->d.rows);
    bool has_room = all->d.asks && all->d.rows &&
                    !rvi_cuda_alloc(c, &all->scratch, bytes, "picking tokens", &why) &&
                    !c->cu.fill(all->scratch, 0, bytes, c->stream);
    if (all->scratch) atomic_fetch_add(&be->memory->scratch, all->counted = bytes);
    if (has_room)
        *out = &all->d;
    else
        rvi_cuda_draws_free(be, &all->d);
    return RV_OK;
}

/* Columns whose largest is looked at: as few as there is room for. */
static int spot_of(int n_cols)
{
    int spot = 8;
    while (n_cols > spot * RVI_CUDA_DRAW_SPOTS) spot *= 2;
    return spot;
}

bool rvi_cuda_draw(rvi_backend *be, rvi_cols x, int n_rows, rvi_draws *d)
{
    rvi_cuda *c = rvi_cuda_of(be);
    const draws *all = (const draws *)d;
    rvi_cuda_draw_args a = {.x = rvi_cuda_cols_of(x),
                            .asks = (rvi_cuda_at)(uintptr_t)d->asks,
                            .out = (rvi_cuda_at)(uintptr_t)d->rows,
                            .scratch = all->scratch,
                            .pieces = (x.n + RVI_CUDA_DRAW_PIECE - 1) / RVI_CUDA_DRAW_PIECE,
                            .spot = spot_of(x.n)};
    uint32_t grid[] = {(uint32_t)n_rows, (uint32_t)a.pieces, 1};
    if (n_rows < 1 || n_rows > all->n_rows || x.n > all->n_cols) return false;
    for (int i = 0; i < n_rows; i++) d->rows[i].best = -1;
    if (!c->recalled) {
        rvi_cuda_add(c, RVI_CUDA_draw_look, grid, RVI_CUDA_THREADS, &a, sizeof a);
        rvi_cuda_add(c, RVI_CUDA_draw_weigh, grid, RVI_CUDA_THREADS, &a, sizeof a);
    }
    rvi_cuda_finish(c);
    return !rvi_cuda_is_idle(c) &&
           !rvi_cuda_fails(c, rvi_cuda_wait(c, true), "waiting for results");
}
