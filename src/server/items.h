/* items.h - what an answer consists of: runs of text and of thoughts, and calls of tools.
 *
 * Its text is read as it comes. Every dialect has its own shape for the items, streamed and whole;
 * what they are is found here, once. */
#ifndef RVI_SERVER_ITEMS_H
#define RVI_SERVER_ITEMS_H

#include "base/mem.h"
#include "ruvllm_tools.h"

typedef struct rvi_answer_item {
    rv_said_kind kind; /* TEXT, THOUGHT or CALL */
    int index;         /* among all */
    size_t call;       /* CALL: among the calls */
    rvi_buf text;      /* of a call: its arguments, a JSON object */
    rvi_buf id, name;  /* CALL */
    bool ended;
} rvi_answer_item;

typedef enum rvi_item_event { RVI_ITEM_BEGINS, RVI_ITEM_GOES_ON, RVI_ITEM_ENDS } rvi_item_event;

/* One step of an item, for whoever writes the answer; text: what is new of it. */
typedef void rvi_items_hear(void *ctx, const rvi_answer_item *item, rvi_item_event event,
                            const char *text, size_t len);

/* Set tools, hear and ctx before the first text; the rest is 0. */
typedef struct rvi_answer_items {
    rv_tools *tools; /* NULL: all of it is text */
    rvi_items_hear *hear;
    void *ctx;
    rv_tools_reader *reader;
    rvi_answer_item *list;
    int n, cap;
    bool failed; /* no memory */
} rvi_answer_items;

void rvi_items_read(rvi_answer_items *s, const char *text, size_t len);
/* The last item ends. An answer has one at least, which may be an empty text. */
void rvi_items_end(rvi_answer_items *s);
void rvi_items_free(rvi_answer_items *s);

bool rvi_items_call(const rvi_answer_items *s); /* is a tool called? */
/* All text, or all thoughts, together. */
void rvi_items_join(const rvi_answer_items *s, rv_said_kind kind, rvi_buf *out);
/* The arguments of a call as an object, empty where the answer was cut short in them. */
void rvi_items_put_arguments(const rvi_answer_item *item, rvi_buf *out);
/* OpenAI's list of the calls: [{"id", "type", "function"}, ...] */
void rvi_items_put_calls(const rvi_answer_items *s, rvi_buf *out);

#endif
