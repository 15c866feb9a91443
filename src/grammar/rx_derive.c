/* rx_derive.c - the states of expressions: derivatives, which states lead to an end, and what may
 * be asked of them. */
#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/rx_internal.h"

static bool set_has(const rvi_rxs *p, const rvi_rx_node *n, uint32_t cp)
{
    const uint32_t *w = p->words + n->a;
    size_t low = 0, high = n->b / 2;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp < w[2 * mid])
            high = mid;
        else if (cp > w[2 * mid + 1])
            low = mid + 1;
        else
            return true;
    }
    return false;
}

static rvi_rx derive(rvi_rxs *p, rvi_rx a, uint32_t cp, int depth);

static rvi_rx derive_list(rvi_rxs *p, rvi_rx a, uint32_t cp, int depth)
{
    kind k = p->nodes[a].kind;
    uint32_t at = p->nodes[a].a, n = p->nodes[a].b; /* the pool may move while children are made */
    rx_list l = {0};
    rvi_rx out = RVI_RX_NONE;
    for (uint32_t i = 0; i < n && !p->status; i++) {
        rvi_rx d = derive(p, p->words[at + i], cp, depth);
        if (k == AND && d == RVI_RX_NONE) goto done;
        if (d != RVI_RX_NONE) rvi_rx_list_flatten(p, &l, k, d);
    }
    if (!p->status && l.n) out = rvi_rx_combine(p, k, &l);
done:
    rvi_rx_list_free(&l);
    return out;
}

static rvi_rx derive(rvi_rxs *p, rvi_rx a, uint32_t cp, int depth)
{
    enum { WORK = 6 };
    const rvi_rx_node n = p->nodes[a];
    rvi_rx d;
    if (p->status || !rvi_rxs_spend(p, WORK)) return RVI_RX_NONE;
    if (depth > MAX_DEPTH) {
        rvi_rxs_fail(p, RV_E_TOO_LONG, "the expression is nested too deeply");
        return RVI_RX_NONE;
    }
    switch ((kind)n.kind) {
    case NONE:
    case EPS: return RVI_RX_NONE;
    case ALL: return RVI_RX_ALL;
    case SET: return set_has(p, &n, cp) ? RVI_RX_EPS : RVI_RX_NONE;
    case CAT:
        d = rvi_rx_cat(p, derive(p, n.a, cp, depth + 1), n.b);
        return p->nodes[n.a].nullable ? rvi_rx_or(p, derive(p, n.b, cp, depth + 1), d) : d;
    case OR:
    case AND: return derive_list(p, a, cp, depth + 1);
    case TUPLE: return RVI_RX_NONE; /* rvi_rx_next steps its parts */
    case NOT: return rvi_rx_not(p, derive(p, n.a, cp, depth + 1));
    case REPEAT:
        d = derive(p, n.a, cp, depth + 1);
        if (d == RVI_RX_NONE) return d;
        return rvi_rx_cat(p, d,
                          rvi_rx_repeat(p, n.a, n.min ? n.min - 1 : 0,
                                        n.max == RVI_RX_FOREVER ? n.max : n.max - 1));
    case AUTO: {
        uint32_t state = p->autos[n.a].step(p->autos[n.a].self, n.b, cp);
        return state == UINT32_MAX ? RVI_RX_NONE : rvi_rx_auto_at(p, n.a, state);
    }
    }
    return RVI_RX_NONE;
}

static void add_bound(rvi_rxs *p, uint32_t cp)
{
    if (rvi_rx_grow(p, &p->scratch, &p->cap_scratch, p->n_scratch + 1, MAX_WORDS,
                    sizeof *p->scratch))
        p->scratch[p->n_scratch++] = cp;
}

/* Where the derivatives of a can change. */
static void bounds(rvi_rxs *p, rvi_rx a, int depth)
{
    for (;;) {
        const rvi_rx_node *n = &p->nodes[a];
        if (depth > MAX_DEPTH)
            rvi_rxs_fail(p, RV_E_TOO_LONG, "the expression is nested too deeply");
        if (p->status) return;
        switch ((kind)n->kind) {
        case NONE:
        case EPS:
        case ALL: return;
        case SET:
            for (uint32_t i = 0; i < n->b; i++) add_bound(p, p->words[n->a + i] + (i & 1));
            return;
        case CAT:
            if (!p->nodes[n->a].nullable) {
                a = n->a;
                break;
            }
            bounds(p, n->a, depth + 1);
            a = n->b;
            break;
        case NOT:
        case REPEAT: a = n->a; break;
        case OR:
        case AND:
            for (uint32_t i = 0; i < n->b; i++) bounds(p, p->words[n->a + i], depth + 1);
            return;
        case TUPLE: return;
        case AUTO: {
            const uint32_t *list;
            size_t count = p->autos[n->a].bounds(p->autos[n->a].self, n->b, &list);
            for (size_t i = 0; i < count; i++) add_bound(p, list[i]);
            return;
        }
        }
    }
}

/* The steps of a state, in the order of code points; they include dead ones. */
static const rvi_rx_step *steps_of(rvi_rxs *p, rvi_rx a, size_t *n)
{
    static const rvi_rx_step nowhere[] = {{RVI_RX_LAST, RVI_RX_NONE}};
    *n = 1;
    if (p->status) return nowhere;
    if (p->nodes[a].n_steps) {
        *n = p->nodes[a].n_steps;
        return p->steps + p->nodes[a].steps;
    }
    p->n_scratch = 0;
    add_bound(p, 0xD800); /* surrogates are no characters */
    add_bound(p, 0xE000);
    bounds(p, a, 0);
    add_bound(p, 0);
    add_bound(p, RVI_RX_LAST + 1);
    if (!rvi_rxs_spend(p, p->n_scratch)) return nowhere;
    qsort(p->scratch, p->n_scratch, sizeof *p->scratch, rvi_rx_by_number);
    if (!rvi_rx_grow(p, &p->steps, &p->cap_steps, p->n_steps + p->n_scratch, MAX_STEPS,
                     sizeof *p->steps))
        return nowhere;
    uint32_t base = p->n_steps, count = 0;
    for (uint32_t i = 0; i + 1 < p->n_scratch && !p->status; i++) {
        uint32_t first = p->scratch[i], next = p->scratch[i + 1];
        if (first == next || first > RVI_RX_LAST) continue;
        rvi_rx to = first == 0xD800 ? RVI_RX_NONE : derive(p, a, first, 0);
        if (count && p->steps[base + count - 1].to == to)
            p->steps[base + count - 1].last = next - 1;
        else
            p->steps[base + count++] = (rvi_rx_step){next - 1, to};
    }
    if (p->status) return nowhere;
    p->n_steps += count;
    p->nodes[a].steps = base;
    p->nodes[a].n_steps = count;
    *n = count;
    return p->steps + base;
}

/* Breadth first for a state that ends a text, or with `known` for one that is known to lead to an
 * end. UINT32_MAX: there is none, and all that was seen is dead; or it is not among the first
 * `most` states. The way back is in the parents. */
static uint32_t find_end(rvi_rxs *p, rvi_rx a, bool known, uint32_t most)
{
    uint32_t n_queue = 0, epoch = ++p->epoch;
    if (!rvi_rx_grow(p, &p->queue, &p->cap_queue, 1, MAX_NODES, sizeof *p->queue))
        return UINT32_MAX;
    p->queue[n_queue++] = a;
    p->nodes[a].epoch = epoch;
    p->nodes[a].parent = UINT32_MAX;
    for (uint32_t at = 0; at < n_queue && !p->status; at++) {
        rvi_rx from = p->queue[at];
        size_t n;
        if (p->nodes[from].nullable || (known && p->nodes[from].live == 1)) return from;
        if (n_queue > most || !rvi_rxs_spend(p, 4)) return UINT32_MAX;
        const rvi_rx_step *s = steps_of(p, from, &n);
        for (size_t i = 0; i < n; i++) {
            rvi_rx_node *to = &p->nodes[s[i].to];
            if (to->epoch == epoch || to->live == 2) continue;
            if (!rvi_rx_grow(p, &p->queue, &p->cap_queue, n_queue + 1, MAX_NODES, sizeof *p->queue))
                break;
            to->epoch = epoch;
            to->parent = from;
            p->queue[n_queue++] = s[i].to;
        }
    }
    for (uint32_t i = 0; i < n_queue && !p->status; i++) p->nodes[p->queue[i]].live = 2;
    return UINT32_MAX;
}

/* All states on the way to an end are live. */
bool rvi_rx_live(rvi_rxs *p, rvi_rx a)
{
    if (p->nodes[a].live) return p->nodes[a].live == 1;
    uint32_t found = find_end(p, a, true, MAX_NODES);
    if (p->status) return false;
    for (; found != UINT32_MAX; found = p->nodes[found].parent) p->nodes[found].live = 1;
    return p->nodes[a].live == 1;
}

uint32_t rvi_rx_lead(rvi_rxs *p, rvi_rx a)
{
    enum { MOST = 500 }; /* states */
    size_t n;
    uint32_t found = find_end(p, a, false, MOST), first = 0;
    if (found == UINT32_MAX || found == a || p->status) return UINT32_MAX;
    while (p->nodes[found].parent != a) found = p->nodes[found].parent;
    const rvi_rx_step *s = steps_of(p, a, &n);
    for (size_t i = 0; i < n; first = s[i++].last + 1)
        if (s[i].to == found) { /* a letter or a digit, if there is one */
            static const rvi_rx_range liked[] = {{'a', 'z'}, {'0', '9'}, {'A', 'Z'}};
            for (size_t k = 0; k < RVI_COUNT(liked); k++)
                if (first <= liked[k].last && s[i].last >= liked[k].first)
                    return RVI_MAX(first, liked[k].first);
            return first;
        }
    return UINT32_MAX;
}

/* ---- asking ---- */

static rvi_rx alive(rvi_rxs *p, rvi_rx a)
{
    return p->nodes[a].live == 1 || rvi_rx_live(p, a) ? a : RVI_RX_NONE;
}

/* Where the first part has no text left, the others tell nothing. */
static rvi_rx next_tuple(rvi_rxs *p, rvi_rx a, uint32_t cp)
{
    rvi_rx parts[RVI_RX_MOST_PARTS];
    uint32_t n = p->nodes[a].b, at = p->nodes[a].a;
    for (uint32_t i = 0; i < n && i < RVI_RX_MOST_PARTS; i++)
        parts[i] =
            i > 1 && parts[0] == RVI_RX_NONE ? RVI_RX_NONE : rvi_rx_next(p, p->words[at + i], cp);
    return p->status ? RVI_RX_NONE : rvi_rx_tuple(p, parts, n);
}

rvi_rx rvi_rx_next(rvi_rxs *p, rvi_rx a, uint32_t cp)
{
    size_t n, low = 0;
    if (a <= RVI_RX_ALL) return a == RVI_RX_ALL ? a : RVI_RX_NONE;
    if (p->nodes[a].kind == TUPLE) return next_tuple(p, a, cp);
    const rvi_rx_step *s = steps_of(p, a, &n);
    while (n > 1) { /* the first step whose last is not below cp */
        size_t half = n / 2;
        if (s[low + half - 1].last < cp) low += half;
        n -= half;
    }
    return alive(p, s[low].to);
}

bool rvi_rx_any(rvi_rxs *p, rvi_rx a, uint32_t first, uint32_t last)
{
    size_t n;
    if (a <= RVI_RX_ALL) return a == RVI_RX_ALL;
    if (p->nodes[a].kind == TUPLE)
        return rvi_rx_any(p, rvi_rx_part(p, a, 0), first, last) ||
               rvi_rx_any(p, rvi_rx_part(p, a, 1), first, last);
    for (size_t i = 0; i < (steps_of(p, a, &n), n); i++) {
        const rvi_rx_step *s = steps_of(p, a, &n);
        uint32_t begin = i ? s[i - 1].last + 1 : 0;
        if (begin > last) break;
        if (s[i].last >= first && s[i].to != RVI_RX_NONE && alive(p, s[i].to)) return true;
    }
    return false;
}

bool rvi_rx_matches(rvi_rxs *p, rvi_rx a, const char *utf8, size_t len)
{
    for (size_t i = 0; i < len && a != RVI_RX_NONE;) {
        uint32_t cp;
        i += rvi_utf8_decode(utf8 + i, len - i, &cp, NULL);
        a = rvi_rx_next(p, a, cp);
    }
    return p->nodes[a].nullable;
}

/* ---- what becomes too large ---- */

/* Whether its states may become large: a counted repetition of more than one character, or several
 * conditions at once. Marks what was looked at. */
static bool may_grow(rvi_rxs *p, rvi_rx a, uint32_t epoch, int depth)
{
    while (p->nodes[a].epoch != epoch && depth < MAX_DEPTH) {
        rvi_rx_node *n = &p->nodes[a];
        n->epoch = epoch;
        switch ((kind)n->kind) {
        case REPEAT:
            if (p->nodes[n->a].kind != SET &&
                (n->min > 1 || (n->max > 1 && n->max != RVI_RX_FOREVER)))
                return true;
            a = n->a;
            break;
        case CAT:
            if (may_grow(p, n->a, epoch, depth + 1)) return true;
            a = n->b;
            break;
        case NOT:
        case AND: return true;
        case OR:
            for (uint32_t i = 0; i < n->b; i++)
                if (may_grow(p, p->words[n->a + i], epoch, depth + 1)) return true;
            return false;
        default: return false;
        }
    }
    return false;
}

static uint32_t width(const rvi_rxs *p, rvi_rx a)
{
    const rvi_rx_node *n = &p->nodes[a];
    uint32_t sum = 0;
    if (n->kind == NOT) return width(p, n->a);
    if (n->kind == OR) return n->b;
    if (n->kind != AND) return n->kind != NONE;
    for (uint32_t i = 0; i < n->b; i++) sum += width(p, p->words[n->a + i]);
    return sum;
}

void rvi_rx_try(rvi_rxs *p, rvi_rx a)
{
    enum { STEPS = 300, MOST = 10 << 20 };
    const uint64_t work = p->work, max_work = p->max_work;
    if (p->status || p->tried > max_work || !may_grow(p, a, ++p->epoch, 0)) return;
    p->max_work = RVI_MIN(max_work, work + MOST);
    for (int i = 0; i < STEPS && a != RVI_RX_NONE && !p->status; i++) {
        rvi_rx widest = RVI_RX_NONE;
        uint32_t most = 0;
        size_t n;
        const rvi_rx_step *s = steps_of(p, a, &n);
        for (size_t k = 0; k < n; k++)
            if (s[k].to != a && width(p, s[k].to) > most) {
                widest = s[k].to;
                most = width(p, widest);
            }
        a = alive(p, widest);
    }
    p->tried += p->work - work;
    p->max_work = max_work;
    p->work = work;
}

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a > RVI_RX_FOREVER - b ? RVI_RX_FOREVER : a + b;
}

uint32_t rvi_rx_slack(const rvi_rxs *p, rvi_rx a)
{
    uint32_t sum = 0, most = 0;
    for (int length = 0; length < 64; length++) {
        const rvi_rx_node *n = &p->nodes[a];
        switch ((kind)n->kind) {
        case NONE:
        case EPS:
        case AUTO: return sum;
        case AND:
            for (uint32_t i = 0; i < n->b; i++)
                if (!rvi_rx_outside_few(p, p->words[n->a + i])) return sum;
            return RVI_RX_FOREVER;
        case ALL: return RVI_RX_FOREVER;
        case SET: return plus(sum, n->clears);
        case OR:
            for (uint32_t i = 0; i < n->b; i++)
                most = RVI_MAX(most, rvi_rx_slack(p, p->words[n->a + i]));
            return plus(sum, most);
        case NOT: return rvi_rx_outside_few(p, a) ? RVI_RX_FOREVER : sum;
        case TUPLE: a = p->words[n->a]; break;
        case REPEAT: return p->nodes[n->a].clears ? plus(sum, n->max) : sum;
        case CAT: {
            const rvi_rx_node *head = &p->nodes[n->a];
            if (head->search || p->nodes[n->b].search) return sum;
            if (head->clears)
                sum = plus(sum, 1);
            else if (head->kind == REPEAT && p->nodes[head->a].clears)
                sum = plus(sum, head->max);
            else
                return plus(sum, rvi_rx_slack(p, n->a));
            if (sum == RVI_RX_FOREVER) return sum;
            a = n->b;
        }
        }
    }
    return sum;
}

rvi_rx rvi_rx_near(rvi_rxs *p, rvi_rx a, uint32_t n)
{
    const rvi_rx_node x = p->nodes[a];
    if (x.search || p->status) return a;
    if (x.kind == REPEAT) {
        uint32_t min = RVI_MIN(x.min, n + 1), max = x.max;
        if (max != RVI_RX_FOREVER && max > n) max = RVI_MAX(min, n + 1);
        return rvi_rx_repeat(p, x.a, min, max);
    }
    if (x.kind == CAT) {
        rvi_rx head = rvi_rx_near(p, x.a, n);
        rvi_rx tail = p->nodes[x.b].kind == REPEAT ? rvi_rx_near(p, x.b, n) : x.b;
        return rvi_rx_cat(p, head, tail);
    }
    return a;
}
