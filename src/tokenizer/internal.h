/* internal.h - the parts of a tokenizer, shared by the files of this room.
 *
 * Encoding goes through these stages, each with a file of its own:
 *   added.c         added tokens that are matched in the raw text are cut out
 *   normalizer.c    each text between them is normalized, and added tokens are cut out of that too
 *   pretokenizer.c  each text left is cut into pieces
 *   bpe.c or wordpiece.c   each piece becomes ids
 * decoder.c goes the other way. load_json.c and load_gguf.c fill the parts; afterwards all is
 * immutable. */
#ifndef RVI_TOKENIZER_INTERNAL_H
#define RVI_TOKENIZER_INTERNAL_H

#include "base/json.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"
#include "text/unicode.h"

enum {
    RVI_TOK_IDS_MAX = 1 << 24,
    RVI_TOK_STEPS_MAX = 64,        /* in a normalizer, pre-tokenizer or decoder */
    RVI_TOK_ADDED_LEN_MAX = 1024,  /* bytes of an added token; matching costs as much per place */
    RVI_TOK_TEXT_MAX = 1 << 30,    /* bytes of a text to encode */
    RVI_TOK_GROWTH = 64,           /* see rvi_tok_grow */
    RVI_TOK_DECODED_MAX = 1 << 16, /* bytes that a decoder makes of one token */
    RVI_TOK_AFFIX_MAX = 256,       /* bytes of the marks around the pieces of a word */
};

/* Empties a buffer for the text that a step makes of len bytes. No step in use makes more than 18
 * times as much (NFKD of one Arabic ligature); steps in a row that multiply a text would take any
 * amount of memory, so all of them together get room for RVI_TOK_GROWTH times the text. */
static inline void rvi_tok_grow(rvi_buf *out, size_t len)
{
    out->len = 0;
    out->max = RVI_MIN(len, (size_t)RVI_TOK_TEXT_MAX / RVI_TOK_GROWTH) * RVI_TOK_GROWTH + 4096;
}
/* The status of a buffer after such a step; what names the part in errors. */
rv_status rvi_tok_grown(const rvi_buf *out, const char *what, size_t len,
                        rv_error *err) RVI_MUST_CHECK;

/* ---- vocab.c ---- */

typedef struct rvi_piece {
    const char *data; /* NULL: a hole in the ids */
    size_t len;
} rvi_piece;

/* A hash table from texts to ids. It borrows the texts. */
typedef struct rvi_text_map {
    struct rvi_text_slot *slots;
    size_t mask, n;
    uint64_t seed;
} rvi_text_map;

rv_status rvi_text_map_init(rvi_text_map *m, size_t n_texts, rv_error *err) RVI_MUST_CHECK;
void rvi_text_map_deinit(rvi_text_map *m);
/* False: the text is there already (and stays as it is). At most n_texts calls may succeed. */
bool rvi_text_map_put(rvi_text_map *m, const char *text, size_t len, int32_t id);
int32_t rvi_text_map_find(const rvi_text_map *m, const char *text, size_t len); /* -1: not there */

typedef struct rvi_merge {
    int32_t left, right; /* left -1: an empty slot */
    uint32_t rank;
    int32_t merged;
} rvi_merge;

typedef struct rvi_merge_map {
    rvi_merge *slots;
    size_t mask;
    uint64_t seed;
} rvi_merge_map;

rv_status rvi_merge_map_init(rvi_merge_map *m, size_t n_merges, rv_error *err) RVI_MUST_CHECK;
void rvi_merge_map_deinit(rvi_merge_map *m);
void rvi_merge_map_put(
    rvi_merge_map *m,
    const rvi_merge *merge); /* the last one for a pair holds; at most n_merges calls */
const rvi_merge *rvi_merge_map_find(const rvi_merge_map *m, int32_t left,
                                    int32_t right); /* NULL: none */

/* ---- bpe.c ---- */

enum { RVI_BPE_LOW = 512 };

typedef struct rvi_bpe {
    rvi_text_map map; /* the model's own vocabulary, without added tokens */
    rvi_merge_map merges;
    int32_t low[RVI_BPE_LOW]; /* ids of the single characters below U+0200 */
    int32_t bytes[256];       /* ids of <0x00>..<0xFF>, -1: missing; used with byte_fallback */
    int32_t unk;              /* -1: none; characters that are not in the vocabulary vanish */
    bool byte_fallback, fuse_unk, ignore_merges;
    const char *prefix,
        *suffix; /* of characters inside a word, of a word's last character; NULL: none */
    size_t prefix_len, suffix_len;
} rvi_bpe;

typedef struct rvi_bpe_work {
    struct rvi_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct rvi_candidate *heap;
    size_t n_heap, cap_heap;
    rvi_buf spelling;
} rvi_bpe_work;

void rvi_bpe_prepare(rvi_bpe *m); /* fills low and bytes once the vocabulary is there */
void rvi_bpe_deinit(rvi_bpe *m);
void rvi_bpe_work_deinit(rvi_bpe_work *w);
rv_status rvi_bpe_encode(const rvi_bpe *m, rvi_bpe_work *w, const char *piece, size_t len,
                         rvi_ids *out, rv_error *err) RVI_MUST_CHECK;

/* ---- added.c ---- */

typedef struct rvi_added_token {
    const char *text;
    size_t len;
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    rvi_piece
        spoken; /* what it decodes to: a normalized one is known by its normalized text only */
} rvi_added_token;

typedef struct rvi_trie { /* nodes 1..n_nodes-1; 0: no node; the root is 1 */
    uint32_t root[256];
    struct rvi_trie_edge *edges;
    size_t mask, n_edges;
    uint32_t *token; /* per node: index + 1 of the added token that ends here, 0: none */
    uint32_t n_nodes, cap_nodes;
} rvi_trie;

/* Room for n_bytes of tokens. */
bool rvi_trie_init(rvi_trie *t, size_t n_bytes) RVI_MUST_CHECK;
void rvi_trie_deinit(rvi_trie *t);
/* Of several tokens with the same text the first counts; an empty text is ignored. */
void rvi_trie_add(rvi_trie *t, const char *text, size_t len, uint32_t token);
/* The longest token at the start of text: its index + 1, or 0. */
uint32_t rvi_trie_match(const rvi_trie *t, const char *text, size_t len, size_t *match_len);

typedef struct rvi_added {
    rvi_added_token *tokens;
    size_t n, cap;
    rvi_text_map map; /* text to index in tokens */
    rvi_trie raw, normalized;
    bool any_normalized, special_normalized;
    rvi_cpset word; /* for single_word */
} rvi_added;

typedef struct rvi_added_scan {
    const char *text;
    size_t len;
    const rvi_text_spans *user;    /* special tokens in these are skipped; NULL: none */
    size_t base;                   /* where the text begins in the text of the spans */
    size_t at;                     /* where the search goes on */
    size_t done;                   /* end of the last found token with what it strips */
    size_t space_start, space_end; /* the last run of white space seen behind a token */
} rvi_added_scan;

void rvi_added_deinit(rvi_added *a);
/* Builds map and tries, once all tokens are there with their `spoken`. */
rv_status rvi_added_prepare(rvi_added *a, rv_error *err) RVI_MUST_CHECK;
/* The next added token in the text: the text from the old `done` up to *start comes before it
 * (nothing if *start is not greater). Sets done. plain: special tokens are skipped. */
bool rvi_added_next(const rvi_added *a, const rvi_trie *trie, bool plain, rvi_added_scan *s,
                    size_t *start, int32_t *id);

/* ---- wordpiece.c ---- */

typedef struct rvi_wordpiece {
    bool on; /* this is the tokenizer's model; its vocabulary and unk are those of rvi_bpe */
    rvi_trie first, inside; /* pieces that begin a word, pieces within one without their prefix */
    const char *prefix;     /* of pieces within a word */
    size_t prefix_len;
    size_t max_chars; /* longer words are unknown */
} rvi_wordpiece;

/* Builds the tries from the pieces by id. skip (may be NULL): ids that match no text. */
rv_status rvi_wordpiece_prepare(rvi_wordpiece *m, const rvi_piece *pieces, size_t n,
                                const bool *skip, rv_error *err) RVI_MUST_CHECK;
void rvi_wordpiece_deinit(rvi_wordpiece *m);
rv_status rvi_wordpiece_encode(const rvi_wordpiece *m, int32_t unk, const char *word, size_t len,
                               rvi_ids *out, rv_error *err) RVI_MUST_CHECK;

/* ---- byte_level.c ---- */

/* The 256 bytes as printable characters, GPT-2's alphabet. */
int rvi_char_byte(uint32_t cp); /* -1: not in the alphabet */
bool rvi_byte_level_write(rvi_buf *out, const char *text, size_t len);

/* ---- normalizer.c ---- */

typedef enum rvi_norm_kind {
    RVI_NORM_FORM,
    RVI_NORM_PREPEND,
    RVI_NORM_REPLACE,
    RVI_NORM_STRIP,
    RVI_NORM_LOWERCASE,
    RVI_NORM_STRIP_ACCENTS,
    RVI_NORM_BYTE_LEVEL,
    RVI_NORM_CLEAN,     /* characters of `set` vanish, white space becomes a space */
    RVI_NORM_SPACE_HAN, /* spaces around ideographs */
    RVI_NORM_STRIP_SET, /* characters of `set` vanish */
} rvi_norm_kind;

typedef struct rvi_norm_step {
    rvi_norm_kind kind;
    rvi_unicode_form form;
    rvi_regex *pattern; /* REPLACE */
    const char *text;   /* PREPEND, REPLACE */
    size_t len;
    bool left, right; /* STRIP */
    rvi_cpset set;    /* CLEAN, STRIP_SET */
} rvi_norm_step;

typedef struct rvi_normalizer {
    rvi_norm_step *steps;
    size_t n;
    rvi_cpset marks; /* for STRIP_ACCENTS */
} rvi_normalizer;

typedef struct rvi_norm_work {
    rvi_buf buf[2];
    rvi_regex_work regex;
    uint64_t spent; /* bytes written and steps of regular expressions, over all texts */
    uint64_t most;  /* an error beyond this; 0: no limit */
} rvi_norm_work;

void rvi_normalizer_deinit(rvi_normalizer *n);
void rvi_norm_work_deinit(rvi_norm_work *w);
rv_status rvi_normalizer_from_json(rvi_normalizer *out, const rvi_json *v, rvi_arena *arena,
                                   rv_error *err) RVI_MUST_CHECK;
rvi_norm_step *rvi_normalizer_add(rvi_normalizer *n, rvi_norm_kind kind); /* NULL: no memory */
/* The steps of BERT's normalizer. */
rv_status rvi_normalizer_add_bert(rvi_normalizer *n, bool clean, bool han, bool strip_accents,
                                  bool lowercase, rv_error *err) RVI_MUST_CHECK;
/* {"String": text} or {"Regex": text}; where names the place in errors. */
rv_status rvi_pattern_from_json(rvi_regex **out, const rvi_json *v, const char *where,
                                rv_error *err) RVI_MUST_CHECK;
/* *out is the text itself or points into w. *moved: characters were removed at the start. */
rv_status rvi_normalizer_run(const rvi_normalizer *n, rvi_norm_work *w, const char *text,
                             size_t len, rvi_piece *out, bool *moved, rv_error *err) RVI_MUST_CHECK;
/* The normalized length of a part from the middle of a text: without the steps that change the ends
 * of a text. Exact except for characters that combine across the part's ends. */
rv_status rvi_normalizer_measure(const rvi_normalizer *n, rvi_norm_work *w, const char *text,
                                 size_t len, bool first, size_t *out, rv_error *err) RVI_MUST_CHECK;

/* ---- pretokenizer.c ---- */

typedef enum rvi_behavior {
    RVI_SPLIT_ISOLATED,
    RVI_SPLIT_REMOVED,
    RVI_SPLIT_MERGED_WITH_PREVIOUS,
    RVI_SPLIT_MERGED_WITH_NEXT,
    RVI_SPLIT_CONTIGUOUS,
} rvi_behavior;

typedef enum rvi_pre_kind {
    RVI_PRE_SPLIT,      /* at the matches of `pattern` */
    RVI_PRE_SPLIT_SET,  /* at each character of `set` */
    RVI_PRE_METASPACE,  /* spaces become `text`, which may be put in front */
    RVI_PRE_PREFIX,     /* a space in front of each piece that has none */
    RVI_PRE_BYTE_LEVEL, /* bytes become characters of the alphabet */
} rvi_pre_kind;

typedef enum rvi_prepend { RVI_PREPEND_NEVER, RVI_PREPEND_FIRST, RVI_PREPEND_ALWAYS } rvi_prepend;

typedef struct rvi_pre_step {
    rvi_pre_kind kind;
    rvi_regex *pattern;
    rvi_cpset set;
    rvi_behavior behavior;
    bool invert;
    const char *text; /* METASPACE: the character for a space */
    size_t len;
    rvi_prepend prepend;
} rvi_pre_step;

typedef struct rvi_pretokenizer {
    rvi_pre_step *steps;
    size_t n;
} rvi_pretokenizer;

typedef struct rvi_pretoken {
    size_t start, len;
    bool first; /* it begins where the whole text begins */
} rvi_pretoken;

typedef struct rvi_pretokens {
    rvi_pretoken *data;
    size_t n, cap;
} rvi_pretokens;

typedef struct rvi_pre_work {
    rvi_buf buf[2];
    rvi_pretokens spans[2];
    struct rvi_cut *cuts;
    size_t n_cuts, cap_cuts;
    rvi_regex_work regex;
} rvi_pre_work;

void rvi_pretokenizer_deinit(rvi_pretokenizer *p);
void rvi_pre_work_deinit(rvi_pre_work *w);
rv_status rvi_pretokenizer_from_json(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                                     rv_error *err) RVI_MUST_CHECK;
rvi_pre_step *rvi_pretokenizer_add(rvi_pretokenizer *p, rvi_pre_kind kind); /* NULL: no memory */
/* BERT's: words between white space, and each punctuation mark by itself. */
rv_status rvi_pretokenizer_add_bert(rvi_pretokenizer *p, rv_error *err) RVI_MUST_CHECK;
/* replacement, prepend_scheme or the older add_prefix_space */
rv_status rvi_metaspace_from_json(const rvi_json *v, const char **text, size_t *len,
                                  rvi_prepend *prepend, rvi_arena *arena,
                                  rv_error *err) RVI_MUST_CHECK;
/* The pieces: *spans of *text. Both live until the next call. */
rv_status rvi_pretokenizer_run(const rvi_pretokenizer *p, rvi_pre_work *w, const char *text,
                               size_t len, bool first, const char **out_text,
                               const rvi_pretokens **spans, rv_error *err) RVI_MUST_CHECK;

/* ---- decoder.c ---- */

typedef enum rvi_dec_kind {
    RVI_DEC_BYTE_LEVEL,
    RVI_DEC_BYTE_FALLBACK,
    RVI_DEC_REPLACE,
    RVI_DEC_FUSE,
    RVI_DEC_STRIP,
    RVI_DEC_METASPACE,
    RVI_DEC_WORDPIECE, /* a space before each token that does not begin with `from` */
    RVI_DEC_JOIN,      /* no decoder: tokens with a space between them */
} rvi_dec_kind;

typedef struct rvi_dec_step {
    rvi_dec_kind kind;
    const char *from, *to; /* REPLACE: literal texts, or pattern instead of from; METASPACE: from */
    size_t from_len, to_len;
    rvi_regex *pattern;
    bool fused;      /* what comes here is one text in portions, not tokens */
    bool drop_first; /* METASPACE: in the first token the character disappears */
    bool cleanup;    /* WORDPIECE: no space before punctuation and English short forms */
    uint32_t cp;     /* STRIP */
    uint32_t start, stop;
} rvi_dec_step;

typedef struct rvi_decoder {
    rvi_dec_step *steps;
    size_t n;
} rvi_decoder;

void rvi_decoder_deinit(rvi_decoder *d);
rv_status rvi_decoder_from_json(rvi_decoder *out, const rvi_json *v, rvi_arena *arena,
                                rv_error *err) RVI_MUST_CHECK;
rvi_dec_step *rvi_decoder_add(rvi_decoder *d, rvi_dec_kind kind); /* NULL: no memory */
rv_status rvi_decoder_check(rvi_decoder *d,
                            rv_error *err) RVI_MUST_CHECK; /* once all steps are there */

/* ---- the whole ---- */

typedef struct rvi_special { /* a token with a role */
    int32_t id;              /* -1: none, or its text is not a token */
    const char *text;        /* NULL: none */
    size_t len;
} rvi_special;

enum { RVI_ROLE_BOS, RVI_ROLE_EOS, RVI_ROLE_UNK, RVI_ROLE_PAD, RVI_N_ROLES };
extern const char *const rvi_role_names[RVI_N_ROLES]; /* "bos_token", ... */

struct rvi_tokenizer {
    rvi_arena arena;   /* texts and tables */
    rvi_piece *pieces; /* by id */
    uint8_t *marks;    /* by id: RVI_MARK_... */
    int32_t size;
    rvi_bpe bpe;
    rvi_wordpiece wordpiece;
    rvi_added added;
    rvi_normalizer normalizer;
    rvi_pretokenizer pretokenizer;
    rvi_decoder decoder;
    rvi_ids before, after; /* what RVI_TOK_BOS_EOS puts around a text */
    rvi_special special[RVI_N_ROLES];
    const char *chat_template;
    size_t chat_template_len;
    char kind[64];
};

enum {
    RVI_MARK_SPECIAL = 1,
    RVI_MARK_EOS = 2,
    RVI_MARK_RESPELLED = 4 /* an added token whose `spoken` is another text */
};

/* tokenizer.c, for the loaders */
rv_status rvi_tokenizer_alloc(rvi_tokenizer **out, size_t size,
                              rv_error *err) RVI_MUST_CHECK; /* pieces and marks for `size` ids */
/* Once pieces, vocabulary, merges, added tokens, roles and steps are there. */
rv_status rvi_tokenizer_finish(rvi_tokenizer *t, rv_error *err) RVI_MUST_CHECK;
rvi_added_token *rvi_tokenizer_add_token(rvi_tokenizer *t); /* a zeroed one; NULL: no memory */
const char *rvi_tokenizer_spoken(const rvi_tokenizer *t, int32_t id,
                                 size_t *len);             /* what it decodes to; NULL: nothing */
void rvi_tokenizer_mark_eos(rvi_tokenizer *t, int64_t id); /* out of range: ignored */
void rvi_tokenizer_set_role(rvi_tokenizer *t, int role,
                            int64_t id); /* by id; out of range: ignored */

#endif
