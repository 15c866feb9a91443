/* sampler_dry.c - DRY, "don't repeat yourself" (Weidmann 2024): the longer the repeat that a token
 * would continue, the larger its penalty.
 *
 * A position of the past matches with length n when the n tokens up to it equal the last n tokens
 * of the past. The token after it would continue the repeat, and loses
 *     multiplier * base^(n - allowed_length)    for its longest match n >= allowed_length.
 * Breakers stop a match: it does not reach over the last breaker of the past, and a breaker itself
 * is never penalized. Matches may overlap the end they repeat.
 *
 * The matches are the Z-array of the past read backwards: linear in the window. Only the part of
 * the array below the longest match is looked at again, so RVI_DRY_LONGEST numbers of scratch serve
 * for a past of any length. */
#include <math.h>
#include <string.h>

#include "decode/sampler_internal.h"

/* r[i]: the past backwards, i = 0 is the last token */
static int32_t back(const rvi_sampler *s, size_t i)
{
    return s->past[s->n_past - 1 - i];
}

/* Tokens at the end of the past that a match may have: those after the last breaker. */
static size_t longest_match(const rvi_sampler *s, size_t window)
{
    size_t most = RVI_MIN(window, (size_t)s->match_cap), n = 0;
    while (n < most && !(s->breaks && s->breaks[back(s, n)])) n++;
    return n;
}

/* Into counts: the longest match of every token that would continue one. */
static void find_matches(rvi_sampler *s, size_t window, size_t most)
{
    /* the match that reaches furthest: r[from, to) equals r[0, to - from) */
    size_t from = 0, to = 0;
    for (size_t k = 1; k < window; k++) {
        size_t n = 0;
        if (k < to) n = RVI_MIN((size_t)s->match[k - from], to - k);
        if (k + n >= to) {
            while (n < most && k + n < window && back(s, n) == back(s, k + n)) n++;
            from = k;
            to = k + n;
        }
        if (k < most) s->match[k] = (int32_t)n;
        int32_t *longest = &s->counts[back(s, k - 1)];
        if ((int32_t)n > *longest) *longest = (int32_t)n;
    }
}

void rvi_stage_dry(rvi_sampler *s)
{
    size_t window = s->n_past;
    if (s->o.dry_window) window = RVI_MIN(window, (size_t)s->o.dry_window);
    size_t most = longest_match(s, window);
    if (most < (size_t)s->o.dry_allowed_length) return;
    find_matches(s, window, most);
    for (size_t k = 1; k < window; k++) {
        int32_t id = back(s, k - 1), n = s->counts[id];
        s->counts[id] = 0;
        if (n < s->o.dry_allowed_length || (s->breaks && s->breaks[id])) continue;
        float *l = rvi_candidates_find(&s->set, id);
        if (!l) continue;
        double penalty =
            (double)s->o.dry_multiplier * pow((double)s->o.dry_base, n - s->o.dry_allowed_length);
        *l = rvi_bounded((double)*l - penalty);
    }
    s->set.weighed = false;
}

static bool contains(const char *text, size_t len, const char *part, size_t part_len)
{
    while (len >= part_len) {
        const char *at = memchr(text, part[0], len - part_len + 1);
        if (!at) return false;
        if (!memcmp(at, part, part_len)) return true;
        len -= (size_t)(at + 1 - text);
        text = at + 1;
    }
    return false;
}

rv_status rvi_dry_find_breakers(rvi_sampler *s, const rvi_tokenizer *t, const char *const *breakers,
                                size_t n_breakers, rv_error *err)
{
    int32_t n = RVI_MIN(rvi_tokenizer_size(t), s->n_vocab);
    size_t lens[RVI_DRY_BREAKERS_MAX];
    rvi_buf text = {0};
    rv_status st = RV_OK;
    for (size_t b = 0; b < n_breakers; b++) lens[b] = strlen(breakers[b]);
    if (!(s->breaks = rvi_zalloc_array((size_t)s->n_vocab, sizeof *s->breaks)))
        return rvi_nomem(err, "sampler");
    for (int32_t id = 0; id < n && !st; id++) {
        text.len = 0;
        st = rvi_tokenizer_decode(t, &id, 1, 0, &text, err);
        for (size_t b = 0; b < n_breakers && !st && text.len && !s->breaks[id]; b++)
            s->breaks[id] = contains(text.data, text.len, breakers[b], lens[b]);
    }
    rvi_buf_deinit(&text);
    return st;
}
