/* guard.h - mapped files that shrink under us.
 *
 * Reading a page of a mapped file that is no longer there (the file was cut short, the disk fails)
 * raises SIGBUS, which ends the process. A guarded range reads as zeros from that page on instead,
 * and is marked as lost: whoever used what it read asks, and returns a status.
 *
 * The one handler of a signal in the library: it is put in place when a range is guarded, for the
 * whole process, and hands faults outside of guarded ranges to the handler that was there before. A
 * program that installs its own afterwards loses the guard until the next file is opened, unless it
 * hands faults on too. */
#ifndef RVI_BASE_GUARD_H
#define RVI_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* A number for the two below; 0: no more can be guarded. */
int rvi_guard_add(const void *mapping, size_t len);
void rvi_guard_remove(int guard); /* before the range is unmapped; accepts 0 */
bool rvi_guard_is_lost(int guard);

#endif
