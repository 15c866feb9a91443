/* bench_draft.h - what `bench --draft` measures. */
#ifndef RVI_CLI_BENCH_DRAFT_H
#define RVI_CLI_BENCH_DRAFT_H

#include "cli/cli.h"

typedef struct bench_guesses {
    const char *name;  /* of the model */
    const char *draft; /* "ngram" or a model */
    int n_prompt, n_gen, repeat;
    bool json;
} bench_guesses;

int cli_bench_draft(cli *c, const bench_guesses *b);

#endif
