#!/usr/bin/env python3
"""Train the adapter with which the embedder compares two texts, and write it as a C file.

    tools/train_compare.py EMBEDDER FILE... -o OUT.c [--test FILE] [--scores FILE]

EMBEDDER is the folder of all-MiniLM-L6-v2 (`ruvllm pull minilm` has it), FILE a list of corrections
(bench/natural). The encoder reads a lesson's question and a request as one text, and a LoRA adapter
on all its linear layers with a linear head on the first token's state tells whether both ask for
the same (src/learn/recognise/embedder.h). Needs torch, and a GPU to end within minutes; and what
tools/train_judge.py needs, whose tokens these are.

--scores writes the odds of every pair of the test files and, with --folds 2, of the corrections
themselves, each judged by an adapter that never saw corrections of its class.
"""
import argparse
import json
import math
import random
import re
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.numpy import load_file

from train_judge import DEVICE, Embedder, load, segments, tokens

WIDTH, HEADS, LAYERS, COMPARED = 384, 12, 6, 62
FIRST, LAST = 101, 102
NEAREST, SAME = 24, 0.85  # strangers that are asked for, and how near none may be
LEVELS = 45  # numbers of the written adapter: -45 to 45
LINEARS = (("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"),
           ("attention.self.value", "attn_v"), ("attention.output.dense", "attn_output"),
           ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"))


# ---- the encoder with its adapter ----


class Linear(nn.Module):
    def __init__(self, weights, name, rank):
        super().__init__()
        self.w = nn.Parameter(weights[name + ".weight"], requires_grad=False)
        self.b = nn.Parameter(weights[name + ".bias"], requires_grad=False)
        n_out, n_in = self.w.shape
        self.inward = nn.Parameter(torch.randn(rank, n_in) / math.sqrt(n_in))
        self.outward = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, x):
        return F.linear(x, self.w, self.b) + 2 * F.linear(F.linear(x, self.inward), self.outward)

    @torch.no_grad()
    def quantize(self):
        """To what the C file can say."""
        for v in list(self.inward) + list(self.outward.T):
            step = v.abs().max().clamp(min=1e-12) / LEVELS
            v.copy_(torch.round(v / step) * step)


class Norm(nn.Module):
    def __init__(self, weights, name):
        super().__init__()
        self.w = nn.Parameter(weights[name + ".weight"], requires_grad=False)
        self.b = nn.Parameter(weights[name + ".bias"], requires_grad=False)

    def forward(self, x):
        return F.layer_norm(x, (WIDTH,), self.w, self.b, 1e-12)


class Layer(nn.Module):
    def __init__(self, weights, i, rank, dropout):
        super().__init__()
        p = f"encoder.layer.{i}."
        self.linears = nn.ModuleList([Linear(weights, p + name, rank) for name, _ in LINEARS])
        self.attended = Norm(weights, p + "attention.output.LayerNorm")
        self.ended = Norm(weights, p + "output.LayerNorm")
        self.dropout = dropout

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def forward(self, x, there):
        n, length, _ = x.shape
        q, k, v, out, up, down = self.linears
        q, k, v = (part(x).view(n, length, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=there,
                                           dropout_p=self.dropout if self.training else 0)
        x = self.attended(x + self.drop(out(y.transpose(1, 2).reshape(n, length, WIDTH))))
        return self.ended(x + self.drop(down(F.gelu(up(x)))))


class Comparer(nn.Module):
    def __init__(self, weights, rank, dropout):
        super().__init__()
        fixed = lambda v: nn.Parameter(v, requires_grad=False)
        self.words = fixed(weights["embeddings.word_embeddings.weight"])
        self.around = fixed(weights["embeddings.position_embeddings.weight"] +
                            weights["embeddings.token_type_embeddings.weight"][0])
        self.norm = Norm(weights, "embeddings.LayerNorm")
        self.layers = nn.ModuleList([Layer(weights, i, rank, dropout) for i in range(LAYERS)])
        self.head = nn.Linear(WIDTH, 1)
        self.dropout = dropout

    def forward(self, ids, there):
        x = self.norm(self.words[ids] + self.around[:ids.shape[1]])
        x = F.dropout(x, self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, there[:, None, None, :])
        return self.head(x[:, 0]).squeeze(-1)


# ---- texts and pairs, as rows of numbers on the device ----


class Texts:
    def __init__(self, embedder):
        self.embedder, self.at, self.ids = embedder, {}, []

    def add(self, text):
        if text not in self.at:
            self.at[text] = len(self.ids)
            self.ids.append([i for word, _ in segments(text)
                             for i in tokens(self.embedder.tokenizer, word)][-COMPARED:])
        return self.at[text]

    def ready(self):
        table = np.full((len(self.ids), COMPARED), LAST)
        for row, ids in zip(table, self.ids):
            row[:len(ids)] = ids
        self.table = torch.tensor(table, device=DEVICE)
        self.lengths = torch.tensor([len(ids) for ids in self.ids], device=DEVICE)

    @torch.no_grad()
    def nearest(self, questions, groups):
        """For each question the others of its group that are nearest in meaning, unless they are
        so near that they may ask for the same."""
        lists = [[FIRST] + self.ids[self.at[q]] + [LAST] for q in questions]
        meaning = torch.zeros(len(lists), WIDTH, device=DEVICE)
        for part in torch.arange(len(lists)).split(512):
            length = torch.tensor([len(lists[i]) for i in part], device=DEVICE)
            last = self.embedder.states([lists[i] for i in part])[1]
            there = torch.arange(last.shape[1], device=DEVICE)[None] < length[:, None]
            meaning[part] = F.normalize((last * there[..., None]).sum(1), dim=1)
        out = torch.zeros(len(lists), NEAREST, dtype=torch.long, device=DEVICE)
        for group in groups.values():
            at = torch.tensor(group, device=DEVICE)
            like = meaning[at] @ meaning[at].T
            like[like > SAME] = -1
            k = min(NEAREST, len(group))
            best = at[like.topk(k, 1).indices]
            out[at] = best[:, torch.arange(NEAREST, device=DEVICE) % k]
        return out

    def together(self, a, b):
        """FIRST a LAST b LAST, and which of the ids are there."""
        n_a, n_b = self.lengths[a][:, None], self.lengths[b][:, None]
        length = int((n_a + n_b).max().item()) + 3
        p = torch.arange((length + 7) // 8 * 8, device=DEVICE)[None]
        pick = lambda texts, at: torch.gather(
            self.table[texts], 1, at.clamp(0, COMPARED - 1).expand(len(texts), -1))
        ids = torch.where(p > n_a + 1, torch.where(p <= n_a + 1 + n_b, pick(b, p - n_a - 2), LAST),
                          torch.where(p <= n_a, pick(a, p - 1), LAST))
        return torch.where(p == 0, FIRST, ids), p <= n_a + n_b + 2


def padded(lists):
    width = max(len(x) for x in lists)
    return (torch.tensor([x + [x[-1]] * (width - len(x)) for x in lists], device=DEVICE),
            torch.tensor([len(x) for x in lists], device=DEVICE))


def random_below(n):
    return (torch.rand(n.shape, device=DEVICE) * n).long()


class Pairs:
    """Pairs with their labels, drawn at random; no language but English is rare."""

    def __init__(self, corrections, texts):
        ids = lambda x, *keys: [texts.add(t) for key in keys for t in x[key]]
        self.same, self.n_same = padded([[texts.add(x["question"])] + ids(x, "wordings")
                                         for x in corrections])
        self.near, self.n_near = padded([ids(x, "neighbours") for x in corrections])
        self.other, self.n_other = padded([ids(x, "neighbours", "same_subject")
                                           for x in corrections])
        by = {}
        for i, x in enumerate(corrections):
            by.setdefault(x["lang"], []).append(i)
        self.alike, self.n_alike = padded([by[x["lang"]] for x in corrections])
        self.nearest = texts.nearest([x["question"] for x in corrections], by)
        self.weight = torch.tensor([x.get("weight", 1.0) * (1.0 if x["lang"] == "en" else 1.5)
                                    for x in corrections], device=DEVICE)

    def draw(self, n):
        c = torch.multinomial(self.weight, n, replacement=True)
        n_same, n_other = self.n_same[c], self.n_other[c]
        k = torch.where(torch.rand(n, device=DEVICE) < 0.5, 0, random_below(n_same))
        question = self.same[c, k]
        out = []
        for _ in range(2):
            out.append((question, self.same[c, (k + 1 + random_below(n_same - 1)) % n_same], 1))
            out.append((question, self.other[c, random_below(n_other)], 0))
        out.append((question, self.near[c, random_below(self.n_near[c])], 0))
        few = c[:n // 2]
        i = random_below(self.n_other[few])
        j = (i + 1 + random_below(self.n_other[few] - 1)) % self.n_other[few]
        out.append((self.other[few, i], self.other[few, j], 0))
        near = self.nearest[few, torch.randint(NEAREST, (len(few),), device=DEVICE)]
        stranger = torch.where(torch.rand(len(few), device=DEVICE) < 0.5, near,
                               self.alike[few, random_below(self.n_alike[few])])
        real = stranger != few
        asked = torch.where(torch.rand(len(few), device=DEVICE) < 0.5,
                            self.same[stranger, random_below(self.n_same[stranger])],
                            self.other[stranger, random_below(self.n_other[stranger])])
        out.append((question[:n // 2][real], asked[real], 0))
        label = [torch.full((len(a),), float(y), device=DEVICE) for a, _, y in out]
        question, request, _ = zip(*out)
        return torch.cat(question), torch.cat(request), torch.cat(label)


# ---- training ----


def train(weights, texts, corrections, a, steps, seed=0):
    torch.manual_seed(seed)
    m = Comparer(weights, a.rank, a.dropout)
    if a.start:
        read(a.start, m)
    m = m.to(DEVICE)
    trained = [p for p in m.parameters() if p.requires_grad]
    mean = [p.detach().clone() for p in trained]
    optimizer = torch.optim.AdamW(trained, lr=a.rate, weight_decay=0.05, betas=(0.9, 0.98),
                                  fused=DEVICE == "cuda")
    pairs, seen, start = Pairs(corrections, texts), 0.0, time.time()
    for step in range(steps):
        m.train()
        for group in optimizer.param_groups:
            group["lr"] = a.rate * min(1, step / 200) * (1 - step / steps)
        question, request, label = pairs.draw(a.batch)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            odds = m(*texts.together(question, request))
        loss = F.binary_cross_entropy_with_logits(odds.float(), label * 0.96 + 0.02)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        keep = min(0.998, step / (step + 10))
        with torch.no_grad():
            torch._foreach_mul_(mean, keep)
            torch._foreach_add_(mean, [p.detach() for p in trained], alpha=1 - keep)
            seen = 0.99 * seen + 0.01 * loss.detach()
        if (step + 1) % 1000 == 0:
            print(f"  {step + 1} steps, {time.time() - start:.0f} s, loss {float(seen):.4f}",
                  flush=True)
    with torch.no_grad():
        for p, v in zip(trained, mean):
            p.copy_(v)
    for module in m.modules():
        if isinstance(module, Linear):
            module.quantize()
    return m


KINDS = (("wording", "wordings"), ("neighbour", "neighbours"), ("subject", "same_subject"))


@torch.no_grad()
def odds_of(m, texts, corrections):
    """[question, request, kind, language, odds] of every pair."""
    rows = [[x["question"], t, kind, x["lang"]] for x in corrections
            for kind, key in KINDS for t in x[key]]
    q = torch.tensor([texts.at[r[0]] for r in rows], device=DEVICE)
    t = torch.tensor([texts.at[r[1]] for r in rows], device=DEVICE)
    m.eval()
    out = torch.zeros(len(rows), device=DEVICE)
    order = torch.argsort(texts.lengths[q] + texts.lengths[t])
    for part in order.split(1024):
        out[part] = m(*texts.together(q[part], t[part]))
    return [r + [float(v)] for r, v in zip(rows, out)]


def show(name, rows):
    odds, kinds = np.array([r[4] for r in rows]), np.array([r[2] for r in rows])
    langs = np.array([r[3] for r in rows])
    limit = max(np.quantile(odds[kinds == k], 1 - f) for k, f in
                (("neighbour", 0.035), ("subject", 0.025)) if (kinds == k).any())
    share = lambda which: round(100 * float((odds[which] > limit).mean()), 1)
    print(f"{name}: over {limit:.2f}",
          {k: share(kinds == k) for k, _ in KINDS if (kinds == k).any()},
          {g: share((kinds == "wording") & (langs == g)) for g in sorted(set(langs))
           if (langs == g).sum() > 60}, flush=True)


# ---- the C file ----


def characters(v):
    step = np.abs(v).max() / LEVELS
    text = "".join(chr(80 + int(k)) for k in np.round(v / step))
    return text.replace("?", "!").replace("\\", " "), step


def write(path, m):
    with open(path, "w") as f:
        f.write("/* Generated by tools/train_compare.py. */\n"
                '#include "learn/recognise/compare_weights.h"\n\n'
                "const rvi_compare_layer rvi_compare_layers[RVI_COMPARE_LAYERS] = {\n")
        for i, layer in enumerate(m.layers):
            for linear, (_, name) in zip(layer.linears, LINEARS):
                products = []
                inward, outward = (p.detach().cpu().numpy() for p in
                                   (linear.inward, linear.outward.T))
                for a, b in zip(inward, outward):
                    (a, by_a), (b, by_b) = characters(a), characters(b)
                    products.append(f'{{{2 * by_a * by_b:.8g}f,\n       "{a}",\n       "{b}"}}')
                f.write(f'    {{"blk.{i}.{name}",\n     {{' + ",\n      ".join(products) + "}},\n")
        head = [f"{v:.8e}f" for v in m.head.weight.detach().cpu().numpy().ravel()]
        rows = ",\n    ".join(", ".join(head[i:i + 6]) for i in range(0, WIDTH, 6))
        f.write("};\n\nconst float rvi_compare_head[RVI_COMPARE_WIDTH] = {\n    " + rows +
                f"}};\n\nconst float rvi_compare_bias = {m.head.bias.item():.8e}f;\n")


def read(path, m):
    """An adapter that was written before."""
    text = open(path).read()
    number = lambda v: [float(x) for x in re.findall(r"[-+.\de]+(?=f)", v)]
    vector = lambda v: torch.tensor([ord({"!": "?", " ": "\\"}.get(c, c)) - 80.0 for c in v])
    products = iter(re.findall(r'\{([-+.\de]+)f,\s*"([^"]*)",\s*"([^"]*)"\}', text))
    with torch.no_grad():
        for layer in m.layers:
            for linear in layer.linears:
                for k in range(linear.inward.shape[0]):
                    by, inward, outward = next(products)
                    share = math.sqrt(float(by) / 2)
                    linear.inward[k] = share * vector(inward)
                    linear.outward[:, k] = share * vector(outward)
        head, bias = text.split("rvi_compare_head")[1].split("rvi_compare_bias")
        m.head.weight.copy_(torch.tensor(number(head.split("{")[1]))[None])
        m.head.bias.copy_(torch.tensor(number(bias.split("=")[1])))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("embedder")
    p.add_argument("files", nargs="+")
    p.add_argument("-o", "--out", help="write the adapter there")
    p.add_argument("--test", action="append", default=[], help="corrections to report on only")
    p.add_argument("--scores", help="write the odds of pairs there")
    p.add_argument("--folds", type=int, default=0)
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--fold-steps", type=int, default=2500)
    p.add_argument("--batch", type=int, default=96, help="corrections a step")
    p.add_argument("--start", help="an adapter to start with, a C file that this wrote")
    p.add_argument("--rank", type=int, default=4)
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--dropout", type=float, default=0.1)
    a = p.parse_args()
    weights = {k: torch.tensor(v) for k, v in load_file(f"{a.embedder}/model.safetensors").items()
               if v.dtype == np.float32}
    corrections, tests = load(a.files), {name: load([name]) for name in a.test}
    texts = Texts(Embedder(a.embedder))
    for x in corrections + [x for test in tests.values() for x in test]:
        for t in [x["question"]] + x["wordings"] + x["neighbours"] + x["same_subject"]:
            texts.add(t)
    texts.ready()
    print(len(corrections), "corrections", len(texts.ids), "texts on", DEVICE, flush=True)
    rows, held = {}, []
    m = train(weights, texts, corrections, a, a.steps)
    for name, test in tests.items():
        rows[name] = odds_of(m, texts, test)
        show(name, rows[name])
    if a.out:
        write(a.out, m)
    classes = sorted({x["class"] for x in corrections})
    random.Random(3).shuffle(classes)
    for k in range(a.folds):
        out = set(classes[k::a.folds])
        m = train(weights, texts, [x for x in corrections if x["class"] not in out], a,
                  a.fold_steps, k)
        held += odds_of(m, texts, [x for x in corrections if x["class"] in out])
    if held:
        rows["held"] = held
        show("held-out classes", held)
    if a.scores:
        with open(a.scores, "w") as f:
            json.dump(rows, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
