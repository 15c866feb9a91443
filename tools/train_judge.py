#!/usr/bin/env python3
"""Train the judge of requests (src/learn/recognise/judge.h) and write its weights.

    tools/train_judge.py EMBEDDER FILE...            cross-validate by class of correction
    tools/train_judge.py EMBEDDER FILE... -o OUT.c   train on everything, write the C file

EMBEDDER is the folder of all-MiniLM-L6-v2 (`ruvllm pull minilm` has it), FILE a list of corrections
(bench/natural) or of relations (tools/relations.py). Needs numpy, torch, tokenizers, safetensors.
What a text looks like to the judge, and the network itself, are in reading.c and judge.c; here they
are written a second time for training, and tests/real/slow_judge.c compares the two.
"""
import argparse
import functools
import json
import math
import random
import re
import textwrap
import unicodedata

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import relations

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS, SPELLING, RARITIES = 28, 128, 4096
MIDDLE, LAST, TOKENS, UNKNOWN = 4, 6, 126, 100
WORD, WHOLE, SEEN, HIDDEN = 17, 14, 48, 32
ANSWER_BYTES = 600
FOLDS = 4  # parts of the classes of corrections, of which one is held out


# ---- the embedder ----


def open_tokenizer(folder):
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class Embedder:
    """all-MiniLM-L6-v2: states of every token after the middle and the last layer."""

    def __init__(self, folder):
        weights = load_file(f"{folder}/model.safetensors")
        self.w = {k: torch.tensor(v, dtype=torch.float32, device=DEVICE)
                  for k, v in weights.items() if v.dtype != np.int64}
        self.tokenizer = open_tokenizer(folder)

    def norm(self, x, name):
        return F.layer_norm(x, (384,), self.w[name + ".weight"], self.w[name + ".bias"], 1e-12)

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    @torch.no_grad()
    def states(self, lists):
        """Of some lists of ids: middle and last, padded to the longest."""
        n, length = len(lists), max(len(ids) for ids in lists)
        ids = torch.tensor([x + [0] * (length - len(x)) for x in lists], device=DEVICE)
        absent = torch.tensor([[k >= len(x) for k in range(length)] for x in lists], device=DEVICE)
        e = "embeddings."
        x = self.w[e + "word_embeddings.weight"][ids]
        x = x + self.w[e + "position_embeddings.weight"][:length]
        x = self.norm(x + self.w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        for layer in range(LAST):
            p = f"encoder.layer.{layer}."
            q, k, v = (self.linear(x, p + "attention.self." + part).view(n, length, 12, 32)
                       .transpose(1, 2) for part in ("query", "key", "value"))
            a = (q @ k.transpose(2, 3) / math.sqrt(32)).masked_fill(absent[:, None, None],
                                                                    -math.inf)
            y = (a.softmax(-1) @ v).transpose(1, 2).reshape(n, length, 384)
            x = self.norm(x + self.linear(y, p + "attention.output.dense"),
                          p + "attention.output.LayerNorm")
            h = F.gelu(self.linear(x, p + "intermediate.dense"))
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


@functools.lru_cache(maxsize=None)
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
    """How texts read: tables with a row for every text and WORDS words in a row."""

    def __init__(self, embedder):
        self.embedder, self.at, self.words, self.ids, self.looks = embedder, {}, [], {}, {}

    def read_all(self, texts):
        """Alike lengths go together."""
        split = [(t,) + self.split(t) for t in sorted(set(texts))]
        split.sort(key=lambda x: len(x[2]))
        self.at = {t: i for i, (t, _, _) in enumerate(split)}
        self.words = [[look[0] for look, _, _ in found] for _, found, _ in split]
        n = len(split)
        new = lambda *size, dtype=torch.float16: torch.zeros(n, *size, dtype=dtype, device=DEVICE)
        self.states = {"middle": new(WORDS, 384), "last": new(WORDS, 384)}
        self.meaning = new(384, dtype=torch.float32)
        for i in range(0, n, 256):
            self.embed(slice(i, i + 256), split[i:i + 256])
        table = lambda key, dtype: torch.tensor(np.array(
            [[key(*word) for word in found] + [key(NO_LOOK, 0, 0)] * (WORDS - len(found))
             for _, found, _ in split], dtype), device=DEVICE)
        self.id = table(lambda look, a, b: self.ids.setdefault(look[0], len(self.ids)), np.int64)
        self.there = torch.tensor([[k < len(w) for k in range(WORDS)] for w in self.words],
                                  device=DEVICE)
        self.spelling = table(lambda look, a, b: look[1], np.float16)
        self.digits, self.east_asian, self.length = (
            table(lambda look, a, b: look[k], np.float32) for k in (2, 3, 4))
        self.pieces = table(lambda look, a, b: min(b - a, 6) / 6, np.float32)
        self.hashes = table(lambda look, a, b: look[5], np.int64)

    def split(self, text):
        """Its words as (look, first token, token behind), and all tokens."""
        parts, ids, found = segments(text), [101], []
        for k, (word, is_) in enumerate(parts):
            before = parts[k - 1][0] if k and parts[k - 1][1] == "han" else ""
            after = parts[k + 1][0] if k + 1 < len(parts) and parts[k + 1][1] == "han" else ""
            key = (word, before, after)
            if key not in self.looks:
                own = self.embedder.tokenizer.encode(word, add_special_tokens=False).ids
                self.looks[key] = own, look_of(word, is_, before, after)
            own, look = self.looks[key]
            if len(ids) - 1 + len(own) > TOKENS:
                break
            if own and is_ != "punctuation":
                found.append((look, len(ids), len(ids) + len(own)))
            ids = ids + own
        return found[-WORDS:], ids + [102]

    def embed(self, rows, part):
        """A word's states are the mean over its tokens, a text's meaning that over all."""
        first, behind = (torch.tensor([[w[k] for w in found] + [0] * (WORDS - len(found))
                                       for _, found, _ in part], device=DEVICE) for k in (1, 2))
        n = torch.tensor([len(ids) for _, _, ids in part], device=DEVICE)
        for which, x in zip(("middle", "last"), self.embedder.states([ids for _, _, ids in part])):
            sums = F.pad(x.double().cumsum(1), (0, 0, 1, 0))
            pick = lambda at: torch.gather(sums, 1, at[..., None].expand(-1, -1, 384))
            mean = (pick(behind) - pick(first)) / (behind - first).clamp(min=1)[..., None]
            self.states[which][rows] = mean.half()
            self.meaning[rows] = F.normalize(pick(n[:, None])[:, 0], dim=-1).float()

    def measure(self, corrections):
        """How rare words are in questions, and what the embedder's states are like."""
        counts, n, rows = np.zeros(RARITIES), 0, []
        for x in corrections:
            for t in [x["question"]] + x["wordings"][:3] + x["neighbours"][:2] + \
                    x["same_subject"][:3]:
                n += 1
                rows.append(self.at[t])
                for k in {k for w in self.words[rows[-1]] for k in hashes(w)}:
                    counts[k] += 1
        rarity = np.log((n + 1) / (counts + 0.5)) / math.log((n + 1) / 0.5)
        self.rarity = np.round(np.clip(rarity, 0, 1) * 255) / 255
        by_hash = torch.tensor(self.rarity, dtype=torch.float32, device=DEVICE)
        self.rare = by_hash[self.hashes].amax(-1) * self.there
        rows = torch.tensor(rows, device=DEVICE)
        self.mean, self.scale = {}, {}
        for which, v in self.states.items():
            v = v[rows, :4][self.there[rows, :4]].float()
            self.mean[which] = v.mean(0)
            self.scale[which] = 1 / v.std(0, unbiased=False).clamp(min=0.02)


def look_of(word, is_, before, after):
    folded = fold(word) or word
    return (folded, spelling(folded, before, after),
            float(any(unicodedata.category(c)[0] == "N" for c in word)),
            float(is_ in ("han", "hiragana", "katakana")), min(len(folded), 12) / 12,
            hashes(folded))


NO_LOOK = (None, np.zeros(SPELLING, np.float32), 0.0, 0.0, 0.0, (0, 0))


# ---- features of pairs (judge.c) ----


class Side:
    """The words of some texts, as rows."""

    def __init__(self, texts, rows, embedded):
        for name in ("id", "there", "digits", "east_asian", "length", "rare", "meaning"):
            setattr(self, name, getattr(texts, name)[rows])
        self.spelling = texts.spelling[rows].float()
        self.pieces = texts.pieces[rows] * embedded
        self.n = self.there.sum(1)
        spelled = (self.spelling * self.rare[..., None] ** 2).sum(1)
        self.spelled = F.normalize(spelled, dim=-1, eps=1e-9)
        self.states = [F.normalize((v[rows].float() - texts.mean[which]) * texts.scale[which],
                                   dim=-1, eps=1e-9)
                       for which, v in texts.states.items()] if embedded else []

    def has(self, other):
        """Which of the other's words are among these."""
        same = (other.id[:, :, None] == self.id[:, None, :]) & self.there[:, None, :]
        return same.any(2)

    def distinct(self):
        same = self.id[:, :, None] == self.id[:, None, :]
        again = same.tril(-1).any(2)
        return (self.there & ~again).sum(1)

    def mean(self, v):
        return v.sum(1) / self.n.clamp(min=1)

    def weighed(self, v):
        w = self.rare ** 2
        return (w * v).sum(1) / (w.sum(1) + 1e-6)


def nearest_of(match):
    """The first of the best; without the last words a tie would fall anywhere."""
    return (match - 1e-6 * torch.arange(WORDS, device=DEVICE)).argmax(2)


def of_words(alike, match, x, y, answer):
    """Features of the words of x beside those of y; alike and match are [pair, word of x, of y]."""
    rows = torch.arange(WORDS, device=DEVICE)[None]
    at, back = nearest_of(match), nearest_of(match.transpose(1, 2))
    pick = lambda v, at=at: torch.gather(v, 2, at[..., None])[..., 0]
    their = lambda v: torch.gather(v, 1, at)
    others = match.scatter(2, at[..., None], -1.0).amax(2).clamp(min=0)
    middle, last, spelled = (v.masked_fill(~y.there[:, None, :], -9).amax(2) for v in alike)
    place = lambda k, n: k / (n[:, None] - 1).clamp(min=1)
    told = answer.has(x) & ~y.has(x)
    out = torch.stack([
        middle, last, spelled, pick(alike[1]), pick(match), others, their(back) == rows, x.rare,
        x.digits, x.east_asian, x.length, their(y.rare), x.digits * (spelled < 0.99),
        (place(rows, x.n) - place(at, y.n)).abs(), told,
        x.rare / x.rare.amax(1, keepdim=True).clamp(min=1e-3), x.pieces], 2)
    return out * (x.there & (y.n > 0)[:, None])[..., None]


def features(texts, q, a, r, embedded):
    """Of pairs (question, answer, request), given as rows of the texts."""
    q, a, r = (Side(texts, rows, embedded) for rows in (q, a, r))
    spelled = q.spelling @ r.spelling.transpose(1, 2)
    alike = [u @ v.transpose(1, 2) for u, v in zip(q.states, r.states)] or \
        [torch.zeros_like(spelled)] * 2
    match = torch.maximum(0.5 * alike[0] + 0.5 * alike[1],
                          torch.where(spelled > 0.5, spelled, torch.zeros_like(spelled)))
    match = match.masked_fill(~(q.there[:, :, None] & r.there[:, None, :]), -1)
    alike = alike + [spelled]
    in_q = of_words(alike, match, q, r, a)
    in_r = of_words([v.transpose(1, 2) for v in alike], match.transpose(1, 2), r, q, a)
    named = (a.rare * (r.has(a) & ~q.has(a) & a.there & (a.rare > 0.4))).sum(1)
    differ = ((q.digits > 0) & ~r.has(q)).any(1) | ((r.digits > 0) & ~q.has(r)).any(1)
    like = lambda u, v: (u.meaning * v.meaning).sum(1) * embedded
    missed = lambda x, of: (x.rare ** 2 * (1 - of[..., 4]) * x.there).amax(1)
    whole = torch.stack([
        like(q, r), (q.spelled * r.spelled).sum(1), named / a.n.clamp(min=1).sqrt(),
        (r.distinct().clamp(min=1) / q.distinct().clamp(min=1)).log(), q.weighed(in_q[..., 4]),
        r.weighed(in_r[..., 4]), missed(q, in_q), missed(r, in_r), like(a, r), like(a, q), differ,
        q.mean(q.east_asian), q.mean(q.pieces), r.mean(r.pieces)], 1)
    both = ((q.n > 0) & (r.n > 0))[:, None]
    return in_q, q.there & both, in_r, r.there & both, whole * both


@torch.no_grad()
def table(texts, pairs, embedded):
    """The features of all pairs, in halves of floats."""
    rows = torch.tensor([[texts.at[t] for t in p["texts"]] for p in pairs], device=DEVICE)
    parts = [[f.half() for f in features(texts, *part.T, embedded)] for part in rows.split(2048)]
    return [torch.cat(f) for f in zip(*parts)]


# ---- corrections and pairs ----


def load(names):
    """Corrections of all files; those made of relations and groups count less: they are many and
    alike."""
    lines = [json.loads(line) for n in names for line in open(n) if line.strip()]
    made = relations.corrections([x for x in lines if "asks" in x], 8)
    made += relations.of_groups([x for x in lines if "kind" in x and "asks" not in x], 40)
    return [x for x in lines if "class" in x] + [dict(x, weight=0.4) for x in made]


def requests(x):
    return x["wordings"] + x["neighbours"] + x["same_subject"]


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


def new_weights(seed):
    g = torch.Generator().manual_seed(seed)
    normal = lambda *size: torch.randn(*size, generator=g)
    pooled = 6 * SEEN + WHOLE
    w = {"word": normal(WORD + 1, SEEN) / math.sqrt(WORD), "word_bias": torch.zeros(SEEN),
         "hidden": normal(pooled, HIDDEN) / math.sqrt(pooled), "hidden_bias": torch.zeros(HIDDEN),
         "out": normal(HIDDEN) * 0.2, "out_whole": torch.zeros(WHOLE),
         "out_bias": torch.tensor(-1.0)}
    return {k: v.to(DEVICE).requires_grad_() for k, v in w.items()}


def pool(w, x, there, is_request):
    seen = torch.relu(x @ w["word"][:WORD] + w["word"][WORD] * is_request + w["word_bias"])
    seen = seen * there[..., None]
    weight = there * x[..., 7] ** 2
    return [seen.sum(1) / (there.sum(1)[:, None] + 1e-6), seen.max(1).values,
            (seen * weight[..., None]).sum(1) / (weight.sum(1)[:, None] + 1e-6)]


def forward(w, q, in_q, r, in_r, whole, dropout=0.0):
    v = torch.cat(pool(w, q, in_q, 0.0) + pool(w, r, in_r, 1.0) + [whole], -1)
    hidden = torch.relu(F.dropout(v, dropout) @ w["hidden"] + w["hidden_bias"])
    return hidden @ w["out"] + whole @ w["out_whole"] + w["out_bias"]


def train(x, labels, weights, epochs, batch=2048, seed=0, start=None, rate=4e-3):
    torch.manual_seed(seed)
    w = new_weights(seed)
    if start:
        w = {k: torch.tensor(start[k], device=DEVICE).requires_grad_() for k in w}
    labels, weights = (torch.tensor(v, device=DEVICE) for v in (labels, weights))
    optimizer = torch.optim.Adam(w.values(), betas=(0.9, 0.99), fused=DEVICE == "cuda")
    n, t = len(labels) // batch, 0
    for _ in range(epochs):
        order = torch.randperm(len(labels), device=DEVICE)
        for at in order[:n * batch].view(n, batch):
            t += 1
            optimizer.param_groups[0]["lr"] = rate * min(1, t / 100) * (1 - t / (epochs * n + 1))
            odds = forward(w, *(part[at].float() for part in x), dropout=0.15)
            decay = sum((w[k] ** 2).sum() for k in ("word", "hidden", "out", "out_whole"))
            loss = F.binary_cross_entropy_with_logits(odds, labels[at], weights[at]) + 1e-5 * decay
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return {k: v.detach().cpu().numpy() for k, v in w.items()}


@torch.no_grad()
def scores(w, x):
    w = {k: torch.tensor(v, device=DEVICE) for k, v in w.items()}
    out = [forward(w, *(p.float() for p in part)) for part in zip(*(p.split(4096) for p in x))]
    return torch.sigmoid(torch.cat(out)).cpu().numpy()


# ---- figures ----


JUDGES = (("rvi_judge_embedded", True), ("rvi_judge_spelled", False))


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


def fit(texts, corrections, embedded, epochs, start=None, rate=4e-3):
    pairs = pairs_of(corrections, random.Random(1), True)
    weights = [corrections[p["group"]].get("weight", 1.0) for p in pairs]
    return train(table(texts, pairs, embedded), arrays(pairs, corrections)[0],
                 np.array(weights, np.float32), epochs, start=start, rate=rate)


def classes_of(corrections, k):
    """The classes of the part that is held out."""
    classes = sorted({x["class"] for x in corrections})
    random.Random(3).shuffle(classes)
    return set(classes[k::FOLDS])


def cross_validate(texts, corrections, epochs, folds, out):
    """The thresholds by classes that were held out, with an embedder and without."""
    odds, kinds, langs = {True: [], False: []}, [], []
    for k in range(folds):
        held = classes_of(corrections, k)
        rest = [x for x in corrections if x["class"] not in held]
        texts.measure(rest)
        pairs = [dict(p, group=i) for i, x in enumerate(corrections) if x["class"] in held
                 for p in pairs_of([x], random.Random(2), False)]
        judges = {}
        for name, embedded in JUDGES:
            w = fit(texts, rest, embedded, epochs)
            odds[embedded].append(scores(w, table(texts, pairs, embedded)))
            judges[name] = (w, 0.5)
        if out:
            write(out.format(k), texts, judges)
        _, new_kinds, new_langs = arrays(pairs, corrections)
        kinds.append(new_kinds)
        langs.append(new_langs)
    kinds, langs, sure = np.concatenate(kinds), np.concatenate(langs), []
    for name, embedded in JUDGES:
        p = np.concatenate(odds[embedded])
        sure.append(threshold(p, kinds))
        show(f"{name}, held-out classes", p, kinds, langs, sure[-1])
    return sure


# ---- the C file ----


def numbers(values):
    """Without those that decayed to next to nothing: processors are slow at denormal numbers."""
    flat = [f"{v if abs(v) > 1e-20 else 0:.6g}" for v in np.asarray(values).ravel()]
    return ", ".join(v + "f" if "." in v or "e" in v else v + ".0f" for v in flat)


def long_lines(text):
    """Long ones: nobody reads them."""
    return textwrap.fill(text, 2000, initial_indent="    ", subsequent_indent="    ",
                         break_long_words=False, break_on_hyphens=False)


def write_weights(f, name, w, sure):
    f.write(f"const rvi_judge_weights {name} = {{\n")
    for key in ("word", "word_bias", "hidden", "hidden_bias", "out", "out_whole"):
        value = np.asarray(w[key])
        body = numbers(value) if value.ndim == 1 else \
            ", ".join("{" + numbers(row) + "}" for row in value)
        f.write(long_lines(f".{key} = {{{body}}},") + "\n")
    f.write(f"    .out_bias = {float(w['out_bias']):.6g}f,\n    .sure = {sure:.4g}f,\n}};\n\n")


def write(path, texts, judges):
    with open(path, "w") as f:
        f.write("/* Generated by tools/train_judge.py. */\n"
                '#include "learn/recognise/judge_weights.h"\n\n')
        for name, (w, sure) in judges.items():
            write_weights(f, name, w, sure)
        values = ", ".join(str(int(round(v * 255))) for v in texts.rarity)
        f.write("const uint8_t rvi_judge_rarity[RVI_JUDGE_RARITIES] = {\n" +
                long_lines(values + "};") + "\n")
        for which in ("middle", "last"):
            for what, v in (("mean", texts.mean[which]), ("scale", texts.scale[which])):
                v = v.cpu()
                f.write(f"\nconst float rvi_judge_{which}_{what}[RVI_EMBEDDER_WIDTH] = {{\n" +
                        long_lines(numbers(v) + "};") + "\n")


def read_network(path, name, texts):
    """Weights that were written and their limit; the texts get the tables that belong to them."""
    with open(path, encoding="utf-8") as f:
        c = f.read()
    numbers = lambda text: np.array([float(v) for v in
                                     re.findall(r"[-+]?[\d.]+(?:e[-+]?\d+)?(?=f?\b)", text)],
                                    np.float32)
    body = lambda declared: c.split(declared, 1)[1].split("};", 1)[0].split("=", 1)[1]
    parts = re.split(r"\n    \.(\w+) = ", body("const rvi_judge_weights " + name))
    w = {key: numbers(value) for key, value in zip(parts[1::2], parts[2::2])}
    sure, w["out_bias"] = float(w.pop("sure")[0]), w["out_bias"][0]
    w["word"] = w["word"].reshape(WORD + 1, SEEN)
    w["hidden"] = w["hidden"].reshape(6 * SEEN + WHOLE, HIDDEN)
    rarity = torch.tensor(numbers(body("rvi_judge_rarity[RVI_JUDGE_RARITIES]")) / 255,
                          device=DEVICE)
    texts.rarity = rarity.cpu().numpy()
    texts.rare = rarity[texts.hashes].amax(-1) * texts.there
    table = lambda which, what: torch.tensor(
        numbers(body(f"rvi_judge_{which}_{what}[RVI_EMBEDDER_WIDTH]")), device=DEVICE)
    texts.mean = {which: table(which, "mean") for which in texts.states}
    texts.scale = {which: table(which, "scale") for which in texts.states}
    return w, sure


def write_cases(path, texts, corrections, judges):
    """Some pairs with what the judge says, for tests/real/slow_judge.c."""
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
    a.add_argument("--epochs", type=int, default=30)
    a.add_argument("--folds", type=int, default=FOLDS, help="parts of the classes to hold out")
    a.add_argument("--fold-out", help="write the weights of these there, {} is the part")
    a.add_argument("--sure", type=float, nargs=2, help="thresholds, instead of cross-validating")
    a.add_argument("--start", help="a C file that this wrote: its network with an embedder is "
                   "trained further, the rest of it stays; needs --sure")
    a.add_argument("--rate", type=float, default=4e-3)
    a = a.parse_args()
    texts = Texts(Embedder(a.embedder))
    corrections, test = load(a.files), load(a.test)
    texts.read_all([t for x in corrections + test for t in
                    [x["question"], start_of(x["answer"])] + requests(x)])
    print(len(corrections), "corrections", len(texts.at), "texts", flush=True)
    sure = a.sure or cross_validate(texts, corrections, a.epochs, a.folds, a.fold_out)
    if not a.out:
        return
    if not a.start:
        texts.measure(corrections)
    judges = {}
    for (name, embedded), s in zip(JUDGES, sure):
        w = read_network(a.start, name, texts)[0] if a.start else None
        if embedded or not a.start:
            w = fit(texts, corrections, embedded, a.epochs, w, a.rate)
        judges[name] = (w, s)
        if test:
            pairs = pairs_of(test, random.Random(2), False)
            _, kinds, langs = arrays(pairs, test)
            show(name + ", test", scores(w, table(texts, pairs, embedded)), kinds, langs, s)
    write(a.out, texts, judges)
    if a.cases:
        write_cases(a.cases, texts, corrections, judges)


if __name__ == "__main__":
    main()
