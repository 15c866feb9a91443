/* test_alloc_tokenizer.c - every allocation of loading, encoding and decoding, refused in turn:
 * RV_E_NOMEM comes back and nothing leaks (which a sanitizer sees). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/gguf_builder.h"
#include "harness/amount.h"
#include "harness/fail_alloc.h"
#include "tokenizer/tokenizer.h"

/* clang-format off */
/* Every kind of step, small. JSON with ' for ", put right in main. */
static char json[] =
    "{'added_tokens':["
    "{'id':9,'content':'<s>','special':true,'normalized':false,'single_word':true,'rstrip':true},"
    "{'id':10,'content':'Tok','special':false,'normalized':true,'lstrip':true}],"
    "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFKC'},{'type':'Lowercase'},{'type':'StripAccents'},"
    "{'type':'Strip','strip_left':true,'strip_right':true},{'type':'Prepend','prepend':'_'},"
    "{'type':'Replace','pattern':{'Regex':'(?i:z|[[:upper:]&&[^Q]])+(?=a)'},'content':'b'}]},"
    "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true},"
    "{'type':'Punctuation'},"
    "{'type':'Split','pattern':{'Regex':'(?:a|b)+?x|(?>c|d)*(?<=d)'},'behavior':'MergedWithNext','invert':false},"
    "{'type':'Metaspace','replacement':'_','prepend_scheme':'always'},{'type':'Whitespace'}]},"
    "'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},{'Sequence':{'id':'A'}},"
    "{'SpecialToken':{'id':'<s>'}}],'special_tokens':{'<s>':{'ids':[9]}}},"
    "'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},'content':' '},"
    "{'type':'Replace','pattern':{'Regex':'q'},'content':'q'},{'type':'ByteFallback'},{'type':'Fuse'},"
    "{'type':'Strip','content':' ','start':1,'stop':1}]},"
    "'model':{'type':'BPE','unk_token':'?','byte_fallback':true,'continuing_subword_prefix':'#','vocab':{'?':0,'a':1,"
    "'#b':2,'ab':3,'_':4,'#a':5,'<0xC3>':6,'<0xA9>':7,'_a':8},'merges':['a #b',['_','#a']]}}";
static char config[] =
    "{'bos_token':'<s>','eos_token':{'content':'a'},'chat_template':'x','add_bos_token':true}";
/* clang-format on */
static const char text[] =
    "ab <s>  Tok caf\xC3\xA9 12. zzza abx \xFF cdcd \xE1\x84\x92\xE1\x85\xA1";

static rv_status use(const rvi_tokenizer *t, rv_error *err)
{
    rvi_ids ids = {0};
    rvi_buf out = {0};
    rv_status st = rvi_tokenizer_encode(t, text, sizeof text - 1, RVI_TOK_BOS_EOS, &ids, err);
    if (!st) st = rvi_tokenizer_decode(t, ids.data, ids.len, 0, &out, err);
    rvi_ids_deinit(&ids);
    rvi_buf_deinit(&out);
    return st;
}

static rv_status from_json(rv_error *err)
{
    rvi_tokenizer_files files = {.tokenizer = json,
                                 .tokenizer_len = sizeof json - 1,
                                 .config = config,
                                 .config_len = sizeof config - 1};
    rvi_tokenizer *t;
    rv_status st = rvi_tokenizer_from_json(&t, &files, NULL, err);
    assert_int_equal(t != NULL, st == RV_OK);
    if (!st) st = use(t, err);
    rvi_tokenizer_free(t);
    return st;
}

/* clang-format off */
static char word_pieces[] =
    "{'added_tokens':[{'id':0,'content':'[UNK]','special':true,'normalized':false}],"
    "'normalizer':{'type':'BertNormalizer','clean_text':true,'handle_chinese_chars':true,'strip_accents':null,'lowercase':true},"
    "'pre_tokenizer':{'type':'BertPreTokenizer'},"
    "'post_processor':{'type':'BertProcessing','sep':['a',1],'cls':['[UNK]',0]},'decoder':{'type':'WordPiece','prefix':'##'},"
    "'model':{'type':'WordPiece','unk_token':'[UNK]','vocab':{'[UNK]':0,'a':1,'##b':2,'tok':3,'12':4,'.':5}}}";
/* clang-format on */

static rv_status from_word_pieces(rv_error *err)
{
    rvi_tokenizer_files files = {.tokenizer = word_pieces, .tokenizer_len = sizeof word_pieces - 1};
    rvi_tokenizer *t;
    rv_status st = rvi_tokenizer_from_json(&t, &files, NULL, err);
    assert_int_equal(t != NULL, st == RV_OK);
    if (!st) st = use(t, err);
    rvi_tokenizer_free(t);
    return st;
}

static rvi_gguf *file;

static rv_status from_gguf(rv_error *err)
{
    rvi_tokenizer *t;
    rv_status st = rvi_tokenizer_from_gguf(&t, file, NULL, err);
    assert_int_equal(t != NULL, st == RV_OK);
    if (!st) st = use(t, err);
    rvi_tokenizer_free(t);
    return st;
}

static void sweep(rv_status (*attempt)(rv_error *err))
{
    for (int once = 0; once < 2; once++) {
        long n = 0;
        for (bool refused = true; refused; n += OFTEN(1, 3)) {
            rv_error err = {0};
            if (once)
                fail_alloc_once(n);
            else
                fail_alloc_after(n);
            rv_status st = attempt(&err);
            refused = fail_alloc_off();
            if (st != (refused ? RV_E_NOMEM : RV_OK))
                fail_msg("call %ld refused: status %d %s", n, (int)st, err.text);
            assert_true(n < 100000);
        }
        assert_true(n > 30);
    }
}

static void loading_json(void **state)
{
    (void)state;
    sweep(from_json);
    sweep(from_word_pieces);
}

static void loading_gguf(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>",          "</s>", "a",    "b",
                                         "ab",    "\xE2\x96\x81", "▁ab",  "\xFF", "<x>"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 4};
    static const float scores[RVI_COUNT(types)] = {0, 0, 0, -1, -2, -3, -4, -5, -6, 0};
    static const char *const merges[] = {"a b"};
    static const char *const pres[] = {"qwen2", "kimi-k2", "bert", NULL};
    for (size_t i = 0; i < RVI_COUNT(pres); i++) {
        gguf_builder b = {.version = 3};
        rvi_buf bytes = {0};
        rvi_blob blob;
        rv_error err;
        bool bert = pres[i] && !strcmp(pres[i], "bert");
        gb_str(&b, "tokenizer.ggml.model", bert ? "bert" : pres[i] ? "gpt2" : "llama");
        if (bert) gb_u32(&b, "tokenizer.ggml.unknown_token_id", 0);
        if (pres[i]) gb_str(&b, "tokenizer.ggml.pre", pres[i]);
        gb_str_array(&b, "tokenizer.ggml.tokens", tokens, RVI_COUNT(tokens));
        gb_array(&b, "tokenizer.ggml.token_type", RVI_GGUF_I32, types, RVI_COUNT(types), 4);
        gb_array(&b, "tokenizer.ggml.scores", RVI_GGUF_F32, scores, RVI_COUNT(types), 4);
        gb_str_array(&b, "tokenizer.ggml.merges", merges, RVI_COUNT(merges));
        gb_u32(&b, "tokenizer.ggml.bos_token_id", 1);
        gb_bool(&b, "tokenizer.ggml.add_bos_token", true);
        gb_str(&b, "tokenizer.chat_template", "x");
        gb_finish(&b, &bytes);
        gb_deinit(&b);
        rvi_blob_from_memory(&blob, bytes.data, bytes.len);
        assert_int_equal(rvi_gguf_open_blob(&file, &blob, "test", &err), RV_OK);
        sweep(from_gguf);
        rvi_gguf_close(file);
        rvi_buf_deinit(&bytes);
    }
}

static void put_quotes(char *s)
{
    for (; *s; s++)
        if (*s == '\'') *s = '"';
}

int main(void)
{
    put_quotes(json);
    put_quotes(config);
    put_quotes(word_pieces);
    const struct CMUnitTest tests[] = {cmocka_unit_test(loading_json),
                                       cmocka_unit_test(loading_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
