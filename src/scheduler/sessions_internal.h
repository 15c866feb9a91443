/* sessions_internal.h - what sessions.c (which sessions there are, who has them, reading them) and
 * kept_save.c (writing them) share. */
#ifndef RVI_SCHEDULER_SESSIONS_INTERNAL_H
#define RVI_SCHEDULER_SESSIONS_INTERNAL_H

#include "scheduler/sessions.h"

#include "base/os.h"
#include "base/thread.h"
#include "scheduler/kept_head.h"

struct rvi_kept_entry {
    rvi_kept_entry *next;
    char *tenant, *name, *path;
    uint64_t began, saved, bytes;  /* of both files; bytes 0: there is none yet */
    double begun_here, saved_here; /* seconds of no clock that is set; 0: by another process */
    uint64_t number;               /* of the file of pages */
    /* That file when this process wrote it or hashed its pages: need not hash them again. Of who
     * has claimed the session. */
    rvi_os_version known;
    bool claimed;
};

struct rvi_sessions {
    rvi_sessions_options o;
    const rvi_engine *e;
    char *dir;
    rvi_lock *lock; /* of entries and bytes */
    rvi_kept_entry *entries;
    uint64_t bytes;
    int process_lock; /* -1: none */
};

void rvi_sessions_drop_old(rvi_sessions *s); /* under the lock */
uint64_t rvi_sessions_clock(void);
size_t rvi_kept_place(const rvi_kept_session *k, size_t page);
void rvi_kept_remove_pages(const char *path, uint64_t number); /* path: of the head */

#endif
