#!/usr/bin/env python3
"""Tools and thoughts in every dialect: calls that satisfy their schema, streamed as they are whole,
results in the conversation, refusals. Prints TAP."""
import json
import os
import tempfile

from serving import Server, finish, verdict, without_encoder

without_encoder()
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


# ---- Anthropic ----

CLAUDE_TOOLS = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]}
                for t in TOOLS]


def claude(**more):
    return {"messages": ASK, "tools": CLAUDE_TOOLS, "max_tokens": 300, "temperature": 1, "seed": 5,
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, **more}


def is_right_use(block):
    return block["type"] == "tool_use" and is_right(
        {"function": {"name": block["name"], "arguments": json.dumps(block["input"])}})


def blocks_of(s, body):
    """The blocks that the events of a stream are together, and why it stopped."""
    blocks, stopped = [], None
    for e in s.stream("/v1/messages", body)[0]:
        if e["type"] == "content_block_start":
            blocks.append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            d = e["delta"]
            key = {"text_delta": "text", "input_json_delta": "json",
                   "thinking_delta": "thinking"}[d["type"]]
            blocks[e["index"]][key] += d["partial_json" if key == "json" else key]
        elif e["type"] == "message_delta":
            stopped = e["delta"]["stop_reason"]
    for b in blocks:
        if b["type"] == "tool_use":
            b["input"] = json.loads(b["json"])
        del b["json"]
    return blocks, stopped


def without_ids(blocks):
    return [{k: v for k, v in b.items() if k != "id"} for b in blocks]


def anthropic(s):
    r = s.post("/v1/messages", claude())[2]
    uses = [b for b in r["content"] if b["type"] == "tool_use"]
    verdict("Anthropic: a call is a block", r["stop_reason"] == "tool_use" and uses and
            all(map(is_right_use, uses)), r)
    streamed_too = blocks_of(s, claude())
    verdict("streamed as it is whole", without_ids(streamed_too[0]) == without_ids(r["content"])
            and streamed_too[1] == "tool_use", streamed_too)
    named = s.post("/v1/messages", claude(tool_choice={"type": "tool", "name": "get_time"}))[2]
    verdict("of the tool that is named", [b["name"] for b in named["content"]
                                          if b["type"] == "tool_use"][:1] == ["get_time"], named)
    talk = ASK + [{"role": "assistant", "content": r["content"]},
                  {"role": "user", "content": [
                      {"type": "tool_result", "tool_use_id": uses[0]["id"], "content": [
                          {"type": "text", "text": "done"}]},
                      {"type": "text", "text": "Thanks."}]}]
    status, _, reply = s.post("/v1/messages", claude(messages=talk, max_tokens=8,
                                                     tool_choice={"type": "auto"}))
    verdict("results go back in", status == 200 and reply["content"], reply)
    plain = s.post("/v1/messages/count_tokens", {"messages": ASK})[2]["input_tokens"]
    more = s.post("/v1/messages/count_tokens", {"messages": ASK, "tools": CLAUDE_TOOLS})[2]
    verdict("tools are counted", more["input_tokens"] > plain + 50, (plain, more))
    for name, changes in (
            ("a tool that runs elsewhere", {"tools": [{"type": "web_search_20250305",
                                                       "name": "web_search"}]}),
            ("a choice that is none", {"tool_choice": {"type": "perhaps"}}),
            ("a result without its call", {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "content": "x"}]}]}),
            ("thoughts of a model that has none", {"thinking": {"type": "enabled",
                                                                "budget_tokens": 100}})):
        status, _, reply = s.post("/v1/messages", claude(**changes))
        verdict(f"{name} is refused", status == 400 and
                reply["error"]["type"] == "invalid_request_error", reply)


# ---- Ollama ----

CALL = """<tool_call>
{"name": "set_lamp", "arguments": {"on": true,
 "room": "attic"}}
</tool_call>"""


def ollama(s):
    body = {"messages": ASK, "tools": TOOLS[:1], "options": {"seed": 3, "num_predict": 300}}
    # Nothing demands a call in this dialect: the model is taught to begin with one.
    first = s.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 4})[2]
    told = s.post("/v1/feedback", {"response_id": first["id"], "correction": CALL})
    verdict("Ollama: a call is taught", told[0] == 200 and told[2]["applied"], told)
    r = s.post("/api/chat", {**body, "stream": False})[2]
    lines = [json.loads(x) for x in s.post("/api/chat", body)[2].decode().splitlines()]
    calls = [c for x in lines for c in x["message"].get("tool_calls", [])]
    verdict("streamed as it is whole, in lines",
            [c["function"] for c in calls] == [c["function"] for c in r["message"]["tool_calls"]]
            and calls[0]["function"]["arguments"] == {"on": True, "room": "attic"} and
            "".join(x["message"]["content"] for x in lines) == r["message"]["content"] and
            lines[-1]["done"], (lines, r))
    verdict("arguments are an object", all(
        isinstance(c["function"]["arguments"], dict) for c in calls), calls)
    talk = ASK + [{"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "set_lamp", "arguments": {"on": True, "room": "attic"}}}]},
        {"role": "tool", "tool_name": "set_lamp", "content": "done"}]
    status, _, r = s.post("/api/chat", {**body, "messages": talk, "stream": False,
                                        "options": {"num_predict": 4}})
    verdict("results go back in", status == 200 and r["done"], r)
    status, _, r = s.post("/api/chat", {**body, "think": True})
    verdict("a model that does not think is not asked to", status == 400, r)


# ---- Responses ----

FLAT = [{"type": "function", **t["function"]} for t in TOOLS]


def respond(**more):
    return {"input": ASK, "tools": FLAT, "tool_choice": "required", "max_output_tokens": 300,
            "temperature": 1, "seed": 5, "parallel_tool_calls": False, **more}


def without_item_ids(items):
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]


def responses(s):
    r = s.post("/v1/responses", respond())[2]
    calls = [i for i in r["output"] if i["type"] == "function_call"]
    verdict("Responses: a call is an item", r["status"] == "completed" and calls and all(
        is_right({"function": c}) and c["call_id"] and c["status"] == "completed" for c in calls),
        r)
    events = s.stream("/v1/responses", respond())[0]
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    text = {}
    for e in events:
        if e["type"] == "response.function_call_arguments.delta":
            text[e["item_id"]] = text.get(e["item_id"], "") + e["delta"]
    numbers = [e["sequence_number"] for e in events]
    verdict("streamed as it is whole", without_item_ids(done) == without_item_ids(r["output"]) and
            events[-1]["type"] == "response.completed" and
            events[-1]["response"]["output"] == done and numbers == list(range(len(events))) and
            all(text[i["id"]] == i["arguments"] for i in done if i["type"] == "function_call"),
            [e["type"] for e in events])
    result = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "done"}
    on = s.post("/v1/responses", respond(input=[result], previous_response_id=r["id"],
                                         tool_choice="none", max_output_tokens=8))
    apart = s.post("/v1/responses", respond(input=ASK + r["output"] + [result], tool_choice="none",
                                            max_output_tokens=8))
    verdict("a result continues it, here or with all that was said", on[0] == apart[0] == 200 and
            without_item_ids(on[2]["output"]) == without_item_ids(apart[2]["output"]) and
            on[2]["usage"]["input_tokens"] == apart[2]["usage"]["input_tokens"],
            (on[2], apart[2]))
    listed = s.ask("GET", f"/v1/responses/{on[2]['id']}/input_items")[2]["data"]
    verdict("what was put in is listed", [i["type"] for i in listed][:2] ==
            ["function_call_output", "function_call"] and listed[-1]["role"] == "user", listed)
    for name, changes, param in (
            ("a tool of another kind", {"tools": [{"type": "web_search"}]}, "tools"),
            ("a choice that names nobody",
             {"tool_choice": {"type": "function", "name": "nobody"}}, "tools"),
            ("an output without its call", {"input": [{"type": "function_call_output",
                                                       "output": "x"}]}, "input")):
        status, _, reply = s.post("/v1/responses", respond(**changes))
        verdict(f"{name} is refused", status == 400 and reply["error"]["param"] == param, reply)


# ---- thoughts ----

THINKING = """{% for m in messages %}<{{ m.role }}>{{ m.content }}
{% endfor %}<assistant>{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}"""


def thoughts(s):
    chat = {"messages": ASK, "temperature": 0, "max_tokens": 40}
    r = s.post("/v1/chat/completions", {**chat, "reasoning_effort": "minimal"})[2]
    m = r["choices"][0]["message"]
    verdict("thoughts stand apart from the text", m["reasoning_content"] == m["reasoning"] != ""
            and m["content"] == "", m)  # all 40 tokens are thought
    events = s.stream("/v1/chat/completions", chat)[0]
    deltas = [e["choices"][0]["delta"] for e in events]
    verdict("streamed too", "".join(d.get("reasoning_content", "") for d in deltas) ==
            s.post("/v1/chat/completions", chat)[2]["choices"][0]["message"]["reasoning_content"])
    budget = {"messages": ASK, "max_tokens": 60, "min_tokens": 50, "temperature": 0,
              "thinking": {"type": "enabled", "budget_tokens": 8}}
    r = s.post("/v1/messages", budget)[2]
    verdict("Anthropic: a block", r["content"][0]["type"] == "thinking" and
            r["content"][0]["thinking"], r)
    kept = {}
    for n in (8, 20):
        said = s.post("/v1/messages", {**budget, "thinking": {"type": "enabled",
                                                              "budget_tokens": n}})[2]["content"]
        kept[n] = said[0]["thinking"]
        n_tokens = len(s.post("/tokenize", {"content": kept[n]})[2]["tokens"])
        verdict(f"a budget of {n} tokens ends the thoughts, and the answer follows",
                [b["type"] for b in said] == ["thinking", "text"] and said[1]["text"] and
                n_tokens <= n, (n_tokens, said))
    verdict("a larger one lets them go on", kept[20].startswith(kept[8]) and
            len(kept[20]) > len(kept[8]), kept)
    streamed_too = blocks_of(s, budget)[0]
    verdict("in blocks", streamed_too == r["content"], (streamed_too, r))
    plain = s.post("/v1/messages", {**budget, "thinking": {"type": "disabled"}})[2]
    unasked = s.post("/v1/messages", {k: v for k, v in budget.items() if k != "thinking"})[2]
    verdict("none where none are wanted", [b["type"] for b in plain["content"]] == ["text"] and
            plain["content"] == unasked["content"], plain)
    for name, reply in (
            ("reasoning_effort", s.post("/v1/chat/completions",
                                        {**chat, "reasoning_effort": "none"})[2]),
            ("chat_template_kwargs", s.post("/v1/chat/completions", {
                **chat, "chat_template_kwargs": {"enable_thinking": False}})[2])):
        m = reply["choices"][0]["message"]
        verdict(f"{name} ends them too", "reasoning_content" not in m and m["content"], m)
    r = s.post("/v1/responses", {"input": "Hello", "temperature": 0, "max_output_tokens": 12})[2]
    verdict("Responses: an item", [i["type"] for i in r["output"]] == ["reasoning"] and
            r["output"][0]["content"][0]["text"], r)
    names = [e["type"] for e in s.stream("/v1/responses", {"input": "Hello", "temperature": 0,
                                                           "max_output_tokens": 12})[0]]
    verdict("and its events", "response.reasoning_text.delta" in names and
            "response.reasoning_text.done" in names and
            "response.output_text.delta" not in names, names)
    for think, member in ((True, "thinking"), (False, "content")):
        r = s.post("/api/chat", {"messages": ASK, "think": think, "stream": False,
                                 "options": {"num_predict": 12, "temperature": 0}})[2]["message"]
        verdict(f"Ollama: think {think}", r[member] and ("thinking" in r) == think, r)
    r = s.post("/api/generate", {"prompt": "Hello", "stream": False,
                                 "options": {"num_predict": 12, "temperature": 0}})[2]
    verdict("also of a prompt", r["thinking"] and not r["response"], r)


with Server("--ctx", "4096") as s:  # tools are told in words, which are many for this model
    whole(s)
    streamed(s)
    results(s)
    refused(s)
    anthropic(s)
    ollama(s)
    responses(s)
verdict("the server ended well", s.status == 0)

with tempfile.TemporaryDirectory() as folder:
    template = os.path.join(folder, "thinking.jinja")
    with open(template, "w", encoding="utf-8") as f:
        f.write(THINKING)
    with Server("--template", template) as s:
        thoughts(s)
    verdict("this one too", s.status == 0)
finish()
