/* ruvllm_service.h - one model for many users at once.
 *
 *   rv_service *svc;  rv_batch *b;  uint64_t id;
 *   rv_request r = {.size = sizeof r, .chat = &chat, .tenant = "ann"};
 *   if (!rv_service_new(&svc, model, NULL, &err) && !rv_service_submit(svc, &r, &id, &err))
 *       while (!rv_service_drain(svc, 1.0, &b, &err))
 *           for (size_t i = 0; b && i < b->n; i++) ... b->events[i] ...; rv_free(b)
 *
 * Requests come in from any thread, which never waits for a step. One thread computes. What happens
 * comes out as events, in batches, to whichever thread asks. A request's tokens are, bit for bit,
 * those of rv_session_generate with the same ids and options, whatever else runs, waits, is
 * cancelled, or shares a beginning with it. docs/SERVICE.md says how the service decides.
 *
 * Rules of ruvllm.h hold: errors, ownership, structs with a size. Every function here may be called
 * by any thread at any time, unless it says otherwise. The service computes on the model's runtime,
 * a step at a time; other calls on that get their turn between two steps. */
#ifndef RUVLLM_SERVICE_H
#define RUVLLM_SERVICE_H

#include "ruvllm_learn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_service rv_service;

/* What happens when requests need more room than there is. The first four leave every text as it
 * is. The last two change texts, say so in the last event (n_evicted, coarse), and leave a request
 * alone that is `exact`, continues a session or generates nothing: that waits as with _RECOMPUTE,
 * and so do all when nothing more can be given up. */
typedef enum rv_pressure {
    RV_PRESSURE_RECOMPUTE, /* the youngest lose their room and are computed again later */
    RV_PRESSURE_SPILL,     /* the same, but what they had is written to disk and read again */
    RV_PRESSURE_CHEAPER,   /* of these two the one that takes less time, as measured so far */
    RV_PRESSURE_REJECT,    /* a request for which there is no room now ends with RV_E_BUSY; none
                              that has begun loses its room. Sets overcommit to 1 */
    RV_PRESSURE_EVICT,     /* the longest answer forgets half of what lies between the first 32
                              tokens and the newest */
    RV_PRESSURE_QUANTIZE   /* the longest answer reads all but its newest keys and values in 4 bits.
                              Needs RV_KV_TIERED; n_tokens is then room for so many in 16 bits */
} rv_pressure;

#define RV_WHOLE_CONTEXT (-1)

typedef struct rv_service_options {
    size_t size;
    int n_tokens;    /* KV room of all requests and of what is kept of them; 0: 16384, and 2048 of
                        encoders, which keep nothing; RV_WHOLE_CONTEXT: n_context, or 16384 where
                        that is more. A page more where one request may need all of it */
    int n_context;   /* most tokens of prompt and answer together; 0: what the model was trained for
                        or n_tokens, whichever is less */
    int max_running; /* requests that compute at the same time, each choice counts; 0: 32 */
    int max_waiting; /* a request beyond so many is RV_E_BUSY; 0: 4096 */
    int max_tenant;  /* the same for one tenant, those that run among them; 0: no limit */
    int max_rows;    /* of one step; 0: 512 */
    rv_kv_type kv_type;
    double token_ms;   /* aim for so many milliseconds between two tokens of a stream; 0: 50 */
    double overcommit; /* admit requests that may need so many times the room; 0: 2. Where that is
                          too much, the youngest begin again, noticed by the time alone */
    double age_ms;     /* waiting that a level of priority is worth; 0: 5000 */
    int quantum;       /* rows of a tenant's turn; 0: 64 */
    int no_cache;      /* keep nothing of a request that has ended */
    int max_events;    /* undrained, before computing waits for a drain; 0: 65536 */
    /* Called once a step if there are events, on the computing thread, with no lock held: write to
     * an eventfd, post a semaphore. NULL: rv_service_drain waits. */
    void (*wake)(void *ctx);
    void *wake_ctx;
    int no_thread; /* no thread is started: call rv_service_step */
    /* Sessions on disk: a folder, made where there is none, of which no other process makes use at
     * the same time. NULL, or an encoder: requests have no sessions. */
    const char *sessions;
    double session_idle, session_age; /* seconds since a session was saved, and since it began,
                                         after which it is removed; 0: no limit */
    uint64_t session_bytes;           /* of all sessions; one that exceeds it is not saved; 0: no
                                         limit */
    int tenant_sessions; /* of one tenant; a request for one more is RV_E_STATE; 0: no limit */
    int kv_warm;         /* as in rv_engine_options */
    rv_pressure pressure;
    const char *spill; /* RV_PRESSURE_SPILL, _CHEAPER: a folder, made where there is none. Where it
                          cannot be written to, requests are computed again: n_spill_failed */
    uint64_t spill_bytes; /* of all spilled requests; one that exceeds it is computed again; 0: no
                             limit */
    int cache_tokens;     /* kept of requests that have ended or wait: beyond so many, the least
                             recently used go until three quarters are left; 0: as there is room */
    const rv_model *embedder; /* makes embeddings (all-MiniLM, say): rv_service_find; NULL: none */
} rv_service_options;

/* An engine of its own for the model; an encoder's serves embeddings only. RV_E_UNSUPPORTED: the
 * build has no threads, so no_thread must be set. */
RV_API rv_status rv_service_new(rv_service **out, const rv_model *m, const rv_service_options *o,
                                rv_error *err);
/* Ends all requests, without further events; sessions of answers that have ended are saved first.
 * No other thread may be in a call on it. */
RV_API void rv_service_free(rv_service **s);

/* The model it was made for, which it keeps open. */
RV_API const rv_model *rv_service_model(const rv_service *s);

/* ---- requests ---- */

typedef enum rv_request_kind {
    RV_REQUEST_ANSWER, /* continues a chat or a prompt */
    RV_REQUEST_EMBED,  /* rv_engine_embed of ids */
    RV_REQUEST_SCORE   /* rv_engine_score of ids */
} rv_request_kind;

/* An answer that a chat was given before. */
typedef struct rv_given {
    const int32_t *ids;
    size_t n_ids;
    const char *text;
    uint64_t version; /* rv_learner_version when it was asked for */
} rv_given;

typedef struct rv_request {
    size_t size;
    rv_request_kind kind;
    const rv_chat *chat; /* rendered and tokenized by the thread that submits; or */
    const int32_t *ids;  /* token ids */
    size_t n_ids;
    /* RV_REQUEST_ANSWER. on_event is not called; mask is, on the computing thread, and must be
     * quick; ctx must live until the request has ended. draft_session must be NULL. */
    const rv_generate_options *generate;
    int n;                          /* choices, each with its seed + its number; 0: 1 */
    const rv_adapter_set *adapters; /* kept as long as needed; NULL: none */
    rv_learner *learner;            /* asked what takes part, where there is a chat; NULL: none */
    const rv_embed_options *embed;  /* RV_REQUEST_EMBED */
    int priority;                   /* -100 to 100, higher goes first within its tenant */
    const char *tenant;             /* whom it counts for; NULL: "" */
    const char *salt;               /* requests of one salt share beginnings; NULL: the tenant's */
    double timeout;                 /* seconds from now on; 0: none */
    void *user;                     /* in every event */
    /* RV_REQUEST_ANSWER with one choice. The tenant's session of this name is continued, or begun:
     * ids follow its tokens (and may be none where there are some); a chat is whole, and reuses
     * what agrees. Random numbers go on where they were; a seed counts for a new session. When the
     * answer has ended by itself, tokens, keys, values and the sampler's state are saved, while
     * other requests go on; then the last events come. One with `saved` is the promise that a
     * request after a crash goes on from there. */
    const char *session;
    /* The request says everything, as those of clients do that keep no state: ids are whole too,
     * and its own seed counts. The answer is the one without a session, which only saves computing
     * what agrees. */
    int whole;
    int exact; /* its text must not depend on how much room there is */
    int n_top; /* RV_REQUEST_SCORE: and the likeliest tokens of each place, 0 to 20 */
    /* RV_REQUEST_ANSWER to a chat with one choice and a learner. A session of the model: when the
     * request has ended by itself it is as if it had given the answer, so that rv_learner_score,
     * rv_learner_thumb and rv_learner_teach judge that. Until then it must live and nobody may use
     * it. */
    rv_session *judged;
    /* With `judged`: what is generated are the tokens of this answer, of `generate` only sampling
     * counts. They are taken for the model's, unless a lesson that the learner had by then is read
     * now, or spoken, and begins with this text. Such a request counts in no limit. Copied. */
    const rv_given *given;
} rv_request;

/* RV_E_BUSY: too many wait, or its session has a request that has not ended; RV_E_TOO_LONG: it
 * would never fit; RV_E_STORAGE: its session is damaged; RV_E_STATE: it would be one too many.
 * Everything is copied or kept. */
RV_API rv_status rv_service_submit(rv_service *s, const rv_request *r, uint64_t *id, rv_error *err);
/* Its last events come after the current step, and its room is free then. Unknown ids, and those
 * that have ended, are ignored; so are those whose answer has ended and whose session is being
 * saved. */
RV_API void rv_service_cancel(rv_service *s, uint64_t id);

/* Removes a session. RV_E_NOT_FOUND: there is none; RV_E_BUSY: it has a request that has not
 * ended. */
RV_API rv_status rv_service_forget(rv_service *s, const char *tenant, const char *session,
                                   rv_error *err);

typedef struct rv_listed_session {
    const char *name;
    uint64_t saved; /* seconds of the clock */
} rv_listed_session;

/* The tenant's saved sessions, as one block; nothing is read. None where none are kept. */
RV_API rv_status rv_service_list_sessions(rv_service *s, const char *tenant,
                                          rv_listed_session **out, size_t *n, rv_error *err);

typedef struct rv_found_session {
    const char *name;
    float similarity; /* 1: the same text; unrelated ones are around 0 */
    uint64_t saved;   /* seconds of the clock */
} rv_found_session;

/* Which of the tenant's saved sessions are about a text? The `most` nearest of them, nearest first,
 * as one block, by the embedder's vectors of their newest 768 tokens. Computes on the calling
 * thread: a session that was saved since the last time is read first, and not found where it is
 * damaged. */
RV_API rv_status rv_service_find(rv_service *s, const char *tenant, const char *text, size_t most,
                                 rv_found_session **out, size_t *n, rv_error *err);

/* ---- events ---- */

typedef enum rv_service_event_kind {
    RV_SERVICE_PROMPT, /* n_done of n_prompt tokens have been read; after a step that read some */
    RV_SERVICE_TOKEN,  /* as RV_EVENT_TOKEN */
    RV_SERVICE_DONE,   /* of one choice */
    RV_SERVICE_END     /* the last event of a request, after all its choices */
} rv_service_event_kind;

/* Pointers are into the batch. */
typedef struct rv_service_event {
    rv_service_event_kind kind;
    uint64_t request;
    void *user;
    int choice;
    /* RV_SERVICE_TOKEN */
    int32_t id; /* -1: text that was held back until the end */
    int is_special;
    const char *text; /* terminated */
    size_t text_len;
    const rv_token_prob *chosen, *top; /* NULL unless logprobs were asked for */
    size_t n_top; /* RV_SERVICE_DONE of scores: n_values times those of the request */
    /* RV_SERVICE_DONE */
    rv_finish finish;
    int timed_out; /* finish is RV_FINISH_CANCELLED, for its time was over */
    rv_status status;
    const char *error;   /* NULL unless finish is RV_FINISH_ERROR, or session_status is not RV_OK */
    const float *values; /* of an embedding or of scores; else NULL */
    size_t n_values;
    int n_prompt, n_reused, n_generated; /* n_reused: prompt tokens that were not computed for it */
    int n_preempted;                     /* times that it lost its room */
    int n_done;                          /* RV_SERVICE_PROMPT */
    /* Seconds: from submit to admission, from there to the first token, from there to the end. */
    double queue_seconds, prompt_seconds, seconds;
    int saved; /* RV_SERVICE_DONE: its session is on disk */
    /* Why not: the answer is whole, and the session is as it was before, unless `error` says that
     * it goes on from here and a power failure may undo that. */
    rv_status session_status;
    int n_guessed, n_right; /* RV_SERVICE_DONE: as in rv_answer */
    size_t stop;            /* RV_FINISH_STOP: as in rv_answer */
    /* RV_SERVICE_DONE: how RV_PRESSURE_EVICT and _QUANTIZE changed its text; 0: not */
    int n_evicted; /* tokens that it forgot */
    int coarse;    /* it read keys and values in 4 bits that it would have read in 8 */
} rv_service_event;

/* What one step brought, in order; a request's events never overtake each other. One block. */
typedef struct rv_batch {
    const rv_service_event *events;
    size_t n;
} rv_batch;

/* The oldest batch that nobody has taken; *out NULL: none came within `wait` seconds (0: does not
 * wait). */
RV_API rv_status rv_service_drain(rv_service *s, double wait, rv_batch **out, rv_error *err);
/* With no_thread: computes one step, or nothing. *n: requests that have not ended. One thread at a
 * time. */
RV_API rv_status rv_service_step(rv_service *s, size_t *n, rv_error *err);

/* ---- figures ---- */

enum { RV_HISTOGRAM_BUCKETS = 896 }; /* 32 for each doubling, from 1 microsecond to 268 s */

typedef struct rv_histogram {
    uint64_t n;
    double sum, max;
    uint64_t counts[RV_HISTOGRAM_BUCKETS];
} rv_histogram;

RV_API double rv_histogram_bound(int i); /* upper bound of bucket i, seconds; the last has none */
/* The value below which a share q of all lies, to about 1.5 %; 0 where there are none. */
RV_API double rv_histogram_quantile(const rv_histogram *h, double q);

typedef struct rv_service_metrics {
    size_t size;
    /* now */
    uint64_t n_running, n_waiting;
    uint64_t pages, pages_running, pages_kept; /* of 32 tokens: all; held by requests; only kept */
    /* since the beginning */
    uint64_t n_submitted, n_refused, n_done, n_cancelled, n_timed_out, n_failed;
    uint64_t n_steps, prompt_rows, token_rows; /* computed */
    uint64_t prompt_tokens, reused_tokens;     /* of admitted requests; not computed for them */
    uint64_t n_preempted, recomputed_rows;
    /* computing; and of that what went into rows of prompts and into tokens, by their numbers in
     * each step: prompt_rows / prompt_seconds are read in a second */
    double busy_seconds, prompt_seconds, token_seconds;
    /* seconds */
    rv_histogram queue, first_token, inter_token, step, lookup;
    uint64_t n_guessed, n_right; /* tokens tried as guesses, beside token_rows; that came true */
    /* RV_KV_WARM, RV_KV_TIERED: pages that are there in f16, q8, q4 (some in two of them), and
     * tokens computed again because the precision that was wanted had been dropped */
    uint64_t pages_hot, pages_warm, pages_cold;
    uint64_t dropped_rows;
    /* Requests that were written to disk when they lost their room; that could not be written (a
     * full disk) or not be read back as they were written, and were computed again; tokens that
     * were read back. */
    uint64_t n_spilled, n_spill_failed, spilled_rows;
    uint64_t n_evicted, n_coarsened; /* tokens that answers forgot; answers that went to 4 bits */
    uint64_t n_dropped_kept;         /* pages of the cache that were given up */
    /* now, in bytes: of pages by precision (f16, or the one that there is; q8; q4); of these only
     * kept; on disk */
    uint64_t bytes_hot, bytes_warm, bytes_cold, bytes_kept, bytes_spilled;
    uint64_t n_context; /* most tokens of prompt and answer together, as it came out */
    /* Of answers, with their ends: also those that need no row of their own, the first and guesses
     * that came true; not those of an answer that is gone through to be judged. */
    uint64_t answer_tokens;
} rv_service_metrics;

RV_API rv_status rv_service_get_metrics(const rv_service *s, rv_service_metrics *out,
                                        rv_error *err);

/* ---- several models ----
 *
 * A list of models by name, each of which gets a service when it is first asked for. Loading and
 * unloading happen on a thread of the list, beside those that compute. When there is no room for
 * one more, the least recently used goes; one that somebody holds goes when nobody does any more,
 * and whoever asks for it meanwhile waits until it is loaded again. Services of one runtime
 * compute in turn, a step each, and share token_ms. */

typedef struct rv_models rv_models;

typedef struct rv_models_options {
    size_t size;
    uint64_t bytes; /* that loaded models may take, weights and KV room; 0: no limit. A model that
                       alone takes more is refused with RV_E_NOMEM */
    int max_loaded; /* 0: no limit */
    double idle;    /* seconds after which a model that nobody holds is unloaded; 0: never */
    /* Called on the list's thread, with no lock held, when a model was loaded, could not be, or was
     * unloaded: ask again for those that were RV_E_BUSY. May be NULL. */
    void (*changed)(void *ctx);
    void *changed_ctx;
} rv_models_options;

/* RV_E_UNSUPPORTED: the build has no threads. */
RV_API rv_status rv_models_new(rv_models **out, rv_runtime *rt, const rv_models_options *o,
                               rv_error *err);
/* Nobody holds one of its services, and no other thread is in a call on it. */
RV_API void rv_models_free(rv_models **ms);

/* Gives a model a name; nothing is read yet. Texts of the options are copied, the folders for
 * sessions and spilling must be its own. Where n_context is 0 and n_tokens RV_WHOLE_CONTEXT, both
 * are halved, to no less than 4,096, until keys and values fit below the budget and into three
 * quarters of the free memory; that is logged. RV_E_STATE: the name is taken. */
RV_API rv_status rv_models_add(rv_models *ms, const char *name, const char *path,
                               const rv_open_options *open, const rv_service_options *service,
                               rv_error *err);
/* The model's service, which stays until it is given back: hold it until the requests have ended
 * and their last events are drained. Waits for loading, up to `wait` seconds; with 0 it never
 * waits, but loading begins. RV_E_BUSY: it is not there yet; RV_E_NOT_FOUND: no such name; else why
 * it could not be loaded (the next call tries again). */
RV_API rv_status rv_models_hold(rv_models *ms, const char *name, double wait, rv_service **out,
                                rv_error *err);
RV_API void rv_models_give_back(rv_models *ms, rv_service **s);
/* Unloads it, as soon as nobody holds it, unless it is asked for again before. RV_E_NOT_FOUND: no
 * such name. */
RV_API rv_status rv_models_unload(rv_models *ms, const char *name, rv_error *err);

/* Figures of a model that is loaded; does not count as use of it. RV_E_BUSY: it is not. */
RV_API rv_status rv_models_get_metrics(rv_models *ms, const char *name, rv_service_metrics *out,
                                       rv_error *err);

typedef enum rv_model_state {
    RV_MODEL_OUT,     /* not in memory */
    RV_MODEL_LOADING, /* or waiting for that */
    RV_MODEL_LOADED,
    RV_MODEL_LEAVING /* unloaded as soon as nobody holds it */
} rv_model_state;

typedef struct rv_listed_model {
    const char *name, *path;
    rv_model_state state;
    uint64_t bytes; /* weights and KV room, as far as they are known; 0: never loaded */
    int n_held;
    uint64_t n_loads;
    double load_seconds; /* of the last time */
    double idle_seconds; /* since it was held, while nobody holds it; else 0 */
} rv_listed_model;

/* All of them in the order they were added, as one block. */
RV_API rv_status rv_models_list(rv_models *ms, rv_listed_model **out, size_t *n, rv_error *err);

/* ---- one budget ----
 *
 * A number of bytes that everything made from a runtime shares: weights, adapters, scratch memory
 * and the KV pages of services. A service has room for one request of its n_context in any case,
 * and is not made where there is none; beyond that it has as many pages, of its n_tokens, as the
 * others leave. An adapter of a registry, and a model of a list, is loaded when there is room for
 * it. Where something does not fit, what is merely kept is given up: pages of requests that have
 * ended, then adapters of registries that nobody uses, then (to load another) models that nobody
 * holds; until the low mark is reached, so that it is seldom. What is in use stays, and what then
 * does not fit waits (requests) or is refused with RV_E_NOMEM (the others). What learners train
 * with in the background is scratch, and waits where there is no room for it.
 *
 * Models that rv_model_open opens and adapters of rv_adapter_load count, but are not refused; pages
 * of an engine that is no service's do not count. */

typedef struct rv_budget {
    size_t size;
    uint64_t bytes;                          /* of all together; 0: no limit */
    uint64_t weights, adapters, scratch, kv; /* of one class; 0: no limit of its own */
    double low;                              /* the low mark, as a share of each; 0: 0.85 */
} rv_budget;

/* At any time; NULL: no limit. Where more is in use already, nothing new is let in, and the room of
 * services shrinks with their next steps. */
RV_API rv_status rv_runtime_set_budget(rv_runtime *rt, const rv_budget *b, rv_error *err);

typedef struct rv_budget_share {
    uint64_t used, kept, most; /* kept: what could be given up; most: as in rv_budget */
} rv_budget_share;

typedef struct rv_budget_use {
    size_t size;
    rv_budget_share all, weights, adapters, scratch, kv;
    uint64_t n_asked, n_refused; /* times that others were asked for room; that RV_E_NOMEM came */
} rv_budget_use;

RV_API rv_status rv_runtime_get_budget(rv_runtime *rt, rv_budget_use *out, rv_error *err);

/* ---- adapters by name ----
 *
 * A registry knows any number of adapters of a model by name. Those that were used last are in
 * memory, either ready to compute or as open files; the others are on disk alone. What a name
 * stands for is replaced as a whole: a replacement is a new generation, which never changes, and
 * requests keep the one they began with. */

typedef struct rv_registry rv_registry;

typedef struct rv_registry_options {
    size_t size;
    uint64_t ready_bytes; /* of adapters that are ready, the last one apart; 0: 256 MiB */
    int max_open;         /* files; 0: 256 */
} rv_registry_options;

RV_API rv_status rv_registry_new(rv_registry **out, const rv_model *m, const rv_registry_options *o,
                                 rv_error *err);
/* No other thread may be in a call on it. Sets that came from it stay valid. */
RV_API void rv_registry_free(rv_registry **r);

#define RV_ANY_GENERATION UINT64_MAX

/* Checks the adapter of rv_adapter_load's path and gives it the name; where that fails, nothing
 * changes. expected: the generation to be replaced, 0: the name must be new; RV_E_STATE if it is
 * not so. generation may be NULL. */
RV_API rv_status rv_registry_put(rv_registry *r, const char *name, const char *path,
                                 uint64_t expected, uint64_t *generation, rv_error *err);
/* Gives every adapter in a folder (PEFT directories, and GGUF files without their ending) its name
 * there, unless it is known already. Nothing is read before it is used. *n: how many are new. */
RV_API rv_status rv_registry_add_folder(rv_registry *r, const char *folder, size_t *n,
                                        rv_error *err);
/* RV_E_STATE: the name is not, or no longer, at the generation that is to go; RV_E_NOT_FOUND: any
 * was, and there is none. */
RV_API rv_status rv_registry_remove(rv_registry *r, const char *name, uint64_t expected,
                                    rv_error *err);

typedef enum rv_residency {
    RV_ON_DISK,
    RV_OPEN, /* checked, and its file is mapped */
    RV_READY
} rv_residency;

/* Whether rv_registry_get would have to load it; never waits for loading. RV_E_NOT_FOUND: no such
 * name. */
RV_API rv_status rv_registry_where(rv_registry *r, const char *name, rv_residency *out,
                                   rv_error *err);
/* A set of this adapter alone, freed by rv_adapter_set_free. Loads it first, on the calling thread,
 * if it is not ready. RV_E_NOT_FOUND: no such name; RV_E_STATE: its file is not the one that was
 * given the name. generation may be NULL. */
RV_API rv_status rv_registry_get(rv_registry *r, const char *name, float scale,
                                 rv_adapter_set **out, uint64_t *generation, rv_error *err);

typedef struct rv_registered {
    const char *name, *path;
    uint64_t generation;
    rv_residency residency;
    uint64_t bytes; /* while it is ready; else 0 */
    uint64_t n_uses;
} rv_registered;

/* All of them by name, as one block. */
RV_API rv_status rv_registry_list(rv_registry *r, rv_registered **out, size_t *n, rv_error *err);

typedef struct rv_registry_metrics {
    size_t size;
    uint64_t n, n_open, n_ready, ready_bytes; /* now */
    rv_histogram ready, open, on_disk;        /* seconds of rv_registry_get, by where it was */
} rv_registry_metrics;

RV_API rv_status rv_registry_get_metrics(rv_registry *r, rv_registry_metrics *out, rv_error *err);

#ifdef __cplusplus
}
#endif
#endif
