/* witness_replay.h - `ruvllm witness replay`. */
#ifndef RVI_CLI_WITNESS_REPLAY_H
#define RVI_CLI_WITNESS_REPLAY_H

#include "cli/cli.h"

typedef struct cli_replay_options {
    const char *folder, *model;
    const char *name;   /* of the learned state; NULL: the default */
    const char *tenant; /* whose it is; NULL: for all */
} cli_replay_options;

int cli_witness_replay(cli *c, const cli_replay_options *o);

#endif
