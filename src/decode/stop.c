#include "decode/stop.h"

#include <string.h>

void rvi_stop_init(rvi_stop *s, const char *const *strings, size_t n_strings)
{
    *s = (rvi_stop){.strings = strings, .n_strings = n_strings};
}

void rvi_stop_deinit(rvi_stop *s)
{
    rvi_buf_deinit(&s->held);
}

/* How many bytes from `at` agree with the stop string: all of it, or up to the end of what is
 * there. 0: they differ. */
static size_t agree(const rvi_buf *held, size_t at, const char *stop, bool *whole)
{
    size_t len = strlen(stop), there = held->len - at, n = RVI_MIN(len, there);
    *whole = len <= there;
    return n && !memcmp(held->data + at, stop, n) ? n : 0;
}

/* Emits the text before the first place where a stop string is complete or, unless the text has
 * ended, might still be completed. */
static bool scan(rvi_stop *s, bool end, rvi_buf *out)
{
    size_t sure = 0; /* bytes that no stop string can begin in */
    bool waiting = false;
    while (sure < s->held.len && !s->hit && !waiting) {
        for (size_t i = 0; i < s->n_strings && !s->hit; i++) {
            bool whole;
            if (!agree(&s->held, sure, s->strings[i], &whole)) continue;
            if (whole) {
                s->hit = true;
                s->which = i;
            } else if (!end) {
                waiting = true;
            }
        }
        if (!s->hit && !waiting) sure++;
    }
    if (sure && !rvi_buf_append(out, s->held.data, sure)) return false;
    if (sure) memmove(s->held.data, s->held.data + sure, s->held.len - sure);
    s->held.len = s->hit ? 0 : s->held.len - sure;
    return true;
}

bool rvi_stop_push(rvi_stop *s, const char *text, size_t len, rvi_buf *out)
{
    if (s->hit || !len) return true;
    if (!s->n_strings) return rvi_buf_append(out, text, len);
    return rvi_buf_append(&s->held, text, len) && scan(s, false, out);
}

bool rvi_stop_flush(rvi_stop *s, rvi_buf *out)
{
    return scan(s, true, out);
}
