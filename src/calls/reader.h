/* reader.h - what a model writes, read as it comes: text, thoughts, calls with their arguments.
 *
 * Bytes go in, in pieces of any size; events come out, and put together they are the same for any
 * pieces. What looked like a call and is none is text: nothing is lost. Arguments come as JSON
 * whatever the model's own way of writing them is. */
#ifndef RVI_CALLS_READER_H
#define RVI_CALLS_READER_H

#include "calls/families.h"
#include "calls/tools.h"

typedef enum rvi_reader_event_kind {
    RVI_SAID_TEXT,
    RVI_SAID_THOUGHT,
    RVI_SAID_CALL,      /* a call begins: index, id, name */
    RVI_SAID_ARGUMENTS, /* more of its arguments */
    RVI_SAID_CALL_END
} rvi_reader_event_kind;

enum { RVI_CALL_ID_LEN = 9 };

typedef struct rvi_reader_event {
    rvi_reader_event_kind kind;
    const char *text; /* TEXT, THOUGHT, ARGUMENTS; not terminated */
    size_t len;
    size_t index;          /* of the call */
    const char *id, *name; /* of the call */
    bool complete;         /* CALL_END: its arguments are whole */
} rvi_reader_event;

/* false: it was not taken, and reading ends with RV_E_CANCELLED. */
typedef bool (*rvi_said_take)(void *ctx, const rvi_reader_event *said);

typedef struct rvi_reader_setup {
    const rvi_family *family;     /* NULL: there are no calls */
    const rvi_tools *tools;       /* must outlive the reader */
    const rvi_thinking *thinking; /* NULL: none */
    bool opened;                  /* it begins inside the thoughts */
    uint64_t seed;                /* of the ids */
    rvi_said_take take;
    void *ctx;
} rvi_reader_setup;

typedef struct rvi_reader rvi_reader;
rv_status rvi_reader_new(rvi_reader **out, const rvi_reader_setup *setup,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_reader_free(rvi_reader *r); /* accepts NULL */
rv_status rvi_reader_push(rvi_reader *r, const char *bytes, size_t len,
                          rv_error *err) RVI_MUST_CHECK;
/* The text has ended: what was held back comes out. */
rv_status rvi_reader_end(rvi_reader *r, rv_error *err) RVI_MUST_CHECK;
size_t rvi_reader_calls(const rvi_reader *r); /* that began */

/* message.c: a whole answer as the fields of a message (a JSON object: content, reasoning_content,
 * tool_calls), appended to out; the setup's take and ctx are not used. */
rv_status rvi_reader_message(const rvi_reader_setup *setup, const char *text, size_t len,
                             rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

#endif
