#!/usr/bin/env python3
"""A server whose GPU is lost while it answers: the request and those after it get an error that
says so, and the server lives. On the driver of fake_driver.cpp, in the program of slow_device.sh.
Prints TAP."""
import os
import sys

FOLDER = os.path.join(os.environ.get("BUILD", "build"), "tests/cuda")
if not os.path.exists(FOLDER + "/ruvllm"):
    print(f"1..0 # SKIP {FOLDER}/ruvllm is not built")
    sys.exit()
os.environ["RUVLLM"] = FOLDER + "/ruvllm"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from serving import Server, finish, verdict, without_encoder  # noqa: E402

without_encoder()
OPTIONS = ["--device", "cuda", "-t", "1", "--ctx", "64", "--no-learning"]
SAYS = "the CUDA device failed and is not used any more: "
BODY = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 6}
os.environ["LD_LIBRARY_PATH"] = FOLDER
LAUNCHES = 400  # of kernels before one fails: in an answer, not in the first


def message(body):
    return body.get("error", {}).get("message", "") if isinstance(body, dict) else str(body)


with Server(*OPTIONS, cache={"FAKE_FAIL_AFTER": str(LAUNCHES)}) as s:
    answers = [s.post("/v1/chat/completions", BODY) for _ in range(8)]
    good = [status == 200 for status, _, _ in answers]
    first = good.index(False) if False in good else len(good)
    verdict("an answer before it is lost", first > 0, answers[0])
    verdict("every answer after that is an error", 0 < first < 6 and True not in good[first:], good)
    failed = [(status, message(body)) for status, _, body in answers[first:]]
    verdict("which says that the device failed",
            all(SAYS in text and "ILLEGAL_ADDRESS" in text for _, text in failed), failed)
    verdict("and is the server's fault", all(status >= 500 for status, _ in failed), failed)
    events, done = s.stream("/v1/chat/completions", BODY)
    verdict("a stream says it too", any(SAYS in message(e) for e in events), events)
    status, _, body = s.ask("GET", "/health")
    verdict("its health says so", status == 503 and SAYS in message(body), (status, body))
    verdict("the server lives", s.process.poll() is None and s.ask("GET", "/v1/models")[0] == 200)
verdict("and ends when it is told to", s.status == 0, (s.status, s.rest))
verdict("having said why once", s.rest.count("ruvllm: error: ") == 1, s.rest)
finish()
