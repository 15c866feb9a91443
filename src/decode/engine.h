/* engine.h - the KV pages and scratch that many sessions share, and sessions: timelines of tokens.
 *
 * Every computation is rows of sessions through one forward pass. The caller passes the whole
 * prefix each time; a session reuses what agrees with its past, drops the rest and computes what is
 * new. By the law of the forward pass, the result has the same bits as if nothing were reused.
 *
 * Invariants of a session:
 *  1. past holds the tokens of the timeline; the keys and values of the first seq.len are in the
 *     pages, the rest waits to be computed.
 *  2. sets[i] is the serial of the adapter set that computed token i: keys and values of another
 *     set are never reused.
 *  3. past and sets have room for n_context tokens from the beginning: no step allocates.
 * One thread at a time uses an engine and its sessions; rvi_session_cancel is the exception. */
#ifndef RVI_DECODE_ENGINE_H
#define RVI_DECODE_ENGINE_H

#include <stdatomic.h>

#include "decode/budget.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

typedef struct rvi_answer rvi_answer;
typedef struct rvi_session rvi_session;
typedef struct rvi_capture rvi_capture;

typedef struct rvi_engine_options {
    int n_tokens; /* KV room of all sessions together */
    int max_rows, max_logits;
    rv_kv_type kv_type;
    int warm_pages;  /* of RV_KV_TIERED; 0: rvi_model_kv_spec says */
    rvi_backend *be; /* NULL: the model's; another one must be like it */
} rvi_engine_options;

typedef struct rvi_engine {
    const rvi_model *m;
    const rvi_tokenizer *t; /* may be NULL: then there is no text and no stop string */
    const rvi_ids *eos;
    rvi_engine_options o;
    rvi_pages *pool;
    rvi_workspace *ws;
    rvi_row *rows; /* of the step being put together or just computed */
    int n_rows;
    int32_t *which; /* rows that want logits */
    int n_logits;
    float *logits;          /* n_logits x n_vocab of the last step; NULL: none came to the host */
    bool *has_row;          /* which of them did */
    int32_t *best;          /* the most likely tokens instead, n_logits of them, */
    const rvi_drawn *drawn; /* or what `asks` said; NULL: these are not there */
    rvi_draw_ask *asks;     /* of the step that is put together, by logits */
    rvi_then then;          /* what it is to have behind it, if the backend can */
    bool has_best;
    uint64_t n_fetched;   /* rows of logits that came to the host so far */
    rvi_session **owners; /* of the rows */
    int n_owners;         /* rows whose sessions take note of a cancel; 0 between steps */
    atomic_bool stop;     /* a session of the step was cancelled */
    double event_gap;     /* seconds between two events in the middle of a step */
    size_t longest_piece; /* bytes of the longest token's text */
    rvi_answer *answers;  /* the unfinished ones, the next to be served first */
    rvi_budget budget;    /* of the steps of answers */
    int most_rows;        /* of the next ones, where others wait; 0: as many as there is room for */
    bool tries_all;       /* for tests: every guess that fits is tried, whatever it costs */
    uint64_t n_dropped;   /* tokens computed again because a form of their pages was dropped */
} rvi_engine;

/* model, tokenizer and eos are borrowed. */
rv_status rvi_engine_new(rvi_engine **out, const rvi_model *m, const rvi_tokenizer *t,
                         const rvi_ids *eos, const rvi_engine_options *o,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_engine_free(rvi_engine *e); /* accepts NULL; its sessions must be gone */
/* Pages of engines of which this differs do not fit each other. */
uint32_t rvi_engine_kv_format(const rvi_engine *e);

struct rvi_session {
    rvi_engine *e;
    rvi_seq seq;
    rvi_ids past;
    uint64_t *sets;
    int n_context;
    int rope_set;
    int allowed; /* rows of its answer that a step may take, guesses not among them; INT32_MAX: as
                    many as fit */
    int n_ahead; /* while a step is read: positions of seq that hold guesses not looked at yet */
    const rvi_adapter_set *adapters; /* of rows that name no other; NULL: none */
    atomic_bool cancelled;
    atomic_bool in_step; /* the current step has rows of this session; a cancel must stop it */
    rvi_answer *answer;  /* unfinished, or finished and not taken; NULL: none */
    void (*drop_answer)(rvi_session *s); /* frees it */
    /* Records the tokens of answers begun after it was set (capture.h); NULL: off. Borrowed. */
    rvi_capture *capture;
    void *owner; /* what events call the session */
};

/* adapters are borrowed, may be NULL. */
rv_status rvi_session_new(rvi_session **out, rvi_engine *e, int n_context,
                          const rvi_adapter_set *adapters, void *owner,
                          rv_error *err) RVI_MUST_CHECK;
/* The same past, sharing its pages. */
rv_status rvi_session_fork(rvi_session **out, const rvi_session *from, void *owner,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_session_free(rvi_session *s); /* accepts NULL; drops an answer */

/* Cuts the past to the part that ids can reuse, without the last token if its logits are wanted.
 * rope_set: that of the declared length of the timeline. Returns the number of tokens reused. */
int rvi_session_reuse(rvi_session *s, const int32_t *ids, size_t n, int rope_set, bool want_logits);

/* Gives the session's pages back. What they held waits to be computed again: an answer that is
 * under way goes on as if nothing had happened, with the same bits. */
void rvi_session_suspend(rvi_session *s);
/* Removes n tokens of the past from position `from` on, as if they had never been; what lies behind
 * them waits to be computed again, at other positions. An answer that is under way goes on without
 * them: another text than it would have been. */
void rvi_session_cut(rvi_session *s, int from, int n);
/* Shares the first len positions of these pages, which hold the keys and values of the session's
 * first len tokens, computed with its adapters and rotary factors. The session has no pages. */
void rvi_session_adopt(rvi_session *s, const int32_t *pages, int len);

/* Cancels the session's computation. A step that has rows of this session stops within milliseconds
 * and is repeated for the other sessions. May be called from any thread or signal handler. */
void rvi_session_cancel(rvi_session *s);

/* Makes the past exactly ids; *logits (may be NULL): those after the last one. */
rv_status rvi_session_sync(rvi_session *s, const int32_t *ids, size_t n, size_t *n_reused,
                           float **logits, rv_error *err) RVI_MUST_CHECK;

/* RV_OK if all ids are in the vocabulary. */
rv_status rvi_engine_check_ids(const rvi_engine *e, const int32_t *ids, size_t n,
                               rv_error *err) RVI_MUST_CHECK;

/* ---- putting a step together: begin, add, compute ---- */

void rvi_engine_begin(rvi_engine *e);
int rvi_engine_room(const rvi_engine *e);        /* rows that still fit */
int rvi_engine_logits_room(const rvi_engine *e); /* logits that still fit */
/* Adds the first n waiting tokens of s, with set; n_logits: computes the logits of so many of the
 * last ones, which follow those requested before. On failure (no page left) nothing changes. */
rv_status rvi_engine_add(rvi_engine *e, rvi_session *s, int n, const rvi_adapter_set *set,
                         int n_logits, rv_error *err) RVI_MUST_CHECK;
/* A branch: n tokens that may follow position `to` - 1 of s instead of what was added there. Rows
 * from .. to - 1 of s are of this step, and side (empty, of the same pool) gets their keys and
 * values too. All of the branch's rows have logits, which follow those requested before. On failure
 * nothing changes. */
rv_status rvi_engine_add_side(rvi_engine *e, rvi_session *s, rvi_seq *side, int from, int to,
                              const int32_t *ids, int n, const rvi_adapter_set *set,
                              rv_error *err) RVI_MUST_CHECK;
/* After the step: the session goes on in the branch, and side has what it left. to: as above. */
void rvi_session_turn(rvi_session *s, rvi_seq *side, int to);
/* On failure (a session of the step was cancelled: RV_E_CANCELLED; the model's file cannot be read)
 * the sessions are as before their rows were added, and the step is empty. */
rv_status rvi_engine_compute(rvi_engine *e, rv_error *err) RVI_MUST_CHECK;
float *rvi_engine_logits(const rvi_engine *e, int i); /* NULL: they are not on the host */
/* Of a step whose `drawn` is there: brings the i-th row of logits to the host, on the computing
 * thread. */
float *rvi_engine_fetch(rvi_engine *e, int i);

/* One row of a step that the caller puts together. */
typedef struct rvi_step_row {
    rvi_session *s;
    int32_t token;
    bool want_logits;
    const rvi_adapter_set *set;
} rvi_step_row;

/* All rows in one forward pass. On failure no session changed. */
rv_status rvi_engine_step(rvi_engine *e, const rvi_step_row *rows, size_t n,
                          rv_error *err) RVI_MUST_CHECK;

/* Returns st. If a tensor of the model holds NaN, the message is replaced by one that names it. */
rv_status rvi_engine_explain(const rvi_engine *e, rv_status st, rv_error *err) RVI_MUST_CHECK;

#endif
