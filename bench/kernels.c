/* kernels.c - speed of the kernel table on one core: `make bench`, or build/bench/kernels [isa].
 *
 * Weight sets: `cache` stays in the second level cache, `memory` is larger than common last level caches. Best
 * of several repetitions, because other programs can only make a run slower. Results are summed and printed,
 * so no work can be left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/kernels.h"

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
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

/* Random bytes with every top bit of 16 clear, so that no f16 scale is infinite or NaN. */
static uint8_t *blocks_new(size_t bytes)
{
    uint8_t *w = alloc(bytes);
    for (size_t i = 0; i < bytes; i++) w[i] = (uint8_t)rvi_rng_u64(&rng) & 0x3f;
    return w;
}

/* Best seconds of one pass over all weights: tiles of 64 weight rows against all activation rows, as the
 * backend does. */
static double time_gemm_act(const rvi_kernels *k, rvi_qtype t, const uint8_t *w, int n_w, const rvi_act_block *x,
                            int n_x, size_t n, float *out)
{
    size_t row_bytes = rvi_qtype_row_bytes(t, n);
    double best = 1e9, begun = now();
    while (now() - begun < 0.3) {
        double start = now();
        for (int iw = 0; iw < n_w; iw += 64) {
            int rows = n_w - iw < 64 ? n_w - iw : 64;
            k->gemm_act[t](w + (size_t)iw * row_bytes, row_bytes, rows, x, n / 32, n_x, out + iw, (size_t)n_w, n);
        }
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void bench_gemm_act(const rvi_kernels *k, double *check)
{
    enum { N = 1536, CACHE_ROWS = 576, MEMORY_BYTES = 160 << 20, PREFILL = 64 };
    float *x = floats_new(PREFILL * N), *out = alloc((size_t)MEMORY_BYTES / 256 * PREFILL * sizeof *out);
    rvi_act_block *acts = alloc(PREFILL * N / 32 * sizeof *acts);
    uint8_t *w = blocks_new(MEMORY_BYTES);
    k->quantize_act(x, acts, PREFILL * N);
    printf("gemm_act, n = %d\n%-8s %22s %22s %22s\n", N, "", "cache, 1 row, GB/s", "memory, 1 row, GB/s",
           "cache, 64 rows, GOP/s");
    for (int t = 0; t < RVI_QTYPE_COUNT; t++) {
        if (k->gemm_act[t] == NULL) continue;
        size_t row_bytes = rvi_qtype_row_bytes((rvi_qtype)t, N);
        int many = (int)(MEMORY_BYTES / row_bytes);
        double cache = time_gemm_act(k, (rvi_qtype)t, w, CACHE_ROWS, acts, 1, N, out);
        double memory = time_gemm_act(k, (rvi_qtype)t, w, many, acts, 1, N, out);
        double prefill = time_gemm_act(k, (rvi_qtype)t, w, CACHE_ROWS, acts, PREFILL, N, out);
        printf("%-8s %22.1f %22.1f %22.1f\n", rvi_qtypes[t].name, 1e-9 * (double)row_bytes * CACHE_ROWS / cache,
               1e-9 * (double)row_bytes * many / memory, 1e-9 * 2.0 * N * CACHE_ROWS * PREFILL / prefill);
        *check += (double)out[0];
    }
    free(x);
    free(out);
    free(acts);
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
        printf("gemm_f32 %d x %d, %2d rows: %.1f GFLOP/s\n", N, N, n_x[i], 1e-9 * 2.0 * N * N * n_x[i] / best);
        *check += (double)out[0];
    }
    free(w);
    free(x);
    free(out);
}

/* Elementwise entries on rows of 1536, in billions of elements a second. */
static void bench_rows(const rvi_kernels *k, double *check)
{
    enum { N = 1536, OPS = 6 };
    static const char *const names[OPS] = {"quantize_act", "rms_norm",       "silu_mul",
                                           "gelu_mul",     "attn_score_f16", "attn_mix_f16"};
    float *x = floats_new(N), *y = floats_new(N), *out = floats_new(N), score[32] = {0};
    rvi_f16 *h = alloc(32 * 64 * sizeof *h);
    rvi_act_block acts[N / 32];
    k->f32_to_f16(x, h, N);
    memset(h + N, 0, (32 * 64 - N) * sizeof *h);
    for (int op = 0; op < OPS; op++) {
        double best = 1e9, begun = now();
        while (now() - begun < 0.1) {
            double start = now();
            for (int i = 0; i < 100; i++) {
                if (op == 0) k->quantize_act(x, acts, N);
                if (op == 1) k->rms_norm(out, x, y, N, 1e-5f);
                if (op == 2) k->silu_mul(out, x, y, N);
                if (op == 3) k->gelu_mul(out, x, y, N);
                if (op == 4) k->attn_score_f16(x, h, 24, 64, score);
                if (op == 5) k->attn_mix_f16(out, y, h, 24, 64);
            }
            double seconds = now() - start;
            best = seconds < best ? seconds : best;
        }
        printf("%-16s %.2f G elements/s\n", names[op], 1e-9 * 100.0 * N / best);
        *check += (double)acts[0].d + (double)score[0];
        if (op < 5) *check += (double)out[0]; /* the mix adds up over a number of rounds that varies */
    }
    free(x);
    free(y);
    free(out);
    free(h);
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
    bench_gemm_act(&k, &check);
    printf("(check %g)\n", check);
    return 0;
}
