/* A small vocabulary: every byte, and tokens that cross the borders of strings and numbers. */
#ifndef TESTS_GRAMMAR_VOCAB_FIXTURE_H
#define TESTS_GRAMMAR_VOCAB_FIXTURE_H

#include <string.h>

#include "grammar/vocab.h"

static const char *const fixture_tokens[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\"}",
    "\", \"",
    "}]",
    "]}",
    ", ",
    ",\"",
    "[]",
    "{}",
    "null",
    "true",
    "false",
    "12",
    "123",
    "0.",
    "e1",
    "abc",
    "ab",
    "name",
    "\"a",
    "a\"",
    "\\u",
    "\\n",
    "\\u00",
    "\xC3\xA9",
    "\xE2\x82",
    "\xAC\"",
    "  ",
    "\n  ",
    "x/y",
    "-1",
    "[1",
    "1]",
    "1,",
    "}}",
    "a+b",
    "(a",
    "b)",
    "\xF0\x9F\x98\x80",
    "ab",
    "aaaaa",
    "abababab",
    "aaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aa\xE2\x82",
    "abcabc\xF0\x9F",
    "a\xC3",
    "aaaa\"",
    "a\\\"a\"",
};

enum { FIXTURE_BYTES = 256, FIXTURE_EOS = 256, FIXTURE_FIRST = 257 };
enum { FIXTURE_SIZE = FIXTURE_FIRST + RVI_COUNT(fixture_tokens) };

static const uint8_t *fixture_piece(void *ctx, int32_t id, uint32_t *len, bool *eos)
{
    static uint8_t byte;
    (void)ctx;
    *eos = id == FIXTURE_EOS;
    if (id == FIXTURE_EOS) return NULL;
    if (id >= FIXTURE_FIRST) {
        *len = (uint32_t)strlen(fixture_tokens[id - FIXTURE_FIRST]);
        return (const uint8_t *)fixture_tokens[id - FIXTURE_FIRST];
    }
    byte = (uint8_t)id;
    *len = 1;
    return &byte;
}

#endif
