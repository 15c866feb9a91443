/* jinja_iter.c - iteration: over containers, and lazily through map, select, unique and loop
 * conditions.
 *
 * Laziness matters: a filter or test is applied when an item is requested, so it sees what the
 * template has done until then, and items that are never requested cannot fail. */
#include <string.h>

#include "base/utf8.h"
#include "template/jinja_run.h"

bool rvi_jv_iterable(rvi_jv v)
{
    return v.kind == RVI_J_UNDEFINED || v.kind == RVI_J_STR || v.kind == RVI_J_ITER ||
           (v.kind >= RVI_J_LIST && v.kind <= RVI_J_RANGE);
}

rvi_jv rvi_jinja_new_iter(rvi_jrun *r, rvi_jiter_kind kind, rvi_jv source, const char *repr)
{
    rvi_jiter *it = rvi_jinja_alloc(r, 1, sizeof *it);
    if (!it) return RVI_JV(FAIL);
    *it = (rvi_jiter){.kind = kind,
                      .repr = repr,
                      .source = source,
                      .path = RVI_JV(MISSING),
                      .fallback = RVI_JV(MISSING)};
    return (rvi_jv){.kind = RVI_J_ITER, .as.iter = it};
}

rvi_jv rvi_jv_iter(rvi_jrun *r, rvi_jv v)
{
    if (v.kind == RVI_J_ITER) return v;
    if (!rvi_jv_iterable(v))
        return rvi_jinja_fail(r, "'%s' object is not iterable", rvi_jv_type_name(v));
    rvi_jv it = rvi_jinja_new_iter(r, RVI_JITER_VALUE, v, "iterator object");
    if (!rvi_jv_failed(it) && v.kind != RVI_J_STR) rvi_jv_length(r, v, &it.as.iter->count);
    return it;
}

static int next_value(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    rvi_jv v = it->source;
    if (v.kind == RVI_J_STR) {
        const rvi_jstr *s = v.as.str;
        uint32_t cp;
        if (it->byte >= s->len) return 0;
        size_t used = rvi_utf8_decode(s->data + it->byte, s->len - it->byte, &cp, NULL);
        *out = rvi_jv_part(r, s, it->byte, used);
        it->byte += used;
        return rvi_jv_failed(*out) ? -1 : 1;
    }
    if (it->pos >= it->count) return 0;
    size_t i = it->reversed ? it->count - 1 - it->pos : it->pos;
    it->pos++;
    *out = v.kind == RVI_J_DICT ? v.as.dict->pairs[i].key : rvi_jv_at(r, v, i);
    return rvi_jv_failed(*out) ? -1 : 1;
}

static int next_map(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    rvi_jv item;
    int more = rvi_jiter_next(r, it->source.as.iter, &item);
    if (more != 1) return more;
    if (it->fn)
        *out = rvi_jinja_call_builtin(r, it->fn, item, &it->args);
    else
        *out = rvi_jinja_get_path(r, item, it->path, it->fallback);
    return rvi_jv_failed(*out) ? -1 : 1;
}

static int next_select(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    for (int more; (more = rvi_jiter_next(r, it->source.as.iter, out)) == 1;) {
        rvi_jv probe = *out;
        if (it->path.kind != RVI_J_MISSING)
            probe = rvi_jinja_get_path(r, probe, it->path, RVI_JV(MISSING));
        if (!rvi_jv_failed(probe) && it->fn)
            probe = rvi_jinja_call_builtin(r, it->fn, probe, &it->args);
        if (rvi_jv_failed(probe)) return -1;
        if (rvi_jv_truth(probe) != it->negate) return 1;
    }
    return r->status ? -1 : 0;
}

static int next_unique(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    for (int more; (more = rvi_jiter_next(r, it->source.as.iter, out)) == 1;) {
        rvi_jv key = rvi_jinja_get_path(r, *out, it->path, RVI_JV(MISSING)), found;
        if (!rvi_jv_failed(key) && it->ignore_case) key = rvi_jinja_ignore_case(r, key);
        if (rvi_jv_failed(key)) return -1;
        int known = rvi_jdict_find(r, it->seen, key, &found);
        if (known < 0) return -1;
        if (known) continue;
        return rvi_jdict_set(r, it->seen, key, RVI_JV(NONE)) ? 1 : -1;
    }
    return r->status ? -1 : 0;
}

static int next_later(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    if (it->fn) {
        rvi_jv v = rvi_jinja_call_builtin(r, it->fn, it->source, &it->args);
        if (!rvi_jv_failed(v)) v = rvi_jv_iter(r, v);
        if (rvi_jv_failed(v)) return -1;
        it->source = v;
        it->fn = NULL;
    }
    return rvi_jiter_next(r, it->source.as.iter, out);
}

int rvi_jiter_next(rvi_jrun *r, rvi_jiter *it, rvi_jv *out)
{
    int more = 0;
    if (it->done) return 0;
    if (!rvi_jinja_charge(r, 1) || !rvi_jinja_enter(r)) return -1;
    switch (it->kind) {
    case RVI_JITER_VALUE: more = next_value(r, it, out); break;
    case RVI_JITER_MAP: more = next_map(r, it, out); break;
    case RVI_JITER_SELECT: more = next_select(r, it, out); break;
    case RVI_JITER_UNIQUE: more = next_unique(r, it, out); break;
    case RVI_JITER_LATER: more = next_later(r, it, out); break;
    case RVI_JITER_FOR_TEST: more = rvi_jinja_for_test_next(r, it, out); break;
    }
    rvi_jinja_leave(r);
    it->done = more != 1;
    return more;
}

rvi_jv rvi_jv_to_list(rvi_jrun *r, rvi_jv iterable, rvi_jkind kind)
{
    rvi_jvec vec = {0};
    rvi_jv item;
    switch (iterable.kind) {
    case RVI_J_LIST:
    case RVI_J_TUPLE:
    case RVI_J_KEYS:
    case RVI_J_VALUES:
    case RVI_J_ITEMS: /* the items never change: share them */
        vec.items = iterable.as.seq->items;
        vec.count = iterable.as.seq->count;
        return rvi_jvec_finish(r, &vec, kind);
    default: break;
    }
    rvi_jv it = rvi_jv_iter(r, iterable);
    if (rvi_jv_failed(it)) return it;
    for (int more; (more = rvi_jiter_next(r, it.as.iter, &item));)
        if (more < 0 || !rvi_jvec_push(r, &vec, item)) return RVI_JV(FAIL);
    return rvi_jvec_finish(r, &vec, kind);
}

/* ---- attributes by path ---- */

rvi_jv rvi_jinja_path(rvi_jrun *r, rvi_jv attribute)
{
    rvi_jvec parts = {0};
    if (attribute.kind == RVI_J_NONE) return rvi_jvec_finish(r, &parts, RVI_J_LIST);
    if (attribute.kind != RVI_J_STR)
        return rvi_jvec_push(r, &parts, attribute) ? rvi_jvec_finish(r, &parts, RVI_J_LIST)
                                                   : RVI_JV(FAIL);
    const rvi_jstr *s = attribute.as.str;
    if (!rvi_jinja_charge_chars(r, s->len)) return RVI_JV(FAIL);
    for (size_t from = 0;;) {
        const char *dot = from < s->len ? memchr(s->data + from, '.', s->len - from) : NULL;
        size_t to = dot ? (size_t)(dot - s->data) : s->len;
        rvi_jstr piece = {.data = s->data + from, .len = to - from};
        bool digits = piece.len > 0, too_big = false;
        for (size_t i = 0; i < piece.len; i++)
            digits &= piece.data[i] >= '0' && piece.data[i] <= '9';
        int64_t number = 0;
        if (digits) digits = rvi_jinja_parse_int(&piece, 10, &number, &too_big);
        rvi_jv part = digits ? rvi_jv_int(number) : rvi_jv_view(r, piece.data, piece.len);
        if (rvi_jv_failed(part) || !rvi_jvec_push(r, &parts, part)) return RVI_JV(FAIL);
        if (!dot) return rvi_jvec_finish(r, &parts, RVI_J_LIST);
        from = to + 1;
    }
}

rvi_jv rvi_jinja_get_path(rvi_jrun *r, rvi_jv item, rvi_jv path, rvi_jv fallback)
{
    for (size_t i = 0; i < path.as.seq->count; i++) {
        item = rvi_jinja_getitem(r, item, path.as.seq->items[i]);
        if (rvi_jv_failed(item)) return item;
        if (item.kind == RVI_J_UNDEFINED && rvi_jarg_given(fallback)) item = fallback;
    }
    return item;
}

rvi_jv rvi_jinja_ignore_case(rvi_jrun *r, rvi_jv v)
{
    return v.kind == RVI_J_STR ? rvi_jinja_recase(r, v.as.str, RVI_JCASE_LOWER) : v;
}
