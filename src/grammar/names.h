/* names.h - a finite set of texts as an automaton: keys of an object, strings of an enum. */
#ifndef RVI_GRAMMAR_NAMES_H
#define RVI_GRAMMAR_NAMES_H

#include "base/utf8.h"
#include "grammar/rx.h"

int rvi_text_compare(const void *a, const void *b); /* of two rvi_text, for qsort */

typedef struct rvi_name_node {
    uint32_t cp;           /* leads here */
    uint32_t child, count; /* the children, in the order of their code points */
    uint32_t low, high;    /* the names that begin with the path to here: low .. high-1 */
    bool ends;             /* the name `low` ends here */
} rvi_name_node;

typedef struct rvi_names {
    rvi_name_node *nodes; /* the first is the root */
    uint32_t n_nodes;
    uint32_t *bounds; /* of each node: at 2 * child .. 2 * (child + count) */
} rvi_names;

/* texts: sorted, without repetition. The automaton lives in the arena. */
rvi_rx rvi_rx_names(rvi_rxs *p, rvi_arena *arena, const rvi_text *texts, size_t n,
                    const rvi_names **out);

#endif
