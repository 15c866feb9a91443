/* wordings.h - a fact in many words: the texts that are trained on, and those that fence it in.
 *
 * Everything is made by rule from (subject, relation, answer) and is the same for the same seed.
 * A list owns its texts. */
#ifndef RVI_LEARN_CONSOLIDATE_WORDINGS_H
#define RVI_LEARN_CONSOLIDATE_WORDINGS_H

#include "base/rng.h"
#include "learn/consolidate/fact.h"

typedef struct rvi_wording {
    const char *user; /* NULL: a plain text, no conversation */
    const char
        *reply;       /* the assistant's; of a negative: the words put into its mouth, NULL: none */
    size_t loss_from; /* a plain text is learned from this byte of the reply on */
} rvi_wording;

typedef struct rvi_wordings { /* {0} is empty */
    rvi_wording *data;
    size_t n, cap;
    rvi_arena texts;
} rvi_wordings;

void rvi_wordings_deinit(rvi_wordings *w);
/* Appends copies, unless the very same is there. user, or reply, may be NULL. */
rv_status rvi_wordings_add(rvi_wordings *w, const char *user, const char *reply,
                           rv_error *err) RVI_MUST_CHECK;

enum {
    RVI_WORDINGS_BASE = 18, /* measured; the list goes on behind them for who wants more */
    RVI_WORDINGS_CONTEXTS = 4,
};

/* What stands around a fact: other facts of the store, for texts of two facts and for wrong values;
 * the subject's own ones are told with it. contexts: short strings of unrelated text, up to 4. */
typedef struct rvi_surroundings {
    const rvi_fact *const *others;
    size_t n_others;
    const char *const *contexts;
    size_t n_contexts;
} rvi_surroundings;

/* Appends at most max wordings, the most useful first. A FREE fact has one. */
rv_status rvi_wordings_teach(rvi_wordings *out, const rvi_fact *f, const rvi_surroundings *around,
                             size_t max, rv_error *err) RVI_MUST_CHECK;
/* The same, with surroundings drawn from the store (which may contain f itself) and from a pool of
 * contexts. */
rv_status rvi_wordings_teach_from(rvi_wordings *out, const rvi_fact *f,
                                  const rvi_fact *const *store, size_t n_store,
                                  const char *const *contexts, size_t n_contexts, size_t max,
                                  rvi_rng *rng, rv_error *err) RVI_MUST_CHECK;

/* Questions whose answers must stay the base model's, without and with the taught sentence's
 * beginning forced upon it:
 *   names       other names asked for the fact's relation, each both ways
 *   same        relations of the store that the subject was not taught, each both ways
 *   common      the same with common relations */
typedef struct rvi_fence {
    size_t names, same, common;
    bool forced;
} rvi_fence;

rv_status rvi_wordings_negatives(rvi_wordings *out, const rvi_fact *const *facts, size_t n_facts,
                                 const rvi_fence *fence, rvi_rng *rng,
                                 rv_error *err) RVI_MUST_CHECK;

/* A name that none of the facts has: kind 0 an ordinary one, 1 random syllables, 2 spliced from two
 * taught names. */
rv_status rvi_wordings_other_name(rvi_buf *out, const rvi_fact *const *facts, size_t n_facts,
                                  unsigned kind, rvi_rng *rng, rv_error *err) RVI_MUST_CHECK;

extern const char
    *const rvi_openers[]; /* beginnings of questions that the model completes itself */
extern const size_t rvi_n_openers;
size_t rvi_rng_below(rvi_rng *r, size_t n); /* 0 .. n-1; n > 0 */

#endif
