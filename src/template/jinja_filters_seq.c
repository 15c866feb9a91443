/* jinja_filters_seq.c - filters of sequences and dicts. */
#include <string.h>

#include "template/jinja_run.h"

#define FILTER(name)                                                                               \
    static rvi_jv name(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all)

/* ---- one item, the count, the whole ---- */

FILTER(filter_length)
{
    size_t n;
    (void)a, (void)all;
    if (self.kind == RVI_J_LOOP) {
        int64_t length = rvi_jloop_length(r, self.as.loop);
        return length < 0 ? RVI_JV(FAIL) : rvi_jv_int(length);
    }
    if (!rvi_jv_length(r, self, &n))
        return rvi_jinja_fail(r, "object of type '%s' has no len()", rvi_jv_type_name(self));
    return rvi_jv_int((int64_t)n);
}

FILTER(filter_first)
{
    rvi_jv v, it = rvi_jv_iter(r, self);
    (void)a, (void)all;
    if (rvi_jv_failed(it)) return it;
    int more = rvi_jiter_next(r, it.as.iter, &v);
    if (more < 0) return RVI_JV(FAIL);
    return more ? v : rvi_jv_undefined(r, "No first item, sequence was empty.");
}

FILTER(filter_last)
{
    size_t n;
    (void)a, (void)all;
    if (!rvi_jv_length(r, self, &n))
        return rvi_jinja_fail(r, "'%s' object is not reversible", rvi_jv_type_name(self));
    if (!n) return rvi_jv_undefined(r, "No last item, sequence was empty.");
    return self.kind == RVI_J_DICT ? self.as.dict->pairs[n - 1].key : rvi_jv_at(r, self, n - 1);
}

FILTER(filter_list)
{
    (void)a, (void)all;
    return rvi_jv_to_list(r, self, RVI_J_LIST);
}

FILTER(filter_reverse)
{
    size_t n;
    (void)a, (void)all;
    if (self.kind == RVI_J_STR)
        return rvi_jinja_slice(r, self, RVI_JV(NONE), RVI_JV(NONE), rvi_jv_int(-1));
    if (!rvi_jv_length(r, self, &n)) { /* a generator becomes a list */
        rvi_jv list = rvi_jv_to_list(r, self, RVI_J_LIST);
        return rvi_jv_failed(list)
                   ? list
                   : rvi_jinja_slice(r, list, RVI_JV(NONE), RVI_JV(NONE), rvi_jv_int(-1));
    }
    rvi_jv it = rvi_jv_iter(r, self);
    if (rvi_jv_failed(it)) return it;
    it.as.iter->reversed = true;
    it.as.iter->repr = "reverse iterator object";
    return it;
}

FILTER(filter_join)
{
    (void)all;
    rvi_jv it = rvi_jv_iter(r, self),
           sep = a[0].kind == RVI_J_MISSING ? rvi_jv_text(r, "") : rvi_jv_to_str(r, a[0]), item;
    rvi_jv path = rvi_jarg_given(a[1]) ? rvi_jinja_path(r, a[1]) : RVI_JV(MISSING);
    if (rvi_jv_failed(it) || rvi_jv_failed(sep) || rvi_jv_failed(path)) return RVI_JV(FAIL);
    size_t start = rvi_jinja_build(r);
    int more;
    for (size_t i = 0; (more = rvi_jiter_next(r, it.as.iter, &item)) == 1; i++) {
        if (path.kind != RVI_J_MISSING) item = rvi_jinja_get_path(r, item, path, RVI_JV(MISSING));
        if (rvi_jv_failed(item)) return rvi_jinja_drop(r, start);
        if (i) rvi_jv_write_str(r, &r->scratch, sep);
        if (!rvi_jv_write_str(r, &r->scratch, item)) break;
    }
    return rvi_jinja_take(r, start);
}

FILTER(filter_sum)
{
    (void)all;
    rvi_jv it = rvi_jv_iter(r, self), total = RVI_JARG(a[1], rvi_jv_int(0)), item;
    rvi_jv path = rvi_jarg_given(a[0]) ? rvi_jinja_path(r, a[0]) : RVI_JV(MISSING);
    if (rvi_jv_failed(it) || rvi_jv_failed(path)) return RVI_JV(FAIL);
    if (total.kind == RVI_J_STR)
        return rvi_jinja_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int more; (more = rvi_jiter_next(r, it.as.iter, &item));) {
        if (more < 0) return RVI_JV(FAIL);
        if (path.kind != RVI_J_MISSING) item = rvi_jinja_get_path(r, item, path, RVI_JV(MISSING));
        if (!rvi_jv_failed(item)) total = rvi_jinja_binary(r, RVI_JOP_ADD, total, item);
        if (rvi_jv_failed(item) || rvi_jv_failed(total)) return RVI_JV(FAIL);
    }
    return total;
}

/* ---- order ---- */

/* What an item is compared by: its attribute (path may be MISSING), letters without case unless
 * case_sensitive. */
static rvi_jv key_of(rvi_jrun *r, rvi_jv item, rvi_jv path, bool case_sensitive, rvi_jv fallback)
{
    if (path.kind != RVI_J_MISSING) item = rvi_jinja_get_path(r, item, path, fallback);
    return rvi_jv_failed(item) || case_sensitive ? item : rvi_jinja_ignore_case(r, item);
}

static rvi_jv path_or_missing(rvi_jrun *r, rvi_jv attribute)
{
    return rvi_jarg_given(attribute) ? rvi_jinja_path(r, attribute) : RVI_JV(MISSING);
}

/* The list of paths in "a.b,c". */
static rvi_jv paths_of(rvi_jrun *r, rvi_jv attribute)
{
    rvi_jvec paths = {0};
    if (attribute.kind != RVI_J_STR) {
        rvi_jv path = rvi_jinja_path(r, RVI_JARG(attribute, RVI_JV(NONE)));
        return !rvi_jv_failed(path) && rvi_jvec_push(r, &paths, path)
                   ? rvi_jvec_finish(r, &paths, RVI_J_LIST)
                   : RVI_JV(FAIL);
    }
    const rvi_jstr *s = attribute.as.str;
    for (size_t from = 0;;) {
        const char *comma = from < s->len ? memchr(s->data + from, ',', s->len - from) : NULL;
        size_t to = comma ? (size_t)(comma - s->data) : s->len;
        rvi_jv piece = rvi_jv_view(r, s->data + from, to - from);
        rvi_jv path = rvi_jv_failed(piece) ? piece : rvi_jinja_path(r, piece);
        if (rvi_jv_failed(path) || !rvi_jvec_push(r, &paths, path)) return RVI_JV(FAIL);
        if (!comma) return rvi_jvec_finish(r, &paths, RVI_J_LIST);
        from = to + 1;
    }
}

/* A copy of the items of an iterable, which may be reordered. */
static rvi_jv own_list(rvi_jrun *r, rvi_jv iterable, rvi_jv **items)
{
    rvi_jv shared = rvi_jv_to_list(r, iterable, RVI_J_LIST);
    if (rvi_jv_failed(shared)) return shared;
    size_t n = shared.as.seq->count;
    rvi_jv list = rvi_jv_seq(r, RVI_J_LIST, n, items);
    if (!rvi_jv_failed(list) && n) memcpy(*items, shared.as.seq->items, n * sizeof **items);
    return list;
}

FILTER(filter_sort)
{
    (void)all;
    bool reverse = rvi_jv_truth(a[0]), case_sensitive = rvi_jv_truth(a[1]);
    rvi_jv *items, list = own_list(r, self, &items), paths = paths_of(r, a[2]);
    if (rvi_jv_failed(list) || rvi_jv_failed(paths)) return RVI_JV(FAIL);
    size_t n = list.as.seq->count, n_paths = paths.as.seq->count;
    rvi_jv *keys = rvi_jinja_alloc(r, n, sizeof *keys), *parts;
    if (!keys) return RVI_JV(FAIL);
    for (size_t i = 0; i < n; i++) {
        keys[i] = rvi_jv_seq(r, RVI_J_LIST, n_paths, &parts);
        if (rvi_jv_failed(keys[i])) return keys[i];
        for (size_t k = 0; k < n_paths; k++) {
            parts[k] = key_of(r, items[i], paths.as.seq->items[k], case_sensitive, RVI_JV(MISSING));
            if (rvi_jv_failed(parts[k])) return parts[k];
        }
    }
    return rvi_jv_sort(r, items, keys, n, reverse) ? list : RVI_JV(FAIL);
}

FILTER(filter_dictsort)
{
    (void)all;
    bool case_sensitive = rvi_jv_truth(a[0]), by_value = rvi_jv_is_text(a[1], "value"),
         reverse = rvi_jv_truth(a[2]);
    rvi_jargs none = {0};
    if (a[1].kind != RVI_J_MISSING && !by_value && !rvi_jv_is_text(a[1], "key"))
        return rvi_jinja_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == RVI_J_UNDEFINED) return rvi_jv_undefined_error(r, self);
    if (self.kind != RVI_J_DICT)
        return rvi_jinja_fail(r, "'%s' object has no attribute 'items'", rvi_jv_type_name(self));
    rvi_jv pairs = rvi_jinja_call_builtin(r, rvi_jinja_method(RVI_J_DICT, "items", 5), self, &none),
           *items;
    rvi_jv list = rvi_jv_failed(pairs) ? pairs : own_list(r, pairs, &items);
    if (rvi_jv_failed(list)) return list;
    size_t n = list.as.seq->count;
    rvi_jv *keys = rvi_jinja_alloc(r, n, sizeof *keys);
    if (!keys) return RVI_JV(FAIL);
    for (size_t i = 0; i < n; i++) {
        keys[i] = key_of(r, items[i].as.seq->items[by_value], RVI_JV(MISSING), case_sensitive,
                         RVI_JV(MISSING));
        if (rvi_jv_failed(keys[i])) return keys[i];
    }
    return rvi_jv_sort(r, items, keys, n, reverse) ? list : RVI_JV(FAIL);
}

static rvi_jv extreme(rvi_jrun *r, rvi_jv self, const rvi_jv *a, bool largest)
{
    rvi_jv it = rvi_jv_iter(r, self), path = path_or_missing(r, a[1]), item, best = RVI_JV(MISSING),
           best_key = RVI_JV(MISSING);
    if (rvi_jv_failed(it) || rvi_jv_failed(path)) return RVI_JV(FAIL);
    for (int more; (more = rvi_jiter_next(r, it.as.iter, &item));) {
        if (more < 0) return RVI_JV(FAIL);
        rvi_jv key = key_of(r, item, path, rvi_jv_truth(a[0]), RVI_JV(MISSING));
        if (rvi_jv_failed(key)) return key;
        int better = 1;
        if (best.kind != RVI_J_MISSING)
            better = largest ? rvi_jv_less(r, best_key, key, false, ">")
                             : rvi_jv_less(r, key, best_key, false, "<");
        if (better < 0) return RVI_JV(FAIL);
        if (!better) continue;
        best = item;
        best_key = key;
    }
    return best.kind == RVI_J_MISSING
               ? rvi_jv_undefined(r, "No aggregated item, sequence was empty.")
               : best;
}

FILTER(filter_min)
{
    (void)all;
    return extreme(r, self, a, false);
}

FILTER(filter_max)
{
    (void)all;
    return extreme(r, self, a, true);
}

FILTER(filter_groupby)
{
    (void)all;
    bool case_sensitive = rvi_jv_truth(a[2]);
    rvi_jv *items, list = own_list(r, self, &items), path = rvi_jinja_path(r, a[0]),
                   fallback = a[1];
    rvi_jvec groups = {0};
    if (rvi_jv_failed(list) || rvi_jv_failed(path)) return RVI_JV(FAIL);
    size_t n = list.as.seq->count;
    rvi_jv *keys = rvi_jinja_alloc(r, n, sizeof *keys);
    if (!keys) return RVI_JV(FAIL);
    for (size_t i = 0; i < n; i++) {
        keys[i] = key_of(r, items[i], path, case_sensitive, fallback);
        if (rvi_jv_failed(keys[i])) return keys[i];
    }
    if (!rvi_jv_sort(r, items, keys, n, false)) return RVI_JV(FAIL);
    for (size_t from = 0, to; from < n; from = to) {
        int same = 1;
        for (to = from + 1; to < n && (same = rvi_jv_equal(r, keys[from], keys[to])) == 1;) to++;
        if (same < 0) return RVI_JV(FAIL);
        rvi_jseq *group = rvi_jinja_alloc(r, 1, sizeof *group);
        rvi_jv *parts = rvi_jinja_alloc(r, 2, sizeof *parts), *members;
        rvi_jv values = rvi_jv_seq(r, RVI_J_LIST, to - from, &members);
        if (!group || !parts || rvi_jv_failed(values)) return RVI_JV(FAIL);
        memcpy(members, items + from, (to - from) * sizeof *members);
        parts[0] = case_sensitive ? keys[from] : rvi_jinja_get_path(r, items[from], path, fallback);
        parts[1] = values;
        *group = (rvi_jseq){.items = parts, .count = 2, .group = true};
        if (rvi_jv_failed(parts[0]) ||
            !rvi_jvec_push(r, &groups, (rvi_jv){.kind = RVI_J_TUPLE, .as.seq = group}))
            return RVI_JV(FAIL);
    }
    return rvi_jvec_finish(r, &groups, RVI_J_LIST);
}

/* ---- generators ----
 *
 * In Jinja these filters are generators: nothing of them runs, and nothing of them can fail, before
 * the first item is asked for. So the filter makes an iterator that knows which function to call
 * then. */

static rvi_jv later(rvi_jrun *r, const rvi_jfn *fn, rvi_jv self, const rvi_jargs *all,
                    const char *repr)
{
    rvi_jv v = rvi_jinja_new_iter(r, RVI_JITER_LATER, self, repr);
    if (rvi_jv_failed(v)) return v;
    v.as.iter->fn = fn;
    v.as.iter->args = *all;
    return v;
}

FILTER(now_items)
{
    rvi_jargs none = {0};
    (void)a, (void)all;
    if (self.kind == RVI_J_UNDEFINED) return self; /* no items */
    if (self.kind != RVI_J_DICT)
        return rvi_jinja_fail(r, "Can only get item pairs from a mapping.");
    return rvi_jinja_call_builtin(r, rvi_jinja_method(RVI_J_DICT, "items", 5), self, &none);
}

FILTER(now_batch)
{
    rvi_jv list = rvi_jv_to_list(r, self, RVI_J_LIST);
    rvi_jvec batches = {0}, part = {0};
    int64_t size;
    (void)all;
    if (rvi_jv_failed(list) || !rvi_jarg_int(r, a[0], 0, &size)) return RVI_JV(FAIL);
    for (size_t i = 0; i < list.as.seq->count; i++) {
        if ((int64_t)part.count == size) {
            rvi_jv full = rvi_jvec_finish(r, &part, RVI_J_LIST);
            if (rvi_jv_failed(full) || !rvi_jvec_push(r, &batches, full)) return RVI_JV(FAIL);
            part = (rvi_jvec){0};
        }
        if (!rvi_jvec_push(r, &part, list.as.seq->items[i])) return RVI_JV(FAIL);
    }
    if (part.count) {
        while (rvi_jarg_given(a[1]) && (int64_t)part.count < size)
            if (!rvi_jvec_push(r, &part, a[1])) return RVI_JV(FAIL);
        rvi_jv rest = rvi_jvec_finish(r, &part, RVI_J_LIST);
        if (rvi_jv_failed(rest) || !rvi_jvec_push(r, &batches, rest)) return RVI_JV(FAIL);
    }
    return rvi_jvec_finish(r, &batches, RVI_J_LIST);
}

FILTER(now_slice)
{
    rvi_jv list = rvi_jv_to_list(r, self, RVI_J_LIST);
    rvi_jvec slices = {0};
    int64_t wanted;
    (void)all;
    if (rvi_jv_failed(list) || !rvi_jarg_int(r, a[0], 0, &wanted)) return RVI_JV(FAIL);
    if (!wanted) return rvi_jinja_fail(r, "integer division or modulo by zero");
    int64_t n = (int64_t)list.as.seq->count, at = 0;
    for (int64_t i = 0; i < wanted; i++) {
        int64_t size = n / wanted + (i < n % wanted);
        rvi_jvec part = {0};
        for (int64_t k = 0; k < size; k++)
            if (!rvi_jvec_push(r, &part, list.as.seq->items[at + k])) return RVI_JV(FAIL);
        at += size;
        if (rvi_jarg_given(a[1]) && i >= n % wanted && !rvi_jvec_push(r, &part, a[1]))
            return RVI_JV(FAIL);
        rvi_jv piece = rvi_jvec_finish(r, &part, RVI_J_LIST);
        if (rvi_jv_failed(piece) || !rvi_jvec_push(r, &slices, piece)) return RVI_JV(FAIL);
    }
    return rvi_jvec_finish(r, &slices, RVI_J_LIST);
}

/* ---- lazy ones ---- */

/* An iterator of that kind over self; over nothing where self is false (also None), as in Jinja. */
static rvi_jv lazily(rvi_jrun *r, rvi_jiter_kind kind, rvi_jv self)
{
    rvi_jv text = rvi_jv_text(r, "");
    if (rvi_jv_failed(text)) return text;
    rvi_jv source = rvi_jv_iter(r, rvi_jv_truth(self) ? self : text);
    return rvi_jv_failed(source) ? source : rvi_jinja_new_iter(r, kind, source, "generator object");
}

/* All arguments but the first `skip`. They are in the run's arena and so outlive the call. */
static rvi_jargs rest_of(const rvi_jargs *all, size_t skip)
{
    rvi_jargs rest = *all;
    rest.n_pos = all->n_pos > skip ? all->n_pos - skip : 0;
    rest.pos = all->pos ? all->pos + (all->n_pos - rest.n_pos) : NULL;
    return rest;
}

static bool is_keyword(const rvi_jnamed *named, const char *name)
{
    return named->name->len == strlen(name) && !memcmp(named->name->data, name, named->name->len);
}

FILTER(now_map)
{
    (void)a;
    rvi_jv v = lazily(r, RVI_JITER_MAP, self);
    if (rvi_jv_failed(v) || !rvi_jv_truth(self)) return v;
    rvi_jiter *it = v.as.iter;
    rvi_jv attribute = RVI_JV(MISSING);
    for (size_t i = 0; i < all->n_named && !all->n_pos; i++)
        if (is_keyword(&all->named[i], "attribute")) attribute = all->named[i].value;
    if (attribute.kind != RVI_J_MISSING) {
        for (size_t i = 0; i < all->n_named; i++) {
            if (is_keyword(&all->named[i], "default"))
                it->fallback = all->named[i].value;
            else if (!is_keyword(&all->named[i], "attribute"))
                return rvi_jinja_fail(r, "map got an unexpected keyword argument");
        }
        it->path = rvi_jinja_path(r, attribute);
        return rvi_jv_failed(it->path) ? it->path : v;
    }
    const rvi_jstr *name;
    if (!all->n_pos) return rvi_jinja_fail(r, "map requires a filter argument");
    if (!rvi_jarg_str(r, all->pos[0], "filter name", &name)) return RVI_JV(FAIL);
    it->args = rest_of(all, 1);
    it->fn = rvi_jinja_filter(name->data, name->len);
    if (!it->fn)
        return rvi_jinja_fail(r, "No filter named '%.*s'.", (int)RVI_MIN(name->len, (size_t)100),
                              name->data);
    return v;
}

static rvi_jv choose(rvi_jrun *r, rvi_jv self, const rvi_jargs *all, bool negate, bool by_attribute)
{
    rvi_jv v = lazily(r, RVI_JITER_SELECT, self);
    if (rvi_jv_failed(v) || !rvi_jv_truth(self)) return v;
    rvi_jiter *it = v.as.iter;
    size_t skip = by_attribute;
    const rvi_jstr *name;
    it->negate = negate;
    if (by_attribute) {
        if (!all->n_pos) return rvi_jinja_fail(r, "Missing parameter for attribute name");
        it->path = rvi_jinja_path(r, all->pos[0]);
        if (rvi_jv_failed(it->path)) return it->path;
    }
    if (all->n_pos <= skip) return v; /* by truth alone */
    if (!rvi_jarg_str(r, all->pos[skip], "test name", &name)) return RVI_JV(FAIL);
    it->args = rest_of(all, skip + 1);
    it->fn = rvi_jinja_test(name->data, name->len);
    if (!it->fn)
        return rvi_jinja_fail(r, "No test named '%.*s'.", (int)RVI_MIN(name->len, (size_t)100),
                              name->data);
    return v;
}

FILTER(now_select)
{
    (void)a;
    return choose(r, self, all, false, false);
}

FILTER(now_reject)
{
    (void)a;
    return choose(r, self, all, true, false);
}

FILTER(now_selectattr)
{
    (void)a;
    return choose(r, self, all, false, true);
}

FILTER(now_rejectattr)
{
    (void)a;
    return choose(r, self, all, true, true);
}

FILTER(now_unique)
{
    (void)all;
    rvi_jv source = rvi_jv_iter(r, self), seen = rvi_jv_dict(r, RVI_J_DICT);
    rvi_jv path = rvi_jinja_path(r, RVI_JARG(a[1], RVI_JV(NONE)));
    if (rvi_jv_failed(source) || rvi_jv_failed(seen) || rvi_jv_failed(path)) return RVI_JV(FAIL);
    rvi_jv v = rvi_jinja_new_iter(r, RVI_JITER_UNIQUE, source, "generator object");
    if (rvi_jv_failed(v)) return v;
    v.as.iter->path = path;
    v.as.iter->ignore_case = !rvi_jv_truth(a[0]);
    v.as.iter->seen = seen.as.dict;
    return v;
}

#define GENERATOR(name, params, required, repr)                                                    \
    FILTER(filter_##name)                                                                          \
    {                                                                                              \
        static const rvi_jfn now = {#name, now_##name, params, required};                          \
        (void)a;                                                                                   \
        return later(r, &now, self, all, "generator object " repr);                                \
    }
GENERATOR(items, "", 0, "do_items")
GENERATOR(batch, "linecount fill_with", 1, "do_batch")
GENERATOR(slice, "slices fill_with", 1, "sync_do_slice")
GENERATOR(map, "*", 0, "sync_do_map")
GENERATOR(select, "*", 0, "select_or_reject")
GENERATOR(reject, "*", 0, "select_or_reject")
GENERATOR(selectattr, "*", 0, "select_or_reject")
GENERATOR(rejectattr, "*", 0, "select_or_reject")
GENERATOR(unique, "case_sensitive attribute", 0, "sync_do_unique")

const rvi_jfn rvi_jinja_seq_filters[] = {
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"list", filter_list, "", 0},
    {"map", filter_map, "*", 0},
    {"select", filter_select, "*", 0},
    {"reject", filter_reject, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
    {"items", filter_items, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"reverse", filter_reverse, "", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"slice", filter_slice, "slices fill_with", 1},
};
const size_t rvi_jinja_n_seq_filters = RVI_COUNT(rvi_jinja_seq_filters);
