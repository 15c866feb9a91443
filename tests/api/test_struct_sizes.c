/* Structs that begin with their size: those of older and newer programs are taken, a forgotten size
 * is an error that names it, and zero is the default of every field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "api/opened.h"
#include "ruvllm_service.h"
#include "ruvllm_store.h"

static const char *const model_path = "tests/gguf/llama.gguf";
static const int32_t prompt[] = {5, 9, 17, 33, 6};
enum { N_PROMPT = 5, N_NEW = 40 };

static opened o;

static int open_it(void **state)
{
    (void)state;
    open_all(&o, model_path, 1, 512);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

/* ---- every struct that has a size ---- */

static rv_status take_runtime(const void *given, rv_error *err)
{
    rv_runtime *rt;
    rv_status st = rv_runtime_new(&rt, given, err);
    rv_runtime_free(&rt);
    return st;
}

static rv_status take_open(const void *given, rv_error *err)
{
    rv_model *m;
    rv_status st = rv_model_open(&m, o.rt, model_path, given, err);
    rv_model_close(&m);
    return st;
}

static rv_status take_chat(const void *given, rv_error *err)
{
    char *text;
    rv_status st = rv_template_render(o.rt, "x", 1, given, &text, NULL, err);
    rv_free(text);
    return st;
}

static rv_status take_engine(const void *given, rv_error *err)
{
    rv_engine *e;
    rv_status st = rv_engine_new(&e, o.m, given, err);
    rv_engine_free(&e);
    return st;
}

static rv_status take_session(const void *given, rv_error *err)
{
    rv_session *s;
    rv_status st = rv_session_new(&s, o.m, given, err);
    rv_session_free(&s);
    return st;
}

static rv_status take_generate(const void *given, rv_error *err)
{
    rv_answer *a;
    rv_status st = rv_session_generate(o.s, prompt, N_PROMPT, given, &a, err);
    rv_free(a);
    return st;
}

static rv_status take_sampling(const void *given, rv_error *err)
{
    rv_sampler *s;
    rv_generate_options go = {.size = sizeof go, .sampling = given, .max_tokens = 1};
    rv_status st = rv_sampler_new(&s, o.m, given, err);
    rv_sampler_free(&s);
    assert_int_equal(take_generate(&go, NULL), st);
    return st;
}

static rv_status take_embed(const void *given, rv_error *err)
{
    rv_engine *e;
    float x[1024];
    if (rv_engine_new(&e, o.m, NULL, NULL)) return RV_E_NOMEM;
    rv_status st = rv_engine_embed(e, prompt, N_PROMPT, given, x, err);
    rv_engine_free(&e);
    return st;
}

static rv_status take_learner(const void *given, rv_error *err)
{
    rv_learner *l;
    rv_status st = rv_learner_new(&l, o.m, given, err);
    rv_learner_free(&l);
    return st;
}

static rv_status take_store(const void *given, rv_error *err)
{
    char path[] = "/tmp/ruvllm-sizes-XXXXXX", name[64];
    rv_store store;
    assert_non_null(mkdtemp(path));
    snprintf(name, sizeof name, "%s/log", path);
    rv_status st = rv_store_open(&store, name, given, err);
    rv_store_close(&store);
    unlink(name);
    assert_int_equal(rmdir(path), 0);
    return st;
}

static rv_status take_service(const void *given, rv_error *err)
{
    rv_service *s;
    rv_status st = rv_service_new(&s, o.m, given, err);
    rv_service_free(&s);
    return st;
}

static rv_status take_budget(const void *given, rv_error *err)
{
    return rv_runtime_set_budget(o.rt, given, err);
}

static rv_status take_models(const void *given, rv_error *err)
{
    rv_models *ms;
    rv_status st = rv_models_new(&ms, o.rt, given, err);
    rv_models_free(&ms);
    return st;
}

typedef struct sized {
    const char *name;
    rv_status (*take)(const void *given, rv_error *err);
    size_t size;
    size_t older; /* where a version might have ended; 0: there was none */
} sized;

static const sized structs[] = {
    {"rv_runtime_options", take_runtime, sizeof(rv_runtime_options),
     offsetof(rv_runtime_options, isa)},
    {"rv_open_options", take_open, sizeof(rv_open_options), offsetof(rv_open_options, progress)},
    {"rv_chat", take_chat, sizeof(rv_chat), offsetof(rv_chat, tools)},
    {"rv_engine_options", take_engine, sizeof(rv_engine_options),
     offsetof(rv_engine_options, max_logits)},
    {"rv_session_options", take_session, sizeof(rv_session_options),
     offsetof(rv_session_options, adapters)},
    {"rv_generate_options", take_generate, sizeof(rv_generate_options),
     offsetof(rv_generate_options, max_tokens)},
    {"rv_sampling", take_sampling, sizeof(rv_sampling), offsetof(rv_sampling, temperature) + 4},
    {"rv_embed_options", take_embed, sizeof(rv_embed_options), sizeof(size_t)},
    {"rv_learner_options", take_learner, sizeof(rv_learner_options),
     offsetof(rv_learner_options, seed)},
    {"rv_service_options", take_service, sizeof(rv_service_options),
     offsetof(rv_service_options, token_ms)},
    {"rv_models_options", take_models, sizeof(rv_models_options),
     offsetof(rv_models_options, idle)},
    {"rv_budget", take_budget, sizeof(rv_budget), offsetof(rv_budget, low)},
    {"rv_store_options", take_store, sizeof(rv_store_options), 0},
};

enum { MOST = 1024 };

/* size bytes of zeros that say `says`; behind them what nobody may read. */
static void make(unsigned char *out, size_t size, size_t says)
{
    memset(out, 0x5A, MOST);
    memset(out, 0, size);
    memcpy(out, &says, sizeof says);
}

static void sizes_of_other_versions(void **state)
{
    (void)state;
    _Alignas(16) unsigned char given[MOST];
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        const sized *x = &structs[i];
        rv_error e = {0};
        size_t good[] = {x->size, x->size + 64, x->older};
        for (size_t k = 0; k < 3; k++) {
            if (!good[k]) continue;
            make(given, good[k] < x->size ? good[k] : x->size, good[k]);
            rv_status st = x->take(given, &e);
            if (st) fail_msg("%s of %zu bytes: %s", x->name, good[k], e.text);
        }
        size_t bad[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            char says[64];
            make(given, x->size, bad[k]);
            e = (rv_error){0};
            rv_status st = x->take(given, &e);
            snprintf(says, sizeof says, "%s.size must be sizeof(%s)", x->name, x->name);
            if (st != RV_E_CONFIG || e.code != st || !strstr(e.text, says))
                fail_msg("%s of %zu bytes: %s '%s'", x->name, bad[k], rv_status_name(st), e.text);
        }
    }
}

/* A size that ends inside a pointer would cut it in two. */
static void sizes_inside_a_field(void **state)
{
    (void)state;
    rv_generate_options go = greedy(1);
    go.size = offsetof(rv_generate_options, stop) + 1;
    assert_refused(RV_E_CONFIG, take_generate(&go, err));
    rv_sampling sampling = {.size = sizeof sampling, .order = "temperature"};
    sampling.size = offsetof(rv_sampling, order) + sizeof(void *) / 2;
    assert_refused(RV_E_CONFIG, take_sampling(&sampling, err));
}

/* ---- zero is the default ---- */

typedef struct said {
    int32_t ids[N_NEW];
} said;

static said say(const rv_sampling *sampling)
{
    said out;
    rv_answer *a;
    rv_generate_options go = {
        .size = sizeof go, .sampling = sampling, .max_tokens = N_NEW, .ignore_eos = 1};
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(a->n_ids, N_NEW);
    memcpy(out.ids, a->ids, sizeof out.ids);
    rv_free(a);
    return out;
}

static bool equal(const rv_sampling *a, const rv_sampling *b)
{
    said x = say(a), y = say(b);
    return !memcmp(&x, &y, sizeof x);
}

/* with: what turns the stage on; value: the documented default; other: something else */
#define SAME(field, value, other, ...)                                                             \
    do {                                                                                           \
        bool differs_ = false;                                                                     \
        for (uint64_t seed_ = 1; seed_ <= 6; seed_++) {                                            \
            rv_sampling zero_ = {.size = sizeof zero_, .seed = seed_, __VA_ARGS__};                \
            rv_sampling said_ = zero_, other_ = zero_;                                             \
            said_.field = value;                                                                   \
            other_.field = other;                                                                  \
            assert_true(equal(&zero_, &said_));                                                    \
            differs_ = differs_ || !equal(&zero_, &other_);                                        \
        }                                                                                          \
        if (!differs_) fail_msg("%s changes nothing: this test shows nothing", #field);            \
    } while (0)

static void zero_sampling(void **state)
{
    (void)state;
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    SAME(temperature, 0.7f, 2.5f, .top_k = 0);
    SAME(top_p, 0.9f, 0.05f, .temperature = 1.5f);
    SAME(repetition_penalty, 1.1f, 3, .temperature = 1);
    SAME(repetition_window, 64, 1, .repetition_penalty = 3);
    SAME(typical_p, 1, 0.05f, .temperature = 1.5f);
    SAME(xtc_threshold, 0.1f, 0.001f, .xtc_probability = 1, .temperature = 2);
    SAME(dry_base, 1.75f, 100, .dry_multiplier = 0.02f, .repetition_penalty = 1,
         .temperature = 0.05f);
    SAME(dry_allowed_length, 2, 20, .dry_multiplier = 9, .repetition_penalty = 1,
         .temperature = 0.05f);
    SAME(mirostat_eta, 0.1f, 1, .mirostat_tau = 1);
    SAME(order, "penalties,dry,top_n_sigma,temperature,top_k,typical_p,top_p,min_p,xtc,mirostat",
         "temperature", .top_k = 3, .temperature = 2);
    rv_sampling zero = {.size = sizeof zero, .dry_multiplier = 4}, named = zero;
    named.dry_breakers = usual;
    named.n_dry_breakers = 4;
    assert_true(equal(&zero, &named));
    zero = (rv_sampling){.size = sizeof zero};
    assert_true(equal(&zero, NULL));
}

/* The most likely token, whatever else is set of what only narrows the choice. */
static void greedy_takes_the_most_likely(void **state)
{
    (void)state;
    const rv_logit_bias never = {prompt[0], -1000};
    rv_sampling plain = {.size = sizeof plain, .greedy = 1};
    rv_sampling full = {.size = sizeof full,
                        .seed = 9,
                        .greedy = 1,
                        .temperature = 3,
                        .top_p = 0.1f,
                        .min_p = 0.5f,
                        .top_k = 4};
    assert_true(equal(&plain, &full));
    plain.logit_bias = full.logit_bias = &never;
    plain.n_logit_bias = full.n_logit_bias = 1;
    assert_true(equal(&plain, &full));
    said first = say(&(rv_sampling){.size = sizeof plain, .greedy = 1});
    rv_logit_bias other = {first.ids[0], -1000};
    plain.logit_bias = &other;
    said second = say(&plain);
    assert_true(second.ids[0] != first.ids[0]);
}

static void zero_generate_options(void **state)
{
    (void)state;
    rv_generate_options go = {.size = sizeof go, .ignore_eos = 1};
    rv_answer *a, *b;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(a->n_ids, 256);
    assert_int_equal(a->finish, RV_FINISH_LENGTH);
    assert_null(a->chosen);
    assert_null(a->top);
    assert_int_equal(a->n_top, 0);
    go.max_tokens = 256;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &b, err));
    assert_memory_equal(a->ids, b->ids, 256 * sizeof *a->ids);
    rv_free(a);
    rv_free(b);
    go.max_tokens = RV_TO_CONTEXT_END;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(a->n_ids, 512 - N_PROMPT);
    rv_free(a);
    go.max_tokens = RV_NO_TOKENS;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(a->n_ids, 0);
    assert_int_equal(a->n_prompt, N_PROMPT);
    rv_free(a);
    go.max_tokens = 3;
    go.logprobs = 1;
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_non_null(a->chosen);
    assert_null(a->top);
    rv_free(a);
    go.logprobs = 0;
    go.top_logprobs = 2; /* implies them */
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_non_null(a->chosen);
    assert_non_null(a->top);
    assert_int_equal(a->n_top, 2);
    rv_free(a);
    /* an end token may come at once, with and without naming 0 */
    rv_logit_bias always = {rv_model_get_info(o.m)->eos[0], 1000};
    rv_sampling sampling = {.size = sizeof sampling, .logit_bias = &always, .n_logit_bias = 1};
    go = (rv_generate_options){.size = sizeof go, .sampling = &sampling};
    assert_ok(rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_int_equal(a->finish, RV_FINISH_EOS);
    assert_int_equal(a->n_ids, 1);
    rv_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_other_versions), cmocka_unit_test(sizes_inside_a_field),
        cmocka_unit_test(zero_sampling),           cmocka_unit_test(greedy_takes_the_most_likely),
        cmocka_unit_test(zero_generate_options),
    };
    return cmocka_run_group_tests_name("struct sizes", tests, open_it, close_it);
}
