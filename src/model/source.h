/* source.h - the opened files of a model: a GGUF file, or a directory with config.json and
 * safetensors.
 *
 * One interface to both kinds: metadata for hparams.c, tensors by role for bind.c, and the texts
 * that define the tokenizer. Owns the files. */
#ifndef RVI_MODEL_SOURCE_H
#define RVI_MODEL_SOURCE_H

#include <stdatomic.h>

#include "base/json.h"
#include "base/log.h"
#include "base/sha256.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/arch.h"
#include "model/embedding.h"
#include "model/hparams.h"

typedef struct rvi_source {
    rvi_gguf *gguf;
    rvi_safetensors *tensors;
    const rvi_json *config;
    rvi_blob config_blob;
    rvi_arena arena;
    const rvi_arch *arch;
    rvi_embedding embedding;
    char *name;                         /* the path or the name given, for messages */
    uint8_t dir_digest[RVI_SHA256_LEN]; /* of a directory's other files; zeros: there are none */
    char digest[RVI_SHA256_HEX];        /* of all of it, once computed (digest.h) */
    atomic_int digest_state;
} rvi_source;

rv_status rvi_source_open(rvi_source **out, const char *path, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_source_open_gguf_blob(rvi_source **out, rvi_blob *take, const char *name,
                                    rv_error *err) RVI_MUST_CHECK;
/* config and weights of a checkpoint in memory (both taken). */
rv_status rvi_source_open_hf_blobs(rvi_source **out, rvi_blob *take_config, rvi_blob *take_weights,
                                   const char *name, rv_error *err) RVI_MUST_CHECK;
void rvi_source_close(rvi_source *s); /* accepts NULL */
/* Whether all bytes used so far could be read. If not (a file was truncated while in use), results
 * computed from them are wrong. */
rv_status rvi_source_check(const rvi_source *s, rv_error *err) RVI_MUST_CHECK;

rvi_meta rvi_source_meta(const rvi_source *s);
bool rvi_source_is_gguf(const rvi_source *s);
uint64_t rvi_source_bytes(const rvi_source *s);
/* The value of general.architecture that GGUF files of this model have. */
const char *rvi_source_gguf_arch(const rvi_source *s);
size_t rvi_source_n_tensors(const rvi_source *s);
rvi_tensor_view *rvi_source_tensor_at(const rvi_source *s, size_t i);
/* By full name, ".weight" included; NULL if absent. For checkpoints also without the leading
 * "model." or "bert.", and with the older names of LayerNorm's parameters (gamma, beta). */
rvi_tensor_view *rvi_source_tensor(const rvi_source *s, const char *name);

#endif
