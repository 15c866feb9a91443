/* Weights in panels: weights.h has the picture. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "formats/qtypes.h"

enum { OUTS = RVI_CUDA_PANEL };

static const struct quants {
    int bits, offset, scales, d_units, has_m;
} quants[RVI_QTYPE_COUNT] = {
#define X(name, bits, offset, scales, d_units, has_m)                                              \
    [RVI_##name] = {bits, offset, scales, d_units, has_m},
    RVI_CUDA_QUANTS(X)
#undef X
};

static size_t n_units(const rvi_tensor *t)
{
    return ((size_t)t->n_cols + RVI_CUDA_UNIT - 1) / RVI_CUDA_UNIT;
}

bool rvi_cuda_has_panels(const rvi_cuda *c, const rvi_tensor *t)
{
    return !c->exact && (quants[t->type].bits || t->type == RVI_BF16);
}

size_t rvi_cuda_panel_bytes(const rvi_tensor *t)
{
    const struct quants *q = &quants[t->type];
    size_t units = n_units(t);
    if (t->type == RVI_BF16) return units * RVI_CUDA_UNIT * OUTS * sizeof(uint16_t);
    size_t unit = (size_t)(RVI_CUDA_LOW_BYTES(q->bits) + RVI_CUDA_HIGH_BYTES(q->bits) + q->scales);
    size_t bytes =
        OUTS * (units * unit + units / (size_t)q->d_units * (size_t)RVI_CUDA_D_BYTES(q->has_m));
    return (bytes + 127) / 128 * 128;
}

/* ---- a unit of a block, as the file has it ---- */

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static void nibbles(rvi_cuda_unit *u, const uint8_t *qs)
{
    for (int i = 0; i < 16; i++) {
        u->q[i] = qs[i] & 15;
        u->q[i + 16] = qs[i] >> 4;
    }
}

static void fifths(rvi_cuda_unit *u, const uint8_t *bits)
{
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] |= (uint8_t)((bits[i / 8] >> (i % 8) & 1) << 4);
}

static void by_table(rvi_cuda_unit *u)
{
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] = (uint8_t)iq4[u->q[i]];
}

/* Q4_K, Q5_K: six bits each of a scale and a minimum */
static void scale_and_min(rvi_cuda_unit *u, const uint8_t *s, int sub)
{
    u->scales[0] = sub < 4 ? s[sub] & 63 : (uint8_t)((s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4);
    u->scales[1] = sub < 4 ? s[sub + 4] & 63 : (uint8_t)(s[sub + 4] >> 4 | (s[sub] >> 6) << 4);
}

static void unit_of_32(rvi_cuda_unit *u, rvi_qtype type, const uint8_t *b)
{
    u->d = b;
    u->m = b + 2;
    switch (type) {
    case RVI_Q4_0: nibbles(u, b + 2); break;
    case RVI_Q4_1: nibbles(u, b + 4); break;
    case RVI_Q5_0:
        nibbles(u, b + 6);
        fifths(u, b + 2);
        break;
    case RVI_Q5_1:
        nibbles(u, b + 8);
        fifths(u, b + 4);
        break;
    case RVI_IQ4_NL:
        nibbles(u, b + 2);
        by_table(u);
        break;
    default: memcpy(u->q, b + 2, RVI_CUDA_UNIT); /* Q8_0 */
    }
}

static void unit_of_k(rvi_cuda_unit *u, rvi_qtype type, const uint8_t *b, int sub)
{
    const uint8_t *qs = b + 16 + (type == RVI_Q5_K ? 32 : 0) + sub / 2 * 32;
    u->d = b;
    u->m = b + 2;
    scale_and_min(u, b + 4, sub);
    for (int i = 0; i < RVI_CUDA_UNIT; i++) {
        u->q[i] = qs[i] >> (sub % 2 * 4) & 15;
        if (type == RVI_Q5_K) u->q[i] |= (uint8_t)((b[16 + i] >> sub & 1) << 4);
    }
}

static void unit_of_q2(rvi_cuda_unit *u, const uint8_t *b, int sub)
{
    u->d = b + 80;
    u->m = b + 82;
    for (int h = 0; h < 2; h++) {
        u->scales[h] = b[2 * sub + h] & 15;
        u->scales[2 + h] = b[2 * sub + h] >> 4;
    }
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] = b[16 + sub / 4 * 32 + i] >> (sub % 4 * 2) & 3;
}

static void unit_of_q3(rvi_cuda_unit *u, const uint8_t *b, int sub)
{
    const uint8_t *s = b + 96;
    u->d = b + 108;
    for (int h = 0; h < 2; h++) {
        int g = 2 * sub + h, low = s[g % 8] >> (g / 8 * 4) & 15,
            high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        u->scales[h] = (uint8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < RVI_CUDA_UNIT; i++)
        u->q[i] =
            (uint8_t)((b[32 + sub / 4 * 32 + i] >> (sub % 4 * 2) & 3) | (b[i] >> sub & 1) << 2);
}

static void unit_of_q6(rvi_cuda_unit *u, const uint8_t *b, int sub)
{
    const uint8_t *low = b + sub / 4 * 64 + sub % 2 * 32, *high = b + 128 + sub / 4 * 32;
    u->d = b + 208;
    u->scales[0] = b[192 + 2 * sub];
    u->scales[1] = b[192 + 2 * sub + 1];
    for (int i = 0; i < RVI_CUDA_UNIT; i++)
        u->q[i] =
            (uint8_t)((low[i] >> (sub % 4 / 2 * 4) & 15) | (high[i] >> (sub % 4 * 2) & 3) << 4);
}

static void unit_of_iq4_xs(rvi_cuda_unit *u, const uint8_t *b, int sub)
{
    int low = b[4 + sub / 2] >> (sub % 2 * 4) & 15, high = (b[2] | b[3] << 8) >> (2 * sub) & 3;
    u->d = b;
    u->scales[0] = (uint8_t)((low | high << 4) - 32);
    nibbles(u, b + 8 + 16 * sub);
    by_table(u);
}

void rvi_cuda_unit_of(rvi_cuda_unit *u, rvi_qtype type, const uint8_t *row, size_t at)
{
    size_t per_block = rvi_qtypes[type].block_weights / RVI_CUDA_UNIT;
    const uint8_t *b = row + at / per_block * rvi_qtypes[type].block_bytes;
    int sub = (int)(at % per_block);
    switch (type) {
    case RVI_Q2_K: unit_of_q2(u, b, sub); break;
    case RVI_Q3_K: unit_of_q3(u, b, sub); break;
    case RVI_Q4_K:
    case RVI_Q5_K: unit_of_k(u, type, b, sub); break;
    case RVI_Q6_K: unit_of_q6(u, b, sub); break;
    case RVI_IQ4_XS: unit_of_iq4_xs(u, b, sub); break;
    default: unit_of_32(u, type, b);
    }
}

/* ---- a panel ---- */

static void put_high(uint8_t *to, const rvi_cuda_unit *u, int bits)
{
    uint32_t w[2] = {0};
    for (int i = 0; i < RVI_CUDA_UNIT; i++) {
        uint32_t up = u->q[i] >> 4;
        int t = i % 16 / 4, j = i % 4, half = i / 16;
        if (bits == 5)
            w[0] |= up << (8 * j + 4 * half + t);
        else
            w[half] |= up << (8 * j + 2 * t);
    }
    memcpy(to, w, (size_t)RVI_CUDA_HIGH_BYTES(bits));
}

static void put_low(uint8_t *low, size_t at, int o, const rvi_cuda_unit *u, int bits)
{
    if (bits == 8) {
        for (size_t h = 0; h < 2; h++)
            memcpy(low + ((2 * at + h) * OUTS + (size_t)o) * 16, u->q + 16 * h, 16);
        return;
    }
    uint8_t *to = low + (at * OUTS + (size_t)o) * 16;
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)((u->q[i] & 15) | u->q[i + 16] << 4);
}

static void put_row(const rvi_tensor *t, const uint8_t *row, int o, uint8_t *panel)
{
    const struct quants *q = &quants[t->type];
    size_t units = n_units(t), slot = (size_t)o, high_bytes = (size_t)RVI_CUDA_HIGH_BYTES(q->bits);
    size_t n_scales = (size_t)q->scales, d_bytes = (size_t)RVI_CUDA_D_BYTES(q->has_m);
    uint8_t *high = panel + units * OUTS * (size_t)RVI_CUDA_LOW_BYTES(q->bits);
    uint8_t *scales = high + units * OUTS * high_bytes, *d = scales + units * OUTS * n_scales;
    for (size_t i = 0; i < units; i++) {
        rvi_cuda_unit u;
        rvi_cuda_unit_of(&u, t->type, row, i);
        put_low(panel, i, o, &u, q->bits);
        if (high_bytes) put_high(high + (i * OUTS + slot) * high_bytes, &u, q->bits);
        memcpy(scales + (i * OUTS + slot) * n_scales, u.scales, n_scales);
        if (i % (size_t)q->d_units) continue;
        uint8_t *to = d + (i / (size_t)q->d_units * OUTS + slot) * d_bytes;
        memcpy(to, u.d, 2);
        if (q->has_m) memcpy(to + 2, u.m, 2);
    }
}

static void put_floats(const rvi_tensor *t, const uint8_t *row, int o, uint8_t *panel)
{
    size_t bytes = (size_t)t->n_cols * sizeof(uint16_t);
    for (size_t at = 0; at < bytes; at += 16)
        memcpy(panel + at * OUTS + (size_t)o * 16, row + at, RVI_MIN(bytes - at, 16));
}

void rvi_cuda_put_panel(const rvi_tensor *t, int panel, uint8_t *to)
{
    size_t bytes = rvi_qtype_row_bytes(t->type, (size_t)t->n_cols);
    memset(to, 0, t->row_bytes);
    for (int o = 0; o < OUTS && panel * OUTS + o < t->n_rows; o++) {
        const uint8_t *row = t->data + (size_t)(panel * OUTS + o) * bytes;
        if (t->type == RVI_BF16)
            put_floats(t, row, o, to);
        else
            put_row(t, row, o, to);
    }
}
