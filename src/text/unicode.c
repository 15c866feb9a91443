/* unicode.c - sets of code points: building, set algebra, properties by name, case. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* the order of the categories in the generated table */
static const char category_names[][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

static const rvi_unicode_range white_space[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
};

void rvi_cpset_deinit(rvi_cpset *s)
{
    rvi_free(s->ranges);
    *s = (rvi_cpset){0};
}

static bool reserve(rvi_cpset *s, size_t more)
{
    if (more <= s->cap - s->n) return true;
    size_t cap = RVI_MAX(s->cap * 2, s->n + more);
    cap = RVI_MAX(cap, (size_t)4);
    rvi_unicode_range *ranges = rvi_realloc_array(s->ranges, cap, sizeof *ranges);
    if (!ranges) return false;
    s->ranges = ranges;
    s->cap = cap;
    return true;
}

bool rvi_cpset_add(rvi_cpset *s, uint32_t first, uint32_t last)
{
    if (!reserve(s, 1)) return false;
    s->ranges[s->n++] = (rvi_unicode_range){first, last};
    return true;
}

static bool add_ranges(rvi_cpset *s, const rvi_unicode_range *ranges, size_t n)
{
    if (!reserve(s, n)) return false;
    if (n) memcpy(s->ranges + s->n, ranges, n * sizeof *ranges);
    s->n += n;
    return true;
}

bool rvi_cpset_add_set(rvi_cpset *s, const rvi_cpset *other)
{
    return add_ranges(s, other->ranges, other->n);
}

static int by_first(const void *a, const void *b)
{
    uint32_t x = ((const rvi_unicode_range *)a)->first, y = ((const rvi_unicode_range *)b)->first;
    return x < y ? -1 : x > y;
}

void rvi_cpset_close(rvi_cpset *s)
{
    size_t kept = 0;
    if (s->n) qsort(s->ranges, s->n, sizeof *s->ranges, by_first);
    for (size_t i = 0; i < s->n; i++) {
        rvi_unicode_range r = s->ranges[i];
        if (kept && r.first <= s->ranges[kept - 1].last + 1)
            s->ranges[kept - 1].last = RVI_MAX(s->ranges[kept - 1].last, r.last);
        else
            s->ranges[kept++] = r;
    }
    s->n = kept;
    memset(s->low, 0, sizeof s->low);
    for (size_t i = 0; i < kept && s->ranges[i].first < 256; i++)
        for (uint32_t c = s->ranges[i].first; c <= s->ranges[i].last && c < 256; c++)
            s->low[c >> 3] |= (uint8_t)(1u << (c & 7));
}

bool rvi_cpset_invert(rvi_cpset *s)
{
    rvi_cpset out = {0};
    uint32_t next = 0;
    if (!reserve(&out, s->n + 1)) return false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->ranges[i].first > next)
            out.ranges[out.n++] = (rvi_unicode_range){next, s->ranges[i].first - 1};
        next = s->ranges[i].last + 1;
    }
    if (next <= RVI_UNICODE_LAST) out.ranges[out.n++] = (rvi_unicode_range){next, RVI_UNICODE_LAST};
    rvi_cpset_close(&out);
    rvi_cpset_deinit(s);
    *s = out;
    return true;
}

bool rvi_cpset_intersect(rvi_cpset *s, const rvi_cpset *other)
{
    rvi_cpset out = {0};
    size_t i = 0, k = 0;
    while (i < s->n && k < other->n) {
        uint32_t first = RVI_MAX(s->ranges[i].first, other->ranges[k].first);
        uint32_t last = RVI_MIN(s->ranges[i].last, other->ranges[k].last);
        if (first <= last && !rvi_cpset_add(&out, first, last)) {
            rvi_cpset_deinit(&out);
            return false;
        }
        if (s->ranges[i].last < other->ranges[k].last)
            i++;
        else
            k++;
    }
    rvi_cpset_close(&out);
    rvi_cpset_deinit(s);
    *s = out;
    return true;
}

bool rvi_cpset_search(const rvi_cpset *s, uint32_t cp)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->ranges[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->ranges[lo].first <= cp;
}

/* Code points with a common folding are one class; a class with one member in the set comes in
 * whole. */
bool rvi_cpset_fold(rvi_cpset *s)
{
    rvi_cpset hit = {0}; /* the foldings of members */
    bool ok = true;
    for (int pass = 0; pass < 2 && ok; pass++) {
        for (size_t i = 0; i < rvi_unicode_n_fold && ok; i++) {
            const rvi_unicode_mapping *m = &rvi_unicode_fold[i];
            for (uint32_t c = m->first; c <= m->last && ok; c += m->step) {
                uint32_t to = (uint32_t)((int32_t)c + m->distance);
                if (pass == 0) {
                    if (rvi_cpset_has(s, c) || rvi_cpset_has(s, to))
                        ok = rvi_cpset_add(&hit, to, to);
                } else if (rvi_cpset_has(&hit, to)) {
                    ok = rvi_cpset_add(s, c, c) && rvi_cpset_add(s, to, to);
                }
            }
        }
        rvi_cpset_close(&hit);
    }
    rvi_cpset_deinit(&hit);
    rvi_cpset_close(s);
    return ok;
}

/* ---- properties by name ---- */

/* Letter case and separators are ignored; both texts are short. */
static bool same_name(const char *a, size_t a_len, const char *b)
{
    size_t i = 0;
    for (;;) {
        while (i < a_len && (a[i] == '_' || a[i] == '-' || a[i] == ' ')) i++;
        while (*b == '_') b++;
        if (i == a_len || !*b) return i == a_len && !*b;
        char x = a[i++], y = *b++;
        if (x >= 'A' && x <= 'Z') x = (char)(x - 'A' + 'a');
        if (y >= 'A' && y <= 'Z') y = (char)(y - 'A' + 'a');
        if (x != y) return false;
    }
}

static bool add_categories(rvi_cpset *s, uint32_t wanted)
{
    for (size_t i = 0; i < rvi_unicode_n_categories; i++) {
        uint32_t first = rvi_unicode_categories[i] >> 8,
                 category = rvi_unicode_categories[i] & 0xFF;
        uint32_t last = i + 1 < rvi_unicode_n_categories ? (rvi_unicode_categories[i + 1] >> 8) - 1
                                                         : RVI_UNICODE_LAST;
        if (wanted >> category & 1 && !rvi_cpset_add(s, first, last)) return false;
    }
    return true;
}

static uint32_t category_mask(const char *names) /* "Lu Ll": all categories that begin so */
{
    uint32_t mask = 0;
    for (const char *p = names; *p; p += *p != ' ' && p[1] && p[1] != ' ' ? 2 : 1) {
        if (*p == ' ') continue;
        for (unsigned c = 0; c < RVI_COUNT(category_names); c++)
            if (category_names[c][0] == p[0] &&
                (!p[1] || p[1] == ' ' || category_names[c][1] == p[1]))
                mask |= 1u << c;
    }
    return mask;
}

static bool add_table(rvi_cpset *s, const char *name)
{
    for (size_t i = 0; i < rvi_unicode_n_properties; i++)
        if (!strcmp(rvi_unicode_properties[i].name, name))
            return add_ranges(s, rvi_unicode_ranges + rvi_unicode_properties[i].offset,
                              rvi_unicode_properties[i].count);
    return true;
}

typedef struct derived { /* the union of some categories, one table and a few code points */
    const char *name, *categories, *table;
    const rvi_unicode_range *extra;
    size_t n_extra;
} derived;

#define EXTRA(array) array, RVI_COUNT(array)

static const rvi_unicode_range superscripts[] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
static const rvi_unicode_range joiners[] = {{0x200C, 0x200D}};
static const rvi_unicode_range hex_digits[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
static const rvi_unicode_range ascii[] = {{0, 0x7F}};

static const derived derived_properties[] = {
    {"Letter", "L", NULL, NULL, 0},
    {"Mark", "M", NULL, NULL, 0},
    {"Number", "N", NULL, NULL, 0},
    {"Punctuation", "P", NULL, NULL, 0},
    {"Punct", "P", NULL, NULL, 0},
    {"Symbol", "S", NULL, NULL, 0},
    {"Separator", "Z", NULL, NULL, 0},
    {"Other", "C", NULL, NULL, 0},
    {"Any", "L M N P S Z C", NULL, NULL, 0},
    {"Assigned", "L M N P S Z Cc Cf Cs Co", NULL, NULL, 0},
    {"LC", "Lu Ll Lt", NULL, NULL, 0},
    {"Uppercase_Letter", "Lu", NULL, NULL, 0},
    {"Lowercase_Letter", "Ll", NULL, NULL, 0},
    {"Titlecase_Letter", "Lt", NULL, NULL, 0},
    {"Modifier_Letter", "Lm", NULL, NULL, 0},
    {"Other_Letter", "Lo", NULL, NULL, 0},
    {"Nonspacing_Mark", "Mn", NULL, NULL, 0},
    {"Decimal_Number", "Nd", NULL, NULL, 0},
    {"Digit", "Nd", NULL, NULL, 0},
    {"Connector_Punctuation", "Pc", NULL, NULL, 0},
    {"Control", "Cc", NULL, NULL, 0},
    {"Cntrl", "Cc", NULL, NULL, 0},
    {"Alphabetic", "L Nl", "Other_Alphabetic", NULL, 0},
    {"Alpha", "L Nl", "Other_Alphabetic", NULL, 0},
    {"Alnum", "L Nl Nd", "Other_Alphabetic", NULL, 0},
    {"Uppercase", "Lu", "Other_Uppercase", NULL, 0},
    {"Upper", "Lu", "Other_Uppercase", NULL, 0},
    {"Lowercase", "Ll", "Other_Lowercase", NULL, 0},
    {"Lower", "Ll", "Other_Lowercase", NULL, 0},
    {"White_Space", "", NULL, EXTRA(white_space)},
    {"Space", "", NULL, EXTRA(white_space)},
    {"XDigit", "", NULL, EXTRA(hex_digits)},
    {"ASCII", "", NULL, EXTRA(ascii)},
    {"Posix_Punct", "P S", NULL, NULL, 0}, /* [[:punct:]] counts symbols too */
    /* \w of Oniguruma: outside of brackets it counts six superscripts and fractions of Latin-1
     * too */
    {"Word", "L M Nd Nl Pc", "Other_Alphabetic", EXTRA(superscripts)},
    {"Word_In_Brackets", "L M Nd Nl Pc", "Other_Alphabetic", NULL, 0},
    /* \w of the other engine in use: with the joiners instead */
    {"Word_With_Joiners", "L M Nd Nl Pc", "Other_Alphabetic", EXTRA(joiners)},
};

rvi_property_found rvi_cpset_add_property(rvi_cpset *s, const char *name, size_t len)
{
    bool ok = true;
    uint32_t mask = 0;
    for (unsigned c = 0; c < RVI_COUNT(category_names); c++) {
        const char one[2] = {category_names[c][0], 0};
        if (same_name(name, len, category_names[c]) || same_name(name, len, one)) mask |= 1u << c;
    }
    if (mask) return add_categories(s, mask) ? RVI_PROPERTY_OK : RVI_PROPERTY_NOMEM;

    for (size_t i = 0; i < RVI_COUNT(derived_properties); i++) {
        const derived *d = &derived_properties[i];
        if (!same_name(name, len, d->name)) continue;
        ok = add_categories(s, category_mask(d->categories)) &&
             (!d->table || add_table(s, d->table)) && add_ranges(s, d->extra, d->n_extra);
        return ok ? RVI_PROPERTY_OK : RVI_PROPERTY_NOMEM;
    }
    for (size_t i = 0; i < rvi_unicode_n_properties; i++)
        if (same_name(name, len, rvi_unicode_properties[i].name))
            return add_table(s, rvi_unicode_properties[i].name) ? RVI_PROPERTY_OK
                                                                : RVI_PROPERTY_NOMEM;
    return RVI_PROPERTY_UNKNOWN;
}

/* ---- single code points ---- */

uint32_t rvi_unicode_to_lower(uint32_t cp)
{
    size_t lo = 0, hi = rvi_unicode_n_lower;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rvi_unicode_lower[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == rvi_unicode_n_lower) return cp;
    const rvi_unicode_mapping *m = &rvi_unicode_lower[lo];
    if (cp < m->first || (cp - m->first) % m->step) return cp;
    return (uint32_t)((int32_t)cp + m->distance);
}

bool rvi_unicode_is_space(uint32_t cp)
{
    for (size_t i = 0; i < RVI_COUNT(white_space); i++)
        if (cp >= white_space[i].first && cp <= white_space[i].last) return true;
    return false;
}
