/* json_path.h - where in a JSON text a byte is, and what a schema says of that place. */
#ifndef RVI_TEXT_JSON_PATH_H
#define RVI_TEXT_JSON_PATH_H

#include "base/json.h"

/* Appends the JSON pointer of the value that the byte at offset belongs to ("/people/0/age"; of a
 * bracket that closes a list, that list; "" is the whole). The text is JSON. */
void rvi_json_path_at(const char *text, size_t len, size_t offset, rvi_buf *out);

/* What a schema declares at a pointer, by its plain words (properties, items); NULL: nothing that
 * is found so. */
const rvi_json *rvi_json_path_schema(const rvi_json *schema, const char *pointer);

#endif
