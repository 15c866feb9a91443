/* Sampled answers with guesses have exactly the model's distribution. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/api.h"
#include "api/opened.h"
#include "decode/answer.h"
#include "harness/amount.h"

enum { N_PROMPT = 48, CONTEXT = 160 };

/* Answers of 4 tokens of an alphabet of 4, drawn with 25,000 seeds: their frequencies against the
 * model's own probabilities. The prompt is of the same alphabet, so every token but the first is
 * guessed, and a quarter of the guesses is right. */
static void exact_distribution(void **state)
{
    enum { LETTERS = 4, LENGTH = 4, WORDS = 256, ANSWERS = AMOUNT(25000, 1000) };
    static const int32_t letters[LETTERS] = {20, 31, 42, 53};
    (void)state;
    opened o;
    open_all(&o, "tests/gguf/llama.gguf", 1, 64);
    int n_vocab = o.m->model->hp.n_vocab, counts[WORDS] = {0}, n_guessed = 0, n_right = 0;
    rv_logit_bias bias[1024];
    size_t n_bias = 0;
    assert_in_range(n_vocab, 54, 1024);
    for (int32_t id = 0; id < n_vocab; id++)
        if ((id - 20) % 11 || id < 20 || id > 53) bias[n_bias++] = (rv_logit_bias){id, -INFINITY};
    assert_int_equal(n_bias, n_vocab - LETTERS);
    int32_t ids[N_PROMPT + LENGTH];
    for (int i = 0; i < N_PROMPT; i++) ids[i] = letters[(i * i + i / 5) % LETTERS];
    rv_session *s;
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    assert_ok(rv_session_new(&s, o.m, &so, err));
    s->e->e->tries_all = true;
    for (uint64_t seed = 0; seed < ANSWERS; seed++) {
        rv_sampling sampling = {.size = sizeof sampling,
                                .seed = seed + 1000000,
                                .temperature = 1,
                                .top_p = 1,
                                .repetition_penalty = 1,
                                .logit_bias = bias,
                                .n_logit_bias = n_bias};
        rv_generate_options go = {.size = sizeof go, .sampling = &sampling, .max_tokens = LENGTH};
        rv_answer *a;
        int word = 0;
        assert_ok(rv_session_generate(s, ids, N_PROMPT, &go, &a, err));
        assert_int_equal(a->n_ids, LENGTH);
        for (int i = 0; i < LENGTH; i++) word = word * LETTERS + (a->ids[i] - 20) / 11;
        counts[word]++;
        n_guessed += a->n_guessed;
        n_right += a->n_right;
        rv_free(a);
    }
    double chance[WORDS] = {1}; /* of the words of i letters, for i from 0 on */
    float log_p[N_PROMPT + LENGTH];
    for (int i = 0, n = 1; i < LENGTH; i++, n *= LETTERS)
        for (int word = n - 1; word >= 0; word--) {
            double x[LETTERS], all = 0, p = chance[word];
            for (int at = i - 1, rest = word; at >= 0; at--, rest /= LETTERS)
                ids[N_PROMPT + at] = letters[rest % LETTERS];
            for (int k = 0; k < LETTERS; k++) {
                ids[N_PROMPT + i] = letters[k];
                assert_ok(rv_engine_score(s->e, ids, (size_t)(N_PROMPT + i + 1), NULL, log_p, err));
                all += x[k] = exp((double)log_p[N_PROMPT + i - 1]);
            }
            for (int k = 0; k < LETTERS; k++) chance[word * LETTERS + k] = p * x[k] / all;
        }
    double chi = 0, sum = 0;
    for (int word = 0; word < WORDS; word++) {
        double want = chance[word] * ANSWERS;
        chi += (counts[word] - want) * (counts[word] - want) / want;
        sum += chance[word];
    }
    print_message("chi-square %.1f of 255, %d guesses, %d right\n", chi, n_guessed, n_right);
    assert_true(fabs(sum - 1) < 1e-5);
    assert_true(n_guessed > ANSWERS && n_right > ANSWERS / 4);
    if (AMOUNT(true, false)) /* with fewer answers most words are too rare for chi-square */
        assert_true(chi < 255 + 4 * sqrt(2 * 255.0)); /* four standard deviations */
    rv_session_free(&s);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exact_distribution)};
    return cmocka_run_group_tests_name("distribution of guessed answers", tests, NULL, NULL);
}
