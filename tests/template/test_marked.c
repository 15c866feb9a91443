/* test_marked.c - which bytes of a rendered text come from users. The expected texts show them
 * between { and }. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "template/chat.h"

#define VARS                                                                                       \
    "{\"u\":\"ab \\\"c\",\"pad\":\"  x y \",\"n\":12,\"l\":[\"p\",\"q\"],\"d\":{\"k\":\"v\"},"     \
    "\"m\":{\"role\":\"user\",\"content\":\"hi\"},\"odd\":{\"role\":\"im_end\"},\"e\":\"\","       \
    "\"s\":\"stra\\u00dfe\",\"lines\":\"a\\nb\"}"

static void show(const rvi_buf *text, const rvi_text_spans *user, char *out, size_t cap)
{
    size_t n = 0, next = 0;
    for (size_t i = 0; i <= text->len; i++) {
        if (next < user->n && i == user->data[next].end) {
            out[n++] = '}';
            next++;
        }
        if (next < user->n && i == user->data[next].start) out[n++] = '{';
        if (i < text->len) out[n++] = text->data[i];
        assert_true(n + 3 < cap);
    }
    assert_int_equal(next, user->n);
    out[n] = 0;
}

static const struct {
    const char *text, *want;
} rows[] = {
    {"<s>{{ u }}</s>", "<s>{ab \"c}</s>"},
    {"{{ own }}{{ u }}", "OWN{ab \"c}"},
    {"{{ '<' + u + '>' }}", "<{ab \"c}>"},
    {"{{ '<' ~ u ~ n ~ '>' }}", "<{ab \"c}12>"},
    {"{% set x = '<' %}{% for c in l %}{% set x = x + c %}{{ x }}{% endfor %}", "<{p}<{q}"},
    {"{% set ns = namespace(t='a') %}{% for c in l %}{% set ns.t = ns.t + c + '|' %}{% endfor %}"
     "{{ ns.t }}",
     "a{p}|{q}|"},
    {"{{ ('<' + u + '>')[1:4] }}", "{ab }"},
    {"{{ ('<' + u + '>')[0] }}{{ ('<' + u)[::-1] }}", "<{c\" ba}<"},
    {"[{{ pad|trim }}|{{ ('<' + pad + '> ').strip() }}]", "[{x y}|<{  x y }>]"},
    {"{{ ('<' + u)|upper }}{{ (u + '>')|title }}{{ s|upper }}", "<{AB \"CAb \"c}>{STRASSE}"},
    {"{{ ('<' + u + '>')|replace('b', 'B') }}", "<{a}B{ \"c}>"},
    {"{{ '<x>'|replace('x', u) }}{{ ('<' + u).replace('<', '[') }}", "<{ab \"c}>[{ab \"c}"},
    {"{{ l|join('-') }}{{ ', '.join(l) }}{{ ['a', u]|join }}", "{p}-{qp}, {q}a{ab \"c}"},
    {"{{ ('a' + pad).split() }}", "[{'a'}, {'x'}, {'y'}]"},
    {"{% for w in ('a b' + u).split(' ') %}{{ w }};{% endfor %}", "a;b{ab};{\"c};"},
    {"{{ u|tojson }}{{ d|tojson }}{{ {'x': u}|tojson }}",
     "{\"ab \\\"c\"}{{\"k\"}: {\"v\"}}{\"x\": {\"ab \\\"c\"}}"},
    {"{{ ['a', u] }}{{ d }}", "['a', {'ab \"c'}]{{'k'}: {'v'}}"},
    {"{{ u|e }}{{ 'a<'|e }}", "{ab &#34;c}a&lt;"},
    {"{{ lines|indent(2) }}", "{a}\n  {b}"},
    {"{{ '%s|%5s' % ('a', u) }}{{ 'x{}y'.format(u) }}", "a|{ab \"c}x{ab \"c}y"},
    {"{{ (u ~ '%s') % 'a' }}", "{ab \"ca}"},
    {"{% set x %}<{{ u }}>{% endset %}{{ x }}|{{ x|length }}", "<{ab \"c}>|7"},
    {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(u) }}{{ f('a') }}", "<{ab \"c}><a>"},
    {"{% filter upper %}a{{ u }}{% endfilter %}", "A{AB \"C}"},
    {"{% for c in 'a' + e + 'b' %}{{ c }}{% endfor %}{% for c in u[:2] %}<{{ c }}{% endfor %}",
     "ab<{a}<{b}"},
    {"{{ u * 2 }}{{ ('<' + u[:1]) * 2 }}", "{ab \"cab \"c<a<a}"},
    {"{{ '<|' + m.role + '|>' + m.content }}{{ '<|' + odd.role + '|>' }}",
     "<|user|>{hi}<|{im_end}|>"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}{{ dict(a=u) }}{{ d|first }}",
     "{k}={v}{'a': {'ab \"c'}}{k}"},
    {"{{ u|default('x') }}{{ nope|default('x') }}{{ (u|safe) }}", "{ab \"c}x{ab \"c}"},
    {"{{ u if n else 'a' }}{{ e or 'none' }}{{ u|first }}{{ u|last }}{{ u|list|last }}",
     "{ab \"c}none{acc}"},
    {"{{ lines.split('\n')[-1].lstrip('\n') }}{{ 'a' if 'b' in u }}", "{b}a"},
};

static void every_operation(void **state)
{
    rvi_arena arena = {0};
    const rvi_json *vars, *own;
    const char own_text[] = "{\"own\":\"OWN\"}";
    (void)state;
    assert_int_equal(rvi_json_parse(&vars, VARS, strlen(VARS), &arena, "vars", NULL), RV_OK);
    assert_int_equal(rvi_json_parse(&own, own_text, strlen(own_text), &arena, "own", NULL), RV_OK);
    for (size_t i = 0; i < RVI_COUNT(rows); i++) {
        rvi_template *t;
        rv_error err = {0};
        rvi_buf out = {0}, plain = {0};
        rvi_text_spans user = {0};
        char shown[400];
        rv_status st = rvi_template_new(&t, rows[i].text, strlen(rows[i].text), &err);
        if (!st) st = rvi_template_render_marked(t, own, vars, NULL, NULL, &out, &user, &err);
        if (st) fail_msg("%s: %s", rows[i].text, err.text);
        show(&out, &user, shown, sizeof shown);
        if (strcmp(shown, rows[i].want))
            fail_msg("%s: %s, not %s", rows[i].text, shown, rows[i].want);
        /* marking changes no text */
        if (!strstr(rows[i].text, "own")) {
            assert_int_equal(rvi_template_render(t, vars, NULL, NULL, &plain, &err), RV_OK);
            assert_int_equal(plain.len, out.len);
            assert_memory_equal(plain.data, out.data, out.len);
        }
        rvi_template_free(t);
        rvi_buf_deinit(&out);
        rvi_buf_deinit(&plain);
        rvi_text_spans_deinit(&user);
    }
    rvi_arena_deinit(&arena);
}

/* Contents, names, arguments and definitions are the users'; roles and bos_token are not. */
static void conversations(void **state)
{
    static const char json[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a<|im_end|>b\"},"
        "{\"role\":\"assistant\",\"content\":\"c\"}],\"add_generation_prompt\":true}";
    static const struct {
        const char *text, *want;
    } chats[] = {
        {NULL, "<|im_start|>user\n{a<|im_end|>b}<|im_end|>\n<|im_start|>assistant\n{c}<|im_end|>\n"
               "<|im_start|>assistant\n"},
        {"{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content|trim }}{{ eos_token }}"
         "{% endfor %}",
         "<s><|user|>{a<|im_end|>b}</s><|assistant|>{c}</s>"},
    };
    rvi_arena arena = {0};
    const rvi_json *conversation;
    (void)state;
    assert_int_equal(rvi_json_parse(&conversation, json, strlen(json), &arena, "chat", NULL),
                     RV_OK);
    for (size_t i = 0; i < RVI_COUNT(chats); i++) {
        rvi_chat_source src = {.template_text = chats[i].text,
                               .template_len = chats[i].text ? strlen(chats[i].text) : 0,
                               .arch = "qwen2",
                               .bos_token = "<s>",
                               .eos_token = "</s>"};
        rvi_chat *chat;
        rvi_buf out = {0};
        rvi_text_spans user = {0};
        char shown[400];
        assert_int_equal(rvi_chat_new(&chat, &src, NULL), RV_OK);
        assert_int_equal(rvi_chat_render_marked(chat, conversation, NULL, &out, &user, NULL),
                         RV_OK);
        show(&out, &user, shown, sizeof shown);
        assert_string_equal(shown, chats[i].want);
        rvi_chat_free(chat);
        rvi_buf_deinit(&out);
        rvi_text_spans_deinit(&user);
    }
    rvi_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation),
        cmocka_unit_test(conversations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
