/* api.h - the public objects, as the files of this room see them: argument checks, lifetimes, who
 * may compute; nothing clever.
 *
 * Lifetimes: every object counts its users, the caller's handle among them, and holds a reference
 * to the object it was made from. The last release destroys it, on whatever thread.
 *
 * Computing: rt->busy is held by the one thread that computes on a runtime (rvi_api_enter); it
 * guards the backend, all page pools and all sessions. Freeing a session needs it too, but may not
 * fail or wait: freed sessions go to a list that whoever holds busy empties on leaving. */
#ifndef RVI_API_API_H
#define RVI_API_API_H

#include <stdatomic.h>

#include "base/log.h"
#include "decode/answer.h"
#include "decode/engine.h"
#include "model/model.h"
#include "ruvllm.h"
#include "template/chat.h"
#include "tokenizer/tokenizer.h"

enum { RVI_API_CONTEXT = 4096 }; /* tokens, where the caller names no number */

struct rv_runtime {
    atomic_int users;
    rvi_backend *be;
    rvi_log log;
    rv_runtime_options o;
    rv_allocator allocator; /* as the caller gave it; in use if alloc is set */
    atomic_flag busy;
    _Atomic(rv_session *) freed; /* sessions whose handle is gone, not destroyed yet */
    atomic_uint_fast64_t n_sets; /* serials handed out */
};

struct rv_model {
    atomic_int users;
    rv_runtime *rt;
    rvi_model *model;         /* NULL: opened for its vocabulary */
    rvi_source *vocab_source; /* the GGUF file of a vocabulary-only model, or NULL */
    rvi_tokenizer *tokenizer; /* NULL: none */
    rvi_chat *chat;           /* NULL: no tokenizer */
    rvi_ids eos;
    char *name;
};

struct rv_adapter {
    atomic_int users;
    rvi_adapter *a;
    rv_model *m;
};

struct rv_adapter_set {
    atomic_int users;
    rv_model *m;
    rv_adapter **adapters; /* one for each use */
    rvi_adapter_use *uses;
    rvi_adapter_set set;
};

struct rv_engine {
    atomic_int users;
    rv_model *m;
    rvi_engine *e;
    rvi_step_row *rows; /* max_rows, for rv_engine_step */
};

struct rv_session {
    rv_engine *e;
    rvi_session *s;
    rv_adapter_set *adapters; /* may be NULL */
    rv_session *next_freed;
};

/* Retaining casts const away: the count is not part of the value. Releases accept NULL. */
rv_runtime *rvi_api_retain_runtime(const rv_runtime *rt);
rv_model *rvi_api_retain_model(const rv_model *m);
rv_adapter_set *rvi_api_retain_set(const rv_adapter_set *set); /* accepts NULL */
rv_engine *rvi_api_retain_engine(rv_engine *e);
void rvi_api_release_runtime(rv_runtime *rt);
void rvi_api_release_model(rv_model *m);
void rvi_api_release_set(rv_adapter_set *set);
void rvi_api_release_engine(rv_engine *e);
void rvi_api_destroy_session(rv_session *s); /* busy is held */

/* The runtime's allocator for this thread until left: every public function that allocates or
 * computes is between the two. */
const rv_allocator *rvi_api_use_heap(const rv_runtime *rt);
void rvi_api_leave_heap(const rv_allocator *before);

/* Takes the runtime for computing, and its heap. RV_E_SESSION if another call has it. */
typedef struct rvi_api_turn {
    rv_runtime *rt;
    const rv_allocator *heap;
} rvi_api_turn;
rv_status rvi_api_enter(rvi_api_turn *turn, const rv_runtime *rt, rv_error *err) RVI_MUST_CHECK;
void rvi_api_leave(rvi_api_turn *turn);

/* Option structs of any size: init writes defaults into the caller's, read overlays the caller's
 * (NULL: nothing) onto a whole one that holds the defaults. */
void rvi_api_init_options(void *o, size_t size, const void *defaults, size_t full_size);
rv_status rvi_api_read_options(void *full, size_t full_size, const void *given, const char *what,
                               rv_error *err) RVI_MUST_CHECK;

rv_status rvi_api_need_weights(const rv_model *m, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_api_need_decoder(const rv_model *m, rv_error *err) RVI_MUST_CHECK;
rv_kv_type rvi_api_kv_type(const rv_runtime *rt, rv_kv_type asked);
rv_status rvi_api_check_kv_type(rv_kv_type type, rv_error *err) RVI_MUST_CHECK;

/* Moves a buffer's text to the caller (an empty one becomes ""). */
rv_status rvi_api_give_text(rvi_buf *b, char **text, size_t *len, rv_error *err) RVI_MUST_CHECK;

#endif
