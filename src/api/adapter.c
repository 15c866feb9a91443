/* Adapters and sets of them. */
#include <math.h>

#include "api/api.h"
#include "lora/file.h"
#include "model/digest.h"

rv_status rv_adapter_load(rv_adapter **out, const rv_model *m, const char *path, rv_error *err)
{
    if (!out || !path) return rvi_error(err, RV_E_INVALID, "rv_adapter_load: NULL argument");
    *out = NULL;
    rv_status st = rvi_api_need_weights(m, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    char digest[RVI_SHA256_HEX];
    rvi_adapter *a = NULL;
    st = rvi_model_digest(m->model->source, m->rt->be, digest, err);
    if (!st)
        st = rvi_adapter_load(&a, m->model->be, path, m->model->targets, m->model->n_targets,
                              m->model->arch->gguf_names, digest, err);
    if (!st) st = rvi_api_wrap_adapter(out, m, a, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rvi_api_wrap_adapter(rv_adapter **out, const rv_model *m, rvi_adapter *take,
                               rv_error *err)
{
    rv_adapter *a = rvi_zalloc(sizeof *a);
    *out = a;
    if (!a) {
        rvi_adapter_free(take);
        return rvi_nomem(err, "adapter");
    }
    atomic_init(&a->users, 1);
    a->m = rvi_api_retain_model(m);
    a->a = take;
    a->bytes = rvi_adapter_n_params(take) * sizeof(float);
    atomic_fetch_add(&m->rt->adapter_bytes, a->bytes);
    return RV_OK;
}

rv_adapter *rvi_api_retain_adapter(const rv_adapter *a)
{
    rv_adapter *own = (rv_adapter *)(uintptr_t)a;
    atomic_fetch_add(&own->users, 1);
    return own;
}

static void release_adapter(rv_adapter *a)
{
    if (!a || atomic_fetch_sub(&a->users, 1) != 1) return;
    rv_model *m = a->m;
    atomic_fetch_sub(&m->rt->adapter_bytes, a->bytes);
    rvi_adapter_free(a->a);
    rvi_free(a);
    rvi_api_release_model(m);
}

void rv_adapter_free(rv_adapter **a)
{
    if (!a) return;
    release_adapter(*a);
    *a = NULL;
}

static rv_status check_uses(const rv_model *m, const rv_adapter_use *uses, size_t n, rv_error *err)
{
    if (n && !uses) return rvi_error(err, RV_E_INVALID, "%zu adapters, but no list of them", n);
    if (n > 64) return rvi_error(err, RV_E_ADAPTER, "%zu adapters at once are too many", n);
    for (size_t i = 0; i < n; i++) {
        if (!uses[i].adapter) return rvi_error(err, RV_E_INVALID, "adapter %zu is NULL", i + 1);
        if (uses[i].adapter->m != m)
            return rvi_error(err, RV_E_ADAPTER, "adapter %zu was loaded for another model", i + 1);
        if (!isfinite(uses[i].scale))
            return rvi_error(err, RV_E_ADAPTER, "adapter %zu has a scale that is no number", i + 1);
    }
    return RV_OK;
}

static rv_status fill_set(rv_adapter_set *set, const rv_adapter_use *uses, size_t n, rv_error *err)
{
    if (!n) return RV_OK;
    set->adapters = rvi_zalloc_array(n, sizeof *set->adapters);
    set->uses = rvi_alloc_array(n, sizeof *set->uses);
    if (!set->adapters || !set->uses) return rvi_nomem(err, "adapters");
    for (size_t i = 0; i < n; i++) {
        set->adapters[i] = rvi_api_retain_adapter(uses[i].adapter);
        set->uses[i] = (rvi_adapter_use){uses[i].adapter->a, uses[i].scale};
    }
    set->set = (rvi_adapter_set){
        .uses = set->uses, .n = (int)n, .serial = atomic_fetch_add(&set->m->rt->n_sets, 1) + 1};
    return RV_OK;
}

rv_status rv_adapter_set_new(rv_adapter_set **out, const rv_model *m, const rv_adapter_use *uses,
                             size_t n, rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_adapter_set_new: NULL argument");
    *out = NULL;
    rv_status st = rvi_api_need_weights(m, err);
    if (!st) st = check_uses(m, uses, n, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_adapter_set *set = rvi_zalloc(sizeof *set);
    if (set) {
        atomic_init(&set->users, 1);
        set->m = rvi_api_retain_model(m);
        st = fill_set(set, uses, n, err);
    } else {
        st = rvi_nomem(err, "adapters");
    }
    rvi_api_leave_heap(heap);
    if (st)
        rvi_api_release_set(set);
    else
        *out = set;
    return st;
}

rv_adapter_set *rvi_api_retain_set(const rv_adapter_set *set)
{
    rv_adapter_set *own = (rv_adapter_set *)(uintptr_t)set;
    if (own) atomic_fetch_add(&own->users, 1);
    return own;
}

/* The sum of the adapters and their factors, in the order in which they are added. */
static void digest_set(rv_adapter_set *set)
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add_u64(&h, (uint64_t)set->set.n);
    for (int i = 0; i < set->set.n; i++) {
        rvi_sha256_add(&h, set->adapters[i]->digest.hex, RVI_SHA256_HEX);
        rvi_sha256_add(&h, &set->uses[i].scale, sizeof set->uses[i].scale);
    }
    rvi_sha256_end(&h, set->digest);
    set->set.digest = set->digest;
}

bool rvi_api_digest_set(rv_adapter_set *set)
{
    if (!set->adapters || set->set.digest) return false;
    for (int i = 0; i < set->set.n; i++) {
        rv_adapter *a = set->adapters[i];
        if (a->digest.hex[0]) continue;
        return !rvi_adapter_digest_more(a->a, &a->digest, NULL);
    }
    digest_set(set);
    return false;
}

void rvi_api_release_set(rv_adapter_set *set)
{
    if (!set || atomic_fetch_sub(&set->users, 1) != 1) return;
    rv_model *m = set->m;
    for (int i = 0; set->adapters && i < set->set.n; i++) release_adapter(set->adapters[i]);
    rvi_api_leave_learner(set->learner, set->held, NULL);
    rvi_free(set->adapters);
    rvi_free(set->uses);
    rvi_free(set);
    rvi_api_release_model(m);
}

void rv_adapter_set_free(rv_adapter_set **set)
{
    if (!set || !*set) return;
    rv_adapter_set *s = *set;
    *set = NULL;
    if (!s->learner) {
        rvi_api_release_set(s);
        return;
    }
    rv_runtime *rt = rvi_api_retain_runtime(s->m->rt);
    s->next_freed = atomic_load(&rt->freed_sets);
    while (!atomic_compare_exchange_weak(&rt->freed_sets, &s->next_freed, s)) {
    }
    rvi_api_collect(rt);
    rvi_api_release_runtime(rt);
}
