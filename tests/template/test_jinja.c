/* test_jinja.c - the template language: vectors made with Python's jinja2
 * (tools/make_jinja_vectors.py), and bounds.
 *
 * With a file as argument it checks that file of vectors only and prints every difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "template/jinja.h"

static const rvi_template_now now = {
    .year = 2024, .month = 2, .day = 29, .hour = 13, .minute = 5, .second = 9};

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*len + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *len, f), *len);
    fclose(f);
    return data;
}

static rv_status render(const char *text, size_t len, const rvi_json *vars,
                        const rvi_template_limits *limits, rvi_buf *out, rv_error *err)
{
    rvi_template *t;
    rv_status st = rvi_template_new(&t, text, len, err);
    if (!st) st = rvi_template_render(t, vars, &now, limits, out, err);
    rvi_template_free(t);
    return st;
}

/* How many vectors of the file differ; prints them. *n: all. */
static size_t run_vectors(const char *path, size_t *n)
{
    rvi_arena arena = {0};
    const rvi_json *root;
    rv_error err = {0};
    size_t len, wrong = 0;
    char *text = read_file(path, &len);
    assert_int_equal(rvi_json_parse(&root, text, len, &arena, path, &err), RV_OK);
    const rvi_json *tests = rvi_json_get(root, "tests"), *vars = rvi_json_get(root, "vars");
    *n = rvi_json_count(tests);
    for (size_t i = 0; i < *n; i++) {
        const rvi_json *test = rvi_json_at(tests, i), *source = rvi_json_get(test, "template");
        const rvi_json *want = rvi_json_get(test, "text"), *message = rvi_json_get(test, "message");
        rvi_buf out = {0};
        rv_status st =
            render(source->as.string.data, source->as.string.len, vars, NULL, &out, &err);
        bool ok = want ? !st && out.len == want->as.string.len &&
                             (!out.len || !memcmp(out.data, want->as.string.data, out.len))
                       : st == RV_E_TOKENIZATION;
        if (message) ok = ok && !strcmp(err.text, message->as.string.data);
        if (!ok) {
            wrong++;
            printf("TEMPLATE %s\n  expected %s%s\n  got      %s%s\n", source->as.string.data,
                   want ? "" : "error ",
                   want ? want->as.string.data : rvi_json_string(rvi_json_get(test, "error"), "?"),
                   st ? "error " : "",
                   st         ? err.text
                   : out.data ? out.data
                              : "");
        }
        rvi_buf_deinit(&out);
    }
    rvi_arena_deinit(&arena);
    free(text);
    return wrong;
}

static void vectors(void **state)
{
    size_t n;
    (void)state;
    assert_int_equal(run_vectors("tests/template/data/jinja_vectors.json", &n), 0);
    assert_true(n >= 400);
}

/* ---- our own behaviour ---- */

static void expect_error(const char *text, const char *part, const rvi_template_limits *limits)
{
    rv_error err = {0};
    rvi_buf out = {0};
    rv_status st = render(text, strlen(text), NULL, limits, &out, &err);
    if (st != RV_E_TOKENIZATION || !strstr(err.text, part))
        fail_msg("%.200s: status %d, '%s' lacks '%s'", text, st, err.text, part);
    assert_int_equal(out.len, 0);
    rvi_buf_deinit(&out);
}

static void expect_text(const char *text, const char *want, const rvi_template_limits *limits)
{
    rv_error err = {0};
    rvi_buf out = {0};
    rv_status st = render(text, strlen(text), NULL, limits, &out, &err);
    if (st) fail_msg("%s: %s", text, err.text);
    assert_string_equal(out.data ? out.data : "", want);
    rvi_buf_deinit(&out);
}

static void errors_name_the_line(void **state)
{
    (void)state;
    expect_error("a\nb\n{% if x %}", "line 3", NULL);
    expect_error("a\n{{ 1 +\n }}", "line 3", NULL);
    expect_error("\n\n\n{{ nope.x }}", "line 4: 'nope' is undefined", NULL);
    expect_error("{{ {}.a.b }}", "'dict object' has no attribute 'a'", NULL);
    expect_error("{{ [].append(1) }}", "unsafe", NULL);
    expect_error("\n{% include 'x' %}", "line 2: a chat template cannot use 'include'", NULL);
    expect_error("{% block x %}{% endblock %}", "'block'", NULL);
    expect_error("{{ strftime_now }}{{ 5|pprint }}", "No filter named 'pprint'", NULL);
    expect_error("{{ 9223372036854775807 + 1 }}", "64 bits", NULL);
    expect_error("{{ 9223372036854775808 }}", "64 bits", NULL);
}

static void raised_messages_are_verbatim(void **state)
{
    rv_error err = {0};
    rvi_buf out = {0};
    const char *text = "x{{ raise_exception('Roles must alternate: \"user\"') }}";
    (void)state;
    assert_int_equal(render(text, strlen(text), NULL, NULL, &out, &err), RV_E_TOKENIZATION);
    assert_string_equal(err.text, "Roles must alternate: \"user\"");
    assert_int_equal(out.len, 0);
    rvi_buf_deinit(&out);
}

static void bounds(void **state)
{
    rvi_template_limits fewer = {.max_steps = 500000}; /* than by default, which take longer */
    (void)state;
    /* steps: what would run for ages ends at once */
    expect_error("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
                 "steps", NULL);
    expect_error(
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ 'x' }}{% endfor %}{% endfor %}",
        "", &fewer);
    expect_error("{% set ns = namespace(s='ab') %}{% for a in range(100000) %}{% set ns.s = ns.s + "
                 "ns.s %}{% endfor %}",
                 "", &fewer);
    expect_error("{{ ('a' * 1000000) is in ('a' * 1000000 ~ 'b') }}{% for i in range(99999) %}{{ "
                 "('a' * 500000 ~ 'b') in ('a' * 1000000) }}{% endfor %}",
                 "", &fewer);
    expect_error("{{ "
                 "range(100000)|map('string')|join|list|tojson|list|sort|tojson|list|sort|tojson|"
                 "list|sort|length }}",
                 "steps", &fewer);
    expect_error(
        "{% set s = '\xc3\xa9' * 1000000 %}{% for i in range(100000) %}{{ s[999999] }}{% endfor %}",
        "steps", &fewer);
    /* depth */
    expect_error("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "too deeply", NULL);
    expect_error("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "too deeply", NULL);
    expect_error("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% "
                 "endfor %}{{ ns.x }}",
                 "too deeply", NULL);
    expect_error("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "too deeply", NULL);
    expect_error("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) "
                 "%}{% endfor %}{{ {ns.x: 1} }}",
                 "too deeply", NULL);
    expect_error("{% set ns = namespace(x=1, y=1) %}{% for i in range(9999) %}{% set ns.x = [ns.x] "
                 "%}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
                 "too deeply", NULL);
    expect_error("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = "
                 "ns.x|map('string') %}{% endfor %}{{ ns.x|list }}",
                 "too deeply", NULL);
    /* output and memory */
    expect_error("{{ 'a' * 20000000 }}", "16777216", NULL);
    expect_error("{% set a = 'a' * 200000000 %}{% set b = 'a' * 200000000 %}", "memory", NULL);
    expect_error("{{ 'a' * 9000000000000000000 }}", "memory", NULL);
    expect_error("{{ [1, 2] * 9000000000000000000 }}", "too long", NULL);
    /* what no chat template uses */
    expect_error("{{ 'a'.center(9) }}", "has no attribute 'center'", NULL);
    expect_error("{{ 'a'|truncate(9) }}", "No filter named 'truncate'", NULL);
    expect_error("{{ 'a' is callable }}", "No test named 'callable'", NULL);
    expect_error("{% with a = 1 %}{% endwith %}", "unknown tag 'with'", NULL);
    expect_error("{{ [1].count(1) }}", "has no attribute 'count'", NULL);
    expect_error("{{ {}.copy() }}", "has no attribute 'copy'", NULL);
    expect_error("{% for x in [1] %}{{ loop.changed(x) }}{% endfor %}", "no attribute 'changed'",
                 NULL);
    expect_error("{{ '%9000000000d' % 1 }}", "too large", NULL);
    expect_error("{{ range(9223372036854775807, -9223372036854775807, -9223372036854775807) }}",
                 "too large", NULL);
}

static char *repeated(const char *before, const char *open, const char *middle, const char *close,
                      size_t n)
{
    rvi_buf b = {0};
    rvi_buf_puts(&b, before);
    for (size_t i = 0; i < n; i++) rvi_buf_puts(&b, open);
    rvi_buf_puts(&b, middle);
    for (size_t i = 0; i < n; i++) rvi_buf_puts(&b, close);
    assert_false(b.failed);
    return b.data;
}

/* Whatever reads a long operand is charged for its length: 200 times over 64 KiB (or as many list
 * items) exceeds a limit that the loop alone stays far below. */
static void long_operands_cost_steps(void **state)
{
    static const char *const operations[] = {
        "d[s]",
        "s in d",
        "d.get(s)",
        "{s: 1}",
        "[s]|unique|list",
        "ns[s]",
        "s == t",
        "s != t",
        "s < t",
        "s is sameas(t)",
        "s is in([t])",
        "l == m",
        "l != m",
        "l <= m",
        "l in [m]",
        "(s, 1) in d",
        "2 in l",
        "s[1:]|length",
        "(s|trim('x'))|length",
        "s|int",
        "blanks|int",
        "blanks|float",
        "blanks|trim",
        "s.strip('a')",
        "'a'.strip(s)",
        "s.startswith(t)",
        "s.endswith(t)",
        "s.find('b')",
        "'b' in s",
        "s.replace('b', 'c')",
        "s.split('b')",
        "s.split()",
        "s|upper",
        "s|title",
        "s|tojson",
        "s|e",
        "s ~ t",
        "[s]|join('x')",
        "[d]|map(attribute=s)|list",
        "[d]|selectattr(s)|list",
        "l|list|sort",
        "l|min",
        "l + m",
        "l[::-1]",
        "s[::-1]",
        "l|tojson",
        "s|string|list",
    };
    static const char before[] = "{% set s = 'a' * 65536 %}{% set t = 'a' * 65536 %}"
                                 "{% set l = [0] * 65536 %}{% set m = [0] * 65536 %}"
                                 "{% set blanks = ' ' * 65536 %}{% set d = {'k': 1} %}"
                                 "{% set ns = namespace() %}";
    rvi_template_limits limits = {.max_steps = 125000, .max_memory = (size_t)2 << 30};
    char text[600];
    (void)state;
    snprintf(text, sizeof text,
             "%s{%% for i in range(200) %%}{%% if 1 %%}{%% endif %%}{%% endfor %%}", before);
    expect_text(text, "", &limits);
    for (size_t i = 0; i < RVI_COUNT(operations); i++) {
        snprintf(text, sizeof text,
                 "%s{%% for i in range(200) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}", before,
                 operations[i]);
        expect_error(text, "steps", &limits);
    }
    /* looking up a name costs one step, so names are short and few */
    char *name = repeated("{{ ", "abcdefghij", " }}", "", 101);
    expect_error(name, "a name of more than 1000 bytes", NULL);
    rvi_free(name);
    rvi_buf many = {0};
    for (int i = 0; i < 20010; i++) rvi_buf_printf(&many, "{{ n%d }}", i);
    expect_error(many.data, "more than 20000 different names", NULL);
    rvi_buf_deinit(&many);
}

static void limits_are_kept(void **state)
{
    rvi_template_limits tight = {
        .max_steps = 100, .max_depth = 3, .max_output = 8, .max_memory = 1 << 16};
    (void)state;
    expect_text("{{ 1 + 1 }}", "2", &tight);
    expect_text("12345678", "12345678", &tight);
    expect_error("123456789", "more than 8 bytes", &tight);
    expect_error("{% for i in range(200) %}{% endfor %}", "100 steps", &tight);
    expect_error("{{ ('a' * 70000)|length }}", "memory", &tight);
    const char *macro =
        "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(2) }}";
    expect_text(macro, "210", &tight);
    expect_error(
        "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
        "too deeply", &tight);
}

static void hostile_syntax(void **state)
{
    static const struct {
        const char *before, *open, *middle, *close;
    } cases[] = {
        {"{{ ", "(", "1", ")"},
        {"{{ ", "[", "", "]"},
        {"{{ ", "-", "1", ""},
        {"{{ ", "not ", "1", ""},
        {"{{ 1", "+1", "", ""},
        {"{{ x", ".x", "", ""},
        {"{{ x", "|e", "", ""},
        {"{{ x", "[0]", "", ""},
        {"{{ x", "()", "", ""},
        {"{{ 1", " if 1 else 1", "", ""},
        {"{{ ", "{1:", "1", "}"},
        {"", "{% if 1 %}", "", "{% endif %}"},
        {"", "{% for x in y %}", "", "{% endfor %}"},
        {"{% set ", "(", "a", ")"},
        {"{{ 1", " and 1", "", ""},
        {"{{ 1", " == 1", "", ""},
        {"{{ 1", " is eq(1)", "", ""},
        {"{{ f(", "a(", "", ")"},
        {"", "{% macro f() %}", "", "{% endmacro %}"},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        char *text =
            repeated(cases[i].before, cases[i].open, cases[i].middle, cases[i].close, 100000);
        expect_error(text, "line", NULL);
        rvi_free(text);
    }
    char *names = repeated("", "{{ x }}{% set y = 1 %}", "", "",
                           50000); /* long, but nothing is wrong with it */
    expect_text(names, "", NULL);
    rvi_free(names);
    char *elifs = repeated("{% if 0 %}", "{% elif 0 %}", "{% else %}ok{% endif %}", "", 20000);
    expect_text(elifs, "ok", NULL);
    rvi_free(elifs);
}

static void growing_text_costs_what_is_added(void **state)
{
    (void)state; /* 100000 times appending one byte would be 5 GB if every step made a copy */
    rvi_template_limits limits = {.max_memory = 64 << 20};
    expect_text("{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + "
                "'x' %}{% endfor %}{{ ns.s|length }}",
                "100000", &limits);
    /* two continuations of one beginning do not disturb each other */
    expect_text("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{{ a }} {{ b }} "
                "{{ c }} {{ b + '3' }} {{ c + '4' }}",
                "xy xy1 xy2 xy13 xy24", NULL);
}

static void invalid_input(void **state)
{
    (void)state;
    expect_text("a\xff{{ '\xc3' }}b",
                "a\xef\xbf\xbd\xef\xbf\xbd"
                "b",
                NULL);
    rv_error err;
    rvi_buf out = {0};
    rvi_template *t;
    const rvi_json array = {.kind = RVI_JSON_ARRAY};
    assert_int_equal(rvi_template_new(&t, "", 0, &err), RV_OK);
    assert_int_equal(rvi_template_render(t, &array, NULL, NULL, &out, &err), RV_E_TOKENIZATION);
    assert_int_equal(rvi_template_render(t, NULL, NULL, NULL, &out, NULL), RV_OK);
    rvi_template_free(t);
    assert_int_equal(rvi_template_new(&t, "{{ strftime_now('%Y') }}", 24, &err), RV_OK);
    assert_int_equal(rvi_template_render(t, NULL, NULL, NULL, &out, &err), RV_E_TOKENIZATION);
    rvi_template_free(t);
    assert_null(out.data);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(raised_messages_are_verbatim),
        cmocka_unit_test(bounds),
        cmocka_unit_test(long_operands_cost_steps),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(hostile_syntax),
        cmocka_unit_test(growing_text_costs_what_is_added),
        cmocka_unit_test(invalid_input),
    };
    if (argc > 1) {
        size_t n, wrong = run_vectors(argv[1], &n);
        printf("%zu of %zu templates differ\n", wrong, n);
        return wrong != 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
