#!/usr/bin/env python3
"""The `anthropic` package from PyPI, unmodified, against `ruvllm serve` with SmolLM2: messages,
streams, system prompts, stop sequences, an answer that is begun, tools, structured output, the list
of models, counting, typed errors, cancelling. Skipped where the package or the model cannot be had.
Prints TAP."""
from typing import Literal

from packages import run_with

run_with("anthropic==2.8.0")

import anthropic  # noqa: E402
import pydantic  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

KEY = "sesame"
ASK = "Name the capital city of France."
FRANCE = [{"role": "user", "content": ASK}]
COLD = {"temperature": 0}
USUAL = {"model": "smollm2", "max_tokens": 60, "messages": FRANCE, "extra_body": COLD}


def error_of(call):
    try:
        call()
    except anthropic.APIError as e:
        return e
    return None


def messages(c, s):
    r = c.messages.create(**USUAL)
    text = r.content[0].text
    same = s.post("/v1/chat/completions", {"messages": FRANCE, **COLD, "max_tokens": 60},
                  {"x-api-key": KEY})[2]
    usage = same["usage"]
    verdict("a message says what a chat completion says",
            "Paris" in text and text == same["choices"][0]["message"]["content"], (r, same))
    verdict("it ends its turn, and what is reused is counted apart",
            (r.type, r.role, r.stop_reason, r.stop_sequence) ==
            ("message", "assistant", "end_turn", None) and
            r.usage.input_tokens + r.usage.cache_read_input_tokens == usage["prompt_tokens"] and
            r.usage.output_tokens == usage["completion_tokens"], (r.usage, usage))
    verdict("the request has an id", r._request_id.startswith("req-"), r._request_id)
    blocks = [{"type": "text", "text": ASK, "cache_control": {"type": "ephemeral"}}]
    verdict("blocks of text are text", c.messages.create(
        **{**USUAL, "messages": [{"role": "user", "content": blocks}]}).content == r.content)
    short = c.messages.create(**{**USUAL, "max_tokens": 2})
    verdict("max_tokens ends it", short.stop_reason == "max_tokens" and
            short.usage.output_tokens == 2, short)
    stops = c.messages.create(**USUAL, stop_sequences=["qqq", " Paris", "France"])
    verdict("a stop sequence ends it, and is named",
            stops.stop_reason == "stop_sequence" and
            stops.content[0].text + stops.stop_sequence ==
            text[:len(stops.content[0].text) + len(stops.stop_sequence)], stops)
    return text


def systems(c):
    king = [{"type": "text", "text": "You are a king."},
            {"type": "text", "text": "Speak of tea."}]
    texts = [c.messages.create(**USUAL, system=x).content[0].text
             for x in ("You are a king.\nSpeak of tea.", king)]
    verdict("a system prompt is a text or blocks", texts[0] == texts[1], texts)
    plain = c.messages.count_tokens(model="smollm2", messages=FRANCE).input_tokens
    more = c.messages.count_tokens(model="smollm2", messages=FRANCE, system=king).input_tokens
    r = c.messages.create(**{**USUAL, "max_tokens": 1})
    verdict("tokens are counted", plain == r.usage.input_tokens + r.usage.cache_read_input_tokens
            and more != plain, (plain, more, r.usage))
    begun = FRANCE + [{"role": "assistant", "content": "The capital of France is"}]
    r = c.messages.create(**{**USUAL, "messages": begun, "max_tokens": 3})
    verdict("an answer that is begun goes on", r.content[0].text.startswith(" Paris"), r)


def streams(c, text):
    with c.messages.stream(**USUAL) as stream:
        names = [e.type for e in stream]
        final = stream.get_final_message()
    raw = [n for n in names if n != "text"]
    deltas = raw[2:-3]
    verdict("a stream has its events in order",
            raw[:2] == ["message_start", "content_block_start"] and
            set(deltas) == {"content_block_delta"} and
            raw[-3:] == ["content_block_stop", "message_delta", "message_stop"], raw)
    verdict("and says the same", final.content[0].text == text and
            final.stop_reason == "end_turn" and final.usage.output_tokens == len(deltas) + 1,
            (final, len(deltas)))
    events = list(c.messages.create(**USUAL, stream=True))
    verdict("also without the helper",
            "".join(e.delta.text for e in events if e.type == "content_block_delta") == text and
            events[0].message.usage.input_tokens + events[0].message.usage.cache_read_input_tokens
            > 0, events[:2])


WEATHER = {"name": "get_weather", "description": "The weather in a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 30}},
    "required": ["city"]}}


def tools(c):
    asked = {**USUAL, "max_tokens": 200, "tools": [WEATHER], "tool_choice": {"type": "any"},
             "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
    r = c.messages.create(**asked)
    use = next(b for b in r.content if b.type == "tool_use")
    verdict("a tool is called", r.stop_reason == "tool_use" and use.name == "get_weather" and
            isinstance(use.input["city"], str), r)
    with c.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    streamed = next(b for b in final.content if b.type == "tool_use")
    verdict("streamed too", streamed.input == use.input and final.stop_reason == "tool_use", final)
    talk = asked["messages"] + [
        {"role": "assistant", "content": r.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                      "content": "It rains."}]}]
    r = c.messages.create(**{**asked, "messages": talk, "tool_choice": {"type": "none"}})
    verdict("and its result is read", r.content[0].type == "text" and r.content[0].text, r)


class City(pydantic.BaseModel):
    name: str
    country: Literal["France", "Spain"]


def structures(c):
    r = c.messages.parse(**{**USUAL, "max_tokens": 200}, output_format=City)
    verdict("a class of pydantic is filled", isinstance(r.parsed_output, City), r)


def models(c):
    one = [m for m in c.models.list()]
    verdict("the list of models", [(m.id, m.type, m.display_name) for m in one] ==
            [("smollm2", "model", "smollm2")] and one[0].created_at.year > 2025, one)
    verdict("one of them", c.models.retrieve("smollm2") == one[0])
    e = error_of(lambda: c.models.retrieve("claude"))
    verdict("another is NotFoundError", isinstance(e, anthropic.NotFoundError) and
            e.body["error"]["type"] == "not_found_error", e)


def errors(c, port):
    for name, changes, kind, word in (
            ("an unknown model", {"model": "claude"}, anthropic.NotFoundError, "not_found_error"),
            ("a tool that runs elsewhere", {"tools": [
                {"type": "web_search_20250305", "name": "web_search"}]},
             anthropic.BadRequestError, "invalid_request_error"),
            ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}},
             anthropic.BadRequestError, "invalid_request_error"),
            ("an image", {"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]}]},
             anthropic.BadRequestError, "invalid_request_error"),
            ("a prompt that is too long", {"messages": [
                {"role": "user", "content": "tea " * 20000}]}, anthropic.BadRequestError,
             "invalid_request_error"),
            ("no messages", {"messages": []}, anthropic.BadRequestError, "invalid_request_error")):
        e = error_of(lambda: c.messages.create(**{**USUAL, **changes}))
        verdict(f"{name} is {kind.__name__}", isinstance(e, kind) and
                e.body["type"] == "error" and e.body["error"]["type"] == word and e.request_id, e)
    other = anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key="wrong")
    e = error_of(lambda: other.messages.create(**USUAL))
    verdict("a wrong key is AuthenticationError", isinstance(e, anthropic.AuthenticationError) and
            e.body["error"]["type"] == "authentication_error", e)


def leaving(c, s):
    def cancelled():
        text = s.ask("GET", "/metrics", headers={"x-api-key": KEY})[2].decode()
        return int(text.split("\nruvllm_requests_cancelled_total ")[1].split("\n")[0])

    before = cancelled()
    with c.messages.create(**{**USUAL, "max_tokens": 4000, "extra_body": {"ignore_eos": True}},
                           stream=True) as stream:
        for _ in zip(range(4), stream):
            pass
    while cancelled() == before:
        pass
    verdict("leaving a stream cancels it", cancelled() == before + 1)


if not has_smollm2():
    skip("the anthropic package", "smollm2 is not on this machine")
else:
    with Server("--api-key", KEY, model="smollm2") as server:
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key=KEY,
                                     max_retries=0)
        said = messages(client, server)
        systems(client)
        streams(client, said)
        tools(client)
        structures(client)
        models(client)
        errors(client, server.port)
        leaving(client, server)
finish()
