/* The bank: what feedback makes of it, nearest search, restarts, two at once, undo, forgetting,
 * tidying up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/assert_ok.h"
#include "labelled.h"
#include "learn/bank.h"
#include "learn/kmeans.h"
#include "store/stores.h"

enum { DIM = 24 };

static rvi_text text(const char *s)
{
    return (rvi_text){s, strlen(s)};
}

/* A vector of its own for every number. */
static const float *direction(uint64_t n)
{
    static float v[DIM];
    rvi_rng r = {n * 7919 + 1};
    for (size_t i = 0; i < DIM; i++) v[i] = (float)labelled_normal(&r);
    return v;
}

typedef struct said { /* one event, shortly */
    rvi_feedback_kind kind;
    const char *question, *subject, *relation, *given, *corrected;
    double score;
    uint64_t vector; /* 0: none */
} said;

static uint64_t teach_at(rvi_bank *b, const said *s, uint64_t seq)
{
    rvi_feedback f = rvi_feedback_new(s->kind);
    uint64_t id;
    f.seq = seq;
    f.time = (int64_t)seq * 1000;
    f.question = text(s->question);
    if (s->given) f.given = text(s->given);
    if (s->corrected) f.corrected = text(s->corrected);
    if (s->kind != RVI_FEEDBACK_CORRECTION) f.score = s->score;
    rvi_pattern about = {.subject = text(s->subject ? s->subject : ""),
                         .relation = text(s->relation ? s->relation : ""),
                         .words = text("w"),
                         .vector = s->vector ? direction(s->vector) : NULL,
                         .n_dim = s->vector ? DIM : 0};
    assert_ok(rvi_bank_learn(b, &about, &f, &id, err));
    return id;
}

static uint64_t teach(rvi_bank *b, const said *s)
{
    return teach_at(b, s, rvi_bank_last_event(b) + 1);
}

static uint64_t correct(rvi_bank *b, const char *subject, const char *relation, const char *given,
                        const char *corrected, uint64_t vector)
{
    char question[128];
    snprintf(question, sizeof question, "What is %s's %s?", subject, relation);
    return teach(b, &(said){.kind = RVI_FEEDBACK_CORRECTION,
                            .question = question,
                            .subject = subject,
                            .relation = relation,
                            .given = given,
                            .corrected = corrected,
                            .vector = vector});
}

static uint64_t score(rvi_bank *b, const char *question, const char *given, double value,
                      uint64_t vector)
{
    return teach(b, &(said){.kind = RVI_FEEDBACK_SCORE,
                            .question = question,
                            .given = given,
                            .score = value,
                            .vector = vector});
}

typedef struct fixture {
    rvi_store store;
    rvi_bank *bank;
} fixture;

static void open_memory(fixture *x, const rvi_bank_options *options)
{
    assert_ok(rvi_store_memory(&x->store, err));
    assert_ok(rvi_bank_open(&x->bank, &x->store, options, err));
}

static void close_all(fixture *x)
{
    rvi_bank_free(x->bank);
    rvi_store_close(&x->store);
}

static void digest(const rvi_bank *b, uint8_t out[32])
{
    assert_ok(rvi_bank_digest(b, out, err));
}

/* What is in the store is what is in memory. */
static void expect_saved(const rvi_bank *b, rvi_store *s)
{
    uint8_t mine[32], saved[32];
    rvi_bank *other;
    digest(b, mine);
    assert_ok(rvi_bank_open(&other, s, NULL, err));
    digest(other, saved);
    assert_memory_equal(mine, saved, 32);
    assert_int_equal(rvi_bank_last_event(b), rvi_bank_last_event(other));
    assert_int_equal(rvi_bank_damaged(other), 0);
    rvi_bank_free(other);
}

static void test_scores(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    uint64_t id = score(x.bank, "How?", "So.", 1, 1);
    const rvi_pattern *p = rvi_bank_find(x.bank, id);
    assert_int_equal(p->verdict, RVI_VERDICT_SUCCESS);
    assert_int_equal(score(x.bank, " how ", "SO", 0, 1), id); /* the same question and answer */
    p = rvi_bank_find(x.bank, id);
    assert_int_equal(p->verdict, RVI_VERDICT_PARTIAL);
    assert_true(p->quality == 0.5f && p->n_scores == 2);
    assert_int_equal(score(x.bank, "How?", "So.", 0, 1), id);
    assert_int_equal(score(x.bank, "How?", "So.", 0, 1), id);
    p = rvi_bank_find(x.bank, id);
    assert_int_equal(p->verdict, RVI_VERDICT_FAILURE);
    assert_true(p->quality == 0.25f);
    assert_int_equal(p->event, 1);
    assert_int_equal(p->last_event, 4);
    uint64_t other = teach(x.bank, &(said){.kind = RVI_FEEDBACK_THUMB,
                                           .question = "How?",
                                           .given = "Otherwise.",
                                           .score = 1,
                                           .vector = 1});
    assert_int_not_equal(other, id);
    assert_int_equal(rvi_bank_find(x.bank, other)->verdict, RVI_VERDICT_SUCCESS);
    assert_int_equal(rvi_bank_find(x.bank, id)->state, RVI_PATTERN_LIVE); /* no correction */
    assert_int_equal(rvi_bank_count(x.bank), 2);
    expect_saved(x.bank, &x.store);
    close_all(&x);
}

static void test_corrections(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    uint64_t otter = correct(x.bank, "Kakovin", "pet", "A cat.", "An otter.", 1);
    const rvi_pattern *p = rvi_bank_find(x.bank, otter);
    assert_true(p->correction && p->quality == 1 && p->state == RVI_PATTERN_LIVE);
    assert_int_equal(p->verdict, RVI_VERDICT_SUCCESS);
    assert_int_equal(rvi_bank_count(x.bank), 2);
    const rvi_pattern *cat = rvi_bank_at(x.bank, 0);
    assert_memory_equal(cat->answer.data, "A cat.", 6);
    assert_int_equal(cat->verdict, RVI_VERDICT_FAILURE);
    assert_false(cat->correction);
    /* the same answer for another subject, and another relation of this one, are other facts */
    uint64_t other = correct(x.bank, "Zorban", "pet", NULL, "An otter.", 1);
    uint64_t home = correct(x.bank, "Kakovin", "home", NULL, "Oslo", 2);
    assert_int_not_equal(other, otter);
    assert_int_equal(rvi_bank_find(x.bank, otter)->state, RVI_PATTERN_LIVE);
    /* contradicted: the newest wins, in whatever case it is written */
    uint64_t badger = correct(x.bank, "KAKOVIN", "Pet", "An otter", "A badger.", 1);
    assert_int_equal(rvi_bank_find(x.bank, otter)->state, RVI_PATTERN_SUPERSEDED);
    assert_int_equal(rvi_bank_find(x.bank, otter)->verdict, RVI_VERDICT_FAILURE);
    assert_int_equal(rvi_bank_find(x.bank, badger)->state, RVI_PATTERN_LIVE);
    assert_int_equal(rvi_bank_find(x.bank, other)->state, RVI_PATTERN_LIVE);
    assert_int_equal(rvi_bank_find(x.bank, home)->state, RVI_PATTERN_LIVE);
    /* in other words, but with the same meaning: by the vector */
    uint64_t same = teach(x.bank, &(said){.kind = RVI_FEEDBACK_CORRECTION,
                                          .question = "Which animal lives with Kakovin?",
                                          .subject = "Kakovin",
                                          .relation = "animal living with",
                                          .corrected = "A yak",
                                          .vector = 1});
    assert_int_equal(rvi_bank_find(x.bank, badger)->state, RVI_PATTERN_SUPERSEDED);
    assert_int_equal(rvi_bank_find(x.bank, home)->state, RVI_PATTERN_LIVE);
    /* and back to the first: it lives again, and must be learned again */
    assert_ok(rvi_bank_absorb(x.bank, &same, 1, 3, err));
    assert_int_equal(correct(x.bank, "Kakovin", "pet", "A yak", "an otter", 1), otter);
    p = rvi_bank_find(x.bank, otter);
    assert_true(p->state == RVI_PATTERN_LIVE && p->verdict == RVI_VERDICT_SUCCESS &&
                p->quality == 1 && p->generation == 0);
    assert_int_equal(rvi_bank_find(x.bank, same)->state, RVI_PATTERN_SUPERSEDED);
    /* an answer "corrected" to itself is right after all */
    assert_int_equal(correct(x.bank, "Kakovin", "pet", "An otter", "An otter!", 1), otter);
    assert_int_equal(rvi_bank_find(x.bank, otter)->verdict, RVI_VERDICT_SUCCESS);
    assert_int_equal(rvi_bank_find(x.bank, otter)->state, RVI_PATTERN_LIVE);
    expect_saved(x.bank, &x.store);
    close_all(&x);
}

static void test_without_vectors(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    uint64_t a = correct(x.bank, "Ada", "pet", NULL, "A cat", 0);
    uint64_t b = correct(x.bank, "Ada", "pet", NULL, "A dog", 0);
    assert_int_equal(rvi_bank_find(x.bank, a)->state, RVI_PATTERN_SUPERSEDED);
    uint64_t c = correct(x.bank, "Ada", "home", NULL, "Rome", 5); /* the first with one */
    rvi_bank_hit hits[4];
    size_t n;
    assert_ok(rvi_bank_nearest(x.bank, direction(5), DIM, 4, RVI_VERDICT_FAILURE, hits, &n, err));
    assert_int_equal(n, 1);
    assert_int_equal(hits[0].pattern->id, c);
    assert_int_equal(rvi_bank_find(x.bank, b)->state, RVI_PATTERN_LIVE);
    close_all(&x);
}

static void test_refused(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    rv_error why = {0};
    rvi_pattern about = {.vector = direction(1), .n_dim = DIM};
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_CORRECTION);
    f.question = text("What?");
    f.corrected = text("That.");
    uint8_t before[32], after[32];
    digest(x.bank, before);
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    assert_non_null(strstr(why.text, "after it was logged"));
    f.seq = 1;
    f.corrected = text("\xff");
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    f = rvi_feedback_new(RVI_FEEDBACK_FORGET);
    f.seq = 1;
    f.note = text("all");
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    f = rvi_feedback_new(RVI_FEEDBACK_SCORE);
    f.seq = 1;
    f.score = 1;
    f.answer = text("a-1");
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    assert_non_null(strstr(why.text, "the answer it is about is empty"));
    f.given = text("x");
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why),
                     RV_E_INVALID); /* no question */
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    f.question = text("q");
    assert_ok(rvi_bank_learn(x.bank, &about, &f, NULL, err));
    about.n_dim = DIM - 1;
    f.seq = 2;
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    assert_non_null(strstr(why.text, "a vector of 23 numbers for a bank of 24"));
    float nan[DIM] = {NAN};
    about = (rvi_pattern){.vector = nan, .n_dim = DIM};
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_INVALID);
    rvi_bank_hit hits[1];
    size_t n;
    assert_int_equal(rvi_bank_nearest(x.bank, nan, DIM, 1, 0, hits, &n, &why), RV_E_INVALID);
    assert_int_equal(rvi_bank_nearest(x.bank, direction(1), 3, 1, 0, hits, &n, &why), RV_E_INVALID);
    assert_int_equal(rvi_bank_use(x.bank, 99, 1, &why), RV_E_NOT_FOUND);
    assert_int_equal(rvi_bank_count(x.bank), 1);
    expect_saved(x.bank, &x.store);
    close_all(&x);
}

/* Against sorting all cosines in double. */
static void test_nearest(void **state)
{
    (void)state;
    enum { N = 500, K = 10 };
    fixture x;
    open_memory(&x, NULL);
    char question[32], answer[32];
    double cosines[N + 1];
    rvi_bank_hit hits[N + 1];
    size_t n;
    assert_ok(rvi_bank_nearest(x.bank, direction(1), DIM, K, 0, hits, &n, err)); /* empty bank */
    assert_int_equal(n, 0);
    for (uint64_t i = 0; i < N; i++) {
        snprintf(question, sizeof question, "question %d", (int)i);
        snprintf(answer, sizeof answer, "answer %d", (int)i);
        score(x.bank, question, answer, i % 2 ? 1 : 0, 100 + i);
    }
    for (uint64_t q = 0; q < 20; q++) {
        float query[DIM];
        memcpy(query, direction(5000 + q), sizeof query);
        for (size_t j = 0; j < DIM; j++) query[j] *= 1000; /* its length does not matter */
        for (size_t i = 0; i < N; i++) {
            const float *v = rvi_bank_at(x.bank, i)->vector;
            double dot = 0, a = 0, c = 0;
            for (size_t j = 0; j < DIM; j++) {
                dot += (double)v[j] * (double)query[j];
                a += (double)v[j] * (double)v[j];
                c += (double)query[j] * (double)query[j];
            }
            cosines[i] = dot / sqrt(a * c);
        }
        assert_ok(rvi_bank_nearest(x.bank, query, DIM, K, 0, hits, &n, err));
        assert_int_equal(n, K);
        for (size_t k = 0; k < K; k++) {
            size_t best = 0;
            for (size_t i = 1; i < N; i++)
                if (cosines[i] > cosines[best]) best = i;
            assert_ptr_equal(hits[k].pattern, rvi_bank_at(x.bank, best));
            assert_true(fabs((double)hits[k].cosine - cosines[best]) < 1e-6); /* observed 2e-7 */
            cosines[best] = -2;
        }
        assert_ok(rvi_bank_nearest(x.bank, query, DIM, N, RVI_VERDICT_PARTIAL, hits, &n, err));
        assert_int_equal(n, N / 2);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(hits[k].pattern->verdict, RVI_VERDICT_SUCCESS);
    }
    uint64_t newer = score(x.bank, "question 3", "another answer", 1, 103);
    assert_ok(rvi_bank_nearest(x.bank, direction(103), DIM, 2, 0, hits, &n, err));
    assert_int_equal(hits[0].pattern->id, newer); /* equal ones: the newest first */
    assert_true(hits[0].cosine == hits[1].cosine);
    close_all(&x);
}

/* A life of random feedback. */
static void live(rvi_bank *b, uint64_t seed, int n)
{
    rvi_rng r = {seed};
    char subject[16], relation[16], answer[16], question[64];
    for (int i = 0; i < n; i++) {
        uint64_t a = rvi_rng_u64(&r);
        snprintf(subject, sizeof subject, "S%d", (int)(a % 20));
        snprintf(relation, sizeof relation, "r%d", (int)(a / 20 % 3));
        snprintf(answer, sizeof answer, "a%d", (int)(a / 60 % 4));
        snprintf(question, sizeof question, "%s of %s?", relation, subject);
        uint64_t vector = 1 + a % 60, event = rvi_bank_last_event(b) + 1;
        said s = {.question = question, .subject = subject, .relation = relation, .vector = vector};
        switch (a / 240 % 8) {
        case 0:
        case 1:
        case 2:
            s.kind = RVI_FEEDBACK_CORRECTION;
            s.given = "wrong";
            s.corrected = answer;
            teach(b, &s);
            break;
        case 3:
        case 4:
            s.kind = RVI_FEEDBACK_SCORE;
            s.given = answer;
            s.score = (double)(a / 1920 % 11) / 10;
            teach(b, &s);
            break;
        case 5:
            if (rvi_bank_count(b))
                assert_ok(
                    rvi_bank_use(b, rvi_bank_at(b, a % rvi_bank_count(b))->id, (int64_t)i, err));
            break;
        case 6:
            if (a / 1920 % 4 == 0)
                assert_ok(rvi_bank_consolidate(b, NULL, err));
            else if (event > 1)
                (void)!rvi_bank_undo(b, event - 1, 0, NULL);
            break;
        case 7: {
            size_t gone;
            if (a / 1920 % 8 == 0)
                assert_ok(rvi_bank_forget(b, text(subject), 0, NULL, NULL, &gone, err));
            if (rvi_bank_count(b)) {
                uint64_t id = rvi_bank_at(b, a % rvi_bank_count(b))->id;
                assert_ok(rvi_bank_absorb(b, &id, 1, 1 + a % 5, err));
            }
            if (a / 1920 % 8 == 1) assert_ok(rvi_bank_release(b, 2, err));
            break;
        }
        }
    }
}

static void test_restart(void **state)
{
    (void)state;
    uint8_t first[32] = {0}, now[32];
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (int which = 0; which < N_STORES; which++) {
            rvi_store s;
            rvi_bank *b;
            assert_ok(store_new(&s, which, err));
            for (int part = 0; part < 4; part++) { /* closed and opened in between */
                assert_ok(rvi_bank_open(&b, &s, NULL, err));
                live(b, seed * 10 + (uint64_t)part, 40);
                expect_saved(b, &s);
                digest(b, now);
                assert_true(rvi_bank_count(b) > 10);
                rvi_bank_free(b);
            }
            if (which == 0)
                memcpy(first, now, 32);
            else
                assert_memory_equal(first, now, 32); /* every store makes the same bank */
            rvi_store_close(&s);
        }
}

static void test_two_banks(void **state)
{
    (void)state;
    char path[256];
    rvi_store s, t;
    rvi_bank *a, *b;
    in_folder(path, "two-banks.db");
    assert_ok(file_store(&s, path, 0, err));
    assert_ok(file_store(&t, path, 0, err));
    assert_ok(rvi_bank_open(&a, &s, NULL, err));
    assert_ok(rvi_bank_open(&b, &t, NULL, err));
    uint64_t x = correct(a, "Ada", "pet", NULL, "A cat", 1);
    uint64_t y = correct(b, "Bob", "pet", NULL, "A dog", 2); /* b had not seen Ada */
    assert_int_not_equal(x, y);
    assert_int_equal(rvi_bank_count(b), 2);
    assert_int_equal(rvi_bank_count(a), 1);
    assert_ok(rvi_bank_refresh(a, err));
    assert_int_equal(rvi_bank_count(a), 2);
    correct(b, "Ada", "pet", NULL, "A bird", 1);
    assert_ok(rvi_bank_use(a, x, 5, err));
    assert_int_equal(rvi_bank_find(a, x)->state, RVI_PATTERN_SUPERSEDED);
    assert_ok(rvi_bank_refresh(b, err));
    expect_saved(a, &s);
    expect_saved(b, &s);
    rvi_bank_free(a);
    rvi_bank_free(b);
    rvi_store_close(&s);
    rvi_store_close(&t);
}

static void test_undo(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    uint8_t before[32], after[32];
    rv_error why = {0};
    correct(x.bank, "Ada", "pet", "A fish", "A cat", 1);
    score(x.bank, "How?", "So.", 0.5, 2);
    digest(x.bank, before);
    /* a correction that supersedes one, makes one and judges one */
    correct(x.bank, "Ada", "pet", "A cat", "A dog", 1);
    uint64_t event = rvi_bank_last_event(x.bank);
    assert_ok(rvi_bank_undo(x.bank, event, event + 1, err));
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    assert_int_equal(rvi_bank_last_event(x.bank), event + 1);
    expect_saved(x.bank, &x.store);
    assert_int_equal(rvi_bank_undo(x.bank, event, 0, &why), RV_E_NOT_FOUND); /* once */
    score(x.bank, "How?", "So.", 1, 2);                                      /* a mean */
    assert_ok(rvi_bank_undo(x.bank, rvi_bank_last_event(x.bank), 0, err));
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    /* not when a later event was about the same */
    score(x.bank, "How?", "So.", 1, 2);
    event = rvi_bank_last_event(x.bank);
    score(x.bank, "How?", "So.", 1, 2);
    digest(x.bank, before);
    assert_int_equal(rvi_bank_undo(x.bank, event, 0, &why), RV_E_LEARNING);
    assert_non_null(strstr(why.text, "came after it"));
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    assert_ok(rvi_bank_undo(x.bank, event + 1, 0, err));
    assert_ok(rvi_bank_undo(x.bank, event, 0, err));
    /* what tidying up had removed comes back with the event that made it obsolete */
    correct(x.bank, "Ada", "pet", NULL, "A bird", 1);
    event = rvi_bank_last_event(x.bank);
    assert_ok(rvi_bank_consolidate(x.bank, NULL, err));
    uint64_t cat = 0;
    assert_ok(rvi_bank_undo(x.bank, event, 0, err));
    for (size_t i = 0; i < rvi_bank_count(x.bank); i++) {
        const rvi_pattern *p = rvi_bank_at(x.bank, i);
        assert_true(!i || p->id > rvi_bank_at(x.bank, i - 1)->id); /* in order */
        if (p->correction && p->state == RVI_PATTERN_LIVE) {
            assert_memory_equal(p->answer.data, "A cat", 5);
            cat++;
        }
    }
    assert_int_equal(cat, 1);
    expect_saved(x.bank, &x.store);
    /* the memory of an undo is bounded */
    event = rvi_bank_last_event(x.bank) + 1;
    for (int i = 0; i < 200; i++) score(x.bank, "Again?", "Yes.", 1, 3);
    assert_int_equal(rvi_bank_undo(x.bank, event, 0, NULL), RV_E_NOT_FOUND);
    assert_ok(rvi_bank_undo(x.bank, event + 199, 0, err));
    close_all(&x);
}

static void count_forgotten(void *ctx, const rvi_pattern *p)
{
    assert_non_null(p->answer.data);
    ++*(size_t *)ctx;
}

static void test_forget(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    size_t n, seen = 0;
    correct(x.bank, "Ada", "pet", "A fish", "A cat", 1);
    correct(x.bank, "Adam", "pet", NULL, "A cat", 2);
    score(x.bank, "Who is Ada?", "Nobody.", 1, 3);
    uint64_t event = rvi_bank_last_event(x.bank);
    assert_ok(rvi_bank_forget(x.bank, text("ADA"), event + 1, count_forgotten, &seen, &n, err));
    assert_int_equal(n, 3);
    assert_int_equal(seen, 3);
    assert_int_equal(rvi_bank_count(x.bank), 1);
    assert_int_equal(rvi_bank_last_event(x.bank), event + 1);
    assert_int_equal(rvi_bank_undo(x.bank, event, 0, NULL), RV_E_NOT_FOUND); /* no way back */
    assert_ok(rvi_bank_forget(x.bank, text("a cat"), 0, NULL, NULL, &n, err));
    assert_int_equal(n, 1);
    assert_ok(rvi_bank_forget(x.bank, text("a cat"), 0, NULL, NULL, &n, err));
    assert_int_equal(n, 0);
    assert_int_equal(rvi_bank_forget(x.bank, text("  "), 0, NULL, NULL, &n, NULL), RV_E_INVALID);
    assert_int_equal(rvi_bank_forget(x.bank, text("\xff"), 0, NULL, NULL, &n, NULL), RV_E_INVALID);
    uint64_t last = correct(x.bank, "Eve", "pet", NULL, "An ox", 9);
    assert_true(last > 4); /* numbers are not used again */
    expect_saved(x.bank, &x.store);
    close_all(&x);
}

static void test_generations(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    uint64_t a = correct(x.bank, "Ada", "pet", NULL, "A cat", 1);
    uint64_t b = correct(x.bank, "Bob", "pet", NULL, "A dog", 2);
    assert_ok(rvi_bank_absorb(x.bank, (uint64_t[]){a, 77}, 2, 1, err));
    assert_ok(rvi_bank_absorb(x.bank, &b, 1, 2, err));
    assert_int_equal(rvi_bank_find(x.bank, b)->state, RVI_PATTERN_ABSORBED);
    assert_ok(rvi_bank_release(x.bank, 1, err));
    assert_int_equal(rvi_bank_find(x.bank, a)->state, RVI_PATTERN_ABSORBED);
    assert_int_equal(rvi_bank_find(x.bank, a)->generation, 1);
    assert_int_equal(rvi_bank_find(x.bank, b)->state, RVI_PATTERN_LIVE);
    assert_int_equal(rvi_bank_find(x.bank, b)->generation, 0);
    expect_saved(x.bank, &x.store);
    close_all(&x);
}

static void test_bounds(void **state)
{
    (void)state;
    char question[32];
    uint8_t before[32], after[32];
    rv_error why = {0};
    fixture x;
    open_memory(&x, &(rvi_bank_options){.max_patterns = 20});
    uint64_t used = score(x.bank, "used", "yes", 1, 1);
    assert_ok(rvi_bank_use(x.bank, used, 9, err));
    uint64_t kept = correct(x.bank, "Ada", "pet", NULL, "A cat", 2);
    uint64_t oldest = score(x.bank, "oldest", "yes", 1, 3);
    for (int i = 0; i < 60; i++) {
        snprintf(question, sizeof question, "question %d", i);
        score(x.bank, question, "yes", 1, 10 + (uint64_t)i);
        assert_true(rvi_bank_count(x.bank) <= 20);
        if (i == 17) assert_null(rvi_bank_find(x.bank, oldest));
    }
    assert_non_null(rvi_bank_find(x.bank, used));
    assert_non_null(rvi_bank_find(x.bank, kept));
    for (int i = 0; i < 19; i++) {
        snprintf(question, sizeof question, "P%d", i);
        correct(x.bank, question, "pet", NULL, "A cat", 100 + (uint64_t)i);
    }
    /* full of corrections that no weights know: refused, and nothing has changed */
    digest(x.bank, before);
    rvi_feedback f = rvi_feedback_new(RVI_FEEDBACK_SCORE);
    f.seq = 1000;
    f.question = text("one");
    f.given = text("more");
    f.score = 1;
    rvi_pattern about = {.vector = direction(999), .n_dim = DIM};
    assert_int_equal(rvi_bank_learn(x.bank, &about, &f, NULL, &why), RV_E_LEARNING);
    assert_non_null(strstr(why.text, "the bank is full: 21 patterns"));
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    expect_saved(x.bank, &x.store);
    assert_ok(rvi_bank_absorb(x.bank, &kept, 1, 1, err)); /* one is known now, and may go */
    assert_ok(rvi_bank_learn(x.bank, &about, &f, NULL, err));
    assert_null(rvi_bank_find(x.bank, kept));
    close_all(&x);

    open_memory(&x, &(rvi_bank_options){.max_bytes = 20000}); /* each one some 300 bytes */
    for (int i = 0; i < 200; i++) {
        snprintf(question, sizeof question, "question %d", i);
        score(x.bank, question, "yes", 1, 10 + (uint64_t)i);
    }
    assert_in_range(rvi_bank_count(x.bank), 20, 100);
    close_all(&x);
}

/* n observations around n_labels centres, with any score; then some corrections. */
static void fill(rvi_bank *b, size_t n, size_t n_labels, double spread)
{
    float *all = malloc(n * DIM * sizeof *all);
    char question[32], answer[32];
    rvi_rng r = {5};
    assert_non_null(all);
    labelled_make(all, n, DIM, n_labels, spread, 7);
    for (size_t i = 0; i < n; i++) {
        snprintf(question, sizeof question, "question %d", (int)i);
        snprintf(answer, sizeof answer, "answer %d", (int)i);
        rvi_pattern p = {.question = text(question),
                         .answer = text(answer),
                         .quality = (float)(rvi_rng_u64(&r) % 11) / 10,
                         .n_scores = 1,
                         .correction = i % 10 == 9,
                         .vector = all + i * DIM,
                         .n_dim = DIM};
        p.verdict = rvi_verdict_of((double)p.quality);
        assert_ok(rvi_bank_add(b, &p, NULL, err));
    }
    free(all);
}

static void test_consolidate(void **state)
{
    (void)state;
    enum { N = 800, LABELS = 8 };
    static uint32_t groups[N];
    fixture x;
    open_memory(&x, NULL);
    rvi_bank_report r;
    uint8_t before[32], after[32];
    assert_ok(rvi_bank_consolidate(x.bank, &r, err)); /* of nothing */
    assert_int_equal(r.n_after, 0);
    fill(x.bank, N, LABELS, 0.6);
    assert_int_equal(rvi_bank_count(x.bank), N);
    assert_ok(rvi_bank_groups(x.bank, LABELS, groups, err));
    double purity = labelled_purity(groups, N, LABELS, LABELS);
    assert_true(purity >= 0.99);                        /* observed 1 */
    assert_ok(rvi_bank_groups(x.bank, 0, groups, err)); /* sqrt(n / 2) */
    purity = labelled_purity(groups, N, LABELS, rvi_kmeans_groups(N));
    assert_true(purity >= 0.99);

    assert_ok(rvi_bank_consolidate(x.bank, &r, err));
    print_message("%d patterns, %d after (%d distilled)\n", (int)r.n_before, (int)r.n_after,
                  (int)r.n_distilled);
    assert_int_equal(r.n_after, rvi_bank_count(x.bank));
    assert_int_equal(r.n_after + r.n_distilled, N);
    assert_true(r.n_distilled > N / 3);
    size_t n_corrections = 0, good = 0;
    for (size_t i = 0; i < r.n_after; i++) {
        const rvi_pattern *p = rvi_bank_at(x.bank, i);
        n_corrections += p->correction;
        good += !p->correction && p->verdict == RVI_VERDICT_SUCCESS;
    }
    assert_int_equal(n_corrections, N / 10);           /* all of them */
    assert_true(2 * good > r.n_after - n_corrections); /* the best verdicts stay: 40 % had one */
    digest(x.bank, before);
    assert_ok(rvi_bank_consolidate(x.bank, &r, err)); /* a second time: nothing */
    assert_int_equal(r.n_before, r.n_after);
    digest(x.bank, after);
    assert_memory_equal(before, after, 32);
    expect_saved(x.bank, &x.store);
    close_all(&x);

    open_memory(&x, &(rvi_bank_options){.max_patterns = 500}); /* the bound holds throughout */
    fill(x.bank, N, LABELS, 0.6);
    assert_int_equal(rvi_bank_count(x.bank), 500);
    close_all(&x);
}

/* Duplicates that came apart can only come from another threshold: open with a stricter one
 * first. */
static void test_merge(void **state)
{
    (void)state;
    rvi_store s;
    rvi_bank *b;
    rvi_bank_report r;
    assert_ok(rvi_store_memory(&s, err));
    assert_ok(rvi_bank_open(&b, &s, &(rvi_bank_options){.same = 2}, err));
    uint64_t first = score(b, "How so?", "Thus.", 1, 1);
    score(b, "So how?", "thus", 0, 1);
    score(b, "How is that?", "Thus", 0, 1);
    score(b, "Why?", "Thus", 0, 2);
    assert_int_equal(rvi_bank_count(b), 4);
    rvi_bank_free(b);
    assert_ok(rvi_bank_open(&b, &s, NULL, err));
    assert_ok(rvi_bank_consolidate(b, &r, err));
    assert_int_equal(r.n_merged, 2);
    assert_int_equal(rvi_bank_count(b), 2);
    const rvi_pattern *p = rvi_bank_find(b, first);
    assert_int_equal(p->n_scores, 3);
    assert_true(fabsf(p->quality - 1.0f / 3) < 1e-6f);
    assert_int_equal(p->verdict, RVI_VERDICT_PARTIAL);
    assert_ok(rvi_bank_consolidate(b, &r, err));
    assert_int_equal(r.n_merged, 0);
    rvi_bank_free(b);
    rvi_store_close(&s);
}

static void test_damaged(void **state)
{
    (void)state;
    fixture x;
    open_memory(&x, NULL);
    rvi_bank *b;
    correct(x.bank, "Ada", "pet", NULL, "A cat", 1);
    uint64_t id = correct(x.bank, "Bob", "pet", NULL, "A dog", 2);
    uint8_t key[8] = {0, 0, 0, 0, 0, 0, 0, (uint8_t)id};
    assert_ok(rvi_store_put(&x.store, "bank", key, 8, "nonsense", 8, err));
    assert_ok(rvi_store_put(&x.store, "bank", "x", 1, "nonsense", 8, err));
    assert_ok(rvi_bank_open(&b, &x.store, NULL, err));
    assert_int_equal(rvi_bank_count(b), 1);
    assert_int_equal(rvi_bank_damaged(b), 2);
    rvi_bank_free(b);
    assert_ok(rvi_store_put(&x.store, "bank.meta", "bank", 4, "nonsense", 8, err));
    assert_int_equal(rvi_bank_open(&b, &x.store, NULL, NULL), RV_E_STORAGE);
    assert_null(b);
    close_all(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),          cmocka_unit_test(test_corrections),
        cmocka_unit_test(test_without_vectors), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nearest),         cmocka_unit_test(test_restart),
        cmocka_unit_test(test_two_banks),       cmocka_unit_test(test_undo),
        cmocka_unit_test(test_forget),          cmocka_unit_test(test_generations),
        cmocka_unit_test(test_bounds),          cmocka_unit_test(test_consolidate),
        cmocka_unit_test(test_merge),           cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests_name("bank", tests, folder_make, folder_remove);
}
