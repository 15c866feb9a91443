/* pretokenizer.c - splits a text into the pieces that BPE works on.
 *
 * A step either splits the pieces it gets or rewrites the text. Every step drops empty pieces. */
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/bert_sets.h"
#include "tokenizer/internal.h"

typedef struct rvi_cut { /* the parts of a span, one after the other */
    size_t start, end;
    bool is_match;
} cut;

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void rvi_pretokenizer_deinit(rvi_pretokenizer *p)
{
    for (size_t i = 0; i < p->n; i++) {
        rvi_regex_free(p->steps[i].pattern);
        rvi_cpset_deinit(&p->steps[i].set);
    }
    rvi_free(p->steps);
    *p = (rvi_pretokenizer){0};
}

void rvi_pre_work_deinit(rvi_pre_work *w)
{
    for (int i = 0; i < 2; i++) {
        rvi_buf_deinit(&w->buf[i]);
        rvi_free(w->spans[i].data);
    }
    rvi_free(w->cuts);
    rvi_regex_work_deinit(&w->regex);
}

rvi_pre_step *rvi_pretokenizer_add(rvi_pretokenizer *p, rvi_pre_kind kind)
{
    if (!p->steps && !(p->steps = rvi_zalloc_array(RVI_TOK_STEPS_MAX, sizeof *p->steps)))
        return NULL;
    if (p->n == RVI_TOK_STEPS_MAX) return NULL; /* the callers stay below */
    p->steps[p->n].kind = kind;
    return &p->steps[p->n++];
}

/* ---- from JSON ---- */

static rv_status no_room(rv_error *err)
{
    return rvi_nomem(err, "pre-tokenizer");
}

static rv_status behavior_from_json(rvi_behavior *out, const rvi_json *v, rvi_behavior fallback,
                                    rv_error *err)
{
    static const char *const names[] = {
        [RVI_SPLIT_ISOLATED] = "Isolated",
        [RVI_SPLIT_REMOVED] = "Removed",
        [RVI_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [RVI_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [RVI_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = rvi_json_string(v, names[fallback]);
    for (size_t i = 0; i < RVI_COUNT(names); i++)
        if (!strcmp(names[i], name)) {
            *out = (rvi_behavior)i;
            return RV_OK;
        }
    return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: pre-tokenizer: unknown behavior '%s'",
                     name);
}

/* A step that cuts at each character of a property. */
static rv_status add_set(rvi_pretokenizer *out, const char *property, rvi_behavior behavior,
                         rv_error *err)
{
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_SPLIT_SET);
    if (!s) return no_room(err);
    s->behavior = behavior;
    bool ok = rvi_cpset_add_property(&s->set, property, strlen(property)) == RVI_PROPERTY_OK;
    rvi_cpset_close(&s->set);
    return ok ? RV_OK : no_room(err);
}

/* The same at punctuation, ASCII's symbols included. */
static rv_status add_punctuation(rvi_pretokenizer *out, rvi_behavior behavior, rv_error *err)
{
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_SPLIT_SET);
    if (!s) return no_room(err);
    s->behavior = behavior;
    return rvi_bert_set(&s->set, rvi_bert_punctuation, rvi_bert_n_punctuation) ? RV_OK
                                                                               : no_room(err);
}

rv_status rvi_pretokenizer_add_bert(rvi_pretokenizer *p, rv_error *err)
{
    rv_status st = add_set(p, "White_Space", RVI_SPLIT_REMOVED, err);
    return st ? st : add_punctuation(p, RVI_SPLIT_ISOLATED, err);
}

static rv_status add_pattern(rvi_pretokenizer *out, const char *pattern, rvi_behavior behavior,
                             bool invert, rv_error *err)
{
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_SPLIT);
    if (!s) return no_room(err);
    s->behavior = behavior;
    s->invert = invert;
    return rvi_regex_new(&s->pattern, pattern, strlen(pattern), err);
}

static rv_status byte_level(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                            rv_error *err)
{
    (void)arena;
    rv_status st = RV_OK;
    if (rvi_json_bool(rvi_json_get(v, "add_prefix_space"), true) &&
        !rvi_pretokenizer_add(out, RVI_PRE_PREFIX))
        return no_room(err);
    if (rvi_json_bool(rvi_json_get(v, "use_regex"), true))
        st = add_pattern(out, gpt2_pattern, RVI_SPLIT_ISOLATED, false, err);
    if (!st && !rvi_pretokenizer_add(out, RVI_PRE_BYTE_LEVEL)) st = no_room(err);
    return st;
}

static rv_status split(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena, rv_error *err)
{
    (void)arena;
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_SPLIT);
    if (!s) return no_room(err);
    const rvi_json *behavior = rvi_json_get(v, "behavior");
    if (!rvi_json_is(behavior, RVI_JSON_STRING))
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: pre-tokenizer Split without a behavior");
    rv_status st = behavior_from_json(&s->behavior, behavior, RVI_SPLIT_ISOLATED, err);
    s->invert = rvi_json_bool(rvi_json_get(v, "invert"), false);
    return st ? st
              : rvi_pattern_from_json(&s->pattern, rvi_json_get(v, "pattern"),
                                      "pre-tokenizer Split", err);
}

static rv_status digits(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena, rv_error *err)
{
    (void)arena;
    bool single = rvi_json_bool(rvi_json_get(v, "individual_digits"), false);
    return add_set(out, "N", single ? RVI_SPLIT_ISOLATED : RVI_SPLIT_CONTIGUOUS, err);
}

rv_status rvi_metaspace_from_json(const rvi_json *v, const char **text, size_t *len,
                                  rvi_prepend *prepend, rvi_arena *arena, rv_error *err)
{
    const rvi_json *r = rvi_json_get(v, "replacement");
    const char *s = rvi_json_string(r, "\xE2\x96\x81"),
               *scheme = rvi_json_string(rvi_json_get(v, "prepend_scheme"), NULL);
    *len = r && r->kind == RVI_JSON_STRING ? r->as.string.len : 3;
    if (rvi_utf8_count(s, *len) != 1)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: Metaspace: the replacement must be one character");
    if (!(*text = rvi_arena_strndup(arena, s, *len))) return rvi_nomem(err, "pre-tokenizer");
    *prepend = rvi_json_bool(rvi_json_get(v, "add_prefix_space"), true) ? RVI_PREPEND_ALWAYS
                                                                        : RVI_PREPEND_NEVER;
    if (!scheme) return RV_OK;
    if (!strcmp(scheme, "always"))
        *prepend = RVI_PREPEND_ALWAYS;
    else if (!strcmp(scheme, "first"))
        *prepend = RVI_PREPEND_FIRST;
    else if (!strcmp(scheme, "never"))
        *prepend = RVI_PREPEND_NEVER;
    else
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: Metaspace: unknown prepend_scheme '%s'", scheme);
    return RV_OK;
}

static rv_status metaspace(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                           rv_error *err)
{
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_METASPACE);
    if (!s) return no_room(err);
    rv_status st = rvi_metaspace_from_json(v, &s->text, &s->len, &s->prepend, arena, err);
    if (st || !rvi_json_bool(rvi_json_get(v, "split"), true)) return st;
    rvi_pre_step *cuts = rvi_pretokenizer_add(out, RVI_PRE_SPLIT);
    if (!cuts) return no_room(err);
    cuts->behavior = RVI_SPLIT_MERGED_WITH_NEXT;
    return rvi_regex_new_literal(&cuts->pattern, s->text, s->len, err);
}

static rv_status whitespace(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                            rv_error *err)
{
    (void)v, (void)arena;
    return add_pattern(out, "\\p{Word_With_Joiners}+|[^\\p{Word_With_Joiners}\\s]+",
                       RVI_SPLIT_REMOVED, true, err);
}

static rv_status whitespace_split(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                                  rv_error *err)
{
    (void)v, (void)arena;
    return add_set(out, "White_Space", RVI_SPLIT_REMOVED, err);
}

static rv_status punctuation(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                             rv_error *err)
{
    (void)arena;
    rvi_behavior behavior;
    rv_status st =
        behavior_from_json(&behavior, rvi_json_get(v, "behavior"), RVI_SPLIT_ISOLATED, err);
    return st ? st : add_punctuation(out, behavior, err);
}

static rv_status bert(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena, rv_error *err)
{
    (void)v, (void)arena;
    return rvi_pretokenizer_add_bert(out, err);
}

static rv_status delimiter(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                           rv_error *err)
{
    (void)arena;
    const rvi_json *d = rvi_json_get(v, "delimiter");
    if (!rvi_json_is(d, RVI_JSON_STRING) ||
        rvi_utf8_count(d->as.string.data, d->as.string.len) != 1)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: CharDelimiterSplit: the delimiter must be one character");
    rvi_pre_step *s = rvi_pretokenizer_add(out, RVI_PRE_SPLIT);
    if (!s) return no_room(err);
    s->behavior = RVI_SPLIT_REMOVED;
    return rvi_regex_new_literal(&s->pattern, d->as.string.data, d->as.string.len, err);
}

enum { STEPS_OF_ONE = 3 }; /* what one type makes, at most */

static const struct {
    const char *type;
    rv_status (*add)(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena, rv_error *err);
} pre_types[] = {
    {"ByteLevel", byte_level},    {"Split", split},           {"Digits", digits},
    {"Metaspace", metaspace},     {"Whitespace", whitespace}, {"WhitespaceSplit", whitespace_split},
    {"Punctuation", punctuation}, {"BertPreTokenizer", bert}, {"CharDelimiterSplit", delimiter},
};

static rv_status from_json(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena, int depth,
                           rv_error *err)
{
    const char *type = rvi_json_string(rvi_json_get(v, "type"), NULL);
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return RV_OK;
    if (!type)
        return rvi_error(err, RV_E_TOKENIZATION, "tokenizer.json: pre-tokenizer without a type");
    if (out->n + STEPS_OF_ONE > RVI_TOK_STEPS_MAX)
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: pre-tokenizer with too many steps");
    for (size_t k = 0; k < RVI_COUNT(pre_types); k++)
        if (!strcmp(pre_types[k].type, type)) return pre_types[k].add(out, v, arena, err);
    if (strcmp(type, "Sequence"))
        return rvi_error(err, RV_E_TOKENIZATION,
                         "tokenizer.json: pre-tokenizer '%s' is not supported", type);
    const rvi_json *list = rvi_json_get(v, "pretokenizers");
    if (!rvi_json_is(list, RVI_JSON_ARRAY) || depth > 8)
        return rvi_error(
            err, RV_E_TOKENIZATION,
            "tokenizer.json: pre-tokenizer Sequence without a list, or nested too deeply");
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        rv_status st = from_json(out, rvi_json_at(list, i), arena, depth + 1, err);
        if (st) return st;
    }
    return RV_OK;
}

rv_status rvi_pretokenizer_from_json(rvi_pretokenizer *out, const rvi_json *v, rvi_arena *arena,
                                     rv_error *err)
{
    return from_json(out, v, arena, 0, err);
}

/* ---- running ---- */

static bool push_pretoken(rvi_pretokens *list, size_t start, size_t len, bool first)
{
    if (!len) return true;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        rvi_pretoken *data = rvi_realloc_array(list->data, cap, sizeof *data);
        if (!data) return false;
        list->data = data;
        list->cap = cap;
    }
    list->data[list->n++] = (rvi_pretoken){start, len, first};
    return true;
}

static bool push_cut(rvi_pre_work *w, size_t start, size_t end, bool is_match)
{
    if (w->n_cuts == w->cap_cuts) {
        size_t cap = w->cap_cuts ? w->cap_cuts * 2 : 64;
        cut *cuts = rvi_realloc_array(w->cuts, cap, sizeof *cuts);
        if (!cuts) return false;
        w->cuts = cuts;
        w->cap_cuts = cap;
    }
    w->cuts[w->n_cuts++] = (cut){start, end, is_match};
    return true;
}

/* The parts of text: matches of the pattern and what lies between them. */
static rv_status cut_at_pattern(const rvi_pre_step *s, rvi_pre_work *w, const char *text,
                                size_t len, rv_error *err)
{
    size_t done = 0, start, end;
    bool found, ok = true;
    rvi_regex_begin(&w->regex, s->pattern, text, len);
    while (ok) {
        rv_status st = rvi_regex_next(&w->regex, &found, &start, &end, err);
        if (st) return st;
        if (!found) break;
        ok = (done == start || push_cut(w, done, start, s->invert)) &&
             push_cut(w, start, end, !s->invert);
        done = end;
    }
    if (done != len) ok = ok && push_cut(w, done, len, s->invert);
    return ok ? RV_OK : rvi_nomem(err, "pre-tokenizer");
}

static rv_status cut_at_set(const rvi_pre_step *s, rvi_pre_work *w, const char *text, size_t len,
                            rv_error *err)
{
    size_t done = 0;
    bool ok = true;
    for (size_t i = 0, used; ok && i < len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(text + i, len - i, &cp, NULL);
        if (!rvi_cpset_has(&s->set, cp)) continue;
        ok = (done == i || push_cut(w, done, i, false)) && push_cut(w, i, i + used, true);
        done = i + used;
    }
    if (done != len) ok = ok && push_cut(w, done, len, false);
    return ok ? RV_OK : rvi_nomem(err, "pre-tokenizer");
}

/* Puts the parts together as the behavior says, in place; the new number of parts. */
static size_t join_cuts(cut *cuts, size_t n, rvi_behavior behavior)
{
    size_t kept = 0;
    bool previous = false;
    switch (behavior) {
    case RVI_SPLIT_ISOLATED: return n;
    case RVI_SPLIT_REMOVED:
        for (size_t i = 0; i < n; i++)
            if (!cuts[i].is_match) cuts[kept++] = cuts[i];
        return kept;
    case RVI_SPLIT_CONTIGUOUS:
    case RVI_SPLIT_MERGED_WITH_PREVIOUS:
        for (size_t i = 0; i < n; i++) {
            bool is_match = cuts[i].is_match;
            bool join =
                behavior == RVI_SPLIT_CONTIGUOUS ? is_match == previous : is_match && !previous;
            if (join && kept)
                cuts[kept - 1].end = cuts[i].end;
            else
                cuts[kept++] = cuts[i];
            previous = is_match;
        }
        return kept;
    case RVI_SPLIT_MERGED_WITH_NEXT: /* the same from the end; the result gathers at the end */
        kept = n;
        for (size_t i = n; i-- > 0;) {
            cut c = cuts[i];
            if (c.is_match && !previous && kept < n)
                cuts[kept].start = c.start;
            else
                cuts[--kept] = c;
            previous = c.is_match;
        }
        memmove(cuts, cuts + kept, (n - kept) * sizeof *cuts);
        return n - kept;
    }
    return n;
}

static rv_status run_split(const rvi_pre_step *s, rvi_pre_work *w, const char *text,
                           const rvi_pretokens *in, rvi_pretokens *out, rv_error *err)
{
    for (size_t i = 0; i < in->n; i++) {
        rvi_pretoken span = in->data[i];
        const char *at = text + span.start;
        w->n_cuts = 0;
        rv_status st = s->kind == RVI_PRE_SPLIT ? cut_at_pattern(s, w, at, span.len, err)
                                                : cut_at_set(s, w, at, span.len, err);
        if (st) return st;
        size_t n = join_cuts(w->cuts, w->n_cuts, s->behavior);
        for (size_t k = 0; k < n; k++) {
            const cut *c = &w->cuts[k];
            if (!push_pretoken(out, span.start + c->start, c->end - c->start,
                               span.first && c->start == 0))
                return rvi_nomem(err, "pre-tokenizer");
        }
    }
    return RV_OK;
}

static void write_metaspace(const rvi_pre_step *s, const char *text, size_t len, bool first,
                            rvi_buf *out)
{
    bool has = *text == ' ' || (len >= s->len && !memcmp(text, s->text, s->len));
    if (!has && (s->prepend == RVI_PREPEND_ALWAYS || (s->prepend == RVI_PREPEND_FIRST && first)))
        rvi_buf_append(out, s->text, s->len);
    for (size_t done = 0; done < len;) {
        const char *space = memchr(text + done, ' ', len - done);
        size_t n = space ? (size_t)(space - text) - done : len - done;
        rvi_buf_append(out, text + done, n);
        if (space) rvi_buf_append(out, s->text, s->len);
        done += n + 1;
    }
}

/* text_len: of the text that the first step got. */
static rv_status run_rewrite(const rvi_pre_step *s, const char *text, size_t text_len,
                             const rvi_pretokens *in, rvi_buf *to, rvi_pretokens *out,
                             rv_error *err)
{
    for (size_t i = 0; i < in->n; i++) {
        const char *at = text + in->data[i].start;
        size_t len = in->data[i].len, start = to->len;
        if (s->kind == RVI_PRE_METASPACE) {
            write_metaspace(s, at, len, in->data[i].first, to);
        } else if (s->kind == RVI_PRE_BYTE_LEVEL) {
            rvi_byte_level_write(to, at, len);
        } else {
            if (*at != ' ') rvi_buf_putc(to, ' ');
            rvi_buf_append(to, at, len);
        }
        rv_status st = rvi_tok_grown(to, "pre-tokenizer", text_len, err);
        if (st) return st;
        if (!push_pretoken(out, start, to->len - start, in->data[i].first))
            return rvi_nomem(err, "pre-tokenizer");
    }
    return RV_OK;
}

rv_status rvi_pretokenizer_run(const rvi_pretokenizer *p, rvi_pre_work *w, const char *text,
                               size_t len, bool first, const char **out_text,
                               const rvi_pretokens **spans, rv_error *err)
{
    int now = 0, buf = 0; /* the list of spans in use; the buffer that is free */
    w->spans[0].n = 0;
    if (!push_pretoken(&w->spans[0], 0, len, first)) return rvi_nomem(err, "pre-tokenizer");
    for (size_t i = 0; i < p->n; i++) {
        const rvi_pre_step *s = &p->steps[i];
        rvi_pretokens *in = &w->spans[now], *out = &w->spans[!now];
        rv_status st;
        out->n = 0;
        if (s->kind == RVI_PRE_SPLIT || s->kind == RVI_PRE_SPLIT_SET) {
            st = run_split(s, w, text, in, out, err);
        } else {
            rvi_tok_grow(&w->buf[buf], len);
            st = run_rewrite(s, text, len, in, &w->buf[buf], out, err);
            text = w->buf[buf].len ? w->buf[buf].data : "";
            buf = !buf;
        }
        if (st) return st;
        now = !now;
    }
    *out_text = text;
    *spans = &w->spans[now];
    return RV_OK;
}
