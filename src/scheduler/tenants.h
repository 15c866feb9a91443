/* tenants.h - whose turn it is: deficit round robin between tenants, aged priorities within one.
 *
 * The currency is rows. A tenant with work has a credit; a prompt is paid when it is admitted, each
 * token when it is computed, and when nobody with work has credit left, a round gives everyone a
 * quantum. So over time tenants that want more than there is get the same number of rows. What a
 * tenant used while nobody else waited, or only for what it takes to begin, is not held against it
 * for long. A tenant without work has neither credit nor debt, and is forgotten.
 *
 * Within a tenant, requests wait in the order of their rank: the time of arrival, less what their
 * priority is worth. Two that wait keep their order as they age. One thread uses it. */
#ifndef RVI_SCHEDULER_TENANTS_H
#define RVI_SCHEDULER_TENANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct rvi_tenant rvi_tenant;

/* What waits; part of the struct that it is the first member of. */
typedef struct rvi_waiting {
    struct rvi_waiting *next;
    double rank;
} rvi_waiting;

struct rvi_tenant {
    rvi_tenant *next; /* in the ring of the round */
    char *name;
    int64_t credit;
    rvi_waiting *first;
    size_t n_live; /* that wait or run; 0: it is freed */
    int n_reading; /* of those that run, how many want more rows of their prompts in this step */
};

typedef struct rvi_tenants {
    rvi_tenant *turn;          /* in a ring: whose turn it is; NULL: there are none */
    const rvi_waiting *begins; /* has its turn, and waits for its own beginning alone; NULL: none */
    int quantum;
} rvi_tenants;

/* The tenant of this name, made if there is none, with one more live request. */
rv_status rvi_tenants_join(rvi_tenants *t, const char *name, rvi_tenant **out,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_tenants_leave(rvi_tenants *t, rvi_tenant *x); /* one less */

void rvi_tenant_wait(rvi_tenant *x, rvi_waiting *w); /* by its rank */
void rvi_tenant_unwait(rvi_tenant *x, rvi_waiting *w);

/* The tenant that wants something and is next; NULL: none wants. The one whose turn it is goes on
 * until its credit is used up. */
rvi_tenant *rvi_tenants_next(rvi_tenants *t, bool (*wants)(void *ctx, const rvi_tenant *x),
                             void *ctx);
void rvi_tenants_pay(const rvi_tenants *t, rvi_tenant *x, int n_rows);

#endif
