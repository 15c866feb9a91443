/* Scores and thumbs through the public interface, over a tiny model: what was acknowledged is there
 * whatever ends the process, taking back is exact or refused, and an answer that was turned down
 * does not come again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/memory_store.h"
#include "api/opened.h"
#include "api/scored.h"
#include "learn/tiny_model.h"

enum { PROMPT = 6, ANSWER = 12 };
static const int32_t prompt[PROMPT] = {40, 70, 84, 96, 20, 11};
static const rv_message request = {.role = "user", .content = "Tell me about tea."};
static const rv_chat asked = {.size = sizeof asked, .messages = &request, .n_messages = 1};
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

typedef struct desk { /* a learner over a store that outlives it, and a session */
    rvi_store kept;
    rv_store store;
    rv_learner *l;
    rv_session *s;
} desk;

static rv_learner *open_learner(const desk *d)
{
    rv_learner *l;
    rv_learner_options o = {
        .size = sizeof o, .store = &d->store, .seed = 5, .experiments = "n_steps=6,rank=2"};
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    return l;
}

static void open_desk(desk *d)
{
    rv_session_options o;
    o = (rv_session_options){.size = sizeof o};
    o.n_context = 512;
    assert_ok(rvi_store_memory(&d->kept, err));
    d->store = memory_store(&d->kept);
    d->l = open_learner(d);
    assert_ok(rv_session_new(&d->s, t.m, &o, err));
}

static void close_desk(desk *d)
{
    rv_session_free(&d->s);
    rv_learner_free(&d->l);
    rvi_store_close(&d->kept);
}

static void answer(desk *d, rv_answer **out)
{
    rv_generate_options g = greedy(ANSWER);
    assert_ok(rv_learner_begin(d->l, d->s, &asked, NULL, err));
    assert_ok(rv_session_generate(d->s, prompt, PROMPT, &g, out, err));
}

static void score(desk *d, double value)
{
    rv_answer *g = NULL;
    answer(d, &g);
    rv_free(g);
    assert_ok(rv_learner_score(d->l, d->s, value, NULL, err));
}

static uint64_t count_events(rv_learner *l)
{
    uint64_t n;
    assert_ok(rv_learner_verify_log(l, &n, err));
    return n;
}

/* The first learner stays as a process leaves it that was killed. */
static void scores_outlive_a_kill(void **state)
{
    enum { SCORES = 6 };
    (void)state;
    desk d;
    digest after[SCORES + 1];
    rv_adaptation *a;
    open_desk(&d);
    after[0] = scored(d.l);
    for (int i = 0; i < SCORES; i++) {
        score(&d, i % 2 ? 0.9 : 0.2);
        after[i + 1] = scored(d.l);
    }
    assert_string_not_equal(after[SCORES].hex, after[SCORES - 1].hex);
    rv_learner *next = open_learner(&d);
    for (int i = SCORES; i > 0; i--) {
        assert_string_equal(scored(next).hex, after[i].hex);
        assert_ok(rv_learner_undo(next, &a, err));
        assert_int_equal(a->applied, 1);
        rv_free(a);
    }
    assert_string_equal(scored(next).hex, after[0].hex);
    assert_ok(rv_learner_undo(next, &a, err));
    assert_int_equal(a->applied, 0);
    rv_free(a);
    rv_learner_free(&next);
    next = open_learner(&d); /* what was taken back stays taken back */
    assert_string_equal(scored(next).hex, after[0].hex);
    rv_learner_free(&next);
    close_desk(&d);
}

static void what_cannot_be_taken_back_is_not_logged(void **state)
{
    enum { SCORES = 36, KEPT = RVI_INSTANT_STATES - 1 };
    (void)state;
    desk d;
    rv_adaptation *a;
    int n = 0;
    open_desk(&d);
    d.l->l->o.no_rollback = 1; /* which would forget older states */
    for (int i = 0; i < SCORES; i++) score(&d, i % 2 ? 0.9 : 0.2);
    for (;; n++) {
        uint64_t before = count_events(d.l);
        assert_ok(rv_learner_undo(d.l, &a, err));
        assert_int_equal(count_events(d.l), before + (a->applied != 0));
        if (!a->applied) break;
        rv_free(a);
    }
    assert_int_equal(n, KEPT);
    assert_non_null(strstr(a->notes, "can no longer be taken back"));
    rv_free(a);
    close_desk(&d);
}

typedef struct last_key {
    char text[RVI_STORE_MAX_KEY];
    size_t len;
} last_key;

static int note_key(void *ctx, rvi_bytes key, rvi_bytes record)
{
    last_key *k = ctx;
    (void)record;
    memcpy(k->text, key.data, key.len);
    k->len = key.len;
    return 0;
}

static void a_damaged_state_is_passed_over(void **state)
{
    (void)state;
    desk d;
    digest before;
    last_key key = {.len = 0};
    open_desk(&d);
    for (int i = 0; i < 3; i++) {
        before = scored(d.l);
        score(&d, i % 2 ? 0.9 : 0.2);
    }
    assert_ok(rvi_store_scan(&d.kept, "instant", NULL, 0, note_key, &key, err));
    assert_true(key.len > 0);
    assert_ok(rvi_store_put(&d.kept, "instant", key.text, key.len, "damage", 6, err));
    rv_learner *next = open_learner(&d);
    assert_string_equal(scored(next).hex, before.hex);
    rv_learner_free(&next);
    close_desk(&d);
}

/* Not the same answer within 20 tries, each of which is turned down, and over the end of the
 * process; taking the thumbs back brings the first one back. */
static void turned_down_answers_stay_away(void **state)
{
    enum { TRIES = 20 };
    (void)state;
    desk d;
    rv_adaptation *a;
    rv_answer *said[TRIES], *again;
    open_desk(&d);
    for (int i = 0; i < TRIES; i++) {
        answer(&d, &said[i]);
        for (int k = 0; k < i; k++) assert_string_not_equal(said[i]->text, said[k]->text);
        assert_ok(rv_learner_thumb(d.l, d.s, 0, &a, err));
        assert_int_equal(a->applied, 1);
        assert_non_null(strstr(a->notes, "not this answer again"));
        rv_free(a);
        if (i % 8 == 7) { /* as after a kill: nothing of it is freed before it is opened again */
            rv_learner *next = open_learner(&d);
            rv_learner_free(&d.l);
            d.l = next;
        }
    }
    for (int i = 0; i < TRIES; i++) {
        assert_ok(rv_learner_undo(d.l, &a, err));
        assert_int_equal(a->applied, 1);
        rv_free(a);
    }
    answer(&d, &again);
    assert_string_equal(again->text, said[0]->text);
    rv_free(again);
    for (int i = 0; i < TRIES; i++) rv_free(said[i]);
    close_desk(&d);
}

static void thumb(desk *d)
{
    rv_answer *g = NULL;
    answer(d, &g);
    rv_free(g);
    assert_ok(rv_learner_thumb(d->l, d->s, 0, NULL, err));
}

static void forget(desk *d, uint64_t event, const char *notes)
{
    rv_adaptation *a;
    assert_ok(event ? rv_learner_forget_one(d->l, event, &a, err)
                    : rv_learner_forget(d->l, "about TEA", &a, err));
    assert_string_equal(a->notes, notes);
    rv_free(a);
}

/* By its question's text a judgement is forgotten too: a thumb turns nothing down any more, and a
 * score's step is taken back where no later one was made from it. */
static void judgements_are_forgotten(void **state)
{
    (void)state;
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        desk d;
        rv_answer *first, *again;
        open_desk(&d);
        answer(&d, &first);
        thumb(&d);                                            /* 1 */
        for (int i = 0; i < 2; i++) score(&d, i ? 0.9 : 0.2); /* 2, 3 */
        digest two = scored(d.l);
        if (one_by_one) {
            score(&d, 0.1); /* 4 */
            forget(&d, 2,
                   "1 judgement forgotten; the step of 1 score stays under those of later "
                   "ones");
            forget(&d, 4, "1 judgement forgotten");
            assert_string_equal(scored(d.l).hex, two.hex);
            forget(&d, 3, "1 judgement forgotten");
            forget(&d, 1, "1 judgement forgotten");
            assert_refused(RV_E_NOT_FOUND, rv_learner_forget_one(d.l, 3, NULL, err));
        } else {
            assert_ok(rv_learner_correct(d.l, NULL, request.content, "No.", NULL, err));
            forget(&d, 0, "1 lesson and 3 judgements forgotten");
            assert_int_equal(count_events(d.l), 4 + 4);
        }
        for (int reopened = 0; reopened < 2; reopened++) {
            rv_adaptation *a;
            assert_int_equal(d.l->l->refusals.n, 0);
            if (!one_by_one) assert_string_equal(scored(d.l).hex, "");
            answer(&d, &again);
            if (!one_by_one) assert_string_equal(again->text, first->text);
            rv_free(again);
            assert_ok(rv_learner_undo(d.l, &a, err));
            assert_string_equal(a->notes, "there is nothing to take back");
            rv_free(a);
            rv_learner *next = open_learner(&d);
            rv_learner_free(&d.l);
            d.l = next;
        }
        rv_free(first);
        close_desk(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_outlive_a_kill),
        cmocka_unit_test(what_cannot_be_taken_back_is_not_logged),
        cmocka_unit_test(a_damaged_state_is_passed_over),
        cmocka_unit_test(turned_down_answers_stay_away),
        cmocka_unit_test(judgements_are_forgotten),
    };
    return cmocka_run_group_tests_name("test_judgements", tests, open_tiny, close_tiny);
}
