#!/usr/bin/env python3
"""Expressions with counted repetitions inside each other: every short text is in the language or
not as by the definition, taken word for word over sets of texts; and what would take exponential
work is either quick or refused. Prints TAP."""
import itertools
import json
import random
import subprocess
import sys

sys.path.insert(0, "tests/cli")
from terminal import MODEL, PROGRAM, finish, verdict  # noqa: E402

LONGEST = 6
TEXTS = ["".join(t) for n in range(LONGEST + 1) for t in itertools.product("ab", repeat=n)]
HARD = ["((a{1,100}){1,100}){1,100}", "((a{1,100}b?){1,100}a?){1,100}", "(a|aa){1,9999}",
        "((a|ab|b){2,60}a?){3,90}", "(((a{0,99}){0,99}){0,99}){0,99}", "(a?){500}a{500}",
        "((a{2,3}){3,50}|(a{3,7}){2,40}){1,50}", "(a*)*b", "(a+a+)+b"]


def check(lines):
    given = "".join(json.dumps(x) + "\n" for x in lines)
    done = subprocess.run([PROGRAM, "grammar", "check", MODEL], input=given, text=True, check=True,
                          stdout=subprocess.PIPE)
    return [json.loads(x) for x in done.stdout.splitlines()]


def both(x, y):
    return {a + b for a in x for b in y if len(a + b) <= LONGEST}


def repeated(x, low, high):
    """More than LONGEST times add nothing that is short: one of them is empty then."""
    power, out = {""}, set()
    for i in range(max(low, LONGEST) + LONGEST + 1):
        if i >= low and (high is None or i <= high):
            out |= power
        power = both(power, x)
    return out


def expression(r, depth):
    """One at random, and which short texts are in it."""
    if depth == 0:
        leaf = r.choice(["a", "b", "[ab]", "ab"])
        return leaf, {"a", "b"} if leaf == "[ab]" else {leaf}
    parts = [expression(r, depth - 1) for _ in range(r.randint(1, 2 + (depth > 2)))]
    either = r.random() < 0.4
    text, texts = ("|" if either else "").join(p[0] for p in parts), set() if either else {""}
    for p in parts:
        texts = texts | p[1] if either else both(texts, p[1])
    low = r.randint(0, 3)
    high = r.choice([low, low + 1, low + 3, None])
    if r.random() < 0.2 or high == 0:
        return f"({text})", texts
    return f"({text}){{{low},{'' if high is None else high}}}", repeated(texts, low, high)


def main():
    r = random.Random(1)
    tried = [expression(r, r.choice([2, 3, 3, 4])) for _ in range(100)]
    wrong, n_refused = [], 0
    for (e, texts), g in zip(tried, check({"id": 0, "regex": e, "texts": TEXTS}
                                          for e, _ in tried)):
        said = {t for t, ok in zip(TEXTS, g["accepted"]) if ok}
        if "too much work" in (g["refused"] or ""):
            n_refused += 1
        elif g["refused"] is not None or said != texts:
            wrong.append((e, g["refused"], sorted(said ^ texts)[:3]))
    verdict("every short text is told as by the definition", not wrong, wrong[:3])
    verdict("few are too much", n_refused <= 2, n_refused)
    long = ["a" * 60, "ab" * 100, "aab" * 60 + "b"]
    for e, g in zip(HARD, check({"id": 0, "regex": e, "texts": long} for e in HARD)):
        verdict(f"{e}: read, or refused as too much",
                g["refused"] is None or "too much work" in g["refused"], g["refused"])
    finish()


main()
