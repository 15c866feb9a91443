/* Thumbs that may come: the keys of an answer are the larger part of a thumb's work and known as
 * soon as the answer has ended (pairs.h), so that they are made then, between calls. Of the last
 * answers only; a thumb on any other makes them itself, with the same result. */
#include "base/mem.h"
#include "learn/learner/learner_internal.h"

static void clear(rvi_foreseen *f)
{
    rvi_pairs_free(f->own);
    *f = (rvi_foreseen){.thumbs = f->thumbs};
}

void rvi_instant_forsake(rvi_learner *l, const rvi_capture *c)
{
    for (size_t i = 0; i < RVI_FORESEEN; i++)
        if (!c || l->instant.foreseen[i].of == c) clear(&l->instant.foreseen[i]);
}

void rvi_instant_forsake_all(rvi_learner *l)
{
    rvi_instant_forsake(l, NULL);
    for (size_t i = 0; i < RVI_FORESEEN; i++) {
        rvi_thumbs_free(l->instant.foreseen[i].thumbs);
        l->instant.foreseen[i].thumbs = NULL;
    }
}

/* The place of this ring, else the oldest one. */
static rvi_foreseen *place_of(rvi_instant *in, const rvi_capture *c)
{
    for (size_t i = 0; i < RVI_FORESEEN; i++)
        if (in->foreseen[i].of == c) return &in->foreseen[i];
    in->next_foreseen = (in->next_foreseen + 1) % RVI_FORESEEN;
    return &in->foreseen[in->next_foreseen];
}

bool rvi_learner_foresees(const rvi_learner *l)
{
    const rvi_instant *in = &l->instant;
    return in->thumbs && (in->whole || !l->calibrated || in->n_dislikes);
}

rv_status rvi_learner_foresee(rvi_learner *l, const rvi_capture *c, const char *question,
                              rv_error *err)
{
    rvi_instant *in = &l->instant;
    rvi_captured *tokens = NULL;
    size_t at;
    int n;
    if (!rvi_learner_foresees(l) || !rvi_capture_answer(c)) return RV_OK;
    rvi_foreseen *f = place_of(in, c);
    if (f->of == c && f->answer == rvi_capture_answer(c)) return RV_OK;
    clear(f);
    rv_status st = rvi_instant_tokens(c, &tokens, &n, err);
    if (!st && !f->thumbs) st = rvi_thumbs_like(&f->thumbs, in->thumbs, err);
    bool known = rvi_instant_find_dislike(in, question, &at);
    if (!st && !known) st = rvi_pairs_new(&f->own, err);
    if (!st)
        st = rvi_pairs_prepare(f->thumbs, known ? in->dislikes[at].pairs : f->own, tokens, n, err);
    if (!st) {
        f->of = c;
        f->answer = rvi_capture_answer(c);
    }
    rvi_free(tokens);
    if (st) clear(f);
    return st;
}

rvi_thumbs *rvi_instant_foreseen(rvi_learner *l, const rvi_capture *c, rvi_dislike *d)
{
    rvi_instant *in = &l->instant;
    for (size_t i = 0; i < RVI_FORESEEN; i++) {
        rvi_foreseen *f = &in->foreseen[i];
        if (f->of != c || f->answer != rvi_capture_answer(c)) continue;
        if (f->own && rvi_pairs_are_empty(d->pairs)) { /* the list becomes the request's own */
            rvi_pairs_free(d->pairs);
            d->pairs = f->own;
            f->own = NULL;
        }
        if (rvi_pairs_are_ready(f->thumbs, d->pairs)) return f->thumbs;
    }
    return NULL;
}
