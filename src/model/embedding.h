/* embedding.h - what a model's files say about turning its hidden states into one vector a text.
 *
 * A directory in the layout of Sentence Transformers lists its steps in modules.json; a pooling
 * step has a folder with a config.json, and sentence_bert_config.json gives the length at which
 * texts are cut. A GGUF file has the key pooling_type. */
#ifndef RVI_MODEL_EMBEDDING_H
#define RVI_MODEL_EMBEDDING_H

#include "base/mem.h"
#include "formats/gguf.h"

typedef struct rvi_embedding {
    rv_pooling pooling;  /* RV_POOLING_DEFAULT: nothing is said */
    int max_tokens;      /* the model's own code cuts longer texts to this length; 0: not said */
    const char *refused; /* why the declared pooling is not supported, in the arena; NULL: it is */
} rvi_embedding;

/* Missing files are ignored; one that cannot be read or parsed is an error. */
rv_status rvi_embedding_read_dir(rvi_embedding *out, const char *dir, rvi_arena *arena,
                                 rv_error *err) RVI_MUST_CHECK;
void rvi_embedding_read_gguf(rvi_embedding *out, const rvi_gguf *g);

#endif
