/* The real model: SmolLM2-135M-Instruct (Q4_1), as `ruvllm pull smollm2` leaves it in the cache
 * folder. Every case is skipped where it is not there. Reference answers: transformers in float32
 * on the dequantized weights (tests/golden/smollm2/reference.json). */
#include "model/law.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/os.h"
#include "decode/perplexity.h"
#include "real/cached_model.h"
#include "tokenizer/tokenizer.h"

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("smollm2", path, sizeof path);
    return 0;
}

static void need_model(void)
{
    if (!path[0]) skip();
}

/* The greedy continuation is compared by feeding prompt and answer at once: by the law the argmax
 * at each position is what the token loop would choose. */
static void greedy_answers(void **state)
{
    (void)state;
    need_model();
    golden g;
    rvi_blob file;
    rvi_arena arena = {0};
    const rvi_json *root;
    int n_equal = 0, n_answers = 0;
    double worst_top = 0;
    assert_ok(rvi_blob_open(&file, "tests/golden/smollm2/reference.json", err));
    assert_ok(
        rvi_json_parse(&root, (const char *)file.data, file.len, &arena, "reference.json", err));
    golden_open(&g, path, NULL, true, 2, NULL);
    const rvi_json *answers = rvi_json_get(root, "greedy");
    size_t vocab = (size_t)g.m->hp.n_vocab;
    for (size_t a = 0; a < rvi_json_count(answers); a++) {
        const rvi_json *answer = rvi_json_at(answers, a),
                       *prompt = rvi_json_get(answer, "prompt_ids"),
                       *ids = rvi_json_get(answer, "new_ids");
        const rvi_json *gap = rvi_json_get(answer, "gap"),
                       *top = rvi_json_get(answer, "first_top10");
        int n_prompt = (int)rvi_json_count(prompt), n_new = 0, n = 0;
        int32_t all[512];
        while ((size_t)n_new < rvi_json_count(ids) &&
               rvi_json_number(rvi_json_at(gap, (size_t)n_new), 0) > 0.01)
            n_new++;
        for (int i = 0; i < n_prompt; i++)
            all[n++] = (int32_t)rvi_json_int(rvi_json_at(prompt, (size_t)i), -1);
        for (int i = 0; i < n_new; i++)
            all[n++] = (int32_t)rvi_json_int(rvi_json_at(ids, (size_t)i), -1);
        feed f;
        float *last = rvi_alloc_array(vocab, sizeof *last);
        feed_init(&f, g.m, n, n_prompt, RV_KV_F32);
        feed_ids(&f, all, n_prompt, n_prompt, NULL, NULL, last);
        for (size_t i = 0; i < 10; i++) {
            int64_t id = rvi_json_int(rvi_json_at(rvi_json_get(top, "ids"), i), -1);
            worst_top = fmax(
                worst_top, fabs((double)last[id] -
                                rvi_json_number(rvi_json_at(rvi_json_get(top, "logits"), i), NAN)));
        }
        feed_deinit(&f);
        feed_init(&f, g.m, n, n, RV_KV_F32);
        float *logits = rvi_alloc_array((size_t)n * vocab, sizeof *logits);
        feed_ids(&f, all, n, n, NULL, logits, NULL);
        for (int i = 0; i < n_new; i++) {
            const float *row = logits + (size_t)(n_prompt - 1 + i) * vocab;
            size_t best = 0;
            for (size_t v = 1; v < vocab; v++)
                if (row[v] > row[best]) best = v;
            if ((int32_t)best != all[n_prompt + i])
                fail_msg("answer %zu, token %d: %zu instead of %d", a, i, best, all[n_prompt + i]);
            n_equal++;
        }
        n_answers++;
        feed_deinit(&f);
        rvi_free(last);
        rvi_free(logits);
    }
    print_message("# %d answers, %d tokens equal, top-10 logits of the first token within %.1e\n",
                  n_answers, n_equal, worst_top);
    assert_int_equal(n_answers, 20);
    assert_true(n_equal > 1000);
    assert_true(worst_top < 5e-4); /* observed: 6.1e-5 */
    golden_close(&g);
    rvi_blob_close(&file);
    rvi_arena_deinit(&arena);
}

/* The first 8 windows of the fixed text; transformers in float32 gives 37.95829. The whole text is
 * `ruvllm perplexity`'s (README). */
static void perplexity(void **state)
{
    (void)state;
    need_model();
    enum { WINDOWS = 8, CTX = 512 };
    const double reference = 37.95829;
    rvi_blob text;
    rv_perplexity p[2];
    assert_ok(rvi_blob_open(&text, "tests/text/northanger-200k.txt", err));
    for (int exact = 0; exact < 2; exact++) {
        golden g;
        rvi_tokenizer *t;
        rvi_ids ids = {0};
        golden_open(&g, path, NULL, exact, 2, NULL);
        assert_ok(rvi_tokenizer_from_gguf(&t, g.m->source->gguf, NULL, err));
        assert_ok(rvi_tokenizer_encode(t, (const char *)text.data, text.len, 0, &ids, err));
        assert_int_equal(ids.len, 46366);
        assert_ok(rvi_perplexity_run(&p[exact], g.m, ids.data, WINDOWS * CTX, CTX,
                                     exact ? RV_KV_F32 : RV_KV_F16, -1, NULL, NULL, err));
        rvi_ids_deinit(&ids);
        rvi_tokenizer_free(t);
        golden_close(&g);
    }
    print_message("# perplexity of %d windows: exact %.5f, int8 activations and f16 KV %.5f\n",
                  WINDOWS, p[1].value, p[0].value);
    assert_int_equal(p[1].n_scored, WINDOWS * 255);
    assert_true(fabs(p[1].value - reference) < 0.01);
    assert_true(fabs(p[0].value / reference - 1) < 0.01);
    rvi_blob_close(&text);
}

static void law(void **state)
{
    (void)state;
    need_model();
    static const int32_t ids[] = {1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308};
    int32_t longer[80];
    for (int i = 0; i < 80; i++) longer[i] = (i * 7919 + 13) % 49000;
    check_subject(&(subject){path, ids, RVI_COUNT(ids), RV_KV_F16, false, false});
    check_subject(&(subject){path, ids, RVI_COUNT(ids), RV_KV_F32, true, false});
    check_subject(&(subject){path, longer, 80, RV_KV_F16, false, true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(greedy_answers),
                                       cmocka_unit_test(perplexity), cmocka_unit_test(law)};
    return cmocka_run_group_tests_name("smollm2", tests, find_model, NULL);
}
