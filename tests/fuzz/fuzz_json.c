/* Any bytes as JSON: no crash, and a text that is accepted reads back equal after writing it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(rvi_buf *out, const rvi_json *v)
{
    switch (v->kind) {
    case RVI_JSON_NULL: rvi_buf_puts(out, "null"); break;
    case RVI_JSON_BOOL: rvi_buf_puts(out, v->as.boolean ? "true" : "false"); break;
    case RVI_JSON_INT: rvi_buf_printf(out, "%lld", (long long)v->as.integer); break;
    case RVI_JSON_NUMBER: rvi_json_write_number(out, v->as.number); break;
    case RVI_JSON_STRING: rvi_json_write_string(out, v->as.string.data, v->as.string.len); break;
    case RVI_JSON_ARRAY:
    case RVI_JSON_OBJECT:
        rvi_buf_putc(out, v->kind == RVI_JSON_ARRAY ? '[' : '{');
        for (size_t i = 0; i < rvi_json_count(v); i++) {
            const rvi_json *item = rvi_json_at(v, i);
            if (i) rvi_buf_putc(out, ',');
            if (v->kind == RVI_JSON_OBJECT) {
                rvi_json_write_string(out, item->key, item->key_len);
                rvi_buf_putc(out, ':');
            }
            write_value(out, item);
        }
        rvi_buf_putc(out, v->kind == RVI_JSON_ARRAY ? ']' : '}');
        break;
    }
}

static bool same(const rvi_json *a, const rvi_json *b)
{
    if (a->kind != b->kind || a->key_len != b->key_len || !a->key != !b->key) return false;
    if (a->key && memcmp(a->key, b->key, a->key_len + 1u)) return false;
    switch (a->kind) {
    case RVI_JSON_NULL: return true;
    case RVI_JSON_BOOL: return a->as.boolean == b->as.boolean;
    case RVI_JSON_INT: return a->as.integer == b->as.integer;
    case RVI_JSON_NUMBER: return !memcmp(&a->as.number, &b->as.number, sizeof a->as.number);
    case RVI_JSON_STRING:
        return a->as.string.len == b->as.string.len &&
               !memcmp(a->as.string.data, b->as.string.data, a->as.string.len + 1);
    default: break;
    }
    if (rvi_json_count(a) != rvi_json_count(b)) return false;
    for (size_t i = 0; i < rvi_json_count(a); i++)
        if (!same(rvi_json_at(a, i), rvi_json_at(b, i))) return false;
    return true;
}

static void expect(bool ok)
{
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rvi_arena first = {.max = 16 << 20}, second = {.max = 16 << 20};
    rvi_buf text = {0};
    rv_error err = {0};
    const rvi_json *a, *b;
    rv_status st = rvi_json_parse(&a, (const char *)data, size, &first, "input", &err);
    expect(st ? !a && err.code == st && err.text[0] : a != NULL);
    if (!st) {
        write_value(&text, a);
        expect(!text.failed);
        expect(rvi_json_parse(&b, text.data, text.len, &second, "written", &err) == RV_OK);
        expect(same(a, b));
        if (a->kind == RVI_JSON_OBJECT && rvi_json_count(a)) {
            const rvi_json *m = rvi_json_at(a, 0), *found = rvi_json_get(a, m->key);
            expect(strlen(m->key) != m->key_len || found);
        }
    }
    rvi_buf_deinit(&text);
    rvi_arena_deinit(&first);
    rvi_arena_deinit(&second);
    return 0;
}
