/* Every allocation of loading an adapter fails once, on the ways where rows are put into another
 * order: a PEFT adapter on a GGUF model, a GGUF adapter on a checkpoint. An error each time, and
 * nothing leaks (the sanitizer pass watches). */
#include "adapter_files.h"
#include "harness/fail_alloc.h"

static void sweep(const golden *g, const char *path)
{
    long n = 0;
    for (;; n++) {
        rv_error err = {0};
        rvi_adapter *a;
        fail_alloc_after(n);
        rv_status st = load_adapter(&a, g, path, &err);
        bool done = !fail_alloc_off();
        if (st != (done ? RV_OK : RV_E_NOMEM)) fail_msg("call %ld: status %d: %s", n, st, err.text);
        assert_true(done == (a != NULL));
        rvi_adapter_free(a);
        if (done) break;
    }
    print_message("# %s: %ld allocations\n", path, n);
    assert_true(n > 30);
}

static void orders_that_differ(void **state)
{
    golden gguf, checkpoint;
    rvi_buf file = {0};
    twin_open(&gguf, &file, &twins[0]);
    golden_open_named(&checkpoint, twins[0].name, true, 1, NULL);
    sweep(&gguf, "tests/golden/llama/lora");
    sweep(&checkpoint, write_gguf_adapter(*state, &twins[0]));
    golden_close(&gguf);
    golden_close(&checkpoint);
    rvi_buf_deinit(&file);
}

/* A second workspace that cannot be had leaves the first one's scratch alone. */
static void failed_workspace_harms_no_other(void **state)
{
    (void)state;
    golden g;
    feed f;
    static const int32_t ids[] = {5, 6, 7, 8};
    golden_open_named(&g, "llama", false, 2, NULL);
    feed_init(&f, g.m, 8, 4, RV_KV_F32);
    float *before = rvi_alloc_array((size_t)g.m->hp.n_vocab, sizeof *before),
          *after = rvi_alloc_array((size_t)g.m->hp.n_vocab, sizeof *after);
    feed_ids(&f, ids, 4, 4, NULL, NULL, before);
    for (long n = 0;; n++) {
        rv_error err = {0};
        rvi_workspace *larger;
        fail_alloc_after(n);
        rv_status st = rvi_workspace_new(&larger, g.m, 64, 1, &err);
        bool done = !fail_alloc_off();
        assert_int_equal(st, done ? RV_OK : RV_E_NOMEM);
        rvi_seq_truncate(&f.seq, 0);
        feed_ids(&f, ids, 4, 4, NULL, NULL, after);
        assert_memory_equal(before, after, (size_t)g.m->hp.n_vocab * sizeof *after);
        rvi_workspace_free(larger);
        if (done) break;
    }
    rvi_free(before);
    rvi_free(after);
    feed_deinit(&f);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_that_differ),
        cmocka_unit_test(failed_workspace_harms_no_other),
    };
    return cmocka_run_group_tests_name("adapter allocation failures", tests, folder_setup,
                                       folder_teardown);
}
