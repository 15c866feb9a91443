#include "base/blob.h"

#include <string.h>

#include "base/guard.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __wasi__
#include <sys/mman.h>
#endif

static rv_status io_error(rv_error *err, const char *path, const char *doing)
{
    int code = errno;
    rv_status st = code == ENOENT || code == ENOTDIR ? RV_E_NOT_FOUND : RV_E_IO;
    return rvi_error(err, st, "%s: %s: %s", path, doing, strerror(code));
}

static int read_file(void *ctx, uint64_t offset, void *dst, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got =
            pread(*(const int *)ctx, (char *)dst + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 1;
        done += (size_t)got;
    }
    return 0;
}

static rv_status take(rvi_blob *out, int fd, size_t len, const char *path, rv_error *err)
{
#ifndef __wasi__
    void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return io_error(err, path, "cannot map");
    int guard = rvi_guard_add(p, len);
    if (guard) {
        *out = (rvi_blob){.data = p, .len = len, .mapping = p, .guard = guard};
        return RV_OK;
    }
    munmap(p, len); /* too many files are mapped already, so this one is read */
#endif
    return rvi_blob_read(out, read_file, &fd, len, path, err);
}

rv_status rvi_blob_open(rvi_blob *out, const char *path, rv_error *err)
{
    *out = (rvi_blob){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC |
                            O_NONBLOCK); /* a named pipe must be refused, not waited for */
    if (fd < 0) return io_error(err, path, "cannot open");
    rv_status st = RV_OK;
    struct stat info;
    if (fstat(fd, &info))
        st = io_error(err, path, "cannot read");
    else if (!S_ISREG(info.st_mode))
        st = rvi_error(err, RV_E_IO, "%s: not a regular file", path);
    else if (info.st_size <= 0)
        st = rvi_error(err, RV_E_IO, "%s: the file is empty", path);
    else if ((uint64_t)info.st_size > PTRDIFF_MAX)
        st = rvi_error(err, RV_E_IO, "%s: too large for the address space", path);
    else
        st = take(out, fd, (size_t)info.st_size, path, err);
    close(fd);
    return st;
}

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

rv_status rvi_blob_check(const rvi_blob *b, const char *name, rv_error *err)
{
    if (!rvi_guard_is_lost(b->guard)) return RV_OK;
    return rvi_error(err, RV_E_IO,
                     "%s: the file was truncated or can no longer be read; open it again", name);
}

void rvi_blob_close(rvi_blob *b)
{
    rvi_guard_remove(b->guard);
#ifndef __wasi__
    if (b->mapping) munmap(b->mapping, b->len);
#endif
    rvi_free(b->heap);
    *b = (rvi_blob){0};
}
