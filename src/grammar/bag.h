/* bag.h - rows of numbers, each kept once: equal rows have the same number. */
#ifndef RVI_GRAMMAR_BAG_H
#define RVI_GRAMMAR_BAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rvi_bag {
    uint32_t *words;
    size_t n_words, cap_words;
    size_t *rows; /* where each row begins; the next one's place is its end */
    uint32_t n_rows, cap_rows;
    uint32_t *table, table_mask;
} rvi_bag;

/* The number of the row, from 1 on; 0: no memory, or there are `most` rows already. */
uint32_t rvi_bag_put(rvi_bag *b, const uint32_t *words, size_t n, uint32_t most);
const uint32_t *rvi_bag_get(const rvi_bag *b, uint32_t row, size_t *n);
void rvi_bag_deinit(rvi_bag *b);

#endif
