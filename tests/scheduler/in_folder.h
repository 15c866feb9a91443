/* in_folder.h - a model, and a folder for the sessions of its services, for a whole program. */
#ifndef TESTS_SCHEDULER_IN_FOLDER_H
#define TESTS_SCHEDULER_IN_FOLDER_H

#include <stdlib.h>
#include <unistd.h>

#include "base/os.h"
#include "scheduler/served.h"

static opened o;
static char folder[64], dir[128];

static inline int open_it(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ruvllm-sessions-XXXXXX");
    assert_non_null(mkdtemp(folder));
    open_all(&o, "tests/gguf/llama-spm.gguf", 1, 256);
    return 0;
}

static inline int close_it(void **state)
{
    (void)state;
    close_all(&o);
    rvi_os_remove_tree(folder);
    return 0;
}

static inline const char *in_folder(const char *name)
{
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    return dir;
}

#endif
