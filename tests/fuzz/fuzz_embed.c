/* Any bytes as a GGUF model: what opens must embed a few tokens, or say why not, in time and memory
 * that the size of the file bounds. Encoders and decoders alike. */
#include <stdlib.h>
#include <string.h>

#include "decode/embed.h"
#include "tokenizer/tokenizer.h"

enum { ROWS = 16 };

/* A failure must have a code and a text, and they must agree. */
static void check(rv_status st, const rv_error *err)
{
    if (st && (err->code != st || !err->text[0])) abort();
}

static void embed(const rvi_model *m, const int32_t *ids, size_t n)
{
    rvi_kv_spec spec = rvi_model_kv_spec(m, RV_KV_F16, 1);
    rvi_pages *pool = NULL;
    rvi_seq seq = {0};
    rvi_workspace *ws = NULL;
    rv_error err = {0};
    float *out = malloc((size_t)m->hp.n_embd * sizeof *out);
    if (!out) abort();
    rv_status st = rvi_pages_new(&pool, m->be, &spec, &err);
    if (!st) st = rvi_seq_init(&seq, pool, ROWS, &err);
    if (!st) st = rvi_workspace_new(&ws, m, ROWS, 1, &err);
    for (rv_pooling p = RV_POOLING_DEFAULT; !st && p <= RV_POOLING_FIRST; p++) {
        rv_status made =
            rvi_embed(m, ws, &seq, ROWS, ids, n, &(rvi_embed_options){p, true}, out, &err);
        check(made, &err);
        if (seq.len) abort();
    }
    check(st, &err);
    rvi_workspace_free(ws);
    rvi_seq_deinit(&seq);
    rvi_pages_free(pool);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t some[] = {2, 0, 5, 3};
    rv_error err = {0};
    rvi_backend *be;
    rvi_source *s;
    rvi_model *m = NULL;
    rvi_tokenizer *t = NULL;
    rvi_ids ids = {0};
    rvi_blob blob;
    if (rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 1}, NULL, &err)) abort();
    rvi_blob_from_memory(&blob, data, size);
    rv_status st = rvi_source_open_gguf_blob(&s, &blob, "input", &err);
    if (!st) st = rvi_model_new(&m, be, s, NULL, &err);
    check(st, &err);
    if (!st && !rvi_tokenizer_from_gguf(&t, m->source->gguf, NULL, &err)) {
        st = rvi_tokenizer_encode(t, "The thing.", 10, RVI_TOK_BOS_EOS, &ids, &err);
        check(st, &err);
        ids.len = rvi_embed_cut(m, ids.data, ids.len, rvi_tokenizer_n_after(t));
        embed(m, ids.data, ids.len);
    }
    if (!st) embed(m, some, 4);
    rvi_ids_deinit(&ids);
    rvi_tokenizer_free(t);
    rvi_model_free(m);
    be->ops->free(be);
    return 0;
}
