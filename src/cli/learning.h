/* learning.h - a learner with its state on this machine, and messages about what it did.
 *
 * The state is in STATE/DIGEST/NAME (the model's digest and the name given by --adapter):
 * feedback.db, the store, which any number of processes share, and the learner's own files. Where
 * cli.store names a database, the store is there, in a space called DIGEST/NAME.
 *
 * The learner's own files are copies and work in progress, and each process has a folder of its
 * own: STATE/DIGEST/NAME, or STATE/DIGEST/.shared-NAME/DATABASE-N where another process has that or
 * the store is in a database, with the first N that is free. */
#ifndef RVI_CLI_LEARNING_H
#define RVI_CLI_LEARNING_H

#include "base/json.h"
#include "cli/cli.h"
#include "cli/judgements.h"
#include "ruvllm_store.h"

typedef struct cli_learning {
    rv_learner *l;      /* NULL: closed */
    rv_model *embedder; /* that requests are recognised with; NULL: by spelling alone */
    rv_store store;
    const rv_store *beside; /* whose connection it uses; NULL: one of its own */
    const char *url;        /* of the database; NULL: the store is a file */
    rvi_buf place;          /* that file, or the space in the database */
    rvi_buf dir;
    rvi_buf shared;   /* where the folders of other processes are */
    const char *name; /* of the user */
    rvi_buf tenant;   /* the text of name, of a tenant */
    bool claimed;     /* dir is this process's: */
    int claim;        /* its lock */
    char none[544];   /* where l is NULL after cli_learning_use: why */
} cli_learning;

/* Where in a database the witness log is. */
#define CLI_WITNESS_SPACE ".witness"

/* The learned state of a model under a name (NULL: "default"). create: missing state is created;
 * otherwise l stays NULL. Call cli_learning_close in any case. */
rv_status cli_learning_open(cli_learning *out, const cli *c, const cli_model *m, const char *name,
                            bool create, rv_error *err) RVI_MUST_CHECK;
/* What was taught, if anything was, for one answer; out->none says why nothing takes part. alone:
 * why nothing is to, NULL: it is. State that cannot be read costs a warning, not the answer. */
rv_status cli_learning_use(cli_learning *out, const cli *c, const cli_model *m, const char *name,
                           const char *alone, rv_error *err) RVI_MUST_CHECK;
/* The same for a tenant of a server. all: the server's own, which outlives it; NULL: outside a
 * server, which alone creates missing state. */
rv_status cli_learning_open_tenant(cli_learning *out, const cli *c, const cli_model *m,
                                   const char *tenant, const cli_learning *all,
                                   rv_error *err) RVI_MUST_CHECK;
/* What to say after something was taught; NULL: nothing. */
const char *cli_learning_hint(const cli_learning *l);
void cli_learning_close(cli_learning *l);
/* After something was forgotten: removes copies of adapters that processes left that are gone. */
void cli_learning_clean(cli_learning *l);

/* "WHAT: TEXT", of a long text its beginning. Appends. */
void cli_learning_said(rvi_buf *out, const char *what, const char *text);
/* One line: what changed and how long it took. said: the words for it, where something changed;
 * NULL: those of the learner. */
void cli_learning_describe(const rv_adaptation *a, const char *said, bool verbose, rvi_buf *out);
extern const char cli_learning_step[];                         /* said of a score */
void cli_learning_write(const rv_adaptation *a, rvi_buf *out); /* as a JSON object */
/* One of both, as a line, and frees a. */
void cli_learning_report(const cli *c, rv_adaptation *a, const char *said, bool json, rvi_buf *out);
/* The status of a learner, in the arena. */
rv_status cli_learning_status(const cli_learning *l, rvi_arena *arena, const rvi_json **out,
                              rv_error *err) RVI_MUST_CHECK;
/* Thumbs and scores that were neither taken back nor forgotten. The caller frees the list, texts
 * are in the arena. */
rv_status cli_learning_judgements(const cli_learning *l, rvi_arena *arena, cli_judgements *out,
                                  rv_error *err) RVI_MUST_CHECK;
/* The status as a text for people, with the thumbs and scores. */
rv_status cli_learning_print(cli_learning *l, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* Trains what waits, with a bar. While another process does, waits for it: then out may say that
 * nothing was left. RV_E_CANCELLED: interrupted. */
rv_status cli_learning_train(cli_learning *l, rv_learn_loop loop, rv_preference_loss loss,
                             rv_adaptation **out, rv_error *err) RVI_MUST_CHECK;

/* Checks that a user's text is not empty, is UTF-8 and no longer than the learner takes it. */
rv_status cli_learning_check(const char *what, const char *text, size_t len,
                             rv_error *err) RVI_MUST_CHECK;

#endif
