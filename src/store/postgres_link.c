#include "store/postgres_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

enum { LAYOUT = 1 };

#define LOOK  0.03 /* seconds between two looks for notifications */
#define FIRST 0.1  /* seconds to the second attempt to connect; doubled each time, */
#define LAST  5.0  /* up to this */

static const struct {
    int n;
    const char *sql;
} statements[] = {
#define X(name, n, sql) {n, sql},
    RVI_PG_STATEMENTS
#undef X
};

/* Two processes may begin with the same empty database. */
static const char schema[] =
    "BEGIN; SELECT pg_advisory_xact_lock(8247345019823651921);"
    "CREATE TABLE IF NOT EXISTS ruvllm_stream (space text COLLATE \"C\", name text COLLATE \"C\", "
    "seq bigint, record bytea NOT NULL, PRIMARY KEY (space, name, seq));"
    "CREATE TABLE IF NOT EXISTS ruvllm_item (space text COLLATE \"C\", name text COLLATE \"C\", "
    "key bytea, record bytea NOT NULL, PRIMARY KEY (space, name, key));"
    "CREATE TABLE IF NOT EXISTS ruvllm_layout (version integer PRIMARY KEY);"
    "INSERT INTO ruvllm_layout SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM ruvllm_layout);"
    "COMMIT";

/* A commit waits for the disk only where a transaction says so. A connection whose other end has
 * gone without a word ends within half a minute, on either side. */
static const char settings[] =
    "SET synchronous_commit = off; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;"
    "SET tcp_keepalives_count = 3; SET idle_in_transaction_session_timeout = '60s';"
    "SET client_min_messages = error; LISTEN ruvllm";

/* ---- what went wrong ---- */

/* The first line of what libpq says. */
static int line_length(const char *text)
{
    return (int)strcspn(text, "\n");
}

rv_status rvi_pg_link_fail(rvi_pg_link *l, PGresult *r, const char *doing, rv_error *err)
{
    const char *text = r ? rvi_pq.resultErrorMessage(r) : "";
    const char *state = r ? rvi_pq.resultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    bool busy = state && !strcmp(state, "55P03");
    if (!*text) text = rvi_pq.errorMessage(l->conn);
    rv_status st = busy
                       ? rvi_error(err, RV_E_STORAGE,
                                   "%s: cannot %s: another process was writing for more than %d ms",
                                   l->name, doing, l->busy_ms)
                       : rvi_error(err, RV_E_STORAGE, "%s: cannot %s: %.*s", l->name, doing,
                                   line_length(text), text);
    rvi_pq.clear(r);
    if (rvi_pq.status(l->conn) != CONNECTION_OK) {
        atomic_store(&l->lost, true);
        rvi_wakeup_post(l->wakeup);
    }
    return st;
}

rv_status rvi_pg_link_do(rvi_pg_link *l, const char *sql, const char *doing, rv_error *err)
{
    PGresult *r = rvi_pq.exec(l->conn, sql);
    ExecStatusType got = rvi_pq.resultStatus(r);
    if (got != PGRES_COMMAND_OK && got != PGRES_TUPLES_OK)
        return rvi_pg_link_fail(l, r, doing, err);
    rvi_pq.clear(r);
    return RV_OK;
}

/* ---- connecting ---- */

static void be_silent(void *ctx, const char *message)
{
    (void)ctx;
    (void)message;
}

static rv_status failed_to_open(PGconn *c, PGresult *r, rv_error *err)
{
    const char *text = r ? rvi_pq.resultErrorMessage(r) : rvi_pq.errorMessage(c);
    rv_status st = rvi_error(err, RV_E_STORAGE, "the PostgreSQL database cannot be opened: %.*s",
                             line_length(text), text);
    rvi_pq.clear(r);
    return st;
}

static rv_status prepare_all(PGconn *c, rv_error *err)
{
    for (int i = 0; i < RVI_PG_N_STATEMENTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "rv%d", i);
        PGresult *r = rvi_pq.prepare(c, name, statements[i].sql, statements[i].n, NULL);
        if (rvi_pq.resultStatus(r) != PGRES_COMMAND_OK) return failed_to_open(c, r, err);
        rvi_pq.clear(r);
    }
    return RV_OK;
}

/* A number that a query gives; -1: none. */
static rv_status ask(PGconn *c, const char *sql, int *out, rv_error *err)
{
    PGresult *r = rvi_pq.exec(c, sql);
    if (rvi_pq.resultStatus(r) != PGRES_TUPLES_OK) return failed_to_open(c, r, err);
    *out = rvi_pq.ntuples(r) ? (int)strtol(rvi_pq.getvalue(r, 0, 0), NULL, 10) : -1;
    rvi_pq.clear(r);
    return RV_OK;
}

/* Where the tables are there, no right to make any is needed. */
static rv_status make_tables(PGconn *c, rv_error *err)
{
    int there, version;
    rv_status st = ask(c, "SELECT (to_regclass('ruvllm_layout') IS NOT NULL)::int", &there, err);
    if (!st && there != 1) {
        PGresult *r = rvi_pq.exec(c, schema);
        if (rvi_pq.resultStatus(r) != PGRES_COMMAND_OK) return failed_to_open(c, r, err);
        rvi_pq.clear(r);
    }
    if (!st) st = ask(c, "SELECT max(version) FROM ruvllm_layout", &version, err);
    if (!st && version != LAYOUT)
        st = rvi_error(err, RV_E_STORAGE,
                       "the PostgreSQL database was written by another version of this program "
                       "(layout %d, known %d)",
                       version, (int)LAYOUT);
    return st;
}

/* Is the value of an option what a host or a port may be? A password with a character that has a
 * meaning in URLs ends up in one of them. */
static bool is_plain(const PQconninfoOption *o)
{
    if (!o->val || (strcmp(o->keyword, "port") && strcmp(o->keyword, "host"))) return true;
    if (*o->keyword == 'p') return !o->val[strspn(o->val, "0123456789,")];
    return !strchr(o->val + (*o->val == '@'), '@'); /* a socket's name may begin with one */
}

/* libpq tells what is wrong with an address by quoting it; a password must not be told. */
static rv_status check_address(const char *url, rv_error *err)
{
    char *why = NULL;
    PQconninfoOption *all = rvi_pq.conninfoParse(url, &why);
    bool plain = all != NULL, secret = strchr(url, '@') || strstr(url, "password");
    for (const PQconninfoOption *o = all; o && o->keyword; o++) plain = plain && is_plain(o);
    rv_status st =
        plain ? RV_OK
        : why && !secret
            ? rvi_error(err, RV_E_CONFIG, "the address of the database: %.*s", line_length(why),
                        why)
            : rvi_error(err, RV_E_CONFIG,
                        "the address of the database cannot be read: it must be "
                        "postgres://USER:PASSWORD@HOST:PORT/DATABASE, and of a name or a "
                        "password the characters @ : / ? # %% [ ] are written as %%40 "
                        "and so on");
    rvi_pq.conninfoFree(all);
    if (why) rvi_pq.freemem(why);
    return st;
}

/* Options before the URL are for what it does not say. */
static rv_status connect_to(PGconn **out, const char *url, int busy_ms, rv_error *err)
{
    char sql[512];
    static const char *const keys[] = {
        "connect_timeout",     "application_name", "tcp_user_timeout", "keepalives_idle",
        "keepalives_interval", "keepalives_count", "dbname",           NULL};
    const char *const values[] = {"5", "ruvllm", "10000", "10", "5", "3", url, NULL};
    rv_status loaded = rvi_pq_load(err);
    if (!loaded) loaded = check_address(url, err);
    if (loaded) return loaded;
    PGconn *c = rvi_pq.connectdbParams(keys, values, 1);
    *out = NULL;
    if (!c) return rvi_nomem(err, "connection");
    rvi_pq.setNoticeProcessor(c, be_silent, NULL);
    rv_status st = rvi_pq.status(c) == CONNECTION_OK ? RV_OK : failed_to_open(c, NULL, err);
    snprintf(sql, sizeof sql, "SET lock_timeout = %d; SET statement_timeout = %d; %s", busy_ms,
             busy_ms + 20000, settings);
    if (!st) {
        PGresult *r = rvi_pq.exec(c, sql);
        if (rvi_pq.resultStatus(r) != PGRES_COMMAND_OK)
            st = failed_to_open(c, r, err);
        else
            rvi_pq.clear(r);
    }
    if (!st) st = make_tables(c, err);
    if (!st) st = prepare_all(c, err);
    if (st)
        rvi_pq.finish(c);
    else
        *out = c;
    return st;
}

/* ---- the thread ---- */

static void note_changes(rvi_pg_link *l, const char *tag)
{
    for (rvi_pg_store *s = l->stores; s; s = s->next)
        if (!tag || !strcmp(s->tag, tag)) atomic_store(&s->changed, true);
}

static void look(rvi_pg_link *l)
{
    PGnotify *n;
    rvi_lock_take(l->lock);
    if (!rvi_pq.consumeInput(l->conn) || rvi_pq.status(l->conn) != CONNECTION_OK)
        atomic_store(&l->lost, true);
    while ((n = rvi_pq.notifies(l->conn))) {
        if (n->be_pid != rvi_pq.backendPID(l->conn)) note_changes(l, n->extra);
        rvi_pq.freemem(n);
    }
    rvi_lock_give(l->lock);
}

static bool connect_again(rvi_pg_link *l)
{
    PGconn *fresh, *old;
    if (connect_to(&fresh, l->url, l->busy_ms, NULL)) return false;
    rvi_lock_take(l->lock);
    old = l->conn;
    l->conn = fresh;
    l->epoch++;
    note_changes(l, NULL);
    rvi_lock_give(l->lock);
    rvi_pq.finish(old);
    atomic_store(&l->lost, false);
    return true;
}

static void watch(void *ctx)
{
    rvi_pg_link *l = ctx;
    double pause = FIRST;
    while (!atomic_load(&l->stop)) {
        if (!atomic_load(&l->lost)) {
            look(l);
            rvi_wakeup_wait(l->wakeup, LOOK);
        } else if (connect_again(l)) {
            pause = FIRST;
        } else {
            rvi_wakeup_wait(l->wakeup, pause);
            pause = RVI_MIN(2 * pause, LAST);
        }
    }
}

/* ---- lifetimes ---- */

static void free_link(rvi_pg_link *l)
{
    atomic_store(&l->stop, true);
    if (l->thread) rvi_wakeup_post(l->wakeup);
    rvi_thread_join(l->thread);
    rvi_pq.finish(l->conn);
    rvi_wakeup_free(l->wakeup);
    rvi_lock_free(l->lock);
    rvi_free(l->url);
    rvi_free(l->name);
    rvi_free(l);
}

/* Without the password that a URL may have. */
static char *name_of(PGconn *c)
{
    rvi_buf out = {0};
    const char *host = rvi_pq.host(c);
    rvi_buf_printf(&out, "PostgreSQL database %s%s%s", rvi_pq.db(c), host && *host ? " at " : "",
                   host ? host : "");
    if (out.failed) rvi_buf_deinit(&out);
    return out.data;
}

rv_status rvi_pg_link_open(rvi_pg_link **out, const char *url, int busy_ms, rv_error *err)
{
    rvi_buf copy = {0};
    *out = NULL;
    rvi_pg_link *l = rvi_zalloc(sizeof *l);
    if (!l || !rvi_buf_puts(&copy, url)) {
        rvi_free(l);
        rvi_buf_deinit(&copy);
        return rvi_nomem(err, "connection");
    }
    l->url = copy.data;
    l->busy_ms = busy_ms;
    atomic_init(&l->lost, false);
    atomic_init(&l->stop, false);
    rv_status st = rvi_lock_new(&l->lock, err);
    if (!st) st = rvi_wakeup_new(&l->wakeup, err);
    if (!st) st = connect_to(&l->conn, url, busy_ms, err);
    if (!st && !(l->name = name_of(l->conn))) st = rvi_nomem(err, "connection");
    if (!st) st = rvi_thread_start(&l->thread, watch, l, false, err);
    if (st)
        free_link(l);
    else
        *out = l;
    return st;
}

void rvi_pg_link_join(rvi_pg_link *l, rvi_pg_store *s)
{
    rvi_lock_take(l->lock);
    l->users++;
    s->link = l;
    s->next = l->stores;
    l->stores = s;
    rvi_lock_give(l->lock);
}

void rvi_pg_link_leave(rvi_pg_link *l, rvi_pg_store *s)
{
    rvi_lock_take(l->lock);
    rvi_pg_store **at = &l->stores;
    while (*at && *at != s) at = &(*at)->next;
    if (*at) *at = s->next;
    bool last = --l->users == 0;
    rvi_lock_give(l->lock);
    if (last) free_link(l);
}

/* ---- calls ---- */

rv_status rvi_pg_link_enter(rvi_pg_link *l, rv_error *err)
{
    if (!atomic_load(&l->lost)) {
        rvi_lock_take(l->lock);
        if (rvi_pq.status(l->conn) == CONNECTION_OK) return RV_OK;
        atomic_store(&l->lost, true);
        rvi_lock_give(l->lock);
        rvi_wakeup_post(l->wakeup);
    }
    return rvi_error(err, RV_E_STORAGE, "%s: the connection is lost; it is being made again",
                     l->name);
}

void rvi_pg_link_exit(rvi_pg_link *l)
{
    rvi_lock_give(l->lock);
}
