/* Mistral: Llama with a sliding window on every layer (4096 if the configuration does not say, none
 * if it says null). GGUF files and adapters of Mistral models are named "llama", so the llama
 * family, which comes earlier in the list, opens such files. */
#include "model/arch.h"

const rvi_arch rvi_arch_mistral = {
    .gguf_names = (const char *const[]){"mistral", "llama", NULL},
    .hf_types = (const char *const[]){"mistral", NULL},
    .gguf_paired_rope = true,
    .n_kv_heads = 8,
    .window = 4096,
    .norm_eps = 1e-6f,
};
