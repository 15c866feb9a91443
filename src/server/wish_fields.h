/* wish_fields.h - the names of options, with their types and ranges: one table for all dialects. */
#ifndef RVI_SERVER_WISH_FIELDS_H
#define RVI_SERVER_WISH_FIELDS_H

#include <stddef.h>

typedef enum rvi_field_kind {
    RVI_FIELD_FLAG,
    RVI_FIELD_INT,
    RVI_FIELD_FLOAT,
    RVI_FIELD_SEED,
    RVI_FIELD_STOPS,
    RVI_FIELD_BIAS,
    RVI_FIELD_USAGE,
    RVI_FIELD_LOGPROBS,
    RVI_FIELD_FORM,
    RVI_FIELD_OPTIONS, /* an object of options */
    RVI_FIELD_OWN,     /* read by the handler, or without an effect on the answer */
    RVI_FIELD_REFUSED
} rvi_field_kind;

typedef struct rvi_field {
    const char *name;
    unsigned what; /* requests that have it: RVI_FOR_... */
    rvi_field_kind kind;
    double min, max;
    size_t at;            /* in the wish */
    const char *harmless; /* of REFUSED: the words, between blanks, that ask for nothing */
} rvi_field;

const rvi_field *rvi_field_find(unsigned what, const char *name); /* NULL: not known */

#endif
