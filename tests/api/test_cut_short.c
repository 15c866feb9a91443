/* A model file that is cut short while it is in use gives a status, never a signal: at every moment
 * of opening, and afterwards, packed or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "api/opened.h"

enum { LEFT = 4096 }; /* bytes: the beginning of the metadata */

static const char *const original = "tests/gguf/gemma2.gguf";
static char path[64];

static void copy_model(const char *from, const char *to)
{
    char block[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        assert_int_equal(fwrite(block, 1, n, out), n);
    assert_int_equal(fclose(in), 0);
    assert_int_equal(fclose(out), 0);
}

static int make_dir(void **state)
{
    (void)state;
    char dir[] = "/tmp/rv-cut-XXXXXX";
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    *strrchr(path, '/') = 0;
    return rmdir(path);
}

/* Allocations count up; one of them cuts the file. */
typedef struct counter {
    long n, cut_at;
} counter;

static void count(void *ctx)
{
    counter *c = ctx;
    if (c->n++ == c->cut_at && truncate(path, LEFT)) abort();
}

static void *take(void *ctx, size_t size)
{
    count(ctx);
    return malloc(size);
}

static void *resize(void *ctx, void *p, size_t size)
{
    count(ctx);
    return realloc(p, size);
}

static void give(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static rv_runtime *runtime(int no_pack, int exact, counter *c)
{
    rv_allocator a = {take, resize, give, c};
    rv_runtime_options o;
    rv_runtime *rt;
    o = (rv_runtime_options){.size = sizeof o};
    o.n_threads = 2;
    o.no_pack = no_pack;
    o.exact = exact;
    if (c) o.allocator = &a;
    assert_ok(rv_runtime_new(&rt, &o, err));
    return rt;
}

static rv_status answer(rv_model *m, rv_error *err)
{
    static const int32_t prompt[] = {2, 100, 101, 102, 103, 104, 105, 106};
    rv_session_options so;
    rv_session *s;
    rv_answer *g = NULL;
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 64;
    rv_status st = rv_session_new(&s, m, &so, err);
    if (st) return st;
    rv_generate_options o = greedy(4);
    st = rv_session_generate(s, prompt, 8, &o, &g, err);
    /* rows that were computed from a file that was not there are no part of the past */
    if (st) assert_int_equal(rv_session_tokens(s, NULL), 0);
    rv_free(g);
    rv_session_free(&s);
    return st;
}

static void after_opening(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        rv_error why = {0};
        rv_runtime *rt = runtime(mode == 1, mode == 2, NULL);
        rv_model *m;
        copy_model(original, path);
        assert_ok(rv_model_open(&m, rt, path, 0, err));
        assert_int_equal(truncate(path, LEFT), 0);
        assert_int_equal(answer(m, &why), RV_E_IO);
        assert_non_null(strstr(why.text, path));
        assert_non_null(strstr(why.text, "truncated"));
        assert_int_equal(answer(m, &why), RV_E_IO);
        rv_model_close(&m);
        /* opened again it is a bad file; another one works */
        assert_true(rv_model_open(&m, rt, path, 0, &why));
        assert_ok(rv_model_open(&m, rt, original, 0, err));
        assert_ok(answer(m, err));
        rv_model_close(&m);
        rv_runtime_free(&rt);
    }
}

/* A file that shrinks between two answers. */
static void between_answers(void **state)
{
    (void)state;
    for (int no_pack = 0; no_pack < 2; no_pack++) {
        rv_runtime *rt = runtime(no_pack, 0, NULL);
        rv_model *m;
        copy_model(original, path);
        assert_ok(rv_model_open(&m, rt, path, 0, err));
        assert_ok(answer(m, err));
        assert_int_equal(truncate(path, LEFT), 0);
        assert_int_equal(answer(m, NULL), RV_E_IO);
        rv_model_close(&m);
        rv_runtime_free(&rt);
    }
}

static void while_opening(void **state)
{
    (void)state;
    int n_opened = 0, n_refused = 0;
    for (int no_pack = 0; no_pack < 2; no_pack++) {
        long step = 1;
        for (long at = 0;; at += step) {
            rv_error err = {0};
            counter c = {.cut_at = -1};
            rv_runtime *rt = runtime(no_pack, 0, &c);
            rv_model *m;
            copy_model(original, path);
            c.cut_at = c.n + at;
            rv_status st = rv_model_open(&m, rt, path, 0, &err);
            if (st) {
                assert_true(st == RV_E_IO || st == RV_E_MODEL || st == RV_E_TOKENIZATION);
                assert_true(err.text[0]);
                n_refused++;
            } else { /* what it needs was read before; then it is used, or refused */
                st = answer(m, &err);
                assert_true(st == RV_OK || st == RV_E_IO);
                n_opened++;
            }
            bool cut = c.n > c.cut_at;
            rv_model_close(&m);
            rv_runtime_free(&rt);
            if (!cut) break;
            step = 1 + at / 8; /* all of the beginning, then less and less */
        }
    }
    assert_true(n_refused > 2);
    assert_true(n_opened > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(after_opening),
                                       cmocka_unit_test(between_answers),
                                       cmocka_unit_test(while_opening)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
