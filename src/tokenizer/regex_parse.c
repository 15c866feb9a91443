/* regex_parse.c - parses a pattern into a tree of nodes. Recursion is one level for each open
 * parenthesis and is capped. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex_internal.h"

typedef struct parser {
    rvi_regex_source src;
    rvi_regex *re;
    rvi_arena *arena;
    bool any_newline; /* '.' matches a newline here */
} parser;

static rv_status nomem(parser *p)
{
    return rvi_nomem(p->src.err, "regular expression");
}

static rvi_regex_node *node(parser *p, rvi_regex_kind kind)
{
    rvi_regex_node *n = rvi_arena_alloc(p->arena, 1, sizeof *n);
    if (n) n->kind = kind;
    return n;
}

rv_status rvi_regex_add_set(rvi_regex *re, rvi_cpset *take, size_t *index, rv_error *err)
{
    rv_status st = RV_OK;
    if (re->n_sets == re->cap_sets) {
        size_t cap = re->cap_sets ? re->cap_sets * 2 : 16;
        rvi_cpset *sets =
            re->n_sets < RVI_REGEX_SETS_MAX ? rvi_realloc_array(re->sets, cap, sizeof *sets) : NULL;
        if (!sets) {
            st = re->n_sets < RVI_REGEX_SETS_MAX
                     ? rvi_nomem(err, "regular expression")
                     : rvi_error(err, RV_E_TOKENIZATION, "regular expression: too many classes");
            rvi_cpset_deinit(take);
            return st;
        }
        re->sets = sets;
        re->cap_sets = cap;
    }
    *index = re->n_sets;
    re->sets[re->n_sets++] = *take;
    *take = (rvi_cpset){0};
    return RV_OK;
}

/* Takes the closed set. */
static rv_status set_node(parser *p, rvi_cpset *take, rvi_regex_node **out)
{
    size_t index;
    rv_status st = rvi_regex_add_set(p->re, take, &index, p->src.err);
    if (st) return st;
    *out = node(p, RVI_NODE_SET);
    if (!*out) return nomem(p);
    (*out)->set = index;
    return RV_OK;
}

static rv_status char_node(parser *p, uint32_t cp, rvi_regex_node **out)
{
    if (p->src.fold) {
        rvi_cpset set = {0};
        bool ok = rvi_cpset_add(&set, cp, cp);
        rvi_cpset_close(&set);
        ok = ok && rvi_cpset_fold(&set);
        bool single = ok && set.n == 1 && set.ranges[0].first == set.ranges[0].last;
        if (ok && !single) return set_node(p, &set, out);
        rvi_cpset_deinit(&set);
        if (!ok) return nomem(p);
    }
    *out = node(p, RVI_NODE_CHAR);
    if (!*out) return nomem(p);
    (*out)->cp = cp;
    return RV_OK;
}

static rv_status any_node(parser *p, rvi_regex_node **out)
{
    rvi_cpset set = {0};
    bool ok = p->any_newline ? rvi_cpset_add(&set, 0, RVI_UNICODE_LAST)
                             : rvi_cpset_add(&set, 0, '\n' - 1) &&
                                   rvi_cpset_add(&set, '\n' + 1, RVI_UNICODE_LAST);
    rvi_cpset_close(&set);
    if (ok) return set_node(p, &set, out);
    rvi_cpset_deinit(&set);
    return nomem(p);
}

static rv_status class_node(parser *p, rvi_regex_node **out)
{
    rvi_cpset set = {0};
    rv_status st = rvi_regex_class(&p->src, &set, 0);
    if (!st) return set_node(p, &set, out);
    rvi_cpset_deinit(&set);
    return st;
}

static rv_status place_node(parser *p, rvi_regex_place place, rvi_regex_node **out)
{
    *out = node(p, RVI_NODE_PLACE);
    if (!*out) return nomem(p);
    (*out)->place = place;
    return RV_OK;
}

/* pos is behind the '\' */
static rv_status escape_node(parser *p, rvi_regex_node **out)
{
    static const struct {
        char letter;
        rvi_regex_place place;
    } places[] = {{'A', RVI_REGEX_TEXT_START},
                  {'z', RVI_REGEX_TEXT_END},
                  {'Z', RVI_REGEX_TEXT_END_NEWLINE},
                  {'b', RVI_REGEX_WORD_EDGE},
                  {'B', RVI_REGEX_NOT_WORD_EDGE}};
    for (size_t i = 0; i < RVI_COUNT(places) && p->src.pos < p->src.len; i++)
        if (p->src.pattern[p->src.pos] == places[i].letter) {
            p->src.pos++;
            return place_node(p, places[i].place, out);
        }
    rvi_cpset set = {0};
    bool is_set;
    uint32_t cp;
    rv_status st = rvi_regex_escape(&p->src, &set, &is_set, &cp);
    if (st) {
        rvi_cpset_deinit(&set);
        return st;
    }
    if (!is_set) return char_node(p, cp, out);
    rvi_cpset_close(
        &set); /* a property outside of brackets is not folded: (?i:\p{Ll}) does not match 'A' */
    return set_node(p, &set, out);
}

static rv_status alternatives(parser *p, int depth, rvi_regex_node **out);

/* "i-m:" and the like behind "(?". *rest: the flags hold up to the end of the group around
 * ("(?i)"). */
static rv_status group_flags(parser *p, bool *rest)
{
    bool on = true;
    for (; p->src.pos < p->src.len; p->src.pos++) {
        char c = p->src.pattern[p->src.pos];
        if (c == ':' || c == ')') {
            *rest = c == ')';
            p->src.pos++;
            return RV_OK;
        }
        if (c == '-')
            on = false;
        else if (c == 'i')
            p->src.fold = on;
        else if (c == 'm')
            p->any_newline = on;
        else
            return rvi_regex_fail(&p->src, "unsupported group or option");
    }
    return rvi_regex_fail(&p->src, "')' missing");
}

/* Reads what follows '(': the kind of group. *wrap gets the node that takes the body, or NULL for a
 * plain one. */
static rv_status group_kind(parser *p, rvi_regex_node **wrap, bool *rest)
{
    static const struct {
        const char *text;
        rvi_regex_kind kind;
        bool negative, behind;
    } kinds[] = {{"?=", RVI_NODE_LOOK, false, false},
                 {"?!", RVI_NODE_LOOK, true, false},
                 {"?<=", RVI_NODE_LOOK, false, true},
                 {"?<!", RVI_NODE_LOOK, true, true},
                 {"?>", RVI_NODE_ATOMIC, false, false}};
    *wrap = NULL;
    *rest = false;
    for (size_t i = 0; i < RVI_COUNT(kinds); i++) {
        if (!rvi_regex_peek(&p->src, kinds[i].text)) continue;
        p->src.pos += strlen(kinds[i].text);
        if (!(*wrap = node(p, kinds[i].kind))) return nomem(p);
        (*wrap)->negative = kinds[i].negative;
        (*wrap)->behind = kinds[i].behind;
        return RV_OK;
    }
    if (rvi_regex_peek(&p->src, "?<")) { /* a name; nothing refers to it */
        const char *end = memchr(p->src.pattern + p->src.pos, '>', p->src.len - p->src.pos);
        if (!end) return rvi_regex_fail(&p->src, "'>' missing behind a group's name");
        p->src.pos = (size_t)(end - p->src.pattern) + 1;
        return RV_OK;
    }
    if (!rvi_regex_peek(&p->src, "?")) return RV_OK;
    p->src.pos++;
    return group_flags(p, rest);
}

/* Looking behind, each alternative steps back by a length of its own: (?<=a|bc) is
 * (?:(?<=a)|(?<=bc)), and (?<!a|bc) is
 * (?<!a)(?<!bc). */
static rv_status split_look_behind(parser *p, const rvi_regex_node *look, rvi_regex_node *body,
                                   rvi_regex_node **out)
{
    rvi_regex_node **tail, *next;
    if (!(*out = node(p, look->negative ? RVI_NODE_LIST : RVI_NODE_ALT))) return nomem(p);
    tail = &(*out)->child;
    for (rvi_regex_node *c = body->child; c; c = next) {
        next = c->next;
        c->next = NULL;
        if (!(*tail = node(p, RVI_NODE_LOOK))) return nomem(p);
        (*tail)->behind = true;
        (*tail)->negative = look->negative;
        (*tail)->child = c;
        tail = &(*tail)->next;
    }
    return RV_OK;
}

static rv_status group(parser *p, int depth, rvi_regex_node **out)
{
    bool fold = p->src.fold, any_newline = p->any_newline, rest;
    rvi_regex_node *wrap, *body;
    rv_status st;
    p->src.pos++; /* '(' */
    if (rvi_regex_peek(&p->src, "?#")) {
        const char *end = memchr(p->src.pattern + p->src.pos, ')', p->src.len - p->src.pos);
        if (!end) return rvi_regex_fail(&p->src, "')' missing");
        p->src.pos = (size_t)(end - p->src.pattern) + 1;
        return (*out = node(p, RVI_NODE_EMPTY)) ? RV_OK : nomem(p);
    }
    if ((st = group_kind(p, &wrap, &rest))) return st;
    if ((st = alternatives(p, depth + 1, &body))) return st;
    p->src.fold = fold;
    p->any_newline = any_newline;
    if (!rest) { /* "(?i)" ends where the group around it ends, and leaves its ')' there */
        if (!rvi_regex_peek(&p->src, ")")) return rvi_regex_fail(&p->src, "')' missing");
        p->src.pos++;
    }
    if (wrap && wrap->behind) return split_look_behind(p, wrap, body, out);
    if (wrap) wrap->child = body;
    *out = wrap ? wrap : body;
    return RV_OK;
}

static rv_status atom(parser *p, int depth, rvi_regex_node **out)
{
    switch (p->src.pattern[p->src.pos]) {
    case '(': return group(p, depth, out);
    case '[': return class_node(p, out);
    case '.': p->src.pos++; return any_node(p, out);
    case '^': p->src.pos++; return place_node(p, RVI_REGEX_LINE_START, out);
    case '$': p->src.pos++; return place_node(p, RVI_REGEX_LINE_END, out);
    case '\\': p->src.pos++; return escape_node(p, out);
    case '*':
    case '+':
    case '?': return rvi_regex_fail(&p->src, "nothing to repeat");
    default: return char_node(p, rvi_regex_take(&p->src), out);
    }
}

static bool number(const rvi_regex_source *s, size_t *pos, int *value)
{
    size_t start = *pos;
    *value = 0;
    for (; *pos < s->len && s->pattern[*pos] >= '0' && s->pattern[*pos] <= '9'; ++*pos)
        if (*value <= RVI_REGEX_REPEAT_MAX) *value = *value * 10 + (s->pattern[*pos] - '0');
    return *pos > start;
}

/* "{m,n}" at the place; a brace that is no interval is an ordinary character. */
static bool interval(rvi_regex_source *s, int *min, int *max)
{
    size_t pos = s->pos + 1;
    bool has_min = number(s, &pos, min), has_max;
    *max = *min;
    if (pos < s->len && s->pattern[pos] == ',') {
        pos++;
        has_max = number(s, &pos, max);
        if (!has_max) *max = RVI_REGEX_FOREVER;
    } else {
        has_max = has_min;
    }
    if ((!has_min && !has_max) || pos >= s->len || s->pattern[pos] != '}') return false;
    s->pos = pos + 1;
    return true;
}

/* One quantifier behind *n, if there is one. */
static rv_status quantifier(parser *p, rvi_regex_node **n, bool *more)
{
    rvi_regex_source *s = &p->src;
    int min = 0, max = RVI_REGEX_FOREVER;
    bool is_interval = false;
    *more = false;
    if (s->pos >= s->len) return RV_OK;
    switch (s->pattern[s->pos]) {
    case '*': s->pos++; break;
    case '+':
        s->pos++;
        min = 1;
        break;
    case '?':
        s->pos++;
        max = 1;
        break;
    case '{':
        if (!interval(s, &min, &max)) return RV_OK;
        is_interval = true;
        break;
    default: return RV_OK;
    }
    if (min > RVI_REGEX_REPEAT_MAX || max > RVI_REGEX_REPEAT_MAX)
        return rvi_regex_fail(s, "repetition too large");
    if (max != RVI_REGEX_FOREVER && max < min)
        return rvi_regex_fail(s, "repetition with its bounds in reverse order");
    rvi_regex_node *repeat = node(p, RVI_NODE_REPEAT);
    if (!repeat) return nomem(p);
    repeat->child = *n;
    repeat->min = min;
    repeat->max = max;
    if (rvi_regex_peek(s, "?") && !(is_interval && min == max)) { /* "{n}?" is an optional "{n}" */
        s->pos++;
        repeat->mode = RVI_REGEX_LAZY;
    } else if (rvi_regex_peek(s, "+") && !is_interval) { /* "{m,n}+" is a repeated interval */
        s->pos++;
        repeat->mode = RVI_REGEX_POSSESSIVE;
    }
    *n = repeat;
    *more = true;
    return RV_OK;
}

static rv_status sequence(parser *p, int depth, rvi_regex_node **out)
{
    rvi_regex_node *list = node(p, RVI_NODE_LIST), **tail;
    if (!list) return nomem(p);
    tail = &list->child;
    while (p->src.pos < p->src.len && p->src.pattern[p->src.pos] != '|' &&
           p->src.pattern[p->src.pos] != ')') {
        rvi_regex_node *item;
        bool more = true;
        int n_quantifiers = 0;
        rv_status st = atom(p, depth, &item);
        while (!st && more) {
            st = quantifier(p, &item, &more);
            if (!st && ++n_quantifiers > 8)
                st = rvi_regex_fail(&p->src, "too many quantifiers on one item");
        }
        if (st) return st;
        *tail = item;
        tail = &item->next;
    }
    *out = list;
    return RV_OK;
}

static rv_status alternatives(parser *p, int depth, rvi_regex_node **out)
{
    if (depth > RVI_REGEX_DEPTH_MAX) return rvi_regex_fail(&p->src, "nested too deeply");
    rvi_regex_node *alt = node(p, RVI_NODE_ALT), **tail;
    if (!alt) return nomem(p);
    tail = &alt->child;
    for (;;) {
        rv_status st = sequence(p, depth, tail);
        if (st) return st;
        tail = &(*tail)->next;
        if (!rvi_regex_peek(&p->src, "|")) break;
        p->src.pos++;
    }
    *out = alt;
    return RV_OK;
}

rv_status rvi_regex_parse(rvi_regex *re, const char *pattern, size_t len, rvi_arena *arena,
                          rvi_regex_node **root, rv_error *err)
{
    parser p = {.src = {.pattern = pattern, .len = len, .n_ranges = &re->n_ranges, .err = err},
                .re = re,
                .arena = arena};
    if (len > RVI_REGEX_PATTERN_MAX)
        return rvi_error(err, RV_E_TOKENIZATION, "regular expression of %zu bytes is too long",
                         len);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        bool valid;
        i += rvi_utf8_decode(pattern + i, len - i, &cp, &valid);
        if (!valid)
            return rvi_error(err, RV_E_TOKENIZATION, "regular expression is not valid UTF-8");
    }
    rv_status st = alternatives(&p, 0, root);
    if (!st && p.src.pos < len) st = rvi_regex_fail(&p.src, "')' without '('");
    return st;
}
