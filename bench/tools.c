/* tools.c - conversations with tools under any chat template: what the model calls, and whether the
 * answer read as it came says the same as the whole and as any other pieces.
 *
 *   build/bench/tools MODEL.gguf TEMPLATE.jinja TOKENS < CONVERSATIONS.jsonl
 *
 * A line: {"id", "tools": [...], "choice", "messages": [...], "seed"}. Answers one a line: {"id",
 * "family", "refused": null or why, "finish", "same", "message"}. bench/tools_judge makes the
 * conversations and judges the arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "base/rng.h"
#include "ruvllm_tools.h"

typedef struct heard {
    rvi_buf log;
    int last;
} heard;

static int hear(void *ctx, const rv_said *said)
{
    heard *h = ctx;
    bool joins = said->kind == RV_SAID_TEXT || said->kind == RV_SAID_THOUGHT ||
                 said->kind == RV_SAID_ARGUMENTS;
    if (!joins || h->last != (int)said->kind) rvi_buf_printf(&h->log, "\n%d:", (int)said->kind);
    h->last = (int)said->kind;
    if (joins)
        rvi_buf_append(&h->log, said->text, said->text_len);
    else
        rvi_buf_printf(&h->log, "%s %s %d", said->id, said->name, said->complete);
    return 0;
}

typedef struct stream {
    rv_tools_reader *r;
    rv_status st;
} stream;

static int on_event(void *ctx, const rv_event *event)
{
    stream *s = ctx;
    if (event->kind == RV_EVENT_TOKEN && !s->st)
        s->st = rv_tools_read(s->r, event->text, event->text_len, NULL);
    return s->st != RV_OK;
}

/* The whole text in random pieces. */
static bool same_in_pieces(rv_tools *t, const rv_answer *a, const heard *came, uint64_t seed)
{
    heard h = {.last = -1};
    rv_tools_reader *r = NULL;
    rvi_rng rng = {seed};
    rv_status st = rv_tools_reader_new(&r, t, hear, &h, NULL);
    for (size_t at = 0, n; at < a->text_len && !st; at += n) {
        n = seed ? 1 + rvi_rng_u64(&rng) % 7 : a->text_len;
        n = RVI_MIN(n, a->text_len - at);
        st = rv_tools_read(r, a->text + at, n, NULL);
    }
    if (!st) st = rv_tools_read_end(r, NULL);
    bool same = !st && h.log.len == came->log.len &&
                (!h.log.len || !memcmp(h.log.data, came->log.data, h.log.len));
    rv_tools_reader_free(&r);
    rvi_buf_deinit(&h.log);
    return same;
}

static rv_status converse(rv_session *s, const rv_model *m, const rvi_json *line, int max_tokens,
                          rvi_buf *out, rv_error *err)
{
    rvi_buf tools = {0}, talk = {0};
    rv_tools *t = NULL;
    heard h = {.last = -1};
    rv_answer *a = NULL;
    char *message = NULL;
    rv_tools_options o = {.size = sizeof o};
    rvi_json_write(&tools, rvi_json_get(line, "tools"));
    rvi_buf_puts(&talk, "{\"messages\":");
    rvi_json_write(&talk, rvi_json_get(line, "messages"));
    rvi_buf_puts(&talk, "}");
    o.tools = tools.data;
    o.choice = rvi_json_string(rvi_json_get(line, "choice"), "auto");
    o.seed = (uint64_t)rvi_json_int(rvi_json_get(line, "seed"), 1);
    rv_status st = rv_tools_new(&t, m, &o, err);
    stream live = {0};
    rv_sampling sampling = {.size = sizeof sampling,
                            .seed = o.seed,
                            .temperature = 1,
                            .top_p = 1,
                            .repetition_penalty = 1};
    rv_generate_options how = {.size = sizeof how,
                               .sampling = &sampling,
                               .max_tokens = max_tokens,
                               .on_event = on_event,
                               .ctx = &live,
                               .grammar = rv_tools_grammar(t)};
    rv_chat chat = {.size = sizeof chat, .tools = tools.data, .variables = talk.data};
    if (!st) st = rv_tools_reader_new(&live.r, t, hear, &h, err);
    if (!st) st = rv_session_chat(s, &chat, &how, &a, err);
    if (!st) st = rv_tools_read_end(live.r, err);
    if (!st) st = rv_tools_message(t, a->text, a->text_len, &message, err);
    if (!st) {
        bool same = true;
        for (uint64_t seed = 0; seed < 6; seed++) same = same && same_in_pieces(t, a, &h, seed);
        rvi_buf_printf(out, "\"family\":\"%s\",\"refused\":null,\"finish\":\"%s\",\"same\":%s,",
                       rv_tools_family(t), rv_finish_name(a->finish), same ? "true" : "false");
        rvi_buf_printf(out, "\"message\":%s}\n", message);
    }
    rv_free(message);
    rv_free(a);
    rv_tools_reader_free(&live.r);
    rv_tools_free(&t);
    rvi_buf_deinit(&h.log);
    rvi_buf_deinit(&tools);
    rvi_buf_deinit(&talk);
    return st;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    rvi_buf b = {0};
    char piece[4096];
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0;) rvi_buf_append(&b, piece, n);
    if (f) fclose(f);
    rvi_buf_puts(&b, "");
    return f ? b.data : NULL;
}

int main(int argc, char **argv)
{
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    rv_session *s = NULL;
    rv_error err = {0};
    static char line[1 << 20];
    if (argc != 4) return fprintf(stderr, "usage: tools MODEL TEMPLATE TOKENS < LINES\n"), 2;
    rv_open_options o = {.size = sizeof o, .chat_template = read_file(argv[2])};
    if (!o.chat_template) return fprintf(stderr, "%s: cannot be read\n", argv[2]), 1;
    rv_status st = rv_runtime_new(&rt, NULL, &err);
    if (!st) st = rv_model_open(&m, rt, argv[1], &o, &err);
    if (!st) st = rv_session_new(&s, m, NULL, &err);
    while (!st && fgets(line, sizeof line, stdin)) {
        rvi_arena arena = {0};
        const rvi_json *json;
        rvi_buf out = {0};
        st = rvi_json_parse(&json, line, strlen(line), &arena, "line", &err);
        if (!st) {
            rvi_buf_printf(&out, "{\"id\":%lld,",
                           (long long)rvi_json_int(rvi_json_get(json, "id"), 0));
            if (converse(s, m, json, (int)strtol(argv[3], NULL, 10), &out, &err)) {
                rvi_buf_puts(&out, "\"refused\":");
                rvi_json_write_string(&out, err.text, strlen(err.text));
                rvi_buf_puts(&out, "}\n");
            }
            fwrite(out.data, 1, out.len, stdout);
        }
        rvi_buf_deinit(&out);
        rvi_arena_deinit(&arena);
    }
    if (st) fprintf(stderr, "tools: %s\n", err.text);
    rv_session_free(&s);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    rvi_free((void *)(uintptr_t)o.chat_template);
    return st != RV_OK;
}
