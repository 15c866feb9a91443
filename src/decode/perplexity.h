/* perplexity.h - how well a model predicts a text: windows without overlap, the second half of each
 * scored. */
#ifndef RVI_DECODE_PERPLEXITY_H
#define RVI_DECODE_PERPLEXITY_H

#include "model/model.h"
#include "ruvllm_experimental.h"

/* Called after each window; anything but 0 cancels. */
typedef int (*rvi_perplexity_fn)(void *ctx, int done, int total, double running);

/* bos: put in place of each window's first token, -1: leave it. */
rv_status rvi_perplexity_run(rv_perplexity *out, const rvi_model *m, const int32_t *ids,
                             size_t n_ids, int n_context, rv_kv_type kv_type, int32_t bos,
                             rvi_perplexity_fn progress, void *ctx, rv_error *err) RVI_MUST_CHECK;

#endif
