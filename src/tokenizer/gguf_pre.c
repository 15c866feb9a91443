/* gguf_pre.c - a GGUF file names its pre-tokenizer instead of describing it: this table says what each name stands for.
 *
 * The patterns are those of the models' own tokenizers, so also \p{M} and Unicode case folding, which some engines leave
 * out. Normalization to NFC and ignore_merges are implied by the name too. */
#include "tokenizer/gguf_pre.h"

#include <string.h>

#include "base/compat.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
/* GPT-4's pattern; the argument is the alternative for numbers */
#define CL100K(numbers) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "|" SIGNS SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* GPT-4o's pattern; the arguments are what may follow a word, and the alternative for numbers */
#define O200K(suffix, numbers)                                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix "|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define DEEPSEEK3                                                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" \
    SPACES
#define NO_HAN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define NO_HAN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define CJK_OR_SYLLABLES "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C})]+"

/* the letters of Latin, Greek, Cyrillic and kin that DeepSeek LLM's pattern lists */
#define BICAMERAL                                                                                                       \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"        \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"          \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"            \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"    \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"     \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"     \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"     \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"      \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"      \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"     \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"    \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"             \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const rvi_gguf_pre rows[] = {
    {.names = "default gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 "
              "mellum modern-bert exaone4 jais trillion granite-docling",
     .patterns = {GPT2}},
    {.names = "olmo mpt", .patterns = {GPT2}, .nfc = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .patterns = {CL100K("\\p{N}{1,3}")}, .ignore_merges = true, .add_bos = true},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .patterns = {CL100K("\\p{N}{1,3}")}},
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez", .patterns = {CL100K("\\p{N}")}, .nfc = true},
    {.names = "stablelm2 hunyuan solar-open grok-2", .patterns = {CL100K("\\p{N}")}},
    {.names = "qwen35",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     .nfc = true},
    {.names = "smollm starcoder refact codeshell exaone minerva-7b mellum2", .patterns = {"\\p{N}", GPT2}},
    {.names = "command-r", .patterns = {"\\p{N}", GPT2}, .nfc = true},
    {.names = "tekken", .patterns = {O200K("", "\\p{N}")}, .ignore_merges = true, .add_bos = true},
    {.names = "gpt-4o llama4 kanana2 talkie granite-embed-multi-97m",
     .patterns = {O200K(CONTRACTIONS "?", "\\p{N}{1,3}")}, .ignore_merges = true},
    {.names = "minimax-m2", .patterns = {O200K(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.names = "tiny_aya cohere2moe", .patterns = {"\\d{1,3}(?=(?:\\d{3})*\\b)", O200K(CONTRACTIONS "?", "\\p{N}{1,3}")}},
    {.names = "kimi-k2",
     .patterns = {"\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "*" NO_HAN_LOWER "+" CONTRACTIONS
                  "?|[^\\r\\n\\p{L}\\p{N}]?" NO_HAN_UPPER "+" NO_HAN_LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}|" SIGNS SPACES}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm",
     .patterns = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {.names = "afmoe",
     .patterns = {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
                  "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}"
                  "\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
                  "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+",
                  DEEPSEEK3}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", "\\s?[" BICAMERAL "]+",
                  "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+", "\\s+$",
                  CJK_OR_SYLLABLES, "\\p{N}+"}},
    {.names = "deepseek-coder", .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_OR_SYLLABLES, "\\p{N}"}},
    {.names = "youtu",
     .patterns = {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}"
                  "\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|"
                  "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                  O200K(CONTRACTIONS "?", "\\p{N}")},
     .ignore_merges = true},
    {.names = "falcon", .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = "jais-2",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" SIGNS
                  "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|"
                  "\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
                  "\\s+(?!\\S)|\\s+"}},
    {.names = "seed-coder",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {.names = "exaone-moe",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|"
                  "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = "minicpm5", .patterns = {"\\p{N}{1,3}", CL100K("\\p{N}+")}, .ignore_merges = true},
    {.names = "laguna", .patterns = {"[^\\n]+|[\\n]+", CL100K("\\p{N}")}},
    {.names = "superbpe", .patterns = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {.names = "poro-chat bloom gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "chameleon",
     .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
                  "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
     .add_bos = true},
    {.names = "gemma4 granite-embed-multi-311m sarvam-moe", .patterns = {NULL}, .raw = true, .add_bos = true},
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
