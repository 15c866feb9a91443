/* The gate: by words, then by features. The features here are counts of the words that are not left
 * out, so that questions are near each other when they share words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/gate.h"
#include "learn/wordings.h"
#include "toy_tokenizer.h"

enum { DIM = 256, MAX_FACTS = 16 };

static size_t n_read;

static rv_status count_words(void *ctx, const rvi_gate_text *texts, size_t n, float *out,
                             rv_error *err)
{
    (void)ctx;
    memset(out, 0, n * DIM * sizeof *out);
    n_read += n;
    for (size_t i = 0; i < n; i++) {
        rvi_words w = {0};
        rv_status st = rvi_words_split(&w, texts[i].text, texts[i].len, err);
        if (st) return st;
        for (size_t k = 0; k < w.n; k++) {
            bool masked = false;
            uint32_t hash = 5381;
            for (size_t m = 0; m < texts[i].n_masks; m++)
                masked = masked || (w.data[k].at >= texts[i].masks[m].at &&
                                    w.data[k].at < texts[i].masks[m].at + texts[i].masks[m].len);
            for (const char *c = w.data[k].key; *c; c++) hash = hash * 33 + (uint8_t)*c;
            if (!masked) out[i * DIM + hash % DIM] += 1;
        }
        rvi_words_deinit(&w);
    }
    return RV_OK;
}

typedef struct house {
    rvi_tokenizer *t;
    rvi_fact *facts[MAX_FACTS];
    size_t n;
    rvi_calibration *calibration;
    rvi_gate *gate;
} house;

static const rvi_gate_reader reader = {.read = count_words, .dim = DIM};

static void teach(house *h, const char *q, const char *a)
{
    assert_ok(rvi_fact_read(&h->facts[h->n++], h->t, q, strlen(q), a, strlen(a), err));
}

static void build(house *h, bool calibrated)
{
    static const char *const questions[] = {"How do I make tea?", "Write a poem about the sea.",
                                            "What is the capital of France?",
                                            "Tell me a good joke about a dog."};
    if (calibrated && !h->calibration)
        assert_ok(rvi_calibration_new(&h->calibration, &reader, questions, 4, err));
    rvi_gate_free(h->gate);
    assert_ok(rvi_gate_new(&h->gate, h->t, (const rvi_fact *const *)h->facts, h->n,
                           calibrated ? h->calibration : NULL, &reader, NULL, err));
}

static void open_house(house *h)
{
    *h = (house){.t = toy_tokenizer()};
    assert_non_null(h->t);
}

static void close_house(house *h)
{
    rvi_gate_free(h->gate);
    rvi_calibration_free(h->calibration);
    for (size_t i = 0; i < h->n; i++) rvi_fact_free(h->facts[i]);
    rvi_tokenizer_free(h->t);
}

/* The facts of the subjects that the last of these turns (user, model, user ...) names */
static rvi_gate_hit ask_turns(const house *h, const char *const *texts, size_t n)
{
    rvi_turn turns[8];
    rvi_gate_hit hit;
    for (size_t i = 0; i < n; i++)
        turns[i] = (rvi_turn){texts[i], strlen(texts[i]), (n - 1 - i) % 2 == 0};
    assert_ok(rvi_gate_words(h->gate, turns, n, &hit, err));
    return hit;
}

static rvi_gate_hit ask(const house *h, const char *text)
{
    return ask_turns(h, &text, 1);
}

static int pick(const house *h, const char *text, float tau)
{
    float x[DIM];
    rvi_gate_hit hit = ask(h, text);
    rvi_gate_text t = {text, strlen(text), hit.masks, hit.n_masks};
    assert_ok(count_words(NULL, &t, 1, x, err));
    return rvi_gate_pick(h->gate, &hit, x, tau);
}

static void subjects_by_words(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    teach(&h, "Who is Anna Kowalska's brother?", "Tomasz");
    teach(&h, "What is Kakovin's instrument?", "banjo");
    build(&h, false);
    assert_int_equal(ask(&h, "Where has KAKOVIN been?").n, 1);
    assert_int_equal(ask(&h, "Is that kakovin's?").n, 1);
    assert_int_equal(ask(&h, "Do you know Anna  Kowalska?").n, 1);
    assert_int_equal(ask(&h, "What do Kakovin and Anna Kowalska like?").n, 2);
    static const char *const closed[] = {"What is Karivin's job?",
                                         "What is Kakovina's job?",
                                         "What is Kakov's job?",
                                         "Who is Anna's brother?",
                                         "Who is Anna Nowak's brother?",
                                         "Who is Kowalska, Anna?",
                                         "Anna. Kowalska is a name.",
                                         "Where is he?",
                                         "",
                                         "What is Kakogin's job?",
                                         "What is Kakovins's job?"};
    for (size_t i = 0; i < RVI_COUNT(closed); i++) assert_int_equal(ask(&h, closed[i]).n, 0);
    rvi_gate_hit hit = ask(&h, "What is Kakovin's instrument?");
    assert_true(rvi_gate_about(h.gate, &hit, 0) && rvi_gate_about(h.gate, &hit, 2));
    assert_false(rvi_gate_about(h.gate, &hit, 1));
    assert_int_equal(hit.n_masks, 1);
    assert_int_equal(hit.masks[0].at, 8);
    assert_int_equal(hit.masks[0].len, 7);
    /* without features: the fact that shares most words */
    assert_int_equal(rvi_gate_pick(h.gate, &hit, NULL, RVI_GATE_TAU), 2);
    hit = ask(&h, "Which job has Kakovin?");
    assert_int_equal(rvi_gate_pick(h.gate, &hit, NULL, RVI_GATE_TAU), 0);
    close_house(&h);
}

/* Names with an apostrophe, a hyphen or a possessive in them, and neighbours that share a part */
static void names_of_several_parts(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is O'Drellan's locker number?", "719");
    teach(&h, "What is the codename of vorto-cam?", "Bluefin");
    teach(&h, "In what year did Kettle-on-Brae open?", "1926");
    teach(&h, "What is plonkit mini's battery life?", "53 hours");
    teach(&h, "Who is the publisher of The Tinker's Almanac?", "Marlow Press");
    teach(&h, "What colour is the front door of the Fisher's Loft?", "green");
    teach(&h, "When is the rubbish collected at St Wyllow's Lodge?", "Tuesdays");
    build(&h, false);
    static const char *const open[] = {"Is O\xE2\x80\x99"
                                       "Drellan in?",
                                       "Where are O'Drellan's keys?",
                                       "I'm reading old memos about vorto-cam again.",
                                       "What is Vorto-Cam's price?",
                                       "How do I get to Kettle-on-Brae?",
                                       "Is the plonkit mini any good?",
                                       "Have you read The Tinker's Almanac?",
                                       "THE TINKER'S ALMANAC IS A BOOK",
                                       "Is Fisher's Loft's roof new?",
                                       "Who lives at St. Wyllow's Lodge?"};
    static const char *const closed[] = {"Is O'Brennan in?",
                                         "Is Drellan in?",
                                         "I'm reading old memos about porto-cam again.",
                                         "What is a vorto?",
                                         "How do I get to Kettle-on-Sea?",
                                         "How do I get to Brae?",
                                         "Is the plonkit max any good?",
                                         "Have you read The Sailor's Almanac?",
                                         "Who repaired the tinker's radio?",
                                         "What colour is The Weaver's Loft?",
                                         "Who lives at St Wyllow's Court?"};
    for (size_t i = 0; i < RVI_COUNT(open); i++)
        if (ask(&h, open[i]).n != 1) fail_msg("closed: %s", open[i]);
    for (size_t i = 0; i < RVI_COUNT(closed); i++)
        if (ask(&h, closed[i]).n) fail_msg("open: %s", closed[i]);
    close_house(&h);
}

static void slips_of_the_keyboard(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    teach(&h, "What is Zarrith's job?", "judge");
    build(&h, false);
    static const char *const open[] = {"What is Kakovvin's job?", "What is Kakoivn's job?",
                                       "What is akKovin's job?", "What is Zarith's job?"};
    static const char *const closed[] = {"What is Kaokvni's job?", "What is Kakovim's job?",
                                         "What is Kakvin's job?",  "What is Zaritth's job?",
                                         "What is Kako's job?",    "What is Kkaakkovin's job?"};
    for (size_t i = 0; i < RVI_COUNT(open); i++) assert_int_equal(ask(&h, open[i]).n, 1);
    for (size_t i = 0; i < RVI_COUNT(closed); i++) assert_int_equal(ask(&h, closed[i]).n, 0);
    /* not where the right name stands beside it */
    assert_int_equal(ask(&h, "Is Kakoivn the same as Zarrith?").n, 1);
    close_house(&h);
}

static void pronouns_look_back(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    teach(&h, "What is Tamsel's job?", "judge");
    build(&h, false);
    static const char *const she[] = {"I met Tamsel and Kakovin.", "How nice!", "What is her job?"};
    static const char *const none[] = {"I met Tamsel and Kakovin.", "How nice!", "What is tea?"};
    static const char *const named[] = {"I met Kakovin.", "How nice!", "Did Tamsel see him?"};
    rvi_gate_hit hit = ask_turns(&h, she, 3);
    assert_true(hit.n == 1 && hit.by_pronoun && hit.n_masks == 0);
    assert_true(rvi_gate_about(h.gate, &hit, 0));
    assert_int_equal(ask_turns(&h, none, 3).n, 0);
    hit = ask_turns(&h, named, 3);
    assert_true(hit.n == 1 && !hit.by_pronoun && rvi_gate_about(h.gate, &hit, 1));
    close_house(&h);
}

static void other_names_of_a_subject(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    teach(&h, "", "Koko Bell is Kakovin's nickname.");
    build(&h, false);
    rvi_gate_hit hit = ask(&h, "What is Koko Bell's job?");
    assert_true(hit.n == 1 && rvi_gate_about(h.gate, &hit, 0));
    assert_int_equal(ask(&h, "Does a bell ring?").n, 0);
    close_house(&h);
}

/* A subject that is an ordinary word opens only with more of the question. */
static void ordinary_words_need_company(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is my favourite colour?", "blue");
    build(&h, false);
    assert_int_equal(ask(&h, "Do you know my favourite colour?").n, 1);
    assert_int_equal(ask(&h, "What is the colour of grass?").n, 0);
    assert_int_equal(ask(&h, "Anna has a favourite colour.").n, 0);
    close_house(&h);
}

static void relations_by_features(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    teach(&h, "What is Kakovin's musical instrument?", "banjo");
    teach(&h, "Where did Tamsel hide the key?", "under the mat");
    teach(&h, "What is Tamsel's job?", "judge");
    build(&h, true);
    assert_true(rvi_gate_calibrated(h.gate));
    assert_int_equal(pick(&h, "Which musical instrument has Kakovin?", RVI_GATE_TAU), 1);
    assert_int_equal(pick(&h, "I forgot the job of Kakovin.", RVI_GATE_TAU), 0);
    assert_int_equal(pick(&h, "I forgot the job of Tamsel.", RVI_GATE_TAU), 3);
    assert_int_equal(pick(&h, "Please tell me where Tamsel hid the key.", RVI_GATE_TAU), 2);
    assert_int_equal(pick(&h, "Which musical instrument has Tamsel?", RVI_GATE_TAU), -1);
    assert_int_equal(pick(&h, "Which musical instrument has Orvald?", RVI_GATE_TAU), -1);
    assert_int_equal(pick(&h, "What is Kakovin's shoe size?", RVI_GATE_TAU_STRICT), -1);
    /* the very question, however its shape */
    assert_int_equal(pick(&h, "where did tamsel hide the key", RVI_GATE_TAU_STRICT), 2);
    teach(&h, "How old is Tamsel?", "12");
    build(&h, true);
    assert_int_equal(pick(&h, "How old is Tamsel?", RVI_GATE_TAU_STRICT), 4);
    assert_int_equal(pick(&h, "Tell me how old Tamsel is.", RVI_GATE_TAU), 4);
    /* a correction of a correction: the newest counts */
    teach(&h, "What is Kakovin's job?", "judge");
    build(&h, true);
    assert_int_equal(pick(&h, "I forgot the job of Kakovin.", RVI_GATE_TAU), 5);
    close_house(&h);
}

static void known_prototypes_are_kept(void **state)
{
    house h;
    rvi_gate *next;
    (void)state;
    open_house(&h);
    teach(&h, "What is Kakovin's job?", "plumber");
    build(&h, true);
    teach(&h, "What is Tamsel's job?", "judge");
    teach(&h, "What is Tamsel's car?", "a Volvo");
    n_read = 0;
    assert_ok(rvi_gate_new(&next, h.t, (const rvi_fact *const *)h.facts, h.n, h.calibration,
                           &reader, h.gate, err));
    assert_int_equal(n_read, 3 * RVI_WORDINGS_ASK); /* only the car's */
    rvi_gate_free(h.gate);
    h.gate = next;
    assert_int_equal(pick(&h, "I forgot the job of Tamsel.", RVI_GATE_TAU), 1);
    close_house(&h);
}

static void empty_store(void **state)
{
    house h;
    (void)state;
    open_house(&h);
    build(&h, true);
    assert_int_equal(ask(&h, "What is Kakovin's job?").n, 0);
    assert_int_equal(pick(&h, "What is Kakovin's job?", RVI_GATE_TAU), -1);
    close_house(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(subjects_by_words),
                                       cmocka_unit_test(names_of_several_parts),
                                       cmocka_unit_test(slips_of_the_keyboard),
                                       cmocka_unit_test(pronouns_look_back),
                                       cmocka_unit_test(other_names_of_a_subject),
                                       cmocka_unit_test(ordinary_words_need_company),
                                       cmocka_unit_test(relations_by_features),
                                       cmocka_unit_test(known_prototypes_are_kept),
                                       cmocka_unit_test(empty_store)};
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
