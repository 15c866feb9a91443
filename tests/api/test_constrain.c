/* Answers under a grammar: they are of its form, tokens that must come change nothing but the
 * number of steps, and each is what it is alone. */
#include <math.h>

#include "ruvllm_grammar.h"
#include "scheduler/served.h"

/* every kind of vocabulary that answers come from */
static const char *const models[] = {"tests/gguf/llama-spm.gguf", "tests/gguf/llama.gguf",
                                     "tests/gguf/qwen2.gguf",     "tests/gguf/mistral.gguf",
                                     "tests/gguf/phi3.gguf",      "tests/gguf/gemma2.gguf"};
static const int32_t prompt[] = {5, 9, 17, 33, 6, 70, 71};
enum { N_PROMPT = 7, N_CONTEXT = 192 };

static const char fixed[] = /* most of its text must come as it is */
    "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"value\",\"other\"]},\"state\":{"
    "\"const\":\"the letters\"}},\"required\":[\"name\",\"state\"],\"additionalProperties\":false}";

static opened o;

static int open_first(void **state)
{
    (void)state;
    open_all(&o, models[0], 2, N_CONTEXT);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    close_all(&o);
    return 0;
}

static rv_grammar *grammar(const rv_model *m, rv_grammar_kind kind, const char *text)
{
    rv_grammar *g;
    rv_grammar_options go = {.size = sizeof go, .max_blanks = -1, .canonical = 1};
    assert_ok(rv_grammar_new(&g, m, kind, text, strlen(text), &go, err));
    return g;
}

static rv_sampling sampling(int seed)
{
    return (rv_sampling){.size = sizeof(rv_sampling),
                         .seed = (uint64_t)seed,
                         .temperature = 1,
                         .top_p = 1,
                         .repetition_penalty = 1};
}

static rv_generate_options under(rv_grammar *g, const rv_sampling *s)
{
    return (rv_generate_options){
        .size = sizeof(rv_generate_options), .sampling = s, .max_tokens = 120, .grammar = g};
}

static rv_answer *answer(rv_session *s, const rv_generate_options *go)
{
    rv_answer *a;
    assert_ok(rv_session_generate(s, prompt, N_PROMPT, go, &a, err));
    return a;
}

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcmp(*list, text) != 0) list++;
    return *list;
}

static void texts_have_the_form(void **state)
{
    static const struct {
        rv_grammar_kind kind;
        const char *source;
        const char *texts[5]; /* all there are */
    } cases[] = {
        {RV_GRAMMAR_CHOICES, "[\"yes\",\"no\",\" perhaps\",\"n\"]", {"yes", "no", " perhaps", "n"}},
        {RV_GRAMMAR_REGEX,
         "a(b|c) ?\xC3\xA9",
         {"ab\xC3\xA9", "ac\xC3\xA9", "ab \xC3\xA9", "ac \xC3\xA9"}},
        {RV_GRAMMAR_GBNF, "root ::= \" \" (\"up\" | \"down\")", {" up", " down"}},
        {RV_GRAMMAR_SCHEMA,
         fixed,
         {"{\"name\":\"value\",\"state\":\"the letters\"}",
          "{\"name\":\"other\",\"state\":\"the letters\"}",
          "{\"state\":\"the letters\",\"name\":\"value\"}",
          "{\"state\":\"the letters\",\"name\":\"other\"}"}},
    };
    (void)state;
    for (size_t i = 0; i < RVI_COUNT(models); i++) {
        opened with;
        open_all(&with, models[i], 1, N_CONTEXT);
        for (size_t k = 0; k < RVI_COUNT(cases); k++) {
            rv_grammar *g = grammar(with.m, cases[k].kind, cases[k].source);
            for (int seed = 0; seed < 6; seed++) {
                rv_sampling how = sampling(seed);
                rv_generate_options o1 = under(g, &how);
                o1.ignore_eos = seed & 1;
                o1.min_tokens = 100 * (seed >> 1 & 1);
                rv_answer *a = answer(with.s, &o1);
                assert_int_equal(a->finish, RV_FINISH_EOS);
                if (!is_one_of(a->text, cases[k].texts))
                    fail_msg("%s: '%s'", cases[k].source, a->text);
                rv_free(a);
            }
            rv_grammar_free(&g);
        }
        close_all(&with);
    }
}

/* Steps until the answer has ended. */
static rv_answer *count_steps(const rv_generate_options *go, int *n)
{
    rv_answer *a;
    size_t running = 1;
    assert_ok(rv_session_start(o.s, prompt, N_PROMPT, go, err));
    for (*n = 0; running; ++*n) assert_ok(rv_engine_advance(rv_session_engine(o.s), &running, err));
    assert_ok(rv_session_finish(o.s, &a, err));
    return a;
}

/* With logprobs and without guesses every token has a step of its own. */
static void forced_tokens_save_steps_only(void **state)
{
    (void)state;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_SCHEMA, fixed);
    for (int seed = 0; seed < 8; seed++) {
        int n_jumped, n_slow;
        rv_sampling how = sampling(seed);
        rv_generate_options fast = under(g, &how), slow = fast;
        slow.logprobs = 1;
        slow.draft = RV_DRAFT_OFF;
        rv_answer *jumped = count_steps(&fast, &n_jumped), *walked = count_steps(&slow, &n_slow);
        assert_string_equal(jumped->text, walked->text);
        assert_int_equal(jumped->n_ids, walked->n_ids);
        assert_memory_equal(jumped->ids, walked->ids, jumped->n_ids * sizeof *jumped->ids);
        assert_int_equal(n_slow, walked->n_ids);
        assert_true(n_jumped * 2 < n_slow);
        for (size_t i = 0; i < walked->n_ids; i++) {
            assert_int_equal(walked->chosen[i].id, walked->ids[i]);
            assert_true(walked->chosen[i].logprob < 0);
        }
        rv_free(jumped);
        rv_free(walked);
    }
    rv_grammar_free(&g);
}

/* Not of what the grammar leaves of it. */
static void logprobs_are_of_the_models_own_distribution(void **state)
{
    (void)state;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_REGEX, "[ab]{6}(c|d){6}");
    rv_sampling how = sampling(4);
    rv_generate_options go = under(g, &how);
    go.logprobs = 1;
    go.top_logprobs = 2;
    rv_answer *a = answer(o.s, &go);
    int32_t ids[N_PROMPT + 32];
    float log_p[N_PROMPT + 32];
    size_t n = N_PROMPT + a->n_ids;
    assert_true(a->n_ids >= 2 && a->n_ids <= 32 && a->n_top == 2);
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + N_PROMPT, a->ids, a->n_ids * sizeof *ids);
    assert_ok(rv_engine_score(rv_session_engine(o.s), ids, n, NULL, log_p, err));
    for (size_t i = 0; i < a->n_ids; i++) {
        assert_float_equal(a->chosen[i].logprob, log_p[N_PROMPT + i - 1], 1e-5);
        assert_true(a->top[2 * i].logprob >= a->chosen[i].logprob);
    }
    rv_free(a);
    rv_grammar_free(&g);
}

static void many_at_once_are_as_alone(void **state)
{
    enum { N = 6 };
    (void)state;
    rv_grammar *g[2] = {grammar(o.m, RV_GRAMMAR_SCHEMA, fixed),
                        grammar(o.m, RV_GRAMMAR_REGEX, "([a-c]+ ){3}[0-9]{2,6}")};
    rv_engine_options eo = {.size = sizeof eo, .n_tokens = N * N_CONTEXT, .max_rows = 20};
    rv_engine *e;
    rv_session *s[N];
    rv_sampling how[N];
    rv_generate_options go[N];
    size_t running = 1;
    assert_ok(rv_engine_new(&e, o.m, &eo, err));
    for (int i = 0; i < N; i++) {
        rv_session_options so = {.size = sizeof so, .engine = e, .n_context = N_CONTEXT};
        how[i] = sampling(i);
        go[i] = under(i == 5 ? NULL : g[i % 2], &how[i]);
        go[i].logprobs = i == 2;
        if (i == 5) go[i].max_tokens = 30;
        assert_ok(rv_session_new(&s[i], o.m, &so, err));
        assert_ok(rv_session_start(s[i], prompt, N_PROMPT, &go[i], err));
    }
    while (running) assert_ok(rv_engine_advance(e, &running, err));
    for (int i = 0; i < N; i++) {
        rv_answer *a, *alone = answer(o.s, &go[i]);
        assert_ok(rv_session_finish(s[i], &a, err));
        assert_string_equal(a->text, alone->text);
        assert_int_equal(a->n_ids, alone->n_ids);
        assert_memory_equal(a->ids, alone->ids, a->n_ids * sizeof *a->ids);
        assert_int_equal(a->finish, alone->finish);
        rv_free(a);
        rv_free(alone);
        rv_session_free(&s[i]);
    }
    rv_engine_free(&e);
    rv_grammar_free(&g[0]);
    rv_grammar_free(&g[1]);
}

static void a_cut_answer_goes_on_in_a_fork(void **state)
{
    (void)state;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_REGEX, "[ab]{10}-[cd]{10}");
    rv_sampling how = sampling(3);
    rv_generate_options go = under(g, &how);
    go.max_tokens = 7;
    rv_answer *a = answer(o.s, &go), *b;
    assert_int_equal(a->finish, RV_FINISH_LENGTH);
    assert_true(a->grammar_state != 0);
    int32_t ids[N_PROMPT + 7];
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + N_PROMPT, a->ids, 7 * sizeof *ids);
    rv_session *fork;
    assert_ok(rv_session_fork(&fork, o.s, err));
    go.max_tokens = 100;
    go.grammar_state = a->grammar_state;
    assert_ok(rv_session_generate(fork, ids, N_PROMPT + 7, &go, &b, err));
    char text[64];
    snprintf(text, sizeof text, "%s%s", a->text, b->text);
    assert_int_equal(strlen(text), 21);
    assert_int_equal(strspn(text, "ab"), 10);
    assert_int_equal(strspn(text + 11, "cd"), 10);
    assert_true(b->n_reused >= N_PROMPT + 6);
    go.grammar_state = 99999;
    assert_refused(RV_E_INVALID, rv_session_start(fork, ids, N_PROMPT, &go, err));
    rv_free(a);
    rv_free(b);
    rv_session_free(&fork);
    rv_grammar_free(&g);
}

/* The least tokens with which an answer comes to its end. */
static int least_tokens(rv_grammar *g)
{
    for (int n = 20; n < 120; n++) {
        rv_sampling how = sampling(0);
        rv_generate_options go = under(g, &how);
        go.max_tokens = n;
        rv_answer *a = answer(o.s, &go);
        bool ends = a->finish == RV_FINISH_EOS;
        rv_free(a);
        if (ends) return n;
    }
    return 120;
}

/* Texts without end come to one before the tokens run out; where that cannot be, they are cut. */
static void texts_end_in_time(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":40},\"b\":"
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"key\"]},\"minItems\":1}"
        "},"
        "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}";
    (void)state;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_SCHEMA, schema);
    int least = least_tokens(g); /* where the answer must take the short way from its beginning */
    assert_true(least < 100);
    for (int seed = 0; seed < 10; seed++) {
        int steps;
        rv_sampling how = sampling(seed);
        rv_generate_options go = under(g, &how), slow;
        slow = go;
        slow.logprobs = 1;
        rv_answer *a = count_steps(&go, &steps), *b = count_steps(&slow, &steps);
        assert_int_equal(a->finish, RV_FINISH_EOS);
        assert_true(a->n_ids <= 120 && rv_grammar_ends(g, a->grammar_state));
        assert_string_equal(a->text, b->text);
        rv_free(a);
        rv_free(b);
        go.max_tokens = least;
        a = answer(o.s, &go);
        assert_int_equal(a->finish, RV_FINISH_EOS);
        rv_free(a);
        go.max_tokens = least / 2;
        a = answer(o.s, &go);
        assert_int_equal(a->finish, RV_FINISH_LENGTH);
        rv_free(a);
    }
    rv_grammar_free(&g);
}

/* A part that could not be ended any more is not begun. */
static void nothing_is_begun_too_late(void **state)
{
    static const char pattern[] = "(a[cd]-bcdefghijklmnopqrstuvwxyzbcdefghijklmnopqrstuvwxyz;)+";
    (void)state;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_REGEX, pattern);
    int least = least_tokens(g);
    assert_true(least < 80);
    for (int n = least; n < 3 * least; n += 7) {
        rv_sampling how = sampling(n);
        rv_generate_options go = under(g, &how);
        go.max_tokens = n;
        rv_answer *a = answer(o.s, &go);
        assert_int_equal(a->finish, RV_FINISH_EOS);
        assert_true(a->n_ids <= (size_t)n && a->text_len && a->text[a->text_len - 1] == ';');
        rv_free(a);
    }
    rv_grammar_free(&g);
}

/* Of tokens that are at hand for its end, it spares none that min_tokens asks for. */
static void no_end_comes_before_min_tokens(void **state)
{
    static const int least[] = {0, 110, 118, 120, 1000};
    (void)state;
    int32_t *a;
    size_t n;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_REGEX, "a*;");
    assert_ok(rv_tokenize(o.m, "xa", 2, 0, &a, &n, err));
    rv_logit_bias always = {a[n - 1], 1000};
    rv_sampling how = {.size = sizeof how, .greedy = 1, .logit_bias = &always, .n_logit_bias = 1};
    for (size_t i = 0; i < RVI_COUNT(least); i++) {
        rv_generate_options go = under(g, &how);
        go.min_tokens = least[i];
        rv_answer *said = answer(o.s, &go);
        assert_int_equal(said->finish, RV_FINISH_EOS);
        assert_int_equal(said->text[said->text_len - 1], ';');
        assert_true(said->n_ids <= 120 && said->n_ids >= (size_t)RVI_MIN(least[i], 120));
        assert_true(least[i] || said->n_ids < 110); /* it ends early enough by itself */
        rv_free(said);
    }
    rv_free(a);
    rv_grammar_free(&g);
}

/* What is always picked would not end in time: another token comes, while there is one, and not the
 * end. */
static void another_token_comes_before_the_end(void **state)
{
    static const int least[] = {0, 70, 119};
    (void)state;
    int32_t *b;
    size_t n;
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_REGEX, "a{60}(a|bc{200})*;");
    assert_ok(rv_tokenize(o.m, "xb", 2, 0, &b, &n, err));
    rv_logit_bias always = {b[n - 1], 1000};
    rv_sampling how = {.size = sizeof how, .greedy = 1, .logit_bias = &always, .n_logit_bias = 1};
    for (size_t i = 0; i < RVI_COUNT(least); i++) {
        rv_generate_options go = under(g, &how);
        go.min_tokens = least[i];
        rv_answer *said = answer(o.s, &go);
        assert_int_equal(said->finish, RV_FINISH_EOS);
        assert_null(strchr(said->text, 'b'));
        assert_int_equal(said->text[said->text_len - 1], ';');
        assert_true(said->n_ids >= (size_t)least[i] && said->n_ids <= 120);
        rv_free(said);
    }
    rv_free(b);
    rv_grammar_free(&g);
}

static int only_one(void *ctx, const int32_t *ids, size_t n_ids, float *logits, size_t n_vocab)
{
    (void)ids, (void)n_ids;
    for (size_t i = 0; i < n_vocab; i++)
        if ((int32_t)i != *(const int32_t *)ctx) logits[i] = -INFINITY;
    return 0;
}

static void stop_strings_and_masks_count_too(void **state)
{
    (void)state;
    static const char *const stop[] = {"lett"};
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_SCHEMA, fixed);
    rv_sampling how = sampling(1);
    rv_generate_options go = under(g, &how);
    go.stop = stop;
    go.n_stop = 1;
    rv_answer *a = answer(o.s, &go);
    assert_int_equal(a->finish, RV_FINISH_STOP);
    assert_string_equal(a->text + a->text_len - 4, "the ");
    rv_free(a);
    rv_grammar_free(&g);

    int32_t *c;
    size_t n;
    g = grammar(o.m, RV_GRAMMAR_REGEX, "[cd]{12}");
    assert_ok(rv_tokenize(o.m, "xc", 2, 0, &c, &n, err));
    go = under(g, &how);
    go.mask = only_one;
    go.ctx = &c[n - 1];
    a = answer(o.s, &go);
    assert_string_equal(a->text, "cccccccccccc");
    rv_free(a);
    rv_free(c);
    rv_grammar_free(&g);
}

static void choices_of_a_request_are_as_alone(void **state)
{
    enum { N = 3 };
    (void)state;
    rv_service *svc;
    rv_service_options so = {
        .size = sizeof so, .n_tokens = 1024, .n_context = N_CONTEXT, .no_thread = 1};
    rv_grammar *g = grammar(o.m, RV_GRAMMAR_SCHEMA, fixed);
    rv_sampling how = sampling(11);
    rv_generate_options go = under(g, &how);
    rv_request r = {.size = sizeof r, .ids = prompt, .n_ids = N_PROMPT, .generate = &go, .n = N};
    static served list[N];
    uint64_t id;
    memset(list, 0, sizeof list);
    assert_ok(rv_service_new(&svc, o.m, &so, err));
    assert_ok(rv_service_submit(svc, &r, &id, err));
    rv_grammar *kept = g;
    rv_grammar_free(&kept); /* the request has it still */
    for (int i = 0; i < N; i++) list[i] = (served){.request = id, .choice = i};
    served_run(svc, list, N);
    rv_service_free(&svc);
    g = grammar(o.m, RV_GRAMMAR_SCHEMA, fixed);
    for (int i = 0; i < N; i++) {
        rv_sampling own = sampling(11 + i);
        rv_generate_options alone = under(g, &own);
        rv_answer *a = answer(o.s, &alone);
        assert_int_equal(list[i].last.finish, RV_FINISH_EOS);
        assert_string_equal(list[i].text, a->text);
        rv_free(a);
    }
    rv_grammar_free(&g);
}

static void other_models_and_states_are_refused(void **state)
{
    (void)state;
    opened other;
    uint32_t next;
    uint64_t mask[8];
    open_all(&other, models[1], 1, N_CONTEXT);
    rv_grammar *g = grammar(other.m, RV_GRAMMAR_REGEX, "a");
    rv_sampling how = sampling(0);
    rv_generate_options go = under(g, &how);
    rv_answer *a;
    assert_refused(RV_E_INVALID, rv_session_generate(o.s, prompt, N_PROMPT, &go, &a, err));
    assert_refused(RV_E_INVALID, rv_grammar_advance(g, 12345, 1, &next, err));
    assert_refused(RV_E_INVALID, rv_grammar_mask(g, 12345, mask, 8, err));
    assert_int_equal(rv_grammar_ends(g, 12345), 0);
    assert_ok(rv_session_start(other.s, prompt, N_PROMPT, &go, err));
    rv_grammar_free(&g); /* its answer goes on */
    assert_ok(rv_session_finish(other.s, &a, err));
    assert_int_equal(a->finish, RV_FINISH_CANCELLED);
    rv_free(a);
    close_all(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_form),
        cmocka_unit_test(forced_tokens_save_steps_only),
        cmocka_unit_test(logprobs_are_of_the_models_own_distribution),
        cmocka_unit_test(many_at_once_are_as_alone),
        cmocka_unit_test(a_cut_answer_goes_on_in_a_fork),
        cmocka_unit_test(texts_end_in_time),
        cmocka_unit_test(nothing_is_begun_too_late),
        cmocka_unit_test(no_end_comes_before_min_tokens),
        cmocka_unit_test(another_token_comes_before_the_end),
        cmocka_unit_test(stop_strings_and_masks_count_too),
        cmocka_unit_test(choices_of_a_request_are_as_alone),
        cmocka_unit_test(other_models_and_states_are_refused),
    };
    return cmocka_run_group_tests(tests, open_first, close_it);
}
