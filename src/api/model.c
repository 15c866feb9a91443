/* Opening a model: files, weights, tokenizer, chat template, the set of tokens that end an answer.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "model/digest.h"

/* ---- tokenizer ---- */

typedef struct optional_file {
    const char *name;
    rvi_blob blob;
} optional_file;

enum { TOKENIZER, TOKENIZER_CONFIG, GENERATION, SPECIAL_MAP, TEMPLATE, N_FILES };

static rv_status open_optional(optional_file *f, const char *dir, rv_error *err)
{
    rvi_buf path = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&path, "%s/%s", dir, f->name))
        st = rvi_nomem(err, "path");
    else if (rvi_os_stat(path.data, NULL) == RVI_OS_FILE)
        st = rvi_blob_open(&f->blob, path.data, err);
    rvi_buf_deinit(&path);
    return st;
}

static rv_status tokenizer_from_dir(rv_model *m, const char *dir, rv_error *err)
{
    optional_file f[N_FILES] = {{"tokenizer.json", {0}},
                                {"tokenizer_config.json", {0}},
                                {"generation_config.json", {0}},
                                {"special_tokens_map.json", {0}},
                                {"chat_template.jinja", {0}}};
    rv_status st = RV_OK;
    for (int i = 0; !st && i < N_FILES; i++) st = open_optional(&f[i], dir, err);
    if (!st && f[TOKENIZER].blob.data) {
        rvi_tokenizer_files files = {
            .tokenizer = (const char *)f[TOKENIZER].blob.data,
            .tokenizer_len = f[TOKENIZER].blob.len,
            .config = (const char *)f[TOKENIZER_CONFIG].blob.data,
            .config_len = f[TOKENIZER_CONFIG].blob.len,
            .generation = (const char *)f[GENERATION].blob.data,
            .generation_len = f[GENERATION].blob.len,
            .special_map = (const char *)f[SPECIAL_MAP].blob.data,
            .special_map_len = f[SPECIAL_MAP].blob.len,
            .template_text = (const char *)f[TEMPLATE].blob.data,
            .template_len = f[TEMPLATE].blob.len,
        };
        st = rvi_tokenizer_from_json(&m->tokenizer, &files, &m->rt->log, err);
    }
    for (int i = 0; i < N_FILES; i++) {
        if (!st) st = rvi_blob_check(&f[i].blob, f[i].name, err);
        rvi_blob_close(&f[i].blob);
    }
    return st;
}

static bool has_token(void *ctx, const char *text)
{
    return rvi_tokenizer_find(ctx, text, strlen(text)) >= 0;
}

static rv_status make_chat(rv_model *m, const char *arch, rv_error *err)
{
    const rvi_tokenizer *t = m->tokenizer;
    size_t len;
    rvi_chat_source src = {.arch = arch, .has_token = has_token, .ctx = m->tokenizer};
    src.template_text = rvi_tokenizer_chat_template(t, &src.template_len);
    src.bos_token = rvi_tokenizer_special_text(t, "bos_token", &len);
    src.eos_token = rvi_tokenizer_special_text(t, "eos_token", &len);
    src.unk_token = rvi_tokenizer_special_text(t, "unk_token", &len);
    src.pad_token = rvi_tokenizer_special_text(t, "pad_token", &len);
    return rvi_chat_new(&m->chat, &src, err);
}

/* ---- tokens that end an answer ---- */

static bool add_eos(rv_model *m, int64_t id)
{
    if (id < 0 || id > INT32_MAX) return true;
    for (size_t i = 0; i < m->eos.len; i++)
        if (m->eos.data[i] == id) return true;
    return rvi_ids_push(&m->eos, (int32_t)id);
}

/* The special token with which the template closes an assistant's turn, whatever the metadata says.
 */
static rv_status add_turn_end(rv_model *m, rv_error *err)
{
    rvi_ids ids = {0};
    size_t len;
    const char *text = rvi_chat_turn_end(m->chat, &len);
    while (len && strchr(" \t\r\n", *text)) {
        text++;
        len--;
    }
    rv_status st = len ? rvi_tokenizer_encode(m->tokenizer, text, len, 0, &ids, err) : RV_OK;
    if (!st && ids.len && rvi_tokenizer_is_special(m->tokenizer, ids.data[0]) &&
        !add_eos(m, ids.data[0]))
        st = rvi_nomem(err, "end tokens");
    rvi_ids_deinit(&ids);
    return st;
}

static rv_status collect_eos(rv_model *m, rv_error *err)
{
    bool ok = true;
    if (m->tokenizer)
        for (int32_t id = 0; ok && id < rvi_tokenizer_size(m->tokenizer); id++)
            if (rvi_tokenizer_is_eos(m->tokenizer, id)) ok = add_eos(m, id);
    const rvi_json *ids = m->model ? rvi_json_get(m->model->source->config, "eos_token_id") : NULL;
    if (rvi_json_is(ids, RVI_JSON_INT)) ok = ok && add_eos(m, ids->as.integer);
    for (size_t i = 0; ok && rvi_json_is(ids, RVI_JSON_ARRAY) && i < rvi_json_count(ids); i++)
        ok = add_eos(m, rvi_json_int(rvi_json_at(ids, i), -1));
    if (!ok) return rvi_nomem(err, "end tokens");
    return m->chat ? add_turn_end(m, err) : RV_OK;
}

/* ---- open and close ---- */

static rv_status model_new(rv_model **out, rv_runtime *rt, const char *name, rv_error *err)
{
    rv_model *m = rvi_zalloc(sizeof *m);
    *out = m;
    if (!m) return rvi_nomem(err, "model");
    atomic_init(&m->users, 1);
    m->rt = rvi_api_retain_runtime(rt);
    size_t len = strlen(name);
    m->name = rvi_alloc_array(len + 1, 1);
    if (!m->name) return rvi_nomem(err, "model");
    memcpy(m->name, name, len + 1);
    return RV_OK;
}

/* The architecture's name in the file. */
static void arch_name(const rvi_source *s, char *out, size_t size)
{
    rvi_str name = {"", 0};
    if (s->gguf) {
        (void)rvi_gguf_get_str(s->gguf, "general.architecture", &name);
        snprintf(out, size, "%.*s", (int)RVI_MIN(name.len, size), name.data);
    } else {
        snprintf(out, size, "%s", rvi_json_string(rvi_json_get(s->config, "model_type"), ""));
    }
}

/* The same for a directory opened for its vocabulary; "" if it has no readable config.json. */
static rv_status dir_arch_name(const char *dir, char *out, size_t size, rv_error *err)
{
    optional_file f = {"config.json", {0}};
    rvi_arena arena = {.max = 16 << 20};
    const rvi_json *config = NULL;
    rv_status st = open_optional(&f, dir, err);
    if (!st && f.blob.data)
        st = rvi_json_parse(&config, (const char *)f.blob.data, f.blob.len, &arena, f.name, err);
    if (!st) snprintf(out, size, "%s", rvi_json_string(rvi_json_get(config, "model_type"), ""));
    rvi_blob_close(&f.blob);
    rvi_arena_deinit(&arena);
    return st == RV_E_NOMEM ? st : RV_OK;
}

/* Everything after the files are open. dir: where tokenizer.json may lie, NULL for GGUF. */
static rv_status finish_open(rv_model *m, rvi_source *take, const char *dir, unsigned flags,
                             rv_error *err)
{
    char arch[32] = "";
    rv_status st = RV_OK;
    if (take) {
        arch_name(take, arch, sizeof arch);
        if (take->gguf && rvi_gguf_find(take->gguf, "tokenizer.ggml.tokens"))
            st = rvi_tokenizer_from_gguf(&m->tokenizer, take->gguf, &m->rt->log, err);
        if (st || (flags & RV_OPEN_VOCABULARY))
            m->vocab_source = take;
        else
            st = rvi_model_new(&m->model, m->rt->be, take, err);
    }
    if (!take && dir) st = dir_arch_name(dir, arch, sizeof arch, err);
    if (!st && dir) st = tokenizer_from_dir(m, dir, err);
    if (!st && m->tokenizer) st = make_chat(m, arch[0] ? arch : NULL, err);
    if (!st) st = collect_eos(m, err);
    if (!st && take) st = rvi_source_check(take, err);
    if (!st && m->model && m->tokenizer && rvi_tokenizer_size(m->tokenizer) > m->model->hp.n_vocab)
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "%s: the tokenizer has %d tokens, the model only %d", m->name,
                      rvi_tokenizer_size(m->tokenizer), m->model->hp.n_vocab);
    if (!st && (flags & RV_OPEN_VOCABULARY) && !m->tokenizer)
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "%s: no tokenizer in it (tokenizer.json, or a GGUF file with a vocabulary)",
                       m->name);
    return st;
}

/* With RV_OPEN_VOCABULARY a GGUF file needs no known architecture: only its tokenizer is read. */
static rv_status open_gguf_vocabulary(rvi_source **out, const char *path, rvi_blob *blob,
                                      rv_error *err)
{
    rvi_source *s = rvi_zalloc(sizeof *s);
    *out = s;
    if (!s) {
        if (blob) rvi_blob_close(blob);
        return rvi_nomem(err, "model");
    }
    rv_status st =
        blob ? rvi_gguf_open_blob(&s->gguf, blob, path, err) : rvi_gguf_open(&s->gguf, path, err);
    if (st) {
        rvi_source_close(s);
        *out = NULL;
    }
    return st;
}

static rv_status check_open(rv_model **out, const rv_runtime *rt, const void *what, rv_error *err)
{
    if (!out || !rt || !what) return rvi_error(err, RV_E_INVALID, "rv_model_open: NULL argument");
    *out = NULL;
    return RV_OK;
}

rv_status rv_model_open(rv_model **out, rv_runtime *rt, const char *path, unsigned flags,
                        rv_error *err)
{
    rv_status st = check_open(out, rt, path, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_model *m;
    rvi_source *source = NULL;
    bool dir = rvi_os_stat(path, NULL) == RVI_OS_DIR;
    st = model_new(&m, rt, path, err);
    if (!st && !dir && (flags & RV_OPEN_VOCABULARY))
        st = open_gguf_vocabulary(&source, path, NULL, err);
    else if (!st && !(dir && (flags & RV_OPEN_VOCABULARY)))
        st = rvi_source_open(&source, path, err);
    if (!st) st = finish_open(m, source, dir ? path : NULL, flags, err);
    rvi_api_leave_heap(heap);
    if (st)
        rvi_api_release_model(m);
    else
        *out = m;
    return st;
}

static rv_status open_blob(rv_model **out, rv_runtime *rt, rvi_blob *take, const char *name,
                           unsigned flags, rv_error *err)
{
    rv_model *m;
    rvi_source *source = NULL;
    rv_status st = model_new(&m, rt, name, err);
    if (st)
        rvi_blob_close(take);
    else
        st = flags & RV_OPEN_VOCABULARY ? open_gguf_vocabulary(&source, name, take, err)
                                        : rvi_source_open_gguf_blob(&source, take, name, err);
    if (!st) st = finish_open(m, source, NULL, flags, err);
    if (st)
        rvi_api_release_model(m);
    else
        *out = m;
    return st;
}

rv_status rv_model_open_memory(rv_model **out, rv_runtime *rt, const void *data, size_t len,
                               const char *name, unsigned flags, rv_error *err)
{
    rv_status st = check_open(out, rt, data, err);
    if (st) return st;
    rvi_blob blob;
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rvi_blob_from_memory(&blob, data, len);
    st = open_blob(out, rt, &blob, name ? name : "model", flags, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_model_open_reader(rv_model **out, rv_runtime *rt, rv_read_fn read, void *ctx,
                               uint64_t len, const char *name, unsigned flags, rv_error *err)
{
    rv_status st = check_open(out, rt, read ? rt : NULL, err);
    if (st) return st;
    rvi_blob blob;
    rv_runtime *own = rvi_api_retain_runtime(rt); /* read may free it */
    const rv_allocator *heap = rvi_api_use_heap(rt);
    st = rvi_blob_read(&blob, read, ctx, len, name ? name : "model", err);
    if (!st) st = open_blob(out, rt, &blob, name ? name : "model", flags, err);
    rvi_api_leave_heap(heap);
    rvi_api_release_runtime(own);
    return st;
}

rv_model *rvi_api_retain_model(const rv_model *m)
{
    rv_model *own = (rv_model *)(uintptr_t)m;
    atomic_fetch_add(&own->users, 1);
    return own;
}

void rvi_api_release_model(rv_model *m)
{
    if (!m || atomic_fetch_sub(&m->users, 1) != 1) return;
    rv_runtime *rt = m->rt;
    rvi_chat_free(m->chat);
    rvi_tokenizer_free(m->tokenizer);
    rvi_model_free(m->model);
    rvi_source_close(m->vocab_source);
    rvi_ids_deinit(&m->eos);
    rvi_free(m->name);
    rvi_free(m);
    rvi_api_release_runtime(rt);
}

void rv_model_close(rv_model **m)
{
    if (!m) return;
    rvi_api_release_model(*m);
    *m = NULL;
}

/* ---- describing ---- */

static const rvi_source *source_of(const rv_model *m)
{
    return m->model ? m->model->source : m->vocab_source;
}

/* The type most weights have. */
static const char *main_type(const rvi_source *s)
{
    uint64_t count[RVI_QTYPE_COUNT] = {0};
    size_t best = 0;
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        count[v->type] +=
            v->n_bytes / rvi_qtypes[v->type].block_bytes * rvi_qtypes[v->type].block_weights;
    }
    for (size_t t = 1; t < RVI_QTYPE_COUNT; t++)
        if (count[t] > count[best]) best = t;
    return rvi_qtypes[best].name;
}

rv_status rv_model_digest(const rv_model *m, char out[65], rv_error *err)
{
    if (!m || !out) return rvi_error(err, RV_E_INVALID, "rv_model_digest: NULL argument");
    out[0] = 0;
    rv_status st = rvi_api_need_weights(m, err);
    return st ? st : rvi_model_digest(m->model->source, m->rt->be, out, err);
}

rv_status rv_model_get_info(const rv_model *m, rv_model_info *out)
{
    if (!m || !out) return RV_E_INVALID;
    *out = (rv_model_info){0};
    const rvi_source *s = source_of(m);
    rvi_str name;
    const char *base = strrchr(m->name, '/');
    snprintf(out->name, sizeof out->name, "%s", base && base[1] ? base + 1 : m->name);
    if (s) {
        arch_name(s, out->architecture, sizeof out->architecture);
        if (s->gguf && rvi_gguf_get_str(s->gguf, "general.name", &name))
            snprintf(out->name, sizeof out->name, "%.*s", (int)RVI_MIN(name.len, sizeof out->name),
                     name.data);
        out->file_bytes = rvi_source_bytes(s);
    }
    if (m->model) {
        const rvi_hparams *h = &m->model->hp;
        snprintf(out->type, sizeof out->type, "%s", main_type(s));
        out->n_params = m->model->n_params;
        out->n_layers = h->n_layers;
        out->n_embd = h->n_embd;
        out->n_ff = h->n_ff;
        out->n_heads = h->n_heads;
        out->n_kv_heads = h->n_kv_heads;
        out->head_size = h->head_size;
        out->n_context = h->n_context;
        out->n_vocab = h->n_vocab;
        out->is_encoder = m->model->arch->is_encoder;
    } else if (m->tokenizer) {
        out->n_vocab = rvi_tokenizer_size(m->tokenizer);
    }
    out->bos = m->tokenizer ? rvi_tokenizer_bos(m->tokenizer) : -1;
    out->eos = m->eos.data;
    out->n_eos = m->eos.len;
    if (m->tokenizer) {
        size_t len;
        out->has_tokenizer = 1;
        out->has_template = rvi_tokenizer_chat_template(m->tokenizer, &len) != NULL;
        snprintf(out->tokenizer, sizeof out->tokenizer, "%s", rvi_tokenizer_kind(m->tokenizer));
        snprintf(out->chat_template, sizeof out->chat_template, "%s", rvi_chat_name(m->chat));
    }
    return RV_OK;
}

static void describe_types(const rvi_source *s, rvi_buf *b)
{
    uint64_t count[RVI_QTYPE_COUNT] = {0}, bytes[RVI_QTYPE_COUNT] = {0};
    bool first = true;
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        count[v->type]++;
        bytes[v->type] += v->n_bytes;
    }
    rvi_buf_puts(b, ",\"types\":{");
    for (size_t t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (!count[t]) continue;
        rvi_buf_printf(b, "%s\"%s\":{\"tensors\":%llu,\"bytes\":%llu}", first ? "" : ",",
                       rvi_qtypes[t].name, (unsigned long long)count[t],
                       (unsigned long long)bytes[t]);
        first = false;
    }
    rvi_buf_puts(b, "}");
}

static void describe_tensors(const rvi_source *s, rvi_buf *b)
{
    rvi_buf_puts(b, ",\"tensors\":[");
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        rvi_buf_puts(b, i ? ",{\"name\":" : "{\"name\":");
        rvi_json_write_string(b, v->name, strlen(v->name));
        rvi_buf_printf(b, ",\"type\":\"%s\",\"shape\":[", rvi_qtypes[v->type].name);
        for (int d = 0; d < v->n_dims; d++)
            rvi_buf_printf(b, d ? ",%llu" : "%llu", (unsigned long long)v->shape[d]);
        rvi_buf_printf(b, "],\"bytes\":%llu}", (unsigned long long)v->n_bytes);
    }
    rvi_buf_puts(b, "]");
}

rv_status rv_model_describe(const rv_model *m, int with_tensors, char **json, rv_error *err)
{
    rv_model_info info;
    if (json) *json = NULL;
    if (!json || rv_model_get_info(m, &info))
        return rvi_error(err, RV_E_INVALID, "rv_model_describe: NULL argument");
    const rvi_source *s = source_of(m);
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rvi_buf b = {0};
    rvi_buf_puts(&b, "{\"name\":");
    rvi_json_write_string(&b, info.name, strlen(info.name));
    rvi_buf_puts(&b, ",\"architecture\":");
    rvi_json_write_string(&b, info.architecture, strlen(info.architecture));
    rvi_buf_printf(
        &b, ",\"parameters\":%llu,\"type\":\"%s\",\"file_bytes\":%llu,\"weight_bytes\":%llu",
        (unsigned long long)info.n_params, info.type, (unsigned long long)info.file_bytes,
        (unsigned long long)(m->model ? m->model->weight_bytes : 0));
    rvi_buf_printf(&b,
                   ",\"layers\":%d,\"embedding\":%d,\"feed_forward\":%d,\"heads\":%d,\"kv_heads\":%"
                   "d,\"head_size\":%d,\"vocabulary\":%d,\"context\":%d",
                   info.n_layers, info.n_embd, info.n_ff, info.n_heads, info.n_kv_heads,
                   info.head_size, info.n_vocab, info.n_context);
    rvi_buf_puts(&b, ",\"tokenizer\":");
    if (info.has_tokenizer)
        rvi_json_write_string(&b, info.tokenizer, strlen(info.tokenizer));
    else
        rvi_buf_puts(&b, "null");
    rvi_buf_puts(&b, ",\"template\":");
    if (info.has_tokenizer)
        rvi_json_write_string(&b, info.chat_template, strlen(info.chat_template));
    else
        rvi_buf_puts(&b, "null");
    size_t len;
    const char *text = m->tokenizer ? rvi_tokenizer_chat_template(m->tokenizer, &len) : NULL;
    if (text) {
        rvi_buf_puts(&b, ",\"template_text\":");
        rvi_json_write_string(&b, text, len);
    }
    rvi_buf_puts(&b, ",\"eos\":[");
    for (size_t i = 0; i < m->eos.len; i++) rvi_buf_printf(&b, i ? ",%d" : "%d", m->eos.data[i]);
    rvi_buf_puts(&b, "]");
    if (s) describe_types(s, &b);
    if (s && with_tensors) describe_tensors(s, &b);
    rvi_buf_puts(&b, "}");
    rv_status st = rvi_api_give_text(&b, json, NULL, err);
    rvi_api_leave_heap(heap);
    return st;
}
