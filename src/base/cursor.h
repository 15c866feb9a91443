/* cursor.h - reading little-endian values from untrusted bytes. Every read is bounds-checked: the
 * first one that does not fit sets `failed` and returns zero, and so do all later ones. */
#ifndef RVI_BASE_CURSOR_H
#define RVI_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct rvi_cursor {
    const uint8_t *data;
    size_t len, pos;
    bool failed;
} rvi_cursor;

static inline bool rvi_cursor_has(rvi_cursor *c, uint64_t n)
{
    if (c->failed || n > c->len - c->pos) c->failed = true;
    return !c->failed;
}

/* Returns the next n bytes and moves on; NULL when there are fewer. */
static inline const uint8_t *rvi_cursor_take(rvi_cursor *c, uint64_t n)
{
    if (!rvi_cursor_has(c, n)) return NULL;
    const uint8_t *p = c->data + c->pos;
    c->pos += (size_t)n;
    return p;
}

static inline uint64_t rvi_cursor_uint(rvi_cursor *c, unsigned n_bytes)
{
    const uint8_t *p = rvi_cursor_take(c, n_bytes);
    uint64_t v = 0;
    for (unsigned i = 0; p && i < n_bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint8_t rvi_cursor_u8(rvi_cursor *c)
{
    return (uint8_t)rvi_cursor_uint(c, 1);
}
static inline uint16_t rvi_cursor_u16(rvi_cursor *c)
{
    return (uint16_t)rvi_cursor_uint(c, 2);
}
static inline uint32_t rvi_cursor_u32(rvi_cursor *c)
{
    return (uint32_t)rvi_cursor_uint(c, 4);
}
static inline uint64_t rvi_cursor_u64(rvi_cursor *c)
{
    return rvi_cursor_uint(c, 8);
}

static inline float rvi_cursor_f32(rvi_cursor *c)
{
    uint32_t u = rvi_cursor_u32(c);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline double rvi_cursor_f64(rvi_cursor *c)
{
    uint64_t u = rvi_cursor_u64(c);
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
