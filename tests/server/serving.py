"""What the tests of `ruvllm serve` share: a server on a free port, and requests to it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from terminal import MODEL, PROGRAM, SLOW, finish, skip, verdict  # noqa: E402,F401


def without_encoder():
    """From here on programs do without the encoder that recognises lessons by meaning, also where
    it is in the cache: a server with a tiny model starts in a tenth of the CPU time. Returns what
    a server needs to have it all the same, as its cache."""
    cache = {n: os.environ[n] for n in ["RUVLLM_CACHE_DIR"] if n in os.environ}
    os.environ["RUVLLM_CACHE_DIR"] = "/nonexistent"
    return cache or {"RUVLLM_CACHE_DIR": ""}


class Server:
    """A server with a model of its own state, ended by leaving the block."""

    def __init__(self, *options, model=MODEL, ready=True, scheme="http", state=None, cache=None):
        self.state = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", model, "--port", "0", *options],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "RUVLLM_STATE_DIR": state or self.state.name, **(cache or {})},
        )
        self.said = self.process.stderr.readline().decode()
        found = re.search(scheme + r"://\S+:(\d+)$", self.said.strip())
        self.port = int(found[1]) if found else 0
        self.seen = set()  # statuses of /health until it was ready
        if ready and self.port:
            self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.status = self.process.wait(SLOW)
        self.rest = self.process.stderr.read().decode()
        self.process.stderr.close()
        self.state.cleanup()

    def wait(self):
        while self.process.poll() is None:
            status = self.ask("GET", "/health")[0]
            self.seen.add(status)
            if status == 200:
                return
            time.sleep(0.02)
        raise SystemExit(f"the server ended: {self.process.stderr.read()}")

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body); a JSON body is parsed."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SLOW)
        text = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method, path, text, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        if (r.getheader("content-type") or "").startswith("application/json"):
            data = json.loads(data)
        return r.status, r.headers, data

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def chat(self, text, **options):
        """The text of a greedy answer, unless options say otherwise."""
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0,
                "max_tokens": 12, **options}
        return self.post("/v1/chat/completions", body)[2]

    def stream(self, path, body):
        """The events of a stream, and whether [DONE] ended it."""
        data = self.post(path, {**body, "stream": True})[2].decode()
        lines = [line[6:] for line in data.splitlines() if line.startswith("data: ")]
        return [json.loads(x) for x in lines if x != "[DONE]"], lines[-1:] == ["[DONE]"]

    def raw(self, data, end=False):
        """What comes back for bytes, until the server closes or has been silent for a while."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=SLOW)
        s.sendall(data)
        if end:
            s.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            got = s.recv(65536)
            if not got:
                break
            out += got
        s.close()
        return out

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"(?m)^ruvllm_{name} (\S+)$", text)[1])

    def wait_for_metric(self, name, at_least):
        begun = time.monotonic()
        while self.metric(name) < at_least and time.monotonic() - begun < SLOW:
            time.sleep(0.02)
        return self.metric(name)


def program(*arguments):
    """What the program prints."""
    return subprocess.run([PROGRAM, *arguments], capture_output=True, check=True,
                          stdin=subprocess.DEVNULL).stdout.decode()


def has_smollm2():
    folder = os.environ.get("RUVLLM_CACHE_DIR", "~/.cache/ruvllm")
    return "smollm2" in program("list") and os.path.exists(
        os.path.expanduser(folder + "/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
