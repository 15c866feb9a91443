/* Every allocation of the instant loop fails once: an error each time, nothing leaks (the sanitizer
 * pass watches), and what was there works on. Events and capturing allocate nothing at all. */
#include "learn/bed.h"

#include "decode/answer.h"
#include "harness/fail_alloc.h"
#include "learn/instant/micro.h"

static bed b;

typedef rv_status (*step_fn)(rv_error *err);

static void sweep(const char *name, step_fn step)
{
    long n = 0;
    for (;; n++) {
        rv_error e = {0};
        fail_alloc_after(n);
        rv_status st = step(&e);
        bool done = !fail_alloc_off();
        if (st != (done ? RV_OK : RV_E_NOMEM))
            fail_msg("%s, call %ld: status %d: %s", name, n, st, e.text);
        if (done) break;
    }
    print_message("# %s: %ld allocations\n", name, n);
    assert_true(n > 0);
}

static rv_status capturing(rv_error *err)
{
    rvi_capturer *by;
    rvi_capture *ring = NULL;
    rv_status st = rvi_capturer_new(&by, b.g.m, err);
    if (!st) st = rvi_capture_new(&ring, by, 16, err);
    rvi_capture_free(ring);
    rvi_capturer_free(by);
    return st;
}

static rv_status slot(rv_error *err)
{
    rv_generate_options o = {.size = sizeof o, .max_tokens = 4, .top_logprobs = -1};
    rvi_generated out;
    b.s->capture = b.ring;
    rv_status st = rvi_answer_start(b.s, b.ids, BED_PROMPT, &o, err);
    if (!st) {
        st = rvi_answer_lock(b.s, &(rvi_slot){b.ids, 3, 0}, err);
        while (!st && rvi_answer_advance(b.e, NULL)) {
        }
        rv_status taken = rvi_answer_take(b.s, &out, err);
        if (!st) st = taken;
        rvi_generated_deinit(&out);
    }
    b.s->capture = NULL;
    return st;
}

static rv_status micro(rv_error *err)
{
    rvi_micro *m;
    rvi_buf bytes = {0};
    rvi_adapter *a = NULL;
    rv_status st = rvi_micro_new(&m, b.g.m, &(rvi_micro_options){.rank = 2}, err);
    if (!st) {
        assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_STEPPED);
        rvi_delta d = rvi_micro_delta(m);
        st = rvi_micro_save(m, &bytes, err);
        if (!st) st = rvi_micro_load(m, bytes.data, bytes.len, err);
        if (!st) st = rvi_delta_export(&a, b.g.m, &d, err);
    }
    rvi_adapter_free(a);
    rvi_buf_deinit(&bytes);
    rvi_micro_free(m);
    return st;
}

static rv_status probe(rv_error *err)
{
    rvi_probe *p;
    rv_status st = rvi_probe_new(&p, b.by, b.g.m, 2, err);
    if (!st) st = rvi_probe_add(p, b.ids, 20, err);
    if (!st) assert_int_equal(rvi_probe_n_texts(p), 1);
    rvi_probe_free(p);
    return st;
}

static void allocations_that_fail(void **state)
{
    (void)state;
    bed_open(&b, "llama");
    sweep("slot and captured answer", slot);
    bed_capture(&b, 0, BED_TOKENS);
    sweep("capture", capturing);
    sweep("micro adapter", micro);
    sweep("probe", probe);
    bed_close(&b);
}

static void events_allocate_nothing(void **state)
{
    (void)state;
    rvi_micro *m;
    rvi_probe *p;
    bed_open(&b, "llama");
    assert_ok(rvi_micro_new(&m, b.g.m, &(rvi_micro_options){.kl_soft = 1e-12, .kl_hard = 9}, err));
    assert_ok(rvi_probe_new(&p, b.by, b.g.m, 2, err));
    assert_ok(rvi_probe_add(p, b.ids, 20, err));
    rvi_micro_set_probe(m, p);
    bed_capture(&b, 0, BED_TOKENS);
    fail_alloc_after(0);
    bed_capture(&b, 5, BED_TOKENS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rvi_micro_event(m, b.tokens, b.n, 1, NULL), RVI_MICRO_STEPPED);
        rvi_micro_probe(m, NULL);
    }
    assert_true(rvi_micro_undo(m));
    assert_false(fail_alloc_off());
    rvi_probe_free(p);
    rvi_micro_free(m);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(allocations_that_fail),
                                       cmocka_unit_test(events_allocate_nothing)};
    return cmocka_run_group_tests_name("allocations of the instant loop", tests, NULL, NULL);
}
