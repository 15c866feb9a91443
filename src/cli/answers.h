/* answers.h - the file in which a server keeps its latest answers, so that feedback on one and
 * requests that continue it may come after a restart; or their place in the database of --store. */
#ifndef RVI_CLI_ANSWERS_H
#define RVI_CLI_ANSWERS_H

#include "cli/cli.h"
#include "ruvllm_store.h"

/* Two stores, for two threads. Closed in any case, the second first. */
rv_status cli_answers_open(const cli *c, rv_store out[2], rv_error *err) RVI_MUST_CHECK;
/* Removes them all: where lessons are forgotten, the conversations that they came from are. */
rv_status cli_answers_forget(const cli *c, rv_error *err) RVI_MUST_CHECK;

#endif
