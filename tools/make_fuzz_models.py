#!/usr/bin/env python3
"""Write the seeds of tests/fuzz/fuzz_model.c and fuzz_embed.c: whole GGUF models of a few
kilobytes, with vocabularies of 40 tokens.

    make_fuzz_models.py SEEDS_DIR      (tests/fuzz/seeds)

The models are those of make_tiny_gguf.py, narrower. Needs numpy only.
"""
import os
import sys

import numpy as np

import make_tiny_gguf as tiny

tiny.VOCAB = 40
LETTERS = tiny.LETTERS
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }} {{ m['content'] | trim }}<|im_end|>"
            "{% endfor %}")


def small_tokenizer(m):
    """Letters, a few pieces, the special tokens; no byte tokens."""
    if m["tokenizer"] == "bpe":
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        merges = [("\u0120", "t"), ("h", "e"), ("\u0120t", "he"), ("e", "a"), ("i", "n"),
                  ("o", "n")]
        tokens = ["\u0120"] + list(LETTERS) + [a + b for a, b in merges]
        tokens += [str(i) for i in range(tiny.VOCAB - len(tokens) - len(special))] + special
        return {
            "ggml.model": "gpt2", "ggml.pre": "llama-bpe", "ggml.tokens": tokens,
            "ggml.token_type": [1] * (tiny.VOCAB - len(special)) + [3] * len(special),
            "ggml.merges": [a + " " + b for a, b in merges],
            "ggml.bos_token_id": tiny.VOCAB - 3, "ggml.eos_token_id": tiny.VOCAB - 1,
            "ggml.add_bos_token": True,
            "chat_template": TEMPLATE,
        }
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581"] + list(LETTERS) + ["\u2581t", "he",
        "\u2581the"]
    tokens += [str(i) for i in range(tiny.VOCAB - len(tokens))]
    return {
        "ggml.model": "llama", "ggml.tokens": tokens,
        "ggml.scores": [-float(i) for i in range(tiny.VOCAB)],
        "ggml.token_type": [2, 3, 3, 6] + [1] * (tiny.VOCAB - 4),
        "ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0,
        "ggml.add_bos_token": True,
    }


tiny.tokenizer = small_tokenizer
SMALL = dict(embd=16, ff=16, heads=2, kv=1, layers=1, ctx=64)
KINDS = {
    "spm": tiny.kind("gemma2", "spm", head_dim=8, window=8, **dict(SMALL, layers=2)),
    "bpe": tiny.kind("qwen2", biases=("attn_q", "attn_k", "attn_v"),
                     scaling=dict(type="yarn", factor=4.0, original_context_length=16), **SMALL),
    "quantized": tiny.kind("llama", "spm", q_type="q4_0", tied=False,
                           rope_freqs=dict(factor=8.0, original=16),
                           **dict(SMALL, embd=32, ff=32)),
    "fused": tiny.kind("phi3", q_type="q8_0", window=16, long_factors=True,
                       scaling=dict(original_context_length=16),
                       **dict(SMALL, embd=32, ff=32)),
}



def write_bert(path, q_type, width=32, ff=32, heads=2, positions=24):
    """An encoder of one layer, with WordPiece."""
    rng = np.random.Generator(np.random.PCG64(7))
    parts = []

    def add(name, *shape):
        kind = q_type if len(shape) == 2 and shape[1] >= 32 else "f32"
        parts.append((name, shape, kind, tiny.random_blocks(rng, kind, int(np.prod(shape)), 0.3)))

    for name, rows in (("token_embd", tiny.VOCAB), ("position_embd", positions),
                       ("token_types", 2)):
        add(name + ".weight", width, rows)
    for name, row, rows in (("attn_q", width, width), ("attn_k", width, width),
                            ("attn_v", width, width),
                            ("attn_output", width, width), ("ffn_up", width, ff), ("ffn_down", ff,
                                width)):
        add("blk.0.%s.weight" % name, row, rows)
        add("blk.0.%s.bias" % name, rows)
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        add(name + ".weight", width)
        add(name + ".bias", width)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + ["\u2581" + c
                                                     for c in LETTERS[:18]] + list(LETTERS[:15])
    tokens += ["\u2581the", "ing", "\u2581."]
    tiny.write_file(path, {
        "general.architecture": "bert", "bert.block_count": 1, "bert.context_length": positions,
        "bert.embedding_length": width, "bert.feed_forward_length": ff,
        "bert.attention.head_count": heads,
        "bert.attention.layer_norm_epsilon": 1e-12, "bert.attention.causal": False,
        "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 4 + [1] * (tiny.VOCAB - 4),
        "tokenizer.ggml.unknown_token_id": 1,
    }, parts)


for name, model in KINDS.items():
    path = os.path.join(sys.argv[1], "model", name + ".gguf")
    tiny.write(path, name, model)
    print("%-40s %6d bytes" % (path, os.path.getsize(path)))
for name, kind in (("model/bert", "f32"), ("embed/bert", "f32"), ("embed/quantized", "q8_0")):
    path = os.path.join(sys.argv[1], name + ".gguf")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_bert(path, kind, *((16, 16) if kind == "f32" else (32, 32)))
    print("%-40s %6d bytes" % (path, os.path.getsize(path)))
