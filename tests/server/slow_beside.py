#!/usr/bin/env python3
"""Two servers of one machine with the same state: each says what the other was taught, one of them
trains it, and both use the adapter that comes of it. Prints TAP."""
import glob
import hashlib
import shutil
import sqlite3
import tempfile
import time

from serving import SLOW, Server, finish, verdict

QUESTION = "What is Kakovin's dog?"


def learning(s):
    return s.ask("GET", "/v1/learning")[2]


def said(s):
    return s.chat(QUESTION)["choices"][0]["message"]["content"]


def wait_for(what, seconds=SLOW):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


def adapters(s):
    return [hashlib.sha256(s.post("/v1/learning/export", {
        "generation": g["number"]})[2]).hexdigest() for g in learning(s)["generations"]]


def beside(state):
    with Server(state=state) as a, Server(state=state) as b:
        plain = said(b)
        told = a.post("/v1/feedback", {"response_id": a.chat(QUESTION)["id"],
                                       "correction": "chess"})
        verdict("one is taught", told[0] == 200 and told[2]["applied"], told)
        verdict("and the other says it with its next answer", said(b) == "chess" != plain, said(b))
        verdict("both train until nothing waits",
                wait_for(lambda: learning(a)["waiting"] == learning(b)["waiting"] == 0 and
                         learning(a)["generations"] and learning(b)["generations"]),
                (learning(a), learning(b)))
        verdict("one adapter, the same for both",
                len(adapters(a)) == 1 and adapters(a) == adapters(b), (adapters(a), adapters(b)))
        answers = [s.chat(QUESTION) for s in (a, b)]
        verdict("and the same version of what was learned", len({(
            x["learned_version"], x["system_fingerprint"]) for x in answers}) == 1, answers)
        return plain


def from_before(state, plain):
    """Adapters of a time when the first process kept them to itself."""
    db = sqlite3.connect(glob.glob(state + "/*/default/feedback.db")[0])
    gone = db.execute("DELETE FROM item WHERE name = 'adapter'").rowcount
    db.commit()
    db.close()
    for folder in glob.glob(state + "/*/.shared-default"):
        shutil.rmtree(folder)
    with Server(state=state) as a, Server(state=state) as b:
        verdict("an adapter that only one of them had is the other's too",
                gone > 1 and len(adapters(a)) == 1 and adapters(a) == adapters(b),
                (gone, adapters(a), adapters(b)))
        got = b.post("/v1/learning/undo", {})[2]
        verdict("the other takes it back for both", got["applied"] and said(a) == said(b) == plain,
                (got, said(a), said(b)))


with tempfile.TemporaryDirectory() as home:
    from_before(home, beside(home))
finish()
