#!/usr/bin/env python3
"""Write tests/real/data/smollm2_embeddings.json: pooled final hidden states of SmolLM2 by
transformers.

    make_smollm2_embeddings.py MODEL.gguf > tests/real/data/smollm2_embeddings.json

Needs torch, transformers and gguf. The GGUF file is dequantized to float32; hidden states are those
after the last norm. Vectors are float32, rounded to 6 digits; "mean" is the mean over all tokens,
"last" the last token's state.
"""
import json
import pathlib
import sys

import torch
import transformers

TEXTS = [
    "tea", "The ferry leaves at nine.", "A boat departs in the morning.",
    "def area(width, height):\n    return width * height", "Größe, naïve café, 今天天气很好 👋🏽",
    "On the first day the miller walked along the river, counted three boats and wrote the number "
    "into a small blue book. " * 4,
]


def main():
    gguf = pathlib.Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = transformers.AutoModel.from_pretrained(gguf.parent, gguf_file=gguf.name,
                                                   dtype=torch.float32).eval()
    rows = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0]
        rows.append({"text": text, "ids": ids,
                     "mean": [round(v, 6) for v in hidden.mean(0).tolist()],
                     "last": [round(v, 6) for v in hidden[-1].tolist()]})
    made_by = "transformers %s, torch %s, float32 of SmolLM2-135M-Instruct.Q4_1.gguf" % (
        transformers.__version__, torch.__version__)
    print('{"made_by": %s,\n "texts": [' % json.dumps(made_by))
    print(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in rows))
    print("]}")


main()
