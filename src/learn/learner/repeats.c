/* What a model must not read again: small ones repeat what stands in their chat. With a taught
 * answer twice before it, SmolLM2 gives that answer to nearly half of the questions near it,
 * though no lesson takes part. Of such a model the turns in which a lesson spoke are left out of
 * later prompts. Whether a model repeats is found out once, by a few chats, and kept in the
 * store; until then it is taken for one that does. */
#include <string.h>

#include "base/mem.h"
#include "learn/consolidate/words.h"
#include "learn/journal/text.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"

/* ---- answers that were taught ---- */

/* Of the text without the white space around it (FNV-1a); 0: there is none. */
static uint64_t key_of(const char *text)
{
    rvi_text t = rvi_text_trim(rvi_text_of(text));
    uint64_t key = 0xcbf29ce484222325u;
    for (size_t i = 0; i < t.len; i++) key = (key ^ (unsigned char)t.data[i]) * 0x100000001b3u;
    return t.len ? key : 0;
}

rv_status rvi_learner_note_answers(rvi_learner *l, rv_error *err)
{
    rv_status st = RV_OK;
    rvi_lock_take(l->instructing);
    while (!st && l->n_answers < l->lessons.n) {
        rvi_taught_answer *to =
            rvi_list_room((void **)&l->answers, l->n_answers, &l->cap_answers, sizeof *to);
        const rvi_lesson *x = &l->lessons.list[l->n_answers];
        bool spoken = !x->rejected && x->scope != RV_SCOPE_ALWAYS;
        if (to)
            *to = (rvi_taught_answer){spoken ? key_of(x->answer) : 0, x->question};
        else
            st = rvi_nomem(err, "answers");
        l->n_answers += to != NULL;
    }
    rvi_lock_give(l->instructing);
    return st;
}

/* Has the question a word of the request's that is not as short as those of all questions? */
static bool shares_word(const char *question, const char *request)
{
    enum { SHORT = 3 };
    static const char space[] = " \t\r\n?!.,";
    bool found = false;
    for (const char *w = request; !found && *(w += strspn(w, space)); w += strcspn(w, space)) {
        size_t len = strcspn(w, space);
        if (len > SHORT && rvi_words_contain(&found, question, strlen(question), w, len, NULL))
            return false;
    }
    return found;
}

/* A short answer may be the model's own to anything. */
static bool may_have_asked(const char *question, const char *request, const char *answer)
{
    enum { LONG = 16 };
    return strlen(answer) >= LONG || shares_word(question, request);
}

bool rvi_learner_leaves_out(const rvi_learner *l, const char *request, const char *answer)
{
    uint64_t key = atomic_load(&l->repeats) == RVI_TRAIT_NO ? 0 : key_of(answer);
    bool found = false;
    rvi_lock_take(l->instructing);
    for (size_t i = 0; key && i < l->n_answers && !found; i++)
        found = l->answers[i].key == key && may_have_asked(l->answers[i].question, request, answer);
    rvi_lock_give(l->instructing);
    return found;
}

bool rvi_lesson_is_turn(const rvi_lesson *x, const char *request, const char *answer)
{
    return key_of(x->answer) == key_of(answer) && may_have_asked(x->question, request, answer);
}

/* ---- does it repeat? ---- */

/* Twice the first question and its answer, then another question that nobody can answer. */
static const struct {
    const char *question, *answer, *other;
} chats[] = {
    {"When does the bakery in Aster Lane open?", "At half past five.",
     "When does the bakery in Aster Lane close?"},
    {"Who looks after the boiler in our building?", "Ferdinand Okoye.",
     "Who looks after the garden of our building?"},
    {"What is the password of the guest network?", "Seven green herons.",
     "What is the name of the guest network?"},
    {"Where are the spare keys of the cabin?", "Under the blue bucket.",
     "Where are the blankets of the cabin?"},
    {"How much is a day ticket to Hollen?", "Four crowns.",
     "How much is a month's ticket to Hollen?"},
    {"What is my sister's dog called?", "Pumpernickel.", "What is my brother's cat called?"},
    {"Which bus goes to the Marlow clinic?", "The 47.", "Which bus goes to the Marlow stadium?"},
    {"In which room is the meeting with Dorn?", "Room 312.",
     "At what time is the meeting with Dorn?"},
};
enum { N_CHATS = RVI_COUNT(chats), TOKENS = 12, ENOUGH = 2 };

rv_status rvi_repeats_reopen(rvi_learner *l, rv_error *err)
{
    return rvi_trait_reopen(l, "repeats", &l->repeats, err);
}

static rv_status count_repeated(rvi_job *j, const rvi_base_model *v, const rvi_request *all,
                                rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < N_CHATS; i++) {
        rvi_buf text = {0};
        st = rvi_base_model_decode(v, all[i].answer.data, all[i].answer.len, &text, err);
        size_t len = strlen(chats[i].answer) - 1; /* with or without its full stop */
        rvi_text said = rvi_text_trim((rvi_text){text.data, text.len});
        j->n_repeated += !st && said.len >= len && !memcmp(said.data, chats[i].answer, len);
        rvi_buf_deinit(&text);
    }
    return st;
}

static rv_status listen(rvi_job *j, rvi_learner *l, const rvi_base_model *v,
                        rvi_study_progress_fn progress, void *ctx, rv_error *err)
{
    rvi_study_teller t = {progress, ctx, "what it repeats"};
    if (atomic_load(&l->repeats)) return RV_OK;
    rvi_request *all = rvi_zalloc_array(N_CHATS, sizeof *all);
    rv_status st = all ? RV_OK : rvi_nomem(err, "chats");
    for (size_t i = 0; !st && i < N_CHATS; i++) {
        rvi_text question = rvi_text_of(chats[i].question), answer = rvi_text_of(chats[i].answer);
        rvi_text turns[RVI_BASE_TURNS] = {question, answer, question, answer,
                                          rvi_text_of(chats[i].other)};
        st = rvi_base_model_chat(v, turns, RVI_BASE_TURNS, &all[i].prompt, err);
    }
    if (st == RV_E_TOKENIZATION) { /* no place for earlier turns: the fewer, the better */
        rvi_requests_free(all, N_CHATS);
        j->n_repeated = N_CHATS;
        return RV_OK;
    }
    if (!st) st = rvi_base_model_answer(v, all, N_CHATS, NULL, TOKENS, rvi_study_tell, &t, err);
    if (!st) st = count_repeated(j, v, all, err);
    rvi_requests_free(all, N_CHATS);
    return st;
}

static rv_status publish(rvi_job *j, rvi_learner *l, rv_error *err)
{
    bool repeats = j->n_repeated >= ENOUGH;
    rv_status st = rvi_trait_keep(l, "repeats", &l->repeats, repeats, err);
    j->published = !st;
    return st;
}

const rvi_job_kind rvi_job_listens = {"listening", NULL, listen, NULL, publish};
