#!/usr/bin/env python3
"""What the features of the judge of requests are worth: train it without each group of them, or
look what the shipped one recognises when it does not know one of them.

    tools/ablate_judge.py EMBEDDER FILE... --test FILE --adapter compare_tables.c -o OUT.json
    tools/ablate_judge.py EMBEDDER --test FILE... --adapter compare_tables.c \\
            --network judge_tables.c -o OUT.json
    tools/ablate_judge.py --draw OUT.json -o OUT.svg

Every network is trained alike on every fifth correction of the files; the adapter that compares is
the one that is shipped. A row says how many other wordings of the test file are recognised where
the threshold lets pass 3.5 percent of its neighbours and 2 percent of the questions about the same
subject at most. With --network nothing is trained: the shipped network is told the mean of a
feature instead of its value. Needs what tools/train_judge.py needs; drawing needs nothing.
"""
import argparse
import json
import re

# The features of a word and of the whole that belong together (of_words, features in train_judge).
GROUPS = {
    "spelling": ([2, 12], [1, 10]),
    "rarity": ([7, 11, 15], [4, 5, 6, 7]),
    "contrast": ([5, 6, 14], [2, 8, 9]),
}
NAMES = {"contrast": "contrast (second best match, words of the answer)"}

# What a word is to the judge, and what the two texts are as a whole, in the network's order.
OF_WORDS = ["nearest meaning, middle layer", "nearest meaning, last layer", "nearest spelling",
            "meaning of the word matched", "how well it is matched", "second best match",
            "matched from both sides", "rarity", "digits", "East Asian script", "length",
            "rarity of the word matched", "digits that no word has", "place in the sentence",
            "stands in the answer alone", "rarity beside the rarest", "pieces of a word"]
OF_TEXTS = ["meaning of the texts", "spelling of the texts", "request tells the answer",
            "length of the request", "question covered", "request covered",
            "rarest word missed, question", "rarest word missed, request",
            "meaning of request and answer", "meaning of question and answer",
            "numbers that differ", "share of East Asian script",
            "pieces, question", "pieces, request"]
TOGETHER = {
    "all meanings": ([0, 1, 3], [0, 8, 9]),
    "all spelling": ([2, 12], [1, 10]),
    "all rarity": ([7, 11, 15], [6, 7]),
    "all that matching gives": ([4, 5, 6, 13], [4, 5, 6, 7]),
    "all of the answer": ([14], [2, 8, 9]),
    "all of numbers": ([8, 12], [10]),
    "all of scripts, lengths and pieces": ([9, 10, 16], [3, 11, 12, 13]),
}
MOST_ODDS = 3.0  # as in recogniser.c


def compared(a, texts, test, pairs):
    """What the shipped adapter says of the pairs, as logarithms of odds."""
    import numpy as np
    import torch

    import train_compare
    import train_judge as judge

    weights = {k: torch.tensor(v) for k, v in
               train_compare.load_file(f"{a.embedder}/model.safetensors").items()
               if v.dtype == np.float32}
    with open(a.adapter, encoding="utf-8") as f:
        n = len(re.findall(r'\{[-+.\de]+f,\s*"', f.read()))
    rank = n // (train_compare.LAYERS * len(train_compare.LINEARS))
    m = train_compare.Comparer(weights, rank, 0.0)
    train_compare.read(a.adapter, m)
    ids = train_compare.Texts(texts.embedder)
    for x in test:
        for t in [x["question"]] + judge.requests(x):
            ids.add(t)
    ids.ready()
    at = {(r[0], r[1]): r[4] for r in train_compare.odds_of(m.to(judge.DEVICE), ids, test)}
    return np.array([at[p["texts"][0], p["texts"][2]] for p in pairs])


def passing(odds, kinds):
    """Percent of other wordings above the limit that few of the others pass."""
    import numpy as np

    limit = max(np.quantile(odds[kinds == k], 1 - f) for k, f in
                (("neighbour", 0.035), ("subject", 0.02)))
    return round(100 * float((odds[kinds == "wording"] > limit).mean()), 1)


def measure_shipped(a):
    import random

    import numpy as np

    import train_judge as judge

    test = judge.load(a.test)
    texts = judge.Texts(judge.Embedder(a.embedder))
    texts.read_all([t for x in test for t in
                    [x["question"], judge.start_of(x["answer"])] + judge.requests(x)])
    w, sure = judge.read_network(a.network, "rvi_judge_embedded", texts)
    pairs = [p for p in judge.pairs_of(test, random.Random(2), False) if p["kind"] != "other"]
    _, kinds, _ = judge.arrays(pairs, test)
    parts = [p.float() for p in judge.table(texts, pairs, True)]
    read_together = compared(a, texts, test, pairs)
    limit = np.log(sure / (1 - sure))

    def at_its_mean(words, whole):
        q, in_q, r, in_r, all_ = (p.clone() for p in parts)
        for c in words:
            mean = (q[..., c][in_q > 0].sum() + r[..., c][in_r > 0].sum()) / (in_q.sum()
                                                                             + in_r.sum())
            q[..., c], r[..., c] = mean * in_q, mean * in_r
        for c in whole:
            all_[..., c] = all_[..., c].mean()
        return q, in_q, r, in_r, all_

    def aligned(w, parts):
        p = np.clip(judge.scores(w, parts), 1e-6, 1 - 1e-6)
        return np.log(p / (1 - p))

    def both(odds):
        """As the recogniser goes about it: what is hopeless is not compared."""
        mean = (odds + read_together) / 2
        return np.where((odds + MOST_ODDS) / 2 < limit, odds, mean)

    def row(name, odds, limit=limit):
        rates = [round(100 * float((odds[kinds == k] >= limit).mean()), 1) for k in
                 ("wording", "neighbour", "subject")]
        out.append([name, passing(odds, kinds)] + rates)
        print(*out[-1], flush=True)

    out = []
    everything = aligned(w, parts)
    row("the whole judge", both(everything))
    row("without what reads both texts together", everything)
    row("without what aligns words", read_together)
    for name, (words, whole) in TOGETHER.items():
        row("without " + name, both(aligned(w, at_its_mean(words, whole))))
    for c, name in enumerate(OF_WORDS):
        row("word: " + name, both(aligned(w, at_its_mean([c], []))))
    for c, name in enumerate(OF_TEXTS):
        row("texts: " + name, both(aligned(w, at_its_mean([], [c]))))
    w, sure = judge.read_network(a.network, "rvi_judge_spelled", texts)
    row("without the encoder", aligned(w, judge.table(texts, pairs, False)),
        np.log(sure / (1 - sure)))
    with open(a.out, "w", encoding="utf-8") as f:
        json.dump({"shipped": len(test), "asked": {k: int((kinds == k).sum()) for k in
                                                   ("wording", "neighbour", "subject")},
                   "rows": out}, f, indent=1)
        f.write("\n")


def measure(a):
    import random

    import numpy as np

    import train_judge as judge

    corrections, test = judge.load(a.files)[::5], judge.load(a.test)
    texts = judge.Texts(judge.Embedder(a.embedder))
    texts.read_all([t for x in corrections + test for t in
                    [x["question"], judge.start_of(x["answer"])] + judge.requests(x)])
    texts.measure(corrections)
    print(len(corrections), "corrections", len(texts.at), "texts", flush=True)
    pairs = judge.pairs_of(corrections, random.Random(1), True)
    tests = [p for p in judge.pairs_of(test, random.Random(2), False) if p["kind"] != "other"]
    seen, unseen = (judge.table(texts, p, True) for p in (pairs, tests))
    labels = judge.arrays(pairs, corrections)[0]
    _, kinds, _ = judge.arrays(tests, test)
    print(len(pairs), "pairs", flush=True)

    def without(parts, group):
        words, whole = GROUPS.get(group, ([], []))
        q, in_q, r, in_r, all_ = (p.clone() for p in parts)
        q[..., words], r[..., words], all_[..., whole] = 0, 0, 0
        return q, in_q, r, in_r, all_

    def aligned(seen, unseen):
        w = judge.train(seen, labels, np.ones(len(labels), np.float32), a.epochs)
        p = np.clip(judge.scores(w, unseen), 1e-6, 1 - 1e-6)
        return np.log(p / (1 - p))

    share = lambda odds: passing(odds, kinds)
    read_together = compared(a, texts, test, tests)
    rows = [["read together alone", share(read_together)]]
    print(rows[-1], flush=True)
    everything = aligned(seen, unseen)
    rows.append(["words aligned alone", share(everything)])
    print(rows[-1], flush=True)
    rows.append(["both", share(everything + read_together)])
    for group in GROUPS:
        odds = aligned(without(seen, group), without(unseen, group))
        name = NAMES.get(group, group)
        rows.append([f"aligned alone, without {name}", share(odds)])
        rows.append([f"both, without {name}", share(odds + read_together)])
        print(rows[-2:], flush=True)
    spelled = aligned(judge.table(texts, pairs, False), judge.table(texts, tests, False))
    rows.append(["aligned alone, without the encoder", share(spelled)])
    with open(a.out, "w") as f:
        json.dump({"corrections": len(corrections), "rows": rows}, f, indent=1)
        f.write("\n")


def draw_shipped(a, measured):
    """Bars: by how many points the shares change that pass the shipped limit."""
    rows, whole = measured["rows"][1:], measured["rows"][0]
    rows.sort(key=lambda r: (r[2] - whole[2]) - (r[3] - whole[3]) - (r[4] - whole[4]))
    zero, step, scale, asked = 505, 24, 4.5, measured["asked"]
    height = step * len(rows) + 86
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{height}" '
           'font-family="sans-serif" font-size="13">'
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="10" y="20">what passes the limit when the shipped judge does not know a '
           'feature, change in points</text>',
           f'<text x="10" y="40" fill="#555">{measured["shipped"]} corrections; with all features '
           f'{whole[2]:.1f} % of {asked["wording"]} wordings, {whole[3]:.1f} % of '
           f'{asked["neighbour"]} neighbours, {whole[4]:.1f} % of {asked["subject"]} about the '
           'same subject</text>']
    for i, (words, fill) in enumerate((("wordings", "#3465a4"), ("neighbours", "#dd6b20"))):
        out.append(f'<rect x="{10 + 110 * i}" y="50" width="10" height="10" fill="{fill}"/>'
                   f'<text x="{25 + 110 * i}" y="60">{words}</text>')
    out.append('<text x="810" y="60" text-anchor="end" fill="#555">wordings / neighbours / same '
               'subject, %</text>')
    for i, (name, _, *rates) in enumerate(rows):
        y = 72 + step * i
        out.append(f'<text x="290" y="{y + 14}" text-anchor="end">{name}</text>')
        for k, fill in ((0, "#3465a4"), (1, "#dd6b20")):
            change = rates[k] - whole[2 + k]
            width = abs(change) * scale
            out.append(f'<rect x="{zero - (width if change < 0 else 0):.1f}" y="{y + 9 * k}" '
                       f'width="{width:.1f}" height="8" fill="{fill}"/>')
        out.append(f'<text x="810" y="{y + 14}" text-anchor="end" fill="#555">'
                   f'{rates[0]:.1f} / {rates[1]:.1f} / {rates[2]:.1f}</text>')
    out.append(f'<line x1="{zero}" x2="{zero}" y1="68" y2="{height - 8}" stroke="#999"/>')
    with open(a.out, "w", encoding="utf-8") as f:
        f.write("\n".join(out + ["</svg>"]) + "\n")


def draw(a):
    with open(a.draw) as f:
        measured = json.load(f)
    if "shipped" in measured:
        draw_shipped(a, measured)
        return
    rows = sorted(measured["rows"], key=lambda r: -r[1])
    left, bar, step = 490, 300, 24
    height = step * len(rows) + 50
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + bar + 60}" height="{height}" '
           'font-family="sans-serif" font-size="13">',
           f'<rect width="100%" height="100%" fill="white"/><text x="10" y="20">other wordings '
           f'recognised, percent; networks trained on {measured["corrections"]} corrections</text>']
    for i, (name, value) in enumerate(rows):
        y, fill = 34 + step * i, "#3465a4" if name.startswith(("both", "read")) else "#8ae234"
        out += [f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{name}</text>',
                f'<rect x="{left}" y="{y}" width="{bar * value / 100:.1f}" height="18" '
                f'fill="{fill}"/>',
                f'<text x="{left + bar * value / 100 + 6:.1f}" y="{y + 14}">{value}</text>']
    with open(a.out, "w") as f:
        f.write("\n".join(out + ["</svg>"]) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("embedder", nargs="?")
    p.add_argument("files", nargs="*")
    p.add_argument("--test", action="extend", nargs="+", default=[])
    p.add_argument("--adapter", help="the C file of the adapter that compares")
    p.add_argument("--network", help="the C file of the shipped network: nothing is trained")
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--draw", help="figures that were measured before")
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    (draw if a.draw else measure_shipped if a.network else measure)(a)


if __name__ == "__main__":
    main()
