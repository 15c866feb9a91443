#include "text/json_path.h"

#include <string.h>

typedef struct level {
    bool object, named; /* named: the name of the member that is being read is complete */
    size_t index, key, key_len;
} level;

void rvi_json_path_at(const char *text, size_t len, size_t offset, rvi_buf *out)
{
    level levels[RVI_JSON_DEPTH + 1];
    size_t depth = 0, began = 0;
    bool quoted = false;
    for (size_t i = 0; i < len && i <= offset; i++) {
        level *top = depth ? &levels[depth - 1] : NULL;
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            if (!quoted && top && top->object && !top->named) {
                top->key = began;
                top->key_len = i - began;
            }
        } else if (c == '"') {
            quoted = true;
            began = i + 1;
        } else if (c == ':' && top) {
            top->named = true;
        } else if (c == ',' && top) {
            top->index++;
            top->named = false;
        } else if ((c == '{' || c == '[') && i < offset && depth < RVI_COUNT(levels)) {
            levels[depth++] = (level){.object = c == '{'};
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    for (size_t i = 0; i < depth; i++) {
        if (levels[i].object && !levels[i].named) break; /* among its members */
        rvi_buf_putc(out, '/');
        if (!levels[i].object) rvi_buf_printf(out, "%zu", levels[i].index);
        for (size_t k = 0; levels[i].object && k < levels[i].key_len; k++) {
            char c = text[levels[i].key + k];
            if (c == '~' || c == '/')
                rvi_buf_puts(out, c == '~' ? "~0" : "~1");
            else
                rvi_buf_putc(out, c);
        }
    }
    rvi_buf_puts(out, "");
}

const rvi_json *rvi_json_path_schema(const rvi_json *schema, const char *pointer)
{
    while (schema && *pointer == '/') {
        char name[128];
        size_t len = strcspn(++pointer, "/");
        if (len >= sizeof name || memchr(pointer, '~', len)) return NULL;
        memcpy(name, pointer, len);
        name[len] = 0;
        pointer += len;
        const rvi_json *member = rvi_json_get(rvi_json_get(schema, "properties"), name);
        schema = member ? member : rvi_json_get(schema, "items");
    }
    return schema;
}
