/* number.h - numbers to text and back, the same in every locale.
 *
 * printf and strtod use the decimal point of the locale, which the program that embeds the library
 * chooses. The library therefore formats and parses numbers here, correctly rounded (half to even)
 * from the exact decimal expansion of a double. */
#ifndef RVI_BASE_NUMBER_H
#define RVI_BASE_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

#include "base/compat.h"

/* As snprintf: flags - + blank # 0, width, precision, lengths hh h l ll z j t, conversions d i u x
 * X o c s p e E f F g G %. Returns the length of the whole text, or -1 for any other conversion. */
int rvi_snprintf(char *out, size_t cap, const char *fmt, ...) RVI_PRINTF(3, 4);
int rvi_vsnprintf(char *out, size_t cap, const char *fmt, va_list args) RVI_PRINTF(3, 0);

/* As strtod for decimal numbers, inf, infinity and nan, but without leading white space: *end (may
 * be NULL) points behind the number, or to text if there is no number. */
double rvi_number_parse(const char *text, const char **end);

#endif
