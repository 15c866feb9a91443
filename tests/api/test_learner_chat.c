/* A learner named in the options of a session takes part in its chats; adapters of the session and
 * of the learner take part together. On a tiny model with random weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/opened.h"
#include "learn/tiny_model.h"

enum { N_NEW = 10 };

static const char dog[] = "What is Kakovin's dog?", tea[] = "Tell me about tea.";

static tiny t;
static rv_adapter *own; /* trained by another learner */
static rv_adapter_set *own_set;

static rv_learner *new_learner(const char *experiments)
{
    rv_learner *l;
    rv_learner_options o = {.size = sizeof o, .seed = 5, .experiments = experiments};
    assert_ok(rv_learner_new(&l, t.m, &o, err));
    return l;
}

/* Something taught, in an adapter, and that adapter loaded from a file. */
static rv_adapter *train(rv_learner *l, const char *question, const char *answer, const char *name)
{
    char path[256];
    rv_adapter *a;
    assert_ok(rv_learner_correct(l, NULL, question, answer, NULL, err));
    assert_ok(rv_learner_consolidate(l, RV_LOOP_BACKGROUND, RV_LOSS_DPO, NULL, NULL, NULL, err));
    assert_ok(rv_learner_export(l, 0, tiny_path(&t, path, name), 0, err));
    assert_ok(rv_adapter_load(&a, t.m, path, err));
    return a;
}

static int open_tiny(void **state)
{
    (void)state;
    tiny_open(&t);
    rv_learner *l = new_learner("n_steps=2,rank=2");
    own = train(l, "What is Bellamira's job?", "chess", "own");
    rv_learner_free(&l);
    rv_adapter_use use = {own, 1};
    assert_ok(rv_adapter_set_new(&own_set, t.m, &use, 1, err));
    return 0;
}

static int close_tiny(void **state)
{
    (void)state;
    rv_adapter_set_free(&own_set);
    rv_adapter_free(&own);
    tiny_close(&t);
    return 0;
}

static rv_session *new_session(rv_learner *l, const rv_adapter_set *set)
{
    rv_session *s;
    rv_session_options o = {
        .size = sizeof o, .n_context = 256, .learner = l, .adapters = set, .user = &t};
    assert_ok(rv_session_new(&s, t.m, &o, err));
    return s;
}

static rv_answer *ask(rv_session *s, const char *question)
{
    rv_message message = {"user", question, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_generate_options go = greedy(N_NEW);
    rv_answer *a;
    go.logprobs = 1;
    assert_ok(rv_session_chat(s, &chat, &go, &a, err));
    return a;
}

/* In a session of its own: nothing of it was computed before. */
static rv_answer *ask_anew(rv_learner *l, const rv_adapter_set *set, const char *question)
{
    rv_session *s = new_session(l, set);
    rv_answer *a = ask(s, question);
    rv_session_free(&s);
    return a;
}

static bool equal(const rv_answer *a, const rv_answer *b)
{
    bool same = a->n_ids == b->n_ids && !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    for (size_t i = 0; same && i < a->n_ids; i++)
        same = !memcmp(&a->chosen[i].logprob, &b->chosen[i].logprob, sizeof(float));
    return same;
}

/* ---- tests ---- */

/* The prompt of a chat of three turns, as the learner has it read. */
static size_t prompt_of(rv_learner *l, const char *question, const char *answer, const char *last,
                        int32_t **ids)
{
    rv_message all[] = {
        {"user", question, NULL}, {"assistant", answer, NULL}, {"user", last, NULL}};
    rv_chat chat = {.size = sizeof chat, .messages = all, .n_messages = 3};
    size_t n;
    assert_ok(rv_learner_tokenize(l, &chat, ids, &n, err));
    return n;
}

static bool reads_all(rv_learner *l, const char *question, const char *answer, const char *last)
{
    rv_message all[] = {
        {"user", question, NULL}, {"assistant", answer, NULL}, {"user", last, NULL}};
    rv_chat whole = {.size = sizeof whole, .messages = all, .n_messages = 3};
    rv_chat alone = {.size = sizeof alone, .messages = all + 2, .n_messages = 1};
    int32_t *ids, *ids_whole, *ids_alone;
    size_t n = prompt_of(l, question, answer, last, &ids), n_whole, n_alone;
    assert_ok(rv_chat_tokenize(t.m, &whole, &ids_whole, &n_whole, err));
    assert_ok(rv_chat_tokenize(t.m, &alone, &ids_alone, &n_alone, err));
    bool all_of_it = n == n_whole;
    if (!all_of_it) assert_int_equal(n, n_alone);
    assert_memory_equal(ids, all_of_it ? ids_whole : ids_alone, n * sizeof *ids);
    rv_free(ids);
    rv_free(ids_whole);
    rv_free(ids_alone);
    return all_of_it;
}

/* A model that repeats what stands in its chat would give a taught answer to anything. */
static void what_was_taught_is_not_read_again(void **state)
{
    (void)state;
    rv_learner *l = new_learner("n_steps=2,rank=2");
    assert_true(reads_all(l, dog, "Rex", tea));
    assert_ok(rv_learner_correct(l, NULL, dog, "Rex", NULL, err));
    assert_false(reads_all(l, dog, "Rex", tea));
    assert_false(reads_all(l, "Kakovin and his dog?", " Rex\n", tea)); /* by any question */
    assert_true(reads_all(l, dog, "rex", tea));                        /* the model's own words */
    assert_true(reads_all(l, dog, "", tea));
    assert_true(reads_all(l, "My order is 12345, right?", "Rex", tea)); /* nor to anything else */
    assert_true(reads_all(l, dog, "Rex", "???"));
    assert_true(reads_all(l, dog, "Max", tea));
    assert_true(reads_all(l, dog, "Rex", "And his?")); /* only the turns before explain it */
    assert_ok(rv_learner_correct(l, NULL, dog, "Max", NULL, err));
    assert_false(reads_all(l, dog, "Max", tea));
    assert_false(reads_all(l, dog, "Rex", tea)); /* it was taught once */
    atomic_store(&l->l->repeats, 1);             /* it does not repeat */
    assert_true(reads_all(l, dog, "Max", tea));
    atomic_store(&l->l->repeats, 2);
    assert_false(reads_all(l, dog, "Max", tea));
    assert_ok(rv_learner_reset(l, err));
    assert_true(reads_all(l, dog, "Max", tea));
    rv_learner_free(&l);
}

static void chats_ask_the_learner(void **state)
{
    (void)state;
    rv_learner *l = new_learner("n_steps=2,rank=2");
    rv_session *s = new_session(l, NULL);
    rv_answer *base = ask_anew(NULL, NULL, dog), *other = ask_anew(NULL, NULL, tea), *a;
    assert_null(strstr(base->text, "Rex"));
    a = ask(s, dog);
    assert_true(equal(a, base)); /* nothing was taught yet */
    rv_free(a);
    assert_ok(rv_learner_correct(l, s, NULL, "Rex", NULL, err)); /* to what was last asked */
    a = ask(s, dog);
    assert_non_null(strstr(a->text, "Rex"));
    rv_free(a);
    a = ask(s, tea);
    assert_true(equal(a, other));
    rv_free(a);
    /* answers that were started can be judged too */
    rv_engine *e;
    assert_ok(rv_engine_new(&e, t.m, NULL, err));
    rv_session *in_engine;
    rv_session_options so = {.size = sizeof so, .n_context = 256, .engine = e, .learner = l};
    rv_message message = {"user", dog, NULL};
    rv_chat chat = {.size = sizeof chat, .messages = &message, .n_messages = 1};
    rv_generate_options go = greedy(N_NEW);
    size_t running;
    assert_ok(rv_session_new(&in_engine, t.m, &so, err));
    assert_ok(rv_session_start_chat(in_engine, &chat, &go, err));
    do assert_ok(rv_engine_advance(e, &running, err));
    while (running);
    assert_ok(rv_session_finish(in_engine, &a, err));
    assert_non_null(strstr(a->text, "Rex"));
    rv_free(a);
    assert_ok(rv_learner_thumb(l, in_engine, 0, NULL, err));
    a = ask(s, dog); /* a thumb down silences what was spoken */
    assert_null(strstr(a->text, "Rex"));
    rv_free(a);
    /* tokens without a chat go past the learner */
    assert_ok(rv_learner_correct(l, NULL, dog, "Max", NULL, err));
    int32_t *ids;
    size_t n;
    assert_ok(rv_chat_tokenize(t.m, &chat, &ids, &n, err));
    rv_session_free(&in_engine);
    assert_ok(rv_session_new(&in_engine, t.m, &so, err));
    go.logprobs = 1;
    assert_ok(rv_session_generate(in_engine, ids, n, &go, &a, err));
    assert_true(equal(a, base));
    rv_free(a);
    rv_free(ids);
    rv_free(base);
    rv_free(other);
    rv_session_free(&in_engine);
    rv_engine_free(&e);
    rv_session_free(&s);
    rv_learner_free(&l);
}

/* Is the lesson asked for behind this turn (NULL: none)? */
static bool opens(rv_learner *l, rv_session *s, const char *before, const char *request)
{
    rv_message messages[] = {
        {"user", before, NULL}, {"assistant", "Yes.", NULL}, {"user", request, NULL}};
    rv_chat chat = {.size = sizeof chat,
                    .messages = before ? messages : messages + 2,
                    .n_messages = before ? 3 : 1};
    rv_learn_plan *plan;
    assert_ok(rv_learner_begin(l, s, &chat, &plan, err));
    bool open = plan->gate_open;
    rv_free(plan);
    return open;
}

/* What only the turn before explains is taught with it. */
static void follow_ups_keep_their_context(void **state)
{
    (void)state;
    static const char earlier[] = "Tell me about Zorvania.", request[] = "And its capital?";
    rv_learner *l = new_learner("n_steps=2,rank=2");
    rv_session *s = new_session(l, NULL);
    rv_adaptation *a;
    assert_false(opens(l, s, earlier, request));
    assert_ok(rv_learner_correct(l, s, NULL, "Velm", &a, err));
    assert_string_equal(a->question, "Zorvania. And its capital?");
    rv_free(a);
    assert_true(opens(l, s, earlier, request));
    assert_true(opens(l, s, "Where is Zorvania?", request));
    assert_false(opens(l, s, NULL, request));
    assert_false(opens(l, s, "Tell me about Belmora.", request));
    assert_false(opens(l, s, earlier, "Thank you."));
    /* the same words about something else are another lesson */
    assert_false(opens(l, s, "Tell me about Belmora.", request));
    assert_ok(rv_learner_correct(l, s, NULL, "Ost", NULL, err));
    assert_true(opens(l, s, "Tell me about Belmora.", request));
    assert_true(opens(l, s, earlier, request));
    assert_false(opens(l, s, NULL, request));
    /* what explains itself is taught as it is */
    assert_false(opens(l, s, earlier, dog));
    assert_ok(rv_learner_correct(l, s, NULL, "Rex", &a, err));
    assert_string_equal(a->question, dog);
    rv_free(a);
    assert_true(opens(l, s, NULL, dog));
    rv_session_free(&s);
    rv_learner_free(&l);
}

/* A turn that asked for the lesson itself does not make questions near it ask for it too. */
static void a_lesson_that_was_heard_is_not_heard_again(void **state)
{
    (void)state;
    static const char wording[] = "At Tarn, how many days a week may I work from home?";
    static const char near[] = "How many hours a week do I work at Tarn?";
    rv_learner *l = new_learner("n_steps=2,rank=2");
    rv_session *s = new_session(l, NULL);
    const char *question = "How many days a week may I work from home at Tarn?";
    assert_ok(rv_learner_correct(l, NULL, question, "Two", NULL, err));
    assert_true(opens(l, s, NULL, wording));
    assert_false(opens(l, s, NULL, near));
    assert_false(opens(l, s, wording, near));
    rv_session_free(&s);
    rv_learner_free(&l);
}

/* The bits of a session that was given both adapters. */
static void both_take_part(void **state)
{
    (void)state;
    rv_learner *l = new_learner("n_steps=2,rank=2,no_slots=1");
    rv_adapter *learned = train(l, dog, "Rex", "learned");
    rv_adapter_set *both;
    rv_adapter_use uses[] = {{own, 1}, {learned, 1}};
    assert_ok(rv_adapter_set_new(&both, t.m, uses, 2, err));
    rv_answer *none = ask_anew(NULL, NULL, dog), *first = ask_anew(NULL, own_set, dog),
              *second = ask_anew(l, NULL, dog), *composed = ask_anew(l, own_set, dog),
              *want = ask_anew(NULL, both, dog);
    assert_false(equal(none, first));
    assert_false(equal(none, second));
    assert_false(equal(first, composed));
    assert_false(equal(second, composed));
    assert_true(equal(composed, want));
    /* where the gate is closed the session's own take part alone */
    rv_answer *a = ask_anew(l, own_set, tea), *b = ask_anew(NULL, own_set, tea);
    assert_true(equal(a, b));
    rv_free(a);
    rv_free(b);
    rv_free(none);
    rv_free(first);
    rv_free(second);
    rv_free(composed);
    rv_free(want);
    rv_adapter_set_free(&both);
    rv_adapter_free(&learned);
    rv_learner_free(&l);
}

/* What was computed with both is used again as long as both are the same. */
static void the_cache_is_used_again(void **state)
{
    (void)state;
    for (int with_own = 0; with_own < 2; with_own++) {
        rv_learner *l = new_learner("n_steps=2,rank=2,no_slots=1");
        rv_adapter *learned = train(l, dog, "Rex", "learned");
        rv_session *s = new_session(l, with_own ? own_set : NULL);
        rv_answer *first = ask(s, dog), *again = ask(s, dog);
        assert_int_equal(first->n_reused, 0);
        assert_int_equal(again->n_reused, again->n_prompt - 1); /* but the last, for its logits */
        assert_true(equal(first, again));
        /* the next turn of the conversation */
        rv_message m[] = {
            {"user", dog, NULL}, {"assistant", first->text, NULL}, {"user", dog, NULL}};
        rv_chat chat = {.size = sizeof chat, .messages = m, .n_messages = 3};
        rv_generate_options go = greedy(N_NEW);
        rv_answer *next, *fresh;
        assert_ok(rv_session_chat(s, &chat, &go, &next, err));
        assert_true(next->n_reused >= first->n_prompt);
        rv_session *f = new_session(l, with_own ? own_set : NULL);
        assert_ok(rv_session_chat(f, &chat, &go, &fresh, err));
        assert_int_equal(fresh->n_reused, 0);
        assert_memory_equal(next->ids, fresh->ids, N_NEW * sizeof *next->ids);
        /* a fork computes with both too */
        rv_session *fork;
        assert_ok(rv_session_fork(&fork, f, err));
        assert_ptr_equal(rv_session_user(fork), &t);
        rv_answer *forked = ask(fork, dog);
        assert_true(forked->n_reused > 0);
        assert_true(equal(forked, first));
        /* another set of the learner's: nothing of it is the same */
        assert_ok(rv_learner_rollback(l, 0, NULL, err));
        rv_answer *without = ask(s, dog), *plain = ask_anew(NULL, with_own ? own_set : NULL, dog);
        assert_int_equal(without->n_reused, 0);
        assert_true(equal(without, plain));
        rv_free(first);
        rv_free(again);
        rv_free(next);
        rv_free(fresh);
        rv_free(forked);
        rv_free(without);
        rv_free(plain);
        rv_session_free(&fork);
        rv_session_free(&f);
        rv_session_free(&s);
        rv_adapter_free(&learned);
        rv_learner_free(&l);
    }
}

/* The session holds its learner, its learner's adapters and its own. */
static void objects_end_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        rv_learner *l = new_learner("n_steps=2,rank=2,no_slots=1");
        rv_adapter *learned = train(l, dog, "Rex", "learned");
        rv_adapter_use use = {own, 0.5f};
        rv_adapter_set *set;
        assert_ok(rv_adapter_set_new(&set, t.m, &use, 1, err));
        rv_session *s = new_session(l, set);
        rv_answer *first = ask(s, dog), *again;
        if (order & 1) rv_learner_free(&l);
        if (order & 2) rv_adapter_set_free(&set);
        again = ask(s, dog);
        assert_true(equal(first, again));
        rv_free(first);
        rv_free(again);
        rv_session_free(&s);
        rv_learner_free(&l);
        rv_adapter_set_free(&set);
        rv_adapter_free(&learned);
    }
}

static void of_another_model(void **state)
{
    (void)state;
    rv_model *m;
    rv_session *s;
    rv_learner *l = new_learner(NULL);
    assert_ok(rv_model_open(&m, t.rt, "tests/gguf/llama.gguf", NULL, err));
    rv_session_options o = {.size = sizeof o, .learner = l};
    assert_refused(RV_E_INVALID, rv_session_new(&s, m, &o, err));
    assert_null(s);
    rv_model_close(&m);
    rv_learner_free(&l);
}

/* ---- settings of experiments ---- */

static void settings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"rank", "'rank'"},
        {"rank=", "rank"},
        {"rank=x", "rank"},
        {"rank=4x", "rank"},
        {"rank=1.5", "rank must be a whole number"},
        {"rank=\"4\"", "rank must be a whole number"},
        {"rank=0", "rank must be 1..256 (got 0)"},
        {"rank=257", "rank must be 1..256 (got 257)"},
        {"rank=99999999999", "rank must be 1..256"},
        {"group_size=0", "group_size must be 1..1000 (got 0)"},
        {"n_steps=-1", "n_steps"},
        {"recipe=2", "recipe"},
        {"gate=3", "gate"},
        {"deep_min_pairs=-1", "deep_min_pairs"},
        {"learning_rate=0", "learning_rate"},
        {"learning_rate=1.5", "learning_rate"},
        {"rehearsal=1", "rehearsal"},
        {"alpha=true", "alpha must be a number"},
        {"speed=3", "'speed=3'"},
        {"rank =3", "'rank =3'"},
        {"rank=4,speed=3", "'speed=3'"},
        {"rank=4;group_size=2", "rank"},
        {"=4", "'=4'"},
        {"Rank=4", "'Rank=4'"},
    };
    static const char *const good[] = {
        "",
        "rank=4",
        "rank=4,group_size=2",
        "rank=4,",
        ",rank=4",
        "learning_rate=1e-3,alpha=8,kl_weight=-1",
        "rank=1,rank=256", /* the last counts */
        "recipe=1,gate=2,no_slots=1,shared=1,n_steps=5,ewc_lambda=0,rehearsal=0",
    };
    for (size_t i = 0; i < RVI_COUNT(bad); i++) {
        rv_learner *l = (rv_learner *)&t;
        rv_error e = {0};
        rv_learner_options o = {.size = sizeof o, .experiments = bad[i].text};
        rv_status st = rv_learner_new(&l, t.m, &o, &e);
        if (st != RV_E_CONFIG || e.code != st || !strstr(e.text, bad[i].says))
            fail_msg("'%s': %s '%s'", bad[i].text, rv_status_name(st), e.text);
        assert_null(l);
    }
    for (size_t i = 0; i < RVI_COUNT(good); i++) {
        rv_learner *l = new_learner(good[i]);
        rv_learner_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_ask_the_learner),
        cmocka_unit_test(what_was_taught_is_not_read_again),
        cmocka_unit_test(both_take_part),
        cmocka_unit_test(follow_ups_keep_their_context),
        cmocka_unit_test(a_lesson_that_was_heard_is_not_heard_again),
        cmocka_unit_test(the_cache_is_used_again),
        cmocka_unit_test(objects_end_in_any_order),
        cmocka_unit_test(of_another_model),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests_name("learner in chats", tests, open_tiny, close_tiny);
}
