/* expect.h - predicts the speed of a model from measurements of the machine.
 *
 * A token costs, for each matrix, its bytes at the rate of its type and one call; for each layer
 * the attention over the keys so far and the row ops; and its logits. A prompt costs the operations
 * of its products at the many-row rate, attention and row ops per token, and one row of the
 * head. */
#ifndef RVI_CLI_EXPECT_H
#define RVI_CLI_EXPECT_H

#include <stdint.h>

#include "base/json.h"

enum { CLI_LOAD_TYPES = 24 };

typedef struct cli_load_part {
    char type[16];
    double bytes, weights;
    int n_matrices;
} cli_load_part;

/* The work that a model causes. */
typedef struct cli_load {
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab, n_context;
    cli_load_part parts[CLI_LOAD_TYPES]; /* matrices of the layers, by type */
    size_t n_parts;
    cli_load_part head;
    double token_bytes; /* of weights read for a token: an untied embedding table is not */
    double model_bytes; /* of all tensors */
    double n_params;
} cli_load;

/* From rv_model_describe with tensors. False where it has no weights. */
bool cli_load_of_model(cli_load *out, const rvi_json *described);

/* A model of common shape in a common file type: "q4_k", "q8_0", "f16". */
typedef struct cli_typical {
    const char *name;
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab, n_context;
    bool tied;
} cli_typical;
extern const cli_typical cli_typical_models[]; /* ends with a NULL name */
void cli_load_of_typical(cli_load *out, const cli_typical *t, const char *type);

/* Bytes of keys and values for one token. */
double cli_load_kv_bytes(const cli_load *l, rv_kv_type type);
/* Bytes besides weights and KV: the rows of a step and their logits. */
double cli_load_scratch_bytes(const cli_load *l);

/* Tokens a second; 0 if a rate is missing. measured: that member of rv_runtime_describe. */
double cli_expect_decode(const cli_load *l, const rvi_json *measured, double depth);
double cli_expect_prompt(const cli_load *l, const rvi_json *measured, int n_prompt);
/* The same of a GPU that has the whole model. measured: that member of `gpu`. A token is also a
 * call for each of six kernels a layer, and its keys and values; a prompt is also what its products
 * cost besides their operations, the kernels between them and the rows that these read and write,
 * and attention. */
double cli_expect_gpu_decode(const cli_load *l, const rvi_json *measured, rv_kv_type kv,
                             double depth);
double cli_expect_gpu_prompt(const cli_load *l, const rvi_json *measured, int n_prompt);

#endif
