/* decimal.h - JSON numbers by their value: the texts that are at least, at most or equal to a
 * bound, or a multiple of a step. Exact: a number is its decimal digits, never a float. */
#ifndef RVI_GRAMMAR_DECIMAL_H
#define RVI_GRAMMAR_DECIMAL_H

#include "base/json.h"
#include "grammar/rx.h"

enum { RVI_DECIMAL_DIGITS = 400 };

typedef struct rvi_decimal {
    bool negative;
    uint16_t n_int, n_frac; /* no zeros in front (0 has no digits at all), none at the end */
    uint8_t digits[RVI_DECIMAL_DIGITS]; /* whole part, then fraction */
} rvi_decimal;

/* The value of a JSON number. False: it has too many digits. */
bool rvi_decimal_from_json(rvi_decimal *out, const rvi_json *v);
/* A whole number that fits, else false. */
bool rvi_decimal_to_uint(const rvi_decimal *d, uint32_t *out);

typedef enum rvi_bound { RVI_AT_LEAST, RVI_ABOVE, RVI_AT_MOST, RVI_BELOW, RVI_EQUAL } rvi_bound;

/* Numbers without an exponent whose value is related so to the bound; with one where the bound is 0
 * and included, because then only the sign matters. */
rvi_rx rvi_rx_bounded(rvi_rxs *p, rvi_arena *arena, rvi_bound how, const rvi_decimal *bound);
/* Multiples, without an exponent. RVI_RX_NONE and a failed pool if the step is not positive or has
 * too many digits. */
rvi_rx rvi_rx_multiple(rvi_rxs *p, rvi_arena *arena, const rvi_decimal *step);
bool rvi_rx_whole_multiple(const rvi_rxs *p, rvi_rx a); /* of a whole step, and nothing else */
rvi_rx rvi_rx_number(rvi_rxs *p);                       /* every JSON number */
rvi_rx rvi_rx_plain(rvi_rxs *p);                        /* without an exponent */
rvi_rx rvi_rx_integer(rvi_rxs *p);                      /* whole: 12, 12.0 */
rvi_rx rvi_rx_digits(rvi_rxs *p);                       /* whole, and without a fraction: 12 */

#endif
