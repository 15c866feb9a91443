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
    const char *path;
    bool gguf; /* the file's row order for paired heads */
    rv_error *err;
} loader;

/* Turns the rows of B between the half-split order of PEFT and the pairwise order of GGUF: within a
 * head of n rows, pairwise row 2 j + s is half-split row s n / 2 + j. */
static void reorder_heads(const float *from, float *to, int n_out, int rank, int n_heads,
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
}

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
        reorder_heads(plain, turned, (int)view->shape[0], (int)view->shape[1], t->n_paired_heads,
                      t->paired);
        rvi_tensor_view copy = *view;
        copy.type = RVI_F32;
        copy.data = (const uint8_t *)turned;
        st = be->ops->floats_new(be, out, &copy, 0, l->err);
    }
    rvi_free(plain);
    rvi_free(turned);
    return st;
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
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s': rank %llu is not between 1 and %d",
                         l->path, view->name, (unsigned long long)rank, RVI_MAX_RANK);
    rvi_tensor **out = is_b ? &s->b : &s->a;
    if (*out)
        return rvi_error(l->err, RV_E_ADAPTER, "%s: tensor '%s' is given twice", l->path,
                         view->name);
    l->a->max_rank = RVI_MAX(l->a->max_rank, (int)rank);
    if (is_b && t->n_paired_heads && t->paired != l->gguf) return load_reordered(l, out, view, t);
    return be->ops->floats_new(be, out, view, 0, l->err);
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
    return rvi_error(l->err, RV_E_ADAPTER,
                     "%s: tensor '%s' has no place in this model (an adapter of another model, or "
                     "of a kind that is not offered)",
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

static rv_status peft_scales(loader *l, const rvi_json *config)
{
    double r = rvi_json_number(rvi_json_get(config, "r"), 0),
           alpha = rvi_json_number(rvi_json_get(config, "lora_alpha"), 0);
    bool rs = rvi_json_bool(rvi_json_get(config, "use_rslora"), false);
    const rvi_json *bias = rvi_json_get(config, "bias");
    if (!(r >= 1) || !isfinite(alpha))
        return rvi_error(l->err, RV_E_ADAPTER,
                         "%s: adapter_config.json lacks a valid 'r' or 'lora_alpha'", l->path);
    if (rvi_json_bool(rvi_json_get(config, "use_dora"), false))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: DoRA adapters are not offered", l->path);
    if (rvi_json_bool(rvi_json_get(config, "fan_in_fan_out"), false))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: fan_in_fan_out adapters are not offered",
                         l->path);
    if (bias && !rvi_json_is_string(bias, "none"))
        return rvi_error(l->err, RV_E_ADAPTER, "%s: adapters with trained biases are not offered",
                         l->path);
    for (int i = 0; i < l->n_targets; i++) {
        double rank = pattern(rvi_json_get(config, "rank_pattern"), l->targets[i].hf_name, r);
        double top = pattern(rvi_json_get(config, "alpha_pattern"), l->targets[i].hf_name, alpha);
        l->a->slots[i].scale = (float)(top / (rs ? sqrt(rank) : rank));
    }
    return RV_OK;
}

static rv_status load_peft(loader *l)
{
    rvi_safetensors *st_file = NULL;
    rvi_arena arena = {.max = 16 << 20};
    rvi_blob blob = {0};
    rvi_buf path = {0};
    const rvi_json *config;
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&path, "%s/adapter_config.json", l->path)) st = rvi_nomem(l->err, "path");
    if (!st) st = rvi_blob_open(&blob, path.data, l->err);
    if (!st)
        st = rvi_json_parse(&config, (const char *)blob.data, blob.len, &arena, path.data, l->err);
    if (!st) st = peft_scales(l, config);
    path.len = 0;
    if (!st && !rvi_buf_printf(&path, "%s/adapter_model.safetensors", l->path))
        st = rvi_nomem(l->err, "path");
    if (!st) st = rvi_safetensors_open(&st_file, path.data, l->err);
    for (size_t i = 0; !st && i < rvi_safetensors_n_tensors(st_file); i++)
        st = add_peft(l, rvi_safetensors_tensor_at(st_file, i));
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
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: only LoRA adapters are offered (adapter.type)",
                       l->path);
    else if (rvi_gguf_get_str(g, "general.architecture", &text) && !named(arch, text))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: an adapter for '%.*s', but the model is '%s'",
                       l->path, (int)RVI_MIN(text.len, (size_t)64), text.data, arch[0]);
    else if (!rvi_gguf_get_f32(g, "adapter.lora.alpha", &alpha) || !isfinite(alpha))
        st = rvi_error(l->err, RV_E_ADAPTER, "%s: 'adapter.lora.alpha' is missing", l->path);
    for (size_t i = 0; !st && i < rvi_gguf_n_tensors(g); i++)
        st = add_gguf(l, rvi_gguf_tensor_at(g, i));
    for (int i = 0; !st && i < l->n_targets; i++)
        l->a->slots[i].scale = alpha; /* divided by the rank below */
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
        if (l->gguf) s->scale /= (float)rank_a;
        l->a->n_used++;
    }
    return l->a->n_used ? RV_OK
                        : rvi_error(l->err, RV_E_ADAPTER, "%s: no adapter tensors in it", l->path);
}

rv_status rvi_adapter_load(rvi_adapter **out, rvi_backend *be, const char *path,
                           const rvi_lora_target *targets, int n_targets, const char *const *arch,
                           rv_error *err)
{
    *out = NULL;
    rvi_adapter *a = rvi_zalloc(sizeof *a);
    if (!a) return rvi_nomem(err, "adapter");
    a->be = be;
    a->n_slots = n_targets;
    a->slots = rvi_zalloc_array((size_t)n_targets, sizeof *a->slots);
    loader l = {.a = a, .targets = targets, .n_targets = n_targets, .path = path, .err = err};
    rv_status st = a->slots ? RV_OK : rvi_nomem(err, "adapter");
    if (!st) st = rvi_os_stat(path, NULL) == RVI_OS_DIR ? load_peft(&l) : load_gguf(&l, arch);
    if (!st) st = check_slots(&l);
    if (st)
        rvi_adapter_free(a);
    else
        *out = a;
    return st;
}

void rvi_adapter_free(rvi_adapter *a)
{
    if (!a) return;
    for (int i = 0; a->slots && i < a->n_slots; i++) {
        a->be->ops->tensor_free(a->be, a->slots[i].a);
        a->be->ops->tensor_free(a->be, a->slots[i].b);
    }
    rvi_free(a->slots);
    rvi_free(a);
}
