/* Thumbs that may come: the keys of an answer are the larger part of a thumb's work and known as
 * soon as the answer has ended (edits.h), so that they are made then, between calls. Of the last
 * answers only; a thumb on any other makes them itself, with the same result. */
#include "base/mem.h"
#include "learn/learner/learner_internal.h"

static void clear(rvi_prepared_thumb *f)
{
    rvi_edits_free(f->own);
    *f = (rvi_prepared_thumb){.thumbs = f->thumbs};
}

void rvi_instant_drop_prepared(rvi_learner *l, const rvi_capture *c)
{
    for (size_t i = 0; i < RVI_PREPARED_THUMBS; i++)
        if (!c || l->instant.prepared[i].of == c) clear(&l->instant.prepared[i]);
}

void rvi_instant_free_prepared(rvi_learner *l)
{
    rvi_instant_drop_prepared(l, NULL);
    for (size_t i = 0; i < RVI_PREPARED_THUMBS; i++) {
        rvi_thumbs_free(l->instant.prepared[i].thumbs);
        l->instant.prepared[i].thumbs = NULL;
    }
}

/* The place of this ring, else the oldest one. */
static rvi_prepared_thumb *place_of(rvi_instant *in, const rvi_capture *c)
{
    for (size_t i = 0; i < RVI_PREPARED_THUMBS; i++)
        if (in->prepared[i].of == c) return &in->prepared[i];
    in->next_prepared = (in->next_prepared + 1) % RVI_PREPARED_THUMBS;
    return &in->prepared[in->next_prepared];
}

bool rvi_learner_prepares_thumbs(const rvi_learner *l)
{
    const rvi_instant *in = &l->instant;
    return in->thumbs && (in->whole || !l->calibrated || in->n_dislikes);
}

rv_status rvi_learner_prepare_thumb(rvi_learner *l, const rvi_capture *c, const char *question,
                                    rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    size_t at;
    int n;
    if (!rvi_learner_prepares_thumbs(l) || !rvi_capture_answer(c)) return RV_OK;
    rvi_prepared_thumb *f = place_of(in, c);
    if (f->of == c && f->answer == rvi_capture_answer(c)) return RV_OK;
    clear(f);
    rv_status st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st && !f->thumbs) st = rvi_thumbs_like(&f->thumbs, in->thumbs, err);
    bool known = rvi_instant_find_dislike(in, question, &at);
    if (!st && !known) st = rvi_edits_new(&f->own, err);
    if (!st)
        st = rvi_edits_prepare(f->thumbs, known ? in->dislikes[at].edits : f->own, tokens, n, err);
    if (!st) {
        f->of = c;
        f->answer = rvi_capture_answer(c);
    }
    rvi_free(tokens);
    if (st) clear(f);
    return st;
}

rvi_thumbs *rvi_instant_prepared(rvi_learner *l, const rvi_capture *c, rvi_dislike *d)
{
    rvi_instant *in = &l->instant;
    for (size_t i = 0; i < RVI_PREPARED_THUMBS; i++) {
        rvi_prepared_thumb *f = &in->prepared[i];
        if (f->of != c || f->answer != rvi_capture_answer(c)) continue;
        if (f->own && rvi_edits_are_empty(d->edits)) { /* the list becomes the request's own */
            rvi_edits_free(d->edits);
            d->edits = f->own;
            f->own = NULL;
        }
        if (rvi_edits_are_ready(f->thumbs, d->edits)) return f->thumbs;
    }
    return NULL;
}
