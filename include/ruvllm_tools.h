/* ruvllm_tools.h - tools that a model may call, its thoughts, and JSON that was not held to a
 * schema.
 *
 *   rv_tools *t;
 *   rv_tools_options to = {.size = sizeof to, .tools = "[{\"type\":\"function\", ...}]"};
 *   if (!rv_tools_new(&t, m, &to, &err)) {
 *       rv_chat chat = {.size = sizeof chat, .messages = ..., .tools = to.tools,
 *                       .variables = rv_tools_variables(t)};
 *       rv_generate_options o = {.size = sizeof o, .grammar = rv_tools_grammar(t)};
 *       rv_session_chat(s, &chat, &o, &a, &err);
 *       rv_tools_message(t, a->text, a->text_len, &message, &err);
 *   }
 *
 * The model sees the tools as its own chat template shows them; where that knows none, they are
 * described in the system turn. It writes text as it likes; from the moment a call begins, its
 * arguments are held to their schema. The message that comes out goes back into the conversation
 * with the results: {"role": "assistant", more: message}, then one {"role": "tool", content:
 * result, more: {"tool_call_id": ...}} for each call. */
#ifndef RUVLLM_TOOLS_H
#define RUVLLM_TOOLS_H

#include "ruvllm_grammar.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_tools rv_tools;

enum { RV_THINK_OFF = -1 };

typedef struct rv_tools_options {
    size_t size;
    const char *tools;  /* NULL: none; a JSON list of {"type": "function", "function": {"name",
                           "description", "parameters"}}, at most 256 */
    const char *choice; /* NULL or "auto", "none", "required", a tool's name, or OpenAI's object */
    int one_call;       /* not several in one answer */
    int think;          /* 0: as the model likes; N: at most so many tokens, then thinking is ended;
                  RV_THINK_OFF: none */
    /* What an answer that is no call must be; form_text NULL: any text. Thoughts come before it and
     * are not held to it. */
    rv_grammar_kind form;
    const char *form_text;
    size_t form_len;
    uint64_t seed; /* of the ids of calls */
    /* Answers are held to nothing: rv_tools_check says what is wrong with one. For models that
     * write better without a grammar. */
    int unheld;
} rv_tools_options;

/* Errors: as rv_grammar_new, with the tool whose parameters are meant. RV_E_UNSUPPORTED also: think
 * is a number, and the model's template knows no thinking. */
RV_API rv_status rv_tools_new(rv_tools **out, const rv_model *m, const rv_tools_options *o,
                              rv_error *err);
RV_API void rv_tools_free(rv_tools **t);
/* For rv_generate_options.grammar; borrowed: an answer keeps it as long as it needs it. Tokens that
 * mark calls and thoughts are part of its answers' text, also where they are control tokens. */
RV_API rv_grammar *rv_tools_grammar(rv_tools *t);
/* For rv_chat.variables: NULL, or what tells the template whether to think. Borrowed. */
RV_API const char *rv_tools_variables(const rv_tools *t);
/* How the model writes calls: "hermes", "llama", "mistral", ... */
RV_API const char *rv_tools_family(const rv_tools *t);

/* ---- reading an answer ---- */

typedef enum rv_said_kind {
    RV_SAID_TEXT,
    RV_SAID_THOUGHT,
    RV_SAID_CALL,      /* a call begins */
    RV_SAID_ARGUMENTS, /* more of its arguments: together they are a JSON object */
    RV_SAID_CALL_END
} rv_said_kind;

typedef struct rv_said {
    rv_said_kind kind;
    const char *text; /* TEXT, THOUGHT, ARGUMENTS; not terminated, valid during the call */
    size_t text_len;
    size_t index;          /* of the call, from 0 on */
    const char *id, *name; /* of the call */
    int complete;          /* CALL_END: 0 if the answer ended before its arguments did */
} rv_said;

/* Reads a text that comes in pieces, of any size; what is said is the same for any pieces. said:
 * return anything but 0 to end reading (RV_E_CANCELLED). One thread at a time. */
typedef struct rv_tools_reader rv_tools_reader;
RV_API rv_status rv_tools_reader_new(rv_tools_reader **out, rv_tools *t,
                                     int (*said)(void *ctx, const rv_said *said), void *ctx,
                                     rv_error *err);
RV_API void rv_tools_reader_free(rv_tools_reader **r);
RV_API rv_status rv_tools_read(rv_tools_reader *r, const char *text, size_t len, rv_error *err);
RV_API rv_status rv_tools_read_end(rv_tools_reader *r, rv_error *err);
/* A whole answer as the fields of an assistant's message, a JSON object: "content" (null if there
 * is none), "reasoning_content" and "tool_calls" if there are any; *message: rv_free. */
RV_API rv_status rv_tools_message(rv_tools *t, const char *text, size_t len, char **message,
                                  rv_error *err);

/* ---- answers that were not held to anything ---- */

/* One block, freed by rv_free. */
typedef struct rv_checked {
    /* As rv_tools_message has it; arguments, and a form that is JSON, mended. */
    const char *message;
    const char *problem; /* what is wrong, as the model can be told; "": nothing */
    /* With a problem: the answer and what is wrong with it as a JSON list of turns to append to the
     * conversation; else "[]". */
    const char *turns;
} rv_checked;

/* Whether an answer is what its options ask for: its calls are whole, their arguments satisfy their
 * schemas, there is one if choice asks for one, and a text that is no call has the form. */
RV_API rv_status rv_tools_check(rv_tools *t, const char *text, size_t len, rv_checked **out,
                                rv_error *err);
/* rv_session_chat, again with the problem told until there is none, at most `retries` times
 * (0..100) after the first. o->grammar NULL: that of t. *a and *checked are those of the last
 * answer, *n_tries (may be NULL) how many there were. An answer that ended for another reason than
 * its own end or its length (cancelled, a stop string) is the last. */
RV_API rv_status rv_tools_chat(rv_tools *t, rv_session *s, const rv_chat *chat,
                               const rv_generate_options *o, int retries, rv_answer **a,
                               rv_checked **checked, int *n_tries, rv_error *err);

/* ---- JSON that was not held to anything ---- */

typedef struct rv_repair {
    const char *what; /* "trailing comma removed", ... */
    size_t offset;    /* in the text, bytes */
} rv_repair;

/* One block, freed by rv_free. */
typedef struct rv_repaired {
    const char *text; /* JSON; terminated */
    size_t text_len;
    const rv_repair *changes; /* at most 1000 */
    size_t n_changes;
    int valid;           /* it satisfies the schema, or there is none */
    const char *problem; /* where it does not: a message that a model can be told; else "" */
} rv_repaired;

/* Mends a model's JSON: text and fences around it, comments, commas, quotes, Python's words, an end
 * that was cut off. Then checks it; schema NULL: nothing to check. What is valid JSON stays as it
 * is, but for white space around it. RV_E_CONFIG: there is no JSON in the text, or the schema is
 * wrong; RV_E_UNSUPPORTED: the schema asks for what cannot be checked. */
RV_API rv_status rv_json_repair(const rv_runtime *rt, const char *text, size_t len,
                                const char *schema, size_t schema_len, rv_repaired **out,
                                rv_error *err);

/* The same while the text comes: pieces of any size go in, what became certain of the JSON comes
 * out, and put together that is the same for any pieces. */
typedef struct rv_json_stream rv_json_stream;

typedef struct rv_json_piece {
    const char *text; /* more of the JSON; terminated. All of this is the stream's, until the next
                         call with it */
    size_t text_len;
    const rv_repair *changes; /* since the call before, at most 1000 */
    size_t n_changes;
    const char *problem; /* "" as long as what follows may make it satisfy the schema; from then on
                            a message that a model can be told */
} rv_json_piece;

/* schema NULL: nothing to check; it is copied. rt must outlive the stream. Errors: as
 * rv_json_repair. */
RV_API rv_status rv_json_stream_new(rv_json_stream **out, const rv_runtime *rt, const char *schema,
                                    size_t schema_len, rv_error *err);
RV_API void rv_json_stream_free(rv_json_stream **s);
RV_API rv_status rv_json_stream_push(rv_json_stream *s, const char *text, size_t len,
                                     rv_json_piece *out, rv_error *err);
/* The text has ended: what was open is closed. */
RV_API rv_status rv_json_stream_end(rv_json_stream *s, rv_json_piece *out, rv_error *err);

#ifdef __cplusplus
}
#endif

#endif
