/* program.h - what the small programs here share: errors that end them, and CPU time. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"

static rv_error err;

/* Of a call that was given &err. */
static inline void must(rv_status st)
{
    if (!st) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* Of all threads of the process. */
static inline double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
