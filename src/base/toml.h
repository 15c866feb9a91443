/* toml.h - the lines of settings files: a part of TOML that has [table] and name = value. */
#ifndef RVI_BASE_TOML_H
#define RVI_BASE_TOML_H

#include <stdbool.h>

typedef struct rvi_toml_line {
    char *name, *value; /* in the line itself; both NULL: it is empty, or a comment */
    bool table;         /* [name] */
    bool quoted;        /* the value is a text, not a number, true or false */
} rvi_toml_line;

/* Reads a line, without its end, and writes into it. False: it is neither a setting, nor a table,
 * nor empty. */
bool rvi_toml_read_line(char *text, rvi_toml_line *out);

#endif
