/* bpe.c - byte pair encoding of one piece: lowest rank first, the leftmost among equals.
 *
 * The symbols are a linked list in an array; possible merges wait in a heap. An entry of the heap
 * may be out of date when its turn comes: it is taken only if the pair at its place still gives the
 * same token. O(n log n). */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

typedef struct rvi_symbol {
    int32_t id;         /* -1: merged into the one before */
    int32_t prev, next; /* -1: none */
} symbol;

typedef struct rvi_candidate {
    uint32_t rank;
    int32_t pos;    /* of the left symbol */
    int32_t merged; /* the token it gives */
} candidate;

void rvi_bpe_deinit(rvi_bpe *m)
{
    rvi_text_map_deinit(&m->map);
    rvi_merge_map_deinit(&m->merges);
}

void rvi_bpe_work_deinit(rvi_bpe_work *w)
{
    rvi_free(w->symbols);
    rvi_free(w->heap);
    rvi_buf_deinit(&w->spelling);
    *w = (rvi_bpe_work){0};
}

void rvi_bpe_prepare(rvi_bpe *m)
{
    for (uint32_t cp = 0; cp < RVI_BPE_LOW; cp++) {
        char bytes[4];
        m->low[cp] = rvi_text_map_find(&m->map, bytes, rvi_utf8_encode(cp, bytes));
    }
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        m->bytes[b] = rvi_text_map_find(&m->map, name, 6);
    }
}

/* ---- the heap ---- */

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static void sift_down(candidate *heap, size_t n, size_t i)
{
    candidate c = heap[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(&heap[k + 1], &heap[k])) k++;
        if (!before(&heap[k], &c)) break;
        heap[i] = heap[k];
    }
    heap[i] = c;
}

static bool heap_append(rvi_bpe_work *w, const candidate *c)
{
    if (w->n_heap == w->cap_heap) {
        size_t cap = w->cap_heap ? w->cap_heap * 2 : 64;
        candidate *heap = rvi_realloc_array(w->heap, cap, sizeof *heap);
        if (!heap) return false;
        w->heap = heap;
        w->cap_heap = cap;
    }
    w->heap[w->n_heap++] = *c;
    return true;
}

static void sift_up(candidate *heap, size_t i)
{
    candidate c = heap[i];
    for (; i && before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static candidate heap_pop(rvi_bpe_work *w)
{
    candidate top = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap) sift_down(w->heap, w->n_heap, 0);
    return top;
}

/* Appends the merge of the symbol at pos with the next one, if there is one; the heap's order is
 * the caller's care. */
static bool consider(const rvi_bpe *m, rvi_bpe_work *w, int32_t pos)
{
    const symbol *left = &w->symbols[pos];
    if (left->next < 0) return true;
    const rvi_merge *found = rvi_merge_map_find(&m->merges, left->id, w->symbols[left->next].id);
    return !found ||
           heap_append(w, &(candidate){.rank = found->rank, .pos = pos, .merged = found->merged});
}

static bool consider_in_order(const rvi_bpe *m, rvi_bpe_work *w, int32_t pos)
{
    size_t n = w->n_heap;
    if (!consider(m, w, pos)) return false;
    if (w->n_heap > n) sift_up(w->heap, n);
    return true;
}

static bool merge_all(const rvi_bpe *m, rvi_bpe_work *w)
{
    w->n_heap = 0;
    for (size_t i = 0; i + 1 < w->n_symbols; i++)
        if (!consider(m, w, (int32_t)i)) return false;
    for (size_t i = w->n_heap / 2; i-- > 0;) sift_down(w->heap, w->n_heap, i);

    while (w->n_heap) {
        candidate c = heap_pop(w);
        symbol *left = &w->symbols[c.pos];
        if (left->id < 0 || left->next < 0) continue;
        symbol *right = &w->symbols[left->next];
        const rvi_merge *now = rvi_merge_map_find(&m->merges, left->id, right->id);
        if (!now || now->merged != c.merged) continue; /* out of date */
        left->id = c.merged;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0) w->symbols[left->next].prev = c.pos;
        if (left->prev >= 0 && !consider_in_order(m, w, left->prev)) return false;
        if (!consider_in_order(m, w, c.pos)) return false;
    }
    return true;
}

/* ---- characters to symbols ---- */

static bool add_symbol(rvi_bpe_work *w, int32_t id)
{
    if (w->n_symbols == w->cap_symbols) {
        size_t cap = w->cap_symbols ? w->cap_symbols * 2 : 64;
        symbol *symbols = rvi_realloc_array(w->symbols, cap, sizeof *symbols);
        if (!symbols) return false;
        w->symbols = symbols;
        w->cap_symbols = cap;
    }
    int32_t i = (int32_t)w->n_symbols++;
    w->symbols[i] = (symbol){.id = id, .prev = i - 1, .next = -1};
    if (i) w->symbols[i - 1].next = i;
    return true;
}

/* The character's text as the vocabulary spells it inside a word. */
static bool spell(const rvi_bpe *m, rvi_bpe_work *w, const char **text, size_t *len, bool first,
                  bool last)
{
    if ((first || !m->prefix_len) && (!last || !m->suffix_len)) return true;
    w->spelling.len = 0;
    if (!first) rvi_buf_append(&w->spelling, m->prefix, m->prefix_len);
    rvi_buf_append(&w->spelling, *text, *len);
    if (last) rvi_buf_append(&w->spelling, m->suffix, m->suffix_len);
    *text = w->spelling.data;
    *len = w->spelling.len;
    return !w->spelling.failed;
}

/* All bytes have a token, or none is used. *done tells which. */
static bool add_bytes(const rvi_bpe *m, rvi_bpe_work *w, const char *text, size_t len, bool *done)
{
    *done = false;
    for (size_t i = 0; i < len; i++)
        if (m->bytes[(unsigned char)text[i]] < 0) return true;
    *done = true;
    for (size_t i = 0; i < len; i++)
        if (!add_symbol(w, m->bytes[(unsigned char)text[i]])) return false;
    return true;
}

/* A pending unknown token is put out before the next known character, but behind bytes that come in
 * between: that is the order of the reference implementation. */
static bool add_all(const rvi_bpe *m, rvi_bpe_work *w, const char *piece, size_t len)
{
    bool unk_pending = false, by_bytes = false;
    bool spelled = m->prefix_len || m->suffix_len;
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(piece + i, len - i, &cp, NULL);
        const char *text = piece + i;
        size_t text_len = used;
        if (spelled && !spell(m, w, &text, &text_len, i == 0, i + used == len)) return false;
        int32_t id =
            cp < RVI_BPE_LOW && !spelled ? m->low[cp] : rvi_text_map_find(&m->map, text, text_len);
        if (id >= 0) {
            if (unk_pending && !add_symbol(w, m->unk)) return false;
            unk_pending = false;
            if (!add_symbol(w, id)) return false;
            continue;
        }
        if (m->byte_fallback && !add_bytes(m, w, text, text_len, &by_bytes)) return false;
        if ((m->byte_fallback && by_bytes) || m->unk < 0) continue;
        if (unk_pending && !m->fuse_unk && !add_symbol(w, m->unk)) return false;
        unk_pending = true;
    }
    return !unk_pending || add_symbol(w, m->unk);
}

rv_status rvi_bpe_encode(const rvi_bpe *m, rvi_bpe_work *w, const char *piece, size_t len,
                         rvi_ids *out, rv_error *err)
{
    if (m->ignore_merges) {
        int32_t whole = rvi_text_map_find(&m->map, piece, len);
        if (whole >= 0) return rvi_ids_push(out, whole) ? RV_OK : rvi_nomem(err, "token ids");
    }
    w->n_symbols = 0;
    bool ok = add_all(m, w, piece, len) && (w->n_symbols < 2 || merge_all(m, w));
    if (ok && w->n_symbols)
        for (int32_t i = 0; ok && i >= 0; i = w->symbols[i].next)
            ok = rvi_ids_push(out, w->symbols[i].id);
    return ok ? RV_OK : rvi_nomem(err, "token ids");
}
