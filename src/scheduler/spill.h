/* spill.h - pages of jobs that lost their room, on disk instead of computed again.
 *
 * A job's whole pages go to a file of its own, which nobody else sees: its name is removed at once
 * where the system allows it. When the job comes back they go into the tree of prefixes, where it
 * finds them. A checksum of each page stays in memory: what the disk gives back is what was
 * written. Whatever fails, the pages are computed again, with the same bits. */
#ifndef RVI_SCHEDULER_SPILL_H
#define RVI_SCHEDULER_SPILL_H

#include <stdio.h>

#include "base/fingerprint.h"
#include "base/mem.h"
#include "scheduler/prefix.h"

/* What one job has on disk; {0}: nothing. */
typedef struct rvi_spilled {
    FILE *f;
    rvi_buf name;                            /* to be removed */
    uint64_t (*sums)[RVI_FINGERPRINT_WORDS]; /* of the pages */
    int n_pages;
} rvi_spilled;

/* What spilling cost so far: moving averages of seconds a page, 0: not known. */
typedef struct rvi_spill_costs {
    double write, read;
} rvi_spill_costs;

/* The whole pages of the sequence. On failure nothing is kept; the disk may be full. */
rv_status rvi_spill_out(rvi_spilled *x, const char *dir, const rvi_seq *seq, rvi_spill_costs *costs,
                        rv_error *err) RVI_MUST_CHECK;
/* Puts those pages of the ids that the tree does not know into it; pages: scratch. How many tokens
 * were read: 0 where there is no room now, or where the file cannot be read or is not what was
 * written (failed). */
int rvi_spill_in(rvi_spilled *x, rvi_prefix *tree, const rvi_prefix_space *space, rvi_pages *pool,
                 const int32_t *ids, int32_t *pages, rvi_spill_costs *costs, bool *failed);
void rvi_spill_drop(rvi_spilled *x); /* accepts {0} */

#endif
