/* refs.h - places in a schema: the path to one, and what a $ref points to. */
#ifndef RVI_GRAMMAR_REFS_H
#define RVI_GRAMMAR_REFS_H

#include "base/json.h"
#include "grammar/rx.h"

/* The place of `at` inside root as a JSON pointer ("#/properties/a/pattern"), written to out (and
 * cut there). */
const char *rvi_json_path(const rvi_json *root, const rvi_json *at, char out[256]);
/* The members of a large object in the order of their names: the one that was looked into last. */
typedef struct rvi_ref_index {
    const rvi_json *object, **members;
    size_t n;
} rvi_ref_index;

void rvi_ref_index_deinit(rvi_ref_index *x);

typedef struct rvi_refs {
    const rvi_json *root;
    rvi_rxs *work; /* counts what is looked at, and fails where that is too much */
    rvi_ref_index *index;
    bool nested_ids; /* schemas inside may have an $id of their own */
} rvi_refs;

/* The schema that a $ref means; NULL: it is not in this document, or that was too much work. */
const rvi_json *rvi_ref_find(const rvi_refs *r, const rvi_json *ref);
/* What a $dynamicRef means: a $dynamicAnchor of that name in the outermost resource on the way to
 * it. The root is always that, so if it has one, or there is no other, it is known; *depends: it is
 * not, for the way decides. */
const rvi_json *rvi_ref_find_dynamic(const rvi_refs *r, const rvi_json *ref, bool *depends);

#endif
