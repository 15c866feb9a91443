/* driver.h - the CUDA driver, opened when the program runs: its functions as a table.
 *
 * The program needs no CUDA library to be built, linked or started. The declarations are those of
 * the driver's stable interface, as far as they are used here. */
#ifndef RVI_BACKEND_CUDA_DRIVER_H
#define RVI_BACKEND_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/library.h"

typedef int rvi_cu_result; /* 0: done */
enum {
    RVI_CU_INVALID = 1,
    RVI_CU_OUT_OF_MEMORY = 2,
    RVI_CU_UNAVAILABLE = 46, /* another process has the device for itself */
    RVI_CU_NO_DEVICE = 100,
    RVI_CU_NO_BINARY = 209,
    RVI_CU_CANNOT_COMPILE = 222, /* the image has nothing for this device but too new PTX */
};
enum { /* attributes of a device */
       RVI_CU_PROCESSORS = 16,
       RVI_CU_CLOCK_KHZ = 13,
       RVI_CU_MEMORY_KHZ = 36,
       RVI_CU_BUS_BITS = 37,
       RVI_CU_L2_BYTES = 38,
       RVI_CU_MAJOR = 75,
       RVI_CU_MINOR = 76,
       RVI_CU_MOST_SHARED = 97, /* shared memory of a block, as a function may ask for it */
};
enum {                          /* attributes of a function */
       RVI_CU_COMPILED_FOR = 5, /* 10 * major + minor of its PTX, whatever device runs it */
       RVI_CU_SHARED_BYTES = 8,
       RVI_CU_SHARED_PART = 9, /* per cent of a processor's fast memory that should be shared */
       RVI_CU_LARGE_CLUSTERS = 14,
};
enum { RVI_CU_STREAM_ALONE = 1, RVI_CU_EVENT_NO_TIME = 2, RVI_CU_CAPTURE_THREAD = 1 };

typedef int rvi_cu_device;
typedef uint64_t rvi_cu_address;
typedef struct rvi_cu_context rvi_cu_context;
typedef struct rvi_cu_module rvi_cu_module;
typedef struct rvi_cu_function rvi_cu_function;
typedef struct rvi_cu_stream rvi_cu_stream;
typedef struct rvi_cu_event rvi_cu_event;
typedef struct rvi_cu_graph rvi_cu_graph;
typedef struct rvi_cu_exec rvi_cu_exec;

typedef struct rvi_cu_attribute {
    int id, zero;
    unsigned value[16];
} rvi_cu_attribute;
/* of a launch: blocks that start together, by dimension; whether it may start while the launch in
 * front of it runs */
enum { RVI_CU_CLUSTER = 4, RVI_CU_EARLY = 6 };
typedef struct rvi_cu_launch {
    unsigned grid[3], threads[3], shared;
    rvi_cu_stream *stream;
    rvi_cu_attribute *attributes;
    unsigned n_attributes;
} rvi_cu_launch;

/* our name, the driver's name, parameters */
#define RVI_CU_FUNCTIONS(X)                                                                        \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(driver_version, "cuDriverGetVersion", (int *version))                                        \
    X(error_name, "cuGetErrorName", (rvi_cu_result r, const char **name))                          \
    X(error_text, "cuGetErrorString", (rvi_cu_result r, const char **text))                        \
    X(device_count, "cuDeviceGetCount", (int *n))                                                  \
    X(device_get, "cuDeviceGet", (rvi_cu_device * out, int index))                                 \
    X(device_name, "cuDeviceGetName", (char *name, int size, rvi_cu_device d))                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, rvi_cu_device d))      \
    X(context_retain, "cuDevicePrimaryCtxRetain", (rvi_cu_context * *out, rvi_cu_device d))        \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (rvi_cu_device d))                          \
    X(context_use, "cuCtxSetCurrent", (rvi_cu_context * c))                                        \
    X(memory, "cuMemGetInfo_v2", (size_t * left, size_t * total))                                  \
    X(module_load, "cuModuleLoadData", (rvi_cu_module * *out, const void *image))                  \
    X(module_unload, "cuModuleUnload", (rvi_cu_module * m))                                        \
    X(module_function, "cuModuleGetFunction",                                                      \
      (rvi_cu_function * *out, rvi_cu_module * m, const char *name))                               \
    X(function_get, "cuFuncGetAttribute", (int *value, int attribute, rvi_cu_function *f))         \
    X(function_set, "cuFuncSetAttribute", (rvi_cu_function * f, int attribute, int value))         \
    X(active_clusters, "cuOccupancyMaxActiveClusters",                                             \
      (int *n, rvi_cu_function *f, const rvi_cu_launch *l))                                        \
    X(alloc, "cuMemAlloc_v2", (rvi_cu_address * out, size_t size))                                 \
    X(release, "cuMemFree_v2", (rvi_cu_address at))                                                \
    X(host_alloc, "cuMemAllocHost_v2", (void **out, size_t size))                                  \
    X(host_release, "cuMemFreeHost", (void *p))                                                    \
    X(copy_in, "cuMemcpyHtoDAsync_v2",                                                             \
      (rvi_cu_address to, const void *from, size_t size, rvi_cu_stream *s))                        \
    X(copy_out, "cuMemcpyDtoHAsync_v2",                                                            \
      (void *to, rvi_cu_address from, size_t size, rvi_cu_stream *s))                              \
    X(copy_within, "cuMemcpyDtoDAsync_v2",                                                         \
      (rvi_cu_address to, rvi_cu_address from, size_t size, rvi_cu_stream * s))                    \
    X(fill, "cuMemsetD8Async",                                                                     \
      (rvi_cu_address at, unsigned char v, size_t size, rvi_cu_stream *s))                         \
    X(stream_new, "cuStreamCreate", (rvi_cu_stream * *out, unsigned flags))                        \
    X(stream_free, "cuStreamDestroy_v2", (rvi_cu_stream * s))                                      \
    X(stream_wait, "cuStreamSynchronize", (rvi_cu_stream * s))                                     \
    X(event_new, "cuEventCreate", (rvi_cu_event * *out, unsigned flags))                           \
    X(event_free, "cuEventDestroy_v2", (rvi_cu_event * e))                                         \
    X(event_record, "cuEventRecord", (rvi_cu_event * e, rvi_cu_stream * s))                        \
    X(event_wait, "cuEventSynchronize", (rvi_cu_event * e))                                        \
    X(launch, "cuLaunchKernelEx",                                                                  \
      (const rvi_cu_launch *l, rvi_cu_function *f, void **arguments, void **extra))                \
    X(capture_begin, "cuStreamBeginCapture_v2", (rvi_cu_stream * s, int mode))                     \
    X(capture_end, "cuStreamEndCapture", (rvi_cu_stream * s, rvi_cu_graph * *out))                 \
    X(graph_make, "cuGraphInstantiateWithFlags",                                                   \
      (rvi_cu_exec * *out, rvi_cu_graph * g, unsigned long long flags))                            \
    X(graph_launch, "cuGraphLaunch", (rvi_cu_exec * e, rvi_cu_stream * s))                         \
    X(graph_free, "cuGraphDestroy", (rvi_cu_graph * g))                                            \
    X(exec_free, "cuGraphExecDestroy", (rvi_cu_exec * e))

typedef struct rvi_cu_driver {
    rvi_library *library;
    int version; /* 1000 * major + 10 * minor of the CUDA that it knows */
#define X(name, symbol, parameters) rvi_cu_result(*name) parameters;
    RVI_CU_FUNCTIONS(X)
#undef X
} rvi_cu_driver;

/* name: of the library, NULL for the system's. RV_E_UNSUPPORTED: there is no driver, it is too old,
 * or it finds no device. */
rv_status rvi_cu_driver_open(rvi_cu_driver *out, const char *name, int least_version,
                             rv_error *err) RVI_MUST_CHECK;
void rvi_cu_driver_close(rvi_cu_driver *d);
/* "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered" */
rv_status rvi_cu_error(const rvi_cu_driver *d, rvi_cu_result r, const char *doing, rv_error *err);

#endif
