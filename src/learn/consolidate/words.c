#include "learn/consolidate/words.h"

#include <string.h>

#include "base/utf8.h"
#include "text/chars.h"
#include "text/unicode.h"

typedef struct reader {
    const char *text;
    size_t len;
} reader;

/* The character at i, and where the next one begins. 0 at the end. */
static uint32_t next(const reader *r, size_t i, size_t *after)
{
    uint32_t cp = 0;
    *after = i < r->len ? i + rvi_utf8_decode(r->text + i, r->len - i, &cp, NULL) : i;
    return cp;
}

static bool is_apostrophe(uint32_t cp)
{
    return cp == '\'' || cp == 0x2019 || cp == 0x02BC;
}

/* Marks that sit on the letter before them */
static bool is_mark(uint32_t cp)
{
    return cp >= 0x300 && !(cp >= 0x2000 && cp < 0x2070) && cp < 0xFE00 && rvi_char_ignorable(cp);
}

/* Behind a letter or digit that ends at `at`: the end of the run of word characters. */
static size_t run_end(const reader *r, size_t at)
{
    for (size_t after;; at = after) {
        uint32_t cp = next(r, at, &after);
        if (after == at || !(rvi_char_alnum(cp) || is_mark(cp))) return at;
    }
}

/* Lower case, composed (NFC), apostrophes plain: appends. */
static rv_status fold(const char *text, size_t len, rvi_buf *out, rv_error *err)
{
    char storage[256];
    rvi_buf low = rvi_buf_over(storage, sizeof storage);
    reader r = {text, len};
    bool plain = true;
    for (size_t i = 0, after; i < len; i = after) {
        uint32_t image[3], cp = next(&r, i, &after);
        if (is_apostrophe(cp)) cp = '\'';
        size_t n = rvi_char_to_lower(cp, image);
        for (size_t k = 0; k < n; k++) {
            char bytes[4];
            rvi_buf_append(&low, bytes, rvi_utf8_encode(image[k], bytes));
            plain = plain && image[k] < 0x80;
        }
    }
    rv_status st = RV_OK;
    if (low.failed || (plain && low.len && !rvi_buf_append(out, low.data, low.len)))
        st = rvi_nomem(err, "folded word");
    else if (!plain)
        st = rvi_unicode_normalize(RVI_NFC, low.data, low.len, out, err);
    rvi_buf_deinit(&low);
    return st;
}

/* Marks of sentences, which say nothing of what a text is about. Between digits they are parts of a
 * number. */
static bool is_punctuation(uint32_t cp)
{
    return (cp < 0x80 && cp && strchr(".,;:!?\"'`()", (int)cp)) || (cp >= 0x2018 && cp <= 0x201F) ||
           cp == 0x2026 || cp == 0xA1 || cp == 0xAB || cp == 0xBB || cp == 0xBF || cp == 0x3001 ||
           cp == 0x3002 || cp == 0xFF01 || cp == 0xFF0C || cp == 0xFF1F || cp == 0x060C ||
           cp == 0x061F;
}

static bool is_digit(uint32_t cp)
{
    return cp >= '0' && cp <= '9';
}

/* The runs of letters and digits, folded, each between single spaces; with signs, other characters
 * too, as far as they mean something. */
static rv_status normal(const char *text, size_t len, bool signs, rvi_buf *out, rv_error *err)
{
    reader r = {text, len};
    rv_status st = RV_OK;
    uint32_t before = 0;
    rvi_buf_putc(out, ' ');
    for (size_t i = 0, after; i < len && !st; i = after) {
        size_t behind;
        uint32_t cp = next(&r, i, &after), ahead = next(&r, after, &behind);
        bool in_number = is_digit(before) && is_digit(ahead);
        bool joins = cp == '-' && rvi_char_alnum(before) && rvi_char_alnum(ahead);
        bool counts = rvi_char_alnum(cp);
        if (counts)
            after = run_end(&r, i);
        else
            counts = signs && !rvi_char_space(cp) && ((!is_punctuation(cp) && !joins) || in_number);
        unsigned char last = (unsigned char)text[after - 1];
        before = last < 0x80 ? last : cp;
        if (!counts) continue;
        st = fold(text + i, after - i, out, err);
        rvi_buf_putc(out, ' ');
    }
    return !st && out->failed ? rvi_nomem(err, "normal form of a text") : st;
}

rv_status rvi_words_same(bool *out, const char *a, size_t a_len, const char *b, size_t b_len,
                         rv_error *err)
{
    rvi_buf na = {0}, nb = {0};
    *out = false;
    rv_status st = normal(a, a_len, true, &na, err);
    if (!st) st = normal(b, b_len, true, &nb, err);
    if (!st && na.len == 1 && nb.len == 1) /* "???" */
        *out = a_len == b_len && !memcmp(a, b, a_len);
    else if (!st)
        *out = na.len == nb.len && !memcmp(na.data, nb.data, na.len);
    rvi_buf_deinit(&na);
    rvi_buf_deinit(&nb);
    return st;
}

rv_status rvi_words_key(uint64_t *out, const char *text, size_t len, rv_error *err)
{
    rvi_buf form = {0};
    uint64_t key = 0xcbf29ce484222325u; /* FNV-1a */
    rv_status st = normal(text, len, true, &form, err);
    for (size_t i = 0; !st && i < form.len; i++)
        key = (key ^ (unsigned char)form.data[i]) * 0x100000001b3u;
    *out = key;
    rvi_buf_deinit(&form);
    return st;
}

rv_status rvi_words_contain(bool *out, const char *text, size_t text_len, const char *answer,
                            size_t answer_len, rv_error *err)
{
    rvi_buf a = {0}, b = {0};
    *out = false;
    rv_status st = normal(text, text_len, false, &a, err);
    if (!st) st = normal(answer, answer_len, false, &b, err);
    if (!st && b.len > 1) *out = strstr(a.data, b.data) != NULL;
    rvi_buf_deinit(&a);
    rvi_buf_deinit(&b);
    return st;
}
