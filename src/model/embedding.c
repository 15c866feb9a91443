#include "model/embedding.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"

typedef struct reader {
    const char *dir;
    rvi_embedding *out;
    rvi_arena *arena;
    rv_error *err;
} reader;

static rv_status refuse(reader *r, const char *where, const char *what)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%s: '%.100s' is not supported", where, what);
    if (r->out->refused) return RV_OK;
    r->out->refused = rvi_arena_strndup(r->arena, text, (size_t)n);
    return r->out->refused ? RV_OK : rvi_nomem(r->err, where);
}

/* DIR/SUB/NAME as JSON in the arena; *out NULL if there is no such file. sub may be "". */
static rv_status load(reader *r, const char *sub, const char *name, const rvi_json **out)
{
    rvi_buf path = {0};
    rvi_blob blob = {0};
    rv_status st = RV_OK;
    *out = NULL;
    if (!rvi_buf_printf(&path, "%s/%s%s%s", r->dir, sub, *sub ? "/" : "", name))
        st = rvi_nomem(r->err, "path");
    else if (rvi_os_stat(path.data, NULL) == RVI_OS_FILE) {
        st = rvi_blob_open(&blob, path.data, r->err);
        if (!st)
            st =
                rvi_json_parse(out, (const char *)blob.data, blob.len, r->arena, path.data, r->err);
        rvi_blob_close(&blob);
    }
    rvi_buf_deinit(&path);
    return st;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* A folder inside the model's: no way out of it. */
static bool is_inside(const char *path)
{
    return *path && *path != '/' && !strchr(path, '\\') && strcmp(path, "..") &&
           strncmp(path, "../", 3) && !strstr(path, "/..");
}

static const struct {
    const char *key, *mode; /* the older form: a flag each; the newer: "pooling_mode" */
    rv_pooling pooling;
} modes[] = {
    {"pooling_mode_mean_tokens", "mean", RV_POOLING_MEAN},
    {"pooling_mode_cls_token", "cls", RV_POOLING_FIRST},
    {"pooling_mode_lasttoken", "lasttoken", RV_POOLING_LAST},
};

/* Several modes at once make one longer vector of all of them. */
static rv_status read_pooling(reader *r, const rvi_json *config)
{
    const char *mode = rvi_json_string(rvi_json_get(config, "pooling_mode"), NULL);
    int n_on = 0;
    for (size_t i = 0; i < RVI_COUNT(modes); i++) {
        bool on = mode ? !strcmp(mode, modes[i].mode)
                       : rvi_json_bool(rvi_json_get(config, modes[i].key), false);
        if (!on) continue;
        r->out->pooling = modes[i].pooling;
        n_on++;
    }
    if (mode && !n_on) return refuse(r, "pooling_mode", mode);
    for (size_t i = 0; !mode && i < rvi_json_count(config); i++) {
        const rvi_json *v = rvi_json_at(config, i);
        bool known = false;
        if (!v->key || strncmp(v->key, "pooling_mode_", 13) || !rvi_json_bool(v, false)) continue;
        for (size_t k = 0; k < RVI_COUNT(modes); k++) known |= !strcmp(v->key, modes[k].key);
        if (!known || n_on > 1) return refuse(r, "pooling", v->key);
    }
    return RV_OK;
}

static rv_status read_modules(reader *r, const rvi_json *modules)
{
    const rvi_json *config;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < rvi_json_count(modules); i++) {
        const rvi_json *m = rvi_json_at(modules, i);
        const char *type = rvi_json_string(rvi_json_get(m, "type"), "?"),
                   *path = rvi_json_string(rvi_json_get(m, "path"), "");
        if (ends_with(type, "Pooling")) {
            if (!is_inside(path))
                return rvi_error(r->err, RV_E_MODEL,
                                 "modules.json: '%.100s' is no folder of the model", path);
            st = load(r, path, "config.json", &config);
            if (!st) st = read_pooling(r, config);
        } else if (!ends_with(type, "Transformer") && !ends_with(type, "Normalize")) {
            st = refuse(r, "modules.json", type);
        }
    }
    return st;
}

rv_status rvi_embedding_read_dir(rvi_embedding *out, const char *dir, rvi_arena *arena,
                                 rv_error *err)
{
    reader r = {.dir = dir, .out = out, .arena = arena, .err = err};
    const rvi_json *v;
    *out = (rvi_embedding){0};
    rv_status st = load(&r, "", "modules.json", &v);
    if (!st && v) {
        st = read_modules(&r, v);
    } else if (!st) {
        st = load(&r, "1_Pooling", "config.json", &v);
        if (!st && v) st = read_pooling(&r, v);
    }
    if (!st) st = load(&r, "", "sentence_bert_config.json", &v);
    if (st) return st;
    int64_t longest = rvi_json_int(rvi_json_get(v, "max_seq_length"), 0);
    out->max_tokens = longest > 0 && longest <= INT_MAX ? (int)longest : 0;
    return RV_OK;
}

void rvi_embedding_read_gguf(rvi_embedding *out, const rvi_gguf *g)
{
    enum { NONE, MEAN, CLS, LAST, RANK }; /* the file's own numbers */
    rvi_str arch;
    char key[96];
    uint32_t type = NONE;
    *out = (rvi_embedding){0};
    if (!rvi_gguf_get_str(g, "general.architecture", &arch) || arch.len > 64) return;
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)arch.len, arch.data);
    (void)rvi_gguf_get_u32(g, key, &type);
    switch (type) {
    case NONE: break;
    case MEAN: out->pooling = RV_POOLING_MEAN; break;
    case CLS: out->pooling = RV_POOLING_FIRST; break;
    case LAST: out->pooling = RV_POOLING_LAST; break;
    case RANK: out->refused = "pooling_type 4 (ranking) is not supported"; break;
    default: out->refused = "pooling_type: not one of 0 to 3"; break;
    }
}
