#!/usr/bin/env python3
"""Who may ask `ruvllm serve`, and how: keys with scopes and rates, each dialect's refusals, pages
of other origins, TLS, limits, and what a service manager passes and is told. Prints TAP."""
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

from serving import MODEL, PROGRAM, SLOW, Server, finish, program, skip, verdict, without_encoder

without_encoder()
ASK = {"messages": [{"role": "user", "content": "the tea"}], "temperature": 0, "max_tokens": 4}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def scopes(s, infer, teach, admin):
    for name, key, wanted in (("infer", infer, (200, 403, 403)), ("teach", teach, (403, 404, 403)),
                              ("admin", admin, (403, 403, 200)),
                              ("no", "rv-wrong", (401, 401, 401))):
        got = (s.post("/v1/chat/completions", ASK, bearer(key))[0],
               s.post("/v1/feedback", {"response_id": "x", "rating": 1}, bearer(key))[0],
               s.ask("GET", "/metrics", headers=bearer(key))[0])
        verdict(f"a key of scope {name}: chat, feedback, metrics are {wanted}", got == wanted, got)
    e = s.post("/v1/feedback", {}, bearer(infer))[2]["error"]
    verdict("what it lacks is said", (e["code"], e["type"]) == ("insufficient_scope",
                                                               "permission_error"), e)
    verdict("health needs none", s.ask("GET", "/health")[0] == 200)


def owners(s, infer, teach, other):
    made = s.post("/v1/responses", {"input": "tea", "max_output_tokens": 2}, bearer(infer))[2]
    verdict("a key has its own response again",
            s.ask("GET", f"/v1/responses/{made['id']}", headers=bearer(infer))[0] == 200, made)
    path = f"/v1/responses/{made['id']}"
    others = (s.post("/v1/feedback", {"response_id": made["id"], "rating": 1}, bearer(teach))[0],
              s.ask("GET", path, headers=bearer(other))[0],
              s.ask("DELETE", path, headers=bearer(other))[0])
    verdict("others have it not", others == (404, 404, 404), others)


def rates(s, slow):
    bodies = [("/v1/chat/completions", ASK, lambda b: b["error"]["code"] == "rate_limit_exceeded"),
              ("/v1/messages", ASK, lambda b: b["type"] == "error" and
               b["error"]["type"] == "rate_limit_error"),
              ("/api/chat", {**ASK, "stream": False}, lambda b: isinstance(b["error"], str))]
    got = [s.post(*bodies[0][:2], bearer(slow))[0] for _ in range(3)]
    verdict("three requests a minute are answered", got == [200] * 3, got)
    for path, body, shape in bodies:
        status, headers, answer = s.post(path, body, bearer(slow))
        verdict(f"one more is 429 in the shape of {path}",
                status == 429 and shape(answer) and 1 <= int(headers["retry-after"]) <= 21 and
                headers["x-ratelimit-limit-requests"] == "3", (status, headers.items(), answer))


def refusals(s):
    for path, shape in (("/v1/messages", lambda b: b["error"]["type"] == "authentication_error"),
                        ("/api/chat", lambda b: isinstance(b["error"], str)),
                        ("/v1/responses", lambda b: b["error"]["code"] == "invalid_api_key")):
        status, _, body = s.post(path, ASK)
        verdict(f"without a key {path} says so in its shape", status == 401 and shape(body), body)
    out = s.raw(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
    verdict("a body over the limit too", out.startswith(b"HTTP/1.1 413") and
            b'"request_too_large"' in out and b'"type":"error"' in out, out)


def keys(tmp):
    path = os.path.join(tmp, "keys")
    made = {name: program("key", path, name, *options).strip() for name, options in (
        ("ann", ["--scopes", "infer"]), ("bob", ["--scopes", "teach"]),
        ("eve", ["--scopes", "admin"]), ("kim", ["--per-minute", "3"]), ("both", []))}
    lines = open(path, encoding="utf-8").read()
    verdict("a file of keys has no key in it, and is its owner's",
            not any(k in lines for k in made.values()) and lines.count("\n") == 5 and
            os.stat(path).st_mode & 0o077 == 0, lines)
    with Server("--keys", path, "--max-body", "1") as s:
        scopes(s, made["ann"], made["bob"], made["eve"])
        owners(s, made["ann"], made["bob"], made["both"])
        rates(s, made["kim"])
        refusals(s)
        late = program("key", path, "late").strip()
        before = s.post("/v1/chat/completions", ASK, bearer(late))[0]
        s.process.send_signal(signal.SIGHUP)
        begun = time.monotonic()
        while s.post("/v1/chat/completions", ASK, bearer(late))[0] != 200 and \
                time.monotonic() - begun < SLOW:
            time.sleep(0.02)
        verdict("a new key counts after SIGHUP", before == 401 and
                s.post("/v1/chat/completions", ASK, bearer(late))[0] == 200)
        verdict("and the old ones go on being counted",
                s.post("/v1/chat/completions", ASK, bearer(made["kim"]))[0] == 429)
    for text, what in (("ann abc infer\n", "SHA-256"), ("a/b " + "0" * 64 + " infer\n", "name"),
                       ("ann " + "0" * 64 + " cook\n", "infer"),
                       ("ann " + "0" * 64 + " infer rate=0\n", "rate"), ("# none\n", "no key"),
                       ("x" * 5000, "too long")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        out = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", "--keys", path],
                             capture_output=True, check=False)
        verdict(f"a file of keys without {what} is refused",
                out.returncode == 1 and what in out.stderr.decode(), out)


def pages():
    good, bad = "https://app.example", "https://evil.example"
    with Server("--cors-origin", f"https://a.example,{good}") as s:
        asks = {"Origin": good, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, x-stainless-os"}
        status, headers, _ = s.ask("OPTIONS", "/v1/chat/completions", headers=asks)
        verdict("a page that is listed may ask", status == 204 and
                headers["access-control-allow-origin"] == good and
                headers["access-control-allow-headers"] == asks["Access-Control-Request-Headers"],
                headers.items())
        status, headers, _ = s.post("/v1/chat/completions", ASK, {"Origin": good})
        verdict("and read the answer", status == 200 and
                headers["access-control-allow-origin"] == good and
                "access-control-allow-credentials" not in headers, headers.items())
        got = [s.ask("OPTIONS", "/v1/models", headers={**asks, "Origin": o})[0]
               for o in (bad, "https://a.example.evil", "https://a")]
        got.append(s.ask("GET", "/v1/models", headers={"Origin": bad})[0])
        verdict("others may not", got == [403] * 4, got)


def encrypted(tmp):
    if not shutil.which("openssl"):
        skip("TLS", "there is no openssl to make a certificate")
        return
    cert, key = os.path.join(tmp, "cert"), os.path.join(tmp, "key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.create_default_context(cafile=cert)
    with Server("--tls-cert", cert, "--tls-key", key, ready=False, scheme="https") as s:
        def ask(method, path, body=None):
            c = http.client.HTTPSConnection("127.0.0.1", s.port, timeout=SLOW, context=context)
            c.request(method, path, body and json.dumps(body))
            r = c.getresponse()
            return r.status, r.read()

        while ask("GET", "/health")[0] != 200:
            time.sleep(0.02)
        status, body = ask("POST", "/v1/chat/completions", {**ASK, "max_tokens": 200,
                                                            "ignore_eos": True, "stream": True})
        verdict("an encrypted stream", status == 200 and body.endswith(b"data: [DONE]\n\n"),
                body[-200:])
        with context.wrap_socket(socket.create_connection(("127.0.0.1", s.port)),
                                 server_hostname="localhost") as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            out = b""
            while out.count(b"HTTP/1.1 200") < 2:
                out += c.recv(65536)
            verdict("two requests on one encrypted connection", c.version() in
                    ("TLSv1.2", "TLSv1.3"), out)
        with socket.create_connection(("127.0.0.1", s.port), timeout=SLOW) as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            out = b""
            try:
                while got := c.recv(65536):
                    out += got
            except ConnectionResetError:
                pass
            verdict("what is not encrypted is not answered", b"HTTP/1.1 200" not in out, out)
        s.process.send_signal(signal.SIGHUP)
        verdict("it serves on after its certificate was read again",
                ask("GET", "/health")[0] == 200)
    locked = os.path.join(tmp, "locked.pem")
    subprocess.run(["openssl", "pkey", "-in", key, "-aes-128-cbc", "-passout", "pass:sesame",
                    "-out", locked], check=True, capture_output=True)
    out = subprocess.run([PROGRAM, "serve", MODEL, "--tls-cert", cert, "--tls-key", locked],
                         capture_output=True, check=False, timeout=SLOW)
    verdict("nobody is asked for the password of a key", out.returncode == 1 and
            b"--tls-key" in out.stderr, out)
    out = subprocess.run([PROGRAM, "serve", MODEL, "--tls-cert", key, "--tls-key", key, "--port",
                          "0"], capture_output=True, check=False)
    verdict("a certificate that is none is named", out.returncode == 1 and
            b"--tls-cert" in out.stderr, out)


def managed(tmp):
    """As systemd does it: a socket that listens already is descriptor 3."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = os.path.join(tmp, "notify")
    notify.bind(path)
    notify.settimeout(SLOW)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = 'exec 3<&"$1"; shift; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'
    p = subprocess.Popen(["bash", "-c", script, "-", str(listener.fileno()), PROGRAM, "serve",
                          MODEL, "--no-learning"], pass_fds=[listener.fileno()],
                         stderr=subprocess.PIPE, env={**os.environ, "NOTIFY_SOCKET": path})
    said = p.stderr.readline().decode()
    verdict("it listens on the socket that was passed", said.endswith(f":{port}\n"), said)
    verdict("and says when it is ready", notify.recv(100) == b"READY=1")
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW)
    c.request("GET", "/health")
    verdict("as it is", c.getresponse().status == 200)
    c.close()
    p.send_signal(signal.SIGTERM)
    verdict("and when it stops", notify.recv(100) == b"STOPPING=1" and p.wait(SLOW) == 0)
    p.stderr.close()
    listener.close()
    notify.close()


def careful(tmp):
    """What a server must not do by the way."""
    path = os.path.join(tmp, "pipe")
    os.mkfifo(path)
    out = subprocess.run([PROGRAM, "serve", MODEL, "--unix", path], capture_output=True,
                         check=False)
    verdict("what is no socket is not removed for one", out.returncode == 1 and
            os.path.exists(path) and b"no socket" in out.stderr, out)
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with Server("--api-key", "sesame") as s:
        with open(f"/proc/{s.process.pid}/cmdline", "rb") as f:
            words = f.read()
        verdict("a key does not stay among the arguments", b"sesame" not in words and
                s.ask("GET", "/v1/models", None, bearer("sesame"))[0] == 200, words)
        with open(f"/proc/{s.process.pid}/limits", encoding="ascii") as f:
            files = re.search(r"Max open files\s+(\d+)", f.read())[1]
        verdict("it allows itself more files than a shell does", int(files) > 1024, files)
        name = MODEL.replace("/", "%2F")
        status, _, got = s.ask("GET", "/v1/models/" + name, None, bearer("sesame"))
        verdict("the slash of a name may be escaped", status == 200 and got["id"] == MODEL, got)


def draining():
    with Server("--drain", "0") as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
        c.request("POST", "/v1/chat/completions", json.dumps(
            {**ASK, "max_tokens": 100000, "ignore_eos": True, "stream": True}))
        c.getresponse().read(100)
        s.process.send_signal(signal.SIGTERM)
        verdict("the deadline ends what is under way", s.process.wait(SLOW) == 0)


def waiting():
    with Server("--parallel", "1", "--max-waiting", "1") as s:
        body = {**ASK, "n": 1, "max_tokens": 100000, "ignore_eos": True, "stream": True}
        held = []
        for _ in range(60):  # the model is so small that some end at once
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=SLOW)
            c.request("POST", "/v1/chat/completions", json.dumps(body))
            r = c.getresponse()
            held.append((c, r))
            if r.status == 429:
                break
        e = json.loads(held[-1][1].read()) if held[-1][1].status == 429 else None
        verdict("where too many wait it is 429", e and e["error"]["code"] == "queue_full" and
                held[-1][1].getheader("retry-after"), e)
        for c, _ in held:
            c.close()
    with Server("--any-model") as s:
        got = s.post("/v1/chat/completions", {**ASK, "model": "gpt-4o"})
        verdict("any name may mean the model", got[0] == 200, got)


with tempfile.TemporaryDirectory() as folder:
    keys(folder)
    pages()
    encrypted(folder)
    managed(folder)
    careful(folder)
    draining()
    waiting()
finish()
