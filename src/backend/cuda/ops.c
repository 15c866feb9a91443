/* The CUDA backend: opening the device, and the ops that are one launch each. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"

/* ---- ops ---- */

enum { MAX_BLOCKS = 64 }; /* of a row, for element by element ops */

/* One launch over rows and blocks of columns. */
static void over_elements(rvi_backend *be, rvi_cuda_kernel k, const void *args, size_t size,
                          int n_rows, int n_cols)
{
    int blocks = (n_cols + RVI_CUDA_THREADS - 1) / RVI_CUDA_THREADS;
    uint32_t grid[] = {(uint32_t)n_rows, (uint32_t)RVI_MIN(RVI_MAX(blocks, 1), MAX_BLOCKS), 1};
    if (n_rows > 0) rvi_cuda_add(rvi_cuda_of(be), k, grid, RVI_CUDA_THREADS, args, size);
}

static void norm(rvi_backend *be, rvi_cuda_kernel k, rvi_cols out, rvi_cols x, const rvi_tensor *w,
                 const rvi_tensor *b, int size, int n_rows, float eps)
{
    rvi_cuda_norm_args a = {.out = rvi_cuda_cols_of(out),
                            .x = rvi_cuda_cols_of(x),
                            .w = w->at,
                            .b = b ? b->at : 0,
                            .size = size,
                            .eps = eps};
    uint32_t grid[] = {(uint32_t)n_rows, (uint32_t)(x.n / size), 1};
    if (n_rows > 0) rvi_cuda_add(rvi_cuda_of(be), k, grid, RVI_CUDA_THREADS, &a, sizeof a);
}

static void rms_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w, int n_rows,
                     float eps)
{
    norm(be, RVI_CUDA_rms_norm, out, x, w, NULL, x.n, n_rows, eps);
}

static void layer_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w,
                       const rvi_tensor *b, int n_rows, float eps)
{
    norm(be, RVI_CUDA_layer_norm, out, x, w, b, x.n, n_rows, eps);
}

static void head_norm(rvi_backend *be, rvi_cols x, const rvi_tensor *w, int n_rows, float eps)
{
    norm(be, RVI_CUDA_rms_norm, x, x, w, NULL, w->n_cols, n_rows, eps);
}

static void rope(rvi_backend *be, rvi_cols x, int head_size, rvi_cols angles, bool interleaved,
                 int n_rows)
{
    rvi_cuda_rope_args a = {rvi_cuda_cols_of(x), rvi_cuda_cols_of(angles), head_size, interleaved};
    over_elements(be, RVI_CUDA_rope, &a, sizeof a, n_rows, x.n / head_size * (angles.n / 2));
}

static void glu(rvi_backend *be, rvi_cols out, rvi_cols gate, rvi_cols up, rvi_glu kind, int n_rows)
{
    rvi_cuda_pair_args a = {rvi_cuda_cols_of(out), rvi_cuda_cols_of(gate), rvi_cuda_cols_of(up),
                            (int32_t)kind, 0};
    over_elements(be, RVI_CUDA_glu, &a, sizeof a, n_rows, out.n);
}

static void act(rvi_backend *be, rvi_cols x, rvi_act kind, int n_rows)
{
    rvi_cuda_pair_args a = {.x = rvi_cuda_cols_of(x), .kind = (int32_t)kind};
    over_elements(be, RVI_CUDA_act, &a, sizeof a, n_rows, x.n);
}

/* Where the last command norms what is added, it adds too. */
static bool join_norm(rvi_cuda *c, rvi_cuda_cols x, rvi_cuda_cols y, int n_rows)
{
    rvi_cuda_command *last = rvi_cuda_last(c);
    rvi_cuda_norm_args a;
    if (!last || last->kernel != RVI_CUDA_rms_norm || last->grid[0] != (uint32_t)n_rows)
        return false;
    memcpy(&a, last->args, sizeof a);
    if (a.onto.at || a.out.at != y.at || a.out.stride != y.stride || a.size != x.n) return false;
    a.onto = x;
    memcpy(last->args, &a, sizeof a);
    return true;
}

static void add(rvi_backend *be, rvi_cols x, rvi_cols y, int n_rows)
{
    rvi_cuda_pair_args a = {.x = rvi_cuda_cols_of(x), .y = rvi_cuda_cols_of(y)};
    if (join_norm(rvi_cuda_of(be), a.x, a.y, n_rows)) return;
    over_elements(be, RVI_CUDA_add, &a, sizeof a, n_rows, x.n);
}

static void soft_cap(rvi_backend *be, rvi_cols x, float cap, int n_rows)
{
    rvi_cuda_pair_args a = {.x = rvi_cuda_cols_of(x), .value = cap};
    over_elements(be, RVI_CUDA_soft_cap, &a, sizeof a, n_rows, x.n);
}

/* A list of row numbers in the staging area; 0: the device failed. */
static rvi_cuda_at stage_rows(rvi_cuda *c, const int32_t *rows, int n_rows)
{
    void *host;
    rvi_cuda_at at = rvi_cuda_stage(c, (size_t)n_rows * sizeof *rows, &host);
    if (at) memcpy(host, rows, (size_t)n_rows * sizeof *rows);
    return at;
}

static void gather(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *from, int n_rows)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (n_rows < 1 || rvi_cuda_is_idle(c)) return;
    rvi_cuda_gather_args a = {rvi_cuda_cols_of(out), rvi_cuda_cols_of(x), .row = from[0]};
    if (n_rows > 1) a.from = stage_rows(c, from, n_rows);
    if (a.from || n_rows == 1) /* one row: nothing is copied to the device for it */
        rvi_cuda_add(c, RVI_CUDA_gather, (uint32_t[]){(uint32_t)n_rows, 1, 1}, RVI_CUDA_THREADS, &a,
                     sizeof a);
}

/* The kernels read B as it is. */
static rv_status lora_pack(rvi_backend *be, rvi_tensor *m, bool is_b, rv_error *err)
{
    (void)be;
    (void)m;
    (void)is_b;
    (void)err;
    return RV_OK;
}

static size_t lora_bytes(rvi_backend *be, const rvi_tensor *a, const rvi_tensor *b)
{
    (void)be;
    (void)a;
    (void)b;
    return 0;
}

static rv_status lora_seal(rvi_backend *be, rvi_pack *p, rvi_tensor *a, rvi_tensor *b,
                           rv_error *err)
{
    (void)be;
    (void)p;
    (void)a;
    (void)b;
    (void)err;
    return RV_OK;
}

/* ---- products ---- */

static uint32_t warps_for(int outputs)
{
    enum { WARPS = RVI_CUDA_THREADS / 32 };
    return (uint32_t)((outputs + WARPS - 1) / WARPS);
}

static void product(rvi_backend *be, rvi_qtype type, const rvi_cuda_matmul_args *a)
{
    enum { TOGETHER = 4 }; /* rows that share each decoded weight */
    bool few = a->n_rows < TOGETHER;
    rvi_cuda_kernel k = RVI_CUDA_matmul_F32_1 + 2 * (rvi_cuda_kernel)type + !few;
    int rows = few ? a->n_rows : (a->n_rows + TOGETHER - 1) / TOGETHER;
    rvi_cuda_add(rvi_cuda_of(be), k, (uint32_t[]){warps_for(a->n_out), (uint32_t)rows, 1},
                 RVI_CUDA_THREADS, a, sizeof *a);
}

static rvi_cuda_matmul_args args_of(const rvi_matmul *m, const rvi_product_part *p)
{
    return (rvi_cuda_matmul_args){.out = m->add_to.t  ? rvi_cuda_cols_of(m->add_to)
                                         : m->gated.t ? rvi_cuda_cols_of(m->gated)
                                                      : rvi_cuda_cols_of(p->out),
                                  .x = rvi_cuda_cols_of(m->norm ? m->normed : m->x),
                                  .w = p->w->at,
                                  .bias = p->bias ? p->bias->at : 0,
                                  .row_bytes = p->w->row_bytes,
                                  .heads = p->w->heads,
                                  .n_out = p->w->n_rows,
                                  .n_rows = m->n_rows,
                                  .finish = m->add_to.t ? RVI_CUDA_ADD : RVI_CUDA_STORE};
}

static rvi_cuda_panels panels_of(const rvi_product_part *p, rvi_cols out)
{
    rvi_cuda_cols to = rvi_cuda_cols_of(out);
    rvi_cuda_panels a = {.w = p->w->at,
                         .bias = p->bias ? p->bias->at : 0,
                         .out = to.at,
                         .panel_bytes = p->w->row_bytes,
                         .stride = to.stride,
                         .n_out = p->w->n_rows,
                         .type = p->w->type == RVI_F32 ? RVI_F16 : (int32_t)p->w->type};
    if (p->w->panels) a.block_bytes = (int32_t)rvi_cuda_block_bytes(p->w->type, &a.block_units);
    return a;
}

static rvi_cuda_product_args product_args(rvi_cuda *c, const rvi_matmul *m)
{
    int columns = rvi_cuda_columns(m->part[0].w);
    rvi_cuda_product_args a = {.x = rvi_cuda_cols_of(m->x),
                               .normed = m->norm && !m->normed_unread ? rvi_cuda_cols_of(m->normed)
                                                                      : (rvi_cuda_cols){0},
                               .norm = m->norm ? m->norm->at : 0,
                               .acts = c->acts,
                               .parts = c->sums,
                               .eps = m->eps,
                               .over = 1.0f / (float)m->x.n,
                               .n_rows = m->n_rows,
                               .n_parts = m->n_parts,
                               .segments = rvi_cuda_segments(columns),
                               .columns = m->x.n,
                               .finish = m->add_to.t              ? RVI_CUDA_ADD
                                         : !m->gated.t            ? RVI_CUDA_STORE
                                         : m->glu == RVI_GLU_SILU ? RVI_CUDA_SILU
                                                                  : RVI_CUDA_GELU};
    a.x.n = columns;
    for (int i = 0; i < m->n_parts; i++)
        a.part[i] = panels_of(&m->part[i], m->add_to.t  ? m->add_to
                                           : m->gated.t ? m->gated
                                                        : m->part[i].out);
    return a;
}

/* Do all parts take the same kernel? */
static bool go_together(const rvi_matmul *m)
{
    for (int i = 0; i < m->n_parts; i++)
        if (!m->part[i].w->panels) return false;
    return rvi_cuda_go_together(m);
}

static void plain_product(rvi_backend *be, const rvi_matmul *m)
{
    const rvi_product_part *gate = &m->part[0], *up = &m->part[1];
    if (m->norm) rms_norm(be, m->normed, m->x, m->norm, m->n_rows, m->eps);
    rvi_cuda_matmul_args a = args_of(m, gate);
    if (m->gated.t) {
        a.w2 = up->w->at;
        a.bias2 = up->bias ? up->bias->at : 0;
        a.finish = m->glu == RVI_GLU_SILU ? RVI_CUDA_SILU : RVI_CUDA_GELU;
    }
    product(be, gate->w->type, &a);
}

static void matmul(rvi_backend *be, const rvi_matmul *m)
{
    if (m->n_rows < 1) return;
    const rvi_product_part *gate = &m->part[0], *up = &m->part[1];
    if (go_together(m)) {
        rvi_cuda_product_args a = product_args(rvi_cuda_of(be), m);
        rvi_cuda_product(rvi_cuda_of(be), m, &a);
    } else if (m->n_parts == 1 ||
               (m->gated.t && !gate->w->panels && gate->w->type == up->w->type)) {
        plain_product(be, m);
    } else { /* one after the other */
        rvi_matmul one = *m;
        one.gated.t = NULL;
        one.n_parts = 1;
        for (int i = 0; i < m->n_parts; i++) {
            one.part[0] = m->part[i];
            matmul(be, &one);
        }
        if (m->gated.t) glu(be, m->gated, gate->out, up->out, m->glu, m->n_rows);
    }
}

/* ---- the object ---- */

static int tensor_rows(const rvi_tensor *t)
{
    return t->n_rows;
}

static int tensor_cols(const rvi_tensor *t)
{
    return t->n_cols;
}

static bool is_exact(const rvi_backend *be)
{
    return ((const rvi_cuda *)be)->exact;
}

static void set_stop(rvi_backend *be, const atomic_bool *stop)
{
    be->stop = stop;
    rvi_pool_set_stop(rvi_cuda_of(be)->pool, stop);
}

static void share(rvi_backend *be, rvi_task_fn fn, void *ctx, int n_tasks)
{
    rvi_pool_run_all(rvi_cuda_of(be)->pool, fn, ctx, n_tasks);
}

static void run(rvi_backend *be, rvi_task_fn fn, void *ctx, int n_tasks)
{
    rvi_pool_run(rvi_cuda_of(be)->pool, fn, ctx, n_tasks);
}

static void cuda_free(rvi_backend *be)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (c->context) {
        (void)c->cu.context_use(c->context);
        rvi_cuda_list_free(c);
        rvi_cuda_train_free(c);
        if (c->module) (void)c->cu.module_unload(c->module);
        (void)c->cu.context_use(NULL);
        (void)c->cu.context_release(c->device);
    }
    rvi_cu_driver_close(&c->cu);
    rvi_pool_free(c->pool);
    rvi_free(c->be.memory);
    rvi_free(c);
}

static rv_status cuda_like(rvi_backend **out, const rvi_backend *be, int n_threads,
                           void (*pause)(void *ctx), void *pause_ctx, rv_error *err)
{
    const rvi_cuda *from = (const rvi_cuda *)be;
    rvi_cuda_options o = from->made_with;
    if (n_threads > 0) o.n_threads = n_threads;
    /* no log: that is called by the runtime's callers alone */
    rv_status st = rvi_backend_cuda_new(out, &o, NULL, err);
    if (st) return st;
    rvi_cuda *c = rvi_cuda_of(*out);
    c->pause = pause;
    c->pause_ctx = pause_ctx;
    rvi_pool_set_pause(c->pool, pause, pause_ctx);
    return RV_OK;
}

static const rvi_backend_ops cuda_ops = {
    .name = "cuda",
    .free = cuda_free,
    .weight_new = rvi_cuda_weight_new,
    .floats_new = rvi_cuda_floats_new,
    .rows_new = rvi_cuda_rows_new,
    .tensor_free = rvi_cuda_tensor_free,
    .pack_bytes = rvi_cuda_pack_bytes,
    .pack_new = rvi_cuda_pack_new,
    .pack = rvi_cuda_pack,
    .pack_free = rvi_cuda_pack_free,
    .n_rows = tensor_rows,
    .n_cols = tensor_cols,
    .rows_write = rvi_cuda_rows_write,
    .fill_rows = rvi_cuda_fill_rows,
    .rows_read = rvi_cuda_rows_read,
    .fetch = rvi_cuda_fetch,
    .take = rvi_cuda_take,
    .again = rvi_cuda_again,
    .best = rvi_cuda_best,
    .draws_new = rvi_cuda_draws_new,
    .draws_free = rvi_cuda_draws_free,
    .draw = rvi_cuda_draw,
    .host_new = rvi_cuda_host_new,
    .host_free = rvi_cuda_host_free,
    .submit = rvi_cuda_submit,
    .check = rvi_cuda_check,
    .reserve = rvi_cuda_reserve,
    .set_stop = set_stop,
    .share = share,
    .kv_new = rvi_cuda_kv_new,
    .kv_free = rvi_cuda_kv_free,
    .kv_copy_page = rvi_cuda_kv_copy_page,
    .kv_page_bytes = rvi_cuda_kv_page_bytes,
    .kv_read_page = rvi_cuda_kv_read_page,
    .kv_write_page = rvi_cuda_kv_write_page,
    .is_exact = is_exact,
    .kv_write = rvi_cuda_kv_write,
    .embed = rvi_cuda_embed,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .head_norm = head_norm,
    .matmul = matmul,
    .rope = rope,
    .attention = rvi_cuda_attention,
    .glu = glu,
    .act = act,
    .add = add,
    .soft_cap = soft_cap,
    .gather = gather,
    .lora = rvi_cuda_lora,
    .lora_pack = lora_pack,
    .lora_bytes = lora_bytes,
    .lora_seal = lora_seal,
    .floats_view = rvi_cuda_floats_view,
    .floats_part = rvi_cuda_floats_part,
    .floats_in = rvi_cuda_floats_in,
    .floats_out = rvi_cuda_floats_out,
    .train_reserve = rvi_cuda_train_reserve,
    .needs_held = true,
    .memory_left = rvi_cuda_memory_left,
    .held_bytes = rvi_cuda_held_bytes,
    .held_new = rvi_cuda_held_new,
    .held_free = rvi_cuda_held_free,
    .linear = rvi_cuda_linear,
    .linear_back = rvi_cuda_linear_back,
    .span_attention = rvi_cuda_span_attention,
    .span_attention_back = rvi_cuda_span_attention_back,
    .rms_norm_back = rvi_cuda_rms_norm_back,
    .head_norm_back = rvi_cuda_head_norm_back,
    .glu_back = rvi_cuda_glu_back,
    .loss = rvi_cuda_loss,
    .zero = rvi_cuda_zero,
    .copy = rvi_cuda_copy,
    .scatter_add = rvi_cuda_scatter_add,
    .like = cuda_like,
    .run = run,
};

static const char *const kernel_names[] = {
#define X(name) #name,
    RVI_CUDA_PLAIN_KERNELS(X)
#undef X
#define X(name, weights, before, main, after) "matmul_" #name "_1", "matmul_" #name "_4",
        RVI_CUDA_TYPES(X)
#undef X
#define X(name, bits, offset, scales, d_units, has_m) "product_row_" #name,
            RVI_CUDA_QUANTS(X)
#undef X
                "product_row_F16",
#define X(name, bits, offset, scales, d_units, has_m) "product_short_" #name,
    RVI_CUDA_QUANTS(X)
#undef X
        "product_short_F16",
#define X(name, bits, offset, scales, d_units, has_m) "product_wide_" #name,
    RVI_CUDA_QUANTS(X)
#undef X
        "product_wide_F16",
    "product_wide_F16_64",
    "product_wide_F16_32",
    "product_wide_F16_128",
#define X(name, bits, offset, scales, d_units, has_m) "product_ring_" #name,
    RVI_CUDA_QUANTS(X)
#undef X
};

/* Can it have the largest clusters? They are not for all devices that have clusters. */
static bool has_clusters(rvi_cuda *c, rvi_cu_function *f)
{
    rvi_cu_attribute size = {.id = RVI_CU_CLUSTER, .value = {RVI_CUDA_CLUSTER, 1, 1}};
    rvi_cu_launch l = {.grid = {RVI_CUDA_CLUSTER, 1, 1},
                       .threads = {RVI_CUDA_THREADS, 1, 1},
                       .shared = RVI_CUDA_HEADS_SHARED,
                       .attributes = &size,
                       .n_attributes = 1};
    int n = 0;
    return !c->exact && !c->cu.function_set(f, RVI_CU_LARGE_CLUSTERS, 1) &&
           !c->cu.active_clusters(&n, f, &l) && n > 0;
}

/* Of the dynamic shared memory that a kernel asks for at most, what this device has: kernels that
 * take what there is ask for no more; heads_row and those named wide are not for all. */
static int shared_for(const rvi_cuda *c, rvi_cuda_kernel k, int most)
{
    if (k == RVI_CUDA_attention_tiles || k == RVI_CUDA_product_few) return most;
    bool wide = (k >= RVI_CUDA_product_wide_Q4_0 && k <= RVI_CUDA_product_wide_F16_128) ||
                (k >= RVI_CUDA_attention_wide_64 && k <= RVI_CUDA_attention_wide_256);
    if ((k == RVI_CUDA_heads_row || wide) && !c->has_groups) return 0;
    if (wide) return most;
    return RVI_MIN(most, (int)c->shared);
}

/* What a kernel wants of a processor's fast memory as shared memory, in percent; 0: what the driver
 * thinks. A processor divides it anew only when nothing runs there, so those that follow each other
 * where one row is computed want much of it. Weights that are not copied to rings come through the
 * rest: those of 16 bits lose a tenth of their speed at 100, and two rows of 14,336 columns fit in
 * 44; of others 1b's lose a twentieth at 100 and nothing at 72. */
static int shared_part(rvi_cuda_kernel k)
{
    if (rvi_cuda_is_row_16(k)) return 44;
    if (rvi_cuda_is_ring(k)) return 100;
    if (rvi_cuda_is_row(k)) return 72;
    switch (k) {
    case RVI_CUDA_heads_row:
    case RVI_CUDA_attention_row:
    case RVI_CUDA_attention_row_large:
    case RVI_CUDA_attention_row_q8:
    case RVI_CUDA_attention_join:
    case RVI_CUDA_bring:
    case RVI_CUDA_gather:
    case RVI_CUDA_best:
    case RVI_CUDA_draw_look:
    case RVI_CUDA_draw_weigh:
    case RVI_CUDA_signal: return 100;
    default: return 0;
    }
}

static rv_status load_kernels(rvi_cuda *c, const void *image, rv_error *err)
{
    rvi_cu_result r = c->cu.module_load(&c->module, image);
    if (r == RVI_CU_CANNOT_COMPILE)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "the CUDA driver is too old to compile the kernels of this program for "
                         "this device: install a newer one");
    if (r == RVI_CU_NO_BINARY) {
        int major = 0, minor = 0;
        (void)c->cu.device_attribute(&major, RVI_CU_MAJOR, c->device);
        (void)c->cu.device_attribute(&minor, RVI_CU_MINOR, c->device);
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "the kernels of this program do not run on this CUDA device: its compute "
                         "capability is %d.%d, 8.0 or later is needed",
                         major, minor);
    }
    for (int i = 0; !r && i < RVI_CUDA_KERNELS; i++)
        r = c->cu.module_function(&c->functions[i], c->module, kernel_names[i]);
    int compiled_for = 0;
    if (!r)
        r = c->cu.function_get(&compiled_for, RVI_CU_COMPILED_FOR,
                               c->functions[RVI_CUDA_heads_row]);
    /* Not what the device has: a driver may prefer to compile what is for 8.0, where `begin` and
     * kernels that need groups are empty. */
    c->early = compiled_for / 10 == 9;
    c->has_groups = c->early && !c->exact;
    static const struct {
        rvi_cuda_kernel first, last;
        int bytes;
    } large[] = {
        {RVI_CUDA_product_row, RVI_CUDA_product_row, RVI_CUDA_LONGEST},
        {RVI_CUDA_product_row_Q4_0, RVI_CUDA_product_row_F16, RVI_CUDA_LONGEST},
        {RVI_CUDA_product_ring, RVI_CUDA_product_ring, RVI_CUDA_SHARED},
        {RVI_CUDA_product_ring_Q4_0, RVI_CUDA_product_ring_IQ4_XS, RVI_CUDA_SHARED},
        {RVI_CUDA_product_few, RVI_CUDA_product_few, RVI_CUDA_FEW_MOST},
        {RVI_CUDA_product_tiles_32, RVI_CUDA_product_tiles_128, RVI_CUDA_SHARED},
        {RVI_CUDA_attention_tiles, RVI_CUDA_attention_tiles, RVI_CUDA_KEY_SHARED},
        {RVI_CUDA_attention_tiles_q8, RVI_CUDA_attention_tiles_q8, RVI_CUDA_KEY_SHARED_Q8},
        {RVI_CUDA_attention_tiles_large, RVI_CUDA_attention_tiles_large, RVI_CUDA_KEY_SHARED_LARGE},
        {RVI_CUDA_attention_wide_64, RVI_CUDA_attention_wide_256, RVI_CUDA_TILE_SHARED},
        {RVI_CUDA_attention_row, RVI_CUDA_attention_row, RVI_CUDA_ROW_SHARED},
        {RVI_CUDA_attention_row_large, RVI_CUDA_attention_row_large, RVI_CUDA_ROW_SHARED_LARGE},
        {RVI_CUDA_attention_row_q8, RVI_CUDA_attention_row_q8, RVI_CUDA_ROW_SHARED_Q8},
        {RVI_CUDA_heads_row, RVI_CUDA_heads_row, RVI_CUDA_HEADS_SHARED},
        {RVI_CUDA_product_wide_Q4_0, RVI_CUDA_product_wide_F16_128, RVI_CUDA_TILE_SHARED}};
    for (size_t i = 0; i < RVI_COUNT(large) && !c->exact; i++)
        for (int k = (int)large[i].first; !r && k <= (int)large[i].last; k++)
            r = c->cu.function_set(c->functions[k], RVI_CU_SHARED_BYTES,
                                   shared_for(c, (rvi_cuda_kernel)k, large[i].bytes));
    for (int k = 0; !r && k < RVI_CUDA_KERNELS; k++)
        if (shared_part((rvi_cuda_kernel)k))
            r = c->cu.function_set(c->functions[k], RVI_CU_SHARED_PART,
                                   shared_part((rvi_cuda_kernel)k));
    if (r == RVI_CU_INVALID)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "this CUDA device has too little shared memory: a block needs 99 KiB, as "
                         "devices from compute capability 8.0 on have");
    if (!r && c->has_groups) c->has_clusters = has_clusters(c, c->functions[RVI_CUDA_heads_row]);
    rvi_cuda_kernel gemm = c->exact ? RVI_CUDA_gemm_f32 : RVI_CUDA_gemm_bf16;
    if (!r)
        r = c->cu.function_set(c->functions[gemm], RVI_CU_SHARED_BYTES,
                               RVI_CUDA_GEMM_STAGES * RVI_CUDA_GEMM_STAGE);
    return r ? rvi_cu_error(&c->cu, r, "loading kernels", err) : RV_OK;
}

/* The device's context could not be had. */
static rv_status not_opened(const rvi_cuda *c, rvi_cu_result r, int index, rv_error *err)
{
    if (r == RVI_CU_UNAVAILABLE)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "CUDA device %d cannot be used: another program has it for itself, or its "
                         "compute mode forbids it (nvidia-smi -c 0 lets all use it)",
                         index);
    if (r == RVI_CU_OUT_OF_MEMORY)
        return rvi_error(err, RV_E_NOMEM,
                         "CUDA device %d has no memory left to be opened: other programs use it",
                         index);
    return rvi_cu_error(&c->cu, r, "opening the CUDA device", err);
}

static rv_status open_device(rvi_cuda *c, int index, const void *image, rv_error *err)
{
    int n = 0;
    rvi_cu_result r = c->cu.device_count(&n);
    if (!r && (index < 0 || index >= n))
        return rvi_error(err, RV_E_CONFIG,
                         n ? "there is no CUDA device %d: devices 0..%d were found"
                           : "the CUDA driver finds no device",
                         index, n - 1);
    if (!r) r = c->cu.device_get(&c->device, index);
    if (!r && (r = c->cu.context_retain(&c->context, c->device))) {
        c->context = NULL;
        return not_opened(c, r, index, err);
    }
    if (!r) r = c->cu.context_use(c->context);
    int processors = 0, shared = 0;
    if (!r) r = c->cu.device_attribute(&processors, RVI_CU_PROCESSORS, c->device);
    if (!r) r = c->cu.device_attribute(&shared, RVI_CU_MOST_SHARED, c->device);
    if (r) return rvi_cu_error(&c->cu, r, "opening the CUDA device", err);
    c->n_blocks = RVI_MAX(processors, 1) * 4;
    shared = RVI_MAX(shared - RVI_CUDA_BESIDES, 0);
    c->shared = (uint32_t)RVI_MIN(shared, RVI_CUDA_SHARED);
    rv_status st = load_kernels(c, image, err);
    return st ? st : rvi_cuda_list_new(c, err);
}

rv_status rvi_backend_cuda_new(rvi_backend **out, const rvi_cuda_options *o, const rvi_log *log,
                               rv_error *err)
{
    *out = NULL;
    rvi_cuda_image image = {o->image, o->image_version};
    if (!o->image) image = rvi_cuda_embedded();
    if (!image.data)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "this program was built without CUDA kernels (make CUDA=1 builds them)");
    rvi_cuda *c = rvi_zalloc(sizeof *c);
    rvi_backend_memory *memory = rvi_zalloc(sizeof *memory);
    if (!c || !memory) {
        rvi_free(c);
        rvi_free(memory);
        return rvi_nomem(err, "CUDA backend");
    }
    c->be = (rvi_backend){.ops = &cuda_ops, .log = log, .memory = memory};
    c->exact = o->exact;
    c->made_with = *o;
    rv_status st = rvi_pool_new(&c->pool, o->n_threads, err);
    if (!st) st = rvi_cu_driver_open(&c->cu, o->driver, image.version, err);
    if (!st) st = open_device(c, o->device, image.data, err);
    if (st)
        cuda_free(&c->be);
    else
        *out = &c->be;
    return st;
}
