/* os.h - the few things asked of the operating system. POSIX calls stand in base/ and nowhere else.
 */
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
size_t rvi_os_peak_rss(void); /* bytes, 0 if unknown */
bool rvi_os_is_terminal(FILE *f);
bool rvi_os_is_readable(FILE *f); /* it was opened for reading */
/* Whether there is something to read, or its end, within so many seconds. Nothing of the stream may
 * have been read yet. */
bool rvi_os_has_input(FILE *f, int seconds);
/* Of a program, first of all: where standard input, output or error is closed, its number is taken,
 * so that no file opened later gets it. Reading from it or writing to it fails. */
void rvi_os_hold_streams(void);
/* Large, long-lived, on huge pages where the system gives them; rvi_free. NULL on failure. */
void *rvi_os_alloc_large(size_t size);
/* The pages of a mapped file that lie wholly in this range need not stay in memory: they are read
 * again when touched. Only for mapped files. */
void rvi_os_release_mapped(const void *data, size_t size);
int rvi_os_terminal_width(FILE *f); /* columns, 80 if unknown */

typedef enum rvi_os_kind { RVI_OS_NONE, RVI_OS_FILE, RVI_OS_DIR, RVI_OS_OTHER } rvi_os_kind;
bool rvi_os_same(const char *a, const char *b); /* two names of one file or directory */
bool rvi_os_is_device(const char *path);        /* or a pipe or socket; a link to one is not */
rvi_os_kind rvi_os_stat(const char *path, uint64_t *size); /* follows links; size may be NULL */

rv_status rvi_os_make_dirs(const char *path, rv_error *err) RVI_MUST_CHECK; /* like mkdir -p */
/* The same; those it makes are their owner's alone (0700). */
rv_status rvi_os_make_private_dirs(const char *path, rv_error *err) RVI_MUST_CHECK;
void rvi_os_make_private(const char *path); /* takes the rights of others away, where it may */
void rvi_os_touch_private(
    const char *path); /* makes an empty file, its owner's alone, if none is there */
/* Of a program: on, files made from now on are their owner's alone (0600, directories 0700); off,
 * they have the rights the user's umask gives, as at the start. */
void rvi_os_private_files(bool on);
void rvi_os_remove_tree(const char *path); /* best effort */
rv_status rvi_os_replace(const char *from, const char *to,
                         rv_error *err) RVI_MUST_CHECK; /* atomic; same file system */
/* Puts the directory `from` in the place of `to` and removes what was there, a directory too; at
 * every moment `to` is the one or the other (where the file system cannot exchange two names, it is
 * missing for a moment). */
rv_status rvi_os_replace_dir(const char *from, const char *to, rv_error *err) RVI_MUST_CHECK;
/* Holds the file (made if it is missing) for this caller alone, until unlocked or the process ends.
 * RV_E_STORAGE: another one has it. Where there are no other processes it is nothing. */
rv_status rvi_os_lock(const char *path, int *lock, rv_error *err) RVI_MUST_CHECK;
void rvi_os_unlock(int lock);
/* A new, empty file in the directory of path, its owner's alone, whose name goes to `name`; it is
 * to replace path. A link that somebody put in its place is not followed. */
rv_status rvi_os_create_beside(const char *path, rvi_buf *name, FILE **out,
                               rv_error *err) RVI_MUST_CHECK;
rv_status rvi_os_write(FILE *f, const void *data, size_t len, const char *path,
                       rv_error *err) RVI_MUST_CHECK;
rv_status rvi_os_sync(FILE *f, const char *path,
                      rv_error *err) RVI_MUST_CHECK; /* flush to disk; reports a full one */
/* After this a file that was moved into the directory is there even if the power fails. */
rv_status rvi_os_sync_dir(const char *path, rv_error *err) RVI_MUST_CHECK;
/* The names in the directory that holds path, to the disk: what was moved there survives a power
 * cut from here on. */
rv_status rvi_os_sync_parent(const char *path, rv_error *err) RVI_MUST_CHECK;

/* Calls each(ctx, name) for every entry but . and .., in alphabetical order; stops at the first
 * non-zero answer. */
rv_status rvi_os_list(const char *dir, int (*each)(void *ctx, const char *name), void *ctx,
                      rv_error *err) RVI_MUST_CHECK;

/* What WASI has not. */
bool rvi_os_home(rvi_buf *out); /* appends this user's home directory; false: there is none */
rv_status rvi_os_temp_dir(rvi_buf *out, const char *parent,
                          rv_error *err) RVI_MUST_CHECK; /* a new one in parent */
/* Runs argv[0] (searched in PATH, no shell) in dir (NULL: the current directory), its output going
 * to our standard error, and waits. *exit_code: 0..255, or 128 + signal. */
rv_status rvi_os_run(const char *const *argv, const char *dir, int *exit_code,
                     rv_error *err) RVI_MUST_CHECK;

#endif
