/* kept_head.h - how a session lies on the disk: as two files, NAME.session and NAME.N.pages.
 *
 * The first is its head. It says all but what the pages hold, and the last thing in it is a
 * checksum of the rest. It names the file of pages by its number N, and of each page it says where
 * in that file it is and what its checksum is. Places that it does not name are free: what is there
 * is of turns that were changed or not saved. So the head alone decides which state a session is
 * in. */
#ifndef RVI_SCHEDULER_KEPT_HEAD_H
#define RVI_SCHEDULER_KEPT_HEAD_H

#include "base/cursor.h"
#include "base/mem.h"
#include "base/sha256.h"

#define RVI_KEPT_HEAD  ".session"
#define RVI_KEPT_PAGES ".pages"

enum {
    RVI_KEPT_NAME = 256, /* bytes of a tenant's name or a session's, at most */
    RVI_KEPT_HEADER = 8 + 5 * 4 + 8 * 8 + RVI_SHA256_HEX - 1 + RVI_SHA256_LEN + 2 * 4 +
                      2 * RVI_KEPT_NAME /* bytes before the ids, at most */
};

/* Behind it: the ids (i32), places of the pages (u32), their checksums, and the checksum of all
 * that. */
typedef struct rvi_kept_head {
    uint32_t kv_type, exact, page_tokens, rope_set, has_set;
    uint64_t page_bytes, began, saved; /* seconds of the clock */
    uint64_t random, surprise;         /* of the sampler; surprise: bits of a double */
    uint64_t n_ids, n_pages, number;
    char model[RVI_SHA256_HEX];
    uint8_t set[RVI_SHA256_LEN]; /* digest of the adapters that computed the pages */
    uint32_t tenant_len, name_len;
    char tenant[RVI_KEPT_NAME + 1], name[RVI_KEPT_NAME + 1];
} rvi_kept_head;

bool rvi_kept_head_read(rvi_cursor *c, rvi_kept_head *h);
bool rvi_kept_head_put(rvi_buf *b, const rvi_kept_head *h);
/* Appends the path of the file of pages; path: of the head. */
bool rvi_kept_pages_path(const char *path, uint64_t number, rvi_buf *out);
/* Is this the name of a file of pages, or of what a kill has left of one? *stem: bytes before the
 * number. */
bool rvi_kept_is_pages(const char *name, size_t *stem, uint64_t *number, bool *is_part);

#endif
