/* gbnf.c - grammars in the notation of llama.cpp. Rules that lead back to themselves stay rules;
 * all others become terminals, so that most of a text is read by the lexer alone.
 *
 * Beyond llama.cpp's:
 *   %json {...}         a JSON value that satisfies the schema
 *   %other {...}        the same, or nothing where no value does
 *   %without "a", "b"   any text in which none of these occurs
 *   %regex "..."        what the expression matches
 *   %text "end" {...}   a text that, as a JSON string, satisfies the schema, without the end in it
 *   %bare "end" {...}   the same, but nothing that looks like JSON of another type
 * What a rule named "ruvllm-thinking" reads is told apart (rvi_grammar_thinks). Where there is a
 * rule "ruvllm-start", it is the whole text, and not "root". */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/rules.h"
#include "grammar/rx_parse.h"

typedef enum kind { TERMINAL, REFERENCE, SEQUENCE, CHOICE, REPEAT, VALUE } kind;

typedef struct expr expr;
struct expr {
    kind kind;
    uint32_t value; /* language, rule or node */
    uint32_t min, max;
    expr *first, *next;
};

typedef struct named {
    const char *name;
    size_t len;
    expr *body;   /* NULL: not defined (yet) */
    int state;    /* of the search for circles: 0 not begun, 1 in progress, 2 done */
    bool circle;  /* it leads back to itself, or to a rule that does */
    rvi_rx rx;    /* otherwise: its language */
    uint32_t out; /* circle: its number in the result */
    bool emitted;
} named;

typedef struct parser {
    rvi_values *values;
    rvi_rxs *p;
    rvi_rules *r;
    rvi_arena *kept; /* of the schemas: as long as the grammar */
    const char *start, *s, *end;
    rvi_arena arena;
    named *rules;
    uint32_t n_rules, cap_rules;
    int depth;
    rv_status st;
    rv_error *err;
} parser;

enum {
    MAX_RULES = 20000,
    MAX_NESTING = 100,
    MAX_DEPTH_OF_RULES = 500,
    MAX_BYTES = 32 << 20,
    MAX_COPIES = 2000
};

static void *fail(parser *g, rv_status st, const char *why)
{
    size_t line = 1;
    for (const char *c = g->start; c < RVI_MIN(g->s, g->end); c++) line += *c == '\n';
    if (!g->st) g->st = rvi_error(g->err, st, "grammar: line %zu: %s", line, why);
    return NULL;
}

static void *nomem(parser *g)
{
    if (!g->st) g->st = rvi_nomem(g->err, "grammar");
    return NULL;
}

static expr *make(parser *g, kind k, uint32_t value)
{
    expr *e = g->st ? NULL : rvi_arena_alloc(&g->arena, 1, sizeof *e);
    if (!e) return nomem(g);
    e->kind = k;
    e->value = value;
    return e;
}

/* ---- reading ---- */

static void skip(parser *g, bool lines)
{
    while (g->s < g->end) {
        char c = *g->s;
        if (c == '#') {
            while (g->s < g->end && *g->s != '\n' && *g->s != '\r') g->s++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->s++;
        } else {
            return;
        }
    }
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static uint32_t rule_named(parser *g)
{
    const char *name = g->s;
    while (g->s < g->end && word_char(*g->s)) g->s++;
    size_t len = (size_t)(g->s - name);
    if (!len) fail(g, RV_E_CONFIG, "a name is expected");
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].len == len && !memcmp(g->rules[i].name, name, len)) return i;
    if (g->n_rules == MAX_RULES) fail(g, RV_E_UNSUPPORTED, "more than 20000 rules");
    if (g->n_rules == g->cap_rules && !g->st) {
        uint32_t cap = g->cap_rules ? g->cap_rules * 2 : 32;
        named *more = rvi_realloc_array(g->rules, cap, sizeof *more);
        if (!more) nomem(g);
        if (more) g->rules = more;
        if (more) g->cap_rules = cap;
    }
    if (g->st) return 0;
    g->rules[g->n_rules] = (named){.name = name, .len = len};
    return g->n_rules++;
}

static uint32_t hex(parser *g, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        char c = g->s < g->end ? *g->s++ : 0;
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0) {
            fail(g, RV_E_CONFIG, "a hexadecimal digit is expected");
            return 0;
        }
        v = v << 4 | (uint32_t)d;
    }
    return v;
}

static uint32_t character(parser *g)
{
    uint32_t cp;
    if (g->s == g->end) return fail(g, RV_E_CONFIG, "the grammar ends too early"), 0;
    if (*g->s != '\\') {
        g->s += rvi_utf8_decode(g->s, (size_t)(g->end - g->s), &cp, NULL);
        return cp;
    }
    g->s++;
    switch (g->s < g->end ? *g->s++ : 0) {
    case 'x': return hex(g, 2);
    case 'u': return hex(g, 4);
    case 'U':
        cp = hex(g, 8);
        return cp <= RVI_RX_LAST ? cp : (fail(g, RV_E_CONFIG, "no character"), 0u);
    case 't': return '\t';
    case 'r': return '\r';
    case 'n': return '\n';
    case '\\':
    case '"':
    case '[':
    case ']': return (unsigned char)g->s[-1];
    default: fail(g, RV_E_CONFIG, "an unknown escape"); return 0;
    }
}

static expr *literal(parser *g)
{
    expr *seq = make(g, SEQUENCE, 0), **tail = seq ? &seq->first : NULL;
    while (!g->st && g->s < g->end && *g->s != '"') {
        expr *e = make(g, TERMINAL, rvi_rx_one(g->p, character(g)));
        if (!e) return NULL;
        *tail = e;
        tail = &e->next;
    }
    if (!g->st && g->s == g->end) return fail(g, RV_E_CONFIG, "a text without its closing quote");
    g->s++;
    return g->st ? NULL : seq;
}

static expr *class_of(parser *g)
{
    enum { MOST = 1024 };
    rvi_rx_range ranges[MOST], gaps[MOST + 1];
    size_t n = 0, k = 0;
    bool invert = g->s < g->end && *g->s == '^';
    if (invert) g->s++;
    while (!g->st && g->s < g->end && *g->s != ']') {
        uint32_t first = character(g), last = first;
        if (g->end - g->s > 1 && g->s[0] == '-' && g->s[1] != ']') {
            g->s++;
            last = character(g);
        }
        if (n == MOST || last < first) return fail(g, RV_E_CONFIG, "a bad range");
        ranges[n++] = (rvi_rx_range){first, last};
    }
    if (!g->st && g->s == g->end) return fail(g, RV_E_CONFIG, "a class without its ]");
    g->s++;
    if (g->st) return NULL;
    if (!invert) return make(g, TERMINAL, rvi_rx_set(g->p, ranges, n));
    for (size_t i = 1; i < n; i++) /* by their first characters */
        for (size_t j = i; j && ranges[j].first < ranges[j - 1].first; j--) {
            rvi_rx_range swap = ranges[j];
            ranges[j] = ranges[j - 1];
            ranges[j - 1] = swap;
        }
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].first > from) gaps[k++] = (rvi_rx_range){from, ranges[i].first - 1};
        from = RVI_MAX(from, ranges[i].last + 1);
    }
    if (from <= RVI_RX_LAST) gaps[k++] = (rvi_rx_range){from, RVI_RX_LAST};
    return make(g, TERMINAL, rvi_rx_set(g->p, gaps, k));
}

/* Where the JSON object that begins at s ends: behind its last brace, or at the end of the text. */
static const char *object_end(const char *s, const char *end)
{
    bool quoted = false;
    int depth = 0;
    for (; s < end; s++) {
        if (quoted) {
            quoted = *s != '"';
            s += *s == '\\' && s + 1 < end;
            continue;
        }
        quoted = *s == '"';
        depth += (*s == '{') - (*s == '}');
        if (*s == '}' && !depth) return s + 1;
    }
    return end;
}

/* Everything of the schema is looked at now: a later one has its own root. */
static rvi_node json_node(parser *g, bool *none)
{
    rvi_values *v = g->values;
    const rvi_json *schema;
    skip(g, false);
    size_t len = (size_t)(object_end(g->s, g->end) - g->s);
    const char *copy = rvi_arena_strndup(g->kept, g->s, len); /* numbers point into it */
    if (!copy) return nomem(g), RVI_NEVER;
    g->st = rvi_json_parse(&schema, copy, len, g->kept, "grammar: %json", g->err);
    if (g->st) return RVI_NEVER;
    v->err = g->err;
    v->nested_ids = false;
    rvi_schema_survey(v, schema);
    rvi_node node = rvi_node_schema(v, schema);
    g->st = rvi_values_close(v, node, g->err);
    if (none) *none = !g->st && !v->nodes[node].inhabited;
    if (!none && !g->st && !v->nodes[node].inhabited)
        g->st = rvi_error(g->err, RV_E_GENERATION, "#: no value satisfies the schema");
    g->s += len;
    return node;
}

/* A text in quotes as UTF-8. */
static void quoted(parser *g, rvi_buf *out)
{
    skip(g, false);
    if (g->s == g->end || *g->s != '"') {
        fail(g, RV_E_CONFIG, "a text is expected");
        return;
    }
    for (g->s++; !g->st && g->s < g->end && *g->s != '"';) {
        char bytes[4];
        size_t n = rvi_utf8_encode(character(g), bytes);
        if (!rvi_buf_append(out, bytes, n)) nomem(g);
    }
    if (!g->st && g->s == g->end) fail(g, RV_E_CONFIG, "a text without its closing quote");
    g->s++;
}

/* All texts in which this one occurs. */
static rvi_rx around(parser *g, const rvi_buf *text)
{
    rvi_rx rx = rvi_rx_literal(g->p, text->data ? text->data : "", text->len);
    return rvi_rx_cat(g->p, RVI_RX_ALL, rvi_rx_cat(g->p, rx, RVI_RX_ALL));
}

static expr *without(parser *g)
{
    rvi_rx any = RVI_RX_NONE;
    for (bool more = true; more && !g->st; g->s += more) {
        rvi_buf text = {0};
        quoted(g, &text);
        any = rvi_rx_or(g->p, any, around(g, &text));
        rvi_buf_deinit(&text);
        skip(g, false);
        more = !g->st && g->s < g->end && *g->s == ',';
    }
    return make(g, TERMINAL, rvi_rx_not(g->p, any));
}

static expr *regex(parser *g)
{
    rvi_buf text = {0};
    rvi_rx rx = RVI_RX_NONE;
    quoted(g, &text);
    if (!g->st) g->st = rvi_rx_parse(g->p, text.data ? text.data : "", text.len, true, &rx, g->err);
    rvi_buf_deinit(&text);
    if (!g->st && !rvi_rx_live(g->p, rx))
        g->st = rvi_error(g->err, RV_E_CONFIG, "regular expression: no text matches");
    return make(g, TERMINAL, rx);
}

/* bare: what begins like a number, a list or an object, and the words, are left to JSON. */
static expr *plain_text(parser *g, bool bare)
{
    static const char json_like[] = "(null|true|false|[-0-9\\[{][^]*)";
    rvi_buf end = {0};
    rvi_rx rx = RVI_RX_NONE, like = RVI_RX_NONE;
    quoted(g, &end);
    rvi_node node = g->st ? RVI_NEVER : json_node(g, NULL);
    const rvi_form *f = g->st ? NULL : rvi_values_form(g->values, node);
    if (f) rx = rvi_rx_and(g->p, f->string, rvi_rx_not(g->p, around(g, &end)));
    rvi_buf_deinit(&end);
    if (f && bare) {
        g->st = rvi_rx_parse(g->p, json_like, strlen(json_like), true, &like, g->err);
        rx = rvi_rx_and(g->p, rx, rvi_rx_not(g->p, like));
    }
    return make(g, TERMINAL, rx);
}

static bool keyword(parser *g, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(g->end - g->s) < len || memcmp(g->s, word, len) != 0) return false;
    g->s += len;
    return true;
}

static expr *choice(parser *g, bool nested);

static expr *atom(parser *g)
{
    char c = *g->s;
    expr *e;
    if (c == '"') return g->s++, literal(g);
    if (c == '[') return g->s++, class_of(g);
    if (c == '.') return g->s++, make(g, TERMINAL, RVI_RX_CHAR);
    if (keyword(g, "%json")) {
        rvi_node node = json_node(g, NULL);
        return make(g, VALUE, node);
    }
    if (keyword(g, "%other")) {
        bool none = false;
        rvi_node node = json_node(g, &none);
        return none ? make(g, TERMINAL, RVI_RX_NONE) : make(g, VALUE, node);
    }
    if (keyword(g, "%text")) return plain_text(g, false);
    if (keyword(g, "%bare")) return plain_text(g, true);
    if (keyword(g, "%regex")) return regex(g);
    if (keyword(g, "%without")) return without(g);
    if (word_char(c)) return make(g, REFERENCE, rule_named(g));
    if (c != '(') return NULL;
    g->s++;
    skip(g, true);
    if (++g->depth > MAX_NESTING) return fail(g, RV_E_UNSUPPORTED, "nested too deeply");
    e = choice(g, true);
    g->depth--;
    if (!g->st && (g->s == g->end || *g->s != ')')) fail(g, RV_E_CONFIG, "a ) is missing");
    g->s++;
    return g->st ? NULL : e;
}

static uint32_t count(parser *g)
{
    uint32_t n = 0;
    const char *first = g->s;
    for (; g->s < g->end && *g->s >= '0' && *g->s <= '9'; g->s++)
        n = n > 1000000 ? n : n * 10 + (uint32_t)(*g->s - '0');
    if (g->s == first) fail(g, RV_E_CONFIG, "a number is expected");
    return n;
}

/* * + ? {m} {m,} {m,n} {,n} */
static bool repetition(parser *g, uint32_t *min, uint32_t *max)
{
    char c = g->s < g->end ? *g->s : 0;
    if (!c || !strchr("*+?{", c)) return false;
    g->s++;
    *min = c == '+';
    *max = c == '?' ? 1 : RVI_RX_FOREVER;
    if (c != '{') return true;
    skip(g, false);
    if (g->s < g->end && *g->s != ',') *max = *min = count(g);
    skip(g, false);
    if (g->s < g->end && *g->s == ',') {
        g->s++;
        skip(g, false);
        *max = g->s < g->end && *g->s == '}' ? RVI_RX_FOREVER : count(g);
        skip(g, false);
    }
    if (g->s == g->end || *g->s != '}') fail(g, RV_E_CONFIG, "a } is missing");
    g->s++;
    if (*min > *max) fail(g, RV_E_CONFIG, "limits out of order");
    return !g->st;
}

static expr *sequence(parser *g, bool nested)
{
    expr *seq = make(g, SEQUENCE, 0), **tail = seq ? &seq->first : NULL;
    uint32_t min, max;
    while (!g->st && g->s < g->end) {
        expr *e = atom(g);
        if (!e) break;
        skip(g, nested);
        while (!g->st && repetition(g, &min, &max)) {
            expr *rep = make(g, REPEAT, 0);
            if (!rep) return NULL;
            rep->first = e;
            rep->min = min;
            rep->max = max;
            e = rep;
            skip(g, nested);
        }
        *tail = e;
        tail = &e->next;
    }
    return g->st ? NULL : seq;
}

static expr *choice(parser *g, bool nested)
{
    expr *alt = make(g, CHOICE, 0), **tail = alt ? &alt->first : NULL;
    while (!g->st) {
        expr *seq = sequence(g, nested);
        if (!seq) return NULL;
        *tail = seq;
        tail = &seq->next;
        if (g->s == g->end || *g->s != '|') break;
        g->s++;
        skip(g, true);
    }
    return g->st ? NULL : alt;
}

static void read_rules(parser *g)
{
    skip(g, true);
    while (!g->st && g->s < g->end) {
        uint32_t rule = rule_named(g);
        skip(g, false);
        if (!g->st && (g->end - g->s < 3 || memcmp(g->s, "::=", 3)))
            fail(g, RV_E_CONFIG, "::= is expected");
        if (g->st) return;
        g->s += 3;
        skip(g, true);
        expr *body = choice(g, false);
        if (g->st) return;
        if (g->rules[rule].body) fail(g, RV_E_CONFIG, "a rule is defined twice");
        g->rules[rule].body = body;
        if (g->s < g->end && *g->s != '\n' && *g->s != '\r')
            fail(g, RV_E_CONFIG, "the rule should end here");
        skip(g, true);
    }
}

/* ---- which rules lead back to themselves, or to JSON: these are no terminals ---- */

static bool leads_back(parser *g, uint32_t rule);

static bool is_named(const named *n, const char *name)
{
    return n->len == strlen(name) && !memcmp(n->name, name, n->len);
}

/* A terminal of its own, wherever it is used: what it reads is told apart. */
static bool is_thinking(const parser *g, const expr *e)
{
    return e->kind == REFERENCE && is_named(&g->rules[e->value], "ruvllm-thinking");
}

static bool expr_leads_back(parser *g, const expr *e)
{
    bool back =
        e->kind == VALUE || (e->kind == REFERENCE && leads_back(g, e->value)) || is_thinking(g, e);
    for (const expr *c = e->first; c; c = c->next) back = expr_leads_back(g, c) || back;
    return back;
}

static bool leads_back(parser *g, uint32_t rule)
{
    named *n = &g->rules[rule];
    if (n->state == 1) return true;
    if (n->state == 2 || g->st) return n->circle;
    if (!n->body) {
        g->st = rvi_error(g->err, RV_E_CONFIG, "grammar: the rule '%.*s' is not defined",
                          (int)RVI_MIN(n->len, (size_t)100), n->name);
        return false;
    }
    if (++g->depth > MAX_DEPTH_OF_RULES)
        return fail(g, RV_E_UNSUPPORTED, "rules nested too deeply"), false;
    n->state = 1;
    bool back = expr_leads_back(g, n->body);
    g->depth--;
    n->state = 2;
    return n->circle = back;
}

/* ---- languages ---- */

static rvi_rx language(parser *g, const expr *e);

/* All of a choice at once: one by one, every part would be compared with all before it. */
static rvi_rx language_of_choice(parser *g, const expr *e)
{
    size_t n = 0, k = 0;
    for (const expr *c = e->first; c; c = c->next) n++;
    rvi_rx *list = g->st ? NULL : rvi_alloc_array(n + 1, sizeof *list);
    if (!list) return nomem(g), RVI_RX_NONE;
    for (const expr *c = e->first; c; c = c->next) list[k++] = language(g, c);
    rvi_rx rx = rvi_rx_or_all(g->p, list, n);
    rvi_free(list);
    return rx;
}

static rvi_rx language(parser *g, const expr *e)
{
    rvi_rx rx = RVI_RX_EPS;
    switch (e->kind) {
    case TERMINAL: return e->value;
    case REFERENCE:
        if (g->rules[e->value].state != 3) {
            rx = language(g, g->rules[e->value].body);
            g->rules[e->value].rx = rx;
            g->rules[e->value].state = 3;
        }
        return g->rules[e->value].rx;
    case REPEAT: return rvi_rx_repeat(g->p, language(g, e->first), e->min, e->max);
    case SEQUENCE:
        for (const expr *c = e->first; c; c = c->next) rx = rvi_rx_cat(g->p, rx, language(g, c));
        return rx;
    case CHOICE: return language_of_choice(g, e);
    case VALUE: break;
    }
    return RVI_RX_NONE;
}

static bool circular(const parser *g, const expr *e)
{
    if (e->kind == VALUE) return true;
    if (e->kind == REFERENCE) return g->rules[e->value].circle;
    for (const expr *c = e->first; c; c = c->next)
        if (is_thinking(g, c) || circular(g, c)) return true;
    return false;
}

/* ---- rules of the result ---- */

static bool room(parser *g, void *array, uint32_t *cap, uint32_t need, size_t size)
{
    void **at = array;
    if (need <= *cap) return true;
    uint32_t larger = RVI_MAX(*cap * 2, need + 32);
    if (larger > 1 << 22) {
        if (!g->st)
            g->st = rvi_error(g->err, RV_E_TOO_LONG,
                              "grammar: its rules have too many parts (repetitions inside each "
                              "other?)");
        return false;
    }
    void *more = rvi_realloc_array(*at, larger, size);
    if (!more) return nomem(g), false;
    *at = more;
    *cap = larger;
    return true;
}

/* Items of alternatives are put together here and moved when the alternative is complete, because
 * rules of their own come in between. */
typedef struct row {
    rvi_item *items;
    uint32_t n, cap;
} row;

static void put(parser *g, row *to, rvi_item_kind what, uint32_t value)
{
    if (!room(g, &to->items, &to->cap, to->n + 1, sizeof *to->items)) return;
    to->items[to->n++] = (rvi_item){.kind = what, .value = value};
}

static uint32_t new_rule(parser *g)
{
    rvi_rules *r = g->r;
    if (!room(g, &r->rules, &r->cap_rules, r->n_rules + 1, sizeof *r->rules)) return 0;
    r->rules[r->n_rules] = (rvi_rule){0};
    return r->n_rules++;
}

/* The alternatives of a rule, each a row. */
static void set_rule(parser *g, uint32_t rule, row *rows, uint32_t n)
{
    rvi_rules *r = g->r;
    if (g->st || !room(g, &r->starts, &r->cap_starts, r->n_starts + n, sizeof *r->starts)) return;
    r->rules[rule] = (rvi_rule){r->n_starts, n};
    for (uint32_t i = 0; i < n; i++) {
        if (!room(g, &r->items, &r->cap_items, r->n_items + rows[i].n + 1, sizeof *r->items))
            return;
        r->starts[r->n_starts++] = r->n_items;
        if (rows[i].n) memcpy(r->items + r->n_items, rows[i].items, rows[i].n * sizeof *r->items);
        r->n_items += rows[i].n;
        r->items[r->n_items++] = (rvi_item){.kind = RVI_ITEM_END};
    }
}

static void emit(parser *g, const expr *e, row *to);
static uint32_t emit_rule(parser *g, uint32_t rule);

static uint32_t emit_choice(parser *g, const expr *e, uint32_t rule)
{
    uint32_t n = 0, k = 0;
    for (const expr *c = e->first; c; c = c->next) n++;
    row *rows = g->st ? NULL : rvi_zalloc_array(n + 1, sizeof *rows);
    if (!rows) return nomem(g), 0;
    for (const expr *c = e->first; c && !g->st; c = c->next) emit(g, c, &rows[k++]);
    set_rule(g, rule, rows, k);
    for (uint32_t i = 0; i < n; i++) rvi_free(rows[i].items);
    rvi_free(rows);
    return rule;
}

/* x{m,n}: m times x, then a rule for the rest: any number of x, or one less each time. */
static void emit_repeat(parser *g, const expr *e, row *to)
{
    bool forever = e->max == RVI_RX_FOREVER;
    if (e->min > MAX_COPIES || (!forever && e->max > MAX_COPIES)) {
        fail(g, RV_E_UNSUPPORTED, "more than 2000 repetitions of a rule that leads back to itself");
        return;
    }
    for (uint32_t i = 0; i < e->min && !g->st; i++) emit(g, e->first, to);
    uint32_t more = 0;
    for (uint32_t i = forever ? 1 : e->max - e->min; i && !g->st; i--) {
        uint32_t rule = new_rule(g);
        row rows[2] = {{0}};
        emit(g, e->first, &rows[0]);
        if (forever) put(g, &rows[0], RVI_ITEM_RULE, rule);
        if (!forever && more) put(g, &rows[0], RVI_ITEM_RULE, more);
        set_rule(g, rule, rows, 2); /* the second is empty */
        rvi_free(rows[0].items);
        more = rule;
    }
    if (more) put(g, to, RVI_ITEM_RULE, more);
}

static void emit(parser *g, const expr *e, row *to)
{
    if (g->st) return;
    if (!circular(g, e)) {
        rvi_rx rx = language(g, e);
        rvi_rx_try(g->p, rx);
        put(g, to, RVI_ITEM_TERMINAL, rx);
        if (to->n) to->items[to->n - 1].thinking = is_thinking(g, e);
        return;
    }
    switch (e->kind) {
    case TERMINAL: break;
    case VALUE: put(g, to, RVI_ITEM_VALUE, e->value); break;
    case REFERENCE: put(g, to, RVI_ITEM_RULE, emit_rule(g, e->value)); break;
    case REPEAT: emit_repeat(g, e, to); break;
    case CHOICE: put(g, to, RVI_ITEM_RULE, emit_choice(g, e, new_rule(g))); break;
    case SEQUENCE:
        for (const expr *c = e->first; c; c = c->next) emit(g, c, to);
        break;
    }
}

static uint32_t emit_rule(parser *g, uint32_t rule)
{
    if (g->rules[rule].emitted) return g->rules[rule].out;
    g->rules[rule].emitted = true;
    uint32_t out = g->rules[rule].out = new_rule(g);
    if (++g->depth > MAX_DEPTH_OF_RULES)
        return fail(g, RV_E_UNSUPPORTED, "rules nested too deeply"), 0;
    emit_choice(g, g->rules[rule].body, out);
    g->depth--;
    return out;
}

rv_status rvi_rules_gbnf(rvi_rules *r, rvi_values *v, rvi_arena *kept, const char *text, size_t len,
                         rv_error *err)
{
    parser g = {.values = v, .p = &v->rxs, .r = r, .kept = kept, .start = text, .s = text};
    g.end = text + len;
    g.err = err;
    g.arena.max = MAX_BYTES;
    read_rules(&g);
    uint32_t root = 0;
    while (root < g.n_rules && !is_named(&g.rules[root], "ruvllm-start")) root++;
    for (uint32_t i = 0; root == g.n_rules && i < g.n_rules; i++)
        if (is_named(&g.rules[i], "root")) root = i;
    if (!g.st && root == g.n_rules)
        g.st = rvi_error(err, RV_E_CONFIG, "grammar: there is no rule 'root'");
    g.depth = 0;
    for (uint32_t i = 0; i < g.n_rules && !g.st; i++) leads_back(&g, i);
    row start = {0};
    g.depth = 0;
    expr whole = {.kind = REFERENCE, .value = root};
    if (!g.st) {
        uint32_t first = new_rule(&g);
        emit(&g, &whole, &start);
        set_rule(&g, first, &start, 1);
        if (!g.st) g.st = rvi_rules_check(r, g.p, err);
        /* how the machine begins */
        row begin = {0};
        put(&g, &begin, RVI_ITEM_RULE, first);
        set_rule(&g, new_rule(&g), &begin, 1);
        rvi_free(begin.items);
    }
    rvi_free(start.items);
    rvi_free(g.rules);
    rvi_arena_deinit(&g.arena);
    return g.st ? g.st : rvi_rxs_check(g.p, "grammar", err);
}
