/* second_look.h - after something was taught or judged: is it so now?
 *
 * After a lesson the learner is asked what it would speak, and nothing is generated: for the
 * question itself, for two other wordings of it, and for a neighbour, the question about something
 * else, which must not have changed (text/frames.h; of several the one that the model finds
 * likeliest). What was to be judged on the session is gone
 * afterwards. A thumb or a score may change any answer a little: there the beginnings of greedy
 * answers to the same wordings and the neighbour, before and after it, are compared. */
#ifndef RVI_CLI_SECOND_LOOK_H
#define RVI_CLI_SECOND_LOOK_H

#include "cli/cli.h"
#include "cli/learning.h"
#include "ruvllm_learn.h"

/* One line about a lesson that was just taught. scope: exact or topic. exactly: how to teach it for
 * this very question alone. */
rv_status cli_second_look_taught(const rv_model *m, rv_learner *l, rv_session *s,
                                 const char *question, const char *answer, rv_scope scope,
                                 const char *exactly, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
/* One line about the lesson of a plan that was spoken or read for a request, and turned down
 * there. */
rv_status cli_second_look_refused(rv_learner *l, rv_session *s, const char *request,
                                  const rv_learn_plan *spoken, rvi_buf *out,
                                  rv_error *err) RVI_MUST_CHECK;

/* The same about the lesson of a plan that was spoken for a request and corrected there: where its
 * own question still gets it. Nothing otherwise. */
rv_status cli_second_look_kept(rv_learner *l, rv_session *s, const rv_learn_plan *spoken,
                               rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* How many lessons of a list are so now. */
typedef struct cli_looks {
    size_t n, taken;               /* questions */
    size_t n_wordings, recognised; /* other wordings of them */
    size_t n_others, changed;      /* neighbours that would get the lesson's answer */
} cli_looks;
rv_status cli_second_look_count(rv_learner *l, rv_session *s, const char *question,
                                const char *answer, rv_scope scope, cli_looks *counts,
                                rv_error *err) RVI_MUST_CHECK;

/* The number of the newest generation; 0: there is none. */
rv_status cli_second_look_newest(const cli_learning *l, int *out, rv_error *err) RVI_MUST_CHECK;
/* One line about the lessons that went into generations after this one: how many weights alone were
 * seen to answer, in how many other wordings, and whether neighbours are as they were. None where
 * nothing did. */
rv_status cli_second_look_trained(const rv_model *m, const cli_learning *l, int since, rvi_buf *out,
                                  rv_error *err) RVI_MUST_CHECK;

typedef struct cli_glance cli_glance;
/* What is answered before a judgement, on a session of its own with no more than n_context tokens.
 * question: to the answer that is judged. One that is long, or has no other wordings, is not looked
 * at: *out is NULL then. */
rv_status cli_glance_new(cli_glance **out, const rv_model *m, rv_learner *l, int n_context,
                         const char *question, rv_error *err) RVI_MUST_CHECK;
/* One line about what is answered after it. */
rv_status cli_glance_compare(cli_glance *g, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
void cli_glance_free(cli_glance *g); /* accepts NULL */

#endif
