/* templates.c - renders real chat templates and compares every byte with what Python's jinja2
 * rendered.
 *
 *     templates DIRECTORY [NAME]
 *
 * DIRECTORY holds templates.json, conversations.json, expected/NAME.json, jinja/ and micro.json as
 * make_templates.py of that directory writes them. Variables are passed as they stand there:
 * nothing is joined or renamed on the way. Prints every difference and the totals; exit status 1
 * where there was one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "template/chat.h"
#include "template/jinja.h"

typedef struct totals {
    size_t texts, text_ok, errors, error_ok, messages, message_ok, lenient_texts;
} totals;

static const rvi_template_now now = {.year = 2026, .month = 1, .day = 2};

static char *read_file(const char *dir, const char *name, size_t *len)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    long size = ftell(f);
    rewind(f);
    char *data = malloc((size_t)size + 1);
    if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) exit(2);
    fclose(f);
    *len = (size_t)size;
    return data;
}

static const rvi_json *read_json(const char *dir, const char *name, rvi_arena *arena)
{
    const rvi_json *j;
    rv_error err;
    size_t len;
    char *text = read_file(dir, name, &len);
    if (rvi_json_parse(&j, text, len, arena, name, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    free(text);
    return j;
}

/* An object with these members; keys and values are borrowed. */
typedef struct object {
    rvi_json members[64];
    rvi_json self;
} object;

static void add(object *o, const char *key, const rvi_json *value)
{
    if (o->self.as.list.count == 64) exit(2);
    rvi_json *m = &o->members[o->self.as.list.count++];
    *m = *value;
    m->key = key;
    m->key_len = (uint32_t)strlen(key);
    o->self.kind = RVI_JSON_OBJECT;
    o->self.as.list.items = o->members;
}

static void add_all(object *o, const rvi_json *from)
{
    for (size_t i = 0; i < rvi_json_count(from); i++)
        add(o, rvi_json_at(from, i)->key, rvi_json_at(from, i));
}

static void variables(object *o, const rvi_json *conversation, const rvi_json *vars)
{
    static const rvi_json null = {.kind = RVI_JSON_NULL};
    const rvi_json *tools = rvi_json_get(conversation, "tools");
    *o = (object){0};
    add(o, "messages", rvi_json_get(conversation, "messages"));
    add(o, "tools", tools ? tools : &null);
    add(o, "documents", &null);
    add(o, "add_generation_prompt", rvi_json_get(conversation, "add_generation_prompt"));
    add_all(o, vars);
    add_all(o, rvi_json_get(conversation, "vars"));
}

static void excerpt(const char *label, const char *text, size_t len, size_t at)
{
    size_t from = at > 40 ? at - 40 : 0, to = RVI_MIN(len, at + 60);
    printf("    %s: ...", label);
    for (size_t i = from; i < to; i++) {
        if (text[i] == '\n')
            fputs("\\n", stdout);
        else
            putchar(text[i]);
    }
    putchar('\n');
}

/* Compares one result with what is expected; prints a difference. */
static void check(totals *sum, const char *name, const char *which, rv_status status,
                  const rv_error *err, const rvi_buf *out, const rvi_json *expected)
{
    const rvi_json *text = rvi_json_get(expected, "text"),
                   *message = rvi_json_get(expected, "message");
    if (text) {
        const char *want = text->as.string.data;
        size_t len = text->as.string.len, at = 0;
        sum->texts++;
        if (!status && out->len == len && (!len || !memcmp(out->data, want, len))) {
            sum->text_ok++;
            return;
        }
        printf("DIFFERS %s / %s%s%s\n", name, which, status ? ": " : "", status ? err->text : "");
        if (status) return;
        while (at < len && at < out->len && want[at] == out->data[at]) at++;
        excerpt("expected", want, len, at);
        excerpt("got     ", out->data ? out->data : "", out->len, at);
        return;
    }
    sum->errors++;
    if (status == RV_E_TOKENIZATION)
        sum->error_ok++;
    else
        printf("NO ERROR %s / %s (%s)\n", name, which,
               rvi_json_string(rvi_json_get(expected, "kind"), "?"));
    if (!message) return;
    sum->messages++;
    if (status && !strcmp(err->text, message->as.string.data))
        sum->message_ok++;
    else
        printf("MESSAGE %s / %s: '%s', not '%s'\n", name, which, status ? err->text : "",
               message->as.string.data);
}

/* The same rendering through rvi_chat_render, which joins text parts where the template takes no
 * lists. */
static void try_lenient(totals *sum, const char *source, size_t len, const rvi_json *conversation,
                        const rvi_json *vars)
{
    rvi_chat_source src = {.template_text = source,
                           .template_len = len,
                           .bos_token = rvi_json_string(rvi_json_get(vars, "bos_token"), NULL),
                           .eos_token = rvi_json_string(rvi_json_get(vars, "eos_token"), NULL)};
    rvi_chat *chat;
    rv_error err;
    object o;
    rvi_buf out = {0};
    variables(&o, conversation, vars);
    if (!rvi_chat_new(&chat, &src, &err) && !rvi_chat_render(chat, &o.self, &now, &out, &err))
        sum->lenient_texts++;
    rvi_chat_free(chat);
    rvi_buf_deinit(&out);
}

static void run_template(totals *sum, const char *dir, const rvi_json *entry,
                         const rvi_json *conversations)
{
    char path[512];
    rvi_arena arena = {0};
    rv_error err = {0};
    size_t len;
    char *source = read_file(dir, rvi_json_string(rvi_json_get(entry, "file"), "?"), &len);
    snprintf(path, sizeof path, "expected/%s.json", entry->key);
    const rvi_json *expected = read_json(dir, path, &arena), *vars = rvi_json_get(entry, "vars");
    rvi_template *t;
    rv_status parsed = rvi_template_new(&t, source, len, &err);
    for (size_t i = 0; i < rvi_json_count(conversations); i++) {
        const rvi_json *c = rvi_json_at(conversations, i);
        const char *which = rvi_json_string(rvi_json_get(c, "name"), "?");
        object o;
        rvi_buf out = {0};
        variables(&o, c, vars);
        rv_status st = parsed ? parsed : rvi_template_render(t, &o.self, &now, NULL, &out, &err);
        check(sum, entry->key, which, st, &err, &out, rvi_json_get(expected, which));
        if (st) try_lenient(sum, source, len, c, vars);
        rvi_buf_deinit(&out);
    }
    rvi_template_free(t);
    rvi_arena_deinit(&arena);
    free(source);
}

static void run_micro(totals *sum, const rvi_json *micro)
{
    const rvi_json *tests = rvi_json_get(micro, "tests");
    for (size_t i = 0; i < rvi_json_count(tests); i++) {
        const rvi_json *test = rvi_json_at(tests, i), *text = rvi_json_get(test, "template");
        rvi_template *t;
        rv_error err = {0};
        rvi_buf out = {0};
        rv_status st = rvi_template_new(&t, text->as.string.data, text->as.string.len, &err);
        if (!st) st = rvi_template_render(t, rvi_json_get(micro, "vars"), &now, NULL, &out, &err);
        check(sum, "micro", rvi_json_string(rvi_json_get(test, "name"), "?"), st, &err, &out, test);
        rvi_buf_deinit(&out);
        rvi_template_free(t);
    }
}

static void print_totals(const char *what, const totals *s)
{
    printf("%s: texts %zu of %zu, errors %zu of %zu, messages of raise_exception %zu of %zu\n",
           what, s->text_ok, s->texts, s->error_ok, s->errors, s->message_ok, s->messages);
}

static bool all_right(const totals *s)
{
    return s->text_ok == s->texts && s->error_ok == s->errors && s->message_ok == s->messages;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: templates DIRECTORY [NAME]\n");
        return 2;
    }
    rvi_arena arena = {0};
    totals real = {0}, micro = {0};
    const rvi_json *templates = read_json(argv[1], "templates.json", &arena);
    const rvi_json *conversations = read_json(argv[1], "conversations.json", &arena);
    for (size_t i = 0; i < rvi_json_count(templates); i++) {
        const rvi_json *entry = rvi_json_at(templates, i);
        if (argc < 3 || !strcmp(argv[2], entry->key))
            run_template(&real, argv[1], entry, conversations);
    }
    run_micro(&micro, read_json(argv[1], "micro.json", &arena));
    print_totals("templates", &real);
    printf("    of the errors, rvi_chat_render gives a text for %zu\n", real.lenient_texts);
    print_totals("micro", &micro);
    rvi_arena_deinit(&arena);
    return all_right(&real) && all_right(&micro) ? 0 : 1;
}
