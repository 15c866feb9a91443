/* jinja_parse.c - expressions, by recursive descent with Jinja's precedence.
 *
 * From loose to tight: inline if, or, and, not, comparisons, + -, ~, * / // %, unary sign, **
 * (whose left side takes the sign: -2 ** 2 is 4), then attributes, subscripts and calls, then
 * filters and tests. */
#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"
#include "template/jinja_ast.h"

/* ---- helpers of both halves of the parser ---- */

bool rvi_jparse_fail(rvi_jparser *p, uint32_t line, const char *fmt, ...)
{
    char text[256];
    rv_error cause;
    if (p->status) return false;
    va_list args;
    va_start(args, fmt);
    rvi_errorv(&cause, RV_E_TOKENIZATION, fmt, args);
    va_end(args);
    size_t n = strlen(cause.text);
    n = RVI_MIN(n, sizeof text - 1);
    n -= rvi_utf8_incomplete(cause.text, n);
    memcpy(text, cause.text, n);
    text[n] = 0;
    p->status = rvi_error(p->err, RV_E_TOKENIZATION, "chat template, line %u: %s", line, text);
    return false;
}

bool rvi_jparse_advance(rvi_jparser *p)
{
    if (p->status) return false;
    if (p->has_ahead) {
        p->cur = p->ahead;
        p->has_ahead = false;
        return true;
    }
    p->status = rvi_jlexer_next(&p->lex, &p->cur);
    return !p->status;
}

static bool look(rvi_jparser *p, rvi_jtoken *out)
{
    if (p->status) return false;
    if (!p->has_ahead) {
        p->status = rvi_jlexer_next(&p->lex, &p->ahead);
        if (p->status) return false;
        p->has_ahead = true;
    }
    *out = p->ahead;
    return true;
}

const char *rvi_jparse_describe(const rvi_jtoken *t, char *space, size_t cap)
{
    if (t->kind != RVI_JT_NAME) return rvi_jtoken_name(t->kind);
    size_t n = RVI_MIN(t->len, cap - 1);
    n -= rvi_utf8_incomplete(t->text, n);
    memcpy(space, t->text, n);
    space[n] = 0;
    return space;
}

bool rvi_jparse_expect(rvi_jparser *p, rvi_jtoken_kind kind)
{
    char space[64];
    if (p->status) return false;
    if (p->cur.kind == kind) return rvi_jparse_advance(p);
    if (p->cur.kind == RVI_JT_EOF)
        return rvi_jparse_fail(p, p->cur.line, "unexpected end of template, expected '%s'.",
                               rvi_jtoken_name(kind));
    return rvi_jparse_fail(p, p->cur.line, "expected token '%s', got '%s'", rvi_jtoken_name(kind),
                           rvi_jparse_describe(&p->cur, space, sizeof space));
}

bool rvi_jparse_is_name(const rvi_jtoken *t, const char *name)
{
    return t->kind == RVI_JT_NAME && t->len == strlen(name) && !memcmp(t->text, name, t->len);
}

bool rvi_jparse_skip_name(rvi_jparser *p, const char *name)
{
    return !p->status && rvi_jparse_is_name(&p->cur, name) && rvi_jparse_advance(p);
}

void *rvi_jparse_alloc(rvi_jparser *p, size_t count, size_t size)
{
    if (p->status) return NULL;
    void *mem = rvi_arena_alloc(p->arena, count ? count : 1, size);
    if (!mem) p->status = rvi_nomem(p->err, "chat template");
    return mem;
}

static size_t hash_name(const char *text, size_t len)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static bool grow_names(rvi_jparser *p)
{
    size_t cap = p->cap_names ? p->cap_names * 2 : 256;
    rvi_jstr **fresh = rvi_zalloc_array(cap, sizeof *fresh);
    if (!fresh) {
        p->status = rvi_nomem(p->err, "chat template");
        return false;
    }
    for (size_t i = 0; i < p->cap_names; i++) {
        rvi_jstr *s = p->names[i];
        if (!s) continue;
        size_t k = hash_name(s->data, s->len) & (cap - 1);
        while (fresh[k]) k = (k + 1) & (cap - 1);
        fresh[k] = s;
    }
    rvi_free(p->names);
    p->names = fresh;
    p->cap_names = cap;
    return true;
}

static rvi_jstr *new_str(rvi_jparser *p, const char *text, size_t len)
{
    rvi_jstr *s = rvi_jparse_alloc(p, 1, sizeof *s);
    if (s) *s = (rvi_jstr){.data = text, .len = len, .chars = rvi_utf8_count(text, len)};
    return s;
}

rvi_jstr *rvi_jparse_intern(rvi_jparser *p, const char *text, size_t len)
{
    if (p->status || (2 * p->n_names >= p->cap_names && !grow_names(p))) return NULL;
    size_t k = hash_name(text, len) & (p->cap_names - 1);
    for (; p->names[k]; k = (k + 1) & (p->cap_names - 1))
        if (p->names[k]->len == len && !memcmp(p->names[k]->data, text, len)) return p->names[k];
    if (p->n_names >= RVI_JINJA_MAX_NAMES) {
        rvi_jparse_fail(p, p->cur.line, "more than %d different names", RVI_JINJA_MAX_NAMES);
        return NULL;
    }
    rvi_jstr *s = new_str(p, text, len);
    if (!s) return NULL;
    p->names[k] = s;
    p->n_names++;
    return s;
}

rvi_jnode *rvi_jparse_node(rvi_jparser *p, rvi_jnode_kind kind, uint32_t line)
{
    rvi_jnode *n = rvi_jparse_alloc(p, 1, sizeof *n);
    if (!n) return NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
    return n;
}

bool rvi_jnode_push(rvi_jparser *p, rvi_jnode_vec *v, rvi_jnode *n)
{
    if (p->status) return false;
    if (v->count == v->cap) {
        uint32_t cap = v->cap ? v->cap * 2 : 4;
        rvi_jnode **items = rvi_jparse_alloc(p, cap, sizeof(rvi_jnode *));
        if (!items) return false;
        if (v->count) memcpy(items, v->items, v->count * sizeof(rvi_jnode *));
        v->items = items;
        v->cap = cap;
    }
    v->items[v->count++] = n;
    return true;
}

rvi_jnodes rvi_jnode_finish(const rvi_jnode_vec *v)
{
    return (rvi_jnodes){.items = v->items, .count = v->count};
}

/* ---- heights ---- */

static bool under(rvi_jparser *p, rvi_jnode *parent, const rvi_jnode *child)
{
    if (p->status || !parent) return false;
    if (!child) return true;
    if (child->height >= RVI_JINJA_MAX_HEIGHT)
        return rvi_jparse_fail(p, child->line, "expression too complex");
    if (parent->height <= child->height) parent->height = (uint16_t)(child->height + 1);
    return true;
}

static bool under_all(rvi_jparser *p, rvi_jnode *parent, rvi_jnodes list)
{
    for (uint32_t i = 0; i < list.count; i++)
        if (!under(p, parent, list.items[i])) return false;
    return !p->status && parent;
}

static rvi_jnode *with_two(rvi_jparser *p, rvi_jnode_kind kind, uint32_t line, rvi_jnode *a,
                           rvi_jnode *b)
{
    rvi_jnode *n = rvi_jparse_node(p, kind, line);
    if (!under(p, n, a) || !under(p, n, b)) return NULL;
    n->a = a;
    n->b = b;
    return n;
}

static bool deeper(rvi_jparser *p)
{
    if (p->expr_depth >= RVI_JINJA_MAX_HEIGHT)
        return rvi_jparse_fail(p, p->cur.line, "expression nested too deeply");
    p->expr_depth++;
    return true;
}

/* ---- primaries ---- */

static rvi_jnode *parse_or(rvi_jparser *p);
static rvi_jnode *parse_unary(rvi_jparser *p, bool with_filter);

static rvi_jnode *constant(rvi_jparser *p, uint32_t line, rvi_jv value)
{
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_CONST, line);
    if (n) n->value = value;
    return n;
}

static rvi_jnode *parse_name(rvi_jparser *p, bool with_namespace)
{
    rvi_jtoken t = p->cur;
    if (!rvi_jparse_advance(p)) return NULL;
    if (rvi_jparse_is_name(&t, "true") || rvi_jparse_is_name(&t, "True"))
        return constant(p, t.line, rvi_jv_bool(true));
    if (rvi_jparse_is_name(&t, "false") || rvi_jparse_is_name(&t, "False"))
        return constant(p, t.line, rvi_jv_bool(false));
    if (rvi_jparse_is_name(&t, "none") || rvi_jparse_is_name(&t, "None"))
        return constant(p, t.line, RVI_JV(NONE));
    bool nsref = with_namespace && p->cur.kind == RVI_JT_DOT;
    rvi_jnode *n = rvi_jparse_node(p, nsref ? RVI_JN_NSREF : RVI_JN_NAME, t.line);
    if (!n || !(n->name = rvi_jparse_intern(p, t.text, t.len)) || !nsref) return n;
    if (!rvi_jparse_advance(p)) return NULL;
    t = p->cur;
    if (!rvi_jparse_expect(p, RVI_JT_NAME)) return NULL;
    n->attr = rvi_jparse_intern(p, t.text, t.len);
    return n;
}

static rvi_jnode *parse_string(rvi_jparser *p)
{
    rvi_jtoken t = p->cur;
    if (!rvi_jparse_advance(p)) return NULL;
    while (p->cur.kind == RVI_JT_STRING) { /* neighbours join */
        char *both = rvi_jparse_alloc(p, t.len + p->cur.len + 1, 1);
        if (!both) return NULL;
        if (t.len) memcpy(both, t.text, t.len);
        if (p->cur.len) memcpy(both + t.len, p->cur.text, p->cur.len);
        t.text = both;
        t.len += p->cur.len;
        if (!rvi_jparse_advance(p)) return NULL;
    }
    rvi_jstr *s = new_str(p, t.text, t.len);
    return s ? constant(p, t.line, (rvi_jv){.kind = RVI_J_STR, .as.str = s}) : NULL;
}

static rvi_jnode *parse_list(rvi_jparser *p)
{
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_LIST, p->cur.line);
    rvi_jnode_vec items = {0};
    if (!n || !rvi_jparse_advance(p)) return NULL;
    while (p->cur.kind != RVI_JT_RBRACKET) {
        if (items.count && !rvi_jparse_expect(p, RVI_JT_COMMA)) return NULL;
        if (p->cur.kind == RVI_JT_RBRACKET) break;
        rvi_jnode *item = rvi_jparse_expression(p);
        if (!item || !rvi_jnode_push(p, &items, item)) return NULL;
    }
    n->list = rvi_jnode_finish(&items);
    return rvi_jparse_expect(p, RVI_JT_RBRACKET) && under_all(p, n, n->list) ? n : NULL;
}

static rvi_jnode *parse_dict(rvi_jparser *p)
{
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_DICT, p->cur.line);
    rvi_jnode_vec items = {0};
    if (!n || !rvi_jparse_advance(p)) return NULL;
    while (p->cur.kind != RVI_JT_RBRACE) {
        if (items.count && !rvi_jparse_expect(p, RVI_JT_COMMA)) return NULL;
        if (p->cur.kind == RVI_JT_RBRACE) break;
        rvi_jnode *key = rvi_jparse_expression(p);
        if (!key || !rvi_jparse_expect(p, RVI_JT_COLON)) return NULL;
        rvi_jnode *value = rvi_jparse_expression(p);
        if (!value || !rvi_jnode_push(p, &items, key) || !rvi_jnode_push(p, &items, value))
            return NULL;
    }
    n->list = rvi_jnode_finish(&items);
    return rvi_jparse_expect(p, RVI_JT_RBRACE) && under_all(p, n, n->list) ? n : NULL;
}

static rvi_jnode *parse_primary(rvi_jparser *p, bool with_namespace)
{
    rvi_jtoken t = p->cur;
    rvi_jnode *n;
    if (p->status) return NULL;
    switch (t.kind) {
    case RVI_JT_NAME: return parse_name(p, with_namespace);
    case RVI_JT_STRING: return parse_string(p);
    case RVI_JT_INT:
        return rvi_jparse_advance(p) ? constant(p, t.line, rvi_jv_int(t.integer)) : NULL;
    case RVI_JT_FLOAT:
        return rvi_jparse_advance(p) ? constant(p, t.line, rvi_jv_float(t.number)) : NULL;
    case RVI_JT_LPAREN:
        if (!rvi_jparse_advance(p)) return NULL;
        n = rvi_jparse_tuple(p, RVI_JTUPLE_PARENS, NULL);
        return rvi_jparse_expect(p, RVI_JT_RPAREN) ? n : NULL;
    case RVI_JT_LBRACKET: return parse_list(p);
    case RVI_JT_LBRACE: return parse_dict(p);
    default: rvi_jparse_fail(p, t.line, "unexpected '%s'", rvi_jtoken_name(t.kind)); return NULL;
    }
}

static bool tuple_ends(const rvi_jparser *p, const char *end_name)
{
    return p->cur.kind == RVI_JT_VAR_END || p->cur.kind == RVI_JT_BLOCK_END ||
           p->cur.kind == RVI_JT_RPAREN || (end_name && rvi_jparse_is_name(&p->cur, end_name));
}

rvi_jnode *rvi_jparse_tuple(rvi_jparser *p, int flags, const char *end_name)
{
    char space[64];
    rvi_jnode_vec items = {0};
    bool is_tuple = false;
    uint32_t line = p->cur.line;
    if (!deeper(p)) return NULL;
    for (;;) {
        if (items.count && !rvi_jparse_expect(p, RVI_JT_COMMA)) return NULL;
        if (p->status) return NULL;
        if (tuple_ends(p, end_name)) break;
        rvi_jnode *item = flags & RVI_JTUPLE_SIMPLE ? parse_primary(p, flags & RVI_JTUPLE_NAMESPACE)
                          : flags & RVI_JTUPLE_NO_COND ? parse_or(p)
                                                       : rvi_jparse_expression(p);
        if (!item || !rvi_jnode_push(p, &items, item)) return NULL;
        if (p->cur.kind != RVI_JT_COMMA) break;
        is_tuple = true;
    }
    p->expr_depth--;
    if (!is_tuple && items.count) return items.items[0];
    if (!is_tuple && !(flags & RVI_JTUPLE_PARENS)) {
        rvi_jparse_fail(p, p->cur.line, "Expected an expression, got '%s'",
                        rvi_jparse_describe(&p->cur, space, sizeof space));
        return NULL;
    }
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_TUPLE, line);
    if (!n) return NULL;
    n->list = rvi_jnode_finish(&items);
    return under_all(p, n, n->list) ? n : NULL;
}

/* ---- postfix: attributes, subscripts, calls, filters, tests ---- */

static rvi_jnode *parse_subscribed(rvi_jparser *p)
{
    rvi_jnode *parts[3] = {NULL, NULL, NULL};
    uint32_t line = p->cur.line;
    if (p->cur.kind != RVI_JT_COLON) {
        parts[0] = rvi_jparse_expression(p);
        if (!parts[0] || p->cur.kind != RVI_JT_COLON) return parts[0];
    }
    if (!rvi_jparse_advance(p)) return NULL; /* the first colon */
    for (int i = 1; i < 3; i++) {
        if (i == 2) {
            if (p->cur.kind != RVI_JT_COLON) break;
            if (!rvi_jparse_advance(p)) return NULL;
        }
        if (p->cur.kind == RVI_JT_RBRACKET || p->cur.kind == RVI_JT_COMMA ||
            (i == 1 && p->cur.kind == RVI_JT_COLON))
            continue;
        if (!(parts[i] = rvi_jparse_expression(p))) return NULL;
    }
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_SLICE, line);
    if (!n || !(n->list.items = rvi_jparse_alloc(p, 3, sizeof(rvi_jnode *)))) return NULL;
    n->list.count = 3;
    memcpy(n->list.items, parts, sizeof parts);
    return under_all(p, n, n->list) ? n : NULL;
}

static rvi_jnode *parse_subscript(rvi_jparser *p, rvi_jnode *node)
{
    rvi_jtoken t = p->cur;
    rvi_jnode *n, *arg;
    if (!rvi_jparse_advance(p)) return NULL;
    if (t.kind == RVI_JT_DOT) {
        rvi_jtoken attr = p->cur;
        if (!rvi_jparse_advance(p)) return NULL;
        if (attr.kind == RVI_JT_NAME) {
            n = with_two(p, RVI_JN_GETATTR, t.line, node, NULL);
            if (n) n->name = rvi_jparse_intern(p, attr.text, attr.len);
            if (!n || !n->name) return NULL;
            n->value = (rvi_jv){.kind = RVI_J_STR, .as.str = n->name};
            return n;
        }
        if (attr.kind != RVI_JT_INT) {
            rvi_jparse_fail(p, attr.line, "expected name or number");
            return NULL;
        }
        arg = constant(p, attr.line, rvi_jv_int(attr.integer));
        return arg ? with_two(p, RVI_JN_GETITEM, t.line, node, arg) : NULL;
    }
    rvi_jnode_vec args = {0};
    while (p->cur.kind != RVI_JT_RBRACKET) {
        if (args.count && !rvi_jparse_expect(p, RVI_JT_COMMA)) return NULL;
        if (!(arg = parse_subscribed(p)) || !rvi_jnode_push(p, &args, arg)) return NULL;
    }
    if (!rvi_jparse_expect(p, RVI_JT_RBRACKET)) return NULL;
    if (args.count == 1) return with_two(p, RVI_JN_GETITEM, t.line, node, args.items[0]);
    for (uint32_t i = 0; i < args.count; i++)
        if (args.items[i]->kind == RVI_JN_SLICE) {
            rvi_jparse_fail(p, t.line, "a slice inside a tuple of subscripts is not supported");
            return NULL;
        }
    arg = rvi_jparse_node(p, RVI_JN_TUPLE, t.line);
    if (!arg) return NULL;
    arg->list = rvi_jnode_finish(&args);
    return under_all(p, arg, arg->list) ? with_two(p, RVI_JN_GETITEM, t.line, node, arg) : NULL;
}

static bool push_keyword(rvi_jparser *p, rvi_jcall *call, uint32_t *cap, rvi_jkeyword k)
{
    for (uint32_t i = 0; i < call->n_keywords; i++)
        if (call->keywords[i].name == k.name)
            return rvi_jparse_fail(p, k.value->line, "keyword argument repeated: %.*s",
                                   (int)RVI_MIN(k.name->len, (size_t)60), k.name->data);
    if (call->n_keywords >= 255)
        return rvi_jparse_fail(p, k.value->line, "too many keyword arguments");
    if (call->n_keywords == *cap) {
        uint32_t fresh = *cap ? *cap * 2 : 4;
        rvi_jkeyword *keywords = rvi_jparse_alloc(p, fresh, sizeof *keywords);
        if (!keywords) return false;
        if (*cap) memcpy(keywords, call->keywords, *cap * sizeof *keywords);
        call->keywords = keywords;
        *cap = fresh;
    }
    call->keywords[call->n_keywords++] = k;
    return true;
}

/* ( ... ) of a call, filter or test, hung under owner. */
static bool parse_call_args(rvi_jparser *p, rvi_jnode *owner)
{
    static const char invalid[] = "invalid syntax for function call expression";
    uint32_t line = p->cur.line, cap = 0;
    rvi_jnode_vec args = {0};
    rvi_jnode *value;
    rvi_jtoken next;
    rvi_jcall *call = rvi_jparse_alloc(p, 1, sizeof *call);
    if (!call || !owner || !rvi_jparse_expect(p, RVI_JT_LPAREN)) return false;
    for (bool first = true; p->cur.kind != RVI_JT_RPAREN; first = false) {
        if (!first && !rvi_jparse_expect(p, RVI_JT_COMMA)) return false;
        if (!first && p->cur.kind == RVI_JT_RPAREN) break;
        if (p->cur.kind == RVI_JT_MUL || p->cur.kind == RVI_JT_POW) {
            bool star = p->cur.kind == RVI_JT_MUL;
            if (call->dyn_keywords || (star && call->dyn_args))
                return rvi_jparse_fail(p, line, invalid);
            if (!rvi_jparse_advance(p) || !(value = rvi_jparse_expression(p))) return false;
            *(star ? &call->dyn_args : &call->dyn_keywords) = value;
        } else {
            if (p->cur.kind == RVI_JT_NAME && !look(p, &next)) return false;
            if (p->cur.kind == RVI_JT_NAME && next.kind == RVI_JT_ASSIGN) {
                if (call->dyn_keywords) return rvi_jparse_fail(p, line, invalid);
                rvi_jkeyword k = {.name = rvi_jparse_intern(p, p->cur.text, p->cur.len)};
                if (!k.name || !rvi_jparse_advance(p) || !rvi_jparse_advance(p)) return false;
                if (!(k.value = value = rvi_jparse_expression(p)) ||
                    !push_keyword(p, call, &cap, k))
                    return false;
            } else {
                if (call->dyn_args || call->dyn_keywords || call->n_keywords)
                    return rvi_jparse_fail(p, line, invalid);
                if (!(value = rvi_jparse_expression(p)) || !rvi_jnode_push(p, &args, value))
                    return false;
            }
        }
        if (!under(p, owner, value)) return false;
    }
    call->args = rvi_jnode_finish(&args);
    owner->call = call;
    return rvi_jparse_expect(p, RVI_JT_RPAREN);
}

static rvi_jnode *parse_call(rvi_jparser *p, rvi_jnode *callee)
{
    rvi_jnode *n = with_two(p, RVI_JN_CALL, p->cur.line, callee, NULL);
    return n && parse_call_args(p, n) ? n : NULL;
}

/* A name, maybe with dots, of a filter or test. */
static rvi_jstr *parse_dotted(rvi_jparser *p)
{
    char text[128];
    size_t n = 0;
    for (;;) {
        rvi_jtoken t = p->cur;
        if (!rvi_jparse_expect(p, RVI_JT_NAME)) return NULL;
        if (n + t.len + 1 >= sizeof text) {
            rvi_jparse_fail(p, t.line, "name too long");
            return NULL;
        }
        memcpy(text + n, t.text, t.len);
        n += t.len;
        if (p->cur.kind != RVI_JT_DOT) break;
        text[n++] = '.';
        if (!rvi_jparse_advance(p)) return NULL;
    }
    char *copy = rvi_jparse_alloc(p, n, 1);
    if (!copy) return NULL;
    memcpy(copy, text, n);
    return rvi_jparse_intern(p, copy, n);
}

rvi_jnode *rvi_jparse_filters(rvi_jparser *p, rvi_jnode *node, bool start_inline)
{
    while (!p->status && (p->cur.kind == RVI_JT_PIPE || start_inline)) {
        if (!start_inline && !rvi_jparse_advance(p)) return NULL;
        start_inline = false;
        rvi_jnode *n = with_two(p, RVI_JN_FILTER, p->cur.line, node, NULL);
        if (!n || !(n->name = parse_dotted(p))) return NULL;
        if (p->cur.kind == RVI_JT_LPAREN && !parse_call_args(p, n)) return NULL;
        node = n;
    }
    return p->status ? NULL : node;
}

static rvi_jnode *parse_postfix(rvi_jparser *p, rvi_jnode *node)
{
    while (node && !p->status) {
        if (p->cur.kind == RVI_JT_DOT || p->cur.kind == RVI_JT_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->cur.kind == RVI_JT_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return p->status ? NULL : node;
}

static bool starts_test_argument(const rvi_jtoken *t)
{
    if (t->kind == RVI_JT_NAME)
        return !rvi_jparse_is_name(t, "else") && !rvi_jparse_is_name(t, "or") &&
               !rvi_jparse_is_name(t, "and");
    return t->kind == RVI_JT_STRING || t->kind == RVI_JT_INT || t->kind == RVI_JT_FLOAT ||
           t->kind == RVI_JT_LBRACKET || t->kind == RVI_JT_LBRACE;
}

static rvi_jnode *parse_test(rvi_jparser *p, rvi_jnode *node)
{
    uint32_t line = p->cur.line;
    if (!rvi_jparse_advance(p)) return NULL;
    bool negated = rvi_jparse_skip_name(p, "not");
    rvi_jnode *n = with_two(p, RVI_JN_TEST, line, node, NULL);
    if (!n || !(n->name = parse_dotted(p))) return NULL;
    if (p->cur.kind == RVI_JT_LPAREN) {
        if (!parse_call_args(p, n)) return NULL;
    } else if (starts_test_argument(&p->cur)) {
        if (rvi_jparse_is_name(&p->cur, "is")) {
            rvi_jparse_fail(p, p->cur.line, "You cannot chain multiple tests with is");
            return NULL;
        }
        rvi_jnode *arg = parse_postfix(p, parse_primary(p, false));
        rvi_jnode_vec args = {0};
        if (!(n->call = rvi_jparse_alloc(p, 1, sizeof *n->call))) return NULL;
        if (!arg || !rvi_jnode_push(p, &args, arg) || !under(p, n, arg)) return NULL;
        n->call->args = rvi_jnode_finish(&args);
    }
    return negated ? with_two(p, RVI_JN_NOT, line, n, NULL) : n;
}

static rvi_jnode *parse_filter_expr(rvi_jparser *p, rvi_jnode *node)
{
    while (node && !p->status) {
        if (p->cur.kind == RVI_JT_PIPE)
            node = rvi_jparse_filters(p, node, false);
        else if (rvi_jparse_is_name(&p->cur, "is"))
            node = parse_test(p, node);
        else if (p->cur.kind == RVI_JT_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return p->status ? NULL : node;
}

/* ---- operators ---- */

static rvi_jnode *parse_unary(rvi_jparser *p, bool with_filter)
{
    rvi_jtoken t = p->cur;
    rvi_jnode *n;
    if (!deeper(p)) return NULL;
    if (t.kind == RVI_JT_SUB || t.kind == RVI_JT_ADD) {
        if (!rvi_jparse_advance(p) || !(n = parse_unary(p, false))) return NULL;
        n = with_two(p, t.kind == RVI_JT_SUB ? RVI_JN_NEG : RVI_JN_POS, t.line, n, NULL);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    if (with_filter) n = parse_filter_expr(p, n);
    p->expr_depth--;
    return n;
}

static int binary_op(rvi_jtoken_kind kind, int level)
{
    switch (kind) {
    case RVI_JT_POW: return level == 2 ? RVI_JOP_POW : -1;
    case RVI_JT_MUL: return level == 1 ? RVI_JOP_MUL : -1;
    case RVI_JT_DIV: return level == 1 ? RVI_JOP_DIV : -1;
    case RVI_JT_FLOORDIV: return level == 1 ? RVI_JOP_FLOORDIV : -1;
    case RVI_JT_MOD: return level == 1 ? RVI_JOP_MOD : -1;
    case RVI_JT_ADD: return level == 0 ? RVI_JOP_ADD : -1;
    case RVI_JT_SUB: return level == 0 ? RVI_JOP_SUB : -1;
    default: return -1;
    }
}

static rvi_jnode *parse_concat(rvi_jparser *p);

/* level 0: + -, 1: * / // %, 2: **; all from left to right. */
static rvi_jnode *parse_binary(rvi_jparser *p, int level)
{
    uint32_t line = p->cur.line;
    rvi_jnode *left = NULL;
    for (int op = -1;;) {
        rvi_jnode *right = level == 0   ? parse_concat(p)
                           : level == 1 ? parse_binary(p, 2)
                                        : parse_unary(p, true);
        if (!right) return NULL;
        if (left) {
            left = with_two(p, RVI_JN_BINARY, line, left, right);
            if (!left) return NULL;
            left->op = (uint8_t)op;
            line = p->cur.line;
        } else {
            left = right;
        }
        if ((op = binary_op(p->cur.kind, level)) < 0) return left;
        if (!rvi_jparse_advance(p)) return NULL;
    }
}

static rvi_jnode *parse_concat(rvi_jparser *p)
{
    uint32_t line = p->cur.line;
    rvi_jnode_vec items = {0};
    for (;;) {
        rvi_jnode *item = parse_binary(p, 1);
        if (!item || (p->cur.kind != RVI_JT_TILDE && !items.count)) return item;
        if (!rvi_jnode_push(p, &items, item)) return NULL;
        if (p->cur.kind != RVI_JT_TILDE) break;
        if (!rvi_jparse_advance(p)) return NULL;
    }
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_CONCAT, line);
    if (!n) return NULL;
    n->list = rvi_jnode_finish(&items);
    return under_all(p, n, n->list) ? n : NULL;
}

/* -1: the current token is no comparison; -2: failed. Eats the operator. */
static int comparison(rvi_jparser *p)
{
    int op;
    rvi_jtoken next;
    switch (p->cur.kind) {
    case RVI_JT_EQ: op = RVI_JOP_EQ; break;
    case RVI_JT_NE: op = RVI_JOP_NE; break;
    case RVI_JT_LT: op = RVI_JOP_LT; break;
    case RVI_JT_LE: op = RVI_JOP_LE; break;
    case RVI_JT_GT: op = RVI_JOP_GT; break;
    case RVI_JT_GE: op = RVI_JOP_GE; break;
    default:
        if (rvi_jparse_is_name(&p->cur, "in")) {
            op = RVI_JOP_IN;
        } else if (rvi_jparse_is_name(&p->cur, "not")) {
            if (!look(p, &next)) return -2;
            if (!rvi_jparse_is_name(&next, "in")) return -1;
            if (!rvi_jparse_advance(p)) return -2;
            op = RVI_JOP_NOT_IN;
        } else {
            return -1;
        }
    }
    return rvi_jparse_advance(p) ? op : -2;
}

static rvi_jnode *parse_compare(rvi_jparser *p)
{
    uint32_t line = p->cur.line;
    uint8_t ops[RVI_JINJA_MAX_HEIGHT];
    rvi_jnode_vec items = {0};
    rvi_jnode *first = parse_binary(p, 0);
    if (!first) return NULL;
    for (int op; (op = comparison(p)) != -1;) {
        if (op == -2) return NULL;
        if (items.count == sizeof ops) {
            rvi_jparse_fail(p, line, "expression too complex");
            return NULL;
        }
        ops[items.count] = (uint8_t)op;
        rvi_jnode *right = parse_binary(p, 0);
        if (!right || !rvi_jnode_push(p, &items, right)) return NULL;
    }
    if (!items.count) return first;
    rvi_jnode *n = with_two(p, RVI_JN_COMPARE, line, first, NULL);
    if (!n || !(n->ops = rvi_jparse_alloc(p, items.count, 1))) return NULL;
    memcpy(n->ops, ops, items.count);
    n->list = rvi_jnode_finish(&items);
    return under_all(p, n, n->list) ? n : NULL;
}

static rvi_jnode *parse_not(rvi_jparser *p)
{
    if (!rvi_jparse_is_name(&p->cur, "not")) return parse_compare(p);
    uint32_t line = p->cur.line;
    if (!deeper(p) || !rvi_jparse_advance(p)) return NULL;
    rvi_jnode *n = parse_not(p);
    p->expr_depth--;
    return n ? with_two(p, RVI_JN_NOT, line, n, NULL) : NULL;
}

static rvi_jnode *parse_and(rvi_jparser *p)
{
    uint32_t line = p->cur.line;
    rvi_jnode *left = parse_not(p);
    while (left && rvi_jparse_skip_name(p, "and")) {
        rvi_jnode *right = parse_not(p);
        left = right ? with_two(p, RVI_JN_AND, line, left, right) : NULL;
    }
    return p->status ? NULL : left;
}

static rvi_jnode *parse_or(rvi_jparser *p)
{
    uint32_t line = p->cur.line;
    rvi_jnode *left = parse_and(p);
    while (left && rvi_jparse_skip_name(p, "or")) {
        rvi_jnode *right = parse_and(p);
        left = right ? with_two(p, RVI_JN_OR, line, left, right) : NULL;
    }
    return p->status ? NULL : left;
}

rvi_jnode *rvi_jparse_expression(rvi_jparser *p)
{
    if (p->status || !deeper(p)) return NULL;
    uint32_t line = p->cur.line;
    rvi_jnode *n = parse_or(p);
    while (n && rvi_jparse_skip_name(p, "if")) {
        rvi_jnode *test = parse_or(p), *orelse = NULL;
        if (!test) return NULL;
        if (rvi_jparse_skip_name(p, "else") && !(orelse = rvi_jparse_expression(p))) return NULL;
        n = with_two(p, RVI_JN_COND, line, n, test);
        if (!n || !under(p, n, orelse)) return NULL;
        n->c = orelse;
        line = p->cur.line;
    }
    p->expr_depth--;
    return p->status ? NULL : n;
}
