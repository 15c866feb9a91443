/* hparams.h - a model's dimensions and constants, from GGUF metadata or config.json. */
#ifndef RVI_MODEL_HPARAMS_H
#define RVI_MODEL_HPARAMS_H

#include "base/json.h"
#include "formats/gguf.h"
#include "model/arch.h"
#include "model/rope.h"

/* Caps on what a file may claim, before anything is allocated from it. */
enum {
    RVI_MAX_LAYERS = 1024,
    RVI_MAX_WIDTH = 1 << 20,
    RVI_MAX_HEADS = 4096,
    RVI_MAX_CONTEXT = 1 << 27
};

typedef struct rvi_hparams {
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_context;
    int n_vocab; /* 0: whatever the embedding has */
    float norm_eps;
    float attn_scale, attn_cap, logit_cap; /* caps: 0 = none */
    float embed_scale;
    bool tied;
    bool attn_bias, mlp_bias; /* biases the file has on these layers count */
    rvi_act act;              /* encoders: between the two halves of the feed-forward */
    int *window;              /* per layer: keys seen, 0 = all; in the model's arena */
    rvi_rope_params rope;
} rvi_hparams;

/* The file that describes the model: exactly one of the two. */
typedef struct rvi_meta {
    const rvi_gguf *gguf;
    const rvi_json *config;
} rvi_meta;

rv_status rvi_hparams_read(rvi_hparams *out, const rvi_arch *arch, const rvi_meta *meta,
                           rvi_arena *arena, rv_error *err) RVI_MUST_CHECK;

#endif
