/* Services: what comes out of one is what a session computes alone, bit for bit, and what its
 * events say is so. */
#include <math.h>
#include <stdatomic.h>

#include "scheduler/served.h"

#include "api/service.h"
#include "base/os.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";
enum { N_PROMPT = 75, N_NEW = 20 };

static opened o;
static int32_t prompts[6][N_PROMPT]; /* the first 50 tokens are those of the first */

static int open_it(void **state)
{
    (void)state;
    open_all(&o, model_path, 2, 256);
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < N_PROMPT; i++)
            prompts[k][i] = 3 + (i * 7 + (i < 50 ? 0 : k * 31)) % 250;
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

static rv_service *service_of(const rv_service_options *given)
{
    rv_service *svc;
    rv_service_options so = given ? *given : (rv_service_options){0};
    so.size = sizeof so;
    if (!so.n_tokens) so.n_tokens = 1024;
    if (!so.n_context) so.n_context = 256;
    so.no_thread = 1;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    return svc;
}

static rv_sampling sampling_of(int seed)
{
    return (rv_sampling){.size = sizeof(rv_sampling), .seed = (uint64_t)seed, .temperature = 1};
}

static served submit(rv_service *svc, int k, const rv_generate_options *go, const char *tenant)
{
    served s = {0};
    rv_request r = {
        .size = sizeof r, .ids = prompts[k], .n_ids = N_PROMPT, .generate = go, .tenant = tenant};
    assert_ok(rv_service_submit(svc, &r, &s.request, err));
    assert_true(s.request > 0);
    return s;
}

/* The same by a session of its own. */
static void compare_alone(const served *s, int k, const rv_generate_options *go)
{
    rv_session *alone;
    rv_answer *a;
    rv_session_options so = {.size = sizeof so, .n_context = 256};
    assert_ok(rv_session_new(&alone, o.m, &so, err));
    assert_ok(rv_session_generate(alone, prompts[k], N_PROMPT, go, &a, err));
    int n = (int)a->n_ids - (a->finish == RV_FINISH_EOS); /* no event for a token that ends it */
    assert_int_equal(s->last.finish, a->finish);
    assert_int_equal(s->n, n);
    assert_memory_equal(s->ids, a->ids, (size_t)n * sizeof *s->ids);
    assert_string_equal(s->text, a->text);
    for (int i = 0; a->chosen && i < n; i++)
        assert_memory_equal(&s->logprobs[i], &a->chosen[i].logprob, sizeof(float));
    rv_free(a);
    rv_session_free(&alone);
}

static void answers_equal_those_alone(void **state)
{
    (void)state;
    rv_service *svc = service_of(NULL);
    served list[6];
    rv_sampling sampling[6];
    rv_generate_options go[6];
    for (int k = 0; k < 6; k++) {
        sampling[k] = sampling_of(k);
        go[k] = (rv_generate_options){.size = sizeof go[k],
                                      .sampling = &sampling[k],
                                      .max_tokens = N_NEW + k,
                                      .logprobs = 1,
                                      .ignore_eos = k % 2};
        list[k] = submit(svc, k, &go[k], k % 2 ? "odd" : "even");
    }
    served_run(svc, list, 6);
    for (int k = 0; k < 6; k++) {
        compare_alone(&list[k], k, &go[k]);
        assert_int_equal(list[k].last.n_prompt, N_PROMPT);
        assert_int_equal(list[k].last_done, N_PROMPT);
    }
    static rv_service_metrics m;
    served_metrics(svc, &m);
    assert_int_equal(m.n_submitted, 6);
    assert_int_equal(m.n_done, 6);
    assert_int_equal(m.n_running + m.n_waiting, 0);
    assert_int_equal(m.pages_running, 0);
    assert_true(m.pages_kept > 0);
    assert_int_equal(m.queue.n, 6);
    assert_int_equal(m.first_token.n, 6);
    assert_int_equal(m.prompt_rows + m.reused_tokens, m.prompt_tokens);
    assert_true(m.prompt_seconds > 0 && m.token_seconds > 0);
    double shared_out = m.prompt_seconds + m.token_seconds; /* each rounded to nanoseconds */
    assert_true(fabs(shared_out - m.busy_seconds) < 3e-9 * (double)(m.n_steps + 1));
    rv_service_free(&svc);
    assert_null(svc);
}

/* A second request of the same salt computes nothing that is known; other tenants, and services
 * that keep nothing, compute it all. */
static void beginnings_are_shared(void **state)
{
    (void)state;
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        rv_service *svc = service_of(&(rv_service_options){.no_cache = no_cache});
        rv_generate_options go = greedy(N_NEW);
        served a = submit(svc, 0, &go, "ann");
        served_run(svc, &a, 1);
        served b = submit(svc, 0, &go, "ann");
        served_run(svc, &b, 1);
        served c = submit(svc, 1, &go, "ann");
        served_run(svc, &c, 1);
        served d = submit(svc, 0, &go, "bob");
        served_run(svc, &d, 1);
        assert_int_equal(a.last.n_reused, 0);
        assert_int_equal(b.last.n_reused, no_cache ? 0 : N_PROMPT - 1);
        assert_int_equal(c.last.n_reused, no_cache ? 0 : 50); /* to the token */
        assert_int_equal(d.last.n_reused, 0);
        compare_alone(&a, 0, &go);
        compare_alone(&b, 0, &go);
        compare_alone(&c, 1, &go);
        compare_alone(&d, 0, &go);
        static rv_service_metrics m;
        served_metrics(svc, &m);
        if (no_cache) assert_int_equal(m.pages_kept, 0);
        rv_service_free(&svc);
    }
}

/* A conversation goes on: prompt and answer of the turn before are known. */
static void turns_are_shared(void **state)
{
    (void)state;
    rv_service *svc = service_of(NULL);
    rv_generate_options go = greedy(N_NEW);
    served first = submit(svc, 0, &go, NULL), next = {0};
    served_run(svc, &first, 1);
    int32_t ids[N_PROMPT + N_NEW + 5] = {0};
    memcpy(ids, prompts[0], sizeof prompts[0]);
    memcpy(ids + N_PROMPT, first.ids, N_NEW * sizeof *ids);
    for (int i = 0; i < 5; i++) ids[N_PROMPT + N_NEW + i] = 90 + i;
    rv_request r = {.size = sizeof r, .ids = ids, .n_ids = RVI_COUNT(ids), .generate = &go};
    assert_ok(rv_service_submit(svc, &r, &next.request, err));
    served_run(svc, &next, 1);
    assert_int_equal(next.last.n_reused, N_PROMPT + N_NEW - 1); /* the last was never computed */
    rv_answer *a;
    assert_ok(rv_session_generate(o.s, ids, RVI_COUNT(ids), &go, &a, err));
    assert_memory_equal(next.ids, a->ids, N_NEW * sizeof *next.ids);
    rv_free(a);
    rv_service_free(&svc);
}

/* Choices share the prompt, and each is a request with its own seed. */
static void choices_share_the_prompt(void **state)
{
    (void)state;
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        rv_service *svc = service_of(&(rv_service_options){.no_cache = no_cache});
        served list[4] = {{0}};
        rv_sampling sampling = sampling_of(40);
        rv_generate_options go = {.size = sizeof go, .sampling = &sampling, .max_tokens = N_NEW};
        rv_request r = {
            .size = sizeof r, .ids = prompts[0], .n_ids = N_PROMPT, .generate = &go, .n = 4};
        assert_ok(rv_service_submit(svc, &r, &list[0].request, err));
        for (int i = 0; i < 4; i++) {
            list[i].request = list[0].request;
            list[i].choice = i;
        }
        served_run(svc, list, 4);
        for (int i = 0; i < 4; i++) {
            sampling.seed = 40 + (uint64_t)i;
            compare_alone(&list[i], 0, &go);
            assert_int_equal(list[i].last.n_reused, i ? N_PROMPT - 1 : 0);
        }
        assert_string_not_equal(list[0].text, list[1].text);
        static rv_service_metrics m;
        served_metrics(svc, &m);
        assert_int_equal(m.answer_tokens, list[0].last.n_generated + list[1].last.n_generated +
                                              list[2].last.n_generated + list[3].last.n_generated);
        assert_int_equal(
            m.prompt_rows + m.token_rows - 3,
            N_PROMPT + list[0].n + list[1].n + list[2].n + list[3].n - 4 +
                (list[0].last.finish == RV_FINISH_EOS) + (list[1].last.finish == RV_FINISH_EOS) +
                (list[2].last.finish == RV_FINISH_EOS) + (list[3].last.finish == RV_FINISH_EOS));
        rv_service_free(&svc);
    }
}

/* They do, too, where the prompt was answered before, so that a page is known which goes on behind
 * it: in tiers that page has no 16 bits any more, which a prompt's last page needs. */
static void choices_share_what_was_answered(void **state)
{
    enum { CHOICES = 8, LONG = 60 }; /* tokens that fill the page */
    (void)state;
    static const rv_kv_type types[] = {RV_KV_F16, RV_KV_WARM, RV_KV_TIERED};
    static rv_service_metrics m;
    rv_generate_options go = greedy(N_NEW);
    go.ignore_eos = 1;
    for (size_t t = 0; t < RVI_COUNT(types); t++) {
        rv_service *svc = service_of(&(rv_service_options){.kv_type = types[t]});
        served list[CHOICES] = {{0}};
        go.max_tokens = LONG;
        list[0] = submit(svc, 0, &go, NULL);
        served_run(svc, list, 1);
        served_metrics(svc, &m);
        go.max_tokens = N_NEW;
        uint64_t before = m.prompt_rows;
        rv_request r = {
            .size = sizeof r, .ids = prompts[0], .n_ids = N_PROMPT, .generate = &go, .n = CHOICES};
        memset(list, 0, sizeof list);
        assert_ok(rv_service_submit(svc, &r, &list[0].request, err));
        for (int i = 0; i < CHOICES; i++) {
            list[i].request = list[0].request;
            list[i].choice = i;
        }
        served_run(svc, list, CHOICES);
        for (int i = 1; i < CHOICES; i++)
            assert_memory_equal(list[i].ids, list[0].ids, (size_t)list[0].n * sizeof(int32_t));
        served_metrics(svc, &m);
        assert_in_range(m.prompt_rows - before, 1, N_PROMPT % 32 + CHOICES - 1);
        rv_service_free(&svc);
    }
}

/* ---- rows that are read ---- */

static void embeddings_and_scores(void **state)
{
    (void)state;
    rv_service *svc = service_of(NULL);
    rv_generate_options go = greedy(N_NEW);
    served list[3];
    list[0] = submit(svc, 1, &go, NULL);
    rv_request r = {.size = sizeof r, .kind = RV_REQUEST_EMBED, .ids = prompts[0], .n_ids = 60};
    list[1] = list[2] = (served){0};
    assert_ok(rv_service_submit(svc, &r, &list[1].request, err));
    r.kind = RV_REQUEST_SCORE;
    assert_ok(rv_service_submit(svc, &r, &list[2].request, err));
    served_run(svc, list, 3);
    compare_alone(&list[0], 1, &go);
    float want[SERVED_VALUES];
    size_t n_embd = (size_t)rv_model_get_info(o.m)->n_embd;
    assert_ok(rv_engine_embed(rv_session_engine(o.s), prompts[0], 60, NULL, want, err));
    assert_int_equal(list[1].n_values, n_embd);
    assert_memory_equal(list[1].values, want, n_embd * sizeof *want);
    assert_ok(rv_engine_score(rv_session_engine(o.s), prompts[0], 60, NULL, want, err));
    assert_int_equal(list[2].n_values, 59);
    assert_memory_equal(list[2].values, want, 59 * sizeof *want);
    rv_service_free(&svc);
}

static void encoders_embed(void **state)
{
    (void)state;
    rv_model *m;
    rv_service *svc;
    rv_engine *e;
    enum { N = 5 };
    served list[N] = {{0}};
    assert_ok(rv_model_open(&m, o.rt, "tests/gguf/bert.gguf", NULL, err));
    rv_service_options so = {.size = sizeof so, .n_tokens = 512, .no_thread = 1, .max_rows = 64};
    assert_ok(rv_service_new(&svc, m, &so, err));
    rv_request r = {.size = sizeof r, .kind = RV_REQUEST_EMBED, .ids = prompts[0]};
    for (int i = 0; i < N; i++) {
        r.n_ids = 10 + (size_t)i;
        assert_ok(rv_service_submit(svc, &r, &list[i].request, err));
    }
    uint64_t id;
    r.kind = RV_REQUEST_SCORE;
    assert_refused(RV_E_INVALID, rv_service_submit(svc, &r, &id, err));
    served_run(svc, list, N);
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 64};
    assert_ok(rv_engine_new(&e, m, &eo, err));
    for (int i = 0; i < N; i++) {
        float want[SERVED_VALUES];
        assert_ok(rv_engine_embed(e, prompts[0], 10 + (size_t)i, NULL, want, err));
        assert_memory_equal(list[i].values, want, list[i].n_values * sizeof *want);
        assert_int_equal(list[i].n_values, rv_model_get_info(m)->n_embd);
    }
    rv_engine_free(&e);
    rv_service_free(&svc);
    rv_model_close(&m);
}

/* ---- ends ---- */

static void cancel_and_timeout(void **state)
{
    (void)state;
    rv_service *svc = service_of(&(rv_service_options){.max_running = 2});
    rv_generate_options go = greedy(100);
    served list[5];
    size_t left;
    static rv_service_metrics m;
    for (int k = 0; k < 4; k++) list[k] = submit(svc, k, &go, NULL);
    rv_request late = {.size = sizeof late,
                       .ids = prompts[4],
                       .n_ids = N_PROMPT,
                       .generate = &go,
                       .timeout = 1e-6};
    list[4] = (served){0};
    assert_ok(rv_service_submit(svc, &late, &list[4].request, err));
    for (int i = 0; i < 8; i++) assert_ok(rv_service_step(svc, &left, err));
    assert_int_equal(left, 4); /* the late one never ran */
    served_drain(svc, 0, list, 5);
    assert_true(list[0].n > 0 && list[4].done);
    assert_int_equal(list[4].last.finish, RV_FINISH_CANCELLED);
    assert_int_equal(list[4].last.timed_out, 1);
    rv_service_cancel(svc, list[0].request); /* runs */
    rv_service_cancel(svc, list[3].request); /* waits */
    rv_service_cancel(svc, 12345);
    served_metrics(svc, &m);
    assert_int_equal(m.n_running, 2);
    assert_ok(rv_service_step(svc, &left, err));
    assert_int_equal(left, 2);
    served_drain(svc, 0, list, 5);
    for (int i = 0; i < 4; i += 3) {
        assert_true(list[i].done && list[i].ended);
        assert_int_equal(list[i].last.finish, RV_FINISH_CANCELLED);
        assert_int_equal(list[i].last.timed_out, 0);
    }
    served_run(svc, list, 5);
    compare_alone(&list[1], 1, &go);
    compare_alone(&list[2], 2, &go);
    served_metrics(svc, &m);
    assert_int_equal(m.n_cancelled, 2);
    assert_int_equal(m.n_timed_out, 1);
    assert_int_equal(m.n_done, 2);
    assert_int_equal(m.pages_running, 0);
    rv_service_free(&svc);
}

static int forbid_all(void *ctx, const int32_t *ids, size_t n, float *logits, size_t n_vocab)
{
    (void)ids;
    for (size_t i = 0; i < n_vocab && n == *(size_t *)ctx; i++) logits[i] = -(float)1e30 * 1e30f;
    return 0;
}

/* What fails ends alone, with a sentence. */
static void one_fails(void **state)
{
    (void)state;
    rv_service *svc = service_of(NULL);
    rv_generate_options go = greedy(N_NEW), bad = greedy(N_NEW);
    size_t at = 3;
    bad.mask = forbid_all;
    bad.ctx = &at;
    served list[2];
    list[0] = submit(svc, 0, &go, NULL);
    list[1] = submit(svc, 1, &bad, NULL);
    served_run(svc, list, 2);
    compare_alone(&list[0], 0, &go);
    assert_int_equal(list[1].last.finish, RV_FINISH_ERROR);
    assert_int_equal(list[1].last.status, RV_E_GENERATION);
    assert_true(strlen(list[1].error) > 10);
    assert_int_equal(list[1].n, 3);
    rv_service_free(&svc);
}

/* ---- bad input ---- */

static void foreign_adapters(rv_service *svc, rv_request r)
{
    opened other;
    uint64_t id;
    rv_adapter *theirs;
    rv_adapter_set *set;
    open_all(&other, "tests/golden/llama", 1, 64);
    assert_ok(rv_adapter_load(&theirs, other.m, "tests/golden/llama/lora", err));
    assert_ok(rv_adapter_set_new(&set, other.m, &(rv_adapter_use){theirs, 1}, 1, err));
    r.adapters = set;
    assert_refused(RV_E_ADAPTER, rv_service_submit(svc, &r, &id, err));
    rv_adapter_set_free(&set);
    rv_adapter_free(&theirs);
    close_all(&other);
}

/* Where there is room for one whole context, an answer may go on up to its end. */
static void answers_fill_the_context(void **state)
{
    enum { CONTEXT = 96, LARGE = 20000 };
    (void)state;
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = CONTEXT, .n_context = CONTEXT, .no_thread = 1};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    rv_generate_options go = greedy(RV_TO_CONTEXT_END);
    for (int k = 0; k < 2; k++) { /* the second finds pages of the first */
        served s = submit(svc, 0, &go, NULL);
        served_run(svc, &s, 1);
        assert_int_equal(s.last.finish, RV_FINISH_LENGTH);
        assert_int_equal(s.n, CONTEXT - N_PROMPT);
    }
    served list[3] = {{0}}; /* and so may each of three choices */
    rv_request r = {
        .size = sizeof r, .ids = prompts[1], .n_ids = N_PROMPT, .generate = &go, .n = 3};
    assert_ok(rv_service_submit(svc, &r, &list[0].request, err));
    for (int i = 1; i < 3; i++) {
        list[i].request = list[0].request;
        list[i].choice = i;
    }
    served_run(svc, list, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(list[i].n, CONTEXT - N_PROMPT);
    rv_service_free(&svc);
    so.n_tokens = RV_WHOLE_CONTEXT; /* as a server has it; more than is usual */
    so.n_context = LARGE;
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    (void)submit(svc, 0, &go, NULL);
    rv_service_free(&svc);
}

static void refusals(void **state)
{
    (void)state;
    rv_service *svc = service_of(&(rv_service_options){.max_waiting = 3, .max_tenant = 2});
    rv_generate_options go = greedy(N_NEW);
    uint64_t id;
    rv_request ok = {.size = sizeof ok, .ids = prompts[0], .n_ids = N_PROMPT, .generate = &go}, r;
#define REFUSED(code, field, value)                                                                \
    r = ok;                                                                                        \
    r.field = (value);                                                                             \
    assert_refused(code, rv_service_submit(svc, &r, &id, err))
    REFUSED(RV_E_CONFIG, size, 3);
    REFUSED(RV_E_CONFIG, kind, (rv_request_kind)7);
    REFUSED(RV_E_INVALID, ids, NULL);
    REFUSED(RV_E_INVALID, n_ids, 0);
    REFUSED(RV_E_CONFIG, n, 1000);
    REFUSED(RV_E_CONFIG, n, -1);
    REFUSED(RV_E_CONFIG, priority, 101);
    REFUSED(RV_E_CONFIG, timeout, -1);
    REFUSED(RV_E_CONFIG, timeout, (double)NAN);
    int32_t wrong[2] = {1, 100000};
    r = ok;
    r.ids = wrong;
    r.n_ids = 2;
    assert_refused(RV_E_INVALID, rv_service_submit(svc, &r, &id, err));
    foreign_adapters(svc, ok);
    static int32_t many[2000];
    r = ok;
    r.ids = many;
    r.n_ids = 2000;
    assert_refused(RV_E_TOO_LONG, rv_service_submit(svc, &r, &id, err));
    r.n_ids = 256; /* no room for a token */
    assert_refused(RV_E_TOO_LONG, rv_service_submit(svc, &r, &id, err));
    r = ok;
    rv_sampling hot = {.size = sizeof hot, .temperature = -1};
    rv_generate_options bad = {.size = sizeof bad, .sampling = &hot};
    r.generate = &bad;
    assert_refused(RV_E_CONFIG, rv_service_submit(svc, &r, &id, err));
    assert_refused(RV_E_INVALID, rv_service_submit(NULL, &ok, &id, err));
    assert_refused(RV_E_INVALID, rv_service_submit(svc, NULL, &id, err));
    assert_refused(RV_E_INVALID, rv_service_submit(svc, &ok, NULL, err));

    served list[3];
    list[0] = submit(svc, 0, &go, "a");
    list[1] = submit(svc, 1, &go, "a");
    r = ok;
    r.tenant = "a";
    assert_refused(RV_E_BUSY, rv_service_submit(svc, &r, &id, err));
    list[2] = submit(svc, 2, &go, "b");
    assert_refused(RV_E_BUSY, rv_service_submit(svc, &ok, &id, err));
    assert_int_equal(id, 0);
    static rv_service_metrics m;
    served_metrics(svc, &m);
    assert_int_equal(m.n_refused, 2);
    served_run(svc, list, 3);
    for (int k = 0; k < 3; k++) compare_alone(&list[k], k, &go);
    rv_batch *b;
    size_t n;
    assert_refused(RV_E_CONFIG, rv_service_drain(svc, -1, &b, err));
    assert_refused(RV_E_INVALID, rv_service_drain(svc, 0, NULL, err));
    assert_refused(RV_E_INVALID, rv_service_step(svc, NULL, err));
    assert_refused(RV_E_INVALID, rv_service_step(NULL, &n, err));
    rv_service_metrics tiny = {0};
    assert_refused(RV_E_CONFIG, rv_service_get_metrics(svc, &tiny, err));
    rv_service_free(&svc);
    rv_service_free(&svc);
    rv_service_free(NULL);
    rv_service_cancel(NULL, 1);
    rv_service_options so = {.size = sizeof so, .overcommit = 0.5};
    assert_refused(RV_E_CONFIG, rv_service_new(&svc, o.m, &so, err));
    so = (rv_service_options){.size = sizeof so, .max_running = -1};
    assert_refused(RV_E_CONFIG, rv_service_new(&svc, o.m, &so, err));
    assert_refused(RV_E_INVALID, rv_service_new(NULL, o.m, NULL, err));
    assert_refused(RV_E_INVALID, rv_service_new(&svc, NULL, NULL, err));
}

/* A service that nobody drains stops computing until somebody does. */
static void waits_for_a_drain(void **state)
{
    (void)state;
    rv_service *svc = service_of(&(rv_service_options){.max_events = 5});
    rv_generate_options go = greedy(50);
    served s = submit(svc, 0, &go, NULL);
    size_t left;
    static rv_service_metrics m;
    for (int i = 0; i < 30; i++) assert_ok(rv_service_step(svc, &left, err));
    served_metrics(svc, &m);
    assert_true(m.n_steps < 10);
    served_run(svc, &s, 1);
    compare_alone(&s, 0, &go);
    rv_service_free(&svc);
}

/* ---- with its own thread ---- */

typedef struct bell {
    atomic_int n;
} bell;

static void ring(void *ctx)
{
    atomic_fetch_add(&((bell *)ctx)->n, 1);
}

enum { PATIENCE = 20 }; /* seconds */

typedef struct drainer {
    rv_service *svc;
    atomic_bool waits;
    bool got;
    double seconds;
} drainer;

static void drain_once(void *ctx)
{
    drainer *d = ctx;
    rv_batch *b = NULL;
    double begun = rvi_os_seconds();
    atomic_store(&d->waits, true);
    d->got = !rv_service_drain(d->svc, PATIENCE, &b, NULL) && b;
    d->seconds = rvi_os_seconds() - begun;
    rv_free(b);
}

/* Two wait, and two batches come before the first has woken up: neither goes on sleeping. */
static void two_may_drain(void **state)
{
    enum { TIMES = 40 };
    (void)state;
    rv_service *svc = service_of(&(rv_service_options){0});
    rv_generate_options go = greedy(1);
    assert_ok(rvi_wakeup_new(&svc->news, err));
    for (int k = 0; k < TIMES; k++) {
        drainer d[2] = {{.svc = svc}, {.svc = svc}};
        rvi_thread *threads[2];
        size_t left;
        for (int i = 0; i < 2; i++) {
            assert_ok(rvi_thread_start(&threads[i], drain_once, &d[i], false, err));
            while (!atomic_load(&d[i].waits)) rvi_thread_sleep(1e-4);
        }
        rvi_thread_sleep(2e-3);
        for (int i = 0; i < 2; i++) {
            rv_service_cancel(svc, submit(svc, i, &go, NULL).request);
            assert_ok(rv_service_step(svc, &left, err)); /* which takes no time so */
        }
        assert_int_equal(left, 0);
        for (int i = 0; i < 2; i++) rvi_thread_join(threads[i]);
        for (int i = 0; i < 2; i++) assert_true(d[i].got && d[i].seconds < 0.75 * PATIENCE);
    }
    rv_service_free(&svc);
}

static void with_a_thread(void **state)
{
    (void)state;
    rv_service *svc;
    bell b = {0};
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 1024, .n_context = 256, .wake = ring, .wake_ctx = &b};
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    size_t left;
    assert_refused(RV_E_STATE, rv_service_step(svc, &left, err));
    rv_generate_options go = greedy(N_NEW);
    for (int round = 0; round < 3; round++) {
        served list[6];
        for (int k = 0; k < 6; k++) list[k] = submit(svc, k, &go, NULL);
        for (int n = 0; n < 6;) {
            served_drain(svc, 5, list, 6);
            for (n = 0; n < 6 && list[n].ended;) n++;
        }
        for (int k = 0; k < 6; k++) compare_alone(&list[k], k, &go); /* while the service rests */
    }
    assert_true(atomic_load(&b.n) > 3);
    served s = submit(svc, 0, &go, NULL); /* freed while it computes */
    (void)s;
    rv_service_free(&svc);
}

/* Answers go on while training waits, and the runtime is free now and then. */
static void training_gets_some_time(void **state)
{
    (void)state;
    opened x;
    uint64_t id;
    rv_service *svc;
    rv_service_options so = {.size = sizeof so, .n_tokens = 256, .n_context = 128};
    rv_generate_options go = greedy(100);
    open_all(&x, "tests/golden/llama", 1, 64);
    assert_ok(rv_service_new(&svc, x.m, &so, err));
    rv_request r = {.size = sizeof r, .ids = (const int32_t[]){5, 6}, .n_ids = 2, .generate = &go};
    for (int starving = 0; starving < 2; starving++) {
        assert_ok(rv_service_submit(svc, &r, &id, err));
        if (starving) atomic_store(&x.rt->n_starving, 1); /* as background.c does after a while */
        bool ended = false;
        while (!ended && !(starving && atomic_load(&x.rt->n_rests))) {
            rv_batch *b;
            assert_ok(rv_service_drain(svc, 600, &b, err));
            for (size_t i = 0; b && i < b->n; i++)
                ended = ended || b->events[i].kind == RV_SERVICE_END;
            rv_free(b);
        }
        assert_int_equal(ended, !starving);
        assert_int_equal(atomic_load(&x.rt->n_rests) > 0, starving);
        rv_service_cancel(svc, id);
    }
    rv_service_free(&svc);
    close_all(&x);
}

static rv_status begin_slowly(void *ctx, int choice, rvi_session *s, rv_error *e)
{
    (void)ctx, (void)choice, (void)s, (void)e;
    rvi_thread_sleep(0.01);
    return RV_OK;
}

/* As a learner's requests do, which it thinks about before they begin. */
static served submit_slow(rv_service *svc, const rv_request *q)
{
    rvi_order *r;
    served s = {0};
    assert_ok(rvi_service_read(svc, q, &r, err));
    r->hooks.begin = begin_slowly;
    assert_ok(rvi_scheduler_submit(svc->s, r, &s.request, err));
    return s;
}

/* Eight that take a while to begin come at once: a stream has its tokens between them, and where
 * there is none they all begin together. */
static void slow_beginnings_are_spread(void **state)
{
    enum { N = 8 };
    (void)state;
    static rv_service_metrics m;
    rv_generate_options go = greedy(N_NEW);
    rv_request r = {.size = sizeof r, .ids = (const int32_t[]){5, 6}, .n_ids = 2, .generate = &go};
    for (int streams = 0; streams < 2; streams++) {
        served list[N + 1] = {{0}};
        size_t left;
        rv_service *svc = service_of(NULL);
        if (streams) {
            list[N] = submit(svc, 0, &go, NULL);
            while (!list[N].n) {
                assert_ok(rv_service_step(svc, &left, err));
                served_drain(svc, 0, list, N + 1);
            }
        }
        for (int i = 0; i < N; i++) list[i] = submit_slow(svc, &r);
        assert_ok(rv_service_step(svc, &left, err));
        served_metrics(svc, &m);
        assert_int_equal(m.n_running, streams ? 2 : N);
        served_run(svc, list, N + (size_t)streams);
        rv_service_free(&svc);
    }
}

static int take_long(void *ctx, const int32_t *some, size_t n, float *logits, size_t n_vocab)
{
    (void)ctx, (void)some, (void)n, (void)logits, (void)n_vocab;
    rvi_thread_sleep(0.12);
    return 0;
}

/* Two services whose steps take longer than a rest: neither computes in the other's. */
static void two_services_rest_together(void **state)
{
    (void)state;
    opened x;
    uint64_t id;
    rv_service *both[2];
    rv_service_options so = {.size = sizeof so, .n_tokens = 256, .n_context = 128};
    rv_generate_options go = greedy(100);
    go.mask = take_long;
    open_all(&x, "tests/golden/llama", 1, 64);
    rv_request r = {.size = sizeof r, .ids = (const int32_t[]){5, 6}, .n_ids = 2, .generate = &go};
    for (int i = 0; i < 2; i++) {
        assert_ok(rv_service_new(&both[i], x.m, &so, err));
        assert_ok(rv_service_submit(both[i], &r, &id, err));
    }
    while (atomic_load(&x.rt->n_serving) < 2) rvi_thread_sleep(1e-3);
    atomic_store(&x.rt->n_starving, 1);
    bool was_free = false;
    while (!was_free && atomic_load(&x.rt->n_rests) < 12) {
        was_free = !rvi_api_is_busy(x.rt);
        rvi_thread_sleep(1e-3);
    }
    assert_true(was_free);
    for (int i = 0; i < 2; i++) rv_service_free(&both[i]);
    close_all(&x);
}

static void keep_line(void *ctx, rv_log_level level, const char *line)
{
    (void)level;
    snprintf(ctx, 512, "%s", line);
}

/* The time in a template is reported, with how often it changes. */
static void templates_with_the_time(void **state)
{
    (void)state;
    static const struct {
        const char *template, *said;
    } cases[] = {{"a {{ strftime_now('%d %b %Y') }} b", "2 bytes behind"},
                 {"a {{ strftime_now('%d %b %Y') }} b", "every day"},
                 {"{{ messages[0]['content'] }}{{ strftime_now('%H:%M') }}", "every minute"},
                 {"{{ strftime_now('%Y') }}", "every year"},
                 {"{{ messages[0]['content'] }}", ""},
                 {"{{ raise_exception('no') }}", ""}};
    char line[512] = "";
    opened x = {0};
    rv_runtime_options ro = {.size = sizeof ro,
                             .n_threads = 1,
                             .log = keep_line,
                             .log_ctx = line,
                             .log_level = RV_LOG_WARN};
    rv_service_options so = {.size = sizeof so, .n_tokens = 128, .n_context = 64, .no_thread = 1};
    assert_ok(rv_runtime_new(&x.rt, &ro, err));
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        rv_open_options oo = {.size = sizeof oo, .chat_template = cases[i].template};
        rv_service *svc;
        assert_ok(rv_model_open(&x.m, x.rt, model_path, &oo, err));
        line[0] = 0;
        assert_ok(rv_service_new(&svc, x.m, &so, err));
        if (!strstr(line, cases[i].said) || !*cases[i].said != !*line)
            fail_msg("%s: '%s'", cases[i].template, line);
        rv_service_free(&svc);
        rv_model_close(&x.m);
    }
    rv_runtime_free(&x.rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_equal_those_alone),
                                       cmocka_unit_test(beginnings_are_shared),
                                       cmocka_unit_test(turns_are_shared),
                                       cmocka_unit_test(choices_share_the_prompt),
                                       cmocka_unit_test(choices_share_what_was_answered),
                                       cmocka_unit_test(embeddings_and_scores),
                                       cmocka_unit_test(encoders_embed),
                                       cmocka_unit_test(cancel_and_timeout),
                                       cmocka_unit_test(one_fails),
                                       cmocka_unit_test(answers_fill_the_context),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(waits_for_a_drain),
                                       cmocka_unit_test(templates_with_the_time),
                                       cmocka_unit_test(training_gets_some_time),
                                       cmocka_unit_test(two_services_rest_together),
                                       cmocka_unit_test(slow_beginnings_are_spread),
                                       cmocka_unit_test(two_may_drain),
                                       cmocka_unit_test(with_a_thread)};
    return cmocka_run_group_tests_name("service", tests, open_it, close_it);
}
