#include "learn/journal/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/os.h"

/* The header, little-endian: magic[8], u32 version, u32 header length, u64 number, u64 0 (in those
 * of earlier versions the generation, which is the number now), u64 length, what it belongs to
 * [32], zeros up to SUM_AT, sha256[32] over all of that, the name and the contents. */
enum { VERSION = 1, HEADER = 128, OF_AT = 40, SUM_AT = HEADER - RVI_SHA256_LEN };
static const uint8_t magic[8] = {'r', 'v', 's', 'n', 'a', 'p', '\n', 0x1A};

/* ---- names ---- */

static rv_status path_of(rvi_buf *out, const char *dir, const char *name, uint64_t number,
                         rv_error *err)
{
    if (rvi_buf_printf(out, "%s/%s.%020" PRIu64 ".snap", dir, name, number)) return RV_OK;
    return rvi_nomem(err, "path");
}

/* The number in the name of a file; false: not a snapshot of that name. */
static bool number_in(const char *file, const char *name, uint64_t *number)
{
    enum { DIGITS = 20 };
    size_t len = strlen(name);
    if (strncmp(file, name, len) || file[len] != '.') return false;
    const char *digits = file + len + 1;
    *number = strtoull(digits, NULL, 10);
    return strspn(digits, "0123456789") == DIGITS && !strcmp(digits + DIGITS, ".snap");
}

static bool is_part(const char *file, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(file, name, len) && !strcmp(file + len, ".part");
}

typedef struct dropping {
    const char *dir, *name;
    uint64_t below;
} dropping;

static int drop_one(void *ctx, const char *file)
{
    const dropping *d = ctx;
    uint64_t number;
    bool goes = number_in(file, d->name, &number) ? number < d->below : is_part(file, d->name);
    rvi_buf path = {0};
    if (goes && rvi_buf_printf(&path, "%s/%s", d->dir, file)) rvi_os_remove_tree(path.data);
    rvi_buf_deinit(&path);
    return 0;
}

void rvi_snapshot_drop(const char *dir, const char *name, uint64_t below)
{
    (void)!rvi_os_list(dir, drop_one, &(dropping){dir, name, below}, NULL);
}

/* ---- saving ---- */

static void put_uint(uint8_t *at, uint64_t v, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++) at[i] = (uint8_t)(v >> (8 * i));
}

static void sum(uint8_t out[RVI_SHA256_LEN], const uint8_t header[SUM_AT], const char *name,
                const void *data, size_t len)
{
    rvi_sha256 h;
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, header, SUM_AT);
    rvi_sha256_add_u64(&h, strlen(name));
    rvi_sha256_add(&h, name, strlen(name));
    rvi_sha256_add(&h, data, len);
    rvi_sha256_end(&h, out);
}

static rv_status write_file(const char *path, const uint8_t header[HEADER], const void *data,
                            size_t len, rv_error *err)
{
    errno = 0;
    FILE *f = fopen(path, "wb");
    if (!f) return rvi_error(err, RV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    rv_status st = rvi_os_write(f, header, HEADER, path, err);
    if (!st) st = rvi_os_write(f, data, len, path, err);
    if (!st) st = rvi_os_sync(f, path, err);
    if (fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return st;
}

rv_status rvi_snapshot_save(const char *dir, const char *name, uint64_t number,
                            const uint8_t of[RVI_SHA256_LEN], const void *data, size_t len,
                            rv_error *err)
{
    uint8_t header[HEADER] = {0};
    rvi_buf part = {0}, path = {0};
    memcpy(header, magic, sizeof magic);
    put_uint(header + 8, VERSION, 4);
    put_uint(header + 12, HEADER, 4);
    put_uint(header + 16, number, 8);
    put_uint(header + 32, len, 8);
    memcpy(header + OF_AT, of, RVI_SHA256_LEN);
    sum(header + SUM_AT, header, name, data, len);

    rv_status st = path_of(&path, dir, name, number, err);
    if (!st && !rvi_buf_printf(&part, "%s/%s.part", dir, name)) st = rvi_nomem(err, "path");
    if (!st) st = write_file(part.data, header, data, len, err);
    if (!st) st = rvi_os_replace(part.data, path.data, err);
    if (!st) st = rvi_os_sync_dir(dir, err);
    if (st && part.data && !part.failed) rvi_os_remove_tree(part.data);
    rvi_buf_deinit(&part);
    rvi_buf_deinit(&path);
    return st;
}

/* ---- loading ---- */

static bool is_whole(const rvi_blob *b, const char *name, uint64_t number)
{
    rvi_cursor c = {.data = b->data, .len = b->len};
    uint8_t right[RVI_SHA256_LEN];
    const uint8_t *start = rvi_cursor_take(&c, sizeof magic);
    uint32_t version = rvi_cursor_u32(&c), header = rvi_cursor_u32(&c);
    uint64_t own = rvi_cursor_u64(&c);
    uint64_t generation = rvi_cursor_u64(&c);
    uint64_t len = rvi_cursor_u64(&c);
    if (b->len < HEADER || memcmp(start, magic, sizeof magic) || version != VERSION ||
        header != HEADER || own != number || (generation && generation != number) ||
        len != b->len - HEADER)
        return false;
    sum(right, b->data, name, b->data + HEADER, (size_t)len);
    return !memcmp(right, b->data + SUM_AT, sizeof right);
}

rv_status rvi_snapshot_load(rvi_snapshot *out, const char *dir, const char *name, uint64_t number,
                            const uint8_t of[RVI_SHA256_LEN], rv_error *err)
{
    rvi_buf path = {0};
    *out = (rvi_snapshot){0};
    rv_status st = path_of(&path, dir, name, number, err);
    if (!st) st = rvi_blob_open(&out->file, path.data, err);
    const rvi_blob *b = &out->file;
    if (!st && !is_whole(b, name, number))
        st = rvi_error(err, RV_E_STORAGE, "%s is damaged", path.data);
    else if (!st && memcmp(b->data + OF_AT, of, RVI_SHA256_LEN))
        st = rvi_error(err, RV_E_ADAPTER, "%s belongs to something else", path.data);
    if (st) {
        rvi_snapshot_close(out);
    } else {
        out->data = b->data + HEADER;
        out->len = b->len - HEADER;
    }
    rvi_buf_deinit(&path);
    return st;
}

void rvi_snapshot_close(rvi_snapshot *s)
{
    rvi_blob_close(&s->file);
    *s = (rvi_snapshot){0};
}
