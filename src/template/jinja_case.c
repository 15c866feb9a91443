#include "template/jinja_case.h"

static bool in_runs(const rvi_jcase_run *runs, size_t n, uint32_t c)
{
    size_t low = 0, high = n; /* runs[low - 1].first <= c < runs[high].first */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (runs[mid].first <= c)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low) return false;
    const rvi_jcase_run *run = &runs[low - 1];
    return c <= run->last && (c - run->first) % run->step == 0;
}

static uint32_t mapped(const rvi_jcase_map *maps, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (maps[mid].first <= c)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low) return c;
    const rvi_jcase_map *m = &maps[low - 1];
    if (c > m->last || (c - m->first) % m->step) return c;
    return (uint32_t)((int32_t)c + m->delta);
}

/* 0: none */
static size_t expanded(const rvi_jcase_long *table, size_t n, uint32_t c, uint32_t out[3])
{
    for (size_t i = 0; i < n && table[i].from <= c; i++) {
        if (table[i].from != c) continue;
        out[0] = table[i].a;
        out[1] = table[i].b;
        out[2] = table[i].c;
        return out[2] ? 3 : out[1] ? 2 : 1;
    }
    return 0;
}

bool rvi_jchar_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool rvi_jchar_line_end(uint32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static bool ascii_lower(uint32_t c)
{
    return c >= 'a' && c <= 'z';
}

static bool ascii_upper(uint32_t c)
{
    return c >= 'A' && c <= 'Z';
}

bool rvi_jchar_alpha(uint32_t c)
{
    return c < 0x80 ? ascii_lower(c) || ascii_upper(c)
                    : in_runs(rvi_jcase_alpha, rvi_jcase_n_alpha, c);
}

bool rvi_jchar_alnum(uint32_t c)
{
    if (c < 0x80) return ascii_lower(c) || ascii_upper(c) || (c >= '0' && c <= '9');
    return in_runs(rvi_jcase_alpha, rvi_jcase_n_alpha, c) ||
           in_runs(rvi_jcase_numeric, rvi_jcase_n_numeric, c);
}

bool rvi_jchar_digit(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : in_runs(rvi_jcase_digit, rvi_jcase_n_digit, c);
}

bool rvi_jchar_word(uint32_t c)
{
    return c == '_' || rvi_jchar_alnum(c);
}

bool rvi_jchar_lower(uint32_t c)
{
    return c < 0x80 ? ascii_lower(c) : in_runs(rvi_jcase_is_lower, rvi_jcase_n_is_lower, c);
}

bool rvi_jchar_upper(uint32_t c)
{
    return c < 0x80 ? ascii_upper(c) : in_runs(rvi_jcase_is_upper, rvi_jcase_n_is_upper, c);
}

bool rvi_jchar_title(uint32_t c)
{
    return c >= 0x80 && in_runs(rvi_jcase_is_title, rvi_jcase_n_is_title, c);
}

bool rvi_jchar_cased(uint32_t c)
{
    return rvi_jchar_lower(c) || rvi_jchar_upper(c) || rvi_jchar_title(c);
}

bool rvi_jchar_ignorable(uint32_t c)
{
    if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
    return in_runs(rvi_jcase_ignorable, rvi_jcase_n_ignorable, c);
}

bool rvi_jchar_printable(uint32_t c)
{
    return c < 0x80 ? c >= 0x20 && c < 0x7F
                    : !in_runs(rvi_jcase_unprintable, rvi_jcase_n_unprintable, c);
}

size_t rvi_jchar_to_upper(uint32_t c, uint32_t out[3])
{
    if (c < 0x80) {
        out[0] = ascii_lower(c) ? c - 32 : c;
        return 1;
    }
    size_t n = expanded(rvi_jcase_upper_long, rvi_jcase_n_upper_long, c, out);
    if (n) return n;
    out[0] = mapped(rvi_jcase_to_upper, rvi_jcase_n_to_upper, c);
    return 1;
}

size_t rvi_jchar_to_lower(uint32_t c, uint32_t out[3])
{
    if (c < 0x80) {
        out[0] = ascii_upper(c) ? c + 32 : c;
        return 1;
    }
    size_t n = expanded(rvi_jcase_lower_long, rvi_jcase_n_lower_long, c, out);
    if (n) return n;
    out[0] = mapped(rvi_jcase_to_lower, rvi_jcase_n_to_lower, c);
    return 1;
}

size_t rvi_jchar_to_title(uint32_t c, uint32_t out[3])
{
    size_t n = c < 0x80 ? 0 : expanded(rvi_jcase_title_long, rvi_jcase_n_title_long, c, out);
    return n ? n : rvi_jchar_to_upper(c, out);
}
