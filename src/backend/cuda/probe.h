/* probe.h - what a CUDA device is, and how fast it is as this backend uses it: through its ops.
 *
 * A model's speed follows from these rates: a token takes its weights' bytes at the rate of their
 * types, and a call for each kernel; a prompt the operations of its products, and what each product
 * costs besides. All figures are in plain units: seconds, bytes and operations a second. */
#ifndef RVI_BACKEND_CUDA_PROBE_H
#define RVI_BACKEND_CUDA_PROBE_H

#include "backend/backend.h"

enum { RVI_CUDA_PROBE_ROWS = 512, RVI_CUDA_PROBE_IN = 4096, RVI_CUDA_PROBE_OUT = 8192 };

typedef struct rvi_cuda_card {
    char name[128];
    int cuda;         /* 1000 * major + 10 * minor that the driver knows */
    int major, minor; /* compute capability */
    int processors, clock_khz;
    size_t l2, left, total; /* bytes */
} rvi_cuda_card;

typedef struct rvi_cuda_probe {
    double copy;               /* of device memory: bytes read and written */
    double to_device, to_host; /* bytes over the bus, from and to pinned memory */
    double launch;             /* seconds of a kernel without work, in a list that came before */
    double call;               /* seconds of a small product of one row */
    double crossing; /* seconds until a number that is sent there, and changed, has come back */
    struct {
        double row;  /* one row: bytes of weights as the file has them */
        double many; /* RVI_CUDA_PROBE_ROWS rows: operations */
        /* By a second matrix, an eighth as large, the time of such a product is a line: seconds of
         * one without operations, and how many operations there are in each further second. */
        double many_call, many_more;
    } weight[RVI_QTYPE_COUNT]; /* 0: there was no time for it */
} rvi_cuda_probe;

typedef enum rvi_cuda_probe_what {
    RVI_CUDA_PROBE_ALL,    /* seconds */
    RVI_CUDA_PROBE_COPIES, /* nothing else: a tenth of a second */
    RVI_CUDA_PROBE_TYPE    /* what placing a model needs: all but `many`, of one type, over less
                              memory: the like */
} rvi_cuda_probe_what;

typedef struct rvi_cuda_probe_options {
    rvi_cuda_probe_what what;
    rvi_qtype type; /* of RVI_CUDA_PROBE_TYPE */
    double limit;   /* seconds after which no further type is measured; 0: 10 */
    bool quick;     /* small matrices, once: figures that say nothing, for tests */
} rvi_cuda_probe_options;

void rvi_cuda_card_read(rvi_cuda_card *out, rvi_backend *be);
rv_status rvi_cuda_probe_run(rvi_cuda_probe *out, rvi_backend *be, const rvi_cuda_probe_options *o,
                             rv_error *err) RVI_MUST_CHECK;

#endif
