#!/usr/bin/env python3
"""How far a long prompt is, as a terminal shows it. Prints TAP."""

import os
import re
import tempfile

from terminal import MODEL, Terminal, finish, has_terminals, on_terminal, skip, verdict


def long_prompt():
    many = "tea " * 600
    slow = ("--ctx", "20000", "-n", "2", "--greedy", "-t", "1", "--isa", "ref")
    shown, raw = on_terminal("run", MODEL, many, *slow)
    seen = [
        (int(a.replace(b",", b"")), int(b.replace(b",", b"")))
        for a, b in re.findall(rb"\rreading ([\d,]+) of ([\d,]+) tokens", shown)
    ]
    verdict(
        "a long prompt shows how far it is",
        len(seen) > 3
        and seen == sorted(seen)
        and len({b for _, b in seen}) == 1
        and seen[-1][1] > 1500
        and re.search(rb"reading \d+,\d\d\d of", shown) is not None,
        seen,
    )
    verdict("on a line that is erased", b"tokens\x1b[K\r\x1b[K" in shown, shown[-200:])
    verdict("a pipe gets nothing of it", b"reading" not in raw, raw)
    shown, _ = on_terminal("run", MODEL, "tea", "-n", "2", "--greedy")
    verdict("nor does a short prompt", b"reading" not in shown, shown)


with tempfile.TemporaryDirectory() as tmp:
    Terminal.home = os.path.join(tmp, "home")
    os.mkdir(Terminal.home)
    if has_terminals():
        long_prompt()
    else:
        skip("long_prompt", "this machine has no terminals to give (/dev/pts)")
finish()
