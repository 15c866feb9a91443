/* test_chat.c - conversations through chat templates: what is passed, what is joined, which layout
 * stands in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "template/chat.h"

static const rvi_template_now now = {.year = 2024, .month = 7, .day = 9};

static rvi_chat *new_chat(const char *text)
{
    rvi_chat_source src = {.template_text = text,
                           .template_len = strlen(text),
                           .bos_token = "<s>",
                           .eos_token = "</s>"};
    rvi_chat *c;
    rv_error err = {0};
    if (rvi_chat_new(&c, &src, &err)) fail_msg("%s: %s", text, err.text);
    return c;
}

static rv_status render(const rvi_chat *c, const char *conversation, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *j;
    assert_int_equal(rvi_json_parse(&j, conversation, strlen(conversation), &arena, "test", err),
                     RV_OK);
    rv_status st = rvi_chat_render(c, j, &now, out, err);
    rvi_arena_deinit(&arena);
    return st;
}

static void expect(const rvi_chat *c, const char *conversation, const char *want)
{
    rvi_buf out = {0};
    rv_error err = {0};
    if (render(c, conversation, &out, &err)) fail_msg("%s: %s", conversation, err.text);
    assert_string_equal(out.data ? out.data : "", want);
    rvi_buf_deinit(&out);
}

static void refuse(const rvi_chat *c, const char *conversation, const char *part)
{
    rvi_buf out = {0};
    rv_error err = {0};
    assert_int_equal(render(c, conversation, &out, &err), RV_E_TOKENIZATION);
    if (!strstr(err.text, part)) fail_msg("'%s' lacks '%s'", err.text, part);
    assert_int_equal(out.len, 0);
    rvi_buf_deinit(&out);
}

/* ---- variables ---- */

static void variables_are_those_of_transformers(void **state)
{
    (void)state;
    rvi_chat *c = new_chat("{{ tools is defined }} {{ tools is none }} {{ documents is none }} {{ "
                           "add_generation_prompt }} "
                           "{{ bos_token }} {{ eos_token }} {{ unk_token is defined }} {{ extra }} "
                           "{{ messages|length }} "
                           "{{ strftime_now('%d %b %Y') }}");
    assert_string_equal(rvi_chat_name(c), "stored");
    expect(c, "{\"messages\":[]}", "True True True False <s> </s> False  0 09 Jul 2024");
    expect(c,
           "{\"messages\":[{\"role\":\"x\"}],\"tools\":[1],\"add_generation_prompt\":true,"
           "\"extra\":\"e\",\"bos_token\":\"B\"}",
           "True False True True B </s> False e 1 09 Jul 2024");
    rvi_chat_free(c);
}

static void messages_are_checked(void **state)
{
    (void)state;
    rvi_chat *c = new_chat("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}");
    refuse(c, "{}", "\"messages\"");
    refuse(c, "{\"messages\":{}}", "\"messages\"");
    refuse(c, "{\"messages\":[1]}", "messages[0] is not an object");
    refuse(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"b\"}]}",
           "messages[1].role");
    refuse(c, "{\"messages\":[{\"role\":5}]}", "messages[0].role");
    refuse(c, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content");
    refuse(c, "{\"messages\":[{\"role\":\"user\",\"content\":[5]}]}", "content[0] has no type");
    refuse(c, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
           "content[0].text");
    refuse(c,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},{"
           "\"type\":\"image_url\"}]}]}",
           "content[1]: parts of type 'image_url' are not supported");
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "userNone");
    rvi_chat_free(c);
}

static void a_template_that_raises_is_heard(void **state)
{
    (void)state;
    rvi_chat *c = new_chat("{% if messages[0].role != 'user' %}{{ raise_exception('Only users may "
                           "begin!') }}{% endif %}ok");
    rvi_buf out = {0};
    rv_error err = {0};
    assert_int_equal(
        render(c, "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", &out, &err),
        RV_E_TOKENIZATION);
    assert_string_equal(err.text, "Only users may begin!");
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "ok");
    rvi_buf_deinit(&out);
    rvi_chat_free(c);
}

/* ---- contents ---- */

#define TWO_PARTS "[{\"type\":\"text\",\"text\":\"one\"},{\"type\":\"text\",\"text\":\"two\"}]"

static void lists_are_joined_where_a_template_takes_none(void **state)
{
    (void)state;
    /* one that would fail, one that would print Python's text of the list, one that would print
     * JSON */
    static const char *const templates[] = {
        "{% for m in messages %}{{ m.role + '=' + m.content + ';' }}{% endfor %}",
        "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}",
        ("{% for m in messages %}{{ m.role }}={{ m.content if m.content is string else "
         "m.content|tojson }};{% endfor %}"),
    };
    for (size_t i = 0; i < RVI_COUNT(templates); i++) {
        rvi_chat *c = new_chat(templates[i]);
        expect(c,
               "{\"messages\":[{\"role\":\"system\",\"content\":" TWO_PARTS
               "},{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"odd\","
               "\"content\":" TWO_PARTS "},{\"role\":\"user\",\"content\":[]}]}",
               "system=one\ntwo;user=u;odd=one\ntwo;user=;");
        rvi_chat_free(c);
    }
}

static void lists_stay_where_a_template_takes_them(void **state)
{
    (void)state;
    rvi_chat *c =
        new_chat("{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% else %}"
                 "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}");
    expect(c,
           "{\"messages\":[{\"role\":\"user\",\"content\":" TWO_PARTS
           "},{\"role\":\"user\",\"content\":\"s\"}]}",
           "(one)(two)[s]");
    rvi_chat_free(c);
}

static void roles_are_told_apart(void **state)
{
    (void)state;
    rvi_chat *c =
        new_chat("{% for m in messages %}{% if m.role == 'user' and m.content is not string %}"
                 "{% for p in m.content %}({{ p.text }}){% endfor %}{% else %}{{ m.content }}{% "
                 "endif %}|{% endfor %}");
    expect(c,
           "{\"messages\":[{\"role\":\"system\",\"content\":" TWO_PARTS
           "},{\"role\":\"user\",\"content\":" TWO_PARTS "},"
           "{\"role\":\"assistant\",\"content\":" TWO_PARTS "}]}",
           "one\ntwo|(one)(two)|one\ntwo|");
    rvi_chat_free(c);
}

static void strings_become_lists_where_nothing_else_is_taken(void **state)
{
    (void)state;
    rvi_chat *c = new_chat("{% for m in messages %}{{ m.role }}:{% for p in m.content if p.type == "
                           "'text' %}{{ p.text }}{% endfor %};{% endfor %}");
    expect(c,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"plain\"},{\"role\":\"assistant\","
           "\"content\":" TWO_PARTS "}]}",
           "user:plain;assistant:onetwo;");
    rvi_chat_free(c);
}

static void a_list_that_fails_is_joined_after_all(void **state)
{
    (void)state; /* takes lists, but not together with a system message */
    rvi_chat *c = new_chat("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% "
                           "elif messages[0].role == 'system' %}"
                           "{{ m.content + '' }}{% else %}{% for p in m.content %}({{ p.text }}){% "
                           "endfor %}{% endif %}|{% endfor %}");
    expect(c, "{\"messages\":[{\"role\":\"user\",\"content\":" TWO_PARTS "}]}", "(one)(two)|");
    expect(c,
           "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
           "\"content\":" TWO_PARTS "}]}",
           "s|one\ntwo|");
    rvi_chat_free(c);
}

/* ---- turn ends ---- */

static void turn_end_is(const char *text, const char *want)
{
    rvi_chat *c = new_chat(text);
    size_t len;
    const char *end = rvi_chat_turn_end(c, &len);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(end, want, len);
    rvi_chat_free(c);
}

static void turn_ends_are_found(void **state)
{
    (void)state;
    turn_end_is(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        "<|im_end|>\n");
    turn_end_is("{% for m in messages %}{{ m.content + ' ' + eos_token if m.role == 'assistant' "
                "else m.content }}{% endfor %}",
                " </s>");
    turn_end_is("{% for m in messages %}{{ m.content }}{% endfor %}", "");
    turn_end_is("{{ raise_exception('never') }}", "");
}

/* ---- layouts that stand in ---- */

static bool among(void *ctx, const char *text)
{
    for (const char *const *t = ctx; *t; t++)
        if (!strcmp(*t, text)) return true;
    return false;
}

static void stands_in(const char *const *tokens, const char *arch, const char *name,
                      const char *want)
{
    rvi_chat_source src = {.arch = arch,
                           .has_token = tokens ? among : NULL,
                           .ctx = (void *)(uintptr_t)tokens,
                           .bos_token = "<s>",
                           .eos_token = "</s>"};
    rvi_chat *c;
    rv_error err = {0};
    assert_int_equal(rvi_chat_new(&c, &src, &err), RV_OK);
    assert_string_equal(rvi_chat_name(c), name);
    expect(
        c,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
        "\"content\":" TWO_PARTS "},{\"role\":\"assistant\","
        "\"content\":\"A\"},{\"role\":\"user\",\"content\":\"U\"}],\"add_generation_prompt\":true}",
        want);
    refuse(c, "{\"messages\":[],\"tools\":[{}]}", "tools");
    rvi_chat_free(c);
}

static void layouts(void **state)
{
    static const char *const chatml[] = {"<|im_start|>", "<|im_end|>", NULL},
                             *const llama3[] = {"<|start_header_id|>", NULL},
                             *const gemma[] = {"<start_of_turn>", NULL},
                             *const phi3[] = {"<|assistant|>", "<|end|>", "<|user|>", NULL},
                             *const zephyr[] = {"<|assistant|>", "<|user|>", NULL},
                             *const mistral[] = {"[INST]", NULL}, *const none[] = {NULL};
    (void)state;
    stands_in(chatml, "llama", "chatml",
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>"
              "assistant\nA<|im_end|>\n"
              "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
    stands_in(llama3, "llama", "llama3",
              "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<"
              "|end_header_id|>\n\none\ntwo<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<"
              "|end_header_id|>\n\nU<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    stands_in(gemma, "gemma2", "gemma",
              "<s><start_of_turn>user\nS\n\none\ntwo<end_of_turn>\n<start_of_turn>model\nA<end_of_"
              "turn>\n<start_of_turn>user\nU<end_of_turn>\n"
              "<start_of_turn>model\n");
    stands_in(phi3, "phi3", "phi3",
              "<|system|>\nS<|end|>\n<|user|>\none\ntwo<|end|>\n<|assistant|>\nA<|end|>\n<|user|>"
              "\nU<|end|>\n<|assistant|>\n");
    stands_in(zephyr, "llama", "zephyr",
              "<|system|>\nS</s>\n<|user|>\none\ntwo</s>\n<|assistant|>\nA</s>\n<|user|>\nU</"
              "s>\n<|assistant|>\n");
    stands_in(mistral, "llama", "mistral", "<s>[INST] S\n\none\ntwo[/INST] A</s>[INST] U[/INST]");
    stands_in(none, "llama", "llama2",
              "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\none\ntwo [/INST] A </s><s>[INST] U [/INST]");
    stands_in(none, "qwen2", "chatml",
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>"
              "assistant\nA<|im_end|>\n"
              "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
    stands_in(NULL, "mamba", "plain",
              "system: S\nuser: one\ntwo\nassistant: A\nuser: U\nassistant:");
    stands_in(NULL, NULL, "plain", "system: S\nuser: one\ntwo\nassistant: A\nuser: U\nassistant:");
}

static void syntax_errors_are_reported(void **state)
{
    (void)state;
    rvi_chat_source src = {.template_text = "{% if %}", .template_len = 8};
    rvi_chat *c;
    rv_error err = {0};
    assert_int_equal(rvi_chat_new(&c, &src, &err), RV_E_TOKENIZATION);
    assert_null(c);
    assert_non_null(strstr(err.text, "line 1"));
    rvi_chat_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_are_those_of_transformers),
        cmocka_unit_test(messages_are_checked),
        cmocka_unit_test(a_template_that_raises_is_heard),
        cmocka_unit_test(lists_are_joined_where_a_template_takes_none),
        cmocka_unit_test(lists_stay_where_a_template_takes_them),
        cmocka_unit_test(roles_are_told_apart),
        cmocka_unit_test(strings_become_lists_where_nothing_else_is_taken),
        cmocka_unit_test(a_list_that_fails_is_joined_after_all),
        cmocka_unit_test(turn_ends_are_found),
        cmocka_unit_test(layouts),
        cmocka_unit_test(syntax_errors_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
