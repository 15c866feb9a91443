/* jinja_ops.c - operators and slices, with Python's meaning. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "template/jinja_run.h"

static const char *const op_names[] = {
    [RVI_JOP_ADD] = "+",           [RVI_JOP_SUB] = "-",       [RVI_JOP_MUL] = "*",
    [RVI_JOP_DIV] = "/",           [RVI_JOP_FLOORDIV] = "//", [RVI_JOP_MOD] = "%",
    [RVI_JOP_POW] = "** or pow()",
};

static rvi_jv unsupported(rvi_jrun *r, rvi_jop op, rvi_jv a, rvi_jv b)
{
    return rvi_jinja_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op],
                          rvi_jv_type_name(a), rvi_jv_type_name(b));
}

static rvi_jv overflow(rvi_jrun *r)
{
    return rvi_jinja_fail(r, "integer result beyond 64 bits");
}

/* ---- numbers ---- */

static bool add_int(int64_t a, int64_t b, int64_t *out)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) return false;
    *out = a + b;
    return true;
}

static bool mul_int(int64_t a, int64_t b, int64_t *out)
{
    if (a && b) {
        if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                  : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a))
            return false;
    }
    *out = a * b;
    return true;
}

static rvi_jv pow_int(rvi_jrun *r, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (!base) return rvi_jinja_fail(r, "0.0 cannot be raised to a negative power");
        return rvi_jv_float(pow((double)base, (double)exponent));
    }
    if (base == 0 || base == 1) return rvi_jv_int(exponent ? base : 1);
    if (base == -1) return rvi_jv_int(exponent % 2 ? -1 : 1);
    for (; exponent > 0; exponent--) /* at most 63 rounds before it overflows */
        if (!mul_int(result, base, &result)) return overflow(r);
    return rvi_jv_int(result);
}

/* Rounds towards minus infinity; b is not 0. */
static rvi_jv floordiv_int(rvi_jrun *r, int64_t a, int64_t b, bool want_mod)
{
    if (b == -1) { /* the one quotient that can overflow */
        if (want_mod) return rvi_jv_int(0);
        return a == INT64_MIN ? overflow(r) : rvi_jv_int(-a);
    }
    int64_t q = a / b, m = a % b;
    if (m && (m < 0) != (b < 0)) {
        q--;
        m += b;
    }
    return rvi_jv_int(want_mod ? m : q);
}

static rvi_jv floordiv_float(double a, double b, bool want_mod)
{
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0) {
        if ((b < 0) != (m < 0)) {
            m += b;
            q -= 1;
        }
    } else {
        m = copysign(0.0, b);
    }
    if (want_mod) return rvi_jv_float(m);
    if (q == 0) return rvi_jv_float(copysign(0.0, a / b));
    double whole = floor(q);
    return rvi_jv_float(q - whole > 0.5 ? whole + 1 : whole);
}

static rvi_jv binary_ints(rvi_jrun *r, rvi_jop op, int64_t a, int64_t b)
{
    int64_t out = 0;
    if (!b && (op == RVI_JOP_DIV || op == RVI_JOP_FLOORDIV || op == RVI_JOP_MOD))
        return rvi_jinja_fail(r, op == RVI_JOP_DIV ? "division by zero"
                                                   : "integer division or modulo by zero");
    switch (op) {
    case RVI_JOP_ADD: return add_int(a, b, &out) ? rvi_jv_int(out) : overflow(r);
    case RVI_JOP_SUB:
        if ((b < 0 && a > INT64_MAX + b) || (b > 0 && a < INT64_MIN + b)) return overflow(r);
        return rvi_jv_int(a - b);
    case RVI_JOP_MUL: return mul_int(a, b, &out) ? rvi_jv_int(out) : overflow(r);
    case RVI_JOP_DIV: return rvi_jv_float((double)a / (double)b);
    case RVI_JOP_FLOORDIV: return floordiv_int(r, a, b, false);
    case RVI_JOP_MOD: return floordiv_int(r, a, b, true);
    default: return pow_int(r, a, b);
    }
}

static rvi_jv binary_floats(rvi_jrun *r, rvi_jop op, double a, double b)
{
    double p;
    if (b == 0 && (op == RVI_JOP_DIV || op == RVI_JOP_FLOORDIV || op == RVI_JOP_MOD))
        return rvi_jinja_fail(r, "float division by zero");
    switch (op) {
    case RVI_JOP_ADD: return rvi_jv_float(a + b);
    case RVI_JOP_SUB: return rvi_jv_float(a - b);
    case RVI_JOP_MUL: return rvi_jv_float(a * b);
    case RVI_JOP_DIV: return rvi_jv_float(a / b);
    case RVI_JOP_FLOORDIV: return floordiv_float(a, b, false);
    case RVI_JOP_MOD: return floordiv_float(a, b, true);
    default:
        if (a == 0 && b < 0) return rvi_jinja_fail(r, "0.0 cannot be raised to a negative power");
        p = pow(a, b);
        if (isnan(p) && !isnan(a) && !isnan(b))
            return rvi_jinja_fail(r, "the power is a complex number");
        if (isinf(p) && !isinf(a) && !isinf(b))
            return rvi_jinja_fail(r, "Numerical result out of range");
        return rvi_jv_float(p);
    }
}

/* ---- sequences ---- */

static rvi_jv add_strs(rvi_jrun *r, rvi_jv a, rvi_jv b)
{
    if (!a.as.str->markup && !b.as.str->markup) return rvi_jv_concat(r, a, b);
    a = rvi_jv_escape(r, a);
    if (rvi_jv_failed(a)) return a;
    b = rvi_jv_escape(r, b);
    if (rvi_jv_failed(b)) return b;
    return rvi_jv_mark(r, rvi_jv_concat(r, a, b), true);
}

static rvi_jv add_seqs(rvi_jrun *r, rvi_jv a, rvi_jv b)
{
    const rvi_jseq *x = a.as.seq, *y = b.as.seq;
    rvi_jv *items, v = rvi_jv_seq(r, a.kind, x->count + y->count, &items);
    if (rvi_jv_failed(v)) return v;
    if (x->count) memcpy(items, x->items, x->count * sizeof *items);
    if (y->count) memcpy(items + x->count, y->items, y->count * sizeof *items);
    return v;
}

static rvi_jv repeat(rvi_jrun *r, rvi_jv v, int64_t times)
{
    size_t n = times > 0 ? (size_t)times : 0;
    if (v.kind == RVI_J_STR) {
        const rvi_jstr *s = v.as.str;
        char *data = s->len && n ? rvi_jinja_alloc(r, n, s->len) : NULL;
        if ((s->len && n && !data) || !rvi_jinja_charge_bytes(r, n * s->len)) return RVI_JV(FAIL);
        size_t total = n * s->len;
        if (total) memcpy(data, s->data, s->len);
        for (size_t done = s->len; done < total; done *= 2)
            memcpy(data + done, data, RVI_MIN(done, total - done));
        rvi_jv out = rvi_jv_view(r, data ? data : "", n * s->len);
        if (!rvi_jv_failed(out) && s->user) out.as.str->user = rvi_juser_all;
        return rvi_jv_mark(r, out, s->markup);
    }
    const rvi_jseq *s = v.as.seq;
    rvi_jv *items, out;
    if (s->count && n > SIZE_MAX / sizeof *items / s->count)
        return rvi_jinja_fail(r, "a list is too long");
    out = rvi_jv_seq(r, v.kind, n * s->count, &items);
    if (rvi_jv_failed(out)) return out;
    for (size_t i = 0; i < n && s->count; i++)
        memcpy(items + i * s->count, s->items, s->count * sizeof *items);
    return out;
}

static bool is_seq(rvi_jv v)
{
    return v.kind == RVI_J_STR || v.kind == RVI_J_LIST || v.kind == RVI_J_TUPLE;
}

rvi_jv rvi_jinja_binary(rvi_jrun *r, rvi_jop op, rvi_jv a, rvi_jv b)
{
    if (a.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, a);
    if (a.kind == RVI_J_STR && op == RVI_JOP_MOD) return rvi_jinja_percent(r, a, b);
    if (b.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, b);
    if (rvi_jv_is_number(a) && rvi_jv_is_number(b)) {
        if (a.kind == RVI_J_FLOAT || b.kind == RVI_J_FLOAT)
            return binary_floats(r, op, rvi_jv_as_double(a), rvi_jv_as_double(b));
        return binary_ints(r, op, rvi_jv_as_int(a), rvi_jv_as_int(b));
    }
    if (op == RVI_JOP_ADD && is_seq(a)) {
        if (a.kind != b.kind)
            return rvi_jinja_fail(r, "can only concatenate %s (not \"%s\") to %s",
                                  rvi_jv_type_name(a), rvi_jv_type_name(b), rvi_jv_type_name(a));
        return a.kind == RVI_J_STR ? add_strs(r, a, b) : add_seqs(r, a, b);
    }
    if (op == RVI_JOP_MUL && is_seq(a) && rvi_jv_is_integral(b))
        return repeat(r, a, rvi_jv_as_int(b));
    if (op == RVI_JOP_MUL && is_seq(b) && rvi_jv_is_integral(a))
        return repeat(r, b, rvi_jv_as_int(a));
    return unsupported(r, op, a, b);
}

rvi_jv rvi_jinja_negate(rvi_jrun *r, rvi_jv v, bool minus)
{
    if (v.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, v);
    if (v.kind == RVI_J_FLOAT) return rvi_jv_float(minus ? -v.as.number : v.as.number);
    if (!rvi_jv_is_integral(v))
        return rvi_jinja_fail(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                              rvi_jv_type_name(v));
    int64_t i = rvi_jv_as_int(v);
    if (minus && i == INT64_MIN) return overflow(r);
    return rvi_jv_int(minus ? -i : i);
}

rvi_jv rvi_jinja_compare(rvi_jrun *r, rvi_jop op, rvi_jv a, rvi_jv b)
{
    int yes;
    switch (op) {
    case RVI_JOP_EQ:
    case RVI_JOP_NE: yes = rvi_jv_equal(r, a, b); break;
    case RVI_JOP_LT: yes = rvi_jv_less(r, a, b, false, "<"); break;
    case RVI_JOP_LE: yes = rvi_jv_less(r, a, b, true, "<="); break;
    case RVI_JOP_GT: yes = rvi_jv_less(r, b, a, false, ">"); break;
    case RVI_JOP_GE: yes = rvi_jv_less(r, b, a, true, ">="); break;
    default: yes = rvi_jv_contains(r, b, a); break;
    }
    if (yes < 0) return RVI_JV(FAIL);
    return rvi_jv_bool(op == RVI_JOP_NE || op == RVI_JOP_NOT_IN ? !yes : yes);
}

/* ---- slices ---- */

#define MAX_STEP                                                                                   \
    ((int64_t)1 << 60) /* longer than any sequence, and a multiple still fits 64 bits */

/* Byte offset of code point i (at most the count). */
static size_t offset_of(rvi_jrun *r, rvi_jstr *s, size_t i)
{
    size_t chars = rvi_jstr_chars(r, s), byte = 0;
    if (chars == s->len) return i;
    if (i >= chars) return s->len;
    for (uint32_t cp; i; i--) byte += rvi_utf8_decode(s->data + byte, s->len - byte, &cp, NULL);
    return byte;
}

rvi_jv rvi_jinja_substring(rvi_jrun *r, rvi_jstr *s, size_t from, size_t to)
{
    if (!rvi_jinja_charge_bytes(r, rvi_jstr_chars(r, s) == s->len ? 0 : s->len))
        return RVI_JV(FAIL);
    size_t a = offset_of(r, s, from), b = offset_of(r, s, to);
    if (r->status) return RVI_JV(FAIL);
    return rvi_jv_mark(r, rvi_jv_part(r, s, a, b - a), s->markup);
}

/* A bound of a slice brought into the sequence; low and high as Python clips them. */
static bool bound(rvi_jrun *r, rvi_jv v, int64_t n, int64_t otherwise, int64_t low, int64_t high,
                  int64_t *out)
{
    *out = otherwise;
    if (v.kind == RVI_J_NONE || v.kind == RVI_J_MISSING) return true;
    if (!rvi_jv_is_integral(v)) {
        rvi_jinja_fail(r, "slice indices must be integers or None");
        return false;
    }
    int64_t i = rvi_jv_as_int(v);
    if (i < 0) i += n;
    *out = i < low ? low : i > high ? high : i;
    return true;
}

static rvi_jv slice_str(rvi_jrun *r, rvi_jstr *s, int64_t start, int64_t step, size_t count)
{
    if (!count) return rvi_jv_mark(r, rvi_jv_text(r, ""), s->markup);
    if (step == 1) return rvi_jinja_substring(r, s, (size_t)start, (size_t)start + count);
    size_t chars = rvi_jstr_chars(r, s);
    size_t *offsets = rvi_jinja_alloc(r, chars + 1, sizeof *offsets);
    if (!offsets || !rvi_jinja_charge_bytes(r, 8 * s->len)) return RVI_JV(FAIL);
    for (size_t i = 0, byte = 0; i <= chars; i++) {
        uint32_t cp;
        offsets[i] = byte;
        if (i < chars) byte += rvi_utf8_decode(s->data + byte, s->len - byte, &cp, NULL);
    }
    size_t begin = rvi_jinja_build(r);
    for (size_t i = 0; i < count; i++) {
        size_t k = (size_t)(start + (int64_t)i * step);
        rvi_jinja_append(r, &r->scratch, s, offsets[k], offsets[k + 1] - offsets[k]);
    }
    return rvi_jv_mark(r, rvi_jinja_take(r, begin), s->markup);
}

static rvi_jv slice_range(rvi_jrun *r, const rvi_jrange *x, int64_t start, int64_t stop,
                          int64_t step, size_t count)
{
    rvi_jrange *out = rvi_jinja_alloc(r, 1, sizeof *out);
    if (!out) return RVI_JV(FAIL);
    int64_t fresh;
    if (!mul_int(step, x->step, &fresh)) return overflow(r);
    *out = (rvi_jrange){.start = x->start + start * x->step,
                        .stop = x->start + stop * x->step,
                        .step = fresh,
                        .count = count};
    return (rvi_jv){.kind = RVI_J_RANGE, .as.range = out};
}

rvi_jv rvi_jinja_slice(rvi_jrun *r, rvi_jv v, rvi_jv from, rvi_jv to, rvi_jv by)
{
    size_t len;
    int64_t step = 1, start, stop;
    if (v.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, v);
    bool sliceable = v.kind == RVI_J_STR || v.kind == RVI_J_LIST || v.kind == RVI_J_TUPLE ||
                     v.kind == RVI_J_RANGE;
    if (!sliceable || !rvi_jv_length(r, v, &len))
        return rvi_jinja_fail(r, "'%s' object cannot be sliced", rvi_jv_type_name(v));
    int64_t n = (int64_t)len;
    if (by.kind != RVI_J_NONE && by.kind != RVI_J_MISSING) {
        if (!rvi_jv_is_integral(by))
            return rvi_jinja_fail(r, "slice indices must be integers or None");
        step = rvi_jv_as_int(by);
        if (!step) return rvi_jinja_fail(r, "slice step cannot be zero");
        step = RVI_MAX(RVI_MIN(step, MAX_STEP), -MAX_STEP);
    }
    bool forward = step > 0;
    int64_t low = forward ? 0 : -1, high = forward ? n : n - 1;
    if (!bound(r, from, n, forward ? 0 : n - 1, low, high, &start)) return RVI_JV(FAIL);
    if (!bound(r, to, n, forward ? n : -1, low, high, &stop)) return RVI_JV(FAIL);
    int64_t span = forward ? stop - start : start - stop, stride = forward ? step : -step;
    size_t count = span > 0 ? (size_t)((span - 1) / stride + 1) : 0;

    if (v.kind == RVI_J_STR) return slice_str(r, v.as.str, start, step, count);
    if (v.kind == RVI_J_RANGE) return slice_range(r, v.as.range, start, stop, step, count);
    rvi_jv *items, out = rvi_jv_seq(r, v.kind, count, &items);
    if (rvi_jv_failed(out)) return out;
    for (size_t i = 0; i < count; i++) items[i] = v.as.seq->items[start + (int64_t)i * step];
    return out;
}
