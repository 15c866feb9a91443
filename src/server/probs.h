/* probs.h - log probabilities of the tokens of a choice, as a list that OpenAI and Ollama share. */
#ifndef RVI_SERVER_PROBS_H
#define RVI_SERVER_PROBS_H

#include "server/call.h"

/* Where they were asked for: keeps those of a token. */
void rvi_probs_add(rvi_call *k, int choice, const rv_service_event *e);
/* The list of what was kept, which is kept no longer. */
void rvi_probs_take(rvi_choice *c, rvi_buf *out);

#endif
