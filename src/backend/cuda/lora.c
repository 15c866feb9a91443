/* Adapters of a batch: all groups and products of an input in two launches, A x and then B of it.
 *
 * Which adapters, which rows and what ranks are lists in the staging area, so that a list of
 * commands is the same as the one before where other adapters have as many rows and products. */
#include <string.h>

#include "backend/cuda/cuda.h"

/* What a call of the op has. */
typedef struct extent {
    int tiles, products, rows;               /* of all groups together */
    int most_products, most_rank, most_outs; /* of a group; of a product */
} extent;

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Products from `from` on whose results of A fit a line of `low`: one at least. */
static int fitting(const rvi_lora_group *g, int from)
{
    int n = 0, low = 0;
    for (; from + n < g->n_products; n++) {
        low = round_up(low, 4) + g->products[from + n].a->n_rows;
        if (n && low > RVI_CUDA_LOW) break;
    }
    return n;
}

static extent extent_of(const rvi_lora_group *groups, int n_groups, int together)
{
    extent e = {0};
    for (const rvi_lora_group *g = groups; g < groups + n_groups; g++) {
        if (g->n_rows < 1) continue;
        e.tiles += (g->n_rows + together - 1) / together;
        e.products += g->n_products;
        e.rows += g->n_rows;
        e.most_products = RVI_MAX(e.most_products, g->n_products);
        for (int i = 0; i < g->n_products; i++) {
            e.most_rank = RVI_MAX(e.most_rank, g->products[i].a->n_rows);
            e.most_outs = RVI_MAX(e.most_outs, g->products[i].out.n);
        }
    }
    return e;
}

static bool same_out(const rvi_lora_product *a, const rvi_lora_product *b)
{
    return a->out.t == b->out.t && a->out.first == b->out.first;
}

static void put_products(rvi_cuda_lora_product *to, const rvi_lora_group *g)
{
    for (int i = 0, low = 0, first = 0; i < g->n_products; i++) {
        const rvi_lora_product *p = &g->products[i];
        rvi_cuda_cols out = rvi_cuda_cols_of(p->out);
        to[i] = (rvi_cuda_lora_product){.a = p->a->at,
                                        .b = p->b->at,
                                        .out = out.at,
                                        .stride = out.stride,
                                        .n_out = out.n,
                                        .rank = p->a->n_rows,
                                        .low = low,
                                        .scale = p->scale};
        if (i && !same_out(p, p - 1)) first = i;
        to[first].chain++;
        low = round_up(low + p->a->n_rows, 4);
    }
}

static void put_tiles(rvi_cuda_lora_tile *to, const rvi_lora_group *g, int first, int product,
                      int together)
{
    for (int r = 0; r < g->n_rows; r += together, to++)
        *to = (rvi_cuda_lora_tile){first + r, RVI_MIN(together, g->n_rows - r), product,
                                   g->n_products};
}

static void put_lists(void *host, const extent *e, const rvi_lora_group *groups, int n_groups,
                      int together)
{
    rvi_cuda_lora_product *products = host;
    rvi_cuda_lora_tile *tiles = (rvi_cuda_lora_tile *)(products + e->products);
    int32_t *rows = (int32_t *)(tiles + e->tiles);
    int n_rows = 0, n_products = 0;
    for (const rvi_lora_group *g = groups; g < groups + n_groups; g++) {
        if (g->n_rows < 1) continue;
        put_products(products + n_products, g);
        put_tiles(tiles, g, n_rows, n_products, together);
        memcpy(rows + n_rows, g->rows, (size_t)g->n_rows * sizeof *rows);
        tiles += (g->n_rows + together - 1) / together;
        n_rows += g->n_rows;
        n_products += g->n_products;
    }
}

/* Few rows are apart, whatever adapters they have: the processors have nothing else to do. */
static int rows_of_tile(const rvi_cuda *c, const rvi_lora_group *groups, int n_groups)
{
    int n = 0;
    for (int i = 0; i < n_groups; i++) n += groups[i].n_rows;
    return n * 8 > c->n_blocks ? RVI_CUDA_LORA_ROWS : 1;
}

/* Products that fit a line of `low`. */
static void add_groups(rvi_cuda *c, rvi_cols x, const rvi_lora_group *groups, int n_groups)
{
    enum { WARPS = RVI_CUDA_THREADS / 32 };
    int together = rows_of_tile(c, groups, n_groups);
    extent e = extent_of(groups, n_groups, together);
    if (!e.products) return;
    size_t products = (size_t)e.products * sizeof(rvi_cuda_lora_product),
           tiles = (size_t)e.tiles * sizeof(rvi_cuda_lora_tile);
    void *host;
    rvi_cuda_at at = rvi_cuda_stage(c, products + tiles + (size_t)e.rows * sizeof(int32_t), &host);
    if (!at) return;
    put_lists(host, &e, groups, n_groups, together);
    rvi_cuda_lora_args a = {rvi_cuda_cols_of(x), at + products, at, at + products + tiles, c->low};
    uint32_t grid[] = {(uint32_t)(round_up(e.most_rank, WARPS) / WARPS), (uint32_t)e.tiles,
                       (uint32_t)e.most_products};
    rvi_cuda_add(c, RVI_CUDA_lora_down, grid, RVI_CUDA_THREADS, &a, sizeof a);
    grid[0] = (uint32_t)(round_up(e.most_outs, RVI_CUDA_THREADS) / RVI_CUDA_THREADS);
    rvi_cuda_add(c, RVI_CUDA_lora_up, grid, RVI_CUDA_THREADS, &a, sizeof a);
}

/* Parameters that may have changed. */
static void bring_views(rvi_backend *be, const rvi_lora_group *g)
{
    for (const rvi_lora_product *p = g->products; p < g->products + g->n_products; p++) {
        if (p->a->host) rvi_cuda_floats_in(be, p->a);
        if (p->b->host) rvi_cuda_floats_in(be, p->b);
    }
}

void rvi_cuda_lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups)
{
    rvi_cuda *c = rvi_cuda_of(be);
    bool together = true;
    if (rvi_cuda_is_idle(c)) return;
    for (int i = 0; i < n_groups; i++) {
        bring_views(be, &groups[i]);
        together = together && fitting(&groups[i], 0) == groups[i].n_products;
    }
    if (together) {
        add_groups(c, x, groups, n_groups);
        return;
    }
    for (const rvi_lora_group *g = groups; g < groups + n_groups; g++)
        for (int from = 0, n; from < g->n_products; from += n) {
            n = fitting(g, from);
            const rvi_lora_group part = {g->rows, g->n_rows, g->products + from, n};
            add_groups(c, x, &part, 1);
        }
}
