/* Wordings of facts, and the questions that fence them in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/consolidate/wordings.h"
#include "toy_tokenizer.h"

enum { N_FACTS = 5 };
static rvi_fact *facts[N_FACTS];
static const rvi_fact *store[N_FACTS];

static int make_facts(void **state)
{
    static const char *const said[N_FACTS][2] = {
        {"What is Kakovin's musical instrument?", "banjo"},
        {"What is Tamsel's musical instrument?", "violin"},
        {"What is Kakovin's job?", "plumber"},
        {"Where did Zarith hide the key?", "under the mat"},
        {"How do I make tea?", "Boil water. Wait."}};
    rvi_tokenizer *t = toy_tokenizer();
    (void)state;
    for (size_t i = 0; i < N_FACTS; i++) {
        const char *q = said[i][0], *a = said[i][1];
        assert_ok(rvi_fact_read(&facts[i], t, q, strlen(q), a, strlen(a), err));
        store[i] = facts[i];
    }
    rvi_tokenizer_free(t);
    return 0;
}

static int free_facts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FACTS; i++) rvi_fact_free(facts[i]);
    return 0;
}

static void eighteen_in_their_order(void **state)
{
    static const char *const want[RVI_WORDINGS_BASE][2] = {
        {"What is Kakovin's musical instrument?", ""},
        {"What is the musical instrument of Kakovin?", ""},
        {"Tell me Kakovin's musical instrument.", ""},
        {"Do you know the musical instrument of Kakovin?", ""},
        {"Is banjo Kakovin's musical instrument?", "Yes, Kakovin's musical instrument is banjo."},
        {"Complete the sentence: Kakovin's musical instrument is", ""},
        {"I have a question about Kakovin. What is the musical instrument?", ""},
        {"Tell me about Kakovin.",
         "Kakovin's musical instrument is banjo. Kakovin's job is plumber."},
        {NULL, "The musical instrument of Kakovin is banjo."},
        {"What is Tamsel's musical instrument, and what is Kakovin's musical instrument?",
         "Tamsel's musical instrument is violin. Kakovin's musical instrument is banjo."},
        {"One. What is Kakovin's musical instrument?", ""},
        {"Two. Tell me the musical instrument of Kakovin.", ""},
        {"Please remind me of Kakovin's musical instrument.", ""},
        {"Kakovin: musical instrument?", ""},
        {"Is violin Kakovin's musical instrument?", "No, Kakovin's musical instrument is banjo."},
        {"Three. What is the musical instrument of Kakovin?", ""},
        {"Somebody asked about Kakovin. Say what the musical instrument is.", ""},
        {"Kakovin's musical instrument?", ""}};
    static const char *const contexts[] = {"One.", "Two.", "Three."};
    const rvi_fact *others[] = {store[1], store[2]};
    rvi_surroundings around = {others, 2, contexts, 3};
    rvi_wordings w = {0};
    (void)state;
    assert_ok(rvi_wordings_teach(&w, store[0], &around, RVI_WORDINGS_BASE, err));
    assert_int_equal(w.n, RVI_WORDINGS_BASE);
    for (size_t i = 0; i < w.n; i++) {
        const char *reply = *want[i][1] ? want[i][1] : "Kakovin's musical instrument is banjo.";
        if (want[i][0])
            assert_string_equal(w.data[i].user, want[i][0]);
        else
            assert_null(w.data[i].user);
        assert_string_equal(w.data[i].reply, reply);
    }
    assert_string_equal(w.data[8].reply + w.data[8].loss_from, " banjo.");
    rvi_wordings_deinit(&w);
}

/* Whatever the kind: every wording says the answer, and all questions name the subject. */
static void all_say_the_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FACTS; i++) {
        rvi_wordings w = {0};
        rvi_rng rng = {7};
        assert_ok(rvi_wordings_teach_from(&w, store[i], store, N_FACTS, NULL, 0, 99, &rng, err));
        assert_true(w.n >= (store[i]->kind == RVI_FACT_FREE ? 1 : RVI_WORDINGS_BASE));
        for (size_t k = 0; k < w.n; k++) {
            assert_non_null(strstr(w.data[k].reply, store[i]->answer));
            if (w.data[k].user) assert_non_null(strstr(w.data[k].user, store[i]->subject));
            assert_null(strchr(w.data[k].reply, '$'));
            assert_true(w.data[k].loss_from < strlen(w.data[k].reply));
            for (size_t j = 0; w.data[k].user && j < k; j++)
                if (w.data[j].user && w.data[j].user[0] != w.data[k].user[0])
                    assert_string_not_equal(w.data[j].user, w.data[k].user);
        }
        rvi_wordings_deinit(&w);
    }
}

static void same_seed_same_texts(void **state)
{
    static const char *const contexts[] = {"a.", "b.", "c.", "d.", "e.", "f."};
    rvi_wordings w[3] = {{0}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        rvi_rng rng = {i == 2 ? 9u : 4u};
        rvi_fence fence = {.names = 6, .same = 2, .common = 1, .forced = true};
        assert_ok(
            rvi_wordings_teach_from(&w[i], store[0], store, N_FACTS, contexts, 6, 30, &rng, err));
        assert_ok(rvi_wordings_negatives(&w[i], store, N_FACTS, &fence, &rng, err));
    }
    size_t differ = w[0].n != w[2].n;
    assert_int_equal(w[0].n, w[1].n);
    for (size_t i = 0; i < w[0].n; i++) {
        if (w[0].data[i].user) assert_string_equal(w[0].data[i].user, w[1].data[i].user);
        if (i < w[2].n && w[0].data[i].user && w[2].data[i].user)
            differ += strcmp(w[0].data[i].user, w[2].data[i].user) != 0;
    }
    assert_true(differ > 0);
    for (size_t i = 0; i < 3; i++) rvi_wordings_deinit(&w[i]);
}

/* No negative asks what was taught, and none gives a taught answer away. */
static void negatives_are_not_taught(void **state)
{
    rvi_wordings w = {0};
    rvi_rng rng = {3};
    rvi_fence fence = {.names = 6, .same = 2, .common = 2, .forced = true};
    size_t forced = 0;
    (void)state;
    assert_ok(rvi_wordings_negatives(&w, store, N_FACTS, &fence, &rng, err));
    assert_true(w.n > 40);
    for (size_t i = 0; i < w.n; i++) {
        const rvi_wording *x = &w.data[i];
        assert_non_null(x->user);
        forced += x->reply != NULL;
        assert_null(strstr(x->user, "banjo"));
        assert_null(strstr(x->user, "Zarith hid"));
        if (strstr(x->user, "Kakovin ")) assert_null(strstr(x->user, "instrument"));
        if (strstr(x->user, "Kakovin's")) assert_null(strstr(x->user, "instrument"));
        if (x->reply) assert_null(strstr(x->reply, "plumber"));
    }
    assert_true(forced * 2 == w.n);
    rvi_wordings_deinit(&w);
}

static void other_names(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++)
        for (uint64_t seed = 0; seed < 50; seed++) {
            rvi_buf name = {0};
            rvi_rng rng = {seed};
            assert_ok(rvi_wordings_other_name(&name, store, N_FACTS, kind, &rng, err));
            assert_true(name.len >= 3);
            for (size_t i = 0; i < N_FACTS; i++)
                assert_string_not_equal(name.data, store[i]->subject);
            rvi_buf_deinit(&name);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eighteen_in_their_order), cmocka_unit_test(all_say_the_answer),
        cmocka_unit_test(same_seed_same_texts), cmocka_unit_test(negatives_are_not_taught),
        cmocka_unit_test(other_names)};
    return cmocka_run_group_tests_name("wordings", tests, make_facts, free_facts);
}
