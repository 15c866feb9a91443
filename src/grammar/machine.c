#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/machine_internal.h"

enum {
    MAX_FRAMES = 1 << 20,
    MAX_LISTS = 1 << 20,
    MAX_PLACES = 4096, /* ways to read one text */
    MAX_CALLS = 200,   /* rules that begin with each other */
};

static const char *const words[] = {"null", "true", "false"};

void rvi_machine_fail(rvi_machine *m, rv_status st, const char *why)
{
    rvi_rxs_fail(&m->values.rxs, st, why);
}

rv_status rvi_machine_init(rvi_machine *m, rv_error *err)
{
    *m = (rvi_machine){.max_blanks = UINT16_MAX};
    rv_status st = rvi_values_init(&m->values, err);
    if (!st && (!rvi_lexer_init(&m->lexer, &m->values.rxs) || !(m->opened = rvi_members_new())))
        st = rvi_nomem(err, "grammar");
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
    rvi_free(m->opened);
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
            rvi_machine_fail(m, RV_E_TOO_LONG, "a text can be read in too many ways");
            return;
        }
        rvi_place *items = rvi_realloc_array(out->borrowed ? NULL : out->items, cap, sizeof *items);
        if (!items) {
            rvi_machine_fail(m, RV_E_NOMEM, "");
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

void rvi_machine_go(rvi_machine *m, rvi_places *out, rvi_place_kind kind, uint32_t frame,
                    uint32_t arg, uint32_t extra)
{
    rvi_place at = {.frame = frame, .arg = arg, .extra = extra, .kind = (uint16_t)kind};
    rvi_places_add(m, out, at);
}

/* ---- frames, sets, lists ---- */

rvi_frame rvi_machine_frame(const rvi_machine *m, uint32_t frame)
{
    rvi_frame f = {0};
    if (frame) memcpy(&f, rvi_bag_get(&m->frames, frame, NULL), sizeof f);
    return f;
}

uint32_t rvi_machine_put(rvi_machine *m, rvi_bag *b, const void *row, size_t n, uint32_t most)
{
    uint32_t number = m->values.rxs.status ? 0 : rvi_bag_put(b, row, n, most);
    if (!number)
        rvi_machine_fail(m, b->n_rows >= most ? RV_E_TOO_LONG : RV_E_NOMEM,
                         "the text has too many states");
    return number;
}

uint32_t rvi_machine_frame_put(rvi_machine *m, const rvi_frame *f)
{
    return rvi_machine_put(m, &m->frames, f, sizeof *f / sizeof(uint32_t), MAX_FRAMES);
}

uint32_t rvi_machine_plan_number(rvi_machine *m, void *plan, uint32_t *number)
{
    if (*number) return *number;
    if (m->n_plans == m->cap_plans) {
        uint32_t cap = m->cap_plans ? m->cap_plans * 2 : 32;
        void **plans = rvi_realloc_array(m->plans, cap, sizeof *plans);
        if (!plans) return rvi_machine_fail(m, RV_E_NOMEM, ""), 0;
        m->plans = plans;
        m->cap_plans = cap;
    }
    m->plans[m->n_plans++] = plan;
    return *number = m->n_plans;
}

static rvi_array_plan *array_plan(const rvi_machine *m, const rvi_frame *f)
{
    return m->plans[f->plan - 1];
}

uint32_t rvi_machine_list_with(rvi_machine *m, uint32_t list, uint32_t item)
{
    return rvi_machine_put(m, &m->lists, (const uint32_t[]){list, item}, 2, MAX_LISTS);
}

/* ---- values ---- */

static bool blank(uint8_t b)
{
    return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

bool rvi_machine_inhabited(rvi_machine *m, rvi_node n)
{
    if (!m->values.nodes[n].queued && n != RVI_ANY && n != RVI_NEVER && !m->values.st)
        (void)!rvi_values_close(&m->values, n, &m->err);
    return !m->values.st && m->values.nodes[n].inhabited;
}

static void open_array(rvi_machine *m, uint32_t frame, rvi_array *shape, rvi_places *out)
{
    rvi_array_plan *p = rvi_array_plan_get(&m->values, shape);
    if (!p || shape->min > p->max) return;
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_ARRAY};
    if (!(f.plan = rvi_machine_plan_number(m, p, &p->number))) return;
    uint32_t opened_frame = rvi_machine_frame_put(m, &f);
    if (opened_frame) rvi_machine_go(m, out, RVI_AT_ARRAY, opened_frame, 0, 0);
}

static bool unique_items(const rvi_machine *m, const rvi_frame *f)
{
    return f->kind == RVI_FRAME_ARRAY && array_plan(m, f)->shape->unique;
}

/* The text whose characters are a list, the last one first, in front of `end`. */
static rvi_text text_before(const rvi_machine *m, uint32_t list, char *end)
{
    char *at = end;
    while (list) {
        const uint32_t *pair = rvi_bag_get(&m->lists, list, NULL);
        char bytes[4];
        size_t n = rvi_utf8_encode(pair[1], bytes);
        memcpy(at -= n, bytes, n);
        list = pair[0];
    }
    return (rvi_text){at, (size_t)(end - at)};
}

/* The last n texts of a list as a language; *before: the list without them. */
static rvi_rx last_texts(rvi_machine *m, uint32_t list, size_t n, uint32_t *before)
{
    rvi_rxs *x = &m->values.rxs;
    size_t most = 0, k = 0;
    uint32_t at = list;
    for (size_t i = 0; i < n; i++) { /* how many bytes */
        const uint32_t *pair = rvi_bag_get(&m->lists, at, NULL);
        at = pair[0];
        for (uint32_t c = pair[1]; c; c = *rvi_bag_get(&m->lists, c, NULL)) most += 4;
    }
    *before = at;
    rvi_text *texts = rvi_alloc_array(n, sizeof *texts);
    char *bytes = rvi_alloc_array(most + 1, 1);
    rvi_rx out = RVI_RX_NONE;
    if (texts && bytes && rvi_rxs_spend(x, most)) {
        char *end = bytes + most;
        for (at = list; k < n; k++) {
            const uint32_t *pair = rvi_bag_get(&m->lists, at, NULL);
            texts[k] = text_before(m, pair[1], end);
            end -= texts[k].len;
            at = pair[0];
        }
        qsort(texts, n, sizeof *texts, rvi_text_compare);
        out = rvi_rx_names(x, &m->values.arena, texts, n, NULL);
    } else if (!x->status) {
        rvi_machine_fail(m, RV_E_NOMEM, "");
    }
    rvi_free(texts);
    rvi_free(bytes);
    return out;
}

/* Strings without the n texts of a list. They are taken out in blocks whose sizes are powers of
 * two, the largest first: so blocks are few, and what was made for the items before is there. */
static rvi_rx without(rvi_machine *m, uint32_t list, size_t n, rvi_rx strings)
{
    rvi_rxs *x = &m->values.rxs;
    size_t size = 1, slot = 0;
    uint32_t before;
    if (!n || x->status) return strings;
    while (!(n & size)) size *= 2, slot++;
    struct rvi_differ *known = &m->differ[slot];
    if (known->list == list && known->strings == strings) return known->left;
    rvi_rx texts = last_texts(m, list, size, &before);
    rvi_rx left = rvi_rx_and(x, without(m, before, n - size, strings), rvi_rx_not(x, texts));
    if (!x->status) *known = (struct rvi_differ){list, strings, left};
    return left;
}

/* A text whose characters are a list. */
static rvi_rx text_of(rvi_machine *m, uint32_t list)
{
    enum { WORK = 4 }; /* of a character */
    rvi_rxs *x = &m->values.rxs;
    rvi_rx text = RVI_RX_EPS;
    while (list && rvi_rxs_spend(x, WORK)) { /* from its end */
        const uint32_t *pair = rvi_bag_get(&m->lists, list, NULL);
        list = pair[0];
        text = rvi_rx_cat(x, rvi_rx_one(x, pair[1]), text);
    }
    return text;
}

/* The strings of a node that are not yet in an array whose items differ. */
static rvi_rx strings_left(rvi_machine *m, const rvi_frame *f, rvi_rx strings)
{
    rvi_rxs *x = &m->values.rxs;
    size_t n = 0;
    if (!f->keys || !unique_items(m, f)) return strings;
    /* the last one by itself: a mask tries many, behind the same others */
    const uint32_t *pair = rvi_bag_get(&m->lists, f->keys, NULL);
    uint32_t before = pair[0], last = pair[1];
    for (uint32_t at = before; at; n++) at = *rvi_bag_get(&m->lists, at, NULL);
    if (!rvi_rxs_spend(x, n / 4)) return RVI_RX_NONE;
    strings = without(m, before, n, strings);
    return rvi_rx_and(x, strings, rvi_rx_not(x, text_of(m, last)));
}

static bool strings_are_left(rvi_machine *m, const rvi_frame *f, rvi_node node)
{
    const rvi_form *form = f->keys && unique_items(m, f) ? rvi_values_form(&m->values, node) : NULL;
    return !form || rvi_rx_live(&m->values.rxs, strings_left(m, f, form->string));
}

static void begin_value(rvi_machine *m, uint32_t frame, rvi_node node, uint8_t b, rvi_places *out)
{
    rvi_frame around = rvi_machine_frame(m, frame);
    const rvi_form *f = rvi_values_form(&m->values, node);
    uint32_t lex;
    if (!f) return;
    switch (b) {
    case '{':
        for (size_t i = 0; i < f->n_objects; i++) rvi_members_open(m, frame, f->objects[i], out);
        return;
    case '[':
        for (size_t i = 0; i < f->n_arrays; i++) open_array(m, frame, f->arrays[i], out);
        return;
    case '"':
        lex = rvi_lex_start(&m->lexer, strings_left(m, &around, f->string), RVI_LEX_STRING);
        if (lex) rvi_machine_go(m, out, RVI_AT_STRING, frame, lex, 0);
        return;
    default: break;
    }
    for (uint32_t i = 0; i < RVI_COUNT(words); i++)
        if ((f->words >> i & 1) && b == (uint8_t)words[i][0])
            rvi_machine_go(m, out, RVI_AT_WORD, frame, i, 1);
    if (b != '-' && (b < '0' || b > '9')) return;
    lex = rvi_lex_start(&m->lexer, f->number, RVI_LEX_TEXT);
    if (lex) lex = rvi_lex_step(&m->lexer, lex, b, NULL);
    if (lex) rvi_machine_go(m, out, RVI_AT_NUMBER, frame, lex, 0);
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
    if (!rvi_machine_inhabited(m, node) || !array_hopeful(p, &f) || !strings_are_left(m, &f, node))
        return;
    uint32_t frame = rvi_machine_frame_put(m, &f);
    if (frame) rvi_machine_go(m, out, RVI_AT_VALUE, frame, node, 0);
}

static void item_places(rvi_machine *m, const rvi_frame *f, rvi_places *out)
{
    const rvi_array_plan *p = array_plan(m, f);
    rvi_frame with = *f;
    if (f->count >= p->max) return;
    with.count = RVI_MIN(f->count + 1, p->count_to);
    next_item(m, p, with, rvi_plan_item(p, f->count), 0, f->count, out);
}

bool rvi_machine_tells_apart(const rvi_machine *m, const rvi_place *at)
{
    rvi_frame f = rvi_machine_frame(m, at->frame);
    return at->kind == RVI_AT_STRING ? unique_items(m, &f) : rvi_members_plan(m, &f)->tell_apart;
}

void rvi_machine_close(rvi_machine *m, const rvi_place *at, uint32_t lex_state, rvi_places *out)
{
    if (at->kind == RVI_AT_STRING)
        rvi_machine_go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
    else
        rvi_members_end_key(m, at->frame, lex_state, at->extra, out);
}

/* ---- rules ---- */

#define NO_FRAME UINT32_MAX

/* A frame from which the text goes on at an item; behind the last one that is the frame around
 * it. */
static uint32_t return_to(rvi_machine *m, uint32_t frame, uint32_t item)
{
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_RULE, .count = item};
    if (m->rules.items[item].kind == RVI_ITEM_END) return frame;
    frame = rvi_machine_frame_put(m, &f);
    return frame ? frame : NO_FRAME;
}

enum { WORK = 4 }; /* of a step from one place to others */

static void enter(rvi_machine *m, uint32_t frame, uint32_t item, int depth, rvi_places *out)
{
    const rvi_rules *r = &m->rules;
    if (depth > MAX_CALLS) {
        rvi_machine_fail(m, RV_E_UNSUPPORTED, "rules begin with each other too deeply");
        return;
    }
    if (!rvi_rxs_spend(&m->values.rxs, 1)) return; /* the same rule may be met in many ways */
    for (;;) {
        rvi_item i = r->items[item];
        if (i.kind == RVI_ITEM_TERMINAL) {
            uint32_t lex = rvi_lex_start(&m->lexer, i.value, RVI_LEX_TEXT);
            if (lex) rvi_machine_go(m, out, RVI_AT_TERMINAL, frame, lex, item + 1);
            return;
        }
        if (i.kind == RVI_ITEM_VALUE) {
            uint32_t inside = return_to(m, frame, item + 1);
            if (inside != NO_FRAME) rvi_machine_go(m, out, RVI_AT_VALUE, inside, i.value, 0);
            return;
        }
        if (i.kind == RVI_ITEM_END) {
            if (!frame) {
                rvi_machine_go(m, out, RVI_AT_END, 0, 0, 0);
                return;
            }
            rvi_frame f = rvi_machine_frame(m, frame);
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
    rvi_frame f = rvi_machine_frame(m, frame);
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
    if (next != RVI_LEX_DEAD) rvi_machine_go(m, out, RVI_AT_TERMINAL, at->frame, next, at->extra);
    if (!rvi_lex_ends(&m->lexer, at->arg)) return;
    rvi_places behind = {0};
    rvi_machine_behind(m, at, &behind);
    step_all(m, &behind, b, out);
}

/* ---- short ways to the end ---- */

uint32_t rvi_machine_owes(rvi_machine *m, const rvi_place *at)
{
    uint32_t owed = at->kind == RVI_AT_VALUE || at->kind == RVI_AT_STRING, frame = at->frame;
    while (frame) {
        rvi_frame f = rvi_machine_frame(m, frame);
        if (f.kind == RVI_FRAME_OBJECT) owed += rvi_members_owe(m, frame);
        if (f.kind == RVI_FRAME_ARRAY) {
            uint32_t min = array_plan(m, &f)->shape->min;
            owed += 1 + (f.count < min ? 2 * (min - f.count) : 0);
        }
        frame = f.parent;
    }
    return RVI_MIN(owed, 1u << 24);
}

int rvi_machine_lead(rvi_machine *m, const rvi_place *at)
{
    bool quoted = at->kind == RVI_AT_KEY || at->kind == RVI_AT_STRING;
    if ((!quoted && at->kind != RVI_AT_TERMINAL) || m->lexer.states[at->arg].pending) return -1;
    uint32_t cp = at->kind == RVI_AT_KEY ? rvi_members_lead(m, at)
                                         : rvi_rx_lead(&m->values.rxs, m->lexer.states[at->arg].rx);
    if (cp < 0x20 || cp >= 0x7F || (quoted && cp == '\\')) return -1;
    return at->kind == RVI_AT_STRING && cp == '"' ? -1 : (int)cp;
}

/* ---- one byte ---- */

static void step_after(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    rvi_frame f = rvi_machine_frame(m, at->frame);
    if (f.kind == RVI_FRAME_OBJECT) {
        rvi_members_after(m, at->frame, b, out);
    } else if (f.kind == RVI_FRAME_ARRAY) {
        if (b == ',') item_places(m, &f, out);
        if (b == ']' && may_close_array(array_plan(m, &f), &f))
            rvi_machine_go(m, out, RVI_AT_AFTER, f.parent, 0, 0);
    }
}

/* A string of an array whose items differ. */
static void step_item(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    uint32_t cp, next = rvi_lex_step(&m->lexer, at->arg, b, &cp), text = at->extra;
    if (next == RVI_LEX_EXIT) {
        rvi_frame f = rvi_machine_frame(m, at->frame);
        uint32_t frame =
            (f.keys = rvi_machine_list_with(m, f.keys, text)) ? rvi_machine_frame_put(m, &f) : 0;
        if (frame) rvi_machine_go(m, out, RVI_AT_AFTER, frame, 0, 0);
    }
    if (next < RVI_LEX_FIRST) return;
    if (cp != UINT32_MAX) text = rvi_machine_list_with(m, text, cp);
    rvi_machine_go(m, out, RVI_AT_STRING, at->frame, next, text);
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
        if (next == RVI_LEX_EXIT) rvi_machine_go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
        if (next >= RVI_LEX_FIRST) rvi_machine_go(m, out, RVI_AT_STRING, at->frame, next, 0);
        break;
    case RVI_AT_NUMBER:
        next = rvi_lex_fast(&m->lexer, at->arg, b);
        if (next) rvi_machine_go(m, out, RVI_AT_NUMBER, at->frame, next, 0);
        if (rvi_lex_ends(&m->lexer, at->arg)) {
            rvi_place after = {.frame = at->frame, .kind = RVI_AT_AFTER};
            rvi_machine_step(m, &after, b, out);
        }
        break;
    case RVI_AT_WORD:
        if (b != (uint8_t)words[at->arg][at->extra]) break;
        if (words[at->arg][at->extra + 1])
            rvi_machine_go(m, out, RVI_AT_WORD, at->frame, at->arg, at->extra + 1);
        else
            rvi_machine_go(m, out, RVI_AT_AFTER, at->frame, 0, 0);
        break;
    case RVI_AT_OBJECT:
        if (b == '"') rvi_members_begin_key(m, at->frame, out);
        if (b == '}') step_after(m, at, b, out);
        break;
    case RVI_AT_KEY_QUOTE:
        if (b == '"') rvi_members_begin_key(m, at->frame, out);
        break;
    case RVI_AT_KEY: rvi_members_step_key(m, at, b, out); break;
    case RVI_AT_COLON:
        if (b == ':') rvi_machine_go(m, out, RVI_AT_VALUE, at->frame, at->arg, 0);
        break;
    case RVI_AT_ARRAY:
        if (b == ']') {
            step_after(m, at, b, out);
        } else {
            rvi_places items = {0};
            f = rvi_machine_frame(m, at->frame);
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
