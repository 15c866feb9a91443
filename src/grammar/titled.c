/* titled.c - anyOf and oneOf whose branches are single texts, as lists of choices with titles are
 * written: one automaton for all, however many they are. */
#include <stdlib.h>
#include <string.h>

#include "grammar/values.h"

/* The only text of a branch, or NULL. */
static const rvi_json *only_text(const rvi_json *branch)
{
    static const char *const tell_nothing[] = {"title",   "description", "$comment", "deprecated",
                                               "default", "examples",    "const",    "enum"};
    const rvi_json *text = rvi_json_get(branch, "const"), *list = rvi_json_get(branch, "enum");
    if (text && list) return NULL;
    if (rvi_json_is(list, RVI_JSON_ARRAY) && rvi_json_count(list) == 1) text = rvi_json_at(list, 0);
    for (size_t i = 0; i < rvi_json_count(branch); i++) {
        const rvi_json *member = rvi_json_at(branch, i);
        bool known = !strcmp(member->key, "type") && !strcmp(rvi_json_string(member, ""), "string");
        for (size_t k = 0; k < RVI_COUNT(tell_nothing) && !known; k++)
            known = !strcmp(member->key, tell_nothing[k]);
        if (!known) return NULL;
    }
    return rvi_json_is(text, RVI_JSON_STRING) ? text : NULL;
}

const rvi_form *rvi_titled_form(rvi_values *v, const rvi_json *list, bool once)
{
    enum { FEW = 4 };
    size_t n = rvi_json_count(list), k = 0;
    if (v->draft < 6 || n < FEW) return NULL;
    for (size_t i = 0; i < n; i++)
        if (!rvi_json_is(rvi_json_at(list, i), RVI_JSON_OBJECT) || !only_text(rvi_json_at(list, i)))
            return NULL;
    rvi_text *texts = rvi_values_alloc(v, n, sizeof *texts);
    rvi_form *f = rvi_values_alloc(v, 1, sizeof *f);
    if (v->st) return NULL;
    for (size_t i = 0; i < n; i++) {
        const rvi_json *text = only_text(rvi_json_at(list, i));
        texts[i] = (rvi_text){text->as.string.data, text->as.string.len};
    }
    qsort(texts, n, sizeof *texts, rvi_text_compare);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !rvi_text_compare(&texts[i], &texts[end]);) end++;
        if (!once || end == i + 1) texts[k++] = texts[i];
    }
    *f = (rvi_form){.number = RVI_RX_NONE, .string = RVI_RX_NONE};
    f->string = rvi_rx_names(&v->rxs, &v->arena, texts, k, NULL);
    return f;
}
