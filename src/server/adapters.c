#include "server/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/openai.h"
#include "server/quick.h"
#include "server/reply.h"

rv_status rvi_adapters_open(rvi_serving *s, const rv_model *m, const char *folder, rv_error *err)
{
    s->adapters_folder = realpath(folder, NULL);
    if (!s->adapters_folder)
        return rvi_error(err, RV_E_NOT_FOUND, "--adapters %s: there is no such folder", folder);
    rv_status st = rv_registry_new(&s->registry, m, NULL, err);
    return st ? st : rv_registry_add_folder(s->registry, s->adapters_folder, NULL, err);
}

void rvi_adapters_close(rvi_serving *s)
{
    rv_registry_free(&s->registry);
    free(s->adapters_folder); /* realpath's */
}

bool rvi_adapters_choose(const rvi_serving *s, const char *model, rv_adapter_set **out,
                         rvi_problem *p)
{
    size_t n = strlen(s->name);
    const char *name = !strncmp(model, s->name, n) && model[n] == ':' ? model + n + 1 : model;
    rv_error err = {0};
    rv_status st =
        s->registry ? rv_registry_get(s->registry, name, 1, out, NULL, &err) : RV_E_NOT_FOUND;
    if (st == RV_E_NOT_FOUND)
        return rvi_problem_set(p, 404, "model_not_found", "model",
                               "The model '%.200s' does not exist; this server has '%s'%s", model,
                               s->name, s->registry ? " and its adapters" : "");
    return !st || rvi_problem_from(p, st, &err);
}

static bool list(const rvi_serving *s, rv_registered **all, size_t *n)
{
    rv_error err;
    *n = 0;
    return s->registry && !rv_registry_list(s->registry, all, n, &err);
}

void rvi_adapters_put_models(const rvi_serving *s, rvi_buf *out)
{
    rv_registered *all = NULL;
    size_t n;
    if (!list(s, &all, &n)) return;
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

void rvi_adapters_show(rvi_serving *s, rvi_conn *c)
{
    static const char *const where[] = {"on disk", "open", "ready"};
    rv_registered *all = NULL;
    size_t n;
    rvi_buf out = {0};
    rvi_buf_putc(&out, '[');
    if (list(s, &all, &n))
        for (size_t i = 0; i < n; i++) {
            rvi_buf_printf(&out, "%s{\"id\":%zu", i ? "," : "", i);
            rvi_put_member(&out, "name", all[i].name);
            rvi_put_member(&out, "path", all[i].path);
            rvi_put_member(&out, "state", where[all[i].residency]);
            rvi_buf_printf(&out, ",\"scale\":0,\"generation\":%llu,\"bytes\":%llu,\"n_uses\":%llu}",
                           (unsigned long long)all[i].generation, (unsigned long long)all[i].bytes,
                           (unsigned long long)all[i].n_uses);
        }
    rv_free(all);
    rvi_buf_putc(&out, ']');
    rvi_reply_json(&rvi_openai, c, &out);
}

/* ---- vLLM's way to load and unload ---- */

static bool read_name(const rvi_quick *q, const char *field, const char **out, rvi_problem *p)
{
    *out = rvi_json_string(rvi_json_get(q->body, field), "");
    if (!q->s->registry)
        return rvi_problem_set(p, 400, "no_adapters", NULL,
                               "this server was started without --adapters");
    return **out || rvi_problem_set(p, 400, "missing_field", field, "%s must be a text", field);
}

/* Clients name files of this machine: only those in the folder of adapters are read. */
static bool find_path(const rvi_quick *q, const char *path, char **out, rvi_problem *p)
{
    const char *folder = q->s->adapters_folder;
    size_t n = strlen(folder);
    rvi_buf inside = {0};
    rvi_buf_printf(&inside, path[0] == '/' ? "%.0s%s" : "%s/%s", folder, path);
    *out = inside.failed ? NULL : realpath(inside.data, NULL);
    rvi_buf_deinit(&inside);
    if (*out && !strncmp(*out, folder, n) && (*out)[n] == '/') return true;
    free(*out);
    *out = NULL;
    return rvi_problem_set(p, 404, "not_found", "lora_path",
                           "'%.200s' is not in the folder of adapters", path);
}

static bool load(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const char *name, *path;
    char *found = NULL;
    uint64_t generation = 0;
    rv_error err = {0};
    bool in_place = rvi_json_bool(rvi_json_get(q->body, "load_inplace"), false);
    if (!read_name(q, "lora_name", &name, p) || !read_name(q, "lora_path", &path, p) ||
        !find_path(q, path, &found, p))
        return false;
    rv_status st = rv_registry_put(q->s->registry, name, found, in_place ? RV_ANY_GENERATION : 0,
                                   &generation, &err);
    free(found);
    if (st == RV_E_STATE) return rvi_problem_set(p, 400, "exists", "lora_name", "%s", err.text);
    if (st) return rvi_problem_set(p, 400, "bad_adapter", "lora_path", "%s", err.text);
    rvi_buf_puts(out, "{\"loaded\":true");
    rvi_put_member(out, "lora_name", name);
    rvi_buf_printf(out, ",\"generation\":%llu}", (unsigned long long)generation);
    return true;
}

static bool unload(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const char *name;
    rv_error err = {0};
    if (!read_name(q, "lora_name", &name, p)) return false;
    rv_status st = rv_registry_remove(q->s->registry, name, RV_ANY_GENERATION, &err);
    if (st) return rvi_problem_set(p, 404, "not_found", "lora_name", "%s", err.text);
    rvi_buf_puts(out, "{\"loaded\":false");
    rvi_put_member(out, "lora_name", name);
    rvi_buf_putc(out, '}');
    return true;
}

void rvi_adapters_load(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, load);
}

void rvi_adapters_unload(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, unload);
}
