/* kv_store.h - KV pages in memory, as attention reads them.
 *
 * A page holds RVI_PAGE_TOKENS positions of all layers: layer after layer, head after head, the K
 * plane and then the V plane, laid out as kernels.h says. Position p of a sequence lies in slot
 * p % RVI_PAGE_TOKENS of its page.
 *
 * The store also has the scratch that attention needs, so that computing cannot fail; its size
 * follows from the head size and the number of threads, not from the length of a sequence. */
#ifndef RVI_BACKEND_CPU_KV_STORE_H
#define RVI_BACKEND_CPU_KV_STORE_H

#include "backend/cpu/cpu.h"

enum {
    RVI_KV_QUERIES = 48, /* queries (row, head) that a worker takes through the keys together */
    RVI_KV_PARTS = 2048, /* results of (query, chunk) that can wait to be merged */
};

/* One worker's own */
typedef struct rvi_kv_scratch {
    float *q;    /* [RVI_KV_QUERIES][padded] */
    int8_t *q8;  /* [RVI_KV_QUERIES][padded] */
    float *part; /* [RVI_KV_QUERIES][part_floats] */
    float *row;  /* [padded] */
    float d[RVI_KV_QUERIES], m[RVI_KV_QUERIES], l[RVI_KV_QUERIES];
    int32_t from[RVI_KV_QUERIES], end[RVI_KV_QUERIES];
} rvi_kv_scratch;

struct rvi_kv_store {
    rvi_kv_spec spec;
    rvi_attn_type type;
    uint8_t *data;
    size_t page_bytes, k_bytes, v_bytes; /* k, v: the planes of one head of one layer */
    size_t padded, part_floats;          /* head size rounded up; floats of a chunk's result */
    rvi_kv_scratch *scratch;             /* one for each worker */
    float *floats;                       /* what they point to, and below */
    float *parts, *m, *l; /* [RVI_KV_PARTS][part_floats], [RVI_KV_PARTS], [RVI_KV_PARTS] */
};

/* The K plane; the V plane follows it. */
static inline uint8_t *rvi_kv_planes(const rvi_kv_store *kv, int32_t page, int il, int head)
{
    size_t index = (size_t)il * (size_t)kv->spec.n_kv_heads + (size_t)head;
    return kv->data + (size_t)page * kv->page_bytes + index * (kv->k_bytes + kv->v_bytes);
}

#endif
