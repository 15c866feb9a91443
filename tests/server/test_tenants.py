#!/usr/bin/env python3
"""What tenants teach `ruvllm serve`: state of their own, for all, or none; nothing crosses. More
tenants than are open at a time; undo, forget, rollback and export by HTTP. Prints TAP."""
import concurrent.futures
import hashlib
import os
import tempfile

from serving import Server, finish, program, verdict, without_encoder

ENCODER = without_encoder()
QUESTION = "What is Kakovin's dog?"
MANY = int(os.environ.get("TENANTS", "70"))  # more than the server has open at a time


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def ask(s, key, text=QUESTION):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12}
    return s.post("/v1/chat/completions", body, bearer(key))[2]


def said(s, key, text=QUESTION):
    return ask(s, key, text)["choices"][0]["message"]["content"]


def teach(s, key, answer):
    return s.post("/v1/feedback", {"response_id": ask(s, key)["id"], "correction": answer},
                  bearer(key))


def crosses(s, keys):
    plain = said(s, keys["ann"])
    verdict("nothing is taught at first", all(said(s, k) == plain for k in keys.values()))
    status, _, told = teach(s, keys["ann"], "chess")
    verdict("a tenant teaches", status == 200 and told["applied"] and
            told["learned_version"] == 1, told)
    verdict("and is answered so, also by its second key",
            (said(s, keys["ann"]), said(s, keys["ann2"])) == ("chess", "chess"))
    verdict("others are not", all(said(s, keys[k]) == plain for k in ("bob", "all", "off")))
    teach(s, keys["bob"], "a lamp")
    teach(s, keys["all"], "the sea")
    got = {k: said(s, keys[k]) for k in ("ann", "bob", "all", "off")}
    verdict("each has its own", got == {"ann": "chess", "bob": "a lamp", "all": "the sea",
                                        "off": plain}, got)
    status, _, told = teach(s, keys["off"], "x")
    verdict("who has none cannot teach", (status, told["error"]["code"]) == (501, "learning_off"),
            told)
    lessons = {k: [x["answer"] for x in s.ask("GET", "/v1/learning", headers=bearer(keys[k]))[2]
                   ["learned"]] for k in ("ann", "bob", "all")}
    verdict("and its own lessons", lessons == {"ann": ["chess"], "bob": ["a lamp"],
                                               "all": ["the sea"]}, lessons)
    first = ask(s, keys["ann"])
    got = s.post("/v1/feedback", {"response_id": first["id"], "correction": "x"},
                 bearer(keys["bob"]))
    verdict("an answer is judged by whom it was given to", got[0] == 404, got)
    return plain


def changes(s, keys, plain):
    def post(name, key, **body):
        return s.post(f"/v1/learning/{name}", body, bearer(keys[key]))

    status, _, told = post("undo", "ann")
    verdict("undo takes the last back", status == 200 and told["applied"] and
            said(s, keys["ann"]) == plain, told)
    teach(s, keys["ann"], "a kite")
    status, _, told = post("forget", "ann", text="kite")
    verdict("forget removes what has a text in it", status == 200 and told["applied"] and
            said(s, keys["ann"]) == plain, told)
    verdict("nobody else forgets", said(s, keys["bob"]) == "a lamp")
    for name, body in (("undo", {}), ("forget", {"text": "sea"}), ("rollback", {"generation": 0}),
                       ("export", {})):
        status, _, told = post(name, "all", **body)
        verdict(f"{name} of what is for all needs the scope admin",
                (status, told["error"]["code"]) == (403, "insufficient_scope"), told)
    for name, body in (("rollback", {}), ("rollback", {"generation": "x"}), ("forget", {}),
                       ("forget", {"text": ""})):
        got = post(name, "ann", **body)
        verdict(f"{name} {body} is refused", got[0] == 400, got)
    for name, body in (("rollback", {"generation": 99}), ("export", {})):
        got = post(name, "ann", **body)
        verdict(f"{name} of what was not trained is not found", got[0] == 404, got)


def crowd(s, path):
    keys = [f"key of {i}" for i in range(MANY)]
    with open(path, "a", encoding="utf-8") as f:
        for i, key in enumerate(keys):
            digest = hashlib.sha256(key.encode()).hexdigest()
            f.write(f"t{i} {digest} infer,teach learning=tenant\n")
    s.hangup(keys[-1])
    teach(s, keys[0], "chess")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda k: said(s, k), keys[1:]))
    verdict(f"{MANY} tenants, one lesson", len(set(answers)) == 1 and answers[0] != "chess",
            set(answers))
    verdict("whose tenant has it again when it is opened again", said(s, keys[0]) == "chess")


class Keyed(Server):
    def hangup(self, key):
        """Until a new key counts."""
        self.process.send_signal(1)
        while self.ask("GET", "/v1/models", headers=bearer(key))[0] == 401:
            pass


with tempfile.TemporaryDirectory() as tmp:
    file = os.path.join(tmp, "keys")
    made = {name: program("key", file, name.rstrip("2"), "--learning", kind).strip()
            for name, kind in (("ann", "tenant"), ("ann2", "tenant"), ("bob", "tenant"),
                               ("all", "shared"), ("off", "off"))}
    state = os.path.join(tmp, "state")
    with Keyed("--keys", file, state=state, cache=ENCODER) as server:
        bare = crosses(server, made)
        changes(server, made, bare)
    with Keyed("--keys", file, state=state) as server:
        again = [said(server, made[k]) for k in ("ann", "bob", "all")]
        verdict("what was taught outlives the server", again == [bare, "a lamp", "the sea"], again)
        crowd(server, file)
    verdict("it ends well", (server.status, server.rest) == (0, ""), (server.status, server.rest))
finish()
