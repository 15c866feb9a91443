/* test_alloc_template.c - every allocation of parsing, probing and rendering fails once, for each
 * of many templates.
 *
 * Linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,
 * --wrap=mmap. Run under ASan
 * it also shows that nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "harness/fail_alloc.h"
#include "template/chat.h"
#include "template/jinja.h"

static const rvi_template_now now = {.year = 2024, .month = 2, .day = 29};

/* Large enough that strings, lists and the tree need several blocks of memory each. */
static const char busy[] =
    "{% macro f(x, y='d') %}{{ x }}{{ y }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% "
    "endmacro %}"
    "{% set ns = namespace(s='', l=[]) %}{% for i in range(400) %}{% set ns.s = ns.s + 'text of "
    "some length ' ~ i %}"
    "{% set ns.l = ns.l + [{'k': i, 'v': ns.s[:20]}] %}{% endfor %}"
    "{% call f(1, 2, 3, z=4) %}inner {{ ns.s|length }}{% endcall %}"
    "{{ ns.l|map(attribute='k')|sort(reverse=true)|join(',') }}{{ ns.l|tojson(indent=2, "
    "sort_keys=true)|length }}"
    "{{ ns.l|groupby('v')|length }}{{ ns.l|unique(attribute='v')|list|length }}{{ ns.s.split(' "
    "')|batch(7)|list|length }}"
    "{{ '%s %5.2f' % (ns.s, 2.5) }}{{ '{:>30}{!r}'.format(ns.s, ns.s) }}{{ "
    "ns.s|upper|title|e|indent|replace('a', 'bb') }}"
    "{% set block %}{{ ns.s }}{{ strftime_now('%A %d %B %Y') }}{% endset %}{% filter trim %}{{ "
    "block }}{% endfilter %}"
    "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}{{ "
    "ns.s[::-1] }}{{ ns.s * 9 }}";

static rv_status whole_life(const char *text, rvi_buf *out, rv_error *err)
{
    rvi_template *t;
    rv_status st = rvi_template_new(&t, text, strlen(text), err);
    if (!st) st = rvi_template_render(t, NULL, &now, NULL, out, err);
    rvi_template_free(t);
    return st;
}

/* Refuses call n, then n + 1, ... until the whole life needs no more; returns how many it needed.
 */
static long sweep(rv_status (*life)(const char *text, rvi_buf *out, rv_error *err),
                  const char *text, bool once)
{
    for (long n = 0;; n++) {
        rv_error err = {0};
        rvi_buf out = {0};
        if (once)
            fail_alloc_once(n);
        else
            fail_alloc_after(n);
        rv_status st = life(text, &out, &err);
        bool refused = fail_alloc_off();
        rvi_buf_deinit(&out);
        if (refused && st != RV_E_NOMEM)
            fail_msg("call %ld refused, but status %d: %s", n, st, err.text);
        if (refused) continue;
        if (st) fail_msg("%s", err.text);
        return n;
    }
}

static void templates(void **state)
{
    (void)state;
    assert_true(sweep(whole_life, busy, false) > 15);
    assert_true(sweep(whole_life, busy, true) > 15);
    assert_true(sweep(whole_life, "plain text {{ 1 + 1 }}", true) > 3);
}

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
    "\"text\",\"text\":\"b\"}]},"
    "{\"role\":\"user\",\"content\":\"u\"}],\"add_generation_prompt\":true}";

static rv_status chat_life(const char *text, rvi_buf *out, rv_error *err)
{
    rvi_chat_source src = {.template_text = text,
                           .template_len = text ? strlen(text) : 0,
                           .bos_token = "<s>",
                           .eos_token = "</s>"};
    rvi_arena arena = {0};
    const rvi_json *j;
    rvi_chat *c = NULL;
    rv_status st =
        rvi_json_parse(&j, conversation, sizeof conversation - 1, &arena, "conversation", err);
    if (!st) st = rvi_chat_new(&c, &src, err);
    if (!st) st = rvi_chat_render(c, j, &now, out, err);
    rvi_chat_free(c);
    rvi_arena_deinit(&arena);
    return st;
}

static void chats(void **state)
{
    (void)state;
    assert_true(sweep(chat_life, NULL, false) > 20); /* a layout that stands in */
    assert_true(
        sweep(chat_life, "{% for m in messages %}{{ m.role + m.content }}{% endfor %}", true) > 20);
    assert_true(
        sweep(chat_life,
              "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
              true) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates), cmocka_unit_test(chats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
