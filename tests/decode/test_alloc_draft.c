/* Every allocation of an answer with guesses on several ways, by its past and by a model, fails
 * once: an error, or the answer that comes without guesses; pages go back, and the session answers
 * again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/api.h"
#include "api/opened.h"
#include "harness/alloc_sweep.h"

enum { N_PROMPT = 48, N_NEW = 40, CONTEXT = 96, FEW = 4 };

static opened o;
static rv_session *guesser;
static int32_t prompt[N_PROMPT], expected[2][N_NEW];
static rv_logit_bias bias[1024];
static size_t n_bias;
static int n_right;

/* Four tokens alone may come, in every order, so that there are several ways and turns to them. */
static int open_it(void **state)
{
    (void)state;
    open_all(&o, "tests/gguf/llama.gguf", 1, CONTEXT);
    rv_session_options so = {.size = sizeof so, .n_context = CONTEXT};
    assert_ok(rv_session_new(&guesser, o.m, &so, err));
    for (int32_t id = 0; id < o.m->model->hp.n_vocab; id++)
        if (id < 20 || id >= 20 + 11 * FEW || (id - 20) % 11)
            bias[n_bias++] = (rv_logit_bias){id, -INFINITY};
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = 20 + 11 * ((i * i + i / 5) % FEW);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    rv_session_free(&guesser);
    close_all(&o);
    return 0;
}

/* which: 1, the most likely tokens, guessed by the same model; 0, the few, from the past. */
static rv_status generate(size_t which, bool guess, rv_answer **a, rv_error *err)
{
    rv_sampling few = {.size = sizeof few,
                       .seed = 5,
                       .temperature = 1.2f,
                       .repetition_penalty = 1,
                       .logit_bias = bias,
                       .n_logit_bias = n_bias};
    rv_generate_options go = greedy(N_NEW);
    if (!which) go.sampling = &few;
    go.draft = guess ? RV_DRAFT_NGRAM : RV_DRAFT_OFF;
    if (which && guess) go.draft_session = guesser;
    return rv_session_generate(o.s, prompt, N_PROMPT, &go, a, err);
}

static rv_status guessed(size_t which, rv_error *err)
{
    rv_answer *a = NULL;
    rv_status st = generate(which, true, &a, err);
    if (!st) {
        assert_int_equal(a->n_ids, N_NEW);
        assert_memory_equal(a->ids, expected[which], sizeof expected[which]);
        n_right = a->n_right;
    }
    rv_free(a);
    assert_int_equal(rvi_pages_in_use(o.s->e->e->pool),
                     (o.s->s->seq.len + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    assert_int_equal(o.s->s->n_ahead, 0);
    return st;
}

static void guesses(void **state)
{
    (void)state;
    for (size_t which = 0; which < 2; which++) {
        rv_answer *plain;
        assert_ok(generate(which, false, &plain, err));
        assert_int_equal(plain->n_ids, N_NEW);
        memcpy(expected[which], plain->ids, sizeof expected[which]);
        rv_free(plain);
        o.s->e->e->tries_all = true;
        assert_true(alloc_sweep(guessed, which, false) > 5);
        assert_true(alloc_sweep(guessed, which, true) > 5);
        print_message("%d guesses right\n", n_right);
        assert_true(n_right > (which ? 20 : 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(guesses)};
    return cmocka_run_group_tests(tests, open_it, close_it);
}
