/* pull and list */
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "hub/hub.h"

static void show(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    char note[48] = "";
    if (total)
        snprintf(note, sizeof note, "%.1f of %.1f MB", (double)done / 1e6, (double)total / 1e6);
    cli_progress_show(ctx, what, done, total, note);
}

int cli_pull(cli *c, int argc, char **argv)
{
    const char *args[1];
    int n_args;
    bool done;
    int code = cli_parse(c, NULL, 0, argc, argv, args, 1, &n_args, &done);
    if (code || done) return code;
    if (!n_args) return cli_usage(c, "a name is needed ('ruvllm list' shows them)");

    rv_error err = {0};
    cli_progress bar = {0};
    rvi_buf path = {0};
    const rvi_hub_model *m = rvi_hub_find(args[0]);
    const char *cache, *near = m ? NULL : cli_nearest_model(args[0]);
    rv_status st = cli_cache(c, &cache, &err);
    if (!st && !m)
        st =
            rvi_error(&err, RV_E_NOT_FOUND,
                      "no model named '%s' in the catalogue%s%s%s; 'ruvllm list' shows it", args[0],
                      near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    if (!st) st = rvi_hub_pull(cache, m, show, &bar, &path, &err);
    cli_progress_end(&bar);
    if (!st) {
        fprintf(stderr, "%s is here, as '%s'.\n", m->title, m->name);
        rvi_buf_putc(&path, '\n');
        code = cli_print(&path);
    }
    rvi_buf_deinit(&path);
    return st ? cli_fail(&err) : code;
}

/* Names and titles are as wide as the widest of them. */
typedef struct listing {
    int name_width, title_width;
    rvi_buf *out; /* NULL: only measuring */
} listing;

static void list_one(listing *l, const char *name, size_t name_len, const char *title, double bytes,
                     const char *license, const char *where)
{
    l->name_width = RVI_MAX(l->name_width, (int)name_len);
    l->title_width = RVI_MAX(l->title_width, (int)strlen(title));
    if (!l->out) return;
    size_t at = l->out->len;
    rvi_buf_printf(l->out, "%-*.*s  %-*s %9.1f MB  %-12s %s", l->name_width, (int)name_len, name,
                   l->title_width, title, bytes / 1e6, license, where);
    if (!l->out->failed) cli_hush_line(l->out->data + at, l->out->len - at);
    rvi_buf_putc(l->out, '\n');
}

static int list_local(void *ctx, const rvi_hub_local *local)
{
    list_one(ctx, local->file, local->name_len, local->file, (double)local->size, "", "here");
    return 0;
}

static rv_status list_all(const cli *c, listing *l, rv_error *err)
{
    size_t n;
    const rvi_hub_model *m = rvi_hub_catalog(&n);
    for (size_t i = 0; i < n; i++)
        list_one(l, m[i].name, strlen(m[i].name), m[i].title, (double)m[i].size, m[i].license,
                 c->cache_dir && rvi_hub_present(c->cache_dir, &m[i]) ? "here" : "not here yet");
    return c->cache_dir ? rvi_hub_local_list(c->cache_dir, list_local, l, err) : RV_OK;
}

int cli_list(cli *c, int argc, char **argv)
{
    const char *args[1];
    int n_args;
    bool done;
    int code = cli_parse(c, NULL, 0, argc, argv, args, 0, &n_args, &done);
    if (code || done) return code;
    rv_error err = {0};
    rvi_buf out = {0};
    listing l = {0, 0, NULL};
    const char *cache;
    rv_status st = c->cache_dir ? cli_cache(c, &cache, &err) : RV_OK;
    if (!st) st = list_all(c, &l, &err);
    l.out = &out;
    if (!st) st = list_all(c, &l, &err);
    if (!st) code = cli_print(&out);
    rvi_buf_deinit(&out);
    return st ? cli_fail(&err) : code;
}
