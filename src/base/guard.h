/* guard.h - surviving mapped files that are truncated while in use.
 *
 * Reading a page of a mapped file that is no longer there (the file was cut short, the disk fails)
 * raises SIGBUS, which ends the process. A guarded range instead reads as zeros from that page on
 * and is marked as lost. The code that used the bytes calls rvi_guard_is_lost and returns a status.
 *
 * This is the only signal handler of the library. It is installed for the whole process when a
 * range is guarded, and passes faults outside guarded ranges to the previous handler. A program
 * that installs its own SIGBUS handler afterwards disables the guard until the next file is opened,
 * unless its handler passes faults on. */
#ifndef RVI_BASE_GUARD_H
#define RVI_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Returns a number for the functions below, or 0 if no more ranges can be guarded. */
int rvi_guard_add(const void *mapping, size_t len);
void rvi_guard_remove(int guard); /* before the range is unmapped; accepts 0 */
bool rvi_guard_is_lost(int guard);
/* Calls each(ctx, from, len) for every range that is guarded now. */
void rvi_guard_each(void (*each)(void *ctx, const void *from, size_t len), void *ctx);

#endif
