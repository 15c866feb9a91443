/* Too little room, with the policies that change texts: what is forgotten or read in fewer bits is
 * said, what was asked to be exact is left alone, and what an answer becomes is what it would be if
 * the forgotten tokens had never been. */
#include "api/api.h"
#include "base/os.h"
#include "scheduler/served.h"

enum { N_PROMPT = 60, N_NEW = 120, SINK = 32 };

static opened o;
static int32_t ids[400];

static int open_it(void **state)
{
    (void)state;
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 400);
    for (int i = 0; i < 400; i++) ids[i] = 3 + i * 7 % 250;
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
    so.token_ms = 60000; /* what a step holds does not depend on how fast the machine is */
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static rv_generate_options answer_of(int n)
{
    rv_generate_options go = greedy(n);
    go.logprobs = 1;
    go.draft = RV_DRAFT_OFF;
    return go;
}

/* The prompt of request k begins at another token. */
static served submit(rv_service *svc, int k, bool exact)
{
    served s = {0};
    rv_generate_options go = answer_of(N_NEW);
    rv_request r = {
        .size = sizeof r, .ids = ids + k, .n_ids = N_PROMPT, .generate = &go, .exact = exact};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    return s;
}

static rv_answer *alone(const int32_t *prompt, size_t n_prompt, int n, rv_kv_type kv, int kv_warm)
{
    rv_session *s;
    rv_answer *a;
    rv_generate_options go = answer_of(n);
    rv_session_options so = {
        .size = sizeof so, .n_context = 400, .kv_type = kv, .kv_warm = kv_warm};
    assert_ok(rv_session_new(&s, o.m, &so, err));
    assert_ok(rv_session_generate(s, prompt, n_prompt, &go, &a, err));
    rv_session_free(&s);
    return a;
}

static void equal_to_alone(const served *s, int k, rv_kv_type kv, int kv_warm)
{
    rv_answer *a = alone(ids + k, N_PROMPT, N_NEW, kv, kv_warm);
    assert_int_equal(s->n, a->n_ids);
    for (int i = 0; i < s->n; i++) {
        assert_int_equal(s->ids[i], a->ids[i]);
        assert_memory_equal(&s->logprobs[i], &a->chosen[i].logprob, sizeof(float));
    }
    rv_free(a);
}

/* ---- evict ---- */

/* What the answer's text is, as the model sees it, and what comes next of it. */
typedef struct shadow {
    int32_t past[400];
    int n;         /* of past */
    int n_seen;    /* tokens of the answer in it */
    rv_answer *to; /* from the last time that it forgot; NULL: never */
    int at;        /* tokens of the answer before that */
    rv_kv_type kv;
    int kv_warm;
} shadow;

static void shadow_take(shadow *x, const served *s)
{
    for (; x->n_seen < s->n; x->n_seen++) {
        int i = x->n_seen - x->at;
        x->past[x->n++] = s->ids[x->n_seen];
        if (!x->to) continue;
        assert_int_equal(s->ids[x->n_seen], x->to->ids[i]);
        assert_memory_equal(&s->logprobs[x->n_seen], &x->to->chosen[i].logprob, sizeof(float));
    }
}

static void shadow_forget(shadow *x, int n)
{
    assert_true(x->n - SINK >= n);
    memmove(x->past + SINK, x->past + SINK + n, (size_t)(x->n - SINK - n) * sizeof *x->past);
    x->n -= n;
    rv_free(x->to);
    x->at = x->n_seen;
    x->to = alone(x->past, (size_t)x->n, N_NEW - x->n_seen, x->kv, x->kv_warm);
}

/* Of two with the same prompt or others one may forget, `which`: from each time on it is the answer
 * to the shorter text. */
static void evict_one(rv_kv_type kv, int kv_warm, bool same, int which)
{
    static rv_service_metrics m;
    static shadow x;
    served list[2];
    rv_service *svc = service_of((rv_service_options){.n_tokens = 32 * 9,
                                                      .pressure = RV_PRESSURE_EVICT,
                                                      .overcommit = 8,
                                                      .kv_type = kv,
                                                      .kv_warm = kv_warm});
    for (int k = 0; k < 2; k++) list[k] = submit(svc, same ? 0 : k, k != which);
    x = (shadow){.n = N_PROMPT, .kv = kv, .kv_warm = kv_warm};
    memcpy(x.past, ids + (same ? 0 : which), N_PROMPT * sizeof *ids);
    uint64_t before = 0;
    int n_times = 0;
    for (size_t left = 1; left;) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, 2);
        served_metrics(svc, &m);
        shadow_take(&x, &list[which]);
        if (m.n_evicted == before) continue;
        shadow_forget(&x, (int)(m.n_evicted - before));
        before = m.n_evicted;
        n_times++;
    }
    assert_true(n_times > 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(list[k].last.finish, RV_FINISH_LENGTH);
        assert_int_equal(list[k].n, N_NEW);
        assert_int_equal(list[k].last.n_evicted, k == which ? before : 0);
    }
    equal_to_alone(&list[!which], same ? 0 : !which, kv, kv_warm);
    print_message("# forgot %d tokens in %d times, %d preempted\n", (int)before, n_times,
                  (int)m.n_preempted);
    rv_free(x.to);
    rv_service_free(&svc);
}

static void evicted(void **state)
{
    (void)state;
    evict_one(RV_KV_DEFAULT, 0, false, 0);
}

/* The first page, which stays, may be too cold by then for the rows that come behind it, where what
 * is kept warm for others is another one with the same tokens. */
static void evicted_in_tiers(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) evict_one(RV_KV_TIERED, 32, i % 2, i / 2);
    for (int i = 0; i < 2; i++) evict_one(RV_KV_WARM, 0, true, i);
}

/* All may forget, three at a time. */
static void evicted_to_the_limit(void **state)
{
    enum { N = 8 };
    (void)state;
    static rv_service_metrics m;
    static served list[N];
    rv_service *svc = service_of((rv_service_options){
        .n_tokens = 32 * 12, .pressure = RV_PRESSURE_EVICT, .overcommit = 8, .max_running = 3});
    int n_changed = 0, n_evicted = 0;
    for (int k = 0; k < N; k++) list[k] = submit(svc, k, false);
    served_run(svc, list, N);
    served_metrics(svc, &m);
    for (int k = 0; k < N; k++) {
        assert_int_equal(list[k].last.finish, RV_FINISH_LENGTH);
        assert_int_equal(list[k].n, N_NEW);
        n_changed += list[k].last.n_evicted > 0;
        n_evicted += list[k].last.n_evicted;
        if (!list[k].last.n_evicted) equal_to_alone(&list[k], k, RV_KV_DEFAULT, 0);
    }
    assert_int_equal(n_evicted, m.n_evicted);
    assert_true(n_changed >= N / 2);
    assert_int_equal(m.pages_running, 0);
    print_message("# %d of %d changed, %d preempted\n", n_changed, N, (int)m.n_preempted);
    rv_service_free(&svc);
}

/* A text that was declared to be long has the rotary factors of long ones, also when it has
 * forgotten so much that a shorter one would not: what it computed is of no use to those. */
static void factors_stay(void **state)
{
    enum { N = 2, PROMPT = 200, NEW = 100, SHORT = 256 };
    (void)state;
    opened other;
    rv_service *svc;
    rv_session *alone_s;
    rv_answer *a;
    served list[N] = {{0}}, third = {0};
    open_all(&other, "tests/gguf/phi3-longrope.gguf", 1, 512);
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 14,
                             .n_context = 400,
                             .no_thread = 1,
                             .token_ms = 60000,
                             .pressure = RV_PRESSURE_EVICT,
                             .overcommit = 8};
    assert_ok(rv_service_new(&svc, other.m, &so, err));
    rv_generate_options go = answer_of(NEW);
    int most = 0;
    for (int k = 0; k < N; k++) {
        rv_request r = {
            .size = sizeof r, .ids = ids + 32 * k, .n_ids = PROMPT, .generate = &go, .salt = ""};
        assert_ok(rv_service_submit(svc, &r, &list[k].request, err));
    }
    served_run(svc, list, N);
    for (int k = 0; k < N; k++)
        if (list[k].last.n_evicted > list[most].last.n_evicted) most = k;
    assert_true(PROMPT + NEW > SHORT);
    assert_true(PROMPT + NEW - list[most].last.n_evicted <= SHORT);
    /* one whose first page is the same, and whose whole text is short */
    int32_t prompt[60];
    memcpy(prompt, ids + 32 * most, sizeof prompt);
    for (int i = 40; i < 60; i++) prompt[i] = 9;
    go = answer_of(20);
    rv_request r = {.size = sizeof r, .ids = prompt, .n_ids = 60, .generate = &go, .salt = ""};
    assert_ok(rv_service_submit(svc, &r, &third.request, err));
    served_run(svc, &third, 1);
    rv_session_options eo = {.size = sizeof eo, .n_context = 400};
    assert_ok(rv_session_new(&alone_s, other.m, &eo, err));
    assert_ok(rv_session_generate(alone_s, prompt, 60, &go, &a, err));
    assert_int_equal(third.n, a->n_ids);
    for (int i = 0; i < third.n; i++) {
        assert_int_equal(third.ids[i], a->ids[i]);
        assert_memory_equal(&third.logprobs[i], &a->chosen[i].logprob, sizeof(float));
    }
    rv_free(a);
    rv_session_free(&alone_s);
    rv_service_free(&svc);
    close_all(&other);
}

/* ---- quantize ---- */

static void coarsened(void **state)
{
    enum { N = 8, PAGES = 12, WARM = 256 };
    (void)state;
    static rv_service_metrics m;
    static served list[N];
    rv_service *svc = service_of((rv_service_options){.n_tokens = 32 * PAGES,
                                                      .kv_type = RV_KV_TIERED,
                                                      .kv_warm = WARM,
                                                      .pressure = RV_PRESSURE_QUANTIZE,
                                                      .overcommit = 8});
    int n_coarse = 0, n_exact = 0;
    uint64_t most = 0;
    for (int k = 0; k < N; k++) list[k] = submit(svc, k, k % 4 == 0);
    for (size_t left = 1; left;) {
        assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, N);
        served_metrics(svc, &m);
        uint64_t bytes = m.bytes_hot + m.bytes_warm + m.bytes_cold;
        most = bytes > most ? bytes : most;
    }
    for (int k = 0; k < N; k++) {
        assert_int_equal(list[k].last.finish, RV_FINISH_LENGTH);
        n_coarse += list[k].last.coarse;
        if (list[k].last.coarse) {
            assert_true(k % 4 != 0);
            continue;
        }
        n_exact++;
        equal_to_alone(&list[k], k, RV_KV_TIERED, WARM);
    }
    assert_int_equal(n_coarse, m.n_coarsened);
    assert_true(n_coarse >= 2 && n_exact >= 2);
    assert_int_equal(m.n_evicted, 0);
    print_message("# %d of %d in 4 bits, %d preempted, %llu bytes at most\n", n_coarse, N,
                  (int)m.n_preempted, (unsigned long long)most);
    rv_service_free(&svc);
}

/* A sequence that is coarse from the beginning computes what a pool without warm pages does. */
static void coarse_is_cold(void **state)
{
    enum { N = 150, AT_ONCE = 50 };
    (void)state;
    const rvi_model *model = o.m->model;
    rvi_backend *be = o.rt->be;
    rvi_workspace *ws;
    static float logits[3][512];
    int n_vocab = RVI_MIN(model->hp.n_vocab, 512);
    assert_ok(rvi_workspace_new(&ws, model, AT_ONCE, 1, err));
    for (int way = 0; way < 3; way++) {
        rvi_pages *pool;
        rvi_seq seq;
        rvi_kv_spec spec = rvi_model_kv_spec(model, RV_KV_TIERED, 8);
        spec.warm_pages = way ? 6 : 0;
        assert_ok(rvi_pages_new(&pool, be, &spec, err));
        assert_ok(rvi_seq_init(&seq, pool, N, err));
        seq.coarse = way == 1;
        for (int at = 0; at < N; at += AT_ONCE) {
            rvi_row rows[AT_ONCE];
            assert_ok(rvi_seq_extend(&seq, AT_ONCE, err));
            for (int i = 0; i < AT_ONCE; i++)
                rows[i] = (rvi_row){.seq = &seq, .pos = at + i, .token = ids[at + i]};
            rvi_model_forward(model, ws, rows, AT_ONCE);
            int32_t last = AT_ONCE - 1;
            const float *out = rvi_model_logits(model, ws, rows, &last, 1);
            memcpy(logits[way], out, (size_t)n_vocab * sizeof *out);
        }
        rvi_seq_deinit(&seq);
        rvi_pages_free(pool);
    }
    assert_memory_equal(logits[0], logits[1], (size_t)n_vocab * sizeof(float));
    assert_memory_not_equal(logits[0], logits[2], (size_t)n_vocab * sizeof(float));
    rvi_workspace_free(ws);
}

/* ---- limits of what is kept and of what is spilled ---- */

static void the_cache_has_a_limit(void **state)
{
    (void)state;
    static rv_service_metrics m;
    rv_service *svc =
        service_of((rv_service_options){.n_tokens = 32 * 64, .cache_tokens = 32 * 12});
    uint64_t most = 0;
    for (int k = 0; k < 12; k++) {
        served s = submit(svc, k * 11, false);
        served_run(svc, &s, 1);
        served_metrics(svc, &m);
        assert_true(m.pages_kept <= 12);
        assert_int_equal(m.bytes_kept, m.bytes_hot); /* nobody runs */
        most = m.pages_kept > most ? m.pages_kept : most;
    }
    assert_true(most > 9); /* it is used, and only after that three quarters are left */
    assert_true(m.n_dropped_kept > 20);
    rv_service_free(&svc);
}

static void spilling_has_a_limit(void **state)
{
    enum { N = 8 };
    (void)state;
    static rv_service_metrics m;
    static served list[N];
    rvi_buf dir = {0};
    assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
    rv_service *svc = service_of((rv_service_options){.n_tokens = 32 * 13,
                                                      .pressure = RV_PRESSURE_SPILL,
                                                      .spill = dir.data,
                                                      .spill_bytes = 1,
                                                      .overcommit = 8});
    for (int k = 0; k < N; k++) list[k] = submit(svc, k, false);
    served_run(svc, list, N);
    for (int k = 0; k < N; k++) equal_to_alone(&list[k], k, RV_KV_DEFAULT, 0);
    served_metrics(svc, &m);
    assert_int_equal(m.n_spilled, 0);
    assert_int_equal(m.bytes_spilled, 0);
    assert_true(m.n_spill_failed > 0);
    rv_service_free(&svc);
    rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
}

/* ---- a disk that gives back something else ---- */

static enum { GOOD, CHANGED, SHORT } disk;
static int n_bad_reads;

size_t fread(void *to, size_t size, size_t n, FILE *f)
{
    size_t got = (fread_unlocked)(to, size, n, f);
    if (disk == GOOD || !got) return got;
    n_bad_reads++;
    if (disk == SHORT) return got - 1;
    ((uint8_t *)to)[got * size / 2] ^= 4;
    return got;
}

/* What was spilled and cannot be used is computed again, and counted. */
static void bad_spills(void **state)
{
    enum { N = 8 };
    (void)state;
    static rv_service_metrics m;
    static served list[N];
    for (int how = GOOD; how <= SHORT; how++) {
        rvi_buf dir = {0};
        assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
        rv_service *svc = service_of((rv_service_options){.n_tokens = 32 * 13,
                                                          .pressure = RV_PRESSURE_SPILL,
                                                          .spill = dir.data,
                                                          .overcommit = 8});
        disk = how;
        n_bad_reads = 0;
        for (int k = 0; k < N; k++) list[k] = submit(svc, k, false);
        served_run(svc, list, N);
        disk = GOOD;
        for (int k = 0; k < N; k++) equal_to_alone(&list[k], k, RV_KV_DEFAULT, 0);
        served_metrics(svc, &m);
        assert_true(m.n_spilled > 0);
        assert_true(how == GOOD ? m.spilled_rows > 0 : n_bad_reads > 0);
        if (how != GOOD) assert_int_equal(m.spilled_rows, 0);
        assert_int_equal(m.n_spill_failed, n_bad_reads);
        print_message("# %d of %d spilled were not what they had been\n", n_bad_reads,
                      (int)m.n_spilled);
        rv_service_free(&svc);
        rvi_os_remove_tree(dir.data);
        rvi_buf_deinit(&dir);
    }
}

static void bad_options(void **state)
{
    (void)state;
    rv_service *svc;
    const rv_service_options bad[] = {{.pressure = RV_PRESSURE_QUANTIZE},
                                      {.pressure = RV_PRESSURE_QUANTIZE, .kv_type = RV_KV_WARM},
                                      {.pressure = RV_PRESSURE_EVICT, .spill = "x"},
                                      {.cache_tokens = -1}};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        rv_service_options so = bad[i];
        so.size = sizeof so;
        assert_refused(RV_E_CONFIG, rv_service_new(&svc, o.m, &so, err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicted),
        cmocka_unit_test(evicted_in_tiers),
        cmocka_unit_test(evicted_to_the_limit),
        cmocka_unit_test(factors_stay),
        cmocka_unit_test(coarsened),
        cmocka_unit_test(coarse_is_cold),
        cmocka_unit_test(the_cache_has_a_limit),
        cmocka_unit_test(spilling_has_a_limit),
        cmocka_unit_test(bad_spills),
        cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests_name("pressure", tests, open_it, close_it);
}
