/* normal_forms.c - NFC, NFD, NFKC and NFKD (Unicode Standard Annex 15).
 *
 * The text is decomposed into an array of code points, each with its combining class in the upper
 * byte; runs of non-zero class are sorted by class (stable); then, for the composed forms, pairs
 * are put together again. */
#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_N_L = 19,
    HANGUL_N_V = 21,
    HANGUL_N_T = 28,
    HANGUL_N_S = HANGUL_N_L * HANGUL_N_V * HANGUL_N_T,
};

typedef struct chars {
    uint32_t *data; /* class << 24 | code point */
    size_t n, cap;
} chars;

static bool push(chars *a, uint32_t c)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 256;
        uint32_t *data = rvi_realloc_array(a->data, cap, sizeof *data);
        if (!data) return false;
        a->data = data;
        a->cap = cap;
    }
    a->data[a->n++] = c;
    return true;
}

uint32_t rvi_unicode_combining_class(uint32_t cp)
{
    if (cp < 0x300) return 0;
    size_t lo = 0, hi = rvi_unicode_n_ccc;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rvi_unicode_ccc[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < rvi_unicode_n_ccc && rvi_unicode_ccc[lo].first <= cp ? rvi_unicode_ccc[lo].value
                                                                     : 0;
}

static bool push_classed(chars *a, uint32_t cp)
{
    return push(a, rvi_unicode_combining_class(cp) << 24 | cp);
}

static bool decompose(chars *a, uint32_t cp, bool compatible)
{
    if (cp < 0xA0) return push(a, cp);
    if (cp >= HANGUL_S && cp < HANGUL_S + HANGUL_N_S) {
        uint32_t s = cp - HANGUL_S, t = s % HANGUL_N_T;
        return push(a, HANGUL_L + s / (HANGUL_N_V * HANGUL_N_T)) &&
               push(a, HANGUL_V + s % (HANGUL_N_V * HANGUL_N_T) / HANGUL_N_T) &&
               (!t || push(a, HANGUL_T + t));
    }
    size_t lo = 0, hi = rvi_unicode_n_decompositions;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rvi_unicode_decompositions[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    const rvi_unicode_decomposition *found = NULL;
    for (; lo < rvi_unicode_n_decompositions && rvi_unicode_decompositions[lo].cp == cp; lo++)
        if (compatible || !(rvi_unicode_decompositions[lo].length_mark & 1))
            found = &rvi_unicode_decompositions[lo];
    if (!found) return push_classed(a, cp);
    for (size_t i = 0; i < (size_t)(found->length_mark >> 1); i++)
        if (!push_classed(a, rvi_unicode_pool[found->offset + i])) return false;
    return true;
}

/* Stable sort of one run by class: by insertion when short, by counting when long. */
static bool sort_run(uint32_t *run, size_t n)
{
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            uint32_t c = run[i];
            size_t k = i;
            for (; k && run[k - 1] >> 24 > c >> 24; k--) run[k] = run[k - 1];
            run[k] = c;
        }
        return true;
    }
    uint32_t *copy = rvi_alloc_array(n, sizeof *copy);
    if (!copy) return false;
    size_t at[257] = {0};
    memcpy(copy, run, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) at[(copy[i] >> 24) + 1]++;
    for (size_t k = 1; k < RVI_COUNT(at); k++) at[k] += at[k - 1];
    for (size_t i = 0; i < n; i++) run[at[copy[i] >> 24]++] = copy[i];
    rvi_free(copy);
    return true;
}

static bool reorder(chars *a)
{
    for (size_t i = 0, end; i < a->n; i = end) {
        for (end = i + 1; a->data[i] >> 24 && end < a->n && a->data[end] >> 24;) end++;
        if (end - i > 1 && !sort_run(a->data + i, end - i)) return false;
    }
    return true;
}

/* 0: the two do not compose */
static uint32_t composed(uint32_t a, uint32_t b)
{
    if (a - HANGUL_L < HANGUL_N_L && b - HANGUL_V < HANGUL_N_V)
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_N_V + (b - HANGUL_V)) * HANGUL_N_T;
    if (a - HANGUL_S < HANGUL_N_S && (a - HANGUL_S) % HANGUL_N_T == 0 && b > HANGUL_T &&
        b < HANGUL_T + HANGUL_N_T)
        return a + (b - HANGUL_T);
    size_t lo = 0, hi = rvi_unicode_n_compositions;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const rvi_unicode_pair *p = &rvi_unicode_compositions[mid];
        if (p->first < a || (p->first == a && p->second < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    const rvi_unicode_pair *p = &rvi_unicode_compositions[lo];
    return lo < rvi_unicode_n_compositions && p->first == a && p->second == b ? p->composed : 0;
}

static void compose(chars *a)
{
    size_t kept = 0, starter = SIZE_MAX;
    uint32_t last_class = 0; /* of the last kept character behind the starter; 0: none there */
    for (size_t i = 0; i < a->n; i++) {
        uint32_t c = a->data[i], class = c >> 24;
        if (starter != SIZE_MAX && (!last_class || last_class < class)) {
            uint32_t both = composed(a->data[starter], c & 0xFFFFFF);
            if (both) {
                a->data[starter] = both;
                continue;
            }
        }
        if (!class) starter = kept;
        last_class = class;
        a->data[kept++] = c;
    }
    a->n = kept;
}

/* All that comes before the first character which could change in this form */
static size_t untouched(rvi_unicode_form form, const char *text, size_t len)
{
    size_t i = 0;
    if (form == RVI_NFC) /* below U+0300 everything is composed and of class 0, but the last may
                            compose with what follows */
        while (i < len && (unsigned char)text[i] < 0xCC) i++;
    else
        while (i < len && (unsigned char)text[i] < 0x80) i++;
    if (i == len) return len;
    if (i) i--; /* i was at a first byte */
    while (i && ((unsigned char)text[i] & 0xC0) == 0x80) i--;
    return i;
}

rv_status rvi_unicode_normalize(rvi_unicode_form form, const char *text, size_t len, rvi_buf *out,
                                rv_error *err)
{
    size_t i = untouched(form, text, len);
    if (!rvi_buf_append(out, text, i)) return rvi_nomem(err, "normalized text");
    if (i == len) return RV_OK;

    chars a = {0};
    bool ok = true;
    while (ok && i < len) {
        uint32_t cp;
        i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
        ok = decompose(&a, cp, form == RVI_NFKC || form == RVI_NFKD);
    }
    ok = ok && reorder(&a);
    if (ok && (form == RVI_NFC || form == RVI_NFKC)) compose(&a);
    ok = ok && rvi_buf_reserve(out, a.n * 4);
    for (size_t k = 0; ok && k < a.n; k++) {
        char bytes[4];
        ok = rvi_buf_append(out, bytes, rvi_utf8_encode(a.data[k] & 0xFFFFFF, bytes));
    }
    rvi_free(a.data);
    return ok ? RV_OK : rvi_nomem(err, "normalized text");
}
