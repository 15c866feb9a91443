#include "formats/names.h"

#include <string.h>

#include "base/utf8.h"

enum { LONGEST_RUN = 256 }; /* at half load, runs of a fair hash stay far below */

/* FNV-1a over the bytes, then mixed so that the low bits depend on all of them. */
static uint32_t hash_of(const char *name)
{
    uint64_t h = 0xCBF29CE484222325;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001B3;
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD;
    return (uint32_t)(h >> 32);
}

bool rvi_names_init(rvi_name_table *t, rvi_arena *arena, size_t n)
{
    *t = (rvi_name_table){0};
    if (!n) return true;
    size_t n_slots = 4;
    while (n_slots < 2 * n) n_slots *= 2;
    t->slots = rvi_arena_alloc(arena, n_slots, sizeof *t->slots);
    if (t->slots) t->n_slots = n_slots;
    return t->slots != NULL;
}

/* The slot that holds the name, or the free one where it belongs, or NULL after a run that is too
 * long. */
static rvi_name_slot *probe(const rvi_name_table *t, const char *name, uint32_t hash)
{
    for (size_t i = 0; i < LONGEST_RUN && i < t->n_slots; i++) {
        rvi_name_slot *s = &t->slots[(hash + i) & (t->n_slots - 1)];
        if (!s->name || (s->hash == hash && !strcmp(s->name, name))) return s;
    }
    return NULL;
}

rvi_names_result rvi_names_add(rvi_name_table *t, const char *name, uint32_t index)
{
    uint32_t hash = hash_of(name);
    rvi_name_slot *s = probe(t, name, hash);
    if (!s) return RVI_NAMES_CROWDED;
    if (s->name) return RVI_NAMES_REPEATED;
    *s = (rvi_name_slot){.name = name, .hash = hash, .index = index};
    return RVI_NAMES_ADDED;
}

bool rvi_names_find(const rvi_name_table *t, const char *name, uint32_t *index)
{
    const rvi_name_slot *s = probe(t, name, hash_of(name));
    if (!s || !s->name) return false;
    *index = s->index;
    return true;
}

bool rvi_name_is_valid(const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        bool valid;
        i += rvi_utf8_decode(s + i, len - i, &cp, &valid);
        if (!valid || !cp) return false;
    }
    return true;
}
