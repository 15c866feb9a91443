/* Tensors in device memory, packing of weights, and rows on their way in and out. */
#include <math.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "base/os.h"

enum { ALIGN = 16, PACK_ALIGN = 256 };

struct rvi_pack {
    rvi_cuda_at at;
    size_t used, size;
    uint8_t *buffer[2]; /* pinned, while weights are on their way; NULL before and after */
    rvi_cu_event *copied[2];
    int filling;
};

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
    *out = t;
    return RV_OK;
}

void rvi_cuda_tensor_free(rvi_backend *be, rvi_tensor *t)
{
    if (!t) return;
    /* what is still to be started may write to it; adapters, which any thread may free, are there
     * when they are made */
    if (t->bytes && t->counted == &be->memory->scratch) {
        rvi_cuda_submit(be);
        rvi_cuda_forget(rvi_cuda_of(be));
    }
    if (t->bytes) {
        rvi_cuda_release(rvi_cuda_of(be), t->at);
        atomic_fetch_sub(t->counted, t->bytes);
    }
    rvi_free(t);
}

/* Memory of its own for n_rows x n_cols floats. */
static rv_status own_floats(rvi_cuda *c, rvi_tensor *t, atomic_size_t *counted, const char *what,
                            rv_error *err)
{
    size_t bytes = (size_t)t->n_rows * (size_t)t->n_cols * sizeof(float);
    rv_status st = rvi_cuda_alloc(c, &t->at, bytes, what, err);
    if (st) return st;
    t->bytes = bytes;
    t->counted = counted;
    atomic_fetch_add(counted, bytes);
    return RV_OK;
}

rv_status rvi_cuda_weight_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                              rv_error *err)
{
    *out = NULL;
    if (view->n_dims != 2)
        return rvi_error(err, RV_E_MODEL, "tensor '%s': a matrix is expected", view->name);
    rv_status st = tensor_new(out, view->type, view->shape[0], view->shape[1], view->name, err);
    if (!st) {
        (*out)->data = view->data;
        (*out)->mapped = view->mapped;
        (*out)->panels = rvi_cuda_has_panels(rvi_cuda_of(be), *out);
    }
    return st;
}

/* Copies to the device and waits; any thread. */
static rv_status upload(rvi_cuda *c, rvi_cuda_at to, const void *from, size_t bytes, rv_error *err)
{
    rvi_cu_result r = c->cu.context_use(c->context);
    if (!r) r = c->cu.copy_in(to, from, bytes, c->copies);
    if (!r) r = c->cu.stream_wait(c->copies);
    return r ? rvi_cu_error(&c->cu, r, "copying to the device", err) : RV_OK;
}

rv_status rvi_cuda_floats_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                              float offset, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    uint64_t cols = view->shape[view->n_dims - 1], rows = 1;
    for (int i = 0; i < view->n_dims - 1; i++) rows *= view->shape[i];
    rv_status st = tensor_new(out, RVI_F32, rows, cols, view->name, err);
    if (st) return st;
    size_t n = (size_t)rows * (size_t)cols;
    float *floats = rvi_alloc_array(n, sizeof *floats);
    st = floats ? own_floats(c, *out, &be->memory->weights, view->name, err)
                : rvi_nomem(err, view->name);
    if (!st) {
        rvi_dequantize(view->type, view->data, floats, n);
        for (size_t i = 0; offset != 0 && i < n; i++) floats[i] += offset;
        st = upload(c, (*out)->at, floats, n * sizeof *floats, err);
    }
    rvi_free(floats);
    if (st) {
        rvi_cuda_tensor_free(be, *out);
        *out = NULL;
    }
    return st;
}

rv_status rvi_cuda_rows_new(rvi_backend *be, rvi_tensor **out, int n_rows, int n_cols,
                            rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rv_status st = tensor_new(out, RVI_F32, (uint64_t)n_rows, (uint64_t)n_cols, "activations", err);
    if (st) return st;
    st = own_floats(c, *out, &be->memory->scratch, "activations", err);
    /* rows that are read before they are written, in a step that was stopped, hold numbers */
    rvi_cu_result r = st ? 0 : c->cu.fill((*out)->at, 0, (*out)->bytes, c->stream);
    if (r) st = rvi_cu_error(&c->cu, r, "clearing activations", err);
    if (st) {
        rvi_cuda_tensor_free(be, *out);
        *out = NULL;
    }
    return st;
}

/* ---- packing: weights.h has the picture ---- */

static const struct layout {
    int weights, before, main, after;
} layouts[RVI_QTYPE_COUNT] = {
#define X(name, weights, before, main, after) [RVI_##name] = {weights, before, main, after},
    RVI_CUDA_TYPES(X)
#undef X
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Rows or panels. */
static int n_pieces(const rvi_tensor *t)
{
    return t->panels ? (t->n_rows + RVI_CUDA_PANEL - 1) / RVI_CUDA_PANEL : t->n_rows;
}

static void row_layout(const rvi_tensor *t, size_t *heads, size_t *row_bytes)
{
    const struct layout *l = &layouts[t->type];
    if (t->panels) {
        *heads = 0;
        *row_bytes = rvi_cuda_panel_bytes(t);
        return;
    }
    size_t blocks = round_up((size_t)t->n_cols, (size_t)l->weights) / (size_t)l->weights;
    *heads = round_up(blocks * (size_t)l->main, ALIGN);
    *row_bytes = *heads + round_up(blocks * (size_t)(l->before + l->after), ALIGN);
}

size_t rvi_cuda_pack_bytes(rvi_backend *be, const rvi_tensor *t)
{
    size_t heads, row_bytes;
    (void)be;
    row_layout(t, &heads, &row_bytes);
    return round_up(row_bytes * (size_t)n_pieces(t), PACK_ALIGN);
}

enum { PACK_BUFFER = 16 << 20 };

static void free_buffers(rvi_cuda *c, rvi_pack *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->buffer[i]) (void)c->cu.host_release(p->buffer[i]);
        if (p->copied[i]) (void)c->cu.event_free(p->copied[i]);
        p->buffer[i] = NULL;
        p->copied[i] = NULL;
    }
}

rv_status rvi_cuda_pack_new(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err)
{
    rvi_cuda *c = rvi_cuda_of(be);
    *out = NULL;
    rvi_pack *p = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "packed weights");
    rv_status st = rvi_cuda_alloc(c, &p->at, bytes, "the weights", err);
    rvi_cu_result r = 0;
    for (int i = 0; !st && !r && i < 2; i++) {
        r = c->cu.host_alloc((void **)&p->buffer[i], PACK_BUFFER);
        if (!r) r = c->cu.event_new(&p->copied[i], RVI_CU_EVENT_NO_TIME);
    }
    if (r) st = rvi_cu_error(&c->cu, r, "pinned memory for weights", err);
    if (st) {
        rvi_cuda_pack_free(be, p);
        return st;
    }
    p->size = bytes;
    atomic_fetch_add(&be->memory->weights, bytes);
    *out = p;
    return RV_OK;
}

void rvi_cuda_pack_free(rvi_backend *be, rvi_pack *p)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (!p) return;
    rvi_cuda_release(c, p->at); /* also makes the context this thread's */
    free_buffers(c, p);
    atomic_fetch_sub(&be->memory->weights, p->size);
    rvi_free(p);
}

rvi_cuda_at rvi_cuda_pack_take(rvi_pack *p, size_t bytes)
{
    rvi_cuda_at at = p->at + p->used;
    p->used += bytes;
    return at;
}

typedef struct packing {
    const rvi_tensor *t;
    int first, n, rows_a_task;
    uint8_t *to;
} packing;

static void pack_row(const rvi_tensor *t, int row, uint8_t *to)
{
    const struct layout *l = &layouts[t->type];
    size_t bytes = rvi_qtype_row_bytes(t->type, (size_t)t->n_cols);
    const uint8_t *from = t->data + (size_t)row * bytes;
    size_t block = (size_t)(l->before + l->main + l->after), head = block - (size_t)l->main;
    if (!head) { /* floats: the last block is filled up */
        memcpy(to, from, bytes);
        memset(to + bytes, 0, t->row_bytes - bytes);
        return;
    }
    uint8_t *heads = to + t->heads;
    memset(to + t->heads - ALIGN, 0, ALIGN); /* what may be left between the two */
    memset(to + t->row_bytes - ALIGN, 0, ALIGN);
    for (; bytes; bytes -= block, from += block, to += l->main, heads += head) {
        memcpy(heads, from, (size_t)l->before);
        memcpy(to, from + l->before, (size_t)l->main);
        memcpy(heads + l->before, from + l->before + l->main, (size_t)l->after);
    }
}

static void pack_task(void *ctx, int task, int worker)
{
    const packing *p = ctx;
    (void)worker;
    int end = RVI_MIN((task + 1) * p->rows_a_task, p->n);
    for (int r = task * p->rows_a_task; r < end; r++) {
        uint8_t *to = p->to + (size_t)r * p->t->row_bytes;
        if (p->t->panels)
            rvi_cuda_put_panel(p->t, p->first + r, to);
        else
            pack_row(p->t, p->first + r, to);
    }
}

/* Pieces first .. first + n - 1 through one of the two buffers. */
static rvi_cu_result pack_piece(rvi_cuda *c, rvi_pack *p, const rvi_tensor *t, int first, int n)
{
    int i = p->filling;
    p->filling ^= 1;
    rvi_cu_result r = c->cu.event_wait(p->copied[i]);
    if (r) return r;
    packing work = {t, first, n, RVI_MAX(1, (1 << 18) / (int)t->row_bytes), p->buffer[i]};
    rvi_pool_run_all(c->pool, pack_task, &work, (n + work.rows_a_task - 1) / work.rows_a_task);
    r = c->cu.copy_in(t->at + (size_t)first * t->row_bytes, p->buffer[i], (size_t)n * t->row_bytes,
                      c->copies);
    return r ? r : c->cu.event_record(p->copied[i], c->copies);
}

void rvi_cuda_pack(rvi_backend *be, rvi_pack *p, rvi_tensor *t)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t bytes = rvi_cuda_pack_bytes(be, t);
    row_layout(t, &t->heads, &t->row_bytes);
    t->at = p->at + p->used;
    p->used += bytes;
    int room = (int)(PACK_BUFFER / t->row_bytes);
    rvi_cu_result r = c->cu.context_use(c->context);
    for (int at = 0; !r && at < n_pieces(t); at += room)
        r = pack_piece(c, p, t, at, RVI_MIN(room, n_pieces(t) - at));
    if (t->mapped)
        rvi_os_release_mapped(t->data,
                              (size_t)t->n_rows * rvi_qtype_row_bytes(t->type, (size_t)t->n_cols));
    if (p->used == p->size) { /* the last one */
        if (!r) r = c->cu.stream_wait(c->copies);
        free_buffers(c, p);
    }
    rvi_cuda_fails(c, r, "copying weights to the device");
}

/* ---- rows in and out ---- */

/* What was staged last takes the place of what was staged before it, from `to` on. */
static void replace_staged(rvi_cuda *c, rvi_cuda_at to, rvi_cuda_at from)
{
    uint8_t *staged = c->staged[c->filling];
    size_t at = (size_t)(to - c->staging), bytes = c->n_staged - (size_t)(from - c->staging);
    memmove(staged + at, staged + (from - c->staging), bytes);
    c->n_staged = at + bytes;
}

/* Appends a copy from the staging area to rows, or lengthens or replaces the last one. */
static void copy_rows(rvi_cuda *c, rvi_cols dst, int row, int n_rows, rvi_cuda_at from)
{
    rvi_cuda_copy_args a = {rvi_cuda_cols_of(dst), from};
    a.out.at += (rvi_cuda_at)row * (rvi_cuda_at)a.out.stride * sizeof(float);
    rvi_cuda_command *last = rvi_cuda_last(c);
    if (last && last->kernel == RVI_CUDA_rows_copy) {
        rvi_cuda_copy_args before;
        memcpy(&before, last->args, sizeof before);
        rvi_cuda_at n = last->grid[0];
        size_t bytes = (size_t)n * (size_t)a.out.n * sizeof(float);
        if (!memcmp(&before.out, &a.out, sizeof a.out) && n == (rvi_cuda_at)n_rows &&
            from == before.from + (bytes + 15) / 16 * 16) {
            replace_staged(c, before.from, from); /* nobody has read what it was to copy */
            return;
        }
        if (before.out.at + n * (rvi_cuda_at)a.out.stride * sizeof(float) == a.out.at &&
            before.out.n == a.out.n && before.out.stride == a.out.stride &&
            before.from + n * (rvi_cuda_at)a.out.n * sizeof(float) == from) {
            last->grid[0] += (uint32_t)n_rows;
            return;
        }
    }
    rvi_cuda_add(c, RVI_CUDA_rows_copy, (uint32_t[]){(uint32_t)n_rows, 1, 1}, RVI_CUDA_THREADS, &a,
                 sizeof a);
}

void rvi_cuda_rows_write(rvi_backend *be, rvi_cols dst, int row, const float *src)
{
    rvi_cuda *c = rvi_cuda_of(be);
    void *host;
    rvi_cuda_at from = rvi_cuda_stage(c, (size_t)dst.n * sizeof *src, &host);
    if (!from) return;
    memcpy(host, src, (size_t)dst.n * sizeof *src);
    copy_rows(c, dst, row, 1, from);
}

typedef struct filling {
    void (*fn)(void *ctx, int row, int first, int n, float *out);
    void *ctx;
    int first, n_cols;
    float *to;
} filling;

static void fill_task(void *ctx, int row, int worker)
{
    const filling *f = ctx;
    (void)worker;
    f->fn(f->ctx, f->first + row, 0, f->n_cols, f->to + (size_t)row * (size_t)f->n_cols);
}

void rvi_cuda_fill_rows(rvi_backend *be, rvi_cols dst, int n_rows,
                        void (*fn)(void *ctx, int row, int first, int n, float *out), void *ctx)
{
    rvi_cuda *c = rvi_cuda_of(be);
    size_t row = (size_t)dst.n * sizeof(float);
    for (int at = 0, n; at < n_rows && !rvi_cuda_is_idle(c); at += n) {
        void *host;
        n = (int)RVI_MIN((size_t)(n_rows - at), RVI_MAX(c->max_staged / row, 1));
        rvi_cuda_at from = rvi_cuda_stage(c, (size_t)n * row, &host);
        if (!from) return; /* not reserved for so many columns */
        filling f = {fn, ctx, at, dst.n, host};
        rvi_pool_run(c->pool, fill_task, &f, n);
        copy_rows(c, dst, at, n, from);
    }
}

/* Rows that the last command is to copy to the device, where they still lie on the host; NULL: it
 * does not copy these. Weights are read row by row so, without a word to the device. */
static const uint8_t *find_staged(rvi_cuda *c, const rvi_cuda_cols *x, int n_rows)
{
    const rvi_cuda_command *last = rvi_cuda_last(c);
    rvi_cuda_copy_args a;
    if (!last || last->kernel != RVI_CUDA_rows_copy) return NULL;
    memcpy(&a, last->args, sizeof a);
    rvi_cuda_at line = (rvi_cuda_at)x->stride * sizeof(float), from = x->at - a.out.at;
    if (x->at < a.out.at || x->stride != a.out.stride || x->n != a.out.n || from % line ||
        from / line + (rvi_cuda_at)n_rows > last->grid[0])
        return NULL;
    return c->staged[c->filling] + (a.from - c->staging) +
           from / line * (rvi_cuda_at)x->n * sizeof(float);
}

void rvi_cuda_fetch(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_cols x = rvi_cuda_cols_of(src);
    size_t row = (size_t)src.n * sizeof *dst, piece = (size_t)n_rows * row;
    bool dense = x.stride == x.n, waits = src.t->counted != &be->memory->weights;
    if (src.t->host) { /* the caller's storage has the values */
        for (int i = 0; i < n_rows; i++)
            memcpy(dst + (size_t)i * (size_t)src.n,
                   src.t->host + (size_t)i * (size_t)src.t->n_cols + (size_t)src.first, row);
        return;
    }
    /* an adapter's matrices have been there since they were made: any thread may read them */
    const uint8_t *staged = waits && !rvi_cuda_is_idle(c) ? find_staged(c, &x, n_rows) : NULL;
    if (staged) {
        memcpy(dst, staged, piece);
        return;
    }
    rvi_cu_stream *stream = waits ? c->stream : c->copies;
    if (waits) rvi_cuda_submit(be);
    rvi_cu_result r = atomic_load(&c->failed);
    if (!r) r = c->cu.context_use(c->context);
    for (int i = 0; !r && i < (dense ? 1 : n_rows); i++)
        r = c->cu.copy_out(dst + (size_t)i * (size_t)src.n,
                           x.at + (size_t)i * (size_t)x.stride * sizeof *dst, dense ? piece : row,
                           stream);
    if (!r) r = waits ? rvi_cuda_wait(c, false) : c->cu.stream_wait(stream);
    if (!rvi_cuda_fails(c, r, "waiting for results")) return;
    for (size_t i = 0; i < (size_t)n_rows * (size_t)src.n; i++) dst[i] = NAN;
}

/* The product of one row, if it is the list's last command, writes to pinned memory. */
static bool redirect(rvi_cuda *c, const rvi_cuda_cols *x, float *dst)
{
    rvi_cuda_command *last = rvi_cuda_last(c);
    rvi_cuda_product_args a;
    if (!last || !rvi_cuda_is_row(last->kernel)) return false;
    memcpy(&a, last->args, sizeof a);
    if (a.n_parts != 1 || a.n_rows != 1 || a.finish != RVI_CUDA_STORE || a.part[0].out != x->at ||
        a.part[0].n_out != x->n)
        return false;
    a.part[0].out = (rvi_cuda_at)(uintptr_t)dst;
    memcpy(last->args, &a, sizeof a);
    return true;
}

void rvi_cuda_take(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_cols x = rvi_cuda_cols_of(src);
    if (!c->recalled && (n_rows != 1 || rvi_cuda_is_idle(c) || !redirect(c, &x, dst))) {
        rvi_cuda_fetch(be, src, n_rows, dst);
        return;
    }
    rvi_cuda_finish(c);
    rvi_cu_result r = atomic_load(&c->failed);
    if (!rvi_cuda_fails(c, r ? r : rvi_cuda_wait(c, true), "waiting for results")) return;
    for (int i = 0; i < src.n; i++) dst[i] = NAN;
}

/* rows <= those reserved for. */
void rvi_cuda_best(rvi_backend *be, rvi_cols x, int n_rows, int32_t *out)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_best_args a = {.x = rvi_cuda_cols_of(x),
                            .out = (rvi_cuda_at)(uintptr_t)c->bests,
                            .parts = c->pieces,
                            .arrivals = c->pieces + RVI_CUDA_BEST_BYTES,
                            .pieces = n_rows > RVI_CUDA_BEST_ROWS ? 1 : RVI_CUDA_BEST_PIECES};
    for (int i = 0; i < n_rows; i++) out[i] = -1;
    if (n_rows < 1 || n_rows > c->max_rows) return;
    if (!c->recalled)
        rvi_cuda_add(c, RVI_CUDA_best, (uint32_t[]){(uint32_t)n_rows, (uint32_t)a.pieces, 1},
                     RVI_CUDA_BEST, &a, sizeof a);
    rvi_cuda_finish(c);
    if (rvi_cuda_is_idle(c) || rvi_cuda_fails(c, rvi_cuda_wait(c, true), "waiting for results"))
        return;
    memcpy(out, c->bests, (size_t)n_rows * sizeof *out);
}

void *rvi_cuda_host_new(rvi_backend *be, size_t bytes)
{
    rvi_cuda *c = rvi_cuda_of(be);
    void *p = NULL;
    if (c->cu.context_use(c->context) || c->cu.host_alloc(&p, bytes)) return NULL;
    return p;
}

void rvi_cuda_host_free(rvi_backend *be, void *p)
{
    rvi_cuda *c = rvi_cuda_of(be);
    if (p && !c->cu.context_use(c->context)) (void)c->cu.host_release(p);
}

void rvi_cuda_rows_read(rvi_backend *be, rvi_cols src, int row, float *dst)
{
    rvi_tensor at = *src.t;
    at.at += (rvi_cuda_at)row * (rvi_cuda_at)at.n_cols * sizeof(float);
    if (at.host) at.host += (size_t)row * (size_t)at.n_cols;
    rvi_cuda_fetch(be, rvi_cols_of(&at, src.first, src.n), 1, dst);
}

typedef struct embedding {
    const rvi_tensor *table;
    const int32_t *ids;
    float *to, scale;
    int n_cols;
} embedding;

static void embed_task(void *ctx, int r, int worker)
{
    const embedding *e = ctx;
    const rvi_tensor *t = e->table;
    size_t n = (size_t)t->n_cols, bytes = rvi_qtype_row_bytes(t->type, n);
    float *to = e->to + (size_t)r * n;
    (void)worker;
    rvi_dequantize(t->type, t->data + (size_t)e->ids[r] * bytes, to, n);
    for (size_t i = 0; e->scale != 1.0f && i < n; i++) to[i] *= e->scale;
}

/* The table stays in its file: a row is turned into floats on the host. */
void rvi_cuda_embed(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                    int n_rows, float scale)
{
    enum { MANY = 1 << 15 }; /* floats that are worth waking other threads */
    rvi_cuda *c = rvi_cuda_of(be);
    size_t row = (size_t)out.n * sizeof(float);
    if (rvi_cuda_is_idle(c)) return;
    for (int at = 0, n; at < n_rows; at += n) {
        void *host;
        n = (int)RVI_MIN((size_t)(n_rows - at), RVI_MAX(c->max_staged / row, 1));
        rvi_cuda_at from = rvi_cuda_stage(c, (size_t)n * row, &host);
        if (!from) return; /* not reserved for so many columns */
        embedding e = {table, ids + at, host, scale, out.n};
        if ((size_t)n * (size_t)out.n < MANY)
            for (int r = 0; r < n; r++) embed_task(&e, r, 0);
        else
            rvi_pool_run_all(c->pool, embed_task, &e, n);
        copy_rows(c, out, at, n, from);
    }
}

/* ---- views: floats of the caller's, with a copy on the device ---- */

rv_status rvi_cuda_floats_view(rvi_backend *be, rvi_tensor **out, float *data, int n_rows,
                               int n_cols, rv_error *err)
{
    rv_status st = tensor_new(out, RVI_F32, (uint64_t)n_rows, (uint64_t)n_cols, "floats", err);
    if (st) return st;
    (*out)->host = data;
    st = own_floats(rvi_cuda_of(be), *out, &be->memory->scratch, "adapter parameters", err);
    if (st) {
        rvi_free(*out);
        *out = NULL;
    }
    return st;
}

rv_status rvi_cuda_floats_part(rvi_backend *be, rvi_tensor **out, const rvi_tensor *view,
                               size_t first, int n_rows, int n_cols, rv_error *err)
{
    (void)be;
    rv_status st = tensor_new(out, RVI_F32, (uint64_t)n_rows, (uint64_t)n_cols, "floats", err);
    if (st) return st;
    (*out)->host = view->host + first;
    (*out)->at = view->at + first * sizeof(float);
    return RV_OK;
}

static size_t view_bytes(const rvi_tensor *view)
{
    return (size_t)view->n_rows * (size_t)view->n_cols * sizeof(float);
}

/* The storage changes after later results were waited for, not before. */
void rvi_cuda_floats_in(rvi_backend *be, const rvi_tensor *view)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_submit(be);
    if (rvi_cuda_is_idle(c) || rvi_cuda_fails(c, c->cu.context_use(c->context), "using the device"))
        return;
    rvi_cuda_fails(c, c->cu.copy_in(view->at, view->host, view_bytes(view), c->stream),
                   "copying to the device");
}

void rvi_cuda_floats_out(rvi_backend *be, const rvi_tensor *view)
{
    rvi_cuda *c = rvi_cuda_of(be);
    rvi_cuda_submit(be);
    rvi_cu_result r = atomic_load(&c->failed);
    if (!r) r = c->cu.context_use(c->context);
    if (!r) r = c->cu.copy_out(view->host, view->at, view_bytes(view), c->stream);
    if (!r) r = c->cu.stream_wait(c->stream);
    if (!rvi_cuda_fails(c, r, "waiting for results")) return;
    for (size_t i = 0; i < view_bytes(view) / sizeof(float); i++) view->host[i] = NAN;
}
