/* jinja_text.c - values as text: str(), repr(), JSON, HTML escapes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "text/chars.h"
#include "template/jinja_run.h"

enum { FLOAT_STEPS = 20 }; /* what writing one costs */

/* Adds one to the last digit of a decimal mantissa, "1.29e5" to "1.30e5"; false where the first
 * digit overflows. */
static bool next_decimal(char *text)
{
    char *p = strchr(text, 'e');
    while (p && p > text) {
        p--;
        if (*p == '.') continue;
        if (*p != '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

/* Shortest decimal digits that read back as v > 0, and where the point stands: 0.d1d2d3... *
 * 10^exponent.
 *
 * A decimal of up to 15 digits survives the way through a double, so 15 digits show any shorter
 * one; only the tiny numbers below the normal ones need a search. Above a power of two the doubles
 * lie further apart than below it, so there the next decimal of 16 digits may read back although
 * the nearest one does not. */
static int shortest_digits(double v, char digits[20], int *exponent)
{
    char text[40];
    for (int precision = v < 2.3e-308 ? 0 : 14; precision < 17; precision++) {
        (void)rvi_snprintf(text, sizeof text, "%.*e", precision, v);
        if (rvi_number_parse(text, NULL) == v) break;
        if (precision == 15 && next_decimal(text) && rvi_number_parse(text, NULL) == v) break;
    }
    int n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 19) digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0') n--;
    *exponent = (*p ? (int)strtol(p + 1, NULL, 10) : 0) + 1;
    return n;
}

void rvi_jinja_write_float(rvi_buf *out, double v)
{
    char digits[20];
    int exponent, n;
    if (isnan(v)) {
        rvi_buf_puts(out, "nan");
        return;
    }
    if (signbit(v)) rvi_buf_putc(out, '-');
    if (isinf(v) || v == 0) {
        rvi_buf_puts(out, v == 0 ? "0.0" : "inf");
        return;
    }
    n = shortest_digits(fabs(v), digits, &exponent);
    if (exponent < -3 ||
        exponent > 16) { /* Python writes an exponent below 1e-04 and from 1e+16 on */
        rvi_buf_putc(out, digits[0]);
        if (n > 1) rvi_buf_putc(out, '.');
        rvi_buf_append(out, digits + 1, (size_t)(n - 1));
        rvi_buf_printf(out, "e%c%02d", exponent > 0 ? '+' : '-', abs(exponent - 1));
        return;
    }
    if (exponent <= 0) rvi_buf_puts(out, "0.");
    for (int i = exponent; i < 0; i++) rvi_buf_putc(out, '0');
    for (int i = 0; i < n || i < exponent; i++) {
        if (i == exponent && i) rvi_buf_putc(out, '.');
        rvi_buf_putc(out, i < n ? digits[i] : '0');
    }
    if (exponent > 0 && n <= exponent) rvi_buf_puts(out, ".0");
}

/* ---- repr ---- */

static void repr_str(rvi_buf *out, const rvi_jstr *s)
{
    bool single = s->len && memchr(s->data, '\'', s->len),
         twice = s->len && memchr(s->data, '"', s->len);
    char quote = single && !twice ? '"' : '\'';
    rvi_buf_putc(out, quote);
    size_t plain = 0; /* start of the text that needs no escape */
    for (size_t i = 0, used; i < s->len; i += used) {
        uint32_t c;
        used = rvi_utf8_decode(s->data + i, s->len - i, &c, NULL);
        if (c != (uint32_t)quote && c != '\\' && rvi_char_printable(c)) continue;
        rvi_buf_append(out, s->data + plain, i - plain);
        plain = i + used;
        char known[3] = {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : (char)c, 0};
        if (c == (uint32_t)quote || c == '\\' || c == '\n' || c == '\r' || c == '\t')
            rvi_buf_append(out, known, 2);
        else if (c < 0x100)
            rvi_buf_printf(out, "\\x%02x", c);
        else if (c < 0x10000)
            rvi_buf_printf(out, "\\u%04x", c);
        else
            rvi_buf_printf(out, "\\U%08x", c);
    }
    rvi_buf_append(out, s->data + plain, s->len - plain);
    rvi_buf_putc(out, quote);
}

static bool repr_seq(rvi_jrun *r, rvi_buf *out, const rvi_jseq *s, const char *open,
                     const char *close)
{
    rvi_buf_puts(out, open);
    for (size_t i = 0; i < s->count; i++) {
        if (i) rvi_buf_puts(out, ", ");
        if (!rvi_jv_write_repr(r, out, s->items[i])) return false;
    }
    return rvi_buf_puts(out, close);
}

static bool repr_dict(rvi_jrun *r, rvi_buf *out, const rvi_jdict *d)
{
    rvi_buf_putc(out, '{');
    for (size_t i = 0; i < d->count; i++) {
        if (i) rvi_buf_puts(out, ", ");
        if (!rvi_jv_write_repr(r, out, d->pairs[i].key)) return false;
        rvi_buf_puts(out, ": ");
        if (!rvi_jv_write_repr(r, out, d->pairs[i].value)) return false;
    }
    return rvi_buf_putc(out, '}');
}

static bool repr_range(rvi_buf *out, const rvi_jrange *x)
{
    rvi_buf_printf(out, "range(%lld, %lld", (long long)x->start, (long long)x->stop);
    return x->step == 1 ? rvi_buf_putc(out, ')')
                        : rvi_buf_printf(out, ", %lld)", (long long)x->step);
}

static bool repr_container(rvi_jrun *r, rvi_buf *out, rvi_jv v)
{
    switch (v.kind) {
    case RVI_J_LIST: return repr_seq(r, out, v.as.seq, "[", "]");
    case RVI_J_TUPLE: return repr_seq(r, out, v.as.seq, "(", v.as.seq->count == 1 ? ",)" : ")");
    case RVI_J_KEYS: return repr_seq(r, out, v.as.seq, "dict_keys([", "])");
    case RVI_J_VALUES: return repr_seq(r, out, v.as.seq, "dict_values([", "])");
    case RVI_J_ITEMS: return repr_seq(r, out, v.as.seq, "dict_items([", "])");
    case RVI_J_DICT: return repr_dict(r, out, v.as.dict);
    default:
        return rvi_buf_puts(out, "<Namespace ") && repr_dict(r, out, v.as.dict) &&
               rvi_buf_putc(out, '>');
    }
}

static void repr_name(rvi_buf *out, const char *type, const rvi_jstr *name)
{
    rvi_buf_printf(out, "<%s ", type);
    if (name)
        repr_str(out, name);
    else
        rvi_buf_puts(out, "anonymous");
    rvi_buf_putc(out, '>');
}

bool rvi_jv_write_repr(rvi_jrun *r, rvi_buf *out, rvi_jv v)
{
    size_t before = out->len;
    bool ok = true;
    switch (v.kind) {
    case RVI_J_FAIL: return false;
    case RVI_J_MISSING: rvi_buf_puts(out, "missing"); break;
    case RVI_J_UNDEFINED: rvi_buf_puts(out, "Undefined"); break;
    case RVI_J_NONE: rvi_buf_puts(out, "None"); break;
    case RVI_J_BOOL: rvi_buf_puts(out, v.as.boolean ? "True" : "False"); break;
    case RVI_J_INT: rvi_buf_printf(out, "%lld", (long long)v.as.integer); break;
    case RVI_J_FLOAT:
        rvi_jinja_write_float(out, v.as.number);
        ok = rvi_jinja_charge(r, FLOAT_STEPS);
        break;
    case RVI_J_STR:
        if (v.as.str->markup) rvi_buf_puts(out, "Markup(");
        repr_str(out, v.as.str);
        if (v.as.str->markup) rvi_buf_putc(out, ')');
        rvi_jinja_trace(r, out, v.as.str, before);
        break;
    case RVI_J_RANGE: repr_range(out, v.as.range); break;
    case RVI_J_ITER: rvi_buf_printf(out, "<%s>", v.as.iter->repr); break;
    case RVI_J_MACRO: repr_name(out, "Macro", v.as.macro->node->name); break;
    case RVI_J_FUNCTION: rvi_buf_printf(out, "<function %s>", v.as.fn->name); break;
    case RVI_J_METHOD:
        rvi_buf_printf(out, "<built-in method %s of %s object>", v.as.method->fn->name,
                       rvi_jv_type_name(v.as.method->self));
        break;
    case RVI_J_LOOP:
        rvi_buf_printf(out, "<LoopContext %lld/%lld>", (long long)v.as.loop->index0 + 1,
                       (long long)rvi_jloop_length(r, v.as.loop));
        break;
    case RVI_J_JOINER: rvi_buf_puts(out, "<Joiner>"); break;
    default:
        if (!rvi_jinja_enter(r)) return false;
        ok = repr_container(r, out, v);
        rvi_jinja_leave(r);
    }
    return rvi_jinja_charge_chars(r, out->len - before) && ok;
}

bool rvi_jv_write_str(rvi_jrun *r, rvi_buf *out, rvi_jv v)
{
    if (v.kind == RVI_J_UNDEFINED) return true;
    if (v.kind != RVI_J_STR) return rvi_jv_write_repr(r, out, v);
    if (!rvi_jinja_charge_bytes(r, v.as.str->len)) return false;
    rvi_jinja_append(r, out, v.as.str, 0, v.as.str->len);
    return !out->failed && !r->status;
}

rvi_jv rvi_jv_to_str(rvi_jrun *r, rvi_jv v)
{
    if (v.kind == RVI_J_STR) return rvi_jv_mark(r, v, false);
    size_t start = rvi_jinja_build(r);
    rvi_jv_write_str(r, &r->scratch, v);
    return rvi_jinja_take(r, start);
}

rvi_jv rvi_jv_soft_str(rvi_jrun *r, rvi_jv v)
{
    return v.kind == RVI_J_STR ? v : rvi_jv_to_str(r, v);
}

rvi_jv rvi_jv_escape(rvi_jrun *r, rvi_jv v)
{
    if (v.kind == RVI_J_STR && v.as.str->markup) return v;
    rvi_jv text = rvi_jv_to_str(r, v);
    if (rvi_jv_failed(text)) return text;
    const rvi_jstr *s = text.as.str;
    size_t start = rvi_jinja_build(r);
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len; i++) {
        switch (s->data[i]) {
        case '&': rvi_buf_puts(&r->scratch, "&amp;"); break;
        case '<': rvi_buf_puts(&r->scratch, "&lt;"); break;
        case '>': rvi_buf_puts(&r->scratch, "&gt;"); break;
        case '"': rvi_buf_puts(&r->scratch, "&#34;"); break;
        case '\'': rvi_buf_puts(&r->scratch, "&#39;"); break;
        default: rvi_buf_putc(&r->scratch, s->data[i]);
        }
    }
    rvi_jinja_trace(r, &r->scratch, s, start);
    return rvi_jv_mark(r, rvi_jinja_take(r, start), true);
}

/* ---- JSON, as json.dumps writes it ---- */

static void json_str(rvi_buf *out, const rvi_jstr *s, bool ascii)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    rvi_buf_putc(out, '"');
    size_t plain = 0; /* start of the text that needs no escape */
    for (size_t i = 0, used; i < s->len; i += used) {
        uint32_t c;
        used = rvi_utf8_decode(s->data + i, s->len - i, &c, NULL);
        if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7F)) continue;
        rvi_buf_append(out, s->data + plain, i - plain);
        plain = i + used;
        const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        char escape[2] = {'\\', known ? to[known - from] : 0};
        if (known)
            rvi_buf_append(out, escape, 2);
        else if (c < 0x10000)
            rvi_buf_printf(out, "\\u%04x", c);
        else
            rvi_buf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                           0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    rvi_buf_append(out, s->data + plain, s->len - plain);
    rvi_buf_putc(out, '"');
}

static void json_float(rvi_buf *out, double v)
{
    if (isnan(v))
        rvi_buf_puts(out, "NaN");
    else if (isinf(v))
        rvi_buf_puts(out, v < 0 ? "-Infinity" : "Infinity");
    else
        rvi_jinja_write_float(out, v);
}

static void json_newline(rvi_buf *out, const rvi_jjson *how, uint32_t level)
{
    if (!how->indent) return;
    rvi_buf_putc(out, '\n');
    for (uint32_t i = 0; i < level; i++) rvi_buf_append(out, how->indent, how->indent_len);
}

static bool json_value(rvi_jrun *r, rvi_buf *out, rvi_jv v, const rvi_jjson *how, uint32_t level);

static bool json_list(rvi_jrun *r, rvi_buf *out, const rvi_jseq *s, const rvi_jjson *how,
                      uint32_t level)
{
    if (!s->count) return rvi_buf_puts(out, "[]");
    rvi_buf_putc(out, '[');
    for (size_t i = 0; i < s->count; i++) {
        if (i) rvi_buf_append(out, how->item_sep->data, how->item_sep->len);
        json_newline(out, how, level + 1);
        if (!json_value(r, out, s->items[i], how, level + 1)) return false;
    }
    json_newline(out, how, level);
    return rvi_buf_putc(out, ']');
}

static bool json_key(rvi_jrun *r, rvi_buf *out, rvi_jv key, bool ascii)
{
    size_t before = out->len;
    switch (key.kind) {
    case RVI_J_STR:
        json_str(out, key.as.str, ascii);
        rvi_jinja_trace(r, out, key.as.str, before);
        return true;
    case RVI_J_NONE: return rvi_buf_puts(out, "\"null\"");
    case RVI_J_BOOL: return rvi_buf_puts(out, key.as.boolean ? "\"true\"" : "\"false\"");
    case RVI_J_INT: return rvi_buf_printf(out, "\"%lld\"", (long long)key.as.integer);
    case RVI_J_FLOAT:
        rvi_buf_putc(out, '"');
        json_float(out, key.as.number);
        return rvi_buf_putc(out, '"');
    default:
        rvi_jinja_fail(r, "keys must be str, int, float, bool or None, not %s",
                       rvi_jv_type_name(key));
        return false;
    }
}

static bool json_dict(rvi_jrun *r, rvi_buf *out, const rvi_jdict *d, const rvi_jjson *how,
                      uint32_t level)
{
    rvi_jv *keys = NULL, *values = NULL;
    if (!d->count) return rvi_buf_puts(out, "{}");
    if (how->sort_keys) {
        keys = rvi_jinja_alloc(r, d->count, sizeof *keys);
        values = rvi_jinja_alloc(r, d->count, sizeof *values);
        if (!keys || !values) return false;
        for (size_t i = 0; i < d->count; i++) {
            keys[i] = d->pairs[i].key;
            values[i] = d->pairs[i].value;
        }
        if (!rvi_jv_sort(r, values, keys, d->count, false)) return false;
    }
    rvi_buf_putc(out, '{');
    for (size_t i = 0; i < d->count; i++) {
        if (i) rvi_buf_append(out, how->item_sep->data, how->item_sep->len);
        json_newline(out, how, level + 1);
        if (!json_key(r, out, keys ? keys[i] : d->pairs[i].key, how->ensure_ascii)) return false;
        rvi_buf_append(out, how->key_sep->data, how->key_sep->len);
        if (!json_value(r, out, keys ? values[i] : d->pairs[i].value, how, level + 1)) return false;
    }
    json_newline(out, how, level);
    return rvi_buf_putc(out, '}');
}

static bool json_value(rvi_jrun *r, rvi_buf *out, rvi_jv v, const rvi_jjson *how, uint32_t level)
{
    bool ok = true;
    size_t before = out->len;
    switch (v.kind) {
    case RVI_J_NONE: rvi_buf_puts(out, "null"); break;
    case RVI_J_BOOL: rvi_buf_puts(out, v.as.boolean ? "true" : "false"); break;
    case RVI_J_INT: rvi_buf_printf(out, "%lld", (long long)v.as.integer); break;
    case RVI_J_FLOAT:
        json_float(out, v.as.number);
        ok = rvi_jinja_charge(r, FLOAT_STEPS);
        break;
    case RVI_J_STR:
        json_str(out, v.as.str, how->ensure_ascii);
        rvi_jinja_trace(r, out, v.as.str, before);
        break;
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_DICT:
        if (!rvi_jinja_enter(r)) return false;
        ok = v.kind == RVI_J_DICT ? json_dict(r, out, v.as.dict, how, level)
                                  : json_list(r, out, v.as.seq, how, level);
        rvi_jinja_leave(r);
        break;
    default:
        rvi_jinja_fail(r, "Object of type %s is not JSON serializable", rvi_jv_type_name(v));
        return false;
    }
    return rvi_jinja_charge_chars(r, out->len - before) && ok;
}

bool rvi_jv_write_json(rvi_jrun *r, rvi_buf *out, rvi_jv v, const rvi_jjson *how)
{
    return json_value(r, out, v, how, 0);
}
