/* A learner from the inside, over a tiny model: what it keeps, what it makes of it, that all of it
 * can be made again, and what happens when something goes wrong. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/blob.h"
#include "learn/snapshot.h"
#include "learn/tiny_model.h"
#include "store/file_store.h"

static tiny t;
static rvi_store calibrated; /* has what is made once for the model, and nothing else */

static int open_tiny(void **state)
{
    (void)state;
    rvi_learner *l;
    rvi_learner_options o = tiny_options();
    rvi_store lent;
    tiny_open(&t);
    assert_ok(rvi_store_memory(&calibrated, err));
    lent = tiny_lend(&calibrated);
    assert_ok(tiny_learner(&l, &t, &o, &lent, err));
    assert_ok(rvi_learner_calibrate(l, NULL, NULL, err));
    rvi_learner_free(l);
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    rvi_store_close(&calibrated);
    tiny_close(&t);
    return 0;
}

/* ---- learners ---- */

static rvi_learner *open_on(rvi_store *store, const rvi_learner_options *o)
{
    rvi_learner *l;
    rvi_store lent = tiny_lend(store);
    assert_ok(tiny_learner(&l, &t, o, &lent, err));
    return l;
}

/* Over a new store in memory; the caller closes it. */
static rvi_learner *open_new(rvi_store *store, const rvi_learner_options *o)
{
    assert_ok(rvi_store_memory(store, err));
    tiny_copy_model(store, &calibrated);
    return open_on(store, o);
}

static void close_both(rvi_learner *l, rvi_store *store)
{
    rvi_learner_free(l);
    rvi_store_close(store);
}

static void teach(rvi_learner *l, const char *question, const char *answer)
{
    rvi_adaptation a;
    assert_ok(rvi_learner_correct(l, question, answer, NULL, &a, err));
    assert_int_equal(a.applied, 1);
    assert_true(isnan(a.quality_delta));
}

static rvi_adaptation study(rvi_learner *l, rv_learn_loop loop)
{
    rvi_adaptation a;
    assert_ok(rvi_learner_consolidate(l, loop, RV_LOSS_DPO, NULL, NULL, &a, err));
    return a;
}

static int count_item(void *ctx, rvi_bytes key, rvi_bytes record)
{
    (void)key;
    (void)record;
    ++*(int *)ctx;
    return 0;
}

static const char dog[] = "What is Kakovin's dog?", job[] = "What is Bellamira's job?",
                  city[] = "What is Zuzanna's city?", car[] = "What is Orlandin's car?";

static void teach_two(rvi_learner *l)
{
    teach(l, dog, "Rex");
    teach(l, job, "plumber");
}

/* What the slot of the question's subject has to say; "": it is silent. Which of a subject's slots
 * speaks is a matter of meaning, and random weights know none: here a subject has one. */
static const char *slot_of(rvi_learner *l, const char *question)
{
    rvi_plan plan;
    assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
    rvi_learner_release(l, plan.adapters);
    return plan.subject && !rvi_learner_rests(l, plan.subject) ? plan.subject->fact->answer : "";
}

typedef struct digest {
    char hex[RVI_SHA256_HEX];
} digest;

static digest of_generation(rvi_learner *l, int number)
{
    digest d;
    const rvi_generation *g = rvi_learner_generation(l, number);
    assert_non_null(g);
    assert_ok(rvi_adapter_digest(g->adapter, d.hex, err));
    return d;
}

static void assert_same(digest a, digest b)
{
    assert_string_equal(a.hex, b.hex);
}

static void assert_same_bank(const uint8_t *want, rvi_learner *l)
{
    uint8_t now[RVI_SHA256_LEN];
    assert_ok(rvi_bank_digest(l->bank, now, err));
    assert_memory_equal(now, want, sizeof now);
}

/* ---- the bank ---- */

static void bank_follows_the_log(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    uint8_t before[RVI_SHA256_LEN];
    teach_two(l);
    assert_int_equal(rvi_bank_count(l->bank), 2);
    assert_int_equal(rvi_bank_last_event(l->bank), 2);
    const rvi_pattern *p = rvi_bank_at(l->bank, 0);
    assert_memory_equal(p->answer.data, "Rex", 3);
    assert_memory_equal(p->subject.data, "Kakovin", 7);
    assert_int_equal(p->verdict, RVI_VERDICT_SUCCESS);
    assert_true(p->n_dim > 0); /* calibrated: it knows what the question is like */
    assert_ok(rvi_bank_digest(l->bank, before, err));
    teach(l, dog, "Bello"); /* the newest wins */
    assert_int_equal(rvi_bank_at(l->bank, 0)->state, RVI_PATTERN_SUPERSEDED);
    assert_ok(rvi_learner_undo(l, &a, err));
    assert_same_bank(before, l);
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_ok(rvi_learner_prefer(l, "Tell me about tea.", "Tea is good.", "No.", &a, err));
    assert_int_equal(rvi_bank_count(l->bank), 4); /* the chosen and the rejected */
    assert_ok(rvi_learner_forget(l, "Kakovin", &a, err));
    assert_int_equal(rvi_bank_count(l->bank), 3);
    rvi_buf json = {0};
    assert_ok(rvi_learner_status(l, &json, err));
    assert_non_null(strstr(json.data, "\"patterns\":{\"count\":3,\"live\":3,"));
    rvi_buf_deinit(&json);
    close_both(l, &store);
}

static void bank_catches_up(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    uint8_t want[RVI_SHA256_LEN];
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_SCORE); /* logged, and then the power went */
    f.user = (rvi_text){"default", 7};
    f.answer = (rvi_text){"answer 1", 8};
    f.question = (rvi_text){"Tell me about tea.", 18};
    f.given = (rvi_text){"No.", 3};
    f.score = 0.1;
    assert_ok(rvi_feedback_append(&store, &f, err));
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_int_equal(rvi_bank_last_event(l->bank), 3);
    assert_int_equal(rvi_bank_count(l->bank), 3);
    assert_int_equal(rvi_bank_at(l->bank, 2)->verdict, RVI_VERDICT_FAILURE);
    assert_ok(rvi_bank_digest(l->bank, want, err));
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_same_bank(want, l);
    close_both(l, &store);
}

/* As if the weights said it: what a tiny model with random weights will not do by itself. */
static void mark_absorbed(rvi_learner *l, size_t lesson)
{
    l->lessons[lesson].absorbed = true;
    assert_ok(rvi_learner_keep_absorbed(l, &l->lessons[lesson], err));
    assert_ok(rvi_learner_absorb(l, err));
}

static void absorbed_slots_rest_until_a_rollback(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256];
    o.dir = tiny_path(&t, path, "absorbed");
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    assert_string_equal(slot_of(l, dog), "Rex");
    mark_absorbed(l, 0);
    assert_string_equal(slot_of(l, dog), "");
    assert_int_equal(rvi_bank_at(l->bank, 0)->state, RVI_PATTERN_ABSORBED);
    assert_int_equal(rvi_bank_at(l->bank, 1)->state, RVI_PATTERN_LIVE);
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_string_equal(slot_of(l, dog), "");
    assert_int_equal(rvi_bank_at(l->bank, 0)->state, RVI_PATTERN_ABSORBED);
    assert_ok(rvi_learner_rollback(l, 0, &a, err));
    assert_string_equal(slot_of(l, dog), "Rex"); /* nobody else would say it */
    assert_int_equal(rvi_bank_at(l->bank, 0)->state, RVI_PATTERN_LIVE);
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_int_equal(rvi_bank_at(l->bank, 0)->state, RVI_PATTERN_LIVE);
    rv_error e = {0};
    assert_int_equal(rvi_learner_rollback(l, 7, &a, &e), RV_E_NOT_FOUND);
    close_both(l, &store);
}

/* That an adapter says something by itself was seen while it was alone, asked what was taught. */
static void absorbed_slots_speak_where_nobody_looked(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_plan plan;
    const char *question = dog, *other = "What is the dog of Kakovin?";
    for (int groups = 1; groups <= 2; groups++) {
        teach(l, groups == 1 ? dog : "What is Kakovin's car?", groups == 1 ? "Rex" : "a Lada");
        study(l, RV_LOOP_BACKGROUND);
        mark_absorbed(l, 0);
        if (groups == 1) {
            assert_ok(rvi_learner_plan(l, &other, 1, &plan, err));
            rvi_learner_release(l, plan.adapters);
            assert_string_equal(plan.lesson->fact->answer, "Rex");
            const char *const turns[] = {"Hello.", dog};
            assert_ok(rvi_learner_plan(l, turns, 2, &plan, err));
            rvi_learner_release(l, plan.adapters);
            assert_non_null(plan.lesson);
        }
        assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
        rvi_learner_release(l, plan.adapters);
        assert_true((plan.lesson == NULL) == (groups == 1));
    }
    assert_string_equal(plan.lesson->fact->answer, "Rex");
    close_both(l, &store);
}

/* ---- what must hold whatever comes between ---- */

/* What an adapter's texts tell of other facts must stand too when it is published. */
static void rounds_look_at_all_they_told(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    teach(l, "What is Kakovin's car?", "a Lada");
    for (int meanwhile = 1; meanwhile >= 0; meanwhile--) {
        rvi_round r;
        bool published;
        assert_ok(rvi_round_take(&r, l, err));
        assert_ok(rvi_round_train(&r, l, &l->voice, NULL, NULL, err));
        if (meanwhile) assert_ok(rvi_learner_forget(l, "Rex", &a, err));
        if (meanwhile) assert_non_null(strstr(a.notes, "1 forgotten; adapters were trained on 1"));
        assert_int_equal(rvi_round_stands(&r, l), !meanwhile);
        assert_ok(rvi_round_publish(&r, l, &published, err));
        assert_int_equal(published, !meanwhile);
        rvi_round_deinit(&r, l);
    }
    close_both(l, &store);
}

/* A process that learns has the state to itself; one that knew it as it was before must open it
 * again. */
static void one_process_learns(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    char path[256];
    o.dir = tiny_path(&t, path, "owned");
    rvi_learner *l = open_new(&store, &o), *other = open_on(&store, &o);
    teach(l, dog, "Rex");
    assert_int_equal(rvi_learner_correct(other, job, "plumber", NULL, &a, &e), RV_E_STORAGE);
    assert_non_null(strstr(e.text, "another process"));
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_string_equal(slot_of(other, job), ""); /* nothing is half done */
    study(l, RV_LOOP_BACKGROUND);
    rvi_learner_free(l);
    assert_int_equal(rvi_learner_correct(other, job, "plumber", NULL, &a, &e), RV_E_STORAGE);
    assert_non_null(strstr(e.text, "open it again"));
    rvi_learner_free(other);
    l = open_on(&store, &o);
    teach(l, job, "plumber");
    study(l, RV_LOOP_BACKGROUND);
    assert_int_equal(rvi_learner_generation(l, 0)->number, 2);
    close_both(l, &store);
}

/* A file that is not the adapter the log names is left out, and what it was made of waits. */
static void published_files_are_known(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], from[320], to[320];
    o.dir = tiny_path(&t, path, "swapped");
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    study(l, RV_LOOP_BACKGROUND);
    double loss = rvi_learner_generation(l, 1)->figures.ce;
    teach(l, job, "plumber");
    study(l, RV_LOOP_BACKGROUND);
    rvi_learner_free(l);
    l = open_on(&store, &o); /* what merging weighs by comes back with it */
    assert_true(loss > 0 && fabs(rvi_learner_generation(l, 1)->figures.ce / loss - 1) < 1e-4);
    rvi_learner_free(l);
    snprintf(from, sizeof from, "%s/generation-000001.gguf", path);
    snprintf(to, sizeof to, "%s/generation-000002.gguf", path);
    assert_ok(rvi_os_replace(from, to, err));
    l = open_on(&store, &o);
    assert_int_equal(l->n_generations, 0);
    assert_int_equal(rvi_learner_waiting(l), 2);
    close_both(l, &store);
}

static void forgetting_is_for_good(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    char text[1100];
    rv_error e = {0};
    teach(l, dog, "Rex");
    teach(l, dog, "Fido");
    assert_ok(rvi_learner_forget(l, "Kakovin", &a, err));
    for (int i = 0; i < 2; i++) {
        assert_ok(rvi_learner_undo(l, &a, err));
        assert_int_equal(a.applied, 0);
        assert_string_equal(slot_of(l, dog), "");
        rvi_learner_free(l);
        l = open_on(&store, &o);
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(rvi_learner_forget(l, text, &a, &e), RV_E_INVALID);
    close_both(l, &store);
}

static void undo_takes_the_last_one(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    for (int reopened = 0; reopened < 2; reopened++) {
        teach(l, dog, "Rex");
        assert_ok(rvi_learner_prefer(l, "Tell me of tea.", "It is good.", "No.", &a, err));
        if (reopened) {
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        assert_ok(rvi_learner_undo(l, &a, err));
        assert_int_equal(a.applied, 1);
        assert_int_equal(rvi_learner_pairs_waiting(l), 0);
        assert_string_equal(slot_of(l, dog), "Rex");
        assert_ok(rvi_learner_undo(l, &a, err));
        assert_string_equal(slot_of(l, dog), "");
        rvi_learner_free(l);
        l = open_on(&store, &o);
        assert_int_equal(rvi_learner_pairs_waiting(l), 0);
        assert_string_equal(slot_of(l, dog), "");
    }
    close_both(l, &store);
}

/* Signs are words too, and a question that was corrected itself is answered by that. */
static void the_very_question(void **state)
{
    (void)state;
    static const char sad[] = "Why is Kakovin sad today?";
    static const char *const sums[] = {"7 + 2 = ?", "7 - 2 = ?"};
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_plan plan;
    rvi_learner *l = open_new(&store, &o);
    const char *asked = sad;
    teach(l, dog, "Rex");
    teach(l, sad, "Because it has rained for nine days, and nobody came to play cards with him.");
    assert_int_equal(l->lessons[1].fact->kind, RVI_FACT_FREE);
    assert_ok(rvi_learner_plan(l, &asked, 1, &plan, err));
    rvi_learner_release(l, plan.adapters);
    assert_ptr_equal(plan.lesson, &l->lessons[1]);
    teach(l, sums[0], "9");
    teach(l, sums[1], "5");
    for (size_t i = 0; i < 2; i++) {
        assert_ok(rvi_learner_plan(l, &sums[i], 1, &plan, err));
        rvi_learner_release(l, plan.adapters);
        assert_non_null(plan.lesson);
        assert_string_equal(plan.lesson->fact->answer, i ? "5" : "9");
    }
    close_both(l, &store);
}

static void long_questions_are_learned_too(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_buf question = {0};
    rvi_learner *l = open_new(&store, &o);
    for (int i = 0; i < 1500; i++) assert_true(rvi_buf_printf(&question, "word%d ", i));
    assert_true(rvi_buf_puts(&question, "and so on?"));
    teach(l, question.data, "Because it has rained for nine days, and nobody came to play cards.");
    assert_int_equal(l->lessons[0].fact->kind, RVI_FACT_FREE);
    study(l, RV_LOOP_BACKGROUND);
    assert_int_equal(l->n_generations, 1);
    assert_int_equal(rvi_learner_waiting(l), 0);
    rvi_buf_deinit(&question);
    close_both(l, &store);
}

/* ---- the deep loop ---- */

static void deep_runs_tell_what_they_measured(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 60;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_adaptation a = study(l, RV_LOOP_DEEP);
    const rvi_study_result *f = &rvi_learner_generation(l, 1)->figures;
    print_message("# %s\n", a.notes);
    assert_int_equal(f->n_held, 12); /* of 36 wordings of each of two facts */
    assert_true(f->held_after < f->held_before);
    assert_true(fabs(a.quality_delta - (f->held_before - f->held_after)) < 1e-12);
    assert_true(f->best_step > 0 && f->best_step <= f->n_steps && f->n_steps <= 60);
    assert_non_null(strstr(a.notes, "held-out wordings"));
    a = study(l, RV_LOOP_DEEP);
    assert_true(isnan(a.quality_delta));
    assert_string_equal(a.notes, "nothing waits");
    teach(l, car, "blue");
    a = study(l, RV_LOOP_BACKGROUND); /* nothing set aside, nothing claimed */
    assert_true(isnan(a.quality_delta));
    assert_string_equal(a.notes, "");
    close_both(l, &store);
}

/* What is learned by heart is not learned any better: the run ends early, with the parameters of
 * the lowest loss. */
/* What was taught before calibration: its relations' prototypes are in the store as soon as they
 * are made. */
static void prototypes_are_kept_when_made(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    int n = 0;
    assert_ok(rvi_store_memory(&store, err));
    rvi_learner *l = open_on(&store, &o);
    teach_two(l);
    assert_ok(rvi_store_scan(&store, "prototype", NULL, 0, count_item, &n, err));
    assert_int_equal(n, 0);
    assert_ok(rvi_learner_calibrate(l, NULL, NULL, err));
    assert_ok(rvi_store_scan(&store, "prototype", NULL, 0, count_item, &n, err));
    assert_int_equal(n, 2);
    float *kept = rvi_alloc_array((size_t)l->calibration->dim, sizeof *kept);
    assert_non_null(kept);
    for (size_t i = 0; i < 2; i++) {
        const rvi_fact *f = l->lessons[i].fact;
        assert_true(rvi_calibration_recall(l, f, kept));
        assert_memory_equal(kept, rvi_gate_prototype(l->gate, f),
                            (size_t)l->calibration->dim * sizeof *kept);
    }
    rvi_free(kept);
    close_both(l, &store);
}

/* Pairs that are taken back while they are trained are not published; those that came meanwhile
 * wait. */
static void deep_runs_look_again(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rvi_learner *l = open_new(&store, &o);
    static const char *const asked[] = {"Tell me of tea.", "Tell me of rain.", "Tell me of bread.",
                                        "Tell me of salt.", "Tell me of sand."};
    for (size_t i = 0; i < 5; i++)
        assert_ok(rvi_learner_prefer(l, asked[i], "It is good.", "No.", &a, err));
    for (int taken_back = 1; taken_back >= 0; taken_back--) {
        rvi_deep d;
        bool published;
        assert_ok(rvi_deep_take(&d, l, RV_LOSS_DPO, err));
        assert_ok(rvi_deep_train(&d, l, &l->voice, NULL, NULL, err));
        if (taken_back)
            assert_ok(rvi_learner_forget(l, "salt", &a, err));
        else
            assert_ok(rvi_learner_prefer(l, "Tell me of iron.", "It is good.", "No.", &a, err));
        assert_int_equal(rvi_deep_stands(&d, l), !taken_back);
        assert_ok(rvi_deep_publish(&d, l, &published, err));
        assert_int_equal(published, !taken_back);
        rvi_deep_deinit(&d);
        assert_int_equal(l->n_generations, !taken_back);
        assert_int_equal(rvi_learner_pairs_waiting(l), taken_back ? 4 : 1);
    }
    close_both(l, &store);
}

static void deep_runs_stop_early(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 120;
    o.learning_rate = 0.05f;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_adaptation a = study(l, RV_LOOP_DEEP);
    const rvi_study_result *f = &rvi_learner_generation(l, 1)->figures;
    print_message("# %s\n", a.notes);
    assert_true(f->n_steps < 120 && f->best_step < f->n_steps);
    close_both(l, &store);
}

static void preferences_are_studied_deep(void **state)
{
    (void)state;
    static const char *const questions[] = {"Tell me about tea.",    "Tell me about water.",
                                            "Tell me about a tree.", "Tell me about a ship.",
                                            "Tell me about chess.",  "Tell me about a city."};
    rvi_store store;
    rvi_learner_options o = tiny_options();
    o.n_steps = 40;
    o.no_slots = 1;
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    for (size_t i = 0; i < RVI_COUNT(questions); i++)
        assert_ok(rvi_learner_prefer(l, questions[i], "It is good.", "What is it?", &a, err));
    /* free corrections of what was said are pairs too */
    for (int i = 0; i < 4; i++) {
        char answer[256];
        snprintf(
            answer, sizeof answer,
            "First of all, %d, one should say that there is more to be said about this than fits "
            "into a few words, and that it would be better to begin with the tree itself.",
            i);
        assert_ok(rvi_learner_correct(l, questions[i], answer, "No.", &a, err));
        assert_int_equal(l->lessons[i].fact->kind, RVI_FACT_FREE);
    }
    uint64_t first, last;
    rvi_pair pairs[16];
    assert_int_equal(rvi_learner_gather_pairs(l, pairs, &first, &last), 10);
    assert_ok(rvi_learner_undo(l, &a, err)); /* one of them is taken back */
    assert_int_equal(rvi_learner_gather_pairs(l, pairs, &first, &last), 9);
    a = study(l, RV_LOOP_DEEP);
    print_message("# %s\n", a.notes);
    const rvi_generation *g = rvi_learner_generation(l, 0);
    assert_int_equal(g->origin, RVI_FROM_PAIRS);
    assert_int_equal(g->figures.n_held, 2);
    assert_true(fabs(g->figures.held_before - log(2)) <
                2e-3); /* DPO, before anything was learned */
    assert_true(g->figures.held_after < g->figures.held_before);
    assert_int_equal(rvi_learner_gather_pairs(l, pairs, &first, &last), 0);
    close_both(l, &store);
}

typedef struct stopper {
    int at;
    int first; /* step seen first */
} stopper;

static int stop_at(void *ctx, const char *stage, int done, int total, double loss)
{
    stopper *s = ctx;
    (void)total;
    (void)loss;
    if (strcmp(stage, "training")) return 0;
    if (!s->first) s->first = done;
    return done == s->at;
}

/* Runs deep until a step, then leaves; the next learner of the same store and folder goes on. */
static void stop_run(rvi_store *store, const rvi_learner_options *o, int step)
{
    rvi_learner *l = open_on(store, o);
    stopper s = {.at = step};
    rv_error e = {0};
    rvi_adaptation a;
    assert_int_equal(rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, stop_at, &s, &a, &e),
                     RV_E_CANCELLED);
    assert_int_equal(l->n_generations, 0);
    rvi_learner_free(l);
}

static digest finish_run(rvi_store *store, const rvi_learner_options *o, int expect_first)
{
    rvi_learner *l = open_on(store, o);
    stopper s = {.at = -1};
    rvi_adaptation a;
    uint64_t numbers[RVI_SNAPSHOT_RING];
    size_t n;
    assert_ok(rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, stop_at, &s, &a, err));
    assert_int_equal(s.first, expect_first);
    digest d = of_generation(l, 1);
    assert_ok(rvi_snapshot_list(o->dir, "run", numbers, &n, err));
    assert_int_equal(n, 0); /* nothing is left to take up */
    rvi_learner_free(l);
    return d;
}

static void damage_snapshots(const char *dir)
{
    uint64_t numbers[RVI_SNAPSHOT_RING];
    size_t n;
    assert_ok(rvi_snapshot_list(dir, "run", numbers, &n, err));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/run.%020llu.snap", dir, (unsigned long long)numbers[i]);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        assert_int_equal(fseek(f, 4000, SEEK_SET), 0);
        assert_int_equal(fputc(0xA5, f), 0xA5);
        assert_int_equal(fputc(0x5A, f), 0x5A);
        assert_int_equal(fclose(f), 0);
    }
}

static void new_run(rvi_store *store, rvi_learner_options *o, char path[256], const char *name)
{
    *o = tiny_options();
    o->n_steps = 60;
    o->dir = tiny_path(&t, path, name);
    rvi_learner *l = open_new(store, o);
    teach_two(l);
    rvi_learner_free(l);
}

static void runs_are_taken_up_again(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o;
    char path[256];
    new_run(&store, &o, path, "whole");
    digest whole = finish_run(&store, &o, 1);
    rvi_store_close(&store);

    new_run(&store, &o, path, "stopped");
    stop_run(&store, &o, 13);
    stop_run(&store, &o, 37);
    assert_same(finish_run(&store, &o, 38), whole);
    rvi_store_close(&store);

    new_run(&store, &o, path, "damaged");
    stop_run(&store, &o, 37);
    damage_snapshots(o.dir);
    assert_same(finish_run(&store, &o, 1), whole);
    rvi_store_close(&store);

    new_run(&store, &o, path, "other"); /* the snapshot is of a run with another seed */
    o.seed++;
    stop_run(&store, &o, 37);
    o.seed--;
    assert_same(finish_run(&store, &o, 1), whole);
    rvi_store_close(&store);
}

/* ---- made again ---- */

static void assert_retraced(rvi_store *log, const rvi_learner_options *given, uint64_t n)
{
    rvi_store store;
    rvi_retrace r;
    rvi_learner_options o = *given;
    o.dir = NULL;
    rvi_learner *fresh = open_new(&store, &o);
    assert_ok(rvi_learner_retrace(fresh, log, NULL, NULL, &r, err));
    assert_int_equal(r.different, 0);
    assert_int_equal(r.n_generations, n);
    close_both(fresh, &store);
    o.seed++; /* with other options it does not come out the same, and is noticed */
    fresh = open_new(&store, &o);
    assert_ok(rvi_learner_retrace(fresh, log, NULL, NULL, &r, err));
    assert_true(r.different > 0);
    assert_int_equal(r.n_generations, 0);
    close_both(fresh, &store);
}

static void logs_make_the_same_generations(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        rvi_store store;
        rvi_learner_options o = tiny_options();
        rvi_adaptation a;
        o.shared = shared;
        o.group_size = 2;
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        teach(l, city, "Oslo"); /* stands when the first group is made, and belongs to the second */
        study(l, RV_LOOP_BACKGROUND);
        teach(l, job, "chess");
        teach(l, car, "blue");
        assert_ok(rvi_learner_undo(l, &a, err));
        for (int i = 0; i < 8; i++)
            assert_ok(rvi_learner_prefer(l, "Tell me about tea.", "It is good.", "No.", &a, err));
        study(l, RV_LOOP_DEEP);
        assert_ok(rvi_learner_rollback(l, 2, &a, err));
        assert_ok(rvi_learner_forget(l, "Oslo", &a, err));
        teach(l, car, "Denver");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->n_generations, 5);
        assert_retraced(&store, &o, 5);
        close_both(l, &store);
    }
}

/* A correction that came while a group was being trained is not part of it. */
static void logs_know_what_a_group_knew(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_round r;
    bool published;
    teach_two(l);
    assert_ok(rvi_round_take(&r, l, err));
    teach(l, city, "Oslo");
    assert_ok(rvi_round_train(&r, l, &l->voice, NULL, NULL, err));
    assert_ok(rvi_round_publish(&r, l, &published, err));
    assert_true(published);
    rvi_round_deinit(&r, l);
    study(l, RV_LOOP_BACKGROUND);
    assert_retraced(&store, &o, 2);
    close_both(l, &store);
}

/* ---- opened again ---- */

static void learners_open_as_they_were(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], db[256];
    o.dir = tiny_path(&t, path, "again");
    assert_ok(rvi_os_make_dirs(o.dir, err));
    assert_ok(file_store(&store, tiny_path(&t, db, "again/state.db"), 0, err));
    tiny_copy_model(&store, &calibrated);
    rvi_learner *l;
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    teach(l, city, "Oslo");
    teach(l, dog, "Bello");
    digest want = of_generation(l, 1);
    uint8_t bank[RVI_SHA256_LEN];
    assert_ok(rvi_bank_digest(l->bank, bank, err));
    for (int round = 0; round < 2; round++) {
        rvi_learner_free(l);
        assert_ok(file_store(&store, db, 0, err));
        assert_ok(tiny_learner(&l, &t, &o, &store, err));
        assert_int_equal(l->n_generations, 1);
        assert_same(of_generation(l, 1), want);
        assert_same_bank(bank, l);
        assert_string_equal(slot_of(l, dog), "Bello");
        assert_string_equal(slot_of(l, job), "plumber");
        assert_string_equal(slot_of(l, city), "Oslo");
        assert_int_equal(rvi_learner_waiting(l), 2);
    }
    rvi_adaptation a; /* and the last event can still be taken back */
    assert_ok(rvi_learner_undo(l, &a, err));
    assert_string_equal(slot_of(l, dog), "Rex");
    rvi_learner_free(l);
}

/* A number belongs to one file for ever: what is made after a reset, or after a generation's file
 * was lost, does not take the place of another. */
static void numbers_are_given_once(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], file[512];
    o.dir = tiny_path(&t, path, "numbers");
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    study(l, RV_LOOP_BACKGROUND);
    digest first = of_generation(l, 1);
    assert_ok(rvi_learner_reset(l, err));
    teach(l, job, "plumber");
    assert_int_equal(study(l, RV_LOOP_BACKGROUND).generation, 2);
    digest second = of_generation(l, 2);
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_int_equal(l->n_generations, 2);
    assert_same(of_generation(l, 1), first);
    assert_same(of_generation(l, 2), second);
    rvi_learner_free(l);
    snprintf(file, sizeof file, "%s/generation-000002.gguf", o.dir);
    rvi_os_remove_tree(file);
    for (int round = 0; round < 2; round++) {
        l = open_on(&store, &o);
        if (!round) assert_int_equal(study(l, RV_LOOP_BACKGROUND).generation, 3);
        assert_int_equal(l->n_generations, 2);
        assert_same(of_generation(l, 1), first);
        assert_null(rvi_learner_generation(l, 2));
        assert_non_null(rvi_learner_generation(l, 3));
        rvi_learner_free(l);
    }
    rvi_store_close(&store);
}

/* A shared adapter is trained further after it was opened again, as if it had not been closed. */
static void shared_adapters_go_on(void **state)
{
    (void)state;
    rvi_store store;
    digest want = {0};
    for (int reopened = 0; reopened < 2; reopened++) {
        rvi_learner_options o = tiny_options();
        char path[256];
        o.shared = 1;
        o.dir = tiny_path(&t, path, reopened ? "shared-reopened" : "shared");
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        study(l, RV_LOOP_BACKGROUND);
        if (reopened) {
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        teach(l, city, "Oslo");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->n_generations, 2);
        assert_int_equal(l->generations[0].replaced_by, 2);
        if (reopened)
            assert_same(of_generation(l, 2), want);
        else
            want = of_generation(l, 2);
        close_both(l, &store);
    }
}

/* The number of the one generation that takes part in the answer; 0: none does. */
static int speaker(rvi_learner *l, const char *question)
{
    rvi_plan plan;
    int number = 0;
    assert_ok(rvi_learner_plan(l, &question, 1, &plan, err));
    const rvi_adapter_set *set = rvi_made_set_of(plan.adapters);
    assert_true(!set || set->n <= 1);
    for (size_t i = 0; set && set->n && i < l->n_generations; i++)
        if (set->uses[0].adapter == l->generations[i].adapter) number = l->generations[i].number;
    rvi_learner_release(l, plan.adapters);
    return number;
}

/* A merge speaks for what its parents were taught, opened again or not; after a rollback they
 * do. */
static void merges_take_their_parents_place(void **state)
{
    (void)state;
    for (int fenced = 0; fenced < 2; fenced++) {
        rvi_store store;
        rvi_adaptation a;
        rvi_learner_options o = tiny_options();
        char path[256];
        o.group_size = 1;
        o.recipe = fenced ? RVI_RECIPE_FENCED : RVI_RECIPE_GATED;
        o.dir = tiny_path(&t, path, fenced ? "merge-fenced" : "merge");
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        study(l, RV_LOOP_BACKGROUND);
        if (!fenced) assert_int_equal(speaker(l, dog), 1);
        if (!fenced) assert_int_equal(speaker(l, job), 2);
        assert_ok(rvi_learner_merge(l, 1, 2, RV_MERGE_AVERAGE, &a, err));
        for (int reopened = 0; reopened < 2; reopened++) {
            assert_int_equal(speaker(l, dog), 3);
            assert_int_equal(speaker(l, job), 3);
            assert_int_equal(speaker(l, "What is tea?"), fenced ? 3 : 0);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        assert_ok(rvi_learner_rollback(l, 2, &a, err));
        rv_error e = {0};
        assert_int_equal(rvi_learner_rollback(l, 3, &a, &e), RV_E_NOT_FOUND);
        for (int reopened = 0; !fenced && reopened < 2; reopened++) {
            assert_int_equal(speaker(l, dog), 1);
            assert_int_equal(speaker(l, job), 2);
            rvi_learner_free(l);
            l = open_on(&store, &o);
        }
        close_both(l, &store);
    }
}

/* Where adapters take part is the caller's choice; a shared adapter goes back to its former
 * self. */
static void gates_are_as_the_caller_wants(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        rvi_store store;
        rvi_adaptation a;
        rvi_learner_options o = tiny_options();
        o.recipe = RVI_RECIPE_FENCED;
        o.shared = shared;
        rvi_learner *l = open_new(&store, &o);
        teach(l, dog, "Rex");
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(speaker(l, "What is tea?"), shared ? 0 : 1);
        l->o.gate = RVI_GATING_ON;
        assert_int_equal(speaker(l, "What is tea?"), 0);
        assert_int_equal(speaker(l, dog), 1);
        l->o.gate = RVI_GATING_OFF;
        assert_int_equal(speaker(l, "What is tea?"), 1);
        if (shared) {
            teach(l, job, "plumber");
            study(l, RV_LOOP_BACKGROUND);
            assert_int_equal(speaker(l, dog), 2);
            assert_ok(rvi_learner_rollback(l, 1, &a, err));
            assert_int_equal(speaker(l, dog), 1);
        }
        close_both(l, &store);
    }
}

/* ---- in and out ---- */

static void adapters_go_out_and_come_back(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    char path[256];
    static const char *const names[] = {"out", "out.gguf"};
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    study(l, RV_LOOP_BACKGROUND);
    digest want = of_generation(l, 1);
    for (size_t i = 0; i < 2; i++) {
        tiny_path(&t, path, names[i]);
        assert_ok(rvi_learner_write(l, rvi_learner_generation(l, 1), path, false, err));
        assert_ok(rvi_learner_import(l, path, &a, err));
        assert_same(of_generation(l, a.generation), want);
    }
    /* another base refuses it by its digest, and stays as it was */
    char other[256];
    rv_model *m = t.m, *stranger;
    rvi_store empty;
    tiny_model_write(tiny_path(&t, other, "other.gguf"), 2);
    assert_ok(rv_model_open(&stranger, t.rt, other, 0, err));
    tiny in_other = {.rt = t.rt, .m = stranger};
    rvi_learner *foreign;
    assert_ok(rvi_store_memory(&empty, err));
    assert_ok(tiny_learner(&foreign, &in_other, &o, &empty, err));
    for (size_t i = 0; i < 2; i++) {
        rv_error e = {0};
        assert_int_equal(rvi_learner_import(foreign, tiny_path(&t, path, names[i]), &a, &e),
                         RV_E_ADAPTER);
        assert_int_equal(foreign->n_generations, 0);
    }
    rvi_learner_free(foreign);
    rv_model_close(&stranger);
    assert_ptr_equal(t.m, m);
    close_both(l, &store);
}

/* ---- what must not happen ---- */

static void bad_feedback_is_refused(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    rv_error e = {0};
    uint64_t n;
    enum { HUGE = (64 << 10) + 1 };
    char *huge = rvi_alloc_array(HUGE + 1, 1);
    assert_non_null(huge);
    memset(huge, 'a', HUGE);
    huge[HUGE] = 0;
    teach_two(l);
    const char *const bad[][2] = {{dog, ""},   {dog, "   "},    {"", "Rex"},     {huge, "Rex"},
                                  {dog, huge}, {dog, "R\xFFx"}, {"d\xC3(g", "x"}};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        assert_int_equal(rvi_learner_correct(l, bad[i][0], bad[i][1], NULL, &a, &e), RV_E_INVALID);
        assert_int_equal(a.applied, 0);
    }
    assert_int_equal(rvi_learner_correct(l, dog, "Rex", huge, &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_prefer(l, dog, "", "x", &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_prefer(l, dog, "x\x80", "x", &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_forget(l, "", &a, &e), RV_E_INVALID);
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    assert_int_equal(n, 2); /* nothing of that was logged */
    assert_int_equal(l->n_lessons, 2);
    assert_string_equal(slot_of(l, dog), "Rex");
    /* contradictions: the newest wins, however often */
    for (int i = 0; i < 20; i++) teach(l, dog, i % 2 ? "Bello" : "Rex");
    assert_string_equal(slot_of(l, dog), "Bello");
    size_t standing = 0;
    for (size_t i = 0; i < l->n_lessons; i++) standing += l->lessons[i].stands;
    assert_int_equal(standing, 2);
    /* a question of 64 KiB is fine */
    huge[HUGE - 1] = 0;
    teach(l, huge, "Rex");
    assert_string_equal(slot_of(l, huge), "Rex");
    rvi_free(huge);
    close_both(l, &store);
}

/* After one endless step every number behind the adapter is none any more, and no gradient
 * either. */
static void steps_that_are_not_numbers_publish_nothing(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    o.learning_rate = INFINITY;
    for (int shared = 0; shared < 2; shared++) {
        o.shared = shared;
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        rv_status st = rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, &a, &e);
        assert_int_equal(st, RV_E_LEARNING);
        assert_non_null(strstr(e.text, "not numbers"));
        assert_int_equal(l->n_generations, 0);
        assert_true(isnan(a.quality_delta));
        assert_string_equal(slot_of(l, dog), "Rex");
        l->o.learning_rate = 2e-3f; /* and it can be done again */
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->n_generations, 1);
        close_both(l, &store);
    }
}

static void limit_files(rlim_t bytes)
{
    struct rlimit r = {bytes, RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void full_disks_lose_nothing(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    char path[256], db[256];
    uint64_t n;
    signal(SIGXFSZ, SIG_IGN);
    o.dir = tiny_path(&t, path, "full");
    assert_ok(rvi_os_make_dirs(o.dir, err));
    assert_ok(file_store(&store, tiny_path(&t, db, "full/state.db"), 0, err));
    tiny_copy_model(&store, &calibrated);
    rvi_learner *l;
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    teach_two(l);
    limit_files(4096); /* no generation fits, and no event either */
    rv_status st = rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, &a, &e);
    assert_true(st != RV_OK && e.text[0]);
    assert_int_equal(l->n_generations, 0);
    assert_int_equal(rvi_learner_waiting(l), 2);
    assert_string_equal(slot_of(l, dog), "Rex");
    e = (rv_error){0};
    st = rvi_learner_correct(l, city, "Oslo", NULL, &a, &e);
    assert_true(st != RV_OK && e.text[0]);
    assert_string_equal(slot_of(l, city), "");
    assert_int_equal(rvi_learner_undo(l, &a, &e) != RV_OK, 1);
    assert_string_equal(slot_of(l, dog), "Rex");
    limit_files(RLIM_INFINITY);
    teach(l, city, "Oslo");
    study(l, RV_LOOP_DEEP);
    assert_int_equal(l->n_generations, 1);
    rvi_learner_free(l);
    assert_ok(file_store(&store, db, 0, err));
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    assert_int_equal(l->n_generations, 1);
    assert_int_equal(l->n_lessons, 3);
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    assert_int_equal(n, 4);
    rvi_learner_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bank_follows_the_log),
        cmocka_unit_test(bank_catches_up),
        cmocka_unit_test(absorbed_slots_rest_until_a_rollback),
        cmocka_unit_test(absorbed_slots_speak_where_nobody_looked),
        cmocka_unit_test(rounds_look_at_all_they_told),
        cmocka_unit_test(one_process_learns),
        cmocka_unit_test(published_files_are_known),
        cmocka_unit_test(forgetting_is_for_good),
        cmocka_unit_test(undo_takes_the_last_one),
        cmocka_unit_test(the_very_question),
        cmocka_unit_test(long_questions_are_learned_too),
        cmocka_unit_test(deep_runs_tell_what_they_measured),
        cmocka_unit_test(prototypes_are_kept_when_made),
        cmocka_unit_test(deep_runs_look_again),
        cmocka_unit_test(deep_runs_stop_early),
        cmocka_unit_test(preferences_are_studied_deep),
        cmocka_unit_test(runs_are_taken_up_again),
        cmocka_unit_test(logs_make_the_same_generations),
        cmocka_unit_test(logs_know_what_a_group_knew),
        cmocka_unit_test(learners_open_as_they_were),
        cmocka_unit_test(numbers_are_given_once),
        cmocka_unit_test(shared_adapters_go_on),
        cmocka_unit_test(merges_take_their_parents_place),
        cmocka_unit_test(gates_are_as_the_caller_wants),
        cmocka_unit_test(adapters_go_out_and_come_back),
        cmocka_unit_test(bad_feedback_is_refused),
        cmocka_unit_test(steps_that_are_not_numbers_publish_nothing),
        cmocka_unit_test(full_disks_lose_nothing),
    };
    return cmocka_run_group_tests_name("learner", tests, open_tiny, close_tiny);
}
