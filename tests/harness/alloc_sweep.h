/* alloc_sweep.h - a life in which every allocation fails once: see fail_alloc.h. */
#ifndef TESTS_HARNESS_ALLOC_SWEEP_H
#define TESTS_HARNESS_ALLOC_SWEEP_H

#include "base/error.h"
#include "harness/fail_alloc.h"

/* once: only the n-th call fails; otherwise all from it on. Returns how many calls there were. */
static inline long alloc_sweep(rv_status (*life)(size_t which, rv_error *err), size_t which,
                               bool once)
{
    for (long n = 0;; n++) {
        rv_error err = {0};
        if (once)
            fail_alloc_once(n);
        else
            fail_alloc_after(n);
        rv_status st = life(which, &err);
        if (!fail_alloc_off()) {
            if (st) fail_msg("%zu: %s", which, err.text);
            return n;
        }
        if (once && !st) continue; /* it was for something that only makes things faster */
        if (st != RV_E_NOMEM || err.code != st)
            fail_msg("%zu: call %ld refused, but status %d: %s", which, n, st, err.text);
    }
}

#endif
