#include "lora/params.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

typedef struct shape {
    int n_in, n_out; /* of a slot's linear layer; 0: the slot takes no part */
} shape;

static rv_status view_slots(rvi_params *p, rvi_backend *be, const shape *shapes, rv_error *err)
{
    size_t at = 0, rank = (size_t)p->rank;
    if (p->n > INT32_MAX)
        return rvi_error(err, RV_E_ADAPTER, "an adapter of %zu numbers is too large", p->n);
    rv_status st = be->ops->floats_view(be, &p->whole, p->theta, 1, (int)p->n, err);
    for (int i = 0; !st && i < p->adapter->n_slots; i++) {
        rvi_lora_slot *s = &p->adapter->slots[i];
        int n_in = shapes[i].n_in, n_out = shapes[i].n_out;
        if (!n_in) continue;
        st = be->ops->floats_part(be, &s->a, p->whole, at, p->rank, n_in, err);
        at += rank * (size_t)n_in;
        if (!st) st = be->ops->floats_part(be, &s->b, p->whole, at, n_out, p->rank, err);
        at += rank * (size_t)n_out;
        s->scale = p->scale;
        p->adapter->n_used++;
    }
    return st;
}

static float *new_theta(const rvi_params *p, rvi_backend *be)
{
    size_t bytes = p->n * sizeof *p->theta;
    float *theta = be->ops->host_new(be, bytes);
    if (theta) memset(theta, 0, bytes);
    return theta;
}

static rv_status new_of_shapes(rvi_params **out, rvi_backend *be, const shape *shapes, int n_slots,
                               int rank, float scale, rv_error *err)
{
    rvi_params *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "adapter parameters");
    p->rank = rank;
    p->scale = scale;
    for (int i = 0; i < n_slots; i++)
        p->n += (size_t)rank * ((size_t)shapes[i].n_in + (size_t)shapes[i].n_out);
    p->adapter = rvi_zalloc(sizeof *p->adapter);
    if (p->adapter) {
        p->adapter->be = be;
        p->theta = new_theta(p, be);
        p->adapter->n_slots = n_slots;
        p->adapter->slots = rvi_zalloc_array((size_t)n_slots, sizeof *p->adapter->slots);
    }
    rv_status st = RV_OK;
    if (!p->theta || !p->adapter || !p->adapter->slots) st = rvi_nomem(err, "adapter parameters");
    if (!st) st = view_slots(p, be, shapes, err);
    if (st)
        rvi_params_free(p);
    else
        *out = p;
    return st;
}

rv_status rvi_params_new(rvi_params **out, rvi_backend *be, const rvi_lora_target *targets,
                         int n_targets, bool (*wanted)(const void *ctx, int target),
                         const void *ctx, int rank, float alpha, rv_error *err)
{
    *out = NULL;
    if (rank < 1 || rank > RVI_MAX_RANK)
        return rvi_error(err, RV_E_ADAPTER, "rank must be 1..%d (got %d)", RVI_MAX_RANK, rank);
    if (!isfinite(alpha))
        return rvi_error(err, RV_E_ADAPTER, "alpha of an adapter must be a number");
    int n_wanted = 0;
    for (int i = 0; i < n_targets; i++) n_wanted += wanted(ctx, i);
    if (!n_wanted)
        return rvi_error(err, RV_E_ADAPTER, "an adapter needs at least one linear layer");
    shape *shapes = rvi_zalloc_array((size_t)n_targets, sizeof *shapes);
    if (!shapes) return rvi_nomem(err, "adapter parameters");
    for (int i = 0; i < n_targets; i++)
        if (wanted(ctx, i)) shapes[i] = (shape){targets[i].n_in, targets[i].n_out};
    rv_status st = new_of_shapes(out, be, shapes, n_targets, rank, alpha / (float)rank, err);
    rvi_free(shapes);
    return st;
}

rv_status rvi_params_like(rvi_params **out, const rvi_params *p, rv_error *err)
{
    *out = NULL;
    const rvi_adapter *a = p->adapter;
    shape *shapes = rvi_zalloc_array((size_t)a->n_slots, sizeof *shapes);
    if (!shapes) return rvi_nomem(err, "adapter parameters");
    for (int i = 0; i < a->n_slots; i++)
        if (a->slots[i].a)
            shapes[i] =
                (shape){a->be->ops->n_cols(a->slots[i].a), a->be->ops->n_rows(a->slots[i].b)};
    rv_status st = new_of_shapes(out, a->be, shapes, a->n_slots, p->rank, p->scale, err);
    rvi_free(shapes);
    return st;
}

void rvi_params_free(rvi_params *p)
{
    if (!p) return;
    rvi_backend *be = p->adapter ? p->adapter->be : NULL;
    if (be) be->ops->tensor_free(be, p->whole);
    rvi_adapter_free(p->adapter);
    if (be) be->ops->host_free(be, p->theta);
    rvi_free(p);
}

void rvi_params_init_random(rvi_params *p, uint64_t seed)
{
    rvi_rng rng = {seed};
    const rvi_adapter *a = p->adapter;
    float *at = p->theta;
    for (int i = 0; i < a->n_slots; i++) {
        if (!a->slots[i].a) continue;
        size_t n_in = (size_t)a->be->ops->n_cols(a->slots[i].a),
               n_out = (size_t)a->be->ops->n_rows(a->slots[i].b), rank = (size_t)p->rank;
        double bound = 1 / sqrt((double)n_in);
        for (size_t j = 0; j < rank * n_in; j++)
            *at++ = (float)((2 * rvi_rng_double(&rng) - 1) * bound);
        for (size_t j = 0; j < rank * n_out; j++) *at++ = 0;
    }
}
