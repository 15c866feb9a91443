/* rules.h - context-free rules over terminals, of which plain regular expressions are the simplest
 * case. A rule has alternatives; each is a row of items that ends with RVI_ITEM_END. */
#ifndef RVI_GRAMMAR_RULES_H
#define RVI_GRAMMAR_RULES_H

#include "grammar/values.h"

typedef enum rvi_item_kind {
    RVI_ITEM_END,
    RVI_ITEM_TERMINAL,
    RVI_ITEM_RULE,
    RVI_ITEM_VALUE
} rvi_item_kind;

typedef struct rvi_item {
    rvi_item_kind kind;
    uint32_t value; /* language, rule, or node of a JSON value */
    bool thinking;  /* what this terminal reads is no part of the answer */
} rvi_item;

typedef struct rvi_rule {
    uint32_t first, n; /* its alternatives in rvi_rules.starts */
} rvi_rule;

typedef struct rvi_rules {
    rvi_item *items;
    uint32_t n_items, cap_items;
    uint32_t *starts; /* the first item of each alternative */
    uint32_t n_starts, cap_starts;
    rvi_rule *rules;
    uint32_t n_rules, cap_rules;
    uint32_t root;
} rvi_rules;

void rvi_rules_deinit(rvi_rules *r);
/* The only rule: one terminal. False: no memory. */
bool rvi_rules_terminal(rvi_rules *r, rvi_rx rx);
/* A GBNF grammar, as llama.cpp reads it, with JSON values; its rule "root" is the whole text. What
 * must live as long as the rules goes to kept. */
rv_status rvi_rules_gbnf(rvi_rules *r, rvi_values *v, rvi_arena *kept, const char *text, size_t len,
                         rv_error *err) RVI_MUST_CHECK;
/* Refuses rules that begin with themselves. */
rv_status rvi_rules_check(const rvi_rules *r, const rvi_rxs *p, rv_error *err) RVI_MUST_CHECK;

#endif
