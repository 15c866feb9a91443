#!/usr/bin/env python3
"""What `make run` does: a server that says where it listens, a chat beside it, and the end of both.
Prints TAP."""
import glob
import json
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.request

from serving import MODEL, PROGRAM, SLOW, finish, verdict


def begin(port, state):
    """The process, and the address that it names."""
    p = subprocess.Popen(["tools/serve_and_chat", PROGRAM, MODEL, str(port)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env={**os.environ, "RUVLLM_STATE_DIR": state})
    line = p.stderr.readline().decode()
    found = re.search(r"listening on http://127.0.0.1:(\d+)", line)
    return p, int(found[1]) if found else 0, line


def ask(port, path, body=None):
    data = json.dumps(body).encode() if body else None
    r = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data,
                               {"content-type": "application/json"})
    with urllib.request.urlopen(r, timeout=SLOW) as f:
        return json.load(f)


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=SLOW).close()
        return True
    except OSError:
        return False


with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    process, at, said = begin(taken.getsockname()[1], folder)
    verdict("where the port is taken the server takes another, and says which",
            at not in (0, taken.getsockname()[1]), said)
    process.stdin.write(b"What is Kakovin's dog?\n/fix chess\n")
    process.stdin.flush()
    while process.poll() is None and b"chess" not in process.stdout.readline():
        pass
    verdict("the chat beside it answers and learns", process.poll() is None)
    while True:  # 503 until the model is open
        try:
            ask(at, "/health")
            break
        except urllib.error.HTTPError as e:
            e.close()
    r = ask(at, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}],
                                         "max_tokens": 2})
    verdict("and so does the server", r["usage"]["completion_tokens"] == 2, r)
    r = ask(at, "/v1/chat/completions", {"messages": [{"role": "user",
                                                       "content": "What is Kakovin's dog?"}]})
    verdict("which knows what the chat was taught",
            r["choices"][0]["message"]["content"] == "chess", r)
    r = ask(at, "/v1/feedback", {"response_id": r["id"], "correction": "Rex"})
    process.stdin.write(b"/clear\nWhat is Kakovin's dog?\n")
    process.stdin.flush()
    while process.poll() is None and b"Rex" not in process.stdout.readline():
        pass
    verdict("and the chat what the server was", process.poll() is None)
    process.stdin.write(b"/undo\n/undo\n")
    process.stdin.flush()
    line = b""
    while process.poll() is None and b"learn undo" not in line:
        line = process.stderr.readline()
    verdict("the chat takes back what it taught, and no more", process.poll() is None)
    r = ask(at, "/v1/chat/completions", {"messages": [{"role": "user",
                                                       "content": "What is Kakovin's dog?"}]})
    verdict("and what the server was taught stands", r["choices"][0]["message"]["content"] == "Rex",
            r)
    base = glob.glob(folder + "/*/default")[0]
    for file in (False, True):
        if file:  # as earlier versions paused
            with open(base + "/paused", "w", encoding="utf-8"):
                pass
        command = [PROGRAM, "learn"] + (["status"] if file else ["pause"]) + ["-m", MODEL]
        subprocess.run(command, check=True, capture_output=True,
                       env={**os.environ, "RUVLLM_STATE_DIR": folder})
        begun = time.monotonic()
        while ask(at, "/v1/learning")["background"] != "paused" and time.monotonic() < begun + SLOW:
            time.sleep(0.05)
        verdict("a file of earlier versions pauses, too" if file else
                "learn pause reaches a server that runs",
                ask(at, "/v1/learning")["background"] == "paused" and
                not os.path.exists(base + "/paused"))
    out, err = process.communicate(timeout=SLOW)
    verdict("both end with the chat", process.returncode == 0 and not is_open(at),
            (process.returncode, err))
    bad = subprocess.run(["tools/serve_and_chat", PROGRAM, "none.gguf"], capture_output=True,
                         check=False)
    verdict("what is wrong is said once", bad.returncode == 1 and
            bad.stderr.count(b"none.gguf") == 1, bad)
finish()
