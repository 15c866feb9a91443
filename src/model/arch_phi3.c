/* Phi-3 and Phi-4-mini: q, k, v in one matrix, gate and up in another, partial rotation, long and
 * short rope factors. */
#include "model/arch.h"

const rvi_arch rvi_arch_phi3 = {
    .gguf_names = (const char *const[]){"phi3", NULL},
    .hf_types = (const char *const[]){"phi3", NULL},
    .fused_qkv = true,
    .fused_ffn = true,
    .partial_rope = true,
    .window_rule = RVI_WINDOW_SAME,
    .original_context = 4096,
    .norm_eps = 1e-5f,
    .renamed =
        (const rvi_role_name[]){
            {RVI_ROLE_GATE_UP, "blk.%d.ffn_up", "model.layers.%d.mlp.gate_up_proj"}, {0}},
};
