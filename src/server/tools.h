/* tools.h - what a model may call and how long it may think: from a dialect's options to what holds
 * its answers. */
#ifndef RVI_SERVER_TOOLS_H
#define RVI_SERVER_TOOLS_H

#include "server/call.h"

typedef struct rvi_tools_wish {
    rvi_buf list, choice; /* in OpenAI's shapes; empty: none */
    bool one_call;
    int think; /* as in rv_tools_options */
    bool bare; /* the answer was begun: without tools it stays as it is */
} rvi_tools_wish;

/* Makes k->tools, where there are tools or the model thinks, and adds them to k->chat, whose
 * messages have been read. Frees the wish. False: k->problem says why. */
bool rvi_tools_open(rvi_call *k, rvi_tools_wish *w);
/* The same with OpenAI's "tools", "tool_choice" and "parallel_tool_calls"; w->think is kept. */
bool rvi_tools_open_openai(rvi_call *k, rvi_tools_wish *w);

/* A function of the list, in OpenAI's shape. */
void rvi_tools_add(rvi_tools_wish *w, const rvi_json *name, const rvi_json *about,
                   const rvi_json *parameters);
/* The list for the template, behind the messages of a chat. */
void rvi_tools_tell(const rvi_tools_wish *w, rvi_buf *chat);
void rvi_tools_drop(rvi_tools_wish *w);

/* "none", "low", ... of the option `field`, as a number of tokens; of a model that does not think,
 * anything but "none" is a problem. */
bool rvi_tools_effort(rvi_call *k, const char *field, const rvi_json *v, int *think);
/* A model that does not think was asked to. */
bool rvi_tools_no_thoughts(rvi_call *k, const char *field);

#endif
