/* bank.h - the ReasoningBank: patterns (question, answer, verdict) that feedback has taught, in
 * memory and in a store.
 *
 * Every change is one transaction of the store, then made in memory; after an error nothing has
 * changed. A bank that is opened again is the same, bit for bit. Several processes may have banks
 * over one file: each change begins by taking over what others have changed (rvi_bank_refresh does
 * only that). A bank is used by one thread at a time, and does not work inside a transaction of the
 * caller.
 *
 * Two patterns are about the same question when their subjects are the same (or both empty) and
 * their relations are the same, or their questions are, or the cosine of their vectors is at least
 * `same`. Texts are compared folded (text.h). Vectors should be centred and scaled, so that the
 * cosine says something. With the same question and the same answer they become one pattern; a
 * correction supersedes every other answer to the question that is not a failure: the newest wins.
 *
 * Nothing here is random: the same events in the same order make the same bank. */
#ifndef RVI_LEARN_BANK_H
#define RVI_LEARN_BANK_H

#include "learn/log.h"
#include "learn/pattern.h"

typedef struct rvi_bank rvi_bank;

typedef struct rvi_bank_options { /* 0: the default */
    size_t max_patterns;          /* 10,000 */
    size_t max_bytes;             /* 256 MiB */
    size_t keep;                  /* best patterns a distillation keeps of a group; 8 */
    float same;                   /* 0.95 */
    uint64_t seed;                /* of the groups */
} rvi_bank_options;

/* The store must outlive the bank. A record that cannot be read is left out and counted. */
rv_status rvi_bank_open(rvi_bank **out, rvi_store *store, const rvi_bank_options *options,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_bank_free(rvi_bank *b);
/* Removes everything that banks keep in the store. */
rv_status rvi_bank_erase(rvi_store *store, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_bank_refresh(rvi_bank *b, rv_error *err) RVI_MUST_CHECK;

/* ---- reading; pointers are valid until the next change or refresh ---- */

size_t rvi_bank_count(const rvi_bank *b);
size_t rvi_bank_damaged(const rvi_bank *b);                       /* records left out */
const rvi_pattern *rvi_bank_at(const rvi_bank *b, size_t i);      /* in the order of their ids */
const rvi_pattern *rvi_bank_find(const rvi_bank *b, uint64_t id); /* NULL: not there */
uint64_t rvi_bank_last_event(const rvi_bank *b); /* the highest number that it has learned from */
/* SHA-256 of everything in it: equal banks, equal digests. */
rv_status rvi_bank_digest(const rvi_bank *b, uint8_t out[RVI_SHA256_LEN],
                          rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_bank_hit {
    const rvi_pattern *pattern;
    float cosine;
} rvi_bank_hit;

/* The k patterns with the highest cosine (exactly; equal ones: the newest first) among those that
 * are not superseded, have a vector, and a verdict of at_least. hits [k]; *n: how many there
 * are. */
rv_status rvi_bank_nearest(const rvi_bank *b, const float *vector, size_t n_dim, size_t k,
                           rvi_verdict at_least, rvi_bank_hit *hits, size_t *n,
                           rv_error *err) RVI_MUST_CHECK;

/* Groups the patterns by their vectors (k 0: sqrt(n/2)); groups [count]: each one's, UINT32_MAX for
 * those that are superseded or have no vector. */
rv_status rvi_bank_groups(const rvi_bank *b, size_t k, uint32_t *groups,
                          rv_error *err) RVI_MUST_CHECK;

/* ---- changing ---- */

/* What an event of the log says about an answer. about: question (else the event's), subject,
 * relation, words, vector. A thumb or score judges the answer that was given: its quality is the
 * mean of its scores, its verdict follows from that. A correction makes the given answer a failure
 * and the corrected one a success. *id (may be NULL): the pattern of the judged or the corrected
 * answer. A bank full of corrections that no weights know yet is RV_E_LEARNING. */
rv_status rvi_bank_learn(rvi_bank *b, const rvi_pattern *about, const rvi_feedback *f, uint64_t *id,
                         rv_error *err) RVI_MUST_CHECK;
/* A whole pattern from elsewhere; the same rules, p->correction decides which. */
rv_status rvi_bank_add(rvi_bank *b, const rvi_pattern *p, uint64_t *id,
                       rv_error *err) RVI_MUST_CHECK;

/* Puts everything that the event had changed back as it was before. Possible for the last 64 events
 * that taught something, unless a later one was about the same: RV_E_LEARNING. RV_E_NOT_FOUND: that
 * event taught nothing. by: the undo event itself, 0: none. */
rv_status rvi_bank_undo(rvi_bank *b, uint64_t event, uint64_t by, rv_error *err) RVI_MUST_CHECK;

/* Counts a use. Not synchronised to the disk by itself. */
rv_status rvi_bank_use(rvi_bank *b, uint64_t id, int64_t now, rv_error *err) RVI_MUST_CHECK;

/* The weights of a generation know these patterns. Unknown ids are passed over. */
rv_status rvi_bank_absorb(rvi_bank *b, const uint64_t *ids, size_t n, uint64_t generation,
                          rv_error *err) RVI_MUST_CHECK;
/* After going back to `generation`: what later ones had absorbed is live again. */
rv_status rvi_bank_release(rvi_bank *b, uint64_t generation, rv_error *err) RVI_MUST_CHECK;

/* Removes every pattern whose question, answer, subject or words contain the text (folded, whole
 * words), and the means to undo. by: the forget event, 0: none. each (may be NULL) is called for
 * every one that is to go; if the call fails in the end, all are still there. */
enum { RVI_FORGET_MAX = 1024 }; /* bytes of the text */
rv_status rvi_bank_forget(rvi_bank *b, rvi_text text, uint64_t by,
                          void (*each)(void *ctx, const rvi_pattern *p), void *ctx, size_t *n,
                          rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_bank_report {
    size_t n_before, n_superseded, n_merged, n_distilled, n_pruned,
        n_after; /* removed, by reason */
} rvi_bank_report;

/* Tidies up: removes what is superseded, makes one of duplicates, distils (of each group the medoid
 * and the best patterns stay; corrections always do; what has stayed once is not judged again),
 * prunes to the bounds (least used, oldest first; never a correction that no weights know). A
 * second time in a row changes nothing. */
rv_status rvi_bank_consolidate(rvi_bank *b, rvi_bank_report *report, rv_error *err) RVI_MUST_CHECK;

#endif
