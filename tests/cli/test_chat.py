#!/usr/bin/env python3
"""`ruvllm chat` as a person at a terminal meets it: scripted sessions on a pseudo-terminal. Prints
TAP.

RUVLLM names the program (./ruvllm). The default model is used where it is in the cache, else its
cases are skipped.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time

from terminal import (
    ESCAPES,
    MODEL,
    MORE,
    PROGRAM,
    SLOW,
    Missing,
    Terminal,
    default_model,
    finish,
    has_terminals,
    skip,
    verdict,
)


def messages_of(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)["messages"]


def path(name):
    return os.path.join(tmp, name)


def saved(t, name="now.json"):
    t.ask(f"/save! {path(name)}")
    return messages_of(path(name))


def at_home():
    """The environment of a terminal: a cache without the encoder, which takes longer to open than
    the tiny model does to answer."""
    return {**os.environ, "RUVLLM_CACHE_DIR": home, "RUVLLM_STATE_DIR": home}


def users(messages):
    return [m["content"] for m in messages if m["role"] == "user"]


# ---- the cases: each gets a fresh program ----


def first_steps():
    t = Terminal("--seed", "1", "-n", "12", "--ignore-eos")
    verdict("the prompt appears, after a word about /help", b"/help" in t.prompt(), t.seen)
    text = t.ask("the tea")
    verdict("a line is answered", len(text.strip()) > 2, text)
    messages = saved(t)
    verdict(
        "the conversation holds both",
        [m["role"] for m in messages] == ["user", "assistant"]
        and messages[0]["content"] == "the tea",
        messages,
    )
    t.ask("and cake")
    verdict("and goes on", users(saved(t)) == ["the tea", "and cake"])
    t.ask("")
    t.ask("   ")
    verdict("blank lines are no messages", users(saved(t)) == ["the tea", "and cake"])
    t.send(b"\x04")
    verdict("Ctrl-D leaves with status 0", t.end() == 0, t.status)
    verdict("and with the terminal as it was", t.cooked())
    t.close()


def commands():
    t = Terminal("-n", "6", "-s", "Be brief.", "--ignore-eos")
    t.prompt()
    text = t.ask("/help")
    names = """system clear drop save save! load temp max seed tokens good bad fix score undo
        learned help quit""".split()
    verdict("/help lists every command", all(b"/" + n.encode() in text for n in names), text)
    verdict("/system shows what -s said", b"Be brief." in t.ask("/system"))
    t.ask("one")
    t.ask("/system Be long.")
    verdict("/system TEXT sets it", b"Be long." in t.ask("/system"))
    messages = saved(t)
    verdict(
        "from the first message on, once",
        [m["role"] for m in messages] == ["system", "user", "assistant"]
        and messages[0]["content"] == "Be long.",
        messages,
    )
    t.ask("two")
    t.ask("three")
    t.ask("/drop 2")
    verdict(
        "/drop forgets the oldest turns",
        users(saved(t)) == ["three"] and saved(t)[0]["role"] == "system",
    )
    verdict("/drop with nonsense", b"whole number" in t.ask("/drop all"))
    verdict(
        "/tokens before and after",
        re.search(rb"[1-9][0-9]* of \d+ tokens", t.ask("/tokens")) is not None
        and b"tok/s" in t.ask("/tokens"),
    )
    t.ask("/clear")
    messages = saved(t)
    verdict(
        "/clear leaves the system message alone",
        [m["role"] for m in messages] == ["system"],
        messages,
    )
    t.ask("/system -")
    verdict("/system - removes it", saved(t) == [] and b"no system message" in t.ask("/system"))
    verdict("/tokens of nothing", b"0 of " in t.ask("/tokens"))
    verdict("/max", b"at most 3 tokens" in t.ask("/max 3"))
    verdict("/max cuts, and says so", b"cut at 3 tokens" in t.ask("hello"))
    verdict(
        "/max of nonsense", b"whole number" in t.ask("/max -1") and b"at most 3" in t.ask("/max")
    )
    t.ask("/max 12")
    answers = []
    for seed in ("5", "5", "6"):
        t.ask("/clear")
        t.ask("/temp 2.5")
        t.ask("/seed " + seed)
        t.ask("the tea")
        answers.append(saved(t)[1]["content"])
    verdict(
        "/seed and /temp: the same seed, the same answer",
        answers[0] == answers[1] != answers[2],
        answers,
    )
    verdict(
        "/temp of nonsense", b"takes a number" in t.ask("/temp hot") and b"2.5" in t.ask("/temp")
    )
    answers = []
    t.ask("/temp 0")
    for seed in ("5", "6"):
        t.ask("/clear")
        t.ask("/seed " + seed)
        t.ask("the tea")
        answers.append(saved(t)[1]["content"])
    verdict(
        "/temp 0: the most likely token each time",
        answers[0] == answers[1] and b"Temperature 0." in t.ask("/temp"),
        answers,
    )
    verdict("/seed of nonsense", b"whole number" in t.ask("/seed x"))
    verdict("an unknown command gets a sentence", b"no command /dance" in t.ask("/dance now"))
    verdict("one that is mistyped a guess", b"Did you mean /tokens?" in t.ask("/toekns"))
    before = saved(t)
    nothing = [
        t.ask(f"/{name} 2") for name in "clear tokens good bad undo learned help quit".split()
    ]
    verdict(
        "a command that takes nothing says so where something is behind it, and does nothing",
        all(b"takes nothing behind it" in text for text in nothing) and saved(t) == before,
        nothing,
    )
    verdict("/save without a name", b"file name" in t.ask("/save"))
    verdict("/save into nowhere", b"No such file" in t.ask("/save /nonexistent/x"))
    verdict("/save onto a full disk", b"No space" in t.ask("/save /dev/full"))
    t.ask("//etc is a directory")
    verdict("// begins a message with a slash", users(saved(t))[-1] == "/etc is a directory")
    t.send(b"/quit\r")
    verdict("/quit leaves with status 0", t.end() == 0)
    t.close()


def many_lines():
    t = Terminal("-n", "2")
    t.prompt()
    t.send(b"one\\\r")
    t.wait(MORE)
    t.ask("two")
    verdict("a line that ends in a backslash goes on", users(saved(t)) == ["one\ntwo"], saved(t))
    t.ask("/clear")
    t.send(b'"""\r')
    for line in (b"first", b"", b"  /second\\", b"third"):
        t.wait(MORE)
        t.send(line + b"\r")
    t.wait(MORE)
    t.ask('"""')
    verdict(
        "a block between quotes is one message",
        users(saved(t)) == ["first\n\n  /second\\\nthird"],
        saved(t),
    )
    t.ask("/clear")
    t.send(b"\x1b[200~pasted\rtext \x07with\r\tthree lines\x1b[201~")
    t.ask("!")
    verdict(
        "pasted text is one message, without control characters",
        users(saved(t)) == ["pasted\ntext with\n\tthree lines!"],
        saved(t),
    )
    t.ask("/clear")
    t.send(b'\x1b[200~"""\rfirst\r/second\r"""\x1b[201~')
    t.ask("")
    verdict(
        "a block that is pasted with its quotes is one message without them",
        users(saved(t)) == ["first\n/second"],
        saved(t),
    )
    t.ask("/clear")
    t.send("\x1b[200~".encode() + "é€𝄞 ".encode() * 4 + b"\x1b[201~")
    t.ask("")
    t.ask(b"caf\xe9 ol\xc3\xa9")
    verdict(
        "UTF-8 passes, other bytes do no harm",
        users(saved(t)) == ["é€𝄞 " * 4, "caf olé"],
        users(saved(t)),
    )
    t.ask("/clear")
    t.send(b"\x1b[A")
    time.sleep(0.2)
    t.send(b"\x1b[A\x1b[A\x1b[A\x1b[A")
    time.sleep(0.2)
    t.ask("")
    big = "word " * 4000
    t.send(b"\x1b[200~" + big.encode() + b"\x1b[201~")
    text = t.ask("")
    verdict(
        "a paste larger than the context is refused, and said",
        b"does not fit by itself" in text and b"Shorten it." in text,
        text[-400:],
    )
    t.send(b"\x04")
    verdict("and all goes on", t.end() == 0)
    t.close()


def history():
    t = Terminal("-n", "2")
    t.prompt()
    t.ask("first line")
    t.ask("/max 3")
    t.ask("zwölf")
    t.ask("/clear")
    t.send(b"\x1b[A\x1b[A")
    t.wait("zwölf".encode())
    t.ask("")
    verdict("arrow-up brings lines back", users(saved(t)) == ["zwölf"], saved(t))
    t.send(b'"""\r')
    for line in (b"/two", b"lines"):
        t.wait(MORE)
        t.send(line + b"\r")
    t.wait(MORE)
    t.ask('"""')
    t.send(b"\x04")
    t.end()
    t.close()
    file = os.path.join(home, "chat_history")
    verdict(
        "the file is its owner's alone",
        os.stat(file).st_mode & 0o777 == 0o600,
        oct(os.stat(file).st_mode),
    )
    t = Terminal("-n", "2")
    t.prompt()
    t.send(b"\x1b[A")
    t.wait(b"lines")
    t.ask("")
    verdict(
        "another program finds them, a block as one", users(saved(t)) == ["/two\nlines"], saved(t)
    )
    t.ask("/clear")
    t.send(b"\x1b[A" * 12)
    t.wait(b"first line")
    t.ask("")
    verdict("and the oldest too", users(saved(t)) == ["first line"], saved(t))
    t.close()
    size = os.stat(file).st_size
    t = Terminal("-n", "2", "--no-history")
    t.prompt()
    t.ask("secret")
    t.ask("/clear")
    t.send(b"\x1b[A\x1b[A")
    t.wait(b"secret")
    t.ask("")
    verdict(
        "--no-history: only as long as the program runs",
        users(saved(t)) == ["secret"] and os.stat(file).st_size == size,
    )
    t.close()


def interrupts():
    # 60 bytes are more than the editor writes when it ends: the answer has begun
    t = Terminal("-n", "100000", "--ctx", "100000", "--ignore-eos", "--greedy")
    t.prompt()
    t.send(b"the tea\r")
    t.wait(b"the tea\r\n")
    streamed = t.wait(re.compile(rb"(?s).{60}"))
    verdict("the answer streams", t.status is None and len(streamed) >= 60)
    t.interrupt()
    text = t.prompt()
    verdict("Ctrl-C stops it", b"(stopped)" in text, text[-300:])
    messages = saved(t)
    verdict(
        "what had come stays in the conversation",
        [m["role"] for m in messages] == ["user", "assistant"] and len(messages[1]["content"]) > 10,
        str(messages)[:300],
    )
    t.send(b"half a line")
    t.wait(b"half a line")
    t.interrupt()
    t.prompt()
    t.ask("/tokens")
    verdict("Ctrl-C at the prompt drops the line", users(saved(t)) == ["the tea"])
    t.interrupt()
    verdict("in an empty line it says what a second one does", b"again" in t.prompt())
    t.interrupt()
    verdict("a second one leaves with status 130", t.end() == 130, t.status)
    verdict("and with the terminal as it was", t.cooked())
    t.close()

    t = Terminal("-n", "100000", "--ctx", "100000", "--ignore-eos", "--greedy", "-t", "1")
    t.prompt()
    t.send(b"the tea\r")
    t.wait(b"the tea\r\n")
    t.wait(re.compile(rb"(?s).{60}"))
    t.interrupt()
    t.prompt()
    t.interrupt()
    verdict("stopping, then Ctrl-C at the empty prompt leaves", t.end() == 130, t.status)
    t.close()

    t = Terminal("-n", "100000", "--ctx", "100000", "--ignore-eos", "--greedy", "-t", "1")
    t.prompt()
    t.send(b"the tea\r")
    t.wait(b"the tea\r\n")
    t.wait(re.compile(rb"(?s).{60}"))
    os.kill(t.pid, signal.SIGTERM)
    verdict("a request to end is followed, even in an answer", t.end() == 143, t.status)
    verdict("with the terminal as it was", t.cooked())
    t.close()

    t = Terminal()
    t.prompt()
    os.kill(t.pid, signal.SIGTERM)
    verdict("and at the prompt", t.end() == 143 and t.cooked(), t.status)
    t.close()

    t = Terminal()
    t.prompt()
    t.send(b'"""\r')
    t.wait(MORE)
    t.send(b"lost\r")
    t.wait(MORE)
    t.interrupt()
    t.prompt()
    verdict("Ctrl-C drops a block", saved(t) == [])
    t.close()


def keys():
    """What is typed is neither lost nor taken for something else."""
    t = Terminal("-n", "100000", "--ctx", "100000", "--ignore-eos", "--greedy", "-t", "1")
    t.prompt()
    for i in range(10):
        t.send(b"half a line")
        t.wait(b"half a line")
        t.send(b"\x03/tokens\r")
        text = t.prompt()  # of the line that Ctrl-C dropped
        text = t.prompt()
        if not verdict(f"a key right behind Ctrl-C ({i})", b"0 of " in text, text):
            break
    t.send(b"/te\t0.3\r")
    verdict("Tab completes a command", b"Temperature 0.3." in t.prompt(), t.seen[-300:])
    t.send(b"/s\t")
    t.wait(b"/system")
    verdict("or shows which there are", b"/save!" in t.seen and b"/seed" in t.seen)
    t.send(b"ave\r")
    verdict("and the line goes on", b"file name" in t.prompt())
    t.send(b"the tea\r")
    t.wait(b"the tea\r\n")
    t.wait(re.compile(rb"(?s).{40}"))
    t.interrupt()
    t.prompt()
    before = saved(t)
    many = b"tea " * 20000
    t.send(b"\x1b[200~" + many + b"\x1b[201~\r")
    t.wait(b"reading")
    t.send(b"\x03")
    text = t.prompt()
    verdict("a prompt can be cancelled", b"not part of the conversation" in text, text[-300:])
    verdict("nothing of it stays", saved(t) == before)
    text = t.ask("/tokens")
    verdict("/tokens tells of the answer that there is", b"prompt 22 tokens" in text, text)
    verdict("which can be judged", b"Noted" in t.ask("/good"), t.seen[-300:])
    t.ask("/max 12")
    t.ask(f"/load {path('now.json')}")
    text = t.ask("/good")
    verdict(
        "one out of a file too, or why not is said",
        b"Noted" in text or b"cannot be judged" in text,
        text,
    )
    verdict("and corrected", b"Learned: nothing" in t.ask("/fix nothing"), t.seen[-300:])
    t.ask("/max 40")
    t.send(b'/fix --exact """\r')
    for line in (b"1. Boil.", b"", b"2. Pour."):
        t.wait(MORE)
        t.send(line + b"\r")
    t.wait(MORE)
    text = t.ask('"""')
    verdict(
        "by several lines too",
        saved(t)[-1]["content"].startswith("1. Boil.\n\n2. Pour."),
        text,
    )
    verdict("quotes behind a text are part of it", b'say """' in t.ask('/fix say """'), t.seen)
    t.send(b"\x04")
    t.end()
    t.close()


def save_and_load():
    t = Terminal("-n", "4", "-s", "Speak of \"tea\" \\ and\ttabs.")
    t.prompt()
    t.ask("héllo")
    t.ask("more")
    t.ask(f"/save {path('a.json')}")
    t.ask("/clear")
    t.ask(f"/load {path('a.json')}")
    t.ask(f"/save {path('b.json')}")
    with open(path("a.json"), "rb") as a, open(path("b.json"), "rb") as b:
        first, second = a.read(), b.read()
    verdict(
        "what is saved is loaded and saved the same",
        first == second and len(messages_of(path("a.json"))) == 5,
    )
    for name, target in (("c.json", "elsewhere"), ("c.json.part", "elsewhere")):
        os.symlink(path(target), path(name))
    with open(path("elsewhere"), "w", encoding="utf-8") as f:
        f.write("[]")
    t.ask(f"/save! {path('c.json')}")
    with open(path("elsewhere"), "rb") as f:
        verdict(
            "/save writes through no link",
            f.read() == b"[]"
            and not os.path.islink(path("c.json"))
            and len(messages_of(path("c.json"))) == 5,
        )
    verdict("what it writes is its owner's alone", os.stat(path("a.json")).st_mode & 0o777 == 0o600)
    os.unlink(path("c.json"))
    with open(path("note.txt"), "w", encoding="utf-8") as f:
        f.write("a note")
    text = t.ask(f"/save {path('a.json')}")
    with open(path("a.json"), "rb") as a:
        verdict("/save replaces nothing", b"/save!" in text and a.read() == first, text)
    text = t.ask(f"/save! {path('note.txt')}")
    verdict(
        "/save! replaces no file that is no conversation",
        b"is no conversation" in text and os.stat(path("note.txt")).st_size == 6,
        text,
    )
    verdict("and leaves nothing beside it", not [n for n in os.listdir(tmp) if ".tmp-" in n])
    strange = {
        "tools": None,
        "extra": {"n": 1.5, "i": 12345678901234, "deep": [[[{"x": [True, False, None]}]]]},
        "messages": [
            {
                "role": "user",
                "content": "hi",
                "name": "Ann",
                "unknown": [1, {"a": "\u0000\u001b[2J\U0001f600"}],
            },
            {"role": "assistant", "content": "yo", "weight": 1e-7},
        ],
    }
    with open(path("strange.json"), "w", encoding="utf-8") as f:
        json.dump(strange, f, indent=3)
    t.ask(f"/load {path('strange.json')}")
    t.ask(f"/save {path('same.json')}")
    with open(path("same.json"), encoding="utf-8") as f:
        verdict("members this program knows nothing of too", json.load(f) == strange)
    t.ask("and then?")
    with open(path("c.json"), "w", encoding="utf-8") as f:
        f.write(
            json.dumps(
                [
                    {"role": "user", "content": "a list alone"},
                    {"role": "assistant", "content": "ok"},
                ]
            )
        )
    before = saved(t)
    verdict(
        "a loaded conversation goes on",
        users(before) == ["hi", "and then?"] and len(before) == 4,
        before,
    )
    bad = {
        "cut": b'{"messages": [',
        "empty": b"",
        "number": b"7",
        "roleless": b'{"messages":[{"content":"x"}]}',
        "texts": b'["a"]',
        "binary": bytes(range(256)),
        "deep": b'{"messages":' + b"[" * 100000,
        "contentless": b'{"messages":{"role":"user"}}',
    }
    for name, data in bad.items():
        with open(path(name), "wb") as f:
            f.write(data)
        text = t.ask(f"/load {path(name)}")
        if not verdict(
            f"a bad file is refused: {name}", b"as it was" in text and b"\x1b" not in text, text
        ):
            continue
    for name in ("/nonexistent", "/", "/dev/zero", "-"):
        verdict(f"and {name}", b"as it was" in t.ask(f"/load {name}"))
    verdict("nothing is lost by all that", saved(t) == before)
    t.ask(f"/load {path('c.json')}")
    verdict("a list alone is a conversation", users(saved(t)) == ["a list alone"])
    with open(path("evil.json"), "w", encoding="utf-8") as f:
        json.dump([{"role": "system", "content": "\x1b]0;title\x07\x9b31m\rX"}], f)
    t.ask(f"/load {path('evil.json')}")
    start = t.at
    t.ask("/system")
    shown = ESCAPES.sub(b"", t.seen[start:]).replace(b"\r\n", b"").replace(b"\r> ", b"")
    verdict(
        "a stranger's control characters are shown, not obeyed",
        b"]0;title" in shown and not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", shown),
        shown,
    )
    t.close()


def full_context():
    t = Terminal("--ctx", "64", "-n", "1000", "--ignore-eos")
    t.prompt()
    text = t.ask("the tea")
    verdict(
        "an answer that fills the context ends, and why is said",
        b"context is full" in text and b"/clear" in text,
        text,
    )
    verdict("with the model's own limit", b"--ctx N" in text and b"512" in text, text)
    before = saved(t)
    verdict("it stays in the conversation", len(before) == 2 and len(before[1]["content"]) > 5)
    text = t.ask("and more of it")
    verdict(
        "a message that does not fit is refused, and why is said",
        b"does not fit" in text and b"/drop" in text,
        text,
    )
    verdict("nothing is lost", saved(t) == before)
    t.ask("/drop")
    text = t.ask("hi")
    verdict("after /drop it goes on", users(saved(t)) == ["hi"], text)
    t.close()
    t = Terminal("--ctx", "512", "-n", "1000", "--ignore-eos")
    t.prompt()
    text = t.ask("the tea")
    verdict(
        "a full model is not offered more",
        b"--ctx" not in text and b"not made for" in text,
        text[-300:],
    )
    t.close()


def plain_output():
    t = Terminal("-n", "3")
    t.prompt()
    t.ask("hi")
    verdict("colours on a terminal", b"\x1b[2m" in t.seen and b"\x1b[1m" in t.seen)
    t.close()
    for name, arguments, env in (
        ("NO_COLOR", [], {"NO_COLOR": "1"}),
        ("--no-color", ["--no-color"], {}),
    ):
        t = Terminal("-n", "3", *arguments, env=env)
        t.prompt()
        t.ask("hi")
        t.ask("/tokens")
        verdict(f"none with {name}", not re.search(rb"\x1b\[[0-9;]*m", t.seen), t.seen)
        t.close()
    t = Terminal("-n", "3", env={"TERM": "dumb"})
    t.escapes = False
    t.prompt()
    t.ask("hi")
    t.send(b"\x04")
    verdict("no escape at all on a dumb terminal", t.end() == 0 and b"\x1b" not in t.seen, t.seen)
    t.close()
    t = Terminal("-n", "3", env={"TERM": ""})
    t.escapes = False
    t.prompt()
    t.ask("hi")
    verdict("nor without a TERM", b"\x1b" not in t.seen and users(saved(t)) == ["hi"], t.seen)
    t.close()
    t = Terminal("-n", "3", env={"LC_ALL": "C"})
    t.prompt()
    t.ask("é€𝄞")
    verdict("UTF-8 in the C locale too", users(saved(t)) == ["é€𝄞"], saved(t))
    t.close()
    t = Terminal("-n", "6", "-v")
    t.prompt()
    verdict(
        "-v tells the speed", re.search(rb"\d+ tokens, [0-9.]+/s", t.ask("hi")) is not None, t.seen
    )
    t.close()
    t = Terminal("-n", "3", command="run")
    verdict("run without a prompt is a chat", b"/help" in t.prompt())
    t.close()

    def piped(*arguments, text=b"hello\n\nand again\n"):
        return subprocess.run(
            [PROGRAM, *arguments],
            input=text,
            capture_output=True,
            timeout=SLOW,
            check=False,
            env=at_home(),
        )

    chat, run = piped("chat", MODEL, "-n", "8"), piped("run", MODEL, "-n", "8")
    verdict(
        "lines of a pipe: chat and run are the same",
        chat.returncode == 0 and chat.stdout == run.stdout and chat.stdout,
    )
    verdict(
        "two answers, nothing else",
        chat.stderr == b"" and b"\x1b" not in chat.stdout and b"> " not in chat.stdout,
        chat,
    )
    verdict("greedy", piped("chat", MODEL, "-n", "8", "--greedy").stdout == chat.stdout)
    warm = piped("chat", MODEL, "-n", "8", "--temp", "3", "--seed", "4").stdout
    verdict(
        "unless options say otherwise",
        warm != chat.stdout
        and warm == piped("chat", MODEL, "-n", "8", "--temp", "3", "--seed", "4").stdout,
    )
    slash = piped("chat", MODEL, "-n", "4", text=b"/help\n/temp 0.5\n/nonsense\n/quit\nhello\n")
    verdict(
        "all commands work there",
        slash.returncode == 0
        and slash.stdout == b""
        and b"/tokens" in slash.stderr
        and b"Temperature 0.5." in slash.stderr
        and b"no command /nonsense" in slash.stderr,
        slash,
    )
    twice = piped("chat", MODEL, "-n", "4", text=b"//quit\n\"\"\"\nx\\\n")
    verdict("// begins a message there too", twice.stdout.count(b"\n") >= 3, twice)
    with open("/dev/full", "wb") as full_disk:
        full = subprocess.run(
            [PROGRAM, "chat", MODEL, "-n", "4"],
            input=b"hello\n",
            stdout=full_disk,
            stderr=subprocess.PIPE,
            check=False,
            env=at_home(),
        )
    verdict("a full disk is named", full.returncode == 1 and b"No space left" in full.stderr, full)
    bytes_in = piped("chat", MODEL, "-n", "4", text=b"caf\xe9 \xff\xfe\n")
    verdict(
        "bytes that are no UTF-8", bytes_in.returncode == 0 and bytes_in.stdout != b"", bytes_in
    )
    full = piped("chat", MODEL, "--ctx", "64", "-n", "60", "--ignore-eos")
    verdict(
        "a full context is a failure there", full.returncode == 1 and b"--ctx" in full.stderr, full
    )
    nul = piped("chat", MODEL, "-n", "4", text=b"hi\n/fix a\0b\na\0b\n/fix c\n/learned\n")
    verdict(
        "NUL characters are not taught by halves",
        nul.returncode == 1
        and b"line 2: a command cannot hold a NUL character" in nul.stderr
        and b"the question holds a NUL character (byte 1)" in nul.stderr
        and b"no corrections" in nul.stderr,
        nul,
    )
    big = piped("chat", MODEL, "-n", "4", text=b"hi\n/fix " + b"a" * 70000 + b"\n/learned\n")
    verdict(
        "a correction that is too long",
        b"the correct answer must be at most 65536 bytes (got 70000)\n" in big.stderr
        and b"no corrections" in big.stderr,
        big,
    )
    long = b"word " * 40
    lines = b"hello\n" + long + b"\nand again\n/clear\nhello\n" + long * 9 + b"\n"
    full = piped("chat", MODEL, "--ctx", "64", "-n", "60", "--ignore-eos", text=lines)
    told = full.stderr.decode().splitlines()
    cut = [s for s in told if s.startswith("(cut at ")]
    verdict(
        "an answer that fills the context says so once",
        len(cut) == 1 and "the context is full" in cut[0],
        full,
    )
    said = [s for s in told if s not in cut]
    verdict(
        "lines that do not fit are named, with what can be done, and the chat goes on",
        full.returncode == 1
        and full.stdout.count(b"\n") == 2
        and len(set(full.stdout.splitlines())) == 1
        and [s.split(":")[1] for s in said if s.startswith("ruvllm: ")]
        == [" line 2", " line 3", " line 6"]
        and "/drop N" in said[1]
        and "/clear" in said[1],
        full,
    )
    verdict(
        "one that is too long by itself is to be shortened",
        "by itself" in said[0]
        and "or begin again with --ctx N" in said[0]
        and "by itself" in said[3]
        and said[3].endswith("shorten it"),
        said,
    )
    verdict(
        "no model", piped("chat").returncode == 2 and piped("chat", "nosuchmodel").returncode == 1
    )
    verdict(
        "a model without a tokenizer", b"no tokenizer" in piped("chat", "tests/golden/qwen3").stderr
    )


def catches_interrupts(pid):
    """Waits until the program does."""
    for _ in range(100 * SLOW):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            caught = next(line.split()[1] for line in f if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGINT - 1) & 1:
            return
        time.sleep(0.01)


def has_computed(pid, seconds):
    """Waits until the program has used that much CPU time, or has ended."""
    for _ in range(100 * SLOW):
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if used >= seconds or fields[0] == b"Z":
            return
        time.sleep(0.01)


def interrupted_run():
    for name, arguments in (("text", []), ("json", ["--json"])):
        p = subprocess.Popen(
            [
                PROGRAM,
                "run",
                MODEL,
                "the tea",
                "-n",
                "90000",
                "--ctx",
                "100000",
                "--ignore-eos",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        catches_interrupts(p.pid)
        if arguments:
            has_computed(p.pid, 0.2)  # the tiny model is open long before
        came = b"" if arguments else p.stdout.read(11)
        p.send_signal(signal.SIGINT)
        out = came + p.communicate(timeout=SLOW)[0]
        good = p.returncode == 130 and len(out) > 10
        if arguments:
            good = good and json.loads(out)["finish_reason"] == "cancelled"
        verdict(
            f"run interrupted: what came, and status 130 ({name})", good, (p.returncode, out[:200])
        )
    p = subprocess.Popen(
        [PROGRAM, "chat", MODEL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=at_home(),
    )
    catches_interrupts(p.pid)
    time.sleep(0.2)  # most often it waits by then
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=SLOW)
    verdict("a pipe's chat interrupted while it waits", p.returncode == 130, p.returncode)


def forgetting():
    """`learn forget` asks before several lessons go."""
    for name in ("Vor", "Vex"):
        subprocess.run(
            [PROGRAM, "teach", MODEL, "-q", f"Who is {name}?", "-a", "a smith", "--json"],
            stdout=subprocess.DEVNULL,
            check=True,
            env=at_home(),
        )
    for answer, status in ((b"n", 1), (b"y", 0)):
        t = Terminal("smith", "-m", MODEL, command="learn", model="forget")
        text = t.wait(b"[y/N] ")
        verdict("it is said how many", b"Forget these 2 lessons? " in text, text)
        verdict("several lessons are shown", b"Vor" in text and b"Vex" in text, text)
        t.send(answer + b"\r")
        verdict(f"and go or stay: {answer}", t.end() == status, t.seen)
        t.close()
    left = subprocess.run(
        [PROGRAM, "learn", "status", "-m", MODEL], capture_output=True, check=True, env=at_home()
    )
    verdict("none is left", b"no corrections" in left.stdout, left.stdout)


def real_model():
    cache = default_model()
    if not cache:
        for name in ("a real answer", "the past is reused", "a stopped answer goes on"):
            skip(name, "the default model is not in the cache")
        return
    t = Terminal("--cache-dir", cache, "--greedy", "-v", "--no-history", model="smollm2")
    t.prompt()
    text = t.ask("Write one sentence about the sea.")
    verdict("a real answer", b"The sea is" in text, text)
    text = t.ask("And one about the moon.")
    reused = re.search(rb"prompt (\d+), (\d+) of it reused", text)
    verdict(
        "the past is reused",
        b"The moon is" in text and reused and int(reused[2]) > int(reused[1]) // 2,
        text,
    )
    t.send(b"Write a long story about a ship.\r")
    t.wait(b"ship.\r\n")
    t.wait(re.compile(rb"[A-Z][a-z ][^\r]{40}"))  # of the answer, not of how far the prompt is
    t.interrupt()
    t.prompt()
    t.ask("/max 40")
    text = t.ask("Go on.")
    verdict("a stopped answer goes on", len(text) > 10 and len(saved(t)) == 8, text)
    t.close()


terminals = has_terminals()
for case in (
    first_steps,
    commands,
    many_lines,
    history,
    interrupts,
    keys,
    save_and_load,
    full_context,
    plain_output,
    interrupted_run,
    forgetting,
    real_model,
):
    if not terminals and case is not interrupted_run:
        skip(case.__name__, "this machine has no terminals to give (/dev/pts)")
        continue
    with tempfile.TemporaryDirectory() as tmp:
        home = Terminal.home = os.path.join(tmp, "home")
        os.mkdir(home)
        try:
            case()
        except (
            Missing,
            OSError,
            ValueError,
            KeyError,
            IndexError,
            subprocess.TimeoutExpired,
        ) as problem:
            verdict(f"{case.__name__}: {type(problem).__name__}", False, str(problem))
finish()
