/* Grammars: compiled for a model's vocabulary, whose trie is made once and kept with the model. */
#include "grammar/grammar.h"

#include <string.h>

#include "api/api.h"
#include "ruvllm_grammar.h"

typedef struct reader {
    const rvi_tokenizer *t;
    const rvi_ids *markers; /* control tokens that are text; NULL: none */
    rvi_buf bytes;
    rv_status st;
    rv_error *err;
} reader;

static bool has_id(const rvi_ids *ids, int32_t id)
{
    for (size_t i = 0; ids && i < ids->len; i++)
        if (ids->data[i] == id) return true;
    return false;
}

static const uint8_t *piece(void *ctx, int32_t id, uint32_t *len, bool *eos)
{
    reader *r = ctx;
    *eos = rvi_tokenizer_is_eos(r->t, id);
    r->bytes.len = 0;
    if (r->st) return NULL;
    if (has_id(r->markers, id)) {
        size_t n;
        const char *text = rvi_tokenizer_text(r->t, id, &n);
        *len = (uint32_t)n;
        return (const uint8_t *)text;
    }
    r->st = rvi_tokenizer_bytes(r->t, id, &r->bytes, r->err);
    *len = (uint32_t)r->bytes.len;
    return r->st ? NULL : (const uint8_t *)r->bytes.data;
}

/* The control tokens that mark calls and thoughts. */
static rv_status find_markers(const rv_model *m, rvi_ids *out, rv_error *err)
{
    const char *text;
    for (size_t i = 0; (text = rvi_calls_marker(i)); i++) {
        int32_t id = rvi_tokenizer_find(m->tokenizer, text, strlen(text));
        if (id < 0 || !rvi_tokenizer_is_special(m->tokenizer, id) ||
            rvi_tokenizer_is_eos(m->tokenizer, id))
            continue;
        if (!rvi_ids_push(out, id)) return rvi_nomem(err, "grammar");
    }
    return RV_OK;
}

/* Two threads may make it at once; one of the two is kept. */
static rv_status vocab_of(const rv_model *m, const rvi_ids *markers, const rvi_vocab **out,
                          rv_error *err)
{
    rv_model *model = rvi_api_retain_model(m);
    _Atomic(rvi_vocab *) *at = markers->len ? &model->marked_vocab : &model->vocab;
    rvi_vocab *made, *none = NULL;
    reader r = {.t = m->tokenizer, .markers = markers, .err = err};
    *out = atomic_load(at);
    rvi_api_release_model(model);
    if (*out) return RV_OK;
    rv_status st = rvi_vocab_new(&made, rvi_tokenizer_size(m->tokenizer), piece, &r, err);
    if (!st && r.st) {
        rvi_vocab_free(made);
        st = r.st;
    }
    rvi_buf_deinit(&r.bytes);
    if (st) return st;
    if (!atomic_compare_exchange_strong(at, &none, made)) {
        rvi_vocab_free(made);
        made = none;
    }
    *out = made;
    return RV_OK;
}

static rv_status make(rvi_grammar **out, const rvi_vocab *v, const rvi_api_language *l,
                      rv_error *err)
{
    switch (l->kind) {
    case RV_GRAMMAR_SCHEMA: return rvi_grammar_schema(out, v, l->text, l->len, &l->how, err);
    case RV_GRAMMAR_JSON: return rvi_grammar_json(out, v, &l->how, err);
    case RV_GRAMMAR_REGEX: return rvi_grammar_regex(out, v, l->text, l->len, err);
    case RV_GRAMMAR_GBNF: return rvi_grammar_gbnf(out, v, l->text, l->len, &l->how, err);
    case RV_GRAMMAR_CHOICES: return rvi_grammar_choices(out, v, l->text, l->len, err);
    case RV_GRAMMAR_LARK: return rvi_grammar_lark(out, v, l->text, l->len, &l->how, err);
    }
    return rvi_error(err, RV_E_INVALID, "%d is no kind of grammar", (int)l->kind);
}

rv_status rvi_api_new_grammar(rv_grammar **out, const rv_model *m, const rvi_api_language *l,
                              rv_error *err)
{
    const rvi_vocab *vocab;
    *out = NULL;
    rv_grammar *g = rvi_zalloc(sizeof *g);
    if (!g) return rvi_nomem(err, "grammar");
    rv_status st = rvi_lock_new(&g->lock, err);
    if (!st && l->marked) st = find_markers(m, &g->markers, err);
    if (!st) st = vocab_of(m, &g->markers, &vocab, err);
    if (!st) st = make(&g->g, vocab, l, err);
    if (st) {
        rvi_ids_deinit(&g->markers);
        rvi_lock_free(g->lock);
        rvi_free(g);
        return st;
    }
    atomic_init(&g->users, 1);
    g->m = rvi_api_retain_model(m);
    *out = g;
    return RV_OK;
}

rv_status rv_grammar_new(rv_grammar **out, const rv_model *m, rv_grammar_kind kind,
                         const char *text, size_t len, const rv_grammar_options *given,
                         rv_error *err)
{
    if (!out || (!text && (len || kind != RV_GRAMMAR_JSON)))
        return rvi_error(err, RV_E_INVALID, "rv_grammar_new: NULL argument");
    *out = NULL;
    rv_grammar_options o;
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (!st) st = rvi_api_read_struct(&o, sizeof o, given, "rv_grammar_options", err);
    if (!st && (o.max_blanks < -1 || o.max_blanks > 60000))
        st = rvi_error(err, RV_E_INVALID, "max_blanks must be -1..60000 (got %d)", o.max_blanks);
    if (st) return st;
    rvi_api_language l = {.kind = kind, .text = text ? text : "", .len = len};
    l.how = (rvi_grammar_options){.max_blanks = o.max_blanks, .canonical = o.canonical != 0};
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    st = rvi_api_new_grammar(out, m, &l, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_grammar *rvi_api_retain_grammar(rv_grammar *g)
{
    if (g) atomic_fetch_add(&g->users, 1);
    return g;
}

void rvi_api_release_grammar(rv_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->users, 1) > 1) return;
    rv_model *m = g->m;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rvi_grammar_free(g->g);
    rvi_ids_deinit(&g->markers);
    rvi_lock_free(g->lock);
    rvi_free(g);
    rvi_api_leave_heap(heap);
    rvi_api_release_model(m);
}

void rv_grammar_free(rv_grammar **handle)
{
    if (!handle) return;
    rvi_api_release_grammar(*handle);
    *handle = NULL;
}

/* ---- states ---- */

/* One use of a grammar, on its heap and alone. */
typedef struct turn {
    rv_grammar *g;
    const rv_allocator *heap;
} turn;

static rv_status enter(turn *t, rv_grammar *g, uint32_t state, rv_error *err)
{
    t->g = g;
    t->heap = rvi_api_use_heap(g->m->rt);
    rvi_lock_take(g->lock);
    if (rvi_grammar_knows(g->g, state)) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "%u is no state of the grammar", (unsigned)state);
}

static void leave(turn *t)
{
    rvi_lock_give(t->g->lock);
    rvi_api_leave_heap(t->heap);
}

uint32_t rv_grammar_start(const rv_grammar *g)
{
    return g ? rvi_grammar_start(g->g) : 0;
}

rv_status rv_grammar_advance(rv_grammar *g, uint32_t state, int32_t token, uint32_t *next,
                             rv_error *err)
{
    if (!g || !next) return rvi_error(err, RV_E_INVALID, "rv_grammar_advance: NULL argument");
    *next = 0;
    turn t;
    rv_status st = enter(&t, g, state, err);
    if (!st) st = rvi_grammar_token(g->g, state, token, next, err);
    leave(&t);
    return st;
}

int rv_grammar_ends(rv_grammar *g, uint32_t state)
{
    if (!g) return 0;
    turn t;
    int ends = !enter(&t, g, state, NULL) && rvi_grammar_ends(g->g, state);
    leave(&t);
    return ends;
}

rv_status rv_grammar_mask(rv_grammar *g, uint32_t state, uint64_t *mask, size_t n_words,
                          rv_error *err)
{
    if (!g || !mask) return rvi_error(err, RV_E_INVALID, "rv_grammar_mask: NULL argument");
    const uint64_t *from = NULL;
    turn t;
    rv_status st = enter(&t, g, state, err);
    if (!st) st = rvi_grammar_mask(g->g, state, &from, err);
    size_t n = rvi_grammar_mask_words(g->g);
    for (size_t i = 0; i < n_words && !st; i++) mask[i] = i < n ? from[i] : 0;
    leave(&t);
    return st;
}

rv_status rv_grammar_forced(rv_grammar *g, uint32_t state, char **text, size_t *len,
                            uint32_t *after, rv_error *err)
{
    enum { MOST = 4096 };
    if (!g || !text || !after)
        return rvi_error(err, RV_E_INVALID, "rv_grammar_forced: NULL argument");
    *text = NULL;
    *after = state;
    rvi_buf out = {0};
    turn t;
    rv_status st = enter(&t, g, state, err);
    if (!st) st = rvi_grammar_forced(g->g, state, MOST, &out, after, err);
    st = rvi_api_give_text_after(st, &out, text, len, err);
    leave(&t);
    return st;
}
