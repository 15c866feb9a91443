/* training.h - a model with an adapter in training and its trainer, for the tests of gradients. */
#ifndef TESTS_MODEL_TRAINING_H
#define TESTS_MODEL_TRAINING_H

#include "golden.h"

#include <math.h>

#include "base/rng.h"
#include "model/trainer.h"

typedef struct training {
    golden g;
    rvi_params *params, *grads;
    rvi_trainer *t;
} training;

static inline bool every_target(const void *ctx, int target)
{
    (void)ctx;
    (void)target;
    return true;
}

/* Takes g. All linear layers, the head too where `wanted` says so. */
static inline void training_init(training *r, golden g, bool (*wanted)(const void *ctx, int target),
                                 int rank, float alpha, const rvi_trainer_options *o)
{
    *r = (training){.g = g};
    assert_ok(rvi_params_new(&r->params, g.be, g.m->targets, g.m->n_targets, wanted, g.m, rank,
                             alpha, err));
    assert_ok(rvi_params_like(&r->grads, r->params, err));
    assert_ok(rvi_trainer_new(&r->t, g.m, g.be, r->params, r->grads, o, err));
}

static inline void training_deinit(training *r)
{
    rvi_trainer_free(r->t);
    rvi_params_free(r->params);
    rvi_params_free(r->grads);
    golden_close(&r->g);
}

/* Where a slot's matrix begins in theta, and how many numbers it has; NULL: the slot has none. */
static inline float *slot_of(const rvi_params *p, int slot, bool is_b, size_t *n)
{
    const rvi_adapter *a = p->adapter;
    float *at = p->theta;
    for (int i = 0; i <= slot; i++) {
        if (!a->slots[i].a) continue;
        size_t n_a = (size_t)p->rank * (size_t)a->be->ops->n_cols(a->slots[i].a),
               n_b = (size_t)p->rank * (size_t)a->be->ops->n_rows(a->slots[i].b);
        if (i == slot) {
            *n = is_b ? n_b : n_a;
            return is_b ? at + n_a : at;
        }
        at += n_a + n_b;
    }
    *n = 0;
    return NULL;
}

static inline void fill_random(float *x, size_t n, double size, uint64_t seed)
{
    rvi_rng rng = {seed};
    for (size_t i = 0; i < n; i++) x[i] = (float)(size * (2 * rvi_rng_double(&rng) - 1));
}

/* A as a new adapter has it, B of like size: every path carries a gradient. */
static inline void random_params(rvi_params *p, uint64_t seed)
{
    rvi_params_init_random(p, seed);
    for (int i = 0; i < p->adapter->n_slots; i++) {
        size_t n;
        float *b = slot_of(p, i, true, &n);
        if (b) fill_random(b, n, 0.1, seed + (uint64_t)i);
    }
}

static inline double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static inline double cosine_of(const float *a, const float *b, size_t n)
{
    return dot(a, b, n) / sqrt(dot(a, a, n) * dot(b, b, n));
}

/* |a - b| / |b| */
static inline double relative(const float *a, const float *b, size_t n)
{
    double error = 0;
    for (size_t i = 0; i < n; i++) error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(error / dot(b, b, n));
}

/* ---- what is trained on ---- */

enum { MOST_ROWS = 256, MOST_LOSSES = 512, K = 6 };

/* Rows with targets: what a loss is made of. */
typedef struct task {
    int32_t rows[MOST_LOSSES], ids[MOST_LOSSES][K];
    float p[MOST_LOSSES][K];
    rvi_target targets[MOST_LOSSES];
    int n;
} task;

static inline void add_next_token(task *k, int row, int32_t id, float weight)
{
    int i = k->n++;
    k->rows[i] = row;
    k->ids[i][0] = id;
    k->p[i][0] = 1;
    k->targets[i] =
        (rvi_target){.ids = k->ids[i], .p = k->p[i], .n = 1, .temperature = 1, .weight = weight};
}

/* The mean next-token loss of a text in rows first .. first + n - 1. */
static inline void add_text(task *k, const int32_t *ids, int first, int n)
{
    for (int i = 0; i + 1 < n; i++) add_next_token(k, first + i, ids[i + 1], 1.0f / (float)(n - 1));
}

/* Sum of weight * loss. */
static inline double run_losses(training *r, task *k, bool grad)
{
    double sum = 0;
    rvi_trainer_loss(r->t, k->rows, k->targets, k->n, grad);
    for (int i = 0; i < k->n; i++) sum += (double)k->targets[i].weight * k->targets[i].loss;
    return sum;
}

/* Loss, and its gradient in r->grads. */
static inline double run_all(training *r, const int32_t *ids, const rvi_span *spans, int n_spans,
                             task *k)
{
    memset(r->grads->theta, 0, r->grads->n * sizeof(float));
    rvi_trainer_begin(r->t, ids, spans, n_spans);
    rvi_trainer_forward(r->t, 0, r->g.m->hp.n_layers);
    double loss = run_losses(r, k, true);
    rvi_trainer_backward(r->t);
    return loss;
}

static const rvi_trainer_options usual = {.max_rows = MOST_ROWS, .max_spans = 8, .max_losses = 64};

static inline void other_text(int32_t *ids, int n, int vocab)
{
    rvi_rng rng = {7};
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(rvi_rng_u64(&rng) % (uint64_t)vocab);
}

/* Targets of three kinds in turn: the next token, a distribution over K ids and the rest, and the
 * same at temperature 2. kind -1: in turn, by `salt`. */
static inline void add_target(task *k, int row, int kind, int salt, int vocab, float weight)
{
    rvi_rng rng = {(uint64_t)salt * 977 + 5};
    int32_t id = (int32_t)(rvi_rng_u64(&rng) % (uint64_t)vocab);
    if (kind < 0) kind = salt % 3;
    if (kind == 0) {
        add_next_token(k, row, id, weight);
        return;
    }
    int i = k->n++;
    double sum = 0, p[K + 1];
    for (int j = 0; j <= K; j++) sum += p[j] = 0.05 + rvi_rng_double(&rng);
    for (int j = 0; j < K; j++) {
        k->ids[i][j] = (int32_t)((id + 31 * j) % vocab);
        k->p[i][j] = (float)(p[j] / sum);
    }
    k->rows[i] = row;
    k->targets[i] = (rvi_target){.ids = k->ids[i],
                                 .p = k->p[i],
                                 .n = K,
                                 .rest = (float)(p[K] / sum),
                                 .temperature = kind == 1 ? 1.0f : 2.0f,
                                 .weight = weight};
}

#endif
