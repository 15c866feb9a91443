#include "lora/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

typedef struct loader {
    rvi_adapter *a;
    const rvi_lora_target *targets;
    int n_targets;
    double *ranks; /* of each target, as adapter_config.json has it */
    const char *path;
    const char *base_digest; /* NULL: not checked */
    bool gguf;               /* the file's row order for paired heads */
    rv_error *err;
} loader;

static rv_status load_reordered(loader *l, rvi_tensor **out, const rvi_tensor_view *view,
                                const rvi_lora_target *t)
{
    rvi_backend *be = l->a->be;
    size_t n = (size_t)view->shape[0] * (size_t)view->shape[1];
    float *plain = rvi_alloc_array(n, sizeof *plain), *turned = rvi_alloc_array(n, sizeof *turned);
    rv_status st = RV_OK;
    if (!plain || !turned) st = rvi_nomem(l->err, view->name);
    if (!st) {
        rvi_dequantize(view->type, view->data, plain, n);
        rvi_lora_reorder(plain, turned, (int)view->shape[0], (int)view->shape[1], t->n_paired_heads,
                         t->paired);
        rvi_tensor_view copy = *view;
        copy.type = RVI_F32;
        copy.data = (const uint8_t *)turned;
        st = rvi_lora_matrix_new(out, be, &copy, true, l->err);
    }
    rvi_free(plain);
    rvi_free(turned);
    return st;
}

static bool is_finite(const rvi_tensor_view *v)
{
    enum { STEP = 256 }; /* a whole number of blocks of every type */
    float values[STEP];
    uint64_t n = v->shape[0] * v->shape[1];
    for (uint64_t at = 0; at < n; at += STEP) {
        size_t k = (size_t)RVI_MIN(n - at, (uint64_t)STEP);
        rvi_dequantize(v->type, v->data + rvi_qtype_row_bytes(v->type, (size_t)at), values, k);
        for (size_t i = 0; i < k; i++)
            if (!isfinite(values[i])) return false;
    }
    return true;
}

static rv_status add_tensor(loader *l, int slot, bool is_b, rvi_tensor_view *view)
{
    const rvi_lora_target *t = &l->targets[slot];
    rvi_lora_slot *s = &l->a->slots[slot];
    rvi_backend *be = l->a->be;
    uint64_t width = is_b ? (uint64_t)t->n_out : (uint64_t)t->n_in;
    uint64_t rank = view->shape[is_b ? 1 : 0], side = view->shape[is_b ? 0 : 1];
    if (view->n_dims != 2 || side != width)
        return rvi_error(
            l->err, RV_E_ADAPTER,
            "%s: tensor '%s' does not fit the model: %llu wide where the layer has %llu", l->path,
            view->name, (unsigned long long)(view->n_dims == 2 ? side : 0),
            (unsigned long long)width);
    if (rank < 1 || rank > RVI_MAX_RANK)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s': rank must be 1..%d (got %llu)",
                         l->path, view->name, RVI_MAX_RANK, (unsigned long long)rank);
    rvi_tensor **out = is_b ? &s->b : &s->a;
    if (*out)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' is given twice", l->path,
                         view->name);
    if (!is_finite(view))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' holds a value that is not a number",
                         l->path, view->name);
    if (is_b && t->n_paired_heads && t->paired != l->gguf) return load_reordered(l, out, view, t);
    return rvi_lora_matrix_new(out, be, view, is_b, l->err);
}

static int find_target(const loader *l, const char *name, size_t len)
{
    for (int i = 0; i < l->n_targets; i++) {
        const char *want = l->gguf ? l->targets[i].gguf_name : l->targets[i].hf_name;
        if (strlen(want) == len && !memcmp(want, name, len)) return i;
    }
    return -1;
}

static rv_status unknown(loader *l, const char *name)
{
    return rvi_error(
        l->err, RV_E_ADAPTER,
        "%s: tensor '%s' does not belong to this model (an adapter of another model, or "
        "of a kind that is not supported)",
        l->path, name);
}

/* "base_model.model." + layer + ".lora_A" [".default"] + ".weight" */
static rv_status add_peft(loader *l, rvi_tensor_view *view)
{
    static const char prefix[] = "base_model.model.";
    const char *name = view->name;
    if (!strncmp(name, prefix, strlen(prefix))) name += strlen(prefix);
    const char *mark = strstr(name, ".lora_A");
    bool is_b = !mark;
    if (!mark) mark = strstr(name, ".lora_B");
    if (!mark || (strcmp(mark + 7, ".weight") && strcmp(mark + 7, ".default.weight")))
        return unknown(l, view->name);
    int slot = find_target(l, name, (size_t)(mark - name));
    return slot < 0 ? unknown(l, view->name) : add_tensor(l, slot, is_b, view);
}

/* layer + ".weight.lora_a" or ".weight.lora_b" */
static rv_status add_gguf(loader *l, rvi_tensor_view *view)
{
    static const char suffix[] = ".weight.lora_a";
    size_t len = strlen(view->name), end = strlen(suffix);
    char last = len > end ? view->name[len - 1] : 0;
    if ((last != 'a' && last != 'b') || memcmp(view->name + len - end, suffix, end - 1))
        return unknown(l, view->name);
    int slot = find_target(l, view->name, len - end);
    return slot < 0 ? unknown(l, view->name) : add_tensor(l, slot, last == 'b', view);
}

/* A key of rank_pattern and alpha_pattern may be a regular expression; plain names are supported.
 * */
static bool is_plain(const rvi_json *p)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
    return p->key_len && strspn(p->key, plain) == p->key_len;
}

static rv_status check_pattern(loader *l, const rvi_json *config, const char *field)
{
    const rvi_json *patterns = rvi_json_get(config, field);
    if (!patterns || patterns->kind == RVI_JSON_NULL) return RV_OK;
    for (size_t i = 0; i < rvi_json_count(patterns); i++) {
        const rvi_json *p = rvi_json_at(patterns, i);
        if (patterns->kind == RVI_JSON_OBJECT && is_plain(p) && isfinite(rvi_json_number(p, NAN)))
            continue;
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: '%s': plain layer names with a number each are supported", l->path,
                         field);
    }
    return RV_OK;
}

/* Rank and alpha of one layer by PEFT's patterns: a key matches a layer name it ends, after a dot
 * or whole. */
static double pattern(const rvi_json *patterns, const char *layer, double fallback)
{
    for (size_t i = 0; i < rvi_json_count(patterns); i++) {
        const rvi_json *p = rvi_json_at(patterns, i);
        size_t len = strlen(layer), key = p->key_len;
        if (key <= len && !memcmp(layer + len - key, p->key, key) &&
            (key == len || layer[len - key - 1] == '.'))
            return rvi_json_number(p, fallback);
    }
    return fallback;
}

static bool is_absent(const rvi_json *v)
{
    return !v || v->kind == RVI_JSON_NULL;
}

/* Kinds of adapters that compute something else than s B (A x) on the weights as they are. */
static rv_status refuse_others(loader *l, const rvi_json *config)
{
    static const struct {
        const char *field, *what;
    } flags[] = {
        {"use_dora", "DoRA adapters"},
        {"fan_in_fan_out", "fan_in_fan_out adapters"},
        {"lora_bias", "adapters with trained biases"},
        {"use_qalora", "QALoRA adapters"},
        {"alora_invocation_tokens", "activated adapters"},
        {"layer_replication", "adapters that repeat layers"},
    };
    static const char *const inits[] = {"gaussian", "eva", "orthogonal"};
    const rvi_json *type = rvi_json_get(config, "peft_type"), *bias = rvi_json_get(config, "bias"),
                   *init = rvi_json_get(config, "init_lora_weights");
    if (!is_absent(type) && !rvi_json_is_string(type, "LORA"))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: 'peft_type' is '%.32s': only LORA is supported",
                         l->path, rvi_json_string(type, "?"));
    for (size_t i = 0; i < RVI_COUNT(flags); i++) {
        const rvi_json *v = rvi_json_get(config, flags[i].field);
        if (!is_absent(v) && !(v->kind == RVI_JSON_BOOL && !v->as.boolean))
            return rvi_error(l->err, RV_E_ADAPTER, "%s: '%s': %s are not supported", l->path,
                             flags[i].field, flags[i].what);
    }
    if (bias && !rvi_json_is_string(bias, "none"))
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: 'bias': adapters with trained biases are not supported", l->path);
    bool known = !rvi_json_is(init, RVI_JSON_STRING);
    for (size_t i = 0; i < RVI_COUNT(inits) && !known; i++)
        known = rvi_json_is_string(init, inits[i]);
    if (!known)
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: 'init_lora_weights': adapters that start from changed weights "
                         "('%.32s') are not supported",
                         l->path, rvi_json_string(init, "?"));
    return RV_OK;
}

static rv_status peft_scales(loader *l, const rvi_json *config)
{
    const rvi_json *rs = rvi_json_get(config, "use_rslora");
    double r = rvi_json_number(rvi_json_get(config, "r"), NAN),
           alpha = rvi_json_number(rvi_json_get(config, "lora_alpha"), NAN);
    rv_status st = refuse_others(l, config);
    if (!st) st = check_pattern(l, config, "rank_pattern");
    if (!st) st = check_pattern(l, config, "alpha_pattern");
    if (st) return st;
    if (!(r >= 1) || r > RVI_MAX_RANK)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: 'r' of adapter_config.json must be 1..%d",
                         l->path, RVI_MAX_RANK);
    if (!isfinite(alpha))
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: 'lora_alpha' of adapter_config.json must be a number", l->path);
    if (!is_absent(rs) && rs->kind != RVI_JSON_BOOL)
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: 'use_rslora' of adapter_config.json must be true or false", l->path);
    for (int i = 0; i < l->n_targets; i++) {
        const char *name = l->targets[i].hf_name;
        double rank = pattern(rvi_json_get(config, "rank_pattern"), name, r);
        double top = pattern(rvi_json_get(config, "alpha_pattern"), name, alpha);
        l->ranks[i] = rank;
        float scale = (float)(top / (rvi_json_bool(rs, false) ? sqrt(rank) : rank));
        if (rank >= 1 && !isfinite(scale))
            return rvi_error(l->err, RV_E_ADAPTER, "%s: the scale of '%s' is not a number", l->path,
                             name);
        l->a->slots[i].scale = scale;
    }
    return RV_OK;
}

/* ---- what our own files say about themselves ---- */

typedef struct origin { /* .data NULL: not there */
    rvi_str base_digest, checksum, provenance;
} origin;

static bool same(rvi_str s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

static rv_status copy_text(loader *l, char **out, rvi_str s)
{
    if (!s.len) return RV_OK;
    *out = rvi_alloc_array(s.len + 1, 1);
    if (!*out) return rvi_nomem(l->err, "provenance");
    memcpy(*out, s.data, s.len);
    (*out)[s.len] = 0;
    return RV_OK;
}

static rv_status check_origin(loader *l, const origin *o)
{
    enum { MOST_DIGEST = 64, MOST_PROVENANCE = 1 << 20 };
    if (o->base_digest.len > MOST_DIGEST || o->provenance.len > MOST_PROVENANCE)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: what it says of its origin is too long",
                         l->path);
    if (l->base_digest && o->base_digest.len && !same(o->base_digest, l->base_digest))
        return rvi_error(l->err, RV_E_ADAPTER,
                         "an adapter of another model: trained on %.*s, but this one is %.64s (%s)",
                         (int)o->base_digest.len, o->base_digest.data, l->base_digest, l->path);
    rv_status st = copy_text(l, &l->a->base_digest, o->base_digest);
    return st ? st : copy_text(l, &l->a->provenance, o->provenance);
}

/* tensor_at(file, i): the n tensors in the file's order. */
static rv_status check_sum(loader *l, rvi_str expected, void *file, size_t n,
                           rvi_tensor_view *(*tensor_at)(void *file, size_t i))
{
    char found[RVI_SHA256_HEX];
    rvi_sha256 h;
    if (!expected.data) return RV_OK;
    rvi_sha256_init(&h);
    for (size_t i = 0; i < n; i++) rvi_lora_hash(&h, tensor_at(file, i));
    rvi_sha256_end_hex(&h, found);
    if (same(expected, found)) return RV_OK;
    return rvi_error(l->err, RV_E_ADAPTER,
                     "%s: damaged: the SHA-256 of its tensors is %s, not %.*s as it says", l->path,
                     found, (int)RVI_MIN(expected.len, (size_t)64), expected.data);
}

static rvi_str text_of(const char *text)
{
    return text ? (rvi_str){text, strlen(text)} : (rvi_str){0};
}

static rvi_tensor_view *safetensors_at(void *file, size_t i)
{
    return rvi_safetensors_tensor_at(file, i);
}

static rv_status check_safetensors(loader *l, rvi_safetensors *s)
{
    origin o = {text_of(rvi_safetensors_meta(s, RVI_LORA_BASE_DIGEST)),
                text_of(rvi_safetensors_meta(s, RVI_LORA_CHECKSUM)),
                text_of(rvi_safetensors_meta(s, RVI_LORA_PROVENANCE))};
    rv_status st = check_origin(l, &o);
    return st ? st : check_sum(l, o.checksum, s, rvi_safetensors_n_tensors(s), safetensors_at);
}

static rvi_tensor_view *gguf_at(void *file, size_t i)
{
    return rvi_gguf_tensor_at(file, i);
}

static rv_status check_gguf(loader *l, rvi_gguf *g)
{
    origin o = {0};
    (void)rvi_gguf_get_str(g, RVI_LORA_BASE_DIGEST, &o.base_digest);
    (void)rvi_gguf_get_str(g, RVI_LORA_CHECKSUM, &o.checksum);
    (void)rvi_gguf_get_str(g, RVI_LORA_PROVENANCE, &o.provenance);
    rv_status st = check_origin(l, &o);
    return st ? st : check_sum(l, o.checksum, g, rvi_gguf_n_tensors(g), gguf_at);
}

/* ---- the two formats ---- */

static rv_status load_peft(loader *l)
{
    enum { MOST_CONFIG = 1 << 20 };
    rvi_safetensors *st_file = NULL;
    rvi_arena arena = {.max = 64 << 20};
    rvi_blob blob = {0};
    rvi_buf path = {0};
    const rvi_json *config;
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&path, "%s/adapter_config.json", l->path)) st = rvi_nomem(l->err, "path");
    if (!st) st = rvi_blob_open(&blob, path.data, l->err);
    if (!st && blob.len > MOST_CONFIG)
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: %zu bytes are too many for a configuration",
                       path.data, blob.len);
    if (!st)
        st = rvi_json_parse(&config, (const char *)blob.data, blob.len, &arena, path.data, l->err);
    if (!st) st = peft_scales(l, config);
    path.len = 0;
    if (!st && !rvi_buf_printf(&path, "%s/adapter_model.safetensors", l->path))
        st = rvi_nomem(l->err, "path");
    if (!st) st = rvi_safetensors_open(&st_file, path.data, l->err);
    if (!st) st = check_safetensors(l, st_file);
    for (size_t i = 0; !st && i < rvi_safetensors_n_tensors(st_file); i++)
        st = add_peft(l, rvi_safetensors_tensor_at(st_file, i));
    if (!st && rvi_safetensors_n_raw(st_file)) {
        const rvi_raw_tensor *raw = rvi_safetensors_raw_at(st_file, 0);
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' of type %s is not supported", l->path,
                       raw->name, raw->dtype);
    }
    if (!st) st = rvi_safetensors_check(st_file, l->path, l->err);
    if (!st) st = rvi_blob_check(&blob, l->path, l->err);
    rvi_safetensors_close(st_file);
    rvi_blob_close(&blob);
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&path);
    return st;
}

static bool named(const char *const *names, rvi_str s)
{
    for (; *names; names++)
        if (strlen(*names) == s.len && !memcmp(*names, s.data, s.len)) return true;
    return false;
}

static rv_status load_gguf(loader *l, const char *const *arch)
{
    rvi_gguf *g;
    rvi_str text = {0};
    float alpha = 0;
    rv_status st = rvi_gguf_open(&g, l->path, l->err);
    if (st) return st;
    l->gguf = true;
    if (!rvi_gguf_get_str(g, "general.type", &text) || text.len != 7 ||
        memcmp(text.data, "adapter", 7))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: not an adapter (general.type is not 'adapter')",
                       l->path);
    else if (!rvi_gguf_get_str(g, "adapter.type", &text) || text.len != 4 ||
             memcmp(text.data, "lora", 4))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: only LoRA adapters are supported (adapter.type)",
                       l->path);
    else if (rvi_gguf_get_str(g, "general.architecture", &text) && !named(arch, text))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: an adapter for '%.*s', but the model is '%s'",
                       l->path, (int)RVI_MIN(text.len, (size_t)64), text.data, arch[0]);
    else if (!rvi_gguf_get_f32(g, "adapter.lora.alpha", &alpha) || !isfinite(alpha))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: 'adapter.lora.alpha' is missing or no number",
                       l->path);
    if (!st) st = check_gguf(l, g);
    for (size_t i = 0; !st && i < rvi_gguf_n_tensors(g); i++)
        st = add_gguf(l, rvi_gguf_tensor_at(g, i));
    for (int i = 0; !st && i < l->n_targets; i++)
        l->a->slots[i].scale = alpha; /* divided by the rank below */
    if (!st) st = rvi_gguf_check(g, l->err);
    rvi_gguf_close(g);
    return st;
}

/* Every A needs its B of the same rank. */
static rv_status check_slots(loader *l)
{
    for (int i = 0; i < l->n_targets; i++) {
        rvi_lora_slot *s = &l->a->slots[i];
        if (!s->a && !s->b) continue;
        const char *name = l->gguf ? l->targets[i].gguf_name : l->targets[i].hf_name;
        if (!s->a || !s->b)
            return rvi_error(l->err, RV_E_ADAPTER,
                             "%s: layer '%s' has only one of its two matrices", l->path, name);
        int rank_a = l->a->be->ops->n_rows(s->a), rank_b = l->a->be->ops->n_cols(s->b);
        if (rank_a != rank_b)
            return rvi_error(l->err, RV_E_ADAPTER, "%s: layer '%s': ranks %d and %d disagree",
                             l->path, name, rank_a, rank_b);
        if (!l->gguf && l->ranks[i] != rank_a)
            return rvi_error(l->err, RV_E_ADAPTER,
                             "%s: layer '%s' has rank %d, but adapter_config.json says %g", l->path,
                             name, rank_a, l->ranks[i]);
        /* an alpha of 0 in a GGUF adapter means unscaled */
        if (l->gguf) s->scale = s->scale != 0 ? s->scale / (float)rank_a : 1;
        l->a->n_used++;
    }
    return l->a->n_used ? RV_OK
                        : rvi_error(l->err, RV_E_ADAPTER, "%s: no adapter tensors in it", l->path);
}

rv_status rvi_adapter_load(rvi_adapter **out, rvi_backend *be, const char *path,
                           const rvi_lora_target *targets, int n_targets, const char *const *arch,
                           const char *base_digest, rv_error *err)
{
    rvi_adapter *a;
    *out = NULL;
    rv_status st = rvi_adapter_new(&a, be, n_targets, err);
    if (st) return st;
    loader l = {.a = a,
                .targets = targets,
                .n_targets = n_targets,
                .path = path,
                .base_digest = base_digest,
                .err = err};
    l.ranks = rvi_zalloc_array((size_t)n_targets, sizeof *l.ranks);
    if (!l.ranks) st = rvi_nomem(err, "adapter");
    if (!st) st = rvi_os_stat(path, NULL) == RVI_OS_DIR ? load_peft(&l) : load_gguf(&l, arch);
    if (!st) st = check_slots(&l);
    if (!st && base_digest && !a->base_digest)
        rvi_log_write(be->log, RVI_LOG_WARN,
                      "%s: the adapter does not say which model it was trained on; only its shapes "
                      "were compared",
                      path);
    rvi_free(l.ranks);
    if (st)
        rvi_adapter_free(a);
    else
        *out = a;
    return st;
}

/* ---- adapters in memory ---- */

rv_status rvi_adapter_new(rvi_adapter **out, rvi_backend *be, int n_slots, rv_error *err)
{
    *out = NULL;
    rvi_adapter *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "adapter");
    a->be = be;
    a->n_slots = n_slots;
    a->slots = rvi_zalloc_array((size_t)n_slots, sizeof *a->slots);
    if (!a->slots) {
        rvi_adapter_free(a);
        return rvi_nomem(err, "adapter");
    }
    *out = a;
    return RV_OK;
}

void rvi_adapter_free(rvi_adapter *a)
{
    if (!a) return;
    for (int i = 0; a->slots && i < a->n_slots; i++) {
        a->be->ops->tensor_free(a->be, a->slots[i].a);
        a->be->ops->tensor_free(a->be, a->slots[i].b);
    }
    rvi_free(a->slots);
    rvi_free(a->base_digest);
    rvi_free(a->provenance);
    rvi_free(a);
}

rv_status rvi_lora_matrix_new(rvi_tensor **out, rvi_backend *be, const rvi_tensor_view *view,
                              bool is_b, rv_error *err)
{
    rv_status st = be->ops->floats_new(be, out, view, 0, err);
    if (st || !is_b || !(st = be->ops->lora_pack(be, *out, err))) return st;
    be->ops->tensor_free(be, *out);
    *out = NULL;
    return st;
}

static rv_status put_matrix(rvi_adapter *a, rvi_tensor **out, bool is_b, const char *name,
                            int n_rows, int n_cols, const float *values, rv_error *err)
{
    rvi_tensor_view view = {.name = name,
                            .type = RVI_F32,
                            .n_dims = 2,
                            .shape = {(uint64_t)n_rows, (uint64_t)n_cols},
                            .data = (const uint8_t *)values};
    if (!is_finite(&view))
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': a value is not a number", name);
    return rvi_lora_matrix_new(out, a->be, &view, is_b, err);
}

rv_status rvi_adapter_put(rvi_adapter *a, int slot, const rvi_lora_target *t, int rank, float scale,
                          const float *ma, const float *mb, rv_error *err)
{
    const char *name = t->hf_name[0] ? t->hf_name : t->gguf_name;
    rvi_lora_slot *s = &a->slots[slot];
    if (rank < 1 || rank > RVI_MAX_RANK)
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': rank must be 1..%d (got %d)", name,
                         RVI_MAX_RANK, rank);
    if (!isfinite(scale))
        return rvi_error(err, RV_E_ADAPTER, "adapter of '%s': its scale is not a number", name);
    rv_status st = put_matrix(a, &s->a, false, name, rank, t->n_in, ma, err);
    if (!st) st = put_matrix(a, &s->b, true, name, t->n_out, rank, mb, err);
    s->scale = scale;
    if (!st) a->n_used++;
    return st;
}

int rvi_adapter_rank(const rvi_adapter *a, int slot)
{
    return a->slots[slot].a ? a->be->ops->n_rows(a->slots[slot].a) : 0;
}

static size_t n_values(const rvi_adapter *a, const rvi_tensor *t)
{
    return t ? (size_t)a->be->ops->n_rows(t) * (size_t)a->be->ops->n_cols(t) : 0;
}

static void read_matrix(const rvi_adapter *a, rvi_tensor *t, float *out)
{
    int n_rows = a->be->ops->n_rows(t), n_cols = a->be->ops->n_cols(t);
    for (int r = 0; r < n_rows; r++, out += n_cols)
        a->be->ops->rows_read(a->be, rvi_cols_of(t, 0, n_cols), r, out);
}

void rvi_adapter_read(const rvi_adapter *a, int slot, float *ma, float *mb)
{
    read_matrix(a, a->slots[slot].a, ma);
    read_matrix(a, a->slots[slot].b, mb);
}

size_t rvi_adapter_n_params(const rvi_adapter *a)
{
    size_t n = 0;
    for (int i = 0; i < a->n_slots; i++)
        n += n_values(a, a->slots[i].a) + n_values(a, a->slots[i].b);
    return n;
}

rv_status rvi_adapter_digest(const rvi_adapter *a, char out[RVI_SHA256_HEX], rv_error *err)
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    for (int i = 0; i < a->n_slots; i++) {
        const rvi_lora_slot *s = &a->slots[i];
        if (!s->a) continue;
        size_t n_a = n_values(a, s->a), n_b = n_values(a, s->b);
        float *values = rvi_alloc_array(n_a + n_b, sizeof *values);
        if (!values) return rvi_nomem(err, "adapter");
        rvi_adapter_read(a, i, values, values + n_a);
        rvi_sha256_add_u64(&h, (uint64_t)i);
        rvi_sha256_add_u64(&h, (uint64_t)rvi_adapter_rank(a, i));
        rvi_sha256_add(&h, &s->scale, sizeof s->scale);
        rvi_sha256_add(&h, values, (n_a + n_b) * sizeof *values);
        rvi_free(values);
    }
    rvi_sha256_end_hex(&h, out);
    return RV_OK;
}

rv_status rvi_adapter_copy(rvi_adapter **out, const rvi_adapter *a, rv_error *err)
{
    rvi_adapter *copy;
    *out = NULL;
    rv_status st = rvi_adapter_new(&copy, a->be, a->n_slots, err);
    for (int i = 0; !st && i < a->n_slots; i++) {
        const rvi_lora_slot *s = &a->slots[i];
        if (!s->a) continue;
        size_t n_a = n_values(a, s->a), n_b = n_values(a, s->b);
        float *values = rvi_alloc_array(n_a + n_b, sizeof *values);
        rvi_lora_target t = {
            .hf_name = "copy", .n_in = a->be->ops->n_cols(s->a), .n_out = a->be->ops->n_rows(s->b)};
        if (!values) {
            st = rvi_nomem(err, "adapter");
        } else {
            rvi_adapter_read(a, i, values, values + n_a);
            st = rvi_adapter_put(copy, i, &t, rvi_adapter_rank(a, i), s->scale, values,
                                 values + n_a, err);
        }
        rvi_free(values);
    }
    if (!st)
        *out = copy;
    else
        rvi_adapter_free(copy);
    return st;
}

void rvi_lora_reorder(const float *from, float *to, int n_out, int rank, int n_heads,
                      bool to_paired)
{
    int size = n_out / n_heads, half = size / 2;
    for (int h = 0; h < n_heads; h++)
        for (int j = 0; j < half; j++)
            for (int s = 0; s < 2; s++) {
                int paired = h * size + 2 * j + s, split = h * size + s * half + j;
                int src = to_paired ? split : paired, dst = to_paired ? paired : split;
                memcpy(to + (size_t)dst * (size_t)rank, from + (size_t)src * (size_t)rank,
                       (size_t)rank * sizeof *to);
            }
    for (int h = 0; h < n_heads && size % 2; h++) { /* what has no partner stays */
        size_t at = (size_t)(h * size + size - 1) * (size_t)rank;
        memcpy(to + at, from + at, (size_t)rank * sizeof *to);
    }
}

void rvi_lora_hash(rvi_sha256 *h, const rvi_tensor_view *view)
{
    size_t len = strlen(view->name);
    rvi_sha256_add_u64(h, len);
    rvi_sha256_add(h, view->name, len);
    rvi_sha256_add_u64(h, view->n_bytes);
    rvi_sha256_add(h, view->data, (size_t)view->n_bytes);
}
