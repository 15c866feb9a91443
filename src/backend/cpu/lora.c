/* Adapters in a batch: out += scale * B (A x), always in f32.
 *
 * A x is few long sums (gemm_f32), B of it many short ones (gemm_low, B in panels of 16 outputs).
 * Both orders are fixed by the matrices' sizes: neither the rows that go together nor the threads
 * change a row's bits. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

static int count_panels(const rvi_tensor *b)
{
    return (b->n_rows + RVI_PANEL - 1) / RVI_PANEL;
}

size_t rvi_cpu_low_bytes(const rvi_tensor *b)
{
    return (size_t)count_panels(b) * RVI_PANEL * (size_t)b->n_cols * sizeof(float);
}

/* Outputs past the last are zeros. */
static void turn_panel(const rvi_tensor *b, int panel, float *out)
{
    int rank = b->n_cols, first = panel * RVI_PANEL, n = RVI_MIN(RVI_PANEL, b->n_rows - first);
    if (n < RVI_PANEL) memset(out, 0, (size_t)rank * RVI_PANEL * sizeof *out);
    for (int i = 0; i < n; i++) {
        const float *row = b->heap + (size_t)(first + i) * (size_t)b->stride;
        for (int k = 0; k < rank; k++) out[k * RVI_PANEL + i] = row[k];
    }
}

rv_status rvi_cpu_lora_pack(rvi_backend *be, rvi_tensor *b, rv_error *err)
{
    size_t bytes = rvi_cpu_low_bytes(b), panel = RVI_PANEL * (size_t)b->n_cols;
    b->low_panels = rvi_alloc_aligned(bytes, 64);
    if (!b->low_panels) return rvi_nomem(err, "adapter");
    for (int p = 0; p < count_panels(b); p++) turn_panel(b, p, b->low_panels + (size_t)p * panel);
    atomic_fetch_add(&be->memory->weights, bytes);
    return RV_OK;
}

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols x;
    const rvi_lora_group *groups;
    int rows_a_task;
} job;

static int tasks_of(const job *j, const rvi_lora_group *g)
{
    return (g->n_rows + j->rows_a_task - 1) / j->rows_a_task;
}

/* How many of the rows, no more than `most`, lie evenly apart: the kernels take those at once. */
static int even_rows(const int32_t *rows, int most)
{
    int n = RVI_MIN(most, 2);
    while (n < most && rows[n] - rows[n - 1] == rows[1] - rows[0]) n++;
    return n;
}

static void multiply(const job *j, const rvi_lora_product *p, const int32_t *rows, int n_rows,
                     int worker)
{
    const rvi_kernels *k = &j->cpu->k;
    float *low = j->cpu->low + (size_t)worker * RVI_LORA_ROWS * RVI_MAX_RANK;
    int rank = p->a->n_rows;
    size_t step = n_rows > 1 ? (size_t)(rows[1] - rows[0]) : 0;
    size_t x_stride = step * (size_t)j->x.t->stride, stride = step * (size_t)p->out.t->stride;
    float *out = rvi_cpu_row(p->out, rows[0]);
    k->gemm_f32(p->a->heap, (size_t)p->a->n_cols, rank, rvi_cpu_row(j->x, rows[0]), x_stride,
                n_rows, low, (size_t)rank, (size_t)p->a->n_cols);
    k->scale(low, p->scale, (size_t)(n_rows * rank));
    if (p->b->low_panels) {
        k->gemm_low(p->b->low_panels, p->b->n_rows, low, (size_t)rank, n_rows, out, stride,
                    (size_t)rank);
        return;
    }
    float *panel = j->cpu->panel[worker];
    for (int i = 0; i < count_panels(p->b); i++) {
        int first = i * RVI_PANEL;
        turn_panel(p->b, i, panel);
        k->gemm_low(panel, RVI_MIN(RVI_PANEL, p->b->n_rows - first), low, (size_t)rank, n_rows,
                    out + first, stride, (size_t)rank);
    }
}

/* A task has some rows of one group. */
static void lora_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_lora_group *g = j->groups;
    for (; task >= tasks_of(j, g); g++) task -= tasks_of(j, g);
    int first = task * j->rows_a_task, end = RVI_MIN(first + j->rows_a_task, g->n_rows);
    for (int r = first, n; r < end; r += n) {
        n = even_rows(g->rows + r, RVI_MIN(end - r, RVI_LORA_ROWS));
        for (int i = 0; i < g->n_products; i++)
            multiply(j, &g->products[i], g->rows + r, n, worker);
    }
}

void rvi_cpu_lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups)
{
    enum { WORTH_WAKING = 1 << 15 }; /* multiplications */
    rvi_cpu *cpu = rvi_cpu_of(be);
    int n_rows = 0, n_tasks = 0, threads = rvi_pool_size(cpu->pool);
    int64_t work = 0;
    for (int i = 0; i < n_groups; i++) {
        const rvi_lora_group *g = &groups[i];
        n_rows += g->n_rows;
        for (int p = 0; p < g->n_products; p++)
            work +=
                (int64_t)g->n_rows * g->products[p].a->n_rows * (x.n + g->products[p].b->n_rows);
    }
    job j = {cpu, x, groups, RVI_MIN((n_rows + threads - 1) / threads, RVI_LORA_ROWS)};
    for (int i = 0; i < n_groups; i++) n_tasks += tasks_of(&j, &groups[i]);
    if (work >= WORTH_WAKING)
        rvi_pool_run(cpu->pool, lora_task, &j, n_tasks);
    else
        for (int i = 0; i < n_tasks; i++) lora_task(&j, i, 0);
}
