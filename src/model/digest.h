/* digest.h - the identity of a base model: what an adapter says it was trained on, and what learned
 * state is kept under.
 *
 * SHA-256 over, each with its length in front:
 *   - a mark with the version of this recipe;
 *   - of a GGUF file every value of the metadata in the file's order (the vocabulary and the chat
 *     template are among them) but general.* other than general.architecture (titles, authors,
 *     dates) and split.*; arrays by their fingerprints (base/fingerprint.h);
 *   - of a checkpoint the bytes of config.json, how it embeds texts, and of a directory the files
 *     that make its tokenizer and its chat template (by their fingerprints);
 *   - of every tensor, in the files' order, name, type, shape and number of bytes;
 *   - the fingerprint of every piece of 1 MiB of every tensor.
 * Paths, file times and the name of the model do not enter: the same bytes give the same digest
 * anywhere, and a checkpoint and a GGUF file of it give different ones (their numbers differ too).
 *
 * Every byte counts. It guards against mix-ups and damage, not against forgery: fingerprints are no
 * cryptographic hash. That makes it cheap enough to be computed when it is asked for, without a
 * cache on disk: a read of the file at the speed of memory, shared out over the threads. */
#ifndef RVI_MODEL_DIGEST_H
#define RVI_MODEL_DIGEST_H

#include "base/sha256.h"
#include "backend/backend.h"
#include "model/source.h"

/* Computed once for a source, on be's threads, beside whatever these compute for others; from any
 * thread. RV_E_IO if the file is no longer all there. */
rv_status rvi_model_digest(rvi_source *s, rvi_backend *be, char out[RVI_SHA256_HEX],
                           rv_error *err) RVI_MUST_CHECK;

#endif
