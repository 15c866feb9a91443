/* chars.h - properties and case mappings of single characters, as Python's str methods see them. */
#ifndef RVI_TEXT_CHARS_H
#define RVI_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool rvi_char_space(uint32_t c); /* str.isspace, and \s of a pattern */
bool rvi_char_alpha(uint32_t c);
bool rvi_char_alnum(uint32_t c);
bool rvi_char_word(uint32_t c); /* \w: alphanumeric or _ */
bool rvi_char_lower(uint32_t c);
bool rvi_char_upper(uint32_t c);
bool rvi_char_title(uint32_t c); /* a title case letter such as U+01C5 */
bool rvi_char_cased(uint32_t c);
bool rvi_char_ignorable(uint32_t c); /* does not end a word when case is decided */
bool rvi_char_printable(uint32_t c);
bool rvi_char_line_end(uint32_t c); /* where str.splitlines splits */

/* The image of one character: 1 to 3 of them. Returns how many. */
size_t rvi_char_to_upper(uint32_t c, uint32_t out[3]);
size_t rvi_char_to_lower(uint32_t c, uint32_t out[3]);
size_t rvi_char_to_title(uint32_t c, uint32_t out[3]);

#endif
