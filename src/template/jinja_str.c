/* jinja_str.c - the methods of strings. */
#include <string.h>

#include "base/utf8.h"
#include "text/chars.h"
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

/* ---- questions ---- */

/* has the wanted case somewhere and the other nowhere */
rvi_jv rvi_jinja_one_case(rvi_jrun *r, const rvi_jstr *s, bool upper)
{
    bool seen = false;
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += rvi_utf8_decode(s->data + i, s->len - i, &cp, NULL);
        if ((upper ? rvi_char_lower(cp) : rvi_char_upper(cp)) || rvi_char_title(cp))
            return rvi_jv_bool(false);
        seen |= upper ? rvi_char_upper(cp) : rvi_char_lower(cp);
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

static rvi_jv found(int64_t at)
{
    return at == -2 ? RVI_JV(FAIL) : rvi_jv_int(at);
}

METHOD(str_find)
{
    (void)all;
    return found(find(r, self, a, false));
}

METHOD(str_rfind)
{
    (void)all;
    return found(find(r, self, a, true));
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
    return rvi_char_space(cp);
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
    {"join", str_join, "-", 1},
    {"format", str_format, "*", 0},
    {"find", str_find, "- - -", 1},
    {"rfind", str_rfind, "- - -", 1},
    {"count", str_count, "- - -", 1},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"removeprefix", str_removeprefix, "-", 1},
    {"removesuffix", str_removesuffix, "-", 1},
};
const size_t rvi_jinja_n_str_methods = RVI_COUNT(rvi_jinja_str_methods);
