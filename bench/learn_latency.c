/* What learning costs while a model serves.
 *
 *   learn_latency MODEL capture [ROUNDS] [TEMPERATURE]   decoding with and without capture, in
 *                                                        turns: medians
 *   learn_latency MODEL update [EVENTS]                  CPU time of the thread for one event of 1
 *                                                        to 128 tokens, each kind, until its
 *                                                        adapter is ready for use
 *   learn_latency MODEL calls FOLDER [EVENTS]            CPU time of the caller's thread in
 *                                                        rv_learner_score and rv_learner_thumb, all
 *                                                        in all, beside the background thread; the
 *                                                        store is a file
 *   learn_latency MODEL gate FOLDER                      time to decide what takes part in a
 *                                                        request, with corrections stored
 * FOLDER keeps what is made once for a model, from one run to the next
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "decode/answer.h"
#include "decode/capture.h"
#include "decode/sampler.h"
#include "learn/instant/micro.h"
#include "ruvllm_store.h"

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

static int capture(const rvi_model *m, int rounds, float temperature)
{
    enum { N_NEW = 32 };
    static const int32_t prompt[] = {1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2};
    rv_error e;
    rvi_engine *engine;
    rvi_session *s;
    rvi_capturer *by;
    rvi_capture *ring;
    rvi_ids eos = {0};
    rv_sampling sampling;
    rvi_sampling_init(&sampling, sizeof sampling, false);
    sampling.temperature = temperature;
    must(rvi_engine_new(&engine, m, NULL, &eos,
                        &(rvi_engine_options){.n_tokens = 512, .max_rows = 64, .max_logits = 1},
                        &e),
         &e);
    must(rvi_session_new(&s, engine, 512, NULL, NULL, &e), &e);
    must(rvi_capturer_new(&by, m, &e), &e);
    must(rvi_capture_new(&ring, by, 512, &e), &e);
    double *times[2];
    size_t n = (size_t)rounds * N_NEW;
    for (int i = 0; i < 2; i++) times[i] = rvi_alloc_array(n, sizeof(double));
    if (!times[0] || !times[1]) return 1;
    for (int r = 0; r < rounds; r++)
        for (int on = 0; on < 2; on++) {
            rvi_generated out;
            rv_generate_options o = {.size = sizeof o,
                                     .sampling = &sampling,
                                     .max_tokens = N_NEW,
                                     .top_logprobs = -1,
                                     .ignore_eos = 1};
            s->capture = on ? ring : NULL;
            must(rvi_answer_start(s, prompt, RVI_COUNT(prompt), &o, &e), &e);
            rvi_answer_advance(engine, NULL); /* the prompt */
            for (int i = 0; i < N_NEW; i++) {
                double start = rvi_os_seconds();
                rvi_answer_advance(engine, NULL);
                times[on][r * N_NEW + i] = rvi_os_seconds() - start;
            }
            must(rvi_answer_take(s, &out, &e), &e);
            rvi_generated_deinit(&out);
        }
    double median[2];
    for (int i = 0; i < 2; i++) {
        qsort(times[i], n, sizeof(double), by_value);
        median[i] = times[i][n / 2];
        printf("capture %-3s  token p50 %.3f ms, p10 %.3f ms\n", i ? "on" : "off", median[i] * 1e3,
               times[i][n / 10] * 1e3);
    }
    printf("temperature %g: capture costs %.1f us a token, %.2f %%\n", (double)temperature,
           (median[1] - median[0]) * 1e6, 100 * (median[1] / median[0] - 1));
    return 0;
}

/* ---- events ---- */

enum { N_ANSWERS = 8, N_ANSWER = 128 };

typedef struct answers {
    rvi_engine *e;
    rvi_session *s;
    rvi_capturer *by;
    rvi_capture *ring;
    rvi_captured tokens[N_ANSWERS][N_ANSWER];
} answers;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const char *what, double *times, int n)
{
    static const double edges[] = {50, 100, 200, 300, 500, 1000, 2000, 5000};
    int count[RVI_COUNT(edges) + 1] = {0};
    for (int i = 0; i < n; i++) {
        size_t at = 0;
        while (at < RVI_COUNT(edges) && times[i] * 1e6 > edges[at]) at++;
        count[at]++;
    }
    qsort(times, (size_t)n, sizeof *times, by_value);
    printf("%-28s %6d events  p50 %7.1f  p90 %7.1f  p99 %7.1f  most %8.1f us |", what, n,
           times[n / 2] * 1e6, times[n * 9 / 10] * 1e6, times[n * 99 / 100] * 1e6,
           times[n - 1] * 1e6);
    for (size_t i = 0; i < RVI_COUNT(count); i++)
        if (i < RVI_COUNT(edges))
            printf(" <%g:%d", edges[i], count[i]);
        else
            printf(" more:%d", count[i]);
    printf("\n");
}

static void generate(answers *a, const rvi_model *m)
{
    rv_error e;
    rv_sampling sampling;
    static rvi_ids eos;
    rvi_sampling_init(&sampling, sizeof sampling, false);
    sampling.temperature = 1;
    must(rvi_engine_new(&a->e, m, NULL, &eos,
                        &(rvi_engine_options){.n_tokens = 512, .max_rows = 64, .max_logits = 1},
                        &e),
         &e);
    must(rvi_session_new(&a->s, a->e, 512, NULL, NULL, &e), &e);
    must(rvi_capturer_new(&a->by, m, &e), &e);
    must(rvi_capture_new(&a->ring, a->by, N_ANSWERS * N_ANSWER, &e), &e);
    a->s->capture = a->ring;
    for (int i = 0; i < N_ANSWERS; i++) {
        rvi_generated out;
        int32_t prompt[] = {1, 300 + 977 * i, 400 + 131 * i, 198};
        sampling.seed = (uint64_t)i;
        rv_generate_options o = {.size = sizeof o,
                                 .sampling = &sampling,
                                 .max_tokens = N_ANSWER,
                                 .top_logprobs = -1,
                                 .ignore_eos = 1};
        must(rvi_answer_start(a->s, prompt, RVI_COUNT(prompt), &o, &e), &e);
        while (rvi_answer_advance(a->e, NULL)) {
        }
        must(rvi_answer_take(a->s, &out, &e), &e);
        rvi_generated_deinit(&out);
        for (int t = 0; t < N_ANSWER; t++)
            a->tokens[i][t] = rvi_capture_get(a->ring, rvi_capture_answer(a->ring), t);
    }
}

/* Seconds since start, the adapter that serves included. */
static double export_too(const rvi_model *m, rvi_delta d, rvi_adapter **adapter, double start)
{
    rv_error e;
    rvi_adapter_free(*adapter);
    *adapter = NULL;
    if (d.rank) must(rvi_delta_export(adapter, m, &d, &e), &e);
    return thread_seconds() - start;
}

static int update(const rvi_model *m, int n_events)
{
    rv_error e;
    answers a;
    rvi_micro *micro;
    rvi_probe *probe;
    rvi_adapter *adapter = NULL;
    rvi_rng rng = {1};
    double *times = rvi_alloc_array((size_t)n_events, sizeof *times), start;
    if (!times) return 1;
    generate(&a, m);
    must(rvi_micro_new(&micro, m, &(rvi_micro_options){.seed = 1}, &e), &e);
    must(rvi_probe_new(&probe, a.by, m, 8, &e), &e);
    for (int i = 0; i < 8; i++) {
        int32_t ids[64];
        for (int t = 0; t < 64; t++) ids[t] = a.tokens[i][t].id;
        must(rvi_probe_add(probe, ids, 64, &e), &e);
    }
    rvi_micro_set_probe(micro, probe);
    for (int pull = 0; pull < 2; pull++) {
        for (int i = 0; i < n_events; i++) {
            const rvi_captured *tokens = a.tokens[rvi_rng_u64(&rng) % N_ANSWERS];
            int n = 1 + (int)(rvi_rng_u64(&rng) % N_ANSWER);
            double advantage = rvi_rng_double(&rng) * 4 - 2;
            rvi_micro_check(micro, (rvi_probe_result){pull ? 0.03 : 0.01,
                                                      0}); /* as if: above kl_soft or below */
            start = thread_seconds();
            rvi_micro_event(micro, tokens, n, advantage, NULL);
            times[i] = export_too(m, rvi_micro_delta(micro), &adapter, start);
        }
        report(pull ? "score, with probe pull" : "score", times, n_events);
    }
    rvi_delta d = rvi_micro_delta(micro);
    int n_probes = RVI_MIN(n_events, 1000);
    for (int i = 0; i < n_probes; i++) {
        start = thread_seconds();
        rvi_probe_score(probe, &d, 0, 8);
        times[i] = thread_seconds() - start;
    }
    report("probe of 8 texts", times, n_probes);
    rvi_adapter_free(adapter);
    rvi_probe_free(probe);
    rvi_micro_free(micro);
    rvi_capture_free(a.ring);
    rvi_capturer_free(a.by);
    rvi_session_free(a.s);
    rvi_engine_free(a.e);
    rvi_free(times);
    return 0;
}

/* ---- by the public interface ---- */

typedef struct served {
    rv_runtime *rt;
    rv_model *m;
    rv_session *s;
    rv_learner *l;
    rv_store store;
    rv_error e;
} served;

/* user: what one taught does not meet what another did */
static void open_all(served *v, const char *path, const char *folder, const char *user)
{
    char file[4096];
    rv_runtime_options ro;
    rv_session_options so;
    rv_learner_options lo;
    snprintf(file, sizeof file, "%s/log.sqlite", folder);
    must(rvi_os_make_dirs(folder, &v->e), &v->e);
    must(rv_store_open(&v->store, file, NULL, &v->e), &v->e);
    ro = (rv_runtime_options){.size = sizeof ro};
    ro.n_threads = 2;
    must(rv_runtime_new(&v->rt, &ro, &v->e), &v->e);
    must(rv_model_open(&v->m, v->rt, path, NULL, &v->e), &v->e);
    so = (rv_session_options){.size = sizeof so};
    so.n_context = 512;
    must(rv_session_new(&v->s, v->m, &so, &v->e), &v->e);
    lo = (rv_learner_options){.size = sizeof lo};
    lo.store = &v->store;
    lo.user = user;
    lo.dir = folder;
    must(rv_learner_new(&v->l, v->m, &lo, &v->e), &v->e);
    v->l->bg.brisk = true;
    must(rv_learner_calibrate(v->l, NULL, NULL, &v->e), &v->e);
}

static void close_all(served *v)
{
    rv_session_free(&v->s);
    rv_learner_free(&v->l);
    rv_model_close(&v->m);
    rv_runtime_free(&v->rt);
    rv_store_close(&v->store);
}

static void answer(served *v, int i, int n_new)
{
    char request[64];
    rv_message message = {"user", request, NULL};
    rv_chat asked = {.size = sizeof asked, .messages = &message, .n_messages = 1};
    int32_t prompt[] = {1, 300 + 97 * (i % 400), 400 + 131 * (i % 300), 198};
    rv_generate_options o;
    rv_answer *out = NULL;
    o = (rv_generate_options){.size = sizeof o};
    o.max_tokens = n_new;
    o.ignore_eos = 1;
    snprintf(request, sizeof request, "Tell me about number %d.", i);
    must(rv_learner_begin(v->l, v->s, &asked, NULL, &v->e), &v->e);
    must(rv_session_generate(v->s, prompt, RVI_COUNT(prompt), &o, &out, &v->e), &v->e);
    rv_free(out);
}

/* Answers of 4 to 64 tokens; between answer and judgement as long as a quick reader needs. */
static int calls(const char *path, const char *folder, int n_events)
{
    enum { SAME = 128 }; /* requests come again */
    served v = {0};
    rv_adaptation *a;
    double *times[4];
    for (int i = 0; i < 4; i++)
        if (!(times[i] = rvi_alloc_array((size_t)n_events, sizeof(double)))) return 1;
    char user[64];
    rvi_rng rng = {1};
    snprintf(user, sizeof user, "calls %llu", (unsigned long long)(rvi_os_seconds() * 1e6));
    open_all(&v, path, folder, user);
    answer(&v, 0, 8); /* what is made once */
    must(rv_learner_score(v.l, v.s, 0.5, NULL, &v.e), &v.e);
    must(rv_learner_thumb(v.l, v.s, 0, NULL, &v.e), &v.e);
    must(rv_learner_start(v.l, &v.e), &v.e);
    for (int i = 0; i < 2 * n_events; i++) {
        answer(&v, i % SAME, 4 + (int)(rvi_rng_u64(&rng) % 61));
        rvi_thread_sleep(0.2);
        double start = thread_seconds();
        if (i % 2)
            must(rv_learner_thumb(v.l, v.s, 0, &a, &v.e), &v.e);
        else
            must(rv_learner_score(v.l, v.s, rvi_rng_double(&rng), &a, &v.e), &v.e);
        times[i % 2][i / 2] = thread_seconds() - start;
        times[2 + i % 2][i / 2] = a->latency_us * 1e-6;
        rv_free(a);
    }
    report("rv_learner_score", times[0], n_events);
    report("  of it the change itself", times[2], n_events);
    report("rv_learner_thumb, down", times[1], n_events);
    report("  of it the change itself", times[3], n_events);
    close_all(&v);
    for (int i = 0; i < 4; i++) rvi_free(times[i]);
    return 0;
}

static void name_of(int i, char *out, size_t size)
{
    static const char *const a[] = {"Kor", "Bel", "Zan", "Vil", "Dra",
                                    "Mos", "Pel", "Tur", "Hax", "Nov"};
    static const char *const b[] = {"vindo",  "mirka", "lotep", "nusta",  "garbo",
                                    "dilwen", "ruzak", "fenno", "quipar", "zeldi"};
    snprintf(out, size, "%s%s", a[i / 10 % 10], b[i % 10]);
}

static int gate(const char *path, const char *folder)
{
    enum { ASKED = 40 };
    static const int stored[] = {0, 1, 20, 100};
    static const char *const relations[] = {"dog", "job", "city", "car", "hobby"};
    static const char *const texts[] = {NULL, "Tell me about the sea."};
    for (size_t k = 0; k < RVI_COUNT(stored); k++) {
        served v = {0};
        char user[64], name[64], text[256];
        snprintf(user, sizeof user, "gate %llu", (unsigned long long)(rvi_os_seconds() * 1e6));
        open_all(&v, path, folder, user);
        for (int i = 0; i < stored[k]; i++) {
            name_of(i, name, sizeof name);
            snprintf(text, sizeof text, "What is %s's %s?", name, relations[i % 5]);
            must(rv_learner_correct(v.l, NULL, text, "Rex", NULL, &v.e), &v.e);
        }
        for (size_t kind = 0; kind < RVI_COUNT(texts); kind++) {
            double times[ASKED], cpu[ASKED];
            int n_open = 0, n_slots = 0;
            for (int i = 0; i < ASKED; i++) {
                rv_learn_plan *plan;
                name_of(stored[k] ? i % stored[k] : i, name, sizeof name);
                if (kind)
                    snprintf(text, sizeof text, "%s", texts[kind]);
                else
                    snprintf(text, sizeof text, "What is the %s of %s?",
                             relations[(stored[k] ? i % stored[k] : i) % 5], name);
                rv_message message = {"user", text, NULL};
                rv_chat asked = {.size = sizeof asked, .messages = &message, .n_messages = 1};
                double start = rvi_os_seconds(), used = thread_seconds();
                must(rv_learner_begin(v.l, v.s, &asked, &plan, &v.e), &v.e);
                times[i] = rvi_os_seconds() - start;
                cpu[i] = thread_seconds() - used;
                n_open += plan->gate_open;
                n_slots += plan->slot;
                rv_free(plan);
            }
            char what[64];
            snprintf(what, sizeof what, "%d stored, %s", stored[k],
                     kind ? "nothing named" : "asked for");
            printf("gate: open %d, slots %d of %d\n", n_open, n_slots, ASKED);
            report(what, times, ASKED);
            report("  this thread's CPU time", cpu, ASKED);
        }
        close_all(&v);
    }
    return 0;
}

int main(int argc, char **argv)
{
    rv_error e;
    rvi_backend *be;
    rvi_source *source;
    rvi_model *m;
    bool updates = argc >= 3 && !strcmp(argv[2], "update");
    if (argc >= 4 && !strcmp(argv[2], "calls"))
        return calls(argv[1], argv[3], argc > 4 ? RVI_MAX((int)strtol(argv[4], NULL, 10), 1) : 100);
    if (argc >= 4 && !strcmp(argv[2], "gate")) return gate(argv[1], argv[3]);
    if (argc < 3 || (!updates && strcmp(argv[2], "capture"))) {
        fprintf(stderr, "learn_latency MODEL capture [ROUNDS] [TEMPERATURE] | update [EVENTS] | "
                        "calls FOLDER [EVENTS] | gate FOLDER\n");
        return 2;
    }
    must(rvi_backend_cpu_new(&be, &(rvi_cpu_options){.n_threads = 2}, NULL, &e), &e);
    must(rvi_source_open(&source, argv[1], &e), &e);
    must(rvi_model_new(&m, be, source, NULL, &e), &e);
    int n = argc > 3 ? (int)strtol(argv[3], NULL, 10) : updates ? 10000 : 20;
    int rc = updates ? update(m, RVI_MAX(n, 1))
                     : capture(m, RVI_MAX(n, 1), argc > 4 ? (float)strtod(argv[4], NULL) : 0.8f);
    rvi_model_free(m);
    be->ops->free(be);
    return rc;
}
