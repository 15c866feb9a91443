#include "learn/recognise/signs.h"

#include <string.h>

#include "text/chars.h"

enum { NUMBERS = 32 }; /* of a text that are looked at */

typedef struct number {
    rvi_text digits;
    bool minus;
    uint32_t currency; /* 0: none */
} number;

static bool is_digit(uint32_t cp)
{
    return cp >= '0' && cp <= '9';
}

static bool is_minus(uint32_t cp)
{
    return cp == '-' || cp == 0x2212;
}

static bool is_currency(uint32_t cp)
{
    return cp == '$' || (cp >= 0xA2 && cp <= 0xA5) || (cp >= 0x20A0 && cp <= 0x20CF) ||
           cp == 0xFFE5 || cp == 0xFF04;
}

/* The character at `at`, 0 at the end, and where the next one begins. */
static uint32_t next(rvi_text t, size_t at, size_t *after)
{
    uint32_t cp = 0;
    *after = at < t.len ? at + rvi_utf8_decode(t.data + at, t.len - at, &cp, NULL) : at;
    return cp;
}

/* Behind digits, and points and commas between them. */
static size_t end_of(rvi_text t, size_t at)
{
    while (at < t.len &&
           (is_digit((unsigned char)t.data[at]) || (strchr(".,", t.data[at]) && at + 1 < t.len &&
                                                    is_digit((unsigned char)t.data[at + 1]))))
        at++;
    return at;
}

/* "5 €": behind the number, with a space between or without. */
static uint32_t currency_behind(rvi_text t, size_t at)
{
    size_t after;
    uint32_t cp = next(t, at, &after);
    if (cp == ' ' || cp == 0xA0) cp = next(t, after, &after);
    return is_currency(cp) ? cp : 0;
}

/* before: the three characters before each number, the nearest first. A minus behind a letter or a
 * digit joins or subtracts. */
static size_t find(rvi_text t, number out[NUMBERS])
{
    uint32_t before[3] = {0};
    size_t n = 0;
    for (size_t at = 0, after; at < t.len && n < NUMBERS; at = after) {
        uint32_t cp = next(t, at, &after);
        if (is_digit(cp)) {
            after = end_of(t, at);
            bool named = is_currency(before[0]); /* "-$5" */
            const uint32_t *sign = before + named;
            bool minus = is_minus(sign[0]) && !rvi_char_alnum(sign[1]);
            uint32_t ahead = named ? before[0] : minus && is_currency(before[1]) ? before[1] : 0;
            out[n++] = (number){.digits = {t.data + at, after - at},
                                .minus = minus,
                                .currency = ahead ? ahead : currency_behind(t, after)};
        }
        memmove(before + 1, before, 2 * sizeof *before);
        before[0] = cp;
    }
    return n;
}

static bool has_same_digits(const number *x, const number *y)
{
    return x->digits.len == y->digits.len && !memcmp(x->digits.data, y->digits.data, x->digits.len);
}

/* An amount may be told without its currency, or with its name. */
static bool agree(const number *x, const number *y)
{
    return x->minus == y->minus && (!x->currency || !y->currency || x->currency == y->currency);
}

/* Is there one of x that y has, but only with other signs? */
static bool one_differs(const number *x, size_t n, const number *y, size_t m)
{
    for (size_t i = 0; i < n; i++) {
        bool has = false, agrees = false;
        for (size_t k = 0; k < m && !agrees; k++) {
            has = has || has_same_digits(&x[i], &y[k]);
            agrees = has_same_digits(&x[i], &y[k]) && agree(&x[i], &y[k]);
        }
        if (has && !agrees) return true;
    }
    return false;
}

bool rvi_signs_differ(rvi_text a, rvi_text b)
{
    number x[NUMBERS], y[NUMBERS];
    size_t n = find(a, x), m = find(b, y);
    return one_differs(x, n, y, m) || one_differs(y, m, x, n);
}
