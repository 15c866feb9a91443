/* compare_weights.h - the adapter with which the embedder compares two texts, made by
 * tools/train_compare.py. */
#ifndef RVI_LEARN_RECOGNISE_COMPARE_WEIGHTS_H
#define RVI_LEARN_RECOGNISE_COMPARE_WEIGHTS_H

enum { RVI_COMPARE_RANK = 16, RVI_COMPARE_LAYERS = 36, RVI_COMPARE_WIDTH = 384 };

/* W += scale out in^T. A character is a number from -45 to 45: its code less 80, where '!' stands
 * for '?' and a space for '\\', which C strings do not take as they are. */
typedef struct rvi_compare_product {
    float scale;
    const char *in, *out;
} rvi_compare_product;

typedef struct rvi_compare_layer {
    const char *name; /* of the linear layer, as in GGUF files */
    rvi_compare_product products[RVI_COMPARE_RANK];
} rvi_compare_layer;

extern const rvi_compare_layer rvi_compare_layers[RVI_COMPARE_LAYERS];

/* What is made of the first token's state. */
extern const float rvi_compare_head[RVI_COMPARE_WIDTH], rvi_compare_bias;

#endif
