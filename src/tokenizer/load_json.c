/* load_json.c - a tokenizer from tokenizer.json and the files beside it. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/internal.h"

typedef struct loader {
    rvi_tokenizer *t;
    const rvi_json *root, *model, *config, *generation, *special_map;
    rvi_arena json; /* the trees */
    bool is_wordpiece;
    const rvi_log *log;
    rv_error *err;
} loader;

static rv_status bad(loader *l, const char *what)
{
    return rvi_error(l->err, RV_E_TOKENIZATION, "tokenizer.json: %s", what);
}

/* Shown in errors: a text of the file, not too much of it */
#define SHOWN(len) (int)RVI_MIN((size_t)(len), (size_t)80)

/* ---- vocabulary and merges ---- */

static rv_status check_id(loader *l, const rvi_json *v, const char *text, size_t len, int64_t *most)
{
    if (!rvi_json_is(v, RVI_JSON_INT))
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: the id of token '%.*s' is not a whole number", SHOWN(len),
                         text);
    if (v->as.integer < 0 || v->as.integer >= RVI_TOK_IDS_MAX)
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: the id %lld of token '%.*s' is out of range",
                         (long long)v->as.integer, SHOWN(len), text);
    *most = RVI_MAX(*most, v->as.integer);
    return RV_OK;
}

/* The number of ids, from the vocabulary and the added tokens; all ids are checked here. */
static rv_status count_ids(loader *l, const rvi_json *vocab, const rvi_json *added, size_t *size)
{
    int64_t most = -1;
    rv_status st;
    if (!rvi_json_is(vocab, RVI_JSON_OBJECT) || !rvi_json_count(vocab))
        return bad(l, "model.vocab is missing or empty");
    if (added && !rvi_json_is(added, RVI_JSON_ARRAY) && !rvi_json_is(added, RVI_JSON_NULL))
        return bad(l, "added_tokens is not a list");
    for (size_t i = 0; i < rvi_json_count(vocab); i++) {
        const rvi_json *v = rvi_json_at(vocab, i);
        if ((st = check_id(l, v, v->key, v->key_len, &most))) return st;
    }
    for (size_t i = 0; i < rvi_json_count(added); i++) {
        const rvi_json *a = rvi_json_at(added, i), *content = rvi_json_get(a, "content");
        if (!rvi_json_is(content, RVI_JSON_STRING)) return bad(l, "an added token has no content");
        if (content->as.string.len > RVI_TOK_ADDED_LEN_MAX)
            return bad(l, "an added token is too long");
        if ((st = check_id(l, rvi_json_get(a, "id"), content->as.string.data,
                           content->as.string.len, &most)))
            return st;
    }
    size_t n = rvi_json_count(vocab) + rvi_json_count(added);
    if ((size_t)most > 16 * n + 65536)
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: ids up to %lld for only %zu tokens", (long long)most, n);
    *size = (size_t)most + 1;
    return RV_OK;
}

static rv_status load_vocab(loader *l, const rvi_json *vocab)
{
    rvi_tokenizer *t = l->t;
    rv_status st = rvi_text_map_init(&t->bpe.map, rvi_json_count(vocab), l->err);
    for (size_t i = 0; !st && i < rvi_json_count(vocab); i++) {
        const rvi_json *v = rvi_json_at(vocab, i);
        rvi_piece *p = &t->pieces[v->as.integer];
        if (p->data)
            return rvi_error(l->err, RV_E_TOKENIZATION,
                             "tokenizer.json: tokens '%.*s' and '%.*s' have the same id %lld",
                             SHOWN(p->len), p->data, SHOWN(v->key_len), v->key,
                             (long long)v->as.integer);
        p->len = v->key_len;
        if (!(p->data = rvi_arena_strndup(&t->arena, v->key, v->key_len)))
            return rvi_nomem(l->err, "vocabulary");
        if (!rvi_text_map_put(&t->bpe.map, p->data, p->len, (int32_t)v->as.integer))
            return rvi_error(l->err, RV_E_TOKENIZATION,
                             "tokenizer.json: token '%.*s' is there twice", SHOWN(p->len), p->data);
    }
    return st;
}

/* "left right" or ["left", "right"] */
static bool merge_parts(const rvi_json *m, rvi_piece parts[2])
{
    if (rvi_json_is(m, RVI_JSON_STRING)) {
        const char *s = m->as.string.data, *space = memchr(s, ' ', m->as.string.len),
                   *end = s + m->as.string.len;
        if (!space || memchr(space + 1, ' ', (size_t)(end - space) - 1)) return false;
        parts[0] = (rvi_piece){s, (size_t)(space - s)};
        parts[1] = (rvi_piece){space + 1, (size_t)(end - space) - 1};
        return true;
    }
    for (size_t k = 0; k < 2; k++) {
        const rvi_json *v = rvi_json_at(m, k);
        if (!rvi_json_is(m, RVI_JSON_ARRAY) || rvi_json_count(m) != 2 ||
            !rvi_json_is(v, RVI_JSON_STRING))
            return false;
        parts[k] = (rvi_piece){v->as.string.data, v->as.string.len};
    }
    return true;
}

static rv_status unknown_token(loader *l, size_t rank, const char *text, size_t len)
{
    return rvi_error(l->err, RV_E_TOKENIZATION,
                     "tokenizer.json: merge %zu names '%.*s', which is not in the vocabulary", rank,
                     SHOWN(len), text);
}

static rv_status load_merge(loader *l, const rvi_json *v, size_t rank, rvi_buf *both)
{
    const rvi_bpe *bpe = &l->t->bpe;
    rvi_piece parts[2];
    if (!merge_parts(v, parts))
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: merge %zu is neither \"left right\" nor [left, right]",
                         rank);
    rvi_merge m = {.rank = (uint32_t)rank};
    m.left = rvi_text_map_find(&bpe->map, parts[0].data, parts[0].len);
    if (m.left < 0) return unknown_token(l, rank, parts[0].data, parts[0].len);
    m.right = rvi_text_map_find(&bpe->map, parts[1].data, parts[1].len);
    if (m.right < 0 || parts[1].len < bpe->prefix_len)
        return unknown_token(l, rank, parts[1].data, parts[1].len);
    both->len = 0;
    rvi_buf_append(both, parts[0].data, parts[0].len);
    rvi_buf_append(both, parts[1].data + bpe->prefix_len, parts[1].len - bpe->prefix_len);
    if (both->failed) return rvi_nomem(l->err, "merges");
    m.merged = rvi_text_map_find(&bpe->map, both->data, both->len);
    if (m.merged < 0) return unknown_token(l, rank, both->data, both->len);
    rvi_merge_map_put(&l->t->bpe.merges, &m);
    return RV_OK;
}

static rv_status load_merges(loader *l)
{
    const rvi_json *merges = rvi_json_get(l->model, "merges");
    if (!rvi_json_is(merges, RVI_JSON_ARRAY))
        return bad(l, "model.merges is missing or not a list");
    size_t n = rvi_json_count(merges);
    rvi_buf both = {0};
    rv_status st = rvi_merge_map_init(&l->t->bpe.merges, n, l->err);
    for (size_t i = 0; i < n && !st; i++) {
        const rvi_json *m = rvi_json_at(merges, i);
        if (rvi_json_is(m, RVI_JSON_STRING) && !strncmp(m->as.string.data, "#version", 8)) continue;
        st = load_merge(l, m, i, &both);
    }
    rvi_buf_deinit(&both);
    return st;
}

static rv_status copy_affix(loader *l, const char *key, const char **out, size_t *len)
{
    const rvi_json *v = rvi_json_get(l->model, key);
    *len = 0;
    if (!rvi_json_is(v, RVI_JSON_STRING) || !v->as.string.len) return RV_OK;
    *len = v->as.string.len;
    if (*len > RVI_TOK_AFFIX_MAX)
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: model.%s has %zu bytes; %d are the most", key, *len,
                         RVI_TOK_AFFIX_MAX);
    *out = rvi_arena_strndup(&l->t->arena, v->as.string.data, *len);
    return *out ? RV_OK : rvi_nomem(l->err, "vocabulary");
}

static rv_status load_wordpiece(loader *l, const rvi_json *vocab)
{
    rvi_tokenizer *t = l->t;
    rvi_wordpiece *w = &t->wordpiece;
    const rvi_json *unk = rvi_json_get(l->model, "unk_token"),
                   *prefix = rvi_json_get(l->model, "continuing_subword_prefix");
    int64_t longest = rvi_json_int(rvi_json_get(l->model, "max_input_chars_per_word"), 100);
    bool named = rvi_json_is(unk, RVI_JSON_STRING), given = rvi_json_is(prefix, RVI_JSON_STRING);
    rv_status st = load_vocab(l, vocab);
    if (st) return st;
    w->on = true;
    w->max_chars = longest > 0 ? (size_t)longest : 0;
    w->prefix_len = given ? prefix->as.string.len : 2;
    w->prefix = rvi_arena_strndup(&t->arena, given ? prefix->as.string.data : "##", w->prefix_len);
    if (!w->prefix) return rvi_nomem(l->err, "vocabulary");
    t->bpe.unk = rvi_text_map_find(&t->bpe.map, named ? unk->as.string.data : "[UNK]",
                                   named ? unk->as.string.len : 5);
    if (t->bpe.unk < 0) return bad(l, "model.unk_token is not in the vocabulary");
    return rvi_wordpiece_prepare(w, t->pieces, (size_t)t->size, NULL, l->err);
}

static rv_status load_model(loader *l, const rvi_json *vocab)
{
    if (l->is_wordpiece) return load_wordpiece(l, vocab);
    rvi_bpe *bpe = &l->t->bpe;
    const rvi_json *unk = rvi_json_get(l->model, "unk_token");
    rv_status st;
    if (rvi_json_number(rvi_json_get(l->model, "dropout"), 0) > 0)
        return bad(l, "model.dropout is not supported");
    bpe->byte_fallback = rvi_json_bool(rvi_json_get(l->model, "byte_fallback"), false);
    bpe->fuse_unk = rvi_json_bool(rvi_json_get(l->model, "fuse_unk"), false);
    bpe->ignore_merges = rvi_json_bool(rvi_json_get(l->model, "ignore_merges"), false);
    if ((st = copy_affix(l, "continuing_subword_prefix", &bpe->prefix, &bpe->prefix_len)))
        return st;
    if ((st = copy_affix(l, "end_of_word_suffix", &bpe->suffix, &bpe->suffix_len))) return st;
    if ((st = load_vocab(l, vocab))) return st;
    if (rvi_json_is(unk, RVI_JSON_STRING)) {
        bpe->unk = rvi_text_map_find(&bpe->map, unk->as.string.data, unk->as.string.len);
        if (bpe->unk < 0)
            rvi_log_write(l->log, RVI_LOG_WARN,
                          "tokenizer.json: unk_token '%s' is not in the vocabulary; it is not used",
                          unk->as.string.data);
    }
    return load_merges(l);
}

static rv_status load_added(loader *l, const rvi_json *added)
{
    for (size_t i = 0; i < rvi_json_count(added); i++) {
        const rvi_json *v = rvi_json_at(added, i), *content = rvi_json_get(v, "content");
        size_t len = content->as.string.len;
        if (!len) continue;
        rvi_added_token *a = rvi_tokenizer_add_token(l->t);
        const char *text = a ? rvi_arena_strndup(&l->t->arena, content->as.string.data, len) : NULL;
        if (!text) return rvi_nomem(l->err, "added tokens");
        a->text = text;
        a->len = len;
        a->id = rvi_text_map_find(&l->t->bpe.map, text, len); /* the vocabulary's word goes first */
        int64_t id = rvi_json_int(rvi_json_get(v, "id"), 0);
        if (a->id < 0)
            a->id = (int32_t)id;
        else if (a->id != id)
            rvi_log_write(
                l->log, RVI_LOG_WARN,
                "tokenizer.json: added token '%s' has the id %lld, but %d in the vocabulary", text,
                (long long)id, (int)a->id);
        a->special = rvi_json_bool(rvi_json_get(v, "special"), false);
        a->normalized = rvi_json_bool(rvi_json_get(v, "normalized"), !a->special);
        a->lstrip = rvi_json_bool(rvi_json_get(v, "lstrip"), false);
        a->rstrip = rvi_json_bool(rvi_json_get(v, "rstrip"), false);
        a->single_word = rvi_json_bool(rvi_json_get(v, "single_word"), false);
    }
    return RV_OK;
}

/* ---- what is put around a text ---- */

static rv_status push_checked(loader *l, rvi_ids *list, const rvi_json *id)
{
    int64_t v = rvi_json_int(id, -1);
    if (v < 0 || v >= l->t->size) return bad(l, "post_processor: an id is out of range");
    return rvi_ids_push(list, (int32_t)v) ? RV_OK : rvi_nomem(l->err, "post-processor");
}

static rv_status prepend_all(loader *l, rvi_ids *list, const rvi_ids *front)
{
    rvi_ids both = {0};
    bool ok = true;
    for (size_t i = 0; i < front->len && ok; i++) ok = rvi_ids_push(&both, front->data[i]);
    for (size_t i = 0; i < list->len && ok; i++) ok = rvi_ids_push(&both, list->data[i]);
    rvi_ids_deinit(ok ? list : &both);
    if (!ok) return rvi_nomem(l->err, "post-processor");
    *list = both;
    return RV_OK;
}

static rv_status template_processing(loader *l, const rvi_json *v)
{
    const rvi_json *single = rvi_json_get(v, "single"),
                   *specials = rvi_json_get(v, "special_tokens");
    rvi_ids front = {0};
    bool seen = false;
    rv_status st = RV_OK;
    for (size_t i = 0; i < rvi_json_count(single) && !st; i++) {
        const rvi_json *item = rvi_json_at(single, i), *token = rvi_json_get(item, "SpecialToken");
        if (rvi_json_get(item, "Sequence")) {
            if (seen) st = bad(l, "post_processor: the template for one text holds it twice");
            seen = true;
            continue;
        }
        const char *name = rvi_json_string(rvi_json_get(token, "id"), NULL);
        const rvi_json *ids = name ? rvi_json_get(rvi_json_get(specials, name), "ids") : NULL;
        if (!rvi_json_count(ids))
            st = bad(l, "post_processor: a special token of the template is not defined");
        for (size_t k = 0; k < rvi_json_count(ids) && !st; k++)
            st = push_checked(l, seen ? &l->t->after : &front, rvi_json_at(ids, k));
    }
    if (!st && !seen) st = bad(l, "post_processor: the template for one text does not hold it");
    if (!st) st = prepend_all(l, &l->t->before, &front);
    rvi_ids_deinit(&front);
    return st;
}

static rv_status load_post(loader *l, const rvi_json *v, int depth)
{
    const char *type = rvi_json_string(rvi_json_get(v, "type"), NULL);
    rv_status st = RV_OK;
    if (!v || rvi_json_is(v, RVI_JSON_NULL)) return RV_OK;
    if (!type) return bad(l, "post_processor without a type");
    if (!strcmp(type, "ByteLevel")) return RV_OK; /* only moves offsets */
    if (!strcmp(type, "TemplateProcessing")) return template_processing(l, v);
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
        rvi_ids front = {0};
        st = push_checked(l, &front, rvi_json_at(rvi_json_get(v, "cls"), 1));
        if (!st) st = prepend_all(l, &l->t->before, &front);
        rvi_ids_deinit(&front);
        return st ? st : push_checked(l, &l->t->after, rvi_json_at(rvi_json_get(v, "sep"), 1));
    }
    if (strcmp(type, "Sequence") || depth > 8)
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: post_processor '%s' is not supported", type);
    const rvi_json *list = rvi_json_get(v, "processors");
    for (size_t i = 0; i < rvi_json_count(list) && !st; i++)
        st = load_post(l, rvi_json_at(list, i), depth + 1);
    return st;
}

/* tokenizer_config.json's word goes first. */
static rv_status apply_add(loader *l, const char *key, int role, rvi_ids *list)
{
    const rvi_json *add = rvi_json_get(l->config, key);
    if (!rvi_json_is(add, RVI_JSON_BOOL)) return RV_OK;
    list->len = 0;
    if (!add->as.boolean || l->t->special[role].id < 0) return RV_OK;
    return rvi_ids_push(list, l->t->special[role].id) ? RV_OK : rvi_nomem(l->err, "post-processor");
}

/* ---- roles and template ---- */

/* A text, or {"content": text} */
static const rvi_json *token_text(const rvi_json *v)
{
    if (rvi_json_is(v, RVI_JSON_OBJECT)) v = rvi_json_get(v, "content");
    return rvi_json_is(v, RVI_JSON_STRING) ? v : NULL;
}

static rv_status load_roles(loader *l)
{
    static const char *const id_keys[RVI_N_ROLES] = {"bos_token_id", "eos_token_id", NULL,
                                                     "pad_token_id"};
    for (int role = 0; role < RVI_N_ROLES; role++) {
        const rvi_json *text = token_text(rvi_json_get(l->config, rvi_role_names[role]));
        if (!text) text = token_text(rvi_json_get(l->special_map, rvi_role_names[role]));
        const rvi_json *ids = id_keys[role] ? rvi_json_get(l->generation, id_keys[role]) : NULL;
        if (text) {
            rvi_special *s = &l->t->special[role];
            s->len = text->as.string.len;
            s->text = rvi_arena_strndup(&l->t->arena, text->as.string.data, s->len);
            if (!s->text) return rvi_nomem(l->err, "special tokens");
            s->id = rvi_tokenizer_find(l->t, s->text, s->len);
        } else {
            rvi_tokenizer_set_role(
                l->t, role,
                rvi_json_int(rvi_json_is(ids, RVI_JSON_ARRAY) ? rvi_json_at(ids, 0) : ids, -1));
        }
        if (role != RVI_ROLE_EOS) continue;
        rvi_tokenizer_mark_eos(l->t, l->t->special[role].id);
        rvi_tokenizer_mark_eos(l->t, rvi_json_int(ids, -1));
        for (size_t i = 0; rvi_json_is(ids, RVI_JSON_ARRAY) && i < rvi_json_count(ids); i++)
            rvi_tokenizer_mark_eos(l->t, rvi_json_int(rvi_json_at(ids, i), -1));
    }
    /* no key names the first token, but the template adds one */
    if (!l->t->special[RVI_ROLE_BOS].text && l->t->before.len == 1)
        rvi_tokenizer_set_role(l->t, RVI_ROLE_BOS, l->t->before.data[0]);
    return RV_OK;
}

static rv_status load_template(loader *l, const rvi_tokenizer_files *files)
{
    const rvi_json *v = rvi_json_get(l->config, "chat_template");
    const char *text = files->template_text;
    size_t len = files->template_len;
    if (rvi_json_is(v, RVI_JSON_ARRAY)) { /* the one named "default", or the first */
        const rvi_json *named = rvi_json_at(v, 0);
        for (size_t i = 0; i < rvi_json_count(v); i++)
            if (rvi_json_is_string(rvi_json_get(rvi_json_at(v, i), "name"), "default"))
                named = rvi_json_at(v, i);
        v = rvi_json_get(named, "template");
    }
    if (!text && rvi_json_is(v, RVI_JSON_STRING)) {
        text = v->as.string.data;
        len = v->as.string.len;
    }
    if (!text) return RV_OK;
    l->t->chat_template_len = len;
    l->t->chat_template = rvi_arena_strndup(&l->t->arena, text, len);
    return l->t->chat_template ? RV_OK : rvi_nomem(l->err, "chat template");
}

static void describe(rvi_tokenizer *t)
{
    bool byte_level = false;
    for (size_t i = 0; i < t->pretokenizer.n; i++)
        byte_level |= t->pretokenizer.steps[i].kind == RVI_PRE_BYTE_LEVEL;
    for (size_t i = 0; i < t->normalizer.n; i++)
        byte_level |= t->normalizer.steps[i].kind == RVI_NORM_BYTE_LEVEL;
    snprintf(t->kind, sizeof t->kind, "%s",
             t->wordpiece.on        ? "WordPiece"
             : byte_level           ? "byte-level BPE"
             : t->bpe.byte_fallback ? "SentencePiece-like BPE"
                                    : "BPE");
}

/* ---- the whole ---- */

static rv_status parse_file(loader *l, const rvi_json **out, const char *text, size_t len,
                            const char *name)
{
    *out = NULL;
    if (!text) return RV_OK;
    rv_status st = rvi_json_parse(out, text, len, &l->json, name, l->err);
    if (!st && !rvi_json_is(*out, RVI_JSON_OBJECT))
        st = rvi_error(l->err, RV_E_TOKENIZATION, "%s: not an object", name);
    return st;
}

static rv_status check_model_type(loader *l)
{
    const char *type = rvi_json_string(rvi_json_get(l->model, "type"),
                                       rvi_json_get(l->model, "merges") ? "BPE" : NULL);
    if (!rvi_json_is(l->model, RVI_JSON_OBJECT)) return bad(l, "model is missing");
    if (!type) return bad(l, "model.type is missing");
    l->is_wordpiece = !strcmp(type, "WordPiece");
    if (strcmp(type, "BPE") && !l->is_wordpiece)
        return rvi_error(l->err, RV_E_TOKENIZATION,
                         "tokenizer.json: model type '%s' is not supported (BPE and WordPiece are)",
                         type);
    return RV_OK;
}

static rv_status load(loader *l, const rvi_tokenizer_files *files)
{
    rv_status st;
    size_t size = 0;
    if (!files->tokenizer) return bad(l, "the file is missing");
    if ((st = parse_file(l, &l->root, files->tokenizer, files->tokenizer_len, "tokenizer.json")))
        return st;
    if ((st = parse_file(l, &l->config, files->config, files->config_len, "tokenizer_config.json")))
        return st;
    if ((st = parse_file(l, &l->generation, files->generation, files->generation_len,
                         "generation_config.json")))
        return st;
    if ((st = parse_file(l, &l->special_map, files->special_map, files->special_map_len,
                         "special_tokens_map.json")))
        return st;
    l->model = rvi_json_get(l->root, "model");
    if ((st = check_model_type(l))) return st;
    const rvi_json *vocab = rvi_json_get(l->model, "vocab"),
                   *added = rvi_json_get(l->root, "added_tokens");
    if ((st = count_ids(l, vocab, added, &size))) return st;
    if ((st = rvi_tokenizer_alloc(&l->t, size, l->err))) return st;
    rvi_tokenizer *t = l->t;
    if ((st = load_model(l, vocab))) return st;
    if ((st = load_added(l, added))) return st;
    if ((st = rvi_normalizer_from_json(&t->normalizer, rvi_json_get(l->root, "normalizer"),
                                       &t->arena, l->err)))
        return st;
    if ((st = rvi_pretokenizer_from_json(&t->pretokenizer, rvi_json_get(l->root, "pre_tokenizer"),
                                         &t->arena, l->err)))
        return st;
    if ((st = rvi_decoder_from_json(&t->decoder, rvi_json_get(l->root, "decoder"), &t->arena,
                                    l->err)))
        return st;
    if ((st = load_post(l, rvi_json_get(l->root, "post_processor"), 0))) return st;
    if ((st = rvi_tokenizer_finish(t, l->err))) return st;
    if ((st = load_roles(l))) return st;
    if ((st = apply_add(l, "add_bos_token", RVI_ROLE_BOS, &t->before))) return st;
    if ((st = apply_add(l, "add_eos_token", RVI_ROLE_EOS, &t->after))) return st;
    if ((st = load_template(l, files))) return st;
    describe(t);
    return RV_OK;
}

rv_status rvi_tokenizer_from_json(rvi_tokenizer **out, const rvi_tokenizer_files *files,
                                  const rvi_log *log, rv_error *err)
{
    loader l = {.log = log, .err = err};
    *out = NULL;
    rv_status st = load(&l, files);
    rvi_arena_deinit(&l.json);
    if (st) {
        rvi_tokenizer_free(l.t);
        return st;
    }
    *out = l.t;
    return RV_OK;
}
