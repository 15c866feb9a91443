/* The model argument, adapters, ids, files, output and the progress bar. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/number.h"
#include "base/os.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "hub/hub.h"

/* ---- models ---- */

void cli_hush(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i],
                      next = i + 1 < len ? (unsigned char)text[i + 1] : 0;
        if ((c < 0x20 && c != '\n') || c == 0x7F) text[i] = '?';
        if (c == 0xC2 && next >= 0x80 && next < 0xA0) text[i] = text[i + 1] = '?'; /* U+0080..9F */
    }
}

void cli_hush_line(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\n') text[i] = ' ';
    cli_hush(text, len);
}

const char *cli_one_line(rvi_arena *arena, const char *text)
{
    size_t len = strlen(text);
    char *copy = rvi_arena_strndup(arena, text, len);
    if (!copy) return "";
    cli_hush_line(copy, len);
    return copy;
}

static void print_log(void *ctx, rv_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char copy[1024];
    (void)ctx;
    snprintf(copy, sizeof copy, "%s", line);
    cli_hush_line(copy, strlen(copy));
    fprintf(stderr, "ruvllm: %s: %s\n", names[level - RV_LOG_ERROR], copy);
}

static rv_log_level log_level(const cli *c)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; c->log_level && i < RVI_COUNT(names); i++)
        if (!strcmp(c->log_level, names[i])) return (rv_log_level)(i + RV_LOG_ERROR);
    return c->verbose ? RV_LOG_INFO : RV_LOG_WARN;
}

const char *cli_nearest_model(const char *typed)
{
    const char *names[64];
    size_t n;
    const rvi_hub_model *m = rvi_hub_catalog(&n);
    n = RVI_MIN(n, RVI_COUNT(names) - 1);
    for (size_t i = 0; i < n; i++) names[i] = m[i].name;
    names[n] = NULL;
    return cli_nearest(typed, names);
}

rv_status cli_locate(const cli *c, const char *name, rvi_buf *path, rv_error *err)
{
    if (rvi_os_stat(name, NULL) != RVI_OS_NONE) {
        rvi_buf config = {0};
        bool empty = rvi_buf_printf(&config, "%s/config.json", name) &&
                     rvi_os_stat(name, NULL) == RVI_OS_DIR &&
                     rvi_os_stat(config.data, NULL) == RVI_OS_NONE;
        rvi_buf_deinit(&config);
        if (empty)
            return rvi_error(err, RV_E_NOT_FOUND,
                             "%s: a directory without a model (it has no config.json)", name);
        return rvi_buf_puts(path, name) ? RV_OK : rvi_nomem(err, "path");
    }
    const rvi_hub_model *known = rvi_hub_find(name);
    const char *cache = c->cache_dir;
    rv_status st = RV_E_NOT_FOUND;
    if (!known && cache && *name) st = rvi_hub_local_find(cache, name, path, err);
    if (!known && st == RV_E_NOT_FOUND) {
        const char *near = cli_nearest_model(name);
        return rvi_error(
            err, RV_E_NOT_FOUND,
            "no model '%s'%s%s%s: give a .gguf file, a model directory, or a name that "
            "'ruvllm list' shows",
            name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
    if (!known) return st;
    st = cli_cache(c, &cache, err);
    if (!st) st = rvi_hub_path(path, cache, known, err);
    if (!st && !rvi_hub_present(cache, known))
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "model '%s' is not on this machine yet: 'ruvllm pull %s' downloads it", name,
                       known->name);
    return st;
}

rv_status cli_runtime(const cli *c, int n_threads, rv_runtime **out, rv_error *err)
{
    rv_runtime_options o;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = n_threads;
    o.exact = c->exact;
    o.no_pack = c->no_pack;
    o.isa = c->isa;
    o.device = c->device;
    o.log = print_log;
    o.log_level = log_level(c);
    return rv_runtime_new(out, &o, err);
}

rv_status cli_open(cli *c, const char *name, bool vocabulary, cli_model *out, rv_error *err)
{
    rv_open_options o = {.size = sizeof o,
                         .vocabulary_only = vocabulary,
                         .gpu_layers = c->gpu_layers,
                         .gpu_tokens = c->gpu_tokens ? c->gpu_tokens : c->context};
    rvi_buf text = {0};
    *out = (cli_model){0};
    rv_status st = c->template_file ? cli_read_file(c->template_file, &text, err) : RV_OK;
    if (!st && c->template_file) {
        if (!rvi_buf_puts(&text, "")) st = rvi_nomem(err, "chat template");
        o.chat_template = text.data;
    }
    if (!st) st = cli_locate(c, name, &out->path, err);
    if (!st) st = cli_runtime(c, vocabulary ? 1 : c->threads, &out->rt, err);
    if (!st) st = rv_model_open(&out->m, out->rt, out->path.data, &o, err);
    rvi_buf_deinit(&text);
    if (st) cli_close(out);
    return st;
}

rv_status cli_open_beside(const cli *c, const char *name, rv_runtime *rt, rv_model **out,
                          rv_error *err)
{
    rvi_buf path = {0};
    *out = NULL;
    rv_status st = cli_locate(c, name, &path, err);
    if (!st) st = rv_model_open(out, rt, path.data, NULL, err);
    rvi_buf_deinit(&path);
    return st;
}

void cli_close(cli_model *m)
{
    rv_model_close(&m->m);
    rv_runtime_free(&m->rt);
    rvi_buf_deinit(&m->path);
}

/* The directory that holds path. */
static bool put_parent(rvi_buf *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return rvi_buf_puts(out, ".");
    return rvi_buf_append(out, path, (size_t)(slash - path) + 1) && rvi_buf_puts(out, ".");
}

rv_status cli_may_write(const cli_model *m, const char *path, bool force, rv_error *err)
{
    rvi_os_kind kind = rvi_os_stat(path, NULL);
    if (kind == RVI_OS_NONE || kind == RVI_OS_OTHER) return RV_OK;
    rvi_buf parent = {0};
    bool of_model = false;
    if (!put_parent(&parent, path)) return rvi_nomem(err, "path");
    if (m->path.data)
        of_model = rvi_os_same(path, m->path.data) || rvi_os_same(parent.data, m->path.data);
    rvi_buf_deinit(&parent);
    if (of_model)
        return rvi_error(err, RV_E_CONFIG, "%s: not overwritten: it belongs to the model in use",
                         path);
    if (!force)
        return rvi_error(err, RV_E_CONFIG, "%s: not overwritten: it exists; --force replaces it",
                         path);
    return RV_OK;
}

rv_status cli_kv_type(const cli *c, rv_kv_type *out, rv_error *err)
{
    *out = RV_KV_DEFAULT;
    if (!c->kv) return RV_OK;
    if (!strcmp(c->kv, "f32"))
        *out = RV_KV_F32;
    else if (!strcmp(c->kv, "f16"))
        *out = RV_KV_F16;
    else if (!strcmp(c->kv, "q8"))
        *out = RV_KV_Q8;
    else if (!strcmp(c->kv, "warm"))
        *out = RV_KV_WARM;
    else if (!strcmp(c->kv, "tiered"))
        *out = RV_KV_TIERED;
    else
        return rvi_error(err, RV_E_CONFIG, "--kv must be f32, f16, q8, warm or tiered (got '%s')",
                         c->kv);
    return RV_OK;
}

/* ---- adapters ---- */

static rv_status load_adapter(const char *text, const rv_model *m, rv_adapter **out, float *scale,
                              rv_error *err)
{
    const char *colon = strrchr(text, ':');
    const char *end;
    size_t len = strlen(text);
    *out = NULL;
    *scale = 1;
    if (colon && colon[1]) {
        float given = (float)rvi_number_parse(colon + 1, &end);
        if (!*end && isfinite(given)) { /* otherwise the colon belongs to the path */
            *scale = given;
            len = (size_t)(colon - text);
        }
    }
    rvi_buf path = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_append(&path, text, len) || !path.data) st = rvi_nomem(err, "path");
    if (!st) st = rv_adapter_load(out, m, path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status cli_load_adapters(const cli_texts *paths, const rv_model *m, rv_adapter_set **out,
                            rv_error *err)
{
    rv_adapter *adapters[RVI_COUNT(paths->items)];
    rv_adapter_use uses[RVI_COUNT(paths->items)];
    size_t n = 0;
    rv_status st = RV_OK;
    *out = NULL;
    while (!st && n < paths->n) {
        st = load_adapter(paths->items[n], m, &adapters[n], &uses[n].scale, err);
        if (!st) uses[n].adapter = adapters[n];
        if (!st) n++;
    }
    if (!st && n) st = rv_adapter_set_new(out, m, uses, n, err);
    for (size_t i = 0; i < n; i++) rv_adapter_free(&adapters[i]); /* the set keeps what it needs */
    return st;
}

/* ---- reading ---- */

rv_status cli_read_file(const char *path, rvi_buf *out, rv_error *err)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f)
        return rvi_error(err, errno == ENOENT ? RV_E_NOT_FOUND : RV_E_IO, "%s: %s", path,
                         strerror(errno));
    char chunk[65536];
    size_t n;
    rv_status st = RV_OK;
    while (!st && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        if (!rvi_buf_append(out, chunk, n))
            st = out->max && out->len + n > out->max
                     ? rvi_error(err, RV_E_IO, "%s: larger than %zu bytes", path, out->max)
                     : rvi_nomem(err, path);
    if (!st && ferror(f)) st = rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    if (!st && !out->data && !rvi_buf_puts(out, "")) st = rvi_nomem(err, path);
    if (!standard) fclose(f);
    return st;
}

bool cli_read_line(FILE *f, rvi_buf *line)
{
    line->len = 0;
    int ch;
    while ((ch = getc(f)) != EOF && ch != '\n')
        if (!rvi_buf_putc(line, (char)ch)) return false;
    if (ch == EOF && !line->len) return false;
    if (line->len && line->data[line->len - 1] == '\r') line->len--;
    if (!rvi_buf_puts(line, "")) return false;
    line->data[line->len] = 0;
    return true;
}

static rv_status parse_ids(const char *text, int32_t **ids, size_t *n, rv_error *err)
{
    rvi_buf file = {0};
    int32_t *list = NULL;
    size_t count = 0, cap = 0;
    rv_status st = RV_OK;
    if (*text == '@') {
        st = cli_read_file(text + 1, &file, err);
        text = file.data;
    }
    while (!st) {
        text += strspn(text, " ,\t\r\n[]");
        if (!*text) break;
        char *end;
        errno = 0;
        long v = strtol(text, &end, 10);
        if (end == text || errno || v < 0 || v > INT32_MAX ||
            (*end && !strchr(" ,\t\r\n[]", *end))) {
            st =
                rvi_error(err, RV_E_CONFIG,
                          "a token id must be a whole number, 0 to 2147483647 (got '%.20s')", text);
            break;
        }
        if (count == cap) {
            cap = cap ? cap * 2 : 256;
            int32_t *grown = rvi_realloc_array(list, cap, sizeof *grown);
            if (!grown) {
                st = rvi_nomem(err, "token ids");
                break;
            }
            list = grown;
        }
        list[count++] = (int32_t)v;
        text = end;
    }
    rvi_buf_deinit(&file);
    if (!st && !count) st = rvi_error(err, RV_E_CONFIG, "no token ids given");
    if (st) {
        rvi_free(list);
        list = NULL;
        count = 0;
    }
    *ids = list;
    *n = count;
    return st;
}

int cli_parse_ids(const cli *c, const char *text, int32_t **ids, size_t *n)
{
    rv_error err = {0};
    rv_status st = parse_ids(text, ids, n, &err);
    if (st == RV_E_CONFIG && *text == '@') {
        rv_error own = err;
        st = rvi_error(&err, st, "%s: %s", text + 1, own.text);
    }
    if (!st) return CLI_OK;
    return st == RV_E_CONFIG && *text != '@' ? cli_usage(c, "%s", err.text) : cli_fail(&err);
}

/* ---- writing ---- */

bool cli_put_text(FILE *f, const char *text, size_t len, bool terminal)
{
    if (!terminal) return fwrite(text, 1, len, f) == len;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t cp;
        char shown[4];
        used = rvi_utf8_decode(text + i, len - i, &cp, NULL);
        if (cp < 0x20 && cp != '\n' && cp != '\t') cp += 0x2400; /* the pictures of Unicode */
        if (cp == 0x7F) cp = 0x2421;
        if (cp >= 0x80 && cp < 0xA0) cp = 0xFFFD;
        size_t n = rvi_utf8_encode(cp, shown);
        if (fwrite(shown, 1, n, f) != n) return false;
    }
    return true;
}

rv_time cli_now(void)
{
    time_t clock = time(NULL);
    const struct tm *t = localtime(&clock);
    return t ? (rv_time){t->tm_year + 1900, t->tm_mon + 1, t->tm_mday,
                         t->tm_hour,        t->tm_min,     t->tm_sec}
             : (rv_time){0};
}

void cli_write_ids(rvi_buf *out, const int32_t *ids, size_t n)
{
    rvi_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) rvi_buf_printf(out, i ? ",%d" : "%d", ids[i]);
    rvi_buf_putc(out, ']');
}

void cli_write_float(rvi_buf *out, float v)
{
    if (isfinite(v))
        rvi_buf_printf(out, "%.9g", (double)v);
    else
        rvi_buf_puts(out, "null");
}

int cli_print(rvi_buf *text)
{
    int st = CLI_OK;
    if (text->failed) {
        fputs("ruvllm: out of memory: output\n", stderr);
        st = CLI_FAILED;
    } else if ((text->len &&
                !cli_put_text(stdout, text->data, text->len, rvi_os_is_terminal(stdout))) ||
               fflush(stdout)) {
        fprintf(stderr, "ruvllm: cannot write the result: %s\n", strerror(errno));
        st = CLI_FAILED;
    }
    rvi_buf_deinit(text);
    return st;
}

/* "2 min left", once that can be told. */
static void put_rest(char *out, size_t size, double seconds, double part)
{
    double rest = part > 0 ? seconds / part * (1 - part) : 0;
    *out = 0;
    if (part < 0.02 || part >= 1 || seconds < 2) return;
    if (rest < 90)
        snprintf(out, size, "%.0f s left ", rest);
    else if (rest < 90 * 60.0)
        snprintf(out, size, "%.0f min left ", rest / 60);
    else
        snprintf(out, size, "%.1f h left ", rest / 3600);
}

void cli_progress_show(cli_progress *p, const char *what, uint64_t done, uint64_t total,
                       const char *note)
{
    enum { WIDTH = 24, NARROW = 5, OTHERS = 10 /* columns of brackets, percents and spaces */ };
    double now = rvi_os_seconds(), part = total ? (double)done / (double)total : 0;
    char bar[WIDTH + 1], rest[32];
    if (part > 1) part = 1;
    if (!p->what || strcmp(p->what, what)) *p = (cli_progress){p->last, now, 0, what};
    put_rest(rest, sizeof rest, now - p->begun, part);
    if (!rvi_os_is_terminal(stderr)) {
        int tenth = (int)(part * 10);
        if (tenth == p->last_tenth) return;
        p->last_tenth = tenth;
        fprintf(stderr, "%s: %d%% %s%s\n", what, tenth * 10, rest, note);
        return;
    }
    if (now - p->last < 0.1 && done < total) return;
    p->last = now;
    int width = rvi_os_terminal_width(stderr) - OTHERS -
                (int)(RVI_MAX(strlen(what), (size_t)12) + strlen(rest) + strlen(note));
    width = RVI_MAX(RVI_MIN(width, WIDTH), NARROW);
    int filled = (int)(part * width);
    for (int i = 0; i < width; i++) bar[i] = i < filled ? '#' : '.';
    bar[width] = 0;
    fprintf(stderr, "\r%-12s [%s] %3d%% %s%s\033[K", what, bar, (int)(part * 100), rest, note);
    fflush(stderr);
}

void cli_progress_end(cli_progress *p)
{
    if (p->last > 0 && rvi_os_is_terminal(stderr)) fputs("\r\033[K", stderr);
    *p = (cli_progress){0};
}
