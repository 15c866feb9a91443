/* The captured gradient against finite differences of log p on every architecture, the ring, slots,
 * and products that stay fused beside adapters. */
#include "model/golden.h"

#include <math.h>

#include "base/rng.h"
#include "decode/answer.h"
#include "decode/capture.h"
#include "decode/logprobs.h"
#include "decode/sampler.h"

/* ---- help ---- */

/* An adapter of rank 1 on one linear layer; a, b as in its matrices. */
static rvi_adapter *rank_one(const rvi_model *m, int slot, const float *a, const float *b)
{
    const rvi_lora_target *t = &m->targets[slot];
    rvi_adapter *out = rvi_zalloc(sizeof *out);
    assert_non_null(out);
    *out = (rvi_adapter){.be = m->be, .n_slots = m->n_targets, .n_used = 1};
    out->slots = rvi_zalloc_array((size_t)m->n_targets, sizeof *out->slots);
    assert_non_null(out->slots);
    rvi_tensor_view va = {.name = "a",
                          .type = RVI_F32,
                          .n_dims = 2,
                          .shape = {1, (uint64_t)t->n_in},
                          .data = (const uint8_t *)a},
                    vb = {.name = "b",
                          .type = RVI_F32,
                          .n_dims = 2,
                          .shape = {(uint64_t)t->n_out, 1},
                          .data = (const uint8_t *)b};
    assert_ok(m->be->ops->floats_new(m->be, &out->slots[slot].a, &va, 0, err));
    assert_ok(m->be->ops->floats_new(m->be, &out->slots[slot].b, &vb, 0, err));
    out->slots[slot].scale = 1;
    return out;
}

/* Logits after the last of ids; the set is the last row's alone. */
static void last_logits(feed *f, const int32_t *ids, int n, const rvi_adapter_set *set, float *out)
{
    rvi_seq_truncate(&f->seq, 0);
    feed_ids(f, ids, n - 1, n - 1, NULL, NULL, NULL);
    feed_ids(f, ids + n - 1, 1, 1, set, NULL, out);
}

static double log_p(const float *logits, int n, double temperature, int32_t id)
{
    double best = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) best = fmax(best, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp(((double)logits[i] - best) / temperature);
    return ((double)logits[id] - best) / temperature - log(sum);
}

static double captured_g(const rvi_captured *t, int i)
{
    return (double)t->g_scale * (double)rvi_f16_to_f32(t->g[i]);
}

/* ---- the gradient ---- */

/* log p(id) when the last down projection's output moves by `step` along dir, for this row
 * alone. */
static double moved(feed *f, const int32_t *ids, int n, const float *u, const float *dir,
                    double step, double temperature, int32_t id, float *logits)
{
    const rvi_model *m = f->m;
    int n_ff = m->hp.n_ff, n_embd = m->hp.n_embd;
    float a[2048], b[2048];
    double length = 0;
    for (int i = 0; i < n_ff; i++) length += (double)u[i] * (double)u[i];
    for (int i = 0; i < n_ff; i++) a[i] = (float)((double)u[i] / length); /* a . u = 1 */
    for (int i = 0; i < n_embd; i++) b[i] = (float)(step * (double)dir[i]);
    rvi_adapter *ad = rank_one(m, m->layers[m->hp.n_layers - 1].down.slot, a, b);
    rvi_adapter_use use = {ad, 1};
    last_logits(f, ids, n, &(rvi_adapter_set){.uses = &use, .n = 1, .serial = 1}, logits);
    rvi_adapter_free(ad);
    return log_p(logits, m->hp.n_vocab, temperature, id);
}

static void finite_differences(void **state)
{
    (void)state;
    enum { DIRECTIONS = 6 };
    for (size_t g_at = 0; g_at < RVI_COUNT(golden_names); g_at++) {
        golden g;
        feed f;
        rvi_capturer *by;
        rvi_capture *ring;
        int n;
        golden_open_named(&g, golden_names[g_at], true, 1, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        int n_embd = g.m->hp.n_embd, n_ff = g.m->hp.n_ff, vocab = g.m->hp.n_vocab;
        float *logits = rvi_alloc_array((size_t)vocab, sizeof *logits);
        float *u = rvi_alloc_array((size_t)n_ff, sizeof *u), dir[2048];
        n = 12;
        feed_init(&f, g.m, n, n, RV_KV_F32);
        assert_ok(rvi_capturer_new(&by, g.m, err));
        assert_ok(rvi_capture_new(&ring, by, 4, err));
        rvi_capture_begin(ring);
        double worst = 0;
        /* low temperatures leave nothing to the mean row; at 1 two thirds of the words have a
         * part */
        static const double temperatures[] = {0.15, 0.3, 1};
        for (int round = 0; round < 3; round++) {
            last_logits(&f, ids, n, NULL, logits);
            int32_t id = ids[n + round] % vocab;
            double before = log_p(logits, vocab, temperatures[round], id);
            rvi_capture_take(ring, f.ws, 0, logits, (float)temperatures[round], id);
            rvi_captured t = rvi_capture_get(ring, 1, round);
            assert_int_equal(t.id, id);
            assert_true(fabs((double)t.log_p - before) < 1e-4);
            for (int i = 0; i < n_ff; i++) u[i] = t.u_scale * rvi_f16_to_f32(t.u[i]);
            rvi_rng rng = {g_at * 10 + (uint64_t)round};
            double length = 0;
            for (int i = 0; i < n_embd; i++) length += pow(captured_g(&t, i), 2);
            length = sqrt(length);
            for (int d = 0; d < DIRECTIONS; d++) {
                double along = 0; /* the first is the gradient's own, which has no cancellation */
                for (int i = 0; i < n_embd; i++) {
                    dir[i] = d ? (float)((rvi_rng_double(&rng) - 0.5) * 3.46 / sqrt(n_embd))
                               : (float)(captured_g(&t, i) / length);
                    along += captured_g(&t, i) * (double)dir[i];
                }
                double step = 2e-3 * (double)t.reach;
                double up = moved(&f, ids, n, u, dir, step, temperatures[round], id, logits),
                       down = moved(&f, ids, n, u, dir, -step, temperatures[round], id, logits);
                double error = fabs((up - down) / (2 * step) - along) / length;
                if (round < 2) worst = fmax(worst, error);
                if (error > (round < 2 ? 0.01 : 0.2))
                    fail_msg("%s: temperature %g direction %d: %g measured, %g captured",
                             golden_names[g_at], temperatures[round], d, (up - down) / (2 * step),
                             along);
            }
        }
        print_message("# %-14s %.1e of the gradient\n", golden_names[g_at], worst);
        rvi_capture_free(ring);
        rvi_capturer_free(by);
        feed_deinit(&f);
        rvi_free(logits);
        rvi_free(u);
        golden_close(&g);
    }
}

/* ---- answers ---- */

typedef struct bench {
    golden g;
    rvi_ids eos;
    rvi_engine *e;
    rvi_session *s;
} bench;

static int32_t end_token[] = {2};

static void bench_open(bench *b, const char *name)
{
    golden_open_named(&b->g, name, false, 1, NULL);
    b->eos = (rvi_ids){.data = end_token, .len = 1};
    assert_ok(rvi_engine_new(
        &b->e, b->g.m, NULL, &b->eos,
        &(rvi_engine_options){.n_tokens = 512, .max_rows = 64, .max_logits = 4}, err));
    assert_ok(rvi_session_new(&b->s, b->e, 256, NULL, NULL, err));
}

static void bench_close(bench *b)
{
    rvi_session_free(b->s);
    rvi_engine_free(b->e);
    golden_close(&b->g);
}

static rv_generate_options usual(const rv_sampling *sampling, int n)
{
    return (rv_generate_options){.size = sizeof(rv_generate_options),
                                 .sampling = sampling,
                                 .max_tokens = n,
                                 .top_logprobs = 0};
}

static const int32_t prompt[] = {5, 17, 200, 31, 8};

static rvi_generated answer(bench *b, const rv_generate_options *o, const rvi_slot *slot)
{
    rvi_generated out;
    assert_ok(rvi_answer_start(b->s, prompt, RVI_COUNT(prompt), o, err));
    if (slot) assert_ok(rvi_answer_lock(b->s, slot, err));
    while (rvi_answer_advance(b->e, NULL)) {
    }
    assert_ok(rvi_answer_take(b->s, &out, err));
    return out;
}

static void ring(void **state)
{
    (void)state;
    bench b;
    rvi_capturer *by;
    rvi_capture *c;
    rv_sampling warm;
    bench_open(&b, "llama");
    rvi_sampling_init(&warm, sizeof warm, false);
    warm.seed = 3;
    rv_generate_options o = usual(&warm, 10);
    o.ignore_eos = 1;
    rvi_generated plain = answer(&b, &o, NULL);
    assert_ok(rvi_capturer_new(&by, b.g.m, err));
    assert_ok(rvi_capture_new(&c, by, 16, err));
    assert_int_equal(rvi_capture_answer(c), 0);
    assert_int_equal(rvi_capture_count(c, 1), 0);
    b.s->capture = c;
    rvi_generated first = answer(&b, &o, NULL), second;
    assert_int_equal(rvi_capture_answer(c), 1);
    assert_int_equal(rvi_capture_count(c, 1), 10);
    for (int i = 0; i < 10; i++) { /* capturing changes nothing */
        assert_int_equal(first.ids.data[i], plain.ids.data[i]);
        assert_true(first.chosen[i].logprob == plain.chosen[i].logprob);
        rvi_captured t = rvi_capture_get(c, 1, i);
        assert_int_equal(t.id, plain.ids.data[i]);
        assert_int_equal(t.answer, 1);
        assert_true(t.entropy > 0 && t.log_p < 0 && t.g_scale > 0 && t.u_scale > 0 && t.reach > 0);
    }
    second = answer(&b, &o, NULL);
    assert_int_equal(rvi_capture_count(c, 2), 10);
    assert_int_equal(rvi_capture_count(c, 1), 6); /* the newest of it */
    for (int i = 0; i < 6; i++)
        assert_int_equal(rvi_capture_get(c, 1, i).id, first.ids.data[i + 4]);
    for (int i = 0; i < 10; i++) assert_int_equal(rvi_capture_get(c, 2, i).id, second.ids.data[i]);
    o.max_tokens = 40; /* longer than the ring */
    rvi_generated third = answer(&b, &o, NULL);
    assert_int_equal(rvi_capture_count(c, 3), 16);
    assert_int_equal(rvi_capture_count(c, 2), 0);
    assert_int_equal(rvi_capture_get(c, 3, 15).id, third.ids.data[39]);
    rvi_generated_deinit(&plain);
    rvi_generated_deinit(&first);
    rvi_generated_deinit(&second);
    rvi_generated_deinit(&third);
    b.s->capture = NULL;
    rvi_capture_free(c);
    rvi_capturer_free(by);
    bench_close(&b);
}

static int forbid_77(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    (void)ctx, (void)ids, (void)n_ids, (void)n_vocab;
    logits[77] = -INFINITY;
    return 0;
}

static void slots(void **state)
{
    (void)state;
    bench b;
    rv_error e;
    rv_sampling warm;
    bench_open(&b, "llama");
    rvi_sampling_init(&warm, sizeof warm, false);
    warm.temperature = 1;
    rv_generate_options o = usual(&warm, 8);
    static const int32_t ids[] = {41, 77, 300, 2}; /* the end token last */
    rvi_slot slot = {ids, 4, 0}, two = {ids, 2, 0}, open = {ids, 4, 0.01f};
    int exact = 0, n = 200;
    for (int i = 0; i < n; i++) {
        warm.seed = (uint64_t)i;
        rvi_generated out = answer(&b, &o, &slot);
        exact += out.ids.len == 4 && !memcmp(out.ids.data, ids, sizeof ids) &&
                 out.finish == RV_FINISH_EOS;
        rvi_generated_deinit(&out);
    }
    assert_true(exact >= n * 97 / 100);
    /* logprobs are the model's own: a forced token is as unlikely as it was */
    rvi_generated with = answer(&b, &o, &slot);
    float *own;
    assert_ok(rvi_session_sync(b.s, prompt, RVI_COUNT(prompt), NULL, &own, err));
    double want = (double)own[41] - rvi_log_sum_exp(own, b.g.m->hp.n_vocab);
    assert_true(fabs((double)with.chosen[0].logprob - want) < 1e-5);
    rvi_generated_deinit(&with);
    /* after a slot that ends early the model goes on by itself */
    with = answer(&b, &o, &two);
    assert_true(with.ids.len > 2);
    assert_memory_equal(with.ids.data, ids, 2 * sizeof *ids);
    rvi_generated_deinit(&with);
    /* a mask wins; from there on the slot is silent */
    o.mask = forbid_77;
    with = answer(&b, &o, &slot);
    assert_int_equal(with.ids.data[0], 41);
    for (size_t i = 1; i < with.ids.len; i++) assert_int_not_equal(with.ids.data[i], 77);
    rvi_generated_deinit(&with);
    o.mask = NULL;
    o.min_tokens = 6; /* no end token before, whatever the slot says */
    with = answer(&b, &o, &slot);
    assert_true(with.ids.len >= 6);
    rvi_generated_deinit(&with);
    o.min_tokens = 0;
    /* a weak slot is left as soon as the draw goes another way: then as without one */
    for (int i = 0; i < 50; i++) {
        warm.seed = (uint64_t)i;
        with = answer(&b, &o, &open);
        rvi_generated without = answer(&b, &o, NULL);
        if (with.ids.data[0] == without.ids.data[0] && with.ids.data[0] != ids[0]) {
            assert_int_equal(with.ids.len, without.ids.len);
            assert_memory_equal(with.ids.data, without.ids.data, with.ids.len * sizeof *ids);
        }
        rvi_generated_deinit(&with);
        rvi_generated_deinit(&without);
    }
    /* what is refused */
    assert_int_equal(rvi_answer_lock(b.s, &slot, &e), RV_E_STATE);
    assert_ok(rvi_answer_start(b.s, prompt, RVI_COUNT(prompt), &o, err));
    assert_int_equal(rvi_answer_lock(b.s, &(rvi_slot){ids, 0, 0}, &e), RV_E_CONFIG);
    assert_int_equal(rvi_answer_lock(b.s, &(rvi_slot){ids, 4, NAN}, &e), RV_E_CONFIG);
    assert_int_equal(rvi_answer_lock(b.s, &(rvi_slot){(int32_t[]){320}, 1, 0}, &e), RV_E_INVALID);
    rvi_answer_advance(b.e, NULL);
    assert_int_equal(rvi_answer_lock(b.s, &slot, &e), RV_E_STATE);
    rvi_answer_drop(b.s);
    bench_close(&b);
}

/* ---- fusion ---- */

static void no_tap(void *ctx, const char *name, rvi_cols values, int n_rows)
{
    (void)ctx, (void)name, (void)values, (void)n_rows;
}

/* An adapter on one linear layer: the same bits with every product apart (as under a tap), and for
 * the rows beside it the bits of a batch without adapters. */
static void fused_beside_adapters(void **state)
{
    (void)state;
    for (size_t g_at = 0; g_at < RVI_COUNT(golden_names); g_at++) {
        golden g;
        int n, half;
        golden_open_named(&g, golden_names[g_at], false, 2, NULL);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        n = 16, half = 8;
        size_t vocab = (size_t)g.m->hp.n_vocab;
        float *plain = rvi_alloc_array((size_t)n * vocab, sizeof *plain),
              *fused = rvi_alloc_array((size_t)n * vocab, sizeof *fused),
              *apart = rvi_alloc_array((size_t)n * vocab, sizeof *apart), a[2048], b[2048];
        rvi_rng rng = {g_at};
        for (int i = 0; i < 2048; i++) a[i] = (float)(rvi_rng_double(&rng) - 0.5) * 0.1f;
        for (int i = 0; i < 2048; i++) b[i] = (float)(rvi_rng_double(&rng) - 0.5);
        feed f;
        feed_init(&f, g.m, n, n, RV_KV_F16);
        feed_ids(&f, ids, n, n, NULL, plain, NULL);
        for (int slot = 0; slot < g.m->n_targets; slot++) {
            if (g.m->targets[slot].n_in > 2048 || g.m->targets[slot].n_out > 2048) continue;
            rvi_adapter *ad = rank_one(g.m, slot, a, b);
            rvi_adapter_use use = {ad, 1};
            rvi_adapter_set set = {.uses = &use, .n = 1, .serial = 1};
            for (int tap = 0; tap < 2; tap++) {
                rvi_workspace_set_tap(f.ws, tap ? no_tap : NULL, NULL);
                rvi_seq_truncate(&f.seq, 0);
                assert_ok(rvi_seq_extend(&f.seq, n, err));
                int32_t which[16];
                for (int i = 0; i < n; i++) {
                    f.rows[i] = (rvi_row){.seq = &f.seq,
                                          .pos = i,
                                          .token = ids[i],
                                          .rope_set = f.rope_set,
                                          .adapters = i < half ? NULL : &set};
                    which[i] = i;
                }
                rvi_model_forward(g.m, f.ws, f.rows, n);
                memcpy(tap ? apart : fused, rvi_model_logits(g.m, f.ws, f.rows, which, n),
                       (size_t)n * vocab * sizeof *fused);
            }
            assert_memory_equal(fused, apart, (size_t)n * vocab * sizeof *fused);
            assert_memory_equal(fused, plain, (size_t)half * vocab * sizeof *fused);
            assert_memory_not_equal(fused + (size_t)half * vocab, plain + (size_t)half * vocab,
                                    vocab * sizeof *fused);
            rvi_adapter_free(ad);
        }
        feed_deinit(&f);
        rvi_free(plain);
        rvi_free(fused);
        rvi_free(apart);
        golden_close(&g);
    }
}

static void refused(void **state)
{
    (void)state;
    golden g;
    rvi_capturer *by;
    rvi_capture *c;
    rv_error e;
    golden_open(&g, "tests/golden/bert", NULL, true, 1, NULL);
    assert_int_equal(rvi_capturer_new(&by, g.m, &e), RV_E_MODEL);
    golden_close(&g);
    golden_open_named(&g, "llama", true, 1, NULL);
    assert_ok(rvi_capturer_new(&by, g.m, err));
    assert_int_equal(rvi_capture_new(&c, by, 0, &e), RV_E_CONFIG);
    assert_int_equal(rvi_capture_new(&c, by, RVI_CAPTURE_MAX_TOKENS + 1, &e), RV_E_CONFIG);
    rvi_capturer_free(by);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_differences),    cmocka_unit_test(ring),    cmocka_unit_test(slots),
        cmocka_unit_test(fused_beside_adapters), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
