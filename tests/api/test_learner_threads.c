/* Learning beside serving: the background thread of a learner, on tiny models with random weights.
 * What is learned means nothing there; that the same comes out as in the foreground, that answers
 * do not change meanwhile and that no call fails because of the thread does. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/memory_store.h"
#include "api/opened.h"
#include "base/blob.h"
#include "base/json.h"
#include "base/os.h"
#include "ruvllm_service.h"

static const char model_path[] = "tests/gguf/llama.gguf";

typedef struct house {
    opened o;
    rvi_store state;
    rv_store store;
    char dir[256];
} house;

static rvi_store calibrated; /* what was made for the model, once for all tests */

static int copy_item(void *ctx, rvi_bytes key, rvi_bytes record)
{
    house *h = ctx;
    assert_ok(rvi_store_put(&h->state, "model", key.data, key.len, record.data, record.len, err));
    return 0;
}

static int set_up(void **ctx)
{
    house *h = test_calloc(1, sizeof *h);
    rvi_buf dir = {0};
    open_all(&h->o, model_path, 2, 256);
    assert_ok(rvi_store_memory(&h->state, err));
    assert_ok(rvi_store_scan(&calibrated, "model", NULL, 0, copy_item, h, err));
    h->store = memory_store(&h->state);
    assert_ok(rvi_os_temp_dir(&dir, "/tmp", err));
    snprintf(h->dir, sizeof h->dir, "%s", dir.data);
    rvi_buf_deinit(&dir);
    *ctx = h;
    return 0;
}

static int tear_down(void **ctx)
{
    house *h = *ctx;
    close_all(&h->o);
    rvi_store_close(&h->state);
    rvi_os_remove_tree(h->dir);
    test_free(h);
    return 0;
}

static rv_learner_options options(const house *h)
{
    rv_learner_options o;
    o = (rv_learner_options){.size = sizeof o};
    o.store = &h->store;
    o.dir = h->dir;
    o.experiments = "n_steps=2";
    return o;
}

static rv_learner *open_learner(const house *h, const rv_learner_options *o)
{
    rv_learner *l;
    assert_ok(rv_learner_new(&l, h->o.m, o, err));
    l->bg.brisk = true; /* these tests must end on a busy machine too */
    return l;
}

static void correct(rv_learner *l, const char *question, const char *answer)
{
    assert_ok(rv_learner_correct(l, NULL, question, answer, NULL, err));
}

typedef struct facts {
    bool calibrated, off, resting, calibrating, training, trouble;
    int lessons, waiting, generations;
} facts;

static facts look(rv_learner *l)
{
    char *json;
    rvi_arena arena = {0};
    const rvi_json *root;
    assert_ok(rv_learner_status(l, &json, err));
    assert_ok(rvi_json_parse(&root, json, strlen(json), &arena, "status", err));
    const rvi_json *doing = rvi_json_get(root, "background");
    facts f = {.calibrated = rvi_json_bool(rvi_json_get(root, "calibrated"), false),
               .off = rvi_json_is_string(doing, "off"),
               .resting = rvi_json_is_string(doing, "resting"),
               .calibrating = rvi_json_is_string(doing, "calibrating"),
               .training = rvi_json_is_string(doing, "training"),
               .trouble = rvi_json_get(root, "background_error") != NULL,
               .lessons = (int)rvi_json_int(rvi_json_get(root, "lessons"), -1),
               .waiting = (int)rvi_json_int(rvi_json_get(root, "waiting"), -1),
               .generations = (int)rvi_json_count(rvi_json_get(root, "generations"))};
    rvi_arena_deinit(&arena);
    rv_free(json);
    return f;
}

/* Until nothing is left to do, however long a busy machine takes; tools/run_tests ends a program
 * that hangs. */
static facts wait_for(rv_learner *l)
{
    facts f = look(l);
    while (!(f.calibrated && f.resting && !f.waiting)) {
        rvi_thread_sleep(0.1);
        f = look(l);
        assert_false(f.trouble);
    }
    return f;
}

static void wait_until_training(rv_learner *l)
{
    while (!look(l).training) rvi_thread_sleep(0.03); /* it rests for a while after each call */
}

static void read_export(rv_learner *l, const house *h, rvi_blob *out)
{
    char path[512];
    snprintf(path, sizeof path, "%s/out.gguf", h->dir);
    assert_ok(rv_learner_export(l, 1, path, 0, err));
    assert_ok(rvi_blob_open(out, path, err));
}

/* ---- tests ---- */

static void publishes_what_the_foreground_would(void **ctx)
{
    house *h = *ctx;
    for (int shared = 0; shared < 2; shared++) {
        rv_learner_options o = options(h);
        rvi_blob ours, theirs;
        house own[2];
        rv_learner *both[2];
        memset(own, 0, sizeof own);
        o.dir = NULL;
        o.experiments = shared ? "n_steps=2,shared=1" : "n_steps=2";
        for (int i = 0; i < 2; i++) {
            assert_ok(rvi_store_memory(&own[i].state, err));
            assert_ok(rvi_store_scan(&calibrated, "model", NULL, 0, copy_item, &own[i], err));
            own[i].store = memory_store(&own[i].state);
            o.store = &own[i].store;
            both[i] = open_learner(h, &o);
        }
        rv_learner *l = both[0], *other = both[1];
        assert_true(look(l).off);
        assert_ok(rv_learner_start(l, err));
        correct(l, "What is Zorkin's favourite colour?", "blue");
        facts f = wait_for(l);
        assert_int_equal(f.lessons, 1);
        assert_int_equal(f.generations, 1);
        correct(other, "What is Zorkin's favourite colour?", "blue");
        assert_ok(
            rv_learner_consolidate(other, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, err));
        read_export(l, h, &ours);
        read_export(other, h, &theirs);
        assert_int_equal(ours.len, theirs.len);
        assert_memory_equal(ours.data, theirs.data, ours.len);
        rvi_blob_close(&ours);
        rvi_blob_close(&theirs);
        correct(l, "What is Belmora's dog?",
                "Rex"); /* wakes the thread, which begins the next round */
        assert_int_equal(wait_for(l).generations, 2);
        rv_learner_free(&l);
        rv_learner_free(&other);
        for (int i = 0; i < 2; i++) rvi_store_close(&own[i].state);
    }
}

static void starts_pauses_and_ends_in_any_order(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    rv_learner *l = open_learner(h, &o);
    rv_learner_pause(l);
    rv_learner_pause(NULL);
    assert_refused(RV_E_INVALID, rv_learner_start(NULL, err));
    assert_ok(rv_learner_start(l, err));
    assert_ok(rv_learner_start(l, err));
    assert_false(look(l).off);
    rv_learner_pause(l);
    rv_learner_pause(l);
    assert_true(look(l).off);
    assert_ok(rv_learner_start(l, err));
    rv_learner_free(&l);
    o.store = NULL;
    l = open_learner(h, &o);
    assert_ok(rv_learner_start(l, err));
    correct(l, "What is Zorkin's favourite colour?", "blue");
    while (!look(l).calibrating) rvi_thread_sleep(0.03);
    rv_learner_free(&l); /* in the middle of calibration */
    o.store = &h->store;
    for (int i = 0; i < 6; i++) {
        opened p;
        open_all(&p, model_path, 2, 128);
        assert_ok(rv_learner_new(&l, p.m, &o, err));
        l->bg.brisk = i % 2;
        assert_ok(rv_learner_start(l, err));
        correct(l, "What is Zorkin's favourite colour?", i % 2 ? "blue" : "red");
        static const rv_message hello = {"user", "hello", NULL};
        static const rv_chat greeting = {
            .size = sizeof greeting, .messages = &hello, .n_messages = 1};
        assert_ok(rv_learner_begin(l, p.s, &greeting, NULL, err));
        rvi_thread_sleep(0.02 * i);
        if (i < 2) rv_learner_pause(l);
        if (i == 3) rv_session_free(&p.s);
        if (i >= 3) rv_model_close(&p.m);
        if (i >= 4) rv_runtime_free(&p.rt);
        rv_learner_free(&l);
        close_all(&p);
    }
}

/* Everything that an answer says of itself. */
static void expect_answer(rv_session *s, const int32_t *prompt, size_t n, const rv_answer *want)
{
    rv_generate_options g = greedy(24);
    rv_answer *got = NULL;
    g.top_logprobs = 4;
    assert_ok(rv_session_generate(s, prompt, n, &g, &got, err));
    assert_int_equal(got->n_ids, want->n_ids);
    assert_memory_equal(got->ids, want->ids, got->n_ids * sizeof *got->ids);
    for (size_t i = 0; i < got->n_ids; i++)
        assert_memory_equal(&got->chosen[i].logprob, &want->chosen[i].logprob,
                            sizeof got->chosen[i].logprob);
    rv_free(got);
}

static void answers_stay_the_same_meanwhile(void **ctx)
{
    house *h = *ctx;
    static const rv_message sea = {"user", "How warm is the sea?", NULL};
    static const rv_chat unrelated = {.size = sizeof unrelated, .messages = &sea, .n_messages = 1};
    static const int32_t prompt[] = {5, 9, 17, 33, 6, 40};
    rv_learner_options o = options(h);
    o.experiments = "n_steps=6";
    rv_generate_options g = greedy(24);
    rv_answer *want = NULL;
    g.top_logprobs = 4;
    assert_ok(rv_session_generate(h->o.s, prompt, 6, &g, &want, err));
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_start(l, err));
    int rounds = 0;
    for (int fact = 0; fact < 3; fact++) {
        char question[64];
        snprintf(question, sizeof question, "What is Zorkin%c's favourite colour?", 'a' + fact);
        correct(l, question, "blue");
        do {
            rv_learn_plan *plan;
            assert_ok(rv_learner_begin(l, h->o.s, &unrelated, &plan, err));
            assert_int_equal(plan->gate_open, 0);
            assert_int_equal(plan->n_adapters, 0);
            rv_free(plan);
            expect_answer(h->o.s, prompt, 6, want);
            rvi_thread_sleep(0.02); /* so that the others get to work */
            rounds++;
        } while (look(l).waiting);
    }
    assert_int_equal(wait_for(l).generations, 3);
    assert_true(rounds > 3);
    rv_free(want);
    rv_learner_free(&l);
}

static void what_is_taken_back_is_not_published(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    uint64_t n;
    o.experiments = "n_steps=1000000"; /* would take hours */
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_calibrate(l, NULL, NULL, err));
    assert_ok(rv_learner_start(l, err));
    correct(l, "What is Zorkin's favourite colour?", "blue");
    wait_until_training(l);
    assert_ok(rv_learner_undo(l, NULL, err));
    facts f = wait_for(l);
    assert_int_equal(f.lessons, 0);
    assert_int_equal(f.generations, 0);
    correct(l, "What is Belmora's dog?", "Rex");
    wait_until_training(l);
    correct(l, "What is Belmora's dog?", "Bello"); /* in the place of the other */
    correct(l, "What is Tavo's car?", "a Lada");
    assert_ok(rv_learner_forget(l, "Tavo", NULL, err));
    rvi_thread_sleep(0.05);
    f = look(l);
    assert_int_equal(f.lessons, 1);
    assert_int_equal(f.generations, 0);
    rv_learner_free(&l);
    o.experiments = "n_steps=2";
    l = open_learner(h, &o);
    f = look(l);
    assert_true(f.calibrated); /* from the store */
    assert_int_equal(f.waiting, 1);
    assert_ok(rv_learner_start(l, err));
    assert_int_equal(wait_for(l).generations, 1);
    assert_ok(rv_learner_verify_log(l, &n, err));
    assert_int_equal(n, 7); /* 4 corrections, undo, forget, publish */
    rv_learner_free(&l);
    l = open_learner(h, &o);
    f = look(l);
    assert_int_equal(f.lessons, 1);
    assert_int_equal(f.generations, 1);
    assert_int_equal(f.waiting, 0);
    rv_learner_free(&l);
}

static int cancel(void *ctx, const char *stage, int done, int total, double loss)
{
    (void)ctx;
    (void)done;
    (void)total;
    (void)loss;
    return !strcmp(stage, "training");
}

static void a_pause_changes_nothing(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    for (int shared = 0; shared < 2; shared++) {
        o.experiments = shared ? "n_steps=1000000,shared=1" : "n_steps=1000000";
        rv_learner *l = open_learner(h, &o);
        correct(l, "What is Zorkin's favourite colour?", "blue");
        assert_ok(rv_learner_start(l, err));
        wait_until_training(l);
        rv_learner_pause(l);
        facts f = look(l);
        assert_true(f.off);
        assert_int_equal(f.waiting, 1);
        assert_int_equal(f.generations, 0);
        assert_ok(rv_learner_start(l, err));
        wait_until_training(l);
        /* Who trains himself takes the work over, and the thread goes on afterwards. */
        assert_refused(RV_E_CANCELLED, rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO,
                                                              cancel, NULL, NULL, err));
        wait_until_training(l);
        assert_ok(rv_learner_reset(l, err));
        f = wait_for(l);
        assert_int_equal(f.lessons, 0);
        assert_int_equal(f.generations, 0);
        rv_learner_free(&l);
    }
}

/* What is asked, as a conversation and as the tokens of a prompt. */
static const rv_message request = {"user", "Say it.", NULL};
static const rv_chat asked = {.size = sizeof asked, .messages = &request, .n_messages = 1};
static const int32_t prompt[] = {5, 9, 17, 33};

static void answer_it(house *h, rv_learner *l)
{
    rv_generate_options g = greedy(8);
    rv_answer *got = NULL;
    assert_ok(rv_learner_begin(l, h->o.s, &asked, NULL, err));
    assert_ok(rv_session_generate(h->o.s, prompt, 4, &g, &got, err));
    rv_free(got);
}

static void score_last_answer(house *h, rv_learner *l, double score)
{
    answer_it(h, l);
    if (score < 0)
        assert_ok(rv_learner_thumb(l, h->o.s, 0, NULL, err));
    else
        assert_ok(rv_learner_score(l, h->o.s, score, NULL, err));
}

static int adapters_that_take_part(house *h, rv_learner *l)
{
    rv_learn_plan *plan;
    assert_ok(rv_learner_begin(l, h->o.s, &asked, &plan, err));
    int n = plan->n_adapters;
    rv_free(plan);
    return n;
}

static void scores_and_thumbs_survive(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    rv_generate_options g = greedy(24);
    rv_answer *want = NULL;
    g.top_logprobs = 4;
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_calibrate(l, NULL, NULL, err));
    for (int i = 0; i < 18; i++) score_last_answer(h, l, i % 2 ? 0.9 : 0.2);
    score_last_answer(h, l, -1);
    assert_int_equal(adapters_that_take_part(h, l), 1);
    assert_ok(rv_session_generate(h->o.s, prompt, 4, &g, &want, err));
    for (int i = 0; i < 2; i++) { /* the session still holds the learner that is freed */
        rv_learner_free(&l);
        l = open_learner(h, &o);
        assert_int_equal(adapters_that_take_part(h, l), 1);
        expect_answer(h->o.s, prompt, 4, want);
    }
    assert_ok(rv_learner_reset(l, err));
    assert_int_equal(adapters_that_take_part(h, l), 0);
    rv_learner_free(&l);
    l = open_learner(h, &o); /* forgotten by that object, not by the disk */
    assert_int_equal(adapters_that_take_part(h, l), 1);
    expect_answer(h->o.s, prompt, 4, want);
    rv_free(want);
    rv_learner_free(&l);
}

/* Going back while a shared adapter is trained further: what was under way is not built upon. */
static void rolls_back_while_it_trains(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    o.experiments = "n_steps=2,shared=1";
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_calibrate(l, NULL, NULL, err));
    correct(l, "What is Zorkin's favourite colour?", "blue");
    assert_ok(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, err));
    rv_learner_free(&l);
    o.experiments = "n_steps=1000000,shared=1"; /* would take hours */
    l = open_learner(h, &o);
    assert_ok(rv_learner_start(l, err));
    correct(l, "What is Belmora's dog?", "Rex");
    for (int to = 1; to >= 0; to--) {
        wait_until_training(l);
        assert_ok(rv_learner_rollback(l, to, NULL, err));
        assert_int_equal(look(l).generations, 1);
    }
    rv_learner_free(&l);
}

/* What a learner lends outlives its changes: to a fork of a session, and as a set that is freed
 * beside it. */
static void what_is_lent_stays(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    rv_generate_options g = greedy(24);
    rv_answer *want = NULL;
    rv_session *fork;
    rv_adapter_set *set;
    g.top_logprobs = 4;
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_calibrate(l, NULL, NULL, err));
    for (int i = 0; i < 4; i++) score_last_answer(h, l, i % 2 ? 0.9 : 0.2);
    assert_ok(rv_learner_start(l, err));
    assert_ok(rv_learner_begin(l, h->o.s, &asked, NULL, err));
    assert_ok(rv_session_fork(&fork, h->o.s, err));
    assert_ok(rv_session_generate(h->o.s, prompt, 4, &g, &want, err));
    for (int i = 0; i < 8; i++) {
        score_last_answer(h, l, i % 2 ? 0.1 : 0.9);
        assert_ok(rv_learner_adapters(l, &set, err));
        rv_adapter_set_free(&set);
    }
    expect_answer(fork, prompt, 4, want); /* as it was when it was forked */
    rv_learner_free(&l);
    expect_answer(fork, prompt, 4, want);
    rv_session_free(&fork);
    rv_free(want);
}

/* What judgements leave to do is done between calls, and nothing that is learned depends on it. */
static void judgements_are_attended_to(void **ctx)
{
    house *h = *ctx;
    char made[2][RVI_SHA256_HEX];
    for (int beside = 0; beside < 2; beside++) {
        rv_learner_options o = options(h);
        rv_adaptation *a;
        double probed = 0;
        o.dir = NULL;
        o.store = NULL;
        rv_learner *l = open_learner(h, &o);
        l->l->calibrated = true; /* prose alone will do; nothing is made beside */
        for (int i = 0; i < 12; i++) {
            answer_it(h, l);
            if (beside && !i) assert_ok(rv_learner_start(l, err));
            if (i % 4 == 3) {
                assert_ok(rv_learner_thumb(l, h->o.s, 0, NULL, err));
            } else {
                assert_ok(rv_learner_score(l, h->o.s, i % 3 ? 0.9 : 0.2, &a, err));
                probed += a->forward_us;
                rv_free(a);
            }
            rvi_thread_sleep(0.02);
        }
        assert_int_equal(probed > 0, !beside); /* the probe */
        rv_learner_pause(l);
        assert_int_equal(look(l).generations, 0);
        assert_int_equal(l->l->history.n, 12);
        assert_false(l->l->instant.probe_due);
        assert_ok(rvi_adapter_digest(l->l->instant.adapter, made[beside], err));
        rv_learner_free(&l);
    }
    assert_string_equal(made[0], made[1]);
}

static void prefer(rv_learner *l, int i)
{
    char question[64];
    snprintf(question, sizeof question, "How is thing %d?", i);
    assert_ok(rv_learner_prefer(l, question, "It is fine.", "No idea at all.", NULL, err));
}

static void deep_runs_begin_by_themselves(void **ctx)
{
    house *h = *ctx;
    char digest[2][RVI_SHA256_HEX];
    rv_learner_options o = options(h);
    o.experiments = "n_steps=2,deep_min_pairs=5,deep_idle_seconds=3600";
    rv_learner *l = open_learner(h, &o);
    assert_ok(rv_learner_start(l, err));
    for (int i = 0; i < 5; i++) prefer(l, i);
    rvi_thread_sleep(0.3);
    assert_int_equal(wait_for(l).generations, 0); /* enough, but somebody was there a moment ago */
    rv_learner_free(&l);
    o.experiments = "n_steps=2,deep_min_pairs=6,deep_idle_seconds=0";
    l = open_learner(h, &o);
    assert_ok(rv_learner_start(l, err));
    rvi_thread_sleep(0.3);
    assert_int_equal(wait_for(l).generations, 0); /* idle, but too few */
    prefer(l, 5);
    while (look(l).generations < 1) rvi_thread_sleep(0.05);
    rv_learner_pause(l);
    assert_int_equal(rvi_learner_pairs_waiting(l->l), 0);
    assert_ok(rvi_adapter_digest(l->l->generations.list[0].adapter, digest[0], err));
    rv_learner_free(&l);
    o.store = NULL; /* on demand the same comes out */
    o.dir = NULL;
    l = open_learner(h, &o);
    for (int i = 0; i < 6; i++) prefer(l, i);
    assert_ok(rv_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, NULL, err));
    assert_ok(rvi_adapter_digest(l->l->generations.list[0].adapter, digest[1], err));
    assert_string_equal(digest[0], digest[1]);
    rv_learner_free(&l);
}

/* ---- memory ---- */

static rv_memory memory_of(const house *h)
{
    rv_memory m = {.size = sizeof m};
    assert_ok(rv_runtime_memory(h->o.rt, &m, err));
    return m;
}

/* A member of the budget that keeps nothing, and sees by which threads it is asked. */
typedef struct asked_member {
    rvi_quota_member m;
    atomic_int n, n_idle;
} asked_member;

static uint64_t note_asker(void *ctx, uint64_t bytes)
{
    asked_member *a = ctx;
    if (bytes) atomic_fetch_add(&a->n, 1);
    if (bytes && sched_getscheduler(0) == SCHED_IDLE) atomic_fetch_add(&a->n_idle, 1);
    return 0;
}

/* What training takes has a class of its own, is part of the budget, and is gone afterwards. Where
 * there is no room for it, it waits. */
static void training_has_its_memory(void **ctx)
{
    enum { TRIES = 20 };
    house *h = *ctx;
    rv_learner_options o = options(h);
    rv_learner *l = open_learner(h, &o);
    rv_memory m = memory_of(h);
    rv_budget_use use = {.size = sizeof use};
    rv_budget tight = {.size = sizeof tight, .bytes = m.weights + m.scratch + m.adapters + 100000};
    asked_member member = {.m = {.class = RVI_QUOTA_KV, .give = note_asker, .ctx = &member}};
    assert_int_equal(m.training, 0);
    rvi_quota_join(&h->o.rt->quota, &member.m);
    assert_ok(rv_runtime_set_budget(h->o.rt, &tight, err));
    l->bg.brisk = false;
    assert_ok(rv_learner_start(l, err));
    correct(l, "What is Zorkin's favourite colour?", "blue");
    while (!look(l).trouble) rvi_thread_sleep(0.03);
    rv_learner_pause(l);
    rvi_quota_leave(&h->o.rt->quota, &member.m);
    assert_true(atomic_load(&member.n) > 0);          /* the budget's lock is held meanwhile, */
    assert_int_equal(atomic_load(&member.n_idle), 0); /* so not by a thread that may not run soon */
    l->bg.brisk = true;
    assert_ok(rv_learner_start(l, err));
    assert_int_equal(look(l).generations, 0);
    assert_int_equal(memory_of(h).training, 0);
    tight.bytes = UINT64_C(1) << 40; /* enough */
    assert_ok(rv_runtime_set_budget(h->o.rt, &tight, err));
    uint64_t before = memory_of(h).scratch;
    bool counted = false; /* between two looks that see the same */
    rvi_background_wake(l);
    for (int i = 0; !counted && i < TRIES; i++) {
        int n = look(l).generations;
        if (i) correct(l, "What is Zorkin's favourite colour?", i % 2 ? "green" : "blue");
        while (look(l).generations == n)
            for (int k = 0; k < 100; k++) {
                uint64_t training = memory_of(h).training;
                assert_ok(rv_runtime_get_budget(h->o.rt, &use, err));
                counted = counted || (training > 1000000 && training == memory_of(h).training &&
                                      use.scratch.used >= before + training);
            }
    }
    assert_true(counted);
    (void)wait_for(l);
    rv_learner_pause(l);
    assert_int_equal(memory_of(h).training, 0);
    assert_ok(rv_runtime_get_budget(h->o.rt, &use, err));
    assert_int_equal(use.scratch.used, memory_of(h).scratch);
    rv_learner_free(&l);
}

/* Where a lesson is corrected again, its first adapter is of no use to anybody: it is not kept in
 * memory, but read again when the second correction is taken back. */
static void corrected_adapters_are_not_kept(void **ctx)
{
    house *h = *ctx;
    rv_learner_options o = options(h);
    rv_learner *l = open_learner(h, &o);
    const rvi_generations *g = &l->l->generations;
    static const char question[] = "What is Zorkin's favourite colour?";
    assert_ok(rv_learner_start(l, err));
    correct(l, question, "blue");
    (void)wait_for(l);
    assert_non_null(g->list[0].adapter);
    uint64_t weights = memory_of(h).weights;
    correct(l, question, "red");
    assert_int_equal(wait_for(l).generations, 2);
    assert_null(g->list[0].adapter);
    assert_non_null(g->list[1].adapter);
    assert_int_equal(memory_of(h).weights, weights);
    rv_learner_pause(l);
    assert_ok(rv_learner_undo(l, NULL, err));
    assert_non_null(g->list[0].adapter);
    rv_learner_free(&l);
    l = open_learner(h, &o);
    assert_non_null(l->l->generations.list[0].adapter);
    rv_learner_free(&l);
}

/* ---- leaving ---- */

/* A heap that holds up the thread that computes in the background, until it is let go. */
typedef struct gated_heap {
    pthread_t caller;
    rv_learner *l;
    atomic_bool armed, held, open;
    atomic_int n_blocks;
} gated_heap;

static void hold_up(gated_heap *h)
{
    /* from its first report on, nobody but the computing thread allocates beside the caller */
    if (!atomic_load(&h->armed) || pthread_equal(pthread_self(), h->caller) ||
        !atomic_load(&h->l->l->doing.stage))
        return;
    atomic_store(&h->held, true);
    while (!atomic_load(&h->open)) rvi_thread_sleep(1e-3);
}

static void *gated_alloc(void *ctx, size_t size)
{
    gated_heap *h = ctx;
    hold_up(h);
    atomic_fetch_add(&h->n_blocks, 1);
    return malloc(size);
}

static void *gated_resize(void *ctx, void *p, size_t size)
{
    gated_heap *h = ctx;
    if (!p) atomic_fetch_add(&h->n_blocks, 1);
    return realloc(p, size);
}

static void gated_release(void *ctx, void *p)
{
    gated_heap *h = ctx;
    if (p) atomic_fetch_sub(&h->n_blocks, 1);
    free(p);
}

/* Whoever frees a learner is not held up by what it computes, and all of it is freed when that
 * thread has noticed. */
static void freeing_does_not_wait(void **ctx)
{
    (void)ctx;
    gated_heap heap = {.caller = pthread_self()};
    rv_allocator hooks = {gated_alloc, gated_resize, gated_release, &heap};
    rv_runtime_options ro;
    rv_runtime *rt;
    rv_model *m;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 2;
    ro.allocator = &hooks;
    assert_ok(rv_runtime_new(&rt, &ro, err));
    assert_ok(rv_model_open(&m, rt, model_path, 0, err));
    assert_ok(rv_learner_new(&heap.l, m, NULL, err));
    heap.l->bg.brisk = true;
    correct(heap.l, "What is Zorkin's favourite colour?", "blue");
    atomic_store(&heap.armed, true);
    assert_ok(rv_learner_start(heap.l, err));
    while (!atomic_load(&heap.held)) rvi_thread_sleep(1e-3);
    rv_learner *l = heap.l;
    rv_learner_free(&l);
    assert_null(l);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    assert_true(atomic_load(&heap.n_blocks) > 0); /* that thread has them */
    atomic_store(&heap.armed, false);
    atomic_store(&heap.open, true);
    while (atomic_load(&heap.n_blocks)) rvi_thread_sleep(1e-3);
}

/* Nothing is computed before something was taught. Then the thread calibrates by itself, once:
 * whoever opens the same store finds it. */
static int calibrate(void **ctx)
{
    (void)ctx;
    opened o;
    rv_learner_options lo;
    rv_learner *l;
    assert_ok(rvi_store_memory(&calibrated, err));
    rv_store store = memory_store(&calibrated);
    open_all(&o, model_path, 2, 128);
    lo = (rv_learner_options){.size = sizeof lo};
    lo.store = &store;
    assert_ok(rv_learner_new(&l, o.m, &lo, err));
    l->bg.brisk = true;
    assert_false(look(l).calibrated);
    assert_ok(rv_learner_start(l, err));
    for (int i = 0; i < 10; i++) {
        rvi_thread_sleep(0.03);
        rvi_background_wake(l);
        assert_true(look(l).resting);
    }
    assert_false(look(l).calibrated);
    correct(l, "What is Zorkin's favourite colour?", "blue");
    while (!look(l).calibrated) rvi_thread_sleep(0.1);
    rv_learner_free(&l);
    assert_ok(rv_learner_new(&l, o.m, &lo, err));
    assert_true(look(l).calibrated);
    rv_learner_free(&l);
    close_all(&o);
    return 0;
}

static int clear(void **ctx)
{
    (void)ctx;
    rvi_store_close(&calibrated);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(publishes_what_the_foreground_would, set_up, tear_down),
        cmocka_unit_test_setup_teardown(starts_pauses_and_ends_in_any_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers_stay_the_same_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_taken_back_is_not_published, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pause_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(scores_and_thumbs_survive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rolls_back_while_it_trains, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_lent_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(judgements_are_attended_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deep_runs_begin_by_themselves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(training_has_its_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(corrected_adapters_are_not_kept, set_up, tear_down),
        cmocka_unit_test(freeing_does_not_wait),
    };
    return cmocka_run_group_tests(tests, calibrate, clear);
}
