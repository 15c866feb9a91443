#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/lark.h"
#include "grammar/machine.h"
#include "grammar/rx_parse.h"

enum { MOST_LISTED = 256 << 20 }; /* bytes of a JSON list of choices, as it is read */

enum {
    MAX_STATES = 1 << 20,
    MAX_SOURCE = 64 << 20, /* bytes, of schemas */
    MASK_BYTES = 64 << 20, /* kept, of masks */
    LEX_BYTES = 128 << 20, /* kept, of masks of lexer states */
    PLACE_WORDS = sizeof(rvi_place) / sizeof(uint32_t),
    WORK_AT_ONCE = 6 << 20, /* and what a vocabulary asks, while a text is read: some 0.1 s */
    WORK_TO_FINISH = 16 << 20,
    /* what may always be done, however long the text is: some milliseconds a mask */
    WORK_A_BYTE = 1 << 12,
    WORK_A_MASK = 1 << 18,
    WORK_A_TOKEN = 32, /* of a mask */
    WORK_FORCED = 1 << 20,
};

struct rvi_grammar {
    rvi_machine m;
    const rvi_vocab *vocab;
    rvi_arena source; /* of the schema: names and numbers point into it */
    uint32_t start;
    rvi_bag states;   /* rows of places */
    uint64_t **masks; /* by state */
    uint32_t cap_masks;
    uint32_t *kept; /* states whose mask is kept, a ring */
    uint32_t n_kept, oldest, cap_kept;
    rvi_lex_mask **lex_masks[RVI_N_TRIES]; /* of each trie, by lexer state */
    uint32_t cap_lex[RVI_N_TRIES];
    size_t lex_bytes;     /* of them all */
    rvi_places places[3]; /* scratch */
};

static void drop_lex_masks(rvi_grammar *g)
{
    for (int t = 0; t < RVI_N_TRIES; t++)
        for (uint32_t i = 0; i < g->cap_lex[t]; i++)
            if (g->lex_masks[t][i]) {
                rvi_lex_mask_deinit(g->lex_masks[t][i]);
                rvi_free(g->lex_masks[t][i]);
                g->lex_masks[t][i] = NULL;
            }
    g->lex_bytes = 0;
}

void rvi_grammar_free(rvi_grammar *g)
{
    if (!g) return;
    for (uint32_t i = 0; i < g->cap_masks; i++) rvi_free(g->masks[i]);
    drop_lex_masks(g);
    for (size_t i = 0; i < RVI_COUNT(g->places); i++) rvi_places_deinit(&g->places[i]);
    rvi_free(g->masks);
    rvi_free(g->kept);
    for (int t = 0; t < RVI_N_TRIES; t++) rvi_free(g->lex_masks[t]);
    rvi_bag_deinit(&g->states);
    rvi_machine_deinit(&g->m);
    rvi_arena_deinit(&g->source);
    rvi_free(g);
}

/* ---- states ---- */

static uint32_t state_of(rvi_grammar *g, rvi_places *p)
{
    rvi_places_tidy(p);
    if (!p->n || g->m.values.rxs.status) return 0;
    uint32_t state = rvi_bag_put(&g->states, (const uint32_t *)(const void *)p->items,
                                 p->n * PLACE_WORDS, MAX_STATES);
    if (!state)
        rvi_rxs_fail(&g->m.values.rxs, g->states.n_rows >= MAX_STATES ? RV_E_TOO_LONG : RV_E_NOMEM,
                     "the text has too many states");
    return state;
}

/* Copied, because the bag may move. */
static void places_of(rvi_grammar *g, uint32_t state, rvi_places *out)
{
    size_t n;
    const uint32_t *words = rvi_bag_get(&g->states, state, &n);
    out->n = 0;
    for (size_t i = 0; i < n / PLACE_WORDS; i++) {
        rvi_place at;
        memcpy(&at, words + i * PLACE_WORDS, sizeof at);
        rvi_places_add(&g->m, out, at);
    }
}

uint32_t rvi_grammar_start(const rvi_grammar *g)
{
    return g->start;
}

static rv_status advance(rvi_grammar *g, uint32_t state, const uint8_t *bytes, size_t len,
                         uint32_t *next, rv_error *err)
{
    *next = 0;
    if (!state) return RV_OK;
    rvi_places *now = &g->places[0], *then = &g->places[1];
    places_of(g, state, now);
    for (size_t i = 0; i < len && now->n; i++) {
        then->n = 0;
        rvi_rxs_forgive(&g->m.values.rxs, WORK_A_BYTE);
        for (size_t k = 0; k < now->n; k++) rvi_machine_step(&g->m, &now->items[k], bytes[i], then);
        rvi_places_tidy(then);
        rvi_places *swap = now;
        now = then;
        then = swap;
    }
    *next = state_of(g, now);
    return rvi_machine_check(&g->m, err);
}

rv_status rvi_grammar_token(rvi_grammar *g, uint32_t state, int32_t token, uint32_t *next,
                            rv_error *err)
{
    const rvi_vocab *v = g->vocab;
    *next = 0;
    if (token < 0 || token >= v->n_tokens || !v->bytes[token]) return RV_OK;
    return advance(g, state, v->bytes[token], v->lens[token], next, err);
}

const rvi_vocab *rvi_grammar_vocab(const rvi_grammar *g)
{
    return g->vocab;
}

size_t rvi_grammar_mask_words(const rvi_grammar *g)
{
    return g->vocab->n_words;
}

bool rvi_grammar_ends(rvi_grammar *g, uint32_t state)
{
    bool ends = false;
    if (!state) return false;
    places_of(g, state, &g->places[0]);
    for (size_t i = 0; i < g->places[0].n && !ends; i++)
        ends = rvi_machine_ends(&g->m, &g->places[0].items[i]);
    return ends;
}

bool rvi_grammar_thinks(rvi_grammar *g, uint32_t state)
{
    bool thinks = state != 0;
    places_of(g, state, &g->places[0]);
    for (size_t i = 0; i < g->places[0].n && thinks; i++)
        thinks = rvi_machine_thinks(&g->m, &g->places[0].items[i]);
    return thinks;
}

rv_status rvi_grammar_text(rvi_grammar *g, uint32_t state, const char *text, size_t len,
                           uint32_t *next, rv_error *err)
{
    return advance(g, state, (const uint8_t *)text, len, next, err);
}

bool rvi_grammar_knows(const rvi_grammar *g, uint32_t state)
{
    return state <= g->states.n_rows;
}

/* ---- masks ---- */

/* What the lexer does from a state with the tokens of a trie, whatever stands around it; counters
 * far from their limits make no difference. Valid until the next call. NULL: failed. */
static const rvi_lex_mask *lex_mask(rvi_grammar *g, uint32_t lex, int which)
{
    const rvi_vocab *v = g->vocab;
    rvi_lexer *l = &g->m.lexer;
    rvi_lex_state s = l->states[lex];
    uint32_t longest = which == RVI_PLAIN ? v->longest_plain : v->longest_mixed;
    if (!s.pending)
        lex = rvi_lex_start(l, rvi_rx_near(l->rxs, s.rx, longest), (rvi_lex_mode)s.mode);
    if (!lex) return NULL;
    if (lex >= g->cap_lex[which]) {
        uint32_t cap = RVI_MAX(g->cap_lex[which] * 2, lex + 32);
        rvi_lex_mask **more = rvi_realloc_array(g->lex_masks[which], cap, sizeof *more);
        if (!more) return NULL;
        memset(more + g->cap_lex[which], 0, (cap - g->cap_lex[which]) * sizeof *more);
        g->lex_masks[which] = more;
        g->cap_lex[which] = cap;
    }
    rvi_lex_mask **at = &g->lex_masks[which][lex];
    if (*at) return *at;
    if (g->lex_bytes > LEX_BYTES) drop_lex_masks(g);
    rvi_lex_mask *made = rvi_zalloc(sizeof *made);
    if (!made || !rvi_lex_mask_make(v, l, lex, which, made)) {
        rvi_free(made);
        return NULL;
    }
    g->lex_bytes += 2 * v->n_words * sizeof(uint64_t) + made->n_exits * sizeof *made->exits;
    return *at = made;
}

/* Where a token can be read in several ways, each is followed by itself, which is fast; but where
 * such places are inside each other, all ways are followed together, or there would be
 * exponentially many. */
enum { MAX_WAYS = 6 };

typedef struct painter {
    rvi_grammar *g;
    uint64_t *mask;
    size_t n_ways; /* that are followed by themselves here */
} painter;

static void walk(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                 const rvi_place *at);

/* Below a node, inside a string: the lexer alone leads, but for the quote that ends it. */
static void walk_string(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                        const rvi_place *at)
{
    rvi_lexer *l = &w->g->m.lexer;
    uint32_t states[RVI_VOCAB_LONGEST + 2], base = t->depth[from] - 1u;
    const rvi_place after = {.frame = at->frame, .kind = RVI_AT_AFTER};
    states[base] = at->arg;
    for (uint32_t i = from; i < to;) {
        uint32_t next = rvi_lex_fast(l, states[t->depth[i] - 1], t->byte[i]);
        if (next != RVI_LEX_DEAD && t->token[i] >= 0)
            rvi_vocab_allow(w->g->vocab, w->mask, t->token[i]);
        if (next >= RVI_LEX_FIRST) {
            states[t->depth[i]] = next;
            i++;
            continue;
        }
        if (next == RVI_LEX_EXIT) walk(w, t, i + 1, t->end[i], &after);
        i = t->end[i];
    }
}

static void walk_terminal(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                          const rvi_place *at);

/* The nodes from..to, which follow any of these places. */
static void walk_together(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                          const rvi_places *at)
{
    rvi_place few[8];
    rvi_places next = {few, 0, RVI_COUNT(few), true};
    for (uint32_t i = from; i < to; i = t->end[i]) {
        next.n = 0;
        for (size_t k = 0; k < at->n; k++)
            rvi_machine_step(&w->g->m, &at->items[k], t->byte[i], &next);
        rvi_places_tidy(&next);
        if (!next.n) continue;
        if (t->token[i] >= 0) rvi_vocab_allow(w->g->vocab, w->mask, t->token[i]);
        walk_together(w, t, i + 1, t->end[i], &next);
    }
    rvi_places_deinit(&next);
}

static void walk_each(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                      const rvi_places *at, size_t beside)
{
    size_t ways = w->n_ways;
    w->n_ways *= at->n + beside;
    if (at->n > 1 && w->n_ways > MAX_WAYS)
        walk_together(w, t, from, to, at);
    else
        for (size_t k = 0; k < at->n; k++) walk(w, t, from, to, &at->items[k]);
    w->n_ways = ways;
}

/* The nodes from..to, which follow a place. */
static void walk(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                 const rvi_place *at)
{
    if (from >= to) return;
    if (at->kind == RVI_AT_STRING && !rvi_machine_tells_apart(&w->g->m, at)) {
        walk_string(w, t, from, to, at);
        return;
    }
    if (at->kind == RVI_AT_TERMINAL) {
        walk_terminal(w, t, from, to, at);
        return;
    }
    rvi_place few[8];
    rvi_places next = {few, 0, RVI_COUNT(few), true};
    for (uint32_t i = from; i < to; i = t->end[i]) {
        next.n = 0;
        rvi_machine_step(&w->g->m, at, t->byte[i], &next);
        if (!next.n) continue;
        if (t->token[i] >= 0) rvi_vocab_allow(w->g->vocab, w->mask, t->token[i]);
        walk_each(w, t, i + 1, t->end[i], &next, 0);
    }
    rvi_places_deinit(&next);
}

static void add_words(painter *w, const uint64_t *from)
{
    for (size_t i = 0; i < w->g->vocab->n_words; i++) w->mask[i] |= from[i];
}

/* The bytes of the tokens below a node, before the node's own. */
static const uint8_t *bytes_before(const rvi_vocab *v, const rvi_vocab_trie *t, uint32_t node,
                                   size_t *len)
{
    *len = t->depth[node] - 1u;
    while (t->token[node] < 0) node++;
    return v->bytes[t->token[node]];
}

/* The places behind the quote at a node, read byte by byte from a place. */
static void read_to(rvi_grammar *g, const rvi_vocab_trie *t, uint32_t node, const rvi_place *at,
                    rvi_places *out)
{
    size_t len;
    const uint8_t *bytes = bytes_before(g->vocab, t, node, &len);
    rvi_places now = {0};
    rvi_places_add(&g->m, &now, *at);
    for (size_t i = 0; i <= len && now.n; i++) {
        rvi_places next = {0};
        for (size_t k = 0; k < now.n; k++) rvi_machine_step(&g->m, &now.items[k], bytes[i], &next);
        rvi_places_deinit(&now);
        now = next;
    }
    for (size_t k = 0; k < now.n; k++) rvi_places_add(&g->m, out, now.items[k]);
    rvi_places_deinit(&now);
}

/* The places behind an exit are the same for all exits of a string, and for those of a key that
 * have the same lexer state. */
static bool paint_quoted(painter *w, const rvi_place *at)
{
    rvi_grammar *g = w->g;
    const rvi_lex_state *from = &g->m.lexer.states[at->arg];
    bool alike =
        !from->pending && !g->m.lexer.canonical && rvi_rx_universal(&g->m.values.rxs, from->rx);
    bool apart = rvi_machine_tells_apart(&g->m, at);
    const rvi_vocab_trie *t = &g->vocab->tries[RVI_MIXED];
    rvi_places behind = {0};
    uint32_t last = UINT32_MAX;
    const rvi_lex_mask *m = alike ? NULL : lex_mask(g, at->arg, RVI_PLAIN);
    if (!m && !alike) return false;
    add_words(w, m ? m->inside : g->vocab->plain);
    m = alike ? &g->vocab->free_string : lex_mask(g, at->arg, RVI_MIXED);
    if (!m) return false;
    add_words(w, m->inside);
    if (at->kind == RVI_AT_STRING) add_words(w, m->closing);
    for (size_t i = 0; i < m->n_exits; i++) {
        uint32_t node = m->exits[i].node;
        uint32_t state = alike || at->kind == RVI_AT_STRING ? at->arg : m->exits[i].state;
        if (at->kind == RVI_AT_STRING && t->end[node] == node + 1) continue;
        if (apart || state != last) behind.n = 0;
        if (apart)
            read_to(g, t, node, at, &behind);
        else if (state != last)
            rvi_machine_close(&g->m, at, state, &behind);
        last = state;
        if (behind.n && t->token[node] >= 0) rvi_vocab_allow(g->vocab, w->mask, t->token[node]);
        for (size_t k = 0; k < behind.n; k++) walk(w, t, node + 1, t->end[node], &behind.items[k]);
    }
    rvi_places_deinit(&behind);
    return true;
}

/* Whether some place goes on with a byte; remembered in known (-1: not yet). */
static bool goes_on(rvi_grammar *g, const rvi_places *at, uint8_t b, int8_t known[256])
{
    rvi_place few[8];
    rvi_places next = {few, 0, RVI_COUNT(few), true};
    for (size_t k = 0; known[b] < 0 && k < at->n && !next.n; k++)
        rvi_machine_step(&g->m, &at->items[k], b, &next);
    if (known[b] < 0) known[b] = next.n > 0;
    rvi_places_deinit(&next);
    return known[b];
}

/* Inside a terminal, and behind it wherever it may end. */
static void walk_terminal(painter *w, const rvi_vocab_trie *t, uint32_t from, uint32_t to,
                          const rvi_place *at)
{
    rvi_grammar *g = w->g;
    rvi_lexer *l = &g->m.lexer;
    uint32_t states[RVI_VOCAB_LONGEST + 2];
    int8_t known[256];
    rvi_places behind = {0}, next = {0};
    memset(known, -1, sizeof known);
    states[t->depth[from] - 1] = at->arg;
    rvi_machine_behind(&g->m, at, &behind);
    for (uint32_t i = from; i < to;) {
        uint32_t before = states[t->depth[i] - 1], here = RVI_LEX_DEAD;
        if (before != RVI_LEX_DEAD) here = rvi_lex_fast(l, before, t->byte[i]);
        next.n = 0;
        if (before != RVI_LEX_DEAD && behind.n && rvi_lex_ends(l, before) &&
            goes_on(g, &behind, t->byte[i], known))
            for (size_t k = 0; k < behind.n; k++)
                rvi_machine_step(&g->m, &behind.items[k], t->byte[i], &next);
        if ((next.n || here != RVI_LEX_DEAD) && t->token[i] >= 0)
            rvi_vocab_allow(g->vocab, w->mask, t->token[i]);
        if (next.n && here != RVI_LEX_DEAD && w->n_ways * (next.n + 1) > MAX_WAYS) {
            rvi_place stays = *at;
            stays.arg = here;
            rvi_places_add(&g->m, &next, stays);
            here = RVI_LEX_DEAD; /* what is below is looked at together */
        }
        if (next.n) {
            rvi_places_tidy(&next);
            walk_each(w, t, i + 1, t->end[i], &next, here != RVI_LEX_DEAD);
        }
        states[t->depth[i]] = here;
        i = here == RVI_LEX_DEAD ? t->end[i] : i + 1;
    }
    rvi_places_deinit(&behind);
    rvi_places_deinit(&next);
}

/* Plain tokens that certainly stay inside the terminal are not looked at. */
static void paint_terminal(painter *w, const rvi_place *at)
{
    const rvi_vocab *v = w->g->vocab;
    const rvi_vocab_trie *t = rvi_vocab_fitting(v, &w->g->m.lexer, at->arg, w->mask);
    if (t) walk_terminal(w, t, 0, t->n, at);
    t = &v->tries[RVI_MIXED];
    if (t->n) walk_terminal(w, t, 0, t->n, at);
}

static void walk_all(painter *w, const rvi_place *at)
{
    const rvi_vocab *v = w->g->vocab;
    for (int i = 0; i < RVI_N_TRIES; i++) walk(w, &v->tries[i], 0, v->tries[i].n, at);
}

/* Names are few, other keys may be any text: each is looked for in its own way. */
static bool paint_key(painter *w, const rvi_place *at)
{
    rvi_place other, named;
    unsigned ways = rvi_machine_key_ways(&w->g->m, at, &other, &named);
    if (ways & RVI_KEY_NAMED) walk_all(w, &named);
    return ways & RVI_KEY_OTHER ? paint_quoted(w, &other) : true;
}

static bool paint(painter *w, const rvi_place *at)
{
    if (at->kind == RVI_AT_STRING) return paint_quoted(w, at);
    if (at->kind == RVI_AT_KEY) return paint_key(w, at);
    if (at->kind == RVI_AT_TERMINAL)
        paint_terminal(w, at);
    else
        walk_all(w, at);
    return true;
}

/* Terminals, where there are so many of them that most are alike. */
static bool paint_together(painter *w, const rvi_places *places)
{
    rvi_places terminals = {0};
    for (size_t i = 0; i < places->n; i++)
        if (places->items[i].kind == RVI_AT_TERMINAL)
            rvi_places_add(&w->g->m, &terminals, places->items[i]);
    bool many = terminals.n > MAX_WAYS;
    for (int i = 0; many && i < RVI_N_TRIES; i++)
        walk_together(w, &w->g->vocab->tries[i], 0, w->g->vocab->tries[i].n, &terminals);
    rvi_places_deinit(&terminals);
    return many;
}

/* Room for one more mask: the oldest goes when there are too many. */
static bool mask_room(rvi_grammar *g, uint32_t state)
{
    size_t bytes = (g->vocab->n_words + 1) * sizeof(uint64_t);
    if (state >= g->cap_masks) {
        uint32_t cap = RVI_MAX(g->cap_masks * 2, state + 64);
        uint64_t **more = rvi_realloc_array(g->masks, cap, sizeof *more);
        if (!more) return false;
        memset(more + g->cap_masks, 0, (cap - g->cap_masks) * sizeof *more);
        g->masks = more;
        g->cap_masks = cap;
    }
    if (!g->kept) {
        g->cap_kept = (uint32_t)RVI_MAX(MASK_BYTES / bytes, (size_t)4);
        if (!(g->kept = rvi_alloc_array(g->cap_kept, sizeof *g->kept))) return false;
    }
    if (g->n_kept == g->cap_kept) {
        rvi_free(g->masks[g->kept[g->oldest]]);
        g->masks[g->kept[g->oldest]] = NULL;
        g->oldest = (g->oldest + 1) % g->cap_kept;
        g->n_kept--;
    }
    return true;
}

rv_status rvi_grammar_mask(rvi_grammar *g, uint32_t state, const uint64_t **mask, rv_error *err)
{
    *mask = NULL;
    if (!state) return rvi_error(err, RV_E_STATE, "the text has left the grammar");
    if (state < g->cap_masks && g->masks[state]) {
        *mask = g->masks[state];
        return RV_OK;
    }
    painter w = {.g = g, .n_ways = 1};
    rvi_rxs_forgive(&g->m.values.rxs, WORK_A_MASK + WORK_A_TOKEN * (uint64_t)g->vocab->n_tokens);
    if (!mask_room(g, state) || !(w.mask = rvi_zalloc_array(g->vocab->n_words + 1, sizeof *w.mask)))
        return rvi_nomem(err, "mask");
    rvi_places *places = &g->places[2];
    places_of(g, state, places);
    bool ok = true, ends = false, together = paint_together(&w, places);
    for (size_t i = 0; i < places->n && ok; i++) {
        if (!together || places->items[i].kind != RVI_AT_TERMINAL)
            ok = paint(&w, &places->items[i]);
        ends = ends || rvi_machine_ends(&g->m, &places->items[i]);
    }
    if (ends) add_words(&w, g->vocab->eos);
    rv_status st = rvi_machine_check(&g->m, err);
    if (!st && !ok) st = rvi_nomem(err, "mask");
    if (st) {
        rvi_free(w.mask);
        return st;
    }
    g->kept[(g->oldest + g->n_kept++) % g->cap_kept] = state;
    *mask = g->masks[state] = w.mask;
    return RV_OK;
}

/* ---- what must come ---- */

/* The only byte that may follow, or -1. */
static int only_byte(rvi_grammar *g, const rvi_places *now, rvi_places *then)
{
    int only = -1;
    for (int b = 0; b < 256; b++) {
        then->n = 0;
        for (size_t k = 0; k < now->n && !then->n; k++)
            rvi_machine_step(&g->m, &now->items[k], (uint8_t)b, then);
        if (!then->n) continue;
        if (only >= 0) return -1;
        only = b;
    }
    return only;
}

bool rvi_grammar_complete(rvi_grammar *g, uint32_t state)
{
    rvi_places *now = &g->places[0], *then = &g->places[1];
    if (!rvi_grammar_ends(g, state)) return false;
    places_of(g, state, now);
    then->n = 0;
    for (size_t i = 0; i < now->n; i++) {
        bool behind_json = now->items[i].kind == RVI_AT_AFTER && !now->items[i].frame;
        for (int b = 0; b < 256 && !behind_json && !then->n; b++)
            rvi_machine_step(&g->m, &now->items[i], (uint8_t)b, then);
    }
    return !then->n;
}

rv_status rvi_grammar_forced(rvi_grammar *g, uint32_t state, size_t most, rvi_buf *out,
                             uint32_t *after, rv_error *err)
{
    rv_status st = RV_OK;
    *after = state;
    rvi_rxs_forgive(&g->m.values.rxs, WORK_FORCED);
    for (size_t i = 0; i < most && state && !rvi_grammar_ends(g, state) && !st; i++) {
        places_of(g, state, &g->places[0]);
        int b = only_byte(g, &g->places[0], &g->places[1]);
        if (b < 0) break;
        uint8_t byte = (uint8_t)b;
        st = advance(g, state, &byte, 1, &state, err);
        if (!st && state) {
            rvi_buf_putc(out, (char)byte);
            *after = state;
        }
    }
    if (!st && out->failed) st = rvi_nomem(err, "forced text");
    return st ? st : rvi_machine_check(&g->m, err);
}

rv_status rvi_grammar_finish(rvi_grammar *g, uint32_t state, rvi_buf *out, bool *found,
                             rv_error *err)
{
    rvi_places *now = &g->places[0];
    rvi_rxs *rxs = &g->m.values.rxs;
    const uint64_t work = rxs->work, max_work = rxs->max_work;
    *found = false;
    if (!state) return RV_OK;
    places_of(g, state, now);
    if (rxs->status) return rvi_machine_check(&g->m, err);
    rxs->work = 0;
    rxs->max_work = WORK_TO_FINISH;
    *found = rvi_machine_finish(&g->m, now->items, now->n, out);
    rxs->work = work;
    rxs->max_work = max_work;
    if (rxs->status == RV_E_TOO_LONG && !g->m.values.st) { /* the text may go on all the same */
        rxs->status = RV_OK;
        *found = false;
    }
    return rvi_machine_check(&g->m, err);
}

/* ---- sources ---- */

static rv_status begin(rvi_grammar **out, const rvi_vocab *v, const rvi_grammar_options *o,
                       rv_error *err)
{
    *out = NULL;
    rvi_grammar *g = rvi_zalloc(sizeof *g);
    if (!g) return rvi_nomem(err, "grammar");
    g->vocab = v;
    rv_status st = rvi_machine_init(&g->m, err);
    if (st) {
        rvi_grammar_free(g);
        return st;
    }
    if (o && o->max_blanks)
        g->m.max_blanks = o->max_blanks < 0 ? 0 : (uint32_t)RVI_MIN(o->max_blanks, UINT16_MAX - 1);
    g->m.lexer.canonical = o && o->canonical;
    *out = g;
    return RV_OK;
}

static rv_status finish(rvi_grammar **out, rv_status st, rv_error *err)
{
    rvi_grammar *g = *out;
    if (!st) {
        g->places[0].n = 0;
        rvi_places_add(&g->m, &g->places[0], g->m.start);
        g->start = state_of(g, &g->places[0]);
        st = rvi_machine_check(&g->m, err);
        g->m.values.rxs.work = 0;
        g->m.values.rxs.max_work = WORK_AT_ONCE + WORK_A_TOKEN * (uint64_t)g->vocab->n_tokens;
    }
    if (st) {
        rvi_grammar_free(g);
        *out = NULL;
    }
    return st;
}

rv_status rvi_grammar_schema(rvi_grammar **out, const rvi_vocab *v, const char *json, size_t len,
                             const rvi_grammar_options *o, rv_error *err)
{
    const rvi_json *schema;
    rv_status st = begin(out, v, o, err);
    if (st) return st;
    rvi_grammar *g = *out;
    g->source.max = MAX_SOURCE;
    char *copy = rvi_arena_strndup(&g->source, json, len); /* numbers point into the text */
    if (!copy) return finish(out, rvi_nomem(err, "schema"), err);
    st = rvi_json_parse(&schema, copy, len, &g->source, "schema", err);
    if (!st) {
        g->m.values.err = err;
        rvi_schema_survey(&g->m.values, schema);
        st = rvi_machine_begin_json(&g->m, rvi_node_schema(&g->m.values, schema), err);
    }
    return finish(out, st, err);
}

rv_status rvi_grammar_json(rvi_grammar **out, const rvi_vocab *v, const rvi_grammar_options *o,
                           rv_error *err)
{
    static const char any_object[] = "{\"type\":\"object\"}";
    return rvi_grammar_schema(out, v, any_object, sizeof any_object - 1, o, err);
}

static rv_status finish_terminal(rvi_grammar **out, rvi_rx rx, rv_status st, rv_error *err)
{
    rvi_grammar *g = *out;
    if (!st && !rvi_rx_live(&g->m.values.rxs, rx)) {
        st = rvi_machine_check(&g->m, err);
        if (!st) st = rvi_error(err, RV_E_CONFIG, "no text matches");
    }
    if (!st && !rvi_rules_terminal(&g->m.rules, rx)) st = rvi_nomem(err, "grammar");
    if (!st) st = rvi_machine_begin_rules(&g->m, err);
    return finish(out, st, err);
}

rv_status rvi_grammar_regex(rvi_grammar **out, const rvi_vocab *v, const char *pattern, size_t len,
                            rv_error *err)
{
    rvi_rx rx = RVI_RX_NONE;
    rv_status st = begin(out, v, NULL, err);
    if (st) return st;
    st = rvi_rx_parse(&(*out)->m.values.rxs, pattern, len, true, &rx, err);
    return finish_terminal(out, rx, st, err);
}

static rv_status one_of(rvi_grammar **out, const rvi_vocab *v, const char *const *texts, size_t n,
                        rv_error *err)
{
    size_t k = 0;
    rv_status st = begin(out, v, NULL, err);
    if (st) return st;
    rvi_grammar *g = *out;
    rvi_text *list = rvi_arena_alloc(&g->source, n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        list[i].len = strlen(texts[i]);
        list[i].data = rvi_arena_strndup(&g->source, texts[i], list[i].len);
        if (!list[i].data) list = NULL;
    }
    if (!list) return finish(out, rvi_nomem(err, "grammar"), err);
    qsort(list, n, sizeof *list, rvi_text_compare);
    for (size_t i = 0; i < n; i++)
        if (!k || rvi_text_compare(&list[i], &list[k - 1])) list[k++] = list[i];
    rvi_rx rx = rvi_rx_names(&g->m.values.rxs, &g->source, list, k, NULL);
    return finish_terminal(out, rx, RV_OK, err);
}

rv_status rvi_grammar_choices(rvi_grammar **out, const rvi_vocab *v, const char *json, size_t len,
                              rv_error *err)
{
    rvi_arena arena = {.max = MOST_LISTED};
    const rvi_json *list;
    const char **choices = NULL;
    size_t n = 0;
    rv_status st = rvi_json_parse(&list, json, len, &arena, "choices", err);
    if (!st) n = rvi_json_count(list);
    if (!st && (!rvi_json_is(list, RVI_JSON_ARRAY) || !n))
        st = rvi_error(err, RV_E_CONFIG, "choices: a list of strings is expected");
    if (!st && !(choices = rvi_arena_alloc(&arena, n, sizeof *choices)))
        st = rvi_nomem(err, "choices");
    for (size_t i = 0; i < n && !st; i++)
        if (!(choices[i] = rvi_json_string(rvi_json_at(list, i), NULL)))
            st = rvi_error(err, RV_E_CONFIG, "choices: item %zu is no string", i);
    if (!st) st = one_of(out, v, choices, n, err);
    rvi_arena_deinit(&arena);
    return st;
}

rv_status rvi_grammar_gbnf(rvi_grammar **out, const rvi_vocab *v, const char *text, size_t len,
                           const rvi_grammar_options *o, rv_error *err)
{
    rv_status st = begin(out, v, o, err);
    if (st) return st;
    rvi_grammar *g = *out;
    g->source.max = MAX_SOURCE;
    st = rvi_rules_gbnf(&g->m.rules, &g->m.values, &g->source, text, len, err);
    if (!st) st = rvi_machine_begin_rules(&g->m, err);
    return finish(out, st, err);
}

rv_status rvi_grammar_lark(rvi_grammar **out, const rvi_vocab *v, const char *text, size_t len,
                           const rvi_grammar_options *o, rv_error *err)
{
    rvi_buf gbnf = {0};
    *out = NULL;
    rv_status st = rvi_lark_to_gbnf(&gbnf, text, len, err);
    if (!st) st = rvi_grammar_gbnf(out, v, gbnf.data, gbnf.len, o, err);
    rvi_buf_deinit(&gbnf);
    return st;
}
