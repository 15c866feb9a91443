/* The sources of texts that lessons are taught by: what each writes, in any language, and that the
 * same seed writes the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "learn/learner_bed.h"

enum { N_LESSONS = 4 };
static rvi_learner *l;
static rvi_store store;

static const rvi_lesson_text group[N_LESSONS] = {
    {"What is Kakovin's dog?", "Rex", NULL},
    {"加拿大的首都是哪里？", "加拿大的首都是金斯顿。", NULL},
    {"What does the king do?", "He does not do that, he sleeps.", NULL},
    {"Boil water. Wait. Then pour it over the leaves.",
     "Boil water. Wait. Then pour it over the leaves.", NULL}};

static int open_all(void **state)
{
    open_tiny(state);
    rvi_learner_options o = tiny_options();
    l = open_new(&store, &o);
    return 0;
}

static int close_all(void **state)
{
    close_both(l, &store);
    return close_tiny(state);
}

static rvi_text_writer writer(rvi_recogniser *judge)
{
    return (rvi_text_writer){.v = &l->base,
                             .replay = &l->replay,
                             .judge = judge,
                             .first = 1,
                             .group = group,
                             .n = N_LESSONS,
                             .rng = {3}};
}

static bool has(const rvi_questions *q, const char *text)
{
    for (size_t i = 0; i < q->n; i++)
        if (!strcmp(q->data[i], text)) return true;
    return false;
}

static void no_text_comes_twice(const rvi_questions *q)
{
    for (size_t i = 0; i < q->n; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(q->data[i], q->data[k]);
}

static void what_was_taught_is_always_there(void **state)
{
    rvi_texts out[N_LESSONS] = {{{0}, {0}}};
    rvi_text_writer w = writer(NULL);
    (void)state;
    assert_ok(rvi_texts_write(&w, 0, out, err));
    for (size_t i = 0; i < N_LESSONS; i++) {
        assert_int_equal(out[i].teach.n, 1);
        assert_int_equal(out[i].fence.n, 0);
        assert_string_equal(out[i].teach.data[0], group[i].question);
    }
    rvi_texts_deinit(out, N_LESSONS);
}

static void forms_need_no_language(void **state)
{
    rvi_texts out[N_LESSONS] = {{{0}, {0}}};
    rvi_text_writer w = writer(NULL);
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_FRAMES, out, err));
    assert_true(has(&out[0].teach, "what is kakovin's dog"));
    assert_true(has(&out[1].teach, "加拿大的首都是哪里"));
    for (size_t i = 0; i < 3; i++) {
        assert_true(out[i].teach.n >= 4);
        no_text_comes_twice(&out[i].teach);
    }
    assert_true(has(&out[0].fence, "What is Kenya's dog?"));
    assert_int_equal(out[0].fence.n, 3);
    assert_true(out[1].fence.n >= 1);
    rvi_texts_deinit(out, N_LESSONS);
}

static rvi_recogniser *new_judge(void)
{
    rvi_recogniser *judge;
    assert_ok(rvi_recogniser_new(&judge, NULL, NULL, err));
    for (size_t i = 0; i < N_LESSONS; i++)
        assert_ok(rvi_recogniser_add(judge, i + 1, group[i].question, group[i].answer, err));
    return judge;
}

/* A tiny model writes nothing that asks for a lesson: all of it is fence, or left out. Without a
 * fence the same is taught. */
static void the_judge_sorts_what_the_model_writes(void **state)
{
    rvi_texts a[N_LESSONS] = {{{0}, {0}}}, b[N_LESSONS] = {{{0}, {0}}}, c[N_LESSONS] = {{{0}, {0}}};
    rvi_recogniser *judge = new_judge();
    rvi_text_writer w = writer(judge), same = w, unfenced = w;
    unfenced.no_same = true;
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_OWN, a, err));
    assert_ok(rvi_texts_write(&same, RVI_TEXTS_OWN, b, err));
    assert_ok(rvi_texts_write(&unfenced, RVI_TEXTS_OWN, c, err));
    for (size_t i = 0; i < N_LESSONS; i++) {
        assert_int_equal(c[i].fence.n, 0);
        assert_int_equal(c[i].teach.n, a[i].teach.n);
        for (size_t k = 0; k < a[i].teach.n; k++)
            assert_string_equal(c[i].teach.data[k], a[i].teach.data[k]);
        assert_int_equal(a[i].teach.n, b[i].teach.n);
        assert_int_equal(a[i].fence.n, b[i].fence.n);
        for (size_t k = 0; k < a[i].fence.n; k++) {
            rvi_recognised found;
            size_t n;
            assert_string_equal(a[i].fence.data[k], b[i].fence.data[k]);
            assert_ok(rvi_recogniser_ask(judge, a[i].fence.data[k], &found, 1, &n, err));
            assert_true(found.probability < 0.1f);
        }
    }
    rvi_texts_deinit(a, N_LESSONS);
    rvi_texts_deinit(b, N_LESSONS);
    rvi_texts_deinit(c, N_LESSONS);
    rvi_recogniser_free(judge);
}

static size_t count(const char *text, char c)
{
    size_t n = 0;
    for (; *text; text++) n += *text == c;
    return n;
}

/* Is there nothing in the part that the question has not? */
static bool is_part_of(const char *part, const char *question)
{
    for (const char *p = part; *p; p++)
        if (*p != ' ' && count(part, *p) > count(question, *p)) return false;
    return true;
}

static void parts_still_ask_for_the_lesson(void **state)
{
    rvi_texts out[N_LESSONS] = {{{0}, {0}}};
    rvi_recogniser *judge = new_judge();
    rvi_text_writer w = writer(judge);
    size_t n_parts = 0;
    (void)state;
    assert_ok(rvi_texts_write(&w, RVI_TEXTS_PARTS, out, err));
    for (size_t i = 0; i < N_LESSONS; i++) {
        no_text_comes_twice(&out[i].teach);
        for (size_t k = 1; k < out[i].teach.n; k++, n_parts++) {
            const char *part = out[i].teach.data[k];
            rvi_recognised found[2];
            size_t n;
            assert_true(is_part_of(part, group[i].question));
            assert_ok(rvi_recogniser_ask(judge, part, found, 2, &n, err));
            assert_true(found[0].sure && found[0].lesson == i + 1);
            assert_true(n < 2 || 2 * found[1].probability < found[0].probability);
        }
    }
    assert_true(n_parts > 0);
    rvi_texts_deinit(out, N_LESSONS);
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
    rvi_texts out[N_LESSONS] = {{{0}, {0}}};
    rvi_recogniser *judge = new_judge();
    rvi_text_writer w = writer(judge);
    (void)state;
    w.progress = stop;
    w.ctx = &calls;
    assert_int_equal(rvi_texts_write(&w, RVI_TEXTS_ALL, out, NULL), RV_E_CANCELLED);
    assert_int_equal(calls, 3);
    rvi_texts_deinit(out, N_LESSONS);
    rvi_recogniser_free(judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_taught_is_always_there),
        cmocka_unit_test(forms_need_no_language),
        cmocka_unit_test(the_judge_sorts_what_the_model_writes),
        cmocka_unit_test(parts_still_ask_for_the_lesson),
        cmocka_unit_test(writing_can_be_cancelled),
    };
    return cmocka_run_group_tests_name("texts", tests, open_all, close_all);
}
