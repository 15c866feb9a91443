/* JSON that models write, mended: what comes out, what was changed, and that pieces make no
 * difference. What is valid stays as it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "text/json_path.h"
#include "text/repair.h"

static const char *const cases[][3] = {
    {"{\"a\": [1, 2.5e3, true, null, \"x\\u00e9\\n\"], \"b\": {}}",
     "{\"a\": [1, 2.5e3, true, null, \"x\\u00e9\\n\"], \"b\": {}}", ""},
    {"  [ ]\n", "[ ]", ""},
    {"{ \"a\" : 1 , \"b\" :[ 2\n , 3 ] }", "{ \"a\" : 1 , \"b\" :[ 2\n , 3 ] }", ""},
    {"Sure!\n```json\n{\"a\": 1}\n```\nDone.", "{\"a\": 1}",
     "text before removed|text behind removed|"},
    {"{\"a\": 1,}", "{\"a\": 1}", "trailing comma removed|"},
    {"[1, 2, ]", "[1, 2 ]", "trailing comma removed|"},
    {"{\"a\":1,\"b\",\"c\":2}", "{\"a\":1,\"c\":2}", "comma removed|name without a value removed|"},
    {"{\"a\":1,\"b\":,\"c\":2}", "{\"a\":1,\"c\":2}",
     "comma removed|name without a value removed|"},
    {"{\"a\":,\"b\":1}", "{\"b\":1}", "comma removed|name without a value removed|"},
    {"{'a': 'it\\'s \"x\"'}", "{\"a\": \"it's \\\"x\\\"\"}",
     "single quotes replaced|single quotes replaced|escape mended|"},
    {"{a: 1, b_2 : x y}", "{\"a\": 1, \"b_2\" : \"x y\"}",
     "name put in quotes|name put in quotes|text put in quotes|"},
    {"{\"a\": True, \"b\": None, \"c\": False}", "{\"a\": true, \"b\": null, \"c\": false}",
     "word replaced|word replaced|word replaced|"},
    {"{\"a\": 1 // one\n, /* two */ \"b\": 2 # three\n}", "{\"a\": 1 \n,  \"b\": 2 \n}",
     "comment removed|comment removed|comment removed|"},
    {"{\"a\": [1, {\"b\": \"cut o", "{\"a\": [1, {\"b\": \"cut o\"}]}",
     "text that was cut off ended|closing bracket added|closing bracket added|closing bracket "
     "added|"},
    {"{\"a\": tr", "{\"a\": true}", "word completed|closing bracket added|"},
    {"{\"a\": 1, \"b", "{\"a\": 1}",
     "text that was cut off ended|name without a value removed|closing bracket added|"},
    {"{\"a\": 1, \"b\":", "{\"a\": 1}", "name without a value removed|closing bracket added|"},
    {"{\"a\": 1.", "{\"a\": 1}", "number mended|closing bracket added|"},
    {"[1 2 \"x\" {}]", NULL, NULL},
    {"{\"a\" 1}", "{\"a\" :1}", "missing colon added|"},
    {"{\"a\": [1, 2}", "{\"a\": [1, 2]}", "closing bracket added|"},
    {"[1]]", "[1]", "text behind removed|"},
    {"[\"a\nb\\q\\u12\"]", "[\"a\\nb\\\\q\\\\u12\"]",
     "control character escaped|escape mended|escape mended|"},
    {"[\xE2\x80\x9Cq\xE2\x80\x9D, .5, +3, 007]", "[\"q\", 0.5, 3, 7]",
     "curly quotes replaced|number mended|number mended|number mended|"},
    {"'x'", "\"x\"", "single quotes replaced|"},
    {"True", "true", "word replaced|"},
    {"12", "12", ""},
};

static void note(void *ctx, const char *what, size_t offset)
{
    (void)offset;
    rvi_buf_printf(ctx, "%s|", what);
}

static void mend(const char *text, size_t len, size_t piece, rvi_buf *out, rvi_buf *notes)
{
    rvi_mender *m;
    assert_int_equal(rvi_mender_new(&m, note, notes, NULL), RV_OK);
    for (size_t at = 0; at < len; at += piece)
        assert_int_equal(rvi_mender_push(m, text + at, RVI_MIN(piece, len - at), out, NULL), RV_OK);
    assert_int_equal(rvi_mender_end(m, out, NULL), RV_OK);
    rvi_mender_free(m);
    rvi_buf_puts(out, "");
    rvi_buf_puts(notes, "");
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++)
        for (size_t piece = 1; piece < 100; piece *= 4) {
            rvi_buf out = {0}, notes = {0};
            rvi_arena arena = {0};
            const rvi_json *v;
            mend(cases[i][0], strlen(cases[i][0]), piece, &out, &notes);
            if (cases[i][1]) assert_string_equal(out.data, cases[i][1]);
            if (cases[i][2]) assert_string_equal(notes.data, cases[i][2]);
            if (rvi_json_parse(&v, out.data, out.len, &arena, "", NULL))
                fail_msg("%s -> %s", cases[i][0], out.data);
            rvi_arena_deinit(&arena);
            rvi_buf_deinit(&out);
            rvi_buf_deinit(&notes);
        }
}

/* Every beginning of a document is mended to a document. */
static void test_cut(void **state)
{
    static const char text[] = "{\"name\": \"A \\\"b\\\" \\u00e9 \xF0\x9F\x98\x80\", \"list\": [1, "
                               "-2.5e-3, true, false, null, "
                               "{\"k\": []}, \"\"], \"o\": {\"x\": {\"y\": \"z\"}}}";
    (void)state;
    for (size_t n = 1; n <= strlen(text); n++) {
        rvi_buf out = {0}, notes = {0};
        rvi_arena arena = {0};
        const rvi_json *v;
        mend(text, n, 3, &out, &notes);
        if (rvi_json_parse(&v, out.data, out.len, &arena, "", NULL))
            fail_msg("%.*s -> %s", (int)n, text, out.data);
        if (n == strlen(text)) {
            assert_string_equal(out.data, text);
            assert_int_equal(notes.len, 0);
        }
        rvi_arena_deinit(&arena);
        rvi_buf_deinit(&out);
        rvi_buf_deinit(&notes);
    }
}

static void test_none(void **state)
{
    rvi_buf out = {0};
    rv_error err = {0};
    (void)state;
    assert_int_equal(rvi_json_repair("no json here", 12, &out, NULL, NULL, &err), RV_E_CONFIG);
    assert_non_null(strstr(err.text, "no JSON"));
    char deep[400];
    memset(deep, '[', sizeof deep);
    assert_int_equal(rvi_json_repair(deep, sizeof deep, &out, NULL, NULL, &err), RV_E_CONFIG);
    rvi_buf_deinit(&out);
}

static void test_paths(void **state)
{
    static const char text[] = "{\"a\": [1, {\"b/c\": \"x,y\"}], \"d\": 5}";
    static const struct {
        const char *before, *path;
    } at[] = {{"1, {", "/a/0"}, {"x,y", "/a/1/b~1c"}, {"5}", "/d"}, {"{\"a", ""}, {"], ", "/a"}};
    static const char schema[] =
        "{\"properties\":{\"a\":{\"items\":{\"properties\":{\"b\":{\"type\":\"null\"}}}}}}";
    rvi_arena arena = {0};
    const rvi_json *root;
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(at); i++) {
        rvi_buf out = {0};
        rvi_json_path_at(text, strlen(text), (size_t)(strstr(text, at[i].before) - text), &out);
        assert_string_equal(out.data, at[i].path);
        rvi_buf_deinit(&out);
    }
    assert_int_equal(rvi_json_parse(&root, schema, strlen(schema), &arena, "", NULL), RV_OK);
    assert_string_equal(
        rvi_json_string(rvi_json_get(rvi_json_path_schema(root, "/a/0/b"), "type"), ""), "null");
    assert_null(rvi_json_path_schema(root, "/x/y"));
    rvi_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
