#include "base/resident.h"

#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/mem.h"

void rvi_resident_trim(size_t before)
{
    const size_t large = 4 << 20;
    if (before < rvi_mem_in_use() + large) return;
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

#ifdef __linux__

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/guard.h"

typedef struct count {
    int fd; /* of the page map: 64 bits for each page of the address space */
    size_t page, bytes;
    size_t len; /* of all ranges */
} count;

static void add_range(void *ctx, const void *from, size_t len)
{
    enum { AT_ONCE = 512 };
    const uint64_t present = (uint64_t)1 << 63;
    uint64_t entries[AT_ONCE];
    count *c = ctx;
    c->len += len;
    size_t first = (size_t)(uintptr_t)from / c->page, n = (len + c->page - 1) / c->page;
    for (size_t at = 0, got; at < n; at += got) {
        size_t want = RVI_MIN(n - at, (size_t)AT_ONCE);
        ssize_t bytes =
            pread(c->fd, entries, want * sizeof *entries, (off_t)((first + at) * sizeof *entries));
        if (bytes < (ssize_t)sizeof *entries) return;
        got = (size_t)bytes / sizeof *entries;
        for (size_t i = 0; i < got; i++) c->bytes += entries[i] & present ? c->page : 0;
    }
}

bool rvi_resident_read(rvi_resident *out)
{
    long page = sysconf(_SC_PAGESIZE);
    unsigned long total, all, shared;
    *out = (rvi_resident){0};
    FILE *f = fopen("/proc/self/statm", "r");
    bool ok = f && page > 0 && fscanf(f, "%lu %lu %lu", &total, &all, &shared) == 3;
    if (f) fclose(f);
    if (!ok) return false;
    count c = {.fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), .page = (size_t)page};
    if (c.fd < 0) return false;
    count blocks = c;
    rvi_guard_each(add_range, &c);
    rvi_mem_each_large(add_range, &blocks);
    close(c.fd);
    *out = (rvi_resident){.all = (size_t)all * c.page,
                          .files = (size_t)shared * c.page,
                          .models = c.bytes,
                          .large = RVI_MIN(blocks.bytes, blocks.len),
                          .large_unused = blocks.len - RVI_MIN(blocks.bytes, blocks.len)};
    return true;
}

#else

bool rvi_resident_read(rvi_resident *out)
{
    *out = (rvi_resident){0};
    return false;
}

#endif
