/* grammar repair: JSON mended.
 * grammar check: schemas and texts from standard input, each text walked token by token. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "cli/cli.h"
#include "ruvllm_tools.h"

typedef struct spelling {
    char *bytes;
    size_t len;
    int32_t id;
} spelling;

typedef struct checker {
    const rv_model *m;
    spelling *spellings; /* of the tokens that are text, sorted; NULL until they are needed */
    size_t n_spellings, longest;
    uint64_t *mask;
    size_t n_words;
    rvi_buf times; /* microseconds of each mask, "1.2,3.4" */
    bool blanks;   /* a space in front of a text means nothing */
} checker;

static void add_time(rvi_buf *out, double seconds)
{
    rvi_buf_printf(out, out->len ? ",%.2f" : "%.2f", seconds * 1e6);
}

/* ---- the tokens of a text ---- */

static int by_bytes(const void *a, const void *b)
{
    const spelling *x = a, *y = b;
    int c = memcmp(x->bytes, y->bytes, RVI_MIN(x->len, y->len));
    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

static rv_status find_spellings(checker *c, rv_error *err)
{
    int32_t n_vocab = rv_model_get_info(c->m)->n_vocab;
    if (c->spellings) return RV_OK;
    if (!(c->spellings = rvi_zalloc_array((size_t)n_vocab + 1, sizeof *c->spellings)))
        return rvi_nomem(err, "tokens");
    for (int32_t id = 0; id < n_vocab; id++) {
        spelling *s = &c->spellings[c->n_spellings];
        if (rv_token_get(c->m, id, NULL, NULL) != RV_TOKEN_NORMAL) continue;
        rv_status st = rv_token_bytes(c->m, id, &s->bytes, &s->len, err);
        if (st) return st;
        if (!s->len) {
            rv_free(s->bytes);
            continue;
        }
        s->id = id;
        c->longest = RVI_MAX(c->longest, s->len);
        c->n_spellings++;
    }
    qsort(c->spellings, c->n_spellings, sizeof *c->spellings, by_bytes);
    return RV_OK;
}

/* Whether the tokens have exactly the bytes of the text, but for a space that means nothing. */
static rv_status is_spelled(const checker *c, const rvi_json *text, const int32_t *ids, size_t n,
                            bool *same, rv_error *err)
{
    rvi_buf all = {0};
    size_t len = text->as.string.len;
    rv_status st = RV_OK;
    for (size_t i = 0; i < n && !st; i++) {
        char *bytes = NULL;
        size_t part = 0;
        st = rv_token_bytes(c->m, ids[i], &bytes, &part, err);
        if (!st) rvi_buf_append(&all, bytes, part);
        rv_free(bytes);
    }
    if (!st && all.failed) st = rvi_nomem(err, "text");
    size_t before = c->blanks && all.len == len + 1 && all.data[0] == ' ';
    *same = !st && all.len == len + before &&
            (!len || !memcmp(all.data + before, text->as.string.data, len));
    rvi_buf_deinit(&all);
    return st;
}

/* The longest token at each place. */
static rv_status spell(const checker *c, const char *text, size_t len, rvi_buf *out, rv_error *err)
{
    while (len) {
        const spelling *found = NULL;
        for (size_t n = RVI_MIN(len, c->longest); n && !found; n--) {
            spelling want = {(char *)(uintptr_t)text, n, 0};
            found = bsearch(&want, c->spellings, c->n_spellings, sizeof want, by_bytes);
        }
        if (!found)
            return rvi_error(err, RV_E_UNSUPPORTED, "the model has no token for byte %d",
                             (unsigned char)*text);
        rvi_buf_append(out, (const char *)&found->id, sizeof found->id);
        text += found->len;
        len -= found->len;
    }
    return out->failed ? rvi_nomem(err, "text") : RV_OK;
}

/* As the model's tokenizer has it, unless that changes the text (a normal form of Unicode). */
static rv_status tokens_of(checker *c, const rvi_json *text, rvi_buf *out, rv_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bool same = false;
    rv_status st = rv_tokenize(c->m, text->as.string.data, text->as.string.len, 0, &ids, &n, err);
    if (!st) st = is_spelled(c, text, ids, n, &same, err);
    if (!st && same && n && !rvi_buf_append(out, (const char *)ids, n * sizeof *ids))
        st = rvi_nomem(err, "text");
    rv_free(ids);
    if (st || same) return st;
    st = find_spellings(c, err);
    return st ? st : spell(c, text->as.string.data, text->as.string.len, out, err);
}

/* The text token by token: a token that the mask does not allow ends it. */
static rv_status walk(checker *c, rv_grammar *g, const rvi_json *text, bool *accepted,
                      rv_error *err)
{
    rvi_buf tokens = {0};
    uint32_t state = rv_grammar_start(g);
    rv_status st = tokens_of(c, text, &tokens, err);
    const int32_t *ids = (const int32_t *)(const void *)tokens.data;
    size_t n = tokens.len / sizeof *ids;
    *accepted = true;
    for (size_t i = 0; i < n && *accepted && !st; i++) {
        double begun = rvi_os_seconds();
        st = rv_grammar_mask(g, state, c->mask, c->n_words, err);
        add_time(&c->times, rvi_os_seconds() - begun);
        if (st) break;
        *accepted = c->mask[ids[i] / 64] >> (ids[i] % 64) & 1;
        if (*accepted) st = rv_grammar_advance(g, state, ids[i], &state, err);
        if (!st && !state) *accepted = false;
    }
    rvi_buf_deinit(&tokens);
    *accepted = *accepted && !st && rv_grammar_ends(g, state);
    return st;
}

static void write_answer(rvi_buf *out, const char *id, size_t id_len, const rv_error *refused,
                         const rvi_buf *accepted, double seconds, const rvi_buf *times)
{
    rvi_buf_puts(out, "{\"id\":");
    rvi_buf_append(out, id, id_len);
    rvi_buf_puts(out, ",\"refused\":");
    if (refused)
        rvi_json_write_string(out, refused->text, strlen(refused->text));
    else
        rvi_buf_puts(out, "null");
    rvi_buf_printf(out, ",\"accepted\":[%s],\"compile_us\":%.2f,\"mask_us\":[%s]}\n",
                   accepted->len ? accepted->data : "", seconds * 1e6,
                   times->len ? times->data : "");
}

static void write_value(rvi_buf *out, const rvi_json *v)
{
    if (rvi_json_is(v, RVI_JSON_STRING))
        rvi_json_write_string(out, v->as.string.data, v->as.string.len);
    else if (rvi_json_is(v, RVI_JSON_INT) || rvi_json_is(v, RVI_JSON_NUMBER))
        rvi_buf_append(out, v->number_text, v->number_len);
    else
        rvi_buf_puts(out, "null");
}

typedef struct language {
    const char *member; /* of a line */
    rv_grammar_kind kind;
} language;

/* What the texts of a line are to be; NULL: it does not say. */
static const language *language_of(const rvi_json *line)
{
    static const language all[] = {{"schema", RV_GRAMMAR_SCHEMA},
                                   {"regex", RV_GRAMMAR_REGEX},
                                   {"grammar", RV_GRAMMAR_GBNF},
                                   {"lark", RV_GRAMMAR_LARK},
                                   {"choices", RV_GRAMMAR_CHOICES}};
    for (size_t i = 0; i < RVI_COUNT(all); i++) {
        const rvi_json *text = rvi_json_get(line, all[i].member);
        bool json = all[i].kind == RV_GRAMMAR_SCHEMA || all[i].kind == RV_GRAMMAR_CHOICES;
        if (text && (json || rvi_json_is(text, RVI_JSON_STRING))) return &all[i];
    }
    return NULL;
}

/* A schema is compiled from its text, as it stands in the line's tree. */
static void write_source(rvi_buf *out, const rvi_json *line, const language *l)
{
    const rvi_json *text = rvi_json_get(line, l->member);
    if (l->kind == RV_GRAMMAR_SCHEMA || l->kind == RV_GRAMMAR_CHOICES)
        rvi_json_write(out, text);
    else
        rvi_buf_append(out, text->as.string.data, text->as.string.len);
}

static rv_status check_line(checker *c, const rvi_buf *line, const char *what, rvi_buf *out,
                            rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *json;
    rvi_buf id = {0}, accepted = {0};
    rv_grammar *g = NULL;
    rv_error refused = {0};
    rv_status st = rvi_json_parse(&json, line->data, line->len, &arena, what, err);
    const rvi_json *texts = st ? NULL : rvi_json_get(json, "texts");
    const language *l = st ? NULL : language_of(json);
    if (!st && (!l || !rvi_json_is(texts, RVI_JSON_ARRAY)))
        st = rvi_error(err, RV_E_CONFIG,
                       "%s: an object with \"schema\" (or \"regex\", \"grammar\", \"lark\", "
                       "\"choices\") and \"texts\" is expected",
                       what);
    if (!st) {
        rvi_buf source = {0};
        write_value(&id, rvi_json_get(json, "id"));
        write_source(&source, json, l);
        c->blanks = l->kind == RV_GRAMMAR_SCHEMA;
        c->times.len = 0;
        double begun = rvi_os_seconds();
        rv_status made = rv_grammar_new(&g, c->m, l->kind, source.data ? source.data : "",
                                        source.len, NULL, &refused);
        double seconds = rvi_os_seconds() - begun;
        for (size_t i = 0; i < rvi_json_count(texts) && !made && !st; i++) {
            bool ok = false;
            const rvi_json *text = rvi_json_at(texts, i);
            if (!rvi_json_is(text, RVI_JSON_STRING))
                st = rvi_error(err, RV_E_CONFIG, "%s: text %zu is no string", what, i);
            else
                made = walk(c, g, text, &ok, &refused);
            rvi_buf_puts(&accepted, i ? (ok ? ",true" : ",false") : (ok ? "true" : "false"));
        }
        if (made) accepted.len = 0;
        if (made == RV_E_GENERATION) { /* no text satisfies it: that is an answer */
            for (size_t i = 0; i < rvi_json_count(texts); i++)
                rvi_buf_puts(&accepted, i ? ",false" : "false");
            made = RV_OK;
        }
        write_answer(out, id.data, id.len, made ? &refused : NULL, &accepted, seconds, &c->times);
        if (made == RV_E_NOMEM || source.failed || accepted.failed || c->times.failed)
            st = rvi_nomem(err, what);
        rvi_buf_deinit(&source);
    }
    rv_grammar_free(&g);
    rvi_buf_deinit(&id);
    rvi_buf_deinit(&accepted);
    rvi_arena_deinit(&arena);
    return st;
}

static rv_status check_lines(checker *c, rv_error *err)
{
    rvi_buf line = {0};
    rv_status st = RV_OK;
    for (int number = 1; !st && cli_read_line(stdin, &line); number++) {
        rvi_buf out = {0};
        char what[32];
        if (!line.len) continue;
        snprintf(what, sizeof what, "input line %d", number);
        st = check_line(c, &line, what, &out, err);
        if (!st && cli_print(&out)) st = rvi_error(err, RV_E_IO, "output failed");
        rvi_buf_deinit(&out);
    }
    if (!st && line.failed) st = rvi_nomem(err, "input line");
    rvi_buf_deinit(&line);
    return st;
}

/* grammar repair: JSON from standard input, mended and checked; what was changed goes to standard
 * error. */
static int repair(const cli *c, const char *schema_file)
{
    rv_error err = {0};
    rv_runtime *rt = NULL;
    rvi_buf text = {0}, schema = {0}, out = {0};
    rv_repaired *r = NULL;
    int code = CLI_OK;
    rv_status st = cli_read_file("-", &text, &err);
    if (!st && schema_file) st = cli_read_file(schema_file, &schema, &err);
    if (!st) st = cli_runtime(c, 1, &rt, &err);
    if (!st)
        st = rv_json_repair(rt, text.data ? text.data : "", text.len,
                            schema_file ? (schema.data ? schema.data : "") : NULL, schema.len, &r,
                            &err);
    if (!st) {
        rvi_buf_append(&out, r->text, r->text_len);
        rvi_buf_puts(&out, "\n");
        code = cli_print(&out);
        for (size_t i = 0; i < r->n_changes; i++)
            fprintf(stderr, "byte %zu: %s\n", r->changes[i].offset, r->changes[i].what);
        if (!r->valid) st = rvi_error(&err, RV_E_CONFIG, "%s", r->problem);
    }
    rv_free(r);
    rv_runtime_free(&rt);
    rvi_buf_deinit(&text);
    rvi_buf_deinit(&schema);
    rvi_buf_deinit(&out);
    return st ? cli_fail(&err) : code;
}

int cli_grammar(cli *c, int argc, char **argv)
{
    const char *args[2], *schema = NULL;
    int n_args;
    bool done;
    const cli_option own[] = {{"schema", 0, CLI_TEXT, &schema, NULL}};
    int code = cli_parse(c, own, RVI_COUNT(own), argc, argv, args, 2, &n_args, &done);
    if (code || done) return code;
    if (n_args == 1 && !strcmp(args[0], "repair")) return repair(c, schema);
    if (!n_args || strcmp(args[0], "check"))
        return cli_usage(c, "the actions are 'grammar check MODEL' and 'grammar repair'");
    if (schema) return cli_usage(c, "--schema is for 'grammar repair'");
    if (n_args < 2) return cli_usage(c, CLI_MODEL_NEEDED);
    rv_error err = {0};
    cli_model model;
    rv_status st = cli_open(c, args[1], true, &model, &err);
    if (st) return cli_fail(&err);
    checker check = {.m = model.m};
    rv_grammar *warm = NULL; /* makes the trie of the vocabulary, which is no schema's work */
    st = rv_grammar_new(&warm, model.m, RV_GRAMMAR_JSON, NULL, 0, NULL, &err);
    rv_grammar_free(&warm);
    check.n_words = ((size_t)rv_model_get_info(model.m)->n_vocab + 63) / 64;
    check.mask = rvi_zalloc_array(check.n_words + 1, sizeof *check.mask);
    if (!st && !check.mask) st = rvi_nomem(&err, "mask");
    if (!st) st = check_lines(&check, &err);
    for (size_t i = 0; i < check.n_spellings; i++) rv_free(check.spellings[i].bytes);
    rvi_free(check.spellings);
    rvi_free(check.mask);
    rvi_buf_deinit(&check.times);
    cli_close(&model);
    return st ? cli_fail(&err) : CLI_OK;
}
