/* api.h - the public objects, as the files of this room see them: argument checks, lifetimes, who
 * may compute; nothing clever.
 *
 * Lifetimes: every object counts its users, the caller's handle among them, and holds a reference
 * to the object it was made from. The last release destroys it, on whatever thread.
 *
 * Computing: rt->busy is held by the one thread that computes on a runtime (rvi_api_enter); it
 * guards the backend, all page pools, all sessions and all learners. Freeing a session needs it
 * too, but may not fail: freed sessions go to a list that the call which holds busy empties on
 * leaving, as do sets of a learner's adapters. Background threads of learners hold it for moments
 * only, and calls wait for them: a call never fails because of one (rvi_api_enter_aside). */
#ifndef RVI_API_API_H
#define RVI_API_API_H

#include <stdatomic.h>

#include "base/log.h"
#include "base/thread.h"
#include "calls/validate.h"
#include "decode/answer.h"
#include "decode/engine.h"
#include "grammar/grammar.h"
#include "kv/quota.h"
#include "learn/learner/learner.h"
#include "model/model.h"
#include "model/placement.h"
#include "ruvllm_experimental.h"
#include "ruvllm_grammar.h"
#include "template/chat.h"
#include "tokenizer/tokenizer.h"

enum {
    RVI_API_CONTEXT = 4096,        /* tokens, where the caller names no number */
    RVI_API_CHAT_BYTES = 256 << 20 /* of a chat's tree */
};

struct rv_runtime {
    atomic_int users;
    rvi_backend *be;
    rvi_log log;
    rv_runtime_options o;
    rv_allocator allocator;               /* as the caller gave it; in use if alloc is set */
    atomic_int busy;                      /* rvi_api_holder */
    _Atomic(const char *) owner;          /* which thread has busy for a call; NULL: none */
    atomic_int n_waiting;                 /* threads that wait for busy */
    atomic_uint_fast64_t left_ns;         /* when the last call left; 0: long ago */
    atomic_uint_fast64_t used_ns;         /* when a model was last asked something */
    _Atomic(rv_session *) freed;          /* sessions whose handle is gone, not destroyed yet, */
    _Atomic(rv_adapter_set *) freed_sets; /* and sets of a learner's adapters */
    atomic_uint_fast64_t n_sets;          /* serials handed out */
    atomic_int n_serving;                 /* services whose last step computed something, */
    int n_stepped;                        /* steps of them in this round; busy is held */
    atomic_uint_fast64_t round;           /* in which each of them has one step */
    atomic_uint_fast64_t token_ns; /* between two tokens of their streams, by the newest of them */
    atomic_int n_starving;         /* jobs of learners that calls have kept waiting for long */
    atomic_uint_fast64_t rest_ns;  /* until when services rest for these, or have rested */
    atomic_uint_fast64_t n_rests;
    atomic_size_t mapped_bytes;  /* of the files of open models, */
    atomic_size_t adapter_bytes; /* and of loaded adapters */
    rvi_quota quota;             /* what all of it may take (budget.c) */
    bool is_automatic;           /* device "auto" found a GPU */
    int n_threads;               /* and why so many, and why this device */
    const char *threads_why;
    char device_why[sizeof((rv_error *)0)->text];
    unsigned measured; /* types of weights that rates are known for; busy is held */
    rvi_rates rates[RVI_QTYPE_COUNT];
};

struct rv_model {
    atomic_int users;
    rv_runtime *rt;
    rvi_model *model;   /* NULL: opened for its vocabulary */
    rvi_backend *split; /* its backend, where the CPU computes a part or everything beside a GPU; or
                           NULL: the runtime's */
    rvi_backend_memory *host_memory; /* of split, where that is the CPU alone: its own count */
    rvi_sizes *sizes;                /* on a GPU; otherwise NULL */
    int gpu_layers;
    char layers_why[RVI_PLACING_WHY];  /* why so many; "": there is no GPU */
    const rvi_backend *host;           /* the CPU that computes a part or all of it; or NULL */
    rvi_source *vocab_source;          /* the GGUF file of a vocabulary-only model, or NULL */
    rvi_tokenizer *tokenizer;          /* NULL: none */
    _Atomic(rvi_vocab *) vocab;        /* for grammars; NULL: not made yet */
    _Atomic(rvi_vocab *) marked_vocab; /* the same with the marks of calls and thoughts as text */
    rvi_chat *chat;                    /* NULL: no tokenizer */
    const char *template_text;         /* its source; NULL: none is stored */
    size_t template_len;
    rvi_ids eos;
    char *name;
    rvi_arena texts; /* of info */
    size_t mapped_bytes;
    rv_model_info info;
};

struct rv_grammar {
    atomic_int users;
    rv_model *m;
    rvi_lock *lock; /* of the next, which masks and states grow */
    rvi_grammar *g;
    rvi_ids markers;              /* control tokens that are text in it */
    const rvi_thinking *thinking; /* whose length is limited; NULL: none is */
    int think;                    /* tokens */
};

struct rv_tools {
    rv_model *m;
    rvi_tools *tools;         /* NULL: none */
    const rvi_family *family; /* NULL: none */
    const rvi_thinking *thinking;
    bool opened;
    bool off; /* no thinking */
    uint64_t seed;
    rv_grammar *g;
    rvi_tool_choice choice;
    bool one_call;
    rvi_form_kind form;
    rvi_buf form_text; /* GBNF where Lark was given */
};

struct rv_adapter {
    atomic_int users;
    rvi_adapter *a;
    rv_model *m;
    size_t bytes;
    rvi_digesting digest; /* busy is held */
};

struct rv_adapter_set {
    atomic_int users;
    rv_model *m;
    rv_adapter **adapters; /* one for each use */
    rvi_adapter_use *uses;
    rvi_adapter_set set;
    uint8_t digest[RVI_SHA256_LEN]; /* of the set, once it is known */
    rv_learner *learner;            /* whose adapters they are; NULL: `adapters` */
    rvi_made_set *held;             /* the learner's */
    rv_adapter_set *next_freed;
};

struct rv_engine {
    atomic_int users;
    rv_model *m;
    rvi_engine *e;
    const char *kv_why; /* its type */
    rvi_step_row *rows; /* max_rows, for rv_engine_step */
};

struct rv_session {
    rv_engine *e;
    rvi_session *s;
    const char *context_why;  /* its length */
    rv_adapter_set *adapters; /* may be NULL */
    rv_learner *teacher;      /* that chats ask; may be NULL */
    rv_learner *learner;      /* that decided what takes part; NULL: none did */
    rvi_ids slot;             /* of the next answer, a copy: lessons may go; len 0: none */
    uint64_t lesson;          /* whose answer that is, or that is read: its event */
    bool reads;               /* it is: a turn before the next request, */
    bool read;                /* or before that of the last answer */
    bool spoke;               /* the last answer came from a slot */
    bool begun;               /* the next answer is to `question` */
    bool unjudged;            /* nobody will judge its answers: none is captured */
    char *question;           /* the last that the learner saw; NULL: none */
    char *meant;              /* that, behind what turns before it tell; NULL: it needs none */
    rvi_made_set *held;       /* the learner's adapters that take part; may be NULL */
    rvi_adapter_set composed; /* the session's adapters, then the learner's; n 0: not both */
    rvi_capture *capture;     /* the learner's; may be NULL */
    void *user;
    rv_session *next_freed;
};

/* Retaining casts const away: the count is not part of the value. Releases accept NULL. */
rv_runtime *rvi_api_retain_runtime(const rv_runtime *rt);
rv_model *rvi_api_retain_model(const rv_model *m);
rv_adapter_set *rvi_api_retain_set(const rv_adapter_set *set); /* accepts NULL */
/* In a turn, a piece of finding out the digest of a set that is no learner's; true: there are more.
 * Without memory it stays unknown. */
bool rvi_api_digest_set(rv_adapter_set *set);
/* Takes the adapter over, and frees it on failure. */
rv_status rvi_api_wrap_adapter(rv_adapter **out, const rv_model *m, rvi_adapter *take,
                               rv_error *err) RVI_MUST_CHECK;
rv_adapter *rvi_api_retain_adapter(const rv_adapter *a);
rv_engine *rvi_api_retain_engine(rv_engine *e);
void rvi_api_release_runtime(rv_runtime *rt);
void rvi_api_release_model(rv_model *m);
void rvi_api_release_set(rv_adapter_set *set); /* of a learner's adapters: busy is held */
void rvi_api_release_engine(rv_engine *e);
rv_learner *rvi_api_retain_learner(rv_learner *l); /* accepts NULL */
void rvi_api_release_learner(rv_learner *l);
rv_grammar *rvi_api_retain_grammar(rv_grammar *g); /* accepts NULL */
void rvi_api_release_grammar(rv_grammar *g);
/* What a session or set holds of its learner goes back; then the learner's count. */
void rvi_api_leave_learner(rv_learner *l, rvi_made_set *held, rvi_capture *capture);
void rvi_api_destroy_session(rv_session *s); /* busy is held */

/* The runtime's allocator for this thread until left: every public function that allocates or
 * computes is between the two. */
const rv_allocator *rvi_api_use_heap(const rv_runtime *rt);
void rvi_api_leave_heap(const rv_allocator *before);

/* Takes the runtime for computing, and its heap. While another call has it, waits as the runtime's
 * options say, then RV_E_BUSY. */
typedef struct rvi_api_turn {
    rv_runtime *rt;
    const rv_allocator *heap;
} rvi_api_turn;
rv_status rvi_api_enter(rvi_api_turn *turn, const rv_runtime *rt, rv_error *err) RVI_MUST_CHECK;
void rvi_api_leave(rvi_api_turn *turn);
/* Do services compute, whose streams wait for whoever has the turn? */
bool rvi_api_is_serving(const rv_runtime *rt);
/* A piece of what judgements need (rvi_instant_prepare), as long as streams may wait for it. */
bool rvi_api_prepare_judging(const rv_learner *l, bool captures, bool scores);
/* Gives the turn to who waits for it, and takes it again, whatever the options say. */
void rvi_api_make_way(rvi_api_turn *turn);
/* Destroys freed sessions and sets now, or leaves that to the call that has the runtime. */
void rvi_api_collect(rv_runtime *rt);

/* The same for a background thread, which waits for it; false: *stop was set meanwhile. For
 * moments: little is computed and written, at most what the calls before left for it to do. */
bool rvi_api_enter_aside(rvi_api_turn *turn, const rv_runtime *rt, const atomic_bool *stop);
void rvi_api_leave_aside(rvi_api_turn *turn);
/* Is a call computing, or was one a moment ago, so that the next is likely to follow? */
bool rvi_api_is_busy(rv_runtime *rt);
/* A model is asked something, or has answered. */
void rvi_api_note_use(rv_runtime *rt);
double rvi_api_idle_seconds(const rv_runtime *rt); /* since then */

/* RV_E_NOMEM: what was just made takes more than the budget has. */
rv_status rvi_api_check_budget(rv_runtime *rt, rvi_quota_class class, const char *what,
                               rv_error *err) RVI_MUST_CHECK;

/* ---- learners (learner.c), and their background threads (background.c) ---- */

typedef struct rvi_background {
    rvi_thread *thread; /* NULL: none */
    rvi_wakeup *wakeup; /* something may wait */
    atomic_bool stop;
    atomic_bool closed;    /* the caller's handle is gone: it does not start again */
    atomic_flag switching; /* one at a time starts or stops it */
    bool brisk;            /* of ordinary priority: tests on a busy machine */
} rvi_background;

struct rv_learner {
    atomic_int users;
    rv_model *m, *embedder; /* embedder: NULL, none */
    rvi_learner *l;
    rvi_background bg;
};

rv_status rvi_background_start(rv_learner *l, rv_error *err) RVI_MUST_CHECK;
/* Returns when it has ended, without a turn of its own; was there one? */
bool rvi_background_stop(rv_learner *l);
void rvi_background_wake(rv_learner *l);
void rvi_background_deinit(rv_learner *l);

/* The adapters that take part from now on: the session's own, then the learner's (held). */
rv_status rvi_api_compose(rv_session *s, const rvi_made_set *held, rv_error *err) RVI_MUST_CHECK;
void rvi_api_deinit_composed(rv_session *s);
rv_status rvi_api_read_learner_options(rvi_learner_options *o, rv_store *store,
                                       const rv_model **embedder, const rv_learner_options *given,
                                       rv_error *err) RVI_MUST_CHECK;
rv_status rvi_api_give_adaptation(const rvi_adaptation *r, rv_adaptation **out,
                                  rv_error *err) RVI_MUST_CHECK;
rv_status rvi_api_give_plan(const rvi_plan *plan, const char *instructions, rv_learn_plan **out,
                            rv_error *err) RVI_MUST_CHECK;
/* What takes part in the session's next answer to a chat; busy is held. */
rv_status rvi_api_begin_learning(rv_learner *l, rv_session *s, const rvi_json *chat,
                                 rv_learn_plan **out, rv_error *err) RVI_MUST_CHECK;

/* The lesson that stands as a turn before the chat's last request: its event; 0: none. busy is
 * held. */
rv_status rvi_api_find_read(rv_learner *l, const rvi_json *chat, uint64_t *lesson,
                            rv_error *err) RVI_MUST_CHECK;

/* One piece of what that takes, so that others have their turns between them; busy is held. True:
 * there are more. captures: the answer will be judged. */
bool rvi_api_prepare_learning(rv_learner *l, const rvi_json *chat, bool captures);

/* What that decided about the text: for the answer that was just started. */
rv_status rvi_api_apply_lesson(rv_session *s, rv_error *err) RVI_MUST_CHECK;

/* ---- answers under a grammar (constrain.c) ---- */

typedef struct rvi_api_language {
    rv_grammar_kind kind;
    const char *text;
    size_t len;
    rvi_grammar_options how;
    bool marked; /* the marks of calls and thoughts are text */
} rvi_api_language;
/* The checked core of rv_grammar_new. */
rv_status rvi_api_new_grammar(rv_grammar **out, const rv_model *m, const rvi_api_language *l,
                              rv_error *err) RVI_MUST_CHECK;
/* RV_OK if o's grammar and state, if any, are for this model. */
rv_status rvi_api_check_grammar(const rv_model *m, const rv_generate_options *o,
                                rv_error *err) RVI_MUST_CHECK;
/* For the answer that was just started on s; does nothing without a grammar. */
rv_status rvi_api_constrain(rvi_session *s, rv_grammar *g, uint32_t state,
                            rv_error *err) RVI_MUST_CHECK;

/* ---- reading arguments, giving results ---- */

/* Reads a struct that begins with its size, of any version, into a whole one; what is missing is 0,
 * and given may be NULL. */
rv_status rvi_api_read_struct(void *full, size_t full_size, const void *given, const char *what,
                              rv_error *err) RVI_MUST_CHECK;

rv_status rvi_api_read_sampling(rv_sampling *full, const rv_sampling *given,
                                rv_error *err) RVI_MUST_CHECK;
/* As decode/answer.h wants them: max_tokens is a number, top_logprobs -1 asks for none. */
rv_status rvi_api_read_generate(rv_generate_options *o, const rv_generate_options *given,
                                rv_sampling *sampling, rv_error *err) RVI_MUST_CHECK;
/* A copy of the ids of a text that is too long to embed, cut; *cut NULL: nothing need be done. */
rv_status rvi_api_cut_ids(const rv_model *m, const int32_t *ids, size_t *n, int32_t **cut,
                          rv_error *err) RVI_MUST_CHECK;
/* *json, in the arena: what a template sees of the chat. */
rv_status rvi_api_read_chat(rv_chat *chat, const rvi_json **json, const rv_chat *given,
                            rvi_arena *arena, rv_error *err) RVI_MUST_CHECK;
bool rvi_api_message_is(const rvi_json *message, const char *role);
/* The text of a message, its parts joined; in the arena, or its own. NULL: there is no memory. */
const char *rvi_api_message_text(const rvi_json *message, rvi_arena *arena);
/* Renders and tokenizes as a learner has it read (l NULL: as it is; else busy is held), with its
 * instructions before the chat and without what would be repeated; appends to ids. */
rv_status rvi_api_learned_ids(const rv_learner *l, const rv_model *m, const rv_chat *chat,
                              const rvi_json *json, rvi_arena *arena, rvi_ids *ids,
                              rv_error *err) RVI_MUST_CHECK;
/* These ids again, with the lesson of this event (0: none) as a turn before the request; busy is
 * held. False: they stay, for there is no place for it, in the template or in n_context tokens (0:
 * any number). */
bool rvi_api_read_lesson(const rv_learner *l, const rv_chat *chat, const rvi_json *json,
                         uint64_t lesson, int n_context, rvi_arena *arena, rvi_ids *ids);
/* Does a turn of the chat tell what the lesson would? */
bool rvi_api_has_turn(const rvi_json *chat, const rvi_lesson *x, rvi_arena *arena);

/* Where the model's bytes come from: a path, memory, or a callback. NULL, although nothing failed:
 * a directory of which only the vocabulary is wanted. */
rv_status rvi_api_open_source(rvi_source **out, const char *path, const rv_open_options *o,
                              rv_error *err) RVI_MUST_CHECK;
/* The architecture's name in the file. */
void rvi_api_arch_name(const rvi_source *s, char *out, size_t size);
/* After everything else of a model is there. */
rv_status rvi_api_fill_info(rv_model *m, rv_error *err) RVI_MUST_CHECK;
/* The type most weights have. */
rvi_qtype rvi_api_main_type(const rvi_source *s);
/* Decides what computes the model: sizes, gpu_layers and split. */
rv_status rvi_api_place(rv_model *m, rvi_source *source, const rv_open_options *o,
                        rv_error *err) RVI_MUST_CHECK;
/* Where weights found no room although their layers were placed: what is missing now. Returns
 * RV_E_NOMEM. */
rv_status rvi_api_explain_memory(const rv_model *m, const rv_open_options *o, rv_error *err);
void rvi_api_free_split(rv_model *m);
rv_status rvi_api_need_weights(const rv_model *m, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_api_need_tokenizer(const rv_model *m, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_api_need_decoder(const rv_model *m, rv_error *err) RVI_MUST_CHECK;
/* The type of a KV cache, and (why may be NULL) a constant that says why. */
rv_kv_type rvi_api_kv_type(const rv_runtime *rt, rv_kv_type asked, const char **why);
/* Tokens that a service has room for where one request may have so many: a page more. */
int rvi_api_whole_context(int n_context);
/* What an engine takes on a GPU beside the weights; n_tokens 0: its default. */
rvi_room rvi_api_room(const rv_runtime *rt, const rvi_sizes *s, int n_tokens);
rv_status rvi_api_check_kv_type(rv_kv_type type, rv_error *err) RVI_MUST_CHECK;

/* What answers are checked for; it borrows from t. */
rvi_check rvi_api_tools_check(const struct rv_tools *t);

/* Moves a list to the caller. */
rv_status rvi_api_give_ids(rvi_ids *take, int32_t **ids, size_t *n, rv_error *err) RVI_MUST_CHECK;
/* Moves a buffer's text to the caller (an empty one becomes ""). */
rv_status rvi_api_give_text(rvi_buf *b, char **text, size_t *len, rv_error *err) RVI_MUST_CHECK;
/* The same where what wrote it ended with st = RV_OK; else frees it and returns st. */
rv_status rvi_api_give_text_after(rv_status st, rvi_buf *b, char **text, size_t *len,
                                  rv_error *err) RVI_MUST_CHECK;

#endif
