/* Guessed tokens: whatever is guessed, an answer is the one it is without guesses, bit for bit, and
 * so is the session afterwards. Here every guess that fits is tried (tries_all); whether guesses
 * pay is another matter, at the end. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/api.h"
#include "api/opened.h"
#include "decode/answer.h"
#include "decode/drafter.h"
#include "decode/sampler.h"
#include "harness/amount.h"

enum { N_PROMPT = 48, N_NEW = 64, CONTEXT = 160, MOST_EVENTS = 256 };

static const char *const paths[] = {"tests/gguf/llama.gguf", "tests/gguf/qwen2.gguf",
                                    "tests/gguf/qwen3.gguf", "tests/gguf/mistral.gguf",
                                    "tests/gguf/phi3.gguf",  "tests/gguf/gemma2.gguf",
                                    "tests/gguf/q-q4_k.gguf"};

static int32_t prompt[N_PROMPT];

/* Everything that can be seen of an answer. */
typedef struct seen {
    uint64_t hash; /* of all events but the last, in order, and of what a mask was called with */
    int n_events, n_masks;
    int cancel_at; /* the event at which to cancel; 0: never */
    bool by_return, check_tokens;
    rv_session *s;
} seen;

static void mix(seen *x, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++) x->hash = (x->hash ^ b[i]) * 1099511628211u;
}

static int on_event(void *ctx, const rv_event *ev)
{
    seen *x = ctx;
    if (ev->kind == RV_EVENT_PROMPT) return 0;
    if (ev->kind == RV_EVENT_DONE) {
        mix(x, &ev->finish, sizeof ev->finish);
        mix(x, &ev->n_generated, sizeof ev->n_generated);
        return 0;
    }
    mix(x, &ev->id, sizeof ev->id);
    mix(x, ev->text, ev->text_len + 1);
    if (ev->chosen) mix(x, ev->chosen, sizeof *ev->chosen);
    if (ev->n_top) mix(x, ev->top, ev->n_top * sizeof *ev->top);
    size_t n = rv_session_tokens(x->s, NULL);
    mix(x, &n, sizeof n);
    if (++x->n_events != x->cancel_at) return 0;
    if (x->by_return) return 1;
    rv_session_cancel(x->s);
    return 0;
}

static int on_mask(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    seen *x = ctx;
    mix(x, &n_ids, sizeof n_ids);
    if (n_ids) mix(x, ids, n_ids * sizeof *ids);
    logits[n_ids % n_vocab] = -INFINITY;
    x->n_masks++;
    return 0;
}

static rv_session *new_session(const opened *o, int n_context, bool guesses)
{
    rv_session *s;
    rv_session_options so = {.size = sizeof so, .n_context = n_context};
    assert_ok(rv_session_new(&s, o->m, &so, err));
    s->e->e->tries_all = guesses;
    return s;
}

typedef struct outcome {
    rv_answer *a;
    seen x;
    int n_past;
    int32_t past[CONTEXT];
} outcome;

static outcome answer(rv_session *s, const int32_t *ids, size_t n, const rv_generate_options *given,
                      const seen *how)
{
    outcome out = {.x = *how};
    rv_generate_options o = *given;
    const int32_t *past;
    out.x.s = s;
    o.on_event = on_event;
    o.ctx = &out.x;
    o.draft = s->e->e->tries_all ? RV_DRAFT_NGRAM : RV_DRAFT_OFF;
    assert_ok(rv_session_generate(s, ids, n, &o, &out.a, err));
    out.n_past = (int)rv_session_tokens(s, &past);
    assert_true(out.n_past <= CONTEXT);
    memcpy(out.past, past, (size_t)out.n_past * sizeof *past);
    assert_int_equal(s->s->n_ahead, 0);
    assert_int_equal(s->s->past.len, out.n_past);
    assert_int_equal(rvi_pages_in_use(s->e->e->pool),
                     (out.n_past + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    return out;
}

/* Compares and frees both; returns how many guesses were right. */
static int assert_same(outcome *got, outcome *want)
{
    rv_answer *a = got->a, *b = want->a;
    int n_right = a->n_right;
    assert_int_equal(b->n_guessed, 0);
    assert_true(a->n_right <= a->n_guessed);
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->finish, b->finish);
    assert_true(!a->chosen == !b->chosen && a->n_top == b->n_top);
    if (a->chosen) assert_memory_equal(a->chosen, b->chosen, a->n_ids * sizeof *a->chosen);
    if (a->n_top) assert_memory_equal(a->top, b->top, a->n_ids * a->n_top * sizeof *a->top);
    assert_int_equal(got->x.n_events, want->x.n_events);
    assert_int_equal(got->x.n_masks, want->x.n_masks);
    assert_true(got->x.hash == want->x.hash);
    assert_int_equal(got->n_past, want->n_past);
    assert_memory_equal(got->past, want->past, (size_t)got->n_past * sizeof *got->past);
    rv_free(a);
    rv_free(b);
    return n_right;
}

static void set_prompt(const opened *o, uint64_t seed)
{
    rvi_rng rng = {seed};
    for (int i = 0; i < N_PROMPT; i++) /* every token several times, so there is always a guess */
        prompt[i] = (int32_t)(3 + rvi_rng_u64(&rng) % 12 * 7) % o->m->model->hp.n_vocab;
}

static rv_sampling sampling_of(uint64_t seed)
{
    static const float temperatures[] = {0.2f, 0.7f, 1.5f};
    rv_sampling s = {.size = sizeof s, .seed = seed, .repetition_penalty = 1};
    s.greedy = seed % 4 == 0;
    s.temperature = temperatures[seed % 3];
    if (seed % 5 == 1) s.repetition_penalty = 1.2f;
    if (seed % 5 == 2) s.mirostat_tau = 4;
    if (seed % 5 == 3) s.dry_multiplier = 0.8f;
    return s;
}

/* An answer, then another that goes on from what the first has left in the pages. */
static int compare_two_turns(const opened *o, uint64_t seed)
{
    rv_sampling sampling = sampling_of(seed);
    rv_generate_options go = {.size = sizeof go, .sampling = &sampling, .max_tokens = N_NEW};
    rv_session *s[2] = {new_session(o, CONTEXT, false), new_session(o, CONTEXT, true)};
    outcome out[2];
    int n_right = 0;
    go.ignore_eos = seed % 2;
    go.logprobs = seed % 3 == 0;
    go.top_logprobs = seed % 3 == 1 ? 3 : 0;
    if (seed % 4 == 2) go.mask = on_mask;
    set_prompt(o, seed);
    for (int k = 0; k < 2; k++) out[k] = answer(s[k], prompt, N_PROMPT, &go, &(seen){0});
    n_right += assert_same(&out[1], &out[0]);
    int32_t next[CONTEXT];
    size_t n = (size_t)out[0].n_past;
    memcpy(next, out[0].past, n * sizeof *next);
    next[n++] = prompt[0];
    go.max_tokens = 24;
    for (int k = 0; k < 2; k++) out[k] = answer(s[k], next, n, &go, &(seen){0});
    n_right += assert_same(&out[1], &out[0]);
    for (int k = 0; k < 2; k++) rv_session_free(&s[k]);
    return n_right;
}

static void same_answers(void **state)
{
    (void)state;
    for (size_t p = 0; p < RVI_COUNT(paths); p++) {
        opened o;
        int n_right = 0, turns = OFTEN(AMOUNT(30, 6), 6);
        open_all(&o, paths[p], 2, 64);
        for (int seed = 0; seed < turns; seed++) n_right += compare_two_turns(&o, (uint64_t)seed);
        print_message("%s: %d guesses right\n", paths[p], n_right);
        assert_true(n_right > turns * 2 / 3); /* of turns x 88 tokens */
        close_all(&o);
    }
}

/* At every event, by its answer and by a call. */
static void cancelled_anywhere(void **state)
{
    (void)state;
    opened o;
    int n_right = 0;
    open_all(&o, paths[0], 1, 64);
    rv_generate_options go = greedy(N_NEW);
    set_prompt(&o, 1);
    for (int at = 1; at <= N_NEW; at += AMOUNT(1, 3)) {
        rv_session *plain = new_session(&o, CONTEXT, false), *s = new_session(&o, CONTEXT, true);
        seen how = {.cancel_at = at, .by_return = at % 2};
        outcome want = answer(plain, prompt, N_PROMPT, &go, &how),
                got = answer(s, prompt, N_PROMPT, &go, &how);
        assert_int_equal(got.a->finish, RV_FINISH_CANCELLED);
        n_right += assert_same(&got, &want);
        rv_session_free(&plain);
        rv_session_free(&s);
    }
    assert_true(n_right > AMOUNT(100, 30));
    close_all(&o);
}

static void end_of_the_context(void **state)
{
    (void)state;
    opened o;
    open_all(&o, paths[0], 1, 64);
    rv_generate_options go = greedy(RV_TO_CONTEXT_END);
    set_prompt(&o, 2);
    for (int room = 1; room < 48; room += AMOUNT(1, 5)) {
        rv_session *plain = new_session(&o, N_PROMPT + room, false),
                   *s = new_session(&o, N_PROMPT + room, true);
        outcome want = answer(plain, prompt, N_PROMPT, &go, &(seen){0}),
                got = answer(s, prompt, N_PROMPT, &go, &(seen){0});
        assert_int_equal(got.a->n_ids, room);
        assert_same(&got, &want);
        rv_session_free(&plain);
        rv_session_free(&s);
    }
    close_all(&o);
}

/* Strings of every length from every place of an answer. */
static void stop_strings(void **state)
{
    (void)state;
    opened o;
    int n_stopped = 0;
    open_all(&o, paths[0], 1, 64);
    rv_generate_options go = greedy(N_NEW);
    set_prompt(&o, 1);
    rv_session *plain = new_session(&o, CONTEXT, false), *s = new_session(&o, CONTEXT, true);
    outcome whole = answer(plain, prompt, N_PROMPT, &go, &(seen){0});
    for (size_t at = 0; at + 8 < whole.a->text_len; at += AMOUNT(3, 10)) {
        char stop[8] = {0};
        const char *const stops[] = {"never", stop};
        memcpy(stop, whole.a->text + at, 1 + at % 7);
        go.stop = stops;
        go.n_stop = 2;
        outcome want = answer(plain, prompt, N_PROMPT, &go, &(seen){0}),
                got = answer(s, prompt, N_PROMPT, &go, &(seen){0});
        n_stopped += got.a->finish == RV_FINISH_STOP;
        assert_same(&got, &want);
    }
    assert_true(n_stopped > AMOUNT(10, 3));
    rv_free(whole.a);
    rv_session_free(&plain);
    rv_session_free(&s);
    close_all(&o);
}

/* ---- many in one engine ---- */

static void many_together(void **state)
{
    enum { N = 5 };
    (void)state;
    opened o;
    open_all(&o, paths[5], 2, 64);
    for (int max_logits = 1; max_logits <= 40; max_logits += 13) {
        rv_engine *e;
        rv_engine_options eo = {
            .size = sizeof eo, .n_tokens = N * 128, .max_rows = 40, .max_logits = max_logits};
        rv_session *s[N], *alone = new_session(&o, CONTEXT, false);
        rv_sampling sampling[N];
        assert_ok(rv_engine_new(&e, o.m, &eo, err));
        e->e->tries_all = true;
        set_prompt(&o, 3);
        for (int i = 0; i < N; i++) {
            rv_session_options so = {.size = sizeof so, .n_context = 128, .engine = e};
            sampling[i] = sampling_of((uint64_t)i);
            rv_generate_options go = {.size = sizeof go, .sampling = &sampling[i]};
            go.max_tokens = 60;
            go.ignore_eos = go.logprobs = 1;
            assert_ok(rv_session_new(&s[i], o.m, &so, err));
            assert_ok(rv_session_start(s[i], prompt, (size_t)(N_PROMPT - i), &go, err));
        }
        size_t running = 1;
        while (running) assert_ok(rv_engine_advance(e, &running, err));
        for (int i = 0; i < N; i++) {
            rv_answer *got;
            rv_generate_options go = {.size = sizeof go, .sampling = &sampling[i]};
            go.max_tokens = 60;
            go.ignore_eos = go.logprobs = 1;
            assert_ok(rv_session_finish(s[i], &got, err));
            outcome want = answer(alone, prompt, (size_t)(N_PROMPT - i), &go, &(seen){0});
            assert_int_equal(got->n_ids, want.a->n_ids);
            assert_memory_equal(got->ids, want.a->ids, got->n_ids * sizeof *got->ids);
            assert_memory_equal(got->chosen, want.a->chosen, got->n_ids * sizeof *got->chosen);
            if (max_logits == 1) assert_int_equal(got->n_guessed, 0);
            rv_free(got);
            rv_free(want.a);
            rv_session_free(&s[i]);
        }
        assert_int_equal(rvi_pages_in_use(e->e->pool), 0);
        rv_engine_free(&e);
        rv_session_free(&alone);
    }
    close_all(&o);
}

/* ---- an answer that is known ---- */

static void a_lesson_is_spoken_in_few_steps(void **state)
{
    (void)state;
    opened o;
    open_all(&o, paths[0], 1, 64);
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 5 + i * 11 % 150;
    set_prompt(&o, 4);
    for (int variant = 0; variant < 3; variant++) {
        rvi_generated g[2];
        for (int k = 0; k < 2; k++) {
            rv_session *s = new_session(&o, CONTEXT, k);
            /* variant 1: so little is added that the answer leaves the slot at some place */
            rvi_slot slot = {.ids = ids, .n = 40, .margin = variant == 1 ? -0.5f : 0};
            rv_generate_options go = greedy(N_NEW);
            rv_sampling sampling;
            rvi_sampling_init(&sampling, sizeof sampling, variant != 2);
            sampling.seed = 7;
            go.sampling = &sampling;
            go.top_logprobs = 2;
            go.draft = k ? RV_DRAFT_DEFAULT : RV_DRAFT_OFF;
            assert_ok(rvi_answer_start(s->s, prompt, N_PROMPT, &go, err));
            assert_ok(rvi_answer_lock(s->s, &slot, err));
            int n_steps = 0;
            while (rvi_answer_advance(s->e->e, s->s)) n_steps++;
            if (k && variant == 0) assert_true(n_steps < 40);
            assert_ok(rvi_answer_take(s->s, &g[k], err));
            if (variant == 0) assert_memory_equal(g[k].ids.data, ids, sizeof ids);
            if (k && variant == 0) assert_true(g[k].n_right >= 36);
            rv_session_free(&s);
        }
        assert_int_equal(g[0].ids.len, g[1].ids.len);
        assert_memory_equal(g[0].ids.data, g[1].ids.data, g[0].ids.len * sizeof *ids);
        assert_memory_equal(g[0].chosen, g[1].chosen, g[0].ids.len * sizeof *g[0].chosen);
        rvi_generated_deinit(&g[0]);
        rvi_generated_deinit(&g[1]);
    }
    close_all(&o);
}

/* ---- several ways ---- */

/* Random answers in an alphabet of four, so that the same tokens were followed by each of them:
 * where the likeliest way is wrong, another is often right. With 8 bit pages, too. */
static void ways_beside(void **state)
{
    static const rv_kv_type types[] = {RV_KV_F16, RV_KV_Q8};
    rv_logit_bias bias[1024];
    (void)state;
    for (size_t t = 0; t < RVI_COUNT(types); t++) {
        opened o;
        int n_turned = 0;
        size_t n_bias = 0;
        open_all(&o, paths[2], 2, 64);
        for (int32_t id = 0; id < o.m->model->hp.n_vocab; id++)
            if ((id - 20) % 11 || id < 20 || id > 53)
                bias[n_bias++] = (rv_logit_bias){id, -INFINITY};
        for (int i = 0; i < N_PROMPT; i++) prompt[i] = 20 + 11 * ((i * i + i / 5) % 4);
        for (uint64_t seed = 0; seed < AMOUNT(40, 10); seed++) {
            rvi_generated g[2];
            for (int k = 0; k < 2; k++) {
                rv_session *s;
                rv_session_options so = {
                    .size = sizeof so, .n_context = CONTEXT, .kv_type = types[t]};
                rv_sampling sampling;
                rvi_sampling_init(&sampling, sizeof sampling, false);
                sampling.seed = seed;
                sampling.temperature = 1.2f;
                sampling.logit_bias = bias;
                sampling.n_logit_bias = n_bias;
                rv_generate_options go = {.size = sizeof go, .sampling = &sampling};
                go.max_tokens = N_NEW + (int)seed;
                go.top_logprobs = 2;
                go.draft = k ? RV_DRAFT_NGRAM : RV_DRAFT_OFF;
                assert_ok(rv_session_new(&s, o.m, &so, err));
                s->e->e->tries_all = true;
                assert_ok(rvi_answer_start(s->s, prompt, N_PROMPT - seed % 7, &go, err));
                while (rvi_answer_advance(s->e->e, s->s)) continue;
                assert_ok(rvi_answer_take(s->s, &g[k], err));
                assert_int_equal(rvi_pages_in_use(s->e->e->pool),
                                 (s->s->seq.len + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
                rv_session_free(&s);
            }
            n_turned += g[1].n_turned;
            assert_int_equal(g[0].ids.len, g[1].ids.len);
            assert_memory_equal(g[0].ids.data, g[1].ids.data, g[0].ids.len * sizeof(int32_t));
            assert_memory_equal(g[0].chosen, g[1].chosen, g[0].ids.len * sizeof *g[0].chosen);
            rvi_generated_deinit(&g[0]);
            rvi_generated_deinit(&g[1]);
        }
        print_message("%d turns\n", n_turned);
        assert_true(n_turned > AMOUNT(40, 5)); /* 67 were seen */
        close_all(&o);
    }
}

/* ---- guesses by another model ---- */

/* The same model guesses well, one with other weights badly: the answer is the same. */
static void guessed_by_a_model(void **state)
{
    static const char *const by[] = {"tests/gguf/llama.gguf", "tests/gguf/q-q2_k.gguf"};
    (void)state;
    opened o;
    open_all(&o, "tests/gguf/llama.gguf", 2, 64);
    for (size_t m = 0; m < RVI_COUNT(by); m++) {
        rv_model *small;
        rv_session *guesser, *s = new_session(&o, CONTEXT, true),
                             *plain = new_session(&o, CONTEXT, false);
        rv_session_options so = {.size = sizeof so, .n_context = 100}; /* ends before the answer */
        int n_right = 0;
        assert_ok(rv_model_open(&small, o.rt, by[m], NULL, err));
        assert_ok(rv_session_new(&guesser, small, &so, err));
        for (uint64_t seed = 0; seed < 12; seed++) {
            rv_sampling sampling = sampling_of(seed);
            rv_generate_options go = {.size = sizeof go, .sampling = &sampling};
            go.max_tokens = N_NEW;
            go.ignore_eos = go.logprobs = 1;
            set_prompt(&o, seed);
            outcome want = answer(plain, prompt, N_PROMPT, &go, &(seen){0});
            go.draft_session = guesser;
            seen how = {.cancel_at = seed == 5 ? 20 : 0};
            outcome got = answer(s, prompt, N_PROMPT, &go, &how);
            if (seed == 5) { /* cancelled: the guesser is free again */
                rv_free(got.a);
                rv_free(want.a);
                continue;
            }
            n_right += assert_same(&got, &want);
        }
        if (m == 0) assert_true(n_right > 150);
        rv_session_free(&guesser);
        rv_session_free(&s);
        rv_session_free(&plain);
        rv_model_close(&small);
    }
    close_all(&o);
}

/* How many of n steps a model guesses for, which is never right, where a step takes so long. */
static int steps_with_guesses(rv_session *s, rv_session *by, double seconds, int n)
{
    rvi_drafter w = rvi_drafter_begin(by->s);
    rvi_budget budget = {0};
    rvi_draft_step step = {1, 1};
    rvi_draft d = {0};
    int count = 0;
    rvi_draft_init(&d);
    for (int rows = 1; rows < 64; rows *= 2) rvi_budget_note(&budget, rows, 0, seconds);
    for (int i = 0; i < n; i++) {
        rvi_draft_known(&d, prompt, 5, 5); /* what is guessed without it */
        rvi_drafter_guess(&w, &d, s->s, 4, &budget, &step, false);
        bool asked = w.spent > 0 || d.first.n != 5;
        count += asked;
        if (!asked) assert_memory_equal(d.first.ids, prompt, 5 * sizeof *prompt);
        if (asked) rvi_draft_learn(&d, &d.first, 0, false);
        rvi_drafter_settle(&w, seconds, asked ? d.first.n : 0, 0);
    }
    return count;
}

static void a_model_that_does_not_pay_is_left_alone(void **state)
{
    opened o;
    (void)state;
    open_all(&o, "tests/gguf/llama.gguf", 1, CONTEXT);
    rv_session *by = new_session(&o, CONTEXT, false);
    set_prompt(&o, 1);
    assert_ok(rv_session_sync(o.s, prompt, N_PROMPT, NULL, NULL, err));
    assert_true(steps_with_guesses(o.s, by, 1e-9, 2000) <= 2); /* dearer than what it saves */
    int n = steps_with_guesses(o.s, by, 1000, 2000);           /* for nothing, but always wrong */
    print_message("%d of 2000 steps\n", n);
    assert_true(n > 2 && n < 100);
    rv_session_free(&by);
    close_all(&o);
}

static void refuses_other_vocabularies(void **state)
{
    (void)state;
    opened o, other;
    rv_model *m;
    rv_session *by;
    rv_answer *a;
    rv_session_options so = {.size = sizeof so, .n_context = 64};
    rv_generate_options go = greedy(4);
    open_all(&o, "tests/gguf/llama.gguf", 1, 64);
    open_all(&other, "tests/gguf/llama.gguf", 1, 64);
    assert_ok(rv_model_open(&m, o.rt, "tests/gguf/llama-spm.gguf", NULL, err));
    assert_ok(rv_session_new(&by, m, &so, err));
    set_prompt(&o, 1);
    go.draft_session = by;
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, prompt, 20, &go, &a, err));
    go.draft_session = other.s;
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, prompt, 20, &go, &a, err));
    go.draft_session = o.s;
    assert_refused(RV_E_STATE, rv_session_generate(o.s, prompt, 20, &go, &a, err));
    go.draft_session = NULL;
    go.draft = (rv_draft)3;
    assert_refused(RV_E_CONFIG, rv_session_generate(o.s, prompt, 20, &go, &a, err));
    go.draft = RV_DRAFT_DEFAULT;
    assert_ok(rv_session_generate(o.s, prompt, 20, &go, &a, err)); /* nothing was left behind */
    rv_free(a);
    rv_session_free(&by);
    rv_model_close(&m);
    close_all(&other);
    close_all(&o);
}

/* ---- guesses by themselves ---- */

static void what_followed_before(void **state)
{
    (void)state;
    rvi_draft d = {0};
    rvi_draft_init(&d);
    /* the longest end that was there before is 2 3; not the latest place of 3 alone */
    const int32_t past[] = {1, 2, 3, 7, 8, 9, 3, 5, 1, 2, 3};
    rvi_draft_repeat(&d, past, 11, 15);
    assert_int_equal(d.first.n, 15);
    const int32_t want[] = {7, 8, 9, 3, 5, 1, 2, 3, 7, 8};
    assert_memory_equal(d.first.ids, want, sizeof want); /* goes on beyond the end */
    assert_int_equal(d.first.kinds[0], 3);
    assert_int_equal(d.first.kinds[1], 4);
    assert_int_equal(d.n_sides, 1); /* after 3 alone came 5 */
    assert_int_equal(d.sides[0].at, 0);
    assert_int_equal(d.sides[0].ids[0], 5);
    assert_int_equal(d.sides[0].ids[3], 3);
    assert_int_equal(d.sides[0].ids[4], 5);
    rvi_draft_repeat(&d, past, 11, 2);
    assert_int_equal(d.first.n, 2);
    rvi_draft_repeat(&d, past, 8, 15); /* 5 is new */
    assert_int_equal(d.first.n, 0);
    rvi_draft_repeat(&d, past, 1, 15);
    assert_int_equal(d.first.n, 0);
    rvi_draft_repeat(&d, past, 11, -1);
    assert_int_equal(d.first.n, 0);
}

static rvi_budget costs(double row)
{
    rvi_budget b = {0};
    for (int n = 1; n < 64; n *= 2) rvi_budget_note(&b, n, 0, 1 + row * (n - 1));
    return b;
}

static int chosen(rvi_draft *d, const rvi_budget *b, int n_rows)
{
    rvi_draft_step step = {n_rows, n_rows};
    return rvi_draft_choose(d, b, RVI_DRAFT_MOST, &step);
}

static void tried_where_it_pays(void **state)
{
    (void)state;
    rvi_draft d = {0};
    int32_t past[64];
    for (int i = 0; i < 64; i++) past[i] = i % 20;
    rvi_draft_init(&d);
    rvi_draft_repeat(&d, past, 64, RVI_DRAFT_MOST);
    rvi_budget none = {0}, cheap = costs(0.05), dear = costs(0.3), all = costs(1);
    assert_int_equal(chosen(&d, &none, 1), 0);
    for (int i = 0; i < 50; i++) rvi_draft_learn(&d, &d.first, 0, true);
    assert_in_range(chosen(&d, &cheap, 1), 1, 10); /* nothing was earned yet */
    assert_in_range(chosen(&d, &dear, 1), 0, 1);
    d.credit = 8;
    assert_int_equal(chosen(&d, &cheap, 1), 15);
    assert_int_equal(chosen(&d, &all, 1), 0); /* a row costs as much as a step */
    int alone = chosen(&d, &dear, 1), beside = chosen(&d, &dear, 24);
    assert_true(alone >= 3);
    assert_true(beside < alone); /* rows of others have made the step's weights cheap already */
    for (int i = 0; i < 100; i++) rvi_draft_learn(&d, &d.first, 0, false);
    assert_int_equal(chosen(&d, &dear, 1), 0);
    assert_true(rvi_draft_chance(&d, &d.first, 0) < 0.1);
    for (int i = 0; i < 100; i++) rvi_draft_learn(&d, &d.first, 0, true); /* looked up, and right */
    assert_true(chosen(&d, &dear, 1) >= 3);
    for (int i = 0; i < 28; i++) rvi_draft_settle(&d, &dear, 1, 0); /* the account is empty, */
    assert_int_equal(chosen(&d, &cheap, 1), 0);
    for (int i = 0; i < 101; i++) rvi_draft_settle(&d, &dear, 0, 0); /* and fills slowly */
    assert_in_range(chosen(&d, &cheap, 1), 1, 17);
    assert_in_range(chosen(&d, &dear, 1), 1, 3);
    rvi_draft_settle(&d, &cheap, 4, 0); /* rows cost what they were measured to */
    float before = d.credit;
    rvi_draft_settle(&d, &all, 4, 0);
    assert_true(fabsf(d.credit - (before + 0.01f - 4)) < 0.01f);
}

/* Tokens that a lesson says are no risk: the account may be empty. */
static void known_tokens_need_no_credit(void **state)
{
    (void)state;
    rvi_draft d = {0};
    int32_t ids[12] = {0};
    rvi_budget cheap = costs(0.05), all = costs(1);
    rvi_draft_init(&d);
    d.credit = 0;
    rvi_draft_known(&d, ids, RVI_COUNT(ids), RVI_DRAFT_MOST);
    assert_int_equal(chosen(&d, &cheap, 9), RVI_COUNT(ids));
    assert_int_equal(chosen(&d, &all, 1), 0); /* but they have to pay */
}

/* Of two ways that are about as likely, both are tried before one is followed far. */
static void several_ways_where_none_is_sure(void **state)
{
    (void)state;
    rvi_draft d = {0};
    const int32_t past[] = {9, 1, 2, 9, 1, 4, 9, 1, 2, 9, 1, 4, 9, 1};
    rvi_budget cheap = costs(0.05);
    rvi_draft_init(&d);
    rvi_draft_repeat(&d, past, RVI_COUNT(past), RVI_DRAFT_MOST);
    assert_int_equal(d.n_sides, 1);
    d.credit = 8;
    for (int i = 0; i < 100; i++) {
        rvi_draft_learn(&d, &d.first, 0, i % 2);
        rvi_draft_learn(&d, &d.sides[0], 0, !(i % 2));
    }
    assert_true(fabs(rvi_draft_chance(&d, &d.sides[0], 0) - 0.5) < 0.1);
    int n = chosen(&d, &cheap, 1);
    assert_true(n >= 3);
    assert_true(d.first.n_taken >= 1 && d.sides[0].n_taken >= 1);
    assert_int_equal(d.first.n_taken + d.sides[0].n_taken, n);
    for (int i = 0; i < 100; i++) {
        rvi_draft_learn(&d, &d.first, 0, true);
        rvi_draft_learn(&d, &d.sides[0], 0, false);
    }
    assert_true(chosen(&d, &cheap, 1) > 0);
    assert_int_equal(d.sides[0].n_taken, 0);
    assert_int_equal(rvi_draft_take_all(&d, 100), 30);
    assert_int_equal(rvi_draft_take_all(&d, 7), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_answers),
        cmocka_unit_test(known_tokens_need_no_credit),
        cmocka_unit_test(cancelled_anywhere),
        cmocka_unit_test(end_of_the_context),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(many_together),
        cmocka_unit_test(a_lesson_is_spoken_in_few_steps),
        cmocka_unit_test(ways_beside),
        cmocka_unit_test(what_followed_before),
        cmocka_unit_test(tried_where_it_pays),
        cmocka_unit_test(several_ways_where_none_is_sure),
        cmocka_unit_test(guessed_by_a_model),
        cmocka_unit_test(a_model_that_does_not_pay_is_left_alone),
        cmocka_unit_test(refuses_other_vocabularies),
    };
    return cmocka_run_group_tests_name("drafts", tests, NULL, NULL);
}
