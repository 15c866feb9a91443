/* fuzz_tokenizer_json.c - tokenizer.json or GGUF metadata of a stranger: loaded, then used on a
 * short text. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

static const char text[] = "The don't ab  12,345 <s>x</s>\r\n\r\n caf\xC3\xA9 e\xCC\x81 "
                           "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x82 \xFF aaaaaaaa  \t";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rv_status load(rvi_tokenizer **t, const uint8_t *data, size_t size, rv_error *err)
{
    if (size >= 4 && !memcmp(data, "GGUF", 4)) {
        rvi_blob blob;
        rvi_gguf *g;
        *t = NULL;
        rvi_blob_from_memory(&blob, data, size);
        rv_status st = rvi_gguf_open_blob(&g, &blob, "input", err);
        if (!st) st = rvi_tokenizer_from_gguf(t, g, NULL, err);
        rvi_gguf_close(g);
        return st;
    }
    rvi_tokenizer_files files = {.tokenizer = (const char *)data, .tokenizer_len = size};
    files.config = files.generation = files.tokenizer; /* the same text in the other roles */
    files.config_len = files.generation_len = size;
    return rvi_tokenizer_from_json(t, &files, NULL, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rvi_tokenizer *t;
    rv_error err;
    if (load(&t, data, size, &err)) {
        if (t) abort();
        return 0;
    }
    for (unsigned flags = 0; flags <= (RVI_TOK_PLAIN | RVI_TOK_BOS_EOS); flags++) {
        rvi_ids ids = {0};
        rvi_buf out = {.max = 1 << 20};
        if (!rvi_tokenizer_encode(t, text, sizeof text - 1, flags, &ids, &err)) {
            for (size_t i = 0; i < ids.len; i++)
                if (ids.data[i] < 0 || ids.data[i] >= rvi_tokenizer_size(t)) abort();
            if (!rvi_tokenizer_decode(t, ids.data, ids.len, flags & 1, &out, &err))
                for (size_t i = 0; i < out.len;) {
                    uint32_t cp;
                    bool valid;
                    i += rvi_utf8_decode(out.data + i, out.len - i, &cp, &valid);
                    if (!valid) abort();
                }
        }
        rvi_ids_deinit(&ids);
        rvi_buf_deinit(&out);
    }
    rvi_tokenizer_free(t);
    return 0;
}
