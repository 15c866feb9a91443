/* generations.h - adapters that are published and never change. What rolling back changes is which
 * of them are active. Numbers rise by one and are never used again. One that learned what was
 * forgotten is erased: it stays in the list, without its adapter. */
#ifndef RVI_LEARN_STATE_GENERATIONS_H
#define RVI_LEARN_STATE_GENERATIONS_H

#include "learn/journal/log.h"
#include "learn/consolidate/study.h"

typedef enum rvi_origin {
    RVI_FROM_GROUP,
    RVI_FROM_SHARED,
    RVI_FROM_PAIRS,
    RVI_FROM_FILE,
    RVI_FROM_MERGE
} rvi_origin;

enum { RVI_GENERATION_PARENTS = RVI_FEEDBACK_MAX_PARENTS };

typedef struct rvi_generation {
    int number; /* 1, 2, 3 ... */
    rvi_origin origin;
    rvi_recipe recipe;
    bool gated;
    uint64_t gone_by;     /* the event that put it out of use; 0: none did */
    int replaced_by;      /* the number of a later one; 0: none */
    bool erased;          /* what it learned was forgotten, */
    bool wiped;           /* and its copies in the store and in the learner's directory are gone */
    bool lost;            /* its adapter cannot be read any more, */
    bool told;            /* and the log says so */
    rvi_adapter *adapter; /* NULL: not loaded, because it was not used yet; erased; or lost */
    char digest[RVI_SHA256_HEX]; /* of the adapter as its file has it; "": unknown */
    uint64_t *learned; /* events of what it was trained on, and those that it goes on from */
    size_t n_learned;
    float *theta, *fisher; /* of a shared adapter when it was published: what training goes on from,
                              n_theta each; may be NULL */
    size_t n_theta;
    int n_groups;
    uint64_t first, last; /* events it was made from; 0: none */
    uint64_t known;       /* the last event of the log when its making began; 0: not made here */
    int parents[RVI_GENERATION_PARENTS]; /* of a merge; of others those that were lost when its
                                            making began, so that what they held waited again */
    size_t n_parents;
    rvi_study_result figures; /* n_steps 0: not trained here */
    /* what it was seen to say by itself when it was made here: of what it learned, and of so many
     * other wordings of that */
    int n_said, n_wordings, n_wordings_said;
} rvi_generation;

typedef struct rvi_generations { /* {0} is empty */
    rvi_generation *list;
    size_t n, cap;
    int last_number; /* the highest that the log names, of generations that are left out too */
} rvi_generations;

/* "R7", "R1", "shared", "preferences", "import", "merge": and back. */
const char *rvi_recipe_name(const rvi_generation *g);
void rvi_recipe_read(rvi_generation *g, rvi_text name);

bool rvi_generation_active(const rvi_generation *g);
/* number 0: the newest active; NULL: none. */
rvi_generation *rvi_generations_find(const rvi_generations *g, int number);
/* Room for one more, so that the next cannot fail. */
rv_status rvi_generations_reserve(rvi_generations *g, rv_error *err) RVI_MUST_CHECK;
/* Takes what x holds; which generations are active is decided anew. */
void rvi_generations_add(rvi_generations *g, const rvi_generation *x);
/* Adds to what x learned what those learned that it goes on from: parents, and the active one of a
 * shared adapter. */
rv_status rvi_generations_inherit(const rvi_generations *g, rvi_generation *x,
                                  rv_error *err) RVI_MUST_CHECK;
rv_status rvi_generation_learn(rvi_generation *x, uint64_t event, rv_error *err) RVI_MUST_CHECK;
void rvi_generations_lose(rvi_generations *g, rvi_generation *x); /* it counts as if it never was */
/* x, which is made of what waits, names those that are lost and that the log does not know of. */
void rvi_generations_name_lost(const rvi_generations *g, rvi_generation *x);
/* Higher numbers than `to` are out of use, by an event. Returns how many it put there. */
int rvi_generations_go_back(rvi_generations *g, uint64_t to, uint64_t by);
/* So are those that learned this event. erase: and are erased, even if they were out of use. */
int rvi_generations_withdraw(rvi_generations *g, uint64_t learned, uint64_t by, bool erase);
/* What the event put out of use is in use again; returns how many. */
int rvi_generations_bring_back(rvi_generations *g, uint64_t by);
/* Was it, or one that it goes on from, trained on the lesson or pair of this event? */
bool rvi_generation_has_learned(const rvi_generation *x, uint64_t event);
bool rvi_generations_gate_merged(const rvi_generations *g,
                                 const rvi_generation *merged); /* is a parent gated? */
/* Was it, or a parent of it, made of lessons? */
bool rvi_generations_of_lessons(const rvi_generations *g, const rvi_generation *x);

#endif
