/* workspace.h - the activations of a forward pass, shared by the files that compute layers. Inside
 * the model room only. */
#ifndef RVI_MODEL_WORKSPACE_H
#define RVI_MODEL_WORKSPACE_H

#include "model/model.h"

/* A pass in float arithmetic over whole texts (trainer.c): where rows see each other, and the one
 * adapter of them all. */
typedef struct rvi_float_pass {
    const rvi_span *spans;
    int n_spans;
    const rvi_adapter *adapter; /* NULL: none */
    rvi_held *const *held;      /* by slot, each may be NULL; NULL: no weight is held */
    rvi_tensor *plain; /* takes q and k before the norms of their heads, in the columns of qkv; NULL
                          where the model has no such norms */
} rvi_float_pass;

/* Rows that share an adapter set. */
typedef struct rvi_set_rows {
    const rvi_adapter_set *set;
    const int32_t *rows; /* ascending */
    int n_rows;
} rvi_set_rows;

enum { RVI_LORA_PRODUCTS = 256 }; /* that one call of the backend takes */

struct rvi_workspace {
    rvi_backend *be;
    rvi_tensor *x; /* [rows, n_embd] the residual stream */
    rvi_tensor
        *h; /* [rows, n_embd] normed input or output of a half; after the forward of a decoder:
                      the final hidden states */
    rvi_tensor *y; /* [rows, n_embd] output of the linear layer at the end of a half */
    rvi_tensor
        *post; /* y after its norm, if a half ends with one; the same as h except in training */
    rvi_tensor *qkv; /* [rows, (n_heads + 2 n_kv_heads) head_size] */
    rvi_tensor *mix; /* [rows, n_heads head_size] attention output */
    rvi_tensor *ffn; /* [rows, 2 n_ff] gate, up; encoders: NULL, as angles, last and logits are */
    rvi_tensor *act; /* [rows, n_ff] */
    rvi_tensor *angles; /* [rows, 2 n_pairs] */
    rvi_tensor *last;   /* [logits, n_embd] hidden states of the rows that want logits */
    rvi_tensor *logits; /* [logits, n_vocab] */
    float *turns;       /* [rows, 2 n_pairs] angles, before they go to the backend */
    float *logits_host;
    rvi_draws *draws; /* [logits]; NULL: the backend does not draw */
    rvi_then then;    /* what follows the next pass */
    bool is_recalled; /* the last pass and its logits are started when they are asked for */
    int32_t *tokens;
    rvi_set_rows *sets; /* [rows] of the rows that are being computed, n_sets of them */
    int n_sets;
    int32_t *lora_rows, *set_of;     /* [rows] the sets' rows; by row its set, -1: none */
    rvi_lora_group *lora_groups;     /* [rows] */
    rvi_lora_product *lora_products; /* [RVI_LORA_PRODUCTS] */
    rvi_kv_row *kv_rows;
    rvi_kv_row *also_rows; /* [RVI_ROW_ALSO, rows]: where else to write; n_also of them count */
    int n_also;
    rvi_kv_row *text_rows; /* encoders: what each row sees, the whole of its text */
    bool encodes;
    bool fused; /* this pass has no tap: products take their neighbours in, where no row has an
                  adapter */
    const rvi_float_pass
        *floats; /* NULL: rows with pages and adapters of their own, of inference */
    rvi_tap_fn tap;
    void *tap_ctx;
    rvi_layers_fn progress; /* may be NULL */
    void *progress_ctx;
};

/* Hands an intermediate to the tap; il -1: the name alone. */
void rvi_workspace_tap(rvi_workspace *ws, const char *what, int il, rvi_cols values, int n_rows);

/* The base product and the rows' adapters. */
void rvi_workspace_linear(rvi_workspace *ws, const rvi_linear *l, rvi_cols out, rvi_cols x,
                          int n_rows);

/* The same for up to RVI_MAX_LINEARS layers of one input, side by side in the columns of out. */
void rvi_workspace_linears(rvi_workspace *ws, const rvi_linear *const *l, int n_layers,
                           rvi_cols out, rvi_cols x, int n_rows);

/* The layer in float arithmetic, with the pass's adapter. */
rvi_float_linear rvi_workspace_float_linear(const rvi_workspace *ws, const rvi_linear *l);

/* A decoder layer: x += attention, act = the gated hidden units, x += their projection. In a float
 * pass rows is NULL. */
void rvi_workspace_attention(const rvi_model *m, rvi_workspace *ws, int il, const rvi_row *rows,
                             int n);
void rvi_workspace_act(const rvi_model *m, rvi_workspace *ws, int il, int n);
void rvi_workspace_down(const rvi_model *m, rvi_workspace *ws, int il, int n);
/* What a layer's attention is asked for. */
rvi_attention rvi_workspace_attention_of(const rvi_model *m, int il);

/* q, k and v of the layer's input into the columns of ws->qkv. */
void rvi_workspace_qkv(const rvi_model *m, rvi_workspace *ws, int il, rvi_cols in, int n_rows);

/* Notes the adapter sets of the operands of the linear layers that follow. which: the batch row
 * that each of the n_rows operands came from; NULL: row i is batch row i. */
void rvi_workspace_group(rvi_workspace *ws, const rvi_row *rows, const int32_t *which, int n_rows);

/* The pass of an encoder (encoder.c). */
void rvi_encoder_forward(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows,
                         int n_wanted);

#endif
