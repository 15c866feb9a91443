/* witness: checks the log of `serve --witness`, and what was learned by it */
#include <string.h>

#include "base/error.h"
#include "cli/witness_replay.h"
#include "server/keys.h"
#include "server/witness.h"

static bool is_hash(const char *text)
{
    return strlen(text) == RVI_SHA256_HEX - 1 &&
           strspn(text, "0123456789abcdef") == RVI_SHA256_HEX - 1;
}

static int verify(const char *folder, const char *head)
{
    rvi_witness_report r;
    rv_error err = {0};
    if (rvi_witness_verify(folder, head, &r, &err)) return cli_fail(&err);
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
