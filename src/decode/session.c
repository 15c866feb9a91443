#include "decode/session.h"

#include <string.h>

#include "base/os.h"
#include "decode/stop.h"

enum { DEFAULT_CHUNK = 256 };

struct rvi_session {
    const rvi_model *m;
    const rvi_tokenizer *t;
    const rvi_ids *eos;
    rvi_session_options o;
    rvi_pages *pool;
    rvi_seq seq;
    rvi_ids past; /* the tokens whose keys and values are in seq, and the one to compute next */
    rvi_workspace *ws;
    rvi_row *rows;
    int rope_set;
    const rvi_adapter_set *adapters;
};

rv_status rvi_session_new(rvi_session **out, const rvi_model *m, const rvi_tokenizer *t,
                          const rvi_ids *eos, const rvi_session_options *o, rv_error *err)
{
    *out = NULL;
    if (o->n_context < 1 || o->n_context > RVI_MAX_CONTEXT)
        return rvi_error(err, RV_E_CONFIG, "a context of %d tokens is not possible", o->n_context);
    rvi_session *s = rvi_zalloc(sizeof *s);
    if (!s) return rvi_nomem(err, "session");
    s->m = m;
    s->t = t;
    s->eos = eos;
    s->o = *o;
    if (s->o.chunk < 1) s->o.chunk = DEFAULT_CHUNK;
    s->o.chunk = RVI_MIN(s->o.chunk, o->n_context);
    rvi_kv_spec spec =
        rvi_model_kv_spec(m, o->kv_type, (o->n_context + RVI_PAGE_TOKENS - 1) / RVI_PAGE_TOKENS);
    rv_status st = rvi_pages_new(&s->pool, m->be, &spec, 0, err);
    if (!st) st = rvi_seq_init(&s->seq, s->pool, o->n_context, err);
    if (!st) st = rvi_workspace_new(&s->ws, m, s->o.chunk, 1, err);
    if (!st && !(s->rows = rvi_alloc_array((size_t)s->o.chunk, sizeof *s->rows)))
        st = rvi_nomem(err, "session");
    if (st)
        rvi_session_free(s);
    else
        *out = s;
    return st;
}

void rvi_session_free(rvi_session *s)
{
    if (!s) return;
    rvi_seq_deinit(&s->seq);
    rvi_pages_free(s->pool);
    rvi_workspace_free(s->ws);
    rvi_ids_deinit(&s->past);
    rvi_free(s->rows);
    rvi_free(s);
}

void rvi_generated_deinit(rvi_generated *g)
{
    rvi_ids_deinit(&g->ids);
    rvi_buf_deinit(&g->text);
}

/* Keeps the common beginning of past and prompt, all but the last token, whose logits are wanted.
 */
static int sync_prefix(rvi_session *s, const int32_t *prompt, size_t n_prompt, int rope_set,
                       const rvi_adapter_set *adapters)
{
    size_t same = 0, have = (size_t)s->seq.len;
    if (s->rope_set == rope_set && s->adapters == adapters)
        while (same < have && same + 1 < n_prompt && s->past.data[same] == prompt[same]) same++;
    s->rope_set = rope_set;
    s->adapters = adapters;
    rvi_seq_truncate(&s->seq, (int)same);
    s->past.len = same;
    return (int)same;
}

/* Computes past[seq.len ..] in chunks; *logits: those of the last one. */
static rv_status advance(rvi_session *s, float **logits, rv_error *err)
{
    int n = 0;
    while ((size_t)s->seq.len < s->past.len) {
        int first = s->seq.len;
        n = (int)RVI_MIN(s->past.len - (size_t)first, (size_t)s->o.chunk);
        rv_status st = rvi_seq_extend(&s->seq, n, err);
        if (st) return st;
        for (int i = 0; i < n; i++)
            s->rows[i] = (rvi_row){.seq = &s->seq,
                                   .pos = first + i,
                                   .token = s->past.data[first + i],
                                   .rope_set = s->rope_set,
                                   .adapters = s->adapters};
        rvi_model_forward(s->m, s->ws, s->rows, n);
    }
    int32_t last = n - 1;
    *logits = (float *)(uintptr_t)rvi_model_logits(s->m, s->ws, s->rows, &last,
                                                   1); /* ours to change until the next call */
    return RV_OK;
}

static bool ends(const rvi_session *s, int32_t id)
{
    for (size_t i = 0; i < s->eos->len; i++)
        if (s->eos->data[i] == id) return true;
    return false;
}

static rv_status check_prompt(const rvi_session *s, const int32_t *prompt, size_t n_prompt,
                              rv_error *err)
{
    if (!n_prompt) return rvi_error(err, RV_E_GENERATION, "the prompt is empty");
    if (n_prompt >= (size_t)s->o.n_context)
        return rvi_error(err, RV_E_GENERATION,
                         "the prompt has %zu tokens, but the context holds %d: shorten it or ask "
                         "for a larger context",
                         n_prompt, s->o.n_context);
    for (size_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= s->m->hp.n_vocab)
            return rvi_error(err, RV_E_GENERATION, "token id %d is not in the vocabulary of %d",
                             prompt[i], s->m->hp.n_vocab);
    return RV_OK;
}

typedef struct stream {
    const rvi_generate_options *o;
    rvi_generated *out;
    rvi_detok detok;
    rvi_stop stop;
    rvi_buf piece;
    bool text;
} stream;

/* Hands the text that became certain to the caller. */
static rv_status emit(stream *st, int32_t id, bool last, bool *cancelled, rv_error *err)
{
    rvi_generated *out = st->out;
    size_t before = out->text.len;
    rv_status s = RV_OK;
    if (st->text) {
        st->piece.len = 0;
        s = last ? rvi_detok_flush(&st->detok, &st->piece, err)
                 : rvi_detok_push(&st->detok, id, &st->piece, err);
        if (!s && !rvi_stop_push(&st->stop, st->piece.data, st->piece.len, &out->text))
            s = rvi_nomem(err, "text");
        if (!s && last && !rvi_stop_flush(&st->stop, &out->text)) s = rvi_nomem(err, "text");
    }
    if (s || !st->o->on_token) return s;
    bool more = out->text.len > before;
    if (last && !more) return RV_OK;
    *cancelled = st->o->on_token(st->o->ctx, id, more ? out->text.data + before : "",
                                 out->text.len - before) != 0;
    return RV_OK;
}

static rv_status token_loop(rvi_session *s, rvi_sampler *sampler, stream *str, int max_tokens,
                            float *logits, rv_error *err)
{
    rvi_generated *out = str->out;
    const rvi_generate_options *o = str->o;
    bool cancelled = false;
    rv_status st;
    for (int n = 0; n < max_tokens; n++) {
        int32_t id;
        if (n && (st = advance(s, &logits, err))) return st;
        if ((st = rvi_sampler_pick(sampler, logits, s->past.data, s->past.len,
                                   (size_t)out->n_prompt, &id, err))) {
            const char *broken = rvi_model_find_broken_tensor(s->m);
            return broken ? rvi_error(err, st,
                                      "the model file is damaged: tensor '%s' holds a value that "
                                      "is not a number",
                                      broken)
                          : st;
        }
        if (!rvi_ids_push(&out->ids, id) || !rvi_ids_push(&s->past, id))
            return rvi_nomem(err, "tokens");
        if (!o->ignore_eos && ends(s, id)) {
            out->finish = RV_FINISH_EOS;
            return RV_OK;
        }
        if ((st = emit(str, id, false, &cancelled, err))) return st;
        if (str->stop.hit) {
            out->finish = RV_FINISH_STOP;
            return RV_OK;
        }
        if (cancelled) {
            out->finish = RV_FINISH_CANCELLED;
            return RV_OK;
        }
    }
    out->finish = RV_FINISH_LENGTH;
    return RV_OK;
}

rv_status rvi_session_generate(rvi_session *s, const int32_t *prompt, size_t n_prompt,
                               const rvi_generate_options *o, rvi_generated *out, rv_error *err)
{
    rvi_sampler *sampler = NULL;
    stream str = {.o = o, .out = out, .text = s->t != NULL};
    out->finish = RV_FINISH_ERROR;
    rv_status st = check_prompt(s, prompt, n_prompt, err);
    if (!st && o->max_tokens < 0)
        st = rvi_error(err, RV_E_CONFIG, "%d new tokens are not possible", o->max_tokens);
    if (!st) st = rvi_sampler_new(&sampler, &o->sampling, s->m->hp.n_vocab, err);
    if (st) return st;
    if (s->t) rvi_detok_init(&str.detok, s->t, RVI_TOK_SKIP_SPECIAL);
    rvi_stop_init(&str.stop, o->stop, o->n_stop);

    int max_tokens = RVI_MIN(o->max_tokens, s->o.n_context - (int)n_prompt);
    double start = rvi_os_seconds();
    out->n_prompt = (int)n_prompt;
    out->n_reused = sync_prefix(s, prompt, n_prompt,
                                rvi_rope_set(&s->m->rope, (int)n_prompt + max_tokens), o->adapters);
    for (size_t i = s->past.len; !st && i < n_prompt; i++)
        if (!rvi_ids_push(&s->past, prompt[i])) st = rvi_nomem(err, "tokens");
    float *logits = NULL;
    if (!st) st = advance(s, &logits, err);
    double middle = rvi_os_seconds();
    out->prompt_seconds = middle - start;
    if (!st) st = token_loop(s, sampler, &str, max_tokens, logits, err);
    out->seconds = rvi_os_seconds() - middle;
    bool ignored;
    bool ended = out->finish == RV_FINISH_STOP || out->finish == RV_FINISH_CANCELLED;
    if (!st && !ended) st = emit(&str, -1, true, &ignored, err);
    if (str.stop.hit) out->finish = RV_FINISH_STOP;
    if (st) out->finish = RV_FINISH_ERROR;
    if (s->past.len > (size_t)s->seq.len)
        s->past.len = (size_t)s->seq.len; /* the last token was never computed */

    rvi_stop_deinit(&str.stop);
    rvi_buf_deinit(&str.piece);
    rvi_sampler_free(sampler);
    return st;
}
