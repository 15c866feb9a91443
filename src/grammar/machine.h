/* machine.h - the automaton that reads a text byte by byte: a stack of open objects, arrays and
 * rules over the languages of strings, numbers and terminals.
 *
 * A place is one way to have read the text so far; where a text can be read in several ways, there
 * are several places. Stacks are made of frames that are equal only if they are the same, so a
 * place is a few numbers, is copied freely and never changes. */
#ifndef RVI_GRAMMAR_MACHINE_H
#define RVI_GRAMMAR_MACHINE_H

#include "grammar/bag.h"
#include "grammar/lex.h"
#include "grammar/rules.h"
#include "grammar/values.h"

typedef enum rvi_place_kind {
    RVI_AT_VALUE,     /* arg: node */
    RVI_AT_STRING,    /* arg: lexer state, extra: the text so far where items are told apart */
    RVI_AT_NUMBER,    /* arg: lexer state */
    RVI_AT_WORD,      /* arg: which word, extra: characters read */
    RVI_AT_OBJECT,    /* behind { */
    RVI_AT_KEY_QUOTE, /* behind a comma: a key is to come */
    RVI_AT_KEY,       /* arg: lexer state, extra: the key so far where keys are told apart */
    RVI_AT_COLON,     /* arg: node of the value */
    RVI_AT_ARRAY,     /* behind [ */
    RVI_AT_AFTER,     /* behind a value */
    RVI_AT_TERMINAL,  /* arg: lexer state, extra: the rule item behind it */
    RVI_AT_END,       /* of the rules */
} rvi_place_kind;

typedef struct rvi_place {
    uint32_t frame, arg, extra;
    uint16_t kind;
    uint16_t blanks; /* white space in a row */
} rvi_place;

typedef struct rvi_places {
    rvi_place *items;
    size_t n, cap;
    bool borrowed; /* items is the caller's storage */
} rvi_places;

typedef enum rvi_frame_kind {
    RVI_FRAME_ROOT,
    RVI_FRAME_OBJECT,
    RVI_FRAME_ARRAY,
    RVI_FRAME_RULE
} rvi_frame_kind;

typedef struct rvi_frame { /* a row of a bag */
    uint32_t parent;
    uint32_t kind;
    uint32_t plan;  /* number of the rvi_object_plan or rvi_array_plan */
    uint32_t seen;  /* object: set of names; array: how many items matched each `contains` */
    uint32_t count; /* of members or items, as far as it matters; rule: the item to return to */
    uint32_t keys;  /* object: list of the other keys, where they are told apart; array: of the
                       strings that may not come again */
    uint32_t some;  /* object: bits of `some` that are satisfied */
} rvi_frame;

enum { RVI_DIFFER = 21 }; /* as many as a number of items has bits */

typedef struct rvi_machine {
    rvi_values values;
    rvi_lexer lexer;
    rvi_rules rules; /* none: the text is a JSON value */
    rvi_place start;
    uint32_t max_blanks; /* white space in a row, UINT16_MAX: any */

    rvi_bag frames;
    rvi_bag sets;  /* of names */
    rvi_bag lists; /* (list before, item): keys, and the characters of a key */
    void **plans;  /* by number */
    uint32_t n_plans, cap_plans;
    struct rvi_opened *opened; /* members.c: the object that was looked at last */
    struct rvi_differ {        /* strings without those of a list, by the size of its last block */
        uint32_t list;
        rvi_rx strings, left;
    } differ[RVI_DIFFER];
    rv_error err; /* why values failed while reading */
} rvi_machine;

rv_status rvi_machine_init(rvi_machine *m, rv_error *err) RVI_MUST_CHECK;
void rvi_machine_deinit(rvi_machine *m);
/* Once values or rules are there: RV_E_UNSUPPORTED if no text at all is allowed. */
rv_status rvi_machine_begin_json(rvi_machine *m, rvi_node root, rv_error *err) RVI_MUST_CHECK;
rv_status rvi_machine_begin_rules(rvi_machine *m, rv_error *err) RVI_MUST_CHECK;

/* Adds the places behind one more byte. */
void rvi_machine_step(rvi_machine *m, const rvi_place *at, uint8_t byte, rvi_places *out);
bool rvi_machine_ends(rvi_machine *m, const rvi_place *at); /* the text may end here */
/* The places behind the quote that ends a key or a string whose lexer state is given. */
void rvi_machine_close(rvi_machine *m, const rvi_place *at, uint32_t lex_state, rvi_places *out);
/* What went wrong while reading: memory, limits. */
rv_status rvi_machine_check(const rvi_machine *m, rv_error *err) RVI_MUST_CHECK;

/* The places from which a text goes on behind a terminal. */
void rvi_machine_behind(rvi_machine *m, const rvi_place *at, rvi_places *out);
/* Whether the text is inside what a rule named "ruvllm-thinking" reads. */
bool rvi_machine_thinks(rvi_machine *m, const rvi_place *at);
/* Whether no key without a name, or no string, may come twice here. */
bool rvi_machine_tells_apart(const rvi_machine *m, const rvi_place *at);
/* The ways in which a key goes on, each as a place of its own: as a key without a name, of which
 * the lexer alone tells which bytes may come, and as a name. */
enum { RVI_KEY_OTHER = 1, RVI_KEY_NAMED = 2 };
unsigned rvi_machine_key_ways(rvi_machine *m, const rvi_place *at, rvi_place *other,
                              rvi_place *named);

/* About how many bytes a text needs from here to its end. */
uint32_t rvi_machine_owes(rvi_machine *m, const rvi_place *at);
/* Whether a place is on a short way to the end: a key is only begun if it is the one that is needed
 * next, and with `ends` that key is whole. */
bool rvi_machine_helps(rvi_machine *m, const rvi_place *at, bool ends);
/* The byte with which a string or a terminal comes to its end soonest, or a key becomes the one
 * that is needed next; -1: it may end here, such a byte is not known, or several are needed. */
int rvi_machine_lead(rvi_machine *m, const rvi_place *at);
/* finish.c: appends a short text that leads from one of the places to an end. False: none was found
 * within some thousand steps, or there is no memory. */
bool rvi_machine_finish(rvi_machine *m, const rvi_place *places, size_t n, rvi_buf *out);

void rvi_places_add(rvi_machine *m, rvi_places *out, rvi_place at);
void rvi_places_deinit(rvi_places *p);
/* Sorts and drops what is there twice. */
void rvi_places_tidy(rvi_places *p);

#endif
