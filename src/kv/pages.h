/* pages.h - the paged KV cache: a pool of pages with reference counts, and sequences as tables of
 * pages.
 *
 * Invariants:
 *  1. A page is on the free list exactly when its reference count is 0.
 *  2. A page with more than one reference is never written: rvi_seq_extend copies it first (copy
 *     on write).
 *  3. A sequence of length n holds exactly ceil(n / RVI_PAGE_TOKENS) pages: waste is under one
 *     page a sequence.
 *  4. In a tiered pool, the pages of a sequence have every form in which rows from its length on
 *     read them (backend.h). rvi_seq_drop_unread drops a form that they do not read any more,
 *     unless another sequence holds the page too. So a page that is not full is hot, and a length
 *     that was reached before may be out of reach: rvi_pages_reusable.
 * One thread at a time uses a pool and its sequences. */
#ifndef RVI_KV_PAGES_H
#define RVI_KV_PAGES_H

#include "backend/backend.h"

typedef struct rvi_pages rvi_pages;

rv_status rvi_pages_new(rvi_pages **out, rvi_backend *be, const rvi_kv_spec *spec,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_pages_free(rvi_pages *p); /* accepts NULL; every sequence of it must be gone */
/* Of a pool with a budget (rvi_pages_limit) these count in pages of f16: a page that is held in
 * fewer bits counts for less. */
int rvi_pages_in_use(const rvi_pages *p);
int rvi_pages_total(const rvi_pages *p);
int rvi_pages_most(const rvi_pages *p); /* that the total can be: any thread may ask */
/* From now on the total is n, if that is less; more pages may be in use. Who plans keeps to it. */
void rvi_pages_allow(rvi_pages *p, int n);
/* Returns the memory of free pages to the system, where a store can. */
void rvi_pages_release_free(rvi_pages *p);
/* From now on a tiered pool has room for as many bytes as n hot pages have, in more pages. No page
 * is in use. Who plans a step keeps to that; rvi_seq_extend does not refuse a page because of it: a
 * step that is repeated finds pages in more forms than when it was planned. */
void rvi_pages_limit(rvi_pages *p, int n);
int rvi_pages_refs(const rvi_pages *p, int32_t page);
rvi_kv_store *rvi_pages_store(const rvi_pages *p);
size_t rvi_pages_bytes(const rvi_pages *p); /* of one page */
/* For one holder that is no sequence: a page in use gets one more reference, or loses it. */
void rvi_pages_keep(rvi_pages *p, int32_t page);
void rvi_pages_unkeep(rvi_pages *p, int32_t page);
int rvi_pages_idle(const rvi_pages *p); /* that are kept, and held by no sequence */
int rvi_pages_held(const rvi_pages *p); /* by sequences; whole pages, whatever their forms */
/* The greatest length up to len from which on a sequence with these pages can be extended: less
 * where forms were dropped that the next rows would read. What lies between is computed again. */
int rvi_pages_reusable(const rvi_pages *p, const int32_t *pages, int len);
/* Can a text go on within it? Its last positions are read in 16 bits. */
bool rvi_pages_can_grow(const rvi_pages *p, int32_t page);
/* Whether page a has the forms of page b, and more. */
bool rvi_pages_is_finer(const rvi_pages *p, int32_t a, int32_t b);
/* Pages that have a form (RVI_KV_HOT, ...); of a pool that is not tiered: 0. */
int rvi_pages_with(const rvi_pages *p, unsigned form);
/* What a page takes in a form, 0 in one that the pool does not have; of a pool that is not tiered
 * the only one counts as hot. */
size_t rvi_pages_form_bytes(const rvi_pages *p, unsigned form);

/* The caller's storage. */
typedef struct rvi_seq {
    rvi_pages *pool;
    int32_t *pages; /* max_len / RVI_PAGE_TOKENS of them, rounded up; the first n_pages are valid */
    int n_pages, len, max_len;
    bool coarse; /* its rows read every page but their own cold: rvi_seq_coarsen */
} rvi_seq;

rv_status rvi_seq_init(rvi_seq *s, rvi_pages *pool, int max_len, rv_error *err) RVI_MUST_CHECK;
void rvi_seq_deinit(rvi_seq *s); /* returns its pages to the pool; accepts a zeroed one */

/* Makes room for n more positions, all of them writable, and adds them to len. On failure nothing
 * changes. */
rv_status rvi_seq_extend(rvi_seq *s, int n, rv_error *err) RVI_MUST_CHECK;
int rvi_seq_wants(const rvi_seq *s, int n); /* pages that rvi_seq_extend by n would take */
void rvi_seq_truncate(rvi_seq *s, int len); /* len <= s->len */
/* In a tiered pool, before rows of positions first .. last are computed: makes the cold forms that
 * they read, and drops what none of them reads. */
void rvi_seq_drop_unread(const rvi_seq *s, int first, int last);
/* In a pool with cold forms: from here on the sequence reads all pages but the last cold, and those
 * that nobody else holds are so at once. This changes what is computed from now on. */
void rvi_seq_coarsen(rvi_seq *s);
/* After all sequences of a step: returns the memory of what was dropped, except for n pages. */
void rvi_pages_trim(rvi_pages *p, int n);
bool rvi_pages_is_tiered(const rvi_pages *p);
/* An empty sequence gets the first len positions of these pages, sharing them. len <= max_len;
 * rvi_pages_reusable allows it. */
void rvi_seq_adopt(rvi_seq *s, const int32_t *pages, int len);
/* The i-th page of a sequence as bytes. A page that is written has no other reference. */
void rvi_seq_read_page(const rvi_seq *s, int i, void *to);
void rvi_seq_write_page(rvi_seq *s, int i, const void *from);
/* A second sequence with the same past: shares every page. */
rv_status rvi_seq_fork(rvi_seq *out, const rvi_seq *from, rv_error *err) RVI_MUST_CHECK;

#endif
