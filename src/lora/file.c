#include "lora/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/os.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

typedef struct pair { /* of one target; both NULL: nothing here */
    const rvi_tensor_view *a, *b;
    float scale;
} pair;

struct rvi_adapter_file {
    rvi_safetensors *safetensors; /* one of these two; pairs point into it */
    rvi_gguf *gguf;               /* not NULL: the file's row order for paired heads is GGUF's */
    char *path, *base_digest, *provenance;
    const rvi_lora_target *targets;
    int n_targets;
    pair *pairs;
};

typedef struct loader {
    rvi_adapter_file *f;
    double *ranks; /* of each target, as adapter_config.json has it */
    const char *path;
    const char *base_digest; /* NULL: not checked */
    rv_error *err;
} loader;

static rv_status add_tensor(loader *l, int slot, bool is_b, const rvi_tensor_view *view)
{
    const rvi_lora_target *t = &l->f->targets[slot];
    pair *p = &l->f->pairs[slot];
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
    const rvi_tensor_view **out = is_b ? &p->b : &p->a;
    if (*out)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' is given twice", l->path,
                         view->name);
    if (!rvi_lora_is_finite(view))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' holds a value that is not a number",
                         l->path, view->name);
    *out = view;
    return RV_OK;
}

static int find_target(const loader *l, const char *name, size_t len)
{
    for (int i = 0; i < l->f->n_targets; i++) {
        const rvi_lora_target *t = &l->f->targets[i];
        const char *want = l->f->gguf ? t->gguf_name : t->hf_name;
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
    for (int i = 0; i < l->f->n_targets; i++) {
        const char *name = l->f->targets[i].hf_name;
        double rank = pattern(rvi_json_get(config, "rank_pattern"), name, r);
        double top = pattern(rvi_json_get(config, "alpha_pattern"), name, alpha);
        l->ranks[i] = rank;
        float scale = (float)(top / (rvi_json_bool(rs, false) ? sqrt(rank) : rank));
        if (rank >= 1 && !isfinite(scale))
            return rvi_error(l->err, RV_E_ADAPTER, "%s: the scale of '%s' is not a number", l->path,
                             name);
        l->f->pairs[i].scale = scale;
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

static rvi_str text_of(const char *text)
{
    return text ? (rvi_str){text, strlen(text)} : (rvi_str){0};
}

static rv_status copy_text(char **out, rvi_str s, rv_error *err)
{
    if (!s.len) return RV_OK;
    *out = rvi_alloc_array(s.len + 1, 1);
    if (!*out) return rvi_nomem(err, "adapter");
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
    rv_status st = copy_text(&l->f->base_digest, o->base_digest, l->err);
    return st ? st : copy_text(&l->f->provenance, o->provenance, l->err);
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

static rv_status read_peft(loader *l)
{
    enum { MOST_CONFIG = 1 << 20 };
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
    if (!st) st = rvi_safetensors_open(&l->f->safetensors, path.data, l->err);
    rvi_safetensors *st_file = l->f->safetensors;
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

static rv_status read_gguf(loader *l, const char *const *arch)
{
    rvi_str text = {0};
    float alpha = 0;
    rv_status st = rvi_gguf_open(&l->f->gguf, l->path, l->err);
    if (st) return st;
    rvi_gguf *g = l->f->gguf;
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
    for (int i = 0; !st && i < l->f->n_targets; i++)
        l->f->pairs[i].scale = alpha; /* divided by the rank below */
    return st ? st : rvi_gguf_check(g, l->err);
}

/* Every A needs its B of the same rank. */
static rv_status check_pairs(loader *l)
{
    bool gguf = l->f->gguf, any = false;
    for (int i = 0; i < l->f->n_targets; i++) {
        pair *p = &l->f->pairs[i];
        if (!p->a && !p->b) continue;
        const char *name = gguf ? l->f->targets[i].gguf_name : l->f->targets[i].hf_name;
        if (!p->a || !p->b)
            return rvi_error(l->err, RV_E_ADAPTER,
                             "%s: layer '%s' has only one of its two matrices", l->path, name);
        int rank_a = (int)p->a->shape[0], rank_b = (int)p->b->shape[1];
        if (rank_a != rank_b)
            return rvi_error(l->err, RV_E_ADAPTER, "%s: layer '%s': ranks %d and %d disagree",
                             l->path, name, rank_a, rank_b);
        if (!gguf && l->ranks[i] != rank_a)
            return rvi_error(l->err, RV_E_ADAPTER,
                             "%s: layer '%s' has rank %d, but adapter_config.json says %g", l->path,
                             name, rank_a, l->ranks[i]);
        /* an alpha of 0 in a GGUF adapter means unscaled */
        if (gguf) p->scale = p->scale != 0 ? p->scale / (float)rank_a : 1;
        any = true;
    }
    return any ? RV_OK : rvi_error(l->err, RV_E_ADAPTER, "%s: no adapter tensors in it", l->path);
}

rv_status rvi_adapter_file_open(rvi_adapter_file **out, const char *path,
                                const rvi_lora_target *targets, int n_targets,
                                const char *const *arch, const char *base_digest,
                                const rvi_log *log, rv_error *err)
{
    *out = NULL;
    rvi_adapter_file *f = rvi_zalloc(sizeof *f);
    if (!f) return rvi_nomem(err, "adapter");
    f->targets = targets;
    f->n_targets = n_targets;
    f->pairs = rvi_zalloc_array((size_t)n_targets, sizeof *f->pairs);
    loader l = {.f = f, .path = path, .base_digest = base_digest, .err = err};
    l.ranks = rvi_zalloc_array((size_t)n_targets, sizeof *l.ranks);
    rv_status st =
        f->pairs && l.ranks ? copy_text(&f->path, text_of(path), err) : rvi_nomem(err, "adapter");
    if (!st) st = rvi_os_stat(path, NULL) == RVI_OS_DIR ? read_peft(&l) : read_gguf(&l, arch);
    if (!st) st = check_pairs(&l);
    if (!st && base_digest && !f->base_digest)
        rvi_log_write(log, RVI_LOG_WARN,
                      "%s: the adapter does not say which model it was trained on; only its shapes "
                      "were compared",
                      path);
    rvi_free(l.ranks);
    if (st)
        rvi_adapter_file_close(f);
    else
        *out = f;
    return st;
}

void rvi_adapter_file_close(rvi_adapter_file *f)
{
    if (!f) return;
    rvi_safetensors_close(f->safetensors);
    rvi_gguf_close(f->gguf);
    rvi_free(f->path);
    rvi_free(f->base_digest);
    rvi_free(f->provenance);
    rvi_free(f->pairs);
    rvi_free(f);
}

/* ---- an adapter from a file ---- */

static rv_status load_reordered(rvi_tensor **out, rvi_backend *be, const rvi_tensor_view *view,
                                const rvi_lora_target *t, rv_error *err)
{
    size_t n = (size_t)view->shape[0] * (size_t)view->shape[1];
    float *plain = rvi_alloc_array(n, sizeof *plain), *turned = rvi_alloc_array(n, sizeof *turned);
    rv_status st = RV_OK;
    if (!plain || !turned) st = rvi_nomem(err, view->name);
    if (!st) {
        rvi_dequantize(view->type, view->data, plain, n);
        rvi_lora_reorder(plain, turned, (int)view->shape[0], (int)view->shape[1], t->n_paired_heads,
                         t->paired);
        rvi_tensor_view copy = *view;
        copy.type = RVI_F32;
        copy.data = (const uint8_t *)turned;
        st = be->ops->floats_new(be, out, &copy, 0, err);
    }
    rvi_free(plain);
    rvi_free(turned);
    return st;
}

static rv_status load_pair(const rvi_adapter_file *f, rvi_adapter *a, int i, rv_error *err)
{
    const pair *p = &f->pairs[i];
    const rvi_lora_target *t = &f->targets[i];
    rvi_lora_slot *s = &a->slots[i];
    if (!p->a) return RV_OK;
    rvi_tensor_view va = *p->a, vb = *p->b;
    va.layer = vb.layer = s->layer = t->layer;
    rv_status st = a->be->ops->floats_new(a->be, &s->a, &va, 0, err);
    if (!st)
        st = t->n_paired_heads && t->paired != (f->gguf != NULL)
                 ? load_reordered(&s->b, a->be, &vb, t, err)
                 : a->be->ops->floats_new(a->be, &s->b, &vb, 0, err);
    s->scale = p->scale;
    if (!st) a->n_used++;
    return st;
}

rv_status rvi_adapter_file_load(const rvi_adapter_file *f, rvi_adapter **out, rvi_backend *be,
                                rv_error *err)
{
    rvi_adapter *a;
    *out = NULL;
    rv_status st = rvi_adapter_new(&a, be, f->n_targets, err);
    if (st) return st;
    for (int i = 0; !st && i < f->n_targets; i++) st = load_pair(f, a, i, err);
    if (!st) st = rvi_adapter_seal(a, err);
    if (!st) st = copy_text(&a->base_digest, text_of(f->base_digest), err);
    if (!st) st = copy_text(&a->provenance, text_of(f->provenance), err);
    if (!st)
        st = f->gguf ? rvi_gguf_check(f->gguf, err)
                     : rvi_safetensors_check(f->safetensors, f->path, err);
    if (st)
        rvi_adapter_free(a);
    else
        *out = a;
    return st;
}

rv_status rvi_adapter_load(rvi_adapter **out, rvi_backend *be, const char *path,
                           const rvi_lora_target *targets, int n_targets, const char *const *arch,
                           const char *base_digest, rv_error *err)
{
    rvi_adapter_file *f;
    *out = NULL;
    rv_status st =
        rvi_adapter_file_open(&f, path, targets, n_targets, arch, base_digest, be->log, err);
    if (!st) st = rvi_adapter_file_load(f, out, be, err);
    rvi_adapter_file_close(f);
    return st;
}
