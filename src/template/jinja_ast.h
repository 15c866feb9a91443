/* jinja_ast.h - the tree of a template, and the steps that make it: lexer, parser, scopes.
 *
 * Variables are bound to slots before rendering, by Jinja's own rules (jinja_scope.c). A function
 * (the template itself, a macro, a call block, a generation block, the body of a recursive loop)
 * has one activation record of slots per call. Frames (a loop body, a with block, ...) are parts of
 * their function's record that are set up anew whenever they are entered. */
#ifndef RVI_TEMPLATE_JINJA_AST_H
#define RVI_TEMPLATE_JINJA_AST_H

#include "base/error.h"
#include "template/jinja_value.h"

enum {
    RVI_JINJA_MAX_TEXT = 8 << 20, /* bytes of a template */
    RVI_JINJA_MAX_HEIGHT = 400,   /* of an expression tree: bounds every recursion over one */
    RVI_JINJA_MAX_NESTING = 100,  /* statements inside each other */
    RVI_JINJA_MAX_NAME = 1000,    /* bytes of a name: looking one up is counted as one step */
    RVI_JINJA_MAX_NAMES = 20000,  /* different ones: they may be made to collide in a table */
};

typedef enum rvi_jnode_kind {
    /* expressions */
    RVI_JN_CONST,
    RVI_JN_NAME,
    RVI_JN_NSREF, /* name.attr as the target of a set */
    RVI_JN_TUPLE,
    RVI_JN_LIST,
    RVI_JN_DICT,    /* list: key, value, key, value, ... */
    RVI_JN_GETATTR, /* a . name */
    RVI_JN_GETITEM, /* a [ b ] */
    RVI_JN_SLICE,   /* list: start, stop, step; NULL where left out. Inside GETITEM */
    RVI_JN_CALL,    /* a ( call ) */
    RVI_JN_FILTER,  /* a | name ( call ); a NULL: the captured text of a block */
    RVI_JN_TEST,    /* a is name ( call ) */
    RVI_JN_NOT,
    RVI_JN_NEG,
    RVI_JN_POS,
    RVI_JN_BINARY, /* a op b */
    RVI_JN_AND,
    RVI_JN_OR,
    RVI_JN_CONCAT,  /* list joined by ~ */
    RVI_JN_COMPARE, /* a, then list with ops */
    RVI_JN_COND,    /* a if b else c; c may be NULL */
    /* statements */
    RVI_JN_OUTPUT,    /* list */
    RVI_JN_SET,       /* a = b */
    RVI_JN_SET_BLOCK, /* a = body, through filter b if any */
    RVI_JN_FOR,
    RVI_JN_IF, /* list: test, test, ...; parts: one body per test and one for else */
    RVI_JN_MACRO,
    RVI_JN_CALL_BLOCK,
    RVI_JN_FILTER_BLOCK, /* b: the filter */
    RVI_JN_GENERATION,
    RVI_JN_BREAK,
    RVI_JN_CONTINUE,
} rvi_jnode_kind;

typedef enum rvi_jop {
    RVI_JOP_ADD,
    RVI_JOP_SUB,
    RVI_JOP_MUL,
    RVI_JOP_DIV,
    RVI_JOP_FLOORDIV,
    RVI_JOP_MOD,
    RVI_JOP_POW,
    RVI_JOP_EQ,
    RVI_JOP_NE,
    RVI_JOP_LT,
    RVI_JOP_LE,
    RVI_JOP_GT,
    RVI_JOP_GE,
    RVI_JOP_IN,
    RVI_JOP_NOT_IN,
} rvi_jop;

typedef struct rvi_jnode rvi_jnode;

typedef struct rvi_jnodes {
    rvi_jnode **items;
    uint32_t count;
} rvi_jnodes;

typedef struct rvi_jkeyword {
    rvi_jstr *name;
    rvi_jnode *value;
} rvi_jkeyword;

typedef struct rvi_jcall {
    rvi_jnodes args;
    rvi_jkeyword *keywords;
    uint32_t n_keywords;
    rvi_jnode *dyn_args, *dyn_keywords; /* *x and **x, or NULL */
} rvi_jcall;

/* How a slot gets its value when its frame is entered. Slots that are parameters have no entry. */
typedef struct rvi_jload {
    enum { RVI_JLOAD_RESOLVE, RVI_JLOAD_ALIAS, RVI_JLOAD_UNDEFINED } action;
    uint32_t slot;
    uint32_t up, from;    /* alias: copy of that slot, `up` functions outwards */
    const rvi_jstr *name; /* resolve: variable of the caller, or a global */
} rvi_jload;

typedef struct rvi_jframe {
    rvi_jload *loads;
    uint32_t n_loads;
} rvi_jframe;

/* A statement's bodies, parameters and frames. */
typedef struct rvi_jblock {
    rvi_jnodes body, orelse;
    rvi_jnodes *parts; /* IF: bodies, one per test, then else (may be empty) */
    rvi_jframe *frame, *else_frame, *test_frame;
    rvi_jnode *test,
        *test_target;   /* FOR ... if test; its own copy of the target, bound in test_frame */
    uint32_t loop_slot; /* FOR */
    bool recursive;
    /* functions: MACRO, CALL_BLOCK, GENERATION, recursive FOR, and the template */
    uint32_t n_slots;
    rvi_jnode **params;   /* NAME nodes */
    rvi_jnode **defaults; /* of the last n_defaults parameters */
    uint32_t n_params, n_defaults;
    bool uses_caller, uses_kwargs, uses_varargs, explicit_caller;
    uint32_t caller_slot, kwargs_slot, varargs_slot;
} rvi_jblock;

struct rvi_jnode {
    uint8_t kind; /* rvi_jnode_kind */
    uint8_t op;   /* rvi_jop */
    uint16_t height;
    uint32_t line;
    uint32_t up, slot; /* NAME, NSREF, MACRO: the variable */
    rvi_jstr *name;    /* NAME, NSREF, MACRO, GETATTR, FILTER, TEST */
    rvi_jstr *attr;    /* NSREF */
    rvi_jnode *a, *b, *c;
    rvi_jnodes list;
    uint8_t *ops; /* COMPARE: rvi_jop per list entry */
    rvi_jcall *call;
    const rvi_jfn
        *fn;      /* FILTER, TEST: NULL where there is none of that name (an error when reached) */
    rvi_jv value; /* CONST */
    rvi_jblock *block;
};

struct rvi_template {
    rvi_arena arena;
    rvi_jblock *root; /* body, frame, n_slots */
};

/* ---- lexer ---- */

typedef enum rvi_jtoken_kind {
    RVI_JT_EOF,
    RVI_JT_DATA,
    RVI_JT_BLOCK_BEGIN,
    RVI_JT_BLOCK_END,
    RVI_JT_VAR_BEGIN,
    RVI_JT_VAR_END,
    RVI_JT_NAME,
    RVI_JT_STRING,
    RVI_JT_INT,
    RVI_JT_FLOAT,
    RVI_JT_ADD,
    RVI_JT_SUB,
    RVI_JT_DIV,
    RVI_JT_FLOORDIV,
    RVI_JT_MUL,
    RVI_JT_MOD,
    RVI_JT_POW,
    RVI_JT_TILDE,
    RVI_JT_LBRACKET,
    RVI_JT_RBRACKET,
    RVI_JT_LPAREN,
    RVI_JT_RPAREN,
    RVI_JT_LBRACE,
    RVI_JT_RBRACE,
    RVI_JT_EQ,
    RVI_JT_NE,
    RVI_JT_GT,
    RVI_JT_GE,
    RVI_JT_LT,
    RVI_JT_LE,
    RVI_JT_ASSIGN,
    RVI_JT_DOT,
    RVI_JT_COLON,
    RVI_JT_PIPE,
    RVI_JT_COMMA,
    RVI_JT_SEMICOLON,
} rvi_jtoken_kind;

typedef struct rvi_jtoken {
    rvi_jtoken_kind kind;
    uint32_t line;
    const char *text; /* DATA, NAME: the text; STRING: the text with escapes resolved */
    size_t len;
    int64_t integer;
    double number;
} rvi_jtoken;

typedef struct rvi_jlexer {
    const char *src; /* newlines are \n, the last one is gone, UTF-8 is valid */
    size_t len, pos;
    uint32_t line;
    enum { RVI_JLEX_DATA, RVI_JLEX_BLOCK, RVI_JLEX_VAR } state;
    int pending;        /* a token kind that follows the data just returned, or -1 */
    char brackets[256]; /* closing brackets still expected */
    uint32_t n_brackets;
    rvi_arena *arena;
    rv_error *err;
} rvi_jlexer;

rv_status rvi_jlexer_init(rvi_jlexer *lex, const char *text, size_t len, rvi_arena *arena,
                          rv_error *err);
rv_status rvi_jlexer_next(rvi_jlexer *lex, rvi_jtoken *out);
const char *rvi_jtoken_name(rvi_jtoken_kind kind); /* for messages */

/* ---- parser ---- */

typedef struct rvi_jparser {
    rvi_jlexer lex;
    rvi_jtoken cur, ahead;
    bool has_ahead;
    rvi_arena *arena;
    rv_error *err;
    rv_status status; /* of the first failure */
    uint32_t nesting; /* of statements and of expressions, together with the C stack */
    uint32_t expr_depth;
    uint32_t loop_depth; /* loops around this point inside the current function */
    rvi_jstr **names;    /* interned: equal names are the same pointer */
    size_t n_names, cap_names;
} rvi_jparser;

/* Helpers shared by the two halves of the parser. All functions return NULL or false after a
 * failure, with p->status set; the first failure's message stays. */
bool rvi_jparse_fail(rvi_jparser *p, uint32_t line, const char *fmt, ...) RVI_PRINTF(3, 4);
bool rvi_jparse_advance(rvi_jparser *p);
bool rvi_jparse_expect(rvi_jparser *p, rvi_jtoken_kind kind);
bool rvi_jparse_is_name(const rvi_jtoken *t, const char *name);
bool rvi_jparse_skip_name(rvi_jparser *p,
                          const char *name); /* true: it was there; p->status tells of a failure */
const char *rvi_jparse_describe(const rvi_jtoken *t, char *space, size_t cap);
void *rvi_jparse_alloc(rvi_jparser *p, size_t count, size_t size);
rvi_jstr *rvi_jparse_intern(rvi_jparser *p, const char *text, size_t len);
rvi_jnode *rvi_jparse_node(rvi_jparser *p, rvi_jnode_kind kind, uint32_t line);

typedef struct rvi_jnode_vec {
    rvi_jnode **items;
    uint32_t count, cap;
} rvi_jnode_vec;
bool rvi_jnode_push(rvi_jparser *p, rvi_jnode_vec *v, rvi_jnode *n);
rvi_jnodes rvi_jnode_finish(const rvi_jnode_vec *v);

/* jinja_parse.c: expressions */
enum {
    RVI_JTUPLE_SIMPLE = 1,
    RVI_JTUPLE_NO_COND = 2,
    RVI_JTUPLE_PARENS = 4,
    RVI_JTUPLE_NAMESPACE = 8
};
rvi_jnode *rvi_jparse_expression(rvi_jparser *p);
rvi_jnode *rvi_jparse_tuple(rvi_jparser *p, int flags, const char *end_name);
rvi_jnode *rvi_jparse_filters(rvi_jparser *p, rvi_jnode *node, bool start_inline);

/* ---- scopes ---- */

/* Binds all names of the parsed template. false: p->status is set. */
bool rvi_jinja_bind(rvi_jparser *p, rvi_jblock *root);

#endif
