/* ruvllm_store.h - keep what a learner learned in one SQLite file, or in a PostgreSQL database that
 * several machines share: libruvllm-store.
 *
 *   rv_store store;
 *   rv_store_open(&store, "learned.db", NULL, &err);
 *   rv_learner_options o = {.size = sizeof o, .store = &store, .dir = "learned"};
 *   ...
 *   rv_learner_free(&learner);
 *   rv_store_close(&store);
 *
 * Link -lruvllm-store -lsqlite3 (pkg-config ruvllm-store), and -lpq where it was built with it.
 *
 * A file is in WAL mode: PATH-wal, PATH-shm and PATH-open.lock lie beside it while it is open. Any
 * number of processes may have it open; they write in turns. All of these files are readable by
 * their owner alone.
 *
 * postgres://... or postgresql://... (libpq's connection URIs) names a database; the tables are
 * made in it (ruvllm_stream, ruvllm_item, ruvllm_layout). What was committed is as durable as the
 * server's commits are. Where the connection is lost, calls fail at once with RV_E_STORAGE until a
 * thread of the store has made it again. */
#ifndef RUVLLM_STORE_H
#define RUVLLM_STORE_H

#include "ruvllm_learn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rv_store_options {
    size_t size;
    int busy_ms; /* how long a write waits for another process; 0: 10,000. Then RV_E_STORAGE, and
                    nothing was written */
    /* Of a file: learners of several processes on this machine learn in it at the same time, each
     * with a dir of its own (rv_learner_options). PATH-appended and PATH-*.lock lie beside it then.
     * A database is always shared. */
    int shared;
    /* Of a database: */
    const char *space;      /* which part of it, 1 to 256 bytes: each has streams and tables of its
                               own; NULL: "default" */
    const rv_store *beside; /* uses the connection of this one, which is closed after it; its path
                               must be the same. NULL: one of its own */
} rv_store_options;

/* Opens or creates the file; its directory must exist. On failure *out is zeroed. RV_E_UNSUPPORTED:
 * a database, where the library was built without libpq. A damaged file is
 * never deleted or written: once nobody has it open (PATH-open.lock tells) it is renamed to
 * PATH.damaged-1 (-2, ...), the error (RV_E_STORAGE) says so, and the next call begins with the
 * records of its streams that can be read, from the first on. Streams are checked whenever a file
 * is opened; records of tables are when they are read, and all of it is by the next call after one
 * could not be. A database of another program, or of a later version of this one, is refused and
 * left alone. */
RV_API rv_status rv_store_open(rv_store *out, const char *path, const rv_store_options *o,
                               rv_error *err);
/* After the learners that use it. Accepts a zeroed one. */
RV_API void rv_store_close(rv_store *store);

#ifdef __cplusplus
}
#endif
#endif
