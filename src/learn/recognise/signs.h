/* signs.h - signs of numbers, which neither words nor their meanings show.
 *
 * "What is 7 - 3?" and "What is 7 - -3?" have the same words, and "$5" is as like "5" as it is like
 * "€5". Where a number stands in both texts, it must have the same sign there, and no other
 * currency. A number that only one of them has is left to the judge. */
#ifndef RVI_LEARN_RECOGNISE_SIGNS_H
#define RVI_LEARN_RECOGNISE_SIGNS_H

#include "base/utf8.h"

/* Has one of the texts a number with a sign or currency that the other has only with another? */
bool rvi_signs_differ(rvi_text a, rvi_text b);

#endif
