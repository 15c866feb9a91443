#!/usr/bin/env python3
"""Make the tiny BERT models of tests/golden and tests/gguf: random weights, values by transformers
in float64.

    make_bert_models.py GOLDEN_DIR GGUF_DIR [NAME ...]

A golden folder holds config.json, model.safetensors, 1_Pooling/config.json where a pooling is
declared, and expected.safetensors: `tokens` [40] int32; `hidden.0` (after the norm of the
embeddings) to `hidden.L`; `mean`, `cls` and `last`, the pooled final states (not normalized);
`long_tokens` (as many as there are positions) and `long_mean`. A GGUF file NAME.gguf has the same
beside it as NAME.expected.safetensors, computed from its dequantized weights, and a vocabulary of
its own. Needs torch, transformers, safetensors, gguf, numpy.
"""
import json
import math
import os
import sys
import zlib

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

import make_tiny_gguf as tiny

N_TOKENS = 40


def config(**more):
    base = dict(model_type="bert", architectures=["BertModel"], vocab_size=100, hidden_size=48,
                num_hidden_layers=2,
                num_attention_heads=4, intermediate_size=80, max_position_embeddings=72,
                type_vocab_size=2,
                hidden_act="gelu", layer_norm_eps=1e-12, position_embedding_type="absolute",
                pad_token_id=0)
    return dict(base, **more)


# prefix: of every tensor name; older: gamma and beta for LayerNorm; extra: heads that take no part
GOLDEN = {
    "bert": dict(config=config(), dtype="float32", extra=["embeddings.position_ids"]),
    "bert-cls": dict(config=config(hidden_size=60, num_attention_heads=3, intermediate_size=100,
                                   hidden_act="gelu_new",
                                   layer_norm_eps=1e-5),
                     dtype="bfloat16", prefix="bert.", older=True, pooling="cls",
                     extra=["cls.predictions.bias"]),
    "bert-relu": dict(config=config(hidden_size=32, num_attention_heads=1, intermediate_size=50,
                                    num_hidden_layers=3,
                                    hidden_act="relu", type_vocab_size=1,
                                    max_position_embeddings=130),
                      dtype="float16", pooling="lasttoken"),
}
GGUF = {
    "bert": dict(config=config(), q_type="f32", pooling=1, cased=False),
    "bert-q8_0": dict(config=config(hidden_size=64, num_attention_heads=2, intermediate_size=96,
                                    num_hidden_layers=1),
                      q_type="q8_0", pooling=2, cased=True),
}


def build(cfg, dtype):
    torch.set_default_dtype(dtype)
    try:
        return BertModel(BertConfig(**cfg, attn_implementation="eager")).to(dtype).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def draw(cfg, gen):
    """Weights by name. Attention is made sharp enough that every part shows in the result."""
    out = {}
    for name, p in build(cfg, torch.float32).state_dict().items():
        noise = torch.randn(p.shape, generator=gen)
        if "LayerNorm.weight" in name:
            out[name] = 1 + 0.15 * noise
        elif p.ndim == 1:
            out[name] = 0.3 * noise
        elif "embeddings" in name:
            out[name] = noise
        else:
            out[name] = noise * (2.0 if "query" in name or "key" in name
                                 else 1.2) / math.sqrt(p.shape[1])
    return out


@torch.no_grad()
def values(cfg, state, gen):
    model = build(cfg, torch.float64)
    model.load_state_dict({k: v.double() for k, v in state.items()})
    tokens = torch.randint(0, cfg["vocab_size"], (N_TOKENS,), generator=gen)
    many = torch.randint(0, cfg["vocab_size"], (cfg["max_position_embeddings"],), generator=gen)
    run = model(tokens[None], output_hidden_states=True)
    last = run.hidden_states[-1][0]
    out = {"hidden.%d" % i: h[0].float() for i, h in enumerate(run.hidden_states)}
    out.update(tokens=tokens.int(), mean=last.mean(0).float(), cls=last[0].float(),
               last=last[-1].float(),
               long_tokens=many.int(), long_mean=model(many[None]).last_hidden_state[0].mean(
                   0).float())
    return {k: v.contiguous() for k, v in out.items()}


def save_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def golden(out, name, m):
    folder, cfg = os.path.join(out, name), m["config"]
    gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    dtype = getattr(torch, m["dtype"])
    state = {k: v.to(dtype) for k, v in draw(cfg, gen).items()}
    stored = {}
    for k, v in state.items():
        if m.get("older"):
            k = k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias",
                "LayerNorm.beta")
        stored[m.get("prefix", "") + k] = v.contiguous()
    for k in m.get("extra", []):
        ids = torch.arange(cfg["max_position_embeddings"])[None]
        stored[k] = ids.clone() if k.endswith("ids") else torch.zeros(cfg["vocab_size"],
            dtype=dtype)
    save_json(os.path.join(folder, "config.json"), cfg)
    if "pooling" in m:
        flags = {"pooling_mode_" + k: k.startswith(m["pooling"])
                 for k in ("cls_token", "mean_tokens", "lasttoken")}
        save_json(os.path.join(folder, "1_Pooling", "config.json"),
                  dict(word_embedding_dimension=cfg["hidden_size"], pooling_mode_max_tokens=False,
                       **flags))
    save_file(stored, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    save_file(values(cfg, state, gen), os.path.join(folder, "expected.safetensors"))
    print(name)


# ------------------------------------------------------------------------------
# GGUF

NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def gguf_name(name):
    bare, suffix = name.rsplit(".", 1)
    if bare.startswith("encoder.layer."):
        _, _, layer, rest = bare.split(".", 3)
        return "blk.%s.%s.%s" % (layer, NAMES[rest], suffix)
    return NAMES[bare] + "." + suffix


def vocabulary(n, cased):
    """Pieces that begin a word carry U+2581, those within one stand bare."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("eariotnslcudpmhgbfywkvxzjq")
    words = ["the", "river", "tea", "walk", "in"] + (["The", "River"] if cased else [])
    pieces = ["\u2581" + w for w in letters + words + list(".,!?'-")] + letters + ["ing", "er",
        "ed"]
    tokens = special + pieces[:n - len(special)]
    tokens += ["\u2581[unused%d]" % i for i in range(n - len(tokens))]
    return tokens, [3] * len(special) + [1] * (n - len(special))


def write_gguf(out, name, m):
    cfg, q_type = m["config"], m["q_type"]
    gen = torch.Generator().manual_seed(zlib.crc32(("gguf/" + name).encode()))
    state, parts = {}, []
    for key, v in draw(cfg, gen).items():
        if key.startswith("pooler."):
            state[key] = v
            continue
        quantized = (q_type != "f32" and v.ndim == 2 and "token_type" not in key
                     and "position" not in key)
        kind = getattr(gguf.GGMLQuantizationType, q_type.upper())
        raw = gguf.quants.quantize(v.numpy(), kind) if quantized else v.numpy()
        state[key] = torch.from_numpy(gguf.quants.dequantize(raw,
            kind).reshape(v.shape).copy()) if quantized else v
        parts.append((gguf_name(key), tuple(reversed(v.shape)), q_type if quantized else "f32",
                      np.ascontiguousarray(raw).tobytes()))
    tokens, types = vocabulary(cfg["vocab_size"], m["cased"])
    meta = {
        "general.architecture": "bert", "general.name": "Tiny Random BERT",
        "general.file_type": tiny.TYPES[q_type][1], "general.quantization_version": 2,
        "bert.block_count": cfg["num_hidden_layers"],
        "bert.context_length": cfg["max_position_embeddings"],
        "bert.embedding_length": cfg["hidden_size"],
        "bert.feed_forward_length": cfg["intermediate_size"],
        "bert.attention.head_count": cfg["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.attention.causal": False, "bert.pooling_type": m["pooling"],
        "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "jina-v2-en",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2, "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.mask_token_id": 4,
    }
    tiny.write_file(os.path.join(out, name + ".gguf"), meta, parts)
    save_file(values(cfg, state, gen), os.path.join(out, name + ".expected.safetensors"))
    print(name + ".gguf")


def main():
    torch.set_num_threads(1)
    chosen = sys.argv[3:]
    for name, m in GOLDEN.items():
        if not chosen or name in chosen:
            golden(sys.argv[1], name, m)
    for name, m in GGUF.items():
        if not chosen or name + ".gguf" in chosen:
            write_gguf(sys.argv[2], name, m)


main()
