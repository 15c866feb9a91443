/* lives.h - random lives of requests: many threads submit and cancel, pages are scarce, beginnings,
 * adapters and choices are shared, other models are loaded and unloaded meanwhile. Every token and
 * its probability is compared, as it comes, with what the request gets alone; under a pressure that
 * changes texts, those whose last event says so are not. */
#ifndef TESTS_SCHEDULER_LIVES_H
#define TESTS_SCHEDULER_LIVES_H

#include <stdatomic.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/rng.h"
#include "base/thread.h"
#include "scheduler/served.h"

enum { N_RECIPES = 24, LONGEST = 130, MOST_NEW = 24, N_CHOICES = 3, N_SUBMITTERS = 3 };

typedef struct recipe {
    rv_request_kind kind;
    int32_t ids[LONGEST];
    size_t n_ids;
    rv_sampling sampling;
    rv_generate_options go;
    const rv_adapter_set *adapters;
    rv_answer *alone[N_CHOICES]; /* NULL: not asked for yet */
    float values[SERVED_VALUES];
    size_t n_values; /* 0: the same */
} recipe;

typedef struct life {
    recipe *of;
    int n_choices;
    int n[N_CHOICES]; /* tokens so far */
    int n_left;
    bool ended;
    bool exact;
    bool differs[N_CHOICES]; /* from what it gets alone */
} life;

typedef struct lives {
    rv_runtime *rt;
    rv_model *m;
    rv_adapter_set *sets[3];
    rv_kv_type kv;
    int kv_warm;
    size_t longest;       /* prompt */
    rv_pressure pressure; /* of the next run */
    rv_models *others;    /* models that come and go meanwhile; NULL: none */
    bool budget;          /* one that changes meanwhile; */
    uint64_t page;        /* bytes of a page then */
    recipe recipes[N_RECIPES];
    rv_service *svc;
    life *all;
    int n_lives, n_runs;
    atomic_int n_begun, n_refused;
    atomic_bool failed; /* a submit that should not */
} lives;

/* ---- what each gets alone ---- */

/* Asks for what is not known yet: most of the time of a run of few lives goes into this. */
static inline void lives_ask_alone(lives *l, recipe *r, int n_choices)
{
    rv_session *s;
    rv_session_options so = {.size = sizeof so,
                             .n_context = 256,
                             .kv_type = l->kv,
                             .kv_warm = l->kv_warm,
                             .adapters = r->adapters};
    if (r->n_values || (r->kind == RV_REQUEST_ANSWER && r->alone[n_choices - 1])) return;
    assert_ok(rv_session_new(&s, l->m, &so, err));
    rv_engine *e = rv_session_engine(s);
    if (r->kind == RV_REQUEST_EMBED) {
        r->n_values = (size_t)rv_model_get_info(l->m)->n_embd;
        assert_ok(rv_engine_embed(e, r->ids, r->n_ids, NULL, r->values, err));
    } else if (r->kind == RV_REQUEST_SCORE) {
        r->n_values = r->n_ids - 1;
        assert_ok(rv_engine_score(e, r->ids, r->n_ids, r->adapters, r->values, err));
    } else {
        uint64_t seed = r->sampling.seed;
        for (int i = 0; i < n_choices; i++) {
            r->sampling.seed = seed + (uint64_t)i;
            if (r->alone[i]) continue;
            assert_ok(rv_session_generate(s, r->ids, r->n_ids, &r->go, &r->alone[i], err));
        }
        r->sampling.seed = seed;
    }
    rv_session_free(&s);
}

static inline void lives_make_recipes(lives *l)
{
    rvi_rng rng = {77};
    int n_vocab = rv_model_get_info(l->m)->n_vocab;
    for (int k = 0; k < N_RECIPES; k++) {
        recipe *r = &l->recipes[k];
        r->kind = k % 8 == 6 ? RV_REQUEST_EMBED : k % 8 == 7 ? RV_REQUEST_SCORE : RV_REQUEST_ANSWER;
        r->n_ids = 3 + (size_t)(rvi_rng_u64(&rng) % (l->longest - 3));
        for (size_t i = 0; i < r->n_ids; i++)
            r->ids[i] = (int32_t)(rvi_rng_u64(&rng) % (uint64_t)n_vocab);
        const recipe *other = k ? &l->recipes[rvi_rng_u64(&rng) % (uint64_t)k] : r;
        size_t same = rvi_rng_u64(&rng) % (RVI_MIN(r->n_ids, other->n_ids) + 1);
        if (k % 3) memcpy(r->ids, other->ids, same * sizeof *r->ids);
        r->adapters = r->kind == RV_REQUEST_EMBED ? NULL : l->sets[rvi_rng_u64(&rng) % 3];
        r->sampling = (rv_sampling){.size = sizeof r->sampling,
                                    .seed = (uint64_t)k * 10,
                                    .temperature = 1,
                                    .greedy = k % 4 == 1};
        r->go = (rv_generate_options){.size = sizeof r->go,
                                      .sampling = &r->sampling,
                                      .max_tokens = 1 + (int)(rvi_rng_u64(&rng) % MOST_NEW),
                                      .logprobs = 1,
                                      .ignore_eos = k % 2};
    }
}

/* An emulator computes with floats in software, fifty times slower than with 8 bits. */
#ifdef TESTS_EMULATED
enum { IN_8_BITS = 1 };
#else
enum { IN_8_BITS = 0 };
#endif

/* is_long: texts that are long enough to become cold, or to forget something. */
static inline void lives_open(lives *l, int n_threads, rv_kv_type kv, int kv_warm, bool is_long)
{
    rv_adapter *a;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = n_threads};
    rv_open_options mo = {.size = sizeof mo, .quantize = IN_8_BITS};
    *l = (lives){.kv = kv, .kv_warm = kv_warm, .longest = is_long ? LONGEST : 70};
    assert_ok(rv_runtime_new(&l->rt, &ro, err));
    assert_ok(rv_model_open(&l->m, l->rt, "tests/golden/llama", &mo, err));
    assert_ok(rv_adapter_load(&a, l->m, "tests/golden/llama/lora", err));
    rv_adapter_use use = {a, 1};
    assert_ok(rv_adapter_set_new(&l->sets[1], l->m, &use, 1, err));
    use.scale = -0.5f;
    assert_ok(rv_adapter_set_new(&l->sets[2], l->m, &use, 1, err));
    rv_adapter_free(&a);
    lives_make_recipes(l);
}

static inline void lives_close(lives *l)
{
    for (int k = 0; k < N_RECIPES; k++)
        for (int i = 0; i < N_CHOICES; i++) rv_free(l->recipes[k].alone[i]);
    rv_models_free(&l->others);
    for (int i = 0; i < 3; i++) rv_adapter_set_free(&l->sets[i]);
    rv_model_close(&l->m);
    rv_runtime_free(&l->rt);
}

/* From here on other models come and go beside it. */
static inline void lives_add_others(lives *l)
{
    if (l->others) return;
    rv_models_options mo = {.size = sizeof mo, .max_loaded = 1};
    rv_service_options so = {.size = sizeof so, .n_tokens = 256};
    assert_ok(rv_models_new(&l->others, l->rt, &mo, err));
    assert_ok(rv_models_add(l->others, "one", "tests/golden/qwen2", NULL, &so, err));
    assert_ok(rv_models_add(l->others, "two", "tests/gguf/llama-spm.gguf", NULL, &so, err));
}

/* ---- threads that submit ---- */

typedef struct submitter {
    lives *l;
    uint64_t seed;
    rvi_thread *thread;
} submitter;

static inline rv_request lives_request(lives *l, life *x, rvi_rng *rng)
{
    static const char *const tenants[] = {"ann", "bob", "cid", NULL};
    const recipe *r = x->of;
    rv_request q = {.size = sizeof q,
                    .kind = r->kind,
                    .ids = r->ids,
                    .n_ids = r->n_ids,
                    .generate = &r->go,
                    .n = x->n_choices,
                    .adapters = r->adapters,
                    .tenant = tenants[rvi_rng_u64(rng) % 4],
                    .priority = (int)(rvi_rng_u64(rng) % 5) - 2,
                    .exact = x->exact,
                    .user = x};
    (void)l;
    if (rvi_rng_u64(rng) % 3 == 0) q.salt = "common";
    if (rvi_rng_u64(rng) % 16 == 0) q.timeout = 0.02 * rvi_rng_double(rng);
    return q;
}

/* One of the others is asked for, and given back at once. */
static inline void lives_visit(lives *l, rvi_rng *rng)
{
    rv_service *other;
    rv_status st =
        rv_models_hold(l->others, rvi_rng_u64(rng) % 2 ? "one" : "two", 600, &other, NULL);
    if (st) atomic_store(&l->failed, true);
    rv_models_give_back(l->others, &other);
}

/* Between room for one request of any length and more than there is. */
static inline void lives_change_budget(lives *l, rvi_rng *rng)
{
    rv_budget b = {.size = sizeof b, .kv = l->page * (11 + rvi_rng_u64(rng) % 10)};
    if (rv_runtime_set_budget(l->rt, &b, NULL)) atomic_store(&l->failed, true);
}

static inline void lives_submit(void *ctx)
{
    submitter *me = ctx;
    lives *l = me->l;
    rvi_rng rng = {me->seed};
    uint64_t id = 0;
    static rv_service_metrics m[N_SUBMITTERS];
    for (int at; (at = atomic_fetch_add(&l->n_begun, 1)) < l->n_lives;) {
        life *x = &l->all[at];
        if (l->others && rvi_rng_u64(&rng) % 24 == 0) lives_visit(l, &rng);
        if (l->page && rvi_rng_u64(&rng) % 8 == 0) lives_change_budget(l, &rng);
        rv_request q = lives_request(l, x, &rng);
        rv_status st;
        while ((st = rv_service_submit(l->svc, &q, &id, NULL)) == RV_E_BUSY) {
            atomic_fetch_add(&l->n_refused, 1);
            rvi_thread_sleep(1e-3);
        }
        if (st) atomic_store(&l->failed, true);
        if (rvi_rng_u64(&rng) % 6 == 0) rv_service_cancel(l->svc, id - rvi_rng_u64(&rng) % 8);
        m[me->seed].size = sizeof *m;
        if (rvi_rng_u64(&rng) % 64 == 0 && rv_service_get_metrics(l->svc, &m[me->seed], NULL))
            atomic_store(&l->failed, true);
        if (rvi_rng_u64(&rng) % 32 == 0) rvi_thread_sleep(2e-3);
    }
}

/* ---- the thread that drains, and looks ---- */

static inline bool lives_same(const recipe *r, const rv_service_event *ev, int n)
{
    const rv_answer *a = r->alone[ev->choice];
    return (size_t)n < a->n_ids && ev->id == a->ids[n] &&
           !memcmp(&ev->chosen->logprob, &a->chosen[n].logprob, sizeof(float));
}

static inline void lives_check(const rv_service_event *ev)
{
    life *x = ev->user;
    const recipe *r = x->of;
    assert_false(x->ended);
    if (ev->kind == RV_SERVICE_END) {
        assert_int_equal(x->n_left, 0);
        x->ended = true;
        return;
    }
    int *n = &x->n[ev->choice];
    const rv_answer *a = r->alone[ev->choice];
    if (ev->kind == RV_SERVICE_TOKEN && ev->id >= 0) {
        if (!lives_same(r, ev, *n)) x->differs[ev->choice] = true;
        ++*n;
    } else if (ev->kind == RV_SERVICE_DONE) {
        bool changed = ev->n_evicted || ev->coarse;
        x->n_left--;
        if (ev->finish == RV_FINISH_ERROR) fail_msg("%s", ev->error);
        if (x->exact) assert_false(changed);
        if (changed) return;
        assert_false(x->differs[ev->choice]);
        if (ev->finish == RV_FINISH_CANCELLED) return;
        if (r->kind == RV_REQUEST_ANSWER) {
            assert_int_equal(ev->finish, a->finish);
            assert_int_equal(*n + (a->finish == RV_FINISH_EOS), a->n_ids);
            assert_int_equal(ev->n_generated, a->n_ids);
        } else {
            assert_int_equal(ev->n_values, r->n_values);
            assert_memory_equal(ev->values, r->values, r->n_values * sizeof(float));
        }
    }
}

/* What the lives were to meet, which depends on how fast this machine is. */
static inline bool lives_met_all(const lives *l, const rv_service_metrics *m)
{
    return m->n_cancelled > 0 && m->n_timed_out > 0 && m->reused_tokens > 0 &&
           (m->n_preempted > 0 || l->pressure >= RV_PRESSURE_EVICT) &&
           (m->recomputed_rows > 0 || l->pressure != RV_PRESSURE_RECOMPUTE) &&
           (m->dropped_rows > 0) == (l->kv >= RV_KV_WARM) &&
           (m->n_spilled > 0) == (l->pressure == RV_PRESSURE_SPILL) &&
           (m->n_evicted > 0) == (l->pressure == RV_PRESSURE_EVICT) &&
           (m->n_coarsened > 0) == (l->pressure == RV_PRESSURE_QUANTIZE);
}

/* What each will be, and what it gets alone. */
static inline void lives_plan(lives *l, int n_lives)
{
    rvi_rng rng = {1000 + (uint64_t)l->n_runs++};
    l->n_lives = n_lives;
    l->all = calloc((size_t)n_lives, sizeof *l->all);
    assert_non_null(l->all);
    for (int i = 0; i < n_lives; i++) {
        life *x = &l->all[i];
        x->of = &l->recipes[rvi_rng_u64(&rng) % N_RECIPES];
        x->n_choices =
            x->of->kind == RV_REQUEST_ANSWER && rvi_rng_u64(&rng) % 5 == 0 ? N_CHOICES : 1;
        x->n_left = x->n_choices;
        x->exact = rvi_rng_u64(&rng) % 3 == 0;
        lives_ask_alone(l, x->of, x->n_choices);
    }
    atomic_store(&l->n_begun, 0);
    atomic_store(&l->n_refused, 0);
}

static inline void lives_run(lives *l, int n_lives, rv_service_metrics *m)
{
    submitter submitters[N_SUBMITTERS];
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 14, /* a quarter of what may be needed */
                             .n_context = 256,
                             .kv_type = l->kv,
                             .kv_warm = l->kv_warm,
                             .max_running = 16,
                             .max_waiting = 40,
                             .max_tenant = 30,
                             .overcommit = 4,
                             .age_ms = 10,
                             .token_ms = 2,
                             .pressure = l->pressure};
    rvi_buf dir = {0};
    if (l->pressure == RV_PRESSURE_SPILL) {
        assert_ok(rvi_os_temp_dir(&dir, P_tmpdir, err));
        so.spill = dir.data;
    }
    lives_plan(l, n_lives);
    assert_ok(rv_service_new(&l->svc, l->m, &so, err));
    l->page = 0;
    if (l->budget) { /* what a service has that has done nothing is for 256 tokens, and a bit */
        rv_budget_use u = {.size = sizeof u};
        assert_ok(rv_runtime_get_budget(l->rt, &u, err));
        l->page = u.kv.used / (256 / 32 + 3);
    }
    for (int i = 0; i < N_SUBMITTERS; i++) {
        submitters[i] = (submitter){l, (uint64_t)i, NULL};
        assert_ok(
            rvi_thread_start(&submitters[i].thread, lives_submit, &submitters[i], false, err));
    }
    int n_ended = 0, n_jobs = 0;
    while (n_ended < n_lives) {
        rv_batch *b;
        assert_ok(rv_service_drain(l->svc, 600, &b, err));
        assert_non_null(b); /* something happens */
        for (size_t i = 0; i < b->n; i++) {
            lives_check(&b->events[i]);
            n_ended += b->events[i].kind == RV_SERVICE_END;
            n_jobs += b->events[i].kind == RV_SERVICE_DONE;
        }
        rv_free(b);
    }
    for (int i = 0; i < N_SUBMITTERS; i++) rvi_thread_join(submitters[i].thread);
    assert_false(atomic_load(&l->failed));
    served_metrics(l->svc, m);
    rv_service_free(&l->svc);
    if (l->budget) assert_ok(rv_runtime_set_budget(l->rt, NULL, err));
    if (dir.len) rvi_os_remove_tree(dir.data);
    rvi_buf_deinit(&dir);
    for (int i = 0; i < n_lives; i++) assert_true(l->all[i].ended);
    free(l->all);
    assert_int_equal(m->n_submitted, n_lives);
    assert_int_equal(m->n_done + m->n_cancelled + m->n_timed_out + m->n_failed, n_jobs);
    assert_int_equal(m->n_failed, 0);
    assert_int_equal(m->n_running, 0);
    assert_int_equal(m->n_waiting, 0);
    assert_int_equal(m->pages_running, 0);
    assert_true(m->dropped_rows == 0 || l->kv >= RV_KV_WARM);
    assert_true(m->n_spilled == 0 || l->pressure == RV_PRESSURE_SPILL);
    assert_true(m->n_evicted == 0 || l->pressure == RV_PRESSURE_EVICT);
    assert_true(m->n_coarsened == 0 || l->pressure == RV_PRESSURE_QUANTIZE);
    assert_int_equal(m->bytes_spilled, 0);
    print_message("# %d requests, %d choices: %d cancelled, %d late, %d preempted (%d rows again), "
                  "%d of %d prompt tokens reused, %d lost with their form, %d spilled, %d tokens "
                  "forgotten, %d in 4 bits, %d steps\n",
                  n_lives, n_jobs, (int)m->n_cancelled, (int)m->n_timed_out, (int)m->n_preempted,
                  (int)m->recomputed_rows, (int)m->reused_tokens, (int)m->prompt_tokens,
                  (int)m->dropped_rows, (int)m->n_spilled, (int)m->n_evicted, (int)m->n_coarsened,
                  (int)m->n_steps);
}

#endif
