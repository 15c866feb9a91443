/* settings.h - the options of a command from a file and from the environment.
 *
 * The command line counts more than the environment (RUVLLM_SERVE_MAX_BODY for --max-body of
 * serve), that more than the file (a table of its name in ruvllm.toml). All of them become one
 * command line, so that one reader checks every value. */
#ifndef RVI_CLI_SETTINGS_H
#define RVI_CLI_SETTINGS_H

#include "cli/cli.h"

typedef struct cli_settings {
    const char *file; /* NULL: none was read */
    const char *model;
    int argc;
    char **argv;
    rvi_buf text;
    rvi_arena arena;
} cli_settings;

/* The file is that of --config, of RUVLLM_CONFIG, or ./ruvllm.toml where there is one. Returns a
 * status of the program; what is wrong was said. */
int cli_settings_read(cli_settings *s, const cli *c, const cli_option *options, size_t n, int argc,
                      char **argv);
/* The same for an answer's options: the file is that of --preset, or none. */
int cli_preset_read(cli_settings *s, const cli *c, const cli_option *options, size_t n, int argc,
                    char **argv);
void cli_settings_free(cli_settings *s);
/* Prints the values of options as such a file has them; secret: names of those that are not
 * shown, each between spaces. */
void cli_settings_print(const cli_settings *s, const cli *c, const char *model,
                        const cli_option *options, size_t n, const char *secret);

#endif
