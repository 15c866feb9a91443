/* Weights in panels: weights.h has the picture. */
#include <math.h>
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

bool rvi_cuda_has_floats(rvi_qtype type)
{
    return type == RVI_BF16 || type == RVI_F16 || type == RVI_F32;
}

int rvi_cuda_columns(const rvi_tensor *t)
{
    enum { BLOCK = 4 * RVI_CUDA_UNIT };
    bool parts = t->panels && t->type == RVI_F32;
    return parts ? 3 * ((t->n_cols + BLOCK - 1) / BLOCK * BLOCK) : t->n_cols;
}

static layout layout_of(rvi_qtype type)
{
    const struct quants *q = &quants[type];
    if (rvi_cuda_has_floats(type))
        return (layout){.units = 4, .bytes = OUTS * 4 * RVI_CUDA_UNIT * 2};
    layout l = {.units = (size_t)RVI_CUDA_BLOCK_UNITS(q->d_units)};
    l.high = OUTS * l.units * (size_t)RVI_CUDA_LOW_BYTES(q->bits);
    l.scales = l.high + OUTS * l.units * (size_t)RVI_CUDA_HIGH_BYTES(q->bits);
    l.d = l.scales + OUTS * l.units * (size_t)q->scales;
    l.bytes = l.d + OUTS * l.units / (size_t)q->d_units * (size_t)RVI_CUDA_D_BYTES(q->has_m);
    return l;
}

size_t rvi_cuda_panel_bytes(const rvi_tensor *t)
{
    layout l = layout_of(t->type);
    size_t block = l.units * RVI_CUDA_UNIT;
    size_t columns = (size_t)rvi_cuda_columns(t);
    return (columns + block - 1) / block * l.bytes + (rvi_cuda_has_floats(t->type) ? 16 : 0);
}

size_t rvi_cuda_block_bytes(rvi_qtype type, int *units)
{
    layout l = layout_of(type);
    *units = (int)l.units;
    return l.bytes;
}

static bool has_panels(const rvi_cuda *c, rvi_qtype type)
{
    return !c->exact && (quants[type].bits || rvi_cuda_has_floats(type));
}

bool rvi_cuda_has_panels(const rvi_cuda *c, const rvi_tensor *t)
{
    bool fits = t->type != RVI_F32 || t->n_cols <= INT32_MAX / 4; /* see rvi_cuda_columns */
    return fits && has_panels(c, t->type);
}

rvi_products_form rvi_backend_cuda_products(const rvi_backend *be, rvi_qtype type)
{
    const rvi_cuda *c = (const rvi_cuda *)be;
    if (has_panels(c, type) && type == RVI_F32)
        return (rvi_products_form){
            "packed", "in panels of 8 outputs, two parts of 16 bits a weight",
            "two parts of f16 with a scale a row",
            "three products on tensor cores are nearly as exact as one of f32"};
    if (has_panels(c, type))
        return (rvi_products_form){"packed", "in panels of 8 outputs, as tensor cores take them",
                                   "f16 with a scale a row", "what tensor cores multiply"};
    return (rvi_products_form){"rows of the file, cut into planes",
                               c->exact ? "exact: no tensor cores" : "not for tensor cores", "f32",
                               c->exact ? "exact" : "what the products with these weights take"};
}

/* ---- a unit of a block ---- */

/* 32 weights of a row, as its file has them. */
typedef struct unit {
    uint8_t q[RVI_CUDA_UNIT]; /* as they are stored; 8 bits: two's complement */
    uint8_t scales[4];
    const uint8_t *d, *m;
} unit;

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static void nibbles(unit *u, const uint8_t *qs)
{
    for (int i = 0; i < 16; i++) {
        u->q[i] = qs[i] & 15;
        u->q[i + 16] = qs[i] >> 4;
    }
}

static void fifths(unit *u, const uint8_t *bits)
{
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] |= (uint8_t)((bits[i / 8] >> (i % 8) & 1) << 4);
}

static void by_table(unit *u)
{
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] = (uint8_t)iq4[u->q[i]];
}

/* Q4_K, Q5_K: six bits each of a scale and a minimum */
static void scale_and_min(unit *u, const uint8_t *s, int sub)
{
    u->scales[0] = (uint8_t)(sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4);
    u->scales[1] = (uint8_t)(sub < 4 ? s[sub + 4] & 63 : s[sub + 4] >> 4 | (s[sub] >> 6) << 4);
}

static void unit_of_32(unit *u, rvi_qtype type, const uint8_t *b)
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

static void unit_of_k(unit *u, rvi_qtype type, const uint8_t *b, int sub)
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

static void unit_of_q2(unit *u, const uint8_t *b, int sub)
{
    u->d = b + 80;
    u->m = b + 82;
    for (int h = 0; h < 2; h++) {
        u->scales[h] = b[2 * sub + h] & 15;
        u->scales[2 + h] = b[2 * sub + h] >> 4;
    }
    for (int i = 0; i < RVI_CUDA_UNIT; i++) u->q[i] = b[16 + sub / 4 * 32 + i] >> (sub % 4 * 2) & 3;
}

static void unit_of_q3(unit *u, const uint8_t *b, int sub)
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

static void unit_of_q6(unit *u, const uint8_t *b, int sub)
{
    const uint8_t *low = b + sub / 4 * 64 + sub % 2 * 32, *high = b + 128 + sub / 4 * 32;
    u->d = b + 208;
    u->scales[0] = b[192 + 2 * sub];
    u->scales[1] = b[192 + 2 * sub + 1];
    for (int i = 0; i < RVI_CUDA_UNIT; i++)
        u->q[i] =
            (uint8_t)((low[i] >> (sub % 4 / 2 * 4) & 15) | (high[i] >> (sub % 4 * 2) & 3) << 4);
}

static void unit_of_iq4_xs(unit *u, const uint8_t *b, int sub)
{
    int low = b[4 + sub / 2] >> (sub % 2 * 4) & 15, high = (b[2] | b[3] << 8) >> (2 * sub) & 3;
    u->d = b;
    u->scales[0] = (uint8_t)((low | high << 4) - 32);
    nibbles(u, b + 8 + 16 * sub);
    by_table(u);
}

static void unit_of(unit *u, rvi_qtype type, const uint8_t *row, size_t at)
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
                       const unit *x)
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

/* Weights i .. i + n - 1 of a row, times a power of two, to unit u of a block; second: what
 * rounding them left. */
static void put_floats(const rvi_tensor *t, const uint8_t *row, size_t i, size_t n, float scale,
                       bool second, uint8_t *block, size_t o, size_t u)
{
    float x[RVI_CUDA_UNIT] = {0};
    rvi_dequantize(t->type, row + rvi_qtype_row_bytes(t->type, i), x, n);
    for (size_t k = 0; k < RVI_CUDA_UNIT; k += 2) {
        uint32_t word = 0;
        for (size_t j = 0; j < 2; j++) {
            float v = x[k + j] * scale;
            rvi_f16 h = rvi_f32_to_f16(v);
            if (second) h = rvi_f32_to_f16(v - rvi_f16_to_f32(h));
            word |= (uint32_t)h << (16 * j);
        }
        put_word(low_at(block, o * 4 + k / 8, u * 4 + k % 8 / 2), word);
    }
}

/* All weights of a row; F32: its parts, one after the other. */
static void put_float_row(const rvi_tensor *t, const uint8_t *row, size_t o, float scale,
                          uint8_t *panel)
{
    layout l = layout_of(t->type);
    size_t n = (size_t)t->n_cols, units = (n + RVI_CUDA_UNIT - 1) / RVI_CUDA_UNIT,
           all = (size_t)rvi_cuda_columns(t) / 3 / RVI_CUDA_UNIT; /* of a part */
    for (size_t part = 0; part < (t->type == RVI_F32 ? 3 : 1); part++)
        for (size_t i = 0; i < units; i++) {
            size_t first = i * RVI_CUDA_UNIT, to = part * all + i;
            put_floats(t, row, first, RVI_MIN(n - first, RVI_CUDA_UNIT), scale, part == 2,
                       panel + to / l.units * l.bytes, o, to % l.units);
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
        unit x = {0};
        unit_of(&x, t->type, row, i);
        for (size_t lane = 0; lane < 4; lane++)
            put_quants(block, &l, o * 4 + lane, u, x.q + 8 * lane, q->bits);
        put_scales(block, &l, q, o, u, &x);
    }
}

/* The power of two that brings the largest of these to 2^13 .. 2^14; 1 where there is none. */
static float scale_of(rvi_qtype type, const uint8_t *from, size_t n)
{
    float top = 0, x[256];
    for (size_t i = 0; i < n; i += RVI_COUNT(x)) {
        size_t count = RVI_MIN(n - i, RVI_COUNT(x));
        rvi_dequantize(type, from + rvi_qtype_row_bytes(type, i), x, count);
        for (size_t k = 0; k < count; k++) top = fmaxf(top, fabsf(x[k]));
    }
    int e;
    if (!(top > 0x1p-100f) || !isfinite(top)) return 1.0f;
    (void)frexpf(top, &e);
    return ldexpf(1.0f, 14 - e);
}

void rvi_cuda_put_panel(const rvi_tensor *t, int panel, uint8_t *to)
{
    size_t bytes = rvi_qtype_row_bytes(t->type, (size_t)t->n_cols);
    const uint8_t *from = t->data + (size_t)panel * OUTS * bytes;
    int n = RVI_MIN(OUTS, t->n_rows - panel * OUTS);
    float scale = 1;
    memset(to, 0, t->row_bytes);
    if (rvi_cuda_has_floats(t->type)) {
        scale = scale_of(t->type, from, (size_t)n * (size_t)t->n_cols);
        float inverse = 1 / scale;
        memcpy(to + t->row_bytes - 16, &inverse, sizeof inverse);
    }
    for (int o = 0; o < n; o++) {
        const uint8_t *row = from + (size_t)o * bytes;
        if (rvi_cuda_has_floats(t->type))
            put_float_row(t, row, (size_t)o, scale, to);
        else
            put_row(t, row, (size_t)o, to);
    }
}
