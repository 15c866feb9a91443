/* gguf_pre.c - a GGUF file names its pre-tokenizer instead of describing it: this table says what
 * each name stands for.
 *
 * The patterns are those of the models' own tokenizers, so also \p{M} and Unicode case folding,
 * which some engines leave out. Normalization to NFC and ignore_merges are implied by the name
 * too. */
#include "tokenizer/gguf_pre.h"

#include <string.h>

#include "base/compat.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD         "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"                                                  \
    "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* GPT-4's pattern; the argument is the alternative for numbers */
#define CL100K(numbers) CONTRACTIONS "|" WORD numbers "|" SIGNS SPACES

/* GPT-4o's pattern; the arguments are what may follow a word, and the alternative for numbers */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K(suffix, numbers)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|"                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix "|" numbers                                \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

/* the same for Kimi K2, which takes Han characters by themselves */
#define NO_HAN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define NO_HAN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI                                                                                       \
    "\\p{Han}+|"                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" CONTRACTIONS "?|"                   \
    "[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "+" NO_HAN_LOWER "*" CONTRACTIONS "?|"                   \
    "\\p{N}{1,3}|" SIGNS SPACES

#define HAN_AND_KANA "[\\u4E00-\\u9FA5\\u3040-\\u309F\\u30A0-\\u30FF]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define AFMOE_SCRIPTS                                                                              \
    "[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\uF900-\\uFAFF\\u3040-\\u309F\\u30A0-\\u30FF\\uFF65-\\uFF9F"  \
    "\\u2F00-\\u2FDF\\u0E40-\\u0E7F\\u0E80-\\u0EFF\\u1780-\\u17FF\\u1000-\\u109F\\uAA60-\\uAA7F"   \
    "\\uA9E0-\\uA9FF\\uAC00-\\uD7AF\\u1100-\\u11FF]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\uAC00-\\uD7A3\\u3131-\\u318E]+|"                                                           \
    "[\\uFF01\\u2026\\u201C\\u201D\\u2018\\u2019\\u2014\\uFF1A\\uFF1B\\uFF0C\\u3001-"              \
    "\\u303F\\uFE30-\\uFE4F]+|"                                                                    \
    "[\\u3105-\\u312F]+|" HAN_AND_KANA

/* the older DeepSeek patterns; the letters are those of scripts with upper and lower case */
#define HAN_AND_SYLLABLES    "[\\u4E00-\\u9FA5\\u0800-\\u4E00\\uAC00-\\uD7FF]+"
#define SIGNS_OF_BOTH_WIDTHS "[!-/:-~\\uFF01-\\uFF0F\\uFF1A-\\uFF5E\\u2018-\\u201F\\u3000-\\u3002]+"
#define CASED                                                                                      \
    "A-Za-z\\u00B5\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u01BA\\u01BC-\\u01BF\\u01C4-\\u0293"     \
    "\\u0295-\\u02AF\\u0370-\\u0373\\u0376\\u0377\\u037B-\\u037D\\u037F\\u0386\\u0388-\\u038A"     \
    "\\u038C\\u038E-\\u03A1\\u03A3-\\u03F5\\u03F7-\\u0481\\u048A-\\u052F\\u0531-\\u0556"           \
    "\\u10A0-\\u10C5\\u13A0-\\u13F5\\u13F8-\\u13FD\\u1C90-\\u1CBA\\u1CBD-\\u1CBF\\u1D00-"          \
    "\\u1D2B\\u1D6B-\\u1D77\\u1D79-\\u1D9A\\u1E00-\\u1F15\\u1F18-\\u1F1D\\u1F20-\\u1F45"           \
    "\\u1F48-\\u1F4D\\u1F50-\\u1F57\\u1F59\\u1F5B\\u1F5D\\u1F5F-\\u1F7D\\u1F80-\\u1FB4\\u1FB6"     \
    "-\\u1FBC\\u1FBE\\u1FC2-\\u1FC4\\u1FC6-\\u1FCC\\u1FD0-\\u1FD3\\u1FD6-\\u1FDB\\u1FE0-"          \
    "\\u1FEC\\u1FF2-\\u1FF4\\u1FF6-\\u1FFC\\u2102\\u2107\\u210A-\\u2113\\u2115\\u2119-\\u211D"     \
    "\\u2124\\u2126\\u2128\\u212A-\\u212D\\u212F-\\u2134\\u2139\\u213C-\\u213F\\u2145-\\u2149"     \
    "\\u214E\\u2183\\u2184\\u2C00-\\u2C7B\\u2C7E-\\u2CE4\\u2CEB-\\u2CEE\\u2CF2\\u2CF3\\uA640-"     \
    "\\uA66D\\uA680-\\uA69B\\uA722-\\uA76F\\uA771-\\uA787\\uA78B-\\uA78E\\uAB70-\\uABBF"           \
    "\\uFB00-\\uFB06\\uFB13-\\uFB17\\uFF21-\\uFF3A\\uFF41-\\uFF5A\\x{10400}-\\x{1044F}"            \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define BLOOM " ?[^(\\s|.,!?\\u2026\\u3002\\uFF0C\\u3001\\u0964\\u06D4\\u060C)]+"
#define JAIS2_SPACES                                                                               \
    "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|" \
    "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

static const rvi_gguf_pre rows[] = {
    {.names = "default gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code "
              "roberta-bpe "
              "gigachat a.x-4.0 mellum modern-bert exaone4 jais trillion granite-docling",
     .patterns = {GPT2}},
    {.names = "olmo mpt", .patterns = {GPT2}, .nfc = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .patterns = {CL100K("\\p{N}{1,3}")},
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .patterns = {CL100K("\\p{N}{1,3}")}},
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez",
     .patterns = {CL100K("\\p{N}")},
     .nfc = true},
    {.names = "stablelm2 hunyuan solar-open grok-2", .patterns = {CL100K("\\p{N}")}},
    {.names = "qwen35",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
                               " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     .nfc = true},
    {.names = "smollm starcoder refact codeshell exaone minerva-7b mellum2",
     .patterns = {"\\p{N}", GPT2}},
    {.names = "command-r", .patterns = {"\\p{N}", GPT2}, .nfc = true},
    {.names = "tekken", .patterns = {O200K("", "\\p{N}")}, .ignore_merges = true, .add_bos = true},
    {.names = "gpt-4o llama4 kanana2 talkie granite-embed-multi-97m",
     .patterns = {O200K(CONTRACTIONS "?", "\\p{N}{1,3}")},
     .ignore_merges = true},
    {.names = "minimax-m2", .patterns = {O200K(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.names = "tiny_aya cohere2moe",
     .patterns = {"\\d{1,3}(?=(?:\\d{3})*\\b)", O200K(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.names = "kimi-k2", .patterns = {KIMI}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm",
     .patterns = {"\\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3}},
    {.names = "afmoe",
     .patterns = {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", AFMOE_SCRIPTS, DEEPSEEK3}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", "\\s?[" CASED "]+", "\\s?" SIGNS_OF_BOTH_WIDTHS, "\\s+$",
                  HAN_AND_SYLLABLES, "\\p{N}+"}},
    {.names = "deepseek-coder",
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_AND_SYLLABLES, "\\p{N}"}},
    {.names = "youtu",
     .patterns = {YOUTU_SCRIPTS, O200K(CONTRACTIONS "?", "\\p{N}")},
     .ignore_merges = true},
    {.names = "falcon", .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = "jais-2", .patterns = {CONTRACTIONS "|" WORD "\\p{N}{1,3}|" SIGNS JAIS2_SPACES}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
                  " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "seed-coder",
     .patterns = {CONTRACTIONS "|" WORD "\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {.names = "exaone-moe",
     .patterns = {CONTRACTIONS
                  "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|"
                  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "minicpm5", .patterns = {"\\p{N}{1,3}", CL100K("\\p{N}+")}, .ignore_merges = true},
    {.names = "laguna", .patterns = {"[^\\n]+|[\\n]+", CL100K("\\p{N}")}},
    {.names = "superbpe", .patterns = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {.names = "poro-chat bloom gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "chameleon",
     .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                  "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
     .add_bos = true},
    {.names = "gemma4 granite-embed-multi-311m sarvam-moe",
     .patterns = {NULL},
     .raw = true,
     .add_bos = true},
};

const rvi_gguf_pre *rvi_gguf_pre_find(const char *name, size_t len)
{
    for (size_t i = 0; len && i < RVI_COUNT(rows); i++)
        for (const char *p = rows[i].names; *p;) {
            size_t n = strcspn(p, " ");
            if (n == len && !memcmp(p, name, len)) return &rows[i];
            p += n;
            while (*p == ' ') p++;
        }
    return NULL;
}
