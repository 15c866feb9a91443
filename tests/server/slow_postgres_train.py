#!/usr/bin/env python3
"""Two instances of `ruvllm serve` on one PostgreSQL database train what they are taught: one of
them does it, both use the adapter that comes of it, and where the one that trains is killed the
other goes on. Then the command line trains beside them. Prints TAP."""
import contextlib
import hashlib
import os
import subprocess
import threading
import time

from postgres import Postgres, find
from serving import MODEL, PROGRAM, SLOW, Server, finish, skip, verdict


def teach(s, text, answer):
    return s.post("/v1/feedback", {"response_id": s.chat(text)["id"], "correction": answer})[2]


def learning(s):
    return s.ask("GET", "/v1/learning")[2]


def wait_for(what, seconds=SLOW):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


def at_work(s):
    return learning(s)["background"] not in ("off", "resting")


def waiting(s):
    return learning(s)["waiting"]


def adapters(s):
    """Digests of the adapters that an instance hands out, by their generations."""
    return {g["number"]: hashlib.sha256(s.post("/v1/learning/export", {
        "generation": g["number"]})[2]).hexdigest() for g in learning(s)["generations"]}


def published():
    return db.sql("SELECT count(*) FROM ruvllm_stream WHERE name = 'feedback' AND "
                  "encode(record, 'escape') LIKE '%\"kind\":\"publish\"%'")


@contextlib.contextmanager
def held_lease():
    """Training is somebody else's, who has the lock of the state: by its name, as postgres.c makes
    a number of it."""
    space = db.sql("SELECT DISTINCT space FROM ruvllm_stream WHERE name = 'feedback'")
    name = hashlib.sha256(space.encode() + b"\0training").digest()
    key = int.from_bytes(name[:8], "big") & (1 << 63) - 1
    with subprocess.Popen([os.path.join(db.bin, "psql"), "-X", "-q", "-d", db.url], cwd="/",
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, **db.user) as psql:
        psql.stdin.write(f"SELECT pg_advisory_lock({key});\n\\echo held\n".encode())
        psql.stdin.flush()
        while b"held" not in psql.stdout.readline():
            pass
        yield
        psql.stdin.close()


class Watch:
    """Who was seen at work."""

    def __init__(self, *servers):
        self.servers, self.seen, self.over = servers, set(), False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over:
            self.seen |= {s for s in self.servers if at_work(s)}
            time.sleep(0.02)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def same_answers(a, b):
    """What an answer says about the state that it came from, and its text."""
    got = []
    for s in (a, b):
        r = s.chat("Which dog does Kakovin have?")
        got.append((r["learned_version"], r["system_fingerprint"],
                    r["choices"][0]["message"]["content"]))
    return got[0] == got[1], got


def trains_once(a, b):
    with Watch(a, b) as watch:
        told = teach(a, "What is Kakovin's dog?", "chess")
        verdict("a correction is taken by one instance", told["applied"], told)
        done = wait_for(lambda: all(learning(s)["generations"] and not waiting(s) for s in (a, b)))
        verdict("and is trained", done, (learning(a), learning(b)))
    verdict("by one of the two alone", len(watch.seen) == 1, len(watch.seen))
    verdict("once", published() == "1", published())
    both = adapters(a), adapters(b)
    verdict("both have the same adapter, bit for bit", both[0] == both[1] and list(both[0]) == [1],
            both)
    active = [[g["active"] for g in learning(s)["generations"]] for s in (a, b)]
    verdict("which is active", active == [[True], [True]], active)
    same, got = same_answers(a, b)
    verdict("and the same version, fingerprint and answer", same and got[0][2] == "chess" and
            got[0][0] == told["learned_version"] + 1, got)
    return (a, b) if a in watch.seen else (b, a)


def survives(trainer, other):
    """The one that trains is killed at it."""
    teach(other, "What is Zorblat's profession?", "baker")
    found = wait_for(lambda: at_work(trainer) or at_work(other))
    first, second = (trainer, other) if at_work(trainer) else (other, trainer)
    first.process.kill()
    first.process.wait()
    verdict("an instance that trains is killed", found)
    done = wait_for(lambda: learning(second)["lessons"] == 2 and not waiting(second))
    verdict("the other trains to the end", done, learning(second))
    verdict("again once", published() == "2", published())
    return second


def by_hand(before, n):
    """`learn run` where no server trains: n generations are there."""
    with held_lease():
        got = command("teach", MODEL, "-q", "Who keeps the bees of Orlin?", "-a", "Mila")
        verdict("teach learns beside an instance that trains", got[0] == 0, got)
        run = begin("learn", "run", "-m", MODEL)
        said = run.stdout.readline()
        verdict("learn run waits for it", "waiting for it" in said, said)
    said = run.communicate()[0]
    verdict("and trains afterwards", run.returncode == 0 and f"generation {n + 1}" in said and
            published() == str(n + 1), said)
    got = command("learn", "run", "-m", MODEL)
    verdict("once", got[0] == 0 and "Nothing waits" in got[1], got)
    got = command("learn", "status", "-m", MODEL)
    verdict("learn status lists what was trained", f"generation {n + 1}" in got[1] and
            "Mila" in got[1], got)
    with Server("--store", db.url) as s:
        now = adapters(s)
        verdict("an instance that starts later has the same adapters", len(now) == n + 1 and
                {k: now[k] for k in before} == before, (before, now))


def begin(*arguments):
    return subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "RUVLLM_STORE": db.url})


def command(*arguments):
    with begin(*arguments) as p:
        said = p.communicate()[0]
    return p.returncode, said


if not find():
    skip("training on one database", "PostgreSQL is not installed")
    finish()
with Postgres() as db:
    with Server("--store", db.url) as one, Server("--store", db.url) as two:
        known = adapters(survives(*trains_once(one, two)))
    by_hand(known, 2)
finish()
