#!/usr/bin/env python3
"""`ruvllm serve --llama-compatible`: llama-server's paths, its settings and timings, its names in
/metrics; without the option there is nothing of it. llama.cpp's own tests of its server run by
bench/llama_server/run. Prints TAP."""
import re

from serving import Server, finish, verdict, without_encoder

without_encoder()
ASK = {"prompt": "Once upon a time", "n_predict": 6, "temperature": 0, "ignore_eos": True}


def completion(s):
    r = s.post("/completion", ASK)[2]
    verdict("an answer has its settings and timings", r["content"] and r["stop"] and
            r["stop_type"] == "limit" and r["tokens_predicted"] == 6 == r["timings"]["predicted_n"]
            and r["generation_settings"]["n_predict"] == 6 and r["tokens"] == [], r)
    verdict("tokens that may not end it are among the biases", all(
        b["bias"] is None for b in r["generation_settings"]["logit_bias"]) and
        r["generation_settings"]["logit_bias"], r["generation_settings"])
    same = s.post("/v1/completions", {"prompt": ASK["prompt"], "max_tokens": 6,
                                      "temperature": 0, "ignore_eos": True})
    verdict("it says what OpenAI's dialect says",
            same[2]["choices"][0]["text"] == r["content"], (r, same))
    events = s.stream("/completion", {**ASK, "timings_per_token": True, "return_progress": True})[0]
    verdict("streamed too", "".join(e["content"] for e in events) == r["content"] and
            [e["stop"] for e in events] == [False] * (len(events) - 1) + [True] and
            events[0]["prompt_progress"]["processed"] == events[0]["prompt_progress"]["cache"] and
            any(e.get("prompt_progress", {}).get("processed") == r["tokens_evaluated"]
                for e in events), events)
    again = s.post("/completion", {**ASK, "return_tokens": True})[2]
    t = again["timings"]
    verdict("what was computed before is counted apart, to the token", len(again["tokens"]) == 6 and
            t["prompt_n"] == 1 and t["prompt_n"] + t["cache_n"] == r["tokens_evaluated"], again)
    ids = s.post("/tokenize", {"content": ASK["prompt"], "add_special": True})[2]["tokens"]
    forms = [ids, {"prompt_string": ASK["prompt"]}, [ids[0], *ids[1:]]]
    got = s.post("/completion", {**ASK, "prompt": forms})[2]
    verdict("a prompt has several forms, and may be a list of them",
            [x["content"] for x in got] == [r["content"]] * 3, got)
    got = s.post("/completion", {**ASK, "response_fields": ["content", "timings/predicted_n"]})[2]
    verdict("fields may be chosen", got == {"content": r["content"], "timings/predicted_n": 6}, got)
    first = again["tokens"][0]
    for bias in ([[first, False]], {str(first): -100}):
        got = s.post("/completion", {**ASK, "logit_bias": bias, "return_tokens": True})[2]
        verdict("a token may be forbidden", first not in got["tokens"][:1], got)
    got = s.post("/completion", {**ASK, "n_probs": 3})[2]["completion_probabilities"]
    verdict("probabilities", len(got) == 6 and all(len(x["top_logprobs"]) == 3 and
                                                   x["id"] == y for x, y in
                                                   zip(got, again["tokens"])), got)
    for name, body in (("no prompt", {}), ("a picture", {"prompt": {
            "prompt_string": "x", "multimodal_data": "y"}}), ("a bias that is none", {
                **ASK, "logit_bias": [["a"]]}), ("what cannot be had", {
                    **ASK, "post_sampling_probs": True})):
        status, _, error = s.post("/completion", body)
        verdict(f"{name} is 400", status == 400 and error["error"]["message"], error)
    status, _, error = s.post("/completion", {**ASK, "prompt": "word " * 2000})
    verdict("a prompt that is too long has llama-server's words", status == 400 and
            error["error"]["type"] == "exceed_context_size_error" and
            "exceeds the available context size" in error["error"]["message"], error)


def blanks(s):
    """A blank before the first word belongs to what goes on, not to what begins."""
    word = s.post("/tokenize", {"content": "a t"})[2]["tokens"][1]
    forced = {"logit_bias": {str(word): 100}, "temperature": 0}
    got = s.post("/completion", {**ASK, **forced, "n_predict": 1})[2]
    verdict("a completion keeps the blank that it begins with", got["content"] == " t", got)
    got = s.post("/v1/completions", {"prompt": ASK["prompt"], "max_tokens": 1, **forced})[2]
    verdict("so it does in OpenAI's dialect", got["choices"][0]["text"] == " t", got)
    talk = [{"role": "user", "content": "Hello"}]
    texts = [s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **forced})[2]
             ["choices"][0]["message"]["content"]
             for messages in (talk, talk + [{"role": "assistant", "content": "Well"}])]
    verdict("an answer leaves it out, unless it was begun", texts == ["t", " t"], texts)


def chats(s):
    talk = [{"role": "user", "content": "Hello"}]
    r = s.post("/v1/chat/completions", {"messages": talk, "max_tokens": 4, "verbose": True})[2]
    verdict("a chat has timings, and the prompt where it is asked for",
            r["timings"]["predicted_n"] and "Hello" in r["__verbose"]["prompt"] and
            r["system_fingerprint"].startswith("b") and r["model"] == "tiny", r)
    begun = talk + [{"role": "assistant", "content": "Well,"}]
    r = s.post("/v1/chat/completions", {"messages": begun, "max_tokens": 4, "verbose": True})[2]
    verdict("a last message of the assistant is continued",
            r["__verbose"]["prompt"].endswith("Well,"), r)
    n = s.post("/v1/chat/completions/input_tokens", {"messages": talk})[2]["input_tokens"]
    verdict("its tokens are counted", n > 3, n)


def figures(s):
    p = s.ask("GET", "/props")[2]
    verdict("/props", p["total_slots"] == 2 and p["model_path"].endswith(".gguf") and
            p["default_generation_settings"]["params"]["seed"] == 7, p)
    slots = s.ask("GET", "/slots")[2]
    verdict("/slots", [x["is_processing"] for x in slots] == [False, False], slots)
    status, headers, text = s.ask("GET", "/metrics")
    values = dict(re.findall(r"(?m)^llamacpp:(\S+) (\S+)$", text.decode()))
    verdict("/metrics", status == 200 and headers["Process-Start-Time-Unix"] and
            float(values["tokens_predicted_total"]) > 20 and
            float(values["prompt_tokens_cached_total"]) > 0, values)
    models = s.ask("GET", "/v1/models")[2]["data"][0]
    verdict("names and tags", (models["id"], models["aliases"], models["tags"]) ==
            ("tiny", ["tiny", "small"], ["a", "b"]), models)
    got = s.post("/embeddings", {"input": "Hello"})[2]
    verdict("/embeddings without /v1 has its own shape", got[0]["index"] == 0 and
            isinstance(got[0]["embedding"][0][0], float), str(got)[:200])


def without(s):
    verdict("slots and metrics are off unless they are named",
            [s.ask("GET", x)[0] for x in ("/slots", "/metrics", "/")] == [501, 501, 404])


with Server("--ctx", "512", "--parallel", "2", "--alias", "tiny,small", "--llama-compatible",
            "seed=7 temp=0 n-predict=16 slots metrics tags=a,b") as s:
    completion(s)
    blanks(s)
    chats(s)
    figures(s)
with Server("--llama-compatible", "no-ui") as s:
    without(s)
with Server("--alias", "tiny,small") as s:
    verdict("without the option there is nothing of it", [
        s.ask("GET", "/props")[0], s.post("/completion", ASK)[0]] == [404, 404])
    ask = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    got = [s.post("/v1/chat/completions", {**ask, "model": x}) for x in ("tiny", "small", "big")]
    verdict("a name of --alias is the model's, and is said again",
            [(x[0], x[2].get("model")) for x in got] ==
            [(200, "tiny"), (200, "small"), (404, None)], got)
    r = s.post("/v1/chat/completions", {**ask, "continue_final_message": True})
    verdict("only the assistant's message is continued", r[0] == 400, r)
verdict("the server ended well", s.status == 0)
finish()
