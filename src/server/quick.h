/* quick.h - requests with a JSON body that are answered at once, without the service. */
#ifndef RVI_SERVER_QUICK_H
#define RVI_SERVER_QUICK_H

#include "base/json.h"
#include "server/dialect.h"
#include "server/serving.h"

typedef struct rvi_quick {
    const rvi_serving *s;
    const char *tenant;
    const rvi_json *body; /* an object */
    rvi_arena *arena;     /* for what is needed until the answer is out */
} rvi_quick;

/* Writes the answer, a JSON value; false: p says why not. */
typedef bool rvi_quick_fn(const rvi_quick *q, rvi_buf *out, rvi_problem *p);
void rvi_quick_answer(const rvi_serving *s, rvi_conn *c, const rvi_dialect *d, rvi_quick_fn *fn);

/* For templates that print the date: today, so that a prompt is the same all day. */
void rvi_quick_today(rv_time *out);

/* ,"date_string":...,"datetime":...,"functions":...: variables that llama-server's templates see:
 * that date, and the tools as a text. */
void rvi_quick_put_variables(rvi_buf *out, const rvi_json *tools);

/* Tokens of a chat, {"messages":[...]}. */
bool rvi_quick_count(const rvi_serving *s, const rvi_buf *chat, size_t *n, rvi_problem *p);

#endif
