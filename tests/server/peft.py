"""Adapters for the test model."""
import json
import os
import random
import struct

WIDTH, LAYERS, RANK = 48, 2, 2  # of the test model


def write_adapter(folder, seed, width=WIDTH):
    """A PEFT directory with random matrices on q_proj."""
    rng = random.Random(seed)
    os.makedirs(folder)
    with open(folder + "/adapter_config.json", "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 64,
                   "target_modules": ["q_proj"]}, f)
    head, body = {}, b""
    for layer in range(LAYERS):
        for side, shape in (("A", [RANK, width]), ("B", [width, RANK])):
            values = struct.pack(f"<{RANK * width}f",
                                 *(rng.uniform(-1, 1) for _ in range(RANK * width)))
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{side}.weight"
            head[name] = {"dtype": "F32", "shape": shape,
                          "data_offsets": [len(body), len(body) + len(values)]}
            body += values
    text = json.dumps(head).encode()
    with open(folder + "/adapter_model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)
