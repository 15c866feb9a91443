/* figures.h - what a service counts, always: the computing thread adds, any thread reads a copy
 * without a lock. A copy is not of one moment, but no count in it is torn. */
#ifndef RVI_SCHEDULER_FIGURES_H
#define RVI_SCHEDULER_FIGURES_H

#include <stdatomic.h>

#include "ruvllm_service.h"

typedef struct rvi_tally {
    atomic_uint_fast64_t counts[RV_HISTOGRAM_BUCKETS];
    atomic_uint_fast64_t sum_ns, max_ns;
} rvi_tally;

/* Counters of rv_service_metrics, by name; the first ones say how things are now. */
#define RVI_FIGURES(X)                                                                             \
    X(n_running)                                                                                   \
    X(n_waiting)                                                                                   \
    X(pages)                                                                                       \
    X(pages_running)                                                                               \
    X(pages_kept)                                                                                  \
    X(n_submitted)                                                                                 \
    X(n_refused)                                                                                   \
    X(n_done)                                                                                      \
    X(n_cancelled)                                                                                 \
    X(n_timed_out)                                                                                 \
    X(n_failed)                                                                                    \
    X(n_steps)                                                                                     \
    X(prompt_rows)                                                                                 \
    X(token_rows)                                                                                  \
    X(answer_tokens)                                                                               \
    X(prompt_tokens)                                                                               \
    X(reused_tokens)                                                                               \
    X(n_preempted)                                                                                 \
    X(recomputed_rows)                                                                             \
    X(n_guessed)                                                                                   \
    X(n_right)                                                                                     \
    X(pages_hot)                                                                                   \
    X(pages_warm)                                                                                  \
    X(pages_cold)                                                                                  \
    X(dropped_rows)                                                                                \
    X(n_spilled)                                                                                   \
    X(n_spill_failed)                                                                              \
    X(spilled_rows)                                                                                \
    X(n_evicted)                                                                                   \
    X(n_coarsened)                                                                                 \
    X(n_dropped_kept)                                                                              \
    X(bytes_hot)                                                                                   \
    X(bytes_warm)                                                                                  \
    X(bytes_cold)                                                                                  \
    X(bytes_kept)                                                                                  \
    X(bytes_spilled)
#define RVI_TALLIES(X) X(queue) X(first_token) X(inter_token) X(step) X(lookup)

typedef struct rvi_figures {
#define X(name) atomic_uint_fast64_t name;
    RVI_FIGURES(X)
#undef X
#define X(name) rvi_tally name;
    RVI_TALLIES(X)
#undef X
    atomic_uint_fast64_t prompt_ns, token_ns; /* of steps, shared out by rows */
} rvi_figures;                                /* {0} is empty */

void rvi_figures_add(atomic_uint_fast64_t *counter, uint64_t n);
void rvi_figures_set(atomic_uint_fast64_t *counter, uint64_t n);
void rvi_tally_add(rvi_tally *t, double seconds);
/* A step of so many tokens and rows of prompts took so long. */
void rvi_figures_step(rvi_figures *f, int n_tokens, int n_prompt_rows, double seconds);
void rvi_tally_read(const rvi_tally *t, rv_histogram *out);
void rvi_figures_read(const rvi_figures *f, rv_service_metrics *out); /* all but size */

#endif
