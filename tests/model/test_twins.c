/* The golden checkpoints as GGUF files: the same tensors under other names, other row orders and
 * other metadata must give the same logits. */
#include "twin.h"

static void same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        golden g;
        feed f;
        int n;
        rvi_buf file = {0};
        twin_open(&g, &file, &twins[i]);
        const int32_t *ids = golden_ids(g.expected, "tokens", &n);
        size_t total = (size_t)n * (size_t)g.m->hp.n_vocab;
        float *logits = rvi_alloc_array(total, sizeof *logits);
        feed_init(&f, g.m, n, n, RV_KV_F32);
        feed_ids(&f, ids, n, n, NULL, logits, NULL);
        double error = twin_worst(logits, golden_floats(g.expected, "logits"), total);
        print_message("# %-14s as GGUF: logits %.2e\n", twins[i].name, error);
        assert_true(error < 2e-4); /* observed: 1.0e-5 */
        feed_deinit(&f);
        rvi_free(logits);
        golden_close(&g);
        rvi_buf_deinit(&file);
    }
}

/* Past the original context and past the windows. */
static void same_long_inputs(void **state)
{
    (void)state;
    int n_checked = 0;
    for (size_t i = 0; i < RVI_COUNT(twins); i++) {
        golden g;
        feed f;
        int n;
        rvi_buf file = {0};
        twin_open(&g, &file, &twins[i]);
        const int32_t *ids = golden_ids(g.expected, "long_tokens", &n);
        const float *want = golden_floats(g.expected, "long_last_logits");
        if (want) {
            size_t vocab = (size_t)g.m->hp.n_vocab;
            float *last = rvi_alloc_array(vocab, sizeof *last);
            feed_init(&f, g.m, n, 128, RV_KV_F32);
            feed_ids(&f, ids, n, 128, NULL, NULL, last);
            double error = twin_worst(last, want, vocab);
            print_message("# %-14s as GGUF: long input %.2e\n", twins[i].name, error);
            assert_true(error < 2e-4); /* observed: 1.0e-5 */
            n_checked++;
            feed_deinit(&f);
            rvi_free(last);
        }
        golden_close(&g);
        rvi_buf_deinit(&file);
    }
    assert_int_equal(n_checked, 8); /* all but phi3, whose context is shorter */
}

/* What the GGUF keys about windows mean, layer by layer. */
static void window_patterns(void **state)
{
    (void)state;
    static const struct {
        uint32_t period;
        uint8_t list[2];
        int want[2];
    } cases[] = {
        {.period = 2, .want = {64, 0}},
        {.period = 1, .want = {0, 0}},
        {.list = {0, 1}, .want = {0, 64}},
        {.list = {1, 1}, .want = {64, 64}},
    };
    for (size_t i = 0; i < RVI_COUNT(cases); i++) {
        static const char key[] = "gemma2.attention.sliding_window_pattern";
        gguf_builder b = {.version = 3};
        twin_config c;
        rvi_buf file = {0};
        rvi_blob blob;
        rvi_source *s;
        rvi_hparams h;
        rvi_arena arena = {0};
        twin_config_open(&c, "gemma2");
        twin_metadata(&b, "gemma2", c.json);
        if (cases[i].period)
            gb_u32(&b, key, cases[i].period);
        else
            gb_array(&b, key, RVI_GGUF_BOOL, cases[i].list, 2, 1);
        gb_finish(&b, &file);
        rvi_blob_from_memory(&blob, file.data, file.len);
        assert_ok(rvi_source_open_gguf_blob(&s, &blob, "pattern", err));
        rvi_meta meta = rvi_source_meta(s);
        assert_ok(rvi_hparams_read(&h, s->arch, &meta, &arena, err));
        assert_memory_equal(h.window, cases[i].want, sizeof cases[i].want);
        rvi_source_close(s);
        rvi_arena_deinit(&arena);
        twin_config_close(&c);
        rvi_buf_deinit(&file);
        gb_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_logits),
        cmocka_unit_test(same_long_inputs),
        cmocka_unit_test(window_patterns),
    };
    return cmocka_run_group_tests_name("twins", tests, NULL, NULL);
}
