/* tokenizers.c - compares our tokenizer with reference ids, and prints a table.
 *
 *     tokenizers GOLDEN VOCABS [--gguf] [--show N] [NAME ...]
 *
 * GOLDEN holds NAME.jsonl ({"text", "ids", "ids_plain"?, "decoded"?} per line), NAME.decode.jsonl
 * ({"ids", "text", "text_skip"?} per line), invalid_utf8.json ([{"b64"}, ...]) and facts.json (per
 * name: prefix_ids, suffix_ids, config_add_bos, config_add_eos). VOCABS holds NAME/tokenizer.json
 * and NAME/tokenizer_config.json, or NAME.gguf with
 * --gguf. Without names all of facts.json are run. --show N prints the first N differences of each
 * kind.
 *
 * Exit status: 0 no difference, 1 some, 2 could not run. Also prints load time and encoding speed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

typedef struct tally {
    size_t rows, ids, plain, decoded, streamed, decode_rows, decode, around, invalid;
    double load_s, encode_s;
    size_t bytes;
} tally;

static size_t to_show;

static void log_line(void *ctx, rvi_log_level level, const char *line)
{
    (void)level;
    printf("  [%s] %s\n", (const char *)ctx, line);
}

static void *read_all(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    *len = 0;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *data = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (data && fread(data, 1, (size_t)n, f) == (size_t)n) {
        data[n] = 0;
        *len = (size_t)n;
    }
    fclose(f);
    return data;
}

static char *path_of(const char *dir, const char *name, const char *rest)
{
    size_t n = strlen(dir) + strlen(name) + strlen(rest) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s%s", dir, name, rest);
    return path;
}

static bool same_ids(const rvi_ids *got, const rvi_json *want)
{
    if (got->len != rvi_json_count(want)) return false;
    for (size_t i = 0; i < got->len; i++)
        if (got->data[i] != rvi_json_int(rvi_json_at(want, i), -1)) return false;
    return true;
}

static bool same_text(const rvi_buf *got, const rvi_json *want)
{
    return got->len == want->as.string.len &&
           (!got->len || !memcmp(got->data, want->as.string.data, got->len));
}

static void show(const char *what, const rvi_json *text, const rvi_ids *got, const rvi_json *want)
{
    static size_t shown;
    if (shown >= to_show) return;
    shown++;
    rvi_buf b = {0};
    rvi_json_write_string(&b, rvi_json_string(text, ""),
                          text && text->kind == RVI_JSON_STRING ? text->as.string.len : 0);
    printf("  %s: %.300s\n    got ", what, b.data);
    for (size_t i = 0; i < got->len && i < 60; i++) printf(" %d", (int)got->data[i]);
    printf("\n    want");
    for (size_t i = 0; i < rvi_json_count(want) && i < 60; i++)
        printf(" %d", (int)rvi_json_int(rvi_json_at(want, i), -1));
    printf("\n");
    rvi_buf_deinit(&b);
}

/* Streaming gives the text of decoding, and every portion is whole characters. */
static bool streams_like(const rvi_tokenizer *t, const rvi_ids *ids, unsigned flags,
                         const rvi_buf *want)
{
    static rvi_detok d;
    rv_error err;
    rvi_buf all = {0}, one = {0};
    bool ok = true;
    rvi_detok_init(&d, t, flags);
    for (size_t i = 0; i <= ids->len && ok; i++) {
        one.len = 0;
        ok = !(i < ids->len ? rvi_detok_push(&d, ids->data[i], &one, &err)
                            : rvi_detok_flush(&d, &one, &err));
        for (size_t k = 0; k < one.len && ok;) {
            uint32_t cp;
            k += rvi_utf8_decode(one.data + k, one.len - k, &cp, &ok);
        }
        rvi_buf_append(&all, one.data, one.len);
    }
    ok = ok && all.len == want->len && (!all.len || !memcmp(all.data, want->data, all.len));
    rvi_buf_deinit(&all);
    rvi_buf_deinit(&one);
    return ok;
}

static void text_row(const rvi_tokenizer *t, const rvi_json *row, tally *n)
{
    const rvi_json *text = rvi_json_get(row, "text"), *plain = rvi_json_get(row, "ids_plain");
    const rvi_json *decoded = rvi_json_get(row, "decoded"), *ids = rvi_json_get(row, "ids");
    rvi_ids got = {0};
    rvi_buf out = {0};
    rv_error err = {0};
    const char *s = text->as.string.data;
    size_t len = text->as.string.len;
    n->rows++;
    n->bytes += len;
    double before = rvi_os_seconds();
    bool ok = !rvi_tokenizer_encode(t, s, len, 0, &got, &err);
    n->encode_s += rvi_os_seconds() - before;
    if (!ok || !same_ids(&got, ids)) {
        n->ids++;
        show("ids", text, &got, ids);
    }
    if (rvi_tokenizer_decode(t, got.data, got.len, 0, &out, &err) ||
        !same_text(&out, decoded ? decoded : text))
        n->decoded++;
    if (!streams_like(t, &got, 0, &out)) n->streamed++;
    got.len = 0;
    if (plain &&
        (rvi_tokenizer_encode(t, s, len, RVI_TOK_PLAIN, &got, &err) || !same_ids(&got, plain))) {
        n->plain++;
        show("plain", text, &got, plain);
    }
    rvi_ids_deinit(&got);
    rvi_buf_deinit(&out);
}

static void decode_row(const rvi_tokenizer *t, const rvi_json *row, tally *n)
{
    const rvi_json *list = rvi_json_get(row, "ids"), *text = rvi_json_get(row, "text"),
                   *skip = rvi_json_get(row, "text_skip");
    rvi_ids ids = {0};
    rv_error err;
    n->decode_rows++;
    for (size_t i = 0; i < rvi_json_count(list); i++)
        if (!rvi_ids_push(&ids, (int32_t)rvi_json_int(rvi_json_at(list, i), -1))) exit(2);
    for (unsigned flags = 0; flags <= RVI_TOK_SKIP_SPECIAL; flags++) {
        rvi_buf out = {0};
        const rvi_json *want = flags && skip ? skip : text;
        if (rvi_tokenizer_decode(t, ids.data, ids.len, flags, &out, &err) ||
            !same_text(&out, want)) {
            n->decode++;
            show(flags ? "decode skip" : "decode", want, &ids, list);
        }
        if (!streams_like(t, &ids, flags, &out)) n->streamed++;
        rvi_buf_deinit(&out);
    }
    rvi_ids_deinit(&ids);
}

static bool each_line(const char *path, const rvi_tokenizer *t,
                      void (*row)(const rvi_tokenizer *, const rvi_json *, tally *), tally *n)
{
    size_t len;
    char *data = read_all(path, &len);
    bool ok = data != NULL;
    for (char *at = data, *end; ok && at < data + len; at = end + 1) {
        end = memchr(at, '\n', (size_t)(data + len - at));
        if (!end) end = data + len;
        rvi_arena arena = {0};
        const rvi_json *v;
        rv_error err;
        if (end > at) {
            ok = !rvi_json_parse(&v, at, (size_t)(end - at), &arena, path, &err);
            if (ok) row(t, v, n);
        }
        rvi_arena_deinit(&arena);
    }
    if (!ok) fprintf(stderr, "cannot read %s\n", path);
    free(data);
    return ok;
}

static size_t from_base64(const char *s, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    unsigned bits = 0, value = 0;
    for (; *s && *s != '='; s++) {
        const char *at = strchr(digits, *s);
        if (!at) continue;
        value = value << 6 | (unsigned)(at - digits);
        if ((bits += 6) >= 8) out[n++] = (char)(value >> (bits -= 8) & 0xFF);
    }
    return n;
}

/* No expected ids: encoding must succeed, and decoding must give valid UTF-8. */
static void invalid_rows(const char *golden, const rvi_tokenizer *t, tally *n)
{
    size_t len;
    char *path = path_of(golden, "invalid_utf8", ".json"), *data = read_all(path, &len);
    rvi_arena arena = {0};
    const rvi_json *list;
    rv_error err;
    if (!data || rvi_json_parse(&list, data, len, &arena, path, &err)) exit(2);
    if (rvi_json_is(list, RVI_JSON_OBJECT)) list = rvi_json_at(list, rvi_json_count(list) - 1);
    for (size_t i = 0; i < rvi_json_count(list); i++) {
        const rvi_json *b64 = rvi_json_get(rvi_json_at(list, i), "b64");
        size_t raw_len = b64->as.string.len;
        char *raw = malloc(raw_len + 1), *exact;
        raw_len = from_base64(b64->as.string.data, raw);
        exact = malloc(raw_len ? raw_len : 1); /* no byte behind the text */
        memcpy(exact, raw, raw_len);
        rvi_ids ids = {0};
        rvi_buf out = {0};
        bool ok = !rvi_tokenizer_encode(t, exact, raw_len, RVI_TOK_BOS_EOS, &ids, &err) &&
                  !rvi_tokenizer_decode(t, ids.data, ids.len, 0, &out, &err) &&
                  streams_like(t, &ids, 0, &out);
        for (size_t k = 0; k < out.len && ok;) {
            uint32_t cp;
            k += rvi_utf8_decode(out.data + k, out.len - k, &cp, &ok);
        }
        if (!ok) n->invalid++;
        rvi_ids_deinit(&ids);
        rvi_buf_deinit(&out);
        free(raw);
        free(exact);
    }
    rvi_arena_deinit(&arena);
    free(data);
    free(path);
}

/* What RVI_TOK_BOS_EOS puts around a text */
static void around(const rvi_tokenizer *t, const rvi_json *facts, tally *n)
{
    const rvi_json *before = rvi_json_get(facts, "prefix_ids"),
                   *after = rvi_json_get(facts, "suffix_ids");
    const rvi_json *add_bos = rvi_json_get(facts, "config_add_bos"),
                   *add_eos = rvi_json_get(facts, "config_add_eos");
    rvi_ids got = {0}, want = {0};
    rv_error err;
    bool ok = true;
    if (rvi_json_is(add_bos, RVI_JSON_BOOL)) {
        if (add_bos->as.boolean) ok = rvi_ids_push(&want, rvi_tokenizer_bos(t));
    } else {
        for (size_t i = 0; i < rvi_json_count(before); i++)
            ok = ok && rvi_ids_push(&want, (int32_t)rvi_json_int(rvi_json_at(before, i), -1));
    }
    ok = ok && !rvi_tokenizer_encode(t, "a", 1, 0, &want, &err);
    if (rvi_json_is(add_eos, RVI_JSON_BOOL)) {
        if (add_eos->as.boolean) ok = ok && rvi_ids_push(&want, rvi_tokenizer_eos(t));
    } else {
        for (size_t i = 0; i < rvi_json_count(after); i++)
            ok = ok && rvi_ids_push(&want, (int32_t)rvi_json_int(rvi_json_at(after, i), -1));
    }
    ok = ok && !rvi_tokenizer_encode(t, "a", 1, RVI_TOK_BOS_EOS, &got, &err);
    ok = ok && got.len == want.len && !memcmp(got.data, want.data, got.len * sizeof *got.data);
    const char *bos = rvi_json_string(rvi_json_get(facts, "bos"), NULL),
               *eos = rvi_json_string(rvi_json_get(facts, "eos"), NULL);
    size_t len;
    const char *our_bos = rvi_tokenizer_special_text(t, "bos_token", &len),
               *our_eos = rvi_tokenizer_special_text(t, "eos_token", &len);
    ok = ok && !strcmp(bos ? bos : "", our_bos ? our_bos : "") &&
         !strcmp(eos ? eos : "", our_eos ? our_eos : "");
    ok = ok && (rvi_tokenizer_eos(t) < 0 || rvi_tokenizer_is_eos(t, rvi_tokenizer_eos(t)));
    if (!ok) n->around++;
    rvi_ids_deinit(&got);
    rvi_ids_deinit(&want);
}

static rv_status open_tokenizer(rvi_tokenizer **t, const char *vocabs, const char *name,
                                bool from_gguf, rv_error *err)
{
    rvi_log log = {.sink = log_line, .ctx = (void *)(uintptr_t)name, .level = RVI_LOG_WARN};
    rv_status st;
    if (from_gguf) {
        char *path = path_of(vocabs, name, ".gguf");
        rvi_gguf *g;
        st = rvi_gguf_open(&g, path, err);
        if (!st) st = rvi_tokenizer_from_gguf(t, g, &log, err);
        rvi_gguf_close(g);
        free(path);
        return st;
    }
    rvi_tokenizer_files files = {0};
    char *paths[2] = {path_of(vocabs, name, "/tokenizer.json"),
                      path_of(vocabs, name, "/tokenizer_config.json")};
    char *data[2] = {read_all(paths[0], &files.tokenizer_len),
                     read_all(paths[1], &files.config_len)};
    files.tokenizer = data[0];
    files.config = data[1];
    st = rvi_tokenizer_from_json(t, &files, &log, err);
    for (int i = 0; i < 2; i++) {
        free(paths[i]);
        free(data[i]);
    }
    return st;
}

static bool run(const char *golden, const char *vocabs, const rvi_json *facts, const char *name,
                bool from_gguf, size_t *total)
{
    tally n = {0};
    rvi_tokenizer *t = NULL;
    rv_error err = {0};
    double before = rvi_os_seconds();
    if (open_tokenizer(&t, vocabs, name, from_gguf, &err)) {
        printf("%-15s cannot be opened: %s\n", name, err.text);
        return false;
    }
    n.load_s = rvi_os_seconds() - before;
    char *texts = path_of(golden, name, ".jsonl"),
         *decodes = path_of(golden, name, ".decode.jsonl");
    bool ok = each_line(texts, t, text_row, &n) && each_line(decodes, t, decode_row, &n);
    invalid_rows(golden, t, &n);
    around(t, rvi_json_get(facts, name), &n);
    size_t sum = n.ids + n.plain + n.decoded + n.streamed + n.decode + n.around + n.invalid;
    printf("%-15s %5zu %5zu %5zu %7zu %8zu %6zu %6zu %6zu %7zu  %6.2f %7.2f  %s\n", name, n.rows,
           n.ids, n.plain, n.decoded, n.streamed, n.decode_rows, n.decode, n.around, n.invalid,
           n.load_s, (double)n.bytes / 1e6 / n.encode_s, rvi_tokenizer_kind(t));
    *total += sum;
    free(texts);
    free(decodes);
    rvi_tokenizer_free(t);
    return ok;
}

int main(int argc, char **argv)
{
    bool from_gguf = false, ok = true;
    const char *dirs[2] = {NULL, NULL};
    int n_dirs = 0, first_name = argc;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--gguf"))
            from_gguf = true;
        else if (!strcmp(argv[i], "--show") && i + 1 < argc)
            to_show = strtoul(argv[++i], NULL, 10);
        else if (n_dirs < 2)
            dirs[n_dirs++] = argv[i];
        else if (first_name == argc)
            first_name = i;
    }
    size_t len, total = 0;
    char *path = n_dirs == 2 ? path_of(dirs[0], "facts", ".json") : NULL,
         *data = path ? read_all(path, &len) : NULL;
    rvi_arena arena = {0};
    const rvi_json *facts = NULL;
    rv_error err;
    if (!data || rvi_json_parse(&facts, data, len, &arena, path, &err)) {
        fprintf(stderr, "usage: tokenizers GOLDEN VOCABS [--gguf] [--show N] [NAME ...]\n");
        return 2;
    }
    printf("differences:     rows   ids plain decoded streamed d.rows decode around invalid  load "
           "s    MB/s\n");
    for (size_t i = 0; i < rvi_json_count(facts); i++) {
        const rvi_json *f = rvi_json_at(facts, i);
        bool chosen = first_name == argc && rvi_json_is(f, RVI_JSON_OBJECT);
        for (int k = first_name; k < argc; k++) chosen |= !strcmp(argv[k], f->key);
        if (chosen) ok &= run(dirs[0], dirs[1], facts, f->key, from_gguf, &total);
    }
    printf("total differences: %zu\n", total);
    rvi_arena_deinit(&arena);
    free(data);
    free(path);
    return !ok ? 2 : total ? 1 : 0;
}
