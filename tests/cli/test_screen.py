#!/usr/bin/env python3
"""What a terminal gets to see: no escapes of untrusted files, lines broken between words. Prints
TAP."""

import os
import re
import subprocess
import tempfile

import gguf_edit
from terminal import (
    MODEL,
    PROGRAM,
    Missing,
    Terminal,
    finish,
    has_terminals,
    on_terminal,
    skip,
    verdict,
)

CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


def path(name, data=None):
    name = os.path.join(tmp, name)
    if data is not None:
        with open(name, "wb") as f:
            f.write(data)
    return name


def escapes():
    byte = [
        str(3 + b) for b in b"\x1b[31mred\x07\xc2\x9b1m\xc2\x85"
    ]  # the tokens of bytes follow the three special ones
    shown, raw = on_terminal("detokenize", MODEL, ",".join(byte))
    verdict(
        "detokenize: none on a terminal", b"[31mred" in shown and not CONTROLS.search(shown), shown
    )
    verdict("and as it is into a pipe", raw.startswith(b"\x1b[31mred\x07\xc2\x9b1m"), raw)
    talk = path("c.json", b'{"messages":[{"role":"user","content":"a\\u001b]0;title\\u0007b"}]}')
    shown, raw = on_terminal("template", path("t.jinja", b"{{ messages[0].content }}\x1b[2J"), talk)
    verdict("template: none on a terminal", b"title" in shown and not CONTROLS.search(shown), shown)
    verdict("and as it is into a pipe", b"a\x1b]0;title\x07b\x1b[2J" in raw, raw)
    shown, raw = on_terminal(
        "template", path("raise.jinja", b"{{ raise_exception('\x1b[2J\nruvllm: fine') }}"), talk
    )
    verdict(
        "errors: none, and one line",
        not CONTROLS.search(shown) and b"\x1b" not in raw and raw.count(b"\n") == 1,
        (shown, raw),
    )
    evil = path("evil.gguf")
    gguf_edit.edit(
        MODEL,
        evil,
        {
            "general.name": b"good\nparameters    7\n\x1b[31mred\xc2\x9b",
            "tokenizer.chat_template": b"{{ raise_exception('no\nname          forged') }}",
        },
    )
    shown, raw = on_terminal("info", evil)
    verdict(
        "info: none anywhere", not CONTROLS.search(shown) and not CONTROLS.search(raw), (shown, raw)
    )
    verdict(
        "and a name forges no line",
        len(re.findall(rb"(?m)^parameters", raw)) == 1 and b"good parameters    7 " in raw,
        raw,
    )
    shown, raw = on_terminal("run", evil, "hi", "--json", "-n", "2")
    verdict("run --json: none on a terminal", not CONTROLS.search(shown), shown)
    t = Terminal(model=evil)
    start = t.prompt()
    verdict("chat: a name forges no line", b"\nparameters" not in start, start)
    t.send(b"hi\r")
    text = t.prompt()
    verdict("nor does a template's error", b"no name          forged" in text, text)
    t.close()
    name = "\x1b[31mx\nruvllm: done"
    _, raw = on_terminal("info", path(name))
    verdict("nor the name of a file", b"\x1b" not in raw and raw.count(b"\n") == 1, raw)


PLAN = (
    "First we walk along the river until the old bridge, then we take the narrow road to the mill "
    "and wait."
)
CODE = (
    "Type this:\n```\nfor every line of the file there is one long line here\n```\n"
    "and then wait for the end of it all."
)


def teach(question, answer):
    subprocess.run(
        [PROGRAM, "teach", MODEL, "-q", question, "-a", answer],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
    )


def lines_of(question, columns):
    """A taught answer as a terminal of that width shows it."""
    t = Terminal(question, "--greedy", "-n", "200", command="run", columns=columns)
    t.end()
    t.close()
    return t.seen.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def wrapping():
    teach("Tell me the plan.", PLAN)
    for columns in (30, 45):
        lines = lines_of("Tell me the plan.", columns)
        verdict(
            f"{columns} columns: lines end between words",
            " ".join(lines) == PLAN and max(map(len, lines)) <= columns,
            lines,
        )
        filled = all(len(a) + 1 + len(b.split(" ")[0]) > columns for a, b in zip(lines, lines[1:]))
        verdict(f"{columns} columns: and not before they must", filled, lines)
    verdict("a narrow terminal breaks lines itself", lines_of("Tell me the plan.", 8) == [PLAN])
    piped = subprocess.run(
        [PROGRAM, "run", MODEL, "Tell me the plan.", "--greedy", "-n", "200"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
    )
    verdict("a pipe gets the text as it is", piped.stdout == PLAN + "\n", piped)
    teach("What is to be typed?", CODE)
    lines = lines_of("What is to be typed?", 30)
    verdict(
        "code stays as it is",
        "for every line of the file there is one long line here" in lines
        and lines[-2:] == ["and then wait for the end of", "it all."],
        lines,
    )
    t = Terminal("-n", "200", "--greedy", columns=30)
    t.prompt()
    text = t.ask("Tell me the plan.").decode()
    verdict("chat does the same", "\n".join(lines_of("Tell me the plan.", 30)) in text, text)
    t.ask(f"/save {path('talk.json')}")
    with open(path("talk.json"), encoding="utf-8") as f:
        verdict("but the conversation holds the text itself", PLAN in f.read())
    t.close()


with tempfile.TemporaryDirectory() as tmp:
    Terminal.home = os.path.join(tmp, "home")
    os.mkdir(Terminal.home)
    for case in (escapes, wrapping):
        if not has_terminals():
            skip(case.__name__, "this machine has no terminals to give (/dev/pts)")
            continue
        try:
            case()
        except (Missing, OSError, subprocess.SubprocessError) as problem:
            verdict(f"{case.__name__}: {type(problem).__name__}", False, str(problem))
finish()
