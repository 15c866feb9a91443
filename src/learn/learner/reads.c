/* Whether a model can read a lesson that stands as a turn before a request: it words the answer
 * itself where the lesson tells it, and leaves the lesson alone where it does not. Small models
 * give its answer to almost anything. So that is found out once, by invented lessons, each with a
 * request that needs it, and with questions near it that are answered with it and without. Until
 * it is known the model is taken for one that does not read. */
#include <string.h>

#include "base/mem.h"
#include "learn/journal/text.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

/* The requests of a lesson, in their order: the one that needs it, then each near one with the
 * lesson before it and alone. */
enum { EACH = 1 + 2 * RVI_NEAR, N_REQUESTS = RVI_INVENTED * EACH, TOKENS = 24 };

bool rvi_learner_reads(const rvi_learner *l)
{
    if (l->o.no_slots || l->o.reading == RVI_READING_OFF) return false;
    return l->o.reading == RVI_READING_ON || atomic_load(&l->reads) == RVI_TRAIT_YES;
}

static rv_status ask(const rvi_base_model *v, int lesson, const char *request, bool read,
                     rvi_request *out, rv_error *err)
{
    const rvi_text turns[] = {rvi_text_of(rvi_invented_lessons[lesson].question),
                              rvi_text_of(rvi_invented_lessons[lesson].answer),
                              rvi_text_of(request)};
    return read ? rvi_base_model_chat(v, turns, 3, &out->prompt, err)
                : rvi_base_model_chat(v, turns + 2, 1, &out->prompt, err);
}

static rv_status judge(const rvi_base_model *v, const rvi_request *all, bool *reads, rv_error *err)
{
    rvi_buf texts[N_REQUESTS] = {{0}};
    rvi_invented_answers answers[RVI_INVENTED];
    rv_status st = RV_OK;
    for (int i = 0; !st && i < N_REQUESTS; i++) {
        st = rvi_base_model_decode(v, all[i].answer.data, all[i].answer.len, &texts[i], err);
        if (!st && !rvi_buf_puts(&texts[i], "")) st = rvi_nomem(err, "answers");
    }
    for (int i = 0; i < RVI_INVENTED; i++) {
        const rvi_buf *t = texts + i * EACH;
        answers[i].needed = t[0].data;
        for (int k = 0; k < RVI_NEAR; k++) {
            answers[i].near[k] = t[1 + 2 * k].data;
            answers[i].alone[k] = t[2 + 2 * k].data;
        }
    }
    if (!st) st = rvi_invented_judge(answers, reads, err);
    for (int i = 0; i < N_REQUESTS; i++) rvi_buf_deinit(&texts[i]);
    return st;
}

rv_status rvi_reads_reopen(rvi_learner *l, rv_error *err)
{
    return rvi_trait_reopen(l, "reads", &l->reads, err);
}

static rv_status try_lessons(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                             rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "whether it reads"};
    if (atomic_load(&l->reads)) return RV_OK;
    rvi_request *all = rvi_zalloc_array(N_REQUESTS, sizeof *all), *to = all;
    rv_status st = all ? RV_OK : rvi_nomem(err, "chats");
    for (int i = 0; !st && i < RVI_INVENTED; i++) {
        st = ask(v, i, rvi_invented_lessons[i].needed, true, to++, err);
        for (int k = 0; !st && k < 2 * RVI_NEAR; k++)
            st = ask(v, i, rvi_invented_lessons[i].near[k / 2], k % 2 == 0, to++, err);
    }
    bool has_place = st != RV_E_TOKENIZATION; /* its template takes earlier turns */
    if (!has_place) st = RV_OK;
    if (!st && has_place)
        st = rvi_base_model_answer(v, all, N_REQUESTS, NULL, TOKENS, rvi_study_tell, &t, err);
    if (!st && has_place) st = judge(v, all, &j->reads, err);
    rvi_requests_free(all, N_REQUESTS);
    return st;
}

static rv_status publish(rvi_job *j, rvi_learner *l, rv_error *err)
{
    rv_status st = rvi_trait_keep(l, "reads", &l->reads, j->reads, err);
    j->published = !st;
    return st;
}

const rvi_job_kind rvi_job_reads = {"trying to read", NULL, try_lessons, NULL, publish};
