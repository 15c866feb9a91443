#!/usr/bin/env python3
"""Wrong use of every option of every command: status 2, one sentence that names the option and the
value, nothing done.

The options are read from the program's own help, so that a new one without a row here is a failure.
Prints TAP.
"""

import os
import re
import subprocess
import tempfile

from terminal import MODEL, PROGRAM, finish, verdict

# A command with what it needs to begin work.
COMMANDS = {
    "run": [MODEL, "hi", "-n", "1"],
    "chat": [MODEL],
    "serve": [MODEL],
    "key": ["OUT", "ann"],
    "witness": ["verify", "nothing"],
    "teach": [MODEL, "-q", "What is x?", "-a", "y"],
    "learn": ["status", "-m", MODEL],
    "embed": [MODEL, "hi"],
    "bench": [MODEL, "-p", "8", "-n", "2", "-r", "1"],
    "doctor": [],
    "grammar": ["check", MODEL],
    "tokenize": [MODEL, "hi"],
    "detokenize": [MODEL, "1,2"],
    "template": [MODEL, "tests/cli/messages.json"],
    "perplexity": [MODEL, "tests/golden/README.md"],
    "tap": [MODEL, "--ids", "1,2", "-o", "OUT"],
    "info": [MODEL],
    "pull": ["nothing"],
    "list": [],
}
# The wrong values of an option; those with none take any text, or name a file whose absence is a
# failure.
WRONG = {
    "threads": ["-1", "4097", "x", ""],
    "ctx": ["-1", "1e3", "999999999999999999999"],
    "kv": ["q4", "", "F16"],
    "isa": ["foo", ""],
    "max-tokens": ["-1", "3.5"],
    "min-tokens": ["-1"],
    "stop": [""],
    "draft": [""],
    "device": ["gpu", "", "cuda:x"],
    "gpu-layers": ["0", "-1", "1025", "all", ""],
    "seed": ["-1", "x", "99999999999999999999"],
    "lora": [""],
    "adapter": ["../../x", "", "a/b", ".x", "a" * 65],
    "temp": ["-1", "101", "hot", "nan", "inf"],
    "top-k": ["-1", "x"],
    "top-p": ["0", "2", "-1"],
    "min-p": ["-0.1", "1.5"],
    "typical-p": ["0", "2"],
    "top-n-sigma": ["-1"],
    "xtc-probability": ["2"],
    "xtc-threshold": ["-1"],
    "mirostat-tau": ["-1"],
    "mirostat-eta": ["2"],
    "repeat-penalty": ["0", "-1"],
    "repeat-window": ["-1"],
    "frequency-penalty": ["101"],
    "presence-penalty": ["-101"],
    "dry-multiplier": ["-1"],
    "dry-base": ["0.5"],
    "dry-allowed-length": ["0"],
    "dry-window": ["-1"],
    "dry-breaker": ["", "x" * 257],
    "logit-bias": ["x", "1", "1=", "-1=2", "1=nan", "1=1e30"],
    "samplers": ["foo", "top_k,top_k", "top_k,", ","],
    "logprobs": ["21", "-2", "x"],
    "ids": ["1,x", "", "-1", "1,99999999999"],
    "pooling": ["max", ""],
    "prompt": ["-1", "x"],
    "tokens": ["-1"],
    "depth": ["-1"],
    "repeat": ["0", "1001"],
    "parallel": ["0", "1025"],
    "port": ["-1", "65536", "http"],
    "host": [],
    "unix": [],
    "api-key": [""],
    "keys": [],
    "adapters": [],
    "presets": [],
    "witness": [],
    "store": ["file.db", "mysql://x"],
    "head": ["x", "", "0" * 63],
    "tenant": ["", "a/b"],
    "preset": [],
    "cors-origin": [],
    "tls-cert": [],
    "tls-key": [],
    "alias": [""],
    "config": [],
    "llama-compatible": ["fast", "seed=x", "pooling=max", "n-predict=", "reasoning=deep"],
    "max-body": ["0", "1025", "x"],
    "max-waiting": ["0", "x"],
    "max-memory": ["0", "x"],
    "memory": ["0", "x", "", "-1", "1X", "1MM", "1e30", "nan"],
    "max-loaded": ["0", "65"],
    "unload-after": ["0", "x"],
    "sessions": [],
    "session-idle": ["0", "x"],
    "session-age": ["0", "x"],
    "sessions-per-key": ["0", "x"],
    "session-room": ["0", "x"],
    "pressure": ["high", ""],
    "spill": [],
    "spill-room": ["0", "x"],
    "max-per-key": ["0", "x"],
    "drain": ["-1", "86401"],
    "scopes": ["", "cook", "infer,", "infer;teach"],
    "per-minute": ["0", "many"],
    "learning": ["", "mine"],
    "service": [],
    "rate": ["-1", "many", "nan"],
    "long": ["-1", "many"],
    "shared": ["-1", "many"],
    "token-ms": ["-1", "slow", "inf"],
    "now": ["tomorrow", "2026-13-01", ""],
    "tap": [",,,", ""],
    "how": ["best"],
    "loss": ["mse"],
    "scope": ["everywhere"],
    "generation": ["-1", "x"],
    "cache-dir": [],
    "state-dir": [],
    "schema": [],
    "regex": [""],
    "grammar": [],
    "choices": ["", ",", "a,,b", "a,"],
    "tools": [],
    "tool-choice": ["auto"],
    "think": ["0", "-1", "x", ""],
    "retries": ["-1", "101", "x", "1"],
    "template": [],
    "system": [],
    "messages": [],
    "question": [],
    "answer": [],
    "model": [],
    "file": [],
    "output": [],
}
LETTERS = {
    "t": "threads",
    "s": "system",
    "n": "max-tokens",
    "q": "question",
    "a": "answer",
    "m": "model",
    "p": "prompt",
    "d": "depth",
    "r": "repeat",
    "o": "output",
}


def run(*arguments):
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
        env={**os.environ, "RUVLLM_STATE_DIR": os.path.join(tmp, "state")},
    )


def options_of(*command):
    """The names of the options that take a value, by the help of the command."""
    text = run(*command, "--help").stdout.decode()
    found = set()
    for line in text.splitlines():
        match = re.match(
            r"  (-\w, )?(--[a-z-]+|-\w)(, --[a-z-]+)? ([A-Z\[][A-Z|\[\]:=.,]*|[a-z0-9]+\|\S+|1,2,3|F\.[a-z]+|N)(\s|$)",
            line,
        )
        if match:
            found.add(match[2].lstrip("-"))
    return found


def refuses(command, option, value):
    own = [a.replace("OUT", os.path.join(tmp, "out")) for a in COMMANDS[command]]
    if command == "run" and option == "ids":
        own = [own[0], "-n", "1"]
    if option == "tokens":
        option = "n"
    dashes = "-" if len(option) == 1 else "--"
    arguments = (
        [command, *own, f"{dashes}{option}={value}"]
        if len(option) > 1
        else [command, *own, f"-{option}", value]
    )
    extra = ["--json"] if option == "logprobs" else []
    done = run(*arguments, *extra)
    lines = done.stderr.decode().splitlines()
    return (
        done.returncode == 2
        and not done.stdout
        and len(lines) == 2
        and lines[0].startswith("ruvllm: ")
        and lines[1] == f"'ruvllm {command} --help' says more."
    ), done


with tempfile.TemporaryDirectory() as tmp:
    verdict(
        "every command has a row, but eval",
        sorted(COMMANDS)
        == sorted(
            n
            for n in re.findall(
                r"(?m)^  ([a-z]+) ", run("--help").stdout.decode().split("everywhere:")[0]
            )
            if n != "eval"
        ),
    )
    everywhere = options_of()
    for number, name in enumerate(COMMANDS):
        options = options_of(name)
        for given in sorted(options):
            known = (
                given
                if len(given) > 1
                else ("tokens" if name == "bench" and given == "n" else LETTERS[given])
            )
            if known not in WRONG:
                verdict(f"{name} --{given}: a row of this table", False, given)
                continue
            bad = WRONG[known]
            if bad and number and given in everywhere:
                bad = [bad[number % len(bad)]]  # all of them with the first command
            results = [refuses(name, given if name == "bench" else known, v) for v in bad]
            if bad:
                verdict(
                    f"{name} --{known}: wrong values are wrong use",
                    all(r[0] for r in results),
                    [(r[1].args[2:], r[1].returncode, r[1].stderr) for r in results if not r[0]],
                )
    for arguments in (
        ["learn", "rollback", "x", "-m", MODEL],
        ["learn", "merge", "1", "x", "-m", MODEL],
        ["learn", "log", "x", "-m", MODEL],
        ["learn", "status", "x"],
        ["detokenize", MODEL, "1,x"],
        ["detokenize", MODEL, ""],
        ["eval"],
        ["learn"],
        ["run"],
        ["tap", MODEL],
        ["template", MODEL],
        ["perplexity", MODEL],
        ["list", "x"],
        ["pull"],
        ["run", MODEL, "a", "b"],
        ["run", MODEL, "--nothing"],
        ["run", MODEL, "--temp"],
        ["run", MODEL, "--greedy=yes"],
    ):
        done = run(*arguments)
        verdict(
            f"{' '.join(arguments)}: wrong use",
            done.returncode == 2 and not done.stdout and done.stderr.startswith(b"ruvllm: "),
            (done.returncode, done.stderr),
        )
    isa = run("run", MODEL, "hi", "--isa", "foo").stderr
    verdict("--isa names what this machine has", b"ref" in isa and b"'foo'" in isa, isa)
    listed = re.search(r"--isa (\S+)", run("--help").stdout.decode())[1].split("|")
    known = re.findall(r"\w+", re.search(r"must be (.*) \(got", isa.decode())[1])
    verdict("and the help all of it", set(known) - {"or"} <= set(listed), (known, listed))
    wide = [
        line
        for names in [[], *([name] for name in COMMANDS)]
        for line in run(*names, "--help").stdout.decode().splitlines()
        if len(line) > 80
    ]
    verdict("no line of help is wider than a terminal", not wide, wide)
    for arguments, guess in (
        (["tokenise", MODEL], b"did you mean 'tokenize'?"),
        (["run", MODEL, "--gredy"], b"did you mean '--greedy'?"),
        (["learn", "stauts"], b"did you mean 'status'?"),
        (["learn", "log"], b"learn log takes one argument, verify (got 0)"),
        (["run", MODEL, "two", "words"], b"quotes"),
        (["run", "smolm2", "hi"], b"did you mean 'smollm2'?"),
    ):
        done = run(*arguments)
        verdict(f"{arguments[:2]}: {guess.decode()}", guess in done.stderr, done.stderr)
    verdict(
        "nothing was made by all that",
        not os.path.exists(os.path.join(tmp, "out")),
        os.listdir(tmp),
    )
finish()
