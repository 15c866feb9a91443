/* tokenizer.c - the whole: its life, encoding, and the questions one can ask. */
#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"

const char *const rvi_role_names[RVI_N_ROLES] = {"bos_token", "eos_token", "unk_token",
                                                 "pad_token"};

/* Special tokens that end a turn or a text in the models that have them */
static const char *const end_texts[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>", /* not where <|return|> and <|call|> exist: there it only ends a message within the
                  answer */
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|return|>",
    "<|call|>",
    "<|endofturn|>",
    "<|eot|>",
    "<|end_of_turn|>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<｜end▁of▁sentence｜>",
};

/* ---- ids ---- */

void rvi_ids_deinit(rvi_ids *ids)
{
    rvi_free(ids->data);
    *ids = (rvi_ids){0};
}

bool rvi_ids_push(rvi_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *data = rvi_realloc_array(ids->data, cap, sizeof *data);
        if (!data) return false;
        ids->data = data;
        ids->cap = cap;
    }
    ids->data[ids->len++] = id;
    return true;
}

bool rvi_ids_append(rvi_ids *ids, const int32_t *more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!rvi_ids_push(ids, more[i])) return false;
    return true;
}

rv_status rvi_tok_grown(const rvi_buf *out, const char *what, size_t len, rv_error *err)
{
    if (!out->failed) return RV_OK;
    if (!out->full) return rvi_nomem(err, what);
    return rvi_error(err, RV_E_TOKENIZATION,
                     "the %s makes more than %zu bytes of a text of %zu bytes", what, out->max,
                     len);
}

/* ---- life ---- */

rv_status rvi_tokenizer_alloc(rvi_tokenizer **out, size_t size, rv_error *err)
{
    *out = NULL;
    rvi_tokenizer *t = rvi_zalloc(sizeof *t);
    if (!t) return rvi_nomem(err, "tokenizer");
    t->size = (int32_t)size;
    for (int i = 0; i < RVI_N_ROLES; i++) t->special[i].id = -1;
    t->bpe.unk = -1;
    t->pieces = rvi_zalloc_array(size, sizeof *t->pieces);
    t->marks = rvi_zalloc_array(size, 1);
    if (!t->pieces || !t->marks) {
        rvi_tokenizer_free(t);
        return rvi_nomem(err, "vocabulary");
    }
    *out = t;
    return RV_OK;
}

void rvi_tokenizer_free(rvi_tokenizer *t)
{
    if (!t) return;
    rvi_bpe_deinit(&t->bpe);
    rvi_wordpiece_deinit(&t->wordpiece);
    rvi_added_deinit(&t->added);
    rvi_normalizer_deinit(&t->normalizer);
    rvi_pretokenizer_deinit(&t->pretokenizer);
    rvi_decoder_deinit(&t->decoder);
    rvi_ids_deinit(&t->before);
    rvi_ids_deinit(&t->after);
    rvi_free(t->pieces);
    rvi_free(t->marks);
    rvi_arena_deinit(&t->arena);
    rvi_free(t);
}

rvi_added_token *rvi_tokenizer_add_token(rvi_tokenizer *t)
{
    rvi_added *a = &t->added;
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 64;
        rvi_added_token *tokens = rvi_realloc_array(a->tokens, cap, sizeof *tokens);
        if (!tokens) return NULL;
        a->tokens = tokens;
        a->cap = cap;
    }
    a->tokens[a->n] = (rvi_added_token){0};
    return &a->tokens[a->n++];
}

void rvi_tokenizer_mark_eos(rvi_tokenizer *t, int64_t id)
{
    if (id >= 0 && id < t->size) t->marks[id] |= RVI_MARK_EOS;
}

void rvi_tokenizer_set_role(rvi_tokenizer *t, int role, int64_t id)
{
    if (id < 0 || id >= t->size || !t->pieces[id].data) return;
    t->special[role] =
        (rvi_special){.id = (int32_t)id, .text = t->pieces[id].data, .len = t->pieces[id].len};
}

enum { RESPELL_WORK = 1 << 28 }; /* a hundred times what 10000 added tokens of 20 bytes take */

/* Added tokens that are matched in normalized text are known by what the normalizer makes of them.
 */
static rv_status respell_added(rvi_tokenizer *t, rv_error *err)
{
    rvi_norm_work w = {.most = RESPELL_WORK};
    rv_status st = RV_OK;
    for (size_t i = 0; i < t->added.n && !st; i++) {
        rvi_added_token *a = &t->added.tokens[i];
        rvi_piece raw = {a->text, a->len};
        bool moved;
        a->spoken = raw;
        if (!a->normalized || !t->normalizer.n) continue;
        st = rvi_normalizer_run(&t->normalizer, &w, raw.data, raw.len, &a->spoken, &moved, err);
        if (!st && a->spoken.len > RVI_TOK_ADDED_LEN_MAX)
            st = rvi_error(err, RV_E_TOKENIZATION,
                           "the normalizer makes %zu bytes of the added token '%.60s'; %d are the "
                           "most",
                           a->spoken.len, raw.data, RVI_TOK_ADDED_LEN_MAX);
        if (st) break;
        if (a->spoken.len == raw.len && !memcmp(a->spoken.data, raw.data, raw.len)) {
            a->spoken = raw;
            continue;
        }
        a->spoken.data = rvi_arena_strndup(&t->arena, a->spoken.data, a->spoken.len);
        if (!a->spoken.data) st = rvi_nomem(err, "added tokens");
        t->marks[a->id] |= RVI_MARK_RESPELLED;
    }
    rvi_norm_work_deinit(&w);
    return st;
}

static void mark_ends(rvi_tokenizer *t)
{
    bool by_call =
        rvi_tokenizer_find(t, "<|return|>", 10) >= 0 && rvi_tokenizer_find(t, "<|call|>", 8) >= 0;
    for (size_t i = 0; i < RVI_COUNT(end_texts); i++) {
        int32_t id = rvi_tokenizer_find(t, end_texts[i], strlen(end_texts[i]));
        if (by_call && !strcmp(end_texts[i], "<|end|>")) continue;
        if (id >= 0 && rvi_tokenizer_is_special(t, id)) rvi_tokenizer_mark_eos(t, id);
    }
    rvi_tokenizer_mark_eos(t, t->special[RVI_ROLE_EOS].id);
}

rv_status rvi_tokenizer_finish(rvi_tokenizer *t, rv_error *err)
{
    rv_status st;
    rvi_bpe_prepare(&t->bpe);
    for (size_t i = 0; i < t->added.n; i++) {
        const rvi_added_token *a = &t->added.tokens[i];
        t->pieces[a->id] = (rvi_piece){a->text, a->len};
        if (a->special) t->marks[a->id] |= RVI_MARK_SPECIAL;
    }
    if ((st = respell_added(t, err))) return st;
    if ((st = rvi_added_prepare(&t->added, err))) return st;
    if ((st = rvi_decoder_check(&t->decoder, err))) return st;
    mark_ends(t);
    return RV_OK;
}

/* ---- encoding ---- */

typedef struct encoder {
    const rvi_tokenizer *t;
    bool plain;
    const rvi_text_spans *user; /* or NULL */
    rvi_text_spans mapped;      /* the same in a normalized text */
    rvi_ids *out;
    rvi_norm_work norm;
    rvi_pre_work pre;
    rvi_bpe_work bpe;
    rv_error *err;
} encoder;

static rv_status push_id(encoder *e, int32_t id)
{
    return rvi_ids_push(e->out, id) ? RV_OK : rvi_nomem(e->err, "token ids");
}

static rv_status encode_pieces(encoder *e, const char *text, size_t len, bool first)
{
    const rvi_pretokens *spans;
    rv_status st =
        rvi_pretokenizer_run(&e->t->pretokenizer, &e->pre, text, len, first, &text, &spans, e->err);
    for (size_t i = 0; !st && i < spans->n; i++) {
        const char *piece = text + spans->data[i].start;
        size_t piece_len = spans->data[i].len;
        st = e->t->wordpiece.on
                 ? rvi_wordpiece_encode(&e->t->wordpiece, e->t->bpe.unk, piece, piece_len, e->out,
                                        e->err)
                 : rvi_bpe_encode(&e->t->bpe, &e->bpe, piece, piece_len, e->out, e->err);
    }
    return st;
}

/* Where the spans of users lie once text, which begins at `at` of the whole, is normalized: the
 * parts between their ends are measured one by one. */
static rv_status map_user(encoder *e, const char *text, size_t len, size_t at)
{
    const rvi_text_span *u = rvi_text_spans_from(e->user, at), *end = u;
    size_t done = 0, mapped = 0, n;
    rv_status st = RV_OK;
    e->mapped.n = 0;
    if (u) end = e->user->data + e->user->n;
    for (; !st && u < end && u->start < at + len; u++) {
        size_t from = RVI_MAX(u->start, at) - at, to = RVI_MIN(u->end - at, len);
        st = rvi_normalizer_measure(&e->t->normalizer, &e->norm, text + done, from - done, !done,
                                    &n, e->err);
        size_t start = mapped += n;
        if (!st)
            st = rvi_normalizer_measure(&e->t->normalizer, &e->norm, text + from, to - from, !from,
                                        &n, e->err);
        mapped += n;
        done = to;
        if (!st && !rvi_text_spans_add(&e->mapped, start, mapped))
            st = rvi_nomem(e->err, "token ids");
    }
    return st;
}

/* A text without added tokens that are matched in the raw text; it begins at `at` of the whole
 * text. */
static rv_status encode_normalized(encoder *e, const char *text, size_t len, size_t at)
{
    const bool mark = e->user && e->t->added.special_normalized;
    rvi_piece piece;
    bool moved, first = !at;
    rv_status st = mark ? map_user(e, text, len, at) : RV_OK;
    if (st) return st;
    st = rvi_normalizer_run(&e->t->normalizer, &e->norm, text, len, &piece, &moved, e->err);
    if (st) return st;
    first = first && !moved;
    if (!e->t->added.any_normalized)
        return piece.len ? encode_pieces(e, piece.data, piece.len, first) : RV_OK;

    rvi_added_scan scan = {.text = piece.data, .len = piece.len, .user = mark ? &e->mapped : NULL};
    size_t done = 0, start;
    int32_t id;
    while (!st &&
           rvi_added_next(&e->t->added, &e->t->added.normalized, e->plain, &scan, &start, &id)) {
        if (start > done) st = encode_pieces(e, piece.data + done, start - done, first && !done);
        if (!st) st = push_id(e, id);
        done = scan.done;
    }
    if (!st && done < piece.len)
        st = encode_pieces(e, piece.data + done, piece.len - done, first && !done);
    return st;
}

static rv_status encode_text(encoder *e, const char *text, size_t len)
{
    rvi_added_scan scan = {.text = text, .len = len, .user = e->user};
    size_t done = 0, start;
    int32_t id;
    rv_status st = RV_OK;
    while (!st && rvi_added_next(&e->t->added, &e->t->added.raw, e->plain, &scan, &start, &id)) {
        if (start > done) st = encode_normalized(e, text + done, start - done, done);
        if (!st) st = push_id(e, id);
        done = scan.done;
    }
    if (!st && done < len) st = encode_normalized(e, text + done, len - done, done);
    return st;
}

static bool is_valid(const char *text, size_t len)
{
    bool valid = true;
    uint32_t cp;
    for (size_t i = 0; i < len && valid;)
        i += (unsigned char)text[i] < 0x80 ? 1 : rvi_utf8_decode(text + i, len - i, &cp, &valid);
    return valid;
}

static bool write_valid(rvi_buf *out, const char *text, size_t len)
{
    rvi_buf_reserve(out, len);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        char bytes[4];
        i += rvi_utf8_decode(text + i, len - i, &cp, NULL);
        rvi_buf_append(out, bytes, rvi_utf8_encode(cp, bytes));
    }
    return !out->failed;
}

rv_status rvi_tokenizer_encode_marked(const rvi_tokenizer *t, const char *text, size_t len,
                                      const rvi_text_spans *user, unsigned flags, rvi_ids *out,
                                      rv_error *err)
{
    if (user && !user->n) user = NULL;
    encoder e = {.t = t, .plain = flags & RVI_TOK_PLAIN, .user = user, .out = out, .err = err};
    rvi_buf copy = {0};
    rv_status st = RV_OK;
    if (len > RVI_TOK_TEXT_MAX)
        return rvi_error(err, RV_E_TOKENIZATION, "text of %zu bytes is too long", len);
    if (!is_valid(text, len)) {
        if (user) return rvi_error(err, RV_E_TOKENIZATION, "a text with marked parts is not UTF-8");
        if (!write_valid(&copy, text, len)) st = rvi_nomem(err, "text");
        text = copy.data;
        len = copy.len;
    }
    for (size_t i = 0; flags & RVI_TOK_BOS_EOS && i < t->before.len && !st; i++)
        st = push_id(&e, t->before.data[i]);
    if (!st && len) st = encode_text(&e, text, len);
    for (size_t i = 0; flags & RVI_TOK_BOS_EOS && i < t->after.len && !st; i++)
        st = push_id(&e, t->after.data[i]);
    rvi_norm_work_deinit(&e.norm);
    rvi_pre_work_deinit(&e.pre);
    rvi_bpe_work_deinit(&e.bpe);
    rvi_text_spans_deinit(&e.mapped);
    rvi_buf_deinit(&copy);
    return st;
}

rv_status rvi_tokenizer_encode(const rvi_tokenizer *t, const char *text, size_t len, unsigned flags,
                               rvi_ids *out, rv_error *err)
{
    return rvi_tokenizer_encode_marked(t, text, len, NULL, flags, out, err);
}

/* ---- questions ---- */

int32_t rvi_tokenizer_size(const rvi_tokenizer *t)
{
    return t->size;
}
int32_t rvi_tokenizer_bos(const rvi_tokenizer *t)
{
    return t->special[RVI_ROLE_BOS].id;
}
int32_t rvi_tokenizer_eos(const rvi_tokenizer *t)
{
    return t->special[RVI_ROLE_EOS].id;
}
const char *rvi_tokenizer_kind(const rvi_tokenizer *t)
{
    return t->kind;
}

size_t rvi_tokenizer_n_after(const rvi_tokenizer *t)
{
    return t->after.len;
}

bool rvi_tokenizer_adds_bos(const rvi_tokenizer *t)
{
    return t->before.len && t->before.data[0] == rvi_tokenizer_bos(t);
}

bool rvi_tokenizer_is_special(const rvi_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->marks[id] & RVI_MARK_SPECIAL;
}

bool rvi_tokenizer_is_eos(const rvi_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->marks[id] & RVI_MARK_EOS;
}

const char *rvi_tokenizer_text(const rvi_tokenizer *t, int32_t id, size_t *len)
{
    bool there = id >= 0 && id < t->size && t->pieces[id].data;
    *len = there ? t->pieces[id].len : 0;
    return there ? t->pieces[id].data : NULL;
}

const char *rvi_tokenizer_spoken(const rvi_tokenizer *t, int32_t id, size_t *len)
{
    const char *text = rvi_tokenizer_text(t, id, len);
    if (!text || !(t->marks[id] & RVI_MARK_RESPELLED)) return text;
    int32_t at = rvi_text_map_find(&t->added.map, text, *len);
    if (at < 0) return text;
    *len = t->added.tokens[at].spoken.len;
    return t->added.tokens[at].spoken.data;
}

int32_t rvi_tokenizer_find(const rvi_tokenizer *t, const char *text, size_t len)
{
    int32_t added = rvi_text_map_find(&t->added.map, text, len);
    return added >= 0 ? t->added.tokens[added].id : rvi_text_map_find(&t->bpe.map, text, len);
}

const char *rvi_tokenizer_chat_template(const rvi_tokenizer *t, size_t *len)
{
    *len = t->chat_template_len;
    return t->chat_template;
}

const char *rvi_tokenizer_special_text(const rvi_tokenizer *t, const char *which, size_t *len)
{
    *len = 0;
    for (int i = 0; i < RVI_N_ROLES; i++)
        if (!strcmp(rvi_role_names[i], which)) {
            *len = t->special[i].len;
            return t->special[i].text;
        }
    return NULL;
}
