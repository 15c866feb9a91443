/* train_linear.h - what the files of linear layers in training share: layers that read the same
 * rows, and how their matrices are packed. */
#ifndef RVI_BACKEND_CPU_TRAIN_LINEAR_H
#define RVI_BACKEND_CPU_TRAIN_LINEAR_H

#include "backend/cpu/train.h"

/* A layer, and where its data are among those of the other layers. */
typedef struct rvi_train_part {
    const rvi_float_linear *l;
    int rank;
    int col;    /* its first one in y and dy */
    int low_at; /* its first one in `low` */
} rvi_train_part;

typedef struct rvi_train_group {
    rvi_cpu *cpu;
    rvi_train_scratch *s;
    const rvi_train_gemm *g;
    rvi_train_part parts[RVI_MAX_LINEARS];
    int n_parts, n_in, n_out; /* n_out: of all together */
    int n_low;                /* columns of `low` that the adapters take up */
    int width; /* of its rows: only whole panels are fast, and they may begin anywhere */
} rvi_train_group;

/* Inputs of a chunk that stand side by side, and whose first matrices read them */
typedef struct rvi_train_segment {
    const rvi_train_part *parts;
    int n_parts, at, n; /* at: of the inputs of these layers, the first */
    int low_at, n_low;  /* columns of `low` */
    bool last;          /* then `low` is complete */
    size_t k, n_padded; /* packed: offset and count; the results of `low` follow */
    size_t first;       /* where the first matrices begin, packed */
} rvi_train_segment;

/* A right operand in the making: outputs col .. col + n - 1 of the chunk. */
typedef struct rvi_train_panels {
    uint8_t *to;
    size_t k_total;
    int col, n;
    float *tile;
} rvi_train_panels;

static inline int rvi_blocks_of(int n, int size)
{
    return (n + size - 1) / size;
}

/* train_pack.c */

/* As many of the layers as the scratch has room for; returns how many. */
int rvi_train_group_new(rvi_train_group *q, rvi_backend *be, const rvi_float_linear *l,
                        int n_layers);
/* The panel of the adapters' first matrices from column `col` of the segment's `low` on. */
void rvi_train_pack_first(const rvi_train_group *q, bool back, const rvi_train_segment *s, int col,
                          uint8_t *to, float *tile);
/* What a segment added up in `low` times the layers' scales */
void rvi_train_scale_low(const rvi_train_segment *s, float *low, int width, int n_rows);
/* Weights. Forward: a row of the weight is an output. */
void rvi_train_pack_outputs(const rvi_train_group *q, const rvi_train_segment *s,
                            const rvi_tensor *w, const rvi_train_panels *to);
/* Backward: a row of the weight is an input, and a whole number of blocks holds the outputs. */
void rvi_train_pack_inputs(const rvi_train_group *q, const rvi_train_segment *s,
                           const rvi_train_panels *to);
/* A layer's second matrix, forward, behind zeros for the results of the layers before it. */
void rvi_train_pack_second(const rvi_train_group *q, const rvi_train_part *p, size_t k,
                           const rvi_train_panels *to);

/* train_tall.c */

/* Whether there are so many more outputs than inputs that the backward goes by slices of them. */
bool rvi_train_is_tall(const rvi_train_group *q, rvi_cols dx);
void rvi_train_run_tall(const rvi_train_group *q, rvi_cols dx, bool fresh, rvi_cols dy, int n_rows);

/* train_held.c */

/* A layer's weights packed, made ready if they are not; NULL: they are not held. */
const uint8_t *rvi_train_held_panels(const rvi_train_group *q, const rvi_train_part *p, bool back);
/* Whether a product of these layers can go by weights that are held. */
bool rvi_train_is_held(const rvi_train_group *q, bool back);
/* Rows row .. row + n_rows - 1 of `in` through the layers, onto what `out` holds or not. x.t not
 * NULL (backward): the layers' input, whose `low` is wanted too. */
void rvi_train_run_held(const rvi_train_group *q, bool back, rvi_cols in, rvi_cols out, bool onto,
                        rvi_cols x, int row, int n_rows);

#endif
