#!/usr/bin/env python3
"""`ruvllm serve --witness` and `ruvllm witness verify`: every request is in the log, the chain is
what it says (checked here by code of its own), and whoever changes it is found out. Prints TAP."""
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from serving import PROGRAM, Server, finish, verdict, without_encoder

without_encoder()
CHAT = {"messages": [{"role": "user", "content": "A secret question"}], "max_tokens": 4,
        "temperature": 0}


def sha(data):
    return hashlib.sha256(data).hexdigest()


def lines_of(folder):
    with open(os.path.join(folder, "witness.jsonl"), "rb") as f:
        return f.read().split(b"\n")[:-1]


def verify(folder, *more):
    r = subprocess.run([PROGRAM, "witness", "verify", folder, *more], capture_output=True,
                       stdin=subprocess.DEVNULL, check=False)
    return r.returncode, (r.stdout + r.stderr).decode()


def chain_is_whole(lines):
    prev, n = "0" * 64, 0
    for line in lines:
        r = json.loads(line)
        n += 1
        if r["prev"] != prev or r["n"] != n:
            return False
        prev = sha(line)
    return True


def raw(port, path, body):
    """The bytes of a body that is sent, and of the one that comes back."""
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sesame\r\nx-request-id: my-id"
              b"\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (path, len(data), data))
    out = b""
    while got := s.recv(65536):
        out += got
    s.close()
    head, rest = out.split(b"\r\n\r\n", 1)
    if b"chunked" not in head:
        return data, rest
    text = b""
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        text += rest[:int(size, 16)]
        rest = rest[int(size, 16) + 2:]
    return data, text


def wait_for_lines(folder, n):
    begun = time.monotonic()
    while len(lines_of(folder)) < n and time.monotonic() - begun < 60:
        time.sleep(0.02)


def records(folder):
    with Server("--witness", folder, "--api-key", "sesame") as s:
        key = {"authorization": "Bearer sesame"}
        pairs = [raw(s.port, b"/v1/chat/completions", CHAT),
                 raw(s.port, b"/v1/chat/completions", {**CHAT, "stream": True}),
                 raw(s.port, b"/v1/embeddings", {"input": 3})]
        reply = json.loads(pairs[0][1])
        s.ask("GET", "/v1/models", headers=key)
        s.post("/v1/feedback", {"response_id": reply["id"], "correction": "A secret answer"}, key)
        s.post("/tokenize", {"content": "x"})  # without a key
        begun, text = time.monotonic(), ""
        while "witness_records_total 5" not in text and time.monotonic() - begun < 60:
            text = s.ask("GET", "/metrics", headers=key)[2].decode()
    lines = lines_of(folder)
    log = [json.loads(x) for x in lines]
    verdict("a line for each that asks or teaches, and for the start",
            [(r["kind"], r.get("path"), r.get("status")) for r in log] ==
            [("start", None, None), ("request", "/v1/chat/completions", 200),
             ("request", "/v1/chat/completions", 200), ("request", "/v1/embeddings", 400),
             ("feedback", "/v1/feedback", 200), ("request", "/tokenize", 401)], log)
    verdict("the chain is whole", chain_is_whole(lines))
    verdict("hashes are those of the bytes that were sent and came back",
            all((r["in"], r["out"], r["in_bytes"], r["out_bytes"]) ==
                (sha(a), sha(b), len(a), len(b)) for r, (a, b) in zip(log[1:], pairs)), log)
    verdict("it knows the request's id", log[1]["id"] == "my-id", log[1])
    verdict("nothing that was said is in it", b"secret" not in b"".join(lines) and
            sorted(os.listdir(folder)) == ["lock", "witness.jsonl"])
    verdict("it is for its owner alone",
            os.stat(os.path.join(folder, "witness.jsonl")).st_mode & 0o77 == 0)
    verdict("it is counted", "ruvllm_witness_records_total 5" in text and
            "ruvllm_witness_dropped_total 0" in text, text)
    status, said = verify(folder)
    verdict("verify finds nothing wrong", status == 0 and "5 requests" in said and
            sha(lines[-1]) in said, said)


def goes_on(folder):
    head = sha(lines_of(folder)[-1])
    with Server("--witness", folder) as s:
        r = subprocess.run([PROGRAM, "serve", "tests/gguf/llama-spm.gguf", "--port", "0",
                            "--witness", folder], capture_output=True, stdin=subprocess.DEVNULL,
                           check=False)
        verdict("a second server is refused", r.returncode == 1, r)
        s.post("/v1/chat/completions", CHAT)
        c = socket.create_connection(("127.0.0.1", s.port))
        body = json.dumps({**CHAT, "max_tokens": -1, "n": 128, "ignore_eos": True})
        c.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
                  f"{len(body)}\r\n\r\n{body}".encode())
        s.wait_for_metric("num_requests_running", 1)
        c.close()
        wait_for_lines(folder, 9)
        s.process.send_signal(signal.SIGKILL)
    lines = lines_of(folder)
    verdict("it goes on after the last line, and is written before the end", len(lines) == 9 and
            chain_is_whole(lines), lines)
    verdict("a client that leaves is told from one that stays",
            [json.loads(x)["left"] for x in lines[-2:]] == [False, True], lines[-2:])
    with open(os.path.join(folder, "witness.jsonl"), "ab") as f:
        f.write(b'{"n":10,"ms":17')  # as if the power had failed
    verdict("a line that was cut short is told", "1 lines cut short" in verify(folder)[1])
    with Server("--witness", folder) as s:
        s.post("/v1/chat/completions", CHAT)
    status, said = verify(folder, "--head", head)
    verdict("and is part of the chain", status == 0 and "1 lines cut short" in said and
            "8 requests" in said and "started 3 times" in said, said)


def tampering(folder):
    with open(os.path.join(folder, "witness.jsonl"), "rb") as f:
        good = f.read()
    lines = good.split(b"\n")[:-1]
    forged = lines[3].replace(b'"status":400', b'"status":200')
    ways = {"a changed line": (lines[:3] + [forged] + lines[4:], ":5:"),
            "a removed line": (lines[:3] + lines[4:], ":4:"),
            "a line twice": (lines[:4] + lines[3:], ":5:"),
            "lines in another order": (lines[:2] + [lines[3], lines[2]] + lines[4:], ":3:"),
            "a removed beginning": (lines[1:], ":1:"),
            "a line that is no record": (lines[:2] + [b"x"] + lines[2:], ":4:")}
    for name, (changed, where) in ways.items():
        with open(os.path.join(folder, "witness.jsonl"), "wb") as f:
            f.write(b"\n".join(changed) + b"\n")
        status, said = verify(folder)
        verdict(f"{name} is found", status == 1 and where in said, said)
    with open(os.path.join(folder, "witness.jsonl"), "wb") as f:
        f.write(b"\n".join(lines[:-2]) + b"\n")
    verdict("a removed end is found by who knows the head", verify(folder)[0] == 0 and
            verify(folder, "--head", sha(lines[-1]))[0] == 1)
    verdict("no log is an error", verify(folder + "/none")[0] == 1)


def contents(folder):
    with Server("--witness", folder, "--witness-contents") as s:
        s.post("/v1/chat/completions", CHAT)
        s.post("/tokenize", {"content": "x"})
    files = sorted(os.listdir(os.path.join(folder, "contents")))
    with open(os.path.join(folder, "contents", files[0]), "rb") as f:
        verdict("contents are kept where that is wished", files == [
            f"{n:012}.{side}" for n in (2, 3) for side in ("in", "out")] and
                json.loads(f.read()) == CHAT, files)
    status, said = verify(folder)
    verdict("and checked", status == 0 and "4 contents are there, 0 were deleted" in said, said)
    os.remove(os.path.join(folder, "contents", files[0]))
    status, said = verify(folder)
    verdict("they may be deleted", status == 0 and "3 contents are there, 1 were deleted" in said,
            said)
    with open(os.path.join(folder, "contents", files[3]), "ab") as f:
        f.write(b" ")
    status, said = verify(folder)
    verdict("but not changed", status == 1 and files[3] in said, said)


with tempfile.TemporaryDirectory() as top:
    place = os.path.join(top, "log")
    records(place)
    goes_on(place)
    shutil.copytree(place, place + "2")
    tampering(place + "2")
    contents(os.path.join(top, "whole"))
finish()
