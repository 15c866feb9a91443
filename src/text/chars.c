#include "text/chars.h"

#include "base/compat.h"
#include "text/unicode.h"

/* ---- tables ---- */

static unsigned category(uint32_t c)
{
    size_t low = 0, high = rvi_unicode_n_categories; /* the first entry begins at 0 */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (rvi_unicode_categories[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return rvi_unicode_categories[low] & 0xFF;
}

static bool in_ranges(const rvi_unicode_range *ranges, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && c >= ranges[low].first;
}

static bool has_property(rvi_unicode_property_index which, uint32_t c)
{
    const rvi_unicode_property *p = &rvi_unicode_properties[which];
    return in_ranges(rvi_unicode_ranges + p->offset, p->count, c);
}

static uint32_t mapped(const rvi_unicode_mapping *maps, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (maps[middle].first <= c)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low) return c;
    const rvi_unicode_mapping *m = &maps[low - 1];
    if (c > m->last || (c - m->first) % m->step) return c;
    return (uint32_t)((int32_t)c + m->distance);
}

/* 0: none */
static size_t expanded(const rvi_unicode_expansion *table, size_t n, uint32_t c, uint32_t out[3])
{
    for (size_t i = 0; i < n && table[i].from <= c; i++) {
        if (table[i].from != c) continue;
        size_t k = 0;
        for (; k < 3 && table[i].to[k]; k++) out[k] = table[i].to[k];
        return k;
    }
    return 0;
}

/* ---- properties ---- */

bool rvi_char_space(uint32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || rvi_unicode_is_space(c);
}

bool rvi_char_line_end(uint32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

rvi_char_class rvi_char_class_of(uint32_t c)
{
    static const unsigned char last[] = {RVI_CATEGORY_LO, RVI_CATEGORY_ME, RVI_CATEGORY_NO,
                                         RVI_CATEGORY_PO, RVI_CATEGORY_SO, RVI_CATEGORY_ZP};
    unsigned k = category(c), i = 0;
    while (i < RVI_COUNT(last) && k > last[i]) i++;
    return (rvi_char_class)i;
}

bool rvi_char_alnum(uint32_t c)
{
    if (c < 0x80) return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9');
    unsigned k = category(c);
    return k <= RVI_CATEGORY_LO || (k >= RVI_CATEGORY_ND && k <= RVI_CATEGORY_NO);
}

bool rvi_char_word(uint32_t c)
{
    return c == '_' || rvi_char_alnum(c);
}

bool rvi_char_lower(uint32_t c)
{
    if (c < 0x80) return c >= 'a' && c <= 'z';
    return category(c) == RVI_CATEGORY_LL || has_property(RVI_OTHER_LOWERCASE, c);
}

bool rvi_char_upper(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    return category(c) == RVI_CATEGORY_LU || has_property(RVI_OTHER_UPPERCASE, c);
}

bool rvi_char_title(uint32_t c)
{
    return c >= 0x80 && category(c) == RVI_CATEGORY_LT;
}

bool rvi_char_cased(uint32_t c)
{
    return rvi_char_lower(c) || rvi_char_upper(c) || rvi_char_title(c);
}

bool rvi_char_ignorable(uint32_t c)
{
    static const uint32_t between_letters[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                               0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                               0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    for (size_t i = 0; i < RVI_COUNT(between_letters); i++)
        if (between_letters[i] == c) return true;
    switch (category(c)) {
    case RVI_CATEGORY_MN:
    case RVI_CATEGORY_ME:
    case RVI_CATEGORY_CF:
    case RVI_CATEGORY_SK:
    case RVI_CATEGORY_LM: return true;
    default: return false;
    }
}

bool rvi_char_printable(uint32_t c)
{
    return c == ' ' || category(c) < RVI_CATEGORY_ZS;
}

/* ---- case ---- */

size_t rvi_char_to_upper(uint32_t c, uint32_t out[3])
{
    size_t n = expanded(rvi_unicode_upper_long, rvi_unicode_n_upper_long, c, out);
    if (n) return n;
    out[0] = mapped(rvi_unicode_upper, rvi_unicode_n_upper, c);
    return 1;
}

size_t rvi_char_to_lower(uint32_t c, uint32_t out[3])
{
    if (c == 0x130) { /* the only one that becomes two: i and a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = rvi_unicode_to_lower(c);
    return 1;
}

size_t rvi_char_to_title(uint32_t c, uint32_t out[3])
{
    size_t n = expanded(rvi_unicode_title_long, rvi_unicode_n_title_long, c, out);
    return n ? n : rvi_char_to_upper(c, out);
}

/* ---- width ---- */

int rvi_char_width(uint32_t c)
{
    unsigned kind = category(c);
    bool joins = kind == RVI_CATEGORY_MN || kind == RVI_CATEGORY_ME || kind == RVI_CATEGORY_CF;
    if (c >= 0x1160 && c <= 0x11FF) return 0; /* Hangul vowels and final consonants */
    if (joins && c != 0xAD) return 0;         /* a soft hyphen is shown as a hyphen */
    return in_ranges(rvi_unicode_wide, rvi_unicode_n_wide, c) ? 2 : 1;
}
