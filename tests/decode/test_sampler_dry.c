/* DRY against its definition written out with nested loops, breakers from a tokenizer's texts, and
 * long pasts. (Against another implementation: test_sampler_vectors.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "decode/sampler_support.h"

enum { N = 12 };
static const float zeros[N];

static rv_sampling dry(float multiplier, float base, int allowed, int window)
{
    rv_sampling o = plain(1);
    o.dry_multiplier = multiplier;
    o.dry_base = base;
    o.dry_allowed_length = allowed;
    o.dry_window = window;
    return o;
}

/* What each token loses. */
static void by_definition(const rv_sampling *o, const uint8_t *breaks, const int32_t *past,
                          size_t n, double *penalty)
{
    int longest[N] = {0};
    if (o->dry_window && n > (size_t)o->dry_window) {
        past += n - (size_t)o->dry_window;
        n = (size_t)o->dry_window;
    }
    for (size_t end = 0; end + 1 < n; end++) {
        int len = 0;
        while ((size_t)len <= end && past[end - (size_t)len] == past[n - 1 - (size_t)len] &&
               !(breaks && breaks[past[n - 1 - (size_t)len]]))
            len++;
        int32_t next = past[end + 1];
        if (len > longest[next]) longest[next] = len;
    }
    for (int i = 0; i < N; i++)
        penalty[i] = longest[i] >= o->dry_allowed_length && !(breaks && breaks[i])
                         ? (double)o->dry_multiplier *
                               pow((double)o->dry_base, longest[i] - o->dry_allowed_length)
                         : 0;
}

static void check(rvi_sampler *s, const rv_sampling *o, const int32_t *past, size_t n,
                  size_t n_prompt)
{
    double penalty[N], total = 0;
    by_definition(o, s->breaks, past, n, penalty);
    pick_after(s, zeros, past, n, n_prompt);
    for (int i = 0; i < N; i++) total += exp(-penalty[i]);
    assert_int_equal(s->set.n, N);
    for (int i = 0; i < N; i++) {
        double p = (double)s->set.weights[i] / s->set.total, want = exp(-penalty[i]) / total;
        if (fabs(p - want) > 1e-6)
            fail_msg("a past of %zu: token %d has %g, not %g (penalty %g)", n, i, p, want,
                     penalty[i]);
        assert_int_equal(s->counts[i], 0);
    }
}

/* Pasts of few different tokens and of repeated phrases, so that matches are long, many and
 * overlapping; prompt and answer alike. */
static void random_pasts(void **state)
{
    (void)state;
    rvi_rng rng = {11};
    int32_t past[300];
    for (int round = 0; round < 4000; round++) {
        size_t n = rvi_rng_u64(&rng) % (round % 10 ? 40 : 300);
        uint64_t alphabet = 1 + rvi_rng_u64(&rng) % 4, copies = rvi_rng_u64(&rng) % 4;
        for (size_t i = 0; i < n; i++) {
            size_t back = 1 + rvi_rng_u64(&rng) % 12;
            past[i] = copies && i >= back && rvi_rng_u64(&rng) % 8
                          ? past[i - back]
                          : (int32_t)(rvi_rng_u64(&rng) % alphabet);
            if (copies == 3 && i >= 7 && rvi_rng_u64(&rng) % 16) past[i] = past[i - 7];
        }
        rv_sampling o =
            dry(0.2f, 1 + 0.02f * (float)(rvi_rng_u64(&rng) % 4), 1 + (int)(rvi_rng_u64(&rng) % 4),
                round % 3 ? 0 : 1 + (int)(rvi_rng_u64(&rng) % 50));
        rvi_sampler *s = sampler(&o, N);
        if (round % 4 == 1) {
            s->breaks = rvi_zalloc_array(N, sizeof *s->breaks);
            assert_non_null(s->breaks);
            s->breaks[rvi_rng_u64(&rng) % (alphabet + 1)] = 1;
        }
        check(s, &o, past, n, n ? rvi_rng_u64(&rng) % n : 0);
        rvi_sampler_free(s);
    }
}

/* By hand: "a b c x a b" continues with c after a match of 2, and "b" alone would be a match of
 * 1. */
static void by_hand(void **state)
{
    (void)state;
    static const int32_t past[] = {0, 1, 2, 3, 0, 1};
    rv_sampling o = dry(0.5f, 2, 1, 0);
    o.temperature = 0;
    float l[N] = {0};
    rvi_sampler *s = sampler(&o, N);
    l[2] = 1.1f; /* loses 0.5 * 2^(2 - 1) = 1 */
    l[5] = 0.05f;
    assert_int_equal(pick_after(s, l, past, 6, 6), 2);
    l[5] = 0.15f;
    assert_int_equal(pick_after(s, l, past, 6, 6), 5);
    assert_int_equal(pick_after(s, l, past, 6, 0), 5); /* whose tokens they are plays no part */
    assert_int_equal(pick_after(s, l, past, 5, 0), 2); /* after "a", "b" loses, not c */
    rvi_sampler_free(s);
}

/* Matches beyond RVI_DRY_LONGEST count as that long, over a past of any length. */
static void long_pasts(void **state)
{
    (void)state;
    enum { LONG = 100000 };
    int32_t *past = malloc(LONG * sizeof *past);
    assert_non_null(past);
    for (int i = 0; i < LONG; i++) past[i] = 4;
    rv_sampling o = dry(0.1f, 1.0005f, 2, 0);
    rvi_sampler *s = sampler(&o, N);
    pick_after(s, zeros, past, LONG, 0);
    double penalty = 0.1 * pow((double)1.0005f, RVI_DRY_LONGEST - 2), w = exp(-penalty);
    assert_true(fabs((double)s->set.weights[4] / s->set.total - w / (N - 1 + w)) < 1e-6);

    for (int i = 0; i < LONG; i++) past[i] = i % 7; /* i - 7 repeats: the next is LONG % 7 */
    pick_after(s, zeros, past, LONG, 0);
    for (int i = 0; i < N; i++) {
        double want = (i == LONG % 7 ? w : 1) / (N - 1 + w);
        assert_true(fabs((double)s->set.weights[i] / s->set.total - want) < 1e-6);
    }
    /* two phrases in turn: matches are cut short again and again */
    for (int i = 0; i < LONG; i++) past[i] = i % 2500 == 0 ? 8 + (i / 2500) % 2 : i % 3;
    rvi_sampler_free(s);
    check(s = sampler(&o, N), &o, past, 6000, 0);
    rvi_sampler_free(s);
    free(past);
}

/* ---- breakers ---- */

static char json[] = /* ' stands for "; U+010A is the newline, U+0120 the space of byte-level BPE */
    "{'added_tokens':[{'id':10,'content':'<end:of>','special':true}],"
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},'decoder':{'type':'ByteLevel'},"
    "'model':{'type':'BPE','vocab':{'a':0,'b':1,'\xC4\x8A':2,'x:':3,'\\u0022':4,'**':5,'\xC4\xA0"
    "c':6,'ab\xC4\x8A\xC4\x8A':7,'no':8,'stop':9},'merges':[]}}";

static rvi_tokenizer *tokenizer(void)
{
    rvi_tokenizer *t = NULL;
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    rvi_tokenizer_files files = {.tokenizer = json, .tokenizer_len = sizeof json - 1};
    assert_ok(rvi_tokenizer_from_json(&t, &files, NULL, err));
    return t;
}

static void check_breakers(const rvi_tokenizer *t, const char *const *list, size_t n,
                           const char *want)
{
    rv_sampling o = dry(1, 2, 1, 0);
    rvi_sampler *s = NULL;
    o.dry_breakers = list;
    o.n_dry_breakers = n;
    assert_ok(rvi_sampler_new(&s, &o, N, t, err));
    for (int i = 0; i < N; i++)
        if ((s->breaks && s->breaks[i]) != (want[i] == 'x'))
            fail_msg("token %d: %d, not %c", i, s->breaks && s->breaks[i], want[i]);
    rvi_sampler_free(s);
}

static void breakers_are_found_by_text(void **state)
{
    (void)state;
    rvi_tokenizer *t = tokenizer();
    check_breakers(t, NULL, 0, "..xxxx.x..x."); /* newline : " * anywhere in the text */
    check_breakers(t, (const char *const[]){"o"}, 1, "........xxx.");
    check_breakers(t, (const char *const[]){" c", "stop it"}, 2, "......x.....");
    check_breakers(t, (const char *const[]){"x"}, 0, "............"); /* an empty list */
    check_breakers(NULL, (const char *const[]){"x"}, 1, "............");
    rv_sampling o = plain(1); /* DRY is off: nothing is looked up */
    rvi_sampler *s = NULL;
    assert_ok(rvi_sampler_new(&s, &o, N, t, err));
    assert_null(s->breaks);
    rvi_sampler_free(s);

    o = dry(5, 2, 1, 0);
    o.temperature = 0;
    float l[N] = {[1] = 1, [3] = 1.5f};
    assert_ok(rvi_sampler_new(&s, &o, N, t, err));
    assert_int_equal(pick_after(s, l, (int32_t[]){0, 1, 0}, 3, 0), 3);
    assert_int_equal(pick_after(s, l, (int32_t[]){0, 3, 0}, 3, 0), 3); /* a breaker loses nothing */
    l[1] = 2;
    assert_int_equal(pick_after(s, l, (int32_t[]){0, 1, 0}, 3, 0), 3);
    assert_int_equal(pick_after(s, l, (int32_t[]){2, 1, 2}, 3, 0),
                     1); /* nor does what follows one */
    rvi_sampler_free(s);
    rvi_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(random_pasts),
        cmocka_unit_test(long_pasts),
        cmocka_unit_test(breakers_are_found_by_text),
    };
    return cmocka_run_group_tests_name("sampler_dry", tests, NULL, NULL);
}
