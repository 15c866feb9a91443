/* rx_parse.h - regular expressions of ECMA-262 (with the u flag's code points), as JSON Schema has
 * them, to languages.
 *
 * Understood: everything regular, anchors at the edges of the pattern or of alternatives, and
 * look-ahead that reaches to the pattern's end. Refused, with the reason: back references,
 * look-behind, word boundaries, anchors in the middle, inline flags. */
#ifndef RVI_GRAMMAR_RX_PARSE_H
#define RVI_GRAMMAR_RX_PARSE_H

#include "grammar/rx.h"

/* whole: the pattern must match the whole text; otherwise a part of it. RV_E_UNSUPPORTED for what
 * is refused, RV_E_CONFIG for what is no pattern. */
rv_status rvi_rx_parse(rvi_rxs *p, const char *pattern, size_t len, bool whole, rvi_rx *out,
                       rv_error *err) RVI_MUST_CHECK;

#endif
