/* tiny_model.h - a model that fits a test: a llama of three layers with seeded random weights, a
 * byte-level tokenizer that knows some words, and a chat template, written to a GGUF file and
 * opened by the public interface. Include <cmocka.h> before it. */
#ifndef TESTS_LEARN_TINY_MODEL_H
#define TESTS_LEARN_TINY_MODEL_H

#include <math.h>

#include "api/api.h"
#include "base/os.h"
#include "base/rng.h"
#include "formats/gguf_builder.h"
#include "harness/assert_ok.h"
#include "learn/learner/jobs.h"
#include "learn/learner/learner_internal.h"
#include "learn/toy_tokenizer.h"

enum { TINY_LAYERS = 3, TINY_EMBD = 32, TINY_FF = 64, TINY_HEADS = 4, TINY_KV_HEADS = 2 };

typedef struct tiny_vocab {
    rvi_buf texts; /* each with a 0 behind it */
    const char *tokens[1024], *merges[512];
    int32_t types[1024];
    size_t n, n_merges;
    size_t at[1024], merges_at[512];
} tiny_vocab;

static inline void tiny_add(tiny_vocab *v, const char *text, int32_t type)
{
    v->at[v->n] = v->texts.len;
    v->types[v->n++] = type;
    rvi_buf_append(&v->texts, text, strlen(text) + 1);
}

static inline void tiny_make_vocab(tiny_vocab *v)
{
    char text[96];
    for (unsigned c = 33; c < 0x144; c++) { /* how byte-level vocabularies write the 256 bytes */
        if ((c > 126 && c < 0xA1) || c == 0xAD) continue;
        if (c < 0x80)
            snprintf(text, sizeof text, "%c", (char)c);
        else
            snprintf(text, sizeof text, "%c%c", (char)(0xC0 | c >> 6), (char)(0x80 | (c & 63)));
        tiny_add(v, text, 1);
    }
    for (size_t i = 0; i < RVI_COUNT(toy_words); i++) {
        const char *w = toy_words[i];
        for (size_t n = 1; n <= strlen(w); n++) {
            bool known = false;
            for (size_t k = 0; k < i && !known; k++) known = !strncmp(toy_words[k], w, n);
            if (known) continue;
            snprintf(text, sizeof text, "\xC4\xA0%.*s", (int)n, w);
            tiny_add(v, text, 1);
            v->merges_at[v->n_merges++] = v->texts.len;
            snprintf(text, sizeof text, "\xC4\xA0%.*s %c", (int)n - 1, w, w[n - 1]);
            rvi_buf_append(&v->texts, text, strlen(text) + 1);
        }
    }
    tiny_add(v, "<|endoftext|>", 3);
    tiny_add(v, "<|im_start|>", 3);
    tiny_add(v, "<|im_end|>", 3);
    assert_true(v->n <= RVI_COUNT(v->tokens) && v->n_merges <= RVI_COUNT(v->merges));
    for (size_t i = 0; i < v->n; i++) v->tokens[i] = v->texts.data + v->at[i];
    for (size_t i = 0; i < v->n_merges; i++) v->merges[i] = v->texts.data + v->merges_at[i];
}

static inline void tiny_tensor(gguf_builder *b, const char *name, uint64_t rows, uint64_t cols,
                               rvi_rng *rng)
{
    size_t n = (size_t)(rows * cols);
    float *x = rvi_alloc_array(n, sizeof *x);
    double scale = 1.7 / sqrt((double)cols);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)((2 * rvi_rng_double(rng) - 1) * scale);
    gb_tensor(b, name, RVI_F32, 2, (uint64_t[]){rows, cols}, x);
    rvi_free(x);
}

static inline void tiny_norm(gguf_builder *b, const char *name)
{
    float ones[TINY_EMBD];
    for (int i = 0; i < TINY_EMBD; i++) ones[i] = 1;
    gb_tensor(b, name, RVI_F32, 1, (uint64_t[]){TINY_EMBD}, ones);
}

/* The chat template that is written with the model; NULL: none, and that of its family is used. */
static const char *tiny_template;

/* Another seed: another model. */
static inline void tiny_model_write(const char *path, uint64_t seed)
{
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } matrices[] = {{"attn_q", TINY_EMBD, TINY_EMBD},     {"attn_k", TINY_EMBD / 2, TINY_EMBD},
                    {"attn_v", TINY_EMBD / 2, TINY_EMBD}, {"attn_output", TINY_EMBD, TINY_EMBD},
                    {"ffn_gate", TINY_FF, TINY_EMBD},     {"ffn_up", TINY_FF, TINY_EMBD},
                    {"ffn_down", TINY_EMBD, TINY_FF}};
    gguf_builder b = {.version = 3};
    tiny_vocab *v = rvi_zalloc(sizeof *v);
    rvi_rng rng = {seed};
    rvi_buf out = {0};
    char name[64];
    assert_non_null(v);
    tiny_make_vocab(v);
    gb_str(&b, "general.architecture", "llama");
    gb_u32(&b, "llama.context_length", 2048);
    gb_u32(&b, "llama.embedding_length", TINY_EMBD);
    gb_u32(&b, "llama.block_count", TINY_LAYERS);
    gb_u32(&b, "llama.feed_forward_length", TINY_FF);
    gb_u32(&b, "llama.attention.head_count", TINY_HEADS);
    gb_u32(&b, "llama.attention.head_count_kv", TINY_KV_HEADS);
    gb_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_f32(&b, "llama.rope.freq_base", 10000);
    gb_str(&b, "tokenizer.ggml.model", "gpt2");
    gb_str(&b, "tokenizer.ggml.pre", "gpt-2");
    gb_str_array(&b, "tokenizer.ggml.tokens", v->tokens, v->n);
    gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, v->types, v->n, sizeof *v->types);
    gb_str_array(&b, "tokenizer.ggml.merges", v->merges, v->n_merges);
    if (tiny_template) gb_str(&b, "tokenizer.chat_template", tiny_template);
    gb_u32(&b, "tokenizer.ggml.bos_token_id", (uint32_t)v->n - 2);
    gb_u32(&b, "tokenizer.ggml.eos_token_id", (uint32_t)v->n - 1);
    tiny_tensor(&b, "token_embd.weight", v->n, TINY_EMBD, &rng);
    tiny_norm(&b, "output_norm.weight");
    for (int il = 0; il < TINY_LAYERS; il++) {
        static const char *const norms[] = {"attn_norm", "ffn_norm"};
        for (size_t i = 0; i < RVI_COUNT(matrices); i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", il, matrices[i].name);
            tiny_tensor(&b, name, matrices[i].rows, matrices[i].cols, &rng);
        }
        for (size_t i = 0; i < RVI_COUNT(norms); i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", il, norms[i]);
            tiny_norm(&b, name);
        }
    }
    gb_finish(&b, &out);
    assert_false(out.failed);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(out.data, 1, out.len, f), out.len);
    assert_int_equal(fclose(f), 0);
    rvi_buf_deinit(&out);
    rvi_buf_deinit(&v->texts);
    rvi_free(v);
    gb_deinit(&b);
}

/* ---- opened ---- */

typedef struct tiny {
    rvi_buf dir; /* a folder of its own */
    rv_runtime *rt;
    rv_model *m;
} tiny;

static inline const char *tiny_path(const tiny *t, char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", t->dir.data, name);
    return path;
}

static inline void tiny_open(tiny *t)
{
    char path[256];
    rv_runtime_options o;
    *t = (tiny){0};
    if (rvi_os_temp_dir(&t->dir, "/dev/shm", NULL)) {
        t->dir.len = 0;
        assert_ok(rvi_os_temp_dir(&t->dir, "/tmp", err));
    }
    tiny_model_write(tiny_path(t, path, "tiny.gguf"), 1);
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = 1;
    assert_ok(rv_runtime_new(&t->rt, &o, err));
    assert_ok(rv_model_open(&t->m, t->rt, path, 0, err));
}

static inline void tiny_close(tiny *t)
{
    rv_model_close(&t->m);
    rv_runtime_free(&t->rt);
    rvi_os_remove_tree(t->dir.data);
    rvi_buf_deinit(&t->dir);
}

/* ---- a learner of it, from the inside ---- */

static uint64_t tiny_serials;

static inline uint64_t tiny_serial(void *ctx)
{
    (void)ctx;
    return ++tiny_serials + ((uint64_t)1 << 40);
}

/* Small and quick: few steps, a rank of 2. */
static inline rvi_learner_options tiny_options(void)
{
    rvi_learner_options o = RVI_LEARNER_DEFAULTS;
    o.n_steps = 6;
    o.rank = 2;
    o.seed = 5;
    o.sources = RVI_TEXTS_FRAMES; /* it writes nothing of use: test_texts.c */
    return o;
}

static inline rv_status tiny_learner(rvi_learner **out, const tiny *t, const rvi_learner_options *o,
                                     rvi_store *take, rv_error *err)
{
    rvi_store none = {0};
    rvi_learner_parts parts = {.m = t->m->model,
                               .t = t->m->tokenizer,
                               .chat = t->m->chat,
                               .eos = &t->m->eos,
                               .be = t->rt->be,
                               .new_serial = tiny_serial};
    return rvi_learner_new(out, &parts, o, take ? take : &none, err);
}

static inline rv_status tiny_correct(rvi_learner *l, const char *question, const char *answer,
                                     const char *rejected, rvi_adaptation *out, rv_error *err)
{
    rvi_correction given = {.question = question, .answer = answer, .rejected = rejected};
    return rvi_learner_teach(l, &given, out, err);
}

/* ---- stores ---- */

/* The same memory store for another learner: closing it does nothing. */
static inline rvi_store tiny_lend(const rvi_store *s)
{
    return (rvi_store){.by = s->by};
}

typedef struct tiny_items {
    rvi_buf keys[64], records[64];
    size_t n;
} tiny_items;

static inline int tiny_collect(void *ctx, rvi_bytes key, rvi_bytes record)
{
    tiny_items *x = ctx;
    assert_true(x->n < RVI_COUNT(x->keys));
    rvi_buf_append(&x->keys[x->n], key.data, key.len);
    rvi_buf_append(&x->records[x->n++], record.data, record.len);
    return 0;
}

/* Copies what is made once for the model. */
static inline void tiny_copy_model(rvi_store *out, rvi_store *calibrated)
{
    tiny_items *x = rvi_zalloc(sizeof *x);
    assert_non_null(x);
    assert_ok(rvi_store_scan(calibrated, "model", NULL, 0, tiny_collect, x, err));
    for (size_t i = 0; i < x->n; i++) {
        assert_ok(rvi_store_put(out, "model", x->keys[i].data, x->keys[i].len, x->records[i].data,
                                x->records[i].len, err));
        rvi_buf_deinit(&x->keys[i]);
        rvi_buf_deinit(&x->records[i]);
    }
    rvi_free(x);
}

#endif
