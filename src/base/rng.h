/* rng.h - a small seeded generator (splitmix64): the same seed gives the same numbers everywhere.
 */
#ifndef RVI_BASE_RNG_H
#define RVI_BASE_RNG_H

#include <stdint.h>

typedef struct rvi_rng {
    uint64_t state;
} rvi_rng;

static inline uint64_t rvi_rng_u64(rvi_rng *r)
{
    uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Evenly in [0, 1), 53 bits */
static inline double rvi_rng_double(rvi_rng *r)
{
    return (double)(rvi_rng_u64(r) >> 11) * 0x1p-53;
}

#endif
