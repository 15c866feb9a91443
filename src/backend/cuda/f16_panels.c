/* Weights in f16 panels: weights.h has the picture. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "formats/qtypes.h"

enum { OUTS = RVI_CUDA_PANEL };

static const struct quants {
    int bits, scales, d_units, has_m;
} quants[RVI_QTYPE_COUNT] = {
#define X(name, bits, offset, scales, d_units, has_m) [RVI_##name] = {bits, scales, d_units, has_m},
    RVI_CUDA_QUANTS(X)
#undef X
};

/* Of a block: units; where its planes begin; its bytes. */
typedef struct layout {
    size_t units, high, scales, d, bytes;
} layout;

static layout layout_of(rvi_qtype type)
{
    const struct quants *q = &quants[type];
    if (type == RVI_BF16) return (layout){.units = 4, .bytes = OUTS * 4 * RVI_CUDA_UNIT * 2};
    layout l = {.units = (size_t)RVI_CUDA_F16_UNITS(q->d_units)};
    l.high = OUTS * l.units * (size_t)RVI_CUDA_LOW_BYTES(q->bits);
    l.scales = l.high + OUTS * l.units * (size_t)RVI_CUDA_HIGH_BYTES(q->bits);
    l.d = l.scales + OUTS * l.units * (size_t)q->scales;
    l.bytes = l.d + OUTS * l.units / (size_t)q->d_units * (size_t)RVI_CUDA_D_BYTES(q->has_m);
    return l;
}

size_t rvi_cuda_f16_bytes(const rvi_tensor *t)
{
    layout l = layout_of(t->type);
    size_t block = l.units * RVI_CUDA_UNIT;
    return ((size_t)t->n_cols + block - 1) / block * l.bytes;
}

static void put_word(uint8_t *to, uint32_t w)
{
    memcpy(to, &w, sizeof w);
}

/* Word i of the low plane of a lane. */
static uint8_t *low_at(uint8_t *block, size_t lane, size_t i)
{
    return block + i / 4 * 512 + lane * 16 + i % 4 * 4;
}

/* 8 quants of a lane. */
static void put_quants(uint8_t *block, const layout *l, size_t lane, size_t u, const uint8_t *q,
                       int bits)
{
    uint32_t low[2] = {0}, high = 0;
    for (int j = 0; j < 8; j++) {
        int at = 16 * (j % 2), pair = j / 2;
        if (bits == 8)
            low[j / 4] |= (uint32_t)(q[j] ^ 128) << (j % 4 * 8);
        else
            low[0] |= (uint32_t)(q[j] & 15) << (at + 4 * pair);
        if (bits == 5) high |= (uint32_t)(q[j] >> 4) << (at + 4 * (int)(u % 4) + pair);
        if (bits == 6) high |= (uint32_t)(q[j] >> 4) << (at + 2 * (4 * (int)(u % 2) + pair));
    }
    size_t words = bits == 8 ? 2 : 1;
    for (size_t i = 0; i < words; i++) put_word(low_at(block, lane, words * u + i), low[i]);
    if (bits != 5 && bits != 6) return;
    size_t per = bits == 5 ? 4 : 2; /* units of a word */
    uint8_t *to = block + l->high + lane * (l->units / per) * 4 + u / per * 4;
    uint32_t before;
    memcpy(&before, to, sizeof before);
    put_word(to, before | high);
}

static void put_scales(uint8_t *block, const layout *l, const struct quants *q, size_t o, size_t u,
                       const rvi_cuda_unit *x)
{
    bool two = RVI_CUDA_HAS_TWO(q->scales, q->has_m);
    size_t n = (size_t)(two ? q->scales / 2 : q->scales);
    for (size_t h = 0; h < (two ? 2 : 1); h++) {
        uint8_t *to = block + l->scales + ((two ? 2 * o + h : o) * l->units + u) * n;
        if (n == 1) to[0] = x->scales[h] ^ 128;
        if (n == 2) to[0] = x->scales[h], to[1] = x->scales[two ? 2 + h : 1];
    }
    size_t d_units = (size_t)q->d_units, bytes = (size_t)RVI_CUDA_D_BYTES(q->has_m);
    if (u % d_units) return;
    uint8_t *to = block + l->d + (o * (l->units / d_units) + u / d_units) * bytes;
    memcpy(to, x->d, 2);
    if (!q->has_m) return;
    memcpy(to + 2, x->m, 2);
    if (q->scales) to[3] ^= 128; /* minima are taken off */
}

static void put_floats(uint8_t *block, size_t o, size_t u, const uint8_t *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4) {
        uint32_t w = 0;
        memcpy(&w, from + at, RVI_MIN(bytes - at, 4));
        put_word(low_at(block, o * 4 + at / 16, u * 4 + at % 16 / 4), w);
    }
}

static void put_row(const rvi_tensor *t, const uint8_t *row, size_t o, uint8_t *panel)
{
    const struct quants *q = &quants[t->type];
    layout l = layout_of(t->type);
    size_t n = (size_t)t->n_cols, units = (n + RVI_CUDA_UNIT - 1) / RVI_CUDA_UNIT;
    for (size_t i = 0; i < units; i++) {
        uint8_t *block = panel + i / l.units * l.bytes;
        size_t u = i % l.units;
        if (t->type == RVI_BF16) {
            put_floats(block, o, u, row + i * RVI_CUDA_UNIT * 2,
                       RVI_MIN(n - i * RVI_CUDA_UNIT, RVI_CUDA_UNIT) * 2);
            continue;
        }
        rvi_cuda_unit x = {0};
        rvi_cuda_unit_of(&x, t->type, row, i);
        for (size_t lane = 0; lane < 4; lane++)
            put_quants(block, &l, o * 4 + lane, u, x.q + 8 * lane, q->bits);
        put_scales(block, &l, q, o, u, &x);
    }
}

void rvi_cuda_f16_put(const rvi_tensor *t, int panel, uint8_t *to)
{
    size_t bytes = rvi_qtype_row_bytes(t->type, (size_t)t->n_cols);
    memset(to, 0, t->row_bytes);
    for (int o = 0; o < OUTS && panel * OUTS + o < t->n_rows; o++)
        put_row(t, t->data + (size_t)(panel * OUTS + o) * bytes, (size_t)o, to);
}
