#!/usr/bin/env python3
"""`litellm` from PyPI, unmodified, against `ruvllm serve` with SmolLM2 in three dialects: chat,
stream, tools, structured output, embeddings, the list of models, errors, cancelling. Skipped where
the package or the model cannot be had. Prints TAP."""
import json
import os
from typing import Literal

from packages import run_with

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
run_with("litellm==1.99.4")

import litellm  # noqa: E402
import pydantic  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 30}},
        "required": ["city"]}}}


class City(pydantic.BaseModel):
    name: str
    country: Literal["France", "Spain"]


def tools(model, way):
    asked = {"model": model, **way, "temperature": 0, "max_tokens": 200, "tools": [WEATHER],
             "tool_choice": "required",
             "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
    r = litellm.completion(**asked)
    call = r.choices[0].message.tool_calls[0]
    verdict(f"litellm: {model} calls a tool", call.function.name == "get_weather" and
            isinstance(json.loads(call.function.arguments)["city"], str) and
            r.choices[0].finish_reason == "tool_calls", r)
    pieces = list(litellm.completion(stream=True, **asked))
    whole = litellm.stream_chunk_builder(pieces).choices[0].message.tool_calls[0]
    verdict(f"litellm: {model} does so in a stream",
            json.loads(whole.function.arguments) == json.loads(call.function.arguments), whole)
    talk = asked["messages"] + [r.choices[0].message, {
        "role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": "It rains."}]
    r = litellm.completion(**{**asked, "messages": talk, "tool_choice": "none"})
    verdict(f"litellm: {model} reads its result", r.choices[0].message.content, r)


def structures(model, way, asked):
    r = litellm.completion(model=model, **way, **{**asked, "max_tokens": 200},
                           response_format=City)
    text = r.choices[0].message.content
    verdict(f"litellm: {model} fills a class of pydantic",
            isinstance(City.model_validate_json(text), City), r)


def leaving(model, way, asked, server):
    before = server.metric("requests_cancelled_total")
    stream = litellm.completion(model=model, stream=True, **way, **{**asked, "max_tokens": 4000},
                                extra_body={"ignore_eos": True})
    for _ in zip(range(3), stream):
        pass
    stream.completion_stream.close()
    verdict(f"litellm: leaving a stream of {model} cancels it",
            server.wait_for_metric("requests_cancelled_total", before + 1) == before + 1)


def lite(server):
    url = f"http://127.0.0.1:{server.port}"
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
        structures(model, way, asked)
    for model in ("openai/smollm2", "anthropic/smollm2"):  # Ollama has no tool_choice
        tools(model, ways[model])
    leaving("openai/smollm2", ways["openai/smollm2"], asked, server)
    verdict("litellm: one answer in three dialects", len(texts) == 1, texts)
    r = litellm.embedding(model="openai/smollm2", input=["tea"], **ways["openai/smollm2"])
    verdict("litellm: embeddings", len(r.data[0]["embedding"]) == 576)
    names = litellm.get_valid_models(check_provider_endpoint=True, custom_llm_provider="openai",
                                     api_key="any", api_base=url + "/v1")
    verdict("litellm: models", names == ["openai/smollm2"] or names == ["smollm2"], names)
    for name, changes, kind in (
            ("an unknown model", {"model": "openai/other"}, litellm.NotFoundError),
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
        lite(server)
finish()
