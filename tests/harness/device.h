/* device.h - the backend that tests of models compute on: the CPU's, or where RUVLLM_TEST_CUDA
 * names a driver ("system": the machine's own; otherwise a library's path), a CUDA device's. */
#ifndef TESTS_HARNESS_DEVICE_H
#define TESTS_HARNESS_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

static inline const char *test_driver(void)
{
    return getenv("RUVLLM_TEST_CUDA");
}

static inline rv_status test_backend_new(rvi_backend **out, const rvi_cpu_options *o, rv_error *err)
{
    const char *driver = test_driver();
    if (!driver) return rvi_backend_cpu_new(out, o, NULL, err);
    rvi_cuda_options cuda = {.n_threads = o->n_threads, .exact = o->exact};
    if (strcmp(driver, "system")) {
        cuda.driver = driver;
        cuda.image = "the library has the kernels";
    }
    return rvi_backend_cuda_new(out, &cuda, NULL, err);
}

#endif
