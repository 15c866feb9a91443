#!/usr/bin/env python3
"""Train the judge of requests (src/learn/recognise/judge.h) and write its weights.

    tools/train_judge.py EMBEDDER FILE...            cross-validate by class of correction
    tools/train_judge.py EMBEDDER FILE... -o OUT.c   train on everything, write the C file

EMBEDDER is the folder of all-MiniLM-L6-v2 (`ruvllm pull minilm` has it), FILE a list of corrections
(bench/natural). Needs numpy, jax, tokenizers, safetensors and scipy. What a text looks like to the
judge, and the network itself, are in reading.c and judge.c; here they are written a second time for
training, and tests/real/test_judge.c compares the two.
"""
import argparse
import json
import math
import multiprocessing
import os
import pickle
import random
import unicodedata

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

WORDS, SPELLING, RARITIES = 28, 128, 4096
MIDDLE, LAST, TOKENS, UNKNOWN = 4, 6, 126, 100
WORD, WHOLE, SEEN, HIDDEN = 17, 14, 48, 32
ANSWER_BYTES = 600


# ---- the embedder ----


def open_tokenizer(folder):
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class Embedder:
    """all-MiniLM-L6-v2 in numpy: states of every token after the middle and the last layer."""

    def __init__(self, folder):
        weights = load_file(f"{folder}/model.safetensors")
        self.w = {k: v.astype(np.float32) for k, v in weights.items() if v.dtype != np.int64}
        self.tokenizer = open_tokenizer(folder)

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def states(self, ids):
        n = len(ids)
        e = "embeddings."
        x = self.w[e + "word_embeddings.weight"][ids] + self.w[e + "position_embeddings.weight"][:n]
        x = self.norm(x + self.w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        middle = x
        for layer in range(LAST):
            p = f"encoder.layer.{layer}."
            q, k, v = (self.linear(x, p + "attention.self." + part).reshape(n, 12, 32)
                       .transpose(1, 0, 2) for part in ("query", "key", "value"))
            a = q @ k.transpose(0, 2, 1) / math.sqrt(32)
            a = np.exp(a - a.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            y = (a @ v).transpose(1, 0, 2).reshape(n, 384)
            x = self.norm(x + self.linear(y, p + "attention.output.dense"),
                          p + "attention.output.LayerNorm")
            h = self.linear(x, p + "intermediate.dense")
            h = h * 0.5 * (1 + erf(h / math.sqrt(2)))
            x = self.norm(x + self.linear(h, p + "output.dense"), p + "output.LayerNorm")
            if layer + 1 == MIDDLE:
                middle = x
        return middle, x


# ---- a text as the judge sees it (reading.c) ----


def fnv(text):
    h = 2166136261
    for byte in text.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


def script(c):
    o = ord(c)
    if 0x3400 <= o <= 0x9FFF or 0xF900 <= o <= 0xFAFF or 0x20000 <= o <= 0x3FFFF:
        return "han"
    if 0x3040 <= o <= 0x309F:
        return "hiragana"
    if 0x30A0 <= o <= 0x30FF or 0x31F0 <= o <= 0x31FF or 0xFF66 <= o <= 0xFF9F:
        return "katakana"
    kind = unicodedata.category(c)[0]
    if kind in "LNM":
        return "letters"
    if kind == "Z" or c in "\t\n\r":
        return "space"
    return "symbol" if kind == "S" or c in "#%&@/*\\" else "punctuation"


def segments(text):
    out, before = [], "space"
    for c in text:
        is_ = script(c)
        if is_ == before and is_ in ("letters", "hiragana", "katakana"):
            out[-1] = (out[-1][0] + c, is_)
        elif is_ != "space":
            out.append((c, is_))
        before = is_
    return out[:120]


def fold(word):
    word = unicodedata.normalize("NFKD", word.lower())
    return "".join(c for c in word if not unicodedata.combining(c))


def spelling(word, before, after):
    v = np.zeros(SPELLING, np.float32)
    if len(word) == 1 and script(word) == "han":
        v[fnv(word) % SPELLING] += 1
        if before:
            v[fnv(before + word) % SPELLING] += 0.5
        if after:
            v[fnv(word + after) % SPELLING] += 0.5
    else:
        text = "^" + word + "$"
        for n in (2, 3):
            for i in range(len(text) - n + 1):
                v[fnv(text[i:i + n]) % SPELLING] += 1
    length = np.linalg.norm(v)
    return v / length if length else v


def tokens(tokenizer, word):
    """Its ids; characters that the vocabulary lacks get ids that it has and does not use."""
    ids = tokenizer.encode(word, add_special_tokens=False).ids
    if ids != [UNKNOWN]:
        return ids
    spare = [fnv(c.lower()[0]) % 990 for c in word[:6]]
    return [k + 1 if k < 99 else k + 5 for k in spare]


def hashes(word):
    return fnv("a" + word) % RARITIES, fnv("b" + word) % RARITIES


class Texts:
    """Reads texts, and remembers in a file how they read."""

    def __init__(self, embedder, cache):
        self.embedder, self.cache, self.raw, self.made = embedder, cache, {}, {}
        if cache and os.path.exists(cache):
            with open(cache, "rb") as f:
                self.raw = pickle.load(f)

    def save(self):
        if self.cache:
            with open(self.cache, "wb") as f:
                pickle.dump(self.raw, f)

    def read_all(self, texts, jobs):
        new = sorted({t for t in texts if t not in self.raw})
        global _reader
        _reader = self
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            self.raw.update(zip(new, pool.map(_read, new, 64)))

    def read(self, text):
        if text not in self.raw:
            self.raw[text] = self.read_new(text)
        return self.raw[text]

    def read_new(self, text):
        parts, ids, found = segments(text), [101], []
        for k, (word, is_) in enumerate(parts):
            own = self.embedder.tokenizer.encode(word, add_special_tokens=False).ids
            if len(ids) - 1 + len(own) > TOKENS:
                break
            if own:
                found.append((k, word, is_, len(ids), len(ids) + len(own)))
            ids += own
        middle, last = self.embedder.states(ids + [102])
        words = []
        for k, word, is_, a, b in found:
            if is_ == "punctuation":
                continue
            before = parts[k - 1][0] if k and parts[k - 1][1] == "han" else ""
            after = parts[k + 1][0] if k + 1 < len(parts) and parts[k + 1][1] == "han" else ""
            folded = fold(word) or word
            words.append({
                "word": folded, "spelling": spelling(folded, before, after).astype(np.float16),
                "digits": float(any(unicodedata.category(c)[0] == "N" for c in word)),
                "east_asian": float(is_ in ("han", "hiragana", "katakana")),
                "length": min(len(folded), 12) / 12, "pieces": min(b - a, 6) / 6,
                "middle": middle[a:b].mean(0).astype(np.float16),
                "last": last[a:b].mean(0).astype(np.float16)})
        whole = last.mean(0)
        return {"words": words[-WORDS:], "meaning": whole / np.linalg.norm(whole)}

    def measure(self, corrections):
        """How rare words are in questions, and what the embedder's states are like."""
        counts, n = np.zeros(RARITIES), 0
        states = {"middle": [], "last": []}
        for x in corrections:
            for t in [x["question"]] + x["wordings"][:3] + x["neighbours"][:2] + \
                    x["same_subject"][:3]:
                n += 1
                words = self.read(t)["words"]
                for k in {k for w in words for k in hashes(w["word"])}:
                    counts[k] += 1
                for which in states:
                    states[which] += [w[which].astype(np.float32) for w in words[:4]]
        rarity = np.log((n + 1) / (counts + 0.5)) / math.log((n + 1) / 0.5)
        self.rarity = np.round(np.clip(rarity, 0, 1) * 255) / 255
        self.mean = {k: np.mean(v, 0) for k, v in states.items()}
        self.scale = {k: 1 / np.maximum(np.std(v, 0), 0.02) for k, v in states.items()}
        self.made = {}

    def reading(self, text):
        if text in self.made:
            return self.made[text]
        raw = self.read(text)
        words = raw["words"]
        r = {"n": len(words), "words": [w["word"] for w in words], "meaning": raw["meaning"]}
        for key in ("digits", "east_asian", "length", "pieces"):
            r[key] = np.array([w[key] for w in words], np.float32)
        r["rarity"] = np.array([max(self.rarity[k] for k in hashes(w)) for w in r["words"]],
                               np.float32)
        r["spelling"] = np.array([w["spelling"] for w in words], np.float32).reshape(-1, SPELLING)
        for which in ("middle", "last"):
            v = np.array([w[which] for w in words], np.float32).reshape(-1, 384)
            v = (v - self.mean[which]) * self.scale[which]
            r[which] = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)
        spelled = (r["spelling"] * r["rarity"][:, None] ** 2).sum(0)
        r["spelled"] = spelled / max(np.linalg.norm(spelled), 1e-9)
        self.made[text] = r
        return r


def _read(text):
    return _reader.read_new(text)


# ---- features of a pair (judge.c) ----


def of_words(middle, last, spelled, match, x, y, answer, embedded):
    n, m = match.shape
    at, rows = match.argmax(1), np.arange(n)
    others = match.copy()
    others[rows, at] = -1
    theirs, nearest = set(y["words"]), spelled.max(1)
    told = [w in answer and w not in theirs for w in x["words"]]
    return np.stack([
        middle.max(1), last.max(1), nearest, last[rows, at], match[rows, at],
        others.max(1) if m > 1 else np.zeros(n), match.argmax(0)[at] == rows, x["rarity"],
        x["digits"], x["east_asian"], x["length"], y["rarity"][at], x["digits"] * (nearest < 0.99),
        np.abs(rows / max(1, n - 1) - at / max(1, m - 1)), np.array(told, np.float32),
        x["rarity"] / max(1e-3, x["rarity"].max()), x["pieces"] * embedded], 1).astype(np.float32)


def features(q, a, r, embedded):
    if not q["n"] or not r["n"]:
        return None
    spelled = q["spelling"] @ r["spelling"].T
    none = np.zeros_like(spelled)
    middle = q["middle"] @ r["middle"].T if embedded else none
    last = q["last"] @ r["last"].T if embedded else none
    match = np.maximum(0.5 * middle + 0.5 * last, np.where(spelled > 0.5, spelled, 0))
    told = set(a["words"])
    in_q = of_words(middle, last, spelled, match, q, r, told, embedded)
    in_r = of_words(middle.T, last.T, spelled.T, match.T, r, q, told, embedded)
    ours, theirs = set(q["words"]), set(r["words"])
    named = sum(w for word, w in zip(a["words"], a["rarity"])
                if word in theirs and word not in ours and w > 0.4)
    differ = any(any(unicodedata.category(c)[0] == "N" for c in w) for w in ours ^ theirs)
    wq, wr = q["rarity"] ** 2, r["rarity"] ** 2
    like = (lambda u, v: float(u["meaning"] @ v["meaning"])) if embedded else (lambda u, v: 0.0)
    whole = [like(q, r), float(q["spelled"] @ r["spelled"]), named / max(1, math.sqrt(a["n"])),
             math.log(len(theirs) / len(ours)),
             float((wq * in_q[:, 4]).sum() / (wq.sum() + 1e-6)),
             float((wr * in_r[:, 4]).sum() / (wr.sum() + 1e-6)),
             float((wq * (1 - in_q[:, 4])).max()), float((wr * (1 - in_r[:, 4])).max()),
             like(a, r), like(a, q), float(differ), float(q["east_asian"].mean()),
             float(q["pieces"].mean()) * embedded, float(r["pieces"].mean()) * embedded]
    return in_q, in_r, np.array(whole, np.float32)


def table(texts, pairs, embedded):
    n = len(pairs)
    out = [np.zeros((n, WORDS, WORD), np.float32), np.zeros((n, WORDS), np.float32),
           np.zeros((n, WORDS, WORD), np.float32), np.zeros((n, WORDS), np.float32),
           np.zeros((n, WHOLE), np.float32)]
    for i, p in enumerate(pairs):
        f = features(*(texts.reading(t) for t in p["texts"]), embedded)
        if f is None:
            continue
        for k in (0, 1):
            out[2 * k][i, :len(f[k])] = f[k]
            out[2 * k + 1][i, :len(f[k])] = 1
        out[4][i] = f[2]
    return tuple(out)


# ---- pairs ----


def start_of(answer):
    return answer.encode()[:ANSWER_BYTES].decode(errors="ignore")


def pairs_of(corrections, rng, more):
    """(question, answer, request) with a label. more: also pairs with other wordings as the
    question, and of two questions that are not it."""
    out, by = [], {}
    for x in corrections:
        by.setdefault(x["lang"], []).append(x)
    for group, x in enumerate(corrections):
        answer = start_of(x["answer"])

        def add(kind, question, request, label, answer=answer):
            out.append({"texts": (question, answer, request), "label": label, "kind": kind,
                        "group": group})
        same, near, about = [x["question"]] + x["wordings"], x["neighbours"], x["same_subject"]
        for t in same[1:]:
            add("wording", same[0], t, 1)
        for t in near:
            add("neighbour", same[0], t, 0)
        for t in about:
            add("subject", same[0], t, 0)
        for q in same[1:] if more else []:
            for t in rng.sample([t for t in same if t != q], min(3, len(same) - 1)):
                add("more", q, t, 1)
            for t in rng.sample(near, min(3, len(near))) + rng.sample(about, min(2, len(about))):
                add("more", q, t, 0)
        for q in near + about if more else []:
            t = rng.choice(near + about)
            if t != q:
                add("more", q, t, 0, q)
        others = [y for y in by[x["lang"]] if y is not x]
        for y in rng.sample(others, min(6, len(others))):
            add("other", same[0], rng.choice([y["question"]] + y["wordings"] + y["same_subject"]),
                0)
    return out


# ---- the network ----


def new_weights(key):
    k = jax.random.split(key, 3)
    pooled = 6 * SEEN + WHOLE
    return {"word": jax.random.normal(k[0], (WORD + 1, SEEN)) / math.sqrt(WORD),
            "word_bias": jnp.zeros(SEEN),
            "hidden": jax.random.normal(k[1], (pooled, HIDDEN)) / math.sqrt(pooled),
            "hidden_bias": jnp.zeros(HIDDEN),
            "out": jax.random.normal(k[2], (HIDDEN,)) * 0.2, "out_whole": jnp.zeros(WHOLE),
            "out_bias": jnp.array(-1.0)}


def pool(w, x, there, is_request):
    x = jnp.concatenate([x, jnp.full(x.shape[:2] + (1,), is_request)], -1)
    seen = jax.nn.relu(x @ w["word"] + w["word_bias"]) * there[..., None]
    weight = there * x[..., 7] ** 2
    return [seen.sum(1) / (there.sum(1)[:, None] + 1e-6), seen.max(1),
            (seen * weight[..., None]).sum(1) / (weight.sum(1)[:, None] + 1e-6)]


def forward(w, q, in_q, r, in_r, whole, key=None, dropout=0.15):
    v = jnp.concatenate(pool(w, q, in_q, 0.0) + pool(w, r, in_r, 1.0) + [whole], -1)
    if key is not None:
        v = v * jax.random.bernoulli(key, 1 - dropout, v.shape) / (1 - dropout)
    hidden = jax.nn.relu(v @ w["hidden"] + w["hidden_bias"])
    return hidden @ w["out"] + whole @ w["out_whole"] + w["out_bias"]


def loss(w, x, label, key):
    out = forward(w, *x, key)
    decay = sum((w[k] ** 2).sum() for k in ("word", "hidden", "out", "out_whole"))
    return jnp.logaddexp(0, -(2 * label - 1) * out).mean() + 1e-5 * decay


@jax.jit
def step(w, m, v, t, x, labels, at, key, rate):
    g = jax.grad(loss)(w, tuple(part[at] for part in x), labels[at], key)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    w = jax.tree.map(lambda p, a, b: p - rate * (a / (1 - 0.9 ** t)) /
                     (jnp.sqrt(b / (1 - 0.99 ** t)) + 1e-8), w, m, v)
    return w, m, v


judge = jax.jit(lambda w, x: forward(w, *x))


def train(x, labels, epochs, batch=256, seed=0):
    key, rng = jax.random.PRNGKey(seed), np.random.RandomState(seed)
    w = new_weights(key)
    m = v = jax.tree.map(jnp.zeros_like, w)
    n, t = len(labels) // batch, 0
    x, labels = tuple(jnp.asarray(part) for part in x), jnp.asarray(labels)
    for _ in range(epochs):
        order = rng.permutation(len(labels))
        for b in range(n):
            at = order[b * batch:(b + 1) * batch]
            key, k = jax.random.split(key)
            t += 1
            rate = 3e-3 * min(1, t / 100) * (1 - t / (epochs * n + 1))
            w, m, v = step(w, m, v, float(t), x, labels, at, k, rate)
    return jax.tree.map(np.array, w)


def scores(w, x, size=512):
    out = []
    for b in range(0, len(x[0]), size):
        part = [p[b:b + size] for p in x]
        n = len(part[0])
        part = tuple(np.concatenate([p, np.zeros((size - n,) + p.shape[1:], np.float32)])
                     for p in part)
        out.append(np.array(judge(w, part))[:n])
    return 1 / (1 + np.exp(-np.concatenate(out)))


# ---- figures ----


def rates(p, kinds, sure):
    return {k: 100 * float((p[kinds == k] >= sure).mean()) for k in
            ("wording", "neighbour", "subject", "other") if (kinds == k).any()}


def threshold(p, kinds, neighbours=0.035, subject=0.02):
    """The lowest at which few neighbours and few questions about the same subject pass."""
    near, about = np.sort(p[kinds == "neighbour"]), np.sort(p[kinds == "subject"])
    return max(near[int(len(near) * (1 - neighbours))], about[int(len(about) * (1 - subject))], 0.5)


def show(name, p, kinds, langs, sure):
    print(f"{name}: sure {sure:.3f}", {k: round(v, 1) for k, v in rates(p, kinds, sure).items()},
          {g: round(rates(p[langs == g], kinds[langs == g], sure)["wording"])
           for g in ("en", "de", "es", "fr", "ja", "zh") if (langs == g).any()}, flush=True)


def arrays(pairs, corrections):
    return (np.array([p["label"] for p in pairs], np.float32),
            np.array([p["kind"] for p in pairs]),
            np.array([corrections[p["group"]]["lang"] for p in pairs]))


def fit(texts, corrections, embedded, epochs):
    pairs = pairs_of(corrections, random.Random(1), True)
    return train(table(texts, pairs, embedded), arrays(pairs, corrections)[0], epochs)


def cross_validate(texts, corrections, embedded, epochs, folds=4):
    classes = sorted({x["class"] for x in corrections})
    random.Random(3).shuffle(classes)
    held, all_pairs = [], []
    for k in range(folds):
        out = set(classes[k::folds])
        rest = [x for x in corrections if x["class"] not in out]
        texts.measure(rest)
        w = fit(texts, rest, embedded, epochs)
        pairs = [dict(p, group=corrections.index(x)) for x in corrections if x["class"] in out
                 for p in pairs_of([x], random.Random(2), False)]
        held.append(scores(w, table(texts, pairs, embedded)))
        all_pairs += pairs
    _, kinds, langs = arrays(all_pairs, corrections)
    p = np.concatenate(held)
    sure = threshold(p, kinds)
    show("held-out classes", p, kinds, langs, sure)
    return sure


# ---- the C file ----


def numbers(values, per=HIDDEN):
    flat = [f"{v:.6g}" for v in np.asarray(values).ravel()]
    flat = [v + "f" if "." in v or "e" in v else v + ".0f" for v in flat]
    return ",\n    ".join(", ".join(flat[i:i + per]) for i in range(0, len(flat), per))


def write_weights(f, name, w, sure):
    f.write(f"const rvi_judge_weights {name} = {{\n")
    for key in ("word", "word_bias", "hidden", "hidden_bias", "out", "out_whole"):
        value = np.asarray(w[key])
        body = numbers(value) if value.ndim == 1 else \
            ",\n".join("{" + numbers(row) + "}" for row in value)
        f.write(f"    .{key} = {{{body}}},\n")
    f.write(f"    .out_bias = {float(w['out_bias']):.6g}f,\n    .sure = {sure:.4g}f,\n}};\n\n")


def write(path, texts, judges):
    with open(path, "w") as f:
        f.write("/* Generated by tools/train_judge.py. */\n"
                '#include "learn/recognise/judge_weights.h"\n\n')
        for name, (w, sure) in judges.items():
            write_weights(f, name, w, sure)
        values = [str(int(round(v * 255))) for v in texts.rarity]
        rows = ",\n    ".join(", ".join(values[i:i + 64]) for i in range(0, RARITIES, 64))
        f.write(f"const uint8_t rvi_judge_rarity[RVI_JUDGE_RARITIES] = {{\n    {rows}}};\n")
        for which in ("middle", "last"):
            for what, v in (("mean", texts.mean[which]), ("scale", texts.scale[which])):
                f.write(f"\nconst float rvi_judge_{which}_{what}[RVI_EMBEDDER_WIDTH] = {{\n"
                        f"    {numbers(v)}}};\n")


def write_cases(path, texts, corrections, judges):
    """Some pairs with what the judge says, for tests/real/test_judge.c."""
    rows = []
    chosen = [corrections[i] for i in range(0, len(corrections), max(1, len(corrections) // 24))]
    for p in pairs_of(chosen, random.Random(5), False)[::7]:
        row = dict(zip(("question", "answer", "request"), p["texts"]))
        for key, (w, _) in judges.items():
            embedded = key == "rvi_judge_embedded"
            x = table(texts, [p], embedded)
            row["embedded" if embedded else "spelled"] = round(float(scores(w, x)[0]), 5)
        rows.append(row)
    with open(path, "w") as f:
        json.dump(rows, f, ensure_ascii=False, indent=1)
        f.write("\n")


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("embedder")
    a.add_argument("files", nargs="+")
    a.add_argument("-o", "--out", help="write the weights there")
    a.add_argument("--cases", help="write pairs with their probabilities there, for the tests")
    a.add_argument("--test", action="append", default=[], help="corrections to report on only")
    a.add_argument("--cache", help="where to keep how texts read")
    a.add_argument("--jobs", type=int, default=os.cpu_count())
    a.add_argument("--epochs", type=int, default=30)
    a.add_argument("--sure", type=float, nargs=2, help="thresholds, instead of cross-validating")
    a = a.parse_args()
    texts = Texts(Embedder(a.embedder), a.cache)
    load = lambda names: [json.loads(line) for n in names for line in open(n) if line.strip()]
    corrections, test = load(a.files), load(a.test)
    texts.read_all([t for x in corrections + test for t in
                    [x["question"], start_of(x["answer"])] + x["wordings"] + x["neighbours"] +
                    x["same_subject"]], a.jobs)
    texts.save()
    print(len(corrections), "corrections", len(texts.raw), "texts", flush=True)
    sure = a.sure or [cross_validate(texts, corrections, e, a.epochs) for e in (True, False)]
    texts.measure(corrections)
    judges = {}
    for name, embedded, s in (("rvi_judge_embedded", True, sure[0]),
                              ("rvi_judge_spelled", False, sure[1])):
        w = fit(texts, corrections, embedded, a.epochs)
        judges[name] = (w, s)
        if test:
            pairs = pairs_of(test, random.Random(2), False)
            _, kinds, langs = arrays(pairs, test)
            show(name + ", test", scores(w, table(texts, pairs, embedded)), kinds, langs, s)
    if a.out:
        write(a.out, texts, judges)
    if a.cases:
        write_cases(a.cases, texts, corrections, judges)


if __name__ == "__main__":
    main()
