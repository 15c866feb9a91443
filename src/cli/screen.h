/* screen.h - shows an answer on a terminal, wrapped between words, and the progress while a long
 * prompt is read. Anywhere else text is written unchanged. */
#ifndef RVI_CLI_SCREEN_H
#define RVI_CLI_SCREEN_H

#include "cli/cli.h"

typedef struct cli_screen {
    FILE *f;
    bool wraps;
    /* the line so far */
    int column, n_spaces; /* spaces that come before the word, or are dropped at the line's end */
    int n_ticks;          /* ` at its beginning; -1: something else came */
    bool code;            /* between lines of ```, which stay as they are */
    char word[256];       /* held back until it is known where it ends */
    size_t word_len;
    int word_width;
    bool shows_prompt; /* the line about the prompt is on the terminal */
    double begun;      /* seconds */
} cli_screen;

void cli_screen_init(cli_screen *s, FILE *f);
/* Writes untrusted text (see cli_put_text); false: it could not be written. */
bool cli_screen_put(cli_screen *s, const char *text, size_t len);
bool cli_screen_end(cli_screen *s); /* writes what was held back */

/* Shows "reading 1,024 of 6,000 tokens" on standard error if that is a terminal, and erases it
 * before the first text. What takes but a moment shows nothing. */
void cli_screen_prompt(cli_screen *s, int n_done, int n_prompt);

#endif
