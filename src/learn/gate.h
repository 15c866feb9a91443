/* gate.h - which of the taught facts does a request ask for?
 *
 * First by words: a taught subject must be named (or meant by a pronoun). Then, for one fact among
 * those of the subject, by the question's features: of its relations the nearest counts, if no
 * other stored relation and no common one is much nearer. Without calibration the words decide
 * alone.
 *
 * A gate is made from the store's facts and never changes: any number of threads may ask it. */
#ifndef RVI_LEARN_GATE_H
#define RVI_LEARN_GATE_H

#include "learn/fact.h"

/* ---- features of a question ---- */

typedef struct rvi_gate_mask {
    size_t at, len;
} rvi_gate_mask;

typedef struct rvi_gate_text {
    const char *text; /* what the user says */
    size_t len;
    const rvi_gate_mask *masks; /* the subject's words in it: they do not count */
    size_t n_masks;
} rvi_gate_text;

/* Fills n vectors, one behind the other (features.h has the real one). */
typedef rv_status (*rvi_gate_read)(void *ctx, const rvi_gate_text *texts, size_t n, float *out,
                                   rv_error *err);

typedef struct rvi_gate_reader {
    rvi_gate_read read;
    void *ctx;
    int dim;
    /* Prototypes of relations that were made before, by any gate of this calibration; NULL: none
     * are kept. recall: false, and it is made. */
    bool (*recall)(void *memory, const rvi_fact *f, float *prototype);
    void (*keep)(void *memory, const rvi_fact *f, const float *prototype);
    void *memory;
} rvi_gate_reader;

/* What is known once per model: mean and spread of every feature over ordinary questions, and what
 * the common relations (wordings.h) look like. Immutable. */
typedef struct rvi_calibration {
    int dim;
    int n_common;
    float *mean, *scale; /* scale: 1 / deviation */
    float *common;       /* n_common vectors of length 1 */
} rvi_calibration;

/* questions: ordinary ones that the model wrote itself; a few hundred. Those made by rule from the
 * common relations are read in any case. */
rv_status rvi_calibration_new(rvi_calibration **out, const rvi_gate_reader *reader,
                              const char *const *questions, size_t n_questions,
                              rv_error *err) RVI_MUST_CHECK;
void rvi_calibration_free(rvi_calibration *c); /* accepts NULL */
/* Names the prototype of a fact's relation, as this calibration makes it. */
uint64_t rvi_calibration_prototype(const rvi_calibration *c, const rvi_fact *f);
/* Flat bytes of this machine's order, and back: of dim features, and of the common relations that
 * this version knows; anything else is RV_E_STORAGE. */
bool rvi_calibration_save(const rvi_calibration *c, rvi_buf *out);
rv_status rvi_calibration_load(rvi_calibration **out, int dim, const void *data, size_t len,
                               rv_error *err) RVI_MUST_CHECK;

/* ---- the gate ---- */

typedef struct rvi_gate rvi_gate;

/* facts are borrowed, and must outlive the gate. calibration NULL: words only, and reader is not
 * used; otherwise it must outlive the gate too. before: an earlier gate of the same calibration
 * whose prototypes are taken over for relations that both have, or NULL. */
rv_status rvi_gate_new(rvi_gate **out, const rvi_tokenizer *t, const rvi_fact *const *facts,
                       size_t n_facts, const rvi_calibration *calibration,
                       const rvi_gate_reader *reader, const rvi_gate *before,
                       rv_error *err) RVI_MUST_CHECK;
void rvi_gate_free(rvi_gate *g); /* accepts NULL */

typedef struct rvi_turn {
    const char *text;
    size_t len;
    bool user; /* else the model's */
} rvi_turn;

/* Subjects of a request, by words. */
enum { RVI_GATE_SUBJECTS = 8, RVI_GATE_MASKS = 16 };
typedef struct rvi_gate_hit {
    int subjects[RVI_GATE_SUBJECTS]; /* in the order of their first mention; numbers of this gate */
    size_t n;                        /* 0: closed */
    rvi_gate_mask masks[RVI_GATE_MASKS]; /* where they stand in the last turn of the user */
    size_t n_masks;
    bool by_pronoun; /* the subject was named earlier */
    int nearest;     /* the fact that shares most words with the question, or -1 */
    int same;        /* the fact that was taught by this very question, or -1 */
} rvi_gate_hit;

/* turns: oldest first. The last one of the user asks; when it names no subject but says "she" or
 * the like, the last one named before counts. */
rv_status rvi_gate_words(const rvi_gate *g, const rvi_turn *turns, size_t n_turns,
                         rvi_gate_hit *out, rv_error *err) RVI_MUST_CHECK;
/* Is the fact about one of the subjects? For what is taught about them all. */
bool rvi_gate_about(const rvi_gate *g, const rvi_gate_hit *hit, size_t fact);

/* By how much a common relation may be nearer than the subject's own one, and of this the share by
 * which another stored relation may: that one is a serious rival, but the subject was not taught
 * it. */
#define RVI_GATE_TAU        0.1f
#define RVI_GATE_TAU_STRICT 0.0f
#define RVI_GATE_RIVAL      0.3f

/* The fact that is asked for, or -1. features: of the last turn of the user, with the hit's masks.
 * The very question that taught a fact asks for it. Without calibration or features:
 * hit->nearest. */
int rvi_gate_pick(const rvi_gate *g, const rvi_gate_hit *hit, const float *features, float tau);
bool rvi_gate_calibrated(const rvi_gate *g);
/* What the relation of a fact looks like, calibration->dim floats; NULL: it is none of this gate's,
 * or there is no calibration. */
const float *rvi_gate_prototype(const rvi_gate *g, const rvi_fact *f);

#endif
