/* The model argument, adapters, ids, files, output and the progress bar. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/cli.h"
#include "hub/hub.h"

/* ---- models ---- */

void cli_hush(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\n') || text[i] == 0x7F) text[i] = '?';
}

static void print_log(void *ctx, rv_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char copy[1024];
    (void)ctx;
    snprintf(copy, sizeof copy, "%s", line);
    cli_hush(copy, strlen(copy));
    fprintf(stderr, "ruvllm: %s: %s\n", names[level], copy);
}

static rv_log_level log_level(const cli *c)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; c->log_level && i < RVI_COUNT(names); i++)
        if (!strcmp(c->log_level, names[i])) return (rv_log_level)i;
    return c->verbose ? RV_LOG_INFO : RV_LOG_WARN;
}

/* The path behind a MODEL argument. */
static rv_status resolve(const cli *c, const char *name, rvi_buf *path, rv_error *err)
{
    if (rvi_os_stat(name, NULL) != RVI_OS_NONE)
        return rvi_buf_puts(path, name) ? RV_OK : rvi_nomem(err, "path");
    const rvi_hub_model *known = rvi_hub_find(name);
    if (!known)
        return rvi_error(err, RV_E_NOT_FOUND,
                         "no model '%s': give a .gguf file, a model directory, or a name that "
                         "'ruvllm list' shows",
                         name);
    rv_status st = rvi_hub_path(path, c->cache_dir, known, err);
    if (!st && !rvi_hub_present(c->cache_dir, known))
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "model '%s' is not on this machine yet: 'ruvllm pull %s' fetches it", name,
                       known->name);
    return st;
}

rv_status cli_open(cli *c, const char *name, unsigned flags, cli_model *out, rv_error *err)
{
    rv_runtime_options o;
    rvi_buf path = {0};
    *out = (cli_model){0};
    rv_runtime_options_init(&o);
    o.n_threads = flags & RV_OPEN_VOCABULARY ? 1 : c->threads;
    o.exact = c->exact;
    o.isa = c->isa;
    o.log = print_log;
    o.log_level = log_level(c);
    rv_status st = resolve(c, name, &path, err);
    if (!st) st = rv_runtime_new(&out->rt, &o, err);
    if (!st) st = rv_model_open(&out->m, out->rt, path.data, flags, err);
    if (st) cli_close(out);
    rvi_buf_deinit(&path);
    return st;
}

void cli_close(cli_model *m)
{
    rv_model_close(m->m);
    rv_runtime_free(m->rt);
    *m = (cli_model){0};
}

rv_status cli_session_options(const cli *c, const rv_model *m, rv_session_options *o, rv_error *err)
{
    rv_session_options_init(o, m);
    o->n_context = c->context;
    if (!c->kv) return RV_OK;
    if (!strcmp(c->kv, "f32"))
        o->kv_type = RV_KV_F32;
    else if (!strcmp(c->kv, "f16"))
        o->kv_type = RV_KV_F16;
    else
        return rvi_error(err, RV_E_CONFIG, "--kv: '%s' is neither f32 nor f16", c->kv);
    return RV_OK;
}

/* ---- adapters ---- */

rv_status cli_load_adapters(const cli_texts *paths, const rv_model *m, cli_adapters *out,
                            rv_error *err)
{
    rv_status st = RV_OK;
    *out = (cli_adapters){0};
    for (size_t i = 0; !st && i < paths->n; i++) {
        const char *text = paths->items[i], *colon = strrchr(text, ':');
        char *end;
        float scale = 1;
        size_t len = strlen(text);
        if (colon && colon[1]) {
            scale = strtof(colon + 1, &end);
            if (!*end && isfinite(scale))
                len = (size_t)(colon - text);
            else
                scale = 1; /* a colon in the path itself */
        }
        rvi_buf path = {0};
        rv_adapter *a;
        if (!rvi_buf_append(&path, text, len)) st = rvi_nomem(err, "path");
        if (!st) st = rv_adapter_load(&a, m, path.data, err);
        if (!st) out->uses[out->n++] = (rv_adapter_use){a, scale};
        rvi_buf_deinit(&path);
    }
    if (st) cli_free_adapters(out);
    return st;
}

void cli_free_adapters(cli_adapters *a)
{
    for (size_t i = 0; i < a->n; i++) rv_adapter_free((rv_adapter *)(uintptr_t)a->uses[i].adapter);
    a->n = 0;
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
        if (!rvi_buf_append(out, chunk, n)) st = rvi_nomem(err, path);
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

rv_status cli_parse_ids(const char *text, int32_t **ids, size_t *n, rv_error *err)
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
            st = rvi_error(err, RV_E_CONFIG, "'%.20s' is not a token id", text);
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

/* ---- writing ---- */

void cli_write_ids(rvi_buf *out, const int32_t *ids, size_t n)
{
    rvi_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) rvi_buf_printf(out, i ? ",%d" : "%d", ids[i]);
    rvi_buf_putc(out, ']');
}

int cli_print(rvi_buf *text)
{
    int st = CLI_OK;
    if (text->failed) {
        fputs("ruvllm: out of memory: output\n", stderr);
        st = CLI_FAILED;
    } else if ((text->len && fwrite(text->data, 1, text->len, stdout) != text->len) ||
               fflush(stdout)) {
        fprintf(stderr, "ruvllm: cannot write the result: %s\n", strerror(errno));
        st = CLI_FAILED;
    }
    rvi_buf_deinit(text);
    return st;
}

void cli_progress_show(cli_progress *p, const char *what, uint64_t done, uint64_t total,
                       const char *note)
{
    enum { WIDTH = 30 };
    double now = rvi_os_seconds(), part = total ? (double)done / (double)total : 0;
    if (part > 1) part = 1;
    if (!rvi_os_is_terminal(stderr)) {
        int tenth = (int)(part * 10);
        if (tenth == p->last_tenth) return;
        p->last_tenth = tenth;
        fprintf(stderr, "%s: %d%% %s\n", what, tenth * 10, note);
        return;
    }
    if (now - p->last < 0.1 && done < total) return;
    p->last = now;
    char bar[WIDTH + 1];
    int filled = (int)(part * WIDTH);
    for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%-12s [%s] %3d%% %s\033[K", what, bar, (int)(part * 100), note);
    fflush(stderr);
}

void cli_progress_end(cli_progress *p)
{
    if (p->last > 0 && rvi_os_is_terminal(stderr)) fputs("\r\033[K", stderr);
    *p = (cli_progress){0};
}
