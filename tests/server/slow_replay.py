#!/usr/bin/env python3
"""`ruvllm witness replay`: what was taught over HTTP is what the model has learned, its generations
come out of the log again bit for bit, and whatever differs is told. Prints TAP."""
import os
import shutil
import subprocess
import tempfile

from serving import MODEL, PROGRAM, Server, finish, verdict


def run(state, *arguments):
    r = subprocess.run([PROGRAM, *arguments], capture_output=True, stdin=subprocess.DEVNULL,
                       check=False, env={**os.environ, "RUVLLM_STATE_DIR": state})
    return r.returncode, (r.stdout + r.stderr).decode()


def teach(s, question, answer):
    r = s.chat(question)
    return s.post("/v1/feedback", {"response_id": r["id"], "correction": answer})[2]


def say_everything(log, state):
    with Server("--witness", log, "--witness-contents", state=state) as s:
        for i in range(3):
            teach(s, f"Who is Zorp {i}?", f"A cat number {i}.")
        teach(s, "Who is Blim?", "A dog.")
        s.post("/v1/learning/forget", {"text": "Blim"})
        r = s.chat("Hello")
        s.post("/v1/feedback", {"response_id": r["id"], "rating": -1})
        s.post("/v1/feedback", {"response_id": r["id"], "score": 0.25})
        s.post("/v1/learning/undo", {})
        s.post("/v1/feedback", {"response_id": r["id"], "preferred": "Good morning."})
        s.post("/v1/feedback", {"response_id": s.chat("Good evening")["id"], "rating": 1})


with tempfile.TemporaryDirectory() as top:
    witness, kept = os.path.join(top, "log"), os.path.join(top, "state")
    say_everything(witness, kept)
    code, said = run(kept, "learn", "run", "-m", MODEL)
    verdict("a generation is trained", code == 0 and "generation 1" in said, said)
    code, said = run(kept, "witness", "replay", witness, MODEL)
    verdict("what was taught is there as it was said",
            code == 0 and "10 things were taught" in said, said)
    verdict("the generation comes out again, bit for bit", "1 generations were made again" in said
            and "the same bit for bit" in said, said)

    other = os.path.join(top, "other")
    with Server(state=other) as server:
        teach(server, "Who is Zorp 0?", "A bird.")
    code, said = run(other, "witness", "replay", witness, MODEL)
    verdict("another lesson in its place is told", code == 1 and "otherwise" in said, said)
    code, said = run(os.path.join(top, "none"), "witness", "replay", witness, MODEL)
    verdict("and so is a state that is not there", code == 1, said)

    run(kept, "teach", MODEL, "-q", "Who is Krell?", "-a", "A fish.")
    contents = os.path.join(witness, "contents")
    for name in sorted(os.listdir(contents))[:4]:
        os.remove(os.path.join(contents, name))
    code, said = run(kept, "witness", "replay", witness, MODEL)
    verdict("lessons from elsewhere and deleted contents are counted", code == 0 and
            "came another way" in said and "contents of 1 were deleted" in said, said)
    shutil.rmtree(contents)
    verdict("without contents nothing is compared",
            "0 things were taught" in run(kept, "witness", "replay", witness, MODEL)[1])
finish()
