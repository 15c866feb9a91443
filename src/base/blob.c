#include "base/blob.h"

#include <string.h>

#include "base/mem.h"

#ifndef __wasi__
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static rv_status io_error(rv_error *err, const char *path, const char *doing)
{
    int code = errno;
    rv_status st = code == ENOENT || code == ENOTDIR ? RV_E_NOT_FOUND : RV_E_IO;
    return rvi_error(err, st, "%s: %s: %s", path, doing, strerror(code));
}

rv_status rvi_blob_open(rvi_blob *out, const char *path, rv_error *err)
{
    *out = (rvi_blob){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC |
                            O_NONBLOCK); /* a named pipe must be refused, not waited for */
    if (fd < 0) return io_error(err, path, "cannot open");
    rv_status st = RV_OK;
    struct stat info;
    if (fstat(fd, &info)) {
        st = io_error(err, path, "cannot read");
    } else if (!S_ISREG(info.st_mode)) {
        st = rvi_error(err, RV_E_IO, "%s: not a regular file", path);
    } else if (info.st_size <= 0) {
        st = rvi_error(err, RV_E_IO, "%s: the file is empty", path);
    } else {
        void *p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            st = io_error(err, path, "cannot map");
        } else {
            out->mapping = p;
            out->data = p;
            out->len = (size_t)info.st_size;
        }
    }
    close(fd);
    return st;
}
#else
rv_status rvi_blob_open(rvi_blob *out, const char *path, rv_error *err)
{
    *out = (rvi_blob){0};
    return rvi_error(err, RV_E_IO, "%s: this build has no files; open from memory", path);
}
#endif

void rvi_blob_from_memory(rvi_blob *out, const void *data, size_t len)
{
    *out = (rvi_blob){.data = data, .len = len};
}

rv_status rvi_blob_read(rvi_blob *out, rvi_read_fn read, void *ctx, uint64_t len, const char *what,
                        rv_error *err)
{
    enum { STEP = 8 << 20 };
    *out = (rvi_blob){0};
    if (!len) return rvi_error(err, RV_E_IO, "%s: no bytes", what);
    if (len > PTRDIFF_MAX) return rvi_nomem(err, what);
    uint8_t *data = rvi_alloc_aligned((size_t)len, 64);
    if (!data) return rvi_nomem(err, what);
    for (uint64_t at = 0; at < len; at += STEP) {
        size_t n = (size_t)RVI_MIN((uint64_t)STEP, len - at);
        if (read(ctx, at, data + at, n)) {
            rvi_free(data);
            return rvi_error(err, RV_E_IO, "%s: reading %zu bytes at offset %llu failed", what, n,
                             (unsigned long long)at);
        }
    }
    *out = (rvi_blob){.data = data, .len = (size_t)len, .heap = data};
    return RV_OK;
}

void rvi_blob_close(rvi_blob *b)
{
#ifndef __wasi__
    if (b->mapping) munmap(b->mapping, b->len);
#endif
    rvi_free(b->heap);
    *b = (rvi_blob){0};
}
