/* anthropic.h - Anthropic's dialect: messages and the count of their tokens. */
#ifndef RVI_SERVER_ANTHROPIC_H
#define RVI_SERVER_ANTHROPIC_H

#include "server/call.h"

extern const rvi_dialect rvi_anthropic;

/* Its clients share the list of models with OpenAI's, and say who they are by a header. */
bool rvi_anthropic_asks(const rvi_conn *c);

void rvi_anthropic_messages(rvi_serving *s, rvi_conn *c);
void rvi_anthropic_count(rvi_serving *s, rvi_conn *c);

#endif
