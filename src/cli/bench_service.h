/* bench_service.h - what `bench --service` measures. */
#ifndef RVI_CLI_BENCH_SERVICE_H
#define RVI_CLI_BENCH_SERVICE_H

#include "cli/cli.h"

typedef struct bench_load {
    const char *name; /* of the model */
    int n_prompt, n_gen, clients, repeat;
    float rate;     /* requests a second, in the open loop; 0: none */
    int long_one;   /* tokens of a prompt that comes while clients listen; 0: none */
    int shared;     /* tokens of a beginning that two requests have in common; 0: none */
    float token_ms; /* 0: the service's default */
    bool json;
} bench_load;

int cli_bench_service(cli *c, const bench_load *load);

#endif
