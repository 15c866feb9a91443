/* values.h - sets of JSON values: what a schema allows, in a form that can be walked byte by byte.
 *
 * A node is a set of values: a schema, a constant, the complement of a node, or the intersection
 * of several. Its normal form says type by type what is in it: which words, which numbers and
 * strings (as languages), and lists of alternatives for arrays and objects, in which each
 * alternative is a conjunction of simple conditions over nodes. Members come in any order.
 *
 * Everything lives as long as the set; one thread at a time. */
#ifndef RVI_GRAMMAR_VALUES_H
#define RVI_GRAMMAR_VALUES_H

#include "base/json.h"
#include "grammar/formats.h"
#include "grammar/names.h"
#include "grammar/refs.h"

typedef uint32_t rvi_node;
enum { RVI_ANY, RVI_NEVER };
enum { RVI_WORD_NULL = 1, RVI_WORD_TRUE = 2, RVI_WORD_FALSE = 4, RVI_WORDS = 7 };
#define RVI_NO_LIMIT UINT32_MAX

typedef struct rvi_member { /* a name with what its value must be */
    rvi_text name;
    rvi_node node;
} rvi_member;

typedef struct rvi_key_rule {
    rvi_rx keys;
    rvi_node node;
} rvi_key_rule;

/* What one schema says of an object's members: each value must be in the node of its name and of
 * every pattern that matches; where there is none of these, in `others`. */
typedef struct rvi_members {
    const rvi_member *named; /* sorted by name */
    size_t n_named;
    const rvi_key_rule *patterns;
    size_t n_patterns;
    rvi_node others;
    bool has_others; /* the schema says something of them, be it that all are allowed */
    bool silent;     /* made by a negation: says nothing about which members were evaluated */
} rvi_members;

typedef struct rvi_dependency { /* where the first name is, the second must be */
    rvi_text if_present, needed;
} rvi_dependency;

typedef struct rvi_object_plan rvi_object_plan; /* plan.h */

/* All of these hold. */
typedef struct rvi_object {
    const rvi_members *const *members;
    size_t n_members;
    const rvi_text *required;
    size_t n_required;
    const rvi_dependency *dependencies;
    size_t n_dependencies;
    const rvi_key_rule
        *some; /* each: at least one member with such a key has a value in the node */
    size_t n_some;
    rvi_rx keys; /* of all members */
    uint32_t min, max;
    rvi_object_plan *plan; /* made when it is first needed */
} rvi_object;

typedef struct rvi_items {
    const rvi_node *prefix;
    size_t n_prefix;
    rvi_node rest;
    bool has_rest, silent;
} rvi_items;

typedef struct rvi_contains { /* min to max of the items from index `from` on are in the node */
    rvi_node node;
    uint32_t min, max, from;
    bool silent; /* as in rvi_members */
} rvi_contains;

typedef struct rvi_array_plan rvi_array_plan;

typedef struct rvi_array {
    const rvi_items *const *items;
    size_t n_items;
    const rvi_contains *contains;
    size_t n_contains;
    uint32_t min, max;
    bool unique; /* no item comes twice: enforced of strings */
    rvi_array_plan *plan;
} rvi_array;

typedef struct rvi_form { /* a node's normal form */
    unsigned words;
    rvi_rx number, string;
    rvi_array *const *arrays; /* alternatives */
    size_t n_arrays;
    rvi_object *const *objects;
    size_t n_objects;
} rvi_form;

typedef enum rvi_node_kind {
    RVI_NODE_SCHEMA,
    RVI_NODE_CONST,
    RVI_NODE_NOT,
    RVI_NODE_AND
} rvi_node_kind;

typedef struct rvi_node_info {
    rvi_node_kind kind;
    const rvi_json *json; /* SCHEMA, CONST */
    const rvi_node *list; /* AND: in order; NOT: one */
    uint32_t n_list;
    const rvi_form *form;
    bool making;    /* the form is being made: a reference that comes back is a circle */
    bool inhabited; /* some value is in it; known once rvi_values_close is done */
    bool queued;
} rvi_node_info;

typedef struct rvi_values {
    rvi_rxs rxs;
    rvi_arena arena;
    rvi_node_info *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *table; /* hash to node + 1 */
    uint32_t table_mask;
    const rvi_json *root; /* the schema */
    rvi_ref_index index;
    rvi_formats formats;
    bool exact;      /* "unevaluated..." is used: alternatives say which members they saw */
    bool nested_ids; /* there are schemas with an $id of their own inside */
    int draft;       /* 3, 4, 6, 7, 2019, 2020: what $schema says, or the newest */
    rvi_rx number, plain, whole, integer; /* integer: whole, or what older drafts call so */
    rv_status st;
    rv_error *err; /* of the call in progress */
    int depth;
} rvi_values;

/* json must outlive the set. */
rv_status rvi_values_init(rvi_values *v, rv_error *err) RVI_MUST_CHECK;
void rvi_values_deinit(rvi_values *v);

/* All of these answer NULL or RVI_NEVER after a failure, which v->st tells. */
rvi_node rvi_node_schema(rvi_values *v, const rvi_json *schema);
rvi_node rvi_node_const(rvi_values *v, const rvi_json *value);
rvi_node rvi_node_not(rvi_values *v, rvi_node a);
rvi_node rvi_node_and(rvi_values *v, rvi_node a, rvi_node b);
const rvi_form *rvi_values_form(rvi_values *v, rvi_node node);

/* Makes the forms and plans of everything that can be reached from the node, so that what cannot be
 * enforced is refused now, and finds out which nodes have no values. */
rv_status rvi_values_close(rvi_values *v, rvi_node root, rv_error *err) RVI_MUST_CHECK;

/* ---- forms.c: what can be done with forms ---- */

const rvi_form *rvi_form_any(rvi_values *v);
const rvi_form *rvi_form_never(rvi_values *v);
const rvi_form *rvi_form_and(rvi_values *v, const rvi_form *a, const rvi_form *b);
const rvi_form *rvi_form_or(rvi_values *v, const rvi_form *a, const rvi_form *b);
const rvi_form *rvi_form_not(rvi_values *v, const rvi_form *a);
/* True only if there is certainly no value in it. */
bool rvi_form_empty(rvi_values *v, const rvi_form *f);
/* Forms with one condition; all other types are free. */
const rvi_form *rvi_form_object(rvi_values *v, const rvi_object *o);
const rvi_form *rvi_form_array(rvi_values *v, const rvi_array *a);
rvi_object rvi_object_any(void);
rvi_array rvi_array_any(void);
rvi_node rvi_members_node(rvi_values *v, const rvi_members *m, rvi_text name);
void *rvi_values_alloc(rvi_values *v, size_t count, size_t size);

/* ---- schema.c ---- */

const rvi_form *rvi_schema_form(rvi_values *v, const rvi_json *schema);
const rvi_form *rvi_const_form(rvi_values *v, const rvi_json *value);
/* Looks through the schema for what changes how all of it is read. */
void rvi_schema_survey(rvi_values *v, const rvi_json *schema);

/* ---- unevaluated.c ---- */

/* The form with what the schema says of members and items that were not evaluated. */
const rvi_form *rvi_unevaluated_form(rvi_values *v, const rvi_json *schema, const rvi_form *f);

/* ---- titled.c ---- */

/* anyOf, or oneOf (once), if all its branches are single texts; NULL: they are not. */
const rvi_form *rvi_titled_form(rvi_values *v, const rvi_json *list, bool once);

/* ---- plan.c: what the walk needs of an alternative ---- */

enum { RVI_MAX_PATTERNS = 24, RVI_MAX_SOME = 8, RVI_MAX_CONTAINS = 4 };

struct rvi_object_plan {
    const rvi_object *shape;
    rvi_member *named; /* every name that any condition mentions, sorted; node: of its value */
    uint32_t n_named;
    uint32_t n_words;   /* of a set of names, 64 bits each */
    uint64_t *required; /* set of names */
    uint64_t *possible; /* names that the key rules allow and whose value exists */
    uint64_t **needs;   /* by name: the names it makes needed, or NULL */
    uint32_t *some_of;  /* by name: bits of `some` that its key satisfies */
    rvi_rx *patterns;   /* of members and then of `some`, each once */
    uint32_t n_patterns;
    const rvi_names *names;
    bool names_stray;  /* one goes, or ends, where no key without a name goes on */
    rvi_rx others;     /* keys that have no name here and may come */
    rvi_rx key_start;  /* tuple: others, names, [text], patterns... */
    bool tell_apart;   /* other keys are counted, so none may come twice */
    struct rvi_other { /* pattern bits of a key without a name -> its value */
        uint32_t bits;
        rvi_node node;
    } * other;
    uint32_t n_other, cap_other;
    uint32_t number; /* given by the machine, from 1 on */
    bool ready;      /* what needs the languages was made */
    bool has_needs;
};

struct rvi_array_plan {
    const rvi_array *shape;
    rvi_node *nodes; /* of the items by index; the last for all that follow */
    uint32_t n_nodes;
    uint32_t max;      /* no item can come from here on */
    uint32_t count_to; /* counting stops here: more makes no difference */
    uint32_t number;   /* given by the machine, from 1 on */
};

rvi_object_plan *rvi_object_plan_get(rvi_values *v, rvi_object *o);
rvi_array_plan *rvi_array_plan_get(rvi_values *v, rvi_array *a);
rvi_node rvi_plan_item(const rvi_array_plan *p, uint32_t index);
/* The value of a key without a name, by the patterns that match it. */
rvi_node rvi_plan_other(rvi_values *v, rvi_object_plan *p, uint32_t bits);
/* Makes the languages of keys; needs to know which nodes have values. */
bool rvi_object_plan_ready(rvi_values *v, rvi_object_plan *p);

#endif
