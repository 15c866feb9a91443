/* args.h - what a kernel is told: one struct each, shared by the C side and kernels.cu.
 *
 * Addresses are of device memory. `rvi_cuda_cols` is a range of columns of activation rows: `at` is
 * the first element of row 0. Index lists, positions and page tables lie in the staging area. The
 * structs have no padding (`zero` fills them up), because lists of commands are compared byte by
 * byte. */
#ifndef RVI_BACKEND_CUDA_ARGS_H
#define RVI_BACKEND_CUDA_ARGS_H

#include <stdint.h>

#include "backend/draw.h"

typedef uint64_t rvi_cuda_at;

typedef struct rvi_cuda_cols {
    rvi_cuda_at at;
    int32_t stride, n; /* floats from row to row; columns */
} rvi_cuda_cols;

typedef struct rvi_cuda_copy_args {
    rvi_cuda_cols out;
    rvi_cuda_at from; /* dense rows of out.n floats */
} rvi_cuda_copy_args;

enum { RVI_CUDA_BRING = 1024, RVI_CUDA_BRING_JOBS = 4 }; /* floats of a block */

typedef struct rvi_cuda_bring_job { /* rows_copy, of pinned host memory */
    rvi_cuda_cols out;
    rvi_cuda_at from;
    int32_t first_block, pieces; /* pieces: of a row */
} rvi_cuda_bring_job;

typedef struct rvi_cuda_bring_args {
    rvi_cuda_bring_job job[RVI_CUDA_BRING_JOBS];
    int32_t n_jobs, zero;
} rvi_cuda_bring_args;

typedef struct rvi_cuda_signal_args {
    rvi_cuda_at counter, out; /* uint32_t each; out: pinned host memory */
} rvi_cuda_signal_args;

typedef struct rvi_cuda_norm_args {
    rvi_cuda_cols out, x, onto; /* onto: is added to as well; its `at` 0: none */
    rvi_cuda_at w, b;           /* b: layer norms only */
    int32_t size;               /* columns that are normed together */
    float eps;
} rvi_cuda_norm_args;

enum { RVI_CUDA_STORE, RVI_CUDA_ADD, RVI_CUDA_SILU, RVI_CUDA_GELU }; /* silu(w x) * (w2 x) */

/* Weights: a row is the main planes of its blocks, then the heads of its blocks (weights.h). */
typedef struct rvi_cuda_matmul_args {
    rvi_cuda_cols out, x;
    rvi_cuda_at w, w2, bias, bias2; /* 0: none */
    uint64_t row_bytes, heads;      /* from row to row; from a row's beginning to its heads */
    int32_t n_out, n_rows, finish, zero;
} rvi_cuda_matmul_args;

/* Products with weights in panels. */
typedef struct rvi_cuda_panels {
    rvi_cuda_at w, bias, out; /* bias: 0: none; out: row 0 */
    uint64_t panel_bytes;
    int32_t stride, n_out, type;            /* floats from row to row of out; rvi_qtype */
    int32_t block_bytes, block_units, zero; /* of a panel */
} rvi_cuda_panels;

typedef struct rvi_cuda_product_args {
    rvi_cuda_cols x, normed; /* normed: 0: nobody reads it */
    rvi_cuda_at norm, acts;  /* norm: 0: none; acts: prepared rows, see `prepare` of products.cuh */
    rvi_cuda_at parts;       /* sums of segments that wait to be added */
    float eps;
    int32_t n_rows, n_parts, finish;
    int32_t segments, tiles; /* of the units of a row, see products.cuh; of 16 outputs */
    int32_t ring, slot_bytes,
        together;                      /* few rows: blocks on their way for a warp; tiles at once */
    int32_t aside;                     /* gated: the two parts of a tile by warps of their own */
    float over;                        /* 1 / x.n */
    int32_t first_blocks, first_tiles; /* of the first of two types; heads_row: keys and values */
    int32_t paired;        /* product_row, gated: tiles of 8 outputs, of both parts together */
    int32_t stages, slots; /* product_tiles: of activations, of weights on their way */
    int32_t columns;       /* prepare_parts: of a row; x.n: of its parts together */
    int32_t zero;
    rvi_cuda_panels part[3]; /* SILU, GELU: of the first two one result, at the first's `out` */
} rvi_cuda_product_args;

typedef struct rvi_cuda_rope_args {
    rvi_cuda_cols x, angles;
    int32_t head_size, interleaved;
} rvi_cuda_rope_args;

/* Where rows find their pages: rows[r] = {first entry of its page table in tables, position}. */
typedef struct rvi_cuda_kv {
    rvi_cuda_at data, rows, tables;
    uint64_t page_bytes, k_bytes, v_bytes;
    int32_t il, n_kv_heads, head_size, padded, type, zero; /* type: rvi_attn_type */
} rvi_cuda_kv;

typedef struct rvi_cuda_kv_write_args {
    rvi_cuda_kv kv;
    rvi_cuda_cols k, v;
} rvi_cuda_kv_write_args;

typedef struct rvi_cuda_rope_kv_args {
    rvi_cuda_kv kv;
    rvi_cuda_cols x, angles, v;  /* x: queries, then keys */
    int32_t interleaved, n_rows; /* n_rows: of rope_keys */
} rvi_cuda_rope_kv_args;

typedef struct rvi_cuda_attention_args {
    rvi_cuda_kv kv;
    rvi_cuda_cols out, q;
    rvi_cuda_at parts; /* [row][head][n_parts][padded + PART_MORE]: values, maximum, sum */
    rvi_cuda_at runs;  /* attention_tiles: {first row, rows} of neighbours in a sequence */
    int32_t n_heads, window, n_parts, n_splits; /* tiles of a run; heads_row: of a group of heads */
    float scale, soft_cap;
    /* attention_row: */
    rvi_cuda_cols angles, k, v; /* turns: of the rows, which then have no key in their pages yet */
    rvi_cuda_at arrivals;       /* an int32_t, 0, for each row and head of keys; 0: parts stay */
    int32_t turns, interleaved, early;
    int32_t per; /* chunks of a part: 1, or RVI_CUDA_RUN */
} rvi_cuda_attention_args;

typedef struct rvi_cuda_pair_args { /* out = x (op) y */
    rvi_cuda_cols out, x, y;
    int32_t kind;
    float value;
} rvi_cuda_pair_args;

typedef struct rvi_cuda_best_args {
    rvi_cuda_cols x;
    rvi_cuda_at out;             /* int32_t a row */
    rvi_cuda_at parts, arrivals; /* of pieces: a float4 each; an int32_t, 0, for each row */
    int32_t pieces, zero;        /* of a row */
} rvi_cuda_best_args;

/* What draw_look tells draw_weigh of a row; arrivals are 0 between lists. */
enum {
    RVI_CUDA_DRAW_PIECE = 8192,        /* columns of a block */
    RVI_CUDA_DRAW_COLUMNS = 256 << 10, /* at most */
    RVI_CUDA_DRAW_PIECES = RVI_CUDA_DRAW_COLUMNS / RVI_CUDA_DRAW_PIECE,
    RVI_CUDA_DRAW_BLOCKS = RVI_CUDA_DRAW_COLUMNS / RVI_SUM_BLOCK,
    RVI_CUDA_DRAW_SPOTS = 8192, /* 8, 16 or 32 columns each */
};
typedef struct rvi_cuda_draw_head {
    double random;
    float temperature, top;
    uint32_t floor;
    int32_t wants, possible, n; /* n: collected */
    int32_t looked, weighed;    /* arrivals */
    int32_t zero[2];
    int32_t flags[RVI_CUDA_DRAW_PIECES]; /* 1: NaN or infinite; 2: -INFINITY */
} rvi_cuda_draw_head;

/* scratch: a row's head; sums of weights, then of exps, of blocks; the largest of spots; ids, then
 * logits. */
enum {
    RVI_CUDA_DRAW_BYTES = sizeof(rvi_cuda_draw_head) + RVI_CUDA_DRAW_BLOCKS * 16 +
                          RVI_CUDA_DRAW_SPOTS * 4 + RVI_DRAW_MOST * 8
};
typedef struct rvi_cuda_draw_args {
    rvi_cuda_cols x;
    rvi_cuda_at asks, out, scratch; /* asks, out: pinned host memory */
    int32_t pieces, spot;           /* blocks of a row; columns of a spot */
} rvi_cuda_draw_args;

typedef struct rvi_cuda_gather_args {
    rvi_cuda_cols out, x;
    rvi_cuda_at from;  /* the rows' numbers; 0: there is one, */
    int32_t row, zero; /* this */
} rvi_cuda_gather_args;

/* Rows of a group of adapters that a block takes together, and the group's products. */
typedef struct rvi_cuda_lora_tile {
    int32_t first, n_rows;       /* in the list of rows; `first` is a line of `low` too */
    int32_t product, n_products; /* in the list of products */
} rvi_cuda_lora_tile;

typedef struct rvi_cuda_lora_product {
    rvi_cuda_at a, b, out; /* out: row 0 */
    int32_t stride, n_out, rank;
    int32_t low;   /* where A x lies in a line */
    int32_t chain; /* products from here on that have this `out`; 0: an earlier one counts it */
    float scale;
} rvi_cuda_lora_product;

/* The lists lie in the staging area. */
typedef struct rvi_cuda_lora_args {
    rvi_cuda_cols x;
    rvi_cuda_at tiles, products, rows; /* rows: int32_t each */
    rvi_cuda_at low;                   /* RVI_CUDA_LOW floats a line */
} rvi_cuda_lora_args;

enum {
    RVI_CUDA_LOW = 1024,    /* the largest rank, and the ranks of a line together */
    RVI_CUDA_LORA_ROWS = 8, /* of a tile at most */
    RVI_CUDA_CHUNK = 256,   /* keys whose softmax has one maximum */
    RVI_CUDA_PAGE = 32,     /* positions of a KV page */
    RVI_CUDA_THREADS = 256, /* of a block, but for attention: */
    RVI_CUDA_ATTENTION = 128,
    RVI_CUDA_BEST = 1024,
    RVI_CUDA_BEST_PIECES = 32, /* of a row, where there are few: */
    RVI_CUDA_BEST_ROWS = 4,
    RVI_CUDA_MAX_HEAD = 512,  /* head size */
    RVI_CUDA_QUERY_HEADS = 4, /* that a block of rope_kv turns */
    RVI_CUDA_UNIT = 32,       /* weights that a lane decodes at a time */
    RVI_CUDA_PANEL = 8,       /* outputs */
    RVI_CUDA_SEGMENTS = 8,    /* of the units of a row at most, see products.cuh */
    RVI_CUDA_RING = 8,        /* blocks of weights on their way at most, for few rows */
    RVI_CUDA_RING_THREADS = RVI_CUDA_THREADS + 32, /* of a block of product_ring */
    RVI_CUDA_SHARED = 208 << 10,  /* dynamic shared memory of these kernels at most, */
    RVI_CUDA_BESIDES = 4 << 10,   /* and what they may have besides */
    RVI_CUDA_FEW_MOST = 72 << 10, /* of product_few, which has more besides */
    RVI_CUDA_SHORT = 2048,        /* columns of a row whose segments have 8 units at most */
    RVI_CUDA_LONG = 8192,         /* of a row of product_long at most, */
    RVI_CUDA_PANEL_LONG = 5120,   /* and of product_panel */
    RVI_CUDA_LONGEST = 128 << 10, /* bytes of the only row, in f16, that its kernels take */
    RVI_CUDA_TILE_STAGES = 5,     /* of activations, */
    RVI_CUDA_TILE_SLOTS = 3,      /* and blocks of weights on their way at most, */
    RVI_CUDA_LEAST_STAGES = 3,    /* and at least */
    RVI_CUDA_LEAST_SLOTS = 2,     /* of both */
    RVI_CUDA_TILE = 128,          /* outputs of a block of product_tiles */
    RVI_CUDA_TILE_LINE = 132,     /* floats from row to row of its results in shared memory */
    RVI_CUDA_TILE_ROWS = 192,     /* of product_wide, */
    RVI_CUDA_TILE_THREADS = RVI_CUDA_THREADS + 128,
    RVI_CUDA_TILE_SHARED = 226 << 10,
    RVI_CUDA_PUT_ROWS = 32,       /* rows of results that its warps have in shared memory, */
    RVI_CUDA_PUT_LINE = 20,       /* and floats from one to the next */
    RVI_CUDA_KEYS = 64,           /* of a chunk */
    RVI_CUDA_MAX_TILE_HEAD = 256, /* head size of attention_tiles_large */
    RVI_CUDA_QUERIES = 64,        /* heads of rows that a block takes together */
    RVI_CUDA_RUN = 4,             /* chunks that are merged before others, see attention.cuh */
    RVI_CUDA_RUN_TOTAL = 34816,   /* bytes of run_total */
    RVI_CUDA_KEY_SHARED = 65536 + RVI_CUDA_RUN_TOTAL,
    RVI_CUDA_LARGE_CHUNK = RVI_CUDA_KEYS * (256 + 128) * 2,
    RVI_CUDA_KEY_SHARED_LARGE = RVI_CUDA_LARGE_CHUNK + RVI_CUDA_RUN_TOTAL,
    RVI_CUDA_BYTES_CHUNK = RVI_CUDA_KEYS * 2 * (128 + 4), /* of q8 */
    RVI_CUDA_KEY_SHARED_Q8 = 32768 + RVI_CUDA_BYTES_CHUNK + RVI_CUDA_RUN_TOTAL,
    RVI_CUDA_WIDE_THREADS = 384,  /* of attention_wide, */
    RVI_CUDA_MAX_WIDE_HEAD = 256, /* its largest head, */
    RVI_CUDA_MOST_QUERIES = 128,  /* and queries of a block at most */
    RVI_CUDA_KEY_ROWS = 32,       /* that a block of rope_keys takes together */
    RVI_CUDA_ROW_QUERIES = 16,    /* heads that share keys, of attention_row at most */
    RVI_CUDA_PART_MORE = 4,     /* floats behind a part's values: parts begin at multiples of 16 */
    RVI_CUDA_JOIN_ELEMENTS = 8, /* of a head, that a block of attention_join merges */
    RVI_CUDA_ROW_SHARED = 32768,
    RVI_CUDA_ROW_SHARED_LARGE = 65536,
    RVI_CUDA_ROW_SHARED_Q8 = 32768 + RVI_CUDA_BYTES_CHUNK,
    RVI_CUDA_RAW_BYTES = (RVI_CUDA_ROW_QUERIES + 3) * 128 * 4, /* raw_row of attention.cuh */
    RVI_CUDA_HEADS_SHARED = 96 << 10,
    RVI_CUDA_CLUSTER = 16,     /* blocks at most */
    RVI_CUDA_JOINED_HERE = 16, /* parts that attention_row merges itself, */
    RVI_CUDA_ARRIVALS = 4096,  /* of so many rows and heads of keys */
};

/* Sizes of heads that attention_wide takes; groups of warps that share queries, queries of a block,
 * and chunks on their way. */
#define RVI_CUDA_WIDE_HEADS(X)      X(64) X(80) X(96) X(112) X(128) X(256)
#define RVI_CUDA_WIDE_SHARE(size)   ((size) > 128 ? 2 : 1)
#define RVI_CUDA_WIDE_QUERIES(size) (RVI_CUDA_MOST_QUERIES / RVI_CUDA_WIDE_SHARE(size))
#define RVI_CUDA_WIDE_STAGES(size)  ((size) > 128 ? 2 : 3)

#endif
