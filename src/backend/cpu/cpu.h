/* cpu.h - what the files of the CPU backend share. */
#ifndef RVI_BACKEND_CPU_CPU_H
#define RVI_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernels/panels.h"

struct rvi_tensor {
    rvi_qtype type;      /* F32 for vectors and activation rows */
    int n_rows, n_cols;  /* matrix: n_out, n_in; vector: 1, n */
    int stride;          /* of activation rows, in floats */
    const uint8_t *data; /* borrowed, or == heap */
    size_t row_bytes;
    float *heap;            /* storage of vectors and activation rows, or NULL */
    bool viewed;            /* heap is the caller's (floats_view), not owned */
    bool mapped;            /* data is a mapped file's */
    atomic_size_t *counted; /* where heap's bytes are counted, or NULL */
    const uint8_t *panels;  /* packed (kernels/panels.h), or NULL */
    /* Of an adapter's matrix, or NULL: in f16, owned, times a power of 2 that brings the largest
     * value near f16's largest; half_scale undoes it. A in rows, B in panels for gemm_low_f16. */
    rvi_f16 *half;
    size_t half_bytes;
    float half_scale;
    /* Of a sealed one, or NULL: in 8 bits, in a pack, for gemm_bytes and gemm_low_bytes. A: factors
     * of the rows' sums, of B's columns too; B: scales of the panels. */
    const int8_t *bytes;
    const float *factors;
};

struct rvi_pack {
    uint8_t *data;
    size_t used, size;
};

/* What kernels take as activations, by the type of the weights. */
typedef enum rvi_cpu_form {
    RVI_FORM_NARROW, /* int8 in blocks of 32 */
    RVI_FORM_WIDE,   /* of 256 */
    RVI_FORM_F32,
    RVI_FORM_F16,
    RVI_FORM_BF16,
    RVI_FORM_COUNT
} rvi_cpu_form;

typedef struct rvi_profile rvi_profile;
typedef struct rvi_train_scratch rvi_train_scratch; /* train.h */

typedef struct rvi_cpu {
    rvi_backend be; /* first */
    rvi_pool *pool;
    rvi_kernels k;
    bool exact;
    bool no_pack;
    bool wanted[RVI_FORM_COUNT];    /* by a weight that scratch was reserved for */
    uint8_t *acts[RVI_FORM_COUNT];  /* a matmul's input rows, prepared */
    uint8_t *tiles[RVI_FORM_COUNT]; /* the same in groups of 16 rows for tiles */
    uint8_t *ahead;                 /* such groups in blocks of 32, made for the next matmul, */
    const rvi_tensor *ahead_of;     /* if that is with this matrix; NULL: none are */
    float **panel;                  /* per worker: weight rows as f32, or one packed panel */
    float **result; /* per worker: results of products before they are added or gated */
    float *low;     /* per worker: A x of an adapter, RVI_LORA_ROWS x RVI_MAX_RANK */
    int max_rows, max_cols;
    size_t reserved_bytes;    /* of all the scratch above */
    int n_embedded;           /* rows, since pages of a table were given back */
    rvi_profile *profile;     /* NULL: off */
    rvi_train_scratch *train; /* NULL: nothing was reserved for training */
} rvi_cpu;

enum { RVI_CPU_PANEL = 24 }; /* weight rows turned into f32 at a time */
enum { RVI_LORA_ROWS = 16 }; /* that meet an adapter's matrices together */

static inline rvi_cpu *rvi_cpu_of(rvi_backend *be)
{
    return (rvi_cpu *)be;
}

static inline float *rvi_cpu_row(rvi_cols c, int row)
{
    return c.t->heap + (size_t)row * (size_t)c.t->stride + (size_t)c.first;
}

/* ops.c: one task a row, for so little work that few rows are done by the calling thread alone */
void rvi_cpu_run_light(rvi_cpu *cpu, rvi_task_fn fn, void *ctx, int n_rows, int n_cols);

/* matmul.c */
rv_status rvi_cpu_reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err);
void rvi_cpu_scratch_free(rvi_cpu *cpu);
void rvi_cpu_matmul(rvi_backend *be, const rvi_matmul *m);
size_t rvi_cpu_pack_bytes(rvi_backend *be, const rvi_tensor *t);
rv_status rvi_cpu_pack_new(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err);
void rvi_cpu_pack(rvi_backend *be, rvi_pack *p, rvi_tensor *t);
void rvi_cpu_pack_free(rvi_backend *be, rvi_pack *p);

/* lora.c */
void rvi_cpu_lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups);
rv_status rvi_cpu_lora_pack(rvi_backend *be, rvi_tensor *m, bool is_b, rv_error *err);
size_t rvi_cpu_lora_bytes(rvi_backend *be, const rvi_tensor *a, const rvi_tensor *b);
rv_status rvi_cpu_lora_seal(rvi_backend *be, rvi_pack *p, rvi_tensor *a, rvi_tensor *b,
                            rv_error *err);
void rvi_cpu_lora_drop_half(rvi_tensor *m); /* what lora_pack made */

/* kv_store.c, attention.c */
rv_status rvi_cpu_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                         rv_error *err);
void rvi_cpu_kv_free(rvi_backend *be, rvi_kv_store *kv);
unsigned rvi_cpu_kv_forms(const rvi_kv_store *kv, int32_t page);
void rvi_cpu_kv_hold(rvi_backend *be, rvi_kv_store *kv, int32_t page, unsigned forms);
void rvi_cpu_kv_chill(rvi_backend *be, rvi_kv_store *kv, int32_t page);
void rvi_cpu_kv_trim(rvi_backend *be, rvi_kv_store *kv, int n);
void rvi_cpu_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from);
size_t rvi_cpu_kv_page_bytes(const rvi_kv_store *kv);
void rvi_cpu_kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to);
void rvi_cpu_kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from);
void rvi_cpu_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                      const rvi_kv_row *rows, int n_rows);
double rvi_cpu_kv_row_bytes(const rvi_kv_store *kv); /* of one position in one layer, K and V */
void rvi_cpu_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                       const rvi_attention *a, const rvi_kv_row *rows, int n_rows);

#endif
