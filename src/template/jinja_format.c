/* jinja_format.c - Python's two ways of formatting: "..." % args and "...".format(args). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "template/jinja_run.h"

enum { MAX_PRECISION = 300, MAX_WIDTH = 1 << 20, FLOAT_STEPS = 50 };

/* One field, whichever of the two languages it was written in. */
typedef struct spec {
    char fill[4];
    size_t fill_len;
    char align;     /* < > ^ =, or 0 */
    char sign;      /* + or blank where asked for, or 0 */
    bool alternate; /* # */
    bool zero;
    char thousands; /* , or _ or 0 */
    int64_t width;  /* -1: none */
    int precision;  /* -1: none */
    char type;      /* 0: none */
} spec;

static const spec plain = {.fill = " ", .fill_len = 1, .width = -1, .precision = -1};

static void put_fill(rvi_buf *out, const spec *f, size_t n)
{
    for (size_t i = 0; i < n; i++) rvi_buf_append(out, f->fill, f->fill_len);
}

/* prefix (sign, 0x) and body, padded to the width; align '=' pads between the two. */
static void put_padded(rvi_buf *out, const spec *f, const char *prefix, const char *body,
                       size_t len, char align)
{
    size_t chars = strlen(prefix) + rvi_utf8_count(body, len);
    size_t gap = f->width > 0 && (size_t)f->width > chars ? (size_t)f->width - chars : 0;
    size_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    put_fill(out, f, left);
    rvi_buf_puts(out, prefix);
    if (align == '=') put_fill(out, f, gap);
    rvi_buf_append(out, body, len);
    if (align != '=') put_fill(out, f, gap - left);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* digits of the whole part in groups */
static size_t group_digits(char *out, size_t cap, const char *body, char mark, int size)
{
    size_t whole = 0, n = 0;
    while (is_digit(body[whole]) || (size == 4 && rvi_char_alnum((unsigned char)body[whole])))
        whole++;
    for (size_t i = 0; body[i] && n + 2 < cap; i++) {
        if (i && i < whole && (whole - i) % (size_t)size == 0) out[n++] = mark;
        out[n++] = body[i];
    }
    out[n] = 0;
    return n;
}

/* Without the sign. */
static void format_double(rvi_buf *out, double v, char type, int precision, bool alternate)
{
    char text[800], fmt[8] = {'%',
                              alternate ? '#' : '.',
                              alternate ? '.' : '*',
                              alternate ? '*' : type,
                              alternate ? type : 0,
                              0};
    if (isnan(v) || isinf(v)) {
        bool upper = type >= 'A' && type <= 'Z';
        rvi_buf_puts(out, isnan(v) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
        return;
    }
    (void)rvi_snprintf(text, sizeof text, fmt, precision < 0 ? 6 : precision, fabs(v));
    rvi_buf_puts(out, text);
}

/* Numbers are aligned right; zero padding goes after the sign. */
static char number_align(const spec *f)
{
    return f->align ? f->align : f->zero ? '=' : '>';
}

static const char *sign_of(const spec *f, bool negative)
{
    return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

/* ---- numbers ---- */

static void integer_digits(char *out, size_t cap, uint64_t v, char type)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    char back[72];
    size_t n = 0;
    do back[n++] = (type == 'X' ? upper : lower)[v % base];
    while ((v /= base));
    size_t k = 0;
    while (n && k + 1 < cap) out[k++] = back[--n];
    out[k] = 0;
}

static void put_int(rvi_buf *out, const spec *f, int64_t v)
{
    char digits[72], grouped[160], prefix[8];
    uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    char type = f->type;
    integer_digits(digits, sizeof digits, magnitude, type);
    const char *mark = !f->alternate ? ""
                       : type == 'x' ? "0x"
                       : type == 'X' ? "0X"
                       : type == 'o' ? "0o"
                       : type == 'b' ? "0b"
                                     : "";
    (void)rvi_snprintf(prefix, sizeof prefix, "%s%s", sign_of(f, v < 0), mark);
    const char *body = digits;
    if (f->thousands) {
        group_digits(grouped, sizeof grouped, digits, f->thousands,
                     type == 'x' || type == 'X' || type == 'o' || type == 'b' ? 4 : 3);
        body = grouped;
    }
    put_padded(out, f, prefix, body, strlen(body), number_align(f));
}

/* A float with a precision but no type: like 'g', but 1e+02 rather than 100.0 where .0 would be one
 * digit too many. */
static void format_general(rvi_buf *out, double v, int precision)
{
    char text[400];
    if (!isfinite(v)) {
        format_double(out, v, 'g', precision, false);
        return;
    }
    (void)rvi_snprintf(text, sizeof text, "%.*e", precision - 1, fabs(v));
    char *e = strchr(text, 'e');
    int exponent = e ? (int)strtol(e + 1, NULL, 10) : 0;
    if (e && (exponent < -4 || exponent >= precision - 1)) {
        char *end = e;
        while (strchr(text, '.') && end[-1] == '0') end--;
        if (end > text && end[-1] == '.') end--;
        rvi_buf_append(out, text, (size_t)(end - text));
        rvi_buf_puts(out, e);
        return;
    }
    (void)rvi_snprintf(text, sizeof text, "%.*g", precision, fabs(v));
    rvi_buf_puts(out, text);
    if (!strchr(text, '.')) rvi_buf_puts(out, ".0");
}

static void put_double(rvi_jrun *r, const spec *f, double v)
{
    rvi_buf body = {.max = 4096};
    char grouped[1200];
    char type = f->type == 'n' ? 'g' : f->type == '%' ? 'f' : f->type;
    if (!rvi_jinja_charge(r, FLOAT_STEPS)) return;
    if (f->type == '%') v *= 100;
    if (type)
        format_double(&body, v, type, f->precision, f->alternate);
    else if (f->precision < 0)
        rvi_jinja_write_float(&body, fabs(v));
    else
        format_general(&body, v, RVI_MAX(f->precision, 1));
    if (f->type == '%') rvi_buf_putc(&body, '%');
    if (body.failed || !body.data) {
        r->scratch.failed = true;
    } else {
        const char *text = body.data;
        if (f->thousands) {
            group_digits(grouped, sizeof grouped, text, f->thousands, 3);
            text = grouped;
        }
        put_padded(&r->scratch, f, sign_of(f, signbit(v) && !isnan(v)), text, strlen(text),
                   number_align(f));
    }
    rvi_buf_deinit(&body);
}

/* Text, cut to the precision. */
static void put_text(rvi_jrun *r, const spec *f, rvi_jv text, char align)
{
    rvi_jstr *s = text.as.str;
    size_t len = s->len;
    if (f->precision >= 0 && (size_t)f->precision < rvi_jstr_chars(r, s)) {
        rvi_jv cut = rvi_jinja_substring(r, s, 0, (size_t)f->precision);
        if (rvi_jv_failed(cut)) return;
        len = cut.as.str->len;
    }
    if (rvi_jinja_charge_chars(r, len + (f->width > 0 ? (size_t)f->width : 0))) {
        size_t start = r->scratch.len;
        put_padded(&r->scratch, f, "", s->data, len, align);
        rvi_jinja_trace(r, &r->scratch, s, start);
    }
}

static rvi_jv repr_text(rvi_jrun *r, rvi_jv v, bool ascii)
{
    size_t start = rvi_jinja_build(r);
    rvi_jv_write_repr(r, &r->scratch, v);
    rvi_jv text = rvi_jinja_take(r, start);
    if (!ascii || rvi_jv_failed(text)) return text;
    const rvi_jstr *s = text.as.str;
    start = rvi_jinja_build(r);
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        size_t used = rvi_utf8_decode(s->data + i, s->len - i, &c, NULL);
        if (c < 0x80)
            rvi_buf_append(&r->scratch, s->data + i, used);
        else
            rvi_buf_printf(&r->scratch,
                           c < 0x100     ? "\\x%02x"
                           : c < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                           c);
        i += used;
    }
    return rvi_jinja_take(r, start);
}

static bool truncate_double(rvi_jrun *r, double v, int64_t *out)
{
    if (!(v > -9.2e18 && v < 9.2e18)) {
        rvi_jinja_fail(r, "cannot convert this float to an integer");
        return false;
    }
    *out = (int64_t)v;
    return true;
}

/* ---- "..." % args ---- */

typedef struct percent_state {
    rvi_jv args;
    size_t next;
    bool used; /* the single argument */
} percent_state;

static rvi_jv next_arg(rvi_jrun *r, percent_state *p)
{
    if (p->args.kind == RVI_J_TUPLE && p->next < p->args.as.seq->count)
        return p->args.as.seq->items[p->next++];
    if (p->args.kind != RVI_J_TUPLE && !p->used) {
        p->used = true;
        return p->args;
    }
    return rvi_jinja_fail(r, "not enough arguments for format string");
}

static bool put_percent_number(rvi_jrun *r, spec *f, rvi_jv v)
{
    bool whole = strchr("diu", f->type) != NULL, based = strchr("xXo", f->type) != NULL;
    int64_t i = 0;
    if (!rvi_jv_is_number(v) || (based && v.kind == RVI_J_FLOAT)) {
        if (v.kind == RVI_J_UNDEFINED)
            rvi_jv_undefined_error(r, v);
        else
            rvi_jinja_fail(r, "%%%c format: a number is required, not %s", f->type,
                           rvi_jv_type_name(v));
        return false;
    }
    if (!whole && !based) {
        put_double(r, f, rvi_jv_as_double(v));
        return true;
    }
    if (v.kind == RVI_J_FLOAT ? !truncate_double(r, v.as.number, &i)
                              : (i = rvi_jv_as_int(v), false))
        return false;
    if (whole) f->type = 'd';
    if (f->precision >= 0) { /* at least so many digits */
        char digits[72], body[400];
        integer_digits(digits, sizeof digits, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, f->type);
        int zeros = f->precision - (int)strlen(digits);
        (void)rvi_snprintf(body, sizeof body, "%0*d%s", zeros > 0 ? zeros : 1, 0, digits);
        put_padded(&r->scratch, f, sign_of(f, i < 0), zeros > 0 ? body : digits,
                   strlen(zeros > 0 ? body : digits), number_align(f));
        return true;
    }
    put_int(&r->scratch, f, i);
    return true;
}

static bool put_percent_char(rvi_jrun *r, const spec *f, rvi_jv v)
{
    char bytes[4];
    if (v.kind == RVI_J_STR && rvi_jstr_chars(r, v.as.str) == 1) {
        put_text(r, f, v, f->align ? f->align : '>');
    } else if (rvi_jv_is_integral(v) && rvi_jv_as_int(v) >= 0 && rvi_jv_as_int(v) < 0x110000) {
        size_t n = rvi_utf8_encode((uint32_t)rvi_jv_as_int(v), bytes);
        put_padded(&r->scratch, f, "", bytes, n, f->align ? f->align : '>');
    } else {
        rvi_jinja_fail(r, "%%c requires int or char");
    }
    return !r->status;
}

/* A width or precision: digits, or * for the next argument. */
static bool percent_number(rvi_jrun *r, const rvi_jstr *s, size_t *i, percent_state *p,
                           int64_t *out)
{
    int64_t n = 0;
    if (*i < s->len && s->data[*i] == '*') {
        ++*i;
        rvi_jv v = next_arg(r, p);
        if (rvi_jv_failed(v)) return false;
        if (!rvi_jv_is_integral(v)) return rvi_jinja_fail(r, "* wants int"), false;
        n = rvi_jv_as_int(v);
    } else {
        while (*i < s->len && is_digit(s->data[*i]) && n <= MAX_WIDTH)
            n = n * 10 + (s->data[(*i)++] - '0');
    }
    if (n > MAX_WIDTH || n < -MAX_WIDTH)
        return rvi_jinja_fail(r, "a width in a format is too large"), false;
    *out = n;
    return true;
}

static bool percent_field(rvi_jrun *r, const rvi_jstr *s, size_t *i, percent_state *p, bool markup)
{
    spec f = plain;
    rvi_jv v = RVI_JV(MISSING);
    int64_t n;
    if (*i < s->len && s->data[*i] == '(') {
        size_t from = ++*i;
        for (int depth = 1; *i < s->len; ++*i) {
            depth += (s->data[*i] == '(') - (s->data[*i] == ')');
            if (!depth) break;
        }
        if (*i >= s->len) return rvi_jinja_fail(r, "incomplete format key"), false;
        if (p->args.kind != RVI_J_DICT)
            return rvi_jinja_fail(r, "format requires a mapping"), false;
        if (!rvi_jdict_get_str(p->args.as.dict, s->data + from, *i - from, &v))
            return rvi_jinja_fail(r, "the format's mapping has no key '%.*s'",
                                  (int)RVI_MIN(*i - from, (size_t)100), s->data + from),
                   false;
        p->used = true;
        ++*i;
    }
    for (; *i < s->len && strchr("#0- +", s->data[*i]) && s->data[*i]; ++*i) {
        switch (s->data[*i]) {
        case '#': f.alternate = true; break;
        case '0': f.zero = true; break;
        case '-': f.align = '<'; break;
        case '+': f.sign = '+'; break;
        default:
            if (!f.sign) f.sign = ' ';
        }
    }
    if (!percent_number(r, s, i, p, &n)) return false;
    if (n < 0) f.align = '<';
    f.width = n < 0 ? -n : n;
    if (*i < s->len && s->data[*i] == '.') {
        ++*i;
        if (!percent_number(r, s, i, p, &n)) return false;
        if (n > MAX_PRECISION)
            return rvi_jinja_fail(r, "a precision in a format is too large"), false;
        f.precision = (int)RVI_MAX(n, 0);
    }
    while (*i < s->len && (s->data[*i] == 'h' || s->data[*i] == 'l' || s->data[*i] == 'L')) ++*i;
    if (*i >= s->len) return rvi_jinja_fail(r, "incomplete format"), false;
    f.type = s->data[(*i)++];
    if (f.type == '%') return rvi_buf_putc(&r->scratch, '%');
    if (!strchr("sradiuxXoeEfFgGc", f.type) || !f.type)
        return rvi_jinja_fail(r, "unsupported format character '%c'", f.type), false;
    if (v.kind == RVI_J_MISSING) v = next_arg(r, p);
    if (rvi_jv_failed(v) || !rvi_jinja_charge_chars(r, (size_t)f.width)) return false;
    if (f.align != '<' && f.zero && !strchr("srac", f.type)) {
        f.fill[0] = '0';
    } else {
        f.zero = false;
    }
    if (strchr("sra", f.type)) {
        rvi_jv text = f.type == 's' ? (markup ? rvi_jv_escape(r, v) : rvi_jv_to_str(r, v))
                                    : repr_text(r, v, f.type == 'a');
        if (rvi_jv_failed(text)) return false;
        put_text(r, &f, text, f.align ? f.align : '>');
        return !r->status;
    }
    return f.type == 'c' ? put_percent_char(r, &f, v) : put_percent_number(r, &f, v);
}

rvi_jv rvi_jinja_percent(rvi_jrun *r, rvi_jv format, rvi_jv args)
{
    const rvi_jstr *s = format.as.str;
    percent_state p = {.args = args};
    size_t start = rvi_jinja_build(r);
    if (!rvi_jinja_charge_bytes(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        const char *hit = memchr(s->data + i, '%', s->len - i);
        size_t to = hit ? (size_t)(hit - s->data) : s->len;
        rvi_buf_append(&r->scratch, s->data + i, to - i);
        i = to + 1;
        if (hit && (!rvi_jinja_charge(r, 1) || !percent_field(r, s, &i, &p, s->markup)))
            return rvi_jinja_drop(r, start);
    }
    bool left = args.kind == RVI_J_TUPLE
                    ? p.next < args.as.seq->count
                    : !p.used && args.kind != RVI_J_DICT && args.kind != RVI_J_LIST &&
                          args.kind != RVI_J_UNDEFINED && args.kind != RVI_J_RANGE;
    if (left) {
        rvi_jinja_fail(r, "not all arguments converted during string formatting");
        return rvi_jinja_drop(r, start);
    }
    rvi_jinja_trace(r, &r->scratch, s, start);
    return rvi_jv_mark(r, rvi_jinja_take(r, start), s->markup);
}

/* ---- "...".format(args) ---- */

static bool parse_spec(rvi_jrun *r, const rvi_jstr *s, spec *f)
{
    size_t i = 0;
    uint32_t cp;
    *f = plain;
    size_t used = s->len ? rvi_utf8_decode(s->data, s->len, &cp, NULL) : 0;
    if (used && used < s->len && s->data[used] && strchr("<>^=", s->data[used])) {
        memcpy(f->fill, s->data, used);
        f->fill_len = used;
        f->align = s->data[used];
        i = used + 1;
    } else if (s->len && s->data[0] && strchr("<>^=", s->data[0])) {
        f->align = s->data[0];
        i = 1;
    }
    if (i < s->len && s->data[i] && strchr("+- ", s->data[i])) f->sign = s->data[i++];
    if (i < s->len && s->data[i] == '#') f->alternate = true, i++;
    if (i < s->len && s->data[i] == '0') {
        f->zero = true;
        i++;
        if (!f->align) f->fill[0] = '0', f->fill_len = 1;
    }
    int64_t n = 0;
    for (; i < s->len && is_digit(s->data[i]) && n <= MAX_WIDTH; i++)
        f->width = n = n * 10 + (s->data[i] - '0');
    if (n > MAX_WIDTH) return rvi_jinja_fail(r, "a width in a format is too large"), false;
    if (i < s->len && (s->data[i] == ',' || s->data[i] == '_')) f->thousands = s->data[i++];
    if (i < s->len && s->data[i] == '.') {
        n = 0;
        if (++i >= s->len || !is_digit(s->data[i]))
            return rvi_jinja_fail(r, "Format specifier missing precision"), false;
        for (; i < s->len && is_digit(s->data[i]) && n <= MAX_PRECISION; i++)
            n = n * 10 + (s->data[i] - '0');
        if (n > MAX_PRECISION)
            return rvi_jinja_fail(r, "a precision in a format is too large"), false;
        f->precision = (int)n;
    }
    if (i < s->len) f->type = s->data[i++];
    if (i < s->len) return rvi_jinja_fail(r, "Invalid format specifier"), false;
    return true;
}

static bool format_value(rvi_jrun *r, rvi_jv v, const rvi_jstr *spec_text, bool markup)
{
    spec f;
    if (!spec_text->len || !(v.kind == RVI_J_STR || rvi_jv_is_number(v))) {
        if (spec_text->len)
            return rvi_jinja_fail(r, "unsupported format string passed to %s.__format__",
                                  rvi_jv_type_name(v)),
                   false;
        rvi_jv text = markup ? rvi_jv_escape(r, v) : rvi_jv_to_str(r, v);
        return !rvi_jv_failed(text) && rvi_jv_write_str(r, &r->scratch, text);
    }
    if (!parse_spec(r, spec_text, &f)) return false;
    if (v.kind == RVI_J_STR) {
        if ((f.type && f.type != 's') || f.sign || f.alternate || f.thousands || f.align == '=')
            return rvi_jinja_fail(r, "Invalid format specifier for object of type 'str'"), false;
        put_text(r, &f, v, f.align ? f.align : '<');
        return !r->status;
    }
    bool floating = v.kind == RVI_J_FLOAT || (f.type && strchr("eEfFgG%", f.type));
    if (!floating && f.precision >= 0)
        return rvi_jinja_fail(r, "Precision not allowed in integer format specifier"), false;
    if (f.type && !strchr(floating ? "eEfFgGn%" : "bdoxXnc", f.type))
        return rvi_jinja_fail(r, "Unknown format code '%c' for object of type '%s'", f.type,
                              rvi_jv_type_name(v)),
               false;
    if (!rvi_jinja_charge_chars(r, f.width > 0 ? (size_t)f.width : 0)) return false;
    if (floating)
        put_double(r, &f, rvi_jv_as_double(v));
    else if (f.type == 'c')
        return f.align = f.align ? f.align : '<', put_percent_char(r, &f, v);
    else
        put_int(&r->scratch, &f, rvi_jv_as_int(v));
    return true;
}

typedef struct format_state {
    const rvi_jargs *args;
    int64_t next;  /* of the numbered arguments */
    int numbering; /* 1: automatic, 2: by hand */
    bool markup;
} format_state;

static bool format_text(rvi_jrun *r, const rvi_jstr *s, format_state *p, int depth);

static rvi_jv first_value(rvi_jrun *r, const rvi_jstr *name, format_state *p)
{
    int64_t i = 0;
    bool too_big, number = name->len > 0;
    for (size_t k = 0; k < name->len; k++) number &= is_digit(name->data[k]);
    if (!name->len || number) {
        int how = name->len ? 2 : 1;
        if (p->numbering && p->numbering != how)
            return rvi_jinja_fail(r, "cannot switch between automatic and manual field numbering");
        p->numbering = how;
        if (!name->len)
            i = p->next++;
        else if (!rvi_jinja_parse_int(name, 10, &i, &too_big) || too_big)
            i = INT64_MAX;
        if ((uint64_t)i >= p->args->n_pos)
            return rvi_jinja_fail(r, "Replacement index out of range for positional args tuple");
        return p->args->pos[i];
    }
    for (size_t k = 0; k < p->args->n_named; k++)
        if (p->args->named[k].name->len == name->len &&
            !memcmp(p->args->named[k].name->data, name->data, name->len))
            return p->args->named[k].value;
    return rvi_jinja_fail(r, "format has no argument '%.*s'", (int)RVI_MIN(name->len, (size_t)100),
                          name->data);
}

/* name, then .attribute and [element] in any number */
static rvi_jv field_value(rvi_jrun *r, const rvi_jstr *field, format_state *p)
{
    size_t i = 0;
    while (i < field->len && field->data[i] != '.' && field->data[i] != '[') i++;
    rvi_jstr name = {.data = field->data, .len = i};
    rvi_jv v = first_value(r, &name, p);
    while (i < field->len && !rvi_jv_failed(v)) {
        bool attr = field->data[i] == '.', too_big;
        size_t from = ++i;
        int64_t number;
        while (i < field->len &&
               (attr ? field->data[i] != '.' && field->data[i] != '[' : field->data[i] != ']'))
            i++;
        if (i == from || (!attr && i >= field->len))
            return rvi_jinja_fail(r, "Empty attribute in format string");
        rvi_jv key = rvi_jv_view(r, field->data + from, i - from);
        if (rvi_jv_failed(key)) return key;
        if (!attr) {
            i++;
            if (i < field->len && field->data[i] != '.' && field->data[i] != '[')
                return rvi_jinja_fail(r,
                                      "Only '.' or '[' may follow ']' in format field specifier");
            if (is_digit(key.as.str->data[0]) &&
                rvi_jinja_parse_int(key.as.str, 10, &number, &too_big) && !too_big)
                key = rvi_jv_int(number);
        }
        v = attr ? rvi_jinja_getattr(r, v, key) : rvi_jinja_getitem(r, v, key);
    }
    return v;
}

/* Between the braces: field!conversion:spec */
static bool format_field(rvi_jrun *r, const rvi_jstr *inside, format_state *p, int depth)
{
    size_t i = 0;
    bool bracket = false;
    while (i < inside->len && (bracket || (inside->data[i] != '!' && inside->data[i] != ':'))) {
        bracket = inside->data[i] == '[' || (bracket && inside->data[i] != ']');
        i++;
    }
    rvi_jstr name = {.data = inside->data, .len = i}, spec_text = {.data = "", .len = 0};
    rvi_jv v = field_value(r, &name, p);
    if (rvi_jv_failed(v)) return false;
    if (i < inside->len && inside->data[i] == '!') {
        char how = i + 1 < inside->len ? inside->data[i + 1] : 0;
        if (how != 's' && how != 'r' && how != 'a')
            return rvi_jinja_fail(r, "Unknown conversion specifier"), false;
        v = how == 's' ? rvi_jv_to_str(r, v) : repr_text(r, v, how == 'a');
        if (rvi_jv_failed(v)) return false;
        i += 2;
        if (i < inside->len && inside->data[i] != ':')
            return rvi_jinja_fail(r, "expected ':' after conversion specifier"), false;
    }
    if (i < inside->len) {
        spec_text = (rvi_jstr){.data = inside->data + i + 1, .len = inside->len - i - 1};
        if (spec_text.len &&
            memchr(spec_text.data, '{', spec_text.len)) { /* fields inside the spec */
            size_t start = rvi_jinja_build(r);
            if (depth >= 1) return rvi_jinja_fail(r, "Max string recursion exceeded"), false;
            if (!format_text(r, &spec_text, p, depth + 1)) return rvi_jinja_drop(r, start), false;
            rvi_jv text = rvi_jinja_take(r, start);
            if (rvi_jv_failed(text)) return false;
            spec_text = *text.as.str;
        }
    }
    return format_value(r, v, &spec_text, p->markup);
}

static bool format_text(rvi_jrun *r, const rvi_jstr *s, format_state *p, int depth)
{
    for (size_t i = 0; i < s->len; i++) {
        char c = s->data[i];
        if (c != '{' && c != '}') {
            rvi_buf_putc(&r->scratch, c);
            continue;
        }
        if (i + 1 < s->len && s->data[i + 1] == c) {
            rvi_buf_putc(&r->scratch, c);
            i++;
            continue;
        }
        if (c == '}') return rvi_jinja_fail(r, "Single '}' encountered in format string"), false;
        size_t from = ++i;
        for (int open = 1; i < s->len; i++) {
            open += (s->data[i] == '{') - (s->data[i] == '}');
            if (!open) break;
        }
        if (i >= s->len) return rvi_jinja_fail(r, "Single '{' encountered in format string"), false;
        rvi_jstr inside = {.data = s->data + from, .len = i - from};
        if (!rvi_jinja_charge(r, 1) || !format_field(r, &inside, p, depth)) return false;
    }
    return rvi_jinja_charge_chars(r, s->len);
}

rvi_jv rvi_jinja_format(rvi_jrun *r, const rvi_jstr *format, const rvi_jargs *args)
{
    format_state p = {.args = args, .markup = format->markup};
    size_t start = rvi_jinja_build(r);
    if (!format_text(r, format, &p, 0)) return rvi_jinja_drop(r, start);
    rvi_jinja_trace(r, &r->scratch, format, start);
    return rvi_jinja_take(r, start);
}
