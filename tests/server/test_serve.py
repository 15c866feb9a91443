#!/usr/bin/env python3
"""`ruvllm serve` with a tiny model: OpenAI's paths, their errors, the connection itself, keys,
signals. Answers are compared with those of the program's other commands. Prints TAP."""
import base64
import concurrent.futures
import glob
import http.client
import json
import os
import re
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time

from serving import (MODEL, PROGRAM, SLOW, Server, finish, program, verdict,
                     without_encoder)

ASK = [{"role": "user", "content": "the tea"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


def models(s):
    status, _, body = s.ask("GET", "/v1/models")
    name = body["data"][0]["id"]
    verdict("the list has the model", status == 200 and name == MODEL, body)
    verdict("and it alone", s.ask("GET", f"/v1/models/{MODEL}")[2] == body["data"][0])
    status, _, body = s.ask("GET", "/v1/models/other")
    verdict("another is not found", (status, body["error"]["code"]) == (404, "model_not_found"))
    verdict("paths may do without /v1", s.ask("GET", "/models")[0] == 200)


def chats(s):
    wanted = program("run", MODEL, "the tea", "--greedy", "-n", "12").rstrip("\n")
    whole = s.chat("the tea")
    choice = whole["choices"][0]
    verdict("a chat answers as the command run does", choice["message"]["content"] == wanted,
            (whole, wanted))
    verdict("with its reason to end and its usage",
            choice["finish_reason"] == "length" and whole["usage"]["completion_tokens"] == 12,
            whole)
    verdict("and an id, a fingerprint, the version of what was learned",
            whole["id"].startswith("chatcmpl-") and whole["system_fingerprint"].endswith("-0") and
            whole["learned_version"] == 0, whole)
    events, ended = s.stream("/v1/chat/completions", {"messages": ASK, **GREEDY,
                                                      "stream_options": {"include_usage": True}})
    deltas = [e["choices"][0]["delta"] for e in events[:-1]]
    text = "".join(d.get("content", "") for d in deltas)
    verdict("a stream says the same", text == wanted and ended, (text, wanted))
    verdict("its first event has the role, its last but one the end",
            deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {} and
            events[-2]["choices"][0]["finish_reason"] == "length", events)
    verdict("no piece in between is empty", all(d["content"] for d in deltas[1:-1]))
    verdict("all have one id and one time", len({(e["id"], e["created"]) for e in events}) == 1)
    verdict("usage comes at the end alone",
            events[-1]["choices"] == [] and events[-1]["usage"]["prompt_tokens"] ==
            whole["usage"]["prompt_tokens"] and all(e["usage"] is None for e in events[:-1]))


def options(s):
    said = s.chat("the tea")["choices"][0]["message"]["content"]
    stop = said[len(said) // 2:len(said) // 2 + 2]
    body = s.chat("the tea", stop=stop)["choices"][0]
    verdict("a stop string ends the text before it",
            body["message"]["content"] == said.split(stop)[0] and body["finish_reason"] == "stop",
            (said, stop, body))
    seeded = [[c["message"]["content"] for c in
               s.chat("the tea", temperature=1.5, seed=7, n=3)["choices"]] for _ in range(2)]
    verdict("a seed gives the same choices again", seeded[0] == seeded[1], seeded)
    verdict("which differ from each other", len(set(seeded[0])) == 3, seeded)
    body = s.chat("the tea", logprobs=True, top_logprobs=2)["choices"][0]
    items = body["logprobs"]["content"]
    verdict("log probabilities are there for each token, the best one first",
            len(items) == 12 and all(len(i["top_logprobs"]) == 2 and i["logprob"] ==
                                     i["top_logprobs"][0]["logprob"] for i in items), items)
    verdict("with the bytes of its text",
            all(bytes(i["bytes"]).decode("utf-8", "replace") == i["token"] for i in items), items)
    biased = s.chat("the tea", logit_bias={"5": 100}, logprobs=True, max_tokens=2)
    five = s.post("/detokenize", {"tokens": [5]})[2]["content"]
    verdict("a bias of 100 forces a token",
            [i["token"] for i in biased["choices"][0]["logprobs"]["content"]] == [five] * 2, biased)
    headers = s.post("/v1/chat/completions", {"messages": ASK, **GREEDY, "new_field": 1,
                                              "b\r\nx: y": 2})[1]
    verdict("unknown names are accepted and listed", headers["x-ruvllm-ignored"] == "new_field",
            headers.items())
    parts = [{"type": "text", "text": "the"}, {"type": "text", "text": "tea"}]
    joined = s.post("/apply-template", {"messages": [{"role": "user", "content": parts}]})[2]
    verdict("parts of text are lines", "the\ntea" in joined["prompt"], joined)


TEA = {"type": "object", "properties": {"tea": {"enum": ["green", "black"]},
                                        "cups": {"type": "integer", "minimum": 2, "maximum": 4}},
       "required": ["tea", "cups"], "additionalProperties": False}
GBNF = 'root ::= "tea " [0-9] [0-9]'
NO_FORM = [
    ("response_format", 1, "invalid_type"),
    ("response_format", {}, "invalid_value"),
    ("response_format", {"type": "sound"}, "invalid_value"),
    ("response_format", {"type": "json_schema"}, "invalid_json_schema"),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": TEA, "strict": 1}},
     "invalid_type"),
    ("response_format", {"type": "json_object", "schema": 123}, "invalid_json_schema"),
    ("response_format", {"type": "json_object", "schema": {"type": 123}}, "invalid_json_schema"),
    ("json_schema", "object", "invalid_json_schema"),
    ("json_schema", {"$ref": "https://example.com/x"}, "invalid_json_schema"),
    ("grammar", 'root ::= "', "invalid_grammar"),
    ("grammar", {}, "invalid_type"),
    ("guided_regex", "(", "invalid_grammar"),
    ("guided_choice", "tea", "invalid_type"),
    ("guided_choice", [1], "invalid_grammar"),
]


def is_tea(text):
    value = json.loads(text)
    return value.keys() == TEA["properties"].keys() and value["tea"] in ("green", "black") and \
        value["cups"] in (2, 3, 4)


def forms(s):
    """The tiny model knows no JSON: what is valid is so by the grammar alone."""
    def said(**options):
        body = s.chat("the tea", **{"max_tokens": 100, "temperature": 1, "seed": 3, **options})
        return [c["message"]["content"] for c in body["choices"]]

    schema = {"type": "json_schema", "json_schema": {"name": "tea", "strict": True, "schema": TEA}}
    texts_said = said(response_format=schema, n=8)
    verdict("answers satisfy a schema", all(map(is_tea, texts_said)), texts_said)
    verdict("and are not all the same", len(set(texts_said)) > 1, texts_said)
    verdict("also by llama-server's and vLLM's names",
            all(is_tea(said(**o)[0]) for o in (
                {"json_schema": TEA}, {"guided_json": TEA},
                {"response_format": {"type": "json_object", "schema": TEA}})))
    texts_said = said(response_format={"type": "json_object"}, n=4)
    verdict("json_object gives objects, also where tokens run out",
            all(isinstance(json.loads(t), dict) for t in texts_said), texts_said)
    for name, value, pattern in (("grammar", GBNF, "tea [0-9]{2}"),
                                 ("guided_grammar", GBNF, "tea [0-9]{2}"),
                                 ("guided_regex", "[ab]{5}", "[ab]{5}"),
                                 ("guided_choice", ["a cup", "no"], "a cup|no")):
        text = said(**{name: value})[0]
        verdict(f"{name} says what the text may be", re.fullmatch(pattern, text), text)
    events, ended = s.stream("/v1/chat/completions", {"messages": ASK, "max_tokens": 100,
                                                      "response_format": schema})
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    verdict("a stream satisfies it too, and ends by itself",
            ended and is_tea(text) and events[-1]["choices"][0]["finish_reason"] == "stop", text)
    whole = s.post("/v1/completions", {"prompt": ["the tea", "a cake"], "max_tokens": 100,
                                       "response_format": schema})[2]
    verdict("and so do completions", all(is_tea(c["text"]) for c in whole["choices"]), whole)
    free = s.chat("the tea")["choices"]
    verdict("text, and an empty grammar, ask for nothing",
            s.chat("the tea", response_format={"type": "text"}, grammar="")["choices"] == free)
    for name, value, code in NO_FORM:
        got = s.post("/v1/chat/completions", {"messages": ASK, name: value})
        error = got[2]["error"]
        verdict(f"{name} {str(value)[:60]}: 400 {code}",
                (got[0], error["code"], error["param"]) == (400, code, name), got)
    got = s.post("/v1/chat/completions", {"messages": ASK, "response_format": {
        "type": "json_schema", "json_schema": {"schema": {"properties": {
            "a": {"format": "idn-email"}}}}}})
    verdict("what cannot be enforced is named, with its place",
            got[0] == 400 and "idn-email" in got[2]["error"]["message"] and
            "/properties/a" in got[2]["error"]["message"], got)
    got = s.post("/v1/chat/completions", {"messages": ASK, "grammar": GBNF, "json_schema": TEA})
    verdict("two forms are refused", got[0] == 400 and "one of" in got[2]["error"]["message"], got)


def completions(s):
    ids = s.post("/tokenize", {"content": "the tea", "add_special": True})[2]["tokens"]
    text, by_ids = (s.post("/v1/completions", {"prompt": p, **GREEDY, "logprobs": 2})[2]
                    for p in ("the tea", ids))
    verdict("a prompt of ids is that of its text", text["choices"] == by_ids["choices"],
            (text, by_ids))
    one = text["choices"][0]
    lp = one["logprobs"]
    verdict("log probabilities are lists of one length",
            {len(lp[k]) for k in lp} == {12} and all(len(t) == 2 for t in lp["top_logprobs"]), lp)
    verdict("offsets lead to the tokens",
            all(one["text"][o:].startswith(t)  # bytes that are no character are shown as a whole
                for t, o in zip(lp["tokens"][:3], lp["text_offset"])), (one["text"], lp))
    many = s.post("/v1/completions", {"prompt": ["the tea", "a cake"], **GREEDY, "n": 2})[2]
    verdict("two prompts of two choices are four",
            [c["index"] for c in many["choices"]] == [0, 1, 2, 3] and
            many["choices"][1]["text"] == one["text"], many)
    echo = s.post("/v1/completions", {"prompt": "the tea", **GREEDY, "echo": True})[2]
    verdict("echo gives the prompt first", echo["choices"][0]["text"] == "the tea" + one["text"],
            echo)
    scored = s.post("/v1/completions", {"prompt": "the tea" + one["text"], "max_tokens": 0,
                                        "echo": True, "logprobs": 0})[2]["choices"][0]
    tokens = scored["logprobs"]["tokens"]
    known = dict(zip(lp["tokens"], lp["token_logprobs"]))
    verdict("echo without new tokens scores the prompt",
            scored["logprobs"]["token_logprobs"][0] is None and
            len(tokens) == len(scored["logprobs"]["token_logprobs"]) and
            all(v < 0 for v in scored["logprobs"]["token_logprobs"][1:]), (scored, known))
    ids = s.post("/tokenize", {"content": "the tea and a cake"})[2]["tokens"]
    whole = s.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0,
                                       "echo": True, "logprobs": 2})[2]["choices"][0]["logprobs"]
    after = s.post("/v1/completions", {"prompt": ids[:-1], "max_tokens": 1, "temperature": 0,
                                       "logprobs": 2})[2]["choices"][0]["logprobs"]
    verdict("and shows what else the prompt's tokens could have been",
            whole["top_logprobs"][0] is None and
            all(len(t) == 2 for t in whole["top_logprobs"][1:]) and
            whole["top_logprobs"][-2] == after["top_logprobs"][0], (whole, after))
    events, ended = s.stream("/v1/completions", {"prompt": "the tea", **GREEDY, "echo": True})
    verdict("a stream of it says the same",
            "".join(e["choices"][0]["text"] for e in events) == "the tea" + one["text"] and ended)


def embeddings(s):
    wanted = json.loads(program("embed", MODEL, "the tea", "--json"))["embeddings"][0]["embedding"]
    body = s.post("/v1/embeddings", {"input": ["the tea", "a cake"]})[2]
    got = body["data"][0]["embedding"]
    verdict("vectors are those of the command embed",
            [d["index"] for d in body["data"]] == [0, 1] and
            max(abs(a - b) for a, b in zip(wanted, got)) < 1e-6 and len(got) == len(wanted))
    packed = s.post("/v1/embeddings", {"input": "the tea", "encoding_format": "base64"})[2]
    data = base64.b64decode(packed["data"][0]["embedding"])
    verdict("base64 has the same bits",
            list(struct.unpack(f"<{len(data) // 4}f", data)) == got)
    short = s.post("/v1/embeddings", {"input": "the tea", "dimensions": 3})[2]["data"][0]
    length = sum(v * v for v in got[:3]) ** 0.5
    verdict("fewer dimensions are scaled to length 1",
            max(abs(a - b / length) for a, b in zip(short["embedding"], got)) < 1e-6 and
            len(short["embedding"]) == 3, short)
    status, _, body = s.post("/api/embed", {"input": "the tea " * 3000})
    verdict("by Ollama's path a long text is cut",
            status == 200 and len(body["embeddings"][0]) == len(got), (status, body))


def texts(s):
    ids = json.loads(program("tokenize", MODEL, "the tea", "--json"))["ids"]
    verdict("tokens are those of the command tokenize",
            s.post("/tokenize", {"content": "the tea"})[2] == {"tokens": ids})
    counted = s.post("/tokenize", {"prompt": "the tea", "add_special_tokens": False})[2]
    verdict("or counted too", counted["count"] == len(ids) and counted["tokens"] == ids, counted)
    verdict("and back", "the tea" in s.post("/detokenize", {"tokens": ids})[2]["content"])


WRONG = [
    ("/v1/chat/completions", b"{", 400, "invalid_json", None),
    ("/v1/chat/completions", b"[]", 400, "invalid_json", None),
    ("/v1/chat/completions", b"", 400, "invalid_json", None),
    ("/v1/chat/completions", {}, 400, "missing_field", "messages"),
    ("/v1/chat/completions", {"messages": []}, 400, "missing_field", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}, 400,
     "invalid_value", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:"}}]}]}, 400, "unsupported_content",
     "messages"),
    ("/v1/chat/completions", {"messages": ASK, "model": "other"}, 404, "model_not_found", "model"),
    ("/v1/chat/completions", {"messages": ASK, "tools": [{"type": "function"}]}, 400,
     "invalid_tools", "tools"),
    ("/v1/chat/completions", {"messages": ASK, "top_logprobs": 2}, 400, None, "top_logprobs"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "tea " * 20000}]}, 400,
     "context_length_exceeded", "messages"),
    ("/v1/completions", {}, 400, "missing_field", "prompt"),
    ("/v1/completions", {"prompt": [1, 99999999]}, 400, "invalid_value", "prompt"),
    ("/v1/completions", {"prompt": "x", "suffix": "y"}, 400, "unsupported_parameter", "suffix"),
    ("/v1/completions", {"prompt": "x", "best_of": 3}, 400, "unsupported_parameter", "best_of"),
    ("/v1/embeddings", {"input": []}, 400, "invalid_value", "input"),
    ("/v1/embeddings", {"input": "x", "dimensions": 100000}, 400, "value_out_of_range",
     "dimensions"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "int8"}, 400, "invalid_value",
     "encoding_format"),
    ("/v1/feedback", {"response_id": "x", "rating": 1}, 404, "response_not_found", "response_id"),
    ("/v1/feedback", {"response_id": "x", "rating": 5}, 400, "invalid_value", "rating"),
    ("/v1/feedback", {"response_id": "x", "score": 2}, 400, "value_out_of_range", "score"),
    ("/v1/feedback", {"response_id": "x"}, 400, "missing_field", None),
    ("/v1/nothing", {}, 404, "not_found", None),
]
RANGES = {"temperature": (-1, 2.1, "hot"), "top_p": (-0.1, 1.1, [1]), "top_k": (-2, 1.5),
          "min_p": (2,), "n": (0, 129, 1.5), "max_tokens": (-2, "10"), "stop": (1, [1], ["a"] * 17),
          "frequency_penalty": (3,), "presence_penalty": (-3,), "repetition_penalty": (0,),
          "seed": (1.5, "x"), "logprobs": (1, "yes"), "stream": (1, "yes"),
          "stream_options": (True,), "logit_bias": ([1], {"x": 1}, {"1": 101}), "mirostat": (1, 3)}


def errors(s):
    for path, body, status, code, param in WRONG:
        got = s.post(path, body)
        error = got[2]["error"]
        verdict(f"{path} {str(body)[:60]}: {status} {code}",
                (got[0], error["code"], error["param"]) == (status, code, param) and
                set(error) >= {"message", "type", "param", "code"} and error["message"], got)
    for name, values in RANGES.items():
        got = [s.post("/v1/chat/completions", {"messages": ASK, name: v}) for v in values]
        verdict(f"{name}: wrong values are refused by its name",
                all(g[0] == 400 and g[2]["error"]["param"] == name for g in got), got)
    nulls = {name: None for name in RANGES}
    verdict("null is the same as nothing",
            s.post("/v1/chat/completions", {"messages": ASK, **nulls, **GREEDY})[0] == 200)
    status, headers, _ = s.ask("DELETE", "/v1/models")
    verdict("a wrong method is 405 and told the right one", (status, headers["allow"]) ==
            (405, "GET"))


def connections(s):
    host = b"Host: localhost\r\n"
    two = b"GET /health HTTP/1.1\r\n" + host + b"\r\n"
    out = s.raw(two + two.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    verdict("two requests at once get two answers", out.count(b"HTTP/1.1 200") == 2, out)
    body = json.dumps({"messages": ASK, **GREEDY}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\n" + host
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:9], body[9:]))
    out = s.raw(head + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked +
                b"0\r\n\r\n")
    verdict("a body may come in chunks", b"HTTP/1.1 200" in out and b"chat.completion" in out, out)
    out = s.raw(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body + two)
    verdict("nothing is read behind a last request", out.count(b"HTTP/1.1 ") == 1, out)
    for name, data, status in (
        ("a length of 40 GiB", head + b"Content-Length: 42949672960\r\n\r\n", 413),
        ("two lengths", head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        ("a bare LF", b"GET / HTTP/1.1\nHost: a\n\n", 400),
        ("no host", b"GET / HTTP/1.1\r\n\r\n", 400),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        ("a head of 70 KB", head + b"X: " + b"x" * 70000, 431),
    ):
        out = s.raw(data)
        kind = b"application/json" in out
        verdict(f"{name}: {status} as JSON, and the end", out.startswith(b"HTTP/1.1 %d" % status)
                and kind, out)
    c = socket.create_connection(("127.0.0.1", s.port), timeout=SLOW)
    c.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    out = c.recv(65536)
    c.sendall(body)
    verdict("100-continue is said before the body comes",
            out == b"HTTP/1.1 100 Continue\r\n\r\n" and
            c.recv(65536).startswith(b"HTTP/1.1 200"), out)
    c.close()
    out = s.raw(b"HEAD /health HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n")
    verdict("HEAD has a head alone", out.startswith(b"HTTP/1.1 200") and
            out.endswith(b"\r\n\r\n") and b"content-length: 15" in out, out)
    out = s.raw(b"GET /health HTTP/1.0\r\n\r\n")
    verdict("HTTP/1.0 is answered and closed", b"connection: close" in out, out)
    given = s.ask("GET", "/health", headers={"X-Request-Id": "abc-1"})[1]
    verdict("a request keeps its id", given["x-request-id"] == "abc-1")


def strangers(s):
    for name, status in (("evil.example", 403), ("localhost.evil.example", 403), ("", 200),
                         ("localhost", 200), ("a.localhost:1", 200), ("127.0.0.1", 200),
                         ("[::1]:80", 200)):
        out = s.raw(b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" %
                    name.encode())
        verdict(f"the host '{name}' gets {status}", out.startswith(b"HTTP/1.1 %d" % status), out)
    for origin, status in (("http://evil.example", 403), ("null", 403),
                           (f"http://127.0.0.1:{s.port}", 200)):
        got = s.ask("GET", "/health", headers={"Origin": origin})
        verdict(f"a page of {origin} gets {status}, and leave to read nothing",
                got[0] == status and not any("access-control" in h for h in got[1]), got[1].items())


def at_once(s):
    asked = [f"the tea {i % 4}" for i in range(16)]
    alone = {q: s.chat(q)["choices"][0]["message"]["content"] for q in asked[:4]}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda q: s.chat(q)["choices"][0]["message"]["content"], asked))
    verdict("sixteen at once get the answers they get alone", said == [alone[q] for q in asked])
    idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(300)]
    verdict("300 idle connections are in nobody's way", s.chat("the tea")["choices"])
    for c in idle:
        c.close()


def leave(s, stream):
    """Leaves in the middle of an answer; whether that came before its end."""
    long = {"messages": ASK, "temperature": 0, "max_tokens": 100000, "ignore_eos": True}
    cancelled, ended = "requests_cancelled_total", "request_success_total"
    before, all_before = s.metric(cancelled), s.metric(cancelled) + s.metric(ended)
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
    c.request("POST", "/v1/chat/completions", json.dumps({**long, "stream": stream}))
    if stream:
        c.getresponse().read(100)
    c.sock.close() if c.sock else None
    c.close()
    begun = time.monotonic()
    while s.metric(cancelled) + s.metric(ended) == all_before and time.monotonic() - begun < SLOW:
        time.sleep(0.005)
    return s.metric(cancelled) == before + 1


def leaving(s):
    # the model is so small that an answer may end before anybody can leave: then once more
    for stream in (True, False):
        verdict(f"who leaves {'a stream' if stream else 'before the answer'} cancels it",
                any(leave(s, stream) for _ in range(200)))


def states(s):
    """Answers say what they follow from, in every dialect."""
    chat = {"messages": [{"role": "user", "content": "the tea"}], "max_tokens": 2}
    asked = {"/v1/chat/completions": chat, "/v1/completions": {"prompt": "x", "max_tokens": 2},
             "/v1/messages": {**chat, "model": MODEL}, "/v1/responses": {"input": "the tea"},
             "/api/chat": {**chat, "model": MODEL, "stream": False},
             "/api/generate": {"prompt": "x", "model": MODEL, "stream": False}}
    got = [s.post(path, body)[2] for path, body in asked.items()]
    verdict("all dialects carry an id, a fingerprint and the version",
            {r["learned_version"] for r in got} == {got[0]["learned_version"]} and
            {r["system_fingerprint"] for r in got} == {got[0]["system_fingerprint"]} and
            len({r["id"] for r in got}) == len(asked), got)


def back_to(s, tea):
    """An answer carries the version that rollback takes."""
    version = tea["learned_version"]
    status, _, told = s.post("/v1/learning/rollback", {"learned_version": version})
    verdict("what was said after an answer can be taken back", status == 200 and told["applied"]
            and "2 taken back" in told["notes"], told)
    verdict("and that answer comes again",
            s.chat("the tea")["choices"][0]["message"] == tea["choices"][0]["message"])
    told = s.post("/v1/learning/rollback", {"learned_version": version})[2]
    verdict("again there is nothing to take back", not told["applied"], told)
    got = [s.post("/v1/learning/rollback", body)[0] for body in (
        {"learned_version": 1000}, {"learned_version": -1}, {"learned_version": "1"},
        {"learned_version": 1, "generation": 0}, {})]
    verdict("a version to come, a wrong one, two places and none are refused",
            got == [404, 400, 400, 400, 400], got)


def feedback(s):
    first = s.chat("What is Kakovin's dog?")
    other = s.chat("the tea")["choices"]
    status, _, told = s.post("/v1/feedback", {"response_id": first["id"], "correction": "chess"})
    verdict("a correction is applied, and its number is the version of what was learned",
            status == 200 and told["applied"] and told["event"] == told["learned_version"] == 1,
            told)
    said = s.chat("What is Kakovin's dog?")
    verdict("the next answer is the right one",
            said["choices"][0]["message"]["content"] == "chess" and said["learned_version"] == 1,
            said)
    verdict("another question has the answer it had", s.chat("the tea")["choices"] == other)
    for body in ({"score": 0.5}, {"score": 0.9}, {"rating": 1}, {"preferred": "cake"}):
        status, _, told = s.post("/v1/feedback", {"completion_id": first["id"], **body})
        verdict(f"feedback {body} of an earlier answer is taken",
                status == 200 and told["event"] > 1, told)
    verdict("none of it judged the correction",
            s.chat("What is Kakovin's dog?")["choices"][0]["message"]["content"] == "chess")
    status, _, told = s.post("/v1/feedback", {"response_id": said["id"], "rating": -1})
    verdict("a thumb down for the correction's own words is for the correction",
            status == 200 and
            s.chat("What is Kakovin's dog?")["choices"][0]["message"]["content"] != "chess", told)
    tea = s.chat("the tea")
    status, _, told = s.post("/v1/feedback", {"response_id": tea["id"], "rating": -1})
    verdict("an answer that got a thumb down does not come again",
            status == 200 and told["applied"] and
            s.chat("the tea")["choices"][0]["message"] != tea["choices"][0]["message"], told)
    verdict("the new answer comes on request alone", "answer" not in told, told)
    mine = {"response_id": s.chat("Who is Ruv?")["id"], "correction": "a fox"}
    told = s.post("/v1/feedback", {**mine, "answer": True})[2]
    verdict("and is what the next one gets", told["answer"] == "a fox" and
            s.chat("Who is Ruv?")["choices"][0]["message"]["content"] == "a fox", told)
    got = s.post("/v1/feedback", {**mine, "answer": "yes"})
    verdict("a request that is neither true nor false is refused", got[0] == 400 and
            got[2]["error"]["param"] == "answer", got)
    back_to(s, tea)
    states(s)
    learning = s.ask("GET", "/v1/learning")[2]
    verdict("/v1/learning lists the lesson", learning["learned"][0]["answer"] == "chess" and
            learning["learned_version"] >= 6, learning)


def wrong_lessons():
    """An answer of the model's own is judged as that, one that a lesson spoke as the lesson's."""

    def said(question):
        return s.chat(question)["choices"][0]["message"]["content"]

    dog, wording = "What is Kakovin's dog?", "What is the dog of Kakovin?"
    with tempfile.TemporaryDirectory() as state:
        with Server(state=state) as s:
            before = s.chat(dog)
            s.post("/v1/feedback", {"response_id": before["id"], "correction": "Rex"})
            s.post("/v1/feedback", {"response_id": before["id"], "rating": -1})
            verdict("a thumb down for the answer that was corrected silences no lesson",
                    said(dog) == "Rex", said(dog))
            cut = s.chat(dog, max_tokens=3)
            s.post("/v1/feedback", {"response_id": cut["id"], "rating": -1})
            verdict("one for the beginning of what a lesson says does", said(dog) != "Rex" and
                    "Rex".startswith(cut["choices"][0]["message"]["content"]), cut)
            s.post("/v1/learning/undo", {})
            spoken = s.chat(wording)
            told = s.post("/v1/feedback", {"response_id": spoken["id"], "correction": "Fido",
                                           "answer": True})[2]
            verdict("a lesson that spoke where it was wrong is corrected there",
                    spoken["choices"][0]["message"]["content"] == "Rex" and
                    (told["answer"], said(wording), said(dog)) == ("Fido", "Fido", "Rex"), told)
        with sqlite3.connect(glob.glob(state + "/**/feedback.db", recursive=True)[0]) as db:
            last = db.execute("SELECT record FROM stream ORDER BY seq DESC LIMIT 1").fetchone()[0]
        verdict("and the log says which lesson that was", b'"target":1}' in last, last)


def reading():
    """A model that was found to read has a lesson that is only likely before the request."""
    likely = "Which dog has Kakovin?"

    def prompt(said):
        return said["usage"]["prompt_tokens"]

    with tempfile.TemporaryDirectory() as state:
        with Server(state=state) as s:
            asked = s.chat("What is Kakovin's dog?")
            alone = s.chat(likely)
            s.post("/v1/feedback", {"response_id": asked["id"], "correction": "Rex"})
            verdict("no lesson is read before it is known that the model reads",
                    prompt(s.chat(likely)) == prompt(alone))
            model = s.ask("GET", "/v1/learning")[2]["model"]
        with sqlite3.connect(glob.glob(state + "/**/feedback.db", recursive=True)[0]) as db:
            db.execute("INSERT OR REPLACE INTO item VALUES ('model', ?, ?)",
                       (model.encode() + b".reads", b"1"))
        db.close()
        with Server(state=state) as s:
            verdict("it is kept", s.ask("GET", "/v1/learning")[2]["reads"] is True)
            said = s.chat(likely)
            verdict("then it is", prompt(said) > prompt(alone), (said, alone))
            for read in (True, False):
                told = s.post("/v1/feedback", {"response_id": said["id"], "rating": -1})[2]
                verdict("a thumb down reaches the lesson, once",
                        told["applied"] and ("no longer read" in told["notes"]) == read, told)
                verdict("which is not read there again", prompt(s.chat(likely)) == prompt(alone))


def keys():
    with Server("--api-key", "sesame") as s:
        paths = [("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/metrics"),
                 ("POST", "/v1/feedback"), ("GET", "/nothing")]
        got = [s.ask(m, p, {} if m == "POST" else None) for m, p in paths]
        verdict("nothing without the key",
                all(g[0] == 401 and g[2]["error"]["code"] == "invalid_api_key" for g in got), got)
        for headers, status in (({"Authorization": "Bearer sesame"}, 200),
                                ({"authorization": "bearer sesame"}, 200),
                                ({"X-Api-Key": "sesame"}, 200),
                                ({"Authorization": "Bearer sesam"}, 401),
                                ({"Authorization": "Bearer sesame2"}, 401),
                                ({"Authorization": "sesame"}, 401)):
            verdict(f"{headers}: {status}", s.ask("GET", "/models", headers=headers)[0] == status)
    out = subprocess.run([PROGRAM, "serve", MODEL, "--host", "0.0.0.0", "--port", "0"],
                         capture_output=True, check=False)
    verdict("other machines only with a key", out.returncode == 1 and b"--api-key" in out.stderr,
            out)


def unix_socket():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "s")
        for _ in range(2):
            p = subprocess.Popen([PROGRAM, "serve", MODEL, "--unix", path, "--no-learning"],
                                 stderr=subprocess.PIPE)
            p.stderr.readline()
            c = socket.socket(socket.AF_UNIX)
            c.connect(path)
            c.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            out = b""
            while got := c.recv(65536):
                out += got
            mode = os.stat(path).st_mode & 0o777
            p.kill()  # leaves the socket behind for the second
            p.wait()
            p.stderr.close()
            verdict("a unix socket serves, its owner alone",
                    b"200 OK" in out and mode & 0o077 == 0, (out, oct(mode)))


def no_room():
    """Files may not grow any more, by the limit of a shell or of systemd: neither the state nor the
    log that is behind standard error."""
    none = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "s")
        with open(os.path.join(tmp, "log"), "wb") as log:
            p = subprocess.Popen([PROGRAM, "serve", MODEL, "--unix", path, "--no-learning"],
                                 stderr=log, preexec_fn=none)
        c = socket.socket(socket.AF_UNIX)
        while p.poll() is None and c.connect_ex(path):
            time.sleep(0.02)
        p.send_signal(signal.SIGTERM)
        verdict("a log that is full ends no server", p.wait(SLOW) == 0, p.returncode)
        c.close()
    with Server() as s:
        body = {"response_id": s.chat("Who is Ruv?")["id"], "correction": "a fox"}
        before = resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        status, _, told = s.post("/v1/feedback", body)
        verdict("what cannot be stored is refused", status == 503, (status, told))
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, before)
        status, _, told = s.post("/v1/feedback", body)
        verdict("and taken once there is room", status == 200, (status, told))


def ending():
    # --drain: or an idle connection that it waits for is not seen
    with Server("--drain", "3600") as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
        body = {"messages": ASK, "temperature": 0, "max_tokens": 200, "ignore_eos": True,
                "stream": True}
        c.request("POST", "/v1/chat/completions", json.dumps(body))
        r = c.getresponse()
        first = r.read(100)
        s.process.send_signal(signal.SIGTERM)
        rest = first + r.read()
        status = s.process.wait(SLOW)
        verdict("SIGTERM waits for a stream to end, and for nothing else",
                rest.endswith(b"data: [DONE]\n\n"), rest[-200:])
        verdict("and the status is 0", status == 0, status)
    with Server() as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
        body.update(max_tokens=100000, n=128, ignore_eos=True)  # not over before the second one
        c.request("POST", "/v1/chat/completions", json.dumps(body))
        c.getresponse().read(100)
        s.process.send_signal(signal.SIGTERM)
        refused = False
        while s.process.poll() is None and not refused:
            try:
                socket.create_connection(("127.0.0.1", s.port), timeout=SLOW).close()
            except ConnectionRefusedError:
                refused = True
            except ConnectionResetError:  # just as it stopped listening
                pass
        verdict("who comes then is refused and does not wait", refused and s.process.poll() is None)
        while s.process.poll() is None:
            s.process.send_signal(signal.SIGTERM)
            try:
                s.process.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        verdict("a second signal does not wait", s.process.returncode == 130, s.process.returncode)
    out = subprocess.run([PROGRAM, "serve", "tests/README.md", "--port", "0"], capture_output=True,
                         check=False)
    verdict("a model that cannot be opened ends it", out.returncode == 1, out)


with Server(ready=False) as served:
    verdict("one line says where it listens", served.port > 0, served.said)
    served.wait()
    verdict("before the model is open, /health says 503", served.seen <= {503, 200}, served.seen)
    for test in (models, chats, options, forms, completions, embeddings, texts, errors, connections,
                 strangers, at_once, leaving, feedback):
        test(served)
verdict("it ends well and says nothing more", (served.status, served.rest) == (0, ""),
        (served.status, served.rest))
without_encoder()
reading()
wrong_lessons()
keys()
unix_socket()
no_room()
ending()
finish()
