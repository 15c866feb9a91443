/* Several threads at one learner: two that decode, one that gives feedback, one that looks on and
 * switches the background thread, which trains all the while. A call that meets another waits for
 * it, or is refused and made again; none may fail otherwise, no answer that has to do with nothing
 * taught may change, and in the end everything that was said is there. Run it under TSan (make
 * tsan). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "api/memory_store.h"
#include "api/opened.h"
#include "base/json.h"
#include "base/os.h"

enum { DECODERS = 2, TOKENS = 12, FACTS = 6, SCORES = 6, BESIDE = 20 };

static const char model_path[] = "tests/gguf/llama.gguf";
static const int32_t prompt[] = {5, 9, 17, 33, 6, 40};
static const rv_message sea = {"user", "How warm is the sea?", NULL};
static const rv_chat unrelated = {.size = sizeof unrelated, .messages = &sea, .n_messages = 1};

typedef struct crowd {
    opened o;
    rvi_store state;
    rv_store store;
    rvi_buf dir;
    rv_learner *l;
    rv_answer *want;
    atomic_bool taught;
    int wait;
} crowd;

/* cmocka cannot fail in other threads: they say what went wrong, and the first one's word is
 * kept. */
typedef struct member {
    crowd *c;
    rv_session *s;
    rv_error err;
    int n_rounds, n_refused;
    char wrong[256];
} member;

static bool is_well(const member *m)
{
    return !m->wrong[0];
}

static bool went(member *m, rv_status st, const char *what)
{
    if (st)
        snprintf(m->wrong, sizeof m->wrong, "%s: %s %.150s", what, rv_status_name(st), m->err.text);
    return !st;
}

/* A call that is refused because the runtime computes for another thread: once more, after a
 * moment. */
static bool again(member *m, rv_status st)
{
    if (st != RV_E_BUSY) return false;
    m->n_refused++;
    rvi_thread_sleep(1e-3);
    return true;
}

#define CALL(m, call)                                                                              \
    do {                                                                                           \
        rv_status st_;                                                                             \
        if (!is_well(m)) break;                                                                    \
        do st_ = (call);                                                                           \
        while (again(m, st_));                                                                     \
        went(m, st_, #call);                                                                       \
    } while (0)

/* ---- the members ---- */

static void compare(member *m, const rv_answer *got)
{
    const rv_answer *want = m->c->want;
    bool same =
        got->n_ids == want->n_ids && !memcmp(got->ids, want->ids, want->n_ids * sizeof *want->ids);
    for (size_t i = 0; same && i < want->n_ids; i++)
        same = !memcmp(&got->chosen[i].logprob, &want->chosen[i].logprob,
                       sizeof want->chosen[i].logprob);
    if (!same) snprintf(m->wrong, sizeof m->wrong, "the answer changed in round %d", m->n_rounds);
}

static void decode(void *ctx)
{
    member *m = ctx;
    rv_generate_options g = greedy(TOKENS);
    rv_answer *got = NULL;
    rv_learn_plan *plan = NULL;
    g.top_logprobs = 2;
    while (is_well(m) && !atomic_load(&m->c->taught)) {
        CALL(m, rv_learner_begin(m->c->l, m->s, &unrelated, &plan, &m->err));
        bool always = is_well(m) && plan->n_adapters; /* what scores move always takes part */
        if (is_well(m) && plan->gate_open) snprintf(m->wrong, sizeof m->wrong, "the gate opened");
        rv_free(plan);
        CALL(m, rv_session_generate(m->s, prompt, RVI_COUNT(prompt), &g, &got, &m->err));
        if (!is_well(m)) return;
        if (!always) compare(m, got);
        rv_free(got);
        m->n_rounds++;
        rvi_thread_sleep(0.05); /* training rests for a moment after each call */
    }
}

/* Every third fact is taken back, every fourth is forgotten by its name. */
static void teach(void *ctx)
{
    member *m = ctx;
    rv_learner *l = m->c->l;
    char question[64], name[32];
    for (int i = 0; is_well(m) && i < FACTS; i++) {
        snprintf(name, sizeof name, "Zorkin%c", 'a' + i);
        snprintf(question, sizeof question, "What is %s's favourite colour?", name);
        CALL(m, rv_learner_correct(l, NULL, question, "blue", NULL, &m->err));
        if (i % 3 == 2) CALL(m, rv_learner_undo(l, NULL, &m->err));
        if (i % 4 == 3) CALL(m, rv_learner_forget(l, name, NULL, &m->err));
        rvi_thread_sleep(0.05);
    }
    CALL(m, rv_learner_prefer(l, "Say it.", "yes", "no", NULL, &m->err));
}

static void score(member *m)
{
    rv_generate_options g = greedy(TOKENS);
    rv_answer *got = NULL;
    for (int i = 0; is_well(m) && i < SCORES; i++) {
        CALL(m, rv_learner_begin(m->c->l, m->s, &unrelated, NULL, &m->err));
        CALL(m, rv_session_generate(m->s, prompt, RVI_COUNT(prompt), &g, &got, &m->err));
        if (is_well(m)) rv_free(got);
        CALL(m, rv_learner_score(m->c->l, m->s, i % 2 ? 0.9 : 0.2, NULL, &m->err));
    }
    CALL(m, rv_learner_begin(m->c->l, m->s, &unrelated, NULL, &m->err));
    CALL(m, rv_session_generate(m->s, prompt, RVI_COUNT(prompt), &g, &got, &m->err));
    if (is_well(m)) rv_free(got);
    CALL(m, rv_learner_thumb(m->c->l, m->s, 0, NULL, &m->err));
}

static void judge(void *ctx)
{
    score(ctx);
}

static void look_on(void *ctx)
{
    member *m = ctx;
    while (is_well(m) && !atomic_load(&m->c->taught)) {
        char *json = NULL;
        uint64_t n;
        CALL(m, rv_learner_status(m->c->l, &json, &m->err));
        if (json && strstr(json, "background_error"))
            snprintf(m->wrong, sizeof m->wrong, "%.200s", strstr(json, "background_error"));
        rv_free(json);
        CALL(m, rv_learner_verify_log(m->c->l, &n, &m->err));
        if (m->n_rounds++ % 8 == 7) {
            rv_learner_pause(m->c->l);
            CALL(m, rv_learner_start(m->c->l, &m->err));
        }
        rvi_thread_sleep(0.1);
    }
}

/* ---- the room ---- */

static int64_t number_in(crowd *c, const char *name)
{
    char *json;
    rvi_arena arena = {0};
    const rvi_json *root;
    assert_ok(rv_learner_status(c->l, &json, err));
    assert_ok(rvi_json_parse(&root, json, strlen(json), &arena, "status", err));
    assert_null(rvi_json_get(root, "background_error"));
    int64_t n = rvi_json_int(rvi_json_get(root, name), -1);
    rvi_arena_deinit(&arena);
    rv_free(json);
    return n;
}

static void open_crowd(crowd *c, int wait)
{
    rv_learner_options lo;
    rv_generate_options g = greedy(TOKENS);
    *c = (crowd){.wait = wait};
    open_waiting(&c->o, model_path, 2, 256, wait);
    assert_ok(rvi_store_memory(&c->state, err));
    c->store = memory_store(&c->state);
    assert_ok(rvi_os_temp_dir(&c->dir, "/tmp", err));
    g.top_logprobs = 2;
    assert_ok(rv_session_generate(c->o.s, prompt, RVI_COUNT(prompt), &g, &c->want, err));
    lo = (rv_learner_options){.size = sizeof lo};
    lo.store = &c->store;
    lo.dir = c->dir.data;
    lo.experiments = "n_steps=3";
    assert_ok(rv_learner_new(&c->l, c->o.m, &lo, err));
    c->l->bg.brisk = true; /* it must end on a busy machine too */
    assert_ok(rv_learner_calibrate(c->l, NULL, NULL, err));
    assert_ok(rv_learner_start(c->l, err));
}

static void close_crowd(crowd *c)
{
    rv_learner_free(&c->l);
    rv_free(c->want);
    close_all(&c->o);
    rvi_store_close(&c->state);
    rvi_os_remove_tree(c->dir.data);
    rvi_buf_deinit(&c->dir);
}

/* Until it has trained what waits, or so many seconds have passed. */
static void wait_for_training(crowd *c, double seconds)
{
    double end = rvi_os_seconds() + seconds;
    member me = {.c = c};
    for (bool done = false; !done && rvi_os_seconds() < end;) {
        char *json = NULL;
        CALL(&me, rv_learner_status(c->l, &json, &me.err));
        if (!is_well(&me)) fail_msg("%s", me.wrong);
        done = strstr(json, "\"waiting\":0") != NULL;
        rv_free(json);
        if (!done) rvi_thread_sleep(0.2);
    }
}

/* All of them at once. Who teaches ends by himself; the others go on beside the training for a
 * while. */
static void run_all(crowd *c, void (*teacher)(void *ctx))
{
    void (*const roles[])(void *ctx) = {teacher, look_on, decode, decode};
    member m[2 + DECODERS];
    rvi_thread *threads[RVI_COUNT(m)];
    rv_session_options so;
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 128;
    for (size_t i = 0; i < RVI_COUNT(m); i++) {
        m[i] = (member){.c = c};
        assert_ok(rv_session_new(&m[i].s, c->o.m, &so, err));
    }
    atomic_store(&c->taught, false);
    for (size_t i = 0; i < RVI_COUNT(m); i++)
        assert_ok(rvi_thread_start(&threads[i], roles[i], &m[i], false, err));
    rvi_thread_join(threads[0]);
    wait_for_training(c, BESIDE);
    atomic_store(&c->taught, true);
    for (size_t i = 1; i < RVI_COUNT(m); i++) rvi_thread_join(threads[i]);
    for (size_t i = 0; i < RVI_COUNT(m); i++) {
        if (!is_well(&m[i])) fail_msg("member %zu: %s", i, m[i].wrong);
        if (c->wait == RV_WAIT_FOREVER) assert_int_equal(m[i].n_refused, 0);
        rv_session_free(&m[i].s);
    }
    wait_for_training(c, INFINITY);
    assert_true(m[1].n_rounds > 0);
    assert_true(m[2].n_rounds + m[3].n_rounds > 0);
}

static void meet(int wait)
{
    crowd c;
    uint64_t n;
    open_crowd(&c, wait);
    run_all(&c, teach);
    assert_int_equal(number_in(&c, "lessons"), 3); /* a, b, e; c and f taken back, d forgotten */
    assert_int_equal(number_in(&c, "waiting"), 0);
    run_all(&c, judge);
    assert_ok(rv_learner_verify_log(c.l, &n, err));
    /* 6 corrections, 2 undone, 1 forgotten, 1 preference, 6 scores, 1 thumb; what was published */
    assert_true(n > 17);
    rv_learner_pause(c.l);
    int64_t lessons = number_in(&c, "lessons");
    rv_learner_options lo;
    lo = (rv_learner_options){.size = sizeof lo};
    lo.store = &c.store;
    lo.dir = c.dir.data;
    rv_learner_free(&c.l);
    assert_ok(rv_learner_new(&c.l, c.o.m, &lo, err)); /* all of it is there again */
    assert_int_equal(number_in(&c, "lessons"), lessons);
    assert_int_equal(number_in(&c, "waiting"), 0);
    close_crowd(&c);
}

static void all_in_turn(void **ctx)
{
    (void)ctx;
    meet(RV_WAIT_FOREVER);
}

static void all_at_once(void **ctx)
{
    (void)ctx;
    meet(RV_WAIT_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_in_turn),
                                       cmocka_unit_test(all_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
