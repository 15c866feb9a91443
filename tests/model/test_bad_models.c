/* Model files that are wrong in one way each: an error that names the cause, never a crash. */
#include "golden.h"

#include "formats/gguf_builder.h"

enum { EMBD = 32, FF = 64, HEADS = 2, VOCAB = 40 };

typedef struct fault {
    const char *what;     /* for the report */
    const char *skip;     /* a tensor left out */
    const char *wrong;    /* a tensor with one row too many */
    const char *drop_key; /* a metadata key left out */
    const char *set_key;  /* a metadata key with another value */
    uint32_t value;
    const char *expect; /* part of the message; NULL: it opens */
} fault;

static void key(gguf_builder *b, const fault *f, const char *name, uint32_t value)
{
    if (f->drop_key && !strcmp(f->drop_key, name)) return;
    gb_u32(b, name, f->set_key && !strcmp(f->set_key, name) ? f->value : value);
}

static void tensor(gguf_builder *b, const fault *f, const char *name, uint64_t rows, uint64_t cols)
{
    if (f->skip && !strcmp(f->skip, name)) return;
    if (f->wrong && !strcmp(f->wrong, name)) rows++;
    gb_tensor(b, name, RVI_F32, cols ? 2 : 1, (uint64_t[]){rows, cols}, NULL);
}

static void build(rvi_buf *out, const fault *f, const char *arch)
{
    gguf_builder b = {.version = 3};
    gb_str(&b, "general.architecture", arch);
    key(&b, f, "llama.block_count", 1);
    key(&b, f, "llama.context_length", 64);
    key(&b, f, "llama.embedding_length", EMBD);
    key(&b, f, "llama.feed_forward_length", FF);
    key(&b, f, "llama.attention.head_count", HEADS);
    key(&b, f, "llama.attention.head_count_kv", 1);
    key(&b, f, "llama.vocab_size", VOCAB);
    if (!f->drop_key || strcmp(f->drop_key, "llama.attention.layer_norm_rms_epsilon"))
        gb_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (f->set_key && (strstr(f->set_key, "rope") || strstr(f->set_key, "window") ||
                       strstr(f->set_key, "_length_")))
        gb_u32(&b, f->set_key, f->value);
    tensor(&b, f, "token_embd.weight", VOCAB, EMBD);
    tensor(&b, f, "output_norm.weight", EMBD, 0);
    tensor(&b, f, "blk.0.attn_norm.weight", EMBD, 0);
    tensor(&b, f, "blk.0.attn_q.weight", EMBD, EMBD);
    tensor(&b, f, "blk.0.attn_k.weight", EMBD / HEADS, EMBD);
    tensor(&b, f, "blk.0.attn_v.weight", EMBD / HEADS, EMBD);
    tensor(&b, f, "blk.0.attn_output.weight", EMBD, EMBD);
    tensor(&b, f, "blk.0.ffn_norm.weight", EMBD, 0);
    tensor(&b, f, "blk.0.ffn_gate.weight", FF, EMBD);
    tensor(&b, f, "blk.0.ffn_up.weight", FF, EMBD);
    tensor(&b, f, "blk.0.ffn_down.weight", EMBD, FF);
    gb_tensor(&b, "extra.weight", RVI_F32, 1, (uint64_t[]){4}, NULL);
    gb_finish(&b, out);
    assert_false(out->failed);
    gb_deinit(&b);
}

static char warning[256];

static void keep_warning(void *ctx, rvi_log_level level, const char *line)
{
    (void)ctx;
    if (level == RVI_LOG_WARN) snprintf(warning, sizeof warning, "%s", line);
}

static rv_status open_built(const fault *f, const char *arch, rv_error *err)
{
    rvi_log log = {.sink = keep_warning, .level = RVI_LOG_WARN};
    rvi_backend *be;
    rvi_source *s;
    rvi_model *m = NULL;
    rvi_buf file = {0};
    rvi_blob blob;
    build(&file, f, arch);
    assert_int_equal(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, &log, err),
                     RV_OK);
    rvi_blob_from_memory(&blob, file.data, file.len);
    rv_status st = rvi_source_open_gguf_blob(&s, &blob, "built", err);
    if (!st) st = rvi_model_new(&m, be, s, NULL, err);
    rvi_model_free(m);
    be->ops->free(be);
    rvi_buf_deinit(&file);
    return st;
}

static const fault faults[] = {
    {.what = "nothing wrong"},
    {.what = "missing embedding",
     .skip = "token_embd.weight",
     .expect = "'token_embd.weight' is missing"},
    {.what = "missing norm",
     .skip = "blk.0.ffn_norm.weight",
     .expect = "'blk.0.ffn_norm.weight' is missing"},
    {.what = "missing matrix",
     .skip = "blk.0.attn_v.weight",
     .expect = "'blk.0.attn_v.weight' is missing"},
    {.what = "misshapen matrix",
     .wrong = "blk.0.ffn_up.weight",
     .expect = "'blk.0.ffn_up.weight' is 65 x 32, but the metadata asks for 64 x 32"},
    {.what = "misshapen norm",
     .wrong = "output_norm.weight",
     .expect = "'output_norm.weight' is 33"},
    {.what = "misshapen embedding",
     .wrong = "token_embd.weight",
     .expect = "'token_embd.weight' is 41 x 32"},
    {.what = "no layers key",
     .drop_key = "llama.block_count",
     .expect = "'llama.block_count' is missing"},
    {.what = "no epsilon",
     .drop_key = "llama.attention.layer_norm_rms_epsilon",
     .expect = "layer_norm_rms_epsilon' is missing"},
    {.what = "no layers",
     .set_key = "llama.block_count",
     .value = 0,
     .expect = "'llama.block_count'"},
    {.what = "too many layers",
     .set_key = "llama.block_count",
     .value = 4000000000u,
     .expect = "'llama.block_count'"},
    {.what = "one layer too many",
     .set_key = "llama.block_count",
     .value = 2,
     .expect = "'blk.1.attn_norm.weight' is missing"},
    {.what = "another width",
     .set_key = "llama.embedding_length",
     .value = 64,
     .expect = "'token_embd.weight' is 40 x 32"},
    {.what = "a huge width",
     .set_key = "llama.embedding_length",
     .value = 0xFFFFFFFF,
     .expect = "'llama.embedding_length'"},
    {.what = "heads that do not divide",
     .set_key = "llama.attention.head_count_kv",
     .value = 3,
     .expect = "2 heads do not divide into 3"},
    {.what = "no heads",
     .set_key = "llama.attention.head_count",
     .value = 0,
     .expect = "head_count'"},
    {.what = "another vocabulary",
     .set_key = "llama.vocab_size",
     .value = 41,
     .expect = "'token_embd.weight' is 40 x 32"},
    {.what = "an odd rotary size",
     .set_key = "llama.rope.dimension_count",
     .value = 7,
     .expect = "must be even and at least 2 (got 7)"},
    {.what = "a rotary size beyond the head",
     .set_key = "llama.rope.dimension_count",
     .value = 18,
     .expect = "'llama.rope.dimension_count'"},
    {.what = "a rotary base of 0",
     .set_key = "llama.rope.freq_base",
     .value = 0,
     .expect = "rotary base"},
};

static void one_fault_each(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(faults); i++) {
        rv_error err = {0};
        rv_status st = open_built(&faults[i], "llama", &err);
        if (!faults[i].expect) {
            if (st) fail_msg("%s: %s", faults[i].what, err.text);
        } else if (st != RV_E_MODEL || !strstr(err.text, faults[i].expect)) {
            fail_msg("%s: status %d, '%s', but '%s' was expected in it", faults[i].what, st,
                     err.text, faults[i].expect);
        }
    }
}

static void unused_tensor_is_named(void **state)
{
    (void)state;
    rv_error err = {0};
    warning[0] = 0;
    assert_int_equal(open_built(&faults[0], "llama", &err), RV_OK);
    assert_non_null(strstr(warning, "'extra.weight' is not used"));
}

static void unknown_architecture(void **state)
{
    (void)state;
    rv_error err = {0};
    assert_int_equal(open_built(&faults[0], "notamodel", &err), RV_E_MODEL);
    assert_non_null(strstr(err.text, "'notamodel' is not supported"));
}

/* ---- config.json ---- */

typedef struct config_fault {
    const char *from, *to, *expect;
} config_fault;

static const config_fault config_faults[] = {
    {"\"model_type\": \"llama\"", "\"model_type\": \"other\"", "'other' is not supported"},
    {"\"model_type\": \"llama\"", "\"unrelated\": 1", "no 'model_type'"},
    {"\"hidden_size\": 256", "\"hidden_size\": \"wide\"", "'hidden_size'"},
    {"\"hidden_size\": 256", "\"hidden_size\": -4", "'hidden_size'"},
    {"\"hidden_size\": 256", "\"hidden_size\": 1e300", "'hidden_size'"},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "activation 'relu'"},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"",
     "rope scaling 'dynamic' is not supported"},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "rope scaling"},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", "short_factor"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     "'model.layers.2.input_layernorm.weight' is missing"},
};

static void bad_configurations(void **state)
{
    (void)state;
    rvi_blob original;
    rvi_backend *be;
    assert_ok(rvi_blob_open(&original, "tests/golden/llama/config.json", err));
    assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, err));
    for (size_t i = 0; i < RVI_COUNT(config_faults); i++) {
        const config_fault *f = &config_faults[i];
        rv_error err = {0};
        rvi_buf text = {0}, changed = {0};
        rvi_blob config, weights;
        rvi_source *s;
        rvi_model *m = NULL;
        rvi_buf_append(&text, original.data, original.len);
        char *at = strstr(text.data, f->from);
        assert_non_null(at);
        rvi_buf_append(&changed, text.data, (size_t)(at - text.data));
        rvi_buf_puts(&changed, f->to);
        rvi_buf_puts(&changed, at + strlen(f->from));
        rvi_blob_from_memory(&config, changed.data, changed.len);
        assert_int_equal(rvi_blob_open(&weights, "tests/golden/llama/model.safetensors", &err),
                         RV_OK);
        rv_status st = rvi_source_open_hf_blobs(&s, &config, &weights, "checkpoint", &err);
        if (!st) st = rvi_model_new(&m, be, s, NULL, &err);
        if (st != RV_E_MODEL || !strstr(err.text, f->expect))
            fail_msg("%s: status %d, '%s'", f->to, st, err.text);
        rvi_model_free(m);
        rvi_buf_deinit(&text);
        rvi_buf_deinit(&changed);
    }
    rvi_blob_close(&original);
    be->ops->free(be);
}

/* A NaN in the weights ends in an error that names the tensor. */
static void broken_weights_are_named(void **state)
{
    (void)state;
    golden g;
    golden_open_named(&g, "llama", true, 1, NULL);
    assert_null(rvi_model_find_broken_tensor(g.m));
    rvi_tensor_view *v = rvi_source_tensor(g.m->source, "model.layers.1.mlp.up_proj.weight");
    uint8_t *copy = rvi_alloc_array((size_t)v->n_bytes, 1);
    const uint8_t *kept = v->data;
    memcpy(copy, v->data, (size_t)v->n_bytes);
    copy[v->n_bytes - 1] = 0x7F; /* bf16 NaN */
    copy[v->n_bytes - 2] = 0xC0;
    v->data = copy;
    assert_string_equal(rvi_model_find_broken_tensor(g.m), "model.layers.1.mlp.up_proj.weight");
    v->data = kept;
    rvi_free(copy);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fault_each),           cmocka_unit_test(unused_tensor_is_named),
        cmocka_unit_test(unknown_architecture),     cmocka_unit_test(bad_configurations),
        cmocka_unit_test(broken_weights_are_named),
    };
    return cmocka_run_group_tests_name("bad models", tests, NULL, NULL);
}
