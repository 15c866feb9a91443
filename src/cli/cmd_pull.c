/* pull and list */
#include "base/error.h"
#include "cli/cli.h"
#include "hub/hub.h"

static void show(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    char note[48];
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
    rv_status st =
        m ? rvi_hub_pull(c->cache_dir, m, show, &bar, &path, &err)
          : rvi_error(&err, RV_E_NOT_FOUND,
                      "no model named '%s' in the catalogue; 'ruvllm list' shows it", args[0]);
    cli_progress_end(&bar);
    if (!st) {
        rvi_buf_putc(&path, '\n');
        code = cli_print(&path);
    }
    rvi_buf_deinit(&path);
    return st ? cli_fail(&err) : code;
}

int cli_list(cli *c, int argc, char **argv)
{
    const char *args[1];
    int n_args;
    bool done;
    int code = cli_parse(c, NULL, 0, argc, argv, args, 0, &n_args, &done);
    if (code || done) return code;
    size_t n;
    const rvi_hub_model *m = rvi_hub_catalog(&n);
    rvi_buf out = {0};
    for (size_t i = 0; i < n; i++)
        rvi_buf_printf(&out, "%-12s %-34s %7.1f MB  %-12s %s\n", m[i].name, m[i].title,
                       (double)m[i].size / 1e6, m[i].license,
                       rvi_hub_present(c->cache_dir, &m[i]) ? "here" : "not here yet");
    return cli_print(&out);
}
