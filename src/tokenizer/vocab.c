/* vocab.c - the two hash tables of a vocabulary: text to id, and pair of ids to merge. Open
 * addressing, at most half full. The hash is seeded with an address, so that a file cannot be made
 * to collide. */
#include <string.h>

#include "tokenizer/internal.h"

typedef struct rvi_text_slot {
    const char *text; /* NULL: empty */
    uint32_t len;
    int32_t id;
} slot;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

static uint64_t hash_text(uint64_t seed, const char *text, size_t len)
{
    uint64_t h = seed ^ len, part;
    for (; len >= 8; text += 8, len -= 8) {
        memcpy(&part, text, 8);
        h = mix(h ^ part);
    }
    part = 0;
    if (len) memcpy(&part, text, len);
    return mix(h ^ part);
}

/* Slots for n entries: a power of two, at least 2 n. 0: too many. */
static size_t table_size(size_t n)
{
    size_t size = 16;
    if (n > SIZE_MAX / 8) return 0;
    while (size < n * 2) size *= 2;
    return size;
}

rv_status rvi_text_map_init(rvi_text_map *m, size_t n_texts, rv_error *err)
{
    size_t size = table_size(n_texts);
    m->slots = size ? rvi_zalloc_array(size, sizeof *m->slots) : NULL;
    if (!m->slots) return rvi_nomem(err, "vocabulary");
    m->mask = size - 1;
    m->seed = mix((uint64_t)(uintptr_t)m->slots);
    return RV_OK;
}

void rvi_text_map_deinit(rvi_text_map *m)
{
    rvi_free(m->slots);
    *m = (rvi_text_map){0};
}

static slot *find_slot(const rvi_text_map *m, const char *text, size_t len)
{
    for (size_t i = (size_t)hash_text(m->seed, text, len) & m->mask;; i = (i + 1) & m->mask) {
        slot *s = &m->slots[i];
        if (!s->text || (s->len == len && !memcmp(s->text, text, len))) return s;
    }
}

bool rvi_text_map_put(rvi_text_map *m, const char *text, size_t len, int32_t id)
{
    slot *s = find_slot(m, text, len);
    if (s->text) return false;
    *s = (slot){.text = text, .len = (uint32_t)len, .id = id};
    m->n++;
    return true;
}

int32_t rvi_text_map_find(const rvi_text_map *m, const char *text, size_t len)
{
    if (!m->slots || len > UINT32_MAX) return -1;
    const slot *s = find_slot(m, text, len);
    return s->text ? s->id : -1;
}

/* ---- merges ---- */

rv_status rvi_merge_map_init(rvi_merge_map *m, size_t n_merges, rv_error *err)
{
    size_t size = table_size(n_merges);
    m->slots = size ? rvi_alloc_array(size, sizeof *m->slots) : NULL;
    if (!m->slots) return rvi_nomem(err, "merges");
    memset(m->slots, 0xFF, size * sizeof *m->slots); /* left = -1 */
    m->mask = size - 1;
    m->seed = mix((uint64_t)(uintptr_t)m->slots);
    return RV_OK;
}

void rvi_merge_map_deinit(rvi_merge_map *m)
{
    rvi_free(m->slots);
    *m = (rvi_merge_map){0};
}

static rvi_merge *merge_slot(const rvi_merge_map *m, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = (size_t)mix(m->seed ^ key) & m->mask;; i = (i + 1) & m->mask) {
        rvi_merge *s = &m->slots[i];
        if (s->left < 0 || (s->left == left && s->right == right)) return s;
    }
}

void rvi_merge_map_put(rvi_merge_map *m, const rvi_merge *merge)
{
    *merge_slot(m, merge->left, merge->right) = *merge;
}

const rvi_merge *rvi_merge_map_find(const rvi_merge_map *m, int32_t left, int32_t right)
{
    const rvi_merge *s = merge_slot(m, left, right);
    return s->left < 0 ? NULL : s;
}
