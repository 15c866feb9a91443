#include "lora/write.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "formats/gguf_write.h"
#include "formats/safetensors.h"

static const char config_name[] = "adapter_config.json";
static const char tensors_name[] = "adapter_model.safetensors";
static const char origin_name[] = "ruvllm.json";

typedef struct writer {
    const rvi_adapter *a;
    const rvi_lora_target *targets;
    rvi_qtype type;
    rvi_adapter_note note;
    bool gguf;
    float alpha; /* of a GGUF file */
    rvi_arena arena;
    rvi_tensor_view *views; /* A and B of every slot that is not empty */
    size_t n_views;
    char checksum[RVI_SHA256_HEX];
    rv_error *err;
} writer;

/* ---- tensors ---- */

static rv_status add_view(writer *w, const char *name, int n_rows, int n_cols, const float *values)
{
    size_t n = (size_t)n_rows * (size_t)n_cols, size = rvi_qtypes[w->type].block_bytes;
    rvi_tensor_view *v = &w->views[w->n_views++];
    uint8_t *data = rvi_arena_alloc(&w->arena, n, size);
    if (!data) return rvi_nomem(w->err, "adapter");
    (void)rvi_quantize(w->type, values, data, n); /* both types can be written */
    *v = (rvi_tensor_view){.name = name,
                           .type = w->type,
                           .n_dims = 2,
                           .shape = {(uint64_t)n_rows, (uint64_t)n_cols},
                           .data = data,
                           .n_bytes = n * size};
    for (size_t i = 0; i < n; i++) {
        float kept = w->type == RVI_F16 ? rvi_f16_to_f32(rvi_f32_to_f16(values[i])) : values[i];
        if (!isfinite(kept))
            return rvi_error(w->err, RV_E_ADAPTER, "tensor '%s': %g cannot be written as %s", name,
                             (double)values[i], rvi_qtypes[w->type].name);
    }
    return RV_OK;
}

static const char *tensor_name(writer *w, const rvi_lora_target *t, bool is_b)
{
    char name[256];
    int n = w->gguf
                ? snprintf(name, sizeof name, "%s.weight.lora_%c", t->gguf_name, is_b ? 'b' : 'a')
                : snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", t->hf_name,
                           is_b ? 'B' : 'A');
    return rvi_arena_strndup(&w->arena, name, RVI_MIN((size_t)n, sizeof name - 1));
}

/* What turns B's rows and scale into those of the file; turned has room for them. */
static const float *file_b(const writer *w, int slot, float *b, float *turned)
{
    const rvi_lora_target *t = &w->targets[slot];
    int rank = rvi_adapter_rank(w->a, slot);
    if (w->gguf) {
        double factor = (double)w->a->slots[slot].scale * rank / (double)w->alpha;
        size_t n = (size_t)t->n_out * (size_t)rank;
        for (size_t i = 0; (float)factor != 1 && i < n; i++) b[i] = (float)(b[i] * factor);
    }
    if (!t->n_paired_heads || t->paired == w->gguf) return b;
    rvi_lora_reorder(b, turned, t->n_out, rank, t->n_paired_heads, !t->paired);
    return turned;
}

static rv_status add_slot(writer *w, int slot)
{
    const rvi_lora_target *t = &w->targets[slot];
    int rank = rvi_adapter_rank(w->a, slot);
    const char *own = w->gguf ? t->gguf_name : t->hf_name;
    if (!own[0])
        return rvi_error(w->err, RV_E_ADAPTER, "layer '%s' has no name in %s adapters",
                         w->gguf ? t->hf_name : t->gguf_name, w->gguf ? "GGUF" : "PEFT");
    size_t n_a = (size_t)rank * (size_t)t->n_in, n_b = (size_t)t->n_out * (size_t)rank;
    float *a = rvi_alloc_array(n_a + 2 * n_b, sizeof *a); /* A, B, and B again */
    const char *name_a = tensor_name(w, t, false), *name_b = tensor_name(w, t, true);
    rv_status st = a && name_a && name_b ? RV_OK : rvi_nomem(w->err, "adapter");
    if (!st) {
        float *b = a + n_a;
        rvi_adapter_read(w->a, slot, a, b);
        st = add_view(w, name_a, rank, t->n_in, a);
        if (!st) st = add_view(w, name_b, t->n_out, rank, file_b(w, slot, b, b + n_b));
    }
    rvi_free(a);
    return st;
}

/* The alpha of the first slot that has one, such that alpha / rank gives its scale again. */
static float choose_alpha(const rvi_adapter *a)
{
    for (int i = 0; i < a->n_slots; i++) {
        float scale = a->slots[i].scale, rank = (float)rvi_adapter_rank(a, i);
        if (!a->slots[i].a || scale == 0) continue;
        float alpha = scale * rank, up = nextafterf(alpha, INFINITY),
              down = nextafterf(alpha, -INFINITY);
        return alpha / rank == scale  ? alpha
               : up / rank == scale   ? up
               : down / rank == scale ? down
                                      : alpha;
    }
    return 1; /* scales of 0, then in B */
}

static rv_status check_note(writer *w)
{
    rvi_arena arena = {.max = 64 << 20};
    const rvi_json *root;
    rv_status st = RV_OK;
    const char *text = w->note.provenance;
    if (text) st = rvi_json_parse(&root, text, strlen(text), &arena, "provenance", w->err);
    if (!st && text && root->kind != RVI_JSON_OBJECT)
        st = rvi_error(w->err, RV_E_INVALID, "provenance must be a JSON object");
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status collect(writer *w)
{
    rvi_sha256 h;
    if (!w->a->n_used)
        return rvi_error(w->err, RV_E_ADAPTER, "an adapter without matrices cannot be written");
    if (w->type != RVI_F32 && w->type != RVI_F16)
        return rvi_error(w->err, RV_E_INVALID, "adapters are written as f32 or f16");
    rv_status st = check_note(w);
    if (st) return st;
    w->views = rvi_arena_alloc(&w->arena, 2 * (size_t)w->a->n_used, sizeof *w->views);
    if (!w->views) return rvi_nomem(w->err, "adapter");
    w->alpha = choose_alpha(w->a);
    for (int i = 0; !st && i < w->a->n_slots; i++)
        if (w->a->slots[i].a) st = add_slot(w, i);
    rvi_sha256_init(&h);
    for (size_t i = 0; !st && i < w->n_views; i++) rvi_lora_hash(&h, &w->views[i]);
    rvi_sha256_end_hex(&h, w->checksum);
    return st;
}

/* ---- adapter_config.json ---- */

/* The number between dots in a layer's name, or -1. */
static int layer_of(const char *name)
{
    for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.')) {
        size_t n = strspn(p + 1, "0123456789");
        if (!n || n > 6 || p[1 + n] != '.') continue;
        int layer = 0;
        for (size_t i = 1; i <= n; i++) layer = 10 * layer + (p[i] - '0');
        return layer;
    }
    return -1;
}

static const char *module_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

typedef enum same_what { SAME_MODULE, SAME_LAYER } same_what;

/* The first slot with an adapter that has t's module or layer, or -1. */
static int first_like(const writer *w, const rvi_lora_target *t, same_what what)
{
    for (int i = 0; i < w->a->n_slots; i++) {
        const char *name = w->targets[i].hf_name;
        if (!w->a->slots[i].a) continue;
        if (what == SAME_MODULE ? !strcmp(module_of(name), module_of(t->hf_name))
                                : layer_of(name) == layer_of(t->hf_name))
            return i;
    }
    return -1;
}

/* Are the slots exactly some kinds of modules in some layers? Then PEFT can say it so; if not,
 * every layer is listed by its name. all_layers: no layer with such modules is left out. */
static bool is_product(const writer *w, bool *all_layers)
{
    *all_layers = true;
    for (int i = 0; i < w->a->n_slots; i++) {
        const rvi_lora_target *t = &w->targets[i];
        bool used = w->a->slots[i].a != NULL, module = first_like(w, t, SAME_MODULE) >= 0,
             layer = first_like(w, t, SAME_LAYER) >= 0;
        if (used != (module && layer) || (used && layer_of(t->hf_name) < 0)) return false;
        if (module && !layer) *all_layers = false;
    }
    return true;
}

static void put_string(rvi_buf *b, const char *text)
{
    rvi_json_write_string(b, text, strlen(text));
}

static void put_number(rvi_buf *b, double v)
{
    if (v == floor(v) && fabs(v) < 1e15)
        rvi_buf_printf(b, "%.0f", v);
    else
        rvi_json_write_number(b, v);
}

static void put_targets(rvi_buf *b, const writer *w)
{
    bool all_layers, product = is_product(w, &all_layers), more = false;
    rvi_buf_puts(b, "  \"target_modules\": [");
    for (int i = 0; i < w->a->n_slots; i++) {
        const rvi_lora_target *t = &w->targets[i];
        if (!w->a->slots[i].a || (product && first_like(w, t, SAME_MODULE) != i)) continue;
        rvi_buf_puts(b, more ? ", " : "");
        put_string(b, product ? module_of(t->hf_name) : t->hf_name);
        more = true;
    }
    rvi_buf_puts(b, "],\n  \"layers_to_transform\": ");
    if (!product || all_layers) {
        rvi_buf_puts(b, "null,\n");
        return;
    }
    more = false;
    for (int i = 0; i < w->a->n_slots; i++) {
        const rvi_lora_target *t = &w->targets[i];
        if (!w->a->slots[i].a || first_like(w, t, SAME_LAYER) != i) continue;
        rvi_buf_printf(b, "%s%d", more ? ", " : "[", layer_of(t->hf_name));
        more = true;
    }
    rvi_buf_puts(b, "],\n");
}

/* In double the product is exact, and divided by the rank it is the scale again. */
static double alpha_of(const writer *w, int slot)
{
    return (double)w->a->slots[slot].scale * rvi_adapter_rank(w->a, slot);
}

/* The layers whose rank or alpha is not that of the first one. PEFT looks for a key behind a dot in
 * the layer's name, so the first part of the name is left away. */
static void put_pattern(rvi_buf *b, const writer *w, const char *field, int first,
                        double (*value)(const writer *w, int slot))
{
    static const char prefix[] = "model.";
    bool more = false;
    rvi_buf_printf(b, "  \"%s\": {", field);
    for (int i = first; i < w->a->n_slots; i++) {
        if (!w->a->slots[i].a || value(w, i) == value(w, first)) continue;
        const char *name = w->targets[i].hf_name;
        rvi_buf_puts(b, more ? ", " : "");
        put_string(b, strncmp(name, prefix, strlen(prefix)) ? name : name + strlen(prefix));
        rvi_buf_puts(b, ": ");
        put_number(b, value(w, i));
        more = true;
    }
    rvi_buf_puts(b, "},\n");
}

static double rank_of(const writer *w, int slot)
{
    return rvi_adapter_rank(w->a, slot);
}

static void put_config(rvi_buf *b, const writer *w)
{
    int first = 0;
    while (!w->a->slots[first].a) first++;
    rvi_buf_puts(b, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                    "  \"base_model_name_or_path\": ");
    if (w->note.base_name)
        put_string(b, w->note.base_name);
    else
        rvi_buf_puts(b, "null");
    rvi_buf_printf(b, ",\n  \"r\": %d,\n  \"lora_alpha\": ", rvi_adapter_rank(w->a, first));
    put_number(b, alpha_of(w, first));
    rvi_buf_puts(b, ",\n");
    put_targets(b, w);
    put_pattern(b, w, "rank_pattern", first, rank_of);
    put_pattern(b, w, "alpha_pattern", first, alpha_of);
    rvi_buf_puts(b,
                 "  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n"
                 "  \"use_rslora\": false,\n  \"use_dora\": false,\n"
                 "  \"modules_to_save\": null,\n  \"inference_mode\": true\n}\n");
}

static void put_origin(rvi_buf *b, const writer *w)
{
    rvi_buf_puts(b, "{\n  \"base_digest\": ");
    if (w->note.base_digest)
        put_string(b, w->note.base_digest);
    else
        rvi_buf_puts(b, "null");
    rvi_buf_printf(b, ",\n  \"tensors_sha256\": \"%s\",\n  \"provenance\": %s\n}\n", w->checksum,
                   w->note.provenance ? w->note.provenance : "null");
}

/* ---- files ---- */

static rv_status write_text(const writer *w, const rvi_buf *text, const char *path)
{
    if (text->failed) return rvi_nomem(w->err, path);
    FILE *f = fopen(path, "wb");
    if (!f)
        return rvi_error(w->err, RV_E_IO, "%s: cannot open for writing: %s", path, strerror(errno));
    rv_status st = rvi_os_write(f, text->data, text->len, path, w->err);
    if (!st) st = rvi_os_sync(f, path, w->err);
    if (fclose(f) && !st)
        st = rvi_error(w->err, RV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return st;
}

static rv_status write_json(const writer *w, const char *dir, const char *name,
                            void (*put)(rvi_buf *b, const writer *w))
{
    rvi_buf text = {0}, path = {0};
    put(&text, w);
    rv_status st = rvi_buf_printf(&path, "%s/%s", dir, name) ? write_text(w, &text, path.data)
                                                             : rvi_nomem(w->err, "path");
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&path);
    return st;
}

static rv_status write_tensors(const writer *w, const char *dir)
{
    rvi_st_meta meta[4] = {{"format", "pt"}, {RVI_LORA_CHECKSUM, w->checksum}};
    size_t n = 2;
    if (w->note.base_digest) meta[n++] = (rvi_st_meta){RVI_LORA_BASE_DIGEST, w->note.base_digest};
    if (w->note.provenance) meta[n++] = (rvi_st_meta){RVI_LORA_PROVENANCE, w->note.provenance};
    rvi_buf path = {0};
    rv_status st =
        rvi_buf_printf(&path, "%s/%s", dir, tensors_name)
            ? rvi_safetensors_write_views(path.data, w->views, w->n_views, meta, n, w->err)
            : rvi_nomem(w->err, "path");
    if (!st) st = rvi_os_sync_parent(path.data, w->err);
    rvi_buf_deinit(&path);
    return st;
}

static int find_other(void *ctx, const char *name)
{
    bool *other = ctx;
    *other = strcmp(name, config_name) && strcmp(name, tensors_name) && strcmp(name, origin_name);
    return *other;
}

/* A directory with anything else in it is not ours to replace. */
static rv_status check_place(const writer *w, const char *dir)
{
    bool other = false;
    rvi_os_kind kind = rvi_os_stat(dir, NULL);
    if (kind == RVI_OS_NONE) return RV_OK;
    if (kind != RVI_OS_DIR)
        return rvi_error(w->err, RV_E_IO, "%s: exists and is not a directory", dir);
    rv_status st = rvi_os_list(dir, find_other, &other, w->err);
    if (!st && other)
        st = rvi_error(w->err, RV_E_IO,
                       "%s: not replaced, because it holds files that are not an adapter's", dir);
    return st;
}

/* An unused name in the directory of path. */
static rv_status temporary(rvi_buf *out, const char *path, size_t len, rv_error *err)
{
    return rvi_buf_append(out, path, len) &&
                   rvi_buf_printf(out, ".tmp-%016" PRIx64, rvi_os_random())
               ? RV_OK
               : rvi_nomem(err, "path");
}

static rv_status write_peft_dir(writer *w, const char *dir)
{
    rvi_buf temp = {0};
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') len--;
    rv_status st = check_place(w, dir);
    if (!st) st = temporary(&temp, dir, len, w->err);
    if (!st) {
        st = rvi_os_make_dirs(temp.data, w->err);
        if (!st) st = write_json(w, temp.data, config_name, put_config);
        if (!st) st = write_json(w, temp.data, origin_name, put_origin);
        if (!st) st = write_tensors(w, temp.data);
        if (!st) st = rvi_os_replace_dir(temp.data, dir, w->err);
        if (!st)
            st = rvi_os_sync_parent(dir, w->err);
        else
            rvi_os_remove_tree(temp.data);
    }
    rvi_buf_deinit(&temp);
    return st;
}

static rv_status write_gguf_file(writer *w, const char *arch, const char *path)
{
    rvi_gguf_entry values[7] = {{"general.type", "adapter", 0},
                                {"general.architecture", arch, 0},
                                {"adapter.type", "lora", 0},
                                {"adapter.lora.alpha", NULL, w->alpha},
                                {RVI_LORA_CHECKSUM, w->checksum, 0}};
    size_t n = 5;
    if (w->note.base_digest)
        values[n++] = (rvi_gguf_entry){RVI_LORA_BASE_DIGEST, w->note.base_digest, 0};
    if (w->note.provenance)
        values[n++] = (rvi_gguf_entry){RVI_LORA_PROVENANCE, w->note.provenance, 0};
    rvi_buf temp = {0};
    rv_status st = temporary(&temp, path, strlen(path), w->err);
    if (!st) {
        st = rvi_gguf_write(temp.data, values, n, w->views, w->n_views, w->err);
        if (!st) st = rvi_os_replace(temp.data, path, w->err);
        if (!st)
            st = rvi_os_sync_parent(path, w->err);
        else
            rvi_os_remove_tree(temp.data);
    }
    rvi_buf_deinit(&temp);
    return st;
}

static rv_status write_adapter(writer *w, const char *arch, const char *path)
{
    rv_status st = collect(w);
    if (!st) st = w->gguf ? write_gguf_file(w, arch, path) : write_peft_dir(w, path);
    rvi_arena_deinit(&w->arena);
    return st;
}

rv_status rvi_adapter_write_peft(const rvi_adapter *a, const rvi_lora_target *targets,
                                 const char *dir, rvi_qtype type, const rvi_adapter_note *note,
                                 rv_error *err)
{
    writer w = {.a = a, .targets = targets, .type = type, .err = err};
    if (note) w.note = *note;
    return write_adapter(&w, NULL, dir);
}

rv_status rvi_adapter_write_gguf(const rvi_adapter *a, const rvi_lora_target *targets,
                                 const char *arch, const char *path, rvi_qtype type,
                                 const rvi_adapter_note *note, rv_error *err)
{
    writer w = {.a = a, .targets = targets, .type = type, .gguf = true, .err = err};
    if (note) w.note = *note;
    return write_adapter(&w, arch, path);
}
