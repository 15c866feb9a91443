/* The micro adapter: its gradient against finite differences of log p, its step, caps, bad numbers,
 * controls, going back, bytes. */
#include "learn/bed.h"

static rvi_micro *micro_new(const bed *b, double kl_step)
{
    rvi_micro *m;
    assert_ok(rvi_micro_new(&m, b->g.m,
                            &(rvi_micro_options){.rank = 3, .seed = 7, .kl_step = kl_step}, err));
    return m;
}

static void scores(void **state)
{
    (void)state;
    rvi_scores s = {0};
    assert_true(rvi_scores_take(&s, 0.5) == 0); /* nothing to compare with */
    assert_true(fabs(rvi_scores_take(&s, 0.9) - 0.4) < 1e-6);
    assert_true(fabs(rvi_scores_take(&s, 0.0) + 0.7) < 1e-6);
    assert_true(fabs(rvi_scores_take(&s, 1.0) - (1 - 1.4 / 3)) < 1e-6);
    /* four are there: in units of their deviation */
    double mean = 2.4 / 4, d = sqrt((0.01 + 0.09 + 0.36 + 0.16) / 4);
    assert_true(fabs(rvi_scores_take(&s, 0.7) - (0.7 - mean) / d) < 1e-6);
    for (int i = 0; i < RVI_SCORES; i++) rvi_scores_take(&s, 0.25);
    assert_true(rvi_scores_take(&s, 0.25) == 0);            /* all alike, however low */
    assert_true(fabs(rvi_scores_take(&s, 0.3) - 1) < 1e-4); /* the deviation is 0.05 at least */
    assert_true(rvi_scores_take(&s, 1) == 2);               /* never more */
    assert_true(rvi_scores_take(&s, NAN) == 0);
    assert_int_equal(s.n, RVI_SCORES);
    for (int i = 0; i < RVI_SCORES; i++) assert_true(isfinite(s.last[i]));
}

/* <x, r> */
static double along(const float *x, const float *r, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)r[i];
    return sum;
}

/* d (mean log p) / d (A or B along r), at the matrices a, b. */
static double slope(bed *bd, const float *a, const float *b, const float *r, bool of_a, double step)
{
    size_t n_ff = (size_t)bd->g.m->hp.n_ff, n_embd = (size_t)bd->g.m->hp.n_embd;
    size_t na = 3 * n_ff, nb = 3 * n_embd;
    float *copy = rvi_alloc_array(na + nb, sizeof *copy);
    double value[2];
    for (int side = 0; side < 2; side++) {
        memcpy(copy, a, na * sizeof *copy);
        memcpy(copy + na, b, nb * sizeof *copy);
        float *at = of_a ? copy : copy + na;
        for (size_t i = 0; i < (of_a ? na : nb); i++)
            at[i] += (float)((side ? step : -step) * (double)r[i]);
        bed_use(bd, &(rvi_delta){3, copy, copy + na});
        value[side] = bed_capture(bd, 0, BED_TOKENS);
    }
    rvi_free(copy);
    return (value[1] - value[0]) / (2 * step);
}

/* What an event adds to A and B is the gradient, 16 times for B. The first event moves B alone (it
 * was 0); the second both. */
static void gradient(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma2", "qwen3"};
    for (size_t k = 0; k < RVI_COUNT(names); k++) {
        bed b;
        bed_open(&b, names[k]);
        rvi_micro *m = micro_new(&b, 0.01);
        size_t na = 3 * (size_t)b.g.m->hp.n_ff, nb = 3 * (size_t)b.g.m->hp.n_embd;
        float *was = rvi_alloc_array(na + nb, sizeof *was),
              *step = rvi_alloc_array(na + nb, sizeof *step), *r = rvi_alloc_array(na, sizeof *r);
        for (int event = 0; event < 2; event++) {
            rvi_delta d = rvi_micro_delta(m);
            memcpy(was, d.a, na * sizeof *was);
            memcpy(was + na, d.b, nb * sizeof *was);
            bed_use(&b, event ? &d : NULL);
            bed_capture(&b, 0, BED_TOKENS);
            assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_STEPPED);
            d = rvi_micro_delta(m);
            for (size_t i = 0; i < na; i++) step[i] = d.a[i] - was[i];
            for (size_t i = 0; i < nb; i++) step[na + i] = d.b[i] / 0.999f - was[na + i];
            if (!event) assert_true(along(step, step, na) == 0);
            /* the same factor everywhere: along the step itself, and along random directions */
            double rate = 0, worst = 0;
            rvi_rng rng = {k};
            for (int of_a = 0; of_a < 1 + event; of_a++)
                for (int i = 0; i < 4; i++) {
                    size_t n = of_a ? na : nb;
                    const float *s = of_a ? step : step + na;
                    double length = sqrt(along(s, s, n)), reach = of_a ? 0.05 : 2e-3;
                    for (size_t j = 0; j < n; j++)
                        r[j] = i ? (float)((rvi_rng_double(&rng) - 0.5) * 3.46 / sqrt((double)n))
                                 : (float)((double)s[j] / length);
                    if (of_a && !i) reach = 0.02;
                    double seen = slope(&b, was, was + na, r, of_a, reach);
                    double told = along(s, r, n) / (of_a ? 1 : 16);
                    if (!of_a && !i) rate = told / seen;
                    double scale = length / (of_a ? 1 : 16) / rate;
                    worst = fmax(worst, fabs(told / rate - seen) / scale);
                }
            print_message("# %-8s event %d: %.1e of the gradient\n", names[k], event + 1, worst);
            assert_true(rate > 0 && worst < 0.005);
        }
        rvi_micro_free(m);
        rvi_free(was);
        rvi_free(step);
        rvi_free(r);
        bed_close(&b);
    }
}

/* Gain of mean log p by `events` events with this advantage; random: gradients of the same length
 * in random directions. */
static double gain(bed *b, rvi_micro *m, int events, double advantage, bool random, double *kl)
{
    size_t n_embd = (size_t)b->g.m->hp.n_embd;
    rvi_rng rng = {99};
    rvi_f16 *noise = rvi_alloc_array((size_t)BED_TOKENS * n_embd, sizeof *noise);
    bed_use(b, NULL);
    double before = bed_capture(b, 0, BED_TOKENS), sum = 0, one;
    for (int i = 0; i < events; i++) {
        if (random)
            for (int t = 0; t < b->n; t++) {
                double have = 0, got = 0;
                rvi_f16 *g = noise + (size_t)t * n_embd;
                for (size_t j = 0; j < n_embd; j++) {
                    double v = rvi_rng_double(&rng) - 0.5;
                    have += pow((double)rvi_f16_to_f32(b->tokens[t].g[j]), 2);
                    got += v * v;
                    g[j] = rvi_f32_to_f16((float)v);
                }
                b->tokens[t].g = g;
                b->tokens[t].g_scale *= (float)sqrt(have / got);
            }
        assert_int_equal(rvi_micro_event(m, b->tokens, b->n, advantage, &one), RVI_MICRO_STEPPED);
        sum += one;
        rvi_delta d = rvi_micro_delta(m);
        bed_use(b, &d);
        bed_capture(b, 0, BED_TOKENS);
    }
    double after = bed_capture(b, 0, BED_TOKENS);
    bed_use(b, NULL);
    rvi_free(noise);
    if (kl) *kl = sum / events;
    return after - before;
}

static void steps(void **state)
{
    (void)state;
    bed b;
    double kl;
    bed_open(&b, "llama");
    rvi_micro *up = micro_new(&b, 0.03), *down = micro_new(&b, 0.03), *random = micro_new(&b, 0.03);
    double more = gain(&b, up, 10, 1, false, &kl), less = gain(&b, down, 10, -1, false, NULL),
           none = gain(&b, random, 10, 1, true, NULL);
    print_message("# ten events: up %+.3f, down %+.3f, random %+.4f nats a token; KL %.4f a step\n",
                  more, less, none, kl);
    assert_true(more > 0.05 && less < -0.02 && fabs(none) < 0.1 * more);
    assert_true(kl <= 0.0301);
    /* nothing to do */
    assert_int_equal(rvi_micro_event(up, b.tokens, 0, 1, NULL), RVI_MICRO_NOTHING);
    assert_int_equal(rvi_micro_event(up, b.tokens, b.n, 0.01, NULL), RVI_MICRO_NOTHING);
    assert_int_equal(rvi_micro_status_of(up).n_events, 10);
    rvi_micro_free(up);
    rvi_micro_free(down);
    rvi_micro_free(random);
    bed_close(&b);
}

static bool same_bits(const rvi_micro *a, const rvi_micro *b, const rvi_model *m)
{
    rvi_delta x = rvi_micro_delta(a), y = rvi_micro_delta(b);
    size_t n = (size_t)x.rank * (size_t)(m->hp.n_ff + m->hp.n_embd);
    return x.rank == y.rank && !memcmp(x.a, y.a, n * sizeof(float)); /* b lies behind a */
}

static void bad_numbers(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "llama");
    rvi_micro *m = micro_new(&b, 0.03), *twin = micro_new(&b, 0.03);
    gain(&b, m, 2, 1, false, NULL);
    gain(&b, twin, 2, 1, false, NULL);
    rvi_captured good = b.tokens[3];
    float bad[] = {NAN, INFINITY, 1e38f};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        b.tokens[3].g_scale = bad[i];
        assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_DROPPED);
        b.tokens[3] = good;
        b.tokens[3].u_scale = bad[i];
        assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_DROPPED);
        b.tokens[3] = good;
    }
    b.tokens[3].log_p = NAN;
    assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_DROPPED);
    b.tokens[3] = good;
    assert_int_equal(rvi_micro_event(m, b.tokens, b.n, NAN, NULL), RVI_MICRO_DROPPED);
    assert_int_equal(rvi_micro_event(m, b.tokens, b.n, INFINITY, NULL), RVI_MICRO_DROPPED);
    assert_int_equal(rvi_micro_status_of(m).n_dropped, 9);
    assert_true(same_bits(m, twin, b.g.m));
    assert_true(rvi_micro_undo(m)); /* of the event before them */
    assert_true(rvi_micro_undo(twin));
    assert_true(same_bits(m, twin, b.g.m));
    rvi_micro_free(m);
    rvi_micro_free(twin);
    bed_close(&b);
}

static void caps(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "llama");
    rvi_micro *m = micro_new(&b, 50); /* far too long steps */
    int n_embd = b.g.m->hp.n_embd, n_ff = b.g.m->hp.n_ff;
    double largest = 0;
    bed_capture(&b, 0, BED_TOKENS);
    for (int i = 0; i < 60; i++) {
        rvi_micro_event(m, b.tokens, b.n, i % 3 ? 2 : -1.5, NULL);
        rvi_micro_status s = rvi_micro_status_of(m);
        assert_true(s.size <= s.cap * 1.0001);
        rvi_delta d = rvi_micro_delta(m);
        for (int t = 0; t < b.n; t++) { /* |B A u| against the residual stream */
            double dx[4096] = {0}, squares = 0;
            for (int j = 0; j < d.rank; j++) {
                double low = 0;
                for (int k = 0; k < n_ff; k++)
                    low += (double)d.a[j * n_ff + k] * (double)b.tokens[t].u_scale *
                           (double)rvi_f16_to_f32(b.tokens[t].u[k]);
                for (int k = 0; k < n_embd; k++) dx[k] += low * (double)d.b[j * n_embd + k];
            }
            for (int k = 0; k < n_embd; k++) squares += dx[k] * dx[k];
            double share = sqrt(squares) / (double)b.tokens[t].reach;
            largest = fmax(largest, share);
            assert_true(share <= 0.1501);
        }
    }
    assert_true(largest > 0.1); /* they were felt */
    rvi_micro_free(m);
    bed_close(&b);
}

/* Scores that go with some tokens: what is known of them goes with undo and with bytes. */
static void credits_go_along(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "llama");
    rvi_micro *m = micro_new(&b, 0.01), *twin = micro_new(&b, 0.01), *copy = micro_new(&b, 0.01);
    rvi_buf bytes = {0};
    for (int i = 0; i < 20; i++) { /* two texts, one always good */
        bed_capture(&b, i % 2 ? 15 : 0, 15);
        assert_int_equal(rvi_micro_event(m, b.tokens, b.n, i % 2 ? 1 : -1, NULL),
                         RVI_MICRO_STEPPED);
        assert_int_equal(rvi_micro_event(twin, b.tokens, b.n, i % 2 ? 1 : -1, NULL),
                         RVI_MICRO_STEPPED);
    }
    bed_capture(&b, 5, 20);
    assert_int_equal(rvi_micro_event(m, b.tokens, b.n, -1, NULL), RVI_MICRO_STEPPED);
    assert_true(rvi_micro_undo(m));
    assert_ok(rvi_micro_save(m, &bytes, err));
    assert_ok(rvi_micro_load(copy, bytes.data, bytes.len, err));
    rvi_micro *each[] = {m, twin, copy};
    for (size_t i = 0; i < RVI_COUNT(each); i++) /* with other credits it would be another step */
        assert_int_equal(rvi_micro_event(each[i], b.tokens, b.n, 1, NULL), RVI_MICRO_STEPPED);
    assert_true(same_bits(m, twin, b.g.m) && same_bits(m, copy, b.g.m));
    rvi_buf_deinit(&bytes);
    rvi_micro_free(m);
    rvi_micro_free(twin);
    rvi_micro_free(copy);
    bed_close(&b);
}

static void undo_and_determinism(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "qwen2");
    rvi_micro *m = micro_new(&b, 0.03), *twin = micro_new(&b, 0.03), *other;
    assert_ok(rvi_micro_new(&other, b.g.m, &(rvi_micro_options){.rank = 3, .seed = 8}, err));
    assert_true(same_bits(m, twin, b.g.m));
    assert_false(same_bits(m, other, b.g.m));
    assert_false(rvi_micro_undo(m));
    gain(&b, m, 5, 1, false, NULL);
    gain(&b, twin, 5, 1, false, NULL);
    assert_true(same_bits(m, twin, b.g.m)); /* the same events give the same bits */
    bed_capture(&b, 10, 20);
    assert_int_equal(rvi_micro_event(m, b.tokens, b.n, -1, NULL), RVI_MICRO_STEPPED);
    assert_false(same_bits(m, twin, b.g.m));
    assert_true(rvi_micro_undo(m));
    assert_true(same_bits(m, twin, b.g.m));
    assert_false(rvi_micro_undo(m));
    assert_int_equal(rvi_micro_status_of(m).n_events, 5);
    rvi_micro_free(m);
    rvi_micro_free(twin);
    rvi_micro_free(other);
    bed_close(&b);
}

static void rollback(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "llama");
    rvi_micro *m = micro_new(&b, 0.03), *start = micro_new(&b, 0.03), *good = micro_new(&b, 0.03);
    rvi_probe_result fine = {0.01, 0.01}, far = {0.051, 0}, worse = {0, 0.031};
    assert_false(rvi_micro_check(m, fine));
    assert_false(rvi_micro_status_of(m).has_good);
    gain(&b, m, 3, 1, false, NULL);
    assert_false(rvi_micro_check(m, fine));
    assert_false(rvi_micro_status_of(m).has_good);
    assert_true(rvi_micro_check(m, far)); /* nothing was found good yet: to the beginning */
    assert_true(same_bits(m, start, b.g.m));
    assert_true(rvi_micro_status_of(m).kl_step == 0.015);
    gain(&b, m, 4, 1, false, NULL);
    assert_false(rvi_micro_check(m, fine)); /* and steps are as long as before */
    assert_true(rvi_micro_status_of(m).kl_step == 0.03);
    assert_true(rvi_micro_status_of(m).has_good);
    rvi_buf bytes = {0};
    assert_ok(rvi_micro_save(m, &bytes, err));
    assert_ok(rvi_micro_load(good, bytes.data, bytes.len, err));
    assert_true(same_bits(m, good, b.g.m));
    gain(&b, m, 3, -1, false, NULL);
    assert_false(same_bits(m, good, b.g.m));
    assert_true(rvi_micro_check(m, worse));
    assert_true(same_bits(m, good, b.g.m));
    assert_int_equal(rvi_micro_status_of(m).n_rollbacks, 2);
    assert_false(rvi_micro_undo(m));
    assert_true(rvi_micro_check(m, (rvi_probe_result){NAN, 0})); /* which is bad now, too */
    assert_true(same_bits(m, start, b.g.m));
    /* a copy from bytes goes back to the same state, and forgets what it was told */
    gain(&b, good, 1, 1, false, NULL);
    assert_true(rvi_micro_undo(good));
    assert_true(rvi_micro_check(good, far));
    for (int i = 0; i < 3; i++) { /* always to the last good one */
        gain(&b, m, 16, i % 2 ? 1 : -1, false, NULL);
        assert_false(rvi_micro_check(m, fine));
    }
    for (int i = 0; i < 100; i++) rvi_micro_check(m, far);
    assert_true(same_bits(m, start, b.g.m));
    assert_true(fabs(rvi_micro_status_of(m).kl_step - 0.03 / 16) < 1e-9);
    /* bytes that are wrong change nothing */
    rv_error e;
    float nan = NAN;
    bytes.data[3] ^= 1;
    assert_int_equal(rvi_micro_load(m, bytes.data, bytes.len, &e), RV_E_LEARNING);
    bytes.data[3] ^= 1;
    for (size_t cut = 0; cut < bytes.len; cut += cut < 200 ? 1 : 9973)
        assert_int_equal(rvi_micro_load(m, bytes.data, cut, &e), RV_E_LEARNING);
    memcpy(bytes.data + bytes.len - 4, &nan, 4);
    assert_int_equal(rvi_micro_load(m, bytes.data, bytes.len, &e), RV_E_LEARNING);
    assert_true(same_bits(m, start, b.g.m));
    rvi_buf_deinit(&bytes);
    rvi_micro_free(m);
    rvi_micro_free(start);
    rvi_micro_free(good);
    bed_close(&b);
}

/* As earlier versions wrote it: with the state before the last event, and several good ones. */
static void older_bytes(void **state)
{
    enum { N_GOOD = 20, N_BEFORE = 24, HEADER = 80 };
    (void)state;
    bed b;
    bed_open(&b, "llama");
    rvi_micro *m = micro_new(&b, 0.03), *good = micro_new(&b, 0.03), *old = micro_new(&b, 0.03);
    rvi_buf then = {0}, now = {0}, bytes = {0};
    gain(&b, good, 4, 1, false, NULL);
    assert_ok(rvi_micro_save(good, &then, err));
    gain(&b, m, 9, -1, false, NULL);
    assert_ok(rvi_micro_save(m, &now, err));
    size_t credits = sizeof(rvi_credits), a_state = now.len - HEADER - credits;
    assert_true(rvi_buf_append(&bytes, now.data, HEADER + credits));
    assert_true(rvi_buf_append(&bytes, then.data + HEADER, credits));
    const rvi_buf *states[] = {&now, &then, &now, &then}; /* it, before it, two good ones */
    for (size_t i = 0; i < RVI_COUNT(states); i++)
        assert_true(rvi_buf_append(&bytes, states[i]->data + HEADER + credits, a_state));
    memcpy(bytes.data + N_GOOD, &(int32_t){2}, 4);
    memcpy(bytes.data + N_BEFORE, &(uint64_t){1}, 8);
    assert_ok(rvi_micro_load(old, bytes.data, bytes.len, err));
    assert_true(same_bits(old, m, b.g.m));
    assert_false(rvi_micro_undo(old));
    assert_true(rvi_micro_check(old, (rvi_probe_result){9, 9}));
    assert_true(same_bits(old, good, b.g.m));
    memcpy(now.data + N_GOOD, &(int32_t){-1}, 4); /* those were kept elsewhere */
    assert_ok(rvi_micro_load(old, now.data, now.len, err));
    assert_true(same_bits(old, m, b.g.m));
    assert_false(rvi_micro_status_of(old).has_good);
    rvi_buf_deinit(&then);
    rvi_buf_deinit(&now);
    rvi_buf_deinit(&bytes);
    rvi_micro_free(m);
    rvi_micro_free(good);
    rvi_micro_free(old);
    bed_close(&b);
}

/* The adapter has no part in keys and values: those computed without it serve with it, bit for bit,
 * so its set may have the serial of no adapters. */
static void past_stays_valid(void **state)
{
    (void)state;
    bed b;
    rvi_captured kept[BED_TOKENS];
    bed_open(&b, "gemma2");
    rvi_micro *m = micro_new(&b, 0.03);
    gain(&b, m, 3, 1, false, NULL);
    rvi_delta d = rvi_micro_delta(m);
    bed_use(&b, NULL);
    bed_capture(&b, 0, BED_TOKENS); /* the past is now that of no adapter */
    bed_use(&b, &d);
    b.set.serial = 0;
    bed_capture(&b, 0, BED_TOKENS);
    memcpy(kept, b.tokens, sizeof kept);
    b.set.serial = 12345; /* computed anew */
    bed_capture(&b, 0, BED_TOKENS);
    for (int i = 0; i < BED_TOKENS; i++) {
        assert_true(kept[i].log_p == b.tokens[i].log_p && kept[i].g_scale == b.tokens[i].g_scale);
        assert_memory_equal(kept[i].g, b.tokens[i].g, (size_t)b.g.m->hp.n_embd * sizeof *kept[i].g);
    }
    rvi_micro_free(m);
    bed_close(&b);
}

static void refused(void **state)
{
    (void)state;
    bed b;
    rv_error e;
    rvi_micro *m;
    bed_open(&b, "llama");
    assert_int_equal(rvi_micro_new(&m, b.g.m, &(rvi_micro_options){.rank = 5}, &e), RV_E_CONFIG);
    assert_int_equal(rvi_micro_new(&m, b.g.m, &(rvi_micro_options){.rank = -1}, &e), RV_E_CONFIG);
    rvi_adapter *a;
    assert_int_equal(rvi_delta_export(&a, b.g.m, &(rvi_delta){0, NULL, NULL}, &e), RV_E_LEARNING);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(gradient),
        cmocka_unit_test(steps),
        cmocka_unit_test(bad_numbers),
        cmocka_unit_test(caps),
        cmocka_unit_test(credits_go_along),
        cmocka_unit_test(undo_and_determinism),
        cmocka_unit_test(rollback),
        cmocka_unit_test(older_bytes),
        cmocka_unit_test(refused),
        cmocka_unit_test(past_stays_valid),
    };
    return cmocka_run_group_tests_name("micro adapter", tests, NULL, NULL);
}
