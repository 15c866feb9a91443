#!/usr/bin/env python3
"""Write tiny GGUF models with seeded random weights, one for every trait an engine must read right.

    make_tiny_gguf.py OUT_DIR [NAME ...]      write OUT_DIR/NAME.gguf (all of them by default)
    make_tiny_gguf.py --list

The float32 kinds vary the architecture; the q-* kinds are one small llama in each weight type, made
of random valid blocks. Every file carries a synthetic tokenizer of its vocabulary, so that any GGUF
program loads it. The weights mean nothing: two correct engines must compute the same logits from
them. Needs numpy only.
"""
import argparse
import os
import struct
import zlib

import numpy as np

VOCAB = 320

# name: (type id in the file, general.file_type of a file made of it, elements per block, bytes per
# block)
TYPES = {
    "f32": (0, 0, 1, 4), "f16": (1, 1, 1, 2), "bf16": (30, 32, 1, 2),
    "q4_0": (2, 2, 32, 18), "q4_1": (3, 3, 32, 20), "q5_0": (6, 8, 32, 22), "q5_1": (7, 9, 32, 24),
    "q8_0": (8, 7, 32, 34), "q2_k": (10, 10, 256, 84), "q3_k": (11, 11, 256, 110), "q4_k": (12, 14,
        256, 144),
    "q5_k": (13, 16, 256, 176), "q6_k": (14, 18, 256, 210), "iq4_nl": (20, 25, 32, 18),
    "iq4_xs": (23, 30, 256, 136),
}


# ------------------------------------------------------------------------------
# the models

def kind(arch, tokenizer="bpe", embd=48, ff=64, heads=4, kv=2, layers=2, ctx=512, tied=True,
         **more):
    """One model. `more` may hold: head_dim, rot (rotary size), base, eps, window, scaling (the
    metadata under rope.scaling), rope_freqs (parameters of llama3_divisors), long_factors (True:
    write both factor tensors), biases (tensors that have one), q_type."""
    m = dict(arch=arch, tokenizer=tokenizer, embd=embd, ff=ff, heads=heads, kv=kv, layers=layers,
             ctx=ctx, tied=tied,
             base=10000.0, eps=1e-5, scaling={}, q_type="f32", biases=())
    m.update(more)
    m["explicit_head"] = "head_dim" in more
    m.setdefault("head_dim", embd // heads)
    m.setdefault("rot", m["head_dim"])
    return m


KINDS = {
    "llama": kind("llama", tied=False),
    "llama-spm": kind("llama", "spm", kv=4),
    "llama3-rope": kind("llama", heads=2, kv=1, base=500000.0,
                        rope_freqs=dict(factor=8.0, original=64)),
    "llama-linear": kind("llama", heads=2, kv=1, scaling=dict(type="linear", factor=4.0)),
    "llama-yarn": kind("llama", heads=2, kv=1, ctx=256,
                       scaling=dict(type="yarn", factor=4.0, original_context_length=64)),
    "llama-mqa": kind("llama", kv=1),
    "llama-head48": kind("llama", heads=2, kv=1, head_dim=48),
    "llama-head80": kind("llama", heads=2, kv=1, head_dim=80, ff=32),
    "llama-bias": kind("llama", biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate",
                                        "ffn_up", "ffn_down")),
    "mistral": kind("llama", "spm", heads=4, kv=2, head_dim=24, window=48),
    "qwen2": kind("qwen2", base=1e6, eps=1e-6, biases=("attn_q", "attn_k", "attn_v")),
    "qwen2-yarn": kind("qwen2", heads=2, kv=1, base=1e6, eps=1e-6,
                       biases=("attn_q", "attn_k", "attn_v"),
                       scaling=dict(type="yarn", factor=4.0, original_context_length=128)),
    "qwen3": kind("qwen3", base=1e6, eps=1e-6, head_dim=32),
    "phi3": kind("phi3", "spm", kv=4, tied=False, window=48,
                 scaling=dict(original_context_length=512)),
    "phi3-longrope": kind("phi3", "spm", heads=2, kv=2, ctx=2048, window=262144, long_factors=True,
                          scaling=dict(original_context_length=256)),
    "phi3-partial": kind("phi3", heads=2, kv=1, rot=18, ctx=2048, window=262144, long_factors=True,
                         scaling=dict(original_context_length=256)),
    "gemma2": kind("gemma2", "spm", heads=2, kv=1, eps=1e-6, head_dim=32, window=24, layers=3),
    "gemma2-27b": kind("gemma2", "spm", embd=8, ff=8, heads=2, kv=1, eps=1e-6, head_dim=8,
                       window=24, layers=46),
}
for _t in TYPES:
    if TYPES[_t][2] == 256:      # rows of whole super-blocks
        KINDS["q-" + _t] = kind("llama", embd=256, ff=256, heads=4, kv=1, layers=1, q_type=_t)
    elif _t != "f32":            # rows of 3 and 5 blocks
        KINDS["q-" + _t] = kind("llama", embd=96, ff=160, heads=2, kv=1, layers=1, q_type=_t)


# ------------------------------------------------------------------------------
# metadata

def pack_str(text):
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def pack_value(value):
    """A metadata value with its type: bool, int (u32), float (f32), str, or a list of int (i32),
    float or str."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + pack_str(value)
    head = struct.pack("<IIQ", 9, {int: 5, float: 6, str: 8}[type(value[0])], len(value))
    if isinstance(value[0], str):
        return head + b"".join(map(pack_str, value))
    return head + np.asarray(value, "<i4" if isinstance(value[0], int) else "<f4").tobytes()


def metadata(m):
    arch = m["arch"]
    own = {
        "context_length": m["ctx"], "embedding_length": m["embd"], "block_count": m["layers"],
        "feed_forward_length": m["ff"], "attention.head_count": m["heads"],
        "attention.head_count_kv": m["kv"],
        "attention.layer_norm_rms_epsilon": m["eps"],
    }
    if m["explicit_head"]:
        own["attention.key_length"] = own["attention.value_length"] = m["head_dim"]
    if m.get("window"):
        own["attention.sliding_window"] = m["window"]
    if arch == "gemma2":         # such files carry no rotary keys
        own["attn_logit_softcapping"], own["final_logit_softcapping"] = 50.0, 30.0
    else:
        own["rope.freq_base"] = m["base"]
    if arch in ("llama", "phi3"):
        own["rope.dimension_count"], own["vocab_size"] = m["rot"], VOCAB
    for key, value in m["scaling"].items():
        own["rope.scaling." + key] = value
    if m.get("long_factors"):
        original = m["scaling"]["original_context_length"]
        own["rope.scaling.attn_factor"] = float(np.sqrt(1
                                                        + np.log(m["ctx"] / original) / np.log(
                                                            original)))
    out = {"general.architecture": arch, "general.name": "Tiny Random",
           "general.file_type": TYPES[m["q_type"]][1], "general.quantization_version": 2}
    out.update((arch + "." + key, value) for key, value in own.items())
    out.update(("tokenizer." + key, value) for key, value in tokenizer(m).items())
    return out


# ------------------------------------------------------------------------------
# synthetic vocabularies

LETTERS = "eariotnslcudpmhgbfywkvxzjq"


def byte_letters():
    """The printable stand-ins with which byte-level BPE vocabularies write the 256 bytes."""
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    hidden = {b: 256 + i for i, b in enumerate(b for b in range(256) if b not in shown)}
    return [chr(hidden.get(b, b)) for b in range(256)]


def tokenizer(m):
    """VOCAB entries: 256 bytes, a few pieces, the special tokens."""
    if m["tokenizer"] == "bpe":
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
        n = VOCAB - 256 - len(special)
        pairs = [("\u0120", c) for c in LETTERS] + [(a, b) for a in LETTERS for b in LETTERS]
        pairs = pairs[:n]
        return {
            "ggml.model": "gpt2", "ggml.pre": "qwen2" if m["arch"].startswith("qwen") else "smollm",
            "ggml.tokens": byte_letters() + [a + b for a, b in pairs] + special,
            "ggml.token_type": [1] * (256 + n) + [3] * len(special),
            "ggml.merges": [a + " " + b for a, b in pairs],
            "ggml.bos_token_id": 256 + n + 1, "ggml.eos_token_id": 256 + n + 2,
            "ggml.padding_token_id": 256 + n + 3,
            "ggml.add_bos_token": False,
        }
    gemma = m["arch"] == "gemma2"
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] if gemma else ["<unk>", "<s>", "</s>"]
    unk, bos, eos = (3, 2, 1) if gemma else (0, 1, 2)
    n = VOCAB - 256 - len(special)
    pieces = (["\u2581" + c for c in LETTERS] + ["\u2581"] + list(LETTERS)
              + [".", ",", "!", "?", "'", "-", ":"] +
              list("0123456789"))[:n]
    return {
        "ggml.model": "llama", "ggml.pre": "default",
        "ggml.tokens": special + ["<0x%02X>" % b for b in range(256)] + pieces,
        "ggml.scores": [0.0] * (VOCAB - n) + [-float(i) for i in range(n)],
        "ggml.token_type": [2 if i == unk else 3 for i in range(len(special))] + [6] * 256
        + [1] * n,
        "ggml.bos_token_id": bos, "ggml.eos_token_id": eos, "ggml.unknown_token_id": unk,
        "ggml.add_bos_token": True, "ggml.add_eos_token": False, "ggml.add_space_prefix": not gemma,
    }


# ------------------------------------------------------------------------------
# weights

# Root mean square of a block of random bits at scale 1, with the minimum chosen so that the mean is
# zero.
SPREAD = {"q4_0": 4.64, "q4_1": 4.61, "q5_0": 9.25, "q5_1": 9.23, "q8_0": 73.9, "iq4_nl": 69.0,
          "q2_k": 9.8,
          "q3_k": 42.0, "q4_k": 169.0, "q5_k": 338.0, "q6_k": 1365.0, "iq4_xs": 1270.0}


def half_bytes(x):
    return np.asarray(x, "<f2").view(np.uint8).reshape(-1, 2)


def random_blocks(rng, q_type, n, sigma):
    """n elements of a weight type: random bits, with scales that give a standard deviation of about
    sigma."""
    _, _, per, size = TYPES[q_type]
    if q_type in ("f32", "f16"):
        return rng.normal(0, sigma, n).astype("<f4" if q_type == "f32" else "<f2").tobytes()
    if q_type == "bf16":
        return (rng.normal(0, sigma, n).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    n_blocks = n // per
    block = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    d = sigma / SPREAD[q_type] * rng.uniform(0.6, 1.4, n_blocks)
    # formats whose scale may be negative
    if q_type in ("q4_0", "q5_0", "q3_k", "iq4_nl", "iq4_xs"):
        d *= rng.choice([-1.0, 1.0], n_blocks)
    d16 = np.asarray(d, "<f2")
    at = {"q2_k": 80, "q3_k": 108, "q6_k": 208}.get(q_type, 0)
    block[:, at:at + 2] = half_bytes(d16)
    middle = {"q4_1": -7.5, "q5_1": -15.5, "q2_k": 1.5, "q4_k": 7.5, "q5_k": 15.5}.get(q_type)
    if middle is not None:       # the minimum (or its scale) follows the scale
        block[:, at + 2:at + 4] = half_bytes(d16.astype("<f4") * middle)
    # Minima near the scales of their sub-blocks, but never all equal to them: far apart, most of a
    # weight would be an
    # offset that cancels in the sums and leaves rounding behind.
    if q_type == "q2_k":         # scale | minimum << 4
        low = block[:, :16] & 15
        block[:, :16] = low | (low ^ (block[:, :16] >> 4 & 3)) << 4
    elif q_type in ("q4_k", "q5_k"):   # 4 bytes of scales, 4 of minima, 4 of low nibbles of both
        block[:, 8:12] = block[:, 4:8] ^ (block[:, 8:12] & 7)
        low = block[:, 12:16] & 15
        block[:, 12:16] = low | (low ^ (block[:, 12:16] >> 4 & 3)) << 4
    return block.tobytes()


def llama3_divisors(n_rot, base, factor, original, low=1.0, high=4.0):
    wave = 2 * np.pi * base ** (np.arange(0, n_rot, 2) / n_rot)
    smooth = (original / wave - low) / (high - low)
    mixed = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wave < original / high, 1, np.where(wave > original / low, factor, mixed))


def tensors(name, m):
    """[(name, shape with the row length first, type, bytes)] in file order."""
    out = []
    n, ff, q, kv = m["embd"], m["ff"], m["heads"] * m["head_dim"], m["kv"] * m["head_dim"]
    phi, gemma = m["arch"] == "phi3", m["arch"] == "gemma2"
    # many layers of full weight would amplify rounding
    post_gain = 1.0 if m["layers"] < 8 else 0.2

    def rng_of(tensor):
        return np.random.Generator(np.random.PCG64(zlib.crc32((name + "/" + tensor).encode())))

    def matrix(tensor, row, rows, gain):
        out.append((tensor + ".weight", (row, rows), m["q_type"],
                    random_blocks(rng_of(tensor), m["q_type"], row * rows, gain / row ** 0.5)))
        bare = tensor.rsplit(".", 1)[-1]
        if bare in m["biases"]:
            vector(tensor + ".bias", rng_of(tensor + ".bias").normal(0, 0.3, rows))

    def vector(tensor, values):
        out.append((tensor, (len(values),), "f32", np.asarray(values, "<f4").tobytes()))

    def norm(tensor, size, gain=1.0):
        vector(tensor + ".weight", rng_of(tensor).normal(1.0, 0.15, size) * gain)

    matrix("token_embd", n, VOCAB, 1.0 if gemma else n ** 0.5 if not m["tied"] else 1.5)
    if m.get("rope_freqs"):
        vector("rope_freqs.weight", llama3_divisors(m["rot"], m["base"], **m["rope_freqs"]))
    if m.get("long_factors"):
        i = np.arange(m["rot"] // 2)
        vector("rope_factors_long.weight", 1.0 + 0.75 * i)
        vector("rope_factors_short.weight", 1.0 + 0.03 * i)
    for il in range(m["layers"]):
        at = "blk.%d." % il
        norm(at + "attn_norm", n)
        if phi:
            matrix(at + "attn_qkv", n, q + 2 * kv, 1.4)
        else:
            matrix(at + "attn_q", n, q, 1.4)
            matrix(at + "attn_k", n, kv, 1.4)
            matrix(at + "attn_v", n, kv, 1.0)
        if m["arch"] == "qwen3":
            norm(at + "attn_q_norm", m["head_dim"])
            norm(at + "attn_k_norm", m["head_dim"])
        matrix(at + "attn_output", q, n, 1.0)
        if gemma:
            norm(at + "post_attention_norm", n, post_gain)
        norm(at + "ffn_norm", n)
        if not phi:
            matrix(at + "ffn_gate", n, ff, 1.2)
        matrix(at + "ffn_up", n, 2 * ff if phi else ff, 1.2)
        matrix(at + "ffn_down", ff, n, 1.0)
        if gemma:
            norm(at + "post_ffw_norm", n, post_gain)
    norm("output_norm", n)
    if not m["tied"]:
        matrix("output", n, VOCAB, 1.5)
    return out


def write(path, name, m):
    write_file(path, metadata(m), tensors(name, m))


def write_file(path, meta, parts, align=32):
    head = [b"GGUF", struct.pack("<IQQ", 3, len(parts), len(meta))]
    head += [pack_str(key) + pack_value(value) for key, value in meta.items()]
    at = 0
    for tensor, shape, q_type, data in parts:
        head.append(pack_str(tensor) + struct.pack("<I%dQ" % len(shape), len(shape), *shape) +
                    struct.pack("<IQ", TYPES[q_type][0], at))
        at += len(data) + -len(data) % align
    head = b"".join(head)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % align))
        for _, _, _, data in parts:
            f.write(data + bytes(-len(data) % align))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("out", nargs="?", help="output folder")
    ap.add_argument("names", nargs="*", help="kinds to write (default: all)")
    ap.add_argument("--list", action="store_true", help="list the kinds")
    o = ap.parse_args()
    if o.list or not o.out:
        for name, m in KINDS.items():
            print("%-14s %-7s embd %d ff %d heads %d/%d x %d layers %d %s" % (
                name, m["arch"], m["embd"], m["ff"], m["heads"], m["kv"], m["head_dim"],
                m["layers"], m["q_type"]))
        return
    for name in o.names or KINDS:
        path = os.path.join(o.out, name + ".gguf")
        write(path, name, KINDS[name])
        print("%-24s %8d bytes" % (path, os.path.getsize(path)))


if __name__ == "__main__":
    main()
