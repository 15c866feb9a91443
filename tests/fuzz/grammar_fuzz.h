/* What the fuzzers of grammars share: any bytes as a grammar of one kind. No crash; a token is in
 * the mask exactly if it can be read, what is forced can be read, and what ends a text does. */
#ifndef RVT_GRAMMAR_FUZZ_H
#define RVT_GRAMMAR_FUZZ_H

#include <stdlib.h>

#include "grammar/grammar.h"
#include "grammar/vocab_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool ok)
{
    if (!ok) abort();
}

/* A few tokens, of which the mask says the same as reading them. */
static bool check_some(rvi_grammar *g, uint32_t state, const uint64_t *given, uint32_t seed)
{
    uint64_t mask[FIXTURE_SIZE / 64 + 1];
    memcpy(mask, given, sizeof mask);
    for (int i = 0; i < 24; i++) {
        int32_t id = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 8) % FIXTURE_SIZE;
        uint32_t next;
        if (id == FIXTURE_EOS) continue;
        if (rvi_grammar_token(g, state, id, &next, NULL)) return false; /* a limit */
        expect((mask[id / 64] >> (id % 64) & 1) == (next != 0));
    }
    return true;
}

/* What must come, and what would end the text here. */
static void check_ends(rvi_grammar *g, uint32_t state)
{
    rvi_buf text = {0};
    uint32_t after, then;
    bool found;
    if (!rvi_grammar_forced(g, state, 64, &text, &after, NULL) &&
        !rvi_grammar_text(g, state, text.data, text.len, &then, NULL))
        expect(then == after);
    text.len = 0;
    if (!rvi_grammar_finish(g, state, &text, &found, NULL) && found &&
        !rvi_grammar_text(g, state, text.data, text.len, &then, NULL))
        expect(then && rvi_grammar_ends(g, then));
    rvi_buf_deinit(&text);
}

/* Follows allowed tokens for some steps, chosen by the input's own bytes. */
static void follow(rvi_grammar *g, const uint8_t *data, size_t size)
{
    uint32_t state = rvi_grammar_start(g), next;
    const uint64_t *mask;
    rv_error err;
    for (size_t i = 0; i < 12 && state; i++) {
        if (rvi_grammar_mask(g, state, &mask, &err)) return; /* a limit */
        if (!check_some(g, state, mask, data[i % size] + 256u * (uint32_t)i)) return;
        if (rvi_grammar_mask(g, state, &mask, &err)) return;
        int32_t id = (int32_t)((data[i % size] * 7u + i) % FIXTURE_SIZE), tried = 0;
        while (tried++ < FIXTURE_SIZE && (id == FIXTURE_EOS || !(mask[id / 64] >> (id % 64) & 1)))
            id = (id + 1) % FIXTURE_SIZE;
        if (tried > FIXTURE_SIZE) return;
        if (rvi_grammar_token(g, state, id, &next, &err)) return;
        expect(next != 0);
        state = next;
    }
    if (size % 8 == 0) check_ends(g, state); /* it may search for long */
}

typedef rv_status (*grammar_source)(rvi_grammar **out, const rvi_vocab *vocab, const char *text,
                                    size_t len, rv_error *err);

static int fuzz_grammar(grammar_source make, const uint8_t *data, size_t size)
{
    static rvi_vocab *vocab;
    rvi_grammar *g = NULL;
    rv_error err = {0};
    if (!vocab) expect(rvi_vocab_new(&vocab, FIXTURE_SIZE, fixture_piece, NULL, NULL) == RV_OK);
    if (!size) return 0;
    rv_status st = make(&g, vocab, (const char *)data, size, &err);
    expect(st ? !g && err.text[0] : g != NULL);
    if (g) follow(g, data, size);
    rvi_grammar_free(g);
    return 0;
}

#endif
