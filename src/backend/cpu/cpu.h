/* cpu.h - what the files of the CPU backend share. */
#ifndef RVI_BACKEND_CPU_CPU_H
#define RVI_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernels/kernels.h"

struct rvi_tensor {
    rvi_qtype type;      /* F32 for vectors and activation rows */
    int n_rows, n_cols;  /* matrix: n_out, n_in; vector: 1, n */
    const uint8_t *data; /* borrowed, or == heap */
    size_t row_bytes;
    float *heap; /* owned storage of vectors and activation rows, or NULL */
};

typedef struct rvi_cpu {
    rvi_backend be; /* first */
    rvi_pool *pool;
    rvi_kernels k;
    bool exact;
    rvi_act_block *acts; /* int8 form of a matmul's input rows */
    float **panel;       /* per worker: weight rows as f32 */
    float *low;          /* per worker: one adapter's A x, RVI_MAX_RANK each */
    int max_rows, max_cols;
} rvi_cpu;

enum { RVI_CPU_PANEL = 24 }; /* weight rows turned into f32 at a time */

static inline rvi_cpu *rvi_cpu_of(rvi_backend *be)
{
    return (rvi_cpu *)be;
}

static inline float *rvi_cpu_row(rvi_cols c, int row)
{
    return c.t->heap + (size_t)row * (size_t)c.t->n_cols + (size_t)c.first;
}

/* matmul.c */
rv_status rvi_cpu_reserve(rvi_backend *be, int n_rows, int n_cols, rv_error *err);
void rvi_cpu_scratch_free(rvi_cpu *cpu);
void rvi_cpu_matmul(rvi_backend *be, rvi_cols out, const rvi_tensor *w, const rvi_tensor *bias,
                    rvi_cols x, int n_rows);
void rvi_cpu_lora(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *a,
                  const rvi_tensor *b, float scale, const int32_t *rows, int n_rows);

/* attention.c */
rv_status rvi_cpu_kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec,
                         rv_error *err);
void rvi_cpu_kv_free(rvi_backend *be, rvi_kv_store *kv);
void rvi_cpu_kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from);
void rvi_cpu_kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                      const rvi_kv_row *rows, int n_rows);
void rvi_cpu_attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                       const rvi_attention *a, const rvi_kv_row *rows, int n_rows);

#endif
