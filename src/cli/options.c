/* Options by table: --name value, --name=value, -x value, flags; "--" ends them. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_usage(const cli *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s: ", cli_program);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n'%s %s --help' says more.\n", cli_program, c->command);
    return CLI_USAGE;
}

int cli_fail(const rv_error *err)
{
    fprintf(stderr, "%s: %s\n", cli_program, err->text[0] ? err->text : rv_status_text(err->code));
    return CLI_FAILED;
}

static int set_value(const cli *c, const cli_option *o, const char *text)
{
    char *end;
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)o->value = true; break;
    case CLI_INT: {
        long v = strtol(text, &end, 10);
        if (errno || end == text || *end || v < -1000000000 || v > 1000000000)
            return cli_usage(c, "--%s: '%s' is not a whole number", o->name, text);
        *(int *)o->value = (int)v;
        break;
    }
    case CLI_UINT64: {
        unsigned long long v = strtoull(text, &end, 10);
        if (errno || end == text || *end || *text == '-')
            return cli_usage(c, "--%s: '%s' is not a whole number", o->name, text);
        *(uint64_t *)o->value = v;
        break;
    }
    case CLI_FLOAT: {
        float v = strtof(text, &end);
        if (end == text || *end || !isfinite(v))
            return cli_usage(c, "--%s: '%s' is not a number", o->name, text);
        *(float *)o->value = v;
        break;
    }
    case CLI_TEXT: *(const char **)o->value = text; break;
    case CLI_TEXTS: {
        cli_texts *t = o->value;
        if (t->n == RVI_COUNT(t->items)) return cli_usage(c, "--%s: given too often", o->name);
        t->items[t->n++] = text;
        break;
    }
    }
    if (o->given) *o->given = true;
    return CLI_OK;
}

static const cli_option *find(const cli_option *options, size_t n, const char *name, size_t len,
                              char letter)
{
    for (size_t i = 0; i < n; i++) {
        const cli_option *o = &options[i];
        if (letter ? o->letter == letter : strlen(o->name) == len && !memcmp(o->name, name, len))
            return o;
    }
    return NULL;
}

/* The options every command knows. */
enum { N_GLOBAL = 11 };

static void global_options(cli *c, cli_option out[N_GLOBAL])
{
    const cli_option global[] = {
        {"threads", 't', CLI_INT, &c->threads, NULL},
        {"ctx", 0, CLI_INT, &c->context, NULL},
        {"kv", 0, CLI_TEXT, &c->kv, NULL},
        {"isa", 0, CLI_TEXT, &c->isa, NULL},
        {"cache-dir", 0, CLI_TEXT, &c->cache_dir, NULL},
        {"state-dir", 0, CLI_TEXT, &c->state_dir, NULL},
        {"no-color", 0, CLI_FLAG, &c->no_color, NULL},
        {"verbose", 'v', CLI_FLAG, &c->verbose, NULL},
        {"exact", 0, CLI_FLAG, &c->exact, NULL},
        {"no-pack", 0, CLI_FLAG, &c->no_pack, NULL},
        {"help", 'h', CLI_FLAG, &c->help, NULL},
    };
    _Static_assert(sizeof global / sizeof global[0] == N_GLOBAL, "one row each");
    memcpy(out, global, sizeof global);
}

int cli_command_at(cli *c, int argc, char **argv)
{
    cli_option global[N_GLOBAL];
    global_options(c, global);
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        bool is_long = argv[i][1] == '-';
        const char *name = argv[i] + 2;
        const cli_option *o =
            find(global, N_GLOBAL, name, strcspn(name, "="), is_long ? 0 : argv[i][1]);
        bool value_follows = o && o->kind != CLI_FLAG && !(is_long && strchr(name, '='));
        i += value_follows ? 2 : 1;
    }
    return i;
}

int cli_parse_options(cli *c, const cli_option *options, size_t n_options, int argc, char **argv,
                      const char **args, int max, int *n_args)
{
    cli_option global[N_GLOBAL];
    global_options(c, global);
    bool ended = false;
    *n_args = 0;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (ended || a[0] != '-' || !a[1]) {
            if (*n_args == max) return cli_usage(c, "unexpected argument '%s'", a);
            args[(*n_args)++] = a;
            continue;
        }
        if (!strcmp(a, "--")) {
            ended = true;
            continue;
        }
        bool is_long = a[1] == '-';
        const char *name = a + 2, *eq = is_long ? strchr(name, '=') : NULL;
        size_t len = eq ? (size_t)(eq - name) : strlen(name);
        char letter = is_long ? 0 : a[1];
        const cli_option *o = is_long || !a[2] ? find(options, n_options, name, len, letter) : NULL;
        if (!o && (is_long || !a[2])) o = find(global, N_GLOBAL, name, len, letter);
        if (!o) return cli_usage(c, "unknown option '%s'", a);
        if (o->kind == CLI_FLAG && eq) return cli_usage(c, "--%s takes no value", o->name);
        const char *value = eq ? eq + 1 : NULL;
        if (o->kind != CLI_FLAG && !value) {
            if (i + 1 == argc) return cli_usage(c, "'%s' needs a value", a);
            value = argv[++i];
        }
        int st = set_value(c, o, value);
        if (st) return st;
    }
    if (c->threads < 0) return cli_usage(c, "--threads: %d is not possible", c->threads);
    if (c->context < 0) return cli_usage(c, "--ctx: %d is not possible", c->context);
    return CLI_OK;
}
