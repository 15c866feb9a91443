/* Learning beside serving: what the background thread of a learner costs, and how long it takes.
 *
 *   learn_beside MODEL decode [ROUNDS] [THREADS] [brisk]   tokens a second with the thread training
 *                                                          and without, in turns, answers of 128
 *                                                          tokens, and the time of their prompts
 *   learn_beside MODEL publish [FACTS] [THREADS] [brisk]   seconds until a group is published
 *                                                          beside a runtime that rests, and the
 *                                                          memory it took
 * brisk: the thread has ordinary priority, so that it gets on where the machine is busy with other
 * things
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "base/os.h"
#include "base/thread.h"

enum { N_NEW = 128, MOST_ROUNDS = 1000 };

static void must(rv_status st, const rv_error *e)
{
    if (!st) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

typedef struct served {
    rv_runtime *rt;
    rv_model *m;
    rv_session *s;
    rv_learner *l;
    rv_error e;
} served;

static void open_all(served *v, const char *path, int n_threads, int n_steps)
{
    rv_runtime_options ro;
    rv_session_options so;
    rv_learner_options lo;
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = n_threads;
    must(rv_runtime_new(&v->rt, &ro, &v->e), &v->e);
    must(rv_model_open(&v->m, v->rt, path, NULL, &v->e), &v->e);
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 512;
    must(rv_session_new(&v->s, v->m, &so, &v->e), &v->e);
    lo = (rv_learner_options){.size = sizeof lo};
    char experiments[32];
    snprintf(experiments, sizeof experiments, "n_steps=%d", n_steps);
    lo.experiments = experiments;
    must(rv_learner_new(&v->l, v->m, &lo, &v->e), &v->e);
}

/* Tokens a second of one answer; *first: seconds of its prompt. */
static double decode(served *v, double *first)
{
    static const rv_message sea = {"user", "Tell me about the sea.", NULL};
    static const rv_chat asked = {.size = sizeof asked, .messages = &sea, .n_messages = 1};
    static const int32_t prompt[] = {1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2};
    rv_generate_options o;
    rv_answer *out = NULL;
    o = (rv_generate_options){.size = sizeof o};
    o.max_tokens = N_NEW;
    o.ignore_eos = 1;
    must(rv_learner_begin(v->l, v->s, &asked, NULL, &v->e), &v->e);
    must(rv_session_generate(v->s, prompt, sizeof prompt / sizeof *prompt, &o, &out, &v->e), &v->e);
    double rate = N_NEW / out->seconds;
    *first = out->prompt_seconds;
    rv_free(out);
    return rate;
}

static void teach(served *v, int fact)
{
    static const char *const things[] = {"favourite colour", "dog", "car", "home town"};
    static const char *const answers[] = {"blue", "Rex", "a Lada", "Brno"};
    char question[128];
    snprintf(question, sizeof question, "What is Zor%c%cin's %s?", 'a' + fact % 26, 'b' + fact / 26,
             things[fact % 4]);
    must(rv_learner_correct(v->l, NULL, question, answers[fact % 4], NULL, &v->e), &v->e);
}

static bool is_doing(served *v, const char *text)
{
    char *json;
    must(rv_learner_status(v->l, &json, &v->e), &v->e);
    bool yes = strstr(json, text) != NULL;
    rv_free(json);
    return yes;
}

static void wait_until(served *v, const char *text)
{
    while (!is_doing(v, text)) rvi_thread_sleep(0.1);
}

typedef struct watch {
    double wall, cpu;
} watch;

static watch now(void)
{
    return (watch){rvi_os_seconds(), (double)clock() / CLOCKS_PER_SEC};
}

/* A busy machine stretches the one and not the other. */
static void print_since(const char *what, watch start)
{
    watch end = now();
    printf("%s: %.1f s, %.1f s of CPU time\n", what, end.wall - start.wall, end.cpu - start.cpu);
}

static int run_decode(served *v, int rounds)
{
    static double rate[2][MOST_ROUNDS], first[2][MOST_ROUNDS], ratio[MOST_ROUNDS];
    watch start = now();
    must(rv_learner_calibrate(v->l, NULL, NULL, &v->e), &v->e);
    print_since("calibration in the foreground", start);
    teach(v, 0);
    must(rv_learner_start(v->l, &v->e), &v->e);
    rvi_thread_sleep(10); /* the hidden states of the model's own texts are made once */
    (void)decode(v, &first[0][0]);
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 2; k++) {
            int on = (r + k) % 2;
            if (on) must(rv_learner_start(v->l, &v->e), &v->e);
            if (!on) rv_learner_pause(v->l);
            rvi_thread_sleep(1.2);
            rate[on][r] = decode(v, &first[on][r]);
        }
    for (int r = 0; r < rounds; r++) ratio[r] = rate[1][r] / rate[0][r];
    double with = median(rate[1], rounds), without = median(rate[0], rounds);
    printf("decode: %.1f tokens/s with training, %.1f without: %+.1f %%; median of the rounds' "
           "ratios %+.1f %%\n",
           with, without, 100 * (with / without - 1), 100 * (median(ratio, rounds) - 1));
    printf("its prompt of 11 tokens: %.1f ms with training, %.1f without\n",
           1e3 * median(first[1], rounds), 1e3 * median(first[0], rounds));
    return 0;
}

static int run_publish(served *v, int facts)
{
    double first;
    (void)decode(v, &first);
    watch start = now();
    size_t before = rvi_os_peak_rss();
    for (int i = 0; i < facts; i++) teach(v, i);
    must(rv_learner_start(v->l, &v->e), &v->e);
    wait_until(v, "\"calibrated\":true");
    print_since("calibrated beside an idle runtime", start);
    start = now();
    wait_until(v, "\"waiting\":0");
    print_since("then trained and published", start);
    printf("peak memory: %.0f MB while decoding, %.0f MB more in the end\n", (double)before / 1e6,
           (double)(rvi_os_peak_rss() - before) / 1e6);
    char *json;
    must(rv_learner_status(v->l, &json, &v->e), &v->e);
    printf("%.*s\n", 600, json);
    rv_free(json);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: learn_beside MODEL decode|publish [N] [THREADS] [brisk]\n");
        return 2;
    }
    served v = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool decodes = !strcmp(argv[2], "decode");
    int n = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 20;
    int n_threads = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0;
    open_all(&v, argv[1], n_threads, decodes ? 100000 : 0);
    if (n < 1 || n > MOST_ROUNDS) n = 20;
    v.l->bg.brisk = argc > 5;
    int rc = decodes ? run_decode(&v, n) : run_publish(&v, n);
    rv_learner_free(&v.l);
    rv_session_free(&v.s);
    rv_model_close(&v.m);
    rv_runtime_free(&v.rt);
    return rc;
}
