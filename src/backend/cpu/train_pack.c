/* Layers that read the same rows, and their matrices as right operands of products. */
#include <string.h>

#include "backend/cpu/train_linear.h"

typedef rvi_train_part part;
typedef rvi_train_group group;
typedef rvi_train_segment segment;
typedef rvi_train_panels panels;

/* What an adapter adds to an output comes from the same steps of k as if its layer were alone: no
 * more than one step, or whole ones from their beginning. */
int rvi_train_group_new(group *q, rvi_backend *be, const rvi_float_linear *l, int n_layers)
{
    rvi_cpu *cpu = rvi_cpu_of(be);
    *q = (group){.cpu = cpu, .s = cpu->train, .g = cpu->train->linear, .n_in = l->w->n_cols};
    int step = q->g->k_step;
    for (; q->n_parts < n_layers; q->n_parts++, l++) {
        int rank = l->a ? l->a->n_rows : 0, at = q->n_low;
        if (at % step + rank > step) at = rvi_blocks_of(at, step) * step;
        if (q->n_parts && at + rank > RVI_MAX_RANK) break;
        q->parts[q->n_parts] = (part){.l = l, .rank = rank, .col = q->n_out, .low_at = at};
        if (rank) q->n_low = at + rank;
        q->n_out += l->w->n_rows;
    }
    q->width = rvi_gemm_cols(q->n_low) + RVI_GEMM_PANEL;
    return q->n_parts;
}

/* ---- adapters' first matrices ---- */

/* A panel of first matrices, forward: rows gathered from all layers, zeros elsewhere. */
static void first_of_layers(const group *q, const segment *s, int col, uint8_t *to, float *tile)
{
    size_t n = (size_t)s->n, stride = (size_t)q->n_in;
    if (s->n_parts == 1) {
        const float *a = s->parts->l->a->heap + (size_t)col * stride + (size_t)s->at;
        q->g->pack_b(to, s->n_padded, a, stride, true, s->n,
                     RVI_MIN(RVI_GEMM_PANEL, s->n_low - col));
        return;
    }
    memset(tile, 0, RVI_GEMM_PANEL * n * sizeof *tile);
    for (int i = 0; i < s->n_parts; i++) {
        const part *p = &s->parts[i];
        int from = RVI_MAX(col, p->low_at),
            end = RVI_MIN(col + RVI_GEMM_PANEL, p->low_at + p->rank);
        for (int c = from; c < end; c++)
            memcpy(tile + (size_t)(c - col) * n,
                   p->l->a->heap + (size_t)(c - p->low_at) * stride + (size_t)s->at,
                   n * sizeof *tile);
    }
    q->g->pack_b(to, s->n_padded, tile, n, true, s->n, RVI_GEMM_PANEL);
}

void rvi_train_pack_first(const group *q, bool back, const segment *s, int col, uint8_t *to,
                          float *tile)
{
    if (!back) {
        first_of_layers(q, s, col, to, tile);
        return;
    }
    size_t stride = (size_t)s->parts->rank;
    q->g->pack_b(to, s->n_padded, s->parts->l->b->heap + (size_t)s->at * stride + (size_t)col,
                 stride, false, s->n, RVI_MIN(RVI_GEMM_PANEL, s->n_low - col));
}

void rvi_train_scale_low(const segment *s, float *low, int width, int n_rows)
{
    for (int i = 0; i < s->n_parts; i++) {
        const part *p = &s->parts[i];
        for (int r = 0; r < n_rows; r++) {
            float *at = low + (size_t)r * (size_t)width + (size_t)p->low_at;
            for (int c = 0; c < p->rank; c++) at[c] *= p->l->scale;
        }
    }
}

/* ---- weights, and second matrices ---- */

static void to_floats(const group *q, const rvi_tensor *w, const uint8_t *from, float *to, int n)
{
    if (w->type == RVI_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        q->cpu->k.dequantize[w->type](from, to, (size_t)n);
}

void rvi_train_pack_outputs(const group *q, const segment *s, const rvi_tensor *w, const panels *to)
{
    enum { SLICE = 256 };
    const size_t block = rvi_qtypes[w->type].block_weights, bytes = rvi_qtypes[w->type].block_bytes;
    for (int p = 0; p < to->n; p += RVI_GEMM_PANEL)
        for (int k = 0; k < s->n; k += SLICE) {
            int rows = RVI_MIN(RVI_GEMM_PANEL, to->n - p), len = RVI_MIN(SLICE, s->n - k);
            const uint8_t *from = w->data + (size_t)(to->col + p) * w->row_bytes +
                                  (size_t)(s->at + k) / block * bytes;
            for (int r = 0; r < rows; r++)
                to_floats(q, w, from + (size_t)r * w->row_bytes, to->tile + r * SLICE, len);
            q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, p, s->k + (size_t)k),
                         to->k_total, to->tile, SLICE, true, len, rows);
        }
}

void rvi_train_pack_inputs(const group *q, const segment *s, const panels *to)
{
    enum { SLICE = 32 };
    const rvi_tensor *w = s->parts->l->w;
    const int block = (int)rvi_qtypes[w->type].block_weights;
    int from = to->col / block * block, end = rvi_blocks_of(to->col + to->n, block) * block,
        len = end - from;
    size_t skip = (size_t)(from / block) * rvi_qtypes[w->type].block_bytes;
    for (int k = 0; k < s->n; k += SLICE) {
        int rows = RVI_MIN(SLICE, s->n - k);
        for (int r = 0; r < rows; r++)
            to_floats(q, w, w->data + (size_t)(s->at + k + r) * w->row_bytes + skip,
                      to->tile + (size_t)r * (size_t)len, len);
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, 0, s->k + (size_t)k), to->k_total,
                     to->tile + (to->col - from), (size_t)len, false, rows, to->n);
    }
}

void rvi_train_pack_second(const group *q, const part *p, size_t k, const panels *to)
{
    size_t rank = (size_t)p->rank, stride = (size_t)p->low_at + rank;
    if (!p->low_at) {
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, 0, k), to->k_total,
                     p->l->b->heap + (size_t)to->col * rank, rank, true, p->rank, to->n);
        return;
    }
    for (int c = 0; c < to->n; c += RVI_GEMM_PANEL) {
        int cols = RVI_MIN(RVI_GEMM_PANEL, to->n - c);
        const float *from = p->l->b->heap + (size_t)(to->col + c) * rank;
        memset(to->tile, 0, (size_t)cols * stride * sizeof *to->tile);
        for (int i = 0; i < cols; i++)
            memcpy(to->tile + (size_t)i * stride + (size_t)p->low_at, from + (size_t)i * rank,
                   rank * sizeof *to->tile);
        q->g->pack_b(to->to + rvi_gemm_b_at(q->g, to->k_total, c, k), to->k_total, to->tile, stride,
                     true, (int)stride, cols);
    }
}
