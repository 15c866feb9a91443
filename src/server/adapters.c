#include "server/adapters.h"

#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "server/reply.h"

/* Is the name among those of the list, which have commas between them? */
static bool lists(const char *list, const char *name, size_t len)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        if (n == len && !memcmp(at, name, n)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

bool rvi_model_names(const rvi_serving *s, const char *name)
{
    size_t n = strlen(name);
    if (n > 7 && !strcmp(name + n - 7, ":latest")) n -= 7;
    return s->any_model || !strcmp(name, s->name) ||
           (strlen(s->name) == n && !memcmp(name, s->name, n)) || lists(s->aliases, name, n);
}

rv_status rvi_adapters_open(rvi_serving *s, const rv_model *m, const char *folder, rv_error *err)
{
    if (!rvi_os_resolve(folder, &s->adapters_folder))
        return rvi_error(err, RV_E_NOT_FOUND, "--adapters %s: there is no such folder", folder);
    rv_status st = rv_registry_new(&s->registry, m, NULL, err);
    return st ? st : rv_registry_add_folder(s->registry, s->adapters_folder.data, NULL, err);
}

void rvi_adapters_close(rvi_serving *s)
{
    rv_registry_free(&s->registry);
    rvi_buf_deinit(&s->adapters_folder);
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
        (void)rvi_problem_set(p, 404, "model_not_found", "model",
                              "The model '%.200s' does not exist; this server has '%s'%s", model,
                              s->name, s->registry ? " and its adapters" : "");
    else
        (void)rvi_problem_from(p, st, &err);
    return NULL;
}

rv_status rvi_adapters_load(const rvi_serving *s, const char *name, rv_adapter_set **out,
                            rv_error *err)
{
    return rv_registry_get(s->registry, name, 1, out, NULL, err);
}

bool rvi_adapters_list(const rvi_serving *s, rv_registered **all, size_t *n)
{
    rv_error err;
    *n = 0;
    return s->registry && !rv_registry_list(s->registry, all, n, &err);
}

void rvi_adapters_put_models(const rvi_serving *s, rvi_buf *out)
{
    rv_registered *all = NULL;
    size_t n;
    if (!rvi_adapters_list(s, &all, &n)) return;
    for (size_t i = 0; i < n; i++) {
        rvi_buf_puts(out, ",{\"id\":");
        rvi_put_text(out, all[i].name);
        rvi_buf_printf(out, ",\"object\":\"model\",\"created\":%ld,\"owned_by\":\"ruvllm\"",
                       s->created);
        rvi_put_member(out, "root", all[i].path);
        rvi_put_member(out, "parent", s->name);
        rvi_buf_printf(out, ",\"generation\":%llu}", (unsigned long long)all[i].generation);
    }
    rv_free(all);
}
