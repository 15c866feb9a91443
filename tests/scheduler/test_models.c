/* Several models in one process: each is loaded when somebody asks for it, the least recently used
 * goes when there is no room, whoever holds one keeps it, and all answers equal those alone. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"
#include "base/thread.h"
#include "scheduler/served.h"

enum { N_MODELS = 3, N_NEW = 12, N_PROMPT = 40, N_ROUNDS = 12 };

static const char *const names[N_MODELS] = {"ann", "bob", "cid"};
static const char *const paths[N_MODELS] = {"tests/gguf/llama-spm.gguf", "tests/golden/llama",
                                            "tests/golden/qwen2"};
static rv_runtime *rt;
static rv_answer *alone[N_MODELS];
static int32_t prompt[N_PROMPT];

static rv_service_options service_options(void)
{
    return (rv_service_options){
        .size = sizeof(rv_service_options), .n_tokens = 512, .n_context = 128, .max_running = 8};
}

static int open_it(void **state)
{
    (void)state;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 2};
    rv_generate_options go = greedy(N_NEW);
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 3 + i * 7 % 90;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    for (int k = 0; k < N_MODELS; k++) {
        rv_model *m;
        rv_session *s;
        rv_session_options so = {.size = sizeof so, .n_context = 128};
        assert_ok(rv_model_open(&m, rt, paths[k], NULL, err));
        assert_ok(rv_session_new(&s, m, &so, err));
        assert_ok(rv_session_generate(s, prompt, N_PROMPT, &go, &alone[k], err));
        rv_session_free(&s);
        rv_model_close(&m);
    }
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    for (int k = 0; k < N_MODELS; k++) rv_free(alone[k]);
    rv_runtime_free(&rt);
    return 0;
}

static rv_models *models_of(rv_models_options o)
{
    rv_models *ms;
    rv_service_options so = service_options();
    o.size = sizeof o;
    assert_ok(rv_models_new(&ms, rt, &o, err));
    for (int k = 0; k < N_MODELS; k++)
        assert_ok(rv_models_add(ms, names[k], paths[k], NULL, &so, err));
    return ms;
}

static rv_listed_model look(rv_models *ms, int k)
{
    rv_listed_model *list, one;
    size_t n;
    assert_ok(rv_models_list(ms, &list, &n, err));
    assert_int_equal(n, N_MODELS);
    assert_string_equal(list[k].name, names[k]);
    assert_string_equal(list[k].path, paths[k]);
    one = list[k];
    rv_free(list);
    return one;
}

/* Unloading is done by another thread. */
static void wait_until(rv_models *ms, int k, rv_model_state state)
{
    while (look(ms, k).state != state) rvi_thread_sleep(1e-3);
}

/* One answer of the service, by whoever holds it alone. false: it is not the one expected */
static bool answer_equals(rv_service *svc, int k)
{
    rv_generate_options go = greedy(N_NEW);
    rv_request r = {.size = sizeof r, .ids = prompt, .n_ids = N_PROMPT, .generate = &go};
    uint64_t id;
    bool same = true;
    size_t n = 0;
    if (rv_service_submit(svc, &r, &id, NULL)) return false;
    for (bool ended = false; !ended && same;) {
        rv_batch *b;
        if (rv_service_drain(svc, 600, &b, NULL) || !b) return false;
        for (size_t i = 0; i < b->n; i++) {
            const rv_service_event *ev = &b->events[i];
            if (ev->kind == RV_SERVICE_TOKEN && ev->id >= 0)
                same = same && n < alone[k]->n_ids && ev->id == alone[k]->ids[n++];
            if (ev->kind == RV_SERVICE_DONE) same = same && ev->finish == alone[k]->finish;
            ended = ended || ev->kind == RV_SERVICE_END;
        }
        rv_free(b);
    }
    return same && n + (alone[k]->finish == RV_FINISH_EOS) == alone[k]->n_ids;
}

static void the_least_recently_used_goes(void **state)
{
    (void)state;
    rv_models *ms = models_of((rv_models_options){.max_loaded = 2});
    rv_service *svc;
    static const int order[] = {0, 1, 0, 2, 0, 1};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        assert_ok(rv_models_hold(ms, names[order[i]], 600, &svc, err));
        assert_string_equal(rv_model_get_info(rv_service_model(svc))->architecture,
                            order[i] == 2 ? "qwen2" : "llama");
        assert_true(answer_equals(svc, order[i]));
        assert_int_equal(look(ms, order[i]).n_held, 1);
        rv_models_give_back(ms, &svc);
        assert_null(svc);
    }
    assert_int_equal(look(ms, 0).n_loads, 1);
    assert_int_equal(look(ms, 1).n_loads, 2);
    assert_int_equal(look(ms, 2).n_loads, 1);
    assert_int_equal(look(ms, 2).state, RV_MODEL_OUT);
    assert_true(look(ms, 0).bytes > 0 && look(ms, 1).load_seconds > 0);
    assert_ok(rv_models_unload(ms, names[0], err));
    wait_until(ms, 0, RV_MODEL_OUT);
    rv_models_free(&ms);
}

/* Two that are held, room for one: the second waits until the first is given back. */
static void whoever_holds_one_keeps_it(void **state)
{
    (void)state;
    rv_models *ms = models_of((rv_models_options){.max_loaded = 1});
    rv_service *first, *second;
    assert_ok(rv_models_hold(ms, names[0], 600, &first, err));
    assert_refused(RV_E_BUSY, rv_models_hold(ms, names[1], 0, &second, err));
    wait_until(ms, 0, RV_MODEL_LEAVING);
    assert_refused(RV_E_BUSY, rv_models_hold(ms, names[0], 0.01, &second, err));
    assert_true(answer_equals(first, 0));
    rv_models_give_back(ms, &first);
    assert_ok(rv_models_hold(ms, names[1], 600, &second, err));
    assert_true(answer_equals(second, 1));
    rv_models_give_back(ms, &second);
    assert_ok(rv_models_hold(ms, names[0], 600, &first, err)); /* it was asked for */
    assert_int_equal(look(ms, 0).n_loads, 2);
    assert_ok(rv_models_unload(ms, names[0], err));
    assert_int_equal(look(ms, 0).state, RV_MODEL_LEAVING);
    assert_ok(rv_models_hold(ms, names[0], 0, &second, err)); /* nobody needs its room: it stays */
    assert_int_equal(look(ms, 0).state, RV_MODEL_LOADED);
    rv_models_give_back(ms, &second);
    rv_models_give_back(ms, &first);
    assert_int_equal(look(ms, 0).n_loads, 2);
    rv_models_free(&ms);
}

static void idle_ones_go(void **state)
{
    (void)state;
    rv_models *ms = models_of((rv_models_options){.idle = 0.01});
    rv_service *svc;
    assert_ok(rv_models_hold(ms, names[2], 600, &svc, err));
    rvi_thread_sleep(0.05);
    assert_int_equal(look(ms, 2).state, RV_MODEL_LOADED);
    rv_models_give_back(ms, &svc);
    wait_until(ms, 2, RV_MODEL_OUT);
    rv_models_free(&ms);
}

static atomic_int n_changes;

static void count_change(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&n_changes, 1);
}

static void what_cannot_be_loaded_is_said(void **state)
{
    (void)state;
    rv_models *ms = models_of((rv_models_options){.changed = count_change, .bytes = 1 << 20});
    rv_service *svc;
    rv_service_options large = service_options();
    large.n_tokens = 1 << 20; /* KV room beyond the budget: known once the model is open */
    assert_ok(rv_models_add(ms, "gone", "tests/gguf/no such file.gguf", NULL, NULL, err));
    assert_ok(rv_models_add(ms, "large", paths[0], NULL, &large, err));
    assert_refused(RV_E_STATE, rv_models_add(ms, "ann", paths[0], NULL, NULL, err));
    assert_refused(RV_E_NOT_FOUND, rv_models_hold(ms, "dan", 600, &svc, err));
    assert_refused(RV_E_NOT_FOUND, rv_models_unload(ms, "dan", err));
    for (int i = 0; i < 2; i++) {
        rv_error why;
        assert_int_equal(rv_models_hold(ms, "gone", 600, &svc, &why), RV_E_NOT_FOUND);
        assert_non_null(strstr(why.text, "no such file"));
        assert_null(svc);
    }
    assert_refused(RV_E_NOMEM, rv_models_hold(ms, "large", 600, &svc, err));
    assert_ok(rv_models_hold(ms, names[0], 600, &svc, err));
    rv_models_give_back(ms, &svc);
    while (atomic_load(&n_changes) < 4) rvi_thread_sleep(1e-3);
    assert_refused(RV_E_CONFIG, rv_models_hold(ms, names[0], -1, &svc, err));
    rv_models_free(&ms);
    rv_models_options bad = {.size = sizeof bad, .max_loaded = -1};
    assert_refused(RV_E_CONFIG, rv_models_new(&ms, rt, &bad, err));
    assert_null(ms);
}

/* Whoever asks for a model that cannot be loaded has no other one unloaded, or asked to go. */
static void what_cannot_be_loaded_drives_nobody_out(void **state)
{
    (void)state;
    rv_budget budget = {.size = sizeof budget, .kv = 1 << 20};
    rv_models *ms = models_of((rv_models_options){.max_loaded = 1, .bytes = 16 << 20});
    rv_open_options half = {.size = sizeof half};
    rv_service_options large = service_options(), huge = service_options();
    rv_service *svc, *none;
    uint64_t len;
    size_t n = 0;
    FILE *f = fopen(paths[0], "rb");
    assert_non_null(f);
    assert_int_equal(rvi_os_stat(paths[0], &len), RVI_OS_FILE);
    char *bytes = malloc((size_t)len);
    assert_non_null(bytes);
    n = fread(bytes, 1, (size_t)len, f);
    assert_int_equal(fclose(f), 0);
    half.data = bytes;
    half.len = n / 2;
    huge.n_tokens = 1 << 20;                    /* beyond the limit of the list */
    large.n_context = large.n_tokens = 1 << 14; /* beyond the budget */
    assert_ok(rv_models_add(ms, "gone", "tests/gguf/no such file.gguf", NULL, NULL, err));
    assert_ok(rv_models_add(ms, "text", "README.md", NULL, NULL, err));
    assert_ok(rv_models_add(ms, "half", "half.gguf", &half, NULL, err));
    assert_ok(rv_models_add(ms, "huge", paths[0], NULL, &huge, err));
    assert_ok(rv_models_add(ms, "large", paths[0], NULL, &large, err));
    assert_ok(rv_runtime_set_budget(rt, &budget, err));
    for (int held = 0; held < 2; held++) {
        static const char *const names_of_bad[] = {"gone", "text", "half", "huge", "large"};
        assert_ok(rv_models_hold(ms, names[0], 600, &svc, err));
        if (!held) rv_models_give_back(ms, &svc);
        for (size_t i = 0; i < sizeof names_of_bad / sizeof *names_of_bad; i++) {
            rv_error why;
            rv_status st = rv_models_hold(ms, names_of_bad[i], 600, &none, &why);
            assert_int_not_equal(st, RV_OK);
            print_message("# %s\n", why.text);
            rv_listed_model *list;
            assert_ok(rv_models_list(ms, &list, &n, err));
            assert_int_equal(list[0].state, RV_MODEL_LOADED);
            assert_int_equal(list[0].n_loads, 1);
            rv_free(list);
        }
    }
    rv_models_give_back(ms, &svc);
    rv_models_free(&ms);
    assert_ok(rv_runtime_set_budget(rt, NULL, err));
    free(bytes);
}

static void count_line(void *ctx, rv_log_level level, const char *line)
{
    (void)level;
    *(int *)ctx += strstr(line, "there is memory for no more") != NULL;
}

/* Pages of a service whose context nobody gave, where keys and values may take a number of bytes
 * (0: any). bytes (may be NULL): of model and room. */
static uint64_t fitted_pages(uint64_t kv, uint64_t *bytes, int *n_said)
{
    rv_runtime *own;
    rv_models *ms;
    rv_service *svc;
    rv_listed_model *list;
    size_t n;
    rv_runtime_options ro = {
        .size = sizeof ro, .n_threads = 1, .log = count_line, .log_ctx = n_said};
    rv_models_options mo = {.size = sizeof mo};
    rv_service_options so = {.size = sizeof so, .n_tokens = RV_WHOLE_CONTEXT};
    rv_budget budget = {.size = sizeof budget, .kv = kv};
    rv_service_metrics *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->size = sizeof *m;
    *n_said = 0;
    assert_ok(rv_runtime_new(&own, &ro, err));
    if (kv) assert_ok(rv_runtime_set_budget(own, &budget, err));
    assert_ok(rv_models_new(&ms, own, &mo, err));
    assert_ok(rv_models_add(ms, "ann", paths[0], NULL, &so, err));
    assert_ok(rv_models_hold(ms, "ann", 600, &svc, err));
    assert_ok(rv_service_get_metrics(svc, m, err));
    assert_int_equal(m->n_context, rv_model_get_info(rv_service_model(svc))->n_context);
    assert_ok(rv_models_list(ms, &list, &n, err));
    if (bytes) *bytes = list[0].bytes;
    rv_free(list);
    rv_models_give_back(ms, &svc);
    rv_models_free(&ms);
    rv_runtime_free(&own);
    uint64_t n_pages = m->pages;
    free(m);
    return n_pages;
}

/* Room is halved until it fits, and that is said. */
static void room_that_nobody_gave_is_fitted(void **state)
{
    (void)state;
    uint64_t bytes;
    int n_said;
    assert_int_equal(fitted_pages(0, &bytes, &n_said), 16384 / 32);
    assert_int_equal(n_said, 0);
    assert_int_equal(fitted_pages(bytes * 2 / 3, NULL, &n_said), 8192 / 32);
    assert_int_equal(n_said, 1);
    assert_int_equal(fitted_pages(bytes / 3, NULL, &n_said), 4096 / 32);
    assert_int_equal(n_said, 1);
    assert_int_equal(fitted_pages(bytes / 5, NULL, &n_said), 4096 / 32); /* not less */
}

/* ---- many at once ---- */

typedef struct user {
    rv_models *ms;
    uint64_t seed;
    rvi_thread *thread;
    bool failed;
} user;

/* Several threads drain the service of a model at once, so each keeps to one model of its own, and
 * all ask for room that the others have. */
static void use(void *ctx)
{
    user *me = ctx;
    rvi_rng rng = {me->seed};
    int k = (int)(me->seed % N_MODELS);
    for (int i = 0; i < N_ROUNDS && !me->failed; i++) {
        rv_service *svc;
        double wait = rvi_rng_u64(&rng) % 3 ? 600 : 0;
        rv_status st = rv_models_hold(me->ms, names[k], wait, &svc, NULL);
        if (st == RV_E_BUSY && !wait) continue;
        me->failed = st || !answer_equals(svc, k);
        rv_models_give_back(me->ms, &svc);
        if (rvi_rng_u64(&rng) % 4 == 0 && rv_models_unload(me->ms, names[k], NULL))
            me->failed = true;
    }
}

static void many_at_once(void **state)
{
    (void)state;
    for (int room = 1; room <= N_MODELS; room++) {
        rv_models *ms = models_of((rv_models_options){.max_loaded = room});
        user users[N_MODELS];
        for (int i = 0; i < N_MODELS; i++) {
            users[i] = (user){ms, (uint64_t)i, NULL, false};
            assert_ok(rvi_thread_start(&users[i].thread, use, &users[i], false, err));
        }
        for (int i = 0; i < N_MODELS; i++) rvi_thread_join(users[i].thread);
        for (int i = 0; i < N_MODELS; i++) assert_false(users[i].failed);
        for (int i = 0; i < N_MODELS; i++) assert_int_equal(look(ms, i).n_held, 0);
        rv_models_free(&ms);
    }
}

/* From the moment when both have begun until the first has nothing left, does neither get much more
 * than half of the steps? The figures of the two are not read at one moment: where this thread had
 * to wait between them, they say nothing. */
static bool take_turns(rv_service *svc[2])
{
    static rv_service_metrics m[2];
    rv_generate_options go = greedy(80);
    rv_request r = {.size = sizeof r, .ids = prompt, .n_ids = N_PROMPT, .generate = &go};
    uint64_t id, done[2], before[2], from[2] = {0, 0}, steps[2];
    go.ignore_eos = 1;
    for (int k = 0; k < 2; k++) {
        served_metrics(svc[k], &m[k]);
        before[k] = m[k].n_steps;
        done[k] = m[k].n_done + 8;
    }
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++) assert_ok(rv_service_submit(svc[k], &r, &id, err));
    for (bool ended = false; !ended;) {
        for (int k = 0; k < 2; k++) {
            served_metrics(svc[k], &m[k]);
            ended = ended || m[k].n_done == done[k];
        }
        for (int k = 0; k < 2 && !(from[0] && from[1]); k++) from[k] = m[k].n_steps - before[k];
    }
    for (int k = 0; k < 2; k++) {
        steps[k] = m[k].n_steps - before[k] - from[k];
        for (int n_ended = 0; n_ended < 8;) {
            rv_batch *b;
            assert_ok(rv_service_drain(svc[k], 600, &b, err));
            assert_non_null(b);
            for (size_t i = 0; i < b->n; i++) n_ended += b->events[i].kind == RV_SERVICE_END;
            rv_free(b);
        }
    }
    print_message("# steps %d and %d\n", (int)steps[0], (int)steps[1]);
    return 4 * steps[0] + 8 > steps[1] && 4 * steps[1] + 8 > steps[0];
}

static void services_take_turns(void **state)
{
    (void)state;
    enum { TRIES = 10 };
    rv_models *ms = models_of((rv_models_options){0});
    rv_service *svc[2];
    bool fair = false;
    for (int k = 0; k < 2; k++) assert_ok(rv_models_hold(ms, names[k], 600, &svc[k], err));
    for (int i = 0; i < TRIES && !fair; i++) fair = take_turns(svc);
    assert_true(fair);
    for (int k = 0; k < 2; k++) rv_models_give_back(ms, &svc[k]);
    rv_models_free(&ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(whoever_holds_one_keeps_it),
        cmocka_unit_test(idle_ones_go),
        cmocka_unit_test(what_cannot_be_loaded_is_said),
        cmocka_unit_test(what_cannot_be_loaded_drives_nobody_out),
        cmocka_unit_test(room_that_nobody_gave_is_fitted),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(services_take_turns),
    };
    return cmocka_run_group_tests_name("models", tests, open_it, close_it);
}
