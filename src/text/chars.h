/* chars.h - properties, case mappings and widths of single characters. Properties and case are
 * those of Python's str methods. */
#ifndef RVI_TEXT_CHARS_H
#define RVI_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool rvi_char_space(uint32_t c); /* str.isspace, and \s of a pattern */
bool rvi_char_alnum(uint32_t c);
bool rvi_char_word(uint32_t c); /* \w: alphanumeric or _ */
bool rvi_char_lower(uint32_t c);
bool rvi_char_upper(uint32_t c);
bool rvi_char_title(uint32_t c); /* a title case letter such as U+01C5 */
bool rvi_char_cased(uint32_t c);
bool rvi_char_ignorable(uint32_t c); /* does not end a word when case is decided */
bool rvi_char_printable(uint32_t c);
bool rvi_char_line_end(uint32_t c); /* where str.splitlines splits */

/* The first letter of the general category. */
typedef enum rvi_char_class {
    RVI_CHAR_LETTER,
    RVI_CHAR_MARK,
    RVI_CHAR_NUMBER,
    RVI_CHAR_PUNCTUATION,
    RVI_CHAR_SYMBOL,
    RVI_CHAR_SEPARATOR,
    RVI_CHAR_OTHER
} rvi_char_class;
rvi_char_class rvi_char_class_of(uint32_t c);

/* Each writes what the character becomes, 1 to 3 characters, and returns how many. */
size_t rvi_char_to_upper(uint32_t c, uint32_t out[3]);
size_t rvi_char_to_lower(uint32_t c, uint32_t out[3]);
size_t rvi_char_to_title(uint32_t c, uint32_t out[3]);

/* Columns on a terminal: 2 for wide East Asian characters and most emoji, 0 for marks and other
 * characters that join the one before them, otherwise 1. */
int rvi_char_width(uint32_t c);

#endif
