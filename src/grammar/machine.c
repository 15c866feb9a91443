#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_FRAMES = 1 << 20,
    MAX_SETS = 1 << 18,
    MAX_LISTS = 1 << 20,
    MAX_PLACES = 4096, /* ways to read one text */
    MAX_CALLS = 200,   /* rules that begin with each other */
    MAX_NAMES = 1 << 16,
};

static const char *const words[] = {"null", "true", "false"};

static void fail(rvi_machine *m, rv_status st, const char *why)
{
    rvi_rxs_fail(&m->values.rxs, st, why);
}

rv_status rvi_machine_init(rvi_machine *m, rv_error *err)
{
    *m = (rvi_machine){.max_blanks = UINT16_MAX};
    rv_status st = rvi_values_init(&m->values, err);
    if (!st && !rvi_lexer_init(&m->lexer, &m->values.rxs)) st = rvi_nomem(err, "grammar");
    return st;
}

void rvi_machine_deinit(rvi_machine *m)
{
    rvi_lexer_deinit(&m->lexer);
    rvi_values_deinit(&m->values);
    rvi_rules_deinit(&m->rules);
    rvi_bag_deinit(&m->frames);
    rvi_bag_deinit(&m->sets);
    rvi_bag_deinit(&m->lists);
    rvi_free(m->plans);
    *m = (rvi_machine){0};
}

rv_status rvi_machine_check(const rvi_machine *m, rv_error *err)
{
    if (m->values.st) return rvi_error(err, m->values.st, "%s", m->err.text);
    return rvi_rxs_check(&m->values.rxs, "grammar", err);
}

/* ---- places ---- */

void rvi_places_add(rvi_machine *m, rvi_places *out, rvi_place at)
{
    if (out->n == out->cap) {
        size_t cap = out->cap ? out->cap * 2 : 8;
        if (cap > MAX_PLACES) {
            fail(m, RV_E_TOO_LONG, "a text can be read in too many ways");
            return;
        }
        rvi_place *items = rvi_realloc_array(out->borrowed ? NULL : out->items, cap, sizeof *items);
        if (!items) {
            fail(m, RV_E_NOMEM, "");
            return;
        }
        if (out->borrowed) memcpy(items, out->items, out->n * sizeof *items);
        out->borrowed = false;
        out->items = items;
        out->cap = cap;
    }
    out->items[out->n++] = at;
}

void rvi_places_deinit(rvi_places *p)
{
    if (!p->borrowed) rvi_free(p->items);
    *p = (rvi_places){0};
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(rvi_place));
}

void rvi_places_tidy(rvi_places *p)
{
    size_t k = 0;
    if (p->n < 2) return;
    qsort(p->items, p->n, sizeof *p->items, by_bytes);
    for (size_t i = 0; i < p->n; i++)
        if (!k || by_bytes(&p->items[i], &p->items[k - 1])) p->items[k++] = p->items[i];
    p->n = k;
}

static void go(rvi_machine *m, rvi_places *out, rvi_place_kind kind, uint32_t frame, uint32_t arg,
               uint32_t extra)
{
    rvi_place at = {.frame = frame, .arg = arg, .extra = extra, .kind = (uint16_t)kind};
    rvi_places_add(m, out, at);
}

/* ---- frames, sets, lists ---- */

static rvi_frame frame_at(const rvi_machine *m, uint32_t frame)
{
    rvi_frame f = {0};
    if (frame) memcpy(&f, rvi_bag_get(&m->frames, frame, NULL), sizeof f);
    return f;
}

static uint32_t put(rvi_machine *m, rvi_bag *b, const void *row, size_t n, uint32_t most)
{
    uint32_t number = m->values.rxs.status ? 0 : rvi_bag_put(b, row, n, most);
    if (!number)
        fail(m, b->n_rows >= most ? RV_E_TOO_LONG : RV_E_NOMEM, "the text has too many states");
    return number;
}

static uint32_t frame_put(rvi_machine *m, const rvi_frame *f)
{
    return put(m, &m->frames, f, sizeof *f / sizeof(uint32_t), MAX_FRAMES);
}

/* 0: failed. */
static uint32_t plan_number(rvi_machine *m, void *plan, uint32_t *number)
{
    if (*number) return *number;
    if (m->n_plans == m->cap_plans) {
        uint32_t cap = m->cap_plans ? m->cap_plans * 2 : 32;
        void **plans = rvi_realloc_array(m->plans, cap, sizeof *plans);
        if (!plans) return fail(m, RV_E_NOMEM, ""), 0;
        m->plans = plans;
        m->cap_plans = cap;
    }
    m->plans[m->n_plans++] = plan;
    return *number = m->n_plans;
}

static rvi_object_plan *object_plan(const rvi_machine *m, const rvi_frame *f)
{
    return m->plans[f->plan - 1];
}

static rvi_array_plan *array_plan(const rvi_machine *m, const rvi_frame *f)
{
    return m->plans[f->plan - 1];
}

static bool list_has(const rvi_machine *m, uint32_t list, uint32_t item)
{
    while (list) {
        const uint32_t *pair = rvi_bag_get(&m->lists, list, NULL);
        if (pair[1] == item) return true;
        list = pair[0];
    }
    return false;
}

static uint32_t list_with(rvi_machine *m, uint32_t list, uint32_t item)
{
    return put(m, &m->lists, (const uint32_t[]){list, item}, 2, MAX_LISTS);
}

static bool has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

/* The names seen in an object; w: n_words of the caller's. */
static void seen_words(const rvi_machine *m, const rvi_object_plan *p, uint32_t set, uint64_t *w)
{
    if (set)
        memcpy(w, rvi_bag_get(&m->sets, set, NULL), p->n_words * sizeof *w);
    else
        memset(w, 0, p->n_words * sizeof *w);
}

enum { SET_WORDS = MAX_NAMES / 64 };

/* What is known of an open object. */
typedef struct opened {
    rvi_object_plan *p;
    const rvi_object *shape;
    rvi_frame f;
    uint32_t missing;                          /* names that must still come */
    uint64_t seen[SET_WORDS], need[SET_WORDS]; /* need: of those not seen */
} opened;

static void add_needs(rvi_machine *m, opened *o, uint32_t name)
{
    for (uint32_t w = 0; w < o->p->n_words; w++) o->need[w] |= o->p->needs[name][w];
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 16);
}

static void look(rvi_machine *m, uint32_t frame, opened *o)
{
    o->f = frame_at(m, frame);
    o->p = object_plan(m, &o->f);
    o->shape = o->p->shape;
    o->missing = 0;
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 4 + (o->p->has_needs ? o->p->n_named / 8 : 0));
    seen_words(m, o->p, o->f.seen, o->seen);
    memcpy(o->need, o->p->required, o->p->n_words * sizeof *o->need);
    for (uint32_t i = 0; o->p->has_needs && i < o->p->n_named; i++)
        if (o->p->needs[i] && has(o->seen, i)) add_needs(m, o, i);
    for (uint32_t w = 0; w < o->p->n_words; w++) {
        o->need[w] &= ~o->seen[w];
        for (uint64_t bits = o->need[w]; bits; bits &= bits - 1) o->missing++;
    }
}

static bool may_close_object(const opened *o)
{
    return !o->missing && o->f.count >= o->shape->min && o->f.some == (1u << o->shape->n_some) - 1;
}

/* Room for a member that is not needed yet. */
static bool spare_room(const opened *o)
{
    return o->shape->max == RVI_NO_LIMIT || o->f.count + o->missing < o->shape->max;
}

static bool name_allowed(const opened *o, uint32_t i)
{
    return has(o->p->possible, i) && !has(o->seen, i) && (has(o->need, i) || spare_room(o));
}

static bool some_name_allowed(rvi_machine *m, const opened *o, uint32_t low, uint32_t high)
{
    uint32_t i = low;
    while (i < high && !name_allowed(o, i)) i++;
    rvi_rxs_spend(&m->values.rxs, (i - low) / 4);
    return i < high;
}

static bool may_add_member(rvi_machine *m, const opened *o)
{
    return (o->p->others != RVI_RX_NONE && spare_room(o)) ||
           some_name_allowed(m, o, 0, o->p->n_named);
}

/* ---- values ---- */

static bool blank(uint8_t b)
{
    return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

static bool inhabited(rvi_machine *m, rvi_node n)
{
    if (!m->values.nodes[n].queued && n != RVI_ANY && n != RVI_NEVER && !m->values.st)
        (void)!rvi_values_close(&m->values, n, &m->err);
    return !m->values.st && m->values.nodes[n].inhabited;
}

static void open_object(rvi_machine *m, uint32_t frame, rvi_object *shape, rvi_places *out)
{
    rvi_object_plan *p = rvi_object_plan_get(&m->values, shape);
    if (!p || !rvi_object_plan_ready(&m->values, p)) return;
    uint32_t n_required = 0;
    if (p->n_named > MAX_NAMES) {
        fail(m, RV_E_TOO_LONG, "an object has more than 65536 names");
        return;
    }
    for (uint32_t w = 0; w < p->n_words; w++) {
        if (p->required[w] & ~p->possible[w]) return;
        for (uint64_t bits = p->required[w]; bits; bits &= bits - 1) n_required++;
    }
    if (n_required > shape->max) return;
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_OBJECT};
    if (!(f.plan = plan_number(m, p, &p->number))) return;
    uint32_t opened_frame = frame_put(m, &f);
    if (opened_frame) go(m, out, RVI_AT_OBJECT, opened_frame, 0, 0);
}

static void open_array(rvi_machine *m, uint32_t frame, rvi_array *shape, rvi_places *out)
{
    rvi_array_plan *p = rvi_array_plan_get(&m->values, shape);
    if (!p || shape->min > p->max) return;
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_ARRAY};
    if (!(f.plan = plan_number(m, p, &p->number))) return;
    uint32_t opened_frame = frame_put(m, &f);
    if (opened_frame) go(m, out, RVI_AT_ARRAY, opened_frame, 0, 0);
}

static bool unique_items(const rvi_machine *m, const rvi_frame *f)
{
    return f->kind == RVI_FRAME_ARRAY && array_plan(m, f)->shape->unique;
}

/* Without those of a list. The oldest go first: what was made of them for the item before is there
 * already. */
static rvi_rx without(rvi_machine *m, uint32_t list, rvi_rx strings)
{
    enum { WORK = 4 }; /* of a character */
    rvi_rxs *x = &m->values.rxs;
    if (!list || x->status) return strings;
    const uint32_t *pair = rvi_bag_get(&m->lists, list, NULL);
    uint32_t text = pair[1];
    rvi_rx used = RVI_RX_EPS;
    strings = without(m, pair[0], strings);
    while (text && rvi_rxs_spend(x, WORK)) { /* from its end */
        pair = rvi_bag_get(&m->lists, text, NULL);
        text = pair[0];
        used = rvi_rx_cat(x, rvi_rx_one(x, pair[1]), used);
    }
    return rvi_rx_and(x, strings, rvi_rx_not(x, used));
}

/* The strings of a node that are not yet in an array whose items differ. */
static rvi_rx strings_left(rvi_machine *m, const rvi_frame *f, rvi_rx strings)
{
    return f->keys && unique_items(m, f) ? without(m, f->keys, strings) : strings;
}

static bool strings_are_left(rvi_machine *m, const rvi_frame *f, rvi_node node)
{
    const rvi_form *form = f->keys && unique_items(m, f) ? rvi_values_form(&m->values, node) : NULL;
    return !form || rvi_rx_live(&m->values.rxs, strings_left(m, f, form->string));
}

static void begin_value(rvi_machine *m, uint32_t frame, rvi_node node, uint8_t b, rvi_places *out)
{
    rvi_frame around = frame_at(m, frame);
    const rvi_form *f = rvi_values_form(&m->values, node);
    uint32_t lex;
    if (!f) return;
    switch (b) {
    case '{':
        for (size_t i = 0; i < f->n_objects; i++) open_object(m, frame, f->objects[i], out);
        return;
    case '[':
        for (size_t i = 0; i < f->n_arrays; i++) open_array(m, frame, f->arrays[i], out);
        return;
    case '"':
        lex = rvi_lex_start(&m->lexer, strings_left(m, &around, f->string), RVI_LEX_STRING);
        if (lex) go(m, out, RVI_AT_STRING, frame, lex, 0);
        return;
    default: break;
    }
    for (uint32_t i = 0; i < RVI_COUNT(words); i++)
        if ((f->words >> i & 1) && b == (uint8_t)words[i][0]) go(m, out, RVI_AT_WORD, frame, i, 1);
    if (b != '-' && (b < '0' || b > '9')) return;
    lex = rvi_lex_start(&m->lexer, f->number, RVI_LEX_TEXT);
    if (lex) lex = rvi_lex_step(&m->lexer, lex, b, NULL);
    if (lex) go(m, out, RVI_AT_NUMBER, frame, lex, 0);
}

/* ---- arrays ---- */

static uint32_t matched(const rvi_frame *f, size_t which)
{
    return f->seen >> (8 * which) & 255;
}

static bool may_close_array(const rvi_array_plan *p, const rvi_frame *f)
{
    if (f->count < p->shape->min) return false;
    for (size_t i = 0; i < p->shape->n_contains; i++)
        if (matched(f, i) < p->shape->contains[i].min) return false;
    return true;
}

/* The rest of the array has room for what it must still contain. */
static bool array_hopeful(const rvi_array_plan *p, const rvi_frame *f)
{
    for (size_t i = 0; i < p->shape->n_contains; i++) {
        uint32_t min = p->shape->contains[i].min, n = matched(f, i);
        if (n < min && p->max != RVI_NO_LIMIT && min - n > p->max - RVI_MIN(f->count, p->max))
            return false;
    }
    return true;
}

/* One more item: it matches each `contains` or not, which is tried both ways. from: what is not
 * decided yet. */
static void next_item(rvi_machine *m, const rvi_array_plan *p, rvi_frame f, rvi_node node,
                      size_t from, uint32_t index, rvi_places *out)
{
    const rvi_array *shape = p->shape;
    if (from < shape->n_contains) {
        const rvi_contains *c = &shape->contains[from];
        uint32_t n = matched(&f, from), limit = c->max == RVI_NO_LIMIT ? c->min : c->max + 1;
        bool counts = index >= c->from;
        if (counts && n < limit && (c->max == RVI_NO_LIMIT || n < c->max)) {
            rvi_frame yes = f;
            yes.seen += 1u << (8 * from);
            next_item(m, p, yes, rvi_node_and(&m->values, node, c->node), from + 1, index, out);
        }
        if (counts && c->max != RVI_NO_LIMIT)
            node = rvi_node_and(&m->values, node, rvi_node_not(&m->values, c->node));
        next_item(m, p, f, node, from + 1, index, out);
        return;
    }
    if (!inhabited(m, node) || !array_hopeful(p, &f) || !strings_are_left(m, &f, node)) return;
    uint32_t frame = frame_put(m, &f);
    if (frame) go(m, out, RVI_AT_VALUE, frame, node, 0);
}

static void item_places(rvi_machine *m, const rvi_frame *f, rvi_places *out)
{
    const rvi_array_plan *p = array_plan(m, f);
    rvi_frame with = *f;
    if (f->count >= p->max) return;
    with.count = RVI_MIN(f->count + 1, p->count_to);
    next_item(m, p, with, rvi_plan_item(p, f->count), 0, f->count, out);
}

/* ---- objects ---- */

static void begin_key(rvi_machine *m, uint32_t frame, rvi_places *out)
{
    opened o;
    look(m, frame, &o);
    if (!may_add_member(m, &o)) return;
    uint32_t lex = rvi_lex_start(&m->lexer, o.p->key_start, RVI_LEX_STRING);
    if (lex) go(m, out, RVI_AT_KEY, frame, lex, 0);
}

bool rvi_machine_key_open(rvi_machine *m, const rvi_place *at)
{
    opened o;
    if (rvi_rx_part(&m->values.rxs, m->lexer.states[at->arg].rx, 0) == RVI_RX_NONE) return false;
    look(m, at->frame, &o);
    return !o.p->names_stray && spare_room(&o);
}

bool rvi_machine_tells_apart(const rvi_machine *m, const rvi_place *at)
{
    rvi_frame f = frame_at(m, at->frame);
    return at->kind == RVI_AT_STRING ? unique_items(m, &f) : object_plan(m, &f)->tell_apart;
}

/* Whether a key can still become one that is allowed here. */
static bool key_hopeful(rvi_machine *m, uint32_t frame, uint32_t lex)
{
    const rvi_rx rx = m->lexer.states[lex].rx;
    opened o;
    rvi_frame f = frame_at(m, frame);
    const rvi_object_plan *p = object_plan(m, &f);
    bool others = rvi_rx_part(&m->values.rxs, rx, 0) != RVI_RX_NONE;
    if (others && p->shape->max == RVI_NO_LIMIT) return true;
    look(m, frame, &o);
    if (others && spare_room(&o)) return true;
    uint32_t state = rvi_rx_auto_state(&m->values.rxs, rvi_rx_part(&m->values.rxs, rx, 1));
    if (state == UINT32_MAX) return false;
    return some_name_allowed(m, &o, p->names->nodes[state].low, p->names->nodes[state].high);
}

/* A member begins; its key satisfies the `some` in bits, each of which its value may meet. */
static void begin_member(rvi_machine *m, rvi_frame f, rvi_node node, uint32_t bits,
                         const rvi_object *shape, rvi_places *out)
{
    bits &= ~f.some;
    if (bits) {
        uint32_t which = 0;
        rvi_frame met = f;
        while (!(bits >> which & 1)) which++;
        met.some |= 1u << which;
        begin_member(m, met, rvi_node_and(&m->values, node, shape->some[which].node),
                     bits & ~(1u << which), shape, out);
        begin_member(m, f, node, bits & ~(1u << which), shape, out);
        return;
    }
    if (!inhabited(m, node)) return;
    uint32_t frame = frame_put(m, &f);
    if (frame) go(m, out, RVI_AT_COLON, frame, node, 0);
}

static void end_key(rvi_machine *m, uint32_t frame, uint32_t lex, uint32_t text, rvi_places *out)
{
    rvi_rxs *x = &m->values.rxs;
    const rvi_rx rx = m->lexer.states[lex].rx;
    opened o;
    look(m, frame, &o);
    rvi_frame f = o.f;
    uint32_t state = rvi_rx_auto_state(x, rvi_rx_part(x, rx, 1)), bits = 0;
    rvi_node node;
    if (o.shape->max != RVI_NO_LIMIT || o.shape->min)
        f.count = RVI_MIN(f.count + 1, o.shape->max == RVI_NO_LIMIT ? o.shape->min : o.shape->max);
    if (state != UINT32_MAX && o.p->names->nodes[state].ends) {
        uint32_t name = o.p->names->nodes[state].low;
        if (!name_allowed(&o, name)) return;
        o.seen[name / 64] |= 1ull << (name % 64);
        f.seen = put(m, &m->sets, o.seen, o.p->n_words * 2, MAX_SETS);
        if (!f.seen) return;
        node = o.p->named[name].node;
        bits = o.p->some_of[name];
        if (o.p->needs[name]) { /* what it makes needed must fit too */
            opened after;
            uint32_t then = frame_put(m, &f);
            if (!then) return;
            look(m, then, &after);
            if (o.shape->max != RVI_NO_LIMIT && f.count + after.missing > o.shape->max) return;
        }
    } else {
        uint32_t n_own = o.p->n_patterns - (uint32_t)o.shape->n_some;
        if (!rvi_rx_nullable(x, rvi_rx_part(x, rx, 0)) || !spare_room(&o)) return;
        if (o.p->tell_apart) {
            if (list_has(m, f.keys, text)) return;
            f.keys = list_with(m, f.keys, text);
        }
        for (uint32_t i = 0; i < o.p->n_patterns; i++)
            if (rvi_rx_nullable(x, rvi_rx_part(x, rx, 2 + i))) bits |= 1u << i;
        node = rvi_plan_other(&m->values, o.p, bits);
        bits >>= n_own;
    }
    begin_member(m, f, node, bits, o.shape, out);
}

void rvi_machine_close(rvi_machine *m, const rvi_place *at, uint32_t lex_state, rvi_places *out)
{
    if (at->kind == RVI_AT_STRING)
        go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
    else
        end_key(m, at->frame, lex_state, at->extra, out);
}

static void step_key(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    uint32_t cp, next = rvi_lex_step(&m->lexer, at->arg, b, &cp), text = at->extra;
    if (next == RVI_LEX_EXIT) {
        end_key(m, at->frame, at->arg, at->extra, out);
        return;
    }
    if (next == RVI_LEX_DEAD || !key_hopeful(m, at->frame, next)) return;
    rvi_frame f = frame_at(m, at->frame);
    if (cp != UINT32_MAX && object_plan(m, &f)->tell_apart) text = list_with(m, text, cp);
    go(m, out, RVI_AT_KEY, at->frame, next, text);
}

/* ---- rules ---- */

enum { NO_FRAME = UINT32_MAX };

/* A frame from which the text goes on at an item; behind the last one that is the frame around
 * it. */
static uint32_t return_to(rvi_machine *m, uint32_t frame, uint32_t item)
{
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_RULE, .count = item};
    if (m->rules.items[item].kind == RVI_ITEM_END) return frame;
    frame = frame_put(m, &f);
    return frame ? frame : NO_FRAME;
}

enum { WORK = 4 }; /* of a step from one place to others */

static void enter(rvi_machine *m, uint32_t frame, uint32_t item, int depth, rvi_places *out)
{
    const rvi_rules *r = &m->rules;
    if (depth > MAX_CALLS) {
        fail(m, RV_E_UNSUPPORTED, "rules begin with each other too deeply");
        return;
    }
    if (!rvi_rxs_spend(&m->values.rxs, 1)) return; /* the same rule may be met in many ways */
    for (;;) {
        rvi_item i = r->items[item];
        if (i.kind == RVI_ITEM_TERMINAL) {
            uint32_t lex = rvi_lex_start(&m->lexer, i.value, RVI_LEX_TEXT);
            if (lex) go(m, out, RVI_AT_TERMINAL, frame, lex, item + 1);
            return;
        }
        if (i.kind == RVI_ITEM_VALUE) {
            uint32_t inside = return_to(m, frame, item + 1);
            if (inside != NO_FRAME) go(m, out, RVI_AT_VALUE, inside, i.value, 0);
            return;
        }
        if (i.kind == RVI_ITEM_END) {
            if (!frame) {
                go(m, out, RVI_AT_END, 0, 0, 0);
                return;
            }
            rvi_frame f = frame_at(m, frame);
            frame = f.parent;
            item = f.count;
            continue;
        }
        if ((frame = return_to(m, frame, item + 1)) == NO_FRAME) return;
        for (uint32_t k = 0; k < r->rules[i.value].n && !m->values.rxs.status; k++)
            enter(m, frame, r->starts[r->rules[i.value].first + k], depth + 1, out);
        return;
    }
}

void rvi_machine_behind(rvi_machine *m, const rvi_place *at, rvi_places *out)
{
    enter(m, at->frame, at->extra, 0, out);
    rvi_places_tidy(out);
}

bool rvi_machine_thinks(rvi_machine *m, const rvi_place *at)
{
    if (at->kind != RVI_AT_TERMINAL) return false;
    if (!rvi_lex_ends(&m->lexer, at->arg)) return m->rules.items[at->extra - 1].thinking;
    if (!rvi_rxs_spend(&m->values.rxs, WORK)) return false;
    rvi_places behind = {0};
    rvi_machine_behind(m, at, &behind);
    bool thinks = behind.n > 0;
    for (size_t i = 0; i < behind.n && thinks; i++)
        thinks = rvi_machine_thinks(m, &behind.items[i]);
    rvi_places_deinit(&behind);
    return thinks;
}

/* A JSON value has ended: does the text go on by the rules? */
static bool behind_value(rvi_machine *m, uint32_t frame, rvi_places *out)
{
    rvi_frame f = frame_at(m, frame);
    if (!frame || f.kind != RVI_FRAME_RULE) return false;
    enter(m, f.parent, f.count, 0, out);
    return true;
}

static void step_all(rvi_machine *m, rvi_places *from, uint8_t b, rvi_places *out)
{
    rvi_places_tidy(from);
    for (size_t i = 0; i < from->n; i++) rvi_machine_step(m, &from->items[i], b, out);
    rvi_places_deinit(from);
}

static void step_terminal(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    uint32_t next = rvi_lex_fast(&m->lexer, at->arg, b);
    if (next != RVI_LEX_DEAD) go(m, out, RVI_AT_TERMINAL, at->frame, next, at->extra);
    if (!rvi_lex_ends(&m->lexer, at->arg)) return;
    rvi_places behind = {0};
    rvi_machine_behind(m, at, &behind);
    step_all(m, &behind, b, out);
}

/* ---- short ways to the end ---- */

static uint32_t object_owes(rvi_machine *m, uint32_t frame)
{
    opened o;
    uint32_t owed = 1;
    look(m, frame, &o);
    rvi_rxs_spend(&m->values.rxs, o.p->n_named / 8);
    for (uint32_t i = 0; i < o.p->n_named; i++)
        if (has(o.need, i)) owed += (uint32_t)o.p->named[i].name.len + 6;
    if (o.f.count + o.missing < o.shape->min) owed += 6 * (o.shape->min - o.f.count - o.missing);
    for (size_t i = 0; i < o.shape->n_some; i++) owed += o.f.some >> i & 1 ? 0 : 6;
    return owed;
}

uint32_t rvi_machine_owes(rvi_machine *m, const rvi_place *at)
{
    uint32_t owed = at->kind == RVI_AT_VALUE || at->kind == RVI_AT_STRING, frame = at->frame;
    while (frame) {
        rvi_frame f = frame_at(m, frame);
        if (f.kind == RVI_FRAME_OBJECT) owed += object_owes(m, frame);
        if (f.kind == RVI_FRAME_ARRAY) {
            uint32_t min = array_plan(m, &f)->shape->min;
            owed += 1 + (f.count < min ? 2 * (min - f.count) : 0);
        }
        frame = f.parent;
    }
    return RVI_MIN(owed, 1u << 24);
}

/* The part of a key's languages that knows the names of its object, and the first name that is
 * needed: in which order they come makes no text shorter. */
static bool find_needed(rvi_machine *m, const rvi_place *at, const rvi_object_plan **plan,
                        rvi_rx *names, uint32_t *first)
{
    opened o;
    look(m, at->frame, &o);
    if (!o.missing) return false;
    *plan = o.p;
    *names = rvi_rx_part(&m->values.rxs, m->lexer.states[at->arg].rx, 1);
    *first = 0;
    while (*first < o.p->n_named && !has(o.need, *first)) ++*first;
    return true;
}

bool rvi_machine_helps(rvi_machine *m, const rvi_place *at, bool ends)
{
    const rvi_object_plan *p;
    rvi_rx names;
    uint32_t first;
    if (at->kind != RVI_AT_KEY || !find_needed(m, at, &p, &names, &first)) return true;
    uint32_t state = rvi_rx_auto_state(&m->values.rxs, names);
    if (state == UINT32_MAX) return false;
    if (ends) return p->names->nodes[state].low == first && rvi_rx_nullable(&m->values.rxs, names);
    return first >= p->names->nodes[state].low && first < p->names->nodes[state].high;
}

/* Towards the first name that is needed; UINT32_MAX: it is none of these. */
static uint32_t lead_to_name(const rvi_object_plan *p, uint32_t state, uint32_t name)
{
    if (state == UINT32_MAX) return UINT32_MAX;
    const rvi_name_node *n = &p->names->nodes[state], *child = p->names->nodes + n->child;
    if (name < n->low || name >= n->high) return UINT32_MAX;
    if (n->ends && n->low == name) return '"';
    while (name >= child->high) child++;
    return child->cp == '"' ? UINT32_MAX : child->cp;
}

/* Towards a key that satisfies one of `some`. */
static uint32_t lead_to_some(rvi_machine *m, const rvi_place *at)
{
    rvi_rxs *x = &m->values.rxs;
    const rvi_rx rx = m->lexer.states[at->arg].rx;
    opened o;
    uint32_t which = 0;
    look(m, at->frame, &o);
    while (which < o.shape->n_some && (o.f.some >> which & 1)) which++;
    if (which == o.shape->n_some) return UINT32_MAX;
    rvi_rx keys = rvi_rx_and(x, rvi_rx_part(x, rx, 0),
                             rvi_rx_part(x, rx, 2 + o.p->n_patterns - o.shape->n_some + which));
    if (rvi_rx_nullable(x, keys)) return '"';
    uint32_t cp = rvi_rx_lead(x, keys);
    return cp == '"' ? UINT32_MAX : cp;
}

int rvi_machine_lead(rvi_machine *m, const rvi_place *at)
{
    const rvi_object_plan *p;
    rvi_rx names;
    uint32_t first, cp = UINT32_MAX;
    bool quoted = at->kind == RVI_AT_KEY || at->kind == RVI_AT_STRING;
    if ((!quoted && at->kind != RVI_AT_TERMINAL) || m->lexer.states[at->arg].pending) return -1;
    if (at->kind != RVI_AT_KEY)
        cp = rvi_rx_lead(&m->values.rxs, m->lexer.states[at->arg].rx);
    else if (find_needed(m, at, &p, &names, &first))
        cp = lead_to_name(p, rvi_rx_auto_state(&m->values.rxs, names), first);
    else
        cp = lead_to_some(m, at);
    if (cp < 0x20 || cp >= 0x7F || (quoted && cp == '\\')) return -1;
    return at->kind == RVI_AT_STRING && cp == '"' ? -1 : (int)cp;
}

/* ---- one byte ---- */

static void step_after(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    rvi_frame f = frame_at(m, at->frame);
    if (f.kind == RVI_FRAME_OBJECT && (b == ',' || b == '}')) {
        opened o;
        look(m, at->frame, &o);
        if (b == ',' && may_add_member(m, &o)) go(m, out, RVI_AT_KEY_QUOTE, at->frame, 0, 0);
        if (b == '}' && may_close_object(&o)) go(m, out, RVI_AT_AFTER, f.parent, 0, 0);
    } else if (f.kind == RVI_FRAME_ARRAY) {
        if (b == ',') item_places(m, &f, out);
        if (b == ']' && may_close_array(array_plan(m, &f), &f))
            go(m, out, RVI_AT_AFTER, f.parent, 0, 0);
    }
}

/* A string of an array whose items differ. */
static void step_item(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    uint32_t cp, next = rvi_lex_step(&m->lexer, at->arg, b, &cp), text = at->extra;
    if (next == RVI_LEX_EXIT) {
        rvi_frame f = frame_at(m, at->frame);
        uint32_t frame = (f.keys = list_with(m, f.keys, text)) ? frame_put(m, &f) : 0;
        if (frame) go(m, out, RVI_AT_AFTER, frame, 0, 0);
    }
    if (next < RVI_LEX_FIRST) return;
    if (cp != UINT32_MAX) text = list_with(m, text, cp);
    go(m, out, RVI_AT_STRING, at->frame, next, text);
}

static bool takes_blanks(rvi_place_kind kind)
{
    return kind == RVI_AT_VALUE || kind == RVI_AT_OBJECT || kind == RVI_AT_KEY_QUOTE ||
           kind == RVI_AT_COLON || kind == RVI_AT_ARRAY || kind == RVI_AT_AFTER;
}

void rvi_machine_step(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    rvi_frame f;
    uint32_t next;
    if (!rvi_rxs_spend(&m->values.rxs, WORK) || m->values.st) return;
    if (at->kind == RVI_AT_AFTER) {
        rvi_places behind = {0};
        bool goes_on = behind_value(m, at->frame, &behind);
        step_all(m, &behind, b, out);
        if (goes_on) return;
    }
    if (blank(b) && takes_blanks((rvi_place_kind)at->kind)) {
        rvi_place same = *at;
        bool first = at->kind == RVI_AT_VALUE && !at->frame && !m->rules.n_items;
        uint32_t most = first ? RVI_MIN(m->max_blanks, 1u) : m->max_blanks;
        if (m->max_blanks != UINT16_MAX && same.blanks++ >= most) return;
        rvi_places_add(m, out, same);
        return;
    }
    switch ((rvi_place_kind)at->kind) {
    case RVI_AT_VALUE: begin_value(m, at->frame, at->arg, b, out); break;
    case RVI_AT_STRING:
        if (rvi_machine_tells_apart(m, at)) {
            step_item(m, at, b, out);
            break;
        }
        next = rvi_lex_fast(&m->lexer, at->arg, b);
        if (next == RVI_LEX_EXIT) go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
        if (next >= RVI_LEX_FIRST) go(m, out, RVI_AT_STRING, at->frame, next, 0);
        break;
    case RVI_AT_NUMBER:
        next = rvi_lex_fast(&m->lexer, at->arg, b);
        if (next) go(m, out, RVI_AT_NUMBER, at->frame, next, 0);
        if (rvi_lex_ends(&m->lexer, at->arg)) {
            rvi_place after = {.frame = at->frame, .kind = RVI_AT_AFTER};
            rvi_machine_step(m, &after, b, out);
        }
        break;
    case RVI_AT_WORD:
        if (b != (uint8_t)words[at->arg][at->extra]) break;
        if (words[at->arg][at->extra + 1])
            go(m, out, RVI_AT_WORD, at->frame, at->arg, at->extra + 1);
        else
            go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
        break;
    case RVI_AT_OBJECT:
        if (b == '"') begin_key(m, at->frame, out);
        if (b == '}') step_after(m, at, b, out);
        break;
    case RVI_AT_KEY_QUOTE:
        if (b == '"') begin_key(m, at->frame, out);
        break;
    case RVI_AT_KEY: step_key(m, at, b, out); break;
    case RVI_AT_COLON:
        if (b == ':') go(m, out, RVI_AT_VALUE, at->frame, at->arg, 0);
        break;
    case RVI_AT_ARRAY:
        if (b == ']') {
            step_after(m, at, b, out);
        } else {
            rvi_places items = {0};
            f = frame_at(m, at->frame);
            item_places(m, &f, &items);
            step_all(m, &items, b, out);
        }
        break;
    case RVI_AT_AFTER: step_after(m, at, b, out); break;
    case RVI_AT_TERMINAL: step_terminal(m, at, b, out); break;
    case RVI_AT_END: break;
    }
}

bool rvi_machine_ends(rvi_machine *m, const rvi_place *at)
{
    bool value =
        at->kind == RVI_AT_AFTER || (at->kind == RVI_AT_NUMBER && rvi_lex_ends(&m->lexer, at->arg));
    if (at->kind == RVI_AT_END || (value && !at->frame)) return true;
    if (!value && (at->kind != RVI_AT_TERMINAL || !rvi_lex_ends(&m->lexer, at->arg))) return false;
    if (!rvi_rxs_spend(&m->values.rxs, WORK)) return false;
    rvi_places behind = {0};
    bool ends = false;
    if (value)
        (void)behind_value(m, at->frame, &behind);
    else
        rvi_machine_behind(m, at, &behind);
    for (size_t i = 0; i < behind.n && !ends; i++) ends = rvi_machine_ends(m, &behind.items[i]);
    rvi_places_deinit(&behind);
    return ends;
}

/* ---- the start ---- */

rv_status rvi_machine_begin_json(rvi_machine *m, rvi_node root, rv_error *err)
{
    rv_status st = rvi_values_close(&m->values, root, err);
    if (st) return st;
    if (!m->values.nodes[root].inhabited)
        return rvi_error(err, RV_E_GENERATION, "#: no value satisfies the schema");
    m->values.err = &m->err;
    m->start = (rvi_place){.kind = RVI_AT_VALUE, .arg = root};
    return RV_OK;
}

rv_status rvi_machine_begin_rules(rvi_machine *m, rv_error *err)
{
    rvi_rules *r = &m->rules;
    m->values.err = &m->err;
    /* a terminal that has no text, in front of the root rule */
    m->start = (rvi_place){.kind = RVI_AT_TERMINAL, .extra = r->n_items - 2};
    m->start.arg = rvi_lex_start(&m->lexer, RVI_RX_EPS, RVI_LEX_TEXT);
    return rvi_machine_check(m, err);
}
