/* What the library computes, as text that two builds of it can be compared by: logits and vectors
 * as the bits of their floats, ids, texts. tests/wasm/check.py runs the native and the WebAssembly
 * build of it.
 *
 *   wasm_golden [--exact] [--memory] [--isa NAME] [--lora PATH] MODEL ACTION...
 *     logits IDS      logits after every one of the ids (1,2,3)
 *     last IDS        those after the last one
 *     embed IDS       their vectors, pooled as mean, first and last, lengths as they are
 *     greedy N IDS    the N most likely ids that follow
 *     text TEXT       its ids, the text they give back, and a conversation with it as rendered
 *     learn QUESTION ANSWER IDS   what is said after a correction; logits after scores and a thumb,
 *                                 and after
 *                     training the correction into the weights
 *     time N IDS      seconds of a prompt, and of N tokens after it
 *
 * --memory: the file's bytes are given to rv_model_open as rv_open_options.data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ruvllm_learn.h"

static rv_error err;
static rv_model *model;
static rv_adapter_set *adapters;
static rv_kv_type kv_type = RV_KV_F16;

static void check(rv_status st)
{
    if (!st) return;
    fprintf(stderr, "wasm_golden: %s: %s\n", rv_status_name(st), err.text);
    exit(1);
}

static void fail(const char *what, const char *which)
{
    fprintf(stderr, "wasm_golden: %s %s\n", what, which);
    exit(2);
}

static void *need(void *p)
{
    if (!p) fail("out of", "memory");
    return p;
}

static void *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) fail("cannot read", path);
    long size = ftell(f);
    if (size <= 0 || fseek(f, 0, SEEK_SET)) fail("cannot read", path);
    *len = (size_t)size;
    void *data = need(malloc(*len));
    if (fread(data, 1, *len, f) != *len || fclose(f)) fail("cannot read", path);
    return data;
}

static int32_t *parse_ids(const char *text, size_t *n)
{
    *n = 0;
    int32_t *ids = need(malloc((strlen(text) / 2 + 1) * sizeof *ids));
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        ids[(*n)++] = (int32_t)strtol(text, &end, 10);
        if (end == text || (*end && *end != ',')) fail("not a list of ids:", text);
    }
    return ids;
}

static void print_ids(const char *name, const int32_t *ids, size_t n)
{
    printf("%s ", name);
    for (size_t i = 0; i < n; i++) printf(i ? ",%d" : "%d", (int)ids[i]);
    printf("\n");
}

/* n_tokens: of prompt and answer; models that rotate long texts otherwise choose by it */
static rv_session *open_session(size_t n_tokens)
{
    rv_session_options o;
    rv_session *s;
    o = (rv_session_options){.size = sizeof o};
    o.n_context = (int)n_tokens;
    o.kv_type = kv_type;
    o.adapters = adapters;
    check(rv_session_new(&s, model, &o, &err));
    return s;
}

static void print_floats(const char *name, const float *values, int n)
{
    printf("%s", name);
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        printf(" %08x", (unsigned)bits);
    }
    printf("\n");
}

static void logits(const char *list, int all)
{
    size_t n, n_reused;
    int32_t *ids = parse_ids(list, &n);
    rv_session *s = open_session(n);
    const rv_model_info *info = rv_model_get_info(model);
    for (size_t i = all ? 1 : n; i <= n; i++) {
        float *row;
        check(rv_session_sync(s, ids, i, &n_reused, &row, &err));
        print_floats("logits", row, info->n_vocab);
    }
    rv_session_free(&s);
    free(ids);
}

static void embed(const char *list)
{
    static const rv_pooling poolings[] = {RV_POOLING_MEAN, RV_POOLING_FIRST, RV_POOLING_LAST};
    size_t n;
    int32_t *ids = parse_ids(list, &n);
    rv_engine_options engine_options;
    rv_embed_options o;
    rv_engine *e;
    const rv_model_info *info = rv_model_get_info(model);
    engine_options = (rv_engine_options){.size = sizeof engine_options};
    engine_options.kv_type = kv_type;
    check(rv_engine_new(&e, model, &engine_options, &err));
    float *vector = need(malloc((size_t)info->n_embd * sizeof *vector));
    for (size_t i = 0; i < sizeof poolings / sizeof poolings[0]; i++) {
        o = (rv_embed_options){.size = sizeof o};
        o.pooling = poolings[i];
        o.keep_length = 1;
        check(rv_engine_embed(e, ids, n, &o, vector, &err));
        print_floats("embedding", vector, info->n_embd);
    }
    free(vector);
    rv_engine_free(&e);
    free(ids);
}

static void generate(const char *count, const char *list, int show_time)
{
    size_t n;
    int32_t *ids = parse_ids(list, &n);
    long n_new = strtol(count, NULL, 10);
    rv_session *s = open_session(n + (size_t)n_new);
    rv_sampling greedy;
    rv_generate_options o;
    rv_answer *g = NULL;
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    o = (rv_generate_options){.size = sizeof o};
    o.sampling = &greedy;
    o.max_tokens = (int)n_new;
    o.ignore_eos = 1;
    check(rv_session_generate(s, ids, n, &o, &g, &err));
    if (show_time)
        printf("time prompt %d %.6f tokens %zu %.6f\n", g->n_prompt, g->prompt_seconds, g->n_ids,
               g->seconds);
    else
        print_ids("greedy", g->ids, g->n_ids);
    rv_free(g);
    rv_session_free(&s);
    free(ids);
}

static void text(const char *plain)
{
    int32_t *ids;
    size_t n;
    char *back, *rendered;
    rv_message message = {"user", plain, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    check(rv_tokenize(model, plain, strlen(plain), RV_TOKENIZE_BOS, &ids, &n, &err));
    print_ids("ids", ids, n);
    check(rv_detokenize(model, ids, n, 1, &back, NULL, &err));
    printf("text %s\n", back);
    check(rv_chat_render(model, &chat, &rendered, NULL, &err));
    printf("chat %s\n", rendered);
    rv_free(ids);
    rv_free(back);
    rv_free(rendered);
}

/* ---- learning ---- */

/* How many adapters take part. */
static int begin(rv_learner *l, rv_session *s, const char *question)
{
    rv_message message = {"user", question, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_learn_plan *plan;
    check(rv_learner_begin(l, s, &chat, &plan, &err));
    int n = plan->n_adapters;
    rv_free(plan);
    return n;
}

static void say(rv_session *s, const int32_t *ids, size_t n, int print)
{
    rv_sampling greedy;
    rv_generate_options o;
    rv_answer *g = NULL;
    greedy = (rv_sampling){.size = sizeof greedy, .greedy = 1};
    o = (rv_generate_options){.size = sizeof o};
    o.sampling = &greedy;
    o.max_tokens = 12;
    check(rv_session_generate(s, ids, n, &o, &g, &err));
    if (print) print_ids("said", g->ids, g->n_ids);
    rv_free(g);
}

static void print_learned(rv_learner *l, rv_session *s, const char *question, const int32_t *ids,
                          size_t n)
{
    size_t n_reused;
    float *row;
    const rv_model_info *info = rv_model_get_info(model);
    printf("adapters %d\n", begin(l, s, question));
    check(rv_session_sync(s, ids, n, &n_reused, &row, &err));
    print_floats("learned", row, info->n_vocab);
}

static void learn(const char *question, const char *answer, const char *list)
{
    static const char other[] = "Tell me about tea.";
    size_t n;
    int32_t *ids = parse_ids(list, &n);
    rv_session *s = open_session(n + 16);
    rv_learner_options o;
    rv_learner *l;
    o = (rv_learner_options){.size = sizeof o};
    o.experiments = "n_steps=3,rank=2";
    check(rv_learner_new(&l, model, &o, &err));
    check(rv_learner_correct(l, NULL, question, answer, NULL, &err));
    begin(l, s, question);
    say(s, ids, n, 1);
    for (int i = 0; i < 4; i++) {
        begin(l, s, other);
        say(s, ids, n, 0);
        check(rv_learner_score(l, s, i % 2 ? 0.9 : 0.1, NULL, &err));
    }
    print_learned(l, s, other, ids, n);
    say(s, ids, n, 0);
    check(rv_learner_thumb(l, s, 0, NULL, &err));
    begin(l, s, other);
    say(s, ids, n, 1);
    check(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, &err));
    print_learned(l, s, question, ids, n);
    rv_learner_free(&l);
    rv_session_free(&s);
    free(ids);
}

static void act(int argc, char **argv)
{
    for (int at = 0; at < argc;) {
        const char *action = argv[at];
        int left = argc - at - 1;
        if (!strcmp(action, "logits") && left >= 1) {
            logits(argv[at + 1], 1);
            at += 2;
        } else if (!strcmp(action, "last") && left >= 1) {
            logits(argv[at + 1], 0);
            at += 2;
        } else if (!strcmp(action, "embed") && left >= 1) {
            embed(argv[at + 1]);
            at += 2;
        } else if (!strcmp(action, "text") && left >= 1) {
            text(argv[at + 1]);
            at += 2;
        } else if ((!strcmp(action, "greedy") || !strcmp(action, "time")) && left >= 2) {
            generate(argv[at + 1], argv[at + 2], action[0] == 't');
            at += 3;
        } else if (!strcmp(action, "learn") && left >= 3) {
            learn(argv[at + 1], argv[at + 2], argv[at + 3]);
            at += 4;
        } else {
            fail("unknown or incomplete action", action);
        }
    }
}

int main(int argc, char **argv)
{
    rv_runtime_options o;
    rv_runtime *rt;
    rv_adapter *adapter = NULL;
    const char *lora = NULL;
    void *data = NULL;
    int at = 1, from_memory = 0;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "--exact"))
            o.exact = 1;
        else if (!strcmp(argv[at], "--memory"))
            from_memory = 1;
        else if (!strcmp(argv[at], "--isa") && at + 1 < argc)
            o.isa = argv[++at];
        else if (!strcmp(argv[at], "--lora") && at + 1 < argc)
            lora = argv[++at];
        else
            fail("unknown option", argv[at]);
    }
    if (at >= argc) fail("a model is", "needed");
    if (o.exact) kv_type = RV_KV_F32;
    check(rv_runtime_new(&rt, &o, &err));
    printf("isa %s\n", rv_runtime_isa(rt));
    if (from_memory) {
        size_t len;
        data = read_file(argv[at], &len);
        rv_open_options in = {.size = sizeof in, .data = data, .len = len};
        check(rv_model_open(&model, rt, argv[at], &in, &err));
    } else {
        check(rv_model_open(&model, rt, argv[at], NULL, &err));
    }
    if (lora) {
        check(rv_adapter_load(&adapter, model, lora, &err));
        check(rv_adapter_set_new(&adapters, model,
                                 &(rv_adapter_use){.adapter = adapter, .scale = 1}, 1, &err));
    }
    act(argc - at - 1, argv + at + 1);
    rv_adapter_set_free(&adapters);
    rv_adapter_free(&adapter);
    rv_model_close(&model);
    rv_runtime_free(&rt);
    free(data);
    if (fflush(stdout)) fail("cannot write", "the results");
    return 0;
}
