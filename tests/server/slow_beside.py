#!/usr/bin/env python3
"""Two servers of one machine with the same state: each says what the other was taught, one of them
trains it, and both use the adapter that comes of it. Prints TAP."""
import glob
import hashlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time

from serving import MODEL, PROGRAM, SLOW, Server, finish, verdict

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


def forgotten(state):
    """What was forgotten is in no adapter, wherever processes have copies of it."""
    def copies():
        return glob.glob(state + "/*/default/generation*") + glob.glob(
            state + "/*/.shared-default/*/generation*")

    def rows():
        db = sqlite3.connect(database)
        try:
            return db.execute("SELECT count(*) FROM item WHERE name = 'adapter'").fetchone()[0]
        finally:
            db.close()

    database = glob.glob(state + "/*/default/feedback.db")[0]
    left = database.replace("/default/feedback.db", "/.shared-default/00000000-9")
    with Server(state=state) as a, Server(state=state) as b:
        a.post("/v1/feedback", {"response_id": a.chat(QUESTION)["id"], "correction": "Rex"})
        wait_for(lambda: learning(a)["waiting"] == learning(b)["waiting"] == 0)
        wait_for(lambda: len(copies()) > 2)
        with open(copies()[-1], "rb") as f:
            secret = f.read()[-512:]
        os.mkdir(left)  # as a process leaves it that is killed
        shutil.copy(copies()[-1], left)
        before, n_rows = copies(), rows()
        got = a.post("/v1/learning/forget", {"text": "Kakovin"})[2]
        verdict("forgetting says that adapters are erased", "erased" in got["notes"], got)
        wait_for(lambda: len(copies()) == 1, 5)
        verdict("no process has a copy any more, nor the store",
                len(before) > 2 and n_rows > 0 and rows() == 0 and copies() == [
                    left + "/" + os.path.basename(copies()[0])], (before, n_rows, copies()))
    command = subprocess.run([PROGRAM, "learn", "status", "-m", MODEL], check=False,
                             capture_output=True, env={**os.environ, "RUVLLM_STATE_DIR": state})
    verdict("and the next command removes what a killed process left",
            command.returncode == 0 and not copies(), (command, copies()))
    found = []
    for folder, _, names in os.walk(state):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                if secret in f.read():
                    found.append(name)
    verdict("its bytes are in no file", not found, found)


with tempfile.TemporaryDirectory() as home:
    from_before(home, beside(home))
    forgotten(home)
finish()
