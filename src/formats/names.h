/* names.h - a hash table from names to indices, by which both file formats find tensors and keys.
 *
 * The names belong to the caller and must outlive the table. The names come from untrusted files: a
 * long run of colliding names is refused before it costs time. */
#ifndef RVI_FORMATS_NAMES_H
#define RVI_FORMATS_NAMES_H

#include <stdint.h>

#include "base/mem.h"

typedef struct rvi_name_slot {
    const char *name; /* NULL: free */
    uint32_t hash, index;
} rvi_name_slot;

typedef struct rvi_name_table { /* {0} is an empty table that finds nothing */
    rvi_name_slot *slots;
    size_t n_slots; /* a power of two, at least twice the names */
} rvi_name_table;

enum { RVI_NAMES_MAX = 1 << 24 };

typedef enum rvi_names_result {
    RVI_NAMES_ADDED,
    RVI_NAMES_REPEATED,
    RVI_NAMES_CROWDED
} rvi_names_result;

/* Makes room for n names (at most RVI_NAMES_MAX); the storage is the arena's. False: no memory. */
bool rvi_names_init(rvi_name_table *t, rvi_arena *arena, size_t n);
/* At most n calls. CROWDED: hundreds of earlier names have the same hash, which only happens on
 * purpose. */
rvi_names_result rvi_names_add(rvi_name_table *t, const char *name, uint32_t index);
/* True and *index, or false. */
bool rvi_names_find(const rvi_name_table *t, const char *name, uint32_t *index);

/* Whether len bytes can be a name: UTF-8 without NUL. */
bool rvi_name_is_valid(const char *s, size_t len);

#endif
