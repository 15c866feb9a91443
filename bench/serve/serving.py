"""What the measurements of the server share: a program that serves, and requests to it on bare
sockets, so that the measuring itself takes little. Loopback only."""
import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

WORDS = """river stone window garden letter market summer bridge yellow music carry winter
travel kitchen simple pocket captain forest mirror engine paper holiday copper silver doctor
village morning ticket harbour blanket planet circle feather candle basket lantern""".split()


STYLE = """text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; } .faint { fill: #59636e; font-size: 12px; }
.ground { fill: #fff; stroke: #d0d7de; } .ruvllm { fill: #3b76af; } .peer { fill: #c8812f; }
.end { text-anchor: end; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .faint { fill: #9198a1; }
.ground { fill: #161b22; stroke: #30363d; } }
"""
TINY = "tests/gguf/llama-spm.gguf"  # a model whose answers mean nothing and take no time


class Failed(Exception):
    """A response that is not what was asked for; status 0: the connection ended."""

    def __init__(self, status, text):
        super().__init__(f"{status} {text}")
        self.status = status


class Process:
    """A server as a process of its own, ready when the block begins."""

    def __init__(self, command, port_of=None, env=None, port=0):
        self.state = tempfile.TemporaryDirectory()
        self.log = tempfile.TemporaryFile()
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, "RUVLLM_STATE_DIR": self.state.name, **(env or {})})
        self.port = port
        self.pid = self.process.pid
        try:
            while port_of and not self.port:
                self.alive()
                found = re.search(port_of, self.said())
                self.port = int(found[1]) if found else 0
                time.sleep(0.002)
            self.wait()
        except BaseException:
            self.end(signal.SIGKILL)
            raise
        self.start_seconds = time.perf_counter() - self.begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)

    def end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.status = self.process.wait()
        self.state.cleanup()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def alive(self):
        if self.process.poll() is not None:
            raise SystemExit(f"the server ended with {self.process.returncode}: {self.said()}")

    def wait(self):
        """Until /health says that the model is open."""
        while True:
            self.alive()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as r:
                    if r.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)

    def post(self, path, body):
        """A JSON body and its answer, with nothing else going on."""
        data = json.dumps(body).encode()
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data,
                                   {"content-type": "application/json"})
        with urllib.request.urlopen(r) as f:
            return json.load(f)

    def metric(self, name, model=None):
        """A figure; where there are several models, that of one."""
        label = re.escape(f'{{model="{model}"}}') if model else ""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as f:
            found = re.search(rf"(?m)^ruvllm_{name}{label} (\S+)$", f.read().decode())
        return float(found[1])

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self, what="RssAnon"):
        """Bytes of memory that are its own; pages of the model's file do not count."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return 1024 * int(re.search(rf"{what}:\s+(\d+)", f.read())[1])


def ours(program, model, *options, env=None):
    return Process([program, "serve", model, "--port", "0", *options],
                   r"listening on http://\S+:(\d+)", env)


class Client:
    """One connection, kept between requests."""

    def __init__(self, port, receive=0):
        self.port, self.receive = port, receive
        self.pause = 0  # seconds between two of ten pieces in which requests are sent
        self.reader = self.writer = None
        self.sent = 0  # when the last request was

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    def close(self):
        if self.writer:
            self.writer.transport.abort()
        self.reader = self.writer = None

    async def send(self, method, path, body=None, headers=""):
        if not self.writer or self.reader.at_eof():  # the server ends those that rest for long
            self.close()
            await self.open()
        data = b"" if body is None else json.dumps(body).encode()
        data = (f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                f"content-length: {len(data)}\r\n{headers}\r\n").encode() + data
        piece = len(data) // 10 + 1
        while self.pause and len(data) > piece:
            self.writer.write(data[:piece])
            data = data[piece:]
            await asyncio.sleep(self.pause)
        self.sent = time.perf_counter()
        self.writer.write(data)
        await self.writer.drain()

    async def head(self):
        try:
            text = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Failed(0, "the connection ended") from e
        low = text.lower()
        return int(text.split(b" ", 2)[1]), low

    async def pieces(self, low):
        """The body in the pieces in which it comes."""
        try:
            if b"transfer-encoding: chunked" not in low:
                found = re.search(rb"content-length: *(\d+)", low)
                yield await self.reader.readexactly(int(found[1])) if found else b""
                return
            while True:
                n = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
                piece = (await self.reader.readexactly(n + 2))[:-2]
                if not n:
                    return
                yield piece
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Failed(0, "the connection ended") from e

    async def ask(self, method, path, body=None, headers=""):
        """(status, body as JSON or bytes)"""
        await self.send(method, path, body, headers)
        status, low = await self.head()
        data = b"".join([p async for p in self.pieces(low)])
        if b"connection: close" in low:
            self.close()
        return status, json.loads(data) if b"application/json" in low and data else data

    async def stream(self, path, body, n_texts=0):
        """An answer as it comes; after n_texts pieces, where a number is given, no more is read."""
        await self.send("POST", path, body)
        begun = self.sent
        status, low = await self.head()
        rest, got = b"", Streamed()
        async for piece in self.pieces(low):
            now = time.perf_counter() - begun
            rest += piece
            *events, rest = re.split(rb"\r?\n\r?\n", rest)
            for event in events:
                data = event[event.find(b"data: ") + 6:]
                if data.startswith(b"{"):
                    got.read(json.loads(data), now)
            if n_texts and len(got.texts) >= n_texts:
                break
        if status != 200:
            raise Failed(status, rest[:200])
        if b"connection: close" in low:
            self.close()
        got.seconds = time.perf_counter() - begun
        return got


class Streamed:
    """An answer that came in events, in the shapes of OpenAI's paths."""

    def __init__(self):
        self.first = self.seconds = 0  # until the first text and until the end
        self.texts, self.usage, self.event = [], {}, {}

    def read(self, event, now):
        if "error" in event:
            raise Failed(200, event["error"])
        self.event = event
        self.usage = event.get("usage") or self.usage
        said = [event["delta"]] if event.get("type") == "response.output_text.delta" else \
            [c.get("text") or (c.get("delta") or {}).get("content")
             for c in event.get("choices") or []]
        for text in filter(None, said):
            self.first = self.first or now
            self.texts.append(text)


def completion(n, text="Once upon a time", **more):
    return {"prompt": text, "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}


def sentence(rnd, n=8):
    return " ".join(rnd.choice(WORDS) for _ in range(n))


async def expect(c, status, path, body):
    got, r = await c.ask("POST", path, body)
    if got != status:
        raise SystemExit(f"{path} answered {got} where {status} was expected: {r}")
    return r


def percentile(values, share):
    """The smallest value that is at least as large as this share of them."""
    values = sorted(values)
    return values[min(len(values) - 1, max(0, -int(-share * len(values) // 1) - 1))]


def load_average():
    return os.getloadavg()[0]
