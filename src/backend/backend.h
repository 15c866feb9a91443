/* backend.h - the table of operations by which layer code computes with tensors, independent of
 * where these are stored.
 *
 * A tensor is opaque to its users: a CPU backend leaves weights in the mapped file, another may own
 * device memory. It is either a weight (a matrix n_out x n_in, rows stored as blocks of a type), a
 * vector of f32, or activation rows of f32. Activations are addressed by columns: rvi_cols names a
 * range of columns of every row, so that q, k and v can share one tensor.
 *
 * The law: row r of every result depends on row r of the operands alone, bit for bit. The number of
 * rows in the call, their order, the number of threads and the instruction set make no difference.
 *
 * Compute ops cannot fail, because the memory they need was reserved before. Only one thread at a
 * time computes on a backend; other threads may make, pack and free weights at the same time. */
#ifndef RVI_BACKEND_BACKEND_H
#define RVI_BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backend/draw.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/tensor_view.h"

enum {
    RVI_PAGE_TOKENS = 32, /* positions in one KV page */
    RVI_MAX_RANK = 1024,  /* of an adapter */
    RVI_MAX_LINEARS = 3,  /* layers of a call of linear */
};

typedef struct rvi_backend rvi_backend;
typedef struct rvi_tensor rvi_tensor;
typedef struct rvi_pack rvi_pack;
typedef struct rvi_held rvi_held;
typedef struct rvi_kv_store rvi_kv_store;

/* Room for what `draw` is asked and tells, a row each; the backend's part lies behind it. */
typedef struct rvi_draws {
    rvi_draw_ask *asks;
    rvi_drawn *rows;
} rvi_draws;

typedef struct rvi_cols {
    rvi_tensor *t;
    int first, n;
} rvi_cols;

/* The forms of a page in a tiered store (RV_KV_WARM, RV_KV_TIERED). A row at position p reads the
 * key at position j as p / RVI_PAGE_TOKENS - j / RVI_PAGE_TOKENS says: 0 hot, up to warm_pages
 * warm, more cold; without a cold form all that is not hot is warm. docs/KV.md says
 * who keeps what. */
enum {
    RVI_KV_HOT = 1,  /* f16 */
    RVI_KV_WARM = 2, /* q8 of the hot form, made when the page's last position is written */
    RVI_KV_COLD = 4, /* q4 of the warm form, made of a page that is full */
};

typedef struct rvi_kv_spec {
    int n_layers, n_kv_heads, head_size, n_pages;
    rv_kv_type type;
    int warm_pages; /* RV_KV_TIERED */
    int n_heads;    /* of queries; 0: as many as of keys */
} rvi_kv_spec;

/* Where a row finds its keys and values: position p is in page pages[p / RVI_PAGE_TOKENS]. */
typedef struct rvi_kv_row {
    const int32_t *pages;
    int32_t pos;
    bool coarse; /* in a tiered store: reads all but its own page cold */
} rvi_kv_row;

typedef struct rvi_attention {
    int n_heads, n_kv_heads, head_size;
    float scale;
    float soft_cap; /* 0: none */
    int window;     /* keys seen, the row's own included; 0: all */
} rvi_attention;

typedef enum rvi_glu { RVI_GLU_SILU, RVI_GLU_GELU } rvi_glu;
typedef enum rvi_act { RVI_ACT_GELU, RVI_ACT_GELU_TANH, RVI_ACT_RELU } rvi_act;

/* One matrix of a product and where its result goes. */
typedef struct rvi_product_part {
    const rvi_tensor *w, *bias; /* bias may be NULL */
    rvi_cols out;
} rvi_product_part;

/* Products of the same rows with up to three matrices, fused with the operations before and after
 * them in a layer, so that each row of activations is read once and the threads synchronize
 * once. */
typedef struct rvi_matmul {
    rvi_cols x;
    const rvi_tensor *norm; /* not NULL: RMS norm of x by these weights first, into `normed` */
    float eps;
    rvi_cols normed;
    bool normed_unread; /* after this call: `normed` may be left unwritten */
    rvi_product_part part[3];
    int n_parts, n_rows;
    rvi_cols add_to; /* .t not NULL: the result of part[0] is added to it; its `out` is not used */
    rvi_cols gated;  /* .t not NULL: gated = act(part[0]) * part[1]; their `out` may be written */
    rvi_glu glu;
    /* Not NULL: only the next call reads `gated`, to multiply it by this matrix. It may then be
     * left unwritten, if the backend has what that call needs. */
    const rvi_tensor *reader;
} rvi_matmul;

/* Adapters on layers of one input, for some of a batch's rows. */
typedef struct rvi_lora_product {
    const rvi_tensor *a, *b; /* floats, rank x n_in and n_out x rank */
    float scale;
    rvi_cols out;
} rvi_lora_product;

typedef struct rvi_lora_group {
    const int32_t *rows; /* of the batch, ascending, in no other group */
    int n_rows;
    const rvi_lora_product *products; /* those with the same `out` follow each other */
    int n_products;
} rvi_lora_group;

/* ---- training ----
 *
 * The rows of a batch are texts, each in consecutive rows; a row's keys and values are in the batch
 * too, not in KV pages. */

/* A run of rows: consecutive positions of one text. Each sees all rows of `parent` and its parents,
 * and those of its own span up to itself. Texts with the same beginning share it as a parent. */
typedef struct rvi_span {
    int first, n; /* rows of the batch */
    int pos;      /* of the first row in its text: the number of rows of all parents */
    int parent;   /* an earlier span, or -1 */
} rvi_span;

/* A linear layer in float arithmetic, with at most one adapter: y = W x + bias + scale B (A x). */
typedef struct rvi_float_linear {
    const rvi_tensor *w, *bias; /* bias may be NULL */
    const rvi_tensor *a, *b;    /* floats, rank x n_in and n_out x rank; NULL: no adapter */
    float scale;
    rvi_tensor *da, *db; /* backward: shaped like a and b; both or none NULL */
    rvi_held *held;      /* of w; NULL: none */
} rvi_float_linear;

/* The target distribution of a row: probabilities p of n ids, and `rest` for all other ids
 * together; the sum is 1.
 *     loss = sum_i p_i (ln p_i - ln q_i) + rest (ln rest - ln(1 - sum_i q_i)),
 *     q = softmax(z / temperature)
 * with 0 ln 0 = 0 and 1 - sum q no less than 1e-6 (no gradient passes then). One id of probability
 * 1 is cross entropy. */
typedef struct rvi_target {
    const int32_t *ids;
    const float *p;
    int n;
    float rest, temperature;
    float weight; /* of d loss / d z; may be negative */
    float loss;   /* out: the loss, without its weight */
} rvi_target;

/* What the ops of a pass depend on besides values: two passes with one key have the same ops. */
typedef struct rvi_pass_key {
    const void *owner, *kv; /* whose rows they work on; its pages */
    int32_t page, kind;     /* of the last position; what is asked for behind the pass */
} rvi_pass_key;

typedef struct rvi_backend_ops {
    const char *name;
    void (*free)(rvi_backend *be);

    /* A weight's bytes are borrowed: they must outlive the tensor. floats_new copies to f32
     * (vectors, adapter matrices), adding `offset` to each element. */
    rv_status (*weight_new)(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            rv_error *err);
    rv_status (*floats_new)(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            float offset, rv_error *err);
    rv_status (*rows_new)(rvi_backend *be, rvi_tensor **out, int n_rows, int n_cols, rv_error *err);
    void (*tensor_free)(rvi_backend *be, rvi_tensor *t); /* accepts NULL */
    /* Packing rearranges weights for fast products: pack_bytes returns the bytes a weight takes (0:
     * it is not packed), pack_new reserves the sum. After pack, products no longer read the view's
     * bytes (embed still does), so the pages of a mapped file are released. Free a pack after the
     * last use of its tensors. */
    size_t (*pack_bytes)(rvi_backend *be, const rvi_tensor *t);
    rv_status (*pack_new)(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err);
    void (*pack)(rvi_backend *be, rvi_pack *p, rvi_tensor *t);
    void (*pack_free)(rvi_backend *be, rvi_pack *p); /* accepts NULL */
    int (*n_rows)(const rvi_tensor *t);
    int (*n_cols)(const rvi_tensor *t);
    /* One row. The CPU's may be called by any thread of `run`, a device's by the computing thread
     * alone. */
    void (*rows_write)(rvi_backend *be, rvi_cols dst, int row, const float *src);
    void (*rows_read)(rvi_backend *be, rvi_cols src, int row, float *dst);
    /* Rows 0 .. n_rows - 1: fn(ctx, row, first, n, out) writes n of its columns from `first` on; it
     * is called on the backend's threads, several at once. */
    void (*fill_rows)(rvi_backend *be, rvi_cols dst, int n_rows,
                      void (*fn)(void *ctx, int row, int first, int n, float *out), void *ctx);
    /* Rows 0 .. n_rows - 1, one behind the other in dst */
    void (*fetch)(rvi_backend *be, rvi_cols src, int n_rows, float *dst);
    /* fetch of rows that nobody reads afterwards, to memory of host_new: what was to write them may
     * write there instead. NULL: fetch is as quick. */
    void (*take)(rvi_backend *be, rvi_cols src, int n_rows, float *dst);
    /* Called between embed and the pass itself, of which take, best or draw of one row follow as
     * `kind` says. True: a pass with this key is remembered with all that was behind it, and that
     * starts it again: nothing else is to be called before. NULL: none is. */
    bool (*again)(rvi_backend *be, const rvi_pass_key *key, const rvi_kv_row *rows, int n_rows);
    /* Of rows 0 .. n_rows - 1 the first of the largest values; -1: one is NaN or infinite, or all
     * are -INFINITY, or the device failed. Rows and columns as `reserve` was told, up to 2^24
     * columns. NULL: the host reads them as quickly itself. */
    void (*best)(rvi_backend *be, rvi_cols src, int n_rows, int32_t *out);
    /* Of rows 0 .. n_rows - 1 what d->asks says, into d->rows, which stays until the next call.
     * False: the device failed. draws_new: for rows of n_cols columns; *out is NULL where there is
     * no room for it, or not for so many columns. All NULL: the host reads them as quickly. */
    rv_status (*draws_new)(rvi_backend *be, rvi_draws **out, int n_rows, int n_cols, rv_error *err);
    void (*draws_free)(rvi_backend *be, rvi_draws *d); /* accepts NULL */
    bool (*draw)(rvi_backend *be, rvi_cols src, int n_rows, rvi_draws *d);
    /* Memory of the host that fetch copies into faster than into any other; NULL: none is left. */
    void *(*host_new)(rvi_backend *be, size_t bytes);
    void (*host_free)(rvi_backend *be, void *p); /* accepts NULL */
    /* Compute ops may be collected; submit starts what was collected, and so do rows_read, fetch
     * and take unless what they want lies on the host, and freeing scratch. Until then the
     * positions and page tables that kv_write and attention were given must stay as they are; every
     * other argument may change when its op returns. */
    void (*submit)(rvi_backend *be);
    /* Whether the device still works. Once it does not, ops do nothing, rows read as NaN, and this
     * says why. */
    rv_status (*check)(rvi_backend *be, rv_error *err);
    /* Scratch for calls of up to n_rows rows whose operands have up to n_cols columns; types: of
     * the weights, a bit 1 << rvi_qtype for each. */
    rv_status (*reserve)(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err);
    /* While *stop is set, compute ops return at once with their work undone or incomplete. NULL:
     * they always complete it. */
    void (*set_stop)(rvi_backend *be, const atomic_bool *stop);

    /* Runs fn(ctx, 0 .. n_tasks - 1, worker) on the backend's threads. May be called from any
     * thread, also during a computation; other rooms use it for work over a model's bytes. */
    void (*share)(rvi_backend *be, void (*fn)(void *ctx, int task, int worker), void *ctx,
                  int n_tasks);

    rv_status (*kv_new)(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                        rv_error *err);
    void (*kv_free)(rvi_backend *be, rvi_kv_store *kv); /* accepts NULL */
    /* Tiered stores alone; NULL where a backend has none. Pages begin without any form. hold gives
     * a page these forms and no others; what a new one holds is undefined. chill makes the cold
     * form of the warm one. trim returns the memory that hold has left over, except that of n
     * pages. None of them fails. Of other stores, hold with no form returns the page's memory to
     * the system until it is written to again. */
    unsigned (*kv_forms)(const rvi_kv_store *kv, int32_t page);
    void (*kv_hold)(rvi_backend *be, rvi_kv_store *kv, int32_t page, unsigned forms);
    void (*kv_chill)(rvi_backend *be, rvi_kv_store *kv, int32_t page);
    void (*kv_trim)(rvi_backend *be, rvi_kv_store *kv, int n);
    void (*kv_copy_page)(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from);
    /* A page as bytes, the same on every instruction set. */
    size_t (*kv_page_bytes)(const rvi_kv_store *kv);
    void (*kv_read_page)(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to);
    void (*kv_write_page)(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from);
    bool (*is_exact)(const rvi_backend *be);
    void (*kv_write)(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                     const rvi_kv_row *rows, int n_rows);

    void (*embed)(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                  int n_rows, float scale);
    void (*rms_norm)(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w, int n_rows,
                     float eps);
    /* Subtracts the mean, scales to variance 1, multiplies by w and adds b; out may be x */
    void (*layer_norm)(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w,
                       const rvi_tensor *b, int n_rows, float eps);
    /* RMS norm of each head separately, in place; the head size is w's length */
    void (*head_norm)(rvi_backend *be, rvi_cols x, const rvi_tensor *w, int n_rows, float eps);
    void (*matmul)(rvi_backend *be, const rvi_matmul *m);
    /* angles: per row n_pairs cosines, then n_pairs sines; heads of head_size, the first 2 *
     * n_pairs elements turn */
    void (*rope)(rvi_backend *be, rvi_cols x, int head_size, rvi_cols angles, bool interleaved,
                 int n_rows);
    void (*attention)(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                      const rvi_attention *a, const rvi_kv_row *rows, int n_rows);
    void (*glu)(rvi_backend *be, rvi_cols out, rvi_cols gate, rvi_cols up, rvi_glu kind,
                int n_rows);
    void (*act)(rvi_backend *be, rvi_cols x, rvi_act kind, int n_rows); /* in place, no gate */
    void (*add)(rvi_backend *be, rvi_cols x, rvi_cols y, int n_rows);   /* x += y */
    void (*soft_cap)(rvi_backend *be, rvi_cols x, float cap, int n_rows);
    void (*gather)(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *from,
                   int n_rows); /* out row i = x row from[i] */
    /* out[r] += scale * B (A x[r]) for every product and row of the groups; the products of a group
     * in order. */
    void (*lora)(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups);
    /* Arranges an adapter's matrix, made by floats_new, for `lora`, slower without it. It must
     * not change any more. Outside exact mode `lora` may compute with its values rounded to f16. */
    rv_status (*lora_pack)(rvi_backend *be, rvi_tensor *m, bool is_b, rv_error *err);
    /* The same for the two matrices of a slot, into memory from pack_new, rounded to 8 bits: half
     * the bytes to read. lora_bytes returns what they take there, 0: nothing is to be done. Slots
     * that a pass reads after each other should lie there in that order. */
    size_t (*lora_bytes)(rvi_backend *be, const rvi_tensor *a, const rvi_tensor *b);
    rv_status (*lora_seal)(rvi_backend *be, rvi_pack *p, rvi_tensor *a, rvi_tensor *b,
                           rv_error *err);

    /* Training; a backend may leave it out: then floats_view and train_reserve return
     * RV_E_UNSUPPORTED, and the other ops of training are NULL. Activations are never int8:
     * products run in bf16 on matrix units where the machine has them and the backend is not exact,
     * in f32 otherwise. Sums over k run in an order fixed by k alone, sums over rows in that of the
     * rows: the thread count makes no difference. "+=" adds to what is there. */
    /* A matrix or vector of f32 whose storage is the caller's and may change between calls. */
    rv_status (*floats_view)(rvi_backend *be, rvi_tensor **out, float *data, int n_rows, int n_cols,
                             rv_error *err);
    /* The floats of a view from `first` on, as a matrix; they go with the view. */
    rv_status (*floats_part)(rvi_backend *be, rvi_tensor **out, const rvi_tensor *view,
                             size_t first, int n_rows, int n_cols, rv_error *err);
    /* NULL: the ops below work on the caller's storage itself. Otherwise on a copy of it: floats_in
     * takes the storage's values over, which must then stay as they are until results were read;
     * floats_out writes those of the copy to the storage. */
    void (*floats_in)(rvi_backend *be, const rvi_tensor *view);
    void (*floats_out)(rvi_backend *be, const rvi_tensor *view);
    /* Scratch for the ops below, with up to n_rows rows of up to n_cols columns and logits of
     * n_vocab columns. */
    rv_status (*train_reserve)(rvi_backend *be, int n_rows, int n_cols, int n_vocab, rv_error *err);
    /* A weight held packed for `linear` (back: and linear_back), so that many threads need not wait
     * for each other's rows. held_bytes returns what it takes of a pack (pack_new); 0: it is not
     * worth it, with few threads. It may be packed when it is first used; the bits of results are
     * the same. Free it before its pack. needs_held: these ops take no other weights. */
    bool needs_held;
    size_t (*memory_left)(
        rvi_backend *be); /* bytes, where tensors lie; NULL: in the host's memory */
    size_t (*held_bytes)(rvi_backend *be, const rvi_tensor *w, bool back);
    rv_status (*held_new)(rvi_backend *be, rvi_held **out, rvi_pack *pack, const rvi_tensor *w,
                          bool back, rv_error *err);
    void (*held_free)(rvi_backend *be, rvi_held *h); /* accepts NULL */
    /* Up to RVI_MAX_LINEARS layers of the same input x; the columns of y are theirs side by side: y
     * = */
    void (*linear)(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y, rvi_cols x,
                   int n_rows);
    /* For each of them dx += W^T dy + scale A^T (B^T dy) unless dx.t is NULL (fresh: dx = their
     * sum); da += scale (B^T dy) x^T and db += scale dy (A x)^T unless NULL. The bits are those of
     * calls for one layer after the other. */
    void (*linear_back)(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                        bool fresh, rvi_cols dy, rvi_cols x, int n_rows);
    /* a->window counts positions. q and k are already turned. */
    void (*span_attention)(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                           const rvi_attention *a, const rvi_span *spans, int n_spans);
    /* dq, dk, dv = the gradients by `dout`; a shared parent gets the sum over all that see it. */
    void (*span_attention_back)(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                const rvi_attention *a, const rvi_span *spans, int n_spans);
    void (*rms_norm_back)(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                          const rvi_tensor *w, int n_rows, float eps); /* dx += */
    /* x: the heads before their norm; dx = (it may be dy) */
    void (*head_norm_back)(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                           const rvi_tensor *w, int n_rows, float eps);
    /* From act = f(gate) * up: dgate =, dup = */
    void (*glu_back)(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                     rvi_cols up, rvi_glu kind, int n_rows);
    /* logits (after their soft cap; 0: none) become weight * d loss / d (logits before the cap), if
     * grad is set; otherwise their values are undefined. Fills targets[i].loss for row i. */
    void (*loss)(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                 int n_rows);
    void (*zero)(rvi_backend *be, rvi_cols x, int n_rows);
    void (*copy)(rvi_backend *be, rvi_cols out, rvi_cols x, int n_rows);
    void (*scatter_add)(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *to,
                        int n_rows); /* out row to[i] += x row i */

    /* A second backend that computes with the weights this one made, with threads (0: as many) and
     * scratch of its own: another thread may compute with it at the same time and gets the same
     * bits. Its threads call pause (may be NULL) before every task, see rvi_pool_set_pause, and
     * before they start anything on a device. NULL: there is no such thing. */
    rv_status (*like)(rvi_backend **out, const rvi_backend *be, int n_threads,
                      void (*pause)(void *ctx), void *pause_ctx, rv_error *err);

    /* Runs the caller's fn(ctx, 0 .. n_tasks - 1, thread) on the backend's threads, in any order,
     * several at once. */
    void (*run)(rvi_backend *be, void (*fn)(void *ctx, int task, int worker), void *ctx,
                int n_tasks);
} rvi_backend_ops;

/* Bytes in use. */
typedef struct rvi_backend_memory {
    atomic_size_t weights; /* packed, and tensors of floats */
    atomic_size_t kv;      /* pages, */
    atomic_size_t kv_room; /* address space for them, all forms */
    atomic_size_t scratch; /* activations, and what products and attention compute with */
    atomic_size_t spare;   /* what may be taken beside for speed alone; 0: no limit is known */
} rvi_backend_memory;

/* Of a backend whose weights are another's: everything. */
static inline size_t rvi_backend_memory_sum(const rvi_backend_memory *m)
{
    return atomic_load(&m->weights) + atomic_load(&m->kv_room) + atomic_load(&m->scratch);
}

struct rvi_backend {
    const rvi_backend_ops *ops;
    const rvi_log *log;      /* may be NULL */
    const atomic_bool *stop; /* as set_stop left it */
    rvi_backend_memory *memory;
};

static inline bool rvi_backend_is_stopped(const rvi_backend *be)
{
    return be->stop && atomic_load_explicit(be->stop, memory_order_relaxed);
}

static inline rvi_cols rvi_cols_of(rvi_tensor *t, int first, int n)
{
    return (rvi_cols){t, first, n};
}

typedef struct rvi_cpu_options {
    int n_threads;
    bool exact;      /* f32 activations instead of int8 blocks */
    bool no_pack;    /* weights are not packed */
    const char *isa; /* NULL: the best this machine has */
} rvi_cpu_options;

rv_status rvi_backend_cpu_new(rvi_backend **out, const rvi_cpu_options *options, const rvi_log *log,
                              rv_error *err) RVI_MUST_CHECK;
/* Bytes that `reserve` and `train_reserve` have taken so far. */
size_t rvi_backend_cpu_scratch(const rvi_backend *be);
/* What the functions of the CPU backend ask for */
bool rvi_backend_is_cpu(const rvi_backend *be);
const char *rvi_backend_cpu_isa(const rvi_backend *be);     /* the ISA row in use */
const char *rvi_backend_cpu_isa_why(const rvi_backend *be); /* a constant, as all of these */

/* How weights of a type lie in memory and what the activations become that meet them, with the
 * reasons; constants. */
typedef struct rvi_products_form {
    const char *weights, *weights_why, *activations, *activations_why;
} rvi_products_form;
rvi_products_form rvi_backend_cpu_products(const rvi_backend *be, rvi_qtype type);
rvi_products_form rvi_backend_cuda_products(const rvi_backend *be, rvi_qtype type);

typedef struct rvi_cuda_options {
    int device;         /* its number */
    int n_threads;      /* of the host */
    bool exact;         /* f32 activations */
    const char *driver; /* the driver's library; NULL: the system's */
    const void *image;  /* compiled kernels; NULL: those in the program */
    int image_version;  /* of CUDA that `image` needs, 1000 * major + 10 * minor; 0: any */
} rvi_cuda_options;

/* RV_E_UNSUPPORTED: no kernels in this program, no driver, too old a driver, no device that they
 * run on. */
rv_status rvi_backend_cuda_new(rvi_backend **out, const rvi_cuda_options *options,
                               const rvi_log *log, rv_error *err) RVI_MUST_CHECK;
/* Does this machine have a driver, whether or not its device can be used? */
bool rvi_backend_cuda_has_driver(void);
/* Bytes of a CUDA device that nobody uses, and all of them; both 0: it does not say. */
void rvi_backend_cuda_memory(rvi_backend *be, size_t *left, size_t *total);
/* What `reserve` for these rows and columns, and attention with heads of this size, take of it. */
size_t rvi_backend_cuda_scratch(const rvi_backend *be, int n_rows, int n_cols, int head_size);

/* The first n_host layers of a model on take_host, which it takes (also on failure), the others and
 * the head on the device, which is borrowed. Counts what both use as the device's. For one model:
 * a tensor belongs to the side of its view's layer. */
rv_status rvi_backend_split_new(rvi_backend **out, rvi_backend *device, rvi_backend *take_host,
                                int n_host, rv_error *err) RVI_MUST_CHECK;

#endif
