#include "learn/state/instructions.h"

#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/state/list.h"
#include "learn/state/question.h"
#include "learn/consolidate/words.h"

rv_status rvi_instructions_check(const rvi_instructions *x, const char *text, rv_error *err)
{
    size_t n = 0, len = strlen(text);
    if (len > RVI_INSTRUCTION_BYTES)
        return rvi_error(err, RV_E_INVALID,
                         "a lesson of scope always must be at most %d bytes (got %zu): it stands "
                         "before every chat",
                         RVI_INSTRUCTION_BYTES, len);
    for (size_t i = 0; i < x->n; i++)
        n += x->list[i].in_force && !rvi_question_same(x->list[i].text, text);
    if (n < RVI_INSTRUCTIONS_MAX) return RV_OK;
    return rvi_error(err, RV_E_INVALID,
                     "%d lessons of scope always are the most; forget one of them first",
                     RVI_INSTRUCTIONS_MAX);
}

/* Where the same words stand already. */
static void replace(rvi_instructions *x, const char *text, uint64_t by)
{
    for (size_t i = 0; i < x->n; i++) {
        rvi_instruction *old = &x->list[i];
        if (!old->in_force || !rvi_question_same(old->text, text)) continue;
        old->in_force = false;
        old->ended_by = by;
    }
}

rv_status rvi_instructions_add(rvi_instructions *x, uint64_t event, rvi_text text, rv_error *err)
{
    rvi_instruction *last = rvi_list_room((void **)&x->list, x->n, &x->cap, sizeof *last);
    if (!last || !(last->text = rvi_text_copy(rvi_text_trim(text))))
        return rvi_nomem(err, "instructions");
    last->event = event;
    if (event) replace(x, last->text, event);
    last->in_force = event != 0;
    x->n++;
    return RV_OK;
}

void rvi_instructions_logged(rvi_instructions *x, uint64_t event)
{
    rvi_instruction *last = &x->list[x->n - 1];
    if (!event) {
        rvi_free(last->text);
        x->n--;
        return;
    }
    replace(x, last->text, event);
    last->event = event;
    last->in_force = true;
}

const rvi_instruction *rvi_instructions_take_back(rvi_instructions *x, uint64_t event, uint64_t by)
{
    const rvi_instruction *ended = NULL;
    uint64_t later = 0; /* where the same words were said again meanwhile, they go on standing */
    for (size_t i = x->n; i-- > 0;) { /* it came after those that it ended */
        rvi_instruction *one = &x->list[i];
        if (one->event == event) {
            if (one->in_force) ended = one;
            later = one->ended_by;
            one->in_force = false;
            one->ended_by = by;
        } else if (one->ended_by == event) {
            one->in_force = !later;
            one->ended_by = later;
        }
    }
    return ended;
}

rv_status rvi_instructions_forget(rvi_instructions *x, const char *text, uint64_t by, int *n,
                                  rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < x->n; i++) {
        rvi_instruction *one = &x->list[i];
        bool in = false;
        if (!one->in_force) continue;
        st = rvi_words_contain(&in, one->text, strlen(one->text), text, strlen(text), err);
        if (!in) continue;
        one->in_force = false;
        one->ended_by = by;
        ++*n;
    }
    return st;
}

rv_status rvi_instructions_write(const rvi_instructions *x, rvi_buf *out, rv_error *err)
{
    size_t before = out->len;
    for (size_t i = 0; i < x->n; i++) {
        if (!x->list[i].in_force) continue;
        if (out->len > before) (void)rvi_buf_putc(out, '\n');
        (void)rvi_buf_puts(out, x->list[i].text);
    }
    return out->failed ? rvi_nomem(err, "instructions") : RV_OK;
}

rv_status rvi_instructions_apply(rvi_instructions *x, const rvi_feedback *f, rv_error *err)
{
    if (f->kind == RVI_FEEDBACK_UNDO) (void)rvi_instructions_take_back(x, f->target, f->seq);
    if (f->kind == RVI_FEEDBACK_CORRECTION && f->scope == RV_SCOPE_ALWAYS)
        return rvi_instructions_add(x, f->seq, f->corrected, err);
    return RV_OK;
}

void rvi_instructions_deinit(rvi_instructions *x)
{
    for (size_t i = 0; i < x->n; i++) rvi_free(x->list[i].text);
    rvi_free(x->list);
    *x = (rvi_instructions){0};
}
