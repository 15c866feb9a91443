#!/usr/bin/env python3
"""The `openai` package from PyPI, unmodified, against `ruvllm serve` with SmolLM2: chat, stream,
structured output, embeddings, models, typed errors, cancelling; and feedback in other words.
Skipped where the package or the model cannot be had. Prints TAP."""
import datetime
import json
from typing import Literal

from packages import run_with

run_with("openai==3.49.0")

import openai  # noqa: E402
import pydantic  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

FRANCE = [{"role": "user", "content": "Name the capital city of France."}]


def error_of(call):
    try:
        call()
    except openai.APIError as e:
        return e
    return None


def chats(c):
    r = c.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0)
    text = r.choices[0].message.content
    verdict("a chat", "Paris" in text and r.choices[0].finish_reason == "stop" and
            r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r)
    chunks = list(c.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0,
                                            stream=True, stream_options={"include_usage": True}))
    verdict("a stream says the same",
            "".join(k.choices[0].delta.content or "" for k in chunks if k.choices) == text and
            chunks[-1].usage == r.usage.model_copy(
                update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}), chunks)
    r = c.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=3,
                             temperature=0, logprobs=1)
    verdict("a completion with log probabilities",
            "Paris" in r.choices[0].text and len(r.choices[0].logprobs.tokens) == 3, r)


class City(pydantic.BaseModel):
    name: str
    country: Literal["France", "Spain"]
    founded: datetime.date


def tools(c):
    weather = {"type": "function", "function": {
        "name": "get_weather", "description": "The weather in a city.",
        "parameters": {"type": "object", "additionalProperties": False, "properties": {
            "city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1,
                                                          "maximum": 9}},
            "required": ["city", "days"]}}}
    asked = [{"role": "user", "content": "What is the weather in Rome for the next 3 days?"}]
    options = {"model": "smollm2", "messages": asked, "temperature": 0, "max_tokens": 200,
               "tools": [weather], "tool_choice": "required"}
    r = c.chat.completions.create(**options)
    call = r.choices[0].message.tool_calls[0]
    given = json.loads(call.function.arguments)
    verdict("a tool is called",
            r.choices[0].finish_reason == "tool_calls" and call.function.name == "get_weather" and
            given["city"] in ("Paris", "Rome") and 1 <= given["days"] <= 9, r)
    with c.chat.completions.stream(**options) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls[0]
    verdict("and the same in a stream", streamed.function.arguments == call.function.arguments and
            streamed.function.name == call.function.name, streamed)
    talk = asked + [r.choices[0].message, {"role": "tool", "tool_call_id": call.id,
                                           "content": "Sunny."}]
    r = c.chat.completions.create(**{**options, "messages": talk, "tool_choice": "none",
                                     "max_tokens": 30})
    verdict("its result goes back in", bool(r.choices[0].message.content), r)


def structures(c):
    r = c.chat.completions.parse(model="smollm2", messages=FRANCE, temperature=0, max_tokens=200,
                                 response_format=City)
    verdict("a class of pydantic is filled", isinstance(r.choices[0].message.parsed, City), r)
    with c.chat.completions.stream(model="smollm2", messages=FRANCE, temperature=0, max_tokens=200,
                                   response_format=City) as stream:
        streamed = stream.get_final_completion()
    verdict("and the same one in a stream",
            streamed.choices[0].message.parsed == r.choices[0].message.parsed, streamed)
    r = c.chat.completions.create(model="smollm2", messages=FRANCE, max_tokens=64,
                                  response_format={"type": "json_object"})
    verdict("an object of JSON", isinstance(json.loads(r.choices[0].message.content), dict), r)
    wish = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"format": "idn-email"}}}
    e = error_of(lambda: c.chat.completions.create(model="smollm2", messages=FRANCE,
                                                   response_format=wish))
    verdict("a schema that cannot be enforced is BadRequestError, with its reason",
            isinstance(e, openai.BadRequestError) and e.code == "invalid_json_schema" and
            "idn-email" in e.message, e)


def vectors(c):
    r = c.embeddings.create(model="smollm2", input=["tea", "cake"])  # as base64
    f = c.embeddings.create(model="smollm2", input=["tea", "cake"], encoding_format="float")
    verdict("embeddings, packed or not",
            len(r.data) == 2 and
            all(max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-7
                for a, b in zip(r.data, f.data)), len(r.data))
    verdict("models", [m.id for m in c.models.list()] == ["smollm2"] and
            c.models.retrieve("smollm2").object == "model")


def errors(c, port):
    e = error_of(lambda: c.chat.completions.create(model="gpt-5", messages=FRANCE))
    verdict("an unknown model is NotFoundError",
            isinstance(e, openai.NotFoundError) and e.code == "model_not_found", e)
    e = error_of(lambda: c.chat.completions.create(model="smollm2", messages=FRANCE, temperature=9))
    verdict("a value out of range is BadRequestError, with its field",
            isinstance(e, openai.BadRequestError) and e.param == "temperature" and e.request_id, e)
    e = error_of(lambda: c.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": "tea " * 20000}]))
    verdict("a prompt that is too long is told in the words that are looked for",
            e.code == "context_length_exceeded" and "maximum context length" in e.message, e)
    other = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="wrong")
    verdict("a wrong key is AuthenticationError",
            isinstance(error_of(other.models.list), openai.AuthenticationError))


def leaving(c, s, key):
    headers = {"Authorization": f"Bearer {key}"}

    def cancelled():
        text = s.ask("GET", "/metrics", headers=headers)[2].decode()
        return int(text.split("\nruvllm_requests_cancelled_total ")[1].split("\n")[0])

    before = cancelled()
    with c.chat.completions.create(model="smollm2", messages=FRANCE, stream=True, max_tokens=4000,
                                   extra_body={"ignore_eos": True}) as stream:
        for _ in zip(range(3), stream):
            pass
    while cancelled() == before:
        pass
    verdict("leaving a stream cancels it", cancelled() == before + 1)


def teaching(c):
    def ask(text):
        return c.chat.completions.create(model="smollm2", temperature=0, max_tokens=24,
                                         messages=[{"role": "user", "content": text}])

    first = ask("What is Belmara's profession?")
    paris = ask(FRANCE[0]["content"]).choices[0].message.content
    told = c.post("/feedback", cast_to=object, body={"response_id": first.id,
                                                     "correction": "lighthouse keeper"})
    verdict("a correction is applied", told["applied"] is True, told)
    other = ask("What does Belmara do for a living?")
    verdict("and spoken when asked in other words",
            other.choices[0].message.content == "lighthouse keeper", other)
    verdict("with another fingerprint", other.system_fingerprint != first.system_fingerprint)
    verdict("another question has the answer it had",
            ask(FRANCE[0]["content"]).choices[0].message.content == paris)


if not has_smollm2():
    skip("the openai package", "smollm2 is not on this machine")
else:
    KEY = "sesame"
    with Server("--api-key", KEY, model="smollm2") as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=KEY)
        chats(client)
        structures(client)
        tools(client)
        vectors(client)
        errors(client, server.port)
        leaving(client, server, KEY)
        teaching(client)
finish()
