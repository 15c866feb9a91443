/* store.h - the store of a learner (rv_store of ruvllm.h) on one SQLite file.
 *
 * The file is in WAL mode, so PATH-wal and PATH-shm stand beside it while it is in use. Appends and
 * durable transactions are synchronised to the disk before they return. Any number of processes may
 * have the file open; they write in turns, and one that cannot get its turn within busy_ms gets
 * RV_E_STORAGE and has changed nothing.
 *
 * A file that is damaged (not a database, or its pages contradict each other) is never deleted or
 * written: opening renames it to PATH.damaged-1 (-2, ...), says so in an RV_E_STORAGE, and the next
 * opening begins with the records of its streams that can be read, from the first on. A database of
 * another program, or of a later version of this one, is refused and left where it is. */
#ifndef RVI_STORE_STORE_H
#define RVI_STORE_STORE_H

#include "base/error.h"

enum { RVI_STORE_BUSY_MS = 5000 };

/* The directory of path must exist. busy_ms 0: RVI_STORE_BUSY_MS. */
rv_status rvi_store_open(rv_store *out, const char *path, int busy_ms,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_store_shut(rv_store *s); /* accepts a zeroed one; an open transaction is rolled back */

#endif
