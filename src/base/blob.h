/* blob.h - immutable bytes from a file, from memory, or from a reader callback.
 *
 * A blob has one owner. Views into `data` live as long as the blob. */
#ifndef RVI_BASE_BLOB_H
#define RVI_BASE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct rvi_blob {
    const uint8_t *data;
    size_t len;
    void *mapping; /* not NULL: unmap on close */
    int guard;     /* of the mapping (guard.h) */
    void *heap;    /* not NULL: free on close */
} rvi_blob;

/* Copies n bytes at offset into dst; 0 = done, anything else = failure. */
typedef int (*rvi_read_fn)(void *ctx, uint64_t offset, void *dst, size_t n);

/* Maps a regular file (reads it where nothing can be mapped). A directory, a missing file or an
 * empty one is an error that says so. */
rv_status rvi_blob_open(rvi_blob *out, const char *path, rv_error *err) RVI_MUST_CHECK;
/* Borrows: the bytes must outlive the blob. */
void rvi_blob_from_memory(rvi_blob *out, const void *data, size_t len);
/* Reads everything into memory. what names the source in errors. */
rv_status rvi_blob_read(rvi_blob *out, rvi_read_fn read, void *ctx, uint64_t len, const char *what,
                        rv_error *err) RVI_MUST_CHECK;
/* RV_E_IO if some bytes of the file could not be read when they were used (the file was truncated,
 * say) and read as zeros instead. Call this after computing with a blob's bytes. */
rv_status rvi_blob_check(const rvi_blob *b, const char *name, rv_error *err) RVI_MUST_CHECK;
void rvi_blob_close(rvi_blob *b); /* accepts a zeroed one */

#endif
