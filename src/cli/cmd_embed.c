/* embed: texts to vectors */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/cli.h"

typedef struct text {
    int32_t *ids;
    size_t n;
} text;

typedef struct embed {
    cli *c;
    cli_model model;
    rv_model_info info;
    rv_engine *engine;
    text *texts;
    size_t n, cap;
    bool json, raw_length;
    const char *pooling, *file;
} embed;

static const struct {
    const char *name;
    rv_pooling value;
} poolings[] = {{"mean", RV_POOLING_MEAN}, {"last", RV_POOLING_LAST}, {"first", RV_POOLING_FIRST}};

static rv_pooling find_pooling(const char *name)
{
    rv_pooling found = RV_POOLING_DEFAULT;
    for (size_t i = 0; name && i < RVI_COUNT(poolings); i++)
        if (!strcmp(name, poolings[i].name)) found = poolings[i].value;
    return found;
}

/* ---- texts ---- */

static rv_status add_text(embed *e, const char *given, size_t len, rv_error *err)
{
    if (e->n == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 64;
        text *grown = rvi_realloc_array(e->texts, cap, sizeof *grown);
        if (!grown) return rvi_nomem(err, "texts");
        e->texts = grown;
        e->cap = cap;
    }
    text *t = &e->texts[e->n];
    rv_status st = rv_tokenize(e->model.m, given, len, RV_TOKENIZE_WRAP, &t->ids, &t->n, err);
    if (!st) e->n++;
    size_t limit = (size_t)(e->c->context ? e->c->context : e->info.n_context);
    if (!st && !t->n) st = rvi_error(err, RV_E_TOKENIZATION, "text %zu has no tokens", e->n);
    if (!st && limit && t->n > limit)
        st = rvi_error(err, RV_E_CONFIG, "text %zu has %zu tokens, more than the %zu %s", e->n,
                       t->n, limit, e->c->context ? "of --ctx" : "this model takes");
    return st;
}

static rv_status add_lines(embed *e, const char *path, rv_error *err)
{
    bool standard = !strcmp(path, "-");
    rvi_buf all = {0};
    rv_status st = cli_read_file(path, &all, err);
    if (!st && !standard && !all.len) st = rvi_error(err, RV_E_CONFIG, "%s: it is empty", path);
    const char *at = all.data, *end = st ? at : at + all.len;
    while (!st && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t len = (size_t)(stop - at);
        if (len && at[len - 1] == '\r') len--;
        st = add_text(e, at, len, err);
        at = stop + 1;
    }
    rvi_buf_deinit(&all);
    return st;
}

/* ---- vectors ---- */

static rv_status open_engine(embed *e, rv_error *err)
{
    rv_engine_options o;
    size_t longest = 1;
    for (size_t i = 0; i < e->n; i++) longest = RVI_MAX(longest, e->texts[i].n);
    if (longest > INT32_MAX) return rvi_error(err, RV_E_CONFIG, "too long a text");
    o = (rv_engine_options){.size = sizeof o};
    o.n_tokens = (int)longest;
    if (e->info.is_encoder) o.max_rows = (int)longest;
    rv_status st = cli_kv_type(e->c, &o.kv_type, err);
    if (!st) st = rv_engine_new(&e->engine, e->model.m, &o, err);
    return st;
}

static void write_vector(const embed *e, size_t i, const float *v, rvi_buf *out)
{
    if (e->json)
        rvi_buf_printf(out, "%s{\"index\":%zu,\"n_tokens\":%zu,\"embedding\":[", i ? "," : "", i,
                       e->texts[i].n);
    for (int k = 0; k < e->info.n_embd; k++) {
        if (k) rvi_buf_putc(out, e->json ? ',' : ' ');
        if (e->json)
            cli_write_float(out, v[k]);
        else
            rvi_buf_printf(out, "%.7g", (double)v[k]);
    }
    rvi_buf_puts(out, e->json ? "]}" : "\n");
}

static rv_status write_all(embed *e, rv_pooling pooling, rvi_buf *out, rv_error *err)
{
    rv_embed_options o;
    o = (rv_embed_options){.size = sizeof o};
    o.pooling = pooling;
    o.keep_length = e->raw_length;
    float *v = rvi_zalloc_array((size_t)e->info.n_embd, sizeof *v);
    rv_status st = v ? RV_OK : rvi_nomem(err, "embedding");
    if (e->json) {
        rvi_buf_puts(out, "{\"model\":");
        rvi_json_write_string(out, e->info.name, strlen(e->info.name));
        if (e->pooling) rvi_buf_printf(out, ",\"pooling\":\"%s\"", e->pooling);
        rvi_buf_puts(out, ",\"embeddings\":[");
    }
    for (size_t i = 0; !st && i < e->n; i++) {
        st = rv_engine_embed(e->engine, e->texts[i].ids, e->texts[i].n, &o, v, err);
        if (!st) write_vector(e, i, v, out);
    }
    if (e->json) rvi_buf_puts(out, "]}\n");
    rvi_free(v);
    return st;
}

static int embed_texts(embed *e, const char **args, int n_args, rv_pooling pooling)
{
    rv_error err = {0};
    rvi_buf out = {0};
    int code = CLI_OK;
    rv_status st = cli_open(e->c, args[0], false, &e->model, &err);
    if (!st) e->info = *rv_model_get_info(e->model.m);
    if (!st && e->file) st = add_lines(e, e->file, &err);
    if (!st && !e->file && n_args == 1) st = add_lines(e, "-", &err);
    for (int i = 1; !st && i < n_args; i++)
        st = strcmp(args[i], "-") ? add_text(e, args[i], strlen(args[i]), &err)
                                  : add_lines(e, "-", &err);
    if (!st) st = open_engine(e, &err);
    if (!st) st = write_all(e, pooling, &out, &err);
    if (!st) code = cli_print(&out);
    rvi_buf_deinit(&out);
    for (size_t i = 0; i < e->n; i++) rv_free(e->texts[i].ids);
    rvi_free(e->texts);
    rv_engine_free(&e->engine);
    cli_close(&e->model);
    return st ? cli_fail(&err) : code;
}

int cli_embed(cli *c, int argc, char **argv)
{
    embed e = {.c = c};
    const cli_option table[] = {{"pooling", 0, CLI_TEXT, &e.pooling, NULL},
                                {"no-normalize", 0, CLI_FLAG, &e.raw_length, NULL},
                                {"file", 0, CLI_TEXT, &e.file, NULL},
                                {"json", 0, CLI_FLAG, &e.json, NULL}};
    int n_args = 0;
    bool done;
    const char **args = rvi_zalloc_array((size_t)argc + 1, sizeof *args);
    if (!args) {
        rv_error err;
        (void)rvi_nomem(&err, "arguments");
        return cli_fail(&err);
    }
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, argc, &n_args, &done);
    if (!code && !done) {
        if (!n_args)
            code = cli_usage(c, CLI_MODEL_NEEDED);
        else if (e.file && n_args > 1)
            code = cli_usage(c, "give texts or --file, not both");
        else
            code = embed_texts(&e, args, n_args, find_pooling(e.pooling));
    }
    rvi_free(args);
    return code;
}
