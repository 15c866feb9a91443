#!/usr/bin/env python3
"""More answers than `ruvllm serve` has room for: the ways that change none, those that do, and
what is said of it. Prints TAP."""
import os
import tempfile

from serving import Server, finish, verdict, without_encoder

without_encoder()
# The tiny model has room for 16,384 tokens: so many answers of nearly its whole context do not fit.
BODY = {"prompt": "the tea", "n": 76, "max_tokens": 230, "temperature": 1, "seed": 5,
        "ignore_eos": True}


def answers(s, **more):
    status, _, told = s.post("/v1/completions", {**BODY, **more})
    return status, told, [c["text"] for c in told.get("choices", [])]


def rooms(tmp):
    spill = os.path.join(tmp, "spill")
    with Server("--parallel", "16") as s:
        wanted = answers(s)[2]
        verdict("with room for all nobody loses any", s.metric("num_preemptions") == 0)
    with Server("--parallel", "128", "--pressure", "spill", "--spill", spill) as s:
        status, told, got = answers(s)
        verdict("without it they are the same, those too that were written to disk",
                got == wanted and "forgotten_tokens" not in told, status)
        verdict("which is counted", s.metric("spilled_requests_total") > 0 and
                s.metric("spilled_bytes") == 0 and s.metric("spill_failures_total") == 0)
    verdict("each model has a folder, where nothing is left",
            [os.listdir(os.path.join(spill, d)) for d in os.listdir(spill)] == [[]])
    with Server("--parallel", "128", "--spill", spill, "--spill-room", "1K") as s:
        verdict("and where it finds no room", answers(s)[2] == wanted and
                s.metric("spilled_requests_total") == 0)
    with Server("--parallel", "128", "--pressure", "reject") as s:
        status, told, _ = answers(s)
        verdict("who is rejected is told so", (status, told["error"]["code"]) ==
                (429, "queue_full"), told)
        verdict("others are answered", s.chat("the tea")["choices"])
    with Server("--parallel", "128", "--pressure", "evict") as s:
        _, told, got = answers(s)
        verdict("answers that forget say so", len(got) == BODY["n"] and got != wanted and
                told["forgotten_tokens"] == s.metric("forgotten_tokens_total") > 0, told)
    with Server("--parallel", "128", "--pressure", "quantize", "--kv", "tiered") as s:
        told = answers(s, n=128, max_tokens=246)[1]  # pages have 8 bits from the beginning
        verdict("and those that read in 4 bits", told.get("coarse") is True and
                s.metric("coarse_answers_total") > 0, told)


with tempfile.TemporaryDirectory() as folder:
    rooms(folder)
finish()
