#!/usr/bin/env python3
"""Trains what tells requests that need the turn before them ("And its capital?") from others: a
logistic regression on the words of a text and pairs of neighbours. Writes
src/learn/recognise/follow_tables.c.

Those that need it are the texts of bench/natural/follow_ups.jsonl and needs.jsonl, and the
questions of relations_*.jsonl with a pronoun where the name goes; the others are those of
needs.jsonl that stand alone, all requests of train_*.jsonl, and the same relations with names.
dev.jsonl, test.jsonl, needs_held.jsonl and tests/real/data/follow.json tell how good it is. Needs
numpy and scipy.

    tools/train_follow.py -o OUT.c
"""
import argparse
import glob
import json
import random
import re
import textwrap
import unicodedata

import numpy as np
import scipy.sparse

import relations

WORDS, FIRST = 16384, 256  # buckets of words and pairs of them, and of first words
EXTRA = 3  # how many words, is there a name or a number, 1
HELD = "bench/natural/dev.jsonl", "bench/natural/test.jsonl"
PRONOUNS = {
    "en": ({"{}'s": ("its", "his", "her", "their")},
           ("it", "that", "he", "she", "they", "him", "her", "them", "there")),
    "de": ({}, ("er", "sie", "es", "ihm", "ihr", "ihn", "das", "dort", "ihnen")),
    "es": ({"de {}": ("de él", "de ella", "de eso", "de allí")},
           ("él", "ella", "eso", "ellos", "allí")),
    "fr": ({"de {}": ("de lui", "d'elle", "de cela")}, ("il", "elle", "lui", "cela", "eux", "là-bas")),
    "ja": ({"{}の": ("その", "彼の", "彼女の", "そこの")}, ("それ", "彼", "彼女", "そこ", "あれ")),
    "zh": ({}, ("它", "他", "她", "那里", "他们", "那个")),
}


def fnv(text, seed):
    h = 2166136261
    for b in (seed + text).encode():
        h = (h ^ b) * 16777619 & 0xffffffff
    return h


def fold(word):
    plain = unicodedata.normalize("NFKD", word.lower())
    return "".join(c for c in plain if not unicodedata.combining(c)) or word


def words_of(text):
    """As reading.c has them: runs of letters, hiragana or katakana, single Han characters."""
    return [fold(w) for w in
            re.findall(r"[\u3040-\u309f]+|[\u30a0-\u30ff]+|[\u4e00-\u9fff]"
                       r"|[^\W_\u3040-\u30ff\u4e00-\u9fff]+", text)]


def has_name(text):
    """A digit, or a capital behind the first letter."""
    start = re.search("[A-Za-z]", text)
    return bool(re.search("[0-9]", text) or (start and re.search("[A-Z]", text[start.end():])))


def features(texts):
    at, values = ([], []), []
    for i, text in enumerate(texts):
        words = words_of(text)[-28:]
        keys = [fnv(w, "a") for w in words]
        row = {k % WORDS: 1 for k in keys}
        row |= {(a * 2654435761 + b & 0xffffffff) % WORDS: 1 for a, b in zip(keys, keys[1:])}
        if words:
            row[WORDS + fnv(words[0], "b") % FIRST] = 1
        row |= zip(range(WORDS + FIRST, WORDS + FIRST + EXTRA),
                   (min(len(words), 12) / 12, has_name(text), 1))
        at[0].extend([i] * len(row))
        at[1].extend(row)
        values.extend(row.values())
    return scipy.sparse.csr_matrix((np.array(values, dtype=np.float32), at),
                                   shape=(len(texts), WORDS + FIRST + EXTRA))


def requests(path):
    with open(path, encoding="utf-8") as f:
        for line in map(json.loads, f):
            yield line["question"]
            for key in ("wordings", "neighbours", "same_subject"):
                yield from line.get(key, [])


def with_pronouns(rng):
    for path in sorted(glob.glob("bench/natural/relations_*.jsonl")):
        with open(path, encoding="utf-8") as f:
            for r in map(json.loads, f):
                if r["lang"] not in PRONOUNS:
                    continue
                special, plain = PRONOUNS[r["lang"]]
                for ask in r["asks"]:
                    given = next((k for k in special if k in ask), "{}")
                    named = rng.choice(r["names"]) if r.get("names") else relations.name(
                        r["kind"], r["lang"], rng)
                    yield (ask.replace(given, rng.choice(special.get(given, plain))),
                           ask.replace("{}", named))


def both(path):
    """Texts that need the turn before them, and those that do not."""
    with open(path, encoding="utf-8") as f:
        lines = list(map(json.loads, f))
    return [t for x in lines for t in x["needs"]], [t for x in lines for t in x["alone"]]


def plain(text):
    return text.lower().rstrip("?？。. ")


def train(x, y, weight, decay, steps=300, rate=0.05):
    w = np.zeros(x.shape[1], dtype=np.float32)
    mean, square = np.zeros_like(w), np.zeros_like(w)
    free = np.arange(len(w)) >= WORDS + FIRST
    columns = x.T.tocsr()
    for step in range(1, steps + 1):
        p = 1 / (1 + np.exp(-x @ w))
        g = (columns @ (weight * (p - y)) + decay * w * ~free) / len(y)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        w -= rate * mean / (1 - 0.9 ** step) / (np.sqrt(square / (1 - 0.999 ** step)) + 1e-8)
    return w


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("-o", dest="out", required=True)
    a.add_argument("--sure", type=float, default=0.6)
    args = a.parse_args()
    rng = random.Random(3)
    with open("bench/natural/follow_ups.jsonl", encoding="utf-8") as f:
        written = [t for line in f for t in json.loads(line)["texts"]]
    written += both("bench/natural/needs.jsonl")[0]
    alone = both("bench/natural/needs.jsonl")[1]
    made = list(with_pronouns(rng))
    yes = [(t, 24) for t in written] + [(plain(t), 12) for t in written]
    yes += [(t, 1) for t, _ in made]
    no = [t for p in sorted(glob.glob("bench/natural/train_*.jsonl")) for t in requests(p)]
    no = rng.sample(no, 20000) + [t for _, t in made] + [plain(t) for _, t in made]
    weights = [w for _, w in yes] + [2] * len(no) + [24] * len(alone) + [12] * len(alone)
    no += alone + [plain(t) for t in alone]
    x = features([t for t, _ in yes] + no)
    y = np.array([1] * len(yes) + [0] * len(no), dtype=np.float32)
    w = train(x, y, np.array(weights, dtype=np.float32), 8)
    scale = 127 / np.abs(w[:WORDS + FIRST]).max()
    table = np.round(w[:WORDS + FIRST] * scale).astype(int)
    w[:WORDS + FIRST] = table / scale

    held = [t for p in HELD for t in requests(p)]
    with open("tests/real/data/follow.json", encoding="utf-8") as f:
        follow = [pair[1] for case in json.load(f) for pair in case["follow"]]
    chance = lambda texts: 1 / (1 + np.exp(-(features(texts) @ w)))
    needs, others = both("bench/natural/needs_held.jsonl")
    for name, texts in (("held", held), ("follow", follow), ("needs", needs), ("alone", others),
                        ("written", written)):
        p = chance(texts)
        print(f"{name}: " + ", ".join(f"{int((p > t).sum())} above {t}" for t in (.5, .7, .8, .9)),
              f"of {len(texts)}")
        order = np.argsort(-p if name in ("held", "alone") else p)
        print("  " + "\n  ".join(f"{p[i]:.2f} {texts[i]}" for i in order[:16]))
    length, name, bias = w[-3:]
    with open(args.out, "w", encoding="utf-8") as f:
        f.write("/* Made by tools/train_follow.py. */\n#include \"learn/recognise/follow.h\"\n\n"
                "const rvi_follow_weights rvi_follow = {\n"
                f"    .scale = {1 / scale:.8g}f,\n    .length = {length:.6g}f,\n"
                f"    .name = {name:.6g}f,\n    .bias = {bias:.6g}f,\n    .sure = {args.sure}f,\n" +
                textwrap.fill(".word = {" + ", ".join(map(str, table)) + "}};", 2000,
                              initial_indent="    ", subsequent_indent="    ",
                              break_on_hyphens=False) + "\n")


if __name__ == "__main__":
    main()
