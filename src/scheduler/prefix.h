/* prefix.h - the tree of pages that are kept: which beginnings of texts have keys and values.
 *
 * A node is a page and the tokens in it; its path from the root is a text. The root's children are
 * name spaces: nothing is shared between two of them. Invariants:
 *  1. The children of a node are sorted by their tokens, and none is the beginning of another, so
 *     the one with the longest common beginning is beside the place where a page would be.
 *  2. Only a node of RVI_PAGE_TOKENS tokens has children (and a name space, which has no page).
 *  3. A node's parent is given up after it.
 *
 * What is given up first was used longest ago, but what many texts begin with stays longer: pages
 * lie on levels, of which one is given up after the other, oldest first. Who is used goes to the
 * level behind the one that pages were last taken from, and a page from which texts have gone on in
 * k ways to the k-th behind it. So it stays until all that is kept has been replaced k times. A
 * conversation that grows has gone on in one way: its turns do not add up when it is over. The cost
 * of computing a page again, which grows along a text, does not count (bench/prefixes.c).
 * The tree holds one reference to each of its pages. The thread of the pool uses it. */
#ifndef RVI_SCHEDULER_PREFIX_H
#define RVI_SCHEDULER_PREFIX_H

#include "kv/pages.h"

typedef struct rvi_prefix rvi_prefix;

/* What keys and values depend on besides the tokens before them, and who may see them. */
typedef struct rvi_prefix_space {
    uint64_t adapters; /* serial of the set */
    uint64_t salt;
    int rope_set;
} rvi_prefix_space;

enum { RVI_PREFIX_WAYS = 8 }; /* that count */

/* most_ways: 1 .. RVI_PREFIX_WAYS; with 1 it is the time of the last use alone that counts */
rv_status rvi_prefix_new(rvi_prefix **out, rvi_pages *pool, int most_ways,
                         rv_error *err) RVI_MUST_CHECK;
void rvi_prefix_free(rvi_prefix *p); /* accepts NULL; gives all pages back */

/* The longest beginning of ids that is kept: its length in tokens, and its pages, for which there
 * is room ((n + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS). The last one may be shared in part. */
int rvi_prefix_find(rvi_prefix *p, const rvi_prefix_space *space, const int32_t *ids, int n,
                    int32_t *pages);
/* Keeps the pages of ids that are not there yet. Without memory it keeps fewer. */
void rvi_prefix_insert(rvi_prefix *p, const rvi_prefix_space *space, const int32_t *ids, int n,
                       const int32_t *pages);
/* Gives up pages that nobody else holds, in the order above, until n are free or there are no more;
 * returns how many. */
int rvi_prefix_evict(rvi_prefix *p, int n);
void rvi_prefix_forget(rvi_prefix *p, uint64_t salt); /* all that is kept under it */

#endif
