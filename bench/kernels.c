/* kernels.c - speed of the kernel table on one core: `make bench`, or build/bench/kernels [isa
 * [type]].
 *
 * Weight sets: `cache` stays in the second level cache, `memory` is larger than common last level
 * caches. Best of several repetitions, because other programs can only make a run slower. Results
 * are summed and printed, so no work can be left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/panels.h"

/* Seconds that this thread has computed: on a busy machine a run of many milliseconds is
 * interrupted every time. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *alloc(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64); /* as tensors are */
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static rvi_rng rng = {1};

static float *floats_new(size_t n)
{
    float *x = alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(rvi_rng_double(&rng) - 0.5);
    return x;
}

/* Random bytes 0x20..0x3f: read as f16, bf16 or f32 they are normal numbers below 2. */
static uint8_t *blocks_new(size_t bytes)
{
    uint8_t *w = alloc(bytes);
    for (size_t i = 0; i < bytes; i++) w[i] = 0x20 | ((uint8_t)rvi_rng_u64(&rng) & 0x1f);
    return w;
}

typedef struct product {
    const rvi_kernels *k;
    rvi_qtype type;
    const uint8_t *w;
    int n_panels, n_rows;
    size_t n;
    const void *acts;
    bool tiles;
    float *out;
} product;

static void multiply(const product *p)
{
    size_t stride = (size_t)p->n_panels * RVI_PANEL;
    if (p->tiles)
        p->k->gemm_tiles[p->type](p->w, p->n_panels, p->acts, p->n_rows / 16, p->out, stride, p->n);
    else
        p->k->gemm_panels[p->type](p->w, p->n_panels, p->acts, rvi_act_bytes(p->type, p->n),
                                   p->n_rows, p->out, stride, p->n);
}

/* Best seconds. */
static double time_product(const product *p)
{
    double best = 1e9, begun = now();
    while (now() - begun < 0.2) {
        double start = now();
        multiply(p);
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void *acts_new(const rvi_kernels *k, rvi_qtype t, const float *x, int n_rows, size_t n,
                      bool tiles)
{
    size_t bytes = tiles ? rvi_tile_act_bytes(t, n) : rvi_act_bytes(t, n);
    char *acts = alloc(bytes * (size_t)n_rows);
    for (int r = 0; r < n_rows; r += tiles ? 16 : 1) {
        void *at = acts + (size_t)(tiles ? r / 16 : r) * bytes;
        if (tiles)
            k->prepare_tiles[t](x + (size_t)r * n, n, at, n);
        else if (k->prepare[t] != NULL)
            k->prepare[t](x + (size_t)r * n, at, n);
        else if (rvi_qtypes[t].block_weights == 256)
            k->quantize_wide(x + (size_t)r * n, at, n);
        else
            k->quantize_act(x + (size_t)r * n, at, n);
    }
    return acts;
}

/* One row from cache and from memory; 16 rows and a prompt of 512 from cache, the latter by tiles
 * too. */
static void bench_products(const rvi_kernels *k, const char *only, double *check)
{
    enum { N = 1536, CACHE_PANELS = 36, MEMORY_BYTES = 160 << 20, PROMPT = 512 };
    float *x = floats_new(PROMPT * N), *out = alloc((size_t)MEMORY_BYTES / 64 * sizeof *out);
    uint8_t *w = blocks_new(MEMORY_BYTES);
    printf("products, n = %d\n%-8s %14s %14s %14s %14s %14s\n%-8s %14s %14s %14s %14s %14s\n", N,
           "", "cache, 1 row", "memory, 1 row", "16 rows", "512 rows", "512, tiles", "", "GB/s",
           "GB/s", "GOP/s", "GOP/s", "GOP/s");
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (k->gemm_panels[t] == NULL) continue;
        if (only && strcmp(only, rvi_qtypes[t].name)) continue;
        size_t bytes = rvi_panel_bytes((rvi_qtype)t, N);
        int many = (int)(MEMORY_BYTES / bytes);
        void *acts = acts_new(k, (rvi_qtype)t, x, PROMPT, N, false), *tiles = NULL;
        product p = {k, (rvi_qtype)t, w, CACHE_PANELS, 1, N, acts, false, out};
        double cache = 1e-9 * (double)bytes * CACHE_PANELS / time_product(&p);
        p.n_panels = many;
        double memory = 1e-9 * (double)bytes * many / time_product(&p);
        p.n_panels = CACHE_PANELS;
        p.n_rows = 16;
        double ops = 1e-9 * 2.0 * N * CACHE_PANELS * RVI_PANEL, few = 16 * ops / time_product(&p);
        p.n_rows = PROMPT;
        double prompt = PROMPT * ops / time_product(&p), tiled = 0;
        if (k->gemm_tiles[t] != NULL) {
            p.tiles = true;
            p.acts = tiles = acts_new(k, (rvi_qtype)t, x, PROMPT, N, true);
            tiled = PROMPT * ops / time_product(&p);
        }
        printf("%-8s %14.1f %14.1f %14.1f %14.1f %14.1f\n", rvi_qtypes[t].name, cache, memory, few,
               prompt, tiled);
        *check += (double)out[0];
        free(acts);
        free(tiles);
    }
    free(x);
    free(out);
    free(w);
}

static void bench_gemm_f32(const rvi_kernels *k, double *check)
{
    enum { N = 576 };
    float *w = floats_new(N * N), *x = floats_new(64 * N), *out = alloc(64 * N * sizeof *out);
    static const int n_x[] = {1, 4, 64};
    for (size_t i = 0; i < 3; i++) {
        double best = 1e9, begun = now();
        while (now() - begun < 0.3) {
            double start = now();
            k->gemm_f32(w, N, N, x, N, n_x[i], out, N, N);
            double seconds = now() - start;
            best = seconds < best ? seconds : best;
        }
        printf("gemm_f32 %d x %d, %2d rows: %.1f GFLOP/s\n", N, N, n_x[i],
               1e-9 * 2.0 * N * N * n_x[i] / best);
        *check += (double)out[0];
    }
    free(w);
    free(x);
    free(out);
}

/* Elementwise entries on rows of 1536, in billions of elements a second. */
static void bench_rows(const rvi_kernels *k, double *check)
{
    enum { N = 1536, OPS = 4 };
    static const char *const names[OPS] = {"quantize_act", "rms_norm", "silu_mul", "gelu_mul"};
    float *x = floats_new(N), *y = floats_new(N), *out = floats_new(N);
    rvi_act_block acts[N / 32];
    for (int op = 0; op < OPS; op++) {
        double best = 1e9, begun = now();
        while (now() - begun < 0.1) {
            double start = now();
            for (int i = 0; i < 100; i++) {
                if (op == 0) k->quantize_act(x, acts, N);
                if (op == 1) k->rms_norm(out, x, y, N, 1e-5f);
                if (op == 2) k->silu_mul(out, x, y, N);
                if (op == 3) k->gelu_mul(out, x, y, N);
            }
            double seconds = now() - start;
            best = seconds < best ? seconds : best;
        }
        printf("%-16s %.2f G elements/s\n", names[op], 1e-9 * 100.0 * N / best);
        *check += (double)acts[0].d + (double)out[0];
    }
    free(x);
    free(y);
    free(out);
}

/* A chunk of 256 keys of 64 elements, for 3 queries (decoding) and 48 (a prompt), from the
 * cache. */
static void bench_attention(const rvi_kernels *k, double *check)
{
    enum { N = 64, QUERIES = 48, PART = N + 16 };
    static const char *const names[RVI_ATTN_TYPES] = {"f32", "f16", "q8"};
    static const int n_queries[] = {3, QUERIES};
    float *q = floats_new(QUERIES * N), *part = alloc(QUERIES * PART * sizeof *part), d[QUERIES];
    int8_t *q8 = alloc(QUERIES * N);
    int32_t from[QUERIES] = {0}, end[QUERIES];
    uint8_t *planes = aligned_alloc(64, RVI_ATTN_PAGES * RVI_ATTN_PAGE * N * 2 * sizeof(float));
    if (!planes) exit(1);
    memset(planes, 0, RVI_ATTN_PAGES * RVI_ATTN_PAGE * N * 2 * sizeof(float));
    for (int i = 0; i < QUERIES; i++) {
        d[i] = k->quantize_head(q + i * N, q8 + i * N, N);
        end[i] = RVI_ATTN_CHUNK;
    }
    for (int type = 0; type < RVI_ATTN_TYPES; type++) {
        size_t k_bytes = rvi_attn_k_bytes((rvi_attn_type)type, N),
               v_bytes = rvi_attn_v_bytes((rvi_attn_type)type, N);
        rvi_attn_keys keys = {.n = N};
        for (size_t p = 0; p < RVI_ATTN_PAGES; p++) {
            keys.k[p] = planes + p * (k_bytes + v_bytes);
            keys.v[p] = keys.k[p] + k_bytes;
        }
        for (size_t i = 0; i < 2; i++) {
            rvi_attn_queries queries = {q, q8, d, from, end, n_queries[i]};
            double best = 1e9, begun = now();
            while (now() - begun < 0.1) {
                double start = now();
                for (int r = 0; r < 10; r++) k->attn_chunk[type](&keys, &queries, part, PART);
                double seconds = now() - start;
                best = seconds < best ? seconds : best;
            }
            double bytes = 10.0 * RVI_ATTN_PAGES * (double)(k_bytes + v_bytes);
            double products = 10.0 * 2 * N * RVI_ATTN_CHUNK * n_queries[i];
            printf("attention %s, %2d queries: %.1f GFLOP/s, %.1f GB/s\n", names[type],
                   n_queries[i], 2e-9 * products / best, 1e-9 * bytes / best);
            *check += (double)part[0];
        }
    }
    free(q);
    free(part);
    free(q8);
    free(planes);
}

int main(int argc, char **argv)
{
    rvi_kernels k;
    double check = 0;
    if (!rvi_kernels_init(&k, argc > 1 ? argv[1] : NULL)) {
        fprintf(stderr, "no ISA row named %s on this machine\n", argv[1]);
        return 1;
    }
    printf("isa: %s\n", k.isa);
    bench_gemm_f32(&k, &check);
    bench_rows(&k, &check);
    bench_attention(&k, &check);
    bench_products(&k, argc > 2 ? argv[2] : NULL, &check);
    printf("(check %g)\n", check);
    return 0;
}
