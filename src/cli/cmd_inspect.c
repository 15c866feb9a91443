/* perplexity, tap, info */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/cli.h"

static int show_perplexity(void *ctx, int done, int total, double running)
{
    char note[48];
    snprintf(note, sizeof note, "perplexity %.4f", running);
    cli_progress_show(ctx, "scoring", (uint64_t)done, (uint64_t)total, note);
    return 0;
}

int cli_perplexity(cli *c, int argc, char **argv)
{
    bool json = false, done;
    const cli_option table[] = {{"json", 0, CLI_FLAG, &json, NULL}};
    const char *args[2];
    int n_args, code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2) return cli_usage(c, "a model and a text file are needed");

    rv_error err = {0};
    cli_model model = {0};
    cli_progress bar = {0};
    rv_kv_type kv;
    rv_perplexity p = {0};
    rvi_buf text = {0}, out = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int window = c->context ? c->context : 512;
    rv_status st = cli_read_file(args[1], &text, &err);
    if (!st && !text.len) st = rvi_error(&err, RV_E_CONFIG, "%s: it is empty", args[1]);
    if (!st) st = cli_open(c, args[0], false, &model, &err);
    if (!st) st = cli_kv_type(c, &kv, &err);
    if (!st) st = rv_tokenize(model.m, text.data, text.len, 0, &ids, &n, &err);
    double start = rvi_os_seconds();
    if (!st) st = rv_model_perplexity(model.m, ids, n, window, kv, show_perplexity, &bar, &p, &err);
    double seconds = rvi_os_seconds() - start;
    cli_progress_end(&bar);
    if (!st && json) {
        rvi_buf_puts(&out, "{\"ppl\":");
        rvi_json_write_number(&out, p.value);
        rvi_buf_printf(
            &out, ",\"tokens\":%zu,\"windows\":%d,\"scored\":%lld,\"ctx\":%d,\"seconds\":%.3f}\n",
            n, p.n_windows, (long long)p.n_scored, window, seconds);
    } else if (!st) {
        rvi_buf_printf(&out, "perplexity %.4f over %lld tokens in %d windows of %d (%.1f s)\n",
                       p.value, (long long)p.n_scored, p.n_windows, window, seconds);
    }
    if (!st) code = cli_print(&out);
    rv_free(ids);
    rvi_buf_deinit(&text);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}

int cli_tap(cli *c, int argc, char **argv)
{
    const char *given = NULL, *names = NULL, *path = NULL, *args[1];
    cli_texts lora = {0};
    bool force = false;
    const cli_option table[] = {{"ids", 0, CLI_TEXT, &given, NULL},
                                {"tap", 0, CLI_TEXT, &names, NULL},
                                {"lora", 0, CLI_TEXTS, &lora, NULL},
                                {"force", 0, CLI_FLAG, &force, NULL},
                                {"output", 'o', CLI_TEXT, &path, NULL}};
    int n_args;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;
    if (!n_args || !given || !path) return cli_usage(c, "a model, --ids and -o are needed");

    rv_error err = {0};
    cli_model model = {0};
    rv_adapter_set *adapters = NULL;
    rv_kv_type kv;
    int32_t *ids = NULL;
    size_t n = 0;
    if (names && !names[strspn(names, ", ")])
        return cli_usage(c, "--tap: a name is needed (got '%s')", names);
    if ((code = cli_parse_ids(c, given, &ids, &n))) return code;
    rv_status st = cli_open(c, args[0], false, &model, &err);
    if (!st) st = cli_may_write(&model, path, force, &err);
    if (!st) st = cli_kv_type(c, &kv, &err);
    if (!st) st = cli_load_adapters(&lora, model.m, &adapters, &err);
    if (!st) st = rv_model_tap(model.m, ids, n, names, kv, adapters, path, &err);
    rv_adapter_set_free(&adapters);
    rvi_free(ids);
    cli_close(&model);
    return st ? cli_fail(&err) : CLI_OK;
}

/* ---- info ---- */

/* A text of the file, on one line whatever it holds. */
static const char *text_of(rvi_arena *a, const rvi_json *d, const char *member, const char *none)
{
    return cli_one_line(a, rvi_json_string(rvi_json_get(d, member), none));
}

static void print_plain(const rvi_json *d, rvi_arena *a, rvi_buf *out)
{
    double params = rvi_json_number(rvi_json_get(d, "parameters"), 0),
           bytes = rvi_json_number(rvi_json_get(d, "file_bytes"), 0);
    rvi_buf_printf(out, "name          %s\n", text_of(a, d, "name", ""));
    if (params > 0) {
        rvi_buf_printf(out, "architecture  %s\n", text_of(a, d, "architecture", ""));
        rvi_buf_printf(out, "parameters    %.0f (%.1f M)\n", params, params / 1e6);
        rvi_buf_printf(out, "file          %.0f bytes (%.1f MiB)\n", bytes, bytes / 1048576);
        rvi_buf_printf(out, "layers        %lld of width %lld, feed-forward %lld\n",
                       (long long)rvi_json_int(rvi_json_get(d, "layers"), 0),
                       (long long)rvi_json_int(rvi_json_get(d, "embedding"), 0),
                       (long long)rvi_json_int(rvi_json_get(d, "feed_forward"), 0));
        rvi_buf_printf(out, "heads         %lld, %lld for keys and values, of %lld\n",
                       (long long)rvi_json_int(rvi_json_get(d, "heads"), 0),
                       (long long)rvi_json_int(rvi_json_get(d, "kv_heads"), 0),
                       (long long)rvi_json_int(rvi_json_get(d, "head_size"), 0));
        rvi_buf_printf(out, "context       %lld tokens\n",
                       (long long)rvi_json_int(rvi_json_get(d, "context"), 0));
    }
    rvi_buf_printf(out, "vocabulary    %lld tokens\n",
                   (long long)rvi_json_int(rvi_json_get(d, "vocabulary"), 0));
    rvi_buf_printf(out, "tokenizer     %s\n", text_of(a, d, "tokenizer", "none"));
    rvi_buf_printf(out, "template      %s\n", text_of(a, d, "template", "none"));
    const rvi_json *types = rvi_json_get(d, "types"), *tensors = rvi_json_get(d, "tensors");
    for (size_t i = 0; i < rvi_json_count(types); i++) {
        const rvi_json *t = rvi_json_at(types, i);
        rvi_buf_printf(out, "%-13s %-7s %5lld tensors, %.1f MiB\n", i ? "" : "types",
                       cli_one_line(a, t->key),
                       (long long)rvi_json_int(rvi_json_get(t, "tensors"), 0),
                       rvi_json_number(rvi_json_get(t, "bytes"), 0) / 1048576);
    }
    for (size_t i = 0; i < rvi_json_count(tensors); i++) {
        const rvi_json *t = rvi_json_at(tensors, i), *shape = rvi_json_get(t, "shape");
        rvi_buf_printf(out, "%-52s %-7s ", text_of(a, t, "name", ""), text_of(a, t, "type", ""));
        for (size_t k = 0; k < rvi_json_count(shape); k++)
            rvi_buf_printf(out, k ? " x %lld" : "%lld",
                           (long long)rvi_json_int(rvi_json_at(shape, k), 0));
        rvi_buf_puts(out, "\n");
    }
}

int cli_info(cli *c, int argc, char **argv)
{
    bool json = false, tensors = false, done;
    const cli_option table[] = {{"json", 0, CLI_FLAG, &json, NULL},
                                {"tensors", 0, CLI_FLAG, &tensors, NULL}};
    const char *args[1];
    int n_args, code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, CLI_MODEL_NEEDED);

    rv_error err = {0};
    cli_model model = {0};
    rvi_arena arena = {0};
    const rvi_json *described;
    char *text = NULL;
    rvi_buf out = {0};
    rv_status st = cli_open(c, args[0], false, &model, &err);
    if (!st) st = rv_model_describe(model.m, tensors, &text, &err);
    if (!st && json) {
        rvi_buf_puts(&out, text);
        rvi_buf_puts(&out, "\n");
    } else if (!st && !(st = rvi_json_parse(&described, text, strlen(text), &arena, "description",
                                            &err))) {
        print_plain(described, &arena, &out);
        if (out.data) cli_hush(out.data, out.len);
    }
    if (!st) code = cli_print(&out);
    rv_free(text);
    rvi_arena_deinit(&arena);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}
