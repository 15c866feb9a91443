#include "grammar/bag.h"

#include <string.h>

#include "base/mem.h"

void rvi_bag_deinit(rvi_bag *b)
{
    rvi_free(b->words);
    rvi_free(b->rows);
    rvi_free(b->table);
    *b = (rvi_bag){0};
}

static uint32_t hash(const uint32_t *words, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = (h ^ words[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return (uint32_t)(h ^ h >> 32);
}

const uint32_t *rvi_bag_get(const rvi_bag *b, uint32_t row, size_t *n)
{
    size_t at = b->rows[row - 1];
    if (n) *n = b->rows[row] - at;
    return b->words + at;
}

static bool grow_table(rvi_bag *b)
{
    uint32_t mask = b->table_mask ? b->table_mask * 2 + 1 : 63;
    uint32_t *table = rvi_zalloc_array((size_t)mask + 1, sizeof *table);
    if (!table) return false;
    rvi_free(b->table);
    b->table = table;
    b->table_mask = mask;
    for (uint32_t i = 1; i <= b->n_rows; i++) {
        size_t n;
        const uint32_t *words = rvi_bag_get(b, i, &n);
        uint32_t at = hash(words, n) & mask;
        while (table[at]) at = (at + 1) & mask;
        table[at] = i;
    }
    return true;
}

static bool grow(rvi_bag *b, size_t n)
{
    if (b->n_rows + 1 >= b->cap_rows) {
        uint32_t cap = b->cap_rows ? b->cap_rows * 2 : 32;
        size_t *rows = rvi_realloc_array(b->rows, cap, sizeof *rows);
        if (!rows) return false;
        if (!b->cap_rows) rows[0] = 0;
        b->rows = rows;
        b->cap_rows = cap;
    }
    if (b->n_words + n > b->cap_words) {
        size_t cap = RVI_MAX(b->cap_words * 2, b->n_words + n + 64);
        uint32_t *words = rvi_realloc_array(b->words, cap, sizeof *words);
        if (!words) return false;
        b->words = words;
        b->cap_words = cap;
    }
    return true;
}

uint32_t rvi_bag_put(rvi_bag *b, const uint32_t *words, size_t n, uint32_t most)
{
    if ((b->n_rows + 1) * 2 > b->table_mask && !grow_table(b)) return 0;
    uint32_t at = hash(words, n) & b->table_mask;
    for (; b->table[at]; at = (at + 1) & b->table_mask) {
        size_t len;
        const uint32_t *row = rvi_bag_get(b, b->table[at], &len);
        if (len == n && !memcmp(row, words, n * sizeof *words)) return b->table[at];
    }
    if (b->n_rows >= most || !grow(b, n)) return 0;
    if (n) memcpy(b->words + b->n_words, words, n * sizeof *words);
    b->n_words += n;
    b->rows[++b->n_rows] = b->n_words;
    return b->table[at] = b->n_rows;
}
