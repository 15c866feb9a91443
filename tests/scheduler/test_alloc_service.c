/* Allocations that fail: a service is not made, a request is refused or ends with an error, and all
 * others get what they get alone. Nothing is lost. */
#include "scheduler/served.h"

#include "base/mem.h"
#include "base/os.h"
#include "harness/fail_alloc.h"

enum { N_PROMPT = 70, N_NEW = 6, N_LIST = 4 };

static opened o;
static int32_t ids[N_PROMPT];
static int32_t alone[N_NEW];
static float embedding[SERVED_VALUES];

static int open_it(void **state)
{
    (void)state;
    rv_answer *a;
    rv_generate_options go = greedy(N_NEW);
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 256);
    for (int i = 0; i < N_PROMPT; i++) ids[i] = 3 + i * 7 % 250;
    assert_ok(rv_session_generate(o.s, ids, N_PROMPT, &go, &a, err));
    memcpy(alone, a->ids, sizeof alone);
    rv_free(a);
    assert_ok(rv_engine_embed(rv_session_engine(o.s), ids, N_PROMPT, NULL, embedding, err));
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

static rv_status make(rv_service **svc, rv_error *err)
{
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 12,
                             .n_context = 128,
                             .max_running = 3,
                             .overcommit = 4,
                             .no_thread = 1};
    return rv_service_new(svc, o.m, &so, err);
}

static void making_one(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        rv_service *svc;
        fail_alloc_after(n);
        rv_status st = make(&svc, NULL);
        bool done = !fail_alloc_off();
        if (done) assert_int_equal(st, RV_OK);
        if (!done && st) assert_int_equal(st, RV_E_NOMEM);
        rv_service_free(&svc);
        if (done) break;
    }
}

static rv_status submit(rv_service *svc, int k, served *s)
{
    static const char *const stop[] = {"never said", "nor this"};
    static const rv_logit_bias bias[] = {{5, 0}, {6, 0}};
    rv_generate_options go = greedy(N_NEW);
    rv_sampling sampling = *go.sampling;
    rv_message hi = {.role = "user", .content = "hello"};
    rv_chat chat = {.size = sizeof chat, .messages = &hi, .n_messages = 1};
    rv_request r = {
        .size = sizeof r, .ids = ids, .n_ids = N_PROMPT, .generate = &go, .tenant = "t"};
    go.stop = stop;
    go.n_stop = 2;
    go.logprobs = 1;
    sampling.logit_bias = bias;
    sampling.n_logit_bias = 2;
    go.sampling = &sampling;
    *s = (served){0};
    if (k == 1) r.n = 2;
    if (k == 2) r.kind = RV_REQUEST_EMBED;
    if (k == 3) {
        r.ids = NULL;
        r.chat = &chat;
    }
    return rv_service_submit(svc, &r, &s->request, NULL);
}

static void check(const served *s, int k)
{
    assert_true(s->done && s->ended);
    if (s->last.finish == RV_FINISH_ERROR) {
        assert_int_equal(s->last.status, RV_E_NOMEM);
        assert_true(strlen(s->error) > 5);
    } else if (k == 2) {
        assert_memory_equal(s->values, embedding, s->n_values * sizeof *embedding);
        assert_true(s->n_values > 0);
    } else if (k < 2) {
        assert_int_equal(s->n, N_NEW);
        assert_memory_equal(s->ids, alone, sizeof alone);
    }
}

/* Every allocation of the lives of four requests fails once. */
static void serving(void **state)
{
    (void)state;
    int n_failed = 0, n_refused = 0;
    for (long n = 0;; n++) {
        rv_service *svc;
        served list[N_LIST];
        bool taken[N_LIST];
        assert_ok(make(&svc, err));
        fail_alloc_once(n);
        for (int k = 0; k < N_LIST; k++) {
            taken[k] = submit(svc, k, &list[k]) == RV_OK;
            n_refused += !taken[k];
        }
        for (size_t left = 1, steps = 0; left; steps++) {
            rv_error err = {0};
            rv_status st = rv_service_step(svc, &left, &err);
            if (st) fail_msg("%s", err.text);
            assert_true(steps < 1000);
        }
        bool done = !fail_alloc_off();
        size_t left;
        assert_ok(rv_service_step(svc, &left, err)); /* what could not be handed over */
        served_drain(svc, 0, list, N_LIST);
        for (int k = 0; k < N_LIST; k++) {
            if (taken[k]) check(&list[k], k);
            n_failed += taken[k] && list[k].last.finish == RV_FINISH_ERROR;
        }
        rv_service_free(&svc);
        if (done) break;
    }
    print_message("# %d requests refused, %d failed\n", n_refused, n_failed);
    assert_true(n_refused > 10 && n_failed > 10);
}

/* A saved session by what it is about, read for that or not. */
static void finding(void **state)
{
    (void)state;
    rv_model *embedder;
    rv_service *svc;
    rvi_buf dir = {0};
    served s = {0};
    int n_failed = 0;
    assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
    assert_ok(rv_model_open(&embedder, o.rt, "tests/gguf/bert.gguf", NULL, err));
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 12,
                             .n_context = 128,
                             .no_thread = 1,
                             .sessions = dir.data,
                             .embedder = embedder};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    rv_generate_options go = greedy(N_NEW);
    rv_request r = {
        .size = sizeof r, .ids = ids, .n_ids = N_PROMPT, .generate = &go, .session = "one"};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    served_run(svc, &s, 1);
    for (int round = 0; round < 2; round++)
        for (long n = 0;; n++) {
            rv_found_session *found;
            size_t count;
            fail_alloc_after(n);
            rv_status st = rv_service_find(svc, NULL, "a text", 1, &found, &count, NULL);
            bool done = !fail_alloc_off();
            if (done) assert_int_equal(count, 1);
            if (done) assert_int_equal(st, RV_OK);
            if (st) assert_int_equal(st, RV_E_NOMEM);
            n_failed += st != RV_OK;
            rv_free(found);
            if (done) break;
        }
    assert_true(n_failed > 10);
    rv_service_free(&svc);
    rv_model_close(&embedder);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* A turn of a session, and its file: every allocation fails once. What was not saved is as it was
 * before. */
static void saving(void **state)
{
    (void)state;
    rvi_buf dir = {0};
    int n_refused = 0, n_failed = 0, n_unsaved = 0;
    assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
    for (long n = 0;; n++) {
        rv_service *svc;
        served s = {0};
        rv_service_options so = {.size = sizeof so,
                                 .n_tokens = 32 * 12,
                                 .n_context = 128,
                                 .no_thread = 1,
                                 .sessions = dir.data};
        rv_generate_options go = greedy(N_NEW);
        rv_request r = {
            .size = sizeof r, .ids = ids, .n_ids = N_PROMPT, .generate = &go, .session = "one"};
        assert_ok(rv_service_new(&svc, o.m, &so, err));
        fail_alloc_once(n);
        rv_status st = rv_service_submit(svc, &r, &s.request, NULL);
        if (st) assert_int_equal(st, RV_E_NOMEM);
        for (size_t left = !st; left;) assert_ok(rv_service_step(svc, &left, err));
        bool done = !fail_alloc_off();
        size_t left;
        assert_ok(rv_service_step(svc, &left, err)); /* what could not be handed over */
        if (!st) served_drain(svc, 0, &s, 1);
        n_refused += st != RV_OK;
        bool failed = !st && s.last.finish == RV_FINISH_ERROR;
        n_failed += failed;
        if (!st && !failed && !s.last.saved) {
            assert_int_equal(s.last.session_status, RV_E_NOMEM);
            n_unsaved++;
        }
        /* or it is, and nobody knows for how long */
        bool saved = !st && (s.last.saved || strstr(s.error, "goes on from here"));
        rv_status gone = rv_service_forget(svc, "", "one", NULL);
        assert_int_equal(gone, saved ? RV_OK : RV_E_NOT_FOUND);
        rv_service_free(&svc);
        if (done) assert_true(saved);
        if (done) break;
    }
    print_message("# %d turns refused, %d failed, %d not saved\n", n_refused, n_failed, n_unsaved);
    assert_true(n_refused > 5 && n_failed > 5 && n_unsaved > 2);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* While streams go on, a step allocates no more than the batch of events that it hands over,
 * however many streams there are. */
static void steps_allocate_next_to_nothing(void **state)
{
    enum { STREAMS = 8, NEW = 120, BEFORE = 20, STEPS = 64 };
    (void)state;
    for (int n = 1; n <= STREAMS; n *= STREAMS) {
        rv_service *svc;
        uint64_t id;
        size_t left;
        rv_batch *b;
        rv_generate_options go = greedy(NEW);
        go.draft = RV_DRAFT_OFF;
        rv_service_options so = {
            .size = sizeof so, .n_tokens = 4096, .n_context = 256, .no_thread = 1};
        assert_ok(rv_service_new(&svc, o.m, &so, err));
        for (int i = 0; i < n; i++) {
            rv_request r = {.size = sizeof r, .ids = ids, .n_ids = 8, .generate = &go};
            assert_ok(rv_service_submit(svc, &r, &id, err));
        }
        long n_calls = 0;
        for (int i = 0; i < BEFORE + STEPS; i++) {
            fail_alloc_arm(-1, -1);
            assert_ok(rv_service_step(svc, &left, err));
            if (i >= BEFORE) n_calls += fail_alloc_count();
            assert_ok(rv_service_drain(svc, 0, &b, err));
            rv_free(b);
        }
        assert_int_equal(left, n);
        if (n_calls > 2 * STEPS) fail_msg("%ld allocations in %d steps of %d", n_calls, STEPS, n);
        rv_service_free(&svc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(making_one), cmocka_unit_test(serving),
                                       cmocka_unit_test(finding), cmocka_unit_test(saving),
                                       cmocka_unit_test(steps_allocate_next_to_nothing)};
    return cmocka_run_group_tests_name("allocations of a service", tests, open_it, close_it);
}
