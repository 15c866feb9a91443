/* dir_digest.h - the part of a model's identity (digest.h) that the files beside its weights make
 * up. */
#ifndef RVI_MODEL_DIR_DIGEST_H
#define RVI_MODEL_DIR_DIGEST_H

#include "base/error.h"
#include "base/sha256.h"

/* The names and fingerprints of those files of a directory that its tokenizer and its chat template
 * are made of. */
rv_status rvi_dir_digest(const char *dir, uint8_t out[RVI_SHA256_LEN],
                         rv_error *err) RVI_MUST_CHECK;

#endif
