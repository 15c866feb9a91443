/* gguf_pre.h - what the names in tokenizer.ggml.pre stand for. */
#ifndef RVI_TOKENIZER_GGUF_PRE_H
#define RVI_TOKENIZER_GGUF_PRE_H

#include <stdbool.h>
#include <stddef.h>

enum { RVI_PRE_PATTERNS_MAX = 6 };

typedef struct rvi_gguf_pre {
    const char *names;                          /* separated by spaces */
    const char *patterns[RVI_PRE_PATTERNS_MAX]; /* one cut after the other; the text between matches
                                                   stays a piece */
    bool nfc, ignore_merges, add_bos;
    bool raw; /* characters instead of bytes, U+2581 for a space, byte fallback */
} rvi_gguf_pre;

const rvi_gguf_pre *rvi_gguf_pre_find(const char *name, size_t len); /* NULL: unknown */

#endif
