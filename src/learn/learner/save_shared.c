/* A shared adapter is trained further with every group. How it was is kept with each generation, so
 * that training goes on from the one that is active: after a rollback, and after the end of the
 * process, for which the newest are on the disk (snapshot.h). */
#include <string.h>

#include "base/mem.h"
#include "learn/learner/learner_internal.h"
#include "learn/journal/snapshot.h"
#include "learn/instant/vector.h"

static const char name[] = "shared";
enum { KEPT = 8 }; /* snapshots */

void rvi_shared_drop(rvi_generation *g)
{
    rvi_free(g->theta);
    rvi_free(g->fisher);
    g->theta = g->fisher = NULL;
}

void rvi_generation_deinit(rvi_generation *g)
{
    rvi_shared_drop(g);
    rvi_free(g->learned);
    g->learned = NULL;
    g->n_learned = 0;
}

static rv_status take(rvi_generation *g, const void *theta, const void *fisher, size_t n,
                      int n_groups, rv_error *err)
{
    g->theta = rvi_alloc_array(n, sizeof *g->theta);
    g->fisher = rvi_alloc_array(n, sizeof *g->fisher);
    if (!g->theta || !g->fisher) {
        rvi_shared_drop(g);
        return rvi_nomem(err, "shared adapter");
    }
    memcpy(g->theta, theta, n * sizeof *g->theta);
    memcpy(g->fisher, fisher, n * sizeof *g->fisher);
    g->n_theta = n;
    g->n_groups = n_groups;
    return RV_OK;
}

rv_status rvi_shared_record(rvi_generation *g, const rvi_shared *s, rv_error *err)
{
    return take(g, s->theta->theta, s->fisher, s->theta->n, s->n_groups, err);
}

/* ---- on the disk: how many groups, theta, Fisher information ---- */

static void owner(const rvi_learner *l, uint8_t out[RVI_SHA256_LEN])
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, l->digest, strlen(l->digest));
    rvi_sha256_end(&h, out);
}

void rvi_shared_save(const rvi_learner *l, const rvi_generation *g)
{
    rvi_buf out = {0};
    rv_error why = {0};
    uint8_t model[RVI_SHA256_LEN];
    uint64_t n_groups = (uint64_t)g->n_groups;
    if (!l->dir || !g->theta) return;
    owner(l, model);
    bool ok = rvi_buf_append(&out, &n_groups, sizeof n_groups) &&
              rvi_buf_append(&out, g->theta, g->n_theta * sizeof *g->theta) &&
              rvi_buf_append(&out, g->fisher, g->n_theta * sizeof *g->fisher);
    rv_status st =
        ok ? rvi_snapshot_save(l->dir, name, (uint64_t)g->number, model, out.data, out.len, &why)
           : rvi_nomem(&why, "snapshot");
    if (!st && g->number > KEPT) rvi_snapshot_drop(l->dir, name, (uint64_t)(g->number - KEPT + 1));
    if (st)
        rvi_log_write(l->parts.be->log, RVI_LOG_WARN,
                      "the shared adapter will be trained anew after a restart: %s", why.text);
    rvi_buf_deinit(&out);
}

static rv_status read_snapshot(rvi_generation *g, const rvi_snapshot *s, rv_error *err)
{
    uint64_t n_groups;
    if (s->len < sizeof n_groups || (s->len - sizeof n_groups) % (2 * sizeof(float))) return RV_OK;
    size_t n = (s->len - sizeof n_groups) / (2 * sizeof(float));
    memcpy(&n_groups, s->data, sizeof n_groups);
    const uint8_t *theta = s->data + sizeof n_groups;
    if (!n || n != rvi_adapter_n_params(g->adapter) || n_groups >= INT32_MAX ||
        !rvi_floats_sound(theta, n, -INFINITY) ||
        !rvi_floats_sound(theta + n * sizeof(float), n, 0))
        return RV_OK;
    return take(g, theta, theta + n * sizeof(float), n, (int)n_groups, err);
}

rv_status rvi_shared_load(const rvi_learner *l, rvi_generation *g, rv_error *err)
{
    uint8_t model[RVI_SHA256_LEN];
    rvi_snapshot s;
    rv_error why = {0};
    if (!l->dir || g->origin != RVI_FROM_SHARED) return RV_OK;
    owner(l, model);
    rv_status st = rvi_snapshot_load(&s, l->dir, name, (uint64_t)g->number, model, &why);
    if (st) return st == RV_E_NOMEM ? rvi_nomem(err, "snapshot") : RV_OK;
    st = read_snapshot(g, &s, err);
    rvi_snapshot_close(&s);
    return st;
}

/* ---- going on ---- */

static void wait_again(rvi_learner *l)
{
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_generation *g = rvi_learner_generation(l, l->lessons.list[i].generation);
        if (!l->lessons.list[i].generation || !g || g->origin != RVI_FROM_SHARED) continue;
        l->lessons.list[i].generation = 0;
    }
}

rv_status rvi_shared_restore(rvi_learner *l, rv_error *err)
{
    const rvi_generation *g = NULL;
    for (size_t i = l->generations.n; !g && i-- > 0;)
        if (l->generations.list[i].origin == RVI_FROM_SHARED &&
            rvi_generation_active(&l->generations.list[i]))
            g = &l->generations.list[i];
    rvi_shared_deinit(&l->shared);
    if (!g || !l->o.shared) return RV_OK;
    rv_status st = g->theta ? rvi_shared_begin(&l->shared, l->parts.m, &l->o, err) : RV_OK;
    if (st) return st;
    if (!g->theta || l->shared.theta->n != g->n_theta) { /* or its rank was another one */
        rvi_shared_deinit(&l->shared);
        wait_again(l);
        return RV_OK;
    }
    size_t bytes = g->n_theta * sizeof(float);
    memcpy(l->shared.theta->theta, g->theta, bytes);
    memcpy(l->shared.star, g->theta, bytes);
    memcpy(l->shared.fisher, g->fisher, bytes);
    l->shared.n_groups = g->n_groups;
    return RV_OK;
}
