/* key: makes a key for `serve --keys` */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/cli.h"
#include "server/keys.h"

/* The line is whole in the file, or the key is not told. */
static rv_status append(const char *path, const rvi_buf *line, rv_error *err)
{
    rvi_os_private_files(true);
    FILE *f = fopen(path, "ab");
    rvi_os_private_files(false);
    if (!f) return rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    rv_status st = rvi_os_write(f, line->data, line->len, path, err);
    if (!st) st = rvi_os_sync(f, path, err);
    if (fclose(f) && !st) st = rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    return st;
}

int cli_key(cli *c, int argc, char **argv)
{
    const char *args[2], *scopes = "infer,teach", *learning = "shared";
    rvi_key key = {0};
    char text[RVI_KEY_TEXT];
    rv_error err = {0};
    rvi_buf line = {0};
    const cli_option table[] = {{"scopes", 0, CLI_TEXT, &scopes, NULL},
                                {"per-minute", 0, CLI_INT, &key.rate, NULL},
                                {"learning", 0, CLI_TEXT, &learning, NULL}};
    int n_args = 0;
    bool done;
    int code = cli_parse(c, table, RVI_COUNT(table), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args < 2) return cli_usage(c, "a file and a name are needed");
    if (!rvi_key_is_name(args[1]))
        return cli_usage(c, "the name must be 1 to 64 letters, digits, '_', '.' or '-' (got '%s')",
                         args[1]);
    if (!rvi_key_read_scopes(&key, scopes))
        return cli_usage(c,
                         "--scopes must be of infer, teach and admin, with commas between them "
                         "(got '%s')",
                         scopes);
    if (!rvi_key_read_learned(&key, learning))
        return cli_usage(c, "--learning must be shared, tenant or off (got '%s')", learning);
    snprintf(key.name, sizeof key.name, "%s", args[1]);
    rvi_key_make(&key, text);
    rvi_key_write(&key, &line);
    rv_status st = line.failed ? rvi_nomem(&err, "key") : append(args[0], &line, &err);
    rvi_buf_deinit(&line);
    if (st) return cli_fail(&err);
    printf("%s\n", text);
    return CLI_OK;
}
