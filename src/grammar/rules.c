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
