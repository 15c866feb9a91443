/* tensor_view.h - a named tensor inside a file, as both file formats present it. */
#ifndef RVI_FORMATS_TENSOR_VIEW_H
#define RVI_FORMATS_TENSOR_VIEW_H

#include "formats/qtypes.h"

enum { RVI_MAX_DIMS = 4 };

/* shape[0] is the outermost dimension: a matrix with rows of length n_in is {n_out, n_in} whichever
 * file it came from (GGUF writes the row length first; its reader turns that round). Rows are
 * contiguous blocks of `type`. */
typedef struct rvi_tensor_view {
    const char *name; /* terminated; owned by the file object */
    rvi_qtype type;
    int n_dims;
    uint64_t shape[RVI_MAX_DIMS];
    const uint8_t *data; /* into the file's bytes, any alignment */
    uint64_t n_bytes;
    int mapped; /* data is in a mapped file, so its pages can be released */
    int used;   /* set by the code that binds it; tensors left at 0 are reported as unused */
    int layer;  /* of the model whose products use it, from 1 on; 0: none, or not known */
} rvi_tensor_view;

#endif
