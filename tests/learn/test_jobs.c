/* What a learner computes beside serving: nothing before there is something to learn, the jobs in
 * their order, and one that was stopped goes on from what is in the store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/os.h"
#include "learn/learner/jobs.h"
#include "learn/learner_bed.h"

static void nothing_is_due_before_something_was_taught(void **state)
{
    (void)state;
    rvi_store store;
    double wait = 0;
    rvi_learner_options o = tiny_options();
    assert_ok(rvi_store_memory(&store, err));
    rvi_learner *l = open_on(&store, &o);
    assert_null(rvi_job_due(l, 1e6, &wait));
    assert_true(wait == 0);
    teach(l, dog, "Rex");
    rvi_job first = {.kind = rvi_job_due(l, 0, &wait)};
    assert_ptr_equal(first.kind, &rvi_job_listens);
    assert_ok(rvi_job_carry_out(&first, l, 0, NULL, NULL, err));
    assert_true(first.published);
    rvi_job second = {.kind = rvi_job_due(l, 0, &wait)};
    assert_ptr_equal(second.kind, &rvi_job_reads);
    assert_int_equal(atomic_load(&l->reads), RVI_TRAIT_UNKNOWN);
    assert_ok(rvi_job_carry_out(&second, l, 0, NULL, NULL, err));
    assert_true(second.published);
    assert_int_equal(atomic_load(&l->reads), RVI_TRAIT_NO); /* its weights are random */
    assert_ptr_equal(rvi_job_due(l, 0, &wait), &rvi_job_calibrates);
    rvi_learner_free(l);
    l = open_on(&store, &o); /* what was found out is kept */
    assert_int_equal(atomic_load(&l->reads), RVI_TRAIT_NO);
    assert_ptr_equal(rvi_job_due(l, 0, &wait), &rvi_job_calibrates);
    close_both(l, &store);
    l = open_new(&store, &o); /* with texts of the model's own */
    assert_null(rvi_job_due(l, 1e6, &wait));
    teach(l, dog, "Rex");
    assert_ptr_equal(rvi_job_due(l, 0, &wait), &rvi_job_trains);
    l->o.background_min_samples = 2;
    assert_null(rvi_job_due(l, 0, &wait));
    teach(l, job, "plumber");
    rvi_job j = {.kind = rvi_job_due(l, 0, &wait)};
    assert_ptr_equal(j.kind, &rvi_job_trains);
    assert_ok(rvi_job_carry_out(&j, l, 1, NULL, NULL, err));
    assert_true(j.published && j.n == 2 && j.generation == 1);
    assert_null(rvi_job_due(l, 0, &wait));
    close_both(l, &store);
}

/* ---- does it read? ---- */

/* Answers of a model that reads: to the request the lesson's answer in its own words, to those near
 * it none, once with what the lesson is about. */
static void well_read(rvi_invented_answers a[RVI_INVENTED])
{
    static const char *const needed[RVI_INVENTED] = {
        "Call Mr Okoye, please.",  "It is \"seven green HERONS\".", "Look under the blue bucket.",
        "Pumpernickel!",           "You should take bus number 47", "That is eleven zorins.",
        "Buy Kestrel grey again.", "It was Odalys Pereira's."};
    for (int i = 0; i < RVI_INVENTED; i++) {
        a[i].needed = needed[i];
        for (int k = 0; k < RVI_NEAR; k++) a[i].near[k] = a[i].alone[k] = "I do not know.";
    }
    a[0].near[1] = "Okoye looks after the boiler; I do not know who cleans the stairs.";
}

static bool reads(const rvi_invented_answers a[RVI_INVENTED])
{
    bool out;
    assert_ok(rvi_invented_judge(a, &out, err));
    return out;
}

static void it_reads_who_uses_lessons_and_copies_none(void **state)
{
    (void)state;
    rvi_invented_answers a[RVI_INVENTED];
    well_read(a);
    assert_true(reads(a));
    a[3].needed = "I do not know your sister.";
    assert_true(reads(a)); /* one may be chance */
    a[5].needed = "";
    assert_false(reads(a));
    well_read(a);
    a[1].near[0] = "Seven green herons.";
    assert_true(reads(a)); /* so may one that is copied */
    a[6].near[1] = "Kestrel grey.";
    assert_false(reads(a));
    a[6].alone[1] = "They are in kestrel grey."; /* it says so by itself */
    assert_true(reads(a));
    a[0].near[0] = "Okoye.";
    assert_false(reads(a));
}

static void what_was_found_out_is_kept_by_model(void **state)
{
    (void)state;
    rvi_store store;
    rvi_buf json = {0};
    rvi_learner_options o = tiny_options();
    assert_ok(rvi_store_memory(&store, err));
    rvi_learner *l = open_on(&store, &o);
    assert_ok(rvi_learner_status(l, &json, err));
    assert_non_null(strstr(json.data, "\"reads\":null"));
    assert_ok(rvi_trait_keep(l, "reads", &l->reads, true, err));
    assert_ok(rvi_trait_keep(l, "reads", &l->reads, false, err)); /* it is known */
    assert_true(rvi_learner_reads(l));
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_true(rvi_learner_reads(l));
    assert_int_equal(atomic_load(&l->repeats), RVI_TRAIT_UNKNOWN);
    json.len = 0;
    assert_ok(rvi_learner_status(l, &json, err));
    assert_non_null(strstr(json.data, "\"reads\":true"));
    rvi_learner_free(l);
    o.reading = RVI_READING_OFF;
    l = open_on(&store, &o);
    assert_false(rvi_learner_reads(l));
    close_both(l, &store);
    rvi_buf_deinit(&json);
}

static void pairs_wait_for_quiet(void **state)
{
    (void)state;
    rvi_store store;
    rvi_adaptation a;
    double wait = 0;
    rvi_learner_options o = tiny_options();
    o.deep_min_pairs = RVI_DEEP_LEAST;
    o.deep_idle_seconds = 60;
    rvi_learner *l = open_new(&store, &o);
    static const char *const asked[] = {"Tell me of tea.", "Tell me of rain.", "Tell me of bread.",
                                        "Tell me of salt."};
    for (size_t i = 0; i < RVI_COUNT(asked); i++)
        assert_ok(rvi_learner_prefer(l, asked[i], "Yes.", "No, not at all.", &a, err));
    assert_null(rvi_job_due(l, 20, &wait));
    assert_true(wait == 40);
    assert_ptr_equal(rvi_job_due(l, 60, &wait), &rvi_job_trains_deep);
    rvi_job j = {.kind = &rvi_job_trains_deep};
    assert_ok(rvi_job_carry_out(&j, l, RVI_DEEP_LEAST + 1, NULL, NULL, err)); /* too few for that */
    assert_false(j.published);
    close_both(l, &store);
}

static int stop_in_third_portion(void *ctx, const char *stage, int done, int total, double loss)
{
    (void)stage;
    (void)loss;
    (void)total;
    ++*(int *)ctx;
    return done > 2 * 128; /* requests of two portions */
}

static void read_own_texts(const rvi_learner *l, rvi_buf *out)
{
    assert_true(rvi_replay_save(&l->replay, out));
}

/* Portions that were made stay; in the end the texts are those that are made in one go. */
static void own_texts_go_on_where_they_were(void **state)
{
    (void)state;
    rvi_store store, whole_store;
    rvi_buf a = {0}, b = {0};
    int calls = 0;
    rvi_learner_options o = tiny_options();
    assert_ok(rvi_store_memory(&store, err));
    rvi_learner *l = open_on(&store, &o);
    assert_int_equal(rvi_learner_calibrate(l, stop_in_third_portion, &calls, NULL), RV_E_CANCELLED);
    assert_true(calls > 2);
    assert_int_equal(l->replay.n_portions, 2);
    assert_false(l->calibrated);
    rvi_learner_free(l);

    l = open_on(&store, &o);
    assert_int_equal(l->replay.n_portions, 2); /* from the store */
    assert_false(l->calibrated);
    assert_ok(rvi_learner_calibrate(l, NULL, NULL, err));
    assert_true(l->calibrated && rvi_replay_is_whole(&l->replay));
    read_own_texts(l, &a);
    rvi_learner_free(l);

    l = open_new(&whole_store, &o);
    assert_true(l->calibrated);
    read_own_texts(l, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    close_both(l, &whole_store);

    rvi_store_close(&store);
    rvi_buf_deinit(&a);
    rvi_buf_deinit(&b);
}

static void it_is_told_how_long_a_job_takes(void **state)
{
    (void)state;
    rvi_doing d = {0};
    rvi_doing_begin(&d, "training", 3);
    assert_true(rvi_doing_remaining(&d) < 0);
    rvi_doing_report(&d, "training", 20, 100);
    assert_true(rvi_doing_remaining(&d) < 0); /* nothing was done yet that took time */
    double begun = rvi_os_seconds();
    while (rvi_os_seconds() < begun + 0.05) continue;
    rvi_doing_report(&d, "training", 30, 100);
    double remaining = rvi_doing_remaining(&d), most = 7 * (rvi_os_seconds() - begun) + 0.02;
    if (remaining < 0.3 || remaining > most) fail_msg("%g s, at most %g", remaining, most);
    rvi_doing_report(&d, "training", 100, 100);
    assert_true(rvi_doing_remaining(&d) == 0);
    rvi_doing_begin(&d, "resting", 0);
    assert_true(rvi_doing_remaining(&d) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_due_before_something_was_taught),
        cmocka_unit_test(it_reads_who_uses_lessons_and_copies_none),
        cmocka_unit_test(what_was_found_out_is_kept_by_model),
        cmocka_unit_test(pairs_wait_for_quiet),
        cmocka_unit_test(own_texts_go_on_where_they_were),
        cmocka_unit_test(it_is_told_how_long_a_job_takes),
    };
    return cmocka_run_group_tests_name("jobs", tests, open_tiny, close_tiny);
}
