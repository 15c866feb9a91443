/* adapter_sets.h - sets of adapters that sessions hold.
 *
 * The same adapters are the same set for as long as the set lives: keys and values computed with it
 * are found again by its serial. A set lives while somebody holds it, and beyond that until one of
 * its adapters is retired; a retired adapter lives until no set names it. */
#ifndef RVI_LEARN_STATE_ADAPTER_SETS_H
#define RVI_LEARN_STATE_ADAPTER_SETS_H

#include "model/model.h"

enum { RVI_MAX_ADAPTERS = 64 }; /* of a set */

typedef struct rvi_made_set rvi_made_set;

typedef struct rvi_adapter_sets {
    const rvi_model *m;                /* borrowed */
    uint64_t (*new_serial)(void *ctx); /* of sets */
    void *serial_ctx;
    rvi_made_set *made;
    rvi_adapter **retired; /* that were replaced and that sets may still name */
    size_t n_retired, cap_retired;
} rvi_adapter_sets;

void rvi_adapter_sets_deinit(rvi_adapter_sets *s); /* whoever holds them */

/* The set of these adapters, held for the caller; n 0: NULL. */
rv_status rvi_adapter_sets_hold(rvi_adapter_sets *s, const rvi_adapter *const *adapters, int n,
                                rvi_made_set **out, rv_error *err) RVI_MUST_CHECK;
void rvi_adapter_sets_release(rvi_adapter_sets *s, rvi_made_set *set); /* accepts NULL */
const rvi_adapter_set *rvi_made_set_of(const rvi_made_set *s);         /* NULL for NULL */
rvi_made_set *rvi_made_set_retain(rvi_made_set *s);                    /* accepts NULL */

/* Room to retire n more, so that retiring cannot fail: before an adapter is put to use. */
rv_status rvi_adapter_sets_reserve(rvi_adapter_sets *s, size_t n, rv_error *err) RVI_MUST_CHECK;
/* No new set will name it; freed when the last session lets go of it. Accepts NULL. */
void rvi_adapter_sets_retire(rvi_adapter_sets *s, rvi_adapter *a);
void rvi_adapter_sets_sweep(rvi_adapter_sets *s); /* frees what was replaced and nobody holds */

#endif
