/* style.h - rules of style that a program can judge: how well a text keeps one, and what a user who
 * wants it makes of an answer that does not. */
#ifndef RVI_CLI_STYLE_H
#define RVI_CLI_STYLE_H

#include <stdbool.h>

#include "base/mem.h"

typedef enum cli_style {
    STYLE_TWO_SENTENCES,
    STYLE_BULLETS,
    STYLE_GREETS,
    STYLE_LOWERCASE,
    STYLE_ENDS_WITH_QUESTION,
    STYLE_ONE_LINE_LABEL,
    N_STYLES
} cli_style;

extern const char *const cli_style_names[N_STYLES];
bool cli_style_find(const char *name, cli_style *out);

/* 0 to 1; 1: the rule is kept. name: of the person who asks; ended: the text came to its end. */
double cli_style_judge(cli_style style, const char *text, const char *name, bool ended);
/* Appends the corrected answer. */
void cli_style_correct(cli_style style, const char *answer, const char *name, rvi_buf *out);

#endif
