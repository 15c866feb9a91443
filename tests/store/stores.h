/* stores.h - every kind of store, so that a test can loop over them; a folder for files. */
#ifndef TESTS_STORE_STORES_H
#define TESTS_STORE_STORES_H

#include <stdlib.h>

#include "base/os.h"
#include "learn/journal/store.h"
#include "store/file_store.h"

static rvi_buf folder;

/* In memory where there is such a file system: sweeps synchronise thousands of times. */
static inline int folder_make(void **state)
{
    (void)state;
    if (!rvi_os_temp_dir(&folder, "/dev/shm", NULL)) return 0;
    folder.len = 0;
    return rvi_os_temp_dir(&folder, "/tmp", NULL) ? -1 : 0;
}

static inline int folder_make_on_disk(void **state)
{
    (void)state;
    return rvi_os_temp_dir(&folder, "/tmp", NULL) ? -1 : 0;
}

static inline int folder_remove(void **state)
{
    (void)state;
    rvi_os_remove_tree(folder.data);
    rvi_buf_deinit(&folder);
    return 0;
}

static inline const char *in_folder(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder.data, name);
    return path;
}

/* The last one only where RUVLLM_TEST_POSTGRES names a database. */
enum { STORE_MEMORY, STORE_FILE, STORE_DATABASE };
#define N_STORES (getenv("RUVLLM_TEST_POSTGRES") ? STORE_DATABASE + 1 : STORE_DATABASE)

static inline rv_status database_store(rvi_store *out, const char *space, int busy_ms,
                                       rv_error *err)
{
    *out = (rvi_store){0};
    rv_store_options o = {.size = sizeof o, .busy_ms = busy_ms, .space = space};
    rv_status st = rv_store_open(&out->by, getenv("RUVLLM_TEST_POSTGRES"), &o, err);
    if (!st) out->close = file_store_close;
    return st;
}

/* One that others may open under the same name; not in memory. */
static inline rv_status store_named(rvi_store *s, int which, const char *name, int busy_ms,
                                    rv_error *err)
{
    char text[256];
    if (which == STORE_FILE) return file_store(s, in_folder(text, name), busy_ms, err);
    snprintf(text, sizeof text, "%s/%s", folder.data, name); /* another in every run */
    return database_store(s, text, busy_ms, err);
}

/* A new, empty one. */
static inline rv_status store_new(rvi_store *s, int which, rv_error *err)
{
    static int n_files;
    char path[256], name[32];
    if (which == STORE_MEMORY) return rvi_store_memory(s, err);
    if (which == STORE_DATABASE) {
        snprintf(name, sizeof name, "%ld-%d", rvi_os_process(), n_files++);
        return database_store(s, name, 0, err);
    }
    snprintf(name, sizeof name, "new-%d.db", n_files++);
    return file_store(s, in_folder(path, name), 0, err);
}

#endif
