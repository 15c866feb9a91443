/* What belongs to the deep loop alone: its pairs, and what it may say about itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "learn/learner.h"

size_t rvi_learner_gather_pairs(const rvi_learner *l, rvi_pair *pairs, uint64_t *first,
                                uint64_t *last)
{
    size_t n = 0;
    *first = UINT64_MAX;
    *last = 0;
    for (size_t i = 0; i < l->n_pairs + l->n_lessons; i++) {
        uint64_t event;
        if (i < l->n_pairs) {
            const rvi_preference *p = &l->pairs[i];
            if (p->used) continue;
            pairs[n++] = (rvi_pair){p->question, p->chosen, p->rejected};
            event = p->event;
        } else {
            const rvi_lesson *x = &l->lessons[i - l->n_pairs];
            if (!x->stands || x->paired || x->fact->kind != RVI_FACT_FREE || !x->rejected ||
                rvi_learner_same_words(x->fact->answer, x->rejected))
                continue;
            pairs[n++] = (rvi_pair){x->fact->question, x->fact->answer, x->rejected};
            event = x->event;
        }
        *first = RVI_MIN(*first, event);
        *last = RVI_MAX(*last, event);
    }
    return n;
}

void rvi_learner_use_pairs(rvi_learner *l, uint64_t first, uint64_t last)
{
    for (size_t i = 0; i < l->n_pairs; i++)
        if (l->pairs[i].event >= first && l->pairs[i].event <= last) l->pairs[i].used = true;
    for (size_t i = 0; i < l->n_lessons; i++)
        if (l->lessons[i].event >= first && l->lessons[i].event <= last) l->lessons[i].paired = true;
}

void rvi_learner_drop_pairs(rvi_learner *l, const char *text)
{
    for (size_t i = 0; i < l->n_pairs; i++) {
        rvi_preference *p = &l->pairs[i];
        const char *fields[] = {p->question, p->chosen, p->rejected};
        for (size_t k = 0; k < 3; k++) {
            bool in = true; /* what cannot be looked at is not learned from either */
            if (rvi_words_contain(&in, fields[k], strlen(fields[k]), text, strlen(text), NULL) ||
                in)
                p->used = true;
        }
    }
}

typedef struct measured {
    double before, after; /* sums over what was set aside */
    size_t n;
    int n_steps, best;
} measured;

static void add(measured *m, const rvi_study_result *r)
{
    if (!r->n_held || !isfinite(r->held_before) || !isfinite(r->held_after)) return;
    m->before += r->held_before * (double)r->n_held;
    m->after += r->held_after * (double)r->n_held;
    m->n += r->n_held;
    m->n_steps += r->n_steps;
    m->best += r->best_step;
}

static void tell(rv_adaptation *out, const measured *m, const char *what, const char *unit)
{
    if (!m->n) return;
    double n = (double)m->n;
    size_t len = strlen(out->notes);
    snprintf(out->notes + len, sizeof out->notes - len,
             "%sloss of %zu held-out %s: %.4f before, %.4f after%s; kept step %d of %d",
             len ? "; " : "", m->n, what, m->before / n, m->after / n, unit, m->best, m->n_steps);
    if (isnan(out->quality_delta)) out->quality_delta = (m->before - m->after) / n;
}

void rvi_learner_report(const rvi_learner *l, size_t first, rv_adaptation *out)
{
    measured wordings = {0}, pairs = {0};
    for (size_t i = first; i < l->n_generations; i++) {
        const rvi_generation *g = &l->generations[i];
        add(g->origin == RVI_FROM_PAIRS ? &pairs : &wordings, &g->figures);
    }
    tell(out, &wordings, "wordings", " (nats a token)");
    tell(out, &pairs, "pairs", "");
}
