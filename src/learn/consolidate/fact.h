/* fact.h - what a correction says: a question and the right answer, read as a fact about a subject.
 *
 * RELATION: the relation is a noun phrase, the sentence "S's R is O.". QUESTION: a question that
 * gives no noun ("Where did S hide the key?"); the relation is the question's other words, the
 * sentence is made from the question or is the user's own. FREE: nothing of the kind can be seen
 * (an explanation, a matter of style): the text is taught as the answer to the question, and that
 * is all. Texts are a stranger's: any bytes, any length. A fact never changes once made. */
#ifndef RVI_LEARN_CONSOLIDATE_FACT_H
#define RVI_LEARN_CONSOLIDATE_FACT_H

#include "learn/consolidate/words.h"

typedef enum rvi_fact_kind { RVI_FACT_FREE, RVI_FACT_QUESTION, RVI_FACT_RELATION } rvi_fact_kind;

enum {
    RVI_FACT_MAX_QUESTION = 1024, /* bytes; a longer one is FREE */
    RVI_FACT_MAX_ANSWER = 80,     /* bytes of O */
    RVI_FACT_MAX_WORDS = 8,       /* of O */
};

typedef struct rvi_fact { /* all texts are valid UTF-8, terminated, never NULL but where said */
    rvi_fact_kind kind;
    const char *subject;  /* as written: "Kakovin", "Anna Kowalska"; "": none (FREE only) */
    bool is_name;         /* the subject is a name, or as rare as one */
    const char *relation; /* "musical instrument"; "where did hide the key"; "" when FREE */
    const char *answer;   /* O: "the banjo"; the whole text when FREE */
    const char *question; /* white space made simple; made from the fact if there was none */
    const char *sentence; /* what the model should say */
    const char *given;    /* the whole answer as it was taught; NULL: made from parts */
    size_t answer_at;     /* where O begins in the sentence; 0 when FREE */
    const char *ask;      /* the question as a clause, "where Kakovin hid the key"; NULL: none */
    rvi_arena texts;
} rvi_fact;

/* A correction. The question may be empty: then the answer may be a statement ("Anna's dog is
 * Rex."). RV_E_INVALID when the answer is empty. */
rv_status rvi_fact_read(rvi_fact **out, const rvi_tokenizer *t, const char *question,
                        size_t question_len, const char *answer, size_t answer_len,
                        rv_error *err) RVI_MUST_CHECK;
void rvi_fact_free(rvi_fact *f); /* accepts NULL */

#endif
