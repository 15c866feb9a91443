/* Gemma 2: norms before and after each half, GeGLU, soft caps on scores and logits, windows on even
 * layers, scaled embeddings. */
#include "model/arch.h"

const rvi_arch rvi_arch_gemma2 = {
    .gguf_names = (const char *const[]){"gemma2", NULL},
    .hf_types = (const char *const[]){"gemma2", NULL},
    .post_norms = true,
    .hf_norm_plus_one = true,
    .scaled_embeddings = true,
    .tied_by_default = true,
    .glu = RVI_GLU_GELU,
    .window_rule = RVI_WINDOW_EVEN,
    .head_size = 256,
    .n_kv_heads = 4,
    .window = 4096,
    .norm_eps = 1e-6f,
    .attn_cap = 50,
    .logit_cap = 30,
    .query_scalar = 256,
    .renamed = (const rvi_role_name[]){{RVI_ROLE_POST_ATTN_NORM, "blk.%d.post_attention_norm",
                                        "model.layers.%d.post_attention_layernorm"},
                                       {RVI_ROLE_FFN_NORM, "blk.%d.ffn_norm",
                                        "model.layers.%d.pre_feedforward_layernorm"},
                                       {RVI_ROLE_POST_FFN_NORM, "blk.%d.post_ffw_norm",
                                        "model.layers.%d.post_feedforward_layernorm"},
                                       {0}},
};
