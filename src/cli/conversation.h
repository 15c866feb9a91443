/* conversation.h - a list of chat messages: built by turns, saved to and loaded from JSON, rendered
 * by the model's template.
 *
 * A message is kept as the JSON object it is, so that what a file holds (lists of parts, tool
 * calls, members this program knows nothing of) is rendered and saved again unchanged; so are the
 * members beside "messages". At most one system message, the first, is this program's to change. */
#ifndef RVI_CLI_CONVERSATION_H
#define RVI_CLI_CONVERSATION_H

#include "cli/cli.h"

typedef struct cli_message {
    char *json;
    size_t len;
    bool is_system, is_user;
} cli_message;

typedef struct cli_conversation {
    cli_message *messages;
    size_t n, cap;
    char *others; /* `"name":value,` for each member beside "messages", or NULL */
    size_t others_len;
} cli_conversation;

void cli_conversation_deinit(cli_conversation *c); /* leaves an empty one */

rv_status cli_conversation_add(cli_conversation *c, const char *role, const char *text, size_t len,
                               rv_error *err) RVI_MUST_CHECK;
/* Messages of a JSON list, as they are. */
rv_status cli_conversation_append(cli_conversation *c, const char *list,
                                  rv_error *err) RVI_MUST_CHECK;
void cli_conversation_cut(cli_conversation *c, size_t n); /* drops all but the first n messages */
/* Drops the oldest turns, a user's message and what follows up to the next one, behind the system
 * message. Returns how many there were to drop. */
size_t cli_conversation_drop_turns(cli_conversation *c, size_t n_turns);

/* A member beside "messages", as JSON; of two with one name the later counts. */
rv_status cli_conversation_set(cli_conversation *c, const char *name, const char *json,
                               rv_error *err) RVI_MUST_CHECK;
/* The system message; NULL removes it. */
rv_status cli_conversation_set_system(cli_conversation *c, const char *text,
                                      rv_error *err) RVI_MUST_CHECK;
/* Appends its content, as below. False if there is none. */
bool cli_conversation_system(const cli_conversation *c, rvi_buf *out);
/* Appends the content of message i, text as it is and anything else as JSON. */
void cli_conversation_text(const cli_conversation *c, size_t i, rvi_buf *out);

/* {"messages": [...], ...} or the list alone. On failure c is as it was. */
rv_status cli_conversation_load(cli_conversation *c, const char *path,
                                rv_error *err) RVI_MUST_CHECK;
rv_status cli_conversation_save(const cli_conversation *c, const char *path,
                                rv_error *err) RVI_MUST_CHECK;

/* The whole as rv_chat.variables takes it. */
rv_status cli_conversation_json(const cli_conversation *c, rvi_buf *out,
                                rv_error *err) RVI_MUST_CHECK;
/* rv_learner_begin for a conversation written by cli_conversation_json. plan may be NULL. */
rv_status cli_conversation_begin(rv_learner *l, rv_session *s, const rvi_buf *json,
                                 rv_learn_plan **plan, rv_error *err) RVI_MUST_CHECK;
/* Token ids by the model's template, with the beginning of an answer. l (may be NULL): whose
 * instructions stand before it. special: control tokens in the texts of messages are taken as such.
 * *ids: rv_free */
rv_status cli_conversation_ids(const cli_conversation *c, const rv_model *m, rv_learner *l,
                               bool special, const rv_time *now, int32_t **ids, size_t *n,
                               rv_error *err) RVI_MUST_CHECK;

#endif
