/* table.c - which instruction sets this machine has, and filling a table with their kernels. */
#include <stdatomic.h>
#include <string.h>

#include "base/compat.h"
#include "kernels/features.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

static const struct {
    const char *name;
    bool (*is_present)(void);
    void (*fill)(rvi_kernels *k);
} rows[] = {
#define X(name, is_present) {#name, is_present, rvi_kernels_fill_##name},
    RVI_ISA_LIST(X)
#undef X
};

bool rvi_kernels_init(rvi_kernels *k, const char *isa)
{
    size_t end = RVI_COUNT(rows);
    bool known = true;
    if (isa) {
        size_t i = 0;
        while (i < RVI_COUNT(rows) && strcmp(rows[i].name, isa) != 0) i++;
        known = i < RVI_COUNT(rows) && rows[i].is_present();
        end = known ? i + 1 : 1;
    }
    for (size_t i = 0; i < end; i++)
        if (rows[i].is_present()) {
            rows[i].fill(k);
            k->isa = rows[i].name;
        }
    k->why = isa ? "asked for" : "the highest of this CPU";
    return known;
}

/* The machine does not change, so the first caller makes the list and all others share it. */
const char *const *rvi_kernels_available(void)
{
    enum { EMPTY, FILLING, FILLED };
    static const char *names[RVI_COUNT(rows) + 1]; /* NULL at the end */
    static atomic_int state = EMPTY;
    int expected = EMPTY;
    if (atomic_compare_exchange_strong(&state, &expected, FILLING)) {
        size_t n = 0;
        for (size_t i = 0; i < RVI_COUNT(rows); i++)
            if (rows[i].is_present()) names[n++] = rows[i].name;
        atomic_store(&state, FILLED);
    }
    while (atomic_load(&state) != FILLED) {
    }
    return names;
}
