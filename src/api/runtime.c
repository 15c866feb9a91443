#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "kernels/kernels.h"

#ifndef RVI_VERSION
#define RVI_VERSION "0.1.0"
#endif

const char *rv_version(void)
{
    return RVI_VERSION;
}

void rv_free(void *p)
{
    rvi_free(p);
}

static void pass_log(void *ctx, rvi_log_level level, const char *line)
{
    const rv_runtime *rt = ctx;
    rt->o.log(rt->o.log_ctx, (rv_log_level)level, line);
}

void rv_runtime_options_init(rv_runtime_options *o)
{
    *o = (rv_runtime_options){.log_level = RV_LOG_WARN};
}

rv_status rv_runtime_new(rv_runtime **out, const rv_runtime_options *o, rv_error *err)
{
    if (!out || !o) return rvi_error(err, RV_E_INVALID, "rv_runtime_new: NULL argument");
    *out = NULL;
    rv_runtime *rt = rvi_zalloc(sizeof *rt);
    if (!rt) return rvi_nomem(err, "runtime");
    rt->o = *o;
    if (o->log)
        rt->log = (rvi_log){.sink = pass_log, .ctx = rt, .level = (rvi_log_level)o->log_level};
    rvi_cpu_options cpu = {.n_threads = o->n_threads ? o->n_threads : rvi_os_cpu_count(),
                           .exact = o->exact != 0,
                           .isa = o->isa};
    rv_status st = rvi_backend_cpu_new(&rt->be, &cpu, &rt->log, err);
    if (st)
        rv_runtime_free(rt);
    else
        *out = rt;
    return st;
}

void rv_runtime_free(rv_runtime *rt)
{
    if (!rt) return;
    if (rt->be) rt->be->ops->free(rt->be);
    rvi_free(rt);
}

const char *rv_runtime_isa(const rv_runtime *rt)
{
    return rt ? rvi_backend_cpu_isa(rt->be) : "";
}

const char *const *rv_isa_list(void)
{
    return rvi_kernels_available();
}
