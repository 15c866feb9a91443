/* Samplers for programs that run their own loop, and the defaults of rv_sampling. */
#include "decode/sampler.h"

#include "api/api.h"

/* Zero is the default of every field; greedy turns the defaults off, not what the caller set. */
rv_status rvi_api_read_sampling(rv_sampling *full, const rv_sampling *given, rv_error *err)
{
    rv_sampling usual;
    rv_status st = rvi_api_read_struct(full, sizeof *full, given, "rv_sampling", err);
    if (st) return st;
    rvi_sampling_init(&usual, sizeof usual, full->greedy != 0);
    if (full->greedy) full->temperature = 0;
#define DEFAULT(field) full->field = full->field != 0 ? full->field : usual.field
    if (!full->greedy) DEFAULT(temperature);
    DEFAULT(top_p);
    DEFAULT(repetition_penalty);
    DEFAULT(repetition_window);
    DEFAULT(typical_p);
    DEFAULT(xtc_threshold);
    DEFAULT(dry_base);
    DEFAULT(dry_allowed_length);
    DEFAULT(mirostat_eta);
#undef DEFAULT
    return RV_OK;
}

struct rv_sampler {
    rv_model *m;
    rvi_sampler *s;
};

rv_status rv_sampler_new(rv_sampler **out, const rv_model *m, const rv_sampling *given,
                         rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_sampler_new: NULL argument");
    *out = NULL;
    rv_sampling o;
    rv_status st = rvi_api_need_decoder(m, err);
    if (!st) st = rvi_api_read_sampling(&o, given, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_sampler *s = rvi_zalloc(sizeof *s);
    if (s) {
        s->m = rvi_api_retain_model(m);
        st = rvi_sampler_new(&s->s, &o, m->model->hp.n_vocab, m->tokenizer, err);
    } else {
        st = rvi_nomem(err, "sampler");
    }
    rvi_api_leave_heap(heap);
    if (st)
        rv_sampler_free(&s);
    else
        *out = s;
    return st;
}

void rv_sampler_free(rv_sampler **handle)
{
    if (!handle || !*handle) return;
    rv_sampler *s = *handle;
    rv_model *m = s->m;
    *handle = NULL;
    rvi_sampler_free(s->s);
    rvi_free(s);
    rvi_api_release_model(m);
}

rv_status rv_sampler_pick(rv_sampler *s, float *logits, const int32_t *past, size_t n_past,
                          size_t n_prompt, int32_t *id, rv_error *err)
{
    if (!s || !logits || !id || (!past && n_past))
        return rvi_error(err, RV_E_INVALID, "rv_sampler_pick: NULL argument");
    int n_vocab = s->m->model->hp.n_vocab;
    if (n_prompt > n_past)
        return rvi_error(err, RV_E_INVALID, "a prompt of %zu among %zu tokens", n_prompt, n_past);
    for (size_t i = 0; i < n_past; i++)
        if (past[i] < 0 || past[i] >= n_vocab)
            return rvi_error(err, RV_E_INVALID, "token id %d is not in the vocabulary of %d",
                             past[i], n_vocab);
    return rvi_sampler_pick(s->s, logits, past, n_past, n_prompt, id, err);
}
