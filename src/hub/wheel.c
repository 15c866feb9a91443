#include "hub/wheel.h"

#include <limits.h>
#include <string.h>
#define ZLIB_CONST /* next_in points to const bytes */
#include <zlib.h>

#include "base/cursor.h"
#include "base/mem.h"

enum {
    SIG_LOCAL = 0x04034b50,
    SIG_CENTRAL = 0x02014b50,
    SIG_END = 0x06054b50,
    SIG_END64 = 0x06064b50,
    SIG_END64_LOCATOR = 0x07064b50,
    LEN_END = 22, /* without comment */
    LEN_END64_LOCATOR = 20,
    MAX_COMMENT = 0xFFFF,
    FLAG_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    EXTRA_ZIP64 = 1,
    STEP = 256 << 10, /* bytes unpacked at a time */
};

typedef struct directory {
    uint64_t offset, len, n_entries;
} directory;

typedef struct entry {
    unsigned flags, method;
    uint32_t crc;
    uint64_t packed_len, len, offset;
    const uint8_t *name;
    size_t name_len;
} entry;

static rv_status damaged(rv_error *err, const char *where, uint64_t offset)
{
    return rvi_error(err, RV_E_MODEL, "the wheel is damaged: %s (offset %llu)", where,
                     (unsigned long long)offset);
}

static rvi_cursor cursor_at(const rvi_blob *zip, uint64_t offset)
{
    if (offset > zip->len) return (rvi_cursor){.failed = true};
    return (rvi_cursor){.data = zip->data, .len = zip->len, .pos = (size_t)offset};
}

/* The end record is the last one whose comment reaches exactly to the end of the file. */
static bool find_end(const rvi_blob *zip, size_t *at)
{
    for (size_t comment = 0; comment <= MAX_COMMENT && comment + LEN_END <= zip->len; comment++) {
        size_t pos = zip->len - LEN_END - comment;
        rvi_cursor c = cursor_at(zip, pos);
        if (rvi_cursor_u32(&c) != SIG_END) continue;
        c.pos = pos + LEN_END - 2;
        if (rvi_cursor_u16(&c) == comment) {
            *at = pos;
            return true;
        }
    }
    return false;
}

/* at: the end record. The zip64 end record comes before it and is found through a locator. */
static rv_status read_directory64(directory *d, const rvi_blob *zip, size_t at, uint64_t *limit,
                                  rv_error *err)
{
    if (at < LEN_END64_LOCATOR) return damaged(err, "no zip64 locator", at);
    rvi_cursor c = cursor_at(zip, at - LEN_END64_LOCATOR);
    uint32_t sig = rvi_cursor_u32(&c), disk = rvi_cursor_u32(&c);
    uint64_t end64 = rvi_cursor_u64(&c);
    uint32_t n_disks = rvi_cursor_u32(&c);
    if (sig != SIG_END64_LOCATOR || disk != 0 || n_disks > 1)
        return damaged(err, "bad zip64 locator", at);

    c = cursor_at(zip, end64);
    sig = rvi_cursor_u32(&c);
    rvi_cursor_take(&c, 8 + 2 + 2); /* its own length, versions */
    disk = rvi_cursor_u32(&c);
    uint32_t directory_disk = rvi_cursor_u32(&c);
    uint64_t n_here = rvi_cursor_u64(&c);
    d->n_entries = rvi_cursor_u64(&c);
    d->len = rvi_cursor_u64(&c);
    d->offset = rvi_cursor_u64(&c);
    if (c.failed || sig != SIG_END64 || disk || directory_disk || n_here != d->n_entries)
        return damaged(err, "bad zip64 end record", end64);
    *limit = end64;
    return RV_OK;
}

static rv_status read_directory(directory *d, const rvi_blob *zip, rv_error *err)
{
    size_t at = 0;
    if (!find_end(zip, &at)) return damaged(err, "no end record", zip->len);
    rvi_cursor c = cursor_at(zip, at + 4);
    uint16_t disk = rvi_cursor_u16(&c), directory_disk = rvi_cursor_u16(&c),
             n_here = rvi_cursor_u16(&c);
    d->n_entries = rvi_cursor_u16(&c);
    d->len = rvi_cursor_u32(&c);
    d->offset = rvi_cursor_u32(&c);
    uint64_t limit = at;
    if (d->n_entries == UINT16_MAX || d->len == UINT32_MAX || d->offset == UINT32_MAX) {
        rv_status st = read_directory64(d, zip, at, &limit, err);
        if (st) return st;
    } else if (disk || directory_disk || n_here != d->n_entries) {
        return damaged(err, "bad end record", at);
    }
    if (d->len > limit || d->offset > limit - d->len)
        return damaged(err, "directory outside the file", at);
    return RV_OK;
}

/* The zip64 extra field holds the fields that did not fit 32 bits, only those and in this order. */
static bool read_extra64(entry *e, const uint8_t *extra, size_t extra_len)
{
    rvi_cursor c = {.data = extra, .len = extra_len};
    while (c.len - c.pos >= 4) {
        uint16_t id = rvi_cursor_u16(&c), len = rvi_cursor_u16(&c);
        const uint8_t *body = rvi_cursor_take(&c, len);
        if (!body) return false;
        if (id != EXTRA_ZIP64) continue;
        rvi_cursor b = {.data = body, .len = len};
        if (e->len == UINT32_MAX) e->len = rvi_cursor_u64(&b);
        if (e->packed_len == UINT32_MAX) e->packed_len = rvi_cursor_u64(&b);
        if (e->offset == UINT32_MAX) e->offset = rvi_cursor_u64(&b);
        return !b.failed;
    }
    return false;
}

static bool read_entry(entry *e, rvi_cursor *c)
{
    *e = (entry){0};
    uint32_t sig = rvi_cursor_u32(c);
    rvi_cursor_take(c, 2 + 2); /* versions */
    e->flags = rvi_cursor_u16(c);
    e->method = rvi_cursor_u16(c);
    rvi_cursor_take(c, 2 + 2); /* time and date */
    e->crc = rvi_cursor_u32(c);
    e->packed_len = rvi_cursor_u32(c);
    e->len = rvi_cursor_u32(c);
    e->name_len = rvi_cursor_u16(c);
    size_t extra_len = rvi_cursor_u16(c), comment_len = rvi_cursor_u16(c);
    rvi_cursor_take(c, 2 + 2 + 4); /* disk, attributes */
    e->offset = rvi_cursor_u32(c);
    e->name = rvi_cursor_take(c, e->name_len);
    const uint8_t *extra = rvi_cursor_take(c, extra_len);
    rvi_cursor_take(c, comment_len);
    if (c->failed || sig != SIG_CENTRAL) return false;
    if (e->len == UINT32_MAX || e->packed_len == UINT32_MAX || e->offset == UINT32_MAX)
        return read_extra64(e, extra, extra_len);
    return true;
}

/* The local header in front of the data must tell the same story. */
static rv_status locate(rvi_wheel_member *out, const rvi_blob *zip, const directory *d,
                        const entry *e, rv_error *err)
{
    rvi_cursor c = cursor_at(zip, e->offset);
    uint32_t sig = rvi_cursor_u32(&c);
    rvi_cursor_take(&c, 2); /* version */
    unsigned flags = rvi_cursor_u16(&c), method = rvi_cursor_u16(&c);
    rvi_cursor_take(&c,
                    2 + 2 + 4 + 4 +
                        4); /* time, date, CRC and lengths: zeros when a data descriptor follows */
    size_t name_len = rvi_cursor_u16(&c), extra_len = rvi_cursor_u16(&c);
    const uint8_t *name = rvi_cursor_take(&c, name_len);
    rvi_cursor_take(&c, extra_len);
    if (c.failed || sig != SIG_LOCAL || method != e->method ||
        ((flags ^ e->flags) & FLAG_ENCRYPTED) || name_len != e->name_len ||
        memcmp(name, e->name, name_len))
        return damaged(err, "local header differs from the directory", e->offset);
    if (c.pos > d->offset || e->packed_len > d->offset - c.pos)
        return damaged(err, "member reaches into the directory", e->offset);
    *out = (rvi_wheel_member){.data = zip->data + c.pos,
                              .packed_len = e->packed_len,
                              .len = e->len,
                              .crc = e->crc,
                              .method = e->method};
    return RV_OK;
}

rv_status rvi_wheel_find(rvi_wheel_member *out, const rvi_blob *zip, const char *name,
                         rv_error *err)
{
    *out = (rvi_wheel_member){0};
    directory d = {0};
    entry found = {0};
    bool is_found = false;
    size_t name_len = strlen(name);
    rv_status st = read_directory(&d, zip, err);
    if (st) return st;

    rvi_cursor c = {.data = zip->data, .len = (size_t)(d.offset + d.len), .pos = (size_t)d.offset};
    for (uint64_t i = 0; i < d.n_entries; i++) {
        entry e;
        size_t at = c.pos;
        if (!read_entry(&e, &c)) return damaged(err, "bad directory entry", at);
        if (e.name_len != name_len || memcmp(e.name, name, name_len)) continue;
        if (is_found) return rvi_error(err, RV_E_MODEL, "the wheel holds '%s' twice", name);
        found = e;
        is_found = true;
    }
    if (!is_found) return rvi_error(err, RV_E_NOT_FOUND, "the wheel does not hold '%s'", name);
    if (found.flags & FLAG_ENCRYPTED)
        return rvi_error(err, RV_E_MODEL, "'%s' in the wheel is encrypted", name);
    if (found.method != METHOD_STORED && found.method != METHOD_DEFLATED)
        return rvi_error(err, RV_E_MODEL,
                         "'%s' in the wheel uses compression method %u; only 0 and 8 are supported",
                         name, found.method);
    return locate(out, zip, &d, &found, err);
}

/* ---- unpacking ---- */

static rv_status unpack_stored(const rvi_wheel_member *m, uLong *crc, rvi_wheel_sink sink,
                               void *ctx, rv_error *err)
{
    if (m->packed_len != m->len)
        return rvi_error(err, RV_E_MODEL, "the wheel is damaged: a stored member has two lengths");
    for (uint64_t at = 0; at < m->len; at += STEP) {
        size_t n = (size_t)RVI_MIN((uint64_t)STEP, m->len - at);
        *crc = crc32(*crc, m->data + at, (uInt)n);
        rv_status st = sink(ctx, m->data + at, n, err);
        if (st) return st;
    }
    return RV_OK;
}

static voidpf zlib_alloc(voidpf opaque, uInt items, uInt size)
{
    (void)opaque;
    return rvi_zalloc_array(items, size);
}

static void zlib_free(voidpf opaque, voidpf p)
{
    (void)opaque;
    rvi_free(p);
}

/* z is ready and out has STEP bytes. */
static rv_status inflate_all(z_stream *z, uint8_t *out, const rvi_wheel_member *m, uLong *crc,
                             rvi_wheel_sink sink, void *ctx, rv_error *err)
{
    uint64_t taken = 0, given = 0;
    int code = Z_OK;
    while (code != Z_STREAM_END) {
        uInt more = (uInt)RVI_MIN(m->packed_len - taken, (uint64_t)UINT_MAX);
        z->next_in = m->data + taken;
        z->avail_in = more;
        z->next_out = out;
        z->avail_out = STEP;
        code = inflate(z, Z_NO_FLUSH);
        size_t n = STEP - z->avail_out;
        taken += more - z->avail_in;
        if (code == Z_MEM_ERROR) return rvi_nomem(err, "unpacking");
        if (code != Z_OK && code != Z_STREAM_END)
            return rvi_error(err, RV_E_MODEL,
                             "the wheel is damaged: packed data broken at byte %llu of %llu",
                             (unsigned long long)taken, (unsigned long long)m->packed_len);
        if (n > m->len - given)
            return rvi_error(err, RV_E_MODEL, "the wheel is damaged: more data than announced");
        if (!n) continue;
        *crc = crc32(*crc, out, (uInt)n);
        given += n;
        rv_status st = sink(ctx, out, n, err);
        if (st) return st;
    }
    if (given != m->len || taken != m->packed_len)
        return rvi_error(err, RV_E_MODEL,
                         "the wheel is damaged: lengths differ from those announced");
    return RV_OK;
}

static rv_status unpack_deflated(const rvi_wheel_member *m, uLong *crc, rvi_wheel_sink sink,
                                 void *ctx, rv_error *err)
{
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};
    uint8_t *out = rvi_alloc_array(STEP, 1);
    if (!out ||
        inflateInit2(&z, -MAX_WBITS) != Z_OK) { /* negative: bare deflate data, no zlib header */
        rvi_free(out);
        return rvi_nomem(err, "unpacking");
    }
    rv_status st = inflate_all(&z, out, m, crc, sink, ctx, err);
    inflateEnd(&z);
    rvi_free(out);
    return st;
}

rv_status rvi_wheel_unpack(const rvi_wheel_member *m, rvi_wheel_sink sink, void *ctx, rv_error *err)
{
    uLong crc = crc32(0, NULL, 0);
    rv_status st = m->method == METHOD_STORED ? unpack_stored(m, &crc, sink, ctx, err)
                                              : unpack_deflated(m, &crc, sink, ctx, err);
    if (!st && crc != m->crc)
        st = rvi_error(err, RV_E_MODEL, "the wheel is damaged: wrong checksum (CRC-32)");
    return st;
}
