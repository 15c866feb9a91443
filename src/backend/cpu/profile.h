/* profile.h - the time, bytes and operations of each kind of call of the CPU backend. */
#ifndef RVI_BACKEND_CPU_PROFILE_H
#define RVI_BACKEND_CPU_PROFILE_H

#include "backend/backend.h"

typedef struct rvi_profile_row {
    char name[80];
    uint64_t calls;
    double seconds;
    double bytes;      /* of weights and of the KV cache, each read once a call; 0: little */
    double operations; /* multiplications and additions of products and attention; 0: little */
} rvi_profile_row;

/* Counts from now on; a profile that was on begins anew. */
rv_status rvi_profile_begin(rvi_backend *be, rv_error *err) RVI_MUST_CHECK;
/* What was counted, in order of first call; valid until the next begin or end. */
int rvi_profile_rows(const rvi_backend *be, const rvi_profile_row **rows);
void rvi_profile_end(rvi_backend *be); /* also where none is on */

#endif
