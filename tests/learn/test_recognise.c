/* Which lesson a request asks for: by spelling alone here; tests/real has it with the embedder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/recognise/reading.h"
#include "learn/recognise/identity.h"
#include "learn/recognise/recogniser.h"
#include "learn/recognise/sentences.h"
#include "learn/recognise/signs.h"

static rvi_recogniser *recogniser(void)
{
    rvi_recogniser *r = NULL;
    assert_ok(rvi_recogniser_new(&r, NULL, NULL, err));
    return r;
}

static rvi_recognised ask(rvi_recogniser *r, const char *request)
{
    rvi_recognised found = {0};
    size_t n;
    assert_ok(rvi_recogniser_ask(r, request, &found, 1, &n, err));
    return n ? found : (rvi_recognised){0};
}

/* ---- readings ---- */

static rvi_reading *read_text(const char *text)
{
    rvi_reading *r = NULL;
    assert_ok(rvi_reading_new(&r, NULL, text, strlen(text), false, err));
    return r;
}

static void check_words(const char *text, int n)
{
    rvi_reading *r = read_text(text);
    if (r->n != n) fail_msg("\"%s\" has %d words, not %d", text, r->n, n);
    rvi_reading_free(r);
}

static void words_are_found_in_every_script(void **state)
{
    (void)state;
    check_words("What is the capital of Australia?", 6);
    check_words("", 0);
    check_words("?! ... --", 0);
    check_words("C++ / $5.00", 7);
    check_words("\xE4\xBD\xA0\xE5\xA5\xBD", 2);                         /* two Han characters */
    check_words("\xE3\x82\xAB\xE3\x83\x8A\xE3\x83\x80\xE3\x81\xAE", 2); /* katakana, hiragana */
    check_words("\xFF\xFE\x80", 3); /* broken bytes are symbols */
}

static void accents_and_capitals_make_no_difference(void **state)
{
    (void)state;
    rvi_reading *a = read_text("CAF\xC3\x89 Zo\xC3\xAB"), *b = read_text("cafe zoe");
    assert_int_equal(a->n, 2);
    for (int i = 0; i < 2; i++) assert_true(a->words[i].key == b->words[i].key);
    rvi_reading_free(a);
    rvi_reading_free(b);
}

static void long_texts_are_read_to_a_limit(void **state)
{
    (void)state;
    rvi_buf text = {0};
    for (int i = 0; i < 20000; i++) assert_true(rvi_buf_printf(&text, "word%d ", i));
    rvi_reading *r = read_text(text.data);
    assert_int_equal(r->n, RVI_READING_WORDS);
    rvi_reading_free(r);
    rvi_buf_deinit(&text);
}

static bool reads_long(const char *word, const char *between, int n)
{
    rvi_buf text = {0};
    for (int i = 0; i < n; i++) assert_true(rvi_buf_printf(&text, "%s%s", i ? between : "", word));
    rvi_reading *r = read_text(text.data);
    bool is = r->is_long;
    rvi_reading_free(r);
    rvi_buf_deinit(&text);
    return is;
}

/* A text is as long in every script: a word of two syllables 14 and 28 times. */
static void long_is_a_matter_of_words(void **state)
{
    (void)state;
    static const struct {
        const char *word, *between;
    } scripts[] = {
        {"river", " "},
        {"\xD1\x80\xD0\xB5\xD0\xBA\xD0\xB0", " "}, /* Russian */
        {"\xE6\xB2\xB3\xE6\xB5\x81", ""},          /* Chinese */
        {"\xE5\xB7\x9D\xE3\x81\xAE", ""},          /* Japanese */
        {"\xE0\xB9\x81\xE0\xB8\xA1\xE0\xB9\x88\xE0\xB8\x99\xE0\xB9\x89\xE0\xB8\xB3", ""}, /* Thai */
    };
    for (size_t i = 0; i < RVI_COUNT(scripts); i++) {
        assert_false(reads_long(scripts[i].word, scripts[i].between, 14));
        assert_true(reads_long(scripts[i].word, scripts[i].between, 28));
    }
}

/* ---- recognising ---- */

static int language_of(const char *text)
{
    int language;
    assert_ok(rvi_identity_asked(text, strlen(text), &language, err));
    return language;
}

/* Who one is and what one is called is the same question, in one language. */
static void a_name_is_asked_for_in_many_ways(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    assert_ok(rvi_recogniser_add(r, 3, "Who are you?", "I am Ruvi.", err));
    assert_true(ask(r, "What's your name?").sure);
    assert_true(ask(r, "Hello! WHAT IS YOUR NAME").sure);
    assert_true(ask(r, "Could you introduce yourself, please?").sure);
    static const char *const others[] = {"",
                                         "?",
                                         "What is my name?",
                                         "Who made you?",
                                         "Who are they?",
                                         "What does your name mean?",
                                         "What is your name for this plant?",
                                         "please",
                                         "Please tell me"};
    for (size_t i = 0; i < RVI_COUNT(others); i++) assert_int_equal(language_of(others[i]), 0);
    static const char german[] = "Wie hei\xC3\x9Ft du?";
    assert_int_not_equal(language_of(german), 0);
    /* with courtesy, and with marks apart from their letters */
    assert_true(ask(r, "Tell me your name please").sure);
    assert_true(ask(r, "Please tell me who you are").sure);
    assert_int_equal(language_of("sag mir bitte deinen Namen"), language_of(german));
    assert_int_equal(language_of("\xC2\xBFQuie\xCC\x81n eres?"), language_of("quien eres"));
    assert_int_equal(language_of("Hai un nome per favore?"), language_of("Chi sei"));
    assert_false(ask(r, german).sure);
    assert_ok(rvi_recogniser_add(r, 2, "What is your name?", "Ruvi.", err));
    assert_int_equal(ask(r, "who are you").lesson, 3); /* each its own, though one is newer, */
    assert_int_equal(ask(r, "what is your name").lesson, 2);
    assert_int_equal(ask(r, "Tell me your name").lesson, 2);    /* or the one that is judged so, */
    assert_int_equal(ask(r, "What are you called?").lesson, 3); /* and else the newest */
    assert_false(ask(r, "A stranger knocks at the castle's door. Introduce yourself.").sure);
    rvi_recogniser_free(r);
}

static void the_very_question_is_recognised(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    assert_int_equal(ask(r, "Anything?").lesson, 0);
    assert_ok(rvi_recogniser_add(r, 7, "Where did Belmara hide the key?", "Under the mat.", err));
    rvi_recognised found = ask(r, "where did belmara hide the KEY");
    assert_int_equal(found.lesson, 7);
    assert_true(found.sure);
    assert_true(found.probability == 1);
    assert_true(ask(r, "I am locked out. Where did Belmara hide the key? Thanks a lot!").sure);
    assert_true(ask(r, "Good morning! Where did Belmara hide the key\n").sure);
    assert_false(ask(r, "Where did Belmara hide the key? How do I boil an egg? Thanks!").sure);
    assert_false(ask(r, "How do I boil an egg?").sure);
    assert_false(ask(r, "").sure);
    rvi_recogniser_free(r);
}

/* What a mark sets apart around a question counts for nothing if it names nothing. */
static void manners_around_a_question_do_not_hide_it(void **state)
{
    (void)state;
    static const char *const same[] = {
        "Hello, what is the population of Paris?",
        "What is the population of Paris, please?",
        "Sorry to bother you, quick question: what is the population of Paris, thanks",
        "I read about cities. Hi there, what is the population of Paris, please?",
    };
    static const char *const other[] = {
        "What is the population of Paris, Texas?",
        "In 1900, what is the population of Paris?",
        "What is the population of Paris,Texas?",
    };
    rvi_recogniser *r = recogniser();
    assert_ok(rvi_recogniser_add(r, 1, "What is the population of Paris?", "2 million", err));
    assert_ok(
        rvi_recogniser_add(r, 2, "\xE5\xB7\xB4\xE9\xBB\x8E\xE5\x9C\xA8\xE5\x93\xAA", "Paris", err));
    for (size_t i = 0; i < RVI_COUNT(same); i++)
        if (ask(r, same[i]).lesson != 1 || !ask(r, same[i]).sure) fail_msg("%s", same[i]);
    for (size_t i = 0; i < RVI_COUNT(other); i++)
        if (ask(r, other[i]).probability >= 1) fail_msg("%s", other[i]);
    /* a greeting and a wide comma before, a wide question mark behind */
    rvi_recognised found = ask(r, "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE5\xB7\xB4\xE9\xBB\x8E"
                                  "\xE5\x9C\xA8\xE5\x93\xAA\xEF\xBC\x9F");
    assert_int_equal(found.lesson, 2);
    assert_true(found.probability >= 1);
    rvi_recogniser_free(r);
}

/* Words before a comma are no manners where the lesson has such words too. */
static void what_is_compared_is_not_left_out(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    assert_ok(rvi_recogniser_add(r, 1, "Which is quieter, the Halo or the Brisk fan?", "B.", err));
    assert_true(ask(r, "Hi, which is quieter, the Halo or the Brisk fan?").sure);
    assert_false(ask(r, "Which is cheaper, the Halo or the Brisk fan?").sure);
    assert_false(ask(r, "I saw two. Which is cheaper, the Halo or the Brisk fan?").sure);
    rvi_recogniser_free(r);
}

/* Long texts that begin alike, and texts without a word, are not taken for each other. */
static void what_was_not_read_is_not_recognised(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    rvi_buf name = {0}, school = {0};
    for (int i = 0; i < 200; i++) {
        assert_true(rvi_buf_printf(&name, "word%d ", i));
        assert_true(rvi_buf_printf(&school, "word%d ", i));
    }
    assert_true(rvi_buf_puts(&name, "and what is my name"));
    assert_true(rvi_buf_puts(&school, "and where did I study"));
    assert_ok(rvi_recogniser_add(r, 1, name.data, "Anna", err));
    assert_ok(rvi_recogniser_add(r, 2, "???", "What?", err));
    assert_true(ask(r, name.data).sure);
    assert_false(ask(r, school.data).sure);
    assert_true(ask(r, "???").sure);
    assert_false(ask(r, "!").sure);
    rvi_buf_deinit(&name);
    rvi_buf_deinit(&school);
    rvi_recogniser_free(r);
}

static void of_contradicting_lessons_the_newest_wins(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    assert_ok(rvi_recogniser_add(r, 3, "Who owns the boat?", "Anna", err));
    assert_ok(rvi_recogniser_add(r, 9, "Who owns the boat?", "Ben", err));
    assert_ok(rvi_recogniser_add(r, 5, "who owns the boat", "Carla", err));
    assert_int_equal(ask(r, "Who owns the boat?").lesson, 9);
    rvi_recogniser_remove(r, 9);
    rvi_recogniser_remove(r, 9);
    assert_int_equal(ask(r, "Who owns the boat?").lesson, 5);
    rvi_recogniser_clear(r);
    assert_int_equal(ask(r, "Who owns the boat?").lesson, 0);
    rvi_recogniser_free(r);
}

static void many_lessons_are_told_apart(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    char question[64];
    for (uint64_t i = 1; i <= 500; i++) {
        snprintf(question, sizeof question, "What is the code of room %d?", (int)i);
        assert_ok(rvi_recogniser_add(r, i, question, "secret", err));
    }
    for (uint64_t i = 1; i <= 500; i += 83) {
        snprintf(question, sizeof question, "what is the code of room %d", (int)i);
        assert_int_equal(ask(r, question).lesson, i);
    }
    rvi_recogniser_free(r);
}

/* Further back than a turn that names something, or lends a word, nothing explains a request. */
static void an_earlier_turn_explains_a_request(void **state)
{
    (void)state;
    rvi_recogniser *r = recogniser();
    rvi_recognised found = {0};
    size_t n;
    bool last = true;
    assert_ok(rvi_recogniser_follow(r, "Who is Belmara?", "Where?", &found, 1, &n, &last, err));
    assert_int_equal(n, 0);
    assert_ok(rvi_recogniser_add(r, 7, "Where did Belmara hide the key?", "Under the mat.", err));
    assert_ok(rvi_recogniser_follow(r, "And what then?", "Where?", &found, 1, &n, &last, err));
    assert_false(last);
    assert_false(n && found.sure);
    assert_ok(rvi_recogniser_follow(r, "who was belmara", "Where did she hide the key?", &found, 1,
                                    &n, &last, err));
    assert_true(last);
    assert_int_equal(n, 1);
    assert_int_equal(found.lesson, 7);
    assert_ok(rvi_recogniser_follow(r, "Who was Zorvath?", "Where did she hide the key?", &found, 1,
                                    &n, &last, err));
    assert_true(last);
    assert_int_equal(n, 0);
    /* asked already, and now something else */
    assert_ok(rvi_recogniser_follow(r, "Where did Belmara hide the key?", "And the map?", &found, 1,
                                    &n, &last, err));
    assert_int_equal(n, 0);
    rvi_recogniser_free(r);
}

/* ---- what is kept ---- */

typedef struct notebook {
    rvi_buf data[2]; /* of the one lesson: gist and reading */
    int n_kept, n_recalled;
} notebook;

static bool recall(void *ctx, rvi_kept what, uint64_t lesson, rvi_buf *out)
{
    notebook *b = ctx;
    (void)lesson;
    b->n_recalled++;
    return b->data[what].len && rvi_buf_append(out, b->data[what].data, b->data[what].len);
}

static void keep(void *ctx, rvi_kept what, uint64_t lesson, const void *data, size_t len)
{
    notebook *b = ctx;
    (void)lesson;
    b->n_kept++;
    b->data[what].len = 0;
    assert_true(rvi_buf_append(&b->data[what], data, len));
}

static rvi_recogniser *with_boat_house(const rvi_recogniser_memory *memory)
{
    rvi_recogniser *r = NULL;
    assert_ok(rvi_recogniser_new(&r, NULL, memory, err));
    assert_ok(rvi_recogniser_add(r, 1, "Where is the boat house key?", "Under the mat.", err));
    return r;
}

/* A lesson is read once; what was kept of it may be damaged in any byte. */
static void readings_are_kept(void **state)
{
    (void)state;
    notebook book = {0};
    const rvi_recogniser_memory memory = {&book, recall, keep};
    static const char ask_for[] = "Where is the key of the boat house hidden?";
    rvi_recogniser *r = with_boat_house(&memory);
    float first = ask(r, ask_for).probability;
    assert_int_equal(book.n_kept, 2);
    rvi_recogniser_free(r);
    for (int what = RVI_KEPT_GIST; what <= RVI_KEPT_READING; what++) {
        rvi_buf *data = &book.data[what];
        for (size_t damage = 0; damage < data->len; damage += damage < 64 ? 1 : 97) {
            data->data[damage] ^= 0x55;
            book.n_kept = 0;
            r = with_boat_house(&memory);
            rvi_recognised found = ask(r, ask_for);
            assert_true(found.probability >= 0 && found.probability <= 1);
            rvi_recogniser_free(r);
            if (book.n_kept) assert_true(found.probability == first); /* it was read anew */
            if (!book.n_kept) data->data[damage] ^= 0x55;             /* taken as it was: mended */
        }
    }
    assert_true(book.n_recalled > 50);
    book.n_kept = 0;
    r = with_boat_house(&memory);
    assert_true(ask(r, ask_for).probability == first);
    assert_int_equal(book.n_kept, 0);
    rvi_recogniser_free(r);
    for (int what = RVI_KEPT_GIST; what <= RVI_KEPT_READING; what++)
        rvi_buf_deinit(&book.data[what]);
}

/* What is read when it is taught need not be read by the next who asks; and of many lessons only
 * those are taken out of memory in full that may be asked for. */
static void lessons_are_read_before_anybody_asks(void **state)
{
    (void)state;
    notebook book = {0};
    const rvi_recogniser_memory memory = {&book, recall, keep};
    rvi_recogniser *r = with_boat_house(&memory);
    assert_ok(rvi_recogniser_read(r, 1, err));
    assert_ok(rvi_recogniser_read(r, 2, err)); /* is not there */
    assert_int_equal(book.n_kept, 2);
    rvi_recogniser_free(r);
    book.n_recalled = 0;
    r = with_boat_house(&memory);
    for (uint64_t i = 2; i <= 100; i++)
        assert_ok(rvi_recogniser_add(r, i, "What does a pound of butter cost?", "A lot.", err));
    (void)ask(r, "What does butter cost?");
    assert_in_range(book.n_recalled, 100, 100 + 24);
    rvi_recogniser_free(r);
    for (int what = RVI_KEPT_GIST; what <= RVI_KEPT_READING; what++)
        rvi_buf_deinit(&book.data[what]);
}

static void check_apart(const char *text, const char *other, const char *rest, bool share)
{
    rvi_buf out = {0};
    assert_int_equal(rvi_sentences_apart(text, strlen(text), other, strlen(other), &out), share);
    assert_true(rvi_buf_putc(&out, 0)); /* there may be nothing */
    assert_string_equal(out.data, rest);
    rvi_buf_deinit(&out);
}

static void check_signs(const char *a, const char *b, bool differ)
{
    rvi_text x = {a, strlen(a)}, y = {b, strlen(b)};
    if (rvi_signs_differ(x, y) != differ || rvi_signs_differ(y, x) != differ)
        fail_msg("\"%s\" and \"%s\"", a, b);
}

static void signs_of_numbers_tell_them_apart(void **state)
{
    (void)state;
    check_signs("What is 7 - -3?", "What is 7 - 3?", true);
    check_signs("What is 7 - -3?", "what's 7 - (-3)", false);
    check_signs("What is 12 + 30?", "What is -12 + 30?", true);
    check_signs("7-3", "7 - 3", false);
    check_signs("f(-2)", "f(2)", true);
    check_signs("Is it \xE2\x88\x92"
                "5 degrees?",
                "Is it -5 degrees?", false);
    check_signs("How cold is -5.5?", "How cold is 5.5?", true);
    check_signs("How cold is -5.5?", "How cold is 5?", false); /* other numbers: not its matter */
    check_signs("What is $5?",
                "What is \xE2\x82\xAC"
                "5?",
                true);
    check_signs("What is $5?", "What is 5 $?", false);
    check_signs("What is $5?", "What is 5 dollars?", false);
    check_signs("What is -$5?", "What is $-5?", false);
    check_signs("What is -$5?", "What is $5?", true);
    check_signs("Who plays in COVID-19?", "Who plays in covid 19?", false);
    check_signs("2024-05-01", "2024 05 01", false);
    check_signs("from 3 to -3", "from -3 to 3", false);
    check_signs("", "-", false);
    check_signs("-", "1", false);
}

static void shared_sentences_are_left_out(void **state)
{
    (void)state;
    check_apart("I have a boat. It leaks. Why?", "Why?  I have a boat.", "It leaks.", true);
    check_apart("I have a boat. It leaks. Why?", "I have a ship. It rolls. How?",
                "I have a boat. It leaks. Why?", false);
    check_apart("It costs 3.50 now.\nIs that much", "Is that much", "It costs 3.50 now.", true);
    check_apart("\xE8\x88\xB9\xE3\x80\x82\xE4\xBD\x95?", "\xE8\x88\xB9\xE3\x80\x82\xE4\xBD\x95",
                "\xE4\xBD\x95?", true);
    check_apart("", "Why?", "", false);
    check_apart("Why?", "", "Why?", false);
}

/* Bytes of a stranger: nothing but a status. */
static void any_bytes_can_be_taught_and_asked(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xFF\xFE", "\xE2\x82", "\x01\x02\x7F",
                                        "   ",      "^$",       "\xF0\x9F\x98\x80"};
    rvi_recogniser *r = recogniser();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_ok(rvi_recogniser_add(r, i + 1, texts[i], texts[i], err));
        (void)ask(r, texts[i]);
    }
    rvi_recogniser_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_found_in_every_script),
        cmocka_unit_test(accents_and_capitals_make_no_difference),
        cmocka_unit_test(long_texts_are_read_to_a_limit),
        cmocka_unit_test(long_is_a_matter_of_words),
        cmocka_unit_test(a_name_is_asked_for_in_many_ways),
        cmocka_unit_test(the_very_question_is_recognised),
        cmocka_unit_test(manners_around_a_question_do_not_hide_it),
        cmocka_unit_test(what_is_compared_is_not_left_out),
        cmocka_unit_test(what_was_not_read_is_not_recognised),
        cmocka_unit_test(of_contradicting_lessons_the_newest_wins),
        cmocka_unit_test(many_lessons_are_told_apart),
        cmocka_unit_test(an_earlier_turn_explains_a_request),
        cmocka_unit_test(readings_are_kept),
        cmocka_unit_test(lessons_are_read_before_anybody_asks),
        cmocka_unit_test(signs_of_numbers_tell_them_apart),
        cmocka_unit_test(shared_sentences_are_left_out),
        cmocka_unit_test(any_bytes_can_be_taught_and_asked),
    };
    return cmocka_run_group_tests_name("recognise", tests, NULL, NULL);
}
