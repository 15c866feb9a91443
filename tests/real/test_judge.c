/* The judge of requests with its embedder, all-MiniLM-L6-v2: what it says must be what the network
 * said where it was trained (tests/real/data/judge.json, written by tools/train_judge.py). Skipped
 * where the embedder is not in the cache folder. */
#include "model/golden.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/os.h"
#include "learn/recognise/judge.h"
#include "learn/recognise/recogniser.h"
#include "real/cached_model.h"

static char path[1024]; /* empty: not on this machine */

static int find_model(void **state)
{
    (void)state;
    find_cached("minilm", path, sizeof path);
    return 0;
}

static rvi_reading *read_member(rvi_embedder *e, const rvi_json *row, const char *key)
{
    rvi_reading *r = NULL;
    const rvi_json *text = rvi_json_get(row, key);
    assert_ok(rvi_reading_new(&r, e, text->as.string.data, text->as.string.len, err));
    return r;
}

/* Observed: at most 0.02 with the embedder (states rounded to bytes), 0.001 by spelling. */
static void check(rvi_embedder *e, const rvi_json *row, const char *key, double most)
{
    rvi_reading *q = read_member(e, row, "question"), *a = read_member(e, row, "answer"),
                *r = read_member(e, row, "request");
    double got = (double)rvi_judge(q, a, r), want = rvi_json_number(rvi_json_get(row, key), NAN);
    if (!(fabs(got - want) <= most))
        fail_msg("%s: %.4f instead of %.4f for \"%s\"", key, got, want,
                 rvi_json_get(row, "request")->as.string.data);
    rvi_reading_free(q);
    rvi_reading_free(a);
    rvi_reading_free(r);
}

static void judges_as_it_was_trained(void **state)
{
    (void)state;
    if (!path[0]) skip();
    golden g;
    golden_open(&g, path, NULL, false, 2, NULL);
    rvi_tokenizer *t = open_cached_tokenizer(path);
    rvi_embedder *e = NULL;
    rvi_arena arena = {0};
    const rvi_json *cases = NULL;
    rvi_blob blob;
    assert_ok(rvi_embedder_new(&e, g.m, t, g.m->be, err));
    assert_ok(rvi_blob_open(&blob, "tests/real/data/judge.json", err));
    assert_ok(rvi_json_parse(&cases, (const char *)blob.data, blob.len, &arena, "cases", err));
    assert_true(rvi_json_count(cases) >= 20);
    for (size_t i = 0; i < rvi_json_count(cases); i++) {
        check(e, rvi_json_at(cases, i), "embedded", 0.05);
        check(NULL, rvi_json_at(cases, i), "spelled", 0.01);
    }
    rvi_arena_deinit(&arena);
    rvi_blob_close(&blob);
    rvi_embedder_free(e);
    rvi_tokenizer_free(t);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judges_as_it_was_trained)};
    return cmocka_run_group_tests_name("judge", tests, find_model, NULL);
}
