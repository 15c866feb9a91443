/* learner_internal.h - what the files of the learner share among themselves.
 *
 *   learner.c       its life, and what it says about itself
 *   apply.c          the log, and the owners of what follows from it (learn/state)
 *   follow.c        a log to which others append too
 *   feedback.c      corrections and preferences, undoing, forgetting
 *   judgements.c    scores and thumbs
 *   route.c         from a request to what takes part in its answer
 *   publish.c       adapters become generations, and go back; save.c: their files; files.c: where
 *                   they are, on the disk and in the store
 *   jobs.c          what is computed beside serving, one table (jobs.h)
 *   calibrate.c     what is made once for a model, before training
 *   traits.c        what is found out about a model once: repeats.c what of a chat it must not read
 *                   again; reads.c whether it can read a lesson, by those of invented.c
 *   round.c         a group of lessons, or pairs, becomes an adapter; consolidate.c: all that waits
 *   save_shared.c, save_instant.c, retrace.c   to the disk and back */
#ifndef RVI_LEARN_LEARNER_INTERNAL_H
#define RVI_LEARN_LEARNER_INTERNAL_H

#include "learn/learner/learner.h"
#include "learn/journal/list.h"

/* ---- calibrate.c ---- */
rv_status rvi_learner_need_baseline(rvi_learner *l, const rvi_base_model *v,
                                    rvi_study_progress_fn progress, void *ctx,
                                    rv_error *err) RVI_MUST_CHECK;
rv_status rvi_calibration_reopen(rvi_learner *l, rv_error *err) RVI_MUST_CHECK; /* from the store */

/* ---- repeats.c ---- */
/* After lessons were added. */
rv_status rvi_learner_note_answers(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_repeats_reopen(rvi_learner *l, rv_error *err) RVI_MUST_CHECK; /* from the store */

/* ---- reads.c ---- */
rv_status rvi_reads_reopen(rvi_learner *l, rv_error *err) RVI_MUST_CHECK; /* from the store */

/* ---- invented.c ---- */
enum { RVI_INVENTED = 8, RVI_NEAR = 2 };
typedef struct rvi_invented_lesson {
    const char *question, *answer;
    const char *needed; /* a request that asks for the answer, */
    const char *key;    /* which has this in it */
    /* Stands in the lesson's question and in no near one: who says it tells what the lesson is
     * about, and has not taken it for the answer. */
    const char *about;
    const char *near[RVI_NEAR];
} rvi_invented_lesson;
extern const rvi_invented_lesson rvi_invented_lessons[RVI_INVENTED];
/* What was answered about one. */
typedef struct rvi_invented_answers {
    const char *needed;                           /* to the request that needs it, */
    const char *near[RVI_NEAR], *alone[RVI_NEAR]; /* to those near it, and without the lesson */
} rvi_invented_answers;
/* Does who answers like this read? */
rv_status rvi_invented_judge(const rvi_invented_answers answers[RVI_INVENTED], bool *reads,
                             rv_error *err) RVI_MUST_CHECK;

/* ---- traits.c ---- */
typedef enum rvi_trait { RVI_TRAIT_UNKNOWN, RVI_TRAIT_NO, RVI_TRAIT_YES } rvi_trait;
/* what: a short name; from the store, and to it where it is not known yet. */
rv_status rvi_trait_reopen(rvi_learner *l, const char *what, atomic_int *trait,
                           rv_error *err) RVI_MUST_CHECK;
rv_status rvi_trait_keep(rvi_learner *l, const char *what, atomic_int *trait, bool yes,
                         rv_error *err) RVI_MUST_CHECK;
/* Something was taught, and it is not known. */
bool rvi_trait_is_due(const rvi_learner *l, const atomic_int *trait);
const char *rvi_trait_json(const atomic_int *trait);

/* ---- follow.c: whose the state is ---- Processes may read the same state; one of them changes it.
 * The first that wants to has it from then on, or, in a store that is shared, until the end of the
 * call (rvi_learner_yield); it takes over first what others have learned. Comes before anything
 * else that a change looks at: lists may grow. */
rv_status rvi_learner_own(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* Owns it, and appends to the log. */
rv_status rvi_learner_log(rvi_learner *l, rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;
/* The event was appended, and is on the disk. */
void rvi_learner_logged(rvi_learner *l, const rvi_feedback *f);
rv_status rvi_learner_read_paused(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* Applies the log from the event after the last that was applied on. */
rv_status rvi_learner_read_log(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;

/* ---- apply.c ---- */
/* What the event of forgetting ended, or named. */
void rvi_learner_let_go(rvi_learner *l, const rvi_feedback *f);
rv_status rvi_learner_apply(rvi_learner *l, const rvi_feedback *f, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_reopen(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;

/* ---- feedback.c ---- */
rvi_feedback rvi_learner_event(const rvi_learner *l, rvi_feedback_kind kind); /* of its user */
rvi_adaptation rvi_adaptation_new(rv_learn_loop loop); /* nothing done, nothing measured */

/* ---- route.c ---- */
bool rvi_learner_is_gated(const rvi_learner *l, const rvi_generation *g);
/* How lessons read, in the store; ctx is the learner (rvi_recogniser_memory). */
bool rvi_learner_recall_reading(void *ctx, rvi_kept what, uint64_t lesson, rvi_buf *out);
void rvi_learner_save_reading(void *ctx, rvi_kept what, uint64_t lesson, const void *data,
                              size_t len);
/* After every change of what stands: the recogniser knows exactly those lessons, and every chat has
 * those instructions. */
rv_status rvi_learner_recognise_anew(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* The same where all that changed is that a lesson was added. */
rv_status rvi_learner_recognise_last(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;

/* ---- judgements.c ---- */
void rvi_instant_deinit(rvi_learner *l);
/* Room for every adapter there is and one more, so that retiring cannot fail; comes before each new
 * one. */
rv_status rvi_learner_reserve(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_instant_new_micro(rvi_learner *l,
                                rv_error *err) RVI_MUST_CHECK; /* if there is none */
/* The adapter of scores as it is now takes part from now on. */
rv_status rvi_instant_publish(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* Logs events, and with the last of them goes back to where the adapter of scores was before this
 * score (0: it stays as it is), whose states since are erased: all that, or nothing. */
rv_status rvi_instant_log_back(rvi_learner *l, uint64_t score, rvi_feedback *events, size_t n,
                               rv_error *err) RVI_MUST_CHECK;

/* ---- publish.c ---- */
/* One that the log names. */
rv_status rvi_learner_add_generation(rvi_learner *l, rvi_generation *g,
                                     rv_error *err) RVI_MUST_CHECK;
/* Makes g a generation: numbers it, writes its file, logs it. Takes its adapter where it
 * succeeds. */
rv_status rvi_learner_publish(rvi_learner *l, rvi_generation *g, uint64_t *event,
                              rv_error *err) RVI_MUST_CHECK;
/* The same for one that has its digest, with its file as it was written for the number g has (NULL:
 * none was). note (may be NULL): for the log. */
rv_status rvi_learner_publish_made(rvi_learner *l, rvi_generation *g, const char *file,
                                   const char *note, uint64_t *event, rv_error *err) RVI_MUST_CHECK;
/* Generations that were trained on what the event ended are out of use from now on, and what else
 * they held waits again, to be trained without it. erase: for good. n_gone: generations; n_again:
 * lessons and pairs. */
void rvi_learner_withdraw(rvi_learner *l, uint64_t by, bool erase, int *n_gone, int *n_again);
int rvi_learner_wait_again(rvi_learner *l, const rvi_generation *g); /* what it held; how many */

/* ---- save.c ---- */
#define RVI_GENERATION_FILE "generation-%06d.gguf"
/* early: the file where it was saved before, which is moved into place; NULL: it was not. */
rv_status rvi_learner_save_generation(rvi_learner *l, const rvi_generation *g, const char *early,
                                      rv_error *err) RVI_MUST_CHECK;
/* Before it has its number for good: in a file named by its digest, which is moved into place
 * later. v: whose backend made it; where that was cancelled nothing is written. */
rv_status rvi_learner_save_early(rvi_learner *l, const rvi_base_model *v, const rvi_generation *g,
                                 rvi_buf *file, rv_error *err) RVI_MUST_CHECK;
void rvi_learner_remove_early(const char *dir); /* what killed processes have left of these */

/* Appends its path. */
rv_status rvi_learner_generation_file(const rvi_learner *l, int number, rvi_buf *out,
                                      rv_error *err) RVI_MUST_CHECK;

rv_status rvi_learner_load_file(const rvi_learner *l, const char *path, rvi_adapter **out,
                                rv_error *err) RVI_MUST_CHECK;

/* ---- files.c ---- */
/* Logs the publishing of a generation whose file is on the disk; where the store is shared, with
 * the file. */
rv_status rvi_learner_log_generation(rvi_learner *l, const rvi_generation *g, rvi_feedback *f,
                                     rv_error *err) RVI_MUST_CHECK;
/* Finds out which generations have no file, of those that the log names from this event on; *last:
 * the last event that was looked at. */
rv_status rvi_learner_find_files(rvi_learner *l, uint64_t from, uint64_t *last,
                                 rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_apply_generation(rvi_learner *l, const rvi_feedback *f,
                                       rv_error *err) RVI_MUST_CHECK;
void rvi_learner_lose_named(rvi_learner *l, const rvi_feedback *f); /* by a publish event */
/* After every change of what is in use: adapters that are now, are read; those of what was
 * forgotten are erased. */
rv_status rvi_learner_settle(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* Adapters whose lessons have all been corrected since are not kept in memory. */
void rvi_learner_unload_idle(rvi_learner *l);
rv_status rvi_learner_read_active(rvi_learner *l, bool idle_too, rv_error *err) RVI_MUST_CHECK;

/* ---- save_shared.c: how a shared adapter was when a generation was made of it ---- */
rv_status rvi_shared_record(rvi_generation *g, const rvi_shared *s, rv_error *err) RVI_MUST_CHECK;
void rvi_shared_save(const rvi_learner *l,
                     const rvi_generation *g); /* as far as that is possible */
rv_status rvi_shared_load(const rvi_learner *l, rvi_generation *g, rv_error *err) RVI_MUST_CHECK;
/* The newest active one is what is trained further. Where it is not known any more how it was, what
 * it held waits again. */
rv_status rvi_shared_restore(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
void rvi_shared_drop(rvi_generation *g);
void rvi_generation_deinit(rvi_generation *g); /* all but its adapter */

/* ---- save_instant.c: what scores taught, in the store ---- */
/* The adapter of scores as it is after this event. Belongs into the transaction that logs the
 * event. */
rv_status rvi_instant_save(rvi_learner *l, uint64_t event, rv_error *err) RVI_MUST_CHECK;
/* After a check by the probe, as far as that is possible. Where it went back, scores from before
 * can no longer be taken back: they might have been what it drifted by. */
void rvi_instant_save_checked(rvi_learner *l, bool rolled_back);
/* The adapter of scores as it was before the event: is that known? Goes on from there. */
bool rvi_instant_has_before(const rvi_learner *l, uint64_t event);
rv_status rvi_instant_go_before(rvi_learner *l, uint64_t event, rv_error *err) RVI_MUST_CHECK;
/* Erases the states from this event on. Belongs into a transaction, as saving. */
rv_status rvi_instant_drop_from(rvi_learner *l, uint64_t event, rv_error *err) RVI_MUST_CHECK;
/* On opening, and after another process has written scores. */
rv_status rvi_instant_reopen_scores(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;

#endif
