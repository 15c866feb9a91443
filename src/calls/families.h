/* families.h - how models write the calls of tools and their thoughts, as one table.
 *
 * A family is found by what its chat template says, never by a model's name. A call is written
 *   OBJECT   open {"name": "f", "arguments": {...}} close
 *   NAMED    open f middle {...} close
 *   TAGS     open f middle (key_open key key_close value value_close)* close
 *   PYTHON   open f middle key=value, key=value close
 * and all calls of an answer stand between section_open and section_close, with `between` between
 * two. */
#ifndef RVI_CALLS_FAMILIES_H
#define RVI_CALLS_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum rvi_call_body {
    RVI_CALL_OBJECT,
    RVI_CALL_NAMED,
    RVI_CALL_TAGS,
    RVI_CALL_PYTHON
} rvi_call_body;

/* In `middle`: nine letters or digits that name the call, and a number. */
#define RVI_CALL_ID     "\001"
#define RVI_CALL_NUMBER "\002"

typedef struct rvi_family {
    const char *name;
    const char *marks[3]; /* a template with all of these is of the family */
    rvi_call_body body;
    const char *section_open, *open, *middle, *close, *between, *section_close;
    const char *arguments;                        /* OBJECT: the member that holds them */
    const char *key_open, *key_close, *value_end; /* TAGS */
    bool with_id;                                 /* OBJECT: a member "id" comes last */
    bool single;                                  /* its template takes one call an answer, */
    bool texts;                                   /* earlier calls with their arguments as texts, */
    bool in_message; /* or no calls at all, and the tools as a text of the system turn */
} rvi_family;

/* NULL: the template knows no tools, or none of these ways. */
const rvi_family *rvi_family_find(const char *template_text, size_t len);
/* The way to ask models for that have none of their own. */
const rvi_family *rvi_family_plain(void);
size_t rvi_family_count(void);
const rvi_family *rvi_family_at(size_t i);

/* The first characters of a call, up to the first > ] = or {: where they stand, a call begins. */
size_t rvi_family_trigger(const rvi_family *f, char *out, size_t size);

/* What thoughts are written between. */
typedef struct rvi_thinking {
    const char *open, *close;
} rvi_thinking;
/* NULL: the template knows no thinking. */
const rvi_thinking *rvi_thinking_find(const char *template_text, size_t len);

/* Texts that may be control tokens of a vocabulary and count as text in answers with calls or
 * thoughts; NULL behind the last one. */
const char *rvi_calls_marker(size_t i);

#endif
