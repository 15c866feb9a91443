/* A round: what waits, a group of corrections or all pairs, becomes an adapter, which becomes a
 * generation.
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
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"
#include "text/frames.h"

static bool is_of_pairs(const rvi_job *j)
{
    return j->kind == &rvi_job_trains_deep;
}

static bool is_deep(const rvi_job *j)
{
    return j->deep || is_of_pairs(j);
}

/* Is this what such a job trains? */
static bool is_meant(const rvi_job *j, const rvi_lesson *x)
{
    return is_of_pairs(j) ? rvi_lesson_prefers(x) : rvi_lesson_answers(x);
}

static size_t count_waiting(const rvi_learner *l, bool (*is)(const rvi_lesson *x))
{
    size_t n = 0;
    for (size_t i = 0; i < l->lessons.n; i++)
        n += is(&l->lessons.list[i]) && !l->lessons.list[i].generation;
    return n;
}

size_t rvi_learner_waiting(const rvi_learner *l)
{
    return count_waiting(l, rvi_lesson_answers);
}

size_t rvi_learner_pairs_waiting(const rvi_learner *l)
{
    return count_waiting(l, rvi_lesson_prefers);
}

size_t rvi_learner_standing(const rvi_learner *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->lessons.n; i++) n += rvi_lesson_answers(&l->lessons.list[i]);
    return n;
}

/* What waits as groups of much the same size, none above the limit: lessons are kept apart the
 * better the fewer share an adapter. */
static size_t even_share(size_t waiting, int limit)
{
    size_t groups = (waiting + (size_t)limit - 1) / (size_t)limit;
    return groups ? (waiting + groups - 1) / groups : 0;
}

static rv_status take(rvi_job *j, rvi_learner *l, rv_error *err)
{
    bool pairs = is_of_pairs(j), shared = !pairs && l->o.shared;
    rv_status st = rvi_learner_own(l, err);
    if (!st && shared) st = rvi_shared_restore(l, err); /* a round may have failed since */
    if (st) return st;
    size_t n = l->lessons.n + 1,
           most = pairs ? n : even_share(rvi_learner_waiting(l), l->o.group_size);
    j->waiting = rvi_alloc_array(n, sizeof *j->waiting);
    j->old = rvi_alloc_array(n, sizeof *j->old);
    j->events = rvi_alloc_array(n, sizeof *j->events);
    j->said = rvi_alloc_array(n, sizeof *j->said);
    if (!j->waiting || !j->old || !j->events || !j->said) return rvi_nomem(err, "lessons");
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        const rvi_lesson_text taught = {x->question, x->answer, x->rejected};
        if (!is_meant(j, x)) continue;
        if (x->generation && shared) {
            j->said[j->n_old] = x->event;
            j->old[j->n_old++] = taught;
        } else if (!x->generation && j->n_waiting < most) {
            j->events[j->n_waiting] = x->event;
            j->waiting[j->n_waiting++] = taught;
        }
    }
    j->made = (rvi_generation){.number = l->generations.last_number + 1,
                               .origin = pairs    ? RVI_FROM_PAIRS
                                         : shared ? RVI_FROM_SHARED
                                                  : RVI_FROM_GROUP,
                               .recipe = (rvi_recipe)l->o.recipe,
                               .gated = !pairs && (shared || l->o.recipe == RVI_RECIPE_GATED)};
    rvi_generations_name_lost(&l->generations, &j->made);
    if (j->n_waiting) {
        j->made.first = j->events[0];
        j->made.last = j->events[j->n_waiting - 1];
    }
    j->n = (int)j->n_waiting;
    return rvi_feedback_count(&l->store, &j->made.known, err);
}

/* ---- training ---- */

/* Judges which lesson of the group, or of those rehearsed, a text asks for: a recogniser of the
 * round's own, on the backend of whoever trains, since the learner's serves requests meanwhile.
 * *out NULL: none is needed. */
static rv_status make_judge(const rvi_job *j, const rvi_learner *l, const rvi_base_model *v,
                            rvi_embedder **embedder, rvi_recogniser **out, rv_error *err)
{
    const rvi_learner_parts *p = &l->parts;
    rv_status st = RV_OK;
    if (is_of_pairs(j) || !(l->o.sources & (RVI_TEXTS_OWN | RVI_TEXTS_PARTS))) return RV_OK;
    if (p->embedder) st = rvi_embedder_new(embedder, p->embedder, p->embedder_t, v->be, err);
    if (!st) st = rvi_recogniser_new(out, *embedder, NULL, err);
    for (size_t i = 0; !st && i < j->n_waiting + j->n_old; i++) {
        const rvi_lesson_text *x = i < j->n_waiting ? &j->waiting[i] : &j->old[i - j->n_waiting];
        st = rvi_recogniser_add(*out, i + 1, x->question, x->answer, err);
    }
    return st;
}

static rv_status study(rvi_job *j, rvi_learner *l, rvi_recogniser *judge,
                       rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    const rvi_study by = {&l->o, judge, is_deep(j), l->digest, progress, ctx};
    rvi_study_result *figures = &j->made.figures;
    rvi_params *theta = NULL;
    rv_status st;
    if (j->made.origin == RVI_FROM_SHARED) {
        st = rvi_study_shared(&l->shared, &l->baseline, j->waiting, j->n_waiting, j->old, j->n_old,
                              &by, figures, err);
        if (!st) st = rvi_shared_record(&j->made, &l->shared, err);
        return st ? st : rvi_adapter_copy(&j->made.adapter, l->shared.theta->adapter, err);
    }
    st = is_of_pairs(j)
             ? rvi_study_pairs(&theta, &l->baseline, j->waiting, j->n_waiting, j->loss, &by,
                               figures, err)
             : rvi_study_group(&theta, &l->baseline, j->waiting, j->n_waiting, &by, figures, err);
    if (!st) st = rvi_adapter_copy(&j->made.adapter, theta->adapter, err);
    rvi_params_free(theta);
    return st;
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
static rv_status look_at(rvi_job *j, const rvi_base_model *v, size_t k, const rvi_ids *answer,
                         rv_error *err)
{
    bool said = false;
    rv_status st = is_answer(&said, v, answer, j->waiting[k / WORDINGS].answer, err);
    if (k % WORDINGS) {
        j->made.n_wordings++;
        j->made.n_wordings_said += said;
    } else {
        j->made.n_said += said;
    }
    return st;
}

/* How much of what was taught does the adapter alone say? Of a longer answer than this it is not
 * asked. */
static rv_status count_said(rvi_job *j, const rvi_learner *l, const rvi_base_model *v,
                            rv_error *err)
{
    enum { TOKENS = 64 };
    rvi_adapter_use use = {j->made.adapter, 1};
    rvi_adapter_set set = {
        .uses = &use, .n = 1, .serial = l->parts.new_serial(l->parts.serial_ctx)};
    size_t n = 0, most = j->n_waiting * WORDINGS;
    rvi_request *asked = rvi_zalloc_array(most, sizeof *asked);
    size_t *which = rvi_alloc_array(most, sizeof *which);
    rv_status st = asked && which ? RV_OK : rvi_nomem(err, "check");
    for (size_t k = 0; !st && k < most; k++) {
        rvi_buf text = {0};
        st = put_wording(&text, j->waiting[k / WORDINGS].question, (int)(k % WORDINGS), err);
        if (!st && text.len) {
            which[n] = k;
            asked[n].adapters = &set;
            st = rvi_base_model_prompt(v, text.data, text.len, &asked[n++].prompt, err);
        }
        rvi_buf_deinit(&text);
    }
    if (!st) st = rvi_base_model_answer(v, asked, n, NULL, TOKENS, NULL, NULL, err);
    for (size_t i = 0; !st && i < n; i++) st = look_at(j, v, which[i], &asked[i].answer, err);
    rvi_requests_free(asked, n);
    rvi_free(which);
    return st;
}

static rv_status train(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                       rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_embedder *embedder = NULL;
    rvi_recogniser *judge = NULL;
    rv_status st = rvi_learner_need_baseline(l, v, progress, ctx, err);
    if (st) return st;
    st = make_judge(j, l, v, &embedder, &judge, err);
    if (!st) st = study(j, l, judge, progress, ctx, err);
    rvi_recogniser_free(judge);
    rvi_embedder_free(embedder);
    rvi_baseline_use(&l->baseline, &l->base);
    if (!st && !is_of_pairs(j) && !l->o.no_slots) st = count_said(j, l, v, err);
    if (!st) st = rvi_source_check(v->m->source, err); /* gradients of a file that was all there */
    for (size_t i = 0; !st && i < j->n_waiting; i++)
        st = rvi_generation_learn(&j->made, j->events[i], err);
    if (!st) st = rvi_adapter_digest(j->made.adapter, j->made.digest, err);
    if (!st) st = rvi_learner_save_early(l, v, &j->made, &j->file, err);
    return st;
}

/* ---- publishing ---- */

static bool is_current(const rvi_job *j, const rvi_learner *l)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < l->lessons.n && k < j->n_old; i++) {
        if (l->lessons.list[i].event != j->said[k]) continue;
        if (!l->lessons.list[i].in_force) return false;
        k++;
    }
    for (size_t i = 0; i < l->lessons.n; i++) {
        const rvi_lesson *x = &l->lessons.list[i];
        if (x->event < j->made.first || x->event > j->made.last || x->generation || !is_meant(j, x))
            continue;
        if (n == j->n_waiting || j->events[n] != x->event) return false;
        n++;
    }
    return n == j->n_waiting;
}

static rv_status publish(rvi_job *j, rvi_learner *l, rv_error *err)
{
    const char *note = !is_deep(j) ? NULL : j->loss == RV_LOSS_KTO ? "kto" : "dpo";
    rv_status st = rvi_learner_own(l, err); /* others may have taken something back */
    if (st || !is_current(j, l)) return st;
    st = rvi_learner_publish_made(l, &j->made, j->file.len ? j->file.data : NULL, note, NULL, err);
    if (st) return st;
    rvi_shared_save(l, &j->made);
    rvi_job_published(j);
    rvi_learner_unload_idle(l);
    return RV_OK;
}

const rvi_job_kind rvi_job_trains = {"training", take, train, is_current, publish};
const rvi_job_kind rvi_job_trains_deep = {"training deep", take, train, is_current, publish};
