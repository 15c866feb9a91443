#include "learn/recognise/rest.h"

#include <string.h>

#include "base/mem.h"
#include "learn/recognise/judge.h"
#include "learn/recognise/sentences.h"

rv_status rvi_rest_compare(rvi_embedder *embedder, rvi_text question, const rvi_reading *answer,
                           rvi_text request, float *out, rv_error *err)
{
    rvi_reading *a = NULL, *b = NULL;
    rv_status st = rvi_reading_new(&a, embedder, question.data, question.len, false, err);
    if (!st) st = rvi_reading_new(&b, embedder, request.data, request.len, false, err);
    /* what has no words asks for nothing, and of a text too long to be read the end is missing */
    bool tells = !st && a->n && b->n && !a->cut && !b->cut;
    float p = tells ? rvi_judge(a, answer, b) : *out;
    if (tells && embedder) {
        rvi_embedder_pair pair = {a->ids, b->ids, (size_t)a->n_ids, (size_t)b->n_ids, 0};
        st = rvi_embedder_compare(embedder, &pair, 1, err);
        p = rvi_judge_compared(p, pair.odds);
    }
    rvi_reading_free(a);
    rvi_reading_free(b);
    *out = p;
    return st;
}

rv_status rvi_rest_judge(rvi_embedder *embedder, const char *question, const rvi_reading *answer,
                         const char *request, size_t len, float *out, rv_error *err)
{
    rvi_buf asked = {0}, taught = {0};
    size_t n = strlen(question);
    bool share = rvi_sentences_apart(question, n, request, len, &taught);
    (void)rvi_sentences_apart(request, len, question, n, &asked);
    rv_status st = taught.failed || asked.failed ? rvi_nomem(err, "sentences") : RV_OK;
    if (!st && share && taught.len && asked.len)
        st = rvi_rest_compare(embedder, (rvi_text){taught.data, taught.len}, answer,
                              (rvi_text){asked.data, asked.len}, out, err);
    rvi_buf_deinit(&asked);
    rvi_buf_deinit(&taught);
    return st;
}
