/* adapter.h - LoRA adapters, read side: y = W x + s B (A x), unmerged, on any linear layer.
 *
 * An adapter is immutable once loaded and belongs to one model's list of targets (slot i = the
 * model's linear layer i). Rows choose a set of adapters; a row without one takes exactly the path
 * it would take had none been loaded. */
#ifndef RVI_LORA_ADAPTER_H
#define RVI_LORA_ADAPTER_H

#include "backend/backend.h"

/* A linear layer an adapter may sit on. */
typedef struct rvi_lora_target {
    const char *hf_name;   /* "model.layers.0.self_attn.q_proj" */
    const char *gguf_name; /* "blk.0.attn_q" */
    int n_in, n_out;
    /* Heads whose output rows GGUF stores pairwise interleaved (llama's q and k), 0: none. And
     * whether this model's weights are so. */
    int n_paired_heads;
    bool paired;
} rvi_lora_target;

typedef struct rvi_lora_slot {
    rvi_tensor *a, *b; /* NULL: nothing here. a: rank x n_in, b: n_out x rank */
    float scale;       /* alpha / rank, or alpha / sqrt(rank) */
} rvi_lora_slot;

typedef struct rvi_adapter {
    rvi_backend *be;
    rvi_lora_slot *slots;
    int n_slots, n_used;
} rvi_adapter;

/* path: a PEFT directory (adapter_config.json + adapter_model.safetensors) or a GGUF adapter file.
 * arch: the model's GGUF architecture names, NULL-terminated, which a GGUF adapter must match. */
rv_status rvi_adapter_load(rvi_adapter **out, rvi_backend *be, const char *path,
                           const rvi_lora_target *targets, int n_targets, const char *const *arch,
                           rv_error *err) RVI_MUST_CHECK;
void rvi_adapter_free(rvi_adapter *a); /* accepts NULL */

typedef struct rvi_adapter_use {
    const rvi_adapter *adapter;
    float scale; /* the user's factor */
} rvi_adapter_use;

/* serial: what tells one set from another for as long as keys and values computed with it may be
 * kept; 0 is the set without adapters. */
typedef struct rvi_adapter_set {
    const rvi_adapter_use *uses;
    int n;
    uint64_t serial;
} rvi_adapter_set;

#endif
