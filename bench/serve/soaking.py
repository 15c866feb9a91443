"""A mixed load for minutes: requests begin at a fixed rate, whatever became of those before. Texts,
chats held to a schema, tools, embeddings, Responses that continue each other, thumbs and scores,
broken requests, clients that leave, clients that send their request in pieces; and now and then a
correction, which is trained in the background.

Before it is watched, every kind was asked once, the room for keys and values was filled, and a
first correction has been trained.

Memory is what the system says of the process (VmRSS: with the pages of the models' files and of the
program that are in memory), every ten seconds. While a correction is trained the process has more;
the server says how much that is (ruvllm_memory_training_bytes, less what is reserved and not used
yet), and gives it back at the end. So two things are held to the bar: all moments without training
among each other, and what is left in the others when that is taken off.

Times are those of every answer of the load, by a clock outside and by the server's own figures. An
answer that calls a tool shows its first token to nobody, so that it is asked for alone, and what
the server counts meanwhile is taken off."""
import asyncio
import csv
import os
import random
import statistics
import time
from xml.sax.saxutils import escape

from serving import (STYLE, TINY, WORDS, Client, completion, expect, load_average, ours, sentence)

EVERY = 10  # seconds
MIB = 2**20
FACTS = [("What is the name of the ferry to Oddavik?", "The {} Gull."),
         ("Who keeps the lighthouse of Oddavik?", "Old {} Sanna."),
         ("When does the market of Oddavik open?", "At {} o'clock.")]
VALUES = ["Seven", "Nine"]
JUDGED = 8  # answers, before what checks the adapter of scores is made
SCHEMA = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 20}},
          "required": ["town"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "find_town", "parameters": SCHEMA}}
KINDS = ["text", "text", "schema", "tools", "vectors", "leave", "slow", "broken", "ids", "judge",
         "kept"]
CLOCKS = {"first": "time_to_first_token_seconds", "whole": "e2e_request_latency_seconds"}


def name_of(a):
    """The model's among several; None: it is the only one."""
    return os.path.splitext(os.path.basename(a.model))[0] if a.vectors else None


def reported(server, a):
    """(sum, count) of each of the server's own times"""
    name = name_of(a)
    return {k: (server.metric(x + "_sum", name), server.metric(x + "_count", name))
            for k, x in CLOCKS.items()}


# ---- requests ----


class Load:
    """What was asked, and how long it took by a clock outside the server."""

    def __init__(self, a, server):
        self.a, self.server = a, server
        self.rnd = random.Random(a.seed)
        self.first, self.whole = [], []
        self.hidden = {k: [0, 0] for k in CLOCKS}  # seconds and answers that only the server sees
        self.n_timed, self.alone, self.done, self.n_taught = 0, False, 0, 0

    async def stream(self, c, path, body, n_texts=0):
        """The last event; after n_texts the client has had enough."""
        while self.alone:
            await asyncio.sleep(0.01)
        self.n_timed += 1
        try:
            got = await c.stream(path, body, n_texts)
        finally:
            self.n_timed -= 1
        self.first.append(got.first)
        if not n_texts:
            self.whole.append(got.seconds)
        return got.event

    async def tools(self, c):
        while self.alone or self.n_timed:
            await asyncio.sleep(0.01)
        self.alone = True
        before = reported(self.server, self.a)
        r = await expect(c, 200, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Find a town by the " + self.word()}],
            "tools": [TOOL], "tool_choice": "required", "max_tokens": 48})
        after = reported(self.server, self.a)
        self.alone = False
        for k, x in self.hidden.items():
            x[0] += after[k][0] - before[k][0]
            x[1] += after[k][1] - before[k][1]
        assert r["choices"][0]["message"]["tool_calls"], r

    def value(self):
        self.n_taught += 1
        return VALUES[self.n_taught % len(VALUES)]

    def word(self):
        return self.rnd.choice(WORDS)

    async def judge(self, c, correct=False):
        """An answer and what is said of it. One lesson is corrected again and again, so that what
        is learned stays the same size: each adapter takes the place of the one before."""
        question, answer = FACTS[0] if correct else self.rnd.choice(FACTS)
        event = await self.stream(c, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": question}], "max_tokens": 12, "stream": True,
            "min_tokens": 1})  # an empty answer cannot be scored
        kind = "correction" if correct else self.rnd.choice(["rating", "score"])
        await expect(c, 200, "/v1/feedback", {"response_id": event["id"], kind: {
            "rating": self.rnd.choice([1, -1]), "score": self.rnd.random(),
            "correction": answer.format(self.value())}[kind]})

    async def ask(self, kind, c):
        rnd = self.rnd
        if kind == "text":
            await self.stream(c, "/v1/completions", completion(24, sentence(rnd), stream=True))
        elif kind == "schema":
            await self.stream(c, "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Name a town by the " + self.word()}],
                "stream": True, "max_tokens": 32,
                "response_format": {"type": "json_schema",
                                    "json_schema": {"name": "town", "schema": SCHEMA}}})
        elif kind == "tools":
            await self.tools(c)
        elif kind == "vectors" and self.a.vectors:
            await expect(c, 200, "/v1/embeddings", {
                "model": self.a.vectors, "input": [sentence(rnd) for _ in range(3)]})
        elif kind == "leave":
            await self.stream(c, "/v1/completions", completion(500, sentence(rnd), stream=True), 3)
            c.close()
        elif kind == "slow":  # in pieces, over two seconds; its time begins with the last one
            c.pause = 0.2
            await self.stream(c, "/v1/completions", completion(8, sentence(rnd), stream=True))
            c.pause = 0
        elif kind == "broken":
            await expect(c, 400, "/v1/chat/completions", {"messages": "no list"})
        elif kind == "judge":
            await self.judge(c)
        elif kind == "kept":
            event = await self.stream(c, "/v1/responses", {
                "input": sentence(rnd), "max_output_tokens": 8, "stream": True})
            await self.stream(c, "/v1/responses", {
                "input": sentence(rnd), "max_output_tokens": 8, "stream": True,
                "previous_response_id": event["response"]["id"]})
        else:
            await expect(c, 200, "/tokenize", {"content": sentence(rnd, 200)})
        self.done += 1


async def mixed(load, a):
    """Until the time is over; what has begun ends."""
    begun, idle, tasks = time.monotonic(), [Client(load.server.port) for _ in range(a.n)], set()

    async def one(kind, c):
        await load.ask(kind, c)
        idle.append(c)

    def ended(task):
        tasks.discard(task)
        if task.exception():
            raise SystemExit(f"a request failed: {task.exception()!r}")

    number = 0
    while (left := begun + number / a.rate - time.monotonic()) < 0 or \
            time.monotonic() + left < begun + a.seconds:
        await asyncio.sleep(max(0, left))
        if time.monotonic() > begun + a.seconds:
            break
        while not idle:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(one(load.rnd.choice(KINDS), idle.pop()))
        tasks.add(task)
        task.add_done_callback(ended)
        number += 1
    await asyncio.gather(*tasks)
    for c in idle:
        c.close()


# ---- before ----


async def fill(load):
    """The room for keys and values is touched as it fills with what is kept of requests: until no
    more of what is reserved is used."""
    c, rnd, least, same = Client(load.server.port), random.Random(5), float("inf"), 0
    for _ in range(60):
        await c.ask("POST", "/v1/completions", completion(1, sentence(rnd, 450)))
        reserved = load.server.metric("memory_reserved_bytes")
        same = same + 1 if reserved > least - MIB else 0
        least = min(least, reserved)
        if same == 3:
            break
    print(f"         {least / MIB:.0f} MiB are reserved and not used", flush=True)
    c.close()


def hurry(server):
    """Threads of the lowest priority get an ordinary one."""
    for tid in os.listdir(f"/proc/{server.pid}/task"):
        try:
            if os.sched_getscheduler(int(tid)) == os.SCHED_IDLE:
                os.sched_setscheduler(int(tid), os.SCHED_OTHER, os.sched_param(0))
        except (ProcessLookupError, PermissionError):
            pass


async def first_lesson(load, a):
    """Calibrates and trains, for --settle seconds at most; every kind is asked once meanwhile."""
    c = Client(load.server.port)
    await load.judge(c, correct=True)
    begun = time.monotonic()
    for kind in [*dict.fromkeys(KINDS), *["judge"] * JUDGED]:
        await load.ask(kind, c)
    while (r := (await c.ask("GET", "/v1/learning"))[1])["waiting"] and \
            time.monotonic() - begun < a.settle:
        if a.brisk:
            hurry(load.server)
        await asyncio.sleep(1)
    c.close()
    print(f"         after {time.monotonic() - begun:.0f} s in the background: {r['background']}, "
          f"{r['waiting']} lessons wait to be trained", flush=True)


# ---- watching ----


async def watch(load, a, rows):
    """Every ten seconds what the process has in memory, and a correction from time to time."""
    server, begun, taught = load.server, time.monotonic(), time.monotonic()
    c, said = Client(server.port), 0
    every = min(EVERY, a.seconds / 20)
    while (now := time.monotonic()) < begun + a.seconds:
        before = server.metric("memory_training_bytes")
        row = {"seconds": round(now - begun, 1), "resident": server.resident("VmRSS"),
               "own": server.resident()}
        row["training"] = int(max(before, server.metric("memory_training_bytes")))
        row["reserved"] = int(server.metric("memory_reserved_bytes"))
        row.update(requests=load.done, load=load_average())
        rows.append(row)
        if now - begun >= said * a.seconds / 10:
            said += 1
            print(f"         {row['seconds']:5.0f} s: {row['resident'] / MIB:.1f} MiB, "
                  f"{row['own'] / MIB:.1f} of its own, {row['training'] / MIB:.1f} for training, "
                  f"{load.done} requests, load {row['load']:.1f}", flush=True)
        if now - taught > a.teach:
            taught = now
            await load.judge(c, correct=True)
            c.close()
        for _ in range(10):
            if a.brisk:
                hurry(server)
            await asyncio.sleep(every / 10)
    c.close()


def in_time():
    """A clock that waits for the processor measures that too: where it is allowed, this process
    goes before the one that it measures."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        print("         the clock has no priority: run as root for exact times")


# ---- verdicts ----


def take_off(rows):
    """What training has written to, of what it has taken: it alone reserves more than there is at
    other times."""
    usual = min((r["reserved"] for r in rows if not r["training"]), default=0)
    for r in rows:
        r["trains"] = r["training"] > 0
        r["training"] = max(0, r["training"] - max(0, r["reserved"] - usual))


def judge_memory(a, rows, bar):
    grown = 8 * MIB if a.model == TINY else 0  # seconds of it are a beginning
    for what, words in (("resident", "in memory"), ("own", "of its own")):
        rest = [r[what] for r in rows if not r["trains"]]
        busy = [r for r in rows if r["trains"]]
        if not rest:
            bar(a.model == TINY, "there was no moment without training")
            continue
        bar(max(rest) <= 1.05 * min(rest) + grown,
            f"{words}, {len(rest)} moments without training: {min(rest) / MIB:.1f} to "
            f"{max(rest) / MIB:.1f} MiB ({100 * (max(rest) / min(rest) - 1):.1f} %, bar 5)")
        if busy:
            most = max(r[what] - r["training"] for r in busy)
            bar(most <= 1.05 * min(rest) + grown,
                f"{words}, {len(busy)} moments of training: {max(r[what] for r in busy) / MIB:.1f} "
                f"MiB at most, {most / MIB:.1f} without what it takes by the server's figures")


def compare(a, before, after, load, bar):
    """Mean times to the first token and to the end, by the server's figures and by a clock
    outside, of the same answers."""
    for k, words in (("first", "the first token"), ("whole", "the end")):
        outside = getattr(load, k)
        n = after[k][1] - before[k][1] - load.hidden[k][1]
        x = (after[k][0] - before[k][0] - load.hidden[k][0]) / n
        y = statistics.mean(outside)
        off = abs(y / x - 1)
        bar(n == len(outside) or a.model == TINY,  # which answers before a client could leave
            f"{n:.0f} times to {words} are reported, {len(outside)} were measured")
        bar(off <= 0.02 or a.model == TINY,  # whose answers take less time than to switch processes
            f"{words} comes after {1e3 * x:.2f} ms by the server's figures, {1e3 * y:.2f} by a "
            f"clock outside ({100 * off:.1f} %; bar 2 %)")


# ---- drawing ----


def draw(a, rows):
    """Memory over time; what training takes is drawn on top."""
    left, right, top, height = 64, 696, 72, 220
    end, most = rows[-1]["seconds"] or 1, max(r["resident"] for r in rows) / MIB * 1.1
    parts = []

    def x(r):
        return left + (right - left) * r["seconds"] / end

    def y(bytes_):
        return top + height * (1 - bytes_ / MIB / most)

    def line(values, kind):
        points = " ".join(f"{x(r):.1f},{y(v):.1f}" for r, v in zip(rows, values))
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="2" '
                     f'style="stroke: {kind}"/>')

    step = next(s for s in (10, 20, 50, 100, 200, 500, 1000, 5000) if most / s <= 8)
    for mark in range(0, int(most) + 1, step):
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y(mark * MIB):.1f}" '
                     f'y2="{y(mark * MIB):.1f}" stroke="#8883"/>'
                     f'<text class="faint end" x="{left - 8}" y="{y(mark * MIB) + 4:.1f}">'
                     f"{mark}</text>")
    for minute in range(0, int(end / 60) + 1, max(1, int(end / 60) // 6)):
        at = left + (right - left) * minute * 60 / end
        parts.append(f'<text class="faint" x="{at:.1f}" y="{top + height + 18}" '
                     f'text-anchor="middle">{minute} min</text>')
    line([r["resident"] for r in rows], "#c8812f")
    line([r["resident"] - min(r["training"], r["resident"]) for r in rows], "#3b76af")
    rest = [r["resident"] / MIB for r in rows if not r["trains"]] or [0]
    title = (f"{os.path.basename(a.model)}, {rows[-1]['requests']} requests in "
             f"{end / 60:.0f} minutes; without training {min(rest):.0f} to {max(rest):.0f} MiB")
    foot = top + height + 50
    with open(a.svg, "w", encoding="utf-8") as f:
        f.write("\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{foot + 16}" role="img">',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="719" height="{foot + 15}" rx="8"/>',
            '<text class="title" x="24" y="32">Memory under a mixed load, MiB</text>',
            f'<text class="faint" x="24" y="52">{escape(title)}</text>', *parts,
            f'<text class="faint" x="24" y="{foot}">orange: the process; blue: without what '
            "training takes, by the server's own figures</text>", "</svg>", ""]))


def soak(a, bar):
    options = [a.vectors] if a.vectors else []
    options += ["-t", str(a.threads)] if a.threads else []
    rows = []
    with ours(a.program, a.model, *options, "--ctx", "1024") as server:
        in_time()
        warm = Load(a, server)
        asyncio.run(fill(warm))
        asyncio.run(first_lesson(warm, a))
        load, before = Load(a, server), reported(server, a)
        load.n_taught = warm.n_taught

        async def both():
            await asyncio.gather(watch(load, a, rows), mixed(load, a))

        try:
            asyncio.run(both())
        finally:
            if a.csv and rows:
                with open(a.csv, "w", newline="", encoding="utf-8") as f:
                    w = csv.DictWriter(f, rows[0])
                    w.writeheader()
                    w.writerows(rows)
        after, cpu = reported(server, a), server.cpu_seconds()
    print(f"         {load.done} requests in {a.seconds:.0f} s, {cpu:.0f} s of CPU time in all")
    take_off(rows)
    if a.svg:
        draw(a, rows)
    judge_memory(a, rows, bar)
    compare(a, before, after, load, bar)
    bar(server.status == 0, "the server ended well")
