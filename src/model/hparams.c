#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const rvi_meta *meta;
    const rvi_arch *arch;
    char prefix[32]; /* GGUF keys begin with it */
    const char *key; /* the last key asked for, for errors */
    char full[128];
    rv_error *err;
} reader;

static const char *gguf_key(reader *r, const char *suffix)
{
    snprintf(r->full, sizeof r->full, "%s.%s", r->prefix, suffix);
    return r->full;
}

/* 1: found, 0: absent (or null), -1: of a wrong kind. GGUF arrays count when all their items agree.
 */
static int number(reader *r, const char *gguf, const char *hf, double *out)
{
    if (r->meta->config) {
        r->key = hf;
        const rvi_json *v = hf ? rvi_json_get(r->meta->config, hf) : NULL;
        if (!v || v->kind == RVI_JSON_NULL) return 0;
        if (v->kind != RVI_JSON_INT && v->kind != RVI_JSON_NUMBER) return -1;
        *out = rvi_json_number(v, 0);
        return 1;
    }
    if (!gguf) return 0;
    r->key = gguf_key(r, gguf);
    const rvi_gguf_value *v = rvi_gguf_find(r->meta->gguf, r->key);
    if (!v) return 0;
    if (v->kind == RVI_GGUF_ARRAY && v->item_kind != RVI_GGUF_STRING && v->count) {
        *out = rvi_gguf_item_f64(v, 0);
        for (uint64_t i = 1; i < v->count; i++)
            if (rvi_gguf_item_f64(v, i) != *out) return -1;
        return 1;
    }
    switch (v->kind) {
    case RVI_GGUF_STRING:
    case RVI_GGUF_BOOL:
    case RVI_GGUF_ARRAY: return -1;
    case RVI_GGUF_F32:
    case RVI_GGUF_F64: *out = v->number.f; return 1;
    case RVI_GGUF_U64: *out = (double)v->number.u; return 1;
    default: *out = (double)v->number.i; return 1;
    }
}

/* A count between 1 and max; absent: fallback, and an error where that is 0. */
static rv_status count(reader *r, const char *gguf, const char *hf, int max, int fallback, int *out)
{
    double v = fallback;
    int found = number(r, gguf, hf, &v);
    if (!found && !fallback) return rvi_error(r->err, RV_E_MODEL, "'%s' is missing", r->key);
    if (found < 0 || !(v >= 1) || v > max || v != floor(v))
        return rvi_error(r->err, RV_E_MODEL, "'%s': a whole number from 1 to %d is needed", r->key,
                         max);
    *out = (int)v;
    return RV_OK;
}

static rv_status real(reader *r, const char *gguf, const char *hf, double fallback, double *out)
{
    *out = fallback;
    if (number(r, gguf, hf, out) < 0 || !isfinite(*out))
        return rvi_error(r->err, RV_E_MODEL, "'%s': a number is needed", r->key);
    return RV_OK;
}

/* true or false of config.json; absent or null: fallback. */
static rv_status flag(reader *r, const char *hf, bool fallback, bool *out)
{
    const rvi_json *v = rvi_json_get(r->meta->config, hf);
    *out = rvi_json_bool(v, fallback);
    if (!v || v->kind == RVI_JSON_NULL || v->kind == RVI_JSON_BOOL) return RV_OK;
    return rvi_error(r->err, RV_E_MODEL, "'%s': true or false is needed", hf);
}

/* ---- rope ---- */

/* A number of the scaling object; absent or null: fallback. */
static rv_status inner(reader *r, const rvi_json *object, const char *key, double fallback,
                       double *out)
{
    const rvi_json *v = rvi_json_get(object, key);
    *out = rvi_json_number(v, fallback);
    if (!v || v->kind == RVI_JSON_NULL || v->kind == RVI_JSON_INT || v->kind == RVI_JSON_NUMBER)
        return RV_OK;
    return rvi_error(r->err, RV_E_MODEL, "rope scaling: '%s': a number is needed", key);
}

typedef struct rope_name {
    const char *name;
    rvi_rope_kind kind;
} rope_name;

static const rope_name rope_names[] = {
    {"default", RVI_ROPE_PLAIN}, {"none", RVI_ROPE_PLAIN}, {"linear", RVI_ROPE_LINEAR},
    {"llama3", RVI_ROPE_LLAMA3}, {"yarn", RVI_ROPE_YARN},  {"longrope", RVI_ROPE_LONG},
    {"su", RVI_ROPE_LONG},
};

static rv_status rope_kind(reader *r, const char *name, size_t len, rvi_rope_kind *out)
{
    for (size_t i = 0; i < RVI_COUNT(rope_names); i++)
        if (strlen(rope_names[i].name) == len && !memcmp(rope_names[i].name, name, len)) {
            *out = rope_names[i].kind;
            return RV_OK;
        }
    return rvi_error(r->err, RV_E_MODEL,
                     "rope scaling '%.*s' is not supported (none, linear, llama3, yarn, longrope)",
                     (int)RVI_MIN(len, (size_t)64), name);
}

static rv_status gguf_rope(reader *r, rvi_rope_params *p)
{
    rvi_str type = {0};
    double v;
    rv_status st;
    p->kind = RVI_ROPE_LINEAR; /* a factor without a type is a linear one */
    if (rvi_gguf_get_str(r->meta->gguf, gguf_key(r, "rope.scaling.type"), &type) &&
        (st = rope_kind(r, type.data, type.len, &p->kind)))
        return st;
    if ((st = real(r, "rope.freq_base", NULL, 10000, &p->theta))) return st;
    if ((st = real(r, "rope.scale_linear", NULL, 1, &v))) return st;
    if ((st = real(r, "rope.scaling.factor", NULL, v, &p->factor))) return st;
    if (p->factor == 0) p->factor = 1;
    if (p->kind == RVI_ROPE_LINEAR && p->factor == 1) p->kind = RVI_ROPE_PLAIN;
    if ((st = count(r, "rope.scaling.original_context_length", NULL, RVI_MAX_CONTEXT, p->context,
                    &p->original_context)))
        return st;
    if ((st = real(r, "rope.scaling.attn_factor", NULL, 1, &p->extra_factor))) return st;
    if ((st = real(r, "rope.scaling.yarn_attn_factor", NULL, 0, &p->attention_factor))) return st;
    if ((st = real(r, "rope.scaling.yarn_beta_fast", NULL, 32, &p->beta_fast))) return st;
    if ((st = real(r, "rope.scaling.yarn_beta_slow", NULL, 1, &p->beta_slow))) return st;
    if ((st = real(r, "rope.scaling.yarn_log_multiplier", NULL, 0, &p->mscale_all))) return st;
    p->mscale = p->mscale_all != 0 ? 1 : 0;
    /* A longrope file's own factors come as tensors, bound later; their magnitude is attn_factor,
     * never computed again. */
    if (p->kind == RVI_ROPE_LONG) p->kind = RVI_ROPE_PLAIN;
    return RV_OK;
}

static rv_status factor_list(reader *r, const rvi_json *list, const char *key, rvi_arena *arena,
                             const float **out, int *n_out)
{
    size_t n = rvi_json_count(list);
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || !n || n > RVI_MAX_WIDTH)
        return rvi_error(r->err, RV_E_MODEL, "rope scaling: '%s' must be a list of numbers", key);
    float *f = rvi_arena_alloc(arena, n, sizeof *f);
    if (!f) return rvi_nomem(r->err, key);
    for (size_t i = 0; i < n; i++) f[i] = (float)rvi_json_number(rvi_json_at(list, i), NAN);
    *out = f;
    *n_out = (int)n;
    return RV_OK;
}

/* Two layouts: "rope_theta" beside "rope_scaling", or all of it in "rope_parameters". *out: the
 * object, NULL if there is none. */
static rv_status scaling_object(reader *r, const rvi_json **out)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    *out = NULL;
    for (size_t i = 0; i < RVI_COUNT(names) && !*out; i++) {
        const rvi_json *s = rvi_json_get(r->meta->config, names[i]);
        if (!s || s->kind == RVI_JSON_NULL) continue;
        if (s->kind != RVI_JSON_OBJECT)
            return rvi_error(r->err, RV_E_MODEL, "'%s': an object is needed", names[i]);
        for (size_t k = 0; k < rvi_json_count(s); k++)
            if (rvi_json_is(rvi_json_at(s, k), RVI_JSON_OBJECT))
                return rvi_error(
                    r->err, RV_E_MODEL,
                    "'%s': rotations that differ from layer to layer are not supported", names[i]);
        if (rvi_json_count(s)) *out = s;
    }
    return RV_OK;
}

static rv_status hf_rope_kind(reader *r, const rvi_json *s, rvi_rope_kind *out)
{
    const rvi_json *type = rvi_json_get(s, "rope_type");
    rv_status st;
    if (!type || type->kind == RVI_JSON_NULL) type = rvi_json_get(s, "type");
    if (!type || type->kind == RVI_JSON_NULL) return RV_OK;
    if (type->kind != RVI_JSON_STRING)
        return rvi_error(r->err, RV_E_MODEL, "rope scaling: 'rope_type' must be a name");
    if ((st = rope_kind(r, type->as.string.data, type->as.string.len, out))) return st;
    if (*out == RVI_ROPE_YARN && r->arch->original_context)
        *out = RVI_ROPE_LONG; /* early Phi-3 files name it so */
    return RV_OK;
}

/* The official order: the model's own field (which some families always have), then the scaling
 * object's, then the context. */
static rv_status hf_original_context(reader *r, const rvi_json *s, rvi_rope_params *p)
{
    static const char key[] = "original_max_position_embeddings";
    double v;
    rv_status st = inner(r, s, key, p->context, &v);
    if (st) return st;
    if (r->arch->original_context) v = r->arch->original_context;
    if (number(r, NULL, key, &v) < 0 || !(v >= 1) || v > RVI_MAX_CONTEXT || v != floor(v))
        return rvi_error(r->err, RV_E_MODEL,
                         "'%s' must be a whole number, 1 to the largest context", key);
    p->original_context = (int)v;
    return RV_OK;
}

/* What the inner object says goes first. */
static rv_status hf_rope(reader *r, rvi_rope_params *p, double *partial, rvi_arena *arena)
{
    const rvi_json *s;
    rv_status st;
    if ((st = scaling_object(r, &s))) return st;
    if ((st = hf_rope_kind(r, s, &p->kind))) return st;
    if ((st = hf_original_context(r, s, p))) return st;
    double theta, turning;
    if ((st = real(r, NULL, "rope_theta", 10000, &theta))) return st;
    if ((st = real(r, NULL, "partial_rotary_factor", 1, &turning))) return st;
    bool by_length = p->kind == RVI_ROPE_YARN || p->kind == RVI_ROPE_LONG;
    double factor = by_length                   ? (double)p->context / p->original_context
                    : p->kind == RVI_ROPE_PLAIN ? 1
                                                : 0;
    const struct {
        const char *key;
        double fallback, *out;
    } numbers[] = {
        {"rope_theta", theta, &p->theta},       {"partial_rotary_factor", turning, partial},
        {"factor", factor, &p->factor},         {"low_freq_factor", 0, &p->low_freq},
        {"high_freq_factor", 0, &p->high_freq}, {"beta_fast", 32, &p->beta_fast},
        {"beta_slow", 1, &p->beta_slow},        {"mscale", 0, &p->mscale},
        {"mscale_all_dim", 0, &p->mscale_all},  {"attention_factor", 0, &p->attention_factor},
    };
    for (size_t i = 0; i < RVI_COUNT(numbers); i++)
        if ((st = inner(r, s, numbers[i].key, numbers[i].fallback, numbers[i].out))) return st;
    if (p->beta_fast == 0) p->beta_fast = 32;
    if (p->beta_slow == 0) p->beta_slow = 1;
    if (!by_length) p->attention_factor = 0;
    p->truncate = rvi_json_bool(rvi_json_get(s, "truncate"), true);
    if (p->kind != RVI_ROPE_LONG) return RV_OK;
    if ((st = factor_list(r, rvi_json_get(s, "short_factor"), "short_factor", arena,
                          &p->divisors[0], &p->n_divisors[0])))
        return st;
    return factor_list(r, rvi_json_get(s, "long_factor"), "long_factor", arena, &p->divisors[1],
                       &p->n_divisors[1]);
}

static rv_status read_rope(reader *r, rvi_hparams *h, rvi_arena *arena)
{
    rvi_rope_params *p = &h->rope;
    double partial = 1;
    rv_status st;
    *p = (rvi_rope_params){
        .theta = 10000, .factor = 1, .extra_factor = 1, .truncate = true, .context = h->n_context};
    if ((st = r->meta->config ? hf_rope(r, p, &partial, arena) : gguf_rope(r, p))) return st;
    if (!r->arch->partial_rope && partial != 1) {
        if (p->kind != RVI_ROPE_PLAIN)
            return rvi_error(r->err, RV_E_MODEL,
                             "'partial_rotary_factor' %g is not supported for this architecture",
                             partial);
        partial = 1; /* the official implementation does not look at it */
    }
    int n_rot = partial > 0 && partial <= 1 ? (int)(h->head_size * partial) : 0;
    if (!n_rot)
        return rvi_error(r->err, RV_E_MODEL,
                         "'partial_rotary_factor' must be at most 1 and rotate at least one "
                         "element of a head (got %g)",
                         partial);
    return count(r, "rope.dimension_count", NULL, h->head_size, n_rot, &p->n_rot);
}

/* ---- windows ---- */

/* Tokens of the window, 0: none. */
static rv_status window_size(reader *r, int *out)
{
    const rvi_json *config = r->meta->config;
    double window = r->arch->window;
    rv_status st;
    *out = 0;
    if (config && r->arch->window_rule == RVI_WINDOW_GGUF) return RV_OK;
    if (config && r->arch->window_rule == RVI_WINDOW_UPPER) {
        bool on;
        if ((st = flag(r, "use_sliding_window", false, &on)) || !on) return st;
    }
    if (config && rvi_json_is(rvi_json_get(config, "sliding_window"), RVI_JSON_NULL)) window = 0;
    int found = number(r, "attention.sliding_window", "sliding_window", &window);
    if (found < 0 || window < 0 || window != floor(window) || window > (double)(1u << 30))
        return rvi_error(r->err, RV_E_MODEL, "'%s' is not a valid window size", r->key);
    if (!config && !found && r->arch->window_rule == RVI_WINDOW_ALL)
        window = 0; /* GGUF writers leave no window out */
    *out = (int)window;
    return RV_OK;
}

/* GGUF: a period n (the last of every n layers sees everything), or one value a layer. */
static rv_status gguf_pattern(reader *r, rvi_hparams *h, int window)
{
    const rvi_gguf_value *v =
        rvi_gguf_find(r->meta->gguf, gguf_key(r, "attention.sliding_window_pattern"));
    if (!v) return RV_OK;
    if (v->kind == RVI_GGUF_ARRAY) {
        if (v->item_kind == RVI_GGUF_STRING || v->count != (uint64_t)h->n_layers)
            return rvi_error(r->err, RV_E_MODEL, "'%s': a value for each layer is needed", r->full);
        for (int il = 0; il < h->n_layers; il++)
            h->window[il] = rvi_gguf_item_i64(v, (uint64_t)il) ? window : 0;
        return RV_OK;
    }
    int period;
    rv_status st = count(r, "attention.sliding_window_pattern", NULL, RVI_MAX_LAYERS, 1, &period);
    for (int il = 0; !st && il < h->n_layers; il++)
        h->window[il] = il % period < period - 1 ? window : 0;
    return st;
}

/* config.json: the kind of every layer by name. */
static rv_status layer_types(reader *r, rvi_hparams *h, int window)
{
    const rvi_json *types = rvi_json_get(r->meta->config, "layer_types");
    if (!types || types->kind == RVI_JSON_NULL) return RV_OK;
    if (types->kind != RVI_JSON_ARRAY || rvi_json_count(types) != (size_t)h->n_layers)
        return rvi_error(r->err, RV_E_MODEL, "'layer_types' must list the %d layers", h->n_layers);
    for (int il = 0; il < h->n_layers; il++) {
        const rvi_json *type = rvi_json_at(types, (size_t)il);
        bool on = rvi_json_is_string(type, "sliding_attention");
        if (!on && !rvi_json_is_string(type, "full_attention"))
            return rvi_error(
                r->err, RV_E_MODEL,
                "'layer_types' entry %d is neither sliding_attention nor full_attention", il);
        h->window[il] = on ? window : 0;
    }
    return RV_OK;
}

static rv_status read_windows(reader *r, rvi_hparams *h, rvi_arena *arena)
{
    rvi_window_rule rule = r->arch->window_rule;
    int window, upper_from = 0;
    rv_status st;
    h->window = rvi_arena_alloc(arena, (size_t)h->n_layers, sizeof *h->window);
    if (!h->window) return rvi_nomem(r->err, "windows");
    if ((st = window_size(r, &window))) return st;
    if (r->meta->config && rule == RVI_WINDOW_UPPER) {
        double from = 28;
        if (number(r, NULL, "max_window_layers", &from) < 0)
            return rvi_error(r->err, RV_E_MODEL, "'%s': a number is needed", r->key);
        upper_from = (int)RVI_MIN(RVI_MAX(from, 0), (double)RVI_MAX_LAYERS);
    }
    for (int il = 0; il < h->n_layers; il++)
        h->window[il] = rule == RVI_WINDOW_EVEN ? (il % 2 ? 0 : window)
                        : il >= upper_from      ? window
                                                : 0;
    if (!r->meta->config) return gguf_pattern(r, h, window);
    bool listed = rule != RVI_WINDOW_SAME && rule != RVI_WINDOW_GGUF;
    return listed ? layer_types(r, h, window) : RV_OK;
}

/* ---- the rest ---- */

/* What would change the arithmetic in ways that are not supported. */
static rv_status refuse_others(reader *r)
{
    const rvi_json *config = r->meta->config;
    double experts = 0;
    bool both_ways = false;
    rv_status st;
    if (rvi_json_is(rvi_json_get(config, "quantization_config"), RVI_JSON_OBJECT))
        return rvi_error(
            r->err, RV_E_MODEL,
            "'quantization_config': checkpoints with packed weights are not supported");
    if (config && (st = flag(r, "use_bidirectional_attention", false, &both_ways))) return st;
    if (both_ways)
        return rvi_error(r->err, RV_E_MODEL,
                         "'use_bidirectional_attention': only causal models are supported");
    if (!config && number(r, "expert_count", NULL, &experts) && experts != 0)
        return rvi_error(r->err, RV_E_MODEL, "'%s': mixtures of experts are not supported", r->key);
    return RV_OK;
}

static rv_status read_activation(reader *r)
{
    const rvi_json *config = r->meta->config;
    if (!config) return RV_OK;
    bool gelu = r->arch->glu == RVI_GLU_GELU;
    const rvi_json *name = rvi_json_get(config, gelu ? "hidden_activation" : "hidden_act");
    if (!name || name->kind == RVI_JSON_NULL ||
        rvi_json_is_string(name, gelu ? "gelu_pytorch_tanh" : "silu") ||
        (!gelu && rvi_json_is_string(name, "swish"))) /* the same under its older name */
        return RV_OK;
    return rvi_error(r->err, RV_E_MODEL, "activation '%s' is not supported for this architecture",
                     rvi_json_string(name, "?"));
}

static rv_status read_scales(reader *r, rvi_hparams *h)
{
    const rvi_json *config = r->meta->config;
    double eps, attn, logit, scalar = h->head_size;
    rv_status st;
    if ((st = real(r, "attention.layer_norm_rms_epsilon", "rms_norm_eps",
                   config ? (double)r->arch->norm_eps : -1, &eps)))
        return st;
    if (eps < 0) return rvi_error(r->err, RV_E_MODEL, "'%s' is missing or negative", r->key);
    h->norm_eps = (float)eps;

    attn = r->arch->attn_cap;
    logit = r->arch->logit_cap;
    if (config && rvi_json_is(rvi_json_get(config, "attn_logit_softcapping"), RVI_JSON_NULL))
        attn = 0;
    if (config && rvi_json_is(rvi_json_get(config, "final_logit_softcapping"), RVI_JSON_NULL))
        logit = 0;
    if (r->arch->attn_cap > 0 || r->arch->logit_cap > 0) {
        if ((st = real(r, "attn_logit_softcapping", "attn_logit_softcapping", attn, &attn)))
            return st;
        if ((st = real(r, "final_logit_softcapping", "final_logit_softcapping", logit, &logit)))
            return st;
    }
    h->attn_cap = (float)attn;
    h->logit_cap = (float)logit;

    if (r->arch->query_scalar > 0) {
        /* GGUF has no key for it: the 27B model (46 layers) alone scales by its width per head, the
         * others by the head size. */
        if (config)
            scalar = r->arch->query_scalar;
        else if (h->n_layers == 46)
            scalar = (double)h->n_embd / h->n_heads;
        if ((st = real(r, NULL, "query_pre_attn_scalar", scalar, &scalar))) return st;
        if (!(scalar > 0))
            return rvi_error(r->err, RV_E_MODEL, "'query_pre_attn_scalar' must be positive");
    }
    h->attn_scale = (float)(1 / sqrt(scalar));
    h->embed_scale = r->arch->scaled_embeddings ? (float)sqrt(h->n_embd) : 1;
    h->tied = r->arch->tied_by_default;
    return config ? flag(r, "tie_word_embeddings", h->tied, &h->tied) : RV_OK;
}

static rv_status read_biases(reader *r, rvi_hparams *h)
{
    h->attn_bias = h->mlp_bias = true;
    if (!r->meta->config) return RV_OK;
    rv_status st = flag(r, "attention_bias", false, &h->attn_bias);
    return st ? st : flag(r, "mlp_bias", false, &h->mlp_bias);
}

static rv_status read_heads(reader *r, rvi_hparams *h)
{
    const rvi_json *config = r->meta->config;
    rv_status st;
    if ((st = count(r, "attention.head_count", "num_attention_heads", RVI_MAX_HEADS, 0,
                    &h->n_heads)))
        return st;
    bool kv_silent = config && !rvi_json_get(config, "num_key_value_heads");
    int kv = kv_silent && r->arch->n_kv_heads ? r->arch->n_kv_heads : h->n_heads;
    if ((st = count(r, "attention.head_count_kv", "num_key_value_heads", RVI_MAX_HEADS, kv,
                    &h->n_kv_heads)))
        return st;
    if (h->n_heads % h->n_kv_heads)
        return rvi_error(r->err, RV_E_MODEL, "%d heads do not divide into %d key/value heads",
                         h->n_heads, h->n_kv_heads);
    bool size_silent = config && !rvi_json_get(config, "head_dim");
    int size = size_silent && r->arch->head_size ? r->arch->head_size : h->n_embd / h->n_heads;
    if ((st = count(r, "attention.key_length", "head_dim", 1 << 14, size, &h->head_size)))
        return st;
    int value_size;
    if ((st = count(r, "attention.value_length", NULL, 1 << 14, h->head_size, &value_size)))
        return st;
    if (value_size != h->head_size)
        return rvi_error(r->err, RV_E_MODEL,
                         "keys of %d and values of %d elements a head are not supported",
                         h->head_size, value_size);
    if (h->n_heads * h->head_size > RVI_MAX_WIDTH)
        return rvi_error(r->err, RV_E_MODEL, "%d heads of %d elements are too many", h->n_heads,
                         h->head_size);
    return RV_OK;
}

/* ---- encoders ---- */

static rv_status refuse_decoder_options(reader *r)
{
    static const char *const flags[] = {"is_decoder", "add_cross_attention"};
    const rvi_json *config = r->meta->config,
                   *kind = rvi_json_get(config, "position_embedding_type");
    bool on = false;
    rv_status st;
    if (!config) {
        (void)rvi_gguf_get_bool(r->meta->gguf, gguf_key(r, "attention.causal"), &on);
        return on ? rvi_error(r->err, RV_E_MODEL, "'%s': causal attention is not supported here",
                              r->full)
                  : RV_OK;
    }
    for (size_t i = 0; i < RVI_COUNT(flags); i++) {
        if ((st = flag(r, flags[i], false, &on))) return st;
        if (on)
            return rvi_error(r->err, RV_E_MODEL, "'%s': only encoders are supported here",
                             flags[i]);
    }
    if (kind && kind->kind != RVI_JSON_NULL && !rvi_json_is_string(kind, "absolute"))
        return rvi_error(r->err, RV_E_MODEL,
                         "'position_embedding_type' '%s' is not supported (only absolute)",
                         rvi_json_string(kind, "?"));
    return RV_OK;
}

/* GGUF has no key for it: BERT's own, the exact GELU. */
static rv_status read_encoder_activation(reader *r, rvi_act *out)
{
    static const struct {
        const char *name;
        rvi_act act;
    } names[] = {{"gelu", RVI_ACT_GELU},           {"gelu_python", RVI_ACT_GELU},
                 {"gelu_new", RVI_ACT_GELU_TANH},  {"gelu_pytorch_tanh", RVI_ACT_GELU_TANH},
                 {"gelu_fast", RVI_ACT_GELU_TANH}, {"gelu_python_tanh", RVI_ACT_GELU_TANH},
                 {"relu", RVI_ACT_RELU},           {"gelu_accurate", RVI_ACT_GELU_TANH}};
    const rvi_json *name = rvi_json_get(r->meta->config, "hidden_act");
    *out = RVI_ACT_GELU;
    if (!name || name->kind == RVI_JSON_NULL) return RV_OK;
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        if (rvi_json_is_string(name, names[i].name)) {
            *out = names[i].act;
            return RV_OK;
        }
    return rvi_error(r->err, RV_E_MODEL, "'hidden_act' '%s' is not supported for this architecture",
                     rvi_json_string(name, "?"));
}

static rv_status read_encoder(reader *r, rvi_hparams *h)
{
    double eps;
    rv_status st;
    if ((st = refuse_decoder_options(r))) return st;
    if ((st = read_encoder_activation(r, &h->act))) return st;
    if ((st = count(r, "attention.head_count", "num_attention_heads", RVI_MAX_HEADS, 0,
                    &h->n_heads)))
        return st;
    if ((st = count(r, "attention.head_count_kv", NULL, RVI_MAX_HEADS, h->n_heads, &h->n_kv_heads)))
        return st;
    if (h->n_embd % h->n_heads || h->n_heads % h->n_kv_heads)
        return rvi_error(r->err, RV_E_MODEL,
                         "a width of %d and %d key/value heads do not fit %d heads", h->n_embd,
                         h->n_kv_heads, h->n_heads);
    h->head_size = h->n_embd / h->n_heads;
    h->attn_scale = (float)(1 / sqrt(h->head_size));
    h->embed_scale = 1;
    h->attn_bias = h->mlp_bias = true;
    if ((st = real(r, "attention.layer_norm_epsilon", "layer_norm_eps",
                   r->meta->config ? (double)r->arch->norm_eps : -1, &eps)))
        return st;
    if (eps < 0) return rvi_error(r->err, RV_E_MODEL, "'%s' is missing or negative", r->key);
    h->norm_eps = (float)eps;
    return RV_OK;
}

rv_status rvi_hparams_read(rvi_hparams *h, const rvi_arch *arch, const rvi_meta *meta,
                           rvi_arena *arena, rv_error *err)
{
    reader r = {.meta = meta, .arch = arch, .err = err};
    rvi_str name;
    rv_status st;
    *h = (rvi_hparams){0};
    if (!meta->config && rvi_gguf_get_str(meta->gguf, "general.architecture", &name) &&
        name.len < sizeof r.prefix)
        memcpy(r.prefix, name.data, name.len);
    if ((st = refuse_others(&r))) return st;
    if ((st = count(&r, "block_count", "num_hidden_layers", RVI_MAX_LAYERS, 0, &h->n_layers)))
        return st;
    if ((st = count(&r, "embedding_length", "hidden_size", RVI_MAX_WIDTH, 0, &h->n_embd)))
        return st;
    if ((st = count(&r, "feed_forward_length", "intermediate_size", RVI_MAX_WIDTH, 0, &h->n_ff)))
        return st;
    if ((st = count(&r, "context_length", "max_position_embeddings", RVI_MAX_CONTEXT,
                    !meta->config      ? 0
                    : arch->is_encoder ? 512
                                       : 2048,
                    &h->n_context)))
        return st;
    double vocab = 0;
    if (number(&r, "vocab_size", "vocab_size", &vocab) < 0 || vocab < 0 || vocab > (1 << 24) ||
        vocab != floor(vocab))
        return rvi_error(err, RV_E_MODEL, "'%s' is not a valid vocabulary size", r.key);
    h->n_vocab = (int)vocab;
    if (arch->is_encoder) return read_encoder(&r, h);
    if ((st = read_heads(&r, h))) return st;
    if ((st = read_activation(&r))) return st;
    if ((st = read_scales(&r, h))) return st;
    if ((st = read_biases(&r, h))) return st;
    if ((st = read_windows(&r, h, arena))) return st;
    return read_rope(&r, h, arena);
}
