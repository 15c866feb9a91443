/* placement.h - how many layers of a model a device computes: all that it has memory for, or fewer
 * where these make a token slower.
 *
 * The last layers and the head go to the device, the first ones stay on the host: the embedding
 * table is read there anyway, so activations cross the bus once. */
#ifndef RVI_MODEL_PLACEMENT_H
#define RVI_MODEL_PLACEMENT_H

#include "model/hparams.h"
#include "model/source.h"

enum { RVI_SPLIT_ROWS = 512 }; /* of a step, where the host computes a part of it */

/* What a model takes on a device, packed. */
typedef struct rvi_sizes {
    int n_embd, n_ff, n_heads, n_kv_heads, head_size, n_vocab, n_context;
    size_t ends; /* the head, and the vectors of all layers */
    int n_layers;
    size_t layers[];
} rvi_sizes;

/* What is to fit beside the weights. */
typedef struct rvi_room {
    int n_tokens; /* of KV cache */
    rv_kv_type kv;
    int max_rows, max_logits;
} rvi_room;

/* Binds the tensors without reading a weight; the source stays the caller's. quantize: as in
 * rvi_model_options. */
rv_status rvi_sizes_new(rvi_sizes **out, rvi_backend *device, rvi_source *source, bool quantize,
                        rv_error *err) RVI_MUST_CHECK; /* bind.c */

/* Bytes of a CUDA device that can be used: allocations are rounded up, and graphs of launches take
 * memory too, so a part of those that are free stays so. */
size_t rvi_device_room(rvi_backend *device);
/* Bytes that the last n layers, the head and `room` take on a CUDA device. */
size_t rvi_sizes_need(const rvi_sizes *s, const rvi_backend *device, const rvi_room *room, int n);
/* The most layers that fit into so many bytes; 0: not one. */
int rvi_sizes_fit(const rvi_sizes *s, const rvi_backend *device, const rvi_room *room,
                  size_t bytes);

/* ---- the time of a token ---- */

/* What both sides do with one row: bytes a second, and seconds. */
typedef struct rvi_rates {
    double host, device; /* weights, as products of one row read them */
    double bus;          /* to the device */
    double crossing;     /* a row goes there and a result comes back, besides the row's bytes */
    double call;         /* a kernel of the device, besides the bytes it reads */
} rvi_rates;

/* Seconds of a token where the device computes the last n layers and, if n is not 0, the head. What
 * attention reads is left out: it is on the side of its layer like the weights, and less. */
double rvi_token_seconds(const rvi_sizes *s, const rvi_rates *r, int n);
/* Of least..most layers the number with the shortest token. Measured rates vary, and a prompt gains
 * more than a token: fewer than `most` have to be faster by a tenth. */
int rvi_best_layers(const rvi_sizes *s, const rvi_rates *r, int least, int most);

/* ---- the decision ---- */

enum { RVI_PLACING_WHY = 512 };

typedef struct rvi_placing {
    int asked;      /* layers; 0: all, or of those that fit as many as are best */
    bool may_leave; /* the host may compute everything: where that is faster, or nothing fits */
    /* Called where not all layers fit, at most once. False: unknown, then as many as fit are best.
     * NULL: always unknown. */
    bool (*rates)(void *ctx, rvi_rates *out);
    void *ctx;
    char *why; /* room for RVI_PLACING_WHY bytes: the reason goes there; NULL: nobody asks */
} rvi_placing;

/* How many layers the device gets; 0: none. What was not asked for is logged as a warning with its
 * reason. RV_E_NOMEM says what is missing. */
rv_status rvi_place(int *n, const rvi_sizes *s, rvi_backend *device, const rvi_room *room,
                    const rvi_placing *how, const char *name, rv_error *err) RVI_MUST_CHECK;

#endif
