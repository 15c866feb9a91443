#include "learn/journal/pieces.h"

#include <stdio.h>

enum { PIECE = RVI_STORE_MAX_RECORD / 2, KEY = RVI_STORE_MAX_KEY };

static size_t key_of(const char *name, int digits, size_t piece, char key[KEY])
{
    return (size_t)snprintf(key, KEY, "%s.%0*zu", name, digits, piece);
}

rv_status rvi_pieces_put(rvi_store *s, const char *table, const char *name, int digits,
                         const void *data, size_t len, rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= len / PIECE; i++)
        st = rvi_store_put(s, table, key, key_of(name, digits, i, key),
                           (const char *)data + i * PIECE, RVI_MIN(len - i * PIECE, (size_t)PIECE),
                           err);
    return st;
}

rv_status rvi_pieces_get(rvi_store *s, const char *table, const char *name, int digits,
                         rvi_buf *out, rv_error *err)
{
    char key[KEY];
    bool found, more = true;
    rv_status st = RV_OK;
    for (size_t i = 0; !st && more; i++) {
        size_t before = out->len;
        st = rvi_store_get(s, table, key, key_of(name, digits, i, key), out, &found, err);
        more = out->len - before == PIECE;
    }
    return st;
}

rv_status rvi_pieces_remove(rvi_store *s, const char *table, const char *name, int digits,
                            size_t len, rv_error *err)
{
    char key[KEY];
    rv_status st = RV_OK;
    for (size_t i = 0; !st && i <= len / PIECE; i++)
        st = rvi_store_remove(s, table, key, key_of(name, digits, i, key), err);
    return st;
}
