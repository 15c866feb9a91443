#include "grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* The number of characters if all are plain, else 0. The last one may be cut off: all characters
 * that begin so, but one or two, are plain. */
static uint32_t plain_length(const uint8_t *s, size_t len)
{
    size_t cut = rvi_utf8_incomplete((const char *)s, len);
    uint32_t n = cut > 0;
    len -= cut;
    for (size_t i = 0; i < len; n++) {
        uint32_t cp;
        bool valid;
        i += rvi_utf8_decode((const char *)s + i, len - i, &cp, &valid);
        if (!valid || cp < 0x20 || cp == '"' || cp == '\\' || cp == 0x2028 || cp == 0x2029)
            return 0;
    }
    return n;
}

/* How many bytes of a mixed token can be inside a string: those before a quote that may end it. */
static uint32_t inside_length(const uint8_t *s, uint32_t len)
{
    uint32_t n = 0;
    while (n < len && s[n] != '"' && s[n] >= 0x20) n++;
    return n < len && s[n] == '"' && n && s[n - 1] == '\\' ? len : n;
}

typedef struct piece {
    const uint8_t *data;
    uint32_t len;
    int32_t token;
} piece;

static int by_bytes(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    int c = memcmp(x->data, y->data, RVI_MIN(x->len, y->len));
    if (c) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static bool alloc_trie(rvi_vocab *v, rvi_vocab_trie *t, size_t n_bytes)
{
    t->byte = rvi_arena_alloc(&v->arena, n_bytes + 1, sizeof *t->byte);
    t->depth = rvi_arena_alloc(&v->arena, n_bytes + 1, sizeof *t->depth);
    t->end = rvi_arena_alloc(&v->arena, n_bytes + 1, sizeof *t->end);
    t->token = rvi_arena_alloc(&v->arena, n_bytes + 1, sizeof *t->token);
    return t->byte && t->depth && t->end && t->token;
}

/* pieces: sorted by their bytes. */
static bool build_trie(rvi_vocab *v, rvi_vocab_trie *t, const piece *pieces, size_t n)
{
    uint32_t open[RVI_VOCAB_LONGEST + 1], n_open = 0; /* the nodes of the piece before */
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) n_bytes += pieces[i].len;
    if (!alloc_trie(v, t, n_bytes)) return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t same = 0;
        const piece *p = &pieces[i], *before = i ? &pieces[i - 1] : NULL;
        while (before && same < before->len && same < p->len && before->data[same] == p->data[same])
            same++;
        while (n_open > same) t->end[open[--n_open]] = t->n;
        for (uint32_t k = same; k < p->len; k++) {
            t->byte[t->n] = p->data[k];
            t->depth[t->n] = (uint8_t)(k + 1);
            t->token[t->n] = -1;
            open[n_open++] = t->n++;
        }
        uint32_t last = open[n_open - 1];
        if (t->token[last] >= 0) v->twin[p->token] = t->token[last];
        t->token[last] = p->token;
    }
    while (n_open) t->end[open[--n_open]] = t->n;
    return true;
}

/* pieces: the plain ones, sorted; they are used up. */
static bool fill_lengths(rvi_vocab *v, piece *pieces, size_t n)
{
    static const uint32_t limits[RVI_N_LENGTHS] = {4, 8, 16, 32};
    for (int i = 0; i < RVI_N_LENGTHS; i++) {
        rvi_vocab_length *l = &v->lengths[i];
        size_t k = 0;
        l->limit = limits[i];
        l->within = rvi_arena_alloc(&v->arena, v->n_words + 1, sizeof *l->within);
        if (!l->within) return false;
        memcpy(l->within, v->plain, v->n_words * sizeof *l->within);
        for (size_t p = 0; p < n; p++) {
            if (plain_length(pieces[p].data, pieces[p].len) <= l->limit) continue;
            l->within[pieces[p].token >> 6] &= ~(1ull << (pieces[p].token & 63));
            pieces[k++] = pieces[p];
        }
        n = k;
        if (!build_trie(v, &l->beyond, pieces, n)) return false;
    }
    return true;
}

static bool fill(rvi_vocab *v, rvi_vocab_piece get, void *ctx)
{
    piece *pieces[RVI_N_TRIES];
    size_t n[RVI_N_TRIES] = {0};
    bool ok = true;
    for (int i = 0; i < RVI_N_TRIES; i++)
        ok = (pieces[i] = rvi_alloc_array((size_t)v->n_tokens + 1, sizeof *pieces[i])) && ok;
    for (int32_t id = 0; id < v->n_tokens && ok; id++) {
        bool eos = false;
        uint32_t len = 0;
        const uint8_t *bytes = get(ctx, id, &len, &eos);
        v->twin[id] = -1;
        if (eos) v->eos[id >> 6] |= 1ull << (id & 63);
        if (!bytes || !len || len > RVI_VOCAB_LONGEST || eos) continue;
        uint8_t *copy = (uint8_t *)rvi_arena_strndup(&v->arena, (const char *)bytes, len);
        if (!(ok = copy != NULL)) break;
        v->bytes[id] = copy;
        v->lens[id] = len;
        uint32_t plain = plain_length(copy, len);
        int which = plain ? RVI_PLAIN : RVI_MIXED;
        v->longest_plain = RVI_MAX(v->longest_plain, plain);
        if (!plain) v->longest_mixed = RVI_MAX(v->longest_mixed, inside_length(copy, len));
        if (plain) v->plain[id >> 6] |= 1ull << (id & 63);
        pieces[which][n[which]++] = (piece){copy, len, id};
    }
    for (int i = 0; i < RVI_N_TRIES && ok; i++) {
        qsort(pieces[i], n[i], sizeof *pieces[i], by_bytes);
        ok = build_trie(v, &v->tries[i], pieces[i], n[i]);
    }
    ok = ok && fill_lengths(v, pieces[RVI_PLAIN], n[RVI_PLAIN]);
    for (int i = 0; i < RVI_N_TRIES; i++) rvi_free(pieces[i]);
    return ok;
}

static bool make_free_string(rvi_vocab *v)
{
    rvi_rxs rxs;
    rvi_lexer l = {0};
    bool ok = !rvi_rxs_init(&rxs, UINT64_MAX, NULL) && rvi_lexer_init(&l, &rxs);
    if (ok)
        ok = rvi_lex_mask_make(v, &l, rvi_lex_start(&l, RVI_RX_ALL, RVI_LEX_STRING), RVI_MIXED,
                               &v->free_string);
    rvi_lexer_deinit(&l);
    rvi_rxs_deinit(&rxs);
    return ok;
}

rv_status rvi_vocab_new(rvi_vocab **out, int32_t n_tokens, rvi_vocab_piece get, void *ctx,
                        rv_error *err)
{
    *out = NULL;
    rvi_vocab *v = rvi_zalloc(sizeof *v);
    if (!v) return rvi_nomem(err, "token trie");
    size_t n = (size_t)n_tokens;
    v->n_tokens = n_tokens;
    v->n_words = (n + 63) / 64;
    v->bytes = rvi_arena_alloc(&v->arena, n + 1, sizeof *v->bytes);
    v->lens = rvi_arena_alloc(&v->arena, n + 1, sizeof *v->lens);
    v->twin = rvi_arena_alloc(&v->arena, n + 1, sizeof *v->twin);
    v->plain = rvi_arena_alloc(&v->arena, v->n_words + 1, sizeof *v->plain);
    v->eos = rvi_arena_alloc(&v->arena, v->n_words + 1, sizeof *v->eos);
    if (!v->bytes || !v->lens || !v->twin || !v->plain || !v->eos || !fill(v, get, ctx) ||
        !make_free_string(v)) {
        rvi_vocab_free(v);
        return rvi_nomem(err, "token trie");
    }
    *out = v;
    return RV_OK;
}

void rvi_vocab_free(rvi_vocab *v)
{
    if (!v) return;
    rvi_lex_mask_deinit(&v->free_string);
    rvi_arena_deinit(&v->arena);
    rvi_free(v);
}

bool rvi_vocab_extends(const rvi_vocab *v, const uint8_t *bytes, size_t len)
{
    for (int which = 0; which < RVI_N_TRIES; which++) {
        const rvi_vocab_trie *t = &v->tries[which];
        uint32_t from = 0, to = t->n;
        size_t at = 0;
        while (at < len && from < to) { /* the child with the next byte, among siblings */
            if (t->byte[from] == bytes[at]) {
                to = t->end[from++];
                at++;
            } else {
                from = t->end[from];
            }
        }
        if (at == len && from < to) return true;
    }
    return false;
}

/* ---- masks of lexer states ---- */

void rvi_lex_mask_deinit(rvi_lex_mask *m)
{
    rvi_free(m->inside);
    rvi_free(m->closing);
    rvi_free(m->exits);
    *m = (rvi_lex_mask){0};
}

typedef struct exits {
    rvi_exit *items;
    size_t n, cap;
} exits;

static bool add_exit(exits *e, uint32_t node, uint32_t state)
{
    if (e->n == e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 64;
        rvi_exit *items = rvi_realloc_array(e->items, cap, sizeof *items);
        if (!items) return false;
        e->items = items;
        e->cap = cap;
    }
    e->items[e->n++] = (rvi_exit){node, state};
    return true;
}

static bool walk_trie(const rvi_vocab *v, const rvi_vocab_trie *t, rvi_lexer *l, uint32_t state,
                      rvi_lex_mask *m, exits *e)
{
    uint32_t states[RVI_VOCAB_LONGEST + 2];
    states[0] = state;
    for (uint32_t i = 0; i < t->n;) {
        uint32_t before = states[t->depth[i] - 1], next = rvi_lex_fast(l, before, t->byte[i]);
        if (next == RVI_LEX_DEAD) {
            i = t->end[i];
            continue;
        }
        if (next == RVI_LEX_EXIT) {
            if (!add_exit(e, i, before)) return false;
            if (t->token[i] >= 0) rvi_vocab_allow(v, m->closing, t->token[i]);
            i = t->end[i];
            continue;
        }
        if (t->token[i] >= 0) rvi_vocab_allow(v, m->inside, t->token[i]);
        states[t->depth[i]] = next;
        i++;
    }
    return true;
}

const rvi_vocab_trie *rvi_vocab_fitting(const rvi_vocab *v, const rvi_lexer *l, uint32_t state,
                                        uint64_t *mask)
{
    const rvi_lex_state *s = &l->states[state];
    const rvi_vocab_trie *rest = &v->tries[RVI_PLAIN];
    const uint64_t *fit = NULL;
    uint32_t slack = s->pending ? 0 : rvi_rx_slack(l->rxs, s->rx);
    for (int i = 0; i < RVI_N_LENGTHS && v->lengths[i].limit <= slack; i++) {
        fit = v->lengths[i].within;
        rest = &v->lengths[i].beyond;
    }
    if (slack >= v->longest_plain) {
        fit = v->plain;
        rest = NULL;
    }
    for (size_t i = 0; fit && i < v->n_words; i++) mask[i] |= fit[i];
    return rest && rest->n ? rest : NULL;
}

bool rvi_lex_mask_make(const rvi_vocab *v, rvi_lexer *l, uint32_t state, int which,
                       rvi_lex_mask *out)
{
    exits e = {0};
    *out = (rvi_lex_mask){0};
    if (state < RVI_LEX_FIRST) return false;
    out->inside = rvi_zalloc_array(v->n_words + 1, sizeof *out->inside);
    if (which == RVI_MIXED) out->closing = rvi_zalloc_array(v->n_words + 1, sizeof *out->closing);
    bool ok = out->inside && (which == RVI_PLAIN || out->closing);
    const rvi_vocab_trie *t = &v->tries[which];
    if (ok && which == RVI_PLAIN) t = rvi_vocab_fitting(v, l, state, out->inside);
    if (ok && t) ok = walk_trie(v, t, l, state, out, &e);
    ok = ok && !l->rxs->status;
    out->exits = e.items;
    out->n_exits = e.n;
    if (!ok) rvi_lex_mask_deinit(out);
    return ok;
}
