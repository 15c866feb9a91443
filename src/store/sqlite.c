/* sqlite.c - rv_store on one SQLite file: ruvllm_store.h says what it promises. An open transaction
 * is rolled back when the store is closed. */
#include "store/store.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/thread.h"

enum {
    SCHEMA_VERSION = 1,
    APPLICATION_ID = 0x7276534C, /* "rvSL" in the file's header: this program's store */
    WAL_KEEP = 4 << 20,          /* bytes the -wal file is cut back to after a checkpoint */
};

/* Each statement is compiled once. */
#define STATEMENTS                                                                                 \
    X(APPEND, "INSERT INTO stream (name, seq, record) SELECT ?1, coalesce(max(seq), 0) + 1, ?2 "   \
              "FROM stream WHERE name = ?1 RETURNING seq")                                         \
    X(PUT, "INSERT INTO item (name, key, record) VALUES (?1, ?2, ?3) "                             \
           "ON CONFLICT (name, key) DO UPDATE SET record = ?3")                                    \
    X(GET, "SELECT record FROM item WHERE name = ?1 AND key = ?2")                                 \
    X(REMOVE, "DELETE FROM item WHERE name = ?1 AND key = ?2")                                     \
    X(SCAN, "SELECT key, record FROM item WHERE name = ?1 AND key >= ?2 ORDER BY key")             \
    X(READ, "SELECT seq, record FROM stream WHERE name = ?1 AND seq >= ?2 ORDER BY seq")           \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")

#define X(name, sql) name,
enum { STATEMENTS N_STATEMENTS };
#undef X

static const char *const sources[] = {
#define X(name, sql) sql,
    STATEMENTS
#undef X
};

static const char schema[] =
    "CREATE TABLE stream (name TEXT NOT NULL, seq INTEGER NOT NULL, record BLOB NOT NULL, "
    "PRIMARY KEY (name, seq)) STRICT;"
    "CREATE TABLE item (name TEXT NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL, "
    "PRIMARY KEY (name, key)) STRICT;";

/* A lock of the file by a name, while lock >= 0. */
typedef struct held {
    char what[24];
    int lock;
} held;

enum { MOST_HELD = 4 };

typedef struct file {
    rvi_opened opened;
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
    int busy_ms;
    int synchronous; /* 1: NORMAL, 2: FULL, as SQLite numbers them */
    bool in_transaction;
    char *path;
    int open_lock; /* shared by all who have it open: a damaged file is not replaced under them */
    /* where it is shared */
    char *appended;        /* a file with a byte for every commit that appended; NULL: not shared */
    bool appends;          /* the transaction does */
    _Atomic uint64_t seen; /* bytes of it */
    held held[MOST_HELD];
} file;

/* ---- errors ---- */

static bool is_damage(int code)
{
    return (code & 0xFF) == SQLITE_CORRUPT || (code & 0xFF) == SQLITE_NOTADB;
}

/* A file of this name beside the database makes the next who opens it check all of it. */
static bool suspect_file(const file *f, rvi_buf *out)
{
    return rvi_buf_printf(out, "%s-suspect", f->path);
}

/* The status for what the database said last. */
static rv_status fail(const file *f, const char *doing, rv_error *err)
{
    int code = f->db ? sqlite3_extended_errcode(f->db) : SQLITE_NOMEM;
    rvi_buf suspect = {0};
    if (is_damage(code) && suspect_file(f, &suspect)) rvi_os_touch_private(suspect.data);
    rvi_buf_deinit(&suspect);
    int system = f->db ? sqlite3_system_errno(f->db) : 0;
    switch (code & 0xFF) {
    case SQLITE_NOMEM: return rvi_nomem(err, "database");
    case SQLITE_BUSY:
        return rvi_error(err, RV_E_STORAGE,
                         "%s: cannot %s: another process was writing for more than %d ms", f->path,
                         doing, f->busy_ms);
    case SQLITE_FULL:
        return rvi_error(err, RV_E_STORAGE, "%s: cannot %s: the disk is full", f->path, doing);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (code == SQLITE_IOERR_NOMEM) return rvi_nomem(err, "database");
        return rvi_error(err, RV_E_STORAGE, "%s: cannot %s: %s (%s)", f->path, doing,
                         sqlite3_errmsg(f->db), system ? strerror(system) : "no reason given");
    default:
        return rvi_error(err, RV_E_STORAGE, "%s: cannot %s: %s", f->path, doing,
                         sqlite3_errmsg(f->db));
    }
}

static rv_status fail_record(const file *f, const char *name, rv_error *err)
{
    return rvi_error(err, RV_E_STORAGE, "%s: %s holds data that this program did not write",
                     f->path, name);
}

static rv_status execute(file *f, const char *sql, const char *doing, rv_error *err)
{
    return sqlite3_exec(f->db, sql, NULL, NULL, NULL) ? fail(f, doing, err) : RV_OK;
}

/* ---- statements ---- */

/* A statement with its first parameter, the name. */
static sqlite3_stmt *start(file *f, int which, const char *name, bool *ok)
{
    sqlite3_stmt *s = f->statements[which];
    *ok = !sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    return s;
}

/* An empty blob, where a NULL pointer would make SQL's NULL. */
static bool bind_bytes(sqlite3_stmt *s, int at, rv_bytes b)
{
    return !sqlite3_bind_blob(s, at, b.len ? b.data : "", (int)b.len, SQLITE_STATIC);
}

static void finish(sqlite3_stmt *s)
{
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
}

static bool column_bytes(sqlite3_stmt *s, int column, size_t max, rv_bytes *out)
{
    *out = (rv_bytes){sqlite3_column_blob(s, column), (size_t)sqlite3_column_bytes(s, column)};
    return out->len <= max && (out->data || !out->len);
}

/* How far a commit goes from now on; it cannot change inside a transaction. */
static rv_status synchronise(file *f, bool durable, rv_error *err)
{
    int wanted = durable ? 2 : 1;
    if (f->in_transaction || f->synchronous == wanted) return RV_OK;
    rv_status st = execute(f, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
                           "set its durability", err);
    f->synchronous = st ? 0 : wanted;
    return st;
}

/* Others look at its length. Where it cannot be written they learn of it with their own next
 * append. */
static void tell_others(file *f)
{
    uint64_t seen = atomic_load(&f->seen);
    FILE *to = f->appended ? fopen(f->appended, "ab") : NULL;
    if (!to) return;
    bool ok = fputc('.', to) != EOF;
    /* unless another thread has looked meanwhile, perhaps behind this byte */
    if (!fclose(to) && ok) (void)atomic_compare_exchange_strong(&f->seen, &seen, seen + 1);
}

static rv_status file_append(void *ctx, const char *stream, rv_bytes record, uint64_t *seq,
                             rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = synchronise(f, true, err);
    if (st) return st;
    sqlite3_stmt *s = start(f, APPEND, stream, &ok);
    ok = ok && bind_bytes(s, 2, record) && sqlite3_step(s) == SQLITE_ROW;
    if (ok) *seq = (uint64_t)sqlite3_column_int64(s, 0);
    ok = ok && sqlite3_step(s) == SQLITE_DONE; /* outside a transaction: this commits */
    if (!ok) st = fail(f, "append", err);
    finish(s);
    if (f->in_transaction)
        f->appends = f->appends || ok;
    else if (ok)
        tell_others(f);
    return st;
}

static rv_status file_put(void *ctx, const char *table, rv_bytes key, rv_bytes record,
                          rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = synchronise(f, false, err);
    if (st) return st;
    sqlite3_stmt *s = start(f, PUT, table, &ok);
    if (!ok || !bind_bytes(s, 2, key) || !bind_bytes(s, 3, record) ||
        sqlite3_step(s) != SQLITE_DONE)
        st = fail(f, "write", err);
    finish(s);
    return st;
}

static rv_status file_get(void *ctx, const char *table, rv_bytes key, rvi_item_fn each,
                          void *each_ctx, rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = RV_OK;
    rv_bytes record;
    sqlite3_stmt *s = start(f, GET, table, &ok);
    int code = ok && bind_bytes(s, 2, key) ? sqlite3_step(s) : SQLITE_ERROR;
    if (code == SQLITE_ROW) {
        if (!column_bytes(s, 0, RVI_STORE_RECORD_BYTES, &record))
            st = sqlite3_errcode(f->db) == SQLITE_NOMEM ? rvi_nomem(err, "record")
                                                        : fail_record(f, table, err);
        else
            (void)each(each_ctx, key, record);
    } else if (code != SQLITE_DONE)
        st = fail(f, "read", err);
    finish(s);
    return st;
}

static rv_status file_remove(void *ctx, const char *table, rv_bytes key, rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = synchronise(f, false, err);
    if (st) return st;
    sqlite3_stmt *s = start(f, REMOVE, table, &ok);
    if (!ok || !bind_bytes(s, 2, key) || sqlite3_step(s) != SQLITE_DONE) st = fail(f, "write", err);
    finish(s);
    return st;
}

static rv_status file_scan(void *ctx, const char *table, rv_bytes from, rvi_item_fn each,
                           void *each_ctx, rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = RV_OK;
    rv_bytes key, record;
    sqlite3_stmt *s = start(f, SCAN, table, &ok);
    int code = ok && bind_bytes(s, 2, from) ? sqlite3_step(s) : SQLITE_ERROR;
    for (; !st && code == SQLITE_ROW; code = sqlite3_step(s)) {
        if (!column_bytes(s, 0, RVI_STORE_KEY_BYTES, &key) ||
            !column_bytes(s, 1, RVI_STORE_RECORD_BYTES, &record))
            st = sqlite3_errcode(f->db) == SQLITE_NOMEM ? rvi_nomem(err, "record")
                                                        : fail_record(f, table, err);
        if (st || each(each_ctx, key, record)) break;
    }
    if (!st && code != SQLITE_DONE && code != SQLITE_ROW) st = fail(f, "read", err);
    finish(s);
    return st;
}

static rv_status file_read(void *ctx, const char *stream, uint64_t from, rvi_record_fn each,
                           void *each_ctx, rv_error *err)
{
    file *f = ctx;
    bool ok;
    rv_status st = RV_OK;
    rv_bytes record;
    sqlite3_stmt *s = start(f, READ, stream, &ok);
    sqlite3_int64 first = from > INT64_MAX ? INT64_MAX : (sqlite3_int64)from;
    int code = ok && !sqlite3_bind_int64(s, 2, first) ? sqlite3_step(s) : SQLITE_ERROR;
    for (; !st && code == SQLITE_ROW; code = sqlite3_step(s)) {
        if (!column_bytes(s, 1, RVI_STORE_RECORD_BYTES, &record))
            st = sqlite3_errcode(f->db) == SQLITE_NOMEM ? rvi_nomem(err, "record")
                                                        : fail_record(f, stream, err);
        if (st || each(each_ctx, (uint64_t)sqlite3_column_int64(s, 0), record)) break;
    }
    if (!st && code != SQLITE_DONE && code != SQLITE_ROW) st = fail(f, "read", err);
    finish(s);
    return st;
}

/* ---- transactions ---- */

static void file_rollback(void *ctx)
{
    file *f = ctx;
    if (!sqlite3_get_autocommit(f->db)) { /* some failures have rolled back already */
        (void)sqlite3_step(f->statements[ROLLBACK]);
        sqlite3_reset(f->statements[ROLLBACK]);
    }
    f->in_transaction = f->appends = false;
}

static rv_status file_begin(void *ctx, int durable, rv_error *err)
{
    file *f = ctx;
    rv_status st = synchronise(f, durable != 0, err);
    if (st) return st;
    if (sqlite3_step(f->statements[BEGIN]) != SQLITE_DONE) st = fail(f, "begin to write", err);
    sqlite3_reset(f->statements[BEGIN]);
    f->in_transaction = !st;
    return st;
}

static rv_status file_commit(void *ctx, rv_error *err)
{
    file *f = ctx;
    rv_status st = RV_OK;
    if (sqlite3_get_autocommit(f->db)) /* a failure that the caller has overlooked */
        st = rvi_error(err, RV_E_STORAGE, "%s: the transaction was rolled back", f->path);
    else if (sqlite3_step(f->statements[COMMIT]) != SQLITE_DONE)
        st = fail(f, "write", err);
    sqlite3_reset(f->statements[COMMIT]);
    if (st) file_rollback(f);
    if (f->appends) tell_others(f);
    f->in_transaction = f->appends = false;
    return st;
}

/* ---- processes that share the file ---- */

static held *find_held(file *f, const char *what)
{
    for (size_t i = 0; i < MOST_HELD; i++)
        if (!strcmp(f->held[i].what, what)) return &f->held[i];
    return NULL;
}

/* The kernel gives it back with the process. */
static rv_status file_lock(void *ctx, const char *what, int wait_ms, rv_error *err)
{
    static const double moment = 0.004;
    file *f = ctx;
    rvi_buf path = {0};
    rv_error why = {0};
    double end = rvi_os_seconds() + wait_ms / 1000.0;
    held *h = find_held(f, what) ? NULL : find_held(f, "");
    if (!h || strlen(what) >= sizeof h->what)
        return rvi_error(err, RV_E_INVALID, "the lock '%s' is held already, or too many are", what);
    if (!rvi_buf_printf(&path, "%s-%s.lock", f->path, what)) {
        rvi_buf_deinit(&path);
        return rvi_nomem(err, "path");
    }
    rv_status st;
    while ((st = rvi_os_lock(path.data, &h->lock, &why)) == RV_E_STORAGE && rvi_os_seconds() < end)
        rvi_thread_sleep(moment);
    if (!st)
        snprintf(h->what, sizeof h->what, "%s", what);
    else if (st == RV_E_STORAGE)
        st = rvi_error(err, st, "%s: another process has had the lock '%s' for %d ms", f->path,
                       what, wait_ms);
    else if (err)
        *err = why;
    rvi_buf_deinit(&path);
    return st;
}

static void file_unlock(void *ctx, const char *what)
{
    held *h = find_held(ctx, what);
    if (!h || !*what) return;
    rvi_os_unlock(h->lock);
    *h = (held){.lock = -1};
}

static int file_changed(void *ctx)
{
    file *f = ctx;
    uint64_t size = 0;
    if (rvi_os_stat(f->appended, &size) == RVI_OS_NONE) size = 0;
    return atomic_exchange(&f->seen, size) != size;
}

static rv_status share(file *f, rv_error *err)
{
    rvi_buf name = {0};
    atomic_init(&f->seen, UINT64_MAX); /* nobody has looked yet */
    for (size_t i = 0; i < MOST_HELD; i++) f->held[i].lock = -1;
    if (!rvi_buf_printf(&name, "%s-appended", f->path)) {
        rvi_buf_deinit(&name);
        return rvi_nomem(err, "path");
    }
    f->appended = name.data;
    rvi_os_touch_private(f->appended);
    return RV_OK;
}

/* ---- opening and closing ---- */

static void close_database(file *f)
{
    for (size_t i = 0; i < N_STATEMENTS; i++) sqlite3_finalize(f->statements[i]);
    memset(f->statements, 0, sizeof f->statements);
    sqlite3_close(f->db);
    f->db = NULL;
}

/* As one of those who have the file open, or alone; last: only to remove the file of the lock.
 * Where nothing can be locked it stays open to all, and a damaged file where it is. */
static rv_status lock_open(file *f, bool alone, bool last, rv_error *err)
{
    static const double moment = 0.01;
    rvi_buf path = {0};
    double end = rvi_os_seconds() + (alone ? 0 : f->busy_ms / 1000.0);
    rvi_os_unlock(f->open_lock);
    f->open_lock = -1;
    rv_status st = rvi_buf_printf(&path, "%s-open.lock", f->path) ? RV_OK : rvi_nomem(err, "path");
    while (!st &&
           (st = alone ? rvi_os_lock(path.data, &f->open_lock, err)
                       : rvi_os_lock_shared(path.data, &f->open_lock, err)) == RV_E_STORAGE &&
           rvi_os_seconds() < end) {
        rvi_thread_sleep(moment);
        st = RV_OK;
    }
    if (!st && alone && last) (void)remove(path.data);
    rvi_buf_deinit(&path);
    return alone || st == RV_E_NOMEM || st == RV_E_STORAGE ? st : RV_OK;
}

static void file_close(void *ctx)
{
    file *f = ctx;
    close_database(f);
    for (size_t i = 0; f->appended && i < MOST_HELD; i++) rvi_os_unlock(f->held[i].lock);
    rv_status alone = f->open_lock >= 0 ? lock_open(f, true, true, NULL) : RV_OK;
    (void)alone; /* otherwise others have it open */
    rvi_os_unlock(f->open_lock);
    rvi_free(f->appended);
    rvi_free(f->path);
    rvi_free(f);
}

/* One value of one row, as a number; a text as 1 if it equals `equal`, else 0. */
static rv_status ask(file *f, const char *sql, const char *equal, int64_t *out, rv_error *err)
{
    sqlite3_stmt *s = NULL;
    *out = 0;
    rv_status st = RV_OK;
    if (sqlite3_prepare_v2(f->db, sql, -1, &s, NULL) || sqlite3_step(s) != SQLITE_ROW)
        st = fail(f, "open", err);
    else if (!equal)
        *out = sqlite3_column_int64(s, 0);
    else {
        const unsigned char *text = sqlite3_column_text(s, 0);
        *out = text && !strcmp((const char *)text, equal);
    }
    sqlite3_finalize(s);
    return st;
}

/* Under the write lock: two processes may open a new file at once. */
static rv_status make_schema(file *f, rv_error *err)
{
    int64_t version = 0, id = 0, n_objects = 0;
    char sql[128];
    rv_status st = execute(f, "BEGIN IMMEDIATE", "open", err);
    if (!st) st = ask(f, "PRAGMA user_version", NULL, &version, err);
    if (!st) st = ask(f, "PRAGMA application_id", NULL, &id, err);
    if (!st) st = ask(f, "SELECT count(*) FROM sqlite_schema", NULL, &n_objects, err);
    if (!st && (n_objects || version || id) && id != APPLICATION_ID)
        st = rvi_error(err, RV_E_STORAGE, "%s: a database of another program", f->path);
    if (!st && version > SCHEMA_VERSION)
        st = rvi_error(err, RV_E_STORAGE,
                       "%s: written by a later version of this program (layout %lld, known %d)",
                       f->path, (long long)version, (int)SCHEMA_VERSION);
    if (!st && !version) {
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 (int)APPLICATION_ID, (int)SCHEMA_VERSION);
        st = execute(f, schema, "create its tables", err);
        if (!st) st = execute(f, sql, "create its tables", err);
    }
    if (!st) st = execute(f, "COMMIT", "open", err);
    if (st && !sqlite3_get_autocommit(f->db))
        (void)sqlite3_exec(f->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

static rv_status configure(file *f, rv_error *err)
{
    int64_t ok = 0;
    char sql[64];
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_busy_timeout(f->db, f->busy_ms);
    snprintf(sql, sizeof sql, "PRAGMA journal_size_limit = %d", (int)WAL_KEEP);
    /* what is removed is overwritten: adapters that learned what was forgotten */
    rv_status st =
        execute(f, "PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON", "open", err);
    if (!st) st = execute(f, sql, "open", err);
    /* a file just being changed to WAL answers "busy" without waiting */
    for (int waited = 0; !st; waited += 10) {
        st = ask(f, "PRAGMA journal_mode = WAL", "wal", &ok, NULL);
        if (!st || sqlite3_errcode(f->db) != SQLITE_BUSY || waited >= f->busy_ms) {
            if (st) st = fail(f, "open", err);
            break;
        }
        st = RV_OK;
        sqlite3_sleep(10);
    }
    if (!st && !ok)
        st = rvi_error(err, RV_E_STORAGE, "%s: the file system cannot hold a write-ahead log",
                       f->path);
    return st;
}

static rv_status prepare(file *f, rv_error *err)
{
    for (size_t i = 0; i < N_STATEMENTS; i++)
        if (sqlite3_prepare_v3(f->db, sources[i], -1, SQLITE_PREPARE_PERSISTENT, &f->statements[i],
                               NULL))
            return fail(f, "open", err);
    return RV_OK;
}

/* Streams are checked at every opening, of tables whether all of their records are found: these may
 * be large, and whoever uses one compares it with its hash. Once a record cannot be read, all
 * is. */
static rv_status check(file *f, bool *sound, rv_error *err)
{
    int64_t ok = 0, all_found = 0;
    rvi_buf suspect = {0};
    bool all = suspect_file(f, &suspect) && rvi_os_stat(suspect.data, NULL) != RVI_OS_NONE;
    rv_status st =
        ask(f, all ? "PRAGMA quick_check(1)" : "PRAGMA quick_check(stream)", "ok", &ok, err);
    /* at once: others may write between two statements */
    if (!st)
        st = ask(f, "SELECT (SELECT count(*) FROM item) = (SELECT count(*) FROM item NOT INDEXED)",
                 NULL, &all_found, err);
    *sound = ok && all_found;
    if (!st && all && *sound) (void)remove(suspect.data);
    rvi_buf_deinit(&suspect);
    return st;
}

/* *damaged: the failure is the file's, not the machine's. */
static rv_status open_database(file *f, bool *damaged, rv_error *err)
{
    bool sound = false;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    rvi_os_touch_private(f->path); /* SQLite gives its other files the rights of this one */
    rv_status st = sqlite3_open_v2(f->path, &f->db, flags, NULL) ? fail(f, "open", err) : RV_OK;
    if (!st) {
        sqlite3_extended_result_codes(f->db, 1);
        st = configure(f, err);
    }
    if (!st) st = make_schema(f, err);
    if (!st) {
        st = check(f, &sound, err);
        if (!st && !sound) {
            *damaged = true;
            return rvi_error(err, RV_E_STORAGE, "%s: the database file is inconsistent", f->path);
        }
    }
    if (!st) st = synchronise(f, true, err);
    if (!st) st = prepare(f, err);
    *damaged = st && f->db && is_damage(sqlite3_extended_errcode(f->db));
    return st;
}

static rv_status move_beside(const char *path, const char *suffix, int number, rv_error *err)
{
    rvi_buf from = {0}, to = {0};
    rv_status st = RV_OK;
    if (!rvi_buf_printf(&from, "%s%s", path, suffix) ||
        !rvi_buf_printf(&to, "%s.damaged-%d%s", path, number, suffix))
        st = rvi_nomem(err, "path");
    else if (rvi_os_stat(from.data, NULL) != RVI_OS_NONE)
        st = rvi_os_replace(from.data, to.data, err);
    rvi_buf_deinit(&from);
    rvi_buf_deinit(&to);
    return st;
}

/* The database and its write-ahead log get a free name, together, so that they can be looked
 * into. */
static rv_status set_aside(const char *path, int *number, rv_error *err)
{
    enum { MOST = 10000 };
    for (*number = 1; *number < MOST; ++*number) {
        rvi_buf name = {0};
        if (!rvi_buf_printf(&name, "%s.damaged-%d", path, *number)) {
            rvi_buf_deinit(&name);
            return rvi_nomem(err, "path");
        }
        bool taken = rvi_os_stat(name.data, NULL) != RVI_OS_NONE;
        rvi_buf_deinit(&name);
        if (!taken) break;
    }
    if (*number == MOST)
        return rvi_error(err, RV_E_STORAGE, "%s: damaged, and so are %d before it", path, MOST);
    rv_status st = move_beside(path, "-suspect", *number, err);
    if (!st) st = move_beside(path, "-wal", *number, err);
    if (!st) st = move_beside(path, "-shm", *number, err);
    return st ? st : move_beside(path, "", *number, err);
}

/* Streams are the truth that tables follow from: as many of their records as can be read, in order,
 * go into a new database. Returns how many. */
static int64_t copy_streams(file *from, file *to)
{
    int64_t n = 0;
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(from->db, "SELECT name, seq, record FROM stream NOT INDEXED", -1, &s,
                           NULL) ||
        file_begin(to, 1, NULL)) {
        sqlite3_finalize(s);
        return 0;
    }
    while (sqlite3_step(s) == SQLITE_ROW) {
        rv_bytes record;
        uint64_t seq = 0;
        const char *name = (const char *)sqlite3_column_text(s, 0);
        if (!name || !column_bytes(s, 2, RVI_STORE_RECORD_BYTES, &record) ||
            file_append(to, name, record, &seq, NULL) ||
            seq != (uint64_t)sqlite3_column_int64(s, 1)) {
            file_rollback(to); /* one is missing: what comes after it is of no use */
            n = 0;
            break;
        }
        n++;
    }
    sqlite3_finalize(s);
    return n && !file_commit(to, NULL) ? n : 0;
}

/* Into PATH.recovered, which is to take the damaged file's place; 0: there is no such file. */
static int64_t recover(file *from)
{
    rvi_buf name = {0};
    bool damaged;
    file *to = rvi_zalloc(sizeof *to);
    if (!to || !rvi_buf_printf(&name, "%s.recovered", from->path)) {
        rvi_free(to);
        rvi_buf_deinit(&name);
        return 0;
    }
    to->path = name.data;
    to->busy_ms = from->busy_ms;
    to->open_lock = -1;
    (void)remove(to->path); /* of an incomplete attempt */
    int64_t n = open_database(to, &damaged, NULL) ? 0 : copy_streams(from, to);
    if (!n) (void)remove(to->path);
    file_close(to);
    return n;
}

static rv_status put_recovered(const char *path, rv_error *err)
{
    rvi_buf name = {0};
    rv_status st = rvi_buf_printf(&name, "%s.recovered", path) ? RV_OK : rvi_nomem(err, "path");
    if (!st) st = rvi_os_replace(name.data, path, err);
    rvi_buf_deinit(&name);
    return st;
}

/* The damaged file gets another name, and what can be read of its log takes its place. */
static rv_status replace(file *f, const char *why, rv_error *err)
{
    int number = 0;
    rv_error moving = {0};
    /* closing must not write the log into the database, or delete it */
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    int64_t n = f->db ? recover(f) : 0;
    if (set_aside(f->path, &number, &moving) || (n && put_recovered(f->path, &moving)))
        return rvi_error(err, RV_E_STORAGE, "%s; it cannot be set aside: %s", why, moving.text);
    if (n)
        return rvi_error(err, RV_E_STORAGE,
                         "%s; the damaged file is kept as %s.damaged-%d, the next start begins "
                         "with the %lld records of its log",
                         why, f->path, number, (long long)n);
    return rvi_error(err, RV_E_STORAGE,
                     "%s; the damaged file is kept as %s.damaged-%d, the next start begins with an "
                     "empty one",
                     why, f->path, number);
}

/* Nobody else has it open then, or it stays as it is. */
static rv_status open_sound(file *f, rv_error *err)
{
    bool damaged = false;
    rv_error why = {0};
    rv_status st = lock_open(f, false, false, err);
    if (st) return st;
    st = open_database(f, &damaged, &why);
    if (damaged && lock_open(f, true, false, NULL))
        return rvi_error(
            err, RV_E_STORAGE,
            "%s; another process has it open, so it is left as it is: end all that use "
            "it, and the next start sets it aside",
            why.text);
    if (damaged) { /* another may have replaced it before it was locked */
        sqlite3_db_config(f->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
        close_database(f);
        damaged = false;
        st = open_database(f, &damaged, &why);
        if (damaged) return replace(f, why.text, err);
        if (!st) st = lock_open(f, false, false, &why);
    }
    return st ? rvi_error(err, st, "%s", why.text) : RV_OK;
}

rv_status rvi_sqlite_open(rv_store *out, const char *path, const rv_store_options *o, rv_error *err)
{
    file *f = rvi_zalloc(sizeof *f);
    rvi_buf name = {0};
    /* "./" keeps SQLite from seeing a special name in a plain one */
    if (!f || !rvi_buf_printf(&name, "%s%s", path[0] == '/' ? "" : "./", path)) {
        rvi_free(f);
        rvi_buf_deinit(&name);
        return rvi_nomem(err, "store");
    }
    f->opened.close = file_close;
    f->path = name.data;
    f->busy_ms = o->busy_ms;
    f->open_lock = -1;
    rv_status st = open_sound(f, err);
    if (!st && o->shared) st = share(f, err);
    if (st) {
        file_close(f);
        return st;
    }
    *out = (rv_store){
        .ctx = f,
        .append = file_append,
        .put = file_put,
        .get = file_get,
        .remove = file_remove,
        .scan = file_scan,
        .read = file_read,
        .begin = file_begin,
        .commit = file_commit,
        .rollback = file_rollback,
    };
    if (o->shared) {
        out->lock = file_lock;
        out->unlock = file_unlock;
        out->changed = file_changed;
    }
    return RV_OK;
}
