/* lessons.h - what was taught. A correction: a question and the answer it should have had, as they
 * were given. A pair: of two answers the one that was preferred.
 *
 * Of the corrections of one question the newest stands; the others are kept, and stand again when
 * what ended them is taken back. Nothing is ever removed, so that the log and the list agree, and
 * texts may be borrowed by whoever trains.
 *
 * A correction of scope always is an instruction: its answer stands before every chat, and for its
 * question too. It is not spoken, and goes into no weights. A pair only goes into weights. */
#ifndef RVI_LEARN_STATE_LESSONS_H
#define RVI_LEARN_STATE_LESSONS_H

#include "learn/journal/log.h"
#include "learn/consolidate/base_model.h"

/* Is it the same question, but for case, white space and the marks of sentences? */
bool rvi_question_same(const char *a, const char *b);

/* Tells questions apart at once, in any script: of thousands one is looked for with every lesson.
 * 0: there was no memory to make it, and it says nothing. */
uint64_t rvi_question_key(const char *text);
/* False: the two are not the same question. */
bool rvi_question_may_be(uint64_t a, uint64_t b);

typedef struct rvi_lesson {
    uint64_t event;
    rv_scope scope;
    char *question, *answer;
    char *rejected; /* of a pair: the other answer; NULL: it is none */
    uint64_t key;   /* of a correction's question */
    rvi_ids spoken; /* the answer's tokens, ended; of instructions and pairs none */
    int generation; /* that holds it; 0: it waits */
    bool in_force;
    uint64_t ended_by; /* the event after which it is no longer in force, */
    bool forgotten;    /* which was its forgetting; */
    bool named;        /* the next one is meant to */
} rvi_lesson;

typedef struct rvi_lessons { /* {0} is empty */
    rvi_lesson *list;        /* in the order of their events */
    size_t n, cap;
} rvi_lessons;

/* A lesson that is in no list yet. Where no question was given, the answer stands for it too.
 * RV_E_INVALID: the answer is empty. RV_E_TOO_LONG: it has more tokens than can be spoken. */
rv_status rvi_lesson_init(rvi_lesson *x, const rvi_base_model *v, rvi_text question,
                          rvi_text answer, rv_scope scope, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_lesson_init_pair(rvi_lesson *x, rvi_text question, rvi_text chosen, rvi_text rejected,
                               rv_error *err) RVI_MUST_CHECK;
void rvi_lesson_deinit(rvi_lesson *x);
/* In force, and a correction that is spoken, an instruction, a pair. */
bool rvi_lesson_answers(const rvi_lesson *x);
bool rvi_lesson_instructs(const rvi_lesson *x);
bool rvi_lesson_prefers(const rvi_lesson *x);

/* Room for one more, so that the next cannot fail: before it is logged. */
rv_status rvi_lessons_reserve(rvi_lessons *l, rv_error *err) RVI_MUST_CHECK;
/* Takes x; it stands, and no other correction of the same question (or instruction of the same
 * words). */
void rvi_lessons_add(rvi_lessons *l, const rvi_lesson *x, uint64_t event);
rvi_lesson *rvi_lessons_find(const rvi_lessons *l, uint64_t event); /* NULL: unknown */
/* The one that stands and that x would take the place of without any difference; NULL: none. */
const rvi_lesson *rvi_lessons_same(const rvi_lessons *l, const rvi_lesson *x);
/* The lesson of this event ends, and those that it had ended stand again. Returns it; NULL: it did
 * not stand, or is a pair that an adapter was made of. */
const rvi_lesson *rvi_lessons_take_back(rvi_lessons *l, uint64_t event, uint64_t by);
/* Names the one that the event is about, or all with its text in their question or answers, those
 * that do not stand any more too; *n: how many. */
rv_status rvi_lessons_name(rvi_lessons *l, const rvi_feedback *f, int *n,
                           rv_error *err) RVI_MUST_CHECK;
/* Those that were named end, for good. */
void rvi_lessons_forget(rvi_lessons *l, uint64_t by);
/* An event of the log as it was when it came. */
rv_status rvi_lessons_apply(rvi_lessons *l, const rvi_feedback *f, const rvi_base_model *v,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_lessons_deinit(rvi_lessons *l);

#endif
