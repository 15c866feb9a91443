#!/usr/bin/env python3
"""Ctrl-C: the first stops what can be stopped, a second one leaves whatever is under way; the status is 130. Prints TAP."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

from terminal import MODEL, PROGRAM, SLOW, Missing, Terminal, finish, has_terminals, skip, verdict


def twice_in_a_tokenizer():
    """Reading this file cannot be cancelled, and takes seconds."""
    big = os.path.join(tmp, "big.json")
    with open(big, "w", encoding="utf-8") as f:
        json.dump({"messages": [{"role": "user", "content": "the tea and cake " * 900000}]}, f)
    t = Terminal()
    t.prompt()
    t.send(f"/load {big}\r".encode())
    t.wait(b"big.json\r\n")
    t.interrupt()
    t.interrupt()
    status = t.end()
    verdict(
        "a second Ctrl-C leaves while a text is tokenized",
        status == 130 and b"loaded" not in t.seen,
        (status, t.seen),
    )
    verdict("with the terminal as it was", t.cooked())
    t.close()


def no_key_in_the_text():
    for command, arguments in (("chat", []), ("run", ["the tea"])):
        t = Terminal(
            *arguments,
            "-n",
            "100000",
            "--ctx",
            "100000",
            "--ignore-eos",
            "--greedy",
            command=command,
        )
        if command == "chat":
            t.prompt()
            t.send(b"the tea\r")
            t.wait(b"the tea\r\n")
        t.wait(re.compile(rb"(?s).{40}"))
        t.interrupt()
        if command == "chat":
            t.prompt()
            t.send(b"\x04")
        verdict(
            f"{command}: ^C is not written into the answer",
            t.end() == (0 if command == "chat" else 130) and b"^C" not in t.seen,
            (t.status, t.seen[-200:]),
        )
        verdict(f"{command}: and the terminal is as it was", t.cooked())
        t.close()


def interrupted(name, *arguments, after=b""):
    """Interrupts a command once it has written `after` to standard error."""
    p = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
    )
    seen = b""
    while after not in seen:
        data = os.read(p.stderr.fileno(), 4096)
        if not data:
            break
        seen += data
    p.send_signal(signal.SIGINT)
    _, rest = p.communicate(timeout=SLOW)
    verdict(name, p.returncode == 130, (p.returncode, seen, rest))


def training():
    for i in range(3):
        subprocess.run(
            [PROGRAM, "teach", MODEL, "-q", f"What is Nim{i}'s town?", "-a", "Oslo"],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
        )
    interrupted("learn run interrupted: status 130", "learn", "run", "-m", MODEL, after=b"%")


with tempfile.TemporaryDirectory() as tmp:
    Terminal.home = os.path.join(tmp, "home")
    os.mkdir(Terminal.home)
    for case in (twice_in_a_tokenizer, no_key_in_the_text, training):
        if case is not training and not has_terminals():
            skip(case.__name__, "this machine has no terminals to give (/dev/pts)")
            continue
        try:
            case()
        except (Missing, OSError, subprocess.SubprocessError) as problem:
            verdict(f"{case.__name__}: {type(problem).__name__}", False, str(problem))
finish()
