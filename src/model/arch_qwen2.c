/* Qwen 2 and 2.5: biases on q, k and v. */
#include "model/arch.h"

const rvi_arch rvi_arch_qwen2 = {
    .gguf_names = (const char *const[]){"qwen2", NULL},
    .hf_types = (const char *const[]){"qwen2", NULL},
    .qkv_bias = true,
    .window_rule = RVI_WINDOW_UPPER,
    .n_kv_heads = 32,
    .norm_eps = 1e-6f,
};
