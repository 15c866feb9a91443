#include "model/digest.h"

#include <string.h>

#include "base/fingerprint.h"
#include "base/os.h"

enum { PIECE = 1 << 20, BATCH = 64 }; /* bytes; pieces that the threads share out at a time */

static void add_bytes(rvi_sha256 *h, const void *bytes, size_t len)
{
    rvi_sha256_add_u64(h, len);
    rvi_sha256_add(h, bytes, len);
}

static void add_text(rvi_sha256 *h, const char *text)
{
    add_bytes(h, text, strlen(text));
}

static bool counts(const char *key)
{
    if (!strcmp(key, "general.architecture")) return true;
    return strncmp(key, "general.", 8) && strncmp(key, "split.", 6);
}

static size_t item_bytes(rvi_gguf_kind kind)
{
    switch (kind) {
    case RVI_GGUF_U8:
    case RVI_GGUF_I8:
    case RVI_GGUF_BOOL: return 1;
    case RVI_GGUF_U16:
    case RVI_GGUF_I16: return 2;
    case RVI_GGUF_U32:
    case RVI_GGUF_I32:
    case RVI_GGUF_F32: return 4;
    default: return 8;
    }
}

static void add_value(rvi_sha256 *h, const rvi_gguf_value *v)
{
    add_text(h, v->key);
    rvi_sha256_add_u64(h, (uint64_t)v->kind);
    if (v->kind == RVI_GGUF_STRING) {
        add_bytes(h, v->string.data, v->string.len);
    } else if (v->kind != RVI_GGUF_ARRAY) {
        rvi_sha256_add_u64(h, v->number.u); /* floats by their bits as a double */
    } else {
        rvi_sha256_add_u64(h, (uint64_t)v->item_kind);
        rvi_sha256_add_u64(h, v->count);
        if (v->strings && v->count) { /* as the file has them: each behind its length of 8 bytes */
            const char *first = v->strings[0].data - 8;
            const rvi_str *last = &v->strings[v->count - 1];
            rvi_fingerprint_add(h, first, (size_t)(last->data + last->len - first));
        }
        if (v->items) rvi_fingerprint_add(h, v->items, (size_t)v->count * item_bytes(v->item_kind));
    }
}

static void add_tensor(rvi_sha256 *h, const char *name, const char *type, int n_dims,
                       const uint64_t *shape, uint64_t n_bytes)
{
    add_text(h, name);
    add_text(h, type);
    rvi_sha256_add_u64(h, (uint64_t)n_dims);
    for (int i = 0; i < n_dims; i++) rvi_sha256_add_u64(h, shape[i]);
    rvi_sha256_add_u64(h, n_bytes);
}

/* ---- pieces of tensors ---- */

typedef struct piece {
    const uint8_t *data;
    size_t len;
    bool mapped;
    uint64_t print[RVI_FINGERPRINT_WORDS];
} piece;

typedef struct batch {
    rvi_sha256 *h;
    rvi_backend *be;
    piece pieces[BATCH];
    int n;
} batch;

static void take_print(void *ctx, int task, int worker)
{
    piece *p = &((batch *)ctx)->pieces[task];
    (void)worker;
    rvi_fingerprint(p->data, p->len, p->print);
    if (p->mapped) rvi_os_release_mapped(p->data, p->len); /* products no longer need them */
}

static void add_prints(batch *b)
{
    b->be->ops->share(b->be, take_print, b, b->n);
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < RVI_FINGERPRINT_WORDS; k++)
            rvi_sha256_add_u64(b->h, b->pieces[i].print[k]);
    b->n = 0;
}

static void add_pieces(batch *b, const uint8_t *data, uint64_t n_bytes, bool mapped)
{
    for (uint64_t at = 0; at < n_bytes; at += PIECE) {
        b->pieces[b->n++] = (piece){.data = data + at,
                                    .len = (size_t)RVI_MIN(n_bytes - at, (uint64_t)PIECE),
                                    .mapped = mapped};
        if (b->n == BATCH) add_prints(b);
    }
}

/* ---- the whole ---- */

static void compute(const rvi_source *s, rvi_backend *be, char out[RVI_SHA256_HEX])
{
    rvi_sha256 h;
    batch b = {.h = &h, .be = be};
    rvi_sha256_init(&h);
    add_text(&h, "ruvllm model digest 2");
    for (size_t i = 0; s->gguf && i < rvi_gguf_n_values(s->gguf); i++) {
        const rvi_gguf_value *v = rvi_gguf_value_at(s->gguf, i);
        if (counts(v->key)) add_value(&h, v);
    }
    if (!s->gguf) {
        add_bytes(&h, s->config_blob.data, s->config_blob.len);
        rvi_sha256_add_u64(&h, (uint64_t)s->embedding.pooling);
        rvi_sha256_add_u64(&h, (uint64_t)s->embedding.max_tokens);
        rvi_sha256_add(&h, s->dir_digest, sizeof s->dir_digest);
    }
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        add_tensor(&h, v->name, rvi_qtypes[v->type].name, v->n_dims, v->shape, v->n_bytes);
    }
    for (size_t i = 0; s->tensors && i < rvi_safetensors_n_raw(s->tensors); i++) {
        const rvi_raw_tensor *t = rvi_safetensors_raw_at(s->tensors, i);
        add_tensor(&h, t->name, t->dtype, t->n_dims, t->shape, t->n_bytes);
    }
    for (size_t i = 0; i < rvi_source_n_tensors(s); i++) {
        const rvi_tensor_view *v = rvi_source_tensor_at(s, i);
        add_pieces(&b, v->data, v->n_bytes, v->mapped);
    }
    for (size_t i = 0; s->tensors && i < rvi_safetensors_n_raw(s->tensors); i++) {
        const rvi_raw_tensor *t = rvi_safetensors_raw_at(s->tensors, i);
        add_pieces(&b, t->data, t->n_bytes, false);
    }
    add_prints(&b);
    rvi_sha256_end_hex(&h, out);
}

enum { NONE, WRITING, WRITTEN }; /* s->digest_state */

rv_status rvi_model_digest(rvi_source *s, rvi_backend *be, char out[RVI_SHA256_HEX], rv_error *err)
{
    if (atomic_load(&s->digest_state) == WRITTEN) {
        memcpy(out, s->digest, sizeof s->digest);
        return RV_OK;
    }
    compute(s, be, out);
    rv_status st = rvi_source_check(s, err);
    int none = NONE;
    if (!st && atomic_compare_exchange_strong(&s->digest_state, &none, WRITING)) {
        memcpy(s->digest, out, sizeof s->digest);
        atomic_store(&s->digest_state, WRITTEN);
    }
    if (st) out[0] = 0;
    return st;
}
