/* table.c - which ISA rows this machine can run, and filling a table from them. */
#include <string.h>

#include "kernels/features.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

/* The rows above the reference that exist in this build, from slow to fast. Each rests on those before it that the
 * machine has. */
static const struct {
    const char *name;
    bool (*present)(void); /* NULL: always */
    void (*fill)(rvi_kernels *k);
} rows[] = {
#if defined(__x86_64__)
    {"avx2", rvi_has_avx2, rvi_kernels_fill_avx2},
    {"avxvnni", rvi_has_avxvnni, rvi_kernels_fill_avxvnni},
    {"avx512", rvi_has_avx512_vnni, rvi_kernels_fill_avx512},
    {"amx", rvi_has_amx, rvi_kernels_fill_amx},
#elif defined(__aarch64__)
    {"neon", NULL, rvi_kernels_fill_neon}, /* part of the base architecture */
    {"dotprod", rvi_has_dotprod, rvi_kernels_fill_dotprod},
#endif
    {NULL, NULL, NULL},
};

/* Every list of rows that a machine of this family can have. */
enum { MAX_ROWS = 6 };
static const char *const lists[][MAX_ROWS] = {
    {"ref", NULL},
#if defined(__x86_64__)
    {"ref", "avx2", NULL},
    {"ref", "avx2", "avxvnni", NULL},
    {"ref", "avx2", "avx512", NULL},
    {"ref", "avx2", "avxvnni", "avx512", NULL},
    {"ref", "avx2", "avxvnni", "avx512", "amx", NULL},
#elif defined(__aarch64__)
    {"ref", "neon", NULL},
    {"ref", "neon", "dotprod", NULL},
#endif
};

static bool is_present(size_t i)
{
    return rows[i].present == NULL || rows[i].present();
}

bool rvi_kernels_init(rvi_kernels *k, const char *isa)
{
    rvi_kernels_fill_ref(k);
    if (isa != NULL && strcmp(isa, "ref") == 0) return true;

    size_t end = 0;
    if (isa == NULL) {
        while (rows[end].name != NULL) end++;
    } else {
        while (rows[end].name != NULL && strcmp(rows[end].name, isa) != 0) end++;
        if (rows[end].name == NULL || !is_present(end)) return false;
        end++;
    }
    for (size_t i = 0; i < end; i++)
        if (is_present(i)) {
            rows[i].fill(k);
            k->isa = rows[i].name;
        }
    return true;
}

const char *const *rvi_kernels_available(void)
{
    bool present[MAX_ROWS] = {false};
    for (size_t i = 0; rows[i].name != NULL; i++) present[i] = is_present(i);
    const char *const *best = lists[0];
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        bool all = true;
        for (const char *const *name = lists[l] + 1; *name != NULL; name++)
            for (size_t i = 0; rows[i].name != NULL; i++)
                if (strcmp(rows[i].name, *name) == 0 && !present[i]) all = false;
        if (all) best = lists[l]; /* later lists are longer */
    }
    return best;
}
