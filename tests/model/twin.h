/* twin.h - GGUF twins of the golden checkpoints: the same weights under GGUF's names and metadata,
 * q and k rows in GGUF's order where the family has one, and the same for their adapters. What is
 * written here follows the format's conventions, not the reader under test. */
#ifndef TESTS_MODEL_TWIN_H
#define TESTS_MODEL_TWIN_H

#include <math.h>

#include "formats/gguf_builder.h"
#include "golden.h"

typedef struct twin {
    const char *name, *arch; /* of the checkpoint; of the GGUF file */
} twin;

static const twin twins[] = {
    {"llama", "llama"}, {"llama3-rope", "llama"},  {"llama-yarn", "llama"},
    {"qwen2", "qwen2"}, {"qwen3", "qwen3"},        {"mistral", "llama"},
    {"phi3", "phi3"},   {"phi3-longrope", "phi3"}, {"gemma2", "gemma2"},
};

typedef enum twin_kind { TWIN_MATRIX, TWIN_VECTOR, TWIN_Q, TWIN_K } twin_kind;

typedef struct twin_name {
    const char *hf, *gguf;
    twin_kind kind;
    const char *only; /* the GGUF architecture it is for; NULL: all */
} twin_name;

/* The first row that fits counts. Behind "model.layers.N." and "blk.N.", or whole names. */
static const twin_name twin_names[] = {
    {"model.embed_tokens", "token_embd", TWIN_MATRIX, NULL},
    {"model.norm", "output_norm", TWIN_VECTOR, NULL},
    {"lm_head", "output", TWIN_MATRIX, NULL},
    {"input_layernorm", "attn_norm", TWIN_VECTOR, NULL},
    {"self_attn.q_proj", "attn_q", TWIN_Q, NULL},
    {"self_attn.k_proj", "attn_k", TWIN_K, NULL},
    {"self_attn.v_proj", "attn_v", TWIN_MATRIX, NULL},
    {"self_attn.qkv_proj", "attn_qkv", TWIN_MATRIX, NULL},
    {"self_attn.o_proj", "attn_output", TWIN_MATRIX, NULL},
    {"self_attn.q_norm", "attn_q_norm", TWIN_VECTOR, NULL},
    {"self_attn.k_norm", "attn_k_norm", TWIN_VECTOR, NULL},
    {"post_attention_layernorm", "post_attention_norm", TWIN_VECTOR, "gemma2"},
    {"post_attention_layernorm", "ffn_norm", TWIN_VECTOR, NULL},
    {"pre_feedforward_layernorm", "ffn_norm", TWIN_VECTOR, NULL},
    {"post_feedforward_layernorm", "post_ffw_norm", TWIN_VECTOR, NULL},
    {"mlp.gate_proj", "ffn_gate", TWIN_MATRIX, NULL},
    {"mlp.up_proj", "ffn_up", TWIN_MATRIX, NULL},
    {"mlp.gate_up_proj", "ffn_up", TWIN_MATRIX, NULL},
    {"mlp.down_proj", "ffn_down", TWIN_MATRIX, NULL},
};

/* hf: len bytes without ".weight" or ".bias". Writes the GGUF name and returns the table's row. */
static inline const twin_name *twin_rename(const char *arch, const char *hf, size_t len,
                                           char out[64])
{
    static const char prefix[] = "model.layers.";
    int layer = -1, used = 0;
    const char *rest = hf;
    if (!strncmp(hf, prefix, strlen(prefix)) &&
        sscanf(hf + strlen(prefix), "%d.%n", &layer, &used) == 1)
        rest = hf + strlen(prefix) + used;
    size_t n = len - (size_t)(rest - hf);
    for (size_t i = 0; i < RVI_COUNT(twin_names); i++) {
        const twin_name *t = &twin_names[i];
        if (strlen(t->hf) != n || memcmp(t->hf, rest, n) || (t->only && strcmp(t->only, arch)))
            continue;
        if (layer >= 0)
            snprintf(out, 64, "blk.%d.%s", layer, t->gguf);
        else
            snprintf(out, 64, "%s", t->gguf);
        return t;
    }
    fail_msg("no GGUF name for '%.*s'", (int)len, hf);
    return NULL;
}

typedef struct twin_config {
    rvi_blob blob;
    rvi_arena arena;
    const rvi_json *json, *rope;
} twin_config;

static inline void twin_config_open(twin_config *c, const char *name)
{
    char path[128];
    *c = (twin_config){0};
    snprintf(path, sizeof path, "tests/golden/%s/config.json", name);
    assert_ok(rvi_blob_open(&c->blob, path, err));
    assert_ok(
        rvi_json_parse(&c->json, (const char *)c->blob.data, c->blob.len, &c->arena, path, err));
    c->rope = rvi_json_get(c->json, "rope_parameters");
}

static inline void twin_config_close(twin_config *c)
{
    rvi_blob_close(&c->blob);
    rvi_arena_deinit(&c->arena);
}

static inline double twin_number(const rvi_json *object, const char *key)
{
    double v = rvi_json_number(rvi_json_get(object, key), NAN);
    if (isnan(v)) fail_msg("config.json has no number '%s'", key);
    return v;
}

/* Rows of each head from half-split to pairwise order: row 2 i = row i, row 2 i + 1 = row i + n/2.
 */
static inline uint8_t *twin_pair_rows(const uint8_t *rows, int n_rows, size_t row_bytes,
                                      int head_size)
{
    uint8_t *out = rvi_alloc_array((size_t)n_rows, row_bytes);
    assert_non_null(out);
    for (int r = 0; r < n_rows; r++) {
        int head = r / head_size, at = r % head_size, half = head_size / 2;
        int to = head * head_size + (at < half ? 2 * at : 2 * (at - half) + 1);
        memcpy(out + (size_t)to * row_bytes, rows + (size_t)r * row_bytes, row_bytes);
    }
    return out;
}

static inline int twin_head_size(const rvi_json *config)
{
    double size = rvi_json_number(rvi_json_get(config, "head_dim"), 0);
    return (int)(size > 0 ? size
                          : twin_number(config, "hidden_size") /
                                twin_number(config, "num_attention_heads"));
}

static inline void twin_key_u32(gguf_builder *b, const char *arch, const char *key, double v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    gb_u32(b, full, (uint32_t)v);
}

static inline void twin_key_f32(gguf_builder *b, const char *arch, const char *key, double v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    gb_f32(b, full, (float)v);
}

static inline void twin_key_str(gguf_builder *b, const char *arch, const char *key, const char *v)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    gb_str(b, full, v);
}

static inline void twin_factors(gguf_builder *b, const char *name, const rvi_json *list)
{
    float f[256];
    size_t n = rvi_json_count(list);
    assert_true(n > 0 && n <= RVI_COUNT(f));
    for (size_t i = 0; i < n; i++) f[i] = (float)rvi_json_number(rvi_json_at(list, i), NAN);
    gb_tensor(b, name, RVI_F32, 1, (uint64_t[]){n}, f);
}

/* Llama 3 files carry the divisor of every pair. */
static inline void twin_llama3(gguf_builder *b, const rvi_json *rope, int n_rot)
{
    float divisors[256];
    double theta = twin_number(rope, "rope_theta"), factor = twin_number(rope, "factor"),
           low = twin_number(rope, "low_freq_factor"), high = twin_number(rope, "high_freq_factor"),
           original = twin_number(rope, "original_max_position_embeddings");
    for (int i = 0; i < n_rot / 2; i++) {
        double wave = 2 * acos(-1.0) * pow(theta, 2.0 * i / n_rot);
        double s = (original / wave - low) / (high - low);
        divisors[i] = (float)(wave < original / high  ? 1
                              : wave > original / low ? factor
                                                      : 1 / ((1 - s) / factor + s));
    }
    gb_tensor(b, "rope_freqs.weight", RVI_F32, 1, (uint64_t[]){(uint64_t)n_rot / 2}, divisors);
}

static inline void twin_rope(gguf_builder *b, const char *arch, const rvi_json *config,
                             const rvi_json *rope, int head_size)
{
    const rvi_json *type = rvi_json_get(rope, "rope_type");
    double partial = rvi_json_number(rvi_json_get(rope, "partial_rotary_factor"), 1);
    twin_key_f32(b, arch, "rope.freq_base", twin_number(rope, "rope_theta"));
    twin_key_u32(b, arch, "rope.dimension_count", head_size * partial);
    if (rvi_json_is_string(type, "llama3")) {
        twin_llama3(b, rope, head_size);
    } else if (rvi_json_is_string(type, "yarn")) {
        twin_key_str(b, arch, "rope.scaling.type", "yarn");
        twin_key_f32(b, arch, "rope.scaling.factor", twin_number(rope, "factor"));
        twin_key_u32(b, arch, "rope.scaling.original_context_length",
                     twin_number(rope, "original_max_position_embeddings"));
    } else if (rvi_json_is_string(type, "longrope")) {
        double original = twin_number(config, "original_max_position_embeddings"),
               context = twin_number(config, "max_position_embeddings");
        twin_key_u32(b, arch, "rope.scaling.original_context_length", original);
        twin_key_f32(b, arch, "rope.scaling.attn_factor",
                     sqrt(1 + log(context / original) / log(original)));
        twin_factors(b, "rope_factors_short.weight", rvi_json_get(rope, "short_factor"));
        twin_factors(b, "rope_factors_long.weight", rvi_json_get(rope, "long_factor"));
    } else {
        assert_true(rvi_json_is_string(type, "default"));
    }
}

static inline void twin_metadata(gguf_builder *b, const char *arch, const rvi_json *config)
{
    static const struct {
        const char *hf, *gguf;
    } counts[] = {{"num_hidden_layers", "block_count"},
                  {"hidden_size", "embedding_length"},
                  {"intermediate_size", "feed_forward_length"},
                  {"max_position_embeddings", "context_length"},
                  {"num_attention_heads", "attention.head_count"},
                  {"num_key_value_heads", "attention.head_count_kv"},
                  {"vocab_size", "vocab_size"}};
    gb_str(b, "general.architecture", arch);
    for (size_t i = 0; i < RVI_COUNT(counts); i++)
        twin_key_u32(b, arch, counts[i].gguf, twin_number(config, counts[i].hf));
    twin_key_f32(b, arch, "attention.layer_norm_rms_epsilon", twin_number(config, "rms_norm_eps"));
    twin_key_u32(b, arch, "attention.key_length", twin_head_size(config));
    twin_key_u32(b, arch, "attention.value_length", twin_head_size(config));
    double window = rvi_json_number(rvi_json_get(config, "sliding_window"), 0);
    bool windowed = rvi_json_bool(rvi_json_get(config, "use_sliding_window"), true);
    if (window > 0 && windowed) twin_key_u32(b, arch, "attention.sliding_window", window);
    if (!strcmp(arch, "gemma2")) {
        twin_key_f32(b, arch, "attn_logit_softcapping",
                     twin_number(config, "attn_logit_softcapping"));
        twin_key_f32(b, arch, "final_logit_softcapping",
                     twin_number(config, "final_logit_softcapping"));
    }
}

/* Norms become f32 (Gemma's with 1 added), matrices and biases keep their type. */
static inline void twin_tensor(gguf_builder *b, const char *arch, const rvi_tensor_view *v,
                               int head_size)
{
    char name[64];
    const char *dot = strrchr(v->name, '.');
    const twin_name *t = twin_rename(arch, v->name, (size_t)(dot - v->name), name);
    size_t n = strlen(name);
    snprintf(name + n, sizeof name - n, "%s", dot);
    if (t->kind == TWIN_VECTOR) {
        float norm[1024];
        assert_true(v->n_dims == 1 && v->shape[0] <= RVI_COUNT(norm));
        rvi_dequantize(v->type, v->data, norm, (size_t)v->shape[0]);
        if (!strcmp(arch, "gemma2"))
            for (size_t i = 0; i < v->shape[0]; i++) norm[i] += 1;
        gb_tensor(b, name, RVI_F32, 1, v->shape, norm);
    } else if (!strcmp(arch, "llama") && (t->kind == TWIN_Q || t->kind == TWIN_K)) {
        uint8_t *paired = twin_pair_rows(v->data, (int)v->shape[0],
                                         (size_t)(v->n_bytes / v->shape[0]), head_size);
        gb_tensor(b, name, v->type, v->n_dims, v->shape, paired);
        rvi_free(paired);
    } else {
        gb_tensor(b, name, v->type, v->n_dims, v->shape, v->data);
    }
}

static inline void twin_build(rvi_buf *out, const twin *t)
{
    gguf_builder b = {.version = 3};
    twin_config c;
    char dir[128];
    rvi_safetensors *s;
    snprintf(dir, sizeof dir, "tests/golden/%s", t->name);
    twin_config_open(&c, t->name);
    assert_ok(rvi_safetensors_open_dir(&s, dir, err));
    int head_size = twin_head_size(c.json);
    twin_metadata(&b, t->arch, c.json);
    twin_rope(&b, t->arch, c.json, c.rope, head_size);
    for (size_t i = 0; i < rvi_safetensors_n_tensors(s); i++)
        twin_tensor(&b, t->arch, rvi_safetensors_tensor_at(s, i), head_size);
    gb_finish(&b, out);
    assert_false(out->failed);
    gb_deinit(&b);
    rvi_safetensors_close(s);
    twin_config_close(&c);
}

/* A built twin, open in exact mode; file must stay until golden_close. */
static inline void twin_open(golden *g, rvi_buf *file, const twin *t)
{
    char path[160];
    rvi_source *source;
    rvi_blob blob;
    *g = (golden){0};
    twin_build(file, t);
    rvi_blob_from_memory(&blob, file->data, file->len);
    assert_ok(
        rvi_backend_cpu_new(&g->be, &(rvi_cpu_options){.n_threads = 2, .exact = true}, NULL, err));
    assert_ok(rvi_source_open_gguf_blob(&source, &blob, t->name, err));
    assert_ok(rvi_model_new(&g->m, g->be, source, NULL, err));
    snprintf(path, sizeof path, "tests/golden/%s/expected.safetensors", t->name);
    assert_ok(rvi_safetensors_open(&g->expected, path, err));
}

/* The checkpoint's PEFT adapter as a GGUF adapter. */
static inline void twin_build_adapter(rvi_buf *out, const twin *t)
{
    static const char prefix[] = "base_model.model.";
    gguf_builder b = {.version = 3};
    twin_config c;
    char path[160], name[80];
    rvi_safetensors *s;
    twin_config_open(&c, t->name);
    snprintf(path, sizeof path, "tests/golden/%s/lora/adapter_model.safetensors", t->name);
    assert_ok(rvi_safetensors_open(&s, path, err));
    gb_str(&b, "general.type", "adapter");
    gb_str(&b, "general.architecture", t->arch);
    gb_str(&b, "adapter.type", "lora");
    gb_f32(&b, "adapter.lora.alpha", 4); /* that of every golden adapter */
    for (size_t i = 0; i < rvi_safetensors_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_safetensors_tensor_at(s, i);
        const char *layer = v->name + strlen(prefix), *mark = strstr(layer, ".lora_");
        assert_non_null(mark);
        const twin_name *row = twin_rename(t->arch, layer, (size_t)(mark - layer), name);
        bool is_b = mark[6] == 'B';
        size_t n = strlen(name);
        snprintf(name + n, sizeof name - n, ".weight.lora_%c", is_b ? 'b' : 'a');
        if (is_b && !strcmp(t->arch, "llama") && (row->kind == TWIN_Q || row->kind == TWIN_K)) {
            uint8_t *paired =
                twin_pair_rows(v->data, (int)v->shape[0], (size_t)(v->n_bytes / v->shape[0]),
                               twin_head_size(c.json));
            gb_tensor(&b, name, v->type, 2, v->shape, paired);
            rvi_free(paired);
        } else {
            gb_tensor(&b, name, v->type, 2, v->shape, v->data);
        }
    }
    gb_finish(&b, out);
    assert_false(out->failed);
    gb_deinit(&b);
    rvi_safetensors_close(s);
    twin_config_close(&c);
}

static inline double twin_worst(const float *a, const float *b, size_t n)
{
    double w = 0;
    for (size_t i = 0; i < n; i++) w = fmax(w, fabs((double)a[i] - (double)b[i]));
    return w;
}

#endif
