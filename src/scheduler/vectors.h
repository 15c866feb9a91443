/* vectors.h - what sessions are about: vectors of their texts, in a file beside each session's. A
 * file of vectors counts as long as the session's file is the one that they were made of, and the
 * embedder the one that made them; otherwise they are made again. */
#ifndef RVI_SCHEDULER_VECTORS_H
#define RVI_SCHEDULER_VECTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/sha256.h"

enum { RVI_VECTORS_MOST = 4 }; /* of a session */

typedef struct rvi_vectors {
    uint8_t session[RVI_SHA256_LEN]; /* checksum of its file */
    char embedder[RVI_SHA256_HEX];   /* digest */
    size_t size;                     /* floats of a vector */
    size_t n;
    float *values; /* n x size */
} rvi_vectors;

/* session, embedder and size are set, those of `session_path`; reads what there is for them. False:
 * nothing that counts; n is 0. values are freed by the caller. */
bool rvi_vectors_read(rvi_vectors *v, const char *session_path);
/* None stay where the session is gone meanwhile, or another. */
rv_status rvi_vectors_write(const rvi_vectors *v, const char *session_path,
                            rv_error *err) RVI_MUST_CHECK;
/* Which state of the session the file holds now. False: there is none. */
bool rvi_vectors_session(const char *session_path, uint8_t digest[RVI_SHA256_LEN]);
void rvi_vectors_remove(const char *session_path);
/* A file of the folder, as rvi_os_list names it: removed if it is a part of vectors, or those of a
 * session that is gone. 0, or 1: no memory. */
int rvi_vectors_clean(const char *dir, const char *name);

#endif
