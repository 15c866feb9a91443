/* snapshot.h - named and numbered blobs on disk (parameters of an adapter, state of an optimizer),
 * whole or not at all.
 *
 * A snapshot is one file, DIR/NAME.NUMBER.snap, with a header (magic, version, number, length,
 * digest of what it belongs to) and a SHA-256 over header, name and contents. It is written under
 * another name, synchronised, and moved into place. Only what has the right checksum is ever
 * loaded.
 *
 * One process at a time saves under a name; any number may load. */
#ifndef RVI_LEARN_SNAPSHOT_H
#define RVI_LEARN_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "base/blob.h"
#include "base/error.h"
#include "base/sha256.h"

typedef struct rvi_snapshot {
    const uint8_t
        *data; /* 64-byte aligned; valid until it is closed, whatever happens to the file */
    size_t len;
    rvi_blob file;
} rvi_snapshot;

/* dir must exist; name: a-z 0-9 _ -. When this returns RV_OK the snapshot is on the disk, in place
 * of one of the same number; after an error all are as they were. */
rv_status rvi_snapshot_save(const char *dir, const char *name, uint64_t number,
                            const uint8_t of[RVI_SHA256_LEN], const void *data, size_t len,
                            rv_error *err) RVI_MUST_CHECK;

/* RV_E_NOT_FOUND: there is none; RV_E_STORAGE: it is damaged; RV_E_ADAPTER: it belongs to something
 * else. */
rv_status rvi_snapshot_load(rvi_snapshot *out, const char *dir, const char *name, uint64_t number,
                            const uint8_t of[RVI_SHA256_LEN], rv_error *err) RVI_MUST_CHECK;
void rvi_snapshot_close(rvi_snapshot *s); /* accepts a zeroed one */
/* Removes those with a number below this one, damaged ones too, and what a killed writer has left;
 * best effort. */
void rvi_snapshot_drop(const char *dir, const char *name, uint64_t below);

#endif
