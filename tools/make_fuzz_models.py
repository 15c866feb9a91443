#!/usr/bin/env python3
"""Write the seeds of tests/fuzz/fuzz_model.c: whole GGUF models of a few kilobytes, with vocabularies of 40 tokens.

    make_fuzz_models.py OUT_DIR      (tests/fuzz/seeds/model)

The models are those of make_tiny_gguf.py, narrower. Needs numpy only.
"""
import os
import sys

import make_tiny_gguf as tiny

tiny.VOCAB = 40
LETTERS = tiny.LETTERS
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m['content'] | trim }}<|im_end|>{% endfor %}"


def small_tokenizer(m):
    """Letters, a few pieces, the special tokens; no byte tokens."""
    if m["tokenizer"] == "bpe":
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        merges = [("\u0120", "t"), ("h", "e"), ("\u0120t", "he"), ("e", "a"), ("i", "n"), ("o", "n")]
        tokens = ["\u0120"] + list(LETTERS) + [a + b for a, b in merges]
        tokens += [str(i) for i in range(tiny.VOCAB - len(tokens) - len(special))] + special
        return {
            "ggml.model": "gpt2", "ggml.pre": "llama-bpe", "ggml.tokens": tokens,
            "ggml.token_type": [1] * (tiny.VOCAB - len(special)) + [3] * len(special),
            "ggml.merges": [a + " " + b for a, b in merges],
            "ggml.bos_token_id": tiny.VOCAB - 3, "ggml.eos_token_id": tiny.VOCAB - 1, "ggml.add_bos_token": True,
            "chat_template": TEMPLATE,
        }
    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581"] + list(LETTERS) + ["\u2581t", "he", "\u2581the"]
    tokens += [str(i) for i in range(tiny.VOCAB - len(tokens))]
    return {
        "ggml.model": "llama", "ggml.tokens": tokens,
        "ggml.scores": [-float(i) for i in range(tiny.VOCAB)],
        "ggml.token_type": [2, 3, 3, 6] + [1] * (tiny.VOCAB - 4),
        "ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0, "ggml.add_bos_token": True,
    }


tiny.tokenizer = small_tokenizer
SMALL = dict(embd=16, ff=16, heads=2, kv=1, layers=1, ctx=64)
KINDS = {
    "spm": tiny.kind("gemma2", "spm", head_dim=8, window=8, **dict(SMALL, layers=2)),
    "bpe": tiny.kind("qwen2", biases=("attn_q", "attn_k", "attn_v"),
                     scaling=dict(type="yarn", factor=4.0, original_context_length=16), **SMALL),
    "quantized": tiny.kind("llama", "spm", q_type="q4_0", tied=False, rope_freqs=dict(factor=8.0, original=16),
                           **dict(SMALL, embd=32, ff=32)),
    "fused": tiny.kind("phi3", q_type="q8_0", window=16, long_factors=True, scaling=dict(original_context_length=16),
                       **dict(SMALL, embd=32, ff=32)),
}

for name, model in KINDS.items():
    path = os.path.join(sys.argv[1], name + ".gguf")
    tiny.write(path, name, model)
    print("%-40s %6d bytes" % (path, os.path.getsize(path)))
