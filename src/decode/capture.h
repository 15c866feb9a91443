/* capture.h - records what learning needs of every generated token.
 *
 * For a token y that followed a row: u, the input of the last layer's down projection, and
 *     g = d log p(y) / d (output of that projection),    p = softmax(logits / temperature)
 * so that (g, u) is the exact gradient of log p(y) by the projection's matrix: sum over tokens of
 * g u^T. Nothing above it writes keys or values; only the norms and the head lie between.
 *
 * p is the model's own distribution at the sampler's temperature (greedy: 1), before masks, biases,
 * penalties, slots and truncation: if truncation left a single token, it would have no gradient,
 * and feedback could never change it. The row's adapters below the head are included in p; the head
 * is used without an adapter.
 *
 * g is sparse in the vocabulary: y and the 64 most probable tokens (256 if those have less than 0.9
 * of the probability) with their rows of the head, and for the rest its mean row. Where the model
 * caps its logits, each row counts with the cap's slope at its logit.
 *
 * A capturer holds the model's part and the scratch; a capture is a session's ring buffer of
 * tokens. Capturing allocates nothing. One thread at a time uses an engine's capturer. */
#ifndef RVI_DECODE_CAPTURE_H
#define RVI_DECODE_CAPTURE_H

#include "decode/engine.h"
#include "kernels/kernels.h"

enum { RVI_CAPTURE_TOP = 64, RVI_CAPTURE_TOP_FLAT = 256, RVI_CAPTURE_MAX_TOKENS = 1 << 16 };

typedef struct rvi_capturer rvi_capturer;

/* Decoders only; m is borrowed. Reads the whole head once. */
rv_status rvi_capturer_new(rvi_capturer **out, const rvi_model *m, rv_error *err) RVI_MUST_CHECK;
/* The same in pieces: one that cannot be used yet; reads up to n rows more of the head. True: it
 * has read all of it. */
rv_status rvi_capturer_begin(rvi_capturer **out, const rvi_model *m, rv_error *err) RVI_MUST_CHECK;
bool rvi_capturer_go_on(rvi_capturer *c, int n);
void rvi_capturer_free(rvi_capturer *c); /* accepts NULL; its captures must be gone */

/* The weights between the last down projection and the logits; [n_embd] each. */
typedef struct rvi_top_part {
    const float *out_norm, *post_norm; /* weights; post_norm NULL: none follows the projection */
    const float *mean;                 /* mean row of the head */
} rvi_top_part;

rvi_top_part rvi_capturer_top(const rvi_capturer *c);
void rvi_capturer_head_row(rvi_capturer *c, int32_t id, float *out); /* uses the backend */

/* The gradient by y = RMS norm of x with weights w becomes the one by x; n elements. */
void rvi_capture_norm_back(const rvi_kernels *k, const float *w, const float *x, float *g, size_t n,
                           float eps);

/* The last n_tokens generated; by is borrowed. */
rv_status rvi_capture_new(rvi_capture **out, rvi_capturer *by, int n_tokens,
                          rv_error *err) RVI_MUST_CHECK;
void rvi_capture_free(rvi_capture *c); /* accepts NULL */

/* A token of the ring; the vectors are the ring's own, valid until it is overwritten. */
typedef struct rvi_captured {
    const rvi_f16 *u, *g;   /* [n_ff], [n_embd], the largest element 1 or -1, */
    float u_scale, g_scale; /* times these; NaN: the model's numbers were not finite */
    /* the length that a change of the projection's output is small or large against: of the
     * residual stream, or of the output itself where a norm follows it */
    float reach;
    int32_t id;
    float log_p, entropy; /* of p, in nats */
    uint64_t answer;
} rvi_captured;

/* Begins a new answer: later tokens belong to it. Returns its number, from 1 on. */
uint64_t rvi_capture_begin(rvi_capture *c);
/* Takes token id, which followed row `row` of the last forward in ws. logits: the row's n_vocab.
 * temperature 0: 1. */
void rvi_capture_take(rvi_capture *c, rvi_workspace *ws, int row, const float *logits,
                      float temperature, int32_t id);

uint64_t rvi_capture_answer(const rvi_capture *c); /* the latest number, 0: none */
/* How many of an answer's tokens are in the ring; the first ones of a long answer may not be. */
int rvi_capture_count(const rvi_capture *c, uint64_t answer);
/* The first tokens of the latest answer, whether they are still in the ring or not. */
enum { RVI_CAPTURE_HEAD = 64 };
typedef struct rvi_captured_id {
    int32_t id;
    float log_p;
} rvi_captured_id;
int rvi_capture_head(const rvi_capture *c, const rvi_captured_id **out); /* returns how many */
/* The i-th of those that are there. */
rvi_captured rvi_capture_get(const rvi_capture *c, uint64_t answer, int i);

#endif
