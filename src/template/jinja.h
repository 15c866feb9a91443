/* jinja.h - a small interpreter of Jinja2, the language of chat templates.
 *
 * It behaves as jinja2 3.1 does when chat templates are rendered with it: trim_blocks and
 * lstrip_blocks on, loop controls, {% generation %}, the immutable sandbox, tojson without HTML
 * escapes, raise_exception and strftime_now. Values print as Python prints them. Templates are not
 * trusted: a render is bounded in steps, depth, output and memory, and cannot reach anything
 * outside the variables that it is given.
 *
 * Not supported: integers beyond 64 bits (an error), template inheritance and imports, and features
 * that no chat template uses. The 85 published templates that were examined use
 *   statements  if, for (with if), set, set blocks, macro, filter, generation, break
 *   filters     tojson length trim string default join selectattr list items safe map lower
 *               dictsort upper replace rejectattr unique sort reject min int indent
 *   tests       defined string none mapping iterable sequence false boolean true undefined number
 *               equalto
 *   functions   namespace raise_exception strftime_now range
 *   methods     split items strip lstrip get rstrip endswith startswith replace format
 *   loop        index0 last first previtem nextitem index
 * (tools/template_features.py counts). Supported too is what Hugging Face documents for chat
 * templates and what the one-liners of the conformance run hold to jinja2. Anything else is an
 * error that names it: with, autoescape and print; the filters truncate, wordcount, center,
 * urlencode, attr, format and those that make HTML pages or random choices; the tests callable,
 * escaped, filter and test; cycler; loop.changed; methods of lists, copy of dicts, most is...() and
 * padding methods of strings. from_json, which three templates apply to arguments that are text,
 * is no part of Jinja: an error once it is reached.
 *
 * A template is immutable after rvi_template_new: many threads may render it at once. */
#ifndef RVI_TEMPLATE_JINJA_H
#define RVI_TEMPLATE_JINJA_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/spans.h"

typedef struct rvi_template rvi_template;

/* Reads a template once; text is copied. A syntax error is RV_E_TOKENIZATION and names the line. */
rv_status rvi_template_new(rvi_template **out, const char *text, size_t len,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_template_free(rvi_template *t); /* accepts NULL */

/* 0 in a field: the default, given in brackets. */
typedef struct rvi_template_limits {
    uint64_t
        max_steps; /* expressions evaluated, and a share for every 64 bytes handled [5 million] */
    uint32_t max_depth; /* macros and recursive loops inside each other [200, at most 1000] */
    size_t max_output;  /* bytes [16 MiB] */
    size_t max_memory;  /* bytes of values made while rendering [256 MiB] */
} rvi_template_limits;

/* What strftime_now sees. Local time as the caller wants it; month and day count from 1. */
typedef struct rvi_template_now {
    int year, month, day, hour, minute, second;
} rvi_template_now;

/* vars: a JSON object; every member becomes a variable (a repeated key: the last one). NULL: no
 * variables. now NULL: strftime_now is an error. limits NULL: the defaults. Text is appended to
 * out, only on success. Any error of the template is RV_E_TOKENIZATION; one that it raises itself
 * (raise_exception) has its message verbatim in err. */
rv_status rvi_template_render(const rvi_template *t, const rvi_json *vars,
                              const rvi_template_now *now, const rvi_template_limits *limits,
                              rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* The same, and the bytes of out that come from vars are added to user: whatever the template did
 * with them on the way (cut, joined, replaced, written as JSON), where an operation cannot be
 * traced its whole result. Names of well-known roles ("user", "tool", ...) count as the template's,
 * because templates make control tokens of them. own (may be NULL): variables of the model, such
 * as bos_token, which are no text of users; a member of vars with the same name wins. After a
 * failure user may have grown. */
rv_status rvi_template_render_marked(const rvi_template *t, const rvi_json *own,
                                     const rvi_json *vars, const rvi_template_now *now,
                                     const rvi_template_limits *limits, rvi_buf *out,
                                     rvi_text_spans *user, rv_error *err) RVI_MUST_CHECK;

#endif
