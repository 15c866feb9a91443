/* amount.h - how much a test does.
 *
 * AMOUNT(full, few) is `few` under a sanitizer, which makes a program ten to thirty times slower,
 * and `full` elsewhere. It is for repetitions that differ in numbers alone: a sanitizer sees in the
 * first of them what it sees in all. Shapes, types, instruction sets and paths are run in both. */
#ifndef TESTS_HARNESS_AMOUNT_H
#define TESTS_HARNESS_AMOUNT_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AMOUNT(full, few) (few)
#else
#define AMOUNT(full, few) (full)
#endif

#endif
