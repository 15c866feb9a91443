/* jinja_filters.c - filters of texts and numbers. Those of sequences are in jinja_filters_seq.c. */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "template/jinja_run.h"

#define FILTER(name)                                                                               \
    static rvi_jv name(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)

/* ---- texts ---- */

static rvi_jv recase(rvi_jrun *r, rvi_jv v, rvi_jcase how)
{
    rvi_jv text = rvi_jv_soft_str(r, v);
    if (rvi_jv_failed(text)) return text;
    return rvi_jv_mark(r, rvi_jinja_recase(r, text.as.str, how), text.as.str->markup);
}

FILTER(filter_upper)
{
    (void)a, (void)all;
    return recase(r, self, RVI_JCASE_UPPER);
}

FILTER(filter_lower)
{
    (void)a, (void)all;
    return recase(r, self, RVI_JCASE_LOWER);
}

FILTER(filter_capitalize)
{
    (void)a, (void)all;
    return recase(r, self, RVI_JCASE_CAPITALIZE);
}

static bool before_word(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || rvi_char_space(c);
}

/* Other than str.title: only blanks, - and opening brackets start a word. */
FILTER(filter_title)
{
    (void)a, (void)all;
    rvi_jv text = rvi_jv_soft_str(r, self);
    if (rvi_jv_failed(text)) return text;
    const rvi_jstr *s = text.as.str;
    size_t start = rvi_jinja_build(r);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp = 0;
        size_t from = i, used = 0;
        while (i < s->len &&
               (used = rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL), !before_word(cp)))
            i += used;
        if (i > from) { /* a word: first character up, the rest down */
            size_t first = rvi_utf8_decode(s->data + from, i - from, &cp, NULL);
            rvi_jstr head = rvi_jstr_piece(s, from, first),
                     tail = rvi_jstr_piece(s, from + first, i - from - first);
            rvi_jv up = rvi_jinja_recase(r, &head, RVI_JCASE_UPPER),
                   down = rvi_jinja_recase(r, &tail, RVI_JCASE_LOWER);
            if (rvi_jv_failed(up) || rvi_jv_failed(down)) return rvi_jinja_drop(r, start);
            rvi_jv_write_str(r, &r->scratch, up);
            rvi_jv_write_str(r, &r->scratch, down);
        } else {
            rvi_jinja_append(r, &r->scratch, s, i, used);
            i += used;
        }
    }
    return rvi_jinja_take(r, start);
}

FILTER(filter_trim)
{
    (void)all;
    rvi_jv text = rvi_jv_soft_str(r, self);
    if (rvi_jv_failed(text)) return text;
    return rvi_jv_mark(r, rvi_jinja_strip(r, text.as.str, a[0], true, true), text.as.str->markup);
}

FILTER(filter_replace)
{
    int64_t count = -1;
    (void)all;
    rvi_jv s = rvi_jv_to_str(r, self), old = rvi_jv_to_str(r, a[0]), fresh = rvi_jv_to_str(r, a[1]);
    if (rvi_jv_failed(s) || rvi_jv_failed(old) || rvi_jv_failed(fresh)) return RVI_JV(FAIL);
    if (rvi_jarg_given(a[2]) && !rvi_jarg_int(r, a[2], -1, &count)) return RVI_JV(FAIL);
    return rvi_jinja_replace(r, s.as.str, old.as.str, fresh.as.str, count);
}

FILTER(filter_string)
{
    (void)a, (void)all;
    return rvi_jv_soft_str(r, self);
}

FILTER(filter_safe)
{
    (void)a, (void)all;
    rvi_jv text = rvi_jv_soft_str(r, self);
    return rvi_jv_failed(text) ? text : rvi_jv_mark(r, text, true);
}

FILTER(filter_escape)
{
    (void)a, (void)all;
    return rvi_jv_escape(r, self);
}

FILTER(filter_indent)
{
    static const rvi_jstr blank = {.data = " ", .len = 1, .chars = 1};
    const rvi_jstr *by = &blank;
    int64_t times = 1;
    (void)all;
    if (a[0].kind == RVI_J_STR)
        by = a[0].as.str;
    else if (!rvi_jarg_int(r, a[0], 4, &times))
        return RVI_JV(FAIL);
    if (times > 10000) return rvi_jinja_fail(r, "indent is too wide");
    rvi_jv newline = rvi_jv_text(r, "\n");
    if (rvi_jv_failed(newline)) return newline;
    rvi_jv text = rvi_jinja_binary(r, RVI_JOP_ADD, self,
                                   newline); /* fails as Python does for what is no string */
    rvi_jv lines = rvi_jv_failed(text) ? text : rvi_jinja_splitlines(r, text.as.str, false);
    if (rvi_jv_failed(lines)) return lines;
    bool first = rvi_jv_truth(a[1]), blank_lines = rvi_jv_truth(a[2]);
    size_t start = rvi_jinja_build(r);
    for (size_t i = 0; i < lines.as.seq->count; i++) {
        const rvi_jstr *line = lines.as.seq->items[i].as.str;
        if (i) rvi_buf_putc(&r->scratch, '\n');
        if (i ? line->len || blank_lines : first)
            for (int64_t k = 0; k < times; k++) rvi_jinja_append(r, &r->scratch, by, 0, by->len);
        rvi_jinja_append(r, &r->scratch, line, 0, line->len);
        if (!rvi_jinja_charge_chars(r, (size_t)RVI_MAX(times, 0) * by->len)) break;
    }
    return rvi_jv_mark(r, rvi_jinja_take(r, start), text.as.str->markup);
}

FILTER(filter_tojson)
{
    static const rvi_jstr comma = {.data = ", ", .len = 2}, bare_comma = {.data = ",", .len = 1},
                          colon = {.data = ": ", .len = 2};
    static const char blanks[] = "                                "; /* 32 */
    rvi_jjson how = {.ensure_ascii = rvi_jv_truth(a[0]),
                     .sort_keys = rvi_jv_truth(a[3]),
                     .item_sep = &comma,
                     .key_sep = &colon};
    int64_t width = 0;
    (void)all;
    if (a[1].kind == RVI_J_STR) {
        how.indent = a[1].as.str->data;
        how.indent_len = a[1].as.str->len;
    } else if (rvi_jarg_given(a[1])) {
        if (!rvi_jarg_int(r, a[1], 0, &width)) return RVI_JV(FAIL);
        if (width >= (int64_t)sizeof blanks) return rvi_jinja_fail(r, "tojson: indent is too wide");
        how.indent = blanks;
        how.indent_len = width > 0 ? (size_t)width : 0;
    }
    if (how.indent) how.item_sep = &bare_comma;
    if (rvi_jarg_given(a[2])) {
        rvi_jv pair = rvi_jv_to_list(r, a[2], RVI_J_LIST);
        if (rvi_jv_failed(pair)) return pair;
        if (pair.as.seq->count != 2)
            return rvi_jinja_fail(r, "tojson: separators must be two strings");
        if (!rvi_jarg_str(r, pair.as.seq->items[0], "separator", &how.item_sep) ||
            !rvi_jarg_str(r, pair.as.seq->items[1], "separator", &how.key_sep))
            return RVI_JV(FAIL);
    }
    size_t start = rvi_jinja_build(r);
    rvi_jv_write_json(r, &r->scratch, self, &how);
    rvi_jinja_trace(r, &r->scratch, how.item_sep, start);
    rvi_jinja_trace(r, &r->scratch, how.key_sep, start);
    if (a[1].kind == RVI_J_STR) rvi_jinja_trace(r, &r->scratch, a[1].as.str, start);
    return rvi_jinja_take(r, start);
}

/* ---- numbers ---- */

FILTER(filter_abs)
{
    (void)a, (void)all;
    if (self.kind == RVI_J_FLOAT) return rvi_jv_float(fabs(self.as.number));
    if (!rvi_jv_is_integral(self))
        return rvi_jinja_fail(r, "bad operand type for abs(): '%s'", rvi_jv_type_name(self));
    return rvi_jinja_negate(r, self, rvi_jv_as_int(self) < 0);
}

/* int() of a float; otherwise where Python raises what the filter catches */
static rvi_jv whole(rvi_jrun *r, double v, bool catch_infinity, rvi_jv otherwise)
{
    if (isnan(v) || (isinf(v) && catch_infinity)) return otherwise;
    if (!(v > -9.2e18 && v < 9.2e18))
        return rvi_jinja_fail(r, "cannot convert this float to a 64-bit integer");
    return rvi_jv_int((int64_t)v);
}

FILTER(filter_int)
{
    rvi_jv otherwise = RVI_JARG(a[0], rvi_jv_int(0));
    int64_t base, i;
    double f;
    bool too_big;
    (void)all;
    if (self.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, self);
    if (rvi_jv_is_integral(self)) return rvi_jv_int(rvi_jv_as_int(self));
    if (self.kind == RVI_J_FLOAT) return whole(r, self.as.number, false, otherwise);
    if (self.kind != RVI_J_STR) return otherwise;
    if (!rvi_jarg_int(r, a[1], 10, &base) || !rvi_jinja_charge_chars(r, self.as.str->len))
        return RVI_JV(FAIL);
    if (rvi_jinja_parse_int(self.as.str, base, &i, &too_big))
        return too_big ? rvi_jinja_fail(r, "integer beyond 64 bits") : rvi_jv_int(i);
    return rvi_jinja_parse_float(self.as.str, &f) ? whole(r, f, true, otherwise) : otherwise;
}

FILTER(filter_float)
{
    rvi_jv otherwise = RVI_JARG(a[0], rvi_jv_float(0));
    double f;
    (void)all;
    if (self.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, self);
    if (rvi_jv_is_number(self)) return rvi_jv_float(rvi_jv_as_double(self));
    if (self.kind != RVI_J_STR) return otherwise;
    if (!rvi_jinja_charge_chars(r, self.as.str->len)) return RVI_JV(FAIL);
    return rvi_jinja_parse_float(self.as.str, &f) ? rvi_jv_float(f) : otherwise;
}

static rvi_jv round_int(int64_t v, int64_t digits)
{
    int64_t unit = 1;
    if (digits >= 0) return rvi_jv_int(v);
    for (; digits < 0 && unit <= INT64_MAX / 10; digits++) unit *= 10;
    if (digits < 0) return rvi_jv_int(0);
    int64_t rest = v % unit, base = v - rest, half = unit / 2, size = rest < 0 ? -rest : rest;
    bool away = size > half || (size == half && base / unit % 2);
    if (!away) return rvi_jv_int(base);
    if (v < 0 ? base < INT64_MIN + unit : base > INT64_MAX - unit) return rvi_jv_int(base);
    return rvi_jv_int(v < 0 ? base - unit : base + unit);
}

/* To the nearest, ties to even, exactly as the decimal text of the double says. */
static double round_double(double v, int64_t digits)
{
    char text[400];
    if (!isfinite(v) || digits > 300) return v;
    if (digits >= 0) {
        (void)rvi_snprintf(text, sizeof text, "%.*f", (int)digits, v);
        if (strlen(text) < sizeof text - 1) return rvi_number_parse(text, NULL);
        return v;
    }
    if (digits < -308) return copysign(0.0, v);
    double unit = pow(10, (double)-digits);
    return nearbyint(v / unit) * unit;
}

FILTER(filter_round)
{
    int64_t digits;
    rvi_jv method = a[1];
    (void)all;
    bool common = method.kind == RVI_J_MISSING || rvi_jv_is_text(method, "common");
    bool up = rvi_jv_is_text(method, "ceil");
    if (!common && !up && !rvi_jv_is_text(method, "floor"))
        return rvi_jinja_fail(r, "method must be common, ceil or floor");
    if (!rvi_jv_is_number(self)) {
        if (self.kind == RVI_J_UNDEFINED && !common) return rvi_jv_undefined_error(r, self);
        return rvi_jinja_fail(r, "type %s doesn't define __round__ method", rvi_jv_type_name(self));
    }
    if (!rvi_jarg_int(r, a[0], 0, &digits)) return RVI_JV(FAIL);
    if (common) {
        if (rvi_jv_is_integral(self)) return round_int(rvi_jv_as_int(self), digits);
        return rvi_jv_float(round_double(self.as.number, digits));
    }
    double unit = pow(10, (double)digits), v = rvi_jv_as_double(self) * unit;
    if (!isfinite(v) || unit == 0) return rvi_jinja_fail(r, "cannot round this number");
    return rvi_jv_float((up ? ceil(v) : floor(v)) / unit);
}

/* ---- others ---- */

FILTER(filter_default)
{
    (void)all;
    if (self.kind != RVI_J_UNDEFINED && !(rvi_jv_truth(a[1]) && !rvi_jv_truth(self))) return self;
    return a[0].kind == RVI_J_MISSING ? rvi_jv_text(r, "") : a[0];
}

static const rvi_jfn text_filters[] = {
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"string", filter_string, "", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"safe", filter_safe, "", 0},
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
};

const rvi_jfn *rvi_jinja_filter(const char *name, size_t len)
{
    const rvi_jfn *fn = rvi_jinja_find(text_filters, RVI_COUNT(text_filters), name, len);
    return fn ? fn : rvi_jinja_find(rvi_jinja_seq_filters, rvi_jinja_n_seq_filters, name, len);
}
