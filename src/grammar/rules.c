#include "grammar/rules.h"

#include "base/mem.h"

void rvi_rules_deinit(rvi_rules *r)
{
    rvi_free(r->items);
    rvi_free(r->starts);
    rvi_free(r->rules);
    *r = (rvi_rules){0};
}

bool rvi_rules_terminal(rvi_rules *r, rvi_rx rx)
{
    r->items = rvi_zalloc_array(4, sizeof *r->items);
    r->starts = rvi_zalloc_array(1, sizeof *r->starts);
    r->rules = rvi_zalloc_array(1, sizeof *r->rules);
    if (!r->items || !r->starts || !r->rules) return false;
    r->items[0] = (rvi_item){.kind = RVI_ITEM_TERMINAL, .value = rx};
    r->items[2] = (rvi_item){.kind = RVI_ITEM_RULE}; /* how the machine begins */
    r->n_items = 4;
    r->rules[0] = (rvi_rule){0, 1};
    r->n_starts = r->n_rules = 1;
    return true;
}

/* ---- rules that begin with themselves ---- */

enum { MAX_DEPTH = 500 };

static bool item_empty(const rvi_item *i, const rvi_rxs *p, const bool *empty)
{
    if (i->kind == RVI_ITEM_RULE) return empty[i->value];
    return i->kind == RVI_ITEM_TERMINAL && rvi_rx_nullable(p, i->value);
}

static bool row_empty(const rvi_rules *r, const rvi_rxs *p, uint32_t item, const bool *empty)
{
    for (; r->items[item].kind != RVI_ITEM_END; item++)
        if (!item_empty(&r->items[item], p, empty)) return false;
    return true;
}

enum { NOT_BEGUN, IN_PROGRESS, DONE, TOO_DEEP };

/* A rule that follows another that may be empty begins it, too. */
static bool begins_with_itself(const rvi_rules *r, const rvi_rxs *p, uint32_t rule,
                               const bool *empty, uint8_t *marks, int depth)
{
    if (depth > MAX_DEPTH) {
        marks[r->n_rules] = TOO_DEEP;
        return true;
    }
    if (marks[rule] == IN_PROGRESS) return true;
    if (marks[rule] == DONE) return false;
    marks[rule] = IN_PROGRESS;
    for (uint32_t k = 0; k < r->rules[rule].n; k++)
        for (uint32_t i = r->starts[r->rules[rule].first + k]; r->items[i].kind != RVI_ITEM_END;
             i++) {
            bool call = r->items[i].kind == RVI_ITEM_RULE;
            if (call && begins_with_itself(r, p, r->items[i].value, empty, marks, depth + 1))
                return true;
            if (!item_empty(&r->items[i], p, empty)) break;
        }
    marks[rule] = DONE;
    return false;
}

rv_status rvi_rules_check(const rvi_rules *r, const rvi_rxs *p, rv_error *err)
{
    bool *empty = rvi_zalloc_array(r->n_rules + 1, sizeof *empty);
    uint8_t *marks = rvi_zalloc_array(r->n_rules + 1, 1);
    rv_status st = empty && marks ? RV_OK : rvi_nomem(err, "grammar");
    for (bool changed = !st; changed;) {
        changed = false;
        for (uint32_t i = 0; i < r->n_rules; i++)
            for (uint32_t k = 0; k < r->rules[i].n && !empty[i]; k++)
                if (row_empty(r, p, r->starts[r->rules[i].first + k], empty))
                    empty[i] = changed = true;
    }
    for (uint32_t i = 0; i < r->n_rules && !st; i++)
        if (begins_with_itself(r, p, i, empty, marks, 0))
            st = rvi_error(err, RV_E_UNSUPPORTED,
                           marks[r->n_rules] == TOO_DEEP
                               ? "grammar: rules begin with each other too deeply (a repetition of "
                                 "what may be empty?)"
                               : "grammar: a rule begins with itself (left recursion)");
    rvi_free(empty);
    rvi_free(marks);
    return st;
}
