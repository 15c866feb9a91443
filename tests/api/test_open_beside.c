/* Models are opened and closed while another thread generates on the same runtime: both get what
 * they get alone, bit for bit. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/opened.h"

static const char *const served = "tests/gguf/llama-spm.gguf";
static const char *const others[] = {"tests/gguf/q-q4_k.gguf", "tests/gguf/q-f16.gguf",
                                     "tests/gguf/q-q8_0.gguf"};
static const int32_t prompt[] = {1, 270, 280, 290, 300, 310, 265, 271};
enum { N_PROMPT = 8, N_NEW = 24, N_OTHERS = 3, N_OPENS = 12, MAX_VOCAB = 1024 };

typedef struct opener {
    rv_runtime *rt;
    const char *path;
    atomic_int *n_left; /* openers at work */
    rv_model *last;     /* of those opened, the one that stays */
    rv_status status;
    rv_error error;
} opener;

static void *open_often(void *arg)
{
    opener *o = arg;
    for (int i = 0; i < N_OPENS && !o->status; i++) {
        rv_model_close(&o->last);
        o->status = rv_model_open(&o->last, o->rt, o->path, NULL, &o->error);
    }
    atomic_fetch_sub(o->n_left, 1);
    return NULL;
}

static void generate(rv_session *s, int32_t ids[N_NEW], float probs[N_NEW])
{
    rv_generate_options o = greedy(N_NEW);
    rv_answer *g = NULL;
    o.logprobs = 1;
    assert_ok(rv_session_generate(s, prompt, N_PROMPT, &o, &g, err));
    assert_int_equal(g->n_ids, N_NEW);
    for (int i = 0; i < N_NEW; i++) {
        ids[i] = g->ids[i];
        probs[i] = g->chosen[i].logprob;
    }
    rv_free(g);
}

static int first_logits(const rv_model *m, float out[MAX_VOCAB])
{
    rv_session_options so;
    rv_session *s;
    const rv_model_info info = *rv_model_get_info(m);
    float *logits;
    static const int32_t ids[] = {1, 2, 3};
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 64;
    assert_ok(rv_session_new(&s, m, &so, err));
    assert_in_range(info.n_vocab, 1, MAX_VOCAB);
    assert_ok(rv_session_sync(s, ids, 3, NULL, &logits, err));
    memcpy(out, logits, (size_t)info.n_vocab * sizeof *logits);
    rv_session_free(&s);
    return info.n_vocab;
}

static void both_get_their_bits(void **state)
{
    (void)state;
    opened alone, o;
    int32_t want_ids[N_NEW], ids[N_NEW];
    float want_probs[N_NEW], probs[N_NEW], want[MAX_VOCAB], got[MAX_VOCAB];
    opener op[N_OTHERS];
    pthread_t threads[N_OTHERS];
    atomic_int n_left = N_OTHERS;
    open_all(&alone, served, 2, 64);
    generate(alone.s, want_ids, want_probs);

    open_all(&o, served, 2, 64);
    for (int i = 0; i < N_OTHERS; i++) {
        op[i] = (opener){.rt = o.rt, .path = others[i], .n_left = &n_left};
        assert_int_equal(pthread_create(&threads[i], NULL, open_often, &op[i]), 0);
    }
    int rounds = 0;
    for (; rounds < 3 || atomic_load(&n_left); rounds++) { /* as long as models are opened */
        const int32_t none = 5;
        generate(o.s, ids, probs);
        assert_memory_equal(ids, want_ids, sizeof ids);
        assert_memory_equal(probs, want_probs, sizeof probs);
        assert_ok(rv_session_sync(o.s, &none, 1, NULL, NULL, err)); /* all of it again */
    }
    for (int i = 0; i < N_OTHERS; i++) {
        rv_model *m;
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (op[i].status) fail_msg("%s: %s", others[i], op[i].error.text);
        assert_ok(rv_model_open(&m, alone.rt, others[i], 0, err));
        int n = first_logits(m, want);
        assert_int_equal(first_logits(op[i].last, got), n);
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
        rv_model_close(&m);
        rv_model_close(&op[i].last);
    }
    close_all(&o);
    close_all(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_get_their_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
