/* witness: checks the log of `serve --witness` */
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/cli.h"
#include "cli/learning.h"
#include "server/witness.h"

static bool is_hash(const char *text)
{
    return strlen(text) == RVI_SHA256_HEX - 1 &&
           strspn(text, "0123456789abcdef") == RVI_SHA256_HEX - 1;
}

/* ---- a log in a database is checked as a file ---- */

static int write_line(void *ctx, uint64_t seq, rv_bytes line)
{
    FILE *f = ctx;
    (void)seq;
    return fwrite(line.data, 1, line.len, f) != line.len || putc('\n', f) == EOF;
}

static rv_status copy_log(const char *url, const char *folder, rv_error *err)
{
    rv_store store = {0};
    rv_store_options o = {.size = sizeof o, .space = CLI_WITNESS_SPACE};
    rvi_buf path = {0};
    rv_status st = rv_store_open(&store, url, &o, err);
    if (!st && !rvi_buf_printf(&path, "%s/witness.jsonl", folder)) st = rvi_nomem(err, "path");
    FILE *f = st ? NULL : fopen(path.data, "wb");
    if (!st && !f) st = rvi_error(err, RV_E_IO, "%s cannot be written", path.data);
    if (!st) st = store.read(store.ctx, "witness", 1, write_line, f, err);
    bool bad = f && ferror(f);
    if (f && fclose(f)) bad = true;
    if (!st && bad) st = rvi_error(err, RV_E_IO, "%s cannot be written", path.data);
    rvi_buf_deinit(&path);
    rv_store_close(&store);
    return st;
}

static rv_status verify(const char *where, const char *head, rvi_witness_report *r, rv_error *err)
{
    rvi_buf folder = {0};
    if (!cli_is_database(where)) return rvi_witness_verify(where, head, r, err);
    rv_status st = rvi_os_temp_dir(&folder, "/tmp", err);
    if (!st) st = copy_log(where, folder.data, err);
    if (!st) st = rvi_witness_verify(folder.data, head, r, err);
    if (folder.len) rvi_os_remove_tree(folder.data);
    rvi_buf_deinit(&folder);
    return st;
}

int cli_witness(cli *c, int argc, char **argv)
{
    const char *args[2], *head = NULL;
    rvi_witness_report r;
    rv_error err = {0};
    const cli_option table[] = {{"head", 0, CLI_TEXT, &head, NULL}};
    int n_args = 0;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2 || strcmp(args[0], "verify"))
        return cli_usage(c, "verify and a folder are needed");
    if (head && !is_hash(head))
        return cli_usage(c, "--head must be 64 hexadecimal digits (got '%s')", head);
    if (verify(args[1], head, &r, &err)) return cli_fail(&err);
    printf("%llu requests, none changed; %llu were dropped\n", (unsigned long long)r.records,
           (unsigned long long)r.dropped);
    printf("started %llu times", (unsigned long long)r.starts);
    if (r.torn) printf(", %llu lines cut short by a crash", (unsigned long long)r.torn);
    if (r.kept + r.deleted)
        printf("; %llu contents are there, %llu were deleted", (unsigned long long)r.kept,
               (unsigned long long)r.deleted);
    printf("\nhead %s\n", r.head);
    return CLI_OK;
}
