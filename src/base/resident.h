/* resident.h - what of this process is in memory, as the system sees it. */
#ifndef RVI_BASE_RESIDENT_H
#define RVI_BASE_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rvi_resident {
    size_t all;          /* bytes */
    size_t files;        /* of these: pages of files, */
    size_t models;       /* and of the files that the library has mapped among them */
    size_t large;        /* of rvi_mem_each_large's blocks, */
    size_t large_unused; /* and the rest of these, which the system has not given */
} rvi_resident;

/* After something was freed; before: rvi_mem_in_use() before that, or SIZE_MAX. Where it was much,
 * gives back to the system what malloc would keep for the next, for nobody would count it. */
void rvi_resident_trim(size_t before);
/* False: this system does not say. Takes about a millisecond a gigabyte of mapped files. */
bool rvi_resident_read(rvi_resident *out);

#endif
