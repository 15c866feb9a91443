/* write.h - writes adapters as PEFT directories and GGUF files, with their origin.
 *
 * A file or directory appears under its name complete or not at all: it is written under a
 * temporary name in the same directory (NAME.tmp-...), flushed to disk and renamed. Until then,
 * what was there before stays. A killed process may leave the temporary file behind, but never a
 * broken adapter.
 *
 * With f32 an adapter read back has the same bits; with f16 those of the rounded values. A GGUF
 * file has one alpha for all layers, an f32: where scale times rank differs from layer to layer the
 * difference is multiplied into B, and a scale that no f32 alpha gives exactly may come back one
 * unit in the last place away. */
#ifndef RVI_LORA_WRITE_H
#define RVI_LORA_WRITE_H

#include "lora/adapter.h"

typedef struct rvi_adapter_note {
    const char *base_name;   /* PEFT's base_model_name_or_path; NULL: none */
    const char *base_digest; /* the model's (model/digest.h), checked on loading; NULL: none */
    const char *provenance;  /* the text of a JSON object, kept as it is; NULL: none */
} rvi_adapter_note;

/* type: RVI_F32 or RVI_F16. targets: the model's, a->n_slots of them. note may be NULL. */

/* adapter_config.json, adapter_model.safetensors, and ruvllm.json, a readable copy of the metadata
 * in the safetensors file. An existing directory is replaced only if it holds nothing but these
 * three files. */
rv_status rvi_adapter_write_peft(const rvi_adapter *a, const rvi_lora_target *targets,
                                 const char *dir, rvi_qtype type, const rvi_adapter_note *note,
                                 rv_error *err) RVI_MUST_CHECK;
/* arch: general.architecture of the model. */
rv_status rvi_adapter_write_gguf(const rvi_adapter *a, const rvi_lora_target *targets,
                                 const char *arch, const char *path, rvi_qtype type,
                                 const rvi_adapter_note *note, rv_error *err) RVI_MUST_CHECK;

#endif
