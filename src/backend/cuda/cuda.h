/* cuda.h - what the files of the CUDA backend share.
 *
 * Memory. Weights, KV pages, activations and scratch lie on the device from the moment they are
 * made; a step allocates nothing. What the host brings to a step (embeddings, angles, positions,
 * page tables, lists of rows) is written to the staging area, in pinned memory, and copied to the
 * device at once: where it is little, by the list's first kernel.
 *
 * Commands. A compute op appends launches to a list and returns. submit copies the staging area and
 * starts the list; a list that comes again (decoding: the same launches, other data) is made into a
 * graph, which starts at once. A graph that is all of a pass of one row keeps the pass's key: the
 * next pass with that key (`again`) is not collected. What is asked for behind such a list (a
 * token, logits) is written to pinned memory by its kernels, and the last one says so to the host,
 * which looks there: no copy is waited for, in or out.
 *
 * Failure. Compute ops cannot fail; what the device reports stays in `failed`, no further work is
 * started, results read as NaN, and `check` says what happened. */
#ifndef RVI_BACKEND_CUDA_CUDA_H
#define RVI_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/args.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/image.h"
#include "backend/cuda/train_args.h"
#include "backend/cuda/weights.h"
#include "base/pool.h"

/* ---- kernels by number: the names of kernels.cu ---- */

#define RVI_CUDA_PLAIN_KERNELS(X)                                                                  \
    X(rows_copy)                                                                                   \
    X(bring)                                                                                       \
    X(signal)                                                                                      \
    X(gather)                                                                                      \
    X(rms_norm)                                                                                    \
    X(layer_norm)                                                                                  \
    X(rope)                                                                                        \
    X(glu)                                                                                         \
    X(act)                                                                                         \
    X(add)                                                                                         \
    X(soft_cap)                                                                                    \
    X(best)                                                                                        \
    X(draw_look)                                                                                   \
    X(draw_weigh)                                                                                  \
    X(lora_down)                                                                                   \
    X(lora_up)                                                                                     \
    X(kv_write)                                                                                    \
    X(rope_kv)                                                                                     \
    X(attention)                                                                                   \
    X(attention_merge)                                                                             \
    X(prepare)                                                                                     \
    X(prepare_tiles)                                                                               \
    X(prepare_parts)                                                                               \
    X(prepare_parts_tiles)                                                                         \
    X(product_row)                                                                                 \
    X(product_short)                                                                               \
    X(product_twice)                                                                               \
    X(product_long)                                                                                \
    X(product_panel)                                                                               \
    X(product_ring)                                                                                \
    X(product_few)                                                                                 \
    X(add_segments)                                                                                \
    X(product_tiles_32)                                                                            \
    X(product_tiles_64)                                                                            \
    X(product_tiles_128)                                                                           \
    X(attention_tiles)                                                                             \
    X(attention_tiles_q8)                                                                          \
    X(attention_tiles_large)                                                                       \
    X(rope_keys)                                                                                   \
    X(attention_wide_64)                                                                           \
    X(attention_wide_80)                                                                           \
    X(attention_wide_96)                                                                           \
    X(attention_wide_112)                                                                          \
    X(attention_wide_128)                                                                          \
    X(attention_wide_256)                                                                          \
    X(attention_row)                                                                               \
    X(attention_row_large)                                                                         \
    X(attention_row_q8)                                                                            \
    X(heads_row)                                                                                   \
    X(attention_join)                                                                              \
    X(operands)                                                                                    \
    X(gemm_f32)                                                                                    \
    X(gemm_bf16)                                                                                   \
    X(span_attention)                                                                              \
    X(span_queries_back)                                                                           \
    X(span_keys_back)                                                                              \
    X(norm_back)                                                                                   \
    X(glu_back)                                                                                    \
    X(move_rows)                                                                                   \
    X(scatter_add)                                                                                 \
    X(loss)

typedef enum rvi_cuda_kernel {
#define X(name) RVI_CUDA_##name,
    RVI_CUDA_PLAIN_KERNELS(X)
#undef X
#define X(name, weights, before, main, after)                                                      \
    RVI_CUDA_matmul_##name##_1, RVI_CUDA_matmul_##name##_4,
        RVI_CUDA_TYPES(X)
#undef X
#define X(name, bits, offset, scales, d_units, has_m) RVI_CUDA_product_row_##name,
            RVI_CUDA_QUANTS(X)
#undef X
                RVI_CUDA_product_row_F16,
#define X(name, bits, offset, scales, d_units, has_m) RVI_CUDA_product_short_##name,
    RVI_CUDA_QUANTS(X)
#undef X
        RVI_CUDA_product_short_F16,
#define X(name, bits, offset, scales, d_units, has_m) RVI_CUDA_product_wide_##name,
    RVI_CUDA_QUANTS(X)
#undef X
        RVI_CUDA_product_wide_F16,
    RVI_CUDA_product_wide_F16_64,
    RVI_CUDA_product_wide_F16_32,
    RVI_CUDA_product_wide_F16_128,
#define X(name, bits, offset, scales, d_units, has_m) RVI_CUDA_product_ring_##name,
    RVI_CUDA_QUANTS(X)
#undef X
        RVI_CUDA_KERNELS
} rvi_cuda_kernel;

/* ---- objects ---- */

struct rvi_tensor {
    rvi_qtype type;         /* F32 for vectors and activation rows */
    int n_rows, n_cols;     /* matrix: n_out, n_in; vector: 1, n */
    rvi_cuda_at at;         /* floats; or a packed weight; 0: not on the device */
    size_t bytes;           /* at `at`, where they are the tensor's own; 0: a pack's */
    atomic_size_t *counted; /* where they are counted */
    const uint8_t *data;    /* a weight's bytes in its file, or NULL */
    bool mapped;
    float *host;             /* a view: the caller's storage, which `at` has a copy of */
    bool panels;             /* the packed weight is in panels of row_bytes */
    size_t row_bytes, heads; /* of a packed weight, see rvi_cuda_matmul_args */
};

typedef struct rvi_cuda_command {
    rvi_cuda_kernel kernel;
    uint32_t grid[3];
    uint16_t threads;
    uint8_t cluster; /* blocks, along the first dimension; 0: there are none */
    uint8_t
        joined; /* following commands that are not launched: their arguments are this one's too */
    uint32_t shared; /* bytes of dynamic shared memory */
    _Alignas(8) unsigned char args[296];
} rvi_cuda_command;

typedef struct rvi_cuda_graph {
    rvi_cuda_command *commands; /* its part of `kept` */
    int n;
    uint64_t hash;
    rvi_cu_exec *exec;
    uint64_t used;    /* when; by the number of lists */
    rvi_pass_key key; /* zero: none */
} rvi_cuda_graph;

/* Rows whose positions and page tables are in the staging area since the last submit. */
typedef struct rvi_cuda_placed {
    const rvi_kv_row *rows;
    int n_rows, n_runs, longest; /* rows of the longest run */
    rvi_cuda_at at, tables, runs;
    const int32_t *staged_runs; /* where the host wrote `runs`: the first row of each, and rows */
} rvi_cuda_placed;

enum {
    RVI_CUDA_COMMANDS = 4096,
    RVI_CUDA_GRAPHS = 24,
    RVI_CUDA_SEEN = 64,
    RVI_CUDA_PLACED = 4,
    RVI_CUDA_BEST_BYTES = RVI_CUDA_BEST_ROWS * RVI_CUDA_BEST_PIECES * 16,
    RVI_CUDA_SUMS = 1 << 23,  /* sums of (segment, row, output) that can wait to be added */
    RVI_CUDA_PARTS = 1 << 16, /* results of (row, head, chunk) that can wait to be merged */
};

typedef struct rvi_cuda {
    rvi_backend be; /* first */
    rvi_pool *pool;
    rvi_cu_driver cu;
    rvi_cu_device device;
    rvi_cu_context *context;
    rvi_cu_module *module;
    rvi_cu_function *functions[RVI_CUDA_KERNELS];
    rvi_cu_stream *stream, *copies; /* compute; uploads of other threads */
    bool exact;
    int n_blocks;    /* four for each processor */
    uint32_t shared; /* dynamic shared memory of a block at most, RVI_CUDA_SHARED or less */
    bool early, has_clusters;        /* launches may overlap, see `begin` of kernels.cu */
    bool has_groups;                 /* 4 warps multiply together, see group_step there */
    atomic_int failed;               /* the first rvi_cu_result that was not 0 */
    _Atomic(const char *) failed_in; /* what was being done then */

    rvi_cuda_command *commands; /* the list */
    int n_commands, first;      /* first: what is started begins there */
    uint8_t *staged[2];         /* pinned; one is filled while the other is copied */
    rvi_cu_event *copied[2];    /* the copy of staged[i] is done */
    rvi_cuda_at staging;        /* on the device */
    size_t n_staged, max_staged;
    int filling;              /* which of the two */
    bool is_drained, brought; /* all that was started has ended; a list reads staged[0] */
    rvi_pass_key key;         /* of the pass that is collected; zero: none */
    rvi_cuda_graph *recalled; /* what is started instead of what was collected, or NULL */
    bool is_whole, signals;   /* the list is all of a pass; its last command tells the host */
    bool ends_signalled;      /* so did that of the last list */
    _Atomic uint32_t *signal; /* pinned: how many such lists have ended */
    uint32_t n_signals;       /* were started */
    rvi_cuda_placed placed[RVI_CUDA_PLACED];
    int n_placed;

    rvi_cuda_graph graphs[RVI_CUDA_GRAPHS], *newest; /* newest: the last that was started */
    rvi_cuda_command *kept; /* room for the commands of all graphs, kept_each of each */
    int kept_each;
    uint64_t seen[RVI_CUDA_SEEN], n_lists; /* hashes of lists that had no graph */

    rvi_cuda_at low;    /* of adapters, see rvi_cuda_lora_args */
    rvi_cuda_at acts;   /* prepared rows, see rvi_cuda_product_args */
    bool has_parts;     /* `acts` has room for rows that meet weights of F32 */
    rvi_cuda_at sums;   /* of segments, RVI_CUDA_SUMS floats */
    int32_t *bests;     /* pinned, one a row, see rvi_cuda_best_args */
    rvi_cuda_at pieces; /* likewise; behind them its arrivals, then `signal` on the device */
    int max_rows;
    size_t counted_scratch;

    rvi_cuda_options made_with;
    void (*pause)(void *ctx); /* called before a list is started; NULL: nothing is */
    void *pause_ctx;
    struct rvi_cuda_train *train; /* scratch of training, or NULL */
} rvi_cuda;

static inline rvi_cuda *rvi_cuda_of(rvi_backend *be)
{
    return (rvi_cuda *)be;
}

static inline rvi_cuda_cols rvi_cuda_cols_of(rvi_cols c)
{
    return (rvi_cuda_cols){c.t->at + (rvi_cuda_at)c.first * sizeof(float), c.t->n_cols, c.n};
}

/* list.c */
/* Records the first failure. Returns whether r is one. */
bool rvi_cuda_fails(rvi_cuda *c, rvi_cu_result r, const char *doing);
bool rvi_cuda_is_idle(rvi_cuda *c); /* failed or stopped: work is not to be started */
rv_status rvi_cuda_list_new(rvi_cuda *c, rv_error *err);
void rvi_cuda_list_free(rvi_cuda *c);
/* Staging for lists of n_rows rows of n_cols columns. */
rv_status rvi_cuda_reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err);
/* Room in the staging area: *host is to be filled before the next call, and the commands that read
 * it are added before that too. 0: more than was reserved, which counts as a failure. */
rvi_cuda_at rvi_cuda_stage(rvi_cuda *c, size_t bytes, void **host);
bool rvi_cuda_is_nearly_full(const rvi_cuda *c);
/* Returns the command, NULL if none was added. */
rvi_cuda_command *rvi_cuda_add(rvi_cuda *c, rvi_cuda_kernel k, const uint32_t grid[3],
                               uint32_t threads, const void *args, size_t size);
rvi_cuda_command *rvi_cuda_last(rvi_cuda *c); /* of the list; NULL: it is empty */
void rvi_cuda_submit(rvi_backend *be);
/* submit of a list whose last command tells the host that it has ended. */
void rvi_cuda_finish(rvi_cuda *c);
/* For all that was started; for_list: for the last list, with nothing behind it. */
rvi_cu_result rvi_cuda_wait(rvi_cuda *c, bool for_list);
bool rvi_cuda_again(rvi_backend *be, const rvi_pass_key *key, const rvi_kv_row *rows, int n_rows);
void rvi_cuda_forget(rvi_cuda *c); /* memory is freed: no list is known by its key any more */
rv_status rvi_cuda_check(rvi_backend *be, rv_error *err);
/* Device memory, or a message that says how much is missing. */
rv_status rvi_cuda_alloc(rvi_cuda *c, rvi_cuda_at *out, size_t bytes, const char *what,
                         rv_error *err);
void rvi_cuda_release(rvi_cuda *c, rvi_cuda_at at); /* accepts 0 */

/* tensors.c */
rv_status rvi_cuda_weight_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                              rv_error *err);
rv_status rvi_cuda_floats_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                              float offset, rv_error *err);
rv_status rvi_cuda_rows_new(rvi_backend *be, rvi_tensor **out, int n_rows, int n_cols,
                            rv_error *err);
void rvi_cuda_tensor_free(rvi_backend *be, rvi_tensor *t);
size_t rvi_cuda_pack_bytes(rvi_backend *be, const rvi_tensor *t);
rv_status rvi_cuda_pack_new(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err);
void rvi_cuda_pack(rvi_backend *be, rvi_pack *p, rvi_tensor *t);
void rvi_cuda_pack_free(rvi_backend *be, rvi_pack *p);
void rvi_cuda_rows_write(rvi_backend *be, rvi_cols dst, int row, const float *src);
void rvi_cuda_rows_read(rvi_backend *be, rvi_cols src, int row, float *dst);
void rvi_cuda_fetch(rvi_backend *be, rvi_cols src, int n_rows, float *dst);
void rvi_cuda_take(rvi_backend *be, rvi_cols src, int n_rows, float *dst);
void rvi_cuda_best(rvi_backend *be, rvi_cols x, int n_rows, int32_t *out);
rv_status rvi_cuda_draws_new(rvi_backend *be, rvi_draws **out, int n_rows, int n_cols,
                             rv_error *err);
void rvi_cuda_draws_free(rvi_backend *be, rvi_draws *d);
bool rvi_cuda_draw(rvi_backend *be, rvi_cols x, int n_rows, rvi_draws *d);
void rvi_cuda_fill_rows(rvi_backend *be, rvi_cols dst, int n_rows,
                        void (*fn)(void *ctx, int row, int first, int n, float *out), void *ctx);
/* The next bytes of a pack, on the device. */
rvi_cuda_at rvi_cuda_pack_take(rvi_pack *p, size_t bytes);
void *rvi_cuda_host_new(rvi_backend *be, size_t bytes);
void rvi_cuda_host_free(rvi_backend *be, void *p);
void rvi_cuda_embed(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                    int n_rows, float scale);

/* panels.c */
bool rvi_cuda_has_panels(const rvi_cuda *c, const rvi_tensor *t);
size_t rvi_cuda_block_bytes(rvi_qtype type, int *units); /* of a block of a panel */
size_t rvi_cuda_panel_bytes(const rvi_tensor *t);
/* Types whose panels are of f16 alone. */
bool rvi_cuda_has_floats(rvi_qtype type);
/* Of a product with it: of weights of F32 three times as many as they have (products.cuh). */
int rvi_cuda_columns(const rvi_tensor *t);
void rvi_cuda_put_panel(const rvi_tensor *t, int panel, uint8_t *to);

/* products.c: parts in panels. */
bool rvi_cuda_is_row(rvi_cuda_kernel k);    /* a product of one row? */
bool rvi_cuda_is_ring(rvi_cuda_kernel k);   /* by rings? */
bool rvi_cuda_is_row_16(rvi_cuda_kernel k); /* with weights of 16 bits alone? */
int rvi_cuda_segments(int n);               /* of a row of n columns */
bool rvi_cuda_go_together(const rvi_matmul *m);
void rvi_cuda_product(rvi_cuda *c, const rvi_matmul *m, const rvi_cuda_product_args *a);

/* lora.c */
void rvi_cuda_lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups);

/* train.c, train_linear.c: training */
rv_status rvi_cuda_floats_view(rvi_backend *be, rvi_tensor **out, float *data, int n_rows,
                               int n_cols, rv_error *err);
rv_status rvi_cuda_floats_part(rvi_backend *be, rvi_tensor **out, const rvi_tensor *view,
                               size_t first, int n_rows, int n_cols, rv_error *err);
void rvi_cuda_floats_in(rvi_backend *be, const rvi_tensor *view);
void rvi_cuda_floats_out(rvi_backend *be, const rvi_tensor *view);
rv_status rvi_cuda_train_reserve(rvi_backend *be, int n_rows, int n_cols, int n_vocab,
                                 rv_error *err);
void rvi_cuda_train_free(rvi_cuda *c);
size_t rvi_cuda_memory_left(rvi_backend *be);
size_t rvi_cuda_held_bytes(rvi_backend *be, const rvi_tensor *w, bool back);
rv_status rvi_cuda_held_new(rvi_backend *be, rvi_held **out, rvi_pack *pack, const rvi_tensor *w,
                            bool back, rv_error *err);
void rvi_cuda_held_free(rvi_backend *be, rvi_held *h);
void rvi_cuda_linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y,
                     rvi_cols x, int n_rows);
void rvi_cuda_linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                          bool fresh, rvi_cols dy, rvi_cols x, int n_rows);
void rvi_cuda_span_attention(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                             const rvi_attention *a, const rvi_span *spans, int n_spans);
void rvi_cuda_span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                  rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                  const rvi_attention *a, const rvi_span *spans, int n_spans);
void rvi_cuda_rms_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                            const rvi_tensor *w, int n_rows, float eps);
void rvi_cuda_head_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                             const rvi_tensor *w, int n_rows, float eps);
void rvi_cuda_glu_back(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                       rvi_cols up, rvi_glu kind, int n_rows);
void rvi_cuda_loss(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                   int n_rows);
void rvi_cuda_zero(rvi_backend *be, rvi_cols x, int n_rows);
void rvi_cuda_copy(rvi_backend *be, rvi_cols out, rvi_cols x, int n_rows);
void rvi_cuda_scatter_add(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *to, int n_rows);

/* attention.c */
/* Stages positions and page tables; false: they do not fit at once. */
bool rvi_cuda_place_all(rvi_cuda *c, const rvi_kv_row *rows, int n_rows);
size_t rvi_cuda_parts_bytes(int head_size); /* scratch of a KV store */
rv_status rvi_cuda_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                          rv_error *err);
void rvi_cuda_kv_free(rvi_backend *be, rvi_kv_store *kv);
void rvi_cuda_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from);
size_t rvi_cuda_kv_page_bytes(const rvi_kv_store *kv);
void rvi_cuda_kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to);
void rvi_cuda_kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from);
void rvi_cuda_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                       const rvi_kv_row *rows, int n_rows);
void rvi_cuda_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                        const rvi_attention *a, const rvi_kv_row *rows, int n_rows);

#endif
