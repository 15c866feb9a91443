/* llama.h - what `--llama-compatible` turns on: llama-server's own paths, names and habits, for
 * clients that were written for it alone. */
#ifndef RVI_SERVER_LLAMA_H
#define RVI_SERVER_LLAMA_H

#include "base/error.h"
#include "base/mem.h"
#include "ruvllm.h"

typedef enum rvi_llama_pooling {
    RVI_LLAMA_POOLING_MODEL,
    RVI_LLAMA_POOLING_NONE,
    RVI_LLAMA_POOLING_MEAN,
    RVI_LLAMA_POOLING_LAST,
    RVI_LLAMA_POOLING_CLS
} rvi_llama_pooling;

/* Flags of llama-server. */
typedef struct rvi_llama {
    bool on;
    bool slots, metrics, verbose, no_ui, no_thoughts;
    rvi_llama_pooling pooling;
    /* of requests that do not say */
    bool has_seed, has_temperature;
    uint64_t seed;
    float temperature;
    int n_predict; /* 0: to the end of the context */
    int batch;     /* rows of a step; 0: what is usual */
    char tags[256];
    /* ---- what was served ---- */
    uint64_t n_prompt, n_cached, n_predicted, most;
    double prompt_seconds, predicted_seconds;
} rvi_llama;

/* Reads "name=value name ..." with llama-server's names of flags: seed, temp, n-predict,
 * batch-size, pooling, tags, reasoning, slots, metrics, no-ui, verbose. */
rv_status rvi_llama_read(rvi_llama *l, const char *text, rv_error *err) RVI_MUST_CHECK;

#endif
