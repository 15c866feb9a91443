/* jinja_value.h - the values of a template: Python's, as far as a sandboxed template can see them.
 *
 * Invariants
 * 1. Strings, lists, tuples and dicts never change once another value can see them (the sandbox
 * forbids it), so they are shared freely. Only namespaces, loops, joiners and iterators
 * have state.
 * 2. Every value of a render lives in its run's arena and dies with it. Constants of a template
 * live in the template's arena and are only read, because several threads may render the same
 * template.
 * 3. A function that can fail returns a value of kind RVI_J_FAIL (or false); the cause is then
 * already recorded in the run, and the caller only passes the failure on. */
#ifndef RVI_TEMPLATE_JINJA_VALUE_H
#define RVI_TEMPLATE_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

typedef struct rvi_jrun rvi_jrun; /* jinja_run.h */

typedef enum rvi_jkind {
    RVI_J_FAIL = 0, /* not a value: an error was recorded */
    RVI_J_MISSING,  /* not a value: a variable or argument that was not given */
    RVI_J_UNDEFINED,
    RVI_J_NONE,
    RVI_J_BOOL,
    RVI_J_INT,
    RVI_J_FLOAT,
    RVI_J_STR,
    RVI_J_LIST, /* from here to RVI_J_RANGE: values with a length that are no strings */
    RVI_J_TUPLE,
    RVI_J_KEYS, /* what dict.keys(), .values() and .items() return */
    RVI_J_VALUES,
    RVI_J_ITEMS,
    RVI_J_DICT,
    RVI_J_RANGE,
    RVI_J_ITER, /* a generator: gives its items once */
    RVI_J_NAMESPACE,
    RVI_J_MACRO,
    RVI_J_FUNCTION, /* a global function */
    RVI_J_METHOD,   /* a method bound to its value */
    RVI_J_LOOP,
    RVI_J_JOINER,
} rvi_jkind;

typedef struct rvi_jstr rvi_jstr;
typedef struct rvi_jundefined rvi_jundefined;
typedef struct rvi_jseq rvi_jseq;
typedef struct rvi_jdict rvi_jdict;
typedef struct rvi_jrange rvi_jrange;
typedef struct rvi_jiter rvi_jiter;
typedef struct rvi_jmacro rvi_jmacro;
typedef struct rvi_jmethod rvi_jmethod;
typedef struct rvi_jloop rvi_jloop;
typedef struct rvi_jjoiner rvi_jjoiner;
typedef struct rvi_jfn rvi_jfn;

typedef struct rvi_jv {
    rvi_jkind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        rvi_jstr *str;
        const rvi_jundefined *undefined;
        const rvi_jseq *seq; /* list, tuple, keys, values, items */
        rvi_jdict *dict;     /* dict, namespace */
        const rvi_jrange *range;
        rvi_jiter *iter;
        const rvi_jmacro *macro;
        const rvi_jfn *fn;
        const rvi_jmethod *method;
        rvi_jloop *loop;
        rvi_jjoiner *joiner;
    } as;
} rvi_jv;

/* Storage that a string may share with a longer one made from it by appending; see rvi_jv_concat.
 */
typedef struct rvi_jgrow {
    char *data;
    char *user; /* as in rvi_jstr, one byte for each of data; NULL: nothing is from users yet */
    size_t used, cap;
} rvi_jgrow;

#define RVI_JSTR_UNCOUNTED SIZE_MAX

/* UTF-8, not terminated; invalid bytes cannot occur (template and JSON text are checked when read).
 */
struct rvi_jstr {
    const char *data;
    size_t len;
    size_t chars; /* code points, or RVI_JSTR_UNCOUNTED; always counted in a template's constants */
    rvi_jgrow *grow; /* or NULL */
    bool markup;     /* made by |safe or |escape: joining other text to it escapes that text */
    /* Which bytes come from the caller's variables, not from the template: NULL: none;
     * rvi_juser_all: all; otherwise a byte for each, 1 where it does. What an operation cannot
     * trace byte by byte counts as the user's. */
    const char *user;
};

extern const char rvi_juser_all[1];

/* len bytes of s from `from` on, sharing its storage. */
static inline rvi_jstr rvi_jstr_piece(const rvi_jstr *s, size_t from, size_t len)
{
    return (rvi_jstr){.data = s->data + from,
                      .len = len,
                      .chars = RVI_JSTR_UNCOUNTED,
                      .user = s->user && s->user != rvi_juser_all ? s->user + from : s->user};
}

struct rvi_jundefined {
    const char *hint;     /* the whole message, or NULL: made from the fields below */
    const rvi_jstr *name; /* variable or attribute */
    rvi_jv object;        /* whose attribute; RVI_J_MISSING: a variable */
    rvi_jv element;       /* the subscript where it is no string, or RVI_J_MISSING */
};

struct rvi_jseq {
    rvi_jv *items;
    size_t count;
    bool group; /* a tuple made by groupby: has .grouper and .list */
};

typedef struct rvi_jpair {
    rvi_jv key, value;
} rvi_jpair;

/* Keeps the order of insertion. Lookup is linear up to a few pairs and hashed beyond. */
struct rvi_jdict {
    rvi_jpair *pairs;
    size_t count, cap;
    uint32_t *index; /* pair number + 1, or 0; n_index is a power of two, 0: no index yet */
    size_t n_index;
};

struct rvi_jrange {
    int64_t start, stop, step;
    size_t count;
};

struct rvi_jmethod {
    rvi_jv self;
    const rvi_jfn *fn;
};

struct rvi_jjoiner {
    rvi_jv sep;
    bool used;
};

/* ---- making values; all may fail for memory ---- */

#define RVI_JV(KIND) ((rvi_jv){.kind = RVI_J_##KIND})

static inline rvi_jv rvi_jv_bool(bool b)
{
    return (rvi_jv){.kind = RVI_J_BOOL, .as.boolean = b};
}

static inline rvi_jv rvi_jv_int(int64_t i)
{
    return (rvi_jv){.kind = RVI_J_INT, .as.integer = i};
}

static inline rvi_jv rvi_jv_float(double f)
{
    return (rvi_jv){.kind = RVI_J_FLOAT, .as.number = f};
}

static inline bool rvi_jv_failed(rvi_jv v)
{
    return v.kind == RVI_J_FAIL;
}

/* ---- failures and bounds of the render (jinja_run.c) ---- */

rvi_jv rvi_jinja_fail(rvi_jrun *r, const char *fmt, ...) RVI_PRINTF(2, 3); /* "line N: ..." */
void *rvi_jinja_alloc(rvi_jrun *r, size_t count,
                      size_t size); /* zeroed; NULL: failure recorded. 0 bytes: not NULL */
bool rvi_jinja_charge(rvi_jrun *r, uint64_t steps); /* false: too many */
static inline bool rvi_jinja_charge_bytes(rvi_jrun *r, size_t bytes)
{
    return rvi_jinja_charge(r, bytes / 64 + 1);
}
/* Where every character is looked at, not just copied. */
static inline bool rvi_jinja_charge_chars(rvi_jrun *r, size_t bytes)
{
    return rvi_jinja_charge(r, bytes / 16 + 1);
}
bool rvi_jinja_enter(rvi_jrun *r); /* before recursing; false: too deep */
void rvi_jinja_leave(rvi_jrun *r);

/* ---- values ---- */

rvi_jv rvi_jv_str(rvi_jrun *r, const char *data, size_t len); /* copies */
rvi_jv rvi_jv_view(rvi_jrun *r, const char *data,
                   size_t len); /* borrows: data outlives the render */
rvi_jv rvi_jv_part(rvi_jrun *r, const rvi_jstr *s, size_t from, size_t len); /* rvi_jstr_piece */
rvi_jv rvi_jv_text(rvi_jrun *r, const char *literal);     /* borrows a C string */
rvi_jv rvi_jv_mark(rvi_jrun *r, rvi_jv str, bool markup); /* the same text with that flag */
rvi_jv rvi_jv_concat(rvi_jrun *r, rvi_jv a, rvi_jv b);    /* two strings; result is plain */
rvi_jv rvi_jv_seq(rvi_jrun *r, rvi_jkind kind, size_t count,
                  rvi_jv **items);                      /* items to be filled in */
rvi_jv rvi_jv_dict(rvi_jrun *r, rvi_jkind kind);        /* dict or namespace, empty */
rvi_jv rvi_jv_undefined(rvi_jrun *r, const char *hint); /* hint outlives the render */
rvi_jv rvi_jv_undefined_name(rvi_jrun *r, const rvi_jstr *name);
rvi_jv rvi_jv_undefined_item(rvi_jrun *r, rvi_jv object, rvi_jv key);
rvi_jv rvi_jv_undefined_error(rvi_jrun *r, rvi_jv undefined); /* fails with its message */

/* A growing list of values for functions that do not know the count beforehand. */
typedef struct rvi_jvec {
    rvi_jv *items;
    size_t count, cap;
} rvi_jvec;

bool rvi_jvec_push(rvi_jrun *r, rvi_jvec *vec, rvi_jv v);
rvi_jv rvi_jvec_finish(rvi_jrun *r, const rvi_jvec *vec, rvi_jkind kind);

/* ---- asking values ---- */

const char *rvi_jv_type_name(rvi_jv v); /* Python's: "str", "list", ... */
bool rvi_jv_truth(rvi_jv v);
bool rvi_jv_is_number(rvi_jv v);   /* int, float or bool */
bool rvi_jv_is_integral(rvi_jv v); /* int or bool */
int64_t rvi_jv_as_int(rvi_jv v);   /* of an integral value */
double rvi_jv_as_double(rvi_jv v); /* of a number */
bool rvi_jv_is_text(rvi_jv v, const char *text);
/* Counting reads the whole text once: it is charged. After a failure the result is of no use. */
size_t rvi_jstr_chars(rvi_jrun *r, rvi_jstr *s);
bool rvi_jv_length(rvi_jrun *r, rvi_jv v, size_t *out); /* false: has no len() */
rvi_jv rvi_jv_at(rvi_jrun *r, rvi_jv v, size_t index); /* of a list, tuple, view, range or string */

/* ---- comparing; 1: true, 0: false, -1: failed ---- */

int rvi_jv_equal(rvi_jrun *r, rvi_jv a, rvi_jv b);
int rvi_jv_less(rvi_jrun *r, rvi_jv a, rvi_jv b, bool or_equal,
                const char *op); /* op: for the message */
int rvi_jv_contains(rvi_jrun *r, rvi_jv container, rvi_jv v);
bool rvi_jv_same(rvi_jrun *r, rvi_jv a, rvi_jv b); /* Python's `is` */
/* Stable. keys[i] orders items[i]; n < 2^32. false: failed. */
bool rvi_jv_sort(rvi_jrun *r, rvi_jv *items, rvi_jv *keys, size_t n, bool reverse);

/* ---- dicts ---- */

/* 1: found, 0: not, -1: failed (a key that cannot be hashed). */
int rvi_jdict_find(rvi_jrun *r, const rvi_jdict *d, rvi_jv key, rvi_jv *out);
bool rvi_jdict_get_str(const rvi_jdict *d, const char *key, size_t len, rvi_jv *out);
bool rvi_jdict_set(rvi_jrun *r, rvi_jdict *d, rvi_jv key, rvi_jv value);

/* ---- iteration ---- */

/* Makes an iterator over any iterable value; fails for others. An iterator is returned as it is. */
rvi_jv rvi_jv_iter(rvi_jrun *r, rvi_jv v);
bool rvi_jv_iterable(rvi_jv v);
/* 1: *out is the next item, 0: no more, -1: failed */
int rvi_jiter_next(rvi_jrun *r, rvi_jiter *it, rvi_jv *out);
rvi_jv rvi_jv_to_list(rvi_jrun *r, rvi_jv iterable,
                      rvi_jkind kind); /* list or tuple of all items */

/* ---- text in text (jinja_text_ops.c, jinja_ops.c) ---- */

/* Where needle (n > 0 bytes) stands in hay from `from` on, or SIZE_MAX. Time is linear however the
 * texts look. */
typedef struct rvi_jfinder {
    const char *needle;
    size_t len;
    uint32_t *border; /* for long needles */
} rvi_jfinder;
/* Charges for one search through hay_len bytes. */
bool rvi_jfinder_init(rvi_jrun *r, rvi_jfinder *f, const char *needle, size_t len, size_t hay_len);
size_t rvi_jfinder_next(const rvi_jfinder *f, const char *hay, size_t hay_len, size_t from);
size_t rvi_jfinder_last(const rvi_jfinder *f, const char *hay,
                        size_t end); /* the last one that ends by `end` */

rvi_jv rvi_jinja_substring(rvi_jrun *r, rvi_jstr *s, size_t from,
                           size_t to); /* code points; shares the text */

/* ---- text of values (jinja_text.c) ---- */

/* Both append to a buffer; false: failed. */
bool rvi_jv_write_str(rvi_jrun *r, rvi_buf *out, rvi_jv v);  /* str(v) */
bool rvi_jv_write_repr(rvi_jrun *r, rvi_buf *out, rvi_jv v); /* repr(v) */
void rvi_jinja_write_float(rvi_buf *out, double v);          /* repr of a float */
rvi_jv rvi_jv_to_str(rvi_jrun *r, rvi_jv v);                 /* a plain string, as str(v) */
rvi_jv rvi_jv_soft_str(rvi_jrun *r,
                       rvi_jv v);            /* strings as they are (markup stays), others str(v) */
rvi_jv rvi_jv_escape(rvi_jrun *r, rvi_jv v); /* HTML escapes; the result is markup */

typedef struct rvi_jjson {
    bool ensure_ascii, sort_keys;
    const char *indent; /* NULL: one line */
    size_t indent_len;
    const rvi_jstr *item_sep, *key_sep;
} rvi_jjson;
bool rvi_jv_write_json(rvi_jrun *r, rvi_buf *out, rvi_jv v, const rvi_jjson *how);

#endif
