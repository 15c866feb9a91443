/* Qwen 3: no biases, RMSNorm on every q and k head before the rotation, a head size of its own. */
#include "model/arch.h"

const rvi_arch rvi_arch_qwen3 = {
    .gguf_names = (const char *const[]){"qwen3", NULL},
    .hf_types = (const char *const[]){"qwen3", NULL},
    .qk_norm = true,
    .window_rule = RVI_WINDOW_UPPER,
    .head_size = 128,
    .n_kv_heads = 32,
    .norm_eps = 1e-6f,
};
