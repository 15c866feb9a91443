#include "cli/settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "base/toml.h"

enum { MOST_BYTES = 1 << 20, MOST_SETTINGS = 256, MOST_ARENA = 8 << 20 };

/* Options of every command that may be settings too. */
static const cli_option general[] = {
    {"threads", 0, CLI_INT, NULL, NULL}, {"ctx", 0, CLI_INT, NULL, NULL},
    {"kv", 0, CLI_TEXT, NULL, NULL},     {"isa", 0, CLI_TEXT, NULL, NULL},
    {"device", 0, CLI_TEXT, NULL, NULL}, {"gpu-layers", 0, CLI_INT, NULL, NULL}};

static const cli_option *find(const cli_option *options, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(options[i].name, name)) return &options[i];
    for (size_t i = 0; i < RVI_COUNT(general); i++)
        if (!strcmp(general[i].name, name)) return &general[i];
    return NULL;
}

static bool put(cli_settings *s, const char *text)
{
    char *copy = rvi_arena_strndup(&s->arena, text, strlen(text));
    if (!copy || s->argc >= MOST_SETTINGS) return false;
    s->argv[s->argc++] = copy;
    return true;
}

/* --name=value; of a flag the value is true or false. */
static bool put_option(cli_settings *s, const cli_option *o, const char *value, bool *right)
{
    rvi_buf one = {0};
    *right = true;
    if (o->kind == CLI_FLAG) {
        bool on = !strcmp(value, "true");
        *right = on || !strcmp(value, "false");
        if (!on) return true;
        rvi_buf_printf(&one, "--%s", o->name);
    } else {
        rvi_buf_printf(&one, "--%s=%s", o->name, value);
    }
    bool ok = !one.failed && put(s, one.data);
    rvi_buf_deinit(&one);
    return ok;
}

/* ---- the file ---- */

static int say(const cli *c, const cli_settings *s, int number, const char *what, const char *name)
{
    return cli_usage(c, "%s:%d: %s%s%s", s->file, number, what, name ? " " : "", name ? name : "");
}

static int read_file(cli_settings *s, const cli *c, const cli_option *options, size_t n)
{
    bool own = true; /* before the first table, and in the command's */
    int number = 0;
    for (char *at = s->text.data, *next; at; at = next) {
        rvi_toml_line l;
        bool right = true;
        next = strchr(at, '\n');
        if (next) *next++ = 0;
        number++;
        if (!rvi_toml_read_line(at, &l))
            return say(c, s, number, "a line must be name = value, with texts in quotes", NULL);
        if (l.table) own = !strcmp(l.name, c->command);
        if (l.table || !l.name || !own) continue;
        if (!strcmp(l.name, "model")) {
            s->model = l.value;
            continue;
        }
        const cli_option *o = find(options, n, l.name);
        if (!o || !strcmp(l.name, "config") || !strcmp(l.name, "preset") ||
            !strcmp(l.name, "check"))
            return say(c, s, number, "there is no setting called", l.name);
        if (!put_option(s, o, l.value, &right)) return say(c, s, number, "too many settings", NULL);
        if (!right) return say(c, s, number, "true or false is wanted for", l.name);
    }
    return CLI_OK;
}

/* The value of a text option on the command line; NULL: it is not there. */
static const char *given(const char *name, int argc, char **argv)
{
    const char *file = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strcmp(argv[i], name) && i + 1 < argc) file = argv[i + 1];
        if (!strncmp(argv[i], name, strlen(name)) && argv[i][strlen(name)] == '=')
            file = argv[i] + strlen(name) + 1;
    }
    return file;
}

static const char *chosen_file(int argc, char **argv)
{
    const char *file = given("--config", argc, argv);
    if (!file) file = getenv("RUVLLM_CONFIG");
    if (file && *file) return file;
    return rvi_os_stat("ruvllm.toml", NULL) == RVI_OS_FILE ? "ruvllm.toml" : NULL;
}

/* ---- the environment ---- */

static int read_environment(cli_settings *s, const cli *c, const cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[96];
        bool right;
        snprintf(name, sizeof name, "RUVLLM_%s_%s", c->command, options[i].name);
        for (char *at = name; *at; at++) *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
        const char *value = getenv(name);
        if (!value) continue;
        if (!put_option(s, &options[i], value, &right))
            return cli_usage(c, "too many settings in the environment");
        if (!right) return cli_usage(c, "%s must be true or false (got '%s')", name, value);
    }
    return CLI_OK;
}

/* The file's options, those of the environment unless they do not count, and the command line. */
static int read_all(cli_settings *s, const cli *c, const cli_option *options, size_t n, int argc,
                    char **argv, bool environment)
{
    rv_error err = {0};
    s->argv = rvi_alloc_array((size_t)argc + MOST_SETTINGS + 1, sizeof *s->argv);
    if (!s->argv) return cli_usage(c, "out of memory");
    rv_status st = s->file ? cli_read_file(s->file, &s->text, &err) : RV_OK;
    if (!st && s->text.len > MOST_BYTES)
        st = rvi_error(&err, RV_E_CONFIG, "%s: larger than 1 MiB", s->file);
    if (!st && s->file && !rvi_buf_puts(&s->text, "")) st = rvi_nomem(&err, "settings");
    if (st) return cli_fail(&err);
    int code = s->file ? read_file(s, c, options, n) : CLI_OK;
    if (!code && environment) code = read_environment(s, c, options, n);
    if (!code) memcpy(s->argv + s->argc, argv, (size_t)argc * sizeof *argv);
    s->argc += argc;
    return code;
}

int cli_settings_read(cli_settings *s, const cli *c, const cli_option *options, size_t n, int argc,
                      char **argv)
{
    *s = (cli_settings){.file = chosen_file(argc, argv), .arena = {.max = MOST_ARENA}};
    return read_all(s, c, options, n, argc, argv, true);
}

int cli_preset_read(cli_settings *s, const cli *c, const cli_option *options, size_t n, int argc,
                    char **argv)
{
    *s = (cli_settings){.file = given("--preset", argc, argv), .arena = {.max = MOST_ARENA}};
    return read_all(s, c, options, n, argc, argv, false);
}

void cli_settings_free(cli_settings *s)
{
    rvi_free(s->argv);
    rvi_buf_deinit(&s->text);
    rvi_arena_deinit(&s->arena);
}

/* ---- what counts ---- */

static void print_text(const char *name, const char *text)
{
    printf("%s = \"", name);
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", stdout);
        else if (strchr("\"\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
    puts("\"");
}

static bool is_listed(const char *names, const char *name)
{
    char one[96];
    snprintf(one, sizeof one, " %s ", name);
    return strstr(names, one) != NULL;
}

void cli_settings_print(const cli_settings *s, const cli *c, const char *model,
                        const cli_option *options, size_t n, const char *secret)
{
    printf("[%s]%s%s\n", c->command, s->file ? "  # " : "", s->file ? s->file : "");
    if (model) print_text("model", model);
    for (size_t i = 0; i < n; i++) {
        const cli_option *o = &options[i];
        const char *text = o->kind == CLI_TEXT ? *(const char *const *)o->value : NULL;
        if (!strcmp(o->name, "check") || !strcmp(o->name, "config")) continue;
        if (o->kind == CLI_FLAG)
            printf("%s = %s\n", o->name, *(const bool *)o->value ? "true" : "false");
        else if (o->kind == CLI_INT && *(const int *)o->value)
            printf("%s = %d\n", o->name, *(const int *)o->value);
        else if (text && is_listed(secret, o->name))
            printf("# %s is set, and not shown\n", o->name);
        else if (text)
            print_text(o->name, text);
    }
}
