/* Two learners that share a store, as those of two processes do: each follows what the other logs,
 * one trains and the other fetches, and without the store both go on answering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/os.h"
#include "learn/learner/jobs.h"
#include "learn/learner_bed.h"

/* ---- a store in memory that two share ---- */

enum { MEMBERS = 2, LOCKS = 2 };

typedef struct member {
    struct shared *all;
    bool changed, down, dies; /* dies: with its next commit that logs something */
    bool appends;
    int n_puts;
} member;

typedef struct shared {
    rvi_store store;
    member members[MEMBERS];
    struct {
        char what[16];
        const member *by; /* NULL: nobody */
    } locks[LOCKS];
} shared;

static rv_status reach(const member *m, rv_error *err)
{
    return m->down ? rvi_error(err, RV_E_STORAGE, "out of reach") : RV_OK;
}

#define BY (m->all->store.by)
static rv_status s_append(void *ctx, const char *stream, rv_bytes r, uint64_t *seq, rv_error *err)
{
    member *m = ctx;
    rv_status st = reach(m, err);
    if (!st) st = BY.append(BY.ctx, stream, r, seq, err);
    m->appends = true;
    for (int i = 0; !st && i < MEMBERS; i++)
        if (&m->all->members[i] != m) m->all->members[i].changed = true;
    return st;
}

static rv_status s_put(void *ctx, const char *table, rv_bytes key, rv_bytes r, rv_error *err)
{
    member *m = ctx;
    rv_status st = reach(m, err);
    m->n_puts++;
    return st ? st : BY.put(BY.ctx, table, key, r, err);
}

static rv_status s_get(void *ctx, const char *table, rv_bytes key, rvi_store_item_fn each, void *c,
                       rv_error *err)
{
    const member *m = ctx;
    rv_status st = reach(m, err);
    return st ? st : BY.get(BY.ctx, table, key, each, c, err);
}

static rv_status s_remove(void *ctx, const char *table, rv_bytes key, rv_error *err)
{
    const member *m = ctx;
    rv_status st = reach(m, err);
    return st ? st : BY.remove(BY.ctx, table, key, err);
}

static rv_status s_scan(void *ctx, const char *table, rv_bytes from, rvi_store_item_fn each,
                        void *c, rv_error *err)
{
    const member *m = ctx;
    rv_status st = reach(m, err);
    return st ? st : BY.scan(BY.ctx, table, from, each, c, err);
}

static rv_status s_read(void *ctx, const char *stream, uint64_t from, rvi_store_record_fn each,
                        void *c, rv_error *err)
{
    const member *m = ctx;
    rv_status st = reach(m, err);
    return st ? st : BY.read(BY.ctx, stream, from, each, c, err);
}

static rv_status s_begin(void *ctx, int durable, rv_error *err)
{
    const member *m = ctx;
    rv_status st = reach(m, err);
    return st ? st : BY.begin(BY.ctx, durable, err);
}

static rv_status s_commit(void *ctx, rv_error *err)
{
    member *m = ctx;
    rv_status st = BY.commit(BY.ctx, err);
    m->down = m->down || (m->dies && m->appends);
    m->appends = false;
    return st;
}

static void s_rollback(void *ctx)
{
    const member *m = ctx;
    BY.rollback(BY.ctx);
}

static rv_status s_lock(void *ctx, const char *what, int wait_ms, rv_error *err)
{
    member *m = ctx;
    int free_at = -1;
    (void)wait_ms;
    rv_status st = reach(m, err);
    for (int i = 0; !st && i < LOCKS; i++) {
        if (!m->all->locks[i].by)
            free_at = i;
        else if (!strcmp(m->all->locks[i].what, what))
            st = rvi_error(err, m->all->locks[i].by == m ? RV_E_INVALID : RV_E_STORAGE, "held");
    }
    if (st) return st;
    assert_true(free_at >= 0);
    snprintf(m->all->locks[free_at].what, sizeof m->all->locks[free_at].what, "%s", what);
    m->all->locks[free_at].by = m;
    return RV_OK;
}

static void s_unlock(void *ctx, const char *what)
{
    member *m = ctx;
    for (int i = 0; i < LOCKS; i++)
        if (m->all->locks[i].by == m && !strcmp(m->all->locks[i].what, what))
            m->all->locks[i].by = NULL;
}

static int s_changed(void *ctx)
{
    member *m = ctx;
    bool was = m->changed;
    m->changed = false;
    return was;
}

static bool nobody_holds(const shared *s)
{
    return !s->locks[0].by && !s->locks[1].by;
}

static void open_shared(shared *s)
{
    *s = (shared){0};
    assert_ok(rvi_store_memory(&s->store, err));
    tiny_copy_model(&s->store, &calibrated);
    for (int i = 0; i < MEMBERS; i++) s->members[i].all = s;
}

static rvi_learner *join(shared *s, int i, const char *dir)
{
    rvi_learner *l;
    char path[256];
    rvi_learner_options o = tiny_options();
    o.dir = tiny_path(&t, path, dir);
    rvi_store store = {.by = {&s->members[i], s_append, s_put, s_get, s_remove, s_scan, s_read,
                              s_begin, s_commit, s_rollback, s_lock, s_unlock, s_changed}};
    assert_ok(tiny_learner(&l, &t, &o, &store, err));
    return l;
}

/* As the api does after every call. */
static void tell(rvi_learner *l, const char *question, const char *answer)
{
    teach(l, question, answer);
    rvi_learner_yield(l);
}

static bool follow(rvi_learner *l)
{
    bool any;
    rvi_learner_follow(l, &any);
    return any;
}

static void spoil_file(const char *name)
{
    char path[256];
    FILE *f = fopen(tiny_path(&t, path, name), "wb");
    assert_non_null(f);
    assert_int_equal(fputs("not it", f) < 0, 0);
    assert_int_equal(fclose(f), 0);
}

/* ---- cases ---- */

static void each_follows_the_other(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "follow-a"), *b = join(&s, 1, "follow-b");
    tell(a, dog, "Rex");
    assert_true(nobody_holds(&s));
    assert_string_equal(slot_of(b, dog), "");
    assert_true(follow(b));
    assert_false(follow(b));
    assert_string_equal(slot_of(b, dog), "Rex");
    tell(a, job, "plumber"); /* b has not seen it when it appends */
    tell(b, city, "Oslo");
    assert_true(follow(a));
    const char *const asked[] = {dog, job, city}, *const wanted[] = {"Rex", "plumber", "Oslo"};
    for (int i = 0; i < 3; i++) {
        assert_string_equal(slot_of(a, asked[i]), wanted[i]);
        assert_string_equal(slot_of(b, asked[i]), wanted[i]);
    }
    assert_int_equal(a->applied, 3);
    assert_int_equal(b->applied, 3);
    assert_ok(rvi_learner_undo(a, false, &done, err)); /* the last of all, which b taught */
    rvi_learner_yield(a);
    assert_true(follow(b));
    assert_string_equal(slot_of(b, city), "");
    assert_string_equal(slot_of(b, job), "plumber");
    rvi_feedback_report report;
    assert_ok(rvi_feedback_verify(&s.store, &report, err));
    assert_int_equal(report.n_events, 4);
    assert_int_equal(report.broken, 0);
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* One trains; the other has the same adapter, from the store, though its folder is empty or has
 * another file of that name; and what it had trained itself meanwhile is thrown away. */
static void one_trains_the_other_fetches(void **state)
{
    (void)state;
    shared s;
    bool fresh;
    rvi_job late = {.kind = &rvi_job_trains};
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "train-a"), *b = join(&s, 1, "train-b");
    teach_two(a);
    rvi_learner_yield(a);
    assert_true(rvi_learner_lease(a, &fresh) && fresh);
    assert_true(rvi_learner_lease(a, &fresh) && !fresh);
    assert_false(rvi_learner_lease(b, &fresh));
    assert_true(follow(b));
    assert_ok(late.kind->take(&late, b, err));
    rvi_learner_yield(b);
    assert_int_equal(late.n_waiting, 2);
    assert_ok(late.kind->compute(&late, b, &b->base, NULL, NULL, err));
    study(a, RV_LOOP_BACKGROUND);
    rvi_learner_yield(a);
    rvi_learner_end_lease(a);
    assert_true(rvi_learner_lease(b, &fresh));
    spoil_file("train-b/generation-000001.gguf");
    assert_ok(late.kind->publish(&late, b, err));
    rvi_learner_yield(b);
    rvi_job_drop(&late);
    assert_false(late.published);
    assert_int_equal(b->generations.n, 1);
    assert_int_equal(rvi_learner_waiting(b), 0);
    assert_same(of_generation(b, 1), of_generation(a, 1));
    rvi_learner_free(b);
    assert_true(nobody_holds(&s));
    b = join(&s, 1, "train-c"); /* a third, from nothing */
    assert_same(of_generation(b, 1), of_generation(a, 1));
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

static void without_the_store_answers_go_on(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    rv_error why = {0};
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "down-a"), *b = join(&s, 1, "down-b");
    tell(a, dog, "Rex");
    assert_true(follow(b));
    tell(a, job, "plumber");
    s.members[1].down = true;
    assert_false(follow(b));
    assert_string_equal(slot_of(b, dog), "Rex");
    assert_int_equal(tiny_correct(b, city, "Oslo", NULL, &done, &why), RV_E_STORAGE);
    rvi_learner_yield(b);
    assert_string_equal(slot_of(b, city), "");
    s.members[1].down = false;
    assert_true(rvi_learner_is_behind(b));
    assert_true(follow(b));
    assert_string_equal(slot_of(b, job), "plumber");
    assert_ok(s_lock(&s.members[0], "feedback", 0, err)); /* another is at it */
    assert_int_equal(tiny_correct(b, city, "Oslo", NULL, &done, &why), RV_E_STORAGE);
    s_unlock(&s.members[0], "feedback");
    tell(b, city, "Oslo");
    assert_string_equal(slot_of(b, city), "Oslo");
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

static void needs_a_folder(void **state)
{
    (void)state;
    shared s;
    rvi_learner *l;
    rv_error why = {0};
    rvi_learner_options o = tiny_options();
    open_shared(&s);
    rvi_store store = {.by = {&s.members[0], s_append, s_put, s_get, s_remove, s_scan, s_read,
                              s_begin, s_commit, s_rollback, s_lock, s_unlock, s_changed}};
    assert_int_equal(tiny_learner(&l, &t, &o, &store, &why), RV_E_CONFIG);
    rvi_store_close(&s.store);
}

static bool has_file(const char *name)
{
    char path[256];
    return rvi_os_stat(tiny_path(&t, path, name), NULL) != RVI_OS_NONE;
}

static int count_items(shared *s, const char *table)
{
    int n = 0;
    assert_ok(rvi_store_scan(&s->store, table, NULL, 0, count_item, &n, err));
    return n;
}

/* What was forgotten is in no adapter any more: in no folder, nor in the store; those that are out
 * of use count too. */
static void forgetting_erases_every_copy(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    char path[256];
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "erase-a"), *b = join(&s, 1, "erase-b");
    teach_two(a);
    study(a, RV_LOOP_BACKGROUND);
    assert_ok(rvi_learner_rollback(a, 0, &done, err));
    assert_ok(rvi_learner_undo(a, false, &done, err));
    tell(a, city, "Oslo");
    study(a, RV_LOOP_BACKGROUND);
    assert_ok(rvi_learner_merge(a, 1, 2, RV_MERGE_AVERAGE, &done, err));
    assert_ok(rvi_learner_rollback(a, 2, &done, err)); /* the merge is out of use */
    rvi_learner_yield(a);
    assert_true(follow(b));
    assert_ok(rvi_os_make_private_dirs(tiny_path(&t, path, "erase-c"), err));
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "erase-c/generation-%06d.gguf", i);
        FILE *f = fopen(tiny_path(&t, path, name), "wb");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
    }
    assert_ok(
        rvi_learner_undo(a, false, &done, err)); /* reversible: nothing is erased by going back */
    assert_ok(rvi_learner_forget(a, "Rex", 0, &done, err));
    rvi_learner_yield(a);
    assert_non_null(strstr(done.notes, "2 adapters trained on that are erased; 1 other lesson"));
    assert_true(follow(b));
    assert_ok(rvi_learner_clean(a, tiny_path(&t, path, "erase-c"), true, err));
    for (const char *who = "abc"; *who; who++)
        for (int i = 1; i <= 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "erase-%c/generation-%06d.gguf", *who, i);
            if (has_file(name) != (i == 2)) fail_msg("%s", name);
        }
    assert_int_equal(count_items(&s, "adapter"), 2); /* head and piece of the second */
    rvi_learner_free(a);
    a = join(&s, 0, "erase-a");
    for (int i = 0; i < 2; i++) {
        rvi_learner *l = i ? b : a;
        const rvi_generation *g;
        rv_error why = {0};
        assert_int_equal(rvi_learner_waiting(l), 1); /* the plumber */
        assert_int_equal(rvi_learner_generation(l, 0)->number, 2);
        assert_int_equal(rvi_learner_need_adapter(l, 1, &g, &why), RV_E_NOT_FOUND);
        assert_string_equal(slot_of(l, dog), "");
        assert_string_equal(slot_of(l, city), "Oslo");
    }
    study(a, RV_LOOP_BACKGROUND);
    rvi_learner_yield(a);
    assert_true(follow(b));
    assert_int_equal(rvi_learner_waiting(b), 0);
    assert_same(of_generation(b, 4), of_generation(a, 4));
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* What cannot be erased at once is named, and done by whoever can. */
static void erasing_is_made_up_for(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "late-a");
    teach_two(a);
    study(a, RV_LOOP_BACKGROUND);
    s.members[0].dies = true;
    s.members[0].appends = false;
    rv_status st = rvi_learner_forget(a, "Rex", 0, &done, NULL);
    if (!s.members[0].down) s.members[0].down = true; /* it was no transaction */
    (void)st;
    rvi_learner_free(a);
    s.members[0] = (member){.all = &s};
    s.locks[0].by = s.locks[1].by = NULL;
    a = join(&s, 0, "late-a");
    assert_false(has_file("late-a/generation-000001.gguf"));
    assert_int_equal(count_items(&s, "adapter"), 0);
    assert_int_equal(rvi_learner_waiting(a), 1);
    rvi_learner_free(a);
    rvi_store_close(&s.store);
}

/* Only what is used is read. */
static void what_is_out_of_use_is_not_read(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "lazy-a");
    teach_two(a);
    study(a, RV_LOOP_BACKGROUND);
    digest first = of_generation(a, 1);
    tell(a, city, "Oslo");
    study(a, RV_LOOP_BACKGROUND);
    assert_ok(rvi_learner_rollback(a, 0, &done, err));
    rvi_learner_yield(a);
    rvi_learner *b = join(&s, 1, "lazy-b");
    assert_false(has_file("lazy-b/generation-000001.gguf"));
    assert_null(rvi_learner_generation(b, 1)->adapter);
    const rvi_generation *g;
    assert_ok(rvi_learner_need_adapter(b, 1, &g, err)); /* by name, as for an export */
    assert_same(of_generation(b, 1), first);
    assert_false(has_file("lazy-b/generation-000002.gguf"));
    assert_ok(rvi_learner_undo(b, false, &done, err));
    rvi_learner_yield(b);
    assert_true(has_file("lazy-b/generation-000002.gguf"));
    assert_same(of_generation(b, 2), of_generation(a, 2));
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* The log alone makes all of them again. */
static void assert_retraced(rvi_store *log, uint64_t n)
{
    rvi_retrace again;
    rvi_store store;
    rvi_learner_options o = tiny_options();
    rvi_learner *fresh = open_new(&store, &o);
    assert_ok(rvi_learner_retrace(fresh, log, NULL, NULL, &again, err));
    assert_int_equal(again.different, 0);
    assert_int_equal(again.n_generations, n);
    close_both(fresh, &store);
}

static void spoil_stored(shared *s)
{
    const char zeros[40] = {0};
    assert_ok(rvi_store_put(&s->store, "adapter", "0000000001", 10, zeros, sizeof zeros, err));
}

/* An adapter is found damaged while a group is being trained: that group was taken without what it
 * held, which is trained next. */
static void what_is_lost_meanwhile_comes_next(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    rvi_job r = {.kind = &rvi_job_trains};
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "meanwhile");
    teach_two(a);
    study(a, RV_LOOP_BACKGROUND);
    tell(a, city, "Oslo");
    assert_ok(rvi_learner_rollback(a, 0, &done, err));
    rvi_learner_free(a);
    a = join(&s, 0, "meanwhile"); /* which reads no adapter that is out of use */
    assert_ok(r.kind->take(&r, a, err));
    assert_int_equal(r.n_waiting, 1);
    spoil_file("meanwhile/generation-000001.gguf");
    spoil_stored(&s);
    assert_ok(rvi_learner_undo(a, false, &done, err)); /* now it is needed again */
    assert_true(rvi_learner_generation(a, 1)->lost);
    assert_ok(r.kind->compute(&r, a, &a->base, NULL, NULL, err));
    assert_ok(r.kind->publish(&r, a, err));
    assert_true(r.published);
    rvi_job_drop(&r);
    assert_int_equal(rvi_learner_waiting(a), 2);
    study(a, RV_LOOP_BACKGROUND);
    assert_int_equal(rvi_learner_waiting(a), 0);
    assert_retraced(&s.store, 3);
    rvi_learner_free(a);
    rvi_store_close(&s.store);
}

/* One finds an adapter damaged, in its folder and in the store, and trains what it held anew. The
 * other, whose copy is whole, goes on with the new one too, as does whoever comes later: forgetting
 * by any of them reaches it. */
static void all_lose_what_one_has_lost(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "lost-a"), *b = join(&s, 1, "lost-b");
    teach_two(a);
    study(a, RV_LOOP_BACKGROUND);
    rvi_learner_yield(a);
    assert_true(follow(b));
    assert_non_null(rvi_learner_generation(b, 1)->adapter);
    rvi_learner_free(a);
    spoil_file("lost-a/generation-000001.gguf");
    spoil_stored(&s);
    a = join(&s, 0, "lost-a");
    assert_int_equal(rvi_learner_waiting(a), 2);
    study(a, RV_LOOP_BACKGROUND);
    rvi_learner_yield(a);
    for (int turn = 0; turn < 2; turn++) { /* b as it was, then one from nothing */
        if (turn) {
            rvi_learner_free(b);
            b = join(&s, 1, "lost-c");
        } else {
            assert_true(follow(b));
        }
        assert_int_equal(rvi_learner_waiting(b), 0);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(a->lessons.list[i].generation, 2);
            assert_int_equal(b->lessons.list[i].generation, 2);
        }
        assert_true(rvi_generation_has_learned(rvi_learner_generation(b, 2), 1));
        assert_false(rvi_generation_active(rvi_learner_generation(b, 1)));
        assert_same(of_generation(b, 2), of_generation(a, 2));
    }
    assert_retraced(&s.store, 2);
    assert_ok(rvi_learner_forget(b, "Rex", 0, &done, err));
    rvi_learner_yield(b);
    assert_true(follow(a));
    assert_false(has_file("lost-a/generation-000002.gguf"));
    assert_false(has_file("lost-c/generation-000002.gguf"));
    assert_int_equal(rvi_learner_waiting(a), 1);
    assert_int_equal(rvi_learner_waiting(b), 1);
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* Whoever is killed right after a generation was logged has left everything that follows from it:
 * nothing is trained again. */
static void killed_after_publishing(void **state)
{
    (void)state;
    shared s;
    rvi_job r = {.kind = &rvi_job_trains};
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "killed-a");
    teach_two(a);
    assert_ok(r.kind->take(&r, a, err));
    assert_ok(r.kind->compute(&r, a, &a->base, NULL, NULL, err));
    s.members[0].dies = true;
    s.members[0].appends = false;
    rv_status st = r.kind->publish(&r, a, NULL);
    (void)st;
    assert_true(s.members[0].down);
    rvi_learner *b = join(&s, 1, "killed-b");
    assert_int_equal(rvi_learner_waiting(b), 0);
    assert_int_equal(b->lessons.list[0].generation, 1);
    assert_int_equal(b->lessons.list[1].generation, 1);
    s.members[0].down = false;
    s.locks[0].by = s.locks[1].by = NULL;
    rvi_job_drop(&r);
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* A check that is due is due for all who share the scores; one of them does it. */
static void one_probes(void **state)
{
    (void)state;
    shared s;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "probe-a"), *b = join(&s, 1, "probe-b");
    tell(a, dog, "Rex");
    assert_true(follow(b));
    assert_ok(rvi_instant_new_micro(a, err));
    a->instant.probe_due = true;
    assert_ok(rvi_instant_save(a, 1, err));
    assert_ok(rvi_instant_reopen_scores(b, err));
    assert_true(b->instant.probe_due);
    assert_ok(rvi_instant_catch_up(a, err));
    rvi_learner_yield(a);
    assert_false(a->instant.probe_due);
    s.members[1].n_puts = 0;
    assert_ok(rvi_instant_catch_up(b, err));
    rvi_learner_yield(b);
    assert_false(b->instant.probe_due);
    assert_int_equal(s.members[1].n_puts, 0);
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

/* What was prepared, or used, before the model had texts of its own gets them once it has. */
static void probes_get_the_models_own_texts(void **state)
{
    (void)state;
    enum { HALF = 4 };
    for (int early = 0; early < 3; early++) { /* pieces of it; half of it; not at all */
        rvi_store store;
        rvi_learner_options o = tiny_options();
        rvi_learner *l = open_new(&store, &o);
        assert_true(l->calibrated);
        assert_ok(rvi_instant_new_micro(l, err));
        l->instant.probe_due = true;
        l->calibrated = early == 2;
        for (int i = 0; !early && i < HALF; i++) assert_true(rvi_instant_prepare(l, false, false));
        if (early == 1) {
            assert_ok(rvi_instant_catch_up(l, err));
            assert_int_equal(rvi_probe_n_texts(l->instant.probe), HALF);
        }
        l->calibrated = l->instant.probe_due = true;
        while (rvi_instant_prepare(l, false, false)) continue;
        assert_ok(rvi_instant_catch_up(l, err));
        assert_false(l->instant.probe_due);
        assert_int_equal(rvi_probe_n_texts(l->instant.probe), 2 * HALF);
        close_both(l, &store);
    }
}

/* A process takes back what came by itself; what another said later goes on standing. */
static void each_takes_back_its_own(void **state)
{
    (void)state;
    shared s;
    rvi_adaptation done;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "own-a"), *b = join(&s, 1, "own-b");
    tell(a, dog, "Rex");
    tell(a, dog, "Fido");
    tell(b, dog, "Max");
    tell(b, city, "Oslo");
    for (int i = 0; i < 3; i++) { /* Fido, Rex, none */
        assert_ok(rvi_learner_undo(a, true, &done, err));
        rvi_learner_yield(a);
        assert_int_equal(done.applied, i < 2);
        assert_string_equal(slot_of(a, dog), "Max");
        assert_string_equal(slot_of(a, city), "Oslo");
    }
    assert_non_null(strstr(done.notes, "nothing was taught here"));
    rvi_learner_free(a);
    a = join(&s, 0, "own-a");
    assert_ok(rvi_learner_undo(b, true, &done, err));
    assert_ok(rvi_learner_undo(b, true, &done, err));
    rvi_learner_yield(b);
    assert_true(follow(a));
    for (int i = 0; i < 2; i++) { /* what was taken back does not stand again */
        assert_string_equal(slot_of(i ? b : a, dog), "");
        assert_string_equal(slot_of(i ? b : a, city), "");
    }
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

static void pausing_reaches_all(void **state)
{
    (void)state;
    shared s;
    open_shared(&s);
    rvi_learner *a = join(&s, 0, "pause-a"), *b = join(&s, 1, "pause-b");
    for (int paused = 1; paused >= 0; paused--) {
        assert_ok(rvi_learner_set_paused(a, paused != 0, err));
        assert_true(rvi_learner_is_behind(b));
        (void)follow(b);
        assert_int_equal(b->paused, paused);
        rvi_learner_free(a);
        a = join(&s, 0, "pause-a");
        assert_int_equal(a->paused, paused);
    }
    rvi_learner_free(a);
    rvi_learner_free(b);
    rvi_store_close(&s.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_follows_the_other),
        cmocka_unit_test(one_trains_the_other_fetches),
        cmocka_unit_test(without_the_store_answers_go_on),
        cmocka_unit_test(needs_a_folder),
        cmocka_unit_test(forgetting_erases_every_copy),
        cmocka_unit_test(erasing_is_made_up_for),
        cmocka_unit_test(what_is_out_of_use_is_not_read),
        cmocka_unit_test(what_is_lost_meanwhile_comes_next),
        cmocka_unit_test(all_lose_what_one_has_lost),
        cmocka_unit_test(killed_after_publishing),
        cmocka_unit_test(one_probes),
        cmocka_unit_test(probes_get_the_models_own_texts),
        cmocka_unit_test(each_takes_back_its_own),
        cmocka_unit_test(pausing_reaches_all),
    };
    return cmocka_run_group_tests_name("follow", tests, open_tiny, close_tiny);
}
