#include "store/pq.h"

#include <stdatomic.h>
#include <string.h>

#include "base/library.h"
#include "base/thread.h"

rvi_pq_functions rvi_pq;

static rv_status find_all(rv_error *err)
{
    rvi_library *l = rvi_library_open("libpq.so.5");
    if (!l)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "libpq.so.5 cannot be loaded: install libpq5 to use PostgreSQL");
    void (*found)(void);
#define X(name)                                                                                    \
    found = rvi_library_function(l, "PQ" #name);                                                   \
    if (!found) {                                                                                  \
        rvi_library_close(l);                                                                      \
        return rvi_error(err, RV_E_UNSUPPORTED, "libpq.so.5 has no PQ" #name ": it is too old");   \
    }                                                                                              \
    rvi_pq.name = (__typeof__(PQ##name) *)found;
    RVI_PQ_FUNCTIONS
#undef X
    return RV_OK;
}

rv_status rvi_pq_load(rv_error *err)
{
    enum { NOT_LOADED, LOADING, LOADED };
    static atomic_int state = NOT_LOADED;
    int was = NOT_LOADED;
    while (!atomic_compare_exchange_strong(&state, &was, LOADING)) {
        if (was == LOADED) return RV_OK;
        was = NOT_LOADED;
        rvi_thread_sleep(1e-3);
    }
    rv_status st = find_all(err);
    atomic_store(&state, st ? NOT_LOADED : LOADED);
    return st;
}
