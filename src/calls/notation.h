/* notation.h - what an answer with calls and thoughts may be, written as a grammar (grammar/gbnf.c
 * reads it): free text until a call begins, then the call with its arguments by their schema. */
#ifndef RVI_CALLS_NOTATION_H
#define RVI_CALLS_NOTATION_H

#include "calls/families.h"
#include "calls/tools.h"

typedef enum rvi_form_kind {
    RVI_FORM_TEXT, /* anything */
    RVI_FORM_SCHEMA,
    RVI_FORM_JSON, /* any object */
    RVI_FORM_REGEX,
    RVI_FORM_GBNF,
    RVI_FORM_CHOICES /* a JSON list of strings */
} rvi_form_kind;

typedef struct rvi_notation {
    const rvi_tools *tools;   /* NULL: none */
    const rvi_family *family; /* how they are called */
    rvi_tool_choice choice;
    bool one_call;                /* at most */
    const rvi_thinking *thinking; /* NULL: none is known */
    bool opened;                  /* the prompt ends inside the thoughts */
    bool no_thoughts;             /* they are closed at once, or do not begin */
    rvi_form_kind form;           /* of an answer that is no call */
    const char *form_text;
    size_t form_len;
} rvi_notation;

/* Appends. Errors name the tool and the place in its schema. */
rv_status rvi_notation_write(rvi_buf *out, const rvi_notation *n, rv_error *err) RVI_MUST_CHECK;

#endif
