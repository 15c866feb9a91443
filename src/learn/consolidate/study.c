#include "learn/consolidate/study.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef struct recipe {
    float beta;
    int n_steps, n_teach, n_keep; /* for a group of 20: steps, samples of a step */
    float kept_each;              /* for a taught sample, where a larger group has more of them */
    float negatives;              /* share of the kept samples; the others are general ones */
    float enough;                 /* loss of a taught token (rvi_train_options) */
} recipe;

/* Kept samples are the long ones. Behind a gate 4 of them hold the model as 8 did; what that saves
 * teaches more samples a step in fewer steps, to the same end in two thirds of the time. */
static const recipe recipes[] = {
    [RVI_RECIPE_GATED] = {1, 240, 12, 4, 0.33f, 0, 0.05f},
    [RVI_RECIPE_FENCED] = {2, 300, 8, 12, 1, 0.5f, 0},
};

#define FISHER_DECAY 0.95f /* of what earlier groups found to matter */

enum {
    USUAL_GROUP = 20,
    MOST_TEXTS = 32, /* of one kind in a step */
    LEAST_STEPS = 100,
    SHARED_STEPS = 150,
    SHARED_TEXTS = 12,
    FISHER_SAMPLES = 48,
    FENCE_TOKENS = 16,
    POOL = 2400,     /* entries of the pool that mixes kinds of kept samples */
    HELD_ONE_IN = 6, /* wordings of a lesson, */
    HELD_PAIRS_ONE_IN = 10,
    HELD_PAIRS = 2, /* but at least so many, */
    LEAST_PAIRS = 8 /* of so many */
};

void rvi_shared_deinit(rvi_shared *s)
{
    rvi_params_free(s->theta);
    rvi_free(s->fisher);
    rvi_free(s->star);
    *s = (rvi_shared){0};
}

size_t rvi_study_least_bytes(const rvi_model *m)
{
    enum { LOSSES = 192 };
    const rvi_trainer_options o = {
        .max_rows = RVI_PORTION_ROWS, .max_losses = LOSSES, .lowest = rvi_baseline_lowest(m)};
    return rvi_trainer_least_bytes(m, &o);
}

/* ---- progress ---- */

int rvi_study_tell(void *ctx, size_t done, size_t total)
{
    const rvi_study_teller *t = ctx;
    return t->fn ? t->fn(t->ctx, t->stage, (int)done, (int)total, NAN) : 0;
}

/* ---- parameters ---- */

typedef struct from_layer {
    const rvi_model *m;
    int lowest;
} from_layer;

static bool is_trained(const void *ctx, int target)
{
    const from_layer *f = ctx;
    int il;
    return sscanf(f->m->targets[target].gguf_name, "blk.%d.", &il) == 1 && il >= f->lowest;
}

static rv_status new_params(rvi_params **out, const rvi_model *m, const rvi_learner_options *o,
                            rv_error *err)
{
    from_layer f = {m, rvi_baseline_lowest(m)};
    rv_status st = rvi_params_new(out, m->be, m->targets, m->n_targets, is_trained, &f, o->rank,
                                  o->alpha, err);
    if (!st) rvi_params_init_random(*out, o->seed);
    return st;
}

/* What was not trained to its end is nothing. */
static rv_status end_params(rvi_params **out, rv_status st)
{
    if (st) rvi_params_free(*out);
    if (st) *out = NULL;
    return st;
}

/* ---- samples of lessons ---- */

/* The texts of one lesson as samples. held (may be NULL): takes one in six, never the first. */
static rv_status add_lesson(rvi_baseline *g, const rvi_questions *q, const char *answer,
                            rvi_index *teach, rvi_index *held, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < q->n; i++) {
        rvi_index *to = held && i % HELD_ONE_IN == HELD_ONE_IN - 1 ? held : teach;
        st = rvi_samples_teach(&g->samples, q->data[i], answer, SIZE_MAX, false, to, err);
    }
    return st;
}

/* All lessons as often as the one with the most texts. */
static rv_status balance(rvi_index *teach, const rvi_index *lessons, size_t n, rv_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++) most = RVI_MAX(most, lessons[i].n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; lessons[i].n && k < most; k++)
            if (!rvi_index_push(teach, lessons[i].data[k % lessons[i].n]))
                return rvi_nomem(err, "samples");
    return RV_OK;
}

/* Texts of the lessons that w writes about. fence (may be NULL): takes their fences' questions. */
static rv_status add_texts(rvi_baseline *g, rvi_text_writer *w, unsigned sources, rvi_index *teach,
                           rvi_index *held, rvi_questions *fence, rv_error *err)
{
    rvi_texts *texts = rvi_zalloc_array(w->n + 1, sizeof *texts);
    rvi_index *lessons = rvi_zalloc_array(w->n + 1, sizeof *lessons);
    rv_status st =
        texts && lessons ? rvi_texts_write(w, sources, texts, err) : rvi_nomem(err, "texts");
    for (size_t i = 0; !st && i < w->n; i++) {
        const rvi_questions *f = &texts[i].fence;
        st = add_lesson(g, &texts[i].teach, w->group[i].answer, &lessons[i], held, err);
        for (size_t k = 0; !st && fence && k < f->n; k++)
            st = rvi_questions_add(fence, f->data[k], err);
    }
    if (!st) st = balance(teach, lessons, w->n, err);
    for (size_t i = 0; lessons && i < w->n; i++) rvi_index_deinit(&lessons[i]);
    rvi_texts_deinit(texts, w->n);
    rvi_free(texts);
    rvi_free(lessons);
    return st;
}

/* The base's own greedy answers to the fence's questions. */
static rv_status add_negatives(rvi_baseline *g, const rvi_questions *fence, rvi_index *out,
                               rvi_study_teller *t, rv_error *err)
{
    size_t n = fence->n;
    rvi_request *requests = rvi_zalloc_array(n + 1, sizeof *requests);
    rv_status st = requests ? RV_OK : rvi_nomem(err, "negatives");
    t->stage = "negatives";
    for (size_t i = 0; !st && i < n; i++)
        st = rvi_base_model_prompt(g->v, fence->data[i], strlen(fence->data[i]),
                                   &requests[i].prompt, err);
    if (!st)
        st = rvi_base_model_answer(g->v, requests, n, NULL, FENCE_TOKENS, rvi_study_tell, t, err);
    for (size_t i = 0; !st && i < n; i++) {
        rvi_ids *text = &requests[i].prompt, *answer = &requests[i].answer;
        size_t first = text->len - 1;
        if (!rvi_ids_append(text, answer->data, answer->len)) st = rvi_nomem(err, "negatives");
        if (!st)
            st = rvi_samples_add(&g->samples, text->data, text->len, first, true, false, out, err);
    }
    rvi_requests_free(requests, n);
    return st;
}

/* Entries from a list, as often as its share of the pool asks for. */
static bool add_share(rvi_index *pool, const rvi_index *list, float share)
{
    size_t want = (size_t)(share * POOL);
    for (size_t i = 0; list->n && i < want; i++)
        if (!rvi_index_push(pool, list->data[i % list->n])) return false;
    return true;
}

static rv_status mix(rvi_index *pool, const rvi_baseline *g, const rvi_index *negatives,
                     const recipe *r, rv_error *err)
{
    float share = negatives->n ? r->negatives : 0;
    return add_share(pool, &g->general, 1 - share) && add_share(pool, negatives, share)
               ? RV_OK
               : rvi_nomem(err, "pool");
}

/* ---- runs ---- */

/* What an adapter is trained on, and how. */
typedef struct course {
    const rvi_study *by;
    rvi_baseline *g;
    rvi_train_options to;
    rvi_study_teller teller;
    rvi_index fresh; /* texts of the group */
    rvi_index teach, held;
    rvi_shared *shared; /* that is trained further; NULL: an adapter of its own */
} course;

static course new_course(rvi_baseline *g, const rvi_study *by, rvi_train_options to)
{
    return (course){.by = by, .g = g, .to = to, .teller = {by->progress, by->ctx, NULL}};
}

/* Trains theta on the samples that were added, and measures how far that moves the model. */
static rv_status train(course *c, rvi_params *theta, const rvi_index *keep,
                       rvi_study_result *result, rv_error *err)
{
    rvi_baseline *g = c->g;
    rvi_training t = {0};
    c->teller.stage = "hidden states";
    rv_status st = rvi_baseline_prepare(g, rvi_study_tell, &c->teller, err);
    if (!st)
        st = rvi_training_init(&t, &g->samples, theta, &c->to, c->teach.data, c->teach.n,
                               keep->data, keep->n, err);
    if (!st && c->shared) {
        t.fisher = c->shared->fisher;
        t.star = c->shared->star;
    }
    if (!st) st = rvi_run_training(&t, c->by, &c->held, result, err);
    if (!st && c->shared && c->by->o->ewc_lambda > 0)
        st = rvi_training_fisher(&t, c->fresh.data, c->fresh.n, FISHER_SAMPLES, FISHER_DECAY,
                                 c->shared->fisher, err);
    rvi_training_deinit(&t);
    return st ? st : rvi_baseline_probe(g, theta, &result->probe_kl, err);
}

static void end_course(course *c)
{
    rvi_baseline_clear(c->g);
    rvi_index_deinit(&c->fresh);
    rvi_index_deinit(&c->teach);
    rvi_index_deinit(&c->held);
}

static rvi_train_options options_of(const rvi_study *by, size_t n)
{
    const rvi_learner_options *o = by->o;
    const recipe *r = &recipes[o->recipe];
    int texts = (int)RVI_MIN(n * (size_t)r->n_teach / USUAL_GROUP, (size_t)MOST_TEXTS);
    int steps = n <= USUAL_GROUP ? RVI_MAX((int)n * r->n_steps / USUAL_GROUP, LEAST_STEPS)
                                 : r->n_steps + ((int)n - USUAL_GROUP) * 200 / 80;
    rvi_train_options t = {.objective = RVI_TEACH,
                           .n_steps = o->n_steps ? o->n_steps
                                      : by->deep ? 2 * steps
                                                 : steps,
                           .n_teach = RVI_MAX(texts, r->n_teach),
                           .beta = o->kl_weight >= 0 ? o->kl_weight : r->beta,
                           .rate = o->learning_rate,
                           .warm_up = 0.03f,
                           .enough = by->deep || o->n_steps ? 0 : r->enough,
                           .random = o->random_gradient != 0,
                           .seed = o->seed,
                           .max_rows = RVI_PORTION_ROWS};
    t.n_keep = t.beta > 0 ? RVI_MAX(r->n_keep, (int)(r->kept_each * (float)t.n_teach)) : 0;
    return t;
}

/* New samples, and of old ones as many as make up the share. */
static rv_status rehearse(rvi_index *pool, const rvi_index *fresh, const rvi_index *old,
                          float share, rvi_rng *rng, rv_error *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < fresh->n; i++) ok = rvi_index_push(pool, fresh->data[i]);
    size_t want = share < 1 ? (size_t)((float)fresh->n * share / (1 - share)) : 0;
    for (size_t i = 0; ok && old->n && i < want; i++) {
        if (i % old->n == 0) /* shuffled anew each time round */
            for (size_t k = old->n; k > 1; k--) {
                size_t j = rvi_rng_below(rng, k), x = old->data[k - 1];
                old->data[k - 1] = old->data[j];
                old->data[j] = x;
            }
        ok = rvi_index_push(pool, old->data[i % old->n]);
    }
    return ok ? RV_OK : rvi_nomem(err, "pool");
}

/* The group into theta; old: lessons to rehearse. */
static rv_status study_lessons(course *c, rvi_params *theta, const rvi_lesson_text *group, size_t n,
                               const rvi_lesson_text *old, size_t n_old, uint64_t seed,
                               rvi_study_result *result, rv_error *err)
{
    const rvi_learner_options *o = c->by->o;
    const recipe *r = &recipes[o->recipe];
    unsigned sources = (unsigned)o->sources;
    rvi_index past = {0}, negatives = {0}, keep = {0}, *held = c->by->deep ? &c->held : NULL;
    rvi_questions fence = {0};
    c->teller.stage = "wordings";
    rvi_text_writer w = {.v = c->g->v,
                         .replay = c->g->replay,
                         .judge = c->by->judge,
                         .first = 1,
                         .group = group,
                         .n = n,
                         /* without negatives nobody asks what the fence has */
                         .no_same = o->no_same_fence || !(r->negatives > 0),
                         .rng = {seed},
                         .progress = rvi_study_tell,
                         .ctx = &c->teller};
    rv_status st = add_texts(c->g, &w, sources, &c->fresh, held, &fence, err);
    w.group = old; /* what the model wrote of old ones is not written once more */
    w.first += n;
    w.n = n_old;
    if (!st) st = add_texts(c->g, &w, sources & ~(unsigned)RVI_TEXTS_OWN, &past, NULL, NULL, err);
    if (!st && c->to.n_keep && r->negatives > 0)
        st = add_negatives(c->g, &fence, &negatives, &c->teller, err);
    if (!st) st = mix(&keep, c->g, &negatives, r, err);
    if (!st) st = rehearse(&c->teach, &c->fresh, &past, o->rehearsal, &w.rng, err);
    if (!st) st = train(c, theta, &keep, result, err);
    end_course(c);
    rvi_questions_deinit(&fence);
    rvi_index *lists[] = {&past, &negatives, &keep};
    for (size_t i = 0; i < RVI_COUNT(lists); i++) rvi_index_deinit(lists[i]);
    return st;
}

rv_status rvi_study_group(rvi_params **out, rvi_baseline *g, const rvi_lesson_text *group, size_t n,
                          const rvi_study *by, rvi_study_result *result, rv_error *err)
{
    course c = new_course(g, by, options_of(by, n));
    rv_status st = new_params(out, g->v->m, by->o, err);
    if (!st) st = study_lessons(&c, *out, group, n, NULL, 0, by->o->seed + 100, result, err);
    return end_params(out, st);
}

/* ---- a shared adapter ---- */

rv_status rvi_shared_begin(rvi_shared *s, const rvi_model *m, const rvi_learner_options *o,
                           rv_error *err)
{
    if (s->theta) return RV_OK;
    rv_status st = new_params(&s->theta, m, o, err);
    if (st) return st;
    s->fisher = rvi_zalloc_array(s->theta->n, sizeof *s->fisher);
    s->star = rvi_zalloc_array(s->theta->n, sizeof *s->star);
    if (s->fisher && s->star) return RV_OK;
    rvi_shared_deinit(s);
    return rvi_nomem(err, "Fisher information");
}

rv_status rvi_study_shared(rvi_shared *s, rvi_baseline *g, const rvi_lesson_text *group, size_t n,
                           const rvi_lesson_text *old, size_t n_old, const rvi_study *by,
                           rvi_study_result *result, rv_error *err)
{
    const rvi_learner_options *o = by->o;
    course c = new_course(g, by, options_of(by, n));
    uint64_t so_far = (uint64_t)s->n_groups;
    c.shared = s;
    c.to.seed = o->seed + so_far;
    if (!o->n_steps) c.to.n_steps = by->deep ? 2 * SHARED_STEPS : SHARED_STEPS;
    c.to.n_teach = SHARED_TEXTS;
    c.to.n_keep = c.to.beta > 0 ? SHARED_TEXTS : 0;
    c.to.ewc = s->n_groups ? o->ewc_lambda : 0;
    c.to.enough = 0; /* what is rehearsed is known already */
    rv_status st = rvi_shared_begin(s, g->v->m, o, err);
    if (!st)
        st = study_lessons(&c, s->theta, group, n, old, o->rehearsal > 0 ? n_old : 0,
                           o->seed + 100 + so_far, result, err);
    if (st) return st;
    memcpy(s->star, s->theta->theta, s->theta->n * sizeof *s->star);
    s->n_groups++;
    return RV_OK;
}

/* ---- preferences ---- */

enum {
    PAIR_TOKENS = 100,
    PAIRS = 4,
    PAIR_ROWS = 1024, /* a step's texts mostly fit; where they do not, pairs are computed twice */
    EPOCHS = 4
};

/* Every so-and-so-many-th of them. */
static bool is_held(size_t i, size_t n)
{
    if (n < LEAST_PAIRS) return false;
    size_t want = RVI_MAX(n / HELD_PAIRS_ONE_IN, (size_t)HELD_PAIRS), every = n / want;
    return i % every == every - 1 && i / every < want;
}

rv_status rvi_study_pairs(rvi_params **out, rvi_baseline *g, const rvi_lesson_text *pairs, size_t n,
                          rv_preference_loss loss, const rvi_study *by, rvi_study_result *result,
                          rv_error *err)
{
    const rvi_learner_options *o = by->o;
    const rvi_train_options to = {
        .objective = loss == RV_LOSS_DPO ? RVI_DPO : RVI_KTO,
        .n_steps = o->n_steps ? o->n_steps : (int)(n * EPOCHS + 3) / PAIRS,
        .n_teach = PAIRS,
        .n_keep = PAIRS,
        .beta =
            o->kl_weight >= 0 ? o->kl_weight : 2, /* 1 obeys no better and drifts twice as far */
        .rate = o->learning_rate / 4,             /* 5e-4 where lessons take 2e-3 */
        .warm_up = 0.1f,
        .beta_pref = 0.1f,
        .chosen = 0.1f,
        .random = o->random_gradient != 0,
        .seed = o->seed,
        .max_rows = PAIR_ROWS};
    course c = new_course(g, by, to);
    rv_status st = new_params(out, g->v->m, o, err);
    g->samples.want_refs = true;
    for (size_t i = 0; !st && i < n; i++) {
        const rvi_lesson_text *p = &pairs[i];
        size_t before = g->samples.n;
        st = rvi_samples_teach(&g->samples, p->question, p->answer, PAIR_TOKENS, true, NULL, err);
        if (!st)
            st = rvi_samples_teach(&g->samples, p->question, p->rejected, PAIR_TOKENS, true, NULL,
                                   err);
        if (st || g->samples.n != before + 2)
            rvi_samples_cut(&g->samples, before);
        else if (!rvi_index_push(is_held(i, n) ? &c.held : &c.teach, before))
            st = rvi_nomem(err, "pairs");
    }
    if (!st) st = train(&c, *out, &g->general, result, err);
    g->samples.want_refs = false;
    end_course(&c);
    return end_params(out, st);
}
