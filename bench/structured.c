/* structured.c - answers under many schemas, for bench/structured_judge to judge.
 *
 *   structured MODEL [TOKENS] < lines
 *
 * A line is {"id", "schema", "seed"}; one comes back for each, in the order in which they end:
 * {"id", "refused": null or why, "text", "finish", "tokens"}. Temperature 1, several at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ruvllm_grammar.h"

enum { AT_ONCE = 12, CONTEXT = 2048, SHOWN = 400 /* bytes of a schema that the prompt shows */ };

typedef struct place {
    rv_session *s;
    rv_grammar *g;
    rvi_buf id;
    bool busy, ended;
} place;

typedef struct bench {
    rv_model *m;
    rv_engine *e;
    place places[AT_ONCE];
    int max_tokens;
} bench;

static void die(const rv_error *err)
{
    fprintf(stderr, "structured: %s\n", err->text);
    exit(1);
}

static bool read_line(rvi_buf *line)
{
    int c;
    line->len = 0;
    while ((c = getchar()) != EOF && c != '\n') rvi_buf_putc(line, (char)c);
    return c != EOF || line->len;
}

static void print(const char *id, const char *refused, const rv_answer *a)
{
    rvi_buf out = {0};
    rvi_buf_puts(&out, "{\"id\":");
    rvi_json_write_string(&out, id, strlen(id));
    rvi_buf_puts(&out, ",\"refused\":");
    if (refused)
        rvi_json_write_string(&out, refused, strlen(refused));
    else
        rvi_buf_puts(&out, "null");
    if (a) {
        rvi_buf_puts(&out, ",\"text\":");
        rvi_json_write_string(&out, a->text, a->text_len);
        rvi_buf_printf(&out, ",\"finish\":\"%s\",\"tokens\":%zu", rv_finish_name(a->finish),
                       a->n_ids);
    }
    rvi_buf_puts(&out, "}\n");
    if (!out.failed) fputs(out.data, stdout);
    fflush(stdout);
    rvi_buf_deinit(&out);
}

static int on_event(void *ctx, const rv_event *event)
{
    place *p = ctx;
    p->ended = event->kind == RV_EVENT_DONE;
    return 0;
}

static void begin(bench *b, place *p, const rvi_json *line)
{
    rv_error err = {0};
    rvi_buf source = {0}, question = {0};
    const char *id = rvi_json_string(rvi_json_get(line, "id"), NULL);
    rv_grammar_options form = {.size = sizeof form, .max_blanks = 24, .canonical = 1};
    rvi_json_write(&source, rvi_json_get(line, "schema"));
    size_t shown = RVI_MIN(source.len, (size_t)SHOWN);
    while (shown && (source.data[shown] & 0xC0) == 0x80) shown--; /* whole characters */
    rvi_buf_printf(&question, "Write a short JSON example for this schema: %.*s", (int)shown,
                   source.data);
    p->id.len = 0;
    rvi_buf_puts(&p->id, id ? id : "");
    rv_message ask = {.role = "user", .content = question.data};
    rv_chat chat = {.size = sizeof chat, .messages = &ask, .n_messages = 1};
    rv_sampling how = {.size = sizeof how,
                       .seed = (uint64_t)rvi_json_int(rvi_json_get(line, "seed"), 1),
                       .temperature = 1,
                       .top_p = 1,
                       .repetition_penalty = 1};
    if (rv_grammar_new(&p->g, b->m, RV_GRAMMAR_SCHEMA, source.data, source.len, &form, &err)) {
        print(p->id.data, err.text, NULL);
    } else {
        rv_generate_options o = {.size = sizeof o,
                                 .sampling = &how,
                                 .max_tokens = b->max_tokens,
                                 .on_event = on_event,
                                 .ctx = p,
                                 .grammar = p->g};
        p->ended = false;
        if (rv_session_start_chat(p->s, &chat, &o, &err)) die(&err);
        p->busy = true;
    }
    rvi_buf_deinit(&source);
    rvi_buf_deinit(&question);
}

/* One step; prints what ended with it. */
static void advance(bench *b)
{
    rv_error err = {0};
    size_t running;
    if (rv_engine_advance(b->e, &running, &err)) die(&err);
    for (int i = 0; i < AT_ONCE; i++) {
        place *p = &b->places[i];
        rv_answer *a = NULL;
        if (!p->busy || !p->ended) continue;
        rv_status st = rv_session_finish(p->s, &a, &err);
        print(p->id.data, st ? err.text : NULL, a);
        rv_free(a);
        rv_grammar_free(&p->g);
        p->busy = false;
    }
}

static place *find_free(bench *b)
{
    for (int i = 0; i < AT_ONCE; i++)
        if (!b->places[i].busy) return &b->places[i];
    return NULL;
}

static bool is_busy(const bench *b)
{
    for (int i = 0; i < AT_ONCE; i++)
        if (b->places[i].busy) return true;
    return false;
}

static void answer_lines(bench *b)
{
    rvi_buf line = {0};
    while (read_line(&line)) {
        rvi_arena arena = {0};
        rv_error err = {0};
        const rvi_json *json;
        if (!line.len) continue;
        if (rvi_json_parse(&json, line.data, line.len, &arena, "input", &err)) die(&err);
        while (!find_free(b)) advance(b);
        begin(b, find_free(b), json);
        rvi_arena_deinit(&arena);
    }
    while (is_busy(b)) advance(b);
    rvi_buf_deinit(&line);
}

int main(int argc, char **argv)
{
    bench b = {.max_tokens = argc > 2 ? atoi(argv[2]) : 512};
    rv_error err = {0};
    rv_runtime *rt = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: structured MODEL [TOKENS] < lines\n");
        return 2;
    }
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = AT_ONCE * CONTEXT};
    if (rv_runtime_new(&rt, NULL, &err) || rv_model_open(&b.m, rt, argv[1], NULL, &err) ||
        rv_engine_new(&b.e, b.m, &eo, &err))
        die(&err);
    for (int i = 0; i < AT_ONCE; i++) {
        rv_session_options so = {.size = sizeof so, .engine = b.e, .n_context = CONTEXT};
        if (rv_session_new(&b.places[i].s, b.m, &so, &err)) die(&err);
    }
    answer_lines(&b);
    for (int i = 0; i < AT_ONCE; i++) {
        rv_session_free(&b.places[i].s);
        rvi_buf_deinit(&b.places[i].id);
    }
    rv_engine_free(&b.e);
    rv_model_close(&b.m);
    rv_runtime_free(&rt);
    return 0;
}
