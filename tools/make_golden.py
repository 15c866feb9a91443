#!/usr/bin/env python3
"""Make golden folders: tiny random models in the Hugging Face layout with values computed by
transformers in float64.

    make_golden.py OUT_DIR SPECS.json [NAME ...]        the models of a list
    make_golden.py OUT_DIR --random N [--seed S]        N random configurations

A list entry is an object:
  name       folder name
  config     what config.json shall hold, word for word (model_type decides the architecture; either
             style of rotary
             settings); transformers reads it back from the written file, so its reading of it is
             the measure
  dtype      float32, float16 or bfloat16: how the weights are stored (default bfloat16)
  shards     number of weight files, with an index, if more than 1
  lora       optional adapter: r, alpha, and any of targets (module names), rslora, dtype,
             alpha_pattern, rank_pattern

A folder holds config.json, the weights, expected.safetensors and perhaps lora/
(tests/golden/README.md describes them). Needs torch, transformers, safetensors.
"""
import argparse
import json
import math
import os
import random
import zlib

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

N_TOKENS, N_PROMPT, N_GREEDY, N_LONG = 48, 16, 32, 300
# least gap between the best two logits of a greedy step, so that rounding decides none
CLEAR = 2e-3


def build(folder, dtype):
    config = AutoConfig.from_pretrained(folder)
    torch.set_default_dtype(dtype)
    try:
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                dtype=dtype).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def draw_weights(model, gen):
    """Matrices at 1/sqrt(row), so that activations keep their size; norms and biases each with
    values of their own."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen, dtype=torch.float32)
            if p.ndim == 2:
                p.copy_(noise * (1.2 / math.sqrt(p.shape[1])))
            else:
                p.add_(noise * 0.15)


def store_weights(model, folder, dtype, shards):
    state = {k: v.detach().to(dtype).contiguous().clone() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    if shards <= 1:
        save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        return state
    where, names = {}, sorted(state)
    for i in range(shards):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, shards)
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        save_file({k: state[k] for k in part}, os.path.join(folder, file), {"format": "pt"})
        where.update((k, file) for k in part)
    total = sum(v.numel() * v.element_size() for v in state.values())
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f, indent=1)
    return state


def clear_greedy(model, prompt):
    """The greedy continuation, and the smallest gap met."""
    ids, least = prompt.tolist(), math.inf
    for _ in range(N_GREEDY):
        top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        least = min(least, float(top.values[0] - top.values[1]))
        ids.append(int(top.indices[0]))
    return ids[len(prompt):], least


@torch.no_grad()
def base_values(model, gen):
    vocab = model.config.vocab_size
    for _ in range(20):
        tokens = torch.randint(3, vocab, (N_TOKENS,), generator=gen)
        continuation, gap = clear_greedy(model, tokens[:N_PROMPT])
        if gap > CLEAR:
            break
    out = model(tokens[None], output_hidden_states=True, use_cache=False)
    values = {"tokens": tokens.int(), "logits": out.logits[0].float(),
              "greedy": torch.tensor(continuation, dtype=torch.int32)}
    for i, h in enumerate(out.hidden_states):
        values["hidden.%d" % i] = h[0].float()
    long_tokens = torch.randint(3, vocab, (N_LONG,), generator=gen)
    values["long_tokens"] = long_tokens.int()
    if model.config.max_position_embeddings >= N_LONG:
        values["long_last_logits"] = model(long_tokens[None], use_cache=False).logits[0, -1].float()
    return values, gap


class Adapter:
    """Low-rank additions to the chosen linear layers, attached by hooks."""

    def __init__(self, model, spec, gen):
        self.spec, self.parts = spec, {}
        store = getattr(torch, spec.get("dtype", "float32"))
        for name, module in model.named_modules():
            leaf = name.rsplit(".", 1)[-1]
            if not isinstance(module, nn.Linear) or ".layers." not in name or leaf not in spec.get(
                    "targets", [leaf]):
                continue
            rank = self.of(name, "rank_pattern", spec["r"])
            alpha = self.of(name, "alpha_pattern", spec["alpha"])
            a = (torch.randn(rank, module.in_features, generator=gen) * 0.1).to(
                store).double().requires_grad_()
            b = (torch.randn(module.out_features, rank, generator=gen) * 0.1).to(
                store).double().requires_grad_()
            scale = alpha / (math.sqrt(rank) if spec.get("rslora") else rank)
            module.register_forward_hook(lambda m, x, y, a=a, b=b, s=scale: y
                                         + s * (x[0] @ a.T) @ b.T)
            self.parts[name] = (a, b)

    def of(self, name, table, default):
        return next((v for k, v in self.spec.get(table, {}).items() if name == k
                     or name.endswith("." + k)), default)

    def store(self, folder, base):
        dtype = getattr(torch, self.spec.get("dtype", "float32"))
        weights = {"base_model.model.%s.lora_%s.weight"
                   % (name, letter): p.detach().to(dtype).contiguous()
                   for name, pair in self.parts.items() for letter, p in zip("AB", pair)}
        save_file(weights, os.path.join(folder, "adapter_model.safetensors"))
        config = dict(peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path=base,
                      r=self.spec["r"],
                      lora_alpha=self.spec["alpha"], lora_dropout=0.0, bias="none",
                      fan_in_fan_out=False,
                      use_rslora=bool(self.spec.get("rslora")), inference_mode=True,
                      target_modules=sorted({n.rsplit(".", 1)[-1] for n in self.parts}))
        config.update((k, self.spec[k]) for k in ("alpha_pattern", "rank_pattern")
                      if k in self.spec)
        with open(os.path.join(folder, "adapter_config.json"), "w") as f:
            json.dump(config, f, indent=1)


def adapter_values(model, adapter, tokens):
    logits = model(tokens[None].long(), use_cache=False).logits[0]
    loss = nn.functional.cross_entropy(logits[:-1], tokens[1:].long())
    loss.backward()
    values = {"logits": logits.detach().float(), "loss": loss.detach().float().reshape(1)}
    for name, pair in adapter.parts.items():
        for letter, p in zip("AB", pair):
            values["grad.base_model.model.%s.lora_%s.weight" % (name, letter)] = p.grad.float()
    return values


def make(out, spec):
    name, dtype = spec["name"], getattr(torch, spec.get("dtype", "bfloat16"))
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(spec["config"], f, indent=1)
    gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = build(folder, torch.float32)
    draw_weights(model, gen)
    state = store_weights(model, folder, dtype, spec.get("shards", 1))
    # a fresh one: no rotary table or scale ever had a smaller type
    model = build(folder, torch.float64)
    missing = model.load_state_dict({k: v.double() for k, v in state.items()},
                                    strict=False).missing_keys
    if any(k != "lm_head.weight" or not model.config.tie_word_embeddings for k in missing):
        raise SystemExit("%s: weights without a value: %s" % (name, missing))
    model.tie_weights()
    model.requires_grad_(False)
    values, gap = base_values(model, gen)
    save_file({k: v.contiguous() for k, v in values.items()},
              os.path.join(folder, "expected.safetensors"))
    line = "%-26s std %.2f  least greedy gap %.4f" % (name, values["logits"].std(), gap)
    if "lora" in spec:
        inner = os.path.join(folder, "lora")
        os.makedirs(inner, exist_ok=True)
        adapter = Adapter(model, spec["lora"], gen)
        adapter.store(inner, name)
        with_it = adapter_values(model, adapter, values["tokens"])
        save_file({k: v.contiguous() for k, v in with_it.items()},
                  os.path.join(inner, "expected.safetensors"))
        line += "  adapter moves logits by %.2f" % (
            with_it["logits"] - values["logits"]).abs().max()
    print(line, flush=True)


# ----------------------------------------------------------------------------------------------
# random configurations

def random_rope(rng, kind, head_dim, longest):
    """Rotary settings as one dictionary (the new style), and the rotary size."""
    rope = {"rope_type": "default",
            "rope_theta": rng.choice([10000.0, 50000.0, 500000.0, 1000000.0])}
    if kind == "phi3":
        part = rng.choice([1.0, 0.75, 0.5])
        rope["partial_rotary_factor"] = part
        if rng.random() < 0.6:
            half = int(head_dim * part) // 2
            rope.update(rope_type="longrope",
                        original_max_position_embeddings=rng.choice([64, 100, 256]),
                        short_factor=[round(1 + rng.random() * 0.3, 4) for _ in range(half)],
                        long_factor=[round(1 + i * rng.random(), 4) for i in range(half)])
        return rope
    if kind == "gemma2":
        return rope
    style = rng.choice(["default", "linear", "llama3", "yarn"])
    rope["rope_type"] = style
    if style != "default":
        rope["factor"] = rng.choice([2.0, 3.5, 8.0])
    if style in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = rng.choice([32, 64, 200])
    if style == "llama3":
        rope.update(low_freq_factor=rng.choice([1.0, 2.0]), high_freq_factor=rng.choice([4.0, 6.0]))
    if style == "yarn":
        if rng.random() < 0.4:
            rope.update(mscale=rng.choice([0.7, 1.0]), mscale_all_dim=rng.choice([0.5, 1.0]))
        elif rng.random() < 0.4:
            rope["attention_factor"] = rng.choice([0.8, 1.25])
        if rng.random() < 0.5:
            rope.update(beta_fast=rng.choice([16, 40]), beta_slow=rng.choice([2, 0.5]))
        if rng.random() < 0.3:
            rope["truncate"] = False
    return rope


def random_spec(rng, i):
    kind = rng.choice(["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2"])
    head_dim = rng.choice([32, 48, 64, 80, 96, 128])
    heads, layers, longest = rng.choice([2, 3, 4, 6]), rng.choice([1, 2, 3]), rng.choice([512,
        2048])
    kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    free_width = kind not in ("phi3", "qwen2")
    hidden = heads * rng.choice([16, 24, 40, 64]) if free_width else heads * head_dim
    cfg = dict(model_type=kind, vocab_size=rng.choice([256, 301, 400]), hidden_size=hidden,
               intermediate_size=rng.choice([64, 100, 192, 256]), num_hidden_layers=layers,
               num_attention_heads=heads,
               num_key_value_heads=kv, max_position_embeddings=longest,
               rms_norm_eps=rng.choice([1e-5, 1e-6]),
               tie_word_embeddings=rng.random() < 0.5, bos_token_id=1, eos_token_id=2,
               pad_token_id=0)
    cfg["architectures"] = [{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
                             "qwen3": "Qwen3", "phi3": "Phi3",
                             "gemma2": "Gemma2"}[kind] + "ForCausalLM"]
    if free_width:
        cfg["head_dim"] = head_dim
    rope = random_rope(rng, kind, head_dim, longest)
    if "original_max_position_embeddings" in rope and kind == "phi3":
        cfg["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    if rng.random() < 0.5:
        cfg["rope_parameters"] = rope
    else:
        cfg["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            cfg["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        cfg["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    window = rng.choice([17, 32, 50, None])
    if kind == "llama":
        cfg["attention_bias"], cfg["mlp_bias"] = rng.random() < 0.3, rng.random() < 0.3
    elif kind in ("mistral", "phi3"):
        cfg["sliding_window"] = window
    elif kind in ("qwen2", "qwen3"):
        cfg.update(use_sliding_window=window is not None, sliding_window=window or 64,
                   max_window_layers=rng.choice([0, 1, layers]))
    else:
        cfg.update(sliding_window=window or 40,
                   query_pre_attn_scalar=rng.choice([head_dim, 100, 224]),
                   attn_logit_softcapping=rng.choice([50.0, 20.0, None]),
                   final_logit_softcapping=rng.choice([30.0, 10.0, None]),
                   hidden_activation="gelu_pytorch_tanh")
    spec = dict(name="random-%s-%03d" % (kind, i), config=cfg, shards=rng.choice([1, 1, 1, 3]),
                dtype=rng.choice(["bfloat16", "float16", "float32"]))
    if rng.random() < 0.4:
        spec["lora"] = dict(r=rng.choice([1, 3, 8]), alpha=rng.choice([2, 5, 16]),
                            rslora=rng.random() < 0.3)
    return spec


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("out")
    ap.add_argument("specs", nargs="?", help="JSON list of models")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--random", type=int, default=0, metavar="N")
    ap.add_argument("--seed", type=int, default=1)
    o = ap.parse_args()
    torch.set_num_threads(1)
    specs = []
    if o.specs:
        with open(o.specs) as f:
            specs = [s for s in json.load(f) if not o.names or s["name"] in o.names]
    rng = random.Random(o.seed)
    specs += [random_spec(rng, i) for i in range(o.random)]
    for spec in specs:
        make(o.out, spec)


if __name__ == "__main__":
    main()
