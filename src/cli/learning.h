/* learning.h - a learner with its state on this machine, and messages about what it did.
 *
 * The state is in STATE/DIGEST/NAME (the model's digest and the name given by --adapter):
 * feedback.db (the store), the learner's own files, and `paused`, which exists while training is
 * paused. */
#ifndef RVI_CLI_LEARNING_H
#define RVI_CLI_LEARNING_H

#include "cli/cli.h"
#include "ruvllm_store.h"

typedef struct cli_learning {
    rv_learner *l; /* NULL: closed */
    rv_store store;
    rvi_buf dir;
    bool paused;
} cli_learning;

/* The learned state of a model under a name (NULL: "default"). create: missing state is created;
 * otherwise l stays NULL. Call cli_learning_close in any case. */
rv_status cli_learning_open(cli_learning *out, const cli *c, const rv_model *m, const char *name,
                            bool create, rv_error *err) RVI_MUST_CHECK;
void cli_learning_close(cli_learning *l);
rv_status cli_learning_set_paused(cli_learning *l, bool paused, rv_error *err) RVI_MUST_CHECK;

/* One line: what changed and how long it took. */
void cli_learning_describe(const rv_adaptation *a, rvi_buf *out);
void cli_learning_write(const rv_adaptation *a, rvi_buf *out); /* as a JSON object */
/* The status of a learner as a text for people. */
rv_status cli_learning_print(cli_learning *l, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* Progress of training: ctx is a cli_progress. */
int cli_learning_progress(void *ctx, const char *stage, int done, int total, double loss);

/* Checks that a user's text is not empty and is UTF-8. */
rv_status cli_learning_check(const char *what, const char *text, size_t len,
                             rv_error *err) RVI_MUST_CHECK;

#endif
