/* embed.h - one vector a text: the model's final hidden states, pooled. */
#ifndef RVI_DECODE_EMBED_H
#define RVI_DECODE_EMBED_H

#include "model/model.h"

typedef struct rvi_embed_options {
    rv_pooling pooling;
    bool normalize; /* to length 1; a vector of zeros stays as it is */
} rvi_embed_options;

/* out: n_embd floats. ws has room for max_rows rows; scratch_seq is empty, has room for n positions
 * in a pool of this model's, and is empty again afterwards, also on failure. A decoder runs in
 * chunks of max_rows; an encoder's text must fit max_rows and the model's positions. The result
 * depends on the ids alone: neither max_rows nor other contents of the pool change it. With
 * RV_POOLING_DEFAULT, a model that declares an unsupported pooling is RV_E_MODEL. */
rv_status rvi_embed(const rvi_model *m, rvi_workspace *ws, rvi_seq *scratch_seq, int max_rows,
                    const int32_t *ids, size_t n, const rvi_embed_options *o, float *out,
                    rv_error *err) RVI_MUST_CHECK;

/* Pools the rows of a text as they are computed, in any pieces and in order; a row at position 0
 * begins anew. */
typedef struct rvi_pooler rvi_pooler;

/* Of a text of n ids; m is borrowed. */
rv_status rvi_pooler_new(rvi_pooler **out, const rvi_model *m, size_t n, const rvi_embed_options *o,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_pooler_free(rvi_pooler *p); /* accepts NULL */
/* The row of the last forward in ws that is at position pos of the text. */
void rvi_pooler_take(rvi_pooler *p, rvi_workspace *ws, int row, size_t pos);
/* out: n_embd floats; all rows were taken. */
rv_status rvi_pooler_finish(const rvi_pooler *p, float *out, rv_error *err) RVI_MUST_CHECK;
/* Would these ids be embedded by steps of max_rows? */
rv_status rvi_embed_check(const rvi_model *m, int max_rows, const int32_t *ids, size_t n,
                          const rvi_embed_options *o, rv_error *err) RVI_MUST_CHECK;

/* Cuts the ids of a text as the model's own code does when they are more than rvi_model_max_text:
 * the beginning stays, and the last n_after ids (those that the tokenizer put behind the text).
 * Returns how many are left. */
size_t rvi_embed_cut(const rvi_model *m, int32_t *ids, size_t n, size_t n_after);

#endif
