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
        ws->logits_host = be->ops->host_new(be, (size_t)max_logits * (size_t)h->n_vocab *
                                                    sizeof *ws->logits_host);
        if (!st && be->ops->draws_new)
            st = be->ops->draws_new(be, &ws->draws, max_logits, h->n_vocab, err);
    } else {
        ws->text_rows = rvi_alloc_array(rows, sizeof *ws->text_rows);
    }
    ws->tokens = rvi_alloc_array(rows, sizeof *ws->tokens);
    ws->lora_rows = rvi_alloc_array(rows, sizeof *ws->lora_rows);
    ws->set_of = rvi_alloc_array(rows, sizeof *ws->set_of);
    ws->sets = rvi_alloc_array(rows, sizeof *ws->sets);
    ws->lora_groups = rvi_alloc_array(rows, sizeof *ws->lora_groups);
    ws->lora_products = rvi_alloc_array(RVI_LORA_PRODUCTS, sizeof *ws->lora_products);
    ws->kv_rows = rvi_alloc_array(rows, sizeof *ws->kv_rows);
    if (decoder) ws->also_rows = rvi_alloc_array(rows, RVI_ROW_ALSO * sizeof *ws->also_rows);
    bool own = decoder ? ws->turns && ws->logits_host && ws->also_rows : ws->text_rows != NULL;
    bool grouped = ws->lora_rows && ws->set_of && ws->sets && ws->lora_groups && ws->lora_products;
    if (!st && (!own || !grouped || !ws->tokens || !ws->kv_rows)) st = rvi_nomem(err, "workspace");
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
    ws->be->ops->host_free(ws->be, ws->logits_host);
    if (ws->draws) ws->be->ops->draws_free(ws->be, ws->draws);
    rvi_free(ws->tokens);
    rvi_free(ws->lora_rows);
    rvi_free(ws->set_of);
    rvi_free(ws->sets);
    rvi_free(ws->lora_groups);
    rvi_free(ws->lora_products);
    rvi_free(ws->kv_rows);
    rvi_free(ws->also_rows);
    rvi_free(ws->text_rows);
    rvi_free(ws);
}

void rvi_workspace_expect(rvi_workspace *ws, rvi_then then)
{
    ws->then = then;
}

static void read_row(rvi_workspace *ws, rvi_tensor *t, int row, float *out)
{
    ws->be->ops->rows_read(ws->be, rvi_cols_of(t, 0, ws->be->ops->n_cols(t)), row, out);
}

void rvi_workspace_hidden(rvi_workspace *ws, int row, float *out)
{
    read_row(ws, ws->encodes ? ws->x : ws->h, row, out);
}

void rvi_workspace_hidden_rows(rvi_workspace *ws, int n, float *out)
{
    rvi_tensor *t = ws->encodes ? ws->x : ws->h;
    ws->be->ops->fetch(ws->be, rvi_cols_of(t, 0, ws->be->ops->n_cols(t)), n, out);
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

void rvi_workspace_group(rvi_workspace *ws, const rvi_row *rows, const int32_t *which, int n_rows)
{
    int n_sets = 0, n = 0;
    for (int i = 0; i < n_rows; i++) {
        const rvi_adapter_set *set = rows[which ? which[i] : i].adapters;
        int at = 0;
        while (set && at < n_sets && ws->sets[at].set != set) at++;
        ws->set_of[i] = set ? at : -1;
        if (!set) continue;
        if (at == n_sets) ws->sets[n_sets++] = (rvi_set_rows){.set = set};
        ws->sets[at].n_rows++;
    }
    ws->n_sets = n_sets;
    for (int s = 0; s < n_sets; s++) {
        ws->sets[s].rows = ws->lora_rows + n;
        for (int i = 0; i < n_rows; i++)
            if (ws->set_of[i] == s) ws->lora_rows[n++] = i;
    }
}

/* Do the adapters of any of the rows sit on the linear layer? */
static bool is_adapted(const rvi_workspace *ws, const rvi_linear *l)
{
    for (int i = 0; l->w && i < ws->n_sets; i++)
        for (int u = 0; u < ws->sets[i].set->n; u++)
            if (ws->sets[i].set->uses[u].adapter->slots[l->slot].a) return true;
    return false;
}

/* What waits to be handed to the backend. */
typedef struct lora_call {
    rvi_workspace *ws;
    rvi_cols x;
    int n_groups, n_products;
} lora_call;

static void end_call(lora_call *c)
{
    if (c->n_groups) c->ws->be->ops->lora(c->ws->be, c->x, c->ws->lora_groups, c->n_groups);
    c->n_groups = c->n_products = 0;
}

static void add_product(lora_call *c, const rvi_set_rows *s, const rvi_lora_product *p, bool first)
{
    rvi_workspace *ws = c->ws;
    if (c->n_products == RVI_LORA_PRODUCTS) {
        end_call(c);
        first = true;
    }
    rvi_lora_product *at = &ws->lora_products[c->n_products++];
    *at = *p;
    if (first)
        ws->lora_groups[c->n_groups++] =
            (rvi_lora_group){.rows = s->rows, .n_rows = s->n_rows, .products = at};
    ws->lora_groups[c->n_groups - 1].n_products++;
}

/* The adapters on layers of the input x, whose results lie side by side in the columns of out. */
static void apply_adapters(rvi_workspace *ws, const rvi_linear *const *l, int n_layers,
                           rvi_cols out, rvi_cols x)
{
    lora_call c = {.ws = ws, .x = x};
    for (int i = 0; i < ws->n_sets; i++) {
        const rvi_set_rows *s = &ws->sets[i];
        bool first = true;
        for (int j = 0, at = out.first; j < n_layers; j++) {
            int n = ws->be->ops->n_rows(l[j]->w);
            for (int u = 0; u < s->set->n; u++) {
                const rvi_adapter_use *use = &s->set->uses[u];
                const rvi_lora_slot *slot = &use->adapter->slots[l[j]->slot];
                if (!slot->a) continue;
                rvi_lora_product p = {slot->a, slot->b, slot->scale * use->scale,
                                      rvi_cols_of(out.t, at, n)};
                add_product(&c, s, &p, first);
                first = false;
            }
            at += n;
        }
    }
    end_call(&c);
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

/* The layers' products of what `mm` says of their input, and the rows' adapters. */
static void multiply(rvi_workspace *ws, rvi_matmul mm, const rvi_linear *const *l, int n_layers,
                     rvi_cols out)
{
    mm.normed_unread = true;
    for (int at = out.first; mm.n_parts < n_layers; mm.n_parts++) {
        const rvi_linear *one = l[mm.n_parts];
        if (is_adapted(ws, one)) mm.normed_unread = false;
        int n = ws->be->ops->n_rows(one->w);
        mm.part[mm.n_parts] = (rvi_product_part){one->w, one->bias, rvi_cols_of(out.t, at, n)};
        at += n;
    }
    ws->be->ops->matmul(ws->be, &mm);
    apply_adapters(ws, l, n_layers, out, mm.norm ? mm.normed : mm.x);
}

void rvi_workspace_linears(rvi_workspace *ws, const rvi_linear *const *l, int n_layers,
                           rvi_cols out, rvi_cols x, int n_rows)
{
    if (!ws->floats) {
        multiply(ws, (rvi_matmul){.x = x, .n_rows = n_rows}, l, n_layers, out);
        return;
    }
    rvi_float_linear f[RVI_MAX_LINEARS];
    for (int i = 0; i < n_layers; i++) f[i] = rvi_workspace_float_linear(ws, l[i]);
    ws->be->ops->linear(ws->be, f, n_layers, out, x, n_rows);
}

void rvi_workspace_linear(rvi_workspace *ws, const rvi_linear *l, rvi_cols out, rvi_cols x,
                          int n_rows)
{
    rvi_workspace_linears(ws, &l, 1, out, x, n_rows);
}

/* A layer's q, k and v as they are stored: returns how many. */
static int qkv_of(const rvi_layer *l, const rvi_linear *out[RVI_MAX_LINEARS])
{
    out[0] = l->qkv.w ? &l->qkv : &l->q;
    out[1] = &l->k;
    out[2] = &l->v;
    return l->qkv.w ? 1 : 3;
}

void rvi_workspace_qkv(const rvi_model *m, rvi_workspace *ws, int il, rvi_cols in, int n)
{
    const rvi_hparams *h = &m->hp;
    const rvi_linear *l[RVI_MAX_LINEARS];
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    int n_layers = qkv_of(&m->layers[il], l);
    rvi_workspace_linears(ws, l, n_layers, rvi_cols_of(ws->qkv, 0, nq + 2 * nk), in, n);
    rvi_workspace_tap(ws, "q", il, rvi_cols_of(ws->qkv, 0, nq), n);
    rvi_workspace_tap(ws, "k", il, rvi_cols_of(ws->qkv, nq, nk), n);
    rvi_workspace_tap(ws, "v", il, rvi_cols_of(ws->qkv, nq + nk, nk), n);
}

/* ---- one layer ---- */

static rvi_product_part part_of(const rvi_linear *l, rvi_cols out)
{
    return (rvi_product_part){l->w, l->bias, out};
}

/* The end of a half: x += [norm] (W in). */
static void add_linear(const rvi_model *m, rvi_workspace *ws, const rvi_linear *l,
                       const rvi_tensor *post_norm, rvi_cols in, int n, int il, const char *name,
                       const char *norm_name)
{
    const rvi_backend_ops *op = ws->be->ops;
    rvi_cols x = rvi_cols_of(ws->x, 0, m->hp.n_embd), y = rvi_cols_of(ws->y, 0, m->hp.n_embd);
    if (ws->fused && !post_norm && !is_adapted(ws, l)) {
        op->matmul(ws->be,
                   &(rvi_matmul){
                       .x = in, .part = {part_of(l, y)}, .n_parts = 1, .n_rows = n, .add_to = x});
        return;
    }
    rvi_workspace_linear(ws, l, y, in, n);
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

    if (ws->fused) {
        const rvi_linear *layers[RVI_MAX_LINEARS];
        int n_layers = qkv_of(l, layers);
        rvi_matmul mm = {
            .x = x, .norm = l->attn_norm, .eps = h->norm_eps, .normed = in, .n_rows = n};
        multiply(ws, mm, layers, n_layers, rvi_cols_of(ws->qkv, 0, nq + 2 * nk));
    } else {
        op->rms_norm(ws->be, in, x, l->attn_norm, n, h->norm_eps);
        rvi_workspace_tap(ws, "attn_norm", il, in, n);
        rvi_workspace_qkv(m, ws, il, in, n);
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
        for (int i = 0; i < ws->n_also; i++)
            op->kv_write(ws->be, store, il, k, v, ws->also_rows + (size_t)i * (size_t)n, n);
        op->attention(ws->be, mix, q, store, il, &a, ws->kv_rows, n);
    }
    rvi_workspace_tap(ws, "attn_mix", il, mix, n);
    add_linear(m, ws, &l->o, l->post_attn_norm, mix, n, il, "attn_out", "attn_post_norm");
}

void rvi_workspace_act(const rvi_model *m, rvi_workspace *ws, int il, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    const rvi_layer *l = &m->layers[il];
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd), in = rvi_cols_of(ws->h, 0, h->n_embd);
    rvi_cols gate = rvi_cols_of(ws->ffn, 0, h->n_ff), up = rvi_cols_of(ws->ffn, h->n_ff, h->n_ff),
             both = rvi_cols_of(ws->ffn, 0, 2 * h->n_ff), act = rvi_cols_of(ws->act, 0, h->n_ff);
    const rvi_linear *layers[] = {l->gate_up.w ? &l->gate_up : &l->gate, &l->up};
    int n_layers = l->gate_up.w ? 1 : 2;
    rvi_matmul mm = {.x = x, .norm = l->ffn_norm, .eps = h->norm_eps, .normed = in, .n_rows = n};

    if (ws->fused && !l->gate_up.w && !is_adapted(ws, &l->gate) && !is_adapted(ws, &l->up)) {
        mm.part[mm.n_parts++] = part_of(&l->gate, gate);
        mm.part[mm.n_parts++] = part_of(&l->up, up);
        mm.gated = act;
        mm.glu = m->arch->glu;
        mm.normed_unread = true;
        /* the last layer's stay: rvi_workspace_last_layer */
        if (il + 1 < h->n_layers && !is_adapted(ws, &l->down)) mm.reader = l->down.w;
        op->matmul(ws->be, &mm);
        return;
    }
    if (ws->fused) {
        multiply(ws, mm, layers, n_layers, both);
    } else {
        op->rms_norm(ws->be, in, x, l->ffn_norm, n, h->norm_eps);
        rvi_workspace_tap(ws, "ffn_norm", il, in, n);
        rvi_workspace_linears(ws, layers, n_layers, both, in, n);
    }
    rvi_workspace_tap(ws, "ffn_gate", il, gate, n);
    rvi_workspace_tap(ws, "ffn_up", il, up, n);
    op->glu(ws->be, act, gate, up, m->arch->glu, n);
    rvi_workspace_tap(ws, "ffn_act", il, act, n);
}

void rvi_workspace_down(const rvi_model *m, rvi_workspace *ws, int il, int n)
{
    const rvi_layer *l = &m->layers[il];
    add_linear(m, ws, &l->down, l->post_ffn_norm, rvi_cols_of(ws->act, 0, m->hp.n_ff), n, il,
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
    }
}

static void find_angles(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows)
{
    angles_job j = {m, ws, rows, n_rows};
    if (n_rows <= ANGLE_ROWS)
        angles_task(&j, 0, 0);
    else
        ws->be->ops->run(ws->be, angles_task, &j, (n_rows + ANGLE_ROWS - 1) / ANGLE_ROWS);
    size_t n = 2 * (size_t)m->rope.n_pairs;
    for (int r = 0; r < n_rows; r++)
        ws->be->ops->rows_write(ws->be, rvi_cols_of(ws->angles, 0, (int)n), r,
                                ws->turns + (size_t)r * n);
}

/* Rows of a sequence may stand apart, in the order of their positions. */
static void drop_unread_forms(const rvi_row *rows, int n_rows)
{
    rvi_pages *pool = rows[0].seq->pool;
    int n_pages = 0;
    if (!rvi_pages_is_tiered(pool)) return;
    for (int r = 0, n; r < n_rows; r += n) {
        const rvi_seq *seq = rows[r].seq;
        int earlier = 0, last = rows[r].pos;
        for (n = 1; r + n < n_rows && rows[r + n].seq == seq;) n++;
        while (rows[earlier].seq != seq) earlier++;
        if (earlier < r) continue;
        for (int i = r; i < n_rows; i++)
            if (rows[i].seq == seq) last = rows[i].pos;
        rvi_seq_drop_unread(seq, rows[r].pos, last);
        int next = last + 1 + last - rows[r].pos; /* the last row of a step of as many rows */
        n_pages += next / RVI_PAGE_TOKENS - last / RVI_PAGE_TOKENS;
    }
    rvi_pages_trim(pool, n_pages); /* the next step will want about as many */
}

void rvi_model_encode(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows,
                      int n_wanted)
{
    rvi_workspace_group(ws, rows, NULL, n_rows);
    drop_unread_forms(rows, n_rows);
    rvi_encoder_forward(m, ws, rows, n_rows, n_wanted);
}

/* Tables like kv_rows for the other sequences; a row that has none writes the same once more. */
static void find_also(rvi_workspace *ws, const rvi_row *rows, int n_rows)
{
    ws->n_also = 0;
    for (int r = 0; r < n_rows; r++)
        while (ws->n_also < RVI_ROW_ALSO && rows[r].also[ws->n_also]) ws->n_also++;
    for (int i = 0; i < ws->n_also; i++)
        for (int r = 0; r < n_rows; r++) {
            const rvi_seq *seq = rows[r].also[i] ? rows[r].also[i] : rows[r].seq;
            ws->also_rows[(size_t)i * (size_t)n_rows + (size_t)r] =
                (rvi_kv_row){.pages = seq->pages, .pos = rows[r].pos};
        }
}

/* A single row on its way through all layers: a device may know it from the row before. */
static bool recall(rvi_workspace *ws, const rvi_row *row, rvi_then then)
{
    const rvi_backend_ops *op = ws->be->ops;
    if (!op->again || ws->tap || ws->n_also || (then == RVI_THEN_BEST && !op->best)) return false;
    if (then == RVI_THEN_DRAWN && !ws->draws) return false;
    rvi_pass_key key = {.owner = ws,
                        .kv = row->seq->pool,
                        .page = row->pos / RVI_PAGE_TOKENS,
                        .kind = (int32_t)then};
    ws->is_recalled = op->again(ws->be, &key, ws->kv_rows, 1);
    return ws->is_recalled;
}

void rvi_model_forward(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows)
{
    rvi_then then = ws->then;
    ws->then = RVI_THEN_NOTHING;
    ws->is_recalled = false;
    if (m->arch->is_encoder) {
        rvi_model_encode(m, ws, rows, n_rows, n_rows);
        return;
    }
    rvi_workspace_group(ws, rows, NULL, n_rows);
    drop_unread_forms(rows, n_rows);
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd);
    ws->fused = !ws->tap;
    for (int r = 0; r < n_rows; r++) {
        ws->tokens[r] = rows[r].token;
        ws->kv_rows[r] = (rvi_kv_row){rows[r].seq->pages, rows[r].pos, rows[r].seq->coarse};
    }
    find_also(ws, rows, n_rows);
    find_angles(m, ws, rows, n_rows);
    op->embed(ws->be, x, m->embed, ws->tokens, n_rows, h->embed_scale);
    if (then && n_rows == 1 && !rows->adapters && recall(ws, rows, then)) {
        report_half(m, ws, 2 * h->n_layers);
        return;
    }
    for (int il = 0; il < h->n_layers; il++) {
        if (rvi_backend_is_stopped(ws->be)) {
            op->submit(ws->be); /* nothing of this step stays behind */
            return;
        }
        rvi_workspace_tap(ws, "hidden", il, x, n_rows);
        rvi_workspace_attention(m, ws, il, rows, n_rows);
        report_half(m, ws, 2 * il + 1);
        rvi_workspace_act(m, ws, il, n_rows);
        rvi_workspace_down(m, ws, il, n_rows);
        report_half(m, ws, 2 * il + 2);
    }
    rvi_cols hidden = rvi_cols_of(ws->h, 0, h->n_embd); /* x stays: rvi_workspace_last_layer */
    op->rms_norm(ws->be, hidden, x, m->out_norm, n_rows, h->norm_eps);
    rvi_workspace_tap(ws, "hidden", h->n_layers, hidden, n_rows);
    if (!then) op->submit(ws->be);
}

rv_status rvi_model_check(const rvi_model *m, const rvi_workspace *ws, rv_error *err)
{
    rv_status st = ws->be->ops->check(ws->be, err);
    return st ? st : rvi_source_check(m->source, err);
}

static rvi_cols compute_logits(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                               const int32_t *which, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    rvi_cols last = rvi_cols_of(ws->last, 0, m->hp.n_embd),
             logits = rvi_cols_of(ws->logits, 0, m->hp.n_vocab);
    if (ws->is_recalled) { /* they are part of what is started again */
        ws->is_recalled = false;
        return logits;
    }
    if (n == 1 && which[0] == 0)
        last = rvi_cols_of(ws->h, 0, m->hp.n_embd); /* it stands where it is wanted */
    else
        op->gather(ws->be, last, rvi_cols_of(ws->h, 0, m->hp.n_embd), which, n);
    rvi_workspace_group(ws, rows, which, n);
    rvi_workspace_linear(ws, &m->head, logits, last, n);
    if (m->hp.logit_cap > 0) op->soft_cap(ws->be, logits, m->hp.logit_cap, n);
    rvi_workspace_tap(ws, "logits", -1, logits, n);
    return logits;
}

const float *rvi_model_logits(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                              const int32_t *which, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    rvi_cols logits = compute_logits(m, ws, rows, which, n);
    (op->take ? op->take : op->fetch)(ws->be, logits, n, ws->logits_host);
    return ws->logits_host;
}

float *rvi_workspace_logits(rvi_workspace *ws, int i)
{
    int n_vocab = ws->be->ops->n_cols(ws->logits);
    ws->be->ops->rows_read(ws->be, rvi_cols_of(ws->logits, 0, n_vocab), i,
                           ws->logits_host + (size_t)i * (size_t)n_vocab);
    return ws->logits_host;
}

const rvi_drawn *rvi_model_draw(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                                const int32_t *which, int n, const rvi_draw_ask *asks)
{
    if (!ws->draws) return NULL;
    rvi_cols logits = compute_logits(m, ws, rows, which, n);
    memcpy(ws->draws->asks, asks, (size_t)n * sizeof *asks);
    return ws->be->ops->draw(ws->be, logits, n, ws->draws) ? ws->draws->rows : NULL;
}

bool rvi_model_best(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                    const int32_t *which, int n, int32_t *out)
{
    bool found = ws->be->ops->best != NULL;
    if (!found) return false;
    rvi_cols logits = compute_logits(m, ws, rows, which, n);
    ws->be->ops->best(ws->be, logits, n, out);
    for (int i = 0; i < n; i++) found = found && out[i] >= 0;
    return found;
}
