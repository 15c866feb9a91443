#include "backend/cuda/driver.h"

#include <string.h>

#include "backend/backend.h"

static const char system_driver[] = "libcuda.so.1";

static rv_status find_functions(rvi_cu_driver *d, const char *name, rv_error *err)
{
    const char *missing = NULL;
#define X(field, symbol, parameters)                                                               \
    d->field = (rvi_cu_result(*) parameters)rvi_library_function(d->library, symbol);              \
    if (!d->field && !missing) missing = symbol;
    RVI_CU_FUNCTIONS(X)
#undef X
    if (!missing) return RV_OK;
    return rvi_error(err, RV_E_UNSUPPORTED,
                     "the CUDA driver %s is too old: it has no %s; install a newer one", name,
                     missing);
}

rv_status rvi_cu_driver_open(rvi_cu_driver *out, const char *name, int least_version, rv_error *err)
{
    *out = (rvi_cu_driver){0};
    if (!name) name = system_driver;
    if (!(out->library = rvi_library_open(name)))
        return rvi_error(err, RV_E_UNSUPPORTED, "no CUDA driver: %s cannot be loaded", name);
    rv_status st = find_functions(out, name, err);
    rvi_cu_result r = 0;
    if (!st && (r = out->driver_version(&out->version)))
        st = rvi_cu_error(out, r, "asking the CUDA driver for its version", err);
    if (!st && out->version < least_version)
        st = rvi_error(
            err, RV_E_UNSUPPORTED,
            "the CUDA driver knows CUDA %d.%d, this program needs %d.%d: install a newer driver",
            out->version / 1000, out->version % 1000 / 10, least_version / 1000,
            least_version % 1000 / 10);
    if (!st && (r = out->init(0)))
        st = r == RVI_CU_NO_DEVICE
                 ? rvi_error(err, RV_E_UNSUPPORTED,
                             "the CUDA driver finds no device (CUDA_VISIBLE_DEVICES can "
                             "hide it)")
                 : rvi_cu_error(out, r, "starting the CUDA driver", err);
    if (st) rvi_cu_driver_close(out);
    return st;
}

bool rvi_backend_cuda_has_driver(void)
{
    rvi_library *l = rvi_library_open(system_driver);
    rvi_library_close(l);
    return l != NULL;
}

void rvi_cu_driver_close(rvi_cu_driver *d)
{
    rvi_library_close(d->library);
    *d = (rvi_cu_driver){0};
}

rv_status rvi_cu_error(const rvi_cu_driver *d, rvi_cu_result r, const char *doing, rv_error *err)
{
    const char *name = NULL, *text = NULL;
    if (d->error_name(r, &name) || !name) name = "unknown error";
    if (d->error_text(r, &text) || !text) text = "";
    return rvi_error(err, r == RVI_CU_OUT_OF_MEMORY ? RV_E_NOMEM : RV_E_UNSUPPORTED,
                     "%s: %s (%d)%s%s", doing, name, r, *text ? ": " : "", text);
}
