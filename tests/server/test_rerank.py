#!/usr/bin/env python3
"""/rerank of models that make vectors, /infill of those that have the tokens for it; the others say
so. Prints TAP."""
import os
import sys
import tempfile

from serving import MODEL, Server, finish, verdict, without_encoder

without_encoder()
sys.path.insert(0, "tests/cli")
from gguf_edit import edit  # noqa: E402

TEXTS = ["the cat", "a dog runs", "the cat"]
GAP = {"input_prefix": "def f(", "input_suffix": "return x", "n_predict": 4, "temperature": 0,
       "ignore_eos": True}


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def ranks(s):
    vectors = [x["embedding"] for x in s.post("/v1/embeddings", {
        "input": ["the cat", *TEXTS]})[2]["data"]]
    scores = [cosine(vectors[0], v) for v in vectors[1:]]
    for path in ("/rerank", "/v1/rerank", "/v1/reranking"):
        r = s.post(path, {"query": "the cat", "documents": TEXTS})[2]
        verdict(f"{path}: the nearest first, of equals the earlier",
                [x["index"] for x in r["results"]] == [0, 2, 1] and r["object"] == "list" and
                r["usage"]["prompt_tokens"] > 4, r)
    verdict("scores are cosines of the vectors of /v1/embeddings",
            all(abs(x["relevance_score"] - scores[x["index"]]) < 1e-5 for x in r["results"]),
            (r, scores))
    r = s.post("/rerank", {"query": "the cat", "documents": TEXTS, "top_n": 1,
                           "return_documents": True})[2]
    verdict("fewer, with their texts", [x["document"] for x in r["results"]] ==
            [{"text": "the cat"}], r)
    r = s.post("/rerank", {"query": "the cat", "texts": TEXTS, "return_text": True})[2]
    verdict("the other shape", [(x["index"], x["text"]) for x in r] ==
            [(0, "the cat"), (2, "the cat"), (1, "a dog runs")] and "score" in r[0], r)
    for name, body in {"no query": {"documents": TEXTS}, "no texts": {"query": "x"},
                       "an empty list": {"query": "x", "documents": []},
                       "numbers": {"query": "x", "documents": [1, 2]},
                       "a query of another type": {"query": 3, "documents": TEXTS},
                       "top_n 0": {"query": "x", "documents": TEXTS, "top_n": 0}}.items():
        status, _, r = s.post("/rerank", body)
        verdict(f"{name} is 400", status == 400 and r["error"]["message"], r)
    status, _, r = s.post("/infill", GAP)
    verdict("an encoder fills no gap", status == 400 and "gap" in r["error"]["message"], r)


def fills(s, marks):
    r = s.post("/infill", {**GAP, "return_tokens": True})[2]
    begin, pre, suf, mid = s.post("/tokenize", {
        "content": "".join(marks), "add_special": True, "parse_special": True})[2]["tokens"]

    def ids(text):
        return s.post("/tokenize", {"content": text, "add_special": False,
                                    "parse_special": False})[2]["tokens"]
    prompt = [begin, pre, *ids(GAP["input_prefix"]), suf, *ids(GAP["input_suffix"]), mid]
    same = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0,
                                      "ignore_eos": True})[2]
    verdict("what stands before and behind the gap, each behind its token",
            r["content"] == same["choices"][0]["text"] and len(r["tokens"]) == 4 and
            r["tokens_evaluated"] == len(prompt), (r, same))
    r = s.post("/infill", {**GAP, "prompt": " a", "input_extra": [
        {"filename": "b.py", "text": "x = 1"}]})[2]
    verdict("with other files and a beginning", r["tokens_evaluated"] > len(prompt) + 4, r)
    events = s.stream("/infill", GAP)[0]
    verdict("streamed", "".join(e["content"] for e in events) ==
            same["choices"][0]["text"] and events[-1]["stop"], events)
    inside = s.post("/infill", {**GAP, "input_prefix": marks[2]})[2]
    verdict("a token's name in the text is text",
            inside["tokens_evaluated"] > len(prompt) - len(ids(GAP["input_prefix"])) + 1, inside)
    for name, body in {"no prefix": {"input_suffix": "x"}, "a number": {**GAP, "input_suffix": 3},
                       "extra texts that are none": {**GAP, "input_extra": [{"text": 1}]},
                       "extra texts in no list": {**GAP, "input_extra": "x"}}.items():
        status, _, r = s.post("/infill", body)
        verdict(f"{name} is 400", status == 400 and r["error"]["message"], r)


with Server(model="tests/gguf/bert.gguf") as s:
    ranks(s)
with Server("--ctx", "256") as s:
    status, _, r = s.post("/infill", GAP)
    verdict("a model without the tokens says so", status == 400 and
            r["error"]["code"] == "unsupported_model", r)
    status, _, r = s.post("/rerank", {"query": "a", "documents": ["b"]})
    verdict("a model that generates does not rank", status == 400 and
            r["error"]["code"] == "unsupported_model", r)
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "fim.gguf")
    marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    edit(MODEL, file, {}, {280 + i: m.encode() for i, m in enumerate(marks)})
    with Server("--ctx", "256", model=file) as s:
        fills(s, marks)
verdict("the server ended well", s.status == 0)
finish()
