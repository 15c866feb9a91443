/* jinja_stmt.c - statements: the second half of the parser, and its entry point. */
#include <string.h>

#include "template/jinja_ast.h"
#include "template/jinja.h"

enum { MAX_TEMPLATE_MEMORY = 256 << 20, MAX_PARAMS = 200 };

static bool parse_body(rvi_jparser *p, const char *const *ends, rvi_jnodes *out);

/* ---- targets of assignments ---- */

static bool can_assign(const rvi_jnode *n)
{
    if (n->kind == RVI_JN_NAME || n->kind == RVI_JN_NSREF) return true;
    if (n->kind != RVI_JN_TUPLE) return false;
    for (uint32_t i = 0; i < n->list.count; i++)
        if (!can_assign(n->list.items[i])) return false;
    return true;
}

static rvi_jnode *parse_target(rvi_jparser *p, bool with_namespace, const char *end_name)
{
    rvi_jnode *n = rvi_jparse_tuple(
        p, RVI_JTUPLE_SIMPLE | (with_namespace ? RVI_JTUPLE_NAMESPACE : 0), end_name);
    if (!n) return NULL;
    if (can_assign(n)) return n;
    rvi_jparse_fail(p, n->line, "can't assign to this expression");
    return NULL;
}

static rvi_jnode *parse_name_target(rvi_jparser *p)
{
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    rvi_jtoken t = p->cur;
    if (!rvi_jparse_expect(p, RVI_JT_NAME)) return NULL;
    for (size_t i = 0; i < RVI_COUNT(constants); i++)
        if (rvi_jparse_is_name(&t, constants[i])) {
            rvi_jparse_fail(p, t.line, "can't assign to '%s'", constants[i]);
            return NULL;
        }
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_NAME, t.line);
    if (!n || !(n->name = rvi_jparse_intern(p, t.text, t.len))) return NULL;
    return n;
}

static rvi_jnode *copy_target(rvi_jparser *p, const rvi_jnode *n)
{
    rvi_jnode *copy = rvi_jparse_node(p, (rvi_jnode_kind)n->kind, n->line);
    rvi_jnode_vec items = {0};
    if (!copy) return NULL;
    *copy = *n;
    for (uint32_t i = 0; i < n->list.count; i++) {
        rvi_jnode *item = copy_target(p, n->list.items[i]); /* height is bounded by the parser */
        if (!item || !rvi_jnode_push(p, &items, item)) return NULL;
    }
    copy->list = rvi_jnode_finish(&items);
    return copy;
}

/* ---- statements ---- */

static rvi_jnode *statement(rvi_jparser *p, rvi_jnode_kind kind)
{
    rvi_jnode *n = rvi_jparse_node(p, kind, p->cur.line);
    if (!n || !(n->block = rvi_jparse_alloc(p, 1, sizeof *n->block)) || !rvi_jparse_advance(p))
        return NULL;
    return n;
}

/* The body of a statement up to {% end %}, which is eaten. */
static bool body_until(rvi_jparser *p, const char *end, rvi_jnodes *out)
{
    const char *const ends[] = {end, NULL};
    return parse_body(p, ends, out) && rvi_jparse_advance(p);
}

static rvi_jnode *parse_set(rvi_jparser *p)
{
    static const char *const ends[] = {"endset", NULL};
    rvi_jnode *n = statement(p, RVI_JN_SET);
    if (!n || !(n->a = parse_target(p, true, NULL))) return NULL;
    if (p->cur.kind == RVI_JT_ASSIGN) {
        if (!rvi_jparse_advance(p) || !(n->b = rvi_jparse_tuple(p, 0, NULL))) return NULL;
        return n;
    }
    n->kind = RVI_JN_SET_BLOCK;
    n->b = rvi_jparse_filters(p, NULL, false);
    if (p->status || !parse_body(p, ends, &n->block->body)) return NULL;
    return rvi_jparse_advance(p) ? n : NULL;
}

static rvi_jnode *parse_for(rvi_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    rvi_jnode *n = statement(p, RVI_JN_FOR);
    if (!n || !(n->a = parse_target(p, false, "in"))) return NULL;
    if (!rvi_jparse_is_name(&p->cur, "in")) {
        rvi_jparse_fail(p, p->cur.line, "expected 'in' in a for statement");
        return NULL;
    }
    if (!rvi_jparse_advance(p) || !(n->b = rvi_jparse_tuple(p, RVI_JTUPLE_NO_COND, "recursive")))
        return NULL;
    if (rvi_jparse_skip_name(p, "if")) {
        if (!(n->block->test = rvi_jparse_expression(p))) return NULL;
        if (!(n->block->test_target = copy_target(p, n->a))) return NULL;
    }
    if (p->status) return NULL;
    n->block->recursive = rvi_jparse_skip_name(p, "recursive");
    uint32_t outer = p->loop_depth;
    p->loop_depth = (n->block->recursive ? 0 : outer) + 1;
    if (!parse_body(p, ends, &n->block->body)) return NULL;
    p->loop_depth = n->block->recursive ? 0 : outer;
    bool has_else = rvi_jparse_is_name(&p->cur, "else");
    if (!rvi_jparse_advance(p) || (has_else && !body_until(p, "endfor", &n->block->orelse)))
        return NULL;
    p->loop_depth = outer;
    return n;
}

static rvi_jnode *parse_if(rvi_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    rvi_jnode *n = statement(p, RVI_JN_IF);
    rvi_jnode_vec tests = {0};
    uint32_t cap = 0;
    if (!n) return NULL;
    for (;;) {
        rvi_jnode *test = rvi_jparse_tuple(p, RVI_JTUPLE_NO_COND, NULL);
        if (!test) return NULL;
        if (tests.count + 1 >= cap) { /* room for this body and the one of else */
            uint32_t fresh = cap ? cap * 2 : 4;
            rvi_jnodes *parts = rvi_jparse_alloc(p, fresh, sizeof *parts);
            if (!parts) return NULL;
            if (tests.count) memcpy(parts, n->block->parts, tests.count * sizeof *parts);
            n->block->parts = parts;
            cap = fresh;
        }
        if (!rvi_jnode_push(p, &tests, test)) return NULL;
        if (!parse_body(p, ends, &n->block->parts[tests.count - 1])) return NULL;
        bool again = rvi_jparse_is_name(&p->cur, "elif"),
             orelse = rvi_jparse_is_name(&p->cur, "else");
        if (!rvi_jparse_advance(p)) return NULL;
        if (again) continue;
        if (orelse && !body_until(p, "endif", &n->block->parts[tests.count])) return NULL;
        n->list = rvi_jnode_finish(&tests);
        return n;
    }
}

static bool parse_signature(rvi_jparser *p, rvi_jblock *b)
{
    rvi_jnode_vec params = {0}, defaults = {0};
    rvi_jnode *n;
    if (!rvi_jparse_expect(p, RVI_JT_LPAREN)) return false;
    while (p->cur.kind != RVI_JT_RPAREN) {
        if (params.count && !rvi_jparse_expect(p, RVI_JT_COMMA)) return false;
        if (!(n = parse_name_target(p))) return false;
        for (uint32_t i = 0; i < params.count; i++)
            if (params.items[i]->name == n->name)
                return rvi_jparse_fail(p, n->line, "duplicate parameter in a signature");
        if (params.count >= MAX_PARAMS) return rvi_jparse_fail(p, n->line, "too many parameters");
        if (!rvi_jnode_push(p, &params, n)) return false;
        if (p->cur.kind == RVI_JT_ASSIGN) {
            if (!rvi_jparse_advance(p) || !(n = rvi_jparse_expression(p))) return false;
            if (!rvi_jnode_push(p, &defaults, n)) return false;
        } else if (defaults.count) {
            return rvi_jparse_fail(p, n->line, "non-default argument follows default argument");
        }
    }
    b->params = params.items;
    b->n_params = params.count;
    b->defaults = defaults.items;
    b->n_defaults = defaults.count;
    return rvi_jparse_expect(p, RVI_JT_RPAREN);
}

/* The body of something that Python sees as a function of its own: no loop reaches into it. */
static rvi_jnode *function_body(rvi_jparser *p, rvi_jnode *n, const char *end)
{
    uint32_t outer = p->loop_depth;
    p->loop_depth = 0;
    if (!body_until(p, end, &n->block->body)) return NULL;
    p->loop_depth = outer;
    return n;
}

static rvi_jnode *parse_macro(rvi_jparser *p)
{
    rvi_jnode *n = statement(p, RVI_JN_MACRO), *name;
    if (!n || !(name = parse_name_target(p)) || !parse_signature(p, n->block)) return NULL;
    n->name = name->name;
    return function_body(p, n, "endmacro");
}

static rvi_jnode *parse_call_block(rvi_jparser *p)
{
    rvi_jnode *n = statement(p, RVI_JN_CALL_BLOCK);
    if (!n || (p->cur.kind == RVI_JT_LPAREN && !parse_signature(p, n->block))) return NULL;
    if (!(n->a = rvi_jparse_expression(p))) return NULL;
    if (n->a->kind != RVI_JN_CALL) {
        rvi_jparse_fail(p, n->line, "expected call");
        return NULL;
    }
    return function_body(p, n, "endcall");
}

static rvi_jnode *parse_filter_block(rvi_jparser *p)
{
    rvi_jnode *n = statement(p, RVI_JN_FILTER_BLOCK);
    if (!n || !(n->b = rvi_jparse_filters(p, NULL, true))) return NULL;
    return body_until(p, "endfilter", &n->block->body) ? n : NULL;
}

static rvi_jnode *parse_generation(rvi_jparser *p)
{
    rvi_jnode *n = statement(p, RVI_JN_GENERATION);
    return n ? function_body(p, n, "endgeneration") : NULL;
}

static rvi_jnode *parse_break(rvi_jparser *p)
{
    bool is_break = rvi_jparse_is_name(&p->cur, "break");
    if (!p->loop_depth) {
        rvi_jparse_fail(p, p->cur.line, "'%s' outside of a loop", is_break ? "break" : "continue");
        return NULL;
    }
    return statement(p, is_break ? RVI_JN_BREAK : RVI_JN_CONTINUE);
}

static rvi_jnode *parse_unsupported(rvi_jparser *p)
{
    char space[64];
    rvi_jparse_fail(p, p->cur.line, "a chat template cannot use '%s'",
                    rvi_jparse_describe(&p->cur, space, sizeof space));
    return NULL;
}

static const struct {
    const char *name;
    rvi_jnode *(*parse)(rvi_jparser *p);
} statements[] = {
    {"set", parse_set},
    {"for", parse_for},
    {"if", parse_if},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_break},
    {"block", parse_unsupported},
    {"extends", parse_unsupported},
    {"include", parse_unsupported},
    {"import", parse_unsupported},
    {"from", parse_unsupported},
};

static rvi_jnode *parse_statement(rvi_jparser *p, const char *const *ends)
{
    char space[64];
    if (p->cur.kind != RVI_JT_NAME) {
        rvi_jparse_fail(p, p->cur.line, "tag name expected");
        return NULL;
    }
    for (size_t i = 0; i < RVI_COUNT(statements); i++)
        if (rvi_jparse_is_name(&p->cur, statements[i].name)) return statements[i].parse(p);
    const char *name = rvi_jparse_describe(&p->cur, space, sizeof space);
    if (ends)
        rvi_jparse_fail(p, p->cur.line, "Encountered unknown tag '%s'; looking for '%s'.", name,
                        ends[0]);
    else
        rvi_jparse_fail(p, p->cur.line, "Encountered unknown tag '%s'.", name);
    return NULL;
}

/* ---- sequences of statements ---- */

static bool at_end(const rvi_jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (rvi_jparse_is_name(&p->cur, *ends)) return true;
    return false;
}

/* Text between tags. It is only ever written, so its characters need no counting. */
static rvi_jnode *data_node(rvi_jparser *p)
{
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_CONST, p->cur.line);
    rvi_jstr *s = rvi_jparse_alloc(p, 1, sizeof *s);
    if (!n || !s) return NULL;
    *s = (rvi_jstr){.data = p->cur.text, .len = p->cur.len, .chars = p->cur.len};
    n->value = (rvi_jv){.kind = RVI_J_STR, .as.str = s};
    return n;
}

static bool flush(rvi_jparser *p, rvi_jnode_vec *text, rvi_jnode_vec *body)
{
    if (!text->count) return true;
    rvi_jnode *n = rvi_jparse_node(p, RVI_JN_OUTPUT, text->items[0]->line);
    if (!n) return false;
    n->list = rvi_jnode_finish(text);
    *text = (rvi_jnode_vec){0};
    return rvi_jnode_push(p, body, n);
}

/* Text and statements up to one of the end tags (whose name is then the current token), or up to
 * the end of the template where ends is NULL. */
static bool parse_nodes(rvi_jparser *p, const char *const *ends, rvi_jnodes *out)
{
    rvi_jnode_vec body = {0}, text = {0};
    rvi_jnode *n;
    while (!p->status && p->cur.kind != RVI_JT_EOF) {
        if (p->cur.kind == RVI_JT_DATA) {
            if (!(n = data_node(p)) || !rvi_jnode_push(p, &text, n) || !rvi_jparse_advance(p))
                return false;
        } else if (p->cur.kind == RVI_JT_VAR_BEGIN) {
            if (!rvi_jparse_advance(p) || !(n = rvi_jparse_tuple(p, 0, NULL))) return false;
            if (!rvi_jnode_push(p, &text, n) || !rvi_jparse_expect(p, RVI_JT_VAR_END)) return false;
        } else { /* BLOCK_BEGIN: the lexer gives nothing else outside tags */
            if (!flush(p, &text, &body) || !rvi_jparse_advance(p)) return false;
            if (at_end(p, ends)) {
                *out = rvi_jnode_finish(&body);
                return true;
            }
            if (!(n = parse_statement(p, ends)) || !rvi_jnode_push(p, &body, n)) return false;
            if (!rvi_jparse_expect(p, RVI_JT_BLOCK_END)) return false;
        }
    }
    if (ends)
        return rvi_jparse_fail(p, p->cur.line, "Unexpected end of template; looking for '%s'.",
                               ends[0]);
    if (!flush(p, &text, &body)) return false;
    *out = rvi_jnode_finish(&body);
    return !p->status;
}

static bool parse_body(rvi_jparser *p, const char *const *ends, rvi_jnodes *out)
{
    if (p->status || (p->cur.kind == RVI_JT_COLON && !rvi_jparse_advance(p))) return false;
    if (!rvi_jparse_expect(p, RVI_JT_BLOCK_END)) return false;
    if (p->nesting >= RVI_JINJA_MAX_NESTING)
        return rvi_jparse_fail(p, p->cur.line, "statements nested too deeply");
    p->nesting++;
    bool ok = parse_nodes(p, ends, out);
    p->nesting--;
    return ok;
}

static bool parse_template(rvi_jparser *p, rvi_jblock *root)
{
    return rvi_jparse_advance(p) && parse_nodes(p, NULL, &root->body);
}

/* ---- the template object ---- */

rv_status rvi_template_new(rvi_template **out, const char *text, size_t len, rv_error *err)
{
    *out = NULL;
    rvi_template *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "chat template");
    t->arena.max = MAX_TEMPLATE_MEMORY;
    rvi_jparser p = {.arena = &t->arena, .err = err};
    p.status = rvi_jlexer_init(&p.lex, text, len, &t->arena, err);
    t->root = rvi_jparse_alloc(&p, 1, sizeof *t->root);
    if (t->root && parse_template(&p, t->root)) rvi_jinja_bind(&p, t->root);
    rvi_free(p.names);
    if (p.status) {
        rvi_template_free(t);
        return p.status;
    }
    *out = t;
    return RV_OK;
}

void rvi_template_free(rvi_template *t)
{
    if (!t) return;
    rvi_arena_deinit(&t->arena);
    rvi_free(t);
}
