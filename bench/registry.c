/* registry.c - a thousand adapters by name: build/bench/registry MODEL FOLDER [n [rank [layers]]].
 *
 * Writes n random adapters (f16; layers "qv" or "all") into the folder, unless they are there, and
 * times rv_registry_get where the adapter is on disk with nothing of it in the system's cache, on
 * disk, open, and ready. Then requests for adapters drawn by Zipf's law, eight at a time, go to
 * a service with room for 32 ready ones. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/rng.h"
#include "lora/write.h"
#include "model/digest.h"
#include "ruvllm_service.h"

enum { MOST = 10000, TIMED = 200, REQUESTS = 400, AT_ONCE = 8, TOKENS = 16, IN_USE = 32 };

static rv_error err;

static void must(rv_status st)
{
    if (!st) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static void path_of(char out[512], const char *folder, int i)
{
    snprintf(out, 512, "%s/a%04d.gguf", folder, i);
}

static bool is_chosen(const rvi_lora_target *t, bool all)
{
    return all || strstr(t->gguf_name, "attn_q.") || strstr(t->gguf_name, "attn_v") ||
           (strlen(t->gguf_name) > 6 && !strcmp(t->gguf_name + strlen(t->gguf_name) - 6, "attn_q"));
}

static void write_one(const rv_model *model, const char *path, int rank, bool all, uint64_t seed)
{
    const rvi_model *m = model->model;
    rvi_rng rng = {seed};
    rvi_adapter *a;
    char digest[RVI_SHA256_HEX];
    must(rvi_adapter_new(&a, m->be, m->n_targets, &err));
    for (int i = 0; i < m->n_targets; i++) {
        const rvi_lora_target *t = &m->targets[i];
        if ((m->head.w && i == m->head.slot) || !is_chosen(t, all)) continue;
        size_t n_a = (size_t)rank * (size_t)t->n_in, n = n_a + (size_t)rank * (size_t)t->n_out;
        float *x = rvi_alloc_array(n, sizeof *x);
        if (!x) exit(1);
        for (size_t k = 0; k < n; k++) x[k] = (float)(rvi_rng_double(&rng) - 0.5) * 0.02f;
        must(rvi_adapter_put(a, i, t, rank, 1, x, x + n_a, &err));
        rvi_free(x);
    }
    must(rvi_model_digest(m->source, m->be, digest, &err));
    must(rvi_adapter_write_gguf(a, m->targets, rvi_source_gguf_arch(m->source), path, RVI_F16,
                                &(rvi_adapter_note){.base_digest = digest}, &err));
    rvi_adapter_free(a);
}

static void drop_cached(const char *path)
{
    int f = open(path, O_RDONLY);
    if (f < 0) return;
    (void)fdatasync(f);
    (void)posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED);
    close(f);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct timing {
    double wall[TIMED], cpu[TIMED];
} timing;

/* t may be NULL. */
static void get(rv_registry *r, int i, timing *t, int at)
{
    char name[16];
    rv_adapter_set *set;
    snprintf(name, sizeof name, "a%04d", i);
    double begun = rvi_os_seconds(), cpu = cpu_seconds();
    must(rv_registry_get(r, name, 1, &set, NULL, &err));
    if (t) t->cpu[at] = cpu_seconds() - cpu;
    if (t) t->wall[at] = rvi_os_seconds() - begun;
    rv_adapter_set_free(&set);
}

/* ready_bytes 1 and max_open 1 keep the last one alone. */
static rv_registry *registry(const rv_model *m, const char *folder, uint64_t ready, int max_open)
{
    rv_registry *r;
    rv_registry_options o = {.size = sizeof o, .ready_bytes = ready, .max_open = max_open};
    must(rv_registry_new(&r, m, &o, &err));
    must(rv_registry_add_folder(r, folder, NULL, &err));
    return r;
}

static void report(const char *what, timing *t, int n)
{
    qsort(t->wall, (size_t)n, sizeof *t->wall, by_value);
    qsort(t->cpu, (size_t)n, sizeof *t->cpu, by_value);
    printf("%-26s p50 %7.3f ms, p99 %7.3f ms; of the CPU %7.3f ms, %7.3f ms\n", what,
           t->wall[n / 2] * 1e3, t->wall[n * 99 / 100] * 1e3, t->cpu[n / 2] * 1e3,
           t->cpu[n * 99 / 100] * 1e3);
}

static void time_gets(const rv_model *m, const char *folder, int n)
{
    static timing t;
    int timed = RVI_MIN(n, TIMED);
    rv_registry *r = registry(m, folder, 1, 1);
    for (int cached = 0; cached < 2; cached++) {
        for (int i = 0; i < timed; i++) {
            char path[512];
            path_of(path, folder, i);
            if (!cached) drop_cached(path);
            get(r, i, &t, i);
        }
        report(cached ? "on disk, cached by the OS" : "on disk", &t, timed);
    }
    rv_registry_free(&r);
    r = registry(m, folder, 1, MOST);
    for (int i = 0; i < timed; i++) get(r, i, NULL, 0);
    for (int i = 0; i < timed; i++) get(r, i, &t, i);
    report("open", &t, timed);
    rv_registry_free(&r);
    r = registry(m, folder, UINT64_MAX, 1);
    get(r, 0, NULL, 0);
    for (int i = 0; i < timed; i++) get(r, 0, &t, i);
    report("ready", &t, timed);
    rv_registry_free(&r);
}

static int zipf(rvi_rng *rng, int n)
{
    double sum = 0, at;
    for (int i = 1; i <= n; i++) sum += 1.0 / i;
    at = rvi_rng_double(rng) * sum;
    for (int i = 1; i <= n; i++)
        if ((at -= 1.0 / i) <= 0) return i - 1;
    return n - 1;
}

static void serve(const rv_model *m, const char *folder, int n, uint64_t bytes)
{
    static rv_registry_metrics figures;
    rv_registry *r = registry(m, folder, IN_USE * bytes, 4 * IN_USE);
    rv_service *svc;
    rv_sampling greedy = {.size = sizeof greedy, .greedy = 1};
    rv_generate_options g = {
        .size = sizeof g, .sampling = &greedy, .max_tokens = TOKENS, .ignore_eos = 1};
    rvi_rng rng = {7};
    int submitted = 0, ended = 0, failed = 0;
    must(rv_service_new(&svc, m, NULL, &err));
    double begun = rvi_os_seconds();
    while (ended < REQUESTS) {
        rv_batch *b;
        while (submitted < REQUESTS && submitted - ended < AT_ONCE) {
            int32_t ids[8];
            char name[16];
            rv_adapter_set *set;
            uint64_t id;
            for (int i = 0; i < 8; i++) ids[i] = 100 + (int32_t)(rvi_rng_double(&rng) * 1000);
            snprintf(name, sizeof name, "a%04d", zipf(&rng, n));
            must(rv_registry_get(r, name, 1, &set, NULL, &err));
            rv_request q = {
                .size = sizeof q, .ids = ids, .n_ids = 8, .generate = &g, .adapters = set};
            must(rv_service_submit(svc, &q, &id, &err));
            rv_adapter_set_free(&set);
            submitted++;
        }
        must(rv_service_drain(svc, 1, &b, &err));
        for (size_t i = 0; b && i < b->n; i++) {
            ended += b->events[i].kind == RV_SERVICE_END;
            failed +=
                b->events[i].kind == RV_SERVICE_DONE && b->events[i].finish != RV_FINISH_LENGTH;
        }
        rv_free(b);
    }
    double seconds = rvi_os_seconds() - begun;
    figures.size = sizeof figures;
    must(rv_registry_get_metrics(r, &figures, &err));
    printf("%d requests by Zipf's law, %d at a time: %d failed, %.0f tokens a second\n", REQUESTS,
           AT_ONCE, failed, REQUESTS * TOKENS / seconds);
    const rv_histogram *h[3] = {&figures.on_disk, &figures.open, &figures.ready};
    for (int i = 0; i < 3; i++)
        printf("  %-8s %5llu, p50 %8.3f ms, p99 %8.3f ms\n",
               (const char *[]){"on disk", "open", "ready"}[i], (unsigned long long)h[i]->n,
               rv_histogram_quantile(h[i], 0.5) * 1e3, rv_histogram_quantile(h[i], 0.99) * 1e3);
    rv_service_free(&svc);
    rv_registry_free(&r);
}

int main(int argc, char **argv)
{
    int n = argc > 3 ? atoi(argv[3]) : 1000, rank = argc > 4 ? atoi(argv[4]) : 8;
    bool all = argc > 5 && !strcmp(argv[5], "all");
    if (argc < 3 || n < 1 || n > MOST || rank < 1 || rank > RVI_MAX_RANK) {
        fprintf(stderr, "usage: registry MODEL FOLDER [n [rank [qv|all]]]\n");
        return 2;
    }
    rv_runtime *rt;
    rv_model *m;
    must(rv_runtime_new(&rt, NULL, &err));
    must(rv_model_open(&m, rt, argv[1], NULL, &err));
    must(rvi_os_make_dirs(argv[2], &err));
    for (int i = 0; i < n; i++) {
        char path[512];
        path_of(path, argv[2], i);
        if (rvi_os_stat(path, NULL) == RVI_OS_FILE) continue;
        write_one(m, path, rank, all, (uint64_t)i + 1);
        if (i % 50 == 0) fprintf(stderr, "\rwriting adapters: %d of %d", i, n);
    }
    fprintf(stderr, "\n");
    rv_registry *r = registry(m, argv[2], UINT64_MAX, 1);
    get(r, 0, NULL, 0);
    rv_registry_metrics *figures = calloc(1, sizeof *figures);
    if (!figures) return 1;
    figures->size = sizeof *figures;
    must(rv_registry_get_metrics(r, figures, &err));
    uint64_t bytes = figures->ready_bytes;
    free(figures);
    rv_registry_free(&r);
    printf("%d adapters, %.2f MB each when ready\n", n, (double)bytes / 1e6);
    time_gets(m, argv[2], n);
    serve(m, argv[2], n, bytes);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return 0;
}
