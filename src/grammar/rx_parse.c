#include "grammar/rx_parse.h"

#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

typedef enum kind { SEQ, ALT, LEAF, REPEAT, BEGIN, END, AHEAD, NOT_AHEAD } kind;

typedef struct item item;
struct item {
    kind kind;
    rvi_rx leaf;
    uint32_t min, max;
    item *first, *next; /* children, and the one behind this */
    bool anchored;      /* an anchor or a look-ahead is in it */
};

typedef struct parser {
    rvi_rxs *p;
    const char *s, *end;
    rvi_arena arena;
    int depth;
    rv_error *err;
    rv_status st;
} parser;

enum { MAX_NESTING = 100, MAX_LENGTH = 16384, MAX_ITEMS_BYTES = 8 << 20, WORK_A_BYTE = 4 };

static void *fail(parser *r, rv_status st, const char *why)
{
    if (!r->st) r->st = rvi_error(r->err, st, "regular expression: %s", why);
    return NULL;
}

/* The arena gave nothing: it is full, or there is no memory. */
static void *no_room(parser *r, size_t bytes)
{
    if (bytes + sizeof(max_align_t) > r->arena.max - r->arena.used)
        return fail(r, RV_E_UNSUPPORTED, "it is too long");
    if (!r->st) r->st = rvi_nomem(r->err, "regular expression");
    return NULL;
}

static item *make(parser *r, kind k)
{
    item *i = rvi_arena_alloc(&r->arena, 1, sizeof *i);
    if (!i) return no_room(r, sizeof *i);
    i->kind = k;
    return i;
}

/* ---- characters and classes ---- */

static bool eat(parser *r, char c)
{
    if (r->s == r->end || *r->s != c) return false;
    r->s++;
    return true;
}

static uint32_t take(parser *r)
{
    uint32_t cp;
    r->s += rvi_utf8_decode(r->s, (size_t)(r->end - r->s), &cp, NULL);
    return cp;
}

static int hex(int c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* n hexadecimal digits, or nothing is taken. */
static bool hex_digits(parser *r, int n, uint32_t *out)
{
    *out = 0;
    if (r->end - r->s < n) return false;
    for (int i = 0; i < n; i++) {
        int d = hex((unsigned char)r->s[i]);
        if (d < 0) return false;
        *out = *out << 4 | (uint32_t)d;
    }
    r->s += n;
    return true;
}

static uint32_t unicode_escape(parser *r)
{
    uint32_t cp, low;
    if (eat(r, '{')) {
        cp = 0;
        while (r->s < r->end && hex((unsigned char)*r->s) >= 0 && cp <= RVI_RX_LAST)
            cp = cp << 4 | (uint32_t)hex((unsigned char)*r->s++);
        if (!eat(r, '}') || cp > RVI_RX_LAST) fail(r, RV_E_CONFIG, "a bad \\u{...}");
        return cp;
    }
    if (!hex_digits(r, 4, &cp)) return 'u';
    const char *back = r->s;
    if (cp >= 0xD800 && cp < 0xDC00 && eat(r, '\\') && eat(r, 'u') && hex_digits(r, 4, &low) &&
        low >= 0xDC00 && low <= 0xDFFF)
        return 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    r->s = back;
    return cp;
}

static void add(parser *r, rvi_cpset *set, uint32_t first, uint32_t last)
{
    if (!rvi_cpset_add(set, first, last)) r->st = rvi_nomem(r->err, "regular expression");
}

/* Counts what is done; sets of thousands of characters are quickly asked for. */
static void spend(parser *r, uint64_t n)
{
    if (!rvi_rxs_spend(r->p, n) && !r->st)
        r->st = rvi_rxs_check(r->p, "regular expression", r->err);
}

static void add_property(parser *r, rvi_cpset *set)
{
    const char *name = r->s, *equals;
    const char *close =
        r->s < r->end && *r->s == '{' ? memchr(r->s, '}', (size_t)(r->end - r->s)) : NULL;
    if (!close) {
        fail(r, RV_E_CONFIG, "\\p without {name}");
        return;
    }
    name++;
    r->s = close + 1;
    equals = memchr(name, '=', (size_t)(close - name));
    if (equals) name = equals + 1;
    switch (rvi_cpset_add_property(set, name, (size_t)(close - name))) {
    case RVI_PROPERTY_OK: return;
    case RVI_PROPERTY_UNKNOWN: fail(r, RV_E_UNSUPPORTED, "an unknown \\p{...}"); return;
    case RVI_PROPERTY_NOMEM: r->st = rvi_nomem(r->err, "regular expression");
    }
}

/* \d \w \s \p and their opposites; the letter was taken. False: it is none of them. */
static bool add_class(parser *r, char letter, rvi_cpset *out)
{
    static const rvi_rx_range digit[] = {{'0', '9'}},
                              word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                              space[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},
                                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                         {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}};
    rvi_cpset set = {0};
    const rvi_rx_range *list = NULL;
    size_t n = 0;
    switch (letter | 32) {
    case 'd': list = digit, n = RVI_COUNT(digit); break;
    case 'w': list = word, n = RVI_COUNT(word); break;
    case 's': list = space, n = RVI_COUNT(space); break;
    case 'p':
        add_property(r, &set);
        spend(r, 4 * set.n);
        break;
    default: return false;
    }
    for (size_t i = 0; i < n && !r->st; i++) add(r, &set, list[i].first, list[i].last);
    rvi_cpset_close(&set);
    if (!r->st && !(letter & 32) && !rvi_cpset_invert(&set))
        r->st = rvi_nomem(r->err, "regular expression");
    if (!r->st && !rvi_cpset_add_set(out, &set)) r->st = rvi_nomem(r->err, "regular expression");
    rvi_cpset_deinit(&set);
    return true;
}

/* Behind a backslash: the character it stands for. */
static uint32_t escape(parser *r, bool in_class)
{
    uint32_t cp;
    if (r->s == r->end) {
        fail(r, RV_E_CONFIG, "it ends with a backslash");
        return 0;
    }
    uint32_t c = take(r);
    switch (c) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'v': return '\v';
    case 'f': return '\f';
    case 'r': return '\r';
    case '0':
        if (r->s < r->end && *r->s >= '0' && *r->s <= '9')
            fail(r, RV_E_UNSUPPORTED, "an octal escape");
        return 0;
    case 'x': return hex_digits(r, 2, &cp) ? cp : 'x';
    case 'u': return unicode_escape(r);
    case 'c':
        if (r->s < r->end && ((*r->s | 32) >= 'a' && (*r->s | 32) <= 'z'))
            return (uint32_t)(*r->s++ & 31);
        fail(r, RV_E_CONFIG, "\\c without a letter");
        return 0;
    case 'b':
        if (in_class) return '\b'; /* fall through */
    case 'B': fail(r, RV_E_UNSUPPORTED, "a word boundary (\\b, \\B) cannot be enforced"); return 0;
    case 'k': fail(r, RV_E_UNSUPPORTED, "a back reference cannot be enforced"); return 0;
    default: break;
    }
    if (c >= '1' && c <= '9') {
        fail(r, RV_E_UNSUPPORTED, "a back reference cannot be enforced");
        return 0;
    }
    /* letters without a meaning are none in ECMA-262, or have one in other dialects */
    if ((c | 32) >= 'a' && (c | 32) <= 'z')
        fail(r, RV_E_UNSUPPORTED, "an escaped letter without a meaning in ECMA-262");
    return c;
}

static rvi_rx close_set(parser *r, rvi_cpset *set, bool invert)
{
    rvi_rx out = RVI_RX_NONE;
    rvi_cpset_close(set);
    if (!r->st && invert && !rvi_cpset_invert(set)) r->st = rvi_nomem(r->err, "regular expression");
    if (!r->st) {
        rvi_rx_range *ranges = rvi_arena_alloc(&r->arena, set->n + 1, sizeof *ranges);
        if (!ranges) no_room(r, (set->n + 1) * sizeof *ranges);
        for (size_t i = 0; ranges && i < set->n; i++)
            ranges[i] = (rvi_rx_range){set->ranges[i].first, set->ranges[i].last};
        if (ranges) out = rvi_rx_set(r->p, ranges, set->n);
    }
    rvi_cpset_deinit(set);
    return out;
}

/* One end of a range, or a class of several characters (*many). */
static uint32_t class_atom(parser *r, rvi_cpset *set, bool *many)
{
    *many = false;
    if (!eat(r, '\\')) return take(r);
    if (r->s < r->end && strchr("dDwWsSpP", *r->s) && *r->s) {
        *many = add_class(r, *r->s++, set);
        return 0;
    }
    return escape(r, true);
}

static rvi_rx class_set(parser *r)
{
    rvi_cpset set = {0};
    bool invert = eat(r, '^'), many, many_too;
    while (!r->st && r->s < r->end && *r->s != ']') {
        uint32_t first = class_atom(r, &set, &many), last = first;
        if (r->end - r->s >= 2 && r->s[0] == '-' && r->s[1] != ']') {
            r->s++;
            last = class_atom(r, &set, &many_too);
            if (many || many_too) { /* "\d-x": the hyphen is one character */
                add(r, &set, '-', '-');
                if (!many_too) add(r, &set, last, last);
                if (!many) add(r, &set, first, first);
                continue;
            }
            if (last < first) fail(r, RV_E_CONFIG, "a range in a class is out of order");
        }
        if (!many && !r->st) add(r, &set, first, last);
    }
    if (!r->st && !eat(r, ']')) fail(r, RV_E_CONFIG, "a class without its ]");
    return close_set(r, &set, invert);
}

/* ---- structure ---- */

static item *alternatives(parser *r);

static item *leaf(parser *r, rvi_rx rx)
{
    item *i = make(r, LEAF);
    if (i) i->leaf = rx;
    return i;
}

static item *group(parser *r)
{
    item *i;
    kind k = SEQ;
    if (eat(r, '?')) {
        if (eat(r, '='))
            k = AHEAD;
        else if (eat(r, '!'))
            k = NOT_AHEAD;
        else if (eat(r, '<')) {
            if (r->s < r->end && (*r->s == '=' || *r->s == '!'))
                return fail(r, RV_E_UNSUPPORTED, "look-behind cannot be enforced");
            while (r->s < r->end && *r->s != '>') r->s++;
            if (!eat(r, '>')) return fail(r, RV_E_CONFIG, "a group's name without its >");
        } else if (!eat(r, ':')) {
            return fail(r, RV_E_UNSUPPORTED, "inline flags are not part of ECMA-262");
        }
    }
    if (++r->depth > MAX_NESTING) return fail(r, RV_E_UNSUPPORTED, "it is nested too deeply");
    item *inner = alternatives(r);
    r->depth--;
    if (r->st) return NULL;
    if (!eat(r, ')')) return fail(r, RV_E_CONFIG, "a group without its )");
    if (k == SEQ) return inner;
    if (!(i = make(r, k))) return NULL;
    i->first = inner;
    i->anchored = true;
    return i;
}

static item *atom(parser *r)
{
    item *i;
    rvi_cpset set = {0};
    char c = *r->s;
    switch (c) {
    case '(': r->s++; return group(r);
    case '[': r->s++; return leaf(r, class_set(r));
    case '^':
    case '$':
        r->s++;
        if ((i = make(r, c == '^' ? BEGIN : END))) i->anchored = true;
        return i;
    case '.':
        r->s++;
        add(r, &set, '\n', '\n');
        add(r, &set, '\r', '\r');
        add(r, &set, 0x2028, 0x2029);
        return leaf(r, close_set(r, &set, true));
    case '\\':
        r->s++;
        if (r->s < r->end && *r->s && strchr("dDwWsSpP", *r->s)) {
            add_class(r, *r->s++, &set);
            return leaf(r, close_set(r, &set, false));
        }
        return leaf(r, rvi_rx_one(r->p, escape(r, false)));
    case '*':
    case '+':
    case '?': return fail(r, RV_E_CONFIG, "a quantifier with nothing to repeat");
    default: return leaf(r, rvi_rx_one(r->p, take(r)));
    }
}

static bool number(const char **s, const char *end, uint32_t *out)
{
    const char *start = *s;
    for (*out = 0; *s < end && **s >= '0' && **s <= '9'; ++*s)
        *out = *out > 10000000 ? *out : *out * 10 + (uint32_t)(**s - '0');
    return *s > start;
}

/* * + ? {m} {m,} {m,n}; a brace that is none of them is a character. */
static bool quantifier(parser *r, uint32_t *min, uint32_t *max)
{
    const char *s = r->s;
    if (s == r->end) return false;
    *min = *s == '+';
    *max = *s == '?' ? 1 : RVI_RX_FOREVER;
    if (*s == '*' || *s == '+' || *s == '?') {
        r->s++;
    } else {
        if (*s++ != '{' || !number(&s, r->end, min)) return false;
        *max = *min;
        if (s < r->end && *s == ',') {
            s++;
            if (!number(&s, r->end, max)) *max = RVI_RX_FOREVER;
        }
        if (s == r->end || *s != '}') return false;
        r->s = s + 1;
    }
    eat(r, '?'); /* lazy: the same language */
    return true;
}

static item *sequence(parser *r)
{
    item *seq = make(r, SEQ), **tail = seq ? &seq->first : NULL;
    while (!r->st && r->s < r->end && *r->s != '|' && *r->s != ')') {
        uint32_t min, max;
        item *i = atom(r);
        while (i && !r->st && quantifier(r, &min, &max)) {
            item *rep = make(r, REPEAT);
            if (!rep) return NULL;
            if (min > max)
                return fail(r, RV_E_CONFIG, "a quantifier whose limits are out of order");
            rep->min = min;
            rep->max = max;
            rep->first = i;
            rep->anchored = i->anchored;
            i = rep;
        }
        if (!i) return NULL;
        *tail = i;
        tail = &i->next;
        seq->anchored = seq->anchored || i->anchored;
    }
    return r->st ? NULL : seq;
}

static item *alternatives(parser *r)
{
    item *alt = make(r, ALT), **tail = alt ? &alt->first : NULL;
    do {
        item *seq = r->st ? NULL : sequence(r);
        if (!seq) return NULL;
        *tail = seq;
        tail = &seq->next;
        alt->anchored = alt->anchored || seq->anchored;
    } while (eat(r, '|'));
    return alt;
}

/* ---- to languages ----
 *
 * An item is translated with what is beside it: OPEN, anything may stand between it and the edge of
 * the text, and the item adds it; EDGE, it touches the edge; MIDDLE, other items stand there. */

typedef enum side { MIDDLE, EDGE, OPEN } side;

static rvi_rx lower(parser *r, const item *i, side left, side right);

static rvi_rx widen(parser *r, rvi_rx rx, side left, side right)
{
    if (left == OPEN) rx = rvi_rx_cat(r->p, RVI_RX_ALL, rx);
    if (right == OPEN) rx = rvi_rx_cat(r->p, rx, RVI_RX_ALL);
    return rx;
}

static rvi_rx lower_ahead(parser *r, const item *i, const item *rest, side left, side right);

/* The items from i on. */
static rvi_rx lower_sequence(parser *r, const item *i, side left, side right)
{
    if (r->st) return RVI_RX_NONE;
    if (!i) return widen(r, RVI_RX_EPS, left, left == OPEN && right == OPEN ? MIDDLE : right);
    if (i->kind == BEGIN) {
        if (left == MIDDLE) {
            fail(r, RV_E_UNSUPPORTED, "an anchor in the middle cannot be enforced");
            return RVI_RX_NONE;
        }
        return lower_sequence(r, i->next, EDGE, right);
    }
    if (i->kind == AHEAD || i->kind == NOT_AHEAD) return lower_ahead(r, i, i->next, left, right);
    if (i->kind == END) {
        if (right == MIDDLE) {
            fail(r, RV_E_UNSUPPORTED, "an anchor in the middle cannot be enforced");
            return RVI_RX_NONE;
        }
        /* nothing is left for what follows */
        if (!rvi_rx_nullable(r->p, lower_sequence(r, i->next, MIDDLE, EDGE))) return RVI_RX_NONE;
        return widen(r, RVI_RX_EPS, left, EDGE);
    }
    const item *rest = i->next;
    if (!rest) return lower(r, i, left, right);
    rvi_rx head = lower(r, i, left, MIDDLE);
    return rvi_rx_cat(r->p, head, lower_sequence(r, rest, MIDDLE, right));
}

static rvi_rx lower_ahead(parser *r, const item *i, const item *rest, side left, side right)
{
    if (right == MIDDLE) {
        fail(r, RV_E_UNSUPPORTED, "look-ahead inside a group cannot be enforced");
        return RVI_RX_NONE;
    }
    if (left == OPEN) return rvi_rx_cat(r->p, RVI_RX_ALL, lower_ahead(r, i, rest, MIDDLE, right));
    rvi_rx seen = lower(r, i->first, left, OPEN), then = lower_sequence(r, rest, left, right);
    return rvi_rx_and(r->p, i->kind == AHEAD ? seen : rvi_rx_not(r->p, seen), then);
}

static rvi_rx lower_repeat(parser *r, const item *i, side left, side right)
{
    if (!i->anchored)
        return widen(r, rvi_rx_repeat(r->p, lower(r, i->first, MIDDLE, MIDDLE), i->min, i->max),
                     left, right);
    if (i->min == 1 && i->max == 1) return lower(r, i->first, left, right);
    if (i->min == 0 && i->max == 1)
        return rvi_rx_or(r->p, lower(r, i->first, left, right),
                         lower_sequence(r, NULL, left, right));
    fail(r, RV_E_UNSUPPORTED, "a repeated anchor or look-ahead cannot be enforced");
    return RVI_RX_NONE;
}

static rvi_rx lower_alternatives(parser *r, const item *i, side left, side right)
{
    size_t n = 0, k = 0;
    for (const item *c = i->first; c; c = c->next) n++;
    rvi_rx *list = rvi_arena_alloc(&r->arena, n, sizeof *list);
    if (!list) {
        no_room(r, n * sizeof *list);
        return RVI_RX_NONE;
    }
    for (const item *c = i->first; c && !r->st; c = c->next)
        list[k++] = lower_sequence(r, c->first, left, right);
    return rvi_rx_or_all(r->p, list, k);
}

static rvi_rx lower(parser *r, const item *i, side left, side right)
{
    if (r->st) return RVI_RX_NONE;
    switch (i->kind) {
    case LEAF: return widen(r, i->leaf, left, right);
    case REPEAT: return lower_repeat(r, i, left, right);
    case ALT:
        if (!i->anchored && (left == OPEN || right == OPEN))
            return widen(r, lower_alternatives(r, i, MIDDLE, MIDDLE), left, right);
        return lower_alternatives(r, i, left, right);
    case SEQ: return lower_sequence(r, i->first, left, right);
    case BEGIN:
    case END:
    case AHEAD:
    case NOT_AHEAD: {
        item copy = *i;
        copy.next = NULL;
        return lower_sequence(r, &copy, left, right);
    }
    }
    return RVI_RX_NONE;
}

rv_status rvi_rx_parse(rvi_rxs *p, const char *pattern, size_t len, bool whole, rvi_rx *out,
                       rv_error *err)
{
    parser r = {.p = p, .s = pattern, .end = pattern + len, .err = err};
    r.arena.max = MAX_ITEMS_BYTES;
    *out = RVI_RX_NONE;
    spend(&r, WORK_A_BYTE * (uint64_t)len);
    if (len > MAX_LENGTH) fail(&r, RV_E_UNSUPPORTED, "it is longer than 16384 bytes");
    item *all = r.st ? NULL : alternatives(&r);
    if (!r.st && r.s < r.end) fail(&r, RV_E_CONFIG, "a ) without its group");
    side edge = whole ? EDGE : OPEN;
    if (!r.st) *out = lower(&r, all, edge, edge);
    if (!r.st) rvi_rx_try(p, *out);
    rvi_arena_deinit(&r.arena);
    return r.st ? r.st : rvi_rxs_check(p, "regular expression", err);
}
