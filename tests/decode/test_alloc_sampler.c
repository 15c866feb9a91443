/* A pick allocates nothing, and every allocation of making a sampler, refused in turn, is
 * RV_E_NOMEM without a leak (which a sanitizer sees). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "decode/sampler_support.h"
#include "harness/fail_alloc.h"

enum { N = 500, PAST = 300 };

static char json[] = "{'decoder':{'type':'ByteLevel'},'model':{'type':'BPE','vocab':{'a':0,'b:':1,"
                     "'cc':2},'merges':[]}}";
static rvi_tokenizer *words;
static const rv_logit_bias bias[] = {{3, 1}, {4, -INFINITY}, {5, 0.5f}};

/* Everything at once. */
static rv_sampling all_stages(void)
{
    rv_sampling o;
    rvi_sampling_init(&o, sizeof o, false);
    o.frequency_penalty = 0.1f;
    o.dry_multiplier = 0.8f;
    o.top_n_sigma = 2;
    o.top_k = 200;
    o.typical_p = 0.99f;
    o.min_p = 0.001f;
    o.xtc_probability = 0.5f;
    o.mirostat_tau = 5;
    o.logit_bias = bias;
    o.n_logit_bias = RVI_COUNT(bias);
    return o;
}

static void pick_quietly(const rv_sampling *o)
{
    rvi_sampler *s = NULL;
    int32_t past[PAST];
    float l[N];
    rvi_rng rng = {1};
    assert_ok(rvi_sampler_new(&s, o, N, words, err));
    for (int i = 0; i < PAST; i++) past[i] = (int32_t)(rvi_rng_u64(&rng) % 5);
    for (size_t n = 0; n < PAST; n++) {
        int32_t id;
        rv_error err;
        for (int i = 0; i < N; i++) l[i] = (float)(8 * rvi_rng_double(&rng));
        if (n % 7 == 0) l[n] = -INFINITY;
        if (n % 50 == 49) l[n] = NAN; /* failing allocates nothing either */
        fail_alloc_after(0);
        rv_status st = rvi_sampler_pick(s, l, past, n, n / 2, &id, &err);
        long calls = fail_alloc_count();
        assert_false(fail_alloc_off());
        assert_int_equal(calls, 0);
        assert_int_equal(st, n % 50 == 49 ? RV_E_GENERATION : RV_OK);
    }
    rvi_sampler_free(s);
}

static void a_pick_allocates_nothing(void **state)
{
    (void)state;
    rv_sampling o = all_stages();
    pick_quietly(&o);
    o.order = "mirostat,xtc,min_p,top_p,typical_p,top_k,temperature,top_n_sigma,dry,penalties";
    pick_quietly(&o);
    o.temperature = 0;
    pick_quietly(&o);
    rvi_sampling_init(&o, sizeof o, false);
    pick_quietly(&o);
    rvi_sampling_init(&o, sizeof o, true);
    pick_quietly(&o);
}

static void every_allocation_can_fail(void **state)
{
    (void)state;
    rv_sampling o = all_stages();
    long n = 0;
    for (;; n++) {
        rvi_sampler *s;
        rv_error err = {0};
        fail_alloc_after(n);
        rv_status st = rvi_sampler_new(&s, &o, N, words, &err);
        bool done = !fail_alloc_off();
        assert_int_equal(st, done ? RV_OK : RV_E_NOMEM);
        assert_int_equal(s != NULL, done);
        rvi_sampler_free(s);
        if (done) break;
    }
    assert_true(n >= 9);
}

static int start(void **state)
{
    (void)state;
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    rvi_tokenizer_files files = {.tokenizer = json, .tokenizer_len = sizeof json - 1};
    assert_ok(rvi_tokenizer_from_json(&words, &files, NULL, err));
    return 0;
}

static int end(void **state)
{
    (void)state;
    rvi_tokenizer_free(words);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pick_allocates_nothing),
        cmocka_unit_test(every_allocation_can_fail),
    };
    return cmocka_run_group_tests_name("alloc_sampler", tests, start, end);
}
