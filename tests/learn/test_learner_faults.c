/* What must not happen to a learner: two processes that learn at once, files of another adapter,
 * bad feedback, numbers that are none, full disks. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/blob.h"
#include "learn/learner_bed.h"
#include "store/file_store.h"

/* A process that learns has the state to itself; one that waited for it takes over what was
 * learned. */
static void one_process_learns(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    char path[256];
    o.dir = tiny_path(&t, path, "owned");
    o.lock_wait_ms = 0;
    rvi_learner *l = open_new(&store, &o), *other = open_on(&store, &o);
    teach(l, dog, "Rex");
    assert_int_equal(tiny_correct(other, job, "plumber", NULL, &a, &e), RV_E_STORAGE);
    assert_non_null(strstr(e.text, "another process"));
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_string_equal(slot_of(other, job), ""); /* nothing is half done */
    study(l, RV_LOOP_BACKGROUND);
    rvi_learner_free(l);
    assert_string_equal(slot_of(other, dog), ""); /* it has not looked yet */
    teach(other, job, "plumber");
    assert_string_equal(slot_of(other, dog), "Rex");
    assert_string_equal(slot_of(other, job), "plumber");
    assert_int_equal(rvi_learner_generation(other, 0)->number, 1);
    study(other, RV_LOOP_BACKGROUND);
    assert_int_equal(rvi_learner_generation(other, 0)->number, 2);
    close_both(other, &store);
}

/* What a user taught is nobody else's, whatever the umask says. */
static void state_is_private(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    struct stat info;
    char path[256], lock[300];
    o.dir = tiny_path(&t, path, "private");
    mode_t before = umask(0);
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    (void)umask(before);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    snprintf(lock, sizeof lock, "%s/lock", path);
    assert_int_equal(stat(lock, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    close_both(l, &store);
}

typedef struct teacher {
    rvi_learner *l;
    const char *question;
} teacher;

static void *teach_one(void *ctx)
{
    const teacher *x = ctx;
    rvi_adaptation a;
    rv_error e;
    return (void *)(uintptr_t)tiny_correct(x->l, x->question, "Rex", NULL, &a, &e);
}

/* Who finds the state in use waits; here until the other, which has it first, is gone. */
static void others_wait(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256];
    pthread_t thread;
    void *result;
    o.dir = tiny_path(&t, path, "waiting");
    o.lock_wait_ms = 600000;
    rvi_learner *l = open_new(&store, &o), *other = open_on(&store, &o);
    teacher second = {other, job};
    teach(l, dog, "Rex");
    assert_int_equal(pthread_create(&thread, NULL, teach_one, &second), 0);
    rvi_learner_flush(l); /* lets go of it, before or after the other asks */
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    assert_int_equal(rvi_learner_standing(other), 2);
    rvi_learner_free(l);
    close_both(other, &store);
}

static void damage(rvi_store *store, const char *table, const char *key, size_t len)
{
    assert_ok(rvi_store_put(store, table, key, len, "x", 1, err));
}

/* What follows from the log is made again from it. */
static void damaged_tables_are_made_again(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_feedback_report report;
    rvi_learner *l = open_new(&store, &o);
    teach_two(l);
    rvi_learner_free(l);
    damage(&store, "feedback.head", "head", 4);
    damage(&store, "instant", "x", 1);
    l = open_on(&store, &o);
    assert_string_equal(slot_of(l, dog), "Rex");
    assert_string_equal(slot_of(l, job), "plumber");
    teach(l, city, "Prague");
    assert_ok(rvi_feedback_verify(&store, &report, err));
    assert_int_equal(report.broken, 0);
    assert_int_equal(report.n_events, 3);
    close_both(l, &store);
}

/* A file that is not the adapter the log names is left out, and what it was made of waits. */
static void published_files_are_known(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    char path[256], from[320], to[320];
    o.dir = tiny_path(&t, path, "swapped");
    rvi_learner *l = open_new(&store, &o);
    teach(l, dog, "Rex");
    study(l, RV_LOOP_BACKGROUND);
    double loss = rvi_learner_generation(l, 1)->figures.ce;
    teach(l, job, "plumber");
    study(l, RV_LOOP_BACKGROUND);
    rvi_learner_free(l);
    l = open_on(&store, &o); /* what merging weighs by comes back with it */
    assert_true(loss > 0 && fabs(rvi_learner_generation(l, 1)->figures.ce / loss - 1) < 1e-4);
    rvi_learner_free(l);
    snprintf(from, sizeof from, "%s/generation-000001.gguf", path);
    snprintf(to, sizeof to, "%s/generation-000002.gguf", path);
    assert_ok(rvi_os_replace(from, to, err));
    l = open_on(&store, &o);
    assert_null(rvi_learner_generation(l, 0));
    assert_int_equal(rvi_learner_waiting(l), 2);
    study(l, RV_LOOP_BACKGROUND); /* and is learned by others, once */
    rvi_learner_free(l);
    l = open_on(&store, &o);
    assert_int_equal(rvi_learner_generation(l, 0)->number, 3);
    assert_int_equal(rvi_learner_waiting(l), 0);
    close_both(l, &store);
}

/* ---- what must not happen ---- */

static void bad_feedback_is_refused(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *l = open_new(&store, &o);
    rvi_adaptation a;
    rv_error e = {0};
    uint64_t n;
    enum { HUGE = (64 << 10) + 1 };
    char *huge = rvi_alloc_array(HUGE + 1, 1);
    assert_non_null(huge);
    memset(huge, 'a', HUGE);
    huge[HUGE] = 0;
    teach_two(l);
    const char *const bad[][2] = {{dog, ""},   {dog, "   "},    {"", "Rex"},     {huge, "Rex"},
                                  {dog, huge}, {dog, "R\xFFx"}, {"d\xC3(g", "x"}};
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        assert_int_equal(tiny_correct(l, bad[i][0], bad[i][1], NULL, &a, &e), RV_E_INVALID);
        assert_int_equal(a.applied, 0);
    }
    assert_int_equal(tiny_correct(l, dog, "Rex", huge, &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_prefer(l, dog, "", "x", &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_prefer(l, dog, "x\x80", "x", &a, &e), RV_E_INVALID);
    assert_int_equal(rvi_learner_forget(l, "", 0, &a, &e), RV_E_INVALID);
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    assert_int_equal(n, 2); /* nothing of that was logged */
    assert_int_equal(l->lessons.n, 2);
    assert_string_equal(slot_of(l, dog), "Rex");
    /* contradictions: the newest wins, however often */
    for (int i = 1; i < 22; i++) teach(l, dog, i % 2 ? "Bello" : "Rex");
    assert_string_equal(slot_of(l, dog), "Bello");
    size_t standing = 0;
    for (size_t i = 0; i < l->lessons.n; i++) standing += l->lessons.list[i].in_force;
    assert_int_equal(standing, 2);
    /* a question of 64 KiB is fine */
    huge[HUGE - 1] = 0;
    teach(l, huge, "Rex");
    assert_string_equal(slot_of(l, huge), "Rex");
    rvi_free(huge);
    close_both(l, &store);
}

/* After one endless step every number behind the adapter is none any more, and no gradient
 * either. */
static void steps_that_are_not_numbers_publish_nothing(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    o.learning_rate = INFINITY;
    for (int shared = 0; shared < 2; shared++) {
        o.shared = shared;
        rvi_learner *l = open_new(&store, &o);
        teach_two(l);
        rv_status st = rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, &a, &e);
        assert_int_equal(st, RV_E_LEARNING);
        assert_non_null(strstr(e.text, "not numbers"));
        assert_int_equal(l->generations.n, 0);
        assert_true(isnan(a.quality_delta));
        assert_string_equal(slot_of(l, dog), "Rex");
        l->o.learning_rate = 2e-3f; /* and it can be done again */
        study(l, RV_LOOP_BACKGROUND);
        assert_int_equal(l->generations.n, 1);
        close_both(l, &store);
    }
}

static void limit_files(rlim_t bytes)
{
    struct rlimit r = {bytes, RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void full_disks_lose_nothing(void **state)
{
    (void)state;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_adaptation a;
    rv_error e = {0};
    char path[256], db[256];
    uint64_t n;
    signal(SIGXFSZ, SIG_IGN);
    o.dir = tiny_path(&t, path, "full");
    assert_ok(rvi_os_make_dirs(o.dir, err));
    assert_ok(file_store(&store, tiny_path(&t, db, "full/state.db"), 0, err));
    tiny_copy_model(&store, &calibrated);
    rvi_learner *l;
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    teach_two(l);
    limit_files(4096); /* no generation fits, and no event either */
    rv_status st = rvi_learner_consolidate(l, RV_LOOP_DEEP, RV_LOSS_DPO, NULL, NULL, &a, &e);
    assert_true(st != RV_OK && e.text[0]);
    assert_int_equal(l->generations.n, 0);
    assert_int_equal(rvi_learner_waiting(l), 2);
    assert_string_equal(slot_of(l, dog), "Rex");
    e = (rv_error){0};
    st = tiny_correct(l, city, "Oslo", NULL, &a, &e);
    assert_true(st != RV_OK && e.text[0]);
    assert_string_equal(slot_of(l, city), "");
    assert_int_equal(rvi_learner_undo(l, false, &a, &e) != RV_OK, 1);
    assert_string_equal(slot_of(l, dog), "Rex");
    limit_files(RLIM_INFINITY);
    teach(l, city, "Oslo");
    study(l, RV_LOOP_DEEP);
    assert_int_equal(l->generations.n, 1);
    rvi_learner_free(l);
    assert_ok(file_store(&store, db, 0, err));
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    assert_int_equal(l->generations.n, 1);
    assert_int_equal(l->lessons.n, 3);
    assert_ok(rvi_feedback_count(&l->store, &n, err));
    assert_int_equal(n, 4);
    rvi_learner_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_learns),
        cmocka_unit_test(state_is_private),
        cmocka_unit_test(others_wait),
        cmocka_unit_test(damaged_tables_are_made_again),
        cmocka_unit_test(published_files_are_known),
        cmocka_unit_test(bad_feedback_is_refused),
        cmocka_unit_test(steps_that_are_not_numbers_publish_nothing),
        cmocka_unit_test(full_disks_lose_nothing),
    };
    return cmocka_run_group_tests_name("test_learner_faults", tests, open_tiny, close_tiny);
}
