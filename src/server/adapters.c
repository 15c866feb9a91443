#include "server/adapters.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "server/reply.h"

/* The folder of a model's own; empty: it has none. */
static void own_folder(const rvi_serving *s, rvi_buf *out)
{
    rvi_buf peft = {0};
    const char *folder = s->server->adapters_folder.data;
    bool is_name = *s->name != '.' && !strchr(s->name, '/');
    bool own = is_name && rvi_buf_printf(out, "%s/%s", folder, s->name) &&
               rvi_os_stat(out->data, NULL) == RVI_OS_DIR &&
               rvi_buf_printf(&peft, "%s/adapter_config.json", out->data) &&
               rvi_os_stat(peft.data, NULL) == RVI_OS_NONE;
    rvi_buf_deinit(&peft);
    if (own) return;
    out->len = 0;
    if (!s->index) rvi_buf_puts(out, folder);
}

/* What was known when the model was unloaded; what has gone since is told, and left out. */
static void add_known(rv_registry *to, const rv_registered *known, size_t n)
{
    rv_error err = {0};
    for (size_t i = 0; i < n; i++)
        if (rv_registry_put(to, known[i].name, known[i].path, 0, NULL, &err))
            fprintf(stderr, "ruvllm: warning: the adapter %s is left out: %s\n", known[i].name,
                    err.text);
}

rv_status rvi_adapters_open(rvi_serving *s, rv_error *err)
{
    rvi_server *v = s->server;
    rvi_buf folder = {0};
    if (!v->adapters_folder.len) return RV_OK;
    rv_registry *made = NULL;
    rv_status st = rv_registry_new(&made, s->model, NULL, err);
    if (st) return st;
    if (s->adapters)
        add_known(made, s->adapters, s->n_adapters);
    else
        own_folder(s, &folder);
    if (folder.failed) st = rvi_nomem(err, "folder of adapters");
    if (!st && folder.len) st = rv_registry_add_folder(made, folder.data, NULL, err);
    rvi_buf_deinit(&folder);
    rvi_lock_take(v->lock);
    s->registry = made;
    rv_free(s->adapters);
    s->adapters = NULL;
    s->n_adapters = 0;
    rvi_lock_give(v->lock);
    return st;
}

void rvi_adapters_close(rvi_serving *s)
{
    rv_error err;
    rvi_lock_take(s->server->lock);
    if (s->registry && rv_registry_list(s->registry, &s->adapters, &s->n_adapters, &err))
        s->n_adapters = 0;
    rv_registry *gone = s->registry;
    s->registry = NULL;
    rvi_lock_give(s->server->lock);
    rv_registry_free(&gone);
}

const char *rvi_adapters_find(const rvi_serving *s, const char *model, bool *ready, rvi_problem *p)
{
    size_t n = strlen(s->name);
    const char *name = !strncmp(model, s->name, n) && model[n] == ':' ? model + n + 1 : model;
    rv_residency where = RV_ON_DISK;
    rv_error err = {0};
    rv_status st =
        s->registry ? rv_registry_where(s->registry, name, &where, &err) : RV_E_NOT_FOUND;
    *ready = where == RV_READY;
    if (!st) return name;
    if (st == RV_E_NOT_FOUND)
        (void)rvi_serving_unknown(s->server, model, p);
    else
        (void)rvi_problem_from(p, st, &err);
    return NULL;
}

rv_status rvi_adapters_load(const rvi_serving *s, const char *name, rv_adapter_set **out,
                            rv_error *err)
{
    return rv_registry_get(s->registry, name, 1, out, NULL, err);
}

bool rvi_adapters_problem(rvi_problem *p, const char *name, rv_status st, const rv_error *err)
{
    rv_error why = *err;
    rvi_problem_hide_paths(why.text);
    if (st != RV_E_ADAPTER) return rvi_problem_from(p, st, err);
    return rvi_problem_set(p, 400, "bad_adapter", "model",
                           "the adapter '%.200s' cannot be used: %s", name, why.text);
}

void rvi_adapters_each(rvi_serving *s, void (*fn)(void *ctx, const rv_registered *one), void *ctx)
{
    rv_registered *all = NULL;
    size_t n = 0;
    rv_error err;
    rvi_lock_take(s->server->lock);
    if (s->registry && !rv_registry_list(s->registry, &all, &n, &err))
        for (size_t i = 0; i < n; i++) fn(ctx, &all[i]);
    for (size_t i = 0; i < s->n_adapters; i++) {
        rv_registered one = s->adapters[i];
        one.residency = RV_ON_DISK;
        one.bytes = 0;
        fn(ctx, &one);
    }
    rvi_lock_give(s->server->lock);
    rv_free(all);
}

void rvi_adapters_count(rvi_serving *s, rv_registry_metrics *out)
{
    rv_error err;
    memset(out, 0, sizeof *out);
    out->size = sizeof *out;
    rvi_lock_take(s->server->lock);
    if (s->registry) (void)rv_registry_get_metrics(s->registry, out, &err);
    rvi_lock_give(s->server->lock);
}

typedef struct listing {
    const rvi_serving *s;
    rvi_buf *out;
} listing;

/* Where there are several models, an adapter's name alone would not say whose it is. */
static void put_model(void *ctx, const rv_registered *one)
{
    const listing *l = ctx;
    rvi_buf name = {0};
    if (l->s->index) rvi_buf_printf(&name, "%s:", l->s->name);
    rvi_buf_puts(&name, one->name);
    rvi_buf_putc(l->out, ',');
    if (name.failed) l->out->failed = true;
    rvi_put_model(l->out, name.failed ? "" : name.data, l->s->server->created);
    rvi_put_member(l->out, "root", one->path);
    rvi_put_member(l->out, "parent", l->s->name);
    rvi_buf_printf(l->out, ",\"generation\":%llu}", (unsigned long long)one->generation);
    rvi_buf_deinit(&name);
}

void rvi_adapters_put_models(rvi_serving *s, rvi_buf *out)
{
    listing l = {s, out};
    rvi_adapters_each(s, put_model, &l);
}
