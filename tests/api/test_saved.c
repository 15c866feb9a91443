/* Sessions on disk: a loaded one goes on with the bits of the one that was saved, and a file that
 * is damaged, foreign or forged is refused. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "api/opened.h"
#include "base/sha256.h"

static const char *const model_path = "tests/gguf/llama-spm.gguf";
enum { PAST = 75, MORE = 20, CONTEXT = 160 }; /* two whole pages of 32, and a part of one */

static char dir[64], file[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/ruvllm-saved-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/session", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(file);
    assert_int_equal(rmdir(dir), 0); /* nothing was left beside it */
    return 0;
}

static void fill(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) ids[i] = 5 + (int32_t)(i * 37 % 50);
}

static rv_answer *go_on(rv_session *s, const int32_t *ids, size_t n)
{
    rv_answer *a;
    rv_generate_options go = greedy(MORE);
    go.top_logprobs = 3;
    assert_ok(rv_session_generate(s, ids, n, &go, &a, err));
    assert_int_equal(a->n_ids, MORE);
    return a;
}

static void expect_same(const rv_answer *a, const rv_answer *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    for (size_t i = 0; i < a->n_ids; i++)
        assert_memory_equal(&a->chosen[i].logprob, &b->chosen[i].logprob, sizeof(float));
    for (size_t i = 0; i < a->n_ids * a->n_top; i++)
        assert_memory_equal(&a->top[i].logprob, &b->top[i].logprob, sizeof(float));
}

/* ---- the same bits ---- */

/* A past of n tokens saved, loaded by a second runtime, and both continued. */
static void save_and_go_on(const char *path, rv_kv_type kv_type, int exact, size_t n, int n_context)
{
    int32_t ids[CONTEXT];
    const int32_t *held;
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 2, .exact = exact};
    rv_session_options so = {.size = sizeof so, .n_context = n_context, .kv_type = kv_type};
    rv_answer *want = NULL;
    fill(ids, n + 1);
    for (int loading = 0; loading < 2; loading++) {
        opened o = {0};
        ro.n_threads = loading ? 1 : 2;
        assert_ok(rv_runtime_new(&o.rt, &ro, err));
        assert_ok(rv_model_open(&o.m, o.rt, path, NULL, err));
        if (loading) {
            assert_ok(rv_session_load(&o.s, o.m, &so, file, err));
        } else {
            assert_ok(rv_session_new(&o.s, o.m, &so, err));
            assert_ok(rv_session_sync(o.s, ids, n, NULL, NULL, err));
            assert_ok(rv_session_save(o.s, file, err));
        }
        assert_int_equal(rv_session_tokens(o.s, &held), n);
        if (n) assert_memory_equal(held, ids, n * sizeof *ids);
        rv_answer *a = go_on(o.s, ids, n + 1);
        assert_int_equal(a->n_reused, (int)n);
        if (loading) expect_same(a, want);
        rv_free(want);
        want = a;
        close_all(&o);
    }
    rv_free(want);
}

static void loaded_sessions_go_on(void **state)
{
    (void)state;
    static const size_t pasts[] = {0, 1, 31, 32, 33, 64, PAST};
    for (size_t i = 0; i < sizeof pasts / sizeof *pasts; i++)
        save_and_go_on(model_path, RV_KV_DEFAULT, 0, pasts[i], CONTEXT);
    save_and_go_on(model_path, RV_KV_Q8, 0, PAST, CONTEXT);
    save_and_go_on(model_path, RV_KV_F32, 0, PAST, CONTEXT);
    save_and_go_on(model_path, RV_KV_WARM, 0, PAST, CONTEXT);
    save_and_go_on(model_path, RV_KV_TIERED, 0, PAST, CONTEXT);
    save_and_go_on(model_path, RV_KV_DEFAULT, 1, PAST, CONTEXT);
    save_and_go_on("tests/gguf/gemma2.gguf", RV_KV_DEFAULT, 0, PAST, CONTEXT);
}

/* Where the frequencies of a model depend on how long a sequence may become, the saved ones do. */
static void long_and_short_frequencies(void **state)
{
    (void)state;
    opened o;
    open_all(&o, "tests/gguf/phi3-longrope.gguf", 1, 32);
    int most = rv_model_get_info(o.m)->n_context;
    close_all(&o);
    assert_true(most >= 512);
    int32_t ids[CONTEXT];
    fill(ids, CONTEXT);
    static float first[1024];
    static const int contexts[] = {128, 512}; /* up to 256 the short set, then the long one */
    for (int i = 0; i < 2; i++) {
        rv_session *loaded;
        float *a, *b;
        size_t reused, n = 40;
        int n_vocab;
        open_all(&o, "tests/gguf/phi3-longrope.gguf", 1, contexts[i]);
        n_vocab = rv_model_get_info(o.m)->n_vocab;
        assert_ok(rv_session_sync(o.s, ids, n, NULL, NULL, err));
        assert_ok(rv_session_save(o.s, file, err));
        rv_session_options so = {.size = sizeof so, .n_context = contexts[i]};
        assert_ok(rv_session_load(&loaded, o.m, &so, file, err));
        assert_ok(rv_session_sync(o.s, ids, n + 1, NULL, &a, err));
        assert_ok(rv_session_sync(loaded, ids, n + 1, &reused, &b, err));
        assert_int_equal(reused, n);
        assert_memory_equal(a, b, (size_t)n_vocab * sizeof *a);
        assert_in_range(n_vocab, 1, 1024);
        if (i) assert_memory_not_equal(a, first, (size_t)n_vocab * sizeof *a);
        memcpy(first, a, (size_t)n_vocab * sizeof *a);
        /* loaded where sequences use the other set: computed again, and right */
        rv_session *other, *fresh;
        so.n_context = contexts[!i];
        assert_ok(rv_session_load(&other, o.m, &so, file, err));
        assert_ok(rv_session_new(&fresh, o.m, &so, err));
        assert_ok(rv_session_sync(other, ids, n + 1, NULL, &a, err));
        assert_ok(rv_session_sync(fresh, ids, n + 1, NULL, &b, err));
        assert_memory_equal(a, b, (size_t)n_vocab * sizeof *a);
        rv_session_free(&loaded);
        rv_session_free(&other);
        rv_session_free(&fresh);
        close_all(&o);
    }
}

static void forks_and_shared_engines(void **state)
{
    (void)state;
    int32_t ids[PAST + 1];
    opened o;
    rv_engine *e;
    rv_session *s, *fork, *loaded, *back;
    fill(ids, PAST + 1);
    open_all(&o, model_path, 1, CONTEXT);
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 4 * CONTEXT};
    assert_ok(rv_engine_new(&e, o.m, &eo, err));
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT, .engine = e};
    assert_ok(rv_session_new(&s, o.m, &so, err));
    assert_ok(rv_session_sync(s, ids, PAST, NULL, NULL, err));
    assert_ok(rv_session_fork(&fork, s, err));
    assert_ok(rv_session_save(fork, file, err)); /* of shared pages */
    assert_ok(rv_session_load(&loaded, o.m, &so, file, err));
    assert_ok(rv_session_fork(&back, loaded, err));
    rv_answer *want = go_on(s, ids, PAST + 1), *a = go_on(loaded, ids, PAST + 1),
              *b = go_on(back, ids, PAST + 1);
    expect_same(a, want);
    expect_same(b, want);
    assert_int_equal(b->n_reused, PAST);
    rv_free(want);
    rv_free(a);
    rv_free(b);
    /* while an answer is under way there is nothing to save */
    rv_generate_options go = greedy(4);
    assert_ok(rv_session_start(s, ids, 5, &go, err));
    assert_refused(RV_E_STATE, rv_session_save(s, file, err));
    rv_session_free(&s);
    rv_session_free(&fork);
    rv_session_free(&loaded);
    rv_session_free(&back);
    rv_engine_free(&e);
    close_all(&o);
}

/* Keys and values that depend on an adapter stay out, from the first of them on. */
static void adapters_leave_tokens_out(void **state)
{
    (void)state;
    int32_t ids[PAST];
    opened o;
    rv_adapter *a;
    rv_adapter_set *set;
    rv_session *s, *loaded;
    fill(ids, PAST);
    open_all(&o, "tests/golden/llama", 1, CONTEXT);
    assert_ok(rv_adapter_load(&a, o.m, "tests/golden/llama/lora", err));
    rv_adapter_use use = {a, 1};
    assert_ok(rv_adapter_set_new(&set, o.m, &use, 1, err));
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 2 * CONTEXT};
    rv_engine *e;
    assert_ok(rv_engine_new(&e, o.m, &eo, err));
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT, .engine = e};
    assert_ok(rv_session_new(&s, o.m, &so, err));
    rv_row rows[PAST];
    for (int i = 0; i < PAST; i++)
        rows[i] = (rv_row){.session = s, .token = ids[i], .adapters = i == 40 ? set : NULL};
    assert_ok(rv_engine_step(e, rows, PAST, err));
    assert_ok(rv_session_save(s, file, err));
    assert_ok(rv_session_load(&loaded, o.m, &so, file, err));
    assert_int_equal(rv_session_tokens(loaded, NULL), 40);
    rv_session_free(&loaded);
    rv_session_free(&s);
    so.adapters = set;
    assert_ok(rv_session_new(&s, o.m, &so, err));
    assert_ok(rv_session_sync(s, ids, PAST, NULL, NULL, err));
    assert_ok(rv_session_save(s, file, err));
    so.adapters = NULL;
    assert_ok(rv_session_load(&loaded, o.m, &so, file, err));
    assert_int_equal(rv_session_tokens(loaded, NULL), 0);
    rv_session_free(&loaded);
    rv_session_free(&s);
    rv_adapter_set_free(&set);
    rv_adapter_free(&a);
    rv_engine_free(&e);
    close_all(&o);
}

/* ---- refused ---- */

typedef struct bytes {
    uint8_t data[1 << 20];
    size_t len;
} bytes;

static bytes saved, changed;

static void read_file(bytes *b)
{
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    b->len = fread(b->data, 1, sizeof b->data, f);
    assert_in_range(b->len, 1, sizeof b->data - 1);
    fclose(f);
}

static void write_file(const bytes *b)
{
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    fclose(f);
}

static void refuse(const rv_model *m, const rv_session_options *so, rv_status want,
                   const char *says)
{
    rv_session *s = (rv_session *)&saved;
    rv_error e = {0};
    rv_status st = rv_session_load(&s, m, so, file, &e);
    if (st != want || e.code != st || !strstr(e.text, says) || !strstr(e.text, file))
        fail_msg("%s '%s', wanted '%s'", rv_status_name(st), e.text, says);
    assert_null(s);
}

static void make_saved(opened *o)
{
    int32_t ids[PAST];
    fill(ids, PAST);
    open_all(o, model_path, 1, CONTEXT);
    assert_ok(rv_session_sync(o->s, ids, PAST, NULL, NULL, err));
    assert_ok(rv_session_save(o->s, file, err));
    read_file(&saved);
}

enum { AT_IDS = 8 + 4 * 4 + 3 * 8 + 64, SUM = 32 };

static void damaged_files(void **state)
{
    (void)state;
    opened o;
    make_saved(&o);
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    /* every byte of the header and of the sum, and some of everything between */
    for (size_t i = 0; i < saved.len;
         i += i < AT_IDS + 8 || i + SUM + 8 >= saved.len ? 1 : 1 + saved.len / 200) {
        rv_session *s;
        rv_error e = {0};
        changed = saved;
        changed.data[i] = (uint8_t)(changed.data[i] ^ 1 << i % 8);
        write_file(&changed);
        rv_status st = rv_session_load(&s, o.m, &so, file, &e);
        if (!st || !strstr(e.text, file)) fail_msg("byte %zu: %d %s", i, st, e.text);
        if (st != RV_E_MODEL && st != RV_E_TOO_LONG)
            fail_msg("byte %zu: %s %s", i, rv_status_name(st), e.text);
        assert_null(s);
    }
    static const size_t lens[] = {0, 1, 7, 8, AT_IDS - 1, AT_IDS, AT_IDS + SUM, AT_IDS + 99};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        changed = saved;
        changed.len = lens[i];
        write_file(&changed);
        refuse(o.m, &so, RV_E_MODEL, "");
    }
    for (size_t cut = 1; cut < 40; cut += 13) {
        changed = saved;
        changed.len -= cut;
        write_file(&changed);
        refuse(o.m, &so, RV_E_MODEL, "damaged");
    }
    changed = saved;
    changed.data[changed.len++] = 0;
    write_file(&changed);
    refuse(o.m, &so, RV_E_MODEL, "damaged");
    write_file(&saved); /* and as it was, it is fine */
    rv_session *s;
    assert_ok(rv_session_load(&s, o.m, &so, file, err));
    rv_session_free(&s);
    close_all(&o);
}

/* Sets a number of the header, and makes the sum right again: anybody can. */
static void forge(size_t at, int n_bytes, uint64_t value)
{
    rvi_sha256 sum;
    changed = saved;
    for (int i = 0; i < n_bytes; i++) changed.data[at + (size_t)i] = (uint8_t)(value >> 8 * i);
    rvi_sha256_init(&sum);
    rvi_sha256_add(&sum, changed.data, changed.len - SUM);
    rvi_sha256_end(&sum, changed.data + changed.len - SUM);
    write_file(&changed);
}

static void forged_files(void **state)
{
    (void)state;
    enum { KV = 8, EXACT = 12, PAGE_TOKENS = 16, ROPE = 20, BYTES = 24, IDS = 32, PAGES = 40 };
    opened o;
    make_saved(&o);
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    forge(KV, 4, RV_KV_Q8);
    refuse(o.m, &so, RV_E_MODEL, "KV type");
    forge(EXACT, 4, 1);
    refuse(o.m, &so, RV_E_MODEL, "precision");
    forge(PAGE_TOKENS, 4, 64);
    refuse(o.m, &so, RV_E_MODEL, "");
    forge(ROPE, 4, 1); /* the model has one set of frequencies */
    refuse(o.m, &so, RV_E_MODEL, "damaged");
    forge(ROPE, 4, 2);
    refuse(o.m, &so, RV_E_MODEL, "damaged");
    forge(BYTES, 8, UINT64_MAX);
    refuse(o.m, &so, RV_E_MODEL, "");
    forge(IDS, 8, UINT64_MAX);
    refuse(o.m, &so, RV_E_TOO_LONG, "");
    forge(IDS, 8, PAST - 1);
    refuse(o.m, &so, RV_E_MODEL, "damaged");
    forge(PAGES, 8, UINT64_MAX / 2);
    refuse(o.m, &so, RV_E_MODEL, "damaged");
    forge(AT_IDS, 4, 320); /* the vocabulary has 320 */
    refuse(o.m, &so, RV_E_MODEL, "320");
    forge(AT_IDS + 4 * (PAST - 1), 4, 0xFFFFFFFF);
    refuse(o.m, &so, RV_E_MODEL, "-1");
    close_all(&o);
}

static void foreign_files(void **state)
{
    (void)state;
    opened o, other;
    make_saved(&o);
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    open_all(&other, "tests/gguf/llama.gguf", 1, CONTEXT);
    refuse(other.m, &so, RV_E_MODEL, "another model");
    close_all(&other);
    so.kv_type = RV_KV_Q8;
    refuse(o.m, &so, RV_E_MODEL, "KV type");
    so.kv_type = RV_KV_DEFAULT;
    so.n_context = PAST - 1;
    refuse(o.m, &so, RV_E_TOO_LONG, "75 tokens");
    so.n_context = PAST;
    rv_session *s;
    assert_ok(rv_session_load(&s, o.m, &so, file, err)); /* just fits */
    rv_session_free(&s);
    /* float activations: not the same numbers, even where the cache is of the same type */
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = 1, .exact = 1};
    assert_ok(rv_runtime_new(&other.rt, &ro, err));
    assert_ok(rv_model_open(&other.m, other.rt, model_path, NULL, err));
    so = (rv_session_options){.size = sizeof so, .n_context = CONTEXT, .kv_type = RV_KV_F16};
    refuse(other.m, &so, RV_E_MODEL, "precision");
    close_all(&other);
    /* no room in a shared engine */
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = 96};
    so = (rv_session_options){.size = sizeof so, .n_context = 96};
    assert_ok(rv_engine_new(&so.engine, o.m, &eo, err));
    rv_session *first;
    assert_ok(rv_session_load(&first, o.m, &so, file, err));
    assert_refused(RV_E_NO_PAGES, rv_session_load(&s, o.m, &so, file, err));
    rv_session_free(&first);
    assert_ok(rv_session_load(&first, o.m, &so, file, err)); /* nothing was left in use */
    rv_session_free(&first);
    rv_engine_free(&so.engine);
    close_all(&o);
}

static int n_files(void)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void paths(void **state)
{
    (void)state;
    opened o;
    rv_session *s;
    char path[192];
    make_saved(&o);
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    snprintf(path, sizeof path, "%s/nowhere/session", dir);
    assert_refused(RV_E_NOT_FOUND, rv_session_save(o.s, path, err));
    assert_refused(RV_E_NOT_FOUND, rv_session_load(&s, o.m, &so, path, err));
    assert_refused(RV_E_NOT_FOUND, rv_session_load(&s, o.m, &so, dir, err));
    assert_refused(RV_E_IO, rv_session_save(o.s, dir, err)); /* a directory is in the way */
    assert_int_equal(rv_session_tokens(o.s, NULL), PAST);
    /* another takes the place of the file: who has the old one open still reads all of it */
    FILE *old = fopen(file, "rb");
    assert_non_null(old);
    int32_t ids[] = {5, 6, 7};
    assert_ok(rv_session_sync(o.s, ids, 3, NULL, NULL, err));
    assert_ok(rv_session_save(o.s, file, err));
    changed.len = fread(changed.data, 1, sizeof changed.data, old);
    fclose(old);
    assert_int_equal(changed.len, saved.len);
    assert_memory_equal(changed.data, saved.data, saved.len);
    assert_ok(rv_session_load(&s, o.m, &so, file, err));
    assert_int_equal(rv_session_tokens(s, NULL), 3);
    rv_session_free(&s);
    assert_int_equal(n_files(), 1);
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 077, 0); /* what was talked about is private */
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_sessions_go_on),
        cmocka_unit_test(long_and_short_frequencies),
        cmocka_unit_test(forks_and_shared_engines),
        cmocka_unit_test(adapters_leave_tokens_out),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(forged_files),
        cmocka_unit_test(foreign_files),
        cmocka_unit_test(paths),
    };
    return cmocka_run_group_tests_name("saved sessions", tests, make_dir, remove_dir);
}
