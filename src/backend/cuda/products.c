/* Products with weights in panels: which kernels, with which grids. */
#include <assert.h>
#include <string.h>

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

/* The kernel for this type, of those that begin with `first`. */
static rvi_cuda_kernel kernel_of(rvi_cuda_kernel first, rvi_qtype type)
{
    int i = 0;
#define X(name, bits, offset, scales, d_units, has_m)                                              \
    if (type == RVI_##name) return (rvi_cuda_kernel)((int)first + i);                              \
    i++;
    RVI_CUDA_QUANTS(X)
#undef X
    return (rvi_cuda_kernel)((int)first + i);
}

static rvi_cuda_kernel prepare_for(const rvi_cuda_product_args *a, bool tiles)
{
    if (a->columns == a->x.n) return tiles ? RVI_CUDA_prepare_tiles : RVI_CUDA_prepare;
    return tiles ? RVI_CUDA_prepare_parts_tiles : RVI_CUDA_prepare_parts;
}

bool rvi_cuda_is_ring(rvi_cuda_kernel k)
{
    return k == RVI_CUDA_product_ring ||
           (k >= RVI_CUDA_product_ring_Q4_0 && k <= RVI_CUDA_product_ring_IQ4_XS);
}

bool rvi_cuda_is_row(rvi_cuda_kernel k)
{
    return (k >= RVI_CUDA_product_row && k <= RVI_CUDA_product_ring) ||
           (k >= RVI_CUDA_product_row_Q4_0 && k <= RVI_CUDA_product_short_F16) ||
           rvi_cuda_is_ring(k);
}

bool rvi_cuda_is_row_16(rvi_cuda_kernel k)
{
    return (k >= RVI_CUDA_product_twice && k <= RVI_CUDA_product_panel) ||
           k == RVI_CUDA_product_row_F16 || k == RVI_CUDA_product_short_F16;
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

/* For a row and weights of one type. Where each block has its tiles at once, one that has turned
 * weights before the row is there; of a long row, or where some blocks have tiles twice, only where
 * there is nothing to turn. */
static rvi_cuda_kernel one_type(const rvi_cuda *c, const rvi_matmul *m, rvi_cuda_product_args *a,
                                uint32_t *blocks)
{
    rvi_qtype type = m->part[0].w->type;
    pair(c, m, a, blocks);
    bool is_short = m->x.n <= RVI_CUDA_SHORT && (!m->gated.t || a->aside || a->paired);
    bool is_long = m->x.n > RVI_CUDA_SHORT && m->x.n <= RVI_CUDA_LONG && !a->norm && !m->gated.t;
    int at_once = (int)*blocks * a->together, processors = c->n_blocks / 4;
    uint32_t panels = tiles_of(m, RVI_CUDA_PANEL);
    if (is_short && a->tiles <= at_once) return kernel_of(RVI_CUDA_product_short_Q4_0, type);
    if (!rvi_cuda_has_floats(type)) return kernel_of(RVI_CUDA_product_row_Q4_0, type);
    if (is_short && a->tiles <= 2 * at_once) return RVI_CUDA_product_twice;
    if (is_long && panels <= (uint32_t)processors && m->x.n <= RVI_CUDA_PANEL_LONG) {
        *blocks = panels;
        return RVI_CUDA_product_panel;
    }
    return is_long && a->tiles <= processors ? RVI_CUDA_product_long : RVI_CUDA_product_row_F16;
}

/* Bytes of weights of these parts. */
static size_t bytes_of(const rvi_matmul *m, int first, int end)
{
    size_t n = 0;
    for (int i = first; i < end; i++)
        n += (size_t)ceil_div(m->part[i].w->n_rows, RVI_CUDA_PANEL) * m->part[i].w->row_bytes;
    return n;
}

static int32_t tiles_before(const rvi_matmul *m, int end)
{
    uint32_t n = 0;
    for (int i = 0; i < end; i++) n += ceil_div(m->part[i].w->n_rows, OUTPUTS);
    return (int32_t)n;
}

/* Through rings of bulk copies, where matrices have so many columns and outputs for each processor
 * that it is faster (8b and 7b, not 1b) and quants, which take computing; false: otherwise. Parts
 * before `first` have one type, and those from there on. Two blocks fit a processor. */
static bool ring(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *args, uint32_t row,
                 int first)
{
    /* TURNS: tiles whose sums wait, as in ring.cuh. The warps take the segments of a block's tiles
     * in turns, and one bit tells a warp whether the sums of four tiles ago were added: that is
     * enough only if each warp has a segment of at least every fourth tile. Of rows with fewer
     * segments blocks take several tiles together: no rings for those. */
    enum { TURNS = 4, LEAST_SEGMENTS = WARPS / TURNS };
    enum { LEAST = 24, SLOT = 5000, SHARED = 108 << 10 };
    rvi_cuda_product_args a = *args;
    rvi_cuda_kernel k = kernel_of(RVI_CUDA_product_ring_Q4_0, m->part[0].w->type);
    int bytes = (int)block_bytes(m), least = c->n_blocks / 4 * LEAST;
    if (!c->has_groups || a.together > 1 || m->x.n < least || a.tiles * OUTPUTS < least)
        return false;
    for (int i = 0; i < m->n_parts; i++)
        if (rvi_cuda_has_floats(m->part[i].w->type)) return false;
    assert(a.segments >= LEAST_SEGMENTS);
    a.slot_bytes = 2 * bytes * RVI_MAX(SLOT / (2 * bytes), 1);
    a.ring = RVI_MIN((SHARED - (int)row) / (a.slot_bytes * WARPS), RVI_CUDA_RING);
    if (a.ring < 1) return false;
    a.paired = m->gated.t != NULL;
    if (a.paired) a.tiles = (int32_t)ceil_div(m->part[0].w->n_rows, RVI_CUDA_PANEL);
    int blocks = RVI_MIN(a.tiles, c->n_blocks / 2);
    if (first < m->n_parts) {
        size_t all = bytes_of(m, 0, m->n_parts);
        int share = (int)((size_t)blocks * bytes_of(m, 0, first) / all);
        a.first_tiles = tiles_before(m, first);
        a.first_blocks = RVI_MIN(RVI_MAX(share, 1), blocks - 1);
        k = RVI_CUDA_product_ring;
    }
    rvi_cuda_command *command = rvi_cuda_add(c, k, (uint32_t[]){1, (uint32_t)blocks, 1},
                                             RVI_CUDA_RING_THREADS, &a, sizeof a);
    if (command) command->shared = (uint32_t)(a.ring * a.slot_bytes) * WARPS + row;
    return true;
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
        if (ring(c, m, a, row, first)) return true;
        rvi_cuda_kernel k = one_type(c, m, a, &blocks);
        add(c, k, (uint32_t[]){1, blocks, 1}, row, a);
        return true;
    }
    if (m->gated.t || blocks < 2 || !same_type(m, first, m->n_parts)) return false;
    if (ring(c, m, a, row, first)) return true;
    a->first_tiles = tiles_before(m, first);
    uint32_t ahead = ceil_div(a->first_tiles, a->together),
             all = ahead + ceil_div(a->tiles - a->first_tiles, a->together);
    bool is_short = m->x.n <= RVI_CUDA_SHORT && all <= (uint32_t)c->n_blocks / 2;
    if (is_short) blocks = all;
    int share = (int)((int64_t)blocks * a->first_tiles / a->tiles);
    a->first_blocks = is_short ? (int)ahead : RVI_MIN(RVI_MAX(share, 1), (int)blocks - 1);
    add(c, is_short ? RVI_CUDA_product_short : RVI_CUDA_product_row, (uint32_t[]){1, blocks, 1},
        row, a);
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
    if (m->n_rows == 1 && a.columns == a.x.n && one(c, m, &a, blocks)) return;
    add(c, prepare_for(&a, false), (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, &a);
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
    if (c->has_groups && rows == 64 && 2 * (t->stages * stage + t->slots * slot) > c->shared)
        t->slots = RVI_CUDA_LEAST_SLOTS; /* then two blocks fit a processor */
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

/* Tiles of rows, and of outputs. */
static uint32_t down(const rvi_matmul *m, int rows)
{
    return ceil_div(m->n_rows, rows);
}

static uint32_t across(const rvi_matmul *m)
{
    return tiles_of(m, m->gated.t ? RVI_CUDA_TILE / 2 : RVI_CUDA_TILE);
}

/* Segments that have blocks of their own, where there are too few tiles of so many rows. */
static uint32_t segments_apart(const rvi_cuda *c, const rvi_matmul *m, int rows)
{
    uint32_t segments = (uint32_t)rvi_cuda_segments(rvi_cuda_columns(m->part[0].w)), outs = 0;
    for (int i = 0; i < m->n_parts; i++) outs += (uint32_t)m->part[i].w->n_rows;
    return down(m, rows) * across(m) < (uint32_t)c->n_blocks / 4 &&
                   (uint64_t)segments * (uint32_t)m->n_rows * outs <= RVI_CUDA_SUMS
               ? segments
               : 1;
}

static tiling tiling_of(const rvi_cuda *c, const rvi_matmul *m, rvi_cuda_kernel k, int rows)
{
    tiling t = {
        .kernel = k, .rows = rows, .grid = {down(m, rows), across(m), segments_apart(c, m, rows)}};
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

static rvi_cuda_kernel wide_kernel(rvi_qtype type, int rows)
{
    if (rows == 64) return RVI_CUDA_product_wide_F16_64;
    if (rows == 32) return RVI_CUDA_product_wide_F16_32;
    if (rows == 128) return RVI_CUDA_product_wide_F16_128;
    switch (type) {
#define X(name, bits, offset, scales, d_units, has_m)                                              \
    case RVI_##name: return RVI_CUDA_product_wide_##name;
        RVI_CUDA_QUANTS(X)
#undef X
    default: return RVI_CUDA_product_wide_F16;
    }
}

static uint32_t wide_shared(rvi_qtype type, int rows)
{
    int all, bits = rvi_cuda_has_floats(type) ? 16 : 0;
    uint32_t block = (uint32_t)rvi_cuda_block_bytes(type, &all),
             units = (uint32_t)RVI_CUDA_TILE_UNITS(all, bits, rows),
             ahead = (uint32_t)RVI_CUDA_TILE_AHEAD(rows),
             places = RVI_CUDA_TILE_PLACES(ahead, units / 2);
    return ahead * (uint32_t)rows * 128 + WARPS * RVI_CUDA_PUT_ROWS * RVI_CUDA_PUT_LINE * 4 +
           places * RVI_CUDA_TILE / RVI_CUDA_PANEL * (block * units / (uint32_t)all);
}

static uint32_t wide_tiles(const rvi_matmul *m, int first, int end, int rows)
{
    uint32_t n = 0;
    for (int i = first; i < (m->gated.t ? first + 1 : end); i++)
        n += ceil_div(m->part[i].w->n_rows, m->gated.t ? RVI_CUDA_TILE / 2 : RVI_CUDA_TILE);
    return n * ceil_div(m->n_rows, rows);
}

/* Parts of one type, in tiles of so many rows. */
static void add_wide(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *args, int first,
                     int end, int rows, uint32_t segments)
{
    rvi_cuda_product_args a = *args;
    rvi_qtype type = m->part[first].w->type;
    uint32_t most = RVI_MAX((uint32_t)c->n_blocks / 4 / segments, 1),
             grid[] = {RVI_MIN(wide_tiles(m, first, end, rows), most), 1, segments};
    memset(a.part, 0, sizeof a.part);
    memcpy(a.part, args->part + first, (size_t)(end - first) * sizeof a.part[0]);
    a.n_parts = end - first;
    rvi_cuda_command *command =
        rvi_cuda_add(c, wide_kernel(type, rows), grid, RVI_CUDA_TILE_THREADS, &a, sizeof a);
    if (command) command->shared = wide_shared(type, rows);
}

/* Parts from `first` on that have its type. */
static int end_of_type(const rvi_matmul *m, int first)
{
    int end = first + 1;
    while (end < m->n_parts && same_type(m, first, end + 1)) end++;
    return end;
}

static void add_sums(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    uint32_t outs = 0;
    for (int i = 0; i < m->n_parts; i++) outs += (uint32_t)m->part[i].w->n_rows;
    add(c, RVI_CUDA_add_segments,
        (uint32_t[]){(uint32_t)m->n_rows, ceil_div((int)outs, 4 * RVI_CUDA_THREADS), 1}, 0, a);
}

/* Very many rows: a block for each processor, where that is not slower than tiles. */
static bool wide(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a, const tiling *t)
{
    enum { ROWS = RVI_CUDA_TILE_ROWS, TURN = 150 }; /* see time_of */
    uint32_t turns = 0;
    if (!c->has_groups || m->n_rows <= 128) return false;
    for (int i = 0; i < m->n_parts; i = end_of_type(m, i))
        turns += ceil_div((int)wide_tiles(m, i, end_of_type(m, i), ROWS), c->n_blocks / 4);
    if (turns * TURN > time_of(c, t)) return false;
    add(c, prepare_for(a, true), (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, a);
    for (int i = 0; i < m->n_parts; i = end_of_type(m, i))
        add_wide(c, m, a, i, end_of_type(m, i), ROWS, 1);
    return true;
}

/* Weights of 16 bits and not many rows, which are bound by the memory: likewise, with all rows in
 * one tile. */
static bool wide_few(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    int rows = m->n_rows <= 32 ? 32 : m->n_rows <= 64 ? 64 : 128;
    uint32_t segments = segments_apart(c, m, rows);
    if (!c->has_groups || m->n_rows > rows || (m->gated.t && segments > 1)) return false;
    for (int i = 0; i < m->n_parts; i++)
        if (!rvi_cuda_has_floats(m->part[i].w->type)) return false;
    add(c, prepare_for(a, true), (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, a);
    add_wide(c, m, a, 0, m->n_parts, rows, segments);
    if (segments > 1) add_sums(c, m, a);
    return true;
}

static void many(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *args)
{
    if (wide_few(c, m, args)) return;
    tiling t = best_tiling(c, m);
    rvi_cuda_product_args a = *args;
    if (wide(c, m, args, &t)) return;
    a.stages = (int32_t)t.stages;
    a.slots = (int32_t)t.slots;
    add(c, prepare_for(&a, true), (uint32_t[]){(uint32_t)m->n_rows, 1, 1}, 0, &a);
    add(c, t.kernel, t.grid, t.shared, &a);
    if (t.grid[2] > 1) add_sums(c, m, &a);
}

enum { FEW = 8 }; /* rows up to which a warp takes a segment */

void rvi_cuda_product(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a)
{
    if (a->columns != a->x.n && !c->has_parts)
        rvi_cuda_fails(c, RVI_CU_INVALID,
                       "preparing rows for weights that nothing was reserved for");
    else if (m->n_rows <= FEW)
        few(c, m, a);
    else
        many(c, m, a);
}

/* A row is prepared for all parts. The tiles of a gated product want one type of both. */
bool rvi_cuda_go_together(const rvi_matmul *m)
{
    for (int i = 1; i < m->n_parts; i++)
        if (rvi_cuda_columns(m->part[i].w) != rvi_cuda_columns(m->part[0].w)) return false;
    return !m->gated.t || m->n_rows <= FEW || m->part[0].w->type == m->part[1].w->type;
}
