/* timings.h - llama-server's figures of a request: how long it took, and how far its prompt is. */
#ifndef RVI_SERVER_TIMINGS_H
#define RVI_SERVER_TIMINGS_H

#include "server/call.h"

/* ,"timings":{...} of a choice, which may not have ended yet. */
void rvi_timings_put(const rvi_call *k, int choice, rvi_buf *out);
/* Do events of a stream have them? Where clients of llama-server are, and ask for it. */
bool rvi_timings_wanted(const rvi_call *k);
/* ,"prompt_progress":{...} and the timings; done: tokens of the prompt that have been read. */
void rvi_timings_put_progress(const rvi_call *k, int part, int done, rvi_buf *out);
bool rvi_progress_wanted(const rvi_call *k);
/* ,"__verbose":{"prompt":...} of a chat, where it is asked for. */
void rvi_verbose_put(const rvi_call *k, rvi_buf *out);

#endif
