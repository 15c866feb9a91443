/* utf8.h - texts, and one code point at a time from bytes that may be anything. */
#ifndef RVI_BASE_UTF8_H
#define RVI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rvi_text { /* UTF-8, not terminated; {0}: none */
    const char *data;
    size_t len;
} rvi_text;

/* Decodes at s (len > 0 bytes). Returns the bytes used (1..4) and sets *cp. Bytes that are not
 * UTF-8 (overlong, surrogate, above U+10FFFF, cut off) give U+FFFD, *valid = false, and the length
 * of the maximal invalid part (Unicode's recommended practice, so one U+FFFD each). valid may be
 * NULL. */
size_t rvi_utf8_decode(const char *s, size_t len, uint32_t *cp, bool *valid);

/* Writes 1..4 bytes, returns how many. A surrogate or a value above U+10FFFF is written as U+FFFD.
 */
size_t rvi_utf8_encode(uint32_t cp, char out[4]);

/* How many bytes at the end of s are the beginning of a character that more bytes could complete.
 */
size_t rvi_utf8_incomplete(const char *s, size_t len);

size_t rvi_utf8_count(const char *s, size_t len); /* code points, as rvi_utf8_decode sees them */

#endif
