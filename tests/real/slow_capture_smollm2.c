/* The sparse gradient of captured tokens against the exact one over the whole vocabulary, on tokens
 * that the real model generated. Skipped where the model is not there. */
#include "model/golden.h"

#include <math.h>
#include <stdlib.h>

#include "decode/answer.h"
#include "decode/capture.h"
#include "decode/sampler.h"
#include "real/cached_model.h"

enum { N_TOKENS = 1000, N_ANSWER = 100, N_PROMPT = 6 };

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("smollm2", path, sizeof path);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* gh[t] += -p[t][i] E[i] over all i, for N_ANSWER tokens at once */
static void exact_rows(const rvi_model *m, const rvi_kernels *k, rvi_tensor *rows, const float *p,
                       float *gh)
{
    size_t n_embd = (size_t)m->hp.n_embd, vocab = (size_t)m->hp.n_vocab;
    float row[4096];
    for (size_t i = 0; i < vocab; i++) {
        int32_t id = (int32_t)i;
        m->be->ops->embed(m->be, rvi_cols_of(rows, 0, (int)n_embd), m->head.w, &id, 1, 1);
        m->be->ops->rows_read(m->be, rvi_cols_of(rows, 0, (int)n_embd), 0, row);
        for (size_t t = 0; t < N_ANSWER; t++)
            if (p[t * vocab + i] > 1e-10f) k->axpy(gh + t * n_embd, -p[t * vocab + i], row, n_embd);
    }
}

static void add_chosen(const rvi_model *m, const rvi_kernels *k, rvi_tensor *rows, int32_t id,
                       float *gh)
{
    float row[4096];
    m->be->ops->embed(m->be, rvi_cols_of(rows, 0, m->hp.n_embd), m->head.w, &id, 1, 1);
    m->be->ops->rows_read(m->be, rvi_cols_of(rows, 0, m->hp.n_embd), 0, row);
    k->axpy(gh, 1, row, (size_t)m->hp.n_embd);
}

/* Through the final norm: the formula, in double. */
static void norm_back(const rvi_model *m, const float *w, const float *x, const float *gh,
                      double *g)
{
    int n = m->hp.n_embd;
    double squares = 0, along = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    double rho = 1 / sqrt(squares / n + (double)m->hp.norm_eps);
    for (int i = 0; i < n; i++) along += (double)x[i] * (double)w[i] * (double)gh[i];
    for (int i = 0; i < n; i++)
        g[i] = rho * (double)w[i] * (double)gh[i] - rho * rho * rho / n * (double)x[i] * along;
}

static void sparse_is_near_exact(void **state)
{
    (void)state;
    if (!path[0]) skip();
    golden g;
    rvi_kernels k;
    rvi_engine *e;
    rvi_session *s;
    rvi_capturer *by;
    rvi_capture *ring;
    rvi_tensor *rows;
    rvi_ids eos = {0};
    rv_sampling warm;
    double *cosine = rvi_alloc_array(N_TOKENS, sizeof *cosine);
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_kernels_init(&k, NULL);
    const rvi_model *m = g.m;
    size_t n_embd = (size_t)m->hp.n_embd, vocab = (size_t)m->hp.n_vocab;
    assert_ok(rvi_engine_new(
        &e, m, NULL, &eos, &(rvi_engine_options){.n_tokens = 256, .max_rows = 128, .max_logits = 1},
        err));
    assert_ok(rvi_session_new(&s, e, 256, NULL, NULL, err));
    assert_ok(rvi_capturer_new(&by, m, err));
    assert_ok(rvi_capture_new(&ring, by, N_TOKENS, err));
    assert_ok(m->be->ops->rows_new(m->be, &rows, 1, (int)n_embd, err));
    rvi_sampling_init(&warm, sizeof warm, false);
    warm.temperature = 1;
    float *p = rvi_alloc_array(N_ANSWER * vocab, sizeof *p),
          *gh = rvi_alloc_array(N_ANSWER * n_embd, sizeof *gh),
          *x = rvi_alloc_array(N_ANSWER * n_embd, sizeof *x), w[4096];
    double *exact = rvi_alloc_array(n_embd, sizeof *exact);
    assert_true(cosine && p && gh && x && exact);
    m->be->ops->rows_read(m->be, rvi_cols_of(m->out_norm, 0, (int)n_embd), 0, w);
    for (int a = 0; a * N_ANSWER < N_TOKENS; a++) {
        int32_t ids[N_PROMPT + N_ANSWER];
        for (int i = 0; i < N_PROMPT; i++) ids[i] = (a * 977 + i * 131) % 40000 + 300;
        rvi_generated out;
        warm.seed = (uint64_t)a;
        rv_generate_options o = {.size = sizeof o,
                                 .sampling = &warm,
                                 .max_tokens = N_ANSWER,
                                 .top_logprobs = -1,
                                 .ignore_eos = 1};
        assert_ok(rvi_answer_start(s, ids, N_PROMPT, &o, err));
        while (rvi_answer_advance(e, NULL)) {
        }
        assert_ok(rvi_answer_take(s, &out, err));
        memcpy(ids + N_PROMPT, out.ids.data, N_ANSWER * sizeof *ids);
        rvi_generated_deinit(&out);

        feed f; /* once more, all at once */
        feed_init(&f, m, N_PROMPT + N_ANSWER, N_PROMPT + N_ANSWER, RV_KV_F16);
        feed_ids(&f, ids, N_PROMPT + N_ANSWER - 1, N_PROMPT + N_ANSWER - 1, NULL, NULL, NULL);
        rvi_capture_begin(ring);
        memset(gh, 0, N_ANSWER * n_embd * sizeof *gh);
        for (int t = 0; t < N_ANSWER; t++) {
            int32_t row = N_PROMPT - 1 + t, id = ids[N_PROMPT + t];
            float *pt = p + (size_t)t * vocab;
            memcpy(pt, rvi_model_logits(m, f.ws, f.rows, &row, 1), vocab * sizeof *pt);
            rvi_workspace_last_layer(f.ws, row, NULL, NULL, x + (size_t)t * n_embd);
            float *copy = rvi_alloc_array(vocab, sizeof *copy);
            memcpy(copy, pt, vocab * sizeof *copy);
            rvi_capture_take(ring, f.ws, row, copy, 1, id);
            rvi_free(copy);
            double best = -INFINITY, sum = 0;
            for (size_t i = 0; i < vocab; i++) best = fmax(best, (double)pt[i]);
            for (size_t i = 0; i < vocab; i++) sum += exp((double)pt[i] - best);
            for (size_t i = 0; i < vocab; i++) pt[i] = (float)(exp((double)pt[i] - best) / sum);
            add_chosen(m, &k, rows, id, gh + (size_t)t * n_embd);
        }
        exact_rows(m, &k, rows, p, gh);
        for (int t = 0; t < N_ANSWER; t++) {
            rvi_captured c = rvi_capture_get(ring, (uint64_t)a + 1, t);
            norm_back(m, w, x + (size_t)t * n_embd, gh + (size_t)t * n_embd, exact);
            double ab = 0, aa = 0, bb = 0;
            for (size_t i = 0; i < n_embd; i++) {
                double v = (double)rvi_f16_to_f32(c.g[i]) * (double)c.g_scale;
                ab += v * exact[i];
                aa += v * v;
                bb += exact[i] * exact[i];
            }
            cosine[a * N_ANSWER + t] = ab / sqrt(aa * bb);
        }
        feed_deinit(&f);
    }
    qsort(cosine, N_TOKENS, sizeof *cosine, by_value);
    print_message(
        "# cosine of sparse and exact over %d tokens: median %.5f, 5%% %.4f, least %.4f\n",
        N_TOKENS, cosine[N_TOKENS / 2], cosine[N_TOKENS / 20], cosine[0]);
    assert_true(cosine[N_TOKENS / 2] >= 0.98 && cosine[N_TOKENS / 20] >= 0.9);
    m->be->ops->tensor_free(m->be, rows);
    rvi_capture_free(ring);
    rvi_capturer_free(by);
    rvi_session_free(s);
    rvi_engine_free(e);
    rvi_free(cosine);
    rvi_free(p);
    rvi_free(gh);
    rvi_free(x);
    rvi_free(exact);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sparse_is_near_exact)};
    return cmocka_run_group_tests_name("captured tokens of smollm2", tests, find_model, NULL);
}
