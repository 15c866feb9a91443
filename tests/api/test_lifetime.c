/* Who owns what, and which thread may call: handles in any order, use after free, two threads on
 * one session, callbacks that cancel, free or generate; the heap hooks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";
static const int32_t prompt[] = {1, 270, 280, 290, 300};

/* ---- handles ---- */

static void parents_first(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    rv_generate_options go = greedy(5);
    rv_adapter *a;
    rv_adapter_set *set;
    rv_session_options so;
    rv_session *s;
    open_all(&o, "tests/golden/llama", 2, 64);
    assert_ok(rv_adapter_load(&a, o.m, "tests/golden/llama/lora", err));
    rv_adapter_use use = {a, 1};
    assert_ok(rv_adapter_set_new(&set, o.m, &use, 1, err));
    so = (rv_session_options){.size = sizeof so};
    so.adapters = set;
    assert_ok(rv_session_new(&s, o.m, &so, err));
    rv_runtime_free(&o.rt);
    rv_model_close(&o.m);
    rv_adapter_free(&a);
    rv_adapter_set_free(&set);
    assert_null(o.rt);
    assert_null(o.m);
    static const int32_t ids[] = {5, 6, 7};
    assert_ok(rv_session_generate(o.s, ids, 3, &go, &g, err));
    assert_int_equal(g->n_ids, 5);
    rv_free(g);
    assert_ok(rv_session_generate(s, ids, 3, &go, &g, err));
    rv_free(g);
    rv_session_free(&o.s);
    rv_session_free(&s);
}

static void use_after_free_is_a_status(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    rv_model *m;
    rv_session *s;
    size_t n;
    int32_t *ids;
    rv_engine *e;
    open_all(&o, model_path, 1, 32);
    assert_ok(rv_engine_new(&e, o.m, NULL, err));
    rv_session_free(&o.s);
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, prompt, 5, NULL, &g, err));
    assert_refused(RV_E_INVALID, rv_session_sync(o.s, prompt, 5, NULL, NULL, err));
    assert_refused(RV_E_INVALID, rv_session_fork(&s, o.s, err));
    assert_int_equal(rv_session_tokens(o.s, NULL), 0);
    rv_session_cancel(o.s);
    rv_session_free(&o.s); /* twice */
    rv_engine_free(&e);
    assert_refused(RV_E_INVALID, rv_engine_advance(e, &n, err));
    rv_model_close(&o.m);
    assert_refused(RV_E_INVALID, rv_session_new(&s, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_tokenize(o.m, "x", 1, 0, &ids, &n, err));
    rv_runtime_free(&o.rt);
    assert_refused(RV_E_INVALID, rv_model_open(&m, o.rt, model_path, NULL, err));
}

/* What a program hangs on a session comes back, from its forks and in its events too. */
static int look_at_user(void *ctx, const rv_event *ev)
{
    int *n = ctx;
    if (rv_session_user(ev->session) == ctx) ++*n;
    return 0;
}

static void user_data(void **state)
{
    (void)state;
    opened o;
    int n = 0;
    rv_session *s, *fork;
    rv_answer *g = NULL;
    open_all(&o, model_path, 1, 32);
    assert_null(rv_session_user(o.s));
    rv_session_options so = {.size = sizeof so, .n_context = 32, .user = &n};
    assert_ok(rv_session_new(&s, o.m, &so, err));
    assert_ptr_equal(rv_session_user(s), &n);
    assert_ok(rv_session_fork(&fork, s, err));
    assert_ptr_equal(rv_session_user(fork), &n);
    rv_generate_options go = greedy(3);
    go.on_event = look_at_user;
    go.ctx = &n;
    assert_ok(rv_session_generate(fork, prompt, 5, &go, &g, err));
    assert_true(n >= 4); /* three tokens and the end, at least */
    rv_free(g);
    rv_session_free(&s);
    rv_session_free(&fork);
    close_all(&o);
}

/* ---- threads ---- */

typedef struct meeting {
    opened *o;
    rv_session *other; /* of the same runtime */
    atomic_int stage;  /* 1: an answer is under way, 2: the other thread has tried */
    rv_status tried[4];
} meeting;

static int wait_for_the_other(void *ctx, const rv_event *ev)
{
    meeting *m = ctx;
    if (ev->kind == RV_EVENT_TOKEN && atomic_load(&m->stage) == 0) {
        atomic_store(&m->stage, 1);
        while (atomic_load(&m->stage) == 1) {
        }
    }
    return 0;
}

static void *try_meanwhile(void *arg)
{
    meeting *m = arg;
    rv_answer *g = NULL;
    size_t n;
    int32_t *ids;
    rv_generate_options go;
    go = (rv_generate_options){.size = sizeof go};
    while (atomic_load(&m->stage) != 1) {
    }
    m->tried[0] = rv_session_generate(m->o->s, prompt, 5, &go, &g, NULL);
    rv_free(g);
    m->tried[1] = rv_session_generate(m->other, prompt, 5, &go, &g, NULL);
    rv_free(g);
    m->tried[2] = rv_session_sync(m->o->s, prompt, 2, NULL, NULL, NULL);
    m->tried[3] = rv_tokenize(m->o->m, "the tea", 7, 0, &ids, &n, NULL); /* reading is allowed */
    rv_free(ids);
    rv_session_free(&m->other); /* so is freeing */
    atomic_store(&m->stage, 2);
    return NULL;
}

static void two_threads_on_one_session(void **state)
{
    (void)state;
    opened o;
    rv_answer *want = NULL, *g = NULL;
    rv_generate_options go = greedy(20);
    meeting m = {.o = &o};
    rv_session_options so;
    pthread_t thread;
    open_waiting(&o, model_path, 2, 64, RV_WAIT_NEVER);
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 32;
    assert_ok(rv_session_new(&m.other, o.m, &so, err));
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &want, err));
    go.on_event = wait_for_the_other;
    go.ctx = &m;
    assert_int_equal(pthread_create(&thread, NULL, try_meanwhile, &m), 0);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++) assert_int_equal(m.tried[i], RV_E_BUSY);
    assert_int_equal(m.tried[3], RV_OK);
    assert_memory_equal(g->ids, want->ids, 20 * sizeof *g->ids); /* and nothing was disturbed */
    rv_free(g);
    rv_free(want);
    close_all(&o);
}

static void *cancel_soon(void *arg)
{
    meeting *m = arg;
    while (atomic_load(&m->stage) != 1) {
    }
    rv_session_cancel(m->o->s);
    atomic_store(&m->stage, 2);
    return NULL;
}

static void cancel_from_another_thread(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    rv_generate_options go = greedy(1000000);
    meeting m = {.o = &o};
    pthread_t thread;
    open_all(&o, model_path, 1, 4096);
    go.on_event = wait_for_the_other;
    go.ctx = &m;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &m), 0);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    pthread_join(thread, NULL);
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_int_equal(g->n_ids, 1);
    rv_free(g);
    go.max_tokens = 3; /* the session is as good as before */
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    assert_int_equal(g->n_ids, 3);
    rv_free(g);
    close_all(&o);
}

/* ---- callbacks ---- */

typedef struct inside {
    opened *o;
    int tokens, what; /* 0: cancel itself, 1: generate again, 2: free everything */
    rv_status got;
} inside;

static int act(void *ctx, const rv_event *ev)
{
    inside *in = ctx;
    if (ev->kind != RV_EVENT_TOKEN || ++in->tokens != 3) return 0;
    if (in->what == 0) {
        rv_session_cancel(ev->session);
    } else if (in->what == 1) {
        rv_answer *g = NULL;
        in->got = rv_session_generate(ev->session, prompt, 5, NULL, &g, NULL);
        rv_free(g);
    } else {
        close_all(in->o);
    }
    return 0;
}

static void callbacks(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        opened o;
        rv_answer *g = NULL;
        rv_generate_options go = greedy(10);
        inside in = {.o = &o, .what = what};
        open_all(&o, model_path, 1, 64);
        rv_session *s = o.s;
        go.on_event = act;
        go.ctx = &in;
        assert_ok(rv_session_generate(s, prompt, 5, &go, &g, err));
        assert_int_equal(g->finish, what == 1 ? RV_FINISH_LENGTH : RV_FINISH_CANCELLED);
        assert_int_equal(g->n_ids, what == 1 ? 10 : 3);
        if (what == 1) assert_int_equal(in.got, RV_E_BUSY);
        rv_free(g);
        if (what < 2) close_all(&o);
    }
}

/* Callbacks that free the very objects of the call they belong to. */
typedef struct everything {
    rv_runtime *rt;
    rv_model *m;
    rv_engine *e;
    const char *file;
    int calls;
} everything;

static void free_everything(everything *t)
{
    t->calls++;
    rv_runtime_free(&t->rt);
    rv_model_close(&t->m);
    rv_engine_free(&t->e);
}

static int free_in_progress(void *ctx, int done, int total, double running)
{
    (void)done, (void)total, (void)running;
    free_everything(ctx);
    return 0;
}

static void free_in_log(void *ctx, rv_log_level level, const char *line)
{
    (void)level, (void)line;
    free_everything(ctx);
}

static int free_in_read(void *ctx, uint64_t offset, void *dst, size_t n)
{
    everything *t = ctx;
    rv_runtime_free(&t->rt);
    t->calls++;
    memcpy(dst, t->file + offset, n);
    return 0;
}

static void open_everything(everything *t, const char *path)
{
    rv_runtime_options ro;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    ro.log = free_in_log;
    ro.log_ctx = t;
    *t = (everything){0};
    assert_ok(rv_runtime_new(&t->rt, &ro, err));
    if (path) assert_ok(rv_model_open(&t->m, t->rt, path, NULL, err));
}

static void callbacks_free_what_they_serve(void **state)
{
    (void)state;
    enum { MANY = 600 };
    everything t;
    int32_t ids[MANY];
    rv_perplexity p;
    float vector[1024];
    static char file[1 << 20];
    for (int i = 0; i < MANY; i++) ids[i] = 5 + i % 50;

    open_everything(&t, model_path);
    assert_ok(rv_model_perplexity(t.m, ids, 64, 16, RV_KV_F16, free_in_progress, &t, &p, err));
    assert_int_equal(p.n_windows, 4);
    assert_int_equal(t.calls, 4);

    /* the warning that a text was cut */
    open_everything(&t, "tests/golden/bert");
    assert_ok(rv_engine_new(&t.e, t.m, NULL, err));
    assert_ok(rv_engine_embed(t.e, ids, MANY, NULL, vector, err));
    assert_int_equal(t.calls, 1);
    assert_null(t.e);

    /* the warning that the model was not made for so many */
    open_everything(&t, model_path);
    const char *path = "tests/no/such/directory"; /* everything but the writing is done */
    assert_refused(RV_E_IO, rv_model_tap(t.m, ids, MANY, "hidden.0", RV_KV_F16, NULL, path, err));
    assert_int_equal(t.calls, 1);
    assert_null(t.m);

    open_everything(&t, NULL);
    FILE *f = fopen(model_path, "rb");
    assert_non_null(f);
    size_t len = fread(file, 1, sizeof file, f);
    assert_in_range(len, 1, sizeof file - 1);
    fclose(f);
    t.file = file;
    rv_open_options reading = {
        .size = sizeof reading, .read = free_in_read, .read_ctx = &t, .len = len};
    assert_ok(rv_model_open(&t.m, t.rt, NULL, &reading, err));
    assert_true(t.calls > 0);
    assert_null(t.rt);
    rv_model_close(&t.m);
}

/* ---- the heap ---- */

typedef struct heap {
    atomic_long live, calls, loop_calls;
    atomic_bool in_loop;
    long fail_at; /* -1: never */
} heap;

static bool refuse(heap *h)
{
    if (atomic_load(&h->in_loop)) atomic_fetch_add(&h->loop_calls, 1);
    return atomic_fetch_add(&h->calls, 1) == h->fail_at;
}

static void *heap_alloc(void *ctx, size_t size)
{
    heap *h = ctx;
    void *p = refuse(h) ? NULL : malloc(size);
    if (p) atomic_fetch_add(&h->live, 1);
    return p;
}

static void *heap_resize(void *ctx, void *p, size_t size)
{
    return refuse(ctx) ? NULL : realloc(p, size);
}

static void heap_release(void *ctx, void *p)
{
    heap *h = ctx;
    atomic_fetch_sub(&h->live, 1);
    free(p);
}

static int count_loop(void *ctx, const rv_event *ev)
{
    heap *h = ctx;
    /* from the first token to the end: everything in between was reserved before */
    atomic_store(&h->in_loop, ev->kind == RV_EVENT_TOKEN);
    return 0;
}

static rv_status life(heap *h, const char *path, rv_error *err)
{
    static const rv_message message = {"user", "tea", NULL};
    static const rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    static const char *const stops[] = {"no such text"};
    rv_allocator hooks = {heap_alloc, heap_resize, heap_release, h};
    rv_runtime_options ro;
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    rv_session *s = NULL;
    rv_sampling sampling;
    rv_generate_options go;
    rv_answer *g = NULL;
    char *text = NULL, *json = NULL;
    int32_t *ids = NULL;
    size_t n, len;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 2;
    ro.allocator = &hooks;
    rv_status st = rv_runtime_new(&rt, &ro, err);
    hooks = (rv_allocator){0}; /* it was copied */
    if (!st) st = rv_model_open(&m, rt, path, NULL, err);
    if (!st) st = rv_model_describe(m, 1, &json, err);
    if (!st) st = rv_chat_render(m, &chat, &text, &len, err);
    if (!st) st = rv_tokenize(m, text, len, 0, &ids, &n, err);
    if (!st) st = rv_session_new(&s, m, NULL, err);
    sampling = (rv_sampling){.size = sizeof sampling};
    sampling.temperature = 1.5f;
    go = (rv_generate_options){.size = sizeof go};
    go.sampling = &sampling;
    go.max_tokens = 200;
    go.ignore_eos = 1;
    go.stop = stops;
    go.n_stop = 1;
    go.top_logprobs = 4;
    go.on_event = count_loop;
    go.ctx = h;
    if (!st) st = rv_session_generate(s, ids, n, &go, &g, err);
    rv_free(g);
    rv_free(text);
    rv_free(json);
    rv_free(ids);
    rv_session_free(&s);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return st;
}

static void hooks_see_every_block(void **state)
{
    (void)state;
    heap h = {.fail_at = -1};
    rv_error err = {0};
    assert_int_equal(life(&h, model_path, &err), RV_OK);
    assert_int_equal(atomic_load(&h.live), 0);
    assert_int_equal(atomic_load(&h.loop_calls), 0); /* none between two tokens */
    long calls = atomic_load(&h.calls);
    print_message("# %ld allocations in a life, none in 200 tokens\n", calls);
    assert_true(calls > 30);
    for (long n = 0; n < calls; n++) {
        heap f = {.fail_at = n};
        rv_status st = life(&f, model_path, &err);
        if (st != RV_E_NOMEM) fail_msg("allocation %ld refused: status %d %s", n, st, err.text);
        assert_int_equal(atomic_load(&f.live), 0);
    }
}

/* A runtime made inside a callback of one with hooks has nothing to do with that one's heap. */
static int make_another(void *ctx, const rv_event *ev)
{
    rv_runtime **another = ctx;
    rv_runtime_options ro;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    if (ev->kind == RV_EVENT_DONE) assert_ok(rv_runtime_new(another, &ro, err));
    return 0;
}

static void open_with_hooks(opened *o, const rv_allocator *hooks)
{
    rv_runtime_options ro;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 1;
    ro.allocator = hooks;
    assert_ok(rv_runtime_new(&o->rt, &ro, err));
    assert_ok(rv_model_open(&o->m, o->rt, model_path, NULL, err));
    assert_ok(rv_session_new(&o->s, o->m, NULL, err));
}

static void heaps_do_not_mix(void **state)
{
    (void)state;
    heap h = {.fail_at = -1};
    rv_allocator hooks = {heap_alloc, heap_resize, heap_release, &h};
    opened o;
    rv_runtime *another = NULL;
    rv_generate_options go = greedy(2);
    rv_answer *g = NULL;
    open_with_hooks(&o, &hooks);
    go.on_event = make_another;
    go.ctx = &another;
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    rv_free(g);
    close_all(&o);
    assert_int_equal(atomic_load(&h.live), 0);
    assert_non_null(another);
    rv_runtime_free(&another);
    assert_int_equal(atomic_load(&h.live), 0);
}

/* A cancel that comes while an answer is being prepared is not lost. */
typedef struct hasty {
    heap h;
    rv_session *cancel; /* at every allocation */
} hasty;

static void *alloc_and_cancel(void *ctx, size_t size)
{
    hasty *t = ctx;
    rv_session_cancel(t->cancel);
    return heap_alloc(&t->h, size);
}

static void cancel_while_starting(void **state)
{
    (void)state;
    hasty t = {.h = {.fail_at = -1}};
    rv_allocator hooks = {alloc_and_cancel, heap_resize, heap_release, &t};
    opened o;
    rv_generate_options go = greedy(20);
    rv_answer *g = NULL;
    open_with_hooks(&o, &hooks);
    t.cancel = o.s;
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err));
    t.cancel = NULL;
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_int_equal(g->n_ids, 0);
    rv_free(g);
    assert_ok(rv_session_generate(o.s, prompt, 5, &go, &g, err)); /* and is not kept */
    assert_int_equal(g->finish, RV_FINISH_LENGTH);
    rv_free(g);
    close_all(&o);
    assert_int_equal(atomic_load(&t.h.live), 0);
}

static void hooks_are_checked(void **state)
{
    (void)state;
    rv_allocator half = {.alloc = heap_alloc};
    rv_runtime_options ro;
    rv_runtime *rt;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.allocator = &half;
    assert_refused(RV_E_CONFIG, rv_runtime_new(&rt, &ro, err));
    assert_null(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents_first),
        cmocka_unit_test(use_after_free_is_a_status),
        cmocka_unit_test(user_data),
        cmocka_unit_test(two_threads_on_one_session),
        cmocka_unit_test(cancel_from_another_thread),
        cmocka_unit_test(callbacks),
        cmocka_unit_test(callbacks_free_what_they_serve),
        cmocka_unit_test(hooks_see_every_block),
        cmocka_unit_test(heaps_do_not_mix),
        cmocka_unit_test(cancel_while_starting),
        cmocka_unit_test(hooks_are_checked),
    };
    return cmocka_run_group_tests_name("lifetime", tests, NULL, NULL);
}
