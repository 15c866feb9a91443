/* witness: checks the log of `serve --witness` */
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "server/witness.h"

static bool is_hash(const char *text)
{
    return strlen(text) == RVI_SHA256_HEX - 1 &&
           strspn(text, "0123456789abcdef") == RVI_SHA256_HEX - 1;
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
    if (rvi_witness_verify(args[1], head, &r, &err)) return cli_fail(&err);
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
