/* saved.h - a session's past on disk: token ids, and their keys and values.
 *
 * The file holds whole pages; the tokens behind the last whole page are computed again when it is
 * read, which by the law of the forward pass gives the same bits. Tokens that were computed with
 * adapters are left out, from the first one on. A file is untrusted: its length, counts and ids are
 * checked, and a SHA-256 over all of it. */
#ifndef RVI_DECODE_SAVED_H
#define RVI_DECODE_SAVED_H

#include "base/sha256.h"
#include "decode/engine.h"

/* Writes a temporary file in the directory of path and renames it. model: the model's digest. */
rv_status rvi_session_save(const rvi_session *s, const char model[RVI_SHA256_HEX], const char *path,
                           rv_error *err) RVI_MUST_CHECK;
/* s is new and has no past. On failure it still has none, or a part of the saved one. */
rv_status rvi_session_restore(rvi_session *s, const char model[RVI_SHA256_HEX], const char *path,
                              rv_error *err) RVI_MUST_CHECK;

#endif
