/* model.h - a bound model and its one forward pass over rows.
 *
 * A model is immutable after open and may be shared by any number of workspaces. A workspace holds
 * the activations of one caller; one thread at a time uses it (and the backend). A row is
 * (sequence, position, token): prefill, decode of many sequences and scoring are all rows through
 * the same code. Weights are views into the opened files, which the model owns. */
#ifndef RVI_MODEL_MODEL_H
#define RVI_MODEL_MODEL_H

#include "kv/pages.h"
#include "lora/adapter.h"
#include "model/arch.h"
#include "model/hparams.h"
#include "model/source.h"

/* A linear layer: its weight, perhaps a bias, and its adapter slot. */
typedef struct rvi_linear {
    rvi_tensor *w; /* n_out x n_in; NULL: absent */
    rvi_tensor *bias;
    int slot;
} rvi_linear;

typedef struct rvi_layer_norm {
    rvi_tensor *w, *b;
} rvi_layer_norm;

typedef struct rvi_layer {
    rvi_tensor *attn_norm, *q_norm, *k_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm;
    rvi_layer_norm attn_out_norm, out_norm; /* encoders: after each half and its residual */
    rvi_linear q, k, v, qkv, o, gate, up, gate_up, down;
} rvi_layer;

typedef struct rvi_model {
    rvi_backend *be; /* borrowed */
    rvi_source *source;
    const rvi_arch *arch;
    rvi_hparams hp;
    rvi_rope rope;
    rvi_pack *pack; /* the weights of products; NULL: as the files have them */
    size_t pack_bytes;
    rvi_tensor *embed, *out_norm;
    rvi_linear head;           /* tied: head.w == embed; encoders: none */
    rvi_tensor *pos_embed;     /* encoders: n_context x n_embd */
    rvi_tensor *type_embed;    /* encoders: row 0 is taken; may be NULL */
    rvi_layer_norm embed_norm; /* encoders */
    rvi_layer *layers;
    rvi_lora_target *targets;
    int n_targets;
    uint64_t n_params, weight_bytes;
    unsigned types;   /* of weights, a bit for each rvi_qtype */
    void **quantized; /* weights that the file has in another type */
    int n_quantized;
    rvi_arena arena;
} rvi_model;

typedef struct rvi_model_options {
    /* Called while weights are packed; anything but 0 cancels. May be NULL. */
    int (*progress)(void *ctx, double done);
    void *progress_ctx;
    /* Called once, where possible by a thread of its own while weights are packed; it has returned
     * when rvi_model_new does. Not called if something fails before. May be NULL. */
    void (*beside)(void *ctx);
    void *beside_ctx;
    bool quantize; /* float weights of linear layers become Q8_0 */
} rvi_model_options;

/* Takes source (also on failure). options may be NULL. */
rv_status rvi_model_new(rvi_model **out, rvi_backend *be, rvi_source *take,
                        const rvi_model_options *options, rv_error *err) RVI_MUST_CHECK;
void rvi_model_free(rvi_model *m); /* accepts NULL */

/* What a KV pool for this model must hold. */
rvi_kv_spec rvi_model_kv_spec(const rvi_model *m, rv_kv_type type, int n_pages);

/* How the hidden states of a text become one vector, as the model's files say; mean where they say
 * nothing. */
rv_pooling rvi_model_pooling(const rvi_model *m);
/* The longest text, in tokens with those around it, that the model's own code embeds whole; it cuts
 * longer ones. Never more than the context. */
int rvi_model_max_text(const rvi_model *m);

/* The first tensor with a value that is NaN, or NULL. Reads every weight, so it is only called to
 * explain a failed forward pass. */
const char *rvi_model_find_broken_tensor(const rvi_model *m);

enum { RVI_ROW_ALSO = 3 };

typedef struct rvi_row {
    const rvi_seq *seq; /* already extended over pos */
    int32_t pos, token;
    int rope_set;                    /* rvi_rope_set of the sequence's declared length */
    const rvi_adapter_set *adapters; /* NULL: none */
    /* Other sequences with the same past, which get the row's keys and values too: how the branches
     * of a tree share their stem. The first ones are set, all of them extended over pos. */
    const rvi_seq *also[RVI_ROW_ALSO];
} rvi_row;

/* Called with each named intermediate result as it is computed: n_rows rows, in the order of the
 * batch. */
typedef void (*rvi_tap_fn)(void *ctx, const char *name, rvi_cols values, int n_rows);

/* Called between the halves of layers, on the thread that called rvi_model_forward. */
typedef void (*rvi_layers_fn)(void *ctx, int n_done, int n_halves);

typedef struct rvi_workspace rvi_workspace;

rv_status rvi_workspace_new(rvi_workspace **out, const rvi_model *m, int max_rows, int max_logits,
                            rv_error *err) RVI_MUST_CHECK; /* computes on the model's backend */
/* Computes on another backend, which must be of the same kind as the model's. */
rv_status rvi_workspace_new_on(rvi_workspace **out, const rvi_model *m, rvi_backend *be,
                               int max_rows, int max_logits, rv_error *err) RVI_MUST_CHECK;
void rvi_workspace_free(rvi_workspace *ws);                                      /* accepts NULL */
void rvi_workspace_set_tap(rvi_workspace *ws, rvi_tap_fn fn, void *ctx);         /* NULL: none */
void rvi_workspace_set_progress(rvi_workspace *ws, rvi_layers_fn fn, void *ctx); /* of decoders */

/* What is asked for right behind the next pass, of any of its rows: a device then starts both
 * together. */
typedef enum rvi_then { RVI_THEN_NOTHING, RVI_THEN_LOGITS, RVI_THEN_BEST, RVI_THEN_DRAWN } rvi_then;
void rvi_workspace_expect(rvi_workspace *ws, rvi_then then);

/* Writes the rows' keys and values into their sequences' pages and leaves their final hidden states
 * in the workspace. Rows of one sequence come in order of position; all their pages are writable.
 * n_rows <= max_rows. Encoders: a sequence is one text, and all of its rows (positions 0 to its
 * length - 1) are in the call; any number of texts may share it. If the backend was stopped
 * (set_stop), it returns early and its results must not be used. */
void rvi_model_forward(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows);
/* The same with an encoder, of whose final states only those of the first n_wanted rows are
 * computed. */
void rvi_model_encode(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows, int n_rows,
                      int n_wanted);

/* After a pass, whose results count only if this is RV_OK: the device still works, and the file was
 * all there. */
rv_status rvi_model_check(const rvi_model *m, const rvi_workspace *ws,
                          rv_error *err) RVI_MUST_CHECK;

/* The final hidden state of a row of the last forward, n_embd floats. */
void rvi_workspace_hidden(rvi_workspace *ws, int row, float *out);
/* The same of rows 0 .. n - 1, one behind the other: a device is waited for once. */
void rvi_workspace_hidden_rows(rvi_workspace *ws, int n, float *out);

/* For a row of the last forward of a decoder, writes each of these that is not NULL: the input of
 * the last layer's down projection (u, n_ff floats); its output (y, n_embd floats; undefined unless
 * the architecture has a norm after it); the residual stream before the final norm (x, n_embd
 * floats). */
void rvi_workspace_last_layer(rvi_workspace *ws, int row, float *u, float *y, float *x);

/* Logits of the given rows of the last forward (n <= max_logits), n x n_vocab floats that stay
 * valid until the next call. The rows passed to forward must still be there (their adapters may
 * cover the head). Not for encoders, which have no head. */
const float *rvi_model_logits(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                              const int32_t *which, int n);
/* Of the same logits only the most likely tokens, the first of equals; the logits stay where they
 * were computed. False: the backend does not choose, or one of them is none (not a number): call
 * rvi_model_logits. */
bool rvi_model_best(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                    const int32_t *which, int n, int32_t *out);
/* Of the same logits what asks say (backend/draw.h), n of them, valid until the next call; the
 * logits stay where they were computed. NULL: the backend does not draw: call rvi_model_logits. */
const rvi_drawn *rvi_model_draw(const rvi_model *m, rvi_workspace *ws, const rvi_row *rows,
                                const int32_t *which, int n, const rvi_draw_ask *asks);
/* After it: all logits of the i-th of them come to the host, where rvi_model_logits would have put
 * them. Returns what that would have returned. */
float *rvi_workspace_logits(rvi_workspace *ws, int i);

#endif
