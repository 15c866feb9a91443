/* adapter.h - LoRA adapters: y = W x + s B (A x), unmerged, on any linear layer.
 *
 * An adapter is immutable once loaded or filled and belongs to one model's list of targets (slot i
 * = the model's linear layer i). Rows choose a set of adapters; a row without a set is computed
 * exactly as if no adapter were loaded. */
#ifndef RVI_LORA_ADAPTER_H
#define RVI_LORA_ADAPTER_H

#include "backend/backend.h"
#include "base/sha256.h"

/* A linear layer that an adapter can change. */
typedef struct rvi_lora_target {
    const char *hf_name;   /* "model.layers.0.self_attn.q_proj" */
    const char *gguf_name; /* "blk.0.attn_q" */
    int n_in, n_out;
    /* n_paired_heads: heads whose output rows GGUF stores pairwise interleaved (llama's q and k),
     * 0: none. paired: whether this model's weights are stored so. */
    int n_paired_heads;
    bool paired;
    int layer; /* from 1 on; 0: the head, or not known */
} rvi_lora_target;

typedef struct rvi_lora_slot {
    rvi_tensor *a, *b; /* NULL: nothing here. a: rank x n_in, b: n_out x rank */
    float scale;       /* alpha / rank, or alpha / sqrt(rank) */
    int layer;         /* the target's */
} rvi_lora_slot;

typedef struct rvi_adapter {
    rvi_backend *be;
    rvi_lora_slot *slots;
    int n_slots, n_used;
    rvi_pack *pack; /* of a sealed one; may be NULL */
    /* From the file, NULL if absent: the digest of the model it was trained on (model/digest.h),
     * and its origin as a JSON text. */
    char *base_digest, *provenance;
} rvi_adapter;

/* Metadata keys of adapters written by this library, in GGUF and safetensors files. */
#define RVI_LORA_BASE_DIGEST "ruvllm.base_digest"    /* 64 hexadecimal digits */
#define RVI_LORA_CHECKSUM    "ruvllm.tensors_sha256" /* of all tensors, by rvi_lora_hash */
#define RVI_LORA_PROVENANCE  "ruvllm.provenance"     /* a JSON object */

void rvi_adapter_free(rvi_adapter *a); /* accepts NULL */

/* An adapter without matrices, to be filled before its first use. */
rv_status rvi_adapter_new(rvi_adapter **out, rvi_backend *be, int n_slots,
                          rv_error *err) RVI_MUST_CHECK;
/* Fills an empty slot with copies of the matrices: a is rank x t->n_in, b is t->n_out x rank. NaN
 * values are an error. */
rv_status rvi_adapter_put(rvi_adapter *a, int slot, const rvi_lora_target *t, int rank, float scale,
                          const float *ma, const float *mb, rv_error *err) RVI_MUST_CHECK;
/* Arranges a filled adapter to be served: its matrices, in the order of the slots and rounded to 8
 * bits where the backend is not exact. What rvi_adapter_read gives stays as it was. Adapters that
 * are loaded, copied or merged are sealed. */
rv_status rvi_adapter_seal(rvi_adapter *a, rv_error *err) RVI_MUST_CHECK;
/* Makes one of a slot's matrices from the view; is_b: B, else A; arranged for products. */
rv_status rvi_lora_matrix_new(rvi_tensor **out, rvi_backend *be, const rvi_tensor_view *view,
                              bool is_b, rv_error *err) RVI_MUST_CHECK;
/* Makes a copy with the current values of a: publishes an adapter that is still being trained. */
rv_status rvi_adapter_copy(rvi_adapter **out, const rvi_adapter *a, rv_error *err) RVI_MUST_CHECK;

int rvi_adapter_rank(const rvi_adapter *a, int slot); /* 0: an empty slot */
/* Of a slot that is not empty: rank x n_in values to ma, n_out x rank to mb. */
void rvi_adapter_read(const rvi_adapter *a, int slot, float *ma, float *mb);
/* SHA-256 over slots, ranks, scales and values, as hexadecimal digits: equal adapters, equal
 * digests. */
rv_status rvi_adapter_digest(const rvi_adapter *a, char out[RVI_SHA256_HEX],
                             rv_error *err) RVI_MUST_CHECK;
/* The same in pieces, a slot each. Begins with one that is zeroed. */
typedef struct rvi_digesting {
    rvi_sha256 sum;
    int n_done;               /* slots */
    char hex[RVI_SHA256_HEX]; /* the digest; "": not yet */
} rvi_digesting;

rv_status rvi_adapter_digest_more(const rvi_adapter *a, rvi_digesting *d,
                                  rv_error *err) RVI_MUST_CHECK;
size_t rvi_adapter_n_params(const rvi_adapter *a);

/* Turns the rows of B between the half-split order of PEFT and the pairwise order of GGUF: within a
 * head of n rows, pairwise row 2 j + s is half-split row s n / 2 + j. */
void rvi_lora_reorder(const float *from, float *to, int n_out, int rank, int n_heads,
                      bool to_paired);
bool rvi_lora_is_finite(const rvi_tensor_view *v); /* no NaN, no infinity */
/* Adds a tensor's name and bytes to a checksum. */
void rvi_lora_hash(rvi_sha256 *h, const rvi_tensor_view *view);

typedef struct rvi_adapter_use {
    const rvi_adapter *adapter;
    float scale; /* the user's factor */
} rvi_adapter_use;

/* serial: unique among sets whose keys and values may still be cached; 0 is the set without
 * adapters. digest: equal for two sets that compute the same, also in another process. */
typedef struct rvi_adapter_set {
    const rvi_adapter_use *uses;
    int n;
    uint64_t serial;
    const uint8_t *digest; /* RVI_SHA256_LEN bytes; NULL: not known */
} rvi_adapter_set;

#endif
