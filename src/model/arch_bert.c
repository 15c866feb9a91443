/* BERT (also MiniLM, bge, e5, ...): a post-norm encoder with learned positions and LayerNorm. It
 * computes embeddings: the pooler and the heads for masked words and sentence pairs, if a
 * checkpoint has them, are ignored. */
#include "model/arch.h"

#define LAYER "bert.encoder.layer.%d."

const rvi_arch rvi_arch_bert = {
    .gguf_names = (const char *const[]){"bert", NULL},
    .hf_types = (const char *const[]){"bert", NULL},
    .is_encoder = true,
    .norm_eps = 1e-12f,
    .renamed =
        (const rvi_role_name[]){
            {RVI_ROLE_EMBED, "token_embd", "bert.embeddings.word_embeddings"},
            {RVI_ROLE_Q, "blk.%d.attn_q", LAYER "attention.self.query"},
            {RVI_ROLE_K, "blk.%d.attn_k", LAYER "attention.self.key"},
            {RVI_ROLE_V, "blk.%d.attn_v", LAYER "attention.self.value"},
            {RVI_ROLE_O, "blk.%d.attn_output", LAYER "attention.output.dense"},
            {RVI_ROLE_POST_ATTN_NORM, "blk.%d.attn_output_norm",
             LAYER "attention.output.LayerNorm"},
            {RVI_ROLE_UP, "blk.%d.ffn_up", LAYER "intermediate.dense"},
            {RVI_ROLE_DOWN, "blk.%d.ffn_down", LAYER "output.dense"},
            {RVI_ROLE_POST_FFN_NORM, "blk.%d.layer_output_norm", LAYER "output.LayerNorm"},
            {0}},
    .not_needed =
        (const char *const[]){"pooler.", "bert.pooler.", "cls.", "cls_", "embeddings.position_ids",
                              "bert.embeddings.position_ids", NULL},
};
