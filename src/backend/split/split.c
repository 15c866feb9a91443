/* A backend on both sides of a bus: the first layers of a model on the host, the others and the
 * head on a device. Everything above sees one op table.
 *
 * A weight belongs to the side of its layer (rvi_tensor_view.layer); one that names no layer, the
 * head, to the device. Vectors and adapters' matrices that name none lie on both sides. KV pages
 * have the planes of a side's layers there; as bytes they are those of one whole page.
 *
 * Activation rows exist on both sides. `valid` says where their values are: an op computes on the
 * side of its weight, or where its operands are, and what it reads is brought over first. In a pass
 * that happens once, to the residual stream in front of the first layer of the device. A copy
 * changes no bits and every op keeps the law on its side, so a row's result depends on the row
 * alone here too. */
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"

enum { HOST, DEVICE, SIDES };
enum { ON_HOST = 1 << HOST, ON_DEVICE = 1 << DEVICE, ON_BOTH = ON_HOST | ON_DEVICE };

struct rvi_tensor {
    rvi_tensor *on[SIDES]; /* NULL: not there */
    int n_rows, n_cols;
    int side;       /* of a weight: where its products are */
    rvi_pack *pack; /* of a weight of the host: its own */
    bool is_rows;   /* activations; of these: */
    unsigned valid; /* ON_HOST, ON_DEVICE */
    int n_valid;    /* rows that have been written */
};

struct rvi_pack {
    size_t bytes;
    rvi_pack *on[SIDES]; /* made when something is first put into them */
};

struct rvi_kv_store {
    rvi_kv_store *on[SIDES];
    size_t bytes[SIDES]; /* of a page */
};

typedef struct rvi_split {
    rvi_backend be; /* first */
    rvi_backend *on[SIDES];
    rvi_backend_memory *host_memory; /* what the host's counted itself by */
    int n_host;                      /* layers */
    float *row;                      /* one, on its way from side to side */
    size_t row_room;
    rv_status failed; /* weights found no memory: a model that is being opened asks `check` */
    rv_error why;
} rvi_split;

static rvi_split *split_of(rvi_backend *be)
{
    return (rvi_split *)be;
}

/* ---- tensors ---- */

static void tensor_free(rvi_backend *be, rvi_tensor *t)
{
    rvi_split *s = split_of(be);
    if (!t) return;
    for (int i = 0; i < SIDES; i++) s->on[i]->ops->tensor_free(s->on[i], t->on[i]);
    s->on[HOST]->ops->pack_free(s->on[HOST], t->pack);
    rvi_free(t);
}

/* Takes what was made of it on both sides, of which one may be NULL. */
static rv_status wrap(rvi_split *s, rvi_tensor **out, rvi_tensor *const on[SIDES], rv_status st,
                      rv_error *err)
{
    rvi_tensor *t = rvi_zalloc(sizeof *t);
    *out = NULL;
    if (!t && !st) st = rvi_nomem(err, "tensor");
    for (int i = 0; st && i < SIDES; i++) s->on[i]->ops->tensor_free(s->on[i], on[i]);
    if (st) {
        rvi_free(t);
        return st;
    }
    int some = on[HOST] ? HOST : DEVICE;
    memcpy(t->on, on, sizeof t->on);
    t->n_rows = s->on[some]->ops->n_rows(on[some]);
    t->n_cols = s->on[some]->ops->n_cols(on[some]);
    *out = t;
    return RV_OK;
}

static unsigned sides_of(const rvi_split *s, const rvi_tensor_view *v)
{
    return !v->layer ? ON_BOTH : v->layer <= s->n_host ? ON_HOST : ON_DEVICE;
}

/* A weight takes no memory before it is packed, so both sides know it: rows of it can be read on
 * either. */
static rv_status weight_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            rv_error *err)
{
    rvi_split *s = split_of(be);
    rvi_tensor *on[SIDES] = {0};
    rv_status st = RV_OK;
    for (int i = 0; !st && i < SIDES; i++)
        st = s->on[i]->ops->weight_new(s->on[i], &on[i], view, err);
    st = wrap(s, out, on, st, err);
    if (!st) (*out)->side = sides_of(s, view) == ON_HOST ? HOST : DEVICE;
    return st;
}

static rv_status floats_new(rvi_backend *be, rvi_tensor **out, const rvi_tensor_view *view,
                            float offset, rv_error *err)
{
    rvi_split *s = split_of(be);
    rvi_tensor *on[SIDES] = {0};
    rv_status st = RV_OK;
    for (int i = 0; !st && i < SIDES; i++)
        if (sides_of(s, view) & 1u << i)
            st = s->on[i]->ops->floats_new(s->on[i], &on[i], view, offset, err);
    return wrap(s, out, on, st, err);
}

static rv_status rows_new(rvi_backend *be, rvi_tensor **out, int n_rows, int n_cols, rv_error *err)
{
    rvi_split *s = split_of(be);
    rvi_tensor *on[SIDES] = {0};
    rv_status st = RV_OK;
    *out = NULL;
    if ((size_t)n_cols > s->row_room) {
        float *row = rvi_alloc_array((size_t)n_cols, sizeof *row);
        if (!row) return rvi_nomem(err, "activations");
        rvi_free(s->row);
        s->row = row;
        s->row_room = (size_t)n_cols;
    }
    for (int i = 0; !st && i < SIDES; i++)
        st = s->on[i]->ops->rows_new(s->on[i], &on[i], n_rows, n_cols, err);
    st = wrap(s, out, on, st, err);
    if (!st) {
        (*out)->is_rows = true;
        (*out)->valid = ON_BOTH; /* zeros */
    }
    return st;
}

static int tensor_rows(const rvi_tensor *t)
{
    return t->n_rows;
}

static int tensor_cols(const rvi_tensor *t)
{
    return t->n_cols;
}

/* ---- packing ---- */

/* The host's weights are packed one by one: a pack is the device's. */
static size_t pack_bytes(rvi_backend *be, const rvi_tensor *t)
{
    rvi_split *s = split_of(be);
    return t->side == HOST ? 0 : s->on[DEVICE]->ops->pack_bytes(s->on[DEVICE], t->on[DEVICE]);
}

static rv_status pack_new(rvi_backend *be, rvi_pack **out, size_t bytes, rv_error *err)
{
    (void)be;
    rvi_pack *p = *out = rvi_zalloc(sizeof *p);
    if (!p) return rvi_nomem(err, "packed weights");
    p->bytes = bytes;
    return RV_OK;
}

static void pack_free(rvi_backend *be, rvi_pack *p)
{
    rvi_split *s = split_of(be);
    if (!p) return;
    for (int i = 0; i < SIDES; i++) s->on[i]->ops->pack_free(s->on[i], p->on[i]);
    rvi_free(p);
}

static rv_status open_pack(rvi_split *s, rvi_pack *p, int side, rv_error *err)
{
    if (p->on[side]) return RV_OK;
    return s->on[side]->ops->pack_new(s->on[side], &p->on[side], p->bytes, err);
}

/* One of the host's without memory to be packed is computed with as the file has it. */
static void pack(rvi_backend *be, rvi_pack *p, rvi_tensor *t)
{
    rvi_split *s = split_of(be);
    rvi_backend *on = s->on[t->side];
    if (t->side == HOST) {
        size_t bytes = on->ops->pack_bytes(on, t->on[HOST]);
        if (bytes && !t->pack && on->ops->pack_new(on, &t->pack, bytes, NULL) == RV_OK)
            on->ops->pack(on, t->pack, t->on[HOST]);
        return;
    }
    if (!s->failed) s->failed = open_pack(s, p, DEVICE, &s->why);
    if (!s->failed) on->ops->pack(on, p->on[DEVICE], t->on[DEVICE]);
}

/* ---- where values are ---- */

static int side_in(unsigned sides)
{
    return sides & ON_DEVICE ? DEVICE : HOST;
}

/* Where an op on these two computes: where both are, or else where the first one is. */
static int side_of_both(rvi_cols x, rvi_cols y)
{
    return side_in(x.t->valid & y.t->valid ? x.t->valid & y.t->valid : x.t->valid);
}

/* Where a vector or matrix of floats is: there, or if that is on both sides, where x is. */
static int side_of_floats(const rvi_tensor *w, rvi_cols x)
{
    return !w->on[HOST] ? DEVICE : !w->on[DEVICE] ? HOST : side_in(x.t->valid);
}

/* The tensor's values are on the side, whether or not they were. */
static void bring(rvi_split *s, rvi_tensor *t, int to)
{
    rvi_backend *from_be = s->on[!to], *to_be = s->on[to];
    if (t->valid & 1u << to) return;
    for (int r = 0; r < t->n_valid; r++) {
        from_be->ops->rows_read(from_be, rvi_cols_of(t->on[!to], 0, t->n_cols), r, s->row);
        to_be->ops->rows_write(to_be, rvi_cols_of(t->on[to], 0, t->n_cols), r, s->row);
    }
    t->valid = ON_BOTH;
}

static rvi_cols cols_on(rvi_cols c, int side)
{
    return rvi_cols_of(c.t ? c.t->on[side] : NULL, c.first, c.n);
}

/* The columns on that side, to be read there. */
static rvi_cols reads(rvi_split *s, rvi_cols c, int side)
{
    if (c.t->is_rows) bring(s, c.t, side);
    return cols_on(c, side);
}

/* Of n_cols columns, n_rows rows will be written on the side. Rows behind them are the last pass's
 * and not looked at again. */
static void will_write(rvi_split *s, rvi_tensor *t, int n_cols, int side, int n_rows)
{
    if (n_cols < t->n_cols) bring(s, t, side); /* the others stay */
    t->n_valid = t->valid & 1u << side ? RVI_MAX(t->n_valid, n_rows) : n_rows;
    t->valid = 1u << side;
}

static rvi_cols writes(rvi_split *s, rvi_cols c, int side, int n_rows)
{
    will_write(s, c.t, c.n, side, n_rows);
    return cols_on(c, side);
}

static rvi_cols changes(rvi_split *s, rvi_cols c, int side, int n_rows)
{
    (void)reads(s, c, side);
    return writes(s, c, side, n_rows);
}

/* ---- rows in and out ---- */

static void rows_write(rvi_backend *be, rvi_cols dst, int row, const float *src)
{
    rvi_split *s = split_of(be);
    for (int i = 0; i < SIDES; i++)
        if (dst.t->on[i]) s->on[i]->ops->rows_write(s->on[i], cols_on(dst, i), row, src);
    dst.t->n_valid = RVI_MAX(dst.t->n_valid, row + 1);
}

static int readable_side(const rvi_tensor *t)
{
    return t->is_rows ? (t->valid & ON_HOST ? HOST : DEVICE) : t->on[HOST] ? HOST : DEVICE;
}

static void rows_read(rvi_backend *be, rvi_cols src, int row, float *dst)
{
    int side = readable_side(src.t);
    rvi_backend *on = split_of(be)->on[side];
    on->ops->rows_read(on, cols_on(src, side), row, dst);
}

static void fetch(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    int side = readable_side(src.t);
    rvi_backend *on = split_of(be)->on[side];
    on->ops->fetch(on, cols_on(src, side), n_rows, dst);
}

static void take(rvi_backend *be, rvi_cols src, int n_rows, float *dst)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    if (readable_side(src.t) == HOST || !on->ops->take)
        fetch(be, src, n_rows, dst);
    else
        on->ops->take(on, cols_on(src, DEVICE), n_rows, dst);
}

static void best(rvi_backend *be, rvi_cols src, int n_rows, int32_t *out)
{
    rvi_split *s = split_of(be);
    src = reads(s, src, DEVICE);
    s->on[DEVICE]->ops->best(s->on[DEVICE], src, n_rows, out);
}

static rv_status draws_new(rvi_backend *be, rvi_draws **out, int n_rows, int n_cols, rv_error *err)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    *out = NULL;
    return on->ops->draws_new ? on->ops->draws_new(on, out, n_rows, n_cols, err) : RV_OK;
}

static void draws_free(rvi_backend *be, rvi_draws *d)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    if (d) on->ops->draws_free(on, d);
}

static bool draw(rvi_backend *be, rvi_cols src, int n_rows, rvi_draws *d)
{
    rvi_split *s = split_of(be);
    src = reads(s, src, DEVICE);
    return s->on[DEVICE]->ops->draw(s->on[DEVICE], src, n_rows, d);
}

static void *host_new(rvi_backend *be, size_t bytes)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    return on->ops->host_new(on, bytes);
}

static void host_free(rvi_backend *be, void *p)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    on->ops->host_free(on, p);
}

static void submit(rvi_backend *be)
{
    rvi_backend *on = split_of(be)->on[DEVICE];
    on->ops->submit(on);
}

static rv_status check(rvi_backend *be, rv_error *err)
{
    const rvi_split *s = split_of(be);
    if (s->failed && err) *err = s->why;
    return s->failed ? s->failed : s->on[DEVICE]->ops->check(s->on[DEVICE], err);
}

static rv_status reserve(rvi_backend *be, int n_rows, int n_cols, unsigned types, rv_error *err)
{
    rvi_split *s = split_of(be);
    rv_status st = RV_OK;
    for (int i = 0; !st && i < SIDES; i++)
        st = s->on[i]->ops->reserve(s->on[i], n_rows, n_cols, types, err);
    return st;
}

static void set_stop(rvi_backend *be, const atomic_bool *stop)
{
    rvi_split *s = split_of(be);
    be->stop = stop;
    for (int i = 0; i < SIDES; i++) s->on[i]->ops->set_stop(s->on[i], stop);
}

static void share(rvi_backend *be, void (*fn)(void *ctx, int task, int worker), void *ctx,
                  int n_tasks)
{
    rvi_backend *on = split_of(be)->on[HOST];
    on->ops->share(on, fn, ctx, n_tasks);
}

static void run(rvi_backend *be, void (*fn)(void *ctx, int task, int worker), void *ctx,
                int n_tasks)
{
    rvi_backend *on = split_of(be)->on[HOST];
    on->ops->run(on, fn, ctx, n_tasks);
}

static bool is_exact(const rvi_backend *be)
{
    const rvi_split *s = (const rvi_split *)be;
    return s->on[DEVICE]->ops->is_exact(s->on[DEVICE]);
}

/* ---- KV pages ---- */

static void kv_free(rvi_backend *be, rvi_kv_store *kv)
{
    rvi_split *s = split_of(be);
    if (!kv) return;
    for (int i = 0; i < SIDES; i++)
        if (kv->on[i]) s->on[i]->ops->kv_free(s->on[i], kv->on[i]);
    rvi_free(kv);
}

/* The device's comes first: it lacks some types, and its memory is the one that is short. */
static rv_status kv_new(rvi_backend *be, rvi_kv_store **out, const rvi_kv_spec *spec, rv_error *err)
{
    rvi_split *s = split_of(be);
    int n_host = RVI_MIN(s->n_host, spec->n_layers);
    const int layers[SIDES] = {[HOST] = n_host, [DEVICE] = spec->n_layers - n_host};
    rv_status st = RV_OK;
    rvi_kv_store *kv = *out = rvi_zalloc(sizeof *kv);
    if (!kv) return rvi_nomem(err, "KV store");
    for (int i = SIDES - 1; !st && i >= 0; i--) {
        rvi_kv_spec part = *spec;
        part.n_layers = layers[i];
        if (!layers[i]) continue;
        st = s->on[i]->ops->kv_new(s->on[i], &kv->on[i], &part, err);
        if (!st) kv->bytes[i] = s->on[i]->ops->kv_page_bytes(kv->on[i]);
    }
    if (st) {
        kv_free(be, kv);
        *out = NULL;
    }
    return st;
}

static void kv_copy_page(rvi_backend *be, rvi_kv_store *kv, int32_t to, int32_t from)
{
    rvi_split *s = split_of(be);
    for (int i = 0; i < SIDES; i++)
        if (kv->on[i]) s->on[i]->ops->kv_copy_page(s->on[i], kv->on[i], to, from);
}

static size_t kv_page_bytes(const rvi_kv_store *kv)
{
    return kv->bytes[HOST] + kv->bytes[DEVICE];
}

static void kv_read_page(rvi_backend *be, const rvi_kv_store *kv, int32_t page, void *to)
{
    rvi_split *s = split_of(be);
    uint8_t *at = to;
    for (int i = 0; i < SIDES; at += kv->bytes[i++])
        if (kv->on[i]) s->on[i]->ops->kv_read_page(s->on[i], kv->on[i], page, at);
}

static void kv_write_page(rvi_backend *be, rvi_kv_store *kv, int32_t page, const void *from)
{
    rvi_split *s = split_of(be);
    const uint8_t *at = from;
    for (int i = 0; i < SIDES; at += kv->bytes[i++])
        if (kv->on[i]) s->on[i]->ops->kv_write_page(s->on[i], kv->on[i], page, at);
}

/* The side of a layer, and the layer's number there. */
static int side_of_layer(const rvi_split *s, int *il)
{
    if (*il < s->n_host) return HOST;
    *il -= s->n_host;
    return DEVICE;
}

static void kv_write(rvi_backend *be, rvi_kv_store *kv, int il, rvi_cols k, rvi_cols v,
                     const rvi_kv_row *rows, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_of_layer(s, &il);
    rvi_cols from_k = reads(s, k, side), from_v = reads(s, v, side);
    s->on[side]->ops->kv_write(s->on[side], kv->on[side], il, from_k, from_v, rows, n_rows);
}

static void attention(rvi_backend *be, rvi_cols out, rvi_cols q, const rvi_kv_store *kv, int il,
                      const rvi_attention *a, const rvi_kv_row *rows, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_of_layer(s, &il);
    q = reads(s, q, side);
    out = writes(s, out, side, n_rows);
    s->on[side]->ops->attention(s->on[side], out, q, kv->on[side], il, a, rows, n_rows);
}

/* ---- compute ---- */

/* Both sides read the file: the host, where the first layer is. */
static void embed(rvi_backend *be, rvi_cols out, const rvi_tensor *table, const int32_t *ids,
                  int n_rows, float scale)
{
    rvi_split *s = split_of(be);
    out = writes(s, out, HOST, n_rows);
    s->on[HOST]->ops->embed(s->on[HOST], out, table->on[HOST], ids, n_rows, scale);
}

static void rms_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w, int n_rows,
                     float eps)
{
    rvi_split *s = split_of(be);
    int side = side_of_floats(w, x);
    x = reads(s, x, side);
    out = writes(s, out, side, n_rows);
    s->on[side]->ops->rms_norm(s->on[side], out, x, w->on[side], n_rows, eps);
}

static void layer_norm(rvi_backend *be, rvi_cols out, rvi_cols x, const rvi_tensor *w,
                       const rvi_tensor *b, int n_rows, float eps)
{
    rvi_split *s = split_of(be);
    int side = side_of_floats(w, x);
    x = reads(s, x, side);
    out = writes(s, out, side, n_rows);
    s->on[side]->ops->layer_norm(s->on[side], out, x, w->on[side], b->on[side], n_rows, eps);
}

static void head_norm(rvi_backend *be, rvi_cols x, const rvi_tensor *w, int n_rows, float eps)
{
    rvi_split *s = split_of(be);
    int side = side_of_floats(w, x);
    s->on[side]->ops->head_norm(s->on[side], changes(s, x, side, n_rows), w->on[side], n_rows, eps);
}

/* The columns of t that the parts write together. */
static int columns_of_parts(const rvi_matmul *m, const rvi_tensor *t)
{
    int n = 0;
    for (int i = 0; i < m->n_parts; i++)
        if (m->part[i].out.t == t) n += m->part[i].out.n;
    return n;
}

static void matmul(rvi_backend *be, const rvi_matmul *m)
{
    rvi_split *s = split_of(be);
    int side = m->part[0].w->side;
    rvi_matmul on = *m;
    on.x = reads(s, m->x, side);
    if (m->norm) {
        on.norm = m->norm->on[side];
        on.normed = writes(s, m->normed, side, m->n_rows);
    }
    if (m->add_to.t) on.add_to = changes(s, m->add_to, side, m->n_rows);
    if (m->gated.t) on.gated = writes(s, m->gated, side, m->n_rows);
    for (int i = 0; i < m->n_parts; i++) {
        const rvi_product_part *p = &m->part[i];
        if (p->out.t && !m->add_to.t)
            will_write(s, p->out.t, columns_of_parts(m, p->out.t), side, m->n_rows);
        on.part[i] = (rvi_product_part){p->w->on[side], p->bias ? p->bias->on[side] : NULL,
                                        cols_on(p->out, side)};
    }
    on.reader = m->reader && m->reader->side == side ? m->reader->on[side] : NULL;
    s->on[side]->ops->matmul(s->on[side], &on);
}

static void rope(rvi_backend *be, rvi_cols x, int head_size, rvi_cols angles, bool interleaved,
                 int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_of_both(x, angles);
    angles = reads(s, angles, side);
    x = changes(s, x, side, n_rows);
    s->on[side]->ops->rope(s->on[side], x, head_size, angles, interleaved, n_rows);
}

static void glu(rvi_backend *be, rvi_cols out, rvi_cols gate, rvi_cols up, rvi_glu kind, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_of_both(gate, up);
    gate = reads(s, gate, side);
    up = reads(s, up, side);
    s->on[side]->ops->glu(s->on[side], writes(s, out, side, n_rows), gate, up, kind, n_rows);
}

static void act(rvi_backend *be, rvi_cols x, rvi_act kind, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_in(x.t->valid);
    s->on[side]->ops->act(s->on[side], changes(s, x, side, n_rows), kind, n_rows);
}

static void add(rvi_backend *be, rvi_cols x, rvi_cols y, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_of_both(x, y);
    y = reads(s, y, side);
    s->on[side]->ops->add(s->on[side], changes(s, x, side, n_rows), y, n_rows);
}

static void soft_cap(rvi_backend *be, rvi_cols x, float cap, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_in(x.t->valid);
    s->on[side]->ops->soft_cap(s->on[side], changes(s, x, side, n_rows), cap, n_rows);
}

static void gather(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *from, int n_rows)
{
    rvi_split *s = split_of(be);
    int side = side_in(x.t->valid);
    x = reads(s, x, side);
    s->on[side]->ops->gather(s->on[side], writes(s, out, side, n_rows), x, from, n_rows);
}

/* ---- adapters ---- */

/* Group after group: their rows differ, so that the bits are those of one call. */
static void lora(rvi_backend *be, rvi_cols x, const rvi_lora_group *groups, int n_groups)
{
    enum { TOGETHER = 64 };
    rvi_split *s = split_of(be);
    for (const rvi_lora_group *g = groups; g < groups + n_groups; g++) {
        int last = g->n_rows ? g->rows[g->n_rows - 1] + 1 : 0; /* ascending */
        for (int at = 0, n; at < g->n_products; at += n) {
            rvi_lora_product on[TOGETHER];
            int side = side_of_floats(g->products[at].a, x);
            rvi_cols in = reads(s, x, side);
            for (n = 0; n < TOGETHER && at + n < g->n_products; n++) {
                const rvi_lora_product *p = &g->products[at + n];
                if (!p->a->on[side]) break;
                on[n] = (rvi_lora_product){p->a->on[side], p->b->on[side], p->scale,
                                           changes(s, p->out, side, last)};
            }
            rvi_lora_group part = {g->rows, g->n_rows, on, n};
            s->on[side]->ops->lora(s->on[side], in, &part, 1);
        }
    }
}

static rv_status lora_pack(rvi_backend *be, rvi_tensor *m, bool is_b, rv_error *err)
{
    rvi_split *s = split_of(be);
    rv_status st = RV_OK;
    for (int i = 0; !st && i < SIDES; i++)
        if (m->on[i]) st = s->on[i]->ops->lora_pack(s->on[i], m->on[i], is_b, err);
    return st;
}

/* Only the host has a use for it. */
static size_t lora_bytes(rvi_backend *be, const rvi_tensor *a, const rvi_tensor *b)
{
    rvi_backend *on = split_of(be)->on[HOST];
    return a->on[HOST] ? on->ops->lora_bytes(on, a->on[HOST], b->on[HOST]) : 0;
}

static rv_status lora_seal(rvi_backend *be, rvi_pack *p, rvi_tensor *a, rvi_tensor *b,
                           rv_error *err)
{
    rvi_split *s = split_of(be);
    rvi_backend *on = s->on[HOST];
    if (!a->on[HOST]) return RV_OK;
    rv_status st = open_pack(s, p, HOST, err);
    return st ? st : on->ops->lora_seal(on, p->on[HOST], a->on[HOST], b->on[HOST], err);
}

/* ---- training ---- */

static rv_status cannot_train(rv_error *err)
{
    return rvi_error(
        err, RV_E_UNSUPPORTED,
        "training needs all layers of the model on one device, and some are on the CPU "
        "(device cpu trains there)");
}

static rv_status floats_view(rvi_backend *be, rvi_tensor **out, float *data, int n_rows, int n_cols,
                             rv_error *err)
{
    (void)be, (void)data, (void)n_rows, (void)n_cols;
    *out = NULL;
    return cannot_train(err);
}

static rv_status train_reserve(rvi_backend *be, int n_rows, int n_cols, int n_vocab, rv_error *err)
{
    (void)be, (void)n_rows, (void)n_cols, (void)n_vocab;
    return cannot_train(err);
}

/* ---- the object ---- */

static void split_free(rvi_backend *be)
{
    rvi_split *s = split_of(be);
    atomic_fetch_sub(&be->memory->scratch, rvi_backend_cpu_scratch(s->on[HOST]));
    s->on[HOST]->memory = s->host_memory;
    s->on[HOST]->ops->free(s->on[HOST]);
    rvi_free(s->row);
    rvi_free(s);
}

static const rvi_backend_ops split_ops = {
    .name = "cuda and cpu",
    .free = split_free,
    .weight_new = weight_new,
    .floats_new = floats_new,
    .rows_new = rows_new,
    .tensor_free = tensor_free,
    .pack_bytes = pack_bytes,
    .pack_new = pack_new,
    .pack = pack,
    .pack_free = pack_free,
    .n_rows = tensor_rows,
    .n_cols = tensor_cols,
    .rows_write = rows_write,
    .rows_read = rows_read,
    .fetch = fetch,
    .take = take,
    .best = best,
    .draws_new = draws_new,
    .draws_free = draws_free,
    .draw = draw,
    .host_new = host_new,
    .host_free = host_free,
    .submit = submit,
    .check = check,
    .reserve = reserve,
    .set_stop = set_stop,
    .share = share,
    .kv_new = kv_new,
    .kv_free = kv_free,
    .kv_copy_page = kv_copy_page,
    .kv_page_bytes = kv_page_bytes,
    .kv_read_page = kv_read_page,
    .kv_write_page = kv_write_page,
    .is_exact = is_exact,
    .kv_write = kv_write,
    .embed = embed,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .head_norm = head_norm,
    .matmul = matmul,
    .rope = rope,
    .attention = attention,
    .glu = glu,
    .act = act,
    .add = add,
    .soft_cap = soft_cap,
    .gather = gather,
    .lora = lora,
    .lora_pack = lora_pack,
    .lora_bytes = lora_bytes,
    .lora_seal = lora_seal,
    .floats_view = floats_view,
    .train_reserve = train_reserve,
    .run = run,
};

rv_status rvi_backend_split_new(rvi_backend **out, rvi_backend *device, rvi_backend *take_host,
                                int n_host, rv_error *err)
{
    rvi_split *s = rvi_zalloc(sizeof *s);
    *out = NULL;
    if (!s) {
        take_host->ops->free(take_host);
        return rvi_nomem(err, "backend");
    }
    s->be = (rvi_backend){.ops = &split_ops, .log = device->log, .memory = device->memory};
    s->on[HOST] = take_host;
    s->on[DEVICE] = device;
    s->host_memory = take_host->memory;
    take_host->memory = device->memory; /* one runtime, one count */
    s->n_host = n_host;
    *out = &s->be;
    return RV_OK;
}
