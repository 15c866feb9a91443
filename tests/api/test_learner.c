/* Learners through the public interface, over a tiny model: feedback that makes no sense, answers
 * bit for bit as they were, and objects that end in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/memory_store.h"
#include "api/opened.h"
#include "learn/tiny_model.h"

static tiny t;

static int open_tiny(void **state)
{
    (void)state;
    tiny_open(&t);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    tiny_close(&t);
    return 0;
}

static rv_session *new_session(void)
{
    rv_session *s;
    rv_session_options o;
    o = (rv_session_options){.size = sizeof o};
    o.n_context = 512;
    assert_ok(rv_session_new(&s, t.m, &o, err));
    return s;
}

static rv_learner_options options(const rv_store *store)
{
    return (rv_learner_options){.size = sizeof(rv_learner_options),
                                .store = store,
                                .seed = 5,
                                .experiments = "n_steps=6,rank=2"};
}

static rv_learner *new_learner(const rv_store *store)
{
    rv_learner *l;
    rv_learner_options o = options(store);
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    return l;
}

/* ---- asking ---- */

typedef struct planned {
    int gate_open, slot;
    char answer[64];
} planned;

static planned begin(rv_learner *l, rv_session *s, const char *question)
{
    rv_message message = {"user", question, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_learn_plan *plan;
    assert_ok(rv_learner_begin(l, s, &chat, &plan, err));
    planned out = {.gate_open = plan->gate_open, .slot = plan->slot};
    snprintf(out.answer, sizeof out.answer, "%s", plan->answer);
    rv_free(plan);
    return out;
}

/* Was something changed? */
static int applied(rv_adaptation *a)
{
    int yes = a->applied;
    rv_free(a);
    return yes;
}

enum { PROMPT = 6, ANSWER = 12, MOST_VOCAB = 2048 };
static const int32_t prompt[PROMPT] = {40, 70, 84, 96, 20, 11};

typedef struct said {
    int32_t ids[ANSWER];
    float logits[MOST_VOCAB]; /* behind the prompt */
    size_t n, n_vocab;
} said;

/* What a session says next, in a session of its own: nothing of it was computed before. l may be
 * NULL. */
static said ask(rv_learner *l, const char *question)
{
    said out = {.n_vocab = (size_t)t.m->model->hp.n_vocab};
    rv_session *s = new_session();
    rv_generate_options g = greedy(ANSWER);
    rv_answer *got = NULL;
    float *logits;
    assert_true(out.n_vocab <= MOST_VOCAB);
    if (l) (void)begin(l, s, question);
    assert_ok(rv_session_sync(s, prompt, PROMPT, NULL, &logits, err));
    memcpy(out.logits, logits, out.n_vocab * sizeof *logits);
    assert_ok(rv_session_generate(s, prompt, PROMPT, &g, &got, err));
    out.n = got->n_ids;
    memcpy(out.ids, got->ids, got->n_ids * sizeof *got->ids);
    rv_free(got);
    rv_session_free(&s);
    return out;
}

static bool equal(const said *a, const said *b)
{
    return a->n == b->n && !memcmp(a->ids, b->ids, a->n * sizeof *a->ids) &&
           !memcmp(a->logits, b->logits, a->n_vocab * sizeof *a->logits);
}

/* An answer that can be judged. */
static void answer(rv_learner *l, rv_session *s, const char *question)
{
    rv_generate_options g = greedy(ANSWER);
    rv_answer *got = NULL;
    (void)begin(l, s, question);
    assert_ok(rv_session_generate(s, prompt, PROMPT, &g, &got, err));
    rv_free(got);
}

static const char dog[] = "What is Kakovin's dog?", tea[] = "Tell me about tea.";

/* ---- tests ---- */

static int count_given(void *ctx, const rvi_feedback *f)
{
    *(int *)ctx += f->given.len > 0;
    return 0;
}

static void judgements_need_an_answer(void **state)
{
    (void)state;
    rv_learner *l = new_learner(NULL), *other = new_learner(NULL);
    rv_session *s = new_session();
    uint64_t n;
    assert_refused(RV_E_LEARNING, rv_learner_score(l, s, 0.5, NULL, err));
    assert_refused(RV_E_LEARNING, rv_learner_thumb(l, s, 0, NULL, err));
    assert_refused(RV_E_LEARNING, rv_learner_correct(l, s, NULL, "Rex", NULL, err));
    (void)begin(l, s, dog); /* asked, not answered */
    assert_refused(RV_E_LEARNING, rv_learner_score(l, s, 0.5, NULL, err));
    assert_refused(RV_E_LEARNING, rv_learner_thumb(l, s, 0, NULL, err));
    answer(l, s, dog);
    assert_refused(RV_E_LEARNING, rv_learner_score(other, s, 0.5, NULL, err)); /* not its answer */
    assert_refused(RV_E_INVALID, rv_learner_score(l, s, NAN, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_score(l, s, 2, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_score(l, s, -0.01, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_score(l, s, INFINITY, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_score(l, NULL, 0.5, NULL, err));
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, 0);
    assert_ok(rv_learner_score(l, s, 0.5, NULL, err));
    assert_ok(rv_learner_thumb(l, s, 0, NULL, err));
    assert_ok(rv_learner_correct(l, s, NULL, "Rex", NULL, err)); /* with what was said instead */
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, 3);
    int n_given = 0; /* each says what it is about */
    assert_ok(rvi_feedback_read(&l->l->store, 1, count_given, &n_given, err));
    assert_int_equal(n_given, 3);
    rv_session_free(&s);
    rv_learner_free(&l);
    rv_learner_free(&other);
}

static void bad_texts_are_refused(void **state)
{
    (void)state;
    enum { HUGE = (64 << 10) + 1 };
    rv_learner *l = new_learner(NULL);
    rv_session *s = new_session();
    static char huge[HUGE + 1];
    static const char *const broken[] = {"", "{", "[]", "{\"messages\":3}", "\xFF"};
    uint64_t n;
    memset(huge, 'x', HUGE);
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, dog, "", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, dog, " \n", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, dog, huge, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, huge, "Rex", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, dog, "\xC3\x28", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, NULL, "Rex", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_correct(l, NULL, dog, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_prefer(l, dog, "Rex", "\x80", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_prefer(l, dog, "Rex", "Rex", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_forget(l, "", NULL, err));
    assert_refused(RV_E_INVALID, rv_learner_forget(l, huge, NULL, err));
    for (size_t i = 0; i < RVI_COUNT(broken); i++) {
        rv_error e = {0};
        rv_chat chat = {.size = sizeof chat, .variables = broken[i]};
        rv_status st = rv_learner_begin(l, s, &chat, NULL, &e);
        assert_true(st == RV_OK || e.text[0]); /* no turn of a user is nothing to look for */
    }
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, 0);
    rv_session_free(&s);
    rv_learner_free(&l);
}

/* Where no taught subject is named everything is as without a learner, bit for bit. */
static void closed_gates_change_nothing(void **state)
{
    (void)state;
    said base = ask(NULL, NULL);
    rv_learner *l = new_learner(NULL);
    rv_session *s = new_session();
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    planned plan = begin(l, s, dog);
    assert_int_equal(plan.gate_open, 1);
    assert_int_equal(plan.slot, 1);
    assert_string_equal(plan.answer, "Rex");
    said now = ask(l, dog);
    assert_memory_equal(now.logits, base.logits,
                        base.n_vocab * sizeof(float)); /* a slot locks tokens */
    assert_false(equal(&now, &base));
    plan = begin(l, s, tea);
    assert_int_equal(plan.gate_open, 0);
    now = ask(l, tea);
    assert_true(equal(&now, &base));
    assert_ok(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, err));
    now = ask(l, dog); /* with the adapter */
    assert_memory_not_equal(now.logits, base.logits, base.n_vocab * sizeof(float));
    now = ask(l, tea);
    assert_true(equal(&now, &base));
    rv_session_free(&s);
    rv_learner_free(&l);
}

static void undo_is_exact(void **state)
{
    (void)state;
    rv_learner *l = new_learner(NULL);
    rv_session *s = new_session();
    rv_adaptation *a;
    for (int i = 0; i < 4; i++) { /* a history */
        answer(l, s, tea);
        assert_ok(rv_learner_score(l, s, i % 2, NULL, err));
    }
    said before = ask(l, tea);
    answer(l, s, tea);
    assert_ok(rv_learner_score(l, s, 1, &a, err));
    assert_int_equal(applied(a), 1);
    said after = ask(l, tea);
    assert_false(equal(&before, &after));
    assert_ok(rv_learner_undo(l, NULL, err));
    after = ask(l, tea);
    assert_true(equal(&before, &after));
    answer(l, s, tea);
    assert_ok(rv_learner_thumb(l, s, 0, &a, err));
    assert_int_equal(applied(a), 1);
    after = ask(l, tea);
    assert_false(equal(&before, &after));
    said elsewhere = ask(l, dog), other = elsewhere;
    assert_ok(rv_learner_undo(l, NULL, err));
    after = ask(l, tea);
    assert_true(equal(&before, &after));
    elsewhere = ask(l, dog); /* a thumb had not touched it */
    assert_true(equal(&elsewhere, &other));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    after = ask(l, dog);
    assert_false(equal(&after, &other));
    assert_ok(rv_learner_undo(l, NULL, err));
    after = ask(l, dog);
    assert_true(equal(&after, &other));
    uint64_t version = rv_learner_version(l);
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_ok(rv_learner_correct(l, NULL, tea, "green", NULL, err));
    assert_ok(rv_learner_undo_to(l, version, &a, err));
    assert_int_equal(applied(a), 1);
    after = ask(l, dog);
    assert_true(equal(&after, &other));
    after = ask(l, tea);
    assert_true(equal(&after, &before));
    assert_ok(rv_learner_undo_to(l, rv_learner_version(l), &a, err));
    assert_int_equal(applied(a), 0);
    assert_refused(RV_E_NOT_FOUND, rv_learner_undo_to(l, rv_learner_version(l) + 1, NULL, err));
    rv_session_free(&s);
    rv_learner_free(&l);
}

static void learners_answer_as_before_they_were_closed(void **state)
{
    (void)state;
    rvi_store memory;
    char path[256];
    rv_learner *l;
    assert_ok(rvi_store_memory(&memory, err));
    rv_store store = memory_store(&memory);
    rv_learner_options o = options(&store);
    o.dir = tiny_path(&t, path, "restart");
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_ok(rv_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, NULL, err));
    assert_ok(rv_learner_correct(l, NULL, "What is Bellamira's job?", "chess", NULL, err));
    said one = ask(l, dog), two = ask(l, "What is Bellamira's job?"), none = ask(l, tea);
    for (int i = 0; i < 2; i++) {
        rv_learner_free(&l);
        assert_ok(rv_learner_new(&l, t.m, &o, err));
        said again = ask(l, dog);
        assert_true(equal(&again, &one));
        again = ask(l, "What is Bellamira's job?");
        assert_true(equal(&again, &two));
        again = ask(l, tea);
        assert_true(equal(&again, &none));
    }
    /* back to the base, and the weights are as they were */
    assert_ok(rv_learner_rollback(l, 0, NULL, err));
    said base = ask(NULL, NULL), rolled = ask(l, dog);
    assert_memory_equal(base.logits, rolled.logits, base.n_vocab * sizeof(float));
    assert_refused(RV_E_NOT_FOUND, rv_learner_rollback(l, 9, NULL, err));
    rv_learner_free(&l);
    rvi_store_close(&memory);
}

static void objects_end_in_any_order(void **state)
{
    (void)state;
    char path[256];
    for (int order = 0; order < 24; order++) {
        rv_runtime *rt;
        rv_model *m;
        rv_session *s;
        rv_learner *l;
        rv_adapter_set *set;
        rv_runtime_options ro;
        rv_learner_options lo = options(NULL);
        ro = (rv_runtime_options){.size = sizeof ro};
        ro.n_threads = 1;
        assert_ok(rv_runtime_new(&rt, &ro, err));
        assert_ok(rv_model_open(&m, rt, tiny_path(&t, path, "tiny.gguf"), NULL, err));
        assert_ok(rv_session_new(&s, m, NULL, err));
        assert_ok(rv_learner_new(&l, m, &lo, err));
        answer(l, s, tea);
        assert_ok(rv_learner_score(l, s, 0, NULL, err));
        assert_ok(rv_learner_score(l, s, 1, NULL, err)); /* now it has an adapter */
        answer(l, s, tea);
        assert_ok(rv_learner_adapters(l, &set, err));
        int left[4] = {0, 1, 2, 3}, k = order;
        rv_runtime_free(&rt);
        for (int n = 4; n > 0; n--) {
            int at = k % n, what = left[at];
            k /= n;
            memmove(left + at, left + at + 1, (size_t)(n - 1 - at) * sizeof *left);
            if (what == 0) rv_model_close(&m);
            if (what == 1) rv_session_free(&s);
            if (what == 2) rv_learner_free(&l);
            if (what == 3) rv_adapter_set_free(&set);
        }
    }
}

/* Between the decision what to say and the answer the learner may lose all it knows. */
static void a_slot_outlives_its_lesson(void **state)
{
    (void)state;
    said before[2];
    for (int reset = 0; reset < 2; reset++) {
        rv_learner *l = new_learner(NULL);
        rv_session *s = new_session();
        rv_generate_options g = greedy(ANSWER);
        rv_answer *got = NULL;
        assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
        assert_int_equal(begin(l, s, dog).slot, 1);
        if (reset) assert_ok(rv_learner_reset(l, err));
        assert_ok(rv_session_generate(s, prompt, PROMPT, &g, &got, err));
        before[reset].n = got->n_ids;
        memcpy(before[reset].ids, got->ids, got->n_ids * sizeof *got->ids);
        rv_free(got);
        rv_session_free(&s);
        rv_learner_free(&l);
    }
    assert_int_equal(before[0].n, before[1].n);
    assert_memory_equal(before[0].ids, before[1].ids, before[0].n * sizeof *before[0].ids);
}

/* A thumb down for a correction's own question silences it in any wording, until it is corrected
 * again. */
static void a_thumb_silences_a_slot(void **state)
{
    (void)state;
    rvi_store memory;
    assert_ok(rvi_store_memory(&memory, err));
    rv_store store = memory_store(&memory);
    rv_learner *l = new_learner(&store);
    rv_session *s = new_session();
    rv_adaptation *a;
    static const char other[] = "Which dog is Kakovin's?";
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    answer(l, s, dog);
    assert_ok(rv_learner_thumb(l, s, 0, &a, err));
    assert_int_equal(applied(a), 1);
    assert_int_equal(begin(l, s, dog).slot, 0);
    assert_int_equal(begin(l, s, other).slot, 0);
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_int_equal(begin(l, s, other).slot, 1);
    assert_int_equal(begin(l, s, dog).slot, 1);
    answer(l, s, dog);
    assert_ok(rv_learner_thumb(l, s, 0, NULL, err));
    rv_session_free(&s);
    rv_learner_free(&l);
    l = new_learner(&store);
    s = new_session();
    assert_int_equal(begin(l, s, dog).slot, 0);
    assert_int_equal(begin(l, s, other).slot, 0);
    assert_ok(rv_learner_correct(l, NULL, dog, "Max", NULL, err));
    assert_int_equal(begin(l, s, dog).slot, 1);
    assert_int_equal(begin(l, s, other).slot, 1);
    rv_session_free(&s);
    rv_learner_free(&l);
    rvi_store_close(&memory);
}

/* What was turned down is avoided wherever it was, whatever was turned down since. */
static void old_thumbs_stay(void **state)
{
    (void)state;
    enum { ASKED = 67 };
    rv_learner *l = new_learner(NULL);
    rv_session *s = new_session();
    rv_adaptation *a;
    char question[ASKED][40];
    said plain = ask(NULL, NULL), now;
    for (int i = 0; i < ASKED; i++) {
        snprintf(question[i], sizeof question[i], "Tell me about number %d.", i);
        answer(l, s, question[i]);
        assert_ok(rv_learner_thumb(l, s, 0, &a, err));
        assert_int_equal(applied(a), 1);
    }
    for (int i = 0; i < ASKED; i++) {
        now = ask(l, question[i]);
        assert_false(equal(&now, &plain));
    }
    rv_session_free(&s);
    rv_learner_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judgements_need_an_answer),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(closed_gates_change_nothing),
        cmocka_unit_test(undo_is_exact),
        cmocka_unit_test(learners_answer_as_before_they_were_closed),
        cmocka_unit_test(objects_end_in_any_order),
        cmocka_unit_test(a_slot_outlives_its_lesson),
        cmocka_unit_test(a_thumb_silences_a_slot),
        cmocka_unit_test(old_thumbs_stay),
    };
    return cmocka_run_group_tests_name("learner api", tests, open_tiny, close_tiny);
}
