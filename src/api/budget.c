/* One budget in bytes for everything made from a runtime, and who has how much of it. */
#include <string.h>

#include "api/api.h"
#include "ruvllm_service.h"

rv_status rvi_api_check_budget(rv_runtime *rt, rvi_quota_class class, const char *what,
                               rv_error *err)
{
    return rvi_quota_await(&rt->quota, class, 0, NULL, what, err);
}

rv_status rv_runtime_set_budget(rv_runtime *rt, const rv_budget *given, rv_error *err)
{
    const double default_low = 0.85;
    rv_budget b;
    if (!rt) return rvi_error(err, RV_E_INVALID, "rv_runtime_set_budget: NULL argument");
    rv_status st = rvi_api_read_struct(&b, sizeof b, given, "rv_budget", err);
    if (st) return st;
    if (b.low != 0 && !(b.low > 0 && b.low <= 1))
        return rvi_error(err, RV_E_CONFIG, "low must be 0 or a share up to 1 (got %g)", b.low);
    rvi_quota_limits limits = {.most = b.bytes,
                               .most_of = {[RVI_QUOTA_WEIGHTS] = b.weights,
                                           [RVI_QUOTA_ADAPTERS] = b.adapters,
                                           [RVI_QUOTA_SCRATCH] = b.scratch,
                                           [RVI_QUOTA_KV] = b.kv},
                               .low = b.low > 0 ? b.low : default_low};
    rvi_quota_limit(&rt->quota, &limits);
    return RV_OK;
}

static rv_budget_share share_of(const rvi_quota_use *u, rvi_quota_class class)
{
    return (rv_budget_share){u->used[class], u->kept[class], u->limits.most_of[class]};
}

rv_status rv_runtime_get_budget(rv_runtime *rt, rv_budget_use *out, rv_error *err)
{
    if (!rt || !out) return rvi_error(err, RV_E_INVALID, "rv_runtime_get_budget: NULL argument");
    if (out->size < sizeof out->size || out->size > 65536)
        return rvi_error(err, RV_E_CONFIG,
                         "rv_budget_use.size must be sizeof(rv_budget_use) (got %zu)", out->size);
    rvi_quota_use u;
    rvi_quota_read(&rt->quota, &u);
    rv_budget_use full = {.size = out->size,
                          .weights = share_of(&u, RVI_QUOTA_WEIGHTS),
                          .adapters = share_of(&u, RVI_QUOTA_ADAPTERS),
                          .scratch = share_of(&u, RVI_QUOTA_SCRATCH),
                          .kv = share_of(&u, RVI_QUOTA_KV),
                          .n_asked = u.n_asked,
                          .n_refused = u.n_refused};
    full.all.most = u.limits.most;
    for (int c = 0; c < RVI_QUOTA_CLASSES; c++) {
        full.all.used += u.used[c];
        full.all.kept += u.kept[c];
    }
    memcpy(out, &full, RVI_MIN(out->size, sizeof full));
    return RV_OK;
}
