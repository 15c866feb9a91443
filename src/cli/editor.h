/* editor.h - reading lines from a person at a terminal, by libedit: editing keys, history, pasted
 * text as one piece. One at a time in a process (the terminal is one). */
#ifndef RVI_CLI_EDITOR_H
#define RVI_CLI_EDITOR_H

#include "cli/cli.h"

typedef struct cli_editor cli_editor;

typedef enum cli_read {
    CLI_READ_LINE,
    CLI_READ_END,            /* Ctrl-D, or the terminal is gone */
    CLI_READ_INTERRUPT,      /* Ctrl-C in a line with text in it, which is dropped */
    CLI_READ_INTERRUPT_EMPTY /* Ctrl-C in an empty line */
} cli_read;

/* Resets the terminal if the program ends while the editor is using it. */
extern const char cli_editor_last_words[];

/* screen: a terminal. commands: the words that Tab completes after a slash, ended by NULL. history:
 * the file lines are kept in (made if it is not there, readable by its owner alone), NULL: only in
 * memory. escapes: the terminal understands them. */
rv_status cli_editor_new(cli_editor **out, FILE *screen, bool escapes, const char *const *commands,
                         const char *history, rv_error *err) RVI_MUST_CHECK;
void cli_editor_free(cli_editor **e);

/* A line without its end; text that was pasted, or recalled, may have line ends inside. bold: show
 * the prompt so; a space follows it. */
cli_read cli_editor_read(cli_editor *e, const char *prompt, bool bold, rvi_buf *line);
/* Adds a line to the history (arrow up). */
void cli_editor_remember(cli_editor *e, const char *text, size_t len);

#endif
