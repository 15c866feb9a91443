/* fuzz_fact.c - a stranger's correction: the question up to the first zero byte, the answer behind
 * it; read as a fact, then put into words. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../learn/toy_tokenizer.h"
#include "base/utf8.h"
#include "learn/consolidate/wordings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text)
{
    for (size_t i = 0, len = strlen(text); i < len;) {
        uint32_t cp;
        bool valid;
        i += rvi_utf8_decode(text + i, len - i, &cp, &valid);
        if (!valid) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rvi_tokenizer *t;
    if (!t) t = toy_tokenizer();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t q_len = zero ? (size_t)(zero - data) : 0, from = zero ? q_len + 1 : 0;
    rvi_fact *f;
    rv_error err;
    if (rvi_fact_read(&f, t, (const char *)data, q_len, (const char *)data + from, size - from,
                      &err)) {
        if (f) abort();
        return 0;
    }
    check(f->subject);
    check(f->relation);
    check(f->answer);
    check(f->sentence);
    if (f->answer_at >= strlen(f->sentence)) abort();
    if (f->kind != RVI_FACT_FREE && (!*f->subject || !*f->relation || !*f->answer)) abort();
    const rvi_fact *store[] = {f};
    rvi_wordings w = {0};
    rvi_rng rng = {1};
    rvi_fence fence = {3, 1, 1, true};
    if (rvi_wordings_teach_from(&w, f, store, 1, NULL, 0, 40, &rng, &err) || !w.n) abort();
    if (rvi_wordings_negatives(&w, store, 1, &fence, &rng, &err)) abort();
    for (size_t i = 0; i < w.n; i++) {
        if (w.data[i].user) check(w.data[i].user);
        if (w.data[i].reply) check(w.data[i].reply);
    }
    rvi_wordings_deinit(&w);
    rvi_fact_free(f);
    return 0;
}
