/* Products with weights, split over threads by panels of 16 outputs and by rows. Each output
 * element is computed whole by one kernel call whose order the kernels' law fixes, so neither the
 * split nor the number of rows changes the bits. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/train.h"
#include "base/mem.h"
#include "base/os.h"

enum {
    ACTS_IN_CACHE = 1 << 20, /* bytes of activations that panels go over before the next ones */
    ROWS_A_TASK = 16,        /* of norms and of preparing activations: a group for tiles */
    TILE_ROWS = 16,          /* tiles take whole groups; the other rows go through panels */
    MAX_TASKS_A_THREAD = 8,
    PACK_PIECE = 16 << 20, /* bytes packed between two times that file pages are given back */
    EDGE_ROWS = 32,        /* rows whose results for the last, partial panel go through a buffer */
    RESULT_ROWS = 256,     /* results that wait in cache to be added or gated: rows, */
    RESULT_PANELS = 4,     /* and panels */
    ROWS_AHEAD = 8,        /* from the row of results that is written to the one asked for */
    CACHE_LINE_FLOATS = 16,
    PANELS_A_CALL = 24 /* of a large product, between two looks at whether to stop */
};

/* ---- scratch ---- */

static rvi_cpu_form form_of(rvi_qtype type)
{
    switch (type) {
    case RVI_F32: return RVI_FORM_F32;
    case RVI_F16: return RVI_FORM_F16;
    case RVI_BF16: return RVI_FORM_BF16;
    default: return rvi_qtypes[type].block_weights == 256 ? RVI_FORM_WIDE : RVI_FORM_NARROW;
    }
}

/* Rows and panels are prepared in steps of 32 or 256 columns: the last one is written whole. */
static size_t whole_steps(size_t cols)
{
    return (cols + 255) / 256 * 256;
}

/* Scratch for the activations of one form; adds its size to *bytes. */
static bool reserve_form(rvi_cpu *cpu, rvi_cpu_form form, size_t rows, size_t cols, size_t *bytes)
{
    static const rvi_qtype types[RVI_FORM_COUNT] = {RVI_Q4_0, RVI_Q4_K, RVI_F32, RVI_F16, RVI_BF16};
    rvi_qtype type = types[form];
    size_t n = whole_steps(cols);
    cpu->acts[form] = cpu->tiles[form] = NULL;
    if (form == RVI_FORM_NARROW) cpu->ahead = NULL;
    if (!cpu->wanted[form]) return true;
    cpu->acts[form] = rvi_alloc_aligned(rows * rvi_act_bytes(type, n), 64);
    *bytes += rows * rvi_act_bytes(type, n);
    if (!cpu->k.gemm_tiles[type] || rows < TILE_ROWS) return cpu->acts[form] != NULL;
    cpu->tiles[form] = rvi_alloc_aligned(rows / 16 * rvi_tile_act_bytes(type, n), 64);
    *bytes += rows / 16 * rvi_tile_act_bytes(type, n);
    if (form == RVI_FORM_NARROW) {
        cpu->ahead = rvi_alloc_aligned(rows / 16 * rvi_tile_act_bytes(type, n), 64);
        *bytes += rows / 16 * rvi_tile_act_bytes(type, n);
        if (!cpu->ahead) return false;
    }
    return cpu->acts[form] && cpu->tiles[form];
}

/* Has every form that is wanted its place? */
static bool has_forms(const rvi_cpu *cpu)
{
    for (int f = 0; f < RVI_FORM_COUNT; f++)
        if (cpu->wanted[f] && !cpu->acts[f]) return false;
    return true;
}

/* The new scratch is made before the old one goes: a failure leaves what others reserved. */
rv_status rvi_cpu_reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    for (int t = 0; t < RVI_QTYPE_COUNT; t++)
        if (types >> t & 1) cpu->wanted[form_of((rvi_qtype)t)] = true;
    if (n_rows <= cpu->max_rows && n_cols <= cpu->max_cols && has_forms(cpu)) return RV_OK;
    rvi_cpu old = *cpu;
    size_t rows = (size_t)RVI_MAX(n_rows, cpu->max_rows);
    size_t cols = (size_t)RVI_MAX(n_cols, cpu->max_cols);
    size_t workers = (size_t)rvi_pool_size(cpu->pool);
    size_t panel_bytes = RVI_CPU_PANEL * whole_steps(cols) * sizeof(float);
    size_t result_bytes = sizeof(float) * 2 * RESULT_ROWS * RESULT_PANELS * RVI_PANEL;
    size_t bytes =
        workers * (panel_bytes + result_bytes + RVI_LORA_ROWS * RVI_MAX_RANK * sizeof(float));
    bool ok = true;
    for (int f = 0; f < RVI_FORM_COUNT; f++)
        ok = reserve_form(cpu, (rvi_cpu_form)f, rows, cols, &bytes) && ok;
    cpu->panel = rvi_zalloc_array(workers, sizeof *cpu->panel);
    cpu->result = rvi_zalloc_array(workers, sizeof *cpu->result);
    cpu->low = rvi_alloc_array(workers * RVI_LORA_ROWS * RVI_MAX_RANK, sizeof *cpu->low);
    ok = ok && cpu->panel && cpu->result && cpu->low;
    for (size_t i = 0; ok && i < workers; i++) {
        cpu->panel[i] = rvi_alloc_aligned(panel_bytes, 64);
        cpu->result[i] = rvi_alloc_aligned(result_bytes, 64);
        ok = cpu->panel[i] && cpu->result[i];
    }
    rvi_cpu_scratch_free(ok ? &old : cpu);
    if (!ok) {
        *cpu = old;
        return rvi_nomem(err, "matmul scratch");
    }
    atomic_fetch_add(&be->memory->scratch, bytes - cpu->reserved_bytes);
    cpu->reserved_bytes = bytes;
    cpu->max_rows = (int)rows;
    cpu->max_cols = (int)cols;
    return RV_OK;
}

size_t rvi_backend_cpu_scratch(const rvi_backend *be)
{
    const rvi_cpu *cpu = (const rvi_cpu *)be;
    return cpu->reserved_bytes + (cpu->train ? cpu->train->bytes : 0);
}

void rvi_cpu_scratch_free(rvi_cpu *cpu)
{
    for (int f = 0; f < RVI_FORM_COUNT; f++) {
        rvi_free(cpu->acts[f]);
        rvi_free(cpu->tiles[f]);
        cpu->acts[f] = cpu->tiles[f] = NULL;
    }
    rvi_free(cpu->ahead);
    cpu->ahead = NULL;
    for (int i = 0; cpu->panel && cpu->result && i < rvi_pool_size(cpu->pool); i++) {
        rvi_free(cpu->panel[i]);
        rvi_free(cpu->result[i]);
    }
    rvi_free(cpu->panel);
    rvi_free(cpu->result);
    rvi_free(cpu->low);
    cpu->panel = NULL;
    cpu->result = NULL;
    cpu->low = NULL;
    cpu->max_rows = cpu->max_cols = 0;
}

/* ---- packing ---- */

static int count_panels(const rvi_tensor *t)
{
    return (t->n_rows + RVI_PANEL - 1) / RVI_PANEL;
}

/* Are the activations of products with these weights prepared (int8, bf16)? Exact mode takes them
 * as they are. */
static bool wants_prepared(const rvi_cpu *cpu, rvi_qtype type)
{
    return !cpu->exact && (cpu->k.gemm_panels[type] || cpu->k.gemm_act[type]);
}

/* Why these weights are not packed; NULL: they are. */
static const char *why_not_packed(const rvi_cpu *cpu, rvi_qtype type)
{
    if (cpu->exact) return "exact: each weight becomes an f32 when it is used";
    if (cpu->no_pack) return "no-pack: opens faster, computes slower";
    if (!cpu->k.gemm_panels[type]) return "the kernels of this instruction set take them so";
    return NULL;
}

rvi_products_form rvi_backend_cpu_products(const rvi_backend *be, rvi_qtype type)
{
    static const char *const forms[RVI_FORM_COUNT] = {
        [RVI_FORM_NARROW] = "int8 in blocks of 32",
        [RVI_FORM_WIDE] = "int8 in blocks of 256",
        [RVI_FORM_F32] = "f32",
        [RVI_FORM_F16] = "f32",
        [RVI_FORM_BF16] = "bf16 halves",
    };
    const rvi_cpu *cpu = (const rvi_cpu *)be;
    const char *why = why_not_packed(cpu, type);
    bool prepared = wants_prepared(cpu, type);
    return (rvi_products_form){
        .weights = why ? "as in the file" : "packed",
        .weights_why = why ? why : "panels of 16 outputs are read faster than rows",
        .activations = prepared ? forms[form_of(type)] : "f32",
        .activations_why = prepared     ? "what the products with these weights take"
                           : cpu->exact ? "exact"
                                        : "this instruction set has no other product"};
}

size_t rvi_cpu_pack_bytes(rvi_backend *be, const rvi_tensor *t)
{
    if (t->panels || why_not_packed(rvi_cpu_of(be), t->type)) return 0;
    return (size_t)count_panels(t) * rvi_panel_bytes(t->type, (size_t)t->n_cols);
}

/* One piece of memory for all weights, so that the system can back it by huge pages. */
rv_status rvi_cpu_pack_new(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err)
{
    rvi_pack *p = *out = rvi_zalloc(sizeof *p);
    if (p) p->data = rvi_os_alloc_large(bytes);
    if (p && p->data) {
        p->size = bytes;
        atomic_fetch_add(&be->memory->weights, bytes);
        return RV_OK;
    }
    rvi_free(p);
    *out = NULL;
    return rvi_nomem(err, "packed weights");
}

void rvi_cpu_pack_free(rvi_backend *be, rvi_pack *p)
{
    if (!p) return;
    atomic_fetch_sub(&be->memory->weights, p->size);
    rvi_free(p->data);
    rvi_free(p);
}

typedef struct pack_job {
    const rvi_cpu *cpu;
    const rvi_tensor *t;
    uint8_t *panels;
    size_t panel_bytes;
    int first; /* panel of this piece */
} pack_job;

static void pack_panel(const rvi_cpu *cpu, const rvi_tensor *t, int panel, void *out)
{
    int first = panel * RVI_PANEL;
    cpu->k.pack[t->type](t->data + (size_t)first * t->row_bytes, t->row_bytes,
                         RVI_MIN(RVI_PANEL, t->n_rows - first), out, (size_t)t->n_cols);
}

static void pack_task(void *ctx, int task, int worker)
{
    pack_job *j = ctx;
    (void)worker;
    int panel = j->first + task;
    pack_panel(j->cpu, j->t, panel, j->panels + (size_t)panel * j->panel_bytes);
}

void rvi_cpu_pack(rvi_backend *be, rvi_pack *p, rvi_tensor *t)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    size_t bytes = rvi_cpu_pack_bytes(be, t);
    if (!bytes || bytes > p->size - p->used) return;
    pack_job j = {.cpu = cpu,
                  .t = t,
                  .panels = p->data + p->used,
                  .panel_bytes = rvi_panel_bytes(t->type, (size_t)t->n_cols)};
    /* a mapped file's pages are given back piece by piece, so that a large matrix is not in memory
     * twice */
    const int step = RVI_MAX((int)(PACK_PIECE / j.panel_bytes), 1);
    for (j.first = 0; j.first < count_panels(t); j.first += step) {
        int n = RVI_MIN(step, count_panels(t) - j.first),
            end = RVI_MIN((j.first + n) * RVI_PANEL, t->n_rows);
        rvi_pool_run_all(cpu->pool, pack_task, &j, n); /* beside a step of another thread */
        if (t->mapped) rvi_os_release_mapped(t->data, (size_t)end * t->row_bytes);
    }
    t->panels = j.panels;
    p->used += bytes;
}

/* ---- products ---- */

typedef struct job {
    rvi_cpu *cpu;
    const rvi_matmul *m;
    rvi_cols x;                        /* what the products take: m->x or m->normed */
    int n_tiled;                       /* first rows, that tiles take */
    bool own_norm;                     /* their norm goes no further than the worker's memory */
    bool ready;                        /* the call before prepared them */
    bool ahead;                        /* this one prepares them for the next */
    rvi_qtype prepare[RVI_FORM_COUNT]; /* a type of each form wanted, or RVI_QTYPE_COUNT */
    int n_units, units_a_task;         /* unit: a panel; of gated products a panel of both parts */
    int rows_a_task;
} job;

/* The prepared activations of row r; for tiles r is the first row of a group. */
static uint8_t *acts_at(const job *j, rvi_qtype type, int r)
{
    size_t n = (size_t)j->x.n;
    rvi_cpu_form form = form_of(type);
    return r < j->n_tiled ? j->cpu->tiles[form] + (size_t)(r / 16) * rvi_tile_act_bytes(type, n)
                          : j->cpu->acts[form] + (size_t)(r - j->n_tiled) * rvi_act_bytes(type, n);
}

static void prepare_row(const rvi_kernels *k, rvi_qtype type, const float *x, void *out, size_t n)
{
    switch (form_of(type)) {
    case RVI_FORM_NARROW: k->quantize_act(x, out, n); break;
    case RVI_FORM_WIDE: k->quantize_wide(x, out, n); break;
    default: k->prepare[type](x, out, n); break;
    }
}

/* A group of rows for tiles. */
static void prepare_group(const job *j, int first, int worker)
{
    const rvi_matmul *m = j->m;
    const rvi_kernels *k = &j->cpu->k;
    size_t n = (size_t)j->x.n,
           stride = j->own_norm ? n + CACHE_LINE_FLOATS : (size_t)j->x.t->stride;
    float *x = j->own_norm ? j->cpu->panel[worker] : rvi_cpu_row(j->x, first);
    for (int r = 0; m->norm && r < TILE_ROWS; r++)
        k->rms_norm(x + (size_t)r * stride, rvi_cpu_row(m->x, first + r), m->norm->heap, n, m->eps);
    for (int f = 0; f < RVI_FORM_COUNT; f++) {
        rvi_qtype type = j->prepare[f];
        if (type != RVI_QTYPE_COUNT) k->prepare_tiles[type](x, stride, acts_at(j, type, first), n);
    }
}

static void prepare_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_matmul *m = j->m;
    const rvi_kernels *k = &j->cpu->k;
    int first = task * ROWS_A_TASK, end = RVI_MIN(first + ROWS_A_TASK, m->n_rows);
    if (first < j->n_tiled) {
        if (!j->ready) prepare_group(j, first, worker);
        return;
    }
    size_t n = (size_t)j->x.n;
    for (int r = first; m->norm && r < end; r++)
        k->rms_norm(rvi_cpu_row(m->normed, r), rvi_cpu_row(m->x, r), m->norm->heap, n, m->eps);
    for (int f = 0; f < RVI_FORM_COUNT; f++) {
        rvi_qtype type = j->prepare[f];
        for (int r = first; type != RVI_QTYPE_COUNT && r < end; r++)
            prepare_row(k, type, rvi_cpu_row(j->x, r), acts_at(j, type, r), n);
    }
}

/* Where results go: of panels from `first` on, rows from `row` on. */
typedef struct place {
    int first, n;  /* panels */
    int row, rows; /* all taken by tiles, or none */
    float *out;
    size_t stride; /* floats */
} place;

/* n whole panels. */
static void multiply_rows(const job *j, const rvi_tensor *w, const uint8_t *panels, int n,
                          const place *at, float *out, size_t stride)
{
    size_t cols = (size_t)w->n_cols;
    if (at->row < j->n_tiled)
        j->cpu->k.gemm_tiles[w->type](panels, n, acts_at(j, w->type, at->row), at->rows / 16, out,
                                      stride, cols);
    else
        j->cpu->k.gemm_panels[w->type](panels, n, acts_at(j, w->type, at->row),
                                       rvi_act_bytes(w->type, cols), at->rows, out, stride, cols);
}

/* The last panel of a weight may have fewer than 16 outputs: it goes through a buffer. */
static void multiply_panels(const job *j, const rvi_tensor *w, const uint8_t *panels,
                            const place *at)
{
    int edge = (at->first + at->n) * RVI_PANEL > w->n_rows, whole = at->n - edge;
    if (whole) multiply_rows(j, w, panels, whole, at, at->out, at->stride);
    if (!edge) return;
    const uint8_t *panel = panels + (size_t)whole * rvi_panel_bytes(w->type, (size_t)w->n_cols);
    size_t bytes = (size_t)(w->n_rows - (at->first + whole) * RVI_PANEL) * sizeof(float);
    for (int r = 0; r < at->rows; r += EDGE_ROWS) {
        float buffer[EDGE_ROWS * RVI_PANEL];
        place part = {.row = at->row + r, .rows = RVI_MIN(EDGE_ROWS, at->rows - r)};
        multiply_rows(j, w, panel, 1, &part, buffer, RVI_PANEL);
        for (int i = 0; i < part.rows; i++)
            memcpy(at->out + (size_t)(r + i) * at->stride + whole * RVI_PANEL,
                   buffer + i * RVI_PANEL, bytes);
    }
}

static void multiply_prepared(const job *j, const rvi_tensor *w, const place *at, int worker)
{
    const rvi_kernels *k = &j->cpu->k;
    size_t cols = (size_t)w->n_cols;
    if (!k->gemm_panels[w->type]) { /* the reference takes rows as they are */
        int first = at->first * RVI_PANEL;
        k->gemm_act[w->type](w->data + (size_t)first * w->row_bytes, w->row_bytes,
                             RVI_MIN(at->n * RVI_PANEL, w->n_rows - first),
                             acts_at(j, w->type, at->row), rvi_act_bytes(w->type, cols), at->rows,
                             at->out, at->stride, cols);
        return;
    }
    if (w->panels) {
        multiply_panels(j, w, w->panels + (size_t)at->first * rvi_panel_bytes(w->type, cols), at);
        return;
    }
    uint8_t *panel = (uint8_t *)j->cpu->panel[worker];
    place one = *at;
    one.n = 1;
    for (int i = 0; i < at->n; i++, one.first++, one.out += RVI_PANEL) {
        pack_panel(j->cpu, w, one.first, panel);
        multiply_panels(j, w, panel, &one);
    }
}

enum {
    X_TILE = 48
}; /* input rows a float kernel goes over: they stay in cache while weights stream by */

/* f32 activations: rows of weights become f32, then meet every input row */
static void multiply_floats(const job *j, const rvi_tensor *w, const place *at, int worker)
{
    const rvi_kernels *k = &j->cpu->k;
    int first = at->first * RVI_PANEL, end = RVI_MIN(first + at->n * RVI_PANEL, w->n_rows);
    size_t cols = (size_t)w->n_cols, x_stride = (size_t)j->x.t->stride;
    /* f32 weights at an aligned address are used in place */
    bool as_is = w->type == RVI_F32 && (uintptr_t)w->data % sizeof(float) == 0;
    for (int o = first; o < end; o += RVI_CPU_PANEL) {
        int n_w = RVI_MIN(RVI_CPU_PANEL, end - o);
        const float *panel = j->cpu->panel[worker];
        if (as_is) panel = (const float *)(const void *)(w->data + (size_t)o * w->row_bytes);
        for (int i = 0; !as_is && i < n_w; i++)
            k->dequantize[w->type](w->data + (size_t)(o + i) * w->row_bytes,
                                   j->cpu->panel[worker] + (size_t)i * cols, cols);
        for (int r = 0; r < at->rows; r += X_TILE)
            k->gemm_f32(panel, cols, n_w, rvi_cpu_row(j->x, at->row + r), x_stride,
                        RVI_MIN(X_TILE, at->rows - r),
                        at->out + (size_t)r * at->stride + (o - first), at->stride, cols);
    }
}

static void multiply(const job *j, const rvi_product_part *p, const place *at, int worker)
{
    int first = at->first * RVI_PANEL;
    size_t len = (size_t)(RVI_MIN(first + at->n * RVI_PANEL, p->w->n_rows) - first);
    (wants_prepared(j->cpu, p->w->type) ? multiply_prepared : multiply_floats)(j, p->w, at, worker);
    for (int r = 0; p->bias && r < at->rows; r++)
        j->cpu->k.add(at->out + (size_t)r * at->stride, p->bias->heap + first, len);
}

/* Rows from r to end that go together: by tiles, or not and as many as the cache holds prepared
 * (tiles see to that themselves); no more than `most`. */
static int rows_from(const job *j, int r, int end, int most)
{
    int hold = (int)(ACTS_IN_CACHE / ((size_t)j->x.n * 5 / 4)) / TILE_ROWS * TILE_ROWS;
    if (r < j->n_tiled) return RVI_MIN(most, RVI_MIN(j->n_tiled, end) - r);
    return RVI_MIN(RVI_MIN(most, RVI_MAX(hold, TILE_ROWS)), end - r);
}

/* Rows and units that a task multiplies */
typedef struct span {
    int row, end; /* rows */
    int first, n; /* units */
} span;

/* Results that stay as they are. */
static void multiply_straight(const job *j, const rvi_product_part *p, const span *s, int worker)
{
    for (int r = s->row, rows; r < s->end; r += rows) {
        rows = rows_from(j, r, s->end, s->end);
        for (int u = s->first; u < s->first + s->n; u += PANELS_A_CALL) {
            if (rvi_backend_is_stopped(&j->cpu->be)) return;
            place at = {
                u,    RVI_MIN(PANELS_A_CALL, s->first + s->n - u), r,
                rows, rvi_cpu_row(p->out, r) + u * RVI_PANEL,      (size_t)p->out.t->stride};
            multiply(j, p, &at, worker);
        }
    }
}

/* Columns from `col` on of gated results, whole groups of rows, become what the next product
 * takes. */
static void prepare_ahead(const job *j, const place *at, int col, int len)
{
    const rvi_tensor *reader = j->m->reader;
    for (int g = 0; g < at->rows / TILE_ROWS; g++) {
        uint8_t *group =
            j->cpu->ahead + (size_t)(at->row / TILE_ROWS + g) *
                                rvi_tile_act_bytes(reader->type, (size_t)reader->n_cols);
        j->cpu->k.prepare_tiles[reader->type](
            at->out + (size_t)(g * TILE_ROWS) * at->stride, at->stride,
            group + rvi_tile_act_bytes(reader->type, (size_t)col), (size_t)len);
    }
}

/* Results from column `col` on are added to something, or gated. `at` has the first part's. */
static void finish(const job *j, const place *at, const float *second, int col, int len)
{
    const rvi_matmul *m = j->m;
    const rvi_kernels *k = &j->cpu->k;
    const rvi_cols to = m->gated.t ? m->gated : m->add_to;
    bool ahead = j->ahead && at->row < j->n_tiled;
    for (int i = 0; i < at->rows; i++) {
        /* pieces of rows: no pattern that a processor foresees */
        for (int c = 0; !ahead && i + ROWS_AHEAD < at->rows && c < len; c += CACHE_LINE_FLOATS)
            __builtin_prefetch(rvi_cpu_row(to, at->row + i + ROWS_AHEAD) + col + c, 1);
        float *a = at->out + (size_t)i * at->stride;
        float *result = ahead ? a : rvi_cpu_row(to, at->row + i) + col;
        if (!m->gated.t)
            k->add(result, a, (size_t)len);
        else
            (m->glu == RVI_GLU_SILU ? k->silu_mul : k->gelu_mul)(
                result, a, second + (size_t)i * at->stride, (size_t)len);
    }
    if (ahead) prepare_ahead(j, at, col, len);
}

/* Results that are added to something, or gated: they do not leave the cache before that. */
static void multiply_and_finish(const job *j, const span *s, int worker)
{
    const rvi_matmul *m = j->m;
    float *result[2] = {j->cpu->result[worker],
                        j->cpu->result[worker] + RESULT_ROWS * RESULT_PANELS * RVI_PANEL};
    for (int u = s->first; u < s->first + s->n; u += RESULT_PANELS)
        for (int r = s->row, rows; r < s->end; r += rows) {
            rows = rows_from(j, r, s->end, RESULT_ROWS);
            if (rvi_backend_is_stopped(&j->cpu->be)) return;
            place at = {u,    RVI_MIN(RESULT_PANELS, s->first + s->n - u),
                        r,    rows,
                        NULL, RESULT_PANELS * RVI_PANEL};
            int col = u * RVI_PANEL, len = RVI_MIN(at.n * RVI_PANEL, m->part[0].w->n_rows - col);
            for (int i = m->gated.t ? 1 : 0; i >= 0; i--) {
                at.out = result[i];
                multiply(j, &m->part[i], &at, worker);
            }
            finish(j, &at, result[1], col, len);
        }
}

static int tasks_of_rows(const job *j)
{
    return (j->n_units + j->units_a_task - 1) / j->units_a_task;
}

/* Tasks of the same rows are neighbours, so that a thread finds its activations in its cache. */
static void multiply_task(void *ctx, int task, int worker)
{
    const job *j = ctx;
    const rvi_matmul *m = j->m;
    int row = task / tasks_of_rows(j) * j->rows_a_task;
    int first = task % tasks_of_rows(j) * j->units_a_task;
    int end = RVI_MIN(first + j->units_a_task, j->n_units);
    span s = {row, RVI_MIN(row + j->rows_a_task, m->n_rows), first, end - first};
    if (m->gated.t || m->add_to.t) {
        multiply_and_finish(j, &s, worker);
        return;
    }
    for (int i = 0, before = 0; i < m->n_parts;
         i++) { /* the units of the parts follow each other */
        int n = count_panels(m->part[i].w);
        s.first = RVI_MAX(first - before, 0);
        s.n = RVI_MIN(end - before, n) - s.first;
        if (s.n > 0) multiply_straight(j, &m->part[i], &s, worker);
        before += n;
    }
}

/* May tasks share the rows out? Not where a task first makes panels or floats of the weights. */
static bool can_split_rows(const job *j)
{
    for (int i = 0; i < j->m->n_parts; i++)
        if (!j->m->part[i].w->panels) return false;
    return true;
}

/* A large job has several tasks for each thread, so that a slow thread does not delay the others.
 * Of the ways to cut it, this takes the one by which the last thread ends first, counted in rows
 * times units: besides multiplying them, a thread fetches the rows' activations, which other cores
 * have prepared, and reads and unpacks each unit's weights once for all rows of a task. */
static void cut_large(job *j)
{
    enum { MIN_ROWS = 32, FETCH_UNITS = 3, UNPACK_ROWS = 12 }; /* as measured on 16 cores */
    int threads = rvi_pool_size(j->cpu->pool), rows = j->m->n_rows;
    int groups = (rows + TILE_ROWS - 1) / TILE_ROWS;
    double least = 0;
    for (int parts = 1; parts == 1 || (parts <= threads && can_split_rows(j)); parts *= 2) {
        int some = (groups + parts - 1) / parts * TILE_ROWS;
        if (parts > 1 && some < MIN_ROWS) break;
        int n_parts = (rows + some - 1) / some;
        for (int rounds = MAX_TASKS_A_THREAD; rounds >= 2; rounds--) {
            int tasks = RVI_MAX(threads * rounds / n_parts, 1);
            int units = (j->n_units + tasks - 1) / tasks;
            tasks = (j->n_units + units - 1) / units * n_parts;
            double last = (tasks + threads - 1) / threads;
            double cost = last * units * (some + UNPACK_ROWS);
            if (threads > 1) cost += (double)FETCH_UNITS * some;
            if (least > 0 && cost >= 0.99 * least) continue;
            least = cost;
            j->rows_a_task = some;
            j->units_a_task = units;
        }
    }
}

/* How the job is cut into tasks. A job of microseconds has one task for each thread that pays off:
 * one more thread takes over its part of the work, but adds the cost of waking it and waiting for
 * it. */
static void cut(job *j)
{
    enum { THREAD_NS = 60, BYTES_A_NS = 40, SMALL_NS = 20000 }; /* as measured on 16 cores */
    const rvi_matmul *m = j->m;
    int threads = rvi_pool_size(j->cpu->pool), n = 1;
    double work = 0;
    for (int i = 0; i < m->n_parts; i++)
        work += (double)m->part[i].w->row_bytes * m->part[i].w->n_rows * m->n_rows / BYTES_A_NS;
    if (work / threads > SMALL_NS) {
        cut_large(j);
        return;
    }
    while (n < threads && (n + 1.0) * (n + 1.0) * THREAD_NS <= work) n++;
    j->rows_a_task = RVI_MAX(m->n_rows, 1);
    j->units_a_task = RVI_MAX((j->n_units + n - 1) / n, 1);
}

/* Can the call prepare the rows of the one that reads its gated results? */
static bool can_prepare_ahead(const job *j)
{
    const rvi_tensor *reader = j->m->reader;
    return j->n_tiled && j->m->gated.t && reader && wants_prepared(j->cpu, reader->type) &&
           form_of(reader->type) == RVI_FORM_NARROW && j->cpu->k.gemm_tiles[reader->type];
}

/* Takes what the call before has prepared for this one, if it has. */
static bool take_prepared(rvi_cpu *cpu, const rvi_matmul *m)
{
    bool ready = m->n_parts == 1 && cpu->ahead_of == m->part[0].w;
    cpu->ahead_of = NULL;
    if (!ready) return false;
    uint8_t *tiles = cpu->tiles[RVI_FORM_NARROW];
    cpu->tiles[RVI_FORM_NARROW] = cpu->ahead;
    cpu->ahead = tiles;
    return true;
}

void rvi_cpu_matmul(rvi_backend *be, const rvi_matmul *m)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    job j = {.cpu = cpu, .m = m, .x = m->norm ? m->normed : m->x};
    j.ready = take_prepared(cpu, m);
    bool any = m->norm != NULL;
    bool tiles = true, floats = false;
    for (int f = 0; f < RVI_FORM_COUNT; f++) j.prepare[f] = RVI_QTYPE_COUNT;
    for (int i = 0; i < m->n_parts; i++) {
        rvi_qtype type = m->part[i].w->type;
        j.n_units += count_panels(m->part[i].w);
        if (!wants_prepared(cpu, m->part[i].w->type)) {
            floats = true;
            continue;
        }
        j.prepare[form_of(type)] = type;
        tiles = tiles && cpu->k.gemm_tiles[type];
        any = true;
    }
    if (tiles) j.n_tiled = m->n_rows / TILE_ROWS * TILE_ROWS;
    if (m->gated.t) j.n_units = count_panels(m->part[0].w);
    j.own_norm = m->norm && m->normed_unread && !floats;
    j.ahead = can_prepare_ahead(&j);
    cut(&j);
    if (j.ahead)
        j.units_a_task += j.units_a_task % 2; /* a block of the next product is two panels */
    any = any && !(j.ready && j.n_tiled == m->n_rows);
    if (any) rvi_pool_run(cpu->pool, prepare_task, &j, (m->n_rows + ROWS_A_TASK - 1) / ROWS_A_TASK);
    int n_parts = (m->n_rows + j.rows_a_task - 1) / j.rows_a_task;
    rvi_pool_run(cpu->pool, multiply_task, &j, n_parts * tasks_of_rows(&j));
    if (j.ahead) cpu->ahead_of = m->reader;
}
