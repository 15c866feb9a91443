/* rx_internal.h - what the files of rx.h share: nodes, lists of them, and how unions are made. */
#ifndef RVI_GRAMMAR_RX_INTERNAL_H
#define RVI_GRAMMAR_RX_INTERNAL_H

#include "grammar/rx.h"

typedef enum kind { NONE, EPS, ALL, SET, CAT, OR, AND, NOT, REPEAT, AUTO, TUPLE } kind;

struct rvi_rx_node {
    uint8_t kind;
    bool nullable;
    bool search;  /* only a search tells whether some text is in it */
    uint8_t live; /* 0: not known yet, 1: yes, 2: no */
    bool clears;  /* each plain character is a text of it */
    uint32_t a,
        b; /* children; SET, OR, AND, TUPLE: place and number of words; AUTO: which, state */
    uint32_t min, max;
    uint32_t length;         /* CAT: parts in a row */
    uint32_t steps, n_steps; /* n_steps 0: not made yet */
    uint32_t epoch, parent;  /* of the last search that came here */
};

enum {
    MAX_NODES = 1 << 20,
    MAX_WORDS = 1 << 23,
    MAX_STEPS = 1 << 23,
    MAX_DEPTH = 2000, /* of expressions in each other */
    MAX_IN_A_ROW = 20000,
    RVI_RX_MOST_PARTS = 64, /* of a tuple */
};

typedef struct rx_list {
    uint32_t few[64], *items;
    size_t n, cap;
} rx_list;

/* Room for one more element; the arrays double. */
bool rvi_rx_grow(rvi_rxs *p, void *array, uint32_t *cap, uint32_t need, uint32_t most, size_t size);
/* A state of an automaton that the pool knows. */
rvi_rx rvi_rx_auto_at(rvi_rxs *p, uint32_t which, uint32_t state);
int rvi_rx_by_number(const void *a, const void *b);

/* Adds v, or its children where it is of the same kind. */
void rvi_rx_list_flatten(rvi_rxs *p, rx_list *l, kind k, rvi_rx v);
void rvi_rx_list_free(rx_list *l);
/* The union or intersection of a list, which is sorted. */
rvi_rx rvi_rx_combine(rvi_rxs *p, kind k, rx_list *l);
/* All texts but a few: every text goes on to one, and so it does to one that is in several such
 * languages. */
bool rvi_rx_outside_few(const rvi_rxs *p, rvi_rx a);
/* rx_counters.c: joins what differs in the limits of one repetition alone. */
void rvi_rx_join_counters(rvi_rxs *p, rx_list *l);

#endif
