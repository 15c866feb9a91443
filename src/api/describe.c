/* What a model is: its info, its identity, and everything its file says as JSON. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/json.h"
#include "model/digest.h"

static const rvi_source *source_of(const rv_model *m)
{
    return m->model ? m->model->source : m->vocab_source;
}

rvi_qtype rvi_api_main_type(const rvi_source *s)
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
    return (rvi_qtype)best;
}

rv_status rv_model_digest(const rv_model *m, char out[65], rv_error *err)
{
    if (!m || !out) return rvi_error(err, RV_E_INVALID, "rv_model_digest: NULL argument");
    out[0] = 0;
    rv_status st = rvi_api_need_weights(m, err);
    return st ? st : rvi_model_digest(m->model->source, m->rt->be, out, err);
}

/* A text of the file that need not be terminated; "" where there is none. */
static const char *copy_text(rv_model *m, const char *data, size_t len, bool *ok)
{
    const char *text = rvi_arena_strndup(&m->texts, data, len);
    *ok = *ok && text;
    return text;
}

rv_status rvi_api_fill_info(rv_model *m, rv_error *err)
{
    rv_model_info *out = &m->info;
    const rvi_source *s = source_of(m);
    const char *base = strrchr(m->name, '/');
    bool ok = true;
    rvi_str name;
    *out = (rv_model_info){.architecture = "",
                           .name = base && base[1] ? base + 1 : m->name,
                           .type = "",
                           .tokenizer = "",
                           .chat_template = "",
                           .bos = m->tokenizer ? rvi_tokenizer_bos(m->tokenizer) : -1,
                           .eos = m->eos.data,
                           .n_eos = m->eos.len};
    if (s) {
        char arch[64];
        rvi_api_arch_name(s, arch, sizeof arch);
        out->architecture = copy_text(m, arch, strlen(arch), &ok);
        if (s->gguf && rvi_gguf_get_str(s->gguf, "general.name", &name))
            out->name = copy_text(m, name.data, name.len, &ok);
        out->file_bytes = rvi_source_bytes(s);
    }
    if (m->model) {
        const rvi_hparams *h = &m->model->hp;
        out->type = rvi_qtypes[rvi_api_main_type(s)].name;
        out->n_params = m->model->n_params;
        out->n_layers = h->n_layers;
        out->n_embd = h->n_embd;
        out->n_ff = h->n_ff;
        out->n_heads = h->n_heads;
        out->n_kv_heads = h->n_kv_heads;
        out->head_size = h->head_size;
        out->n_context = h->n_context;
        out->n_vocab = h->n_vocab;
        out->gpu_layers = m->gpu_layers;
        out->is_encoder = m->model->arch->is_encoder;
    } else if (m->tokenizer) {
        out->n_vocab = rvi_tokenizer_size(m->tokenizer);
    }
    if (m->tokenizer) {
        size_t len;
        out->has_tokenizer = 1;
        out->has_template = rvi_tokenizer_chat_template(m->tokenizer, &len) != NULL;
        out->tokenizer = rvi_tokenizer_kind(m->tokenizer);
        out->chat_template = rvi_chat_name(m->chat);
    }
    return ok ? RV_OK : rvi_nomem(err, "model");
}

const rv_model_info *rv_model_get_info(const rv_model *m)
{
    return m ? &m->info : NULL;
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
    if (json) *json = NULL;
    if (!json || !m) return rvi_error(err, RV_E_INVALID, "rv_model_describe: NULL argument");
    const rv_model_info info = m->info;
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
