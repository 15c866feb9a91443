/* normalizer.c - the steps that change a text before it is cut into pieces. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/bert_sets.h"
#include "tokenizer/internal.h"

void rvi_normalizer_deinit(rvi_normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        rvi_regex_free(n->steps[i].pattern);
        rvi_cpset_deinit(&n->steps[i].set);
    }
    rvi_free(n->steps);
    rvi_cpset_deinit(&n->marks);
    *n = (rvi_normalizer){0};
}

void rvi_norm_work_deinit(rvi_norm_work *w)
{
    rvi_buf_deinit(&w->buf[0]);
    rvi_buf_deinit(&w->buf[1]);
    rvi_regex_work_deinit(&w->regex);
}

rvi_norm_step *rvi_normalizer_add(rvi_normalizer *n, rvi_norm_kind kind)
{
    if (!n->steps && !(n->steps = rvi_zalloc_array(RVI_TOK_STEPS_MAX, sizeof *n->steps)))
        return NULL;
    if (n->n == RVI_TOK_STEPS_MAX) return NULL; /* the callers stay below */
    n->steps[n->n].kind = kind;
    return &n->steps[n->n++];
}

rv_status rvi_normalizer_add_bert(rvi_normalizer *n, bool clean, bool han, bool strip_accents,
                                  bool lowercase, rv_error *err)
{
    bool ok = true;
    if (clean) {
        rvi_norm_step *s = rvi_normalizer_add(n, RVI_NORM_CLEAN);
        ok = s && rvi_bert_set(&s->set, rvi_bert_removed, rvi_bert_n_removed);
    }
    if (han) ok = ok && rvi_normalizer_add(n, RVI_NORM_SPACE_HAN);
    if (strip_accents) {
        rvi_norm_step *form = ok ? rvi_normalizer_add(n, RVI_NORM_FORM) : NULL;
        if (form) form->form = RVI_NFD;
        rvi_norm_step *s = form ? rvi_normalizer_add(n, RVI_NORM_STRIP_SET) : NULL;
        ok = s && rvi_bert_set(&s->set, rvi_bert_marks, rvi_bert_n_marks);
    }
    if (lowercase) ok = ok && rvi_normalizer_add(n, RVI_NORM_LOWERCASE);
    return ok ? RV_OK : rvi_nomem(err, "normalizer");
}

/* ---- from JSON ---- */

rv_status rvi_pattern_from_json(rvi_regex **out, const rvi_json *v, const char *where,
                                rv_error *err)
{
    const rvi_json *text = rvi_json_get(v, "String"), *regex = rvi_json_get(v, "Regex");
    *out = NULL;
    if (rvi_json_is(text, RVI_JSON_STRING) && text->as.string.len)
        return rvi_regex_new_literal(out, text->as.string.data, text->as.string.len, err);
    if (rvi_json_is(regex, RVI_JSON_STRING))
        return rvi_regex_new(out, regex->as.string.data, regex->as.string.len, err);
    return rvi_error(err, RV_E_TOKENIZATION,
                     "tokenizer.json: %s: pattern must be {\"String\": text} or {\"Regex\": text}",
                     where);
}

static rv_status copy_text(const char **out, size_t *len, const rvi_json *v, const char *where,
                           rvi_arena *arena, rv_error *err)
{
    if (!rvi_json_is(v, RVI_JSON_STRING))
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: %s: text missing", where);
    *out = rvi_arena_strndup(arena, v->as.string.data, v->as.string.len);
    *len = v->as.string.len;
    return *out ? RV_OK : rvi_nomem(err, where);
}

static const struct {
    const char *type;
    rvi_norm_kind kind;
    rvi_unicode_form form;
} norm_types[] = {
    {"NFC", RVI_NORM_FORM, RVI_NFC},
    {"NFD", RVI_NORM_FORM, RVI_NFD},
    {"NFKC", RVI_NORM_FORM, RVI_NFKC},
    {"NFKD", RVI_NORM_FORM, RVI_NFKD},
    {"Prepend", RVI_NORM_PREPEND, RVI_NFC},
    {"Replace", RVI_NORM_REPLACE, RVI_NFC},
    {"Strip", RVI_NORM_STRIP, RVI_NFC},
    {"Lowercase", RVI_NORM_LOWERCASE, RVI_NFC},
    {"StripAccents", RVI_NORM_STRIP_ACCENTS, RVI_NFC},
    {"ByteLevel", RVI_NORM_BYTE_LEVEL, RVI_NFC},
};

/* strip_accents null: as lowercase says */
static rv_status add_bert(rvi_normalizer *out, const rvi_json *v, rv_error *err)
{
    bool lowercase = rvi_json_bool(rvi_json_get(v, "lowercase"), true);
    return rvi_normalizer_add_bert(out, rvi_json_bool(rvi_json_get(v, "clean_text"), true),
                                   rvi_json_bool(rvi_json_get(v, "handle_chinese_chars"), true),
                                   rvi_json_bool(rvi_json_get(v, "strip_accents"), lowercase),
                                   lowercase, err);
}

enum { STEPS_OF_ONE = 5 }; /* what one type makes, at most */

static rv_status add_step(rvi_normalizer *out, const rvi_json *v, const char *type,
                          rvi_arena *arena, rv_error *err)
{
    if (!strcmp(type, "BertNormalizer")) return add_bert(out, v, err);
    size_t k = 0;
    while (k < RVI_COUNT(norm_types) && strcmp(norm_types[k].type, type)) k++;
    if (k == RVI_COUNT(norm_types))
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: normalizer '%s' is not supported",
                         type);
    rvi_norm_step *s = rvi_normalizer_add(out, norm_types[k].kind);
    if (!s) return rvi_nomem(err, "normalizer");
    s->form = norm_types[k].form;
    switch (s->kind) {
    case RVI_NORM_PREPEND:
        return copy_text(&s->text, &s->len, rvi_json_get(v, "prepend"), "normalizer Prepend", arena,
                         err);
    case RVI_NORM_REPLACE: {
        rv_status st = rvi_pattern_from_json(&s->pattern, rvi_json_get(v, "pattern"),
                                             "normalizer Replace", err);
        return st ? st
                  : copy_text(&s->text, &s->len, rvi_json_get(v, "content"), "normalizer Replace",
                              arena, err);
    }
    case RVI_NORM_STRIP:
        s->left = rvi_json_bool(rvi_json_get(v, "strip_left"), true);
        s->right = rvi_json_bool(rvi_json_get(v, "strip_right"), true);
        return RV_OK;
    case RVI_NORM_STRIP_ACCENTS:
        if (out->marks.n) return RV_OK;
        if (rvi_cpset_add_property(&out->marks, "M", 1) != RVI_PROPERTY_OK)
            return rvi_nomem(err, "normalizer");
        rvi_cpset_close(&out->marks);
        return RV_OK;
    default: return RV_OK;
    }
}

static rv_status from_json(rvi_normalizer *out, const rvi_json *v, rvi_arena *arena, int depth,
                           rv_error *err)
{
    const char *type = rvi_json_string(rvi_json_get(v, "type"), NULL);
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return RV_OK;
    if (!type)
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: normalizer without a type");
    if (out->n + STEPS_OF_ONE > RVI_TOK_STEPS_MAX)
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: normalizer with too many steps");
    if (strcmp(type, "Sequence")) return add_step(out, v, type, arena, err);
    const rvi_json *list = rvi_json_get(v, "normalizers");
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || depth > 8)
        return rvi_error(
            err, RV_E_TOKENIZATION,
            "tokenizer.json: normalizer Sequence without a list, or nested too deeply");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        rv_status st = from_json(out, rvi_json_at(list, i), arena, depth + 1, err);
        if (st) return st;
    }
    return RV_OK;
}

rv_status rvi_normalizer_from_json(rvi_normalizer *out, const rvi_json *v, rvi_arena *arena,
                                   rv_error *err)
{
    return from_json(out, v, arena, 0, err);
}

/* ---- running ---- */

static rv_status replace(const rvi_norm_step *s, rvi_norm_work *w, rvi_piece in, rvi_buf *out,
                         bool *moved, rv_error *err)
{
    size_t done = 0, start, end;
    bool found;
    rvi_regex_begin(&w->regex, s->pattern, in.data, in.len);
    for (;;) {
        rv_status st = rvi_regex_next(&w->regex, &found, &start, &end, err);
        if (st || !found) {
            rvi_buf_append(out, in.data + done, in.len - done);
            return st;
        }
        rvi_buf_append(out, in.data + done, start - done);
        rvi_buf_append(out, s->text, s->len);
        if (out->failed) return RV_OK;
        if (!out->len && end) *moved = true;
        done = end;
    }
}

static void lowercase(rvi_piece in, rvi_buf *out)
{
    for (size_t i = 0; i < in.len;) {
        uint32_t cp;
        char bytes[4];
        i += rvi_utf8_decode(in.data + i, in.len - i, &cp, NULL);
        rvi_buf_append(out, bytes,
                       rvi_utf8_encode(cp == 0x130 ? 'i' : rvi_unicode_to_lower(cp), bytes));
        if (cp == 0x130)
            rvi_buf_append(out, "\xCC\x87",
                           2); /* the only one with two characters: i and a dot above */
    }
}

static void strip_set(const rvi_cpset *set, rvi_piece in, rvi_buf *out, bool *moved)
{
    for (size_t i = 0, used; i < in.len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(in.data + i, in.len - i, &cp, NULL);
        if (!rvi_cpset_has(set, cp))
            rvi_buf_append(out, in.data + i, used);
        else if (!out->len)
            *moved = true;
    }
}

static void clean(const rvi_cpset *removed, rvi_piece in, rvi_buf *out, bool *moved)
{
    for (size_t i = 0, used; i < in.len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(in.data + i, in.len - i, &cp, NULL);
        if (rvi_cpset_has(removed, cp)) {
            if (!out->len) *moved = true;
        } else if (rvi_unicode_is_space(cp)) {
            rvi_buf_putc(out, ' ');
        } else {
            rvi_buf_append(out, in.data + i, used);
        }
    }
}

/* The blocks of ideographs as BERT knows them, its gap before U+2B920 included. */
static bool is_han(uint32_t cp)
{
    static const rvi_unicode_range blocks[] = {
        {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
        {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < RVI_COUNT(blocks); i++)
        if (cp >= blocks[i].first && cp <= blocks[i].last) return true;
    return false;
}

static void space_han(rvi_piece in, rvi_buf *out)
{
    for (size_t i = 0, used; i < in.len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(in.data + i, in.len - i, &cp, NULL);
        bool han = is_han(cp);
        if (han) rvi_buf_putc(out, ' ');
        rvi_buf_append(out, in.data + i, used);
        if (han) rvi_buf_putc(out, ' ');
    }
}

static rvi_piece strip(const rvi_norm_step *s, rvi_piece in, bool *moved)
{
    uint32_t cp;
    while (s->left && in.len) {
        size_t used = rvi_utf8_decode(in.data, in.len, &cp, NULL);
        if (!rvi_unicode_is_space(cp)) break;
        in.data += used;
        in.len -= used;
        *moved = true;
    }
    while (s->right && in.len) {
        size_t at = in.len - 1;
        while (at && ((unsigned char)in.data[at] & 0xC0) == 0x80) at--;
        rvi_utf8_decode(in.data + at, in.len - at, &cp, NULL);
        if (!rvi_unicode_is_space(cp)) break;
        in.len = at;
    }
    return in;
}

/* at_start, at_end: the text is not cut off there. */
static rv_status run(const rvi_normalizer *n, rvi_norm_work *w, const char *text, size_t len,
                     bool at_start, bool at_end, rvi_piece *out, bool *moved, rv_error *err)
{
    rvi_piece now = {text, len};
    int side = 0; /* the buffer that is free */
    *moved = false;
    for (size_t i = 0; i < n->n; i++) {
        const rvi_norm_step *s = &n->steps[i];
        rvi_buf *to = &w->buf[side];
        rv_status st = RV_OK;
        if (s->kind == RVI_NORM_STRIP) {
            if (at_start && at_end) now = strip(s, now, moved);
            continue;
        }
        if (s->kind == RVI_NORM_PREPEND && !at_start) continue;
        rvi_tok_grow(to, len);
        switch (s->kind) {
        case RVI_NORM_FORM: st = rvi_unicode_normalize(s->form, now.data, now.len, to, err); break;
        case RVI_NORM_PREPEND:
            if (now.len) rvi_buf_append(to, s->text, s->len);
            rvi_buf_append(to, now.data, now.len);
            break;
        case RVI_NORM_REPLACE: st = replace(s, w, now, to, moved, err); break;
        case RVI_NORM_LOWERCASE: lowercase(now, to); break;
        case RVI_NORM_STRIP_ACCENTS: strip_set(&n->marks, now, to, moved); break;
        case RVI_NORM_STRIP_SET: strip_set(&s->set, now, to, moved); break;
        case RVI_NORM_CLEAN: clean(&s->set, now, to, moved); break;
        case RVI_NORM_SPACE_HAN: space_han(now, to); break;
        case RVI_NORM_BYTE_LEVEL: rvi_byte_level_write(to, now.data, now.len); break;
        case RVI_NORM_STRIP: break;
        }
        if (!st) st = rvi_tok_grown(to, "normalizer", len, err);
        if (st) return st;
        w->spent += to->len + (s->kind == RVI_NORM_REPLACE ? w->regex.steps : 0);
        if (w->most && w->spent > w->most)
            return rvi_error(err, RV_E_TOKENIZATION,
                             "tokenizer.json: normalizing the added tokens takes too long");
        now = (rvi_piece){to->len ? to->data : "", to->len};
        side = !side;
    }
    *out = now;
    return RV_OK;
}

rv_status rvi_normalizer_run(const rvi_normalizer *n, rvi_norm_work *w, const char *text,
                             size_t len, rvi_piece *out, bool *moved, rv_error *err)
{
    return run(n, w, text, len, true, true, out, moved, err);
}

rv_status rvi_normalizer_measure(const rvi_normalizer *n, rvi_norm_work *w, const char *text,
                                 size_t len, bool first, size_t *out, rv_error *err)
{
    rvi_piece piece = {0};
    bool moved;
    rv_status st = run(n, w, text, len, first, false, &piece, &moved, err);
    *out = piece.len;
    return st;
}
