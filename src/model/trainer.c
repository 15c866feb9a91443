/* Forward in float arithmetic by the layer code of block.c, and the backward of each of its lines,
 * last line first. Where block.c says
 *
 *   h = norm(x);  q, k, v = W h + b  [norm of heads];  turn q, k;  a = attention;  x += [norm] (W_o
 *                 a)
 *   h = norm(x);  x += [norm] (W_down (act(W_gate h) * W_up h))
 *
 * the gradient dx of the sum passes both branches: the residual one as it is, and the other through
 * the transposed products, added to it. A turn by an angle is undone by the opposite one; a factor
 * on cosine and sine stays, since the transpose of c R is c R^T. */
#include "model/trainer.h"

#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "base/mem.h"
#include "model/workspace.h"

/* What a layer's backward reads besides the layer's input; what it lacks (the normed inputs and the
 * gated units) takes no product and is computed again. */
typedef struct kept {
    rvi_tensor *qkv;   /* q and k turned */
    rvi_tensor *plain; /* q and k before the norms of their heads, or NULL */
    rvi_tensor *mix;
    rvi_tensor *mid;            /* x between the halves */
    rvi_tensor *ffn;            /* gate, up */
    rvi_tensor *attn_y, *ffn_y; /* outputs of the halves before their norms; without such norms one
                                    scratch for all, not owned */
} kept;

enum {
    TOP_ROWS = 64,        /* rows of logits that the largest are looked for in at a time */
    DEVICE_LOSSES = 1024, /* rows through the head of a device at a time: for losses it waits */
};

/* What a row's angles depend on */
typedef struct place {
    int rope_set, pos;
} place;

struct rvi_trainer {
    const rvi_model *m;
    rvi_backend *be;
    const rvi_params *params; /* NULL: none */
    const rvi_params *grads;  /* NULL: forward only */
    rvi_trainer_options o;
    rvi_workspace ws; /* qkv, mix, ffn and y are of a layer's `kept` */
    rvi_float_pass pass;
    rvi_tensor *y;       /* scratch of models without norms after the halves */
    rvi_tensor **inputs; /* of the layers from o.lowest on */
    kept *kept;          /* of each of them, or one for all */
    int n_inputs, n_kept;
    rvi_held_weights *weights; /* its own; NULL: none */
    int held;                  /* the layer that the one `kept` for all is of; -1: none */
    rvi_tensor *dx, *dh, *dy, *dqkv, *dmix, *dffn, *dact;
    rvi_tensor *back_angles;            /* the opposite turns */
    rvi_tensor *last, *last_h, *logits; /* rows on their way through the head */
    rvi_tensor *dlast, *dlast_h;
    rvi_span *spans;
    int *lengths;      /* of the longest text that begins with a span, where that has no parent */
    place *places;     /* of rows */
    float *angle_rows; /* host copies of the angles */
    float *read; /* TOP_ROWS of logits that a device computed; NULL: rows are read as they lie */
    rvi_target *tops; /* the largest logits of rows, as targets */
    int n_rows;
    bool adding; /* gradients, since the backend took over what they are added to */
};

/* ---- the object ---- */

typedef struct want {
    rvi_tensor **t;
    int rows, cols;
} want;

static rv_status rows_of(rvi_backend *be, const want *wants, size_t n, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < n; i++)
        st = be->ops->rows_new(be, wants[i].t, wants[i].rows, wants[i].cols, err);
    return st;
}

static rv_status new_kept(rvi_trainer *t, kept *k, rv_error *err)
{
    const rvi_hparams *h = &t->m->hp;
    int n = t->o.max_rows, nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    bool posts = t->m->arch->post_norms;
    want wants[7] = {{&k->qkv, n, nq + 2 * nk},
                     {&k->mix, n, nq},
                     {&k->mid, n, h->n_embd},
                     {&k->ffn, n, 2 * h->n_ff}};
    size_t n_wants = 4;
    if (t->m->arch->qk_norm) wants[n_wants++] = (want){&k->plain, n, nq + nk};
    if (posts) {
        wants[n_wants++] = (want){&k->attn_y, n, h->n_embd};
        wants[n_wants++] = (want){&k->ffn_y, n, h->n_embd};
    } else {
        k->attn_y = k->ffn_y = t->y;
    }
    return rows_of(t->be, wants, n_wants, err);
}

static rv_status new_tensors(rvi_trainer *t, rv_error *err)
{
    const rvi_hparams *h = &t->m->hp;
    int n = t->o.max_rows, d = h->n_embd, nq = h->n_heads * h->head_size,
        nk = h->n_kv_heads * h->head_size, turns = 2 * t->m->rope.n_pairs, top = t->o.max_losses;
    const want forward[] = {
        {&t->ws.x, n, d},         {&t->ws.h, n, d},     {&t->ws.post, n, d},
        {&t->ws.act, n, h->n_ff}, {&t->y, n, d},        {&t->ws.angles, n, turns},
        {&t->last, top, d},       {&t->last_h, top, d}, {&t->logits, top, h->n_vocab},
    };
    const want backward[] = {
        {&t->dx, n, d},
        {&t->dh, n, d},
        {&t->dy, n, d},
        {&t->dmix, n, nq},
        {&t->dqkv, n, nq + 2 * nk},
        {&t->dffn, n, 2 * h->n_ff},
        {&t->dact, n, h->n_ff},
        {&t->back_angles, n, turns},
        {&t->dlast, top, d},
        {&t->dlast_h, top, d},
    };
    rv_status st = rows_of(t->be, forward, RVI_COUNT(forward), err);
    if (!st && t->grads) st = rows_of(t->be, backward, RVI_COUNT(backward), err);
    for (int i = 0; !st && i < t->n_inputs; i++)
        st = t->be->ops->rows_new(t->be, &t->inputs[i], n, d, err);
    for (int i = 0; !st && i < t->n_kept; i++) st = new_kept(t, &t->kept[i], err);
    return st;
}

static rv_status reserve(const rvi_trainer *t, rv_error *err)
{
    const rvi_hparams *h = &t->m->hp;
    int qkv = (h->n_heads + 2 * h->n_kv_heads) * h->head_size,
        widest = RVI_MAX(RVI_MAX(h->n_embd, qkv), 2 * h->n_ff),
        rows = RVI_MAX(t->o.max_rows, t->o.max_losses);
    return t->be->ops->train_reserve(t->be, rows, widest, h->n_vocab, err);
}

/* ---- memory for speed ----
 *
 * A trainer with many threads holds the weights of its layers packed, and keeps what layers
 * computed instead of computing it again, where that takes a small part of the memory that is free.
 * With few threads it keeps layers where it is asked to. */

enum { SMALL_PART = 8 }; /* one in so many bytes */

/* Where weights must be held, frozen layers count. */
static rvi_held_range range_of(const rvi_trainer *t)
{
    int first = t->grads && !t->be->ops->needs_held ? t->o.lowest : 0;
    return (rvi_held_range){first, t->grads ? t->o.lowest : t->m->hp.n_layers + 1};
}

static size_t kept_bytes(const rvi_trainer *t)
{
    const rvi_hparams *h = &t->m->hp;
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    size_t row = (size_t)(3 * nq + 3 * nk + 3 * h->n_embd + 2 * h->n_ff); /* no less than it is */
    return (size_t)t->n_inputs * (size_t)t->o.max_rows * row * sizeof(float);
}

size_t rvi_trainer_least_bytes(const rvi_model *m, const rvi_trainer_options *o)
{
    const rvi_hparams *h = &m->hp;
    size_t nq = (size_t)(h->n_heads * h->head_size), nk = (size_t)(h->n_kv_heads * h->head_size),
           d = (size_t)h->n_embd, ff = (size_t)h->n_ff;
    size_t row = (10 + (size_t)(h->n_layers - o->lowest)) * d + 5 * nq + 5 * nk + 6 * ff +
                 4 * (size_t)m->rope.n_pairs;
    size_t loss = (size_t)h->n_vocab + 4 * d;
    return ((size_t)o->max_rows * row + (size_t)o->max_losses * loss) * sizeof(float);
}

static size_t memory_left(const rvi_trainer *t)
{
    rvi_machine_info machine;
    if (t->be->ops->memory_left) return t->be->ops->memory_left(t->be);
    rvi_machine_read(&machine, "");
    return machine.memory_available;
}

static rv_status spend_memory(rvi_trainer *t, rv_error *err)
{
    rvi_held_range range = range_of(t);
    size_t held = t->o.weights ? 0 : rvi_held_weights_bytes(t->m, t->be, range);
    bool must = t->be->ops->needs_held;
    rv_status st = RV_OK;
    if (t->o.weights) t->pass.held = t->o.weights->by_slot;
    if (!held && !t->o.weights && !t->o.keep_layers) return RV_OK;
    size_t most = memory_left(t) / SMALL_PART, spare = atomic_load(&t->be->memory->spare);
    if (spare) most = RVI_MIN(most, spare);
    if (held > most && !must) return RV_OK;
    if (held) st = rvi_held_weights_new(&t->weights, t->m, t->be, range, held, err);
    if (st) return must ? st : RV_OK; /* it goes without */
    if (held) t->pass.held = t->weights->by_slot;
    if ((must ? 0 : held) + kept_bytes(t) <= most && t->n_inputs) t->n_kept = t->n_inputs;
    return RV_OK;
}

static rv_status check(const rvi_model *m, const rvi_params *params, const rvi_params *grads,
                       const rvi_trainer_options *o, rv_error *err)
{
    if (m->arch->is_encoder)
        return rvi_error(err, RV_E_INVALID,
                         "only decoders can be trained, and this model is an encoder");
    if (o->max_rows < 1 || o->max_spans < 1 || o->max_losses < 1)
        return rvi_error(err, RV_E_INVALID, "a trainer needs room for rows, texts and losses");
    if (o->lowest < 0 || o->lowest > m->hp.n_layers)
        return rvi_error(err, RV_E_INVALID, "the lowest trained layer must be 0..%d (got %d)",
                         m->hp.n_layers, o->lowest);
    if (params && params->adapter->n_slots != m->n_targets)
        return rvi_error(err, RV_E_INVALID, "the adapter belongs to another model");
    if (grads && (!params || grads->n != params->n || grads->rank != params->rank ||
                  grads->adapter->n_slots != params->adapter->n_slots))
        return rvi_error(err, RV_E_INVALID, "gradients of another shape than the parameters");
    return RV_OK;
}

rv_status rvi_trainer_new(rvi_trainer **out, const rvi_model *m, rvi_backend *be,
                          const rvi_params *params, rvi_params *grads, const rvi_trainer_options *o,
                          rv_error *err)
{
    *out = NULL;
    rv_status st = check(m, params, grads, o, err);
    if (st) return st;
    rvi_trainer *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "trainer");
    size_t rows = (size_t)o->max_rows, spans = (size_t)o->max_spans,
           turns = 2 * (size_t)m->rope.n_pairs;
    t->m = m;
    t->be = be;
    t->params = params;
    t->grads = grads;
    t->o = *o;
    if (be->ops->needs_held)
        t->o.max_losses = RVI_MAX(o->max_losses, RVI_MIN(o->max_rows, DEVICE_LOSSES));
    t->held = -1;
    t->n_inputs = grads ? m->hp.n_layers - o->lowest : 0;
    t->n_kept = 1;
    t->ws.be = be;
    t->ws.floats = &t->pass;
    t->pass.adapter = params ? params->adapter : NULL;
    /* one more than none: an allocation of no bytes is refused */
    t->inputs = rvi_zalloc_array((size_t)t->n_inputs + 1, sizeof(rvi_tensor *));
    t->ws.tokens = rvi_alloc_array(rows, sizeof *t->ws.tokens);
    t->spans = rvi_alloc_array(spans, sizeof *t->spans);
    t->pass.spans = t->spans;
    t->lengths = rvi_alloc_array(spans, sizeof *t->lengths);
    t->places = rvi_alloc_array(rows, sizeof *t->places);
    t->angle_rows = rvi_alloc_array(rows * turns, sizeof *t->angle_rows);
    t->tops = rvi_alloc_array((size_t)t->o.max_losses, sizeof *t->tops);
    if (be->ops->needs_held) /* a device: its results come in pieces, for which it waits */
        t->read = be->ops->host_new(be, (size_t)TOP_ROWS * (size_t)m->hp.n_vocab * sizeof(float));
    if (!t->tops || !t->inputs || (be->ops->needs_held && !t->read) || !t->ws.tokens || !t->spans ||
        !t->lengths || !t->places || !t->angle_rows)
        st = rvi_nomem(err, "trainer");
    if (!st) st = reserve(t, err);
    if (!st) st = spend_memory(t, err);
    if (!st && !(t->kept = rvi_zalloc_array((size_t)t->n_kept, sizeof *t->kept)))
        st = rvi_nomem(err, "trainer");
    if (!st) st = new_tensors(t, err);
    if (st)
        rvi_trainer_free(t);
    else
        *out = t;
    return st;
}

static void free_kept(rvi_trainer *t, kept *k)
{
    rvi_tensor *tensors[] = {k->qkv, k->plain, k->mix, k->mid, k->ffn};
    for (size_t i = 0; i < RVI_COUNT(tensors); i++) t->be->ops->tensor_free(t->be, tensors[i]);
    if (!t->m->arch->post_norms) return;
    t->be->ops->tensor_free(t->be, k->attn_y);
    t->be->ops->tensor_free(t->be, k->ffn_y);
}

void rvi_trainer_free(rvi_trainer *t)
{
    if (!t) return;
    t->be->ops->submit(t->be); /* nothing that was collected is to find them gone */
    rvi_tensor *tensors[] = {t->ws.x, t->ws.h,  t->ws.post, t->ws.act,     t->ws.angles,
                             t->y,    t->last,  t->last_h,  t->logits,     t->dx,
                             t->dh,   t->dy,    t->dmix,    t->dqkv,       t->dffn,
                             t->dact, t->dlast, t->dlast_h, t->back_angles};
    for (size_t i = 0; i < RVI_COUNT(tensors); i++) t->be->ops->tensor_free(t->be, tensors[i]);
    for (int i = 0; t->inputs && i < t->n_inputs; i++) t->be->ops->tensor_free(t->be, t->inputs[i]);
    for (int i = 0; t->kept && i < t->n_kept; i++) free_kept(t, &t->kept[i]);
    rvi_held_weights_free(t->weights);
    rvi_free(t->inputs);
    rvi_free(t->kept);
    rvi_free(t->ws.tokens);
    rvi_free(t->spans);
    rvi_free(t->lengths);
    rvi_free(t->places);
    rvi_free(t->angle_rows);
    rvi_free(t->tops);
    t->be->ops->host_free(t->be, t->read);
    rvi_free(t);
}

/* ---- the batch ---- */

static rvi_cols width(const rvi_trainer *t, rvi_tensor *x)
{
    return rvi_cols_of(x, 0, t->m->hp.n_embd);
}

/* The turns of a row, */
static void turns_of(void *ctx, int row, int first, int n, float *out)
{
    const rvi_trainer *t = ctx;
    float *angles = t->angle_rows + (size_t)row * 2 * (size_t)t->m->rope.n_pairs;
    rvi_rope_angles(&t->m->rope, t->places[row].rope_set, t->places[row].pos, angles);
    memcpy(out, angles + first, (size_t)n * sizeof *out);
}

/* and their opposites, afterwards. */
static void turns_back(void *ctx, int row, int first, int n, float *out)
{
    const rvi_trainer *t = ctx;
    int n_pairs = t->m->rope.n_pairs;
    const float *angles = t->angle_rows + (size_t)row * 2 * (size_t)n_pairs;
    for (int i = 0; i < n; i++)
        out[i] = first + i < n_pairs ? angles[first + i] : -angles[first + i];
}

static int first_of(const rvi_span *spans, int i)
{
    while (spans[i].parent >= 0) i = spans[i].parent;
    return i;
}

/* Which set of rotary frequencies counts is a matter of the whole text's length: of texts that
 * share their beginning, of the longest one's. */
void rvi_trainer_begin(rvi_trainer *t, const int32_t *tokens, const rvi_span *spans, int n_spans)
{
    t->pass.n_spans = n_spans;
    t->adding = false;
    t->n_rows = 0;
    t->held = -1;
    memcpy(t->spans, spans, (size_t)n_spans * sizeof *spans);
    memset(t->lengths, 0, (size_t)n_spans * sizeof *t->lengths);
    for (int i = 0; i < n_spans; i++) {
        int first = first_of(spans, i);
        t->n_rows = RVI_MAX(t->n_rows, spans[i].first + spans[i].n);
        t->lengths[first] = RVI_MAX(t->lengths[first], spans[i].pos + spans[i].n);
    }
    memcpy(t->ws.tokens, tokens, (size_t)t->n_rows * sizeof *tokens);
    for (int i = 0; i < n_spans; i++) {
        int set = rvi_rope_set(&t->m->rope, t->lengths[first_of(spans, i)]);
        for (int j = 0; j < spans[i].n; j++)
            t->places[spans[i].first + j] = (place){set, spans[i].pos + j};
    }
    const rvi_backend_ops *op = t->be->ops;
    int turns = 2 * t->m->rope.n_pairs;
    if (t->params && op->floats_in) op->floats_in(t->be, t->params->whole);
    op->fill_rows(t->be, rvi_cols_of(t->ws.angles, 0, turns), t->n_rows, turns_of, t);
    if (!t->grads) return;
    op->fill_rows(t->be, rvi_cols_of(t->back_angles, 0, turns), t->n_rows, turns_back, t);
    op->zero(t->be, width(t, t->dx), t->n_rows);
}

int rvi_trainer_rows(const rvi_trainer *t)
{
    return t->n_rows;
}

void rvi_trainer_set_x(rvi_trainer *t, int row, const float *x)
{
    t->be->ops->rows_write(t->be, width(t, t->ws.x), row, x);
}

void rvi_trainer_fill_x(rvi_trainer *t, rvi_columns_fn x, void *ctx)
{
    t->be->ops->fill_rows(t->be, width(t, t->ws.x), t->n_rows, x, ctx);
}

void rvi_trainer_get_x(rvi_trainer *t, float *x)
{
    t->be->ops->fetch(t->be, width(t, t->ws.x), t->n_rows, x);
}

void rvi_trainer_get_dx(rvi_trainer *t, int row, float *dx)
{
    t->be->ops->rows_read(t->be, width(t, t->dx), row, dx);
}

/* ---- forward ---- */

/* Where a layer leaves what its backward needs. */
static kept *kept_of(rvi_trainer *t, int il)
{
    kept *k = &t->kept[t->n_kept > 1 ? RVI_MAX(il - t->o.lowest, 0) : 0];
    t->ws.qkv = k->qkv;
    t->ws.mix = k->mix;
    t->ws.ffn = k->ffn;
    t->pass.plain = k->plain;
    return k;
}

void rvi_trainer_forward(rvi_trainer *t, int first, int last)
{
    const rvi_backend_ops *op = t->be->ops;
    rvi_cols x = width(t, t->ws.x);
    int n = t->n_rows;
    if (!first) op->embed(t->be, x, t->m->embed, t->ws.tokens, n, t->m->hp.embed_scale);
    for (int il = first; il < last; il++) {
        kept *k = kept_of(t, il);
        bool trained = t->grads && il >= t->o.lowest;
        if (trained) op->copy(t->be, width(t, t->inputs[il - t->o.lowest]), x, n);
        t->ws.y = k->attn_y;
        rvi_workspace_attention(t->m, &t->ws, il, NULL, n);
        if (trained) op->copy(t->be, width(t, k->mid), x, n);
        t->ws.y = k->ffn_y;
        rvi_workspace_act(t->m, &t->ws, il, n);
        rvi_workspace_down(t->m, &t->ws, il, n);
        t->held = trained ? il : -1;
    }
}

/* The same for a layer's backward; the layer's sum is known already. */
static void compute_again(rvi_trainer *t, int il)
{
    kept *k = kept_of(t, il);
    rvi_tensor *x = t->ws.x;
    t->be->ops->copy(t->be, width(t, k->mid), width(t, t->inputs[il - t->o.lowest]), t->n_rows);
    t->ws.x = k->mid;
    t->ws.y = k->attn_y;
    rvi_workspace_attention(t->m, &t->ws, il, NULL, t->n_rows);
    rvi_workspace_act(t->m, &t->ws, il, t->n_rows);
    if (t->m->layers[il].post_ffn_norm) {
        t->ws.x = t->dh; /* the output before its norm is wanted; what it is added to is not */
        t->ws.y = k->ffn_y;
        rvi_workspace_down(t->m, &t->ws, il, t->n_rows);
    }
    t->ws.x = x;
    t->held = il;
}

/* ---- the head ---- */

/* Logits of rows of the stream, n <= max_losses. */
static rvi_cols head(rvi_trainer *t, const int32_t *rows, int n)
{
    const rvi_backend_ops *op = t->be->ops;
    const rvi_hparams *h = &t->m->hp;
    rvi_cols last = width(t, t->last), last_h = width(t, t->last_h),
             logits = rvi_cols_of(t->logits, 0, h->n_vocab);
    op->gather(t->be, last, width(t, t->ws.x), rows, n);
    op->rms_norm(t->be, last_h, last, t->m->out_norm, n, h->norm_eps);
    rvi_workspace_linear(&t->ws, &t->m->head, logits, last_h, n);
    if (h->logit_cap > 0) op->soft_cap(t->be, logits, h->logit_cap, n);
    return logits;
}

/* dx = the sum of W^T dy over layers of one input, and the gradients of their adapters. */
static void linears_back(rvi_trainer *t, const rvi_linear *const *l, int n_layers, rvi_cols dx,
                         rvi_cols dy, rvi_cols x, int n)
{
    rvi_float_linear f[RVI_MAX_LINEARS];
    for (int i = 0; i < n_layers; i++) {
        const rvi_lora_slot *g = &t->grads->adapter->slots[l[i]->slot];
        f[i] = rvi_workspace_float_linear(&t->ws, l[i]);
        f[i].da = g->a;
        f[i].db = g->b;
    }
    t->be->ops->linear_back(t->be, f, n_layers, dx, true, dy, x, n);
}

static void linear_back(rvi_trainer *t, const rvi_linear *l, rvi_cols dx, rvi_cols dy, rvi_cols x,
                        int n)
{
    linears_back(t, &l, 1, dx, dy, x, n);
}

/* What gradients are added to, from the first one of a batch on: the head's, if it has any. */
static void take_gradients(rvi_trainer *t)
{
    if (!t->adding && t->be->ops->floats_in) t->be->ops->floats_in(t->be, t->grads->whole);
    t->adding = true;
}

void rvi_trainer_loss(rvi_trainer *t, const int32_t *rows, rvi_target *targets, int n, bool grad)
{
    const rvi_backend_ops *op = t->be->ops;
    if (grad) take_gradients(t);
    for (int k; n > 0; n -= k, rows += k, targets += k) {
        k = RVI_MIN(n, t->o.max_losses);
        rvi_cols logits = head(t, rows, k), last = width(t, t->last), last_h = width(t, t->last_h);
        op->loss(t->be, logits, targets, RVI_MAX(t->m->hp.logit_cap, 0), grad, k);
        if (!grad) continue;
        rvi_cols dlast = width(t, t->dlast), dlast_h = width(t, t->dlast_h);
        linear_back(t, &t->m->head, dlast_h, logits, last_h, k);
        op->zero(t->be, dlast, k);
        op->rms_norm_back(t->be, dlast, dlast_h, last, t->m->out_norm, k, t->m->hp.norm_eps);
        op->scatter_add(t->be, width(t, t->dx), dlast, rows, k);
    }
}

/* Rows whose k largest logits are wanted, largest first, the smaller id first among equals. */
typedef struct tops {
    rvi_trainer *t;
    rvi_cols logits;
    int k;
    int32_t *ids;
    float *values;
} tops;

static void top_task(void *ctx, int r, int worker)
{
    enum { PIECE = 1024 };
    static const float certain = 1;
    const tops *o = ctx;
    int k = o->k, held = 0;
    int32_t *ids = o->ids + (size_t)r * (size_t)k;
    float *values = o->values + (size_t)r * (size_t)k, piece[PIECE];
    (void)worker;
    for (int first = 0, n; first < o->logits.n; first += n) {
        n = RVI_MIN(PIECE, o->logits.n - first);
        const float *z = piece;
        if (o->t->read)
            z = o->t->read + (size_t)r * (size_t)o->logits.n + first;
        else
            o->t->be->ops->rows_read(o->t->be, rvi_cols_of(o->logits.t, first, n), r, piece);
        for (int i = 0; i < n; i++) {
            if (held == k && !(z[i] > values[k - 1])) continue;
            int at = held < k ? held++ : k - 1;
            for (; at > 0 && z[i] > values[at - 1]; at--) {
                ids[at] = ids[at - 1];
                values[at] = values[at - 1];
            }
            ids[at] = first + i;
            values[at] = z[i];
        }
    }
    o->t->tops[r] = (rvi_target){.ids = ids, .p = &certain, .n = 1, .temperature = 1};
}

void rvi_trainer_top(rvi_trainer *t, const int32_t *rows, int n, int k, int32_t *ids, float *log_p)
{
    for (int turn; n > 0; n -= turn, rows += turn) {
        turn = RVI_MIN(n, RVI_MIN(t->o.max_losses, TOP_ROWS));
        rvi_cols logits = head(t, rows, turn);
        if (t->read) t->be->ops->fetch(t->be, logits, turn, t->read);
        tops o = {t, logits, k, ids, log_p};
        t->be->ops->run(t->be, top_task, &o, turn);
        t->be->ops->loss(t->be, logits, t->tops, 0, false, turn); /* of the largest: -log p */
        for (int r = 0; r < turn; r++, ids += k, log_p += k)
            for (int i = k - 1; i >= 0; i--) log_p[i] -= log_p[0] + t->tops[r].loss;
    }
}

/* ---- backward ---- */

/* The gradient of a half's output before its norm, if it ends with one; dx itself otherwise. */
static rvi_cols before_post_norm(rvi_trainer *t, const rvi_tensor *norm, rvi_tensor *y)
{
    rvi_cols dx = width(t, t->dx), dy = width(t, t->dy);
    if (!norm) return dx;
    t->be->ops->zero(t->be, dy, t->n_rows);
    t->be->ops->rms_norm_back(t->be, dy, dx, width(t, y), norm, t->n_rows, t->m->hp.norm_eps);
    return dy;
}

static void ffn_back(rvi_trainer *t, int il, const kept *k)
{
    const rvi_backend_ops *op = t->be->ops;
    const rvi_hparams *h = &t->m->hp;
    const rvi_layer *l = &t->m->layers[il];
    int n = t->n_rows, ff = h->n_ff;
    rvi_cols gate = rvi_cols_of(k->ffn, 0, ff), up = rvi_cols_of(k->ffn, ff, ff),
             act = rvi_cols_of(t->ws.act, 0, ff), dact = rvi_cols_of(t->dact, 0, ff),
             dgate = rvi_cols_of(t->dffn, 0, ff), dup = rvi_cols_of(t->dffn, ff, ff);
    rvi_cols mid = width(t, k->mid), in = width(t, t->ws.h), din = width(t, t->dh);

    if (t->n_kept > 1) op->glu(t->be, act, gate, up, t->m->arch->glu, n); /* else it is there */
    linear_back(t, &l->down, dact, before_post_norm(t, l->post_ffn_norm, k->ffn_y), act, n);
    op->glu_back(t->be, dgate, dup, dact, gate, up, t->m->arch->glu, n);
    op->rms_norm(t->be, in, mid, l->ffn_norm, n, h->norm_eps);
    rvi_cols both = rvi_cols_of(t->dffn, 0, 2 * ff);
    if (l->gate_up.w)
        linear_back(t, &l->gate_up, din, both, in, n);
    else
        linears_back(t, (const rvi_linear *const[]){&l->gate, &l->up}, 2, din, both, in, n);
    op->rms_norm_back(t->be, width(t, t->dx), din, mid, l->ffn_norm, n, h->norm_eps);
}

static void attention_back(rvi_trainer *t, int il, const kept *k)
{
    const rvi_backend_ops *op = t->be->ops;
    const rvi_hparams *h = &t->m->hp;
    const rvi_layer *l = &t->m->layers[il];
    int n = t->n_rows, nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    rvi_cols q = rvi_cols_of(k->qkv, 0, nq), key = rvi_cols_of(k->qkv, nq, nk),
             v = rvi_cols_of(k->qkv, nq + nk, nk), mix = rvi_cols_of(k->mix, 0, nq);
    rvi_cols dq = rvi_cols_of(t->dqkv, 0, nq), dk = rvi_cols_of(t->dqkv, nq, nk),
             dv = rvi_cols_of(t->dqkv, nq + nk, nk), dmix = rvi_cols_of(t->dmix, 0, nq);
    rvi_cols x = width(t, t->inputs[il - t->o.lowest]), in = width(t, t->ws.h),
             din = width(t, t->dh);
    rvi_cols turns = rvi_cols_of(t->back_angles, 0, 2 * t->m->rope.n_pairs);
    rvi_attention a = rvi_workspace_attention_of(t->m, il);

    linear_back(t, &l->o, dmix, before_post_norm(t, l->post_attn_norm, k->attn_y), mix, n);
    op->span_attention_back(t->be, dq, dk, dv, dmix, q, key, v, &a, t->spans, t->pass.n_spans);
    op->rope(t->be, rvi_cols_of(t->dqkv, 0, nq + nk), h->head_size, turns, t->m->rope.interleaved,
             n);
    if (l->q_norm) {
        op->head_norm_back(t->be, dq, dq, rvi_cols_of(k->plain, 0, nq), l->q_norm, n, h->norm_eps);
        op->head_norm_back(t->be, dk, dk, rvi_cols_of(k->plain, nq, nk), l->k_norm, n, h->norm_eps);
    }
    op->rms_norm(t->be, in, x, l->attn_norm, n, h->norm_eps);
    rvi_cols all = rvi_cols_of(t->dqkv, 0, nq + 2 * nk);
    if (l->qkv.w)
        linear_back(t, &l->qkv, din, all, in, n);
    else
        linears_back(t, (const rvi_linear *const[]){&l->q, &l->k, &l->v}, 3, din, all, in, n);
    op->rms_norm_back(t->be, width(t, t->dx), din, x, l->attn_norm, n, h->norm_eps);
}

void rvi_trainer_backward(rvi_trainer *t)
{
    const rvi_backend_ops *op = t->be->ops;
    take_gradients(t);
    for (int il = t->m->hp.n_layers - 1; il >= t->o.lowest; il--) {
        if (t->n_kept == 1 && t->held != il) compute_again(t, il);
        const kept *k = kept_of(t, il);
        ffn_back(t, il, k);
        attention_back(t, il, k);
    }
    if (op->floats_out) op->floats_out(t->be, t->grads->whole);
    t->adding = false;
}
