/* The pass of an encoder, over the rows of any number of whole texts.
 *
 *   x = norm(word + kind + position)
 *   q, k, v = W x + b;  k, v into the text's KV pages
 *   a = softmax(q k^T scale) v over all of the text;  x = norm(x + W_o a + b)
 *   x = norm(x + W_down act(W_up x + b) + b)
 *
 * Every row of a text is computed as if it were at the text's last position: then paged attention
 * sees all of the text, in the same order for each row, and a row's result depends on its text
 * alone. */
#include <string.h>

#include "model/workspace.h"

/* y = rows of a table; x += y */
static void add_rows_of(rvi_workspace *ws, const rvi_tensor *table, const int32_t *ids, rvi_cols x,
                        rvi_cols y, int n)
{
    ws->be->ops->embed(ws->be, y, table, ids, n, 1);
    ws->be->ops->add(ws->be, x, y, n);
}

static void embed_rows(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n)
{
    const rvi_backend_ops *op = ws->be->ops;
    int width = m->hp.n_embd;
    rvi_cols x = rvi_cols_of(ws->x, 0, width), y = rvi_cols_of(ws->y, 0, width);
    for (int r = 0; r < n; r++) ws->tokens[r] = rows[r].token;
    op->embed(ws->be, x, m->embed, ws->tokens, n, 1);
    if (m->type_embed) { /* every text is of kind 0 */
        memset(ws->tokens, 0, (size_t)n * sizeof *ws->tokens);
        add_rows_of(ws, m->type_embed, ws->tokens, x, y, n);
    }
    for (int r = 0; r < n; r++) ws->tokens[r] = rows[r].pos;
    add_rows_of(ws, m->pos_embed, ws->tokens, x, y, n);
    op->layer_norm(ws->be, x, x, m->embed_norm.w, m->embed_norm.b, n, m->hp.norm_eps);
}

/* Keys and values of all n rows, and what follows of the first n_out of them. */
static void layer(const rvi_model *m, rvi_workspace *ws, int il, const rvi_row *rows, int n,
                  int n_out)
{
    const rvi_backend_ops *op = ws->be->ops;
    const rvi_hparams *h = &m->hp;
    const rvi_layer *l = &m->layers[il];
    int nq = h->n_heads * h->head_size, nk = h->n_kv_heads * h->head_size;
    rvi_cols x = rvi_cols_of(ws->x, 0, h->n_embd), y = rvi_cols_of(ws->y, 0, h->n_embd);
    rvi_cols q = rvi_cols_of(ws->qkv, 0, nq), k = rvi_cols_of(ws->qkv, nq, nk),
             v = rvi_cols_of(ws->qkv, nq + nk, nk);
    rvi_cols mix = rvi_cols_of(ws->mix, 0, nq), act = rvi_cols_of(ws->act, 0, h->n_ff);
    rvi_kv_store *store = rvi_pages_store(rows[0].seq->pool);
    rvi_attention a = {.n_heads = h->n_heads,
                       .n_kv_heads = h->n_kv_heads,
                       .head_size = h->head_size,
                       .scale = h->attn_scale};

    rvi_workspace_qkv(m, ws, il, x, n);
    op->kv_write(ws->be, store, il, k, v, ws->kv_rows, n);
    if (n_out < n) rvi_workspace_group(ws, rows, NULL, n_out);
    n = n_out;
    op->attention(ws->be, mix, q, store, il, &a, ws->text_rows, n);
    rvi_workspace_tap(ws, "attn_mix", il, mix, n);
    rvi_workspace_linear(ws, &l->o, y, mix, n);
    rvi_workspace_tap(ws, "attn_out", il, y, n);
    op->add(ws->be, x, y, n);
    op->layer_norm(ws->be, x, x, l->attn_out_norm.w, l->attn_out_norm.b, n, h->norm_eps);
    rvi_workspace_tap(ws, "attn_post_norm", il, x, n);

    rvi_workspace_linear(ws, &l->up, act, x, n);
    rvi_workspace_tap(ws, "ffn_up", il, act, n);
    op->act(ws->be, act, h->act, n);
    rvi_workspace_tap(ws, "ffn_act", il, act, n);
    rvi_workspace_linear(ws, &l->down, y, act, n);
    rvi_workspace_tap(ws, "ffn_out", il, y, n);
    op->add(ws->be, x, y, n);
    op->layer_norm(ws->be, x, x, l->out_norm.w, l->out_norm.b, n, h->norm_eps);
}

void rvi_encoder_forward(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows,
                         int n_wanted)
{
    rvi_cols x = rvi_cols_of(ws->x, 0, m->hp.n_embd);
    for (int r = 0; r < n_rows; r++) {
        ws->kv_rows[r] = (rvi_kv_row){.pages = rows[r].seq->pages, .pos = rows[r].pos};
        ws->text_rows[r] = (rvi_kv_row){.pages = rows[r].seq->pages, .pos = rows[r].seq->len - 1};
    }
    embed_rows(m, ws, rows, n_rows);
    rvi_workspace_tap(ws, "hidden", 0, x, n_rows);
    for (int il = 0; il < m->hp.n_layers; il++) {
        int n_out = il + 1 < m->hp.n_layers ? n_rows : n_wanted;
        layer(m, ws, il, rows, n_rows, n_out);
        rvi_workspace_tap(ws, "hidden", il + 1, x, n_out);
    }
    ws->be->ops->submit(ws->be);
}
