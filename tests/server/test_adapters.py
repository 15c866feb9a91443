#!/usr/bin/env python3
"""`ruvllm serve --adapters`: requests name an adapter as their model; adapters are loaded, replaced
and removed while it runs. Prints TAP."""
import os
import tempfile
import threading

from peft import write_adapter
from serving import Server, finish, verdict, without_encoder

without_encoder()


def answer(s, model=None):
    options = {"model": model} if model else {}
    return s.chat("Hello there", max_tokens=24, **options)


def text(reply):
    return reply["choices"][0]["message"]["content"]


def names(s):
    plain = answer(s)
    one, other = answer(s, "one"), answer(s, "two")
    verdict("an adapter changes the answer", len({text(plain), text(one), text(other)}) == 3)
    base = s.ask("GET", "/v1/models")[2]["data"][0]["id"]
    verdict("MODEL:NAME is the same", text(answer(s, base + ":one")) == text(one))
    verdict("the answer names what was asked for",
            [answer(s, x)["model"] for x in (base, "one", base + ":two")] ==
            [base, "one", base + ":two"])
    verdict("MODEL alone is without it", text(answer(s, base)) == text(plain))
    models = {m["id"]: m for m in s.ask("GET", "/v1/models")[2]["data"]}
    verdict("the list has all of them", set(models) == {base, "one", "two", "wide"})
    verdict("and says of which model they are", models["one"]["parent"] == base)
    status, _, error = s.post("/v1/chat/completions", {"model": "three", "messages": [
        {"role": "user", "content": "Hello"}]})
    verdict("a name that is not there is 404",
            status == 404 and error["error"]["code"] == "model_not_found")
    texts = {}
    threads = [threading.Thread(target=lambda i=i: texts.update(
        {i: text(answer(s, ("one", "two", None)[i % 3]))})) for i in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    want = [text(one), text(other), text(plain)]
    verdict("beside each other each has its own", [texts[i] for i in range(9)] == 3 * want)
    return text(one), text(other)


def changes(s, folder, one, two):
    def load(**body):
        status, _, reply = s.post("/v1/load_lora_adapter", body)
        return status, reply
    verdict("another name for a file", load(lora_name="three", lora_path="two")[0] == 200 and
            text(answer(s, "three")) == two)
    verdict("a name is not replaced by accident",
            load(lora_name="three", lora_path="one")[0] == 400 and text(answer(s, "three")) == two)
    verdict("but when that is wanted",
            load(lora_name="three", lora_path=folder + "/one", load_inplace=True)[0] == 200 and
            text(answer(s, "three")) == one)
    verdict("a file elsewhere is not read",
            load(lora_name="four", lora_path="/etc/passwd")[0] == 404 and
            load(lora_name="four", lora_path="../" + os.path.basename(folder))[0] == 404 and
            load(lora_name="four", lora_path=".")[0] == 404)
    status, error = load(lora_name="four", lora_path="bad")
    verdict("nor a bad one", status == 400 and "adapter" in error["error"]["message"])
    verdict("and not where it lies", "/" not in error["error"]["message"], error)
    write_adapter(folder + "/narrow", 3, width=32)
    status, error = load(lora_name="narrow", lora_path="narrow")
    verdict("nor one that was made for another model", status == 400 and "q_proj" in
            error["error"]["message"] and "/" not in error["error"]["message"], error)
    for _ in range(2):
        error = answer(s, "wide")["error"]
        verdict("one that lay there is told to who asks for it", error["code"] == "bad_adapter" and
                error["type"] == "invalid_request_error" and "'wide'" in error["message"] and
                "/" not in error["message"], error)
    verdict("nor one without a name", load(lora_path="one")[0] == 400)
    shown = {a["name"]: a for a in s.ask("GET", "/lora-adapters")[2]}
    verdict("the list says what is ready",
            shown["one"]["state"] == "ready" and shown["three"]["generation"] > 2)
    verdict("a name goes", s.post("/v1/unload_lora_adapter", {"lora_name": "three"})[0] == 200 and
            s.post("/v1/unload_lora_adapter", {"lora_name": "three"})[0] == 404 and
            "error" in answer(s, "three"))


with tempfile.TemporaryDirectory() as folder:
    folder = os.path.realpath(folder)
    write_adapter(folder + "/one", 1)
    write_adapter(folder + "/two", 2)
    write_adapter(folder + "/wide", 3, width=64)
    with Server("--adapters", folder) as s:
        os.makedirs(folder + "/bad")
        changes(s, folder, *names(s))
    verdict("the server ended well", s.status == 0)
    with Server("--adapters", folder, "--api-key", "k") as s:
        verdict("a key is needed",
                s.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "one"})[0] == 401)
    with Server() as s:
        verdict("without --adapters there are none",
                s.ask("GET", "/lora-adapters")[2] == [] and
                s.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "one"})[0] == 400)
    with Server("--adapters", folder + "/nowhere", ready=False) as s:
        s.process.wait()
    verdict("a folder that is not there", s.status == 1 and "no such folder" in s.rest)
finish()
