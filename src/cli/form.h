/* form.h - the options that say what an answer's text may be. */
#ifndef RVI_CLI_FORM_H
#define RVI_CLI_FORM_H

#include "cli/cli.h"
#include "ruvllm_grammar.h"

enum { CLI_FORM_OPTIONS = 5 };

typedef struct cli_form {
    const char *schema, *regex, *gbnf, *choices;
    bool json_mode;
} cli_form;

/* What an option names: a file, or the text itself where it is JSON or the rules of a grammar. */
rv_status cli_read_source(const char *given, rvi_buf *text, rv_error *err) RVI_MUST_CHECK;

/* Writes the rows of the options table, CLI_FORM_OPTIONS of them. */
void cli_form_rows(cli_form *f, cli_option *rows);
bool cli_form_given(const cli_form *f);
/* CLI_OK, or CLI_USAGE after saying that there are too many. */
int cli_form_check(const cli *c, const cli_form *f);
/* Its kind and text; nothing where no form was asked for. */
rv_status cli_form_read(const cli_form *f, rv_grammar_kind *kind, rvi_buf *text,
                        rv_error *err) RVI_MUST_CHECK;
/* *out is NULL where no form was asked for. */
rv_status cli_form_grammar(const cli_form *f, const rv_model *m, rv_grammar **out,
                           rv_error *err) RVI_MUST_CHECK;

#endif
