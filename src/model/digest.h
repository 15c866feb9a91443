/* digest.h - the identity of a base model: what an adapter says it was trained on, and what learned
 * state is kept under.
 *
 * SHA-256 over, each with its length in front:
 *   - a mark with the version of this recipe;
 *   - of a GGUF file every value of the metadata in the file's order (the vocabulary and the chat
 *     template are among them) but general.* other than general.architecture (titles, authors,
 *     dates) and split.*; of a checkpoint the bytes of config.json;
 *   - of every tensor, in the files' order, name, type, shape and a sample of its bytes: all of it
 *   up
 *     to 32 KiB, else eight pieces of 4 KiB evenly from the first byte to the last.
 * Paths, file times and the name of the model do not enter: the same bytes give the same digest
 * anywhere, and a checkpoint and a GGUF file of it give different ones (their numbers differ too).
 *
 * It guards against mix-ups, not against forgery. Two models that people confuse (another size,
 * quantization, fine-tune or version) differ in shapes, types or in nearly every weight of a
 * matrix, and each matrix shows 4096 weights or more; a change made on purpose between the samples
 * would go unseen. Sampling keeps it to about 40 ms for a model of any size instead of 4 s a
 * gigabyte. */
#ifndef RVI_MODEL_DIGEST_H
#define RVI_MODEL_DIGEST_H

#include "base/sha256.h"
#include "model/source.h"

void rvi_model_digest(const rvi_source *s, char out[RVI_SHA256_HEX]);

#endif
