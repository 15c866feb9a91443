/* regex.h - the regular expressions of tokenizers, over code points, with the meaning they have in
 * Oniguruma: leftmost match, alternatives in their order, greedy, lazy and possessive loops.
 *
 * Understood: literals, `.`, classes with ranges, negation, nesting, `&&`, [:name:]; \p{..} \P{..}
 * \d \D \s \S \w \W \h \H; \t \n \r \f \v \a \e \xHH \x{H..} \uHHHH; ( ) (?: ) (?<name> ) (?> )
 * (?i: ) (?m: ) (?i); (?= ) (?! ), (?<= ) and
 * (?<! ) of fixed length; * + ? {m} {m,} {m,n} {,n} with ? (lazy) and, but for intervals, +
 * (possessive); ^ $ \A \z \Z \b \B. Everything else is an error that names it. Case-insensitive
 * matching folds one code point to one code point. In a loop whose body can match nothing, a round
 * that takes no character counts as failed.
 *
 * A compiled expression is immutable and can be shared between threads. Matching takes time
 * proportional to the length of the text times the size of the expression: when plain backtracking
 * gets long, failed states are remembered. Where even that does not help (atomic groups tried at
 * every place), matching ends with an error after a number of steps that is proportional to the
 * length of the text. */
#ifndef RVI_TOKENIZER_REGEX_H
#define RVI_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct rvi_regex rvi_regex;

rv_status rvi_regex_new(rvi_regex **out, const char *pattern, size_t len,
                        rv_error *err) RVI_MUST_CHECK;
/* Matches exactly this text. */
rv_status rvi_regex_new_literal(rvi_regex **out, const char *text, size_t len,
                                rv_error *err) RVI_MUST_CHECK;
void rvi_regex_free(rvi_regex *re); /* accepts NULL */

/* Scratch of one thread, reused from text to text. {0} is an empty one. */
typedef struct rvi_regex_work {
    const rvi_regex *re;
    const char *text; /* valid UTF-8 */
    size_t len;
    size_t next;     /* where the next search begins */
    size_t last_end; /* of the last match; SIZE_MAX: none yet */

    struct rvi_regex_choice *stack; /* choices left open */
    size_t n_stack, cap_stack;
    uint64_t steps, steps_before_memo, steps_max;
    uint8_t *memo; /* two bits for each (choice, position); NULL: not in use */
    size_t cap_memo;
    bool memo_on;
    uint64_t *log; /* remembered states on the way to where the match is now */
    size_t n_log, cap_log;
} rvi_regex_work;

void rvi_regex_begin(rvi_regex_work *w, const rvi_regex *re, const char *text, size_t len);
/* The matches one after the other, not overlapping; an empty one right behind another match is left
 * out. */
rv_status rvi_regex_next(rvi_regex_work *w, bool *found, size_t *start, size_t *end,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_regex_work_deinit(rvi_regex_work *w);

#endif
