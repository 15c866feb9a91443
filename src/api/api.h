/* api.h - the public objects, as the files of this room see them: argument checks and lifetimes,
 * nothing clever. */
#ifndef RVI_API_API_H
#define RVI_API_API_H

#include "base/log.h"
#include "decode/session.h"
#include "model/model.h"
#include "ruvllm.h"
#include "template/chat.h"
#include "tokenizer/tokenizer.h"

struct rv_runtime {
    rvi_backend *be;
    rvi_log log;
    rv_runtime_options o;
};

struct rv_model {
    rv_runtime *rt;
    rvi_model *model;         /* NULL: opened for its vocabulary */
    rvi_source *vocab_source; /* the GGUF file of a vocabulary-only model, or NULL */
    rvi_tokenizer *tokenizer; /* NULL: none */
    rvi_chat *chat;           /* NULL: no tokenizer */
    rvi_ids eos;
    char *name;
};

struct rv_adapter {
    rvi_adapter *a;
    const rv_model *m;
};

/* Copies of a public adapter list as the set that rows point to. n may be 0: then *out is empty.
 * Checks that each belongs to m. */
typedef struct rvi_api_set {
    rvi_adapter_use *uses;
    rvi_adapter_set set;
} rvi_api_set;
rv_status rvi_api_set_init(rvi_api_set *out, const rv_model *m, const rv_adapter_use *uses,
                           size_t n, rv_error *err) RVI_MUST_CHECK;
void rvi_api_set_deinit(rvi_api_set *s);

/* Moves a buffer's text to the caller (an empty one becomes ""). */
rv_status rvi_api_give_text(rvi_buf *b, char **text, size_t *len, rv_error *err) RVI_MUST_CHECK;

#endif
