#include "scheduler/vectors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/blob.h"
#include "base/cursor.h"
#include "base/mem.h"
#include "base/os.h"

/* Little-endian: magic[8], sha256[32] of the session, digest[64] of the embedder, u32 floats of a
 * vector, u32 vectors, the floats, sha256[32] of all that. */
static const uint8_t magic[8] = {'r', 'v', 'n', 'e', 'a', 'r', '1', '\n'};
enum { HEADER = 8 + RVI_SHA256_LEN + RVI_SHA256_HEX - 1 + 2 * 4 };
static const char suffix[] = ".vectors", of_session[] = ".session";

static bool path_of(const char *session_path, rvi_buf *out)
{
    size_t len = strlen(session_path), end = sizeof of_session - 1;
    if (len > end && !strcmp(session_path + len - end, of_session)) len -= end;
    return rvi_buf_printf(out, "%.*s%s", (int)len, session_path, suffix);
}

bool rvi_vectors_session(const char *session_path, uint8_t digest[RVI_SHA256_LEN])
{
    FILE *f = fopen(session_path, "rb");
    bool done = f && !fseek(f, -(long)RVI_SHA256_LEN, SEEK_END) &&
                fread(digest, 1, RVI_SHA256_LEN, f) == RVI_SHA256_LEN;
    if (f) fclose(f);
    return done;
}

static bool is_whole(const rvi_blob *file)
{
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 sum;
    if (file->len < HEADER + RVI_SHA256_LEN) return false;
    rvi_sha256_init(&sum);
    rvi_sha256_add(&sum, file->data, file->len - RVI_SHA256_LEN);
    rvi_sha256_end(&sum, digest);
    return !memcmp(digest, file->data + file->len - RVI_SHA256_LEN, sizeof digest);
}

static bool read_values(rvi_vectors *v, const rvi_blob *file)
{
    rvi_cursor c = {.data = file->data, .len = file->len};
    const uint8_t *head = rvi_cursor_take(&c, HEADER - 8);
    uint32_t size = rvi_cursor_u32(&c), n = rvi_cursor_u32(&c);
    if (!head || memcmp(head, magic, sizeof magic) ||
        memcmp(head + sizeof magic, v->session, RVI_SHA256_LEN) ||
        memcmp(head + sizeof magic + RVI_SHA256_LEN, v->embedder, RVI_SHA256_HEX - 1) ||
        size != v->size || !n || n > RVI_VECTORS_MOST ||
        file->len != HEADER + (uint64_t)n * size * 4 + RVI_SHA256_LEN)
        return false;
    v->values = rvi_alloc_array((size_t)n * size, sizeof *v->values);
    for (size_t i = 0; v->values && i < (size_t)n * size; i++) {
        uint32_t bits = rvi_cursor_u32(&c);
        memcpy(&v->values[i], &bits, sizeof bits);
    }
    v->n = v->values ? n : 0;
    return v->n > 0;
}

bool rvi_vectors_read(rvi_vectors *v, const char *session_path)
{
    rvi_buf path = {0};
    rvi_blob file = {0};
    v->n = 0;
    v->values = NULL;
    bool done = path_of(session_path, &path) && !rvi_blob_open(&file, path.data, NULL) &&
                is_whole(&file) && read_values(v, &file);
    rvi_blob_close(&file);
    rvi_buf_deinit(&path);
    return done;
}

static bool put(rvi_buf *b, uint32_t value)
{
    uint8_t bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> 8 * i);
    return rvi_buf_append(b, bytes, sizeof bytes);
}

static bool describe(const rvi_vectors *v, rvi_buf *out)
{
    bool ok = rvi_buf_append(out, magic, sizeof magic) &&
              rvi_buf_append(out, v->session, sizeof v->session) &&
              rvi_buf_append(out, v->embedder, RVI_SHA256_HEX - 1) && put(out, (uint32_t)v->size) &&
              put(out, (uint32_t)v->n);
    for (size_t i = 0; ok && i < v->n * v->size; i++) {
        uint32_t bits;
        memcpy(&bits, &v->values[i], sizeof bits);
        ok = put(out, bits);
    }
    uint8_t digest[RVI_SHA256_LEN];
    rvi_sha256 sum;
    rvi_sha256_init(&sum);
    if (ok) rvi_sha256_add(&sum, out->data, out->len);
    rvi_sha256_end(&sum, digest);
    return ok && rvi_buf_append(out, digest, sizeof digest);
}

rv_status rvi_vectors_write(const rvi_vectors *v, const char *session_path, rv_error *err)
{
    rvi_buf path = {0}, bytes = {0}, temp = {0};
    FILE *f = NULL;
    bool moved = false;
    uint8_t now[RVI_SHA256_LEN];
    rv_status st =
        path_of(session_path, &path) && describe(v, &bytes) ? RV_OK : rvi_nomem(err, "vectors");
    if (!st) st = rvi_os_create_beside(path.data, &temp, &f, err);
    if (!st) st = rvi_os_write(f, bytes.data, bytes.len, path.data, err);
    if (f && fclose(f) && !st)
        st = rvi_error(err, RV_E_IO, "cannot write %s: %s", path.data, strerror(errno));
    if (!st) moved = !(st = rvi_os_replace(temp.data, path.data, err));
    if (!moved && f) (void)remove(temp.data);
    /* who forgets a session removes its file, then its vectors; these may have come after that, and
     * another session of that name too */
    if (moved && !(rvi_vectors_session(session_path, now) && !memcmp(now, v->session, sizeof now)))
        (void)remove(path.data);
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&bytes);
    rvi_buf_deinit(&temp);
    return st;
}

void rvi_vectors_remove(const char *session_path)
{
    rvi_buf path = {0};
    if (path_of(session_path, &path)) (void)remove(path.data);
    rvi_buf_deinit(&path);
}

int rvi_vectors_clean(const char *dir, const char *name)
{
    const char *at = strstr(name, suffix);
    rvi_buf path = {0}, session = {0};
    if (!at) return 0;
    bool ok = rvi_buf_printf(&path, "%s/%s", dir, name) &&
              rvi_buf_printf(&session, "%s/%.*s%s", dir, (int)(at - name), name, of_session);
    bool is_part = at[sizeof suffix - 1];
    if (ok && (is_part || rvi_os_stat(session.data, NULL) == RVI_OS_NONE)) (void)remove(path.data);
    rvi_buf_deinit(&path);
    rvi_buf_deinit(&session);
    return !ok;
}
