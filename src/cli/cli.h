/* cli.h - what the commands of the program share: options, the model argument, output.
 *
 * The only room that reads the environment. Results go to standard output, everything else to
 * standard error; exit status 0, 1 = failed, 2 = used wrongly, 130 = interrupted. */
#ifndef RVI_CLI_CLI_H
#define RVI_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/mem.h"
#include "ruvllm_experimental.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

typedef enum cli_kind { CLI_FLAG, CLI_INT, CLI_UINT64, CLI_FLOAT, CLI_TEXT, CLI_TEXTS } cli_kind;

typedef struct cli_texts {
    const char *items[64];
    size_t n;
} cli_texts;

/* One option: long name without dashes, a letter or 0, where the value goes. `given` may be NULL.
 */
typedef struct cli_option {
    const char *name;
    char letter;
    cli_kind kind;
    void *value; /* bool, int, uint64_t, float, const char *, cli_texts */
    bool *given;
} cli_option;

typedef struct cli {
    int threads;
    int context;
    int gpu_layers; /* 0: all, or of those that fit as many as are best */
    int gpu_tokens; /* of KV cache that a command will ask for; 0: the context */
    const char *kv, *isa, *device, *cache_dir, *state_dir, *log_level;
    const char *store;         /* the database that learned state is in; NULL: in state_dir */
    const char *template_file; /* used instead of the model's chat template; NULL: its own */
    bool no_color, verbose, exact, no_pack, help;
    const char *command;
    const char *default_state; /* state_dir unless the user named another; paths holds its text */
    rvi_buf paths[3];
} cli;

typedef struct cli_command {
    const char *name, *arguments, *summary;
    const char *details; /* the options, for help */
    int (*run)(cli *c, int argc, char **argv);
    const char *more; /* options it shares with other commands, NULL: none */
} cli_command;

/* Each program defines these. */
extern const char cli_program[], cli_purpose[]; /* its name, and what it does */
extern const cli_command cli_commands[];        /* ends with a NULL name */

/* "1.5G": a number of bytes, with K, M, G or T (powers of 1024) or without; at least 1. */
bool cli_read_size(const char *text, uint64_t *bytes);

/* Parses argv (the command's own arguments): options go to their places, the rest to args (at most
 * max). Returns CLI_OK, or CLI_USAGE after saying what is wrong. Global options are known
 * everywhere. cli_parse also answers --help; *done is set then. */
int cli_parse_options(cli *c, const cli_option *options, size_t n_options, int argc, char **argv,
                      const char **args, int max, int *n_args);
int cli_parse(cli *c, const cli_option *options, size_t n_options, int argc, char **argv,
              const char **args, int max, int *n_args, bool *done);

/* The index of the command: the first argument after leading global options; argc if there is none.
 */
int cli_command_at(cli *c, int argc, char **argv);

int cli_fail(const rv_error *err); /* prints the error, returns CLI_FAILED */
void cli_warn(const char *fmt, ...) RVI_PRINTF(1, 2);
int cli_usage(const cli *c, const char *fmt, ...)
    RVI_PRINTF(2, 3); /* prints and points to --help, returns CLI_USAGE */

/* The word of the list (ended by NULL) that was probably meant; NULL if none is near. */
const char *cli_nearest(const char *typed, const char *const *words);

/* What the program was built from. */
const char *cli_commit(void);
int cli_build_number(void);

/* Is it the address of a PostgreSQL database? */
bool cli_is_database(const char *text);
#define CLI_DATABASE_NEEDED "must be the address of a database, postgres://..."
/* Fills cache_dir, state_dir and store from the environment; NULL if none can be determined. */
void cli_paths_init(cli *c);
void cli_paths_deinit(cli *c);
/* The directories of models and of learned state; an error if they could not be determined. */
rv_status cli_cache(const cli *c, const char **dir, rv_error *err) RVI_MUST_CHECK;
rv_status cli_state(const cli *c, const char **dir, rv_error *err) RVI_MUST_CHECK;
const char *cli_history_dir(cli *c); /* of the chat history; NULL: none */

#define CLI_MODEL_NEEDED                                                                           \
    "a model is needed: a .gguf file, a model directory, or a name from 'ruvllm list'"
/* The name of the catalogue that was probably meant, or NULL. */
const char *cli_nearest_model(const char *typed);

/* A runtime and the model the user named: a file, a directory, or a name from the catalogue. */
typedef struct cli_model {
    rv_runtime *rt;
    rv_model *m;
    rvi_buf path; /* where it was found */
} cli_model;
rv_status cli_runtime(const cli *c, int n_threads, rv_runtime **out, rv_error *err) RVI_MUST_CHECK;
rv_status cli_open(cli *c, const char *name, bool vocabulary, cli_model *out,
                   rv_error *err) RVI_MUST_CHECK;
void cli_close(cli_model *m);
/* The path behind a MODEL argument. */
rv_status cli_locate(const cli *c, const char *name, rvi_buf *path, rv_error *err) RVI_MUST_CHECK;
/* Another model in the runtime of the first. */
rv_status cli_open_beside(const cli *c, const char *name, rv_runtime *rt, rv_model **out,
                          rv_error *err) RVI_MUST_CHECK;
/* --kv as a type */
rv_status cli_kv_type(const cli *c, rv_kv_type *out, rv_error *err) RVI_MUST_CHECK;

/* The LoRA arguments "PATH" or "PATH:SCALE" as a set; NULL for none of them. */
rv_status cli_load_adapters(const cli_texts *paths, const rv_model *m, rv_adapter_set **out,
                            rv_error *err) RVI_MUST_CHECK;

/* Whether a result may be written to path: an existing file is replaced only with --force, and the
 * model in use never. Devices and pipes are always allowed. */
rv_status cli_may_write(const cli_model *m, const char *path, bool force,
                        rv_error *err) RVI_MUST_CHECK;

/* "1,2,3", "1 2 3" or "@file" of such; *ids: rvi_free. CLI_OK, or after saying what is wrong
 * CLI_USAGE, or CLI_FAILED where the file is at fault. */
int cli_parse_ids(const cli *c, const char *text, int32_t **ids, size_t *n);
/* CLI_OK, or CLI_USAGE after reporting that --adapter is not a valid name. */
int cli_check_name(const cli *c, const char *name);
rv_status cli_read_file(const char *path, rvi_buf *out,
                        rv_error *err) RVI_MUST_CHECK; /* "-": standard input */
bool cli_read_line(FILE *f, rvi_buf *line); /* without the line end; false at the end of input */

/* Control characters but line ends become '?': names out of a file must not drive a terminal. */
void cli_hush(char *text, size_t len);
/* Line ends become spaces too: what a file says must not look like a line of the program's own. */
void cli_hush_line(char *text, size_t len);
/* A copy in the arena for which both were done; "" without memory. */
const char *cli_one_line(rvi_arena *arena, const char *text);
/* Writes untrusted text; on a terminal, control characters other than newline and tab are replaced
 * by visible ones. False: it could not be written. */
bool cli_put_text(FILE *f, const char *text, size_t len, bool terminal);
rv_time cli_now(void);                                          /* the local time */
void cli_write_ids(rvi_buf *out, const int32_t *ids, size_t n); /* [1,2,3] */
void cli_write_float(rvi_buf *out, float v); /* as JSON; null where it is no number */
/* Writes the buffer to standard output and frees it. On a terminal, control characters are replaced
 * by visible ones. A full disk is an error. */
int cli_print(rvi_buf *text);

/* A progress bar with the time left on a terminal, otherwise a line from time to time. note is
 * shown after it, may be "". what must stay valid. */
typedef struct cli_progress {
    double last, begun; /* seconds; when this `what` began */
    int last_tenth;
    const char *what;
} cli_progress;
void cli_progress_show(cli_progress *p, const char *what, uint64_t done, uint64_t total,
                       const char *note);
void cli_progress_end(cli_progress *p);

int cli_run(cli *c, int argc, char **argv);
int cli_chat(cli *c, int argc, char **argv);
int cli_embed(cli *c, int argc, char **argv);
int cli_tokenize(cli *c, int argc, char **argv);
int cli_detokenize(cli *c, int argc, char **argv);
int cli_template(cli *c, int argc, char **argv);
int cli_perplexity(cli *c, int argc, char **argv);
int cli_tap(cli *c, int argc, char **argv);
int cli_info(cli *c, int argc, char **argv);
int cli_grammar(cli *c, int argc, char **argv);
int cli_pull(cli *c, int argc, char **argv);
int cli_list(cli *c, int argc, char **argv);
int cli_bench(cli *c, int argc, char **argv);
int cli_teach(cli *c, int argc, char **argv);
int cli_learn(cli *c, int argc, char **argv);
int cli_doctor(cli *c, int argc, char **argv);
int cli_serve(cli *c, int argc, char **argv);
int cli_key(cli *c, int argc, char **argv);
int cli_witness(cli *c, int argc, char **argv);

#endif
