/* regex_compile.c - compiles a tree of nodes into a program for the matcher; creates and frees
 * expressions. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/regex_internal.h"

static rv_status too_large(rv_error *err)
{
    return rvi_error(err, RV_E_TOKENIZATION,
                     "regular expression: too large when its repetitions are written out");
}

static rv_status emit(rvi_regex *re, rvi_regex_inst inst, rv_error *err)
{
    if (re->n_program >= RVI_REGEX_PROGRAM_MAX) return too_large(err);
    if (re->n_program == re->cap_program) {
        size_t cap = re->cap_program ? re->cap_program * 2 : 32;
        rvi_regex_inst *program = rvi_realloc_array(re->program, cap, sizeof *program);
        if (!program) return rvi_nomem(err, "regular expression");
        re->program = program;
        re->cap_program = cap;
    }
    if (inst.op == RVI_OP_SPLIT || inst.op == RVI_OP_LOOP) inst.memo = re->n_memo++;
    re->program[re->n_program++] = inst;
    return RV_OK;
}

static bool can_be_empty(const rvi_regex_node *n)
{
    switch (n->kind) {
    case RVI_NODE_CHAR:
    case RVI_NODE_SET: return false;
    case RVI_NODE_LIST:
        for (const rvi_regex_node *c = n->child; c; c = c->next)
            if (!can_be_empty(c)) return false;
        return true;
    case RVI_NODE_ALT:
        for (const rvi_regex_node *c = n->child; c; c = c->next)
            if (can_be_empty(c)) return true;
        return false;
    case RVI_NODE_REPEAT: return n->min == 0 || can_be_empty(n->child);
    case RVI_NODE_ATOMIC: return can_be_empty(n->child);
    default: return true;
    }
}

enum { NOT_FIXED = -1, WIDTH_MAX = 100000 };

/* Characters that every match of the node takes, or NOT_FIXED. */
static int width(const rvi_regex_node *n)
{
    int sum = 0, w;
    switch (n->kind) {
    case RVI_NODE_CHAR:
    case RVI_NODE_SET: return 1;
    case RVI_NODE_LIST:
        for (const rvi_regex_node *c = n->child; c; c = c->next) {
            if ((w = width(c)) == NOT_FIXED || (sum += w) > WIDTH_MAX) return NOT_FIXED;
        }
        return sum;
    case RVI_NODE_ALT:
        w = width(n->child);
        for (const rvi_regex_node *c = n->child->next; c; c = c->next)
            if (width(c) != w) return NOT_FIXED;
        return w;
    case RVI_NODE_REPEAT:
        w = width(n->child);
        return n->min != n->max || w == NOT_FIXED || w * n->min > WIDTH_MAX ? NOT_FIXED
                                                                            : w * n->min;
    case RVI_NODE_ATOMIC: return width(n->child);
    default: return 0;
    }
}

static rv_status compile(rvi_regex *re, const rvi_regex_node *n, rv_error *err);

/* Instructions that leave to an end not known yet are chained through the field that will hold it.
 */
enum { NO_LINK = 0xFFFFFF };

static uint32_t *way_out(rvi_regex_inst *inst)
{
    return inst->op == RVI_OP_JUMP || inst->mode == RVI_REGEX_LAZY ? &inst->x : &inst->y;
}

static void link_to_here(rvi_regex *re, size_t chain)
{
    while (chain != NO_LINK) {
        uint32_t *out = way_out(&re->program[chain]);
        chain = *out;
        *out = (uint32_t)re->n_program;
    }
}

/* Emits a choice: inside is the next instruction, the way out is `out`. */
static rv_status emit_split(rvi_regex *re, size_t out, rvi_regex_mode mode, rv_error *err)
{
    uint32_t inside = (uint32_t)re->n_program + 1, outside = (uint32_t)out;
    bool lazy = mode == RVI_REGEX_LAZY;
    return emit(re,
                (rvi_regex_inst){.op = RVI_OP_SPLIT,
                                 .mode = (uint8_t)mode,
                                 .x = lazy ? outside : inside,
                                 .y = lazy ? inside : outside},
                err);
}

static rv_status compile_alternatives(rvi_regex *re, const rvi_regex_node *first, rv_error *err)
{
    rv_status st;
    size_t jumps = NO_LINK;
    for (const rvi_regex_node *c = first; c; c = c->next) {
        size_t split = re->n_program, jump;
        if (c->next && (st = emit_split(re, 0, RVI_REGEX_GREEDY, err))) return st;
        if ((st = compile(re, c, err))) return st;
        if (!c->next) break;
        jump = re->n_program;
        if ((st = emit(re, (rvi_regex_inst){.op = RVI_OP_JUMP, .x = (uint32_t)jumps}, err)))
            return st;
        jumps = jump;
        re->program[split].y = (uint32_t)re->n_program;
    }
    link_to_here(re, jumps);
    return RV_OK;
}

/* A loop over one character: no choice point for each round. */
static rv_status compile_char_loop(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    rv_status st;
    if (n->child->kind ==
        RVI_NODE_CHAR) { /* becomes a set of one, once for all copies of the loop */
        rvi_cpset one = {0};
        if (!rvi_cpset_add(&one, n->child->cp, n->child->cp))
            return rvi_nomem(err, "regular expression");
        rvi_cpset_close(&one);
        if ((st = rvi_regex_add_set(re, &one, &n->child->set, err))) return st;
        n->child->kind = RVI_NODE_SET;
    }
    rvi_regex_inst loop = {.op = RVI_OP_LOOP,
                           .set = (uint32_t)n->child->set,
                           .min = n->min,
                           .max = n->max,
                           .mode = (uint8_t)n->mode};
    if (n->max == RVI_REGEX_FOREVER && n->min > 0) {
        rvi_regex_inst fixed = loop;
        fixed.max = n->min;
        if ((st = emit(re, fixed, err))) return st;
        loop.min = 0;
    }
    return emit(re, loop, err);
}

static rv_status compile_body(rvi_regex *re, const rvi_regex_node *n, rvi_regex_inst head,
                              rv_error *err)
{
    size_t at = re->n_program;
    rv_status st;
    if ((st = emit(re, head, err))) return st;
    if ((st = compile(re, n, err))) return st;
    if ((st = emit(re, (rvi_regex_inst){.op = RVI_OP_MATCH}, err))) return st;
    re->program[at].x = (uint32_t)re->n_program;
    return RV_OK;
}

static rv_status compile_group_loop(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    const rvi_regex_node *child = n->child;
    bool forever = n->max == RVI_REGEX_FOREVER;
    size_t body = re->n_program, chain = NO_LINK;
    rv_status st;
    if (forever && can_be_empty(child)) re->empty_loop = true;
    for (int i = 0; i < n->min; i++) {
        body = re->n_program;
        if ((st = compile(re, child, err))) return st;
    }
    if (forever && n->min > 0) { /* behind the last required round: back to it, or on */
        uint32_t on = (uint32_t)re->n_program + 1;
        bool lazy = n->mode == RVI_REGEX_LAZY;
        return emit(re,
                    (rvi_regex_inst){.op = RVI_OP_SPLIT,
                                     .mode = (uint8_t)n->mode,
                                     .x = lazy ? on : (uint32_t)body,
                                     .y = lazy ? (uint32_t)body : on},
                    err);
    }
    for (int i = n->min; forever ? i == n->min : i < n->max; i++) {
        size_t split = re->n_program;
        if ((st = emit_split(re, chain, n->mode, err))) return st;
        chain = split;
        if ((st = compile(re, child, err))) return st;
        if (forever &&
            (st = emit(re, (rvi_regex_inst){.op = RVI_OP_JUMP, .x = (uint32_t)split}, err)))
            return st;
    }
    link_to_here(re, chain);
    return RV_OK;
}

/* Groups and lists of one are their member. */
static rvi_regex_node *unwrap(rvi_regex_node *n)
{
    while ((n->kind == RVI_NODE_ALT || n->kind == RVI_NODE_LIST) && n->child && !n->child->next)
        n = n->child;
    return n;
}

static rv_status compile_repeat(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    rvi_regex_node same = *n;
    same.child = unwrap(same.child);
    if (same.child->kind == RVI_NODE_CHAR || same.child->kind == RVI_NODE_SET)
        return compile_char_loop(re, &same, err);
    if (n->mode != RVI_REGEX_POSSESSIVE) return compile_group_loop(re, &same, err);
    same.mode = RVI_REGEX_GREEDY;
    return compile_body(re, &same, (rvi_regex_inst){.op = RVI_OP_ATOMIC}, err);
}

/* (?>x+) is x++, which needs no nested run. */
static rv_status compile_atomic(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    const rvi_regex_node *body = unwrap(n->child);
    if (body->kind != RVI_NODE_REPEAT || body->mode != RVI_REGEX_GREEDY)
        return compile_body(re, n->child, (rvi_regex_inst){.op = RVI_OP_ATOMIC}, err);
    rvi_regex_node possessive = *body;
    possessive.mode = RVI_REGEX_POSSESSIVE;
    return compile_repeat(re, &possessive, err);
}

static rv_status compile_look(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    int back = n->behind ? width(n->child) : 0;
    if (back == NOT_FIXED)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "regular expression: looking behind needs alternatives of fixed length");
    return compile_body(re, n->child,
                        (rvi_regex_inst){.op = RVI_OP_LOOK, .negative = n->negative, .min = back},
                        err);
}

static rv_status compile(rvi_regex *re, const rvi_regex_node *n, rv_error *err)
{
    rv_status st = RV_OK;
    switch (n->kind) {
    case RVI_NODE_EMPTY: return RV_OK;
    case RVI_NODE_CHAR: return emit(re, (rvi_regex_inst){.op = RVI_OP_CHAR, .cp = n->cp}, err);
    case RVI_NODE_SET:
        return emit(re, (rvi_regex_inst){.op = RVI_OP_SET, .set = (uint32_t)n->set}, err);
    case RVI_NODE_LIST:
        for (const rvi_regex_node *c = n->child; c && !st; c = c->next) st = compile(re, c, err);
        return st;
    case RVI_NODE_ALT: return compile_alternatives(re, n->child, err);
    case RVI_NODE_REPEAT: return compile_repeat(re, n, err);
    case RVI_NODE_LOOK: return compile_look(re, n, err);
    case RVI_NODE_ATOMIC: return compile_atomic(re, n, err);
    case RVI_NODE_PLACE:
        return emit(re, (rvi_regex_inst){.op = RVI_OP_PLACE, .place = (uint8_t)n->place}, err);
    }
    return RV_OK;
}

static rv_status build(rvi_regex *re, const rvi_regex_node *root, rv_error *err)
{
    rv_status st = compile(re, root, err);
    if (!st) st = emit(re, (rvi_regex_inst){.op = RVI_OP_MATCH}, err);
    if (!st && rvi_cpset_add_property(&re->word, "Word", 4) != RVI_PROPERTY_OK)
        st = rvi_nomem(err, "regular expression");
    rvi_cpset_close(&re->word);
    return st;
}

rv_status rvi_regex_new(rvi_regex **out, const char *pattern, size_t len, rv_error *err)
{
    *out = NULL;
    rvi_arena arena = {0};
    rvi_regex_node *root;
    rvi_regex *re = rvi_zalloc(sizeof *re);
    if (!re) return rvi_nomem(err, "regular expression");
    rv_status st = rvi_regex_parse(re, pattern, len, &arena, &root, err);
    if (!st) st = build(re, root, err);
    rvi_arena_deinit(&arena);
    if (st) {
        rvi_regex_free(re);
        return st;
    }
    *out = re;
    return RV_OK;
}

rv_status rvi_regex_new_literal(rvi_regex **out, const char *text, size_t len, rv_error *err)
{
    *out = NULL;
    rvi_regex *re = rvi_zalloc(sizeof *re);
    if (!re) return rvi_nomem(err, "text pattern");
    rv_status st = RV_OK;
    for (size_t i = 0; i < len && !st;) {
        rvi_regex_inst inst = {.op = RVI_OP_CHAR};
        i += rvi_utf8_decode(text + i, len - i, &inst.cp, NULL);
        st = emit(re, inst, err);
    }
    if (!st) st = emit(re, (rvi_regex_inst){.op = RVI_OP_MATCH}, err);
    if (st) {
        rvi_regex_free(re);
        return st;
    }
    *out = re;
    return RV_OK;
}

void rvi_regex_free(rvi_regex *re)
{
    if (!re) return;
    for (size_t i = 0; i < re->n_sets; i++) rvi_cpset_deinit(&re->sets[i]);
    rvi_free(re->sets);
    rvi_free(re->program);
    rvi_cpset_deinit(&re->word);
    rvi_free(re);
}
