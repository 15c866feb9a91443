/* openai.h - OpenAI's dialect: its errors, usage, and the handlers of its paths. */
#ifndef RVI_SERVER_OPENAI_H
#define RVI_SERVER_OPENAI_H

#include "server/call.h"
#include "server/reply.h"

extern const rvi_dialect rvi_openai;

void rvi_openai_chat(rvi_serving *s, rvi_conn *c);
void rvi_openai_chat_tokens(rvi_serving *s, rvi_conn *c); /* counts those of a chat */
void rvi_openai_completions(rvi_serving *s, rvi_conn *c);
void rvi_openai_embeddings(rvi_serving *s, rvi_conn *c);
void rvi_openai_models(rvi_serving *s, rvi_conn *c);
void rvi_openai_model(rvi_serving *s, rvi_conn *c); /* one, its name behind the last slash */

void rvi_openai_respond(rvi_serving *s, rvi_conn *c);
/* Of a response that was stored: it, or its input_items. */
void rvi_openai_response_get(rvi_serving *s, rvi_conn *c);
void rvi_openai_response_delete(rvi_serving *s, rvi_conn *c);
void rvi_openai_response_cancel(rvi_serving *s, rvi_conn *c);
void rvi_openai_response_tokens(rvi_serving *s, rvi_conn *c);

/* Reads the conversation of a Responses request: instructions, what came before, input.
 * *instructed: the instructions are its first message. */
bool rvi_openai_input(const rvi_serving *s, const char *tenant, const rvi_json *body,
                      rvi_arena *arena, rvi_buf *chat, rvi_buf *question, bool *instructed,
                      rvi_problem *p);

/* Its "tools", "tool_choice" and "parallel_tool_calls". */
struct rvi_tools_wish;
bool rvi_openai_response_tools(const rvi_json *body, struct rvi_tools_wish *w, rvi_problem *p);

/* Reads "messages" into a chat for the template, {"messages":[...]}, and the user's last one. */
bool rvi_openai_messages(const rvi_json *body, rvi_buf *chat, rvi_buf *question, rvi_problem *p);

/* The beginning of a response, from the id to the version of what was learned; the caller closes
 * the object. */
void rvi_openai_open(const rvi_call *k, const char *object, rvi_buf *out);
void rvi_openai_usage(const rvi_call *k, rvi_buf *out); /* the object */
const char *rvi_openai_finish(rv_finish f);
/* The usage chunk if it was asked for, then [DONE]. */
void rvi_openai_end_stream(rvi_call *k, const char *object);

#endif
