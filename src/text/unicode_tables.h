/* unicode_tables.h - declarations of the generated character tables (tools/make_unicode_tables.py).
 * All are sorted. */
#ifndef RVI_TEXT_UNICODE_TABLES_H
#define RVI_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

typedef struct rvi_unicode_range {
    uint32_t first, last;
} rvi_unicode_range;

typedef struct rvi_unicode_class {
    uint32_t first, last;
    uint8_t value;
} rvi_unicode_class;

typedef struct rvi_unicode_decomposition {
    uint32_t cp;
    uint16_t offset;     /* into rvi_unicode_pool */
    uint8_t length_mark; /* length << 1 | 1 for a compatible decomposition */
} rvi_unicode_decomposition;

typedef struct rvi_unicode_pair {
    uint32_t first, second, composed;
} rvi_unicode_pair;

typedef struct rvi_unicode_mapping { /* first, first + step, ... last, each mapped to itself +
                                        distance */
    uint32_t first, last;
    uint8_t step;
    int32_t distance;
} rvi_unicode_mapping;

typedef struct rvi_unicode_property {
    const char *name;
    uint16_t offset, count; /* in rvi_unicode_ranges */
} rvi_unicode_property;

typedef struct rvi_unicode_expansion {
    uint32_t from, to[3]; /* 0 behind the last one */
} rvi_unicode_expansion;

/* As the generator numbers them. */
enum {
    RVI_CATEGORY_LU,
    RVI_CATEGORY_LL,
    RVI_CATEGORY_LT,
    RVI_CATEGORY_LM,
    RVI_CATEGORY_LO,
    RVI_CATEGORY_MN,
    RVI_CATEGORY_ME = 7,
    RVI_CATEGORY_ND,
    RVI_CATEGORY_NO = 10,
    RVI_CATEGORY_PO = 17,
    RVI_CATEGORY_SK = 20,
    RVI_CATEGORY_SO,
    RVI_CATEGORY_ZS, /* from here on: separators, controls, unassigned */
    RVI_CATEGORY_ZP = 24,
    RVI_CATEGORY_CF = 26,
};
/* The first rows of rvi_unicode_properties. */
typedef enum rvi_unicode_property_index {
    RVI_OTHER_ALPHABETIC,
    RVI_OTHER_UPPERCASE,
    RVI_OTHER_LOWERCASE
} rvi_unicode_property_index;

extern const uint32_t rvi_unicode_categories[];
extern const size_t rvi_unicode_n_categories;
extern const rvi_unicode_class rvi_unicode_ccc[];
extern const size_t rvi_unicode_n_ccc;
extern const rvi_unicode_decomposition rvi_unicode_decompositions[];
extern const size_t rvi_unicode_n_decompositions;
extern const uint32_t rvi_unicode_pool[];
extern const rvi_unicode_pair rvi_unicode_compositions[];
extern const size_t rvi_unicode_n_compositions;
extern const rvi_unicode_mapping rvi_unicode_fold[];
extern const size_t rvi_unicode_n_fold;
extern const rvi_unicode_mapping rvi_unicode_lower[];
extern const size_t rvi_unicode_n_lower;
extern const rvi_unicode_mapping rvi_unicode_upper[];
extern const size_t rvi_unicode_n_upper;
extern const rvi_unicode_expansion rvi_unicode_upper_long[], rvi_unicode_title_long[];
extern const size_t rvi_unicode_n_upper_long, rvi_unicode_n_title_long;
extern const rvi_unicode_range rvi_unicode_ranges[];
extern const rvi_unicode_property rvi_unicode_properties[];
extern const size_t rvi_unicode_n_properties;
extern const rvi_unicode_range rvi_unicode_wide[];
extern const size_t rvi_unicode_n_wide;

#endif
