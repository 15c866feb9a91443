/* Adapters by name: each get computes what rv_adapter_load of the same file does, wherever the
 * adapter was; generations never change; limits hold; threads may do all of it at once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/thread.h"
#include "lora/write.h"
#include "model/digest.h"
#include "opened.h"
#include "ruvllm_service.h"
#include "scheduler/served.h"

enum { N_IDS = 6, N_ADAPTERS = 12, N_THREADS = 4, N_ROUNDS = 60 };

static const int32_t ids[N_IDS] = {1, 5, 9, 2, 7, 3};

typedef struct shelf {
    opened o;
    rv_engine *e;
    rv_registry *r;
    char dir[64];
    float scores[N_ADAPTERS][N_IDS - 1]; /* by rv_adapter_load */
} shelf;

static const char *path_of(const shelf *s, int i, char out[128])
{
    snprintf(out, 128, i % 2 ? "%s/a%d.gguf" : "%s/a%d", s->dir, i);
    return out;
}

/* seed decides its values; odd ones are GGUF files, the others PEFT directories. */
static void write_adapter(const shelf *s, int i, uint64_t seed)
{
    const rvi_model *m = s->o.m->model;
    rvi_rng rng = {seed};
    rvi_adapter *a;
    char path[128], digest[RVI_SHA256_HEX];
    assert_ok(rvi_adapter_new(&a, m->be, m->n_targets, err));
    for (int k = 0; k < m->n_targets; k++) {
        const rvi_lora_target *t = &m->targets[k];
        float values[2][2 * 4096];
        assert_true(t->n_in <= 4096 && t->n_out <= 4096);
        for (int side = 0; side < 2; side++)
            for (int j = 0; j < 2 * 4096; j++)
                values[side][j] = (float)(rvi_rng_double(&rng) - 0.5);
        if (m->head.w && k == m->head.slot) continue;
        assert_ok(rvi_adapter_put(a, k, t, 2, 0.5f, values[0], values[1], err));
    }
    assert_ok(rvi_model_digest(m->source, m->be, digest, err));
    rvi_adapter_note note = {.base_digest = digest};
    path_of(s, i, path);
    assert_ok(i % 2 ? rvi_adapter_write_gguf(a, m->targets, rvi_source_gguf_arch(m->source), path,
                                             RVI_F32, &note, err)
                    : rvi_adapter_write_peft(a, m->targets, path, RVI_F32, &note, err));
    rvi_adapter_free(a);
}

static void score(shelf *s, const rv_adapter_set *set, float out[N_IDS - 1])
{
    assert_ok(rv_engine_score(s->e, ids, N_IDS, set, out, err));
}

static void score_file(shelf *s, int i, float out[N_IDS - 1])
{
    char path[128];
    rv_adapter *a;
    rv_adapter_set *set;
    assert_ok(rv_adapter_load(&a, s->o.m, path_of(s, i, path), err));
    assert_ok(rv_adapter_set_new(&set, s->o.m, &(rv_adapter_use){a, 1}, 1, err));
    score(s, set, out);
    rv_adapter_set_free(&set);
    rv_adapter_free(&a);
}

static int setup(void **state)
{
    shelf *s = calloc(1, sizeof *s);
    rvi_buf dir = {0};
    assert_non_null(s);
    assert_ok(rvi_os_temp_dir(&dir, "/tmp", err));
    snprintf(s->dir, sizeof s->dir, "%s", dir.data);
    rvi_buf_deinit(&dir);
    open_all(&s->o, "tests/golden/llama", 1, 64);
    assert_ok(rv_engine_new(&s->e, s->o.m, NULL, err));
    for (int i = 0; i < N_ADAPTERS; i++) {
        write_adapter(s, i, (uint64_t)i + 1);
        score_file(s, i, s->scores[i]);
    }
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    shelf *s = *state;
    rvi_os_remove_tree(s->dir);
    rv_engine_free(&s->e);
    close_all(&s->o);
    free(s);
    return 0;
}

static void open_registry(shelf *s, uint64_t ready_bytes, int max_open)
{
    rv_registry_options o = {.size = sizeof o, .ready_bytes = ready_bytes, .max_open = max_open};
    assert_ok(rv_registry_new(&s->r, s->o.m, &o, err));
}

static void put(shelf *s, const char *name, int i, uint64_t expected, uint64_t want)
{
    char path[128];
    uint64_t generation;
    assert_ok(rv_registry_put(s->r, name, path_of(s, i, path), expected, &generation, err));
    assert_int_equal(generation, want);
}

static rv_adapter_set *get(shelf *s, const char *name, uint64_t generation)
{
    rv_adapter_set *set;
    uint64_t found;
    assert_ok(rv_registry_get(s->r, name, 1, &set, &found, err));
    assert_int_equal(found, generation);
    return set;
}

static void check(shelf *s, const rv_adapter_set *set, int i)
{
    float found[N_IDS - 1];
    score(s, set, found);
    assert_memory_equal(found, s->scores[i], sizeof found);
}

static rv_registered *list(shelf *s, size_t want)
{
    rv_registered *all;
    size_t n;
    assert_ok(rv_registry_list(s->r, &all, &n, err));
    assert_int_equal(n, want);
    return all;
}

/* A name gets a new generation, is compared and swapped; who has the old one keeps it. */
static void generations(void **state)
{
    shelf *s = *state;
    char path[128];
    open_registry(s, 0, 0);
    put(s, "pirate", 0, 0, 1);
    rv_adapter_set *first = get(s, "pirate", 1), *second;
    check(s, first, 0);
    assert_refused(RV_E_STATE, rv_registry_put(s->r, "pirate", path_of(s, 1, path), 0, NULL, err));
    assert_refused(RV_E_STATE, rv_registry_put(s->r, "pirate", path_of(s, 1, path), 7, NULL, err));
    put(s, "pirate", 1, 1, 2);
    put(s, "pirate", 2, RV_ANY_GENERATION, 3);
    second = get(s, "pirate", 3);
    check(s, second, 2);
    check(s, first, 0);
    assert_true(first->set.serial != second->set.serial);
    assert_refused(RV_E_STATE, rv_registry_remove(s->r, "pirate", 2, err));
    assert_ok(rv_registry_remove(s->r, "pirate", 3, err));
    assert_refused(RV_E_NOT_FOUND, rv_registry_remove(s->r, "pirate", RV_ANY_GENERATION, err));
    assert_refused(RV_E_STATE, rv_registry_remove(s->r, "pirate", 3, err));
    assert_refused(RV_E_STATE, rv_registry_put(s->r, "pirate", path_of(s, 1, path), 3, NULL, err));
    rv_registry_free(&s->r);
    check(s, second, 2);
    rv_adapter_set_free(&first);
    rv_adapter_set_free(&second);
}

/* With room for three ready ones and five open files, all compute as if they were loaded alone. */
static void limits(void **state)
{
    shelf *s = *state;
    char name[16];
    size_t n_new;
    open_registry(s, 0, 0);
    put(s, "a0", 0, 0, 1);
    rv_adapter_set *set = get(s, "a0", 1);
    rv_registered *one = list(s, 1);
    uint64_t bytes = one->bytes;
    assert_true(bytes > 0);
    rv_free(one);
    rv_adapter_set_free(&set);
    rv_registry_free(&s->r);

    open_registry(s, 3 * bytes, 5);
    assert_ok(rv_registry_add_folder(s->r, s->dir, &n_new, err));
    assert_int_equal(n_new, N_ADAPTERS);
    assert_ok(rv_registry_add_folder(s->r, s->dir, &n_new, err));
    assert_int_equal(n_new, 0);
    uint64_t serials[N_ADAPTERS] = {0};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N_ADAPTERS; i++) {
            snprintf(name, sizeof name, "a%d", i);
            assert_ok(rv_registry_get(s->r, name, 1, &set, NULL, err));
            check(s, set, i);
            /* what it cached before it left memory is still its own */
            if (round) assert_int_equal(set->set.serial, serials[i]);
            serials[i] = set->set.serial;
            rv_adapter_set_free(&set);
        }
    rv_registered *all = list(s, N_ADAPTERS);
    int counts[RV_READY + 1] = {0};
    for (int i = 0; i < N_ADAPTERS; i++) {
        counts[all[i].residency]++;
        assert_int_equal(all[i].n_uses, 3);
        assert_true(!i || strcmp(all[i - 1].name, all[i].name) < 0);
        assert_int_equal(all[i].bytes, all[i].residency == RV_READY ? bytes : 0);
        rv_residency where;
        assert_ok(rv_registry_where(s->r, all[i].name, &where, err));
        assert_int_equal(where, all[i].residency);
    }
    rv_free(all);
    rv_residency nowhere;
    assert_refused(RV_E_NOT_FOUND, rv_registry_where(s->r, "nobody", &nowhere, err));
    assert_int_equal(counts[RV_READY], 3);
    assert_int_equal(counts[RV_OPEN], 2);
    static rv_registry_metrics m;
    m.size = sizeof m;
    assert_ok(rv_registry_get_metrics(s->r, &m, err));
    assert_int_equal(m.n_ready, 3);
    assert_int_equal(m.n_open, 5);
    assert_int_equal(m.ready_bytes, 3 * bytes);
    assert_int_equal(m.ready.n + m.open.n + m.on_disk.n, 3 * N_ADAPTERS);
    assert_int_equal(s->o.rt->adapter_bytes, 3 * bytes);
    rv_registry_free(&s->r);
    assert_int_equal(s->o.rt->adapter_bytes, 0);
}

/* Another scale is another set of keys and values, the same one again is not. */
static void scales(void **state)
{
    shelf *s = *state;
    rv_adapter_set *sets[3];
    open_registry(s, 0, 0);
    put(s, "a", 3, 0, 1);
    for (int i = 0; i < 3; i++)
        assert_ok(rv_registry_get(s->r, "a", i == 1 ? 0.5f : 1, &sets[i], NULL, err));
    assert_true(sets[0]->set.serial != sets[1]->set.serial);
    assert_int_equal(sets[0]->set.serial, sets[2]->set.serial);
    check(s, sets[2], 3);
    for (int i = 0; i < 3; i++) rv_adapter_set_free(&sets[i]);
    assert_refused(RV_E_ADAPTER, rv_registry_get(s->r, "a", NAN, &sets[0], NULL, err));
    rv_registry_free(&s->r);
}

/* A file that is replaced is what it was while it is open, and refused once it is not. */
static void files_change(void **state)
{
    shelf *s = *state;
    rv_adapter_set *set;
    open_registry(s, 1, 1);
    put(s, "a5", 5, 0, 1);
    write_adapter(s, 5, 99);
    set = get(s, "a5", 1);
    check(s, set, 5);
    rv_adapter_set_free(&set);
    put(s, "a6", 6, 0, 2); /* closes the file of a5 */
    set = get(s, "a6", 2);
    rv_adapter_set_free(&set);
    assert_refused(RV_E_STATE, rv_registry_get(s->r, "a5", 1, &set, NULL, err));
    put(s, "a5", 5, 1, 3);
    set = get(s, "a5", 3);
    float now[N_IDS - 1], other[N_IDS - 1];
    score(s, set, now);
    score_file(s, 5, other);
    assert_memory_equal(now, other, sizeof now);
    assert_memory_not_equal(now, s->scores[5], sizeof now);
    rv_adapter_set_free(&set);
    write_adapter(s, 5, 6); /* as it was */
    rv_registry_free(&s->r);
}

static void refusals(void **state)
{
    shelf *s = *state;
    char path[128];
    rv_adapter_set *set;
    rv_registry_options bad = {.size = sizeof bad, .max_open = -1};
    assert_refused(RV_E_INVALID, rv_registry_new(&s->r, s->o.m, &bad, err));
    open_registry(s, 0, 0);
    put(s, "a", 0, 0, 1);
    assert_refused(RV_E_NOT_FOUND, rv_registry_get(s->r, "b", 1, &set, NULL, err));
    assert_null(set);
    assert_refused(RV_E_INVALID, rv_registry_put(s->r, "", path_of(s, 0, path), 0, NULL, err));
    assert_refused(RV_E_INVALID, rv_registry_put(s->r, "a\n", path_of(s, 0, path), 0, NULL, err));
    assert_int_not_equal(
        rv_registry_put(s->r, "a", "tests/golden/llama/none", RV_ANY_GENERATION, NULL, NULL),
        RV_OK);
    assert_int_not_equal(rv_registry_put(s->r, "a", "tests/golden/qwen2/lora/adapter",
                                         RV_ANY_GENERATION, NULL, NULL),
                         RV_OK);
    set = get(s, "a", 1); /* nothing has changed */
    check(s, set, 0);
    rv_adapter_set_free(&set);
    assert_refused(RV_E_NOT_FOUND, rv_registry_remove(s->r, "b", RV_ANY_GENERATION, err));
    rv_registry_free(&s->r);
    rv_registry_free(NULL);
}

static rv_answer *answer_alone(const shelf *s, int i, const int32_t *prompt, size_t n,
                               const rv_generate_options *go)
{
    char path[128];
    rv_answer *out;
    rv_adapter *a;
    rv_adapter_set *set;
    rv_session *one;
    assert_ok(rv_adapter_load(&a, s->o.m, path_of(s, i, path), err));
    assert_ok(rv_adapter_set_new(&set, s->o.m, &(rv_adapter_use){a, 1}, 1, err));
    rv_session_options so = {.size = sizeof so, .n_context = 128, .adapters = set};
    assert_ok(rv_session_new(&one, s->o.m, &so, err));
    assert_ok(rv_session_generate(one, prompt, n, go, &out, err));
    rv_session_free(&one);
    rv_adapter_set_free(&set);
    rv_adapter_free(&a);
    return out;
}

/* A name stands for another file after every third request, while up to eight are under way on
 * different generations of it, in pages for a quarter of them, with one prompt that all share: none
 * fails, and each gets what its generation gives alone. */
static void swapped_under_load(void **state)
{
    enum { N = 48, FILES = 4, PROMPT = 70, NEW = 24 };
    shelf *s = *state;
    int32_t prompt[PROMPT];
    rv_answer *alone[FILES];
    static served list[N];
    int file_of[N], file = 0;
    uint64_t generation = 0, found;
    rv_generate_options go = greedy(NEW);
    for (int i = 0; i < PROMPT; i++) prompt[i] = 3 + i * 7 % 200;
    for (int i = 0; i < FILES; i++) alone[i] = answer_alone(s, i, prompt, PROMPT, &go);
    assert_int_not_equal(alone[0]->ids[0], alone[1]->ids[0]);
    rv_service *svc;
    rv_service_options so = {.size = sizeof so,
                             .n_tokens = 32 * 7,
                             .n_context = 128,
                             .max_running = 8,
                             .overcommit = 8,
                             .no_thread = 1};
    open_registry(s, 0, 0);
    assert_ok(rv_service_new(&svc, s->o.m, &so, err));
    size_t left;
    memset(list, 0, sizeof list);
    for (int i = 0; i < N; i++) {
        rv_adapter_set *set;
        if (i % 3 == 0) {
            file = i / 3 % FILES;
            put(s, "pirate", file, generation, generation + 1);
            generation++;
        }
        assert_ok(rv_registry_get(s->r, "pirate", 1, &set, &found, err));
        assert_int_equal(found, generation);
        rv_request r = {
            .size = sizeof r, .ids = prompt, .n_ids = PROMPT, .generate = &go, .adapters = set};
        file_of[i] = file;
        assert_ok(rv_service_submit(svc, &r, &list[i].request, err));
        rv_adapter_set_free(&set);
        for (int k = 0; k < 4; k++) assert_ok(rv_service_step(svc, &left, err));
        served_drain(svc, 0, list, N);
    }
    served_run(svc, list, N);
    for (int i = 0; i < N; i++) {
        const rv_answer *a = alone[file_of[i]];
        assert_int_equal(list[i].last.status, RV_OK);
        assert_int_equal(list[i].n, (int)a->n_ids);
        assert_memory_equal(list[i].ids, a->ids, a->n_ids * sizeof *a->ids);
    }
    static rv_service_metrics m;
    served_metrics(svc, &m);
    assert_int_equal(m.n_failed, 0);
    assert_true(m.n_preempted > 0 && m.reused_tokens > 0);
    rv_service_free(&svc);
    rv_registry_free(&s->r);
    for (int i = 0; i < FILES; i++) rv_free(alone[i]);
}

typedef struct user {
    shelf *s;
    int number;
    rvi_thread *thread;
} user;

/* Gets what is there, puts and removes a name of its own, while room is always short. */
static void use(void *ctx)
{
    user *u = ctx;
    rvi_rng rng = {(uint64_t)u->number + 1};
    char name[16], own[16], path[128];
    snprintf(own, sizeof own, "own%d", u->number);
    for (int i = 0; i < N_ROUNDS; i++) {
        rv_adapter_set *set;
        int k = (int)(rvi_rng_double(&rng) * rvi_rng_double(&rng) * N_ADAPTERS);
        snprintf(name, sizeof name, "a%d", k);
        assert_ok(rv_registry_get(u->s->r, name, 1, &set, NULL, err));
        rv_adapter_set_free(&set);
        path_of(u->s, k, path);
        assert_ok(rv_registry_put(u->s->r, own, path, RV_ANY_GENERATION, NULL, err));
        assert_ok(rv_registry_get(u->s->r, own, 1, &set, NULL, err));
        if (i % 3 == 0) assert_ok(rv_registry_remove(u->s->r, own, RV_ANY_GENERATION, err));
        rv_adapter_set_free(&set);
        /* somebody else's, which may go at any moment */
        snprintf(name, sizeof name, "own%d", (u->number + 1) % N_THREADS);
        if (!rv_registry_get(u->s->r, name, 1, &set, NULL, NULL)) rv_adapter_set_free(&set);
    }
}

static void threads(void **state)
{
    shelf *s = *state;
    user users[N_THREADS];
    open_registry(s, 1, 2);
    assert_ok(rv_registry_add_folder(s->r, s->dir, NULL, err));
    for (int i = 0; i < N_THREADS; i++) {
        users[i] = (user){s, i, NULL};
        assert_ok(rvi_thread_start(&users[i].thread, use, &users[i], false, err));
    }
    for (int i = 0; i < N_THREADS; i++) rvi_thread_join(users[i].thread);
    for (int i = 0; i < N_ADAPTERS; i++) {
        char name[16];
        rv_adapter_set *set;
        snprintf(name, sizeof name, "a%d", i);
        assert_ok(rv_registry_get(s->r, name, 1, &set, NULL, err));
        check(s, set, i);
        rv_adapter_set_free(&set);
    }
    static rv_registry_metrics m;
    m.size = sizeof m;
    assert_ok(rv_registry_get_metrics(s->r, &m, err));
    assert_int_equal(m.n_ready, 1);
    assert_true(m.n_open <= 2);
    rv_registry_free(&s->r);
    assert_int_equal(s->o.rt->adapter_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations),        cmocka_unit_test(limits),   cmocka_unit_test(scales),
        cmocka_unit_test(files_change),       cmocka_unit_test(refusals), cmocka_unit_test(threads),
        cmocka_unit_test(swapped_under_load),
    };
    return cmocka_run_group_tests_name("adapters by name", tests, setup, teardown);
}
