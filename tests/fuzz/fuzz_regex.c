/* Any bytes as a regular expression. */
#include "fuzz/grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(rvi_grammar_regex, data, size);
}
