#include "server/vectors.h"

#include <math.h>

#include "server/prompts.h"

size_t rvi_vectors_size(rvi_call *k, int part)
{
    float *v = k->parts[part].values;
    size_t n = k->parts[part].n_values, wanted = (size_t)k->wish.dimensions;
    double sum = 0;
    if (!wanted || wanted >= n) return n;
    for (size_t i = 0; i < wanted; i++) sum += (double)v[i] * (double)v[i];
    for (size_t i = 0; sum > 0 && i < wanted; i++) v[i] = (float)((double)v[i] / sqrt(sum));
    return wanted;
}

bool rvi_vectors_submit(rvi_call *k, const char *field, bool cut)
{
    rvi_prompt *texts;
    int n, n_embd = k->s->info.n_embd;
    size_t most = cut && k->s->n_context > 0 ? (size_t)k->s->n_context : SIZE_MAX;
    static const rv_pooling poolings[] = {[RVI_LLAMA_POOLING_MODEL] = RV_POOLING_DEFAULT,
                                          [RVI_LLAMA_POOLING_MEAN] = RV_POOLING_MEAN,
                                          [RVI_LLAMA_POOLING_LAST] = RV_POOLING_LAST,
                                          [RVI_LLAMA_POOLING_CLS] = RV_POOLING_FIRST};
    rvi_llama_pooling pooling = k->s->server->llama.pooling;
    if (pooling == RVI_LLAMA_POOLING_NONE)
        return rvi_problem_set(&k->problem, 400, "unsupported_parameter", NULL,
                               "a vector for each token (pooling=none) cannot be had");
    rv_embed_options o = {.size = sizeof o, .pooling = poolings[pooling], .refuse_long = !cut};
    if (k->wish.dimensions > n_embd)
        return rvi_problem_set(&k->problem, 400, "value_out_of_range", "dimensions",
                               "dimensions must be 1 to %d (got %d)", n_embd, k->wish.dimensions);
    if (!rvi_prompts_read(k->s->model, rvi_json_get(k->body, field), field, RV_TOKENIZE_WRAP,
                          &k->arena, &texts, &n, &k->problem) ||
        !rvi_call_parts(k, n, 0))
        return false;
    for (int i = 0; i < n; i++) {
        rv_request r = {.kind = RV_REQUEST_EMBED,
                        .ids = texts[i].ids,
                        .n_ids = RVI_MIN(texts[i].n, most),
                        .embed = &o};
        if (!rvi_call_submit(k, i, &r)) return false;
    }
    return true;
}
