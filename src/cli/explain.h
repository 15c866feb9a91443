/* explain.h - --explain-backend: what computes, and why. */
#ifndef RVI_CLI_EXPLAIN_H
#define RVI_CLI_EXPLAIN_H

#include "cli/generation.h"
#include "cli/learning.h"

typedef struct cli_explained {
    const rv_model *m;
    const rv_session *s; /* NULL: the model predicts no tokens */
    const cli_generation *g;
    const cli_learning *learning; /* as cli_learning_use left it; NULL: it has no part in that */
} cli_explained;

/* A line for each choice, or with json an object with a member for each. */
rv_status cli_explain(const cli_explained *e, bool json, rvi_buf *out,
                      rv_error *err) RVI_MUST_CHECK;

/* Opens what an answer needs, explains, and closes it. alone: as cli_learning_use wants it. */
int cli_explain_only(cli *c, const char *model, cli_generation *g, const char *alone, bool json);

#endif
