/* fake_runtime.h - a runtime of the public interface on the driver of fake_driver.cpp. */
#ifndef TESTS_CUDA_FAKE_RUNTIME_H
#define TESTS_CUDA_FAKE_RUNTIME_H

#include "api/api.h"
#include "cuda/fake.h"

/* Its backend is put in by hand: the tests' programs have no kernels that a real driver takes. */
static inline rv_runtime *fake_runtime_with(const rv_runtime_options *o)
{
    rv_runtime *rt;
    assert_ok(rv_runtime_new(&rt, o, err));
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rvi_quota_deinit(&rt->quota);
    rt->be->ops->free(rt->be);
    assert_ok(open_fake(&rt->be, o->exact, &rt->log, err));
    assert_ok(rvi_quota_init(&rt->quota, rt->be->memory, &rt->adapter_bytes, err));
    rvi_api_leave_heap(heap);
    return rt;
}

#endif
