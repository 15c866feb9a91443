#!/usr/bin/env python3
"""make_tokenizer_vectors.py - makes the small tokenizers of tests/tokenizer/data and what they must
answer.

    make_tokenizer_vectors.py tests/tokenizer/data

Needs the package tokenizers (0.23), which is the reference. Every vocabulary is trained here on the
sentences below, so all of it is ours. Written are NAME.json (a tokenizer.json), NAME.expected.json
(one row per text of texts.json) and normal_forms.json (texts with their four normalization forms,
from unicodedata).
"""
import json
import os
import random
import sys
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

SENTENCES = [
    "The river is wide here, and the ferry doesn't run at night.",
    "We'll see what they've done; I'm sure you'd agree.",
    "The weather turned: 12 days of rain, 345 of sun, 6789 hours in all.",
    "def area(width, height):\n    return width * height\n",
    "for (int i = 0; i < 10; i++) { total += values[i]; }\r\n",
    "Gr\xf6\xdfe, na\xefve caf\xe9, \xc5ngstr\xf6m, se\xf1or, \u010daj, \u0142\xf3d\u017a.",
    "Привет, как дела сегодня?",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u6cb3\u8fb9\u8d70\u8d70\u3002",
    "\u4eca\u65e5\u306f\u3068\u3066\u3082\u826f\u3044\u5929\u6c17\u3067\u3059\u306d\u3002",
    "\uc624\ub298\uc740 \ub0a0\uc528\uac00 \uc88b\uc2b5\ub2c8\ub2e4.",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "a b  c   d    e     f\t\tg\n\n\nh",
    "The other letters there rather gather together.", "https://example.org/a/b?c=d&e=f#g",
    "{\"name\": \"value\", \"list\": [1, 2, 3]}",
] * 3

TEXTS = [
    "", "a", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "Hello world", " Hello",
    "Hello ",
    "the rather other", "THE RIVER", "don't DON'T we'll WE'LL I'm you'd they've it's 'tis",
    "don\u2019t",
    "'\u017f \u017ft", "0 12 345 6789 01234567890", "x1y22z333",
    "3.14 1,000,000 \u0663\u0664 \u2167 \xbd\xb2",
    "a  b   c    d", "line\n\nline\r\n\r\nline", "end   \n", "   lead", "tab\t\ttab \t x",
    "!?...,;:--//\\\\",
    "a/b/c.d_e-f", "if (x) { return; }\n    y = 1;\n", "Gr\xf6\xdfe na\xefve",
    "Gro\u0308\xdfe nai\u0308ve",
    "\u212bA\u030a \u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",
    "q\u0307\u0323 q\u0323\u0307", "\u0344\u0958",
    "\u4eca\u5929\u5929\u6c14\uff0c\u5f88\u597d\u3002", "\u4eca\u65e5\u306f\u30c6\u30b9\u30c8",
    "\ub0a0\uc528\uac00 \uc88b\uc2b5\ub2c8\ub2e4",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 \u2764\ufe0f",
    "zero\u200bwidth\ufeff nbsp\xa0x\u3000y\u2028z\x85w", "\x00\x01\x1f\x7f",
    "\ue000\U00010fff\ufffd",
    "\u2581\u2581a \u2581", "<0x0A> <0x41>", "<s>", "<s>Hello</s>", " <s> Hello </s> ",
    "<|end|>the<|end|>  the",
    "a<|end|>\n\n b", "<|user|>Hi<|end|>\n<|bot|>", "<s></s><s>", "<|end",
    "Keep keep keeper unkeep keep.",
    "<tag> x <tag>y", "word<|hole|>word", "LongWordWithCaps HTTPServer iPhone",
    "\xc9\xc9\u0301\xe9 \u01c5 \u02b0\u02b1",
]

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
          r"?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + r"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PUNCT_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
              r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = [AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>", "<|end|>",
    "<|user|>", "<|bot|>")]


def byte_level(steps, normalizer=None, size=430):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                         initial_alphabet=alphabet))
    t.add_special_tokens(SPECIAL)
    return t


def sentence_piece(normalizer, pre_tokenizer, decoder, runs=()):
    base = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.decoder = decoder
    words = [w.replace(" ", "\u2581") for s in SENTENCES[:17]
             for w in s.replace(" ", "\n ").split("\n") if w.isascii()]
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator(words, trainers.BpeTrainer(vocab_size=160, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    vocab = {w: i for i, w in enumerate(base)}
    for w in sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(w, len(vocab))
    for w in runs:
        vocab.setdefault(w[0], len(vocab))
        vocab.setdefault(w, len(vocab))
    merges = [(w[0], w[1:]) for w in runs] + [tuple(m) for m in model["merges"]]
    t.model = models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True,
                         byte_fallback=True)
    t.add_special_tokens([AddedToken("<unk>", special=True, normalized=False)] + SPECIAL)
    return t


# For the WordPiece tokenizers besides TEXTS
BERT_TEXTS = [
    "[CLS] the river [SEP]", "[MASK]ed [UNK] [PAD]", "##ing # # ##", "walk.walking,walked!",
    "do not don't . , ? ! ' n't 's 've", "a" * 20, "a" * 21, "\u00e9" * 20, "\u00e9" * 21, "the" * 6
    + "th",
    "\u00c5ngstr\u00f6m NA\u00cfVE \u0130stanbul \u039f\u03a3",
    "\u4e00a\u4e8c\U0002a700b\U0002b81fc\U0002b820d\U0002b920e\uf900", "\u3042\u30a2\uac00",
    "a\u0301b\u1abfc\u0300",
    "x\u00ady\u200bz\u2060w\ufeffv\u0890u", "a\u2e43b\u2026c\u00abd\u00bbe\u166df",
    "$5+2=7 <3 a^b `c` |d| ~e",
    "tab\tnew\nline\u00a0nbsp\u3000wide",
    "\u0378\ue000\U000e0001\U0010ffff", "THE Other LETTERS", "x" * 300 + " the",
]


def wordpiece(lowercase, cleanup, longest, post):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=cleanup)
    words = [w for s in SENTENCES[:17] for w,
             _ in t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(s))]
    first, inside = {w[0] for w in words}, {"##" + c for w in words for c in w[1:]}
    pieces = sorted(first | inside)[::1 if lowercase else 2] + sorted(set(w for w in words
        if w.isascii()))[:40]
    pieces += ["a", "##a", "the", "th", "walk", "##ing", "##in", "##ed", "##er", "##the", "n", "do",
               "not", "[unused0]"]
    pieces += ["t"] if lowercase else ["t", "T"]
    ids = {p: i for i, p in enumerate(dict.fromkeys(special + pieces))}
    t.model = models.WordPiece(vocab=ids, unk_token="[UNK]", max_input_chars_per_word=longest)
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in special])
    if post == "template":
        t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                         special_tokens=[(x, ids[x])
                                                             for x in ("[CLS]", "[SEP]")])
    else:
        t.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]),
                                                     ("[CLS]", ids["[CLS]"]))
    return t


def no_regex():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def around(t, before, after):
    ids = {x: t.token_to_id(x) for x in (before, after) if x}
    t.post_processor = processors.TemplateProcessing(
        single=" ".join(x for x in (before, "$A", after) if x), special_tokens=list(ids.items()))
    return t


def build():
    fallback = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    keep, strip = decoders.Sequence(fallback), decoders.Sequence(fallback
        + [decoders.Strip(" ", 1, 0)])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    to_meta = normalizers.Replace(" ", "\u2581")
    yield "gpt2", byte_level([gpt2])
    j = json.loads(byte_level([split(CL100K), no_regex()]).to_str())
    j["model"]["ignore_merges"] = True
    for w in ("\u0120Hello", "\u0120world", "Keep"):  # out of reach for the merges
        j["model"]["vocab"][w] = len(j["model"]["vocab"])
    yield "llama3", around(Tokenizer.from_str(json.dumps(j)), "<s>", None)
    yield "qwen2", byte_level([split(CL100K.replace("{1,3}", "")), no_regex()], normalizers.NFC())
    yield "o200k", around(byte_level([split(O200K), no_regex()]), "<s>", "</s>")
    han_kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
    t = byte_level([split(r"\p{N}{1,3}"), split(han_kana), split(PUNCT_WORD), no_regex()])
    t.add_tokens([AddedToken("<tag>", normalized=True)])
    yield "deepseek", t
    yield "digits", byte_level([pre_tokenizers.Digits(individual_digits=True), gpt2])
    yield "prefix_space", byte_level([pre_tokenizers.ByteLevel(add_prefix_space=True)])
    prepend = normalizers.Sequence([normalizers.Prepend("\u2581"), to_meta])
    yield "spm_prepend", around(sentence_piece(prepend, None, strip), "<s>", None)
    yield "spm_first", sentence_piece(None, pre_tokenizers.Metaspace(prepend_scheme="first",
        split=False), strip)
    words = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    yield "spm_words", sentence_piece(None, words, decoders.Metaspace())
    t = sentence_piece(to_meta, pre_tokenizers.Split(" ", "merged_with_previous"), keep,
                       runs=("\u2581\u2581", "\n\n"))
    t.add_tokens([AddedToken(x, normalized=False) for x in ("\n", "\n\n", "\u2581\u2581", "<tag>")])
    yield "spm_runs", t
    t = byte_level([gpt2], normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()]))
    t.add_tokens([AddedToken("keep", single_word=True, normalized=False),
                  AddedToken("<tag>", lstrip=True, normalized=False),
                  AddedToken("\u00c9", normalized=True)])
    t.add_special_tokens([AddedToken("<|hole|>", normalized=False)])
    j = json.loads(t.to_str())
    for a in j["added_tokens"]:
        a["rstrip"] = a["content"] == "<|end|>"
    yield "flags", Tokenizer.from_str(json.dumps(j))
    yield "bert", wordpiece(True, True, 100, "template")
    yield "bert_cased", wordpiece(False, False, 20, "bert")


def move_id(value, old, new):
    """The library numbers added tokens itself, so a hole in the ids is made afterwards, in
    tokenizer and answers."""
    if isinstance(value, dict):
        return {k: move_id(v, old, new) if k in ("id", "ids", "plain", "around", "texts", "random")
                else v
                for k, v in value.items()}
    if isinstance(value, list):
        return [move_id(v, old, new) for v in value]
    return new if value == old else value


def answers(t, text):
    t.encode_special_tokens = True
    plain = t.encode(text, add_special_tokens=False).ids
    t.encode_special_tokens = False
    ids = t.encode(text, add_special_tokens=False).ids
    return {"ids": ids, "plain": plain, "around": t.encode(text).ids,
            "decoded": t.decode(ids, skip_special_tokens=False)}


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)

    def write(name, value):
        with open(os.path.join(out, name), "w", encoding="ascii") as f:
            json.dump(value, f, ensure_ascii=True, separators=(",", ":"))
            f.write("\n")

    write("texts.json", TEXTS)
    rng = random.Random(7)
    for name, t in build():
        j = json.loads(t.to_str())
        rows, ids_all = [], sorted(set(t.get_vocab().values()))
        for text in TEXTS:
            rows.append(answers(t, text))
        random_rows = []
        if name.startswith("bert"):
            rng, kept = random.Random(name), rng
        for _ in range(25):
            ids = [rng.choice(ids_all if rng.random() < .7 else ids_all[:260])
                   for _ in range(rng.randint(1, 12))]
            random_rows.append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False),
                                "skip": t.decode(ids)})
        expected = {"texts": rows, "random": random_rows}
        if name.startswith("bert"):
            rng = kept
            # these two do not concern a tokenizer of ours
            j["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst",
                               "stride": 0}
            j["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right",
                            "pad_to_multiple_of": None, "pad_id": 0,
                            "pad_type_id": 0, "pad_token": "[PAD]"}
            expected["own_texts"], expected["own"] = BERT_TEXTS, [answers(t, text)
                for text in BERT_TEXTS]
        if name == "flags":
            hole = t.token_to_id("<|hole|>")
            j["added_tokens"], expected = move_id(j["added_tokens"], hole, 600), move_id(expected,
                hole, 600)
        write(name + ".json", j)
        write(name + ".expected.json", expected)
        print(name, t.get_vocab_size(), "tokens")

    forms = []
    letters = [0x41, 0x61, 0x6F, 0x41F, 0x438, 0x915, 0x9C7, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x1E9B,
               0x212B, 0xFB01]
    marks = [0x300, 0x301, 0x323, 0x307, 0x328, 0x345, 0x327, 0x93C, 0x94D, 0x9BE, 0x3099, 0x5B0,
             0x11A8, 0x1175, 0x653]
    for _ in range(150):
        pools = [marks if rng.random() < .6 else letters for _ in range(rng.randint(1, 9))]
        forms.append("".join(chr(rng.choice(pool)) for pool in pools))
    for c in range(0x80, 0x30000):
        changes = not 0xAC00 <= c < 0xE000 and unicodedata.normalize("NFKD", chr(c)) != chr(c)
        if changes and rng.random() < .06:
            forms.append(chr(c))
    names = ("NFC", "NFD", "NFKC", "NFKD")
    write("normal_forms.json", [[s] + [unicodedata.normalize(f, s) for f in names] for s in forms])


main()
