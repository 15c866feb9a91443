/* wordpiece.c - WordPiece: a word becomes the longest piece at its start, then the longest piece
 * that continues it, and so on; a word that cannot be split this way is one unknown token.
 *
 * Each place of a word costs at most the length of the longest piece, and pieces of more than
 * RVI_TOK_ADDED_LEN_MAX bytes (no vocabulary has them) are never matched: the cost stays linear. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

void rvi_wordpiece_deinit(rvi_wordpiece *m)
{
    rvi_trie_deinit(&m->first);
    rvi_trie_deinit(&m->inside);
    *m = (rvi_wordpiece){0};
}

static bool is_inside(const rvi_wordpiece *m, rvi_piece p)
{
    return p.len >= m->prefix_len && !memcmp(p.data, m->prefix, m->prefix_len);
}

rv_status rvi_wordpiece_prepare(rvi_wordpiece *m, const rvi_piece *pieces, size_t n,
                                const bool *skip, rv_error *err)
{
    size_t n_first = 0, n_inside = 0;
    for (size_t i = 0; i < n; i++) {
        if (!pieces[i].data) continue;
        n_first += pieces[i].len;
        if (is_inside(m, pieces[i])) n_inside += pieces[i].len - m->prefix_len;
    }
    if (!rvi_trie_init(&m->first, n_first) || !rvi_trie_init(&m->inside, n_inside))
        return rvi_nomem(err, "vocabulary");
    for (size_t i = 0; i < n; i++) {
        rvi_piece p = pieces[i];
        if (!p.data || (skip && skip[i]) || p.len > RVI_TOK_ADDED_LEN_MAX) continue;
        rvi_trie_add(&m->first, p.data, p.len, (uint32_t)i);
        if (is_inside(m, p))
            rvi_trie_add(&m->inside, p.data + m->prefix_len, p.len - m->prefix_len, (uint32_t)i);
    }
    return RV_OK;
}

rv_status rvi_wordpiece_encode(const rvi_wordpiece *m, int32_t unk, const char *word, size_t len,
                               rvi_ids *out, rv_error *err)
{
    size_t before = out->len, at = 0;
    bool known = len <= m->max_chars || rvi_utf8_count(word, len) <= m->max_chars;
    while (known && at < len) {
        size_t n = 0;
        uint32_t found = rvi_trie_match(at ? &m->inside : &m->first, word + at, len - at, &n);
        known = found != 0;
        if (known && !rvi_ids_push(out, (int32_t)found - 1)) return rvi_nomem(err, "token ids");
        at += n;
    }
    if (known) return RV_OK;
    out->len = before;
    return rvi_ids_push(out, unk) ? RV_OK : rvi_nomem(err, "token ids");
}
