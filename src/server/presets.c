#include "server/presets.h"

#include <string.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/os.h"
#include "base/toml.h"
#include "server/adapters.h"
#include "server/reply.h"
#include "server/wish.h"

enum { MOST_BYTES = 1 << 20, MOST_PRESETS = 1000, MOST_ARENA = 64 << 20 };

typedef struct preset {
    struct preset *next;
    rvi_serving *base;                   /* the model that it is for */
    const char *name, *adapter, *system; /* NULL: none */
    const rvi_json *options;             /* an object, by the names of OpenAI's dialect */
} preset;

typedef struct rvi_presets {
    rvi_arena arena;
    preset *first, **last;
    int n;
} rvi_presets;

/* ---- files ---- */

/* The names that `ruvllm run` has for options, and those of requests. */
static const struct {
    const char *name, *option;
} names[] = {{"temp", "temperature"},
             {"top-p", "top_p"},
             {"top-k", "top_k"},
             {"min-p", "min_p"},
             {"typical-p", "typical_p"},
             {"top-n-sigma", "top_n_sigma"},
             {"xtc-probability", "xtc_probability"},
             {"xtc-threshold", "xtc_threshold"},
             {"repeat-penalty", "repeat_penalty"},
             {"repeat-window", "repeat_last_n"},
             {"frequency-penalty", "frequency_penalty"},
             {"presence-penalty", "presence_penalty"},
             {"dry-multiplier", "dry_multiplier"},
             {"dry-base", "dry_base"},
             {"dry-allowed-length", "dry_allowed_length"},
             {"seed", "seed"},
             {"max-tokens", "max_tokens"},
             {"min-tokens", "min_tokens"},
             {"ignore-eos", "ignore_eos"}};

typedef struct reading {
    rvi_server *v;
    rvi_presets *all;
    const char *folder, *file;
    preset *made;
    int adapter_line;
    rvi_buf options, stops;
    rv_error *err;
} reading;

static rv_status wrong(const reading *r, int line, const char *what, const char *name)
{
    return rvi_error(r->err, RV_E_CONFIG, "%s/%s:%d: %s %s", r->folder, r->file, line, what, name);
}

static void put_option(reading *r, const char *name, const rvi_toml_line *l)
{
    rvi_buf_printf(&r->options, "%s\"%s\":", r->options.len > 1 ? "," : "", name);
    if (l->quoted)
        rvi_json_write_string(&r->options, l->value, strlen(l->value));
    else
        rvi_buf_puts(&r->options, l->value);
}

static rv_status no_adapter(const reading *r, int line, const char *name)
{
    return wrong(r, line, "one adapter of --adapters is wanted, without a scale, not", name);
}

/* NAME of path/NAME.gguf, without a scale; NULL: that is not what it is, or no memory. */
static const char *read_adapter(reading *r, const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(base);
    if (strchr(base, ':')) return NULL;
    if (n > 5 && !memcmp(base + n - 5, ".gguf", 5)) n -= 5;
    return rvi_arena_strndup(&r->all->arena, base, n);
}

/* The first model has been loaded, and its adapters are known; those of others are looked for when
 * they are asked for. */
static rv_status check_adapter(const reading *r)
{
    const preset *x = r->made;
    bool ready;
    rvi_problem p;
    if (!x->adapter) return RV_OK;
    bool there = x->base->index ? r->v->adapters_folder.len > 0
                                : rvi_adapters_find(x->base, x->adapter, &ready, &p) != NULL;
    return there ? RV_OK : no_adapter(r, r->adapter_line, x->adapter);
}

static rv_status read_setting(reading *r, int number, const rvi_toml_line *l)
{
    if (!strcmp(l->name, "model")) {
        /* the first, which may be called anything, comes last */
        for (int i = r->v->o->n_models; i-- > 0 && !r->made->base;)
            if (rvi_serving_is(&r->v->models[i], l->value)) r->made->base = &r->v->models[i];
        if (r->made->base) return RV_OK;
        return wrong(r, number, "this server does not have the model", l->value);
    }
    if (!strcmp(l->name, "system")) {
        r->made->system = rvi_arena_strndup(&r->all->arena, l->value, strlen(l->value));
        return r->made->system ? RV_OK : rvi_nomem(r->err, "preset");
    }
    if (!strcmp(l->name, "lora")) {
        r->adapter_line = number;
        if (!r->made->adapter && (r->made->adapter = read_adapter(r, l->value))) return RV_OK;
        return no_adapter(r, number, l->value);
    }
    if (!strcmp(l->name, "stop")) {
        rvi_buf_putc(&r->stops, r->stops.len ? ',' : '[');
        rvi_json_write_string(&r->stops, l->value, strlen(l->value));
        return RV_OK;
    }
    if (!strcmp(l->name, "greedy") && !l->quoted) {
        if (!strcmp(l->value, "true"))
            put_option(r, "temperature", &(rvi_toml_line){.value = (char[]){"0"}});
        return RV_OK;
    }
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        if (!strcmp(l->name, names[i].name)) {
            put_option(r, names[i].option, l);
            return RV_OK;
        }
    return wrong(r, number, "a preset of a server has no setting called", l->name);
}

static rv_status read_lines(reading *r, char *text)
{
    int number = 0;
    rv_status st = RV_OK;
    for (char *at = text, *next; !st && at; at = next) {
        rvi_toml_line l;
        next = strchr(at, '\n');
        if (next) *next++ = 0;
        number++;
        if (!rvi_toml_read_line(at, &l) || l.table)
            st = wrong(r, number, "a line must be name = value,", "with texts in quotes");
        else if (l.name)
            st = read_setting(r, number, &l);
    }
    return st;
}

/* The options as an object; they are what a request could say. */
static rv_status parse_options(reading *r)
{
    rvi_wish w;
    rvi_problem p = {0};
    rvi_buf ignored = {0};
    if (r->stops.len) {
        rvi_buf_printf(&r->options, "%s\"stop\":", r->options.len > 1 ? "," : "");
        rvi_buf_append(&r->options, r->stops.data, r->stops.len);
        rvi_buf_putc(&r->options, ']');
    }
    rvi_buf_putc(&r->options, '}');
    char *text = r->options.failed || r->stops.failed
                     ? NULL
                     : rvi_arena_strndup(&r->all->arena, r->options.data, r->options.len);
    if (!text) return rvi_nomem(r->err, "preset");
    rv_status st =
        rvi_json_parse(&r->made->options, text, r->options.len, &r->all->arena, r->file, r->err);
    if (!st &&
        !rvi_wish_read(&w, RVI_FOR_COMPLETION, r->made->options, &r->all->arena, &ignored, &p))
        st = rvi_error(r->err, RV_E_CONFIG, "%s/%s: %s", r->folder, r->file, p.message);
    rvi_buf_deinit(&ignored);
    return st;
}

static rv_status read_preset(reading *r)
{
    rvi_buf path = {0};
    rvi_blob file = {0};
    size_t n = strlen(r->file) - strlen(".toml");
    preset *x = r->made = rvi_arena_alloc(&r->all->arena, 1, sizeof *x);
    if (!x) return rvi_nomem(r->err, "preset");
    *x = (preset){.name = rvi_arena_strndup(&r->all->arena, r->file, n)};
    rvi_buf_printf(&path, "%s/%s", r->folder, r->file);
    rvi_buf_putc(&r->options, '{');
    rv_status st = !x->name || path.failed ? rvi_nomem(r->err, "preset")
                                           : rvi_blob_open(&file, path.data, r->err);
    if (!st && file.len > MOST_BYTES)
        st = rvi_error(r->err, RV_E_CONFIG, "%s: larger than 1 MiB", path.data);
    char *text = st ? NULL : rvi_arena_strndup(&r->all->arena, (const char *)file.data, file.len);
    if (!st && !text) st = rvi_nomem(r->err, "preset");
    if (!st) st = read_lines(r, text);
    if (!st && !x->base) x->base = &r->v->models[0];
    if (!st) st = check_adapter(r);
    if (!st) st = parse_options(r);
    rvi_blob_close(&file);
    rvi_buf_deinit(&path);
    if (st) return st;
    *r->all->last = x;
    r->all->last = &x->next;
    return RV_OK;
}

static int read_one(void *ctx, const char *name)
{
    reading *r = ctx;
    size_t n = strlen(name);
    if (n <= 5 || strcmp(name + n - 5, ".toml") || *name == '.') return 0;
    if (r->all->n++ >= MOST_PRESETS)
        return (int)rvi_error(r->err, RV_E_CONFIG, "%s: more than %d presets", r->folder,
                              MOST_PRESETS);
    r->file = name;
    rv_status st = read_preset(r);
    rvi_buf_deinit(&r->options);
    rvi_buf_deinit(&r->stops);
    r->options = r->stops = (rvi_buf){0};
    return (int)st;
}

rv_status rvi_presets_open(rvi_server *v, const char *folder, rv_error *err)
{
    rvi_presets *all = v->presets = rvi_zalloc(sizeof *all);
    rv_error why = {0};
    if (!all) return rvi_nomem(err, "presets");
    all->arena.max = MOST_ARENA;
    all->last = &all->first;
    reading r = {.v = v, .all = all, .folder = folder, .err = &why};
    rv_status st = rvi_os_list(folder, read_one, &r, err);
    if (!st && why.text[0]) {
        *err = why;
        st = RV_E_CONFIG;
    }
    return st;
}

void rvi_presets_close(rvi_server *v)
{
    if (v->presets) rvi_arena_deinit(&v->presets->arena);
    rvi_free(v->presets);
    v->presets = NULL;
}

/* ---- requests ---- */

static const preset *find(const rvi_server *v, const char *name)
{
    const preset *x = v->presets ? v->presets->first : NULL;
    while (x && strcmp(x->name, name)) x = x->next;
    return x;
}

rvi_serving *rvi_presets_find(const rvi_server *v, const char *name)
{
    const preset *x = find(v, name);
    return x ? x->base : NULL;
}

/* What a kind of request calls an option; NULL: it has none of this kind. */
static const char *option_of(unsigned what, const char *name)
{
    if (!strcmp(name, "max_tokens")) {
        if (what == RVI_FOR_OPTIONS) return "num_predict";
        if (what & RVI_FOR_RESPONSE) return "max_output_tokens";
        if (what & RVI_FOR_NATIVE) return "n_predict";
    }
    if (!strcmp(name, "stop") && (what & RVI_FOR_MESSAGES)) return "stop_sequences";
    return rvi_field_find(what, name) ? name : NULL;
}

static rvi_json text_member(const char *key, const char *text)
{
    return (rvi_json){.kind = RVI_JSON_STRING,
                      .key = key,
                      .key_len = key ? (uint32_t)strlen(key) : 0,
                      .as.string = {text, strlen(text)}};
}

/* An object of the preset's options for this kind of request, one more, and the members of own. */
static bool merge(const preset *x, unsigned what, const rvi_json *more, const rvi_json *own,
                  rvi_arena *arena, rvi_json *out)
{
    size_t n = 0, n_own = rvi_json_count(own), n_options = rvi_json_count(x->options);
    rvi_json *items = rvi_arena_alloc(arena, n_own + n_options + 1, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < n_options; i++) {
        const rvi_json *v = rvi_json_at(x->options, i);
        const char *key = option_of(what, v->key);
        if (!key) continue;
        items[n] = *v;
        items[n].key = key;
        items[n++].key_len = (uint32_t)strlen(key);
    }
    if (more) items[n++] = *more;
    if (n_own) memcpy(items + n, own->as.list.items, n_own * sizeof *items);
    *out = (rvi_json){.kind = RVI_JSON_OBJECT, .as.list = {items, n + n_own}};
    return true;
}

/* messages with the preset's system prompt, unless they begin with one of their own. */
static bool add_system(const preset *x, const rvi_json *messages, rvi_arena *arena, rvi_json *out)
{
    size_t n = rvi_json_count(messages);
    const rvi_json *role = rvi_json_get(rvi_json_at(messages, 0), "role");
    *out = *messages;
    if (!rvi_json_is(messages, RVI_JSON_ARRAY) || rvi_json_is_string(role, "system") ||
        rvi_json_is_string(role, "developer"))
        return true;
    rvi_json *list = rvi_arena_alloc(arena, n + 1, sizeof *list),
             *pair = rvi_arena_alloc(arena, 2, sizeof *pair);
    if (!list || !pair) return false;
    pair[0] = text_member("role", "system");
    pair[1] = text_member("content", x->system);
    list[0] = (rvi_json){.kind = RVI_JSON_OBJECT, .as.list = {pair, 2}};
    if (n) memcpy(list + 1, messages->as.list.items, n * sizeof *list);
    out->as.list.items = list;
    out->as.list.count = n + 1;
    return true;
}

/* Ollama's options are in an object of their own; of two with one name the last counts. */
static bool add_options(const preset *x, const rvi_json *body, rvi_arena *arena, rvi_json *out)
{
    const rvi_json *own = rvi_json_get(body, "options");
    size_t n = out->as.list.count;
    rvi_json *all = rvi_arena_alloc(arena, n + 1, sizeof *all);
    if (own && !rvi_json_is(own, RVI_JSON_OBJECT) && !rvi_json_is(own, RVI_JSON_NULL)) return true;
    if (!all || !merge(x, RVI_FOR_OPTIONS, NULL, own, arena, &all[n])) return false;
    memcpy(all, out->as.list.items, n * sizeof *all);
    all[n].key = "options";
    all[n].key_len = 7;
    out->as.list.items = all;
    out->as.list.count = n + 1;
    return true;
}

static bool apply(const preset *x, unsigned what, const rvi_json *body, rvi_arena *arena,
                  rvi_json *out)
{
    const char *key = what & RVI_FOR_RESPONSE                        ? "instructions"
                      : what & (RVI_FOR_MESSAGES | RVI_FOR_GENERATE) ? "system"
                                                                     : NULL;
    rvi_json more, *members;
    const rvi_json *messages = rvi_json_get(body, "messages");
    if (key && x->system) more = text_member(key, x->system);
    if (!merge(x, what, key && x->system ? &more : NULL, body, arena, out)) return false;
    members = (rvi_json *)(uintptr_t)out->as.list.items; /* made here: they may be changed */
    size_t n = out->as.list.count;
    bool talks = what & (RVI_FOR_CHAT | RVI_FOR_TALK);
    for (size_t i = 0; i < n && talks && x->system; i++) {
        rvi_json v;
        if (strcmp(members[i].key, "messages")) continue;
        if (!add_system(x, messages, arena, &v)) return false;
        members[i] = v;
    }
    return !(what & RVI_FOR_OLLAMA) || add_options(x, body, arena, out);
}

bool rvi_presets_apply(const rvi_server *v, const char *name, unsigned what, const rvi_json **body,
                       rvi_arena *arena, const char **adapter, rvi_problem *p)
{
    const preset *x = find(v, name);
    rvi_json *whole = rvi_arena_alloc(arena, 1, sizeof *whole);
    *adapter = x ? x->adapter : NULL;
    if (!x || !whole || !apply(x, what, *body, arena, whole))
        return rvi_problem_set(p, 413, "request_too_large", NULL, "the request is too large");
    *body = whole;
    return true;
}

void rvi_presets_put_models(const rvi_server *v, rvi_buf *out)
{
    for (const preset *x = v->presets ? v->presets->first : NULL; x; x = x->next) {
        rvi_buf_putc(out, ',');
        rvi_put_model(out, x->name, v->created);
        rvi_put_member(out, "parent", x->base->name);
        rvi_buf_puts(out, ",\"preset\":true}");
    }
}
