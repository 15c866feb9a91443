/* Products with weights in panels: which kernels, with which grids. */
#include "backend/cuda/cuda.h"

enum { WARPS = RVI_CUDA_THREADS / 32, SEGMENTS = RVI_CUDA_SEGMENTS, OUTPUTS = 16 }; /* of a tile */

static uint32_t ceil_div(int n, int by)
{
    return (uint32_t)((n + by - 1) / by);
}

/* Tiles of so many outputs of each part. */
static uint32_t tiles_of(const rvi_matmul *m, int outputs)
{
    uint32_t n = 0;
    for (int i = 0; i < (m->gated.t ? 1 : m->n_parts); i++)
        n += ceil_div(m->part[i].w->n_rows, outputs);
    return n;
}

/* See products.cuh. */
int rvi_cuda_segments(int n)
{
    int units = (n + 127) / 128 * 4, length = (units + 8 * SEGMENTS - 1) / (8 * SEGMENTS) * 8;
    return (int)ceil_div(units, length);
}

/* Of the part with the largest. */
static uint32_t block_bytes(const rvi_matmul *m)
{
    size_t most = 0;
    int units;
    for (int i = 0; i < m->n_parts; i++)
        most = RVI_MAX(most, rvi_cuda_block_bytes(m->part[i].w->type, &units));
    return (uint32_t)most;
}

static void add(rvi_cuda *c, rvi_cuda_kernel k, const uint32_t grid[3], uint32_t shared,
                const rvi_cuda_product_args *a)
{
    rvi_cuda_command *command = rvi_cuda_add(c, k, grid, RVI_CUDA_THREADS, a, sizeof *a);
    if (command) command->shared = shared;
}

static rvi_cuda_kernel row_kernel(rvi_qtype type)
{
    switch (type) {
#define X(name, bits, offset, scales, d_units, has_m)                                              \
    case RVI_##name: return RVI_CUDA_product_row_##name;
        RVI_CUDA_QUANTS(X)
#undef X
    default: return RVI_CUDA_product_row_F16;
    }
}

static bool same_type(const rvi_matmul *m, int first, int end)
{
    for (int i = first + 1; i < end; i++)
        if (m->part[i].w->type != m->part[first].w->type) return false;
    return true;
}

/* A gated product whose blocks take one tile at a time: in tiles of 8 outputs of both parts, where
 * the block that has most then has less. */
static void pair(const rvi_cuda *c, const rvi_matmul *m, rvi_cuda_product_args *a, uint32_t *blocks)
{
    int most = c->n_blocks / 2, pairs = (int)ceil_div(m->part[0].w->n_rows, RVI_CUDA_PANEL);
    if (!m->gated.t || a->aside || ceil_div(pairs, most) >= 2 * ceil_div(a->tiles, most)) return;
    a->paired = 1;
    a->tiles = pairs;
    *blocks = (uint32_t)RVI_MIN(pairs, most);
}

/* One row; false: it is not even, too long, or its parts have more types than a kernel takes. */
static bool one(rvi_cuda *c, const rvi_matmul *m, rvi_cuda_product_args *a, uint32_t blocks)
{
    uint32_t row = ceil_div(m->x.n, 128) * 256;
    int first = 1; /* parts of the first type */
    if ((a->x.at | a->norm | a->normed.at | (uint64_t)a->x.n * 4) % 16 ||
        row > RVI_MIN(RVI_CUDA_LONGEST, c->shared))
        return false;
    while (first < m->n_parts && m->part[first].w->type == m->part[0].w->type) first++;
    if (first == m->n_parts) {
        pair(c, m, a, &blocks);
        add(c, row_kernel(m->part[0].w->type), (uint32_t[]){1, blocks, 1}, row, a);
        return true;
    }
    if (m->gated.t || blocks < 2 || !same_type(m, first, m->n_parts)) return false;
    a->first_tiles = 0;
    for (int i = 0; i < first; i++)
        a->first_tiles += (int32_t)ceil_div(m->part[i].w->n_rows, OUTPUTS);
    int share = (int)((int64_t)blocks * a->first_tiles / a->tiles);
    a->first_blocks = RVI_MIN(RVI_MAX(share, 1), (int)blocks - 1);
    add(c, RVI_CUDA_product_row, (uint32_t[]){1, blocks, 1}, row, a);
    return true;
}

/* Blocks take tiles in turns; two of them fit a processor, with room for the next kernel's to come
 * early: a ring holds no more than the memory needs to be busy. */
static void few(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *args)
{
    enum { ROWS = 8, RING_BYTES = 40 << 10 };
    rvi_cuda_product_args a = *args;
    uint32_t slots = WARPS * 2 * block_bytes(m),
             depth = RVI_MIN(RVI_MAX(RING_BYTES / slots, 2), RVI_CUDA_RING);
    depth = RVI_MIN(depth, RVI_CUDA_FEW_MOST / slots);
    a.tiles = (int32_t)tiles_of(m, OUTPUTS);
    a.ring = (int32_t)depth;
    a.slot_bytes = (int32_t)slots / WARPS;
    a.together = WARPS / a.segments;
    a.aside = m->gated.t && a.together > 1;
    if (a.aside) a.together /= 2;
    uint32_t blocks = RVI_MIN(ceil_div(a.tiles, a.together), (uint32_t)c->n_blocks / 2);
    if (m->n_rows == 1 && one(c, m, &a, blocks)) return;
    add(c, RVI_CUDA_prepare, (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, &a);
    add(c, RVI_CUDA_product_few, (uint32_t[]){ceil_div(m->n_rows, ROWS), blocks, 1}, depth * slots,
        &a);
}

/* Tiles of so many rows; processors take them in turns. */
typedef struct tiling {
    rvi_cuda_kernel kernel;
    int rows;
    uint32_t grid[3], stages, slots, shared; /* shared: 0: it does not fit the device */
} tiling;

/* As much on its way as there is room for. */
static void ring_of(const rvi_cuda *c, const rvi_matmul *m, tiling *t)
{
    uint32_t rows = (uint32_t)t->rows, stage = rows * 128, slot = WARPS * 2 * block_bytes(m),
             results = rows * RVI_CUDA_TILE_LINE * 4;
    t->stages = RVI_CUDA_TILE_STAGES;
    t->slots = RVI_CUDA_TILE_SLOTS;
    while (t->stages * stage + t->slots * slot > c->shared) {
        if (t->slots > RVI_CUDA_LEAST_SLOTS)
            t->slots--;
        else if (t->stages > RVI_CUDA_LEAST_STAGES)
            t->stages--;
        else
            return;
    }
    if (results <= c->shared) t->shared = RVI_MAX(t->stages * stage + t->slots * slot, results);
}

static tiling tiling_of(const rvi_cuda *c, const rvi_matmul *m, rvi_cuda_kernel k, int rows)
{
    tiling t = {.kernel = k, .rows = rows};
    uint32_t segments = (uint32_t)rvi_cuda_segments(m->x.n), outs = 0;
    for (int i = 0; i < m->n_parts; i++) outs += (uint32_t)m->part[i].w->n_rows;
    t.grid[0] = ceil_div(m->n_rows, rows);
    t.grid[1] = tiles_of(m, m->gated.t ? RVI_CUDA_TILE / 2 : RVI_CUDA_TILE);
    t.grid[2] = t.grid[0] * t.grid[1] < (uint32_t)c->n_blocks / 4 &&
                        (uint64_t)segments * (uint32_t)m->n_rows * outs <= RVI_CUDA_SUMS
                    ? segments
                    : 1;
    ring_of(c, m, &t);
    return t;
}

/* In rows of a tile: the weights take as long as 66 rows, beginning and ending as 24. */
static uint32_t time_of(const rvi_cuda *c, const tiling *t)
{
    enum { WEIGHTS = 66, BESIDES = 24 };
    uint32_t turns = ceil_div((int)(t->grid[0] * t->grid[1] * t->grid[2]), c->n_blocks / 4);
    return turns * ((uint32_t)RVI_MAX(t->rows, WEIGHTS) + BESIDES) / t->grid[2];
}

static tiling best_tiling(const rvi_cuda *c, const rvi_matmul *m)
{
    if (m->n_rows <= 32) return tiling_of(c, m, RVI_CUDA_product_tiles_32, 32);
    tiling small = tiling_of(c, m, RVI_CUDA_product_tiles_64, 64),
           large = tiling_of(c, m, RVI_CUDA_product_tiles_128, 128);
    return m->n_rows > 64 && large.shared && time_of(c, &large) < time_of(c, &small) ? large
                                                                                     : small;
}

static void many(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *args)
{
    tiling t = best_tiling(c, m);
    uint32_t outs = 0;
    rvi_cuda_product_args a = *args;
    a.stages = (int32_t)t.stages;
    a.slots = (int32_t)t.slots;
    for (int i = 0; i < m->n_parts; i++) outs += (uint32_t)m->part[i].w->n_rows;
    add(c, RVI_CUDA_prepare_tiles, (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, &a);
    add(c, t.kernel, t.grid, t.shared, &a);
    if (t.grid[2] > 1)
        add(c, RVI_CUDA_add_segments,
            (uint32_t[]){(uint32_t)m->n_rows, ceil_div((int)outs, 4 * RVI_CUDA_THREADS), 1}, 0, &a);
}

enum { FEW = 8 }; /* rows up to which a warp takes a segment */

void rvi_cuda_product(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    if (m->n_rows <= FEW)
        few(c, m, a);
    else
        many(c, m, a);
}

/* The tiles of a gated product want one type of both parts. */
bool rvi_cuda_go_together(const rvi_matmul *m)
{
    return !m->gated.t || m->n_rows <= FEW || m->part[0].w->type == m->part[1].w->type;
}
