/* witness: checks the log of `serve --witness`, and what was learned by it */
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/learning.h"
#include "cli/witness_replay.h"
#include "server/keys.h"
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

static rv_status check(const char *where, const char *head, rvi_witness_report *r, rv_error *err)
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

static int verify(const char *where, const char *head)
{
    rvi_witness_report r;
    rv_error err = {0};
    if (check(where, head, &r, &err)) return cli_fail(&err);
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

int cli_witness(cli *c, int argc, char **argv)
{
    const char *args[3], *head = NULL;
    cli_replay_options replay = {0};
    const cli_option table[] = {{"head", 0, CLI_TEXT, &head, NULL},
                                {"adapter", 0, CLI_TEXT, &replay.name, NULL},
                                {"tenant", 0, CLI_TEXT, &replay.tenant, NULL}};
    int n_args = 0;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 3, &n_args, &done);
    if (code || done) return code;
    bool replays = n_args && !strcmp(args[0], "replay");
    if (n_args != 2 + replays || (!replays && strcmp(args[0], "verify")))
        return cli_usage(c, "verify and a folder are needed, or replay, a folder and a model");
    if (head && !is_hash(head))
        return cli_usage(c, "--head must be 64 hexadecimal digits (got '%s')", head);
    if (replay.name && (code = cli_check_name(c, replay.name))) return code;
    if (replay.tenant && !rvi_key_is_name(replay.tenant))
        return cli_usage(c, "--tenant must be the name of a key (got '%s')", replay.tenant);
    if (!replays) return verify(args[1], head);
    replay.folder = args[1];
    replay.model = args[2];
    return cli_witness_replay(c, &replay);
}
