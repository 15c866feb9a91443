/* style.h - rules of style that a program can judge: how well a text keeps one, and what a user who
 * wants it makes of an answer that does not. */
#ifndef RVI_EVAL_STYLE_H
#define RVI_EVAL_STYLE_H

#include <stdbool.h>

#include "base/mem.h"

typedef enum style_rule {
    STYLE_TWO_SENTENCES,
    STYLE_BULLETS,
    STYLE_GREETS,
    STYLE_LOWERCASE,
    STYLE_ENDS_WITH_QUESTION,
    STYLE_ONE_LINE_LABEL,
    N_STYLES
} style_rule;

extern const char *const style_names[N_STYLES];
bool style_find(const char *name, style_rule *out);

/* 0 to 1; 1: the rule is kept. name: of the person who asks; ended: the text came to its end. */
double style_judge(style_rule style, const char *text, const char *name, bool ended);
/* Appends the corrected answer. */
void style_correct(style_rule style, const char *answer, const char *name, rvi_buf *out);

#endif
