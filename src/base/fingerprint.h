/* fingerprint.h - a fast 64-byte checksum of a block of bytes, computed at the speed of memory.
 *
 * The block is read as rows of eight little-endian words (the last row filled up with zeros); word
 * i of every row goes into lane i:  lane = rotate((lane xor word) * odd constant, 29).  Each step
 * is one-to-one in the lane and in the word, so a single change always shows, and several in one
 * lane cancel out by chance once in 2^64. Not a cryptographic hash: two different blocks with one
 * fingerprint can be made on purpose. About 8 bytes a cycle in plain C, where SHA-256 takes 12
 * cycles a byte. */
#ifndef RVI_BASE_FINGERPRINT_H
#define RVI_BASE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

enum { RVI_FINGERPRINT_WORDS = 8 };

void rvi_fingerprint(const void *bytes, size_t len, uint64_t out[RVI_FINGERPRINT_WORDS]);
/* Adds the length and the fingerprint of these bytes to a hash. */
void rvi_fingerprint_add(rvi_sha256 *h, const void *bytes, size_t len);

#endif
