#!/usr/bin/env python3
"""Answers that outlive the server: feedback on one, reading it and continuing it after a restart;
what is not kept, what is removed, and who can read the file. Prints TAP."""
import glob
import os
import resource
import sqlite3
import stat
import subprocess
import tempfile
import time

from serving import MODEL, PROGRAM, Server, finish, verdict, without_encoder

without_encoder()
SECRET = "Zorvathian"


def bytes_of(state):
    """All that lies in the state's files of answers."""
    found = b""
    for path in glob.glob(os.path.join(state, "answers.db*")):
        with open(path, "rb") as f:
            found += f.read()
    return found


def items(state, name):
    db = sqlite3.connect(os.path.join(state, "answers.db"))
    n = db.execute("SELECT count(*) FROM item WHERE name = ?", (name,)).fetchone()[0]
    db.close()
    return n


def respond(s, text, **more):
    return s.post("/v1/responses", {"input": text, "max_output_tokens": 4, "temperature": 0,
                                    **more})


def restart(state):
    with Server(state=state) as s:
        chat = s.chat("What is the " + SECRET + " capital?")
        kept = respond(s, "Remember " + SECRET)[2]
        other = respond(s, "Do not keep this: Qubbleford", store=False)[2]
    verdict("the server ends well", s.status == 0, s.rest)
    modes = [stat.S_IMODE(os.stat(p).st_mode) for p in glob.glob(state + "/answers.db*")]
    verdict("answers are kept for their owner alone", modes and set(modes) == {0o600}, modes)
    verdict("and not where the client says so", SECRET.encode() in bytes_of(state) and
            b"Qubbleford" not in bytes_of(state))
    with Server(model="other=" + MODEL, state=state) as s:
        status, _, got = s.post("/v1/feedback", {"response_id": chat["id"], "rating": 1})
        verdict("no feedback for another model's answer", status == 404, got)
    with Server(state=state) as s:
        status, _, got = s.ask("GET", "/v1/responses/" + kept["id"])
        verdict("a response is read after a restart", (status, got) == (200, kept), got)
        status, _, got = respond(s, "And now?", previous_response_id=kept["id"])
        verdict("and continued", status == 200 and
                got["usage"]["input_tokens"] > kept["usage"]["input_tokens"], got)
        status, _, got = s.post("/v1/feedback", {"response_id": chat["id"],
                                                 "correction": "It is Old Zorvath."})
        verdict("feedback on an answer from before is taken", status == 200 and got["applied"], got)
        status, _, got = s.ask("GET", "/v1/responses/" + other["id"])
        verdict("what was not to be stored is gone", status == 404, got)
    return chat, kept


def forget(state, chat, kept):
    with Server(state=state) as s:
        status, _, got = s.post("/v1/learning/forget", {"text": "nobody taught this"})
        verdict("where nothing is forgotten answers stay", s.ask(
            "GET", "/v1/responses/" + kept["id"])[0] == 200, (status, got))
        status, _, got = s.post("/v1/learning/forget", {"text": "Old Zorvath"})
        verdict("a lesson is forgotten", status == 200 and got["applied"], got)
        verdict("and conversations with it", s.ask("GET", "/v1/responses/" + kept["id"])[0] == 404
                and s.post("/v1/feedback", {"response_id": chat["id"], "rating": 1})[0] == 404)
        status, _, got = s.post("/v1/feedback", {"response_id": "", "rating": 1})
        verdict("an empty id is that of no answer", status == 404, got)
        s.post("/v1/feedback", {"response_id": s.chat("Say Qubbleford")["id"],
                                "correction": "Old Zorvath."})
    verdict("nothing of them is left in the file", SECRET.encode() not in bytes_of(state))
    there = b"Qubbleford" in bytes_of(state)
    done = subprocess.run([PROGRAM, "learn", "-m", MODEL, "forget", "Old Zorvath", "-y"],
                          env={**os.environ, "RUVLLM_STATE_DIR": state}, capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    verdict("`learn forget` forgets them too", there and done.returncode == 0 and
            b"Qubbleford" not in bytes_of(state), done)


def forget_beside(state):
    """What one process forgets is gone from the memory of another, also what was never written."""
    with Server(state=state) as one, Server(state=state) as other:
        for by in ("a server", "`learn forget`"):
            said = [one.chat("Who is " + SECRET + "?")]
            one.post("/v1/feedback", {"response_id": said[0]["id"], "correction": "Old Zorvath."})
            said.append(other.chat("Who was " + SECRET + "?"))
            held = respond(other, "Of " + SECRET, store=False)[2]["id"]
            before = [other.post("/v1/feedback", {"response_id": x["id"], "rating": 1})[0]
                      for x in said]
            if by == "a server":
                done = one.post("/v1/learning/forget", {"text": "Old Zorvath"})[2]["applied"]
            else:
                done = not subprocess.run(
                    [PROGRAM, "learn", "-m", MODEL, "forget", "Old Zorvath", "-y"],
                    env={**os.environ, "RUVLLM_STATE_DIR": state}, capture_output=True,
                    stdin=subprocess.DEVNULL, check=False).returncode
            after = [s.post("/v1/feedback", {"response_id": x, "rating": 1})[0]
                     for s in (one, other) for x in [said[0]["id"], said[1]["id"], held]]
            verdict(f"what {by} forgets is gone from the memory of another", done and
                    before == [200, 200] and set(after) == {404}, (done, before, after))
            fresh = respond(other, "Something new", store=False)[2]["id"]
            time.sleep(1.2)  # it looks every second, and must not take this for older than it is
            verdict("and nothing that came later", other.post(
                "/v1/feedback", {"response_id": fresh, "rating": 1})[0] == 200)


def limits(state):
    """As if many had been given before: 50 more than a day ago, and more than 32 MiB in all."""
    now, each = int(1000 * time.time()), 16500
    db = sqlite3.connect(os.path.join(state, "answers.db"))
    db.execute("DELETE FROM item")
    for i in range(2150):
        ms = now - (25 * 3600 * 1000 if i < 50 else 1000) + i
        db.execute("INSERT INTO item VALUES ('answers.time', ?, ?)",
                   (f"{ms:014}.old-{i}.0".encode(), f"{each}".encode()))
        db.execute("INSERT INTO item VALUES ('answers', ?, ?)", (f"old-{i}.0".encode(), b"{}"))
    db.commit()
    db.close()
    with Server(state=state) as s:
        s.chat("One more")
    n = items(state, "answers"), items(state, "answers.time")
    verdict("old ones go, and the oldest make room", n[0] == n[1] == (32 << 20) // each + 1, n)


def bad_disk(state):
    """That answers cannot be written, or one not be read, is told once, and they are given."""
    db = sqlite3.connect(os.path.join(state, "answers.db"))
    db.execute("INSERT INTO item VALUES ('answers', ?, ?)", (b"resp_bad.0", b"{"))
    db.commit()
    db.close()
    with Server(state=state) as s:
        got = [s.ask("GET", "/v1/responses/resp_bad")[0] for _ in range(2)]
        resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        got += [respond(s, "Hello")[0] for _ in range(3)]
    verdict("a store that fails stops nobody", got == [404, 404, 200, 200, 200], got)
    told = [line for line in s.rest.splitlines() if "warning: answers" in line]
    verdict("and is told once", len(told) == 2 and "cannot be read" in told[0] and
            "are kept in memory alone" in told[1], s.rest)


def no_place(state):
    with Server("--no-learning", state=state) as s:
        id_of = respond(s, "Hello")[2]["id"]
        verdict("without learning answers are in memory alone",
                s.ask("GET", "/v1/responses/" + id_of)[0] == 200 and not os.listdir(state))


with tempfile.TemporaryDirectory() as folder:
    limits_in, none_in = os.path.join(folder, "state"), os.path.join(folder, "none")
    os.mkdir(none_in)
    forget(limits_in, *restart(limits_in))
    forget_beside(os.path.join(folder, "beside"))
    limits(limits_in)
    bad_disk(limits_in)
    no_place(none_in)
finish()
