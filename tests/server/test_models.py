#!/usr/bin/env python3
"""`ruvllm serve` with several models: names, errors, what is loaded, learned state, adapters and
presets by model, one at a time under a limit, many clients at once. Prints TAP."""
import concurrent.futures
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from peft import write_adapter
from serving import MODEL, PROGRAM, SLOW, Server, finish, program, verdict, without_encoder

ENCODER = without_encoder()
VECTORS = "tests/gguf/bert.gguf"
ASK = [{"role": "user", "content": "Hello"}]


def other_weights(folder):
    """The test model with other numbers in its last tensor: another model of the same shape."""
    path = os.path.join(folder, "other.gguf")
    shutil.copy(MODEL, path)
    with open(path, "r+b") as f:
        f.seek(-4096, os.SEEK_END)
        block = f.read()
        f.seek(-4096, os.SEEK_END)
        f.write(b"".join(block[i:i + 4] for i in reversed(range(0, len(block), 4))))
    return path


def states(s):
    return {m["id"]: m["status"]["value"] for m in s.ask("GET", "/v1/models")[2]["data"]
            if "status" in m}


def text(s, model, **more):
    r = s.chat("Hello", model=model, **more)
    return r["choices"][0]["message"]["content"] if "choices" in r else r


def lists(s):
    verdict("the first is loaded, the others are not",
            states(s) == {"a": "loaded", "b": "unloaded", "e": "unloaded"}, states(s))
    tags = s.ask("GET", "/api/tags")[2]["models"]
    verdict("Ollama's list has all", [m["name"] for m in tags] == ["a", "b", "e"] and
            all(m["size"] > 0 for m in tags), tags)
    running = s.ask("GET", "/api/ps")[2]["models"]
    verdict("and says which are loaded", [m["name"] for m in running] == ["a"], running)
    verdict("one by its name", s.ask("GET", "/v1/models/b")[2]["id"] == "b" and
            s.ask("GET", "/v1/models/zz")[0] == 404)
    header = {"anthropic-version": "2023-06-01"}
    r = s.ask("GET", "/v1/models", headers=header)[2]
    verdict("Anthropic's clients find what they look for", r["has_more"] is False and
            [(m["type"], m["display_name"]) for m in r["data"]] ==
            [("model", x) for x in "abe"] and r["data"][0]["created_at"].startswith("20"), r)
    for path in ("/v1/models/zz", "/v1/files"):
        status, headers, r = s.ask("GET", path, headers=header)
        verdict(f"and errors in their shape: {path}", status == 404 and headers["request-id"] and
                r["type"] == "error" and r["error"]["type"] == "not_found_error", r)


def unknown(s):
    chat = {"model": "zz", "messages": ASK, "max_tokens": 2}
    status, _, r = s.post("/v1/chat/completions", chat)
    verdict("OpenAI: an unknown model is 404", status == 404 and r["error"]["code"] ==
            "model_not_found" and "'a', 'b', 'e'" in r["error"]["message"], r)
    status, _, r = s.post("/v1/messages", chat)
    verdict("Anthropic: the same", status == 404 and r["type"] == "error" and
            r["error"]["type"] == "not_found_error", r)
    status, _, r = s.post("/api/chat", chat)
    verdict("Ollama: the same", status == 404 and isinstance(r["error"], str), r)
    verdict("a body that is no JSON is 400", s.post("/v1/chat/completions", "{")[0] == 400)
    verdict("nothing was loaded for that", states(s)["b"] == "unloaded")


def answers(s, other):
    want = [program("run", m, "Hello", "--temp", "0", "-n", "12", "--no-learn", "--repeat-penalty",
                    "1").strip()
            for m in (MODEL, other)]
    verdict("the two differ", want[0] != want[1], want)
    verdict("each model gives its own answer", [text(s, m).strip() for m in "ab"] == want, want)
    verdict("without a name the first does", s.post("/v1/chat/completions", {
        "messages": ASK, "temperature": 0, "max_tokens": 12})[2]["model"] == "a")
    verdict("it is loaded now", states(s)["b"] == "loaded", states(s))
    status, _, r = s.post("/v1/chat/completions", {"model": "e", "messages": ASK})
    verdict("one for vectors writes no text, and says so", status == 400 and "'e' makes embeddings"
            in r["error"]["message"], r)
    r = s.post("/v1/embeddings", {"model": "e", "input": "x"})[2]
    verdict("a model for vectors beside them", len(r["data"][0]["embedding"]) > 0, r)
    r = s.post("/tokenize", {"model": "e", "content": "Hello"})[2]
    mine = s.post("/tokenize", {"content": "Hello"})[2]
    verdict("tokens are those of the model that is named", r["tokens"] != mine["tokens"], r)
    shown = s.post("/api/show", {"model": "e"})[2]
    verdict("and so is what is shown", shown["capabilities"] == ["embedding"], shown)
    metrics = s.ask("GET", "/metrics")[2].decode()
    verdict("figures have the model's name", 'ruvllm_request_success_total{model="b"} 1' in metrics
            and metrics.count("# TYPE ruvllm_steps_total") == 1, metrics)
    return want


def learned(s):
    """What is taught to one is not known to the other."""
    r = s.chat("Who is Zorp?", model="b")
    told = s.post("/v1/feedback", {"response_id": r["id"], "correction": "A cat."})
    verdict("an answer of the second is corrected", told[0] == 200 and told[2]["applied"], told)
    got = [s.chat("Who is Zorp?", model=m)["choices"][0]["message"]["content"] for m in "ab"]
    verdict("only that one has learned it", got[1] == "A cat." != got[0], got)
    counts = [s.ask("GET", "/v1/learning?model=" + m)[2]["lessons"] for m in ("a", "%62")]
    verdict("and says so", counts == [0, 1], counts)


def one_at_a_time(s, want):
    """Under a limit models come and go; no answer changes, nobody waits for ever."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: text(s, "ab"[i % 2]).strip(), range(24)))
    verdict("24 requests at once, one model at a time", got == want * 12, got)
    loaded = [m for m, state in states(s).items() if state == "loaded"]
    verdict("one is loaded", len(loaded) == 1, states(s))
    s.post("/v1/embeddings", {"model": "e", "input": "x"})
    verdict("the least recently used has gone", states(s)["e"] == "loaded" and
            list(states(s).values()).count("loaded") == 1, states(s))
    verdict("what was learned is there again",
            s.chat("Who is Zorp?", model="b")["choices"][0]["message"]["content"] == "A cat.")


def flood(s, stop, answered):
    """Keeps a model busy: answers that overlap, one after the other."""
    def one(_):
        while not stop.is_set():
            r = s.chat("Hello", model="a", max_tokens=99, ignore_eos=True, n=16)
            answered.append("choices" in r or r)
    pool = concurrent.futures.ThreadPoolExecutor(8)
    for i in range(4):
        pool.submit(one, i)
    return pool


def crowded(s, want):
    """Steady traffic for one model keeps no other out, nor does it end itself."""
    stop, answered = threading.Event(), []
    pool = flood(s, stop, answered)
    try:
        while len(answered) < 4:
            time.sleep(0.01)
        got = []
        for _ in range(2):
            r = s.chat("Hello", model="b", timeout=20)
            before = len(answered)
            got.append(r["choices"][0]["message"]["content"].strip() if "choices" in r else r)
            begun = time.monotonic()
            while len(answered) < before + 4 and time.monotonic() - begun < 60:
                time.sleep(0.01)
            got.append(len(answered) - before >= 4)
        verdict("beside a busy model another one answers", got == [want[1], True] * 2, got)
        c = http.client.HTTPConnection("127.0.0.1", s.port)
        c.request("POST", "/v1/chat/completions", json.dumps({"model": "b", "messages": ASK}))
        time.sleep(0.05)
        c.close()
        before = len(answered)
        r = s.chat("Hello", model="b", timeout=20)
        verdict("and when a client has left while it waited", "choices" in r and
                r["choices"][0]["message"]["content"].strip() == want[1], r)
    finally:
        stop.set()
        pool.shutdown()
    verdict("no answer of the busy one suffered", set(answered) == {True}, answered)


def ends(s):
    """The server is told to end while requests for another model wait."""
    stop, answered = threading.Event(), []
    pool = flood(s, stop, answered)
    while len(answered) < 4:
        time.sleep(0.01)
    waiting = [pool.submit(s.chat, "Hello", model="b") for _ in range(2)]
    time.sleep(0.05)
    stop.set()
    s.process.send_signal(signal.SIGTERM)
    pool.shutdown()
    s.process.wait(SLOW)
    verdict("the end comes while requests wait for a model", s.process.returncode == 0)
    verdict("who waited is answered, or refused", all(
        one.exception() or one.result().keys() & {"choices", "error"} for one in waiting), waiting)


def no_time(s):
    """The model that is to make room has much to do: who waits only so long is told when."""
    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        others = [pool.submit(s.chat, "Hello", model="a", max_tokens=99, ignore_eos=True, n=16)
                  for _ in range(80)]
        while states(s)["a"] != "loaded":
            time.sleep(0.01)
        time.sleep(0.2)
        begun = time.monotonic()
        status, _, r = s.post("/v1/chat/completions",
                              {"model": "b", "messages": ASK, "timeout": 0.5})
        took, left = time.monotonic() - begun, sum(not one.done() for one in others)
        verdict("a timeout counts while a model is waited for",
                status == 504 and r["error"]["code"] == "timeout" and left, (status, r, left))
        verdict("not much longer", 0.5 <= took < 5, took)
        said = [one.result() for one in others]
    verdict("the others are answered", all("choices" in r for r in said), said)


def parts(s, want):
    """Adapters and presets name their model."""
    a, b, with_one = text(s, "a"), text(s, "b"), text(s, "b:one")
    verdict("an adapter of the second", with_one not in (a, b) and b.strip() == want[1], with_one)
    verdict("is none of the first", s.chat("Hello", model="a:one").get("error") and
            s.chat("Hello", model="one").get("error"))
    verdict("a preset has a model", text(s, "second").strip() == want[1])
    listed = {m["id"]: m.get("parent") for m in s.ask("GET", "/v1/models")[2]["data"]}
    verdict("they are listed with it", listed.get("b:one") == "b" and listed["second"] == "b",
            listed)
    shown = s.ask("GET", "/lora-adapters")[2]
    verdict("and so are adapters alone", [(x["name"], x["model"]) for x in shown] ==
            [("one", "b")], shown)


def gone(s, other, want):
    """A model whose file has gone; the other does not mind."""
    os.remove(other)
    r = s.post("/v1/chat/completions", {"model": "b", "messages": ASK})
    verdict("a file that has gone is told, and not where it was", r[0] == 500 and
            r[2]["error"]["code"] == "model_not_loaded" and "other.gguf: cannot open" in
            r[2]["error"]["message"] and "/" not in r[2]["error"]["message"], r)
    verdict("and the others go on", text(s, "a").strip() == want[0])


def idle(s, want):
    begun = time.monotonic()
    while states(s)["a"] == "loaded" and time.monotonic() - begun < 60:
        time.sleep(0.1)
    verdict("nobody asks: it is unloaded", states(s)["a"] == "unloaded" and
            not s.ask("GET", "/api/ps")[2]["models"], states(s))
    verdict("and comes again", text(s, "a").strip() == want[0] and
            s.ask("GET", "/health")[0] == 200)


def asked_to_go(s, want):
    r = s.post("/api/generate", {"model": "a", "keep_alive": 0})[2]
    verdict("Ollama's keep_alive 0 is an end", r["done_reason"] == "unload", r)
    begun = time.monotonic()
    while s.ask("GET", "/api/ps")[2]["models"] and time.monotonic() - begun < 60:
        time.sleep(0.05)
    verdict("the model goes", states(s)["a"] == "unloaded", states(s))
    r = s.post("/api/chat", {"model": "a", "messages": ASK, "keep_alive": "0s", "stream": False,
                             "options": {"temperature": 0, "num_predict": 12}})[2]
    verdict("and comes for a request that sends it away again",
            r["message"]["content"].strip() == want[0], r)


def usage(*arguments):
    r = subprocess.run([PROGRAM, "serve", *arguments, "--port", "0"], capture_output=True,
                       stdin=subprocess.DEVNULL, check=False)
    return r.returncode, r.stderr.decode()


with tempfile.TemporaryDirectory() as folder:
    second = other_weights(folder)
    both = ["b=" + second, "e=" + VECTORS]
    with Server(*both, model="a=" + MODEL, cache=ENCODER) as server:
        lists(server)
        unknown(server)
        texts = answers(server, second)
        learned(server)
        state = os.path.join(folder, "state")
        shutil.copytree(server.state.name, state)
    verdict("it ended well", server.status == 0, server.rest)
    with Server(*both, "--max-loaded", "1", model="a=" + MODEL, state=state,
                cache=ENCODER) as server:
        one_at_a_time(server, texts)
        crowded(server, texts)
        ends(server)
    verdict("and so did this", server.status == 0, server.rest)
    with Server("b=" + second, "--max-loaded", "1", "--parallel", "1",
                model="a=" + MODEL) as server:
        no_time(server)
    write_adapter(os.path.join(folder, "adapters", "b", "one"), 1)
    os.mkdir(os.path.join(folder, "presets"))
    with open(os.path.join(folder, "presets", "second.toml"), "w", encoding="utf-8") as f:
        f.write('model = "b"\n')
    with Server(*both, "--adapters", os.path.join(folder, "adapters"), "--presets",
                os.path.join(folder, "presets"), "--max-loaded", "1", model="a=" + MODEL) as server:
        parts(server, texts)
        text(server, "a")
        gone(server, second, texts)
        asked_to_go(server, texts)
    verdict("the log has its path", second + ": cannot open" in server.rest, server.rest)
    with Server("--unload-after", "1", model="a=" + MODEL) as server:
        idle(server, texts)
    code, said = usage("a=" + MODEL, "a=" + VECTORS)
    verdict("two of one name are refused", code == 2 and "'a'" in said, said)
    code, said = usage(MODEL, "no-such-model")
    verdict("one that is not there is told at the start", code == 1 and "no-such-model" in said,
            said)
    code, said = usage(MODEL, "--max-memory", "1")
    verdict("and so is one that takes too much", code == 1 and "bytes" in said, said)
finish()
