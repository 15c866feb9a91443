/* sessions.h - conversations that outlive the process, in one folder.
 *
 * A session has two files (kept_head.h): its head, with its tokens, the state of its random numbers
 * and checksums of everything, and the keys and values of its whole pages. New pages are written
 * where the file of pages has none that count. Only then a new head is written aside, synchronised
 * and moved into place: under its name there is always a whole state, the new one or the one
 * before. The table of sessions is read from the heads at the beginning. What the files lack (the
 * last tokens, pages that adapters computed which no digest tells) is computed again, with the same
 * bits.
 *
 * Any thread may call these functions; a session that a request has claimed is its own until it
 * is released. */
#ifndef RVI_SCHEDULER_SESSIONS_H
#define RVI_SCHEDULER_SESSIONS_H

#include "base/blob.h"
#include "base/sha256.h"
#include "decode/engine.h"
#include "decode/sampler.h"

typedef struct rvi_sessions rvi_sessions;

typedef struct rvi_sessions_options {
    const char *dir;
    char model[RVI_SHA256_HEX]; /* digest: sessions of other models are not seen */
    double idle, age;           /* seconds since it was saved, and since it began; 0: no limit */
    uint64_t max_bytes;         /* of all files together; 0: no limit */
    int max_tenant;             /* sessions of one tenant; 0: no limit */
} rvi_sessions_options;

/* RV_E_STORAGE: another process uses the folder. */
rv_status rvi_sessions_new(rvi_sessions **out, const rvi_engine *e, const rvi_sessions_options *o,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_sessions_free(rvi_sessions *s); /* accepts NULL; nothing is claimed */

typedef struct rvi_kept_entry rvi_kept_entry;

/* A claimed session as it was saved; a new one has no ids. */
typedef struct rvi_kept_session {
    rvi_sessions *of;
    rvi_kept_entry *entry;
    rvi_buf head;
    const uint8_t *ids; /* in it, n_ids times i32, little-endian, any alignment */
    size_t n_ids;
    const uint8_t *places, *digests; /* of the pages: u32, little-endian, and SHA-256 */
    rvi_blob file;                   /* of pages */
    int n_pages, n_places, rope_set;
    uint64_t page_bytes, number;        /* of that file */
    bool has_set;                       /* adapters computed them, */
    uint8_t set_digest[RVI_SHA256_LEN]; /* a set with this digest */
    rvi_sampler_state sampler;
} rvi_kept_session;

/* RV_E_BUSY: another request has it; RV_E_STORAGE: the tenant has too many, or the file is
 * damaged. */
rv_status rvi_sessions_claim(rvi_sessions *s, const char *tenant, const char *name,
                             rvi_kept_session **out, rv_error *err) RVI_MUST_CHECK;
void rvi_kept_release(rvi_kept_session *k); /* accepts NULL */
int32_t rvi_kept_id(const rvi_kept_session *k, size_t i);
const uint8_t *rvi_kept_page(const rvi_kept_session *k, size_t i);
/* False: somebody has cut off a part of the pages, which reads as zeros. */
bool rvi_kept_is_whole(const rvi_kept_session *k);

/* A tenant's saved sessions, as one block. */
typedef struct rvi_listed_session {
    const char *name, *path;
    uint64_t saved; /* seconds of the clock */
} rvi_listed_session;

rv_status rvi_sessions_list(rvi_sessions *s, const char *tenant, rvi_listed_session **out,
                            size_t *n, rv_error *err) RVI_MUST_CHECK;
/* The tokens of one of them. RV_E_STORAGE: it is damaged; RV_E_NOT_FOUND: it is gone. */
rv_status rvi_sessions_read(rvi_sessions *s, const char *tenant, const rvi_listed_session *x,
                            rvi_ids *ids, rv_error *err) RVI_MUST_CHECK;

/* Saving a session, in pieces: the thread of the pool copies one (fill), and any thread, or the
 * same, writes what was copied (write), by turns until it is over; the first piece may be none. The
 * pages are held until the last one is copied. */
typedef struct rvi_save rvi_save;

rv_status rvi_save_begin(rvi_save **out, rvi_kept_session *k, const rvi_session *s,
                         const rvi_sampler_state *sampler, rv_error *err) RVI_MUST_CHECK;
void rvi_save_fill(rvi_save *x);
void rvi_save_write(rvi_save *x);
bool rvi_save_is_over(const rvi_save *x);
/* Once it is over. RV_OK: the session goes on from here, whatever happens. Otherwise from where it
 * was saved before, unless the error says that it goes on from here. */
rv_status rvi_save_result(const rvi_save *x, rv_error *err) RVI_MUST_CHECK;
/* By the thread of the pool; accepts NULL. What is not over is abandoned. */
void rvi_save_free(rvi_save *x);

/* RV_E_NOT_FOUND, RV_E_BUSY */
rv_status rvi_sessions_forget(rvi_sessions *s, const char *tenant, const char *name,
                              rv_error *err) RVI_MUST_CHECK;

#endif
