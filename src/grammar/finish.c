/* finish.c - a short text that completes one that was begun: best first, byte by byte, over single
 * ways to read it. Where something can be closed, it is. */
#include <stdlib.h>
#include <string.h>

#include "grammar/machine.h"

enum {
    MAX_STEPS = 4096,
    MAX_LENGTH = 8192,
    MAX_WORK = 3 << 19, /* of one search: some 20 milliseconds */
    PLACE_WORDS = sizeof(rvi_place) / sizeof(uint32_t),
};

typedef struct point { /* what was read up to here, and what is still owed at least */
    rvi_place at;
    uint32_t before; /* point + 1; 0: the beginning */
    uint32_t len, cost;
    uint8_t byte;
} point;

typedef struct search {
    rvi_machine *m;
    rvi_bag known; /* places that were met */
    point *points;
    uint32_t n, cap;
    uint32_t *heap; /* points that wait, the cheapest first */
    uint32_t n_heap;
    rvi_places next;
    bool commits; /* a value that is complete is kept: nothing before it is tried another way */
    bool failed;
} search;

static bool cheaper(const search *s, uint32_t a, uint32_t b)
{
    const point *x = &s->points[s->heap[a]], *y = &s->points[s->heap[b]];
    return x->cost < y->cost || (x->cost == y->cost && s->heap[a] < s->heap[b]);
}

static void swap(search *s, uint32_t a, uint32_t b)
{
    uint32_t kept = s->heap[a];
    s->heap[a] = s->heap[b];
    s->heap[b] = kept;
}

static uint32_t take_cheapest(search *s)
{
    uint32_t first = s->heap[0], at = 0;
    s->heap[0] = s->heap[--s->n_heap];
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2; child++)
            if (child < s->n_heap && cheaper(s, child, least)) least = child;
        if (least == at) return first;
        swap(s, at, least);
        at = least;
    }
}

static bool make_room(search *s)
{
    if (s->n < s->cap) return true;
    uint32_t cap = s->cap ? s->cap * 2 : 256;
    point *points = rvi_realloc_array(s->points, cap, sizeof *points);
    if (points) s->points = points;
    uint32_t *heap = rvi_realloc_array(s->heap, cap, sizeof *heap);
    if (heap) s->heap = heap;
    if (points && heap) s->cap = cap;
    return points && heap;
}

static void add(search *s, const rvi_place *at, uint32_t before, uint8_t byte)
{
    uint32_t n_known = s->known.n_rows;
    if (!make_room(s) ||
        !rvi_bag_put(&s->known, (const uint32_t *)(const void *)at, PLACE_WORDS, UINT32_MAX - 1)) {
        s->failed = true;
        return;
    }
    if (s->known.n_rows == n_known) return;
    point *p = &s->points[s->n];
    *p = (point){.at = *at, .before = before, .byte = byte};
    p->len = before ? s->points[before - 1].len + 1 : 0;
    p->cost = p->len + 8 * rvi_machine_owes(s->m, at);
    uint32_t i = s->n_heap++;
    s->heap[i] = s->n++;
    for (; i && cheaper(s, i, (i - 1) / 2); i = (i - 1) / 2) swap(s, i, (i - 1) / 2);
}

/* Tries one byte; was it any good? late: the text began with a key that is not needed. */
static bool try(search *s, uint32_t from, uint8_t byte, bool late)
{
    enum { WORK = 1, WORK_OF_KEY = 16 }; /* beside that of the machine */
    const rvi_place at = s->points[from].at;
    s->next.n = 0;
    if (!rvi_rxs_spend(&s->m->values.rxs, at.kind == RVI_AT_KEY ? WORK_OF_KEY : WORK)) return false;
    if (byte == '"' && !late && !rvi_machine_helps(s->m, &at, true)) return false;
    rvi_machine_step(s->m, &at, byte, &s->next);
    for (size_t i = 0; i < s->next.n; i++)
        if (late || rvi_machine_helps(s->m, &s->next.items[i], false))
            add(s, &s->next.items[i], from + 1, byte);
    return s->next.n > 0;
}

static void expand(search *s, uint32_t from)
{
    const rvi_place_kind kind = (rvi_place_kind)s->points[from].at.kind;
    int lead = rvi_machine_lead(s->m, &s->points[from].at);
    if (lead >= 0 && try(s, from, (uint8_t)lead, false)) return;
    bool found = false;
    bool late = kind == RVI_AT_KEY && !rvi_machine_helps(s->m, &s->points[from].at, false);
    if ((kind == RVI_AT_STRING || late) && try(s, from, '"', late)) return;
    if (kind != RVI_AT_STRING && kind != RVI_AT_KEY && kind != RVI_AT_TERMINAL)
        for (const char *close = "}],"; *close; close++)
            if (try(s, from, (uint8_t)*close, late)) return;
    const uint32_t n = s->n;
    bool quoted = kind == RVI_AT_STRING || kind == RVI_AT_KEY;
    for (int b = 0x21; b < 0x7F; b++)
        if (b != '\\' || !quoted) found = try(s, from, (uint8_t)b, late) || found;
    if (quoted && s->n == n) found = try(s, from, '\\', late) || found; /* only where it must be */
    if (!found) found = try(s, from, ' ', late);
    for (int b = 0; b < 256 && !found; b++) found = try(s, from, (uint8_t)b, late);
}

static bool write_text(const search *s, uint32_t last, rvi_buf *out)
{
    size_t len = s->points[last].len, from = out->len;
    for (size_t i = 0; i < len; i++) rvi_buf_putc(out, 0);
    if (out->failed) return false;
    for (uint32_t p = last; s->points[p].before; p = s->points[p].before - 1)
        out->data[from + --len] = (char)s->points[p].byte;
    return true;
}

static bool look(search *s, const rvi_place *places, size_t n, rvi_buf *out)
{
    const rvi_rxs *rxs = &s->m->values.rxs;
    const uint64_t most = rxs->work + MAX_WORK;
    bool found = false;
    s->n = s->n_heap = 0;
    for (size_t i = 0; i < n; i++) add(s, &places[i], 0, 0);
    for (int step = 0; step < MAX_STEPS && s->n_heap && !found && !s->failed; step++) {
        if (rxs->work > most) break;
        uint32_t at = take_cheapest(s);
        const rvi_place place = s->points[at].at;
        if (s->commits && s->points[at].len < MAX_LENGTH &&
            (place.kind == RVI_AT_AFTER || place.kind == RVI_AT_KEY_QUOTE)) {
            s->n_heap = 0;
            step = 0;
        }
        if (rvi_machine_ends(s->m, &place))
            found = write_text(s, at, out);
        else
            expand(s, at);
    }
    return found;
}

/* First member by member, which is quick however many are required; where that leads nowhere, among
 * all ways. */
bool rvi_machine_finish(rvi_machine *m, const rvi_place *places, size_t n, rvi_buf *out)
{
    bool found = false;
    for (int commits = 1; commits >= 0 && !found; commits--) {
        search s = {.m = m, .commits = commits};
        found = look(&s, places, n, out);
        rvi_bag_deinit(&s.known);
        rvi_places_deinit(&s.next);
        rvi_free(s.points);
        rvi_free(s.heap);
    }
    return found;
}
