#!/usr/bin/env python3
"""Thumbs, scores and corrections in `ruvllm chat` with the default model, at a terminal: what they
say, that an answer turned down stays away, also after a kill, and that they can be taken back.
Prints TAP."""

import json
import os
import signal
import subprocess
import tempfile
import time

from terminal import PROGRAM, Missing, Terminal, default_model, finish, has_terminals, skip, verdict


def saved(t):
    """The messages of the conversation so far."""
    path = os.path.join(Terminal.home, "now.json")
    t.ask(f"/save! {path}")
    with open(path, encoding="utf-8") as f:
        return json.load(f)["messages"]


def killed(t):
    """Ends the program as a closed machine would."""
    os.kill(t.pid, signal.SIGKILL)
    os.waitpid(t.pid, 0)
    t.status = 137
    t.close()


def judgements():
    cache = default_model()
    if not cache:
        skip("judgements", "the default model is not in the cache")
        return

    def begin():
        t = Terminal("--cache-dir", cache, "--no-history", "--greedy", "-n", "12", model="smollm2")
        t.prompt()
        return t

    t = begin()
    t.ask("Hello")
    verdict("nothing runs before something was taught", b"now:" not in t.ask("/learned"))
    turned_down = []
    for _ in range(5):
        turned_down.append(saved(t)[-1]["content"])
        text = t.ask("/bad")
        good = b"not this answer again when this is asked" in text
        good = good and b"other wordings" in text
        if not verdict("a thumb down says what it does, and what it saw", good, text):
            break
    verdict("no answer came twice", len(set(turned_down)) == len(turned_down), turned_down)
    t.ask("/temp 1")
    tries = []
    for _ in range(20):
        t.ask("/clear")
        t.ask("Hello")
        tries.append(saved(t)[-1]["content"])
    verdict("nor in 20 tries", not set(tries) & set(turned_down), set(tries) & set(turned_down))
    text = t.ask("/good")
    verdict("a first thumb up says that it is noted", b"Noted" in text, text)
    text = t.ask("/score 0.1")
    verdict("a score steps", b"a small step" in text and b"nats" not in text, text)
    verdict("and says what it saw", b"other wordings" in text, text)
    text = t.ask("/learned")
    verdict(
        "/learned lists judgements",
        b"7 judgements" in text and b"bad: " in text and b"score 0.1: " in text,
        text,
    )
    killed(t)
    t = begin()
    t.ask("Hello")
    verdict(
        "turned down answers stay away after a kill", saved(t)[-1]["content"] not in turned_down
    )
    text = t.ask("/undo")
    verdict("a chat takes back what it was told itself", b"learn undo" in text, text)
    for what in ("the score", "the thumb up", "a thumb down"):
        text = subprocess.run(
            [PROGRAM, "learn", "undo", "--cache-dir", cache],
            check=False,
            capture_output=True,
            env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
        ).stdout
        verdict(
            f"{what} of a killed chat can be taken back",
            b"taken back" in text and b"no longer be" not in text,
            text,
        )
    t.ask("/fix Rex")
    for _ in range(200):  # until the thread in the background has begun
        text = t.ask("/learned")
        if b"now:" in text:
            break
        time.sleep(0.05)
    verdict("/learned says what runs", b"now: " in text, text)
    t.send(b"/quit\r")
    verdict("leaving while it computes", t.end() == 0 and t.cooked(), t.seen[-200:])
    t.close()


if not has_terminals():
    skip("judgements", "this machine has no terminals to give (/dev/pts)")
else:
    with tempfile.TemporaryDirectory() as Terminal.home:
        try:
            judgements()
        except (Missing, OSError, KeyError, IndexError, subprocess.TimeoutExpired) as problem:
            verdict(f"judgements: {type(problem).__name__}", False, str(problem))
finish()
