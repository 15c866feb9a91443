/* A runtime computes for one thread at a time: what a second one gets by rv_runtime_options.wait,
 * and what a callback gets that computes on the runtime which called it. Order of events decides
 * these tests, never the clock. Run it under TSan (make tsan). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/api.h"
#include "api/opened.h"
#include "base/os.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";
static const int32_t prompt[] = {1, 270, 280, 290, 300};
enum { N_PROMPT = 5, N_NEW = 12, LONG = 3600 * 1000 };

static rv_session *new_session(const rv_model *m)
{
    rv_session_options so = {.size = sizeof so, .n_context = 64};
    rv_session *s;
    assert_ok(rv_session_new(&s, m, &so, err));
    return s;
}

/* ---- one answer that waits inside its callback, one thread that comes meanwhile ---- */

typedef struct meeting {
    opened o;
    rv_session *other;
    int until_waiting; /* the answer goes on when the other thread waits; else when it has ended */
    atomic_int stage;  /* 1: the answer is under way; 2: the other thread has its result */
    rv_status got;
    rv_error err;
    rv_answer *answer;
    double seconds;
} meeting;

static int hold(void *ctx, const rv_event *ev)
{
    meeting *m = ctx;
    if (ev->kind != RV_EVENT_TOKEN || atomic_load(&m->stage)) return 0;
    atomic_store(&m->stage, 1);
    while (m->until_waiting ? !atomic_load(&m->o.rt->n_waiting) : atomic_load(&m->stage) == 1)
        rvi_thread_sleep(1e-4);
    return 0;
}

static void *come_meanwhile(void *arg)
{
    meeting *m = arg;
    rv_generate_options go = greedy(N_NEW);
    while (!atomic_load(&m->stage)) rvi_thread_sleep(1e-4);
    double start = rvi_os_seconds();
    m->got = rv_session_generate(m->other, prompt, N_PROMPT, &go, &m->answer, &m->err);
    m->seconds = rvi_os_seconds() - start;
    atomic_store(&m->stage, 2);
    return NULL;
}

static void meet(meeting *m, int wait, int until_waiting)
{
    rv_generate_options go = greedy(N_NEW);
    rv_answer *want, *held;
    pthread_t thread;
    *m = (meeting){.until_waiting = until_waiting};
    open_waiting(&m->o, model_path, 2, 64, wait);
    m->other = new_session(m->o.m);
    assert_ok(rv_session_generate(m->o.s, prompt, N_PROMPT, &go, &want, err));
    go.on_event = hold;
    go.ctx = m;
    assert_int_equal(pthread_create(&thread, NULL, come_meanwhile, m), 0);
    assert_ok(rv_session_generate(m->o.s, prompt, N_PROMPT, &go, &held, err));
    pthread_join(thread, NULL);
    assert_int_equal(held->n_ids, N_NEW); /* nobody disturbed it */
    assert_memory_equal(held->ids, want->ids, N_NEW * sizeof *want->ids);
    if (m->got == RV_OK) {
        assert_int_equal(m->answer->n_ids, N_NEW);
        assert_memory_equal(m->answer->ids, want->ids, N_NEW * sizeof *want->ids);
    } else {
        assert_null(m->answer);
    }
    assert_int_equal(atomic_load(&m->o.rt->n_waiting), 0);
    /* with nobody there any thread may compute again */
    rv_free(m->answer);
    go = greedy(N_NEW);
    assert_ok(rv_session_generate(m->other, prompt, N_PROMPT, &go, &m->answer, err));
    assert_memory_equal(m->answer->ids, want->ids, N_NEW * sizeof *want->ids);
    rv_free(m->answer);
    rv_free(want);
    rv_free(held);
    rv_session_free(&m->other);
    close_all(&m->o);
}

static void waits_for_its_turn(void **state)
{
    (void)state;
    static const int waits[] = {RV_WAIT_FOREVER, LONG};
    meeting m;
    for (size_t i = 0; i < RVI_COUNT(waits); i++) {
        meet(&m, waits[i], 1);
        assert_int_equal(m.got, RV_OK);
    }
}

static void gives_up_after_a_while(void **state)
{
    (void)state;
    meeting m;
    meet(&m, 20, 0);
    assert_int_equal(m.got, RV_E_BUSY);
    assert_int_equal(m.err.code, RV_E_BUSY);
    assert_non_null(strstr(m.err.text, "another thread"));
    assert_true(m.seconds >= 0.02); /* not sooner */
}

static void never_waits(void **state)
{
    (void)state;
    meeting m;
    meet(&m, RV_WAIT_NEVER, 0);
    assert_int_equal(m.got, RV_E_BUSY);
    assert_non_null(strstr(m.err.text, "another thread"));
}

/* ---- a callback ---- */

enum { N_CALLS = 11 };

typedef struct inside {
    rv_runtime *rt;
    rv_model *m;
    rv_engine *e;
    rv_session *other;
    rv_learner *l;
    int done;
    rv_status got[N_CALLS];
    rv_error err[N_CALLS];
} inside;

static int compute_inside(void *ctx, const rv_event *ev)
{
    static const rv_message message = {"user", "hello", NULL};
    static const rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    inside *in = ctx;
    rv_answer *a;
    rv_session *s;
    rv_row row = {.session = in->other, .token = 5};
    float x[1024];
    size_t n;
    if (ev->kind != RV_EVENT_TOKEN || in->done++) return 0;
    in->got[0] = rv_session_generate(ev->session, prompt, N_PROMPT, NULL, &a, &in->err[0]);
    in->got[1] = rv_session_generate(in->other, prompt, N_PROMPT, NULL, &a, &in->err[1]);
    in->got[2] = rv_session_chat(in->other, &chat, NULL, &a, &in->err[2]);
    in->got[3] = rv_session_sync(in->other, prompt, N_PROMPT, NULL, NULL, &in->err[3]);
    in->got[4] = rv_engine_step(in->e, &row, 1, &in->err[4]);
    in->got[5] = rv_engine_advance(in->e, &n, &in->err[5]);
    in->got[6] = rv_engine_embed(in->e, prompt, N_PROMPT, NULL, x, &in->err[6]);
    in->got[7] = rv_engine_score(in->e, prompt, N_PROMPT, NULL, x, &in->err[7]);
    in->got[8] = rv_session_fork(&s, in->other, &in->err[8]);
    in->got[9] = rv_session_save(in->other, "/tmp/ruvllm-never-written", &in->err[9]);
    in->got[10] = rv_learner_undo(in->l, NULL, &in->err[10]);
    return 0;
}

/* At once, whatever the runtime's option says: it would wait for itself. */
static void a_callback_does_not_wait_for_itself(void **state)
{
    (void)state;
    static const int waits[] = {RV_WAIT_FOREVER, LONG, RV_WAIT_NEVER};
    for (size_t i = 0; i < RVI_COUNT(waits); i++) {
        opened o;
        inside in = {0};
        rv_answer *a;
        open_waiting(&o, "tests/gguf/llama.gguf", 2, 64, waits[i]);
        rv_engine_options eo = {.size = sizeof eo, .n_tokens = 128};
        assert_ok(rv_engine_new(&in.e, o.m, &eo, err));
        rv_session_options so = {.size = sizeof so, .n_context = 64, .engine = in.e};
        assert_ok(rv_session_new(&in.other, o.m, &so, err));
        assert_ok(rv_learner_new(&in.l, o.m, NULL, err));
        rv_generate_options go = greedy(3);
        go.on_event = compute_inside;
        go.ctx = &in;
        assert_ok(rv_session_generate(o.s, (int32_t[]){5, 6, 7}, 3, &go, &a, err));
        assert_int_equal(a->n_ids, 3);
        rv_free(a);
        for (int k = 0; k < N_CALLS; k++) {
            if (in.got[k] != RV_E_BUSY)
                fail_msg("call %d: %s %s", k, rv_status_name(in.got[k]), in.err[k].text);
            assert_non_null(strstr(in.err[k].text, "callback"));
        }
        assert_int_equal(rv_session_tokens(in.other, NULL), 0);
        rv_learner_free(&in.l);
        rv_session_free(&in.other);
        rv_engine_free(&in.e);
        close_all(&o);
    }
}

typedef struct beside {
    rv_session *other; /* of another runtime */
    rv_answer *answer;
    rv_status got;
} beside;

static int compute_beside(void *ctx, const rv_event *ev)
{
    beside *b = ctx;
    rv_generate_options go = greedy(N_NEW);
    if (ev->kind == RV_EVENT_TOKEN && !b->answer)
        b->got = rv_session_generate(b->other, prompt, N_PROMPT, &go, &b->answer, NULL);
    return 0;
}

static void a_callback_may_compute_on_another_runtime(void **state)
{
    (void)state;
    opened o, p;
    beside b = {0};
    rv_answer *a;
    rv_generate_options go = greedy(N_NEW);
    open_all(&o, model_path, 1, 64);
    open_all(&p, model_path, 2, 64);
    b.other = p.s;
    go.on_event = compute_beside;
    go.ctx = &b;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(b.got, RV_OK);
    assert_memory_equal(a->ids, b.answer->ids, N_NEW * sizeof *a->ids);
    rv_free(b.answer);
    rv_free(a);
    close_all(&o);
    close_all(&p);
}

/* ---- many threads ---- */

enum { THREADS = 8, ROUNDS = 6 };

typedef struct worker {
    rv_session *s;
    int number;
    const int32_t *want; /* N_NEW ids */
    int n_right, n_failed;
} worker;

/* Its own prompt and seed. */
static rv_status ask(const worker *w, rv_session *s, rv_answer **a, rv_error *err)
{
    int32_t own[N_PROMPT];
    rv_sampling sampling = {
        .size = sizeof sampling, .seed = (uint64_t)w->number, .temperature = 1.2f};
    rv_generate_options go = {
        .size = sizeof go, .sampling = &sampling, .max_tokens = N_NEW, .ignore_eos = 1};
    memcpy(own, prompt, sizeof own);
    own[N_PROMPT - 1] += w->number;
    return rv_session_generate(s, own, N_PROMPT, &go, a, err);
}

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        rv_answer *a;
        if (ask(w, w->s, &a, NULL))
            w->n_failed++;
        else
            w->n_right += a->n_ids == N_NEW && !memcmp(a->ids, w->want, N_NEW * sizeof *a->ids);
        rv_free(a);
    }
    return NULL;
}

/* Everyone gets a turn in every round, and the bits it gets alone. */
static void many_threads(void **state)
{
    (void)state;
    opened o;
    worker w[THREADS];
    pthread_t threads[THREADS];
    int32_t want[THREADS][N_NEW];
    open_all(&o, model_path, 2, 64);
    for (int i = 0; i < THREADS; i++) {
        rv_answer *a;
        w[i] = (worker){.s = new_session(o.m), .number = i, .want = want[i]};
        assert_ok(ask(&w[i], o.s, &a, err));
        assert_int_equal(a->n_ids, N_NEW);
        memcpy(want[i], a->ids, sizeof want[i]);
        rv_free(a);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(w[i].n_failed, 0);
        assert_int_equal(w[i].n_right, ROUNDS);
        rv_session_free(&w[i].s);
    }
    assert_int_equal(atomic_load(&o.rt->n_waiting), 0);
    close_all(&o);
}

static void bad_values(void **state)
{
    (void)state;
    rv_runtime *rt;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1, .wait = -2};
    rv_error e = {0};
    assert_int_equal(rv_runtime_new(&rt, &ro, &e), RV_E_CONFIG);
    assert_null(rt);
    assert_non_null(strstr(e.text, "wait"));
    assert_non_null(strstr(e.text, "-2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_its_turn),
        cmocka_unit_test(gives_up_after_a_while),
        cmocka_unit_test(never_waits),
        cmocka_unit_test(a_callback_does_not_wait_for_itself),
        cmocka_unit_test(a_callback_may_compute_on_another_runtime),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(bad_values),
    };
    return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
