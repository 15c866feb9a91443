/* Adapters in a batch: out += scale * B (A x).
 *
 * A x is few long sums (gemm_bytes), B of it many short ones (gemm_low_bytes, panels of 16
 * outputs). Both orders are fixed by the matrices' sizes: neither the rows that go together nor the
 * threads change a row's bits. With an adapter for each row, reading the matrices is nearly all of
 * the work: a sealed adapter has them in 8 bits, one behind the other as a pass reads them. Without
 * that they are in 16 bits, and in exact mode, where nothing is packed, in f32. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

static int count_panels(const rvi_tensor *b)
{
    return (b->n_rows + RVI_PANEL - 1) / RVI_PANEL;
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

/* The power of 2 by which the matrix goes into f16. Without their signs, floats are ordered as the
 * integers of their bits. */
static int exponent_for(const rvi_tensor *m)
{
    enum { LANES = 16, F16_TOP = 15 /* rounding cannot leave f16 */, MOST = 100 };
    uint32_t lanes[LANES] = {0};
    size_t n = (size_t)m->n_rows * (size_t)m->n_cols, i = 0;
    for (; i + LANES <= n; i += LANES) {
        uint32_t bits[LANES];
        memcpy(bits, m->heap + i, sizeof bits);
        for (int l = 0; l < LANES; l++) bits[l] &= INT32_MAX;
        for (int l = 0; l < LANES; l++) lanes[l] = lanes[l] > bits[l] ? lanes[l] : bits[l];
    }
    for (uint32_t bits; i < n; i++) {
        memcpy(&bits, m->heap + i, sizeof bits);
        lanes[0] = RVI_MAX(lanes[0], bits & INT32_MAX);
    }
    for (int l = 1; l < LANES; l++) lanes[0] = RVI_MAX(lanes[0], lanes[l]);
    float most;
    int exponent;
    memcpy(&most, lanes, sizeof most);
    (void)frexpf(most, &exponent);
    return most > 0 ? RVI_MAX(-MOST, RVI_MIN(F16_TOP - exponent, MOST)) : 0;
}

rv_status rvi_cpu_lora_pack(rvi_backend *be, rvi_tensor *m, bool is_b, rv_error *err)
{
    const rvi_cpu *cpu = rvi_cpu_of(be);
    if (cpu->exact) return RV_OK;
    int exponent = exponent_for(m), n_pieces = is_b ? count_panels(m) : m->n_rows;
    size_t len = is_b ? RVI_PANEL * (size_t)m->n_cols : (size_t)m->n_cols;
    size_t bytes = (size_t)n_pieces * len * sizeof *m->half;
    float *piece = rvi_alloc_array(len, sizeof *piece);
    m->half = piece ? rvi_alloc_aligned(bytes, 64) : NULL;
    if (!m->half) {
        rvi_free(piece);
        return rvi_nomem(err, "adapter");
    }
    for (int i = 0; i < n_pieces; i++) {
        if (is_b)
            turn_panel(m, i, piece);
        else
            memcpy(piece, m->heap + (size_t)i * (size_t)m->stride, len * sizeof *piece);
        cpu->k.scale(piece, ldexpf(1, exponent), len);
        cpu->k.f32_to_f16(piece, m->half + (size_t)i * len, len);
    }
    rvi_free(piece);
    m->half_bytes = bytes;
    m->half_scale = ldexpf(1, -exponent);
    atomic_fetch_add(&be->memory->weights, bytes);
    return RV_OK;
}

void rvi_cpu_lora_drop_half(rvi_tensor *m)
{
    if (m->half) atomic_fetch_sub(m->counted, m->half_bytes);
    rvi_free(m->half);
    m->half = NULL;
}

/* ---- sealed ---- */

static size_t to_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t padded(const rvi_tensor *a)
{
    return ((size_t)a->n_cols + 15) / 16 * 16;
}

static size_t bytes_of_a(const rvi_tensor *a)
{
    return to_lines((size_t)a->n_rows * padded(a));
}

static size_t bytes_of_b(const rvi_tensor *b)
{
    return to_lines((size_t)count_panels(b) * RVI_PANEL * (size_t)b->n_cols);
}

size_t rvi_cpu_lora_bytes(rvi_backend *be, const rvi_tensor *a, const rvi_tensor *b)
{
    if (rvi_cpu_of(be)->exact) return 0;
    return bytes_of_a(a) + to_lines((size_t)a->n_rows * sizeof(float)) + bytes_of_b(b) +
           to_lines((size_t)count_panels(b) * sizeof(float));
}

/* The rows of A, each with its own scale, in groups: 16 inputs of all rows of a group, and so on.
 * row: room for one of them */
static void seal_a(const rvi_cpu *cpu, const rvi_tensor *a, int8_t *out, float *factors,
                   int8_t *row)
{
    for (int r = 0; r < a->n_rows; r++) {
        int first = r / RVI_BYTES_GROUP * RVI_BYTES_GROUP;
        size_t group = (size_t)RVI_MIN(RVI_BYTES_GROUP, a->n_rows - first);
        int8_t *to = out + (size_t)first * padded(a) + 16 * (r - first);
        factors[r] =
            cpu->k.quantize_head(a->heap + (size_t)r * (size_t)a->stride, row, (size_t)a->n_cols);
        for (size_t i = 0; i < padded(a); i += 16) memcpy(to + i * group, row + i, 16);
    }
}

/* The largest magnitude in each column: columns go into 8 bits as if all were as large. */
static void find_columns(const rvi_tensor *b, float *columns)
{
    memset(columns, 0, (size_t)b->n_cols * sizeof *columns);
    for (int i = 0; i < b->n_rows; i++) {
        const float *row = b->heap + (size_t)i * (size_t)b->stride;
        for (int k = 0; k < b->n_cols; k++) columns[k] = RVI_MAX(columns[k], fabsf(row[k]));
    }
}

/* The panels of B, each with its own scale. panel: room for one of them */
static void seal_b(const rvi_cpu *cpu, const rvi_tensor *b, const float *columns, int8_t *out,
                   float *scales, float *panel)
{
    size_t len = RVI_PANEL * (size_t)b->n_cols;
    for (int i = 0; i < count_panels(b); i++) {
        turn_panel(b, i, panel);
        for (int k = 0; k < b->n_cols; k++)
            if (columns[k] > 0) cpu->k.scale(panel + RVI_PANEL * k, 1 / columns[k], RVI_PANEL);
        scales[i] = cpu->k.quantize_head(panel, out + (size_t)i * len, len);
    }
}

rv_status rvi_cpu_lora_seal(rvi_backend *be, rvi_pack *p, rvi_tensor *a, rvi_tensor *b,
                            rv_error *err)
{
    const rvi_cpu *cpu = rvi_cpu_of(be);
    size_t bytes = rvi_cpu_lora_bytes(be, a, b), rank = (size_t)b->n_cols;
    if (!bytes || bytes > p->size - p->used) return RV_OK;
    float *columns = rvi_alloc_array((RVI_PANEL + 1) * rank, sizeof *columns);
    int8_t *row = rvi_alloc_array(padded(a), 1);
    if (columns && row) {
        int8_t *to = (int8_t *)p->data + p->used;
        float *factors = (float *)(void *)(to + bytes_of_a(a));
        seal_a(cpu, a, to, factors, row);
        find_columns(b, columns);
        for (size_t k = 0; k < rank; k++)
            if (columns[k] > 0) factors[k] *= columns[k];
        a->bytes = to;
        a->factors = factors;
        to = (int8_t *)factors + to_lines(rank * sizeof(float));
        factors = (float *)(void *)(to + bytes_of_b(b));
        seal_b(cpu, b, columns, to, factors, columns + rank);
        b->bytes = to;
        b->factors = factors;
        p->used += bytes;
        rvi_cpu_lora_drop_half(a);
        rvi_cpu_lora_drop_half(b);
    }
    bool made = columns && row;
    rvi_free(columns);
    rvi_free(row);
    return made ? RV_OK : rvi_nomem(err, "adapter");
}

/* ---- products ---- */

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols x;
    const rvi_lora_group *groups;
    int n_groups, rows_a_task;
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

static float scale_of(const rvi_tensor *m)
{
    return m->half ? m->half_scale : 1;
}

/* Matrices are too short for the processor to predict which comes next. Of a sealed adapter the
 * kernels ask for the rest. */
static void ask_for(const rvi_tensor *m)
{
    enum { LINE = 64, START = 2048 };
    for (size_t i = 0; m->bytes && i < START; i += LINE)
        __builtin_prefetch((const int8_t *)m->bytes + i);
    for (size_t i = 0; m->half && i < m->half_bytes; i += LINE)
        __builtin_prefetch((const uint8_t *)m->half + i, 0, 2);
}

/* next: what this thread will probably compute after it */
static void multiply(const job *j, const rvi_lora_product *p, const rvi_lora_product *next,
                     const int32_t *rows, int n_rows, int worker)
{
    const rvi_kernels *k = &j->cpu->k;
    float *low = j->cpu->low + (size_t)worker * RVI_LORA_ROWS * RVI_MAX_RANK;
    int rank = p->a->n_rows;
    size_t step = n_rows > 1 ? (size_t)(rows[1] - rows[0]) : 0;
    size_t x_stride = step * (size_t)j->x.t->stride, stride = step * (size_t)p->out.t->stride;
    float *out = rvi_cpu_row(p->out, rows[0]);
    if (p->a->bytes) {
        k->gemm_bytes(p->a->bytes, rank, rvi_cpu_row(j->x, rows[0]), x_stride, n_rows, low,
                      (size_t)rank, (size_t)p->a->n_cols);
        for (int r = 0; r < n_rows; r++)
            for (int i = 0; i < rank; i++) low[r * rank + i] *= p->a->factors[i] * p->scale;
        k->gemm_low_bytes(p->b->bytes, p->b->factors, p->b->n_rows, low, (size_t)rank, n_rows, out,
                          stride, (size_t)rank);
        return;
    }
    if (next) ask_for(next->a);
    if (p->a->half)
        k->gemm_f16(p->a->half, (size_t)p->a->n_cols, rank, rvi_cpu_row(j->x, rows[0]), x_stride,
                    n_rows, low, (size_t)rank, (size_t)p->a->n_cols);
    else
        k->gemm_f32(p->a->heap, (size_t)p->a->n_cols, rank, rvi_cpu_row(j->x, rows[0]), x_stride,
                    n_rows, low, (size_t)rank, (size_t)p->a->n_cols);
    k->scale(low, p->scale * scale_of(p->a) * scale_of(p->b), (size_t)(n_rows * rank));
    if (next) ask_for(next->b);
    if (p->b->half) {
        k->gemm_low_f16(p->b->half, p->b->n_rows, low, (size_t)rank, n_rows, out, stride,
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
        for (int i = 0; i < g->n_products; i++) {
            const rvi_lora_product *next = &g->products[i + 1];
            if (i + 1 == g->n_products) {
                next = r + n == end && g + 1 < j->groups + j->n_groups ? g[1].products : NULL;
                if (next && next->a->bytes) ask_for(next->a);
            }
            multiply(j, &g->products[i], next, g->rows + r, n, worker);
        }
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
    job j = {cpu, x, groups, n_groups, RVI_MIN((n_rows + threads - 1) / threads, RVI_LORA_ROWS)};
    for (int i = 0; i < n_groups; i++) n_tasks += tasks_of(&j, &groups[i]);
    if (work >= WORTH_WAKING)
        rvi_pool_run(cpu->pool, lora_task, &j, n_tasks);
    else
        for (int i = 0; i < n_tasks; i++) lora_task(&j, i, 0);
}
