#!/usr/bin/env python3
"""Writes tests/decode/data/sampler_vectors.inc: what other implementations make of logits of our
own.

    pip install numpy torch transformers llama-cpp-python
    python3 tools/make_sampler_vectors.py [OUTPUT [SEED]]

Every case holds logits, options in the terms of rv_sampling, and what is left: the surviving ids
and their probabilities. The logits and pasts are random numbers of this script; the survivors come
from the sampler of llama.cpp (its C interface, on an array of candidates, without a model) and,
where it has the same stage, from transformers, and the script stops where these two disagree. DRY
goes through llama.cpp's own test entrance, which takes breakers as tokens. Mirostat cases are
sequences: the survivors of each step, and the token that llama.cpp drew from them.
"""
import ctypes
import os
import sys

import llama_cpp
import llama_cpp.llama_cpp as low
import numpy as np
import torch
import transformers
from transformers.generation import logits_process as hf

MAX_WIDTH = 118


class Vector(ctypes.Structure):
    """std::vector of libstdc++: begin, end, end of storage"""
    _fields_ = [("begin", ctypes.c_void_p), ("end", ctypes.c_void_p), ("cap", ctypes.c_void_p)]


def vector_of(array):
    start = ctypes.addressof(array)
    return Vector(start, start + ctypes.sizeof(array), start + ctypes.sizeof(array))


def dry_sampler(multiplier, base, allowed, window, breakers):
    init = getattr(low._lib, "_Z30llama_sampler_init_dry_testingffiiRKSt6vectorIS_IiSaIiEESaIS1_EE")
    init.restype = low.llama_sampler_p_ctypes
    init.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.c_int32, ctypes.c_int32,
                     ctypes.POINTER(Vector)]
    tokens = [(ctypes.c_int32 * 1)(b) for b in breakers]
    inner = (Vector * len(breakers))(*[vector_of(t) for t in tokens])
    return init(multiplier, base, allowed, window, ctypes.byref(vector_of(inner)))


class Candidates:
    def __init__(self, logits):
        self.data = (low.llama_token_data * len(logits))()
        for i, l in enumerate(logits):
            self.data[i].id, self.data[i].logit, self.data[i].p = i, float(l), 0.0
        self.array = low.llama_token_data_array(
            data=ctypes.cast(self.data, ctypes.POINTER(low.llama_token_data)), size=len(logits),
            selected=-1,
            sorted=False)

    def apply(self, sampler):
        low.llama_sampler_apply(sampler, ctypes.byref(self.array))
        return self

    def drop_masked(self):
        """Some stages mark what they drop by -inf, and others then compute 0 * log 0 with it: take
        it out."""
        at, n = self.array.data, 0
        for i in range(self.array.size):
            if at[i].logit > -np.inf:
                at[n].id, at[n].logit, n = at[i].id, at[i].logit, n + 1
        self.array.size = n

    def left(self):
        at = self.array.data
        pairs = [(at[i].id, at[i].logit) for i in range(self.array.size) if at[i].logit > -np.inf]
        return softmax(dict(pairs))

    def chosen(self):
        return self.array.data[self.array.selected].id


def softmax(logits):
    best = max(logits.values())
    weights = {i: np.exp(float(l) - float(best)) for i, l in logits.items()}
    total = sum(weights.values())
    return {i: weights[i] / total for i in sorted(weights)}


LLAMA_STAGES = {
    "top_k": lambda o: low.llama_sampler_init_top_k(o["top_k"]),
    "top_p": lambda o: low.llama_sampler_init_top_p(o["top_p"], 1),
    "min_p": lambda o: low.llama_sampler_init_min_p(o["min_p"], 1),
    "typical_p": lambda o: low.llama_sampler_init_typical(o["typical_p"], 1),
    "temperature": lambda o: low.llama_sampler_init_temp(o["temperature"]),
    "xtc": lambda o: low.llama_sampler_init_xtc(o["xtc_probability"], o["xtc_threshold"], 1, 1),
    "top_n_sigma": lambda o: low.llama_sampler_init_top_n_sigma(o["top_n_sigma"]),
}
HF_STAGES = {
    "top_k": lambda o: hf.TopKLogitsWarper(o["top_k"]),
    "top_p": lambda o: hf.TopPLogitsWarper(o["top_p"]),
    "min_p": lambda o: hf.MinPLogitsWarper(o["min_p"]),
    "typical_p": lambda o: hf.TypicalLogitsWarper(o["typical_p"]),
    "temperature": lambda o: hf.TemperatureLogitsWarper(o["temperature"]),
}
NEUTRAL = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=0.0,
               xtc_probability=0.0,
               xtc_threshold=0.1, repetition_penalty=1.0, repetition_window=64,
               frequency_penalty=0.0,
               presence_penalty=0.0, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2,
               dry_window=0,
               mirostat_tau=0.0, mirostat_eta=0.1)


def agree(a, b):
    return a.keys() == b.keys() and all(abs(a[i] - b[i]) < 1e-5 for i in a)


def run_stages(logits, options):
    """The survivors after the stages of options["order"], and who says so."""
    o = {**NEUTRAL, **options}
    order = o["order"].split(",")
    c = Candidates(logits)
    for name in order:
        sampler = LLAMA_STAGES[name](o)
        c.apply(sampler).drop_masked()
        low.llama_sampler_free(sampler)
    left = c.left()
    if not all(name in HF_STAGES for name in order):
        return left, "llama.cpp"
    scores = torch.tensor(np.array([logits]), dtype=torch.float32)
    for name in order:
        scores = HF_STAGES[name](o)(None, scores)
    other = softmax({i: float(s) for i, s in enumerate(scores[0]) if s > -np.inf})
    if not agree(left, other):
        sys.exit(f"llama.cpp and transformers disagree: {options}\n{left}\n{other}")
    return left, "llama.cpp, transformers"


def run_penalties(logits, past, n_prompt, options):
    o = {**NEUTRAL, **options}
    c = Candidates(logits)
    repetition = o["repetition_penalty"] != 1.0
    if repetition and (o["frequency_penalty"] or o["presence_penalty"]):
        sys.exit("one window serves all three penalties of llama.cpp")
    window = o["repetition_window"] if repetition else len(past) - n_prompt
    sampler = low.llama_sampler_init_penalties(len(logits), window, o["repetition_penalty"],
                                               o["frequency_penalty"],
                                               o["presence_penalty"])
    for t in past:
        low.llama_sampler_accept(sampler, t)
    left = c.apply(sampler).left()
    low.llama_sampler_free(sampler)
    if not repetition:
        return left, "llama.cpp"
    ids = torch.tensor([past[-window:] if window < len(past) else past])
    scores = hf.RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(
        ids, torch.tensor(np.array([logits]), dtype=torch.float32))
    if not agree(left, softmax({i: float(s) for i, s in enumerate(scores[0])})):
        sys.exit(f"llama.cpp and transformers disagree: {options}")
    return left, "llama.cpp, transformers"


def run_dry(logits, past, breakers, options):
    o = {**NEUTRAL, **options}
    sampler = dry_sampler(o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"],
                          o["dry_window"] or max(len(past), 1), breakers)
    for t in past:
        low.llama_sampler_accept(sampler, t)
    left = Candidates(logits).apply(sampler).left()
    low.llama_sampler_free(sampler)
    return left, "llama.cpp"


def run_mirostat(logits, options, n_steps):
    sampler = low.llama_sampler_init_mirostat_v2(7, options["mirostat_tau"],
                                                 options["mirostat_eta"])
    steps = []
    for _ in range(n_steps):
        c = Candidates(logits).apply(sampler)
        steps.append((len(c.left()), c.chosen()))
    low.llama_sampler_free(sampler)
    return steps


# ---- what is asked ----

def all_logits(rng):
    zipf = -1.1 * np.log(np.arange(1, 41))
    return {
        "narrow": rng.standard_normal(12) * 1.5,
        "usual": rng.standard_normal(40) * 3,
        "peaked": np.concatenate([rng.standard_normal(30), [9.0, 8.2, 7.9]]),
        "zipf": rng.permutation(zipf + rng.standard_normal(40) * 0.05),
        "below_zero": rng.standard_normal(20) * 2 - 15,
        "vast": rng.standard_normal(300) * 2,
    }


def stage_options(rng):
    single = {
        "top_k": [dict(top_k=k) for k in (1, 2, 5, 11, 1000)],
        "top_p": [dict(top_p=p) for p in (0.1, 0.5, 0.9, 0.95, 0.999)],
        "min_p": [dict(min_p=p) for p in (0.02, 0.1, 0.5, 1.0)],
        "typical_p": [dict(typical_p=p) for p in (0.2, 0.5, 0.9, 0.95)],
        "temperature": [dict(temperature=t) for t in (0.3, 0.7, 2.5)],
        "top_n_sigma": [dict(top_n_sigma=n) for n in (0.5, 1.0, 2.0)],
        "xtc": [dict(xtc_probability=1.0, xtc_threshold=t) for t in (0.02, 0.1, 0.3)],
    }
    cases = [dict(o, order=name) for name, options in single.items() for o in options]
    names = list(single)
    for _ in range(12):
        order = list(rng.permutation(names))[:int(rng.integers(2, len(names) + 1))]
        o = dict(order=",".join(order))
        for name in order:
            o.update(single[name][int(rng.integers(0, len(single[name])))])
        cases.append(o)
    return cases


def dry_cases(rng):
    phrase = [int(t) for t in rng.integers(0, 10, 9)]
    noisy = [int(t) for t in rng.integers(0, 3, 200)]
    long = []
    while len(long) < 1200:
        long += phrase[:int(rng.integers(2, 10))] + [int(t)
                                                     for t in rng.integers(0, 10,
                                                             int(rng.integers(0, 3)))]
    yield [1, 2, 3, 4, 1, 2, 3], [], dict()
    yield [1, 2, 3, 4, 1, 2, 3], [], dict(dry_allowed_length=3, dry_base=1.2)
    yield [1, 2, 3, 4, 1, 2, 3], [], dict(dry_allowed_length=4)
    yield [1, 2, 3, 4, 1, 2, 3], [2], dict(dry_allowed_length=1)
    yield [1, 2, 3, 4, 1, 2, 3], [4], dict()
    yield [1, 2, 3, 4, 1, 2, 3], [3], dict(dry_allowed_length=1)
    yield [5, 5, 5, 5, 5], [], dict(dry_base=1.1)
    yield [1, 2, 1, 2, 1, 2, 1], [], dict(dry_base=1.1)
    yield [1, 2, 1, 2, 1, 2, 1], [], dict(dry_base=1.1, dry_window=4)
    yield phrase + [7, 0] + phrase[:6] + [3] + phrase[:7], [], dict(dry_base=1.05)
    yield noisy, [], dict(dry_base=1.05, dry_multiplier=0.3)
    yield noisy, [], dict(dry_base=1.05, dry_multiplier=0.3, dry_window=50)
    yield noisy, [2], dict(dry_base=1.3, dry_multiplier=0.3, dry_allowed_length=1)
    yield long, [], dict(dry_base=1.05, dry_multiplier=0.2)
    yield long + long[:700], [], dict(dry_base=1.001, dry_multiplier=0.2)
    yield [4] * 1500, [], dict(dry_base=1.001, dry_multiplier=0.2)
    yield [1, 2, 3, 9, 1, 2, 3, 1, 2], [9], dict(dry_allowed_length=2)
    yield [6], [], dict(dry_allowed_length=1)
    yield [], [], dict(dry_allowed_length=1)


# ---- writing ----

def wrapped(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > MAX_WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(lines + [line])


def number(x):
    return f"{float(x):.9g}"


def floating(x):
    text = number(np.float32(x))
    return text + ("f" if "." in text or "e" in text or "n" in text else ".0f")


def list_of(out, kind, name, items):
    out.append(f"static const {kind} {name}[] = {{\n{wrapped(items)}\n}};")


class Cases:
    def __init__(self, out):
        self.out, self.rows, self.n_lists = out, [], 0

    def ints(self, values):
        if not values:
            return "NULL"
        name = f"list_{self.n_lists}"
        self.n_lists += 1
        list_of(self.out, "int32_t", name, [str(int(v)) for v in values])
        return name

    def add(self, logits, options, left, source, past=(), n_prompt=0, breakers=()):
        o = {**NEUTRAL, **options}
        ids = self.ints(list(left))
        name = f"list_{self.n_lists}"
        self.n_lists += 1
        list_of(self.out, "double", name, [number(p) for p in left.values()])
        settings = ", ".join(str(v) if isinstance(v, int) else f"{v}f" for k, v in o.items()
                             if k != "order")
        self.rows.append(
            f'    {{"{source}", logits_{logits}, (int)RVI_COUNT(logits_{logits}),\n'
            f'     OPTIONS({settings},\n             "{o["order"]}"),\n'
            f'     {self.ints(list(past))}, {len(past)}, {n_prompt}, {self.ints(list(breakers))}, '
            f'{len(breakers)}, '
            f'{ids}, {name}, {len(left)}}},')


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "tests", "decode", "data",
        "sampler_vectors.inc")
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = np.random.default_rng(seed)
    logits = {name: l.astype(np.float32) for name, l in all_logits(rng).items()}
    out = [
        "/* Written by tools/make_sampler_vectors.py (what is in it is said there); do not edit.",
        f" * seed {seed}, llama-cpp-python {llama_cpp.__version__}, transformers "
        f"{transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]} */",
        "/* clang-format off */",
    ]
    for name, values in logits.items():
        list_of(out, "float", f"logits_{name}", [floating(v) for v in values])
    cases = Cases(out)
    for i, options in enumerate(stage_options(rng)):
        for name in logits:
            if name == "vast" and i % 3:
                continue
            cases.add(name, options, *run_stages(logits[name], options))
    past = [int(t) for t in rng.integers(0, 12, 30)]
    for name in ("narrow", "usual", "below_zero"):
        for options in (dict(repetition_penalty=1.3),
                        dict(repetition_penalty=1.3, repetition_window=5),
                        dict(repetition_penalty=0.8, repetition_window=64)):
            options["order"] = "penalties"
            cases.add(name, options, *run_penalties(logits[name], past, 10, options), past, 10)
        for options in (dict(frequency_penalty=0.4), dict(presence_penalty=0.7),
                        dict(frequency_penalty=0.4, presence_penalty=-0.7)):
            options["order"] = "penalties"
            cases.add(name, options, *run_penalties(logits[name], past, 10, options), past, 10)
    for past, breakers, options in dry_cases(rng):
        options = {"dry_multiplier": 0.8, "order": "dry", **options}
        cases.add("narrow", options, *run_dry(logits["narrow"], past, breakers, options), past,
                  len(past) // 2, breakers)
    out.append("static const struct vector vectors[] = {\n" + "\n".join(cases.rows) + "\n};")
    rows = []
    for name in ("usual", "zipf", "vast"):
        for tau in (0.5, 2.0, 4.0):
            options = dict(mirostat_tau=tau, mirostat_eta=0.3)
            steps = run_mirostat(logits[name], options, 40)
            for k, part in (("kept", [n for n, _ in steps]), ("drawn", [t for _, t in steps])):
                list_of(out, "int32_t", f"{k}_{len(rows)}", [str(v) for v in part])
            rows.append(f"    {{logits_{name}, (int)RVI_COUNT(logits_{name}), {floating(tau)}, "
                        f"0.3f, kept_{len(rows)}, "
                        f"drawn_{len(rows)}, {len(steps)}}},")
    out.append("static const struct mirostat_vector mirostat_vectors[] = {\n" + "\n".join(rows)
               + "\n};")
    out.append("/* clang-format on */")
    with open(output, "w") as f:
        f.write("\n".join(out) + "\n")
    print(f"{len(cases.rows)} cases, {len(rows)} mirostat sequences")


if __name__ == "__main__":
    main()
