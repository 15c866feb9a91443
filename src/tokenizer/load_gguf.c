/* load_gguf.c - a tokenizer from the metadata of a GGUF file (tokenizer.ggml.*).
 *
 * "gpt2" is byte-level BPE with a list of merges and a named pre-tokenizer (gguf_pre.c). "llama" is
 * a SentencePiece model: there are scores instead of merges. Every way to build a token from two
 * others becomes a merge whose rank is the place of the token's score, so that the same code runs
 * both kinds. "bert" is WordPiece: pieces that begin a word are stored with U+2581 in front, those
 * within a word bare; here they get BERT's own spelling ("##" within a word). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/gguf_pre.h"
#include "tokenizer/internal.h"

typedef enum token_type { /* the file's own numbers */
                          TYPE_NORMAL = 1,
                          TYPE_UNKNOWN,
                          TYPE_CONTROL,
                          TYPE_USER_DEFINED,
                          TYPE_UNUSED,
                          TYPE_BYTE,
} token_type;

typedef struct loader {
    const rvi_gguf *g;
    rvi_tokenizer *t;
    const rvi_gguf_value *tokens, *types, *scores, *merges;
    const rvi_gguf_pre *pre;
    bool word_pieces;
    const rvi_log *log;
    rv_error *err;
} loader;

static const char metaspace[] = "\xE2\x96\x81"; /* U+2581 */

static rv_status bad(loader *l, const char *what)
{
    return rvi_error(l->err, RV_E_TOKENIZATION, "GGUF metadata: %s", what);
}

static token_type type_of(const loader *l, uint64_t i)
{
    return l->types ? (token_type)rvi_gguf_item_i64(l->types, i) : TYPE_NORMAL;
}

static bool is_numbers(const rvi_gguf_value *v)
{
    return v->kind == RVI_GGUF_ARRAY && v->item_kind != RVI_GGUF_STRING &&
           v->item_kind != RVI_GGUF_ARRAY;
}

/* ---- tokens ---- */

static rv_status find_arrays(loader *l)
{
    l->tokens = rvi_gguf_find(l->g, "tokenizer.ggml.tokens");
    l->types = rvi_gguf_find(l->g, "tokenizer.ggml.token_type");
    l->scores = rvi_gguf_find(l->g, "tokenizer.ggml.scores");
    l->merges = rvi_gguf_find(l->g, "tokenizer.ggml.merges");
    if (!l->tokens || l->tokens->kind != RVI_GGUF_ARRAY ||
        l->tokens->item_kind != RVI_GGUF_STRING || !l->tokens->count)
        return bad(l, "tokenizer.ggml.tokens is missing, empty or not a list of texts");
    if (l->tokens->count > RVI_TOK_IDS_MAX)
        return bad(l, "tokenizer.ggml.tokens has too many tokens");
    if (l->types && (!is_numbers(l->types) || l->types->count != l->tokens->count))
        return bad(l, "tokenizer.ggml.token_type is not a list of numbers as long as the tokens");
    if (l->scores && (!is_numbers(l->scores) || l->scores->count != l->tokens->count))
        return bad(l, "tokenizer.ggml.scores is not a list of numbers as long as the tokens");
    if (l->merges && (l->merges->kind != RVI_GGUF_ARRAY || l->merges->item_kind != RVI_GGUF_STRING))
        return bad(l, "tokenizer.ggml.merges is not a list of texts");
    return RV_OK;
}

/* Token texts of a file need not be UTF-8; ours always are. */
static const char *copy_valid(loader *l, rvi_str s, size_t *len)
{
    rvi_buf text = {0};
    bool all_valid = true;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        char bytes[4];
        bool valid;
        i += rvi_utf8_decode(s.data + i, s.len - i, &cp, &valid);
        all_valid = all_valid && valid;
        rvi_buf_append(&text, bytes, rvi_utf8_encode(cp, bytes));
    }
    const char *copy =
        text.failed ? NULL : rvi_arena_strndup(&l->t->arena, text.len ? text.data : "", text.len);
    *len = text.len;
    rvi_buf_deinit(&text);
    if (!all_valid)
        rvi_log_write(l->log, RVI_LOG_WARN, "GGUF metadata: a token's text is not UTF-8");
    return copy;
}

static bool is_text_valid(rvi_str s)
{
    bool valid = true;
    uint32_t cp;
    for (size_t i = 0; i < s.len && valid;)
        i += (unsigned char)s.data[i] < 0x80 ? 1
                                             : rvi_utf8_decode(s.data + i, s.len - i, &cp, &valid);
    return valid;
}

/* BERT's own spelling of a piece. */
static bool respell_piece(loader *l, rvi_piece *p, token_type type)
{
    bool begins = p->len >= 3 && !memcmp(p->data, metaspace, 3);
    if (!begins && (type == TYPE_CONTROL || type == TYPE_UNKNOWN)) return true;
    size_t n = begins ? p->len - 3 : p->len + 2;
    char *text = rvi_arena_alloc(&l->t->arena, n + 1, 1);
    if (!text) return false;
    if (!begins) memcpy(text, "##", 2);
    memcpy(text + (begins ? 0 : 2), p->data + (begins ? 3 : 0), begins ? n : p->len);
    *p = (rvi_piece){text, n};
    return true;
}

static rv_status load_tokens(loader *l)
{
    rvi_tokenizer *t = l->t;
    rv_status st = rvi_text_map_init(&t->bpe.map, (size_t)l->tokens->count, l->err);
    if (st) return st;
    for (uint64_t i = 0; i < l->tokens->count; i++) {
        rvi_str s = l->tokens->strings[i];
        rvi_piece *p = &t->pieces[i];
        token_type type = type_of(l, i);
        p->len = s.len;
        p->data = is_text_valid(s) ? rvi_arena_strndup(&t->arena, s.data, s.len)
                                   : copy_valid(l, s, &p->len);
        if (!p->data || (l->word_pieces && !respell_piece(l, p, type)))
            return rvi_nomem(l->err, "vocabulary");
        if (type != TYPE_UNKNOWN && type != TYPE_CONTROL) /* of equal texts the first counts */
            rvi_text_map_put(&t->bpe.map, p->data, p->len, (int32_t)i);
        if (type != TYPE_UNKNOWN && type != TYPE_CONTROL && type != TYPE_USER_DEFINED) continue;
        if (!p->len || p->len > RVI_TOK_ADDED_LEN_MAX) continue;
        rvi_added_token *a = rvi_tokenizer_add_token(t);
        if (!a) return rvi_nomem(l->err, "added tokens");
        *a = (rvi_added_token){
            .text = p->data, .len = p->len, .id = (int32_t)i, .special = type != TYPE_USER_DEFINED};
    }
    return RV_OK;
}

/* ---- merges ---- */

static rv_status load_merges(loader *l)
{
    const rvi_bpe *bpe = &l->t->bpe;
    size_t n = l->merges ? (size_t)l->merges->count : 0, n_skipped = 0;
    rvi_buf both = {0};
    if (!l->merges) return bad(l, "tokenizer.ggml.merges is missing");
    rv_status st = rvi_merge_map_init(&l->t->bpe.merges, n, l->err);
    for (size_t i = 0; i < n && !st; i++) {
        rvi_str s = l->merges->strings[i];
        const char *space =
            s.len ? memchr(s.data + 1, ' ', s.len - 1) : NULL; /* a token may begin with a space */
        size_t left = space ? (size_t)(space - s.data) : s.len,
               right = space ? s.len - left - 1 : 0;
        both.len = 0;
        rvi_buf_append(&both, s.data, left);
        if (space) rvi_buf_append(&both, space + 1, right);
        if (both.failed) st = rvi_nomem(l->err, "merges");
        if (st) break;
        rvi_merge m = {.rank = (uint32_t)i};
        m.left = rvi_text_map_find(&bpe->map, s.data, left);
        m.right = space ? rvi_text_map_find(&bpe->map, space + 1, right) : -1;
        m.merged = rvi_text_map_find(&bpe->map, both.data, both.len);
        if (m.left < 0 || m.right < 0 || m.merged < 0)
            n_skipped++;
        else
            rvi_merge_map_put(&l->t->bpe.merges, &m);
    }
    rvi_buf_deinit(&both);
    if (!st && n_skipped)
        rvi_log_write(l->log, RVI_LOG_WARN,
                      "GGUF metadata: %zu merges name tokens that are not in the vocabulary",
                      n_skipped);
    return st;
}

typedef struct scored {
    double score;
    int32_t id;
} scored;

static int best_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

typedef struct merge_list {
    rvi_merge *data;
    size_t n, cap;
} merge_list;

static bool push_merge(merge_list *list, const rvi_merge *m)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 1024;
        rvi_merge *data = rvi_realloc_array(list->data, cap, sizeof *data);
        if (!data) return false;
        list->data = data;
        list->cap = cap;
    }
    list->data[list->n++] = *m;
    return true;
}

/* Each way to cut the token in two tokens is a merge. */
static bool cut_token(const loader *l, int32_t id, uint32_t rank, merge_list *out)
{
    const rvi_text_map *map = &l->t->bpe.map;
    rvi_piece p = l->t->pieces[id];
    if (p.len > RVI_TOK_ADDED_LEN_MAX)
        return true; /* no vocabulary has such tokens; keeps this linear */
    for (size_t i = 1; i < p.len; i++) {
        if (((unsigned char)p.data[i] & 0xC0) == 0x80) continue;
        rvi_merge m = {.rank = rank, .merged = id};
        m.left = rvi_text_map_find(map, p.data, i);
        m.right = m.left < 0 ? -1 : rvi_text_map_find(map, p.data + i, p.len - i);
        if (m.right < 0 || type_of(l, (uint64_t)m.left) == TYPE_BYTE ||
            type_of(l, (uint64_t)m.right) == TYPE_BYTE)
            continue;
        if (!push_merge(out, &m)) return false;
    }
    return true;
}

static rv_status merges_from_scores(loader *l)
{
    size_t n = (size_t)l->tokens->count, n_used = 0;
    merge_list list = {0};
    if (!l->scores) return bad(l, "tokenizer.ggml.scores is missing");
    scored *order = rvi_alloc_array(n, sizeof *order);
    if (!order) return rvi_nomem(l->err, "merges");
    for (size_t i = 0; i < n; i++) {
        const rvi_piece *p = &l->t->pieces[i];
        double score = rvi_gguf_item_f64(l->scores, i);
        /* Also user-defined tokens: one of U+2581 is cut out of raw text only where that has U+2581
         * itself. */
        if (type_of(l, i) != TYPE_NORMAL && type_of(l, i) != TYPE_USER_DEFINED) continue;
        if (rvi_text_map_find(&l->t->bpe.map, p->data, p->len) != (int32_t)i) continue;
        order[n_used++] = (scored){.score = isnan(score) ? -INFINITY : score, .id = (int32_t)i};
    }
    if (n_used) qsort(order, n_used, sizeof *order, best_first);
    bool ok = true;
    for (size_t i = 0, rank = 0; i < n_used && ok; i++) {
        if (i && order[i].score != order[i - 1].score) rank = i; /* equal scores: equal ranks */
        ok = cut_token(l, order[i].id, (uint32_t)rank, &list);
    }
    rv_status st =
        ok ? rvi_merge_map_init(&l->t->bpe.merges, list.n, l->err) : rvi_nomem(l->err, "merges");
    for (size_t i = 0; i < list.n && !st; i++) rvi_merge_map_put(&l->t->bpe.merges, &list.data[i]);
    rvi_free(list.data);
    rvi_free(order);
    return st;
}

/* ---- steps ---- */

static rv_status no_room(loader *l)
{
    return rvi_nomem(l->err, "tokenizer steps");
}

static rv_status byte_level_steps(loader *l)
{
    rvi_tokenizer *t = l->t;
    rv_status st = RV_OK;
    if (l->pre->nfc) {
        rvi_norm_step *s = rvi_normalizer_add(&t->normalizer, RVI_NORM_FORM);
        if (!s) return no_room(l);
        s->form = RVI_NFC;
    }
    for (size_t i = 0; i < RVI_PRE_PATTERNS_MAX && l->pre->patterns[i] && !st; i++) {
        rvi_pre_step *s = rvi_pretokenizer_add(&t->pretokenizer, RVI_PRE_SPLIT);
        if (!s) return no_room(l);
        s->behavior = RVI_SPLIT_ISOLATED;
        st = rvi_regex_new(&s->pattern, l->pre->patterns[i], strlen(l->pre->patterns[i]), l->err);
    }
    if (st) return st;
    if (!rvi_pretokenizer_add(&t->pretokenizer, RVI_PRE_BYTE_LEVEL)) return no_room(l);
    return rvi_decoder_add(&t->decoder, RVI_DEC_BYTE_LEVEL) ? RV_OK : no_room(l);
}

/* U+2581 for a space, and one in front: never, of every text between special tokens (ALWAYS, even
 * if there is a space already), or of the first text only and only if it does not begin with one.
 */
static rv_status spaces_to_metaspace(loader *l, rvi_prepend prepend)
{
    rvi_tokenizer *t = l->t;
    if (prepend == RVI_PREPEND_FIRST) {
        rvi_pre_step *s = rvi_pretokenizer_add(&t->pretokenizer, RVI_PRE_METASPACE);
        if (!s) return no_room(l);
        s->text = metaspace;
        s->len = 3;
        s->prepend = prepend;
        return RV_OK;
    }
    if (prepend == RVI_PREPEND_ALWAYS) {
        rvi_norm_step *s = rvi_normalizer_add(&t->normalizer, RVI_NORM_PREPEND);
        if (!s) return no_room(l);
        s->text = metaspace;
        s->len = 3;
    }
    rvi_norm_step *r = rvi_normalizer_add(&t->normalizer, RVI_NORM_REPLACE);
    if (!r) return no_room(l);
    r->text = metaspace;
    r->len = 3;
    return rvi_regex_new_literal(&r->pattern, " ", 1, l->err);
}

/* Decoding undoes it. */
static rv_status metaspace_steps(loader *l, rvi_prepend prepend)
{
    rvi_tokenizer *t = l->t;
    rv_status st = spaces_to_metaspace(l, prepend);
    if (st) return st;
    rvi_dec_step *back = rvi_decoder_add(&t->decoder, RVI_DEC_REPLACE);
    if (!back) return no_room(l);
    back->from = metaspace;
    back->from_len = 3;
    back->to = " ";
    back->to_len = 1;
    if (!rvi_decoder_add(&t->decoder, RVI_DEC_BYTE_FALLBACK) ||
        !rvi_decoder_add(&t->decoder, RVI_DEC_FUSE))
        return no_room(l);
    if (prepend == RVI_PREPEND_NEVER) return RV_OK;
    rvi_dec_step *strip = rvi_decoder_add(&t->decoder, RVI_DEC_STRIP);
    if (!strip) return no_room(l);
    strip->cp = ' ';
    strip->start = 1;
    return RV_OK;
}

static rv_status load_byte_level(loader *l)
{
    rvi_str pre = {"", 0};
    rv_status st;
    rvi_gguf_get_str(l->g, "tokenizer.ggml.pre", &pre);
    l->pre = rvi_gguf_pre_find(pre.data, pre.len);
    if (!l->pre) {
        rvi_log_write(l->log, RVI_LOG_WARN,
                      "GGUF metadata: tokenizer.ggml.pre is %s%.*s%s; GPT-2's pattern is used",
                      pre.len ? "unknown: '" : "missing", (int)RVI_MIN(pre.len, (size_t)60),
                      pre.data, pre.len ? "'" : "");
        l->pre = rvi_gguf_pre_find("gpt-2", 5);
    }
    l->t->bpe.ignore_merges = l->pre->ignore_merges;
    l->t->bpe.byte_fallback = l->pre->raw;
    snprintf(l->t->kind, sizeof l->t->kind, "%s BPE (%.*s)",
             l->pre->raw ? "SentencePiece-like" : "byte-level",
             (int)RVI_MIN(pre.len ? pre.len : 7, (size_t)32), pre.len ? pre.data : "default");
    if ((st = load_merges(l))) return st;
    return l->pre->raw ? metaspace_steps(l, RVI_PREPEND_NEVER) : byte_level_steps(l);
}

static bool has_added(const loader *l, const char *text)
{
    for (size_t i = 0; i < l->t->added.n; i++)
        if (!strcmp(l->t->added.tokens[i].text, text)) return true;
    return false;
}

/* The metadata cannot tell the two ways to put a space in front. Vocabularies with [INST] as a
 * token (Mistral's from the second version on) are newer than the change of ways; Llama 2's and its
 * kin are older. */
static rv_status load_sentence_piece(loader *l)
{
    bool in_front = true;
    rvi_prepend prepend = RVI_PREPEND_NEVER;
    rvi_gguf_get_bool(l->g, "tokenizer.ggml.add_space_prefix", &in_front);
    if (in_front) prepend = has_added(l, "[INST]") ? RVI_PREPEND_FIRST : RVI_PREPEND_ALWAYS;
    snprintf(l->t->kind, sizeof l->t->kind, "SentencePiece-like BPE (scores)");
    l->t->bpe.byte_fallback = true;
    l->t->bpe.fuse_unk = true;
    rv_status st = merges_from_scores(l);
    return st ? st : metaspace_steps(l, prepend);
}

/* ---- WordPiece ---- */

/* Files need not say whether text is lowercased. A vocabulary whose ordinary pieces have capitals
 * is one of a cased model. Bracketed pieces ("[unused7]", "[UNK]") do not count. */
static bool has_capitals(const loader *l)
{
    for (uint64_t i = 0; i < l->tokens->count; i++) {
        rvi_piece p = l->t->pieces[i];
        if (type_of(l, i) != TYPE_NORMAL || (p.len && p.data[0] == '[')) continue;
        for (size_t k = 0; k < p.len; k++)
            if (p.data[k] >= 'A' && p.data[k] <= 'Z') return true;
    }
    return false;
}

static rv_status prepare_pieces(loader *l)
{
    size_t n = (size_t)l->tokens->count;
    bool *skip = rvi_zalloc_array(n, sizeof *skip);
    if (!skip) return rvi_nomem(l->err, "vocabulary");
    for (size_t i = 0; i < n; i++)
        skip[i] = type_of(l, i) == TYPE_CONTROL || type_of(l, i) == TYPE_UNKNOWN;
    rv_status st = rvi_wordpiece_prepare(&l->t->wordpiece, l->t->pieces, n, skip, l->err);
    rvi_free(skip);
    return st;
}

static rv_status load_word_pieces(loader *l)
{
    rvi_tokenizer *t = l->t;
    bool lowercase = !has_capitals(l);
    rvi_gguf_get_bool(l->g, "tokenizer.ggml.normalizer.lowercase", &lowercase);
    bool strip_accents = lowercase;
    rvi_gguf_get_bool(l->g, "tokenizer.ggml.normalizer.strip_accents", &strip_accents);
    snprintf(t->kind, sizeof t->kind, "WordPiece");
    t->wordpiece = (rvi_wordpiece){.on = true, .prefix = "##", .prefix_len = 2, .max_chars = 100};
    rv_status st = prepare_pieces(l);
    if (!st)
        st = rvi_normalizer_add_bert(&t->normalizer, true, true, strip_accents, lowercase, l->err);
    if (!st) st = rvi_pretokenizer_add_bert(&t->pretokenizer, l->err);
    rvi_dec_step *s = st ? NULL : rvi_decoder_add(&t->decoder, RVI_DEC_WORDPIECE);
    if (!s) return st ? st : no_room(l);
    s->from = "##";
    s->from_len = 2;
    s->cleanup = true;
    return RV_OK;
}

/* ---- roles ---- */

static int64_t id_of(const loader *l, const char *key, int64_t fallback)
{
    uint32_t id;
    int64_t v = rvi_gguf_get_u32(l->g, key, &id) ? (int64_t)id : fallback;
    return v < l->t->size ? v : -1;
}

static rv_status put_around(loader *l, const char *key, bool fallback, int role, rvi_ids *list)
{
    bool add = fallback;
    rvi_gguf_get_bool(l->g, key, &add);
    if (!add || l->t->special[role].id < 0) return RV_OK;
    return rvi_ids_push(list, l->t->special[role].id) ? RV_OK : rvi_nomem(l->err, "tokenizer");
}

/* The ids that the roles have when the file does not name them are those of SentencePiece. */
static rv_status load_roles(loader *l, bool sentence_piece)
{
    rvi_tokenizer *t = l->t;
    rvi_tokenizer_set_role(t, RVI_ROLE_BOS,
                           id_of(l, "tokenizer.ggml.bos_token_id", sentence_piece ? 1 : -1));
    rvi_tokenizer_set_role(t, RVI_ROLE_EOS,
                           id_of(l, "tokenizer.ggml.eos_token_id", sentence_piece ? 2 : -1));
    rvi_tokenizer_set_role(t, RVI_ROLE_UNK,
                           id_of(l, "tokenizer.ggml.unknown_token_id", sentence_piece ? 0 : -1));
    rvi_tokenizer_set_role(t, RVI_ROLE_PAD, id_of(l, "tokenizer.ggml.padding_token_id", -1));
    if (sentence_piece) t->bpe.unk = t->special[RVI_ROLE_UNK].id;
    rvi_tokenizer_mark_eos(t, id_of(l, "tokenizer.ggml.eot_token_id", -1));
    rvi_tokenizer_mark_eos(t, id_of(l, "tokenizer.ggml.eom_token_id", -1));
    rv_status st = put_around(l, "tokenizer.ggml.add_bos_token", sentence_piece || l->pre->add_bos,
                              RVI_ROLE_BOS, &t->before);
    return st ? st : put_around(l, "tokenizer.ggml.add_eos_token", false, RVI_ROLE_EOS, &t->after);
}

static int64_t id_by_text(const loader *l, const char *text, int64_t fallback)
{
    for (uint64_t i = 0; i < l->tokens->count; i++)
        if (l->t->pieces[i].len == strlen(text) &&
            !memcmp(l->t->pieces[i].data, text, strlen(text)))
            return (int64_t)i;
    return fallback < l->t->size ? fallback : -1;
}

/* By key, else by text, else where BERT's first vocabulary has them. The first token marks the
 * beginning, the separator the end; both are always put around a text, whatever the keys
 * add_bos_token, add_eos_token and add_sep_token say (writers contradict each other there). */
static rv_status load_bert_roles(loader *l)
{
    static const char separator[] = "tokenizer.ggml.seperator_token_id"; /* the file's spelling */
    rvi_tokenizer *t = l->t;
    int64_t first = id_of(l, "tokenizer.ggml.bos_token_id", id_by_text(l, "[CLS]", 101)),
            last = id_of(l, "tokenizer.ggml.eos_token_id", id_by_text(l, "[SEP]", 102)),
            unk = id_of(l, "tokenizer.ggml.unknown_token_id", id_by_text(l, "[UNK]", 100));
    first = id_of(l, "tokenizer.ggml.cls_token_id", first);
    last = id_of(l, separator, last);
    rvi_tokenizer_set_role(t, RVI_ROLE_BOS, first);
    rvi_tokenizer_set_role(t, RVI_ROLE_EOS, last);
    rvi_tokenizer_set_role(t, RVI_ROLE_UNK, unk);
    rvi_tokenizer_set_role(t, RVI_ROLE_PAD, id_of(l, "tokenizer.ggml.padding_token_id", -1));
    t->bpe.unk = t->special[RVI_ROLE_UNK].id;
    if (t->bpe.unk < 0) return bad(l, "no token for unknown words");
    bool ok = (first < 0 || rvi_ids_push(&t->before, (int32_t)first)) &&
              (last < 0 || rvi_ids_push(&t->after, (int32_t)last));
    return ok ? RV_OK : rvi_nomem(l->err, "tokenizer");
}

/* Phi-3's tokens take away the white space behind them. The metadata cannot say so; the model's
 * name does. */
static void strip_behind_phi3(loader *l)
{
    rvi_str name = {"", 0};
    char lower[64] = "";
    rvi_gguf_get_str(l->g, "general.name", &name);
    for (size_t i = 0; i < name.len && i < sizeof lower - 1; i++)
        lower[i] =
            (char)(name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] + 32 : name.data[i]);
    if (!strstr(lower, "phi-3") && !strstr(lower, "phi3")) return;
    for (size_t i = 0; i < l->t->added.n; i++) {
        rvi_added_token *a = &l->t->added.tokens[i];
        a->rstrip =
            strcmp(a->text, "<unk>") && strcmp(a->text, "<s>") && strcmp(a->text, "<|endoftext|>");
    }
}

static rv_status load(loader *l)
{
    rvi_str model = {"", 0}, text;
    rv_status st;
    rvi_gguf_get_str(l->g, "tokenizer.ggml.model", &model);
    bool sentence_piece = model.len == 5 && !memcmp(model.data, "llama", 5);
    bool byte_level = (model.len == 4 && !memcmp(model.data, "gpt2", 4)) ||
                      (model.len == 6 && !memcmp(model.data, "gemma4", 6));
    l->word_pieces = model.len == 4 && !memcmp(model.data, "bert", 4);
    if (!sentence_piece && !byte_level && !l->word_pieces)
        return rvi_error(
            l->err, RV_E_TOKENIZATION,
            "GGUF metadata: tokenizer.ggml.model is %s%.*s%s (gpt2, llama and bert are supported)",
            model.len ? "'" : "missing", (int)RVI_MIN(model.len, (size_t)60), model.data,
            model.len ? "'" : "");
    if ((st = find_arrays(l))) return st;
    if ((st = rvi_tokenizer_alloc(&l->t, (size_t)l->tokens->count, l->err))) return st;
    if ((st = load_tokens(l))) return st;
    if ((st = l->word_pieces   ? load_word_pieces(l)
              : sentence_piece ? load_sentence_piece(l)
                               : load_byte_level(l)))
        return st;
    strip_behind_phi3(l);
    if ((st = l->word_pieces ? load_bert_roles(l) : load_roles(l, sentence_piece))) return st;
    if (rvi_gguf_get_str(l->g, "tokenizer.chat_template", &text)) {
        l->t->chat_template_len = text.len;
        l->t->chat_template = rvi_arena_strndup(&l->t->arena, text.data, text.len);
        if (!l->t->chat_template) return rvi_nomem(l->err, "chat template");
    }
    return rvi_tokenizer_finish(l->t, l->err);
}

rv_status rvi_tokenizer_from_gguf(rvi_tokenizer **out, const rvi_gguf *g, const rvi_log *log,
                                  rv_error *err)
{
    loader l = {.g = g, .log = log, .err = err};
    *out = NULL;
    rv_status st = load(&l);
    if (st) {
        rvi_tokenizer_free(l.t);
        return st;
    }
    *out = l.t;
    return RV_OK;
}
