#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/cli.h"

/* "YYYY-MM-DD", with "THH:MM:SS" or " HH:MM:SS" behind it; NULL: now */
static rv_status read_time(const char *text, rv_time *out, rv_error *err)
{
    if (!text) {
        *out = cli_now();
        return RV_OK;
    }
    int used = 0;
    char sep = 0;
    *out = (rv_time){0};
    int n = sscanf(text, "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &out->year, &out->month, &out->day, &used,
                   &sep, &out->hour, &out->minute, &out->second, &used);
    bool whole = (n == 3 || n == 7) && !text[used] && (n == 3 || sep == 'T' || sep == ' ');
    if (!whole || out->year < 1 || out->month < 1 || out->month > 12 || out->day < 1 ||
        out->day > 31 || out->hour < 0 || out->hour > 23 || out->minute < 0 || out->minute > 59 ||
        out->second < 0 || out->second > 60)
        return rvi_error(err, RV_E_CONFIG,
                         "--now: '%s' is not a date like 2026-01-31 or 2026-01-31T12:00:00", text);
    return RV_OK;
}

static bool is_jinja_file(const char *name)
{
    size_t len = strlen(name);
    return len > 6 &&
           (!strcmp(name + len - 6, ".jinja") || (len > 7 && !strcmp(name + len - 7, ".jinja2")));
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

    rv_error err = {0};
    rv_time now = {0};
    cli_model model = {0};
    rvi_buf source = {0}, conversation = {0}, out = {0};
    char *text = NULL;
    size_t len = 0;
    rv_status st = read_time(when, &now, &err);
    if (!st) st = cli_read_file(args[1], &conversation, &err);
    rv_chat chat = {
        .size = sizeof chat, .variables = conversation.data, .no_reply = 1, .now = &now};
    if (!st && is_jinja_file(args[0])) {
        st = cli_read_file(args[0], &source, &err);
        if (!st) st = cli_runtime(c, 1, &model.rt, &err);
        if (!st)
            st = rv_template_render(model.rt, source.data, source.len, &chat, &text, &len, &err);
    } else if (!st) {
        st = cli_open(c, args[0], true, &model, &err);
        if (!st) st = rv_chat_render(model.m, &chat, &text, &len, &err);
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
