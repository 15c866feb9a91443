#!/usr/bin/env python3
"""What a terminal gets to see: no escapes of untrusted files. Prints TAP."""
import os
import re
import subprocess
import tempfile

import gguf_edit
from terminal import MODEL, PROGRAM, Missing, Terminal, finish, has_terminals, skip, verdict

CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


def path(name, data=None):
    name = os.path.join(tmp, name)
    if data is not None:
        with open(name, "wb") as f:
            f.write(data)
    return name


def on_terminal(command, *arguments):
    """What the command writes to a terminal, and to a pipe."""
    t = Terminal(*arguments[1:], command=command, model=arguments[0])
    t.end()
    t.close()
    piped = subprocess.run([PROGRAM, command, *arguments], capture_output=True, stdin=subprocess.DEVNULL, check=False,
                           env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home})
    return t.seen, piped.stdout + piped.stderr


def escapes():
    byte = [str(3 + b) for b in b"\x1b[31mred\x07\xc2\x9b1m\xc2\x85"]  # the tokens of bytes follow the three special ones
    shown, raw = on_terminal("detokenize", MODEL, ",".join(byte))
    verdict("detokenize: none on a terminal", b"[31mred" in shown and not CONTROLS.search(shown), shown)
    verdict("and as it is into a pipe", raw.startswith(b"\x1b[31mred\x07\xc2\x9b1m"), raw)
    talk = path("c.json", b'{"messages":[{"role":"user","content":"a\\u001b]0;title\\u0007b"}]}')
    shown, raw = on_terminal("template", path("t.jinja", b"{{ messages[0].content }}\x1b[2J"), talk)
    verdict("template: none on a terminal", b"title" in shown and not CONTROLS.search(shown), shown)
    verdict("and as it is into a pipe", b"a\x1b]0;title\x07b\x1b[2J" in raw, raw)
    shown, raw = on_terminal("template", path("raise.jinja", b"{{ raise_exception('\x1b[2J\nruvllm: fine') }}"), talk)
    verdict("errors: none, and one line", not CONTROLS.search(shown) and b"\x1b" not in raw and raw.count(b"\n") == 1, (shown, raw))
    evil = path("evil.gguf")
    gguf_edit.edit(MODEL, evil, {"general.name": b"good\nparameters    7\n\x1b[31mred\xc2\x9b",
                                 "tokenizer.chat_template": b"{{ raise_exception('no\nname          forged') }}"})
    shown, raw = on_terminal("info", evil)
    verdict("info: none anywhere", not CONTROLS.search(shown) and not CONTROLS.search(raw), (shown, raw))
    verdict("and a name forges no line", len(re.findall(rb"(?m)^parameters", raw)) == 1 and b"good parameters    7 " in raw, raw)
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


with tempfile.TemporaryDirectory() as tmp:
    Terminal.home = os.path.join(tmp, "home")
    os.mkdir(Terminal.home)
    for case in (escapes,):
        if not has_terminals():
            skip(case.__name__, "this machine has no terminals to give (/dev/pts)")
            continue
        try:
            case()
        except (Missing, OSError, subprocess.SubprocessError) as problem:
            verdict(f"{case.__name__}: {type(problem).__name__}", False, str(problem))
finish()
