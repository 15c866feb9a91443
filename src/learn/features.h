/* features.h - what a question is about, as a vector: the mean of the residual stream over the
 * words of the user's turn, the subject's left out, after about a quarter of the layers, in the
 * frame that the chat template puts around a turn. One thread at a time. */
#ifndef RVI_LEARN_FEATURES_H
#define RVI_LEARN_FEATURES_H

#include "learn/gate.h"
#include "model/model.h"
#include "template/chat.h"

typedef struct rvi_features rvi_features;

typedef struct rvi_features_source { /* all borrowed, and must stay as long as the features */
    const rvi_model *model;
    rvi_backend *be; /* may differ from the model's; nobody else computes with it meanwhile */
    const rvi_tokenizer *tokenizer;
    const rvi_chat *chat;
} rvi_features_source;

rv_status rvi_features_new(rvi_features **out, const rvi_features_source *src,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_features_free(rvi_features *f); /* accepts NULL */
int rvi_features_dim(const rvi_features *f);
/* An rvi_gate_read; ctx is the rvi_features. Of a long text the last words count. */
rv_status rvi_features_read(void *ctx, const rvi_gate_text *texts, size_t n, float *out,
                            rv_error *err) RVI_MUST_CHECK;

#endif
