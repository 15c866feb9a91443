/* reply.h - the pieces that the answers of every dialect are made of. */
#ifndef RVI_SERVER_REPLY_H
#define RVI_SERVER_REPLY_H

#include "base/json.h"
#include "server/dialect.h"

/* As JSON: a string; a member behind others, ,"name":"text", null where there is no text. */
void rvi_put_text(rvi_buf *out, const char *text);
void rvi_put_buf(rvi_buf *out, const rvi_buf *text);
void rvi_put_member(rvi_buf *out, const char *name, const char *text);
void rvi_put_number(rvi_buf *out, const char *name, double v); /* ,"name":v */
void rvi_put_floats(rvi_buf *out, const float *v, size_t n);   /* a list */

/* "2026-01-31T12:00:00.123456Z"; seconds since 1970. */
void rvi_put_time(rvi_buf *out, double seconds);
/* An entry of the list of models up to what is ours: what clients of OpenAI and of Anthropic look
 * for. The caller closes the object. */
void rvi_put_model(rvi_buf *out, const char *name, long created);

/* The buffer as the whole response, and frees it. */
void rvi_reply_json(const rvi_dialect *d, rvi_conn *c, rvi_buf *json);
/* The buffer as a piece of a stream, and empties it: a server-sent event (name NULL: none), or a
 * line. */
void rvi_reply_event(rvi_conn *c, const char *name, rvi_buf *json);
void rvi_reply_line(rvi_conn *c, rvi_buf *json);

#endif
