/* The forward pass: one decoder layer, written once for every architecture, over a batch of rows.
 *
 *   h  = norm(x);  q, k, v = W h (+ b)            [norm of each q and k head]
 *   q, k turned by position;  k, v into the row's KV pages
 *   a  = softmax(cap(q k^T scale)) v over the row's own past;  x += [norm] (W_o a)
 *   h  = norm(x);  x += [norm] (W_down (act(W_gate h) * W_up h))
 *
 * A linear layer is the base product plus, for the rows that ask, their adapters' low-rank
 * products. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/workspace.h"

rv_status rvi_workspace_new(rvi_workspace **out, const rvi_model *m, int max_rows, int max_logits,
                            rv_error *err)
{
    return rvi_workspace_new_on(out, m, m->be, max_rows, max_logits, err);
}

rv_status rvi_workspace_new_on(rvi_workspace **out, const rvi_model *m, rvi_backend *be,
                               int max_rows, int max_logits, rv_error *err)
{
    const rvi_hparams *h = &m->hp;
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    *out = NULL;
    rvi_workspace *ws = rvi_zalloc(sizeof *ws);
    if (!ws) return rvi_nomem(err, "workspace");
    ws->be = be;
    ws->encodes = m->arch->is_encoder;
    max_logits = RVI_MIN(max_logits, max_rows);
    bool decoder = !ws->encodes;
    const struct {
        rvi_tensor **t;
        int rows, cols;
    } tensors[] = {
        {&ws->x, max_rows, h->n_embd},      {&ws->h, max_rows, h->n_embd},
        {&ws->y, max_rows, h->n_embd},      {&ws->qkv, max_rows, nq + 2 * nk},
        {&ws->mix, max_rows, nq},           {&ws->act, max_rows, h->n_ff},
        {&ws->ffn, max_rows, 2 * h->n_ff},  {&ws->angles, max_rows, 2 * m->rope.n_pairs},
        {&ws->last, max_logits, h->n_embd}, {&ws->logits, max_logits, h->n_vocab},
    };
    enum { ENCODERS_TOO = 6 }; /* the first of them */
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i < (decoder ? RVI_COUNT(tensors) : ENCODERS_TOO); i++)
        st = be->ops->rows_new(be, tensors[i].t, tensors[i].rows, tensors[i].cols, err);
    ws->post = ws->h;
    if (!st)
        st =
            be->ops->reserve(be, max_rows, RVI_MAX(RVI_MAX(h->n_embd, nq), h->n_ff), m->types, err);
    size_t rows = (size_t)max_rows;
    if (decoder) {
        ws->turns = rvi_alloc_array(rows, 2 * (size_t)m->rope.n_pairs * sizeof *ws->turns);
        ws->logits_host =
            rvi_alloc_array((size_t)max_logits * (size_t)h->n_vocab, sizeof *ws->logits_host);
    } else {
        ws->text_rows = rvi_alloc_array(rows, sizeof *ws->text_rows);
    }
    ws->tokens = rvi_alloc_array(rows, sizeof *ws->tokens);
    ws->lora_rows = rvi_alloc_array(rows, sizeof *ws->lora_rows);
    ws->lora_done = rvi_alloc_array(rows, sizeof *ws->lora_done);
    ws->kv_rows = rvi_alloc_array(rows, sizeof *ws->kv_rows);
    bool own = decoder ? ws->turns && ws->logits_host : ws->text_rows != NULL;
    if (!st && (!own || !ws->tokens || !ws->lora_rows || !ws->lora_done || !ws->kv_rows))
        st = rvi_nomem(err, "workspace");
    if (st)
        rvi_workspace_free(ws);
    else
        *out = ws;
    return st;
}

void rvi_workspace_free(rvi_workspace *ws)
{
    if (!ws) return;
    rvi_tensor *tensors[] = {ws->x,   ws->h,   ws->y,      ws->qkv,  ws->mix,
                             ws->ffn, ws->act, ws->angles, ws->last, ws->logits};
    for (size_t i = 0; i < RVI_COUNT(tensors); i++) ws->be->ops->tensor_free(ws->be, tensors[i]);
    rvi_free(ws->turns);
    rvi_free(ws->logits_host);
    rvi_free(ws->tokens);
    rvi_free(ws->lora_rows);
    rvi_free(ws->lora_done);
    rvi_free(ws->kv_rows);
    rvi_free(ws->text_rows);
    rvi_free(ws);
}

static void read_row(rvi_workspace *ws, rvi_tensor *t, int row, float *out)
{
    ws->be->ops->rows_read(ws->be, rvi_cols_of(t, 0, ws->be->ops->n_cols(t)), row, out);
}

void rvi_workspace_hidden(rvi_workspace *ws, int row, float *out)
{
    read_row(ws, ws->encodes ? ws->x : ws->h, row, out);
}

void rvi_workspace_last_layer(rvi_workspace *ws, int row, float *u, float *y, float *x)
{
    if (u) read_row(ws, ws->act, row, u);
    if (y) read_row(ws, ws->y, row, y);
    if (x) read_row(ws, ws->x, row, x);
}

void rvi_workspace_set_tap(rvi_workspace *ws, rvi_tap_fn fn, void *ctx)
{
    ws->tap = fn;
    ws->tap_ctx = ctx;
}

void rvi_workspace_set_progress(rvi_workspace *ws, rvi_layers_fn fn, void *ctx)
{
    ws->progress = fn;
    ws->progress_ctx = ctx;
}

void rvi_workspace_tap(rvi_workspace *ws, const char *what, int il, rvi_cols values, int n_rows)
{
    if (!ws->tap) return;
    char name[64];
    if (il >= 0)
        snprintf(name, sizeof name, "%s.%d", what, il);
    else
        snprintf(name, sizeof name, "%s", what);
    ws->tap(ws->tap_ctx, name, values, n_rows);
}

/* ---- linear layers ---- */

/* Do the adapters of any of the rows sit on the linear layer? Neighbours mostly share their set. */
static bool is_adapted(const rvi_linear *l, const rvi_row *rows, int n_rows)
{
    const rvi_adapter_set *before = NULL;
    for (int i = 0; i < n_rows; i++) {
        const rvi_adapter_set *set = rows[i].adapters;
        if (!set || set == before) continue;
        before = set;
        for (int u = 0; l->w && u < set->n; u++)
            if (set->uses[u].adapter->slots[l->slot].a) return true;
    }
    return false;
}

/* which: the batch row that each of the n_rows operands came from; NULL: row i is batch row i. Rows
 * that share an adapter set go together; what a row gets does not depend on that. */
static void apply_adapters(rvi_workspace *ws, const rvi_linear *l, rvi_cols out, rvi_cols x,
                           const rvi_row *rows, const int32_t *which, int n_rows)
{
    memset(ws->lora_done, 0, (size_t)n_rows);
    for (int i = 0; i < n_rows; i++) {
        const rvi_adapter_set *set = rows[which ? which[i] : i].adapters;
        if (!set || ws->lora_done[i]) continue;
        int n = 0;
        for (int j = i; j < n_rows; j++)
            if (rows[which ? which[j] : j].adapters == set) {
                ws->lora_rows[n++] = j;
                ws->lora_done[j] = 1;
            }
        for (int u = 0; u < set->n; u++) {
            const rvi_lora_slot *s = &set->uses[u].adapter->slots[l->slot];
            if (s->a)
                ws->be->ops->lora(ws->be, out, x, s->a, s->b, s->scale * set->uses[u].scale,
                                  ws->lora_rows, n);
        }
    }
}

rvi_float_linear rvi_workspace_float_linear(const rvi_workspace *ws, const rvi_linear *l)
{
    rvi_float_linear f = {.w = l->w, .bias = l->bias};
    if (ws->floats->held) f.held = ws->floats->held[l->slot];
    if (ws->floats->adapter) {
        const rvi_lora_slot *s = &ws->floats->adapter->slots[l->slot];
        f.a = s->a;
        f.b = s->b;
        f.scale = s->scale;
    }
    return f;
}

void rvi_workspace_linear(rvi_workspace *ws, const rvi_linear *l, rvi_cols out, rvi_cols x,
                          const rvi_row *rows, const int32_t *which, int n_rows)
{
    if (ws->floats) {
        rvi_float_linear f = rvi_workspace_float_linear(ws, l);
        ws->be->ops->linear(ws->be, &f, 1, out, x, n_rows);
        return;
    }
    ws->be->ops->matmul(
        ws->be,
        &(rvi_matmul){.x = x, .part = {{l->w, l->bias, out}}, .n_parts = 1, .n_rows = n_rows});
    apply_adapters(ws, l, out, x, rows, which, n_rows);
}

void rvi_workspace_linears(rvi_workspace *ws, const rvi_linear *const *l, int n_layers,
                           rvi_cols out, rvi_cols x, const rvi_row *rows, int n_rows)
{
    if (ws->floats) {
        rvi_float_linear f[RVI_MAX_LINEARS];
        for (int i = 0; i < n_layers; i++) f[i] = rvi_workspace_float_linear(ws, l[i]);
        ws->be->ops->linear(ws->be, f, n_layers, out, x, n_rows);
        return;
    }
    for (int i = 0, at = out.first; i < n_layers; i++) {
        int n = ws->be->ops->n_rows(l[i]->w);
        rvi_workspace_linear(ws, l[i], rvi_cols_of(out.t, at, n), x, rows, NULL, n_rows);
        at += n;
    }
}

void rvi_workspace_qkv(const rvi_model *m, rvi_workspace *ws, int il, rvi_cols in,
                       const rvi_row *rows, int n)
{
    const rvi_hparams *h = &m->hp;
    const rvi_layer *l = &m->layers[il];
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    rvi_cols q = rvi_cols_of(ws->qkv, 0, nq), k = rvi_cols_of(ws->qkv, nq, nk),
             v = rvi_cols_of(ws->qkv, nq + nk, nk);
    rvi_cols all = rvi_cols_of(ws->qkv, 0, nq + 2 * nk);
    if (l->qkv.w)
        rvi_workspace_linear(ws, &l->qkv, all, in, rows, NULL, n);
    else
        rvi_workspace_linears(ws, (const rvi_linear *const[]){&l->q, &l->k, &l->v}, 3, all, in,
                              rows, n);
    rvi_workspace_tap(ws, "q", il, q, n);
    rvi_workspace_tap(ws, "k", il, k, n);
    rvi_workspace_tap(ws, "v", il, v, n);
}

/* ---- one layer ---- */

static rvi_part part_of(const rvi_linear *l, rvi_cols out)
{
    return (rvi_part){l->w, l->bias, out};
}

/* The end of a half: x += [norm] (W in). */
static void add_linear(const rvi_model *m, rvi_workspace *ws, const rvi_linear *l,
                       const rvi_tensor *post_norm, rvi_cols in, const rvi_row *rows, int n, int il,
                       const char *name, const char *norm_name)
{
    const rvi_backend_ops *op = ws->be->ops;
    rvi_cols x = rvi_cols_of(ws->x, 0, m->hp.n_embd), y = rvi_cols_of(ws->y, 0, m->hp.n_embd);
    if (ws->fused && !post_norm && !is_adapted(l, rows, n)) {
        op->matmul(ws->be,
                   &(rvi_matmul){
                       .x = in, .part = {part_of(l, y)}, .n_parts = 1, .n_rows = n, .add_to = x});
        return;
    }
    rvi_workspace_linear(ws, l, y, in, rows, NULL, n);
    rvi_workspace_tap(ws, name, il, y, n);
    if (post_norm) { /* y stays: rvi_workspace_last_layer */
        rvi_cols post = rvi_cols_of(ws->post, 0, m->hp.n_embd);
        op->rms_norm(ws->be, post, y, post_norm, n, m->hp.norm_eps);
        y = post;
        rvi_workspace_tap(ws, norm_name, il, y, n);
    }
    op->add(ws->be, x, y, n);
}

rvi_attention rvi_workspace_attention_of(const rvi_model *m, int il)
{
    const rvi_hparams *h = &m->hp;
    return (rvi_attention){.n_heads = h->n_heads,
                           .n_kv_heads = h->n_kv_heads,
                           .head_size = h->head_size,
                           .scale = h->attn_scale,
                           .soft_cap = h->attn_cap,
                           .window = h->window[il]};
}

void rvi_workspace_attention(const rvi_model *m, rvi_workspace *ws, int il, const rvi_row *rows,
                             int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    const rvi_layer *l = &m->layers[il];
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd), in = rvi_cols_of(ws->h, 0, h->n_embd);
    rvi_cols q = rvi_cols_of(ws->qkv, 0, nq), k = rvi_cols_of(ws->qkv, nq, nk),
             v = rvi_cols_of(ws->qkv, nq + nk, nk);
    rvi_cols mix = rvi_cols_of(ws->mix, 0, nq),
             angles = rvi_cols_of(ws->angles, 0, 2 * m->rope.n_pairs);
    rvi_attention a = rvi_workspace_attention_of(m, il);

    if (ws->fused && !is_adapted(&l->qkv, rows, n) && !is_adapted(&l->q, rows, n) &&
        !is_adapted(&l->k, rows, n) && !is_adapted(&l->v, rows, n)) {
        rvi_matmul mm = {
            .x = x, .norm = l->attn_norm, .eps = h->norm_eps, .normed = in, .n_rows = n};
        if (l->qkv.w) {
            mm.part[mm.n_parts++] = part_of(&l->qkv, rvi_cols_of(ws->qkv, 0, nq + 2 * nk));
        } else {
            mm.part[mm.n_parts++] = part_of(&l->q, q);
            mm.part[mm.n_parts++] = part_of(&l->k, k);
            mm.part[mm.n_parts++] = part_of(&l->v, v);
        }
        op->matmul(ws->be, &mm);
    } else {
        op->rms_norm(ws->be, in, x, l->attn_norm, n, h->norm_eps);
        rvi_workspace_tap(ws, "attn_norm", il, in, n);
        rvi_workspace_qkv(m, ws, il, in, rows, n);
    }
    if (l->q_norm) {
        if (ws->floats)
            op->copy(ws->be, rvi_cols_of(ws->floats->plain, 0, nq + nk),
                     rvi_cols_of(ws->qkv, 0, nq + nk), n);
        op->head_norm(ws->be, q, l->q_norm, n, h->norm_eps);
        op->head_norm(ws->be, k, l->k_norm, n, h->norm_eps);
    }
    op->rope(ws->be, rvi_cols_of(ws->qkv, 0, nq + nk), h->head_size, angles, m->rope.interleaved,
             n);
    rvi_workspace_tap(ws, "q_rope", il, q, n);
    rvi_workspace_tap(ws, "k_rope", il, k, n);
    if (ws->floats) {
        op->span_attention(ws->be, mix, q, k, v, &a, ws->floats->spans, ws->floats->n_spans);
    } else {
        rvi_kv_store *store = rvi_pages_store(rows[0].seq->pool);
        op->kv_write(ws->be, store, il, k, v, ws->kv_rows, n);
        op->attention(ws->be, mix, q, store, il, &a, ws->kv_rows, n);
    }
    rvi_workspace_tap(ws, "attn_mix", il, mix, n);
    add_linear(m, ws, &l->o, l->post_attn_norm, mix, rows, n, il, "attn_out", "attn_post_norm");
}

void rvi_workspace_act(const rvi_model *m, rvi_workspace *ws, int il, const rvi_row *rows, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    const rvi_layer *l = &m->layers[il];
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd), in = rvi_cols_of(ws->h, 0, h->n_embd);
    rvi_cols gate = rvi_cols_of(ws->ffn, 0, h->n_ff), up = rvi_cols_of(ws->ffn, h->n_ff, h->n_ff),
             act = rvi_cols_of(ws->act, 0, h->n_ff);

    if (ws->fused && !l->gate_up.w && !is_adapted(&l->gate, rows, n) &&
        !is_adapted(&l->up, rows, n)) {
        op->matmul(ws->be, &(rvi_matmul){.x = x,
                                         .norm = l->ffn_norm,
                                         .eps = h->norm_eps,
                                         .normed = in,
                                         .part = {part_of(&l->gate, gate), part_of(&l->up, up)},
                                         .n_parts = 2,
                                         .n_rows = n,
                                         .gated = act,
                                         .glu = m->arch->glu});
        return;
    }
    op->rms_norm(ws->be, in, x, l->ffn_norm, n, h->norm_eps);
    rvi_workspace_tap(ws, "ffn_norm", il, in, n);
    rvi_cols both = rvi_cols_of(ws->ffn, 0, 2 * h->n_ff);
    if (l->gate_up.w)
        rvi_workspace_linear(ws, &l->gate_up, both, in, rows, NULL, n);
    else
        rvi_workspace_linears(ws, (const rvi_linear *const[]){&l->gate, &l->up}, 2, both, in, rows,
                              n);
    rvi_workspace_tap(ws, "ffn_gate", il, gate, n);
    rvi_workspace_tap(ws, "ffn_up", il, up, n);
    op->glu(ws->be, act, gate, up, m->arch->glu, n);
    rvi_workspace_tap(ws, "ffn_act", il, act, n);
}

void rvi_workspace_down(const rvi_model *m, rvi_workspace *ws, int il, const rvi_row *rows, int n)
{
    const rvi_layer *l = &m->layers[il];
    add_linear(m, ws, &l->down, l->post_ffn_norm, rvi_cols_of(ws->act, 0, m->hp.n_ff), rows, n, il,
               "ffn_out", "ffn_post_norm");
}

/* ---- the pass ---- */

static void report_half(const rvi_model *m, rvi_workspace *ws, int n_done)
{
    if (ws->progress && !rvi_backend_is_stopped(ws->be))
        ws->progress(ws->progress_ctx, n_done, 2 * m->hp.n_layers);
}

typedef struct angles_job {
    const rvi_model *m;
    rvi_workspace *ws;
    const rvi_row *rows;
    int n_rows;
} angles_job;

enum { ANGLE_ROWS = 16 }; /* rows whose angles one task computes: some ten microseconds */

static void angles_task(void *ctx, int task, int worker)
{
    const angles_job *j = ctx;
    const rvi_rope *rope = &j->m->rope;
    (void)worker;
    for (int r = task * ANGLE_ROWS; r < RVI_MIN((task + 1) * ANGLE_ROWS, j->n_rows); r++) {
        float *turns = j->ws->turns + (size_t)r * 2 * (size_t)rope->n_pairs;
        rvi_rope_angles(rope, j->rows[r].rope_set, j->rows[r].pos, turns);
        j->ws->be->ops->rows_write(j->ws->be, rvi_cols_of(j->ws->angles, 0, 2 * rope->n_pairs), r,
                                   turns);
    }
}

static void find_angles(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows)
{
    angles_job j = {m, ws, rows, n_rows};
    if (n_rows <= ANGLE_ROWS)
        angles_task(&j, 0, 0);
    else
        ws->be->ops->run(ws->be, angles_task, &j, (n_rows + ANGLE_ROWS - 1) / ANGLE_ROWS);
}

void rvi_model_forward(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows)
{
    if (m->arch->is_encoder) {
        rvi_encoder_forward(m, ws, rows, n_rows);
        return;
    }
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd);
    ws->fused = !ws->tap;
    for (int r = 0; r < n_rows; r++) {
        ws->tokens[r] = rows[r].token;
        ws->kv_rows[r] = (rvi_kv_row){rows[r].seq->pages, rows[r].pos};
    }
    find_angles(m, ws, rows, n_rows);
    op->embed(ws->be, x, m->embed, ws->tokens, n_rows, h->embed_scale);
    for (int il = 0; il < h->n_layers; il++) {
        if (rvi_backend_is_stopped(ws->be)) return;
        rvi_workspace_tap(ws, "hidden", il, x, n_rows);
        rvi_workspace_attention(m, ws, il, rows, n_rows);
        report_half(m, ws, 2 * il + 1);
        rvi_workspace_act(m, ws, il, rows, n_rows);
        rvi_workspace_down(m, ws, il, rows, n_rows);
        report_half(m, ws, 2 * il + 2);
    }
    rvi_cols hidden = rvi_cols_of(ws->h, 0, h->n_embd); /* x stays: rvi_workspace_last_layer */
    op->rms_norm(ws->be, hidden, x, m->out_norm, n_rows, h->norm_eps);
    rvi_workspace_tap(ws, "hidden", h->n_layers, hidden, n_rows);
}

typedef struct logits_copy {
    rvi_workspace *ws;
    rvi_cols logits;
} logits_copy;

static void copy_task(void *ctx, int row, int worker)
{
    const logits_copy *c = ctx;
    (void)worker;
    c->ws->be->ops->rows_read(c->ws->be, c->logits, row,
                              c->ws->logits_host + (size_t)row * (size_t)c->logits.n);
}

const float *rvi_model_logits(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                              const int32_t *which, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    rvi_cols last = rvi_cols_of(ws->last, 0, m->hp.n_embd),
             logits = rvi_cols_of(ws->logits, 0, m->hp.n_vocab);
    op->gather(ws->be, last, rvi_cols_of(ws->h, 0, m->hp.n_embd), which, n);
    rvi_workspace_linear(ws, &m->head, logits, last, rows, which, n);
    if (m->hp.logit_cap > 0) op->soft_cap(ws->be, logits, m->hp.logit_cap, n);
    rvi_workspace_tap(ws, "logits", -1, logits, n);
    op->run(ws->be, copy_task, &(logits_copy){ws, logits}, n);
    return ws->logits_host;
}
