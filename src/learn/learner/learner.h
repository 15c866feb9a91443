/* learner.h - what one user taught one model: lessons, the adapters made of them, and what of it
 * takes part in a request.
 *
 * State follows from the feedback log: a lesson is a correction in force (not superseded, undone
 * or forgotten), a generation is an adapter that a publish event names. Adapters never change once
 * published; rolling back means naming others as active. A correction is logged before it is a
 * lesson, a generation is on the disk before it is logged.
 *
 * Where the store is shared (rv_store.lock), learners of several processes learn at the same time.
 * Each follows the log: what others have appended it applies in the log's order, before an answer
 * and before anything of its own is appended. follow.c says how.
 *
 * One thread at a time, and it computes on the model's backend. */
#ifndef RVI_LEARN_LEARNER_H
#define RVI_LEARN_LEARNER_H

#include <stdatomic.h>

#include "base/thread.h"
#include "decode/budget.h"
#include "learn/consolidate/options.h"
#include "learn/instant/micro.h"
#include "learn/recognise/recogniser.h"
#include "learn/state/adapter_sets.h"
#include "learn/state/generations.h"
#include "learn/state/history.h"
#include "learn/state/lessons.h"
#include "learn/state/refusals.h"

typedef struct rvi_learner_parts { /* all borrowed */
    const rvi_model *m;
    const rvi_tokenizer *t;
    const rvi_chat *chat;
    const rvi_ids *eos;
    const rvi_model *embedder;         /* for recognising; NULL: none, */
    const rvi_tokenizer *embedder_t;   /* and its tokenizer */
    rvi_backend *be;                   /* for training */
    uint64_t (*new_serial)(void *ctx); /* of adapter sets */
    void *serial_ctx;
} rvi_learner_parts;

typedef struct rvi_absent { /* a generation without a file */
    int number;
    bool erased; /* because what it learned was forgotten */
} rvi_absent;

enum { RVI_INSTANT_STATES = 33 }; /* of the adapter of scores that are kept: 32 can be taken back */

/* The instant loop: what scores change. Made when it is first needed. */
typedef struct rvi_instant {
    rvi_capturer *capturer;
    rvi_micro *micro;
    rvi_scores scores;
    uint64_t states[RVI_INSTANT_STATES]; /* events after which the store has its state, in order; 0:
                                            before all of them */
    size_t n_states;
    size_t state_len;            /* bytes of the largest that was seen */
    rvi_adapter *adapter;        /* of micro as it is; NULL: nothing yet */
    rvi_probe *probe;            /* NULL: not needed yet */
    int n_taken;                 /* texts that it has, or has begun */
    int since_probe;             /* events */
    bool probe_due;              /* and not done yet */
    rvi_capturer *next_capturer; /* is on its way, in pieces; NULL: it is not */
    double piece_seconds;        /* that a piece may take; 0: as long as its rows do */
    rvi_budget piece_cost;       /* what rows of the probe took */
} rvi_instant;

/* What the background thread does, and how far it is, for whoever asks, on any thread. */
typedef struct rvi_doing {       /* texts are constants */
    _Atomic(const char *) what;  /* NULL: there is no such thread */
    _Atomic(const char *) stage; /* of it; NULL: none yet */
    atomic_int n;                /* lessons or pairs that it is about */
    atomic_int done, total;      /* of the stage, */
    atomic_int begun_at;         /* which began with so much done, */
    atomic_llong begun_ms;       /* at this time */
} rvi_doing;

void rvi_doing_begin(rvi_doing *d, const char *what, int n);
void rvi_doing_report(rvi_doing *d, const char *stage, int done, int total);
/* Seconds until the stage ends, if it goes on as it went; negative: nobody knows. */
double rvi_doing_remaining(const rvi_doing *d);

typedef struct rvi_taught_answer {
    uint64_t key;         /* of the answer; 0: it is not spoken */
    const char *question; /* the lesson's own */
} rvi_taught_answer;

typedef struct rvi_learner {
    rvi_learner_parts parts;
    rvi_learner_options o; /* whole; texts are copies */
    char *dir, *user;      /* dir: the learner's own; NULL: in memory */
    char digest[RVI_SHA256_HEX];
    rvi_store store;
    atomic_ullong applied; /* events of the log that its state follows from; any thread reads it */
    bool owned;            /* no other process changes the state, */
    int lock;              /* while this file is held, or the store's lock */
    bool leased;           /* of those that share the store, this one trains */
    bool paused;           /* nobody trains in the background, by a setting of the store */
    atomic_bool behind;    /* others may have appended to the log */
    bool failed;           /* to find out what */
    bool any, judged;      /* events were applied of which not everything follows yet; scores too */
    rvi_base_model base;
    rvi_replay replay;     /* as far as it is made; never changes once it is whole, */
    bool calibrated;       /* which it is */
    rvi_baseline baseline; /* of replay, if has_baseline; whoever trains has it, and shared */
    bool has_baseline;
    rvi_history history;
    rvi_lessons lessons;
    rvi_buf instructions;       /* lessons of scope always, a line each */
    rvi_lock *instructing;      /* guards it, and these: requests of a service look on any thread */
    rvi_taught_answer *answers; /* lesson by lesson */
    size_t n_answers, cap_answers;
    atomic_int repeats; /* rvi_trait: does the model repeat what stands in its chat (repeats.c), */
    atomic_int reads;   /* and read what a lesson tells (reads.c) */
    rvi_refusals refusals;
    rvi_generations generations;
    rvi_absent *absent; /* of the events that are being applied */
    size_t n_absent, cap_absent;
    char unerased[512];    /* why adapters of what was forgotten are still there; "": none are */
    rvi_adapter_sets sets; /* handed out */
    rvi_shared shared;
    rvi_embedder *embedder;     /* NULL: none */
    rvi_recogniser *recogniser; /* of the lessons in force, */
    rvi_recogniser *refused;    /* and of requests for which one was wrong; NULL: not needed yet */
    uint64_t refused_at;        /* refusals.n_changes when it was made */
    int n_keeping;              /* readings in a transaction that has not ended */
    rvi_instant instant;
    rvi_doing doing;
    char trouble[512]; /* why its last round came to nothing; "": it did not */
} rvi_learner;

/* store is taken (also on failure); ops NULL: in memory. Options are whole. */
rv_status rvi_learner_new(rvi_learner **out, const rvi_learner_parts *parts,
                          const rvi_learner_options *o, rvi_store *take,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_learner_free(rvi_learner *l); /* accepts NULL */
/* ---- a store that is shared (follow.c) ---- */
bool rvi_learner_shares(const rvi_learner *l);
/* Others have appended since it last looked; any thread. */
bool rvi_learner_is_behind(rvi_learner *l);
/* Applies what others have appended, as far as the store can be read; *any: something was. */
void rvi_learner_follow(rvi_learner *l, bool *any);
/* Others may append again: comes at the end of every call that may have changed something. */
void rvi_learner_yield(rvi_learner *l);
/* All who share the store follow, as they follow the log. */
rv_status rvi_learner_set_paused(rvi_learner *l, bool paused, rv_error *err) RVI_MUST_CHECK;
/* Of those that share the store one trains; true: this one does, until it ends the lease, or loses
 * it with its connection. *fresh: it did not before. */
bool rvi_learner_lease(rvi_learner *l, bool *fresh);
void rvi_learner_end_lease(rvi_learner *l);
/* What others who had it found out about the model, and made of it. */
rv_status rvi_learner_reopen_found(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;

/* To the disk with what is not there yet; as far as that is possible. No other call but
 * rvi_learner_free may follow, before which the store may be closed. */
void rvi_learner_flush(rvi_learner *l);
void rvi_learner_reset(rvi_learner *l);

rv_status rvi_learner_calibrate(rvi_learner *l, rvi_study_progress_fn progress, void *ctx,
                                rv_error *err) RVI_MUST_CHECK;

/* ---- beside serving (jobs.h) ---- */

size_t rvi_learner_waiting(const rvi_learner *l);  /* corrections, */
size_t rvi_learner_standing(const rvi_learner *l); /* and with those that were trained */

enum { RVI_DEEP_LEAST = 4 }; /* pairs that are worth a run */
size_t rvi_learner_pairs_waiting(const rvi_learner *l);

/* What takes part in the answer to the last of the user's turns. */
typedef struct rvi_plan {
    rvi_made_set *adapters;   /* NULL: none; held for the caller */
    const rvi_lesson *lesson; /* whose answer is spoken; NULL: none */
    const rvi_lesson *asked;  /* that the request asks for; NULL: none */
    const rvi_lesson *read;   /* that it is likely to ask for: it stands as a turn before the
                                 request; NULL: none */
    float probability;        /* that it asks for one of these */
} rvi_plan;

rv_status rvi_learner_plan(rvi_learner *l, const char *const *turns, size_t n_turns, rvi_plan *out,
                           rv_error *err) RVI_MUST_CHECK;

/* Are lessons read that are likely to be asked for? (reads.c) */
bool rvi_learner_reads(const rvi_learner *l);
/* .read of that plan alone. */
rv_status rvi_learner_find_read(rvi_learner *l, const char *const *turns, size_t n_turns,
                                const rvi_lesson **out, rv_error *err) RVI_MUST_CHECK;

/* Where others wait for their turns, what takes forward passes is done in pieces before the call
 * that needs it: one a call, of some rows; true: there are more. The call itself then finds what
 * was computed, and computes what is left, whatever changed in between; results are the same.
 *   rvi_learner_foresee: what the plan of these turns takes.
 *   rvi_instant_prepare: what probing takes, if that is due; and what capturing an answer does, and
 *   scoring one. */
bool rvi_learner_foresee(rvi_learner *l, const char *const *turns, size_t n_turns);
bool rvi_instant_prepare(rvi_learner *l, bool captures, bool scores);
/* Of the model at most, and of its head, which is read. */
enum { RVI_PIECE_ROWS = 8, RVI_PIECE_HEAD_ROWS = 8192 };

void rvi_learner_release(rvi_learner *l, rvi_made_set *s); /* accepts NULL */

/* The ring of a session's answers. */
rv_status rvi_learner_capture(rvi_learner *l, rvi_capture **out, rv_error *err) RVI_MUST_CHECK;
/* Appends the last captured answer's text, as far as it is still there and UTF-8. */
rv_status rvi_learner_given(const rvi_learner *l, const rvi_capture *c, rvi_buf *out,
                            rv_error *err) RVI_MUST_CHECK;
/* How good the last captured answer was, 0 to 1. */
rv_status rvi_learner_score(rvi_learner *l, const rvi_capture *c, const char *question,
                            double score, rvi_adaptation *out, rv_error *err) RVI_MUST_CHECK;
/* What scores left to do: the probe, if it is due. By the background thread, between calls, and
 * before anything looks at what scores taught. */
rv_status rvi_instant_catch_up(rvi_learner *l, rv_error *err) RVI_MUST_CHECK;
/* lesson: whose answer it was, its event; 0: the model's own. */
rv_status rvi_learner_thumb_down(rvi_learner *l, const rvi_capture *c, const char *question,
                                 uint64_t lesson, rvi_adaptation *out,
                                 rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_correction {
    const char *question, *answer; /* of scope always: "" and the instruction */
    const char *rejected;          /* what was answered; may be NULL */
    uint64_t spoken;               /* the lesson whose answer that was, its event; 0: none */
    rv_scope scope;
} rvi_correction;

rv_status rvi_learner_teach(rvi_learner *l, const rvi_correction *t, rvi_adaptation *out,
                            rv_error *err) RVI_MUST_CHECK;
/* Appends what stands before every chat: lessons of scope always, a line each. */
rv_status rvi_learner_instructions(const rvi_learner *l, rvi_buf *out,
                                   rv_error *err) RVI_MUST_CHECK;
/* Was the answer taught, and the request may have asked for it, of a model that would repeat it if
 * this turn stood in a later prompt? Any thread. */
bool rvi_learner_leaves_out(const rvi_learner *l, const char *request, const char *answer);
/* Does this turn of a chat tell what the lesson would? */
bool rvi_lesson_is_turn(const rvi_lesson *x, const char *request, const char *answer);
rv_status rvi_learner_prefer(rvi_learner *l, const char *question, const char *chosen,
                             const char *rejected, rvi_adaptation *out,
                             rv_error *err) RVI_MUST_CHECK;
/* Takes back what was taught last; own: by this learner, not by another process or an earlier
 * one. */
rv_status rvi_learner_undo(rvi_learner *l, bool own, rvi_adaptation *out,
                           rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_undo_to(rvi_learner *l, uint64_t version, rvi_adaptation *out,
                              rv_error *err) RVI_MUST_CHECK;
/* All that has this text in it, or, where text is NULL, what came with this event. */
rv_status rvi_learner_forget(rvi_learner *l, const char *text, uint64_t event, rvi_adaptation *out,
                             rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_consolidate(rvi_learner *l, rv_learn_loop loop, rv_preference_loss loss,
                                  rvi_study_progress_fn progress, void *ctx, rvi_adaptation *out,
                                  rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_rollback(rvi_learner *l, int generation, rvi_adaptation *out,
                               rv_error *err) RVI_MUST_CHECK;
/* path: a directory (PEFT) or a file ending in .gguf. */
rv_status rvi_learner_write(const rvi_learner *l, const rvi_generation *g, const char *path,
                            bool f16, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_import(rvi_learner *l, const char *path, rvi_adaptation *out,
                             rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_merge(rvi_learner *l, int a, int b, rv_consolidation how, rvi_adaptation *out,
                            rv_error *err) RVI_MUST_CHECK;
/* All active adapters. */
rv_status rvi_learner_all(rvi_learner *l, rvi_made_set **out, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_learner_status(rvi_learner *l, rvi_buf *json, rv_error *err) RVI_MUST_CHECK;

const rvi_generation *rvi_learner_generation(const rvi_learner *l,
                                             int number); /* 0: the newest active */
/* The same with its adapter, which is read where nobody has used it yet. RV_E_NOT_FOUND: there is
 * none any more. */
rv_status rvi_learner_need_adapter(rvi_learner *l, int number, const rvi_generation **out,
                                   rv_error *err) RVI_MUST_CHECK;
/* Forgets how far training came that was stopped. */
void rvi_learner_drop_run(const rvi_learner *l);
/* Removes from a directory copies of adapters that learned what was forgotten. all: nobody uses it;
 * then also what a killed process has left of its training. */
rv_status rvi_learner_clean(const rvi_learner *l, const char *dir, bool all,
                            rv_error *err) RVI_MUST_CHECK;

/* retrace.c: makes every generation of a log again, in a fresh learner of the same model, user and
 * options that stays in memory, and compares. Imported and merged ones are passed over. */
typedef struct rvi_retrace {
    uint64_t n_events, n_generations; /* n_generations: that came out the same */
    uint64_t different;               /* the publish event of the first that did not; 0: none */
} rvi_retrace;
rv_status rvi_learner_retrace(rvi_learner *fresh, rvi_store *log, rvi_study_progress_fn progress,
                              void *ctx, rvi_retrace *out, rv_error *err) RVI_MUST_CHECK;

#endif
