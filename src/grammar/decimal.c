#include "grammar/decimal.h"

#include <string.h>

#include "grammar/rx_parse.h"

/* Reads [-]digits[.digits][e[+-]digits]. */
static bool decimal_parse(rvi_decimal *out, const char *s, size_t len)
{
    uint8_t digits[1024];
    size_t n = 0, i = 0;
    long point = -1, exponent = 0;
    *out = (rvi_decimal){0};
    if (i < len && s[i] == '-') {
        out->negative = true;
        i++;
    }
    for (; i < len && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            point = (long)n;
        } else {
            if (n == sizeof digits) return false;
            digits[n++] = (uint8_t)(s[i] - '0');
        }
    }
    if (point < 0) point = (long)n;
    if (i < len) {
        bool down = i + 1 < len && s[i + 1] == '-';
        for (i += s[i + 1] == '-' || s[i + 1] == '+' ? 2 : 1; i < len; i++)
            exponent = exponent > 10000 ? exponent : exponent * 10 + (s[i] - '0');
        point += down ? -exponent : exponent;
    }
    size_t first = 0;
    while (first < n && !digits[first]) first++;
    while (n > first && !digits[n - 1]) n--;
    if (first == n) {
        out->negative = false;
        return true;
    }
    long whole = RVI_MAX(point - (long)first, 0L), frac = RVI_MAX((long)n - point, 0L);
    if (whole + frac > RVI_DECIMAL_DIGITS) return false;
    for (long k = 0; k < whole + frac; k++) {
        long from = point - whole + k;
        out->digits[k] = from < 0 || from >= (long)n ? 0 : digits[from];
    }
    out->n_int = (uint16_t)whole;
    out->n_frac = (uint16_t)frac;
    return true;
}

bool rvi_decimal_from_json(rvi_decimal *out, const rvi_json *v)
{
    if (!rvi_json_is(v, RVI_JSON_INT) && !rvi_json_is(v, RVI_JSON_NUMBER)) return false;
    return decimal_parse(out, v->number_text, v->number_len);
}

bool rvi_decimal_to_uint(const rvi_decimal *d, uint32_t *out)
{
    *out = 0;
    if (d->negative || d->n_frac || d->n_int > 9) return false;
    for (int i = 0; i < d->n_int; i++) *out = *out * 10 + d->digits[i];
    return true;
}

/* ---- reading a number ----
 *
 * A state: where in the number, its sign, and what the automaton knows of the digits so far. */

typedef enum place { START, SIGN, ZERO, INT, POINT, FRAC, EXP, EXP_SIGN, EXP_DIGITS } place;

/* The place after a character; -1: that is no number. */
static int advance(place at, uint32_t c)
{
    bool digit = c >= '0' && c <= '9';
    switch (at) {
    case START:
        if (c == '-') return SIGN; /* fall through */
    case SIGN: return !digit ? -1 : c == '0' ? ZERO : INT;
    case INT:
        if (digit) return INT; /* fall through */
    case ZERO: return c == '.' ? POINT : c == 'e' || c == 'E' ? EXP : -1;
    case FRAC:
        if (c == 'e' || c == 'E') return EXP; /* fall through */
    case POINT: return digit ? FRAC : -1;
    case EXP:
        if (c == '+' || c == '-') return EXP_SIGN; /* fall through */
    case EXP_SIGN:
    case EXP_DIGITS: return digit ? EXP_DIGITS : -1;
    }
    return -1;
}

static bool complete(place at)
{
    return at == ZERO || at == INT || at == FRAC || at == EXP_DIGITS;
}

static size_t number_bounds(const void *self, uint32_t state, const uint32_t **out)
{
    static const uint32_t list[] = {'+', '+' + 1, '-', '.', '.' + 1, '0',     '1', '2', '3', '4',
                                    '5', '6',     '7', '8', '9',     '9' + 1, 'E', 'F', 'e', 'f'};
    (void)self;
    (void)state;
    *out = list;
    return RVI_COUNT(list);
}

typedef struct bounded {
    rvi_bound how;
    rvi_decimal bound;
} bounded;

/* place: 4 bits, sign: 1, digits so far against those of the bound: 2 (0: equal, 1: below,
 * 2: above), how many digits of this part were read: the rest, up to one more than the bound has */
typedef struct reading {
    place at;
    bool negative;
    unsigned cmp;
    uint32_t n;
} reading;

static reading unpack(uint32_t s)
{
    return (reading){(place)(s & 15), s >> 4 & 1, s >> 5 & 3, s >> 7};
}

static uint32_t pack(reading r)
{
    return (uint32_t)r.at | (uint32_t)r.negative << 4 | r.cmp << 5 | r.n << 7;
}

static void compare_digit(reading *r, uint32_t digit, uint32_t bound)
{
    if (!r->cmp && digit != bound) r->cmp = digit < bound ? 1 : 2;
}

static uint32_t bounded_step(const void *self, uint32_t state, uint32_t cp)
{
    const bounded *b = self;
    const rvi_decimal *d = &b->bound;
    reading r = unpack(state);
    int next = advance(r.at, cp);
    if (next < 0) return UINT32_MAX;
    bool zero = !d->n_int && !d->n_frac;
    if (next == EXP && (!zero || b->how == RVI_ABOVE || b->how == RVI_BELOW)) return UINT32_MAX;
    place before = r.at;
    r.at = (place)next;
    switch (r.at) {
    case SIGN: r.negative = true; break;
    case INT:
        if (before != INT) r.n = 0;
        if (r.n < d->n_int) compare_digit(&r, cp - '0', d->digits[r.n]);
        r.n = RVI_MIN(r.n + 1, d->n_int + 1u);
        break;
    case ZERO: r.n = 0; break;
    case POINT: /* the whole parts decide unless they are equal */
        if (r.n != d->n_int) r.cmp = r.n < d->n_int ? 1 : 2;
        r.n = 0;
        break;
    case FRAC:
        compare_digit(&r, cp - '0', r.n < d->n_frac ? d->digits[d->n_int + r.n] : 0);
        r.n = r.cmp ? 0 : RVI_MIN(r.n + 1, (uint32_t)d->n_frac);
        break;
    case EXP: /* the bound is 0: only whether the number is 0 matters */
        if (before != FRAC && r.n) r.cmp = 2;
        r.n = 0;
        break;
    default: break;
    }
    return pack(r);
}

static bool bounded_ends(const void *self, uint32_t state)
{
    const bounded *b = self;
    const rvi_decimal *d = &b->bound;
    reading r = unpack(state);
    if (!complete(r.at)) return false;
    unsigned cmp = r.cmp;
    if (r.at == INT || r.at == ZERO) {
        if (r.n != d->n_int)
            cmp = r.n < d->n_int ? 1 : 2;
        else if (!cmp && d->n_frac)
            cmp = 1;
    } else if (r.at == FRAC && !cmp && r.n < d->n_frac) {
        cmp = 1;
    }
    /* -0 is 0 */
    bool zero = !d->n_int && !d->n_frac, negative = r.negative && !(zero && !cmp);
    int value = cmp == 0 ? 0 : cmp == 1 ? -1 : 1;
    if (negative && d->negative)
        value = -value;
    else if (negative != d->negative)
        value = negative ? -1 : 1;
    switch (b->how) {
    case RVI_AT_LEAST: return value >= 0;
    case RVI_ABOVE: return value > 0;
    case RVI_AT_MOST: return value <= 0;
    case RVI_BELOW: return value < 0;
    case RVI_EQUAL: return value == 0;
    }
    return false;
}

rvi_rx rvi_rx_bounded(rvi_rxs *p, rvi_arena *arena, rvi_bound how, const rvi_decimal *bound)
{
    bounded *b = rvi_arena_alloc(arena, 1, sizeof *b);
    if (!b) {
        rvi_rxs_no_room(p, arena, 1, sizeof *b);
        return RVI_RX_NONE;
    }
    b->how = how;
    b->bound = *bound;
    rvi_rx_auto a = {
        .step = bounded_step, .ends = bounded_ends, .bounds = number_bounds, .self = b};
    return rvi_rx_automaton(p, &a, START);
}

/* value * 10^n_frac must be a multiple of `step` */
typedef struct multiple {
    uint32_t step, n_frac;
} multiple;

/* place: 4 bits, digits of the fraction: 5, remainder: the rest */
static uint32_t multiple_step(const void *self, uint32_t state, uint32_t cp)
{
    const multiple *m = self;
    int next = advance((place)(state & 15), cp);
    uint32_t n = state >> 4 & 31, rest = state >> 9;
    if (next < 0 || next == EXP) return UINT32_MAX;
    if (next == POINT && !m->n_frac && rest) return UINT32_MAX; /* only zeros could follow */
    if (next == INT || (next == FRAC && n < m->n_frac)) {
        rest = (uint32_t)(((uint64_t)rest * 10 + (cp - '0')) % m->step);
        if (next == FRAC) n++;
    } else if (next == FRAC && cp != '0') {
        return UINT32_MAX;
    }
    return (uint32_t)next | n << 4 | rest << 9;
}

static bool multiple_ends(const void *self, uint32_t state)
{
    const multiple *m = self;
    uint64_t rest = state >> 9;
    if (!complete((place)(state & 15))) return false;
    for (uint32_t n = state >> 4 & 31; n < m->n_frac; n++) rest = rest * 10 % m->step;
    return rest == 0;
}

rvi_rx rvi_rx_multiple(rvi_rxs *p, rvi_arena *arena, const rvi_decimal *d)
{
    enum { MAX_STEP = 1 << 20, MAX_FRAC = 20 };
    multiple *m = rvi_arena_alloc(arena, 1, sizeof *m);
    uint64_t step = 0;
    for (int i = 0; i < d->n_int + d->n_frac && step < MAX_STEP; i++)
        step = step * 10 + d->digits[i];
    if (!m) rvi_rxs_no_room(p, arena, 1, sizeof *m);
    if (!step || step >= MAX_STEP || d->n_frac > MAX_FRAC || d->negative)
        rvi_rxs_fail(p, RV_E_UNSUPPORTED, "multipleOf must be above 0 and have few digits");
    if (p->status) return RVI_RX_NONE;
    *m = (multiple){(uint32_t)step, d->n_frac};
    rvi_rx_auto a = {
        .step = multiple_step, .ends = multiple_ends, .bounds = number_bounds, .self = m};
    a.lives = !m->n_frac; /* some digits more, and it is a multiple */
    return rvi_rx_automaton(p, &a, START);
}

bool rvi_rx_whole_multiple(const rvi_rxs *p, rvi_rx a)
{
    const rvi_rx_auto *by = rvi_rx_auto_of(p, a);
    return by && by->step == multiple_step && !((const multiple *)by->self)->n_frac;
}

/* ---- numbers without limits ---- */

static rvi_rx fixed(rvi_rxs *p, const char *pattern)
{
    rvi_rx out;
    rv_status st = rvi_rx_parse(p, pattern, strlen(pattern), true, &out, NULL);
    return st ? RVI_RX_NONE : out;
}

rvi_rx rvi_rx_number(rvi_rxs *p)
{
    return fixed(p, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
}

rvi_rx rvi_rx_plain(rvi_rxs *p)
{
    return fixed(p, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
}

rvi_rx rvi_rx_integer(rvi_rxs *p)
{
    return fixed(p, "-?(0|[1-9][0-9]*)(\\.0+)?");
}

rvi_rx rvi_rx_digits(rvi_rxs *p)
{
    return fixed(p, "-?(0|[1-9][0-9]*)");
}
