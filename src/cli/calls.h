/* calls.h - --tools, --tool-choice, --think and --retries: what the model may call, how long it
 * thinks, and how often it may try again. */
#ifndef RVI_CLI_CALLS_H
#define RVI_CLI_CALLS_H

#include "cli/conversation.h"
#include "cli/form.h"
#include "ruvllm_tools.h"

enum { CLI_CALLS_OPTIONS = 4 };

typedef struct cli_calls {
    const char *file, *choice, *think;
    int retries;   /* below 0: answers are held; else how often one that was not is made again */
    rvi_buf tools; /* the file's text */
    rv_tools *t;   /* NULL: nothing of this was asked for */
} cli_calls;

/* Writes the rows of the options table, CLI_CALLS_OPTIONS of them. */
void cli_calls_rows(cli_calls *c, cli_option *rows);
bool cli_calls_given(const cli_calls *c);
/* CLI_OK, or CLI_USAGE after saying what is wrong. */
int cli_calls_check(const cli *c, const cli_calls *calls, const cli_form *form);
/* Reads the file, and makes c->t if anything was asked for; an answer that is no call has the
 * form. */
rv_status cli_calls_open(cli_calls *c, const cli_form *form, const rv_model *m, uint64_t seed,
                         rv_error *err) RVI_MUST_CHECK;
void cli_calls_close(cli_calls *c);
/* What the template is to see of it. */
rv_status cli_calls_tell(const cli_calls *c, cli_conversation *talk, rv_error *err) RVI_MUST_CHECK;
/* The calls of a checked answer as lines, or its text. */
rv_status cli_calls_print(const rv_checked *checked, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

#endif
