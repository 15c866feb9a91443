#!/usr/bin/env python3
"""`ruvllm teach`, `learn`, `run`, `chat` and `serve` on one PostgreSQL database (--store,
RUVLLM_STORE), on one machine with one state directory; and a password in its address is told to
nobody. Prints TAP."""
import os
import subprocess
import tempfile
import time

from postgres import Postgres, find
from serving import MODEL, PROGRAM, SLOW, Server, finish, skip, verdict

QUESTION = "What is Kakovin's dog?"
SECRET = "geheim%40%2Fnis"


def with_password(url):
    return url.replace("postgres@", f"postgres:{SECRET}@")


def command(*arguments, said="", store=None, **env):
    """(status, standard output, standard error)"""
    more = ["--store", store] if store else []
    r = subprocess.run([PROGRAM, *arguments, *more], capture_output=True, check=False,
                       input=said.encode(), env={**os.environ, "RUVLLM_STATE_DIR": state, **env})
    return r.returncode, r.stdout.decode(), r.stderr.decode()


def says(s, question, wanted):
    """What it answers: what is wanted, once it follows."""
    end = time.monotonic() + SLOW
    while True:
        said = s.chat(question)["choices"][0]["message"]["content"]
        if said == wanted or time.monotonic() > end:
            return said
        time.sleep(0.05)


def learned(s):
    return [x["answer"] for x in s.ask("GET", "/v1/learning")[2]["learned"]]


def commands(url):
    got = command("teach", MODEL, "-q", QUESTION, "-a", "chess", store=url)
    verdict("teach learns there", got[0] == 0 and "Learned: chess" in got[1], got)
    local = command("learn", "status", "-m", MODEL)
    verdict("and not on this machine", "Nothing was taught" in local[1], local)
    for name, options in (("--store", {"store": url}), ("RUVLLM_STORE", {"RUVLLM_STORE": url})):
        got = command("learn", "status", "-m", MODEL, **options)
        verdict(f"learn status shows it, by {name}", "chess" in got[1], got)
    got = command("run", MODEL, QUESTION, "-n", "8", RUVLLM_STORE=url)
    verdict("run says it", got[1] == "chess\n", got)
    got = command("chat", MODEL, said=QUESTION + "\n/fix the tea\n/bad\n/learned\n", store=url)
    verdict("chat says it, corrects it and shows what was learned there", got[1].startswith("chess")
            and "before: chess" in got[1] + got[2] and "1 judgement" in got[1] + got[2], got)
    got = command("learn", "log", "verify", "-m", MODEL, store=url)
    verdict("the log has all of it", "3 records" in got[1], got)
    got = command("chat", MODEL, said=QUESTION + "\n/undo\n", store=url)
    verdict("a chat takes back what it taught alone", "learn undo" in got[1] + got[2], got)
    for _ in range(2):
        command("learn", "undo", "-m", MODEL, store=url)
    got = command("run", MODEL, QUESTION, "-n", "8", store=url)
    verdict("undo takes it back", got[1] == "chess\n", got)


def beside_servers(url):
    """All of them have the state directory of this machine."""
    with Server("--store", url, state=state) as a, Server("--store", url, state=state) as b:
        verdict("two servers share a state directory", learned(a) == learned(b) == ["chess"])
        got = command("teach", MODEL, "-q", "Who is the mayor?", "-a", "Ada", store=url)
        verdict("and teach learns beside them", got[0] == 0, got)
        said = [says(s, "Who is the mayor?", "Ada") for s in (a, b)]
        verdict("what both answer a moment later", said == ["Ada", "Ada"], said)
        with open(f"/proc/{a.process.pid}/cmdline", "rb") as f:
            line = f.read().decode()
        verdict("the process does not show the password", "--store" in line and
                "geheim" not in line and "postgres:xxx" in line, line)


def pausing(url):
    got = command("learn", "pause", "-m", MODEL, store=url)
    with Server("--store", url) as s:
        doing = s.ask("GET", "/v1/learning")[2]["background"]
    verdict("learn pause counts for all who start later", got[0] == 0 and doing == "paused", doing)
    verdict("and is not a file of this machine", "paused" not in command(
        "learn", "status", "-m", MODEL)[1])


def forgetting(url):
    got = command("learn", "forget", "mayor", "-y", "-m", MODEL, store=url)
    verdict("learn forget removes it there", got[0] == 0 and "Ada" not in command(
        "learn", "status", "-m", MODEL, store=url)[1], got)


def refusals(url):
    """What is wrong is said without the password."""
    wrong = {
        "a port that is part of a password": "postgres://u:ge/heim@127.0.0.1/x",
        "a host that is part of a password": "postgres://u:x@geheim@127.0.0.1:1/x",
        "an escape that is none": "postgres://u:geheim%zz@127.0.0.1/x",
        "an address that does not end": "postgres://u:geheim@[::1/x",
        "a server that is not there": "postgres://u:geheim@127.0.0.1:1/x?connect_timeout=2",
        "a database that is not there": url.replace("/postgres?", "/none?"),
    }
    for name, address in wrong.items():
        for arguments in (["teach", MODEL, "-q", "a?", "-a", "b"], ["learn", "status", "-m", MODEL],
                          ["serve", MODEL, "--port", "0"], ["witness", "verify", address]):
            got = command(*arguments, store=None if address in arguments else address)
            verdict(f"{name}: {arguments[0]} fails and does not tell", got[0] == 1 and got[2] and
                    "heim" not in got[1] + got[2], got)
    got = command("serve", MODEL, "--check", store=url)
    verdict("serve --check hides it", "store is set" in got[1] and "geheim" not in got[1], got)
    got = command("learn", "status", "-m", MODEL, RUVLLM_STORE="file.db")
    verdict("a variable that is no address is an error", got[0] == 2 and "RUVLLM_STORE" in got[2],
            got)
    got = command("serve", MODEL, "--no-learning", "--check", RUVLLM_STORE=url)
    verdict("serve --no-learning goes without it", got[0] == 0 and "store" not in got[1], got)


if not find():
    skip("the command line on a database", "PostgreSQL is not installed")
    finish()
with Postgres() as db, tempfile.TemporaryDirectory() as state:
    place = with_password(db.url)
    commands(place)
    beside_servers(place)
    pausing(place)
    forgetting(place)
    refusals(place)
finish()
