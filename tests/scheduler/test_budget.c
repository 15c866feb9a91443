/* One budget for pages, adapters and models: it is never exceeded, what is merely kept makes room
 * for what is needed, what is in use stays, what cannot fit is refused, and texts are those that
 * requests get alone. */
#include "scheduler/served.h"

#include "base/os.h"
#include "base/thread.h"
#include "kv/quota.h"

enum { N = 12, N_PROMPT = 40, N_NEW = 20, FLOOR = 64 / 32 + 3, N_NAMES = 6 };

static opened o;
static int32_t prompts[N][N_PROMPT];
static rv_answer *alone[N];

static int open_it(void **state)
{
    (void)state;
    open_all(&o, "tests/golden/llama", 1, 64);
    rv_generate_options go = greedy(N_NEW);
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < N_PROMPT; i++) prompts[k][i] = (i * 7 + k * 13 + i * k) % 90;
        assert_ok(rv_session_generate(o.s, prompts[k], N_PROMPT, &go, &alone[k], err));
    }
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    for (int k = 0; k < N; k++) rv_free(alone[k]);
    close_all(&o);
    return 0;
}

static rv_service *service(bool threaded)
{
    rv_service *svc;
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 100,
                             .n_context = 64,
                             .overcommit = 4,
                             .no_thread = !threaded};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static rv_budget_use look(void)
{
    rv_budget_use u = {.size = sizeof u};
    assert_ok(rv_runtime_get_budget(o.rt, &u, err));
    assert_int_equal(u.all.used, u.weights.used + u.adapters.used + u.scratch.used + u.kv.used);
    assert_true(u.kv.kept <= u.kv.used && u.adapters.kept <= u.adapters.used);
    return u;
}

static void set(rv_budget b)
{
    b.size = sizeof b;
    assert_ok(rv_runtime_set_budget(o.rt, &b, err));
}

static void submit(rv_service *svc, int k, served *s)
{
    rv_generate_options go = greedy(N_NEW);
    go.draft = RV_DRAFT_OFF;
    rv_request r = {
        .size = sizeof r, .ids = prompts[k], .n_ids = N_PROMPT, .generate = &go, .user = s};
    *s = (served){0};
    assert_ok(rv_service_submit(svc, &r, &s->request, err));
}

static void check(const served *list)
{
    for (int k = 0; k < N; k++) {
        assert_true(list[k].done && !list[k].last.status);
        assert_int_equal(list[k].n, alone[k]->n_ids);
        assert_memory_equal(list[k].ids, alone[k]->ids, (size_t)list[k].n * sizeof *list[k].ids);
    }
}

/* What a new limit takes from services, they give up in a step. */
static void step_both(rv_service *a, rv_service *b)
{
    size_t left;
    assert_ok(rv_service_step(a, &left, err));
    assert_ok(rv_service_step(b, &left, err));
    assert_true(look().kv.used <= look().kv.most);
}

/* All of them in one service, while another has its steps too; how many steps. */
static int run(rv_service *svc, rv_service *other)
{
    static served list[N];
    size_t left = 1, rest;
    int steps = 0;
    for (int k = 0; k < N; k++) submit(svc, k, &list[k]);
    for (; left; steps++) {
        assert_true(steps < 10000);
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, N);
        rv_budget_use u = look();
        if (u.kv.most) assert_true(u.kv.used <= u.kv.most);
        if (u.all.most) assert_true(u.all.used <= u.all.most);
        if (other) assert_ok(rv_service_step(other, &rest, err));
    }
    check(list);
    return steps;
}

static void pages_are_shared(void **state)
{
    (void)state;
    static rv_service_metrics m;
    rv_service *a = service(false), *b = service(false);
    uint64_t page = look().kv.used / (2 * FLOOR);
    assert_true(page > 0);
    (void)run(a, b); /* without a limit */
    assert_int_equal(look().n_asked, 0);
    uint64_t free_use = look().kv.used;
    assert_true(free_use > (2 * FLOOR + N) * page);
    set((rv_budget){.kv = (2 * FLOOR + 14) * page});
    step_both(a, b);
    int n_preempted = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t before = look().n_asked;
        int steps = run(i % 2 ? a : b, i % 2 ? b : a);
        uint64_t asked = look().n_asked - before;
        assert_true(asked > 0 && asked < (uint64_t)steps);
        served_metrics(i % 2 ? a : b, &m);
        n_preempted += (int)m.n_preempted;
        assert_int_equal(m.n_failed + m.pages_running, 0);
    }
    assert_true(n_preempted > 0);
    /* room for the longest request each, and nothing more */
    set((rv_budget){.kv = 2 * FLOOR * page});
    step_both(a, b);
    (void)run(a, b);
    (void)run(b, a);
    assert_int_equal(look().kv.used, 2 * FLOOR * page);
    assert_int_equal(look().kv.kept, 0); /* giving it up would make room for nobody else */
    rv_service_free(&a);
    assert_int_equal(look().kv.used, FLOOR * page);
    rv_service *c = NULL;
    rv_service_options so = {.size = sizeof so, .n_context = 1024, .n_tokens = 2048};
    assert_refused(RV_E_NOMEM, rv_service_new(&c, o.m, &so, err));
    assert_null(c);
    rv_service_free(&b);
    assert_int_equal(look().kv.used, 0);
    set((rv_budget){0});
}

/* Choices that share a long prompt hold its pages in 16, 8 and 4 bits at once. With no more than
 * the service has in any case they wait for each other, and end. */
static void three_forms_fit(void **state)
{
    enum { CHOICES = 3, PROMPT = 490 };
    (void)state;
    opened other;
    rv_service *svc;
    static served list[CHOICES];
    static int32_t ids[PROMPT];
    open_all(&other, "tests/gguf/llama-spm.gguf", 1, 512);
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 60,
                             .n_context = 512,
                             .kv_type = RV_KV_TIERED,
                             .kv_warm = 32,
                             .token_ms = 60000,
                             .no_thread = 1};
    assert_ok(rv_service_new(&svc, other.m, &so, err));
    rv_budget_use u = {.size = sizeof u};
    assert_ok(rv_runtime_get_budget(other.rt, &u, err));
    rv_budget b = {.size = sizeof b, .kv = u.kv.used};
    assert_ok(rv_runtime_set_budget(other.rt, &b, err));
    rv_generate_options go = greedy(N_NEW);
    for (int i = 0; i < PROMPT; i++) ids[i] = 3 + i * 7 % 250;
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = PROMPT, .generate = &go, .n = CHOICES};
    for (int k = 0; k < CHOICES; k++) list[k] = (served){.choice = k};
    assert_ok(rv_service_submit(svc, &r, &list[0].request, err));
    for (int k = 1; k < CHOICES; k++) list[k].request = list[0].request;
    size_t left = 1;
    for (int steps = 0; left; steps++) {
        assert_true(steps < 1000);
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, CHOICES);
        assert_ok(rv_runtime_get_budget(other.rt, &u, err));
        assert_true(u.kv.used <= u.kv.most);
    }
    for (int k = 0; k < CHOICES; k++) { /* greedy: the same text, whoever waited */
        assert_int_equal(list[k].last.status, RV_OK);
        assert_int_equal(list[k].n, N_NEW);
        assert_memory_equal(list[k].ids, list[0].ids, N_NEW * sizeof *list[0].ids);
    }
    rv_service_free(&svc);
    close_all(&other);
}

/* Once the high mark is reached, the low one is aimed at. */
static void two_marks(void **state)
{
    (void)state;
    rv_service *a = service(false), *b = service(false);
    uint64_t page = look().kv.used / (2 * FLOOR);
    (void)run(a, b);
    uint64_t most = look().kv.used, kept = look().kv.kept;
    assert_true(kept >= (N - 2) * page);
    set((rv_budget){.kv = most, .low = 0.5});
    served s[3];
    size_t left = 1;
    for (int k = 0; k < 3; k++) submit(b, k, &s[k]);
    uint64_t least = most;
    while (left) {
        size_t rest;
        assert_ok(rv_service_step(b, &left, err));
        served_drain(b, 0, s, 3);
        assert_ok(rv_service_step(a, &rest, err));
        uint64_t used = look().kv.used;
        assert_true(used <= most);
        least = used < least ? used : least;
    }
    assert_true(least <= most / 2 + 3 * page || look().kv.kept < page);
    assert_true(look().n_asked > 0);
    rv_service_free(&a);
    rv_service_free(&b);
    set((rv_budget){0});
}

static void use_all(rv_registry *r, rv_adapter_set **sets)
{
    for (int i = 0; i < N_NAMES; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        assert_ok(rv_registry_get(r, name, 1, &sets[i], NULL, err));
    }
}

static void free_all(rv_adapter_set **sets)
{
    for (int i = 0; i < N_NAMES; i++) rv_adapter_set_free(&sets[i]);
}

static rv_registry *registry(void)
{
    rv_registry *r;
    assert_ok(rv_registry_new(&r, o.m, NULL, err));
    for (int i = 0; i < N_NAMES; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        assert_ok(rv_registry_put(r, name, "tests/golden/llama/lora", 0, NULL, err));
    }
    return r;
}

static void adapters_make_room_for_pages(void **state)
{
    (void)state;
    rv_adapter_set *sets[N_NAMES];
    rv_registry *r = registry();
    rv_service *a = service(false);
    use_all(r, sets);
    uint64_t one = look().adapters.used / N_NAMES;
    assert_int_equal(look().adapters.kept, 0); /* all in use */
    set((rv_budget){.bytes = look().all.used});
    (void)run(a, NULL); /* with the room for one request */
    assert_int_equal(look().adapters.used, N_NAMES * one);
    free_all(sets);
    assert_int_equal(look().adapters.kept, N_NAMES * one);
    (void)run(a, NULL);
    assert_true(look().adapters.used < N_NAMES * one);
    rv_service_free(&a);
    rv_registry_free(&r);
    set((rv_budget){0});
}

static void pages_make_room_for_adapters(void **state)
{
    (void)state;
    rv_adapter_set *sets[N_NAMES] = {NULL}, *more = NULL;
    rv_registry *r = registry();
    rv_service *a = service(true);
    static served list[N];
    for (int k = 0; k < N; k++) submit(a, k, &list[k]);
    for (bool done = false; !done;) {
        served_drain(a, 600, list, N);
        done = true;
        for (int k = 0; k < N; k++) done = done && list[k].ended;
    }
    check(list);
    while (!look().kv.kept) rvi_thread_sleep(1e-3);
    uint64_t kept = look().kv.kept;
    set((rv_budget){.bytes = look().all.used + 1, .low = 1});
    use_all(r, sets); /* the service's thread gives up what it keeps */
    assert_true(look().kv.kept < kept);
    assert_true(look().all.used <= look().all.most);
    /* all are in use now: a limit of the class refuses another, until one is given back */
    uint64_t one = look().adapters.used / N_NAMES;
    set((rv_budget){.adapters = look().adapters.used + one / 2 + 8192});
    assert_ok(rv_registry_put(r, "b", "tests/golden/llama/lora", 0, NULL, err));
    uint64_t refused = look().n_refused;
    assert_refused(RV_E_NOMEM, rv_registry_get(r, "b", 1, &more, NULL, err));
    assert_int_equal(look().n_refused, refused + 1);
    assert_null(more);
    rv_adapter_set_free(&sets[2]);
    assert_ok(rv_registry_get(r, "b", 1, &more, NULL, err));
    assert_true(look().adapters.used <= look().adapters.most);
    rv_adapter_set_free(&more);
    free_all(sets);
    rv_service_free(&a);
    rv_registry_free(&r);
    set((rv_budget){0});
}

static void models_make_room(void **state)
{
    (void)state;
    rv_models *ms;
    rv_models_options mo = {.size = sizeof mo};
    rv_service_options so = {.size = sizeof so, .n_tokens = 512, .n_context = 128};
    rv_service *svc;
    rv_listed_model *list;
    size_t n;
    uint64_t before = look().weights.used + look().scratch.used, alone_bytes = 0;
    assert_ok(rv_models_new(&ms, o.rt, &mo, err));
    assert_ok(rv_models_add(ms, "one", "tests/golden/qwen2", NULL, &so, err));
    assert_ok(rv_models_add(ms, "two", "tests/gguf/llama-spm.gguf", NULL, &so, err));
    static const char *const names[] = {"one", "two"};
    for (int i = 0; i < 2; i++) { /* each by itself */
        assert_ok(rv_models_hold(ms, names[i], 600, &svc, err));
        uint64_t used = look().all.used;
        alone_bytes = used > alone_bytes ? used : alone_bytes;
        rv_models_give_back(ms, &svc);
        assert_ok(rv_models_unload(ms, names[i], err));
        while (look().kv.used) rvi_thread_sleep(1e-3);
    }
    set((rv_budget){.bytes = alone_bytes + alone_bytes / 8});
    for (int i = 0; i < 4; i++) {
        assert_ok(rv_models_hold(ms, names[i % 2], 600, &svc, err));
        assert_true(look().all.used <= look().all.most);
        rv_models_give_back(ms, &svc);
    }
    assert_ok(rv_models_list(ms, &list, &n, err));
    assert_int_equal(list[0].n_loads, 3); /* one went for the other each time */
    assert_int_equal(list[1].n_loads, 3);
    rv_free(list);
    assert_ok(rv_models_unload(ms, names[1], err));
    while (look().kv.used) rvi_thread_sleep(1e-3);
    set((rv_budget){.bytes = before + 100});
    assert_refused(RV_E_NOMEM, rv_models_hold(ms, names[0], 600, &svc, err));
    set((rv_budget){0});
    assert_ok(rv_models_hold(ms, names[0], 600, &svc, err));
    rv_models_give_back(ms, &svc);
    rv_models_free(&ms);
    rv_budget bad = {.size = sizeof bad, .low = 1.5};
    assert_refused(RV_E_CONFIG, rv_runtime_set_budget(o.rt, &bad, err));
    assert_refused(RV_E_INVALID, rv_runtime_set_budget(NULL, NULL, err));
    rv_budget_use none = {0};
    assert_refused(RV_E_CONFIG, rv_runtime_get_budget(o.rt, &none, err));
}

/* Each of two jobs has what was promised to it, whatever the other one takes beside its own. */
static void jobs_have_their_own(void **state)
{
    (void)state;
    enum { MOST = 1000, LEAST = 100 };
    rvi_backend_memory counted = {0};
    atomic_size_t adapters = 0;
    rvi_quota q;
    rvi_quota_job first = {0}, second = {0}, third = {0};
    assert_ok(rvi_quota_init(&q, &counted, &adapters, err));
    rvi_quota_limit(&q, &(rvi_quota_limits){.most = MOST, .low = 1});
    assert_ok(rvi_quota_begin_job(&q, &first, LEAST, NULL, "training", err));
    assert_int_equal(first.memory.spare, (MOST - LEAST) / 2 + 1);
    atomic_store(&first.memory.scratch, 2 * LEAST);
    assert_ok(rvi_quota_begin_job(&q, &second, LEAST, NULL, "training", err));
    assert_int_equal(rvi_quota_room(&q, RVI_QUOTA_SCRATCH), MOST - 3 * LEAST);
    /* both take all that they may: it is not more than there is */
    assert_true(first.memory.spare + second.memory.spare <= MOST - 2 * LEAST);
    atomic_store(&second.memory.scratch, LEAST / 2);
    assert_int_equal(rvi_quota_room(&q, RVI_QUOTA_SCRATCH), MOST - 3 * LEAST);
    assert_int_equal(rvi_quota_in_jobs(&q), 2 * LEAST + LEAST / 2);
    assert_refused(RV_E_NOMEM, rvi_quota_begin_job(&q, &third, MOST, NULL, "training", err));
    rvi_quota_end_job(&q, &third);
    rvi_quota_end_job(&q, &first);
    assert_int_equal(rvi_quota_room(&q, RVI_QUOTA_SCRATCH), MOST - LEAST);
    rvi_quota_end_job(&q, &second);
    assert_int_equal(rvi_quota_room(&q, RVI_QUOTA_SCRATCH), MOST);
    rvi_quota_deinit(&q);
}

/* Somebody who promises, and has not been asked more often than this. */
static uint64_t promise(void *ctx, uint64_t bytes)
{
    int *n_left = ctx;
    if (!bytes) return 0;
    if (--*n_left < 0) fail_msg("waits for what is not wanted any more");
    return bytes;
}

/* A learner that is freed does not wait for memory. */
static void nobody_waits_who_is_stopped(void **state)
{
    (void)state;
    rvi_backend_memory counted = {0};
    atomic_size_t adapters = 0;
    rvi_quota q;
    rvi_quota_job job = {0};
    atomic_bool stop = true;
    int n_left = 2;
    rvi_quota_member member = {.class = RVI_QUOTA_KV, .give = promise, .ctx = &n_left};
    assert_ok(rvi_quota_init(&q, &counted, &adapters, err));
    rvi_quota_limit(&q, &(rvi_quota_limits){.most = 1000, .low = 1});
    assert_true(rvi_quota_take(&q, RVI_QUOTA_KV, 900));
    rvi_quota_join(&q, &member);
    assert_refused(RV_E_NOMEM, rvi_quota_begin_job(&q, &job, 200, &stop, "training", err));
    assert_ok(rvi_quota_begin_job(&q, &job, 100, &stop, "training", err)); /* it is there */
    rvi_quota_end_job(&q, &job);
    rvi_quota_leave(&q, &member);
    rvi_quota_deinit(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_shared),
        cmocka_unit_test(three_forms_fit),
        cmocka_unit_test(two_marks),
        cmocka_unit_test(adapters_make_room_for_pages),
        cmocka_unit_test(pages_make_room_for_adapters),
        cmocka_unit_test(models_make_room),
        cmocka_unit_test(jobs_have_their_own),
        cmocka_unit_test(nobody_waits_who_is_stopped),
    };
    return cmocka_run_group_tests_name("budget", tests, open_it, close_it);
}
