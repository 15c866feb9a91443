/* tools.h - the tools that a model may call: OpenAI's list, checked, and what is to be called. */
#ifndef RVI_CALLS_TOOLS_H
#define RVI_CALLS_TOOLS_H

#include "base/json.h"

enum { RVI_MAX_TOOLS = 256, RVI_MAX_TOOL_NAME = 64, RVI_MAX_TOOLS_BYTES = 4 << 20 };

typedef struct rvi_tool {
    const char *name;
    const rvi_json *parameters; /* NULL: none are declared */
    char *schema; /* of its arguments, as text: an object with the declared members only */
} rvi_tool;

typedef enum rvi_choice_kind {
    RVI_CHOICE_AUTO,
    RVI_CHOICE_NONE,
    RVI_CHOICE_REQUIRED,
    RVI_CHOICE_NAMED
} rvi_choice_kind;

typedef struct rvi_tool_choice {
    rvi_choice_kind kind;
    size_t tool; /* NAMED */
} rvi_tool_choice;

typedef struct rvi_tools {
    const rvi_json *list;
    rvi_tool *items;
    size_t n;
    rvi_arena arena;
} rvi_tools;

/* text: a JSON list of {"type": "function", "function": {"name", "description", "parameters"}}; the
 * inner object may stand alone. */
rv_status rvi_tools_new(rvi_tools **out, const char *text, size_t len,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_tools_free(rvi_tools *t); /* accepts NULL */
const rvi_tool *rvi_tools_find(const rvi_tools *t, const char *name, size_t len);

/* "auto", "none", "required", a tool's name, or OpenAI's object that names one; NULL: auto. */
rv_status rvi_choice_read(rvi_tool_choice *out, const rvi_tools *t, const char *text,
                          rv_error *err) RVI_MUST_CHECK;

/* Whether a parameter may be a text, and whether it may be anything else, by its schema's own words
 * and those of a definition that it refers to; what they do not tell counts as both. */
void rvi_tool_kinds(const rvi_json *parameters, const rvi_json *schema, bool *text, bool *other);

#endif
