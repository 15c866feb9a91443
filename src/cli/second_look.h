/* second_look.h - after something was taught: is it so now?
 *
 * The learner is asked what it would speak, and nothing is generated: for the question itself, for
 * two other wordings of it, and for a neighbour, the question about something else, which must not
 * have changed (text/frames.h). What was to be judged on the session is gone afterwards. */
#ifndef RVI_CLI_SECOND_LOOK_H
#define RVI_CLI_SECOND_LOOK_H

#include "cli/cli.h"
#include "ruvllm_learn.h"

/* One line about a lesson that was just taught. scope: exact or topic. exactly: how to teach it for
 * this very question alone. */
rv_status cli_second_look_taught(rv_learner *l, rv_session *s, const char *question,
                                 const char *answer, rv_scope scope, const char *exactly,
                                 rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
/* One line about the lesson of a plan that was spoken for a request, and turned down there. */
rv_status cli_second_look_refused(rv_learner *l, rv_session *s, const char *request,
                                  const rv_learn_plan *spoken, rvi_buf *out,
                                  rv_error *err) RVI_MUST_CHECK;

#endif
