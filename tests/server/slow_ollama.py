#!/usr/bin/env python3
"""The `ollama` package from PyPI, unmodified, against `ruvllm serve` with SmolLM2: chat, generate,
embed, streams, options, formats, the lists of models, errors, cancelling. Skipped where the package
or the model cannot be had. Prints TAP."""
import json
from typing import Literal

from packages import run_with

run_with("ollama==0.6.3")

import ollama  # noqa: E402
import pydantic  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."
FRANCE = [{"role": "user", "content": ASK}]
COLD = {"temperature": 0, "num_predict": 60}


def error_of(call):
    try:
        call()
    except ollama.ResponseError as e:
        return e
    return None


def chats(c, s):
    r = c.chat("smollm2", FRANCE, options=COLD)
    text = r.message.content
    same = s.post("/v1/chat/completions", {"messages": FRANCE, "temperature": 0,
                                           "max_tokens": 60})[2]
    verdict("a chat says what a chat completion says",
            "Paris" in text and text == same["choices"][0]["message"]["content"], (r, same))
    verdict("with its counts, its times and why it ended",
            r.done and r.done_reason == "stop" and
            r.prompt_eval_count == same["usage"]["prompt_tokens"] and
            r.eval_count == same["usage"]["completion_tokens"] and
            0 < r.eval_duration < r.total_duration < 10**11 and r.prompt_eval_duration > 0, r)
    parts = list(c.chat("smollm2:latest", FRANCE, options=COLD, stream=True))
    verdict("a stream says the same", "".join(p.message.content for p in parts) == text and
            [p.done for p in parts] == [False] * (len(parts) - 1) + [True], parts[-1])
    short = c.chat("smollm2", FRANCE, options={**COLD, "num_predict": 2})
    verdict("num_predict ends it", (short.done_reason, short.eval_count) == ("length", 2), short)
    stopped = c.chat("smollm2", FRANCE, options={**COLD, "stop": ["Paris"]})
    verdict("so does a stop string", stopped.message.content == text.split("Paris")[0], stopped)
    hot = [c.chat("smollm2", FRANCE, options={"temperature": 1, "seed": 5, "num_predict": 20})
           for _ in range(2)]
    verdict("a seed says the same again", hot[0].message == hot[1].message, hot)
    probs = c.chat("smollm2", FRANCE, options=COLD, logprobs=True, top_logprobs=2)
    verdict("log probabilities", len(probs.logprobs) >= r.eval_count - 1 and
            all(len(p.top_logprobs) == 2 and p.logprob <= 0 for p in probs.logprobs),
            probs.logprobs)
    verdict("without messages it is loaded", c.chat("smollm2", []).done_reason == "load")


def generates(c):
    r = c.generate("smollm2", ASK, options=COLD)
    verdict("a prompt goes through the template",
            r.response == c.chat("smollm2", FRANCE, options=COLD).message.content, r)
    system = c.generate("smollm2", ASK, system="Speak of tea.", options=COLD).response
    verdict("with a system prompt",
            system == c.chat("smollm2", [{"role": "system", "content": "Speak of tea."}] + FRANCE,
                             options=COLD).message.content, system)
    raw = c.generate("smollm2", "The capital of France is", raw=True, options=COLD)
    verdict("or is taken as it is", raw.response.startswith(" Paris"), raw)
    pieces = c.generate("smollm2", ASK, options=COLD, stream=True)
    verdict("a stream says the same", "".join(p.response for p in pieces) == r.response)


class City(pydantic.BaseModel):
    name: str
    country: Literal["France", "Spain"]


def structures(c):
    r = c.chat("smollm2", FRANCE, format=City.model_json_schema(),
               options={**COLD, "num_predict": 200})
    verdict("a schema is held", isinstance(City.model_validate_json(r.message.content), City), r)
    r = c.generate("smollm2", ASK, format="json", options={**COLD, "num_predict": 64})
    verdict("so is json", isinstance(json.loads(r.response), dict), r)


def vectors(c, s):
    r = c.embed("smollm2", ["tea", "cake"])
    wanted = [d["embedding"] for d in s.post("/v1/embeddings", {"input": ["tea", "cake"]})[2]
              ["data"]]
    verdict("vectors are those of /v1/embeddings",
            [list(v) for v in r.embeddings] == wanted and r.prompt_eval_count > 0, len(wanted))
    verdict("one text has one", [list(v) for v in c.embed("smollm2", "tea").embeddings] ==
            wanted[:1])
    verdict("also by the older path", list(c.embeddings("smollm2", "tea").embedding) == wanted[0])
    verdict("dimensions shorten it",
            len(c.embed("smollm2", "tea", dimensions=8).embeddings[0]) == 8)
    e = error_of(lambda: c.embed("smollm2", "tea " * 20000, truncate=False))
    verdict("a text that is too long is refused where it may not be cut",
            e and e.status_code == 400, e)


def models(c, s):
    one = c.list().models[0]
    verdict("the list of models", one.model == "smollm2" and len(one.digest) == 64 and
            one.details.family == "llama" and one.details.quantization_level == "Q4_1" and
            one.size > 0, one)
    shown = c.show("smollm2")
    verdict("one of them", shown.modelinfo["general.architecture"] == "llama" and
            shown.modelinfo["llama.embedding_length"] == 576 and "im_start" in shown.template and
            shown.capabilities == ["completion"], shown)
    verdict("those in memory", [m.model for m in c.ps().models] == ["smollm2"])
    verdict("the version", s.ask("GET", "/api/version")[2]["version"].count(".") == 2)
    for call in (lambda: c.pull("smollm2"), lambda: c.delete("smollm2"),
                 lambda: c.copy("smollm2", "b"), lambda: c.create("b", from_="smollm2")):
        e = error_of(call)
        verdict("models are not changed: 501 and a sentence", e and e.status_code == 501 and
                "ruvllm pull" in e.error, e)


def set_lamp(room: str) -> str:
    """Turn the lamp of a room on.

    Args:
        room: which room
    """
    return room


def tools(c):
    talk = [{"role": "system", "content": "Always call a function."},
            {"role": "user", "content": "Turn on the lamp in the attic by calling set_lamp."}]
    options = {"temperature": 0, "num_predict": 60}
    r = c.chat("smollm2", talk, tools=[set_lamp], options=options)
    calls = r.message.tool_calls or []  # nothing can demand one
    verdict("a function of Python may be called", all(
        x.function.name == "set_lamp" and set(x.function.arguments) == {"room"} for x in calls), r)
    parts = list(c.chat("smollm2", talk, tools=[set_lamp], stream=True, options=options))
    verdict("streamed too", [x.function for p in parts for x in p.message.tool_calls or []] ==
            [x.function for x in calls] and
            "".join(p.message.content or "" for p in parts) == (r.message.content or ""),
            parts[-2:])
    talk += [r.message, {"role": "tool", "content": "The lamp is on.", "tool_name": "set_lamp"}]
    r = c.chat("smollm2", talk, tools=[set_lamp], options={"num_predict": 12})
    verdict("and its result is read", r.done, r)


def errors(c, s):
    for name, status, call in (
            ("an unknown model", 404, lambda: c.chat("llama9", FRANCE)),
            ("thinking", 400, lambda: c.chat("smollm2", FRANCE, think=True)),
            ("an image", 400, lambda: c.chat("smollm2", [
                {"role": "user", "content": "x", "images": [b"\x89PNG"]}])),
            ("a context that is too large", 400, lambda: c.chat(
                "smollm2", FRANCE, options={"num_ctx": 10**6})),
            ("an end to the model's stay", 400, lambda: c.chat("smollm2", FRANCE, keep_alive=0)),
            ("a value out of range", 400, lambda: c.chat(
                "smollm2", FRANCE, options={"top_p": 3})),
            ("a prompt that is too long", 400, lambda: c.generate("smollm2", "tea " * 20000))):
        e = error_of(call)
        verdict(f"{name} is {status} with a sentence",
                e and e.status_code == status and len(e.error) > 10, e)
    got = s.post("/api/nothing", {})
    verdict("a path that leads nowhere has the same shape",
            got[0] == 404 and isinstance(got[2]["error"], str), got)
    got = s.post("/api/chat", {"messages": FRANCE, "stream": False, "options": {
        **COLD, "low_vram": True}, "new": 1})
    verdict("unknown names are listed", got[1]["x-ruvllm-ignored"] == "new,low_vram",
            got[1].items())


def leaving(c, s):
    before = s.metric("requests_cancelled_total")
    stream = c.chat("smollm2", FRANCE, stream=True, options={"num_predict": -1, "ignore_eos": True})
    for _ in zip(range(3), stream):
        pass
    stream.close()
    verdict("leaving a stream cancels it",
            s.wait_for_metric("requests_cancelled_total", before + 1) == before + 1)


if not has_smollm2():
    skip("the ollama package", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        client = ollama.Client(host=f"http://127.0.0.1:{server.port}")
        chats(client, server)
        generates(client)
        structures(client)
        vectors(client, server)
        models(client, server)
        tools(client)
        errors(client, server)
        leaving(client, server)
finish()
