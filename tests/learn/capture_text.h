/* capture_text.h - captures a text as if it had been generated. */
#ifndef TESTS_LEARN_CAPTURE_TEXT_H
#define TESTS_LEARN_CAPTURE_TEXT_H

#include <string.h>

#include "decode/capture.h"

/* Makes the session's past exactly ids, and captures all but the first n_prompt of them as an
 * answer of its own. */
static inline rv_status capture_text(rvi_capture *c, rvi_session *s, const int32_t *ids,
                                     size_t n_prompt, size_t n, float temperature, rv_error *err)
{
    rvi_engine *e = s->e;
    /* all but the row that the first token follows; then steps whose rows are captured */
    rv_status st = rvi_session_sync(s, ids, n_prompt - 1, NULL, NULL, err);
    if (st) return st;
    rvi_capture_begin(c);
    memcpy(s->past.data + n_prompt - 1, ids + n_prompt - 1, (n - n_prompt + 1) * sizeof *ids);
    s->past.len = n;
    while (!st && (size_t)s->seq.len < n - 1) {
        size_t first = (size_t)s->seq.len;
        int rows = (int)RVI_MIN(n - 1 - first, (size_t)e->o.max_rows);
        rvi_engine_begin(e);
        if ((st = rvi_engine_add(e, s, rows, s->adapters, 0, err))) break;
        if ((st = rvi_engine_compute(e, err))) break;
        for (int32_t r = 0; r < rows; r++)
            rvi_capture_take(c, e->ws, r, rvi_model_logits(e->m, e->ws, e->rows, &r, 1),
                             temperature, ids[first + (size_t)r + 1]);
    }
    s->past.len = (size_t)s->seq.len;
    return st;
}

#endif
