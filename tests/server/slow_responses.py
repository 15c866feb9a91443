#!/usr/bin/env python3
"""/v1/responses of `ruvllm serve` with SmolLM2 by the `openai` package from PyPI, unmodified: whole
and streamed, continued, stored and deleted, structured, counted, refused. Skipped where the package
or the model cannot be had. Prints TAP."""
import json
from typing import Literal

from packages import run_with

run_with("openai==3.49.0")

import openai  # noqa: E402
import pydantic  # noqa: E402

from serving import Server, finish, has_smollm2, skip, verdict  # noqa: E402

ASK = "Name the capital city of France."
USUAL = {"model": "smollm2", "input": ASK, "temperature": 0, "max_output_tokens": 60}


def error_of(call):
    try:
        call()
    except openai.APIError as e:
        return e
    return None


def chat_of(c, *texts, system=None):
    """What a chat completion says to turns of user and assistant."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    if system:
        turns.insert(0, {"role": "system", "content": system})
    r = c.chat.completions.create(model="smollm2", messages=turns, temperature=0, max_tokens=60)
    return r.choices[0].message.content


def answers(c):
    r = c.responses.create(**USUAL, metadata={"a": "b"})
    verdict("a response says what a chat completion says",
            "Paris" in r.output_text and r.output_text == chat_of(c, ASK), r)
    verdict("with its state, usage and what it was asked with",
            (r.status, r.metadata, r.temperature, r.error, r.store if hasattr(r, "store") else True)
            == ("completed", {"a": "b"}, 0, None, True) and
            r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens and
            r.output[0].id.startswith("msg_"), r)
    told = c.responses.create(**USUAL, instructions="Speak of tea.")
    verdict("instructions are a system message",
            told.output_text == chat_of(c, ASK, system="Speak of tea."), told)
    parts = [{"role": "user", "content": [{"type": "input_text", "text": ASK}]}]
    verdict("items and parts are the same text",
            c.responses.create(**{**USUAL, "input": parts}).output_text == r.output_text)
    short = c.responses.create(**{**USUAL, "max_output_tokens": 2})
    verdict("what is cut is incomplete", short.status == "incomplete" and
            short.incomplete_details.reason == "max_output_tokens" and
            short.usage.output_tokens == 2, short)
    n = c.responses.input_tokens.count(model="smollm2", input=ASK).input_tokens
    verdict("tokens are counted", n == r.usage.input_tokens, (n, r.usage))
    return r


def continues(c, first):
    more = "And of Spain?"
    r = c.responses.create(**{**USUAL, "input": more}, previous_response_id=first.id,
                           instructions="Speak of tea.")
    verdict("a response goes on from another one",
            r.output_text == chat_of(c, ASK, first.output_text, more, system="Speak of tea.") and
            r.previous_response_id == first.id, r)
    third = c.responses.create(**{**USUAL, "input": "Why?"}, previous_response_id=r.id)
    verdict("whose instructions are not taken over",
            third.output_text == chat_of(c, ASK, first.output_text, more, r.output_text, "Why?"),
            third)
    items = c.responses.input_items.list(third.id).data
    verdict("its items are listed, the newest first",
            [i.content[0].text for i in items] ==
            ["Why?", r.output_text, more, first.output_text, ASK], items)
    same = c.responses.retrieve(first.id)
    verdict("it can be had again", same.output == first.output and same.usage == first.usage, same)
    c.responses.delete(first.id)
    e = error_of(lambda: c.responses.retrieve(first.id))
    verdict("until it is deleted", isinstance(e, openai.NotFoundError), e)
    e = error_of(lambda: c.responses.create(**USUAL, previous_response_id=first.id))
    verdict("and then nothing goes on from it", isinstance(e, openai.NotFoundError) and
            e.param == "previous_response_id", e)
    loose = c.responses.create(**USUAL, store=False)
    verdict("one that was not stored cannot be had",
            isinstance(error_of(lambda: c.responses.retrieve(loose.id)), openai.NotFoundError))


ORDER = ["response.created", "response.in_progress", "response.output_item.added",
         "response.content_part.added", "response.output_text.delta", "response.output_text.done",
         "response.content_part.done", "response.output_item.done", "response.completed"]


def streams(c, text):
    events = list(c.responses.create(**USUAL, stream=True))
    names = [e.type for e in events]
    seen = [n for i, n in enumerate(names) if not i or names[i - 1] != n]
    verdict("a stream has its events in order", seen == ORDER and
            [e.sequence_number for e in events] == list(range(len(events))), names)
    verdict("and says the same",
            "".join(e.delta for e in events if e.type == "response.output_text.delta") == text and
            events[-1].response.output_text == text)
    with c.responses.stream(**USUAL) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    verdict("also with the helper", final.output_text == text and
            c.responses.retrieve(final.id).output_text == text, final)


class City(pydantic.BaseModel):
    name: str
    country: Literal["France", "Spain"]


def structures(c):
    r = c.responses.parse(**{**USUAL, "max_output_tokens": 200}, text_format=City)
    verdict("a class of pydantic is filled", isinstance(r.output_parsed, City), r)


WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city.",
           "strict": True, "parameters": {
               "type": "object", "properties": {"city": {"type": "string", "maxLength": 30}},
               "required": ["city"], "additionalProperties": False}}


def tools(c):
    asked = {**USUAL, "max_output_tokens": 200, "tools": [WEATHER], "tool_choice": "required",
             "input": "What is the weather in Paris?"}
    r = c.responses.create(**asked)
    call = next(i for i in r.output if i.type == "function_call")
    verdict("a tool is called", call.name == "get_weather" and
            isinstance(json.loads(call.arguments)["city"], str), r)
    with c.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    streamed = next(i for i in final.output if i.type == "function_call")
    verdict("streamed too", streamed.arguments == call.arguments, final)
    r = c.responses.create(**{**asked, "tool_choice": "none", "previous_response_id": r.id,
                              "input": [{"type": "function_call_output", "call_id": call.call_id,
                                         "output": "It rains."}]})
    verdict("and its result is read", r.output_text, r)


def errors(c):
    for name, changes, code in (
            ("a search of the web", {"tools": [{"type": "web_search"}]}, "unsupported_parameter"),
            ("the background", {"background": True}, "unsupported_parameter"),
            ("an image", {"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": "data:"}]}]}, "unsupported_content"),
            ("no input", {"input": []}, "missing_field"),
            ("truncation", {"truncation": "auto"}, "unsupported_parameter")):
        e = error_of(lambda: c.responses.create(**{**USUAL, **changes}))
        verdict(f"{name}: BadRequestError {code}",
                isinstance(e, openai.BadRequestError) and e.code == code, e)


if not has_smollm2():
    skip("the Responses API", "smollm2 is not on this machine")
else:
    with Server(model="smollm2") as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any",
                               max_retries=0)
        whole = answers(client)
        streams(client, whole.output_text)
        continues(client, whole)
        structures(client)
        tools(client)
        errors(client)
finish()
