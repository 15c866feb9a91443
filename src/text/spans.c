#include "text/spans.h"

#include "base/mem.h"

void rvi_text_spans_deinit(rvi_text_spans *s)
{
    rvi_free(s->data);
    *s = (rvi_text_spans){0};
}

bool rvi_text_spans_add(rvi_text_spans *s, size_t start, size_t end)
{
    if (start >= end) return true;
    if (s->n && s->data[s->n - 1].end == start) {
        s->data[s->n - 1].end = end;
        return true;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        rvi_text_span *data = rvi_realloc_array(s->data, cap, sizeof *data);
        if (!data) return false;
        s->data = data;
        s->cap = cap;
    }
    s->data[s->n++] = (rvi_text_span){start, end};
    return true;
}

void rvi_text_spans_cut(rvi_text_spans *s, size_t start)
{
    while (s->n && s->data[s->n - 1].start >= start) s->n--;
    if (s->n && s->data[s->n - 1].end > start) s->data[s->n - 1].end = start;
}

const rvi_text_span *rvi_text_spans_from(const rvi_text_spans *s, size_t pos)
{
    size_t low = 0, high = s ? s->n : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->data[middle].end > pos)
            high = middle;
        else
            low = middle + 1;
    }
    return s && low < s->n ? &s->data[low] : NULL;
}
