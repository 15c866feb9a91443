#!/usr/bin/env python3
"""Which request goes first, and how long it may take: `priority` and `timeout` of bodies, in every
dialect. Prints TAP."""
import hashlib
import http.client
import json
import os
import signal
import tempfile

from serving import SLOW, Server, finish, verdict, without_encoder

without_encoder()
ASK = [{"role": "user", "content": "the tea"}]
LONG = {"max_tokens": 150, "temperature": 0, "ignore_eos": True}
PATHS = {
    "/v1/chat/completions": {"messages": ASK, **LONG},
    "/v1/completions": {"prompt": "the tea", **LONG},
    "/v1/responses": {"input": "the tea", "max_output_tokens": 150},
    "/v1/messages": {"messages": ASK, **LONG},
    "/api/chat": {"messages": ASK, "stream": False},
    "/api/generate": {"prompt": "the tea", "stream": False},
}


def order_of(log, bodies):
    """The numbers of the bodies in the order in which they were answered, by the witness log."""
    hashes = [hashlib.sha256(b).hexdigest() for b in bodies]
    with open(os.path.join(log, "witness.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [hashes.index(x["in"]) for x in lines if x.get("in") in hashes]


def post_later(s, body):
    """A request whose answer is read later."""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
    c.request("POST", "/v1/completions", body)
    return c


def priorities():
    """One is computed at a time; the others come while the first is, so that they wait."""
    wanted = [-100, 50, 0, -50, -100, None]
    bodies = [json.dumps({"prompt": f"tea {i}", **LONG, "priority": p}).encode()
              for i, p in enumerate(wanted)]
    with tempfile.TemporaryDirectory() as log:
        with Server("--parallel", "1", "--witness", log) as s:
            s.process.send_signal(signal.SIGSTOP)
            asked = [post_later(s, b) for b in bodies]
            s.process.send_signal(signal.SIGCONT)
            statuses = [c.getresponse().status for c in asked]
            for c in asked:
                c.close()
        got = order_of(log, bodies)
    verdict("all are answered", statuses == [200] * len(bodies), statuses)
    verdict("lower priorities go first, and of the same whoever came first",
            got == [0, 4, 3, 2, 5, 1], got)


def timeouts(s):
    plain = s.chat("the tea")["choices"][0]["message"]["content"]
    late = {"timeout": 1e-6}
    for path, body in PATHS.items():
        status, _, told = s.post(path, {**body, **late})
        error = told["error"]
        text = error if isinstance(error, str) else error["message"]
        verdict(f"{path}: who is late is told so", status == 504 and
                text == "the request was not answered within its timeout of 1e-06 seconds",
                (status, told))
        verdict(f"{path}: in time it is answered",
                s.post(path, {**body, "timeout": 1000})[0] == 200)
    status, headers, told = s.post("/v1/chat/completions",
                                   {**PATHS["/v1/chat/completions"], **late})
    verdict("by a word for programs", (told["error"]["type"], told["error"]["code"]) ==
            ("timeout_error", "timeout") and "x-ruvllm-ignored" not in headers, told)
    for value in (0, None):
        got = s.chat("the tea", timeout=value, priority=None)
        verdict(f"timeout {value} is none", got["choices"][0]["message"]["content"] == plain, got)


def streams(s):
    """The time is over before the stream begins, or in it."""
    body = {"prompt": "tea " * 60, **LONG, "n": 20, "temperature": 1, "stream": True,
            "timeout": 0.02}
    status, _, data = s.post("/v1/completions", body)
    last = data["error"] if status == 504 else json.loads(
        data.decode().strip().splitlines()[-1][len("data: "):])["error"]
    verdict("a stream ends with it", last["code"] == "timeout", (status, data))
    verdict("and the server goes on", s.chat("the tea")["choices"])


def bad_values(s):
    for name, values in (("priority", ["high", 101, -101, 0.5, True]),
                         ("timeout", ["1s", -1, 1e6, True])):
        for value in values:
            status, _, told = s.post("/v1/chat/completions", {"messages": ASK, name: value})
            verdict(f"{name} {value} is refused", status == 400 and told["error"]["param"] == name,
                    told)


priorities()
with Server() as server:
    timeouts(server)
    streams(server)
    bad_values(server)
finish()
