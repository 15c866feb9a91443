/* json.h - JSON text to an immutable tree and back.
 *
 * The tree lives in the caller's arena and keeps the order of object members. Nesting is capped at
 * RVI_JSON_DEPTH, the number of values by the arena's maximum. Strings are UTF-8 with an explicit
 * length (they may hold NUL) and a 0 byte behind it; a lone surrogate escape becomes U+FFFD,
 * invalid UTF-8 in the text is an error. */
#ifndef RVI_BASE_JSON_H
#define RVI_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

enum { RVI_JSON_DEPTH = 200 };

typedef enum rvi_json_kind {
    RVI_JSON_NULL,
    RVI_JSON_BOOL,
    RVI_JSON_INT,    /* no fraction or exponent in the text, and it fits 64 bits */
    RVI_JSON_NUMBER, /* any other number */
    RVI_JSON_STRING,
    RVI_JSON_ARRAY,
    RVI_JSON_OBJECT,
} rvi_json_kind;

typedef struct rvi_json rvi_json;
struct rvi_json {
    rvi_json_kind kind;
    uint32_t key_len;
    const char *key; /* inside an object: this member's name; otherwise NULL */
    /* INT and NUMBER: the digits as they stand in the caller's text, valid as long as it is */
    const char *number_text;
    size_t number_len;
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct {
            const char *data;
            size_t len;
        } string;
        struct {
            const rvi_json *items; /* members or elements, one after the other */
            size_t count;
        } list;
    } as;
};

/* Parses all of text (trailing white space allowed). what names the text in errors:
 * "tokenizer.json". */
rv_status rvi_json_parse(const rvi_json **out, const char *text, size_t len, rvi_arena *arena,
                         const char *what, rv_error *err) RVI_MUST_CHECK;

/* All getters accept NULL and wrong kinds, and then answer with NULL or the fallback. Repeated
 * keys: the last wins. */
const rvi_json *rvi_json_get(const rvi_json *object, const char *key);
size_t rvi_json_count(const rvi_json *list); /* array or object */
const rvi_json *rvi_json_at(const rvi_json *list, size_t index);
bool rvi_json_is(const rvi_json *v, rvi_json_kind kind);      /* false for NULL */
bool rvi_json_is_string(const rvi_json *v, const char *text); /* a string equal to text */
const char *rvi_json_string(const rvi_json *v, const char *fallback);
double rvi_json_number(const rvi_json *v, double fallback); /* INT or NUMBER */
int64_t rvi_json_int(const rvi_json *v, int64_t fallback);  /* INT, or NUMBER with a whole value */
bool rvi_json_bool(const rvi_json *v, bool fallback);

/* Values without a text of their own: a list or an object over items that outlive it, and a value
 * as the member of an object. */
rvi_json rvi_json_list(rvi_json_kind kind, const rvi_json *items, size_t n);
rvi_json rvi_json_named(rvi_json v, const char *key);

/* Writes a value without white space, its numbers as they stood in the text it was read from. */
bool rvi_json_write(rvi_buf *out, const rvi_json *v);
/* Writes a quoted JSON string. Invalid UTF-8 becomes U+FFFD; only ", \ and control characters are
 * escaped. */
bool rvi_json_write_string(rvi_buf *out, const char *s, size_t len);
/* Shortest decimal text that reads back as the same double ("1e-05", "0.1", "3.0"; NaN and infinity
 * become null). */
bool rvi_json_write_number(rvi_buf *out, double v);

#endif
