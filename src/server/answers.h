/* answers.h - the latest answers, so that feedback can name one by its id. */
#ifndef RVI_SERVER_ANSWERS_H
#define RVI_SERVER_ANSWERS_H

#include <stdbool.h>

#include "base/mem.h"
#include "server/keys.h"

enum { RVI_ANSWERS_MOST = 4096, RVI_ANSWERS_BYTES = 64 << 20 };

typedef struct rvi_said {
    char id[40];
    char tenant[RVI_KEY_NAME + 1]; /* whose it is */
    struct rvi_serving *by;        /* the model that said it */
    int choice;
    char *chat;     /* {"messages":[...]} as the template saw it */
    char *question; /* the user's last message */
    char *text;
    char *calls;  /* of tools, in OpenAI's shape; NULL: none */
    int32_t *ids; /* what was generated, without the token that ended it */
    size_t n_ids;
    float temperature; /* 0: greedy */
    char *response;    /* JSON of OpenAI's Responses, where it was to be stored; else NULL */
    bool instructed;   /* the chat's first message is not part of the conversation */
    uint64_t learned;  /* rv_learner_version when it was asked for */
    size_t bytes;      /* of its blocks */
} rvi_said;

/* A ring: the oldest go when there are too many or they are too large together. {0} is empty. */
typedef struct rvi_answers {
    rvi_said **ring;
    size_t first, n, bytes;
} rvi_answers;

void rvi_answers_deinit(rvi_answers *a);
/* Keeps a copy of what said points to; without memory for it nothing is kept. */
void rvi_answers_add(rvi_answers *a, const rvi_said *said);
/* NULL: the tenant has none of that id. */
const rvi_said *rvi_answers_find(const rvi_answers *a, const char *tenant, const char *id,
                                 int choice);
/* The response that belongs to an answer that was kept. */
void rvi_answers_set_response(rvi_answers *a, const char *id, const rvi_buf *json);
bool rvi_answers_forget(rvi_answers *a, const char *id);         /* false: there is none */
void rvi_answers_forget_all(rvi_answers *a, const char *tenant); /* of all tenants where it is "" */
rvi_said *rvi_said_copy(const rvi_said *said);                   /* NULL: no memory */
void rvi_said_free(rvi_said *said);                              /* accepts NULL */

#endif
