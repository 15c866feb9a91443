/* os.h - calls to the operating system. Only base/ uses POSIX. */
#ifndef RVI_BASE_OS_H
#define RVI_BASE_OS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"

double rvi_os_seconds(void); /* monotonic */
double rvi_os_thread_seconds(
    void);                  /* of CPU time of this thread; monotonic where there is no such clock */
int rvi_os_cpu_count(void); /* CPUs this process may use, at least 1 */
uint64_t rvi_os_random(void); /* a seed nobody can guess */
long rvi_os_process(void);    /* the id of this process */
size_t rvi_os_peak_rss(void); /* bytes, 0 if unknown */
double rvi_os_load(void);     /* the system's average of the last minute; -1: unknown */
bool rvi_os_is_terminal(FILE *f);
bool rvi_os_is_readable(FILE *f); /* it was opened for reading */
/* Waits up to `seconds` for input or the end of the stream; false if neither came. The stream must
 * not have been read from yet. */
bool rvi_os_has_input(FILE *f, int seconds);
/* For the start of a program: if standard input, output or error is closed, occupies its
 * descriptor, so that no file opened later gets it. Reading from it or writing to it fails. */
void rvi_os_hold_streams(void);
/* For large, long-lived blocks: uses huge pages where the system provides them. Free with rvi_free.
 * NULL on failure. */
void *rvi_os_alloc_large(size_t size);
/* Lets the system drop the pages of a mapped file that lie wholly in this range; they are read
 * again when touched. Only for mapped files. */
void rvi_os_release_mapped(const void *data, size_t size);
int rvi_os_terminal_width(FILE *f); /* columns, 80 if unknown */

typedef enum rvi_os_kind { RVI_OS_NONE, RVI_OS_FILE, RVI_OS_DIR, RVI_OS_OTHER } rvi_os_kind;
bool rvi_os_same(const char *a, const char *b); /* two names of one file or directory */
bool rvi_os_is_device(const char *path);        /* or a pipe or socket; a link to one is not */
bool rvi_os_is_socket(const char *path);        /* a link to one is not */
void rvi_os_allow_files(unsigned n);            /* open at the same time, if that may be raised */
rvi_os_kind rvi_os_stat(const char *path, uint64_t *size); /* follows links; size may be NULL */
/* Appends the absolute path, without links and dots. False: there is nothing, or no memory. */
bool rvi_os_resolve(const char *path, rvi_buf *out);
/* Which file a path leads to and when it was written last: equal for the same unchanged file. All 0
 * if there is none. */
typedef struct rvi_os_version {
    uint64_t device, inode, size, seconds, nanoseconds;
} rvi_os_version;
rvi_os_version rvi_os_version_of(const char *path);

rv_status rvi_os_make_dirs(const char *path, rv_error *err) RVI_MUST_CHECK; /* like mkdir -p */
/* The same; directories it makes are accessible to their owner only (0700). */
rv_status rvi_os_make_private_dirs(const char *path, rv_error *err) RVI_MUST_CHECK;
void rvi_os_make_private(const char *path); /* removes the access of other users, if allowed to */
/* Makes an empty file that only its owner may read, if there is none. */
void rvi_os_touch_private(const char *path);
/* For programs. on: files made from now on are accessible to their owner only (0600, directories
 * 0700). off: the user's umask decides, as at the start. */
void rvi_os_private_files(bool on);
void rvi_os_remove_tree(const char *path); /* best effort */
rv_status rvi_os_replace(const char *from, const char *to,
                         rv_error *err) RVI_MUST_CHECK; /* atomic; same file system */
/* Puts the directory `from` in the place of `to` and removes what was there, a directory too; `to`
 * is always either the old or the new directory (if the file system cannot exchange two names, it
 * is missing for a moment). */
rv_status rvi_os_replace_dir(const char *from, const char *to, rv_error *err) RVI_MUST_CHECK;
/* Locks the file (created if missing, for its owner alone) until it is unlocked or the process
 * ends. RV_E_STORAGE: another process holds the lock. Does nothing on systems without other
 * processes. */
rv_status rvi_os_lock(const char *path, int *lock, rv_error *err) RVI_MUST_CHECK;
/* The same together with others who lock it so; RV_E_STORAGE: one holds it alone. */
rv_status rvi_os_lock_shared(const char *path, int *lock, rv_error *err) RVI_MUST_CHECK;
void rvi_os_unlock(int lock);
/* Creates an empty file in the directory of path, accessible to its owner only, and appends its
 * name to `name`. The caller fills it and renames it to path. Existing links are not followed. */
rv_status rvi_os_create_beside(const char *path, rvi_buf *name, FILE **out,
                               rv_error *err) RVI_MUST_CHECK;
rv_status rvi_os_write(FILE *f, const void *data, size_t len, const char *path,
                       rv_error *err) RVI_MUST_CHECK;
rv_status rvi_os_seek(FILE *f, uint64_t at, const char *path, rv_error *err) RVI_MUST_CHECK;
void rvi_os_cut(const char *path, uint64_t len); /* what a file has behind it; best effort */
rv_status rvi_os_sync(FILE *f, const char *path,
                      rv_error *err) RVI_MUST_CHECK; /* flush to disk; reports a full one */
/* After this call, a file that was moved into the directory survives a power failure. */
rv_status rvi_os_sync_dir(const char *path, rv_error *err) RVI_MUST_CHECK;
/* The same for the directory that holds path. */
rv_status rvi_os_sync_parent(const char *path, rv_error *err) RVI_MUST_CHECK;

/* Calls each(ctx, name) for every entry but . and .., in alphabetical order; stops at the first
 * non-zero answer. */
rv_status rvi_os_list(const char *dir, int (*each)(void *ctx, const char *name), void *ctx,
                      rv_error *err) RVI_MUST_CHECK;

/* Not available under WASI. */
rv_status rvi_os_temp_dir(rvi_buf *out, const char *parent,
                          rv_error *err) RVI_MUST_CHECK; /* a new one in parent */
/* Runs argv[0] (searched in PATH, no shell) in dir (NULL: the current directory) with its output
 * sent to our standard error, and waits for it. *exit_code: 0..255, or 128 + signal. */
rv_status rvi_os_run(const char *const *argv, const char *dir, int *exit_code,
                     rv_error *err) RVI_MUST_CHECK;
/* The same; calls tick(ctx) some ten times a second until the program ends. */
rv_status rvi_os_run_watched(const char *const *argv, const char *dir, void (*tick)(void *ctx),
                             void *ctx, int *exit_code, rv_error *err) RVI_MUST_CHECK;

#endif
