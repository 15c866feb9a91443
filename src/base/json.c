#include "base/json.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

/* Children of an open list are collected on one growing stack and moved into the arena when it
 * closes. */
typedef struct parser {
    const char *text;
    size_t len, pos;
    rvi_arena *arena;
    rvi_json *stack;
    size_t n_stack, cap_stack;
    const char *what;
    rv_error *err;
} parser;

static rv_status fail(parser *p, const char *why)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < p->pos && i < p->len; i++, column++)
        if (p->text[i] == '\n') {
            line++;
            column = 0;
        }
    return rvi_error(p->err, RV_E_CONFIG, "%s: line %zu, column %zu: %s", p->what, line, column,
                     why);
}

static void skip_space(parser *p)
{
    while (p->pos < p->len && strchr(" \t\r\n", p->text[p->pos]) && p->text[p->pos]) p->pos++;
}

static int peek(const parser *p)
{
    return p->pos < p->len ? (unsigned char)p->text[p->pos] : -1;
}

static int hex4(parser *p, uint32_t *out)
{
    *out = 0;
    if (p->len - p->pos < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p->text[p->pos + (size_t)i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        *out = *out << 4 | (uint32_t)d;
    }
    p->pos += 4;
    return 0;
}

/* After "\u" */
static int escaped_code_point(parser *p, uint32_t *cp)
{
    uint32_t low;
    if (hex4(p, cp)) return -1;
    if (*cp < 0xD800 || *cp > 0xDFFF) return 0;
    if (*cp < 0xDC00 && p->len - p->pos >= 6 && p->text[p->pos] == '\\' &&
        p->text[p->pos + 1] == 'u') {
        size_t back = p->pos;
        p->pos += 2;
        if (hex4(p, &low)) return -1;
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
            return 0;
        }
        p->pos = back;
    }
    *cp = 0xFFFD;
    return 0;
}

static rv_status parse_string(parser *p, const char **out, size_t *out_len)
{
    p->pos++; /* the quote */
    size_t start = p->pos, end = start;
    while (end < p->len && p->text[end] != '"') end += p->text[end] == '\\' ? 2 : 1;
    if (end >= p->len) return fail(p, "unterminated string");

    char *dst = rvi_arena_alloc(p->arena, end - start + 1, 1); /* escapes only shrink */
    if (!dst) return rvi_nomem(p->err, p->what);
    size_t n = 0;
    while (p->pos < end) {
        unsigned char c = (unsigned char)p->text[p->pos];
        if (c < 0x20) return fail(p, "control character in a string");
        if (c == '\\') {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            const char *at;
            uint32_t cp;
            p->pos++;
            c = (unsigned char)p->text[p->pos++];
            if (c == 'u') {
                if (escaped_code_point(p, &cp)) return fail(p, "bad \\u escape");
                n += rvi_utf8_encode(cp, dst + n);
            } else if (c && (at = strchr(from, c))) {
                dst[n++] = to[at - from];
            } else {
                return fail(p, "unknown escape in a string");
            }
        } else if (c < 0x80) {
            dst[n++] = (char)c;
            p->pos++;
        } else {
            uint32_t cp;
            bool valid;
            size_t used = rvi_utf8_decode(p->text + p->pos, end - p->pos, &cp, &valid);
            if (!valid) return fail(p, "invalid UTF-8 in a string");
            memcpy(dst + n, p->text + p->pos, used);
            n += used;
            p->pos += used;
        }
    }
    p->pos = end + 1;
    dst[n] = 0;
    *out = dst;
    *out_len = n;
    return RV_OK;
}

static size_t digits(parser *p)
{
    size_t start = p->pos;
    while (peek(p) >= '0' && peek(p) <= '9') p->pos++;
    return p->pos - start;
}

static rv_status parse_number(parser *p, rvi_json *v)
{
    enum { MAX_LEN = 1000 };
    size_t start = p->pos;
    bool whole = true;
    if (peek(p) == '-') p->pos++;
    if (peek(p) == '0')
        p->pos++;
    else if (!digits(p))
        return fail(p, "value expected");
    if (peek(p) == '.') {
        whole = false;
        p->pos++;
        if (!digits(p)) return fail(p, "digits expected after the decimal point");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        whole = false;
        p->pos++;
        if (peek(p) == '+' || peek(p) == '-') p->pos++;
        if (!digits(p)) return fail(p, "digits expected in the exponent");
    }
    char copy[MAX_LEN + 1];
    size_t len = p->pos - start;
    if (len > MAX_LEN) return fail(p, "number with too many digits");
    memcpy(copy, p->text + start, len);
    copy[len] = 0;
    v->number_text = p->text + start;
    v->number_len = len;
    errno = 0;
    if (whole) {
        v->kind = RVI_JSON_INT;
        v->as.integer = strtoll(copy, NULL, 10);
        if (!errno) return RV_OK;
    }
    v->kind = RVI_JSON_NUMBER;
    v->as.number = rvi_number_parse(copy, NULL);
    return isfinite(v->as.number) ? RV_OK : fail(p, "number too large");
}

static rv_status push(parser *p, const rvi_json *v)
{
    if (p->arena->max && p->n_stack >= p->arena->max / sizeof *v) return rvi_nomem(p->err, p->what);
    if (p->n_stack == p->cap_stack) {
        size_t cap = p->cap_stack ? p->cap_stack * 2 : 64;
        rvi_json *stack = rvi_realloc_array(p->stack, cap, sizeof *stack);
        if (!stack) return rvi_nomem(p->err, p->what);
        p->stack = stack;
        p->cap_stack = cap;
    }
    p->stack[p->n_stack++] = *v;
    return RV_OK;
}

static rv_status parse_value(parser *p, rvi_json *v, int depth);

static rv_status parse_list(parser *p, rvi_json *v, int depth)
{
    bool object = v->kind == RVI_JSON_OBJECT;
    char close = object ? '}' : ']';
    size_t base = p->n_stack;
    rv_status st;
    if (depth >= RVI_JSON_DEPTH) return fail(p, "nested too deeply");
    p->pos++;
    skip_space(p);
    if (peek(p) == close) {
        p->pos++;
        return RV_OK;
    }
    for (;;) {
        rvi_json child = {0};
        skip_space(p);
        if (object) {
            size_t key_len;
            if (peek(p) != '"') return fail(p, "member name expected");
            if ((st = parse_string(p, &child.key, &key_len))) return st;
            if (key_len > UINT32_MAX) return fail(p, "member name too long");
            child.key_len = (uint32_t)key_len;
            skip_space(p);
            if (peek(p) != ':') return fail(p, "':' expected");
            p->pos++;
            skip_space(p);
        }
        if ((st = parse_value(p, &child, depth + 1))) return st;
        if ((st = push(p, &child))) return st;
        skip_space(p);
        if (peek(p) == close) break;
        if (peek(p) != ',') return fail(p, object ? "',' or '}' expected" : "',' or ']' expected");
        p->pos++;
    }
    p->pos++;
    size_t count = p->n_stack - base;
    rvi_json *items = rvi_arena_alloc(p->arena, count, sizeof *items);
    if (!items) return rvi_nomem(p->err, p->what);
    memcpy(items, p->stack + base, count * sizeof *items);
    p->n_stack = base;
    v->as.list.items = items;
    v->as.list.count = count;
    return RV_OK;
}

static bool word(parser *p, const char *text)
{
    size_t n = strlen(text);
    if (p->len - p->pos < n || memcmp(p->text + p->pos, text, n)) return false;
    p->pos += n;
    return true;
}

static rv_status parse_value(parser *p, rvi_json *v, int depth)
{
    switch (peek(p)) {
    case '{': v->kind = RVI_JSON_OBJECT; return parse_list(p, v, depth);
    case '[': v->kind = RVI_JSON_ARRAY; return parse_list(p, v, depth);
    case '"':
        v->kind = RVI_JSON_STRING;
        return parse_string(p, &v->as.string.data, &v->as.string.len);
    case 'n': v->kind = RVI_JSON_NULL; return word(p, "null") ? RV_OK : fail(p, "unknown word");
    case 't':
    case 'f':
        v->kind = RVI_JSON_BOOL;
        v->as.boolean = peek(p) == 't';
        return word(p, v->as.boolean ? "true" : "false") ? RV_OK : fail(p, "unknown word");
    case -1: return fail(p, "the text ends too early");
    default: return parse_number(p, v);
    }
}

rv_status rvi_json_parse(const rvi_json **out, const char *text, size_t len, rvi_arena *arena,
                         const char *what, rv_error *err)
{
    parser p = {.text = text, .len = len, .arena = arena, .what = what, .err = err};
    *out = NULL;
    if (len >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) p.pos = 3;
    rvi_json *root = rvi_arena_alloc(arena, 1, sizeof *root);
    if (!root) return rvi_nomem(err, what);
    skip_space(&p);
    rv_status st = parse_value(&p, root, 0);
    if (!st) {
        skip_space(&p);
        if (p.pos < p.len) st = fail(&p, "more text after the end of the value");
    }
    rvi_free(p.stack);
    if (!st) *out = root;
    return st;
}

const rvi_json *rvi_json_get(const rvi_json *object, const char *key)
{
    if (!rvi_json_is(object, RVI_JSON_OBJECT)) return NULL;
    size_t len = strlen(key);
    for (size_t i = object->as.list.count; i-- > 0;) {
        const rvi_json *m = &object->as.list.items[i];
        if (m->key_len == len && !memcmp(m->key, key, len)) return m;
    }
    return NULL;
}

size_t rvi_json_count(const rvi_json *list)
{
    return rvi_json_is(list, RVI_JSON_ARRAY) || rvi_json_is(list, RVI_JSON_OBJECT)
               ? list->as.list.count
               : 0;
}

const rvi_json *rvi_json_at(const rvi_json *list, size_t index)
{
    return index < rvi_json_count(list) ? &list->as.list.items[index] : NULL;
}

bool rvi_json_is(const rvi_json *v, rvi_json_kind kind)
{
    return v && v->kind == kind;
}

bool rvi_json_is_string(const rvi_json *v, const char *text)
{
    return rvi_json_is(v, RVI_JSON_STRING) && v->as.string.len == strlen(text) &&
           !memcmp(v->as.string.data, text, v->as.string.len);
}

const char *rvi_json_string(const rvi_json *v, const char *fallback)
{
    return rvi_json_is(v, RVI_JSON_STRING) ? v->as.string.data : fallback;
}

double rvi_json_number(const rvi_json *v, double fallback)
{
    if (rvi_json_is(v, RVI_JSON_INT)) return (double)v->as.integer;
    return rvi_json_is(v, RVI_JSON_NUMBER) ? v->as.number : fallback;
}

int64_t rvi_json_int(const rvi_json *v, int64_t fallback)
{
    if (rvi_json_is(v, RVI_JSON_INT)) return v->as.integer;
    if (rvi_json_is(v, RVI_JSON_NUMBER) && fabs(v->as.number) < 9e15 &&
        floor(v->as.number) == v->as.number)
        return (int64_t)v->as.number;
    return fallback;
}

rvi_json rvi_json_list(rvi_json_kind kind, const rvi_json *items, size_t n)
{
    rvi_json v = {.kind = kind};
    v.as.list.items = items;
    v.as.list.count = n;
    return v;
}

rvi_json rvi_json_named(rvi_json v, const char *key)
{
    v.key = key;
    v.key_len = (uint32_t)strlen(key);
    return v;
}

bool rvi_json_bool(const rvi_json *v, bool fallback)
{
    return rvi_json_is(v, RVI_JSON_BOOL) ? v->as.boolean : fallback;
}

bool rvi_json_write_string(rvi_buf *out, const char *s, size_t len)
{
    rvi_buf_putc(out, '"');
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *at = c ? strchr(from, c) : NULL;
        if (at) {
            rvi_buf_printf(out, "\\%c", to[at - from]);
            i++;
        } else if (c < 0x20 || c == 0x7F) {
            rvi_buf_printf(out, "\\u%04x", c);
            i++;
        } else {
            uint32_t cp;
            char bytes[4];
            i += rvi_utf8_decode(s + i, len - i, &cp, NULL);
            rvi_buf_append(out, bytes, rvi_utf8_encode(cp, bytes));
        }
    }
    return rvi_buf_putc(out, '"');
}

bool rvi_json_write_number(rvi_buf *out, double v)
{
    if (!isfinite(v)) return rvi_buf_puts(out, "null");
    char text[40];
    /* A number of at most 15 digits comes back from the double next to it, followed by zeros, which
     * %g leaves out; below DBL_MIN doubles have fewer digits. */
    for (int precision = fabs(v) < DBL_MIN ? 1 : DBL_DIG; precision <= 17; precision++) {
        (void)rvi_snprintf(text, sizeof text, "%.*g", precision, v);
        if (rvi_number_parse(text, NULL) == v) break;
    }
    if (fabs(v) < 1e16 && strstr(text, "e+"))
        (void)rvi_snprintf(text, sizeof text, "%.17g", v); /* 100.0, not 1e+02 */
    rvi_buf_puts(out, text);
    return rvi_buf_puts(out, strpbrk(text, ".e") ? "" : ".0");
}

bool rvi_json_write(rvi_buf *out, const rvi_json *v)
{
    bool object = v->kind == RVI_JSON_OBJECT;
    switch (v->kind) {
    case RVI_JSON_NULL: return rvi_buf_puts(out, "null");
    case RVI_JSON_BOOL: return rvi_buf_puts(out, v->as.boolean ? "true" : "false");
    case RVI_JSON_INT:
    case RVI_JSON_NUMBER: return rvi_buf_append(out, v->number_text, v->number_len);
    case RVI_JSON_STRING: return rvi_json_write_string(out, v->as.string.data, v->as.string.len);
    case RVI_JSON_ARRAY:
    case RVI_JSON_OBJECT: break;
    }
    rvi_buf_putc(out, object ? '{' : '[');
    for (size_t i = 0; i < v->as.list.count; i++) {
        const rvi_json *item = &v->as.list.items[i];
        if (i) rvi_buf_putc(out, ',');
        if (object) rvi_json_write_string(out, item->key, item->key_len);
        if (object) rvi_buf_putc(out, ':');
        rvi_json_write(out, item);
    }
    return rvi_buf_putc(out, object ? '}' : ']');
}
