#!/usr/bin/env python3
"""Tools of /v1/chat/completions: calls that satisfy their schema, streamed as they are whole,
results in the conversation, refusals. Prints TAP."""
import json

from serving import Server, finish, verdict

TOOLS = [
    {"type": "function", "function": {
        "name": "set_lamp", "description": "Turn a lamp on or off.",
        "parameters": {"type": "object", "properties": {
            "on": {"type": "boolean"}, "room": {"enum": ["hall", "attic"]}},
            "required": ["on", "room"], "additionalProperties": False}}},
    {"type": "function", "function": {
        "name": "get_time", "parameters": {"type": "object", "properties": {},
                                           "additionalProperties": False}}},
]
ASK = [{"role": "user", "content": "Light in the attic, please."}]


def body(**more):
    return {"messages": ASK, "tools": TOOLS, "tool_choice": "required", "max_tokens": 300,
            "temperature": 1, "seed": 5, "parallel_tool_calls": False, **more}


def is_right(call):
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "get_time":
        return arguments == {}
    return (call["function"]["name"] == "set_lamp" and set(arguments) == {"on", "room"} and
            isinstance(arguments["on"], bool) and arguments["room"] in ("hall", "attic"))


def joined(events):
    """The message that the deltas of a stream are together, and how it finished."""
    content, calls, finished = "", [], None
    for e in events:
        for c in e["choices"]:
            delta = c["delta"]
            content += delta.get("content") or ""
            finished = c["finish_reason"] or finished
            for part in delta.get("tool_calls", []):
                if part["index"] == len(calls):
                    calls.append({"id": part["id"], "name": part["function"]["name"], "text": ""})
                calls[part["index"]]["text"] += part["function"]["arguments"]
    return content, calls, finished


def one(s, **more):
    return s.post("/v1/chat/completions", body(**more))[2]["choices"][0]


def whole(s):
    right, n = True, 0
    for seed in range(6):
        c = one(s, seed=seed)
        calls = c["message"].get("tool_calls", [])
        n += len(calls)
        right = right and c["finish_reason"] == "tool_calls" and all(map(is_right, calls))
        right = right and calls and all(x["type"] == "function" and x["id"] for x in calls)
    verdict("a call that is demanded comes, with arguments by its schema", right and n >= 6)
    named = {"type": "function", "function": {"name": "set_lamp"}}
    verdict("of the tool that is named", all(
        one(s, tool_choice=named, seed=i)["message"]["tool_calls"][0]["function"]["name"] ==
        "set_lamp" for i in range(4)))
    c = one(s, tool_choice="none", max_tokens=12)
    verdict("none where none is wanted",
            "tool_calls" not in c["message"] and c["finish_reason"] in ("stop", "length"))
    c = one(s, tool_choice="auto", max_tokens=12)
    verdict("and perhaps one otherwise", c["message"]["role"] == "assistant")


def streamed(s):
    same = True
    for seed in range(4):
        c = one(s, seed=seed)
        events, done = s.stream("/v1/chat/completions", body(seed=seed))
        content, calls, finished = joined(events)
        same = same and done and finished == c["finish_reason"] == "tool_calls"
        same = same and content == (c["message"]["content"] or "")
        same = same and [(x["name"], x["text"]) for x in calls] == [
            (x["function"]["name"], x["function"]["arguments"])
            for x in c["message"]["tool_calls"]]
    verdict("streamed as it is whole", same)
    several = s.post("/v1/chat/completions", body(n=2))[2]["choices"]
    verdict("several choices, each with its own", len(several) == 2 and all(
        is_right(c["message"]["tool_calls"][0]) for c in several))


def results(s):
    call = one(s)["message"]
    talk = ASK + [call, {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"],
                         "content": "done"}]
    status, _, reply = s.post("/v1/chat/completions", body(messages=talk, tool_choice="auto",
                                                           max_tokens=8))
    verdict("results go back in", status == 200 and reply["choices"][0]["message"])


def refused(s):
    def error(**more):
        status, _, reply = s.post("/v1/chat/completions", body(**more))
        return status == 400 and reply["error"]["param"]
    bad = [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}]
    verdict("tools that are no list", error(tools={"a": 1}) == "tools")
    verdict("tools without a name", error(tools=[{"type": "function"}]) == "tools")
    verdict("a schema that is none", error(tools=bad) == "tools")
    verdict("a tool that is not there",
            error(tool_choice={"type": "function", "function": {"name": "nobody"}}) == "tools")
    verdict("no tools at all are fine",
            s.post("/v1/chat/completions", {"messages": ASK, "tools": [], "max_tokens": 2})[0] ==
            200)


with Server("--ctx", "4096") as s:  # tools are told in words, which are many for this model
    whole(s)
    streamed(s)
    results(s)
    refused(s)
verdict("the server ended well", s.status == 0)
finish()
