/* Every allocation of writing, copying and merging adapters fails once, and then all from there on:
 * an error each time, no file or only the whole one, and nothing leaks (the sanitizer pass
 * watches).
 */
#include "adapter_files.h"
#include "harness/fail_alloc.h"
#include "lora/merge.h"
#include "lora/write.h"

typedef struct work {
    golden g;
    rvi_adapter *a;
    float *fisher;
    char path[256];
} work;

/* Each does one thing and says whether it left something behind, which it then removes. */
static rv_status do_peft(work *w, bool *made, rv_error *err)
{
    rvi_adapter_note note = {"base", "0123", "{\"a\": [1, 2]}"};
    rv_status st = rvi_adapter_write_peft(w->a, w->g.m->targets, w->path, RVI_F16, &note, err);
    *made = rvi_os_stat(w->path, NULL) != RVI_OS_NONE;
    return st;
}

static rv_status do_gguf(work *w, bool *made, rv_error *err)
{
    rvi_adapter_note note = {"base", "0123", "{\"a\": [1, 2]}"};
    rv_status st =
        rvi_adapter_write_gguf(w->a, w->g.m->targets, "llama", w->path, RVI_F32, &note, err);
    *made = rvi_os_stat(w->path, NULL) != RVI_OS_NONE;
    return st;
}

static rv_status do_copy(work *w, bool *made, rv_error *err)
{
    rvi_adapter *copy;
    rv_status st = rvi_adapter_copy(&copy, w->a, err);
    *made = copy != NULL;
    rvi_adapter_free(copy);
    return st;
}

static rv_status merge(work *w, const char *rule, bool *made, rv_error *err)
{
    rvi_adapter *merged;
    rvi_merge_part parts[] = {{.adapter = w->a, .fisher = w->fisher},
                              {.adapter = w->a, .fisher = w->fisher}};
    rv_status st =
        rvi_adapter_merge(&merged, w->g.m->targets, rvi_merge_find(rule), parts, 2, 2, NULL, err);
    *made = merged != NULL;
    rvi_adapter_free(merged);
    return st;
}

static rv_status do_average(work *w, bool *made, rv_error *err)
{
    return merge(w, "average", made, err);
}

static rv_status do_ewc(work *w, bool *made, rv_error *err)
{
    return merge(w, "ewc", made, err);
}

static void assert_whole(const work *w)
{
    rvi_adapter *a;
    assert_ok(load_adapter(&a, &w->g, w->path, err));
    rvi_adapter_free(a);
}

static void sweep(work *w, const char *name, rv_status (*act)(work *w, bool *made, rv_error *err))
{
    long n[2] = {0};
    for (int once = 0; once < 2; once++)
        for (;; n[once]++) {
            rv_error err = {0};
            bool made;
            rvi_os_remove_tree(w->path);
            if (once)
                fail_alloc_once(n[once]);
            else
                fail_alloc_after(n[once]);
            rv_status st = act(w, &made, &err);
            bool done = !fail_alloc_off();
            if (st != (done ? RV_OK : RV_E_NOMEM))
                fail_msg("%s, call %ld: status %d: %s", name, n[once], st, err.text);
            assert_true(made || !done);
            if (done) break;
            if (made) assert_whole(w); /* it failed behind the move into place */
        }
    print_message("# %s: %ld allocations\n", name, n[0]);
    assert_true(n[0] > 5 && n[0] == n[1]);
}

static void everything(void **state)
{
    work w = {0};
    rvi_buf file = {0};
    twin_open(&w.g, &file, &twins[0]); /* rows are put into PEFT's order */
    assert_ok(load_adapter(&w.a, &w.g, "tests/golden/llama/lora", err));
    w.fisher = rvi_zalloc_array(rvi_adapter_n_params(w.a), sizeof *w.fisher);
    assert_non_null(w.fisher);
    for (size_t i = 0; i < rvi_adapter_n_params(w.a); i++) w.fisher[i] = 1;
    snprintf(w.path, sizeof w.path, "%s", in_folder(*state, "written"));
    sweep(&w, "PEFT", do_peft);
    sweep(&w, "GGUF", do_gguf);
    sweep(&w, "copy", do_copy);
    sweep(&w, "average", do_average);
    sweep(&w, "ewc", do_ewc);
    rvi_free(w.fisher);
    rvi_adapter_free(w.a);
    golden_close(&w.g);
    rvi_buf_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything)};
    return cmocka_run_group_tests_name("writing adapters, allocation failures", tests, folder_setup,
                                       folder_teardown);
}
