/* opened.h - a runtime, a model and a session, as most tests of the public interface want them. */
#ifndef TESTS_API_OPENED_H
#define TESTS_API_OPENED_H

#include "harness/assert_ok.h"
#include "ruvllm_experimental.h"

/* Refused with this status, and with a text that says why. */
#define assert_refused(code_, call)                                                                \
    do {                                                                                           \
        rv_error e_ = {0};                                                                         \
        rv_error *err = &e_;                                                                       \
        rv_status st_ = (call);                                                                    \
        if (st_ != (code_) || e_.code != st_ || !e_.text[0])                                       \
            fail_msg("%s: %s '%s'", #call, rv_status_name(st_), e_.text);                          \
    } while (0)

typedef struct opened {
    rv_runtime *rt;
    rv_model *m;
    rv_session *s;
} opened;

/* wait: of a call that finds the runtime computing for another thread */
static inline void open_waiting(opened *o, const char *path, int n_threads, int n_context, int wait)
{
    rv_runtime_options ro;
    rv_session_options so;
    ro = (rv_runtime_options){.size = sizeof ro, .wait = wait};
    ro.n_threads = n_threads;
    assert_ok(rv_runtime_new(&o->rt, &ro, err));
    assert_ok(rv_model_open(&o->m, o->rt, path, NULL, err));
    so = (rv_session_options){.size = sizeof so};
    so.n_context = n_context;
    assert_ok(rv_session_new(&o->s, o->m, &so, err));
}

static inline void open_all(opened *o, const char *path, int n_threads, int n_context)
{
    open_waiting(o, path, n_threads, n_context, RV_WAIT_FOREVER);
}

static inline void close_all(opened *o)
{
    rv_session_free(&o->s);
    rv_model_close(&o->m);
    rv_runtime_free(&o->rt);
}

/* n tokens, the most likely each time, whatever they are */
static inline rv_generate_options greedy(int n)
{
    static const rv_sampling sampling = {.size = sizeof sampling, .greedy = 1};
    rv_generate_options o;
    o = (rv_generate_options){.size = sizeof o};
    o.sampling = &sampling;
    o.max_tokens = n;
    o.ignore_eos = 1;
    return o;
}

#endif
