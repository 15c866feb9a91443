/* The feedback log: what is refused, text and back, the chain and every way to break it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "harness/assert_ok.h"
#include "learn/journal/log.h"
#include "store/stores.h"

static rvi_text text(const char *s)
{
    return (rvi_text){s, strlen(s)};
}

static rvi_feedback correction(void)
{
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.time = 1700000000123;
    f.user = text("anna");
    f.answer = text("a-17");
    f.question = text("What is Kakovin's \"pet\"?\n\tπ \x01");
    f.given = text("A cat.");
    f.corrected = text("An otter.");
    f.note = text("by hand");
    f.score = 0.1;
    return f;
}

static void refuse(const rvi_feedback *f, const char *wanted)
{
    rvi_store s;
    uint64_t n;
    rv_error why = {0};
    rvi_feedback copy = *f;
    assert_ok(rvi_store_memory(&s, err));
    rv_status st = rvi_feedback_append(&s, &copy, &why);
    if (st != RV_E_INVALID || !strstr(why.text, wanted)) fail_msg("%d: %s", (int)st, why.text);
    assert_ok(rvi_feedback_count(&s, &n, err));
    assert_int_equal(n, 0);
    assert_int_equal(copy.seq, 0);
    rvi_store_close(&s);
}

static void test_refused(void **state)
{
    (void)state;
    static char huge[RVI_FEEDBACK_MAX_TEXT + 1];
    memset(huge, 'x', sizeof huge);
    rvi_feedback f = correction();
    f.question = (rvi_text){0};
    refuse(&f, "the question is empty");
    f = correction();
    f.corrected = text(" \n\t ");
    refuse(&f, "the corrected answer is empty");
    f.corrected = (rvi_text){huge, sizeof huge};
    refuse(&f, "corrected has 65537 bytes; at most 65536");
    f.corrected = text("good \xc3\x28 bad");
    refuse(&f, "corrected is not UTF-8 at byte 5");
    f = correction();
    f.user = (rvi_text){huge, 257};
    refuse(&f, "user has 257 bytes");
    f = correction();
    f.score = 1.5;
    refuse(&f, "score 1.5 is not between 0 and 1");
    f.score = INFINITY;
    refuse(&f, "not between");
    f = correction();
    f.time = -1;
    refuse(&f, "before 1970");
    f.kind = RVI_FEEDBACK_N_KINDS;
    refuse(&f, "unknown kind");

    f = rvi_feedback_new(RVI_FEEDBACK_SCORE);
    f.answer = text("a");
    refuse(&f, "there is no score");
    f.score = 0.5;
    f.answer = (rvi_text){0};
    refuse(&f, "neither an answer nor a question");
    f = rvi_feedback_new(RVI_FEEDBACK_THUMB);
    f.answer = text("a");
    f.score = 0.5;
    refuse(&f, "neither 0 nor 1");
    f = rvi_feedback_new(RVI_FEEDBACK_UNDO);
    refuse(&f, "no event is named");
    f = rvi_feedback_new(RVI_FEEDBACK_FORGET);
    refuse(&f, "the text is empty");
    f = rvi_feedback_new(RVI_FEEDBACK_PUBLISH);
    refuse(&f, "no generation");
    f.generation = 1;
    refuse(&f, "no events");
    f.first = 2;
    f.last = 1;
    refuse(&f, "events 2 to 1");
    f.last = (uint64_t)INT64_MAX + 1;
    refuse(&f, "last is above");
    f.last = 3;
    f.n_parents = RVI_FEEDBACK_MAX_PARENTS + 1;
    refuse(&f, "33 parents");
    f.n_parents = 0;
    memcpy(f.digest, "abc", 4);
    refuse(&f, "digest");
    f = rvi_feedback_new(RVI_FEEDBACK_IMPORT);
    f.generation = 1;
    refuse(&f, "no digest");
    f = rvi_feedback_new(RVI_FEEDBACK_MERGE);
    f.generation = 1;
    refuse(&f, "no parents");
    /* allowed one by one, but not all together: the text of a control character is six bytes */
    static char control[RVI_FEEDBACK_MAX_TEXT];
    memset(control, 1, sizeof control);
    f = correction();
    f.question = f.given = f.corrected = f.note = (rvi_text){control, sizeof control};
    refuse(&f, "a record of 15");
}

static bool same_text(rvi_text a, rvi_text b)
{
    return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

static bool same(const rvi_feedback *a, const rvi_feedback *b)
{
    return a->seq == b->seq && a->time == b->time && a->kind == b->kind &&
           same_text(a->user, b->user) && same_text(a->answer, b->answer) &&
           same_text(a->question, b->question) && same_text(a->given, b->given) &&
           same_text(a->corrected, b->corrected) && same_text(a->note, b->note) &&
           same_text(a->recipe, b->recipe) &&
           (a->score == b->score || (isnan(a->score) && isnan(b->score))) &&
           a->target == b->target && a->generation == b->generation && a->first == b->first &&
           a->last == b->last && a->seed == b->seed && a->n_parents == b->n_parents &&
           !memcmp(a->parents, b->parents, a->n_parents * sizeof *a->parents) &&
           !strcmp(a->digest, b->digest);
}

static rvi_feedback publish(void)
{
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_PUBLISH);
    f.time = 1700000000999;
    f.generation = 3;
    f.first = 1;
    f.last = 2;
    f.parents[0] = 1;
    f.parents[1] = 2;
    f.n_parents = 2;
    f.recipe = text("R7");
    f.seed = UINT64_MAX - 4;
    for (size_t i = 0; i + 1 < sizeof f.digest; i++) f.digest[i] = "0123456789abcdef"[i % 16];
    return f;
}

static void test_text_and_back(void **state)
{
    (void)state;
    rvi_feedback all[] = {correction(), publish(), rvi_feedback_new(RVI_FEEDBACK_ROLLBACK)};
    for (size_t i = 0; i < RVI_COUNT(all); i++) {
        rvi_buf b = {0};
        rvi_arena arena = {0};
        rvi_feedback back;
        all[i].seq = i + 1;
        assert_ok(rvi_feedback_write(&b, &all[i], err));
        assert_ok(rvi_feedback_parse(&back, b.data, b.len, &arena, err));
        assert_true(same(&all[i], &back));
        rvi_arena_deinit(&arena);
        rvi_buf_deinit(&b);
    }
    rvi_buf b = {0};
    assert_ok(rvi_feedback_write(&b, &all[1], err));
    assert_string_equal(
        b.data, "{\"v\":1,\"seq\":2,\"time\":1700000000999,\"kind\":\"publish\",\"recipe\":\"R7\","
                "\"generation\":3,\"first\":1,\"last\":2,\"seed\":-5,\"parents\":[1,2],\"digest\":"
                "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}");
    rvi_buf_deinit(&b);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"v\":2}",
        "{\"v\":1,\"seq\":-1}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"nothing\"}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"undo\",\"target\":1.5}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"undo\",\"target\":\"1\"}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"forget\",\"note\":7}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"forget\",\"note\":\"\"}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"rollback\",\"score\":\"x\"}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"rollback\",\"seed\":0.5}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"rollback\",\"parents\":7}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"rollback\",\"parents\":[-7]}",
        "{\"v\":1,\"seq\":1,\"time\":1,\"kind\":\"rollback\",\"digest\":\"00\"}",
    };
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        rvi_arena arena = {0};
        rvi_feedback f;
        rv_error why = {0};
        if (!rvi_feedback_parse(&f, bad[i], strlen(bad[i]), &arena, &why))
            fail_msg("accepted: %s", bad[i]);
        assert_true(why.text[0]);
        rvi_arena_deinit(&arena);
    }
}

typedef struct expected {
    const rvi_feedback *all;
    uint64_t n;
} expected;

static int compare_one(void *ctx, const rvi_feedback *f)
{
    expected *e = ctx;
    assert_true(same(f, &e->all[f->seq - 1]));
    e->n++;
    return 0;
}

static void test_append_and_read(void **state)
{
    (void)state;
    for (int which = 0; which < N_STORES; which++) {
        rvi_store s;
        rvi_feedback_report report;
        uint64_t n;
        assert_ok(store_new(&s, which, err));
        assert_ok(rvi_feedback_verify(&s, &report, err));
        assert_int_equal(report.broken, 0);
        rvi_feedback all[] = {correction(), correction(), publish(), correction()};
        all[1].time = 0; /* the log's clock */
        for (size_t i = 0; i < RVI_COUNT(all); i++) {
            assert_ok(rvi_feedback_append(&s, &all[i], err));
            assert_int_equal(all[i].seq, i + 1);
        }
        assert_true(all[1].time > 1700000000000);
        expected e = {all, 0};
        assert_ok(rvi_feedback_read(&s, 1, compare_one, &e, err));
        assert_int_equal(e.n, 4);
        assert_ok(rvi_feedback_read(&s, 3, compare_one, &e, err));
        assert_int_equal(e.n, 6);
        /* as a part of something larger that fails */
        rvi_feedback more = correction();
        assert_ok(rvi_store_begin(&s, true, err));
        assert_ok(rvi_feedback_append(&s, &more, err));
        assert_int_equal(rvi_store_end(&s, RV_E_LEARNING, NULL), RV_E_LEARNING);
        assert_ok(rvi_feedback_count(&s, &n, err));
        assert_int_equal(n, 4);
        assert_ok(rvi_feedback_verify(&s, &report, err));
        assert_int_equal(report.broken, 0);
        assert_int_equal(report.n_events, 4);
        rvi_store_close(&s);
    }
}

/* The chain is what its description says: computed here again from the texts alone. */
static int chain_one(void *ctx, uint64_t seq, rvi_bytes r)
{
    uint8_t *hash = ctx;
    rvi_sha256 h;
    (void)seq;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, hash, 32);
    rvi_sha256_add(&h, (const char *)r.data + 32, r.len - 32);
    rvi_sha256_end(&h, hash);
    assert_memory_equal(hash, r.data, 32);
    return 0;
}

static void fill(rvi_store *s, int n)
{
    for (int i = 0; i < n; i++) {
        rvi_feedback f = correction();
        f.time += i;
        assert_ok(rvi_feedback_append(s, &f, err));
    }
}

static void test_chain(void **state)
{
    (void)state;
    rvi_store s;
    uint8_t hash[32] = {0};
    rvi_feedback_report report;
    assert_ok(rvi_store_memory(&s, err));
    fill(&s, 5);
    assert_ok(rvi_store_read(&s, "feedback", 1, chain_one, hash, err));
    assert_ok(rvi_feedback_verify(&s, &report, err));
    assert_memory_equal(report.hash, hash, 32);
    rvi_store_close(&s);
}

typedef struct forgery {
    rvi_store *to;
    uint64_t record;
    int how; /* 0: nothing; 1: a byte of the text; 2: of the hash; 3: left out; 4: twice; 5:
                short */
} forgery;

static int copy_record(void *ctx, uint64_t seq, rvi_bytes r)
{
    forgery *g = ctx;
    char bytes[4096];
    size_t len = r.len;
    assert_true(len <= sizeof bytes);
    memcpy(bytes, r.data, len);
    int how = seq == g->record ? g->how : 0;
    if (how == 1) bytes[len - 10] ^= 1;
    if (how == 2) bytes[3] ^= 1;
    if (how == 5) len = 20;
    for (int i = 0; i < (how == 3 ? 0 : how == 4 ? 2 : 1); i++)
        assert_ok(rvi_store_append(g->to, "feedback", bytes, len, NULL, err));
    return 0;
}

static void test_broken(void **state)
{
    (void)state;
    enum { N = 6 };
    rvi_store s;
    char head[64];
    rvi_buf b = rvi_buf_over(head, sizeof head);
    bool found;
    assert_ok(rvi_store_memory(&s, err));
    fill(&s, N);
    assert_ok(rvi_store_get(&s, "feedback.head", "head", 4, &b, &found, err));
    for (int how = 0; how <= 5; how++)
        for (uint64_t record = 1; record <= N; record++) {
            rvi_store other;
            rvi_feedback_report report;
            assert_ok(rvi_store_memory(&other, err));
            forgery g = {.to = &other, .record = record, .how = how};
            assert_ok(rvi_store_read(&s, "feedback", 1, copy_record, &g, err));
            assert_ok(rvi_store_put(&other, "feedback.head", "head", 4, b.data, b.len, err));
            assert_ok(rvi_feedback_verify(&other, &report, err));
            uint64_t wanted = how == 0 ? 0 : how == 4 ? record + 1 : record;
            if (report.broken != wanted)
                fail_msg("how %d, record %d: broken %d (%s)", how, (int)record, (int)report.broken,
                         report.why);
            assert_int_equal(!report.why[0], !wanted);
            rvi_store_close(&other);
        }
    /* a log with more or fewer records than its head takes no more */
    rvi_feedback f = correction();
    rv_error why = {0};
    rvi_feedback_report report;
    assert_ok(rvi_store_append(&s, "feedback", "x", 1, NULL, err));
    assert_int_equal(rvi_feedback_append(&s, &f, &why), RV_E_STORAGE);
    assert_non_null(strstr(why.text, "its head says 6 events, there are 7"));
    assert_ok(rvi_feedback_verify(&s, &report, err));
    assert_int_equal(report.broken, 7);
    assert_ok(rvi_store_put(&s, "feedback.head", "head", 4, "short", 5, err));
    assert_int_equal(rvi_feedback_append(&s, &f, &why), RV_E_STORAGE);
    assert_int_equal(rvi_feedback_verify(&s, &report, &why), RV_E_STORAGE);
    rvi_store_close(&s);
}

static int count_one(void *ctx, const rvi_feedback *f)
{
    (void)f;
    ++*(int *)ctx;
    return 0;
}

static void test_unreadable(void **state)
{
    (void)state;
    rvi_store s;
    rv_error why = {0};
    int n = 0;
    assert_ok(rvi_store_memory(&s, err));
    fill(&s, 2);
    assert_ok(rvi_store_append(&s, "feedback", "x", 1, NULL, err));
    assert_int_equal(rvi_feedback_read(&s, 1, count_one, &n, &why), RV_E_STORAGE);
    assert_int_equal(n, 2);
    assert_non_null(strstr(why.text, "event 3"));
    rvi_store_close(&s);
}

static time_t clock_says; /* 0: the machine's own */

/* In the place of the C library's. */
int timespec_get(struct timespec *t, int base)
{
    (void)base;
    if (clock_gettime(CLOCK_REALTIME, t)) return 0;
    if (clock_says) t->tv_sec = clock_says;
    return base;
}

static int note_time(void *ctx, const rvi_feedback *f)
{
    *(int64_t *)ctx = f->time;
    return 0;
}

/* An event of a machine whose clock was never set can be read again. */
static void test_clock_before_1970(void **state)
{
    (void)state;
    rvi_store s;
    rvi_feedback_report report;
    rvi_feedback f = correction();
    int64_t time = -1;
    f.time = 0;
    assert_ok(rvi_store_memory(&s, err));
    clock_says = -86400;
    assert_ok(rvi_feedback_append(&s, &f, err));
    clock_says = 0;
    assert_ok(rvi_feedback_read(&s, 1, note_time, &time, err));
    assert_int_equal(time, 0);
    assert_ok(rvi_feedback_verify(&s, &report, err));
    assert_int_equal(report.broken, 0);
    rvi_store_close(&s);
}

/* The head is made again from the records, unless these are not whole. */
static void test_repair(void **state)
{
    (void)state;
    rvi_store s;
    uint64_t n;
    rv_error why;
    assert_ok(rvi_store_memory(&s, err));
    assert_ok(rvi_feedback_repair(&s, err)); /* of nothing */
    for (int i = 0; i < 3; i++) {
        rvi_feedback f = correction();
        assert_ok(rvi_feedback_append(&s, &f, err));
    }
    for (int lost = 0; lost < 2; lost++) {
        rvi_feedback f = correction();
        if (lost)
            assert_ok(rvi_store_remove(&s, "feedback.head", "head", 4, err));
        else
            assert_ok(rvi_store_put(&s, "feedback.head", "head", 4, "x", 1, err));
        assert_int_equal(rvi_feedback_append(&s, &f, &why), RV_E_STORAGE);
        assert_ok(rvi_feedback_repair(&s, err));
        assert_ok(rvi_feedback_append(&s, &f, err));
        assert_ok(rvi_feedback_count(&s, &n, err));
        assert_int_equal(n, 4 + lost);
    }
    assert_ok(
        rvi_store_append(&s, "feedback", "no event at all, and not of the chain", 37, &n, err));
    assert_ok(rvi_feedback_repair(&s, err));
    assert_ok(rvi_feedback_count(&s, &n, err));
    assert_int_equal(n, 5);
    rvi_store_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_text_and_back),
        cmocka_unit_test(test_bad_text),   cmocka_unit_test(test_append_and_read),
        cmocka_unit_test(test_chain),      cmocka_unit_test(test_broken),
        cmocka_unit_test(test_unreadable), cmocka_unit_test(test_clock_before_1970),
        cmocka_unit_test(test_repair),
    };
    return cmocka_run_group_tests_name("feedback log", tests, folder_make, folder_remove);
}
