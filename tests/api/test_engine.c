/* Engines: steps over rows of many sessions, prefix sync, answers that advance together. What a
 * session gets is compared bit for bit with what it gets alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";
static const int32_t prompt[] = {1, 270, 280, 290, 300, 310, 265, 271};
enum { N_PROMPT = 8 };

static int vocab_of(const rv_model *m)
{
    const rv_model_info *info = rv_model_get_info(m);
    assert_non_null(info);
    return info->n_vocab;
}

static rv_engine *engine_of(const rv_model *m, int n_tokens, int max_rows, int max_logits)
{
    rv_engine_options o;
    rv_engine *e;
    o = (rv_engine_options){.size = sizeof o};
    o.n_tokens = n_tokens;
    o.max_rows = max_rows;
    o.max_logits = max_logits;
    assert_ok(rv_engine_new(&e, m, &o, err));
    return e;
}

static rv_session *session_in(rv_engine *e, const rv_model *m, const rv_adapter_set *set)
{
    rv_session_options o;
    rv_session *s;
    o = (rv_session_options){.size = sizeof o};
    o.engine = e;
    o.adapters = set;
    o.n_context = 64;
    assert_ok(rv_session_new(&s, m, &o, err));
    return s;
}

/* ---- prefix sync ---- */

static void sync_reuses_extends_rebuilds(void **state)
{
    (void)state;
    opened o;
    size_t reused;
    float *logits, first[512], again[512];
    const int32_t *held;
    open_all(&o, model_path, 1, 64);
    int n_vocab = vocab_of(o.m);
    assert_in_range(n_vocab, 1, 512);
    size_t bytes = (size_t)n_vocab * sizeof(float);

    assert_ok(rv_session_sync(o.s, prompt, N_PROMPT, &reused, &logits, err));
    assert_int_equal(reused, 0);
    memcpy(first, logits, bytes);
    assert_int_equal(rv_session_tokens(o.s, &held), N_PROMPT);
    assert_memory_equal(held, prompt, sizeof prompt);

    /* the same again: all but the last token, whose logits are wanted */
    assert_ok(rv_session_sync(o.s, prompt, N_PROMPT, &reused, &logits, err));
    assert_int_equal(reused, N_PROMPT - 1);
    assert_memory_equal(first, logits, bytes);
    assert_ok(rv_session_sync(o.s, prompt, N_PROMPT, &reused, NULL, err));
    assert_int_equal(reused, N_PROMPT);

    /* shorter, then extended token by token: the same bits as at once */
    assert_ok(rv_session_sync(o.s, prompt, 3, &reused, NULL, err));
    assert_int_equal(reused, 3);
    assert_int_equal(rv_session_tokens(o.s, NULL), 3);
    for (size_t n = 4; n <= N_PROMPT; n++)
        assert_ok(rv_session_sync(o.s, prompt, n, &reused, &logits, err));
    assert_int_equal(reused, N_PROMPT - 1);
    assert_memory_equal(first, logits, bytes);

    /* another beginning: rebuilt, and back again */
    int32_t other[N_PROMPT];
    memcpy(other, prompt, sizeof other);
    other[1] = 299;
    assert_ok(rv_session_sync(o.s, other, N_PROMPT, &reused, &logits, err));
    assert_int_equal(reused, 1);
    memcpy(again, logits, bytes);
    assert_memory_not_equal(first, again, bytes);
    assert_ok(rv_session_sync(o.s, prompt, N_PROMPT, &reused, &logits, err));
    assert_memory_equal(first, logits, bytes);

    /* nothing at all empties it; refused input changes nothing */
    assert_ok(rv_session_sync(o.s, NULL, 0, &reused, NULL, err));
    assert_int_equal(rv_session_tokens(o.s, NULL), 0);
    assert_refused(RV_E_INVALID, rv_session_sync(o.s, NULL, 0, &reused, &logits, err));
    assert_ok(rv_session_sync(o.s, prompt, 5, &reused, NULL, err));
    other[7] = n_vocab;
    assert_refused(RV_E_INVALID, rv_session_sync(o.s, other, 8, &reused, &logits, err));
    int32_t many[65] = {1};
    assert_refused(RV_E_TOO_LONG, rv_session_sync(o.s, many, 65, &reused, &logits, err));
    assert_int_equal(rv_session_tokens(o.s, &held), 5);
    assert_memory_equal(held, prompt, 5 * sizeof *prompt);
    close_all(&o);
}

/* ---- steps ---- */

typedef struct three {
    rv_model *m;
    rv_adapter_set *sets[3]; /* none, one, another scale */
} three;

static void load_three(three *t, rv_runtime **rt)
{
    rv_runtime_options ro;
    rv_adapter *a;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 2;
    assert_ok(rv_runtime_new(rt, &ro, err));
    assert_ok(rv_model_open(&t->m, *rt, "tests/golden/llama", NULL, err));
    assert_ok(rv_adapter_load(&a, t->m, "tests/golden/llama/lora", err));
    rv_adapter_use use = {a, 1};
    t->sets[0] = NULL;
    assert_ok(rv_adapter_set_new(&t->sets[1], t->m, &use, 1, err));
    use.scale = -0.5f;
    assert_ok(rv_adapter_set_new(&t->sets[2], t->m, &use, 1, err));
    rv_adapter_free(&a);
}

static void free_three(three *t, rv_runtime **rt)
{
    for (int i = 0; i < 3; i++) rv_adapter_set_free(&t->sets[i]);
    rv_model_close(&t->m);
    rv_runtime_free(rt);
}

/* Three sequences with three adapter sets in one step after the other, against each alone. */
static void rows_of_many_sessions(void **state)
{
    (void)state;
    enum { STEPS = 6 };
    static const int32_t tokens[3][STEPS] = {
        {5, 6, 7, 8, 9, 10}, {40, 3, 22, 8, 1, 2}, {5, 6, 7, 8, 9, 10}};
    three t;
    rv_runtime *rt;
    load_three(&t, &rt);
    rv_engine *e = engine_of(t.m, 256, 16, 8);
    int n_vocab = vocab_of(t.m);
    size_t bytes = (size_t)n_vocab * sizeof(float);
    static float alone[3][STEPS][1024];
    assert_in_range(n_vocab, 1, 1024);
    for (int i = 0; i < 3; i++) {
        rv_session *s = session_in(e, t.m, t.sets[i]);
        for (size_t n = 1; n <= STEPS; n++) {
            float *logits;
            assert_ok(rv_session_sync(s, tokens[i], n, NULL, &logits, err));
            memcpy(alone[i][n - 1], logits, bytes);
        }
        rv_session_free(&s);
        assert_null(s);
    }
    assert_memory_not_equal(alone[0][STEPS - 1], alone[2][STEPS - 1], bytes); /* adapters matter */

    /* the adapter set of the session, then the set named by the row */
    for (int by_row = 0; by_row < 2; by_row++) {
        rv_session *s[3];
        rv_row rows[3];
        for (int i = 0; i < 3; i++) s[i] = session_in(e, t.m, by_row ? NULL : t.sets[i]);
        for (int n = 0; n < STEPS; n++) {
            for (int i = 0; i < 3; i++)
                rows[2 - i] = (rv_row){.session = s[i],
                                       .token = tokens[i][n],
                                       .want_logits = 1,
                                       .adapters = by_row ? t.sets[i] : NULL};
            assert_ok(rv_engine_step(e, rows, 3, err));
            for (int i = 0; i < 3; i++)
                assert_memory_equal(rv_engine_logits(e, (size_t)(2 - i)), alone[i][n], bytes);
            assert_null(rv_engine_logits(e, 3));
        }
        /* several rows of one session and one of another; logits of the last alone */
        assert_ok(rv_session_sync(s[0], NULL, 0, NULL, NULL, err));
        rv_row chunk[STEPS];
        for (int n = 0; n < STEPS; n++)
            chunk[n] =
                (rv_row){.session = s[0], .token = tokens[0][n], .want_logits = n == STEPS - 1};
        assert_ok(rv_engine_step(e, chunk, STEPS, err));
        if (by_row) assert_memory_equal(rv_engine_logits(e, 0), alone[0][STEPS - 1], bytes);
        assert_null(rv_engine_logits(e, 1));
        for (int i = 0; i < 3; i++) rv_session_free(&s[i]);
    }
    rv_engine_free(&e);
    free_three(&t, &rt);
}

/* Keys and values of one adapter set are never reused under another. */
static void sets_do_not_mix(void **state)
{
    (void)state;
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10};
    three t;
    rv_runtime *rt;
    size_t reused;
    float *logits, want[1024];
    load_three(&t, &rt);
    rv_engine *e = engine_of(t.m, 128, 16, 2);
    size_t bytes = (size_t)vocab_of(t.m) * sizeof(float);
    rv_session *fresh = session_in(e, t.m, NULL), *used = session_in(e, t.m, NULL);
    assert_ok(rv_session_sync(fresh, ids, 6, NULL, &logits, err));
    memcpy(want, logits, bytes);
    rv_row rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = (rv_row){.session = used, .token = ids[i], .adapters = i < 2 ? NULL : t.sets[1]};
    assert_ok(rv_engine_step(e, rows, 3, err));
    assert_ok(rv_session_sync(used, ids, 6, &reused, &logits, err));
    assert_int_equal(reused, 2); /* the third was computed with adapters */
    assert_memory_equal(want, logits, bytes);
    rv_session_free(&fresh);
    rv_session_free(&used);
    rv_engine_free(&e);
    free_three(&t, &rt);
}

static void forks_share_the_past(void **state)
{
    (void)state;
    opened o;
    rv_session *fork;
    float *logits, want[512];
    open_all(&o, model_path, 1, 64);
    rv_engine *e = engine_of(o.m, 256, 32, 4);
    rv_session *s = session_in(e, o.m, NULL);
    size_t bytes = (size_t)vocab_of(o.m) * sizeof(float);
    assert_ok(rv_session_sync(s, prompt, 5, NULL, NULL, err));
    assert_ok(rv_session_fork(&fork, s, err));
    assert_int_equal(rv_session_tokens(fork, NULL), 5);
    assert_ok(rv_session_sync(s, prompt, N_PROMPT, NULL, &logits, err));
    memcpy(want, logits, bytes);
    rv_session_free(&s); /* the fork goes on without it */
    size_t reused;
    assert_ok(rv_session_sync(fork, prompt, N_PROMPT, &reused, &logits, err));
    assert_int_equal(reused, 5);
    assert_memory_equal(want, logits, bytes);
    rv_session_free(&fork);
    rv_engine_free(&e);
    close_all(&o);
}

static void bad_steps_change_nothing(void **state)
{
    (void)state;
    opened o;
    three t;
    rv_runtime *rt;
    open_all(&o, model_path, 1, 64);
    load_three(&t, &rt);
    rv_engine *e = engine_of(o.m, 64, 4, 2); /* two pages of 32 */
    rv_session *a = session_in(e, o.m, NULL), *b = session_in(e, o.m, NULL);
    rv_row rows[5];
    for (int i = 0; i < 5; i++) rows[i] = (rv_row){.session = i % 2 ? b : a, .token = 5 + i};
    assert_refused(RV_E_CONFIG, rv_engine_step(e, rows, 0, err));
    assert_refused(RV_E_CONFIG, rv_engine_step(e, rows, 5, err));
    for (int i = 0; i < 3; i++) rows[i].want_logits = 1;
    assert_refused(RV_E_CONFIG, rv_engine_step(e, rows, 3, err)); /* three logits, room for two */
    rows[1].token = 320;
    assert_refused(RV_E_INVALID, rv_engine_step(e, rows, 2, err));
    rows[1].token = -1;
    assert_refused(RV_E_INVALID, rv_engine_step(e, rows, 2, err));
    rows[1].token = 5;
    rows[1].session = o.s; /* another engine's */
    assert_refused(RV_E_INVALID, rv_engine_step(e, rows, 2, err));
    rows[1].session = NULL;
    assert_refused(RV_E_INVALID, rv_engine_step(e, rows, 2, err));
    rows[1] = (rv_row){.session = b, .token = 5, .adapters = t.sets[1]};
    assert_refused(RV_E_ADAPTER, rv_engine_step(e, rows, 2, err));
    assert_int_equal(rv_session_tokens(a, NULL), 0);
    assert_int_equal(rv_session_tokens(b, NULL), 0);
    /* a step whose last row finds no page takes none of the others along */
    int32_t ids[63];
    for (int i = 0; i < 63; i++) ids[i] = 5 + i;
    assert_ok(rv_session_sync(a, ids, 32, NULL, NULL, err));
    rv_session *c = session_in(e, o.m, NULL);
    rv_row two[3] = {
        {.session = b, .token = 7}, {.session = c, .token = 8}, {.session = b, .token = 9}};
    assert_refused(RV_E_NO_PAGES, rv_engine_step(e, two, 3, err));
    assert_int_equal(rv_session_tokens(b, NULL), 0);
    assert_int_equal(rv_session_tokens(c, NULL), 0);
    two[1] = two[2];
    assert_ok(rv_engine_step(e, two, 2, err));
    assert_int_equal(rv_session_tokens(b, NULL), 2);
    rv_session_free(&c);
    rv_session_free(&a);
    rv_session_free(&b);
    rv_engine_free(&e);
    free_three(&t, &rt);
    close_all(&o);
}

/* ---- many answers at once ---- */

typedef struct noted {
    int tokens, done;
    rv_session *session;
    rv_finish finish;
} noted;

static int note(void *ctx, const rv_event *ev)
{
    noted *l = ctx;
    l->session = ev->session;
    if (ev->kind == RV_EVENT_TOKEN && ev->id >= 0) l->tokens++;
    if (ev->kind == RV_EVENT_DONE) {
        l->done++;
        l->finish = ev->finish;
        assert_int_equal(ev->n_generated, l->tokens);
        assert_int_equal(ev->finish == RV_FINISH_ERROR, ev->error != NULL);
    }
    return 0;
}

enum { N = 7 };

/* Different prompts, lengths and seeds; max_rows and max_logits smaller than what they need. */
static void answers_advance_together(void **state)
{
    (void)state;
    static const int limits[][2] = {{64, 16}, {5, 2}, {3, 1}};
    opened o;
    open_all(&o, model_path, 2, 64);
    int32_t prompts[N][20];
    size_t lens[N];
    rv_sampling sampling[N];
    rv_generate_options go[N];
    rv_answer *alone[N];
    for (int i = 0; i < N; i++) {
        lens[i] = (size_t)(3 + 2 * i);
        for (size_t k = 0; k < lens[i]; k++)
            prompts[i][k] = 262 + (int32_t)((k * 7 + (size_t)(i / 2) * 3) % 50);
        sampling[i] = (rv_sampling){.size = sizeof sampling[i]};
        sampling[i].seed = (uint64_t)i;
        sampling[i].temperature = 1.5f;
        go[i] = (rv_generate_options){.size = sizeof go[i]};
        go[i].sampling = &sampling[i];
        go[i].max_tokens = 20 - 2 * i;
        go[i].ignore_eos = i % 2;
        go[i].logprobs = i % 3 != 0;
        go[i].top_logprobs = i % 3 == 2;
        assert_ok(rv_session_generate(o.s, prompts[i], lens[i], &go[i], &alone[i], err));
    }
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        rv_engine *e = engine_of(o.m, 32 * 2 * N, limits[k][0], limits[k][1]);
        rv_session *s[N];
        noted logs[N] = {{0}};
        size_t running, steps = 0;
        for (int i = 0; i < N; i++) {
            s[i] = session_in(e, o.m, NULL);
            go[i].on_event = note;
            go[i].ctx = &logs[i];
            assert_ok(rv_session_start(s[i], prompts[i], lens[i], &go[i], err));
            assert_refused(RV_E_STATE, rv_session_start(s[i], prompts[i], lens[i], &go[i], err));
            assert_refused(RV_E_STATE, rv_session_sync(s[i], prompts[i], 1, NULL, NULL, err));
            rv_row row = {.session = s[i], .token = 5};
            assert_refused(RV_E_STATE, rv_engine_step(e, &row, 1, err));
        }
        do {
            assert_ok(rv_engine_advance(e, &running, err));
            assert_true(++steps < 1000);
        } while (running);
        for (int i = 0; i < N; i++) {
            rv_answer *g = NULL;
            assert_ok(rv_session_finish(s[i], &g, err));
            assert_int_equal(g->n_ids, alone[i]->n_ids);
            assert_memory_equal(g->ids, alone[i]->ids, g->n_ids * sizeof *g->ids);
            assert_string_equal(g->text, alone[i]->text);
            assert_int_equal(g->finish, alone[i]->finish);
            assert_int_equal(logs[i].done, 1);
            assert_ptr_equal(logs[i].session, s[i]);
            assert_int_equal(g->chosen != NULL, alone[i]->chosen != NULL);
            if (g->chosen)
                assert_memory_equal(g->chosen, alone[i]->chosen, g->n_ids * sizeof *g->chosen);
            rv_free(g);
            assert_refused(RV_E_STATE, rv_session_finish(s[i], &g, err));
            assert_null(g); /* a refused call leaves nothing behind */
            rv_session_free(&s[i]);
        }
        rv_engine_free(&e);
    }
    for (int i = 0; i < N; i++) rv_free(alone[i]);
    close_all(&o);
}

typedef struct turn {
    int *clock, first, last, gap; /* in steps: the first token, the latest, the longest wait */
} turn;

static int note_turn(void *ctx, const rv_event *ev)
{
    turn *t = ctx;
    if (ev->kind != RV_EVENT_TOKEN) return 0;
    if (!t->first) t->first = *t->clock;
    if (t->last && *t->clock - t->last > t->gap) t->gap = *t->clock - t->last;
    t->last = *t->clock;
    return 0;
}

/* More answers than a step has room for: those that decode take turns, and prompts are computed
 * one after the other in the order of their start. */
static void answers_take_turns(void **state)
{
    (void)state;
    static const int limits[][2] = {{1, 1}, {2, 2}, {16, 2}};
    opened o;
    open_all(&o, model_path, 1, 64);
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
        rv_engine *e = engine_of(o.m, 64 * N, limits[k][0], limits[k][1]);
        rv_session *s[N];
        turn turns[N] = {{0}};
        int clock = 0;
        size_t running;
        rv_generate_options go = greedy(12);
        go.on_event = note_turn;
        for (int i = 0; i < N; i++) {
            s[i] = session_in(e, o.m, NULL);
            turns[i].clock = &clock;
            go.ctx = &turns[i];
            assert_ok(rv_session_start(s[i], prompt, N_PROMPT, &go, err));
        }
        do {
            clock++;
            assert_true(clock < 1000);
            assert_ok(rv_engine_advance(e, &running, err));
        } while (running);
        for (int i = 0; i < N; i++) {
            if (i) assert_true(turns[i].first >= turns[i - 1].first);
            assert_true(turns[i].gap <= (N + limits[k][1] - 1) / limits[k][1]);
            rv_session_free(&s[i]);
        }
        rv_engine_free(&e);
    }
    close_all(&o);
}

/* Pages run out: the answer that finds none ends with that error, the other is not touched. */
static void one_failure_leaves_the_others(void **state)
{
    (void)state;
    opened o;
    rv_generate_options go = greedy(50);
    rv_answer *want = NULL, *g = NULL;
    open_all(&o, model_path, 1, 64);
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &want, err));
    rv_engine *e = engine_of(o.m, 96, 16, 4); /* three pages: two answers of 58 tokens need four */
    rv_session *a = session_in(e, o.m, NULL), *b = session_in(e, o.m, NULL);
    noted logs[2] = {{0}};
    go.on_event = note;
    go.ctx = &logs[0];
    assert_ok(rv_session_start(a, prompt, N_PROMPT, &go, err));
    go.ctx = &logs[1];
    assert_ok(rv_session_start(b, prompt, N_PROMPT, &go, err));
    size_t running;
    do assert_ok(rv_engine_advance(e, &running, err));
    while (running);
    rv_status st[2];
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        rv_error why = {0};
        st[i] = rv_session_finish(i ? b : a, &g, &why);
        if (st[i]) {
            failed++;
            assert_int_equal(st[i], RV_E_NO_PAGES);
            assert_int_equal(why.code, RV_E_NO_PAGES);
            assert_int_equal(g->finish, RV_FINISH_ERROR);
            assert_true(g->n_ids > 0 && g->n_ids < 50);
            assert_memory_equal(g->ids, want->ids, g->n_ids * sizeof *g->ids);
        } else {
            assert_int_equal(g->n_ids, 50);
            assert_memory_equal(g->ids, want->ids, 50 * sizeof *g->ids);
        }
        assert_int_equal(logs[i].finish, g->finish);
        rv_free(g);
    }
    assert_int_equal(failed, 1);
    rv_free(want);
    rv_session_free(&a);
    rv_session_free(&b);
    rv_engine_free(&e);
    close_all(&o);
}

/* A finish before the end cancels; a session freed with its answer under way takes it along. */
static void early_ends(void **state)
{
    (void)state;
    opened o;
    rv_generate_options go = greedy(40);
    rv_answer *g = NULL;
    size_t running;
    open_all(&o, model_path, 1, 64);
    rv_engine *e = engine_of(o.m, 256, 16, 4);
    rv_session *a = session_in(e, o.m, NULL), *b = session_in(e, o.m, NULL);
    assert_ok(rv_session_start(a, prompt, N_PROMPT, &go, err));
    assert_ok(rv_session_start(b, prompt, N_PROMPT, &go, err));
    for (int i = 0; i < 5; i++) assert_ok(rv_engine_advance(e, &running, err));
    assert_int_equal(running, 2);
    assert_ok(rv_session_finish(a, &g, err));
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_true(g->n_ids >= 4);
    rv_free(g);
    rv_session_free(&b);
    assert_ok(rv_engine_advance(e, &running, err));
    assert_int_equal(running, 0);
    rv_session_free(&a);
    rv_engine_free(&e);
    close_all(&o);
}

/* ---- hooks of an answer ---- */

static int only_even(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    size_t *calls = ctx;
    assert_int_equal(n_ids, (*calls)++);
    for (size_t i = 0; i < n_ids; i++) assert_int_equal(ids[i] % 2, 0);
    for (size_t i = 1; i < n_vocab; i += 2) logits[i] = -INFINITY;
    return 0;
}

static int nothing_at_all(void *ctx, const int32_t *ids, size_t n_ids, float *logits,
                          size_t n_vocab)
{
    (void)ctx, (void)ids, (void)n_ids;
    for (size_t i = 0; i < n_vocab; i++) logits[i] = -INFINITY;
    return 0;
}

static int enough(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    (void)ctx, (void)ids, (void)logits, (void)n_vocab;
    return n_ids == 4;
}

static void masks(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    size_t calls = 0;
    rv_generate_options go = greedy(30);
    open_all(&o, model_path, 1, 64);
    go.mask = only_even;
    go.ctx = &calls;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    assert_int_equal(g->n_ids, 30);
    for (size_t i = 0; i < g->n_ids; i++) assert_int_equal(g->ids[i] % 2, 0);
    rv_free(g);
    go.mask = nothing_at_all;
    assert_refused(RV_E_GENERATION, rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    assert_non_null(g); /* generating had begun */
    assert_int_equal(g->finish, RV_FINISH_ERROR);
    rv_free(g);
    go.mask = enough;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    assert_int_equal(g->finish, RV_FINISH_CANCELLED);
    assert_int_equal(g->n_ids, 4);
    rv_free(g);
    close_all(&o);
}

/* With every token made an end token by a bias, min_tokens decides where it ends. */
static void min_tokens(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    rv_sampling sampling;
    open_all(&o, model_path, 1, 64);
    const rv_model_info *info = rv_model_get_info(o.m);
    assert_true(info->n_eos > 0);
    rv_logit_bias always = {info->eos[0], 1000};
    sampling = (rv_sampling){.size = sizeof sampling, .greedy = 1};
    sampling.logit_bias = &always;
    sampling.n_logit_bias = 1;
    for (int n = 0; n < 5; n++) {
        rv_generate_options go;
        go = (rv_generate_options){.size = sizeof go};
        go.sampling = &sampling;
        go.min_tokens = n;
        assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
        assert_int_equal(g->finish, RV_FINISH_EOS);
        assert_int_equal(g->n_ids, n + 1);
        assert_int_equal(g->ids[n], info->eos[0]);
        rv_free(g);
    }
    close_all(&o);
}

static void logprobs(void **state)
{
    (void)state;
    opened o, second;
    rv_answer *g = NULL;
    rv_generate_options go;
    open_all(&o, model_path, 1, 64);
    open_all(&second, model_path, 1, 64);
    int n_vocab = vocab_of(o.m);
    go = (rv_generate_options){.size = sizeof go};
    go.max_tokens = 12;
    go.ignore_eos = 1;
    go.top_logprobs = 5;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    assert_int_equal(g->n_top, 5);
    int32_t past[64];
    memcpy(past, prompt, sizeof prompt);
    for (size_t t = 0; t < g->n_ids; t++) {
        float *logits;
        assert_ok(rv_session_sync(second.s, past, N_PROMPT + t, NULL, &logits, err));
        double sum = 0, best = -INFINITY;
        for (int i = 0; i < n_vocab; i++) sum += exp((double)logits[i]);
        for (int i = 0; i < n_vocab; i++)
            if (logits[i] > best) best = logits[i];
        assert_int_equal(g->chosen[t].id, g->ids[t]);
        assert_true(fabs(g->chosen[t].logprob - ((double)logits[g->ids[t]] - log(sum))) < 1e-5);
        assert_true(fabs(g->top[t * 5].logprob - (best - log(sum))) < 1e-5);
        for (int i = 1; i < 5; i++)
            assert_true(g->top[t * 5 + (size_t)i].logprob <= g->top[t * 5 + (size_t)i - 1].logprob);
        past[N_PROMPT + t] = g->ids[t];
    }
    rv_free(g);
    go.top_logprobs = 21;
    assert_refused(RV_E_CONFIG, rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    close_all(&o);
    close_all(&second);
}

/* The loop a program writes for itself gives what generate gives. */
static void a_loop_of_ones_own(void **state)
{
    (void)state;
    opened o;
    rv_answer *g = NULL;
    rv_generate_options go;
    rv_sampling sampling;
    rv_sampler *sampler;
    int32_t past[64], id;
    float *logits;
    open_all(&o, model_path, 1, 64);
    sampling = (rv_sampling){.size = sizeof sampling};
    sampling.seed = 42;
    go = (rv_generate_options){.size = sizeof go};
    go.sampling = &sampling;
    go.max_tokens = 20;
    go.ignore_eos = 1;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &g, err));
    rv_engine *e = engine_of(o.m, 64, 8, 1);
    rv_session *s = session_in(e, o.m, NULL);
    assert_ok(rv_sampler_new(&sampler, o.m, &sampling, err));
    memcpy(past, prompt, sizeof prompt);
    assert_ok(rv_session_sync(s, prompt, N_PROMPT, NULL, &logits, err));
    for (size_t n = N_PROMPT; n < N_PROMPT + 20; n++) {
        assert_ok(rv_sampler_pick(sampler, logits, past, n, N_PROMPT, &id, err));
        assert_int_equal(id, g->ids[n - N_PROMPT]);
        past[n] = id;
        rv_row row = {.session = s, .token = id, .want_logits = 1};
        assert_ok(rv_engine_step(e, &row, 1, err));
        logits = rv_engine_logits(e, 0);
    }
    rv_sampler_free(&sampler);
    rv_free(g);
    rv_session_free(&s);
    rv_engine_free(&e);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_reuses_extends_rebuilds),
        cmocka_unit_test(rows_of_many_sessions),
        cmocka_unit_test(sets_do_not_mix),
        cmocka_unit_test(forks_share_the_past),
        cmocka_unit_test(bad_steps_change_nothing),
        cmocka_unit_test(answers_advance_together),
        cmocka_unit_test(answers_take_turns),
        cmocka_unit_test(one_failure_leaves_the_others),
        cmocka_unit_test(early_ends),
        cmocka_unit_test(masks),
        cmocka_unit_test(min_tokens),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(a_loop_of_ones_own),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
