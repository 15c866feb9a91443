#include "learn/state/preferences.h"

#include <string.h>

#include "base/mem.h"
#include "learn/consolidate/words.h"
#include "learn/journal/text.h"
#include "learn/journal/list.h"

static void free_texts(rvi_preference *x)
{
    rvi_free(x->question);
    rvi_free(x->chosen);
    rvi_free(x->rejected);
}

rv_status rvi_preferences_add(rvi_preferences *p, uint64_t event, rvi_text question,
                              rvi_text chosen, rvi_text rejected, rv_error *err)
{
    rvi_preference *x = rvi_list_room((void **)&p->list, p->n, &p->cap, sizeof *x);
    if (!x) return rvi_nomem(err, "preferences");
    *x = (rvi_preference){.event = event,
                          .question = rvi_text_copy(question),
                          .chosen = rvi_text_copy(chosen),
                          .rejected = rvi_text_copy(rejected)};
    if (x->question && x->chosen && x->rejected) {
        p->n++;
        return RV_OK;
    }
    free_texts(x);
    return rvi_nomem(err, "preferences");
}

bool rvi_preference_waits(const rvi_preference *x)
{
    return !x->generation && !x->forgotten_by;
}

bool rvi_preferences_remove(rvi_preferences *p, uint64_t event)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->list[i].event != event || !rvi_preference_waits(&p->list[i])) continue;
        free_texts(&p->list[i]);
        rvi_list_cut(p->list, &p->n, i, sizeof *p->list);
        return true;
    }
    return false;
}

rv_status rvi_preferences_forget(rvi_preferences *p, const rvi_feedback *f, int *n, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; i < p->n; i++) {
        rvi_preference *x = &p->list[i];
        const char *fields[] = {x->question, x->chosen, x->rejected};
        bool in = x->event == f->target;
        for (size_t k = 0; !st && !in && !f->target && k < RVI_COUNT(fields); k++)
            st = rvi_words_contain(&in, fields[k], strlen(fields[k]), f->note.data, f->note.len,
                                   err);
        if (!in && !st) continue;
        *n += !x->forgotten_by;
        x->forgotten_by = f->seq;
    }
    return st;
}

rv_status rvi_preferences_apply(rvi_preferences *p, const rvi_feedback *f, rv_error *err)
{
    if (f->kind == RVI_FEEDBACK_UNDO) (void)rvi_preferences_remove(p, f->target);
    if (f->kind == RVI_FEEDBACK_CORRECTION && rvi_text_is(f->note, "preference"))
        return rvi_preferences_add(p, f->seq, f->question, f->corrected, f->given, err);
    return RV_OK;
}

void rvi_preferences_deinit(rvi_preferences *p)
{
    for (size_t i = 0; i < p->n; i++) free_texts(&p->list[i]);
    rvi_free(p->list);
    *p = (rvi_preferences){0};
}
