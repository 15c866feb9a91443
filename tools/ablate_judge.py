#!/usr/bin/env python3
"""What the features of the judge of requests are worth: train it without each group of them.

    tools/ablate_judge.py EMBEDDER FILE... --test FILE --adapter compare_tables.c -o OUT.json
    tools/ablate_judge.py --draw OUT.json -o OUT.svg

Every network is trained alike on every fifth correction of the files; the adapter that compares is
the one that is shipped. A row says how many other wordings of the test file are recognised where
the threshold lets pass 3.5 percent of its neighbours and 2 percent of the questions about the same
subject at most. Needs what tools/train_judge.py needs; drawing needs nothing.
"""
import argparse
import json

# The features of a word and of the whole that belong together (of_words, features in train_judge).
GROUPS = {
    "spelling": ([2, 12], [1, 10]),
    "rarity": ([7, 11, 15], [4, 5, 6, 7]),
    "contrast": ([5, 6, 14], [2, 8, 9]),
}
NAMES = {"contrast": "contrast (second best match, words of the answer)"}


def measure(a):
    import random

    import numpy as np
    import torch

    import train_compare
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

    def compared():
        class Options:
            rank, dropout = 4, 0.0
        weights = {k: torch.tensor(v) for k, v in
                   train_compare.load_file(f"{a.embedder}/model.safetensors").items()
                   if v.dtype == np.float32}
        m = train_compare.Comparer(weights, Options.rank, Options.dropout)
        train_compare.read(a.adapter, m)
        ids = train_compare.Texts(texts.embedder)
        for x in test:
            for t in [x["question"]] + judge.requests(x):
                ids.add(t)
        ids.ready()
        at = {(r[0], r[1]): r[4] for r in train_compare.odds_of(m.to(judge.DEVICE), ids, test)}
        return np.array([at[p["texts"][0], p["texts"][2]] for p in tests])

    def share(odds):
        limit = max(np.quantile(odds[kinds == k], 1 - f) for k, f in
                    (("neighbour", 0.035), ("subject", 0.02)))
        return round(100 * float((odds[kinds == "wording"] > limit).mean()), 1)

    read_together = compared()
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


def draw(a):
    with open(a.draw) as f:
        measured = json.load(f)
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
    p.add_argument("--test", action="append", default=[])
    p.add_argument("--adapter", help="the C file of the adapter that compares")
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--draw", help="figures that were measured before")
    p.add_argument("-o", "--out", required=True)
    a = p.parse_args()
    (draw if a.draw else measure)(a)


if __name__ == "__main__":
    main()
