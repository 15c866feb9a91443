/* svd.h - small dense decompositions in double, for merging adapters. Matrices are stored column
 * after column. Values must be numbers; nothing here can fail. */
#ifndef RVI_LORA_SVD_H
#define RVI_LORA_SVD_H

/* a (m x n, m >= n) = Q R by Householder's reflections: a becomes Q, whose columns are orthonormal
 * also where those of a are not independent; r is n x n, zero below its diagonal. */
void rvi_qr(double *a, int m, int n, double *r);

/* a (n x n) = U diag(s) V^T by one-sided Jacobi rotations: a becomes U; s is descending, and values
 * that are rounding noise relative to s[0] become 0; U and V are orthogonal whatever the rank of
 * a. */
void rvi_svd(double *a, int n, double *s, double *v);

#endif
