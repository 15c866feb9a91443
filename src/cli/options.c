/* Options by table: --name value, --name=value, -x value, flags; "--" ends them. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cli/cli.h"

/* ---- saying what is wrong ---- */

/* Prints one line even if the text holds newlines: it may contain file names and untrusted text. */
static void complain(const char *kind, const char *text)
{
    rvi_buf line = {0};
    if (rvi_buf_puts(&line, text)) {
        cli_hush_line(line.data, line.len);
        fprintf(stderr, "%s: %s%s\n", cli_program, kind, line.data);
    }
    rvi_buf_deinit(&line);
}

int cli_usage(const cli *c, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    complain("", text);
    fprintf(stderr, "'%s %s --help' says more.\n", cli_program, c->command);
    return CLI_USAGE;
}

void cli_warn(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    complain("warning: ", text);
}

int cli_fail(const rv_error *err)
{
    complain("", err->text[0] ? err->text : rv_status_text(err->code));
    return CLI_FAILED;
}

/* ---- what was meant ---- */

/* How many letters have to be put in, left out, replaced or swapped with their neighbour. */
static size_t distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    size_t n = strlen(a), m = strlen(b), rows[3][MOST + 1];
    if (n > MOST || m > MOST) return MOST;
    for (size_t k = 0; k <= m; k++) rows[0][k] = k;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= m; k++) {
            now[k] = before[k - 1] + (a[i - 1] != b[k - 1]);
            now[k] = RVI_MIN(now[k], RVI_MIN(before[k], now[k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                now[k] = RVI_MIN(now[k], earlier[k - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *typed, const char *const *words)
{
    const char *best = NULL;
    size_t least = strlen(typed) < 4 ? 2 : 3; /* fewer letters than that must differ */
    for (; *words; words++) {
        size_t d = distance(typed, *words);
        if (d >= least || d >= strlen(*words)) continue;
        least = d;
        best = *words;
    }
    return best;
}

/* ---- names ---- */

/* A name is the name of a directory. */
int cli_check_name(const cli *c, const char *name)
{
    size_t n = strlen(name);
    bool good = n && n <= 64;
    for (size_t i = 0; good && i < n; i++) {
        char ch = name[i];
        bool plain =
            (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9');
        good = plain || ch == '-' || ch == '_' || (ch == '.' && i);
    }
    if (good) return CLI_OK;
    return cli_usage(
        c,
        "--adapter must be a name of 1 to 64 letters, digits, '-', '_' or '.', without "
        "a '.' at its beginning (got '%s')",
        name);
}

/* ---- values ---- */

/* What an option takes, by its name, in every command that has it; one without a row takes any
 * number. */
static const struct limit {
    const char *name;
    double min, max;
    bool above; /* min itself is out of the range */
} limits[] = {
    {"threads", 0, 4096, false},
    {"ctx", 0, 1 << 27, false},
    {"gpu-layers", 1, 1024, false},
    {"max-tokens", 0, 1e9, false},
    {"min-tokens", 0, 1e9, false},
    {"logprobs", 0, 20, false},
    {"temp", 0, 100, false},
    {"top-k", 0, 1e9, false},
    {"top-p", 0, 1, true},
    {"min-p", 0, 1, false},
    {"typical-p", 0, 1, true},
    {"top-n-sigma", 0, 100, false},
    {"xtc-probability", 0, 1, false},
    {"xtc-threshold", 0, 1, false},
    {"mirostat-tau", 0, 100, false},
    {"mirostat-eta", 0, 1, false},
    {"repeat-penalty", 0, 100, true},
    {"repeat-window", 0, 1e9, false},
    {"frequency-penalty", -100, 100, false},
    {"presence-penalty", -100, 100, false},
    {"dry-multiplier", 0, 100, false},
    {"dry-base", 1, 100, false},
    {"dry-allowed-length", 1, 4096, false},
    {"dry-window", 0, 1e9, false},
    {"generation", 0, 1e6, false},
    {"prompt", 0, 1 << 20, false},
    {"tokens", 0, 1 << 20, false},
    {"depth", 0, 1 << 20, false},
    {"repeat", 1, 1000, false},
    {"parallel", 1, 1024, false},
    {"port", 0, 65535, false},
    {"max-body", 1, 1024, false},
    {"max-memory", 1, 1 << 30, false},
    {"max-loaded", 1, 64, false},
    {"unload-after", 1, 31536000, false},
    {"session-idle", 1, 1e9, false},
    {"session-age", 1, 1e9, false},
    {"sessions-per-key", 1, 1e9, false},
    {"max-waiting", 1, 1000000, false},
    {"max-per-key", 1, 1000000, false},
    {"drain", 0, 86400, false},
    {"per-minute", 1, 1000000, false},
    {"rate", 0, 1e6, false},
    {"long", 0, 1 << 20, false},
    {"shared", 0, 1 << 20, false},
    {"token-ms", 0, 1e6, false},
};

static const struct {
    const char *name, *choices[7];
} words[] = {
    {"kv", {"f32", "f16", "q8", "warm", "tiered"}},
    {"pressure", {"recompute", "spill", "cheaper", "reject", "evict", "quantize"}},
    {"pooling", {"mean", "last", "first"}},
    {"how", {"average", "quality"}},
    {"loss", {"dpo", "kto"}},
    {"scope", {"topic", "exact", "always"}},
};

static int check_limit(const cli *c, const cli_option *o, const char *text, double v)
{
    for (size_t i = 0; i < RVI_COUNT(limits); i++) {
        const struct limit *l = &limits[i];
        if (strcmp(l->name, o->name)) continue;
        if ((l->above ? v > l->min : v >= l->min) && v <= l->max) return CLI_OK;
        return l->above ? cli_usage(c, "--%s must be above %.0f and at most %.0f (got %s)", o->name,
                                    l->min, l->max, text)
                        : cli_usage(c, "--%s must be %.0f to %.0f (got %s)", o->name, l->min,
                                    l->max, text);
    }
    return CLI_OK;
}

/* list ends with NULL */
static int check_choice(const cli *c, const cli_option *o, const char *text,
                        const char *const *list)
{
    char all[256] = "";
    for (size_t i = 0; list[i]; i++) {
        if (!strcmp(list[i], text)) return CLI_OK;
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", !i ? "" : list[i + 1] ? ", " : " or ", list[i]);
    }
    return cli_usage(c, "--%s must be %s (got '%s')", o->name, all, text);
}

/* A GPU may have a number: "cuda:1". */
static int check_device(const cli *c, const cli_option *o, const char *text)
{
    static const char *const names[] = {"auto", "cpu", "cuda", "cuda:N", NULL};
    size_t digits = strncmp(text, "cuda:", 5) ? 0 : strspn(text + 5, "0123456789");
    if (digits && digits < 4 && !text[5 + digits]) return CLI_OK;
    return strcmp(text, "cuda:N") ? check_choice(c, o, text, names)
                                  : cli_usage(c, "--device cuda:N: N is a number");
}

bool cli_read_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    const double most = 1e18;
    const char *after, *unit;
    double v = rvi_number_parse(text, &after);
    if (after == text || !isfinite(v)) return false;
    if (*after && (unit = strchr(units, *after))) {
        for (; unit >= units; unit--) v *= 1024;
        after++;
    }
    if (*after || !(v >= 1 && v <= most)) return false;
    *bytes = (uint64_t)v;
    return true;
}

static int check_size(const cli *c, const cli_option *o, const char *text)
{
    uint64_t bytes;
    if (cli_read_size(text, &bytes)) return CLI_OK;
    return cli_usage(c, "--%s must be a size such as 512M or 1.5G (got '%s')", o->name, text);
}

static int check_word(const cli *c, const cli_option *o, const char *text)
{
    static const char *const sizes[] = {"memory", "session-room", "spill-room"};
    for (size_t i = 0; i < RVI_COUNT(sizes); i++)
        if (!strcmp(o->name, sizes[i])) return check_size(c, o, text);
    if (!strcmp(o->name, "isa")) return check_choice(c, o, text, rv_isa_list());
    if (!strcmp(o->name, "device")) return check_device(c, o, text);
    if (!strcmp(o->name, "store") && !cli_is_database(text))
        return cli_usage(c, "--store " CLI_DATABASE_NEEDED); /* which may have a password */
    for (size_t i = 0; i < RVI_COUNT(words); i++)
        if (!strcmp(words[i].name, o->name)) return check_choice(c, o, text, words[i].choices);
    return CLI_OK;
}

static int set_number(const cli *c, const cli_option *o, const char *text)
{
    char *end;
    errno = 0;
    if (o->kind == CLI_FLOAT) {
        const char *after;
        float v = (float)rvi_number_parse(text, &after);
        if (after == text || *after || !isfinite(v))
            return cli_usage(c, "--%s must be a number (got '%s')", o->name, text);
        *(float *)o->value = v;
        return check_limit(c, o, text, (double)v);
    }
    if (o->kind == CLI_UINT64) {
        unsigned long long v = strtoull(text, &end, 10);
        if (errno || end == text || *end || *text == '-')
            return cli_usage(c, "--%s must be a whole number, 0 to 2^64 - 1 (got '%s')", o->name,
                             text);
        *(uint64_t *)o->value = v;
        return CLI_OK;
    }
    long v = strtol(text, &end, 10);
    if (end == text || *end)
        return cli_usage(c, "--%s must be a whole number (got '%s')", o->name, text);
    int code = check_limit(c, o, text, (double)v);
    if (!code && (errno || v < -1000000000 || v > 1000000000))
        code = cli_usage(c, "--%s must be -1000000000 to 1000000000 (got %s)", o->name, text);
    if (!code) *(int *)o->value = (int)v;
    return code;
}

static int set_value(const cli *c, const cli_option *o, const char *text)
{
    int code = CLI_OK;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)o->value = true; break;
    case CLI_INT:
    case CLI_UINT64:
    case CLI_FLOAT: code = set_number(c, o, text); break;
    case CLI_TEXT:
        code = check_word(c, o, text);
        *(const char **)o->value = text;
        break;
    case CLI_TEXTS: {
        cli_texts *t = o->value;
        if (!*text) return cli_usage(c, "--%s must not be empty", o->name);
        if (t->n == RVI_COUNT(t->items))
            return cli_usage(c, "--%s: given more than %zu times", o->name, t->n);
        t->items[t->n++] = text;
        break;
    }
    }
    if (!code && o->given) *o->given = true;
    return code;
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
enum { N_GLOBAL = 14 };

static void global_options(cli *c, cli_option out[N_GLOBAL])
{
    const cli_option global[] = {
        {"threads", 't', CLI_INT, &c->threads, NULL},
        {"ctx", 0, CLI_INT, &c->context, NULL},
        {"kv", 0, CLI_TEXT, &c->kv, NULL},
        {"isa", 0, CLI_TEXT, &c->isa, NULL},
        {"device", 0, CLI_TEXT, &c->device, NULL},
        {"gpu-layers", 0, CLI_INT, &c->gpu_layers, NULL},
        {"cache-dir", 0, CLI_TEXT, &c->cache_dir, NULL},
        {"state-dir", 0, CLI_TEXT, &c->state_dir, NULL},
        {"store", 0, CLI_TEXT, &c->store, NULL},
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

/* len: of the name behind two dashes */
static int unknown_option(const cli *c, const char *a, size_t len, const cli_option *options,
                          size_t n_options, const cli_option *global)
{
    const char *names[128], *near = NULL;
    char name[64];
    size_t n = 0;
    for (size_t i = 0; i < n_options && n < RVI_COUNT(names) - 1; i++) names[n++] = options[i].name;
    for (size_t i = 0; i < N_GLOBAL && n < RVI_COUNT(names) - 1; i++) names[n++] = global[i].name;
    names[n] = NULL;
    if (a[1] == '-' && len < sizeof name) {
        snprintf(name, sizeof name, "%.*s", (int)len, a + 2);
        near = cli_nearest(name, names);
    }
    return cli_usage(c, "unknown option '%s'%s%s%s", a, near ? "; did you mean '--" : "",
                     near ? near : "", near ? "'?" : "");
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
            if (*n_args == max)
                return cli_usage(c, "unexpected argument '%s'%s", a,
                                 max > 1 ? "; a text of several words needs quotes around it" : "");
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
        if (!o) return unknown_option(c, a, len, options, n_options, global);
        if (o->kind == CLI_FLAG && eq) return cli_usage(c, "--%s takes no value", o->name);
        const char *value = eq ? eq + 1 : NULL;
        if (o->kind != CLI_FLAG && !value) {
            if (i + 1 == argc) return cli_usage(c, "'%s' needs a value", a);
            value = argv[++i];
        }
        int st = set_value(c, o, value);
        if (st) return st;
    }
    return CLI_OK;
}
