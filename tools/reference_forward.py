#!/usr/bin/env python3
"""The decoder forward pass in float64, written for clarity: the reference the engine's tests are
checked against.

    reference_forward.py MODEL --ids 1,2,3 [--lora DIR] [-o OUT]
            print the best next ids, or save all values
    reference_forward.py --check DIR [--check DIR ...]   compare with DIR/expected.safetensors

MODEL is a GGUF file or a Hugging Face folder (llama, mistral, qwen2, qwen3, phi3, gemma2). Needs
numpy; GGUF files also need the gguf package (reading and dequantization). Both loaders fill the
same `Model`, and one `forward` runs it.

Rules: "official" follows the model's own implementation. "llama.cpp" follows that program where it
differs: windows only for gemma2, YaRN's beta keys unread, GELU from a table of half precision
numbers.
"""
import argparse
import json
import math
import os
import struct

import numpy as np


class Linear:
    """y = x W^T + b, plus scale * (x A^T) B^T where an adapter is attached. W is [out, in]."""

    def __init__(self, weight, bias=None):
        self.weight, self.bias, self.lora = weight, bias, None

    def __call__(self, x):
        y = x @ self.weight.T
        if self.bias is not None:
            y = y + self.bias
        if self.lora is not None:
            a, b, scale = self.lora
            y = y + scale * ((x @ a.T) @ b.T)
        return y


class Model:
    """What both file formats are reduced to.

    n_head, n_kv, head_dim, eps, attn_scale, embed_scale, attn_cap, logit_cap (None: no cap) act:
    "silu", "gelu" (the tanh form) or "gelu table" (the same from half precision numbers) embed [V,
    n]; final_norm [n]; head: Linear or None (tied) n_rot, paired ("half": i with i + n_rot/2;
    "next": 2i with 2i + 1) freqs, long_freqs, switch: rotary frequencies [n_rot/2]; the long ones
    serve inputs of more than `switch` tokens rope_factor: multiplies cos and sin layers: dicts with
    norms "in", "post_attn", "mid", "post_mlp", "q_norm", "k_norm" (None where absent), Linears
            "qkv" (a list of one fused or three), "o", "gate_up" (likewise one or two), "down", and
            "window" (0: none)
    modules: the Linears of the layers by their Hugging Face name (for adapters)
    """

    def __init__(self, **fields):
        self.long_freqs, self.switch, self.rope_factor = None, 0, 1.0
        self.attn_cap = self.logit_cap = None
        self.embed_scale, self.act, self.paired = 1.0, "silu", "half"
        self.modules = {}
        self.__dict__.update(fields)


# ------------------------------------------------------------------------------
# rotary frequencies

def plain_freqs(n_rot, base):
    return np.float64(base) ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)


def llama3_freqs(freqs, factor, low, high, original):
    wave = 2 * np.pi / freqs
    smooth = (original / wave - low) / (high - low)
    mixed = (1 - smooth) * freqs / factor + smooth * freqs
    return np.where(wave < original / high, freqs, np.where(wave > original / low, freqs / factor,
        mixed))


def yarn_freqs(freqs, n_rot, base, factor, original, fast=32.0, slow=1.0, truncate=True):
    def dim_of(turns):
        return n_rot * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = dim_of(fast), dim_of(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, n_rot - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(n_rot // 2) - low) / (high - low), 0, 1)
    return freqs / factor * ramp + freqs * (1 - ramp)


def yarn_magnitude(factor, mscale=1.0):
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


# ------------------------------------------------------------------------------
# the forward

def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, cos, sin, paired):
    """x [T, heads, head_dim]; cos, sin [T, n_rot/2]. Elements beyond n_rot pass unchanged."""
    half = cos.shape[-1]
    out, c, s = x.copy(), cos[:, None, :], sin[:, None, :]
    first, second = (slice(0, half), slice(half, 2 * half)) if paired == "half" else \
                    (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * c - b * s, b * c + a * s
    return out


def activate(x, act):
    if act == "silu":
        return x / (1 + np.exp(-x))
    if act == "gelu table":
        return activate(x.astype("f2").astype("f8"), "gelu").astype("f2").astype("f8")
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def attend(m, layer, x, cos, sin):
    t, d = len(x), m.head_dim
    q_len, kv_len = m.n_head * d, m.n_kv * d
    rows = np.concatenate([f(x) for f in layer["qkv"]], -1)
    q = rows[:, :q_len].reshape(t, m.n_head, d)
    k = rows[:, q_len:q_len + kv_len].reshape(t, m.n_kv, d)
    v = rows[:, q_len + kv_len:].reshape(t, m.n_kv, d)
    if layer["q_norm"] is not None:
        q, k = rms_norm(q, layer["q_norm"], m.eps), rms_norm(k, layer["k_norm"], m.eps)
    q, k = rotate(q, cos, sin, m.paired), rotate(k, cos, sin, m.paired)
    group = m.n_head // m.n_kv
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    score = np.einsum("ihd,jhd->hij", q, k) * m.attn_scale
    if m.attn_cap:
        score = m.attn_cap * np.tanh(score / m.attn_cap)
    i, j = np.arange(t)[:, None], np.arange(t)[None, :]
    seen = j <= i
    if layer["window"]:
        seen &= j > i - layer["window"]
    score = np.where(seen, score, -np.inf)
    score = np.exp(score - score.max(-1, keepdims=True))
    score /= score.sum(-1, keepdims=True)
    return layer["o"](np.einsum("hij,jhd->ihd", score, v).reshape(t, q_len))


def forward(m, ids, use_long=None):
    """All values of one pass: (hidden, logits). hidden[0] the embeddings, hidden[i] the stream
    after layer i, the last after the final norm. use_long overrides the choice of the rotary
    frequencies."""
    t = len(ids)
    if use_long is None:
        use_long = m.long_freqs is not None and t > m.switch
    angle = np.arange(t, dtype=np.float64)[:, None] * (m.long_freqs if use_long else m.freqs)
    cos, sin = np.cos(angle) * m.rope_factor, np.sin(angle) * m.rope_factor
    x = m.embed[np.asarray(ids)] * m.embed_scale
    hidden = [x]
    for layer in m.layers:
        y = attend(m, layer, rms_norm(x, layer["in"], m.eps), cos, sin)
        if layer["post_attn"] is not None:
            y = rms_norm(y, layer["post_attn"], m.eps)
        x = x + y
        y = rms_norm(x, layer["mid"], m.eps)
        both = np.concatenate([f(y) for f in layer["gate_up"]], -1)
        n_ff = both.shape[-1] // 2
        y = layer["down"](activate(both[:, :n_ff], m.act) * both[:, n_ff:])
        if layer["post_mlp"] is not None:
            y = rms_norm(y, layer["post_mlp"], m.eps)
        x = x + y
        hidden.append(x)
    hidden[-1] = rms_norm(x, m.final_norm, m.eps)
    logits = m.head(hidden[-1]) if m.head is not None else hidden[-1] @ m.embed.T
    if m.logit_cap:
        logits = m.logit_cap * np.tanh(logits / m.logit_cap)
    return hidden, logits


def greedy(m, ids, n):
    ids = list(ids)
    for _ in range(n):
        ids.append(int(forward(m, ids)[1][-1].argmax()))
    return ids[-n:]


# ------------------------------------------------------------------------------
# safetensors

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1",
          "BF16": "<u2"}
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32",
         "uint8": "U8"}


def load_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    n, = struct.unpack_from("<Q", raw)
    head, out = json.loads(raw[8:8 + n]), {}
    for name, info in head.items():
        if name == "__metadata__":
            continue
        a, b = info["data_offsets"]
        x = np.frombuffer(raw[8 + n + a:8 + n + b], DTYPES[info["dtype"]])
        if info["dtype"] == "BF16":
            x = (x.astype("<u4") << 16).view("<f4")
        out[name] = x.reshape(info["shape"])
    return out


def save_safetensors(path, tensors, metadata=None):
    head, blobs, at = {}, [], 0
    if metadata:
        head["__metadata__"] = {k: str(v) for k, v in metadata.items()}
    for name in sorted(tensors):
        x = np.ascontiguousarray(tensors[name])
        blobs.append(x.tobytes())
        head[name] = {"dtype": NAMES[x.dtype.name], "shape": list(x.shape),
                      "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ------------------------------------------------------------------------------
# Hugging Face folders

def hf_weights(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return load_safetensors(os.path.join(folder, "model.safetensors"))
    with open(index) as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    out = {}
    for shard in shards:
        out.update(load_safetensors(os.path.join(folder, shard)))
    return out


def hf_rope(cfg, kind, head_dim):
    """Fields of Model that describe the rotation, from either style of config.json."""
    rp = dict(cfg.get("rope_scaling") or cfg.get("rope_parameters") or {})
    base = rp.get("rope_theta", cfg.get("rope_theta", 10000.0))
    part = rp.get("partial_rotary_factor", cfg.get("partial_rotary_factor", 1.0))
    style = rp.get("rope_type", rp.get("type", "default"))
    if kind == "phi3" and style in ("su", "yarn"):
        style = "longrope"
    longest = cfg.get("max_position_embeddings", 4096)
    original = cfg.get("original_max_position_embeddings",
                       rp.get("original_max_position_embeddings", 4096 if kind == "phi3"
                              else longest))
    n_rot = int(head_dim * part) if kind == "phi3" else head_dim
    freqs = plain_freqs(n_rot, base)
    out = dict(n_rot=n_rot, freqs=freqs)
    factor = rp.get("factor")
    if style == "linear":
        out["freqs"] = freqs / factor
    elif style == "llama3":
        out["freqs"] = llama3_freqs(freqs, factor, rp["low_freq_factor"], rp["high_freq_factor"],
                                    original)
    elif style == "yarn":
        factor = factor or longest / original
        out["freqs"] = yarn_freqs(freqs, n_rot, base, factor, original, rp.get("beta_fast") or 32.0,
                                  rp.get("beta_slow") or 1.0, rp.get("truncate", True))
        out["rope_factor"] = rp.get("attention_factor")
        if out["rope_factor"] is None:
            if rp.get("mscale") and rp.get("mscale_all_dim"):
                out["rope_factor"] = yarn_magnitude(factor, rp["mscale"]) / yarn_magnitude(factor,
                    rp["mscale_all_dim"])
            else:
                out["rope_factor"] = yarn_magnitude(factor)
    elif style == "longrope":
        factor = factor or longest / original
        given = rp.get("attention_factor")
        out["rope_factor"] = given if given is not None else \
            1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        out["freqs"] = freqs / np.asarray(rp["short_factor"])
        out["long_freqs"], out["switch"] = freqs / np.asarray(rp["long_factor"]), original
    elif style != "default":
        raise ValueError("rope type " + style)
    return out


def hf_windows(cfg, kind, n_layer):
    if kind == "llama":
        return [0] * n_layer
    window = cfg.get("sliding_window", None if kind == "phi3" else 4096)
    if kind in ("qwen2", "qwen3") and not cfg.get("use_sliding_window", False):
        window = None
    if not window:
        return [0] * n_layer
    if kind in ("mistral", "phi3"):
        return [window] * n_layer
    types = cfg.get("layer_types")
    if types:
        return [window if t == "sliding_attention" else 0 for t in types]
    if kind == "gemma2":
        return [0 if i % 2 else window for i in range(n_layer)]
    return [window if i >= cfg.get("max_window_layers", 28) else 0 for i in range(n_layer)]


def load_hf(folder):
    with open(os.path.join(folder, "config.json")) as f:
        cfg = json.load(f)
    kind = cfg["model_type"]
    w = {k: v.astype(np.float64) for k, v in hf_weights(folder).items()}
    n, n_layer, n_head = cfg["hidden_size"], cfg["num_hidden_layers"], cfg["num_attention_heads"]
    absent_kv = {"mistral": 8, "qwen2": 32, "qwen3": 32, "gemma2": 4}.get(kind)
    n_kv = cfg.get("num_key_value_heads", absent_kv) or n_head
    head_dim = cfg.get("head_dim", {"qwen3": 128, "gemma2": 256}.get(kind)) or n // n_head
    gemma = kind == "gemma2"
    m = Model(n_head=n_head, n_kv=n_kv, head_dim=head_dim, layers=[],
              embed=w["model.embed_tokens.weight"],
              eps=cfg.get("rms_norm_eps", 1e-5 if kind == "phi3" else 1e-6),
              attn_scale=head_dim ** -0.5,
              head=None if cfg.get("tie_word_embeddings", gemma) else Linear(w["lm_head.weight"]),
              **hf_rope(cfg, kind, head_dim))
    if gemma:
        m.act, m.embed_scale = "gelu", math.sqrt(n)
        m.attn_scale = cfg.get("query_pre_attn_scalar", 256) ** -0.5
        m.attn_cap, m.logit_cap = cfg.get("attn_logit_softcapping",
                                          50.0), cfg.get("final_logit_softcapping", 30.0)

    def norm(name):
        x = w.get(name + ".weight")
        return x + 1 if gemma and x is not None else x

    m.final_norm = norm("model.norm")
    for il, window in enumerate(hf_windows(cfg, kind, n_layer)):
        at = "model.layers.%d." % il

        def linear(name):
            m.modules[at + name] = Linear(w[at + name + ".weight"], w.get(at + name + ".bias"))
            return m.modules[at + name]

        fused = kind == "phi3"
        m.layers.append({
            "in": norm(at + "input_layernorm"), "window": window,
            "post_attn": norm(at + "post_attention_layernorm") if gemma else None,
            "mid": norm(at + ("pre_feedforward_layernorm" if gemma
                              else "post_attention_layernorm")),
            "post_mlp": norm(at + "post_feedforward_layernorm") if gemma else None,
            "q_norm": norm(at + "self_attn.q_norm"), "k_norm": norm(at + "self_attn.k_norm"),
            "qkv": [linear("self_attn." + p)
                    for p in (["qkv_proj"] if fused else ["q_proj", "k_proj", "v_proj"])],
            "o": linear("self_attn.o_proj"),
            "gate_up": [linear("mlp." + p)
                        for p in (["gate_up_proj"] if fused else ["gate_proj", "up_proj"])],
            "down": linear("mlp.down_proj")})
    return m


def attach_lora(m, folder):
    with open(os.path.join(folder, "adapter_config.json")) as f:
        cfg = json.load(f)
    stored = load_safetensors(os.path.join(folder, "adapter_model.safetensors"))
    w = {k: v.astype(np.float64) for k, v in stored.items()}
    for name, a in w.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name[len("base_model.model."):-len(".lora_A.weight")]
        rank = a.shape[0]
        alpha = cfg["lora_alpha"]
        for pattern, value in (cfg.get("alpha_pattern") or {}).items():
            if module.endswith(pattern):
                alpha = value
        scale = alpha / (math.sqrt(rank) if cfg.get("use_rslora") else rank)
        m.modules[module].lora = (a, w[name.replace("lora_A", "lora_B")], scale)


# ------------------------------------------------------------------------------
# GGUF files

def load_gguf(path, rules="official"):
    import gguf
    from gguf.quants import dequantize
    reader = gguf.GGUFReader(path)
    meta = {k: f.contents() for k, f in reader.fields.items()}
    arch = meta["general.architecture"]
    w = {t.name: dequantize(t.data,
                            t.tensor_type).astype(np.float64).reshape(tuple(
                                reversed(t.shape.tolist())))
         for t in reader.tensors}

    def get(key, default=None):
        value = meta.get(arch + "." + key, default)
        if value is None:
            raise KeyError(arch + "." + key)
        return value

    n, n_layer, n_head = get("embedding_length"), get("block_count"), get("attention.head_count")
    head_dim = get("attention.key_length", n // n_head)
    n_rot, base = get("rope.dimension_count", head_dim), get("rope.freq_base", 10000.0)
    gemma = arch == "gemma2"
    m = Model(n_head=n_head, n_kv=get("attention.head_count_kv", n_head), head_dim=head_dim,
              layers=[], n_rot=n_rot,
              eps=get("attention.layer_norm_rms_epsilon"), embed=w["token_embd.weight"],
              final_norm=w["output_norm.weight"], attn_scale=head_dim ** -0.5,
              paired="next" if arch == "llama" else "half",
              head=Linear(w["output.weight"]) if "output.weight" in w and not gemma else None)
    if gemma:
        m.act, m.embed_scale = "gelu table" if rules == "llama.cpp" else "gelu", math.sqrt(n)
        m.attn_scale = (n // n_head if n_layer == 46 else head_dim) ** -0.5
        m.attn_cap, m.logit_cap = get("attn_logit_softcapping",
                                      50.0), get("final_logit_softcapping", 30.0)

    style, factor = get("rope.scaling.type", "linear"), get("rope.scaling.factor",
        get("rope.scale_linear", 0.0)) or 1.0
    original = get("rope.scaling.original_context_length", get("context_length"))
    m.freqs, m.rope_factor = plain_freqs(n_rot, base), get("rope.scaling.attn_factor", 1.0)
    if "rope_freqs.weight" in w:
        m.freqs = m.freqs / w["rope_freqs.weight"]
    if style == "linear":
        m.freqs = m.freqs / factor
    elif style == "yarn":
        fast, slow = (32.0, 1.0) if rules == "llama.cpp" else \
            (get("rope.scaling.yarn_beta_fast", 32.0), get("rope.scaling.yarn_beta_slow", 1.0))
        m.freqs = yarn_freqs(m.freqs, n_rot, base, factor, original, fast, slow)
        m.rope_factor *= yarn_magnitude(factor)
    if "rope_factors_long.weight" in w:
        m.long_freqs, m.switch = m.freqs / w["rope_factors_long.weight"], original
        m.freqs = m.freqs / w["rope_factors_short.weight"]

    window = get("attention.sliding_window", 4096 if gemma else 0)
    if rules == "llama.cpp" and not gemma:
        window = 0
    for il in range(n_layer):
        at = "blk.%d." % il

        def linear(name):
            return Linear(w[at + name + ".weight"], w.get(at + name + ".bias"))

        fused_qkv, fused_mlp = at + "attn_qkv.weight" in w, at + "ffn_gate.weight" not in w
        m.layers.append({
            "in": w[at + "attn_norm.weight"], "mid": w[at + "ffn_norm.weight"],
            "window": window if not gemma or il % 2 == 0 else 0,
            "post_attn": w.get(at + "post_attention_norm.weight"), "post_mlp": w.get(at
                + "post_ffw_norm.weight"),
            "q_norm": w.get(at + "attn_q_norm.weight"), "k_norm": w.get(at + "attn_k_norm.weight"),
            "qkv": [linear(p)
                    for p in (["attn_qkv"] if fused_qkv else ["attn_q", "attn_k", "attn_v"])],
            "o": linear("attn_output"),
            "gate_up": [linear(p) for p in (["ffn_up"] if fused_mlp else ["ffn_gate", "ffn_up"])],
            "down": linear("ffn_down")})
    return m


def load(path, rules="official"):
    return load_hf(path) if os.path.isdir(path) else load_gguf(path, rules)


# ------------------------------------------------------------------------------
# command line

def check(folder):
    """Largest differences between this program and a golden folder's expected values."""
    want, m = load_safetensors(os.path.join(folder, "expected.safetensors")), load_hf(folder)
    hidden, logits = forward(m, want["tokens"])
    row = {"logits": np.abs(logits - want["logits"]).max(),
           "hidden": max(np.abs(h - want["hidden.%d" % i]).max() for i, h in enumerate(hidden))}
    if "long_last_logits" in want:
        row["long"] = np.abs(forward(m,
                                     want["long_tokens"])[1][-1] - want["long_last_logits"]).max()
    same = greedy(m, want["tokens"][:16], len(want["greedy"])) == want["greedy"].tolist()
    row["greedy"] = "equal" if same else "DIFFERS"
    lora = os.path.join(folder, "lora")
    if os.path.isdir(lora):
        want = load_safetensors(os.path.join(lora, "expected.safetensors"))
        attach_lora(m, lora)
        tokens = load_safetensors(os.path.join(folder, "expected.safetensors"))["tokens"]
        row["lora"] = np.abs(forward(m, tokens)[1] - want["logits"]).max()
    return row


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("model", nargs="?")
    ap.add_argument("--ids", help="comma separated token ids")
    ap.add_argument("--lora", help="adapter folder")
    ap.add_argument("--rules", choices=["official", "llama.cpp"], default="official")
    ap.add_argument("--check", action="append", default=[], metavar="DIR")
    ap.add_argument("-o", "--out", help="save tokens, hidden.N and logits (float64) as a "
                                        "safetensors file")
    o = ap.parse_args()
    for folder in o.check:
        row = check(folder)
        print("%-24s" % os.path.basename(os.path.normpath(folder)),
              "  ".join("%s %s" % (k, v if isinstance(v, str) else "%.1e" % v) for k,
                        v in row.items()), flush=True)
    if o.model:
        ids = [int(x) for x in o.ids.replace(",", " ").split()]
        m = load(o.model, o.rules)
        if o.lora:
            attach_lora(m, o.lora)
        hidden, logits = forward(m, ids)
        best = np.argsort(-logits[-1])[:10]
        print(" ".join("%d:%.5f" % (i, logits[-1][i]) for i in best))
        if o.out:
            values = {"hidden.%d" % i: h for i, h in enumerate(hidden)}
            save_safetensors(o.out, {"tokens": np.asarray(ids, "<i4"), "logits": logits, **values})


if __name__ == "__main__":
    main()
