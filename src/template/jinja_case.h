/* jinja_case.h - properties and case mappings of characters, as Python's str methods see them. */
#ifndef RVI_TEMPLATE_JINJA_CASE_H
#define RVI_TEMPLATE_JINJA_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rvi_jcase_run {
    uint32_t first, last, step; /* first, first + step, ..., last */
} rvi_jcase_run;

typedef struct rvi_jcase_map {
    uint32_t first, last, step;
    int32_t delta; /* to the image */
} rvi_jcase_map;

typedef struct rvi_jcase_long {
    uint32_t from, a, b, c; /* 0 after the end */
} rvi_jcase_long;

/* Tables beyond ASCII, ascending and without overlap (jinja_case_data.c). */
extern const rvi_jcase_run rvi_jcase_alpha[], rvi_jcase_numeric[], rvi_jcase_digit[],
    rvi_jcase_is_lower[], rvi_jcase_is_upper[], rvi_jcase_is_title[], rvi_jcase_ignorable[],
    rvi_jcase_unprintable[];
extern const size_t rvi_jcase_n_alpha, rvi_jcase_n_numeric, rvi_jcase_n_digit, rvi_jcase_n_is_lower,
    rvi_jcase_n_is_upper, rvi_jcase_n_is_title, rvi_jcase_n_ignorable, rvi_jcase_n_unprintable;
extern const rvi_jcase_map rvi_jcase_to_upper[], rvi_jcase_to_lower[];
extern const size_t rvi_jcase_n_to_upper, rvi_jcase_n_to_lower;
extern const rvi_jcase_long rvi_jcase_upper_long[], rvi_jcase_lower_long[], rvi_jcase_title_long[];
extern const size_t rvi_jcase_n_upper_long, rvi_jcase_n_lower_long, rvi_jcase_n_title_long;

bool rvi_jchar_space(uint32_t c); /* str.isspace, and \s of a pattern */
bool rvi_jchar_alpha(uint32_t c);
bool rvi_jchar_alnum(uint32_t c);
bool rvi_jchar_digit(uint32_t c); /* str.isdigit */
bool rvi_jchar_word(uint32_t c);  /* \w: alphanumeric or _ */
bool rvi_jchar_lower(uint32_t c);
bool rvi_jchar_upper(uint32_t c);
bool rvi_jchar_title(uint32_t c); /* a title case letter such as U+01C5 */
bool rvi_jchar_cased(uint32_t c);
bool rvi_jchar_ignorable(uint32_t c); /* does not end a word when case is decided */
bool rvi_jchar_printable(uint32_t c);
bool rvi_jchar_line_end(uint32_t c); /* where str.splitlines splits */

/* The image of one character: 1 to 3 of them. Returns how many. */
size_t rvi_jchar_to_upper(uint32_t c, uint32_t out[3]);
size_t rvi_jchar_to_lower(uint32_t c, uint32_t out[3]);
size_t rvi_jchar_to_title(uint32_t c, uint32_t out[3]);

#endif
