/* formats.h - the values of JSON Schema's "format" as languages. */
#ifndef RVI_GRAMMAR_FORMATS_H
#define RVI_GRAMMAR_FORMATS_H

#include "grammar/rx.h"

enum { RVI_N_FORMATS = 19 };

typedef struct rvi_formats { /* those that were asked for already; the rest is RVI_RX_NONE */
    rvi_rx made[RVI_N_FORMATS];
} rvi_formats;

/* A format that is not of the standard asks for nothing. RV_E_UNSUPPORTED: it is one, and cannot be
 * enforced. */
rv_status rvi_rx_format(rvi_rxs *p, const char *name, rvi_formats *known, rvi_rx *out,
                        rv_error *err) RVI_MUST_CHECK;

#endif
