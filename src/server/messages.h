/* messages.h - a conversation for the model's template, made of the messages of any dialect. */
#ifndef RVI_SERVER_MESSAGES_H
#define RVI_SERVER_MESSAGES_H

#include "base/json.h"
#include "server/dialect.h"

typedef struct rvi_messages {
    rvi_buf *chat;     /* {"messages":[...]} */
    rvi_buf *question; /* the user's last message */
    size_t n;
    bool open;      /* the last message may get calls yet */
    bool own;       /* it is the assistant's */
    size_t n_calls; /* of its own */
} rvi_messages;

rvi_messages rvi_messages_begin(rvi_buf *chat, rvi_buf *question);
/* from: the message as it came, of which name, tool_calls, tool_call_id and reasoning_content are
 * kept, which the template may show; may be NULL.
 * Frees the text. */
void rvi_messages_add(rvi_messages *m, const char *role, rvi_buf *text, const rvi_json *from);
/* A call of a tool by the assistant, which belongs to its last message if nothing else was said
 * since. arguments: a JSON text or an object. */
void rvi_messages_call(rvi_messages *m, const char *id, const char *name,
                       const rvi_json *arguments);
/* What was thought for the last message, if anything. Frees the text. */
void rvi_messages_thought(rvi_messages *m, rvi_buf *text);
/* The result of a call. Frees the text. */
void rvi_messages_result(rvi_messages *m, const char *id, rvi_buf *text);
bool rvi_messages_end(rvi_messages *m, rvi_problem *p); /* false: no memory */

/* A string, or parts, a line each: those of which the type is among `types` (words between blanks)
 * are taken, those among `passed` are passed over, any other is a problem. field: of the request;
 * place: what the sentence names. */
typedef struct rvi_parts_rule {
    const char *field, *types, *passed;
} rvi_parts_rule;
bool rvi_messages_content(const rvi_parts_rule *rule, const char *place, const rvi_json *v,
                          rvi_buf *out, rvi_problem *p);

/* Is the word among those of the list, which stand between blanks? */
bool rvi_messages_lists(const char *list, const char *word);

#endif
