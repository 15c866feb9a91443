#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/cli.h"

enum { MAX_FILE = 64 << 20, MAX_TREE = 1 << 30 };

/* "YYYY-MM-DD", with "THH:MM:SS" or " HH:MM:SS" behind it */
static bool read_time(const char *text, rv_time *out)
{
    int used = 0;
    char sep = 0;
    *out = (rv_time){0};
    int n = sscanf(text, "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &out->year, &out->month, &out->day, &used,
                   &sep, &out->hour, &out->minute, &out->second, &used);
    bool whole = (n == 3 || n == 7) && !text[used] && (n == 3 || sep == 'T' || sep == ' ');
    return whole && out->year >= 1 && out->month >= 1 && out->month <= 12 && out->day >= 1 &&
           out->day <= 31 && out->hour >= 0 && out->hour <= 23 && out->minute >= 0 &&
           out->minute <= 59 && out->second >= 0 && out->second <= 60;
}

static bool is_jinja_file(const char *name)
{
    size_t len = strlen(name);
    return len > 6 &&
           (!strcmp(name + len - 6, ".jinja") || (len > 7 && !strcmp(name + len - 7, ".jinja2")));
}

/* The file as `run --messages` takes it: {"messages": [...], ...}, or the list alone. */
static rv_status read_conversation(const char *path, rvi_buf *out, rv_error *err)
{
    rvi_buf file = {.max = MAX_FILE};
    rvi_arena arena = {.max = MAX_TREE};
    const rvi_json *tree;
    rv_status st = cli_read_file(path, &file, err);
    if (!st && !file.len) st = rvi_error(err, RV_E_CONFIG, "%s: it is empty", path);
    if (!st) st = rvi_json_parse(&tree, file.data, file.len, &arena, path, err);
    if (!st) {
        bool list = rvi_json_is(tree, RVI_JSON_ARRAY);
        if (list) rvi_buf_puts(out, "{\"messages\":");
        rvi_buf_append(out, file.data, file.len);
        if (list) rvi_buf_puts(out, "}");
        if (out->failed) st = rvi_nomem(err, path);
    }
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&file);
    return st;
}

/* Of the file that is at fault. */
static rv_status name_file(rv_status st, const char *path, rv_error *err)
{
    rv_error own = *err;
    return st ? rvi_error(err, st, "%s: %s", path, own.text) : st;
}

int cli_template(cli *c, int argc, char **argv)
{
    bool json = false, done;
    const char *when = NULL, *args[2];
    const cli_option table[] = {{"json", 0, CLI_FLAG, &json, NULL},
                                {"now", 0, CLI_TEXT, &when, NULL}};
    int n_args, code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2) return cli_usage(c, "a model or a .jinja file, and a conversation are needed");

    rv_time now = cli_now();
    if (when && !read_time(when, &now))
        return cli_usage(
            c, "--now must be a date like 2026-01-31 or 2026-01-31T12:00:00 (got '%s')", when);

    rv_error err = {0};
    cli_model model = {0};
    rvi_buf source = {0}, conversation = {0}, out = {0};
    char *text = NULL;
    size_t len = 0;
    rv_status st = read_conversation(args[1], &conversation, &err);
    rv_chat chat = {
        .size = sizeof chat, .variables = conversation.data, .no_reply = 1, .now = &now};
    if (!st && is_jinja_file(args[0])) {
        st = cli_read_file(args[0], &source, &err);
        if (!st) st = cli_runtime(c, 1, &model.rt, &err);
        if (!st)
            st = rv_template_render(model.rt, source.data, source.len, &chat, &text, &len, &err);
        if (model.rt) st = name_file(st, args[0], &err);
    } else if (!st) {
        st = cli_open(c, args[0], true, &model, &err);
        if (!st) st = name_file(rv_chat_render(model.m, &chat, &text, &len, &err), args[1], &err);
    }
    if (!st && json) {
        rvi_buf_puts(&out, "{\"text\":");
        rvi_json_write_string(&out, text, len);
        rvi_buf_puts(&out, "}\n");
    } else if (!st) {
        rvi_buf_append(&out, text, len);
    }
    if (!st) code = cli_print(&out);
    rv_free(text);
    rvi_buf_deinit(&source);
    rvi_buf_deinit(&conversation);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}
