/* members.c - the members of open objects: which keys may come, which must, and when the object may
 * close. */
#include <string.h>

#include "grammar/machine_internal.h"

enum {
    MAX_SETS = 1 << 18,
    MAX_SET_WORDS = 16 << 20, /* of all sets of names: 64 MiB */
    MAX_NAMES = 1 << 16,
    SET_WORDS = MAX_NAMES / 64,
};

/* What is known of an open object. */
struct rvi_opened {
    uint32_t frame; /* whose object it is; 0: none */
    rvi_object_plan *p;
    const rvi_object *shape;
    rvi_frame f;
    uint32_t missing;                          /* names that must still come */
    uint64_t seen[SET_WORDS], need[SET_WORDS]; /* need: of those not seen */
};
typedef struct rvi_opened opened;

opened *rvi_members_new(void)
{
    return rvi_zalloc(sizeof(opened));
}

rvi_object_plan *rvi_members_plan(const rvi_machine *m, const rvi_frame *f)
{
    return m->plans[f->plan - 1];
}

static bool has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

static void add_needs(rvi_machine *m, opened *o, uint32_t name)
{
    for (uint32_t w = 0; w < o->p->n_words; w++) o->need[w] |= o->p->needs[name][w];
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 16);
}

/* Valid until the next call. Frames never change, and many bytes are tried on one: what was found
 * of the last is kept. */
static const opened *look(rvi_machine *m, uint32_t frame)
{
    opened *o = m->opened;
    if (o->frame == frame) return o;
    o->frame = frame;
    o->f = rvi_machine_frame(m, frame);
    o->p = rvi_members_plan(m, &o->f);
    o->shape = o->p->shape;
    o->missing = 0;
    const size_t bytes = o->p->n_words * sizeof *o->need;
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 4 + (o->p->has_needs ? o->p->n_named / 8 : 0));
    if (o->f.seen)
        memcpy(o->seen, rvi_bag_get(&m->sets, o->f.seen, NULL), bytes);
    else
        memset(o->seen, 0, bytes);
    memcpy(o->need, o->p->required, bytes);
    for (uint32_t i = 0; o->p->has_needs && i < o->p->n_named; i++)
        if (o->p->needs[i] && has(o->seen, i)) add_needs(m, o, i);
    for (uint32_t w = 0; w < o->p->n_words; w++) {
        o->need[w] &= ~o->seen[w];
        for (uint64_t bits = o->need[w]; bits; bits &= bits - 1) o->missing++;
    }
    return o;
}

static bool may_close(const opened *o)
{
    return !o->missing && o->f.count >= o->shape->min && o->f.some == (1u << o->shape->n_some) - 1;
}

/* Room for a member that is not needed yet. */
static bool spare_room(const opened *o)
{
    return o->shape->max == RVI_NO_LIMIT || o->f.count + o->missing < o->shape->max;
}

/* Whether one of the names low..high-1 may come. */
static bool some_name_allowed(rvi_machine *m, const opened *o, uint32_t low, uint32_t high)
{
    const uint64_t others = spare_room(o) ? UINT64_MAX : 0; /* that are not needed */
    uint64_t found = 0;
    uint32_t first = low / 64, w = first;
    for (; w * 64 < high && !found; w++) {
        found = o->p->possible[w] & ~o->seen[w] & (o->need[w] | others);
        if (w == first) found &= UINT64_MAX << (low % 64);
        if (high - w * 64 < 64) found &= (1ull << (high - w * 64)) - 1;
    }
    rvi_rxs_spend(&m->values.rxs, (w - first) / 8);
    return found;
}

static bool name_allowed(rvi_machine *m, const opened *o, uint32_t i)
{
    return some_name_allowed(m, o, i, i + 1);
}

static bool may_add_member(rvi_machine *m, const opened *o)
{
    return (o->p->others != RVI_RX_NONE && spare_room(o)) ||
           some_name_allowed(m, o, 0, o->p->n_named);
}

void rvi_members_open(rvi_machine *m, uint32_t frame, rvi_object *shape, rvi_places *out)
{
    rvi_object_plan *p = rvi_object_plan_get(&m->values, shape);
    if (!p || !rvi_object_plan_ready(&m->values, p)) return;
    uint32_t n_required = 0, n_possible = 0;
    if (p->n_named > MAX_NAMES) {
        rvi_machine_fail(m, RV_E_TOO_LONG, "an object has more than 65536 names");
        return;
    }
    for (uint32_t w = 0; w < p->n_words; w++) {
        if (p->required[w] & ~p->possible[w]) return;
        for (uint64_t bits = p->required[w]; bits; bits &= bits - 1) n_required++;
        for (uint64_t bits = p->possible[w]; bits; bits &= bits - 1) n_possible++;
    }
    if (n_required > shape->max || shape->min > shape->max) return;
    if (p->others == RVI_RX_NONE && n_possible < shape->min) return;
    rvi_frame f = {.parent = frame, .kind = RVI_FRAME_OBJECT};
    if (!(f.plan = rvi_machine_plan_number(m, p, &p->number))) return;
    uint32_t inside = rvi_machine_frame_put(m, &f);
    if (inside) rvi_machine_go(m, out, RVI_AT_OBJECT, inside, 0, 0);
}

void rvi_members_after(rvi_machine *m, uint32_t frame, uint8_t b, rvi_places *out)
{
    if (b != ',' && b != '}') return;
    const opened *o = look(m, frame);
    if (b == ',' && may_add_member(m, o)) rvi_machine_go(m, out, RVI_AT_KEY_QUOTE, frame, 0, 0);
    if (b == '}' && may_close(o)) rvi_machine_go(m, out, RVI_AT_AFTER, o->f.parent, 0, 0);
}

/* ---- keys ---- */

void rvi_members_begin_key(rvi_machine *m, uint32_t frame, rvi_places *out)
{
    const opened *o = look(m, frame);
    if (!may_add_member(m, o)) return;
    uint32_t lex = rvi_lex_start(&m->lexer, o->p->key_start, RVI_LEX_STRING);
    if (lex) rvi_machine_go(m, out, RVI_AT_KEY, frame, lex, 0);
}

unsigned rvi_machine_key_ways(rvi_machine *m, const rvi_place *at, rvi_place *other,
                              rvi_place *named)
{
    rvi_rxs *x = &m->values.rxs;
    const rvi_lex_state s = m->lexer.states[at->arg];
    const opened *o = look(m, at->frame);
    bool others = rvi_rx_part(x, s.rx, 0) != RVI_RX_NONE && spare_room(o);
    bool names = rvi_rx_part(x, s.rx, 1) != RVI_RX_NONE;
    *other = *named = *at;
    if (others && (!names || !o->p->names_stray)) return RVI_KEY_OTHER;
    if (s.pending) return RVI_KEY_NAMED; /* whose half a character is, is not known */
    if (others) other->arg = rvi_lex_start(&m->lexer, rvi_rx_only(x, s.rx, 0), RVI_LEX_STRING);
    if (names) named->arg = rvi_lex_start(&m->lexer, rvi_rx_only(x, s.rx, 1), RVI_LEX_STRING);
    return (others && other->arg ? RVI_KEY_OTHER : 0u) | (names && named->arg ? RVI_KEY_NAMED : 0u);
}

/* Whether a key without a name (0), or a name (1), goes on with a byte that leads to `next`: half a
 * character may be that of the other alone. */
static bool way_goes_on(rvi_machine *m, const rvi_place *at, uint8_t b, uint32_t next, size_t way)
{
    rvi_rxs *x = &m->values.rxs;
    const rvi_lex_state s = m->lexer.states[next];
    if (rvi_rx_part(x, s.rx, way) == RVI_RX_NONE) return false;
    if (!s.pending || rvi_rx_part(x, s.rx, 1 - way) == RVI_RX_NONE) return true;
    uint32_t alone = rvi_lex_with(&m->lexer, at->arg, rvi_rx_only(x, s.rx, way));
    return alone && rvi_lex_step(&m->lexer, alone, b, NULL) != RVI_LEX_DEAD;
}

/* Whether a key can still become one that is allowed here. */
static bool key_hopeful(rvi_machine *m, const rvi_place *at, uint8_t b, uint32_t next)
{
    const opened *o = look(m, at->frame);
    if (spare_room(o) && way_goes_on(m, at, b, next, 0)) return true;
    if (!way_goes_on(m, at, b, next, 1)) return false;
    rvi_rx names = rvi_rx_part(&m->values.rxs, m->lexer.states[next].rx, 1);
    uint32_t state = rvi_rx_auto_state(&m->values.rxs, names);
    return some_name_allowed(m, o, o->p->names->nodes[state].low, o->p->names->nodes[state].high);
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
    if (!rvi_machine_inhabited(m, node)) return;
    uint32_t frame = rvi_machine_frame_put(m, &f);
    if (frame) rvi_machine_go(m, out, RVI_AT_COLON, frame, node, 0);
}

/* The names of an object and one more; 0: failed. */
static uint32_t seen_with(rvi_machine *m, const opened *o, uint32_t name)
{
    uint64_t seen[SET_WORDS];
    if (m->sets.n_words > MAX_SET_WORDS) {
        rvi_machine_fail(m, RV_E_TOO_LONG, "the text has too many states");
        return 0;
    }
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 4); /* it is compared and kept */
    memcpy(seen, o->seen, o->p->n_words * sizeof *seen);
    seen[name / 64] |= 1ull << (name % 64);
    return rvi_machine_put(m, &m->sets, seen, o->p->n_words * 2, MAX_SETS);
}

static bool list_has(rvi_machine *m, uint32_t list, uint32_t item)
{
    uint32_t n = 0;
    bool found = false;
    for (; list && !found; n++) {
        const uint32_t *pair = rvi_bag_get(&m->lists, list, NULL);
        found = pair[1] == item;
        list = pair[0];
    }
    rvi_rxs_spend(&m->values.rxs, n / 4);
    return found;
}

void rvi_members_end_key(rvi_machine *m, uint32_t frame, uint32_t lex, uint32_t text,
                         rvi_places *out)
{
    rvi_rxs *x = &m->values.rxs;
    const rvi_rx rx = m->lexer.states[lex].rx;
    const opened *o = look(m, frame);
    const rvi_object *shape = o->shape;
    rvi_object_plan *p = o->p;
    rvi_frame f = o->f;
    uint32_t state = rvi_rx_auto_state(x, rvi_rx_part(x, rx, 1)), bits = 0;
    rvi_node node;
    if (shape->max != RVI_NO_LIMIT || shape->min)
        f.count = RVI_MIN(f.count + 1, shape->max == RVI_NO_LIMIT ? shape->min : shape->max);
    if (state != UINT32_MAX && p->names->nodes[state].ends) {
        uint32_t name = p->names->nodes[state].low;
        if (!name_allowed(m, o, name) || !(f.seen = seen_with(m, o, name))) return;
        node = p->named[name].node;
        bits = p->some_of[name];
        if (p->needs[name] && shape->max != RVI_NO_LIMIT) { /* what becomes needed must fit too */
            uint32_t then = rvi_machine_frame_put(m, &f);
            if (!then || f.count + look(m, then)->missing > shape->max) return;
        }
    } else {
        uint32_t n_own = p->n_patterns - (uint32_t)shape->n_some;
        if (!rvi_rx_nullable(x, rvi_rx_part(x, rx, 0)) || !spare_room(o)) return;
        if (p->tell_apart) {
            if (list_has(m, f.keys, text)) return;
            f.keys = rvi_machine_list_with(m, f.keys, text);
        }
        for (uint32_t i = 0; i < p->n_patterns; i++)
            if (rvi_rx_nullable(x, rvi_rx_part(x, rx, 2 + i))) bits |= 1u << i;
        node = rvi_plan_other(&m->values, p, bits);
        bits >>= n_own;
    }
    begin_member(m, f, node, bits, shape, out);
}

void rvi_members_step_key(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out)
{
    uint32_t cp, next = rvi_lex_step(&m->lexer, at->arg, b, &cp), text = at->extra;
    if (next == RVI_LEX_EXIT) {
        rvi_members_end_key(m, at->frame, at->arg, at->extra, out);
        return;
    }
    if (next == RVI_LEX_DEAD || !key_hopeful(m, at, b, next)) return;
    if (cp != UINT32_MAX && look(m, at->frame)->p->tell_apart)
        text = rvi_machine_list_with(m, text, cp);
    rvi_machine_go(m, out, RVI_AT_KEY, at->frame, next, text);
}

/* ---- short ways to the end ---- */

uint32_t rvi_members_owe(rvi_machine *m, uint32_t frame)
{
    const opened *o = look(m, frame);
    uint32_t owed = 1;
    for (uint32_t w = 0; w < o->p->n_words; w++)
        for (uint32_t i = 0; i < 64 && o->need[w]; i++)
            if (o->need[w] >> i & 1) owed += (uint32_t)o->p->named[64 * w + i].name.len + 6;
    rvi_rxs_spend(&m->values.rxs, o->p->n_words / 8 + o->missing / 4);
    if (o->f.count + o->missing < o->shape->min)
        owed += 6 * (o->shape->min - o->f.count - o->missing);
    for (size_t i = 0; i < o->shape->n_some; i++) owed += o->f.some >> i & 1 ? 0 : 6;
    return owed;
}

/* The part of a key's languages that knows the names of its object, and the first name that is
 * needed: in which order they come makes no text shorter. */
static bool find_needed(rvi_machine *m, const rvi_place *at, const rvi_object_plan **plan,
                        rvi_rx *names, uint32_t *first)
{
    const opened *o = look(m, at->frame);
    if (!o->missing) return false;
    *plan = o->p;
    *names = rvi_rx_part(&m->values.rxs, m->lexer.states[at->arg].rx, 1);
    *first = 0;
    while (!o->need[*first / 64]) *first += 64;
    while (!has(o->need, *first)) ++*first;
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
    const opened *o = look(m, at->frame);
    size_t which = 0, n_some = o->shape->n_some;
    while (which < n_some && (o->f.some >> which & 1)) which++;
    if (which == n_some) return UINT32_MAX;
    rvi_rx keys = rvi_rx_and(x, rvi_rx_part(x, rx, 0),
                             rvi_rx_part(x, rx, 2 + o->p->n_patterns - n_some + which));
    if (rvi_rx_nullable(x, keys)) return '"';
    uint32_t cp = rvi_rx_lead(x, keys);
    return cp == '"' ? UINT32_MAX : cp;
}

uint32_t rvi_members_lead(rvi_machine *m, const rvi_place *at)
{
    const rvi_object_plan *p;
    rvi_rx names;
    uint32_t first;
    if (!find_needed(m, at, &p, &names, &first)) return lead_to_some(m, at);
    return lead_to_name(p, rvi_rx_auto_state(&m->values.rxs, names), first);
}
