/* regex_internal.h - what parser, compiler and matcher of regular expressions share. */
#ifndef RVI_TOKENIZER_REGEX_INTERNAL_H
#define RVI_TOKENIZER_REGEX_INTERNAL_H

#include "tokenizer/regex.h"
#include "text/unicode.h"

enum {
    RVI_REGEX_PATTERN_MAX = 16384, /* bytes */
    RVI_REGEX_DEPTH_MAX = 60,
    RVI_REGEX_REPEAT_MAX = 1000, /* in {m,n} */
    RVI_REGEX_SETS_MAX = 1000,
    RVI_REGEX_RANGES_MAX = 400000, /* in all sets together, while they are built */
    RVI_REGEX_PROGRAM_MAX = 20000, /* instructions */
    RVI_REGEX_FOREVER = -1,
};

typedef enum rvi_regex_mode {
    RVI_REGEX_GREEDY,
    RVI_REGEX_LAZY,
    RVI_REGEX_POSSESSIVE
} rvi_regex_mode;

typedef enum rvi_regex_place {
    RVI_REGEX_LINE_START,
    RVI_REGEX_LINE_END,
    RVI_REGEX_TEXT_START,
    RVI_REGEX_TEXT_END,
    RVI_REGEX_TEXT_END_NEWLINE,
    RVI_REGEX_WORD_EDGE,
    RVI_REGEX_NOT_WORD_EDGE,
} rvi_regex_place;

/* ---- tree ---- */

typedef enum rvi_regex_kind {
    RVI_NODE_EMPTY,
    RVI_NODE_CHAR,
    RVI_NODE_SET,
    RVI_NODE_LIST,
    RVI_NODE_ALT,
    RVI_NODE_REPEAT,
    RVI_NODE_LOOK,
    RVI_NODE_ATOMIC,
    RVI_NODE_PLACE,
} rvi_regex_kind;

typedef struct rvi_regex_node rvi_regex_node;
struct rvi_regex_node {
    rvi_regex_kind kind;
    rvi_regex_node *child, *next; /* first child; next sibling */
    uint32_t cp;                  /* CHAR */
    size_t set;                   /* SET: index */
    int min, max;                 /* REPEAT; max RVI_REGEX_FOREVER: no end */
    rvi_regex_mode mode;
    bool negative, behind; /* LOOK */
    rvi_regex_place place;
};

/* ---- program ---- */

typedef enum rvi_regex_op {
    RVI_OP_CHAR,   /* cp */
    RVI_OP_SET,    /* set */
    RVI_OP_LOOP,   /* set, min, max, mode: of single characters. With max FOREVER, min is 0. */
    RVI_OP_SPLIT,  /* goes on at x; if that fails, at y */
    RVI_OP_JUMP,   /* x */
    RVI_OP_LOOK,   /* the body is the next instruction up to RVI_OP_MATCH; goes on at x. min:
                      characters to step back */
    RVI_OP_ATOMIC, /* body likewise; goes on at x, where the body's match ended */
    RVI_OP_PLACE,
    RVI_OP_MATCH,
} rvi_regex_op;

typedef struct rvi_regex_inst {
    uint8_t op, mode, place;
    bool negative;
    uint32_t cp;
    uint32_t set;
    int32_t min, max;
    uint32_t x, y;
    uint32_t memo; /* SPLIT and LOOP: index among the choices */
} rvi_regex_inst;

struct rvi_regex {
    rvi_cpset *sets;
    size_t n_sets, cap_sets;
    size_t n_ranges;
    rvi_regex_inst *program;
    size_t n_program, cap_program;
    uint32_t n_memo;
    bool empty_loop; /* a loop's body can match nothing: failed states must be remembered from the
                        start */
    rvi_cpset word;  /* \w, for \b */
};

/* regex_parse.c: pattern to tree (in the arena) and sets (in re). */
rv_status rvi_regex_parse(rvi_regex *re, const char *pattern, size_t len, rvi_arena *arena,
                          rvi_regex_node **root, rv_error *err) RVI_MUST_CHECK;
/* Takes the set, also on failure. */
rv_status rvi_regex_add_set(rvi_regex *re, rvi_cpset *take, size_t *index,
                            rv_error *err) RVI_MUST_CHECK;

/* regex_class.c: at '[' or behind '\'. Both move *pos on. */
typedef struct rvi_regex_source {
    const char *pattern;
    size_t len, pos;
    bool fold;        /* case-insensitive here */
    bool in_brackets; /* inside a class */
    size_t *n_ranges; /* spent so far, against RVI_REGEX_RANGES_MAX */
    rv_error *err;
} rvi_regex_source;

rv_status rvi_regex_fail(rvi_regex_source *s,
                         const char *what); /* names the place in the pattern */
rv_status rvi_regex_class(rvi_regex_source *s, rvi_cpset *out, int depth) RVI_MUST_CHECK;
/* pos is at the character behind '\'. *is_set: out got the members; otherwise *cp is the character.
 */
rv_status rvi_regex_escape(rvi_regex_source *s, rvi_cpset *out, bool *is_set,
                           uint32_t *cp) RVI_MUST_CHECK;
bool rvi_regex_peek(const rvi_regex_source *s,
                    const char *text);        /* the pattern goes on with this text */
uint32_t rvi_regex_take(rvi_regex_source *s); /* one code point; there must be one */

#endif
