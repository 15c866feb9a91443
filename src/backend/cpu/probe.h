/* probe.h - measures the machine as the CPU backend uses it: on its threads, through its ops.
 *
 * A model's speed can be computed from these rates: seconds for a token are the sum, over its
 * matrices, of bytes / rate and the cost of a call, plus attention and the row ops. All figures are
 * in plain units: seconds, bytes and operations a second. */
#ifndef RVI_BACKEND_CPU_PROBE_H
#define RVI_BACKEND_CPU_PROBE_H

#include "backend/backend.h"

enum {
    RVI_CPU_PROBE_SETS = 6,
    RVI_CPU_PROBE_COUNTS = 6,
    RVI_CPU_PROBE_ROWS = 256,
    RVI_CPU_PROBE_HEADS = 16
};

typedef struct rvi_cpu_probe_pair {
    double one, all; /* one thread, all threads */
} rvi_cpu_probe_pair;

/* Times of one element of one row; attention: of one element of a query head and one key, where
 * RVI_CPU_PROBE_HEADS heads are shared out to the threads. */
typedef struct rvi_cpu_probe_ops {
    double norm; /* one norm and one addition */
    double rope; /* turning, and writing to the cache */
    double glu;
    double attention;
} rvi_cpu_probe_ops;

typedef struct rvi_cpu_probe {
    int n_threads;
    /* reading, by the size of the working set: smallest first, the last beyond the caches */
    size_t n_sets, set_bytes[RVI_CPU_PROBE_SETS];
    rvi_cpu_probe_pair read[RVI_CPU_PROBE_SETS];
    /* products */
    const char *int8_name, *bf16_name;
    rvi_cpu_probe_pair int8, bf16; /* operations */
    struct {
        double memory, cache; /* one row: bytes of weights, from the largest and the smallest set */
        double large;         /* from the largest set: the bytes of a matrix beyond large_from */
        double call;          /* seconds of a product, besides its bytes */
        double many; /* RVI_CPU_PROBE_ROWS rows: operations, weights from the largest set */
    } weight[RVI_QTYPE_COUNT];
    size_t large_from;           /* bytes of a matrix */
    double call;                 /* a product of minimal size: the cost of waking the threads */
    rvi_cpu_probe_ops one, many; /* one row; per row of many */
    double logit;                /* handing one logit to the caller */
    /* what other thread counts give: the one-row rate from memory, and the many-row rate of Q4_K */
    size_t n_counts;
    struct {
        int n;
        double memory, many;
    } count[RVI_CPU_PROBE_COUNTS];
} rvi_cpu_probe;

typedef struct rvi_cpu_probe_options {
    size_t working_set; /* bytes beyond the last cache; 0: chosen by caches and memory */
    double seconds;     /* about how long it takes on an idle machine; 0: 4.5 */
    double limit; /* seconds after which what was measured once is not measured again, and other
                     thread counts are not looked at; 0: 12 */
    int n_physical, n_logical;    /* cores and CPUs, for the thread counts to try; 0: none */
    size_t last_cache, available; /* bytes, 0: unknown */
    bool quick;                   /* small matrices and few of them: rough figures at once */
} rvi_cpu_probe_options;

/* Bytes of weights of this type a second, in products of one row: some hundredths of a second. */
rv_status rvi_cpu_probe_row(double *out, rvi_backend *be, rvi_qtype type, size_t last_cache,
                            rv_error *err) RVI_MUST_CHECK;
rv_status rvi_cpu_probe_run(rvi_cpu_probe *out, rvi_backend *be, const rvi_cpu_probe_options *o,
                            rv_error *err) RVI_MUST_CHECK;

#endif
