/* Opening a model: files, weights, tokenizer, chat template, the set of tokens that end an answer.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "base/resident.h"

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

static rv_status make_chat(rv_model *m, const char *arch, const char *template_text, rv_error *err)
{
    const rvi_tokenizer *t = m->tokenizer;
    size_t len;
    rvi_chat_source src = {.arch = arch, .has_token = has_token, .ctx = m->tokenizer};
    m->template_text = rvi_tokenizer_chat_template(t, &m->template_len);
    if (template_text) {
        m->template_len = strlen(template_text);
        m->template_text = rvi_arena_strndup(&m->texts, template_text, m->template_len);
        if (!m->template_text) return rvi_nomem(err, "chat template");
    }
    src.template_text = m->template_text;
    src.template_len = m->template_len;
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
    m->texts.max = 1 << 20;
    m->name = rvi_alloc_array(len + 1, 1);
    if (!m->name) return rvi_nomem(err, "model");
    memcpy(m->name, name, len + 1);
    return RV_OK;
}

/* The architecture's name in the file. */
void rvi_api_arch_name(const rvi_source *s, char *out, size_t size)
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

/* The tokenizer, read while the weights are packed. dir: NULL for GGUF */
typedef struct vocabulary {
    rv_model *m;
    const rvi_gguf *file;
    const char *dir;
    rv_status st;
    rv_error err;
} vocabulary;

static void read_vocabulary(void *ctx)
{
    vocabulary *v = ctx;
    if (v->dir)
        v->st = tokenizer_from_dir(v->m, v->dir, &v->err);
    else if (v->file && rvi_gguf_find(v->file, "tokenizer.ggml.tokens"))
        v->st = rvi_tokenizer_from_gguf(&v->m->tokenizer, v->file, &v->m->rt->log, &v->err);
}

/* Where the caller has an allocator or wants one thread, nothing runs beside it. */
static rv_status open_weights(rv_model *m, rvi_source *take, const char *dir,
                              const rv_open_options *o, rv_error *err)
{
    vocabulary v = {.m = m, .file = take->gguf, .dir = dir};
    bool beside = !o->vocabulary_only && !m->rt->allocator.alloc && m->rt->o.n_threads != 1;
    rv_status st = RV_OK;
    if (!beside) read_vocabulary(&v);
    if (!v.st && !o->vocabulary_only) st = rvi_api_place(m, take, o, err);
    if (st || v.st || o->vocabulary_only)
        m->vocab_source = take; /* kept until the model is freed */
    else
        st = rvi_model_new(&m->model, m->split ? m->split : m->rt->be, take,
                           &(rvi_model_options){.progress = o->progress,
                                                .progress_ctx = o->progress_ctx,
                                                .beside = beside ? read_vocabulary : NULL,
                                                .beside_ctx = &v,
                                                .quantize = o->quantize != 0},
                           err);
    if (st == RV_E_NOMEM && m->sizes && !m->model) st = rvi_api_explain_memory(m, o, err);
    if (st || !v.st) return st;
    if (err) *err = v.err;
    return v.st;
}

/* Everything after the files are open. dir: where tokenizer.json may lie, NULL for GGUF. */
static rv_status finish_open(rv_model *m, rvi_source *take, const char *dir,
                             const rv_open_options *o, rv_error *err)
{
    char arch[32] = "";
    rv_status st = RV_OK;
    if (take) {
        rvi_api_arch_name(take, arch, sizeof arch);
        st = open_weights(m, take, dir, o, err);
    }
    if (!take && dir) st = dir_arch_name(dir, arch, sizeof arch, err);
    if (!st && !take && dir) st = tokenizer_from_dir(m, dir, err);
    if (!st && m->tokenizer) st = make_chat(m, arch[0] ? arch : NULL, o->chat_template, err);
    if (!st) st = collect_eos(m, err);
    if (!st && m->model && m->tokenizer && rvi_tokenizer_size(m->tokenizer) > m->model->hp.n_vocab)
        rvi_log_write(&m->rt->log, RVI_LOG_WARN,
                      "%s: the tokenizer has %d tokens, the model only %d", m->name,
                      rvi_tokenizer_size(m->tokenizer), m->model->hp.n_vocab);
    if (!st && o->vocabulary_only && !m->tokenizer)
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "%s: no tokenizer in it (tokenizer.json, or a GGUF file with a vocabulary)",
                       m->name);
    if (!st) st = rvi_api_fill_info(m, err);
    return !st && take ? rvi_source_check(take, err) : st;
}

/* With vocabulary_only a GGUF file needs no known architecture: only its tokenizer is read. */
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

rv_status rvi_api_open_source(rvi_source **out, const char *path, const rv_open_options *o,
                              rv_error *err)
{
    bool dir = rvi_os_stat(path, NULL) == RVI_OS_DIR;
    *out = NULL;
    if (!o->data && !o->read) {
        if (dir && o->vocabulary_only) return RV_OK; /* tokenizer.json is read by its name */
        return o->vocabulary_only ? open_gguf_vocabulary(out, path, NULL, err)
                                  : rvi_source_open(out, path, err);
    }
    rvi_blob blob;
    rv_status st = RV_OK;
    if (o->data)
        rvi_blob_from_memory(&blob, o->data, (size_t)o->len);
    else
        st = rvi_blob_read(&blob, o->read, o->read_ctx, o->len, path, err);
    if (st) return st;
    return o->vocabulary_only ? open_gguf_vocabulary(out, path, &blob, err)
                              : rvi_source_open_gguf_blob(out, &blob, path, err);
}

rv_status rv_model_open(rv_model **out, rv_runtime *rt, const char *path,
                        const rv_open_options *given, rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_model_open: NULL argument");
    *out = NULL;
    rv_open_options o;
    rv_status st = rvi_api_read_struct(&o, sizeof o, given, "rv_open_options", err);
    if (st) return st;
    bool elsewhere = o.data || o.read;
    if (!rt || (!path && !elsewhere) || (o.data && o.read))
        return rvi_error(err, RV_E_INVALID,
                         "rv_model_open needs a runtime and a path, data or read");
    if (o.data && o.len > SIZE_MAX)
        return rvi_error(err, RV_E_INVALID, "len is more than the memory can hold");
    rv_runtime *own = rvi_api_retain_runtime(rt); /* callbacks may free it */
    const rv_allocator *heap = rvi_api_use_heap(rt);
    rv_model *m;
    rvi_source *source = NULL;
    const char *name = path ? path : "model";
    bool dir = !elsewhere && rvi_os_stat(path, NULL) == RVI_OS_DIR;
    st = model_new(&m, rt, name, err);
    if (!st) st = rvi_api_open_source(&source, name, &o, err);
    if (!st) st = finish_open(m, source, dir ? path : NULL, &o, err);
    if (!st && !o.data && !o.read) {
        m->mapped_bytes = m->info.file_bytes;
        atomic_fetch_add(&rt->mapped_bytes, m->mapped_bytes);
    }
    rvi_api_leave_heap(heap);
    if (st)
        rvi_api_release_model(m);
    else
        *out = m;
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
    size_t before = rvi_mem_in_use();
    rvi_chat_free(m->chat);
    rvi_vocab_free(m->vocab);
    rvi_vocab_free(m->marked_vocab);
    rvi_tokenizer_free(m->tokenizer);
    rvi_model_free(m->model);
    rvi_api_free_split(m);
    rvi_free(m->sizes);
    rvi_source_close(m->vocab_source);
    rvi_ids_deinit(&m->eos);
    rvi_free(m->name);
    rvi_arena_deinit(&m->texts);
    atomic_fetch_sub(&rt->mapped_bytes, m->mapped_bytes);
    rvi_free(m);
    rvi_resident_trim(before);
    rvi_api_release_runtime(rt);
}

void rv_model_close(rv_model **m)
{
    if (!m) return;
    rvi_api_release_model(*m);
    *m = NULL;
}
