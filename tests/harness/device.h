/* device.h - the backend that tests of models compute on: the CPU's, or where RUVLLM_TEST_CUDA
 * names a driver ("system": the machine's own; otherwise a library's path), a CUDA device's. With
 * RUVLLM_TEST_HOST_LAYERS=N the first N layers stay on the CPU (the device is then not closed). */
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
    const char *n_host = getenv("RUVLLM_TEST_HOST_LAYERS");
    rvi_backend *device, *host;
    rv_status st = rvi_backend_cuda_new(&device, &cuda, NULL, err);
    *out = device;
    if (st || !n_host) return st;
    st = rvi_backend_cpu_new(&host, o, NULL, err);
    return st ? st : rvi_backend_split_new(out, device, host, atoi(n_host), err);
}

#endif
