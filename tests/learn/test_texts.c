/* The sources of texts that lessons are taught by: what each writes, in any language, and that the
 * same seed writes the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "learn/learner_bed.h"

enum { N_FACTS = 4 };
static rvi_fact *facts[N_FACTS];
static const rvi_fact *group[N_FACTS];
static rvi_learner *l;
static rvi_store store;

static const char *const said[N_FACTS][2] = {
    {"What is Kakovin's dog?", "Rex"},
    {"加拿大的首都是哪里？", "加拿大的首都是金斯顿。"},
    {"What does the king do?", "He does not do that, he sleeps."},
    {"", "Boil water. Wait. Then pour it over the leaves."}};

static int open_all(void **state)
{
    open_tiny(state);
    rvi_learner_options o = tiny_options();
    l = open_new(&store, &o);
    for (size_t i = 0; i < N_FACTS; i++) {
        const char *q = said[i][0], *a = said[i][1];
        assert_ok(rvi_fact_read(&facts[i], t.m->tokenizer, q, strlen(q), a, strlen(a), err));
        group[i] = facts[i];
    }
    return 0;
}

static int close_all(void **state)
{
    for (size_t i = 0; i < N_FACTS; i++) rvi_fact_free(facts[i]);
    close_both(l, &store);
    return close_tiny(state);
}

static rvi_text_writer writer(rvi_recogniser *judge)
{
    return (rvi_text_writer){.v = &l->base,
                             .replay = &l->replay,
                             .judge = judge,
                             .group = group,
                             .n = N_FACTS,
                             .store = group,
                             .n_store = N_FACTS,
                             .n_rules = RVI_WORDINGS_BASE,
                             .rng = {3}};
}

static bool has(const rvi_wordings *w, const char *user, const char *reply)
{
    for (size_t i = 0; i < w->n; i++) {
        const char *u = w->data[i].user ? w->data[i].user : "";
        if (!strcmp(u, user) && (!reply || !strcmp(w->data[i].reply, reply))) return true;
    }
    return false;
}

static void no_text_comes_twice(const rvi_texts *x)
{
    for (size_t i = 0; i < x->teach.n; i++)
        for (size_t k = 0; k < i; k++) {
            const rvi_wording *a = &x->teach.data[i], *b = &x->teach.data[k];
            if (a->user && b->user &&
                !strcmp(a->user, b->user)) /* or another answer belongs to it */
                assert_string_not_equal(a->reply, b->reply);
        }
}

static void what_was_taught_is_always_there(void **state)
{
    rvi_texts out[N_FACTS] = {{{0}, {0}}};
    rvi_text_writer w = writer(NULL);
    (void)state;
    assert_ok(rvi_texts_write(&w, 0, out, err));
    for (size_t i = 0; i < N_FACTS; i++) {
        assert_int_equal(out[i].teach.n, 1);
        assert_int_equal(out[i].fence.n, 0);
        assert_ptr_equal(strstr(out[i].teach.data[0].reply, facts[i]->answer) == NULL, false);
    }
    /* a bare answer as a sentence, and everything else word for word */
    assert_true(has(&out[0].teach, said[0][0], "Kakovin's dog is Rex."));
    assert_true(has(&out[1].teach, said[1][0], said[1][1]));
    assert_true(has(&out[2].teach, said[2][0], said[2][1]));
    assert_string_equal(out[3].teach.data[0].reply, said[3][1]);
    rvi_texts_deinit(out, N_FACTS);
}

static void forms_need_no_language(void **state)
{
    rvi_texts out[N_FACTS] = {{{0}, {0}}};
    rvi_text_writer w = writer(NULL);
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_FRAMES, out, err));
    assert_true(has(&out[0].teach, "what is kakovin's dog", "Kakovin's dog is Rex."));
    assert_true(has(&out[1].teach, "加拿大的首都是哪里", said[1][1]));
    for (size_t i = 0; i < 3; i++) {
        assert_true(out[i].teach.n >= 4);
        no_text_comes_twice(&out[i]);
    }
    assert_true(has(&out[0].fence, "What is Kenya's dog?", NULL));
    assert_int_equal(out[1].fence.n, 1);
    rvi_texts_deinit(out, N_FACTS);
}

static void rules_write_where_they_can_read(void **state)
{
    rvi_texts out[N_FACTS] = {{{0}, {0}}};
    rvi_text_writer w = writer(NULL);
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_RULES, out, err));
    assert_int_equal(out[0].teach.n, RVI_WORDINGS_BASE); /* what was taught is among them */
    assert_true(has(&out[0].teach, "What is the dog of Kakovin?", NULL));
    assert_int_equal(out[1].teach.n, 1);
    assert_int_equal(out[3].teach.n, 1);
    rvi_texts_deinit(out, N_FACTS);
}

static rvi_recogniser *new_judge(void)
{
    rvi_recogniser *judge;
    assert_ok(rvi_recogniser_new(&judge, NULL, NULL, NULL, NULL, err));
    for (size_t i = 0; i < N_FACTS; i++)
        assert_ok(rvi_recogniser_add(judge, i + 1, facts[i]->question, said[i][1], err));
    return judge;
}

/* A tiny model writes nothing that asks for a lesson: all of it is fence, or left out. */
static void the_judge_sorts_what_the_model_writes(void **state)
{
    rvi_texts a[N_FACTS] = {{{0}, {0}}}, b[N_FACTS] = {{{0}, {0}}};
    rvi_recogniser *judge = new_judge();
    rvi_text_writer w = writer(judge), same = w;
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_OWN, a, err));
    assert_ok(rvi_texts_write(&same, RVI_TEXTS_OWN, b, err));
    for (size_t i = 0; i < N_FACTS; i++) {
        assert_int_equal(a[i].teach.n, b[i].teach.n);
        assert_int_equal(a[i].fence.n, b[i].fence.n);
        for (size_t k = 0; k < a[i].fence.n; k++) {
            rvi_recognised found;
            size_t n;
            assert_string_equal(a[i].fence.data[k].user, b[i].fence.data[k].user);
            assert_ok(rvi_recogniser_ask(judge, a[i].fence.data[k].user, &found, 1, &n, err));
            assert_true(found.probability < 0.1f);
        }
    }
    rvi_texts_deinit(a, N_FACTS);
    rvi_texts_deinit(b, N_FACTS);
    rvi_recogniser_free(judge);
}

static int stop(void *ctx, size_t done, size_t total)
{
    (void)done;
    (void)total;
    return ++*(int *)ctx > 2;
}

static void writing_can_be_cancelled(void **state)
{
    int calls = 0;
    rvi_texts out[N_FACTS] = {{{0}, {0}}};
    rvi_recogniser *judge = new_judge();
    rvi_text_writer w = writer(judge);
    (void)state;
    w.progress = stop;
    w.ctx = &calls;
    assert_int_equal(rvi_texts_write(&w, RVI_TEXTS_ALL, out, NULL), RV_E_CANCELLED);
    assert_int_equal(calls, 3);
    rvi_texts_deinit(out, N_FACTS);
    rvi_recogniser_free(judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_taught_is_always_there),
        cmocka_unit_test(forms_need_no_language),
        cmocka_unit_test(rules_write_where_they_can_read),
        cmocka_unit_test(the_judge_sorts_what_the_model_writes),
        cmocka_unit_test(writing_can_be_cancelled),
    };
    return cmocka_run_group_tests_name("texts", tests, open_all, close_all);
}
