/* amount.h - how much a test does.
 *
 * AMOUNT(full, few) is `few` under a sanitizer or an emulator (make cross), which make a program
 * ten to a hundred times slower, and `full` elsewhere. It is for repetitions that differ in numbers
 * alone: the first of them show what all show. Shapes, types, instruction sets and paths are run
 * everywhere.
 *
 * OFTEN(all, some) is `some` in make test, and `all` in make test-slow, which runs the programs
 * that have it once more, with TESTS_ALL set. */
#ifndef TESTS_HARNESS_AMOUNT_H
#define TESTS_HARNESS_AMOUNT_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESTS_EMULATED)
#define AMOUNT(full, few) (few)
#else
#define AMOUNT(full, few) (full)
#endif

#define OFTEN(all, some) (getenv("TESTS_ALL") ? (all) : (some))

#endif
