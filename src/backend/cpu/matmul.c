/* Products with weights, split over threads by output tiles. Each output element is computed whole
 * by one kernel call whose order the kernels' law fixes, so neither the split nor the number of
 * rows shows in the bits. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

enum {
    X_TILE = 48
}; /* input rows a kernel call goes over: they stay in cache while the weights stream by */

/* The new scratch is made before the old one goes: a failure leaves what others reserved. */
rv_status rvi_cpu_reserve(rvi_backend *be, int n_rows, int n_cols, rv_error *err)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    if (n_rows <= cpu->max_rows && n_cols <= cpu->max_cols) return RV_OK;
    rvi_cpu old = *cpu;
    size_t rows = (size_t)RVI_MAX(n_rows, cpu->max_rows);
    size_t cols = (size_t)RVI_MAX(n_cols, cpu->max_cols);
    size_t workers = (size_t)rvi_pool_size(cpu->pool);
    cpu->acts = rvi_alloc_array(rows * ((cols + 31) / 32), sizeof *cpu->acts);
    cpu->panel = rvi_zalloc_array(workers, sizeof *cpu->panel);
    cpu->low = rvi_alloc_array(workers * RVI_MAX_RANK, sizeof *cpu->low);
    bool ok = cpu->acts && cpu->panel && cpu->low;
    for (size_t i = 0; ok && i < workers; i++) {
        cpu->panel[i] = rvi_alloc_aligned(RVI_CPU_PANEL * cols * sizeof(float), 64);
        ok = cpu->panel[i] != NULL;
    }
    rvi_cpu_scratch_free(ok ? &old : cpu);
    if (!ok) {
        *cpu = old;
        return rvi_nomem(err, "matmul scratch");
    }
    cpu->max_rows = (int)rows;
    cpu->max_cols = (int)cols;
    return RV_OK;
}

void rvi_cpu_scratch_free(rvi_cpu *cpu)
{
    rvi_free(cpu->acts);
    for (int i = 0; cpu->panel && i < rvi_pool_size(cpu->pool); i++) rvi_free(cpu->panel[i]);
    rvi_free(cpu->panel);
    rvi_free(cpu->low);
    cpu->acts = NULL;
    cpu->panel = NULL;
    cpu->low = NULL;
    cpu->max_rows = cpu->max_cols = 0;
}

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols out, x;
    const rvi_tensor *w, *bias;
    int n_rows, tile;
} job;

static void quantize_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    (void)worker;
    size_t n = (size_t)j->x.n;
    j->cpu->k.quantize_act(rvi_cpu_row(j->x, task), j->cpu->acts + (size_t)task * (n / 32), n);
}

static void add_bias(const job *j, int first, int n)
{
    if (!j->bias) return;
    for (int r = 0; r < j->n_rows; r++)
        j->cpu->k.add(rvi_cpu_row(j->out, r) + first, j->bias->heap + first, (size_t)n);
}

/* int8 activations */
static void act_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    (void)worker;
    const rvi_tensor *w = j->w;
    int first = task * j->tile, n_w = RVI_MIN(j->tile, w->n_rows - first);
    size_t n = (size_t)w->n_cols, blocks = n / 32, stride = (size_t)j->out.t->n_cols;
    for (int r = 0; r < j->n_rows; r += X_TILE)
        j->cpu->k.gemm_act[w->type](w->data + (size_t)first * w->row_bytes, w->row_bytes, n_w,
                                    j->cpu->acts + (size_t)r * blocks, blocks,
                                    RVI_MIN(X_TILE, j->n_rows - r), rvi_cpu_row(j->out, r) + first,
                                    stride, n);
    add_bias(j, first, n_w);
}

/* f32 activations: a panel of weight rows becomes f32, then meets every input row */
static void float_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    const rvi_tensor *w = j->w;
    const rvi_kernels *k = &j->cpu->k;
    int first = task * j->tile, end = RVI_MIN(first + j->tile, w->n_rows);
    size_t n = (size_t)w->n_cols, x_stride = (size_t)j->x.t->n_cols,
           out_stride = (size_t)j->out.t->n_cols;
    /* f32 weights that stand at an address for floats are taken from there */
    bool as_is = w->type == RVI_F32 && (uintptr_t)w->data % sizeof(float) == 0;
    for (int at = first; at < end; at += RVI_CPU_PANEL) {
        int n_w = RVI_MIN(RVI_CPU_PANEL, end - at);
        const float *panel = j->cpu->panel[worker];
        if (as_is) panel = (const float *)(const void *)(w->data + (size_t)at * w->row_bytes);
        for (int i = 0; !as_is && i < n_w; i++)
            k->dequantize[w->type](w->data + (size_t)(at + i) * w->row_bytes,
                                   j->cpu->panel[worker] + (size_t)i * n, n);
        for (int r = 0; r < j->n_rows; r += X_TILE)
            k->gemm_f32(panel, n, n_w, rvi_cpu_row(j->x, r), x_stride,
                        RVI_MIN(X_TILE, j->n_rows - r), rvi_cpu_row(j->out, r) + at, out_stride, n);
    }
    add_bias(j, first, end - first);
}

void rvi_cpu_matmul(rvi_backend *be, rvi_cols out, const rvi_tensor *w, const rvi_tensor *bias,
                    rvi_cols x, int n_rows)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    job j = {.cpu = cpu, .out = out, .x = x, .w = w, .bias = bias, .n_rows = n_rows};
    bool act = !cpu->exact && cpu->k.gemm_act[w->type];
    /* a few tiles per thread, so that a slow thread does not hold up the rest */
    int tiles = rvi_pool_size(cpu->pool) * 8;
    j.tile = RVI_MAX((w->n_rows + tiles - 1) / tiles, 1);
    j.tile = (j.tile + 7) / 8 * 8;
    if (act) rvi_pool_run(cpu->pool, quantize_task, &j, n_rows);
    rvi_pool_run(cpu->pool, act ? act_task : float_task, &j, (w->n_rows + j.tile - 1) / j.tile);
}

/* ---- adapters: out += scale * B (A x), always in f32 ---- */

typedef struct lora_job {
    rvi_cpu *cpu;
    rvi_cols out, x;
    const rvi_tensor *a, *b;
    float scale;
    const int32_t *rows;
} lora_job;

static void lora_task(void *ctx, int task, int worker)
{
    lora_job *j = ctx;
    const rvi_kernels *k = &j->cpu->k;
    float *low = j->cpu->low + (size_t)worker * RVI_MAX_RANK;
    int rank = j->a->n_rows;
    const float *x = rvi_cpu_row(j->x, j->rows[task]);
    float *out = rvi_cpu_row(j->out, j->rows[task]);
    k->gemm_f32(j->a->heap, (size_t)j->a->n_cols, rank, x, 0, 1, low, 0, (size_t)j->a->n_cols);
    k->scale(low, j->scale, (size_t)rank);
    float *delta = j->cpu->panel[worker];
    for (int at = 0; at < j->b->n_rows; at += RVI_CPU_PANEL) {
        int n = RVI_MIN(RVI_CPU_PANEL, j->b->n_rows - at);
        k->gemm_f32(j->b->heap + (size_t)at * (size_t)rank, (size_t)rank, n, low, 0, 1, delta, 0,
                    (size_t)rank);
        k->add(out + at, delta, (size_t)n);
    }
}

void rvi_cpu_lora(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *a,
                  const rvi_tensor *b, float scale, const int32_t *rows, int n_rows)
{
    lora_job j = {
        .cpu = rvi_cpu_of(be), .out = out, .x = x, .a = a, .b = b, .scale = scale, .rows = rows};
    rvi_pool_run(j.cpu->pool, lora_task, &j, n_rows);
}
