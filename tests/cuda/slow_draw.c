/* What a CUDA device says of logits so that tokens can be picked without them: bit for bit what
 * plain loops say; and answers whose tokens are picked that way are those that are picked from all
 * logits, whoever else is in the step. RUVLLM_TEST_CUDA=system: on a real device. */
#include "cuda/fake.h"

#include "base/rng.h"
#include "decode/answer.h"
#include "decode/drawn.h"
#include "decode/logprobs.h"
#include "model/workspace.h"

/* ---- rows ---- */

enum { ROWS = 9 };

typedef struct row_case {
    rvi_draw_ask ask;
    uint64_t seed; /* of the random number */
} row_case;

/* Row r of n logits. */
static void fill(float *l, int n, int r, rvi_rng *rng)
{
    for (int i = 0; i < n; i++) {
        double u = rvi_rng_double(rng) - 0.5, v = rvi_rng_double(rng);
        l[i] = (float)(r == 1   ? floor(8 * u)
                       : r == 2 ? 2.5
                       : r == 3 ? 40 * u
                       : r == 8 ? 6e38 * u
                                : 9 * u);
        if (r == 0 && v < 0.002) l[i] += 9;
    }
    if (r == 4) l[n / 2] = NAN;
    if (r == 5) l[n - 1] = INFINITY;
    if (r == 6)
        for (int i = 0; i < n; i++) l[i] = -INFINITY;
    if (r == 7 && n > 1) l[n / 3] = -INFINITY;
    if (r == 1) { /* equals */
        l[0] = n > 1 ? -0.0f : 0.0f;
        l[n - 1] = 0.0f;
    }
}

static void check_row(const rvi_drawn *got, const float *l, int n, const row_case *of)
{
    static rvi_drawn want;
    rv_sampling o = plain(of->ask.temperature);
    o.seed = of->seed;
    rvi_sampler *draws = sampler(&o, n);
    drawn_of(&want, l, n, &of->ask, draws, 1);
    rvi_sampler_free(draws);
    assert_int_equal(got->best, want.best);
    if (want.best < 0) return;
    assert_true(got->best_logit == want.best_logit);
    assert_int_equal(got->possible, want.possible);
    if (of->ask.wants & RVI_DRAW_WEIGHTS) {
        if (want.possible) assert_memory_equal(&got->weights, &want.weights, sizeof want.weights);
        assert_int_equal(got->drawn, want.drawn);
        if (want.drawn >= 0) assert_true(got->drawn_logit == l[want.drawn]);
    }
    if (of->ask.wants & RVI_DRAW_EXPS)
        assert_true((double)got->best_logit + log(got->exps) == rvi_log_sum_exp(l, n));
    int n_above = 0, n_top = 0;
    float lowest = INFINITY;
    for (int i = 0; i < got->n; i++) lowest = got->logits[i] < lowest ? got->logits[i] : lowest;
    for (int i = 0; i < n; i++) n_above += l[i] >= lowest;
    if (!(of->ask.wants & RVI_DRAW_TOP)) {
        assert_int_equal(got->n, 0);
    } else if (got->n < 0) { /* too many equals */
        assert_true(n > RVI_DRAW_MOST);
    } else {
        assert_int_equal(n_above, got->n);
        assert_true(got->n == n || got->n >= RVI_MIN(n / 64, (int)RVI_DRAW_LEAST));
        for (int i = 0; i < n; i++)
            if (l[i] >= lowest) {
                assert_int_equal(got->ids[n_top], i);
                assert_true(got->logits[n_top++] == l[i]);
            }
    }
}

/* Rows of all kinds beside each other, asked for different things, then each alone. */
static void check_width(rvi_backend *be, int n, rvi_rng *rng)
{
    static const float temperatures[] = {1, 0.8f, 1e-3f, 2e-38f, 25};
    float *l = rvi_alloc_array((size_t)n * ROWS, sizeof *l);
    row_case of[ROWS];
    rvi_tensor *t;
    rvi_draws *d;
    assert_ok(be->ops->rows_new(be, &t, ROWS, n, err));
    assert_ok(be->ops->reserve(be, ROWS, 64, 0, err));
    assert_ok(be->ops->draws_new(be, &d, ROWS, n, err));
    assert_non_null(d);
    rvi_cols x = rvi_cols_of(t, 0, n);
    for (int round = 0; round < (n > 5000 ? 1 : 2); round++) {
        for (int r = 0; r < ROWS; r++) {
            fill(l + (size_t)r * (size_t)n, n, r, rng);
            be->ops->rows_write(be, x, r, l + (size_t)r * (size_t)n);
            of[r] = (row_case){
                .ask = {.random = -1,
                        .temperature = temperatures[rvi_rng_u64(rng) % RVI_COUNT(temperatures)],
                        .wants = r ? (int)(rvi_rng_u64(rng) % 8) : 7},
                .seed = rvi_rng_u64(rng)};
            rvi_rng draw = {of[r].seed};
            if (r % 4 != 3) of[r].ask.random = rvi_rng_double(&draw);
            d->asks[r] = of[r].ask;
        }
        assert_true(be->ops->draw(be, x, ROWS, d));
        for (int r = 0; r < ROWS; r++) check_row(&d->rows[r], l + (size_t)r * (size_t)n, n, &of[r]);
        for (int r = 0; r<ROWS; r += n> 5000 ? 4 : 1) {
            be->ops->rows_write(be, x, 0, l + (size_t)r * (size_t)n);
            d->asks[0] = of[r].ask;
            assert_true(be->ops->draw(be, x, 1, d));
            check_row(&d->rows[0], l + (size_t)r * (size_t)n, n, &of[r]);
        }
    }
    be->ops->draws_free(be, d);
    be->ops->tensor_free(be, t);
    rvi_free(l);
}

static void rows(void **state)
{
    (void)state;
    static const int widths[] = {1,   2,    7,    31,   64,   255,  256, 257,
                                 300, 1000, 1024, 1025, 2500, 4097, 9000};
    static const int wide[] = {66001, 20000, 32000, 151936, 256000, 262144};
    rvi_backend *be = open_device();
    rvi_rng rng = {1};
    for (size_t i = 0; i < RVI_COUNT(widths); i++) check_width(be, widths[i], &rng);
    for (size_t i = 0; i < (is_quick() ? RVI_COUNT(wide) : 1); i++) check_width(be, wide[i], &rng);
    for (int i = 0; is_quick() && i < 300; i++)
        check_width(be, 1 + (int)(rvi_rng_u64(&rng) % 160000), &rng);
    rvi_draws *d;
    assert_ok(be->ops->draws_new(be, &d, 1, (256 << 10) + 1, err));
    assert_null(d);
    be->ops->free(be);
}

/* ---- answers ---- */

enum { N_PROMPT = 8, N_NEW = 12, CONTEXT = 64, N_ANSWERS = 6, N_TOP = 3 };

typedef struct fixture {
    rvi_backend *be;
    rvi_backend_ops ops; /* those of be, of which one is ours */
    rvi_model *m;
    rvi_engine *e;
    rvi_ids eos;
} fixture;

static bool (*draw_of_device)(rvi_backend *be, rvi_cols src, int n_rows, rvi_draws *d);
static int most_known;

/* Vocabularies of tests are small: as if the device had told less. */
static bool draw_less(rvi_backend *be, rvi_cols src, int n_rows, rvi_draws *d)
{
    if (!draw_of_device(be, src, n_rows, d)) return false;
    for (rvi_drawn *r = d->rows; r < d->rows + n_rows; r++)
        while (r->n > most_known) {
            float lowest = rvi_min(r->logits, r->n);
            int n = 0;
            for (int i = 0; i < r->n; i++)
                if (r->logits[i] > lowest) {
                    r->ids[n] = r->ids[i];
                    r->logits[n++] = r->logits[i];
                }
            r->n = n;
        }
    return true;
}

static void open_engine(fixture *f, bool draws)
{
    rvi_source *source;
    *f = (fixture){.be = open_device()};
    assert_ok(rvi_source_open(&source, "tests/gguf/llama.gguf", err));
    assert_ok(rvi_model_new(&f->m, f->be, source, NULL, err));
    draw_of_device = f->be->ops->draw;
    f->ops = *f->be->ops;
    f->ops.draw = draw_less;
    if (!draws) f->ops.draws_new = NULL;
    f->be->ops = &f->ops;
    assert_ok(rvi_engine_new(&f->e, f->m, NULL, &f->eos,
                             &(rvi_engine_options){.n_tokens = N_ANSWERS * CONTEXT,
                                                   .max_rows = 48,
                                                   .max_logits = 24,
                                                   .kv_type = RV_KV_F16},
                             err));
}

static void close_engine(fixture *f)
{
    rvi_engine_free(f->e);
    rvi_model_free(f->m);
    f->be->ops->free(f->be);
}

typedef struct request {
    rv_sampling sampling;
    int top_logprobs;
    bool masked;
    rv_draft draft;
    bool repeats; /* a prompt that invites guesses */
} request;

static int forbid_some(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    (void)ctx;
    (void)ids;
    for (size_t i = n_ids % 3; i < n_vocab; i += 3) logits[i] = -INFINITY;
    return 0;
}

static rvi_session *start(fixture *f, const request *r, int k)
{
    rvi_session *s;
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = r->repeats ? 5 + i % 2 : 3 + (i * 7 + k * 31) % 200;
    assert_ok(rvi_session_new(&s, f->e, CONTEXT, NULL, NULL, err));
    assert_ok(rvi_answer_start(s, prompt, N_PROMPT,
                               &(rv_generate_options){.size = sizeof(rv_generate_options),
                                                      .sampling = &r->sampling,
                                                      .max_tokens = N_NEW,
                                                      .top_logprobs = r->top_logprobs,
                                                      .mask = r->masked ? forbid_some : NULL,
                                                      .draft = r->draft,
                                                      .ignore_eos = 1},
                               err));
    return s;
}

typedef struct outcome {
    int32_t ids[N_NEW];
    rv_token_prob chosen[N_NEW], top[N_NEW * N_TOP];
} outcome;

static int n_guessed; /* by the answers of the last run */

/* All requests together. Returns the rows of logits that were fetched. */
static uint64_t run(fixture *f, const request *r, int n, outcome *out)
{
    rvi_session *s[N_ANSWERS];
    uint64_t before = f->e->n_fetched;
    n_guessed = 0;
    for (int k = 0; k < n; k++) s[k] = start(f, &r[k], k);
    while (rvi_answer_advance(f->e, NULL)) {
    }
    for (int k = 0; k < n; k++) {
        rvi_generated g;
        assert_ok(rvi_answer_take(s[k], &g, err));
        assert_int_equal(g.ids.len, N_NEW);
        n_guessed += g.n_guessed;
        memset(&out[k], 0, sizeof out[k]);
        memcpy(out[k].ids, g.ids.data, sizeof out[k].ids);
        if (g.chosen) memcpy(out[k].chosen, g.chosen, sizeof out[k].chosen);
        if (g.n_top) memcpy(out[k].top, g.top, N_NEW * g.n_top * sizeof *g.top);
        rvi_generated_deinit(&g);
        rvi_session_free(s[k]);
    }
    return f->e->n_fetched - before;
}

static request request_of(float temperature, float top_p, float min_p, int top_k, int top_logprobs)
{
    request r = {.sampling = plain(temperature), .top_logprobs = top_logprobs};
    r.sampling.top_p = top_p;
    r.sampling.min_p = min_p;
    r.sampling.top_k = top_k;
    r.sampling.seed = 77;
    r.draft = RV_DRAFT_OFF;
    return r;
}

/* Every kind of sampling alone: nothing is fetched, the tokens and probabilities are those of a
 * device that says nothing. Then all together with one that has a mask: its rows are fetched. */
static void answers(void **state)
{
    (void)state;
    fixture with, without;
    const request r[] = {
        request_of(0, 1, 0, 0, 0),          request_of(0, 1, 0, 0, N_TOP),
        request_of(1, 1, 0, 0, -1),         request_of(0.8f, 1, 0, 0, N_TOP),
        request_of(0.8f, 0.95f, 0, 10, -1), request_of(1.2f, 0.6f, 0, 0, 1),
        request_of(0.7f, 1, 0.3f, 0, 0),    request_of(0.9f, 0.9f, 0.05f, 0, -1),
        request_of(0, 1, 0, 0, -1),
    };
    outcome want[RVI_COUNT(r)], got[RVI_COUNT(r)];
    most_known = RVI_DRAW_MOST;
    open_engine(&with, true);
    open_engine(&without, false);
    for (size_t i = 0; i < RVI_COUNT(r); i++) {
        assert_int_equal(run(&with, &r[i], 1, &got[i]), 0);
        uint64_t n = run(&without, &r[i], 1, &want[i]);
        assert_int_equal(n, i + 1 < RVI_COUNT(r) ? N_NEW : 0); /* the last: `best` */
        assert_memory_equal(&got[i], &want[i], sizeof want[i]);
    }
    for (size_t i = 1; i + 5 < RVI_COUNT(r); i += 2) { /* beside a masked one */
        request all[N_ANSWERS] = {r[i], r[i + 1], r[i + 2], r[i + 3], r[i + 4], r[1]};
        all[5].masked = true;
        assert_int_equal(run(&with, all, N_ANSWERS, got), N_NEW);
        assert_int_equal(run(&without, all, N_ANSWERS, want), N_ANSWERS * N_NEW);
        assert_memory_equal(got, want, N_ANSWERS * sizeof *want);
    }
    request most[3] = {r[3], r[4], r[5]}; /* most have one: all are fetched at once */
    most[0].masked = most[2].masked = true;
    assert_int_equal(run(&with, most, 3, got), 3 * N_NEW);
    (void)run(&without, most, 3, want);
    assert_memory_equal(got, want, 3 * sizeof *want);
    close_engine(&with);
    close_engine(&without);
}

/* What cannot be told is fetched, and no token is another one. */
static void falling_back(void **state)
{
    (void)state;
    fixture with, without;
    request flat = request_of(1.2f, 0.6f, 0, 0, 1), deep = request_of(1, 1, 0, 300, -1),
            penalty = request_of(0.8f, 0.9f, 0, 10, 0), few = request_of(0.8f, 0.95f, 0, 10, N_TOP),
            bias = request_of(0.8f, 0.95f, 0, 10, N_TOP);
    rv_logit_bias one = {7, 1.5f};
    outcome want, got;
    penalty.sampling.repetition_penalty = 1.1f;
    bias.sampling.logit_bias = &one;
    bias.sampling.n_logit_bias = 1;
    open_engine(&with, true);
    open_engine(&without, false);
    const request *const all[] = {&flat, &deep, &penalty, &bias};
    for (size_t i = 0; i < RVI_COUNT(all); i++) {
        most_known = i ? 20 : 1;
        assert_int_equal(run(&with, all[i], 1, &got), N_NEW);
        (void)run(&without, all[i], 1, &want);
        assert_memory_equal(&got, &want, sizeof want);
    }
    for (most_known = 2; most_known < 20; most_known += 4) { /* with top_k 10: enough or not */
        uint64_t n = run(&with, &few, 1, &got);
        (void)run(&without, &few, 1, &want);
        assert_memory_equal(&got, &want, sizeof want);
        assert_true(most_known > 10 ? n == 0 : n == N_NEW);
    }
    close_engine(&with);
    close_engine(&without);
}

/* Guesses: the tokens behind them use the random numbers that come then. */
static void guesses(void **state)
{
    (void)state;
    fixture with, without;
    outcome want[2], got[2];
    most_known = RVI_DRAW_MOST;
    open_engine(&with, true);
    open_engine(&without, false);
    with.e->tries_all = without.e->tries_all = true;
    for (int i = 0; i < 3; i++) {
        request r[2] = {request_of(i == 2 ? 0.02f : 0.5f, 1, 0, i == 1 ? 5 : 0, N_TOP),
                        request_of(1, 1, 0, 0, -1)};
        for (int k = 0; k < 2; k++) {
            r[k].draft = RV_DRAFT_NGRAM;
            r[k].repeats = true;
        }
        assert_int_equal(run(&with, r, 2, got), 0);
        assert_true(n_guessed > 0);
        r[0].draft = r[1].draft = RV_DRAFT_OFF;
        (void)run(&without, r, 2, want);
        assert_memory_equal(got, want, sizeof want);
    }
    close_engine(&with);
    close_engine(&without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows, reset, reset),
        cmocka_unit_test_setup_teardown(answers, reset, reset),
        cmocka_unit_test_setup_teardown(falling_back, reset, reset),
        cmocka_unit_test_setup_teardown(guesses, reset, reset),
    };
    return cmocka_run_group_tests_name("draw", tests, NULL, NULL);
}
