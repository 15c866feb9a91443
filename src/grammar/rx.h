/* rx.h - regular languages over code points, as expressions with derivatives.
 *
 * A language is a node of a pool; equal expressions are the same node, so a node is also a state
 * of a deterministic automaton: its derivative by a character is the state after that character.
 * Union, intersection and complement are plain operations, which is what JSON Schema needs of
 * strings and numbers. States are made when they are first asked for.
 *
 * A pool that runs out of memory or beyond its limits remembers why (rvi_rxs.status), answers
 * RVI_RX_NONE from then on, and the caller looks at the status when it is done. One thread at a
 * time. */
#ifndef RVI_GRAMMAR_RX_H
#define RVI_GRAMMAR_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

typedef uint32_t rvi_rx;

enum {
    RVI_RX_NONE, /* no text */
    RVI_RX_EPS,  /* the empty text */
    RVI_RX_ALL,  /* every text */
    RVI_RX_CHAR, /* every single character */
};

enum { RVI_RX_LAST = 0x10FFFF };
#define RVI_RX_FOREVER UINT32_MAX

typedef struct rvi_rx_range {
    uint32_t first, last;
} rvi_rx_range;

/* A part of the code points, ended by `last`, that leads to the same state. */
typedef struct rvi_rx_step {
    uint32_t last;
    rvi_rx to;
} rvi_rx_step;

/* An automaton that is no expression: numbers by value, sets of names. */
typedef struct rvi_rx_auto {
    uint32_t (*step)(const void *self, uint32_t state, uint32_t cp); /* UINT32_MAX: none */
    bool (*ends)(const void *self, uint32_t state);
    /* Code points where steps change: each begins a part that is treated alike. */
    size_t (*bounds)(const void *self, uint32_t state, const uint32_t **out);
    const void *self; /* must outlive the pool */
    bool finite;      /* few texts: what is outside never needs to be looked for */
    bool lives;       /* every state can reach an end */
} rvi_rx_auto;

typedef struct rvi_rx_node rvi_rx_node;

typedef struct rvi_rxs {
    rvi_rx_node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *table; /* hash to node + 1 */
    uint32_t table_mask;
    uint32_t *words; /* children of nodes, ranges of sets */
    uint32_t n_words, cap_words;
    rvi_rx_step *steps;
    uint32_t n_steps, cap_steps;
    rvi_rx_auto *autos;
    uint32_t n_autos, cap_autos;
    uint32_t *queue; /* of the search for a text */
    uint32_t cap_queue, epoch;
    uint32_t *scratch; /* bounds of a node */
    uint32_t n_scratch, cap_scratch;
    uint64_t work, max_work; /* what was done lately, and the most of it */
    uint64_t tried;          /* done by rvi_rx_try */
    rv_status status;
    const char *why;
} rvi_rxs;

/* max_work: each unit takes some twenty nanoseconds. */
rv_status rvi_rxs_init(rvi_rxs *p, uint64_t max_work, rv_error *err) RVI_MUST_CHECK;
void rvi_rxs_deinit(rvi_rxs *p);
/* RV_OK, or the error that the pool remembers. where: the text that needs it, or NULL. */
rv_status rvi_rxs_check(const rvi_rxs *p, const char *where, rv_error *err) RVI_MUST_CHECK;
/* Counts what is done: expressions derived and compared, bytes tried. False: it failed, and be it
 * because that was too much. */
bool rvi_rxs_spend(rvi_rxs *p, uint64_t n);
/* Forgets some of what was done, because a step of the text has come of it. */
void rvi_rxs_forgive(rvi_rxs *p, uint64_t n);
/* Marks the pool as failed unless it is already. */
void rvi_rxs_fail(rvi_rxs *p, rv_status status, const char *why);
/* An arena gave nothing: it is full, or there is no memory. */
void rvi_rxs_no_room(rvi_rxs *p, const rvi_arena *a, size_t count, size_t size);

rvi_rx rvi_rx_set(rvi_rxs *p, const rvi_rx_range *ranges, size_t n); /* any order */
rvi_rx rvi_rx_one(rvi_rxs *p, uint32_t cp);
rvi_rx rvi_rx_literal(rvi_rxs *p, const char *utf8, size_t len);
rvi_rx rvi_rx_cat(rvi_rxs *p, rvi_rx a, rvi_rx b);
rvi_rx rvi_rx_or(rvi_rxs *p, rvi_rx a, rvi_rx b);
rvi_rx rvi_rx_or_all(rvi_rxs *p, rvi_rx *list, size_t n); /* sorts the list */
rvi_rx rvi_rx_and(rvi_rxs *p, rvi_rx a, rvi_rx b);
rvi_rx rvi_rx_not(rvi_rxs *p, rvi_rx a);
rvi_rx rvi_rx_repeat(rvi_rxs *p, rvi_rx a, uint32_t min, uint32_t max);
rvi_rx rvi_rx_automaton(rvi_rxs *p, const rvi_rx_auto *a, uint32_t state);
/* Several languages (2 to 64) read side by side: a text goes on as long as one of the first two
 * does, and ends where one of them does. */
rvi_rx rvi_rx_tuple(rvi_rxs *p, const rvi_rx *list, size_t n);
rvi_rx rvi_rx_part(const rvi_rxs *p, rvi_rx tuple, size_t index);
/* The tuple as far as the first (0) or the second (1) of its languages leads. */
rvi_rx rvi_rx_only(rvi_rxs *p, rvi_rx tuple, size_t index);
uint32_t rvi_rx_auto_state(const rvi_rxs *p, rvi_rx automaton); /* UINT32_MAX for RVI_RX_NONE */
const rvi_rx_auto *rvi_rx_auto_of(const rvi_rxs *p, rvi_rx a);  /* NULL: it is an expression */

/* Every text goes on, and nothing is told of it. */
bool rvi_rx_universal(const rvi_rxs *p, rvi_rx a);
bool rvi_rx_nullable(const rvi_rxs *p, rvi_rx a);
bool rvi_rx_live(rvi_rxs *p, rvi_rx a); /* some text is in the language */
/* The first character of a shortest text; UINT32_MAX: that is the empty one, there is none, or it
 * is far away. */
uint32_t rvi_rx_lead(rvi_rxs *p, rvi_rx a);
/* The state after a character; RVI_RX_NONE where no text goes on. */
rvi_rx rvi_rx_next(rvi_rxs *p, rvi_rx a, uint32_t cp);
/* Whether any character from first to last leads on. */
bool rvi_rx_any(rvi_rxs *p, rvi_rx a, uint32_t first, uint32_t last);
bool rvi_rx_matches(rvi_rxs *p, rvi_rx a, const char *utf8, size_t len);

/* Reads a text on which the expression's states become large, where it has counted repetitions of
 * more than characters, or several conditions at once: fails the pool if that takes too much work,
 * before someone waits for an answer. Once many expressions were tried, others are not: reading
 * has its own limit. */
void rvi_rx_try(rvi_rxs *p, rvi_rx a);

/* How many characters of any kind but control characters, quotes, backslashes and U+2028/2029 may
 * certainly follow: RVI_RX_FOREVER if there is no end. */
uint32_t rvi_rx_slack(const rvi_rxs *p, rvi_rx a);
/* A language that accepts and continues texts of at most n characters as this one does, with
 * counters no larger than needed for that: states that differ in long counters alone become one. */
rvi_rx rvi_rx_near(rvi_rxs *p, rvi_rx a, uint32_t n);

#endif
