/* bank_internal.h - how a bank is kept and changed; for the files bank*.c only. */
#ifndef RVI_LEARN_BANK_INTERNAL_H
#define RVI_LEARN_BANK_INTERNAL_H

#include <string.h>

#include "learn/bank.h"

enum {
    RVI_BANK_ID_LEN = 8, /* keys: numbers with the highest byte first, so that they sort */
    RVI_BANK_IMAGE_LEN = 2 * RVI_BANK_ID_LEN, /* event, id */
};

/* Inside a change `now` is what the pattern will be: another copy than `saved`, NULL for one that
 * goes; `saved` is NULL for one that comes. Outside they are the same. */
typedef struct rvi_bank_entry {
    rvi_pattern *saved, *now;
    uint64_t id;
    uint32_t size, n_dim; /* of the pattern: neither changes */
    rvi_pattern_keys keys;
} rvi_bank_entry;

struct rvi_bank {
    rvi_store *store;
    rvi_bank_options options;
    rvi_bank_entry *entries; /* by id; inside a change new ones stand at the end */
    size_t n, cap;
    size_t n_damaged;
    size_t n_dim; /* of all vectors; 0: none yet */

    /* as in the store; the version goes up with every change, so that others notice */
    uint64_t version, next_id, last_event;
};

/* ---- a change: begin, edit the entries, end ---- */

/* Begins a transaction, and takes over what others have changed. */
rv_status rvi_bank_begin(rvi_bank *b, bool durable, rv_error *err) RVI_MUST_CHECK;

typedef struct rvi_bank_change {
    uint64_t next_id; /* from now on */
    uint64_t event;   /* of the log that it comes from; 0: none */
    bool undoable;    /* keep what was before the event */
} rvi_bank_change;

/* Writes and commits if st is RV_OK; else everything is as before, and st is the answer. */
rv_status rvi_bank_end(rvi_bank *b, rv_status st, rvi_bank_change c, rv_error *err) RVI_MUST_CHECK;

/* A copy of entry i to change; NULL: no memory. */
rvi_pattern *rvi_bank_edit(rvi_bank *b, size_t i, rv_error *err);
void rvi_bank_drop(rvi_bank *b, size_t i);
/* One more; p is copied, its vector scaled unless it is exact. */
rv_status rvi_bank_insert(rvi_bank *b, const rvi_pattern *p, const rvi_pattern_keys *keys,
                          bool exact, rv_error *err) RVI_MUST_CHECK;
size_t rvi_bank_index(const rvi_bank *b, size_t n, uint64_t id); /* in the first n; SIZE_MAX: no */

/* Everything from the store; on failure the bank stays as it was. */
rv_status rvi_bank_load(rvi_bank *b, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_bank_stored_version(rvi_bank *b, uint64_t *out, rv_error *err) RVI_MUST_CHECK;
void rvi_bank_clear(rvi_bank *b);

/* ---- what was before an event: keys of RVI_BANK_IMAGE_LEN bytes, the record empty for a pattern
 * that was not there ---- */

/* Appends the keys of an event's images; event 0: of all. *n_events (may be NULL): of how many. */
rv_status rvi_bank_images(rvi_bank *b, uint64_t event, rvi_buf *keys, size_t *n_events,
                          rv_error *err) RVI_MUST_CHECK;
rv_status rvi_bank_image(rvi_bank *b, const uint8_t *key, rvi_buf *out,
                         rv_error *err) RVI_MUST_CHECK;
rv_status rvi_bank_remove_image(rvi_bank *b, const uint8_t *key, rv_error *err) RVI_MUST_CHECK;
/* Removes those of all but the last n_keep events. */
rv_status rvi_bank_trim_images(rvi_bank *b, size_t n_keep, rv_error *err) RVI_MUST_CHECK;
uint64_t rvi_bank_key(const uint8_t *key); /* the number in the first 8 bytes */

/* ---- which are about the same, and which may go ---- */

static inline bool rvi_bank_equal(const uint8_t a[16], const uint8_t b[16])
{
    return !memcmp(a, b, 16);
}

bool rvi_bank_same_question(const rvi_bank *b, const rvi_pattern *p, const rvi_pattern_keys *pk,
                            const rvi_pattern *q, const rvi_pattern_keys *qk);

/* Removes as many as the bounds ask for: superseded ones, then the least used, the oldest of them
 * first; with spare_changed none that this change has made or changed. RV_E_LEARNING: not enough
 * may go, and as many as may have gone. */
rv_status rvi_bank_make_room(rvi_bank *b, bool spare_changed, size_t *n_removed,
                             rv_error *err) RVI_MUST_CHECK;

#endif
