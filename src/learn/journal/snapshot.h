/* snapshot.h - named blobs on disk (parameters of an adapter, state of an optimizer), whole or not
 * at all.
 *
 * A snapshot is one file, DIR/NAME.NUMBER.snap, with a header (magic, version, number, generation,
 * length, digest of the model it belongs to) and a SHA-256 over header, name and contents. It is
 * written under another name, synchronised, and moved into place; it never changes afterwards. The
 * newest RVI_SNAPSHOT_RING of a name are kept. Only what has the right checksum is ever loaded; a
 * damaged one is passed over for the next older one, and stays where it is until its turn comes.
 *
 * One process at a time saves under a name; any number may load. */
#ifndef RVI_LEARN_SNAPSHOT_H
#define RVI_LEARN_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/sha256.h"

enum {
    RVI_SNAPSHOT_RING = 8,
    RVI_SNAPSHOT_MAX_NAME = 64, /* a-z 0-9 _ - */
};

typedef struct rvi_snapshot {
    const uint8_t
        *data; /* 64-byte aligned; valid until it is closed, whatever happens to the file */
    size_t len;
    uint64_t number;     /* 1, 2, 3 ... */
    uint64_t generation; /* as given when it was saved */
    size_t n_damaged;    /* newer ones that were passed over */
    rvi_blob file;
} rvi_snapshot;

/* dir must exist. number (may be NULL): the one it got. When this returns RV_OK the snapshot is on
 * the disk; after an error the older ones are as they were. */
rv_status rvi_snapshot_save(const char *dir, const char *name, const uint8_t model[RVI_SHA256_LEN],
                            uint64_t generation, const void *data, size_t len, uint64_t *number,
                            rv_error *err) RVI_MUST_CHECK;

/* The newest good one; generation 0: of any. RV_E_NOT_FOUND: there is none; RV_E_STORAGE: what
 * there may be is damaged; RV_E_ADAPTER: the newest good one belongs to another model. */
rv_status rvi_snapshot_load(rvi_snapshot *out, const char *dir, const char *name,
                            const uint8_t model[RVI_SHA256_LEN], uint64_t generation,
                            rv_error *err) RVI_MUST_CHECK;
void rvi_snapshot_close(rvi_snapshot *s); /* accepts a zeroed one */
/* Removes all but the newest n_keep, damaged ones too; best effort. */
void rvi_snapshot_drop(const char *dir, const char *name, size_t n_keep);

#endif
