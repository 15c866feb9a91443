/* The judge of requests with its embedder, all-MiniLM-L6-v2: what it says must be what the network
 * said where it was trained (tests/real/data/judge.json, written by tools/train_judge.py, and
 * compare.json, the odds of pairs where tools/train_compare.py had trained the adapter). Skipped
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
    assert_ok(rvi_reading_new(&r, e, text->as.string.data, text->as.string.len, false, err));
    return r;
}

/* How far the judge is from what it said where it was trained. */
static double difference(rvi_embedder *e, const rvi_json *row, const char *key)
{
    rvi_reading *q = read_member(e, row, "question"), *a = read_member(e, row, "answer"),
                *r = read_member(e, row, "request");
    double got = (double)rvi_judge(q, a, r), want = rvi_json_number(rvi_json_get(row, key), NAN);
    rvi_reading_free(q);
    rvi_reading_free(a);
    rvi_reading_free(r);
    return fabs(got - want);
}

typedef struct opened {
    golden g;
    rvi_tokenizer *t;
    rvi_embedder *e;
    rvi_arena arena;
    rvi_blob blob;
    const rvi_json *cases;
} opened;

static void open_with(opened *o, const char *cases)
{
    *o = (opened){0};
    golden_open(&o->g, path, NULL, false, 2, NULL);
    o->t = open_cached_tokenizer(path);
    assert_ok(rvi_embedder_new(&o->e, o->g.m, o->t, o->g.m->be, err));
    assert_ok(rvi_blob_open(&o->blob, cases, err));
    assert_ok(
        rvi_json_parse(&o->cases, (const char *)o->blob.data, o->blob.len, &o->arena, cases, err));
    assert_true(rvi_json_count(o->cases) >= 20);
}

static void close_all(opened *o)
{
    rvi_arena_deinit(&o->arena);
    rvi_blob_close(&o->blob);
    rvi_embedder_free(o->e);
    rvi_tokenizer_free(o->t);
    golden_close(&o->g);
}

/* Observed in 69 pairs: 0.016 with the embedder (states rounded to bytes, features to halves where
 * it was trained) and 0.010 by spelling, but for one pair each, 0.22 and 0.035: which word is the
 * nearest is a matter of the last bits there, and the judge sees another pair of words. */
static void judges_as_it_was_trained(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    open_with(&o, "tests/real/data/judge.json");
    int embedded = 0, spelled = 0;
    for (size_t i = 0; i < rvi_json_count(o.cases); i++) {
        embedded += !(difference(o.e, rvi_json_at(o.cases, i), "embedded") <= 0.03);
        spelled += !(difference(NULL, rvi_json_at(o.cases, i), "spelled") <= 0.02);
    }
    if (embedded > 1 || spelled > 1)
        fail_msg("%d and %d of %zu pairs are judged otherwise", embedded, spelled,
                 rvi_json_count(o.cases));
    close_all(&o);
}

/* The words of the encoder were rounded to 8 bit where the adapter was trained. Observed: 0.077 or less. */
static void compares_as_it_was_trained(void **state)
{
    (void)state;
    if (!path[0]) skip();
    opened o;
    double worst = 0;
    open_with(&o, "tests/real/data/compare.json");
    for (size_t i = 0; i < rvi_json_count(o.cases); i++) {
        const rvi_json *row = rvi_json_at(o.cases, i);
        rvi_reading *q = read_member(o.e, row, "question"), *r = read_member(o.e, row, "request");
        rvi_embedder_pair pair = {q->ids, r->ids, (size_t)q->n_ids, (size_t)r->n_ids, 0};
        rvi_embedder_pair pairs[] = {pair, {r->ids, r->ids, pair.n_b, pair.n_b, 0}, pair};
        assert_ok(rvi_embedder_compare(o.e, &pair, 1, err));
        assert_ok(rvi_embedder_compare(o.e, pairs, RVI_COUNT(pairs), err)); /* in few passes */
        assert_float_equal(pairs[0].odds, pair.odds, 0);
        assert_float_equal(pairs[2].odds, pair.odds, 0);
        worst =
            fmax(worst, fabs((double)pair.odds - rvi_json_number(rvi_json_get(row, "odds"), NAN)));
        rvi_reading_free(q);
        rvi_reading_free(r);
    }
    if (!(worst <= 0.15)) fail_msg("odds differ by %.4f", worst);
    close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(judges_as_it_was_trained),
                                       cmocka_unit_test(compares_as_it_was_trained)};
    return cmocka_run_group_tests_name("judge", tests, find_model, NULL);
}
