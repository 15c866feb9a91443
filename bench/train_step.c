/* train_step.c - speed of whole steps of training: build/bench/train_step MODEL [threads [steps
 * [isa|cuda]]].
 *
 * Random tokens in texts of the lengths that 20 corrections have: 12 taught ones and 4 kept ones a
 * step, behind a shared beginning, some 575 rows. Tells the seconds of the hidden states, the
 * median of the steps, and on the CPU where their time goes, by the backend's calls. CPU time is of
 * all threads, their waiting for each other included. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/profile.h"
#include "base/fingerprint.h"
#include "base/os.h"
#include "learn/consolidate/train.h"

enum {
    FRAME = 28,
    TEACH = 144,
    KEEP = 36,
    TAUGHT = 26, /* tokens behind the frame, some more or fewer */
    KEPT = 56,
    ANSWER = 9, /* of a taught one */
    ROWS = 720,
    RANK = 8,
    MOST_STEPS = 1000
};

static rv_error error;

static void must(rv_status st)
{
    if (!st) return;
    fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool from_lowest(const void *ctx, int target)
{
    const rvi_samples *s = ctx;
    int il;
    return sscanf(s->v->m->targets[target].gguf_name, "blk.%d.", &il) == 1 && il >= s->lowest;
}

static void add_texts(rvi_samples *s, rvi_rng *rng, int n, int length, bool keep)
{
    int32_t ids[FRAME + 2 * KEPT];
    uint64_t n_vocab = (uint64_t)s->v->m->hp.n_vocab;
    for (int i = 0; i < n; i++) {
        int len = FRAME + length - 6 + (int)(rvi_rng_u64(rng) % 13);
        memcpy(ids, s->v->frame.data, FRAME * sizeof *ids);
        for (int k = FRAME; k < len; k++) ids[k] = (int32_t)(rvi_rng_u64(rng) % n_vocab);
        size_t first = keep ? FRAME + 12 : (size_t)len - ANSWER;
        must(rvi_samples_add(s, ids, (size_t)len, first, keep, false, NULL, &error));
    }
}

static int by_seconds(const void *a, const void *b)
{
    double x = (*(const rvi_profile_row *const *)a)->seconds,
           y = (*(const rvi_profile_row *const *)b)->seconds;
    return (x < y) - (x > y);
}

static void tell_profile(const rvi_backend *be, double seconds, int steps)
{
    const rvi_profile_row *rows, *order[128];
    int n = rvi_profile_rows(be, &rows);
    for (int i = 0; i < n; i++) {
        order[i] = &rows[i];
        seconds -= rows[i].seconds;
    }
    qsort(order, (size_t)n, sizeof order[0], by_seconds);
    for (int i = 0; i < n; i++)
        printf("  %-46s %8.2f ms a step, %6.1f us a call\n", order[i]->name,
               order[i]->seconds * 1e3 / steps, order[i]->seconds * 1e6 / (double)order[i]->calls);
    printf("  %-46s %8.2f ms a step\n", "between them", seconds * 1e3 / steps);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: train_step MODEL [threads [steps [isa|cuda]]]\n");
        return 2;
    }
    int threads = argc > 2 ? atoi(argv[2]) : 1, steps = argc > 3 ? atoi(argv[3]) : 10;
    rvi_cpu_options co = {.n_threads = threads, .isa = argc > 4 ? argv[4] : NULL};
    static double seconds[MOST_STEPS];
    uint64_t bits[RVI_FINGERPRINT_WORDS];
    if (steps < 1 || steps > MOST_STEPS) return 2;
    rvi_source *source;
    rvi_model *m;
    rvi_base_model v = {0};
    rvi_rng rng = {1};
    bool on_gpu = co.isa && !strcmp(co.isa, "cuda");
    rvi_cuda_options go = {.n_threads = threads};
    must(on_gpu ? rvi_backend_cuda_new(&v.be, &go, NULL, &error)
                : rvi_backend_cpu_new(&v.be, &co, NULL, &error));
    must(rvi_source_open(&source, argv[1], &error));
    must(rvi_model_new(&m, v.be, source, NULL, &error));
    v.m = m;
    for (int i = 0; i < FRAME; i++) must(rvi_ids_push(&v.frame, i + 1) ? RV_OK : RV_E_NOMEM);
    rvi_samples texts;
    rvi_samples_init(&texts, &v, (m->hp.n_layers * 4 + 5) / 10);
    add_texts(&texts, &rng, KEEP, KEPT, true);
    add_texts(&texts, &rng, TEACH, TAUGHT, false);

    rvi_trainer *base;
    rvi_trainer_options bo = {.max_rows = ROWS,
                              .max_spans = RVI_SAMPLES_AT_ONCE + 1,
                              .max_losses = 192,
                              .lowest = texts.lowest};
    must(rvi_trainer_new(&base, m, v.be, NULL, NULL, &bo, &error));
    double begun = rvi_os_seconds();
    must(rvi_samples_prepare(&texts, base, ROWS, NULL, NULL, &error));
    printf("%d threads, %s: hidden states of %zu rows %.3f s\n", threads,
           on_gpu ? "cuda" : rvi_backend_cpu_isa(v.be), texts.n_rows, rvi_os_seconds() - begun);
    rvi_trainer_free(base);

    size_t order[TEACH + KEEP];
    for (size_t i = 0; i < TEACH + KEEP; i++) order[i] = i;
    rvi_params *theta;
    rvi_training t;
    rvi_train_options to = {.n_steps = steps + 2,
                            .n_teach = 12,
                            .n_keep = 4,
                            .beta = 1,
                            .rate = 2e-3f,
                            .warm_up = 0.03f,
                            .seed = 1,
                            .max_rows = ROWS};
    must(rvi_params_new(&theta, v.be, m->targets, m->n_targets, from_lowest, &texts, RANK, 16,
                        &error));
    rvi_params_init_random(theta, 1);
    begun = rvi_os_seconds();
    must(rvi_training_init(&t, &texts, theta, &to, order + KEEP, TEACH, order, KEEP, &error));
    (void)rvi_training_step(&t);
    (void)rvi_training_step(&t); /* the first ones touch new memory */
    printf("beginning and two steps %.3f s\n", rvi_os_seconds() - begun);
    if (!on_gpu) must(rvi_profile_begin(v.be, &error));
    uint64_t rows = t.n_rows;
    double all = rvi_os_seconds(), cpu = (double)clock();
    for (int i = 0; i < steps; i++) {
        begun = rvi_os_seconds();
        (void)rvi_training_step(&t);
        seconds[i] = rvi_os_seconds() - begun;
    }
    all = rvi_os_seconds() - all;
    cpu = ((double)clock() - cpu) / CLOCKS_PER_SEC;
    qsort(seconds, (size_t)steps, sizeof *seconds, by_value);
    printf(
        "a step of %.0f rows: median %.2f ms, best %.2f ms, mean of CPU time %.2f ms; loss %.6f, "
        "KL %.6g\n",
        (double)(t.n_rows - rows) / steps, seconds[steps / 2] * 1e3, seconds[0] * 1e3,
        cpu * 1e3 / steps, t.ce, t.kl);
    rvi_fingerprint(theta->theta, theta->n * sizeof *theta->theta, bits);
    for (int i = 1; i < RVI_FINGERPRINT_WORDS; i++) bits[0] = bits[0] * 31 + bits[i];
    printf("the parameters' bits: %016llx\n", (unsigned long long)bits[0]);
    if (!on_gpu) {
        tell_profile(v.be, all, steps);
        rvi_profile_end(v.be);
    }
    rvi_training_deinit(&t);
    rvi_params_free(theta);
    rvi_samples_deinit(&texts);
    rvi_ids_deinit(&v.frame);
    rvi_model_free(m);
    v.be->ops->free(v.be);
    return 0;
}
