/* prompt.h - conversations with tools as a model's template takes them.
 *
 * A template that knows tools sees them as they are, and the calls of earlier turns with their
 * arguments as objects (or as texts). For one that knows none, the tools are described in the
 * system turn, calls become text of the assistant's turn, and results turns of the user. */
#ifndef RVI_CALLS_PROMPT_H
#define RVI_CALLS_PROMPT_H

#include "base/json.h"
#include "calls/families.h"

typedef enum rvi_prompt_way {
    RVI_PROMPT_OBJECTS,    /* the template's own, arguments as objects, */
    RVI_PROMPT_SAID,       /* the same, and a turn that says nothing has an empty content; */
    RVI_PROMPT_TEXTS,      /* arguments as texts, */
    RVI_PROMPT_TEXTS_SAID, /* and an empty content */
    RVI_PROMPT_IN_SYSTEM,  /* described in the system turn */
    RVI_PROMPT_IN_USER,    /* described before the first user's turn */
    RVI_PROMPT_IN_MESSAGE  /* as a member of the system turn; calls are text, in the family's way */
} rvi_prompt_way;

/* Whether there is anything to do: tools, calls or results. */
bool rvi_prompt_has_tools(const rvi_json *conversation);
/* *out is in the arena, and points into the conversation. family: how calls are written where they
 * become text; its body is an object. */
rv_status rvi_prompt_adapt(const rvi_json **out, const rvi_json *conversation, rvi_prompt_way way,
                           const rvi_family *family, rvi_arena *arena,
                           rv_error *err) RVI_MUST_CHECK;

#endif
