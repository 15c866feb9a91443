/* test_frames.c - other forms of a question, in several scripts, and of texts that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/frames.h"

typedef void frame(const char *question, rvi_buf *out);

static void expect(frame *make, const char *question, const char *want)
{
    rvi_buf out = {0};
    make(question, &out);
    assert_false(out.failed);
    if (out.len != strlen(want) || (out.len && memcmp(out.data, want, out.len)))
        fail_msg("'%s' became '%.*s', not '%s'", question, (int)out.len, out.data ? out.data : "",
                 want);
    rvi_buf_deinit(&out);
}

static void plain(void **state)
{
    (void)state;
    expect(rvi_frame_plain, "What is the capital of Kenya?", "what is the capital of kenya");
    expect(rvi_frame_plain, "¿Quién escribió Élan?", "quién escribió élan");
    expect(rvi_frame_plain, "Кто написал «Идиота»?!", "кто написал «идиота»");
    expect(rvi_frame_plain, "加拿大的首都是哪里？", "加拿大的首都是哪里");
    expect(rvi_frame_plain, "Use C++. How?", "use c++. how");
    expect(rvi_frame_plain, "who wrote it", ""); /* it is so already */
    expect(rvi_frame_plain, "???", "");
    expect(rvi_frame_plain, "", "");
}

static void addressed(void **state)
{
    (void)state;
    expect(rvi_frame_addressed, "What is Kenya's capital?", "Hello, what is Kenya's capital?");
    expect(rvi_frame_addressed, "¿Quién es?", "Hello, quién es?");
    expect(rvi_frame_addressed, "À quelle heure ?", "Hello, à quelle heure ?");
    expect(rvi_frame_addressed, "加拿大的首都是哪里？", "\"加拿大的首都是哪里？\"");
    expect(rvi_frame_addressed, "Где C++?", "\"Где C++?\"");
    expect(rvi_frame_addressed, " ?! ", "");
}

static void first_neighbour(const char *question, rvi_buf *out)
{
    bool made = rvi_frame_neighbour(question, 0, out);
    assert_int_equal(made, out->len > 0);
}

static void neighbour(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"What is the capital city of Ghana?", "What is the capital city of Kenya?"},
        {"What is the capital city of Kenya?", "What is the capital city of Brazil?"},
        {"Who wrote Frankenstein?", "Who wrote Kenya?"},
        {"Who was New Zealand's first mayor?", "Who was Kenya's first mayor?"},
        {"Who wrote \"the old man and the sea\"?", "Who wrote \"Kenya\"?"},
        {"Where is Ines's key? Which drawer?", "Where is Kenya's key? Which drawer?"},
        {"is a banana a berry", "is a piano a berry"},
        {"Who waters the plants?", "Who waters the piano?"}, /* not the verb */
        {"Who discovered gold?", "Who discovered piano?"},
        {"How do I restart the coffee machine?", "How do I restart the coffee piano?"},
        {"What time does it end?", "What piano does it end?"},
        {"what causes thunder", "what causes piano"},
        {"When does the library open?", "When does the piano open?"},
        {"when does the shop open", "when does the piano open"},
        {"Кто поливает цветы?", "Кто поливает пианино?"},
        {"Which planet is it?", "Which piano is it?"},
        {"¿Quién riega las plantas?", "¿Quién riega las piano?"},
        {"Qui arrose les fleurs ?", "Qui arrose les piano ?"},
        {"Wie heißt die Katze?", "Wie heißt die Kenya?"},
        {"Кто поливает растения?", "Кто поливает пианино?"},
        {"日本の首都はどこですか？", "中国の首都はどこですか？"},
        {"Quelle est la capitale du Sénégal ?", "Quelle est la capitale du Kenya ?"},
        {"Какая столица у Франции?", "Какая столица у Кения?"},
        {"『坊っちゃん』の作者は誰ですか？", "『中国』の作者は誰ですか？"},
        {"ミナト荘の給湯器は？", "ケニア荘の給湯器は？"},
        {"加拿大的首都是哪里？", "中国的首都是哪里？"},
        {"如何重置咖啡机密码？", "如何重置咖啡机中国？"},
        {"《西游记》的作者是谁？", "《中国》的作者是谁？"},
        {"Why?", ""}, /* nothing is named */
        {"Who is it for?", ""},
        {"12 + 30 = ?", ""},
        {"的？", ""},
        {"", ""},
    };
    for (size_t i = 0; i < RVI_COUNT(rows); i++) expect(first_neighbour, rows[i][0], rows[i][1]);
}

/* They end, are all others, and none is the question. */
static void neighbours_differ(void **state)
{
    (void)state;
    static const char *const questions[] = {"Where does Hamlet live?", "is radio older than tv",
                                            "Wo steht die Kaffeemaschine?", "パリの天気は？"};
    for (size_t q = 0; q < RVI_COUNT(questions); q++) {
        enum { MOST = 32 };
        rvi_buf all[MOST] = {{0}};
        size_t n = 0;
        while (n < MOST && rvi_frame_neighbour(questions[q], n, &all[n])) {
            rvi_buf_puts(&all[n], "");
            assert_string_not_equal(all[n].data, questions[q]);
            for (size_t i = 0; i < n; i++) assert_string_not_equal(all[i].data, all[n].data);
            n++;
        }
        assert_in_range(n, 5, MOST - 1);
        for (size_t i = 0; i < n; i++) rvi_buf_deinit(&all[i]);
    }
}

/* A stranger's text may be anything. */
static void any_bytes(void **state)
{
    (void)state;
    expect(rvi_frame_plain, "A\xff?", "a\xff");
    expect(rvi_frame_addressed, "A\xff?", "Hello, a\xff?");
    expect(first_neighbour, "What\xff is \xe5\x8a Ghana\xf0", "What\xff is \xe5\x8a Kenya\xf0");
    expect(first_neighbour, "Who \"", "");
    expect(first_neighbour, "Who is \"\xff\"?", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain), cmocka_unit_test(addressed), cmocka_unit_test(neighbour),

        cmocka_unit_test(neighbours_differ), cmocka_unit_test(any_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
