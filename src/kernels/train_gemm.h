/* train_gemm.h - products of float matrices for training: C (=, +=) A B with both operands packed.
 *
 * A is m x k, B is k x n, given as rows of f32 in either direction. Packed, A stands in groups of `row_group` rows and
 * B in panels of 16 columns; k is filled up with zeros to a multiple of `k_step`. Parts of k can be packed by separate
 * calls, so that an operand may be put together from several matrices.
 *
 * Unlike the entries of kernels.h, rows of this table need NOT give the same bits on different instruction sets: `f32`
 * rows keep f32 operands and add by fused steps, the bf16 row rounds both operands to bf16 (nearest even, denormal
 * numbers to 0) and adds in f32 in the order of the hardware. But within one row of the table, the bits of an element
 * of C follow from its row of A, its column of B, k and what C held alone: neither m, n nor the place in the packed
 * operand enters. */
#ifndef RVI_KERNELS_TRAIN_GEMM_H
#define RVI_KERNELS_TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

enum { RVI_GEMM_PANEL = 16 }; /* columns of a panel of B */

typedef struct rvi_train_gemm {
    const char *name;
    int row_group, k_step;
    size_t number_bytes; /* of a packed number */

    /* Elements A[0..m)[0..k) = a[i * stride + j], or a[j * stride + i] when transposed. out: where this part begins in
     * the first group; k_total (a multiple of k_step) is what all parts amount to. Writes whole groups, k filled up. */
    void (*pack_a)(void *out, size_t k_total, const float *a, size_t stride, bool transposed, int m, int k);
    /* Elements B[0..k)[0..n) = b[i * stride + j], or b[j * stride + i] when transposed; likewise. */
    void (*pack_b)(void *out, size_t k_total, const float *b, size_t stride, bool transposed, int k, int n);
    /* c[i * c_stride + j] = (add: +=) the sum over the first k (in the bf16 row a multiple of k_step) of A[i][k]
     * B[k][j]. a_total, b_total: what k_total was when they were packed. Operands on cache lines. */
    void (*product)(const void *a, size_t a_total, int m, const void *b, size_t b_total, int n, size_t k, float *c,
                    size_t c_stride, bool add);

    /* The same from rows that lie anywhere: A[i] = rows[i]; B[i] = rows[i], or column j of B = rows[j] when transposed.
     * NULL in the bf16 row. */
    void (*pack_a_rows)(void *out, size_t k_total, const float *const *rows, int m, int k);
    void (*pack_b_rows)(void *out, size_t k_total, const float *const *rows, bool transposed, int k, int n);
} rvi_train_gemm;

static inline size_t rvi_gemm_k(const rvi_train_gemm *g, size_t k)
{
    size_t step = (size_t)g->k_step;
    return (k + step - 1) / step * step;
}

/* Where rows from `row` on (a multiple of row_group), or columns from `col` on (a multiple of 16), begin at k (a
 * multiple of k_step), in bytes. */
static inline size_t rvi_gemm_a_at(const rvi_train_gemm *g, size_t k_total, int row, size_t k)
{
    return ((size_t)row * k_total + k * (size_t)g->row_group) * g->number_bytes;
}

static inline size_t rvi_gemm_b_at(const rvi_train_gemm *g, size_t k_total, int col, size_t k)
{
    return ((size_t)col * k_total + k * RVI_GEMM_PANEL) * g->number_bytes;
}

static inline int rvi_gemm_rows(const rvi_train_gemm *g, int m)
{
    return (m + g->row_group - 1) / g->row_group * g->row_group;
}

static inline int rvi_gemm_cols(int n)
{
    return (n + RVI_GEMM_PANEL - 1) / RVI_GEMM_PANEL * RVI_GEMM_PANEL;
}

#endif
