/* witness.h - a log of every request that asks or teaches something, chained by hashes.
 *
 * DIR/witness.jsonl has a line for each: when, who, what path, the answer's status, the SHA-256 of
 * the request's body and of the response's, and the SHA-256 of the line before. Whoever changes,
 * removes or inserts a line breaks the chain. Contents are kept only where that is wished, as files
 * of their own in DIR/contents that may be deleted: the chain has their hashes alone.
 *
 * In a store that instances share (its stream "witness") the lines of all of them are one chain;
 * contents are not kept there.
 *
 * Lines are written by a thread of the log's own, many at a time, and reach the disk within a
 * fraction of a second. What could not be kept in time is dropped, and a line in the chain says how
 * many. */
#ifndef RVI_SERVER_WITNESS_H
#define RVI_SERVER_WITNESS_H

#include "base/error.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "ruvllm_learn.h"

typedef struct rvi_witness rvi_witness;

/* What is seen of a response while it is sent. */
typedef struct rvi_seen {
    rvi_sha256 hash;
    uint64_t n_bytes;
    int status;
    char who[65]; /* the name of the key; "": there are none */
    bool keeps;   /* the bytes too */
    rvi_buf text;
} rvi_seen;

/* One process at a time has the folder; it is made if it is not there. store: where it is instead,
 * without contents; NULL: in the folder. */
rv_status rvi_witness_open(rvi_witness **out, const char *folder, const rv_store *store,
                           bool contents, rv_error *err) RVI_MUST_CHECK;
void rvi_witness_close(rvi_witness *w); /* writes the rest; accepts NULL */

/* NULL: there is no log, the method asks for nothing, or the request is dropped. */
rvi_seen *rvi_witness_begin(rvi_witness *w, const char *method);
void rvi_seen_add(rvi_seen *s, const char *bytes, size_t len); /* s may be NULL */
/* The response has ended, or (left) its client has; takes s, which may be NULL, and the bytes of
 * body. */
void rvi_witness_end(rvi_witness *w, rvi_seen *s, const char *method, const char *path,
                     const char *id, bool left, rvi_buf *body);
void rvi_witness_counts(rvi_witness *w, uint64_t *records, uint64_t *dropped);

/* ---- reading (witness_verify.c) ---- */

typedef struct rvi_witness_report {
    uint64_t records, dropped, starts;
    uint64_t torn;             /* lines that a crash left unfinished; they are part of the chain */
    uint64_t kept, deleted;    /* contents that are there and right, and that are not there */
    char head[RVI_SHA256_HEX]; /* of the last line: all that came before is in it */
} rvi_witness_report;

/* RV_E_STORAGE names the first line, or file, that is wrong. head: the hash of a line that must be
 * among them; NULL: none. */
rv_status rvi_witness_verify(const char *folder, const char *head, rvi_witness_report *out,
                             rv_error *err) RVI_MUST_CHECK;

#endif
