/* Whitening against what it must be, the probe against the model itself, and thumbs down. */
#include "learn/bed.h"

#include "learn/instant/edits.h"

/* ---- whitening ---- */

/* n_samples inputs of n numbers, along three strong directions and a little in all. */
static void fill_sample(rvi_rng *rng, float *u, int n)
{
    for (int i = 0; i < n; i++) u[i] = (float)(rvi_rng_double(rng) - 0.5);
    for (int d = 0; d < 3; d++) {
        double strong = (rvi_rng_double(rng) - 0.5) * 20;
        for (int i = 0; i < n; i++)
            u[i] += (float)(strong * sin(0.1 * (d + 1) * (i + 1)) / sqrt(n));
    }
}

static rvi_whitener *whitener_of(int n, int rank, int samples)
{
    rvi_whitener *w;
    float u[1024];
    rvi_rng rng = {5};
    assert_ok(rvi_whitener_new(&w, n, rank, err));
    for (int i = 0; i < samples; i++) {
        fill_sample(&rng, u, n);
        assert_true(rvi_whitener_add(w, u));
    }
    assert_int_equal(rvi_whitener_n_samples(w), samples);
    assert_ok(rvi_whitener_finish(w, err));
    return w;
}

static void whitening(void **state)
{
    (void)state;
    enum { N = 150, SAMPLES = 6000 };
    static double c[N][N];
    rvi_rng rng = {5};
    float u[N], key[N], low[N];
    double trace = 0;
    rvi_whitener *whole = whitener_of(N, 0, SAMPLES), *main = whitener_of(N, 8, SAMPLES);
    for (int s = 0; s < SAMPLES; s++) { /* C itself */
        fill_sample(&rng, u, N);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) c[i][j] += (double)u[i] * (double)u[j] / SAMPLES;
    }
    for (int i = 0; i < N; i++) trace += c[i][i];
    for (int i = 0; i < N; i++) c[i][i] += 0.01 * trace / N;
    for (int s = 0; s < 20; s++) {
        double dot = 0, ab = 0, aa = 0, bb = 0, worst = 0, ku = 0;
        fill_sample(&rng, u, N);
        rvi_whitener_keys(whole, u, 1, key);
        rvi_whitener_keys(main, u, 1, low);
        for (int i = 0; i < N; i++) dot += (double)key[i] * (double)u[i];
        assert_true(fabs(dot - 1) < 1e-4);
        /* C k is u, but for a factor */
        double ck[N], uu = 0;
        for (int i = 0; i < N; i++) {
            ck[i] = 0;
            for (int j = 0; j < N; j++) ck[i] += c[i][j] * (double)key[j];
            ku += ck[i] * (double)u[i];
            uu += (double)u[i] * (double)u[i];
        }
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fabs(ck[i] - ku / uu * (double)u[i]) / (ku / uu * sqrt(uu)));
        assert_true(worst < 5e-3);
        for (int i = 0; i < N; i++) {
            ab += (double)key[i] * (double)low[i];
            aa += (double)key[i] * (double)key[i];
            bb += (double)low[i] * (double)low[i];
        }
        if (ab / sqrt(aa * bb) < 0.93) /* the rest is almost diagonal */
            fail_msg("whole and main directions: cosine %g", ab / sqrt(aa * bb));
    }
    /* bytes */
    for (int i = 0; i < 2; i++) {
        rvi_whitener *from = i ? main : whole, *to;
        rvi_buf b = {0};
        rv_error e;
        float again[N], first[N];
        assert_ok(rvi_whitener_save(from, &b, err));
        assert_ok(rvi_whitener_load(&to, b.data, b.len, N, err));
        rvi_whitener_keys(from, u, 1, first);
        rvi_whitener_keys(to, u, 1, again);
        assert_memory_equal(first, again, sizeof first);
        rvi_whitener_free(to);
        assert_int_equal(rvi_whitener_load(&to, b.data, b.len - 1, N, &e), RV_E_LEARNING);
        assert_int_equal(rvi_whitener_load(&to, b.data, b.len, N - 1, &e), RV_E_LEARNING);
        assert_int_equal(rvi_whitener_load(&to, b.data, 3, N, &e), RV_E_LEARNING);
        memset(b.data + b.len - 4, 0xFF, 4);
        assert_int_equal(rvi_whitener_load(&to, b.data, b.len, N, &e), RV_E_LEARNING);
        rvi_buf_deinit(&b);
    }
    rvi_whitener_free(whole);
    rvi_whitener_free(main);
}

static void no_samples(void **state)
{
    (void)state;
    rvi_whitener *w;
    rv_error e;
    float zero[40] = {0}, bad[40] = {[7] = NAN};
    for (int rank = 0; rank <= 4; rank += 4) {
        assert_ok(rvi_whitener_new(&w, 40, rank, err));
        assert_int_equal(rvi_whitener_finish(w, &e), RV_E_INVALID);
        assert_false(rvi_whitener_add(w, bad));
        for (int i = 0; i < 9; i++) assert_true(rvi_whitener_add(w, zero));
        assert_int_equal(rvi_whitener_finish(w, &e), RV_E_INVALID); /* nothing but zeros */
        rvi_whitener_free(w);
    }
    assert_int_equal(rvi_whitener_new(&w, 40, 41, &e), RV_E_INVALID);
    assert_int_equal(rvi_whitener_new(&w, 0, 0, &e), RV_E_INVALID);
}

/* ---- the probe ---- */

/* KL(base || changed) and the mean surprise at every position of a text, by the model itself. */
static double true_kl(bed *b, const int32_t *ids, int n, const rvi_delta *d, double *nll)
{
    size_t vocab = (size_t)b->g.m->hp.n_vocab;
    float *logits[2];
    double sum = 0;
    *nll = 0;
    for (int i = 0; i < 2; i++) {
        feed f;
        bed_use(b, i ? d : NULL);
        logits[i] = rvi_alloc_array((size_t)n * vocab, sizeof(float));
        feed_init(&f, b->g.m, n, n, RV_KV_F32);
        feed_ids(&f, ids, n, n, b->s->adapters, logits[i], NULL);
        feed_deinit(&f);
    }
    for (int r = 0; r < n - 1; r++) {
        double z[2] = {0};
        for (int i = 0; i < 2; i++)
            for (size_t v = 0; v < vocab; v++)
                z[i] += exp((double)logits[i][(size_t)r * vocab + v]);
        for (size_t v = 0; v < vocab; v++) {
            double a = (double)logits[0][(size_t)r * vocab + v] - log(z[0]),
                   c = (double)logits[1][(size_t)r * vocab + v] - log(z[1]);
            sum += exp(a) * (a - c);
            if ((int32_t)v == ids[r + 1]) *nll += a - c;
        }
    }
    *nll /= n - 1;
    rvi_free(logits[0]);
    rvi_free(logits[1]);
    bed_use(b, NULL);
    return sum / (n - 1);
}

static void probe(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma2", "phi3"};
    for (size_t k = 0; k < RVI_COUNT(names); k++) {
        bed b;
        rvi_probe *p;
        rv_error e;
        bed_open(&b, names[k]);
        size_t n_ff = (size_t)b.g.m->hp.n_ff, n_embd = (size_t)b.g.m->hp.n_embd;
        assert_ok(rvi_probe_new(&p, b.by, b.g.m, 3, err));
        assert_ok(rvi_probe_add(p, b.ids, 24, err));
        assert_ok(rvi_probe_add(p, b.ids + 24, 17, err));
        assert_ok(rvi_probe_add(p, b.ids, 70, err)); /* more than there are positions */
        assert_int_equal(rvi_probe_add(p, b.ids, 5, &e), RV_E_LEARNING);
        assert_int_equal(rvi_probe_n_texts(p), 3);
        float *a = rvi_zalloc_array(2 * n_ff, sizeof *a),
              *c = rvi_zalloc_array(2 * n_embd, sizeof *c),
              *g = rvi_alloc_array(32 * n_embd, sizeof *g);
        rvi_delta d = {2, a, c};
        rvi_probe_result r = rvi_probe_score(p, &d, 0, 3);
        assert_true(fabs(r.kl) < 1e-12 && fabs(r.ppl) < 1e-12);
        rvi_rng rng = {k};
        for (size_t i = 0; i < 2 * n_ff; i++) a[i] = (float)(rvi_rng_double(&rng) - 0.5) * 0.1f;
        for (size_t i = 0; i < 2 * n_embd; i++) c[i] = (float)(rvi_rng_double(&rng) - 0.5) * 3.0f;
        r = rvi_probe_score(p, &d, 1, 1);
        double nll, kl = true_kl(&b, b.ids + 24, 17, &d, &nll);
        print_message(
            "# %-8s probe KL %.5f, the model's %.5f; ppl %+.2f %%, the model's %+.2f %%\n",
            names[k], r.kl, kl, 100 * r.ppl, 100 * (exp(nll) - 1));
        /* a tenth of the vocabulary stands for all of it: a little is missing */
        assert_true(r.kl > 0.2 * kl && r.kl < 1.05 * kl);
        assert_true(fabs(r.ppl - (exp(nll) - 1)) < 0.25 * fabs(r.ppl) + 0.03);
        /* the pull is the gradient of that KL: by B's second column along random directions */
        const float *u[32];
        int n = rvi_probe_pull(p, &d, 1, 0, 32, u, g, NULL);
        assert_int_equal(n, 16);
        for (int trial = 0; trial < 4; trial++) {
            double told = 0, step = 1e-2;
            float dir[4096];
            for (size_t i = 0; i < n_embd; i++) dir[i] = (float)(rvi_rng_double(&rng) - 0.5);
            for (int t = 0; t < n; t++) {
                double low = 0, along = 0;
                for (size_t i = 0; i < n_ff; i++) low += (double)a[n_ff + i] * (double)u[t][i];
                for (size_t i = 0; i < n_embd; i++)
                    along += (double)g[(size_t)t * n_embd + i] * (double)dir[i];
                told += low * along;
            }
            double value[2];
            for (int side = 0; side < 2; side++) {
                for (size_t i = 0; i < n_embd; i++)
                    c[n_embd + i] += (float)((side ? 2 : -1) * step) * dir[i];
                value[side] = rvi_probe_score(p, &d, 1, 1).kl;
            }
            for (size_t i = 0; i < n_embd; i++) c[n_embd + i] -= (float)step * dir[i];
            double seen = (value[1] - value[0]) / (2 * step);
            if (fabs(seen - told) > 0.02 * fabs(seen) + 1e-3 * r.kl)
                fail_msg("%s: %g seen, %g told", names[k], seen, told);
        }
        rvi_free(a);
        rvi_free(c);
        rvi_free(g);
        rvi_probe_free(p);
        bed_close(&b);
    }
}

/* With the probe the adapter stays near the model where it would otherwise leave it. */
static void pull(void **state)
{
    (void)state;
    bed b;
    rvi_probe *p;
    double kl[2];
    bed_open(&b, "llama");
    assert_ok(rvi_probe_new(&p, b.by, b.g.m, 8, err));
    for (int i = 0; i < 8; i++) assert_ok(rvi_probe_add(p, b.ids + 3 * i, 24, err));
    for (int with = 0; with < 2; with++) {
        rvi_micro *m;
        rvi_probe_result r;
        assert_ok(rvi_micro_new(
            &m, b.g.m,
            &(rvi_micro_options){.seed = 1, .kl_soft = 2e-5, .kl_hard = 100, .ppl_hard = 100},
            err));
        bed_use(&b, NULL);
        for (int i = 0; i < 60; i++) {
            bed_capture(&b, 40, BED_TOKENS);
            rvi_micro_event(m, b.tokens, b.n, 1, NULL);
            rvi_micro_set_probe(m, p);
            assert_false(rvi_micro_probe(m, &r));
            if (!with) rvi_micro_set_probe(m, NULL);
            rvi_delta d = rvi_micro_delta(m);
            bed_use(&b, &d);
        }
        kl[with] = r.kl;
        rvi_micro_free(m);
    }
    print_message("# probe KL after 60 events: %.4f without a pull, %.4f with\n", kl[0], kl[1]);
    assert_true(kl[1] < 0.7 * kl[0]);
    rvi_probe_free(p);
    bed_close(&b);
}

/* ---- thumbs down ---- */

typedef struct thumbs {
    bed b;
    rvi_whitener *w;
    rvi_thumbs *t;
} thumbs;

static void thumbs_open(thumbs *t, const char *name)
{
    bed_open(&t->b, name);
    float *u = rvi_alloc_array((size_t)t->b.g.m->hp.n_ff, sizeof *u);
    assert_ok(rvi_whitener_new(&t->w, t->b.g.m->hp.n_ff, 0, err));
    for (int from = 0; from < 60; from += 3) {
        bed_capture(&t->b, from, 30);
        for (int i = 0; i < t->b.n; i++) {
            for (int j = 0; j < t->b.g.m->hp.n_ff; j++)
                u[j] = t->b.tokens[i].u_scale * rvi_f16_to_f32(t->b.tokens[i].u[j]);
            rvi_whitener_add(t->w, u);
        }
    }
    rvi_free(u);
    assert_ok(rvi_whitener_finish(t->w, err));
    assert_ok(rvi_thumbs_new(&t->t, t->b.g.m, t->w, 0.02, err));
}

static void thumbs_close(thumbs *t)
{
    rvi_thumbs_free(t->t);
    rvi_whitener_free(t->w);
    bed_close(&t->b);
}

static void down(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "gemma2"};
    for (size_t k = 0; k < RVI_COUNT(names); k++) {
        thumbs t;
        rvi_edits *p, *copy, *alone;
        rv_error e;
        double kl;
        thumbs_open(&t, names[k]);
        bed *b = &t.b;
        assert_ok(rvi_edits_new(&p, err));
        double answer = bed_capture(b, 0, 12);
        bed_use(b, NULL);
        double other = bed_capture(b, 50, 30);
        bed_capture(b, 0, 12);
        assert_int_equal(rvi_edits_down(t.t, p, &kl), RVI_MICRO_NOTHING); /* not prepared */
        assert_false(rvi_edits_undo(p));
        for (int i = 0; i < 10; i++) {
            assert_ok(rvi_edits_prepare(t.t, p, b->tokens, b->n, err));
            assert_int_equal(rvi_edits_down(t.t, p, &kl), RVI_MICRO_STEPPED);
            double a = fmax(0.5 * pow(0.9, i), 0.2);
            assert_true(fabs(kl - 0.02 * a) < 1e-6);
            rvi_delta d = rvi_edits_delta(p);
            assert_int_equal(d.rank, 12); /* the same inputs, the same edits */
            bed_use(b, &d);
            bed_capture(b, 0, 12);
        }
        double fell = answer - bed_capture(b, 0, 12), spared = other - bed_capture(b, 50, 30);
        print_message("# %-8s ten thumbs: the answer %+.3f nats a token, another text %+.4f\n",
                      names[k], -fell, -spared);
        assert_true(fell > 0.1 && fabs(spared) < 0.1 * fell);
        /* undo is bit-exact, once */
        rvi_buf before = {0}, after = {0};
        assert_ok(rvi_edits_save(p, &before, err));
        bed_capture(b, 2, 30);
        assert_ok(rvi_edits_prepare(t.t, p, b->tokens, b->n, err));
        assert_int_equal(rvi_edits_down(t.t, p, NULL), RVI_MICRO_STEPPED);
        assert_true(rvi_edits_delta(p).rank > 12);
        assert_true(rvi_edits_undo(p));
        assert_false(rvi_edits_undo(p));
        assert_ok(rvi_edits_save(p, &after, err));
        assert_int_equal(before.len, after.len);
        assert_memory_equal(before.data, after.data, before.len);
        /* bytes, and the same event on both */
        assert_ok(rvi_edits_load(&copy, t.t, before.data, before.len, err));
        assert_int_equal(rvi_edits_n_events(copy), 10);
        for (int i = 0; i < 2; i++) {
            assert_ok(rvi_edits_prepare(t.t, i ? copy : p, b->tokens, b->n, err));
            assert_int_equal(rvi_edits_down(t.t, i ? copy : p, NULL), RVI_MICRO_STEPPED);
        }
        rvi_delta x = rvi_edits_delta(p), y = rvi_edits_delta(copy);
        assert_int_equal(x.rank, y.rank);
        assert_memory_equal(x.b, y.b, (size_t)x.rank * (size_t)b->g.m->hp.n_embd * sizeof(float));
        assert_int_equal(rvi_edits_load(&alone, t.t, before.data, before.len - 2, &e),
                         RV_E_LEARNING);
        assert_int_equal(rvi_edits_load(&alone, t.t, "", 0, &e), RV_E_LEARNING);
        memset(before.data + 40, 0xFF, 4);
        assert_int_equal(rvi_edits_load(&alone, t.t, before.data, before.len, &e), RV_E_LEARNING);
        /* bad numbers change nothing */
        b->tokens[2].g_scale = NAN;
        assert_int_equal(rvi_edits_prepare(t.t, p, b->tokens, b->n, &e), RV_E_LEARNING);
        assert_int_equal(rvi_edits_down(t.t, p, NULL), RVI_MICRO_NOTHING);
        assert_int_equal(rvi_edits_prepare(t.t, p, b->tokens, 0, &e), RV_E_LEARNING);
        rvi_buf_deinit(&before);
        rvi_buf_deinit(&after);
        rvi_edits_free(p);
        rvi_edits_free(copy);
        thumbs_close(&t);
    }
}

/* Long answers and many of them: the heaviest tokens, and no more edits than there may be; steps
 * that are far too long stay within the caps. */
/* What was prepared long before, in the meantime with others: the same bits. What others have
 * prepared or taken back since is not ready any more. */
static void early(void **state)
{
    (void)state;
    thumbs t;
    rvi_thumbs *ahead;
    rvi_edits *late, *soon, *other;
    thumbs_open(&t, "llama");
    bed *b = &t.b;
    assert_ok(rvi_thumbs_like(&ahead, t.t, err));
    assert_ok(rvi_edits_new(&late, err));
    assert_ok(rvi_edits_new(&soon, err));
    assert_ok(rvi_edits_new(&other, err));
    size_t bytes = (size_t)b->g.m->hp.n_ff * sizeof(float);
    for (int i = 0; i < 3; i++) { /* a new answer, more of it, the same */
        bed_capture(b, i == 0 ? 2 : 0, i ? 20 : 12);
        assert_ok(rvi_edits_prepare(ahead, soon, b->tokens, b->n, err));
        assert_ok(rvi_edits_prepare(t.t, late, b->tokens, b->n, err));
        assert_int_equal(rvi_edits_down(t.t, late, NULL), RVI_MICRO_STEPPED);
        bed_capture(b, 40, 30);
        assert_ok(rvi_edits_prepare(t.t, other, b->tokens, b->n, err));
        assert_int_equal(rvi_edits_down(t.t, other, NULL), RVI_MICRO_STEPPED);
        assert_true(rvi_edits_are_ready(ahead, soon));
        assert_int_equal(rvi_edits_down(ahead, soon, NULL), RVI_MICRO_STEPPED);
        rvi_delta x = rvi_edits_delta(late), y = rvi_edits_delta(soon);
        assert_int_equal(x.rank, y.rank);
        assert_memory_equal(x.a, y.a, (size_t)x.rank * bytes);
        assert_memory_equal(x.b, y.b, (size_t)x.rank * (size_t)b->g.m->hp.n_embd * sizeof(float));
    }
    assert_ok(rvi_edits_prepare(ahead, soon, b->tokens, b->n, err));
    assert_ok(rvi_edits_prepare(t.t, soon, b->tokens, 3, err));
    assert_false(rvi_edits_are_ready(ahead, soon));
    assert_int_equal(rvi_edits_down(ahead, soon, NULL), RVI_MICRO_NOTHING);
    assert_ok(rvi_edits_prepare(ahead, soon, b->tokens, b->n, err));
    assert_true(rvi_edits_undo(soon));
    assert_int_equal(rvi_edits_down(ahead, soon, NULL), RVI_MICRO_NOTHING);
    rvi_edits_free(late);
    rvi_edits_free(soon);
    rvi_edits_free(other);
    rvi_thumbs_free(ahead);
    thumbs_close(&t);
}

static void limits(void **state)
{
    (void)state;
    thumbs t;
    rvi_edits *p;
    rvi_thumbs *wild;
    thumbs_open(&t, "llama");
    bed *b = &t.b;
    assert_ok(rvi_thumbs_new(&wild, b->g.m, t.w, 100, err));
    assert_ok(rvi_edits_new(&p, err));
    for (int i = 0; i < 12; i++) {
        bed_capture(b, 2 * i, 34);
        for (int j = 34; j < 170; j++) b->tokens[j] = b->tokens[j % 34]; /* the same again */
        assert_ok(rvi_edits_prepare(wild, p, b->tokens, i % 2 ? 34 : 170, err));
        rvi_edits_down(wild, p, NULL);
        rvi_delta d = rvi_edits_delta(p);
        assert_true(d.rank <= RVI_EDITS_MAX);
        size_t n = (size_t)b->g.m->hp.n_embd, n_ff = (size_t)b->g.m->hp.n_ff;
        for (int s = 0; s < 34; s++) { /* what it adds to a token of the event */
            double dx[4096] = {0}, squares = 0;
            for (int j = 0; j < d.rank; j++) {
                double low = 0;
                for (size_t c = 0; c < n_ff; c++)
                    low += (double)d.a[(size_t)j * n_ff + c] * (double)b->tokens[s].u_scale *
                           (double)rvi_f16_to_f32(b->tokens[s].u[c]);
                for (size_t c = 0; c < n; c++) dx[c] += low * (double)d.b[(size_t)j * n + c];
            }
            for (size_t c = 0; c < n; c++) squares += dx[c] * dx[c];
            assert_true(isfinite(squares));
            /* edits of earlier answers are not looked at, so a little more is possible */
            if (!i) assert_true(sqrt(squares) <= 0.1501 * (double)b->tokens[s].reach);
        }
    }
    assert_true(rvi_edits_delta(p).rank > 100);
    rvi_edits_free(p);
    rvi_thumbs_free(wild);
    thumbs_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whitening), cmocka_unit_test(no_samples), cmocka_unit_test(probe),
        cmocka_unit_test(pull),      cmocka_unit_test(down),       cmocka_unit_test(limits),
        cmocka_unit_test(early),
    };
    return cmocka_run_group_tests_name("edits, probe, whitening", tests, NULL, NULL);
}
