/* pieces.h - values of any size in a table of a store: under NAME.0, NAME.1 ... pieces of full size
 * and a shorter one behind them. digits: of a piece's number in its key, at least. Several of them
 * change together in a transaction of the caller. */
#ifndef RVI_LEARN_PIECES_H
#define RVI_LEARN_PIECES_H

#include "learn/journal/store.h"

rv_status rvi_pieces_put(rvi_store *s, const char *table, const char *name, int digits,
                         const void *data, size_t len, rv_error *err) RVI_MUST_CHECK;
/* Appends what is there. */
rv_status rvi_pieces_get(rvi_store *s, const char *table, const char *name, int digits,
                         rvi_buf *out, rv_error *err) RVI_MUST_CHECK;
/* len: at least that of the value. */
rv_status rvi_pieces_remove(rvi_store *s, const char *table, const char *name, int digits,
                            size_t len, rv_error *err) RVI_MUST_CHECK;

#endif
