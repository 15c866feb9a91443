/* make_zip.h - a zip writer of the tests' own: small files, right in every detail or wrong in a
 * chosen one. */
#ifndef TESTS_HUB_MAKE_ZIP_H
#define TESTS_HUB_MAKE_ZIP_H

#include <string.h>
#include <zlib.h>

#include "base/mem.h"

typedef struct zip_member {
    const char *name;
    const void *bytes;
    size_t len;
    bool deflate;           /* otherwise stored */
    bool descriptor;        /* sizes behind the data, zeros in the local header */
    bool zip64;             /* sizes and offset in a zip64 extra field */
    unsigned flags;         /* further flag bits */
    unsigned method;        /* not 0: claim this method */
    const char *local_name; /* not NULL: another name in the local header */
    long long len_error, packed_error, offset_error; /* added to what the directory says */
    uint32_t crc_error;                              /* flips these bits of the CRC */
} zip_member;

typedef struct zip_options {
    bool zip64; /* end record by way of zip64 */
    const char *comment;
} zip_options;

static inline void zip_uint(rvi_buf *b, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) rvi_buf_putc(b, (char)(v >> (8 * i) & 0xFF));
}

static inline void zip_deflate(rvi_buf *out, const void *bytes, size_t len)
{
    z_stream z = {0};
    if (deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        out->failed = true;
        return;
    }
    uLong bound = deflateBound(&z, (uLong)len);
    if (rvi_buf_reserve(out, bound)) {
        z.next_in = (Bytef *)(uintptr_t)bytes;
        z.avail_in = (uInt)len;
        z.next_out = (Bytef *)out->data + out->len;
        z.avail_out = (uInt)bound;
        if (deflate(&z, Z_FINISH) == Z_STREAM_END)
            out->len += bound - z.avail_out;
        else
            out->failed = true;
    }
    deflateEnd(&z);
}

static inline void zip_local(rvi_buf *out, const zip_member *m, unsigned flags, unsigned method,
                             uint32_t crc, size_t packed_len)
{
    const char *name = m->local_name ? m->local_name : m->name;
    zip_uint(out, 0x04034b50, 4);
    zip_uint(out, 20, 2);
    zip_uint(out, flags, 2);
    zip_uint(out, method, 2);
    zip_uint(out, 0, 4); /* time, date */
    zip_uint(out, m->descriptor ? 0 : crc, 4);
    zip_uint(out, m->descriptor ? 0 : m->zip64 ? UINT32_MAX : packed_len, 4);
    zip_uint(out, m->descriptor ? 0 : m->zip64 ? UINT32_MAX : m->len, 4);
    zip_uint(out, strlen(name), 2);
    zip_uint(out, m->zip64 ? 20 : 0, 2);
    rvi_buf_puts(out, name);
    if (m->zip64) {
        zip_uint(out, 1, 2);
        zip_uint(out, 16, 2);
        zip_uint(out, m->len, 8);
        zip_uint(out, packed_len, 8);
    }
}

static inline void zip_central(rvi_buf *out, const zip_member *m, unsigned flags, unsigned method,
                               uint32_t crc, uint64_t packed_len, uint64_t offset)
{
    uint64_t len = m->len + (uint64_t)m->len_error;
    packed_len += (uint64_t)m->packed_error;
    offset += (uint64_t)m->offset_error;
    zip_uint(out, 0x02014b50, 4);
    zip_uint(out, 20, 2);
    zip_uint(out, 20, 2);
    zip_uint(out, flags, 2);
    zip_uint(out, method, 2);
    zip_uint(out, 0, 4);
    zip_uint(out, crc, 4);
    zip_uint(out, m->zip64 ? UINT32_MAX : packed_len, 4);
    zip_uint(out, m->zip64 ? UINT32_MAX : len, 4);
    zip_uint(out, strlen(m->name), 2);
    zip_uint(out, m->zip64 ? 6 + 28 : 6, 2); /* an extra field nobody knows, then zip64's */
    zip_uint(out, 2, 2);                     /* comment */
    zip_uint(out, 0, 8);                     /* disk, attributes */
    zip_uint(out, m->zip64 ? UINT32_MAX : offset, 4);
    rvi_buf_puts(out, m->name);
    zip_uint(out, 0x7777, 2);
    zip_uint(out, 2, 2);
    zip_uint(out, 0xABCD, 2);
    if (m->zip64) {
        zip_uint(out, 1, 2);
        zip_uint(out, 24, 2);
        zip_uint(out, len, 8);
        zip_uint(out, packed_len, 8);
        zip_uint(out, offset, 8);
    }
    rvi_buf_puts(out, "hi");
}

static inline void zip_end(rvi_buf *out, size_t n, size_t start, size_t len, const zip_options *o)
{
    size_t end64 = out->len;
    const char *comment = o && o->comment ? o->comment : "";
    bool zip64 = o && o->zip64;
    if (zip64) {
        zip_uint(out, 0x06064b50, 4);
        zip_uint(out, 44, 8);
        zip_uint(out, 45, 2);
        zip_uint(out, 45, 2);
        zip_uint(out, 0, 8); /* disks */
        zip_uint(out, n, 8);
        zip_uint(out, n, 8);
        zip_uint(out, len, 8);
        zip_uint(out, start, 8);
        zip_uint(out, 0x07064b50, 4);
        zip_uint(out, 0, 4);
        zip_uint(out, end64, 8);
        zip_uint(out, 1, 4);
    }
    zip_uint(out, 0x06054b50, 4);
    zip_uint(out, 0, 4); /* disks */
    zip_uint(out, zip64 ? UINT16_MAX : n, 2);
    zip_uint(out, zip64 ? UINT16_MAX : n, 2);
    zip_uint(out, zip64 ? UINT32_MAX : len, 4);
    zip_uint(out, zip64 ? UINT32_MAX : start, 4);
    zip_uint(out, strlen(comment), 2);
    rvi_buf_puts(out, comment);
}

/* Appends a zip file with n (at most 16) members; out must be empty. False: no memory. */
static inline bool zip_make(rvi_buf *out, const zip_member *members, size_t n, const zip_options *o)
{
    rvi_buf directory = {0};
    for (size_t i = 0; i < n; i++) {
        const zip_member *m = &members[i];
        rvi_buf packed = {0};
        if (m->deflate)
            zip_deflate(&packed, m->bytes, m->len);
        else
            rvi_buf_append(&packed, m->bytes, m->len);
        unsigned flags = m->flags | (m->descriptor ? 1u << 3 : 0), method = m->method    ? m->method
                                                                            : m->deflate ? 8
                                                                                         : 0;
        uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), m->bytes, (uInt)m->len) ^ m->crc_error;
        size_t offset = out->len;
        zip_local(out, m, flags, method, crc, packed.len);
        rvi_buf_append(out, packed.data, packed.len);
        if (m->descriptor) {
            zip_uint(out, 0x08074b50, 4);
            zip_uint(out, crc, 4);
            zip_uint(out, packed.len, m->zip64 ? 8 : 4);
            zip_uint(out, m->len, m->zip64 ? 8 : 4);
        }
        zip_central(&directory, m, flags, method, crc, packed.len, offset);
        out->failed |= packed.failed;
        rvi_buf_deinit(&packed);
    }
    size_t start = out->len;
    rvi_buf_append(out, directory.data, directory.len);
    zip_end(out, n, start, directory.len, o);
    out->failed |= directory.failed;
    rvi_buf_deinit(&directory);
    return !out->failed;
}

#endif
