/* Any bytes as a Lark grammar. */
#include "fuzz/grammar_fuzz.h"

static rv_status make(rvi_grammar **out, const rvi_vocab *vocab, const char *text, size_t len,
                      rv_error *err)
{
    return rvi_grammar_lark(out, vocab, text, len, NULL, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(make, data, size);
}
