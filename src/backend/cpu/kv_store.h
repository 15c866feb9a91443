/* kv_store.h - KV pages in memory, as attention reads them.
 *
 * A page holds RVI_PAGE_TOKENS positions of all layers: layer after layer, head after head, the K
 * plane and then the V plane, laid out as kernels.h says. Position p of a sequence is number
 * p % RVI_PAGE_TOKENS of its page.
 *
 * A tiered store has pages in several forms, finest first, each with memory of its own: a form's
 * slots, of which a page has one or none. There are as many slots as pages, so that none is ever
 * lacking; a slot that no page has takes no memory once rvi_cpu_kv_trim has given it back.
 *
 * The store also has the scratch that attention needs, so that computing cannot fail; its size
 * follows from the head size and the number of threads, not from the length of a sequence. */
#ifndef RVI_BACKEND_CPU_KV_STORE_H
#define RVI_BACKEND_CPU_KV_STORE_H

#include "backend/cpu/cpu.h"

enum {
    RVI_KV_QUERIES = 192,   /* most queries (row, head) that a worker takes through keys together */
    RVI_KV_PARTS = 2048,    /* results of (query, chunk) that can wait to be merged */
    RVI_KV_WIDE_HEAD = 128, /* the largest head of which a chunk in f32 stays in the second cache */
};

/* One worker's own */
typedef struct rvi_kv_scratch {
    float *q;            /* [RVI_KV_QUERIES][padded] */
    int8_t *q8;          /* [RVI_KV_QUERIES][padded] */
    int8_t *cold;        /* the same of rotated queries */
    float *part;         /* [RVI_KV_QUERIES][part_floats] */
    float *wide;         /* a chunk's planes in f32; NULL where heads are too large */
    float *row, *turned; /* [padded] */
    float d[RVI_KV_QUERIES], cold_d[RVI_KV_QUERIES], m[RVI_KV_QUERIES], l[RVI_KV_QUERIES];
    int32_t from[RVI_KV_QUERIES], end[RVI_KV_QUERIES];
} rvi_kv_scratch;

enum { RVI_KV_FORMS = 3 };

typedef struct rvi_kv_form {
    rvi_attn_type type;
    uint8_t *data;
    size_t page_bytes, k_bytes, v_bytes; /* k, v: the planes of one head of one layer */
    int32_t *slots;                      /* of each page, -1: none; NULL: the page's number */
    int32_t *free_slots; /* the first n_returned have no memory; the next n_ready still have */
    int n_returned, n_ready;
} rvi_kv_form;

struct rvi_kv_store {
    rvi_kv_spec spec;
    rvi_kv_form forms[RVI_KV_FORMS];
    int n_forms;
    size_t padded, part_floats; /* head size rounded up; floats of a chunk's result */
    rvi_kv_scratch *scratch;    /* one for each worker */
    float *floats;              /* what they point to, and below */
    float *parts, *m, *l;       /* [RVI_KV_PARTS][part_floats], [RVI_KV_PARTS], [RVI_KV_PARTS] */
};

static inline bool rvi_kv_has(const rvi_kv_form *f, int32_t page)
{
    return !f->slots || f->slots[page] >= 0;
}

/* The K plane, of a form that the page has; the V plane follows it. */
static inline uint8_t *rvi_kv_planes(const rvi_kv_store *kv, const rvi_kv_form *f, int32_t page,
                                     int il, int head)
{
    size_t index = (size_t)il * (size_t)kv->spec.n_kv_heads + (size_t)head;
    size_t slot = (size_t)(f->slots ? f->slots[page] : page);
    return f->data + slot * f->page_bytes + index * (f->k_bytes + f->v_bytes);
}

#endif
