/* config.json field by field: what each changes, what must be refused, and that a value of a
 * surprising kind is an error instead of a default. The expected values follow the official
 * implementation, whose logits for these configurations agreed with ours. */
#include "golden.h"

typedef struct config {
    rvi_arena arena;
    rvi_buf text;
    const rvi_json *json;
} config;

/* The golden configuration with members added behind it: the last of a repeated key counts. */
static void config_make(config *c, const char *name, const char *more)
{
    char path[128];
    rvi_blob blob;
    *c = (config){0};
    snprintf(path, sizeof path, "tests/golden/%s/config.json", name);
    assert_ok(rvi_blob_open(&blob, path, err));
    rvi_buf_append(&c->text, blob.data, blob.len);
    rvi_blob_close(&blob);
    c->text.len = (size_t)(strrchr(c->text.data, '}') - c->text.data);
    assert_true(rvi_buf_printf(&c->text, ",%s}", more));
    assert_ok(rvi_json_parse(&c->json, c->text.data, c->text.len, &c->arena, "config.json", err));
}

static rv_status read_config(config *c, rvi_hparams *h, rv_error *err)
{
    const rvi_arch *arch = rvi_arch_by_hf(rvi_json_string(rvi_json_get(c->json, "model_type"), ""));
    rvi_meta meta = {.config = c->json};
    assert_non_null(arch);
    return rvi_hparams_read(h, arch, &meta, &c->arena, err);
}

static void config_free(config *c)
{
    rvi_buf_deinit(&c->text);
    rvi_arena_deinit(&c->arena);
}

/* ---- what must be refused ---- */

static const struct {
    const char *name, *more, *expect;
} refused[] = {
    {"llama", "\"rope_parameters\":{\"rope_theta\":\"500000\"}", "'rope_theta': a number"},
    {"llama", "\"rope_parameters\":null,\"rope_theta\":[1]", "'rope_theta': a number"},
    {"llama", "\"rope_parameters\":{\"rope_type\":7}", "'rope_type' must be a name"},
    {"llama", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}",
     "differ from layer to layer"},
    {"llama", "\"rope_scaling\":\"linear\"", "'rope_scaling': an object"},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}", "'factor': a number"},
    {"llama", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", "'dynamic' is not supported"},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"partial_rotary_factor\":0.5",
     "'partial_rotary_factor' 0.5 is not supported"},
    {"phi3", "\"rope_parameters\":{\"partial_rotary_factor\":0}", "element of a head (got 0)"},
    {"phi3", "\"rope_parameters\":{\"partial_rotary_factor\":0.001}", "'partial_rotary_factor'"},
    {"phi3", "\"rope_parameters\":{\"partial_rotary_factor\":1.5}",
     "'partial_rotary_factor' must be at most 1"},
    {"phi3", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}", "'short_factor' must be a list"},
    {"phi3-longrope", "\"original_max_position_embeddings\":-1",
     "must be a whole number, 1 to the largest context"},
    {"llama", "\"quantization_config\":{\"quant_method\":\"gptq\"}", "'quantization_config'"},
    {"gemma2", "\"use_bidirectional_attention\":true", "only causal models"},
    {"gemma2", "\"layer_types\":[\"chunked_attention\",\"full_attention\"]", "entry 0 is neither"},
    {"gemma2", "\"layer_types\":[\"full_attention\"]", "must list the 2 layers"},
    {"gemma2", "\"layer_types\":\"full_attention\"", "must list the 2 layers"},
    {"gemma2", "\"hidden_activation\":\"gelu\"", "activation 'gelu'"},
    {"gemma2", "\"query_pre_attn_scalar\":0", "must be positive"},
    {"mistral", "\"sliding_window\":-3", "'sliding_window' is not a valid window size"},
    {"mistral", "\"sliding_window\":\"64\"", "'sliding_window' is not a valid window size"},
    {"qwen2", "\"use_sliding_window\":1", "'use_sliding_window': true or false"},
    {"qwen2", "\"use_sliding_window\":true,\"max_window_layers\":\"1\"", "'max_window_layers'"},
    {"llama", "\"tie_word_embeddings\":\"yes\"", "'tie_word_embeddings': true or false"},
    {"llama", "\"attention_bias\":0", "'attention_bias': true or false"},
    {"llama", "\"rms_norm_eps\":\"1e-5\"", "'rms_norm_eps': a number"},
    {"llama", "\"rms_norm_eps\":-1", "'rms_norm_eps' is missing or negative"},
    {"llama", "\"vocab_size\":320.5", "'vocab_size' is not a valid"},
    {"llama", "\"num_attention_heads\":0", "'num_attention_heads': a whole number"},
    {"llama", "\"num_attention_heads\":4096,\"head_dim\":16384", "are too many"},
    {"llama", "\"num_hidden_layers\":1e30", "'num_hidden_layers': a whole number"},
    {"llama", "\"max_position_embeddings\":0", "'max_position_embeddings': a whole number"},
};

static void what_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(refused); i++) {
        config c;
        rvi_hparams h;
        rv_error err = {0};
        config_make(&c, refused[i].name, refused[i].more);
        rv_status st = read_config(&c, &h, &err);
        if (st != RV_E_MODEL || !strstr(err.text, refused[i].expect))
            fail_msg("%s with %s: status %d, '%s'", refused[i].name, refused[i].more, st, err.text);
        config_free(&c);
    }
}

/* ---- what changes the arithmetic ---- */

static const struct {
    const char *name, *more;
    int window[2];
} windows[] = {
    {"llama", "\"sliding_window\":4", {0, 0}}, /* the family has none */
    {"llama", "\"sliding_window\":4,\"layer_types\":[\"sliding_attention\",\"x\"]", {0, 0}},
    {"mistral", "\"sliding_window\":4", {4, 4}},
    {"mistral", "\"sliding_window\":null", {0, 0}},
    {"mistral", "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", {0, 64}},
    {"phi3", "\"sliding_window\":5", {5, 5}},
    {"phi3",
     "\"sliding_window\":5,\"layer_types\":[\"full_attention\",\"full_attention\"]",
     {5, 5}}, /* not looked at */
    {"gemma2", "\"layer_types\":null,\"sliding_window\":2", {2, 0}},
    {"gemma2", "\"layer_types\":[\"full_attention\",\"sliding_attention\"]", {0, 64}},
    {"qwen2",
     "\"layer_types\":null,\"use_sliding_window\":true,\"sliding_window\":3,"
     "\"max_window_layers\":1",
     {0, 3}},
    {"qwen2",
     "\"layer_types\":null,\"use_sliding_window\":false,\"sliding_window\":3,"
     "\"max_window_layers\":0",
     {0, 0}},
    {"qwen2",
     "\"layer_types\":null,\"use_sliding_window\":true,\"sliding_window\":3,"
     "\"max_window_layers\":1e12",
     {0, 0}},
    {"qwen3",
     "\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
     "\"use_sliding_window\":true,\"sliding_window\":3",
     {3, 0}},
};

static void windows_by_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(windows); i++) {
        config c;
        rvi_hparams h;
        config_make(&c, windows[i].name, windows[i].more);
        assert_ok(read_config(&c, &h, err));
        if (memcmp(h.window, windows[i].window, sizeof windows[i].window))
            fail_msg("%s with %s: windows %d and %d", windows[i].name, windows[i].more, h.window[0],
                     h.window[1]);
        config_free(&c);
    }
}

static const struct {
    const char *name, *more;
    rvi_rope_kind kind;
    int n_rot, original;
    double theta, factor;
} ropes[] = {
    {"llama", "\"use_cache\":true", RVI_ROPE_PLAIN, 64, 0, 10000, 1},
    {"llama", "\"rope_parameters\":null,\"rope_theta\":5e5", RVI_ROPE_PLAIN, 64, 0, 5e5, 1},
    {"llama", "\"rope_scaling\":{},\"rope_theta\":5e5", RVI_ROPE_PLAIN, 64, 0, 10000, 1},
    {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}", RVI_ROPE_LINEAR, 64, 0,
     10000, 2.5},
    {"llama", "\"partial_rotary_factor\":0.5", RVI_ROPE_PLAIN, 64, 0, 10000, 1},
    {"phi3", "\"partial_rotary_factor\":0.75,\"rope_parameters\":{\"rope_theta\":1e4}",
     RVI_ROPE_PLAIN, 48, 0, 10000, 1},
    {"llama-yarn", "\"original_max_position_embeddings\":32", RVI_ROPE_YARN, 64, 32, 10000, 4},
    {"llama",
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":null,"
     "\"original_max_position_embeddings\":256}",
     RVI_ROPE_YARN, 64, 256, 10000, 4},
    /* a family with a default of its own does not look into the object */
    {"phi3-longrope", "\"original_max_position_embeddings\":null", RVI_ROPE_LONG, 64, 4096, 10000,
     0.25},
};

static void rotations(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(ropes); i++) {
        config c;
        rvi_hparams h;
        config_make(&c, ropes[i].name, ropes[i].more);
        assert_ok(read_config(&c, &h, err));
        const rvi_rope_params *p = &h.rope;
        if (p->kind != ropes[i].kind || p->n_rot != ropes[i].n_rot || p->theta != ropes[i].theta ||
            p->factor != ropes[i].factor ||
            (ropes[i].original && p->original_context != ropes[i].original))
            fail_msg("%s with %s: kind %d, %d elements, original %d, theta %g, factor %g",
                     ropes[i].name, ropes[i].more, (int)p->kind, p->n_rot, p->original_context,
                     p->theta, p->factor);
        config_free(&c);
    }
}

/* ---- heads and biases that the file has or has not ---- */

typedef struct opened {
    config c; /* the model's source points to its text */
    rvi_model *m;
} opened;

static rv_status open_with(opened *o, const char *name, const char *more, rvi_backend *be,
                           rv_error *err)
{
    char path[128];
    rvi_blob text, weights;
    rvi_source *s;
    o->m = NULL;
    config_make(&o->c, name, more);
    snprintf(path, sizeof path, "tests/golden/%s/model.safetensors", name);
    assert_int_equal(rvi_blob_open(&weights, path, err), RV_OK);
    rvi_blob_from_memory(&text, o->c.text.data, o->c.text.len);
    rv_status st = rvi_source_open_hf_blobs(&s, &text, &weights, name, err);
    return st ? st : rvi_model_new(&o->m, be, s, NULL, err);
}

static void close_opened(opened *o)
{
    rvi_model_free(o->m);
    config_free(&o->c);
}

static void heads_and_biases(void **state)
{
    (void)state;
    rvi_backend *be;
    opened o;
    rv_error why = {0};
    assert_ok(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, err));
    /* the file's own head counts, tied or not; one that is neither there nor tied is missed */
    assert_ok(open_with(&o, "llama", "\"tie_word_embeddings\":true", be, err));
    assert_ptr_not_equal(o.m->head.w, o.m->embed);
    close_opened(&o);
    assert_ok(open_with(&o, "gemma2", "\"use_cache\":true", be, err));
    assert_ptr_equal(o.m->head.w, o.m->embed);
    close_opened(&o);
    assert_int_equal(open_with(&o, "gemma2", "\"tie_word_embeddings\":false", be, &why),
                     RV_E_MODEL);
    assert_non_null(strstr(why.text, "'lm_head.weight' is missing"));
    close_opened(&o);
    /* Qwen 2's biases are always there; the same tensors under another family only by its flag */
    assert_ok(open_with(&o, "qwen2", "\"use_cache\":true", be, err));
    assert_non_null(o.m->layers[0].q.bias);
    close_opened(&o);
    assert_ok(open_with(&o, "qwen2", "\"model_type\":\"llama\"", be, err));
    assert_null(o.m->layers[0].q.bias);
    close_opened(&o);
    assert_ok(open_with(&o, "qwen2", "\"model_type\":\"llama\",\"attention_bias\":true", be, err));
    assert_non_null(o.m->layers[0].q.bias);
    assert_null(o.m->layers[0].o.bias);
    close_opened(&o);
    be->ops->free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(windows_by_layer),
        cmocka_unit_test(rotations),
        cmocka_unit_test(heads_and_biases),
    };
    return cmocka_run_group_tests_name("configurations", tests, NULL, NULL);
}
