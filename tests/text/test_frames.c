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

static void neighbour(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"What is the capital city of Kenya?", "What is the capital city of Zorvath?"},
        {"Who wrote Frankenstein?", "Who wrote Zorvath?"},
        {"Where is Ines's key? Which drawer?", "Where is Zorvath's key? Which drawer?"},
        {"is a banana a berry", "is a zorvath a berry"},
        {"Quelle est la capitale du Sénégal ?", "Quelle est la capitale du Zorvath ?"},
        {"Какая столица у Кении?", "Какая столица у Зорват?"},
        {"『坊っちゃん』の作者は誰ですか？", "『苍岚っちゃん』の作者は誰ですか？"},
        {"ミナト荘の給湯器は？", "ゾルバス荘の給湯器は？"},
        {"加拿大的首都是哪里？", "苍岚大的首都是哪里？"},
        {"《西游记》的作者是谁？", "《苍岚》的作者是谁？"},
        {"Why?", ""}, /* nothing is named */
        {"Who is Zorvath?", ""},
        {"12 + 30 = ?", ""},
        {"", ""},
    };
    for (size_t i = 0; i < RVI_COUNT(rows); i++)
        expect(rvi_frame_neighbour, rows[i][0], rows[i][1]);
}

/* A stranger's text may be anything. */
static void any_bytes(void **state)
{
    (void)state;
    expect(rvi_frame_plain, "A\xff?", "a\xff");
    expect(rvi_frame_addressed, "A\xff?", "Hello, a\xff?");
    expect(rvi_frame_neighbour, "What\xff is \xe5\x8a Kenya\xf0",
           "What\xff is \xe5\x8a Zorvath\xf0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(addressed),
                                       cmocka_unit_test(neighbour), cmocka_unit_test(any_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
