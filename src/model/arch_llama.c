/* Llama 2 and 3.x and everything that shares their layout (SmolLM2, TinyLlama, ...). GGUF files of
 * Mistral models name this one too. */
#include "model/arch.h"

const rvi_arch rvi_arch_llama = {
    .gguf_names = (const char *const[]){"llama", NULL},
    .hf_types = (const char *const[]){"llama", NULL},
    .gguf_paired_rope = true,
    .window_rule = RVI_WINDOW_GGUF,
    .norm_eps = 1e-6f,
};
