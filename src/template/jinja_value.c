#include "template/jinja_value.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

const char rvi_juser_all[1] = {1};

enum { LINEAR_PAIRS = 8 }; /* dicts up to this size have no index */

/* ---- making values ---- */

static rvi_jv new_str(rvi_jrun *r, const char *data, size_t len, rvi_jgrow *grow)
{
    rvi_jstr *s = rvi_jinja_alloc(r, 1, sizeof *s);
    if (!s) return RVI_JV(FAIL);
    *s = (rvi_jstr){.data = data, .len = len, .chars = RVI_JSTR_UNCOUNTED, .grow = grow};
    return (rvi_jv){.kind = RVI_J_STR, .as.str = s};
}

rvi_jv rvi_jv_view(rvi_jrun *r, const char *data, size_t len)
{
    return new_str(r, data, len, NULL);
}

rvi_jv rvi_jv_part(rvi_jrun *r, const rvi_jstr *s, size_t from, size_t len)
{
    rvi_jv v = new_str(r, s->data + from, len, NULL);
    if (!rvi_jv_failed(v)) *v.as.str = rvi_jstr_piece(s, from, len);
    return v;
}

rvi_jv rvi_jv_text(rvi_jrun *r, const char *literal)
{
    return new_str(r, literal, strlen(literal), NULL);
}

rvi_jv rvi_jv_str(rvi_jrun *r, const char *data, size_t len)
{
    char *copy = rvi_jinja_alloc(r, len, 1);
    if (!copy || !rvi_jinja_charge_bytes(r, len)) return RVI_JV(FAIL);
    if (len) memcpy(copy, data, len);
    return new_str(r, copy, len, NULL);
}

rvi_jv rvi_jv_mark(rvi_jrun *r, rvi_jv str, bool markup)
{
    if (rvi_jv_failed(str) || str.as.str->markup == markup) return str;
    rvi_jv v = new_str(r, str.as.str->data, str.as.str->len, NULL);
    if (rvi_jv_failed(v)) return v;
    v.as.str->markup = markup;
    v.as.str->chars = str.as.str->chars;
    v.as.str->user = str.as.str->user;
    return v;
}

static void copy_user(char *out, const rvi_jstr *s)
{
    if (s->user && s->user != rvi_juser_all)
        memcpy(out, s->user, s->len);
    else
        memset(out, s->user ? 1 : 0, s->len);
}

/* Room for the origin of each byte in g, filled in for the string x that it holds so far. */
static bool track_user(rvi_jrun *r, rvi_jgrow *g, const rvi_jstr *x)
{
    g->user = rvi_jinja_alloc(r, g->cap, 1);
    if (!g->user || !rvi_jinja_charge_bytes(r, g->cap)) return false;
    copy_user(g->user, x);
    return true;
}

/* A string made by appending keeps room behind it, so that appending to it again and again costs
 * only what is appended. The room belongs to the longest string; others that share the storage end
 * before it and stay as they are. */
rvi_jv rvi_jv_concat(rvi_jrun *r, rvi_jv a, rvi_jv b)
{
    const rvi_jstr *x = a.as.str, *y = b.as.str;
    rvi_jgrow *g = x->grow;
    if (!y->len) return rvi_jv_mark(r, a, false);
    if (g && x->data == g->data && x->len == g->used && g->cap - g->used >= y->len) {
        if (!rvi_jinja_charge_bytes(r, y->len)) return RVI_JV(FAIL);
    } else {
        size_t total = x->len + y->len; /* both are in memory: no overflow */
        size_t cap = total + (g ? total / 2 : 32);
        rvi_jgrow *fresh = rvi_jinja_alloc(r, 1, sizeof *fresh);
        char *data = fresh ? rvi_jinja_alloc(r, cap, 1) : NULL;
        if (!data || !rvi_jinja_charge_bytes(r, total)) return RVI_JV(FAIL);
        if (x->len) memcpy(data, x->data, x->len);
        *fresh = (rvi_jgrow){.data = data, .used = x->len, .cap = cap};
        g = fresh;
    }
    if ((x->user || y->user) && !g->user && !track_user(r, g, x)) return RVI_JV(FAIL);
    memcpy(g->data + g->used, y->data, y->len);
    if (g->user) copy_user(g->user + g->used, y);
    g->used += y->len;
    rvi_jv v = new_str(r, g->data, g->used, g);
    if (!rvi_jv_failed(v)) v.as.str->user = g->user;
    return v;
}

rvi_jv rvi_jv_seq(rvi_jrun *r, rvi_jkind kind, size_t count, rvi_jv **items)
{
    rvi_jseq *s = rvi_jinja_alloc(r, 1, sizeof *s);
    if (!s || !(s->items = rvi_jinja_alloc(r, count, sizeof *s->items))) return RVI_JV(FAIL);
    if (!rvi_jinja_charge(r, count / 4)) return RVI_JV(FAIL);
    s->count = count;
    if (items) *items = s->items;
    return (rvi_jv){.kind = kind, .as.seq = s};
}

rvi_jv rvi_jv_dict(rvi_jrun *r, rvi_jkind kind)
{
    rvi_jdict *d = rvi_jinja_alloc(r, 1, sizeof *d);
    return d ? (rvi_jv){.kind = kind, .as.dict = d} : RVI_JV(FAIL);
}

static rvi_jv new_undefined(rvi_jrun *r, rvi_jundefined fields)
{
    rvi_jundefined *u = rvi_jinja_alloc(r, 1, sizeof *u);
    if (!u) return RVI_JV(FAIL);
    *u = fields;
    return (rvi_jv){.kind = RVI_J_UNDEFINED, .as.undefined = u};
}

rvi_jv rvi_jv_undefined(rvi_jrun *r, const char *hint)
{
    return new_undefined(r, (rvi_jundefined){.hint = hint});
}

rvi_jv rvi_jv_undefined_name(rvi_jrun *r, const rvi_jstr *name)
{
    return new_undefined(r, (rvi_jundefined){.name = name, .object = RVI_JV(MISSING)});
}

rvi_jv rvi_jv_undefined_item(rvi_jrun *r, rvi_jv object, rvi_jv key)
{
    rvi_jundefined u = {.object = object, .element = key};
    if (key.kind == RVI_J_STR) u.name = key.as.str;
    return new_undefined(r, u);
}

rvi_jv rvi_jv_undefined_error(rvi_jrun *r, rvi_jv undefined)
{
    const rvi_jundefined *u = undefined.as.undefined;
    const char *type = u->object.kind == RVI_J_NONE ? "None" : rvi_jv_type_name(u->object);
    const char *object = u->object.kind == RVI_J_NONE ? "" : " object";
    if (u->hint) return rvi_jinja_fail(r, "%s", u->hint);
    if (u->name && u->object.kind == RVI_J_MISSING)
        return rvi_jinja_fail(r, "'%.*s' is undefined", (int)RVI_MIN(u->name->len, (size_t)200),
                              u->name->data);
    if (u->name)
        return rvi_jinja_fail(r, "'%s%s' has no attribute '%.*s'", type, object,
                              (int)RVI_MIN(u->name->len, (size_t)200), u->name->data);
    if (u->element.kind == RVI_J_INT)
        return rvi_jinja_fail(r, "%s%s has no element %lld", type, object,
                              (long long)u->element.as.integer);
    return rvi_jinja_fail(r, "%s%s has no such element", type, object);
}

bool rvi_jvec_push(rvi_jrun *r, rvi_jvec *vec, rvi_jv v)
{
    if (vec->count == vec->cap) {
        size_t cap = vec->cap ? vec->cap * 2 : 8;
        rvi_jv *items = rvi_jinja_alloc(r, cap, sizeof *items);
        if (!items) return false;
        if (vec->count) memcpy(items, vec->items, vec->count * sizeof *items);
        vec->items = items;
        vec->cap = cap;
    }
    vec->items[vec->count++] = v;
    return rvi_jinja_charge(r, 1);
}

rvi_jv rvi_jvec_finish(rvi_jrun *r, const rvi_jvec *vec, rvi_jkind kind)
{
    rvi_jseq *s = rvi_jinja_alloc(r, 1, sizeof *s);
    if (!s) return RVI_JV(FAIL);
    *s = (rvi_jseq){.items = vec->items, .count = vec->count};
    return (rvi_jv){.kind = kind, .as.seq = s};
}

/* ---- asking values ---- */

const char *rvi_jv_type_name(rvi_jv v)
{
    switch (v.kind) {
    case RVI_J_FAIL:
    case RVI_J_MISSING: return "missing";
    case RVI_J_UNDEFINED: return "Undefined";
    case RVI_J_NONE: return "NoneType";
    case RVI_J_BOOL: return "bool";
    case RVI_J_INT: return "int";
    case RVI_J_FLOAT: return "float";
    case RVI_J_STR: return v.as.str->markup ? "Markup" : "str";
    case RVI_J_LIST: return "list";
    case RVI_J_TUPLE: return "tuple";
    case RVI_J_KEYS: return "dict_keys";
    case RVI_J_VALUES: return "dict_values";
    case RVI_J_ITEMS: return "dict_items";
    case RVI_J_DICT: return "dict";
    case RVI_J_RANGE: return "range";
    case RVI_J_ITER: return "generator";
    case RVI_J_NAMESPACE: return "Namespace";
    case RVI_J_MACRO: return "Macro";
    case RVI_J_FUNCTION: return "function";
    case RVI_J_METHOD: return "builtin_function_or_method";
    case RVI_J_LOOP: return "LoopContext";
    case RVI_J_JOINER: return "Joiner";
    }
    return "object";
}

bool rvi_jv_truth(rvi_jv v)
{
    switch (v.kind) {
    case RVI_J_FAIL:
    case RVI_J_MISSING:
    case RVI_J_UNDEFINED:
    case RVI_J_NONE: return false;
    case RVI_J_BOOL: return v.as.boolean;
    case RVI_J_INT: return v.as.integer != 0;
    case RVI_J_FLOAT: return v.as.number != 0; /* NaN is true */
    case RVI_J_STR: return v.as.str->len != 0;
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_KEYS:
    case RVI_J_VALUES:
    case RVI_J_ITEMS: return v.as.seq->count != 0;
    case RVI_J_DICT: return v.as.dict->count != 0;
    case RVI_J_RANGE: return v.as.range->count != 0;
    default: return true;
    }
}

bool rvi_jv_is_number(rvi_jv v)
{
    return v.kind == RVI_J_INT || v.kind == RVI_J_FLOAT || v.kind == RVI_J_BOOL;
}

bool rvi_jv_is_integral(rvi_jv v)
{
    return v.kind == RVI_J_INT || v.kind == RVI_J_BOOL;
}

int64_t rvi_jv_as_int(rvi_jv v)
{
    return v.kind == RVI_J_BOOL ? v.as.boolean : v.as.integer;
}

double rvi_jv_as_double(rvi_jv v)
{
    return v.kind == RVI_J_FLOAT ? v.as.number : (double)rvi_jv_as_int(v);
}

bool rvi_jv_is_text(rvi_jv v, const char *text)
{
    return v.kind == RVI_J_STR && v.as.str->len == strlen(text) &&
           !memcmp(v.as.str->data, text, v.as.str->len);
}

size_t rvi_jstr_chars(rvi_jrun *r, rvi_jstr *s)
{
    if (s->chars != RVI_JSTR_UNCOUNTED) return s->chars;
    if (!rvi_jinja_charge_chars(r, s->len)) return 0;
    return s->chars = rvi_utf8_count(s->data, s->len);
}

bool rvi_jv_length(rvi_jrun *r, rvi_jv v, size_t *out)
{
    switch (v.kind) {
    case RVI_J_UNDEFINED: *out = 0; return true;
    case RVI_J_STR: *out = rvi_jstr_chars(r, v.as.str); return true;
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_KEYS:
    case RVI_J_VALUES:
    case RVI_J_ITEMS: *out = v.as.seq->count; return true;
    case RVI_J_DICT: *out = v.as.dict->count; return true;
    case RVI_J_RANGE: *out = v.as.range->count; return true;
    default: return false;
    }
}

rvi_jv rvi_jv_at(rvi_jrun *r, rvi_jv v, size_t index)
{
    switch (v.kind) {
    case RVI_J_STR: return rvi_jinja_substring(r, v.as.str, index, index + 1);
    case RVI_J_RANGE: return rvi_jv_int(v.as.range->start + (int64_t)index * v.as.range->step);
    default: return v.as.seq->items[index];
    }
}

/* ---- comparing ---- */

/* -1, 0, 1; 2: not ordered (NaN) */
static int compare_numbers(rvi_jv a, rvi_jv b)
{
    if (rvi_jv_is_integral(a) && rvi_jv_is_integral(b)) {
        int64_t x = rvi_jv_as_int(a), y = rvi_jv_as_int(b);
        return x < y ? -1 : x > y;
    }
    double x = rvi_jv_as_double(a), y = rvi_jv_as_double(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static int equal_seqs(rvi_jrun *r, const rvi_jseq *a, const rvi_jseq *b)
{
    if (a->count != b->count) return 0;
    for (size_t i = 0; i < a->count; i++) {
        int same = rvi_jv_equal(r, a->items[i], b->items[i]);
        if (same != 1) return same;
    }
    return 1;
}

static int equal_dicts(rvi_jrun *r, const rvi_jdict *a, const rvi_jdict *b)
{
    if (a->count != b->count) return 0;
    for (size_t i = 0; i < a->count; i++) {
        rvi_jv other;
        int same = rvi_jdict_find(r, b, a->pairs[i].key, &other);
        if (same == 1) same = rvi_jv_equal(r, a->pairs[i].value, other);
        if (same != 1) return same;
    }
    return 1;
}

static int equal_ranges(const rvi_jrange *a, const rvi_jrange *b)
{
    return a->count == b->count && (!a->count || a->start == b->start) &&
           (a->count < 2 || a->step == b->step);
}

int rvi_jv_equal(rvi_jrun *r, rvi_jv a, rvi_jv b)
{
    if (!rvi_jinja_charge(r, 1)) return -1;
    if (rvi_jv_is_number(a) && rvi_jv_is_number(b)) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return 0;
    switch (a.kind) {
    case RVI_J_NONE:
    case RVI_J_UNDEFINED: return 1;
    case RVI_J_STR:
        if (a.as.str->len != b.as.str->len) return 0;
        if (!rvi_jinja_charge_bytes(r, a.as.str->len)) return -1;
        return !a.as.str->len || !memcmp(a.as.str->data, b.as.str->data, a.as.str->len);
    case RVI_J_RANGE: return equal_ranges(a.as.range, b.as.range);
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_DICT: break;
    default: return rvi_jv_same(r, a, b);
    }
    if (!rvi_jinja_enter(r)) return -1;
    int same = a.kind == RVI_J_DICT ? equal_dicts(r, a.as.dict, b.as.dict)
                                    : equal_seqs(r, a.as.seq, b.as.seq);
    rvi_jinja_leave(r);
    return same;
}

bool rvi_jv_same(rvi_jrun *r, rvi_jv a, rvi_jv b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case RVI_J_NONE: return true;
    case RVI_J_BOOL: return a.as.boolean == b.as.boolean;
    case RVI_J_INT: return a.as.integer == b.as.integer;
    case RVI_J_FLOAT: return a.as.number == b.as.number;
    case RVI_J_STR:
        return a.as.str->len == b.as.str->len && rvi_jinja_charge_bytes(r, a.as.str->len) &&
               (!a.as.str->len || !memcmp(a.as.str->data, b.as.str->data, a.as.str->len));
    case RVI_J_UNDEFINED: return a.as.undefined == b.as.undefined;
    case RVI_J_DICT:
    case RVI_J_NAMESPACE: return a.as.dict == b.as.dict;
    case RVI_J_RANGE: return a.as.range == b.as.range;
    case RVI_J_ITER: return a.as.iter == b.as.iter;
    case RVI_J_MACRO: return a.as.macro == b.as.macro;
    case RVI_J_FUNCTION: return a.as.fn == b.as.fn;
    case RVI_J_METHOD: return a.as.method == b.as.method;
    case RVI_J_LOOP: return a.as.loop == b.as.loop;
    case RVI_J_JOINER: return a.as.joiner == b.as.joiner;
    default: return a.as.seq == b.as.seq;
    }
}

static int less_seqs(rvi_jrun *r, rvi_jv a, rvi_jv b, bool or_equal, const char *op)
{
    const rvi_jseq *x = a.as.seq, *y = b.as.seq;
    for (size_t i = 0; i < x->count && i < y->count; i++) {
        int same = rvi_jv_equal(r, x->items[i], y->items[i]);
        if (same < 0) return -1;
        if (!same) return rvi_jv_less(r, x->items[i], y->items[i], or_equal, op);
    }
    return or_equal ? x->count <= y->count : x->count < y->count;
}

int rvi_jv_less(rvi_jrun *r, rvi_jv a, rvi_jv b, bool or_equal, const char *op)
{
    int order;
    if (!rvi_jinja_charge(r, 1)) return -1;
    if (rvi_jv_is_number(a) && rvi_jv_is_number(b)) {
        order = compare_numbers(a, b);
        return order == -1 || (or_equal && order == 0);
    }
    if (a.kind == RVI_J_STR && b.kind == RVI_J_STR) { /* bytes of UTF-8 order as code points do */
        size_t n = RVI_MIN(a.as.str->len, b.as.str->len);
        if (!rvi_jinja_charge_bytes(r, n)) return -1;
        order = n ? memcmp(a.as.str->data, b.as.str->data, n) : 0;
        if (!order)
            return or_equal ? a.as.str->len <= b.as.str->len : a.as.str->len < b.as.str->len;
        return order < 0;
    }
    if (a.kind == b.kind && (a.kind == RVI_J_LIST || a.kind == RVI_J_TUPLE)) {
        if (!rvi_jinja_enter(r)) return -1;
        order = less_seqs(r, a, b, or_equal, op);
        rvi_jinja_leave(r);
        return order;
    }
    if (a.kind == RVI_J_UNDEFINED)
        rvi_jv_undefined_error(r, a);
    else if (b.kind == RVI_J_UNDEFINED)
        rvi_jv_undefined_error(r, b);
    else
        rvi_jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                       rvi_jv_type_name(a), rvi_jv_type_name(b));
    return -1;
}

int rvi_jv_contains(rvi_jrun *r, rvi_jv container, rvi_jv v)
{
    rvi_jv item;
    if (container.kind == RVI_J_STR) {
        rvi_jfinder f;
        if (v.kind != RVI_J_STR) {
            rvi_jinja_fail(r, "'in <string>' requires string as left operand, not %s",
                           rvi_jv_type_name(v));
            return -1;
        }
        if (!v.as.str->len) return 1;
        if (!rvi_jfinder_init(r, &f, v.as.str->data, v.as.str->len, container.as.str->len))
            return -1;
        return rvi_jfinder_next(&f, container.as.str->data, container.as.str->len, 0) != SIZE_MAX;
    }
    if (container.kind == RVI_J_DICT) return rvi_jdict_find(r, container.as.dict, v, &item);
    if (container.kind == RVI_J_UNDEFINED) return 0;
    if (!rvi_jv_iterable(container)) {
        rvi_jinja_fail(r, "argument of type '%s' is not iterable", rvi_jv_type_name(container));
        return -1;
    }
    rvi_jv it = rvi_jv_iter(r, container);
    if (rvi_jv_failed(it)) return -1;
    for (int more; (more = rvi_jiter_next(r, it.as.iter, &item));) {
        if (more < 0) return -1;
        int same = rvi_jv_equal(r, item, v);
        if (same) return same;
    }
    return 0;
}

/* ---- dicts ---- */

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDu;
    return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *data, size_t len)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)data[i]) * 1099511628211u;
    return mix(h);
}

/* Equal keys hash alike: 1, 1.0 and True are one key. */
static bool hash_key(rvi_jrun *r, rvi_jv v, uint64_t *out)
{
    double f;
    bool ok = true;
    switch (v.kind) {
    case RVI_J_STR:
        if (!rvi_jinja_charge_chars(r, v.as.str->len)) return false;
        *out = hash_bytes(v.as.str->data, v.as.str->len);
        return true;
    case RVI_J_BOOL:
    case RVI_J_INT: *out = mix((uint64_t)rvi_jv_as_int(v)); return true;
    case RVI_J_FLOAT:
        f = v.as.number;
        if (f >= -9.2e18 && f <= 9.2e18 && floor(f) == f)
            *out = mix((uint64_t)(int64_t)f);
        else
            memcpy(out, &f, sizeof f), *out = mix(*out);
        return true;
    case RVI_J_LIST:
    case RVI_J_DICT:
    case RVI_J_KEYS:
    case RVI_J_ITEMS: rvi_jinja_fail(r, "unhashable type: '%s'", rvi_jv_type_name(v)); return false;
    case RVI_J_TUPLE:
        if (!rvi_jinja_enter(r)) return false;
        *out = 7;
        for (size_t i = 0; i < v.as.seq->count && ok; i++) {
            uint64_t h = 0;
            ok = rvi_jinja_charge(r, 1) && hash_key(r, v.as.seq->items[i], &h);
            *out = mix(*out * 31 + h);
        }
        rvi_jinja_leave(r);
        return ok;
    default: *out = (uint64_t)v.kind; return true;
    }
}

/* The pair with that key, or d->count. *failed after a failure. Every pair looked at is charged
 * (rvi_jv_equal), so keys that were made to collide end in the limit of steps. */
static size_t find_pair(rvi_jrun *r, const rvi_jdict *d, rvi_jv key, uint64_t hash, bool *failed)
{
    size_t i = 0, k = d->n_index ? (size_t)hash & (d->n_index - 1) : 0;
    for (;;) {
        if (d->n_index) {
            if (!d->index[k]) return d->count;
            i = d->index[k] - 1;
            k = (k + 1) & (d->n_index - 1);
        } else if (i >= d->count) {
            return d->count;
        }
        int same = rvi_jv_equal(r, d->pairs[i].key, key);
        if (same < 0) *failed = true;
        if (same) return same > 0 ? i : d->count;
        if (!d->n_index) i++;
    }
}

int rvi_jdict_find(rvi_jrun *r, const rvi_jdict *d, rvi_jv key, rvi_jv *out)
{
    uint64_t hash;
    bool failed = false;
    if (!hash_key(r, key, &hash)) return -1;
    size_t i = find_pair(r, d, key, hash, &failed);
    if (failed) return -1;
    if (i == d->count) return 0;
    *out = d->pairs[i].value;
    return 1;
}

static bool is_key(const rvi_jpair *p, const char *key, size_t len)
{
    return p->key.kind == RVI_J_STR && p->key.as.str->len == len &&
           (!len || !memcmp(p->key.as.str->data, key, len));
}

bool rvi_jdict_get_str(const rvi_jdict *d, const char *key, size_t len, rvi_jv *out)
{
    if (!d->n_index) {
        for (size_t i = 0; i < d->count; i++)
            if (is_key(&d->pairs[i], key, len)) {
                *out = d->pairs[i].value;
                return true;
            }
        return false;
    }
    for (size_t k = (size_t)hash_bytes(key, len) & (d->n_index - 1); d->index[k];
         k = (k + 1) & (d->n_index - 1))
        if (is_key(&d->pairs[d->index[k] - 1], key, len)) {
            *out = d->pairs[d->index[k] - 1].value;
            return true;
        }
    return false;
}

static bool index_pairs(rvi_jrun *r, rvi_jdict *d)
{
    size_t n = 32;
    while (n < 4 * d->count) n *= 2;
    uint32_t *index = rvi_jinja_alloc(r, n, sizeof *index);
    if (!index) return false;
    for (size_t i = 0; i < d->count; i++) {
        uint64_t hash;
        if (!hash_key(r, d->pairs[i].key, &hash)) return false;
        size_t k = (size_t)hash & (n - 1);
        while (index[k]) k = (k + 1) & (n - 1);
        index[k] = (uint32_t)i + 1;
    }
    d->index = index;
    d->n_index = n;
    return true;
}

bool rvi_jdict_set(rvi_jrun *r, rvi_jdict *d, rvi_jv key, rvi_jv value)
{
    uint64_t hash;
    bool failed = false;
    if (!rvi_jinja_charge(r, 1) || !hash_key(r, key, &hash)) return false;
    size_t i = find_pair(r, d, key, hash, &failed);
    if (failed) return false;
    if (i < d->count) {
        d->pairs[i].value = value;
        return true;
    }
    if (d->count == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        rvi_jpair *pairs = rvi_jinja_alloc(r, cap, sizeof *pairs);
        if (!pairs) return false;
        if (d->count) memcpy(pairs, d->pairs, d->count * sizeof *pairs);
        d->pairs = pairs;
        d->cap = cap;
    }
    d->pairs[d->count++] = (rvi_jpair){.key = key, .value = value};
    if (d->count <= LINEAR_PAIRS) return true;
    if (2 * d->count > d->n_index) return index_pairs(r, d);
    size_t k = (size_t)hash & (d->n_index - 1);
    while (d->index[k]) k = (k + 1) & (d->n_index - 1);
    d->index[k] = (uint32_t)d->count;
    return true;
}

/* ---- sorting ---- */

typedef struct keyed {
    rvi_jv key, item;
} keyed;

/* Merges the sorted runs [a, b) and [b, c) of src into dst. */
static bool merge(rvi_jrun *r, keyed *dst, const keyed *src, size_t a, size_t b, size_t c,
                  bool reverse)
{
    size_t i = a, j = b, k = a;
    while (i < b && j < c) {
        int right = reverse ? rvi_jv_less(r, src[i].key, src[j].key, false, "<")
                            : rvi_jv_less(r, src[j].key, src[i].key, false, "<");
        if (right < 0) return false;
        dst[k++] = right ? src[j++] : src[i++];
    }
    while (i < b) dst[k++] = src[i++];
    while (j < c) dst[k++] = src[j++];
    return true;
}

bool rvi_jv_sort(rvi_jrun *r, rvi_jv *items, rvi_jv *keys, size_t n, bool reverse)
{
    keyed *from = rvi_jinja_alloc(r, n, sizeof *from), *to = rvi_jinja_alloc(r, n, sizeof *to);
    if (!from || !to) return false;
    for (size_t i = 0; i < n; i++) from[i] = (keyed){.key = keys[i], .item = items[i]};
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t a = 0; a < n; a += 2 * width)
            if (!merge(r, to, from, a, RVI_MIN(a + width, n), RVI_MIN(a + 2 * width, n), reverse))
                return false;
        keyed *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n; i++) {
        items[i] = from[i].item;
        keys[i] = from[i].key;
    }
    return true;
}
