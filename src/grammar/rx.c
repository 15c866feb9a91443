#include "grammar/rx_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void rvi_rxs_fail(rvi_rxs *p, rv_status status, const char *why)
{
    if (p->status) return;
    p->status = status;
    p->why = why;
}

rv_status rvi_rxs_check(const rvi_rxs *p, const char *where, rv_error *err)
{
    if (!p->status) return RV_OK;
    if (p->status == RV_E_NOMEM) return rvi_nomem(err, "grammar");
    if (!where) return rvi_error(err, p->status, "%s", p->why);
    return rvi_error(err, p->status, "%s: %s", where, p->why);
}

bool rvi_rxs_spend(rvi_rxs *p, uint64_t n)
{
    p->work += n;
    if (p->work > p->max_work)
        rvi_rxs_fail(p, RV_E_TOO_LONG,
                     "too much work: very many conditions, or texts that can be read in too many "
                     "ways (repetitions inside each other?)");
    return !p->status;
}

void rvi_rxs_forgive(rvi_rxs *p, uint64_t n)
{
    p->work -= RVI_MIN(p->work, n);
}

void rvi_rxs_no_room(rvi_rxs *p, const rvi_arena *a, size_t count, size_t size)
{
    bool full = a->max && count > (a->max - RVI_MIN(a->used, a->max)) / size;
    rvi_rxs_fail(p, full ? RV_E_TOO_LONG : RV_E_NOMEM, "the schema needs too much memory");
}

bool rvi_rx_grow(rvi_rxs *p, void *array, uint32_t *cap, uint32_t need, uint32_t most, size_t size)
{
    void **at = array;
    if (need <= *cap) return true;
    uint32_t larger = *cap ? *cap : 256;
    if (need > most) {
        rvi_rxs_fail(p, RV_E_TOO_LONG, "the grammar needs too many states");
        return false;
    }
    while (larger < need) larger *= 2;
    void *grown = rvi_realloc_array(*at, larger, size);
    if (!grown) {
        rvi_rxs_fail(p, RV_E_NOMEM, "");
        return false;
    }
    *at = grown;
    *cap = larger;
    return true;
}

static uint32_t mix(uint32_t h, uint32_t v)
{
    h ^= v + 0x9E3779B9u + (h << 6) + (h >> 2);
    return h * 0x85EBCA6Bu;
}

static bool has_words(const rvi_rx_node *n)
{
    return n->kind == SET || n->kind == OR || n->kind == AND || n->kind == TUPLE;
}

static uint32_t hash_of(const rvi_rx_node *n, const uint32_t *words)
{
    uint32_t h = mix(n->kind, n->b);
    if (has_words(n))
        for (uint32_t i = 0; i < n->b; i++) h = mix(h, words[i]);
    else
        h = mix(mix(mix(h, n->a), n->min), n->max);
    return h ^ h >> 15;
}

static bool same(const rvi_rxs *p, const rvi_rx_node *x, const rvi_rx_node *n,
                 const uint32_t *words)
{
    if (x->kind != n->kind || x->b != n->b) return false;
    if (has_words(n)) return !memcmp(p->words + x->a, words, n->b * sizeof *words);
    return x->a == n->a && x->min == n->min && x->max == n->max;
}

static bool rehash(rvi_rxs *p)
{
    uint32_t size = p->table_mask ? (p->table_mask + 1) * 2 : 512;
    uint32_t *table = rvi_zalloc_array(size, sizeof *table);
    if (!table) {
        rvi_rxs_fail(p, RV_E_NOMEM, "");
        return false;
    }
    rvi_free(p->table);
    p->table = table;
    p->table_mask = size - 1;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        uint32_t at = hash_of(&p->nodes[i], p->words + p->nodes[i].a) & p->table_mask;
        while (table[at]) at = (at + 1) & p->table_mask;
        table[at] = i + 1;
    }
    return true;
}

/* The node equal to n, whose words (if it has any) are not in the pool yet. */
static rvi_rx intern(rvi_rxs *p, rvi_rx_node n, const uint32_t *words)
{
    if (p->status) return RVI_RX_NONE;
    if ((p->n_nodes + 1) * 2 > p->table_mask && !rehash(p)) return RVI_RX_NONE;
    uint32_t at = hash_of(&n, words) & p->table_mask;
    for (; p->table[at]; at = (at + 1) & p->table_mask)
        if (same(p, &p->nodes[p->table[at] - 1], &n, words)) return p->table[at] - 1;
    if (!rvi_rx_grow(p, &p->nodes, &p->cap_nodes, p->n_nodes + 1, MAX_NODES, sizeof *p->nodes))
        return RVI_RX_NONE;
    if (has_words(&n)) {
        if (!rvi_rx_grow(p, &p->words, &p->cap_words, p->n_words + n.b, MAX_WORDS,
                         sizeof *p->words))
            return RVI_RX_NONE;
        n.a = p->n_words;
        memcpy(p->words + p->n_words, words, n.b * sizeof *words);
        p->n_words += n.b;
    }
    if (!n.search) n.live = n.kind == NONE ? 2 : 1;
    p->nodes[p->n_nodes] = n;
    p->table[at] = p->n_nodes + 1;
    return p->n_nodes++;
}

rv_status rvi_rxs_init(rvi_rxs *p, uint64_t max_work, rv_error *err)
{
    static const rvi_rx_range any[] = {{0, 0xD7FF}, {0xE000, RVI_RX_LAST}};
    *p = (rvi_rxs){.max_work = max_work};
    intern(p, (rvi_rx_node){.kind = NONE}, NULL);
    intern(p, (rvi_rx_node){.kind = EPS, .nullable = true}, NULL);
    intern(p, (rvi_rx_node){.kind = ALL, .nullable = true}, NULL);
    rvi_rx_set(p, any, 2);
    return rvi_rxs_check(p, "grammar", err);
}

void rvi_rxs_deinit(rvi_rxs *p)
{
    rvi_free(p->nodes);
    rvi_free(p->table);
    rvi_free(p->words);
    rvi_free(p->steps);
    rvi_free(p->autos);
    rvi_free(p->queue);
    rvi_free(p->scratch);
    *p = (rvi_rxs){0};
}

/* ---- making expressions ---- */

static int by_first(const void *a, const void *b)
{
    const rvi_rx_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Whether the sorted ranges hold every plain character: see rvi_rx_slack. */
static bool holds_plain(const rvi_rx_range *r, size_t n)
{
    static const rvi_rx_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x2027}, {0x202A, 0xD7FF}, {0xE000, RVI_RX_LAST}};
    for (size_t i = 0, k = 0; i < RVI_COUNT(plain); i++) {
        while (k < n && r[k].last < plain[i].last) k++;
        if (k == n || r[k].first > plain[i].first) return false;
    }
    return true;
}

rvi_rx rvi_rx_set(rvi_rxs *p, const rvi_rx_range *ranges, size_t n)
{
    rvi_rx_range few[64], *r = few;
    if (!n || p->status) return RVI_RX_NONE;
    if (n > RVI_COUNT(few) && !(r = rvi_alloc_array(n, sizeof *r))) {
        rvi_rxs_fail(p, RV_E_NOMEM, "");
        return RVI_RX_NONE;
    }
    memcpy(r, ranges, n * sizeof *r);
    qsort(r, n, sizeof *r, by_first);
    size_t k = 0;
    for (size_t i = 1; i < n; i++) {
        if (r[i].first <= r[k].last + 1)
            r[k].last = RVI_MAX(r[k].last, r[i].last);
        else
            r[++k] = r[i];
    }
    n = k + 1;
    rvi_rx_node node = {.kind = SET, .b = (uint32_t)(2 * n), .clears = holds_plain(r, n)};
    rvi_rx out = intern(p, node, (const uint32_t *)r);
    if (r != few) rvi_free(r);
    return out;
}

rvi_rx rvi_rx_one(rvi_rxs *p, uint32_t cp)
{
    return rvi_rx_set(p, &(rvi_rx_range){cp, cp}, 1);
}

rvi_rx rvi_rx_literal(rvi_rxs *p, const char *utf8, size_t len)
{
    rvi_rx out = RVI_RX_EPS;
    while (len && !p->status) { /* from the end, so that nothing is made twice */
        size_t start = len - 1;
        uint32_t cp;
        while (start && len - start < 4 && ((unsigned char)utf8[start] & 0xC0) == 0x80) start--;
        rvi_utf8_decode(utf8 + start, len - start, &cp, NULL);
        out = rvi_rx_cat(p, rvi_rx_one(p, cp), out);
        len = start;
    }
    return out;
}

rvi_rx rvi_rx_cat(rvi_rxs *p, rvi_rx a, rvi_rx b)
{
    if (a == RVI_RX_NONE || b == RVI_RX_NONE) return RVI_RX_NONE;
    if (a == RVI_RX_EPS) return b;
    if (b == RVI_RX_EPS || (a == RVI_RX_ALL && b == RVI_RX_ALL)) return a;
    const rvi_rx_node *x = &p->nodes[a], *y = &p->nodes[b];
    if (x->kind == CAT) {
        if (x->length > MAX_IN_A_ROW) {
            rvi_rxs_fail(p, RV_E_TOO_LONG, "the expression is too long");
            return RVI_RX_NONE;
        }
        rvi_rx head = x->a, tail = x->b;
        return rvi_rx_cat(p, head, rvi_rx_cat(p, tail, b));
    }
    if (a == RVI_RX_ALL && y->kind == CAT && y->a == RVI_RX_ALL) return b;
    rvi_rx_node n = {.kind = CAT, .a = a, .b = b, .length = y->kind == CAT ? y->length + 1 : 2};
    n.nullable = x->nullable && y->nullable;
    n.search = x->search || y->search;
    return intern(p, n, NULL);
}

int rvi_rx_by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool list_add(rvi_rxs *p, rx_list *l, rvi_rx v)
{
    if (!l->items) {
        l->items = l->few;
        l->cap = RVI_COUNT(l->few);
    }
    if (l->n == l->cap) {
        uint32_t *more = rvi_alloc_array(l->cap * 2, sizeof *more);
        if (!more) {
            rvi_rxs_fail(p, RV_E_NOMEM, "");
            return false;
        }
        memcpy(more, l->items, l->n * sizeof *more);
        if (l->items != l->few) rvi_free(l->items);
        l->items = more;
        l->cap *= 2;
    }
    l->items[l->n++] = v;
    return true;
}

void rvi_rx_list_free(rx_list *l)
{
    if (l->items != l->few) rvi_free(l->items);
}

void rvi_rx_list_flatten(rvi_rxs *p, rx_list *l, kind k, rvi_rx v)
{
    if (p->nodes[v].kind != k) {
        list_add(p, l, v);
        return;
    }
    for (uint32_t i = 0; i < p->nodes[v].b && !p->status; i++)
        list_add(p, l, p->words[p->nodes[v].a + i]);
}

/* Sets of a union become one set. */
static void join_sets(rvi_rxs *p, rx_list *l)
{
    size_t n_sets = 0, n_words = 0, k = 0;
    for (size_t i = 0; i < l->n; i++)
        if (p->nodes[l->items[i]].kind == SET) {
            n_sets++;
            n_words += p->nodes[l->items[i]].b;
        }
    if (n_sets < 2) return;
    uint32_t *words = rvi_alloc_array(n_words, sizeof *words);
    if (!words) {
        rvi_rxs_fail(p, RV_E_NOMEM, "");
        return;
    }
    n_words = 0;
    for (size_t i = 0; i < l->n; i++) {
        const rvi_rx_node *n = &p->nodes[l->items[i]];
        if (n->kind == SET) {
            memcpy(words + n_words, p->words + n->a, n->b * sizeof *words);
            n_words += n->b;
        } else {
            l->items[k++] = l->items[i];
        }
    }
    l->items[k++] = rvi_rx_set(p, (const rvi_rx_range *)(const void *)words, n_words / 2);
    l->n = k;
    rvi_free(words);
}

/* Sorts, drops what is there twice and what changes nothing. */
static void tidy(rx_list *l, rvi_rx neutral)
{
    size_t k = 0;
    qsort(l->items, l->n, sizeof *l->items, rvi_rx_by_number);
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i] != neutral && (!k || l->items[i] != l->items[k - 1]))
            l->items[k++] = l->items[i];
    l->n = k;
}

/* Of a tidy list. */
static bool list_has(const rx_list *l, rvi_rx v)
{
    return bsearch(&v, l->items, l->n, sizeof v, rvi_rx_by_number) != NULL;
}

/* For unions and intersections of a tidy list: x and not x. */
static bool contradicts(const rvi_rxs *p, const rx_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (p->nodes[l->items[i]].kind == NOT && list_has(l, p->nodes[l->items[i]].a)) return true;
    return false;
}

bool rvi_rx_outside_few(const rvi_rxs *p, rvi_rx a)
{
    const rvi_rx_node *n = &p->nodes[a];
    if (n->kind != NOT) return false;
    n = &p->nodes[n->a];
    return n->kind == AUTO && p->autos[n->a].finite;
}

rvi_rx rvi_rx_combine(rvi_rxs *p, kind k, rx_list *l)
{
    enum { MANY = 4 }; /* fewer stay as they are */
    rvi_rx neutral = k == OR ? RVI_RX_NONE : RVI_RX_ALL, zero = k == OR ? RVI_RX_ALL : RVI_RX_NONE;
    if (k == OR) join_sets(p, l);
    if (p->status || !rvi_rxs_spend(p, 3 * l->n)) return RVI_RX_NONE;
    tidy(l, neutral);
    if (k == OR && l->n >= MANY) {
        rvi_rx_join_counters(p, l);
        tidy(l, neutral);
    }
    if (p->status) return RVI_RX_NONE;
    if (!l->n) return neutral;
    if (list_has(l, zero) || contradicts(p, l)) return zero;
    if (l->n == 1) return l->items[0];
    rvi_rx_node n = {.kind = (uint8_t)k, .b = (uint32_t)l->n, .nullable = k == AND};
    for (size_t i = 0; i < l->n; i++) {
        const rvi_rx_node *x = &p->nodes[l->items[i]];
        n.search = n.search || x->search || (k == AND && !rvi_rx_outside_few(p, l->items[i]));
        n.nullable = k == OR ? n.nullable || x->nullable : n.nullable && x->nullable;
        n.clears = n.clears || (k == OR && x->clears);
    }
    return intern(p, n, l->items);
}

rvi_rx rvi_rx_or_all(rvi_rxs *p, rvi_rx *list, size_t n)
{
    rx_list l = {0};
    if (p->status) return RVI_RX_NONE;
    for (size_t i = 0; i < n; i++) rvi_rx_list_flatten(p, &l, OR, list[i]);
    rvi_rx out = l.n ? rvi_rx_combine(p, OR, &l) : RVI_RX_NONE;
    rvi_rx_list_free(&l);
    return out;
}

rvi_rx rvi_rx_or(rvi_rxs *p, rvi_rx a, rvi_rx b)
{
    if (a == b || b == RVI_RX_NONE) return a;
    return rvi_rx_or_all(p, (rvi_rx[]){a, b}, 2);
}

static rvi_rx and_all(rvi_rxs *p, const rvi_rx *list, size_t n)
{
    rx_list l = {0};
    if (p->status) return RVI_RX_NONE;
    for (size_t i = 0; i < n; i++) rvi_rx_list_flatten(p, &l, AND, list[i]);
    rvi_rx out = rvi_rx_combine(p, AND, &l);
    rvi_rx_list_free(&l);
    return out;
}

rvi_rx rvi_rx_and(rvi_rxs *p, rvi_rx a, rvi_rx b)
{
    if (a == b || b == RVI_RX_ALL) return a;
    if (a == RVI_RX_ALL) return b;
    if (a == RVI_RX_NONE || b == RVI_RX_NONE) return RVI_RX_NONE;
    return and_all(p, (rvi_rx[]){a, b}, 2);
}

rvi_rx rvi_rx_not(rvi_rxs *p, rvi_rx a)
{
    if (p->status) return RVI_RX_NONE;
    if (a == RVI_RX_NONE) return RVI_RX_ALL;
    if (a == RVI_RX_ALL) return RVI_RX_NONE;
    if (p->nodes[a].kind == NOT) return p->nodes[a].a;
    rvi_rx_node n = {.kind = NOT, .a = a, .nullable = !p->nodes[a].nullable, .search = true};
    /* what is outside a few texts can always be reached */
    n.search = !(p->nodes[a].kind == AUTO && p->autos[p->nodes[a].a].finite);
    return intern(p, n, NULL);
}

/* A repetition of a repetition is one, if every count between the least and the largest can be
 * reached: (x{1,3}){2,4} is x{2,12}, but (x{3}){1,2} is x three or six times. */
static bool fold(const rvi_rx_node *inner, uint32_t *min, uint32_t *max)
{
    enum { MOST = 1 << 30 };
    const uint64_t p = inner->min, q = inner->max, m = *min, n = *max;
    if (m != n && (q == RVI_RX_FOREVER ? !m && p > 1 : m * (q - p) + 1 < p)) return false;
    bool forever = q == RVI_RX_FOREVER || n == RVI_RX_FOREVER;
    if (m * p > MOST || (!forever && n * q > MOST)) return false;
    *min = (uint32_t)(m * p);
    *max = forever ? RVI_RX_FOREVER : (uint32_t)(n * q);
    return true;
}

rvi_rx rvi_rx_repeat(rvi_rxs *p, rvi_rx a, uint32_t min, uint32_t max)
{
    if (p->status || min > max) return RVI_RX_NONE;
    if (max == 0 || a == RVI_RX_EPS) return RVI_RX_EPS;
    if (a == RVI_RX_NONE) return min ? RVI_RX_NONE : RVI_RX_EPS;
    if (a == RVI_RX_ALL) return a;
    if (min == 1 && max == 1) return a;
    if (p->nodes[a].nullable) min = 0;
    if (p->nodes[a].kind == REPEAT && fold(&p->nodes[a], &min, &max)) a = p->nodes[a].a;
    if (min == 1 && max == 1) return a;
    if (a == RVI_RX_CHAR && !min && max == RVI_RX_FOREVER) return RVI_RX_ALL;
    rvi_rx_node n = {.kind = REPEAT, .a = a, .min = min, .max = max, .nullable = !min};
    n.search = p->nodes[a].search && min;
    return intern(p, n, NULL);
}

rvi_rx rvi_rx_auto_at(rvi_rxs *p, uint32_t which, uint32_t state)
{
    const rvi_rx_auto *a = &p->autos[which];
    rvi_rx_node n = {.kind = AUTO, .a = which, .b = state, .nullable = a->ends(a->self, state)};
    n.search = !a->lives;
    return intern(p, n, NULL);
}

rvi_rx rvi_rx_automaton(rvi_rxs *p, const rvi_rx_auto *a, uint32_t state)
{
    enum { MOST = 1 << 18 };
    if (!rvi_rx_grow(p, &p->autos, &p->cap_autos, p->n_autos + 1, MOST, sizeof *p->autos))
        return RVI_RX_NONE;
    p->autos[p->n_autos++] = *a;
    return rvi_rx_auto_at(p, p->n_autos - 1, state);
}

rvi_rx rvi_rx_tuple(rvi_rxs *p, const rvi_rx *list, size_t n)
{
    rvi_rx_node node = {.kind = TUPLE, .b = (uint32_t)n};
    if (list[0] == RVI_RX_NONE && list[1] == RVI_RX_NONE) return RVI_RX_NONE;
    node.nullable = p->nodes[list[0]].nullable || p->nodes[list[1]].nullable;
    return intern(p, node, list);
}

rvi_rx rvi_rx_part(const rvi_rxs *p, rvi_rx tuple, size_t index)
{
    const rvi_rx_node *n = &p->nodes[tuple];
    return n->kind == TUPLE ? p->words[n->a + index] : RVI_RX_NONE;
}

rvi_rx rvi_rx_only(rvi_rxs *p, rvi_rx tuple, size_t index)
{
    rvi_rx parts[RVI_RX_MOST_PARTS] = {0};
    const rvi_rx_node *n = &p->nodes[tuple];
    if (n->kind != TUPLE || p->status) return RVI_RX_NONE;
    for (uint32_t i = 0; i < n->b && i < RVI_RX_MOST_PARTS; i++)
        if (index ? i == 1 : i != 1) parts[i] = p->words[n->a + i];
    return rvi_rx_tuple(p, parts, n->b);
}

const rvi_rx_auto *rvi_rx_auto_of(const rvi_rxs *p, rvi_rx a)
{
    return p->nodes[a].kind == AUTO ? &p->autos[p->nodes[a].a] : NULL;
}

uint32_t rvi_rx_auto_state(const rvi_rxs *p, rvi_rx a)
{
    return p->nodes[a].kind == AUTO ? p->nodes[a].b : UINT32_MAX;
}

bool rvi_rx_universal(const rvi_rxs *p, rvi_rx a)
{
    const rvi_rx_node *n = &p->nodes[a];
    if (n->kind != TUPLE) return a == RVI_RX_ALL;
    for (uint32_t i = 1; i < n->b; i++)
        if (p->words[n->a + i] != RVI_RX_NONE) return false;
    return p->words[n->a] == RVI_RX_ALL;
}

bool rvi_rx_nullable(const rvi_rxs *p, rvi_rx a)
{
    return p->nodes[a].nullable;
}
