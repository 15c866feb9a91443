/* train.h - the training ops of the CPU backend. */
#ifndef RVI_BACKEND_CPU_TRAIN_H
#define RVI_BACKEND_CPU_TRAIN_H

#include "backend/cpu/cpu.h"

enum {
    RVI_TRAIN_ROWS =
        864, /* of a block: packed, with a chunk of inputs, they stay in the second level cache */
    RVI_TRAIN_CHUNK = 640, /* inputs: a product goes over so many of k without putting sums aside */
    RVI_TRAIN_WHOLE = 512, /* where there are more: a multiple of every block of weights */
    RVI_TRAIN_GROUP = 96,  /* rows of a task: a multiple of every row_group */
    RVI_TRAIN_UNIT = 256,  /* most outputs of a task */
    RVI_TRAIN_TILE = (RVI_MAX_RANK + RVI_TRAIN_GROUP) * 64,
    RVI_TRAIN_QUERIES = 96,   /* of an attention task */
    RVI_TRAIN_KEYS = 256,     /* that meet them at a time */
    RVI_TRAIN_HEADS = 128,    /* of a round of the attention's backward */
    RVI_TRAIN_BLOCK = 128,    /* most rows of a block of a worker's own */
    RVI_TRAIN_MANY = 4,       /* threads for which memory is given for speed */
    RVI_TRAIN_PARTS = 1 << 21 /* floats of dk and dv that await being added */
};

/* Of one worker. */
typedef struct rvi_attn_train {
    const float *queries[2][RVI_TRAIN_QUERIES], *keys[RVI_TRAIN_KEYS]; /* where rows lie */
    uint8_t *left, *right, *own;  /* operands; own: of keys that meet many queries */
    float *result;                /* rows of all queries */
    float *scores, *slopes, *raw; /* [query][key] */
} rvi_attn_train;

/* A block of rows of a worker's own, on its way through layers whose weights are held. */
typedef struct rvi_train_block {
    _Alignas(128) uint64_t number; /* of the product they were packed for */
    int block;
    uint8_t *packed;
    float *low, *sums;
} rvi_train_block;

struct rvi_train_scratch {
    int max_rows, max_cols, max_vocab;
    size_t bytes; /* of everything below that grows with them */
    const rvi_train_gemm *linear;
    uint8_t *rows_packed;    /* a block of rows, and the adapters' part behind them */
    uint8_t *first;          /* the adapters' first matrices as right operands */
    float *low[2];           /* [rows][ranks of a group of layers] scaled: A x, B^T dy */
    uint8_t *turned[2];      /* these as left operands [ranks][rows] */
    uint8_t **panel;         /* per worker: a right operand */
    rvi_train_block *blocks; /* per worker; NULL: few threads */
    uint64_t n_held;         /* products so far that went by held weights */
    float **tile;            /* per worker: weights as f32 on their way there, or sums */
    float **rows;            /* per worker: logits of targets */
    const rvi_train_gemm *attention_gemm;
    rvi_attn_train *attention; /* per worker */
    float *stats;              /* of queries */
    float *parts;              /* of dk and dv, by blocks of queries */
};

rv_status rvi_cpu_train_reserve(rvi_backend *be, int n_rows, int n_cols, int n_vocab,
                                rv_error *err);
void rvi_cpu_train_free(rvi_cpu *cpu);
const rvi_train_gemm *rvi_cpu_train_gemm(const rvi_cpu *cpu); /* of linear layers */
size_t rvi_cpu_held_bytes(rvi_backend *be, const rvi_tensor *w, bool back);
rv_status rvi_cpu_held_new(rvi_backend *be, rvi_held **out, rvi_pack *pack, const rvi_tensor *w,
                           bool back, rv_error *err);
void rvi_cpu_held_free(rvi_backend *be, rvi_held *h);

void rvi_cpu_linear(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols y,
                    rvi_cols x, int n_rows);
void rvi_cpu_linear_back(rvi_backend *be, const rvi_float_linear *l, int n_layers, rvi_cols dx,
                         bool fresh, rvi_cols dy, rvi_cols x, int n_rows);
void rvi_cpu_span_attention(rvi_backend *be, rvi_cols out, rvi_cols q, rvi_cols k, rvi_cols v,
                            const rvi_attention *a, const rvi_span *spans, int n_spans);
void rvi_cpu_span_attention_back(rvi_backend *be, rvi_cols dq, rvi_cols dk, rvi_cols dv,
                                 rvi_cols dout, rvi_cols q, rvi_cols k, rvi_cols v,
                                 const rvi_attention *a, const rvi_span *spans, int n_spans);
void rvi_cpu_rms_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                           const rvi_tensor *w, int n_rows, float eps);
void rvi_cpu_head_norm_back(rvi_backend *be, rvi_cols dx, rvi_cols dy, rvi_cols x,
                            const rvi_tensor *w, int n_rows, float eps);
void rvi_cpu_glu_back(rvi_backend *be, rvi_cols dgate, rvi_cols dup, rvi_cols dact, rvi_cols gate,
                      rvi_cols up, rvi_glu kind, int n_rows);
void rvi_cpu_loss(rvi_backend *be, rvi_cols logits, rvi_target *targets, float soft_cap, bool grad,
                  int n_rows);
void rvi_cpu_zero(rvi_backend *be, rvi_cols x, int n_rows);
void rvi_cpu_copy(rvi_backend *be, rvi_cols out, rvi_cols x, int n_rows);
void rvi_cpu_scatter_add(rvi_backend *be, rvi_cols out, rvi_cols x, const int32_t *to, int n_rows);

#endif
