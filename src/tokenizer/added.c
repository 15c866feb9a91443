/* added.c - added tokens in a text: the leftmost one, and of those that begin there the longest.
 *
 * The tokens are in a trie whose edges are a hash table; each place of the text costs at most the
 * length of the longest token, which is capped. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

typedef struct rvi_trie_edge {
    uint32_t from; /* node; 0: an empty slot */
    uint32_t to;
    uint8_t byte;
} edge;

enum { TRIE_NODES_MAX = 1 << 26 };

void rvi_trie_deinit(rvi_trie *t)
{
    rvi_free(t->edges);
    rvi_free(t->token);
    *t = (rvi_trie){0};
}

static edge *find_edge(const rvi_trie *t, uint32_t from, uint8_t byte)
{
    uint64_t h = ((uint64_t)from << 8 | byte) * 0x9E3779B97F4A7C15u;
    for (size_t i = (size_t)(h >> 32) & t->mask;; i = (i + 1) & t->mask)
        if (!t->edges[i].from || (t->edges[i].from == from && t->edges[i].byte == byte))
            return &t->edges[i];
}

static uint32_t child(const rvi_trie *t, uint32_t from, uint8_t byte)
{
    return from == 1 ? t->root[byte] : find_edge(t, from, byte)->to;
}

bool rvi_trie_init(rvi_trie *t, size_t n_bytes)
{
    size_t size = 64;
    if (n_bytes >= TRIE_NODES_MAX) return false;
    while (size < n_bytes * 2) size *= 2;
    t->edges = rvi_zalloc_array(size, sizeof *t->edges);
    t->token = rvi_zalloc_array(n_bytes + 2, sizeof *t->token);
    t->mask = size - 1;
    t->n_nodes = 2;
    return t->edges && t->token;
}

void rvi_trie_add(rvi_trie *t, const char *text, size_t len, uint32_t token)
{
    uint32_t node = 1;
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)text[i];
        uint32_t next = child(t, node, byte);
        if (!next) {
            next = t->n_nodes++;
            if (node == 1)
                t->root[byte] = next;
            else
                *find_edge(t, node, byte) = (edge){.from = node, .to = next, .byte = byte};
        }
        node = next;
    }
    if (len && !t->token[node]) t->token[node] = token + 1;
}

uint32_t rvi_trie_match(const rvi_trie *t, const char *text, size_t len, size_t *match_len)
{
    uint32_t node = 1, found = 0;
    for (size_t i = 0; i < len; i++) {
        node = child(t, node, (uint8_t)text[i]);
        if (!node) break;
        if (t->token[node]) {
            found = t->token[node];
            *match_len = i + 1;
        }
    }
    return found;
}

void rvi_added_deinit(rvi_added *a)
{
    rvi_free(a->tokens);
    rvi_text_map_deinit(&a->map);
    rvi_trie_deinit(&a->raw);
    rvi_trie_deinit(&a->normalized);
    rvi_cpset_deinit(&a->word);
    *a = (rvi_added){0};
}

rv_status rvi_added_prepare(rvi_added *a, rv_error *err)
{
    rv_status st = rvi_text_map_init(&a->map, a->n, err);
    if (st) return st;
    size_t raw_bytes = 0, normalized_bytes = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (a->tokens[i].normalized)
            normalized_bytes += a->tokens[i].spoken.len;
        else
            raw_bytes += a->tokens[i].len;
    }
    if (!rvi_trie_init(&a->raw, raw_bytes) || !rvi_trie_init(&a->normalized, normalized_bytes))
        return rvi_nomem(err, "added tokens");
    for (size_t i = 0; i < a->n; i++) {
        const rvi_added_token *t = &a->tokens[i];
        if (!rvi_text_map_put(&a->map, t->text, t->len, (int32_t)i)) continue;
        if (t->normalized)
            rvi_trie_add(&a->normalized, t->spoken.data, t->spoken.len, (uint32_t)i);
        else
            rvi_trie_add(&a->raw, t->text, t->len, (uint32_t)i);
    }
    a->any_normalized = normalized_bytes > 0;
    for (size_t i = 0; i < a->n; i++)
        a->special_normalized |= a->tokens[i].normalized && a->tokens[i].special;
    if (rvi_cpset_add_property(&a->word, "Word_With_Joiners", 17) != RVI_PROPERTY_OK)
        return rvi_nomem(err, "added tokens");
    rvi_cpset_close(&a->word);
    return RV_OK;
}

static size_t char_before(const char *text, size_t pos)
{
    do pos--;
    while (pos && ((unsigned char)text[pos] & 0xC0) == 0x80);
    return pos;
}

static bool is_whole_word(const rvi_added *a, const rvi_added_scan *s, size_t start, size_t end)
{
    uint32_t cp;
    if (start) {
        size_t at = char_before(s->text, start);
        rvi_utf8_decode(s->text + at, start - at, &cp, NULL);
        if (rvi_cpset_has(&a->word, cp)) return false;
    }
    if (end == s->len) return true;
    rvi_utf8_decode(s->text + end, s->len - end, &cp, NULL);
    return !rvi_cpset_has(&a->word, cp);
}

static size_t spaces_before(const rvi_added_scan *s, size_t start)
{
    while (start > s->done) {
        uint32_t cp;
        size_t at = char_before(s->text, start);
        rvi_utf8_decode(s->text + at, start - at, &cp, NULL);
        if (!rvi_unicode_is_space(cp)) break;
        start = at;
    }
    return RVI_MAX(start, s->done);
}

static size_t spaces_behind(rvi_added_scan *s, size_t end)
{
    if (end >= s->space_start && end < s->space_end) return s->space_end; /* seen already */
    s->space_start = end;
    while (end < s->len) {
        uint32_t cp;
        size_t used = rvi_utf8_decode(s->text + end, s->len - end, &cp, NULL);
        if (!rvi_unicode_is_space(cp)) break;
        end += used;
    }
    return s->space_end = end;
}

/* A special token's text at `from` that reaches into a span of users is no token. What is left is
 * the longest token that ends before the span; otherwise the search goes on behind: from the next
 * byte of the template's text, or behind what the match has of the user's. */
static uint32_t outside_user(const rvi_trie *trie, rvi_added_scan *s, size_t from,
                             const rvi_text_span *user, size_t *match_len)
{
    size_t at = s->base + from, before = user->start > at ? user->start - at : 0;
    size_t user_end = user->end - s->base;
    s->at = before ? from + 1 : RVI_MIN(from + *match_len, user_end);
    return before ? rvi_trie_match(trie, s->text + from, before, match_len) : 0;
}

bool rvi_added_next(const rvi_added *a, const rvi_trie *trie, bool plain, rvi_added_scan *s,
                    size_t *start, int32_t *id)
{
    while (s->at < s->len) {
        size_t from = s->at, match_len = 0;
        uint32_t found = rvi_trie_match(trie, s->text + from, s->len - from, &match_len);
        if (!found) {
            s->at++;
            continue;
        }
        const rvi_text_span *user = NULL;
        if (s->user && a->tokens[found - 1].special)
            user = rvi_text_spans_from(s->user, s->base + from);
        if (user && user->start < s->base + from + match_len &&
            !(found = outside_user(trie, s, from, user, &match_len)))
            continue;
        const rvi_added_token *t = &a->tokens[found - 1];
        s->at = from + match_len;
        if (plain && t->special) continue;
        if (t->single_word && !is_whole_word(a, s, from, s->at)) continue;
        *start = t->lstrip ? spaces_before(s, from) : from;
        if (t->lstrip && *start >= s->at)
            continue; /* all of it is white space that the token before has taken */
        *id = t->id;
        s->done = t->rstrip ? spaces_behind(s, s->at) : s->at;
        return true;
    }
    return false;
}
