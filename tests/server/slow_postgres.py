#!/usr/bin/env python3
"""Two instances of `ruvllm serve` on one PostgreSQL database: each sees what the other was taught;
nothing acknowledged is lost when one is killed or the database goes away. First the store's own
tests over the same database. Prints TAP."""
import concurrent.futures
import http.client
import json
import os
import re
import subprocess
import time

from postgres import Postgres, find
from serving import PROGRAM, SLOW, Server, finish, program, skip, verdict

QUESTION = "What is Kakovin's dog?"
OTHERWISE = "Which dog does Kakovin have?"


def said(s, text=QUESTION):
    return s.chat(text)["choices"][0]["message"]["content"]


def teach(s, text, answer):
    return s.post("/v1/feedback", {"response_id": s.chat(text)["id"], "correction": answer})


def learned(s):
    return {x["answer"] for x in s.ask("GET", "/v1/learning")[2]["learned"]}


def wait_for(what):
    """Seconds until it is true: a fraction of one, but a busy machine may take longer."""
    begun = time.monotonic()
    while not what() and time.monotonic() - begun < SLOW:
        time.sleep(0.01)
    return time.monotonic() - begun


def store_tests(db):
    got = subprocess.run(["build/tests/store/test_store"], capture_output=True,
                         env={**os.environ, "RUVLLM_TEST_POSTGRES": db.url})
    verdict("the store's own tests pass on PostgreSQL", got.returncode == 0,
            got.stdout + got.stderr)


def follows(a, b):
    plain = said(b)
    status, _, told = teach(a, QUESTION, "chess")
    verdict("a correction on one instance", status == 200 and told["applied"], told)
    took = wait_for(lambda: said(b) == "chess")
    verdict("is spoken on the other", took < SLOW, took)
    other = said(a, OTHERWISE), said(b, OTHERWISE)
    verdict("and in other words on both", other == ("chess", "chess"), other)
    verdict("with the same version of what was learned",
            [s.chat(QUESTION)["learned_version"] for s in (a, b)] == [1, 1])
    got = b.post("/v1/learning/undo", {})[2]
    verdict("the other takes it back", got["applied"] and said(b) == plain, got)
    took = wait_for(lambda: said(a) == plain)
    verdict("and the first has it no more", took < SLOW, took)


def answers(a, b):
    """An answer of one instance is known to the other."""
    first = a.chat("Who keeps the bees?")["id"]

    def judge():
        return b.post("/v1/feedback", {"response_id": first, "correction": "Mila"})[0]

    took = wait_for(lambda: judge() == 200)
    verdict("feedback reaches the other instance", took < SLOW and
            said(b, "Who keeps the bees?") == "Mila", took)
    b.post("/v1/learning/undo", {})
    made = a.post("/v1/responses", {"input": "Remember 7.", "max_output_tokens": 8})[2]
    more = {"input": "And now?", "previous_response_id": made["id"], "max_output_tokens": 8}
    took = wait_for(lambda: b.post("/v1/responses", more)[0] == 200)
    verdict("and so does a conversation", took < SLOW, took)
    got = b.ask("GET", f"/v1/responses/{made['id']}")[2]
    verdict("which it can show", got["output"] == made["output"], got)
    verdict("an unknown answer is unknown", b.post(
        "/v1/feedback", {"response_id": "chatcmpl-none", "correction": "x"})[0] == 404)


def asked_early(a, b):
    """Other instances ask for a response all the time while it is made and written."""
    def made():
        body = json.dumps({"input": "Count.", "max_output_tokens": 8, "stream": True})
        c = http.client.HTTPConnection("127.0.0.1", a.port, timeout=SLOW)
        c.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
        stream = c.getresponse()
        id = re.search(rb'"id":"(resp_[^"]+)"', next(x for x in stream if x[:5] == b"data:"))[1]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(wait_for, lambda: b.ask(
                "GET", f"/v1/responses/{id.decode()}")[0] == 200) for _ in range(4)]
            stream.read()
            return max(x.result() for x in asking)

    took = [made() for _ in range(8)]
    verdict("a response that is asked for early is found when it is there", max(took) < SLOW, took)


def witness():
    """One chain of both."""
    with Server("--store", db.url, "--witness", db.url) as a, \
            Server("--store", db.url, "--witness", db.url) as b:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: (a, b)[i % 2].chat("hi"), range(20)))
    got = program("witness", "verify", db.url)
    verdict("the witness log is one chain of both instances",
            got.startswith("20 requests, none changed; 0 were dropped\nstarted 2 times"), got)
    db.sql("UPDATE ruvllm_stream SET record = replace(encode(record, 'escape'), "
           "'\"status\":200', '\"status\":201')::bytea WHERE name = 'witness' AND seq = 7")
    failed = subprocess.run([PROGRAM, "witness", "verify", db.url], capture_output=True)
    verdict("a changed line is found", failed.returncode != 0, failed.stderr)


def together(a, b):
    """Both learn at the same time."""
    def one(i):
        s = (a, b)[i % 2]
        return teach(s, f"What is the secret number of agent {i}?", f"number {i}")[0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, range(24)))
    verdict("corrections on both at the same time are all taken", got == [200] * 24, got)
    wanted = {f"number {i}" for i in range(24)}
    took = wait_for(lambda: learned(a) == learned(b) == wanted)
    verdict("and known on both", took < SLOW, (learned(a), learned(b)))
    events = db.sql("SELECT count(*), max(seq) FROM ruvllm_stream WHERE name = 'feedback' AND "
                    "space NOT LIKE '/%'")
    verdict("in one order without gaps", events == "28|28", events)


def forgotten(a, b):
    """What one instance forgets is gone from the memory of the other."""
    there = [b.chat("Who painted the gate?")["id"],
             b.post("/v1/responses", {"input": "Of the gate", "max_output_tokens": 4,
                                      "store": False})[2]["id"]]
    teach(a, "Who painted the gate?", "Ilvara")
    before = [b.post("/v1/feedback", {"response_id": x, "rating": 1})[0] for x in there]
    done = a.post("/v1/learning/forget", {"text": "Ilvara"})[2]["applied"]
    took = wait_for(lambda: all(b.post("/v1/feedback", {"response_id": x, "rating": 1})[0] == 404
                                for x in there))
    verdict("what one forgets is gone from the memory of the other", done and took < SLOW and
            before == [200, 200], (done, took, before))
    b.post("/v1/learning/undo", {})
    b.post("/v1/learning/undo", {})


def killed(b):
    """What an instance acknowledged before it was killed is known to the other."""
    acknowledged = set()
    with Server("--store", db.url) as a:
        for i in range(5):
            if teach(a, f"Who painted picture {i}?", f"painter {i}")[0] == 200:
                acknowledged.add(f"painter {i}")
        a.process.kill()
    took = wait_for(lambda: acknowledged <= learned(b))
    verdict("what a killed instance had acknowledged is known to the other",
            len(acknowledged) == 5 and took < SLOW, learned(b))
    with Server("--store", db.url) as again:
        verdict("and to the next one, with an empty folder of its own",
                learned(again) == learned(b) and len(learned(b)) == 29)


def database_lost(a):
    plain = said(a, "What is 1 + 1?")
    db.stop()
    got = said(a, "What is the secret number of agent 3?"), said(a, "What is 1 + 1?")
    verdict("without the database answers go on", got == ("number 3", plain), got)
    status, headers, told = teach(a, "Who is the mayor?", "Ada")
    verdict("feedback is refused", (status, told["error"]["code"]) == (503, "store_unavailable"),
            (status, told))
    verdict("and may be tried again", headers["retry-after"] is not None)
    verdict("what was refused does not count", "Ada" not in said(a, "Who is the mayor?"))
    db.start()
    took = wait_for(lambda: teach(a, "Who is the mayor?", "Ada")[0] == 200)
    verdict("when it is back, feedback is taken again", took < SLOW, took)
    verdict("and counts", said(a, "Who is the mayor?") == "Ada")


def refusals():
    with Server("--store", "postgres://127.0.0.1:1/none", ready=False) as s:
        s.process.wait(SLOW)
    verdict("a database that cannot be reached is an error at the start", s.status != 0 and
            "cannot be opened" in s.said + s.rest, s.said + s.rest)


if not find():
    skip("two instances on one database", "PostgreSQL is not installed")
    finish()
with Postgres() as db:
    store_tests(db)
    with Server("--store", db.url) as second:
        with Server("--store", db.url) as first:
            follows(first, second)
            answers(first, second)
            asked_early(first, second)
            together(first, second)
            forgotten(first, second)
        verdict("the first ends well", (first.status, first.rest) == (0, ""), first.rest)
        killed(second)
        database_lost(second)
    verdict("the second ends well", second.status == 0, second.rest)
    witness()
    refusals()
finish()
