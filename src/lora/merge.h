/* merge.h - merges several adapters into one.
 *
 * Adapters are merged by their products dW = s B A. The factors B and A of two adapters are
 * unrelated, so they are never averaged directly. Placing the factors side by side gives the exact
 * sum of the products (ranks add up); a lower rank is reached by keeping the largest singular
 * values of the product. The energy of the discarded ones (their share of the squared Frobenius
 * norm) is reported, and the merge is refused if it is too large. */
#ifndef RVI_LORA_MERGE_H
#define RVI_LORA_MERGE_H

#include "lora/adapter.h"

typedef struct rvi_merge_part {
    const rvi_adapter *adapter;
    double quality, n_samples; /* quality_weighted */
    /* ewc: how much the loss depends on each value of the adapter, not negative; slot after slot, A
     * then B, as in params.h. Comparable between the parts: normalised by its mean. */
    const float *fisher;
} rvi_merge_part;

/* A rule is a row of a table:
 *   sum               dW = sum dW_i
 *   average           dW = sum dW_i / n
 *   quality_weighted  dW = sum q_i n_i dW_i / sum q_i n_i
 *   ema               dW = 0.99 dW_1 + 0.01 dW_2: the first is the running one
 *   ewc               the factors of all are brought to one form (balanced by the singular values
 *                     of the product, then turned towards the first part's), the Fisher information
 *                     with them, and each value is the mean weighted by it */
typedef struct rvi_merge_rule rvi_merge_rule;
const rvi_merge_rule *rvi_merge_find(const char *name); /* NULL: no such rule */

typedef struct rvi_merge_report {
    double energy;  /* of the merged product before anything was discarded */
    double lost;    /* share of it that was discarded, 0..1 */
    double worst;   /* the largest share in one slot, and that slot */
    int worst_slot; /* -1: nothing was discarded anywhere */
    double *slots;  /* not NULL: room for the share of every slot */
} rvi_merge_report;

#define RVI_MERGE_MAX_LOST 0.05

/* rank: of the result; 0: ranks add up and nothing is discarded. A slot never gets more than the
 * ranks of its parts together. The report (may be NULL) is also filled when the merge is refused
 * for its loss. */
rv_status rvi_adapter_merge(rvi_adapter **out, const rvi_lora_target *targets,
                            const rvi_merge_rule *rule, const rvi_merge_part *parts, int n_parts,
                            int rank, rvi_merge_report *report, rv_error *err) RVI_MUST_CHECK;

#endif
