#include "learn/journal/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/os.h"

/* The header, little-endian: magic[8], u32 version, u32 header length, u64 number, u64 generation,
 * u64 length, model[32], zeros up to SUM_AT, sha256[32] over all of that, the name and the
 * contents. */
enum { VERSION = 1, HEADER = 128, SUM_AT = HEADER - RVI_SHA256_LEN };
static const uint8_t magic[8] = {'r', 'v', 's', 'n', 'a', 'p', '\n', 0x1A};

/* ---- names ---- */

static rv_status check_name(const char *name, rv_error *err)
{
    size_t len = strlen(name);
    if (len && len <= RVI_SNAPSHOT_MAX_NAME &&
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len)
        return RV_OK;
    return rvi_error(err, RV_E_INVALID, "'%.80s' cannot name a snapshot", name);
}

static rv_status path_of(rvi_buf *out, const char *dir, const char *name, uint64_t number,
                         rv_error *err)
{
    if (rvi_buf_printf(out, "%s/%s.%020" PRIu64 ".snap", dir, name, number)) return RV_OK;
    return rvi_nomem(err, "path");
}

/* The number in the name of a file; 0: not a snapshot of that name. */
static uint64_t number_in(const char *file, const char *name)
{
    enum { DIGITS = 20 };
    size_t len = strlen(name);
    uint64_t number = 0;
    if (strncmp(file, name, len) || file[len] != '.') return 0;
    const char *digits = file + len + 1;
    if (strspn(digits, "0123456789") != DIGITS || strcmp(digits + DIGITS, ".snap")) return 0;
    for (int i = 0; i < DIGITS; i++) {
        uint64_t d = (uint64_t)(digits[i] - '0');
        if (number > (UINT64_MAX - d) / 10) return 0;
        number = 10 * number + d;
    }
    return number;
}

/* What is in the directory under one name. list_one keeps the newest RVI_SNAPSHOT_RING. */
typedef struct listing {
    const char *dir, *name;
    uint64_t numbers[RVI_SNAPSHOT_RING];
    size_t n;
    uint64_t
        remove_below; /* remove older ones than this, and what a killed writer has left; 0: no */
} listing;

static void remove_file(const char *dir, const char *file)
{
    rvi_buf path = {0};
    if (rvi_buf_printf(&path, "%s/%s", dir, file)) rvi_os_remove_tree(path.data);
    rvi_buf_deinit(&path);
}

static int list_one(void *ctx,
                    const char *file) /* in alphabetical order, which is that of numbers */
{
    listing *l = ctx;
    uint64_t number = number_in(file, l->name);
    if (!number) return 0;
    if (l->n == RVI_SNAPSHOT_RING) memmove(l->numbers, l->numbers + 1, --l->n * sizeof *l->numbers);
    l->numbers[l->n++] = number;
    return 0;
}

static bool is_part(const char *file, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(file, name, len) && !strcmp(file + len, ".part");
}

static int clean_one(void *ctx, const char *file)
{
    const listing *l = ctx;
    uint64_t number = number_in(file, l->name);
    if ((number && number < l->remove_below) || is_part(file, l->name)) remove_file(l->dir, file);
    return 0;
}

static rv_status list_all(listing *l, const char *dir, const char *name, rv_error *err)
{
    *l = (listing){.dir = dir, .name = name};
    rv_status st = check_name(name, err);
    return st ? st : rvi_os_list(dir, list_one, l, err);
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

rv_status rvi_snapshot_save(const char *dir, const char *name, const uint8_t model[RVI_SHA256_LEN],
                            uint64_t generation, const void *data, size_t len, uint64_t *number,
                            rv_error *err)
{
    listing l;
    uint8_t header[HEADER] = {0};
    rvi_buf part = {0}, path = {0};
    if (number) *number = 0;
    rv_status st = list_all(&l, dir, name, err);
    if (st) return st;
    uint64_t next = l.n ? l.numbers[l.n - 1] + 1 : 1;
    if (!next) return rvi_error(err, RV_E_STORAGE, "%s/%s: no numbers are left", dir, name);
    memcpy(header, magic, sizeof magic);
    put_uint(header + 8, VERSION, 4);
    put_uint(header + 12, HEADER, 4);
    put_uint(header + 16, next, 8);
    put_uint(header + 24, generation, 8);
    put_uint(header + 32, len, 8);
    memcpy(header + 40, model, RVI_SHA256_LEN);
    sum(header + SUM_AT, header, name, data, len);

    if (!rvi_buf_printf(&part, "%s/%s.part", dir, name)) st = rvi_nomem(err, "path");
    if (!st) st = path_of(&path, dir, name, next, err);
    if (!st) st = write_file(part.data, header, data, len, err);
    if (!st) st = rvi_os_replace(part.data, path.data, err);
    if (!st) st = rvi_os_sync_dir(dir, err);
    if (st && part.data && !part.failed) rvi_os_remove_tree(part.data);
    if (!st) {
        if (number) *number = next;
        /* best effort: what stays behind is removed by the next one */
        l.remove_below = l.n == RVI_SNAPSHOT_RING ? l.numbers[1] : 0;
        (void)!rvi_os_list(dir, clean_one, &l, NULL);
    }
    rvi_buf_deinit(&part);
    rvi_buf_deinit(&path);
    return st;
}

void rvi_snapshot_drop(const char *dir, const char *name, size_t n_keep)
{
    listing l;
    if (list_all(&l, dir, name, NULL)) return;
    if (l.n <= n_keep) return;
    l.remove_below = n_keep ? l.numbers[l.n - n_keep] : UINT64_MAX;
    (void)!rvi_os_list(dir, clean_one, &l, NULL);
}

/* ---- loading ---- */

typedef enum verdict { GOOD, DAMAGED, FOREIGN } verdict;

static verdict inspect(rvi_snapshot *out, const char *name, const uint8_t model[RVI_SHA256_LEN],
                       uint64_t number)
{
    const rvi_blob *b = &out->file;
    rvi_cursor c = {.data = b->data, .len = b->len};
    uint8_t right[RVI_SHA256_LEN];
    const uint8_t *start = rvi_cursor_take(&c, sizeof magic);
    uint32_t version = rvi_cursor_u32(&c), header = rvi_cursor_u32(&c);
    out->number = rvi_cursor_u64(&c);
    out->generation = rvi_cursor_u64(&c);
    uint64_t len = rvi_cursor_u64(&c);
    if (b->len < HEADER || memcmp(start, magic, sizeof magic) || version != VERSION ||
        header != HEADER || out->number != number || len != b->len - HEADER)
        return DAMAGED;
    out->len = (size_t)len;
    out->data = b->data + HEADER;
    sum(right, b->data, name, out->data, out->len);
    if (memcmp(right, b->data + SUM_AT, sizeof right)) return DAMAGED;
    return memcmp(b->data + 40, model, RVI_SHA256_LEN) ? FOREIGN : GOOD;
}

/* *bad: the file is there but cannot be used; that is no error here. */
static rv_status load_one(rvi_snapshot *out, const char *dir, const char *name,
                          const uint8_t model[RVI_SHA256_LEN], uint64_t number, bool *bad,
                          rv_error *err)
{
    rvi_buf path = {0};
    *bad = false;
    rv_status st = path_of(&path, dir, name, number, err);
    if (!st) {
        uint64_t size;
        verdict v = DAMAGED;
        /* a file that cannot be opened is an error: it may be the newest good one */
        if (rvi_os_stat(path.data, &size) != RVI_OS_FILE || size >= HEADER) {
            st = rvi_blob_open(&out->file, path.data, err);
            if (!st) v = inspect(out, name, model, number);
        }
        *bad = !st && v == DAMAGED;
        if (!st && v == FOREIGN)
            st = rvi_error(err, RV_E_ADAPTER, "%s: belongs to another model", path.data);
    }
    if (st || *bad) rvi_snapshot_close(out);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_snapshot_load(rvi_snapshot *out, const char *dir, const char *name,
                            const uint8_t model[RVI_SHA256_LEN], uint64_t generation, rv_error *err)
{
    listing l;
    bool bad = false;
    size_t n_damaged = 0;
    *out = (rvi_snapshot){0};
    rv_status st = list_all(&l, dir, name, err);
    if (st) return st;
    for (size_t i = l.n; i-- > 0;) {
        st = load_one(out, dir, name, model, l.numbers[i], &bad, err);
        if (st == RV_E_NOT_FOUND) continue; /* its turn to be removed has come meanwhile */
        out->n_damaged = n_damaged;
        if (st || (!bad && (!generation || out->generation == generation))) return st;
        n_damaged += bad;
        rvi_snapshot_close(out);
    }
    if (n_damaged)
        return rvi_error(err, RV_E_STORAGE, "%s/%s: all snapshots are damaged", dir, name);
    return rvi_error(err, RV_E_NOT_FOUND, "%s/%s: no snapshot", dir, name);
}

void rvi_snapshot_close(rvi_snapshot *s)
{
    rvi_blob_close(&s->file);
    *s = (rvi_snapshot){0};
}
