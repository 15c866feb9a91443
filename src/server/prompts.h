/* prompts.h - one or many texts or lists of token ids, as "prompt" and "input" have them. */
#ifndef RVI_SERVER_PROMPTS_H
#define RVI_SERVER_PROMPTS_H

#include "base/json.h"
#include "ruvllm.h"
#include "server/dialect.h"

enum { RVI_PROMPTS_MOST = 2048 };

typedef struct rvi_prompt {
    const int32_t *ids;
    size_t n;
    const char *text; /* NULL: ids were given */
    size_t text_len;
} rvi_prompt;

/* A string, a list of strings, a list of ids, or a list of lists of ids. flags: of rv_tokenize.
 * Everything is in the arena. False: p names the field. */
bool rvi_prompts_read(const rv_model *m, const rvi_json *v, const char *field, unsigned flags,
                      rvi_arena *arena, rvi_prompt **out, int *n, rvi_problem *p);

/* Is it a list of prompts, not a prompt? */
bool rvi_prompts_many(const rvi_json *v);

#endif
