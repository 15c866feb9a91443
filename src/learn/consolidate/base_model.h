/* base_model.h - the frozen model as learning uses it: questions in, answers out, many at a time.
 *
 * Everything is borrowed and only read. One thread at a time computes. */
#ifndef RVI_LEARN_CONSOLIDATE_BASE_MODEL_H
#define RVI_LEARN_CONSOLIDATE_BASE_MODEL_H

#include "base/utf8.h"
#include "decode/answer.h"
#include "model/trainer.h"
#include "template/chat.h"

typedef struct rvi_base_model {
    const rvi_model *m;
    const rvi_tokenizer *t;
    const rvi_chat *chat;
    const rvi_ids *eos;
    rvi_backend *be; /* the model's own, or one like it */
    rvi_ids frame;   /* what the prompt of every question begins with */
    int32_t end;     /* the token that ends an answer */
    int32_t start;   /* the token before a free text */
} rvi_base_model;

rv_status rvi_base_model_init(rvi_base_model *v, const rvi_model *m, const rvi_tokenizer *t,
                              const rvi_chat *chat, const rvi_ids *eos, rvi_backend *be,
                              rv_error *err) RVI_MUST_CHECK;
void rvi_base_model_deinit(rvi_base_model *v);

/* Appends the ids of a conversation with one question, ready for its answer. */
rv_status rvi_base_model_prompt(const rvi_base_model *v, const char *question, size_t len,
                                rvi_ids *out, rv_error *err) RVI_MUST_CHECK;
/* The same for a chat: turns of the user and the model by turns, the last a user's. */
enum { RVI_BASE_TURNS = 5 };
rv_status rvi_base_model_chat(const rvi_base_model *v, const rvi_text *turns, size_t n,
                              rvi_ids *out, rv_error *err) RVI_MUST_CHECK;
/* Appends the ids of plain text. */
rv_status rvi_base_model_encode(const rvi_base_model *v, const char *text, size_t len, rvi_ids *out,
                                rv_error *err) RVI_MUST_CHECK;
/* Appends the text of ids up to an end token. */
rv_status rvi_base_model_decode(const rvi_base_model *v, const int32_t *ids, size_t n, rvi_buf *out,
                                rv_error *err) RVI_MUST_CHECK;

/* A prompt and, afterwards, the answer to it. */
typedef struct rvi_request {
    rvi_ids prompt;
    const rvi_adapter_set *adapters; /* NULL: none */
    rvi_ids answer;                  /* out; an end token is its last id */
} rvi_request;

void rvi_requests_free(rvi_request *list, size_t n); /* with prompts and answers; accepts NULL */

/* Answers all of them, many at a time. sampling NULL: greedy; otherwise request i draws with seed
 * sampling->seed + i. progress (may be NULL): anything but 0 cancels. */
typedef int (*rvi_progress_fn)(void *ctx, size_t done, size_t total);
rv_status rvi_base_model_answer(const rvi_base_model *v, rvi_request *requests, size_t n,
                                const rv_sampling *sampling, int max_tokens,
                                rvi_progress_fn progress, void *ctx, rv_error *err) RVI_MUST_CHECK;

#endif
