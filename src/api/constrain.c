/* Answers under a grammar: what decode asks of it, and the tokens of a text that must come. */
#include <string.h>

#include "api/api.h"
#include "ruvllm_grammar.h"

enum { MOST_BYTES = 256 /* of forced text at once */ };

/* What an answer has of a grammar. */
typedef struct held {
    rv_grammar *g;
    int n_thought; /* tokens of its thoughts */
} held;

static rv_status mask(void *ctx, uint32_t state, uint64_t *words, size_t n_words, rv_error *err)
{
    const held *h = ctx;
    return rv_grammar_mask(h->g, state, words, n_words, err);
}

static rv_status accept(void *ctx, uint32_t state, int32_t token, uint32_t *next, bool *complete,
                        rv_error *err)
{
    held *h = ctx;
    rv_grammar *g = h->g;
    rvi_lock_take(g->lock);
    rv_status st = rvi_grammar_token(g->g, state, token, next, err);
    *complete = !st && *next && rvi_grammar_complete(g->g, *next);
    if (g->thinking && !st && rvi_grammar_thinks(g->g, *next)) h->n_thought++;
    rvi_lock_give(g->lock);
    return st;
}

static rv_status peek(void *ctx, uint32_t state, int32_t token, uint32_t *next, rv_error *err)
{
    rv_grammar *g = ((const held *)ctx)->g;
    rvi_lock_take(g->lock);
    rv_status st = rvi_grammar_token(g->g, state, token, next, err);
    rvi_lock_give(g->lock);
    return st;
}

/* ---- tokens that must come ---- */

/* Where in ids the text begins: a token boundary behind which the tokens have exactly its bytes. */
static bool find_start(const rvi_vocab *v, const rvi_ids *ids, const rvi_buf *text, size_t *first)
{
    size_t left = text->len;
    for (*first = ids->len; *first && left;) {
        int32_t id = ids->data[--*first];
        size_t len = v->bytes[id] ? v->lens[id] : 0;
        if (!len || len > left || memcmp(v->bytes[id], text->data + left - len, len)) return false;
        left -= len;
    }
    return !left;
}

/* The text as its tokenizer would have it in the middle of another: some put a space before what
 * they take for the beginning, so a second try has a newline there. */
static rv_status tokenize(const rv_grammar *g, const rvi_buf *text, rvi_ids *ids, size_t *first,
                          bool *found, rv_error *err)
{
    const rvi_vocab *v = rvi_grammar_vocab(g->g);
    rvi_buf behind = {0};
    rv_status st =
        rvi_tokenizer_encode(g->m->tokenizer, text->data, text->len, RVI_TOK_PLAIN, ids, err);
    *found = !st && find_start(v, ids, text, first);
    if (st || *found) return st;
    ids->len = 0;
    rvi_buf_putc(&behind, '\n');
    if (!rvi_buf_append(&behind, text->data, text->len)) st = rvi_nomem(err, "forced text");
    if (!st)
        st =
            rvi_tokenizer_encode(g->m->tokenizer, behind.data, behind.len, RVI_TOK_PLAIN, ids, err);
    *found = !st && find_start(v, ids, text, first);
    rvi_buf_deinit(&behind);
    return st;
}

static size_t copy_ids(const rvi_ids *ids, size_t first, int32_t *out, size_t most)
{
    size_t n = ids->len - first;
    if (n > most) return 0;
    memcpy(out, ids->data + first, n * sizeof *out);
    return n;
}

/* How many tokens of a text there are before the first that a longer one could replace, depending
 * on what follows: that one is left to the model. */
static size_t count_certain(const rvi_vocab *v, const int32_t *ids, size_t n, const rvi_buf *text)
{
    size_t i = 0, at = 0;
    while (i < n && !rvi_vocab_extends(v, (const uint8_t *)text->data + at, text->len - at))
        at += v->lens[ids[i++]];
    return i;
}

static rv_status plain_tokens(const rv_grammar *g, const rvi_buf *text, int32_t *out, size_t most,
                              size_t *n, rv_error *err)
{
    rvi_ids ids = {0};
    size_t first = 0;
    bool found = false;
    rv_status st = tokenize(g, text, &ids, &first, &found, err);
    *n = found ? copy_ids(&ids, first, out, most) : 0;
    rvi_ids_deinit(&ids);
    return st;
}

/* The first mark in a text that is a control token: where, and which; -1: none. */
static int32_t find_marker(const rv_grammar *g, const char *text, size_t len, size_t *at)
{
    int32_t found = -1;
    const rvi_vocab *v = rvi_grammar_vocab(g->g);
    *at = len;
    for (size_t k = 0; k < g->markers.len; k++) {
        int32_t id = g->markers.data[k];
        for (size_t i = 0; v->bytes[id] && i + v->lens[id] <= len && i < *at; i++)
            if (!memcmp(text + i, v->bytes[id], v->lens[id])) {
                *at = i;
                found = id;
            }
    }
    return found;
}

/* 0 tokens: there is no way to have exactly this text. */
static rv_status tokens_of(const rv_grammar *g, const rvi_buf *text, int32_t *out, size_t *n,
                           rv_error *err)
{
    size_t from = 0, part, at;
    rv_status st = RV_OK;
    *n = 0;
    while (from < text->len && !st) {
        int32_t marker = find_marker(g, text->data + from, text->len - from, &at);
        rvi_buf piece = {.data = text->data + from, .len = at, .borrowed = true};
        part = 0;
        if (at) st = plain_tokens(g, &piece, out + *n, RVI_MAX_FORCED - *n, &part, err);
        if (st || (at && !part) || (marker >= 0 && *n + part == RVI_MAX_FORCED)) {
            *n = 0;
            return st;
        }
        *n += part;
        from += at;
        if (marker < 0) continue;
        out[(*n)++] = marker;
        from += rvi_grammar_vocab(g->g)->lens[marker];
    }
    return st;
}

/* Thoughts that have become too long end here: with what their closing mark still lacks. */
static rv_status end_thoughts(const rv_grammar *g, uint32_t state, int32_t *out, size_t *n,
                              rv_error *err)
{
    const char *close = g->thinking->close;
    rvi_buf text = {0};
    uint32_t after = 0;
    rv_status st = RV_OK;
    bool out_of_it = false;
    rvi_lock_take(g->lock);
    for (size_t from = strlen(close); from-- > 0 && !st && !out_of_it;) {
        st = rvi_grammar_text(g->g, state, close + from, strlen(close + from), &after, err);
        out_of_it = !st && after && !rvi_grammar_thinks(g->g, after);
        if (out_of_it) rvi_buf_puts(&text, close + from);
    }
    if (out_of_it && !st) st = rvi_grammar_text(g->g, after, "\n\n", 2, &after, err);
    if (out_of_it && after) rvi_buf_puts(&text, "\n\n");
    rvi_lock_give(g->lock);
    if (!st && text.failed) st = rvi_nomem(err, "forced text");
    if (!st && text.len) st = tokens_of(g, &text, out, n, err);
    rvi_buf_deinit(&text);
    return st;
}

static rv_status force(void *ctx, uint32_t state, int32_t *out, size_t *n, rv_error *err)
{
    const held *h = ctx;
    rv_grammar *g = h->g;
    rvi_buf text = {0};
    uint32_t after;
    *n = 0;
    rvi_lock_take(g->lock);
    bool thinks = g->thinking && rvi_grammar_thinks(g->g, state);
    rvi_lock_give(g->lock);
    if (thinks && h->n_thought >= g->think) return end_thoughts(g, state, out, n, err);
    rvi_lock_take(g->lock);
    rv_status st = rvi_grammar_forced(g->g, state, MOST_BYTES, &text, &after, err);
    rvi_lock_give(g->lock);
    if (!st && text.len) st = tokens_of(g, &text, out, n, err);
    if (!st && *n) *n = count_certain(rvi_grammar_vocab(g->g), out, *n, &text);
    rvi_buf_deinit(&text);
    return st;
}

static rv_status finish(void *ctx, uint32_t state, int32_t *out, size_t *n, bool *found,
                        rv_error *err)
{
    rv_grammar *g = ((const held *)ctx)->g;
    rvi_buf text = {0};
    *n = 0;
    rvi_lock_take(g->lock);
    rv_status st = rvi_grammar_finish(g->g, state, &text, found, err);
    rvi_lock_give(g->lock);
    if (!st && *found && text.len) {
        st = tokens_of(g, &text, out, n, err);
        *found = *n > 0; /* in the middle of a character no token may have just the rest */
    }
    rvi_buf_deinit(&text);
    return st;
}

/* ---- beginning ---- */

static void release(void *ctx)
{
    held *h = ctx;
    rvi_api_release_grammar(h->g);
    rvi_free(h);
}

rv_status rvi_api_check_grammar(const rv_model *m, const rv_generate_options *o, rv_error *err)
{
    rv_grammar *g = o->grammar;
    if (!g) return RV_OK;
    if (g->m != m) return rvi_error(err, RV_E_INVALID, "the grammar was made for another model");
    rvi_lock_take(g->lock);
    bool known = rvi_grammar_knows(g->g, o->grammar_state);
    rvi_lock_give(g->lock);
    if (known) return RV_OK;
    return rvi_error(err, RV_E_INVALID, "grammar_state: %u is no state of the grammar",
                     (unsigned)o->grammar_state);
}

rv_status rvi_api_constrain(rvi_session *s, rv_grammar *g, uint32_t state, rv_error *err)
{
    if (!g) return RV_OK;
    held *h = rvi_zalloc(sizeof *h);
    if (!h) return rvi_nomem(err, "grammar");
    h->g = rvi_api_retain_grammar(g);
    rvi_constraint by = {.mask = mask,
                         .accept = accept,
                         .peek = peek,
                         .force = force,
                         .finish = finish,
                         .release = release,
                         .ctx = h,
                         .spoken = g->markers.data,
                         .n_spoken = g->markers.len,
                         .state = state ? state : rvi_grammar_start(g->g)};
    rv_status st = rvi_answer_constrain(s, &by, err);
    if (st) release(h);
    return st;
}
