/* tools.c - a loop with tools: the model calls a function of this program, gets its result, and
 * answers.
 *
 *   cc examples/tools.c -o tools $(pkg-config --cflags --libs ruvllm) && ./tools model.gguf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ruvllm_tools.h>

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"multiply\",\"description\":\"Multiplies two "
    "whole numbers\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
    "\"integer\",\"minimum\":-99999,\"maximum\":99999},\"b\":{\"type\":\"integer\",\"minimum\":"
    "-99999,\"maximum\":99999}},\"required\":[\"a\",\"b\"]}}}]";

/* Arguments are held to the schema: two whole numbers, in any order. */
static long number(const char *arguments, const char *name)
{
    const char *at = strstr(arguments, name);
    return at ? strtol(at + strlen(name) + 1, NULL, 10) : 0;
}

enum { MOST = 8 };

typedef struct calls {
    char arguments[512];
    char results[MOST][64], more[MOST][64];
    size_t n;
} calls;

/* The function is called as soon as its arguments are there. */
static int said(void *ctx, const rv_said *s)
{
    calls *c = ctx;
    size_t len = strlen(c->arguments);
    if (s->kind == RV_SAID_TEXT) fwrite(s->text, 1, s->text_len, stdout);
    if (s->kind == RV_SAID_CALL) c->arguments[0] = 0;
    if (s->kind == RV_SAID_ARGUMENTS)
        snprintf(c->arguments + len, sizeof c->arguments - len, "%.*s", (int)s->text_len, s->text);
    if (s->kind == RV_SAID_CALL_END && s->complete && c->n < MOST) {
        long a = number(c->arguments, "\"a\""), b = number(c->arguments, "\"b\"");
        printf("[%s %s]\n", s->name, c->arguments);
        snprintf(c->more[c->n], sizeof c->more[0], "{\"tool_call_id\":\"%s\"}", s->id);
        snprintf(c->results[c->n++], sizeof c->results[0], "%ld", a * b);
    }
    return 0;
}

int main(int argc, char **argv)
{
    rv_error err = {0};
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    rv_session *s = NULL;
    rv_tools *must = NULL, *may = NULL;
    rv_message messages[16] = {{.role = "user", .content = "What is 1234 times 567?"}};
    size_t n = 1;
    char *kept[2] = {0};
    calls c[2] = {{.n = 0}};
    if (argc != 2) {
        fprintf(stderr, "usage: tools MODEL\n");
        return 2;
    }
    rv_status st = rv_runtime_new(&rt, NULL, &err);
    if (!st) st = rv_model_open(&m, rt, argv[1], NULL, &err);
    if (!st) st = rv_session_new(&s, m, NULL, &err);
    /* The first answer is a call, the second is not. */
    rv_tools_options o = {.size = sizeof o, .tools = tools, .choice = "required", .one_call = 1};
    if (!st) st = rv_tools_new(&must, m, &o, &err);
    o.choice = "none";
    if (!st) st = rv_tools_new(&may, m, &o, &err);
    for (int turn = 0; turn < 2 && !st; turn++) {
        rv_tools *t = turn ? may : must;
        rv_tools_reader *r = NULL;
        rv_answer *a = NULL;
        rv_chat chat = {.size = sizeof chat, .messages = messages, .n_messages = n};
        rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
        rv_generate_options how = {.size = sizeof how,
                                   .sampling = &greedy,
                                   .max_tokens = 100,
                                   .grammar = rv_tools_grammar(t)};
        chat.tools = tools;
        chat.variables = rv_tools_variables(t);
        st = rv_session_chat(s, &chat, &how, &a, &err);
        if (!st) st = rv_tools_reader_new(&r, t, said, &c[turn], &err);
        if (!st) st = rv_tools_read(r, a->text, a->text_len, &err);
        if (!st) st = rv_tools_read_end(r, &err);
        /* The call and its result go back into the conversation. */
        if (!st) st = rv_tools_message(t, a->text, a->text_len, &kept[turn], &err);
        if (!st) messages[n++] = (rv_message){.role = "assistant", .more = kept[turn]};
        for (size_t i = 0; i < c[turn].n && !st; i++) {
            printf("[result: %s]\n", c[turn].results[i]);
            messages[n++] = (rv_message){"tool", c[turn].results[i], c[turn].more[i]};
        }
        rv_tools_reader_free(&r);
        rv_free(a);
    }
    if (st)
        fprintf(stderr, "tools: %s\n", err.text);
    else
        printf("\n");
    rv_free(kept[0]);
    rv_free(kept[1]);
    rv_tools_free(&must);
    rv_tools_free(&may);
    rv_session_free(&s);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return st != RV_OK;
}
