/* postgres_link.h - a connection to a PostgreSQL database that stores share, and the thread that
 * listens on it: for appends of others, and for its loss.
 *
 * The lock guards the connection. A call holds it while it talks to the server, a transaction from
 * its begin to its end. Once a call has met a lost connection all of them fail at once; the thread
 * connects again, at first at once, later every few seconds, and then tells every store that others
 * may have written. */
#ifndef RVI_STORE_POSTGRES_LINK_H
#define RVI_STORE_POSTGRES_LINK_H

#include <stdatomic.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/pq.h"
#include "store/store.h"

/* Each statement is prepared once for a connection: name, number of parameters, text. */
#define RVI_PG_STATEMENTS                                                                          \
    X(APPEND, 4,                                                                                   \
      "INSERT INTO ruvllm_stream (space, name, seq, record) "                                      \
      "SELECT $1, $2, coalesce(max(seq), 0) + 1, $3 FROM ruvllm_stream "                           \
      "WHERE space = $1 AND name = $2 RETURNING seq, pg_notify('ruvllm', $4)")                     \
    X(PUT, 4,                                                                                      \
      "INSERT INTO ruvllm_item (space, name, key, record) VALUES ($1, $2, $3, $4) "                \
      "ON CONFLICT (space, name, key) DO UPDATE SET record = $4")                                  \
    X(GET, 3, "SELECT record FROM ruvllm_item WHERE space = $1 AND name = $2 AND key = $3")        \
    X(REMOVE, 3, "DELETE FROM ruvllm_item WHERE space = $1 AND name = $2 AND key = $3")            \
    X(SCAN, 4,                                                                                     \
      "SELECT key, record FROM ruvllm_item WHERE space = $1 AND name = $2 AND key >= $3 "          \
      "AND ($4 = '' OR key > $3) ORDER BY key LIMIT 32")                                           \
    X(READ, 3,                                                                                     \
      "SELECT seq, record FROM ruvllm_stream WHERE space = $1 AND name = $2 AND seq >= $3 "        \
      "ORDER BY seq LIMIT 32")

enum {
#define X(name, n, sql) RVI_PG_##name,
    RVI_PG_STATEMENTS
#undef X
        RVI_PG_N_STATEMENTS
};
enum { RVI_PG_PAGE = 32 }; /* rows that SCAN and READ give at a time */

enum { RVI_PG_LOCKS = 4 };

/* A lock is gone with the connection that it was taken on. */
typedef struct rvi_pg_held {
    int64_t key; /* 0: none */
    uint64_t epoch;
} rvi_pg_held;

typedef struct rvi_pg_store {
    rvi_opened opened;
    struct rvi_pg_link *link;
    struct rvi_pg_store *next; /* of the link's */
    char *space;
    char tag[17]; /* names the space in notifications */
    bool in_transaction;
    atomic_bool changed;
    rvi_pg_held held[RVI_PG_LOCKS]; /* guarded by the link's lock */
} rvi_pg_store;

typedef struct rvi_pg_link {
    char *url, *name; /* name: of the database and its host, for messages */
    int busy_ms;
    atomic_bool lost, stop;
    rvi_thread *thread;
    rvi_wakeup *wakeup;
    rvi_lock *lock; /* guards what follows */
    PGconn *conn;
    uint64_t epoch; /* counts connections */
    rvi_pg_store *stores;
    int users;
} rvi_pg_link;

rv_status rvi_pg_link_open(rvi_pg_link **out, const char *url, int busy_ms,
                           rv_error *err) RVI_MUST_CHECK;
/* The store is one of its users from now on, or no more; the last one closes it. */
void rvi_pg_link_join(rvi_pg_link *l, rvi_pg_store *s);
void rvi_pg_link_leave(rvi_pg_link *l, rvi_pg_store *s);

/* The lock is held from here on where this succeeds. */
rv_status rvi_pg_link_enter(rvi_pg_link *l, rv_error *err) RVI_MUST_CHECK;
void rvi_pg_link_exit(rvi_pg_link *l);
/* Says what the server did about `doing`, and notices a lost connection. Clears r, which may be
 * NULL. The lock is held. */
rv_status rvi_pg_link_fail(rvi_pg_link *l, PGresult *r, const char *doing, rv_error *err);
/* Statements without parameters, with a result that does not matter. */
rv_status rvi_pg_link_do(rvi_pg_link *l, const char *sql, const char *doing,
                         rv_error *err) RVI_MUST_CHECK;

#endif
