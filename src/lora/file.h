/* file.h - adapters in files: PEFT directories and GGUF files.
 *
 * Opening a file checks everything in it and maps its tensors; an adapter can then be made from it
 * at any time, and the bytes are those that were checked, whatever becomes of the path. */
#ifndef RVI_LORA_FILE_H
#define RVI_LORA_FILE_H

#include "lora/adapter.h"

typedef struct rvi_adapter_file rvi_adapter_file;

/* path: a PEFT directory (adapter_config.json + adapter_model.safetensors) or a GGUF adapter file.
 * targets: kept. arch: the model's GGUF architecture names, NULL-terminated, which a GGUF adapter
 * must match. base_digest: the model's; an adapter made for another model is refused; one that
 * names no model is accepted if the shapes fit, with a warning in the log. NULL: not checked, no
 * warning. If the file has a checksum, its tensors must match it. */
rv_status rvi_adapter_file_open(rvi_adapter_file **out, const char *path,
                                const rvi_lora_target *targets, int n_targets,
                                const char *const *arch, const char *base_digest,
                                const rvi_log *log, rv_error *err) RVI_MUST_CHECK;
void rvi_adapter_file_close(rvi_adapter_file *f); /* accepts NULL */
rv_status rvi_adapter_file_load(const rvi_adapter_file *f, rvi_adapter **out, rvi_backend *be,
                                rv_error *err) RVI_MUST_CHECK;

/* Opens, loads and closes. */
rv_status rvi_adapter_load(rvi_adapter **out, rvi_backend *be, const char *path,
                           const rvi_lora_target *targets, int n_targets, const char *const *arch,
                           const char *base_digest, rv_error *err) RVI_MUST_CHECK;

#endif
