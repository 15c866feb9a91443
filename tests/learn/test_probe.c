/* The probe against the model itself, and what it does to events. */
#include "learn/bed.h"

#include "learn/instant/micro.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(probe), cmocka_unit_test(pull)};
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
