/* Products with weights in f16 panels: which kernels, with which grids. */
#include "backend/cuda/cuda.h"

/* Tiles of so many outputs of each part. */
static uint32_t tiles_of(const rvi_matmul *m, int outputs)
{
    int n = 0;
    for (int i = 0; i < (m->gated.t ? 1 : m->n_parts); i++)
        n += (m->part[i].w->n_rows + outputs - 1) / outputs;
    return (uint32_t)n;
}

enum { FEW = 8, SOME = 64 }; /* rows up to which the kernels for few are faster */

void rvi_cuda_f16_product(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    enum { OUTPUTS = 16, TOGETHER = 32 };
    bool gated = m->gated.t, bf16 = m->part[0].w->type == RVI_BF16;
    uint32_t tiles = tiles_of(m, OUTPUTS), blocks = gated ? tiles : (tiles + 1) / 2;
    if (m->n_rows == 1 && m->x.n <= (bf16 ? RVI_CUDA_F16_STAGED / 2 : RVI_CUDA_F16_STAGED)) {
        rvi_cuda_add(c, RVI_CUDA_f16_row, (uint32_t[]){1, blocks, 1}, RVI_CUDA_THREADS, a,
                     sizeof *a);
        return;
    }
    rvi_cuda_add(c, RVI_CUDA_f16_prepare, (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, RVI_CUDA_THREADS,
                 a, sizeof *a);
    if (m->n_rows <= SOME) {
        int rows = m->n_rows <= FEW ? FEW : TOGETHER;
        rvi_cuda_add(c, rows == FEW ? RVI_CUDA_f16_few_1 : RVI_CUDA_f16_few_4,
                     (uint32_t[]){(uint32_t)((m->n_rows + rows - 1) / rows), blocks, 1},
                     RVI_CUDA_THREADS, a, sizeof *a);
        return;
    }
    uint32_t rows = (uint32_t)((m->n_rows + RVI_CUDA_TILE - 1) / RVI_CUDA_TILE);
    tiles = tiles_of(m, gated ? RVI_CUDA_TILE / 2 : RVI_CUDA_TILE);
    rvi_cuda_command *k = rvi_cuda_add(c, RVI_CUDA_f16_tiles, (uint32_t[]){rows, tiles, 1},
                                       RVI_CUDA_THREADS, a, sizeof *a);
    if (k) k->shared = RVI_CUDA_TILE_SHARED + (bf16 ? 65536 : 0);
}

/* The tiles of a gated product want one type of both parts. */
bool rvi_cuda_f16_together(const rvi_matmul *m)
{
    return !m->gated.t || m->n_rows <= SOME || m->part[0].w->type == m->part[1].w->type;
}
