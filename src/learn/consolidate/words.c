#include "learn/consolidate/words.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "learn/consolidate/english.h"
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
    char storage[4 * RVI_WORD_MAX];
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

/* Bytes of text that stay within max without half a character at the end */
static size_t cut(const char *text, size_t len, size_t max)
{
    if (len <= max) return len;
    for (len = max; len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80;) len--;
    return len;
}

static rv_status push(rvi_words *out, const char *text, rvi_word w, rv_error *err)
{
    char storage[4 * RVI_WORD_MAX];
    rvi_buf key = rvi_buf_over(storage, sizeof storage);
    rv_status st = fold(text + w.at, cut(text + w.at, w.len, RVI_WORD_MAX), &key, err);
    if (!st) {
        w.key = rvi_arena_strndup(&out->keys, key.data ? key.data : "", key.len);
        if (!w.key) st = rvi_nomem(err, "words");
    }
    rvi_buf_deinit(&key);
    if (st) return st;
    if (out->n == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 32;
        rvi_word *data = rvi_realloc_array(out->data, cap, sizeof *data);
        if (!data) return rvi_nomem(err, "words");
        out->data = data;
        out->cap = cap;
    }
    out->data[out->n++] = w;
    return RV_OK;
}

/* Where the letters behind the apostrophe at `at` end; `at` if there is nothing of the kind. */
static size_t apostrophe_run(const reader *r, size_t at, uint32_t *first)
{
    size_t after, ignored;
    if (!is_apostrophe(next(r, at, &after))) return at;
    size_t tail = run_end(r, after);
    *first = next(r, after, &ignored);
    return tail > after && rvi_char_alpha(*first) ? tail : at;
}

/* Where the possessive of the word from..at ends; `at` if there is none. */
static size_t possessive_end(const reader *r, size_t from, size_t at)
{
    uint32_t first = 0;
    size_t after, tail = apostrophe_run(r, at, &first);
    bool apostrophe = is_apostrophe(next(r, at, &after));
    if (tail == after + 1 && (first == 's' || first == 'S')) return tail;
    /* an apostrophe and no letters: of a plural, if there is an s before */
    bool plural = at > from + 1 && (r->text[at - 1] == 's' || r->text[at - 1] == 'S');
    return apostrophe && plural && run_end(r, after) == after ? after : at;
}

/* Reads the word that begins at i: a run, an apostrophe with another run behind it ("don't",
 * "O'Hara"), and the possessive. */
static rvi_word read_word(const reader *r, size_t i)
{
    uint32_t first = 0;
    size_t after, end = run_end(r, i);
    rvi_word w = {.at = i, .capital = rvi_char_upper(next(r, i, &after))};
    if (possessive_end(r, i, end) == end) {
        size_t tail = apostrophe_run(r, end, &first);
        w.capital = w.capital || (tail > end && rvi_char_upper(first));
        end = tail;
    }
    w.len = end - i;
    w.end = possessive_end(r, i, end);
    w.possessive = w.end > end;
    return w;
}

static bool is_hyphen(uint32_t cp)
{
    return cp == '-' || cp == 0x2010 || cp == 0x2011;
}

/* The "&" of a firm, a hyphen directly behind the word before, or the point of "Dr." */
static bool joins(const rvi_words *w, uint32_t cp, bool directly)
{
    static const char titles[] = " dr mr mrs ms st prof jr sr ";
    if (cp == '&' || (directly && is_hyphen(cp))) return true;
    return directly && cp == '.' && w->n && rvi_english_among(w->data[w->n - 1].key, titles);
}

static bool is_shouted(const reader *r, const rvi_word *w)
{
    size_t second, after;
    next(r, w->at, &second);
    return second < w->at + w->len && rvi_char_upper(next(r, second, &after));
}

/* "Anna's Volvo", "Fisher's Loft", "FISHER'S LOFT": spelling does not tell whether something is
 * owned. "Anna's PIN" does. */
static void doubt_possessive(const reader *r, rvi_words *out, const rvi_word *w)
{
    rvi_word *before = out->n ? &out->data[out->n - 1] : NULL;
    if (!before || !w->joined || w->hyphen || !w->capital || !before->capital) return;
    if (is_shouted(r, before) != is_shouted(r, w)) return;
    if (rvi_english_is(before->key, RVI_EN_FUNCTION)) return; /* "What's" */
    before->may_own = before->possessive;
    before->possessive = false;
}

rv_status rvi_words_split(rvi_words *out, const char *text, size_t len, rv_error *err)
{
    reader r = {text, len};
    bool joined = false;
    size_t last_end = 0, hyphen_end = 0; /* behind the last word, and behind a hyphen there */
    for (size_t i = 0, after; i < len && out->n < RVI_WORDS_MAX; i = after) {
        uint32_t cp = next(&r, i, &after);
        if (!rvi_char_alnum(cp)) {
            bool directly = i == last_end;
            joined = joined && (rvi_unicode_is_space(cp) || joins(out, cp, directly));
            if (directly && is_hyphen(cp)) hyphen_end = after;
            continue;
        }
        rvi_word w = read_word(&r, i);
        w.joined = joined;
        w.hyphen = joined && i == hyphen_end;
        doubt_possessive(&r, out, &w);
        joined = true;
        after = last_end = w.end;
        rv_status st = push(out, text, w, err);
        if (st) return st;
    }
    return RV_OK;
}

void rvi_words_deinit(rvi_words *w)
{
    rvi_free(w->data);
    rvi_arena_deinit(&w->keys);
    *w = (rvi_words){0};
}

/* SentencePiece-like tokenizers put the space before a text themselves. */
static rv_status adds_space(const rvi_tokenizer *t, bool *out, rv_error *err)
{
    rvi_ids ids = {0};
    size_t len = 0;
    rv_status st = rvi_tokenizer_encode(t, "a", 1, RVI_TOK_PLAIN, &ids, err);
    const char *piece = ids.len ? rvi_tokenizer_text(t, ids.data[0], &len) : NULL;
    *out = piece && len >= 3 && !memcmp(piece, "\xE2\x96\x81", 3);
    rvi_ids_deinit(&ids);
    return st;
}

rv_status rvi_words_weigh(const rvi_tokenizer *t, const char *word, size_t len, double *out,
                          rv_error *err)
{
    char storage[2 * RVI_WORD_MAX];
    rvi_buf text = rvi_buf_over(storage, sizeof storage);
    rvi_ids ids = {0};
    bool spaced;
    *out = 0;
    rv_status st = adds_space(t, &spaced, err);
    if (!spaced) rvi_buf_putc(&text, ' ');
    if (len) rvi_buf_append(&text, word, len);
    if (!st && text.failed) st = rvi_nomem(err, "word");
    if (!st) st = rvi_tokenizer_encode(t, text.data, text.len, RVI_TOK_PLAIN, &ids, err);
    for (size_t i = 0; i < ids.len; i++) *out += log((double)ids.data[i] + 1);
    rvi_ids_deinit(&ids);
    rvi_buf_deinit(&text);
    return st;
}

rv_status rvi_words_rarity(const rvi_tokenizer *t, const char *word, size_t len, double *out,
                           rv_error *err)
{
    char storage[2 * RVI_WORD_MAX];
    rvi_buf capital = rvi_buf_over(storage, sizeof storage);
    reader r = {word, len};
    uint32_t image[3];
    size_t from;
    double sum = 0;
    size_t n = rvi_char_to_title(next(&r, 0, &from), image);
    for (size_t k = 0; k < n && from; k++) {
        char bytes[4];
        rvi_buf_append(&capital, bytes, rvi_utf8_encode(image[k], bytes));
    }
    if (len > from) rvi_buf_append(&capital, word + from, len - from);
    rv_status st = rvi_words_weigh(t, word, len, out, err);
    if (!st && capital.failed) st = rvi_nomem(err, "word");
    if (!st) st = rvi_words_weigh(t, capital.data, capital.len, &sum, err);
    if (!st && sum < *out) *out = sum;
    rvi_buf_deinit(&capital);
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
