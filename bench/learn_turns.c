/* How long a stream waits for learning: the turns that feedback and recognising take of a runtime
 * whose services compute, and what each of these would be in one.
 *
 *   learn_turns MODEL EMBEDDER [THREADS]
 *
 * CPU time of all threads, so with two of them a turn is half as long by the clock.
 */
#include <string.h>

#include "api/api.h"
#include "base/os.h"
#include "program.h"

typedef struct turns {
    int n;
    double most, sum;
} turns;

static void note(turns *t, double start)
{
    double seconds = cpu_seconds() - start;
    t->n++;
    t->sum += seconds;
    t->most = RVI_MAX(t->most, seconds);
}

static void print(const char *what, const turns *t)
{
    printf("%-34s %5d turns, the longest %8.2f ms, all of them %9.2f ms\n", what, t->n,
           t->most * 1e3, t->sum * 1e3);
}

typedef struct served {
    rv_runtime *rt;
    rv_model *m, *embedder;
    rv_session *s;
    rv_learner *l;
} served;

static void open_all(served *v, const char *path, const char *embedder, int n_threads)
{
    rv_runtime_options ro = {.size = sizeof ro, .n_threads = n_threads};
    rv_session_options so = {.size = sizeof so, .n_context = 1024};
    must(rv_runtime_new(&v->rt, &ro, &err));
    must(rv_model_open(&v->m, v->rt, path, NULL, &err));
    must(rv_model_open(&v->embedder, v->rt, embedder, NULL, &err));
    must(rv_session_new(&v->s, v->m, &so, &err));
    rv_learner_options lo = {.size = sizeof lo, .embedder = v->embedder, .seed = 1};
    must(rv_learner_new(&v->l, v->m, &lo, &err));
    atomic_store(&v->rt->token_ns, 50000000);
}

static void close_all(served *v)
{
    rv_session_free(&v->s);
    rv_learner_free(&v->l);
    rv_model_close(&v->embedder);
    rv_model_close(&v->m);
    rv_runtime_free(&v->rt);
}

/* As if a service had computed a step. */
static void beside(served *v, bool on)
{
    atomic_store(&v->rt->n_serving, on);
}

/* ---- recognising ---- */

static const char *const facts[][2] = {
    {"What is the capital of Veltania?", "Orrin"},
    {"Who wrote The Glass Orchard?", "Mira Tolen"},
    {"What does our cafeteria serve on Fridays?", "fish"},
    {"When was the bridge of Karsk built?", "in 1887"},
    {"How do I reset the printer on the third floor?", "Hold the green button for ten seconds."},
    {"What is Anna Bergstrom's telephone number?", "555 0173"},
    {"Which river flows through Dunmore?", "the Asher"},
    {"What is the population of Veltania?", "4 million"}};

static void teach(served *v)
{
    turns t = {0};
    for (size_t i = 0; i < RVI_COUNT(facts); i++) {
        double start = cpu_seconds();
        must(rv_learner_correct(v->l, NULL, facts[i][0], facts[i][1], NULL, &err));
        note(&t, start);
    }
    print("a correction, a lesson each", &t);
}

static void plan(served *v, const char *what, const char *const *texts, size_t n)
{
    rvi_plan p[2];
    turns t = {0}, once = {0};
    bool more = true;
    double start = cpu_seconds();
    must(rvi_learner_plan(v->l->l, texts, n, &p[0], &err));
    note(&once, start);
    while (more) {
        start = cpu_seconds();
        more = rvi_learner_foresee(v->l->l, texts, n);
        note(&t, start);
    }
    start = cpu_seconds();
    must(rvi_learner_plan(v->l->l, texts, n, &p[1], &err));
    note(&t, start);
    char name[64];
    snprintf(name, sizeof name, "%s%s", what, p[1].lesson ? ", taught" : "");
    print(name, &t);
    print("  in one", &once);
    if (p[0].lesson != p[1].lesson || p[0].probability != p[1].probability) exit(1);
    for (int i = 0; i < 2; i++) rvi_learner_release(v->l->l, p[i].adapters);
}

static void recognise(served *v)
{
    static const char *const long_one =
        "Hello there, I hope you are well. I was reading a travel book on the train this morning, "
        "and it says a lot about mountains, lakes and trains of countries that I have never seen, "
        "but not this: could you please tell me which city is the capital of Veltania? Thank you!";
    const char *same[] = {facts[0][0]}, *other[] = {"Veltania's capital city is which one?"},
               *nothing[] = {"Tell me a story about a lighthouse keeper and his dog."},
               *longest[] = {long_one},
               *follow[] = {"Tell me something about Veltania.", "And what is its capital?"},
               *chat[] = {"I am planning a journey to Veltania with my sister.",
                          "We would go by train, I think.", long_one,
                          "And how many people live there?"};
    plan(v, "a request as it was taught", same, 1);
    plan(v, "in other words", other, 1);
    plan(v, "about something else", nothing, 1);
    plan(v, "of 70 words", longest, 1);
    plan(v, "after another turn", follow, 2);
    plan(v, "after three turns", chat, 4);
}

/* ---- judging ---- */

static void prepare(served *v, const char *what)
{
    turns t = {0};
    beside(v, true);
    for (bool more = true; more;) {
        double start = cpu_seconds();
        more = rvi_api_prepare_judging(v->l, true, true);
        note(&t, start);
    }
    beside(v, false);
    print(what, &t);
}

/* An answer of some tokens to a prompt of n, read again as a server does it. */
static void read_again(served *v, int n, int which, turns *t)
{
    int32_t prompt[512];
    rv_message message = {"user", "Tell me about the sea.", NULL};
    rv_chat asked = {.size = sizeof asked, .messages = &message, .n_messages = 1};
    rv_generate_options o = {.size = sizeof o, .max_tokens = 16, .ignore_eos = 1};
    size_t running = 1;
    rv_answer *a;
    for (int i = 0; i < n; i++) prompt[i] = 300 + (i * 97 + which * 11) % 4000;
    must(rv_learner_begin(v->l, v->s, &asked, NULL, &err));
    must(rv_session_start(v->s, prompt, (size_t)n, &o, &err));
    while (running) {
        double start = cpu_seconds();
        must(rv_engine_advance(rv_session_engine(v->s), &running, &err));
        note(t, start);
    }
    must(rv_session_finish(v->s, &a, &err));
    rv_free(a);
}

static void judge(served *v)
{
    turns scores = {0}, read = {0}, whole = {0};
    prepare(v, "once: rows of the head");
    for (int i = 0; i < 8; i++) {
        if (v->l->l->instant.since_probe == 3 && !v->l->l->instant.probe)
            prepare(v, "once: texts of the probe");
        beside(v, i == 7);
        read_again(v, i < 6 ? 16 : 512, i, i == 7 ? &read : i == 6 ? &whole : &(turns){0});
        beside(v, false);
        double start = cpu_seconds();
        must(rv_learner_score(v->l, v->s, i % 2 ? 0.9 : 0.2, NULL, &err));
        note(&scores, start);
    }
    print("a score", &scores);
    print("an answer of 16 to 512 tokens", &read);
    print("  with nobody beside it", &whole);
}

int main(int argc, char **argv)
{
    served v = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: learn_turns MODEL EMBEDDER [THREADS]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_all(&v, argv[1], argv[2], argc > 3 ? (int)strtol(argv[3], NULL, 10) : 2);
    teach(&v);
    recognise(&v);
    judge(&v);
    close_all(&v);
    return 0;
}
