/* adapter_files.h - adapters on disk for the tests: a folder of their own, PEFT files and GGUF
 * files in it. */
#ifndef TESTS_LORA_ADAPTER_FILES_H
#define TESTS_LORA_ADAPTER_FILES_H

#include "base/os.h"
#include "lora/file.h"
#include "model/twin.h"

static inline int folder_setup(void **state)
{
    rvi_buf *dir = rvi_zalloc(sizeof *dir);
    if (!dir || rvi_os_temp_dir(dir, "/tmp", NULL)) return -1;
    *state = dir;
    return 0;
}

static inline int folder_teardown(void **state)
{
    rvi_buf *dir = *state;
    rvi_os_remove_tree(dir->data);
    rvi_buf_deinit(dir);
    rvi_free(dir);
    return 0;
}

/* The path of a file in the folder, in one of a few places that later calls use again. */
static inline const char *in_folder(const rvi_buf *dir, const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir->data, name);
    return path;
}

static inline void write_file(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline rv_status load_adapter(rvi_adapter **a, const golden *g, const char *path,
                                     rv_error *err)
{
    return rvi_adapter_load(a, g->be, path, g->m->targets, g->m->n_targets, g->m->arch->gguf_names,
                            NULL, err);
}

static inline const char *write_gguf_adapter(const rvi_buf *dir, const twin *t)
{
    rvi_buf file = {0};
    const char *path = in_folder(dir, "adapter.gguf");
    twin_build_adapter(&file, t);
    write_file(path, file.data, file.len);
    rvi_buf_deinit(&file);
    return path;
}

#endif
