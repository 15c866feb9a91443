/* Any bytes as a model: what opens must tokenize, render, generate and be scored, or say why not,
 * in time and memory that the size of the file bounds. */
#include <stdlib.h>
#include <string.h>

#include "ruvllm_experimental.h"

static rv_runtime *make_runtime(int exact)
{
    rv_runtime_options o;
    rv_runtime *rt;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = 1;
    o.exact = exact;
    if (rv_runtime_new(&rt, &o, NULL)) abort();
    return rt;
}

/* A failure must have a code and a text, and they must agree. */
static void check(rv_status st, const rv_error *err)
{
    if (st && (err->code != st || !err->text[0])) abort();
}

static void generate(const rv_model *m, const rv_model_info *info, const int32_t *ids, size_t n)
{
    static const int32_t first[] = {0};
    rv_error err = {0};
    rv_session_options so;
    rv_generate_options go;
    rv_session *s;
    rv_answer *g = NULL;
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 32;
    rv_status st = rv_session_new(&s, m, &so, &err);
    check(st, &err);
    if (st) return;
    go = (rv_generate_options){.size = sizeof go};
    go.max_tokens = 3;
    st = rv_session_generate(s, n ? ids : first, n ? n : 1, &go, &g, &err);
    check(st, &err);
    for (size_t i = 0; g && i < g->n_ids; i++)
        if (g->ids[i] < 0 || g->ids[i] >= info->n_vocab) abort();
    rv_free(g);
    rv_session_free(&s);
}

static void use(const rv_model *m)
{
    static const char text[] = "the tea\n";
    static const rv_message message = {"user", "the", NULL};
    static const rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_error err = {0};
    rv_perplexity p;
    int32_t *ids = NULL;
    char *out = NULL, *json = NULL;
    size_t n = 0, len = 0;
    const rv_model_info *info = rv_model_get_info(m);
    if (!info) abort();
    rv_status st = rv_model_describe(m, 1, &json, &err);
    check(st, &err);
    st = rv_chat_render(m, &chat, &out, &len, &err);
    check(st, &err);
    st = rv_tokenize(m, text, strlen(text), RV_TOKENIZE_BOS, &ids, &n, &err);
    check(st, &err);
    generate(m, info, ids, n);
    if (n >= 4) {
        st = rv_model_perplexity(m, ids, n, 4, RV_KV_F16, NULL, NULL, &p, &err);
        check(st, &err);
    }
    rv_free(ids);
    rv_free(out);
    rv_free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rv_runtime *runtimes[2];
    for (int exact = 0; exact < 2; exact++) {
        rv_error err = {0};
        rv_model *m;
        if (!runtimes[exact]) runtimes[exact] = make_runtime(exact);
        rv_open_options in = {.size = sizeof in, .data = data, .len = size};
        rv_status st = rv_model_open(&m, runtimes[exact], "input", &in, &err);
        check(st, &err);
        if (st) return 0;
        use(m);
        rv_model_close(&m);
    }
    return 0;
}
