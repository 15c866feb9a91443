/* What is found out about a model once, by a few chats about invented things, and kept in the
 * store: a yes or a no. */
#include <stdio.h>
#include <string.h>

#include "learn/learner/learner_internal.h"

enum { NAME = RVI_SHA256_HEX + 16 };
static const char table[] = "model";

static size_t name_of(const rvi_learner *l, const char *what, char name[NAME])
{
    return (size_t)snprintf(name, NAME, "%s.%s", l->digest, what);
}

rv_status rvi_trait_reopen(rvi_learner *l, const char *what, atomic_int *trait, rv_error *err)
{
    char name[NAME];
    rvi_buf data = {0};
    bool found = false;
    size_t len = name_of(l, what, name);
    rv_status st = rvi_store_get(&l->store, table, name, len, &data, &found, err);
    if (!st && found && data.len)
        atomic_store(trait, data.data[0] == '1' ? RVI_TRAIT_YES : RVI_TRAIT_NO);
    rvi_buf_deinit(&data);
    return st;
}

rv_status rvi_trait_keep(rvi_learner *l, const char *what, atomic_int *trait, bool yes,
                         rv_error *err)
{
    char name[NAME];
    if (atomic_load(trait)) return RV_OK; /* another process has found out */
    size_t len = name_of(l, what, name);
    rv_status st = rvi_store_put(&l->store, table, name, len, yes ? "1" : "0", 1, err);
    if (!st) atomic_store(trait, yes ? RVI_TRAIT_YES : RVI_TRAIT_NO);
    return st;
}

bool rvi_trait_is_due(const rvi_learner *l, const atomic_int *trait)
{
    bool can = l->parts.be->ops->like != NULL; /* layers on two devices: nothing is computed */
    return can && !atomic_load(trait) && rvi_learner_standing(l);
}

const char *rvi_trait_json(const atomic_int *trait)
{
    static const char *const names[] = {"null", "false", "true"};
    return names[atomic_load(trait)];
}
