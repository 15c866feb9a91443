#!/usr/bin/env python3
"""Settings of `ruvllm serve`: the command line counts more than the environment, that more than
ruvllm.toml; --check prints what counts, and its output is such a file. Prints TAP."""
import os
import subprocess
import tempfile

from terminal import MODEL, PROGRAM, finish, verdict

WHOLE = f"""# a comment
port = 9001
[other]
nonsense = 'x'
[serve]   # ours
model = "{MODEL}"
host = '127.0.0.2'
alias = "a \\"b\\""   # with quotes
any-model = true
no-learning = false
ctx = 256
"""


def check(text, *arguments, env=None, name="--config"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ruvllm.toml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run(
            [os.path.abspath(PROGRAM), "serve", "--check", *([name, path] if name else []),
             *arguments], capture_output=True, check=False, text=True, cwd=folder,
            env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.splitlines()[1:], done.stderr


def has(got, *lines):
    return got[0] == 0 and all(x in got[1] for x in lines)


got = check(WHOLE)
verdict("a file is read", has(got, "port = 9001", 'host = "127.0.0.2"', f'model = "{MODEL}"',
                              'alias = "a \\"b\\""', "any-model = true", "no-learning = false"),
        got)
again = check("\n".join(["[serve]", *got[1]]))
verdict("what is printed is such a file", again[1] == got[1], (got, again))
env = {"RUVLLM_SERVE_PORT": "9002", "RUVLLM_SERVE_MAX_BODY": "5", "RUVLLM_SERVE_ANY_MODEL": "false"}
verdict("the environment counts more", has(check(WHOLE, env=env), "port = 9002", "max-body = 5"))
verdict("the command line most", has(check(WHOLE, "other", "--port", "9003", env=env),
                                     "port = 9003", 'model = "other"'))
verdict("the file may be that of the folder", has(check(WHOLE, name=None), "port = 9001"))
verdict("or of the environment", has(check(WHOLE, env={"RUVLLM_CONFIG": "ruvllm.toml"}, name=None),
                                     "port = 9001"))
got = check('[serve]\nmodel = "m"\napi-key = "sesame"\n')
verdict("a key is not shown", got[0] == 0 and "sesame" not in "\n".join(got[1]), got)
for name, text, word in (
        ("an unknown name", "[serve]\nprot = 1\n", ":2: there is no setting called prot"),
        ("a line that is none", "port\n", ":1: a line must be"),
        ("a text without quotes", "host = a b\n", ":1: a line must be"),
        ("quotes that do not close", 'host = "a\n', ":1: a line must be"),
        ("a value out of range", "port = 99999\n", "--port must be"),
        ("a flag that is neither", 'any-model = "perhaps"\n', "true or false"),
        ("a file in a file", 'config = "x"\n', "there is no setting called config")):
    got = check(text, "m")
    verdict(f"{name} is refused", got[0] == 2 and word in got[2], got)
got = check("", "m", "--config", "/nowhere/x.toml", name=None)
verdict("a file that is not there", got[0] == 1 and "/nowhere/x.toml" in got[2], got)
verdict("no model at all", check("")[0] == 2)
finish()
