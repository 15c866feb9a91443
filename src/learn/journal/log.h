/* log.h - the feedback log: what was said about the engine's answers, and what was made of it.
 *
 * Append-only; nothing is learned from an event before it stands here. An event is one JSON object
 * in UTF-8 in the stream "feedback" of a store, with the hash of the chain in front of it:
 *
 *     record_i = hash_i (32 bytes), text_i          hash_i = sha256(hash_{i-1}, text_i), hash_0 = 0
 *
 * so a record that is changed, lost, added or moved breaks the chain at that place. The table
 * "feedback.head" holds number and hash of the last one, which shows a log that was cut off.
 *
 * A publish event names the generation it made, from which events (first..last), which generations
 * were lost by then, so that what they held waited (parents), the last event that was known, with
 * which recipe, seed and loop (note), and the digest of the result: whoever replays the log on a
 * fresh state can make every generation again and compare. */
#ifndef RVI_LEARN_LOG_H
#define RVI_LEARN_LOG_H

#include "base/sha256.h"
#include "learn/journal/store.h"

/* name, text, and what the event must have */
#define RVI_FEEDBACK_KINDS                                                                         \
    X(CORRECTION, "correction", NEEDS_QUESTION | NEEDS_CORRECTED)                                  \
    X(THUMB, "thumb", NEEDS_SCORE | NEEDS_ABOUT)          /* score 1: up, 0: down */               \
    X(SCORE, "score", NEEDS_SCORE | NEEDS_ABOUT)          /* 0..1 */                               \
    X(UNDO, "undo", NEEDS_TARGET)                         /* of the event `target` */              \
    X(FORGET, "forget", NEEDS_NOTE)                       /* note: the text, or `target` alone */  \
    X(PUBLISH, "publish", NEEDS_GENERATION | NEEDS_RANGE) /* a new generation */                   \
    X(ROLLBACK, "rollback", 0)                            /* back to `generation`, 0: the base */  \
    X(IMPORT, "import", NEEDS_GENERATION | NEEDS_DIGEST)  /* an adapter from outside */            \
    X(MERGE, "merge", NEEDS_GENERATION | NEEDS_PARENTS)   /* of the generations `parents` */

typedef enum rvi_feedback_kind {
#define X(name, text, needs) RVI_FEEDBACK_##name,
    RVI_FEEDBACK_KINDS
#undef X
        RVI_FEEDBACK_N_KINDS
} rvi_feedback_kind;

enum {
    RVI_FEEDBACK_MAX_TEXT = 64 << 10, /* bytes of question, given, corrected, note */
    RVI_FEEDBACK_MAX_NAME = 256,      /* bytes of user, answer, recipe */
    RVI_FEEDBACK_MAX_PARENTS = 32,
};

typedef struct rvi_feedback {
    uint64_t seq; /* 1, 2, 3 ...; set by the log */
    int64_t time; /* milliseconds since 1970, UTC; 0 in an append: now */
    rvi_feedback_kind kind;
    rvi_text user;      /* who said it */
    rvi_text answer;    /* names the answer it is about */
    rvi_text question;  /* what had been asked */
    rvi_text given;     /* what the engine had answered */
    rvi_text corrected; /* what it should answer */
    rvi_text note;
    rv_scope scope;  /* of a correction */
    double score;    /* NaN: none */
    uint64_t target; /* another event; 0: none. Of publish: the last that its making knew of */
    uint64_t branch; /* of a thumb down, whose note is how the answer began: bytes of it that an
                        answer may share, + 1; 0: unknown */

    uint64_t generation;  /* 0: none */
    uint64_t first, last; /* events that went into it; 0: none */
    uint64_t parents[RVI_FEEDBACK_MAX_PARENTS];
    size_t n_parents;
    rvi_text recipe;
    uint64_t seed;
    char digest[RVI_SHA256_HEX]; /* of the adapter; "": none */
} rvi_feedback;

const char *rvi_scope_name(rv_scope scope);

/* An event without anything in it: score is NaN. */
rvi_feedback rvi_feedback_new(rvi_feedback_kind kind);

/* Is it fit to be logged? RV_E_INVALID says what is missing, empty, too long or not UTF-8. */
rv_status rvi_feedback_check(const rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;

/* The text of an event that is fit to be logged, and back. What is parsed comes from a file and is
 * checked like any other event; its texts live in the arena. */
rv_status rvi_feedback_write(rvi_buf *out, const rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_feedback_parse(rvi_feedback *out, const char *text, size_t len, rvi_arena *arena,
                             rv_error *err) RVI_MUST_CHECK;

/* Checks f and appends it; when this returns RV_OK it is on the disk and f->seq and f->time are
 * set. After an error nothing was logged. Inside a transaction of the caller it is on the disk when
 * that one ends. */
rv_status rvi_feedback_append(rvi_store *s, rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;

/* Calls each for the events from number `from` on, until it returns something else than 0. The
 * event is valid during the call, which must not use the store. A record that cannot be read is
 * RV_E_STORAGE with its number; the chain is not checked. */
typedef int (*rvi_feedback_fn)(void *ctx, const rvi_feedback *f);
rv_status rvi_feedback_read(rvi_store *s, uint64_t from, rvi_feedback_fn each, void *ctx,
                            rv_error *err) RVI_MUST_CHECK;

/* Events in the log. */
rv_status rvi_feedback_count(rvi_store *s, uint64_t *n, rv_error *err) RVI_MUST_CHECK;

/* The head follows from the log: where it is damaged, missing or behind, it is made again from the
 * records, as far as their chain is whole. */
rv_status rvi_feedback_repair(rvi_store *s, rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_feedback_report {
    uint64_t n_events; /* that were found right, from the first on */
    uint64_t broken;   /* number of the first wrong one; 0: the whole log is right */
    char why[sizeof((rv_error *)0)->text]; /* what is wrong with it */
    uint8_t hash[RVI_SHA256_LEN];          /* the chain's, after n_events */
} rvi_feedback_report;

/* Walks the whole chain. A broken one is RV_OK with report.broken set; an error is a store that
 * cannot be read. */
rv_status rvi_feedback_verify(rvi_store *s, rvi_feedback_report *report,
                              rv_error *err) RVI_MUST_CHECK;

#endif
