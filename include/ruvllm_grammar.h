/* ruvllm_grammar.h - answers of a form that is guaranteed: JSON that satisfies a schema, texts that
 * match a regular expression or a grammar, one of a list of choices.
 *
 *   rv_grammar *g;
 *   if (!rv_grammar_new(&g, m, RV_GRAMMAR_SCHEMA, schema, strlen(schema), NULL, &err)) {
 *       rv_generate_options o = {.size = sizeof o, .grammar = g};
 *       rv_session_chat(s, &chat, &o, &a, &err);
 *   }
 *
 * Any number of answers may have the same grammar, in sessions and in services. Where only one text
 * can follow, its tokens are taken at once and computed together. Before an answer runs out of
 * max_tokens, it is brought to its end in a short way, where one is found quickly; only where the
 * shortest text has more tokens than that is it cut (RV_FINISH_LENGTH). To go on with an
 * answer that was cut short, also in a fork of its session, begin the next one in its
 * grammar_state.
 *
 * A grammar says which tokens may come next, byte for byte: a token is allowed if a valid text
 * continues with it. What a schema asks and cannot be enforced is refused when the grammar is made,
 * with the place that asks for it. So are expressions that would take too much work: nested
 * repetitions are tried on a text that makes them large. What only a certain text shows ends the
 * answer with RV_E_TOO_LONG. Any thread may use a grammar at any time; a state is a number that may
 * be copied, kept and used again. */
#ifndef RUVLLM_GRAMMAR_H
#define RUVLLM_GRAMMAR_H

#include "ruvllm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rv_grammar_kind {
    RV_GRAMMAR_SCHEMA,  /* JSON Schema 2020-12, and the words of older drafts; formats are enforced.
                          Members may come in any order. */
    RV_GRAMMAR_JSON,    /* any JSON object; no text is needed */
    RV_GRAMMAR_REGEX,   /* a regular expression of ECMA-262 that matches the whole text */
    RV_GRAMMAR_GBNF,    /* llama.cpp's grammars; the rule "root" is the whole text. Two items more:
                          %json {...}, a value that satisfies the schema, and %without "text", any
                          text in which that one does not occur */
    RV_GRAMMAR_CHOICES, /* a JSON list of strings: one of them */
    RV_GRAMMAR_LARK     /* Lark's grammars, as its Earley parser reads them with the lexer
                           dynamic_complete; the rule "start" is the whole text. Without templates,
                           and with imports of `common` alone; %json {...} is an item too */
} rv_grammar_kind;

typedef struct rv_grammar_options {
    size_t size;
    int max_blanks; /* white space in a row between the parts of JSON, and one at its beginning;
                       0: any, -1: none */
    int canonical;  /* strings of JSON have escapes only where they need them */
} rv_grammar_options;

/* Errors: RV_E_UNSUPPORTED names what cannot be enforced, RV_E_CONFIG what is wrong in the text,
 * RV_E_TOO_LONG what takes too much work; RV_E_GENERATION: no text satisfies the schema. */
RV_API rv_status rv_grammar_new(rv_grammar **out, const rv_model *m, rv_grammar_kind kind,
                                const char *text, size_t len, const rv_grammar_options *o,
                                rv_error *err);
RV_API void rv_grammar_free(rv_grammar **g);

/* States: 0 is none, the text has left the grammar. */
RV_API uint32_t rv_grammar_start(const rv_grammar *g);
/* The state behind a token, or 0. Tokens that end the generation give 0 too. */
RV_API rv_status rv_grammar_advance(rv_grammar *g, uint32_t state, int32_t token, uint32_t *next,
                                    rv_error *err);
RV_API int rv_grammar_ends(rv_grammar *g, uint32_t state); /* 1: the text may end here */
/* Bit i % 64 of mask[i / 64]: token i may come. n_words: as many as n_vocab needs. */
RV_API rv_status rv_grammar_mask(rv_grammar *g, uint32_t state, uint64_t *mask, size_t n_words,
                                 rv_error *err);
/* The bytes that follow in any case, and the state behind them; *text: rv_free. */
RV_API rv_status rv_grammar_forced(rv_grammar *g, uint32_t state, char **text, size_t *len,
                                   uint32_t *after, rv_error *err);

#ifdef __cplusplus
}
#endif

#endif
