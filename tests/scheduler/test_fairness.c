/* Who is served when: no tenant and no long prompt keeps the others waiting, priorities age, and
 * when pages run out the youngest wait, not the oldest. */
#include "scheduler/served.h"

#include <signal.h>
#include <sys/resource.h>

#include "api/service.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/thread.h"
#include "scheduler/internal.h"

static opened o;
static int32_t ids[250];

static int open_it(void **state)
{
    (void)state;
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 256);
    for (int i = 0; i < 250; i++) ids[i] = 3 + i * 7 % 250;
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

static rv_service *service_of(rv_service_options so)
{
    rv_service *svc;
    so.size = sizeof so;
    so.n_context = 256;
    so.no_thread = 1;
    so.no_cache = 1;
    if (!so.n_tokens) so.n_tokens = 4096;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static served submit(rv_service *svc, size_t n_prompt, int n_new, const char *tenant, int priority)
{
    served s = {0};
    rv_generate_options go = greedy(n_new);
    go.draft = RV_DRAFT_OFF; /* a token of a stream is a row of a step */
    rv_request r = {.size = sizeof r,
                    .ids = ids,
                    .n_ids = n_prompt,
                    .generate = &go,
                    .tenant = tenant,
                    .priority = priority};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    return s;
}

static int n_passes[2]; /* that are left of what a search takes, each longer than a step has */

static bool think(int *left)
{
    rvi_thread_sleep(0.006);
    return --*left > 0;
}

static bool think_first(void *ctx)
{
    (void)ctx;
    return think(&n_passes[0]);
}

static bool think_second(void *ctx)
{
    (void)ctx;
    return think(&n_passes[1]);
}

/* As a learner's requests, which take passes of a model before they begin. */
static served submit_thoughtful(rv_service *svc, bool (*prepare)(void *ctx))
{
    served s = {0};
    rvi_order *order;
    rv_generate_options go = greedy(2);
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = 2, .generate = &go};
    assert_ok(rvi_service_read(svc, &r, &order, err));
    order->hooks.prepare = prepare;
    assert_ok(rvi_scheduler_submit(svc->s, order, &s.request, err));
    return s;
}

static void step_and_drain(rv_service *svc, served *list, size_t n)
{
    size_t left;
    assert_ok(rv_service_step(svc, &left, err));
    served_drain(svc, 0, list, n);
}

/* Who has to be thought about lets those pass that need not be, of its tenant and of others, but
 * not into the last place; none that needs thought itself. */
static void quick_ones_pass(void **state)
{
    enum { FIRST, SECOND, QUICK, OTHER, STREAM, N };
    (void)state;
    for (int tight = 0; tight < 2; tight++) {
        served list[N] = {{0}};
        n_passes[0] = 10;
        n_passes[1] = 2;
        rv_service *svc = service_of((rv_service_options){.max_running = tight ? 2 : 8});
        list[STREAM] = submit(svc, 2, 40, NULL, 0);
        while (!list[STREAM].n) step_and_drain(svc, list, N);
        list[FIRST] = submit_thoughtful(svc, think_first);
        list[QUICK] = submit(svc, 2, 2, NULL, 0);
        list[SECOND] = submit_thoughtful(svc, think_second);
        list[OTHER] = submit(svc, 2, 2, "another", 0);
        for (int i = 0; i < 6; i++) step_and_drain(svc, list, N);
        assert_int_equal(n_passes[0], 4);
        assert_int_equal(n_passes[1], 2);
        assert_int_equal(list[QUICK].done, !tight);
        assert_int_equal(list[OTHER].done, !tight);
        while (!list[FIRST].n) step_and_drain(svc, list, N);
        assert_int_equal(n_passes[0], 0);
        if (tight) assert_false(list[QUICK].done || list[OTHER].done); /* it was first */
        served_run(svc, list, N);
        rv_service_free(&svc);
    }
}

/* Who was being thought about and lost its place to somebody more urgent waits like others: what
 * another tenant uses meanwhile is held against it. */
static void the_passed_wait_too(void **state)
{
    enum { FIRST, URGENT, STREAM, N, QUANTUM = 1, DEBT = 8 };
    (void)state;
    served list[N] = {{0}};
    n_passes[0] = 3;
    rv_service *svc = service_of((rv_service_options){.max_running = 2, .quantum = QUANTUM});
    list[STREAM] = submit(svc, 2, 80, "another", 0);
    while (!list[STREAM].n) step_and_drain(svc, list, N);
    list[FIRST] = submit_thoughtful(svc, think_first);
    step_and_drain(svc, list, N);
    assert_int_equal(n_passes[0], 2);
    list[URGENT] = submit(svc, 2, 60, NULL, 5);
    for (int i = 0; i < 40; i++) step_and_drain(svc, list, N);
    assert_int_equal(n_passes[0], 2); /* there is no place */
    const rvi_job *j = svc->s->running;
    while (strcmp(j->r->tenant, "another") != 0) j = j->next;
    assert_true(j->r->of->credit < -2 * DEBT * QUANTUM);
    served_run(svc, list, N);
    rv_service_free(&svc);
}

/* One tenant asks ten times as much as the other, and was there first. */
static void ten_to_one(void **state)
{
    enum { HEAVY = 40, LIGHT = 4, ALL = HEAVY + LIGHT };
    static served list[ALL];
    (void)state;
    rv_service *svc = service_of((rv_service_options){.max_running = 4});
    for (int i = 0; i < ALL; i++) list[i] = submit(svc, 40, 8, i < HEAVY ? "heavy" : "light", 0);
    int heavy_before = 0, n_light = 0;
    for (size_t left = 1; left;) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, ALL);
        int heavy = 0, light = 0;
        for (int i = 0; i < ALL; i++) *(i < HEAVY ? &heavy : &light) += list[i].done;
        if (light > n_light) heavy_before = heavy;
        n_light = light;
    }
    assert_int_equal(n_light, LIGHT);
    assert_true(heavy_before <= 12); /* as many as its own, and what ran when it came */
    rv_service_free(&svc);
}

/* Places of requests in the order in which they end. */
static void order_of(rv_service *svc, served *list, int n, int *place)
{
    int next = 0;
    for (int i = 0; i < n; i++) place[i] = -1;
    for (size_t left = 1; left;) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, (size_t)n);
        for (int i = 0; i < n; i++)
            if (list[i].done && place[i] < 0) place[i] = next++;
    }
}

static void priorities_age(void **state)
{
    (void)state;
    served list[3];
    int place[3];
    rv_service *svc = service_of((rv_service_options){.max_running = 1, .age_ms = 1e6});
    list[0] = submit(svc, 10, 4, "a", 0);
    list[1] = submit(svc, 10, 4, "a", -3);
    list[2] = submit(svc, 10, 4, "a", 2);
    order_of(svc, list, 3, place);
    assert_int_equal(place[2], 0);
    assert_int_equal(place[0], 1);
    assert_int_equal(place[1], 2);
    rv_service_free(&svc);
    /* where a level is worth a nanosecond, the first to come goes first */
    svc = service_of((rv_service_options){.max_running = 1, .age_ms = 1e-6});
    list[0] = submit(svc, 10, 4, "a", -3);
    list[1] = submit(svc, 10, 4, "a", 0);
    list[2] = submit(svc, 10, 4, "a", 2);
    order_of(svc, list, 3, place);
    for (int i = 0; i < 3; i++) assert_int_equal(place[i], i);
    rv_service_free(&svc);
}

/* While a long prompt is read in small pieces, streams get a token with every step, and a short
 * request that came after it has its first token before it. */
static void long_prompts_keep_nobody_waiting(void **state)
{
    enum { STREAMS = 3, LONG = STREAMS, SHORT, ALL };
    (void)state;
    served list[ALL] = {{0}};
    size_t left;
    int before[STREAMS];
    rv_service *svc =
        service_of((rv_service_options){.token_ms = 1e-3}); /* 16 rows, 13 of prompts */
    for (int i = 0; i < STREAMS; i++) list[i] = submit(svc, 5, 100, NULL, 0);
    while (!list[0].n || !list[1].n || !list[2].n) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, ALL);
    }
    list[LONG] = submit(svc, 200, 10, NULL, 0);
    list[SHORT] = submit(svc, 12, 4, NULL, 0);
    int steps = 0;
    for (; !list[LONG].n; steps++) {
        for (int i = 0; i < STREAMS; i++) before[i] = list[i].n;
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, ALL);
        for (int i = 0; i < STREAMS; i++) assert_int_equal(list[i].n, before[i] + 1);
        if (steps > 3) assert_true(list[SHORT].n > 0);
    }
    assert_in_range(steps, 15, 18);
    served_run(svc, list, ALL);
    rv_service_free(&svc);
}

/* Beside a stream, short prompts come one after the other and never cease; a long one that is there
 * too is read in a bounded number of steps: as much of each is its own as one of theirs. */
static void short_ones_do_not_stop_a_long_one(void **state)
{
    enum { ROWS = 256, LONG = 2700, SHORT = 100, BEFORE = 2, AT = 3, ALL };
    (void)state;
    static int32_t text[LONG];
    served list[ALL] = {{0}};
    size_t left;
    rv_service *svc;
    rv_service_options so = {.size = sizeof so,
                             .n_context = 4096,
                             .n_tokens = 8192,
                             .max_rows = ROWS,
                             .token_ms = 1e4, /* rows decide, no clock */
                             .no_thread = 1,
                             .no_cache = 1};
    for (int i = 0; i < LONG; i++) text[i] = 3 + i * 11 % 250;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    list[0] = submit(svc, 5, 150, NULL, 0);
    while (!list[0].n) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, ALL);
    }
    rv_generate_options go = greedy(1);
    rv_request r = {.size = sizeof r, .ids = text, .n_ids = LONG, .generate = &go};
    assert_ok(rv_service_submit(svc, &r, &list[AT].request, err));
    int steps = 0, n_short = 0;
    for (; !list[AT].n; steps++) {
        for (int i = 1; i <= BEFORE; i++)
            if (!steps || list[i].ended) {
                list[i] = submit(svc, SHORT, 1, NULL, 0);
                n_short++;
            }
        int before = list[0].n;
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, ALL);
        assert_true(list[0].n == before + 1 || list[0].ended);
        assert_true(steps < 150); /* 340 with 8 rows of each */
    }
    assert_true(n_short > steps); /* they were there all the time */
    served_run(svc, list, ALL);
    rv_service_free(&svc);
}

/* Room for a quarter of the need: the oldest is never stopped, all get what they get alone. */
static void the_youngest_wait(void **state)
{
    enum { N = 8 };
    (void)state;
    served list[N];
    static rv_service_metrics m;
    rv_service *svc = service_of((rv_service_options){.n_tokens = 32 * 13, .overcommit = 8});
    for (int i = 0; i < N; i++) list[i] = submit(svc, 60, 120, NULL, 0);
    served_run(svc, list, N);
    rv_answer *a;
    rv_generate_options go = greedy(120);
    assert_ok(rv_session_generate(o.s, ids, 60, &go, &a, err));
    for (int i = 0; i < N; i++) {
        assert_int_equal(list[i].n, 120);
        assert_memory_equal(list[i].ids, a->ids, 120 * sizeof *list[i].ids);
    }
    rv_free(a);
    served_metrics(svc, &m);
    assert_int_equal(list[0].last.n_preempted, 0);
    assert_true(m.n_preempted >= 3);
    assert_true(m.recomputed_rows > 0);
    assert_int_equal(m.pages_running, 0);
    rv_service_free(&svc);
}

/* Room is taken by pages, as texts grow: where room for the longest text of each would be enough
 * for four, thirty are served at once. */
static void pages_hold_more_than_contexts(void **state)
{
    enum { N = 40, CONTEXT = 256, TOKENS = 4 * CONTEXT };
    (void)state;
    served list[N];
    static rv_service_metrics m;
    size_t left;
    rv_service *svc =
        service_of((rv_service_options){.n_tokens = TOKENS, .max_running = N, .overcommit = 1});
    for (int i = 0; i < N; i++) list[i] = submit(svc, 12, 20, NULL, 0);
    for (int i = 0; i < 4; i++) assert_ok(rv_service_step(svc, &left, err));
    served_metrics(svc, &m);
    assert_in_range(m.n_running, 30, TOKENS / 32);
    served_run(svc, list, N);
    served_metrics(svc, &m);
    assert_int_equal(m.n_preempted, 0);
    rv_service_free(&svc);
}

/* ---- pressure ---- */

static void equal_to_alone(const served *list, int n)
{
    rv_answer *a;
    rv_generate_options go = greedy(120);
    assert_ok(rv_session_generate(o.s, ids, 60, &go, &a, err));
    for (int i = 0; i < n; i++) {
        if (list[i].last.status) continue;
        assert_int_equal(list[i].n, 120);
        assert_memory_equal(list[i].ids, a->ids, 120 * sizeof *list[i].ids);
    }
    rv_free(a);
}

static void crowd(rv_service_options so, rv_service_metrics *m)
{
    enum { N = 8 };
    served list[N];
    so.n_tokens = 32 * 13;
    so.overcommit = 8;
    rv_service *svc = service_of(so);
    for (int i = 0; i < N; i++) list[i] = submit(svc, 60, 120, NULL, 0);
    served_run(svc, list, N);
    for (int i = 0; i < N; i++) assert_int_equal(list[i].last.status, RV_OK);
    equal_to_alone(list, N);
    served_metrics(svc, m);
    assert_true(m->n_preempted >= 3);
    assert_int_equal(m->pages_running, 0);
    rv_service_free(&svc);
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    ++*(int *)ctx;
    return 0;
}

/* Those that lose their room find it on disk again; no file stays behind. */
static void spilled_and_read_again(void **state)
{
    (void)state;
    static rv_service_metrics m;
    rvi_buf dir = {0};
    int left = 0;
    assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
    crowd((rv_service_options){.pressure = RV_PRESSURE_SPILL, .spill = dir.data}, &m);
    assert_true(m.n_spilled >= 3 && m.spilled_rows > 0);
    assert_int_equal(m.n_spill_failed, 0);
    crowd((rv_service_options){.pressure = RV_PRESSURE_CHEAPER, .spill = dir.data}, &m);
    assert_true(m.n_spilled > 0); /* the first time at least, to learn what it costs */
    assert_ok(rvi_os_list(dir.data, count_name, &left, err));
    assert_int_equal(left, 0);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

static void count_said(void *ctx, rv_log_level level, const char *text)
{
    (void)level;
    *(int *)ctx += strstr(text, "computed again") != NULL;
}

/* A folder that cannot be written to any more: all is computed again, and counted; it is said
 * once. */
static void full_disk(void **state)
{
    (void)state;
    static rv_service_metrics m;
    struct rlimit before, none;
    rvi_buf dir = {0};
    int n_said = 0;
    rv_runtime_options ro = {
        .size = sizeof ro, .n_threads = 1, .log = count_said, .log_ctx = &n_said};
    const opened usual = o;
    o = (opened){0};
    assert_ok(rv_runtime_new(&o.rt, &ro, err));
    assert_ok(rv_model_open(&o.m, o.rt, "tests/gguf/llama-spm.gguf", NULL, err));
    rv_session_options so = {.size = sizeof so, .n_context = 256};
    assert_ok(rv_session_new(&o.s, o.m, &so, err));
    assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 1000;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    crowd((rv_service_options){.pressure = RV_PRESSURE_SPILL, .spill = dir.data}, &m);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, old);
    assert_true(m.n_spill_failed >= 3 && m.recomputed_rows > 0);
    assert_int_equal(m.n_spilled, 0);
    assert_int_equal(m.spilled_rows, 0);
    assert_int_equal(n_said, 1);
    close_all(&o);
    o = usual;
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* Who has begun is never stopped; who finds no room hears so at once, and may come again. */
static void rejected(void **state)
{
    enum { N = 8 };
    (void)state;
    static rv_service_metrics m;
    served list[N];
    rv_service *svc = service_of(
        (rv_service_options){.n_tokens = 32 * 13, .pressure = RV_PRESSURE_REJECT, .no_cache = 1});
    int n_busy = 0;
    for (int i = 0; i < N; i++) list[i] = submit(svc, 60, 120, NULL, 0);
    served_run(svc, list, N);
    equal_to_alone(list, N);
    for (int i = 0; i < N; i++) {
        n_busy += list[i].last.status == RV_E_BUSY;
        if (list[i].last.status) assert_non_null(strstr(list[i].error, "no room"));
    }
    served_metrics(svc, &m);
    assert_int_equal(n_busy, N - 2); /* two of six pages each */
    assert_int_equal(m.n_preempted, 0);
    assert_int_equal(m.n_waiting, 0);
    list[0] = submit(svc, 60, 120, NULL, 0);
    served_run(svc, list, 1);
    assert_int_equal(list[0].last.status, RV_OK);
    equal_to_alone(list, 1);
    rv_service_free(&svc);
}

/* Where none that has begun may lose its room, what choices copy of the page that they share counts
 * as well. */
static void none_that_has_begun(void **state)
{
    enum { N = 300, CHOICES = 4 };
    static rv_service_metrics m;
    (void)state;
    rvi_rng rng = {7};
    size_t left = 0;
    for (int kept = 0; kept < 2; kept++) {
        rv_service *svc;
        rv_service_options so = {.size = sizeof so,
                                 .n_tokens = 352,
                                 .n_context = 256,
                                 .max_running = 8,
                                 .no_thread = 1,
                                 .no_cache = !kept,
                                 .pressure = RV_PRESSURE_REJECT};
        assert_ok(rv_service_new(&svc, o.m, &so, err));
        for (int i = 0; i < N || left; i++) {
            rv_generate_options go = greedy(1 + (int)(rvi_rng_u64(&rng) % 30));
            rv_request r = {.size = sizeof r,
                            .ids = ids,
                            .n_ids = 1 + rvi_rng_u64(&rng) % 90,
                            .generate = &go,
                            .n = 1 + (int)(rvi_rng_u64(&rng) % CHOICES)};
            uint64_t id;
            rv_batch *b;
            if (i < N) assert_ok(rv_service_submit(svc, &r, &id, err));
            assert_ok(rv_service_step(svc, &left, err));
            assert_ok(rv_service_drain(svc, 0, &b, err));
            rv_free(b);
        }
        served_metrics(svc, &m);
        print_message("# %d preempted\n", (int)m.n_preempted);
        assert_int_equal(m.n_preempted, 0);
        rv_service_free(&svc);
    }
}

static void bad_pressure(void **state)
{
    (void)state;
    rv_service *svc;
    const rv_service_options bad[] = {{.pressure = RV_PRESSURE_SPILL},
                                      {.spill = "x"},
                                      {.pressure = (rv_pressure)9},
                                      {.pressure = RV_PRESSURE_REJECT, .spill = "x"}};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        rv_service_options so = bad[i];
        so.size = sizeof so;
        assert_int_equal(rv_service_new(&svc, o.m, &so, NULL), RV_E_CONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_to_one),
                                       cmocka_unit_test(quick_ones_pass),
                                       cmocka_unit_test(the_passed_wait_too),
                                       cmocka_unit_test(priorities_age),
                                       cmocka_unit_test(long_prompts_keep_nobody_waiting),
                                       cmocka_unit_test(short_ones_do_not_stop_a_long_one),
                                       cmocka_unit_test(the_youngest_wait),
                                       cmocka_unit_test(pages_hold_more_than_contexts),
                                       cmocka_unit_test(spilled_and_read_again),
                                       cmocka_unit_test(full_disk),
                                       cmocka_unit_test(rejected),
                                       cmocka_unit_test(none_that_has_begun),
                                       cmocka_unit_test(bad_pressure)};
    return cmocka_run_group_tests_name("fairness", tests, open_it, close_it);
}
