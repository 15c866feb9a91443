/* jinja_str.c - the methods of strings. */
#include <string.h>

#include "base/utf8.h"
#include "template/jinja_case.h"
#include "template/jinja_run.h"

#define METHOD(name)                                                                               \
    static rvi_jv name(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)
#define UNUSED_ARGS (void)a, (void)all

/* What a method of marked text returns is marked too, also inside lists and tuples. */
static rvi_jv marked(rvi_jrun *r, rvi_jv self, rvi_jv v)
{
    if (!self.as.str->markup || rvi_jv_failed(v)) return v;
    if (v.kind == RVI_J_STR) return rvi_jv_mark(r, v, true);
    if (v.kind == RVI_J_LIST || v.kind == RVI_J_TUPLE)
        for (size_t i = 0; i < v.as.seq->count; i++) {
            v.as.seq->items[i] =
                rvi_jv_mark(r, v.as.seq->items[i], true); /* made by the method: still its own */
            if (rvi_jv_failed(v.as.seq->items[i])) return RVI_JV(FAIL);
        }
    return v;
}

/* ---- case ---- */

#define CASE_METHOD(name, how)                                                                     \
    METHOD(name)                                                                                   \
    {                                                                                              \
        UNUSED_ARGS;                                                                               \
        return marked(r, self, rvi_jinja_recase(r, self.as.str, how));                             \
    }
CASE_METHOD(str_upper, RVI_JCASE_UPPER)
CASE_METHOD(str_lower, RVI_JCASE_LOWER)
CASE_METHOD(str_capitalize, RVI_JCASE_CAPITALIZE)
CASE_METHOD(str_title, RVI_JCASE_TITLE)
CASE_METHOD(str_swapcase, RVI_JCASE_SWAP)

/* ---- questions ---- */

/* every character answers yes, and there is one */
static rvi_jv every(rvi_jrun *r, const rvi_jstr *s, bool (*yes)(uint32_t))
{
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
        if (!yes(cp)) return rvi_jv_bool(false);
    }
    return rvi_jv_bool(s->len > 0);
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

#define EVERY_METHOD(name, yes)                                                                    \
    METHOD(name)                                                                                   \
    {                                                                                              \
        UNUSED_ARGS;                                                                               \
        return every(r, self.as.str, yes);                                                         \
    }
EVERY_METHOD(str_isalnum, rvi_jchar_alnum)
EVERY_METHOD(str_isalpha, rvi_jchar_alpha)
EVERY_METHOD(str_isdigit, rvi_jchar_digit)
EVERY_METHOD(str_isspace, rvi_jchar_space)

METHOD(str_isascii)
{
    UNUSED_ARGS;
    return self.as.str->len ? every(r, self.as.str, is_ascii) : rvi_jv_bool(true);
}

/* has the wanted case somewhere and the other nowhere */
static rvi_jv one_case(rvi_jrun *r, const rvi_jstr *s, bool (*wanted)(uint32_t),
                       bool (*other)(uint32_t))
{
    bool seen = false;
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
        if (other(cp) || rvi_jchar_title(cp)) return rvi_jv_bool(false);
        seen |= wanted(cp);
    }
    return rvi_jv_bool(seen);
}

METHOD(str_islower)
{
    UNUSED_ARGS;
    return one_case(r, self.as.str, rvi_jchar_lower, rvi_jchar_upper);
}

METHOD(str_isupper)
{
    UNUSED_ARGS;
    return one_case(r, self.as.str, rvi_jchar_upper, rvi_jchar_lower);
}

METHOD(str_istitle)
{
    UNUSED_ARGS;
    const rvi_jstr *s = self.as.str;
    bool seen = false, after_cased = false;
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
        bool upper = rvi_jchar_upper(cp) || rvi_jchar_title(cp), lower = rvi_jchar_lower(cp);
        if ((upper && after_cased) || (lower && !after_cased)) return rvi_jv_bool(false);
        after_cased = upper || lower;
        seen |= after_cased;
    }
    return rvi_jv_bool(seen);
}

/* The part of self that start and end (code points) choose; false: failed. *inside: start is not
 * beyond the end. */
static bool window(rvi_jrun *r, rvi_jv self, rvi_jv start, rvi_jv end, rvi_jstr *out,
                   size_t *offset, bool *inside)
{
    rvi_jstr *s = self.as.str;
    int64_t n = (int64_t)rvi_jstr_chars(r, s), from, to;
    if (start.kind == RVI_J_NONE) start = RVI_JV(MISSING);
    if (end.kind == RVI_J_NONE) end = RVI_JV(MISSING);
    if (!rvi_jarg_int(r, start, 0, &from) || !rvi_jarg_int(r, end, n, &to)) return false;
    if (from < 0) from = RVI_MAX(from + n, 0);
    if (to < 0) to = RVI_MAX(to + n, 0);
    to = RVI_MIN(to, n);
    *inside = from <= to;
    from = RVI_MIN(from, to);
    rvi_jv part = rvi_jinja_substring(r, s, (size_t)from, (size_t)to);
    if (rvi_jv_failed(part)) return false;
    *out = *part.as.str;
    *offset = (size_t)from;
    return true;
}

/* startswith, endswith: a string or a tuple of them */
static rvi_jv affix(rvi_jrun *r, rvi_jv self, const rvi_jv *a, bool at_end)
{
    rvi_jstr part;
    size_t offset;
    bool inside;
    if (!window(r, self, a[1], a[2], &part, &offset, &inside)) return RVI_JV(FAIL);
    bool tuple = a[0].kind == RVI_J_TUPLE;
    for (size_t i = 0; i < (tuple ? a[0].as.seq->count : 1); i++) {
        const rvi_jstr *x;
        if (!rvi_jarg_str(r, tuple ? a[0].as.seq->items[i] : a[0],
                          at_end ? "endswith" : "startswith", &x))
            return RVI_JV(FAIL);
        if (!inside || x->len > part.len || !rvi_jinja_charge_bytes(r, x->len)) continue;
        if (!x->len || !memcmp(part.data + (at_end ? part.len - x->len : 0), x->data, x->len))
            return rvi_jv_bool(true);
    }
    return r->status ? RVI_JV(FAIL) : rvi_jv_bool(false);
}

METHOD(str_startswith)
{
    (void)all;
    return affix(r, self, a, false);
}

METHOD(str_endswith)
{
    (void)all;
    return affix(r, self, a, true);
}

/* ---- finding ---- */

/* Code point index of a[0] in self, -1: none, -2: failed */
static int64_t find(rvi_jrun *r, rvi_jv self, const rvi_jv *a, bool last)
{
    rvi_jstr part;
    rvi_jfinder f;
    const rvi_jstr *x;
    size_t offset, hit;
    bool inside;
    if (!rvi_jarg_str(r, a[0], "find", &x) || !window(r, self, a[1], a[2], &part, &offset, &inside))
        return -2;
    if (!inside) return -1;
    if (!x->len) return (int64_t)(offset + (last ? rvi_jstr_chars(r, &part) : 0));
    if (!rvi_jfinder_init(r, &f, x->data, x->len, part.len)) return -2;
    hit = last ? rvi_jfinder_last(&f, part.data, part.len)
               : rvi_jfinder_next(&f, part.data, part.len, 0);
    return hit == SIZE_MAX ? -1 : (int64_t)(offset + rvi_utf8_count(part.data, hit));
}

static rvi_jv found(rvi_jrun *r, int64_t at, bool must)
{
    if (at == -2) return RVI_JV(FAIL);
    if (at == -1 && must) return rvi_jinja_fail(r, "substring not found");
    return rvi_jv_int(at);
}

METHOD(str_find)
{
    (void)all;
    return found(r, find(r, self, a, false), false);
}

METHOD(str_rfind)
{
    (void)all;
    return found(r, find(r, self, a, true), false);
}

METHOD(str_index)
{
    (void)all;
    return found(r, find(r, self, a, false), true);
}

METHOD(str_rindex)
{
    (void)all;
    return found(r, find(r, self, a, true), true);
}

METHOD(str_count)
{
    rvi_jstr part;
    rvi_jfinder f;
    const rvi_jstr *x;
    size_t offset;
    bool inside;
    (void)all;
    if (!rvi_jarg_str(r, a[0], "count", &x) ||
        !window(r, self, a[1], a[2], &part, &offset, &inside))
        return RVI_JV(FAIL);
    if (!inside) return rvi_jv_int(0);
    if (!x->len) return rvi_jv_int((int64_t)rvi_jstr_chars(r, &part) + 1);
    if (!rvi_jfinder_init(r, &f, x->data, x->len, part.len)) return RVI_JV(FAIL);
    int64_t count = 0;
    for (size_t p = 0; (p = rvi_jfinder_next(&f, part.data, part.len, p)) != SIZE_MAX; p += x->len)
        count++;
    return rvi_jv_int(count);
}

METHOD(str_replace)
{
    const rvi_jstr *old, *fresh;
    int64_t count;
    (void)all;
    rvi_jv with = self.as.str->markup && a[1].kind == RVI_J_STR ? rvi_jv_escape(r, a[1]) : a[1];
    if (!rvi_jarg_str(r, a[0], "replace", &old) || !rvi_jarg_str(r, with, "replace", &fresh))
        return RVI_JV(FAIL);
    if (!rvi_jarg_int(r, a[2], -1, &count)) return RVI_JV(FAIL);
    return marked(r, self, rvi_jinja_replace(r, self.as.str, old, fresh, count));
}

/* ---- cutting ---- */

METHOD(str_strip)
{
    (void)all;
    return marked(r, self, rvi_jinja_strip(r, self.as.str, a[0], true, true));
}

METHOD(str_lstrip)
{
    (void)all;
    return marked(r, self, rvi_jinja_strip(r, self.as.str, a[0], true, false));
}

METHOD(str_rstrip)
{
    (void)all;
    return marked(r, self, rvi_jinja_strip(r, self.as.str, a[0], false, true));
}

static rvi_jv remove_affix(rvi_jrun *r, rvi_jv self, rvi_jv affix_value, bool at_end)
{
    const rvi_jstr *s = self.as.str, *x;
    if (!rvi_jarg_str(r, affix_value, at_end ? "removesuffix" : "removeprefix", &x))
        return RVI_JV(FAIL);
    if (!rvi_jinja_charge_bytes(r, x->len)) return RVI_JV(FAIL);
    if (!x->len || x->len > s->len ||
        memcmp(s->data + (at_end ? s->len - x->len : 0), x->data, x->len))
        return self;
    return marked(r, self, rvi_jv_part(r, s, at_end ? 0 : x->len, s->len - x->len));
}

METHOD(str_removeprefix)
{
    (void)all;
    return remove_affix(r, self, a[0], false);
}

METHOD(str_removesuffix)
{
    (void)all;
    return remove_affix(r, self, a[0], true);
}

static bool push_piece(rvi_jrun *r, rvi_jvec *out, const rvi_jstr *s, size_t from, size_t to)
{
    rvi_jv piece = rvi_jv_part(r, s, from, to - from);
    return !rvi_jv_failed(piece) && rvi_jvec_push(r, out, piece);
}

static bool space_at(const rvi_jstr *s, size_t at, size_t *used)
{
    uint32_t cp;
    *used = rvi_utf8_decode(s->data + at, s->len - at, &cp, NULL);
    return rvi_jchar_space(cp);
}

/* At white space; the limited rest keeps its inner white space but not the one around it. */
static bool split_space(rvi_jrun *r, const rvi_jstr *s, int64_t limit, rvi_jvec *out)
{
    size_t used;
    for (size_t i = 0;;) {
        while (i < s->len && space_at(s, i, &used)) i += used;
        if (i >= s->len) return true;
        size_t from = i;
        if ((int64_t)out->count >= limit) return push_piece(r, out, s, from, s->len);
        while (i < s->len && !space_at(s, i, &used)) i += used;
        if (!push_piece(r, out, s, from, i)) return false;
    }
}

/* The same from the right; pieces come last first. */
static bool rsplit_space(rvi_jrun *r, const rvi_jstr *s, int64_t limit, rvi_jvec *out)
{
    size_t end = s->len, used;
    for (;;) {
        rvi_jstr rest = {.data = s->data, .len = end};
        rvi_jv stripped = rvi_jinja_strip(r, &rest, RVI_JV(NONE), false, true);
        if (rvi_jv_failed(stripped)) return false;
        end = stripped.as.str->len;
        if (!end) return true;
        if ((int64_t)out->count >= limit) return push_piece(r, out, s, 0, end);
        size_t from = end;
        while (from > 0) {
            size_t start = from - 1;
            while (start > 0 && ((unsigned char)s->data[start] & 0xC0) == 0x80) start--;
            if (space_at(s, start, &used)) break;
            from = start;
        }
        if (!push_piece(r, out, s, from, end)) return false;
        end = from;
    }
}

static bool split_at(rvi_jrun *r, const rvi_jstr *s, const rvi_jstr *sep, int64_t limit, bool right,
                     rvi_jvec *out)
{
    rvi_jfinder f;
    size_t from = 0, end = s->len;
    if (!rvi_jfinder_init(r, &f, sep->data, sep->len, s->len)) return false;
    while ((int64_t)out->count < limit) {
        if (right && f.border && !rvi_jinja_charge_bytes(r, end))
            return false; /* searched from the start each time */
        size_t hit = right ? rvi_jfinder_last(&f, s->data, end)
                           : rvi_jfinder_next(&f, s->data, s->len, from);
        if (hit == SIZE_MAX) break;
        if (right ? !push_piece(r, out, s, hit + sep->len, end) : !push_piece(r, out, s, from, hit))
            return false;
        if (right)
            end = hit;
        else
            from = hit + sep->len;
    }
    return push_piece(r, out, s, from, end);
}

static rvi_jv split(rvi_jrun *r, rvi_jv self, const rvi_jv *a, bool right)
{
    const rvi_jstr *s = self.as.str, *sep = NULL;
    rvi_jvec out = {0};
    int64_t limit;
    if (!rvi_jarg_int(r, a[1], -1, &limit)) return RVI_JV(FAIL);
    if (limit < 0) limit = INT64_MAX;
    if (rvi_jarg_given(a[0]) && !rvi_jarg_str(r, a[0], "separator", &sep)) return RVI_JV(FAIL);
    if (sep && !sep->len) return rvi_jinja_fail(r, "empty separator");
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    bool ok = sep     ? split_at(r, s, sep, limit, right, &out)
              : right ? rsplit_space(r, s, limit, &out)
                      : split_space(r, s, limit, &out);
    if (!ok) return RVI_JV(FAIL);
    if (right)
        for (size_t i = 0; i < out.count / 2; i++) {
            rvi_jv swap = out.items[i];
            out.items[i] = out.items[out.count - 1 - i];
            out.items[out.count - 1 - i] = swap;
        }
    return marked(r, self, rvi_jvec_finish(r, &out, RVI_J_LIST));
}

METHOD(str_split)
{
    (void)all;
    return split(r, self, a, false);
}

METHOD(str_rsplit)
{
    (void)all;
    return split(r, self, a, true);
}

METHOD(str_splitlines)
{
    (void)all;
    return marked(r, self, rvi_jinja_splitlines(r, self.as.str, rvi_jv_truth(a[0])));
}

static rvi_jv partition(rvi_jrun *r, rvi_jv self, rvi_jv separator, bool right)
{
    const rvi_jstr *s = self.as.str, *sep;
    rvi_jfinder f;
    rvi_jv *items, out = rvi_jv_seq(r, RVI_J_TUPLE, 3, &items);
    if (rvi_jv_failed(out) || !rvi_jarg_str(r, separator, "separator", &sep)) return RVI_JV(FAIL);
    if (!sep->len) return rvi_jinja_fail(r, "empty separator");
    if (!rvi_jfinder_init(r, &f, sep->data, sep->len, s->len)) return RVI_JV(FAIL);
    size_t hit =
        right ? rvi_jfinder_last(&f, s->data, s->len) : rvi_jfinder_next(&f, s->data, s->len, 0);
    bool none = hit == SIZE_MAX;
    size_t cut = none ? (right ? 0 : s->len) : hit, past = none ? cut : hit + sep->len;
    items[0] = rvi_jv_part(r, s, 0, cut);
    items[1] = rvi_jv_part(r, s, cut, past - cut);
    items[2] = rvi_jv_part(r, s, past, s->len - past);
    return r->status ? RVI_JV(FAIL) : marked(r, self, out);
}

METHOD(str_partition)
{
    (void)all;
    return partition(r, self, a[0], false);
}

METHOD(str_rpartition)
{
    (void)all;
    return partition(r, self, a[0], true);
}

/* ---- putting together ---- */

METHOD(str_join)
{
    rvi_jv item, it = rvi_jv_iter(r, a[0]);
    size_t start = rvi_jinja_build(r);
    (void)all;
    if (rvi_jv_failed(it)) return it;
    bool markup = self.as.str->markup;
    int more;
    for (size_t i = 0; (more = rvi_jiter_next(r, it.as.iter, &item)) == 1; i++) {
        if (!markup && item.kind != RVI_J_STR) {
            rvi_jinja_fail(r, "sequence item %zu: expected str instance, %s found", i,
                           rvi_jv_type_name(item));
            return rvi_jinja_drop(r, start);
        }
        if (markup && rvi_jv_failed(item = rvi_jv_escape(r, item))) return rvi_jinja_drop(r, start);
        if (i) rvi_jv_write_str(r, &r->scratch, self);
        if (!rvi_jv_write_str(r, &r->scratch, item)) break;
    }
    return marked(r, self, rvi_jinja_take(r, start));
}

static rvi_jv pad(rvi_jrun *r, rvi_jv self, const rvi_jv *a, int where)
{
    static const rvi_jstr blank = {.data = " ", .len = 1, .chars = 1};
    const rvi_jstr *fill = &blank;
    int64_t width;
    if (!rvi_jarg_int(r, a[0], 0, &width)) return RVI_JV(FAIL);
    if (a[1].kind != RVI_J_MISSING && !rvi_jarg_str(r, a[1], "fill character", &fill))
        return RVI_JV(FAIL);
    if (rvi_utf8_count(fill->data, fill->len) != 1)
        return rvi_jinja_fail(r, "The fill character must be exactly one character long");
    return marked(r, self, rvi_jinja_pad(r, self.as.str, width, fill, where));
}

METHOD(str_ljust)
{
    (void)all;
    return pad(r, self, a, -1);
}

METHOD(str_rjust)
{
    (void)all;
    return pad(r, self, a, 1);
}

METHOD(str_center)
{
    (void)all;
    return pad(r, self, a, 0);
}

METHOD(str_zfill)
{
    static const rvi_jstr zero = {.data = "0", .len = 1, .chars = 1};
    const rvi_jstr *s = self.as.str;
    int64_t width;
    (void)all;
    if (!rvi_jarg_int(r, a[0], 0, &width)) return RVI_JV(FAIL);
    bool sign = s->len && (s->data[0] == '-' || s->data[0] == '+');
    rvi_jv digits = rvi_jv_part(r, s, sign, s->len - sign);
    if (rvi_jv_failed(digits)) return digits;
    rvi_jv padded = rvi_jinja_pad(r, digits.as.str, width - sign, &zero, 1);
    if (!sign || rvi_jv_failed(padded)) return marked(r, self, padded);
    rvi_jv front = rvi_jv_part(r, s, 0, 1);
    return rvi_jv_failed(front) ? front : marked(r, self, rvi_jv_concat(r, front, padded));
}

METHOD(str_expandtabs)
{
    const rvi_jstr *s = self.as.str;
    int64_t size, column = 0;
    (void)all;
    if (!rvi_jarg_int(r, a[0], 8, &size) || !rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    size = RVI_MIN(size, 1000);
    size_t start = rvi_jinja_build(r);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        size_t used = rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
        if (cp == '\t') {
            for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--, column++)
                rvi_buf_putc(&r->scratch, ' ');
        } else {
            rvi_jinja_append(r, &r->scratch, s, i, used);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        i += used;
        if (!rvi_jinja_charge(r, 1)) break;
    }
    return marked(r, self, rvi_jinja_take(r, start));
}

METHOD(str_format)
{
    (void)a;
    return marked(r, self, rvi_jinja_format(r, self.as.str, all));
}

const rvi_jfn rvi_jinja_str_methods[] = {
    {"split", str_split, "sep maxsplit", 0},
    {"strip", str_strip, "-", 0},
    {"lstrip", str_lstrip, "-", 0},
    {"rstrip", str_rstrip, "-", 0},
    {"startswith", str_startswith, "- - -", 1},
    {"endswith", str_endswith, "- - -", 1},
    {"replace", str_replace, "- - -", 2},
    {"upper", str_upper, "", 0},
    {"lower", str_lower, "", 0},
    {"title", str_title, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"swapcase", str_swapcase, "", 0},
    {"join", str_join, "-", 1},
    {"format", str_format, "*", 0},
    {"find", str_find, "- - -", 1},
    {"rfind", str_rfind, "- - -", 1},
    {"index", str_index, "- - -", 1},
    {"rindex", str_rindex, "- - -", 1},
    {"count", str_count, "- - -", 1},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "-", 1},
    {"rpartition", str_rpartition, "-", 1},
    {"removeprefix", str_removeprefix, "-", 1},
    {"removesuffix", str_removesuffix, "-", 1},
    {"isalnum", str_isalnum, "", 0},
    {"isalpha", str_isalpha, "", 0},
    {"isascii", str_isascii, "", 0},
    {"isdigit", str_isdigit, "", 0},
    {"isdecimal", str_isdigit, "", 0},
    {"isnumeric", str_isdigit, "", 0},
    {"islower", str_islower, "", 0},
    {"isupper", str_isupper, "", 0},
    {"istitle", str_istitle, "", 0},
    {"isspace", str_isspace, "", 0},
    {"ljust", str_ljust, "- -", 1},
    {"rjust", str_rjust, "- -", 1},
    {"center", str_center, "- -", 1},
    {"zfill", str_zfill, "-", 1},
    {"expandtabs", str_expandtabs, "tabsize", 0},
};
const size_t rvi_jinja_n_str_methods = RVI_COUNT(rvi_jinja_str_methods);
