#!/usr/bin/env python3
"""Presets: a system prompt, sampling and an adapter by a name, in every dialect of `ruvllm serve`
and for `ruvllm run` and `chat`. Prints TAP."""
import os
import subprocess
import tempfile

from peft import write_adapter
from serving import MODEL, PROGRAM, Server, finish, program, verdict, without_encoder

without_encoder()
SYSTEM = "Talk like a \"pirate\"."
PIRATE = 'system = "Talk like a \\"pirate\\"."  # aye\ntemp = 0\nmax-tokens = 9\nstop = "@@"\n'
ASK = [{"role": "user", "content": "Hello"}]
TOLD = [{"role": "system", "content": SYSTEM}, *ASK]


def same(name, s, path, short, long, text):
    """A preset's name is the same as all that it stands for."""
    a, b = s.post(path, {"model": "pirate", **short}), s.post(path, long)
    verdict(f"{name}: the same as all of it", a[0] == b[0] == 200 and text(a[2]) == text(b[2]) and
            text(a[2])[0], (a, b))


def dialects(s):
    options = {"temperature": 0, "max_tokens": 9}
    same("chat", s, "/v1/chat/completions", {"messages": ASK}, {"messages": TOLD, **options},
         lambda r: (r["choices"][0]["message"]["content"], r["usage"]["prompt_tokens"]))
    same("completion", s, "/v1/completions", {"prompt": "Hello"}, {"prompt": "Hello", **options},
         lambda r: (r["choices"][0]["text"], r["usage"]["completion_tokens"]))
    same("Anthropic", s, "/v1/messages", {"messages": ASK, "max_tokens": 9},
         {"messages": ASK, "system": SYSTEM, **options},
         lambda r: (r["content"][0]["text"], r["usage"]["output_tokens"]))
    same("Responses", s, "/v1/responses", {"input": "Hello"},
         {"input": "Hello", "instructions": SYSTEM, "temperature": 0, "max_output_tokens": 9},
         lambda r: (r["output"][0]["content"][0]["text"], r["usage"]["input_tokens"]))
    same("Ollama", s, "/api/chat", {"messages": ASK, "stream": False},
         {"messages": TOLD, "stream": False, "options": {"temperature": 0, "num_predict": 9}},
         lambda r: (r["message"]["content"], r["prompt_eval_count"]))
    same("Ollama's prompt", s, "/api/generate", {"prompt": "Hello", "stream": False},
         {"prompt": "Hello", "system": SYSTEM, "stream": False,
          "options": {"temperature": 0, "num_predict": 9}},
         lambda r: (r["response"], r["prompt_eval_count"]))


def counts_less(s):
    chat = {"model": "pirate", "messages": ASK}
    r = s.post("/v1/chat/completions", {**chat, "max_tokens": 2})[2]
    verdict("what a request says counts more", r["usage"]["completion_tokens"] == 2 and
            r["model"] == "pirate", r)
    own = [{"role": "system", "content": "Be brief."}, *ASK]
    a = s.post("/v1/chat/completions", {**chat, "messages": own})[2]
    b = s.post("/v1/chat/completions", {"messages": own, "temperature": 0, "max_tokens": 9})[2]
    verdict("a system message of its own too", a["usage"]["prompt_tokens"] ==
            b["usage"]["prompt_tokens"] and
            a["choices"][0]["message"] == b["choices"][0]["message"], (a, b))
    r = s.post("/api/chat", {**chat, "stream": False, "options": {"num_predict": 2}})[2]
    verdict("and Ollama's options", r["eval_count"] == 2, r)
    for path, body in (("/api/chat", {**chat, "options": [1]}),
                       ("/v1/chat/completions", {**chat, "messages": 3}),
                       ("/v1/chat/completions", {**chat, "messages": []}),
                       ("/v1/chat/completions", {"model": "pirate"})):
        status, _, r = s.post(path, body)
        verdict(f"{path} with {body} is 400", status == 400, r)
    listed = s.ask("GET", "/v1/models")[2]["data"]
    verdict("they are listed", [(m["id"], m.get("preset")) for m in listed][1:] ==
            [("dull", True), ("pirate", True)] and listed[2]["parent"] == MODEL, listed)
    verdict("a name that nobody has is 404", s.post("/v1/chat/completions", {
        **chat, "model": "captain"})[0] == 404)


def adapters(s):
    a, b, plain = (s.chat("Hello", model=m, max_tokens=24)["choices"][0]["message"]["content"]
                   for m in ("with", "one", MODEL))
    verdict("a preset may have an adapter", a == b != plain, (a, b, plain))


def refused(folder):
    wrong = {"an unknown name": "temprature = 1\n", "a value out of range": "top-p = 7\n",
             "no line of settings": "what is this\n", "another model": 'model = "other"\n',
             "an adapter that is not there": 'lora = "none"\n',
             "a number that is none": "temp = x\n"}
    for name, text in wrong.items():
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            with open(os.path.join(inside, "bad.toml"), "w", encoding="utf-8") as f:
                f.write(text)
            r = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", "--presets", inside],
                               capture_output=True, stdin=subprocess.DEVNULL, check=False)
            said = r.stderr.decode()
            verdict(f"{name} is told at the start", r.returncode not in (0, -11) and
                    "bad.toml" in said, said)


def command_line(file):
    with open(file, "a", encoding="utf-8") as f:
        f.write(f'model = "{MODEL}"\n')
    long = program("run", MODEL, "Hello", "--system", SYSTEM, "--temp", "0", "-n", "9", "--stop",
                   "@@")
    verdict("run: the same as all of it", program("run", "--preset", file, "Hello") == long, long)
    short = program("run", f"--preset={file}", "Hello", "-n", "3")
    verdict("run: the command line counts more", short != long, short)
    chat = subprocess.run([PROGRAM, "chat", "--preset", file], input=b"Hello\n",
                          capture_output=True, check=False)
    verdict("chat: the same answer", long.strip() in chat.stdout.decode(), chat)
    r = subprocess.run([PROGRAM, "chat", MODEL, "--preset", file], capture_output=True,
                       stdin=subprocess.DEVNULL, check=False)
    verdict("a second model is too much", r.returncode == 2, r)
    with open(file, "a", encoding="utf-8") as f:
        f.write("colour = 3\n")
    r = subprocess.run([PROGRAM, "run", "--preset", file, "x"], capture_output=True,
                       stdin=subprocess.DEVNULL, check=False)
    verdict("an unknown name is an error with its line", r.returncode == 2 and
            b"pirate.toml:6" in r.stderr and b"colour" in r.stderr, r)


with tempfile.TemporaryDirectory() as folder:
    pirate = os.path.join(folder, "pirate.toml")
    for name, text in (("pirate.toml", PIRATE), ("dull.toml", "greedy = true\n"), ("x.txt", "!")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    with Server("--presets", folder, "--ctx", "256") as s:
        dialects(s)
        counts_less(s)
    verdict("the server ended well", s.status == 0)
    adapter = os.path.join(folder, "adapters")
    write_adapter(adapter + "/one", 1)
    with open(os.path.join(folder, "with.toml"), "w", encoding="utf-8") as f:
        f.write('lora = "somewhere/one"\n')
    with Server("--presets", folder, "--adapters", adapter) as s:
        adapters(s)
    os.remove(os.path.join(folder, "with.toml"))
    refused(folder)
    command_line(pirate)
finish()
