/* kmeans.h - groups of vectors: k-means with the k-means++ start. The same input and seed give the
 * same groups everywhere. */
#ifndef RVI_LEARN_KMEANS_H
#define RVI_LEARN_KMEANS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The usual number of groups for n vectors: sqrt(n / 2), at least 1. */
size_t rvi_kmeans_groups(size_t n);

/* points: n vectors of n_dim finite numbers, n >= 1; 1 <= k <= n. groups [n]: the group of each,
 * below k. medoids [k]: the point nearest to each group's mean, SIZE_MAX for an empty group (points
 * that are equal can leave some). */
rv_status rvi_kmeans(const float *const *points, size_t n, size_t n_dim, size_t k, uint64_t seed,
                     uint32_t *groups, size_t *medoids, rv_error *err) RVI_MUST_CHECK;

#endif
