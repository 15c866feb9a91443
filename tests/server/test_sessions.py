#!/usr/bin/env python3
"""Sessions of `ruvllm serve`: what was computed of a conversation outlives the server, killed or
not, and changes no answer; whose they are, how they end, what they may take. Prints TAP."""
import concurrent.futures
import glob
import json
import os
import shutil
import socket
import tempfile
import urllib.parse

from serving import MODEL, SLOW, Server, finish, program, verdict, without_encoder

without_encoder()
VECTORS = "tests/gguf/bert.gguf"
CHAT = "/v1/chat/completions"
TURNS = ["the tea is on the table and the dog is in the garden", "and who is with it?", "why?"]
FRESH = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def talk(s, turns, seed, headers=None, **more):
    """The next answer to a conversation, which grows by it."""
    return s.post(CHAT, {"messages": turns, "seed": seed, **FRESH, **more}, headers)


def text_of(told):
    return told["choices"][0]["message"]["content"]


def cached(told):
    return told["usage"]["prompt_tokens_details"]["cached_tokens"]


def asked(turns):
    """A conversation up to a question, with what was said."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": t} for i, t in enumerate(turns)]


def uninterrupted():
    """What a server says that has no sessions, and never ends."""
    said, turns = [], []
    with Server() as s:
        for i, question in enumerate(TURNS):
            turns.append(question)
            told = talk(s, asked(turns), 7 + i)[2]
            turns.append(text_of(told))
            said.append(text_of(told))
    return said


def killed(folder, wanted):
    """A turn of each server, which is then killed."""
    said, found, turns = [], [], []
    for i, question in enumerate(TURNS):
        turns.append(question)
        with Server("--sessions", folder) as s:
            status, _, told = talk(s, asked(turns), 7 + i, session="a talk/1")
            verdict(f"turn {i + 1} is saved", status == 200 and
                    told["session"] == {"id": "a talk/1", "saved": True}, told)
            s.process.kill()
        turns.append(text_of(told))
        said.append(text_of(told))
        found.append((cached(told), told["usage"]["prompt_tokens"]))
    verdict("the answers are those of a server that was never killed", said == wanted,
            (said, wanted))
    verdict("the first turn finds nothing, the others what was saved",
            found[0][0] == 0 and all(c >= before - 31 and c > 0 for (c, _), (_, before) in
                                     zip(found[1:], found)), found)
    with Server("--sessions", folder) as s:
        plain = talk(s, asked(turns[:5]), 9)[2]
        verdict("without its name nothing is found, and the answer is the same",
                cached(plain) == 0 and text_of(plain) == said[2] and "session" not in plain, plain)
    return turns


def changed(folder, turns):
    """What the client says counts, not what is kept."""
    with Server("--sessions", folder) as s:
        other = asked(turns[:3] + ["no"] + turns[4:5])
        told = talk(s, other, 9, session="a talk/1")[2]
        with Server() as plain:
            verdict("a conversation that was changed is answered as without a session",
                    text_of(told) == text_of(talk(plain, other, 9)[2]) and cached(told) > 0, told)


def dialects(s):
    """Each continues what it began, and says that it was saved."""
    user = [{"role": "user", "content": TURNS[0]}]
    few = {"max_tokens": 4, "temperature": 0}
    bodies = {
        "/v1/completions": {"prompt": TURNS[0], **few},
        "/v1/responses": {"input": TURNS[0], "max_output_tokens": 4},
        "/v1/messages": {"messages": user, **few},
        "/api/chat": {"messages": user, "stream": False, "options": {"num_predict": 4}},
        "/api/generate": {"prompt": TURNS[0], "stream": False, "options": {"num_predict": 4}},
    }
    for path, body in bodies.items():
        told = [s.post(path, {**body, "session": path})[2] for _ in range(2)]
        verdict(f"{path} has sessions",
                all(t.get("session") == {"id": path, "saved": True} for t in told), told)
    for path in ("/v1/completions", "/v1/chat/completions"):
        body = {"prompt": TURNS[0]} if "chat" not in path else {"messages": user}
        events, ended = s.stream(path, {**body, **few, "session": path})
        verdict(f"{path}: the last event of a stream says it",
                ended and events[-1]["session"]["saved"] and "session" not in events[0], events)
    data = s.post("/v1/messages", {**bodies["/v1/messages"], "stream": True,
                                   "session": "m"})[2].decode()
    verdict("so does that of Anthropic's", '"session":{"id":"m","saved":true}' in data, data)
    told = s.post("/v1/completions", {**bodies["/v1/completions"], "echo": True, "logprobs": 1,
                                      "session": "scored"})[2]
    verdict("prompts may be scored beside", told["session"]["saved"] and
            told["choices"][0]["logprobs"]["tokens"], told)


def refused(s):
    user = [{"role": "user", "content": "x"}]
    for name, code in ((7, "invalid_type"), ("", "value_out_of_range"),
                       ("x" * 257, "value_out_of_range"), ("a\0b", "invalid_type")):
        status, _, told = s.post(CHAT, {"messages": user, "session": name})
        verdict(f"session {json.dumps(name)[:12]} is refused", (status, told["error"]["code"],
                told["error"]["param"]) == (400, code, "session"), told)
    for more in ({"n": 2}, {"n": 1, "prompt": ["a", "b"]}):
        path = "/v1/completions"
        status, _, told = s.post(path, {"prompt": "a", **more, "session": "x"})
        verdict(f"{more} has no session", status == 400 and told["error"]["param"] == "session",
                told)
    status, _, told = s.post(CHAT, {"messages": [{"role": "user", "content": "x " * 9000}],
                                    "session": "x"})
    verdict("a prompt that is too long is told as ever",
            (status, told["error"]["code"]) == (400, "context_length_exceeded"), told)
    status, _, told = s.ask("DELETE", "/v1/sessions/x")
    verdict("and leaves no session", (status, told["error"]["code"]) == (404, "not_found"), told)


def crowd(s):
    """Of requests of one session at the same time one is answered, at least; others are told."""
    def one(i):
        return s.post(CHAT, {"messages": asked([f"{i}"]), **FRESH, "session": "crowd"})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, range(24)))
    statuses = {g[0] for g in got}
    verdict("a session has one request at a time", 200 in statuses and statuses <= {200, 409},
            statuses)
    verdict("and others are told", all(g[2]["error"]["code"] == "session_busy" for g in got
                                       if g[0] == 409))


def leaves(s):
    """Clients that leave while their session is read, and after."""
    body = json.dumps({"messages": asked(TURNS[:1]), **FRESH, "max_tokens": 200,
                       "session": "left"}).encode()
    for _ in range(12):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        s.send(head.encode() + body)
    status = 409
    while status == 409:
        status, _, told = talk(s, asked(TURNS[:1]), 1, session="left")
    verdict("who leaves leaves the session free", status == 200 and told["session"]["saved"], told)


class Left(Server):
    def send(self, data):
        """A request of somebody who does not wait."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SLOW) as c:
            c.sendall(data)


def tenants(folder, keys):
    made = {n: program("key", keys, n).strip() for n in ("ann", "bob")}
    with Server("--sessions", folder, "--keys", keys) as s:
        first = talk(s, asked(TURNS[:1]), 1, bearer(made["ann"]), session="mine")[2]
        turns = asked([TURNS[0], text_of(first), TURNS[1]])
    with Server("--sessions", folder, "--keys", keys) as s:
        got = {n: talk(s, turns, 2, bearer(made[n]), session="mine")[2] for n in ("bob", "ann")}
        verdict("a name is one's own: others do not find what is kept",
                cached(got["bob"]) == 0 and cached(got["ann"]) > 0, got)
        verdict("though their answers are the same",
                text_of(got["bob"]) == text_of(got["ann"]), got)

        def forget(name):
            return s.ask("DELETE", "/v1/sessions/mine", headers=bearer(made[name]))

        told = {n: s.ask("GET", "/v1/sessions", headers=bearer(made[n]))[2] for n in made}
        talk(s, turns, 2, bearer(made["ann"]), session="another")
        more = s.ask("GET", "/v1/sessions", headers=bearer(made["ann"]))[2]["data"]
        verdict("each sees its own alone", all(
            [(x["id"], x["object"]) for x in t["data"]] == [("mine", "session")]
            for t in told.values()) and {x["id"] for x in more} == {"mine", "another"} and
            s.ask("DELETE", "/v1/sessions/another", headers=bearer(made["ann"]))[0] == 200, more)
        status, _, told = forget("bob")
        verdict("one's own is forgotten", (status, told) == (200, {
            "id": "mine", "object": "session", "deleted": True}), told)
        verdict("once", forget("bob")[0] == 404)
        verdict("nobody else's is", forget("ann")[0] == 200)
        verdict("without a key nothing is", s.ask("DELETE", "/v1/sessions/mine")[0] == 401)
    verdict("their files are gone", not glob.glob(folder + "/*/*.session"))


def several(folder):
    with Server(f"b={MODEL}", f"e={VECTORS}", "--sessions", folder, model=f"../a={MODEL}") as s:
        for name in ("../a", "b"):
            body = {"model": name, "messages": asked(["x"]), "max_tokens": 2, "session": "a b/ä"}
            verdict(f"{name} has sessions", s.post(CHAT, body)[2]["session"]["saved"])
        verdict("in folders of their own", sorted(os.listdir(folder)) == ["%2E.%2Fa", "b"],
                os.listdir(folder))
        path = "/v1/sessions/" + urllib.parse.quote("a b/ä", safe="")
        gone = [s.ask("DELETE", path + "?model=b")[0] for _ in range(2)]
        verdict("that of a model is forgotten", gone == [200, 404], gone)
        verdict("not that of another", s.ask("DELETE", path)[0] == 200)
        verdict("a model for vectors has none, and is served as ever",
                s.post("/v1/embeddings", {"model": "e", "input": "x"})[0] == 200)


def bad_disk(folder):
    with Server("--sessions", folder, "--session-room", "1K") as s:
        status, _, told = talk(s, asked(TURNS[:1]), 1, session="large")
        verdict("what is over the quota is answered, and not saved",
                status == 200 and text_of(told) and not told["session"]["saved"] and
                told["session"]["error"].endswith("1024 is the limit"), told)
        verdict("nor there", s.ask("DELETE", "/v1/sessions/large")[0] == 404)
    with Server("--sessions", folder, "--sessions-per-key", "1") as s:
        got = [talk(s, asked(TURNS[:1]), 1, session=name) for name in ("one", "one", "two")]
        verdict("one more than a key may have is refused", [g[0] for g in got] ==
                [200, 200, 429] and got[2][2]["error"]["code"] == "session_limit", got[2])
        s.ask("DELETE", "/v1/sessions/one")
        verdict("until one was deleted", talk(s, asked(TURNS[:1]), 1, session="two")[0] == 200)
        s.ask("DELETE", "/v1/sessions/two")
    with Server("--sessions", folder) as s:
        talk(s, asked(TURNS[:1]), 1, session="bad")
        file, = glob.glob(folder + "/*/*.session")
        with open(file, "r+b") as f:
            f.seek(-100, os.SEEK_END)
            f.write(b"x" * 8)
        status, _, told = talk(s, asked(TURNS[:1]), 1, session="bad")
        verdict("a damaged one is refused", (status, told["error"]["code"]) ==
                (500, "session_damaged"), told)
        verdict("until it is deleted", s.ask("DELETE", "/v1/sessions/bad")[0] == 200 and
                talk(s, asked(TURNS[:1]), 1, session="bad")[2]["session"]["saved"])
    with Server("--sessions", folder) as s:
        for name in glob.glob(folder + "/*"):  # where they were is no folder any more
            shutil.rmtree(name)
            with open(name, "w", encoding="utf-8"):
                pass
        _, _, told = talk(s, asked(TURNS[:1]), 1, session="lost")
        verdict("one that cannot be written has a reason without a path",
                not told["session"]["saved"] and "cannot" in told["session"]["error"] and
                "/" not in told["session"]["error"], told)


def old_ones(folder):
    with Server("--sessions", folder, "--session-age", "1") as s:
        talk(s, asked(TURNS[:1]), 1, session="old")
        status = 200
        while glob.glob(folder + "/*/*.session"):  # until some request looks at it
            status = talk(s, asked(TURNS[:1]), 1, session="other")[0]
            s.ask("DELETE", "/v1/sessions/other")
        verdict("sessions that are old enough are removed", status == 200)


def off():
    with Server() as s:
        for got in (talk(s, asked(TURNS[:1]), 1, session="x"),
                    s.ask("DELETE", "/v1/sessions/x"), s.ask("GET", "/v1/sessions")):
            verdict("without --sessions there are none, which is said",
                    (got[0], got[2]["error"]["code"]) == (400, "sessions_off") and
                    "--sessions" in got[2]["error"]["message"], got[2])
        verdict("null is none", talk(s, asked(TURNS[:1]), 1, session=None)[0] == 200)


with tempfile.TemporaryDirectory() as tmp:
    def fresh(name):
        return os.path.join(tmp, name)

    changed(fresh("talk"), killed(fresh("talk"), uninterrupted()))
    with Left("--sessions", fresh("shared")) as server:
        dialects(server)
        refused(server)
        crowd(server)
        leaves(server)
    verdict("the server ended well", server.status == 0, server.rest)
    tenants(fresh("keyed"), fresh("keys"))
    several(fresh("several"))
    bad_disk(fresh("bad"))
    old_ones(fresh("old"))
    off()
finish()
