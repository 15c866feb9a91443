/* tokenizer.h - text to token ids and back, as the model's own tokenizer does it.
 *
 * A tokenizer is made from tokenizer.json (with its neighbours) or from GGUF metadata, and never
 * changes afterwards: any number of threads may use it. BPE models are understood (byte-level ones,
 * and SentencePiece-like ones with byte fallback) and BERT's WordPiece. In text that is not UTF-8,
 * each maximal invalid part is read as U+FFFD. */
#ifndef RVI_TOKENIZER_TOKENIZER_H
#define RVI_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "formats/gguf.h"
#include "text/spans.h"

typedef struct rvi_tokenizer rvi_tokenizer;

typedef struct rvi_ids { /* growing list of ids; {0} is empty */
    int32_t *data;
    size_t len, cap;
} rvi_ids;

void rvi_ids_deinit(rvi_ids *ids);
bool rvi_ids_push(rvi_ids *ids, int32_t id); /* false: out of memory */
bool rvi_ids_append(rvi_ids *ids, const int32_t *more, size_t n);

/* config: tokenizer_config.json, generation: generation_config.json, special_map:
 * special_tokens_map.json, template_text: chat_template.jinja; each may be NULL with length 0.
 * Nothing is kept of the caller's bytes. */
typedef struct rvi_tokenizer_files {
    const char *tokenizer;
    size_t tokenizer_len;
    const char *config;
    size_t config_len;
    const char *generation;
    size_t generation_len;
    const char *special_map;
    size_t special_map_len;
    const char *template_text;
    size_t template_len;
} rvi_tokenizer_files;

rv_status rvi_tokenizer_from_json(rvi_tokenizer **out, const rvi_tokenizer_files *files,
                                  const rvi_log *log, rv_error *err) RVI_MUST_CHECK;
/* Copies what it needs: the file can be closed afterwards. */
rv_status rvi_tokenizer_from_gguf(rvi_tokenizer **out, const rvi_gguf *g, const rvi_log *log,
                                  rv_error *err) RVI_MUST_CHECK;
void rvi_tokenizer_free(rvi_tokenizer *t); /* accepts NULL */

enum {
    RVI_TOK_PLAIN = 1,   /* special-token text is ordinary text */
    RVI_TOK_BOS_EOS = 2, /* add the tokens that the model puts around a text */
};
/* Appends to out. */
rv_status rvi_tokenizer_encode(const rvi_tokenizer *t, const char *text, size_t len, unsigned flags,
                               rvi_ids *out, rv_error *err) RVI_MUST_CHECK;
/* The same for a text of which the parts in `user` come from users (rvi_chat_render_marked): the
 * text of a special token that overlaps one of them is ordinary text. Otherwise the ids are those
 * of rvi_tokenizer_encode. user NULL: no part does. If there is a span, the text must be valid
 * UTF-8. */
rv_status rvi_tokenizer_encode_marked(const rvi_tokenizer *t, const char *text, size_t len,
                                      const rvi_text_spans *user, unsigned flags, rvi_ids *out,
                                      rv_error *err) RVI_MUST_CHECK;

enum { RVI_TOK_SKIP_SPECIAL = 1 };
/* Appends to out, as the model's decoder does: always valid UTF-8. Ids that are out of range or
 * holes give nothing. */
rv_status rvi_tokenizer_decode(const rvi_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                               rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

/* Streaming: the concatenation of all pushes and the flush equals rvi_tokenizer_decode of all ids
 * with the same flags, and no push emits half a code point or a U+FFFD that later bytes would have
 * completed. A run of byte tokens (<0xNN>) is held back until it ends, because one bad byte makes
 * the whole run invalid; a run longer than RVI_DETOK_RUN bytes is decoded in portions, also by
 * rvi_tokenizer_decode. */
enum { RVI_DETOK_RUN = 1024 };

typedef struct rvi_detok {
    const rvi_tokenizer *t;
    unsigned flags;
    bool started;          /* a token came to the step that treats the first one differently */
    uint32_t to_strip;     /* leading characters that the decoder may still drop */
    uint32_t held;         /* trailing characters that it drops if nothing follows */
    const int32_t *spoken; /* special tokens that are not skipped */
    size_t n_spoken;
    size_t n_bytes;
    char bytes[RVI_DETOK_RUN]; /* not decoded yet */
} rvi_detok;

void rvi_detok_init(rvi_detok *d, const rvi_tokenizer *t, unsigned flags);
/* What follows is not the start of a text, of which nothing is left out therefore. */
void rvi_detok_continue(rvi_detok *d);
rv_status rvi_detok_push(rvi_detok *d, int32_t id, rvi_buf *out,
                         rv_error *err) RVI_MUST_CHECK; /* appends text that is final */
/* The end: incomplete bytes become U+FFFD as decode would. Ready for another text afterwards. */
rv_status rvi_detok_flush(rvi_detok *d, rvi_buf *out, rv_error *err) RVI_MUST_CHECK;

int32_t rvi_tokenizer_size(const rvi_tokenizer *t); /* ids are 0 .. size-1 */
int32_t rvi_tokenizer_bos(const rvi_tokenizer *t);  /* -1: none */
int32_t rvi_tokenizer_eos(const rvi_tokenizer *t);  /* -1: none */
bool rvi_tokenizer_adds_bos(const rvi_tokenizer *t);
size_t rvi_tokenizer_n_after(const rvi_tokenizer *t); /* ids that BOS_EOS puts behind a text */
bool rvi_tokenizer_is_special(const rvi_tokenizer *t, int32_t id);
bool rvi_tokenizer_is_eos(const rvi_tokenizer *t, int32_t id); /* in the end-of-generation set */
/* The raw piece as stored; NULL if out of range or a hole. */
const char *rvi_tokenizer_text(const rvi_tokenizer *t, int32_t id, size_t *len);
/* Appends the bytes that a token adds to a text in its middle, which may be part of a character.
 * Nothing for special tokens, holes and ids out of range. RV_E_UNSUPPORTED: the decoder makes a
 * token's text depend on its neighbours. */
rv_status rvi_tokenizer_bytes(const rvi_tokenizer *t, int32_t id, rvi_buf *out,
                              rv_error *err) RVI_MUST_CHECK;
/* Id of exactly this piece (vocabulary or added token), or -1. */
int32_t rvi_tokenizer_find(const rvi_tokenizer *t, const char *text, size_t len);
/* The stored one (the default of several named ones), NULL if none. */
const char *rvi_tokenizer_chat_template(const rvi_tokenizer *t, size_t *len);
/* which: "bos_token", "eos_token", "unk_token", "pad_token". Text or NULL; used as template
 * variables. */
const char *rvi_tokenizer_special_text(const rvi_tokenizer *t, const char *which, size_t *len);
/* Short description, for example "byte-level BPE (qwen2)". */
const char *rvi_tokenizer_kind(const rvi_tokenizer *t);

#endif
