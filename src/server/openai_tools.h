/* openai_tools.h - tools of OpenAI's chats. */
#ifndef RVI_SERVER_OPENAI_TOOLS_H
#define RVI_SERVER_OPENAI_TOOLS_H

#include "server/call.h"

/* Reads "tools" and "tool_choice" of a chat whose messages have been read: k->tools, NULL where
 * there are none. False: k->problem says why. */
bool rvi_openai_tools(rvi_call *k);

/* Gets each piece of a choice as a delta of its stream. */
typedef void rvi_hear(rvi_call *k, int choice, const rvi_buf *delta);
/* More of a choice's text. */
void rvi_openai_hear(rvi_call *k, int choice, const char *text, size_t len, rvi_hear *hear);
/* Its end; true: it calls tools. */
bool rvi_openai_heard(rvi_call *k, int choice, rvi_hear *hear);
void rvi_openai_stop_hearing(rvi_call *k);

/* The whole message of a choice that has been heard; true: it calls tools. */
bool rvi_openai_put_message(rvi_call *k, int choice, rvi_buf *out);

#endif
