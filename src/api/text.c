/* Text to token ids and back. */
#include <string.h>

#include "api/api.h"

rv_status rvi_api_give_text(rvi_buf *b, char **text, size_t *len, rv_error *err)
{
    if (!b->data) rvi_buf_puts(b, "");
    if (b->failed || !b->data) {
        rvi_buf_deinit(b);
        return rvi_nomem(err, "text");
    }
    *text = b->data;
    if (len) *len = b->len;
    return RV_OK;
}

rv_status rvi_api_give_text_after(rv_status st, rvi_buf *b, char **text, size_t *len, rv_error *err)
{
    if (!st) return rvi_api_give_text(b, text, len, err);
    rvi_buf_deinit(b);
    return st;
}

/* An empty list is a block too: NULL would mean failure. */
rv_status rvi_api_give_ids(rvi_ids *take, int32_t **ids, size_t *n, rv_error *err)
{
    if (!take->data && !(take->data = rvi_alloc_array(1, sizeof *take->data)))
        return rvi_nomem(err, "tokens");
    *ids = take->data;
    *n = take->len;
    return RV_OK;
}

rv_status rvi_api_need_tokenizer(const rv_model *m, rv_error *err)
{
    if (!m) return rvi_error(err, RV_E_INVALID, "no model given");
    return m->tokenizer ? RV_OK
                        : rvi_error(err, RV_E_TOKENIZATION,
                                    "%s: this model has no tokenizer; give token ids", m->name);
}

rv_status rv_tokenize(const rv_model *m, const char *text, size_t len, unsigned flags,
                      int32_t **ids, size_t *n, rv_error *err)
{
    if (!ids || !n || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_tokenize: NULL argument");
    *ids = NULL;
    *n = 0;
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (st) return st;
    rvi_ids out = {0};
    int32_t bos = rvi_tokenizer_bos(m->tokenizer);
    bool wrap = (flags & RV_TOKENIZE_WRAP) != 0;
    unsigned how = (flags & RV_TOKENIZE_SPECIAL ? 0 : RVI_TOK_PLAIN) | (wrap ? RVI_TOK_BOS_EOS : 0);
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    if (!wrap && (flags & RV_TOKENIZE_BOS) && rvi_tokenizer_adds_bos(m->tokenizer) && bos >= 0 &&
        !rvi_ids_push(&out, bos))
        st = rvi_nomem(err, "tokens");
    if (!st && (len || wrap))
        st = rvi_tokenizer_encode(m->tokenizer, text ? text : "", len, how, &out, err);
    if (st)
        rvi_ids_deinit(&out);
    else
        st = rvi_api_give_ids(&out, ids, n, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_detokenize(const rv_model *m, const int32_t *ids, size_t n, int skip_special,
                        char **text, size_t *len, rv_error *err)
{
    if (!text || (!ids && n)) return rvi_error(err, RV_E_INVALID, "rv_detokenize: NULL argument");
    *text = NULL;
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (st) return st;
    rvi_buf out = {0};
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_tokenizer_decode(m->tokenizer, ids, n, skip_special ? RVI_TOK_SKIP_SPECIAL : 0, &out,
                              err);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_token_kind rv_token_get(const rv_model *m, int32_t id, const char **text, size_t *len)
{
    size_t n = 0;
    const char *piece = m && m->tokenizer ? rvi_tokenizer_text(m->tokenizer, id, &n) : NULL;
    if (text) *text = piece ? piece : "";
    if (len) *len = n;
    if (!piece) return RV_TOKEN_UNUSED;
    for (size_t i = 0; i < m->eos.len; i++)
        if (m->eos.data[i] == id) return RV_TOKEN_END;
    return rvi_tokenizer_is_special(m->tokenizer, id) ? RV_TOKEN_SPECIAL : RV_TOKEN_NORMAL;
}

rv_status rv_token_bytes(const rv_model *m, int32_t id, char **bytes, size_t *len, rv_error *err)
{
    if (!bytes || !len) return rvi_error(err, RV_E_INVALID, "rv_token_bytes: NULL argument");
    *bytes = NULL;
    *len = 0;
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (st) return st;
    rvi_buf out = {0};
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_tokenizer_bytes(m->tokenizer, id, &out, err);
    st = rvi_api_give_text_after(st, &out, bytes, len, err);
    rvi_api_leave_heap(heap);
    return st;
}
