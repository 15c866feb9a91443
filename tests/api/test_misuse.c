/* Wrong use of the public interface: NULL wherever a pointer goes, lists without items, numbers
 * that are none, a model whose parts disagree. A status each time, with a text, and nothing
 * changed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"
#include "formats/gguf_builder.h"

static int read_nothing(void *ctx, uint64_t offset, void *dst, size_t n)
{
    (void)ctx, (void)offset, (void)dst;
    return n != 0;
}

static void null_everywhere(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8}, outside[] = {100000};
    opened o;
    int32_t id;
    rv_runtime_options ro;
    rv_model *m;
    rv_session *s;
    rv_session_options so;
    rv_adapter *a;
    rv_adapter_set *set;
    rv_engine *e;
    rv_sampler *sampler;
    float logits[512] = {0};
    rv_answer *g = NULL;
    rv_generate_options go;
    rv_perplexity p;
    int32_t *out_ids;
    size_t n;
    char *text = NULL;
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 64);
    ro = (rv_runtime_options){.size = sizeof ro};
    so = (rv_session_options){.size = sizeof so};
    go = (rv_generate_options){.size = sizeof go};

    assert_refused(RV_E_INVALID, rv_runtime_new(NULL, &ro, err));
    rv_open_options in = {.size = sizeof in, .len = 5};
    assert_refused(RV_E_INVALID, rv_model_open(NULL, o.rt, "x", NULL, err));
    assert_refused(RV_E_INVALID, rv_model_open(&m, NULL, "x", NULL, err));
    assert_refused(RV_E_INVALID, rv_model_open(&m, o.rt, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_model_open(&m, o.rt, NULL, &in, err)); /* neither of the two */
    in = (rv_open_options){.size = sizeof in, .data = "", .len = 0};
    assert_refused(RV_E_MODEL, rv_model_open(&m, o.rt, NULL, &in, err));
    in.read = read_nothing;
    assert_refused(RV_E_INVALID, rv_model_open(&m, o.rt, NULL, &in, err)); /* both */
    assert_null(rv_model_get_info(NULL));
    assert_refused(RV_E_INVALID, rv_model_describe(NULL, 0, &text, err));
    assert_null(text);
    assert_refused(RV_E_INVALID, rv_model_describe(o.m, 0, NULL, err));
    assert_refused(RV_E_INVALID, rv_tokenize(NULL, "x", 1, 0, &out_ids, &n, err));
    assert_refused(RV_E_INVALID, rv_tokenize(o.m, NULL, 1, 0, &out_ids, &n, err));
    assert_refused(RV_E_INVALID, rv_tokenize(o.m, "x", 1, 0, NULL, &n, err));
    assert_refused(RV_E_INVALID, rv_tokenize(o.m, "x", 1, 0, &out_ids, NULL, err));
    assert_refused(RV_E_INVALID, rv_detokenize(NULL, ids, 1, 0, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_detokenize(o.m, NULL, 1, 0, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_detokenize(o.m, ids, 1, 0, NULL, NULL, err));
    rv_chat chat = {.size = sizeof chat};
    assert_refused(RV_E_INVALID, rv_chat_render(NULL, &chat, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_chat_render(o.m, NULL, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_chat_render(o.m, &chat, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_chat_tokenize(NULL, &chat, &out_ids, &n, err));
    assert_refused(RV_E_INVALID, rv_chat_tokenize(o.m, NULL, &out_ids, &n, err));
    assert_refused(RV_E_INVALID, rv_chat_tokenize(o.m, &chat, NULL, &n, err));
    assert_refused(RV_E_INVALID, rv_chat_tokenize(o.m, &chat, &out_ids, NULL, err));
    assert_refused(RV_E_INVALID, rv_template_render(o.rt, NULL, 1, &chat, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_template_render(o.rt, "x", 1, NULL, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_template_render(o.rt, "x", 1, &chat, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_adapter_load(NULL, o.m, "x", err));
    assert_refused(RV_E_INVALID, rv_adapter_load(&a, NULL, "x", err));
    assert_refused(RV_E_INVALID, rv_adapter_load(&a, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_new(NULL, o.m, &so, err));
    assert_refused(RV_E_INVALID, rv_session_new(&s, NULL, &so, err));
    assert_refused(RV_E_INVALID, rv_template_render(NULL, "x", 1, &chat, &text, NULL, err));
    assert_refused(RV_E_INVALID, rv_adapter_set_new(NULL, o.m, NULL, 0, err));
    assert_refused(RV_E_INVALID, rv_adapter_set_new(&set, NULL, NULL, 0, err));
    assert_refused(RV_E_INVALID, rv_engine_new(NULL, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_engine_new(&e, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_engine_step(NULL, NULL, 0, err));
    assert_refused(RV_E_INVALID, rv_engine_advance(NULL, &n, err));
    assert_null(rv_engine_logits(NULL, 0));
    assert_refused(RV_E_INVALID, rv_session_fork(NULL, o.s, err));
    assert_refused(RV_E_INVALID, rv_session_fork(&s, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_sync(NULL, ids, 4, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_sync(o.s, NULL, 4, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_start(NULL, ids, 4, &go, err));
    assert_refused(RV_E_INVALID, rv_session_start(o.s, NULL, 4, &go, err));
    assert_refused(RV_E_INVALID, rv_session_finish(NULL, &g, err));
    assert_refused(RV_E_INVALID, rv_session_finish(o.s, NULL, err));
    assert_refused(RV_E_INVALID, rv_sampler_new(NULL, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_sampler_new(&sampler, NULL, NULL, err));
    assert_ok(rv_sampler_new(&sampler, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(NULL, logits, ids, 4, 4, &id, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(sampler, NULL, ids, 4, 4, &id, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(sampler, logits, NULL, 4, 4, &id, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(sampler, logits, ids, 4, 4, NULL, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(sampler, logits, ids, 4, 5, &id, err));
    assert_refused(RV_E_INVALID, rv_sampler_pick(sampler, logits, outside, 1, 0, &id, err));
    rv_sampler_free(&sampler);
    assert_null(sampler);
    assert_refused(RV_E_INVALID, rv_session_generate(NULL, ids, 4, &go, &g, err));
    assert_null(g);
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, ids, 4, &go, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_chat(NULL, &chat, &go, &g, err));
    assert_refused(RV_E_INVALID, rv_session_chat(o.s, NULL, &go, &g, err));
    assert_refused(RV_E_INVALID, rv_session_chat(o.s, &chat, &go, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_start_chat(NULL, &chat, &go, err));
    assert_refused(RV_E_INVALID, rv_session_start_chat(o.s, NULL, &go, err));
    assert_refused(RV_E_INVALID, rv_session_save(NULL, "/tmp/x", err));
    assert_refused(RV_E_INVALID, rv_session_save(o.s, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_load(NULL, o.m, NULL, "/tmp/x", err));
    assert_refused(RV_E_INVALID, rv_session_load(&s, NULL, NULL, "/tmp/x", err));
    assert_refused(RV_E_INVALID, rv_session_load(&s, o.m, NULL, NULL, err));
    assert_null(rv_session_user(NULL));
    assert_int_equal(rv_token_get(NULL, 1, NULL, NULL), RV_TOKEN_UNUSED);
    assert_refused(RV_E_INVALID,
                   rv_model_perplexity(NULL, ids, 4, 4, RV_KV_F16, NULL, NULL, &p, err));
    assert_refused(RV_E_INVALID,
                   rv_model_perplexity(o.m, NULL, 4, 4, RV_KV_F16, NULL, NULL, &p, err));
    assert_refused(RV_E_INVALID,
                   rv_model_perplexity(o.m, ids, 4, 4, RV_KV_F16, NULL, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_model_tap(NULL, ids, 4, NULL, RV_KV_F16, NULL, "/tmp/x", err));
    assert_refused(RV_E_INVALID, rv_model_tap(o.m, ids, 4, NULL, RV_KV_F16, NULL, NULL, err));
    assert_int_equal(rv_session_context(NULL), 0);
    assert_string_equal(rv_runtime_isa(NULL), "");
    rv_free(NULL);
    close_all(&o);
}

static void lists_without_items(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8};
    static const char *const holes[] = {"x", NULL}, *const empty[] = {""};
    opened o;
    rv_session *s;
    rv_session_options so;
    rv_answer *g = NULL;
    rv_generate_options go;
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 64);
    so = (rv_session_options){.size = sizeof so};
    rv_adapter_set *set;
    rv_adapter_use none = {NULL, 1};
    assert_refused(RV_E_INVALID, rv_adapter_set_new(&set, o.m, NULL, 1, err));
    assert_null(set);
    assert_refused(RV_E_INVALID, rv_adapter_set_new(&set, o.m, &none, 1, err));
    assert_refused(RV_E_ADAPTER, rv_adapter_set_new(&set, o.m, &none, 1000, err));
    so.n_context = -1;
    assert_refused(RV_E_CONFIG, rv_session_new(&s, o.m, &so, err));
    go = (rv_generate_options){.size = sizeof go};
    go.n_stop = 2;
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, ids, 4, &go, &g, err));
    go.stop = holes;
    assert_refused(RV_E_CONFIG, rv_session_generate(o.s, ids, 4, &go, &g, err));
    go.stop = empty;
    go.n_stop = 1;
    assert_refused(RV_E_CONFIG, rv_session_generate(o.s, ids, 4, &go, &g, err));
    go.n_stop = 0;
    go.max_tokens = -3;
    assert_refused(RV_E_CONFIG, rv_session_generate(o.s, ids, 4, &go, &g, err));
    assert_null(g);
    close_all(&o);
}

static void scales_that_are_no_numbers(void **state)
{
    (void)state;
    static const float scales[] = {NAN, INFINITY, -INFINITY};
    opened o;
    rv_adapter *a;
    rv_adapter_set *set;
    open_all(&o, "tests/golden/llama", 1, 64);
    assert_ok(rv_adapter_load(&a, o.m, "tests/golden/llama/lora", err));
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        rv_adapter_use use = {a, scales[i]};
        assert_refused(RV_E_ADAPTER, rv_adapter_set_new(&set, o.m, &use, 1, err));
        assert_null(set);
    }
    rv_adapter_free(&a);
    close_all(&o);
}

/* After cancelling nobody is called again, and the text is what was handed over. */
typedef struct seen {
    int n;
    char text[256];
} seen;

static int cancel_at_third(void *ctx, const rv_event *ev)
{
    seen *s = ctx;
    if (ev->kind != RV_EVENT_TOKEN) return 0;
    strncat(s->text, ev->text, ev->text_len);
    return ++s->n >= 3;
}

static void cancelling_is_final(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 270, 280, 290, 300};
    static const char *const stops[] = {"no such text at all"};
    opened o;
    seen s = {0};
    rv_answer *g = NULL;
    rv_generate_options go = greedy(256);
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 64);
    go.stop = stops;
    go.n_stop = 1;
    go.on_event = cancel_at_third;
    go.ctx = &s;
    assert_ok(rv_session_generate(o.s, ids, 5, &go, &g, err));
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_int_equal(s.n, 3);
    assert_string_equal(g->text, s.text);
    rv_free(g);
    close_all(&o);
}

/* A tokenizer larger than the model, whose first token the model does not have: 40 rows of
 * embeddings, 41 tokens, the last of them the beginning of a text. */
static void build_disagreeing(rvi_buf *out)
{
    enum { EMBD = 32, VOCAB = 40 };
    static const char *const keys[] = {"block_count", "context_length", "embedding_length",
                                       "feed_forward_length", "attention.head_count"};
    static const uint32_t values[] = {1, 8192, EMBD, EMBD, 2};
    static const char *const matrices[] = {"attn_q", "attn_k",   "attn_v",  "attn_output",
                                           "ffn_up", "ffn_gate", "ffn_down"};
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight",
                                        "output_norm.weight"};
    gguf_builder b = {.version = 3};
    char name[64];
    const char *tokens[VOCAB + 1];
    char texts[VOCAB + 1][4];
    float scores[VOCAB + 1] = {0};
    gb_str(&b, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "llama.%s", keys[i]);
        gb_u32(&b, name, values[i]);
    }
    gb_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (int i = 0; i <= VOCAB; i++) {
        snprintf(texts[i], sizeof texts[i], "%c%c", 'a' + i / 26, 'a' + i % 26);
        tokens[i] = texts[i];
    }
    gb_str(&b, "tokenizer.ggml.model", "llama");
    gb_str_array(&b, "tokenizer.ggml.tokens", tokens, VOCAB + 1);
    gb_array(&b, "tokenizer.ggml.scores", RVI_GGUF_F32, scores, VOCAB + 1, sizeof *scores);
    gb_u32(&b, "tokenizer.ggml.bos_token_id", VOCAB);
    gb_bool(&b, "tokenizer.ggml.add_bos_token", true);
    gb_tensor(&b, "token_embd.weight", RVI_F32, 2, (uint64_t[]){VOCAB, EMBD}, NULL);
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        gb_tensor(&b, norms[i], RVI_F32, 1, (uint64_t[]){EMBD}, NULL);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", matrices[i]);
        gb_tensor(&b, name, RVI_F32, 2, (uint64_t[]){EMBD, EMBD}, NULL);
    }
    gb_finish(&b, out);
    assert_false(out->failed);
    gb_deinit(&b);
}

static void tokens_the_model_lacks(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8}, outside[] = {1, 40};
    opened o = {0};
    rv_runtime_options ro;
    rv_session_options so;
    rv_generate_options go;
    rv_answer *g = NULL;
    rv_perplexity p;
    rvi_buf file = {0};
    build_disagreeing(&file);
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    assert_ok(rv_runtime_new(&o.rt, &ro, err));
    rv_open_options in = {.size = sizeof in, .data = file.data, .len = file.len};
    assert_ok(rv_model_open(&o.m, o.rt, "disagreeing", &in, err));
    assert_refused(RV_E_MODEL, rv_model_perplexity(o.m, ids, 8, 4, RV_KV_F16, NULL, NULL, &p, err));
    so = (rv_session_options){.size = sizeof so};
    assert_ok(rv_session_new(&o.s, o.m, &so, err));
    go = (rv_generate_options){.size = sizeof go};
    go.max_tokens = 2;
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, outside, 2, &go, &g, err));
    assert_null(g);
    assert_ok(rv_session_generate(o.s, ids, 8, &go, &g, err));
    rv_free(g);
    close_all(&o);
    rvi_buf_deinit(&file);
}

/* A session that names no context: 4096, however much room its engine has; not more than that. */
static void contexts_by_default(void **state)
{
    (void)state;
    static const int room[] = {8192, 4096, 100}, want[] = {4096, 4096, 100};
    opened o = {0};
    rv_runtime_options ro;
    rv_engine_options eo;
    rv_session_options so;
    rvi_buf file = {0};
    build_disagreeing(&file);
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    assert_ok(rv_runtime_new(&o.rt, &ro, err));
    rv_open_options in = {.size = sizeof in, .data = file.data, .len = file.len};
    assert_ok(rv_model_open(&o.m, o.rt, "disagreeing", &in, err));
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        eo = (rv_engine_options){.size = sizeof eo};
        so = (rv_session_options){.size = sizeof so};
        eo.n_tokens = room[i];
        assert_ok(rv_engine_new(&so.engine, o.m, &eo, err));
        assert_ok(rv_session_new(&o.s, o.m, &so, err));
        assert_int_equal(rv_session_context(o.s), want[i]);
        rv_session_free(&o.s);
        rv_engine_free(&so.engine);
    }
    close_all(&o);
    rvi_buf_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_everywhere),
        cmocka_unit_test(lists_without_items),
        cmocka_unit_test(scales_that_are_no_numbers),
        cmocka_unit_test(cancelling_is_final),
        cmocka_unit_test(tokens_the_model_lacks),
        cmocka_unit_test(contexts_by_default),
    };
    return cmocka_run_group_tests_name("misuse", tests, NULL, NULL);
}
