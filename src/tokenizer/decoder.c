/* decoder.c - ids to text, one id at a time.
 *
 * The reference decoders work on the list of all tokens; here each token passes through the steps
 * as soon as it arrives. Steps before Fuse (or ByteLevel) see whole tokens, later steps see one
 * text in portions. A decoder that cannot work in portions is refused when it is loaded
 * (rvi_decoder_check). rvi_tokenizer_decode runs the same steps over all ids. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

static const char replacement_char[] = "\xEF\xBF\xBD"; /* U+FFFD */

void rvi_decoder_deinit(rvi_decoder *d)
{
    for (size_t i = 0; i < d->n; i++) rvi_regex_free(d->steps[i].pattern);
    rvi_free(d->steps);
    *d = (rvi_decoder){0};
}

rvi_dec_step *rvi_decoder_add(rvi_decoder *d, rvi_dec_kind kind)
{
    if (!d->steps && !(d->steps = rvi_zalloc_array(RVI_TOK_STEPS_MAX, sizeof *d->steps)))
        return NULL;
    if (d->n == RVI_TOK_STEPS_MAX) return NULL; /* the callers stay below */
    d->steps[d->n].kind = kind;
    return &d->steps[d->n++];
}

/* ---- from JSON ---- */

static rv_status load_replace(rvi_dec_step *s, const rvi_json *v, rvi_arena *arena, rv_error *err)
{
    const rvi_json *to = rvi_json_get(v, "content"),
                   *from = rvi_json_get(rvi_json_get(v, "pattern"), "String");
    if (!rvi_json_is(to, RVI_JSON_STRING))
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: decoder Replace: no content");
    s->to_len = to->as.string.len;
    if (!(s->to = rvi_arena_strndup(arena, to->as.string.data, s->to_len)))
        return rvi_nomem(err, "decoder");
    if (!rvi_json_is(from, RVI_JSON_STRING) || !from->as.string.len)
        return rvi_pattern_from_json(&s->pattern, rvi_json_get(v, "pattern"), "decoder Replace",
                                     err);
    s->from_len = from->as.string.len;
    if (s->from_len > RVI_TOK_ADDED_LEN_MAX)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: decoder Replace: a text of %zu bytes to be replaced; %d "
                         "are the most",
                         s->from_len, RVI_TOK_ADDED_LEN_MAX);
    s->from = rvi_arena_strndup(arena, from->as.string.data, s->from_len);
    return s->from ? RV_OK : rvi_nomem(err, "decoder");
}

static rv_status load_strip(rvi_dec_step *s, const rvi_json *v, rv_error *err)
{
    const rvi_json *c = rvi_json_get(v, "content");
    int64_t start = rvi_json_int(rvi_json_get(v, "start"), 0),
            stop = rvi_json_int(rvi_json_get(v, "stop"), 0);
    if (!rvi_json_is(c, RVI_JSON_STRING) ||
        rvi_utf8_count(c->as.string.data, c->as.string.len) != 1 || start < 0 || stop < 0 ||
        start > INT32_MAX || stop > INT32_MAX)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: decoder Strip: bad content, start or stop");
    rvi_utf8_decode(c->as.string.data, c->as.string.len, &s->cp, NULL);
    s->start = (uint32_t)start;
    s->stop = (uint32_t)stop;
    return RV_OK;
}

static rv_status add_step(rvi_decoder *out, const rvi_json *v, const char *type, rvi_arena *arena,
                          rv_error *err)
{
    static const struct {
        const char *type;
        rvi_dec_kind kind;
    } types[] = {{"ByteLevel", RVI_DEC_BYTE_LEVEL}, {"ByteFallback", RVI_DEC_BYTE_FALLBACK},
                 {"Replace", RVI_DEC_REPLACE},      {"Fuse", RVI_DEC_FUSE},
                 {"Strip", RVI_DEC_STRIP},          {"Metaspace", RVI_DEC_METASPACE},
                 {"WordPiece", RVI_DEC_WORDPIECE}};
    size_t k = 0;
    while (k < RVI_COUNT(types) && strcmp(types[k].type, type)) k++;
    if (k == RVI_COUNT(types))
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: decoder '%s' is not supported",
                         type);
    rvi_dec_step *s = rvi_decoder_add(out, types[k].kind);
    if (!s) return rvi_nomem(err, "decoder");
    if (s->kind == RVI_DEC_REPLACE) return load_replace(s, v, arena, err);
    if (s->kind == RVI_DEC_STRIP) return load_strip(s, v, err);
    if (s->kind == RVI_DEC_WORDPIECE) {
        const rvi_json *prefix = rvi_json_get(v, "prefix");
        bool given = rvi_json_is(prefix, RVI_JSON_STRING);
        s->cleanup = rvi_json_bool(rvi_json_get(v, "cleanup"), true);
        s->from_len = given ? prefix->as.string.len : 2;
        s->from = rvi_arena_strndup(arena, given ? prefix->as.string.data : "##", s->from_len);
        return s->from ? RV_OK : rvi_nomem(err, "decoder");
    }
    if (s->kind == RVI_DEC_METASPACE) {
        rvi_prepend prepend;
        rv_status st = rvi_metaspace_from_json(v, &s->from, &s->from_len, &prepend, arena, err);
        s->drop_first = prepend != RVI_PREPEND_NEVER;
        return st;
    }
    return RV_OK;
}

static rv_status from_json(rvi_decoder *out, const rvi_json *v, rvi_arena *arena, int depth,
                           rv_error *err)
{
    const char *type = rvi_json_string(rvi_json_get(v, "type"), NULL);
    if (!type) return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: decoder without a type");
    if (out->n >= RVI_TOK_STEPS_MAX)
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: decoder with too many steps");
    if (strcmp(type, "Sequence")) return add_step(out, v, type, arena, err);
    const rvi_json *list = rvi_json_get(v, "decoders");
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || depth > 8)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: decoder Sequence without a list, or nested too deeply");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        rv_status st = from_json(out, rvi_json_at(list, i), arena, depth + 1, err);
        if (st) return st;
    }
    return RV_OK;
}

rv_status rvi_decoder_from_json(rvi_decoder *out, const rvi_json *v, rvi_arena *arena,
                                rv_error *err)
{
    if (v && !rvi_json_is(v, RVI_JSON_NULL)) return from_json(out, v, arena, 0, err);
    return rvi_decoder_add(out, RVI_DEC_JOIN) ? RV_OK : rvi_nomem(err, "decoder");
}

rv_status rvi_decoder_check(rvi_decoder *d, rv_error *err)
{
    bool fused = false, bytes = false, strip = false;
    for (size_t i = 0; i < d->n; i++) {
        rvi_dec_step *s = &d->steps[i];
        const char *bad = NULL;
        s->fused = fused;
        switch (s->kind) {
        case RVI_DEC_BYTE_LEVEL:
        case RVI_DEC_BYTE_FALLBACK:
            if (bytes || fused) bad = "ByteLevel or ByteFallback more than once or behind Fuse";
            bytes = true;
            fused = fused || s->kind == RVI_DEC_BYTE_LEVEL;
            break;
        case RVI_DEC_FUSE:
        case RVI_DEC_JOIN: fused = true; break;
        case RVI_DEC_STRIP:
            if (fused && strip) bad = "Strip more than once behind Fuse";
            strip = strip || fused;
            break;
        case RVI_DEC_REPLACE:
            if (fused && (s->pattern || rvi_utf8_count(s->from, s->from_len) != 1))
                bad = "Replace of more than one character behind Fuse";
            break;
        case RVI_DEC_METASPACE: break;
        case RVI_DEC_WORDPIECE:
            if (fused) bad = "WordPiece behind Fuse";
            break;
        }
        if (bad)
            return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: decoder: %s is not supported",
                             bad);
    }
    return RV_OK;
}

/* ---- running ---- */

static rv_status pass(rvi_detok *d, size_t step, const char *s, size_t len, rvi_buf *out,
                      rv_error *err);

enum { PIECE = 512 }; /* bytes of a token's text on the way through the steps without the heap */

static rv_status nomem(rv_error *err)
{
    return rvi_nomem(err, "decoded text");
}

static rv_status pass_replaced(rvi_detok *d, size_t step, const char *s, size_t len, rvi_buf *out,
                               rv_error *err)
{
    const rvi_dec_step *r = &d->t->decoder.steps[step];
    char piece[PIECE];
    rvi_buf text = rvi_buf_over(piece, sizeof piece);
    rv_status st = RV_OK;
    size_t done = 0;
    text.max = RVI_MAX(len, (size_t)RVI_TOK_DECODED_MAX);
    if (r->pattern) {
        rvi_regex_work w = {0};
        bool found = true;
        size_t start, end;
        rvi_regex_begin(&w, r->pattern, s, len);
        while (!st && found && !text.failed) {
            st = rvi_regex_next(&w, &found, &start, &end, err);
            if (st || !found) break;
            rvi_buf_append(&text, s + done, start - done);
            rvi_buf_append(&text, r->to, r->to_len);
            done = end;
        }
        rvi_regex_work_deinit(&w);
    } else {
        for (size_t i = 0; i + r->from_len <= len && !text.failed;) {
            if (s[i] != r->from[0] || memcmp(s + i, r->from, r->from_len)) {
                i++;
                continue;
            }
            rvi_buf_append(&text, s + done, i - done);
            rvi_buf_append(&text, r->to, r->to_len);
            done = i += r->from_len;
        }
        if (!done)
            return pass(d, step + 1, s, len, out,
                        err); /* the usual case: nothing to replace, nothing to copy */
    }
    rvi_buf_append(&text, s + done, len - done);
    if (!st) st = rvi_tok_grown(&text, "decoder", len, err);
    if (!st) st = pass(d, step + 1, text.len ? text.data : "", text.len, out, err);
    rvi_buf_deinit(&text);
    return st;
}

static rv_status pass_metaspace(rvi_detok *d, size_t step, const char *s, size_t len, bool first,
                                rvi_buf *out, rv_error *err)
{
    const rvi_dec_step *m = &d->t->decoder.steps[step];
    char piece[PIECE];
    rvi_buf text = rvi_buf_over(piece, sizeof piece);
    for (size_t i = 0; i < len;) {
        if (len - i >= m->from_len && !memcmp(s + i, m->from, m->from_len)) {
            if (!(first && m->drop_first)) rvi_buf_putc(&text, ' ');
            i += m->from_len;
        } else {
            rvi_buf_putc(&text, s[i++]);
        }
    }
    rv_status st =
        text.failed ? nomem(err) : pass(d, step + 1, text.len ? text.data : "", text.len, out, err);
    rvi_buf_deinit(&text);
    return st;
}

/* Each in turn over the whole token. */
static void clean_up(rvi_buf *text)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t k = 0; k < RVI_COUNT(pairs) && text->len && !text->failed; k++) {
        if (!memchr(text->data, ' ', text->len)) break;
        rvi_buf next = {0};
        size_t n = strlen(pairs[k][0]);
        for (size_t i = 0; i < text->len;) {
            bool found = text->len - i >= n && !memcmp(text->data + i, pairs[k][0], n);
            if (found)
                rvi_buf_puts(&next, pairs[k][1]);
            else
                rvi_buf_putc(&next, text->data[i]);
            i += found ? n : 1;
        }
        rvi_buf_deinit(text);
        *text = next;
    }
}

static rv_status pass_wordpiece(rvi_detok *d, size_t step, const char *s, size_t len, bool first,
                                rvi_buf *out, rv_error *err)
{
    const rvi_dec_step *w = &d->t->decoder.steps[step];
    rvi_buf text = {0};
    bool inside = len >= w->from_len && !memcmp(s, w->from, w->from_len);
    size_t skip = !first && inside ? w->from_len : 0;
    if (!first && !inside) rvi_buf_putc(&text, ' ');
    rvi_buf_append(&text, s + skip, len - skip);
    if (w->cleanup) clean_up(&text);
    rv_status st =
        text.failed ? nomem(err) : pass(d, step + 1, text.len ? text.data : "", text.len, out, err);
    rvi_buf_deinit(&text);
    return st;
}

static rv_status pass_stripped_token(rvi_detok *d, size_t step, const char *s, size_t len,
                                     rvi_buf *out, rv_error *err)
{
    const rvi_dec_step *r = &d->t->decoder.steps[step];
    char mark[4];
    size_t n = rvi_utf8_encode(r->cp, mark);
    for (uint32_t i = 0; i < r->start && len >= n && !memcmp(s, mark, n); i++, s += n) len -= n;
    for (uint32_t i = 0; i < r->stop && len >= n && !memcmp(s + len - n, mark, n); i++) len -= n;
    return pass(d, step + 1, s, len, out, err);
}

/* The text comes in portions: leading ones are dropped while they come, trailing ones are held back
 * until something follows. All held ones are the same character, so a number tells them. */
static rv_status pass_stripped_text(rvi_detok *d, size_t step, const char *s, size_t len,
                                    rvi_buf *out, rv_error *err)
{
    const rvi_dec_step *r = &d->t->decoder.steps[step];
    char mark[4];
    size_t n = rvi_utf8_encode(r->cp, mark), done = 0;
    rv_status st = RV_OK;
    while (d->to_strip && len >= n && !memcmp(s, mark, n)) {
        d->to_strip--;
        s += n;
        len -= n;
    }
    if (!len) return RV_OK;
    d->to_strip = 0;
    if (!r->stop) return pass(d, step + 1, s, len, out, err);
    for (size_t i = 0; i < len && !st;) {
        if (len - i < n || memcmp(s + i, mark, n)) {
            i++;
            continue;
        }
        /* text up to here, behind what was held */
        for (; d->held && i > done && !st; d->held--) st = pass(d, step + 1, mark, n, out, err);
        if (!st) st = pass(d, step + 1, s + done, i - done, out, err);
        if (!st && d->held == r->stop)
            st = pass(d, step + 1, mark, n, out, err);
        else
            d->held++;
        done = i += n;
    }
    for (; d->held && done < len && !st; d->held--) st = pass(d, step + 1, mark, n, out, err);
    return st ? st : pass(d, step + 1, s + done, len - done, out, err);
}

/* ---- bytes ---- */

/* A flag of rvi_tokenizer_bytes: a token may begin and end inside a character. */
enum { PARTS = 1 << 16 };

/* Passes on the bytes of d->bytes that later bytes cannot change: valid text as it is, each maximal
 * invalid part as U+FFFD. A character that more bytes could complete is held back, unless this is
 * the end. */
static rv_status flush_level(rvi_detok *d, size_t step, bool end, rvi_buf *out, rv_error *err)
{
    size_t done = 0, i = d->flags & PARTS ? d->n_bytes : 0;
    rv_status st = RV_OK;
    while (i < d->n_bytes && !st) {
        uint32_t cp;
        bool valid;
        size_t used = rvi_utf8_decode(d->bytes + i, d->n_bytes - i, &cp, &valid);
        if (valid) {
            i += used;
            continue;
        }
        if (!end && used == d->n_bytes - i && rvi_utf8_incomplete(d->bytes + i, used) == used)
            break;
        if (i > done) st = pass(d, step + 1, d->bytes + done, i - done, out, err);
        if (!st) st = pass(d, step + 1, replacement_char, 3, out, err);
        done = i += used;
    }
    if (!st && i > done) st = pass(d, step + 1, d->bytes + done, i - done, out, err);
    memmove(d->bytes, d->bytes + i, d->n_bytes - i);
    d->n_bytes -= i;
    return st;
}

/* Bytes of one token are the characters of the alphabet; a token with any other character is taken
 * as it is. */
static rv_status pass_byte_level(rvi_detok *d, size_t step, const char *s, size_t len, rvi_buf *out,
                                 rv_error *err)
{
    bool raw = false;
    uint32_t cp;
    for (size_t i = 0; i < len && !raw;) {
        i += rvi_utf8_decode(s + i, len - i, &cp, NULL);
        raw = rvi_char_byte(cp) < 0;
    }
    for (size_t i = 0; i < len;) {
        if (raw) {
            d->bytes[d->n_bytes++] = s[i++];
        } else {
            i += rvi_utf8_decode(s + i, len - i, &cp, NULL);
            d->bytes[d->n_bytes++] = (char)rvi_char_byte(cp);
        }
        if (d->n_bytes < sizeof d->bytes) continue;
        rv_status st = flush_level(d, step, false, out, err);
        if (st) return st;
    }
    return flush_level(d, step, false, out, err);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int byte_token(const char *s, size_t len)
{
    if (len != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || hex_value(s[3]) < 0 ||
        hex_value(s[4]) < 0)
        return -1;
    return hex_value(s[3]) << 4 | hex_value(s[4]);
}

/* Passes on a run of byte tokens: as text if all of it is valid UTF-8, otherwise as one U+FFFD for
 * each byte. full: the run is longer than the buffer, so a character that is cut in two is held
 * back. */
static rv_status flush_run(rvi_detok *d, size_t step, bool full, rvi_buf *out, rv_error *err)
{
    size_t n = d->n_bytes, rest = full ? rvi_utf8_incomplete(d->bytes, n) : 0;
    bool valid = true;
    uint32_t cp;
    rv_status st = RV_OK;
    if (!n) return RV_OK;
    for (size_t i = 0; i < n - rest && valid;)
        i += rvi_utf8_decode(d->bytes + i, n - rest - i, &cp, &valid);
    if (valid) {
        st = pass(d, step + 1, d->bytes, n - rest, out, err);
    } else {
        rest = 0;
        for (size_t i = 0; i < n && !st; i++) st = pass(d, step + 1, replacement_char, 3, out, err);
    }
    memmove(d->bytes, d->bytes + n - rest, rest);
    d->n_bytes = rest;
    return st;
}

static rv_status pass_byte_fallback(rvi_detok *d, size_t step, const char *s, size_t len,
                                    rvi_buf *out, rv_error *err)
{
    int byte = byte_token(s, len);
    if (byte < 0) {
        rv_status st = flush_run(d, step, false, out, err);
        return st ? st : pass(d, step + 1, s, len, out, err);
    }
    d->bytes[d->n_bytes++] = (char)byte;
    return d->n_bytes < sizeof d->bytes ? RV_OK : flush_run(d, step, true, out, err);
}

/* Hands a token, or a portion of the text, to a step. The depth of the recursion is the number of
 * steps. */
static rv_status pass(rvi_detok *d, size_t step, const char *s, size_t len, rvi_buf *out,
                      rv_error *err)
{
    bool first = !d->started;
    if (step == d->t->decoder.n) return rvi_buf_append(out, s, len) ? RV_OK : nomem(err);
    const rvi_dec_step *r = &d->t->decoder.steps[step];
    switch (r->kind) {
    case RVI_DEC_BYTE_LEVEL: return pass_byte_level(d, step, s, len, out, err);
    case RVI_DEC_BYTE_FALLBACK: return pass_byte_fallback(d, step, s, len, out, err);
    case RVI_DEC_REPLACE: return pass_replaced(d, step, s, len, out, err);
    case RVI_DEC_METASPACE:
        d->started = true;
        return pass_metaspace(d, step, s, len, first || r->fused, out, err);
    case RVI_DEC_STRIP:
        return r->fused ? pass_stripped_text(d, step, s, len, out, err)
                        : pass_stripped_token(d, step, s, len, out, err);
    case RVI_DEC_WORDPIECE:
        d->started = true;
        return pass_wordpiece(d, step, s, len, first, out, err);
    case RVI_DEC_JOIN:
        d->started = true;
        if (!first) {
            rv_status st = pass(d, step + 1, " ", 1, out, err);
            if (st) return st;
        }
        return pass(d, step + 1, s, len, out, err);
    case RVI_DEC_FUSE: return pass(d, step + 1, s, len, out, err);
    }
    return RV_OK;
}

static void restart(rvi_detok *d)
{
    const rvi_tokenizer *t = d->t;
    d->started = false;
    d->to_strip = d->held = 0;
    d->n_bytes = 0;
    for (size_t i = 0; i < t->decoder.n; i++)
        if (t->decoder.steps[i].kind == RVI_DEC_STRIP && t->decoder.steps[i].fused)
            d->to_strip = t->decoder.steps[i].start;
}

void rvi_detok_init(rvi_detok *d, const rvi_tokenizer *t, unsigned flags)
{
    d->t = t;
    d->flags = flags;
    d->spoken = NULL;
    d->n_spoken = 0;
    restart(d);
}

void rvi_detok_continue(rvi_detok *d)
{
    d->started = true;
    d->to_strip = 0;
}

rv_status rvi_detok_push(rvi_detok *d, int32_t id, rvi_buf *out, rv_error *err)
{
    size_t len;
    const char *text = rvi_tokenizer_spoken(d->t, id, &len);
    bool skips = d->flags & RVI_TOK_SKIP_SPECIAL && rvi_tokenizer_is_special(d->t, id);
    for (size_t i = 0; i < d->n_spoken && skips; i++) skips = d->spoken[i] != id;
    if (!text || skips) return RV_OK;
    return pass(d, 0, text, len, out, err);
}

rv_status rvi_detok_flush(rvi_detok *d, rvi_buf *out, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = 0; i < d->t->decoder.n && !st; i++) {
        if (d->t->decoder.steps[i].kind == RVI_DEC_BYTE_LEVEL)
            st = flush_level(d, i, true, out, err);
        if (d->t->decoder.steps[i].kind == RVI_DEC_BYTE_FALLBACK)
            st = flush_run(d, i, false, out, err);
    }
    restart(d);
    return st;
}

rv_status rvi_tokenizer_decode(const rvi_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                               rvi_buf *out, rv_error *err)
{
    rvi_detok d;
    rv_status st = RV_OK;
    rvi_detok_init(&d, t, flags);
    for (size_t i = 0; i < n && !st; i++) st = rvi_detok_push(&d, ids[i], out, err);
    return st ? st : rvi_detok_flush(&d, out, err);
}

rv_status rvi_tokenizer_bytes(const rvi_tokenizer *t, int32_t id, rvi_buf *out, rv_error *err)
{
    rvi_detok d;
    size_t len;
    const char *text = rvi_tokenizer_spoken(t, id, &len);
    if (!text || rvi_tokenizer_is_special(t, id)) return RV_OK;
    for (size_t i = 0; i < t->decoder.n; i++)
        if (t->decoder.steps[i].kind == RVI_DEC_WORDPIECE ||
            t->decoder.steps[i].kind == RVI_DEC_JOIN)
            return rvi_error(err, RV_E_UNSUPPORTED,
                             "the tokens of this model's vocabulary have no bytes of their own");
    rvi_detok_init(&d, t, PARTS);
    rvi_detok_continue(&d);
    rv_status st = pass(&d, 0, text, len, out, err);
    /* what the steps hold back: bytes of a character that is not complete, blanks at the end */
    if (!st && !rvi_buf_append(out, d.bytes, d.n_bytes)) st = nomem(err);
    for (; d.held && !st; d.held--)
        if (!rvi_buf_putc(out, ' ')) st = nomem(err);
    return st;
}
