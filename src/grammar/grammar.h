/* grammar.h - what a text may be, compiled for one vocabulary: which tokens may come next.
 *
 * A state is a number: copy it to fork, keep an older one to roll back. State 0 is none. Masks and
 * states are made when they are first asked for and kept for all users of the grammar, one thread
 * at a time; limits on their number end in an error, never in a wrong mask. */
#ifndef RVI_GRAMMAR_GRAMMAR_H
#define RVI_GRAMMAR_GRAMMAR_H

#include "base/json.h"
#include "grammar/vocab.h"

typedef struct rvi_grammar rvi_grammar;

typedef struct rvi_grammar_options {
    int max_blanks; /* white space in a row between the parts of JSON; 0: any, -1: none */
    bool canonical; /* strings of JSON have escapes only where they need them */
} rvi_grammar_options;

/* The vocabulary must outlive the grammar; nothing else is kept. Errors: RV_E_UNSUPPORTED names
 * what cannot be enforced and where it is asked, RV_E_CONFIG what is wrong in the source. */
rv_status rvi_grammar_schema(rvi_grammar **out, const rvi_vocab *v, const char *json, size_t len,
                             const rvi_grammar_options *o, rv_error *err) RVI_MUST_CHECK;
/* Any JSON object. */
rv_status rvi_grammar_json(rvi_grammar **out, const rvi_vocab *v, const rvi_grammar_options *o,
                           rv_error *err) RVI_MUST_CHECK;
/* The pattern must match the whole text. */
rv_status rvi_grammar_regex(rvi_grammar **out, const rvi_vocab *v, const char *pattern, size_t len,
                            rv_error *err) RVI_MUST_CHECK;
rv_status rvi_grammar_gbnf(rvi_grammar **out, const rvi_vocab *v, const char *text, size_t len,
                           const rvi_grammar_options *o, rv_error *err) RVI_MUST_CHECK;
/* Lark's grammars: lark.h says which. Its rule "start" is the whole text. */
rv_status rvi_grammar_lark(rvi_grammar **out, const rvi_vocab *v, const char *text, size_t len,
                           const rvi_grammar_options *o, rv_error *err) RVI_MUST_CHECK;
/* One of the texts in a JSON list of strings. */
rv_status rvi_grammar_choices(rvi_grammar **out, const rvi_vocab *v, const char *json, size_t len,
                              rv_error *err) RVI_MUST_CHECK;
void rvi_grammar_free(rvi_grammar *g); /* accepts NULL */

uint32_t rvi_grammar_start(const rvi_grammar *g);
/* The tokens that may come, one bit each; those that end the generation where the text may end. The
 * mask stays valid until the next call on the grammar. */
rv_status rvi_grammar_mask(rvi_grammar *g, uint32_t state, const uint64_t **mask,
                           rv_error *err) RVI_MUST_CHECK;
/* *next is 0 if the token is not allowed; one that is no text never is. */
rv_status rvi_grammar_token(rvi_grammar *g, uint32_t state, int32_t token, uint32_t *next,
                            rv_error *err) RVI_MUST_CHECK;
/* The same for a text. */
rv_status rvi_grammar_text(rvi_grammar *g, uint32_t state, const char *text, size_t len,
                           uint32_t *next, rv_error *err) RVI_MUST_CHECK;
/* Whether the text is inside what a rule named "ruvllm-thinking" reads, before its end. */
bool rvi_grammar_thinks(rvi_grammar *g, uint32_t state);
const rvi_vocab *rvi_grammar_vocab(const rvi_grammar *g);
size_t rvi_grammar_mask_words(const rvi_grammar *g);          /* of a mask */
bool rvi_grammar_ends(rvi_grammar *g, uint32_t state);        /* the text may end here */
bool rvi_grammar_knows(const rvi_grammar *g, uint32_t state); /* it is a state of this grammar */
/* The text may end here, and nothing may follow but white space that means nothing. */
bool rvi_grammar_complete(rvi_grammar *g, uint32_t state);
/* Appends the bytes that come in any case (at most `most`), and sets *after to the state behind
 * them. */
rv_status rvi_grammar_forced(rvi_grammar *g, uint32_t state, size_t most, rvi_buf *out,
                             uint32_t *after, rv_error *err) RVI_MUST_CHECK;

/* Appends a short text with which the text may end; *found is false where none was found quickly.
 */
rv_status rvi_grammar_finish(rvi_grammar *g, uint32_t state, rvi_buf *out, bool *found,
                             rv_error *err) RVI_MUST_CHECK;

#endif
