/* Products with weights in panels: which kernels, with which grids. */
#include "backend/cuda/cuda.h"

enum { WARPS = RVI_CUDA_THREADS / 32, SEGMENTS = RVI_CUDA_SEGMENTS };

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

/* As in products.cuh. */
static uint32_t segments_of(int n)
{
    int units = (n + 127) / 128 * 4, length = (units + 8 * SEGMENTS - 1) / (8 * SEGMENTS) * 8;
    return ceil_div(units, length);
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

/* Blocks take tiles in turns; two of them fit a processor, mostly. */
static void few(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    enum { OUTPUTS = 16, ROWS = 8 };
    uint32_t blocks = ceil_div((int)tiles_of(m, OUTPUTS), (int)(WARPS / segments_of(m->x.n))),
             ring = WARPS * RVI_CUDA_RING * 2 * block_bytes(m), row = ceil_div(m->x.n, 128) * 256,
             most = (uint32_t)c->n_blocks / 2;
    bool even = (a->x.at | a->norm | (uint64_t)a->x.n * 4) % 16 == 0;
    if (m->n_rows == 1 && even && ring + row <= RVI_CUDA_SHARED) {
        add(c, RVI_CUDA_product_row, (uint32_t[]){1, RVI_MIN(blocks, most), 1}, ring + row, a);
        return;
    }
    add(c, RVI_CUDA_prepare, (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, a);
    add(c, RVI_CUDA_product_few, (uint32_t[]){ceil_div(m->n_rows, ROWS), RVI_MIN(blocks, most), 1},
        ring, a);
}

static void many(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    enum { BESIDES = 1024 };
    int n_rows = m->n_rows, rows = n_rows <= 32 ? 32 : n_rows <= 128 ? 64 : RVI_CUDA_TILE_ROWS;
    rvi_cuda_kernel k = rows == 32   ? RVI_CUDA_product_tiles_32
                        : rows == 64 ? RVI_CUDA_product_tiles_64
                                     : RVI_CUDA_product_tiles;
    uint32_t grid[] = {ceil_div(n_rows, rows),
                       tiles_of(m, m->gated.t ? RVI_CUDA_TILE / 2 : RVI_CUDA_TILE), 1};
    uint32_t shared = RVI_CUDA_TILE_STAGES * (uint32_t)rows * 128 +
                      WARPS * RVI_CUDA_TILE_SLOTS * 2 * block_bytes(m) + BESIDES,
             results = (uint32_t)rows * RVI_CUDA_TILE_LINE * 4 + BESIDES;
    shared = RVI_MAX(shared, results);
    uint32_t segments = segments_of(m->x.n), outs = 0;
    for (int i = 0; i < m->n_parts; i++) outs += (uint32_t)m->part[i].w->n_rows;
    bool apart = segments > 1 && grid[0] * grid[1] < (uint32_t)c->n_blocks / 4 &&
                 (uint64_t)segments * (uint32_t)n_rows * outs <= RVI_CUDA_SUMS;
    if (apart) grid[2] = segments;
    add(c, RVI_CUDA_prepare_tiles, (uint32_t[]){(uint32_t)n_rows, 1, 1}, 0, a);
    add(c, k, grid, shared, a);
    if (apart)
        add(c, RVI_CUDA_add_segments,
            (uint32_t[]){(uint32_t)n_rows, ceil_div((int)outs, 4 * RVI_CUDA_THREADS), 1}, 0, a);
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
