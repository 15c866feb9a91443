/* arch.h - what sets one architecture apart from another, as data.
 *
 * Every supported family but BERT is a pre-norm decoder with RMSNorm, rotary positions,
 * grouped-query attention and a gated feed-forward; block.c computes it from the hyperparameters
 * and these traits. BERT is a post-norm encoder, computed by encoder.c. A new family is one
 * arch_NAME.c and one line in RVI_ARCH_LIST. */
#ifndef RVI_MODEL_ARCH_H
#define RVI_MODEL_ARCH_H

#include <stdbool.h>

#include "backend/backend.h"

/* Tensors of a model: one row a role, with the name in GGUF and in Hugging Face checkpoints ("%d":
 * the layer). */
#define RVI_ROLES(X)                                                                               \
    X(EMBED, "token_embd", "model.embed_tokens")                                                   \
    X(OUT_NORM, "output_norm", "model.norm")                                                       \
    X(HEAD, "output", "lm_head")                                                                   \
    X(ATTN_NORM, "blk.%d.attn_norm", "model.layers.%d.input_layernorm")                            \
    X(Q, "blk.%d.attn_q", "model.layers.%d.self_attn.q_proj")                                      \
    X(K, "blk.%d.attn_k", "model.layers.%d.self_attn.k_proj")                                      \
    X(V, "blk.%d.attn_v", "model.layers.%d.self_attn.v_proj")                                      \
    X(QKV, "blk.%d.attn_qkv", "model.layers.%d.self_attn.qkv_proj")                                \
    X(Q_NORM, "blk.%d.attn_q_norm", "model.layers.%d.self_attn.q_norm")                            \
    X(K_NORM, "blk.%d.attn_k_norm", "model.layers.%d.self_attn.k_norm")                            \
    X(O, "blk.%d.attn_output", "model.layers.%d.self_attn.o_proj")                                 \
    X(POST_ATTN_NORM, "blk.%d.post_attention_norm", NULL)                                          \
    X(FFN_NORM, "blk.%d.ffn_norm", "model.layers.%d.post_attention_layernorm")                     \
    X(GATE, "blk.%d.ffn_gate", "model.layers.%d.mlp.gate_proj")                                    \
    X(UP, "blk.%d.ffn_up", "model.layers.%d.mlp.up_proj")                                          \
    X(GATE_UP, NULL, "model.layers.%d.mlp.gate_up_proj")                                           \
    X(DOWN, "blk.%d.ffn_down", "model.layers.%d.mlp.down_proj")                                    \
    X(POST_FFN_NORM, "blk.%d.post_ffw_norm", NULL)                                                 \
    X(POS_EMBED, "position_embd", "bert.embeddings.position_embeddings")                           \
    X(TYPE_EMBED, "token_types", "bert.embeddings.token_type_embeddings")                          \
    X(EMBED_NORM, "token_embd_norm", "bert.embeddings.LayerNorm")

typedef enum rvi_role {
#define X(role, gguf, hf) RVI_ROLE_##role,
    RVI_ROLES(X)
#undef X
        RVI_ROLE_COUNT
} rvi_role;

typedef struct rvi_role_name {
    rvi_role role;
    const char *gguf, *hf;
} rvi_role_name;

/* Which layers have a sliding window, where the file does not list them one by one. */
typedef enum rvi_window_rule {
    RVI_WINDOW_ALL,   /* every layer, if a window is given */
    RVI_WINDOW_SAME,  /* every layer, also where layer_types says otherwise */
    RVI_WINDOW_GGUF,  /* the same in GGUF files; checkpoints of the family have none */
    RVI_WINDOW_EVEN,  /* layers 0, 2, 4, ... */
    RVI_WINDOW_UPPER, /* only if use_sliding_window says so: layers from max_window_layers on */
} rvi_window_rule;

typedef struct rvi_arch {
    const char *const *gguf_names; /* general.architecture, NULL-terminated */
    const char *const *hf_types;   /* model_type, NULL-terminated */
    bool is_encoder; /* every row sees the whole text; no head; most of the traits below do not
                        count */
    bool fused_qkv, fused_ffn; /* one matrix for q, k, v; one for gate and up */
    bool qk_norm;              /* RMSNorm of each q and k head before the rotation */
    bool qkv_bias; /* q, k, v biases are required (elsewhere a bias is used where the file has one)
                    */
    bool
        post_norms; /* a norm after attention and after the feed-forward, before the residual add */
    bool hf_norm_plus_one; /* checkpoints store w - 1 (GGUF files store w) */
    bool gguf_paired_rope; /* GGUF stores q and k rows so that neighbours (2i, 2i+1) form a rotating
                              pair */
    bool partial_rope;     /* partial_rotary_factor counts */
    bool scaled_embeddings; /* embeddings times sqrt(n_embd) */
    bool tied_by_default;
    rvi_glu glu;
    rvi_window_rule window_rule;
    /* what the official implementation takes where config.json is silent; 0: derived or none */
    int head_size, n_kv_heads, window, original_context;
    float norm_eps, attn_cap, logit_cap, query_scalar;
    const rvi_role_name *renamed;  /* roles with names of their own here, NULL-terminated by gguf ==
                                     hf == NULL; may be NULL */
    const char *const *not_needed; /* beginnings of the names of tensors that are known and left
                                      out, NULL-terminated; may be NULL */
} rvi_arch;

/* The families, each defined in arch_NAME.c */
#define RVI_ARCH_LIST(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(phi3) X(gemma2) X(bert)

#define X(name) extern const rvi_arch rvi_arch_##name;
RVI_ARCH_LIST(X)
#undef X

const rvi_arch *rvi_arch_by_gguf(const char *name, size_t len); /* NULL: unknown */
const rvi_arch *rvi_arch_by_hf(const char *model_type);         /* NULL: unknown */

/* The name of a role's tensor without ".weight"; NULL: this kind of file has no such tensor. */
const char *rvi_arch_name(const rvi_arch *a, rvi_role role, bool gguf);

#endif
