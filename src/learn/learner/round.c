/* A round: a group of corrections that wait becomes an adapter, which becomes a generation.
 *
 * Texts of lessons are borrowed: they stay until the learner is reset or freed, which does not
 * happen during a round. While it trains, lessons come and go; so publishing looks again. A
 * generation holds, by the log, what stood and waited in its range of events when it was published:
 * that must be the very group that was trained, and what was rehearsed must still stand, otherwise
 * the result is thrown away. So nothing that was taken back meanwhile gets into the
 * weights or onto the disk, and what is left of the group is trained anew. */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "learn/learner/learner_internal.h"
#include "text/frames.h"

static bool waits(const rvi_lesson *x)
{
    return rvi_lesson_answers(x) && !x->generation;
}

size_t rvi_learner_waiting(const rvi_learner *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->lessons.n; i++) n += waits(&l->lessons.list[i]);
    return n;
}

size_t rvi_learner_standing(const rvi_learner *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->lessons.n; i++) n += rvi_lesson_answers(&l->lessons.list[i]);
    return n;
}

rv_status rvi_round_take(rvi_round *r, rvi_learner *l, rv_error *err)
{
    *r = (rvi_round){0};
    rv_status st = rvi_learner_own(l, err);
    if (st) return st;
    size_t n = l->lessons.n + 1;
    *r = (rvi_round){.waiting = rvi_alloc_array(n, sizeof *r->waiting),
                     .old = rvi_alloc_array(n, sizeof *r->old),
                     .events = rvi_alloc_array(n, sizeof *r->events),
                     .said = rvi_alloc_array(n, sizeof *r->said)};
    if (!r->waiting || !r->old || !r->events || !r->said) return rvi_nomem(err, "lessons");
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        const rvi_lesson_text taught = {x->question, x->answer};
        if (!rvi_lesson_answers(x)) continue;
        if (x->generation && l->o.shared) {
            r->said[r->n_old] = x->event;
            r->old[r->n_old++] = taught;
        } else if (!x->generation && r->n_waiting < (size_t)l->o.group_size) {
            r->events[r->n_waiting] = x->event;
            r->waiting[r->n_waiting++] = taught;
        }
    }
    r->made = (rvi_generation){.number = rvi_learner_next_number(l),
                               .origin = l->o.shared ? RVI_FROM_SHARED : RVI_FROM_GROUP,
                               .recipe = (rvi_recipe)l->o.recipe,
                               .gated = l->o.shared || l->o.recipe == RVI_RECIPE_GATED};
    rvi_generations_name_lost(&l->generations, &r->made);
    if (r->n_waiting) {
        r->made.first = r->events[0];
        r->made.last = r->events[r->n_waiting - 1];
    }
    return rvi_feedback_count(&l->store, &r->made.known, err);
}

/* ---- training ---- */

static rv_status copy_shared(rvi_shared *to, const rvi_shared *from, rv_error *err)
{
    *to = (rvi_shared){.n_groups = from->n_groups};
    if (!from->theta) return RV_OK;
    size_t n = from->theta->n, bytes = n * sizeof(float);
    rv_status st = rvi_params_like(&to->theta, from->theta, err);
    to->fisher = rvi_alloc_array(n, sizeof(float));
    to->star = rvi_alloc_array(n, sizeof(float));
    if (!st && (!to->fisher || !to->star)) st = rvi_nomem(err, "shared adapter");
    if (st) {
        rvi_shared_deinit(to);
        return st;
    }
    memcpy(to->theta->theta, from->theta->theta, bytes);
    memcpy(to->fisher, from->fisher, bytes);
    memcpy(to->star, from->star, bytes);
    return RV_OK;
}

/* Judges which lesson of the group, or of those rehearsed, a text asks for: a recogniser of the
 * round's own, on the backend of whoever trains, since the learner's serves requests meanwhile.
 * *out NULL: none is needed. */
static rv_status make_judge(const rvi_round *r, const rvi_learner *l, const rvi_base_model *v,
                            rvi_recogniser **out, rv_error *err)
{
    const rvi_learner_parts *p = &l->parts;
    *out = NULL;
    if (!(l->o.sources & (RVI_TEXTS_OWN | RVI_TEXTS_PARTS))) return RV_OK;
    rv_status st = rvi_recogniser_new(out, p->embedder, p->embedder_t, v->be, NULL, err);
    for (size_t i = 0; !st && i < r->n_waiting + r->n_old; i++) {
        const rvi_lesson_text *x = i < r->n_waiting ? &r->waiting[i] : &r->old[i - r->n_waiting];
        st = rvi_recogniser_add(*out, i + 1, x->question, x->answer, err);
    }
    return st;
}

static rv_status study(rvi_round *r, rvi_learner *l, rvi_recogniser *judge,
                       rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_options o = rvi_learner_study_options(l);
    o.judge = judge;
    rvi_study_result *figures = &r->made.figures;
    rvi_params *theta = NULL;
    rv_status st;
    if (!l->o.shared) {
        st = rvi_study_group(&theta, &l->baseline, r->waiting, r->n_waiting, &o, figures, progress,
                             ctx, err);
        if (!st) st = rvi_adapter_copy(&r->made.adapter, theta->adapter, err);
        rvi_params_free(theta);
        return st;
    }
    st = copy_shared(&r->before, &l->shared, err);
    if (st) return st;
    r->was_shared = true;
    st = rvi_study_shared(&l->shared, &l->baseline, r->waiting, r->n_waiting, r->old, r->n_old, &o,
                          figures, progress, ctx, err);
    if (!st) st = rvi_shared_record(&r->made, &l->shared, err);
    return st ? st : rvi_adapter_copy(&r->made.adapter, l->shared.theta->adapter, err);
}

/* Is this the whole answer, and nothing else? */
static rv_status is_answer(bool *out, const rvi_base_model *v, const rvi_ids *said,
                           const char *answer, rv_error *err)
{
    rvi_ids ids = {0};
    rv_status st = rvi_base_model_encode(v, answer, strlen(answer), &ids, err);
    if (!st && !rvi_ids_push(&ids, v->end)) st = rvi_nomem(err, "check");
    *out = !st && said->len == ids.len && !memcmp(said->data, ids.data, ids.len * sizeof *ids.data);
    rvi_ids_deinit(&ids);
    return st;
}

/* The question as it was taught, then two other forms of it; "": it has no such form. */
enum { WORDINGS = 3 };

static rv_status put_wording(rvi_buf *out, const char *question, int which, rv_error *err)
{
    if (!which) rvi_buf_puts(out, question);
    if (which == 1) rvi_frame_plain(question, out);
    if (which == 2) rvi_frame_addressed(question, out);
    return out->failed ? rvi_nomem(err, "check") : RV_OK;
}

/* Counts whether the adapter alone said, word for word, what was taught, to wording k % WORDINGS of
 * lesson k / WORDINGS. */
static rv_status look_at(rvi_round *r, const rvi_base_model *v, size_t k, const rvi_ids *answer,
                         rv_error *err)
{
    bool said = false;
    rv_status st = is_answer(&said, v, answer, r->waiting[k / WORDINGS].answer, err);
    if (k % WORDINGS) {
        r->made.n_wordings++;
        r->made.n_wordings_said += said;
    } else {
        r->made.n_said += said;
    }
    return st;
}

/* How much of what was taught does the adapter alone say? Of a longer answer than this it is not
 * asked. */
static rv_status count_said(rvi_round *r, const rvi_learner *l, const rvi_base_model *v,
                            rv_error *err)
{
    enum { TOKENS = 64 };
    rvi_adapter_use use = {r->made.adapter, 1};
    rvi_adapter_set set = {&use, 1, l->parts.new_serial(l->parts.serial_ctx)};
    size_t n = 0, most = r->n_waiting * WORDINGS;
    rvi_request *asked = rvi_zalloc_array(most, sizeof *asked);
    rvi_ids *prompts = rvi_zalloc_array(most, sizeof *prompts);
    size_t *which = rvi_alloc_array(most, sizeof *which);
    rv_status st = asked && prompts && which ? RV_OK : rvi_nomem(err, "check");
    for (size_t k = 0; !st && k < most; k++) {
        rvi_buf text = {0};
        st = put_wording(&text, r->waiting[k / WORDINGS].question, (int)(k % WORDINGS), err);
        if (!st && text.len) {
            which[n] = k;
            st = rvi_base_model_prompt(v, text.data, text.len, &prompts[n++], err);
        }
        rvi_buf_deinit(&text);
    }
    for (size_t i = 0; !st && i < n; i++)
        asked[i] =
            (rvi_request){.prompt = prompts[i].data, .n_prompt = prompts[i].len, .adapters = &set};
    if (!st) st = rvi_base_model_answer(v, asked, n, NULL, TOKENS, NULL, NULL, err);
    for (size_t i = 0; !st && i < n; i++) st = look_at(r, v, which[i], &asked[i].answer, err);
    for (size_t i = 0; i < n; i++) {
        rvi_ids_deinit(&prompts[i]);
        rvi_ids_deinit(&asked[i].answer);
    }
    rvi_free(asked);
    rvi_free(prompts);
    rvi_free(which);
    return st;
}

rv_status rvi_round_train(rvi_round *r, rvi_learner *l, const rvi_base_model *v,
                          rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_recogniser *judge = NULL;
    rv_status st = rvi_learner_need_baseline(l, v, progress, ctx, err);
    if (st) return st;
    st = make_judge(r, l, v, &judge, err);
    if (!st) st = study(r, l, judge, progress, ctx, err);
    rvi_recogniser_free(judge);
    rvi_baseline_use(&l->baseline, &l->base);
    if (!st && !l->o.no_slots) st = count_said(r, l, v, err);
    if (!st) st = rvi_source_check(v->m->source, err); /* gradients of a file that was all there */
    for (size_t i = 0; !st && i < r->n_waiting; i++)
        st = rvi_generation_learn(&r->made, r->events[i], err);
    if (!st) st = rvi_adapter_digest(r->made.adapter, r->made.digest, err);
    if (!st) st = rvi_learner_save_early(l, v, &r->made, &r->file, err);
    return st;
}

/* ---- publishing ---- */

bool rvi_round_is_current(const rvi_round *r, const rvi_learner *l)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < l->lessons.n && k < r->n_old; i++) {
        if (l->lessons.list[i].event != r->said[k]) continue;
        if (!l->lessons.list[i].in_force) return false;
        k++;
    }
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (x->event < r->made.first || x->event > r->made.last || !waits(x)) continue;
        if (n == r->n_waiting || r->events[n] != x->event) return false;
        n++;
    }
    return n == r->n_waiting;
}

rv_status rvi_round_publish(rvi_round *r, rvi_learner *l, bool *published, rv_error *err)
{
    *published = false;
    rv_status st = rvi_learner_own(l, err); /* others may have taken something back */
    if (st || !rvi_round_is_current(r, l)) return st;
    st = rvi_learner_publish_made(l, &r->made, r->file.len ? r->file.data : NULL, NULL, err);
    if (st) return st;
    *published = true;
    rvi_shared_save(l, &r->made);
    r->made = (rvi_generation){.number = r->made.number}; /* the rest is the learner's */
    r->was_shared = false;
    rvi_learner_unload_idle(l);
    return RV_OK;
}

void rvi_round_deinit(rvi_round *r, rvi_learner *l)
{
    if (r->was_shared) {
        rvi_shared_deinit(&l->shared);
        l->shared = r->before;
    } else {
        rvi_shared_deinit(&r->before);
    }
    if (r->file.len) rvi_os_remove_tree(r->file.data); /* moved into place by now, or of no use */
    rvi_buf_deinit(&r->file);
    rvi_adapter_free(r->made.adapter);
    rvi_generation_deinit(&r->made);
    rvi_free(r->waiting);
    rvi_free(r->old);
    rvi_free(r->events);
    rvi_free(r->said);
    *r = (rvi_round){0};
}
