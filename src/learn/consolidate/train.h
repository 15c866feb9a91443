/* train.h - gradient steps of one adapter over texts.
 *
 * A step draws taught texts and kept ones, each kind by walking through shuffled copies of its
 * pool, sums the gradients of
 *     mean cross entropy of taught tokens + beta * mean KL(base || model) of kept tokens
 *         [ + lambda / 2 * sum_i F_i (theta_i - star_i)^2 ]
 * (or of DPO or KTO over pairs of texts instead of the cross entropy), and takes one Adam step.
 * Batches of any size go through the trainer in portions of its rows. The same seed gives the same
 * bits on the same instruction set, for any number of threads. */
#ifndef RVI_LEARN_CONSOLIDATE_TRAIN_H
#define RVI_LEARN_CONSOLIDATE_TRAIN_H

#include "base/rng.h"
#include "learn/consolidate/optimizer.h"
#include "learn/consolidate/samples.h"

typedef enum rvi_objective { RVI_TEACH, RVI_DPO, RVI_KTO } rvi_objective;

typedef struct rvi_train_options {
    rvi_objective objective;
    int n_steps;
    int n_teach, n_keep; /* texts of a step; DPO and KTO: n_teach pairs */
    float beta;          /* weight of the KL term */
    float rate, warm_up; /* peak learning rate; share of the steps */
    float enough;        /* TEACH: the taught texts' loss at which a run need not go on once all of
                            them had their turn; 0: it never ends early */
    float beta_pref;     /* DPO, KTO */
    float chosen;        /* DPO, KTO: weight of the cross entropy of the chosen answers */
    float ewc;           /* lambda; 0: none */
    bool random;         /* control: the gradient is replaced by a random one of its norm */
    uint64_t seed;
    int max_rows; /* of a portion */
} rvi_train_options;

/* Walks through a pool of numbers in shuffled copies of it. */
typedef struct rvi_walk {
    size_t *order;
    size_t n, at;
    rvi_rng rng;
} rvi_walk;

typedef struct rvi_training {
    rvi_train_options o;
    const rvi_samples *texts; /* all ready */
    rvi_params *theta;        /* borrowed */
    rvi_params *grads;
    rvi_trainer *trainer;
    rvi_optimizer *opt;
    rvi_batch batch;
    rvi_walk teach, keep;
    size_t *picked;             /* the texts of a step */
    float *weight;              /* of each, on its cross entropy */
    double *log_p;              /* of each */
    const float *fisher, *star; /* EWC, n each; borrowed; NULL: none */
    int step;
    int easing, ends; /* the step from which the rate falls to 0 (0: not yet), and the last one */
    double usual_ce;  /* mean of ce, the last steps counting most */
    double ce, kl;    /* of the last step: means over tokens */
    uint64_t n_rows;  /* that went through the trainer so far */
    size_t counted;   /* bytes beside the trainer's that the backend counts for it */
} rvi_training;

/* teach: numbers of texts (DPO, KTO: of the chosen one of a pair, whose rejected one follows it);
 * keep: of kept texts, may be empty. theta's adapter is what is trained. */
rv_status rvi_training_init(rvi_training *t, const rvi_samples *texts, rvi_params *theta,
                            const rvi_train_options *o, const size_t *teach, size_t n_teach,
                            const size_t *keep, size_t n_keep, rv_error *err) RVI_MUST_CHECK;
void rvi_training_deinit(rvi_training *t);
/* One step; false after the last. Where little is left to learn, the last one comes early: `ends`
 * is then brought forward, and the learning rate falls to 0 until there. */
bool rvi_training_step(rvi_training *t);

/* Mean loss by the adapter as it is. TEACH: over the tokens of texts, cross entropy of taught ones,
 * KL of kept ones. DPO, KTO: over pairs given by their chosen ones, of their preference alone. */
double rvi_training_measure(rvi_training *t, const size_t *which, size_t n);

/* Adds to fisher (n of theta) what a group leaves: squares of the gradients of n_samples single
 * texts at temperature 2, divided by their mean over the entries that are not 0, no more than 100;
 * fisher = min(decay * fisher + that, 100). */
rv_status rvi_training_fisher(rvi_training *t, const size_t *teach, size_t n_teach, int n_samples,
                              float decay, float *fisher, rv_error *err) RVI_MUST_CHECK;

/* All that a later step depends on, so that a run may stop and go on, with the same bits. Loading
 * is for one of the same texts and options that took no step yet. */
bool rvi_training_save(const rvi_training *t, rvi_buf *out);
rv_status rvi_training_load(rvi_training *t, const void *data, size_t len,
                            rv_error *err) RVI_MUST_CHECK;

#endif
