/* fake.h - the driver of fake_driver.cpp, as tests tell it what is to go wrong. */
#ifndef TESTS_CUDA_FAKE_H
#define TESTS_CUDA_FAKE_H

#include "model/golden.h"

#include <math.h>

#include "backend/cuda/cuda.h"
#include "base/library.h"

typedef struct fake_state {
    int version, n_devices;
    size_t memory, used;
    long launches, fail_after;
    int sticky;
    long graphs;
    size_t fetched, sent;
    bool is_silent;
    int major, minor, shared;
    bool compiles;
    int opening, loading;
    int processors;
    long allocations;
    size_t left_then;
    long gradients;
} fake_state;

/* The library stays loaded, so that what is set here is there when the backend opens it. */
static inline fake_state *fake(void)
{
    static fake_state *state;
    if (!state) {
        rvi_library *l = rvi_library_open(FAKE_DRIVER);
        assert_non_null(l);
        fake_state *(*get)(void) = (fake_state * (*)(void)) rvi_library_function(l, "fake_driver");
        assert_non_null(get);
        state = get();
    }
    return state;
}

static inline int reset(void **state)
{
    (void)state;
    size_t used = fake()->used;
    static fake_state card; /* FAKE_DEVICE names one */
    if (!card.major) card = *fake();
    *fake() = (fake_state){.version = 13000,
                           .major = card.major,
                           .minor = card.minor,
                           .shared = card.shared,
                           .n_devices = 1,
                           .processors = 64,
                           .memory = (size_t)1 << 40,
                           .used = used,
                           .fail_after = -1};
    return used != 0; /* a test that left device memory behind fails */
}

static inline rv_status open_fake(rvi_backend **out, bool exact, const rvi_log *log, rv_error *err)
{
    rvi_cuda_options o = {
        .n_threads = 1, .exact = exact, .driver = FAKE_DRIVER, .image = "in the library"};
    return rvi_backend_cuda_new(out, &o, log, err);
}

/* RUVLLM_TEST_CUDA=system: on a real device. */
static inline bool is_real(void)
{
    const char *name = getenv("RUVLLM_TEST_CUDA");
    return name && !strcmp(name, "system");
}

/* There is time for what differs in numbers alone: on the host that takes minutes, and so it does
 * on a device under a tool that watches it (RUVLLM_TEST_FEW, see tools/sanitize_cuda). */
static inline bool is_quick(void)
{
    return is_real() && !getenv("RUVLLM_TEST_FEW");
}

static inline rvi_backend *open_device(void)
{
    rvi_backend *be;
    rvi_cuda_options o = {.n_threads = 2,
                          .driver = is_real() ? NULL : FAKE_DRIVER,
                          .image = is_real() ? NULL : "in the library"};
    assert_ok(rvi_backend_cuda_new(&be, &o, NULL, err));
    return be;
}

#endif
