/* ruvllm_learn.h - learning from what users say.
 *
 * A learner holds what one user taught one model. Make it once, name it in the options of sessions,
 * and rv_session_chat asks it before every answer what was taught; afterwards tell it what was
 * wrong or good:
 *   a correction     is spoken from the next answer on wherever the same thing is asked, and moves
 *                    into weights later: rv_learner_start trains in the background
 *   a score          changes a small adapter at once, by the gradient captured while generating
 *                    (the first one is what later ones are compared with)
 *   a thumb down     keeps that answer away wherever the same thing is asked
 * A request that has nothing to do with what was taught gets, bit for bit, the answer of the model
 * alone. Every event is written to the store, in a chain of hashes, before anything is learned from
 * it; after a crash the learner is rebuilt from that log.
 *
 * Learners of several processes may share a store that is made for it (rv_store.lock): each applies
 * what the others log before its next answer, in the order of the log; one of them trains, and the
 * others fetch what it made. Each has a dir of its own.
 *
 * Threads: as for a session of the model's runtime. The background thread belongs to the learner;
 * it computes on threads of the lowest priority, and pauses while the runtime computes. A call that
 * meets it waits for it, for milliseconds. Only one thread at a time uses the store. */
#ifndef RUVLLM_LEARN_H
#define RUVLLM_LEARN_H

#include "ruvllm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_bytes {
    const void *data; /* may be NULL when len is 0 */
    size_t len;
} rv_bytes;

/* Where a learner keeps its log. rv_store_open (ruvllm_store.h) keeps it in a file; fill the
 * functions yourself to keep it elsewhere. A stream is a growing list of records, numbered 1, 2, 3
 * ... without gaps; a table maps keys to records, in the byte order of its keys. Names have 1 to 64
 * characters of a-z 0-9 _ . -, keys 1 to 256 bytes, records up to 1 MiB. append, and the commit of
 * a durable transaction, return when the data is on the disk; everything else survives a power
 * failure from the next durable call on; nothing is reordered. begin and commit or rollback come in
 * pairs and do not nest. All return RV_OK or fill err. Bytes passed to a callback are valid during
 * the call, which must not use the store; it returns anything but 0 to stop. */
typedef struct rv_store {
    void *ctx;
    rv_status (*append)(void *ctx, const char *stream, rv_bytes record, uint64_t *seq,
                        rv_error *err);
    rv_status (*put)(void *ctx, const char *table, rv_bytes key, rv_bytes record, rv_error *err);
    /* calls each at most once */
    rv_status (*get)(void *ctx, const char *table, rv_bytes key,
                     int (*each)(void *each_ctx, rv_bytes key, rv_bytes record), void *each_ctx,
                     rv_error *err);
    rv_status (*remove)(void *ctx, const char *table, rv_bytes key, rv_error *err);
    rv_status (*scan)(void *ctx, const char *table, rv_bytes from,
                      int (*each)(void *each_ctx, rv_bytes key, rv_bytes record), void *each_ctx,
                      rv_error *err);
    rv_status (*read)(void *ctx, const char *stream, uint64_t from,
                      int (*each)(void *each_ctx, uint64_t seq, rv_bytes record), void *each_ctx,
                      rv_error *err);
    rv_status (*begin)(void *ctx, int durable, rv_error *err);
    rv_status (*commit)(void *ctx, rv_error *err);
    void (*rollback)(void *ctx);
    /* Of a store that learners of several processes share while they all learn; NULL otherwise, all
     * three. One store at a time holds a lock; the end of its process, or of its connection, gives
     * it back. RV_E_STORAGE: another has held it for wait_ms; RV_E_INVALID: this one holds it. */
    rv_status (*lock)(void *ctx, const char *what, int wait_ms, rv_error *err);
    void (*unlock)(void *ctx, const char *what);
    /* Not 0: others may have appended since it was last called. Does not wait; any thread. */
    int (*changed)(void *ctx);
} rv_store;

typedef struct rv_learner_options {
    size_t size;
    /* NULL: in memory, gone with the learner. Copied; what ctx points to must outlive it. */
    const rv_store *store;
    /* For adapters and snapshots, made for its owner alone if it is missing; NULL: in memory. Of
     * several processes the first that learns has it until its learner is freed. */
    const char *dir;
    const char *user; /* NULL: "default" */
    /* all-MiniLM-L6-v2, opened on the same runtime: requests are recognised by meaning, in any
     * wording. NULL: by spelling alone, which knows far fewer wordings. The learner keeps it. */
    const rv_model *embedder;
    uint64_t seed; /* of training */
    int n_threads; /* of training; 0: those of the runtime */
    int lock_wait; /* milliseconds to wait for a process that has dir; 0: 10,000; RV_WAIT_NEVER:
                         RV_E_STORAGE at once */
    /* Settings of experiments, "name=value,name=value": see ruvllm_experimental.h. */
    const char *experiments;
} rv_learner_options;

RV_API rv_status rv_learner_new(rv_learner **out, const rv_model *m, const rv_learner_options *o,
                                rv_error *err);
RV_API void rv_learner_free(rv_learner **l);

/* ---- feedback ---- */

typedef enum rv_learn_loop { RV_LOOP_INSTANT, RV_LOOP_BACKGROUND, RV_LOOP_DEEP } rv_learn_loop;

/* What a call changed. One block, freed by rv_free; every out parameter of this type may be
 * NULL. */
typedef struct rv_adaptation {
    int applied; /* 0: nothing changed, and notes say why */
    rv_learn_loop loop;
    const char *notes;
    double latency_us;    /* of the change itself: thread time */
    double forward_us;    /* of forward passes that it needed */
    double quality_delta; /* measured; NaN: not measured */
    int samples_used;
    int generation; /* published by it; 0: none */
    uint64_t event; /* its number in the log; 0: none */
    /* Of a correction: what it was taught for, with what it is about where only the turns before
     * the last told ("Australia. And its capital?"). "" of all else. */
    const char *question;
} rv_adaptation;

/* Where a lesson counts.
 *   topic    wherever the same thing is asked, in any wording: its answer is spoken
 *   exact    where this very question is asked (but for case, white space and the marks of
 *            sentences): its answer is spoken
 *   always   in every chat. It has no question; its text is an instruction ("Always answer in
 *            French.") that stands before the chat as a system message, or, where the model's
 *            template has no such messages, before the user's first. It is not trained.
 * Of two lessons for the same question the newer one counts. Of instructions all count, the newest
 * stands last; there may be 16, of 2,048 bytes each. */
#define RV_SCOPE_MAP(X)                                                                            \
    X(TOPIC, "topic")                                                                              \
    X(EXACT, "exact")                                                                              \
    X(ALWAYS, "always")
typedef enum rv_scope {
#define X(name, text) RV_SCOPE_##name,
    RV_SCOPE_MAP(X)
#undef X
} rv_scope;
RV_API const char *rv_scope_name(rv_scope scope);

/* The right answer to what was last asked on s, a session that names this learner (question NULL),
 * or to question (s may be NULL). Of scope always: text is the instruction, question must be "" or
 * NULL, and s is not looked at. Where just this stands already, and what was answered on s shows
 * nothing else, nothing is logged: applied is 0, notes say "already known". */
RV_API rv_status rv_learner_teach(rv_learner *l, rv_session *s, const char *question,
                                  const char *text, rv_scope scope, rv_adaptation **out,
                                  rv_error *err);
/* The same with scope topic. */
RV_API rv_status rv_learner_correct(rv_learner *l, rv_session *s, const char *question,
                                    const char *answer, rv_adaptation **out, rv_error *err);
/* How good the last answer on s was, 0 to 1. */
RV_API rv_status rv_learner_score(rv_learner *l, rv_session *s, double score, rv_adaptation **out,
                                  rv_error *err);
/* A thumb for the last answer on s. Up is a score of 1. After a thumb down, answers to the same
 * request differ from this one, from the token on that the model was in doubt about; no other
 * request is touched. A correction that was spoken is not spoken any more for this request, nor for
 * one that is at least as near to it as to the correction's own question; a correction of what was
 * spoken counts as such a thumb. */
RV_API rv_status rv_learner_thumb(rv_learner *l, rv_session *s, int up, rv_adaptation **out,
                                  rv_error *err);
/* Of two answers to a question the first is preferred. They must differ. */
RV_API rv_status rv_learner_prefer(rv_learner *l, const char *question, const char *chosen,
                                   const char *rejected, rv_adaptation **out, rv_error *err);
/* Takes the last event back, bit for bit, and called again the one before it: corrections,
 * preferences, thumbs, rollbacks, and of scores the last 32 at most, by any process. Where that is
 * not possible, applied is 0 and nothing is logged. Of a correction that was trained: as
 * forgetting it. */
RV_API rv_status rv_learner_undo(rv_learner *l, rv_adaptation **out, rv_error *err);
/* The same for the last event that came by this learner: not by another process that shares the
 * store, nor by an earlier one. applied is 0 where there is none. */
RV_API rv_status rv_learner_undo_own(rv_learner *l, rv_adaptation **out, rv_error *err);
/* The same for all events after this version (rv_learner_version), the last one first, as far as
 * they can be taken back; notes tell how many. What was forgotten since stays forgotten. */
RV_API rv_status rv_learner_undo_to(rv_learner *l, uint64_t version, rv_adaptation **out,
                                    rv_error *err);
/* Removes lessons and judgements with these words (whatever their case and punctuation) in question
 * or answer, for good; applied is 0, and nothing changes, where there are none. What was not
 * forgotten can still be taken back. A score's step goes with it unless a later score, which is not
 * forgotten, was made from there. Generations that were trained on a lesson are erased, from the
 * store and from dir, and what else they held waits to be trained again without it; notes tell how
 * many, and what could not be erased yet: that is tried again by the next forgetting, undoing or
 * rolling back, and when a learner opens the state. Learners that share the store erase their
 * copies when they learn of it. */
RV_API rv_status rv_learner_forget(rv_learner *l, const char *text, rv_adaptation **out,
                                   rv_error *err);
/* The same for what one event taught or judged, as rv_learner_status and the log number them, and
 * nothing else.
 * RV_E_NOT_FOUND: it taught nothing. */
RV_API rv_status rv_learner_forget_one(rv_learner *l, uint64_t event, rv_adaptation **out,
                                       rv_error *err);
/* Removes such copies from the dir of a learner that was not freed because its process was killed.
 * No learner may use it now. */
RV_API rv_status rv_learner_clean(rv_learner *l, const char *dir, rv_error *err);
/* This object forgets everything it was taught. The store keeps its log: a new learner on it knows
 * everything again. */
RV_API rv_status rv_learner_reset(rv_learner *l, rv_error *err);

/* ---- what takes part in an answer ---- */

/* One block, freed by rv_free. */
typedef struct rv_learn_plan {
    int gate_open; /* a correction is asked for */
    int slot;      /* its answer will be spoken, word for word */
    /* No correction is asked for surely, but this one is likely to be, and the model was found to
     * make use of what it reads: question and answer stand as a turn before the request
     * (rv_learner_tokenize), and the model words its answer itself. */
    int read;
    int n_adapters;
    uint64_t event;                /* that taught the correction of gate_open or read; 0: none */
    double probability;            /* that it is asked for; 0: there is none */
    const char *question, *answer; /* as they were taught; "" where there is none */
    rv_scope scope;                /* of that correction */
    const char *instructions;      /* lessons of scope always, a line each; "": none */
} rv_learn_plan;

/* What rv_session_chat does first: decides what takes part in the session's next answer, which is
 * to continue chat, and captures that answer for feedback. For programs that render and generate
 * themselves: rv_learner_tokenize makes the prompt. out may be NULL. */
RV_API rv_status rv_learner_begin(rv_learner *l, rv_session *s, const rv_chat *chat,
                                  rv_learn_plan **out, rv_error *err);
/* rv_chat_tokenize for a chat as the model is to read it: behind the instructions of the learner,
 * of a model that repeats what stands in its chat without turns in which a lesson spoke, unless
 * only they explain the last request, and with a lesson that is read before that request. */
RV_API rv_status rv_learner_tokenize(rv_learner *l, const rv_chat *chat, int32_t **ids, size_t *n,
                                     rv_error *err);
/* All adapters of the learner as a set, as if everything taught took part. */
RV_API rv_status rv_learner_adapters(rv_learner *l, rv_adapter_set **out, rv_error *err);

/* ---- training ---- */

/* done of total steps of a stage; loss: of training, NaN elsewhere. Return anything but 0 to
 * cancel; what was done is kept. */
typedef int (*rv_learn_progress_fn)(void *ctx, const char *stage, int done, int total, double loss);

/* Trains in the background whatever waits, whenever the runtime is idle, and publishes each group
 * of corrections as a generation. Nothing runs before the first feedback. A group of which
 * something is undone, forgotten or replaced meanwhile begins again: nothing that was taken back
 * gets into an adapter. If training fails, nothing changes, the status says why, and it is tried
 * again later. RV_E_UNSUPPORTED where there are no threads. Calling it twice is fine. */
RV_API rv_status rv_learner_start(rv_learner *l, rv_error *err);
/* Returns when the background thread has ended; a group that was not published waits, and its
 * training goes on where it was last saved. Freeing the learner cancels it too but waits for a
 * moment only: on a busy machine the thread may run, and use the runtime's allocator, a little
 * longer. */
RV_API void rv_learner_pause(rv_learner *l);
/* Whether background threads of all learners on this store rest, of other processes and of those to
 * come too: a setting of the store. What is being trained stops, as by rv_learner_pause; learners
 * that share the store follow within a second. */
RV_API rv_status rv_learner_set_paused(rv_learner *l, int paused, rv_error *err);

typedef enum rv_preference_loss { RV_LOSS_DPO, RV_LOSS_KTO } rv_preference_loss;
/* Trains what waits, now, on this thread. RV_LOOP_BACKGROUND: corrections, as the background thread
 * does. RV_LOOP_DEEP: more steps, a validation split and early stopping, and preferences by
 * `loss`. */
RV_API rv_status rv_learner_consolidate(rv_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                        rv_learn_progress_fn progress, void *ctx,
                                        rv_adaptation **out, rv_error *err);
/* What is made once for a model and user: texts of its own, to tell what must not change. Takes
 * tens of seconds for a small model; training does it by itself. */
RV_API rv_status rv_learner_calibrate(rv_learner *l, rv_learn_progress_fn progress, void *ctx,
                                      rv_error *err);

/* ---- what was learned ---- */

/* A JSON object: counts ("lessons", "waiting"), "learned" (what was taught and where it counts:
 * "scope", with what it took the place of: "instead_of"), "repeats" and "reads" (what was found out
 * about the model; null: not yet), "ended" (what was taken back or corrected
 * since), "instructions", "generations" (how many lessons, and how many of their other
 * wordings, those trained here were seen to answer: "said", "wordings_said" of "wordings"),
 * "background" (what its thread does: "off", "calibrating", "training" ...) with
 * "background_progress" {"stage", "done", "total", "remaining_s"}, "background_error", measured
 * figures. */
RV_API rv_status rv_learner_status(rv_learner *l, char **json, rv_error *err);
/* The number of the last event of the log that what it knows follows from. From any thread. */
RV_API uint64_t rv_learner_version(const rv_learner *l);
/* Makes an earlier generation the current one (0: none): later ones are out of use until that is
 * undone. What was taught is still spoken. */
RV_API rv_status rv_learner_rollback(rv_learner *l, int generation, rv_adaptation **out,
                                     rv_error *err);
/* path: a directory (PEFT) or a file name ending in .gguf. generation 0: the newest. f16: 16-bit
 * values. */
RV_API rv_status rv_learner_export(rv_learner *l, int generation, const char *path, int f16,
                                   rv_error *err);
/* An adapter from elsewhere becomes a generation, active in every answer. */
RV_API rv_status rv_learner_import(rv_learner *l, const char *path, rv_adaptation **out,
                                   rv_error *err);
typedef enum rv_consolidation {
    RV_MERGE_AVERAGE,
    RV_MERGE_QUALITY_WEIGHTED,
    RV_MERGE_EWC
} rv_consolidation;
/* Two generations become one; RV_E_ADAPTER where more than 5 % of the energy would be lost. */
RV_API rv_status rv_learner_merge(rv_learner *l, int a, int b, rv_consolidation how,
                                  rv_adaptation **out, rv_error *err);
/* Walks the chain of the log: *n records; RV_E_STORAGE names the first broken one. */
RV_API rv_status rv_learner_verify_log(rv_learner *l, uint64_t *n, rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
