/* vocab.h - the tokens of a vocabulary as tries over their bytes, ready for masks.
 *
 * Tokens of characters that may stand in a JSON string as they are ("plain" ones; the last
 * character may be cut off) have a trie of their own: most strings allow all of them, those of a
 * limited length all up to that length. Immutable; any number of threads. */
#ifndef RVI_GRAMMAR_VOCAB_H
#define RVI_GRAMMAR_VOCAB_H

#include "grammar/lex.h"

/* A trie, its nodes in the order of a walk: children follow their parent. */
typedef struct rvi_vocab_trie {
    uint32_t n;
    uint8_t *byte;  /* leads to the node */
    uint8_t *depth; /* 1 for the first byte; tokens are at most RVI_VOCAB_LONGEST bytes */
    uint32_t *end;  /* behind the last node below */
    int32_t *token; /* that ends here, -1: none */
} rvi_vocab_trie;

enum { RVI_VOCAB_LONGEST = 250 }; /* longer tokens are never allowed */
enum { RVI_PLAIN, RVI_MIXED, RVI_N_TRIES };

typedef struct rvi_exit { /* a quote that ends a string in the middle of a token */
    uint32_t node;        /* in the trie of mixed tokens */
    uint32_t state;       /* of the lexer, before the quote */
} rvi_exit;

/* What a state of the lexer does with the tokens of a trie, whatever stands around the text. */
typedef struct rvi_lex_mask {
    uint64_t *inside;  /* tokens that stay in the text */
    uint64_t *closing; /* mixed tokens that end with its closing quote */
    rvi_exit *exits;
    size_t n_exits;
} rvi_lex_mask;

/* Plain tokens by their length: those of more than `limit` characters have a trie, so that they
 * alone are looked at where all shorter ones are known to fit. */
enum { RVI_N_LENGTHS = 4 };
typedef struct rvi_vocab_length {
    uint32_t limit;
    uint64_t *within;
    rvi_vocab_trie beyond;
} rvi_vocab_length;

typedef struct rvi_vocab {
    int32_t n_tokens;
    size_t n_words;        /* 64-bit words of a mask */
    const uint8_t **bytes; /* of each token; NULL: none (special, or a hole) */
    uint32_t *lens;
    int32_t *twin; /* another token with the same bytes, -1: none */
    rvi_vocab_trie tries[RVI_N_TRIES];
    uint64_t *plain;                         /* the plain tokens */
    uint32_t longest_plain;                  /* in characters */
    uint32_t longest_mixed;                  /* at most, of the part that can be inside a string */
    rvi_vocab_length lengths[RVI_N_LENGTHS]; /* by rising limit */
    uint64_t *eos;                           /* tokens that end the generation */
    rvi_lex_mask free_string;                /* mixed tokens in a string without conditions */
    rvi_arena arena;
} rvi_vocab;

/* piece: the bytes of a token, NULL for one that is no text. *eos: it ends the generation. */
typedef const uint8_t *(*rvi_vocab_piece)(void *ctx, int32_t id, uint32_t *len, bool *eos);
rv_status rvi_vocab_new(rvi_vocab **out, int32_t n_tokens, rvi_vocab_piece piece, void *ctx,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_vocab_free(rvi_vocab *v); /* accepts NULL */

/* Allows a token and all that have the same bytes. */
static inline void rvi_vocab_allow(const rvi_vocab *v, uint64_t *mask, int32_t token)
{
    for (; token >= 0; token = v->twin[token]) mask[token >> 6] |= 1ull << (token & 63);
}

/* Whether some token begins with these bytes and is longer. */
bool rvi_vocab_extends(const rvi_vocab *v, const uint8_t *bytes, size_t len);

/* Where all plain tokens up to some length fit into the text of a lexer state: adds them to mask
 * and returns the trie of the others, NULL if there are none; else the trie of all. */
const rvi_vocab_trie *rvi_vocab_fitting(const rvi_vocab *v, const rvi_lexer *l, uint32_t state,
                                        uint64_t *mask);
/* The mask of a state for the plain or the mixed tokens; out's arrays are made on the heap. False:
 * no memory, or the lexer failed. */
bool rvi_lex_mask_make(const rvi_vocab *v, rvi_lexer *l, uint32_t state, int which,
                       rvi_lex_mask *out);
void rvi_lex_mask_deinit(rvi_lex_mask *m);

#endif
