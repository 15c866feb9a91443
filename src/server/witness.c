#include "server/witness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/os.h"
#include "base/thread.h"

/* Bytes that wait to be written, with those of records; of a response that are kept. */
enum { MOST_WAITING = 64 << 20, MOST_TEXT = 8 << 20 };
/* Of a line, and of the end of the file in which the last ones stand. */
enum { MOST_LINE = 128 << 10, MOST_END = 4 * MOST_LINE };
#define PAUSE 0.05 /* seconds between two batches */

typedef struct record {
    struct record *next;
    rvi_seen *seen;
    rvi_buf body;
    char *method, *path, *id; /* behind it */
    bool left;
    long long ms; /* since 1970 */
    size_t size;
} record;

struct rvi_witness {
    rvi_buf folder, path;
    FILE *f;
    rv_store store; /* append NULL: in the folder */
    int lock_file;
    bool contents, locked;
    rvi_thread *thread;
    rvi_wakeup *posted;
    /* of the writer */
    uint64_t n;
    char head[RVI_SHA256_HEX];
    bool warned;
    /* guarded by lock */
    rvi_lock *lock;
    record *first, *last;
    size_t waiting;
    uint64_t dropped, told, records; /* told: of the dropped, in the log */
    bool stop;
};

/* ---- records ---- */

static void free_seen(rvi_seen *s)
{
    if (s) rvi_buf_deinit(&s->text);
    rvi_free(s);
}

static void free_record(record *r)
{
    free_seen(r->seen);
    rvi_buf_deinit(&r->body);
    rvi_free(r);
}

static long long now_ms(void)
{
    struct timespec t;
    return timespec_get(&t, TIME_UTC) ? (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000 : 0;
}

static void drop(rvi_witness *w)
{
    rvi_lock_take(w->lock);
    w->dropped++;
    rvi_lock_give(w->lock);
}

rvi_seen *rvi_witness_begin(rvi_witness *w, const char *method)
{
    if (!w || (strcmp(method, "POST") && strcmp(method, "DELETE"))) return NULL;
    rvi_seen *s = rvi_zalloc(sizeof *s);
    if (!s) {
        drop(w);
        return NULL;
    }
    rvi_sha256_init(&s->hash);
    s->keeps = w->contents;
    s->text.max = MOST_TEXT;
    return s;
}

void rvi_seen_add(rvi_seen *s, const char *bytes, size_t len)
{
    if (!s || !len) return;
    rvi_sha256_add(&s->hash, bytes, len);
    s->n_bytes += len;
    if (s->keeps && !rvi_buf_append(&s->text, bytes, len)) s->keeps = false;
}

static record *new_record(rvi_seen *s, const char *method, const char *path, const char *id)
{
    size_t m = strlen(method) + 1, p = strlen(path) + 1, i = strlen(id) + 1;
    record *r = rvi_zalloc(sizeof *r + m + p + i);
    if (!r) return NULL;
    r->method = memcpy(r + 1, method, m);
    r->path = memcpy(r->method + m, path, p);
    r->id = memcpy(r->path + p, id, i);
    r->seen = s;
    r->ms = now_ms();
    r->size = sizeof *r + sizeof *s + m + p + i + s->text.len;
    return r;
}

void rvi_witness_end(rvi_witness *w, rvi_seen *s, const char *method, const char *path,
                     const char *id, bool left, rvi_buf *body)
{
    if (!s) return;
    record *r = new_record(s, method, path, id);
    if (!r) {
        free_seen(s);
        drop(w);
        return;
    }
    r->left = left;
    r->body = *body;
    r->size += body->len;
    *body = (rvi_buf){.max = body->max};
    rvi_lock_take(w->lock);
    bool room = w->waiting + r->size <= MOST_WAITING;
    if (room) {
        w->waiting += r->size;
        if (w->last)
            w->last->next = r;
        else
            w->first = r;
        w->last = r;
    } else {
        w->dropped++;
    }
    rvi_lock_give(w->lock);
    if (room)
        rvi_wakeup_post(w->posted);
    else
        free_record(r);
}

void rvi_witness_counts(rvi_witness *w, uint64_t *records, uint64_t *dropped)
{
    rvi_lock_take(w->lock);
    *records = w->records;
    *dropped = w->dropped;
    rvi_lock_give(w->lock);
}

/* ---- lines ---- */

static void put_text(rvi_buf *out, const char *name, const char *text)
{
    rvi_buf_printf(out, ",\"%s\":", name);
    rvi_json_write_string(out, text, strlen(text));
}

static void begin_line(const rvi_witness *w, rvi_buf *line, long long ms, const char *kind)
{
    rvi_buf_printf(line, "{\"n\":%llu,\"ms\":%lld,\"kind\":\"%s\"", (unsigned long long)w->n + 1,
                   ms, kind);
}

/* Ends the line with the hash of the one before, and adds it to the batch. */
static bool end_line(rvi_witness *w, rvi_buf *line, rvi_buf *batch)
{
    rvi_sha256 h;
    rvi_buf_printf(line, ",\"prev\":\"%s\"}", w->head);
    if (line->failed || !rvi_buf_append(batch, line->data, line->len)) return false;
    rvi_buf_putc(batch, '\n');
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, line->data, line->len);
    rvi_sha256_end_hex(&h, w->head);
    w->n++;
    return !batch->failed;
}

static void keep(const rvi_witness *w, const char *side, const rvi_buf *bytes)
{
    rvi_buf path = {0};
    rv_error err;
    rvi_buf_printf(&path, "%s/contents/%012llu.%s", w->folder.data, (unsigned long long)w->n + 1,
                   side);
    FILE *f = path.failed ? NULL : fopen(path.data, "wb");
    if (f && (bytes->len ? rvi_os_write(f, bytes->data, bytes->len, path.data, &err) : RV_OK))
        (void)remove(path.data);
    if (f) (void)fclose(f);
    rvi_buf_deinit(&path);
}

static bool put_record(rvi_witness *w, record *r, rvi_buf *batch)
{
    char in[RVI_SHA256_HEX], out[RVI_SHA256_HEX];
    rvi_sha256 h;
    rvi_buf line = {0};
    bool teaches = strstr(r->path, "/feedback") || strstr(r->path, "/learning/");
    rvi_sha256_init(&h);
    rvi_sha256_add(&h, r->body.data, r->body.len);
    rvi_sha256_end_hex(&h, in);
    rvi_sha256_end_hex(&r->seen->hash, out);
    begin_line(w, &line, r->ms, teaches ? "feedback" : "request");
    put_text(&line, "method", r->method);
    put_text(&line, "path", r->path);
    put_text(&line, "id", r->id);
    put_text(&line, "who", r->seen->who);
    rvi_buf_printf(&line, ",\"status\":%d,\"left\":%s", r->seen->status,
                   r->left ? "true" : "false");
    rvi_buf_printf(&line, ",\"in\":\"%s\",\"in_bytes\":%zu,\"out\":\"%s\",\"out_bytes\":%llu", in,
                   r->body.len, out, (unsigned long long)r->seen->n_bytes);
    if (w->contents) keep(w, "in", &r->body);
    if (r->seen->keeps) keep(w, "out", &r->seen->text);
    rvi_buf_printf(&line, ",\"kept\":%s", w->contents ? "true" : "false");
    bool ok = end_line(w, &line, batch);
    rvi_buf_deinit(&line);
    return ok;
}

/* A line that only says what happened to the log. */
static bool put_note(rvi_witness *w, const char *kind, uint64_t count, rvi_buf *batch)
{
    rvi_buf line = {0};
    begin_line(w, &line, now_ms(), kind);
    if (count) rvi_buf_printf(&line, ",\"count\":%llu", (unsigned long long)count);
    bool ok = end_line(w, &line, batch);
    rvi_buf_deinit(&line);
    return ok;
}

/* ---- the file ---- */

static bool is_record(const char *line, size_t len, uint64_t *n)
{
    rvi_arena arena = {.max = MOST_LINE * 16};
    const rvi_json *v = NULL;
    rv_error err;
    bool ok = !rvi_json_parse(&v, line, len, &arena, "witness", &err) &&
              rvi_json_is(rvi_json_get(v, "n"), RVI_JSON_INT);
    if (ok) *n = (uint64_t)rvi_json_int(rvi_json_get(v, "n"), 0);
    rvi_arena_deinit(&arena);
    return ok;
}

/* Number and hash of the last line of the file's end. A line that a crash cut short has no number,
 * but the chain goes over it. *whole: the file ends with a line's end. */
static void read_end(rvi_witness *w, const char *text, size_t len, bool *whole)
{
    rvi_sha256 h;
    *whole = !len || text[len - 1] == '\n';
    size_t end = len - (len && *whole);
    for (bool last = true; end || last; last = false) {
        size_t begin = end;
        while (begin && text[begin - 1] != '\n') begin--;
        if (last && len) {
            rvi_sha256_init(&h);
            rvi_sha256_add(&h, text + begin, end - begin);
            rvi_sha256_end_hex(&h, w->head);
        }
        if (is_record(text + begin, end - begin, &w->n) || !begin) return;
        end = begin - 1;
    }
}

/* Goes on where the file ends. */
static rv_status open_file(rvi_witness *w, rv_error *err)
{
    const char *path = w->path.data;
    rvi_buf text = {0};
    bool whole = true;
    w->n = 0;
    memset(w->head, '0', sizeof w->head - 1);
    FILE *f = fopen(path, "rb");
    if (f) {
        bool ok = !fseek(f, 0, SEEK_END) && ftell(f) >= 0;
        long size = ok ? ftell(f) : 0, from = RVI_MAX(size - (long)MOST_END, 0L);
        ok = ok && rvi_buf_reserve(&text, (size_t)(size - from) + 1) && !fseek(f, from, SEEK_SET) &&
             fread(text.data, 1, (size_t)(size - from), f) == (size_t)(size - from);
        (void)fclose(f);
        if (ok) read_end(w, text.data, (size_t)(size - from), &whole);
        rvi_buf_deinit(&text);
        if (!ok) return rvi_error(err, RV_E_IO, "%s cannot be read", path);
    }
    rvi_os_private_files(true);
    w->f = fopen(path, "ab");
    rvi_os_private_files(false);
    if (!w->f) return rvi_error(err, RV_E_IO, "%s: %s", path, strerror(errno));
    return whole ? RV_OK : rvi_os_write(w->f, "\n", 1, path, err);
}

/* ---- the store: table "witness" has the number and hash of the last line ---- */

static int take_head(void *ctx, rv_bytes key, rv_bytes found)
{
    rvi_witness *w = ctx;
    const char *p = found.data;
    (void)key;
    if (found.len <= RVI_SHA256_HEX) return 1;
    memcpy(w->head, p, RVI_SHA256_HEX - 1);
    for (size_t i = RVI_SHA256_HEX; i < found.len; i++) w->n = 10 * w->n + (uint64_t)(p[i] - '0');
    return 1;
}

/* Others wait until the transaction ends. */
static rv_status begin_stored(rvi_witness *w, rv_error *err)
{
    const rv_store *s = &w->store;
    w->n = 0;
    memset(w->head, '0', sizeof w->head - 1);
    rv_status st = s->begin(s->ctx, 1, err);
    if (st) return st;
    st = s->get(s->ctx, "witness", (rv_bytes){"head", 4}, take_head, w, err);
    if (st) s->rollback(s->ctx);
    return st;
}

static rv_status write_stored(rvi_witness *w, const rvi_buf *batch, rv_error *err)
{
    const rv_store *s = &w->store;
    char head[RVI_SHA256_HEX + 24];
    uint64_t seq;
    rv_status st = RV_OK;
    for (const char *at = batch->data, *end = at + batch->len; !st && at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        st = s->append(s->ctx, "witness", (rv_bytes){at, (size_t)(stop - at)}, &seq, err);
        at = stop + 1;
    }
    int len = snprintf(head, sizeof head, "%s %llu", w->head, (unsigned long long)w->n);
    if (!st)
        st = s->put(s->ctx, "witness", (rv_bytes){"head", 4}, (rv_bytes){head, (size_t)len}, err);
    if (!st) return s->commit(s->ctx, err);
    s->rollback(s->ctx);
    return st;
}

/* ---- writing ---- */

static rv_status write_file(rvi_witness *w, const rvi_buf *batch, rv_error *err)
{
    rv_status st = rvi_os_write(w->f, batch->data, batch->len, w->path.data, err);
    return st ? st : rvi_os_sync(w->f, w->path.data, err);
}

/* A batch begins where the log ends. */
static bool begin_batch(rvi_witness *w)
{
    rv_error err = {0};
    if (w->store.append) return !begin_stored(w, &err);
    return w->f || !open_file(w, &err);
}

/* Some lines, whole on the disk; false: none of them counts. */
static bool write_batch(rvi_witness *w, const rvi_buf *batch)
{
    rv_error err = {0};
    rv_status st = w->store.append ? write_stored(w, batch, &err) : write_file(w, batch, &err);
    if (st && !w->warned) fprintf(stderr, "ruvllm: warning: the witness log: %s\n", err.text);
    w->warned = st;
    return !st;
}

/* Where the disk fails, what could not be written is dropped. Part of it may stand there: the log
 * goes on from what does. */
static void write_records(rvi_witness *w, record *list, uint64_t untold)
{
    rvi_buf batch = {0};
    uint64_t written = 0, lost = 0;
    bool begun = begin_batch(w), ok = begun;
    ok = ok && (!untold || put_note(w, "dropped", untold, &batch));
    for (record *r = list, *next; r; r = next) {
        next = r->next;
        ok = ok && put_record(w, r, &batch);
        written++;
        free_record(r);
    }
    if (begun && !ok && w->store.append) w->store.rollback(w->store.ctx);
    ok = ok && write_batch(w, &batch);
    if (!ok) {
        if (w->f) (void)fclose(w->f);
        w->f = NULL;
        lost = written;
        written = untold = 0;
    }
    rvi_lock_take(w->lock);
    w->records += written;
    w->told += untold;
    w->dropped += lost;
    rvi_lock_give(w->lock);
    rvi_buf_deinit(&batch);
}

static void work(void *ctx)
{
    rvi_witness *w = ctx;
    bool stop = false;
    while (!stop) {
        rvi_lock_take(w->lock);
        record *list = w->first;
        uint64_t untold = w->dropped - w->told;
        w->first = w->last = NULL;
        w->waiting = 0;
        stop = w->stop;
        rvi_lock_give(w->lock);
        if (list || untold) write_records(w, list, untold);
        if (stop) break;
        if (list)
            rvi_thread_sleep(PAUSE); /* what comes meanwhile is one batch */
        else
            rvi_wakeup_wait(w->posted, 0);
    }
}

/* ---- lifetimes ---- */

static rv_status make_folder(rvi_witness *w, const char *folder, rv_error *err)
{
    rvi_buf inside = {0};
    rvi_buf_puts(&w->folder, folder);
    rvi_buf_printf(&w->path, "%s/witness.jsonl", folder);
    rvi_buf_printf(&inside, "%s/contents", folder);
    rv_status st = w->folder.failed || w->path.failed || inside.failed
                       ? rvi_nomem(err, "witness log")
                       : rvi_os_make_private_dirs(w->contents ? inside.data : folder, err);
    inside.len = 0;
    rvi_buf_printf(&inside, "%s/lock", folder);
    if (!st && inside.failed) st = rvi_nomem(err, "witness log");
    if (!st) st = rvi_os_lock(inside.data, &w->lock_file, err);
    w->locked = !st;
    rvi_buf_deinit(&inside);
    return st;
}

rv_status rvi_witness_open(rvi_witness **out, const char *folder, const rv_store *store,
                           bool contents, rv_error *err)
{
    rvi_buf first = {0};
    rvi_witness *w = *out = rvi_zalloc(sizeof *w);
    if (!w) return rvi_nomem(err, "witness log");
    w->contents = contents;
    if (store) w->store = *store;
    rv_status st = store ? begin_stored(w, err) : make_folder(w, folder, err);
    if (!st && !store) st = open_file(w, err);
    if (!st && !(put_note(w, "start", 0, &first) && write_batch(w, &first)))
        st = rvi_error(err, RV_E_IO, "%s cannot be written",
                       store ? "the witness log" : w->path.data);
    rvi_buf_deinit(&first);
    if (!st) st = rvi_lock_new(&w->lock, err);
    if (!st) st = rvi_wakeup_new(&w->posted, err);
    if (!st) st = rvi_thread_start(&w->thread, work, w, false, err);
    if (st) {
        rvi_witness_close(w);
        *out = NULL;
    }
    return st;
}

void rvi_witness_close(rvi_witness *w)
{
    if (!w) return;
    if (w->thread) {
        rvi_lock_take(w->lock);
        w->stop = true;
        rvi_lock_give(w->lock);
        rvi_wakeup_post(w->posted);
        rvi_thread_join(w->thread);
    }
    if (w->f) (void)fclose(w->f);
    if (w->locked) rvi_os_unlock(w->lock_file);
    rvi_wakeup_free(w->posted);
    rvi_lock_free(w->lock);
    rvi_buf_deinit(&w->folder);
    rvi_buf_deinit(&w->path);
    rvi_free(w);
}
