/* fuzz_tokenizer_text.c - text of a stranger, through small tokenizers of each kind. The first byte
 * chooses one and the flags; the rest is the text, and then also a list of ids. Checked: ids are in
 * range, decoding gives valid UTF-8, and streaming gives the same as decoding at once. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* clang-format off */
/* JSON with ' for " */
#define SPLIT(regex) "{'type':'Split','pattern':{'Regex':'" regex "'},'behavior':'Isolated','invert':false}"
#define ADDED \
    "'added_tokens':[" \
    "{'id':40,'content':'<s>','special':true,'normalized':false,'rstrip':true}," \
    "{'id':41,'content':'ab','special':false,'normalized':true,'lstrip':true,'single_word':true}," \
    "{'id':42,'content':'  ','special':false,'normalized':false}],"
#define VOCAB \
    "'vocab':{'?':0,'a':1,'b':2,'c':3,'aa':4,'aaaa':5,'_':6,'_a':7,'<0xC3>':8,'<0xA9>':9,'<0xFF>':10,'\\u0120':11," \
    "'\\u00c3':12,'\\u00a9':13,'\\u00c3\\u00a9':14,'1':15,'11':16,'e':17,'\\u010a':18,'\\u00e2':19}," \
    "'merges':['a a','aa aa','_ a','\\u00c3 \\u00a9','1 1']"

static const char *const sources[] = {
    /* byte-level */
    "{" ADDED "'normalizer':{'type':'NFC'},'pre_tokenizer':{'type':'Sequence','pretokenizers':["
    SPLIT("(?i:\\\\x27s|\\\\x27ll)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
          " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
          "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")
    ",{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}]},'decoder':{'type':'ByteLevel'},"
    "'model':{'type':'BPE','ignore_merges':true," VOCAB "}}",
    /* byte fallback, a space in front */
    "{" ADDED "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'_'},"
    "{'type':'Replace','pattern':{'String':' '},'content':'_'}]},"
    "'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'content':' '},"
    "{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':1}]},"
    "'model':{'type':'BPE','unk_token':'?','fuse_unk':true,'byte_fallback':true," VOCAB "}}",
    /* looking around, Metaspace */
    "{" ADDED "'normalizer':{'type':'NFKD'},'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits'},"
    SPLIT("\\\\d{1,3}(?=(?:\\\\d{3})*\\\\b)|(?<=a)\\\\w+?|(?>\\\\s|b)*+")
    ",{'type':'Metaspace','replacement':'_','prepend_scheme':'first'}]},"
    "'decoder':{'type':'Metaspace','replacement':'_','prepend_scheme':'first'},"
    "'model':{'type':'BPE','unk_token':'?'," VOCAB "}}",
    /* the other steps, no decoder */
    "{" ADDED "'normalizer':{'type':'Sequence','normalizers':[{'type':'Lowercase'},"
    "{'type':'Strip','strip_left':true,'strip_right':true},{'type':'StripAccents'}]},"
    "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Punctuation','behavior':'Contiguous'},"
    "{'type':'Split','pattern':{'String':'a'},'behavior':'MergedWithNext','invert':true},{'type':'ByteLevel'}]},"
    "'model':{'type':'BPE','end_of_word_suffix':'c'," VOCAB "}}",
};
/* clang-format on */

static rvi_tokenizer *tokenizers[sizeof sources / sizeof *sources];

static void need(bool condition)
{
    if (!condition) abort();
}

static void decode_both_ways(const rvi_tokenizer *t, const int32_t *ids, size_t n, unsigned flags)
{
    rvi_buf whole = {0}, parts = {0};
    rv_error err;
    rvi_detok d;
    need(!rvi_tokenizer_decode(t, ids, n, flags, &whole, &err));
    rvi_detok_init(&d, t, flags);
    for (size_t i = 0; i <= n; i++) {
        size_t before = parts.len;
        need(!(i < n ? rvi_detok_push(&d, ids[i], &parts, &err)
                     : rvi_detok_flush(&d, &parts, &err)));
        for (size_t k = before; k < parts.len;) {
            uint32_t cp;
            bool valid;
            k += rvi_utf8_decode(parts.data + k, parts.len - k, &cp, &valid);
            need(valid);
        }
    }
    need(whole.len == parts.len && (!whole.len || !memcmp(whole.data, parts.data, whole.len)));
    rvi_buf_deinit(&whole);
    rvi_buf_deinit(&parts);
}

/* A text that is a user's as a whole is plain text; any other spans are taken too. */
static void mark_users(const rvi_tokenizer *t, const char *text, size_t len)
{
    rvi_ids plain = {0}, marked = {0};
    rvi_text_spans user = {0};
    rv_error err;
    need(rvi_text_spans_add(&user, 0, len));
    if (!rvi_tokenizer_encode_marked(t, text, len, &user, 0, &marked, &err)) {
        need(!rvi_tokenizer_encode(t, text, len, RVI_TOK_PLAIN, &plain, &err));
        need(plain.len == marked.len &&
             (!plain.len || !memcmp(plain.data, marked.data, plain.len * sizeof *plain.data)));
        user.n = 0;
        for (size_t i = 0; i + 1 < len; i++) /* capital letters say where */
            if (text[i] >= 'A' && text[i] <= 'Z') need(rvi_text_spans_add(&user, i, i + 1));
        marked.len = 0;
        need(!rvi_tokenizer_encode_marked(t, text, len, &user, 0, &marked, &err));
    }
    rvi_ids_deinit(&plain);
    rvi_ids_deinit(&marked);
    rvi_text_spans_deinit(&user);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rv_error err;
    if (!size) return 0;
    size_t which = data[0] % (sizeof sources / sizeof *sources);
    unsigned flags = data[0] >> 4 & 3;
    if (!tokenizers[which]) {
        static char json[8192];
        rvi_tokenizer_files files = {.tokenizer = json, .tokenizer_len = strlen(sources[which])};
        for (size_t i = 0; i < files.tokenizer_len; i++)
            json[i] = sources[which][i] == '\'' ? '"' : sources[which][i];
        need(!rvi_tokenizer_from_json(&tokenizers[which], &files, NULL, &err));
    }
    const rvi_tokenizer *t = tokenizers[which];
    rvi_ids ids = {0};
    need(!rvi_tokenizer_encode(t, (const char *)data + 1, size - 1, flags, &ids, &err));
    for (size_t i = 0; i < ids.len; i++)
        need(ids.data[i] >= 0 && ids.data[i] < rvi_tokenizer_size(t));
    decode_both_ways(t, ids.data, ids.len, flags & 1);
    mark_users(t, (const char *)data + 1, size - 1);
    ids.len = 0;
    for (size_t i = 1; i < size; i++) need(rvi_ids_push(&ids, (int32_t)data[i] % 48 - 2));
    decode_both_ways(t, ids.data, ids.len, flags & 1);
    rvi_ids_deinit(&ids);
    return 0;
}
