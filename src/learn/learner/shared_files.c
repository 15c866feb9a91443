/* Adapters in a store that is shared: table "adapter", the bytes of a generation's file under its
 * number, in pieces that fit into a record, and in front of them their length and SHA-256. They are
 * written in the transaction that logs the generation: whoever reads the log finds them. A learner
 * has them as files in its own directory too, where each is compared with the store's hash once,
 * when the learner meets the generation. */
#include <stdio.h>
#include <string.h>

#include "base/blob.h"
#include "base/mem.h"
#include "base/os.h"
#include "learn/journal/text.h"
#include "learn/learner/learner_internal.h"
#include "learn/state/list.h"

enum { PIECE = RVI_STORE_MAX_RECORD / 2, KEY = 32, HEAD = 8 + RVI_SHA256_LEN };
static const char table[] = "adapter";
static const uint64_t most = (uint64_t)4 << 30; /* bytes of a file */

static size_t head_key(int number, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%010d", number);
}

static size_t piece_key(int number, size_t piece, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%010d.%06zu", number, piece);
}

static void make_head(const void *data, size_t len, uint8_t head[HEAD])
{
    rvi_sha256 h;
    for (size_t i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)len >> (8 * i));
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, data, len);
    rvi_sha256_end(&h, head + 8);
}

/* ---- there ---- */

static rv_status put_file(rvi_learner *l, int number, const rvi_blob *b, rv_error *err)
{
    char key[KEY];
    uint8_t head[HEAD];
    make_head(b->data, b->len, head);
    rv_status st =
        rvi_store_put(&l->store, table, key, head_key(number, key), head, sizeof head, err);
    for (size_t i = 0; !st && i * PIECE < b->len; i++)
        st = rvi_store_put(&l->store, table, key, piece_key(number, i, key), b->data + i * PIECE,
                           RVI_MIN(b->len - i * PIECE, (size_t)PIECE), err);
    return st;
}

rv_status rvi_learner_log_generation(rvi_learner *l, rvi_feedback *f, rv_error *err)
{
    rvi_buf path = {0};
    rvi_blob b = {0};
    if (!rvi_learner_shares(l)) return rvi_learner_log(l, f, err);
    rv_status st = rvi_learner_own(l, err);
    if (!st && !rvi_learner_generation_file(l, (int)f->generation, &path))
        st = rvi_nomem(err, "path");
    if (!st) st = rvi_blob_open(&b, path.data, err);
    if (!st) st = rvi_store_begin(&l->store, true, err);
    if (!st) {
        st = put_file(l, (int)f->generation, &b, err);
        if (!st) st = rvi_feedback_append(&l->store, f, err);
        st = rvi_store_end(&l->store, st, err);
    }
    if (!st) rvi_learner_logged(l, f);
    rvi_blob_close(&b);
    rvi_buf_deinit(&path);
    return st;
}

/* ---- and back ---- */

typedef struct named {
    rvi_learner *l;
    int *numbers;
    size_t n, cap;
    uint64_t last;
    bool failed;
} named;

static int note_generation(void *ctx, const rvi_feedback *f)
{
    named *x = ctx;
    x->last = f->seq;
    if ((f->kind != RVI_FEEDBACK_PUBLISH && f->kind != RVI_FEEDBACK_IMPORT &&
         f->kind != RVI_FEEDBACK_MERGE) ||
        !rvi_text_is(f->user, x->l->user) || f->generation >= INT32_MAX)
        return 0;
    int *at = rvi_list_room((void **)&x->numbers, x->n, &x->cap, sizeof *at);
    x->failed = !at;
    if (at) x->numbers[x->n++] = (int)f->generation;
    return x->failed;
}

static bool is_here(const char *path, const uint8_t head[HEAD])
{
    rvi_blob b = {0};
    uint8_t own[HEAD];
    bool same = false;
    if (rvi_os_stat(path, NULL) == RVI_OS_FILE && !rvi_blob_open(&b, path, NULL)) {
        make_head(b.data, b.len, own);
        same = !memcmp(own, head, sizeof own);
    }
    rvi_blob_close(&b);
    return same;
}

static rv_status get_file(rvi_learner *l, int number, uint64_t len, rvi_buf *out, rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    bool found = true;
    for (size_t i = 0; !st && found && out->len < len; i++)
        st = rvi_store_get(&l->store, table, key, piece_key(number, i, key), out, &found, err);
    return st;
}

static rv_status write_file(const char *path, const rvi_buf *data, rv_error *err)
{
    rvi_buf name = {0};
    FILE *f = NULL;
    rv_status st = rvi_os_create_beside(path, &name, &f, err);
    if (!st) st = rvi_os_write(f, data->data, data->len, name.data, err);
    if (f && fclose(f) && !st) st = rvi_error(err, RV_E_IO, "%s cannot be written", path);
    if (!st) st = rvi_os_replace(name.data, path, err);
    if (st && name.len) (void)remove(name.data);
    rvi_buf_deinit(&name);
    return st;
}

/* One that was made before the store was shared is only here. What fails is tried again when it is
 * met again. */
static void give(rvi_learner *l, int number, const char *path)
{
    rvi_blob b = {0};
    if (rvi_os_stat(path, NULL) != RVI_OS_FILE || rvi_blob_open(&b, path, NULL)) return;
    rv_status st = rvi_store_begin(&l->store, false, NULL);
    if (!st) st = rvi_store_end(&l->store, put_file(l, number, &b, NULL), NULL);
    (void)st;
    rvi_blob_close(&b);
}

/* One that is not there, or not whole, is left out by whoever loads it. */
static rv_status fetch(rvi_learner *l, int number, rv_error *err)
{
    char key[KEY];
    uint8_t own[HEAD];
    bool found = false;
    rvi_buf head = {0}, data = {.max = (size_t)most}, path = {0};
    uint64_t len = 0;
    rv_status st = rvi_store_get(&l->store, table, key, head_key(number, key), &head, &found, err);
    if (!st && !rvi_learner_generation_file(l, number, &path)) st = rvi_nomem(err, "path");
    for (size_t i = 0; i < 8 && head.len == HEAD; i++)
        len |= (uint64_t)(uint8_t)head.data[i] << (8 * i);
    if (!st && found && head.len == HEAD && len <= most &&
        !is_here(path.data, (const uint8_t *)head.data)) {
        st = get_file(l, number, len, &data, err);
        make_head(data.data, data.len, own);
        if (!st && !memcmp(own, head.data, sizeof own)) st = write_file(path.data, &data, err);
    }
    if (!st && !found) give(l, number, path.data);
    rvi_buf_deinit(&head);
    rvi_buf_deinit(&data);
    rvi_buf_deinit(&path);
    return st;
}

rv_status rvi_learner_fetch_generations(rvi_learner *l, uint64_t from, uint64_t *last,
                                        rv_error *err)
{
    named x = {.l = l, .last = from - 1};
    rv_status st = rvi_feedback_read(&l->store, from, note_generation, &x, err);
    if (!st && x.failed) st = rvi_nomem(err, "generations");
    for (size_t i = 0; !st && i < x.n; i++) st = fetch(l, x.numbers[i], err);
    *last = x.last;
    rvi_free(x.numbers);
    return st;
}
