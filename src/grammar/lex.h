/* lex.h - languages over bytes: UTF-8 as it comes, or the inside of a JSON string.
 *
 * A state is a language over characters and what was read of the next character: bytes of UTF-8,
 * or an escape. It goes on only where some text of the language can still come. */
#ifndef RVI_GRAMMAR_LEX_H
#define RVI_GRAMMAR_LEX_H

#include "grammar/rx.h"

enum { RVI_LEX_DEAD, RVI_LEX_EXIT, RVI_LEX_FIRST };
/* EXIT: the closing quote of a string whose text is complete */

typedef enum rvi_lex_mode { RVI_LEX_TEXT, RVI_LEX_STRING } rvi_lex_mode;

typedef struct rvi_lex_state {
    rvi_rx rx;
    uint32_t pending; /* 0: between characters */
    uint32_t mode;
    uint32_t row; /* + 1; 0: none yet */
} rvi_lex_state;

typedef struct rvi_lexer {
    rvi_rxs *rxs;
    bool canonical; /* strings have escapes only where they need them */
    rvi_lex_state *states;
    uint32_t n_states, cap_states;
    uint32_t *table, table_mask;
    uint32_t *rows; /* 256 each: the next state, UINT32_MAX: not known yet */
    uint32_t n_rows, cap_rows;
} rvi_lexer;

bool rvi_lexer_init(rvi_lexer *l, rvi_rxs *rxs);
void rvi_lexer_deinit(rvi_lexer *l);

/* Failures are those of the pool; the answer is RVI_LEX_DEAD then. */
uint32_t rvi_lex_start(rvi_lexer *l, rvi_rx rx, rvi_lex_mode mode);
/* The state with another language, which the next step looks at: what was read of a character
 * stays. */
uint32_t rvi_lex_with(rvi_lexer *l, uint32_t state, rvi_rx rx);
/* cp (may be NULL): the character that this byte completed, else UINT32_MAX. */
uint32_t rvi_lex_step(rvi_lexer *l, uint32_t state, uint8_t byte, uint32_t *cp);
bool rvi_lex_ends(const rvi_lexer *l, uint32_t state); /* the text may be complete here */

/* The step by a byte, remembered in the state's row. */
uint32_t rvi_lex_fill(rvi_lexer *l, uint32_t state, uint8_t byte);

static inline uint32_t rvi_lex_fast(rvi_lexer *l, uint32_t state, uint8_t byte)
{
    uint32_t row = l->states[state].row,
             next = row ? l->rows[(size_t)(row - 1) * 256 + byte] : UINT32_MAX;
    return next != UINT32_MAX ? next : rvi_lex_fill(l, state, byte);
}

#endif
