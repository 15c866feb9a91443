#!/usr/bin/env python3
"""`litellm` from PyPI, unmodified, against `ruvllm serve` with SmolLM2 in three dialects: chat,
stream, embeddings, errors. Skipped where the package or the model cannot be had. Prints TAP."""
import os

from packages import run_with

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
run_with("litellm==1.99.4")

import litellm  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."


def lite(url):
    asked = {"messages": [{"role": "user", "content": ASK}], "temperature": 0, "max_tokens": 60}
    ways = {"openai/smollm2": {"api_base": url + "/v1", "api_key": "any"},
            "anthropic/smollm2": {"api_base": url, "api_key": "any"},
            "ollama_chat/smollm2": {"api_base": url}}
    texts = set()
    for model, way in ways.items():
        r = litellm.completion(model=model, **way, **asked)
        text = r.choices[0].message.content
        texts.add(text)
        verdict(f"litellm: {model}", "Paris" in text and r.usage.completion_tokens > 0, r)
        pieces = [p.choices[0].delta.content or ""
                  for p in litellm.completion(model=model, stream=True, **way, **asked)]
        verdict(f"litellm: {model} streams the same", "".join(pieces) == text, pieces)
    verdict("litellm: one answer in three dialects", len(texts) == 1, texts)
    r = litellm.embedding(model="openai/smollm2", input=["tea"], **ways["openai/smollm2"])
    verdict("litellm: embeddings", len(r.data[0]["embedding"]) == 576)
    for name, changes, kind in (
            ("an unknown model", {"model": "openai/gpt-5"}, litellm.NotFoundError),
            ("a prompt that is too long", {"model": "openai/smollm2", "messages": [
                {"role": "user", "content": "tea " * 20000}]},
             litellm.ContextWindowExceededError)):
        try:
            litellm.completion(**{**asked, **ways["openai/smollm2"], **changes})
            trouble = None
        except Exception as e:
            trouble = e
        verdict(f"litellm: {name} is {kind.__name__}", isinstance(trouble, kind), repr(trouble))


if not has_smollm2():
    skip("litellm", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        lite(f"http://127.0.0.1:{server.port}")
finish()
