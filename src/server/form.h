/* form.h - what the text of an answer must be: from the options that ask for it to a grammar. */
#ifndef RVI_SERVER_FORM_H
#define RVI_SERVER_FORM_H

#include "base/json.h"
#include "ruvllm_grammar.h"
#include "server/dialect.h"

typedef struct rvi_answer_form {
    const char *field; /* the option that asks for it; NULL: the text may be anything */
    rv_grammar_kind kind;
    const rvi_json *source; /* NULL: the kind needs none */
} rvi_answer_form;

/* Reads response_format, json_schema, grammar, vLLM's guided_*, or what other dialects have for
 * them. A request may have one that asks for something. */
bool rvi_form_read(rvi_answer_form *f, const char *field, const rvi_json *v, rvi_problem *p);

/* *out NULL: the text may be anything. What cannot be enforced is a problem that says so. */
bool rvi_form_grammar(const rvi_answer_form *f, const rv_model *m, rv_grammar **out,
                      rvi_problem *p);

#endif
