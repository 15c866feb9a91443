/* jinja_text_ops.c - what filters and methods of strings share: finding, replacing, stripping,
 * case, numbers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "template/jinja_run.h"

/* ---- finding ---- */

enum { SHORT_NEEDLE = 16 }; /* up to here the plain search is at worst so many times slower */

bool rvi_jfinder_init(rvi_jrun *r, rvi_jfinder *f, const char *needle, size_t len, size_t hay_len)
{
    *f = (rvi_jfinder){.needle = needle, .len = len};
    if (!rvi_jinja_charge(r, (hay_len / 64 + 1) * (RVI_MIN(len, (size_t)SHORT_NEEDLE) / 4 + 1)))
        return false;
    if (len <= SHORT_NEEDLE) return true;
    f->border = rvi_jinja_alloc(r, len, sizeof *f->border);
    if (!f->border || !rvi_jinja_charge_bytes(r, 4 * len)) return false;
    /* border[i]: length of the longest proper prefix of needle[0..i] that is also its suffix */
    for (size_t i = 1, k = 0; i < len; i++) {
        while (k && needle[i] != needle[k]) k = f->border[k - 1];
        if (needle[i] == needle[k]) k++;
        f->border[i] = (uint32_t)k;
    }
    return true;
}

size_t rvi_jfinder_next(const rvi_jfinder *f, const char *hay, size_t hay_len, size_t from)
{
    if (hay_len < f->len) return SIZE_MAX;
    if (!f->border) {
        while (from <= hay_len - f->len) {
            const char *hit = memchr(hay + from, f->needle[0], hay_len - f->len + 1 - from);
            if (!hit) return SIZE_MAX;
            from = (size_t)(hit - hay);
            if (!memcmp(hit, f->needle, f->len)) return from;
            from++;
        }
        return SIZE_MAX;
    }
    for (size_t i = from, k = 0; i < hay_len; i++) {
        while (k && hay[i] != f->needle[k]) k = f->border[k - 1];
        if (hay[i] == f->needle[k]) k++;
        if (k == f->len) return i + 1 - k;
    }
    return SIZE_MAX;
}

size_t rvi_jfinder_last(const rvi_jfinder *f, const char *hay, size_t end)
{
    size_t last = SIZE_MAX;
    if (!f->border) {
        for (size_t i = end < f->len ? 0 : end - f->len + 1; i-- > 0;)
            if (hay[i] == f->needle[0] && !memcmp(hay + i, f->needle, f->len)) return i;
        return SIZE_MAX;
    }
    for (size_t i = 0, k = 0; i < end; i++) { /* forwards, with overlaps: linear */
        while (k && hay[i] != f->needle[k]) k = f->border[k - 1];
        if (hay[i] == f->needle[k]) k++;
        if (k < f->len) continue;
        last = i + 1 - k;
        k = f->border[k - 1];
    }
    return last;
}

/* ---- replacing, stripping ---- */

rvi_jv rvi_jinja_replace(rvi_jrun *r, const rvi_jstr *s, const rvi_jstr *old, const rvi_jstr *fresh,
                         int64_t count)
{
    rvi_jfinder f;
    size_t start = rvi_jinja_build(r), pos = 0;
    if (count < 0) count = INT64_MAX;
    if (!rvi_jfinder_init(r, &f, old->data, old->len, s->len)) return RVI_JV(FAIL);
    while (count-- > 0) {
        size_t hit = old->len ? rvi_jfinder_next(&f, s->data, s->len, pos) : pos;
        if (hit == SIZE_MAX) break;
        rvi_jinja_append(r, &r->scratch, s, pos, hit - pos);
        rvi_jinja_append(r, &r->scratch, fresh, 0, fresh->len);
        if (!rvi_jinja_charge_bytes(r, fresh->len) || r->scratch.failed) break;
        pos = hit + old->len;
        if (old->len) continue;
        uint32_t cp; /* an empty pattern matches before every character and at the end */
        if (pos == s->len) break;
        size_t used = rvi_utf8_decode(s->data + pos, s->len - pos, &cp, NULL);
        rvi_jinja_append(r, &r->scratch, s, pos, used);
        pos += used;
    }
    rvi_jinja_append(r, &r->scratch, s, pos, s->len - pos);
    return rvi_jinja_take(r, start);
}

static bool strippable(uint32_t c, const rvi_jstr *chars)
{
    char bytes[4];
    if (!chars) return rvi_char_space(c);
    if (!chars->len) return false;
    size_t n = rvi_utf8_encode(c, bytes);
    for (size_t i = 0; i + n <= chars->len; i++) /* UTF-8: a hit is always a whole character */
        if (!memcmp(chars->data + i, bytes, n)) return true;
    return false;
}

rvi_jv rvi_jinja_strip(rvi_jrun *r, const rvi_jstr *s, rvi_jv chars, bool left, bool right)
{
    const rvi_jstr *set = NULL;
    size_t from = 0, to = s->len;
    uint32_t cp;
    if (rvi_jarg_given(chars) && !rvi_jarg_str(r, chars, "strip argument", &set))
        return RVI_JV(FAIL);
    const uint64_t price = set ? set->len / 16 + 1 : 0; /* of one character compared with the set */
    while (left && from < to) {
        size_t used = rvi_utf8_decode(s->data + from, to - from, &cp, NULL);
        if (!rvi_jinja_charge(r, price)) return RVI_JV(FAIL);
        if (!strippable(cp, set)) break;
        from += used;
    }
    while (right && to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)s->data[start] & 0xC0) == 0x80) start--;
        rvi_utf8_decode(s->data + start, to - start, &cp, NULL);
        if (!rvi_jinja_charge(r, price)) return RVI_JV(FAIL);
        if (!strippable(cp, set)) break;
        to = start;
    }
    if (!rvi_jinja_charge(r, (s->len - (to - from)) / 16)) return RVI_JV(FAIL);
    return rvi_jv_part(r, s, from, to - from);
}

rvi_jv rvi_jinja_splitlines(rvi_jrun *r, const rvi_jstr *s, bool keep_ends)
{
    rvi_jvec lines = {0};
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        size_t start = i, end = s->len;
        while (i < s->len) {
            uint32_t cp;
            size_t used = rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
            if (rvi_char_line_end(cp)) {
                end = i;
                i += used + (cp == '\r' && i + 1 < s->len && s->data[i + 1] == '\n');
                break;
            }
            i += used;
        }
        rvi_jv line = rvi_jv_part(r, s, start, (keep_ends ? i : end) - start);
        if (rvi_jv_failed(line) || !rvi_jvec_push(r, &lines, line)) return RVI_JV(FAIL);
    }
    return rvi_jvec_finish(r, &lines, RVI_J_LIST);
}

/* ---- case ---- */

/* Does the capital sigma at byte i of s end a word? Then its lower case is the final form. */
static bool final_sigma(const rvi_jstr *s, size_t i)
{
    uint32_t c;
    size_t p = i;
    bool before = false;
    while (p > 0) {
        p--;
        while (p > 0 && ((unsigned char)s->data[p] & 0xC0) == 0x80) p--;
        rvi_utf8_decode(s->data + p, s->len - p, &c, NULL);
        if (rvi_char_ignorable(c)) continue;
        before = rvi_char_cased(c);
        break;
    }
    if (!before) return false;
    for (p = i + 2; p < s->len;) { /* U+03A3 has two bytes */
        p += rvi_utf8_decode(s->data + p, s->len - p, &c, NULL);
        if (!rvi_char_ignorable(c)) return !rvi_char_cased(c);
    }
    return true;
}

rvi_jv rvi_jinja_recase(rvi_jrun *r, const rvi_jstr *s, rvi_jcase how)
{
    size_t start = rvi_jinja_build(r);
    bool after_cased = false;
    if (!rvi_jinja_charge_chars(r, 2 * s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        uint32_t c, image[3];
        size_t at = i, n;
        i += rvi_utf8_decode(s->data + i, s->len - i, &c, NULL);
        bool upper = how == RVI_JCASE_UPPER;
        bool title =
            (how == RVI_JCASE_CAPITALIZE && at == 0) || (how == RVI_JCASE_TITLE && !after_cased);
        if (title) {
            n = rvi_char_to_title(c, image);
        } else if (upper) {
            n = rvi_char_to_upper(c, image);
        } else if (c == 0x3A3) {
            image[0] = rvi_jinja_charge_bytes(r, 64) && final_sigma(s, at) ? 0x3C2 : 0x3C3;
            n = 1;
        } else {
            n = rvi_char_to_lower(c, image);
        }
        after_cased = rvi_char_cased(c);
        size_t begin = r->scratch.len;
        rvi_jstr origin = rvi_jstr_piece(s, at, i - at);
        for (size_t k = 0; k < n; k++) {
            char bytes[4];
            rvi_buf_append(&r->scratch, bytes, rvi_utf8_encode(image[k], bytes));
        }
        if (origin.user && *origin.user) rvi_jinja_trace(r, &r->scratch, &origin, begin);
    }
    return rvi_jinja_take(r, start);
}

/* ---- numbers ---- */

/* The text without white space around it and underscores between digits, as Python's int() and
 * float() read it. */
static bool number_text(const rvi_jstr *s, char *out, size_t cap)
{
    size_t from = 0, to = s->len, n = 0;
    uint32_t cp;
    while (from < to) {
        size_t used = rvi_utf8_decode(s->data + from, to - from, &cp, NULL);
        if (!rvi_char_space(cp)) break;
        from += used;
    }
    while (to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)s->data[start] & 0xC0) == 0x80) start--;
        rvi_utf8_decode(s->data + start, to - start, &cp, NULL);
        if (!rvi_char_space(cp)) break;
        to = start;
    }
    for (size_t i = from; i < to; i++) {
        char c = s->data[i];
        if (!c || (unsigned char)c >= 0x80 || n + 1 >= cap) return false;
        if (c == '_') { /* only between two alphanumeric characters */
            if (i == from || i + 1 == to || !rvi_char_alnum((unsigned char)s->data[i - 1]) ||
                !rvi_char_alnum((unsigned char)s->data[i + 1]))
                return false;
            continue;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return n > 0;
}

bool rvi_jinja_parse_int(const rvi_jstr *s, int64_t base, int64_t *out, bool *too_big)
{
    char text[128], *end;
    *too_big = false;
    if ((base != 0 && base < 2) || base > 36 || !number_text(s, text, sizeof text)) return false;
    char *p = text + (text[0] == '-' || text[0] == '+');
    char mark = p[0] == '0' ? (char)(p[1] | 0x20) : 0;
    int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked && (base == marked || base == 0)) {
        base = marked;
        memmove(p, p + 2, strlen(p + 2) + 1);
    } else if (base == 0) {
        if (p[0] == '0' && strspn(p, "0") != strlen(p)) return false;
        base = 10;
    }
    if (!rvi_char_alnum((unsigned char)*p)) return false; /* strtoll would take blanks and signs */
    if (base == 16 && p[0] == '0' && (p[1] | 0x20) == 'x') return false;
    errno = 0;
    *out = strtoll(text, &end, (int)base);
    if (*end) return false;
    *too_big = errno == ERANGE;
    return true;
}

bool rvi_jinja_parse_float(const rvi_jstr *s, double *out)
{
    char text[400];
    const char *end;
    if (!number_text(s, text, sizeof text)) return false;
    for (const char *p = text; *p; p++) /* no hexadecimal floats, no nan(...) */
        if (*p == 'x' || *p == 'X' || *p == '(' || rvi_char_space((unsigned char)*p)) return false;
    *out = rvi_number_parse(text, &end);
    return end > text && !*end;
}
