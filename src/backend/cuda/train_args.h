/* train_args.h - what the kernels of training are told (train.cuh), as args.h does for the others;
 * that comes before it.
 *
 * Lists of jobs lie in the staging area; each block of a launch belongs to one job, the last that
 * begins no later than it. An operand is a matrix of bf16 (exact: f32) whose rows are filled up
 * with zeros to a multiple of RVI_CUDA_OPERAND elements. */
#ifndef RVI_BACKEND_CUDA_TRAIN_ARGS_H
#define RVI_BACKEND_CUDA_TRAIN_ARGS_H

enum {
    RVI_CUDA_OPERAND = 64,          /* rows of operands are multiples of it, and tiles so large */
    RVI_CUDA_GEMM_THREADS = 128,    /* of a block of products, */
    RVI_CUDA_GEMM_STAGES = 6,       /* parts of operands on their way, */
    RVI_CUDA_GEMM_STAGE = 16 << 10, /* and bytes of each: 128 of 64 rows of both operands */
    RVI_CUDA_SPAN_WARPS = 8,        /* of a block of the attention's backward by keys */
    RVI_CUDA_STATS = 4,             /* floats of a query: maximum, 1 / sum, sum(p dp), 0 */
};

/* Rows of f32 become an operand; turned: its rows are their columns. */
typedef struct rvi_cuda_operand_job {
    rvi_cuda_at from, to;
    int32_t from_stride, n_rows, n_cols; /* of what is read */
    int32_t to_stride;                   /* elements */
    int32_t turned, first_block;
} rvi_cuda_operand_job;

typedef struct rvi_cuda_operand_args {
    rvi_cuda_at jobs;
    int32_t exact, n_jobs; /* at most 32 */
} rvi_cuda_operand_args;

/* Both operands have rows of k elements. */
typedef struct rvi_cuda_segment {
    rvi_cuda_at a, b;
    int32_t k, zero;
} rvi_cuda_segment;

enum { RVI_CUDA_GEMM_STORE, RVI_CUDA_GEMM_ADD, RVI_CUDA_GEMM_OPERAND };

/* The sum over segments of a (m rows) times b (n rows) transposed. STORE: to floats at `out`; ADD:
 * the sum begins with what is there; OPERAND: times scale, as an operand of m rows at `out`, and
 * turned at `turned`, unless these are 0. */
typedef struct rvi_cuda_gemm_job {
    rvi_cuda_at out, turned, bias, segments; /* bias: 0: none */
    int32_t m, n, stride;
    int32_t n_stages; /* of 128 bytes of the operands' rows, over all segments */
    int32_t finish, tiles_across, first_block;
    float scale;
} rvi_cuda_gemm_job;

typedef struct rvi_cuda_gemm_args {
    rvi_cuda_at jobs;
    int32_t n_jobs, zero; /* at most 32 */
} rvi_cuda_gemm_args;

/* Texts as spans of rows (backend.h). Those that see a span: itself, then those below it. */
typedef struct rvi_cuda_span {
    int32_t first, n, pos, parent;
    int32_t seen_by, n_seen_by; /* in the list of such spans */
} rvi_cuda_span;

typedef struct rvi_cuda_span_args {
    rvi_cuda_cols out, q, k, v, dq, dk, dv; /* out: backward: its gradient */
    rvi_cuda_at spans, span_of, seen_by;    /* span_of: by row */
    rvi_cuda_at stats;                      /* [row][head] */
    int32_t n_heads, n_kv_heads, head_size, window;
    float scale, soft_cap;
} rvi_cuda_span_args;

typedef struct rvi_cuda_norm_back_args {
    rvi_cuda_cols dx, dy, x;
    rvi_cuda_at w;
    int32_t size, add; /* columns that are normed together; whether dx is added to */
    float eps;
    int32_t zero;
} rvi_cuda_norm_back_args;

typedef struct rvi_cuda_glu_back_args {
    rvi_cuda_cols dgate, dup, dact, gate, up;
    int32_t kind, zero;
} rvi_cuda_glu_back_args;

/* Of a row; kept: room for the logits of its ids. */
typedef struct rvi_cuda_target {
    rvi_cuda_at ids, p, kept;
    int32_t n;
    float rest, temperature, weight;
} rvi_cuda_target;

typedef struct rvi_cuda_loss_args {
    rvi_cuda_cols logits;
    rvi_cuda_at targets, losses;
    float soft_cap;
    int32_t grad;
} rvi_cuda_loss_args;

typedef struct rvi_cuda_move_args {
    rvi_cuda_cols out, x; /* x.at 0: zeros */
    rvi_cuda_at to;       /* scatter_add: rows of out, each once */
} rvi_cuda_move_args;

#endif
