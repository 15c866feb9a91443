/* stores.h - every kind of store, so that a test can loop over them; a folder for files. */
#ifndef TESTS_STORE_STORES_H
#define TESTS_STORE_STORES_H

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

enum { STORE_MEMORY, STORE_FILE, N_STORES };

/* A new, empty one. */
static inline rv_status store_new(rvi_store *s, int which, rv_error *err)
{
    static int n_files;
    char path[256], name[32];
    if (which == STORE_MEMORY) return rvi_store_memory(s, err);
    snprintf(name, sizeof name, "new-%d.db", n_files++);
    return file_store(s, in_folder(path, name), 0, err);
}

#endif
