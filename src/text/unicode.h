/* unicode.h - sets of code points by property, case folding, and the four normalization forms. The
 * data come from the generated tables (unicode_tables.h). */
#ifndef RVI_TEXT_UNICODE_H
#define RVI_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"
#include "text/unicode_tables.h"

enum { RVI_UNICODE_LAST = 0x10FFFF };

/* A set of code points. {0} is empty. While ranges are added it is "open"; rvi_cpset_close sorts
 * and joins them, and only a closed set can be asked, inverted, folded or intersected. */
typedef struct rvi_cpset {
    rvi_unicode_range *ranges;
    size_t n, cap;
    uint8_t low[32]; /* bits of the code points below 256 */
} rvi_cpset;

void rvi_cpset_deinit(rvi_cpset *s);
bool rvi_cpset_add(rvi_cpset *s, uint32_t first, uint32_t last); /* false: out of memory */
bool rvi_cpset_add_set(rvi_cpset *s, const rvi_cpset *other);
void rvi_cpset_close(rvi_cpset *s);
bool rvi_cpset_invert(rvi_cpset *s);
bool rvi_cpset_intersect(rvi_cpset *s, const rvi_cpset *other); /* both closed */
bool rvi_cpset_fold(rvi_cpset *s); /* adds everything that differs only by case (simple folding) */

/* Adds the members of a property: a general category ("L", "Lu", "Letter"), a script of the table
 * ("Han"), or a derived one ("Alphabetic", "White_Space", "Word", ...). Letter case, '_', '-' and
 * spaces in the name do not matter. */
typedef enum rvi_property_found {
    RVI_PROPERTY_OK,
    RVI_PROPERTY_UNKNOWN,
    RVI_PROPERTY_NOMEM
} rvi_property_found;
rvi_property_found rvi_cpset_add_property(rvi_cpset *s, const char *name, size_t len);

bool rvi_cpset_search(const rvi_cpset *s, uint32_t cp); /* by binary search */

static inline bool rvi_cpset_has(const rvi_cpset *s, uint32_t cp)
{
    return cp < 256 ? s->low[cp >> 3] >> (cp & 7) & 1 : rvi_cpset_search(s, cp);
}

uint32_t rvi_unicode_to_lower(uint32_t cp); /* one code point to one code point */
bool rvi_unicode_is_space(uint32_t cp);     /* White_Space */

uint32_t rvi_unicode_combining_class(uint32_t cp); /* 0: it stands by itself */

typedef enum rvi_unicode_form { RVI_NFC, RVI_NFD, RVI_NFKC, RVI_NFKD } rvi_unicode_form;

/* Appends the normalized text. text must be valid UTF-8. */
rv_status rvi_unicode_normalize(rvi_unicode_form form, const char *text, size_t len, rvi_buf *out,
                                rv_error *err) RVI_MUST_CHECK;

#endif
