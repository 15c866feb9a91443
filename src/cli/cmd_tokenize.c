/* tokenize and detokenize */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/cli.h"

typedef struct options {
    bool bos, special, json, jsonl;
} options;

static rv_status append_ids(const rv_model *m, const options *o, const char *text, size_t len,
                            bool json, rvi_buf *out, rv_error *err)
{
    int32_t *ids;
    size_t n;
    unsigned flags = (o->bos ? RV_TOKENIZE_BOS : 0u) | (o->special ? RV_TOKENIZE_SPECIAL : 0u);
    rv_status st = rv_tokenize(m, text, len, flags, &ids, &n, err);
    if (st) return st;
    if (json) {
        rvi_buf_puts(out, "{\"ids\":");
        cli_write_ids(out, ids, n);
        rvi_buf_puts(out, "}\n");
    } else {
        for (size_t i = 0; i < n; i++) rvi_buf_printf(out, i ? ",%d" : "%d", ids[i]);
        rvi_buf_puts(out, "\n");
    }
    rv_free(ids);
    return RV_OK;
}

static rv_status tokenize_lines(const rv_model *m, const options *o, rv_error *err)
{
    rvi_buf line = {0};
    rv_status st = RV_OK;
    for (int number = 1; !st && cli_read_line(stdin, &line); number++) {
        rvi_arena arena = {0};
        const rvi_json *json;
        char what[32];
        if (!line.len) continue;
        snprintf(what, sizeof what, "input line %d", number);
        st = rvi_json_parse(&json, line.data, line.len, &arena, what, err);
        const rvi_json *text = st ? NULL : rvi_json_get(json, "text");
        if (!st && !rvi_json_is(text, RVI_JSON_STRING))
            st = rvi_error(err, RV_E_CONFIG, "%s: an object with a string \"text\" is expected",
                           what);
        rvi_buf out = {0};
        if (!st) st = append_ids(m, o, text->as.string.data, text->as.string.len, true, &out, err);
        if (!st && cli_print(&out)) st = rvi_error(err, RV_E_IO, "output failed");
        rvi_buf_deinit(&out);
        rvi_arena_deinit(&arena);
    }
    if (!st && line.failed) st = rvi_nomem(err, "input line");
    rvi_buf_deinit(&line);
    return st;
}

int cli_tokenize(cli *c, int argc, char **argv)
{
    options o = {0};
    const cli_option table[] = {{"bos", 0, CLI_FLAG, &o.bos, NULL},
                                {"special", 0, CLI_FLAG, &o.special, NULL},
                                {"json", 0, CLI_FLAG, &o.json, NULL},
                                {"jsonl", 0, CLI_FLAG, &o.jsonl, NULL}};
    const char *args[2];
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);

    rv_error err = {0};
    cli_model model;
    rvi_buf text = {0}, out = {0};
    rv_status st = cli_open(c, args[0], true, &model, &err);
    if (st) return cli_fail(&err);
    if (o.jsonl) {
        st = tokenize_lines(model.m, &o, &err);
    } else {
        const char *given = n_args > 1 && strcmp(args[1], "-") ? args[1] : NULL;
        if (!given) st = cli_read_file("-", &text, &err);
        if (!st)
            st = append_ids(model.m, &o, given ? given : text.data,
                            given ? strlen(given) : text.len, o.json, &out, &err);
        if (!st) code = cli_print(&out);
    }
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&out);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}

int cli_detokenize(cli *c, int argc, char **argv)
{
    bool json = false, skip = false;
    const cli_option table[] = {{"json", 0, CLI_FLAG, &json, NULL},
                                {"skip-special", 0, CLI_FLAG, &skip, NULL}};
    const char *args[2];
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2) return cli_usage(c, "a model and token ids are needed");

    rv_error err = {0};
    cli_model model;
    int32_t *ids = NULL;
    size_t n, len;
    char *text = NULL;
    rvi_buf out = {0};
    if ((code = cli_parse_ids(c, args[1], &ids, &n))) return code;
    rv_status st = cli_open(c, args[0], true, &model, &err);
    int n_vocab = st ? 0 : rv_model_get_info(model.m)->n_vocab;
    for (size_t i = 0; !st && i < n; i++)
        if (ids[i] >= n_vocab)
            st =
                rvi_error(&err, RV_E_INVALID, "token %d is not in the vocabulary, which ends at %d",
                          ids[i], n_vocab - 1);
    if (!st) st = rv_detokenize(model.m, ids, n, skip, &text, &len, &err);
    if (!st && json) {
        rvi_buf_puts(&out, "{\"text\":");
        rvi_json_write_string(&out, text, len);
        rvi_buf_puts(&out, "}\n");
    } else if (!st) {
        rvi_buf_append(&out, text, len);
        rvi_buf_puts(&out, "\n");
    }
    if (!st) code = cli_print(&out);
    rv_free(text);
    rvi_free(ids);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}
