#!/usr/bin/env python3
"""Train the adapter with which the embedder compares two texts, and write it as a C file.

    tools/train_compare.py EMBEDDER FILE... -o OUT.c [--test FILE] [--scores FILE]

EMBEDDER is the folder of all-MiniLM-L6-v2 (`ruvllm pull minilm` has it), FILE a list of corrections
(bench/natural). The encoder reads a lesson's question and a request as one text, and a LoRA adapter
on all its linear layers with a linear head on the first token's state tells whether both ask for
the same (src/learn/recognise/embedder.h). Needs torch, and a GPU to end within minutes; and what
tools/train_judge.py needs, whose tokens these are.

Requests that a test file has, or one named by --without, are left out of training.
With --folds, corrections of some classes are judged by adapters that never saw their class; limits
are chosen by these. --scores writes the odds of all such pairs and those of the test files.
"""
import argparse
import gzip
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

from train_judge import (DEVICE, FOLDS, Embedder, classes_of, fold, load, long_lines, segments,
                         tokens)

WIDTH, HEADS, LAYERS, COMPARED = 384, 12, 6, 62
FIRST, LAST = 101, 102
NEAREST, SAME = 12, 0.85  # strangers that are asked for, and how near none may be
MISTYPED = 0.12  # of the texts are read as somebody in a hurry types them
NARROW = 0.85  # of the pairs are read in rows no wider than the longest of them
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
        """As one product: two thin ones take a GPU longer, above all their gradients."""
        return F.linear(x, self.w + 2 * (self.outward @ self.inward), self.b)

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


def mistyped(text, rng):
    """With a letter or two of longer words lost, doubled, swapped or hit beside."""
    keys = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    words = text.split(" ")
    long = [i for i, w in enumerate(words) if len(w) > 3 and w.isascii() and w.isalpha()]
    for i in rng.sample(long, min(len(long), rng.choice((1, 1, 2)))):
        w = words[i]
        k = rng.randrange(1, len(w) - 1)
        row = next((r for r in keys if w[k].lower() in r), keys[1])
        beside = row[(row.find(w[k].lower()) + rng.choice((-1, 1))) % len(row)]
        words[i] = rng.choice((w[:k] + w[k + 1:], w[:k] + w[k] + w[k:], w[:k] + beside + w[k + 1:],
                               w[:k] + w[k + 1] + w[k] + w[k + 2:]))
    return " ".join(words)


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
    def meanings(self):
        """What all texts mean, as the embedder says."""
        out = torch.zeros(len(self.ids), WIDTH, device=DEVICE)
        order = sorted(range(len(self.ids)), key=lambda i: len(self.ids[i]))
        for k in range(0, len(order), 1024):
            part = order[k:k + 1024]
            lists = [[FIRST] + self.ids[i] + [LAST] for i in part]
            length = torch.tensor([len(x) for x in lists], device=DEVICE)
            last = self.embedder.states(lists)[1]
            there = torch.arange(last.shape[1], device=DEVICE)[None] < length[:, None]
            out[torch.tensor(part, device=DEVICE)] = F.normalize((last * there[..., None]).sum(1),
                                                                 dim=1)
        return out

    def together(self, a, b, width):
        """FIRST a LAST b LAST, and which of the ids are there; what is behind the width is lost."""
        n_a, n_b = self.lengths[a][:, None], self.lengths[b][:, None]
        p = torch.arange(width, device=DEVICE)[None]
        pick = lambda texts, at: torch.gather(
            self.table[texts], 1, at.clamp(0, COMPARED - 1).expand(len(texts), -1))
        ids = torch.where(p > n_a + 1, torch.where(p <= n_a + 1 + n_b, pick(b, p - n_a - 2), LAST),
                          torch.where(p <= n_a, pick(a, p - 1), LAST))
        return torch.where(p == 0, FIRST, ids), p <= n_a + n_b + 2

    def width_of(self, a, b):
        return int((self.lengths[a] + self.lengths[b]).max().item() + 3 + 7) // 8 * 8


def words_of(text):
    return " ".join(re.findall(r"\w+", fold(text)))


def without(corrections, held):
    """Corrections less the requests of others that are held out, whatever their case and marks."""
    out = []
    asked = {words_of(t) for x in held for t in [x["question"]] + x["wordings"]}
    kept = lambda texts: [t for t in texts if words_of(t) not in asked]
    for x in corrections:
        same = kept([x["question"]] + x["wordings"])
        near, about = kept(x["neighbours"]), kept(x["same_subject"])
        if len(same) > 1 and near and len(near + about) > 1:
            out.append(dict(x, question=same[0], wordings=same[1:], neighbours=near,
                            same_subject=about))
    return out


def padded(lists):
    width = max(len(x) for x in lists)
    return (torch.tensor([x + [x[-1]] * (width - len(x)) for x in lists], device=DEVICE),
            torch.tensor([len(x) for x in lists], device=DEVICE))


def random_below(n):
    return (torch.rand(n.shape, device=DEVICE) * n).long()


class Pairs:
    """Pairs with their labels and weights, drawn at random; no language but English is rare. The
    sizes of what is drawn never change, so that a GPU can repeat a step as it was recorded."""

    def __init__(self, corrections, texts, meaning):
        ids = lambda x, *keys: [texts.add(t) for key in keys for t in x[key]]
        self.same, self.n_same = padded([[texts.add(x["question"])] + ids(x, "wordings")
                                         for x in corrections])
        self.near, self.n_near = padded([ids(x, "neighbours") for x in corrections])
        self.other, self.n_other = padded([ids(x, "neighbours", "same_subject")
                                           for x in corrections])
        by, answers = {}, {}
        for i, x in enumerate(corrections):
            by.setdefault(x["lang"], []).append(i)
        self.alike, self.n_alike = padded([by[x["lang"]] for x in corrections])
        self.answer = torch.tensor([answers.setdefault(fold(x["answer"]).strip(" .!"), len(answers))
                                    for x in corrections], device=DEVICE)
        self.question = self.same[:, 0].contiguous()
        self.nearest_asked = self.nearest(meaning, self.same, by)
        self.nearest_other = self.nearest(meaning, self.other, by)
        weight = torch.tensor([x.get("weight", 1.0) * (1.0 if x["lang"] == "en" else 2.0)
                               for x in corrections], device=DEVICE)
        self.below = (weight.double().cumsum(0) / weight.double().sum()).float()
        rng = random.Random(5)
        self.hurried = torch.tensor([texts.add(mistyped(t, rng)) for t in list(texts.at)],
                                    device=DEVICE)
        texts.ready()

    @torch.no_grad()
    def nearest(self, meaning, texts, by):
        """For each request of each correction the corrections of its language whose questions are
        nearest to it in meaning, unless they are so near that they may ask for the same."""
        out = torch.zeros(*texts.shape, NEAREST, dtype=torch.int32, device=DEVICE)
        for group in by.values():
            at = torch.tensor(group, device=DEVICE)
            lessons = meaning[self.question[at]]
            k = min(NEAREST, len(group))
            for column in range(texts.shape[1]):
                for part in at.split(2048):
                    like = meaning[texts[part, column]] @ lessons.T
                    like[like > SAME] = -1
                    like[self.answer[part][:, None] == self.answer[at][None]] = -1
                    best = at[like.topk(k, 1).indices].int()
                    out[part, column] = best[:, torch.arange(NEAREST, device=DEVICE) % k]
        return out

    def draw(self, n):
        """question, request, label, weight."""
        c = torch.searchsorted(self.below, torch.rand(n, device=DEVICE)).clamp(
            max=len(self.below) - 1)
        n_same, n_other = self.n_same[c], self.n_other[c]
        k = torch.where(torch.rand(n, device=DEVICE) < 0.5, 0, random_below(n_same))
        question = self.same[c, k]
        every = torch.ones(n, device=DEVICE)
        out = []
        for _ in range(2):
            again = (k + 1 + random_below(n_same - 1)) % n_same
            out.append((question, self.same[c, again], 1, every))
            out.append((question, self.other[c, random_below(n_other)], 0, every))
        out.append((question, self.near[c, random_below(self.n_near[c])], 0, every))
        few = c[:n // 2]
        i = random_below(self.n_other[few])
        j = (i + 1 + random_below(self.n_other[few] - 1)) % self.n_other[few]
        differ = (self.other[few, i] != self.other[few, j]).float()
        out.append((self.other[few, i], self.other[few, j], 0, differ))
        # a stranger, as one of a thousand lessons is: mostly one that a request is like
        asked = torch.rand(n, device=DEVICE) < 0.5
        i, j = random_below(n_same), random_below(n_other)
        pick = torch.randint(NEAREST, (n,), device=DEVICE)
        near = torch.where(asked, self.nearest_asked[c, i, pick], self.nearest_other[c, j, pick])
        stranger = torch.where(torch.rand(n, device=DEVICE) < 0.7, near.long(),
                               self.alike[c, random_below(self.n_alike[c])])
        request = torch.where(asked, self.same[c, i], self.other[c, j])
        real = (self.answer[stranger] != self.answer[c]).float()
        out.append((self.question[stranger], request, 0, real))
        label = [torch.full((len(a),), float(y), device=DEVICE) for a, _, y, _ in out]
        question, request, _, weight = zip(*out)
        return (self.hurry(torch.cat(question)), self.hurry(torch.cat(request)), torch.cat(label),
                torch.cat(weight))

    def hurry(self, texts):
        chosen = torch.rand(len(texts), device=DEVICE) < MISTYPED
        return torch.where(chosen, self.hurried[texts], texts)


# ---- training ----


class Training:
    """One step: pairs are drawn, the shorter ones read in narrow rows and the rest in wide ones."""

    def __init__(self, m, texts, pairs, a):
        self.m, self.texts, self.pairs, self.a = m, texts, pairs, a
        self.trained = [p for p in m.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.trained]
        self.rate = torch.zeros((), device=DEVICE)
        self.take = torch.ones((), device=DEVICE)
        self.seen = torch.zeros((), device=DEVICE)
        on_gpu = DEVICE == "cuda"
        self.optimizer = torch.optim.AdamW(self.trained, lr=self.rate if on_gpu else 0.0,
                                           weight_decay=0.05, betas=(0.9, 0.98), fused=on_gpu,
                                           capturable=on_gpu)
        question, request, _, _ = pairs.draw(4096)
        length = (texts.lengths[question] + texts.lengths[request]).float()
        self.narrow = int((length.quantile(NARROW).item() + 3 + 8) // 8 * 8)

    def step(self):
        question, request, label, weight = self.pairs.draw(self.a.batch)
        order = torch.argsort(self.texts.lengths[question] + self.texts.lengths[request])
        n = int(len(order) * NARROW)
        total = 0.0
        for part, width in ((order[:n], self.narrow), (order[n:], 2 * COMPARED + 4)):
            ids, there = self.texts.together(question[part], request[part], width)
            with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=False):
                odds = self.m(ids, there)
            total = total + F.binary_cross_entropy_with_logits(
                odds.float(), label[part] * 0.96 + 0.02, weight[part], reduction="sum")
        loss = total / len(order)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for v, p in zip(self.mean, self.trained):
                v.lerp_(p, self.take)
            self.seen.lerp_(loss.detach(), 0.01)

    def eager(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.step()

    def record(self):
        """The step as a CUDA graph: launching its kernels one by one would bound the time."""
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(beside)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def train(weights, texts, meaning, corrections, a, steps, seconds, rank, seed=0):
    torch.manual_seed(seed)
    m = Comparer(weights, rank, a.dropout)
    if a.start:
        read(a.start, m)
    m = m.to(DEVICE)
    m.train()
    start_with = [p.detach().clone() for p in m.parameters() if p.requires_grad]
    training = Training(m, texts, Pairs(corrections, texts, meaning), a)
    step_once = training.eager
    if DEVICE == "cuda" and a.graph:
        step_once = training.record()
    start, done, step = time.time(), 0.0, 0
    while done < 1:
        done = max(step / steps, (time.time() - start) / seconds)
        rate = a.rate * min(1, step / 200) * max(0.0, 1 - done)
        training.rate.fill_(rate)
        if DEVICE != "cuda":
            training.optimizer.param_groups[0]["lr"] = rate
        training.take.fill_(1 - min(0.998, step / (step + 10)))
        step_once()
        step += 1
        if step % 20 == 0 and DEVICE == "cuda":
            torch.cuda.synchronize()  # the clock counts what was done, not what was asked for
        if step % 1000 == 0:
            print(f"  {step} steps, {time.time() - start:.0f} s, loss "
                  f"{float(training.seen) / (1 - 0.99 ** step):.4f}", flush=True)
    print(f"  {step} steps, {time.time() - start:.0f} s", flush=True)
    with torch.no_grad():
        for p, v, begun in zip(training.trained, training.mean, start_with):
            p.copy_(begun.lerp(v, a.share))
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
        out[part] = m(*texts.together(q[part], t[part], texts.width_of(q[part], t[part])))
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
    return share(kinds == "wording")


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
                    products.append(f'{{{2 * by_a * by_b:.8g}f, "{a}", "{b}"}}')
                f.write(f'    {{"blk.{i}.{name}",\n     {{' + ",\n      ".join(products) + "}},\n")
        head = ", ".join(f"{v:.8e}f" for v in m.head.weight.detach().cpu().numpy().ravel())
        f.write("};\n\nconst float rvi_compare_head[RVI_COMPARE_WIDTH] = {\n" +
                long_lines(head + "};") +
                f"\n\nconst float rvi_compare_bias = {m.head.bias.item():.8e}f;\n")


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
    p.add_argument("--without", nargs="+", default=[], help="corrections never to be trained on")
    p.add_argument("--scores", help="write the odds of pairs there")
    p.add_argument("--folds", type=int, default=0,
                   help=f"so many of {FOLDS} parts of the classes are held out, one after another")
    p.add_argument("--fold-out", help="write the adapters of these there, {} is the part")
    p.add_argument("--steps", type=int, default=8000)
    p.add_argument("--seconds", type=float, default=1e9, help="of training, if steps take longer")
    p.add_argument("--fold-seconds", type=float, default=1e9)
    p.add_argument("--batch", type=int, default=96, help="corrections a step")
    p.add_argument("--no-graph", dest="graph", action="store_false",
                   help="launch every kernel of a step anew on a GPU")
    p.add_argument("--start", help="an adapter to start with, a C file that this wrote")
    p.add_argument("--share", type=float, default=1.0,
                   help="of what training changed in these weights that is kept")
    p.add_argument("--rank", type=int, nargs="+", default=[4],
                   help="of several the best on the first part that is held out")
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--dropout", type=float, default=0.1)
    a = p.parse_args()
    weights = {k: torch.tensor(v) for k, v in load_file(f"{a.embedder}/model.safetensors").items()
               if v.dtype == np.float32}
    tests = {name: load([name]) for name in a.test}
    apart = [x for test in tests.values() for x in test]
    corrections = without(load(a.files), apart + load(a.without))
    texts = Texts(Embedder(a.embedder))
    for x in corrections + apart:
        for t in [x["question"]] + x["wordings"] + x["neighbours"] + x["same_subject"]:
            texts.add(t)
    texts.ready()
    print(len(corrections), "corrections", len(texts.ids), "texts on", DEVICE, flush=True)
    rows, held, ranks = {}, [], list(a.rank)
    meaning = texts.meanings()
    for k in range(a.folds):
        out = classes_of(corrections, k)
        rest = [x for x in corrections if x["class"] not in out]
        dev = [x for x in corrections if x["class"] in out]
        best = None
        for rank in ranks:
            m = train(weights, texts, meaning, rest, a, a.steps, a.fold_seconds, rank, k)
            odds = odds_of(m, texts, dev)
            got = show(f"part {k}, rank {rank}", odds)
            for name, test in tests.items():
                show(f"  {name}", odds_of(m, texts, test))
            if best is None or got > best[0] + 0.3:
                best = (got, odds, m, rank)
        held += best[1]
        ranks = [best[3]]
        if a.fold_out:
            write(a.fold_out.format(k), best[2])
    if held:
        rows["held"] = held
        show("held-out classes", held)
    m = train(weights, texts, meaning, corrections, a, a.steps, a.seconds, ranks[0], a.seed)
    for name, test in tests.items():
        rows[name] = odds_of(m, texts, test)
        show(name, rows[name])
    if a.out:
        write(a.out, m)
    if a.scores:
        with gzip.open(a.scores, "wt") as f:
            json.dump(rows, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
