/* jinja_run.h - the state of one render, and the tables of built-in functions. */
#ifndef RVI_TEMPLATE_JINJA_RUN_H
#define RVI_TEMPLATE_JINJA_RUN_H

#include "template/jinja.h"
#include "template/jinja_ast.h"
#include "text/spans.h"

/* The slots of one call of a function. Lives in the run's arena, since macros keep the one around
 * them. */
typedef struct rvi_jact {
    struct rvi_jact *parent; /* of the enclosing function */
    rvi_jv *slots;
} rvi_jact;

struct rvi_jrun {
    rvi_arena arena;
    rvi_buf out;     /* captured texts are at its end */
    rvi_buf scratch; /* for building one string at a time; see rvi_jinja_build */
    bool track;      /* remember what comes from users; the spans below are of out and scratch */
    rvi_text_spans out_user, scratch_user;
    rv_error *err;
    rv_status status;
    rvi_template_limits limits;
    uint64_t steps;
    uint32_t calls; /* macros and recursive loops around this point */
    uint32_t depth; /* C functions that recurse around this point */
    uint32_t line;  /* of the node being evaluated */
    rvi_jdict *vars;
    const rvi_template_now *now;
};

/* Building a string: start = rvi_jinja_build(r), append to r->scratch, then take. Builds nest like
 * a stack. */
size_t rvi_jinja_build(rvi_jrun *r);
rvi_jv rvi_jinja_take(rvi_jrun *r, size_t start); /* the string; fails where an append failed */
rvi_jv rvi_jinja_drop(rvi_jrun *r,
                      size_t start); /* after a failure: gives it up, returns RVI_J_FAIL */

/* len bytes of s, with their origin; out is r->out or r->scratch. */
void rvi_jinja_append(rvi_jrun *r, rvi_buf *out, const rvi_jstr *s, size_t from, size_t len);
/* Marks what was appended since `from` as the user's if any byte of s comes from a user. */
void rvi_jinja_trace(rvi_jrun *r, const rvi_buf *out, const rvi_jstr *s, size_t from);
/* The text of a buffer from `start` on as a string, taken out of it. */
rvi_jv rvi_jinja_cut(rvi_jrun *r, rvi_buf *out, size_t start);

/* ---- calls ---- */

typedef struct rvi_jnamed {
    const rvi_jstr *name;
    rvi_jv value;
} rvi_jnamed;

typedef struct rvi_jargs {
    rvi_jv *pos;
    size_t n_pos;
    rvi_jnamed *named;
    size_t n_named;
} rvi_jargs;

enum { RVI_JFN_MAX_PARAMS = 6 };

/* A built-in function, method, filter or test. self is the method's, filter's or test's value. a[]
 * holds the declared parameters, RVI_J_MISSING where not given; all holds the arguments as they
 * were written. */
typedef rvi_jv (*rvi_jbuiltin)(rvi_jrun *r, rvi_jv self, const rvi_jv *a, const rvi_jargs *all);
struct rvi_jfn {
    const char *name;
    rvi_jbuiltin call;
    const char
        *params; /* names separated by blanks; "-" for one that has no name; "*": any arguments */
    uint8_t required;
};

const rvi_jfn *rvi_jinja_filter(const char *name, size_t len);
const rvi_jfn *rvi_jinja_test(const char *name, size_t len);
const rvi_jfn *rvi_jinja_global(const char *name, size_t len);
const rvi_jfn *rvi_jinja_method(rvi_jkind kind, const char *name, size_t len);
const rvi_jfn *rvi_jinja_find(const rvi_jfn *table, size_t count, const char *name, size_t len);
/* The rows, one table per file. */
extern const rvi_jfn rvi_jinja_seq_filters[], rvi_jinja_str_methods[];
extern const size_t rvi_jinja_n_seq_filters, rvi_jinja_n_str_methods;

rvi_jv rvi_jinja_call_builtin(rvi_jrun *r, const rvi_jfn *fn, rvi_jv self, const rvi_jargs *args);
rvi_jv rvi_jinja_call(rvi_jrun *r, rvi_jv callee, const rvi_jargs *args);
rvi_jv rvi_jinja_call_macro(rvi_jrun *r, const rvi_jmacro *m, const rvi_jargs *args);
rvi_jv rvi_jinja_call_loop(rvi_jrun *r, rvi_jloop *loop, rvi_jv iterable);

/* ---- arguments of built-ins; false: failure recorded ---- */

bool rvi_jarg_str(rvi_jrun *r, rvi_jv v, const char *what, const rvi_jstr **out);
bool rvi_jarg_int(rvi_jrun *r, rvi_jv v, int64_t fallback, int64_t *out); /* MISSING: fallback */
bool rvi_jarg_given(rvi_jv v); /* neither missing nor None */
#define RVI_JARG(v, otherwise) ((v).kind == RVI_J_MISSING ? (otherwise) : (v))

/* ---- operations on values (jinja_ops.c, jinja_attr.c) ---- */

rvi_jv rvi_jinja_binary(rvi_jrun *r, rvi_jop op, rvi_jv a, rvi_jv b);
rvi_jv rvi_jinja_negate(rvi_jrun *r, rvi_jv v, bool minus);
rvi_jv rvi_jinja_compare(rvi_jrun *r, rvi_jop op, rvi_jv a, rvi_jv b);
rvi_jv rvi_jinja_slice(rvi_jrun *r, rvi_jv v, rvi_jv start, rvi_jv stop, rvi_jv step);
rvi_jv rvi_jinja_getattr(rvi_jrun *r, rvi_jv object, rvi_jv name); /* attribute first, then item */
rvi_jv rvi_jinja_getitem(rvi_jrun *r, rvi_jv object, rvi_jv key);  /* item first, then attribute */

/* ---- text ---- */

rvi_jv rvi_jinja_percent(rvi_jrun *r, rvi_jv format, rvi_jv args); /* format % args */
rvi_jv rvi_jinja_format(rvi_jrun *r, const rvi_jstr *format,
                        const rvi_jargs *args); /* str.format */
rvi_jv rvi_jinja_strftime(rvi_jrun *r, const rvi_jstr *format);

rvi_jv rvi_jinja_replace(rvi_jrun *r, const rvi_jstr *s, const rvi_jstr *old, const rvi_jstr *fresh,
                         int64_t count);
rvi_jv rvi_jinja_strip(rvi_jrun *r, const rvi_jstr *s, rvi_jv chars, bool left, bool right);
rvi_jv rvi_jinja_splitlines(rvi_jrun *r, const rvi_jstr *s, bool keep_ends);
typedef enum rvi_jcase {
    RVI_JCASE_UPPER,
    RVI_JCASE_LOWER,
    RVI_JCASE_CAPITALIZE,
    RVI_JCASE_TITLE
} rvi_jcase;
rvi_jv rvi_jinja_recase(rvi_jrun *r, const rvi_jstr *s, rvi_jcase how);
/* Whether it has letters of that case and none of the other. */
rvi_jv rvi_jinja_one_case(rvi_jrun *r, const rvi_jstr *s, bool upper);
bool rvi_jinja_parse_int(const rvi_jstr *s, int64_t base, int64_t *out,
                         bool *too_big);                    /* Python's int(s, base) */
bool rvi_jinja_parse_float(const rvi_jstr *s, double *out); /* Python's float(s) */

/* ---- iterators of filters (jinja_iter.c) ---- */

typedef enum rvi_jiter_kind {
    RVI_JITER_VALUE, /* over a list, string, range, ... */
    RVI_JITER_MAP,
    RVI_JITER_SELECT, /* select, reject, selectattr, rejectattr */
    RVI_JITER_UNIQUE,
    RVI_JITER_FOR_TEST, /* for target in source if test */
    RVI_JITER_LATER,    /* over what fn returns, called when the first item is asked for */
} rvi_jiter_kind;

struct rvi_jiter {
    rvi_jiter_kind kind;
    const char *repr; /* "generator object do_map" */
    bool reversed;
    bool done;
    rvi_jv source;     /* VALUE and, before its call, LATER: the value; others: an iterator */
    size_t pos;        /* VALUE: items given so far */
    size_t byte;       /* VALUE over a string: where the next character starts */
    size_t count;      /* VALUE: of a container, at the start */
    const rvi_jfn *fn; /* filter or test to apply, or NULL */
    rvi_jargs args;
    rvi_jv path;     /* attribute to look up first, or RVI_J_MISSING; see rvi_jinja_path */
    rvi_jv fallback; /* MAP: where the attribute is undefined, or RVI_J_MISSING */
    bool negate, ignore_case;
    rvi_jdict *seen;       /* UNIQUE */
    const rvi_jnode *loop; /* FOR_TEST */
    rvi_jact *act;
};

rvi_jv rvi_jinja_new_iter(rvi_jrun *r, rvi_jiter_kind kind, rvi_jv source, const char *repr);
int rvi_jinja_for_test_next(rvi_jrun *r, rvi_jiter *it, rvi_jv *out); /* jinja_exec.c */
/* "a.b.0" to the list of parts that a lookup follows; other values to a list of themselves. */
rvi_jv rvi_jinja_path(rvi_jrun *r, rvi_jv attribute);
rvi_jv rvi_jinja_get_path(rvi_jrun *r, rvi_jv item, rvi_jv path, rvi_jv fallback);
rvi_jv rvi_jinja_ignore_case(rvi_jrun *r, rvi_jv v);

/* ---- evaluation ---- */

struct rvi_jmacro {
    const rvi_jnode *node; /* MACRO, CALL_BLOCK or GENERATION */
    rvi_jact *act;         /* around it */
};

struct rvi_jloop {
    rvi_jiter *iter;
    rvi_jv iterable; /* for its length */
    int64_t index0;
    int64_t length;                /* -1: not asked yet */
    rvi_jv before, current, after; /* RVI_J_MISSING where there is none */
    const rvi_jnode *node;
    rvi_jact *outer; /* recursive: the record around the loop; NULL: not recursive */
    int64_t depth0;
};

rvi_jv rvi_jinja_eval(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act);
rvi_jv rvi_jinja_apply_filter(rvi_jrun *r, const rvi_jnode *n, rvi_jact *act, rvi_jv captured);
bool rvi_jinja_eval_args(rvi_jrun *r, const rvi_jcall *call, rvi_jact *act, rvi_jv caller,
                         rvi_jargs *out);
bool rvi_jinja_run_root(rvi_jrun *r, const rvi_jblock *root);
int64_t rvi_jloop_length(rvi_jrun *r, rvi_jloop *loop); /* -1: failed */
rvi_jv rvi_jloop_attribute(rvi_jrun *r, rvi_jloop *loop,
                           const rvi_jstr *name); /* RVI_J_MISSING: no such */

#endif
