/* natural.h - corrections as people make them: what is taught, and what is asked afterwards. */
#ifndef RVI_EVAL_NATURAL_H
#define RVI_EVAL_NATURAL_H

#include "eval/eval.h"

/* What a question is to a correction. */
typedef enum natural_kind {
    NATURAL_EDIT,      /* the very question that was corrected */
    NATURAL_WORDING,   /* another wording of it */
    NATURAL_NEIGHBOUR, /* another question, near to it: its answer must not change */
    NATURAL_SAME,      /* something else about the same subject: nor must this one's */
    NATURAL_N_KINDS
} natural_kind;

typedef struct natural_correction {
    const char *id, *class, *lang; /* "-" where the file has none */
    const char *question, *answer;
    eval_texts accept; /* an answer that has one of these is right */
    eval_texts asked[NATURAL_N_KINDS];
} natural_correction;

typedef struct natural_file {
    natural_correction *items; /* rvi_free */
    size_t n, cap;
} natural_file;

/* Appends the corrections of a file, one JSON object a line, up to e's limit in all. An error names
 * the line. The texts live as long as e's arena. */
rv_status natural_load(eval *e, const char *path, natural_file *f, rv_error *err) RVI_MUST_CHECK;

#endif
