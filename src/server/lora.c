#include "server/lora.h"

#include <string.h>

#include "base/os.h"
#include "server/adapters.h"
#include "server/openai.h"
#include "server/quick.h"
#include "server/reply.h"

typedef struct listing {
    const rvi_serving *s;
    rvi_buf *out;
    size_t n;
} listing;

static void put_one(void *ctx, const rv_registered *one)
{
    static const char *const where[] = {"on disk", "open", "ready"};
    listing *l = ctx;
    rvi_buf_printf(l->out, "%s{\"id\":%zu", l->n ? "," : "", l->n);
    l->n++;
    rvi_put_member(l->out, "name", one->name);
    rvi_put_member(l->out, "model", l->s->name);
    rvi_put_member(l->out, "path", one->path);
    rvi_put_member(l->out, "state", where[one->residency]);
    rvi_buf_printf(l->out, ",\"scale\":0,\"generation\":%llu,\"bytes\":%llu,\"n_uses\":%llu}",
                   (unsigned long long)one->generation, (unsigned long long)one->bytes,
                   (unsigned long long)one->n_uses);
}

void rvi_lora_show(rvi_serving *s, rvi_conn *c)
{
    rvi_buf out = {0};
    listing l = {.out = &out};
    rvi_buf_putc(&out, '[');
    for (int i = 0; i < s->server->o->n_models; i++) {
        l.s = &s->server->models[i];
        rvi_adapters_each(&s->server->models[i], put_one, &l);
    }
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
static bool find_path(const rvi_quick *q, const char *path, rvi_buf *out, rvi_problem *p)
{
    const rvi_buf *folder = &q->s->server->adapters_folder;
    rvi_buf inside = {0};
    if (path[0] != '/') rvi_buf_printf(&inside, "%s/", folder->data);
    bool found = rvi_buf_puts(&inside, path) && rvi_os_resolve(inside.data, out);
    rvi_buf_deinit(&inside);
    if (found && out->len > folder->len && out->data[folder->len] == '/' &&
        !memcmp(out->data, folder->data, folder->len))
        return true;
    return rvi_problem_set(p, 404, "not_found", "lora_path",
                           "'%.200s' is not in the folder of adapters", path);
}

static bool load(const rvi_quick *q, rvi_buf *out, rvi_problem *p)
{
    const char *name, *path;
    rvi_buf found = {0};
    uint64_t generation = 0;
    rv_error err = {0};
    bool in_place = rvi_json_bool(rvi_json_get(q->body, "load_inplace"), false);
    if (!read_name(q, "lora_name", &name, p) || !read_name(q, "lora_path", &path, p)) return false;
    bool inside = find_path(q, path, &found, p);
    rv_status st = RV_OK;
    if (inside)
        st = rv_registry_put(q->s->registry, name, found.data, in_place ? RV_ANY_GENERATION : 0,
                             &generation, &err);
    rvi_buf_deinit(&found);
    if (!inside) return false;
    if (st == RV_E_STATE) return rvi_problem_set(p, 400, "exists", "lora_name", "%s", err.text);
    rvi_problem_hide_paths(err.text);
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

void rvi_lora_load(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, load);
}

void rvi_lora_unload(rvi_serving *s, rvi_conn *c)
{
    rvi_quick_answer(s, c, &rvi_openai, unload);
}
