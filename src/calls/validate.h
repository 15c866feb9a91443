/* validate.h - texts that were held to nothing, checked when they are there. Byte by byte, by the
 * grammars that others are held to. */
#ifndef RVI_CALLS_VALIDATE_H
#define RVI_CALLS_VALIDATE_H

#include "calls/notation.h"
#include "calls/reader.h"

/* Whether JSON satisfies a schema. problem stays empty if it does; otherwise it is a message that a
 * model can be told. Errors: the schema is wrong, or asks for what cannot be checked. */
rv_status rvi_validate_json(const char *schema, size_t schema_len, const char *json, size_t len,
                            rvi_buf *problem, rv_error *err) RVI_MUST_CHECK;

/* The same as it comes. problem gets its message as soon as nothing that follows can make the JSON
 * right, and once; what the message quotes is what came so far. */
typedef struct rvi_validator rvi_validator;
rv_status rvi_validator_new(rvi_validator **out, const char *schema, size_t len,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_validator_free(rvi_validator *v); /* accepts NULL */
rv_status rvi_validator_push(rvi_validator *v, const char *json, size_t len, rvi_buf *problem,
                             rv_error *err) RVI_MUST_CHECK;
rv_status rvi_validator_end(rvi_validator *v, rvi_buf *problem, rv_error *err) RVI_MUST_CHECK;

/* The form of an answer; form_text must outlive it, GBNF is that of llama.cpp. */
typedef struct rvi_checked_form {
    rvi_form_kind kind;
    const char *text;
    size_t len;
} rvi_checked_form;

/* Whether a text has the form. JSON is mended first; out gets what is meant, without blanks around
 * it. out is empty where nothing of the form is in the text at all. */
rv_status rvi_validate_form(const rvi_checked_form *form, const char *text, size_t len,
                            rvi_buf *out, rvi_buf *problem, rv_error *err) RVI_MUST_CHECK;
/* Whether it can be checked at all. */
rv_status rvi_validate_ready(const rvi_checked_form *form, rv_error *err) RVI_MUST_CHECK;

/* ---- answers: message.c ---- */

/* What an answer that was held to nothing must be. */
typedef struct rvi_check {
    rvi_reader_setup reader; /* take and ctx are not used */
    rvi_tool_choice choice;
    bool one_call;
    rvi_checked_form form; /* of an answer that is no call */
} rvi_check;

typedef struct rvi_checked {
    rvi_buf message; /* the fields of the assistant's message, its JSON mended */
    rvi_buf problem; /* empty: it is what it must be */
    rvi_buf turns;   /* with a problem: a JSON list of the turns that tell the model about it */
} rvi_checked;

rv_status rvi_check_answer(const rvi_check *c, const char *text, size_t len, rvi_checked *out,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_checked_deinit(rvi_checked *c);
/* Whether the form and the schemas of all tools can be checked; errors name the tool. */
rv_status rvi_check_ready(const rvi_check *c, rv_error *err) RVI_MUST_CHECK;

#endif
