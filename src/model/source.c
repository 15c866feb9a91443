#include "model/source.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "model/dir_digest.h"

static rv_status source_new(rvi_source **out, const char *name, rv_error *err)
{
    rvi_source *s = rvi_zalloc(sizeof *s);
    *out = s;
    if (!s) return rvi_nomem(err, name);
    s->arena.max = 64 << 20;
    s->name = rvi_arena_strndup(&s->arena, name, strlen(name));
    return s->name ? RV_OK : rvi_nomem(err, name);
}

static rv_status find_arch(rvi_source *s, rv_error *err)
{
    if (s->gguf) {
        rvi_str name;
        if (!rvi_gguf_get_str(s->gguf, "general.architecture", &name))
            return rvi_error(err, RV_E_MODEL, "%s: 'general.architecture' is missing", s->name);
        s->arch = rvi_arch_by_gguf(name.data, name.len);
        if (!s->arch)
            return rvi_error(err, RV_E_MODEL, "%s: architecture '%.*s' is not supported", s->name,
                             (int)RVI_MIN(name.len, (size_t)64), name.data);
        rvi_embedding_read_gguf(&s->embedding, s->gguf);
        return RV_OK;
    }
    const char *type = rvi_json_string(rvi_json_get(s->config, "model_type"), NULL);
    if (!type) return rvi_error(err, RV_E_MODEL, "%s: config.json has no 'model_type'", s->name);
    s->arch = rvi_arch_by_hf(type);
    return s->arch ? RV_OK
                   : rvi_error(err, RV_E_MODEL, "%s: model type '%.64s' is not supported", s->name,
                               type);
}

static rv_status finish(rvi_source **out, rvi_source *s, rv_status st, rv_error *err)
{
    if (!st) st = find_arch(s, err);
    if (st)
        rvi_source_close(s);
    else
        *out = s;
    return st;
}

static rv_status open_dir(rvi_source *s, const char *dir, rv_error *err)
{
    rvi_buf path = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&path, "%s/config.json", dir)) st = rvi_nomem(err, "path");
    if (!st) st = rvi_blob_open(&s->config_blob, path.data, err);
    if (!st)
        st = rvi_json_parse(&s->config, (const char *)s->config_blob.data, s->config_blob.len,
                            &s->arena, path.data, err);
    if (!st) st = rvi_safetensors_open_dir(&s->tensors, dir, err);
    if (!st) st = rvi_embedding_read_dir(&s->embedding, dir, &s->arena, err);
    if (!st) st = rvi_dir_digest(dir, s->dir_digest, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_source_open(rvi_source **out, const char *path, rv_error *err)
{
    rvi_source *s;
    *out = NULL;
    rv_status st = source_new(&s, path, err);
    if (!st)
        st = rvi_os_stat(path, NULL) == RVI_OS_DIR ? open_dir(s, path, err)
                                                   : rvi_gguf_open(&s->gguf, path, err);
    return finish(out, s, st, err);
}

rv_status rvi_source_open_gguf_blob(rvi_source **out, rvi_blob *take, const char *name,
                                    rv_error *err)
{
    rvi_source *s;
    *out = NULL;
    rv_status st = source_new(&s, name, err);
    if (st)
        rvi_blob_close(take);
    else
        st = rvi_gguf_open_blob(&s->gguf, take, name, err);
    return finish(out, s, st, err);
}

rv_status rvi_source_open_hf_blobs(rvi_source **out, rvi_blob *take_config, rvi_blob *take_weights,
                                   const char *name, rv_error *err)
{
    rvi_source *s;
    *out = NULL;
    rv_status st = source_new(&s, name, err);
    if (!st) {
        s->config_blob = *take_config;
        *take_config = (rvi_blob){0};
        st = rvi_json_parse(&s->config, (const char *)s->config_blob.data, s->config_blob.len,
                            &s->arena, "config.json", err);
    }
    if (!st)
        st = rvi_safetensors_open_blob(&s->tensors, take_weights, name, err);
    else
        rvi_blob_close(take_weights);
    rvi_blob_close(take_config);
    return finish(out, s, st, err);
}

void rvi_source_close(rvi_source *s)
{
    if (!s) return;
    rvi_gguf_close(s->gguf);
    rvi_safetensors_close(s->tensors);
    rvi_blob_close(&s->config_blob);
    rvi_arena_deinit(&s->arena);
    rvi_free(s);
}

rv_status rvi_source_check(const rvi_source *s, rv_error *err)
{
    rv_status st = RV_OK;
    if (s->gguf) st = rvi_gguf_check(s->gguf, err);
    if (!st && s->tensors) st = rvi_safetensors_check(s->tensors, s->name, err);
    return st ? st : rvi_blob_check(&s->config_blob, s->name, err);
}

rvi_meta rvi_source_meta(const rvi_source *s)
{
    return (rvi_meta){.gguf = s->gguf, .config = s->config};
}

bool rvi_source_is_gguf(const rvi_source *s)
{
    return s->gguf != NULL;
}

/* Of several names the last is the one that converters write for a checkpoint. */
const char *rvi_source_gguf_arch(const rvi_source *s)
{
    const char *const *names = s->arch->gguf_names;
    rvi_str own = {0};
    if (s->gguf) (void)rvi_gguf_get_str(s->gguf, "general.architecture", &own);
    while (names[1] && (strlen(*names) != own.len || memcmp(*names, own.data, own.len))) names++;
    return *names;
}

uint64_t rvi_source_bytes(const rvi_source *s)
{
    return s->gguf ? rvi_gguf_file_bytes(s->gguf) : rvi_safetensors_file_bytes(s->tensors);
}

size_t rvi_source_n_tensors(const rvi_source *s)
{
    return s->gguf ? rvi_gguf_n_tensors(s->gguf) : rvi_safetensors_n_tensors(s->tensors);
}

rvi_tensor_view *rvi_source_tensor_at(const rvi_source *s, size_t i)
{
    return s->gguf ? rvi_gguf_tensor_at(s->gguf, i) : rvi_safetensors_tensor_at(s->tensors, i);
}

static rvi_tensor_view *find_unprefixed(const rvi_source *s, const char *name)
{
    static const char *const prefixes[] = {"model.", "bert."};
    rvi_tensor_view *v = rvi_safetensors_tensor(s->tensors, name);
    for (size_t i = 0; !v && i < RVI_COUNT(prefixes); i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            v = rvi_safetensors_tensor(s->tensors, name + strlen(prefixes[i]));
    return v;
}

/* "...LayerNorm.weight" as "...LayerNorm.gamma", ".bias" as ".beta" */
static rvi_tensor_view *find_older_name(const rvi_source *s, const char *name)
{
    static const char *const names[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t len = strlen(name);
    for (size_t i = 0; i < RVI_COUNT(names); i++) {
        size_t end = strlen(names[i][0]);
        char older[160];
        if (len < end || strcmp(name + len - end, names[i][0])) continue;
        snprintf(older, sizeof older, "%.*s%s", (int)(len - end), name, names[i][1]);
        return find_unprefixed(s, older);
    }
    return NULL;
}

rvi_tensor_view *rvi_source_tensor(const rvi_source *s, const char *name)
{
    if (s->gguf) return rvi_gguf_tensor(s->gguf, name);
    rvi_tensor_view *v = find_unprefixed(s, name);
    return v ? v : find_older_name(s, name);
}
