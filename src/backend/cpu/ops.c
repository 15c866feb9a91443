/* The CPU backend: tensors in host memory, kernels from the table, work split over a thread pool.
 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/profile.h"
#include "backend/cpu/train.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"

/* ---- tensors ---- */

static rv_status tensor_new(rvi_tensor **out, rvi_qtype type, uint64_t n_rows, uint64_t n_cols,
                            const char *name, rv_error *err)
{
    *out = NULL;
    if (!n_rows || !n_cols || n_rows > INT32_MAX || n_cols > INT32_MAX)
        return rvi_error(err, RV_E_MODEL, "tensor '%s': %llu x %llu is too large", name,
                         (unsigned long long)n_rows, (unsigned long long)n_cols);
    rvi_tensor *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, name);
    t->type = type;
    t->n_rows = (int)n_rows;
    t->n_cols = (int)n_cols;
    t->stride = (int)n_cols;
    t->row_bytes = rvi_qtype_row_bytes(type, (size_t)n_cols);
    *out = t;
    return RV_OK;
}

static size_t float_bytes(const rvi_tensor *t)
{
    return (size_t)t->n_rows * (size_t)t->stride * sizeof(float);
}

static void tensor_free(rvi_backend *be, rvi_tensor *t)
{
    (void)be;
    if (!t) return;
    if (t->counted) atomic_fetch_sub(t->counted, float_bytes(t));
    rvi_cpu_lora_drop_half(t);
    if (!t->viewed) rvi_free(t->heap);
    rvi_free(t);
}

static int tensor_rows(const rvi_tensor *t)
{
    return t->n_rows;
}

static int tensor_cols(const rvi_tensor *t)
{
    return t->n_cols;
}

static rv_status weight_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            rv_error *err)
{
    (void)be;
    *out = NULL;
    if (view->n_dims != 2)
        return rvi_error(err, RV_E_MODEL, "tensor '%s': a matrix is expected", view->name);
    rv_status st = tensor_new(out, view->type, view->shape[0], view->shape[1], view->name, err);
    if (!st) {
        (*out)->data = view->data;
        (*out)->mapped = view->mapped;
    }
    return st;
}

/* large: in huge pages, which take memory for speed */
static rv_status own_floats(rvi_tensor *t, atomic_size_t *counted, bool large, rv_error *err)
{
    t->heap = large ? rvi_os_alloc_large(float_bytes(t)) : rvi_alloc_aligned(float_bytes(t), 64);
    t->data = (const uint8_t *)t->heap;
    if (!t->heap) return rvi_nomem(err, "tensor");
    t->counted = counted;
    atomic_fetch_add(counted, float_bytes(t));
    return RV_OK;
}

static rv_status floats_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            float offset, rv_error *err)
{
    uint64_t cols = view->shape[view->n_dims - 1], rows = 1;
    for (int i = 0; i < view->n_dims - 1; i++) rows *= view->shape[i];
    rv_status st = tensor_new(out, RVI_F32, rows, cols, view->name, err);
    if (st) return st;
    if ((st = own_floats(*out, &be->memory->weights, false, err))) {
        tensor_free(be, *out);
        *out = NULL;
        return st;
    }
    size_t n = (size_t)rows * (size_t)cols;
    rvi_dequantize(view->type, view->data, (*out)->heap, n);
    for (size_t i = 0; offset != 0 && i < n; i++) /* a negative zero stays what it is */
        (*out)->heap[i] += offset;
    return RV_OK;
}

/* Rows begin on cache lines, and not at multiples of 512 bytes: a column of many rows would share a
 * few places of the caches. */
static int spread_rows(int n_cols)
{
    enum { LINE = 16, CLASH = 128 }; /* floats */
    int stride = (n_cols + LINE - 1) / LINE * LINE;
    return stride % CLASH ? stride : stride + LINE;
}

static rv_status rows_new(rvi_backend *be, rvi_tensor **out, int n_rows, int n_cols, rv_error *err)
{
    rv_status st = tensor_new(out, RVI_F32, (uint64_t)n_rows, (uint64_t)n_cols, "activations", err);
    if (st) return st;
    if (n_rows > 1) (*out)->stride = spread_rows(n_cols);
    bool large = rvi_pool_size(rvi_cpu_of(be)->pool) >= RVI_TRAIN_MANY;
    if ((st = own_floats(*out, &be->memory->scratch, large, err))) {
        tensor_free(be, *out);
        *out = NULL;
    }
    return st;
}

static rv_status floats_view(rvi_backend *be, rvi_tensor **out, float *data, int n_rows, int n_cols,
                             rv_error *err)
{
    (void)be;
    rv_status st = tensor_new(out, RVI_F32, (uint64_t)n_rows, (uint64_t)n_cols, "floats", err);
    if (st) return st;
    (*out)->heap = data;
    (*out)->data = (const uint8_t *)data;
    (*out)->viewed = true;
    return RV_OK;
}

static rv_status floats_part(rvi_backend *be, rvi_tensor **out, const rvi_tensor *view,
                             size_t first, int n_rows, int n_cols, rv_error *err)
{
    return floats_view(be, out, view->heap + first, n_rows, n_cols, err);
}

static void rows_write(rvi_backend *be, rvi_cols dst, int row, const float *src)
{
    (void)be;
    memcpy(rvi_cpu_row(dst, row), src, (size_t)dst.n * sizeof *src);
}

static void rows_read(rvi_backend *be, rvi_cols src, int row, float *dst)
{
    (void)be;
    memcpy(dst, rvi_cpu_row(src, row), (size_t)src.n * sizeof *dst);
}

typedef struct filling {
    rvi_cols dst;
    void (*fn)(void *ctx, int row, int first, int n, float *out);
    void *ctx;
} filling;

static void fill_task(void *ctx, int row, int worker)
{
    const filling *f = ctx;
    (void)worker;
    f->fn(f->ctx, row, 0, f->dst.n, rvi_cpu_row(f->dst, row));
}

static void fill_rows(rvi_backend *be, rvi_cols dst, int n_rows,
                      void (*fn)(void *ctx, int row, int first, int n, float *out), void *ctx)
{
    filling f = {dst, fn, ctx};
    rvi_pool_run(rvi_cpu_of(be)->pool, fill_task, &f, n_rows);
}

typedef struct fetching {
    rvi_cols src;
    float *dst;
} fetching;

static void fetch_task(void *ctx, int row, int worker)
{
    const fetching *f = ctx;
    (void)worker;
    memcpy(f->dst + (size_t)row * (size_t)f->src.n, rvi_cpu_row(f->src, row),
           (size_t)f->src.n * sizeof *f->dst);
}

static void fetch(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    rvi_pool_run(rvi_cpu_of(be)->pool, fetch_task, &(fetching){src, dst}, n_rows);
}

static void *host_new(rvi_backend *be, size_t bytes)
{
    (void)be;
    return rvi_alloc_array(bytes, 1);
}

static void host_free(rvi_backend *be, void *p)
{
    (void)be;
    rvi_free(p);
}

static void submit(rvi_backend *be) /* ops are done when they return */
{
    (void)be;
}

static rv_status check(rvi_backend *be, rv_error *err)
{
    (void)be;
    (void)err;
    return RV_OK;
}

/* ---- row by row ops: one task a row ----
 *
 * The pool gives thread i the same part of the rows in every such op, so that a row stays in the
 * caches of one core from op to op. */

void rvi_cpu_run_light(rvi_cpu *cpu, rvi_task_fn fn, void *ctx, int n_rows, int n_cols)
{
    enum { WORTH_WAKING = 1 << 14 }; /* numbers moved or added */
    if ((int64_t)n_rows * n_cols >= WORTH_WAKING) {
        rvi_pool_run(cpu->pool, fn, ctx, n_rows);
        return;
    }
    for (int r = 0; r < n_rows; r++) fn(ctx, r, 0);
}

typedef struct job {
    rvi_cpu *cpu;
    rvi_cols out, x, y;
    const rvi_tensor *w, *b;
    const int32_t *ids;
    int first; /* row of ids */
    float value;
    int head_size;
    bool interleaved;
    rvi_glu kind;
    rvi_act act;
} job;

static void embed_task(void *ctx, int task, int worker)
{
    job *j = ctx;
    int r = j->first + task;
    (void)worker;
    float *out = rvi_cpu_row(j->out, r);
    size_t n = (size_t)j->w->n_cols;
    j->cpu->k.dequantize[j->w->type](j->w->data + (size_t)j->ids[r] * j->w->row_bytes, out, n);
    if (j->value != 1.0f) j->cpu->k.scale(out, j->value, n);
}

/* Each row brings its surroundings into memory, up to half a megabyte: of a table of more than so
 * many bytes they are given back after so many rows. */
enum { LARGE_TABLE = 64 << 20, ROWS_IN_MEMORY = 64 };

static void embed(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                  int n_rows, float scale)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    job j = {.cpu = cpu, .out = out, .w = table, .ids = ids, .value = scale};
    size_t bytes = (size_t)table->n_rows * table->row_bytes;
    bool large = table->mapped && bytes >= LARGE_TABLE;
    for (int n; j.first < n_rows; j.first += n) {
        n = large ? RVI_MIN(n_rows - j.first, ROWS_IN_MEMORY - cpu->n_embedded) : n_rows;
        rvi_pool_run(cpu->pool, embed_task, &j, n);
        if (!large || (cpu->n_embedded += n) < ROWS_IN_MEMORY) continue;
        rvi_os_release_mapped(table->data, bytes);
        cpu->n_embedded = 0;
    }
}

static void norm_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    j->cpu->k.rms_norm(rvi_cpu_row(j->out, r), rvi_cpu_row(j->x, r), j->w->heap, (size_t)j->x.n,
                       j->value);
}

static void rms_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w, int n_rows,
                     float eps)
{
    job j = {.cpu = rvi_cpu_of(be), .out = out, .x = x, .w = w, .value = eps};
    rvi_pool_run(j.cpu->pool, norm_task, &j, n_rows);
}

static void layer_norm_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    j->cpu->k.layer_norm(rvi_cpu_row(j->out, r), rvi_cpu_row(j->x, r), j->w->heap, j->b->heap,
                         (size_t)j->x.n, j->value);
}

static void layer_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w,
                       const rvi_tensor *b, int n_rows, float eps)
{
    job j = {.cpu = rvi_cpu_of(be), .out = out, .x = x, .w = w, .b = b, .value = eps};
    rvi_pool_run(j.cpu->pool, layer_norm_task, &j, n_rows);
}

static void head_norm_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    float *x = rvi_cpu_row(j->x, r);
    int size = j->w->n_cols;
    for (int at = 0; at < j->x.n; at += size)
        j->cpu->k.rms_norm(x + at, x + at, j->w->heap, (size_t)size, j->value);
}

static void head_norm(rvi_backend *be, rvi_cols x, const rvi_tensor *w, int n_rows, float eps)
{
    job j = {.cpu = rvi_cpu_of(be), .x = x, .w = w, .value = eps};
    rvi_pool_run(j.cpu->pool, head_norm_task, &j, n_rows);
}

static void rope_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    size_t n_pairs = (size_t)j->y.n / 2;
    const float *cosines = rvi_cpu_row(j->y, r), *sines = cosines + n_pairs;
    float *x = rvi_cpu_row(j->x, r);
    for (int at = 0; at < j->x.n; at += j->head_size)
        j->cpu->k.rope(x + at, cosines, sines, n_pairs, j->interleaved);
}

static void rope(rvi_backend *be, rvi_cols x, int head_size, rvi_cols angles, bool interleaved,
                 int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be),
             .x = x,
             .y = angles,
             .head_size = head_size,
             .interleaved = interleaved};
    rvi_pool_run(j.cpu->pool, rope_task, &j, n_rows);
}

static void glu_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    const rvi_kernels *k = &j->cpu->k;
    (j->kind == RVI_GLU_SILU ? k->silu_mul : k->gelu_mul)(
        rvi_cpu_row(j->out, r), rvi_cpu_row(j->x, r), rvi_cpu_row(j->y, r), (size_t)j->out.n);
}

static void glu(rvi_backend *be, rvi_cols out, rvi_cols gate, rvi_cols up, rvi_glu kind, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .out = out, .x = gate, .y = up, .kind = kind};
    rvi_pool_run(j.cpu->pool, glu_task, &j, n_rows);
}

static void act_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    const rvi_kernels *k = &j->cpu->k;
    void (*run)(float *x, size_t n) = j->act == RVI_ACT_GELU        ? k->gelu
                                      : j->act == RVI_ACT_GELU_TANH ? k->gelu_tanh
                                                                    : k->relu;
    run(rvi_cpu_row(j->x, r), (size_t)j->x.n);
}

static void act(rvi_backend *be, rvi_cols x, rvi_act kind, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .x = x, .act = kind};
    rvi_pool_run(j.cpu->pool, act_task, &j, n_rows);
}

static void add_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    j->cpu->k.add(rvi_cpu_row(j->x, r), rvi_cpu_row(j->y, r), (size_t)j->x.n);
}

static void add(rvi_backend *be, rvi_cols x, rvi_cols y, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .x = x, .y = y};
    rvi_cpu_run_light(j.cpu, add_task, &j, n_rows, x.n);
}

static void soft_cap_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    j->cpu->k.soft_cap(rvi_cpu_row(j->x, r), j->value, (size_t)j->x.n);
}

static void soft_cap(rvi_backend *be, rvi_cols x, float cap, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .x = x, .value = cap};
    rvi_pool_run(j.cpu->pool, soft_cap_task, &j, n_rows);
}

static void gather_task(void *ctx, int r, int worker)
{
    job *j = ctx;
    (void)worker;
    memcpy(rvi_cpu_row(j->out, r), rvi_cpu_row(j->x, j->ids[r]), (size_t)j->out.n * sizeof(float));
}

static void gather(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *from, int n_rows)
{
    job j = {.cpu = rvi_cpu_of(be), .out = out, .x = x, .ids = from};
    rvi_cpu_run_light(j.cpu, gather_task, &j, n_rows, out.n);
}

static void run(rvi_backend *be, rvi_task_fn fn, void *ctx, int n_tasks)
{
    rvi_pool_run(rvi_cpu_of(be)->pool, fn, ctx, n_tasks);
}

/* ---- the object ---- */

static void share(rvi_backend *be, void (*fn)(void *ctx, int task, int worker), void *ctx,
                  int n_tasks)
{
    rvi_pool_run_all(rvi_cpu_of(be)->pool, fn, ctx, n_tasks);
}

static void set_stop(rvi_backend *be, const atomic_bool *stop)
{
    be->stop = stop;
    rvi_pool_set_stop(rvi_cpu_of(be)->pool, stop);
}

static void cpu_free(rvi_backend *be)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    rvi_profile_end(be);
    if (cpu->pool) rvi_cpu_scratch_free(cpu);
    rvi_cpu_train_free(cpu);
    rvi_pool_free(cpu->pool);
    rvi_free(cpu->be.memory);
    rvi_free(cpu);
}

static bool is_exact(const rvi_backend *be)
{
    return rvi_cpu_of((rvi_backend *)(uintptr_t)be)->exact;
}

static rv_status cpu_like(rvi_backend **out, const rvi_backend *be, int n_threads,
                          void (*pause)(void *ctx), void *pause_ctx, rv_error *err);

static const rvi_backend_ops cpu_ops = {
    .name = "cpu",
    .free = cpu_free,
    .weight_new = weight_new,
    .floats_new = floats_new,
    .rows_new = rows_new,
    .tensor_free = tensor_free,
    .pack_bytes = rvi_cpu_pack_bytes,
    .pack_new = rvi_cpu_pack_new,
    .pack = rvi_cpu_pack,
    .pack_free = rvi_cpu_pack_free,
    .n_rows = tensor_rows,
    .n_cols = tensor_cols,
    .rows_write = rows_write,
    .fill_rows = fill_rows,
    .rows_read = rows_read,
    .fetch = fetch,
    .host_new = host_new,
    .host_free = host_free,
    .submit = submit,
    .check = check,
    .reserve = rvi_cpu_reserve,
    .set_stop = set_stop,
    .share = share,
    .kv_new = rvi_cpu_kv_new,
    .kv_free = rvi_cpu_kv_free,
    .kv_forms = rvi_cpu_kv_forms,
    .kv_hold = rvi_cpu_kv_hold,
    .kv_chill = rvi_cpu_kv_chill,
    .kv_trim = rvi_cpu_kv_trim,
    .kv_copy_page = rvi_cpu_kv_copy_page,
    .kv_page_bytes = rvi_cpu_kv_page_bytes,
    .kv_read_page = rvi_cpu_kv_read_page,
    .kv_write_page = rvi_cpu_kv_write_page,
    .is_exact = is_exact,
    .kv_write = rvi_cpu_kv_write,
    .embed = embed,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .head_norm = head_norm,
    .matmul = rvi_cpu_matmul,
    .rope = rope,
    .attention = rvi_cpu_attention,
    .glu = glu,
    .act = act,
    .add = add,
    .soft_cap = soft_cap,
    .gather = gather,
    .lora = rvi_cpu_lora,
    .lora_pack = rvi_cpu_lora_pack,
    .lora_bytes = rvi_cpu_lora_bytes,
    .lora_seal = rvi_cpu_lora_seal,
    .floats_view = floats_view,
    .floats_part = floats_part,
    .like = cpu_like,
    .train_reserve = rvi_cpu_train_reserve,
    .held_bytes = rvi_cpu_held_bytes,
    .held_new = rvi_cpu_held_new,
    .held_free = rvi_cpu_held_free,
    .linear = rvi_cpu_linear,
    .linear_back = rvi_cpu_linear_back,
    .span_attention = rvi_cpu_span_attention,
    .span_attention_back = rvi_cpu_span_attention_back,
    .rms_norm_back = rvi_cpu_rms_norm_back,
    .head_norm_back = rvi_cpu_head_norm_back,
    .glu_back = rvi_cpu_glu_back,
    .loss = rvi_cpu_loss,
    .zero = rvi_cpu_zero,
    .copy = rvi_cpu_copy,
    .scatter_add = rvi_cpu_scatter_add,
    .run = run,
};

static rvi_cpu *cpu_alloc(void)
{
    rvi_cpu *cpu = rvi_zalloc(sizeof *cpu);
    rvi_backend_memory *memory = rvi_zalloc(sizeof *memory);
    if (!cpu || !memory) {
        rvi_free(cpu);
        rvi_free(memory);
        return NULL;
    }
    cpu->be.memory = memory;
    return cpu;
}

rv_status rvi_backend_cpu_new(rvi_backend **out, const rvi_cpu_options *options, const rvi_log *log,
                              rv_error *err)
{
    *out = NULL;
    rvi_cpu *cpu = cpu_alloc();
    if (!cpu) return rvi_nomem(err, "CPU backend");
    cpu->be.ops = &cpu_ops;
    cpu->be.log = log;
    cpu->exact = options->exact;
    cpu->no_pack = options->no_pack;
    rv_status st = RV_OK;
    if (!rvi_kernels_init(&cpu->k, options->isa))
        st = rvi_error(err, RV_E_CONFIG, "'%s' is not an instruction set this machine can use",
                       options->isa);
    if (!st) st = rvi_pool_new(&cpu->pool, options->n_threads, err);
    if (st)
        cpu_free(&cpu->be);
    else
        *out = &cpu->be;
    return st;
}

static rv_status cpu_like(rvi_backend **out, const rvi_backend *be, int n_threads,
                          void (*pause)(void *ctx), void *pause_ctx, rv_error *err)
{
    const rvi_cpu *from = (const rvi_cpu *)be;
    *out = NULL;
    rvi_cpu *cpu = cpu_alloc();
    if (!cpu) return rvi_nomem(err, "CPU backend");
    cpu->be.ops = &cpu_ops; /* no log: that is called by the runtime's callers alone */
    cpu->exact = from->exact;
    cpu->no_pack = from->no_pack;
    cpu->k = from->k;
    if (n_threads < 1) n_threads = rvi_pool_size(from->pool);
    rv_status st = rvi_pool_new(&cpu->pool, n_threads, err);
    if (st) {
        cpu_free(&cpu->be);
        return st;
    }
    rvi_pool_set_pause(cpu->pool, pause, pause_ctx);
    *out = &cpu->be;
    return RV_OK;
}

bool rvi_backend_is_cpu(const rvi_backend *be)
{
    return be->ops->free == cpu_free; /* also while a profile has replaced the table */
}

const char *rvi_backend_cpu_isa(const rvi_backend *be)
{
    return ((const rvi_cpu *)be)->k.isa;
}

const char *rvi_backend_cpu_isa_why(const rvi_backend *be)
{
    return ((const rvi_cpu *)be)->k.why;
}
